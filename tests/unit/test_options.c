/* bitsnap_workspace_size and bitsnap_bound are enough for every option, and a workspace one byte smaller is refused. With
 * every capacity below the bound, the frame is the same if it fits, and otherwise refused. */
#include "test.h"

#include "bitsnap.h"
#include "data.h"

enum { MOST = 300000 };
static uint8_t elements[8 * MOST], base[8 * MOST];

static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    uint64_t i;
    for (i = 0; i < count; i++) task(argument, i, (unsigned)(i % *(const unsigned *)context));
}

/* Encodes with exactly this workspace and capacity, then with one byte less. Decodes with the sizes from info. */
static void options(bitsnap b, uint64_t count, bitsnap_dtype dtype)
{
    const size_t size = bitsnap_workspace_size(&b, count, dtype), bound = bitsnap_bound(&b, count, dtype);
    guarded workspace, frame;
    uint8_t *back = (uint8_t *)malloc((size_t)count * bitsnap_width(dtype) + 1);
    bitsnap_info info;
    size_t made, again, decoding, i;
    CHECK(size && bound, "%s, 2^%u", bitsnap_dtype_name(dtype), b.block_log2);
    if (!size) return;
    workspace = guarded_alloc(size, 0);
    frame = guarded_alloc(bound, 0);
    b.workspace = workspace.p;
    b.workspace_size = size - 1;
    CHECK(bitsnap_encode(&b, frame.p, bound, &made, elements, count, dtype) == BITSNAP_E_WORKSPACE && b.error.needed == size);
    b.workspace_size = size;
    CHECK(!bitsnap_encode(&b, frame.p, bound, &made, elements, count, dtype), "%s: %s, 2^%u, level %d, %u workers, %u columns",
          bitsnap_message(&b), bitsnap_dtype_name(dtype), b.block_log2, b.level, b.workers, (unsigned)b.columns);
    CHECK(!bitsnap_read_info(&info, frame.p, made) && made <= bound && info.bound == bound);
    for (i = 2; i-- > 0;) /* one byte less than its own size, then exactly that */
        CHECK(bitsnap_encode(&b, frame.p + (bound - made) + i, made - i, &again, elements, count, dtype) == (i ? BITSNAP_E_CAPACITY : BITSNAP_OK) &&
              again == (i ? 0 : made), "%s", bitsnap_message(&b));
    memmove(frame.p, frame.p + (bound - made), made);
    decoding = info.workspace_size + (b.run && b.workers > 1 ? (b.workers - 1) * info.worker_size : 0);
    CHECK(decoding <= size);
    b.workspace_size = decoding - 1;
    CHECK(bitsnap_decode(&b, back, count, dtype, frame.p, made) == BITSNAP_E_WORKSPACE && b.error.needed == decoding);
    b.workspace_size = decoding;
    b.workspace = workspace.p + (size - decoding);
    CHECK(!bitsnap_decode(&b, back, count, dtype, frame.p, made), "%s", bitsnap_message(&b));
    CHECK(b.quantizer.bins || b.quantizer.clusters || !memcmp(back, elements, (size_t)count * bitsnap_width(dtype)));
    guarded_free(workspace);
    guarded_free(frame);
    free(back);
}

/* The workspaces in the documents, by dtype and direction. */
static void sizes_of_workspaces(void)
{
    static const struct { bitsnap_dtype dtype; size_t encode, decode; } most[] = {
        { BITSNAP_I8, 568, 348 }, { BITSNAP_BF16, 648, 422 }, { BITSNAP_F32, 666, 566 }, { BITSNAP_I64, 874, 852 }, { BITSNAP_F64, 874, 852 }
    };
    uint8_t frame[64];
    bitsnap_info info;
    size_t i, size;
    for (i = 0; i < sizeof most / sizeof *most; i++) { /* KiB, for blocks of 65,536 */
        static uint8_t memory[BITSNAP_WORKSPACE];
        bitsnap_encoder encoder;
        bitsnap b;
        memset(&b, 0, sizeof b);
        b.workspace = memory;
        b.workspace_size = sizeof memory;
        CHECK(bitsnap_workspace_size(&b, 1 << 20, most[i].dtype) <= most[i].encode << 10, "%s", bitsnap_dtype_name(most[i].dtype));
        CHECK(!bitsnap_encoder_begin(&b, &encoder, frame, sizeof frame, &size, 1 << 20, most[i].dtype));
        (void)bitsnap_read_info(&info, frame, size);
        CHECK(info.workspace_size && info.workspace_size <= most[i].decode << 10, "%s", bitsnap_dtype_name(most[i].dtype));
    }
}

static void all_options(void)
{
    static const uint64_t counts[] = { 0, 1, 64, 1000, 65537, MOST };
    static unsigned workers = 3;
    unsigned i, dtype, k;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (i = 0; i < sizeof counts / sizeof *counts; i++) {
            const size_t size = (size_t)counts[i] * bitsnap_width((bitsnap_dtype)dtype);
            if (i == 5 && dtype != BITSNAP_BF16 && dtype != BITSNAP_F32) continue;
            data_fill(elements, (size_t)counts[i], dtype, DATA_WEIGHTS);
            memcpy(base, elements, size);
            for (k = 0; k < size; k += 97) base[k] ^= 1;
            for (k = 0; k < 8; k++) {
                bitsnap b;
                memset(&b, 0, sizeof b);
                b.level = (int)(k % 4);
                if (k == 1) b.block_log2 = 12;
                if (k == 2) b.run = run, b.run_context = &workers, b.workers = workers;
                if (k == 3) b.columns = 100; /* at level best */
                if (k == 4) b.flags = BITSNAP_NO_CHECKS;
                if (k == 6 && dtype >= BITSNAP_F16) b.quantizer.bins = 35, b.columns = 100;
                if (k == 7 && dtype >= BITSNAP_F16) b.quantizer.clusters = 16;
                if (k == 5) {
                    b.base.data = base;
                    b.base.count = counts[i];
                    b.base.dtype = (bitsnap_dtype)dtype;
                }
                options(b, counts[i], (bitsnap_dtype)dtype);
            }
        }
}

/* Noise in small blocks needs the whole bound. */
static void noise(void)
{
    bitsnap b;
    test_fill(elements, 100000);
    memset(&b, 0, sizeof b);
    for (b.block_log2 = 6; b.block_log2 <= 12; b.block_log2++) options(b, 100000, BITSNAP_I8);
}

/* ---- capacities ---- */

enum { FRAME = 60000 };
static uint8_t workspace[24 << 20], good[FRAME], tight[FRAME];

/* Encodes with all capacities for a small frame, and with some for a large one. `how`: at once, by pushing, or by encoding
 * blocks alone. */
enum { AT_ONCE, PUSHED, ALONE, HOWS };

static bitsnap_status make(bitsnap *b, unsigned how, uint8_t *to, size_t capacity, size_t *size, size_t n, bitsnap_dtype dtype)
{
    static uint8_t index[4 * 1024];
    bitsnap_encoder s;
    bitsnap_info info;
    bitsnap_status status;
    size_t at = 0, more;
    *size = 0;
    if (how == AT_ONCE) return bitsnap_encode(b, to, capacity, size, elements, n, dtype);
    status = bitsnap_encoder_begin(b, &s, to, capacity, &at, n, dtype);
    s.index = index;
    s.index_capacity = sizeof index;
    if (!status) status = bitsnap_read_info(&info, to, at);
    while (!status && s.position < n) {
        const size_t cell = (size_t)1 << s.block_log2, some = n - (size_t)s.position < cell ? n - (size_t)s.position : cell;
        const uint8_t *from = elements + s.position * s.width;
        if (how == PUSHED) {
            status = bitsnap_encoder_push(b, &s, to + at, capacity - at, &more, from, some);
        } else {
            status = bitsnap_block_encode(b, to + at, capacity - at, &more, &info, from, s.position, some);
            if (!status) status = bitsnap_encoder_push_block(b, &s, to + at, more);
        }
        if (!status) at += more;
    }
    if (!status) status = bitsnap_encoder_end(b, &s, to + at, capacity - at, &more);
    if (!status) *size = at + more;
    return status;
}

/* Takes about 24 steps to the size of the frame, 8 without LONG=1, and every capacity near it. */
static size_t next_capacity(size_t capacity, size_t size)
{
    const size_t step = size / (test_long() ? 24 : 8) + 1;
    if (capacity + 6 >= size && capacity < size + 3) return capacity + 1;
    return capacity < size && capacity + step + 6 > size ? size - 6 : capacity + step;
}

/* error.needed suffices, for the whole frame or for the step. */
static void every_capacity(const char *what, bitsnap b, size_t n, bitsnap_dtype dtype)
{
    static unsigned workers = 2;
    size_t size, made, capacity, bound;
    unsigned how, threads;
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.run_context = &workers;
    bound = bitsnap_bound(&b, n, dtype);
    CHECK(bound <= FRAME, "%s", what);
    CHECK(!bitsnap_encode(&b, good, bound, &size, elements, n, dtype), "%s: %s", what, bitsnap_message(&b));
    for (how = 0; how < HOWS; how++)
        for (threads = 1; threads <= (how == PUSHED ? 1u : 2u); threads++) {
            b.run = threads > 1 ? run : NULL;
            b.workers = threads;
            b.workspace_size = bitsnap_workspace_size(&b, n, dtype);
            if (how == ALONE && (b.flags & BITSNAP_CONTENT_ID)) b.workspace_size += (size_t)bitsnap_width(dtype) << b.block_log2; /* to push a block */
            for (capacity = 0; capacity <= bound; capacity = next_capacity(capacity, size)) {
                const bitsnap_status status = make(&b, how, tight, capacity, &made, n, dtype);
                CHECK(status == (capacity < size ? BITSNAP_E_CAPACITY : BITSNAP_OK), "%s, way %u, %u workers: %lu bytes: %s in %lu", what, how, threads,
                      (unsigned long)size, bitsnap_message(&b), (unsigned long)capacity);
                CHECK(status ? made == 0 : made == size && !memcmp(tight, good, size), "%s, way %u: other bytes in %lu", what, how, (unsigned long)capacity);
                CHECK(!status || (how ? b.error.needed > 0 : b.error.needed == bound), "%s, way %u: %lu needed", what, how, (unsigned long)b.error.needed);
            }
        }
}

/* Every capacity for the inverse of a delta. */
static void inverses(const char *what, bitsnap b, size_t n, bitsnap_dtype dtype)
{
    static uint8_t delta[FRAME];
    size_t size, made, whole, capacity;
    bitsnap_info info;
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    CHECK(!bitsnap_encode(&b, delta, sizeof delta, &size, elements, n, dtype) && !bitsnap_read_info(&info, delta, size), "%s", what);
    CHECK(!bitsnap_invert(&b, good, sizeof good, &whole, delta, size), "%s: %s", what, bitsnap_message(&b));
    for (capacity = 0; capacity <= info.bound; capacity = next_capacity(capacity, whole)) {
        const bitsnap_status status = bitsnap_invert(&b, tight, capacity, &made, delta, size);
        CHECK(capacity < whole ? status == BITSNAP_E_CAPACITY && !made && b.error.needed == info.bound
                               : !status && made == whole && !memcmp(tight, good, whole), "%s, inverted: %s in %lu, %lu needed", what, bitsnap_message(&b),
              (unsigned long)capacity, (unsigned long)b.error.needed);
    }
}

static void capacities(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_I32, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static const int shapes[] = { DATA_WEIGHTS, DATA_STEPS, DATA_SPECIAL, DATA_SIGNED };
    unsigned i, k, log2;
    size_t n, j;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        for (k = 0; k < sizeof shapes / sizeof *shapes; k++)
            for (log2 = 6; log2 <= 9; log2 += 3) {
                const bitsnap_dtype dtype = dtypes[i];
                const int floats = dtype >= BITSNAP_BF16;
                unsigned option;
                n = 40 + test_below(800);
                data_fill(elements, n, dtype, shapes[k]);
                for (option = 0; option < 7; option++) {
                    bitsnap b;
                    char what[80];
                    memset(&b, 0, sizeof b);
                    b.block_log2 = log2;
                    b.level = (int)(option % 4);
                    if (option == 1) b.flags = BITSNAP_CONTENT_ID;
                    if (option == 2) b.flags = BITSNAP_NO_CHECKS;
                    if (option == 3) b.columns = 16; /* at level best */
                    if (option >= 4 && !floats) break;
                    if (option == 4) b.quantizer.bins = 1 + (unsigned)test_below(80);
                    if (option == 5) b.quantizer.bins = 200, b.columns = 16;
                    if (option == 6) b.quantizer.clusters = 16;
                    snprintf(what, sizeof what, "%s of shape %d, %lu elements in blocks of 2^%u, option %u", bitsnap_dtype_name(dtype), shapes[k],
                             (unsigned long)n, log2, option);
                    every_capacity(what, b, n, dtype);
                }
            }
    for (i = 0; i < 10; i++) { /* deltas with blocks that may be SAME, SPARSE, CLASSED or none of these */
        bitsnap b;
        char what[80];
        const bitsnap_dtype dtype = i & 1 ? BITSNAP_F32 : BITSNAP_BF16;
        const unsigned width = bitsnap_width(dtype);
        memset(&b, 0, sizeof b);
        n = 1200;
        data_fill(base, n, dtype, i / 2 == 4 ? DATA_ZERO : DATA_WEIGHTS);
        memcpy(elements, base, n * width);
        for (j = 0; j < n; j += i / 2 == 1 ? 200 : 2) if (i / 2 == 1 || i / 2 == 2) elements[j * width] ^= 1;
        if (i / 2 == 3) data_fill(elements, n, dtype, DATA_WEIGHTS);
        for (j = 0; j < n; j += 97) if (i / 2 == 4) base[j * width] = 77, base[j * width + 1] = (uint8_t)j; /* all elements are now equal, so no difference is shorter */
        b.base.data = base, b.base.dtype = dtype, b.base.count = n;
        for (b.level = BITSNAP_FAST; b.level <= BITSNAP_BEST; b.level++) {
            snprintf(what, sizeof what, "delta %u of %s, level %d", i / 2, bitsnap_dtype_name(dtype), b.level);
            every_capacity(what, b, n, dtype);
            inverses(what, b, n, dtype);
        }
    }
}

static void invalid(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    CHECK(!bitsnap_bound(NULL, 10, (bitsnap_dtype)0) && !bitsnap_workspace_size(NULL, 10, (bitsnap_dtype)12));
    CHECK(!bitsnap_bound(&b, (UINT64_C(1) << 48) + 1, BITSNAP_I8) && !bitsnap_workspace_size(&b, UINT64_MAX, BITSNAP_I8));
    CHECK(bitsnap_workspace_size(NULL, 1000000, BITSNAP_F64) <= BITSNAP_WORKSPACE);
    b.level = 4;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.level = 0, b.flags = 64;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.flags = 0;
    b.block_log2 = 21;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.block_log2 = 12;
    b.base.data = base; /* deltas need larger blocks */
    b.base.dtype = BITSNAP_I8;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.block_log2 = 0;
    CHECK(bitsnap_bound(&b, 10, BITSNAP_I8) && bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    CHECK(!bitsnap_workspace_size(&b, 10, BITSNAP_I16)); /* not the dtype of the base */
    b.base.data = NULL;
    b.quantizer.bins = 4000;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_F32) && !bitsnap_workspace_size(&b, 10, BITSNAP_F32));
}

int main(void)
{
    test_program = "options";
    RUN(sizes_of_workspaces);
    RUN(all_options);
    RUN(noise);
    RUN(capacities);
    RUN(invalid);
    return test_failures != 0;
}
