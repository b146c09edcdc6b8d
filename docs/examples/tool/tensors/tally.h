/* tally.h - what each tensor takes of a file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A block may hold the elements of many tensors: its bytes are divided among them by the bytes that they have in
 * it. Amounts come in the order of the data, each for the next so many bytes of it. */
#ifndef TOOL_TALLY_H
#define TOOL_TALLY_H

#include "../console/json.h"
#include "../files/container.h"

typedef struct tally_cursor {
    size_t tensor;
    uint64_t at;  /* byte of the data */
} tally_cursor;

typedef struct tally {
    const safetensors *model; /* null: raw elements */
    double *stored, *bound;   /* bits of each tensor; raw elements are one */
    uint64_t *changed;        /* elements of each that have changed; UINT64_MAX: not known */
    tally_cursor stored_at, bound_at, changed_at;
    int half_changed;         /* of the element that the last bytes ended amid */
    double stored_bits, bound_bits; /* of all */
} tally;

int tally_open(tally *t, const safetensors *model, fault *f);
void tally_close(tally *t);

/* What blocks take: an observer of these. */
void tally_note(void *tally, uint64_t source_bytes, uint64_t stored_bytes);
void tally_bound(tally *t, uint64_t source_bytes, double bits);

/* Elements of the source, and of the base (null: not known); the context is the tally, as of tally_note. */
void tally_changed(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes);

/* The members name, dtype and shape. */
void tensor_json(const tensor *t, json *j);

/* "tensors": [...], with the bound and changes where there are any; raw elements are one tensor without a name, of this dtype. */
void tally_json(const tally *t, json *j, bitsnap_dtype raw_dtype, int with_bound, int with_changes);

#endif
