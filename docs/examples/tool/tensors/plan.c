/* plan.c - which frames a .safetensors file becomes, how, and against what.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* A frame of its own costs its header and a footer, and rows and columns have to be known: smaller matrices stay in runs. */
#define COLUMNS_LEAST 16
#define MATRIX_LEAST 32768

/* The last dimension, where there is another. */
static uint64_t columns_of(const tensor *t)
{
    uint64_t dimension = 0;
    size_t at = 0, count = 0;
    while (bitsnap_shape_next(t->shape, &at, &dimension)) count++;
    return count > 1 ? dimension : 0;
}

/* Whether this piece goes on where the other ends. */
static int continues(const piece *a, const piece *b)
{
    const bitsnap_dtype dtype = a->form.dtype;
    if (dtype != b->form.dtype || a->paired != b->paired || piece_stands_alone(a) || piece_stands_alone(b) || a->form.columns || b->form.columns)
        return 0;
    if (!b->paired) return 1;
    return a->range.base == b->range.base && a->range.dtype == b->range.dtype &&
           a->range.begin + a->bytes / bitsnap_width(dtype) * bitsnap_width(a->range.dtype) == b->range.begin;
}

/* The piece of one tensor; of a partner's elements there may be fewer. */
static piece piece_of(const tensor *t, const pair *with, int is_delta, const adam_choice *choice, int level)
{
    piece x = { 0 };
    x.form.dtype = bitsnap_tensor_codec(t);
    x.begin = t->begin;
    x.bytes = t->end - t->begin;
    x.paired = with && with->kind == PAIR_FOUND;
    if (x.paired) {
        x.bytes = with->bytes;
        x.range.base = with->base;
        x.range.dtype = bitsnap_tensor_codec(with->other);
        x.range.begin = with->other->begin;
    }
    if (choice) {
        x.form.cells = choice->cells;
        x.form.clusters = choice->clusters;
        x.second = piece_stands_alone(&x) && choice->role == ADAM_V;
    }
    if (!is_delta && bitsnap_tensor_has_octaves(t)) {
        const uint64_t columns = columns_of(t);
        if (piece_stands_alone(&x) || (level == BITSNAP_BEST && columns >= COLUMNS_LEAST && t->elements >= MATRIX_LEAST)) x.form.columns = columns;
    }
    return x;
}

static void add(plan *p, const piece *x)
{
    if (p->count && continues(&p->pieces[p->count - 1], x)) p->pieces[p->count - 1].bytes += x->bytes;
    else p->pieces[p->count++] = *x;
}

int plan_make(plan *p, const safetensors *model, const pairs *with, const adam_choice *choices, int level, fault *f)
{
    size_t i;
    memset(p, 0, sizeof *p);
    p->pieces = (piece *)calloc(2 * model->count + 1, sizeof *p->pieces);
    if (!p->pieces) return fault_memory(f);
    for (i = 0; i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        piece x;
        if (t->begin == t->end) continue; /* ends no run */
        x = piece_of(t, with ? &with->list[i] : NULL, with != NULL, choices ? &choices[i] : NULL, level);
        if (piece_stands_alone(&x)) p->quantizes = 1;
        add(p, &x);
        if (x.begin + x.bytes == t->end) continue;
        x.begin += x.bytes; /* rows that are new */
        x.bytes = t->end - x.begin;
        x.paired = 0;
        add(p, &x);
    }
    return 0;
}

void plan_free(plan *p)
{
    free(p->pieces);
    memset(p, 0, sizeof *p);
}
