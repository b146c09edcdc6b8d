/* Declarations that the parts of the study share. */
#ifndef STUDY_STUDY_H
#define STUDY_STUDY_H

#include "../tensors.h"
#include "forms.h"

typedef struct options {
    const char *from; /* a directory, or a file */
    const char *out;  /* file for the figures, or null */
    int quick;
} options;

/* Ends the program. */
void stop(const char *what, const char *detail);

/* Changes between the checkpoints of a training run. */
void study_steps(const options *o);

/* Made-up changes of a share of one tensor's elements. */
void study_rates(const options *o);

/* Changes between checkpoints of a collection, chosen by name. */
void study_pairs(const options *o);

/* ---- output: tab-separated figures in a file, and a table in Markdown ---- */

/* Begins file and table. `ratios`: the table shows ratios to the raw size instead of bits an element. */
void table_begin(const options *o, const char *title, int ratios);

/* Adds a line of figures, and a line of the table if `shown`. */
void table_row(const char *tensor, const char *from, const char *to, const measured *m, int shown);

void table_end(void);

#endif
