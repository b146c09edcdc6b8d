/* shards.c - finds the file of a folder that holds a tensor, by the name of the tensor.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "shards.h"

#include "delta.h"

#include "file.h"
#include "header.h"

#include <stdlib.h>
#include <string.h>

/* Returns 1 if the file is NAME or NAME.bsnap. */
static int is_called(const char *file, const char *name)
{
    const size_t size = strlen(name);
    return !strncmp(file, name, size) && (!file[size] || !strcmp(file + size, ".bsnap"));
}

static int is_in_folder_of(const char *file, const char *name)
{
    const size_t size = (size_t)(last_part(name) - name);
    return (size_t)(last_part(file) - file) == size && !memcmp(file, name, size);
}

/* Returns the folder with the bases of a folder's deltas: the one before it in the chain, or itself if it is the first. */
static const shards *bases_of(const shards *s) { return s->before ? s->before : s; }

/* Returns the number of the file that is base `e` of the delta `name`; s->count if no file fits, or several do. `whole`: the base
 * is not a delta. */
static size_t find_base(const shards *s, const delta_end *e, const char *name, int whole)
{
    enum { BESIDE, BY_NAME, BY_DELTA, BY_HEADER, WAYS };
    int way;
    for (way = 0; way < WAYS; way++) {
        size_t i, found = s->count, n = 0;
        for (i = 0; i < s->count; i++) {
            const char *file = s->files[i].name;
            if (!delta_ends_agree(&s->files[i].ends.own, e) || (whole && s->files[i].is_delta)) continue;
            if (way <= BY_NAME && (!e->name || !*e->name || !is_called(last_part(file), e->name) || (way == BESIDE && !is_in_folder_of(file, name)))) continue;
            if ((way == BY_DELTA && !is_called(file, name)) || (way == BY_HEADER && s->files[i].is_twin)) continue;
            found = i;
            n++;
        }
        if (n == 1) return found;
    }
    return s->count;
}

/* Opens a delta again with the texts of its bases, since its own text may be theirs. */
static int look_again(const shards *s, const shard *x, codec *c, input *in, file_reader *r, fault *f)
{
    file_base *texts = (file_base *)calloc(r->ends.base_count + 1, sizeof *texts);
    size_t n;
    int failed = 0;
    if (!texts) return fault_memory(f);
    for (n = 0; n < r->ends.base_count; n++) {
        const shards *in_these = bases_of(s);
        const size_t number = find_base(in_these, &r->ends.bases[n], x->name, !s->before);
        if (number == in_these->count) break;
        texts[n].text = in_these->files[number].text;
        texts[n].text_size = (size_t)r->ends.bases[n].text_size;
        if (n) texts[n - 1].next = &texts[n];
    }
    if (n && n == r->ends.base_count) {
        file_read_close(r);
        failed = input_seek(in, 0, f) || file_look_begin(r, c, in, texts, f);
    }
    free(texts);
    return failed;
}

/* Opens a delta again with the text of a base beside it. */
static int look_beside(const shard *x, codec *c, input *in, file_reader *r, fault *f)
{
    base b;
    int found;
    int failed = input_seek(in, 0, f) || find_beside(&b, c, in, x->path, 0, &found, f);
    if (!failed && found) {
        file_read_close(r);
        failed = file_look_begin(r, c, in, &b.file, f);
    }
    base_close(&b);
    return failed;
}

static int read_packed(const shards *s, shard *x, codec *c, input *in, fault *f)
{
    file_reader r = { 0 };
    int failed;
    failed = file_look_begin(&r, c, in, NULL, f);
    x->is_delta = !failed && r.s.start.kind == BITSNAP_SOURCE_DELTA;
    if (x->is_delta && s->path) failed = look_again(s, x, c, in, &r, f);
    else if (x->is_delta && !r.text) failed = look_beside(x, c, in, &r, f);
    if (!failed && !r.text && !s->path)
        failed = fault_set(f, x->is_delta ? "is a delta: restore it first, or leave it out with --exclude"
                                          : "holds raw elements, which have no names; leave it out with --exclude");
    if (!failed && r.text) {
        x->text = r.text;
        x->ends = r.ends;
        x->ends.own.text_size = r.text_size;
        x->ends.own.data_size = r.s.start.source_size - r.s.source_size;
        r.text = NULL;
        memset(&r.ends, 0, sizeof r.ends);
        failed = safetensors_parse(&x->model, x->text, (size_t)x->ends.own.text_size, f);
    }
    file_read_close(&r);
    return failed;
}

/* Leaves the text null if the file cannot be a base. */
static int read_header(const shards *s, shard *x, codec *c, fault *f)
{
    input in;
    header h;
    int failed = input_open(&in, x->path, f) || input_fill(&in, 8, f);
    if (!failed && file_is_bsnap(input_bytes(&in), input_available(&in))) {
        failed = read_packed(s, x, c, &in, f);
    } else if (!failed) {
        failed = header_read(&h, &in, f);
        x->text = h.text;
        x->model = h.model;
        x->ends.own.text_size = h.size;
        x->ends.own.data_size = h.model.data_size;
    }
    if (!failed && x->text) x->ends.own.text_id = bitsnap_hash(x->text, (size_t)x->ends.own.text_size);
    input_close(&in);
    return failed ? fault_in(f, x->path) : 0;
}

static int by_name(const void *a, const void *b)
{
    const shard_tensor *x = (const shard_tensor *)a, *y = (const shard_tensor *)b;
    const int order = bitsnap_slice_compare(x->name, y->name);
    return order ? order : x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int index_tensors(shards *s, fault *f)
{
    size_t i, k, n = 0;
    for (i = 0; i < s->count; i++) s->tensor_count += s->files[i].model.count;
    s->tensors = (shard_tensor *)malloc((s->tensor_count + 1) * sizeof *s->tensors);
    if (!s->tensors) return fault_memory(f);
    for (i = 0; i < s->count; i++) {
        for (k = 0; k < s->files[i].model.count; k++) {
            s->tensors[n].name = s->files[i].model.tensors[k].name;
            s->tensors[n].partner = NO_SHARD;
            s->tensors[n++].shard = i;
        }
    }
    qsort(s->tensors, n, sizeof *s->tensors, by_name);
    return 0;
}

int shards_open(shards *s, codec *c, const char *path, const selection *select, fault *f)
{
    size_t i;
    memset(s, 0, sizeof *s);
    if (walk_folder(&s->folder, path, select, f)) return fault_about(f, path);
    s->files = (shard *)calloc(s->folder.count, sizeof *s->files);
    if (!s->files) return fault_memory(f);
    for (i = 0; i < s->folder.count; i++) {
        const walk_entry *x = &s->folder.at[i];
        if (!walk_is_tensor_file(x)) continue;
        s->files[s->count].path = x->path;
        s->files[s->count].name = x->name;
        if (read_header(s, &s->files[s->count++], c, f)) return 1;
    }
    if (s->count) return index_tensors(s, f);
    (void)fault_set(f, "has no .safetensors or .bsnap file that the options select; -L follows links");
    return fault_in(f, path);
}

shard_tensor *shards_find(const shards *s, text_slice name, size_t file)
{
    const shard_tensor wanted = { name, file, NO_SHARD };
    return (shard_tensor *)bsearch(&wanted, s->tensors, s->tensor_count, sizeof wanted, by_name);
}

int shards_is_alone(const shards *s, const shard_tensor *t)
{
    return (t == s->tensors || bitsnap_slice_compare(t[-1].name, t->name)) &&
           (t + 1 == s->tensors + s->tensor_count || bitsnap_slice_compare(t[1].name, t->name));
}

/* Returns the number of the file NAME or NAME.bsnap. If there is neither and NAME ends in .bsnap, looks for the unpacked name. */
static size_t same_file(const shards *s, const char *name)
{
    size_t i = shards_called(s, name);
    if (i == s->count)
        for (i = 0; i < s->count && !is_called(name, s->files[i].name); i++)
            ;
    return i;
}

static shard_tensor *name_end(const shards *s, shard_tensor *t)
{
    const text_slice name = t->name;
    while (t < s->tensors + s->tensor_count && !bitsnap_slice_compare(t->name, name)) t++;
    return t;
}

/* Counts those without a partner, and gives the first two of them. */
static size_t left_over(shard_tensor *t, const shard_tensor *end, shard_tensor *left[2])
{
    size_t n = 0;
    for (; t < end; t++) {
        if (t->partner != NO_SHARD) continue;
        if (n < 2) left[n] = t;
        n++;
    }
    return n;
}

static void make_partners(shard_tensor *x, shard_tensor *y)
{
    x->partner = y->shard;
    y->partner = x->shard;
}

/* Pairs the tensors of one name. same[i] is the number of the file of b with the name of file i of a. */
static int pair_name(const shards *a, const shards *b, shard_tensor *x, const shard_tensor *x_end, shard_tensor *y, const shard_tensor *y_end,
                     const size_t *same, fault *f)
{
    shard_tensor *t, *left_x[2], *left_y[2], *const *twice;
    size_t n_x, n_y;
    for (t = x; t < x_end; t++) {
        shard_tensor *partner = shards_find(b, t->name, same[t->shard]);
        if (partner && partner->partner == NO_SHARD) make_partners(t, partner);
    }
    n_x = left_over(x, x_end, left_x);
    n_y = left_over(y, y_end, left_y);
    if (!n_x || !n_y) return 0;
    if (n_x == 1 && n_y == 1) return make_partners(left_x[0], left_y[0]), 0;
    twice = n_x > 1 ? left_x : left_y;
    (void)fault_set(f, "has the tensor %.*s, and so has %s; leave out one of the files with --exclude", twice[1]->name.size < 200 ? (int)twice[1]->name.size : 200,
                    twice[1]->name.at, (n_x > 1 ? a : b)->files[twice[0]->shard].path);
    return fault_in(f, (n_x > 1 ? a : b)->files[twice[1]->shard].path);
}

int shards_pair(shards *a, shards *b, fault *f)
{
    shard_tensor *x = a->tensors, *y = b->tensors;
    size_t i, *same = (size_t *)malloc(a->count * sizeof *same);
    int failed = !same && fault_memory(f);
    for (i = 0; i < a->count && !failed; i++) same[i] = same_file(b, a->files[i].name);
    while (x < a->tensors + a->tensor_count && y < b->tensors + b->tensor_count && !failed) {
        shard_tensor *const x_end = name_end(a, x), *const y_end = name_end(b, y);
        const int order = bitsnap_slice_compare(x->name, y->name);
        if (!order) failed = pair_name(a, b, x, x_end, y, y_end, same, f);
        if (order <= 0) x = x_end;
        if (order >= 0) y = y_end;
    }
    free(same);
    return failed;
}

void shards_close(shards *s)
{
    while (s->count) {
        bitsnap_safetensors_free(&s->files[--s->count].model);
        free(s->files[s->count].text);
        free(s->files[s->count].why);
        delta_ends_free(&s->files[s->count].ends);
    }
    free(s->files);
    free(s->tensors);
    walk_free(&s->folder);
    memset(s, 0, sizeof *s);
}

/* ================================================================================= BASES */

size_t shards_called(const shards *s, const char *name)
{
    size_t i;
    for (i = 0; i < s->count && !is_called(s->files[i].name, name); i++)
        ;
    return i;
}

/* Returns 1 if NAME.bsnap is given and NAME is in the list, too. NAME sorts before it. */
static int is_there_unpacked(const shards *s, const char *name)
{
    const size_t size = strlen(name);
    size_t i;
    if (!name_ends(name, ".bsnap")) return 0;
    for (i = s->count; i-- > 0 && !strncmp(s->files[i].name, name, size - 6);)
        if (!s->files[i].name[size - 6]) return 1;
    return 0;
}

/* Records why a file cannot be a base: the text of the fault, else `why`. */
static int refuse(shard *x, const char *why, fault *f)
{
    x->why = strdup(*f->text ? f->text : why);
    if (!x->why) return fault_memory(f);
    memset(f, 0, sizeof *f);
    bitsnap_safetensors_free(&x->model);
    free(x->text);
    delta_ends_free(&x->ends);
    memset(&x->model, 0, sizeof x->model);
    x->text = NULL;
    return 0;
}

static int has_bases(const shards *s, const shard *x)
{
    size_t i;
    for (i = 0; i < x->ends.base_count; i++)
        if (find_base(s, &x->ends.bases[i], x->name, 1) == s->count) return 0;
    return 1;
}

/* Reads the deltas of the first folder to other files in it, once all others are known. */
static int read_siblings(shards *s, codec *c, fault *f)
{
    size_t i;
    for (i = 0; i < s->count; i++) {
        shard *x = &s->files[i];
        if (!x->is_delta) continue;
        free(x->why);
        x->why = NULL;
        if (!read_header(s, x, c, f) && x->text && has_bases(s, x)) continue;
        if (refuse(x, "is a delta, whose base is neither beside it nor in a folder before this one", f)) return 1;
    }
    return 0;
}

int shards_open_bases(shards *s, codec *c, const char *path, const shards *before, fault *f)
{
    static const selection all = { { NULL }, { NULL }, 0, 0, 1 };
    size_t i, k;
    memset(s, 0, sizeof *s);
    s->path = path;
    s->before = before;
    if (walk_folder(&s->folder, path, &all, f)) return fault_about(f, path);
    s->files = (shard *)calloc(s->folder.count, sizeof *s->files);
    if (!s->files) return fault_memory(f);
    for (i = 0; i < s->folder.count; i++) {
        const walk_entry *x = &s->folder.at[i];
        shard *to = &s->files[s->count];
        if (!walk_is_tensor_file(x) || is_there_unpacked(s, x->name)) continue;
        to->path = x->path;
        to->name = x->name;
        for (k = 0; k < i && !to->is_twin; k++) to->is_twin = s->folder.at[k].kind == FOUND_FILE && stamp_is_file(&s->folder.at[k].stamp, &x->stamp);
        s->count++;
        if (!read_header(s, to, c, f) && to->text && (!to->is_delta || before)) continue;
        if (refuse(to, to->is_delta ? "is a delta, whose base is not in a folder before this one" : "holds raw elements, which cannot be a base", f)) return 1;
    }
    if (!before && read_siblings(s, c, f)) return 1;
    return s->count ? 0 : fault_set(f, "has no .safetensors or .bsnap file in it that could be a base") && fault_in(f, path);
}

static int find_bases(const shards *s, const delta_ends *ends, const char *name, int whole, codec *c, uint64_t limit, base *list, fault *f);

static int open_base(const shards *s, size_t number, codec *c, uint64_t limit, base *b, fault *f)
{
    const shard *x = &s->files[number];
    char name[4096];
    base before;
    int failed;
    if (used_name(&c->used, x->path, USE_BASE, f)) return 1;
    if (!x->is_delta) return base_open(b, c, &x->path, 1, limit, f);
    (void)snprintf(name, sizeof name, "%.*s", (int)(strlen(x->name) - 6), x->name);
    failed = find_bases(bases_of(s), &x->ends, name, !s->before, c, limit, &before, f);
    if (failed) (void)fault_about(f, x->path);
    failed = failed || base_follow(b, c, x->path, &before, limit, f);
    base_close(&before);
    return failed;
}

base *shards_add_base(const shards *s, size_t number, codec *c, uint64_t limit, base *list, base *last, fault *f)
{
    base *b = last ? (base *)calloc(1, sizeof *b) : list;
    if (!b) return (void)fault_memory(f), NULL;
    b->in.fd = -1;
    if (last) last->next = b;
    if (open_base(s, number, c, limit, b, f)) return NULL;
    b->path = s->files[number].path;
    if (last) last->file.next = &b->file;
    return b;
}

static int find_bases(const shards *s, const delta_ends *ends, const char *name, int whole, codec *c, uint64_t limit, base *list, fault *f)
{
    base *last = NULL;
    size_t i;
    base_clear(list);
    for (i = 0; i < ends->base_count; i++) {
        const delta_end *e = &ends->bases[i];
        const size_t number = find_base(s, e, name, whole);
        if (number == s->count)
            return fault_set(f, "is a delta against %s, but in %s no file, or more than one, has the header of that", *e->name ? e->name : "a file", s->path);
        last = shards_add_base(s, number, c, limit, list, last, f);
        if (!last) return 1;
    }
    return 0;
}

int shards_find_bases(const shards *s, const delta_ends *ends, const char *name, codec *c, uint64_t limit, base *list, fault *f)
{
    return find_bases(s, ends, name, 0, c, limit, list, f);
}
