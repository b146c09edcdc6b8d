/* stage.h - chooses how coarsely the moments of Adam may be quantized at this stage of the training.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_STAGE_H
#define TOOL_STAGE_H

#include "adam.h"
#include "../system/place.h"

/* The measurement. */
typedef struct stage {
    double ratio;          /* size of an update over that of the weights: rate * rms(m / sqrt(v)) / rms(w) */
    double allowed;        /* the relative error of an update that this ratio allows */
    uint64_t elements;     /* number of those of the weights that have both moments */
    char *weights;         /* path of the file with the weights */
} stage;

/* Sets the bins of a policy "stage" for the moments in a .safetensors file, at `path`, with this header. Looks for the other
 * moment and the weights in the same file, then in files beside it whose names differ by the word for the moment. `weights`: file
 * with the weights, or null. Adds the files that it reads to *u. docs/LOG.md has the formula. */
int stage_find(stage *s, adam_policy *p, const safetensors *model, const char *path, const char *weights, used_files *u, fault *f);
void stage_free(stage *s);

#endif
