/* tally.h - measures how much of a file each tensor takes.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A block may hold elements of many tensors. Its bytes are divided among them in proportion to the bytes of elements that each
 * has in it. Calls follow the order of the data; each covers its next `source_bytes` bytes. */
#ifndef TOOL_TALLY_H
#define TOOL_TALLY_H

#include "../console/json.h"
#include "../files/container.h"

typedef struct tally_cursor {
    size_t tensor;
    uint64_t at;  /* offset in the data, in bytes */
} tally_cursor;

typedef struct tally {
    const safetensors *model; /* null: raw elements */
    double *stored, *bound;   /* bits, for each tensor; raw elements count as one tensor */
    uint64_t *changed;        /* number of changed elements, for each tensor; UINT64_MAX: not known */
    tally_cursor stored_at, bound_at, changed_at;
    int half_changed;         /* 1: the last bytes ended inside an element, and that part has changed */
    double stored_bits, bound_bits; /* sums over all tensors */
} tally;

int tally_open(tally *t, const safetensors *model, fault *f);
void tally_close(tally *t);

/* Add the bits of the next block, as stored (a block observer) and by the order-0 bound. */
void tally_note(void *tally, uint64_t source_bytes, uint64_t stored_bytes);
void tally_bound(tally *t, uint64_t source_bytes, double bits);

/* Counts the changes in the next elements. `base` is null if its elements are not known. The context is the tally. */
void tally_changed(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes);

/* Writes the members name, dtype and shape. */
void tensor_json(const tensor *t, json *j);

/* Writes "tensors": [...], on request with bounds and known changes. Raw elements are one tensor of this dtype, without a
 * name. */
void tally_json(const tally *t, json *j, bitsnap_dtype raw_dtype, int with_bound, int with_changes);

#endif
