/* forms.h - counts the blocks of frames by form, and the bytes of their parts.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FORMS_H
#define TOOL_FORMS_H

#include "bitsnap.h"
#include "../console/fault.h"
#include "../console/json.h"

/* Sums over the blocks of one form, over one part of them, or over their lists of one kind. */
typedef struct form_row {
    unsigned form, classes;   /* classes: CLASSED, else 0 */
    unsigned sort, which;     /* sort 0: the blocks; 1: part `which`; 2: lists of kind `which` */
    unsigned lowest, highest; /* exponents of a class */
    uint64_t count, elements, bytes;
    uint64_t known, changed;  /* elements that were compared with the base; those that have changed */
} form_row;

typedef struct forms {
    form_row *rows;           /* sorted by their first four members */
    size_t count, capacity;
} forms;

/* Adds a block. `changed` is the number of its elements that have changed, or FORMS_UNKNOWN. */
#define FORMS_UNKNOWN UINT64_MAX
int forms_note(forms *x, const bitsnap_block *block, uint64_t changed, fault *f);
int forms_add(forms *x, const forms *more, fault *f);

/* Prints a line for each row. */
void forms_print(const forms *x, int with_changes);
void forms_json(json *j, const forms *x); /* "forms": [...] */
void forms_free(forms *x);

#endif
