/* difference.c - how far two arrays of elements are apart.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "difference.h"

#include "../files/bytes.h"

#include <string.h>

/* A float format. A value is (-1)^sign * 2^(exponent - bias) * 1.mantissa, with special values as in IEEE 754. */
struct float_format {
    const char *name;
    unsigned mantissa_bits, exponent_bits;
    int bias;
    int infinities; /* 1: the largest exponent means infinities and NaN; 0: only its largest mantissa means NaN */
};

static const float_format formats[] = {
    { "F8_E5M2", 2, 5, 15, 1 },
    { "F8_E4M3", 3, 4, 7, 0 },
    { "F16", 10, 5, 15, 1 },
    { "BF16", 7, 8, 127, 1 },
    { "F32", 23, 8, 127, 1 },
    { "F64", 52, 11, 1023, 1 }
};

const float_format *float_format_of(const element_type *type)
{
    size_t i;
    for (i = 0; type && i < sizeof formats / sizeof *formats; i++)
        if (!strcmp(type->name, formats[i].name)) return &formats[i];
    return NULL;
}

void difference_begin(difference *d, const element_type *type)
{
    memset(d, 0, sizeof *d);
    d->type = type;
    d->width = type && type->bits >= 8 ? type->bits / 8 : 1;
    d->is_float = float_format_of(type) != NULL;
}

/* x * 2^n by multiplications that are exact, down to where doubles end. */
static double scale(double x, int n)
{
    for (; n > 60; n -= 60) x *= (double)((uint64_t)1 << 60);
    for (; n < -60; n += 60) x /= (double)((uint64_t)1 << 60);
    return n < 0 ? x / (double)((uint64_t)1 << -n) : x * (double)((uint64_t)1 << n);
}

typedef enum value_class { FINITE, INFINITE, NOT_A_NUMBER } value_class;

static value_class value_of(const float_format *t, uint64_t bits, double *value)
{
    const uint64_t mantissa_mask = ((uint64_t)1 << t->mantissa_bits) - 1;
    const uint64_t exponent_mask = ((uint64_t)1 << t->exponent_bits) - 1;
    const uint64_t mantissa = bits & mantissa_mask, exponent = bits >> t->mantissa_bits & exponent_mask;
    const int negative = (int)(bits >> (t->mantissa_bits + t->exponent_bits) & 1);
    *value = 0;
    if (exponent == exponent_mask) {
        if (t->infinities) return mantissa ? NOT_A_NUMBER : INFINITE;
        if (mantissa == mantissa_mask) return NOT_A_NUMBER;
    }
    *value = exponent ? scale((double)(mantissa | (mantissa_mask + 1)), (int)exponent - t->bias - (int)t->mantissa_bits)
                      : scale((double)mantissa, 1 - t->bias - (int)t->mantissa_bits);
    if (negative) *value = -*value;
    return FINITE;
}

int float_value(const float_format *t, uint64_t bits, double *value) { return value_of(t, bits, value) == FINITE; }

/* Two elements that differ. */
static void add_pair(difference *d, const float_format *t, uint64_t x, uint64_t y)
{
    double a, b, absolute, relative;
    const value_class class_a = value_of(t, x, &a), class_b = value_of(t, y, &b);
    d->differing++;
    if (class_a != FINITE || class_b != FINITE) {
        if (class_a != NOT_A_NUMBER || class_b != NOT_A_NUMBER) d->not_finite++;
        else d->nans++;
        return;
    }
    d->finite++;
    absolute = b < a ? a - b : b - a;
    if (absolute > d->absolute_max) d->absolute_max = absolute;
    d->square_sum += absolute * absolute;
    if (a < 0) a = -a;
    if (a <= 0 && absolute > 0) return;
    d->related++;
    relative = absolute > 0 ? absolute / a : 0;
    if (relative > d->relative_max) d->relative_max = relative;
    d->relative_sum += relative;
}

/* Most elements are equal: they add nothing to the errors, but count if they are finite. `width` is a constant of
 * each call, so that loads are single instructions. */
static inline void add_floats(difference *d, const float_format *t, const uint8_t *a, const uint8_t *b, size_t n,
                              unsigned width)
{
    uint64_t equal = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t x = bytes_load(a + i * width, width), y = bytes_load(b + i * width, width);
        double value;
        if (x != y) {
            add_pair(d, t, x, y);
        } else if (t->infinities) {
            const uint64_t mask = (((uint64_t)1 << t->exponent_bits) - 1) << t->mantissa_bits;
            equal += (x & mask) != mask;
        } else {
            equal += value_of(t, x, &value) == FINITE;
        }
    }
    d->finite += equal;
    d->related += equal;
}

void difference_add(difference *d, const uint8_t *a, const uint8_t *b, size_t bytes)
{
    const float_format *t = float_format_of(d->type);
    const size_t n = bytes / d->width;
    size_t i;
    d->count += n;
    if (t) {
        switch (d->width) {
        case 1: add_floats(d, t, a, b, n, 1); break;
        case 2: add_floats(d, t, a, b, n, 2); break;
        case 4: add_floats(d, t, a, b, n, 4); break;
        default: add_floats(d, t, a, b, n, 8); break;
        }
    } else if (memcmp(a, b, bytes)) {
        for (i = 0; i < bytes; i += d->width) d->differing += memcmp(a + i, b + i, d->width) != 0;
    }
}

int difference_is_within(const difference *d, double bound)
{
    return d->is_float && d->relative_max <= bound && d->related == d->finite && !d->not_finite && !d->nans;
}

double difference_mre(const difference *d) { return d->related ? d->relative_sum / (double)d->related : 0; }

double difference_mse(const difference *d) { return d->finite ? d->square_sum / (double)d->finite : 0; }
