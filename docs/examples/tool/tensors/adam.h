/* adam.h - finds the tensors that are moments of Adam, and chooses how coarsely to quantize them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * m is the first moment (exp_avg), v the second (exp_avg_sq); an update of a weight is lr * m / (sqrt(v) + eps). */
#ifndef TOOL_ADAM_H
#define TOOL_ADAM_H

#include "../files/container.h"

typedef enum adam_role { ADAM_NONE, ADAM_M, ADAM_V } adam_role;

/* The policy that --adam gives. */
typedef struct adam_policy {
    const char *name;        /* as given; null: no --adam */
    unsigned m_cells, v_cells; /* LOG-n; 0: lossless */
    unsigned clusters;       /* number of clusters for both moments, 2 to 256, as in BitSnap, arXiv 2511.12376; 0: no clusters */
    int stage;               /* 1: the bins are still to be chosen */
    double rate;             /* with `stage`: the learning rate */
    uint64_t least;          /* tensors with fewer elements stay exact */
} adam_policy;

/* Parses "exact", "resume", "standard", "small", "stage", "stage=RATE", "clusters", "clusters=N", or "m=LOSS,v=LOSS" where LOSS
 * is a relative error (0.5%, 0.005), bins (LOG-70, log70), or lossless. Returns 0, or 1 with a message. */
int adam_parse(adam_policy *p, const char *text, fault *f);

/* The role of a tensor, and how it is coded. */
typedef struct adam_choice {
    adam_role role;
    const char *pattern;     /* the word that shows the role */
    int by_file;             /* 1: the pattern is in the file's name, not in the tensor's */
    const tensor *partner;   /* the other moment, if it is in the same file; else null */
    unsigned cells, clusters; /* both 0: exact */
    const char *why;         /* why it is exact */
} adam_choice;

/* Returns the roles of all tensors, from their names, or else from that of the file. The caller frees them; null: no memory. */
adam_choice *adam_roles(const safetensors *model, const char *path);

/* Chooses bins or clusters for the moments by the policy, if its name is not null. A tensor stays exact if it is part of a moment
 * that is already quantized, such as its scales, or if its size differs from that of its weight or of the other moment in the
 * file. Returns 0, or 1: no memory. */
int adam_choose(const adam_policy *p, const safetensors *model, adam_choice *choices);

/* Returns 1 if there is a negative number among little-endian elements of a float dtype. A second moment has none. */
int adam_has_negative(bitsnap_dtype dtype, const uint8_t *elements, size_t bytes);

/* Makes a tensor exact that is called a second moment but has negative elements. Its first moment stays exact, too. */
void adam_refuse(adam_choice *choices, const safetensors *model, size_t tensor);

/* Returns the name that the moment `other`, or if that is null the weight, has if a moment has this name. The caller frees it.
 * Null: no memory, or this is not the name of a moment. */
char *adam_name_with(text_slice name, const char *other, size_t *size);

/* Returns the pattern of the other moment: "exp_avg_sq" for "exp_avg". */
const char *adam_counterpart(const char *pattern);

/* Returns the pattern of a moment in the name of a file; null: it has none. */
const char *adam_file_pattern(const char *path, adam_role *role);

/* Returns (1 + m) / sqrt(1 - v) - 1, a bound of the relative error of an update if m and v bound those of the moments. */
double adam_update_bound(double m, double v);

/* Returns sqrt(x) for x >= 0. The tool needs nothing else of libm, so it does not link it. */
double square_root(double x);

#endif
