/* engine_disk.c - snapshots on disk: .bsnap files, and a manifest that lists them. MIT licence, see bitsnap.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine_disk.h"

#include "../file/bitsnap_file.h"

#include <dirent.h>
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

#define FILE_END "-%010" PRIu64 "-%08x.bsnap"

static engine_status file_path(char path[DISK_PATH], const char *directory, const char *name, const disk_entry *e, engine_error *error)
{
    if (snprintf(path, DISK_PATH, "%s/%s" FILE_END, directory, name, e->step, (unsigned)(e->attempt.x[0] >> 32)) < DISK_PATH) return ENGINE_OK;
    return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the directory is too long");
}

/* ================================================================================= IDENTITY */

int engine_same_id(const engine_id *a, const engine_id *b) { return a->x[0] == b->x[0] && a->x[1] == b->x[1]; }

const char *engine_id_text(char text[ID_TEXT], const engine_id *id)
{
    snprintf(text, ID_TEXT, "%016" PRIx64 "%016" PRIx64, id->x[0], id->x[1]);
    return text;
}

int engine_parse_id(engine_id *id, const char *text)
{
    unsigned i;
    id->x[0] = id->x[1] = 0;
    for (i = 0; i < 32; i++) {
        const char c = text[i];
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'))) return 1;
        id->x[i / 16] = id->x[i / 16] << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    return 0;
}

int engine_lineage_place(const engine_lineage *l, const engine_id *attempt)
{
    uint64_t i;
    for (i = 0; i < l->count; i++)
        if (engine_same_id(&l->links[i].attempt, attempt)) return (int)i;
    return -1;
}

int engine_lineage_alive(const engine_lineage *l, const engine_id *attempt, uint64_t step)
{
    const int i = engine_lineage_place(l, attempt);
    return i >= 0 && step < l->links[i].end ? i : -1;
}

int engine_lineage_order(const engine_lineage *a, const engine_lineage *b)
{
    if (!engine_same_id(&a->run, &b->run)) return UNRELATED;
    if (engine_same_id(&a->links[0].attempt, &b->links[0].attempt)) return EQUAL;
    if (engine_lineage_place(a, &b->links[0].attempt) >= 0) return NEWER;
    if (engine_lineage_place(b, &a->links[0].attempt) >= 0) return OLDER;
    if (a->count == LINEAGE && a->generation >= b->generation + LINEAGE) return NEWER;
    if (b->count == LINEAGE && b->generation >= a->generation + LINEAGE) return OLDER;
    return UNRELATED;
}

void engine_lineage_child(engine_lineage *child, const engine_lineage *parent, const engine_id *attempt, uint64_t end)
{
    engine_lineage x = *parent;
    uint64_t i;
    if (x.count == LINEAGE) x.count--;
    memmove(x.links + 1, x.links, (size_t)x.count * sizeof *x.links);
    for (i = 1; i <= x.count; i++)
        if (x.links[i].end > end) x.links[i].end = end;
    x.links[0].attempt = *attempt, x.links[0].end = UINT64_MAX;
    x.count++, x.generation++;
    *child = x;
}

int engine_lineage_good(const engine_lineage *l)
{
    uint64_t i;
    if (!l->count || l->count > LINEAGE || l->links[0].end != UINT64_MAX || l->generation + 1 < l->count) return 0;
    for (i = 2; i < l->count; i++)
        if (l->links[i].end > l->links[i - 1].end) return 0;
    return 1;
}

engine_status disk_may_write(const engine_lineage *mine, const engine_lineage *theirs, const char *path, engine_error *error)
{
    const int order = engine_lineage_order(mine, theirs);
    char a[ID_TEXT], b[ID_TEXT];
    if (order == EQUAL || order == NEWER) return engine_good(error);
    if (!engine_same_id(&mine->run, &theirs->run))
        return engine_fail(error, ENGINE_E_FENCED, "%.180s: belongs to run %s; this is run %s, which needs a name or a directory of its own", path,
                           engine_id_text(a, &theirs->run), engine_id_text(b, &mine->run));
    return engine_fail(error, ENGINE_E_FENCED, "%.180s: attempt %s of the run has it, which %s attempt %s; end the one that is not wanted", path,
                       engine_id_text(a, &theirs->links[0].attempt), order == OLDER ? "is later than" : "does not go on from, nor the reverse,",
                       engine_id_text(b, &mine->links[0].attempt));
}

/* ================================================================================= MANIFEST */

#define MANIFEST_START "bitsnap engine 2\n"

int disk_is_there(const char *path, uint64_t size)
{
    struct stat st;
    return stat(path, &st) ? errno != ENOENT : (uint64_t)st.st_size == size;
}

engine_status disk_fail(const struct bitsnap_file *f, const char *path, const char *name, engine_error *error)
{
    const int unread = f->error.status == BITSNAP_E_SOURCE;
    const char *wrong = unread ? strerror(errno) : f->error.message;
    return engine_fail(error, unread || f->error.status == BITSNAP_E_WORKSPACE ? ENGINE_E_SYSTEM : ENGINE_E_DAMAGED, "%.100s: %.60s%s%s%s", path,
                       name, *name ? ": " : "", unread ? "cannot be read: " : "", wrong);
}

enum { DIGITS = 18 };
#define NO_END UINT64_C(999999999999999999) /* UINT64_MAX as text */

/* Parses a decimal number below 10^18 that ends with `end`. Returns null if it finds something else. */
static const char *parse_number(const char *p, const char *stop, char end, uint64_t *number)
{
    const char *start = p;
    for (*number = 0; p < stop && *p >= '0' && *p <= '9' && p - start < DIGITS; p++) *number = 10 * *number + (uint64_t)(*p - '0');
    return p > start && p < stop && *p == end ? p + 1 : NULL;
}

/* Parses an id that ends with `end`. */
static const char *parse_id(const char *p, const char *stop, char end, engine_id *id)
{
    return stop - p > 32 && !engine_parse_id(id, p) && p[32] == end ? p + 33 : NULL;
}

static const char *skip(const char *p, const char *stop, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(stop - p) > n && !memcmp(p, word, n) ? p + n : NULL;
}

/* Parses the lines of the run and its attempts, up to the first file. */
static const char *parse_lineage(engine_lineage *l, const char *p, const char *stop)
{
    const char *next;
    if (!(p = skip(p, stop, "run ")) || !(p = parse_id(p, stop, ' ', &l->run)) || !(p = parse_number(p, stop, '\n', &l->generation))) return NULL;
    while ((next = skip(p, stop, "attempt ")) != NULL) {
        engine_link *x = &l->links[l->count];
        if (l->count == LINEAGE || !(p = parse_id(next, stop, ' ', &x->attempt)) || !(p = parse_number(p, stop, '\n', &x->end))) return NULL;
        if (x->end == NO_END) x->end = UINT64_MAX;
        l->count++;
    }
    return engine_lineage_good(l) ? p : NULL;
}

const char *disk_parse(disk_manifest *m, const char *text, size_t size)
{
    const size_t start = strlen(MANIFEST_START), last = strlen("check 0123456789abcdef\n");
    const char *p, *stop;
    char check[32];
    memset(m, 0, sizeof *m);
    if (size < start + last || memcmp(text, MANIFEST_START, start)) return "not a manifest of bitsnap's engine, or of another version";
    stop = text + size - last;
    snprintf(check, sizeof check, "check %016" PRIx64 "\n", bitsnap_hash(text, size - last));
    if (memcmp(stop, check, last)) return "its check does not match";
    p = parse_lineage(&m->line, text + start, stop);
    if (!p) return "it does not say of which run and attempt it is";
    while (p < stop) {
        disk_entry *e = &m->entries[m->count];
        if (m->count == DISK_ENTRIES) return "too many files";
        if (!(p = parse_number(p, stop, ' ', &e->step)) || !(p = parse_number(p, stop, ' ', &e->size)) ||
            !(p = parse_number(p, stop, ' ', &e->ranks)) || !(p = parse_id(p, stop, ' ', &e->attempt)))
            return "a line without step, size, ranks and attempt";
        if (engine_lineage_alive(&m->line, &e->attempt, e->step) < 0) return "a step that is dead";
        if (m->count && (e->step < e[-1].step || (e->step == e[-1].step && engine_same_id(&e->attempt, &e[-1].attempt))))
            return "steps that do not ascend";
        p = (const char *)memchr(p, '\n', (size_t)(stop - p)); /* skips the file's name, which step and attempt already give */
        if (!p) return "a line that does not end";
        p++, m->count++;
    }
    return NULL;
}

/* Reads and parses a manifest. ENGINE_E_NONE: the file does not exist. */
static engine_status read_text(disk_manifest *m, const char *path, engine_error *error)
{
    char text[DISK_ENTRIES * 512];
    const char *wrong;
    size_t size;
    FILE *f = fopen(path, "rb");
    memset(m, 0, sizeof *m);
    if (!f) return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    size = fread(text, 1, sizeof text, f);
    if (ferror(f)) {
        (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: cannot be read: %s", path, strerror(errno));
        fclose(f);
        return error->status;
    }
    fclose(f);
    wrong = size == sizeof text ? "it is too long" : disk_parse(m, text, size);
    return wrong ? engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", path, wrong) : engine_good(error);
}

engine_status disk_read_manifest(disk_manifest *m, const char *directory, const char *name, engine_error *error)
{
    char path[DISK_PATH];
    unsigned i, n, files;
    engine_error damage;
    memset(m, 0, sizeof *m);
    if (disk_other_form && disk_other_form->list(m, directory, name, error) != ENGINE_E_NONE) return error->status;
    if (path_of(path, directory, name, ".manifest", 0, error)) return error->status;
    if (read_text(m, path, error) == ENGINE_E_SYSTEM) return error->status;
    if (error->status) {
        damage = *error;
        (void)disk_list_files(m, directory, name, NULL, &files, error); /* their metadata is enough */
        if (error->status == ENGINE_E_NONE) *error = damage;
        return error->status;
    }
    for (i = n = 0; i < m->count; i++)
        if (!file_path(path, directory, name, &m->entries[i], error) && disk_is_there(path, m->entries[i].size)) m->entries[n++] = m->entries[i];
    m->count = n;
    return engine_good(error);
}

/* Renames a complete file. File and new name are on disk when it returns. */
static engine_status settle(int fd, const char *temporary, const char *path, const char *directory, engine_error *error)
{
    int d = -1;
    if (fsync(fd) || rename(temporary, path)) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    d = open(directory, O_RDONLY | O_CLOEXEC);
    if (d >= 0) (void)fsync(d), (void)close(d); /* file systems that refuse this do not need it */
    return ENGINE_OK;
}

/* `by`: the writing attempt, whose id is in the name of the temporary file. */
static engine_status write_manifest(const char *directory, const char *name, const char *end, const disk_manifest *m, const engine_id *by,
                                    engine_error *error)
{
    char path[DISK_PATH], temporary[DISK_PATH], text[DISK_ENTRIES * 512], id[ID_TEXT];
    size_t size = (size_t)snprintf(text, sizeof text, MANIFEST_START "run %s %" PRIu64 "\n", engine_id_text(id, &m->line.run), m->line.generation);
    unsigned i;
    int fd;
    if (path_of(path, directory, name, end, 0, error)) return error->status;
    if (snprintf(temporary, sizeof temporary, "%s/%s-%08x.tmp", directory, name, (unsigned)(by->x[0] >> 32)) >= DISK_PATH)
        return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the directory is too long");
    for (i = 0; i < m->line.count; i++)
        size += (size_t)snprintf(text + size, 80, "attempt %s %" PRIu64 "\n", engine_id_text(id, &m->line.links[i].attempt),
                                 m->line.links[i].end < NO_END ? m->line.links[i].end : NO_END);
    for (i = 0; i < m->count; i++)
        size += (size_t)snprintf(text + size, 450, "%" PRIu64 " %" PRIu64 " %" PRIu64 " %s %.200s" FILE_END "\n", m->entries[i].step,
                                 m->entries[i].size, m->entries[i].ranks, engine_id_text(id, &m->entries[i].attempt), name, m->entries[i].step,
                                 (unsigned)(m->entries[i].attempt.x[0] >> 32));
    size += (size_t)snprintf(text + size, 32, "check %016" PRIx64 "\n", bitsnap_hash(text, size));
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, strerror(errno));
    if (write(fd, text, size) != (ssize_t)size)
        (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, errno ? strerror(errno) : "cut short");
    else if (!settle(fd, temporary, path, directory, error)) (void)engine_good(error);
    close(fd);
    if (error->status) unlink(temporary);
    return error->status;
}

/* ================================================================================= TYPES */

/* Returns whether a text is a shape of `count` elements: [2,3] for 6. Spaces and leading zeros are refused, so a shape has one
 * text. */
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
        p = next ? next : last; /* null: not a number, or followed by something else */
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

/* Splits a text of disk_type into type and shape. */
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
            if (!n) errno = ENODATA; /* the file was truncated */
            return 1;
        }
        p += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

enum { SOME = 1 << 18 }; /* elements stored or hashed at a time */

/* Adds elements to an id. Tensors with equal elements get equal ids. */
static void add_to_id(uint64_t *id, const void *bytes, size_t size)
{
    const uint64_t x[2] = { *id, bitsnap_hash(bytes, size) };
    *id = bitsnap_hash(x, sizeof x);
}

/* Reads the elements, SOME at a time, and stores them unless only the id is wanted. */
static engine_status read_parts(bitsnap_file *f, const char *path, const bitsnap_tensor *t, const engine_tensor *x, int keep, uint64_t *id,
                                engine_error *error)
{
    const size_t width = bitsnap_width(x->dtype);
    void *some = malloc(SOME * width);
    uint64_t first, n;
    if (!some) return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    (void)engine_good(error);
    for (first = 0; first < x->count && !error->status; first += n) {
        n = x->count - first < SOME ? x->count - first : SOME;
        if (bitsnap_file_read(f, t, some, first, n)) (void)disk_fail(f, path, x->name, error);
        else if (keep && x->store(x->data, first, n, some))
            (void)engine_fail(error, ENGINE_E_SYSTEM, "%.100s: its elements cannot be stored", x->name);
        else if (id) add_to_id(id, some, (size_t)n * width);
    }
    free(some);
    return error->status;
}

/* Finds a tensor in a file, with the same type and shape. ENGINE_E_NONE: the file has no tensor of that name. */
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
                           (int)(t->dtype.size < 20 ? t->dtype.size : 20), t->dtype.at, (int)(t->shape.size < 40 ? t->shape.size : 40), t->shape.at,
                           text);
    return engine_good(error);
}

/* Restores a tensor from a file. Sets *id to the id of its elements unless `id` is null. ENGINE_E_NONE as in find_tensor. */
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
        return engine_fail(error, ENGINE_E_MISMATCH, "%.150s: has %llu tensors, not %llu", path, (unsigned long long)all->count,
                           (unsigned long long)count);
    for (i = 0; i < count; i++)
        if (read_tensor_of(f, path, &tensors[i], NULL, error)) {
            if (error->status == ENGINE_E_NONE) error->status = ENGINE_E_MISMATCH;
            return error->status;
        }
    return engine_good(error);
}

typedef struct open_file {
    int fd;         /* -1: none */
    void *other;    /* from disk_other_form, or null */
    bitsnap_file f, *file;
} open_file;

static void close_file(open_file *x)
{
    if (x->other) disk_other_form->close(x->other);
    else if (x->fd >= 0) bitsnap_file_close(&x->f), close(x->fd);
}

/* Checks that the metadata of a file names this snapshot of this run. `line`: the lineage in the manifest that lists it. */
static engine_status check_identity(bitsnap_file *f, const char *path, const engine_lineage *line, const disk_entry *e, engine_error *error)
{
    const bitsnap_safetensors *all;
    engine_lineage says;
    disk_entry x;
    uint64_t rank;
    if (bitsnap_file_tensors(f, &all)) return disk_fail(f, path, "", error);
    if (disk_parse_metadata(all->metadata.at, all->metadata.size, &says, &x, &rank))
        return engine_fail(error, ENGINE_E_DAMAGED,
                           "%.180s: does not say of which run and step it is: it is of an earlier version, or of another program", path);
    if (!engine_same_id(&says.run, &line->run) || !engine_same_id(&says.links[0].attempt, &e->attempt) || x.step != e->step || x.ranks != e->ranks)
        return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: is of another run, attempt or step than is listed", path);
    return engine_good(error);
}

/* Opens a listed file. `path` receives its name for messages. */
static engine_status open_listed(open_file *x, const char *directory, const char *name, const engine_lineage *line, const disk_entry *e,
                                 char path[DISK_PATH], engine_error *error)
{
    struct stat st;
    bitsnap_source source;
    memset(&source, 0, sizeof source);
    x->other = NULL, x->file = &x->f, x->fd = -1;
    if (file_path(path, directory, name, e, error)) return error->status;
    if (disk_other_form && disk_other_form->open(&x->other, &x->file, directory, name, e, error) != ENGINE_E_NONE) {
        snprintf(path, DISK_PATH, "step %" PRIu64 " of %.150s", e->step, name);
        return error->status;
    }
    x->fd = open(path, O_RDONLY | O_CLOEXEC);
    if (x->fd < 0) return engine_fail(error, errno == ENOENT ? ENGINE_E_DAMAGED : ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
    source.read = disk_read_at, source.context = &x->fd, source.size = e->size;
    if (bitsnap_file_open(&x->f, &source, NULL, 0, NULL)) (void)disk_fail(&x->f, path, "", error);
    else if (fstat(x->fd, &st) || (uint64_t)st.st_size != e->size)
        (void)engine_fail(error, ENGINE_E_DAMAGED, "%.180s: has not the size that the manifest says", path);
    else if (!check_identity(&x->f, path, line, e, error)) return engine_good(error);
    close_file(x);
    return error->status;
}

/* ---- files without their manifest ---- */

typedef struct scan {
    const char *directory, *name;
    unsigned files; /* number of files of that name */
    void (*each)(struct scan *s, const char *path, const engine_lineage *line, const disk_entry *e, uint64_t rank);
    disk_manifest *m;
    const engine_id *run;
    const disk_manifest *listed;
    uint64_t rank;
    disk_entry *found;
    engine_lineage *lines; /* one for each entry of `found` */
    size_t count;
    engine_error *error;
} scan;

/* Passes the metadata of a file to s->each. A file without valid metadata is only counted. */
static void scan_file(scan *s, const char *file)
{
    char path[DISK_PATH], expected[DISK_PATH];
    bitsnap_source source;
    bitsnap_file f;
    const bitsnap_safetensors *all;
    engine_lineage line;
    disk_entry e;
    uint64_t rank;
    struct stat st;
    int fd;
    if (snprintf(path, sizeof path, "%s/%s", s->directory, file) >= DISK_PATH) return;
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode)) {
        if (fd < 0 && errno != ENOENT && errno != ELOOP) (void)engine_fail(s->error, ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
        if (fd >= 0) close(fd);
        return;
    }
    s->files++;
    memset(&source, 0, sizeof source);
    source.read = disk_read_at, source.context = &fd, source.size = (uint64_t)st.st_size;
    if (!bitsnap_file_open(&f, &source, NULL, 0, NULL) && !bitsnap_file_tensors(&f, &all) &&
        !disk_parse_metadata(all->metadata.at, all->metadata.size, &line, &e, &rank)) {
        e.size = (uint64_t)st.st_size;
        if (!file_path(expected, s->directory, s->name, &e, s->error) && !strcmp(path, expected)) s->each(s, path, &line, &e, rank);
    }
    bitsnap_file_close(&f);
    close(fd);
}

/* Calls s->each for files NAME-STEP-ATTEMPT.bsnap of s->directory. */
static engine_status scan_files(scan *s, engine_error *error)
{
    const size_t n = strlen(s->name), end = strlen(".bsnap");
    struct dirent *x;
    DIR *d = opendir(s->directory);
    s->error = error;
    (void)engine_good(error);
    if (!d) return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", s->directory, strerror(errno));
    while (!error->status && (x = readdir(d)) != NULL) {
        const size_t size = strlen(x->d_name);
        if (size > n + 1 + end && !strncmp(x->d_name, s->name, n) && x->d_name[n] == '-' && x->d_name[n + 1] >= '0' && x->d_name[n + 1] <= '9' &&
            !strcmp(x->d_name + size - end, ".bsnap"))
            scan_file(s, x->d_name);
    }
    closedir(d);
    return error->status;
}

static void collect(scan *s, const char *path, const engine_lineage *line, const disk_entry *e, uint64_t rank)
{
    disk_entry *found;
    engine_lineage *lines;
    (void)path, (void)rank;
    if (s->run && !engine_same_id(s->run, &line->run)) return;
    found = (disk_entry *)realloc(s->found, (s->count + 1) * sizeof *found);
    if (found) s->found = found;
    lines = (engine_lineage *)realloc(s->lines, (s->count + 1) * sizeof *lines);
    if (lines) s->lines = lines;
    if (!found || !lines) {
        (void)engine_fail(s->error, ENGINE_E_SYSTEM, "out of memory");
        return;
    }
    s->lines[s->count] = *line, s->found[s->count++] = *e;
}

static int by_step(const void *a, const void *b)
{
    const disk_entry *x = (const disk_entry *)a, *y = (const disk_entry *)b;
    return (x->step > y->step) - (x->step < y->step);
}

/* Sets *newest to the newest of some lineages. ENGINE_E_SCATTERED: two of them are unrelated. */
static engine_status newest_line(engine_lineage *newest, const engine_lineage *lines, size_t count, const char *what, engine_error *error)
{
    char a[ID_TEXT], b[ID_TEXT];
    size_t i;
    *newest = lines[0];
    for (i = 1; i < count; i++) {
        const int order = engine_lineage_order(&lines[i], newest), runs = !engine_same_id(&lines[i].run, &newest->run);
        if (order == UNRELATED)
            return engine_fail(error, ENGINE_E_SCATTERED,
                               "%.180s: there are files of %s %s and %s, of which none goes on from the other; move those away that are not wanted",
                               what, runs ? "runs" : "attempts", engine_id_text(a, runs ? &newest->run : &newest->links[0].attempt),
                               engine_id_text(b, runs ? &lines[i].run : &lines[i].links[0].attempt));
        if (order == NEWER) *newest = lines[i];
    }
    return engine_good(error);
}

engine_status disk_list_files(disk_manifest *m, const char *directory, const char *name, const engine_id *run, unsigned *files, engine_error *error)
{
    scan s;
    char what[DISK_PATH];
    size_t i, n = 0;
    memset(&s, 0, sizeof s);
    memset(m, 0, sizeof *m);
    s.directory = directory, s.name = name, s.each = collect, s.run = run;
    snprintf(what, sizeof what, "%.150s/%.80s", directory, name);
    (void)scan_files(&s, error);
    *files = s.files;
    if (!error->status && !s.files) (void)engine_fail(error, ENGINE_E_NONE, "%.180s: there is no file", what);
    else if (!error->status && !s.count)
        (void)engine_fail(
            error, ENGINE_E_DAMAGED,
            "%.180s: %u files of this name, none of which says of which run it is: they are damaged or of an earlier version; move them away", what,
            s.files);
    else if (!error->status && !newest_line(&m->line, s.lines, s.count, what, error)) {
        for (i = 0; i < s.count; i++)
            if (engine_lineage_alive(&m->line, &s.found[i].attempt, s.found[i].step) >= 0) s.found[n++] = s.found[i];
        /* for equal steps, puts the file of the older attempt first */
        qsort(s.found, n, sizeof *s.found, by_step);
        for (i = 1; i < n; i++)
            if (s.found[i].step == s.found[i - 1].step &&
                engine_lineage_place(&m->line, &s.found[i].attempt) > engine_lineage_place(&m->line, &s.found[i - 1].attempt)) {
                const disk_entry x = s.found[i];
                s.found[i] = s.found[i - 1], s.found[i - 1] = x;
                i = 0;
            }
        m->count = (unsigned)(n < DISK_ENTRIES ? n : DISK_ENTRIES);
        if (m->count) memcpy(m->entries, s.found + n - m->count, m->count * sizeof *m->entries);
    }
    free(s.found);
    free(s.lines);
    return error->status;
}

engine_status disk_mend(const char *directory, const char *name, const engine_id *run, disk_manifest *m, int *made, engine_error *error)
{
    char path[DISK_PATH];
    engine_error damage;
    unsigned files;
    *made = 0;
    if (path_of(path, directory, name, ".manifest", 0, error)) return error->status;
    if (!read_text(m, path, error) || error->status == ENGINE_E_SYSTEM) return error->status;
    damage = *error;
    if (disk_list_files(m, directory, name, run, &files, error)) {
        if (error->status == ENGINE_E_NONE) *error = damage;
        return error->status;
    }
    *made = !write_manifest(directory, name, ".manifest", m, &m->line.links[0].attempt, error);
    return error->status;
}

engine_status disk_put_aside(const char *directory, const char *name, const engine_lineage *line, char to[DISK_PATH], engine_error *error)
{
    char end[80], from[DISK_PATH], id[ID_TEXT];
    const char *kind = ".manifest";
    disk_manifest m;
    int damaged;
    memset(&m, 0, sizeof m);
    *to = 0;
    if (disk_other_form && disk_other_form->list(&m, directory, name, error) != ENGINE_E_NONE) kind = disk_other_form->end;
    else (void)disk_read_manifest(&m, directory, name, error);
    if (error->status == ENGINE_E_NONE) return engine_good(error);
    damaged = error->status == ENGINE_E_DAMAGED || error->status == ENGINE_E_SCATTERED; /* its run is unknown */
    if ((error->status && !damaged) || (!damaged && engine_same_id(&m.line.run, &line->run))) return error->status;
    snprintf(end, sizeof end, ".%s%s%s", damaged ? "before-" : "", engine_id_text(id, damaged ? &line->run : &m.line.run), kind);
    if (path_of(from, directory, name, kind, 0, error) || path_of(to, directory, name, end, 0, error)) return error->status;
    if (!damaged && !strcmp(kind, ".manifest"))
        (void)write_manifest(directory, name, end, &m, &line->links[0].attempt, error); /* written, not renamed: there may be
                                                                                           files but no manifest */
    else if (rename(from, to) && errno != ENOENT) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: cannot be renamed: %s", from, strerror(errno));
    else (void)engine_good(error);
    if (error->status || strcmp(kind, ".manifest")) return error->status;
    m.line = *line, m.count = 0; /* an empty list: the other run's files must not count as this run's */
    return write_manifest(directory, name, kind, &m, &line->links[0].attempt, error);
}

static const disk_entry *find_entry(const disk_manifest *m, const disk_entry *e)
{
    unsigned i;
    for (i = 0; i < m->count; i++)
        if (m->entries[i].step == e->step && m->entries[i].ranks == e->ranks && engine_same_id(&m->entries[i].attempt, &e->attempt))
            return &m->entries[i];
    return NULL;
}

/* Writes RUN.RANK, the name of a rank. */
static const char *name_of_rank(char name[256], const char *run, uint64_t rank)
{
    snprintf(name, 256, "%.230s.%" PRIu64, run, rank);
    return name;
}

engine_status disk_find_all(const char *directory, const char *run, const engine_lineage *line, uint64_t ranks, disk_entry *found,
                            engine_error *error)
{
    disk_manifest m, other;
    char name[256];
    unsigned i;
    if (disk_read_manifest(&m, directory, name_of_rank(name, run, 0), error)) return error->status;
    for (i = m.count; i-- > 0;) {
        uint64_t rank = 1;
        const disk_entry *e = &m.entries[i];
        (void)engine_good(error);
        if (e->ranks == ranks || engine_lineage_alive(line, &e->attempt, e->step) < 0) continue;
        while (rank < e->ranks && !disk_read_manifest(&other, directory, name_of_rank(name, run, rank), error) && find_entry(&other, e)) rank++;
        /* an older step must not win while this one is in doubt */
        if (error->status && error->status != ENGINE_E_NONE) return error->status;
        if (rank < e->ranks) continue;
        *found = *e;
        return engine_good(error);
    }
    return engine_fail(error, ENGINE_E_NONE, "%.150s: there is no step of %.50s of which all files are there", directory, run);
}

/* The source of a tensor: the file's rank plus 1, and the id of the elements. */
typedef struct origin {
    uint64_t file, id;
} origin;

/* Takes a tensor from the file of a rank, unless the caller asks for another rank's. If an earlier file had it, both must have
 * the same elements. */
static engine_status gather_tensor(bitsnap_file *f, const char *path, const char *run, uint64_t rank, const engine_tensor *x, origin *from,
                                   engine_error *error)
{
    bitsnap_tensor t;
    uint64_t id = 0;
    if (x->file && x->file != rank + 1) return engine_good(error);
    if (!from->file) (void)read_tensor_of(f, path, x, x->file ? NULL : &from->id, error);
    else if (!find_tensor(f, path, x, &t, error)) (void)read_parts(f, path, &t, x, 0, &id, error);
    if (error->status == ENGINE_E_NONE) return engine_good(error);
    if (!error->status && from->file && id != from->id)
        return engine_fail(error, ENGINE_E_MISMATCH,
                           "%.60s: the files of %.40s.%" PRIu64 " and %.40s.%" PRIu64 " have other elements of that name; say whose by "
                           "engine_tensor.file",
                           x->name, run, from->file - 1, run, rank);
    if (!from->file) from->file = rank + 1;
    return error->status;
}

engine_status disk_recover_all(const char *directory, const char *run, const disk_entry *wanted, const engine_tensor *tensors, size_t count,
                               engine_error *error)
{
    const uint64_t step = wanted->step, ranks = wanted->ranks;
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
        e = find_entry(&m, wanted);
        if (!e) (void)engine_fail(error, ENGINE_E_DAMAGED, "%.50s: step %" PRIu64 " is not listed any more", name, step);
        if (!e || open_listed(&x, directory, name, &m.line, e, path, error)) break;
        for (i = 0; i < count && !error->status; i++) (void)gather_tensor(x.file, path, run, rank, &tensors[i], &from[i], error);
        close_file(&x);
    }
    for (i = 0; i < count && !error->status; i++) {
        if (from[i].file) continue;
        if (!tensors[i].file) (void)engine_fail(error, ENGINE_E_MISMATCH, "%.100s: is in no file of step %" PRIu64, tensors[i].name, step);
        else
            (void)engine_fail(error, ENGINE_E_MISMATCH, "%.100s: is not in the file of rank %" PRIu64 " of %" PRIu64 ", step %" PRIu64,
                              tensors[i].name, tensors[i].file - 1, ranks, step);
    }
    free(from);
    return error->status;
}

engine_status disk_recover(const char *directory, const char *name, const disk_entry *wanted, const engine_tensor *tensors, size_t count,
                           engine_error *error)
{
    char path[DISK_PATH];
    const disk_entry *e;
    disk_manifest m;
    open_file x;
    if (disk_read_manifest(&m, directory, name, error)) return error->status;
    e = find_entry(&m, wanted);
    if (!e) return engine_fail(error, ENGINE_E_NONE, "%.150s: step %" PRIu64 " of %.50s is not listed any more", directory, wanted->step, name);
    if (open_listed(&x, directory, name, &m.line, e, path, error)) return error->status;
    (void)read_tensors(x.file, path, tensors, count, error);
    close_file(&x);
    return error->status;
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

void disk_metadata(char text[METADATA], const engine_lineage *line, uint64_t step, uint64_t rank, uint64_t ranks)
{
    char run[ID_TEXT], id[ID_TEXT];
    size_t n = (size_t)snprintf(text, METADATA,
                                "{\"format\":\"pt\",\"step\":\"%" PRIu64 "\",\"rank\":\"%" PRIu64 "\",\"ranks\":\"%" PRIu64
                                "\",\"run\":\"%s\",\"attempts\":\"%" PRIu64,
                                step, rank, ranks, engine_id_text(run, &line->run), line->generation);
    uint64_t i;
    for (i = 0; i < line->count; i++)
        n += (size_t)snprintf(text + n, METADATA - n, " %s %" PRIu64, engine_id_text(id, &line->links[i].attempt),
                              line->links[i].end < NO_END ? line->links[i].end : NO_END);
    snprintf(text + n, METADATA - n, "\"}");
}

/* Returns the value of a string in an object that disk_metadata wrote; null if the name is missing. */
static const char *find_string(const char *text, const char *stop, const char *name)
{
    char wanted[32];
    const size_t n = (size_t)snprintf(wanted, sizeof wanted, "\"%s\":\"", name);
    for (; (size_t)(stop - text) > n; text++)
        if (!memcmp(text, wanted, n)) return text + n;
    return NULL;
}

int disk_parse_metadata(const char *text, size_t size, engine_lineage *line, disk_entry *e, uint64_t *rank)
{
    const char *stop = text + size, *p, *next;
    memset(line, 0, sizeof *line);
    memset(e, 0, sizeof *e);
    if (!size || !(p = find_string(text, stop, "step")) || !parse_number(p, stop, '"', &e->step) || !(p = find_string(text, stop, "rank")) ||
        !parse_number(p, stop, '"', rank) || !(p = find_string(text, stop, "ranks")) || !parse_number(p, stop, '"', &e->ranks) || !e->ranks ||
        !(p = find_string(text, stop, "run")) || !parse_id(p, stop, '"', &line->run) || !(p = find_string(text, stop, "attempts")) ||
        !(p = parse_number(p, stop, ' ', &line->generation)))
        return 1;
    while (line->count < LINEAGE) {
        engine_link *x = &line->links[line->count++];
        if (!(p = parse_id(p, stop, ' ', &x->attempt))) return 1;
        next = parse_number(p, stop, ' ', &x->end);
        if (!next && !parse_number(p, stop, '"', &x->end)) return 1;
        if (x->end == NO_END) x->end = UINT64_MAX;
        if (!next) break;
        p = next;
    }
    e->attempt = line->links[0].attempt;
    return !engine_lineage_good(line);
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
            !bitsnap_read_info(&info, p.frame, p.frame_size) && info.bins)
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
            const bitsnap_status wrong =
                p.frame ? bitsnap_file_write_packed(f, p.frame, p.frame_size, p.count * bitsnap_width(tensors[i].dtype), NULL)
                : bitsnap_file_write_frame(f, tensors[i].dtype, p.count, NULL) || bitsnap_file_write_elements(f, p.elements, (size_t)p.count)
                    ? f->error.status
                    : bitsnap_file_write_frame_end(f);
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
    char *text, metadata[METADATA];
    memset(&b, 0, sizeof b);
    memset(&head, 0, sizeof head);
    b.level = BITSNAP_FAST;
    b.workspace = malloc(BITSNAP_WORKSPACE);
    b.workspace_size = BITSNAP_WORKSPACE;
    to.write = disk_put, to.context = s;
    disk_metadata(metadata, engine_reader_lineage(r), step, engine_reader_rank(r), engine_reader_ranks(r));
    text = disk_text(tensors, count, metadata, &head.text_size);
    if (!text || !b.workspace) {
        free(text);
        free(b.workspace);
        return engine_fail(error, ENGINE_E_ARGUMENT,
                           "no memory, or these tensors cannot be a .safetensors file: two of one name, or a name that is no UTF-8");
    }
    head.kind = BITSNAP_SOURCE_SAFETENSORS;
    head.quantized = disk_is_quantized(r, tensors, count);
    head.text = text;
    head.source_size = 8 + head.text_size;
    for (i = 0; i < count; i++) head.source_size += tensors[i].count * bitsnap_width(tensors[i].dtype);
    if (bitsnap_file_write_head(&f, &b, &to, &head, NULL)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%s", f.error.message);
    else if (!write_pieces(&f, r, tensors, count, error) && bitsnap_file_write_end(&f))
        (void)engine_fail(error, ENGINE_E_SYSTEM, "%s", f.error.message);
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

/* Removes a file of this run, rank and lineage that is not listed. Its step is dead, or its agent was killed before it listed
 * it. */
static void sweep_file(scan *s, const char *path, const engine_lineage *line, const disk_entry *e, uint64_t rank)
{
    if (rank == s->rank && engine_same_id(&line->run, &s->listed->line.run) && engine_lineage_place(&s->listed->line, &e->attempt) >= 0 &&
        !find_entry(s->listed, e))
        unlink(path);
}

/* Removes what earlier attempts have left: unlisted and temporary files. */
static void sweep(const disk_writer *w, const disk_manifest *m, uint64_t rank)
{
    char path[DISK_PATH];
    engine_error error;
    uint64_t i;
    scan s;
    memset(&s, 0, sizeof s);
    s.directory = w->directory, s.name = w->name, s.each = sweep_file, s.listed = m, s.rank = rank;
    (void)scan_files(&s, &error);
    for (i = 1; i < m->line.count; i++)
        if (snprintf(path, sizeof path, "%s/%s-%08x.tmp", w->directory, w->name, (unsigned)(m->line.links[i].attempt.x[0] >> 32)) < DISK_PATH)
            unlink(path);
}

/* Reads the manifest, and checks that this attempt may write. Drops entries that are dead in its lineage. */
static engine_status take_over(const disk_writer *w, const engine_lineage *line, disk_manifest *m, engine_error *error)
{
    char path[DISK_PATH];
    unsigned i, n;
    if (path_of(path, w->directory, w->name, ".manifest", 0, error)) return error->status;
    if (disk_read_manifest(m, w->directory, w->name, error) && error->status != ENGINE_E_NONE) return error->status;
    if (m->line.count && disk_may_write(line, &m->line, path, error)) return error->status;
    m->line = *line;
    for (i = n = 0; i < m->count; i++)
        if (engine_lineage_alive(line, &m->entries[i].attempt, m->entries[i].step) >= 0) m->entries[n++] = m->entries[i];
    m->count = n;
    return engine_good(error);
}

/* Lists a file. Drops the oldest entries above w->keep, except the step that all ranks have on disk. */
static void list_file(const disk_writer *w, disk_manifest *m, const disk_entry *made)
{
    unsigned i = 0;
    while (m->count && m->entries[m->count - 1].step == made->step && engine_same_id(&m->entries[m->count - 1].attempt, &made->attempt)) m->count--;
    while (m->count + 1 > w->keep && i < m->count) {
        const disk_entry *e = &m->entries[i];
        if (w->common.ranks && e->step == w->common.step && engine_same_id(&e->attempt, &w->common.attempt)) i++;
        else memmove(m->entries + i, m->entries + i + 1, (--m->count - i) * sizeof *m->entries);
    }
    m->entries[m->count++] = *made;
}

engine_status disk_is_late(const engine_reader *r, engine_error *error)
{
    if (!engine_reader_is_late(r)) return ENGINE_OK;
    return engine_fail(error, ENGINE_E_SYSTEM, "the trainer has come back, and looks at the files that are listed");
}

engine_status disk_write(const disk_writer *w, disk_manifest *m, engine_reader *r, uint64_t step, engine_error *error)
{
    const engine_lineage *line = engine_reader_lineage(r);
    char path[DISK_PATH], temporary[DISK_PATH];
    disk_manifest before, listed;
    disk_entry made;
    engine_error removed;
    unsigned i;
    disk_sink s;
    if (take_over(w, line, &before, error)) return error->status;
    made.step = step, made.ranks = engine_reader_ranks(r), made.attempt = line->links[0].attempt;
    if (step > NO_END) return engine_fail(error, ENGINE_E_ARGUMENT, "files have no steps of more than %d digits", DIGITS);
    if (file_path(path, w->directory, w->name, &made, error)) return error->status;
    if (snprintf(temporary, sizeof temporary, "%s/%s-%08x.tmp", w->directory, w->name, (unsigned)(made.attempt.x[0] >> 32)) >= DISK_PATH)
        return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the directory is too long");
    if (disk_open_sink(&s, w, temporary, error)) return error->status;
    (void)write_file(&s, r, step, error);
    if (disk_close_sink(&s, temporary, path, w->directory, step, error)) return error->status;
    made.size = s.written;
    /* Checks again before files are removed: while this one was written, another attempt or a recovering trainer may have
     * come. */
    if (!take_over(w, line, &listed, error) && !disk_is_late(r, error)) {
        list_file(w, &listed, &made);
        (void)write_manifest(w->directory, w->name, ".manifest", &listed, &line->links[0].attempt, error);
    }
    if (error->status) {
        if (!find_entry(&before, &made)) unlink(path); /* it may have replaced a listed file of this name */
        return error->status;
    }
    for (i = 0; i < before.count; i++)
        if (!find_entry(&listed, &before.entries[i]) && !file_path(path, w->directory, w->name, &before.entries[i], &removed)) unlink(path);
    if (!engine_same_id(&m->line.links[0].attempt, &made.attempt)) sweep(w, &listed, engine_reader_rank(r));
    *m = listed;
    return engine_good(error);
}
