/* base.c - the base of a delta: a .safetensors file, a .bsnap file, or a chain of them. Finds it, and reads it by pieces.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * bitsnap_file reads all of them; several threads share large reads of .safetensors files. A pipe is copied to a temporary
 * file. */
#include "../system/posix.h"

#include "base.h"

#include "bytes.h"
#include "delta.h"
#include "foreign.h"
#include "header.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct base_reader {
    bitsnap_file file;
    input in;            /* the open file; the base owns its name */
    pool *threads;       /* threads that read a plain file, or null */
    base before;         /* the base of a delta, or the first of several */
} base_reader;

static int get_failed(const base_reader *r, fault *f)
{
    if (!input_check_unchanged(&r->in, f)) (void)fault_errno(f, "cannot be read");
    return fault_in(f, r->in.name);
}

/* Sets the fault to the error of the last call on the file, in the file or in one of its bases. */
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

enum { PIECES = 256 }; /* the most that threads share of one read */

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

/* Reads bytes of the file. Several threads share large reads of a plain file. Reads of a packed file are small. */
static int get(void *context, uint64_t offset, void *to, size_t size)
{
    const base_reader *reader = (const base_reader *)context;
    reading r = { 0 };
    for (r.piece = (size_t)1 << 20; size / r.piece >= PIECES; r.piece *= 2) continue;
    if (!reader->threads || reader->file.kind != BITSNAP_SOURCE_PLAIN || size <= r.piece) return input_get(&reader->in, offset, to, size);
    r.reader = reader;
    r.offset = offset;
    r.to = (uint8_t *)to;
    r.size = size;
    pool_run(reader->threads, read_piece, &r, (size - 1) / r.piece + 1);
    return memchr(r.failed, 1, PIECES) && input_get(&reader->in, offset, to, size); /* again in this thread, to get the reason */
}

/* ================================================================================= OPENING */

/* Sets the fault for a file without a header text. */
static int foreign(input *in, fault *f)
{
    uint8_t p[9];
    uint64_t size;
    if (in->size < 10)
        return foreign_refuse(in, WANT_SAFETENSORS, f) || fault_set(f, "is not a .safetensors file, or a .bsnap file of one: it has only %llu bytes",
                                                                    (unsigned long long)in->size);
    if (input_get(in, 0, p, sizeof p)) return fault_errno(f, "cannot be read");
    size = load64(p);
    if (size <= BITSNAP_TEXT_MAX && size > in->size - 8 && safetensors_begins(p[8]))
        return fault_set(f, "is incomplete: it has %llu bytes, its header alone should have %llu; take another copy of it",
                         (unsigned long long)in->size, (unsigned long long)size);
    return foreign_refuse(in, WANT_SAFETENSORS, f) || fault_set(f, "is not a .safetensors file, or a .bsnap file of one");
}

/* Reads the header of an open file, and what it states. */
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

/* Makes a base of its input, a file. `before`: the base or bases of a delta, which it then owns; or null. */
static int open_reader(base *b, const codec *c, base *before, uint64_t limit, fault *f)
{
    base_reader *r = (base_reader *)calloc(1, sizeof *r);
    bitsnap_file **of;
    bitsnap_source source;
    size_t count = 0;
    bitsnap_status status;
    base *x;
    char *name = strdup(b->in.name);
    for (x = before; x; x = x->next) count++;
    of = (bitsnap_file **)malloc((count + 1) * sizeof(bitsnap_file *));
    if (!r || !name || !of) {
        free(r);
        free(name);
        free((void *)of);
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
    for (x = before ? &r->before : NULL, count = 0; x; x = x->next) of[count++] = &x->reader->file;
    memset(&source, 0, sizeof source);
    source.read = get;
    source.context = r;
    source.size = b->in.size;
    status = bitsnap_file_open(&r->file, &source, of, count, NULL);
    free((void *)of);
    if (status)
        return r->file.error.status == BITSNAP_E_MAGIC ? foreign(&b->in, f) : reader_failed(r, f);
    if (c) {
        r->threads = c->threads;
        r->file.b.run = c->b.run;
        r->file.b.run_context = c->b.run_context;
        r->file.b.workers = pool_workers(c->threads);
    }
    return look(b, limit, f);
}

/* The name as given, without directories and .bsnap. */
static void set_name(base *b, const char *path)
{
    const char *name = last_part(path);
    size_t size = strlen(name);
    if (size > 6 && !strcmp(name + size - 6, ".bsnap")) size -= 6;
    if (size >= sizeof b->file.name || !strcmp(name, "-") || memchr(name, '\\', size)) return;
    memcpy(b->file.name, name, size);
}

/* Checks that an input can follow `before`, or, if that is null, be the first of a chain. */
static int check_place(input *in, const base *before, fault *f)
{
    if (input_fill(in, 10, f)) return 1;
    if (before && !file_is_bsnap(input_bytes(in), input_available(in))) /* whole files may follow: compress made one of a delta */
        return fault_set(f, "is not a delta, but should be one to the file before it");
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
    failed = input_open(&in, path, f) || input_note(&in, path, &c->used, f) || (!before && find_beside(&beside, c, &in, path, limit, &found, f));
    if (found) before = &beside;
    failed = failed || check_place(&in, before, f) || input_settle(&in, f) || input_again(&in, &b->in, f) || open_reader(b, c, before, limit, f);
    input_close(&in);
    base_close(&beside);
    if (failed) (void)fault_about(f, shown_name(path));
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

int base_again(base *b, const codec *c, const input *in, int *found, fault *f)
{
    const off_t here = lseek(in->fd, 0, SEEK_CUR); /* the other input shares this position and changes it */
    int failed;
    base_clear(b);
    *found = in->regular && here >= 0 && (uint64_t)here == in->offset + input_available(in);
    if (!*found) return 0;
    failed = input_again(in, &b->in, f);
    if (lseek(in->fd, here, SEEK_SET) < 0 && !failed) failed = fault_errno(f, "cannot be read");
    return failed || open_reader(b, c, NULL, 0, f);
}

int base_plain(base *b, const codec *c, const char *path, fault *f)
{
    base_clear(b);
    if (!input_open(&b->in, path, f)) {
        if (!b->in.regular || b->in.fd == STDIN_FILENO) (void)fault_set(f, "is a pipe or standard input; apply changes a .safetensors file in place");
        else if (!input_fill(&b->in, 10, f)) {
            if (file_is_delta(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a delta; give it to apply first, then the .safetensors file to change");
            else if (file_is_bsnap(input_bytes(&b->in), input_available(&b->in)))
                (void)fault_set(f, "is a .bsnap file; apply changes a .safetensors file in place");
            else if (!open_reader(b, c, NULL, 0, f)) return 0;
        }
    }
    return fault_in(f, path);
}

/* ================================================================================= BESIDE A DELTA
 * Finds the bases of a delta that states only their names. */

enum { DEPTH_MOST = 256 }; /* consecutive deltas */

/* A file that was found while the bases of one delta are looked for. Several deltas may need it, and one may name it 65,534
 * times: its header is read once, and it is opened once. */
typedef struct known_file {
    file_stamp stamp;
    int good;            /* it has a header */
    delta_end end;
    base opened;         /* without a reader: not yet */
    int opening;
} known_file;

struct known_files {
    known_file *files;   /* in the order of device and inode */
    size_t count, capacity;
};

static int packed_end(delta_end *e, codec *c, input *in, fault *f)
{
    file_reader r;
    int failed = file_look_begin(&r, c, in, NULL, f);
    if (!failed && r.s.start.kind == BITSNAP_SOURCE_RAW) failed = fault_set(f, "holds raw elements; a base is a .safetensors file, or a .bsnap file of one");
    if (!failed) {
        e->text_size = r.text_size;
        e->data_size = r.s.start.source_size - r.s.source_size;
        e->text_id = r.s.start.kind == BITSNAP_SOURCE_DELTA ? r.ends.own.text_id : bitsnap_hash(r.text, r.text_size);
    }
    file_read_close(&r);
    return failed;
}

/* Gives sizes and text id of the file at this path, as a delta to it would state them, without the text itself. */
static int find_end(delta_end *e, codec *c, const char *path, fault *f)
{
    input in;
    header h;
    int failed = input_open(&in, path, f) || input_fill(&in, 8, f);
    memset(e, 0, sizeof *e);
    memset(&h, 0, sizeof h);
    if (!failed && file_is_bsnap(input_bytes(&in), input_available(&in))) {
        failed = packed_end(e, c, &in, f);
    } else if (!failed) {
        failed = header_read(&h, &in, f);
        e->text_size = h.size;
        e->data_size = h.model.data_size;
        e->text_id = failed ? 0 : bitsnap_hash(h.text, h.size);
        header_free(&h);
    }
    input_close(&in);
    return failed ? fault_in(f, path) : 0;
}

/* Returns its index among the known files, or the index where it belongs. */
static size_t place_of_known(const struct known_files *k, const file_stamp *stamp)
{
    size_t low = 0, high = k->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const file_stamp *x = &k->files[middle].stamp;
        if (x->device < stamp->device || (x->device == stamp->device && x->inode < stamp->inode)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Returns what is known of a file, valid until the next call; null with the fault set. */
static known_file *know(codec *c, const char *path, const file_stamp *stamp, fault *f)
{
    struct known_files *k = c->known;
    const size_t i = place_of_known(k, stamp);
    known_file *all, x;
    fault ignored;
    if (i < k->count && stamp_is_file(&k->files[i].stamp, stamp)) return &k->files[i];
    memset(&x, 0, sizeof x);
    memset(&ignored, 0, sizeof ignored);
    base_clear(&x.opened);
    x.good = !find_end(&x.end, c, path, &ignored);
    x.stamp = *stamp;
    all = (known_file *)grown(k->files, k->count, &k->capacity, sizeof *all, f);
    if (!all) return NULL;
    k->files = all;
    memmove(all + i + 1, all + i, (k->count++ - i) * sizeof *all);
    all[i] = x;
    return &all[i];
}

/* Returns the path of the file `name`, or name.bsnap if `packed`, in the folder of `path`; the caller frees it. Null: no such
 * file, or no memory. */
static char *path_beside(const char *path, const char *name, int packed, file_stamp *stamp, fault *f)
{
    const size_t folder = (size_t)(last_part(path) - path);
    char *beside = (char *)malloc(folder + strlen(name) + sizeof "./.bsnap");
    struct stat st;
    if (!beside) return (void)fault_memory(f), NULL;
    memcpy(beside, path, folder);
    (void)strcat(strcpy(beside + folder, name), packed ? ".bsnap" : "");
    if (!stat(beside, &st) && S_ISREG(st.st_mode)) {
        *stamp = stamp_of(&st);
        return beside;
    }
    free(beside);
    return NULL;
}

static void say(const codec *c, const char *path, const char *beside)
{
    fault note;
    if (c->used.quiet) return;
    (void)fault_set(&note, "is restored with %.700s, which is beside it", beside);
    (void)fault_in(&note, path);
    fault_print(&note);
}

static int is_later(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec > b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec > b->tv_nsec);
}

/* Returns the path of the file beside `path` that is this base; the caller frees it. Null: not found. Then *others is 1 if
 * another file has its name. What has changed since the delta was made may be a next step by now: a packed file comes before
 * it. */
static char *base_beside(codec *c, const delta_end *e, const input *in, const char *path, file_stamp *stamp, int *others, fault *f)
{
    char *plain = *e->name ? path_beside(path, e->name, 0, stamp, f) : NULL;
    const int has_changed = plain && is_later(&stamp->changed, &in->stamp.changed);
    int way;
    free(plain);
    for (way = 0; *e->name && way < 2; way++) {
        char *beside = path_beside(path, e->name, way != has_changed, stamp, f);
        const known_file *is = beside ? know(c, beside, stamp, f) : NULL;
        if (is && is->good && delta_ends_agree(&is->end, e) && !stamp_is_file(stamp, &in->stamp)) return beside;
        *others |= is && !(is->good && delta_ends_agree(&is->end, e));
        free(beside);
        if (*f->text) return NULL;
    }
    return NULL;
}

static int open_beside(base *b, codec *c, const char *path, const char *beside, const file_stamp *stamp, uint64_t limit, fault *f)
{
    const char *name;
    known_file *is = know(c, beside, stamp, f);
    int failed = !is;
    if (is && is->opened.reader) {
        *b = is->opened;
        return 0;
    }
    if (is && is->opening) return fault_set(f, "is a delta to a file that is restored with it, so neither can be restored");
    failed = failed || used_name(&c->used, beside, USE_BASE, f);
    if (failed) return 1;
    is->opening = 1;
    say(c, path, beside);
    name = c->used.files[c->used.count - 1].name;
    c->depth++;
    failed = base_open(b, c, &name, 1, limit, f);
    c->depth--;
    is = failed ? NULL : know(c, beside, stamp, f); /* again: opening it may have added others */
    if (!is) return 1;
    is->opening = 0;
    is->opened = *b;
    is->opened.shared = 1;
    return 0;
}

/* Opens all bases, or none. */
static int open_all(base *list, codec *c, const delta_ends *ends, const input *in, const char *path, uint64_t limit, int *found, fault *f)
{
    const size_t count = ends->base_count;
    char **paths = (char **)calloc(count, sizeof *paths);
    file_stamp *stamps = (file_stamp *)calloc(count, sizeof *stamps);
    base *b = list, *last = NULL;
    size_t n, k;
    int others = 0, failed = (!paths || !stamps) && fault_memory(f);
    for (n = 0; n < count && !failed; n++) {
        paths[n] = base_beside(c, &ends->bases[n], in, path, &stamps[n], &others, f);
        if (paths[n]) continue;
        failed = *f->text || (others && fault_set(f, "this delta needs its base, which was called %s; the file of that name beside it has another header: "
                                                  "give the base with -b", ends->bases[n].name)) ||
                 (n && fault_set(f, "this delta needs %zu files beside it, and %s is not there, packed or not: put it there, or give their folder with -b",
                                 count, *ends->bases[n].name ? ends->bases[n].name : "one without a name"));
        break;
    }
    *found = n == count;
    for (k = 0; k < n && *found && !failed; k++, last = b) {
        if (last) b = last->next = (base *)calloc(1, sizeof *b);
        failed = b ? open_beside(b, c, path, paths[k], &stamps[k], limit, f) : fault_memory(f);
        if (last && !failed) last->file.next = &b->file;
    }
    while (paths && n) free(paths[--n]);
    free(paths);
    free(stamps);
    return failed;
}

int find_beside(base *b, codec *c, input *in, const char *path, uint64_t limit, int *found, fault *f)
{
    const int top = !c->known;
    file_reader r;
    int failed;
    base_clear(b);
    *found = 0;
    if (!in->regular || in->fd == STDIN_FILENO) return 0;
    if (input_fill(in, 10, f)) return 1;
    if (!file_is_delta(input_bytes(in), input_available(in))) return 0;
    if (c->depth == DEPTH_MOST) return fault_set(f, "is one of more than %d consecutive deltas; merge them", DEPTH_MOST);
    if (top && !(c->known = (struct known_files *)calloc(1, sizeof *c->known))) return fault_memory(f);
    failed = file_look_begin(&r, c, in, NULL, f) || open_all(b, c, &r.ends, in, path, limit, found, f);
    file_read_close(&r);
    if (top) {
        free(c->known->files);
        free(c->known);
        c->known = NULL;
    }
    return failed || input_seek(in, 0, f);
}

/* ================================================================================= NEEDED */

/* Returns 1 if the file at this path is a delta to the file with this name and end. */
static int stands_on(codec *c, const char *path, const char *name, const delta_end *e)
{
    file_reader r = { 0 };
    input in;
    struct stat st;
    fault ignored;
    size_t i;
    int does = 0;
    if (stat(path, &st) || !S_ISREG(st.st_mode) || input_open(&in, path, &ignored)) return 0;
    if (!input_fill(&in, 10, &ignored) && file_is_delta(input_bytes(&in), input_available(&in)) && !file_look_begin(&r, c, &in, NULL, &ignored))
        for (i = 0; i < r.ends.base_count; i++) does |= r.ends.bases[i].name && !strcmp(r.ends.bases[i].name, name) && delta_ends_agree(&r.ends.bases[i], e);
    file_read_close(&r);
    input_close(&in);
    return does;
}

int check_not_needed(codec *c, const char *path, fault *f)
{
    char *folder = directory_of(path, 0), *name = strdup(last_part(path));
    const size_t size = name ? strlen(name) : 0;
    const struct dirent *entry;
    delta_end end;
    fault ignored;
    DIR *dir = folder ? opendir(folder) : NULL;
    int failed = (!folder || !name) && fault_memory(f);
    if (dir && size > 6 && !strcmp(name + size - 6, ".bsnap") && !find_end(&end, c, path, &ignored)) {
        name[size - 6] = 0;
        while (!failed && (entry = readdir(dir)) != NULL) {
            const size_t n = strlen(entry->d_name);
            char *other = n > 6 && !strcmp(entry->d_name + n - 6, ".bsnap") ? path_in(folder, entry->d_name, &ignored) : NULL;
            struct stat st;
            if (other && strcmp(entry->d_name, last_part(path)) && stands_on(c, other, name, &end)) {
                other[strlen(other) - 6] = 0;
                if (stat(other, &st))
                    failed = fault_set(f, "is what %.300s is restored with, so it is not replaced by other contents: decompress that first, or choose "
                                          "another output with -o", entry->d_name);
            }
            free(other);
        }
    }
    if (dir) (void)closedir(dir);
    free(folder);
    free(name);
    return failed;
}

/* ================================================================================= AS A WHOLE */

static int restore_all(base *b, codec *c, input *in, const base *before, uint64_t limit, fault *f)
{
    output spool;
    file_reader r;
    int failed;
    if (check_place(in, before, f)) return 1;
    if (!file_is_bsnap(input_bytes(in), input_available(in))) return input_settle(in, f) || input_again(in, &b->in, f) || open_reader(b, c, NULL, limit, f);
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
    failed = input_open(&in, path, f) || input_note(&in, path, &c->used, f) || restore_all(b, c, &in, before, limit, f) || input_check_unchanged(&in, f);
    input_close(&in);
    if (failed) (void)fault_about(f, shown_name(path));
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
