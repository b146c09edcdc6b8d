/* pairs.c - finds the partners in the base of the tensors of a file, and samples whether they help.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "pairs.h"

#include <stdlib.h>
#include <string.h>

/* ================================================================================= NAMES */


/* Prefixes that wrappers add to names of tensors, in any order: DataParallel and its kin, torch.compile, models with a head. */
static const char *const prefixes[] = { "module.", "_orig_mod.", "model." };

/* Returns the name without any such prefix. */
static text_slice core_of(text_slice name)
{
    size_t i = 0;
    while (i < sizeof prefixes / sizeof *prefixes) {
        const size_t size = strlen(prefixes[i]);
        if (name.size > size && !memcmp(name.at, prefixes[i], size)) name.at += size, name.size -= size, i = 0;
        else i++;
    }
    return name;
}

/* Returns the name by the rules. A changed name is written to `room`. */
static text_slice renamed(text_slice name, const renames *r, char *room)
{
    size_t i;
    for (i = 0; i < r->count; i++) {
        const char *to = strchr(r->rules[i], '=') + 1;
        const size_t from_size = (size_t)(to - 1 - r->rules[i]), to_size = strlen(to);
        if (name.size < from_size || memcmp(name.at, r->rules[i], from_size)) continue;
        memcpy(room, to, to_size);
        memcpy(room + to_size, name.at + from_size, name.size - from_size);
        name.at = room;
        name.size += to_size - from_size;
        break;
    }
    return name;
}

static size_t room_for(const safetensors *model, const renames *r)
{
    size_t i, name = 0, rule = 0;
    for (i = 0; i < model->count; i++)
        if (model->tensors[i].name.size > name) name = model->tensors[i].name.size;
    for (i = 0; i < r->count; i++)
        if (strlen(r->rules[i]) > rule) rule = strlen(r->rules[i]);
    return name + rule + 1;
}

/* A tensor of a base. */
typedef struct entry {
    const tensor *at;
    text_slice name, core;
    int elsewhere; /* 1: not in base number `own`, which is searched first */
    unsigned base;
} entry;

static int by_core(const void *a, const void *b)
{
    const entry *x = (const entry *)a, *y = (const entry *)b;
    const int order = bitsnap_slice_compare(x->core, y->core);
    if (order || x->elsewhere != y->elsewhere) return order ? order : x->elsewhere - y->elsewhere;
    return bitsnap_slice_compare(x->name, y->name);
}

static int in_order(const void *a, const void *b)
{
    const int order = by_core(a, b);
    const unsigned x = ((const entry *)a)->base, y = ((const entry *)b)->base;
    return order ? order : (x > y) - (x < y);
}

/* ================================================================================= PARTNERS */

/* Returns the number of rows that both have; 0 if the shapes differ in more than rows. */
static uint64_t common_rows(const tensor *t, const tensor *old, uint64_t *rows, uint64_t *old_rows)
{
    size_t i = 0, k = 0;
    uint64_t x, y;
    int more, old_more;
    if (!bitsnap_shape_next(t->shape, &i, rows) || !bitsnap_shape_next(old->shape, &k, old_rows)) return 0;
    do {
        more = bitsnap_shape_next(t->shape, &i, &x);
        old_more = bitsnap_shape_next(old->shape, &k, &y);
        if (more != old_more || (more && x != y)) return 0;
    } while (more);
    return *rows < *old_rows ? *rows : *old_rows;
}

/* Tells whether `old` can be the partner of `t`. With the same dtype it is an earlier state; else F32 is the master copy of F16
 * or BF16. */
static pair relate(const tensor *t, const tensor *old)
{
    const uint64_t bytes = t->end - t->begin, old_bytes = old->end - old->begin;
    const bitsnap_dtype base = bitsnap_tensor_base(t, old);
    const unsigned width = bitsnap_width(bitsnap_tensor_codec(t));
    uint64_t rows = 1, old_rows = 1, both = 1;
    pair x = { .other = old, .kind = PAIR_SHAPE };
    if (!bitsnap_shape_same(t->shape, old->shape) && !(both = common_rows(t, old, &rows, &old_rows))) return x;
    x.kind = PAIR_DTYPE;
    if (!base || bytes % rows || bytes / rows % width || old_bytes % old_rows ||
        old_bytes / old_rows * width != bytes / rows * bitsnap_width(base)) return x;
    x.kind = PAIR_FOUND;
    x.bytes = bytes / rows * both;
    return x;
}

/* Finds the partner of `t` among sorted entries. With `exact`: the first of its name that fits, or else the first of its name.
 * Otherwise the only fitting one of its core. */
static pair only_one(const tensor *t, const entry *wanted, int exact, const entry *entries, size_t count)
{
    enum { LOOKED_AT = 64 }; /* bounds the time for hostile files; among more candidates none is unique */
    size_t low = 0, high = count, i, found = 0;
    pair x = { 0 }, next;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (by_core(&entries[middle], wanted) < 0) low = middle + 1;
        else high = middle;
    }
    for (i = low; i < count && i - low < LOOKED_AT; i++) {
        const entry *e = &entries[i];
        if (bitsnap_slice_compare(e->core, wanted->core) || e->elsewhere != wanted->elsewhere || (exact && bitsnap_slice_compare(e->name, wanted->name))) break;
        next = relate(t, e->at);
        next.base = e->base;
        if (exact && (next.kind == PAIR_FOUND || i == low)) x = next;
        if (next.kind != PAIR_FOUND) continue;
        if (exact) return x;
        if (!found) x = next;
        /* an equal name in another file does not count as a second one */
        if (!found || bitsnap_slice_compare(x.other->name, e->name)) found++;
    }
    if (!exact && (found > 1 || i - low == LOOKED_AT)) memset(&x, 0, sizeof x);
    return x;
}

/* Finds the partner of a tensor: first by name, then by the name without prefixes. */
static pair pair_of(const tensor *t, text_slice name, const entry *entries, size_t count)
{
    entry wanted = { .core = core_of(name) };
    int way;
    pair x;
    for (way = 0; way < 4; way++) {
        wanted.elsewhere = way & 1;
        wanted.name = name;
        if (way >= 2) wanted.name.size = 0;
        x = only_one(t, &wanted, way < 2, entries, count);
        if (x.other) break;
    }
    return x;
}

static void add_up(pairs *p)
{
    size_t i;
    p->used = 0;
    p->used_bytes = 0;
    for (i = 0; i < p->count; i++) {
        if (p->list[i].kind != PAIR_FOUND) continue;
        p->used++;
        p->used_bytes += p->list[i].bytes;
    }
}

int pairs_find(pairs *p, const safetensors *model, const safetensors *const *bases, unsigned count, size_t own, const renames *r, fault *f)
{
    char *room = (char *)malloc(room_for(model, r));
    entry *entries;
    size_t i, n = 0;
    unsigned k;
    for (k = 0; k < count; k++) n += bases[k]->count;
    memset(p, 0, sizeof *p);
    p->list = (pair *)calloc(model->count + 1, sizeof *p->list);
    entries = (entry *)malloc((n + 1) * sizeof *entries);
    if (!p->list || !entries || !room) {
        free(entries);
        free(room);
        return fault_memory(f);
    }
    for (k = 0, n = 0; k < count; k++) {
        for (i = 0; i < bases[k]->count; i++, n++) {
            entries[n].at = &bases[k]->tensors[i];
            entries[n].name = entries[n].at->name;
            entries[n].core = core_of(entries[n].name);
            entries[n].elsewhere = k != own;
            entries[n].base = k;
        }
    }
    qsort(entries, n, sizeof *entries, in_order);
    p->count = model->count;
    for (i = 0; i < p->count; i++) p->list[i] = pair_of(&model->tensors[i], renamed(model->tensors[i].name, r, room), entries, n);
    free(entries);
    free(room);
    add_up(p);
    p->found = p->used;
    p->found_bytes = p->used_bytes;
    return 0;
}

void pairs_free(pairs *p)
{
    free(p->list);
    memset(p, 0, sizeof *p);
}

/* ================================================================================= SAMPLES */

/* SAMPLE: elements of a sample; a delta of more elements is at most 2 % smaller per element. ENOUGH: samples that show what a
 * tensor gains, if it has at least JUDGED_LEAST bytes, so that the cost of a frame does not matter. LITTLE: a base that saves
 * less than 1 / LITTLE of a file is not worth keeping. Buffers and biases that are equal in all models save as much. */
enum { SAMPLE = 16384, SAMPLES_LEAST = 32, SAMPLES_MOST = 4096, ENOUGH = 4, JUDGED_LEAST = 65536, LITTLE = 1000 };

typedef struct sample {
    size_t tensor;
    bitsnap_dtype dtype;
    uint64_t count;
    uint64_t begin;              /* byte of the data */
    file_range range;            /* of the base */
    size_t alone, against;       /* bytes of the frames without and with the base; `against` 0: encoding failed */
} sample;

/* Samples that are coded in parallel. */
typedef struct batch {
    const codec *c;
    sample *list;
    size_t room;           /* bytes of a sample, at most */
    size_t bound;          /* bytes of a frame of it */
    size_t workspace;      /* bytes */
    uint8_t *elements;     /* for each sample: its elements, and those of the base */
    uint8_t *frames;       /* for each worker: a frame and a workspace */
} batch;

static void code_sample(void *argument, uint64_t index, unsigned worker)
{
    const batch *b = (const batch *)argument;
    sample *s = &b->list[index];
    uint8_t *elements = b->elements + 2 * index * b->room, *frame = b->frames + worker * (b->bound + b->workspace);
    bitsnap coder = { 0 };
    coder.workspace = frame + b->bound;
    coder.workspace_size = b->workspace;
    coder.level = b->c->b.level;
    coder.flags = b->c->b.flags;
    coder.block_log2 = 16;
    if (bitsnap_encode(&coder, frame, b->bound, &s->alone, elements, s->count, s->dtype)) return;
    coder.base.data = elements + b->room;
    coder.base.count = s->count;
    coder.base.dtype = s->range.dtype;
    if (bitsnap_encode(&coder, frame, b->bound, &s->against, elements, s->count, s->dtype)) s->against = 0;
}

/* Reads and codes samples. */
static int code_batch(batch *b, size_t count, input *in, uint64_t data_begin, const file_base *base, fault *f)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const sample *s = &b->list[i];
        const unsigned width = bitsnap_width(s->dtype), base_width = bitsnap_width(s->range.dtype);
        const size_t size = (size_t)s->count * width, base_size = (size_t)s->count * base_width;
        uint8_t *elements = b->elements + 2 * i * b->room;
        size_t got;
        if (input_seek(in, data_begin + s->begin, f) || input_read(in, elements, size, &got, f)) return 1;
        if (got < size) return fault_set(f, "ended early while it was read");
        if (file_base_read(base, &s->range, elements + b->room, base_size, f)) return 1;
        swap_elements(elements, size, width);
        swap_elements(elements + b->room, base_size, base_width);
    }
    pool_run(b->c->threads, code_sample, b, count);
    return 0;
}

/* Sums over the samples of a tensor. */
typedef struct verdict {
    uint64_t sampled, alone, against;
    unsigned samples;
} verdict;

static void note_batch(const batch *b, size_t count, verdict *verdicts)
{
    enum { MORE = 30 }; /* bytes that a base adds to a frame even if no block uses it: an extension and two hashes */
    size_t i;
    for (i = 0; i < count; i++) {
        const sample *s = &b->list[i];
        verdict *v = &verdicts[s->tensor];
        if (!s->against) continue;
        v->sampled += s->count * bitsnap_width(s->dtype);
        v->alone += s->alone;
        v->against += s->against > MORE ? s->against - MORE : 0;
        v->samples++;
    }
}

/* Returns the number of samples of a tensor: one for every `step` bytes of the data, or enough for all of it. */
static uint64_t samples_of(uint64_t begin, uint64_t end, uint64_t step, uint64_t window)
{
    return step <= window ? (end - begin + window - 1) / window : end / step - begin / step;
}

/* Returns 1 if the samples of a tensor show no gain, but are too few to judge it. */
static int is_open(const verdict *v, uint64_t bytes)
{
    return v->samples && v->samples < ENOUGH && v->against >= v->alone && v->sampled < bytes && bytes >= JUDGED_LEAST;
}

/* Codes samples of all tensors; with `more`, further ones of those that have too few. */
static int sample_all(pairs *p, batch *b, size_t most, input *in, const safetensors *model, const file_base *base,
                      verdict *verdicts, int more, fault *f)
{
    const uint64_t data_begin = in->offset;
    uint64_t at = 0, all;
    size_t i, n = 0;
    for (i = 0; i < p->count; i++) {
        const tensor *t = &model->tensors[i], *old = p->list[i].other;
        const bitsnap_dtype dtype = bitsnap_tensor_codec(t);
        const unsigned width = bitsnap_width(dtype);
        const uint64_t bytes = p->list[i].bytes, window = (uint64_t)SAMPLE * width;
        uint64_t k, step = p->used_bytes / SAMPLES_LEAST;
        if (p->list[i].kind != PAIR_FOUND || !bytes) continue;
        if (step > 256 * window) step = 256 * window;
        if (step < p->used_bytes / SAMPLES_MOST) step = p->used_bytes / SAMPLES_MOST;
        all = !more ? samples_of(at, at + bytes, step, window) : is_open(&verdicts[i], bytes) ? ENOUGH : 0;
        at += bytes;
        for (k = 0; k < all; k++) {
            sample *s = &b->list[n];
            const uint64_t size = bytes < window ? bytes : window;
            const uint64_t begin = step <= window && !more ? k * window : (bytes - size) / all * k + (bytes - size) / all / 2;
            memset(s, 0, sizeof *s);
            s->tensor = i;
            s->dtype = dtype;
            s->range.base = p->list[i].base;
            s->range.dtype = bitsnap_tensor_codec(old);
            s->count = (bytes - begin / width * width < size ? bytes - begin / width * width : size) / width;
            s->begin = t->begin + begin / width * width;
            s->range.begin = old->begin + begin / width * bitsnap_width(s->range.dtype);
            if (++n < most) continue;
            if (code_batch(b, n, in, data_begin, base, f)) return 1;
            note_batch(b, n, verdicts);
            n = 0;
        }
    }
    if (n && code_batch(b, n, in, data_begin, base, f)) return 1;
    note_batch(b, n, verdicts);
    return input_seek(in, data_begin, f);
}

static void judge(pairs *p, const verdict *verdicts)
{
    uint64_t saved = 0;
    size_t i;
    for (i = 0; i < p->count; i++) {
        const verdict *v = &verdicts[i];
        p->sampled += v->sampled;
        p->alone += v->alone;
        if (v->against < v->alone) saved += v->alone - v->against;
    }
    for (i = 0; i < p->count && p->sampled; i++) {
        const uint64_t bytes = p->list[i].bytes;
        const verdict *v = &verdicts[i];
        const int enough = v->samples >= ENOUGH || v->sampled == bytes;
        if (p->list[i].kind != PAIR_FOUND) continue;
        if (saved <= p->alone / LITTLE || (bytes >= JUDGED_LEAST && enough && v->against >= v->alone))
            p->list[i].kind = PAIR_NO_GAIN;
    }
    add_up(p);
}

int pairs_sample(pairs *p, codec *c, input *in, const safetensors *model, const file_base *base, fault *f)
{
    const unsigned workers = c->b.workers;
    const size_t most = workers > 1 ? 4 * (size_t)workers : 1;
    verdict *verdicts;
    batch b;
    bitsnap delta;
    int failed;
    if (!p->used_bytes || !in->regular) return 0;
    memset(&b, 0, sizeof b);
    b.c = c;
    b.room = SAMPLE * 8;
    memset(&delta, 0, sizeof delta);
    delta.base.data = p;
    delta.base.dtype = BITSNAP_F64;
    b.bound = bitsnap_bound(&delta, SAMPLE, BITSNAP_F64);
    b.workspace = bitsnap_workspace_size(&delta, SAMPLE, BITSNAP_F64);
    b.list = (sample *)calloc(most, sizeof *b.list);
    b.elements = (uint8_t *)malloc(2 * most * b.room);
    b.frames = (uint8_t *)malloc(workers * (b.bound + b.workspace));
    verdicts = (verdict *)calloc(p->count, sizeof *verdicts);
    failed = !b.list || !b.elements || !b.frames || !verdicts ? fault_memory(f)
             : sample_all(p, &b, most, in, model, base, verdicts, 0, f) ||
               sample_all(p, &b, most, in, model, base, verdicts, 1, f);
    if (!failed) judge(p, verdicts);
    free(b.list);
    free(b.elements);
    free(b.frames);
    free(verdicts);
    return failed;
}

unsigned pairs_number(pairs *p, unsigned *numbers, unsigned count)
{
    unsigned k, n = 0;
    size_t i;
    for (k = 0; k < count; k++) numbers[k] = count;
    for (i = 0; i < p->count; i++)
        if (p->list[i].kind == PAIR_FOUND && p->list[i].bytes) numbers[p->list[i].base] = 0;
    for (k = 0; k < count; k++)
        if (!numbers[k]) numbers[k] = n++;
    for (i = 0; i < p->count; i++)
        if (p->list[i].kind == PAIR_FOUND) p->list[i].base = numbers[p->list[i].base];
    return n;
}

uint64_t pairs_alone(const pairs *p)
{
    return p->sampled ? (uint64_t)((double)p->alone / (double)p->sampled * (double)p->used_bytes) : 0;
}

/* ================================================================================= OUTPUT */

static const char *const reasons[] = { "not_in_base", "other_shape", "other_dtype", "no_gain" };

static void print_slice(FILE *to, text_slice s) { (void)print_text(to, s.at, s.size); }

/* "BF16 [2,3]" */
static void print_kind(FILE *to, const tensor *t)
{
    uint64_t dimension;
    size_t at = 0;
    char mark = '[';
    print_slice(to, t->dtype);
    (void)putc(' ', to);
    for (; bitsnap_shape_next(t->shape, &at, &dimension); mark = ',') (void)fprintf(to, "%c%llu", mark, (unsigned long long)dimension);
    (void)fputs(mark == '[' ? "[]" : "]", to);
}

static void print_kinds(FILE *to, const tensor *t, const tensor *old)
{
    (void)fputs(" is ", to);
    print_kind(to, t);
    (void)fputs(", in the base ", to);
    print_kind(to, old);
}

static int is_renamed(const tensor *t, const tensor *old) { return bitsnap_slice_compare(t->name, old->name) != 0; }
static int is_resized(const tensor *t, const tensor *old) { return !bitsnap_shape_same(t->shape, old->shape); }

/* Prints how a tensor and its partner differ in name or shape. */
static void print_unlike(FILE *to, const pair *x, const tensor *t)
{
    print_slice(to, t->name);
    if (is_renamed(t, x->other)) {
        (void)fputs(" is ", to);
        print_slice(to, x->other->name);
        (void)fputs(" in the base", to);
    }
    if (is_resized(t, x->other)) {
        uint64_t rows, old_rows;
        const uint64_t both = common_rows(t, x->other, &rows, &old_rows);
        if (is_renamed(t, x->other)) (void)putc(',', to);
        print_kinds(to, t, x->other);
        (void)fprintf(to, ": the first %llu rows have a partner", (unsigned long long)both);
    }
}

void pairs_print(const pairs *p, FILE *to, const char *path, const safetensors *model)
{
    size_t i;
    for (i = 0; i < p->count; i++) {
        const tensor *t = &model->tensors[i], *old = p->list[i].other;
        const pair_kind kind = p->list[i].kind;
        if (kind == PAIR_FOUND && !is_renamed(t, old) && !is_resized(t, old)) continue;
        (void)print_text(to, path, strlen(path));
        (void)fputs(kind == PAIR_FOUND ? ": " : ": without the base: ", to);
        if (kind == PAIR_FOUND) print_unlike(to, &p->list[i], t);
        else print_slice(to, t->name);
        if (kind == PAIR_ABSENT) (void)fputs(": the base has no such tensor", to);
        if (kind == PAIR_NO_GAIN) (void)fputs(": in samples the base does not help", to);
        if (kind == PAIR_SHAPE || kind == PAIR_DTYPE) print_kinds(to, t, old);
        (void)putc('\n', to);
    }
}

/* Writes the tensors whose partners differ in name or shape (`found`), or those without a partner. */
static void json_tensors(const pairs *p, json *j, const safetensors *model, int found)
{
    size_t i;
    json_begin(j, '[');
    for (i = 0; i < p->count; i++) {
        const tensor *t = &model->tensors[i], *old = p->list[i].other;
        if ((p->list[i].kind == PAIR_FOUND) != found || (found && !is_renamed(t, old) && !is_resized(t, old))) continue;
        json_begin(j, '{');
        json_member_text(j, "name", t->name.at, t->name.size);
        if (!found) json_member_string(j, "why", reasons[p->list[i].kind]);
        if (old) {
            json_member_text(j, "base_name", old->name.at, old->name.size);
            json_member_text(j, "base_dtype", old->dtype.at, old->dtype.size);
        }
        if (found) json_member_whole(j, "bytes", p->list[i].bytes);
        json_end(j, '}');
    }
    json_end(j, ']');
}

void pairs_json(const pairs *p, json *j, const safetensors *model, uint64_t against)
{
    json_name(j, "partners");
    json_begin(j, '{');
    json_member_whole(j, "tensors", p->found);
    json_member_whole(j, "bytes", p->found_bytes);
    json_member_whole(j, "used_tensors", p->used);
    json_member_whole(j, "used_bytes", p->used_bytes);
    json_member_whole(j, "against_base_bytes", against);
    json_end(j, '}');
    json_name(j, "unlike_partner");
    json_tensors(p, j, model, 1);
    json_name(j, "without_partner");
    json_tensors(p, j, model, 0);
}
