/* base.c - what a delta is against, in memory: a .safetensors file, a .bsnap file, or a chain of them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A .safetensors file is mapped; what has to be restored, or comes from a pipe, goes to a temporary file, which then is. */
#include "../system/posix.h"

#include "base.h"

#include "bytes.h"
#include "find.h"
#include "foreign.h"
#include "restore.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file is open: maps it, and finds its parts. */
static int look(base *b, fault *f)
{
    const uint8_t *p;
    uint64_t size;
    if (b->in.size < 10) return foreign_refuse(&b->in, WANT_SAFETENSORS, f) || fault_set(f, "is no .safetensors file, nor a .bsnap file of one: it has only %llu bytes",
                                          (unsigned long long)b->in.size);
    if (input_map(&b->in, f)) return 1;
    p = b->in.map;
    size = load64(p);
    if (size <= BITSNAP_TEXT_MAX && size > b->in.size - 8 && safetensors_begins(p[8]))
        return fault_set(f, "is incomplete: it has %llu bytes, its header alone should have %llu; take another copy of it",
                         (unsigned long long)b->in.size, (unsigned long long)size);
    if (size > BITSNAP_TEXT_MAX || size > b->in.size - 8 || !safetensors_begins(p[8]))
        return foreign_refuse(&b->in, WANT_SAFETENSORS, f) || fault_set(f, "is no .safetensors file, nor a .bsnap file of one");
    b->file.text = (const char *)p + 8;
    b->file.text_size = (size_t)size;
    b->file.data = b->in.map + 8 + size;
    b->file.data_size = b->in.size - 8 - size;
    if (safetensors_parse(&b->model, b->file.text, b->file.text_size, f)) return 1;
    if (b->model.data_size != b->file.data_size)
        return fault_set(f, "has %llu bytes of data, its header describes %llu; take another copy of it", (unsigned long long)b->file.data_size,
                         (unsigned long long)b->model.data_size);
    return 0;
}

/* The input is open, of which `b` becomes what it holds. */
static int take(base *b, codec *c, input *in, const base *before, uint64_t limit, fault *f)
{
    base beside;
    output spool;
    int failed, found;
    if (input_fill(in, 10, f)) return 1;
    if (before && !file_is_bsnap(input_bytes(in), input_available(in))) /* whole files may follow: compress made one of a delta */
        return fault_set(f, "is no delta, but should follow what stands before it");
    if (!before && file_is_delta(input_bytes(in), input_available(in))) {
        failed = find_beside(&beside, c, in, in->name, limit, &found, f);
        if (!failed && !found) failed = fault_set(f, "is a delta, which needs its own base: give that before it, -b BASE -b DELTA");
        failed = failed || take(b, c, in, &beside, limit, f) || base_check_unchanged(&beside, f);
        base_close(&beside);
        return failed;
    }
    if (!file_is_bsnap(input_bytes(in), input_available(in)) && in->regular && in->fd != STDIN_FILENO) {
        if (input_again(in, &b->in, f)) return 1;
        return look(b, f);
    }
    if (spool_open(&spool, f)) return 1;
    if (file_is_bsnap(input_bytes(in), input_available(in))) {
        file_reader r;
        memset(&r, 0, sizeof r);
        failed = file_read_begin(&r, c, in, limit, before ? &before->file : NULL, f);
        if (!failed && r.kind == BITSNAP_SOURCE_RAW)
            failed = fault_set(f, "holds raw elements; a base is a .safetensors file, or a .bsnap file of one");
        failed = failed || restore_source(&r, &spool, NULL, f);
        file_read_close(&r);
    } else {
        failed = spool_copy(&spool, in, f);
    }
    if (!failed) failed = spool_to_input(&spool, &b->in, in->name, f) || look(b, f);
    if (spool.fd >= 0) (void)close(spool.fd);
    return failed;
}

/* As it was given, without directories and .bsnap. */
static void set_name(base *b, const char *path)
{
    const char *name = strrchr(path, '/');
    size_t size;
    name = name ? name + 1 : path;
    size = strlen(name);
    if (size > 6 && !strcmp(name + size - 6, ".bsnap")) size -= 6;
    if (size >= sizeof b->file.name || !strcmp(name, "-") || memchr(name, '\\', size)) return;
    memcpy(b->file.name, name, size);
}

int base_map(base *b, const char *path, fault *f)
{
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
    if (!input_open(&b->in, path, f)) {
        if (!b->in.regular || b->in.fd == STDIN_FILENO) (void)fault_set(f, "can be read once only; what can be changed in place is a .safetensors file");
        else if (!input_fill(&b->in, 10, f)) {
            if (file_is_delta(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a delta; apply takes it first, and then the .safetensors file that it is to change");
            else if (file_is_bsnap(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a .bsnap file; what can be changed in place is a .safetensors file");
            else if (!look(b, f)) return 0;
        }
    }
    return fault_in(f, path);
}

int base_restore(base *b, codec *c, const char *path, const base *before, uint64_t limit, fault *f)
{
    input in;
    int failed;
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
    failed = input_open(&in, path, f);
    if (!failed) {
        failed = input_note(&in, path, &c->used, f) || take(b, c, &in, before, limit, f) || input_check_unchanged(&in, f);
        input_close(&in);
    }
    if (failed && !*f->file) (void)fault_in(f, strcmp(path, "-") ? path : "(standard input)");
    if (!failed) set_name(b, path);
    return failed;
}

int base_open(base *b, codec *c, const char *const *paths, size_t count, uint64_t limit, fault *f)
{
    base before;
    size_t i;
    if (base_restore(b, c, paths[0], NULL, limit, f)) return 1;
    for (i = 1; i < count; i++) {
        int failed;
        before = *b;
        failed = base_restore(b, c, paths[i], &before, limit, f);
        base_close(&before);
        if (failed) return 1;
    }
    return 0;
}

int base_check_unchanged(const base *b, fault *f)
{
    for (; b; b = b->next)
        if (input_check_unchanged(&b->in, f)) return fault_in(f, b->in.name);
    return 0;
}

void base_close(base *b)
{
    base *x = b, *next;
    for (; x; x = next) {
        next = x->next;
        bitsnap_safetensors_free(&x->model);
        input_close(&x->in);
        if (x != b) free(x);
    }
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
}
