/* Errors are the same for any number of workers and any order of tasks. Also streams that were never begun, null pointers for
 * nothing, and frames that claim to be huge. */
#include "test.h"
#include "inside.h"
#include "data.h"

enum { MOST = 400000, KINDS = 7 };
static uint8_t *elements, *base, *back, *frame, *good, *other, *workspace;
static size_t size, workspace_size;

static bitsnap fresh(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = workspace_size;
    return b;
}

/* Runs tasks in one of three orders. Results must not depend on it. */
static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    const unsigned order = *(const unsigned *)context;
    uint64_t i;
    for (i = 0; i < count; i++)
        task(argument, order == 0 ? i : order == 1 ? count - 1 - i : (i * 2 + 1 < count ? i * 2 + 1 : (count - 1 - i) * 2), (unsigned)(i & 1));
}

/* Makes a frame of the given kind with many blocks. */
static size_t make(unsigned kind, bitsnap_dtype *dtype)
{
    static const bitsnap_dtype dtypes[KINDS] = { BITSNAP_BF16, BITSNAP_I16, BITSNAP_F32, BITSNAP_F32, BITSNAP_BF16, BITSNAP_BF16, BITSNAP_I8 };
    const size_t n = kind == 4 || kind == 5 ? 390000 : 9000 + test_below(20000);
    bitsnap b = fresh();
    size_t i;
    *dtype = dtypes[kind];
    b.block_log2 = kind == 4 || kind == 5 ? 16 : 9;
    b.flags = kind & 1 ? BITSNAP_CONTENT_ID : 0;
    data_fill(elements, n, *dtype, kind == 6 ? DATA_STEPS : kind == 1 ? DATA_NOISE : DATA_WEIGHTS);
    if (kind == 3) b.quantizer.bins = 16, b.flags = 0;
    if (kind == 4 || kind == 5) {
        memcpy(base, elements, 2 * n);
        for (i = 7; i < n; i += kind == 4 ? 3 : 100) elements[2 * i] ^= 1;
        b.base.data = base, b.base.count = n, b.base.dtype = *dtype;
        b.flags |= BITSNAP_SELF_CONTAINED;
    }
    CHECK(!bitsnap_encode(&b, good, 8 * MOST, &size, elements, n, *dtype), "%s", bitsnap_message(&b));
    return n;
}

typedef struct outcome {
    bitsnap_error error;
    size_t n, used;
} outcome;

enum { DECODE, TEST, VERIFY, RANGE, PULL, APPLY, INVERT, MERGE, CALLS };

static outcome call(unsigned which, unsigned workers, unsigned order, size_t n, bitsnap_dtype dtype, int delta)
{
    bitsnap b = fresh();
    bitsnap_status status = BITSNAP_OK;
    bitsnap_encoder s;
    outcome x;
    size_t at;
    memset(&x, 0, sizeof x);
    b.workers = workers;
    b.run = run;
    b.run_context = &order;
    if (delta) b.base.data = base, b.base.count = n, b.base.dtype = dtype;
    switch (which) {
    case DECODE: status = bitsnap_decode(&b, back, n, dtype, frame, size); break;
    case TEST: status = bitsnap_test(&b, frame, size); break;
    case VERIFY: status = bitsnap_verify(&b, elements, n, dtype, frame, size); break;
    case RANGE: status = bitsnap_decode_range(&b, back, n / 9, n / 2, dtype, frame, size); break;
    case PULL:
        status = bitsnap_decoder_begin(&b, &s, frame, size, &at);
        x.n = x.used = 1;
        if (!status) status = bitsnap_decoder_pull(&b, &s, back, n, &x.n, frame + at, size - at, &x.used);
        if (status && s.width) CHECK(x.n == !s.count && x.used == !s.count && s.position == 0, "%u", (unsigned)x.n);
        break;
    case APPLY:
        memcpy(back, base, n * bitsnap_width(dtype));
        status = bitsnap_apply(&b, back, n, dtype, frame, size);
        CHECK(!memcmp(back, status ? base : elements, n * bitsnap_width(dtype)));
        break;
    case INVERT: status = bitsnap_invert(&b, other, 8 * MOST, &x.n, frame, size); break;
    case MERGE: status = bitsnap_merge(&b, other, 8 * MOST, &x.n, frame, size, frame, size); break;
    default: break;
    }
    if (status && which != PULL) CHECK(x.n == 0);
    CHECK(status == b.error.status);
    x.error = b.error;
    return x;
}

/* Damages one to three bytes without repairing checks. Every call gives the same result with 1 to 4 workers. */
static void workers(void)
{
    unsigned kind, round, which, w;
    for (kind = 0; kind < KINDS; kind++) {
        bitsnap_dtype dtype;
        const size_t n = make(kind, &dtype);
        const int delta = kind == 4 || kind == 5;
        for (round = 0; round < (delta ? 12u : 60u); round++) {
            unsigned k;
            memcpy(frame, good, size);
            for (k = 0; k <= round % 3; k++) frame[30 + test_below(size - 30)] ^= (uint8_t)(1u << test_below(8));
            if (round % 4 == 0) frame[size - 1 - test_below(40)] ^= 1;
            for (which = 0; which < (delta ? CALLS : APPLY); which++) {
                const outcome one = call(which, 1, 0, n, dtype, delta);
                for (w = 2; w <= 4; w++) {
                    const outcome more = call(which, w, w % 3, n, dtype, delta);
                    CHECK(one.error.status == more.error.status && one.error.rule == more.error.rule &&
                          one.error.offset == more.error.offset && one.error.element == more.error.element && one.n == more.n && one.used == more.used,
                          "kind %u, call %u, %u workers: %d at %u, and %d at %u with one", kind, which, w, more.error.status,
                          (unsigned)more.error.offset, one.error.status, (unsigned)one.error.offset);
                }
            }
        }
    }
}

/* Capacities below the frame. Every call that makes a frame fails in the same way. */
static void capacities(void)
{
    unsigned kind, w;
    for (kind = 0; kind < 5; kind++) {
        bitsnap_dtype dtype;
        const size_t n = make(kind, &dtype);
        size_t capacity;
        bitsnap b = fresh();
        b.run = run;
        if (kind == 4) b.base.data = base, b.base.count = n, b.base.dtype = dtype;
        b.block_log2 = kind == 4 ? 16 : 9;
        for (capacity = 0; capacity < size; capacity += 1 + test_below(kind == 4 ? size / 12 : size / 40)) {
            bitsnap_error error;
            memset(&error, 0, sizeof error);
            for (w = 1; w <= 3; w++) {
                size_t made = 1;
                unsigned order = w;
                b.workers = w;
                b.run_context = &order;
                (void)bitsnap_encode(&b, other, capacity, &made, elements, n, dtype);
                CHECK(b.error.status == BITSNAP_E_CAPACITY ? made == 0 : b.error.status == BITSNAP_OK);
                if (w == 1) error = b.error;
                CHECK(error.status == b.error.status && error.offset == b.error.offset && error.element == b.error.element,
                      "kind %u, capacity %u, %u workers: status %d at %u, %u, else %d, %u, %u", kind, (unsigned)capacity, w, b.error.status, (unsigned)b.error.element, (unsigned)b.error.offset,
                          error.status, (unsigned)error.element, (unsigned)error.offset);
            }
        }
    }
}

/* Uses streams that were never begun, and streams with one wrong bit. Errors and results are allowed; accesses outside are
 * not. */
static void streams(void)
{
    static const uint8_t some[64] = { 0 };
    bitsnap b = fresh();
    bitsnap_encoder s, begun[3];
    unsigned round, kind;
    size_t made, used, n, at, i;
    guarded to = guarded_alloc(4096, 0), room = guarded_alloc(512, 0);
    memset(&s, 0, sizeof s);
    CHECK(bitsnap_encoder_push(&b, &s, to.p, 64, &made, some, 0) == BITSNAP_E_ARGUMENT && made == 0);
    CHECK(bitsnap_encoder_end(&b, &s, to.p, 64, &made) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_decoder_pull(&b, &s, to.p, 1, &n, some, 64, &used) == BITSNAP_E_ARGUMENT && n == 0 && used == 0);
    CHECK(bitsnap_decoder_end(&b, &s, some, 64, &used) == BITSNAP_E_ARGUMENT);
    for (round = 0; round < 3000; round++) {
        test_fill(&s, sizeof s);
        s.index = NULL;
        if (round & 1) s.dtype = (bitsnap_dtype)(1 + round % 11), s.width = bitsnap_width(s.dtype), s.block_log2 %= 32, s.count = s.position = 0;
        (void)bitsnap_encoder_push(&b, &s, to.p, 4096, &made, some, 0);
        (void)bitsnap_encoder_end(&b, &s, to.p, 4096, &made);
        (void)bitsnap_decoder_pull(&b, &s, room.p, 64, &n, some, 64, &used);
        (void)bitsnap_decoder_end(&b, &s, some, 64, &used);
    }
    for (kind = 0; kind < 3; kind++) { /* begun and half-way, then one bit changes, except in members that the caller sets */
        uint8_t index[64];
        const size_t half = 64;
        data_fill(elements, 128, BITSNAP_F32, DATA_WEIGHTS);
        b = fresh();
        b.block_log2 = 6;
        b.flags = kind == 1 ? 0 : BITSNAP_CONTENT_ID;
        b.quantizer.bins = kind == 1 ? 16 : 0;
        CHECK(!bitsnap_encode(&b, frame, 4096, &size, elements, 128, BITSNAP_F32));
        CHECK(!bitsnap_encoder_begin(&b, &begun[0], to.p, 4096, &made, 128, BITSNAP_F32));
        begun[0].index = index, begun[0].index_capacity = sizeof index;
        CHECK(!bitsnap_encoder_push(&b, &begun[0], to.p, 4096, &made, elements, half));
        CHECK(!bitsnap_decoder_begin(&b, &begun[1], frame, size, &at) &&
              !bitsnap_decoder_pull(&b, &begun[1], room.p, half, &n, frame + at, size - at, &used) && n == half);
        at += used;
        for (round = 0; round < 8 * sizeof s; round += 1 + kind) {
            const size_t place = round / 8;
            const unsigned outside = place >= offsetof(bitsnap_encoder, index) && place < offsetof(bitsnap_encoder, index_capacity) + sizeof s.index_capacity;
            for (i = 0; i < 2 && !outside; i++) {
                s = begun[i];
                ((uint8_t *)&s)[place] ^= (uint8_t)(1u << round % 8);
                if (i == 0) {
                    if (s.width == 4) (void)bitsnap_encoder_push(&b, &s, to.p, 4096, &made, elements, half);
                    (void)bitsnap_encoder_end(&b, &s, to.p, 4096, &made);
                } else {
                    (void)bitsnap_decoder_pull(&b, &s, room.p, 512 / (s.width && s.width <= 8 ? s.width : 8), &n, frame + at, size - at, &used);
                    (void)bitsnap_decoder_end(&b, &s, frame + at, size - at, &used);
                }
            }
        }
    }
    guarded_free(to);
    guarded_free(room);
}

/* Null with size 0 is allowed everywhere. Sanitizers check that nothing is added to it. */
static void nothing(void)
{
    unsigned t;
    for (t = 0; t == 0 || bitsnap_kernels_get(t); t++) {
        const bitsnap_kernels *k = bitsnap_kernels_get(t);
        bitsnap b = fresh();
        bitsnap_info info;
        bitsnap_encoder s;
        size_t made, used, n, at;
        uint8_t to[128];
        b.kernels = k;
        CHECK(bitsnap_hash(NULL, 0) == bitsnap_hash(to, 0));
        CHECK(bitsnap_content_id(NULL, 0, BITSNAP_F32) == bitsnap_content_id(to, 0, BITSNAP_F32));
        CHECK(!bitsnap_mask_encode(k, 4, NULL, NULL, 0, NULL, NULL, 0, &n) && n == 0);
        CHECK(!bitsnap_mask_decode(k, 4, NULL, NULL, 0, NULL, NULL, 0));
        CHECK(!bitsnap_planes_split(k, NULL, NULL, 0, BITSNAP_BF16) && !bitsnap_planes_join(k, NULL, NULL, 0, BITSNAP_BF16));
        CHECK(!bitsnap_list_encode(&b, NULL, 0, &made, NULL, 0) && made == 0);
        CHECK(!bitsnap_list_decode(&b, NULL, 0, NULL, 0, &used) && used == 0 && !bitsnap_list_decode(&b, NULL, 0, NULL, 0, NULL));
        CHECK(bitsnap_list_decode(&b, to, 1, NULL, 0, &used) == BITSNAP_E_TRUNCATED);
        CHECK(bitsnap_read_info(&info, NULL, 0) == BITSNAP_E_TRUNCATED && bitsnap_test(&b, NULL, 0) == BITSNAP_E_TRUNCATED);
        CHECK(bitsnap_encode(&b, NULL, 0, &made, NULL, 0, BITSNAP_F32) == BITSNAP_E_ARGUMENT);
        CHECK(!bitsnap_encode(&b, to, sizeof to, &made, NULL, 0, BITSNAP_F32));
        CHECK(!bitsnap_decode(&b, NULL, 0, BITSNAP_F32, to, made) && !bitsnap_verify(&b, NULL, 0, BITSNAP_F32, to, made));
        CHECK(!bitsnap_decode_range(&b, NULL, 0, 0, BITSNAP_F32, to, made));
        CHECK(!bitsnap_encoder_begin(&b, &s, to, sizeof to, &made, 0, BITSNAP_F32) && !bitsnap_encoder_push(&b, &s, NULL, 0, &n, NULL, 0) &&
              !bitsnap_encoder_end(&b, &s, NULL, 0, &n));
        CHECK(!bitsnap_decoder_begin(&b, &s, to, made, &at) && !bitsnap_decoder_pull(&b, &s, NULL, 0, &n, NULL, 0, &used) &&
              !bitsnap_decoder_end(&b, &s, NULL, 0, &used) && used == 0);
        for (n = 0; n < made; n++) CHECK(bitsnap_decoder_begin(&b, &s, n ? to : NULL, n, &used) == BITSNAP_E_TRUNCATED);
    }
}

/* About 100 bytes that expand to gigabytes. Testing them is quick, includes the content id, and the id is right. */
static void claims(void)
{
    static const uint64_t counts[] = { 1, 65535, 65536, 65537, 300000, (uint64_t)1 << 32, ((uint64_t)1 << 33) + 12345 };
    unsigned i, d;
    for (d = 0; d < 3; d++)
        for (i = 0; i < 7; i++) {
            static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F64 };
            static const uint8_t element[8] = { 0xC9, 0x3F, 1, 2, 3, 4, 5, 6 };
            bitsnap b = fresh();
            bitsnap_encoder s;
            bitsnap_info info;
            size_t at, n, used;
            if (counts[i] > SIZE_MAX) continue;
            size = inside_constant(&b, frame, counts[i], dtypes[d], element);
            b = fresh();
            CHECK(size < 150 && !bitsnap_test(&b, frame, size), "%s", bitsnap_message(&b));
            CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at) && !bitsnap_decoder_pull(&b, &s, NULL, (size_t)counts[i], &n, frame + at, size - at, &used) &&
                  n == counts[i], "%s", bitsnap_message(&b));
            at += used;
            CHECK(!bitsnap_decoder_end(&b, &s, frame + at, size - at, &used), "%s", bitsnap_message(&b));
            CHECK(!bitsnap_read_info(&info, frame, size));
            if (counts[i] <= 300000) {
                CHECK(!bitsnap_decode(&b, back, counts[i], dtypes[d], frame, size), "%s", bitsnap_message(&b));
                CHECK(bitsnap_content_id(back, counts[i], dtypes[d]) == info.content_id);
                CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at)); /* in pieces that are no hash leaves */
                while (s.position < s.count)
                    if (bitsnap_decoder_pull(&b, &s, test_random() & 1 ? NULL : back, 1 + test_below(100000), &n, frame + at, size - at, &used)) break;
                    else at += used;
                CHECK(s.position == s.count && !bitsnap_decoder_end(&b, &s, frame + at, size - at, &used), "%s", bitsnap_message(&b));
            }
            at = size - 28 - 8; /* another content id in a valid footer */
            frame[at] ^= 1;
            test_store64(frame + size - 12, inside_bound_hash(test_load64(frame + info.header_size - 8), frame + at - 8, size - 4 - at));
            CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at) && !bitsnap_decoder_pull(&b, &s, NULL, (size_t)counts[i], &n, frame + at, size - at, &used));
            at += used;
            CHECK(bitsnap_decoder_end(&b, &s, frame + at, size - at, &used) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_CONTENT_ID);
        }
}

/* Pulls quantized frames block by block. Between calls the workspace stays, changes or moves. */
static void tables(void)
{
    const size_t n = 6000;
    bitsnap b = fresh();
    unsigned round;
    data_fill(elements, n, BITSNAP_F32, DATA_WEIGHTS);
    b.block_log2 = 6;
    b.quantizer.bins = 300;
    CHECK(!bitsnap_encode(&b, frame, 8 * MOST, &size, elements, n, BITSNAP_F32) && !bitsnap_decode(&b, elements, n, BITSNAP_F32, frame, size));
    for (round = 0; round < 4; round++) {
        bitsnap_encoder s;
        size_t at, used, some;
        memset(back, 0, 4 * n);
        CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at));
        while (s.position < n) {
            if (round == 1) test_fill(workspace, 400000);
            if (round == 2) workspace[test_below(400000)] ^= 4;
            if (round == 3) b.workspace = workspace + test_below(3);
            if (bitsnap_decoder_pull(&b, &s, back + 4 * s.position, 64, &some, frame + at, size - at, &used)) break;
            at += used;
        }
        CHECK(s.position == n && !memcmp(back, elements, 4 * n), "%s", bitsnap_message(&b));
    }
}

int main(void)
{
    test_program = "errors";
    workspace_size = test_workspace_delta(20, 4);
    workspace = malloc(workspace_size + 8);
    elements = malloc(8 * MOST), base = malloc(8 * MOST), back = malloc(8 * MOST), frame = malloc(8 * MOST), good = malloc(8 * MOST);
    other = malloc(8 * MOST);
    RUN(workers);
    RUN(capacities);
    RUN(streams);
    RUN(nothing);
    RUN(claims);
    RUN(tables);
    free(elements), free(base), free(back), free(frame), free(good), free(other), free(workspace);
    return test_failures != 0;
}
