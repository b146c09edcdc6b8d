/* pairs.h - which tensors of a file have a partner in the base, and whether that helps.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PAIRS_H
#define TOOL_PAIRS_H

#include "../files/file.h"
#include "../console/json.h"
#include "../files/container.h"

typedef enum pair_kind {
    PAIR_ABSENT,   /* the base has no tensor of that name */
    PAIR_SHAPE,    /* it has one of another shape */
    PAIR_DTYPE,    /* it has one of the same shape, but its dtype does not fit */
    PAIR_NO_GAIN,  /* it has a partner, but samples show no gain */
    PAIR_FOUND
} pair_kind;

typedef struct pair {
    pair_kind kind;
    const tensor *other;   /* the tensor in the base; null: none */
    unsigned base;         /* number of the base that holds `other` */
    uint64_t bytes;        /* the first bytes of the tensor, which have a counterpart: all of it, or the rows that both have */
} pair;

typedef struct pairs {
    pair *list;            /* one for each tensor of the model */
    size_t count;
    size_t found, used;    /* number of tensors with a partner; of those to code against it */
    uint64_t found_bytes, used_bytes;
    uint64_t sampled, alone; /* bytes of all samples: their elements; their frames without a base */
} pairs;

/* Rules FROM=TO. A name that begins with FROM begins with TO in the base. The first rule that fits is used. */
typedef struct renames {
    const char *const *rules;
    size_t count;
} renames;

/* Finds a partner for each tensor in `count` bases. First takes a tensor whose name matches by the rules. If there is none, takes
 * the only one whose name differs just by the prefixes that wrappers of models add. Each time base number `own` is searched
 * first, then the others in order; there need be no such number. The shapes may differ in the number of rows only. The dtypes are
 * equal, or one is F32 and the other F16 or BF16. */
int pairs_find(pairs *p, const safetensors *model, const safetensors *const *bases, unsigned count, size_t own, const renames *r, fault *f);

/* Codes samples with and without the base, and sets PAIR_NO_GAIN for tensors that gain nothing. Samples are 1/256 of the data, or
 * more of small files; there are at most 4,096. A large tensor with enough samples is judged alone. If all samples together gain
 * 0.1 % at most, no tensor is coded against the base. The input is at the first byte of the data, and is there again afterwards.
 * Does nothing if it is not a regular file. */
int pairs_sample(pairs *p, codec *c, input *in, const safetensors *model, const file_base *bases, fault *f);

/* Gives the bases in use consecutive numbers, in their order, and returns how many there are. numbers[i] becomes the new number
 * of base i, or `count` if no tensor uses it. */
unsigned pairs_number(pairs *p, unsigned *numbers, unsigned count);

/* Estimates from the samples how many bytes the tensors with partners would take without them; 0: not known. */
uint64_t pairs_alone(const pairs *p);

/* pairs_print writes a line for each tensor without a partner, with the reason, and for each whose partner has another name or
 * shape. pairs_json writes "partners": {...}, "unlike_partner": [...] and "without_partner": [...]. `against`: bytes of elements
 * that were coded as equal to the base, or as differences to it. */
void pairs_print(const pairs *p, FILE *to, const char *path, const safetensors *model);
void pairs_json(const pairs *p, json *j, const safetensors *model, uint64_t against);

void pairs_free(pairs *p);

#endif
