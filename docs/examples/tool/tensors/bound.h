/* bound.h - the order-0 bound: how small elements could become without looking at their neighbours.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * For each 65,536 elements of a frame (the last may be fewer), it is the smallest of three numbers of bits:
 *     the entropy of the exponents, plus all other bits that vary
 *     the entropy of the choice between zero and other elements, plus the first number for the others
 *     the entropies of the separate bytes; integers have only this one
 * Tables, headers and checks are not counted. A codec that uses more than single elements can beat it. */
#ifndef TOOL_BOUND_H
#define TOOL_BOUND_H

#include "../files/codec.h"

#define BOUND_CELL 65536u

/* Sets bits[i] to the bound of cell i of `bytes`, in bits. `bytes` are little-endian elements, from a multiple of 65,536 elements
 * of the frame on. Uses the codec's threads. */
void bound_cells(codec *c, const uint8_t *bytes, size_t size, bitsnap_dtype dtype, double *bits);

#endif
