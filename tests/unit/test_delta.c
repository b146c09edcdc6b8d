/* Deltas: every dtype, level and kernel table, roles, runs, ranges, pieces; identity of bases; in place, merge, invert. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
#include "data.h"

#define MOST 400000
static uint8_t base[8 * MOST], result[8 * MOST], back[8 * MOST + 64], third[8 * MOST];
static uint8_t frame[8 * MOST + 4096], other[8 * MOST + 4096], merged[8 * MOST + 4096];
static uint8_t *room;

static bitsnap fresh(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = room;
    b.workspace_size = test_workspace_delta(20, 2);
    return b;
}

static bitsnap with_base(const void *data, size_t n, bitsnap_dtype dtype)
{
    bitsnap b = fresh();
    b.base.data = data;
    b.base.count = n;
    b.base.dtype = dtype;
    return b;
}

/* Changes one of every `every` elements (0: none): usually by one unit in the last place, sometimes to anything. */
static void change(uint8_t *to, const uint8_t *from, size_t n, unsigned width, unsigned every)
{
    size_t i;
    memcpy(to, from, n * width);
    for (i = 0; i < n && every; i++) {
        uint64_t x, r = test_random();
        if (r % every) continue;
        r >>= 20;
        x = bsn_element_load(to + i * width, width);
        x += r % 50 == 0 ? r : r % 10 == 0 ? r >> 4 & 0xFF : r & 16 ? 1 : (uint64_t)0 - 1;
        bsn_element_store(to + i * width, x, width);
    }
}

static size_t encode(bitsnap *b, uint8_t *to, const uint8_t *elements, size_t n, bitsnap_dtype dtype)
{
    size_t size = 0;
    const bitsnap_status status = bitsnap_encode(b, to, bitsnap_bound(b, n, dtype), &size, elements, n, dtype);
    CHECK(status == BITSNAP_OK, "%s", bitsnap_message(b));
    return size;
}

/* The counts of the blocks add up. The nonzero words of a block equal its changed elements in number. */
static void blocks(bitsnap b, const bitsnap_info *info, const uint8_t *p, size_t size)
{
    uint64_t first = 0, at = info->header_size, same = 0, sparse = 0, classed = 0, plain = 0;
    const uint64_t cell = UINT64_C(1) << info->block_log2;
    const unsigned width = info->width;
    const void *known = b.base.data;
    bitsnap_block block;
    while (first < info->count) {
        uint64_t changed = 0, words = 0, elements = 0, i;
        unsigned k;
        if (bitsnap_read_block(&b, &block, info, first, p + at, size - (size_t)at)) {
            CHECK(0, "%s", bitsnap_message(&b));
            return;
        }
        for (i = 0; i < block.elements && info->base_dtype == info->dtype; i++)
            changed += memcmp(base + (first + i) * width, result + (first + i) * width, width) != 0;
        for (k = 0; k < block.parts; k++) words += block.part[k].changed, elements += block.part[k].elements;
        if (block.form == BSN_FORM_CLASSED) {
            CHECK(block.classes >= 1 && block.classes <= 8 && block.parts == (known || block.classes == 1 ? block.classes : 0));
            CHECK(!block.parts || (words == changed && elements == block.elements), "%d of %d", (int)words, (int)changed);
        }
        if (block.form == BSN_FORM_SPARSE)
            CHECK(block.parts == 1 && elements == block.elements && (words == changed || info->base_dtype != info->dtype) && words,
                  "%d of %d", (int)words, (int)changed);
        if (block.form == BSN_FORM_SAME) CHECK(!changed && !block.parts);
        if (block.form == BSN_FORM_SPLIT) CHECK(block.parts == 2);
        if (block.form == BSN_FORM_BYTES) CHECK(block.parts == width);
        *(block.form == BSN_FORM_SAME ? &same : block.form == BSN_FORM_SPARSE ? &sparse : block.form == BSN_FORM_CLASSED || block.form == BSN_FORM_PATCHED ? &classed
          : &plain)
            += (block.elements + cell - 1) / cell;
        at += block.size;
        first += block.elements;
        CHECK(bitsnap_read_block(&b, &block, info, 0, p, 3) == BITSNAP_E_TRUNCATED);
    }
    CHECK(same == info->same && sparse == info->sparse && classed == info->classed && plain == info->plain && at + 36 <= size);
    CHECK(bitsnap_read_block(&b, &block, info, first, p, size) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_read_block(&b, &block, info, 1, p, size) == BITSNAP_E_ARGUMENT);
}

static void round_trip(size_t n, bitsnap_dtype dtype, unsigned every, int level, unsigned flags, unsigned log2)
{
    const unsigned width = bitsnap_width(dtype);
    bitsnap b = with_base(base, n, dtype);
    bitsnap_info info;
    size_t size, again;
    unsigned t;
    change(result, base, n, width, every);
    b.level = level;
    b.flags = flags | (n & 1 ? BITSNAP_VERIFY : 0);
    b.block_log2 = log2;
    size = encode(&b, frame, result, n, dtype);
    CHECK(size <= bitsnap_bound(&b, n, dtype));
    CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.has_base && info.base_dtype == dtype &&
          info.base_id == bitsnap_content_id(base, n, dtype) && info.content_id == bitsnap_content_id(result, n, dtype) &&
          info.same + info.sparse + info.classed + info.plain == info.blocks && info.frame_size == size);
    CHECK(every || info.same == info.blocks, "%d cells of %d", (int)info.same, (int)info.blocks);
    blocks(b, &info, frame, size);
    blocks(fresh(), &info, frame, size);
    for (t = 0; bitsnap_kernels_get(t); t++) {
        b.kernels = bitsnap_kernels_get(t);
        memset(back, 0xAA, n * width);
        CHECK(bitsnap_decode(&b, back, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(!memcmp(back, result, n * width), "%s, %zu elements, 1 of %u", bitsnap_dtype_name(dtype), n, every);
        CHECK(bitsnap_encode(&b, other, sizeof other, &again, result, n, dtype) == BITSNAP_OK && again == size &&
              !memcmp(other, frame, size), "%s", b.kernels->name);
    }
    b.kernels = NULL;
    CHECK(bitsnap_test(&b, frame, size) == BITSNAP_OK && bitsnap_verify(&b, result, n, dtype, frame, size) == BITSNAP_OK);
    if (n) { /* a range */
        const size_t first = test_below(n), count = test_below(n - first + 1);
        memset(back, 0xAA, n * width);
        CHECK(bitsnap_decode_range(&b, back, first, count, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(!memcmp(back, result + first * width, count * width) && (count == n || back[count * width] == 0xAA));
    }
    memcpy(back, base, n * width);
    CHECK(bitsnap_apply(&b, back, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
    CHECK(!memcmp(back, result, n * width));
    CHECK(bitsnap_apply(&b, back, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
    CHECK(!memcmp(back, result, n * width));
    /* and back to the base */
    CHECK(bitsnap_invert(&b, other, sizeof other, &again, frame, size) == BITSNAP_OK && !b.error.needed, "%s", bitsnap_message(&b));
    CHECK(bitsnap_apply(&b, back, n, dtype, other, again) == BITSNAP_OK && !memcmp(back, base, n * width), "%s", bitsnap_message(&b));
}

static void round_trips(void)
{
    static const size_t lengths[] = { 0, 1, 2, 15, 16, 17, 63, 64, 65, 255, 256, 257, 1000, 4096, 4097, 65535, 65536, 65537, 140000 };
    static const unsigned rates[] = { 0, 1, 2, 10, 300, 30000 };
    unsigned dtype, i, r;
    for (dtype = 1; dtype <= 11; dtype++) {
        data_fill(base, MOST, (bitsnap_dtype)dtype, DATA_WEIGHTS);
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (r = 0; r < 6; r++)
                round_trip(lengths[i], (bitsnap_dtype)dtype, rates[r], (int)((r + i) % 3), (i + r) % 4 == 3 ? BITSNAP_SELF_CONTAINED : 0,
                           i % 3 == 1 ? 16 : 0);
    }
}

/* The value of a binary16 without its sign. Exponents past the largest number continue without end. */
static double half_value(uint16_t h)
{
    const unsigned exponent = h >> 10;
    const double mantissa = (h & 1023) + (exponent ? 1024 : 0);
    unsigned i;
    double unit = 1.0 / 16777216; /* 2^-24 */
    for (i = 1; i < exponent; i++) unit *= 2;
    return mantissa * unit;
}

/* All 2^32 patterns would take too long: all upper halves, with lower halves around the ties. */
static void casts(void)
{
    static const uint16_t low[] = { 0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0x8001, 0xFFFF };
    uint32_t high, i, x;
    for (high = 0; high < 65536; high++)
        for (i = 0; i < sizeof low / sizeof *low; i++) {
            float f, g;
            uint32_t y;
            uint16_t h;
            double d, e, below, above;
            x = high << 16 | low[i];
            memcpy(&f, &x, 4);
            if (f != f) {
                CHECK((bsn_cast_bf16(x) & 0x7FFF) > 0x7F80 && (bsn_cast_f16(x) & 0x7FFF) > 0x7C00);
                CHECK((bsn_cast_bf16(x) ^ x >> 16) >> 15 == 0 && (bsn_cast_f16(x) ^ x >> 16) >> 15 == 0);
                continue;
            }
            h = bsn_cast_bf16(x); /* no neighbour is nearer */
            y = (uint32_t)h << 16;
            memcpy(&g, &y, 4);
            CHECK((h ^ x >> 16) >> 15 == 0);
            if ((x & 0x7FFFFFFF) < 0x7F7F0000 && (x & 0x7FFFFFFF) > 0x10000) {
                float a, c;
                uint32_t ya = y - 0x10000, yc = y + 0x10000;
                memcpy(&a, &ya, 4);
                memcpy(&c, &yc, 4);
                d = (double)f;
                e = d > (double)g ? d - (double)g : (double)g - d;
                below = d > (double)a ? d - (double)a : (double)a - d;
                above = d > (double)c ? d - (double)c : (double)c - d;
                CHECK(e <= below && e <= above && ((e < below && e < above) || !(h & 1)), "%08x", (unsigned)x);
            }
            h = bsn_cast_f16(x); /* no neighbour is nearer; infinite from half a step above the largest number */
            CHECK((h ^ x >> 16) >> 15 == 0);
            d = f < 0 ? -(double)f : (double)f;
            h &= 0x7FFF;
            if (d >= 65520) {
                CHECK(h == 0x7C00, "%08x", (unsigned)x);
            } else {
                e = d - half_value(h);
                below = h ? d - half_value((uint16_t)(h - 1)) : 1;
                above = half_value((uint16_t)(h + 1)) - d;
                if (e < 0) e = -e;
                CHECK(h < 0x7C00 && e <= below && e <= above && ((e < below && e < above) || !(h & 1)), "%08x: %04x", (unsigned)x, h);
            }
        }
    CHECK(bsn_cast_f16(0x3F800000) == 0x3C00 && bsn_cast_f16(0x477FE000) == 0x7BFF && bsn_cast_f16(0x477FEFFF) == 0x7BFF &&
          bsn_cast_f16(0x477FF000) == 0x7C00 && bsn_cast_f16(0x33000000) == 0 && bsn_cast_f16(0x33000001) == 1 &&
          bsn_cast_f16(0x33800000) == 1 && bsn_cast_f16(0x33C00000) == 2 && bsn_cast_f16(0x38800000) == 0x0400 &&
          bsn_cast_f16(0x387FFFFF) == 0x0400 && bsn_cast_f16(0xB8000000) == 0x8200 && bsn_cast_f16(0xFF800000) == 0xFC00);
}

/* Casts of lists use vectors. Each element equals its single cast. */
static void cast_lists(void)
{
    static const uint16_t low[] = { 0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x2000, 0x7FFF, 0x8000, 0x8001, 0xFFFF };
    uint32_t high, i, x[25];
    uint8_t y[2 * 25];
    for (high = 0; high < 65536; high++) {
        const uint32_t alike = test_below(2); /* all of one magnitude, or of any */
        for (i = 0; i < 25; i++) x[i] = (alike ? high ^ (i & 1) << 15 : test_below(65536)) << 16 | low[(high + i) % 11];
        CHECK(bsn_predict(BITSNAP_BF16, BITSNAP_F32, (const uint8_t *)x, 0, 25, y) == y);
        for (i = 0; i < 25; i++) CHECK(bsn_element_load(y + 2 * i, 2) == bsn_cast_bf16(x[i]), "%08x", (unsigned)x[i]);
        y[46] = 0xA5; /* after the 23 elements */
        CHECK(bsn_predict(BITSNAP_F16, BITSNAP_F32, (const uint8_t *)x, 1, 23, y) == y && y[46] == 0xA5);
        for (i = 1; i < 24; i++) CHECK(bsn_element_load(y + 2 * i - 2, 2) == bsn_cast_f16(x[i]), "%08x", (unsigned)x[i]);
    }
}

static void cast_frames(void)
{
    unsigned d, i;
    size_t n, size, again;
    for (d = 0; d < 2; d++)
        for (n = 1; n < MOST; n = n * 5 + 3) {
            const bitsnap_dtype dtype = d ? BITSNAP_F16 : BITSNAP_BF16;
            bitsnap b = with_base(base, n, BITSNAP_F32), c = fresh();
            data_fill(base, n, BITSNAP_F32, DATA_WEIGHTS);
            for (i = 0; i < n; i++) {
                const uint32_t x = (uint32_t)bsn_element_load(base + 4 * i, 4);
                bsn_element_store(result + 2 * i, d ? bsn_cast_f16(x) : bsn_cast_bf16(x), 2);
            }
            size = encode(&b, frame, result, n, dtype);
            CHECK(size < 200 + n / 1000, "%zu elements: %zu bytes", n, size);
            CHECK(bitsnap_decode(&b, back, n, dtype, frame, size) == BITSNAP_OK && !memcmp(back, result, 2 * n), "%s", bitsnap_message(&b));
            result[test_below(2 * n)] ^= 4; /* near misses */
            size = encode(&b, frame, result, n, dtype);
            CHECK(bitsnap_decode(&b, back, n, dtype, frame, size) == BITSNAP_OK && !memcmp(back, result, 2 * n), "%s", bitsnap_message(&b));
            CHECK(bitsnap_apply(&b, back, n, dtype, frame, size) == BITSNAP_E_UNSUPPORTED);
            CHECK(bitsnap_invert(&b, other, sizeof other, &again, frame, size) == BITSNAP_E_UNSUPPORTED && again == 0);
            /* a delta against the result */
            c = with_base(result, n, dtype);
            c.flags = BITSNAP_SELF_CONTAINED;
            change(third, result, n, 2, 5);
            again = encode(&c, other, third, n, dtype);
            c.base.data = NULL;
            CHECK(bitsnap_merge(&c, merged, sizeof merged, &size, frame, size, other, again) == BITSNAP_OK, "%s", bitsnap_message(&c));
            CHECK(bitsnap_decode(&b, back, n, dtype, merged, size) == BITSNAP_OK && !memcmp(back, third, 2 * n), "%s", bitsnap_message(&b));
        }
}

/* Upcasts of every F16 and BF16 element keep the value, and the cast back gives the element. */
static void upcasts(void)
{
    uint32_t i, y[2];
    for (i = 0; i < 65536; i++) {
        const uint16_t x[2] = { 0, (uint16_t)i };
        float f;
        CHECK(bsn_predict(BITSNAP_F32, BITSNAP_BF16, (const uint8_t *)x, 1, 1, (uint8_t *)y) == (uint8_t *)y && y[0] == i << 16);
        CHECK(bsn_predict(BITSNAP_F32, BITSNAP_F16, (const uint8_t *)x, 1, 1, (uint8_t *)y) == (uint8_t *)y && y[0] >> 31 == i >> 15);
        memcpy(&f, y, 4);
        if ((i & 0x7FFF) < 0x7C00) CHECK(bsn_cast_f16(y[0]) == i && (double)(i >> 15 ? -f : f) == half_value((uint16_t)(i & 0x7FFF)), "%04x", (unsigned)i);
        else CHECK((y[0] & 0x7FFFFFFF) == 0x7F800000 + ((i & 0x3FF) << 13), "%04x", (unsigned)i);
    }
}

/* An F32 tensor against the F16 or BF16 tensor that it rounds to costs the bits that rounding removed. If fewer low bits
 * differ, it costs these. An exact upcast costs nothing. */
static void upcast_frames(void)
{
    unsigned d, k;
    size_t n, size, again, i;
    for (d = 0; d < 4; d++)
        for (n = 1; n < MOST; n = n * 5 + 3) {
            const bitsnap_dtype half = d & 1 ? BITSNAP_F16 : BITSNAP_BF16;
            bitsnap b = with_base(base, n, half);
            b.level = d & 2 ? BITSNAP_FAST : BITSNAP_DEFAULT;
            for (k = 0; k < 3; k++) {
                for (i = 0; i < n; i++) {
                    uint32_t x = (test_below(65536) & 0xBFFF) << 16 | 0x20000000; /* an exponent of F16, too */
                    const uint16_t y = d & 1 ? bsn_cast_f16(x) : bsn_cast_bf16(x);
                    memcpy(base + 2 * i, &y, 2);
                    x = (d & 1 ? bsn_upcast_f16(y) : (uint32_t)y << 16) + (k == 2 ? 0 : test_below(k ? 0x400 : d & 1 ? 0x1000 : 0x8000));
                    memcpy(result + 4 * i, &x, 4);
                }
                size = encode(&b, frame, result, n, BITSNAP_F32);
                CHECK(size < 300 + (k == 2 ? n / 1000 : k ? 3 * n / 2 : 2 * n + n / 100), "%zu elements: %zu bytes", n, size);
                CHECK(bitsnap_decode(&b, back, n, BITSNAP_F32, frame, size) == BITSNAP_OK && !memcmp(back, result, 4 * n), "%s", bitsnap_message(&b));
                CHECK(bitsnap_apply(&b, back, n, BITSNAP_F32, frame, size) == BITSNAP_E_UNSUPPORTED);
                CHECK(bitsnap_invert(&b, other, sizeof other, &again, frame, size) == BITSNAP_E_UNSUPPORTED && again == 0);
            }
            b.base.dtype = half == BITSNAP_F16 ? BITSNAP_BF16 : BITSNAP_F16;
            CHECK(bitsnap_decode(&b, back, n, BITSNAP_F32, frame, size) == BITSNAP_E_BASE);
            CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, result, n, half) == BITSNAP_E_BASE); /* F16 cannot be a base of BF16 */
        }
}

/* Every wrong base is BITSNAP_E_BASE, and nothing is applied. */
static void wrong_bases(void)
{
    const size_t n = 150000;
    bitsnap b = with_base(base, n, BITSNAP_BF16);
    size_t size, i;
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(result, base, n, 2, 100);
    b.block_log2 = 16;
    size = encode(&b, frame, result, n, BITSNAP_BF16);
    for (i = 0; i < 40; i++) {
        const size_t at = test_below(2 * n);
        base[at] ^= (uint8_t)(1u << i % 8);
        CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_HASH &&
              b.error.element == (at / 2 & ~(size_t)65535), "%zu", at);
        memcpy(back, base, 2 * n);
        CHECK(bitsnap_apply(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && !memcmp(back, base, 2 * n));
        base[at] ^= (uint8_t)(1u << i % 8);
    }
    b.base.count = n - 1;
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE);
    b.base.count = n;
    b.base.dtype = BITSNAP_F16;
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE);
    b.base.dtype = BITSNAP_BF16;
    b.base.id = 77;
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE);
    CHECK(bitsnap_encode(&b, other, sizeof other, &i, result, n, BITSNAP_BF16) == BITSNAP_E_BASE && i == 0 &&
          b.error.rule == 0); /* without an id */
    b.base.id = bitsnap_content_id(base, n, BITSNAP_BF16);
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_OK && encode(&b, other, result, n, BITSNAP_BF16) == size &&
          !memcmp(frame, other, size));
    b.base.data = NULL;
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE);
    CHECK(bitsnap_test(&b, frame, size) == BITSNAP_E_BASE);
    b.base.data = result; /* swapped */
    b.base.id = 0;
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_HASH);
    b.base.dtype = BITSNAP_F64;
    CHECK(bitsnap_encode(&b, other, sizeof other, &i, result, n, BITSNAP_BF16) == BITSNAP_E_BASE && i == 0 && b.error.rule == 0);
}

/* Some cells of the tensor hold the result already. Apply completes the others. */
static void interrupted(void)
{
    const size_t n = 200000;
    bitsnap b = with_base(base, n, BITSNAP_F32);
    size_t size, i;
    unsigned which;
    data_fill(base, n, BITSNAP_F32, DATA_WEIGHTS);
    change(result, base, n, 4, 3);
    memcpy(result + 4 * 65536, base + 4 * 65536, 4 * 65536);
    b.block_log2 = 16;
    size = encode(&b, frame, result, n, BITSNAP_F32);
    for (which = 0; which < 16; which++) {
        for (i = 0; i < 4; i++) {
            const size_t at = i * 65536, m = bsn_min(65536, n - at);
            memcpy(back + 4 * at, (which >> i & 1 ? result : base) + 4 * at, 4 * m);
        }
        CHECK(bitsnap_apply(&b, back, n, BITSNAP_F32, frame, size) == BITSNAP_OK && !memcmp(back, result, 4 * n), "%u: %s", which,
              bitsnap_message(&b));
    }
}

/* Damaged deltas are never accepted, and nothing is applied. */
static void damage(void)
{
    size_t n, size, i, cut;
    unsigned k;
    for (k = 0; k < 4; k++) {
        const bitsnap_dtype dtype = k == 1 ? BITSNAP_F32 : k == 2 ? BITSNAP_I16 : BITSNAP_BF16;
        const unsigned width = bitsnap_width(dtype);
        bitsnap b;
        n = k == 3 ? 70000 : 300;
        b = with_base(base, n, dtype);
        data_fill(base, n, dtype, DATA_WEIGHTS);
        change(result, base, n, width, k == 3 ? 20000 : 4);
        b.block_log2 = 16;
        size = encode(&b, frame, result, n, dtype);
        for (i = 0; i < 8 * size; i += 1 + (size > 1000 ? test_below(17) : 0)) {
            frame[i / 8] ^= (uint8_t)(1u << i % 8);
            memcpy(back, base, n * width);
            CHECK(bitsnap_apply(&b, back, n, dtype, frame, size) != BITSNAP_OK, "bit %zu", i);
            CHECK(!memcmp(back, base, n * width), "bit %zu", i);
            if (i % 7 == 0) CHECK(bitsnap_decode(&b, back, n, dtype, frame, size) != BITSNAP_OK);
            if (i % 7 == 1) {
                size_t made;
                CHECK(bitsnap_invert(&b, other, sizeof other, &made, frame, size) != BITSNAP_OK && made == 0);
            }
            frame[i / 8] ^= (uint8_t)(1u << i % 8);
        }
        for (cut = 0; cut < size; cut += 1 + cut / 300) {
            memcpy(back, base, n * width);
            CHECK(bitsnap_apply(&b, back, n, dtype, frame, cut) != BITSNAP_OK && !memcmp(back, base, n * width));
        }
    }
}

/* Random damage of base, delta or both is never applied. CORRUPTIONS=n in the environment: n cases. */
static void corruptions(void)
{
    const char *wanted = getenv("CORRUPTIONS");
    const size_t n = 200;
    unsigned long count = wanted ? strtoul(wanted, NULL, 10) : 20000, i;
    static uint8_t sound[4096], live[8 * 200];
    size_t size = 0;
    bitsnap b;
    for (i = 0; i < count; i++) {
        const bitsnap_dtype dtype = i / 1000 % 3 == 0 ? BITSNAP_BF16 : i / 1000 % 3 == 1 ? BITSNAP_F32 : BITSNAP_I8;
        const unsigned width = bitsnap_width(dtype);
        unsigned changes = 1 + (unsigned)test_below(4), what = (unsigned)test_below(3);
        if (i % 1000 == 0) {
            b = with_base(base, n, dtype);
            data_fill(base, n, dtype, DATA_WEIGHTS);
            change(result, base, n, width, i / 1000 % 4 == 3 ? 0 : 1 + (unsigned)test_below(9));
            if (i / 1000 % 4 == 3) { /* a few scattered changes */
                size_t k;
                b.level = BITSNAP_FAST;
                for (k = 1 + test_below(3); k--;) result[test_below(n) * width]++;
            }
            b.flags = i / 3000 % 2 ? BITSNAP_SELF_CONTAINED : 0;
            size = encode(&b, sound, result, n, dtype);
        }
        memcpy(live, base, n * width);
        memcpy(frame, sound, size);
        while (changes--) {
            uint8_t *p = what == 0 || (what == 2 && (changes & 1)) ? live + test_below(n * width) : frame + test_below(size);
            *p = (uint8_t)test_random();
        }
        if (!memcmp(live, base, n * width) && !memcmp(frame, sound, size)) continue;
        memcpy(back, live, n * width);
        CHECK(bitsnap_apply(&b, live, n, dtype, frame, size) != BITSNAP_OK || !memcmp(live, result, n * width), "%lu", i);
        CHECK(!memcmp(live, back, n * width), "%lu", i);
    }
}

/* Merges the deltas of a chain of states. The merged delta leads from the first state to the last, and its inverse back. */
static void algebra(void)
{
    enum { STEPS = 100, N = 70000 };
    static uint8_t state[2][8 * N], sum[2][8 * N + 4096];
    unsigned dtype, step, self;
    for (dtype = 1; dtype <= 11; dtype += 3)
        for (self = 0; self < 2; self++) {
            const bitsnap_dtype type = (bitsnap_dtype)(dtype == 10 ? BITSNAP_F32 : dtype == 7 ? BITSNAP_BF16 : dtype);
            const unsigned width = bitsnap_width(type), steps = self ? STEPS : 12;
            size_t size = 0, delta, again;
            bitsnap b = with_base(base, N, type), s;
            data_fill(base, N, type, DATA_WEIGHTS);
            memcpy(state[0], base, N * width);
            for (step = 0; step < steps; step++) {
                uint8_t *from = state[step & 1], *to = state[~step & 1];
                s = with_base(from, N, type);
                s.flags = self ? BITSNAP_SELF_CONTAINED : 0;
                s.block_log2 = 16;
                change(to, from, N, width, step % 5 == 4 ? 0 : step % 5 == 3 ? 2 : 500);
                if (step % 7 == 6 && !self) { /* a cell that is smaller without the base */
                    test_fill(to, 1000 * width);
                    memset(to + 1000 * width, 0, 64536 * width);
                }
                delta = encode(&s, step ? frame : sum[0], to, N, type);
                if (!step) {
                    size = delta;
                    continue;
                }
                s = self ? fresh() : b;
                CHECK(bitsnap_merge(&s, sum[step & 1], sizeof sum[0], &again, sum[~step & 1], size, frame, delta) == BITSNAP_OK,
                      "step %u: %s", step, bitsnap_message(&s));
                size = again;
                CHECK(bitsnap_merge(&s, merged, sizeof merged, &again, frame, delta, sum[~step & 1], size) != BITSNAP_OK);
            }
            memcpy(back, base, N * width);
            CHECK(bitsnap_apply(&b, back, N, type, sum[~steps & 1], size) == BITSNAP_OK, "%s", bitsnap_message(&b));
            CHECK(!memcmp(back, state[steps & 1], N * width), "%s", bitsnap_dtype_name(type));
            s = self ? fresh() : b;
            CHECK(bitsnap_invert(&s, other, sizeof other, &again, sum[~steps & 1], size) == BITSNAP_OK, "%s", bitsnap_message(&s));
            CHECK(bitsnap_apply(&b, back, N, type, other, again) == BITSNAP_OK && !memcmp(back, base, N * width), "%s", bitsnap_message(&b));
        }
}

/* A block from another delta with the same base, at its own position. Its checks and hashes are right, but the index has
 * another check. */
static void block_of_another_delta(void)
{
    enum { CELL = 65536, N = CELL + 100 };
    bitsnap b = with_base(base, N, BITSNAP_I8), none;
    bitsnap_info info;
    size_t size, size2, again;
    test_fill(base, N);
    memcpy(third, base, N);
    b.block_log2 = 16;
    test_fill(third, CELL);
    size = encode(&b, frame, third, N, BITSNAP_I8);
    memcpy(result, third, N);
    test_fill(result, CELL);
    size2 = encode(&b, other, result, N, BITSNAP_I8);
    CHECK(!bitsnap_read_info(&info, frame, size) && size == size2 && !memcmp(frame, other, info.header_size + 4), "other heads");
    memcpy(frame + info.header_size, other + info.header_size, 28 + CELL);
    memcpy(back, base, N);
    CHECK(bitsnap_apply(&b, back, N, BITSNAP_I8, frame, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(!memcmp(back, base, N), "half applied");
    CHECK(bitsnap_decode(&b, back, N, BITSNAP_I8, frame, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_decode_range(&b, back, 5, 9, BITSNAP_I8, frame, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(!bitsnap_decode_range(&b, back, CELL, 9, BITSNAP_I8, frame, size) && !memcmp(back, base + CELL, 9));
    CHECK(bitsnap_invert(&b, merged, sizeof merged, &again, frame, size) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    none = with_base(result, N, BITSNAP_I8);
    none.block_log2 = 16;
    size2 = encode(&none, other, base, N, BITSNAP_I8);
    CHECK(bitsnap_merge(&b, merged, sizeof merged, &again, frame, size, other, size2) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_INDEX_CHECK);
    CHECK(bitsnap_merge(&none, merged, sizeof merged, &again, other, size2, frame, size) == BITSNAP_E_CHECK && none.error.rule == BITSNAP_R_INDEX_CHECK);
}

/* Changes small elements by much and large ones by little, so that blocks have several classes. */
static void step(uint8_t *to, const uint8_t *from, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const unsigned x = (unsigned)bsn_element_load(from + 2 * i, 2), small = (x >> 7 & 255) < 121;
        bsn_element_store(to + 2 * i, x + test_below(small ? 200 : 2), 2);
    }
}

/* Merging and inverting without a base fail if they need it. */
static void algebra_needs(void)
{
    const size_t n = 5000;
    size_t one, two, size;
    bitsnap b = with_base(base, n, BITSNAP_BF16), none = fresh();
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    step(result, base, n);
    one = encode(&b, frame, result, n, BITSNAP_BF16);
    CHECK(bitsnap_invert(&none, merged, sizeof merged, &size, frame, one) == BITSNAP_E_UNSUPPORTED && size == 0);
    b.base.data = result;
    step(third, result, n);
    two = encode(&b, other, third, n, BITSNAP_BF16);
    CHECK(bitsnap_merge(&none, merged, sizeof merged, &size, frame, one, other, two) == BITSNAP_E_UNSUPPORTED && size == 0);
    b.base.data = base;
    CHECK(bitsnap_merge(&b, merged, sizeof merged, &size, frame, one, other, two) == BITSNAP_OK);
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, merged, size) == BITSNAP_OK && !memcmp(back, third, 2 * n));
    CHECK(bitsnap_merge(&b, merged, sizeof merged, &size, other, two, frame, one) == BITSNAP_E_BASE && size == 0);
    none.workspace_size = 65536;
    CHECK(bitsnap_merge(&none, merged, sizeof merged, &size, frame, one, other, two) == BITSNAP_E_WORKSPACE);
    none = fresh();
    b = fresh();
    one = encode(&b, frame, result, n, BITSNAP_BF16);
    CHECK(bitsnap_apply(&b, back, n, BITSNAP_BF16, frame, one) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_invert(&b, other, sizeof other, &size, frame, one) == BITSNAP_E_ARGUMENT && size == 0);
    CHECK(bitsnap_merge(&b, merged, sizeof merged, &size, other, two, frame, one) == BITSNAP_E_BASE && size == 0 &&
          b.error.rule == 0 && !strcmp(bitsnap_message(&b), bitsnap_status_message(BITSNAP_E_BASE)));
}

/* Runs tasks in reverse order, on workers in turn. */
static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    const unsigned workers = *(unsigned *)context;
    uint64_t i;
    for (i = count; i-- > 0;) task(argument, i, (unsigned)(i % workers));
}

/* Merges with any number of workers; and refuses frames whose blocks are larger than those of the first. */
static void algebra_of_workers(void)
{
    const size_t n = 390000;
    size_t one, two, size, again;
    bitsnap_info info;
    unsigned workers, log2;
    bitsnap b = with_base(base, n, BITSNAP_BF16), c = fresh();
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(result, base, n, 2, 3);
    for (size = 0; size < 2 * n; size++) third[size] = (uint8_t)test_random(); /* cells that do not use the base */
    change(third, result, n / 2, 2, 5);
    b.flags = BITSNAP_SELF_CONTAINED;
    b.block_log2 = 16;
    one = encode(&b, frame, result, n, BITSNAP_BF16);
    b.base.data = result;
    two = encode(&b, other, third, n, BITSNAP_BF16);
    CHECK(bitsnap_merge(&c, merged, sizeof merged, &size, frame, one, other, two) == BITSNAP_OK);
    for (workers = 1; workers <= 8; workers++) {
        c.run = run;
        c.run_context = &workers;
        c.workers = workers;
        CHECK(!bitsnap_read_info(&info, frame, one));
        c.workspace_size = 0;
        CHECK(bitsnap_merge(&c, back, sizeof back, &again, frame, one, other, two) == BITSNAP_E_WORKSPACE &&
              c.error.needed <= info.merge_size + (workers > 2 ? (workers - 2) * info.worker_size : 0));
        c.workspace_size = (size_t)c.error.needed;
        c.workspace = malloc(c.workspace_size);
        memset(back, 0, size);
        CHECK(bitsnap_merge(&c, back, sizeof back, &again, frame, one, other, two) == BITSNAP_OK && again == size && !memcmp(back, merged, size),
              "%u workers: %s", workers, bitsnap_message(&c));
        c.workspace_size--;
        CHECK(bitsnap_merge(&c, back, sizeof back, &again, frame, one, other, two) == BITSNAP_E_WORKSPACE &&
              c.error.needed == c.workspace_size + 1 && again == 0);
        free(c.workspace);
    }
    c = fresh();
    for (log2 = 17; log2 <= 20; log2++) {
        b.block_log2 = log2;
        two = encode(&b, other, third, n, BITSNAP_BF16);
        CHECK(bitsnap_merge(&c, merged, sizeof merged, &size, frame, one, other, two) == BITSNAP_E_UNSUPPORTED && size == 0);
    }
}

static void pieces(void)
{
    const size_t n = 390000, cell = 65536;
    uint8_t index[256];
    unsigned workers;
    size_t whole, size, at, i;
    bitsnap b = with_base(base, n, BITSNAP_BF16);
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(result, base, n, 2, 3);
    memcpy(result + 2 * cell, base + 2 * cell, 6 * cell); /* a run of three cells */
    b.block_log2 = 16;
    whole = encode(&b, frame, result, n, BITSNAP_BF16);
    for (workers = 1; workers <= 8; workers++) {
        bitsnap_encoder s;
        b.run = run;
        b.run_context = &workers;
        b.workers = workers;
        b.workspace_size = test_workspace_delta(16, workers);
        b.workspace = malloc(b.workspace_size);
        CHECK(encode(&b, other, result, n, BITSNAP_BF16) == whole && !memcmp(frame, other, whole), "%u workers", workers);
        memset(back, 0, 2 * n);
        CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, whole) == BITSNAP_OK && !memcmp(back, result, 2 * n));
        CHECK(bitsnap_encoder_begin(&b, &s, other, sizeof other, &at, n, BITSNAP_BF16) == BITSNAP_OK);
        s.index = index;
        s.index_capacity = sizeof index;
        for (i = 0; i < n; i += workers * cell) {
            const size_t m = bsn_min(workers * cell, n - i);
            CHECK(bitsnap_encoder_push(&b, &s, other + at, 2 * m + 36 * workers + 640, &size, result + 2 * i, m) == BITSNAP_OK);
            at += size;
        }
        CHECK(bitsnap_encoder_end(&b, &s, other + at, 64 + s.index_size, &size) == BITSNAP_OK);
        CHECK(at + size == whole && !memcmp(frame, other, whole), "pieces of %u cells", workers);
        CHECK(bitsnap_decoder_begin(&b, &s, frame, whole, &at) == BITSNAP_OK);
        memset(back, 0, 2 * n);
        for (i = 0; i < n; i += size) {
            size_t used;
            CHECK(bitsnap_decoder_pull(&b, &s, back + 2 * i, bsn_min(workers * cell, n - i), &size, frame + at, whole - at, &used) == BITSNAP_OK,
                  "%s", bitsnap_message(&b));
            if (!size) break;
            at += used;
        }
        CHECK(bitsnap_decoder_end(&b, &s, frame + at, whole - at, &size) == BITSNAP_OK && at + size == whole, "%s", bitsnap_message(&b));
        CHECK(!memcmp(back, result, 2 * n));
        free(b.workspace);
    }
}

/* Makes cells of 65,536 elements with no, few or many changes. */
static void few(uint8_t *to, const uint8_t *from, size_t n, unsigned width)
{
    size_t i, k;
    memcpy(to, from, n * width);
    for (i = 0; i < n; i += 65536) {
        const size_t m = bsn_min(65536, n - i), r = test_below(12), count = r < 3 ? 0 : r < 9 ? 1 + test_below(5) : r < 11 ? 60 : m;
        for (k = 0; k < count; k++) {
            uint8_t *p = to + (i + test_below(m)) * width;
            const uint64_t step = r == 8 ? test_random() : r == 10 ? test_below(40) : 1;
            bsn_element_store(p, bsn_element_load(p, width) + (test_below(2) ? step : 0 - step), width);
        }
    }
}

/* Cells with few changes share blocks. Tests every way to encode and decode them. */
static void sparse(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    uint64_t shared = 0, alone = 0;
    unsigned k, round, t;
    for (round = 0; round < 40; round++) {
        const bitsnap_dtype dtype = dtypes[round % 4];
        const unsigned width = bitsnap_width(dtype), workers = 1 + round % 3;
        const size_t n = round % 7 ? 65536 + test_below(300000) : test_below(3000);
        size_t whole, size, next, made, at, i;
        uint8_t index[256];
        bitsnap b = with_base(base, n, dtype);
        bitsnap_encoder s;
        bitsnap_info info;
        data_fill(base, n, dtype, DATA_WEIGHTS);
        few(result, base, n, width);
        b.block_log2 = 16;
        b.level = 1 + (int)(round / 4 % 3);
        b.flags = round % 5 == 4 ? BITSNAP_VERIFY : round % 5 == 3 ? BITSNAP_SELF_CONTAINED : 0;
        whole = encode(&b, frame, result, n, dtype);
        CHECK(bitsnap_read_info(&info, frame, whole) == BITSNAP_OK && info.same + info.sparse + info.classed + info.plain == info.blocks);
        blocks(b, &info, frame, whole);
        if (whole) *(info.sparse > 1 ? &shared : &alone) += info.sparse;
        for (t = 0; bitsnap_kernels_get(t); t++) {
            b.kernels = bitsnap_kernels_get(t);
            memset(back, 0xAA, n * width);
            CHECK(bitsnap_decode(&b, back, n, dtype, frame, whole) == BITSNAP_OK && !memcmp(back, result, n * width), "%s", bitsnap_message(&b));
            CHECK(encode(&b, other, result, n, dtype) == whole && !memcmp(frame, other, whole), "%s", b.kernels->name);
        }
        b.kernels = NULL;
        for (k = 0; k < 20; k++) { /* ranges that begin or end inside runs */
            const size_t first = test_below(n + 1), m = test_below(n - first + 1);
            CHECK(bitsnap_decode_range(&b, back, first, m, dtype, frame, whole) == BITSNAP_OK && !memcmp(back, result + first * width, m * width),
                  "%s", bitsnap_message(&b));
        }
        memcpy(back, base, n * width); /* in place: from the base, from a partial result, from the result */
        for (k = 0; k < 3; k++) {
            CHECK(bitsnap_apply(&b, back, n, dtype, frame, whole) == BITSNAP_OK && !memcmp(back, result, n * width), "%s", bitsnap_message(&b));
            if (k == 0) memcpy(back, base, bsn_min(65536, n) * width);
        }
        b.run = run;
        b.run_context = (void *)(uintptr_t)&workers;
        b.workers = workers;
        b.workspace_size = test_workspace_delta(16, workers);
        b.workspace = malloc(b.workspace_size);
        CHECK(bitsnap_encoder_begin(&b, &s, other, sizeof other, &at, n, dtype) == BITSNAP_OK);
        s.index = index;
        s.index_capacity = sizeof index;
        for (i = 0; i < n; i += next) { /* in pieces */
            next = bsn_min((1 + test_below(4)) << 16, n - i);
            CHECK(bitsnap_encoder_push(&b, &s, other + at, width * next + 36 * ((next >> 16) + 1) + 640, &size, result + i * width, next) == BITSNAP_OK);
            at += size;
        }
        CHECK(bitsnap_encoder_end(&b, &s, other + at, 80 + s.index_size, &size) == BITSNAP_OK && at + size == whole && !memcmp(frame, other, whole));
        CHECK(bitsnap_decoder_begin(&b, &s, frame, whole, &at) == BITSNAP_OK);
        for (i = 0; i < n; i += size) {
            CHECK(bitsnap_decoder_pull(&b, &s, back + i * width, bsn_min((1 + test_below(3)) << 16, n - i), &size, frame + at, whole - at, &made) ==
                  BITSNAP_OK, "%s", bitsnap_message(&b));
            if (!size) break;
            at += made;
        }
        CHECK(bitsnap_decoder_end(&b, &s, frame + at, whole - at, &size) == BITSNAP_OK && !memcmp(back, result, n * width), "%s", bitsnap_message(&b));
        free(b.workspace);
        b = with_base(base, n, dtype);
        few(third, result, n, width); /* on to a third state, and back to the base */
        b.base.data = result;
        b.block_log2 = 16;
        size = encode(&b, other, third, n, dtype);
        b.base.data = base;
        CHECK(bitsnap_merge(&b, merged, sizeof merged, &made, frame, whole, other, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
        memcpy(back, base, n * width);
        CHECK(bitsnap_apply(&b, back, n, dtype, merged, made) == BITSNAP_OK && !memcmp(back, third, n * width), "%s", bitsnap_message(&b));
        CHECK(bitsnap_invert(&b, other, sizeof other, &size, merged, made) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(bitsnap_apply(&b, back, n, dtype, other, size) == BITSNAP_OK && !memcmp(back, base, n * width), "%s", bitsnap_message(&b));
    }
    CHECK(shared > 50 && alone, "%d cells", (int)shared);
}

/* Changes are read back as written, in the planned size. Damaged pieces give no position outside the cell. */
static void sparse_pieces(void)
{
    static uint64_t words[2][4096];
    static uint32_t places[2][4096];
    static uint8_t piece[65536];
    bsn_changes x, y;
    unsigned round, k, escaping = 0, full = 0;
    x.word = words[0];
    x.place = places[0];
    y.word = words[1];
    y.place = places[1];
    for (round = 0; round < 3000; round++) {
        const size_t n = 16 + test_below(round % 3 ? 65521 : 2000), most = bsn_min(n / 16, 4096);
        const unsigned bits = (unsigned)test_below(65), few = round % 7 < 3 ? 1 + (unsigned)test_below(40) : 0;
        bsn_piece t;
        size_t i, size;
        x.count = 1 + test_below(round % 2 ? most : bsn_min(most, 9));
        x.any = 0;
        for (i = 0; i < x.count; i++) { /* at any distances */
            const size_t from = i ? x.place[i - 1] + 1 : 0, room = n - (x.count - i) - from;
            x.place[i] = (uint32_t)(from + test_below(round % 5 ? bsn_min(room, 2 * n / x.count) + 1 : room + 1));
            x.word[i] = bits ? (test_random() >> (64 - bits)) - (bits == 64) : 0; /* a word is never all ones */
            if (few && test_below(few)) x.word[i] &= 3; /* so that the other words escape */
            x.any |= x.word[i];
        }
        size = bsn_piece_plan(&t, &x, n, 8);
        CHECK(bsn_piece_write(piece, &t, &x, n, 8) == size);
        escaping += t.escapes > 0;
        full += t.escapes == 0 && t.bits > 2;
        CHECK(size == bsn_piece_look(&t, piece, size, n, 8) && !bsn_piece_look(&t, piece, size - 1, n, 8));
        CHECK(bsn_piece_read(&y, piece, size, n, 8) == 0 && y.count == x.count && !memcmp(x.place, y.place, 4 * x.count) &&
              !memcmp(x.word, y.word, 8 * x.count));
        for (k = 0; k < 5; k++) {
            piece[test_below(size)] ^= (uint8_t)(1u << test_below(8));
            if (bsn_piece_look(&t, piece, size, n, 8) != size || bsn_piece_read(&y, piece, size, n, 8)) continue;
            for (i = 0; i < y.count; i++) CHECK(y.place[i] < n && (!i || y.place[i] > y.place[i - 1]));
        }
    }
    CHECK(escaping > 500 && full > 500, "%u pieces with words that escape, %u without", escaping, full);
}

/* Refuses every capacity that is too small, and writes nothing past it. */
static void capacities(void)
{
    const size_t n = 300;
    size_t whole, size, capacity;
    guarded g = guarded_alloc(4096, 0);
    bitsnap b = with_base(base, n, BITSNAP_BF16);
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(result, base, n, 2, 3);
    whole = encode(&b, frame, result, n, BITSNAP_BF16);
    for (capacity = 0; capacity <= whole; capacity++) {
        const bitsnap_status status = bitsnap_encode(&b, g.p + 4096 - capacity, capacity, &size, result, n, BITSNAP_BF16);
        CHECK(status == BITSNAP_OK ? size <= capacity : status == BITSNAP_E_CAPACITY && size == 0, "%zu of %zu", capacity, whole);
        CHECK(bitsnap_invert(&b, g.p + 4096 - capacity, capacity, &size, frame, whole) == BITSNAP_OK || size == 0);
    }
    guarded_free(g);
}

int main(void)
{
    test_program = "delta";
    room = malloc(test_workspace_delta(20, 2));
    RUN(casts);
    RUN(cast_lists);
    RUN(round_trips);
    RUN(cast_frames);
    RUN(upcasts);
    RUN(upcast_frames);
    RUN(wrong_bases);
    RUN(interrupted);
    RUN(damage);
    RUN(corruptions);
    RUN(algebra);
    RUN(algebra_needs);
    RUN(block_of_another_delta);
    RUN(algebra_of_workers);
    RUN(pieces);
    RUN(sparse);
    RUN(sparse_pieces);
    RUN(capacities);
    free(room);
    return test_failures != 0;
}
