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

/* The piece of one tensor; of a partner's elements there may be fewer. */
static piece piece_of(const tensor *t, const pair *with, int is_delta, const adam_choice *choice, int level)
{
    piece x = { 0 };
    x.form.dtype = bitsnap_tensor_codec(t);
    x.begin = t->begin;
    x.bytes = t->end - t->begin;
    x.paired = with && with->kind == PAIR_FOUND;
    x.referred = with && with->referred;
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
    if (!is_delta && !x.paired && bitsnap_tensor_has_octaves(t)) {
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
        x = piece_of(t, with ? &with->list[i] : NULL, with && !with->itself, choices ? &choices[i] : NULL, level);
        if (piece_stands_alone(&x)) p->quantizes = 1;
        add(p, &x);
        if (x.begin + x.bytes == t->end) continue;
        x.begin += x.bytes; /* rows that are new */
        x.bytes = t->end - x.begin;
        x.paired = 0;
        add(p, &x);
    }
    find_last(p);
    return 0;
}

void plan_free(plan *p)
{
    free(p->pieces);
    memset(p, 0, sizeof *p);
}
