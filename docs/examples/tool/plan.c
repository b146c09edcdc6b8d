/* plan.c - which frames a .safetensors file becomes, and against what.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "posix.h"

#include "plan.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b)
{
    return slice_compare((*(const tensor *const *)a)->name, (*(const tensor *const *)b)->name);
}

/* The tensors of a file in the order of their names; null: no memory. */
static const tensor **sort_names(const safetensors *model)
{
    const tensor **names = (const tensor **)malloc((model->count + 1) * sizeof *names);
    size_t i;
    if (!names) return NULL;
    for (i = 0; i < model->count; i++) names[i] = &model->tensors[i];
    if (model->count) qsort((void *)names, model->count, sizeof *names, by_name);
    return names;
}

static int same_shape(const tensor *a, const tensor *b)
{
    uint64_t x = 0, y = 0;
    size_t i = 0, j = 0;
    for (;;) {
        const int more = shape_next(a->shape, &i, &x);
        if (more != shape_next(b->shape, &j, &y) || (more && x != y)) return 0;
        if (!more) return 1;
    }
}

static int is_named(text_slice s, const char *name) { return s.size == strlen(name) && !memcmp(s.at, name, s.size); }

/* Whether `old` is what `t` was before, or the master copy of it. */
static int fits(const tensor *t, const tensor *old)
{
    const uint64_t bytes = t->end - t->begin;
    if (!same_shape(t, old)) return 0;
    if (!slice_compare(t->dtype, old->dtype)) return old->end - old->begin == bytes;
    return (is_named(t->dtype, "F16") || is_named(t->dtype, "BF16")) && is_named(old->dtype, "F32") &&
           (old->end - old->begin) / 2 == bytes;
}

static const tensor *partner_of(const tensor *t, const tensor **names, size_t count)
{
    const tensor *const *found;
    if (!count) return NULL;
    found = (const tensor *const *)bsearch(&t, (const void *)names, count, sizeof *names, by_name);
    return found && fits(t, *found) ? *found : NULL;
}

/* Whether this piece goes on where the other ends. */
static int continues(const piece *a, const piece *b)
{
    if (a->dtype != b->dtype || a->paired != b->paired) return 0;
    if (!b->paired) return 1;
    return a->range.dtype == b->range.dtype &&
           a->range.begin + a->bytes / bitsnap_width(a->dtype) * bitsnap_width(a->range.dtype) == b->range.begin;
}

static int fill(plan *p, const safetensors *model, const tensor **names, size_t count)
{
    size_t i;
    p->pieces = (piece *)calloc(model->count + 1, sizeof *p->pieces);
    if (!p->pieces) return 1;
    for (i = 0; i < model->count; i++) {
        const tensor *t = &model->tensors[i], *old = partner_of(t, names, count);
        piece x;
        if (t->begin == t->end) continue; /* ends no run */
        memset(&x, 0, sizeof x);
        x.dtype = tensor_codec(t);
        x.begin = t->begin;
        x.bytes = t->end - t->begin;
        x.paired = old != NULL;
        if (old) {
            x.range.dtype = tensor_codec(old);
            x.range.begin = old->begin;
        }
        if (p->count && continues(&p->pieces[p->count - 1], &x)) p->pieces[p->count - 1].bytes += x.bytes;
        else p->pieces[p->count++] = x;
    }
    return 0;
}

int plan_make(plan *p, const safetensors *model, const safetensors *base, fault *f)
{
    const tensor **names = base ? sort_names(base) : NULL;
    int failed;
    memset(p, 0, sizeof *p);
    failed = (base && !names) || fill(p, model, names, base ? base->count : 0);
    free((void *)names);
    return failed ? fault_memory(f) : 0;
}

void plan_free(plan *p)
{
    free(p->pieces);
    memset(p, 0, sizeof *p);
}
