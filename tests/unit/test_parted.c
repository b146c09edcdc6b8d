/* PARTED blocks: any length, sides of any form, where the encoder makes them, that no level is larger than a lower one, and what
 * bitsnap_read_block reports. PATCHED blocks of deltas. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
#include "data.h"

enum { PARTED_MOST = 70000 };

/* Encodes n elements to one block and copies its form and body. Returns their size. */
static size_t side_of(uint8_t *to, const uint8_t *from, size_t n, bitsnap_dtype dtype)
{
    static uint8_t frame[16 * 8 * 600 + 100];
    bitsnap b = inside_codec(0);
    size_t size;
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, from, n, dtype), "%s", bitsnap_message(&b));
    to[0] = frame[24];
    memcpy(to + 1, frame + 28, size - 28);
    return size - 27;
}

/* Makes a frame of n elements, dealt to two kinds by granules. Returns its size, or 0 if a body would exceed the elements. */
static size_t parted_frame(uint8_t *frame, uint8_t *elements, size_t n, bitsnap_dtype dtype, unsigned granule, const int kinds[2])
{
    static uint8_t side[2][8 * 600];
    const unsigned width = bitsnap_width(dtype);
    const size_t granules = ((n - 1) >> granule) + 1, bytes = (granules + 7) / 8;
    uint8_t *at = frame + 28;
    bitsnap b = inside_codec(0);
    size_t size, count[2] = { 0, 0 }, i;
    unsigned k;
    for (k = 0; k < 2; k++) data_fill(side[k], n, dtype, kinds[k]);
    CHECK(!bitsnap_encode(&b, frame, 16 * 8 * 600, &size, side[1], n, dtype), "%s", bitsnap_message(&b)); /* its header */
    *at++ = (uint8_t)granule;
    *at++ = 0;
    memset(at, 0, bytes);
    for (i = 0; i < granules; i++) at[i / 8] |= (uint8_t)((i == 0 || (i + 1 < granules && test_random() & 1)) << (i & 7));
    for (i = 0; i < n; i++) {
        k = at[(i >> granule) / 8] >> ((i >> granule) & 7) & 1;
        memcpy(elements + i * width, side[k] + count[k]++ * width, width);
    }
    at += bytes;
    for (k = 0; k < 2; k++) at += side_of(at, side[k], count[k], dtype);
    size = (size_t)(at - frame);
    test_store32(frame + 24, (uint32_t)(BSN_FORM_PARTED | (size - 28) << 8));
    return size - 28 <= n * width ? size : 0;
}

/* Decodes every length, dtype, granule and pair of forms, as a whole and in part, and parses it. */
static void sides(void)
{
    static const int kinds[] = { DATA_CONSTANT, DATA_ZERO, DATA_NOISE, DATA_WEIGHTS, DATA_STEPS, DATA_SIGNED, DATA_TRUNCATED };
    static uint8_t frame[16 * 8 * 600 + 100], elements[8 * 600];
    unsigned made[2][16] = { { 0 } }, dtype, table, turn = 0;
    size_t n;
    for (n = 2; n < 600; n += n < 300 ? 1 : 7)
        for (dtype = 1; dtype <= 11; dtype++) {
            const unsigned width = bitsnap_width((bitsnap_dtype)dtype), granule = turn++ % 7;
            unsigned k;
            int both[2];
            guarded from, to;
            size_t size, first = test_random() % n, some = n - first;
            bitsnap_info info;
            bitsnap_block block;
            bitsnap b;
            both[turn / 2 & 1] = kinds[turn & 1];
            both[!(turn / 2 & 1)] = kinds[2 + test_random() % 5];
            if (n <= (size_t)1 << granule) continue;
            size = parted_frame(frame, elements, n, (bitsnap_dtype)dtype, granule, both);
            if (!size) continue;
            from = guarded_alloc(size, 0);
            to = guarded_alloc(n * width, 0);
            memcpy(from.p, frame, size);
            for (table = 0; bitsnap_kernels_get(table); table++) {
                b = inside_codec(table);
                CHECK(!bitsnap_read_info(&info, from.p, size));
                b.workspace_size = info.workspace_size;
                CHECK(!bitsnap_decode(&b, to.p, n, (bitsnap_dtype)dtype, from.p, size) && !memcmp(to.p, elements, n * width), "%s, %lu elements: R%u %s",
                      bitsnap_dtype_name((bitsnap_dtype)dtype), (unsigned long)n, b.error.rule, bitsnap_message(&b));
                CHECK(!bitsnap_decode_range(&b, to.p, first, some, (bitsnap_dtype)dtype, from.p, size) &&
                      !memcmp(to.p, elements + first * width, some * width), "%s, from %lu of %lu", bitsnap_dtype_name((bitsnap_dtype)dtype),
                      (unsigned long)first, (unsigned long)n);
                CHECK(!bitsnap_test(&b, from.p, size) && !bitsnap_verify(&b, elements, n, (bitsnap_dtype)dtype, from.p, size));
            }
            CHECK(!bitsnap_read_block(&b, &block, &info, 0, from.p + 24, size - 24) && block.form == BSN_FORM_PARTED && block.parts == 3, "R%u", b.error.rule);
            CHECK(block.part[1].elements + block.part[2].elements == n && block.part[0].size + block.part[1].size + block.part[2].size + 1 == size - 28);
            for (k = 0; k < 2; k++)
                CHECK(block.part[1 + k].kind == BSN_FORM_CONST ? both[k] != DATA_ZERO || !block.part[1 + k].changed : block.part[1 + k].changed > 0);
            made[0][block.part[1].kind & 15]++;
            made[1][block.part[2].kind & 15]++;
            guarded_free(from);
            guarded_free(to);
        }
    for (turn = 0; turn < 2; turn++)
        CHECK(made[turn][0] && made[turn][1] && made[turn][2] && made[turn][3] && made[turn][9], "side %u: %u %u %u %u %u", turn, made[turn][0],
              made[turn][1], made[turn][2], made[turn][3], made[turn][9]);
}

/* What encoders see: zeros anywhere, of both signs, two of four; rows of zeros and of another precision; hardly anything but
 * zeros; few zeros; all but a few of another precision; nothing of the kind; a mask of 0 and -infinity. */
enum { ANYWHERE, SIGNED_ZEROS, TWO_OF_FOUR, ZERO_ROWS, SHORT_ROWS, NEARLY_ALL, FEW_ZEROS, SHORT_BUT_FEW, DENSE, CAUSAL, SORTS };

static void fill_parted(uint8_t *p, size_t n, bitsnap_dtype dtype, unsigned sort)
{
    const unsigned width = bitsnap_width(dtype), bits = 8 * width;
    size_t i;
    data_fill(p, n, dtype, DATA_WEIGHTS);
    for (i = 0; i < n; i++, p += width) {
        const uint64_t r = test_random(), sign = data_load(p, width) >> (bits - 1) << (bits - 1);
        if (sort == ANYWHERE ? r & 1 : sort == TWO_OF_FOUR ? (i & 3) == (r & 1) * 2 || (i & 3) == 1 : sort == ZERO_ROWS ? i / 192 % 3 == 0
            : sort == NEARLY_ALL ? r % 500 != 0 : sort == FEW_ZEROS && r % 12 == 0) data_store(p, 0, width);
        else if (sort == SIGNED_ZEROS && (r & 1)) data_store(p, sign, width);
        else if ((sort == SHORT_ROWS && i / 200 % 2) || (sort == SHORT_BUT_FEW && i % 7001 != 5003)) data_store(p, data_load(p, width) >> bits / 4 << bits / 4, width);
        else if (sort == CAUSAL) data_store(p, i % 256 > i / 256 ? (dtype == BITSNAP_F32 ? 0xFF800000 : dtype == BITSNAP_BF16 ? 0xFF80 : 0xFC00) : 0, width);
    }
}

/* The sizes at each level; *forms has one bit for each form that occurs at level default. */
static void parted_sizes(size_t size[4], unsigned *forms, const uint8_t *elements, size_t n, bitsnap_dtype dtype, uint64_t columns)
{
    static uint8_t frame[8 * PARTED_MOST], first[8 * PARTED_MOST], decoded[8 * PARTED_MOST];
    const unsigned width = bitsnap_width(dtype);
    size_t now, from = test_below(n), some = 1 + test_below(n - from);
    uint64_t at, offset;
    unsigned table;
    int level;
    bitsnap_info info;
    bitsnap_block block;
    for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++)
        for (table = 0; bitsnap_kernels_get(table); table++) {
            bitsnap b = inside_codec(table);
            guarded scratch;
            b.flags = 0;
            b.level = level;
            b.columns = columns;
            scratch = guarded_alloc(b.workspace_size = bitsnap_workspace_size(&b, n, dtype), 0);
            b.workspace = scratch.p;
            CHECK(!bitsnap_encode(&b, frame, sizeof frame, &now, elements, n, dtype), "%s", bitsnap_message(&b));
            if (!table) memcpy(first, frame, size[level] = now);
            CHECK(now == size[level] && !memcmp(first, frame, now), "%s at level %d: %s makes other bytes", bitsnap_dtype_name(dtype), level,
                  bitsnap_kernels_name(b.kernels));
            guarded_free(scratch);
            CHECK(!bitsnap_read_info(&info, frame, now));
            scratch = guarded_alloc(b.workspace_size = info.workspace_size, 0);
            b.workspace = scratch.p;
            CHECK(!bitsnap_decode(&b, decoded, n, dtype, frame, now) && !memcmp(decoded, elements, n * width), "%s: %s", bitsnap_dtype_name(dtype), bitsnap_message(&b));
            CHECK(!bitsnap_decode_range(&b, decoded, from, some, dtype, frame, now) && !memcmp(decoded, elements + from * width, some * width));
            CHECK(!bitsnap_test(&b, frame, now) && !bitsnap_verify(&b, elements, n, dtype, frame, now));
            for (at = 0, offset = info.header_size; level == BITSNAP_DEFAULT && at < n; at += block.elements, offset += block.size) {
                CHECK(!bitsnap_read_block(&b, &block, &info, at, frame + offset, now - offset));
                *forms |= 1u << block.form;
            }
            guarded_free(scratch);
        }
}

static void levels_of_parted(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_F8_E4M3 };
    static const size_t counts[] = { 512, 513, 4160, 65536, PARTED_MOST };
    static uint8_t elements[4 * PARTED_MOST];
    unsigned sort, d, i;
    for (sort = 0; sort < SORTS; sort++)
        for (d = 0; d < 4; d++)
            for (i = 0; i < 5; i++) {
                const bitsnap_dtype dtype = dtypes[d];
                const size_t n = counts[i];
                const uint64_t columns = i & 1 && d < 3 ? 256 : 0;
                size_t size[4];
                unsigned forms = 0;
                if (d == 3 && (sort == SHORT_ROWS || sort == SHORT_BUT_FEW || sort == CAUSAL || sort == FEW_ZEROS)) continue;
                fill_parted(elements, n, dtype, sort);
                parted_sizes(size, &forms, elements, n, dtype, columns);
                CHECK(size[BITSNAP_BEST] <= size[BITSNAP_DEFAULT] + size[BITSNAP_DEFAULT] / 1000 + 16, "sort %u of %s, %lu elements: %lu bytes at best, %lu by default",
                      sort, bitsnap_dtype_name(dtype), (unsigned long)n, (unsigned long)size[BITSNAP_BEST], (unsigned long)size[BITSNAP_DEFAULT]);
                if (n < 65536) continue;
                if (sort != CAUSAL) CHECK(!(forms >> BSN_FORM_PARTED & 1) == (sort == DENSE), "sort %u of %s: forms %X", sort, bitsnap_dtype_name(dtype), forms);
            }
}

/* Decodes a frame of one PARTED block whose body has `size` bytes. Returns the rule that it breaks. */
static unsigned parted_rule(const uint8_t *body, size_t size, size_t n, bitsnap_dtype dtype)
{
    static const uint8_t none[64];
    uint8_t frame[600], back[64];
    bitsnap b = inside_codec(0);
    size_t header;
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &header, none, n, dtype), "%s", bitsnap_message(&b));
    test_store32(frame + 24, (uint32_t)(BSN_FORM_PARTED | size << 8));
    memcpy(frame + 28, body, size);
    b.error.rule = 0;
    return bitsnap_decode(&b, back, n, dtype, frame, 28 + size) ? b.error.rule : 0;
}

/* Complete bodies that break the rules of PARTED blocks. */
static void refused_parts(void)
{
    uint8_t body[] = { 2, 0, 0, BSN_FORM_CONST, 5, BSN_FORM_CONST, 7 };
    uint8_t bytes[] = { 2, 0, 0x15, BSN_FORM_CONST, 5, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
    const size_t n = 28; /* 7 granules */
    size_t i;
    unsigned rule;
    for (i = 0; i < 128; i++) {
        body[2] = (uint8_t)i;
        rule = parted_rule(body, sizeof body, n, BITSNAP_I8);
        CHECK(rule == (i == 0 || i == 127 ? BITSNAP_R_PARTED : 0), "mask %lu: R%u", (unsigned long)i, rule);
    }
    body[2] = 0x81;
    rule = parted_rule(body, sizeof body, n, BITSNAP_I8);
    CHECK(rule == BITSNAP_R_MASK_TAIL, "R%u", rule);
    body[0] = 7;
    rule = parted_rule(body, sizeof body, n, BITSNAP_I8);
    CHECK(rule == BITSNAP_R_PARTED, "R%u", rule);
    for (i = 0; i < 2; i++) { /* a side of bytes; as ZIGZAG, which elements of one byte do not have */
        bytes[5] = i ? BSN_FORM_ZIGZAG : BSN_FORM_BYTES;
        rule = parted_rule(bytes, sizeof bytes, n, BITSNAP_I8);
        CHECK(rule == (i ? BITSNAP_R_PARTED : 0), "form %u: R%u", bytes[5], rule);
    }
}

/* Random changes in a frame without checks. It is decoded or refused, and memory is safe. */
static void damaged_parts(void)
{
    static const int kinds[2] = { DATA_CONSTANT, DATA_WEIGHTS }, others[2] = { DATA_SIGNED, DATA_STEPS };
    static uint8_t frame[16 * 8 * 600 + 100], elements[8 * 600];
    unsigned turn, table, refused = 0;
    for (turn = 0; turn < 40; turn++) {
        const bitsnap_dtype dtype = (bitsnap_dtype)(1 + turn % 11);
        const size_t n = 100 + test_below(400), size = parted_frame(frame, elements, n, dtype, turn % 4, turn & 1 ? kinds : others);
        guarded from, to;
        size_t at;
        if (!size) continue;
        from = guarded_alloc(size, 0);
        to = guarded_alloc(n * bitsnap_width(dtype), 0);
        for (at = 28; at < size; at += at < 80 ? 1 : 1 + test_below(40)) {
            memcpy(from.p, frame, size);
            from.p[at] ^= (uint8_t)(1u << test_below(8));
            for (table = 0; bitsnap_kernels_get(table); table++) {
                bitsnap b = inside_codec(table);
                refused += bitsnap_decode(&b, to.p, n, dtype, from.p, size) != BITSNAP_OK;
            }
        }
        guarded_free(from);
        guarded_free(to);
    }
    CHECK(refused > 100, "%u", refused);
}

/* Sides of byte planes, longer than a chunk. A chunk may begin inside a group of 64. */
static void long_sides(void)
{
    static uint8_t frame[8 * 12000 + 100], elements[8 * 12000], back[8 * 12000], side[8 * 12000];
    static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64 };
    const size_t n = 12000, few = 701;
    unsigned d, table;
    for (d = 0; d < 4; d++) {
        const bitsnap_dtype dtype = dtypes[d];
        const unsigned width = bitsnap_width(dtype);
        size_t size, i, j = 0, from = test_below(n), some = 1 + test_below(n - from);
        bitsnap b = inside_codec(0);
        bitsnap_block block;
        bitsnap_info info;
        uint8_t *at = frame + 28 + 2 + (n + 7) / 8;
        for (i = 0; i < n; i++) data_store(side + i * width, i / 40 % 50 * 771, width); /* bytes that a list codes */
        b.block_log2 = 16;
        CHECK(!bitsnap_encode(&b, back, sizeof back, &size, side, n - few, dtype) && (back[24] == FORM_BYTES || back[24] == FORM_ZIGZAG));
        *at++ = back[24];
        memcpy(at, back + 28, size - 28);
        at += size - 28;
        CHECK(!bitsnap_encode(&b, frame, 500, &size, memset(elements, 7, 8 * n), n, dtype)); /* its header */
        *at++ = FORM_CONST;
        memcpy(at, elements, width);
        memset(frame + 28, 0, 2 + (n + 7) / 8);
        for (i = 0; i < n; i++) {
            const int other = i % 17 == 5 && j < few;
            frame[30 + i / 8] |= (uint8_t)(other << (i & 7));
            if (!other) memcpy(elements + i * width, side + (i - j) * width, width);
            j += other ? 1 : 0;
        }
        size = (size_t)(at + width - frame);
        test_store32(frame + 24, (uint32_t)(FORM_PARTED | (size - 28) << 8));
        for (table = 0; bitsnap_kernels_get(table) && j == few; table++) {
            b = inside_codec(table);
            CHECK(!bitsnap_read_info(&info, frame, size) && !bitsnap_decode(&b, back, n, dtype, frame, size), "%s", bitsnap_message(&b));
            CHECK(!memcmp(back, elements, n * width), "%s: other elements", bitsnap_dtype_name(dtype));
            CHECK(!bitsnap_decode_range(&b, back, from, some, dtype, frame, size) && !memcmp(back, elements + from * width, some * width));
        }
        CHECK(j == few && !bitsnap_read_block(&b, &block, &info, 0, frame + 24, size - 24) && block.part[1].elements == n - few);
    }
}

/* What deltas of pruned and partly replaced weights see: by magnitude, so that signs stay, where rows have borders of their
 * own, at random; rows. */
enum { BY_MAGNITUDE, WITH_SIGNS, BY_ROW, AT_RANDOM, NEW_ROWS, NULL_ROWS, TUNED, CHANGES };
enum { PATCHED_MOST = 140000 };
static uint8_t patched_base[4 * PATCHED_MOST], patched[4 * PATCHED_MOST], patched_back[4 * PATCHED_MOST + 64];
static uint8_t patched_frame[5 * PATCHED_MOST], patched_other[5 * PATCHED_MOST], patched_merged[5 * PATCHED_MOST];

/* A magnitude that about half of elements i .. i + 14 are below. */
static uint64_t a_border(const uint8_t *elements, size_t i, unsigned width)
{
    const uint64_t magnitudes = (((uint64_t)1 << (8 * width - 2)) - 1) * 2 + 1;
    unsigned j, k, below = 0;
    for (j = 0; j < 15; j++) {
        const uint64_t x = data_load(elements + (i + j) * width, width) & magnitudes;
        for (below = k = 0; k < 15; k++) below += (data_load(elements + (i + k) * width, width) & magnitudes) < x;
        if (below > 5 && below < 9) return x;
    }
    return data_load(elements + i * width, width) & magnitudes;
}

static void fill_patched(size_t n, bitsnap_dtype dtype, bitsnap_dtype of, unsigned sort)
{
    const unsigned width = bitsnap_width(dtype), bits = 8 * width, wide = bitsnap_width(of);
    uint64_t border = 0;
    size_t i;
    data_fill(patched_base, n, of, DATA_WEIGHTS);
    for (i = 0; i < n && dtype != of; i++) /* exact in both types */
        data_store(patched_base + i * wide, data_load(patched_base + i * wide, wide) >> 16 * (wide == 4) << 16 * (wide == 4), wide);
    for (i = 0; i < n; i++) {
        const uint64_t x = data_load(patched_base + i * wide, wide), r = test_random();
        uint64_t v = dtype == of ? x : wide == 2 ? x << 16 : x >> 16, magnitude;
        magnitude = v & ((((uint64_t)1 << (bits - 2)) - 1) * 2 + 1);
        if (i % (sort == BY_ROW ? 500 : PATCHED_MOST) == 0 && i + 15 <= n) border = a_border(patched_base, i, wide) << 16 * (width > wide) >> 16 * (width < wide);
        if (sort == TUNED) v ^= r & 3;
        else if (sort == NEW_ROWS ? i / 400 % 2 : sort == NULL_ROWS ? i / 400 % 2 : sort == AT_RANDOM ? (int)(r & 1) : magnitude < border)
            v = sort == NEW_ROWS ? v ^ (r & 0x5F) << (bits - 8) ^ (r >> 20 & 0x7F) : sort == WITH_SIGNS ? v >> (bits - 1) << (bits - 1) : 0;
        data_store(patched + i * width, v, width);
    }
}

/* Every way to read the delta, and what follows from it. Returns 1 if a block is PATCHED. */
static int ways_of_patched(size_t size, size_t n, bitsnap_dtype dtype, bitsnap_dtype of, unsigned table, int level)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t from = test_below(n), some = 1 + test_below(n - from);
    bitsnap b = inside_codec(table);
    bitsnap_block block;
    bitsnap_info info;
    uint64_t first, at, classed = 0;
    size_t made, k;
    guarded scratch;
    int found = 0;
    b.flags = 0;
    CHECK(!bitsnap_read_info(&info, patched_frame, size));
    scratch = guarded_alloc(b.workspace_size = info.workspace_size, 0);
    b.workspace = scratch.p;
    b.base.data = patched_base, b.base.count = n, b.base.dtype = of;
    CHECK(!bitsnap_decode(&b, patched_back, n, dtype, patched_frame, size) && !memcmp(patched_back, patched, n * width), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_decode_range(&b, patched_back, from, some, dtype, patched_frame, size) && !memcmp(patched_back, patched + from * width, some * width));
    CHECK(!bitsnap_test(&b, patched_frame, size) && !bitsnap_verify(&b, patched, n, dtype, patched_frame, size));
    for (k = 0; k < 2; k++, memset(&b.base, 0, sizeof b.base)) /* with the base, without */
        for (first = 0, at = info.header_size; first < n; first += block.elements, at += block.size) {
            CHECK(!bitsnap_read_block(&b, &block, &info, first, patched_frame + at, size - at), "%s", bitsnap_message(&b));
            if (block.form != FORM_PATCHED) { classed += !k && block.form == FORM_CLASSED; continue; }
            CHECK(block.parts == 2 || (k && block.parts == 1), "%u parts", block.parts);
            CHECK(block.parts < 2 || (block.part[1].elements && block.part[1].elements < block.elements && block.part[1].kind < 3));
            classed += !k;
            found = 1;
        }
    CHECK(classed == info.classed);
    guarded_free(scratch);
    if (of != dtype || !found || level != BITSNAP_DEFAULT) return found;
    b = inside_codec(table);
    memcpy(patched_back, patched_base, n * width);
    patched_back[n / 2 * width] ^= 1;
    CHECK(bitsnap_apply(&b, patched_back, n, dtype, patched_frame, size) == BITSNAP_E_BASE);
    patched_back[n / 2 * width] ^= 1;
    CHECK(!memcmp(patched_back, patched_base, n * width) && !bitsnap_apply(&b, patched_back, n, dtype, patched_frame, size) &&
          !memcmp(patched_back, patched, n * width), "%s", bitsnap_message(&b));
    /* The inverse and a merge need the base. */
    CHECK(bitsnap_invert(&b, patched_other, sizeof patched_other, &made, patched_frame, size) == BITSNAP_E_UNSUPPORTED);
    b.base.data = patched_base, b.base.count = n, b.base.dtype = of;
    CHECK(!bitsnap_invert(&b, patched_other, sizeof patched_other, &made, patched_frame, size), "%s", bitsnap_message(&b));
    b.base.data = patched;
    CHECK(!bitsnap_decode(&b, patched_back, n, dtype, patched_other, made) && !memcmp(patched_back, patched_base, n * width));
    b.base.data = patched_base;
    CHECK(!bitsnap_merge(&b, patched_merged, sizeof patched_merged, &k, patched_frame, size, patched_other, made), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_decode(&b, patched_back, n, dtype, patched_merged, k) && !memcmp(patched_back, patched_base, n * width)); /* there and back */
    return 1;
}

static void patched_changes(void)
{
    static const struct { bitsnap_dtype dtype, base; } pairs[] = { { BITSNAP_BF16, BITSNAP_BF16 }, { BITSNAP_F32, BITSNAP_F32 }, { BITSNAP_F16, BITSNAP_F16 },
        { BITSNAP_F8_E4M3, BITSNAP_F8_E4M3 }, { BITSNAP_BF16, BITSNAP_F32 }, { BITSNAP_F32, BITSNAP_BF16 } };
    static const size_t counts[] = { 512, 4160, 4999, PATCHED_MOST };
    unsigned sort, d, i, table;
    int level;
    for (sort = 0; sort < CHANGES; sort++)
        for (d = 0; d < 6; d++)
            for (i = 0; i < 4; i++) {
                const size_t n = counts[i];
                size_t size = 0, now;
                if (i == 3 && d > 1 && sort > BY_ROW) continue;
                fill_patched(n, pairs[d].dtype, pairs[d].base, sort);
                for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++)
                    for (table = 0; bitsnap_kernels_get(table); table++) {
                        bitsnap b = inside_codec(table);
                        guarded scratch;
                        int found;
                        b.flags = 0;
                        b.level = level;
                        b.base.data = patched_base, b.base.count = n, b.base.dtype = pairs[d].base;
                        scratch = guarded_alloc(b.workspace_size = bitsnap_workspace_size(&b, n, pairs[d].dtype), 0);
                        b.workspace = scratch.p;
                        CHECK(!bitsnap_encode(&b, patched_frame, sizeof patched_frame, &now, patched, n, pairs[d].dtype), "%s", bitsnap_message(&b));
                        guarded_free(scratch);
                        CHECK(!table || now == size, "level %d: %lu bytes, then %lu", level, (unsigned long)size, (unsigned long)now);
                        size = now;
                        found = ways_of_patched(now, n, pairs[d].dtype, pairs[d].base, table, level);
                        if (i < 3) continue;
                        CHECK(found == (sort != TUNED), "sort %u of %s", sort, bitsnap_dtype_name(pairs[d].dtype));
                        CHECK(sort > WITH_SIGNS || now < n / 64, "sort %u of %s: %lu bytes", sort, bitsnap_dtype_name(pairs[d].dtype), (unsigned long)now);
                        CHECK(sort != AT_RANDOM || now < n * 11 / 80, "%lu bytes", (unsigned long)now); /* 1.1 bits */
                        if (level == BITSNAP_DEFAULT && !table) { /* what can be merged without a base has no such blocks */
                            b = inside_codec(0);
                            b.flags = BITSNAP_SELF_CONTAINED;
                            b.base.data = patched_base, b.base.count = n, b.base.dtype = pairs[d].base;
                            CHECK(!bitsnap_encode(&b, patched_frame, sizeof patched_frame, &now, patched, n, pairs[d].dtype));
                            CHECK(!ways_of_patched(now, n, pairs[d].dtype, pairs[d].base, 0, level));
                        }
                    }
            }
}

/* Changes a byte of a PATCHED block. The delta is decoded or refused, and only the elements are written. */
static void damaged_changes(void)
{
    static const unsigned sorts[] = { BY_ROW, NEW_ROWS, WITH_SIGNS };
    unsigned sort, turn, refused = 0;
    for (sort = 0; sort < 3; sort++) {
        const size_t n = 3000;
        const bitsnap_dtype dtype = sort ? BITSNAP_BF16 : BITSNAP_F32;
        bitsnap b = inside_codec(0);
        bitsnap_info info;
        guarded from, to, scratch;
        size_t size;
        b.flags = 0;
        fill_patched(n, dtype, dtype, sorts[sort]);
        b.base.data = patched_base, b.base.count = n, b.base.dtype = dtype;
        CHECK(!bitsnap_encode(&b, patched_frame, sizeof patched_frame, &size, patched, n, dtype) && !bitsnap_read_info(&info, patched_frame, size));
        CHECK(patched_frame[info.header_size] == FORM_PATCHED);
        from = guarded_alloc(size, 0);
        to = guarded_alloc(n * bitsnap_width(dtype), 0);
        scratch = guarded_alloc(b.workspace_size = info.workspace_size, 0);
        b.workspace = scratch.p;
        b.flags = BITSNAP_IGNORE_CHECKS;
        for (turn = 0; turn < 900; turn++) {
            const size_t at = info.header_size + 28 + (turn < 300 ? turn % 24 : test_below(size - info.header_size - 28));
            memcpy(from.p, patched_frame, size);
            if (at < size) from.p[at] ^= (uint8_t)(1u << test_below(8));
            b.kernels = bitsnap_kernels_get(turn % 2);
            refused += bitsnap_decode(&b, to.p, n, dtype, from.p, size) != BITSNAP_OK;
        }
        guarded_free(from);
        guarded_free(to);
        guarded_free(scratch);
    }
    CHECK(refused > 300, "%u", refused);
}

/* Masks for attention: zeros, and one other value where a token is not seen. The mask of elements tells all, also in rows
 * where they change. */
static void attention_masks(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_F32, BITSNAP_BF16, BITSNAP_F16 };
    static const uint64_t never[] = { 0xFF800000, 0xFF80, 0xFC00 };
    enum { ROWS = 256 };
    static uint8_t elements[4 * ROWS * ROWS], frame[5 * ROWS * ROWS], back[4 * ROWS * ROWS];
    unsigned d, shape;
    size_t i, size;
    int level;
    for (d = 0; d < 3; d++)
        for (shape = 0; shape < 2; shape++) {
            const unsigned width = bitsnap_width(dtypes[d]);
            for (i = 0; i < ROWS * ROWS; i++) {
                const size_t row = i / ROWS, column = i % ROWS;
                data_store(elements + i * width, column > row || (shape && column + 32 < row) ? never[d] : 0, width);
            }
            for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
                bitsnap b = inside_codec(0);
                b.level = level;
                CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, ROWS * ROWS, dtypes[d]), "%s", bitsnap_message(&b));
                CHECK(size < ROWS * ROWS / 18, "%s, shape %u, level %d: %lu bytes", bitsnap_dtype_name(dtypes[d]), shape, level, (unsigned long)size);
                CHECK(!bitsnap_decode(&b, back, ROWS * ROWS, dtypes[d], frame, size) && !memcmp(back, elements, width * ROWS * ROWS));
            }
        }
}

int main(void)
{
    test_program = "parted";
    RUN(sides);
    RUN(levels_of_parted);
    RUN(attention_masks);
    RUN(refused_parts);
    RUN(damaged_parts);
    RUN(long_sides);
    RUN(patched_changes);
    RUN(damaged_changes);
    return test_failures != 0;
}
