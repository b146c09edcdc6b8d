/* plan.h - which frames a .safetensors file becomes, how, and against what.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PLAN_H
#define TOOL_PLAN_H

#include "adam.h"
#include "../files/file.h"
#include "pairs.h"
#include "references.h"
#include "../files/container.h"

typedef struct piece {
    uint64_t begin, bytes;  /* of the data */
    file_form form;
    int second;             /* is quantized as a second moment */
    int paired;             /* has elements of the base */
    file_range range;       /* which */
    int referred;           /* later pieces refer to it */
    uint64_t last;          /* where the last of these begins, a byte of the data; 0: none does */
} piece;

/* What is quantized is a frame of its own. */
static inline int piece_stands_alone(const piece *x) { return (x->form.cells | x->form.clusters) != 0; }

/* Whether it refers to earlier data of the file. */
static inline int piece_refers(const piece *x) { return x->paired && x->range.base == BITSNAP_BASE_ITSELF; }

typedef struct plan {
    piece *pieces;          /* in the order of the data, all of it */
    size_t count;
    int quantizes, refers;  /* some are; some refer to earlier ones */
    int grouped;            /* group.h says which are to be written together */
} plan;

/* Makes one frame of neighbours that are coded as the same dtype. With a base (`with`: partners in it, or null) or references
 * (`refs`, or null), their partners are neighbours, too. If some are referred to and others are not, only small ones join.
 * Without a base, a tensor that is quantized (`choices`, of each tensor, or null) is a frame of its own, and so is, at level
 * best, a matrix of floats that is large enough to gain by its columns, or what is left of it beside references. */
int plan_make(plan *p, const safetensors *model, const pairs *with, const references *refs, const adam_choice *choices,
              int is_delta, int level, fault *f);
void plan_free(plan *p);

#endif
