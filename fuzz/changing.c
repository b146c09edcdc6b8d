/* A source and a base that change while they are read. A frame is decoded, tested, verified, pulled, applied, merged and
 * inverted, and bytes change between one load and the next. clang traces the loads (build.sh adds the option). Every call ends,
 * and touches only its
 * buffers. tests/unit/test_race.c does the same with its own frames, every function and a second thread.
 *   u8      bits 0 and 1: one load in 4 to 1024 finds a byte changed; the others choose how, and which function is called
 *   u8      bit 0: the frame is repaired first; the others: where changes begin
 *   frame */
#define FUZZ_INTERNALS
#include "mutate.h"

#define MOST (1u << 16) /* most bytes of elements; larger frames are skipped */
#define UNTRACED __attribute__((no_sanitize("coverage")))

/* ---- changes ---- */

static uint8_t *shared[2], *original[2];
static size_t shared_size[2];
static uint64_t state;
static unsigned one_in;

UNTRACED static void traced(const uint8_t *at, size_t size)
{
    unsigned i;
    for (i = 0; i < 2; i++) {
        const size_t k = (size_t)((uintptr_t)at - (uintptr_t)shared[i]) + (size_t)(state >> 40) % size;
        uint8_t *p;
        if (!shared[i] || at < shared[i] || k >= shared_size[i]) continue;
        p = shared[i] + k;
        state = state * 6364136223846793005u + 1442695040888963407u;
        if ((state >> 33) % one_in) return;
        if (state >> 62 == 0) *p ^= (uint8_t)(1u << (state >> 50 & 7));
        else if (state >> 62 == 1) *p = (uint8_t)(state >> 40);
        else *p = original[i][k];
        return;
    }
}
#define TRACE(n)                                                                                      \
    void __sanitizer_cov_load##n(const uint8_t *at);                                                  \
    UNTRACED void __sanitizer_cov_load##n(const uint8_t *at) { traced(at, n); }
TRACE(1) TRACE(2) TRACE(4) TRACE(8) TRACE(16)

static uint8_t *share(unsigned i, const uint8_t *bytes, size_t size)
{
    uint8_t *p = fuzz_copy(bytes, size);
    original[i] = fuzz_copy(bytes, size);
    shared_size[i] = size;
    shared[i] = p;
    return p;
}

/* ---- calls ---- */

static void pull(bitsnap *b, uint8_t *to, uint64_t count, unsigned width, const uint8_t *frame, size_t size)
{
    bitsnap_decoder s;
    size_t at, used, n;
    uint64_t done;
    if (bitsnap_decoder_begin(b, &s, frame, size, &at) || s.count > count || s.width > width) return;
    for (done = 0; s.position < s.count; done += n, at += used)
        if (bitsnap_decoder_pull(b, &s, to + done * s.width, (size_t)(count - done), &n, frame + at, size - at, &used)) return;
    (void)bitsnap_decoder_end(b, &s, frame + at, size - at, &used);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned rates[4] = { 4, 30, 200, 1024 };
    static fuzz_frame f;
    bitsnap_info info;
    bitsnap_block block;
    bitsnap b;
    uint8_t *frame, *to, *made;
    size_t bytes, bound, n;
    unsigned call;
    shared[0] = shared[1] = NULL;
    fuzz_drop(0);
    if (size < 2) return 0;
    call = data[0] >> 2;
    one_in = rates[data[0] & 3];
    state = data[1] * UINT64_C(0x9E3779B97F4A7C15);
    frame = fuzz_copy(data + 2, size - 2);
    size -= 2;
    if (data[1] & 1) {
        uint8_t *room = fuzz_room(size + 2048);
        memcpy(room, frame, size);
        size = fuzz_settle(&f, room, size, size + 2048);
        if (size) (void)fuzz_seal(&f, room, NULL);
        frame = room;
    }
    if (bitsnap_read_info(&info, frame, size) || info.count > MOST / 8 || info.block_log2 > 18) return 0;
    bytes = (size_t)info.count * info.width;
    bound = info.bound;
    to = fuzz_fill(bytes, 0x3C);
    made = fuzz_room(bound);
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, fuzz_workspace_size(info.block_log2, 2));
    b.flags = call & 1 ? BITSNAP_IGNORE_CHECKS : 0;
    frame = share(0, frame, size);
    if (info.has_base) {
        b.base.count = info.count;
        b.base.dtype = info.base_dtype;
        n = (size_t)info.count * bitsnap_width(info.base_dtype);
        b.base.data = share(1, fuzz_fill(n, 0x3C), n);
    }
    switch (call >> 1 & 7) {
    case 0: (void)bitsnap_test(&b, frame, size); break;
    case 1: (void)bitsnap_verify(&b, to, info.count, info.dtype, frame, size); break;
    case 2: pull(&b, to, info.count, info.width, frame, size); break;
    case 3:
        if (!bitsnap_read_info(&info, frame, size) && info.header_size < size)
            (void)bitsnap_read_block(&b, &block, &info, 0, frame + info.header_size, size - info.header_size);
        break;
    case 4:
        n = (size_t)(info.count / 3);
        (void)bitsnap_decode_range(&b, to, n, n, info.dtype, frame, size);
        break;
    case 5: (void)bitsnap_apply(&b, to, info.count, info.dtype, frame, size); break;
    case 6: (void)bitsnap_merge(&b, made, bound, &n, frame, size, frame, size); break;
    default: (void)bitsnap_invert(&b, made, bound, &n, frame, size); break;
    }
    (void)bitsnap_decode(&b, to, info.count, info.dtype, frame, size);
    shared[0] = shared[1] = NULL;
    return 0;
}

/* Frames alone; then deltas to the base above, with few or many changes. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    size_t size = fuzz_seed_frame(number, to + 2, room - 2), i;
    to[0] = (uint8_t)(number * 37);
    to[1] = (uint8_t)(number * 11 | 1);
    if (!size && number < 134) {
        static const bitsnap_dtype dtypes[5] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_I8, BITSNAP_F64 };
        const unsigned taken = fuzz_taken, kind = number % 22;
        const bitsnap_dtype dtype = dtypes[kind % 5];
        const size_t n = 100 + 60 * kind, bytes = n * bitsnap_width(dtype);
        uint8_t *base = fuzz_fill(bytes, 0x3C), *elements = fuzz_fill(bytes, 0x3C);
        uint64_t noise = number;
        bitsnap b = fuzz_codec(16);
        for (i = 0; i < bytes; i += 1 + (kind & 1) * 40) elements[i] ^= fuzz_noise(&noise) & (kind & 2 ? 255 : 1);
        b.base.data = base;
        b.base.count = n;
        b.base.dtype = dtype;
        b.flags = kind & 4 ? BITSNAP_SELF_CONTAINED : 0;
        REQUIRE(bitsnap_encode(&b, to + 2, room - 2, &size, elements, n, dtype) == BITSNAP_OK);
        fuzz_drop(taken);
    }
    return size ? size + 2 : 0;
}
