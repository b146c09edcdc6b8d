/* bound.h - the order-0 bound: how small elements could become if each exponent were coded for itself.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * For every 65,536 elements of a frame (the last piece may have fewer): the entropy of their exponents, and all
 * other bits as they are, but for those that are the same in all of these elements, which cost nothing. Integers
 * have no exponents: for them it is the entropy of each of their bytes. No tables, headers and checks are counted;
 * a codec that sees more than single exponents can be better. */
#ifndef TOOL_BOUND_H
#define TOOL_BOUND_H

#include "../files/codec.h"

#define BOUND_CELL 65536u

/* The bits of the 65,536-element cells that `bytes` hold, which begin at a multiple of 65,536 elements of the
 * frame; bits[i] is that of cell i. The elements are little-endian. Uses the codec's threads. */
void bound_cells(codec *c, const uint8_t *bytes, size_t size, bitsnap_dtype dtype, double *bits);

#endif
