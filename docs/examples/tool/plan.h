/* plan.h - which frames a .safetensors file becomes, and against what.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PLAN_H
#define TOOL_PLAN_H

#include "file.h"
#include "safetensors.h"

typedef struct piece {
    bitsnap_dtype dtype;
    uint64_t begin, bytes;  /* of the data */
    int paired;             /* has elements of the base */
    file_range range;       /* which */
} piece;

typedef struct plan {
    piece *pieces;          /* in the order of the data, all of it */
    size_t count;
} plan;

/* Neighbours that are coded as the same dtype are one frame. With a base: those whose partners there are neighbours, too;
 * a tensor's partner has its name, its shape and its dtype, or is F32 where the tensor is F16 or BF16. */
int plan_make(plan *p, const safetensors *model, const safetensors *base, fault *f);
void plan_free(plan *p);

#endif
