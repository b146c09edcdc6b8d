/* plan.h - plans the frames of a .safetensors file: their form, and their bases.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PLAN_H
#define TOOL_PLAN_H

#include "adam.h"
#include "../files/file.h"
#include "pairs.h"
#include "references.h"
#include "../files/container.h"

typedef struct piece {
    uint64_t begin, bytes;  /* in the data */
    file_form form;
    int second;             /* 1: quantized as a second moment */
    int paired;             /* 1: coded against elements of a base */
    file_range range;       /* the elements of the base */
    int referred;           /* 1: later pieces refer to it */
    uint64_t last;          /* byte of the data where the last of them begins; 0: no such piece */
} piece;

/* Returns 1 if a piece is quantized. It is then not joined with others. */
static inline int piece_stands_alone(const piece *x) { return (x->form.cells | x->form.clusters) != 0; }

/* Returns 1 if a piece refers to earlier data of the file. */
static inline int piece_refers(const piece *x) { return x->paired && x->range.base == BITSNAP_BASE_ITSELF; }

typedef struct plan {
    piece *pieces;          /* in the order of the data; they cover all of it */
    size_t count;
    int quantizes, refers;  /* 1: some pieces are quantized; some refer to earlier ones */
    int grouped;            /* 1: group_length says which to write together */
} plan;

/* Joins neighbours that are coded as the same dtype into one frame. With a base (`with`: partners in it, or null) or references
 * (`refs`, or null), their partners must be neighbours, too. Where some are referred to and others are not, only small ones are
 * joined. Without a base, a quantized tensor (`choices`: one for each tensor, or null) is a separate frame. At level best so is a
 * matrix of floats that is large enough to gain from its columns, or what references leave of it. */
int plan_make(plan *p, const safetensors *model, const pairs *with, const references *refs, const adam_choice *choices,
              int is_delta, int level, fault *f);
void plan_free(plan *p);

#endif
