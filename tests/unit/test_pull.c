/* Pulling. An error in a later block sets sizes to 0, as bitsnap.h promises. Constant blocks pulled without elements give the
 * content id, in a workspace of exactly the documented size. Frames of every form and role give the elements of
 * bitsnap_decode, with every capacity from one block on and pieces of any size. */
#include "test.h"

#include "inside.h"
#include "data.h"

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
    frame[at + 2 * used - 1] ^= 1; /* in the second block; all blocks are stored */
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
            uint8_t block[64], index[8 * (70000 / 64 + 1)];
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
            CHECK(test_load64(frame + size - 36) == bitsnap_content_id(elements, count, dtype), "%lu elements", (unsigned long)count);
            guarded_free(g);
            if (log2 < 16) continue; /* then a pull without elements forms no content id */
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

/* ---- every form, role, capacity and piece ---- */

enum { LARGE = 65536, MOST = 2 * LARGE + LARGE / 2 + 77, SMALL = 64 * 9 + 33 };
static uint8_t elements[4 * MOST], base[4 * MOST], whole[4 * MOST], out[4 * MOST], frame[5 * MOST], workspace[24 << 20];

enum { CELLS = 20, CLUSTERS, COLUMNS, CONSTANTS, RUNS, SAME, FEW, MANY, PRUNED, RANKED, MIXED };
enum { NONE, DIRECT, CAST, UPCAST };

static uint16_t bf16_of(const uint8_t *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return (uint16_t)((x + 0x7FFF + (x >> 16 & 1)) >> 16);
}

static uint16_t bf16_of_level(float scale, int level)
{
    const float x = scale * (float)level;
    uint8_t bytes[4];
    memcpy(bytes, &x, 4);
    return bf16_of(bytes);
}

/* Makes n elements of a block of this kind. With a base they equal the base, except what the kind changes. RANKED: one of 15
 * levels times a scale of its group. */
static void fill(uint8_t *to, const uint8_t *from, size_t n, unsigned width, bitsnap_dtype dtype, unsigned role, unsigned kind)
{
    size_t i;
    if (kind < DATA_SHAPES || (kind >= CELLS && kind <= COLUMNS)) {
        data_fill(to, n, dtype, kind < DATA_SHAPES ? (int)kind : DATA_WEIGHTS);
        return;
    }
    for (i = 0; i < n; i++) {
        uint8_t *p = to + i * width;
        if (kind == CONSTANTS || kind == RUNS) {
            data_store(p, 0x3F01 + (kind == RUNS ? 7 * i / n : 0), width); /* some runs end inside blocks */
            continue;
        }
        if (kind == RANKED) {
            data_store(p, bf16_of_level((float)(1 + i / 64 * 37 % 101), (int)test_below(15) - 7), 2);
            continue;
        }
        if (role == CAST) data_store(p, bf16_of(from + 4 * i), 2);
        else if (role == UPCAST) data_store(p, (uint64_t)(from[2 * i] | from[2 * i + 1] << 8) << 16, 4);
        else memcpy(p, from + i * width, width);
        if ((kind == FEW && i % 997 == 5) || (kind == MANY && i % 3 == 0)) p[0] ^= 1;
        if (kind == PRUNED && i * 0x9E3779B1u >> 31 & 1) memset(p, 0, width);
    }
}

/* Pulls the frame. The source grows by `step` bytes at a time. */
static void pull(const char *what, const bitsnap_base *given, size_t size, size_t count, unsigned width, size_t capacity, size_t step)
{
    bitsnap b;
    bitsnap_decoder d;
    size_t at, used, n, there, done = 0;
    int ended;
    memset(&b, 0, sizeof b);
    b.workspace = workspace, b.workspace_size = sizeof workspace;
    b.base = *given;
    memset(out, 0xA5, count * width);
    if (bitsnap_decoder_begin(&b, &d, frame, size, &at)) {
        CHECK(0, "%s: %s", what, bitsnap_message(&b));
        return;
    }
    for (there = at, ended = 0; !ended;) {
        ended = d.position == d.count;
        n = 0;
        if (ended) (void)bitsnap_decoder_end(&b, &d, frame + at, there - at, &used);
        else (void)bitsnap_decoder_pull(&b, &d, out + done * width, capacity < count - done ? capacity : count - done, &n, frame + at, there - at, &used);
        if (b.error.status == BITSNAP_E_TRUNCATED && there < size) {
            CHECK(b.error.needed > there - at && b.error.needed <= size - at, "%s", what);
            there += size - there < step ? size - there : step;
            ended = 0;
            continue;
        }
        if (b.error.status) break;
        CHECK(n <= capacity && used <= there - at, "%s", what);
        at += used;
        done += n;
    }
    CHECK(!b.error.status && done == count && at == size, "%s: capacity %lu, pieces of %lu: R%u %s at %lu of %lu", what, (unsigned long)capacity,
          (unsigned long)step, b.error.rule, bitsnap_message(&b), (unsigned long)done, (unsigned long)count);
    CHECK(!memcmp(out, whole, count * width), "%s: capacity %lu, pieces of %lu: other elements", what, (unsigned long)capacity, (unsigned long)step);
}

static void one(const char *what, bitsnap b, unsigned role, bitsnap_dtype dtype, size_t count, unsigned kind)
{
    const unsigned width = bitsnap_width(dtype), log2 = role ? 16 : kind == RANKED ? 12 : kind == DATA_SPARSE ? 9 : 6; /* smaller blocks are not PARTED, or have no coded planes */
    const size_t block = (size_t)1 << log2;
    const size_t capacities[] = { block, block + 1, block + block / 2, 2 * block, count };
    size_t size, i, k;
    memset(&b.base, 0, sizeof b.base);
    b.workspace = workspace, b.workspace_size = sizeof workspace;
    b.block_log2 = log2;
    if (role) {
        b.base.dtype = role == CAST ? BITSNAP_F32 : role == UPCAST ? BITSNAP_BF16 : dtype;
        b.base.count = count;
        b.base.data = base;
        data_fill(base, count, b.base.dtype, DATA_WEIGHTS);
    }
    for (i = 0; i < count; i += block) { /* mixed: each block has another kind */
        static const unsigned kinds[] = { CONSTANTS, SAME, FEW, MANY, DATA_NOISE, RUNS };
        const size_t n = kind == MIXED && count - i > block ? block : count - i, from = i * (role == CAST ? 4 : role == UPCAST ? 2 : width);
        fill(elements + i * width, base + from, n, width, dtype, role, kind == MIXED ? kinds[(i / block) % (role ? 3 : 6)] : kind);
        if (kind != MIXED) break;
    }
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, count, dtype), "%s: %s", what, bitsnap_message(&b));
    CHECK(!bitsnap_decode(&b, whole, count, dtype, frame, size), "%s: %s", what, bitsnap_message(&b));
    if (kind == PRUNED || kind == RANKED) { /* the first block has the form under test */
        bitsnap_info info;
        bitsnap_block first;
        CHECK(!bitsnap_read_info(&info, frame, size) && !bitsnap_read_block(&b, &first, &info, 0, frame + info.header_size, size - info.header_size), "%s", what);
        CHECK(kind == PRUNED ? first.form == FORM_PATCHED : first.form == FORM_SPLIT && first.parts > 2, "%s: form %d, %d parts", what, first.form, first.parts);
    }
    CHECK(b.quantizer.bins || b.quantizer.clusters || !memcmp(whole, elements, count * width), "%s", what);
    for (i = 0; i < sizeof capacities / sizeof *capacities; i++) {
        const size_t steps[] = { size < 3000 ? 1 : size / 700 | 1, size / 3 | 1, size / (count / block + 1) + 1, size };
        for (k = role && i % 2 ? 3 : 0; k < 4; k++) pull(what, &b.base, size, count, width, capacities[i], steps[k]);
    }
}

static void capacities(void)
{
    static const struct { const char *name; unsigned kind, role; bitsnap_dtype dtype; } frames[] = {
        { "split", DATA_WEIGHTS, NONE, BITSNAP_BF16 }, { "stored", DATA_NOISE, NONE, BITSNAP_I8 }, { "bytes", DATA_STEPS, NONE, BITSNAP_I32 },
        { "zigzag", DATA_SIGNED, NONE, BITSNAP_I16 }, { "constant", CONSTANTS, NONE, BITSNAP_BF16 }, { "runs", RUNS, NONE, BITSNAP_F32 },
        { "mixed", MIXED, NONE, BITSNAP_F32 }, { "cells", CELLS, NONE, BITSNAP_F32 }, { "clusters", CLUSTERS, NONE, BITSNAP_BF16 },
        { "columns", COLUMNS, NONE, BITSNAP_F32 }, { "constant cells", CONSTANTS, NONE + 10, BITSNAP_BF16 },
        { "split", DATA_WEIGHTS, DIRECT, BITSNAP_BF16 }, { "constant", CONSTANTS, DIRECT, BITSNAP_BF16 }, { "runs", RUNS, DIRECT, BITSNAP_F32 },
        { "same", SAME, DIRECT, BITSNAP_F32 }, { "sparse", FEW, DIRECT, BITSNAP_BF16 }, { "classed", MANY, DIRECT, BITSNAP_BF16 },
        { "stored", DATA_NOISE, DIRECT, BITSNAP_I8 }, { "mixed", MIXED, DIRECT, BITSNAP_BF16 }, { "constant", CONSTANTS, CAST, BITSNAP_BF16 },
        { "same", SAME, CAST, BITSNAP_BF16 }, { "sparse", FEW, CAST, BITSNAP_BF16 }, { "classed", MANY, CAST, BITSNAP_BF16 },
        { "mixed", MIXED, CAST, BITSNAP_BF16 }, { "same", SAME, UPCAST, BITSNAP_F32 }, { "sparse", FEW, UPCAST, BITSNAP_F32 },
        { "classed", MANY, UPCAST, BITSNAP_F32 }, { "mixed", MIXED, UPCAST, BITSNAP_F32 },
        { "parted", DATA_SPARSE, NONE, BITSNAP_BF16 }, { "parted", DATA_SPARSE, DIRECT, BITSNAP_F32 },
        { "parted", DATA_SPARSE, CAST, BITSNAP_BF16 }, { "patched", PRUNED, DIRECT, BITSNAP_BF16 }, { "patched", PRUNED, CAST, BITSNAP_BF16 },
        { "patched", PRUNED, UPCAST, BITSNAP_F32 }, { "coded planes", RANKED, NONE, BITSNAP_BF16 },
    };
    static const char *const roles[] = { "", ", a delta", ", against a cast", ", against an upcast" };
    unsigned i, id;
    for (i = 0; i < sizeof frames / sizeof *frames; i++)
        for (id = 0; id < (frames[i].role ? 1 : 2); id++) {
            const unsigned kind = frames[i].kind, role = frames[i].role % 10;
            const int lossy = kind == CELLS || kind == CLUSTERS || frames[i].role >= 10;
            char what[80];
            bitsnap b;
            memset(&b, 0, sizeof b);
            if (id && !lossy) b.flags = BITSNAP_CONTENT_ID;
            if (kind == CELLS || frames[i].role >= 10) b.quantizer.bins = 35;
            if (kind == CLUSTERS) b.quantizer.clusters = 16;
            if (kind == COLUMNS || (id && kind == CELLS)) b.columns = 16, b.level = BITSNAP_BEST;
            snprintf(what, sizeof what, "%s%s%s", frames[i].name, roles[role], id ? ", with an id" : "");
            one(what, b, role, frames[i].dtype, role ? MOST : kind == RANKED ? 16 * SMALL : SMALL, kind);
        }
}

/* The window of the base holds less than the next block, but the destination is large enough. The error is that of the window. */
static void windows(void)
{
    bitsnap b;
    bitsnap_decoder d;
    size_t size, at, n, used;
    memset(&b, 0, sizeof b);
    b.workspace = workspace, b.workspace_size = sizeof workspace;
    b.block_log2 = 16;
    b.base.data = base, b.base.dtype = BITSNAP_BF16, b.base.count = MOST;
    data_fill(base, MOST, BITSNAP_BF16, DATA_WEIGHTS);
    memset(elements, 0x3F, 2 * MOST);
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, MOST, BITSNAP_BF16), "%s", bitsnap_message(&b));
    b.base.held = LARGE + LARGE / 2;
    CHECK(!bitsnap_decoder_begin(&b, &d, frame, size, &at), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_decoder_pull(&b, &d, out, MOST, &n, frame + at, size - at, &used) && n == LARGE, "%s", bitsnap_message(&b));
    at += used;
    CHECK(bitsnap_decoder_pull(&b, &d, out, MOST, &n, frame + at, size - at, &used) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW &&
          b.error.element == LARGE, "%s", bitsnap_message(&b));
    CHECK(bitsnap_decoder_pull(&b, &d, out, LARGE, &n, frame + at, size - at, &used) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW,
          "%s", bitsnap_message(&b));
    CHECK(bitsnap_decoder_pull(&b, &d, out, LARGE - 1, &n, frame + at, size - at, &used) == BITSNAP_E_CAPACITY && b.error.needed == LARGE, "%s",
          bitsnap_message(&b));
    b.base.data = base + 2 * LARGE, b.base.first = LARGE;
    CHECK(!bitsnap_decoder_pull(&b, &d, out, LARGE, &n, frame + at, size - at, &used) && n == LARGE && !memcmp(out, elements, 2 * LARGE), "%s",
          bitsnap_message(&b));
}

int main(void)
{
    test_program = "pull";
    RUN(sizes_after_errors);
    RUN(constant_blocks);
    RUN(capacities);
    RUN(windows);
    return test_failures != 0;
}
