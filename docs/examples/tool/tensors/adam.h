/* adam.h - which tensors are the moments of Adam, and how coarse they may become.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * m is the first moment (exp_avg), v the second (exp_avg_sq); an update of a weight is lr * m / (sqrt(v) + eps). */
#ifndef TOOL_ADAM_H
#define TOOL_ADAM_H

#include "../files/container.h"

typedef enum adam_role { ADAM_NONE, ADAM_M, ADAM_V } adam_role;

/* What --adam says. */
typedef struct adam_policy {
    const char *name;        /* as it was given; null: no --adam */
    unsigned m_cells, v_cells; /* LOG-n; 0: lossless */
    unsigned clusters;       /* or both by so many clusters, 2 to 256, as in BitSnap, arXiv 2511.12376; 0: not */
    int stage;               /* the bins are still to be found */
    double rate;             /* of which learning rate, then */
    uint64_t least;          /* elements: smaller tensors stay exact */
} adam_policy;

/* "exact", "resume", "standard", "small", "stage", "stage=RATE", "clusters", "clusters=N", or "m=LOSS,v=LOSS" where LOSS is a relative error (0.5%,
 * 0.005), bins (LOG-70, log70), or lossless. Returns 0, or 1 with a message. */
int adam_parse(adam_policy *p, const char *text, fault *f);

/* What a tensor is, and what becomes of it. */
typedef struct adam_choice {
    adam_role role;
    const char *pattern;     /* by which it is known */
    int by_file;             /* the pattern is in the file's name */
    const tensor *partner;   /* its v, or m, in the same file; null: none there */
    unsigned cells, clusters; /* both 0: exact */
    const char *why;         /* why it is exact */
} adam_choice;

/* The roles of all tensors, by their names, then by the file's: in memory that the caller frees; null: no memory. */
adam_choice *adam_roles(const safetensors *model, const char *path);

/* The bins that the policy, if its name is not null, has for them. None has a tensor that belongs to a quantized moment, as its scales
 * do, or has another size than its weight or the other moment, where these are in the file. Returns 0, or 1: no memory. */
int adam_choose(const adam_policy *p, const safetensors *model, adam_choice *choices);

/* Whether a negative number is among little-endian elements of a dtype that has octaves. No second moment has one. */
int adam_has_negative(bitsnap_dtype dtype, const uint8_t *elements, size_t bytes);

/* This tensor is called a second moment, but has negative elements: it stays exact, and the first moment that goes with it. */
void adam_refuse(adam_choice *choices, const safetensors *model, size_t tensor);

/* The name that the tensor of the other moment, or with `other` null the weight, would have if this is its name: in memory
 * that the caller frees; null: no memory, or no moment. */
char *adam_name_with(text_slice name, const char *other, size_t *size);

/* The other moment by the pattern of one: "exp_avg_sq" of "exp_avg". */
const char *adam_counterpart(const char *pattern);

/* The pattern of a moment in the name of a file; null: none. */
const char *adam_file_pattern(const char *path, adam_role *role);

/* The relative error of an update is below this, where those of m and v are below these: (1 + m) / sqrt(1 - v) - 1. */
double adam_update_bound(double m, double v);

/* sqrt(x) for x >= 0. Not the one of libm, which the tool would need for nothing else. */
double square_root(double x);

#endif
