/* contents.c - reads objects of a store, and checks their contents against the manifest.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "contents.h"

#include <stdlib.h>
#include <string.h>

/* ================================================================================= READING */

/* Returns the limit for file_read_begin: the size in the manifest, at least 1, since 0 has another meaning. */
static uint64_t limit_of(const store_object *x) { return x->size ? x->size : 1; }

static int note_object(const store *s, const store_object *x, fault *f)
{
    char *path = store_object_path(s, x, f);
    if (path) (void)fault_about(f, path);
    free(path);
    return 1;
}

int store_restore_one(const store *s, codec *c, const store_object *x, const base *before, base *b, fault *f)
{
    char *path = store_object_path(s, x, f);
    int failed;
    base_clear(b);
    failed = !path || base_restore(b, c, path, before, limit_of(x), f);
    b->in.name = "(restored)";
    free(path);
    failed = failed || input_map(&b->in, f);
    if (!failed && (b->in.size != x->size || store_id(&b->in) != x->id))
        failed = fault_set(f, "does not have the content that the manifest says") && note_object(s, x, f);
    return failed;
}

/* Restores the first n objects of a chain. If n is 0, the base is empty. */
static int restore_chain(const store *s, codec *c, const store_object *const *chain, size_t n, base *b, fault *f)
{
    base before;
    size_t i;
    int failed = 0;
    base_clear(b);
    for (i = 0; i < n && !failed; i++) {
        before = *b;
        failed = store_restore_one(s, c, chain[i], i ? &before : NULL, b, f);
        base_close(&before);
    }
    return failed;
}

int store_restore(const store *s, codec *c, const store_object *x, base *b, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    return restore_chain(s, c, chain, n, b, f);
}

char *store_text(const store *s, codec *c, const store_object *x, size_t *size, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    file_base before = { 0 };
    char *text = NULL;
    size_t i;
    int failed = 0;
    for (i = 0; i < n && !failed; i++) {
        char *path = store_object_path(s, chain[i], f);
        file_reader r;
        input in;
        failed = !path || input_open(&in, path, f);
        if (!failed) {
            failed = file_look_begin(&r, c, &in, i ? &before : NULL, f) || (!r.text && fault_set(f, "does not follow the object that it is a delta to"));
            free(text);
            before.text = text = r.text;
            before.text_size = *size = r.text_size;
            r.text = NULL;
            file_read_close(&r);
            input_close(&in);
        }
        free(path);
    }
    if (!failed) return text;
    free(text);
    return NULL;
}

int store_read_through(const char *path, fault *f)
{
    input in;
    int failed;
    if (input_open(&in, path, f)) return 1;
    while (!(failed = input_fill(&in, 65536, f)) && input_available(&in)) input_consume(&in, input_available(&in));
    input_close(&in);
    return failed;
}

uint64_t store_id(const input *in) { return bitsnap_hash(in->map, in->map ? (size_t)in->size : 0); }

int store_write(const store *s, codec *c, const store_object *x, input *in, output *out, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    file_reader r;
    base before;
    int failed;
    if (!x->tensors) return spool_copy(out, in, f);
    memset(&r, 0, sizeof r);
    failed = restore_chain(s, c, chain, n - 1, &before, f) ||
             file_read_begin(&r, c, in, limit_of(x), n > 1 ? &before.file : NULL, f) || restore_source(&r, out, NULL, f);
    file_read_close(&r);
    base_close(&before);
    return failed;
}

/* ================================================================================= CHECKING */

typedef struct check {
    store *store;
    codec *codec;
    void (*tell)(void *context, store_object *o, const fault *why);
    void *context;
    store_object **by_base; /* the deltas to check, sorted by base */
    size_t deltas;
} check;

static int by_base(const void *a, const void *b)
{
    const uint64_t x = (*(store_object *const *)a)->base, y = (*(store_object *const *)b)->base;
    return (x > y) - (x < y);
}

static void note(const check *v, store_object *o, int failed, const fault *why)
{
    o->used = !failed ? OBJECT_WHOLE : why->passes ? OBJECT_UNREAD : OBJECT_DAMAGED;
    if (failed) v->tell(v->context, o, why);
}

int store_check_content(const char *path, const store_object *o, fault *f)
{
    input in;
    int failed = input_open(&in, path, f);
    if (failed) return fault_in(f, path);
    failed = in.size && input_map(&in, f);
    if (!failed && (in.size != o->size || store_id(&in) != o->id)) failed = fault_set(f, "differs from what was stored");
    input_close(&in);
    return failed;
}

static int check_copy(const store *s, const store_object *o, fault *f)
{
    char *path = store_object_path(s, o, f);
    int failed = !path || store_read_through(path, f) || store_check_content(path, o, f);
    if (path && failed) (void)fault_about(f, path);
    free(path);
    return failed;
}

/* Checks an object and all deltas to it. Deltas to a damaged object keep their mark. Closes `before` if this is the last delta to
 * it, so a chain needs at most two temporary files at a time. */
static void check_chain(check *v, store_object *o, base *before, int last)
{
    base b;
    fault why = { 0 };
    size_t i = 0, high = v->deltas;
    int failed;
    failed = store_restore_one(v->store, v->codec, o, before, &b, &why);
    if (last && before) base_close(before);
    note(v, o, failed, &why);
    while (i < high) {
        const size_t middle = (i + high) / 2;
        if (v->by_base[middle]->base < o->id) i = middle + 1;
        else high = middle;
    }
    for (; !failed && i < v->deltas && v->by_base[i]->base == o->id; i++)
        check_chain(v, v->by_base[i], &b, i + 1 == v->deltas || v->by_base[i + 1]->base != o->id);
    base_close(&b);
}

int store_check(store *s, codec *c, void (*tell)(void *context, store_object *o, const fault *why), void *context, fault *f)
{
    manifest *m = &s->m;
    check v = { 0 };
    size_t i;
    v.store = s;
    v.codec = c;
    v.tell = tell;
    v.context = context;
    v.by_base = (store_object **)malloc((m->object_count + 1) * sizeof *v.by_base);
    if (!v.by_base) return fault_memory(f);
    for (i = 0; i < m->object_count; i++)
        if (m->objects[i].used == OBJECT_ASKED && m->objects[i].has_base) v.by_base[v.deltas++] = &m->objects[i];
    if (v.deltas) qsort((void *)v.by_base, v.deltas, sizeof *v.by_base, by_base);
    for (i = 0; i < m->object_count; i++) {
        store_object *o = &m->objects[i];
        fault why;
        if (o->used != OBJECT_ASKED || o->has_base) continue;
        memset(&why, 0, sizeof why);
        if (o->tensors) check_chain(&v, o, NULL, 0);
        else note(&v, o, check_copy(s, o, &why), &why);
    }
    free((void *)v.by_base);
    return 0;
}
