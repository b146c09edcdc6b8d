/* references.c - which tensors of a file are equal to earlier ones of the same file, or are what these round to.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "references.h"

#include <stdlib.h>
#include <string.h>

/* A sample: some neighbours at a few places. Their places depend on the number of elements alone, so samples of tensors of different dtypes
 * can be compared. */
enum { PLACES = 4, NEIGHBOURS = 8, SAMPLED = PLACES * NEIGHBOURS, WIDEST = 4 };
enum { PARTS = 8 }; /* parts of a name, from its end on, that are compared at most */
enum { LOOKED_AT = 16 }; /* candidates of one key, at most, so that no file can make this slow */

typedef struct look {
    uint8_t sample[SAMPLED * WIDEST]; /* as the file has it; of wider elements the first bytes */
    uint64_t id;         /* of all bytes; has_id: once it is known */
    unsigned char has_sample, has_id, is_constant;
} look;

/* A tensor by what its partner must have, too. */
typedef struct entry {
    uint64_t key;
    size_t tensor;
} entry;

typedef struct search {
    pairs *p;
    const safetensors *model;
    const input *in;
    uint64_t data;       /* byte of the file where the data begin */
    const unsigned char *skip;
    int halves, wholes;  /* there are tensors of F16 or BF16, and of F32: only then names tell anything */
    look *looks;
    entry *entries;
    size_t count;
} search;

static unsigned width_of(const tensor *t) { return bitsnap_width(bitsnap_tensor_codec(t)); }
static uint64_t bytes_of(const tensor *t) { return t->end - t->begin; }
static uint64_t count_of(const tensor *t) { return bytes_of(t) / width_of(t); }

static int is_half(const tensor *t) { return bitsnap_tensor_has_octaves(t) && width_of(t) == 2; }
static int is_single(const tensor *t) { return bitsnap_tensor_has_octaves(t) && width_of(t) == 4; }

/* Whether a tensor can take part: a sample of it is no smaller than it is. */
static int takes_part(const search *s, size_t i)
{
    const tensor *t = &s->model->tensors[i];
    return count_of(t) >= NEIGHBOURS && bytes_of(t) % width_of(t) == 0 && !(s->skip && s->skip[i]);
}

/* ================================================================================= SAMPLES */

static int read_sample(search *s, size_t i, fault *f)
{
    const tensor *t = &s->model->tensors[i];
    const unsigned width = width_of(t), part = width < WIDEST ? width : WIDEST;
    const uint64_t last = count_of(t) - NEIGHBOURS;
    look *l = &s->looks[i];
    uint8_t bytes[NEIGHBOURS * 8];
    size_t k, j;
    for (k = 0; k < PLACES; k++) {
        const uint64_t at = last / (PLACES - 1) * k + last % (PLACES - 1) * k / (PLACES - 1);
        if (input_get(s->in, s->data + t->begin + at * width, bytes, (size_t)NEIGHBOURS * width)) return fault_errno(f, "cannot be read");
        for (j = 0; j < NEIGHBOURS; j++) memcpy(l->sample + (k * NEIGHBOURS + j) * part, bytes + j * width, part);
    }
    l->has_sample = 1;
    l->is_constant = !memcmp(l->sample, l->sample + part, (size_t)(SAMPLED - 1) * part);
    return 0;
}

static size_t sample_size(const tensor *t) { return SAMPLED * (size_t)(width_of(t) < WIDEST ? width_of(t) : WIDEST); }

static double number_of(const uint8_t *p, unsigned width, int is_bf16)
{
    const uint32_t bits = width == 4 ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
                                     : ((uint32_t)p[0] | (uint32_t)p[1] << 8) << 16;
    const int exponent = (int)(bits >> 26 & 31);
    const double mantissa = (double)(bits >> 16 & 1023);
    float x;
    if (width == 4 || is_bf16) {
        memcpy(&x, &bits, sizeof x);
        return (double)x;
    }
    return (bits >> 31 ? -1.0 : 1.0) * (exponent ? (1024 + mantissa) * (double)(1u << exponent) : 2 * mantissa) / 33554432; /* 2^25 */
}

static double size_of(double x) { return x < 0 ? -x : x; }

/* Whether the sample of one tensor, of F16 or BF16, is what that of the other, of F32, rounds to, up or down: all but a few elements. */
static int rounds_to(const search *s, size_t half, size_t whole)
{
    const int is_bf16 = bitsnap_tensor_codec(&s->model->tensors[half]) == BITSNAP_BF16;
    size_t k, near = 0;
    for (k = 0; k < SAMPLED; k++) {
        const double x = number_of(s->looks[half].sample + 2 * k, 2, is_bf16), y = number_of(s->looks[whole].sample + 4 * k, 4, 0);
        near += size_of(x - y) <= size_of(x) / (is_bf16 ? 128 : 1024) || (!is_bf16 && size_of(x - y) < 6e-8); /* 2^-24: subnormal numbers */
    }
    return near >= SAMPLED - SAMPLED / 8;
}

/* ================================================================================= KEYS */

static uint64_t mixed(uint64_t a, uint64_t b, uint64_t c)
{
    const uint64_t all[3] = { a, b, c };
    return bitsnap_hash(all, sizeof all);
}

/* The key of equal tensors: dtype, size and sample. */
static uint64_t equal_key(const search *s, size_t i)
{
    const tensor *t = &s->model->tensors[i];
    return mixed(bitsnap_hash(t->dtype.at, t->dtype.size), bytes_of(t), bitsnap_hash(s->looks[i].sample, sample_size(t)));
}

static int ends_part(char c) { return c == '.' || c == '/'; }

/* The keys of a name: of its ends, which begin with a part of it, and the number of elements; the longest first. `size` bytes of the name count:
 * all, or all without its last part. */
static size_t name_keys(const tensor *t, size_t size, uint64_t keys[PARTS])
{
    size_t at = size, n = 0, i;
    while (at && n < PARTS) {
        at--;
        if (at && !ends_part(t->name.at[at - 1])) continue;
        if (size - at < 2) continue;
        keys[n++] = mixed(1, count_of(t), bitsnap_hash(t->name.at + at, size - at));
    }
    for (i = 0; i < n / 2; i++) {
        const uint64_t x = keys[i];
        keys[i] = keys[n - 1 - i];
        keys[n - 1 - i] = x;
    }
    return n;
}

static size_t without_last_part(const tensor *t)
{
    size_t size = t->name.size;
    while (size && !ends_part(t->name.at[size - 1])) size--;
    return size ? size - 1 : 0;
}

/* All keys of a tensor: of its bytes, of its name and, of F32, of its name without its last part (layer.weight.master). */
static size_t keys_of(const search *s, size_t i, uint64_t keys[1 + 2 * PARTS])
{
    const tensor *t = &s->model->tensors[i];
    size_t n = 0;
    if (!s->looks[i].is_constant) keys[n++] = equal_key(s, i);
    if (!is_single(t) && !is_half(t)) return n;
    if (s->looks[i].is_constant || !s->halves || !s->wholes) return n;
    n += name_keys(t, t->name.size, keys + n);
    if (is_single(t)) n += name_keys(t, without_last_part(t), keys + n);
    return n;
}

static int by_key(const void *a, const void *b)
{
    const entry *x = (const entry *)a, *y = (const entry *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

/* ================================================================================= PARTNERS */

static int find_id(search *s, size_t i, fault *f)
{
    enum { WINDOW = 1 << 20, LEAVES = 4096 };
    const tensor *t = &s->model->tensors[i];
    look *l = &s->looks[i];
    uint8_t *window;
    uint64_t at, state[2] = { 0, 0 };
    int failed = 0;
    if (l->has_id) return 0;
    window = (uint8_t *)malloc(WINDOW);
    if (!window) return fault_memory(f);
    for (at = t->begin; at < t->end && !failed;) {
        const size_t n = t->end - at < WINDOW ? (size_t)(t->end - at) : (size_t)WINDOW;
        failed = input_get(s->in, s->data + at, window, n) && fault_errno(f, "cannot be read");
        state[1] = failed ? 0 : bitsnap_hash(window, n);
        state[0] = bitsnap_hash(state, sizeof state);
        at += n;
    }
    free(window);
    l->id = state[0];
    l->has_id = 1;
    return failed;
}

/* Whether samples say that two tensors are equal, or that one is what the other rounds to. */
static int look_alike(const search *s, size_t i, size_t k)
{
    const tensor *t = &s->model->tensors[i], *old = &s->model->tensors[k];
    if (count_of(t) != count_of(old) || !bitsnap_tensor_base(t, old)) return 0;
    if (width_of(t) != width_of(old)) return is_half(t) ? rounds_to(s, i, k) : rounds_to(s, k, i);
    return !memcmp(s->looks[i].sample, s->looks[k].sample, sample_size(t));
}

/* Whether tensor `i` can refer to the earlier tensor `k`. One of the same dtype has to have the same bytes. */
static int fits(search *s, size_t i, size_t k, int *does, fault *f)
{
    *does = s->p->list[k].kind != PAIR_FOUND && look_alike(s, i, k);
    if (!*does || width_of(&s->model->tensors[i]) != width_of(&s->model->tensors[k])) return 0;
    if (find_id(s, i, f) || find_id(s, k, f)) return 1;
    *does = s->looks[i].id == s->looks[k].id;
    return 0;
}

static void take(search *s, size_t i, size_t k)
{
    pair *x = &s->p->list[i];
    x->kind = PAIR_FOUND;
    x->other = &s->model->tensors[k];
    x->base = BITSNAP_BASE_ITSELF;
    x->bytes = bytes_of(&s->model->tensors[i]);
}

static int find_partner(search *s, size_t i, fault *f)
{
    uint64_t keys[1 + 2 * PARTS];
    const size_t n = keys_of(s, i, keys);
    size_t k;
    for (k = 0; k < n; k++) {
        size_t low = 0, high = s->count, looked = 0;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (s->entries[middle].key < keys[k]) low = middle + 1;
            else high = middle;
        }
        for (; low < s->count && s->entries[low].key == keys[k] && s->entries[low].tensor < i && looked < LOOKED_AT; low++, looked++) {
            int does;
            if (fits(s, i, s->entries[low].tensor, &does, f)) return 1;
            if (!does) continue;
            take(s, i, s->entries[low].tensor);
            return 0;
        }
    }
    return 0;
}

static int same_dtype(const tensor *a, const tensor *b) { return !bitsnap_slice_compare(a->dtype, b->dtype); }

/* A tensor of one value gains nothing by a partner. Without one, it would end the run of its neighbours. So if the tensor before it has a
 * partner, and the one after that partner has the same value, it takes that. */
static void join_constants(search *s)
{
    const tensor *tensors = s->model->tensors;
    const pair *list = s->p->list;
    size_t i, k, before = SIZE_MAX;
    for (i = 0; i < s->model->count; i++) {
        if (tensors[i].begin == tensors[i].end) continue;
        if (before != SIZE_MAX && list[before].kind == PAIR_FOUND && list[i].kind != PAIR_FOUND && s->looks[i].is_constant) {
            const tensor *other = list[before].other;
            for (k = (size_t)(other - tensors) + 1; k < i && tensors[k].begin == tensors[k].end; k++) continue;
            if (k < i && list[k].kind != PAIR_FOUND && s->looks[k].is_constant && same_dtype(&tensors[k], other) &&
                same_dtype(&tensors[i], &tensors[before]) && look_alike(s, i, k)) take(s, i, k);
        }
        before = i;
    }
}

/* ================================================================================= RUNS */

/* Whether the partner of a tensor begins where that of the tensor before it ends, so that both are in one frame. */
static int continues(const pairs *p, const safetensors *model, size_t before, size_t i)
{
    const pair *a = &p->list[before], *b = &p->list[i];
    return a->kind == PAIR_FOUND && b->kind == PAIR_FOUND && a->other->end == b->other->begin &&
           bitsnap_tensor_codec(a->other) == bitsnap_tensor_codec(b->other) &&
           bitsnap_tensor_codec(&model->tensors[before]) == bitsnap_tensor_codec(&model->tensors[i]);
}

/* Takes their partners from tensors that are too few elements for a frame of their own; then adds up what is left. */
static void drop_small_runs(pairs *p, const safetensors *model)
{
    uint64_t elements = 0;
    size_t i, first = 0, last = SIZE_MAX, k;
    for (i = 0; i <= model->count; i++) {
        if (i < model->count && model->tensors[i].begin == model->tensors[i].end) continue;
        if (i == model->count || last == SIZE_MAX || !continues(p, model, last, i)) {
            for (k = first; last != SIZE_MAX && k <= last && elements < BITSNAP_REFERENCE_LEAST; k++) p->list[k].kind = PAIR_ABSENT;
            first = i;
            elements = 0;
        }
        if (i < model->count && p->list[i].kind == PAIR_FOUND) elements += count_of(&model->tensors[i]);
        last = i;
    }
    for (i = 0; i < p->count; i++)
        if (p->list[i].kind == PAIR_FOUND) p->list[p->list[i].other - model->tensors].referred = 1;
    pairs_add_up(p);
    p->found = p->used;
    p->found_bytes = p->used_bytes;
}

static int find_all(search *s, fault *f)
{
    uint64_t keys[1 + 2 * PARTS];
    size_t i, k, n;
    for (i = 0; i < s->model->count; i++) {
        s->halves |= is_half(&s->model->tensors[i]);
        s->wholes |= is_single(&s->model->tensors[i]);
    }
    for (i = 0; i < s->model->count; i++) {
        if (!takes_part(s, i)) continue;
        if (read_sample(s, i, f)) return 1;
        s->count += keys_of(s, i, keys);
    }
    s->entries = (entry *)malloc((s->count + 1) * sizeof *s->entries);
    if (!s->entries) return fault_memory(f);
    for (i = 0, s->count = 0; i < s->model->count; i++) {
        n = s->looks[i].has_sample ? keys_of(s, i, keys) : 0;
        for (k = 0; k < n; k++) {
            s->entries[s->count].key = keys[k];
            s->entries[s->count++].tensor = i;
        }
    }
    qsort(s->entries, s->count, sizeof *s->entries, by_key);
    for (i = 0; i < s->model->count; i++)
        if (s->looks[i].has_sample && find_partner(s, i, f)) return 1;
    join_constants(s);
    drop_small_runs(s->p, s->model);
    return 0;
}

int references_find(pairs *p, const safetensors *model, uint64_t data, const input *in, const unsigned char *skip, fault *f)
{
    search s = { .p = p, .model = model, .in = in, .data = data, .skip = skip };
    int failed;
    memset(p, 0, sizeof *p);
    p->itself = 1;
    p->count = model->count;
    p->list = (pair *)calloc(model->count + 1, sizeof *p->list);
    s.looks = (look *)calloc(model->count + 1, sizeof *s.looks);
    failed = !p->list || !s.looks ? fault_memory(f) : find_all(&s, f);
    free(s.looks);
    free(s.entries);
    return failed;
}
