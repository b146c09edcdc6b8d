/* references.h - which tensors of a file are equal to earlier ones of the same file, or are what these round to.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_REFERENCES_H
#define TOOL_REFERENCES_H

#include "pairs.h"

/* Finds the partners of tensors among the earlier ones of the file; p->list[i].base of such a tensor is BITSNAP_BASE_ITSELF. A partner
 *   - has the same dtype and size and the same bytes, or
 *   - has a name that ends alike and the same number of elements. One of the two is F32, the other F16 or BF16, and samples say that this is what
 *     the first rounds to.
 * A partner has none itself. Neighbours whose partners are neighbours have enough elements together for a frame. `skip`: of each tensor, 1 if it
 * takes no part; or null. The input is a regular file, whose data begin with byte `data`. Reads samples, and whole tensors only if their samples are
 * equal; time is linear, except for sorting. pairs_free is to be called after failures, too. */
int references_find(pairs *p, const safetensors *model, uint64_t data, const input *in, const unsigned char *skip, fault *f);

#endif
