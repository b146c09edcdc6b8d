/* A hostile delta. Decoding with bases of every size, applying in place, merging and inverting touch only their buffers, and the
 * workspace has just the documented size. A refused delta changes nothing. A merged delta gives the result of both, and an
 * inverted one leads back. All kernel tables agree on status, rule, position and bytes.
 *   u8      bit 0: the base fits the frame; bits 1 and 2: which base; bit 3: it comes from a callback; bit 4: two frames follow,
 *           else one; bit 5: checks are ignored; bits 6 and 7: workers, less one
 *   u8      bit 0: the frames are repaired first
 *   u16     size of the first frame, if there are two */
#include "mutate.h"

#define MOST (1u << 18)
enum { HEAD = 4, MORE = 2048 };

/* Returns whether a delta is small enough, a few cells, to be tried often. */
static int is_small(const bitsnap_info *info)
{
    return info->count <= MOST / (info->width == 1 ? 1 : 8) && info->block_log2 <= 18;
}

typedef struct frame {
    uint8_t *bytes;
    size_t size;
    bitsnap_info info; /* all 0 unless it is a small delta */
} frame;

/* Takes a frame from the input, and repairs it if `repair` is 1. *base is made if its data is null. *decoded: the elements of a
 * repaired frame, or null. */
static frame take(const uint8_t *data, size_t size, int repair, unsigned kind, bitsnap_base *base, uint8_t **decoded)
{
    static fuzz_frame f;
    frame x;
    memset(&x, 0, sizeof x);
    x.bytes = fuzz_copy(data, x.size = size);
    *decoded = NULL;
    if (repair) {
        uint8_t *room = fuzz_room(size + MORE);
        if (size) memcpy(room, data, size);
        size = fuzz_settle(&f, room, size, size + MORE);
        if (size && f.base && f.count * f.width <= MOST) {
            const bitsnap_dtype dtype = (bitsnap_dtype)room[f.base + 4];
            if (!base->data && bitsnap_width(dtype)) {
                base->data = fuzz_pattern((size_t)f.count * bitsnap_width(dtype), kind);
                base->count = f.count;
                base->dtype = dtype;
            }
            if (base->data && base->count == f.count && base->dtype == dtype) *decoded = fuzz_seal(&f, room, base);
        }
        if (size) x.bytes = fuzz_copy(room, x.size = size);
    }
    if (bitsnap_read_info(&x.info, x.bytes, x.size) || !x.info.has_base || !is_small(&x.info)) memset(&x.info, 0, sizeof x.info);
    return x;
}

/* Reads a base, as its callback. */
static int read_base(void *context, uint64_t offset, void *to, size_t size)
{
    memcpy(to, (const uint8_t *)context + offset, size);
    return 0;
}

/* Replaces the base in memory by a callback, and sets the smallest sufficient workspace. */
static void by_callback(bitsnap *b, const bitsnap_info *info, unsigned workers, unsigned cells)
{
    b->base.source.read = read_base;
    b->base.source.context = (void *)(uintptr_t)b->base.data;
    b->base.data = NULL;
    fuzz_workspace(b, fuzz_workspace_size(info->block_log2, workers) +
                      cells * ((size_t)bitsnap_width(info->base_dtype) << info->block_log2));
}

/* Applies a delta in place. The base must become the expected elements, or stay unchanged. */
static bitsnap_status apply(const bitsnap *like, const frame *x, const uint8_t *base, const uint8_t *expected, unsigned t)
{
    static fuzz_outcome applied;
    const unsigned taken = fuzz_taken;
    bitsnap b = *like;
    const size_t bytes = (size_t)x->info.elements_size;
    uint8_t *live = fuzz_copy(base, bytes);
    bitsnap_status status;
    b.base.data = NULL;
    status = fuzz_agree(&b, bitsnap_apply(&b, live, x->info.count, x->info.dtype, x->bytes, x->size), &applied, t);
    if (status) REQUIRE(!memcmp(live, base, bytes));
    else if (expected) REQUIRE(!memcmp(live, expected, bytes));
    if (!status) REQUIRE(!bitsnap_apply(&b, live, x->info.count, x->info.dtype, x->bytes, x->size));
    fuzz_drop(taken);
    return status;
}

/* Returns the decoded elements of a delta with this base, or null. */
static uint8_t *decode(const bitsnap *like, const uint8_t *bytes, size_t size, const bitsnap_info *info, const uint8_t *base)
{
    bitsnap b = *like;
    uint8_t *out = fuzz_fill((size_t)info->elements_size, 0x5A);
    b.flags = 0;
    memset(&b.base, 0, sizeof b.base);
    b.base.data = base;
    b.base.count = info->count;
    b.base.dtype = info->base_dtype;
    return bitsnap_decode(&b, out, info->count, info->dtype, bytes, size) ? NULL : out;
}

/* Merges x with `second`, or inverts it if that is null, and returns the frame. All kernel tables must give the same one. *made:
 * its size; 0 if x is refused. */
static uint8_t *combine(const bitsnap *like, const frame *x, const frame *second, size_t *made)
{
    const size_t room = x->info.bound;
    const bitsnap_kernels *k;
    fuzz_outcome first;
    bitsnap b = *like;
    uint8_t *out[2];
    size_t size;
    unsigned t;
    out[0] = fuzz_room(room);
    out[1] = fuzz_room(room);
    for (t = 0, *made = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        bitsnap_status status;
        b.kernels = k;
        if (second) status = bitsnap_merge(&b, out[t > 0], room, &size, x->bytes, x->size, second->bytes, second->size);
        else status = bitsnap_invert(&b, out[t > 0], room, &size, x->bytes, x->size);
        if (fuzz_agree(&b, status, &first, t)) REQUIRE(!size);
        else if (t) REQUIRE(size == *made && !memcmp(out[0], out[1], size));
        *made = size;
    }
    return out[0];
}

/* Tests one delta, with its base and without. */
static void algebra(const bitsnap *like, const frame *x, const frame *second, const uint8_t *base, const uint8_t *decoded)
{
    bitsnap b = *like;
    const unsigned taken = fuzz_taken, workers = like->workers < 2 ? 2 : like->workers;
    const uint8_t *both = NULL;
    bitsnap_info back;
    size_t made;
    int with;
    b.flags = 0;
    fuzz_workspace(&b, fuzz_workspace_size(x->info.block_log2, workers));
    if (second->info.count == x->info.count && second->info.dtype == x->info.dtype && second->info.base_dtype == x->info.dtype && decoded)
        both = decode(&b, second->bytes, second->size, &second->info, decoded);
    for (with = 2; with >= 0; with--) {
        const unsigned begun = fuzz_taken;
        const uint8_t *out;
        b.base = like->base;
        b.base.data = with ? base : NULL;
        if (with == 2) by_callback(&b, &x->info, workers, 1);
        else fuzz_workspace(&b, fuzz_workspace_size(x->info.block_log2, workers));
        out = combine(&b, x, NULL, &made);
        if (made && decoded) { /* the inverse gives the base */
            REQUIRE(!bitsnap_read_info(&back, out, made));
            out = decode(&b, out, made, &back, decoded);
            REQUIRE(out && !memcmp(out, base, (size_t)back.elements_size));
        }
        if (second->size) {
            out = combine(&b, x, second, &made);
            if (made && both) {
                out = decode(&b, out, made, &x->info, base);
                REQUIRE(out && !memcmp(out, both, (size_t)x->info.elements_size));
            }
        }
        fuzz_drop(begun);
    }
    fuzz_drop(taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_outcome decoding;
    const bitsnap_kernels *k;
    bitsnap b;
    bitsnap_base base, between;
    uint8_t *out[2], *known, *known_both;
    size_t first;
    bitsnap_status status = BITSNAP_OK;
    unsigned t, shape, workers, kind;
    int repair;
    frame x, second;
    fuzz_drop(0);
    if (size < HEAD) return 0;
    shape = data[0];
    workers = 1 + (shape >> 6);
    kind = shape >> 1 & 3;
    repair = data[1] & 1;
    first = shape & 16 ? data[2] | (size_t)data[3] << 8 : size;
    if (first > size - HEAD) first = size - HEAD;
    memset(&base, 0, sizeof base);
    memset(&second, 0, sizeof second);
    x = take(data + HEAD, first, repair, kind, &base, &known);
    if (!x.info.has_base) return 0;
    if (shape & 16) {
        memset(&between, 0, sizeof between);
        between.data = known; /* if x is valid, the second delta has its result as base */
        between.count = x.info.count;
        between.dtype = x.info.dtype;
        second = take(data + HEAD + first, size - HEAD - first, repair && known, kind, &between, &known_both);
    }
    if (!base.data || base.count != x.info.count || base.dtype != x.info.base_dtype) {
        base.data = fuzz_pattern((size_t)x.info.count * bitsnap_width(x.info.base_dtype), kind);
        base.dtype = x.info.base_dtype;
    }
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, fuzz_workspace_size(x.info.block_log2, workers));
    b.workers = workers;
    b.run = fuzz_run;
    b.run_context = &workers;
    b.base = base;
    b.base.count = shape & 1 ? x.info.count : x.info.count + 1;
    if (shape & 8) by_callback(&b, &x.info, workers, workers);
    out[0] = fuzz_room((size_t)x.info.elements_size);
    out[1] = fuzz_room((size_t)x.info.elements_size);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        uint8_t *to = out[t > 0];
        b.kernels = k;
        b.flags = shape & 32 ? BITSNAP_IGNORE_CHECKS : 0;
        memset(to, 0xA5 + (int)t, (size_t)x.info.elements_size);
        status = fuzz_agree(&b, bitsnap_decode(&b, to, x.info.count, x.info.dtype, x.bytes, x.size), &decoding, t);
        if (t && !status) REQUIRE(!memcmp(out[0], out[1], (size_t)x.info.elements_size));
        /* a repaired frame decodes */
        if (shape & 1 && known && !(shape & 32)) REQUIRE(!status && !memcmp(to, known, (size_t)x.info.elements_size));
        if (x.info.base_dtype == x.info.dtype && !(shape & 8)) {
            const bitsnap_status applied = apply(&b, &x, (const uint8_t *)base.data, status ? NULL : to, t);
            if (!(shape & 32) && shape & 1) REQUIRE((applied == BITSNAP_OK) == (status == BITSNAP_OK));
        }
    }
    b.kernels = NULL;
    b.base.data = base.data;
    b.base.source.read = NULL;
    algebra(&b, &x, &second, (const uint8_t *)base.data, status || shape & 32 || !(shape & 1) ? NULL : out[0]);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size < HEAD + 1 || room < 64 || seed & 1) {
        size = LLVMFuzzerMutate(data, size, room);
        if (size > 1) data[1] &= 0xFE;
    } else {
        size_t first = data[0] & 16 ? data[2] | (size_t)data[3] << 8 : size - HEAD, now;
        if (first > size - HEAD) first = size - HEAD;
        if (data[0] & 16 && seed & 2 && size > HEAD + first) {
            size = fuzz_mutate_frame(data, size, room, HEAD + first, size, seed >> 3);
        } else {
            now = fuzz_mutate_frame(data, size, room, HEAD, HEAD + first, seed >> 3);
            fuzz_store(data + 2, first + now - size, 2);
            size = now;
        }
        data[1] |= 1;
        if (seed & 4) data[0] = (uint8_t)((data[0] | 1) & ~32u); /* repairs the frame, and does not ignore checks */
    }
    return size;
}

/* Deltas of small tensors against the bases above, alone and two at a time. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_I8, BITSNAP_F64, BITSNAP_F16 };
    const int few = number >= 90 && number < 100; /* so few changes, in one or two cells, that blocks are SPARSE */
    const int cells = number >= 100;              /* frames of several cells, of equal size or not */
    const bitsnap_dtype dtype = cells ? BITSNAP_I8 : dtypes[number % 5];
    const unsigned width = bitsnap_width(dtype), kind = cells ? 1 : number / 5 % 3, every = number / 30 % 3;
    const int two = cells || number / 15 % 2;
    const size_t n = cells ? 250000 : !few ? 40 + 61 * (number % 7) : width == 1 ? 65536 + 900 : 700 + 61 * (number % 7);
    const size_t bytes = n * width;
    uint8_t *base, *result, *third;
    size_t first = 0, second = 0, i;
    bitsnap b;
    if (number >= 108) return 0;
    fuzz_drop(0);
    base = fuzz_pattern(bytes, kind);
    result = fuzz_copy(base, bytes);
    if (few) result[number * 7 % bytes]++, result[bytes - width * (number % 9 + 1)]++;
    for (i = 0; i < bytes && cells; i++) result[i] = (uint8_t)(result[i] + 1 + (i >> 16));
    for (i = 0; i < bytes && every < 2 && !few && !cells; i += width * (every ? 1u : 9u)) result[i] = (uint8_t)(result[i] + (i % 5 ? 1 : i));
    third = fuzz_copy(result, bytes);
    for (i = cells ? 0 : bytes / 2; i < (cells ? bytes : bytes / 2 + 1); i++) third[i]++;
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, fuzz_workspace_size(18, 1));
    b.base.data = base;
    b.base.count = n;
    b.base.dtype = dtype;
    b.flags = number & 1 ? BITSNAP_SELF_CONTAINED : 0;
    b.block_log2 = 16;
    b.level = few ? BITSNAP_FAST : BITSNAP_DEFAULT;
    REQUIRE(!bitsnap_encode(&b, to + HEAD, room - HEAD, &first, result, n, dtype));
    b.base.data = result;
    if (number % 7 == 6) b.block_log2 = 18; /* these two cannot be merged */
    if (two) REQUIRE(!bitsnap_encode(&b, to + HEAD + first, room - HEAD - first, &second, third, n, dtype));
    to[0] = (uint8_t)(1 | kind << 1 | (number % 3 == 1 ? 8 : 0) | (two ? 16 : 0) | (number & 3) << 6);
    to[1] = number / 2 % 2;
    to[2] = (uint8_t)first;
    to[3] = (uint8_t)(first >> 8);
    return HEAD + first + second;
}
