/* difference.h - measures how far two arrays of elements differ.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Elements a, of the first array, and b differ if their bits do. Errors of floats are computed in double precision, for pairs of
 * finite numbers: |b - a| is the absolute error, |b - a| / |a| the relative one. If a is 0, the relative error is 0 if b is 0 or
 * -0, and undefined otherwise. A pair with an infinity or a NaN has no error; if its bits differ, not_finite or nans counts
 * it. */
#ifndef TOOL_DIFFERENCE_H
#define TOOL_DIFFERENCE_H

#include "../files/container.h"

/* float_format_of returns null for types other than floats. float_value returns 1, or 0 if the element is infinite or NaN. */
typedef struct float_format float_format;
const float_format *float_format_of(const element_type *type);
int float_value(const float_format *t, uint64_t bits, double *value);

typedef struct difference {
    const element_type *type; /* null: bytes */
    unsigned width;           /* bytes compared as one element */
    int is_float;
    uint64_t count, differing;
    uint64_t finite, related; /* pairs with an absolute error; with a relative one */
    uint64_t not_finite;      /* pairs that differ and have an infinity, or one NaN */
    uint64_t nans;            /* pairs of NaNs that differ */
    double absolute_max, relative_max, relative_sum, square_sum;
} difference;

void difference_begin(difference *d, const element_type *type);

/* Compares the next elements of both arrays, little-endian. `bytes` is a multiple of d->width. Types that are unknown or not
 * whole bytes are compared byte by byte. */
void difference_add(difference *d, const uint8_t *a, const uint8_t *b, size_t bytes);

/* Returns 1 if the elements are floats, and all that differ are finite and within this relative error. */
int difference_is_within(const difference *d, double bound);

double difference_mre(const difference *d); /* mean relative error */
double difference_mse(const difference *d); /* mean square of the absolute error */

#endif
