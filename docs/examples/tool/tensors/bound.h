/* bound.h - the order-0 bound: how small elements could become without looking at their neighbours.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * For every 65,536 elements of a frame (the last piece may have fewer) the smallest of three numbers of bits:
 *     the entropy of exponents, and all other bits as they are, but those that are the same in all of these elements
 *     which elements are zero, and that of the others
 *     the entropy of each of their bytes, which is all that integers have
 * No tables, headers and checks are counted. A codec that sees more than single elements can be better. */
#ifndef TOOL_BOUND_H
#define TOOL_BOUND_H

#include "../files/codec.h"

#define BOUND_CELL 65536u

/* The bits of the 65,536-element cells that `bytes` hold, which begin at a multiple of 65,536 elements of the
 * frame; bits[i] is that of cell i. The elements are little-endian. Uses the codec's threads. */
void bound_cells(codec *c, const uint8_t *bytes, size_t size, bitsnap_dtype dtype, double *bits);

#endif
