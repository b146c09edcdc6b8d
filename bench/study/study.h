/* What the parts of the study share. */
#ifndef STUDY_STUDY_H
#define STUDY_STUDY_H

#include "../tensors.h"
#include "forms.h"

typedef struct options {
    const char *from; /* a directory, or a file */
    const char *out;  /* where the figures go; null: nowhere */
    int quick;
} options;

/* Ends the program. */
void stop(const char *what, const char *detail);

/* Between the checkpoints of a training run. */
void study_steps(const options *o);

/* Of one tensor, of which a share is changed. */
void study_rates(const options *o);

/* Between the checkpoints of a collection, by name. */
void study_pairs(const options *o);

/* ---- output: tab-separated figures in a file, a table in Markdown for people ---- */

/* Begins both. `ratios`: the table shows sizes against raw elements instead of bits an element. */
void table_begin(const options *o, const char *title, int ratios);

/* A line of figures, and of the table where it is `shown`. */
void table_row(const char *tensor, const char *from, const char *to, const measured *m, int shown);

void table_end(void);

#endif
