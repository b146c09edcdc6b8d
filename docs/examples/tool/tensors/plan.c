/* plan.c - which frames a .safetensors file becomes, how, and against what.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* A frame of its own costs its header and a footer, and rows and columns have to be known: smaller matrices stay in runs. */
#define COLUMNS_LEAST 16
#define MATRIX_LEAST 32768

/* The elements of a row: the product of the fewest last dimensions that is at least `least`, as kernels of convolutions are small. The first
 * dimension is not among them. 0: there is no such product. */
static uint64_t columns_of(const tensor *t, uint64_t least)
{
    uint64_t dimension = 0, product, columns = 0;
    size_t at = 0, count = 0, skipped = 0, i;
    while (bitsnap_shape_next(t->shape, &at, &dimension)) count++;
    while (!columns && ++skipped < count) {
        product = 1;
        for (at = i = 0; bitsnap_shape_next(t->shape, &at, &dimension); i++)
            if (i >= count - skipped) product *= dimension;
        if (product >= least) columns = product;
    }
    return columns;
}

/* Whether this piece goes on where the other ends. */
static int continues(const piece *a, const piece *b)
{
    const bitsnap_dtype dtype = a->form.dtype;
    if (dtype != b->form.dtype || a->paired != b->paired || piece_stands_alone(a) || piece_stands_alone(b) || a->form.columns || b->form.columns)
        return 0;
    if (a->referred != b->referred && (a->referred ? b : a)->bytes > BITSNAP_KEPT_BESIDE) return 0;
    if (!b->paired) return 1;
    return a->range.base == b->range.base && a->range.dtype == b->range.dtype &&
           a->range.begin + a->bytes / bitsnap_width(dtype) * bitsnap_width(a->range.dtype) == b->range.begin;
}

/* How all of a tensor is coded where it has no partner. */
static piece piece_of(const tensor *t, const adam_choice *choice, int is_delta, int level)
{
    piece x = { 0 };
    x.form.dtype = bitsnap_tensor_codec(t);
    x.begin = t->begin;
    x.bytes = t->end - t->begin;
    if (choice) {
        x.form.cells = choice->cells;
        x.form.clusters = choice->clusters;
        x.second = piece_stands_alone(&x) && choice->role == ADAM_V;
    }
    if (!is_delta && bitsnap_tensor_has_octaves(t)) {
        if (piece_stands_alone(&x)) x.form.columns = columns_of(t, 0);
        else if (level == BITSNAP_BEST && t->elements >= MATRIX_LEAST) x.form.columns = columns_of(t, COLUMNS_LEAST);
    }
    return x;
}

static void add(plan *p, const piece *x)
{
    piece *last = &p->pieces[p->count - 1];
    if (!p->count || !continues(last, x)) {
        p->pieces[p->count++] = *x;
        return;
    }
    last->bytes += x->bytes;
    last->referred |= x->referred;
}

/* Adds a part of a tensor; `range`: its partner, or null. What is not all of its rows has no columns. */
static void add_part(plan *p, const piece *all, uint64_t begin, uint64_t end, const file_range *range)
{
    const uint64_t row = all->form.columns * bitsnap_width(all->form.dtype);
    piece x = *all;
    if (begin == end) return;
    x.begin = begin;
    x.bytes = end - begin;
    x.paired = range != NULL;
    if (range) x.range = *range;
    if (range || (row && ((begin - all->begin) % row || x.bytes % row))) x.form.columns = 0;
    add(p, &x);
}

/* Sets `last` of the pieces that others refer to. */
static void find_last(plan *p)
{
    size_t i, low, high;
    for (i = 0; i < p->count; i++) {
        const piece *x = &p->pieces[i];
        uint64_t end;
        if (!piece_refers(x)) continue;
        end = x->range.begin + x->bytes / bitsnap_width(x->form.dtype) * bitsnap_width(x->range.dtype);
        p->refers = 1;
        for (low = 0, high = p->count; high - low > 1;) {
            const size_t middle = low + (high - low) / 2;
            if (p->pieces[middle].begin <= x->range.begin) low = middle;
            else high = middle;
        }
        for (; low < p->count && p->pieces[low].begin < end; low++) p->pieces[low].last = x->begin;
    }
}

/* Sets `referred` of the tensors that others refer to. */
static void find_referred(unsigned char *referred, const safetensors *model, const references *refs)
{
    size_t i, low, high;
    for (i = 0; i < refs->count; i++) {
        const bitsnap_reference *r = &refs->list[i];
        for (low = 0, high = model->count; low < high;) {
            const size_t middle = low + (high - low) / 2;
            if (model->tensors[middle].end <= r->base) low = middle + 1;
            else high = middle;
        }
        for (; low < model->count && model->tensors[low].begin < r->base + r->count * bitsnap_width((bitsnap_dtype)r->base_dtype); low++) referred[low] = 1;
    }
}

int plan_make(plan *p, const safetensors *model, const pairs *with, const references *refs, const adam_choice *choices, int level, fault *f)
{
    unsigned char *referred = (unsigned char *)calloc(model->count + 1, 1);
    const size_t count = refs ? refs->count : 0;
    size_t i, r = 0;
    memset(p, 0, sizeof *p);
    p->pieces = (piece *)calloc(2 * (model->count + count) + 1, sizeof *p->pieces);
    if (!p->pieces || !referred) {
        free(referred);
        return fault_memory(f);
    }
    if (refs) find_referred(referred, model, refs);
    for (i = 0; i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        const pair *x = with ? &with->list[i] : NULL;
        uint64_t at = t->begin;
        piece all;
        if (t->begin == t->end) continue; /* ends no run */
        all = piece_of(t, choices ? &choices[i] : NULL, with != NULL, level);
        all.referred = referred[i];
        if (piece_stands_alone(&all)) p->quantizes = 1;
        if (x && x->kind == PAIR_FOUND) {
            const file_range range = { .base = x->base, .dtype = bitsnap_tensor_codec(x->other), .begin = x->other->begin };
            add_part(p, &all, at, at + x->bytes, &range);
            at += x->bytes; /* other rows are new */
        }
        for (; r < count && refs->list[r].tensor == i; r++) {
            const bitsnap_reference *ref = &refs->list[r];
            const unsigned width = bitsnap_width(all.form.dtype);
            const file_range range = { .base = BITSNAP_BASE_ITSELF, .dtype = (bitsnap_dtype)ref->base_dtype, .begin = ref->base };
            const uint64_t begin = t->begin + ref->first * width;
            add_part(p, &all, at, begin, NULL);
            at = begin + ref->count * width;
            add_part(p, &all, begin, at, &range);
        }
        add_part(p, &all, at, t->end, NULL);
    }
    free(referred);
    find_last(p);
    return 0;
}

void plan_free(plan *p)
{
    free(p->pieces);
    memset(p, 0, sizeof *p);
}
