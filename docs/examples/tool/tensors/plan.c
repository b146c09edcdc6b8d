/* plan.c - plans the frames of a .safetensors file: their form, and their bases.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "plan.h"

#include <stdlib.h>
#include <string.h>

/* Smaller matrices stay in runs with their neighbours, since a separate frame costs a header and a footer. */
#define COLUMNS_LEAST 16
#define MATRIX_LEAST 32768

/* The elements of a row: the product of the fewest last dimensions that is at least `least`, as kernels of convolutions are
 * small. The first dimension is not among them. 0: there is no such product. */
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

/* Returns 1 if piece b can continue piece a. */
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

/* Returns the piece for a tensor without a partner. */
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

/* The references of a tensor of one dimension. */
typedef struct layout {
    uint64_t elements;
    size_t first;        /* the number of the first reference */
} layout;

/* The state of plan_make. */
typedef struct maker {
    plan *p;
    size_t capacity;
    const safetensors *model;
    const bitsnap_reference *refs;
    size_t ref_count, next; /* next: the first reference of the next tensors */
    unsigned char *referred; /* for each tensor: 1 if others refer to it */
    layout *layouts;
    size_t layout_count;
    fault *f;
    int failed;
} maker;

static void add(maker *m, const piece *x)
{
    plan *p = m->p;
    piece *pieces;
    if (m->failed) return;
    if (p->count && continues(&p->pieces[p->count - 1], x)) {
        p->pieces[p->count - 1].bytes += x->bytes;
        p->pieces[p->count - 1].referred |= x->referred;
        return;
    }
    pieces = (piece *)grown(p->pieces, p->count, &m->capacity, sizeof *pieces, m->f);
    m->failed = !pieces;
    if (m->failed) return;
    p->pieces = pieces;
    pieces[p->count++] = *x;
}

/* Adds a part of a tensor; `range`: its partner, or null. A part has columns only if it is whole rows. */
static void add_part(maker *m, const piece *all, uint64_t begin, uint64_t end, const file_range *range)
{
    const uint64_t row = all->form.columns * bitsnap_width(all->form.dtype);
    piece x = *all;
    if (begin == end) return;
    x.begin = begin;
    x.bytes = end - begin;
    x.paired = range != NULL;
    if (range) x.range = *range;
    if (range || (row && !piece_stands_alone(&x) && ((begin - all->begin) % row || x.bytes % row))) x.form.columns = 0;
    add(m, &x);
}

static size_t tensor_at(const safetensors *model, uint64_t byte)
{
    size_t low = 0, high = model->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (model->tensors[middle].end <= byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

static uint64_t base_end(const bitsnap_reference *r) { return r->base + r->count * bitsnap_width((bitsnap_dtype)r->base_dtype); }

/* Adds the references of tensor `i`, and the parts between them. Returns where the last reference ends. */
static uint64_t add_references(maker *m, size_t i, const piece *all, uint64_t at)
{
    const unsigned width = bitsnap_width(all->form.dtype);
    for (; m->next < m->ref_count && m->refs[m->next].tensor == i; m->next++) {
        const bitsnap_reference *r = &m->refs[m->next];
        const file_range range = { .base = BITSNAP_BASE_ITSELF, .dtype = (bitsnap_dtype)r->base_dtype, .begin = r->base };
        const uint64_t begin = all->begin + r->first * width;
        add_part(m, all, at, begin, NULL);
        at = begin + r->count * width;
        add_part(m, all, begin, at, &range);
    }
    return at;
}

/* ================================================================================= PARAMETERS IN ONE
 * A distributed optimizer keeps all parameters of a model as one tensor of one dimension: the master copy, which refers to the
 * parameters, and the moments, which refer to nothing. All of these have the same order. So moments have a matrix where the
 * master copy has one, and are coded with its columns. */

static int has_one_dimension(const tensor *t)
{
    size_t at = 0;
    uint64_t x;
    return bitsnap_shape_next(t->shape, &at, &x) && !bitsnap_shape_next(t->shape, &at, &x);
}

static int by_elements(const void *a, const void *b)
{
    const layout *x = (const layout *)a, *y = (const layout *)b;
    if (x->elements != y->elements) return x->elements < y->elements ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int find_layouts(maker *m)
{
    size_t i;
    m->layouts = (layout *)malloc((m->ref_count + 1) * sizeof *m->layouts);
    if (!m->layouts) return fault_memory(m->f);
    for (i = 0; i < m->ref_count; i++) {
        const tensor *t = &m->model->tensors[m->refs[i].tensor];
        if ((i && m->refs[i].tensor == m->refs[i - 1].tensor) || !has_one_dimension(t)) continue;
        m->layouts[m->layout_count].elements = t->elements;
        m->layouts[m->layout_count++].first = i;
    }
    qsort(m->layouts, m->layout_count, sizeof *m->layouts, by_elements);
    return 0;
}

/* Adds the matrices of a tensor, and the parts between them. Returns where the last matrix ends. */
static uint64_t add_matrices(maker *m, const tensor *whole, const piece *all)
{
    const layout wanted = { whole->elements, 0 };
    const unsigned width = bitsnap_width(all->form.dtype);
    uint64_t at = all->begin;
    size_t low = 0, high = m->layout_count, r, k;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_elements(&m->layouts[middle], &wanted) < 0) low = middle + 1;
        else high = middle;
    }
    if (low == m->layout_count || m->layouts[low].elements != whole->elements || !has_one_dimension(whole)) return at;
    for (r = m->layouts[low].first; r < m->ref_count && m->refs[r].tensor == m->refs[m->layouts[low].first].tensor; r++) {
        const bitsnap_reference *ref = &m->refs[r];
        const unsigned base_width = bitsnap_width((bitsnap_dtype)ref->base_dtype);
        for (k = tensor_at(m->model, ref->base); k < m->model->count && m->model->tensors[k].begin < base_end(ref); k++) {
            const tensor *t = &m->model->tensors[k];
            const uint64_t columns = t->elements < MATRIX_LEAST ? 0 : columns_of(t, COLUMNS_LEAST), row = columns * base_width;
            const uint64_t end = t->end < base_end(ref) ? t->end : base_end(ref);
            uint64_t begin = ref->base > t->begin ? ref->base : t->begin;
            piece x = *all;
            if (!columns) continue;
            begin += (row - (begin - t->begin) % row) % row; /* whole rows */
            if (begin >= end) continue;
            x.form.columns = columns;
            x.begin = all->begin + (ref->first + (begin - ref->base) / base_width) * width;
            add_part(m, all, at, x.begin, NULL);
            at = x.begin + (end - begin) / row * columns * width;
            add_part(m, &x, x.begin, at, NULL);
        }
    }
    return at;
}

/* ================================================================================= PLANS */

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
static void find_referred(maker *m)
{
    size_t i, k;
    for (i = 0; i < m->ref_count; i++) {
        const bitsnap_reference *r = &m->refs[i];
        for (k = tensor_at(m->model, r->base); k < m->model->count && m->model->tensors[k].begin < base_end(r); k++)
            m->referred[k] = 1;
    }
}

static void add_tensor(maker *m, size_t i, const pair *with, const adam_choice *choice, int is_delta, int level)
{
    const tensor *t = &m->model->tensors[i];
    uint64_t at = t->begin;
    piece all = piece_of(t, choice, is_delta, level);
    all.referred = m->referred[i];
    if (piece_stands_alone(&all)) m->p->quantizes = 1;
    if (with && with->kind == PAIR_FOUND) {
        const file_range range = { .base = with->base, .dtype = bitsnap_tensor_codec(with->other), .begin = with->other->begin };
        add_part(m, &all, at, at + with->bytes, &range);
        at += with->bytes; /* other rows are new */
    }
    at = add_references(m, i, &all, at);
    if (at == t->begin && bitsnap_tensor_has_octaves(t) && !piece_stands_alone(&all)) at = add_matrices(m, t, &all);
    add_part(m, &all, at, t->end, NULL);
}

int plan_make(plan *p, const safetensors *model, const pairs *with, const references *refs, const adam_choice *choices,
              int is_delta, int level, fault *f)
{
    maker m = { .p = p, .model = model, .f = f };
    size_t i;
    memset(p, 0, sizeof *p);
    m.refs = refs ? refs->list : NULL;
    m.ref_count = refs ? refs->count : 0;
    m.referred = (unsigned char *)calloc(model->count + 1, 1);
    m.failed = m.referred ? level == BITSNAP_BEST && find_layouts(&m) : fault_memory(f);
    if (!m.failed) find_referred(&m);
    for (i = 0; i < model->count && !m.failed; i++) {
        if (model->tensors[i].begin == model->tensors[i].end) continue; /* ends no run */
        add_tensor(&m, i, with ? &with->list[i] : NULL, choices ? &choices[i] : NULL, is_delta, level);
    }
    free(m.referred);
    free(m.layouts);
    if (!m.failed) find_last(p);
    return m.failed;
}

void plan_free(plan *p)
{
    free(p->pieces);
    memset(p, 0, sizeof *p);
}
