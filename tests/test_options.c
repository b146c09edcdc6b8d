/* What bitsnap_workspace_size and bitsnap_bound tell: enough for every option, and not a byte more of workspace. */
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

/* Encodes with exactly the workspace and the capacity; with one byte less of workspace; and decodes with what info tells. */
static void options(bitsnap b, uint64_t count, bitsnap_dtype dtype)
{
    const size_t size = bitsnap_workspace_size(&b, count, dtype), bound = bitsnap_bound(&b, count, dtype);
    guarded workspace, frame;
    uint8_t *back = (uint8_t *)malloc((size_t)count * bitsnap_width(dtype) + 1);
    bitsnap_info info;
    size_t made, decoding;
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
    decoding = info.workspace_size + (b.run && b.workers > 1 ? (b.workers - 1) * info.worker_size : 0);
    CHECK(decoding <= size);
    b.workspace_size = decoding - 1;
    CHECK(bitsnap_decode(&b, back, count, dtype, frame.p, made) == BITSNAP_E_WORKSPACE && b.error.needed == decoding);
    b.workspace_size = decoding;
    b.workspace = workspace.p + (size - decoding);
    CHECK(!bitsnap_decode(&b, back, count, dtype, frame.p, made), "%s", bitsnap_message(&b));
    CHECK(b.quantizer.cells || b.quantizer.clusters || !memcmp(back, elements, (size_t)count * bitsnap_width(dtype)));
    guarded_free(workspace);
    guarded_free(frame);
    free(back);
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
                if (k == 6 && dtype >= BITSNAP_F16) b.quantizer.cells = 35, b.columns = 100;
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

/* Noise in small blocks takes all that is announced. */
static void noise(void)
{
    bitsnap b;
    test_fill(elements, 100000);
    memset(&b, 0, sizeof b);
    for (b.block_log2 = 6; b.block_log2 <= 12; b.block_log2++) options(b, 100000, BITSNAP_I8);
}

static void invalid(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    CHECK(!bitsnap_bound(NULL, 10, (bitsnap_dtype)0) && !bitsnap_workspace_size(NULL, 10, (bitsnap_dtype)12));
    CHECK(!bitsnap_bound(&b, (UINT64_C(1) << 48) + 1, BITSNAP_I8) && !bitsnap_workspace_size(&b, UINT64_MAX, BITSNAP_I8));
    CHECK(bitsnap_workspace_size(NULL, 1000000, BITSNAP_F64) <= BITSNAP_WORKSPACE);
    b.block_log2 = 21;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.block_log2 = 12;
    b.base.data = base; /* of which blocks are larger */
    b.base.dtype = BITSNAP_I8;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_I8) && !bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    b.block_log2 = 0;
    CHECK(bitsnap_bound(&b, 10, BITSNAP_I8) && bitsnap_workspace_size(&b, 10, BITSNAP_I8));
    CHECK(!bitsnap_workspace_size(&b, 10, BITSNAP_I16)); /* another dtype than the base's */
    b.base.data = NULL;
    b.quantizer.cells = 4000;
    CHECK(!bitsnap_bound(&b, 10, BITSNAP_F32) && !bitsnap_workspace_size(&b, 10, BITSNAP_F32));
}

int main(void)
{
    test_program = "options";
    RUN(all_options);
    RUN(noise);
    RUN(invalid);
    return test_failures != 0;
}
