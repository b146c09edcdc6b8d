/* Arrays that the tests encode: reproducible, of every dtype, from noise to real shapes. */
#ifndef BITSNAP_TEST_DATA_H
#define BITSNAP_TEST_DATA_H

#include "test.h"

enum {
    DATA_NOISE,      /* all bits random */
    DATA_WEIGHTS,    /* like trained weights: magnitudes over some octaves, random sign and mantissa */
    DATA_CONSTANT,   /* one value */
    DATA_ZERO,
    DATA_SPARSE,     /* mostly zero */
    DATA_POSITIVE,   /* weights whose sign never changes */
    DATA_TRUNCATED,  /* weights whose low half is zero: F32 that came from BF16 */
    DATA_SPECIAL,    /* zeros of both signs, infinities, NaNs with payloads, subnormals, weights */
    DATA_STEPS,      /* few values, in runs */
    DATA_WIDE,       /* exponents from one end to the other */
    DATA_SIGNED,     /* small integers of both signs */
    DATA_SHAPES
};

static inline void data_store(uint8_t *p, uint64_t v, unsigned width)
{
    const uint16_t h = (uint16_t)v;
    const uint32_t w = (uint32_t)v;
    if (width == 1) *p = (uint8_t)v;
    else if (width == 2) memcpy(p, &h, 2);
    else if (width == 4) memcpy(p, &w, 4);
    else memcpy(p, &v, 8);
}

static inline uint64_t data_load(const uint8_t *p, unsigned width)
{
    uint16_t h;
    uint32_t w;
    uint64_t v;
    if (width == 1) return *p;
    if (width == 2) return memcpy(&h, p, 2), h;
    if (width == 4) return memcpy(&w, p, 4), w;
    return memcpy(&v, p, 8), v;
}

/* A number with a given layout: sign, exponent bits e, mantissa; integers have e = 0. */
static inline uint64_t data_element(int shape, size_t i, unsigned bits, unsigned e)
{
    const uint64_t r = test_random(), all = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1;
    const unsigned m = e ? bits - 1 - e : bits - 1 - (bits > 8 ? bits / 2 : 3);
    const unsigned top = e ? e : bits - 1 - m;
    const uint64_t mantissa = r & (((uint64_t)1 << m) - 1), sign = (r >> 63) << (bits - 1);
    const uint64_t middle = ((uint64_t)1 << (top - 1)) - 4;
    unsigned octave = 0;
    uint64_t q = test_random() | (uint64_t)1 << 40, exponent;
    while (!(q & 1)) octave++, q >>= 1; /* geometric */
    exponent = middle > octave ? middle - octave : 0;
    switch (shape) {
    case DATA_NOISE: return r & all;
    case DATA_CONSTANT: return UINT64_C(0x3F8A12345678BEEF) >> (64 - bits) & all;
    case DATA_ZERO: return 0;
    case DATA_SPARSE: if (test_random() % 10) return 0; break;
    case DATA_POSITIVE: return exponent << m | mantissa;
    case DATA_TRUNCATED: return (sign | exponent << m | mantissa) & ~(((uint64_t)1 << (bits / 2)) - 1) & all;
    case DATA_SPECIAL:
        switch (test_random() % 8) {
        case 0: return sign;
        case 1: return sign | ((((uint64_t)1 << top) - 1) << m);
        case 2: return sign | ((((uint64_t)1 << top) - 1) << m) | mantissa;
        case 3: return sign | mantissa;
        default: break;
        }
        break;
    case DATA_SIGNED: return ((r & 127) - 64) & all;
    case DATA_STEPS: return ((i / 37) * 0x9E37u % 11) & all;
    case DATA_WIDE: return (sign | (test_random() % ((uint64_t)1 << top)) << m | mantissa) & all;
    default: break;
    }
    return (sign | exponent << m | mantissa) & all;
}

static inline void data_fill(void *p, size_t n, unsigned dtype, int shape)
{
    static const unsigned width[12] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 2, 4, 8 };
    static const unsigned exponent[12] = { 0, 0, 0, 0, 0, 0, 4, 5, 5, 8, 8, 11 };
    size_t i;
    for (i = 0; i < n; i++)
        data_store((uint8_t *)p + i * width[dtype], data_element(shape, i, 8 * width[dtype], exponent[dtype]), width[dtype]);
}

#endif
