/* BLOCK, FRAME, STREAM, ENTRY: what goes in comes out, on every table, in every way; what is damaged does not. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
#include "data.h"
#include <pthread.h>
#include <time.h>

static uint8_t workspace[BITSNAP_WORKSPACE];

static bitsnap fresh(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    return b;
}

/* bound for any block size */
static size_t bound(size_t n, unsigned dtype, unsigned log2)
{
    return n * bitsnap_width((bitsnap_dtype)dtype) + 20 * (n / ((size_t)1 << (log2 ? log2 : 16)) + 1) + 96;
}

static const char *name(unsigned dtype) { return bitsnap_dtype_name((bitsnap_dtype)dtype); }

/* ---- round trips ---- */

static void round_trip(unsigned dtype, size_t n, int shape, int level, unsigned flags, unsigned log2)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)dtype);
    const int front = (int)test_below(2);
    guarded from = guarded_alloc(n * w, front), back = guarded_alloc(n * w, front), frame;
    uint8_t *first = (uint8_t *)malloc(bound(n, dtype, log2)), *other = (uint8_t *)malloc(bound(n, dtype, log2));
    const bitsnap_kernels *k;
    bitsnap b = fresh();
    size_t size = 0, size2;
    unsigned t;
    data_fill(from.p, n, dtype, shape);
    b.level = level;
    b.flags = flags;
    b.block_log2 = log2;
    b.kernels = bitsnap_kernels_get(0);
    CHECK(bitsnap_encode(&b, first, bound(n, dtype, log2), &size, from.p, n, (bitsnap_dtype)dtype) == BITSNAP_OK, "%s %zu", name(dtype), n);
    CHECK(size <= bitsnap_bound(&b, n, (bitsnap_dtype)dtype));
    CHECK(size <= n * w + 24 + ((n >> (log2 ? log2 : 16)) + 1) * 16 + 44 + 8, "%zu bytes of %zu", size, n * w);
    frame = guarded_alloc(size, front);
    memcpy(frame.p, first, size);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        memset(workspace, t & 1 ? 0xFF : 0xA5, t < 2 ? sizeof workspace : 100000); /* must not matter */
        CHECK(bitsnap_encode(&b, other, bound(n, dtype, log2), &size2, from.p, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        CHECK(size == size2 && !memcmp(first, other, size), "%s: other bytes: %s %zu shape %d level %d", bitsnap_kernels_name(k), name(dtype), n, shape, level);
        memset(back.p, 0x77, n * w);
        CHECK(bitsnap_decode(&b, back.p, n, (bitsnap_dtype)dtype, frame.p, size) == BITSNAP_OK, "%s: %s: %s %zu shape %d level %d flags %u log2 %u, rule %u at %llu",
              bitsnap_kernels_name(k), bitsnap_message(&b), name(dtype), n, shape, level, flags, log2, b.error.rule, (unsigned long long)b.error.offset);
        CHECK(!n || !memcmp(back.p, from.p, n * w), "%s: %s %zu shape %d level %d flags %u log2 %u", bitsnap_kernels_name(k), name(dtype), n, shape, level, flags, log2);
    }
    CHECK(bitsnap_test(&b, frame.p, size) == BITSNAP_OK);
    CHECK(bitsnap_verify(&b, from.p, n, (bitsnap_dtype)dtype, frame.p, size) == BITSNAP_OK);
    guarded_free(from);
    guarded_free(back);
    guarded_free(frame);
    free(first);
    free(other);
}

static void every_length(void)
{
    unsigned dtype;
    size_t n;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (n = 0; n <= 1100; n += n < 300 ? 1 : 7)
            round_trip(dtype, n, (int)((n + dtype) % DATA_SHAPES), (int)(n % 3), n % 5 == 0 ? BITSNAP_NO_CHECKS : n % 7 == 0 ? BITSNAP_CONTENT_ID : 0, 0);
}

static void every_shape(void)
{
    static const size_t sizes[] = { 64, 4095, 4096, 4097, 5000, 65535, 65536, 65537, 70000, 131072 + 63 };
    unsigned dtype, i;
    int shape, level;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (shape = 0; shape < DATA_SHAPES; shape++)
            for (level = 0; level <= BITSNAP_BEST; level++) {
                i = (unsigned)test_below(sizeof sizes / sizeof *sizes);
                round_trip(dtype, sizes[i], shape, level, BITSNAP_CONTENT_ID * (shape & 1), 0);
            }
}

static void block_borders(void)
{
    static const unsigned logs[] = { 6, 7, 9, 12 };
    unsigned dtype, l;
    int d;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (l = 0; l < 4; l++)
            for (d = -2; d <= 2; d++) {
                const size_t block = (size_t)1 << logs[l];
                round_trip(dtype, block + (size_t)d, DATA_WEIGHTS, d & 1, 0, logs[l]);
                round_trip(dtype, 3 * block + (size_t)d, DATA_SPARSE, 2, BITSNAP_CONTENT_ID, logs[l]);
            }
}

/* ---- capacity ---- */

static void destination_too_small(void)
{
    unsigned dtype;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
        int shape;
        for (shape = 0; shape < DATA_SHAPES; shape++) {
            const unsigned w = bitsnap_width((bitsnap_dtype)dtype);
            const size_t n = 150 + test_below(100);
            uint8_t *from = (uint8_t *)malloc(n * w), *whole = (uint8_t *)malloc(bound(n, dtype, 6));
            bitsnap b = fresh();
            size_t size, size2, cap;
            data_fill(from, n, dtype, shape);
            b.block_log2 = 6;
            b.flags = BITSNAP_CONTENT_ID;
            CHECK(bitsnap_encode(&b, whole, bound(n, dtype, 6), &size, from, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
            for (cap = 0; cap <= size; cap++) {
                guarded to = guarded_alloc(cap, 0);
                const bitsnap_status s = bitsnap_encode(&b, to.p, cap, &size2, from, n, (bitsnap_dtype)dtype);
                if (cap < size) CHECK(s == (cap ? BITSNAP_E_CAPACITY : s) && s != BITSNAP_OK && size2 == 0, "%s: %d at %zu of %zu", name(dtype), s, cap, size);
                else CHECK(s == BITSNAP_OK && size2 == size && !memcmp(to.p, whole, size), "exactly enough");
                guarded_free(to);
            }
            free(from);
            free(whole);
        }
    }
}

/* ---- errors ---- */

static void callers_mistakes(void)
{
    uint8_t frame[4096], elements[1024], out[1024];
    bitsnap b = fresh();
    bitsnap_info info;
    size_t size;
    data_fill(elements, 512, BITSNAP_BF16, DATA_WEIGHTS);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_decode(&b, out, 511, BITSNAP_BF16, frame, size) == BITSNAP_E_MISMATCH);
    CHECK(bitsnap_decode(&b, out, 512, BITSNAP_F16, frame, size) == BITSNAP_E_MISMATCH);
    CHECK(bitsnap_decode(&b, NULL, 512, BITSNAP_BF16, frame, size) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_decode(&b, out, 512, BITSNAP_BF16, frame, size + 1) == BITSNAP_E_TRAILING && b.error.rule == BITSNAP_R_TRAILING);
    CHECK(bitsnap_decode(&b, out, 512, BITSNAP_BF16, NULL, 0) == BITSNAP_E_TRUNCATED);
    CHECK(bitsnap_decode(NULL, out, 512, BITSNAP_BF16, frame, size) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, (bitsnap_dtype)12) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, NULL, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_encode(&b, NULL, 0, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, UINT64_C(1) << 49, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    b.block_log2 = 5;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    b.block_log2 = 21;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    for (b.block_log2 = 9; b.block_log2 <= 20; b.block_log2 += 11) { /* only what the elements need */
        const size_t needed = bitsnap_workspace_size(&b, 512, BITSNAP_BF16);
        b.workspace_size = needed - 1;
        CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_WORKSPACE);
        CHECK(b.error.needed == needed && b.error.offset == 0 && needed <= test_workspace(9, 1));
    }
    b.workspace_size = test_workspace(16, 1);
    b.block_log2 = 0;
    b.flags = 64;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    b.flags = 0;
    b.level = 4;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    b.level = 0;
    CHECK(b.error.argument && !strcmp(b.error.argument, "level"));
    b.struct_size = sizeof b - 1;
    b.error.status = BITSNAP_E_DIFFERENT;
    CHECK(bitsnap_decode(&b, out, 512, BITSNAP_BF16, frame, size) == BITSNAP_E_ARGUMENT && b.error.status == BITSNAP_E_DIFFERENT);
    b.struct_size = sizeof b;
    CHECK(sizeof(void *) != 8 || (sizeof b == 248 && sizeof(bitsnap_info) == 248)); /* as docs/EMBEDDING.md says */
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, NULL, 512, BITSNAP_BF16) == BITSNAP_E_ARGUMENT);
    CHECK(!strcmp(b.error.argument, "elements") && !b.error.offset && !b.error.needed);
    CHECK(!strcmp(bitsnap_version(), BITSNAP_VERSION));
    b.workspace_size = bitsnap_workspace_size(&b, 512, BITSNAP_BF16) - 1;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_E_WORKSPACE);
    b.workspace_size++;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 512, BITSNAP_BF16) == BITSNAP_OK);
    b.workspace = NULL;
    CHECK(bitsnap_decode(&b, out, 512, BITSNAP_BF16, frame, size) == BITSNAP_E_WORKSPACE);
    CHECK(bitsnap_read_info(&info, frame, 10) == BITSNAP_E_TRUNCATED && bitsnap_read_info(&info, "abcd", 4) == BITSNAP_E_MAGIC);
    CHECK(strlen(bitsnap_message(&b)) > 3 && strlen(bitsnap_status_message((bitsnap_status)99)) > 3);
    CHECK(!strcmp(bitsnap_kernels_name(bitsnap_kernels_get(0)), "scalar") && strlen(bitsnap_kernels_name(NULL)) > 2);
}

/* Whatever lies in the workspace: the error is of this call. */
static void errors_of_this_call(void)
{
    static uint8_t frame[100000], elements[300000];
    bitsnap b = fresh();
    size_t size;
    unsigned fill;
    data_fill(elements, sizeof elements / 2, BITSNAP_BF16, DATA_WEIGHTS);
    for (fill = 0; fill < 2; fill++) {
        memset(workspace, fill ? 0xA5 : 0, sizeof workspace);
        CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, sizeof elements / 2, BITSNAP_BF16) == BITSNAP_E_CAPACITY);
        CHECK(b.error.rule == 0 && b.error.element == 65536 && size == 0 && !strcmp(bitsnap_message(&b), "destination too small"));
    }
}

/* A push that fails has done nothing: with more room it goes on, and to the same frame. */
static void push_again(void)
{
    enum { N = 200000 };
    static uint8_t frame[2 * N + 1000], pushed[2 * N + 1000], elements[2 * N], index[64];
    bitsnap b = fresh();
    bitsnap_encoder s;
    size_t whole, at = 0, part, room, failed = 0;
    b.flags = BITSNAP_CONTENT_ID;
    data_fill(elements, N, BITSNAP_BF16, DATA_WEIGHTS);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &whole, elements, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_encoder_begin(&b, &s, pushed, sizeof pushed, &at, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_encoder_push(&b, &s, pushed + at, sizeof pushed - at, &part, elements, N) == BITSNAP_E_ARGUMENT, "no index");
    s.index = index;
    for (room = 0; room < sizeof pushed - at; room += 50000) {
        const bitsnap_status status = bitsnap_encoder_push(&b, &s, pushed + at, room, &part, elements, N);
        if (!status) break;
        CHECK(status == BITSNAP_E_CAPACITY && part == 0 && s.position == 0 && s.stored == at && s.index_size == 0, "%d with %zu bytes", status, room);
        failed++;
        s.index_capacity = room >= 150000 ? sizeof index : room / 20000;
    }
    CHECK(failed > 4 && s.position == N, "%zu have failed", failed);
    at += part;
    for (failed = 0; failed < 100; failed++) CHECK(bitsnap_encoder_end(&b, &s, pushed + at, 20, &part) == BITSNAP_E_CAPACITY);
    CHECK(bitsnap_encoder_end(&b, &s, pushed + at, sizeof pushed - at, &part) == BITSNAP_OK);
    CHECK(at + part == whole && !memcmp(frame, pushed, whole));
}

static void info_tells(void)
{
    static uint8_t frame[300000], elements[200000];
    bitsnap b = fresh();
    bitsnap_info info;
    size_t size;
    data_fill(elements, 100000, BITSNAP_BF16, DATA_WEIGHTS);
    b.flags = BITSNAP_CONTENT_ID;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 100000, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK);
    CHECK(info.dtype == BITSNAP_BF16 && info.width == 2 && info.count == 100000 && info.elements_size == 200000 && info.blocks == 2);
    CHECK(info.block_log2 == 16 && info.version == 1 && info.checks && info.has_content_id && info.header_size == 24);
    CHECK(info.frame_size == size && info.content_id == bitsnap_content_id(elements, 100000, BITSNAP_BF16));
    CHECK(info.workspace_size <= BITSNAP_WORKSPACE);
    CHECK(bitsnap_read_info(&info, frame, size - 1) == BITSNAP_OK && info.frame_size == 0);
    b.flags = 0;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 1000, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_read_info(&info, frame, size + 100) == BITSNAP_OK && info.frame_size == size && !info.has_content_id);
}

/* Finds every truncation and every flipped bit. Each error has a position. */
static void truncations_and_flips(void)
{
    static const struct {
        unsigned dtype, n, log2, flags;
        int shape, level;
    } frames[] = { { BITSNAP_BF16, 300, 7, BITSNAP_CONTENT_ID, DATA_WEIGHTS, 0 }, { BITSNAP_F32, 200, 6, 0, DATA_POSITIVE, 0 },
                   { BITSNAP_F16, 256, 0, 0, DATA_WEIGHTS, 2 },                    { BITSNAP_I32, 130, 6, BITSNAP_CONTENT_ID, DATA_STEPS, 1 },
                   { BITSNAP_F64, 70, 6, 0, DATA_WIDE, 0 },                        { BITSNAP_I8, 400, 0, 0, DATA_SPARSE, 0 },
                   { BITSNAP_BOOL, 500, 8, BITSNAP_CONTENT_ID, DATA_ZERO, 0 },     { BITSNAP_F8_E4M3, 300, 0, 0, DATA_WEIGHTS, 0 },
                   { BITSNAP_BF16, 0, 0, BITSNAP_CONTENT_ID, DATA_ZERO, 0 },       { BITSNAP_F64, 200, 0, 0, DATA_TRUNCATED, 0 } };
    size_t f;
    for (f = 0; f < sizeof frames / sizeof *frames; f++) {
        const unsigned w = bitsnap_width((bitsnap_dtype)frames[f].dtype), n = frames[f].n;
        uint8_t *from = (uint8_t *)malloc(n * w + 1), *out = (uint8_t *)malloc(n * w + 1), *frame = (uint8_t *)malloc(bound(n, frames[f].dtype, 6) + 64);
        bitsnap b = fresh();
        size_t size, i;
        unsigned bit, t;
        b.block_log2 = frames[f].log2;
        b.level = frames[f].level;
        b.flags = frames[f].flags;
        data_fill(from, n, frames[f].dtype, frames[f].shape);
        CHECK(bitsnap_encode(&b, frame, bound(n, frames[f].dtype, 6), &size, from, n, (bitsnap_dtype)frames[f].dtype) == BITSNAP_OK);
        for (i = 0; i < size; i++) {
            guarded cut = guarded_alloc(i, 0);
            memcpy(cut.p, frame, i);
            for (t = 0; bitsnap_kernels_get(t); t++) {
                b.kernels = bitsnap_kernels_get(t);
                CHECK(bitsnap_decode(&b, out, n, (bitsnap_dtype)frames[f].dtype, cut.p, i) == BITSNAP_E_TRUNCATED, "frame %zu cut at %zu of %zu: %s", f, i, size, bitsnap_message(&b));
                CHECK(b.error.offset <= i, "offset %llu", (unsigned long long)b.error.offset);
                CHECK(bitsnap_test(&b, cut.p, i) == BITSNAP_E_TRUNCATED);
                CHECK(bitsnap_decode_range(&b, out, 0, n, (bitsnap_dtype)frames[f].dtype, cut.p, i) != BITSNAP_OK || n == 0);
            }
            guarded_free(cut);
        }
        for (i = 0; i < size; i++)
            for (bit = 0; bit < 8; bit++) {
                bitsnap_status s;
                frame[i] ^= (uint8_t)(1u << bit);
                for (t = 0; bitsnap_kernels_get(t); t++) {
                    b.kernels = bitsnap_kernels_get(t);
                    s = bitsnap_decode(&b, out, n, (bitsnap_dtype)frames[f].dtype, frame, size);
                    CHECK(s != BITSNAP_OK && s != BITSNAP_E_ARGUMENT && s != BITSNAP_E_WORKSPACE, "frame %zu: bit %u of byte %zu is not noticed", f, bit, i);
                    CHECK(b.error.offset <= size);
                    if (t) continue;
                    s = bitsnap_decode_range(&b, out, 0, n, (bitsnap_dtype)frames[f].dtype, frame, size);
                    /* a range decode does not need the content id: its own bits alone are covered by the footer's check */
                    CHECK(s != BITSNAP_OK || (n == 0 && i >= 24), "range: bit %u of byte %zu", bit, i);
                    b.flags |= BITSNAP_IGNORE_CHECKS; /* anything may come out, but nothing may go wrong */
                    (void)bitsnap_decode(&b, out, n, (bitsnap_dtype)frames[f].dtype, frame, size);
                    b.flags &= ~(unsigned)BITSNAP_IGNORE_CHECKS;
                }
                frame[i] ^= (uint8_t)(1u << bit);
            }
        free(from);
        free(out);
        free(frame);
    }
}

/* A block moved, repeated, or put in from another frame. */
static void blocks_out_of_place(void)
{
    enum { N = 4 * 64 };
    uint16_t a[N], c[N], out[N];
    uint8_t first[2048], second[2048], mixed[2048];
    bitsnap b = fresh();
    size_t size, size2, at[5], i, length, used;
    static bitsnap_index index;
    bitsnap_source source;
    bitsnap_info info;
    bitsnap_extent x;
    bitsnap_decoder pull;
    b.block_log2 = 6;
    data_fill(a, N, BITSNAP_BF16, DATA_NOISE); /* noise is stored: all blocks have one size */
    memcpy(c, a, sizeof c);
    c[100] ^= 1;
    CHECK(bitsnap_encode(&b, first, sizeof first, &size, a, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_encode(&b, second, sizeof second, &size2, c, N, BITSNAP_BF16) == BITSNAP_OK && size == size2);
    for (i = 0, at[0] = 24; i < 4; i++) at[i + 1] = at[i] + 12 + (bsn_load32(first + at[i]) >> 8);
    length = at[1] - at[0];
    CHECK(at[4] - at[3] == length);
    memcpy(mixed, first, size); /* swapped */
    memcpy(mixed + at[0], first + at[1], length);
    memcpy(mixed + at[1], first + at[0], length);
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, mixed, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_BLOCK_CHECK);
    CHECK(bitsnap_decode_range(&b, out, 0, 64, BITSNAP_BF16, mixed, size) == BITSNAP_E_CHECK);
    memcpy(mixed, first, size); /* repeated */
    memcpy(mixed + at[2], first + at[1], length);
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, mixed, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_BLOCK_CHECK);
    CHECK(b.error.offset == at[2] && b.error.element == 128, "at %llu", (unsigned long long)b.error.offset);
    memcpy(mixed, first, size); /* of another frame, with equal header, at its place */
    memcpy(mixed + at[1], second + at[1], length);
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, mixed, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_test(&b, mixed, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_verify(&b, a, N, BITSNAP_BF16, mixed, size) && bitsnap_verify(&b, c, N, BITSNAP_BF16, mixed, size));
    CHECK(bitsnap_decode_range(&b, out, 64, 64, BITSNAP_BF16, mixed, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(b.error.offset == at[1] && b.error.element == 64, "at %llu", (unsigned long long)b.error.offset);
    CHECK(bitsnap_decode_range(&b, out, 0, 64, BITSNAP_BF16, mixed, size) == BITSNAP_OK && !memcmp(out, a, 128));
    memset(&source, 0, sizeof source);
    source.data = mixed, source.size = size;
    CHECK(!bitsnap_index_open(&b, &index, &info, &source) && !bitsnap_index_find(&b, &index, 100, &x) && x.offset == at[1]);
    CHECK(bitsnap_index_decode(&b, &index, out, 100, 1) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_block_decode(&b, out, 100, 1, &info, &x, mixed + at[1]) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_block_decode(&b, out, 100, 1, &info, &x, first + at[1]) == BITSNAP_OK && out[0] == a[100]);
    CHECK(!bitsnap_decoder_begin(&b, &pull, mixed, size, &used) && used == at[0]);
    CHECK(!bitsnap_decoder_pull(&b, &pull, out, N, &i, mixed + at[0], size - at[0], &used) && i == N && used == at[4] - at[0]);
    CHECK(bitsnap_decoder_end(&b, &pull, mixed + at[4], size - at[4], &used) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    b.flags = BITSNAP_IGNORE_CHECKS;
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, mixed, size) == BITSNAP_OK && !memcmp(out, c, sizeof c));
    CHECK(bitsnap_decode_range(&b, out, 100, 1, BITSNAP_BF16, mixed, size) == BITSNAP_OK && out[0] == c[100]);
}

/* ---- ranges ---- */

static void ranges(void)
{
    unsigned dtype;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
        const unsigned w = bitsnap_width((bitsnap_dtype)dtype);
        const size_t n = 500 + test_below(300);
        uint8_t *from = (uint8_t *)malloc(n * w), *frame = (uint8_t *)malloc(bound(n, dtype, 7));
        bitsnap b = fresh();
        size_t size, first, count;
        int shape;
        for (shape = 0; shape < DATA_SHAPES; shape++) {
            b.block_log2 = shape & 1 ? 7 : 16;
            b.flags = shape & 2 ? BITSNAP_CONTENT_ID : 0;
            data_fill(from, n, dtype, shape);
            CHECK(bitsnap_encode(&b, frame, bound(n, dtype, 7), &size, from, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
            for (first = 0; first <= n; first += 1 + test_below(60))
                for (count = 0; first + count <= n; count += 1 + test_below(120)) {
                    guarded out = guarded_alloc(count * w, 0);
                    CHECK(bitsnap_decode_range(&b, out.p, first, count, (bitsnap_dtype)dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
                    CHECK(!count || !memcmp(out.p, from + first * w, count * w), "%s: %zu from %zu of %zu", name(dtype), count, first, n);
                    guarded_free(out);
                }
            CHECK(bitsnap_decode_range(&b, from, 0, n + 1, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_ARGUMENT);
            CHECK(bitsnap_decode_range(&b, from, n + 1, 0, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_ARGUMENT);
            CHECK(bitsnap_decode_range(&b, from, UINT64_MAX, 2, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_ARGUMENT);
            CHECK(bitsnap_decode_range(&b, from, 0, n, (bitsnap_dtype)(dtype == 1 ? 2 : 1), frame, size) == BITSNAP_E_MISMATCH);
        }
        free(from);
        free(frame);
    }
}

/* a range reads only the blocks it needs: the others may be damaged */
static void range_touches_its_blocks_only(void)
{
    enum { N = 10 * 128 };
    uint16_t a[N], out[N];
    uint8_t frame[4096];
    bitsnap b = fresh();
    size_t size, at = 24, i;
    b.block_log2 = 7;
    data_fill(a, N, BITSNAP_BF16, DATA_WEIGHTS);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, a, N, BITSNAP_BF16) == BITSNAP_OK);
    for (i = 0; i < 10; i++) {
        const size_t length = 12 + (bsn_load32(frame + at) >> 8);
        if (i != 4) frame[at + 20] ^= 8;
        at += length;
    }
    CHECK(bitsnap_decode_range(&b, out, 4 * 128, 128, BITSNAP_BF16, frame, size) == BITSNAP_OK);
    CHECK(!memcmp(out, a + 4 * 128, 256));
    CHECK(bitsnap_decode_range(&b, out, 4 * 128 - 1, 2, BITSNAP_BF16, frame, size) == BITSNAP_E_CHECK);
    CHECK(b.error.element == 3 * 128);
}

/* ---- streams ---- */

/* What identifies the contents of a frame. */
static uint64_t seal_of(const uint8_t *frame, const bitsnap_info *info)
{
    const size_t size = (size_t)info->frame_size, header = info->header_size;
    if (info->blocks > 1 || info->has_content_id) return bsn_load64(frame + size - 12);
    return info->blocks && info->checks ? bsn_load64(frame + header + 4) : info->header_check;
}

static void streams(void)
{
    int round;
    for (round = 0; round < 600; round++) {
        const unsigned dtype = 1 + (unsigned)test_below(11), w = bitsnap_width((bitsnap_dtype)dtype), log2 = 6 + (unsigned)test_below(3);
        const size_t n = round < 40 ? (size_t)round : test_below(2000), block = (size_t)1 << log2, cap = bound(n, dtype, log2);
        uint8_t *from = (uint8_t *)malloc(n * w + 1), *whole = (uint8_t *)malloc(cap), *pieces = (uint8_t *)malloc(cap), *out = (uint8_t *)malloc(n * w + 1);
        uint8_t index[8 * 64];
        static bitsnap_index opened;
        bitsnap_source source = { 0 };
        bitsnap_info info;
        bitsnap b = fresh();
        bitsnap_encoder s;
        size_t size, at, part, used, i, shown, got;
        bitsnap_status status;
        b.block_log2 = log2;
        b.flags = (round & 1 ? (unsigned)BITSNAP_CONTENT_ID : 0) | (round % 5 == 0 ? (unsigned)BITSNAP_NO_CHECKS : 0);
        b.level = round % 4;
        data_fill(from, n, dtype, (int)test_below(DATA_SHAPES));
        CHECK(bitsnap_encode(&b, whole, cap, &size, from, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        /* push */
        CHECK(bitsnap_encoder_begin(&b, &s, pieces, cap, &at, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        s.index = index;
        s.index_capacity = sizeof index;
        for (i = 0; i < n; i += got) {
            got = block * (1 + test_below(4));
            if (got > n - i) got = n - i;
            CHECK(bitsnap_encoder_push(&b, &s, pieces + at, cap - at, &part, from + i * w, got) == BITSNAP_OK);
            at += part;
        }
        if (n > block) CHECK(bitsnap_encoder_push(&b, &s, pieces + at, cap - at, &part, from, 1) == BITSNAP_E_ARGUMENT, "more than announced");
        CHECK(bitsnap_encoder_end(&b, &s, pieces + at, cap - at, &part) == BITSNAP_OK);
        at += part;
        CHECK(at == size && !memcmp(whole, pieces, size), "pushed bytes differ");
        CHECK(s.stored == size && s.position == n);
        CHECK(!bitsnap_read_info(&info, whole, size) && info.seal == seal_of(whole, &info) && s.seal == info.seal, "%zu elements", n);
        source.data = whole, source.size = size;
        CHECK(!bitsnap_index_open(&b, &opened, &info, &source) && s.seal == info.seal, "%zu elements", n);
        /* pull: the source comes in pieces, the destination has room for some blocks */
        at = shown = 0;
        do {
            shown = at + (shown > at ? shown - at + 1 + test_below(40) : test_below(30));
            if (shown > size) shown = size;
            status = bitsnap_decoder_begin(&b, &s, whole + at, shown - at, &used);
        } while (status == BITSNAP_E_TRUNCATED && shown < size);
        CHECK(status == BITSNAP_OK && s.count == n && (unsigned)s.dtype == dtype);
        at += used;
        for (i = 0; i < n;) {
            size_t room = block * (1 + test_below(3));
            if (room > n - i) room = n - i;
            status = bitsnap_decoder_pull(&b, &s, out + i * w, room, &got, whole + at, shown - at, &used);
            if (status == BITSNAP_E_TRUNCATED) {
                CHECK(got == 0 && used == 0 && b.error.needed > shown - at, "need %zu of %zu", b.error.needed, shown - at);
                shown = at + b.error.needed < size ? at + b.error.needed + test_below(50) : size;
                if (shown > size) shown = size;
                continue;
            }
            CHECK(status == BITSNAP_OK, "%s", bitsnap_message(&b));
            if (status) break;
            i += got;
            at += used;
        }
        while ((status = bitsnap_decoder_end(&b, &s, whole + at, shown - at, &used)) == BITSNAP_E_TRUNCATED && shown < size) shown = at + b.error.needed;
        CHECK(status == BITSNAP_OK && at + used == size, "end: %s", bitsnap_message(&b));
        CHECK(!n || !memcmp(out, from, n * w), "pulled elements differ");
        CHECK(s.seal == info.seal, "%zu elements", n);
        free(from);
        free(whole);
        free(pieces);
        free(out);
    }
}

/* ---- threads ---- */

typedef struct pool {
    unsigned workers;
    int kind; /* 0: threads, 1: backwards, 2: shuffled */
    bitsnap_task task;
    void *argument;
    uint64_t next, count;
    pthread_mutex_t lock;
} pool;

typedef struct seat {
    pool *p;
    unsigned worker;
} seat;

static void *work(void *argument)
{
    const seat *s = (const seat *)argument;
    for (;;) {
        uint64_t i;
        pthread_mutex_lock(&s->p->lock);
        i = s->p->next++;
        pthread_mutex_unlock(&s->p->lock);
        if (i >= s->p->count) return NULL;
        s->p->task(s->p->argument, i, s->worker);
    }
}

static void run_pool(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    pool *p = (pool *)context;
    uint64_t i;
    if (p->kind == 0) {
        pthread_t threads[16];
        seat seats[16];
        p->task = task;
        p->argument = argument;
        p->next = 0;
        p->count = count;
        for (i = 0; i < p->workers; i++) {
            seats[i].p = p;
            seats[i].worker = (unsigned)i;
            pthread_create(&threads[i], NULL, work, &seats[i]);
        }
        for (i = 0; i < p->workers; i++) pthread_join(threads[i], NULL);
    } else {
        for (i = 0; i < count; i++) {
            const uint64_t j = p->kind == 1 ? count - 1 - i : count & 1 ? i * 2 % count : i ^ 1;
            task(argument, j, (unsigned)test_below(p->workers));
        }
    }
}

static void threads(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_I64, BITSNAP_F16 };
    unsigned d, workers;
    int kind;
    for (d = 0; d < 4; d++) {
        const unsigned dtype = dtypes[d], w = bitsnap_width((bitsnap_dtype)dtype);
        const size_t n = 20 * 4096 + 777, cap = bound(n, dtype, 12);
        uint8_t *from = (uint8_t *)malloc(n * w), *one = (uint8_t *)malloc(cap), *many = (uint8_t *)malloc(cap), *out = (uint8_t *)malloc(n * w);
        bitsnap b = fresh();
        size_t size, size2;
        data_fill(from, n, dtype, DATA_WEIGHTS);
        b.block_log2 = 12;
        b.flags = BITSNAP_CONTENT_ID;
        CHECK(bitsnap_encode(&b, one, cap, &size, from, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        for (workers = 1; workers <= 8; workers++)
            for (kind = 0; kind < 3; kind++) {
                pool p;
                memset(&p, 0, sizeof p);
                p.workers = workers;
                p.kind = kind;
                pthread_mutex_init(&p.lock, NULL);
                b.run = run_pool;
                b.run_context = &p;
                b.workers = workers;
                b.workspace_size = test_workspace(12, workers);
                b.workspace = malloc(b.workspace_size);
                memset(many, 0, cap);
                CHECK(bitsnap_encode(&b, many, cap, &size2, from, n, (bitsnap_dtype)dtype) == BITSNAP_OK, "%u workers", workers);
                CHECK(size2 == size && !memcmp(one, many, size), "%u workers give other bytes", workers);
                memset(out, 0, n * w);
                CHECK(bitsnap_decode(&b, out, n, (bitsnap_dtype)dtype, many, size) == BITSNAP_OK);
                CHECK(!memcmp(out, from, n * w), "%u workers", workers);
                memset(out, 0, n * w);
                CHECK(bitsnap_decode_range(&b, out, 5000, n - 9000, (bitsnap_dtype)dtype, many, size) == BITSNAP_OK);
                CHECK(!memcmp(out, from + 5000 * w, (n - 9000) * w), "range, %u workers", workers);
                CHECK(bitsnap_encode(&b, many, size - 1, &size2, from, n, (bitsnap_dtype)dtype) == BITSNAP_E_CAPACITY);
                memcpy(many, one, size);
                many[size / 2] ^= 4; /* the error is the first in the frame, whatever the order of the tasks */
                many[size - size / 4] ^= 4;
                CHECK(bitsnap_decode(&b, out, n, (bitsnap_dtype)dtype, many, size) != BITSNAP_OK && b.error.offset <= size / 2);
                pthread_mutex_destroy(&p.lock);
                free(b.workspace);
                b = fresh();
                b.block_log2 = 12;
                b.flags = BITSNAP_CONTENT_ID;
            }
        free(from);
        free(one);
        free(many);
        free(out);
    }
}

/* ---- progress, verification ---- */

static uint64_t progress_calls, progress_last, progress_stop;

static int progress(void *context, uint64_t done, uint64_t total)
{
    CHECK(context == &progress_calls && done <= total && done >= progress_last);
    progress_calls++;
    progress_last = done;
    return progress_stop && done >= progress_stop;
}

static void progress_and_cancel(void)
{
    enum { N = 64 * 20 };
    uint16_t a[N], out[N];
    uint8_t frame[8192];
    bitsnap b = fresh();
    size_t size;
    b.block_log2 = 6;
    b.progress = progress;
    b.progress_context = &progress_calls;
    data_fill(a, N, BITSNAP_BF16, DATA_WEIGHTS);
    progress_calls = progress_last = progress_stop = 0;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, a, N, BITSNAP_BF16) == BITSNAP_OK && progress_calls >= 2 && progress_last == N);
    progress_calls = progress_last = 0;
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, frame, size) == BITSNAP_OK && progress_calls >= 2 && progress_last == N);
    progress_stop = 64 * 5;
    progress_last = 0;
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, frame, size) == BITSNAP_E_CANCELLED && progress_last < N);
    progress_last = 0;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, a, N, BITSNAP_BF16) == BITSNAP_E_CANCELLED && size == 0);
}

static void verification(void)
{
    enum { N = 5000 };
    unsigned dtype;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
        const unsigned w = bitsnap_width((bitsnap_dtype)dtype);
        uint8_t *a = (uint8_t *)malloc(N * w), *frame = (uint8_t *)malloc(bound(N, dtype, 10));
        bitsnap b = fresh();
        size_t size, at;
        int round;
        b.block_log2 = 10;
        b.flags = BITSNAP_VERIFY;
        data_fill(a, N, dtype, DATA_WEIGHTS);
        CHECK(bitsnap_encode(&b, frame, bound(N, dtype, 10), &size, a, N, (bitsnap_dtype)dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(bitsnap_verify(&b, a, N, (bitsnap_dtype)dtype, frame, size) == BITSNAP_OK);
        for (round = 0; round < 50; round++) {
            at = test_below(N * w);
            a[at] ^= (uint8_t)(1u << test_below(8));
            CHECK(bitsnap_verify(&b, a, N, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_DIFFERENT && b.error.element == at / w,
                  "%s: element %llu, not %zu", name(dtype), (unsigned long long)b.error.element, at / w);
            CHECK(bitsnap_decode(&b, a, N, (bitsnap_dtype)dtype, frame, size) == BITSNAP_OK);
        }
        free(a);
        free(frame);
    }
}

/* ---- bombs ---- */

static void bomb(void)
{
    /* 2^48 elements of one value, made by hand: 257 blocks, of the longest runs of cells of 2^16 elements */
    enum { BLOCKS = 257, LONGEST = (1 << 24) - 1 };
    static uint8_t frame[4096], heads[4 * BLOCKS];
    const uint64_t count = UINT64_C(1) << 48;
    bitsnap b = fresh();
    bitsnap_info info;
    bitsnap_encoder s;
    uint8_t out[4096];
    size_t at, got, used, i;
    clock_t start = clock();
    b.flags = BITSNAP_NO_CHECKS;
    CHECK(bitsnap_encoder_begin(&b, &s, frame, sizeof frame, &at, count, BITSNAP_F32) == BITSNAP_OK);
    for (i = 0; i < BLOCKS; i++, at += 8) {
        bsn_store32(heads + 4 * i, BSN_FORM_CONST | (i < BLOCKS - 1 ? LONGEST : 256u) << 8);
        memcpy(frame + at, heads + 4 * i, 4);
        bsn_store32(frame + at + 4, 0x3F800000);
    }
    s.index = heads;
    s.index_size = s.index_capacity = sizeof heads;
    s.position = count;
    s.stored = at;
    CHECK(bitsnap_encoder_end(&b, &s, frame + at, sizeof frame - at, &got) == BITSNAP_OK, "%s", bitsnap_message(&b));
    at += got;
    CHECK(bitsnap_read_info(&info, frame, at) == BITSNAP_OK && info.count == count && info.frame_size == at);
    if (sizeof count > sizeof at) { /* such machines do not count so far */
        CHECK(bitsnap_test(&b, frame, at) == BITSNAP_E_UNSUPPORTED);
        CHECK(bitsnap_decode_range(&b, out, count - 1000, 1000, BITSNAP_F32, frame, at) == BITSNAP_E_UNSUPPORTED);
        return;
    }
    CHECK(bitsnap_test(&b, frame, at) == BITSNAP_OK, "%s at %llu", bitsnap_message(&b), (unsigned long long)b.error.offset);
    CHECK(bitsnap_decode(&b, out, 1024, BITSNAP_F32, frame, at) == BITSNAP_E_MISMATCH);
    CHECK(bitsnap_decode_range(&b, out, count - 1000, 1000, BITSNAP_F32, frame, at) == BITSNAP_OK);
    for (i = 0; i < 1000; i++) CHECK(bsn_element_load(out + 4 * i, 4) == 0x3F800000);
    /* a pull delivers a run in pieces */
    CHECK(bitsnap_decoder_begin(&b, &s, frame, at, &used) == BITSNAP_OK);
    for (i = 0; i < 100; i++) {
        size_t taken;
        memset(out, 0, sizeof out);
        CHECK(bitsnap_decoder_pull(&b, &s, out, 1000, &got, frame + used, at - used, &taken) == BITSNAP_OK && got == 1000 && taken == 0);
        CHECK(bsn_element_load(out + 4 * 999, 4) == 0x3F800000 && s.position == 1000 * (i + 1));
    }
    CHECK((clock() - start) / CLOCKS_PER_SEC < 5, "too slow");
}

/* One call for each block, none of them large, makes the same frame. */
static void check_pushed(const uint8_t *frame, size_t frame_size, const uint8_t *elements, size_t n, bitsnap_dtype dtype)
{
    const size_t block = (size_t)1 << BSN_LOG2_DEFAULT;
    uint8_t *out = (uint8_t *)malloc(frame_size), *index = (uint8_t *)malloc(8 * (n / block + 1));
    bitsnap b = fresh();
    bitsnap_encoder s;
    size_t at, part, i;
    CHECK(bitsnap_encoder_begin(&b, &s, out, frame_size, &at, n, dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
    s.index = index;
    s.index_capacity = 8 * (n / block + 1);
    for (i = 0; i < n; i += block, at += part)
        CHECK(bitsnap_encoder_push(&b, &s, out + at, frame_size - at, &part, elements + i * bitsnap_width(dtype), bsn_min(block, n - i)) == BITSNAP_OK,
              "%s", bitsnap_message(&b));
    CHECK(bitsnap_encoder_end(&b, &s, out + at, frame_size - at, &part) == BITSNAP_OK, "%s", bitsnap_message(&b));
    CHECK(at + part == frame_size && !memcmp(out, frame, frame_size), "other bytes, a block at a time");
    free(index);
    free(out);
}

/* Elements too large for the caches take other paths: non-temporal stores, and copies through the workspace. */
static void large(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_I8 };
    unsigned d, i;
    for (d = 0; d < 4; d++) {
        const bitsnap_dtype dtype = (bitsnap_dtype)dtypes[d];
        const size_t width = bitsnap_width(dtype), n = ((size_t)BSN_LARGE >> 1) / width * 2 + 1000 + d, most = test_bound(n, dtype);
        uint8_t *a = (uint8_t *)malloc(n * width), *expected = (uint8_t *)malloc(most);
        guarded frame = guarded_alloc(most, 0), out = guarded_alloc(n * width + 64, 0);
        const bitsnap_kernels *kernels;
        size_t size, expected_size = 0;
        data_fill(a, n, dtypes[d], d == 2 ? DATA_POSITIVE : DATA_WEIGHTS);
        for (i = 0; (kernels = bitsnap_kernels_get(i)) != NULL; i++) {
            const size_t shift = i * 13 % 64, part = n - 70000;
            uint8_t *to = out.p + 64 - shift, *from = frame.p;
            bitsnap b = fresh();
            b.kernels = kernels;
            memset(out.p, 0, n * width + 64);
            CHECK(bitsnap_encode(&b, from, most, &size, a, n, dtype) == BITSNAP_OK);
            if (!i) {
                memcpy(expected, from, size);
                expected_size = size;
            }
            CHECK(size == expected_size && !memcmp(from, expected, size), "%s: other bytes", bitsnap_kernels_name(kernels));
            if (!i) check_pushed(expected, size, a, n, dtype);
            memmove(frame.p + most - size, from, size); /* against the guard */
            from = frame.p + most - size;
            CHECK(bitsnap_decode(&b, to, n, dtype, from, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
            CHECK(!memcmp(to, a, n * width), "%s, dtype %u", bitsnap_kernels_name(kernels), dtypes[d]);
            memset(out.p, 0, n * width + 64);
            CHECK(bitsnap_decode_range(&b, to, 69999, part, dtype, from, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
            CHECK(!memcmp(to, a + 69999 * width, part * width) && to[part * width] == 0, "%s, dtype %u, range", bitsnap_kernels_name(kernels), dtypes[d]);
        }
        free(a);
        free(expected);
        guarded_free(frame);
        guarded_free(out);
    }
}

/* Pushes a frame of n elements with the content id `id`. Returns its size. */
static size_t push_with_id(bitsnap *b, uint8_t *frame, size_t capacity, const uint8_t *elements, size_t n, bitsnap_dtype dtype, uint64_t id)
{
    uint8_t *index = (uint8_t *)malloc(8 * (n / 64 + 1));
    bsn_coder s;
    size_t at, part;
    CHECK(bsn_encoder_begin(b, &s, frame, capacity, &at, n, dtype) == BITSNAP_OK);
    s.index = index;
    s.index_capacity = 8 * (n / 64 + 1);
    CHECK(bitsnap_encoder_push(b, (bitsnap_encoder *)(void *)&s, frame + at, capacity - at, &part, elements, n) == BITSNAP_OK);
    at += part;
    s.state.has_result_id = 1;
    s.state.result_id = id;
    CHECK(bitsnap_encoder_end(b, (bitsnap_encoder *)(void *)&s, frame + at, capacity - at, &part) == BITSNAP_OK);
    free(index);
    return at + part;
}

/* Leaves are hashed with their blocks where these have whole ones, by each worker, and go past the caches then, too. */
static void content_ids(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64, BITSNAP_I8 }, logs[] = { 16, 12, 18 };
    unsigned d, l, i;
    for (d = 0; d < 4; d++)
        for (l = 0; l < (d ? 1 : 3); l++) {
            const bitsnap_dtype dtype = (bitsnap_dtype)dtypes[d];
            const size_t width = bitsnap_width(dtype), n = (size_t)BSN_LARGE / width + 70000 + d, most = bound(n, dtypes[d], logs[l]);
            const size_t part = n / 3, workspace_size = test_workspace(logs[l], 3);
            uint8_t *a = (uint8_t *)malloc(n * width), *frame = (uint8_t *)malloc(most), *wrong = (uint8_t *)malloc(most);
            uint8_t *memory = (uint8_t *)malloc(workspace_size);
            guarded out = guarded_alloc(n * width + 64, 0);
            const bitsnap_kernels *kernels;
            uint64_t id;
            data_fill(a, n, dtypes[d], DATA_WEIGHTS);
            memset(a + part * width, 0, part * width);                                          /* CONST */
            for (i = 0; i < 70000 * width; i++) a[2 * part * width + i] = (uint8_t)test_random(); /* STORED */
            id = bitsnap_content_id(a, n, dtype);
            for (i = 0; (kernels = bitsnap_kernels_get(i)) != NULL; i++) {
                const unsigned workers = (i + l + d) % 2 ? 1 : 3;
                uint8_t *to = out.p + 64 - i * 13 % 64;
                size_t size, wrong_size;
                bitsnap b = fresh();
                bitsnap_info info;
                pool p;
                memset(&p, 0, sizeof p);
                p.workers = workers;
                pthread_mutex_init(&p.lock, NULL);
                b.run = run_pool;
                b.run_context = &p;
                b.workers = workers;
                b.workspace = memory;
                b.workspace_size = workspace_size;
                b.kernels = kernels;
                b.block_log2 = logs[l];
                b.flags = BITSNAP_CONTENT_ID;
                CHECK(bitsnap_encode(&b, frame, most, &size, a, n, dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
                CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.content_id == id, "%s", bitsnap_kernels_name(kernels));
                memset(out.p, 0, n * width + 64);
                CHECK(bitsnap_decode(&b, to, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
                CHECK(!memcmp(to, a, n * width), "%s, %s, blocks of 2^%u", bitsnap_kernels_name(kernels), name(dtypes[d]), logs[l]);
                CHECK(bitsnap_verify(&b, a, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
                wrong_size = push_with_id(&b, wrong, most, a, n, dtype, id);
                CHECK(wrong_size == size && !memcmp(wrong, frame, size), "pushed at once: other bytes");
                wrong_size = push_with_id(&b, wrong, most, a, n, dtype, id ^ 1);
                CHECK(bitsnap_decode(&b, to, n, dtype, wrong, wrong_size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_CONTENT_ID, "another id is not noticed");
                CHECK(bitsnap_verify(&b, a, n, dtype, wrong, wrong_size) == BITSNAP_E_CHECK, "another id is not noticed");
                b.flags |= BITSNAP_IGNORE_CHECKS;
                CHECK(bitsnap_decode(&b, to, n, dtype, wrong, wrong_size) == BITSNAP_OK && !memcmp(to, a, n * width));
                pthread_mutex_destroy(&p.lock);
            }
            free(a);
            free(frame);
            free(wrong);
            free(memory);
            guarded_free(out);
        }
}

/* Runs of CONST cells between others, with checks: the encoder does not write runs, other ones may. */
static void runs(void)
{
    enum { CELLS = 9, N = 64 * CELLS - 10 };
    uint16_t a[N], out[N];
    uint8_t frame[4096];
    bitsnap b = fresh();
    bsn_coder s;
    bsn_call call;
    bsn_record record;
    uint8_t index[128], *p;
    size_t at, part, i, first, count;
    b.block_log2 = 6;
    data_fill(a, N, BITSNAP_BF16, DATA_WEIGHTS);
    for (i = 128; i < 64 * 5; i++) a[i] = 0x3F80;
    for (i = 64 * 7; i < N; i++) a[i] = 0x4000;
    CHECK(bsn_encoder_begin(&b, &s, frame, sizeof frame, &at, N, BITSNAP_BF16) == BITSNAP_OK);
    s.index = index;
    s.index_capacity = sizeof index;
    CHECK(bsn_call_begin(&call, &b, &s.shape, 1, 0) == BITSNAP_OK);
    for (i = 0; i < CELLS;) {
        const unsigned run = i == 2 ? 3 : i == 7 ? 2 : 1;
        if (run == 1) {
            CHECK(bitsnap_encoder_push(&b, (bitsnap_encoder *)(void *)&s, frame + at, sizeof frame - at, &part, a + 64 * i, 64) == BITSNAP_OK);
            at += part;
        } else {
            count = 64 * (i + run) > N ? N - 64 * i : 64 * run;
            p = frame + at;
            bsn_store32(p, BSN_FORM_CONST | run << 8);
            p[12] = (uint8_t)a[64 * i];
            p[13] = (uint8_t)(a[64 * i] >> 8);
            bsn_record_begin(&record, &call.context, 64 * i, count, bsn_load32(p));
            bsn_record_hash(&record, bitsnap_hash(p + 12, 2));
            bsn_store64(p + 4, bitsnap_hash(record.bytes, record.size));
            memcpy(index + s.index_size, p, 8);
            s.index_size += 8;
            s.position += count;
            s.stored += 14;
            at += 14;
        }
        i += run;
    }
    CHECK(bitsnap_encoder_end(&b, (bitsnap_encoder *)(void *)&s, frame + at, sizeof frame - at, &part) == BITSNAP_OK);
    at += part;
    CHECK(bitsnap_decode(&b, out, N, BITSNAP_BF16, frame, at) == BITSNAP_OK, "%s", bitsnap_message(&b));
    CHECK(!memcmp(a, out, sizeof a));
    for (first = 0; first < N; first += 17)
        for (count = 1; first + count <= N; count += 41) {
            memset(out, 0, sizeof out);
            CHECK(bitsnap_decode_range(&b, out, first, count, BITSNAP_BF16, frame, at) == BITSNAP_OK, "%s", bitsnap_message(&b));
            CHECK(!memcmp(out, a + first, 2 * count), "%zu %zu", first, count);
        }
}

/* ---- bits that do not vary ---- */

/* Descriptors say exactly which bits vary, wherever the only element is that has another. */
static void late_bits(void)
{
    enum { N = 3 * 4096 + 77 };
    static const unsigned dtypes[] = { BITSNAP_F32, BITSNAP_BF16, BITSNAP_F16, BITSNAP_F64, BITSNAP_F8_E4M3, BITSNAP_F8_E5M2 };
    static const size_t places[] = { N, 1, 4094, 4095, 4096, 4097, 8191, 8192, 12287, 12288, N - 1 };
    static uint8_t elements[8 * N], out[8 * N];
    uint8_t *frame = (uint8_t *)malloc(test_bound(N, BITSNAP_F64)), *first = (uint8_t *)malloc(test_bound(N, BITSNAP_F64));
    unsigned d, place, bit, t, k;
    size_t i, size = 0, one = 0;
    bitsnap b = fresh();
    for (d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        const bitsnap_dtype dtype = (bitsnap_dtype)dtypes[d];
        const unsigned w = bitsnap_width(dtype), bits[] = { 0, 1, 8 * w - 1 };
        for (place = 0; place < sizeof places / sizeof *places; place++) {
            for (bit = 0; bit < 3; bit++) {
                bsn_layout y;
                uint8_t varying[8] = { 0 };
                unsigned fixed = 0;
                data_fill(elements, N, dtype, DATA_WEIGHTS);
                for (i = 0; i < N; i++) { /* no sign, and the two lowest bits as those of the first */
                    const uint64_t v = bsn_element_load(elements + i * w, w) >> 2 << 3 >> 1;
                    bsn_element_store(elements + i * w, (v & bsn_low_bits(8 * w - 1)) | (w > 1 ? 2 : 0), w);
                }
                if (places[place] < N) {
                    uint8_t *e = elements + places[place] * w;
                    bsn_element_store(e, bsn_element_load(e, w) ^ UINT64_C(1) << bits[bit], w);
                }
                for (t = 0; bitsnap_kernels_get(t); t++) {
                    b.kernels = bitsnap_kernels_get(t);
                    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, dtype), &size, elements, N, dtype) == BITSNAP_OK);
                    CHECK(bitsnap_decode(&b, out, N, dtype, frame, size) == BITSNAP_OK && !memcmp(out, elements, N * w), "%s", name(dtype));
                    if (!t) memcpy(first, frame, one = size);
                    CHECK(size == one && !memcmp(first, frame, size), "%s: %s: other bytes", bitsnap_kernels_name(b.kernels), name(dtype));
                }
                CHECK((frame[24] & 15) == BSN_FORM_SPLIT, "%s", name(dtype));
                k = frame[36] & 15;
                bsn_layout_begin(&y, dtype, k, dtype == BITSNAP_F64 ? 1 : 0); /* any base, as it is no part of the planes */
                for (i = 0; i < N; i++) {
                    const uint64_t x = bsn_field_split(&y.field, bsn_element_load(elements + i * w, w));
                    const uint64_t x0 = bsn_field_split(&y.field, bsn_element_load(elements, w));
                    for (k = 0; k < y.planes; k++) varying[k] |= (uint8_t)((x ^ x0) >> (8 * k)) & y.varying[k];
                }
                for (k = 0; k < y.planes; k++) fixed |= varying[k] ^ y.varying[k];
                CHECK(!(frame[36] & BSN_HAS_CONSTANTS) == !fixed, "%s: place %zu, bit %u", name(dtype), places[place], bits[bit]);
                if (fixed)
                    CHECK(!memcmp(frame + 37, varying, y.planes), "%s: place %zu, bit %u", name(dtype), places[place], bits[bit]);
            }
        }
    }
    free(frame);
    free(first);
}

/* ---- what the format is for ---- */

static void sizes(void)
{
    enum { N = 1 << 20 };
    uint16_t *a = (uint16_t *)malloc(2 * N);
    uint32_t *v = (uint32_t *)malloc(4 * N);
    uint8_t *frame = (uint8_t *)malloc(test_bound(N, BITSNAP_F32));
    bitsnap b = fresh();
    size_t size, i, fast, usual;
    data_fill(a, N, BITSNAP_BF16, DATA_WEIGHTS); /* a geometric distribution: 2 bits of entropy */
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &usual, a, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(usual < N / 8 * 10.03, "%.4f bits", 8.0 * (double)usual / N);
    b.level = BITSNAP_FAST;
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &fast, a, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK((double)fast < (double)usual * 1.005, "fast %zu, default %zu", fast, usual);
    b.level = BITSNAP_DEFAULT;
    for (i = 0; i < N; i++) v[i] = (uint32_t)a[i] << 16; /* F32 from BF16: the low half costs nothing */
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, v, N, BITSNAP_F32) == BITSNAP_OK);
    CHECK(size < usual * 1.001, "F32 from BF16 %zu, BF16 %zu", size, usual);
    for (i = 0; i < N; i++) v[i] &= 0x7FFFFFFF; /* and neither does a constant sign */
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, v, N, BITSNAP_F32) == BITSNAP_OK);
    CHECK(size < usual * 1.001 - N / 8, "positive %zu", size);
    for (i = 0; i < N; i++) { /* sums of uniform numbers: large ones are rarer, within an octave, too */
        const uint64_t r = test_random();
        const int64_t sum = (int64_t)((r & 0xFFFF) + (r >> 16 & 0xFFFF) + (r >> 32 & 0xFFFF) + (r >> 48)) - 0x1FFFE;
        uint32_t x = (uint32_t)(sum < 0 ? -sum : sum) * 2 + 1, e = 0;
        while (x >> e > 1) e++;
        a[i] = (uint16_t)((sum < 0) << 15 | e << 10 | (x << (31 - e) >> 21 & 0x3FF));
    }
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &usual, a, N, BITSNAP_F16) == BITSNAP_OK);
    b.level = BITSNAP_FAST;
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &fast, a, N, BITSNAP_F16) == BITSNAP_OK);
    b.level = BITSNAP_BEST;
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, a, N, BITSNAP_F16) == BITSNAP_OK);
    CHECK((double)size < (double)usual * 0.997 && usual < fast, "F16: fast %zu, default %zu, best %zu", fast, usual, size);
    b.level = BITSNAP_DEFAULT;
    memset(a, 0, 2 * N);
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, a, N, BITSNAP_BF16) == BITSNAP_OK && size < 600, "zeros: %zu", size);
    data_fill(a, N, BITSNAP_I16, DATA_NOISE);
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, a, N, BITSNAP_I16) == BITSNAP_OK && size <= 2 * N + 20 * 16 + 96, "noise: %zu", size);
    CHECK(bitsnap_encode(&b, frame, bitsnap_bound(&b, N, BITSNAP_F32), &size, a, N, BITSNAP_BF16) == BITSNAP_OK && size <= 2 * N + 20 * 16 + 96, "noise: %zu", size);
    free(a);
    free(v);
    free(frame);
}

int main(void)
{
    test_program = "frame";
    RUN(callers_mistakes);
    RUN(errors_of_this_call);
    RUN(push_again);
    RUN(info_tells);
    RUN(every_length);
    RUN(every_shape);
    RUN(block_borders);
    RUN(destination_too_small);
    RUN(truncations_and_flips);
    RUN(blocks_out_of_place);
    RUN(ranges);
    RUN(range_touches_its_blocks_only);
    RUN(streams);
    RUN(threads);
    RUN(progress_and_cancel);
    RUN(verification);
    RUN(bomb);
    RUN(large);
    RUN(content_ids);
    RUN(runs);
    RUN(late_bits);
    RUN(sizes);
    return test_failures != 0;
}
