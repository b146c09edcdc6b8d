/* engine_disk.c - snapshots on disk: .bsnap files, and a manifest that lists them. MIT licence, see bitsnap.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine_disk.h"

#include "../file/bitsnap_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

const disk_form *disk_other_form;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static engine_status path_of(char path[DISK_PATH], const char *directory, const char *name, const char *format, uint64_t step, engine_error *error)
{
    char end[64];
    snprintf(end, sizeof end, format, step);
    if (snprintf(path, DISK_PATH, "%s/%s%s", directory, name, end) < DISK_PATH) return ENGINE_OK;
    return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the directory is too long");
}

#define FILE_END "-%010" PRIu64 ".bsnap"

/* ================================================================================= MANIFEST */

#define MANIFEST_START "bitsnap engine 1\n"

int disk_is_there(const char *path, uint64_t size)
{
    struct stat st;
    return stat(path, &st) ? errno != ENOENT : (uint64_t)st.st_size == size;
}

engine_status disk_fail(const struct bitsnap_file *f, const char *path, const char *name, engine_error *error)
{
    const int unread = f->error.status == BITSNAP_E_SOURCE;
    const char *wrong = unread ? strerror(errno) : f->error.message;
    return engine_fail(error, unread || f->error.status == BITSNAP_E_WORKSPACE ? ENGINE_E_SYSTEM : ENGINE_E_DAMAGED, "%.100s: %.60s%s%s%s", path, name,
                       *name ? ": " : "", unread ? "cannot be read: " : "", wrong);
}

/* A decimal number below 10^18 that ends with `end`; null: there is none. */
static const char *parse_number(const char *p, const char *stop, char end, uint64_t *number)
{
    const char *start = p;
    for (*number = 0; p < stop && *p >= '0' && *p <= '9' && p - start < 18; p++) *number = 10 * *number + (uint64_t)(*p - '0');
    return p > start && p < stop && *p == end ? p + 1 : NULL;
}

const char *disk_parse(disk_manifest *m, const char *text, size_t size)
{
    const size_t start = strlen(MANIFEST_START), last = strlen("check 0123456789abcdef\n");
    const char *p = text + start, *stop;
    char check[32];
    memset(m, 0, sizeof *m);
    if (size < start + last || memcmp(text, MANIFEST_START, start)) return "not a manifest of bitsnap's engine";
    stop = text + size - last;
    snprintf(check, sizeof check, "check %016" PRIx64 "\n", bitsnap_hash(text, size - last));
    if (memcmp(stop, check, last)) return "its check does not match";
    while (p < stop) {
        disk_entry *e = &m->entries[m->count];
        if (m->count == DISK_ENTRIES) return "too many files";
        if (!(p = parse_number(p, stop, ' ', &e->step)) || !(p = parse_number(p, stop, ' ', &e->size)) || !(p = parse_number(p, stop, ' ', &e->ranks)))
            return "a line without step, size and ranks";
        if (m->count && e->step <= e[-1].step) return "steps that do not ascend";
        p = (const char *)memchr(p, '\n', (size_t)(stop - p)); /* the name of the file follows from the step: it is for people */
        if (!p) return "a line that does not end";
        p++, m->count++;
    }
    return NULL;
}

engine_status disk_read_manifest(disk_manifest *m, const char *directory, const char *name, engine_error *error)
{
    char path[DISK_PATH], text[DISK_ENTRIES * 512];
    const char *wrong;
    unsigned i, n;
    size_t size;
    FILE *f;
    memset(m, 0, sizeof *m);
    if (disk_other_form && disk_other_form->list(m, directory, name, error) != ENGINE_E_NONE) return error->status;
    if (path_of(path, directory, name, ".manifest", 0, error)) return error->status;
    f = fopen(path, "rb");
    if (!f) return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    size = fread(text, 1, sizeof text, f);
    if (ferror(f)) {
        (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: cannot be read: %s", path, strerror(errno));
        fclose(f);
        return error->status;
    }
    fclose(f);
    wrong = size == sizeof text ? "it is too long" : disk_parse(m, text, size);
    if (wrong) return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", path, wrong);
    for (i = n = 0; i < m->count; i++)
        if (!path_of(path, directory, name, FILE_END, m->entries[i].step, error) && disk_is_there(path, m->entries[i].size)) m->entries[n++] = m->entries[i];
    m->count = n;
    return engine_good(error);
}

/* The new name of a file that is complete, on the disk before and after. */
static engine_status settle(int fd, const char *temporary, const char *path, const char *directory, engine_error *error)
{
    int d = -1;
    if (fsync(fd) || rename(temporary, path)) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    d = open(directory, O_RDONLY | O_CLOEXEC);
    if (d >= 0) (void)fsync(d), (void)close(d); /* some file systems refuse, and need it not */
    return ENGINE_OK;
}

static engine_status write_manifest(const disk_writer *w, const disk_manifest *m, engine_error *error)
{
    char path[DISK_PATH], temporary[DISK_PATH], text[DISK_ENTRIES * 512];
    size_t size = (size_t)snprintf(text, sizeof text, MANIFEST_START);
    unsigned i;
    int fd;
    if (path_of(path, w->directory, w->name, ".manifest", 0, error) || path_of(temporary, w->directory, w->name, ".manifest.tmp", 0, error))
        return error->status;
    for (i = 0; i < m->count; i++)
        size += (size_t)snprintf(text + size, 512, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %.200s" FILE_END "\n", m->entries[i].step, m->entries[i].size,
                                 m->entries[i].ranks, w->name, m->entries[i].step);
    size += (size_t)snprintf(text + size, 32, "check %016" PRIx64 "\n", bitsnap_hash(text, size));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, strerror(errno));
    if (write(fd, text, size) != (ssize_t)size) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, errno ? strerror(errno) : "cut short");
    else if (!settle(fd, temporary, path, w->directory, error)) (void)engine_good(error);
    close(fd);
    if (error->status) unlink(temporary);
    return error->status;
}

/* ================================================================================= TYPES */

/* Whether a text is a shape of `count` elements, as [2,3] of 6. It has no spaces and no leading zeros, so that a shape has one text. */
static int is_shape(const char *p, uint64_t count)
{
    const uint64_t most = UINT64_C(1) << 48;
    const char *stop = p + strlen(p);
    uint64_t elements = 1, n = 0;
    int more = 1;
    if (*p++ != '[') return 0;
    if (!strcmp(p, "]")) return count == 1;
    while (more) {
        const char *next = parse_number(p, stop, ',', &n), *last = parse_number(p, stop, ']', &n);
        if ((*p == '0' && p[1] >= '0' && p[1] <= '9') || n > most || (n && elements > most / n)) return 0;
        elements *= n;
        more = next != NULL;
        p = next ? next : last; /* null: it is no number, or something else comes after it */
    }
    return p == stop && elements == count;
}

size_t disk_type(char text[DISK_TYPE], const engine_tensor *t)
{
    const unsigned width = bitsnap_width(t->dtype);
    const bitsnap_element_type *type;
    size_t name;
    if (!width) return 0;
    if (!t->type) {
        const char *dtype = bitsnap_dtype_name(t->dtype);
        return (size_t)(t->columns && t->columns < t->count && t->count % t->columns == 0
            ? snprintf(text, DISK_TYPE, "%s[%" PRIu64 ",%" PRIu64 "]", dtype, t->count / t->columns, t->columns)
            : snprintf(text, DISK_TYPE, "%s[%" PRIu64 "]", dtype, t->count));
    }
    name = strcspn(t->type, "[");
    type = bitsnap_element_type_find(t->type, name, 0);
    if (!type || type->codec != t->dtype || type->bits != 8 * width || !is_shape(t->type + name, t->count)) return 0;
    return strlen(t->type) < DISK_TYPE ? strlen(strcpy(text, t->type)) : 0;
}

/* The two parts of such a text. */
static void split_type(const char *text, size_t size, bitsnap_slice *dtype, bitsnap_slice *shape)
{
    dtype->at = text, dtype->size = strcspn(text, "[");
    shape->at = text + dtype->size, shape->size = size - dtype->size;
}

/* ================================================================================= READING */

int disk_read_at(void *context, uint64_t offset, void *to, size_t size)
{
    const int fd = *(const int *)context;
    uint8_t *p = (uint8_t *)to;
    while (size) {
        const ssize_t n = pread(fd, p, size, (off_t)offset);
        if (n <= 0) {
            if (n < 0 && errno == EINTR) continue;
            if (!n) errno = ENODATA; /* it has become shorter */
            return 1;
        }
        p += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

enum { SOME = 1 << 18 }; /* elements that are stored or hashed at a time */

/* Adds elements to an id, so that tensors with equal elements have equal ids. */
static void add_to_id(uint64_t *id, const void *bytes, size_t size)
{
    const uint64_t x[2] = { *id, bitsnap_hash(bytes, size) };
    *id = bitsnap_hash(x, sizeof x);
}

/* Reads the elements some at a time, and stores them unless only the id is wanted. */
static engine_status read_parts(bitsnap_file *f, const char *path, const bitsnap_tensor *t, const engine_tensor *x, int keep, uint64_t *id, engine_error *error)
{
    const size_t width = bitsnap_width(x->dtype);
    void *some = malloc(SOME * width);
    uint64_t first, n;
    if (!some) return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    (void)engine_good(error);
    for (first = 0; first < x->count && !error->status; first += n) {
        n = x->count - first < SOME ? x->count - first : SOME;
        if (bitsnap_file_read(f, t, some, first, n)) (void)disk_fail(f, path, x->name, error);
        else if (keep && x->store(x->data, first, n, some)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.100s: its elements cannot be stored", x->name);
        else if (id) add_to_id(id, some, (size_t)n * width);
    }
    free(some);
    return error->status;
}

/* Finds a tensor in a file; it must be of the same type and shape. ENGINE_E_NONE: the file has none of that name. */
static engine_status find_tensor(bitsnap_file *f, const char *path, const engine_tensor *x, bitsnap_tensor *t, engine_error *error)
{
    char text[DISK_TYPE];
    const size_t size = disk_type(text, x);
    bitsnap_slice dtype, shape;
    if (!size) return engine_fail(error, ENGINE_E_ARGUMENT, "%.100s: its type is unknown, or of other elements", x->name);
    split_type(text, size, &dtype, &shape);
    if (bitsnap_file_find(f, x->name, strlen(x->name), t)) {
        (void)disk_fail(f, path, x->name, error);
        return f->error.status == BITSNAP_E_MISMATCH ? error->status = ENGINE_E_NONE : error->status;
    }
    if (t->dtype.size != dtype.size || memcmp(t->dtype.at, dtype.at, dtype.size) || !bitsnap_shape_same(t->shape, shape))
        return engine_fail(error, ENGINE_E_MISMATCH, "%.80s: %.50s is %.*s%.*s there, not %.40s", path, x->name,
                           (int)(t->dtype.size < 20 ? t->dtype.size : 20), t->dtype.at, (int)(t->shape.size < 40 ? t->shape.size : 40), t->shape.at, text);
    return engine_good(error);
}

/* Restores a tensor from a file. `id`: not null: of its elements. ENGINE_E_NONE as find_tensor. */
static engine_status read_tensor_of(bitsnap_file *f, const char *path, const engine_tensor *x, uint64_t *id, engine_error *error)
{
    const size_t width = bitsnap_width(x->dtype);
    bitsnap_tensor t;
    uint64_t first;
    if (find_tensor(f, path, x, &t, error)) return error->status;
    if (x->store) return read_parts(f, path, &t, x, 1, id, error);
    if (bitsnap_file_read(f, &t, x->data, 0, x->count)) return disk_fail(f, path, x->name, error);
    for (first = 0; id && first < x->count; first += SOME)
        add_to_id(id, (const uint8_t *)x->data + first * width, (size_t)(x->count - first < SOME ? x->count - first : SOME) * width);
    return engine_good(error);
}

static engine_status read_tensors(bitsnap_file *f, const char *path, const engine_tensor *tensors, size_t count, engine_error *error)
{
    const bitsnap_safetensors *all;
    size_t i;
    if (bitsnap_file_tensors(f, &all)) return disk_fail(f, path, "", error);
    if (all->count != count)
        return engine_fail(error, ENGINE_E_MISMATCH, "%.150s: has %llu tensors, not %llu", path, (unsigned long long)all->count, (unsigned long long)count);
    for (i = 0; i < count; i++)
        if (read_tensor_of(f, path, &tensors[i], NULL, error)) {
            if (error->status == ENGINE_E_NONE) error->status = ENGINE_E_MISMATCH;
            return error->status;
        }
    return engine_good(error);
}

typedef struct open_file {
    int fd;         /* -1: none */
    void *other;    /* of another form, or null */
    bitsnap_file f, *file;
} open_file;

static void close_file(open_file *x)
{
    if (x->other) disk_other_form->close(x->other);
    else if (x->fd >= 0) bitsnap_file_close(&x->f), close(x->fd);
}

/* `path`: what it is called in messages. */
static engine_status open_listed(open_file *x, const char *directory, const char *name, const disk_entry *e, char path[DISK_PATH], engine_error *error)
{
    struct stat st;
    bitsnap_source source;
    memset(&source, 0, sizeof source);
    x->other = NULL, x->file = &x->f, x->fd = -1;
    if (path_of(path, directory, name, FILE_END, e->step, error)) return error->status;
    if (disk_other_form && disk_other_form->open(&x->other, &x->file, directory, name, e->step, error) != ENGINE_E_NONE) {
        snprintf(path, DISK_PATH, "step %" PRIu64 " of %.150s", e->step, name);
        return error->status;
    }
    x->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (x->fd < 0) return engine_fail(error, errno == ENOENT ? ENGINE_E_DAMAGED : ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    source.read = disk_read_at, source.context = &x->fd, source.size = e->size;
    if (bitsnap_file_open(&x->f, &source, NULL, 0, NULL)) (void)disk_fail(&x->f, path, "", error);
    else if (fstat(x->fd, &st) || (uint64_t)st.st_size != e->size) (void)engine_fail(error, ENGINE_E_DAMAGED, "%.180s: has not the size that the manifest says", path);
    else return engine_good(error);
    close_file(x);
    return error->status;
}

static engine_status read_file(const char *directory, const char *name, const disk_entry *e, const engine_tensor *tensors, size_t count, engine_error *error)
{
    char path[DISK_PATH];
    open_file x;
    if (open_listed(&x, directory, name, e, path, error)) return error->status;
    (void)read_tensors(x.file, path, tensors, count, error);
    close_file(&x);
    return error->status;
}

static const disk_entry *find_entry(const disk_manifest *m, uint64_t step, uint64_t ranks)
{
    unsigned i;
    for (i = 0; i < m->count; i++)
        if (m->entries[i].step == step && m->entries[i].ranks == ranks) return &m->entries[i];
    return NULL;
}

/* RUN.RANK */
static const char *name_of_rank(char name[256], const char *run, uint64_t rank)
{
    snprintf(name, 256, "%.230s.%" PRIu64, run, rank);
    return name;
}

engine_status disk_find_all(const char *directory, const char *run, uint64_t *step, uint64_t *ranks, engine_error *error)
{
    disk_manifest m, other;
    char name[256];
    unsigned i;
    if (disk_read_manifest(&m, directory, name_of_rank(name, run, 0), error)) return error->status;
    for (i = m.count; i-- > 0;) {
        uint64_t rank = 1;
        (void)engine_good(error);
        while (rank < m.entries[i].ranks && !disk_read_manifest(&other, directory, name_of_rank(name, run, rank), error) &&
               find_entry(&other, m.entries[i].step, m.entries[i].ranks))
            rank++;
        if (error->status && error->status != ENGINE_E_NONE) return error->status; /* what is there is not known */
        if (rank < m.entries[i].ranks) continue;
        *step = m.entries[i].step;
        *ranks = m.entries[i].ranks;
        return engine_good(error);
    }
    return engine_fail(error, ENGINE_E_NONE, "%.150s: there is no step of %.50s of which all files are there", directory, run);
}

/* The rank whose file a tensor came from, plus 1, and the id of its elements. */
typedef struct origin {
    uint64_t file, id;
} origin;

/* Takes a tensor from the next rank's file, unless another rank is asked for. If a file before had it, both must have the same elements. */
static engine_status gather_tensor(bitsnap_file *f, const char *path, const char *run, uint64_t rank, const engine_tensor *x, origin *from, engine_error *error)
{
    bitsnap_tensor t;
    uint64_t id = 0;
    if (x->file && x->file != rank + 1) return engine_good(error);
    if (!from->file) (void)read_tensor_of(f, path, x, x->file ? NULL : &from->id, error);
    else if (!find_tensor(f, path, x, &t, error)) (void)read_parts(f, path, &t, x, 0, &id, error);
    if (error->status == ENGINE_E_NONE) return engine_good(error);
    if (!error->status && from->file && id != from->id)
        return engine_fail(error, ENGINE_E_MISMATCH, "%.60s: the files of %.40s.%" PRIu64 " and %.40s.%" PRIu64 " have other elements of that name; say whose by "
                           "engine_tensor.file", x->name, run, from->file - 1, run, rank);
    if (!from->file) from->file = rank + 1;
    return error->status;
}

engine_status disk_recover_all(const char *directory, const char *run, uint64_t step, uint64_t ranks, const engine_tensor *tensors, size_t count,
                               engine_error *error)
{
    char name[256], path[DISK_PATH];
    origin *from = (origin *)calloc(count + 1, sizeof *from);
    uint64_t rank;
    size_t i;
    if (!from) return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    (void)engine_good(error);
    for (rank = 0; rank < ranks && !error->status; rank++) {
        disk_manifest m;
        const disk_entry *e;
        open_file x;
        if (disk_read_manifest(&m, directory, name_of_rank(name, run, rank), error)) break;
        e = find_entry(&m, step, ranks);
        if (!e) (void)engine_fail(error, ENGINE_E_DAMAGED, "%.50s: step %" PRIu64 " is not listed any more", name, step);
        if (!e || open_listed(&x, directory, name, e, path, error)) break;
        for (i = 0; i < count && !error->status; i++) (void)gather_tensor(x.file, path, run, rank, &tensors[i], &from[i], error);
        close_file(&x);
    }
    for (i = 0; i < count && !error->status; i++) {
        if (from[i].file) continue;
        if (!tensors[i].file) (void)engine_fail(error, ENGINE_E_MISMATCH, "%.100s: is in no file of step %" PRIu64, tensors[i].name, step);
        else (void)engine_fail(error, ENGINE_E_MISMATCH, "%.100s: is not in the file of rank %" PRIu64 " of %" PRIu64 ", step %" PRIu64, tensors[i].name,
                               tensors[i].file - 1, ranks, step);
    }
    free(from);
    return error->status;
}

engine_status disk_recover(const char *directory, const char *name, uint64_t wanted, uint64_t ranks, uint64_t *step, const engine_tensor *tensors, size_t count,
                           void (*say)(void *, const char *), void *say_context, engine_error *error)
{
    disk_manifest m;
    unsigned i, tried = 0;
    if (disk_read_manifest(&m, directory, name, error)) return error->status;
    for (i = m.count; i-- > 0;) {
        if ((wanted != UINT64_MAX && m.entries[i].step != wanted) || m.entries[i].ranks != ranks) continue;
        *step = m.entries[i].step;
        tried++;
        if (read_file(directory, name, &m.entries[i], tensors, count, error) != ENGINE_E_DAMAGED) return error->status;
        if (say) say(say_context, error->message);
    }
    *step = 0;
    return tried ? engine_fail(error, ENGINE_E_DAMAGED, "%.150s: no file of %.50s in it is whole", directory, name)
                   : engine_fail(error, ENGINE_E_NONE, "%.150s: there is no file of %.50s in it", directory, name);
}

/* ================================================================================= WRITING */

int disk_put(void *context, const void *bytes, size_t size)
{
    disk_sink *s = (disk_sink *)context;
    const uint8_t *p = (const uint8_t *)bytes;
    while (size) {
        const size_t most = size < 262144 ? size : 262144;
        const ssize_t n = write(s->fd, p, most);
        double late;
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            s->error = errno;
            return 1;
        }
        p += n;
        size -= (size_t)n;
        s->written += (uint64_t)n;
        do {
            struct timespec pause = { 0, 10000000 };
            if (s->w->let_go && s->w->let_go(s->w->context)) {
                s->given_up = 1;
                return 1;
            }
            late = s->w->rate > 0 ? (double)s->written / s->w->rate - (seconds() - s->start) : 0;
            if (late > 0.001) nanosleep(&pause, NULL);
        } while (late > 0.001);
    }
    return 0;
}

char *disk_text(const engine_tensor *tensors, size_t count, const char *metadata, size_t *size)
{
    bitsnap_tensor *t = (bitsnap_tensor *)calloc(count + 1, sizeof *t);
    char (*types)[DISK_TYPE] = (char (*)[DISK_TYPE])malloc((count + 1) * sizeof *types), *text = NULL;
    bitsnap_file_error error;
    size_t i, n = 1;
    for (i = 0; t && types && i < count && n; i++) {
        n = disk_type(types[i], &tensors[i]);
        t[i].name.at = tensors[i].name, t[i].name.size = strlen(tensors[i].name);
        if (n) split_type(types[i], n, &t[i].dtype, &t[i].shape);
    }
    if (t && types && n && bitsnap_safetensors_write(&text, size, t, count, metadata, NULL, &error)) text = NULL;
    free(t);
    free(types);
    return text;
}

int disk_is_quantized(engine_reader *r, const engine_tensor *tensors, size_t count)
{
    engine_error error;
    engine_piece p;
    bitsnap_info info;
    size_t i;
    for (i = 0; i < count; i++)
        if (tensors[i].kind != ENGINE_EXACT && !engine_reader_piece(r, i, 0, 0, &p, &error) && p.frame &&
            !bitsnap_read_info(&info, p.frame, p.frame_size) && info.cells)
            return 1;
    return 0;
}

static engine_status write_pieces(bitsnap_file_writer *f, engine_reader *r, const engine_tensor *tensors, size_t count, engine_error *error)
{
    engine_piece p;
    uint64_t number;
    size_t i;
    for (i = 0; i < count; i++) {
        for (number = 0; !engine_reader_piece(r, i, number, 0, &p, error); number++) {
            const bitsnap_status wrong = p.frame ? bitsnap_file_write_packed(f, p.frame, p.frame_size, p.count * bitsnap_width(tensors[i].dtype), NULL)
                : bitsnap_file_write_frame(f, tensors[i].dtype, p.count, NULL) || bitsnap_file_write_elements(f, p.elements, (size_t)p.count)
                ? f->error.status : bitsnap_file_write_frame_end(f);
            if (wrong) return engine_fail(error, ENGINE_E_SYSTEM, "%.100s: %s", tensors[i].name, f->error.message);
        }
        if (error->status != ENGINE_E_NONE) return error->status;
    }
    return engine_good(error);
}

static engine_status write_file(disk_sink *s, engine_reader *r, uint64_t step, engine_error *error)
{
    size_t count, i;
    const engine_tensor *tensors = engine_reader_tensors(r, &count);
    bitsnap b;
    bitsnap_sink to;
    bitsnap_file_head head;
    bitsnap_file_writer f;
    char *text, metadata[64];
    memset(&b, 0, sizeof b);
    memset(&head, 0, sizeof head);
    b.level = BITSNAP_FAST;
    b.workspace = malloc(BITSNAP_WORKSPACE);
    b.workspace_size = BITSNAP_WORKSPACE;
    to.write = disk_put, to.context = s;
    snprintf(metadata, sizeof metadata, "{\"format\":\"pt\",\"step\":\"%" PRIu64 "\"}", step);
    text = disk_text(tensors, count, metadata, &head.text_size);
    if (!text || !b.workspace) {
        free(text);
        free(b.workspace);
        return engine_fail(error, ENGINE_E_ARGUMENT, "no memory, or these tensors cannot be a .safetensors file: two of one name, or a name that is no UTF-8");
    }
    head.kind = BITSNAP_SOURCE_SAFETENSORS;
    head.quantized = disk_is_quantized(r, tensors, count);
    head.text = text;
    head.source_size = 8 + head.text_size;
    for (i = 0; i < count; i++) head.source_size += tensors[i].count * bitsnap_width(tensors[i].dtype);
    if (bitsnap_file_write_head(&f, &b, &to, &head, NULL)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%s", f.error.message);
    else if (!write_pieces(&f, r, tensors, count, error) && bitsnap_file_write_end(&f)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%s", f.error.message);
    bitsnap_file_write_close(&f);
    free(text);
    free(b.workspace);
    return error->status;
}

int disk_open_sink(disk_sink *s, const disk_writer *w, const char *path, engine_error *error)
{
    memset(s, 0, sizeof *s);
    s->w = w, s->start = seconds();
    s->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    return s->fd < 0 && engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
}

engine_status disk_close_sink(disk_sink *s, const char *temporary, const char *path, const char *directory, uint64_t step, engine_error *error)
{
    if (error->status && s->given_up) (void)engine_fail(error, ENGINE_E_BUSY, "step %" PRIu64 " is given up", step);
    else if (error->status && s->error) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, strerror(s->error));
    else if (!error->status) (void)settle(s->fd, temporary, path, directory, error);
    close(s->fd);
    if (error->status) unlink(temporary);
    return error->status;
}

engine_status disk_write(const disk_writer *w, disk_manifest *m, engine_reader *r, uint64_t step, engine_error *error)
{
    char path[DISK_PATH], temporary[DISK_PATH];
    disk_manifest before = *m;
    unsigned i, old;
    disk_sink s;
    if (path_of(path, w->directory, w->name, FILE_END, step, error) || path_of(temporary, w->directory, w->name, ".tmp", 0, error) || disk_open_sink(&s, w, temporary, error))
        return error->status;
    (void)write_file(&s, r, step, error);
    if (disk_close_sink(&s, temporary, path, w->directory, step, error)) return error->status;
    /* of a trainer that went back later steps are of a run that is no more: they stay, but are not listed */
    while (m->count && m->entries[m->count - 1].step >= step) m->count--;
    old = m->count + 1 > w->keep ? m->count + 1 - w->keep : 0;
    memmove(m->entries, m->entries + old, (m->count - old) * sizeof *m->entries);
    m->count -= old;
    m->entries[m->count].step = step;
    m->entries[m->count].ranks = engine_reader_ranks(r);
    m->entries[m->count++].size = s.written;
    if (write_manifest(w, m, error)) {
        *m = before;
        return error->status;
    }
    for (i = 0; i < before.count; i++) {
        const uint64_t x = before.entries[i].step;
        if (i < old && x < step && !path_of(path, w->directory, w->name, FILE_END, x, error)) unlink(path);
    }
    return engine_good(error);
}
