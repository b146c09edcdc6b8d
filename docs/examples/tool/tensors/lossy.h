/* lossy.h - lists the quantized frames of a .bsnap file, and the errors that their certificates allow.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_LOSSY_H
#define TOOL_LOSSY_H

#include "adam.h"
#include "../files/file.h"
#include "../console/json.h"

typedef struct lossy {
    file_frame *frames;    /* the quantized frames, in the order of the data */
    size_t count, capacity;
    const safetensors *model; /* the header with their tensors; null: not known */
    const adam_choice *roles; /* one for each tensor of the model */
} lossy;

/* Adds a frame if it is quantized. To be a frame observer. */
int lossy_note(void *lossy, const file_frame *frame, fault *f);
void lossy_free(lossy *l);

/* Gives the largest bound of frames that overlap these bytes of the data; 0 if none is quantized. Returns 0 if one of them has no
 * bound, else 1. */
int lossy_bound(const lossy *l, uint64_t begin, uint64_t end, double *bound);

typedef struct lossy_sums {
    size_t tensors;
    uint64_t elements, bytes;        /* bytes of the frames */
    size_t of_role[3];               /* by adam_role */
    double bound[3], largest[3];     /* largest relative errors: as certified; as measured */
    size_t pairs;                    /* number of moments whose counterpart is in the file, too */
    double update;                   /* bound of the relative error of their updates */
    int within;                      /* 1: every measured error is within its bound */
    size_t unbounded;                /* number of tensors without a bound */
} lossy_sums;

lossy_sums lossy_add_up(const lossy *l);

/* Prints "n tensors ...", without an end of line. */
void lossy_print_line(FILE *to, const lossy *l, const char *between);

void lossy_print_table(const lossy *l, int all);

/* Write "lossy", true if something is quantized, and then "quantized": {...}. */
void lossy_json(const lossy *l, json *j);
void lossy_json_truth(const lossy *l, json *j, int quantized);

#endif
