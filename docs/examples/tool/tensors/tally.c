/* tally.c - measures how much of a file each tensor takes.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "../files/file.h"
#include "tally.h"

#include <stdlib.h>
#include <string.h>

int tally_open(tally *t, const safetensors *model, fault *f)
{
    const size_t n = model && model->count ? model->count : 1;
    memset(t, 0, sizeof *t);
    t->model = model;
    t->stored = (double *)calloc(n, sizeof *t->stored);
    t->bound = (double *)calloc(n, sizeof *t->bound);
    t->changed = (uint64_t *)calloc(n, sizeof *t->changed);
    return t->stored && t->bound && t->changed ? 0 : fault_memory(f);
}

void tally_close(tally *t)
{
    free(t->stored);
    free(t->bound);
    free(t->changed);
    memset(t, 0, sizeof *t);
}

static void spread(const tally *t, tally_cursor *c, double *to, uint64_t bytes, double bits)
{
    const uint64_t end = c->at + bytes;
    if (!t->model) {
        to[0] += bits;
        c->at = end;
        return;
    }
    while (c->at < end && c->tensor < t->model->count) {
        const uint64_t tensor_end = t->model->tensors[c->tensor].end;
        const uint64_t until = tensor_end < end ? tensor_end : end;
        to[c->tensor] += bits * ((double)(until - c->at) / (double)bytes);
        c->at = until;
        if (until == tensor_end) c->tensor++;
    }
    c->at = end;
}

void tally_note(void *context, uint64_t source_bytes, uint64_t stored_bytes)
{
    tally *t = (tally *)context;
    t->stored_bits += 8 * (double)stored_bytes;
    spread(t, &t->stored_at, t->stored, source_bytes, 8 * (double)stored_bytes);
}

void tally_bound(tally *t, uint64_t source_bytes, double bits)
{
    t->bound_bits += bits;
    spread(t, &t->bound_at, t->bound, source_bytes, bits);
}

/* Counts the changed elements in n bytes of a tensor, from `offset` on. Frames may have another dtype than their tensors, so an
 * element can come in two parts. It counts with the first part that has changed. */
static uint64_t count_elements(tally *t, uint64_t offset, unsigned width, const uint8_t *elements, const uint8_t *base,
                               uint64_t n)
{
    const uint64_t into = offset % width, head = !into ? 0 : width - into < n ? width - into : n, tail = (n - head) % width;
    uint64_t sum = 0;
    if (head && !t->half_changed) sum += (unsigned)(t->half_changed = memcmp(elements, base, (size_t)head) != 0);
    sum += count_changed(elements + head, base + head, (n - head) / width, width);
    if (tail) sum += (unsigned)(t->half_changed = memcmp(elements + (n - tail), base + (n - tail), (size_t)tail) != 0);
    return sum;
}

void tally_changed(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes)
{
    tally *t = (tally *)context;
    tally_cursor *c = &t->changed_at;
    const uint64_t begin = c->at, end = begin + bytes;
    while (t->model && c->at < end && c->tensor < t->model->count) {
        const tensor *x = &t->model->tensors[c->tensor];
        const unsigned width = x->type && x->type->bits >= 8 ? x->type->bits / 8 : 1;
        const uint64_t until = x->end < end ? x->end : end;
        uint64_t *sum = &t->changed[c->tensor];
        if (!base) *sum = UINT64_MAX;
        else if (*sum != UINT64_MAX)
            *sum += count_elements(t, c->at - x->begin, width, elements + (c->at - begin), base + (c->at - begin), until - c->at);
        c->at = until;
        if (until == x->end) c->tensor++;
    }
    c->at = end;
}

static void put_ratio(json *j, const char *name, double bits, uint64_t whole)
{
    json_name(j, name);
    if (whole) json_real(j, bits / (double)whole);
    else json_null(j);
}

static void put_amounts(const tally *t, size_t i, json *j, uint64_t elements, uint64_t bytes, int with_bound,
                        int with_changes)
{
    json_member_whole(j, "elements", elements);
    json_member_whole(j, "bytes", bytes);
    json_member_real(j, "stored_bytes", t->stored[i] / 8);
    put_ratio(j, "bits_per_element", t->stored[i], elements);
    json_member_real(j, "ratio", 8 * (double)bytes / t->stored[i]);
    if (with_bound) put_ratio(j, "bound_bits_per_element", t->bound[i], elements);
    if (with_changes && t->changed[i] != UINT64_MAX) json_member_whole(j, "changed", t->changed[i]);
}

void tensor_json(const tensor *t, json *j)
{
    uint64_t dimension;
    size_t at = 0;
    json_member_text(j, "name", t->name.at, t->name.size);
    json_member_text(j, "dtype", t->dtype.at, t->dtype.size);
    json_member_list(j, "shape");
    while (bitsnap_shape_next(t->shape, &at, &dimension)) json_whole(j, dimension);
    json_end(j, ']');
}

void tally_json(const tally *t, json *j, bitsnap_dtype raw_dtype, int with_bound, int with_changes)
{
    size_t i;
    json_member_list(j, "tensors");
    if (!t->model) {
        const unsigned width = bitsnap_width(raw_dtype) ? bitsnap_width(raw_dtype) : 1;
        json_begin(j, '{');
        json_name(j, "name");
        json_null(j);
        json_member_string(j, "dtype", bitsnap_dtype_name(raw_dtype));
        json_member_list(j, "shape");
        json_whole(j, t->stored_at.at / width);
        json_end(j, ']');
        put_amounts(t, 0, j, t->stored_at.at / width, t->stored_at.at, with_bound, with_changes);
        json_end(j, '}');
    }
    for (i = 0; t->model && i < t->model->count; i++) {
        const tensor *x = &t->model->tensors[i];
        json_begin(j, '{');
        tensor_json(x, j);
        put_amounts(t, i, j, x->elements, x->end - x->begin, with_bound, with_changes);
        json_end(j, '}');
    }
    json_end(j, ']');
}
