/* difference.h - how far two arrays of elements are apart.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Elements a (of the first array) and b differ if their bits do. For floats, errors are taken over the pairs of
 * finite numbers, in double precision: |b - a| is the absolute error, |b - a| / |a| the relative one. A pair with
 * a = 0 has a relative error only if b is 0 too (then it is 0; also of zeros of different sign). A pair in which
 * one is an infinity or NaN has no error; if its bits differ it is counted apart, unless both are NaN. */
#ifndef TOOL_DIFFERENCE_H
#define TOOL_DIFFERENCE_H

#include "../files/container.h"

/* What a type of floats is made of; null for other types. And the value of an element: 0 where it is infinite or NaN. */
typedef struct float_format float_format;
const float_format *float_format_of(const element_type *type);
int float_value(const float_format *t, uint64_t bits, double *value);

typedef struct difference {
    const element_type *type; /* null: bytes */
    unsigned width;           /* bytes of what is compared as one element */
    int is_float;
    uint64_t count, differing;
    uint64_t finite, related; /* pairs that have an absolute error; a relative one */
    uint64_t not_finite;      /* pairs that differ, without an error, */
    uint64_t nans;            /* but for NaNs that became other NaNs: those */
    double absolute_max, relative_max, relative_sum, square_sum;
} difference;

void difference_begin(difference *d, const element_type *type);

/* The next elements, little-endian, in both arrays: `bytes` is a multiple of d->width, but for types that are not
 * whole bytes or not known, which are compared as bytes. */
void difference_add(difference *d, const uint8_t *a, const uint8_t *b, size_t bytes);

/* Whether all that differ are within this relative error of what they were. */
int difference_is_within(const difference *d, double bound);

double difference_mre(const difference *d); /* mean relative error */
double difference_mse(const difference *d); /* mean square of the absolute error */

#endif
