/* forms.h - how the blocks of a frame are coded: how many there are of each form, and what their parts take.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FORMS_H
#define TOOL_FORMS_H

#include "bitsnap.h"
#include "../console/fault.h"
#include "../console/json.h"

/* Blocks of one form, or in them one part, or all lists of one kind. */
typedef struct form_row {
    unsigned form, classes;   /* classes: CLASSED, else 0 */
    unsigned sort, which;     /* sort 0: the blocks; 1: part `which`; 2: lists of kind `which` */
    unsigned lowest, highest; /* of a class: exponents */
    uint64_t count, elements, bytes;
    uint64_t known, changed;  /* elements of which is known whether they have changed, and those that have */
} form_row;

typedef struct forms {
    form_row *rows;           /* in the order of the first four members */
    size_t count, capacity;
} forms;

/* A block; of its elements so many have changed, or, where that is not known, FORMS_UNKNOWN. */
#define FORMS_UNKNOWN UINT64_MAX
int forms_note(forms *x, const bitsnap_block *block, uint64_t changed, fault *f);
int forms_add(forms *x, const forms *more, fault *f);

/* A line for each row. */
void forms_print(const forms *x, int with_changes);
void forms_json(json *j, const forms *x); /* "forms": [...] */
void forms_free(forms *x);

#endif
