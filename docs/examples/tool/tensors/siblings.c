/* siblings.c - chooses which files of a folder are coded against others that are compressed with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "siblings.h"

#include "adam.h"
#include "references.h"

#include "../system/paths.h"

#include <stdlib.h>
#include <string.h>

static size_t folder_size(const sibling *x) { return (size_t)(last_part(x->path) - x->path); }

static int compare_folders(const sibling *a, const sibling *b)
{
    const size_t m = folder_size(a), n = folder_size(b);
    const int order = memcmp(a->path, b->path, m < n ? m : n);
    return order ? order : (m > n) - (m < n);
}

static int in_order(const void *a, const void *b)
{
    const sibling *x = *(const sibling *const *)a, *y = *(const sibling *const *)b;
    const int order = compare_folders(x, y);
    return order ? order : x->half != y->half ? y->half - x->half : strcmp(x->path, y->path);
}

/* Returns 1 if a delta can store the name: docs/FORMAT.md, section 8.5. */
static int has_good_name(const sibling *x)
{
    const char *name = last_part(x->path);
    return strlen(name) < sizeof ((file_base *)0)->name && !strchr(name, '\\');
}

/* ================================================================================= LOOKING */

static int has_moments(const sibling *x, int *has, fault *f)
{
    adam_choice *roles = adam_roles(&x->h.model, x->path);
    size_t i;
    if (!roles) return fault_memory(f);
    for (i = 0; i < x->h.model.count; i++) *has |= roles[i].role != 0;
    free(roles);
    return 0;
}

/* Reads the header of a file. A file that cannot be used keeps an empty header, and takes no part. */
static int look(sibling *x, int moments, fault *f)
{
    const safetensors *model = &x->h.model;
    uint64_t half = 0, single = 0;
    size_t i;
    input in;
    fault ignored = { 0 };
    int failed, without = 0;
    failed = input_open(&in, x->path, &ignored) || !in.regular || header_read(&x->h, &in, &ignored);
    if (!failed) x->stamp = in.stamp;
    input_close(&in);
    if (!failed && moments && has_moments(x, &without, f)) return 1;
    if (failed || without) {
        header_free(&x->h);
        memset(&x->h, 0, sizeof x->h);
        return 0;
    }
    for (i = 0; i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        const unsigned width = bitsnap_width(bitsnap_tensor_codec(t));
        if (!bitsnap_tensor_has_octaves(t)) continue;
        if (width == 2) half += t->elements;
        else single += t->elements;
    }
    x->half = half > single;
    return 0;
}

/* ================================================================================= ONE FOLDER */

enum { SHARE_LEAST = 8 }; /* others are bases only for at least this part of a file, because it cannot be read without them */

/* Files of one folder, and all their tensors, as if their data were joined. */
typedef struct group {
    sibling *const *files;
    size_t count;
    safetensors model;
    unsigned *file;        /* for each tensor: its file */
    uint64_t *begin;       /* for each file: where it begins in the joined data */
    unsigned char *alone;  /* for each file, 1: it cannot be a base of others */
    input in;              /* the file that was read last */
    size_t open;           /* its number; count: none */
} group;

static int read_group(void *context, uint64_t offset, void *to, size_t size)
{
    group *g = (group *)context;
    size_t i = g->count - 1;
    fault ignored;
    while (offset < g->begin[i]) i--;
    if (g->open != i) {
        input_close(&g->in);
        g->open = g->count;
        if (input_open(&g->in, g->files[i]->path, &ignored)) return 1;
        g->open = i;
    }
    return input_get(&g->in, 8 + g->files[i]->h.size + (offset - g->begin[i]), to, size);
}

typedef struct one_file {
    group *g;
    uint64_t begin;
} one_file;

static int read_one(void *context, uint64_t offset, void *to, size_t size)
{
    const one_file *x = (const one_file *)context;
    return read_group(x->g, x->begin + offset, to, size);
}

/* Marks the tensors of a file that refer to its own. */
static int find_own(group *g, size_t number, unsigned char *own)
{
    const safetensors *model = &g->files[number]->h.model;
    one_file x = { g, g->begin[number] };
    const bitsnap_source source = { read_one, &x, NULL, 0 };
    bitsnap_reference *list;
    size_t count, i;
    const int failed = bitsnap_references_find(&list, &count, model, &source, NULL, 0);
    for (i = 0; i < count; i++) own[list[i].tensor] = 1;
    free(list);
    return failed;
}

/* Returns the tensor, among those of all files, that begins at this byte. */
static size_t tensor_of(const group *g, uint64_t begin)
{
    size_t low = 0, high = g->model.count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (g->model.tensors[middle].begin <= begin) low = middle;
        else high = middle;
    }
    return low;
}

/* Takes the partners of one file in others, except for tensors that have one in the file itself. Keeps them only if they cover at
 * least 1 / SHARE_LEAST of the file. A file with bases is never a base, so reading a file needs only the files that it names. */
static int take(group *g, size_t number, const sibling *all, const bitsnap_reference *list, size_t count, fault *f)
{
    sibling *x = g->files[number];
    pairs *p = &x->found;
    unsigned *numbers = (unsigned *)malloc(g->count * sizeof *numbers), k;
    unsigned char *own = (unsigned char *)calloc(x->h.model.count + 1, 1);
    size_t i;
    p->count = x->h.model.count;
    p->list = (pair *)calloc(p->count + 1, sizeof *p->list);
    x->bases = (unsigned *)malloc(g->count * sizeof *x->bases);
    if (!numbers || !own || !p->list || !x->bases) {
        free(numbers);
        free(own);
        return fault_memory(f);
    }
    if (find_own(g, number, own)) count = 0; /* the error is reported when the file is compressed */
    for (i = 0; i < count; i++) {
        const size_t base = tensor_of(g, list[i].base);
        pair *a = &p->list[list[i].tensor - x->first];
        if (g->file[list[i].tensor] != number || g->file[base] == number || g->alone[g->file[base]] || own[list[i].tensor - x->first]) continue;
        a->base = g->file[base];
        a->other = &g->files[a->base]->h.model.tensors[base - g->files[a->base]->first];
        a->bytes = g->model.tensors[list[i].tensor].end - g->model.tensors[list[i].tensor].begin;
        a->kind = PAIR_FOUND;
        p->found++;
        p->found_bytes += a->bytes;
    }
    if (p->found_bytes < x->h.model.data_size / SHARE_LEAST) {
        memset(p->list, 0, p->count * sizeof *p->list);
        p->count = 0;
    }
    x->base_count = pairs_number(p, numbers, (unsigned)g->count);
    for (k = 0; k < g->count; k++)
        if (numbers[k] < g->count) x->bases[numbers[k]] = (unsigned)(g->files[k] - all);
    free(numbers);
    free(own);
    return 0;
}

static int find_in_group(group *g, const sibling *all, fault *f)
{
    const bitsnap_source source = { read_group, g, NULL, 0 };
    bitsnap_reference *list;
    size_t count, i;
    int failed = 0;
    /* read errors are reported when the file is compressed */
    if (!bitsnap_references_find(&list, &count, &g->model, &source, NULL, 0)) {
        for (i = 0; i < g->count && !failed; i++) {
            failed = take(g, i, all, list, count, f);
            g->alone[i] |= g->files[i]->base_count != 0;
        }
    }
    free(list);
    return failed;
}

static int find_in_folder(sibling *const *files, size_t count, const sibling *all, fault *f)
{
    group g = { .files = files, .count = count, .in.fd = -1, .open = count };
    size_t i, n = 0;
    int failed;
    for (i = 0; i < count; i++) n += files[i]->h.model.count;
    g.model.tensors = (tensor *)malloc((n + 1) * sizeof *g.model.tensors);
    g.file = (unsigned *)malloc((n + 1) * sizeof *g.file);
    g.begin = (uint64_t *)malloc(count * sizeof *g.begin);
    g.alone = (unsigned char *)malloc(count);
    failed = (!g.model.tensors || !g.file || !g.begin || !g.alone) && fault_memory(f);
    for (i = 0; i < count && !failed; i++) {
        const safetensors *one = &files[i]->h.model;
        size_t k;
        g.alone[i] = !has_good_name(files[i]);
        files[i]->first = g.model.count;
        g.begin[i] = g.model.data_size;
        for (k = 0; k < one->count; k++) {
            tensor *t = &g.model.tensors[g.model.count];
            *t = one->tensors[k];
            t->begin += g.begin[i];
            t->end += g.begin[i];
            g.file[g.model.count++] = (unsigned)i;
        }
        g.model.data_size += one->data_size + 1; /* one byte of gap, so that no run continues in the next file */
    }
    failed = failed || find_in_group(&g, all, f);
    input_close(&g.in);
    free(g.model.tensors);
    free(g.file);
    free(g.begin);
    free(g.alone);
    return failed;
}

/* ================================================================================= ALL OF THEM */

int siblings_find(siblings *s, const char *const *paths, size_t count, int moments, fault *f)
{
    sibling **order = (sibling **)malloc((count + 1) * sizeof *order);
    size_t i, n;
    int failed;
    memset(s, 0, sizeof *s);
    s->files = (sibling *)calloc(count + 1, sizeof *s->files);
    failed = (!order || !s->files) && fault_memory(f);
    for (i = 0; i < count && !failed; i++) {
        s->files[i].path = paths[i];
        s->count++;
        failed = look(&s->files[i], moments, f);
        order[i] = &s->files[i];
    }
    if (!failed) qsort((void *)order, count, sizeof *order, in_order);
    for (i = 0; i < count && !failed; i += n) {
        for (n = 1; i + n < count && !compare_folders(order[i], order[i + n]); n++) continue;
        if (n <= BASES_MOST) failed = n > 1 && find_in_folder(order + i, n, s->files, f);
    }
    free((void *)order);
    return failed;
}

void siblings_free(siblings *s)
{
    while (s->count) {
        sibling *x = &s->files[--s->count];
        header_free(&x->h);
        free(x->bases);
        pairs_free(&x->found);
    }
    free(s->files);
    memset(s, 0, sizeof *s);
}
