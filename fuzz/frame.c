/* A hostile frame. Decoding, testing, verifying, ranges and pulling touch only their buffers. All kernel tables agree on status,
 * rule, position and elements. A frame that decodes also passes every other call, with the same elements, and with other bytes or
 * a second copy after it if trailing bytes are allowed.
 *   u8      bit 0: checks are ignored; bit 1: the frame is repaired first; the others choose a range
 *   frame */
#include "mutate.h"

#define MOST (1u << 18) /* most bytes of elements; larger frames are skipped */

static void pull(const bitsnap *like, const uint8_t *frame, size_t size, const uint8_t *expected, unsigned table, unsigned storing)
{
    static fuzz_outcome begun[2], pulled[2], ended[2];
    const unsigned taken = fuzz_taken;
    bitsnap b = *like;
    bitsnap_decoder s;
    bitsnap_status status;
    size_t at, used, n;
    uint8_t *piece;
    uint64_t total = 0;
    if (fuzz_agree(&b, bitsnap_decoder_begin(&b, &s, frame, size, &at), &begun[storing], table)) return;
    piece = storing ? fuzz_room(((size_t)1 << s.block_log2) * s.width) : NULL;
    for (status = BITSNAP_OK; !status && s.position < s.count && total * s.width <= MOST; total += n, at += used) {
        status = bitsnap_decoder_pull(&b, &s, piece, (size_t)1 << s.block_log2, &n, frame + at, size - at, &used);
        if (!status && expected && storing) REQUIRE(!memcmp(piece, expected + total * s.width, n * s.width));
        if (status) REQUIRE(!n && !used);
    }
    (void)fuzz_agree(&b, status, &pulled[storing], table);
    if (!status && s.position == s.count) {
        status = fuzz_agree(&b, bitsnap_decoder_end(&b, &s, frame + at, size - at, &used), &ended[storing], table);
        if (expected) REQUIRE(!status && at + used == size);
    }
    if (expected) REQUIRE(!status);
    fuzz_drop(taken);
}

/* A good frame before some of its own bytes. */
static void behind(const bitsnap *like, const uint8_t *frame, size_t size, size_t more, const uint8_t *expected, const bitsnap_info *info,
                   uint64_t from, uint64_t some)
{
    const unsigned taken = fuzz_taken;
    const size_t bytes = (size_t)info->elements_size;
    uint8_t *both = fuzz_room(size + more), *out = fuzz_room(bytes);
    bitsnap b = *like;
    memcpy(both, frame, size);
    memcpy(both + size, frame, more);
    if (more && bytes) REQUIRE(bitsnap_decode(&b, out, info->count, info->dtype, both, size + more) == BITSNAP_E_TRAILING && !b.used);
    b.flags |= BITSNAP_ALLOW_TRAILING;
    REQUIRE(!bitsnap_decode(&b, out, info->count, info->dtype, both, size + more) && b.used == size && !memcmp(out, expected, bytes));
    if (some) {
        REQUIRE(!bitsnap_decode_range(&b, out, from, some, info->dtype, both, size + more) && b.used == size);
        REQUIRE(!memcmp(out, expected + from * info->width, (size_t)some * info->width));
    }
    fuzz_drop(taken);
}

typedef struct reads {
    const uint8_t *frame;
    unsigned left; /* reads until one fails */
} reads;

static int fuzz_read(void *context, uint64_t offset, void *to, size_t size)
{
    reads *r = (reads *)context;
    if (!r->left) return 1;
    r->left--;
    memcpy(to, r->frame + offset, size); /* a sanitizer or an inaccessible page notices reads past the frame */
    return 0;
}

/* Opens the index in memory and by callback. A range, and a block alone, must give the same elements. */
static void indexed(const bitsnap *like, const uint8_t *frame, size_t size, uint64_t from, uint64_t some, unsigned width,
                    bitsnap_status expected, unsigned rule, const uint8_t *range)
{
    static bitsnap_index index;
    const unsigned taken = fuzz_taken;
    unsigned way;
    for (way = 0; way < 3; way++) {
        bitsnap b = *like;
        reads r = { frame, way < 2 ? ~0u : 4 + (unsigned)size % 3 };
        uint8_t *to;
        bitsnap_source source;
        bitsnap_info info;
        bitsnap_extent x;
        bitsnap_status status;
        uint64_t n;
        memset(&source, 0, sizeof source);
        source.size = size;
        source.read = fuzz_read;
        source.context = &r;
        if (!way) source.data = frame;
        memset(&index, 0, sizeof index);
        status = bitsnap_index_open(&b, &index, &info, &source);
        if (!status) {
            to = fuzz_room((size_t)some * width);
            b.workspace = fuzz_room(info.workspace_size);
            b.workspace_size = info.workspace_size;
            status = bitsnap_index_decode(&b, &index, to, from, some);
            REQUIRE((status == expected && b.error.rule == rule) || (way == 2 && b.error.rule == BITSNAP_R_SOURCE));
            if (!status) REQUIRE(!memcmp(to, range, (size_t)some * width));
            if (!bitsnap_index_find(&b, &index, from, &x)) {
                REQUIRE(x.offset < size && x.size <= size - x.offset && x.first <= from && from - x.first < x.count);
                n = some < x.count - (from - x.first) ? some : x.count - (from - x.first);
                if (!bitsnap_block_decode(&b, to, from, n, &info, &x, fuzz_copy(frame + x.offset, (size_t)x.size)))
                    REQUIRE(status || !memcmp(to, range, (size_t)n * width));
                else REQUIRE(status);
            } else REQUIRE(status || b.error.rule == BITSNAP_R_SOURCE);
        } else if (way < 2 || b.error.rule != BITSNAP_R_SOURCE) {
            REQUIRE(status == expected && b.error.rule == rule);
        }
        fuzz_drop(taken);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_frame f;
    static fuzz_outcome decoded, ranged, tested;
    const bitsnap_kernels *k;
    bitsnap_info info;
    bitsnap b;
    uint8_t *frame, *first = NULL, *out = NULL, *range = NULL;
    uint64_t count = 0, from = 0, some = 0;
    unsigned t, width = 0, log2 = 16;
    bitsnap_dtype dtype = BITSNAP_I8;
    fuzz_drop(0);
    if (size < 1) return 0;
    frame = fuzz_copy(data + 1, --size);
    if (data[0] & 2) {
        uint8_t *room = fuzz_room(size + 2048);
        memcpy(room, frame, size);
        size = fuzz_settle(&f, room, size, size + 2048);
        if (size) (void)fuzz_seal(&f, room, NULL);
        frame = fuzz_copy(room, size);
    }
    if (size >= 24) { /* also where the header's check is wrong */
        dtype = (bitsnap_dtype)frame[5];
        width = bitsnap_width(dtype);
        log2 = frame[6] >= 6 && frame[6] <= 20 ? frame[6] : 16;
        count = fuzz_load(frame + 8, 8);
    }
    b = fuzz_codec(log2);
    if (!bitsnap_read_info(&info, frame, size)) fuzz_workspace(&b, info.workspace_size); /* of that alone */
    b.flags = data[0] & 1 ? BITSNAP_IGNORE_CHECKS : 0;
    if (width && count <= MOST / width) {
        first = fuzz_room((size_t)count * width);
        out = fuzz_room((size_t)count * width);
        if (count) {
            from = data[0] * 131u % count;
            some = 1 + (count - from - 1) * (data[0] >> 2 & 3) / 4;
            range = fuzz_room((size_t)some * width);
        }
    }
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        uint8_t *to = t ? out : first;
        bitsnap_status status = BITSNAP_E_MISMATCH;
        b.kernels = k;
        if (first) {
            memset(to, 0xA5 + (int)t, (size_t)count * width);
            status = fuzz_agree(&b, bitsnap_decode(&b, to, count, dtype, frame, size), &decoded, t);
            if (!status && t) REQUIRE(!memcmp(first, out, (size_t)count * width)); /* also: nothing is left as it was before */
        }
        if (range) {
            const bitsnap_status r = fuzz_agree(&b, bitsnap_decode_range(&b, range, from, some, dtype, frame, size), &ranged, t);
            if (!status) REQUIRE(!r && !memcmp(range, to + from * width, (size_t)some * width));
            if (!t) indexed(&b, frame, size, from, some, width, r, b.error.rule, range);
        }
        if (!status && !t && !(data[0] & 1)) {
            REQUIRE(info.frame_size == size);
            behind(&b, frame, size, data[0] & 4 ? size : (data[0] >> 3) % (size + 1), to, &info, from, some);
        }
        if (!status) REQUIRE(!bitsnap_verify(&b, to, count, dtype, frame, size));
        if (count <= 4u * MOST && fuzz_agree(&b, bitsnap_test(&b, frame, size), &tested, t)) REQUIRE(status);
        pull(&b, frame, size, status ? NULL : to, t, 0);
        pull(&b, frame, size, status ? NULL : to, t, 1);
    }
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size < 2 || room < 64) return LLVMFuzzerMutate(data, size, room);
    if (seed & 1) size = LLVMFuzzerMutate(data, size, room);
    else size = fuzz_mutate_frame(data, size, room, 1, size, seed >> 1);
    data[0] = (uint8_t)((data[0] & ~2u) | (seed & 1 ? 0 : 2));
    return size;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    const size_t size = fuzz_seed_frame(number, to + 1, room - 1);
    to[0] = (uint8_t)number;
    return size ? size + 1 : 0;
}
