/* stage.h - how coarse the moments of Adam may become at this stage of the training.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_STAGE_H
#define TOOL_STAGE_H

#include "adam.h"
#include "../system/place.h"

/* What was measured. */
typedef struct stage {
    double ratio;          /* of the size of an update to that of the weights: rate * rms(m / sqrt(v)) / rms(w) */
    double allowed;        /* the relative error of an update that follows from it */
    uint64_t elements;     /* of the weights that both moments were found for */
    char *weights;         /* the file that these are in */
} stage;

/* Finds the bins of a policy "stage" for the moments in the file at `path`, which is a .safetensors file with this header.
 * The other moment and the weights are looked for in the same file, then in files beside it whose names differ by the word;
 * `weights`: where the weights are, or null; `u`: what is read is noted there. docs/LOG.md has the formula. */
int stage_find(stage *s, adam_policy *p, const safetensors *model, const char *path, const char *weights, used_files *u, fault *f);
void stage_free(stage *s);

#endif
