/* SPLIT blocks with coded planes: any length, any coded bits, also as sides of PARTED. What blocks may not contain. Where the
 * encoder makes them, and that no level is larger than a lower one. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
#include "data.h"

enum { CODED_MOST = 70000, CODED_SMALL = 700, CODED_ROOM = 16 * 8 * CODED_SMALL };

/* The parts of a body. Tests change them to make invalid bodies. */
typedef struct coded_body {
    unsigned e, constants, base;
    uint8_t varying[8], coded[8], value[8], plane[8][CODED_SMALL]; /* varying: without the coded bits */
    uint8_t distance[8], mask[8][CODED_SMALL], rank[8][CODED_SMALL], symbol;
} coded_body;

/* Random values, few kinds in each group. only: the coded plane, or 8. All symbols are equal, so bodies are short. */
static void coded_fill(coded_body *x, size_t n, bitsnap_dtype dtype, unsigned only)
{
    const unsigned width = bitsnap_width(dtype);
    bsn_layout y;
    unsigned k, any = 0;
    size_t i, j;
    memset(x, 0, sizeof *x);
    x->e = dtype == BITSNAP_F64 ? 8 : 1 + test_below(8);
    x->base = 900;
    x->symbol = (uint8_t)(1 + test_below((1u << x->e) - 1));
    bsn_layout_begin(&y, dtype, x->e, x->base);
    x->constants = test_random() & 1;
    for (k = 0; k < y.planes; k++) {
        const unsigned all = bsn_rest_bits(&y, k);
        x->varying[k] = (uint8_t)(all & (x->constants ? test_random() & ~(k ? 0u : 8u) : 0xFF));
        if (k + 1 < width && (only == 8 ? test_random() % 4 : k == only)) x->coded[k] = (uint8_t)(x->varying[k] & test_random());
        x->value[k] = (uint8_t)(test_random() & all & ~(unsigned)x->varying[k]);
        x->varying[k] &= (uint8_t)~x->coded[k];
        any |= x->coded[k];
    }
    k = only == 8 ? width - 2 : only;
    if (!any) x->coded[k] = 0x40, x->varying[k] &= 0xBF, x->value[k] &= 0xBF;
    for (k = 0; k < y.planes; k++) {
        const size_t size = x->coded[k] & 0x80 ? 32 : 16;
        uint8_t values[40] = { 0 };
        for (i = 0; i < n; i++) x->plane[k][i] = (uint8_t)(x->value[k] | (test_random() & x->varying[k]));
        if (!x->coded[k]) continue;
        x->distance[k] = (uint8_t)(test_random() & 1 ? 0 : test_random() & 1 ? 1 + test_below(3) : 255);
        for (i = 0; i < n; i++) {
            uint8_t v;
            if (i % 256 == 0) for (j = 0; j < sizeof values; j++) values[j] = (uint8_t)(test_random() & x->coded[k]);
            v = values[test_below(i % 512 < 256 ? 4 : sizeof values)];
            x->plane[k][i] |= v;
            x->rank[k][i] = v;
            if (i < n / 64 * 64) x->mask[k][i / 64 * size + v / 8] |= (uint8_t)(1u << v % 8);
            else continue;
        }
        for (i = 0; i < n / 64 * 64; i++) {
            unsigned v, rank = 0;
            for (v = 0; v < x->rank[k][i]; v++) rank += x->mask[k][i / 64 * size + v / 8] >> v % 8 & 1u;
            x->rank[k][i] = (uint8_t)rank;
        }
        for (i = n / 64 * size; x->distance[k] && i-- > x->distance[k] * size;) x->mask[k][i] ^= x->mask[k][i - x->distance[k] * size];
    }
}

/* Writes the body of n elements, and the elements. Returns its size. */
static size_t coded_write(uint8_t *to, uint8_t *elements, const coded_body *x, size_t n, bitsnap_dtype dtype)
{
    const unsigned width = bitsnap_width(dtype);
    const uint8_t *plane[8];
    uint8_t top[CODED_SMALL], *at = to;
    bsn_layout y;
    unsigned k, some = 0;
    bsn_layout_begin(&y, dtype, x->e, x->base);
    for (k = 0; k < y.planes; k++) some |= bsn_rest_bits(&y, k) & ~(unsigned)(x->varying[k] | x->coded[k]);
    *at++ = (uint8_t)(x->e | (some ? 16u : 0u) | 32u);
    for (k = 0; some && k < y.planes; k++) *at++ = x->varying[k] | x->coded[k];
    for (k = 0; some && k < y.planes; k++) *at++ = x->value[k];
    if (dtype == BITSNAP_F64) *at++ = (uint8_t)x->base, *at++ = (uint8_t)(x->base >> 8);
    for (k = 0; k < y.planes; k++) *at++ = x->coded[k];
    for (k = 0; k < y.planes; k++) {
        if (x->varying[k] == 0xFF) memcpy(at, x->plane[k], n), at += n;
        else bsn_bits_take(bitsnap_kernels_get(0), at, x->plane[k], x->varying[k], n), at += bsn_bits_size(x->varying[k], n);
    }
    for (k = 0; k < y.planes; k++) {
        const size_t masks = n / 64 * (x->coded[k] & 0x80 ? 32 : 16);
        if (!x->coded[k]) continue;
        *at++ = x->distance[k];
        if (masks) *at++ = 0, memcpy(at, x->mask[k], masks), at += masks;
        *at++ = 0, memcpy(at, x->rank[k], n), at += n;
    }
    *at++ = 1, *at++ = x->symbol;
    memset(top, (int)((unsigned)x->symbol << (8 - x->e)), n);
    for (k = 0; k < 8; k++) plane[k] = x->plane[k];
    if (y.planes == width) for (size_t i = 0; i < n; i++) top[i] |= x->plane[width - 1][i];
    plane[width - 1] = top;
    bsn_join(bitsnap_kernels_get(0), &y.field, elements, plane, n);
    return (size_t)(at - to);
}

/* Writes a frame of one block. Returns its size, or 0 if the body is longer than the elements. */
static size_t coded_frame(uint8_t *frame, unsigned form, const uint8_t *body, size_t size, size_t n, bitsnap_dtype dtype)
{
    static const uint8_t zeros[8 * CODED_SMALL] = { 0 };
    bitsnap b = inside_codec(0);
    size_t header;
    if (size > n * bitsnap_width(dtype)) return 0;
    CHECK(!bitsnap_encode(&b, frame, CODED_ROOM, &header, zeros, n, dtype));
    test_store32(frame + 24, (uint32_t)(form | size << 8));
    memcpy(frame + 28, body, size);
    return 28 + size;
}

/* Decodes a frame as a whole and in part, and parses it, with exactly the workspace that it needs. */
static void coded_decodes(const uint8_t *frame, size_t size, const uint8_t *elements, size_t n, bitsnap_dtype dtype, unsigned form)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t first = test_below((uint32_t)n), some = n - first;
    guarded from = guarded_alloc(size, 0), to = guarded_alloc(n * width, 0), scratch;
    bitsnap_info info;
    bitsnap_block block;
    unsigned table, k;
    uint64_t sum = 0;
    memcpy(from.p, frame, size);
    CHECK(!bitsnap_read_info(&info, from.p, size));
    scratch = guarded_alloc(info.workspace_size, 0);
    for (table = 0; bitsnap_kernels_get(table); table++) {
        bitsnap b = inside_codec(table);
        b.workspace = scratch.p;
        b.workspace_size = info.workspace_size;
        CHECK(!bitsnap_decode(&b, to.p, n, dtype, from.p, size) && !memcmp(to.p, elements, n * width), "%s, %lu elements, form %u, %s: R%u at %lu",
              bitsnap_dtype_name(dtype), (unsigned long)n, form, bitsnap_kernels_name(b.kernels), b.error.rule, (unsigned long)b.error.offset);
        CHECK(!bitsnap_decode_range(&b, to.p, first, some, dtype, from.p, size) && !memcmp(to.p, elements + first * width, some * width));
        CHECK(!bitsnap_test(&b, from.p, size) && !bitsnap_verify(&b, elements, n, dtype, from.p, size));
        CHECK(!bitsnap_read_block(&b, &block, &info, 0, from.p + 24, size - 24) && block.form == form && block.parts == 3);
        for (k = 0; k < 3; k++) sum += block.part[k].size;
        CHECK(sum + (form == BSN_FORM_PARTED) == size - 28 && block.part[2].elements == (form == BSN_FORM_PARTED ? n - 1 : n));
        sum = 0;
        if (form == BSN_FORM_SPLIT) CHECK(block.part[1].elements % n == 0 && block.part[1].elements && block.part[1].kind == 0);
    }
    guarded_free(from);
    guarded_free(to);
    guarded_free(scratch);
}

static void coded_lengths(void)
{
    static uint8_t body[CODED_ROOM], parted[CODED_ROOM], frame[CODED_ROOM + 100], elements[8 * CODED_SMALL];
    static const bitsnap_dtype dtypes[] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static coded_body x;
    unsigned made[2] = { 0, 0 }, d, side;
    size_t n, size;
    for (n = 10; n < CODED_SMALL; n += n < 200 ? 1 : 5)
        for (d = 0; d < 4; d++)
            for (side = 0; side < 2; side++) {
                const unsigned width = bitsnap_width(dtypes[d]);
                uint8_t *at = parted;
                coded_fill(&x, n - side, dtypes[d], side ? width - 2 : 8);
                size = coded_write(body, elements + side * width, &x, n - side, dtypes[d]);
                if (side) { /* the first element is side 0 */
                    *at++ = 0, *at++ = 0;
                    memset(at, 0xFF, (n + 7) / 8);
                    at[0] = 0xFE;
                    if (n & 7) at[n / 8] &= (uint8_t)(0xFF >> (8 - (n & 7)));
                    at += (n + 7) / 8;
                    *at++ = BSN_FORM_STORED;
                    memset(elements, 0x5A, width);
                    memcpy(at, elements, width);
                    at += width;
                    *at++ = BSN_FORM_SPLIT;
                    memcpy(at, body, size);
                    size += (size_t)(at - parted);
                }
                size = coded_frame(frame, side ? BSN_FORM_PARTED : BSN_FORM_SPLIT, side ? parted : body, size, n, dtypes[d]);
                if (!size) continue;
                made[side]++;
                coded_decodes(frame, size, elements, n, dtypes[d], side ? BSN_FORM_PARTED : BSN_FORM_SPLIT);
            }
    CHECK(made[0] > 300 && made[1] > 500, "%u blocks, %u sides", made[0], made[1]);
}

static unsigned coded_rule(const coded_body *x, size_t cut, size_t n, bitsnap_dtype dtype)
{
    static uint8_t body[CODED_ROOM], frame[CODED_ROOM + 100], elements[8 * CODED_SMALL];
    const size_t size = coded_write(body, elements, x, n, dtype), whole = coded_frame(frame, BSN_FORM_SPLIT, body, cut ? cut : size, n, dtype);
    bitsnap b = inside_codec(0);
    bitsnap_status status;
    CHECK(whole != 0);
    status = bitsnap_decode(&b, elements, n, dtype, frame, whole);
    CHECK(!status == !b.error.rule);
    return b.error.rule;
}

/* Coded planes that break each rule, and unusual masks that break none. */
static void coded_refused(void)
{
    static uint8_t body[CODED_ROOM], elements[8 * CODED_SMALL];
    static coded_body x, y;
    const size_t n = 200;
    unsigned k, turn;
    for (turn = 0; turn < 200; turn++) {
        size_t i;
        do coded_fill(&x, n, BITSNAP_F32, 2); /* short, with space for a mask of 32 bytes */
        while (x.e != 8 || !(x.coded[2] & 0x7F) || x.coded[2] == 0xFF || coded_write(body, elements, &x, n, BITSNAP_F32) > 4 * n - 48);
        CHECK(!coded_rule(&x, 0, n, BITSNAP_F32));
        i = test_below(192);
        y = x, y.distance[2] = 0, memset(y.mask[2], 0xFF, sizeof y.mask[2]), memset(y.rank[2], 0, sizeof y.rank[2]); /* values that do not occur */
        CHECK(!coded_rule(&y, 0, n, BITSNAP_F32));
        y.rank[2][i] = (uint8_t)~x.coded[2]; /* the rank is a value instead */
        CHECK(coded_rule(&y, 0, n, BITSNAP_F32) == BITSNAP_R_CODED_PLANE);
        y = x, y.distance[2] = 0, memset(y.mask[2], 0, sizeof y.mask[2]);
        CHECK(coded_rule(&y, 0, n, BITSNAP_F32) == BITSNAP_R_CODED_PLANE); /* no value */
        memset(y.mask[2], 1, 96), memset(y.rank[2], 0, sizeof y.rank[2]); /* 32 values */
        y.coded[2] = 0xFF, y.varying[2] = y.value[2] = 0;
        CHECK(!coded_rule(&y, 0, n, BITSNAP_F32));
        y.rank[2][i] = 31;
        CHECK(!coded_rule(&y, 0, n, BITSNAP_F32));
        y.rank[2][i] = 32;
        CHECK(coded_rule(&y, 0, n, BITSNAP_F32) == BITSNAP_R_CODED_PLANE);
        y = x, y.rank[2][n - 1] = (uint8_t)~x.coded[2]; /* a value in the last, partial group */
        CHECK(coded_rule(&y, 0, n, BITSNAP_F32) == BITSNAP_R_CODED_PLANE);
    }
    for (k = 0; k < 3; k++) { /* no coded plane; the top plane; a plane without a distance */
        coded_fill(&x, n, k == 1 ? BITSNAP_F16 : BITSNAP_BF16, 0);
        if (k == 1) x.e = 5, x.varying[0] = x.coded[0] = x.varying[1] = x.value[1] = 0, x.coded[1] = 1;
        else x.e = 8, x.varying[0] = k ? 0x80 : 0xFF, x.value[0] = 0, x.coded[0] = k ? 0x7F : 0;
        CHECK(coded_rule(&x, k == 2 ? 2 + 3 * 8 + 1 : 0, n, k == 1 ? BITSNAP_F16 : BITSNAP_BF16) == BITSNAP_R_CODED_PLANE, "%u", k);
    }
}

/* A side may code only the plane below the top one. */
static void coded_sides(void)
{
    static uint8_t body[CODED_ROOM], frame[CODED_ROOM + 100], elements[8 * CODED_SMALL];
    static coded_body x;
    unsigned only;
    for (only = 0; only < 3; only++) {
        uint8_t *at = body;
        bitsnap b = inside_codec(0);
        size_t size;
        do coded_fill(&x, 63, BITSNAP_F32, only);
        while (coded_write(at, elements, &x, 63, BITSNAP_F32) > 240);
        memcpy(at, "\0\0\xFE\xFF\xFF\xFF\xFF\xFF\xFF\xFF\1zzzz\2", 16);
        at += 16;
        at += coded_write(at, elements, &x, 63, BITSNAP_F32);
        size = coded_frame(frame, BSN_FORM_PARTED, body, (size_t)(at - body), 64, BITSNAP_F32);
        CHECK(size && !bitsnap_decode(&b, elements, 64, BITSNAP_F32, frame, size) == (only == 2), "plane %u: R%u", only, b.error.rule);
        CHECK(b.error.rule == (only == 2 ? 0u : BITSNAP_R_CODED_PLANE));
    }
}

/* Damaged bodies in frames without checks. They are refused or decode to something, and memory is safe. */
static void coded_damage(void)
{
    static uint8_t body[CODED_ROOM], frame[CODED_ROOM + 100], elements[8 * CODED_SMALL];
    static const bitsnap_dtype dtypes[] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static coded_body x;
    unsigned turn, table;
    for (turn = 0; turn < 1500; turn++) {
        const bitsnap_dtype dtype = dtypes[turn % 4];
        const size_t n = 64 + test_below(300);
        size_t size, at;
        guarded from, to;
        coded_fill(&x, n, dtype, turn & 4 ? 8 : bitsnap_width(dtype) - 2);
        size = coded_write(body, elements, &x, n, dtype);
        size = coded_frame(frame, BSN_FORM_SPLIT, body, size, n, dtype);
        if (!size) continue;
        for (at = 28 + test_below(40); at < size; at += 1 + test_below(60)) frame[at] ^= (uint8_t)(1u << test_below(8));
        from = guarded_alloc(size, 0);
        to = guarded_alloc(n * bitsnap_width(dtype), 0);
        memcpy(from.p, frame, size);
        for (table = 0; bitsnap_kernels_get(table); table++) {
            bitsnap b = inside_codec(table);
            (void)bitsnap_decode(&b, to.p, n, dtype, from.p, size);
            CHECK(!b.error.status || b.error.status == BITSNAP_E_CORRUPT || b.error.status == BITSNAP_E_UNSUPPORTED, "%s", bitsnap_message(&b));
        }
        guarded_free(from);
        guarded_free(to);
    }
}

/* Levels times a scale for each row, group or tile; with zeros; in half of the block; and no such structure. */
enum { CODED_ROWS, CODED_GROUPS, CODED_TILES, CODED_ZEROS, CODED_HALF, CODED_DENSE, CODED_SORTS };

static void coded_levels(uint8_t *p, size_t n, bitsnap_dtype dtype, unsigned sort)
{
    const unsigned width = bitsnap_width(dtype), mantissa = dtype == BITSNAP_F16 ? 10 : dtype == BITSNAP_BF16 ? 7 : 23;
    size_t i;
    data_fill(p, n, dtype, DATA_WEIGHTS);
    for (i = 0; i < n && sort != CODED_DENSE; i++, p += width) {
        const uint64_t r = test_random(), v = data_load(p, width), low = ((uint64_t)1 << mantissa) - 1;
        const size_t scale = sort == CODED_ROWS ? i / 300 : sort == CODED_GROUPS ? i / 64 : i / 384 / 128 * 8 + i % 384 / 128;
        const uint64_t levels = sort == CODED_GROUPS ? 41 : 8, level = (1 + scale * 0x9E3779B97F4A7C15u % 97) * (8 + r % levels) * 0x9E3779B1u;
        if (sort == CODED_HALF && i < n / 2) continue;
        data_store(p, sort == CODED_ZEROS && r >> 40 & 1 ? 0 : (v & ~low) | (level >> 5 & low), width);
    }
}

static void coded_encoded(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32 };
    static const size_t counts[] = { 4096, 4173, 65536, CODED_MOST };
    static uint8_t elements[4 * CODED_MOST], frame[5 * CODED_MOST], first[5 * CODED_MOST], decoded[4 * CODED_MOST];
    unsigned sort, d, i, table;
    int level;
    for (sort = 0; sort < CODED_SORTS; sort++)
        for (d = 0; d < 3; d++)
            for (i = 0; i < 4; i++) {
                const size_t n = counts[i];
                const unsigned width = bitsnap_width(dtypes[d]);
                size_t size[4] = { 0, 0, 0, 0 }, now;
                coded_levels(elements, n, dtypes[d], sort);
                for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++)
                    for (table = 0; bitsnap_kernels_get(table); table++) {
                        bitsnap b = inside_codec(table);
                        bitsnap_info info;
                        guarded scratch;
                        b.flags = 0;
                        b.level = level;
                        b.columns = i & 1 ? 128 : 0;
                        scratch = guarded_alloc(b.workspace_size = bitsnap_workspace_size(&b, n, dtypes[d]), 0);
                        b.workspace = scratch.p;
                        CHECK(!bitsnap_encode(&b, frame, sizeof frame, &now, elements, n, dtypes[d]), "%s", bitsnap_message(&b));
                        if (!table) memcpy(first, frame, size[level] = now);
                        CHECK(now == size[level] && !memcmp(first, frame, now), "%s at level %d: %s makes other bytes", bitsnap_dtype_name(dtypes[d]), level,
                              bitsnap_kernels_name(b.kernels));
                        guarded_free(scratch);
                        CHECK(!bitsnap_read_info(&info, frame, now));
                        scratch = guarded_alloc(b.workspace_size = info.workspace_size, 0);
                        b.workspace = scratch.p;
                        CHECK(!bitsnap_decode(&b, decoded, n, dtypes[d], frame, now) && !memcmp(decoded, elements, n * width), "%s", bitsnap_message(&b));
                        CHECK(!bitsnap_test(&b, frame, now));
                        guarded_free(scratch);
                        if (level == BITSNAP_DEFAULT && (!b.columns || n < 65536) && (sort < CODED_ZEROS || sort == CODED_DENSE) && frame[24] == BSN_FORM_SPLIT)
                            CHECK(!(frame[36] & BSN_HAS_CODED) == (sort == CODED_DENSE), "sort %u of %s, %lu elements", sort, bitsnap_dtype_name(dtypes[d]), (unsigned long)n);
                    }
                if (n <= 65536) /* both levels make the same blocks */
                    CHECK(size[BITSNAP_BEST] <= size[BITSNAP_DEFAULT] + size[BITSNAP_DEFAULT] / 1000 + 16, "sort %u of %s, %lu elements: %lu bytes at best, %lu by default",
                      sort, bitsnap_dtype_name(dtypes[d]), (unsigned long)n, (unsigned long)size[BITSNAP_BEST], (unsigned long)size[BITSNAP_DEFAULT]);
            }
}

int main(void)
{
    test_program = "coded";
    RUN(coded_lengths);
    RUN(coded_refused);
    RUN(coded_sides);
    RUN(coded_damage);
    RUN(coded_encoded);
    return test_failures != 0;
}
