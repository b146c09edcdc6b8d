/* lossy.h - what is quantized in a .bsnap file, and how far it is certified to be from what it was.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_LOSSY_H
#define TOOL_LOSSY_H

#include "adam.h"
#include "../files/file.h"
#include "../console/json.h"

typedef struct lossy {
    file_frame *frames;    /* those that are quantized, in the order of the data */
    size_t count, capacity;
    const safetensors *model; /* whose tensors they are; null: not known */
    const adam_choice *roles; /* of each of these */
} lossy;

/* Takes note of a frame, if it is quantized: an observer of frames. */
int lossy_note(void *lossy, const file_frame *frame, fault *f);
void lossy_free(lossy *l);

/* The largest bound of elements between these bytes of the data; 0 where none is quantized. Returns 0 where quantized ones
 * have no bound, else 1. */
int lossy_bound(const lossy *l, uint64_t begin, uint64_t end, double *bound);

typedef struct lossy_sums {
    size_t tensors;
    uint64_t elements, bytes;        /* bytes of the frames */
    size_t of_role[3];               /* by adam_role */
    double bound[3], largest[3];     /* relative errors: what is certified, what there was */
    size_t pairs;                    /* moments whose counterpart is in the file, too */
    double update;                   /* the bound of the relative error of their updates */
    int within;                      /* what was measured is within every bound */
    size_t unbounded;                /* tensors that have no bound */
} lossy_sums;

lossy_sums lossy_add_up(const lossy *l);

/* "n tensors ...", without an end of line. */
void lossy_print_line(FILE *to, const lossy *l, const char *between);

void lossy_print_table(const lossy *l, int all);

/* "lossy": whether something is quantized, and if so "quantized": {...} */
void lossy_json(const lossy *l, json *j);
void lossy_json_truth(const lossy *l, json *j, int quantized);

#endif
