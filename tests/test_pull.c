/* Pulling: an error in a later block leaves sizes of 0, as the contract of bitsnap.h has it; and of constant blocks the content id, where
 * elements go nowhere, in a workspace that is no larger than it has to be. */
#include "test.h"

#include "bitsnap.h"

static void sizes_after_errors(void)
{
    static uint8_t workspace[BITSNAP_WORKSPACE], frame[4096], elements[256], out[256];
    bitsnap b;
    bitsnap_encoder s;
    size_t size, at, used, n, i;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.block_log2 = 6;
    for (i = 0; i < sizeof elements; i++) elements[i] = (uint8_t)(i * i >> 3);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, sizeof elements, BITSNAP_I8) == BITSNAP_OK);
    CHECK(bitsnap_decoder_begin(&b, &s, frame, size, &at) == BITSNAP_OK);
    CHECK(bitsnap_decoder_pull(&b, &s, out, 64, &n, frame + at, size - at, &used) == BITSNAP_OK && n == 64);
    frame[at + 2 * used - 1] ^= 1; /* in the second block, which like all of these is stored */
    CHECK(bitsnap_decoder_begin(&b, &s, frame, size, &at) == BITSNAP_OK);
    n = used = 1;
    CHECK(bitsnap_decoder_pull(&b, &s, out, sizeof out, &n, frame + at, size - at, &used) == BITSNAP_E_CHECK && n == 0 && used == 0);
    CHECK(b.error.element == 64);
}

static guarded exactly(bitsnap *b, size_t size)
{
    const guarded g = guarded_alloc(size, 0);
    b->workspace = g.p;
    b->workspace_size = size;
    return g;
}

static void constant_blocks(void)
{
    static uint8_t frame[16384], elements[8 * 70000];
    static const size_t counts[] = { 1, 63, 64, 65, 500, 513, 2048, 2049, 4097, 65536, 70000 };
    static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F32, BITSNAP_I64 };
    unsigned i, log2;
    memset(elements, 0x33, sizeof elements);
    for (i = 0; i < 4 * sizeof counts / sizeof *counts; i++)
        for (log2 = 6; log2 <= 16; log2 += 10) {
            const size_t count = counts[i / 4], cell = (size_t)1 << log2;
            const bitsnap_dtype dtype = dtypes[i % 4];
            uint8_t block[64], index[4 * (70000 / 64 + 1)];
            bitsnap_info info;
            bitsnap_encoder s;
            bitsnap b;
            size_t size, at, used, n;
            guarded g;
            memset(&b, 0, sizeof b);
            b.flags = BITSNAP_CONTENT_ID;
            b.block_log2 = log2;
            g = exactly(&b, bitsnap_workspace_size(&b, count, dtype) + ((size_t)bitsnap_width(dtype) << log2) * (log2 < 16));
            CHECK(!bitsnap_encoder_begin(&b, &s, frame, sizeof frame, &at, count, dtype) && !bitsnap_read_info(&info, frame, at), "%s", bitsnap_message(&b));
            s.index = index;
            s.index_capacity = sizeof index;
            while (s.position < count) {
                n = count - (size_t)s.position < cell ? count - (size_t)s.position : cell;
                CHECK(!bitsnap_block_encode(&b, block, sizeof block, &size, &info, elements, s.position, n), "%s", bitsnap_message(&b));
                CHECK(!bitsnap_encoder_push_block(&b, &s, block, size), "%lu elements: %s", (unsigned long)count, bitsnap_message(&b));
            }
            CHECK(!bitsnap_encoder_end(&b, &s, frame, sizeof frame, &size), "%s", bitsnap_message(&b));
            CHECK(test_load64(frame + size - 44) == bitsnap_content_id(elements, count, dtype), "%lu elements", (unsigned long)count);
            guarded_free(g);
            if (log2 < 16) continue; /* where pulling without elements forms no content id */
            g = exactly(&b, (size_t)4 << 20);
            CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, count, dtype) && !bitsnap_read_info(&info, frame, size), "%s", bitsnap_message(&b));
            guarded_free(g);
            g = exactly(&b, info.workspace_size);
            CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at), "%s", bitsnap_message(&b));
            CHECK(!bitsnap_decoder_pull(&b, &s, NULL, count, &n, frame + at, size - at, &used) && n == count, "%s", bitsnap_message(&b));
            CHECK(!bitsnap_decoder_end(&b, &s, frame + at + used, size - at - used, &n), "%lu elements: %s", (unsigned long)count, bitsnap_message(&b));
            guarded_free(g);
        }
}

int main(void)
{
    test_program = "pull";
    RUN(sizes_after_errors);
    RUN(constant_blocks);
    return test_failures != 0;
}
