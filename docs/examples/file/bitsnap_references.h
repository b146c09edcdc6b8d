/* bitsnap_references.h - finds elements of a .safetensors file that equal earlier ones, exactly or after rounding one of them.
 * MIT licence, see bitsnap.h. Needs bitsnap_file.h. In exactly ONE .c (or .cpp) file write
 *
 *     #define BITSNAP_REFERENCES_IMPLEMENTATION
 *     #include "bitsnap_references.h"
 */
#ifndef BITSNAP_REFERENCES_H
#define BITSNAP_REFERENCES_H

#include "bitsnap_file.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Finds references in a file. `data` gives its data, in memory or by a callback: little-endian, byte 0 is the first byte of the
 * data. `skip` has a number for each tensor, or is null. 1: the tensor takes no part. 2: others may refer to it, but it does not
 * refer. *list is in the order of the data; the caller releases it with free().
 * A tensor refers to an earlier one
 *   - that has the same dtype, size and bytes, or
 *   - whose name has the same end, with as many elements, if one of the two is F32, the other is F16 or BF16, and samples show
 *     that it is the rounded F32.
 * With by_content, names do not matter: parts of the other tensors refer to earlier elements of which at least 7/8 are equal, of
 * the same dtype, or after rounding F32.
 * Adjacent references to adjacent bases make one frame. Together they have at least BITSNAP_REFERENCE_LEAST elements. Elements
 * that refer are never a base. A reference is a hint: some elements may differ. Time is linear for any content, except for
 * sorting. Reads samples, and whole tensors only if their samples are equal. by_content reads all data, and uses 4 MiB for a
 * table. BITSNAP_E_SOURCE: a read failed. BITSNAP_E_WORKSPACE: no memory. After these errors, and if *count is 0, *list may be
 * null. */
BITSNAP_API bitsnap_status bitsnap_references_find(bitsnap_reference **list, size_t *count, const bitsnap_safetensors *model,
                                                   const bitsnap_source *data, const unsigned char *skip, int by_content);

#ifdef __cplusplus
}
#endif
#endif

#if defined(BITSNAP_REFERENCES_IMPLEMENTATION) && !defined(BITSNAP_REFERENCES_IMPLEMENTED)
#define BITSNAP_REFERENCES_IMPLEMENTED

#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sample of a tensor: BSR_NEIGHBOURS elements at each of BSR_PLACES positions. The positions depend only on the number of
 * elements, so samples of tensors of different dtypes can be compared. */
enum { BSR_PLACES = 4, BSR_NEIGHBOURS = 8, BSR_SAMPLED = BSR_PLACES * BSR_NEIGHBOURS, BSR_WIDEST = 4 };
enum { BSR_PARTS = 8 };      /* most parts of a name, from its end, that are compared */
enum { BSR_KEYS = 1 + 2 * BSR_PARTS };
enum { BSR_LOOKED_AT = 16 }; /* most candidates of one key that are compared: bounds the time for hostile files */

typedef struct bsr_look {
    uint8_t sample[BSR_SAMPLED * BSR_WIDEST]; /* bytes as in the file; of wider elements the first ones */
    uint64_t id;        /* hash of all bytes, if has_id */
    unsigned char has_sample, has_id, is_constant;
    unsigned char refers; /* 1: some of its elements refer to others */
} bsr_look;

/* A tensor under one of its keys. Partners have a key in common. */
typedef struct bsr_entry {
    uint64_t key;
    size_t tensor;
} bsr_entry;

typedef struct bsr_search {
    const bitsnap_safetensors *model;
    const bitsnap_source *data;
    const unsigned char *skip;
    int halves, wholes;      /* 1: there are tensors of F16 or BF16; of F32. Names are used only if there are both */
    bsr_look *looks;
    bsr_entry *entries;
    size_t count;
    bitsnap_reference *list; /* in the order of the data */
    size_t found, capacity;
    bitsnap_status status;
} bsr_search;

static unsigned bsr_width(const bitsnap_tensor *t) { return bitsnap_width(bitsnap_tensor_codec(t)); }
static uint64_t bsr_bytes(const bitsnap_tensor *t) { return t->end - t->begin; }
static uint64_t bsr_count(const bitsnap_tensor *t) { return bsr_bytes(t) / bsr_width(t); }
static int bsr_is_half(const bitsnap_tensor *t) { return bitsnap_tensor_has_octaves(t) && bsr_width(t) == 2; }
static int bsr_is_single(const bitsnap_tensor *t) { return bitsnap_tensor_has_octaves(t) && bsr_width(t) == 4; }

static int bsr_fail(bsr_search *s, bitsnap_status status)
{
    s->status = status;
    return 1;
}

static int bsr_read(bsr_search *s, uint64_t at, void *to, size_t size)
{
    if (!s->data->read) memcpy(to, (const uint8_t *)s->data->data + at, size);
    return s->data->read && s->data->read(s->data->context, at, to, size) ? bsr_fail(s, BITSNAP_E_SOURCE) : 0;
}

/* Returns 1 if others may refer to a tensor, but it does not refer. */
static int bsr_only_base(const bsr_search *s, size_t i) { return s->skip && s->skip[i] == 2; }

/* Returns 1 if a tensor takes part. It must have enough elements for a sample. */
static int bsr_takes_part(const bsr_search *s, size_t i)
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    return bsr_count(t) >= BSR_NEIGHBOURS && bsr_bytes(t) % bsr_width(t) == 0 && !(s->skip && s->skip[i] == 1);
}

/* ================================================================================= SAMPLES */

static int bsr_read_sample(bsr_search *s, size_t i)
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    const unsigned width = bsr_width(t), part = width < BSR_WIDEST ? width : (unsigned)BSR_WIDEST;
    const uint64_t last = bsr_count(t) - BSR_NEIGHBOURS;
    bsr_look *l = &s->looks[i];
    uint8_t bytes[BSR_NEIGHBOURS * 8];
    size_t k, j;
    for (k = 0; k < BSR_PLACES; k++) {
        const uint64_t at = last / (BSR_PLACES - 1) * k + last % (BSR_PLACES - 1) * k / (BSR_PLACES - 1);
        if (bsr_read(s, t->begin + at * width, bytes, (size_t)BSR_NEIGHBOURS * width)) return 1;
        for (j = 0; j < BSR_NEIGHBOURS; j++) memcpy(l->sample + (k * BSR_NEIGHBOURS + j) * part, bytes + j * width, part);
    }
    l->has_sample = 1;
    l->is_constant = !memcmp(l->sample, l->sample + part, (size_t)(BSR_SAMPLED - 1) * part);
    return 0;
}

static size_t bsr_sample_size(const bitsnap_tensor *t)
{
    return BSR_SAMPLED * (size_t)(bsr_width(t) < BSR_WIDEST ? bsr_width(t) : (unsigned)BSR_WIDEST);
}

/* Returns the value of an F32, BF16 or F16 element. */
static double bsr_number(const uint8_t *p, unsigned width, int is_bf16)
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
    x = bits >> 31 ? -1.0f : 1.0f;
    return (double)x * (exponent ? (1024 + mantissa) * (double)(1u << exponent) : 2 * mantissa) / 33554432; /* 2^25 */
}

static double bsr_size(double x) { return x < 0 ? -x : x; }

/* Returns 1 if an F16 or BF16 element is the F32 element rounded up or down. */
static int bsr_rounds_to(const uint8_t *half, const uint8_t *whole, int is_bf16)
{
    const double x = bsr_number(half, 2, is_bf16), y = bsr_number(whole, 4, 0);
    const double distance = bsr_size(x - y);
    return distance <= bsr_size(x) / (is_bf16 ? 128 : 1024) || (!is_bf16 && distance < 6e-8); /* 2^-24: subnormal numbers */
}

/* Returns 1 if at least 7/8 of a sample are the other one rounded. */
static int bsr_samples_round(const bsr_search *s, size_t half, size_t whole)
{
    const int is_bf16 = bitsnap_tensor_codec(&s->model->tensors[half]) == BITSNAP_BF16;
    size_t k, near = 0;
    for (k = 0; k < BSR_SAMPLED; k++)
        near += (size_t)bsr_rounds_to(s->looks[half].sample + 2 * k, s->looks[whole].sample + 4 * k, is_bf16);
    return near >= BSR_SAMPLED - BSR_SAMPLED / 8;
}

/* ================================================================================= KEYS */

static uint64_t bsr_mixed(uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t all[3];
    all[0] = a;
    all[1] = b;
    all[2] = c;
    return bitsnap_hash(all, sizeof all);
}

/* Returns the key that equal tensors share: a hash of dtype, size and sample. */
static uint64_t bsr_equal_key(const bsr_search *s, size_t i)
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    return bsr_mixed(bitsnap_hash(t->dtype.at, t->dtype.size), bsr_bytes(t), bitsnap_hash(s->looks[i].sample, bsr_sample_size(t)));
}

static int bsr_ends_part(char c) { return c == '.' || c == '/'; }

/* Makes the keys of the first `size` bytes of a name, and returns their number. Each is a hash of the last parts of the name and
 * of the number of elements; the longest comes first. */
static size_t bsr_name_keys(const bitsnap_tensor *t, size_t size, uint64_t *keys)
{
    size_t at = size, n = 0, i;
    while (at && n < BSR_PARTS) {
        at--;
        if (at && !bsr_ends_part(t->name.at[at - 1])) continue;
        if (size - at < 2) continue;
        keys[n++] = bsr_mixed(1, bsr_count(t), bitsnap_hash(t->name.at + at, size - at));
    }
    for (i = 0; i < n / 2; i++) {
        const uint64_t x = keys[i];
        keys[i] = keys[n - 1 - i];
        keys[n - 1 - i] = x;
    }
    return n;
}

static size_t bsr_without_last_part(const bitsnap_tensor *t)
{
    size_t size = t->name.size;
    while (size && !bsr_ends_part(t->name.at[size - 1])) size--;
    return size ? size - 1 : 0;
}

/* Makes all keys of a tensor: of its bytes, of its name, and for F32 of its name without the last part (layer.weight.master). */
static size_t bsr_keys(const bsr_search *s, size_t i, uint64_t keys[BSR_KEYS])
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    size_t n = 0;
    if (s->looks[i].is_constant) return 0;
    keys[n++] = bsr_equal_key(s, i);
    if ((!bsr_is_single(t) && !bsr_is_half(t)) || !s->halves || !s->wholes) return n;
    n += bsr_name_keys(t, t->name.size, keys + n);
    if (bsr_is_single(t)) n += bsr_name_keys(t, bsr_without_last_part(t), keys + n);
    return n;
}

static int bsr_by_key(const void *a, const void *b)
{
    const bsr_entry *x = (const bsr_entry *)a, *y = (const bsr_entry *)b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->tensor > y->tensor) - (x->tensor < y->tensor);
}

static int bsr_sort_keys(bsr_search *s)
{
    uint64_t keys[BSR_KEYS];
    size_t i, k, n;
    for (i = 0; i < s->model->count; i++) {
        if (!bsr_takes_part(s, i)) continue;
        if (bsr_read_sample(s, i)) return 1;
        s->count += bsr_keys(s, i, keys);
    }
    s->entries = (bsr_entry *)malloc((s->count + 1) * sizeof *s->entries);
    if (!s->entries) return bsr_fail(s, BITSNAP_E_WORKSPACE);
    for (i = 0, s->count = 0; i < s->model->count; i++) {
        n = s->looks[i].has_sample ? bsr_keys(s, i, keys) : 0;
        for (k = 0; k < n; k++) {
            s->entries[s->count].key = keys[k];
            s->entries[s->count++].tensor = i;
        }
    }
    qsort(s->entries, s->count, sizeof *s->entries, bsr_by_key);
    return 0;
}

/* ================================================================================= PARTNERS */

static int bsr_find_id(bsr_search *s, size_t i)
{
    enum { WINDOW = 1 << 20 };
    const bitsnap_tensor *t = &s->model->tensors[i];
    bsr_look *l = &s->looks[i];
    uint8_t *window;
    uint64_t at, state[2] = { 0, 0 };
    int failed = 0;
    if (l->has_id) return 0;
    window = (uint8_t *)malloc(WINDOW);
    if (!window) return bsr_fail(s, BITSNAP_E_WORKSPACE);
    for (at = t->begin; at < t->end && !failed;) {
        const size_t n = t->end - at < WINDOW ? (size_t)(t->end - at) : (size_t)WINDOW;
        failed = bsr_read(s, at, window, n);
        state[1] = failed ? 0 : bitsnap_hash(window, n);
        state[0] = bitsnap_hash(state, sizeof state);
        at += n;
    }
    free(window);
    l->id = state[0];
    l->has_id = 1;
    return failed;
}

/* Returns 1 if, by their samples, two tensors are equal or one is the other rounded. */
static int bsr_look_alike(const bsr_search *s, size_t i, size_t k)
{
    const bitsnap_tensor *t = &s->model->tensors[i], *old = &s->model->tensors[k];
    if (bsr_count(t) != bsr_count(old) || !bitsnap_tensor_base(t, old)) return 0;
    if (bsr_width(t) != bsr_width(old)) return bsr_is_half(t) ? bsr_samples_round(s, i, k) : bsr_samples_round(s, k, i);
    return !memcmp(s->looks[i].sample, s->looks[k].sample, bsr_sample_size(t));
}

/* *does is 1 if tensor `i` can refer to the earlier tensor `k`. With the same dtype, all bytes must be equal. */
static int bsr_fits(bsr_search *s, size_t i, size_t k, int *does)
{
    *does = !s->looks[k].refers && bsr_look_alike(s, i, k);
    if (!*does || bsr_width(&s->model->tensors[i]) != bsr_width(&s->model->tensors[k])) return 0;
    if (bsr_find_id(s, i) || bsr_find_id(s, k)) return 1;
    *does = s->looks[i].id == s->looks[k].id;
    return 0;
}

static int bsr_add(bsr_search *s, size_t i, uint64_t first, uint64_t count, uint64_t base, bitsnap_dtype dtype)
{
    bitsnap_reference *r;
    if (s->found == s->capacity) {
        const size_t more = s->capacity ? 2 * s->capacity : 64;
        r = (bitsnap_reference *)realloc(s->list, more * sizeof *r);
        if (!r) return bsr_fail(s, BITSNAP_E_WORKSPACE);
        s->list = r;
        s->capacity = more;
    }
    r = &s->list[s->found++];
    r->tensor = i;
    r->first = first;
    r->count = count;
    r->base = base;
    r->base_dtype = (int)dtype;
    s->looks[i].refers = 1;
    return 0;
}

static int bsr_take(bsr_search *s, size_t i, size_t k)
{
    const bitsnap_tensor *t = &s->model->tensors[i], *old = &s->model->tensors[k];
    return bsr_add(s, i, 0, bsr_count(t), old->begin, bitsnap_tensor_codec(old));
}

static int bsr_find_partner(bsr_search *s, size_t i)
{
    uint64_t keys[BSR_KEYS];
    const size_t n = bsr_keys(s, i, keys);
    size_t k;
    for (k = 0; k < n; k++) {
        size_t low = 0, high = s->count, looked = 0;
        while (low < high) {
            const size_t middle = low + (high - low) / 2;
            if (s->entries[middle].key < keys[k]) low = middle + 1;
            else high = middle;
        }
        for (; low < s->count && looked < BSR_LOOKED_AT; low++, looked++) {
            int does;
            if (s->entries[low].key != keys[k] || s->entries[low].tensor >= i) break;
            if (bsr_fits(s, i, s->entries[low].tensor, &does)) return 1;
            if (does) return bsr_take(s, i, s->entries[low].tensor);
        }
    }
    return 0;
}

/* ================================================================================= RUNS */

static uint64_t bsr_begin(const bsr_search *s, const bitsnap_reference *r)
{
    const bitsnap_tensor *t = &s->model->tensors[r->tensor];
    return t->begin + r->first * bsr_width(t);
}

static uint64_t bsr_end(const bsr_search *s, const bitsnap_reference *r)
{
    return bsr_begin(s, r) + r->count * bsr_width(&s->model->tensors[r->tensor]);
}

static uint64_t bsr_base_end(const bitsnap_reference *r)
{
    return r->base + r->count * bitsnap_width((bitsnap_dtype)r->base_dtype);
}

/* Returns the tensor that has this byte of the data. */
static size_t bsr_tensor_at(const bsr_search *s, uint64_t byte)
{
    size_t low = 0, high = s->model->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (s->model->tensors[middle].end <= byte) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Gives a constant tensor a partner: the tensor after the partner of the one before it, if that has the same value. The tensor
 * itself gains nothing, but without a partner it would end the run of its neighbours. */
static int bsr_join_constant(bsr_search *s, size_t i)
{
    const bitsnap_tensor *tensors = s->model->tensors;
    const bitsnap_reference *last = s->found ? &s->list[s->found - 1] : NULL;
    size_t k;
    if (!last || bsr_end(s, last) != tensors[i].begin) return 0;
    k = bsr_tensor_at(s, bsr_base_end(last));
    if (k >= i || s->looks[k].refers || !s->looks[k].is_constant || tensors[k].begin != bsr_base_end(last)) return 0;
    if ((int)bitsnap_tensor_codec(&tensors[k]) != last->base_dtype) return 0;
    if (bitsnap_slice_compare(tensors[i].dtype, tensors[last->tensor].dtype)) return 0;
    return bsr_look_alike(s, i, k) ? bsr_take(s, i, k) : 0;
}

/* Returns 1 if reference b can continue the frame of reference a. */
static int bsr_continues(const bsr_search *s, const bitsnap_reference *a, const bitsnap_reference *b)
{
    const bitsnap_tensor *tensors = s->model->tensors;
    return bsr_end(s, a) == bsr_begin(s, b) && bsr_base_end(a) == b->base && a->base_dtype == b->base_dtype &&
           bitsnap_tensor_codec(&tensors[a->tensor]) == bitsnap_tensor_codec(&tensors[b->tensor]);
}

/* Drops runs with too few elements for a separate frame. */
static void bsr_drop_small_runs(bsr_search *s)
{
    uint64_t elements;
    size_t first, end, kept = 0;
    for (first = 0; first < s->found; first = end) {
        elements = s->list[first].count;
        for (end = first + 1; end < s->found && bsr_continues(s, &s->list[end - 1], &s->list[end]); end++)
            elements += s->list[end].count;
        if (elements < BITSNAP_REFERENCE_LEAST) continue;
        memmove(&s->list[kept], &s->list[first], (end - first) * sizeof *s->list);
        kept += end - first;
    }
    s->found = kept;
}

/* ================================================================================= CONTENT
 * Finds partners without names: copies under other names, tensors that were joined or split, parameters in another order. A hash
 * of neighbouring elements chooses some positions as anchors, so equal elements have the same anchors at any position. A table
 * holds the last position of each anchor hash. From there, both ranges are compared in both directions, as far as they match.
 *
 * Time is linear for any content. Elements with a partner are not scanned again. A comparison that matches too few elements costs
 * credit, and each scanned element earns some. Without credit, anchors are stored but not looked up. */

enum {
    BSR_WINDOW = 16,        /* elements in the hash of an anchor */
    BSR_DISTINCT = 4,       /* fewest distinct values among these; windows with fewer match anywhere */
    BSR_ANCHOR_BITS = 10,   /* one of 2^10 elements is an anchor */
    BSR_CHOSEN = -32768 + (65536 >> BSR_ANCHOR_BITS), /* an element is an anchor if its 16-bit number is below this */
    BSR_TABLE_BITS = 19,    /* log2 of the most entries of the table: 4 MiB */
    BSR_SCANNED = 2048,     /* elements scanned at once */
    BSR_BLOCK = 64,         /* elements compared at once */
    BSR_CREDIT = 1 << 18,   /* most credit */
    BSR_TRIED = 512,        /* credit that a failed comparison costs, plus 1 for each element */
    BSR_VIEW = 1 << 16
};

/* A part of the data, in memory. */
typedef struct bsr_view {
    uint8_t *bytes;         /* capacity: BSR_VIEW */
    uint64_t begin;
    size_t size;
} bsr_view;

typedef struct bsr_content {
    bsr_view scanned, ours, base;
    uint64_t *run_ends;     /* for each tensor: end of the run of adjacent tensors of its dtype */
    uint64_t *run_begins;
    uint64_t *table;        /* anchors: 16 bits of the hash, and the byte of the data in the lower 48; 0: empty */
    unsigned bits;          /* log2 of the size of the table */
    uint64_t thinned;       /* anchors with one of these bits in their hash are ignored */
    int is_f16;             /* 1: F32 is rounded to F16, else to BF16 */
    int64_t credit;
    uint64_t covered;       /* number of elements up to the last one with a partner */
} bsr_content;

/* Returns bytes of the data; null if reading failed. `backward`: the caller will ask for the bytes before them next. */
static const uint8_t *bsr_see(bsr_search *s, bsr_view *v, uint64_t at, size_t size, int backward)
{
    const uint64_t end = at + size, edge = backward ? end : at;
    size_t n = 1024;
    if (!s->data->read) return (const uint8_t *)s->data->data + at;
    if (at >= v->begin && end <= v->begin + v->size) return v->bytes + (at - v->begin);
    /* continues the view: read ahead more. A new view has size 0 */
    if (edge >= v->begin && edge <= v->begin + v->size) n = 2 * v->size;
    if (n < size) n = size;
    if (n > BSR_VIEW) n = BSR_VIEW;
    if (!backward) v->begin = at;
    else v->begin = end > n ? end - n : 0;
    v->size = s->model->data_size - v->begin < n ? (size_t)(s->model->data_size - v->begin) : n;
    if (bsr_read(s, v->begin, v->bytes, v->size)) {
        v->size = 0;
        return NULL;
    }
    return v->bytes + (at - v->begin);
}

/* Positions, in bytes of the data, of elements and of those that they may refer to. */
typedef struct bsr_match {
    bitsnap_dtype dtype, base_dtype;
    uint64_t at, base;
} bsr_match;

static int bsr_alike(const bsr_match *m, const uint8_t *x, const uint8_t *y)
{
    if (m->dtype == m->base_dtype) return !memcmp(x, y, bitsnap_width(m->dtype));
    if (m->dtype == BITSNAP_F32) return bsr_rounds_to(y, x, m->base_dtype == BITSNAP_BF16);
    return bsr_rounds_to(x, y, m->dtype == BITSNAP_BF16);
}

/* Returns 1 if at least 7/8 of n elements match. *matched is then their number up to the last one that matches, else the number
 * before the first that does not. `backward`: counts from the last element down. */
static int bsr_compare(const bsr_match *m, const uint8_t *ours, const uint8_t *base, size_t n, int backward, size_t *matched)
{
    const unsigned width = bitsnap_width(m->dtype), base_width = bitsnap_width(m->base_dtype);
    size_t i, alike = 0, all = 0;
    *matched = n;
    if (m->dtype == m->base_dtype && !memcmp(ours, base, n * width)) return 1;
    for (i = 0, *matched = 0; i < n; i++) {
        const size_t k = backward ? n - 1 - i : i;
        if (!bsr_alike(m, ours + k * width, base + k * base_width)) continue;
        if (alike++ == i) all = i + 1;
        *matched = i + 1;
    }
    if (alike >= n - n / 8) return 1;
    *matched = all;
    return 0;
}

/* Counts the matching elements after both positions, or with `backward` before them, up to `most`. */
static int bsr_grow(bsr_search *s, bsr_content *c, const bsr_match *m, uint64_t most, int backward, uint64_t *grown)
{
    const unsigned width = bitsnap_width(m->dtype), base_width = bitsnap_width(m->base_dtype);
    uint64_t n = 0;
    *grown = 0;
    while (n < most) {
        const size_t more = most - n < BSR_BLOCK ? (size_t)(most - n) : (size_t)BSR_BLOCK;
        const uint64_t at = backward ? m->at - (n + more) * width : m->at + n * width;
        const uint64_t base_at = backward ? m->base - (n + more) * base_width : m->base + n * base_width;
        const uint8_t *ours = bsr_see(s, &c->ours, at, more * width, backward);
        const uint8_t *base = ours ? bsr_see(s, &c->base, base_at, more * base_width, backward) : NULL;
        size_t matched;
        int alike;
        if (!base) return 1;
        alike = bsr_compare(m, ours, base, more, backward, &matched);
        if (matched) *grown = n + matched;
        if (!alike) break;
        n += more;
    }
    return 0;
}

/* Finds the range around a byte that elements may refer to: adjacent tensors of one dtype, without elements that refer. Returns 0
 * if the byte is not in it. */
static int bsr_bounds(const bsr_search *s, const bsr_content *c, size_t k, uint64_t byte, uint64_t *begin, uint64_t *end)
{
    size_t low = 0, high = s->found;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (bsr_begin(s, &s->list[middle]) <= byte) low = middle + 1;
        else high = middle;
    }
    *begin = c->run_begins[k];
    *end = c->run_ends[k];
    if (low && bsr_end(s, &s->list[low - 1]) > *begin) *begin = bsr_end(s, &s->list[low - 1]);
    if (low < s->found && bsr_begin(s, &s->list[low]) < *end) *end = bsr_begin(s, &s->list[low]);
    return *begin <= byte && byte < *end;
}

static uint64_t bsr_least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Compares the elements around element `x` of tensor `i` with those around an earlier byte. If enough match, adds a reference and
 * sets c->covered to its end. */
static int bsr_try(bsr_search *s, bsr_content *c, size_t i, uint64_t x, uint64_t base)
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    const size_t k = bsr_tensor_at(s, base);
    const unsigned width = bsr_width(t);
    unsigned base_width;
    uint64_t begin, end, before, after;
    bsr_match m;
    m.at = t->begin + x * width;
    m.base = base;
    m.dtype = bitsnap_tensor_codec(t);
    if (base >= m.at || bsr_only_base(s, i)) return 0;
    m.base_dtype = bitsnap_tensor_base(t, &s->model->tensors[k]);
    if (!m.base_dtype || !bsr_bounds(s, c, k, base, &begin, &end)) return 0;
    base_width = bitsnap_width(m.base_dtype);
    before = bsr_least(x - c->covered, (base - begin) / base_width);
    before = bsr_least(before, (m.at - base) / width); /* so that the base ends before the elements begin */
    if (bsr_grow(s, c, &m, before, 1, &before)) return 1;
    after = bsr_least(bsr_count(t) - x, (bsr_least(end, m.at - before * width) - base) / base_width);
    if (bsr_grow(s, c, &m, after, 0, &after)) return 1;
    if (before + after < BITSNAP_REFERENCE_LEAST && before + after < bsr_count(t)) {
        c->credit -= (int64_t)(before + after) + BSR_TRIED;
        return 0;
    }
    c->covered = x + after;
    return bsr_add(s, i, x - before, before + after, base - before * base_width, m.base_dtype);
}

static uint16_t bsr_u16(const uint8_t *p)
{
    const uint16_t one = 1;
    uint16_t x;
    memcpy(&x, p, sizeof x);
    return *(const uint8_t *)&one ? x : (uint16_t)(x >> 8 | x << 8);
}

static uint32_t bsr_u32(const uint8_t *p)
{
    const uint16_t one = 1;
    uint32_t x;
    memcpy(&x, p, sizeof x);
    return *(const uint8_t *)&one ? x : x >> 24 | (x >> 8 & 0xFF00) | (x << 8 & 0xFF0000) | x << 24;
}

/* Converts elements to 16-bit numbers. An F32 gets the number of its rounded value, except for ties. An F16 loses its sign, and
 * its exponent is changed to the 5 low bits of that of F32. */
static void bsr_units(uint16_t *u, const uint8_t *p, size_t n, const bitsnap_tensor *t, int is_f16)
{
    const bitsnap_dtype dtype = bitsnap_tensor_codec(t);
    const unsigned width = bitsnap_width(dtype);
    size_t i;
    if (dtype == BITSNAP_F16)
        for (i = 0; i < n; i++) u[i] = (bsr_u16(p + 2 * i) ^ 0x4000) & 0x7FFF;
    else if (dtype == BITSNAP_F32 && is_f16)
        for (i = 0; i < n; i++) u[i] = (uint16_t)((bsr_u32(p + 4 * i) + 0x1000) >> 13) & 0x7FFF;
    else if (dtype == BITSNAP_F32)
        for (i = 0; i < n; i++) u[i] = (uint16_t)((bsr_u32(p + 4 * i) + 0x8000) >> 16);
    else if (width == 1)
        for (i = 0; i < n; i++) u[i] = p[i];
    else if (width == 2)
        for (i = 0; i < n; i++) u[i] = bsr_u16(p + 2 * i);
    else
        for (i = 0; i < n; i++) {
            const uint32_t x = bsr_u32(p + width * i) ^ bsr_u32(p + width * (i + 1) - 4); /* with 4 bytes, both are equal */
            u[i] = width == 4 ? bsr_u16(p + 4 * i) : (uint16_t)(x ^ x >> 16);
        }
}

/* Finds the anchors among BSR_BLOCK elements: those whose number is below BSR_CHOSEN. Returns 0 if it finds no anchor. */
static int bsr_choose(int16_t *numbers, const uint16_t *u)
{
    int16_t least = 0;
    size_t i;
    for (i = 0; i < BSR_BLOCK; i++) {
        const int16_t x = (int16_t)(uint16_t)(u[i] * 0x9E37u + u[i + 1] * 0x79B1u);
        numbers[i] = x;
        least = x < least ? x : least;
    }
    return least < BSR_CHOSEN;
}

/* Returns the hash of a window; 0 if it has too few distinct values. */
static uint64_t bsr_hash(const uint16_t *u)
{
    uint64_t h = 0;
    size_t i, k, distinct = 0;
    for (i = 0; i < BSR_WINDOW && distinct < BSR_DISTINCT; i++) {
        for (k = 0; k < i && u[k] != u[i]; k++) continue;
        distinct += k == i;
    }
    for (i = 0; i < BSR_WINDOW; i += 4) {
        h ^= u[i] | (uint64_t)u[i + 1] << 16 | (uint64_t)u[i + 2] << 32 | (uint64_t)u[i + 3] << 48;
        h *= UINT64_C(0x9E3779B97F4A7C15);
        h ^= h >> 32;
    }
    return distinct < BSR_DISTINCT ? 0 : h;
}

/* Looks up an anchor, and stores it if it finds no partner. */
static int bsr_anchor(bsr_search *s, bsr_content *c, size_t i, uint64_t x, const uint16_t *u)
{
    const uint64_t h = bsr_hash(u), mark = h << 48, position = (UINT64_C(1) << 48) - 1;
    const uint64_t covered = c->covered;
    uint64_t *place = &c->table[h >> (64 - c->bits)];
    if (!h || (h >> 16 & c->thinned)) return 0;
    if (*place && ((*place ^ mark) & ~position) == 0 && c->credit > 0 && bsr_try(s, c, i, x, *place & position)) return 1;
    if (c->covered == covered) *place = mark | (s->model->tensors[i].begin + x * bsr_width(&s->model->tensors[i]));
    return 0;
}

/* Finds partners for parts of a tensor. */
static int bsr_scan(bsr_search *s, bsr_content *c, size_t i)
{
    const bitsnap_tensor *t = &s->model->tensors[i];
    const bitsnap_reference *last = s->found ? &s->list[s->found - 1] : NULL;
    const uint64_t count = bsr_count(t);
    const unsigned width = bsr_width(t);
    uint16_t u[BSR_SCANNED + BSR_BLOCK + 1];
    uint64_t at = 0;
    c->covered = 0;
    if (last && bsr_end(s, last) == t->begin && bsr_try(s, c, i, 0, bsr_base_end(last))) return 1;
    for (at = c->covered; count - at >= BSR_WINDOW;) {
        const size_t n = count - at < BSR_SCANNED ? (size_t)(count - at) : (size_t)BSR_SCANNED, positions = n - BSR_WINDOW + 1;
        const uint8_t *p = bsr_see(s, &c->scanned, t->begin + at * width, n * width, 0);
        size_t k, j, next = 0;
        if (!p) return 1;
        bsr_units(u, p, n, t, c->is_f16);
        memset(u + n, 0, (BSR_BLOCK + 1) * sizeof *u);
        c->credit = c->credit > BSR_CREDIT ? c->credit : c->credit + (int64_t)n;
        for (k = 0; k < positions && c->covered <= at; k += BSR_BLOCK) {
            int16_t numbers[BSR_BLOCK];
            if (!bsr_choose(numbers, u + k)) continue;
            for (j = next > k ? next - k : 0; j < BSR_BLOCK && k + j < positions && c->covered <= at; j++) {
                if (numbers[j] >= BSR_CHOSEN) continue;
                if (bsr_anchor(s, c, i, at + k + j, u + k + j)) return 1;
                j += BSR_WINDOW - 1;
                next = k + j + 1;
            }
        }
        at = c->covered > at ? c->covered : at + positions;
    }
    return 0;
}

static int bsr_content_begin(bsr_search *s, bsr_content *c)
{
    const bitsnap_safetensors *model = s->model;
    uint64_t elements = 0, halves[2] = { 0, 0 };
    size_t i;
    for (i = 0; i < model->count; i++) {
        const bitsnap_tensor *t = &model->tensors[i];
        elements += bsr_count(t);
        if (bsr_is_half(t)) halves[bitsnap_tensor_codec(t) == BITSNAP_F16] += bsr_count(t);
    }
    c->is_f16 = halves[1] > halves[0];
    for (c->bits = 10; c->bits < BSR_TABLE_BITS && elements >> (BSR_ANCHOR_BITS - 1) >> c->bits; c->bits++) continue;
    while (elements >> (BSR_ANCHOR_BITS - 1) >> c->bits > c->thinned) c->thinned = 2 * c->thinned + 1;
    c->run_begins = (uint64_t *)calloc(2 * model->count + 1, sizeof *c->run_begins);
    c->table = (uint64_t *)calloc((size_t)1 << c->bits, sizeof *c->table);
    c->scanned.bytes = (uint8_t *)malloc(3 * BSR_VIEW);
    if (!c->run_begins || !c->table || !c->scanned.bytes) return bsr_fail(s, BITSNAP_E_WORKSPACE);
    c->ours.bytes = c->scanned.bytes + BSR_VIEW;
    c->base.bytes = c->ours.bytes + BSR_VIEW;
    c->run_ends = c->run_begins + model->count;
    for (i = 0; i < model->count; i++) {
        const bitsnap_tensor *t = &model->tensors[i];
        const int is_base = bsr_bytes(t) % bsr_width(t) == 0 && !(s->skip && s->skip[i] == 1);
        const int joins = i && is_base && c->run_ends[i - 1] == t->begin && bitsnap_tensor_codec(t) == bitsnap_tensor_codec(t - 1);
        c->run_begins[i] = joins ? c->run_begins[i - 1] : t->begin;
        c->run_ends[i] = t->begin + (is_base ? bsr_bytes(t) : 0);
    }
    for (i = model->count; i-- > 1;)
        if (c->run_begins[i] == c->run_begins[i - 1]) c->run_ends[i - 1] = c->run_ends[i];
    return 0;
}

static void bsr_content_end(bsr_content *c)
{
    free(c->run_begins);
    free(c->table);
    free(c->scanned.bytes);
}

static int bsr_find_all(bsr_search *s, bsr_content *c)
{
    size_t i;
    for (i = 0; i < s->model->count; i++) {
        s->halves |= bsr_is_half(&s->model->tensors[i]);
        s->wholes |= bsr_is_single(&s->model->tensors[i]);
    }
    if (bsr_sort_keys(s) || (c && bsr_content_begin(s, c))) return 1;
    for (i = 0; i < s->model->count; i++) {
        if (!s->looks[i].has_sample) continue;
        if (!bsr_only_base(s, i) && (s->looks[i].is_constant ? bsr_join_constant(s, i) : bsr_find_partner(s, i))) return 1;
        if (c && !s->looks[i].refers && bsr_scan(s, c, i)) return 1;
    }
    bsr_drop_small_runs(s);
    return 0;
}

BITSNAP_API bitsnap_status bitsnap_references_find(bitsnap_reference **list, size_t *count, const bitsnap_safetensors *model,
                                                   const bitsnap_source *data, const unsigned char *skip, int by_content)
{
    bsr_search s;
    bsr_content c;
    memset(&s, 0, sizeof s);
    memset(&c, 0, sizeof c);
    s.model = model;
    s.data = data;
    s.skip = skip;
    s.looks = (bsr_look *)calloc(model->count + 1, sizeof *s.looks);
    if (!s.looks) (void)bsr_fail(&s, BITSNAP_E_WORKSPACE);
    else if (bsr_find_all(&s, by_content ? &c : NULL)) {
        free(s.list);
        s.list = NULL;
        s.found = 0;
    }
    bsr_content_end(&c);
    free(s.looks);
    free(s.entries);
    *list = s.list;
    *count = s.found;
    return s.status;
}

#ifdef __cplusplus
}
#endif
#endif
