/* extract.c - the command extract: tensors of a file or folder, or parts of them, without reading the rest.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Files are read at the places that ../../file/bitsnap_file.h asks for; what is taken goes through a window. */
#include "../system/posix.h"

#include "commands.h"
#include "../console/progress.h"
#include "../files/foreign.h"
#include "../files/index.h"
#include "../tensors/lossy.h"
#include "../tensors/tally.h"

#include <errno.h>
#include <fnmatch.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 1 << 22, WIDE = 1 << 16, PAGE = 4096, NPY_DIMENSIONS = 64 };

/* A file that tensors are taken from, or its base, which comes before it. */
typedef struct source {
    input in;
    bitsnap_file file;
    base beside;          /* of a delta: the base found beside it, if none was given */
    int with_base;
    uint64_t read;        /* bytes read so far */
    int error;            /* errno of a failed read; 0: it reached the end of the file */
    uint64_t page;        /* of a .safetensors file: number of the page in `bytes`, from 1; 0: none */
    uint8_t bytes[PAGE];
} source;

/* A dimension, and the part of it to take. */
typedef struct extent {
    uint64_t size, begin, end;
} extent;

typedef struct pick {
    source *from;
    size_t glob;          /* number of the NAME that it matches as a glob; 0: it was named exactly */
    char *text;           /* name, dtype and the shape of the part, each followed by a 0 */
    tensor whole, part;   /* in the file; in the output */
    extent *extents;
    size_t dimensions;
} pick;

/* The file of a tensor by the index of a folder's model. */
typedef struct place {
    char *name, *file, *packed; /* one allocation; packed: the file with .bsnap appended */
    int found;
} place;

enum { BY_GLOB = 1, BY_NAME }; /* how a NAME was found; 0: not yet */

typedef struct job {
    const options *o;
    codec *codec;
    walk folder;
    char *found;          /* how each NAME was found */
    place *places;        /* by the index, sorted by name */
    size_t place_count, place_capacity;
    source *sources;
    size_t source_count;
    pick *picks;
    size_t pick_count, pick_capacity;
    output out;
    uint8_t *window, *wide; /* WINDOW bytes; WIDE bytes of elements as f32 */
    size_t held;          /* bytes in the window */
    progress progress;
    lossy lossy;          /* the quantized frames of the tensors taken */
    fault *f;
} job;

/* ================================================================================= FILES */

static pthread_mutex_t counting = PTHREAD_MUTEX_INITIALIZER; /* frames are decoded by several threads */

static int get(source *s, uint64_t offset, void *to, size_t size)
{
    const int failed = input_get(&s->in, offset, to, size);
    (void)pthread_mutex_lock(&counting);
    if (failed) s->error = errno;
    else s->read += size;
    (void)pthread_mutex_unlock(&counting);
    return failed;
}

/* Reads small parts of a .safetensors file as whole pages, so that columns are not read element by element. */
static int get_page(void *context, uint64_t offset, void *to, size_t size)
{
    source *s = (source *)context;
    const uint64_t page = offset / PAGE, left = s->in.size - page * PAGE;
    if (s->file.kind != BITSNAP_SOURCE_PLAIN || size > PAGE - offset % PAGE) return get(s, offset, to, size);
    if (s->page != page + 1) {
        s->page = 0;
        if (get(s, page * PAGE, s->bytes, left < PAGE ? (size_t)left : (size_t)PAGE)) return 1;
        s->page = page + 1;
    }
    memcpy(to, s->bytes + offset % PAGE, size);
    return 0;
}

/* Sets the fault to the error of the last call on the file. */
static int fail(source *s, fault *f)
{
    const bitsnap_file_error *e = &s->file.error;
    if (e->depth && s->beside.reader) {
        const base *b = &s->beside;
        unsigned number;
        for (number = e->base; number; number--) b = b->next;
        return b->file.failed(&b->file, f);
    }
    s -= e->depth;
    (void)fault_in(f, s->in.name);
    if (e->status == BITSNAP_E_WORKSPACE) return fault_memory(f);
    if (input_check_unchanged(&s->in, f)) return 1;
    errno = s->error;
    if (e->status == BITSNAP_E_MAGIC)
        return foreign_refuse(&s->in, WANT_SAFETENSORS, f) || fault_set(f, "is neither a .safetensors file nor a .bsnap file");
    if (e->status == BITSNAP_E_SOURCE && errno) return fault_errno(f, "cannot be read at byte %llu", (unsigned long long)e->offset);
    if (e->status == BITSNAP_E_BASE && !s->with_base) {
        if (!*s->file.bases->name) return fault_set(f, "this delta needs its base: give it with -b");
        return fault_set(f, "this delta needs its base: give it with -b; it was called %s, and beside this file it would be found, packed or not", s->file.bases->name);
    }
    (void)container_failed(e, f);
    return e->status == BITSNAP_E_BASE && s->beside.reader && !s->beside.next ? fault_add(f, ", which was called ") && fault_add(f, s->file.bases->name) : 1;
}

/* Opens the file of a source. The base of a delta is the source before it, or was found beside it. */
static int open_file(source *s, const bitsnap_source *from, fault *f)
{
    const base *b;
    bitsnap_file **of;
    size_t count = 0;
    bitsnap_status status;
    for (b = s->beside.reader ? &s->beside : NULL; b; b = b->next) count++;
    of = (bitsnap_file **)malloc((count + 1) * sizeof(bitsnap_file *));
    if (!of) return fault_memory(f);
    if (!count && s->with_base) of[count++] = &s[-1].file;
    else for (b = &s->beside, count = 0; b && b->reader; b = b->next) of[count++] = b->file.file;
    status = bitsnap_file_open(&s->file, from, of, count, NULL);
    free((void *)of);
    return status && fail(s, f);
}

/* Opens the next source. */
static int open_source(job *j, const char *path)
{
    source *s = &j->sources[j->source_count++];
    const bitsnap *b = &j->codec->b;
    bitsnap_source from = { 0 };
    int delta, found = 0;
    base_clear(&s->beside);
    if (input_open(&s->in, path, j->f)) return fault_in(j->f, path);
    if (!s->in.regular || s->in.fd == STDIN_FILENO) return fault_set(j->f, "is a pipe or standard input, but extract needs random access; save it to a file first") && fault_in(j->f, path);
    if (input_note(&s->in, path, &j->codec->used, j->f) || input_fill(&s->in, 10, j->f)) return fault_in(j->f, path);
    delta = file_is_delta(input_bytes(&s->in), input_available(&s->in));
    from.read = get_page;
    from.context = s;
    from.size = s->in.size;
    s->with_base = delta && s > j->sources && !j->folder.count;
    if (delta && !j->o->base_count && find_beside(&s->beside, j->codec, &s->in, path, j->o->max_output, &found, j->f)) return fault_in(j->f, path);
    s->with_base |= found;
    if (open_file(s, &from, j->f)) return 1;
    s->file.b.run = b->run;
    s->file.b.run_context = b->run_context;
    s->file.b.workers = b->workers;
    if (s->file.kind == BITSNAP_SOURCE_RAW && !j->folder.count)
        return fault_set(j->f, "holds raw elements, which have no names; bitsnap decompress restores them") && fault_in(j->f, path);
    return 0;
}

static void close_source(source *s)
{
    bitsnap_file_close(&s->file);
    base_close(&s->beside);
    input_close(&s->in);
}

/* ================================================================================= TENSORS */

/* Sets the extents: the part of a tensor to take. */
static int cut(const options *o, pick *p, fault *f)
{
    char *shape = p->text + p->whole.name.size + p->whole.dtype.size + 2;
    size_t k, n = 0;
    p->part = p->whole;
    p->part.elements = 1;
    if (o->ranges && (!p->whole.type || p->whole.type->bits < 8))
        return fault_set(f, "tensor %.200s: the elements of its dtype are not whole bytes, or not known; leave out --range to take all of it", p->text);
    if (o->ranges > p->dimensions)
        return fault_set(f, "tensor %.200s: has %zu dimensions, and --range names %zu", p->text, p->dimensions, o->ranges);
    for (k = 0; k < p->dimensions; k++) {
        extent *x = &p->extents[k];
        const int64_t size = x->size < INT64_MAX ? (int64_t)x->size : INT64_MAX;
        const option_range all = { 0, INT64_MAX }, r = k < o->ranges ? o->range[k] : all;
        const int64_t end = r.end == INT64_MAX ? size : r.end < 0 ? r.end + size : r.end, begin = r.begin < 0 ? r.begin + size : r.begin;
        if (begin < 0 || begin > end || end > size)
            return fault_set(f, "tensor %.200s: dimension %zu has %llu elements, and --range is not in them", p->text, k, (unsigned long long)x->size);
        x->begin = (uint64_t)begin;
        x->end = (uint64_t)end;
        if (k >= o->ranges) x->end = x->size;
        p->part.elements *= x->end - x->begin;
        n += (size_t)snprintf(shape + n, 24, k ? ",%llu" : "[%llu", (unsigned long long)(x->end - x->begin));
    }
    n += (size_t)snprintf(shape + n, 24, k ? "]" : "[]");
    p->part.shape.at = shape;
    p->part.shape.size = n;
    if (o->ranges) p->part.end = p->part.begin + p->part.elements * (p->whole.type->bits / 8);
    return 0;
}

/* Converts elements to f32, exactly. */
static const struct widening { const char *dtype; unsigned bytes, exponent, fraction; int finite; } widenings[] = {
    { "F32", 4, 8, 23, 0 }, { "BF16", 2, 8, 7, 0 }, { "F16", 2, 5, 10, 0 }, { "F8_E5M2", 1, 5, 2, 0 }, { "F8_E4M3", 1, 4, 3, 1 }
};

static int is_dtype(const tensor *t, const char *name) { return t->dtype.size == strlen(name) && !memcmp(t->dtype.at, name, t->dtype.size); }

static const struct widening *widening_of(const tensor *t)
{
    size_t i;
    for (i = 0; i < sizeof widenings / sizeof *widenings; i++)
        if (is_dtype(t, widenings[i].dtype)) return &widenings[i];
    return NULL;
}

static const char *const numpy_types[][2] = {
    { "BOOL", "|b1" }, { "U8", "|u1" }, { "I8", "|i1" }, { "U16", "<u2" }, { "I16", "<i2" }, { "U32", "<u4" }, { "I32", "<i4" }, { "U64", "<u8" },
    { "I64", "<i8" }, { "F16", "<f2" }, { "F32", "<f4" }, { "F64", "<f8" }, { "C64", "<c8" }, { "C128", "<c16" }
};

/* Returns NumPy's name of the type; null: it has none. */
static const char *numpy_type(const tensor *t)
{
    size_t i;
    for (i = 0; i < sizeof numpy_types / sizeof *numpy_types; i++)
        if (is_dtype(t, numpy_types[i][0])) return numpy_types[i][1];
    return NULL;
}

static int widen(const options *o, pick *p, fault *f)
{
    static const char f32[] = "F32";
    if (!o->as_f32) return 0;
    if (!widening_of(&p->whole))
        return fault_set(f, "tensor %.200s is of %.*s, but f32 holds only BF16, F16, F8_E4M3, F8_E5M2 and F32 exactly; %s", p->text,
                         p->whole.dtype.size < 80 ? (int)p->whole.dtype.size : 80, p->whole.dtype.at,
                         o->npy && !numpy_type(&p->whole) ? "give --raw instead of --npy --as f32" : "leave out --as f32");
    p->part.dtype.at = f32;
    p->part.dtype.size = 3;
    p->part.end = p->part.begin + 4 * p->part.elements;
    return 0;
}

static int add(job *j, source *s, const tensor *t, size_t glob)
{
    pick *p = (pick *)grown(j->picks, j->pick_count, &j->pick_capacity, sizeof *p, j->f);
    uint64_t n;
    size_t at;
    if (!p) return 1;
    j->picks = p;
    p += j->pick_count++;
    p->from = s;
    p->glob = glob;
    p->whole = *t;
    for (at = 0; bitsnap_shape_next(t->shape, &at, &n);) p->dimensions++;
    p->extents = (extent *)calloc(p->dimensions + 1, sizeof *p->extents);
    p->text = (char *)calloc(1, t->name.size + t->dtype.size + 2 + 24 * (p->dimensions + 1));
    if (!p->extents || !p->text) return fault_memory(j->f);
    for (at = 0, p->dimensions = 0; bitsnap_shape_next(t->shape, &at, &n);) p->extents[p->dimensions++].size = n;
    memcpy(p->text, t->name.at, t->name.size);
    p->whole.name.at = p->text;
    p->whole.dtype.at = (char *)memcpy(p->text + t->name.size + 1, t->dtype.at, t->dtype.size);
    memset(&p->whole.shape, 0, sizeof p->whole.shape); /* may be freed when the next tensor is found */
    return 0;
}

static int by_place(const void *a, const void *b)
{
    const pick *x = (const pick *)a, *y = (const pick *)b;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->whole.begin != y->whole.begin) return x->whole.begin < y->whole.begin ? -1 : 1;
    if (x->whole.end != y->whole.end) return x->whole.end < y->whole.end ? -1 : 1;
    return bitsnap_slice_compare(x->whole.name, y->whole.name);
}

static int by_name(const void *a, const void *b)
{
    return bitsnap_slice_compare(((const pick *)a)->whole.name, ((const pick *)b)->whole.name);
}

static void free_pick(pick *p)
{
    free(p->text);
    free(p->extents);
}

/* Sorts the tensors, and drops duplicates. A NAME that a tensor has does not count as a glob. */
static int sort(job *j)
{
    size_t i, n = 0;
    for (i = 0; i < j->pick_count; i++) {
        if (j->picks[i].glob && j->found[j->picks[i].glob] == BY_NAME) free_pick(&j->picks[i]);
        else j->picks[n++] = j->picks[i];
    }
    j->pick_count = n;
    qsort(j->picks, j->pick_count, sizeof *j->picks, by_name);
    for (i = 1; i < j->pick_count; i++) {
        const pick *p = &j->picks[i];
        if (!by_name(p - 1, p) && p[-1].from != p->from)
            return fault_set(j->f, "tensor %.200s is in %.200s, too; name one of the files, or leave one out with --exclude", p->text,
                             p[-1].from->in.name) && fault_in(j->f, p->from->in.name);
    }
    qsort(j->picks, j->pick_count, sizeof *j->picks, by_place);
    for (i = n = 0; i < j->pick_count; i++) {
        if (n && !by_place(&j->picks[n - 1], &j->picks[i])) free_pick(&j->picks[i]);
        else j->picks[n++] = j->picks[i];
    }
    j->pick_count = n;
    return 0;
}

static int by_tensor(const void *a, const void *b) { return strcmp(((const place *)a)->name, ((const place *)b)->name); }

static int is_tensor(const void *name, const void *p) { return strcmp((const char *)name, ((const place *)p)->name); }

static place *place_by_index(const job *j, const char *name)
{
    return j->place_count ? (place *)bsearch(name, j->places, j->place_count, sizeof *j->places, is_tensor) : NULL;
}

/* Returns 1 if a tensor may be taken from an entry of the folder: the index does not name another file for it. */
static int may_be_in(const job *j, size_t entry, const char *name)
{
    const place *p = place_by_index(j, name);
    return !p || !strcmp(j->folder.at[entry].name, p->file) || !strcmp(j->folder.at[entry].name, p->packed);
}

static int found_tensor(job *j, source *s, const tensor *t, const char *name, size_t glob)
{
    place *p = place_by_index(j, name);
    if (p) p->found = 1;
    return add(j, s, t, glob);
}

/* Finds the tensor NAME in a file, or if no file has it, all tensors that match NAME as a glob. */
static int look_for(job *j, source *s, size_t entry, size_t number)
{
    const char *name = j->o->files[number];
    const safetensors *all;
    tensor t;
    char *copy = NULL;
    size_t i, k;
    int failed = 0;
    if (!bitsnap_file_find(&s->file, name, strlen(name), &t)) {
        j->found[number] = BY_NAME;
        return found_tensor(j, s, &t, name, 0);
    }
    if (s->file.error.status != BITSNAP_E_MISMATCH) return fail(s, j->f);
    if (j->found[number] == BY_NAME || !strpbrk(name, "*?[")) return 0;
    if (bitsnap_file_tensors(&s->file, &all)) return fail(s, j->f);
    for (i = 0; i < all->count && !failed; i++) {
        const text_slice is = all->tensors[i].name;
        char *larger = (char *)realloc(copy, is.size + 1);
        if (!larger) failed = fault_memory(j->f);
        else {
            copy = larger;
            for (k = 0; k < is.size; k++) copy[k] = is.at[k] ? is.at[k] : 1; /* U+0000 is a character, too */
            copy[is.size] = 0;
            if (fnmatch(name, copy, 0) || !may_be_in(j, entry, copy)) continue;
            if (!j->found[number]) j->found[number] = BY_GLOB;
            failed = found_tensor(j, s, &all->tensors[i], copy, number);
        }
    }
    free(copy);
    return failed;
}

/* Looks for tensors in an entry of the folder. */
static int look_in(job *j, source *s, size_t entry)
{
    size_t i;
    if (s->file.kind == BITSNAP_SOURCE_RAW) return 0; /* raw elements have no names */
    for (i = 1; i < j->o->file_count; i++)
        if (may_be_in(j, entry, j->o->files[i]) && look_for(j, s, entry, i)) return 1;
    return 0;
}

static int is_asked_for(const job *j, const char *name)
{
    size_t i;
    for (i = 1; i < j->o->file_count; i++)
        if (!strcmp(j->o->files[i], name) || (j->found[i] != BY_NAME && !fnmatch(j->o->files[i], name, 0))) return 1;
    return 0;
}

/* Returns 1 if the options leave out a file. */
static int is_left_out(const selection *s, const char *file, const char *packed)
{
    return selection_excludes(s, file) || selection_excludes(s, packed) || !(selection_includes(s, file) || selection_includes(s, packed));
}

/* Adds a tensor of the index, unless its file is left out. */
static int note_place(void *context, const char *name, const char *file)
{
    job *j = (job *)context;
    const size_t name_size = strlen(name) + 1;
    size_t size;
    place *p;
    if (!is_asked_for(j, name)) return 0;
    while (!strncmp(file, "./", 2)) file += 2;
    p = (place *)grown(j->places, j->place_count, &j->place_capacity, sizeof *p, j->f);
    if (!p) return 1;
    j->places = p;
    p += j->place_count;
    p->found = 0;
    size = strlen(file);
    p->name = (char *)malloc(name_size + 2 * size + 1 + sizeof ".bsnap");
    if (!p->name) return fault_memory(j->f);
    memcpy(p->name, name, name_size);
    p->file = (char *)memcpy(p->name + name_size, file, size + 1);
    p->packed = (char *)memcpy(p->file + size + 1, file, size);
    memcpy(p->packed + size, ".bsnap", sizeof ".bsnap");
    if (is_left_out(&j->o->select, p->file, p->packed)) free(p->name);
    else j->place_count++;
    return 0;
}

/* Reads the index of the folder. If there are several, for several models, uses none. */
static int read_index(job *j)
{
    static const char suffix[] = ".safetensors.index.json";
    const walk *w = &j->folder;
    size_t i, size, n = 0, which = 0;
    input in;
    int failed;
    for (i = 0; i < w->count; i++) {
        size = strlen(w->at[i].name);
        if (w->at[i].kind != FOUND_FILE || size < sizeof suffix || strchr(w->at[i].name, '/')) continue;
        if (strcmp(w->at[i].name + size + 1 - sizeof suffix, suffix)) continue;
        which = i;
        n++;
    }
    if (n != 1) return 0;
    failed = input_open(&in, w->at[which].path, j->f) || input_note(&in, w->at[which].path, &j->codec->used, j->f) ||
             (in.size > BITSNAP_TEXT_MAX && fault_set(j->f, "is too large for the index of a model; leave it out with --exclude")) ||
             input_fill(&in, (size_t)in.size, j->f) ||
             (index_parse((const char *)input_bytes(&in), input_available(&in), note_place, j, j->f) &&
              fault_add(j->f, "; leave it out with --exclude")) || input_check_unchanged(&in, j->f);
    input_close(&in);
    if (j->place_count) qsort(j->places, j->place_count, sizeof *j->places, by_tensor);
    for (i = 1; i < j->place_count && !failed; i++)
        if (!by_tensor(&j->places[i - 1], &j->places[i]))
            failed = fault_set(j->f, "has %.200s twice; leave it out with --exclude", j->places[i].name);
    return failed ? fault_in(j->f, w->at[which].path) : 0;
}

/* Fails if a tensor that is asked for and in the index was not found in its file. */
static int check_places(job *j)
{
    size_t i;
    for (i = 0; i < j->place_count; i++)
        if (!j->places[i].found && is_asked_for(j, j->places[i].name))
            return fault_set(j->f, "by its index %.200s is in %.200s, which is missing or does not have it; leave that or the index out "
                             "with --exclude, or follow links with -L", j->places[i].name, j->places[i].file) && fault_in(j->f, j->o->files[0]);
    return 0;
}

/* Counts the characters that two names share at their beginnings and ends. */
static size_t likeness(text_slice a, const char *b)
{
    const size_t size = strlen(b), both = a.size < size ? a.size : size;
    size_t begin = 0, end = 0;
    while (begin < both && a.at[begin] == b[begin]) begin++;
    while (end < both - begin && a.at[a.size - 1 - end] == b[size - 1 - end]) end++;
    return begin + end;
}

/* Fails because no tensor has the name. */
static int refuse(job *j, source *s, size_t number)
{
    const char *name = j->o->files[number];
    const safetensors *all;
    const tensor *nearest;
    /* bitsnap info does not list the tensors of a .safetensors file */
    const char *more = s->file.kind == BITSNAP_SOURCE_PLAIN ? "" : "; bitsnap info lists them";
    size_t i;
    (void)fault_in(j->f, j->o->files[0]);
    if (j->folder.count && !j->source_count)
        return fault_set(j->f, "has no .safetensors or .bsnap file that the options select; -L follows links");
    if (j->folder.count)
        return fault_set(j->f, "no tensor in its %zu tensor files has or matches the name %.200s; bitsnap info -r lists those of .bsnap files", j->source_count, name);
    if (bitsnap_file_tensors(&s->file, &all)) return fail(s, j->f);
    if (strpbrk(name, "*?[") || !all->count) return fault_set(j->f, "none of its %zu tensors matches %.200s%s", all->count, name, more);
    nearest = all->tensors;
    for (i = 1; i < all->count; i++)
        if (likeness(all->tensors[i].name, name) > likeness(nearest->name, name)) nearest = &all->tensors[i];
    return fault_set(j->f, "none of its %zu tensors is called %.200s; the nearest name is %.*s%s", all->count, name,
                     nearest->name.size < 200 ? (int)nearest->name.size : 200, nearest->name.at, more);
}

/* Finds all tensors to take. */
static int choose(job *j)
{
    const options *o = j->o;
    size_t i, k;
    if (is_folder(o->files[0])) {
        if (o->base_count) return fault_set(j->f, "is a folder, but -b takes a file; name the file in it");
        if (walk_folder(&j->folder, o->files[0], &o->select, j->f) || read_index(j)) return 1;
    }
    j->sources = (source *)calloc(o->base_count + 1 + j->folder.count, sizeof *j->sources);
    if (!j->sources) return fault_memory(j->f);
    for (i = 0; i < o->base_count; i++)
        if (open_source(j, o->bases[i])) return 1;
    if (!j->folder.count && (open_source(j, o->files[0]) || look_in(j, &j->sources[j->source_count - 1], 0))) return 1;
    for (i = 0; i < j->folder.count; i++) {
        const size_t before = j->pick_count;
        source *s = &j->sources[j->source_count];
        if (!walk_is_tensor_file(&j->folder.at[i])) continue;
        for (k = 1; k < o->file_count && !may_be_in(j, i, o->files[k]); k++)
            ;
        if (k == o->file_count) continue;
        if (open_source(j, j->folder.at[i].path) || look_in(j, s, i)) return 1;
        if (j->pick_count == before) close_source(s);
    }
    if (check_places(j)) return 1;
    for (i = 1; i < o->file_count; i++)
        if (!j->found[i]) return refuse(j, &j->sources[o->base_count], i);
    if (sort(j)) return 1;
    if (j->pick_count > 1 && (o->raw || o->npy))
        return fault_set(j->f, "%zu tensors are chosen, but --%s takes one; without it they become a .safetensors file", j->pick_count, o->raw ? "raw" : "npy");
    for (i = 0; i < j->pick_count; i++)
        if (cut(o, &j->picks[i], j->f) || widen(o, &j->picks[i], j->f)) return fault_in(j->f, j->picks[i].from->in.name);
    return 0;
}

/* ================================================================================= OUTPUT */

/* Converts a float of few bits to f32. */
static uint32_t widened(uint32_t x, const struct widening *w)
{
    const uint32_t top = (1u << w->exponent) - 1, fraction = x & ((1u << w->fraction) - 1), exponent = x >> w->fraction & top;
    const uint32_t sign = x >> (w->fraction + w->exponent) << 31, first = 1u << w->fraction;
    uint32_t bits = exponent ? fraction | first : fraction, e = 127 - (top >> 1) + (exponent ? exponent : 1);
    if (w->exponent == 8) return x << (23 - w->fraction);
    if (exponent == top && (!w->finite || fraction == first - 1)) return sign | 0x7F800000u | (w->finite ? 0x400000u : fraction << (23 - w->fraction));
    if (!bits) return sign;
    for (; !(bits & first); bits <<= 1) e--;
    return sign | e << 23 | (bits & (first - 1)) << (23 - w->fraction);
}

/* Writes the window, elements of this tensor. */
static int flush(job *j, const pick *p)
{
    const struct widening *w = j->o->as_f32 && !is_dtype(&p->whole, "F32") ? widening_of(&p->whole) : NULL;
    size_t i = 0, n, k;
    if (!w && output_write(&j->out, j->window, j->held, j->f)) return 1;
    while (w && i < j->held) {
        for (n = 0; n < WIDE && i < j->held; n += 4, i += w->bytes) {
            uint32_t x = 0;
            for (k = w->bytes; k-- > 0;) x = x << 8 | j->window[i + k];
            x = widened(x, w);
            for (k = 0; k < 4; k++) j->wide[n + k] = (uint8_t)(x >> 8 * k);
        }
        if (output_write(&j->out, j->wide, n, j->f)) return 1;
    }
    j->held = 0;
    progress_show(&j->progress, j->out.size);
    return 0;
}

/* Reads `size` bytes of a tensor from an offset on, and writes full windows. */
static int take(job *j, const pick *p, uint64_t at, uint64_t size)
{
    while (size) {
        const size_t n = size < WINDOW - j->held ? (size_t)size : WINDOW - j->held;
        if (bitsnap_file_read_data(&p->from->file, p->whole.begin + at, j->window + j->held, n)) return fail(p->from, j->f);
        j->held += n;
        at += n;
        size -= n;
        if (j->held == WINDOW && flush(j, p)) return 1;
    }
    return 0;
}

/* Writes the parts of a tensor. Dimensions after the last restricted one are read together with it. */
static int take_parts(job *j, const pick *p)
{
    const extent *x = p->extents;
    const size_t ranges = j->o->ranges;
    uint64_t index[RANGES_MAX], stride[RANGES_MAX];
    size_t last = 0, d;
    if (!ranges) return take(j, p, 0, p->whole.end - p->whole.begin) || flush(j, p);
    if (!p->part.elements) return 0;
    for (d = 0; d < ranges; d++) {
        index[d] = x[d].begin;
        if (x[d].end - x[d].begin != x[d].size) last = d;
    }
    stride[last] = p->whole.type->bits / 8;
    for (d = p->dimensions; d-- > last + 1;) stride[last] *= x[d].size;
    for (d = last; d > 0; d--) stride[d - 1] = stride[d] * x[d].size;
    do {
        uint64_t at = 0;
        for (d = 0; d <= last; d++) at += index[d] * stride[d];
        if (take(j, p, at, (x[last].end - x[last].begin) * stride[last])) return 1;
        for (d = last; d > 0 && ++index[d - 1] == x[d - 1].end; d--) index[d - 1] = x[d - 1].begin;
    } while (d);
    return flush(j, p);
}

/* Writes a header of version 1.0 of NumPy's format. */
static int write_npy(job *j, const pick *p)
{
    char text[128 + 24 * NPY_DIMENSIONS] = "\x93NUMPY\x01";
    const char *type = numpy_type(&p->part);
    size_t i, n, end;
    if (!type)
        return fault_set(j->f, "tensor %.200s is of %.*s, which NumPy lacks; %s", p->text, p->whole.dtype.size < 80 ? (int)p->whole.dtype.size : 80,
                         p->whole.dtype.at, widening_of(&p->whole) ? "give --as f32, too, which is exact, or --raw instead of --npy" : "give --raw instead of --npy");
    if (p->dimensions > NPY_DIMENSIONS) return fault_set(j->f, "tensor %.200s has %zu dimensions, and NumPy at most %d: give --raw instead of --npy", p->text, p->dimensions, NPY_DIMENSIONS);
    n = 10 + (size_t)snprintf(text + 10, 100, "{'descr': '%s', 'fortran_order': False, 'shape': (", type);
    for (i = 0; i < p->dimensions; i++) n += (size_t)snprintf(text + n, 24, i ? ", %llu" : "%llu", (unsigned long long)(p->extents[i].end - p->extents[i].begin));
    n += (size_t)snprintf(text + n, 24, "%s), }", p->dimensions == 1 ? "," : "");
    for (end = (n / 64 + 1) * 64; n < end - 1; n++) text[n] = ' ';
    text[n] = '\n';
    text[8] = (char)((end - 10) & 255);
    text[9] = (char)((end - 10) >> 8);
    return output_write(&j->out, text, end, j->f);
}

static int write_safetensors(job *j)
{
    tensor *parts = (tensor *)malloc(j->pick_count * sizeof *parts);
    bitsnap_file_error e;
    char *text = NULL;
    uint8_t bytes[8];
    size_t size, i;
    int failed;
    if (!parts) return fault_memory(j->f);
    for (i = 0; i < j->pick_count; i++) parts[i] = j->picks[i].part;
    if (!bitsnap_safetensors_write(&text, &size, parts, j->pick_count, NULL, NULL, &e)) {
        for (i = 0; i < 8; i++) bytes[i] = (uint8_t)((uint64_t)size >> 8 * i);
        failed = output_write(&j->out, bytes, 8, j->f) || output_write(&j->out, text, size, j->f);
    } else if (e.status == BITSNAP_E_WORKSPACE) {
        failed = fault_memory(j->f);
    } else {
        failed = fault_set(j->f, "the chosen tensors do not make a .safetensors file: %.*s: %s", e.tensor.size < 200 ? (int)e.tensor.size : 200, e.tensor.at, e.message);
    }
    free(text);
    free(parts);
    return failed;
}

/* ================================================================================= QUANTIZED */

/* Adds the quantized frames that hold a tensor. */
static int note_quantized(job *j, const pick *p)
{
    bitsnap_file *file = &p->from->file;
    uint64_t low = 0, high, count;
    file_frame x;
    if (!file->quantized) return 0;
    if (bitsnap_file_frames(file, &count)) return fail(p->from, j->f);
    for (high = count; high - low > 1;) {
        const uint64_t middle = low + (high - low) / 2;
        if (bitsnap_file_frame_at(file, middle, &x)) return fail(p->from, j->f);
        if (x.begin <= p->whole.begin) low = middle;
        else high = middle;
    }
    for (; low < count; low++) {
        if (bitsnap_file_frame_at(file, low, &x)) return fail(p->from, j->f);
        if (x.begin >= p->whole.end) return 0;
        if (lossy_note(&j->lossy, &x, j->f)) return 1;
    }
    return 0;
}

/* ================================================================================= COMMAND */

static int extract(job *j)
{
    const options *o = j->o;
    uint64_t bytes = 0, from = 0;
    size_t i;
    if (refuse_terminal(o, o->output, "tensors", j->f)) return 1;
    for (i = 0; i < j->pick_count; i++) {
        const pick *p = &j->picks[i];
        bytes += p->part.end - p->part.begin;
        const base *b;
        if (i && p->from == p[-1].from) continue;
        from += p->from->in.size;
        for (b = &p->from->beside; b && b->reader; b = b->next) from += b->in.size;
    }
    for (i = 0; i < o->base_count; i++) from += j->sources[i].in.size;
    if (file_check_limit(bytes, bytes, from, o->max_output, j->f)) return 1;
    progress_set_total(&j->progress, bytes);
    j->window = (uint8_t *)malloc(WINDOW + WIDE);
    if (!j->window) return fault_memory(j->f);
    j->wide = j->window + WINDOW;
    if (output_open(&j->out, o->output, o->force, &j->picks[0].from->in, &j->codec->used, j->f)) return 1;
    if (o->npy ? write_npy(j, j->picks) : !o->raw && write_safetensors(j)) return 1;
    for (i = 0; i < j->pick_count; i++)
        if (take_parts(j, &j->picks[i]) || note_quantized(j, &j->picks[i])) return 1;
    for (i = 0; i < j->source_count; i++) {
        if (input_check_unchanged(&j->sources[i].in, j->f)) return fault_in(j->f, j->sources[i].in.name);
        if (j->sources[i].beside.reader && base_check_unchanged(&j->sources[i].beside, j->f)) return 1;
    }
    return output_commit(&j->out, j->f);
}

static void print_json(const job *j, const summary *s)
{
    json out = json_summary(j->o, s);
    size_t i;
    json_bases(&out, j->o);
    json_member_list(&out, "tensors");
    for (i = 0; i < j->pick_count; i++) {
        const tensor *t = &j->picks[i].part;
        json_begin(&out, '{');
        tensor_json(t, &out);
        json_member_whole(&out, "elements", t->elements);
        json_end(&out, '}');
    }
    json_end(&out, ']');
    lossy_json_truth(&j->lossy, &out, j->lossy.count != 0);
    json_report_end(&out);
}

static void say(const job *j, const summary *s)
{
    size_t i;
    if (j->o->json) {
        print_json(j, s);
        return;
    }
    for (i = 0; j->o->verbose && i < j->pick_count; i++) {
        const tensor *t = &j->picks[i].part;
        (void)print_text(stderr, t->name.at, t->name.size);
        (void)putc(' ', stderr);
        (void)print_text(stderr, t->dtype.at, t->dtype.size);
        (void)fprintf(stderr, " %.*s\n", (int)t->shape.size, t->shape.at);
    }
    print_summary(j->o, s);
    if (!j->lossy.count || j->o->quiet) return;
    print_file(stderr, s->input, ": not exact: ");
    lossy_print_line(stderr, &j->lossy, " ");
    (void)putc('\n', stderr);
}

int command_extract(const options *o, codec *c, fault *f)
{
    const elapsed begun = elapsed_now();
    summary s;
    job j = { .o = o, .codec = c, .f = f, .out.fd = -1, .found = (char *)calloc(o->file_count, 1) };
    size_t i;
    int failed;
    progress_begin(&j.progress, options_show_progress(o), shown_name(o->files[0]));
    failed = !j.found ? fault_memory(f) : choose(&j) || extract(&j);
    progress_end(&j.progress);
    memset(&s, 0, sizeof s);
    s.input = o->files[0];
    s.output = o->output;
    s.bytes_out = j.out.size;
    s.time = elapsed_since(begun);
    for (i = 0; i < j.source_count; i++) s.bytes_in += j.sources[i].read;
    if (failed) output_discard(&j.out);
    else say(&j, &s);
    for (i = 0; i < j.pick_count; i++) free_pick(&j.picks[i]);
    for (i = 0; i < j.place_count; i++) free(j.places[i].name);
    for (i = j.source_count; i-- > 0;) close_source(&j.sources[i]);
    free(j.picks);
    free(j.sources);
    free(j.window);
    free(j.found);
    free(j.places);
    lossy_free(&j.lossy);
    walk_free(&j.folder);
    return failed;
}
