/* base.c - what a delta is against: a .safetensors file, a .bsnap file, or a chain of them, read by pieces.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * bitsnap_file reads all of them; of .safetensors files several threads read pieces of what is wanted. What comes from a pipe goes to a
 * temporary file. */
#include "../system/posix.h"

#include "base.h"

#include "bytes.h"
#include "find.h"
#include "foreign.h"
#include "restore.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct base_reader {
    bitsnap_file file;
    input in;            /* what the base has open; the name is its own */
    pool *threads;       /* which read what is not packed, or null */
    base before;         /* what a delta is against, or the first of these */
} base_reader;

static int get_failed(const base_reader *r, fault *f)
{
    if (!input_check_unchanged(&r->in, f)) (void)fault_errno(f, "cannot be read");
    return fault_in(f, r->in.name);
}

/* What the last call on the file has found: in it, or in what it stands on. */
static int reader_failed(const base_reader *r, fault *f)
{
    const bitsnap_file_error *e = &r->file.error;
    unsigned depth;
    unsigned number;
    for (depth = e->depth; depth; depth--) { /* each member of the chain says which of its bases it is */
        const base *b = &r->before;
        for (number = r->file.error.base; number; number--) b = b->next;
        r = b->reader;
    }
    if (e->status == BITSNAP_E_SOURCE) return get_failed(r, f);
    if (!input_check_unchanged(&r->in, f)) (void)container_failed(e, f);
    return fault_in(f, r->in.name);
}

static int base_failed(const file_base *b, fault *f) { return reader_failed((const base_reader *)b->context, f); }

/* ================================================================================= READING */

enum { PIECES = 256 }; /* that several threads read, at most */

typedef struct reading {
    const base_reader *reader;
    uint64_t offset;
    uint8_t *to;
    size_t size, piece;
    unsigned char failed[PIECES];
} reading;

static void read_piece(void *argument, uint64_t index, unsigned worker)
{
    reading *r = (reading *)argument;
    const size_t at = (size_t)index * r->piece, n = r->size - at < r->piece ? r->size - at : r->piece;
    (void)worker;
    r->failed[index] = input_get(&r->reader->in, r->offset + at, r->to + at, n) != 0;
}

/* Bytes of the file. Of one that is not packed several threads read pieces; of others the pieces are small. */
static int get(void *context, uint64_t offset, void *to, size_t size)
{
    const base_reader *reader = (const base_reader *)context;
    reading r;
    memset(&r, 0, sizeof r);
    for (r.piece = (size_t)1 << 20; size / r.piece >= PIECES; r.piece *= 2) continue;
    if (!reader->threads || reader->file.kind != BITSNAP_SOURCE_PLAIN || size <= r.piece) return input_get(&reader->in, offset, to, size);
    r.reader = reader;
    r.offset = offset;
    r.to = (uint8_t *)to;
    r.size = size;
    pool_run(reader->threads, read_piece, &r, (size - 1) / r.piece + 1);
    return memchr(r.failed, 1, PIECES) && input_get(&reader->in, offset, to, size); /* once more, to hear why */
}

/* ================================================================================= OPENING */

/* What is wrong with a file that has no header text. */
static int foreign(input *in, fault *f)
{
    uint8_t p[9];
    uint64_t size;
    if (in->size < 10)
        return foreign_refuse(in, WANT_SAFETENSORS, f) || fault_set(f, "is no .safetensors file, nor a .bsnap file of one: it has only %llu bytes",
                                                                    (unsigned long long)in->size);
    if (input_get(in, 0, p, sizeof p)) return fault_errno(f, "cannot be read");
    size = load64(p);
    if (size <= BITSNAP_TEXT_MAX && size > in->size - 8 && safetensors_begins(p[8]))
        return fault_set(f, "is incomplete: it has %llu bytes, its header alone should have %llu; take another copy of it",
                         (unsigned long long)in->size, (unsigned long long)size);
    return foreign_refuse(in, WANT_SAFETENSORS, f) || fault_set(f, "is no .safetensors file, nor a .bsnap file of one");
}

/* The header of a file that is open, and what it says. */
static int look(base *b, uint64_t limit, fault *f)
{
    base_reader *r = b->reader;
    const bitsnap_file *file = &r->file;
    const uint64_t whole = 8 + file->text_size + file->data_size;
    uint64_t from = b->in.size;
    const base *x;
    for (x = file->kind == BITSNAP_SOURCE_DELTA ? &r->before : NULL; x; x = x->next) from += x->file.data_size;
    if (file->kind == BITSNAP_SOURCE_RAW) return fault_set(f, "holds raw elements; a base is a .safetensors file, or a .bsnap file of one");
    if (file->kind != BITSNAP_SOURCE_PLAIN && file_check_limit(whole, whole, from, limit, f)) return 1;
    if (bitsnap_file_text(&r->file, &b->file.text)) return reader_failed(r, f);
    b->file.text_size = (size_t)file->text_size;
    b->file.data_size = file->data_size;
    b->file.file = &r->file;
    b->file.failed = base_failed;
    b->file.context = r;
    if (safetensors_parse(&b->model, b->file.text, b->file.text_size, f)) return 1;
    if (b->model.data_size != b->file.data_size)
        return fault_set(f, "has %llu bytes of data, its header describes %llu; take another copy of it", (unsigned long long)b->file.data_size,
                         (unsigned long long)b->model.data_size);
    return 0;
}

/* Makes the base of its input, a file; `before`, or null, is what a delta is against, one base or several, and belongs to it then. */
static int open_reader(base *b, const codec *c, base *before, uint64_t limit, fault *f)
{
    base_reader *r = (base_reader *)calloc(1, sizeof *r);
    bitsnap_file *of[BASES_MOST];
    bitsnap_source source;
    size_t count = 0;
    base *x;
    char *name = strdup(b->in.name);
    if (!r || !name) {
        free(r);
        free(name);
        return fault_memory(f);
    }
    b->reader = r;
    r->in = b->in;
    r->in.name = name;
    base_clear(&r->before);
    if (before) {
        r->before = *before;
        base_clear(before);
    }
    for (x = before ? &r->before : NULL; x && count < sizeof of / sizeof *of; x = x->next) of[count++] = &x->reader->file;
    memset(&source, 0, sizeof source);
    source.read = get;
    source.context = r;
    source.size = b->in.size;
    if (bitsnap_file_open(&r->file, &source, of, count, NULL))
        return r->file.error.status == BITSNAP_E_MAGIC ? foreign(&b->in, f) : reader_failed(r, f);
    if (c) {
        r->threads = c->threads;
        r->file.b.run = c->b.run;
        r->file.b.run_context = c->b.run_context;
        r->file.b.workers = pool_workers(c->threads);
    }
    return look(b, limit, f);
}

/* What comes from a pipe, as a file. */
static int settle(input *in, input *settled, fault *f)
{
    output spool;
    int failed;
    if (in->regular && in->fd != STDIN_FILENO) return input_again(in, settled, f);
    if (spool_open(&spool, f)) return 1;
    failed = spool_copy(&spool, in, f) || spool_to_input(&spool, settled, in->name, f);
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

/* Whether an input can follow what stands before it, or stand first. */
static int check_place(input *in, const base *before, fault *f)
{
    if (input_fill(in, 10, f)) return 1;
    if (before && !file_is_bsnap(input_bytes(in), input_available(in))) /* whole files may follow: compress made one of a delta */
        return fault_set(f, "is no delta, but should follow what stands before it");
    if (!before && file_is_delta(input_bytes(in), input_available(in)))
        return fault_set(f, "is a delta, which needs its own base: give that before it, -b BASE -b DELTA");
    return 0;
}

int base_follow(base *b, codec *c, const char *path, base *before, uint64_t limit, fault *f)
{
    base beside;
    input in;
    int failed, found = 0;
    base_clear(b);
    base_clear(&beside);
    failed = input_open(&in, path, f);
    if (!failed) {
        failed = input_note(&in, path, &c->used, f) || (!before && find_beside(&beside, c, &in, path, limit, &found, f));
        if (found) before = &beside;
        failed = failed || check_place(&in, before, f) || settle(&in, &b->in, f) || open_reader(b, c, before, limit, f);
        input_close(&in);
        base_close(&beside);
    }
    if (failed && !*f->file) (void)fault_in(f, strcmp(path, "-") ? path : "(standard input)");
    if (!failed) set_name(b, path);
    return failed;
}

int base_open(base *b, codec *c, const char *const *paths, size_t count, uint64_t limit, fault *f)
{
    base before;
    size_t i;
    int failed = base_follow(b, c, paths[0], NULL, limit, f);
    for (i = 1; i < count && !failed; i++) {
        before = *b;
        failed = base_follow(b, c, paths[i], &before, limit, f);
        base_close(&before);
    }
    return failed;
}

int base_plain(base *b, const codec *c, const char *path, fault *f)
{
    base_clear(b);
    if (!input_open(&b->in, path, f)) {
        if (!b->in.regular || b->in.fd == STDIN_FILENO) (void)fault_set(f, "can be read once only; what can be changed in place is a .safetensors file");
        else if (!input_fill(&b->in, 10, f)) {
            if (file_is_delta(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a delta; apply takes it first, and then the .safetensors file that it is to change");
            else if (file_is_bsnap(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a .bsnap file; what can be changed in place is a .safetensors file");
            else if (!open_reader(b, c, NULL, 0, f)) return 0;
        }
    }
    return fault_in(f, path);
}

/* ================================================================================= AS A WHOLE */

static int restore_all(base *b, codec *c, input *in, const base *before, uint64_t limit, fault *f)
{
    output spool;
    file_reader r;
    int failed;
    if (check_place(in, before, f)) return 1;
    if (!file_is_bsnap(input_bytes(in), input_available(in))) return settle(in, &b->in, f) || open_reader(b, c, NULL, limit, f);
    if (spool_open(&spool, f)) return 1;
    memset(&r, 0, sizeof r);
    failed = file_read_begin(&r, c, in, limit, before ? &before->file : NULL, f);
    if (!failed && r.s.start.kind == BITSNAP_SOURCE_RAW)
        failed = fault_set(f, "holds raw elements; a base is a .safetensors file, or a .bsnap file of one");
    failed = failed || restore_source(&r, &spool, NULL, f) || spool_to_input(&spool, &b->in, in->name, f);
    file_read_close(&r);
    if (spool.fd >= 0) (void)close(spool.fd);
    return failed || open_reader(b, c, NULL, limit, f);
}

int base_restore(base *b, codec *c, const char *path, const base *before, uint64_t limit, fault *f)
{
    input in;
    int failed;
    base_clear(b);
    failed = input_open(&in, path, f);
    if (!failed) {
        failed = input_note(&in, path, &c->used, f) || restore_all(b, c, &in, before, limit, f) || input_check_unchanged(&in, f);
        input_close(&in);
    }
    if (failed && !*f->file) (void)fault_in(f, strcmp(path, "-") ? path : "(standard input)");
    if (!failed) set_name(b, path);
    return failed;
}

int base_input(const base *b, const codec *c, input *in, fault *f)
{
    const file_base *of = &b->file;
    uint8_t size[8], *window;
    uint64_t at;
    output spool;
    int failed;
    if (of->file->kind == BITSNAP_SOURCE_PLAIN) return input_again(&b->in, in, f);
    if (spool_open(&spool, f)) return 1;
    store64(size, of->text_size);
    failed = output_write(&spool, size, sizeof size, f) || output_write(&spool, of->text, of->text_size, f);
    window = (uint8_t *)malloc(c->window);
    if (!window) failed = fault_memory(f);
    for (at = 0; at < of->data_size && !failed;) {
        const size_t n = of->data_size - at < c->window ? (size_t)(of->data_size - at) : c->window;
        failed = (bitsnap_file_read_data(of->file, at, window, n) && of->failed(of, f)) || output_write(&spool, window, n, f);
        at += n;
    }
    free(window);
    failed = failed || spool_to_input(&spool, in, b->in.name, f);
    if (spool.fd >= 0) (void)close(spool.fd);
    return failed;
}

/* ================================================================================= */

int base_check_unchanged(const base *b, fault *f)
{
    for (; b; b = b->next) {
        if (b->shared) continue;
        if (input_check_unchanged(&b->in, f)) return fault_in(f, b->in.name);
        if (b->reader && base_check_unchanged(&b->reader->before, f)) return 1;
    }
    return 0;
}

void base_clear(base *b)
{
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
}

void base_close(base *b)
{
    base *x = b, *next;
    for (; x; x = next) {
        base_reader *r = x->reader;
        next = x->next;
        if (!x->shared) {
            bitsnap_safetensors_free(&x->model);
            if (r) {
                bitsnap_file_close(&r->file);
                base_close(&r->before);
                free((void *)(uintptr_t)r->in.name);
                free(r);
            }
            input_close(&x->in);
        }
        if (x != b) free(x);
    }
    base_clear(b);
}
