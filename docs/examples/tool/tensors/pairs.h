/* pairs.h - which tensors of a file have a partner in the base, and whether that helps.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PAIRS_H
#define TOOL_PAIRS_H

#include "../files/file.h"
#include "../console/json.h"
#include "../files/container.h"

typedef enum pair_kind {
    PAIR_ABSENT,   /* the base has no such tensor */
    PAIR_SHAPE,    /* one of the name, but of another shape */
    PAIR_DTYPE,    /* of the shape, too, but of another dtype */
    PAIR_NO_GAIN,  /* a partner that samples say is of no use */
    PAIR_FOUND
} pair_kind;

typedef struct pair {
    pair_kind kind;
    const tensor *other;   /* in the base; null: none */
    unsigned base;         /* the number of that */
    uint64_t bytes;        /* so many of the tensor, from the first on, have elements there: all, or the rows that both have */
} pair;

typedef struct pairs {
    pair *list;            /* of each tensor of the model */
    size_t count;
    size_t found, used;    /* tensors that have a partner, and of these the ones that are to be coded against it */
    uint64_t found_bytes, used_bytes;
    uint64_t sampled, alone; /* bytes of samples: as they are, and coded for themselves */
} pairs;

/* Rules FROM=TO: a name that begins with FROM begins in the base with TO instead. The first that fits counts. */
typedef struct renames {
    const char *const *rules;
    size_t count;
} renames;

/* A partner in one of `count` bases, in `own` (its number, if there is it) before all others and then in their order, has the tensor's name by the rules, or is the only one whose name differs by prefixes that wrappers of models add;
 * and its shape, but for the number of rows, and its dtype, or is F32 where the tensor is F16 or BF16. */
int pairs_find(pairs *p, const safetensors *model, const safetensors *const *bases, unsigned count, size_t own, const renames *r, fault *f);

/* Codes samples both ways, about 1/256 of large files: what gains nothing is not to be coded against the base. Large tensors
 * are judged where there are enough samples of them, then all together: where they gain less than 0.1 %, none is. The input
 * stands behind the header of a .safetensors file, as it does afterwards; of what is no regular file nothing can be sampled. */
int pairs_sample(pairs *p, codec *c, input *in, const safetensors *model, const file_base *bases, fault *f);

/* Numbers the bases that are used anew, in their order: numbers[i] becomes the one of base i, or `count` where it is not; returns how many. */
unsigned pairs_number(pairs *p, unsigned *numbers, unsigned count);

/* What the tensors with partners would take without them, by the samples; 0: not known. */
uint64_t pairs_alone(const pairs *p);

/* A line for each tensor that is not coded against the base, and why, or against one of another name or shape; "partners": {...},
 * "unlike_partner": [...], "without_partner": [...]. Of the elements `against` bytes were coded as the base's, or as differences to them. */
void pairs_print(const pairs *p, FILE *to, const char *path, const safetensors *model);
void pairs_json(const pairs *p, json *j, const safetensors *model, uint64_t against);

void pairs_free(pairs *p);

#endif
