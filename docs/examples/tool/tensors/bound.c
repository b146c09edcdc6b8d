/* bound.c - the order-0 bound: how small elements could become without looking at their neighbours.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "bound.h"

#include "../files/bytes.h"

#include <string.h>

/* Returns log2 of an integer > 0. The tool needs nothing else of libm, so it does not link it. */
static double log2_of(uint32_t x)
{
    double m = x, y, square, term, sum = 0;
    unsigned whole = 0, k;
    for (; m >= 1.5; m /= 2) whole++;
    y = (m - 1) / (m + 1); /* |y| <= 1/5: each term is a 25th of the one before */
    square = y * y;
    for (k = 1, term = y; k < 23; k += 2, term *= square) sum += term / k;
    return whole + sum * 2.8853900817779268; /* 2 / ln 2 */
}

static double entropy_bits(const uint32_t *count, size_t symbols, uint32_t total)
{
    double bits = 0;
    size_t i;
    for (i = 0; i < symbols; i++)
        if (count[i]) bits += count[i] * (log2_of(total) - log2_of(count[i]));
    return bits;
}

static unsigned ones(uint64_t x)
{
    unsigned n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

/* Gives the lowest bit of the exponent, and its number of bits; 0 bits for integers. */
static void exponent_of(bitsnap_dtype dtype, unsigned *shift, unsigned *bits)
{
    switch (dtype) {
    case BITSNAP_F8_E4M3: *shift = 3; *bits = 4; break;
    case BITSNAP_F8_E5M2: *shift = 2; *bits = 5; break;
    case BITSNAP_F16: *shift = 10; *bits = 5; break;
    case BITSNAP_BF16: *shift = 7; *bits = 8; break;
    case BITSNAP_F32: *shift = 23; *bits = 8; break;
    case BITSNAP_F64: *shift = 52; *bits = 11; break;
    default: *shift = *bits = 0; break;
    }
}

static double integer_bits(const uint8_t *p, size_t n, unsigned width)
{
    uint32_t count[256];
    double bits = 0;
    unsigned k;
    size_t i;
    for (k = 0; k < width; k++) {
        memset(count, 0, sizeof count);
        for (i = 0; i < n; i++) count[p[i * width + k]]++;
        bits += entropy_bits(count, 256, (uint32_t)n);
    }
    return bits;
}

/* Returns the smallest of the three numbers of bits in bound.h. Called with a constant width. */
static inline double float_bits(const uint8_t *p, size_t n, unsigned width, unsigned shift, unsigned exponent_bits)
{
    uint32_t count[2048], zeros = 0, negative = 0;
    const uint32_t mask = ((uint32_t)1 << exponent_bits) - 1;
    const uint64_t magnitude = ~(uint64_t)0 >> (65 - 8 * width), others = ~((uint64_t)mask << shift);
    uint64_t any = 0, all = ~(uint64_t)0;
    double bits, apart, bytes = integer_bits(p, n, width);
    size_t i;
    memset(count, 0, sizeof count);
    for (i = 0; i < n; i++, p += width) {
        const uint64_t x = bytes_load(p, width);
        if (!(x & magnitude)) {
            zeros++;
            negative += x != 0;
            continue;
        }
        count[(uint32_t)(x >> shift) & mask]++;
        any |= x;
        all &= x;
    }
    apart = zeros < n ? entropy_bits(count, (size_t)mask + 1, (uint32_t)n - zeros) + (double)(n - zeros) * ones((any ^ all) & others) : 0;
    if (zeros) {
        const uint32_t kinds[2] = { zeros, (uint32_t)n - zeros };
        apart += entropy_bits(kinds, 2, (uint32_t)n) + (negative && negative < zeros ? zeros : 0);
        count[0] += zeros;
        any |= negative ? magnitude + 1 : 0;
        all &= negative == zeros ? magnitude + 1 : 0;
    }
    bits = entropy_bits(count, (size_t)mask + 1, (uint32_t)n) + (double)n * ones((any ^ all) & others);
    if (apart < bits) bits = apart;
    return bytes < bits ? bytes : bits;
}

typedef struct cells {
    const uint8_t *bytes;
    size_t elements;
    unsigned width, shift, exponent_bits;
    double *bits;
} cells;

static void cell_task(void *argument, uint64_t index, unsigned worker)
{
    const cells *c = (const cells *)argument;
    const size_t begin = (size_t)index * BOUND_CELL, left = c->elements - begin;
    const size_t n = left < BOUND_CELL ? left : BOUND_CELL;
    const uint8_t *p = c->bytes + begin * c->width;
    (void)worker;
    if (!c->exponent_bits) c->bits[index] = integer_bits(p, n, c->width);
    else if (c->width == 1) c->bits[index] = float_bits(p, n, 1, c->shift, c->exponent_bits);
    else if (c->width == 2) c->bits[index] = float_bits(p, n, 2, c->shift, c->exponent_bits);
    else if (c->width == 4) c->bits[index] = float_bits(p, n, 4, c->shift, c->exponent_bits);
    else c->bits[index] = float_bits(p, n, 8, c->shift, c->exponent_bits);
}

void bound_cells(codec *c, const uint8_t *bytes, size_t size, bitsnap_dtype dtype, double *bits)
{
    cells all;
    all.bytes = bytes;
    all.width = bitsnap_width(dtype);
    all.elements = size / all.width;
    all.bits = bits;
    exponent_of(dtype, &all.shift, &all.exponent_bits);
    pool_run(c->threads, cell_task, &all, (all.elements + BOUND_CELL - 1) / BOUND_CELL);
}
