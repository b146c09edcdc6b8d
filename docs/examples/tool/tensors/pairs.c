/* pairs.c - which tensors of a file have a partner in the base, and whether that helps.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "pairs.h"

#include <stdlib.h>
#include <string.h>

/* ================================================================================= NAMES */

static int is_named(text_slice s, const char *name) { return s.size == strlen(name) && !memcmp(s.at, name, s.size); }

/* Whether `old`, of the same shape, is what `t` was before, or the master copy of it. */
static int fits(const tensor *t, const tensor *old)
{
    const uint64_t bytes = t->end - t->begin;
    if (!bitsnap_slice_compare(t->dtype, old->dtype)) return old->end - old->begin == bytes;
    return (is_named(t->dtype, "F16") || is_named(t->dtype, "BF16")) && is_named(old->dtype, "F32") &&
           (old->end - old->begin) / 2 == bytes;
}

static int is_like(const tensor *t, const tensor *old) { return bitsnap_shape_same(t->shape, old->shape) && fits(t, old); }

/* The order of names read from their ends: those that end alike stand together. */
static int compare_ends(text_slice a, text_slice b)
{
    const size_t both = a.size < b.size ? a.size : b.size;
    size_t i;
    for (i = 1; i <= both; i++) {
        const unsigned char x = (unsigned char)a.at[a.size - i], y = (unsigned char)b.at[b.size - i];
        if (x != y) return x < y ? -1 : 1;
    }
    return (a.size > b.size) - (a.size < b.size);
}

static int order_of_ends(const void *a, const void *b)
{
    return compare_ends((*(const tensor *const *)a)->name, (*(const tensor *const *)b)->name);
}

static int is_mark(char c) { return c == '.' || c == '/'; }

/* A tensor of the base whose name is that of `t` behind a prefix. Of several none: they are not the same tensor. */
static const tensor *with_prefix(const tensor *t, const tensor **ends, size_t count)
{
    const tensor *found = NULL;
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (compare_ends(ends[middle]->name, t->name) <= 0) low = middle + 1;
        else high = middle;
    }
    for (; low < count; low++) {
        const text_slice name = ends[low]->name;
        const size_t more = name.size - t->name.size;
        if (name.size <= t->name.size || memcmp(name.at + more, t->name.at, t->name.size)) break;
        if (!is_mark(name.at[more - 1]) || !is_like(t, ends[low])) continue;
        if (found) return NULL;
        found = ends[low];
    }
    return found;
}

/* One whose name is that of `t` without a prefix. */
static const tensor *without_prefix(const tensor *t, const tensor **names, size_t count)
{
    text_slice name = t->name;
    unsigned segments;
    for (segments = 0; segments < 16; segments++) {
        const tensor *old;
        while (name.size && !is_mark(*name.at)) name.at++, name.size--;
        if (!name.size) break;
        name.at++, name.size--;
        old = bitsnap_tensor_find(names, count, name);
        if (old && is_like(t, old)) return old;
    }
    return NULL;
}

static pair pair_of(const tensor *t, const tensor **names, const tensor **ends, size_t count)
{
    pair x;
    x.other = bitsnap_tensor_find(names, count, t->name);
    if (x.other) {
        x.kind = !bitsnap_shape_same(t->shape, x.other->shape) ? PAIR_SHAPE : fits(t, x.other) ? PAIR_FOUND : PAIR_DTYPE;
    } else {
        x.other = t->name.size ? with_prefix(t, ends, count) : NULL;
        if (!x.other) x.other = without_prefix(t, names, count);
        x.kind = x.other ? PAIR_RENAMED : PAIR_ABSENT;
    }
    return x;
}

static void add_up(pairs *p, const safetensors *model)
{
    size_t i;
    p->used = 0;
    p->used_bytes = 0;
    for (i = 0; i < p->count; i++) {
        if (p->list[i].kind != PAIR_FOUND) continue;
        p->used++;
        p->used_bytes += model->tensors[i].end - model->tensors[i].begin;
    }
}

int pairs_find(pairs *p, const safetensors *model, const safetensors *base, fault *f)
{
    const tensor **names = bitsnap_tensors_by_name(base), **ends = bitsnap_tensors_by_name(base);
    size_t i;
    memset(p, 0, sizeof *p);
    p->list = (pair *)calloc(model->count + 1, sizeof *p->list);
    if (p->list && names && ends) {
        p->count = model->count;
        if (base->count) qsort((void *)ends, base->count, sizeof *ends, order_of_ends);
        for (i = 0; i < p->count; i++) p->list[i] = pair_of(&model->tensors[i], names, ends, base->count);
        add_up(p, model);
        p->found = p->used;
        p->found_bytes = p->used_bytes;
    }
    free((void *)names);
    free((void *)ends);
    return p->count == model->count && p->list ? 0 : fault_memory(f);
}

void pairs_free(pairs *p)
{
    free(p->list);
    memset(p, 0, sizeof *p);
}

/* ================================================================================= SAMPLES */

/* Of so many elements a delta comes out as small as of many, to 2 %. So many samples of a tensor, or all of it, tell what it
 * gains, if a frame of its own costs nothing beside it. A base that saves less than one part in LITTLE of a file is not worth
 * keeping: buffers and biases that are the same in every model save as much. */
enum { SAMPLE = 16384, SAMPLES_LEAST = 32, SAMPLES_MOST = 4096, ENOUGH = 4, JUDGED_LEAST = 65536, LITTLE = 1000 };

typedef struct sample {
    size_t tensor;
    bitsnap_dtype dtype, base_dtype;
    uint64_t count;
    uint64_t begin, base_begin;  /* bytes of the data */
    size_t alone, against;       /* bytes of the frames; `against` 0: it failed */
} sample;

/* Samples that are coded side by side. */
typedef struct batch {
    const codec *c;
    sample *list;
    size_t room;           /* bytes of a sample, at most */
    size_t bound;          /* bytes of a frame of it */
    size_t workspace;      /* bytes */
    uint8_t *elements;     /* of each sample, and of its base */
    uint8_t *frames;       /* of each worker: a frame and a workspace */
} batch;

static void code_sample(void *argument, uint64_t index, unsigned worker)
{
    const batch *b = (const batch *)argument;
    sample *s = &b->list[index];
    uint8_t *elements = b->elements + 2 * index * b->room, *frame = b->frames + worker * (b->bound + b->workspace);
    bitsnap codec;
    memset(&codec, 0, sizeof codec);
    codec.workspace = frame + b->bound;
    codec.workspace_size = b->workspace;
    codec.level = b->c->b.level;
    codec.flags = b->c->b.flags;
    codec.block_log2 = 16;
    if (bitsnap_encode(&codec, frame, b->bound, &s->alone, elements, s->count, s->dtype)) return;
    codec.base.data = elements + b->room;
    codec.base.count = s->count;
    codec.base.dtype = s->base_dtype;
    if (bitsnap_encode(&codec, frame, b->bound, &s->against, elements, s->count, s->dtype)) s->against = 0;
}

/* Reads samples, and codes them. */
static int code_batch(batch *b, size_t count, input *in, uint64_t data_begin, const file_base *base, fault *f)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const sample *s = &b->list[i];
        const unsigned width = bitsnap_width(s->dtype), base_width = bitsnap_width(s->base_dtype);
        const size_t size = (size_t)s->count * width, base_size = (size_t)s->count * base_width;
        uint8_t *elements = b->elements + 2 * i * b->room;
        size_t got;
        if (input_seek(in, data_begin + s->begin, f) || input_read(in, elements, size, &got, f)) return 1;
        if (got < size) return fault_set(f, "ended early, while it was read");
        memcpy(elements + b->room, base->data + s->base_begin, base_size);
        swap_elements(elements, size, width);
        swap_elements(elements + b->room, base_size, base_width);
    }
    pool_run(b->c->threads, code_sample, b, count);
    return 0;
}

/* What the samples of a tensor say. */
typedef struct verdict {
    uint64_t sampled, alone, against;
    unsigned samples;
} verdict;

static void note_batch(const batch *b, size_t count, verdict *verdicts)
{
    enum { MORE = 30 }; /* bytes of a frame with a base in which nothing is coded against it: an extension, two hashes */
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

/* How many samples a tensor has: one for every `step` bytes of the data, or all of it. */
static uint64_t samples_of(uint64_t begin, uint64_t end, uint64_t step, uint64_t window)
{
    return step <= window ? (end - begin + window - 1) / window : end / step - begin / step;
}

/* Whether the samples of a tensor say that it gains nothing, but are too few for that. */
static int is_open(const verdict *v, uint64_t bytes)
{
    return v->samples && v->samples < ENOUGH && v->against >= v->alone && v->sampled < bytes && bytes >= JUDGED_LEAST;
}

/* Samples of all tensors; `more`: of those that have too few. */
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
        const uint64_t bytes = t->end - t->begin, window = (uint64_t)SAMPLE * width;
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
            s->base_dtype = bitsnap_tensor_codec(old);
            s->count = (bytes - begin / width * width < size ? bytes - begin / width * width : size) / width;
            s->begin = t->begin + begin / width * width;
            s->base_begin = old->begin + begin / width * bitsnap_width(s->base_dtype);
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

static void judge(pairs *p, const safetensors *model, const verdict *verdicts)
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
        const uint64_t bytes = model->tensors[i].end - model->tensors[i].begin;
        const verdict *v = &verdicts[i];
        const int enough = v->samples >= ENOUGH || v->sampled == bytes;
        if (p->list[i].kind != PAIR_FOUND) continue;
        if (saved <= p->alone / LITTLE || (bytes >= JUDGED_LEAST && enough && v->against >= v->alone))
            p->list[i].kind = PAIR_NO_GAIN;
    }
    add_up(p, model);
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
    if (!failed) judge(p, model, verdicts);
    free(b.list);
    free(b.elements);
    free(b.frames);
    free(verdicts);
    return failed;
}

uint64_t pairs_alone(const pairs *p)
{
    return p->sampled ? (uint64_t)((double)p->alone / (double)p->sampled * (double)p->used_bytes) : 0;
}

/* ================================================================================= OUTPUT */

static const char *const reasons[] = { "not_in_base", "renamed", "other_shape", "other_dtype", "no_gain" };

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

void pairs_print(const pairs *p, FILE *to, const char *path, const safetensors *model)
{
    size_t i;
    for (i = 0; i < p->count; i++) {
        const tensor *t = &model->tensors[i], *old = p->list[i].other;
        if (p->list[i].kind == PAIR_FOUND) continue;
        (void)print_text(to, path, strlen(path));
        (void)fputs(": without the base: ", to);
        print_slice(to, t->name);
        switch (p->list[i].kind) {
        case PAIR_ABSENT: (void)fputs(": the base has no such tensor", to); break;
        case PAIR_RENAMED:
            (void)fputs(": the base has no such tensor, but ", to);
            print_slice(to, old->name);
            (void)fputs(", which is like it", to);
            break;
        case PAIR_NO_GAIN: (void)fputs(": samples are no smaller with that of the base", to); break;
        default:
            (void)fputs(" is ", to);
            print_kind(to, t);
            (void)fputs(", in the base ", to);
            print_kind(to, old);
        }
        (void)putc('\n', to);
    }
}

void pairs_json(const pairs *p, json *j, const safetensors *model, uint64_t against)
{
    size_t i;
    json_name(j, "partners");
    json_begin(j, '{');
    json_member_whole(j, "tensors", p->found);
    json_member_whole(j, "bytes", p->found_bytes);
    json_member_whole(j, "used_tensors", p->used);
    json_member_whole(j, "used_bytes", p->used_bytes);
    json_member_whole(j, "against_base_bytes", against);
    json_end(j, '}');
    json_name(j, "without_partner");
    json_begin(j, '[');
    for (i = 0; i < p->count; i++) {
        const tensor *t = &model->tensors[i], *old = p->list[i].other;
        if (p->list[i].kind == PAIR_FOUND) continue;
        json_begin(j, '{');
        json_name(j, "name");
        json_text(j, t->name.at, t->name.size);
        json_member_string(j, "why", reasons[p->list[i].kind]);
        if (old) {
            json_name(j, "base_name");
            json_text(j, old->name.at, old->name.size);
            json_name(j, "base_dtype");
            json_text(j, old->dtype.at, old->dtype.size);
        }
        json_end(j, '}');
    }
    json_end(j, ']');
}
