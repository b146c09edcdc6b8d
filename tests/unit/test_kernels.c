/* Compares every kernel of every table with its scalar twin, for all lengths, alignments and kinds of data. The memory ends or
 * begins at a guard page, and has exactly the slack that struct bitsnap_kernels allows. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#if defined(__GNUC__) || defined(__clang__)
#define BSN_MORE_TARGETS "tests/unit/target.h"
#endif
#include "inside.h"

static const bitsnap_kernels *kernels; /* the table under test */
static const bitsnap_kernels *const scalar = &bsn_kernels_scalar;

/* ---- lengths ---- */

static const size_t long_lengths[] = { 301,  383,  384,  511,  512,  513,  575,  1023, 1024, 1025, 1087,
                                       2047, 2048, 4032, 4095, 4096, 4097, 4160, 65535, 65536 };
#define LENGTHS (301 + sizeof long_lengths / sizeof *long_lengths)
#define LONGEST 65536

static size_t length_at(size_t i) { return i <= 300 ? i : long_lengths[i - 301]; }

/* ---- memory ---- */

#define SLACK 64
#define AREA (8 * (size_t)LONGEST + 4096)

/* Areas that end or begin at a guard page. */
typedef struct area {
    guarded back, front;
} area;

static area areas[16];
static uint8_t *spare[16]; /* areas of that size for expected results */

/* n bytes of area i, with `slack` bytes after them before the guard page */
static uint8_t *at_end(unsigned i, size_t n, size_t slack) { return areas[i].back.p + AREA - n - slack; }

/* n bytes that begin at a guard page */
static uint8_t *at_front(unsigned i) { return areas[i].front.p; }

/* either of these: exact at the guard page, with a mark of 64 bytes on the other side */
static uint8_t *place(unsigned i, size_t n, int front) { return front ? at_front(i) : at_end(i, n, 0); }

#define MARK 0xA5

/* Marks the 64 bytes on the side of `p` without a guard page. */
static void mark(uint8_t *p, size_t n, int front) { memset(front ? p + n : p - 64, MARK, 64); }

static int marked(const uint8_t *p, size_t n, int front)
{
    unsigned i;
    if (front) p += n;
    else p -= 64;
    for (i = 0; i < 64; i++)
        if (p[i] != MARK) return 0;
    return 1;
}

/* ---- data ---- */

enum { RANDOM, ZEROS, ONES, SPARSE, DENSE, ALTERNATING, RUNS, RARE, HALVES, KINDS };

static void fill(uint8_t *p, size_t n, unsigned kind)
{
    size_t i;
    uint64_t x = 0;
    for (i = 0; i < n; i++) {
        if (i % 8 == 0) x = test_random();
        switch (kind) {
        case RANDOM: p[i] = (uint8_t)(x >> (8 * (i % 8))); break;
        case ZEROS: p[i] = 0; break;
        case ONES: p[i] = 0xFF; break;
        case SPARSE: p[i] = (uint8_t)(x >> (8 * (i % 8)) & x >> 5 & x >> 23 & x >> 41); break;
        case DENSE: p[i] = (uint8_t)(x >> (8 * (i % 8)) | x >> 5 | x >> 23 | x >> 41); break;
        case ALTERNATING: p[i] = 0x55; break;
        case RUNS: p[i] = x >> (i % 8) & 1 ? 0xFF : 0; break; /* runs of whole bytes */
        case RARE: p[i] = test_below(40) ? 0 : (uint8_t)(1u << (x >> (8 * (i % 8)) & 7)); break;
        default: p[i] = i < n / 2 ? 0xFF : 0; break;
        }
    }
}

/* Symbols of a list: a skewed alphabet around 120, all bytes, one byte, few far apart, mostly one, two; small numbers of both
 * signs, of 16, 32, 56 and more symbols that wrap around 0; mostly two. */
static void fill_symbols(uint8_t *p, size_t n, unsigned kind)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t x = test_random();
        switch (kind) {
        case 0: p[i] = (uint8_t)(124 - (x & 1 ? 0 : x & 2 ? 1 : x & 4 ? 2 : x & 8 ? 3 : x >> 8 & 15)); break;
        case 1: p[i] = (uint8_t)x; break;
        case 2: p[i] = 0xFF; break;
        case 3: p[i] = (uint8_t)((x & 3) * 85); break;
        case 4: p[i] = x & 0x7F0 ? 3 : (uint8_t)(x >> 32); break;
        case 5: p[i] = (uint8_t)(i & 1 ? 240 : 15); break;
        case 6: p[i] = (uint8_t)((x & 7) + (x >> 8 & 7) - 7); break;
        case 7: p[i] = (uint8_t)((x & 15) + (x >> 8 & 15) - 15); break;
        case 8: p[i] = (uint8_t)((x & 63) + (x >> 8 & 63) - 60); break;
        default: p[i] = (uint8_t)(x & 0x7F0 ? x & 0x800 ? 7 : 99 : x >> 32); break;
        }
    }
}
#define SYMBOL_KINDS 10

static int bit_at(const uint8_t *mask, size_t i) { return mask[i / 8] >> (i % 8) & 1; }

/* ---- hash ---- */

static void hash_case(size_t count, size_t first, size_t misplaced)
{
    uint64_t start[8], a[8], b[8];
    const size_t n = 64 * count;
    uint8_t *p = at_end(0, n, misplaced);
    test_fill(start, sizeof start);
    fill(p, n, (unsigned)(count % KINDS));
    memcpy(a, start, sizeof a);
    memcpy(b, start, sizeof b);
    scalar->hash(a, p, count, first);
    kernels->hash(b, p, count, first);
    CHECK(!memcmp(a, b, sizeof a), "%s: %zu stripes from %zu, %zu before the end", kernels->name, count, first, misplaced);
}

static void hash(void)
{
    size_t count, i;
    for (count = 0; count <= 40; count++)
        for (i = 0; i < 64; i++) hash_case(count, (count + i) % 17, i);
    for (i = 0; i < 32; i++) hash_case(200 + i, i, i & 7);
    hash_case(1023, 1, 0);
}

/* The hash is the same however the bytes are divided. */
static void hash_in_pieces(void)
{
    size_t n, i, k;
    for (n = 241; n < 6000; n += 131) {
        uint8_t *p = at_end(0, n, 0);
        bsn_hasher h;
        bsn_pieces pieces;
        const uint64_t expected = (fill(p, n, RANDOM), bsn_hash_of(scalar, p, n));
        CHECK(bsn_hash_of(kernels, p, n) == expected, "%s: %zu bytes", kernels->name, n);
        bsn_hash_begin(&h, n);
        bsn_pieces_begin(&pieces, n);
        for (i = 0; i < n; i += k) {
            k = bsn_min(1 + test_below(n % 3 ? 700 : 70), n - i);
            bsn_hash_feed(kernels, &h, p, i + k);
            bsn_pieces_add(kernels, &pieces, p + i, k);
        }
        CHECK(bsn_hash_end(kernels, &h, p) == expected, "%s: %zu bytes fed", kernels->name, n);
        CHECK(bsn_pieces_end(&pieces) == expected, "%s: %zu bytes in pieces", kernels->name, n);
    }
}

/* ---- masks ---- */

static void count_bits(void)
{
    size_t i, a;
    unsigned kind;
    for (i = 0; i < LENGTHS; i++) {
        const size_t n = length_at(i), size = (n + 7) / 8;
        for (kind = 0; kind < KINDS; kind++) {
            for (a = 0; a < (n <= 300 ? 3u : 64u); a++) {
                uint8_t *p = a == 1 ? at_front(0) : at_end(0, size, a == 0 ? 0 : a);
                fill(p, size, kind); /* bits after the last element are random and must not count */
                CHECK(kernels->count(p, n) == scalar->count(p, n), "%s: %zu bits, kind %u", kernels->name, n, kind);
            }
        }
    }
}

static void partition_case(unsigned width, size_t n, unsigned kind, int front)
{
    const size_t size = (n + 7) / 8;
    uint8_t *list = place(0, n * width, front), *mask = place(1, size, front), *zeros, *ones;
    size_t set, side;
    fill(list, n * width, RANDOM);
    fill(mask, size, kind);
    set = scalar->count(mask, n);
    zeros = place(2, (n - set) * width, front);
    ones = place(3, set * width, front);
    for (side = 0; side < 4; side++) { /* both outputs, zeros alone, ones alone, none */
        uint8_t *z = side & 2 ? NULL : zeros, *o = side & 1 ? NULL : ones;
        scalar->partition(width, list, n, mask, spare[2], spare[3]);
        memset(zeros, 0, (n - set) * width);
        memset(ones, 0, set * width);
        mark(zeros, (n - set) * width, front);
        mark(ones, set * width, front);
        kernels->partition(width, list, n, mask, z, o);
        CHECK(!z || !memcmp(zeros, spare[2], (n - set) * width), "%s: zeros, width %u, %zu, kind %u", kernels->name, width, n, kind);
        CHECK(!o || !memcmp(ones, spare[3], set * width), "%s: ones, width %u, %zu, kind %u", kernels->name, width, n, kind);
        CHECK(marked(zeros, (n - set) * width, front) && marked(ones, set * width, front),
              "%s: partition writes too far, width %u, %zu, kind %u", kernels->name, width, n, kind);
        if (n > 4096) break;
    }
}

/* Elements that differ in one bit or entirely, as `kind` says. Exactly 8 bytes of mask for each group. */
static void compare_case(unsigned width, size_t groups, unsigned kind, int front)
{
    const size_t n = 64 * groups, size = n * width;
    uint8_t *a = place(0, size, front), *b = place(1, size, front), *mask = place(2, n / 8, front), *differ = spare[1];
    size_t i;
    fill(a, size, RANDOM);
    memcpy(b, a, size);
    fill(differ, n / 8, kind);
    for (i = 0; i < n; i++) {
        if (!bit_at(differ, i)) continue;
        if (i & 1) b[i * width + test_below(width)] ^= (uint8_t)(1u << test_below(8));
        else memset(b + i * width, ~a[i * width], width);
    }
    memset(mask, 0x33, n / 8);
    mark(mask, n / 8, front);
    scalar->compare(width, spare[0], a, b, groups);
    kernels->compare(width, mask, a, b, groups);
    CHECK(!memcmp(spare[0], differ, n / 8), "scalar: compare, width %u, %zu groups, kind %u", width, groups, kind);
    CHECK(!memcmp(mask, differ, n / 8), "%s: compare, width %u, %zu groups, kind %u", kernels->name, width, groups, kind);
    CHECK(marked(mask, n / 8, front), "%s: compare writes too far, width %u, %zu groups", kernels->name, width, groups);
}

static void compare(void)
{
    size_t groups;
    unsigned width, kind;
    for (width = 1; width <= 8; width *= 2)
        for (groups = 0; groups <= 130; groups += groups < 20 ? 1 : 37)
            for (kind = 0; kind < KINDS; kind++) {
                compare_case(width, groups, kind, 0);
                compare_case(width, groups, kind, 1);
            }
    compare_case(2, 1024, SPARSE, 0);
}

static void masks(void (*one)(unsigned width, size_t n, unsigned kind, int front))
{
    size_t i;
    unsigned width, kind;
    for (width = 1; width <= 8; width *= 2) {
        for (i = 0; i < LENGTHS; i++) {
            const size_t n = length_at(i);
            for (kind = 0; kind < KINDS; kind++) {
                if (n > 4200 && kind > SPARSE) break;
                one(width, n, kind, 0);
                if (n <= 4096) one(width, n, kind, 1);
            }
        }
    }
}

static void partitions(void) { masks(partition_case); }

/* ---- planes ---- */

/* One field, and elements of `groups` groups that end `misplaced` bytes before the guard page. */
static void planes_case(const bsn_field *f, const uint8_t *elements, size_t groups, size_t misplaced)
{
    const unsigned width = f->width;
    const size_t n = 64 * groups;
    uint8_t *planes[8], *expected[8], *from = at_end(0, n * width, misplaced), *to = at_end(1, n * width, misplaced);
    const uint8_t *read[8];
    unsigned k;
    memcpy(from, elements, n * width);
    for (k = 0; k < width; k++) {
        planes[k] = at_end(2 + k, n, misplaced);
        expected[k] = spare[2 + k];
        memset(planes[k], 0x33, n);
        memset(planes[k] + n, MARK, misplaced);
        mark(planes[k], n, 0);
    }
    scalar->split(f, expected, from, groups);
    kernels->split(f, planes, from, groups);
    for (k = 0; k < width; k++) {
        size_t j;
        CHECK(!memcmp(planes[k], expected[k], n), "%s: split, width %u, e %u, wide %u, plane %u of %zu groups", kernels->name,
              width, f->symbol_bits, f->wide, k, groups);
        CHECK(marked(planes[k], n, 0), "%s: split writes too far", kernels->name);
        for (j = 0; j < misplaced; j++) CHECK(planes[k][n + j] == MARK, "%s: split writes too far", kernels->name);
    }
    /* joins any bytes, not only those that a split makes */
    if (misplaced & 1)
        for (k = 0; k < width; k++) fill(planes[k], n, RANDOM);
    for (k = 0; k < width; k++) read[k] = planes[k];
    memset(to, 0x33, n * width);
    memset(to + n * width, MARK, misplaced);
    mark(to, n * width, 0);
    scalar->join(f, spare[0], read, groups);
    kernels->join(f, to, read, groups);
    CHECK(!memcmp(to, spare[0], n * width), "%s: join, width %u, e %u, wide %u, %zu groups", kernels->name, width,
          f->symbol_bits, f->wide, groups);
    if (!(misplaced & 1) && !f->wide) CHECK(!memcmp(to, elements, n * width), "%s: there and back, width %u", kernels->name, width);
    CHECK(marked(to, n * width, 0), "%s: join writes too far", kernels->name);
    for (k = 0; k < misplaced; k++) CHECK(to[n * width + k] == MARK, "%s: join writes too far", kernels->name);
}

static void split_and_join(void)
{
    static const struct {
        unsigned dtype, least, most, wide;
    } fields[] = { { BITSNAP_I8, 0, 0, 0 },      { BITSNAP_I16, 0, 0, 0 },     { BITSNAP_I32, 0, 0, 0 },
                   { BITSNAP_I64, 0, 0, 0 },     { BITSNAP_F8_E4M3, 1, 7, 0 }, { BITSNAP_F8_E5M2, 1, 7, 0 },
                   { BITSNAP_F16, 1, 8, 0 },     { BITSNAP_BF16, 1, 8, 0 },    { BITSNAP_F32, 1, 8, 0 },
                   { BITSNAP_F64, 8, 8, 1 },     { BITSNAP_F64, 8, 8, 0 } };
    uint8_t *elements = spare[15];
    bsn_field f;
    size_t i, groups, j;
    unsigned e;
    for (i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (e = fields[i].least; e <= fields[i].most; e++) {
            bsn_field_set(&f, fields[i].dtype, e, (unsigned)test_below(1793));
            f.wide = fields[i].wide;
            for (groups = 0; groups <= 5; groups++) {
                for (j = 0; j < 64; j++) {
                    fill(elements, 64 * groups * f.width, RANDOM);
                    planes_case(&f, elements, groups, j);
                }
            }
            fill(elements, 4096 * f.width, RANDOM);
            planes_case(&f, elements, 64, 0);
            planes_case(&f, elements, 64, 1);
        }
    }
    /* all values of 8 and 16 bits */
    for (j = 0; j < 65536; j++) {
        const uint16_t h = (uint16_t)(j * 40503u);
        memcpy(elements + 2 * j, &h, 2);
        elements[131072 + j] = (uint8_t)(j * 167u);
    }
    for (i = 0; i < sizeof fields / sizeof *fields; i++) {
        for (e = fields[i].least; e <= fields[i].most; e++) {
            bsn_field_set(&f, fields[i].dtype, e, 0);
            if (f.width == 1) planes_case(&f, elements + 131072, 1024, 0);
            if (f.width == 2) planes_case(&f, elements, 1024, 0);
        }
    }
    /* F64 at the limits of its exponents: 0, the base, 255 above it */
    for (j = 0; j < 64; j++) {
        const unsigned base = j == 0 ? 0 : j == 1 ? 1792 : (unsigned)test_below(1793);
        bsn_field_set(&f, BITSNAP_F64, 8, base);
        for (i = 0; i < 128; i++) {
            const uint64_t exponent = i % 5 == 0 ? 0 : i % 5 == 1 ? base + 1 : i % 5 == 2 ? base + 255 : base + 1 + test_below(255);
            const uint64_t v = (test_random() & UINT64_C(0x800FFFFFFFFFFFFF)) | exponent << 52;
            memcpy(elements + 8 * i, &v, 8);
        }
        planes_case(&f, elements, 2, j & ~(size_t)1);
        CHECK(!memcmp(at_end(1, 1024, j & ~(size_t)1), elements, 1024), "%s: F64 there and back, base %u", kernels->name, base);
    }
}

/* Follows the definition: for each group, one word for each bit that varies, lowest bit first. */
static void bits_by_rule(uint8_t *bits, uint8_t *bytes, unsigned varying, size_t n, int put)
{
    size_t at = 0, group, i;
    unsigned b;
    for (group = 0; group < n; group += 64) {
        for (b = 0; b < 8; b++) {
            if (!(varying >> b & 1)) continue;
            if (!put) memset(bits + at, 0, 8);
            for (i = 0; i < 64; i++) {
                if (put) bytes[group + i] |= (uint8_t)((bits[at + i / 8] >> (i & 7) & 1) << b);
                else bits[at + i / 8] |= (uint8_t)((bytes[group + i] >> b & 1) << (i & 7));
            }
            at += 8;
        }
    }
}

static void bits_take_and_put(void)
{
    unsigned varying, kind;
    size_t groups, i;
    for (varying = 1; varying < 256; varying++) {
        for (groups = 0; groups <= 66; groups += groups < 8 ? 1 : 58) {
            const size_t n = 64 * groups, size = bsn_bits_size(varying, n), misplaced = test_below(64);
            for (kind = 0; kind < 3; kind++) {
                uint8_t *bytes = at_end(0, n, misplaced), *bits = at_end(1, size, misplaced);
                fill(bytes, n, kind);
                memset(bits + size, MARK, misplaced);
                mark(bits, size, 0);
                bits_by_rule(spare[1], bytes, varying, n, 0);
                kernels->bits_take(bits, bytes, varying, groups);
                CHECK(!memcmp(bits, spare[1], size), "%s: take %02x of %zu groups", kernels->name, varying, groups);
                CHECK(marked(bits, size, 0), "%s: take writes too far", kernels->name);
                for (i = 0; i < misplaced; i++) CHECK(bits[size + i] == MARK, "%s: take writes too far", kernels->name);
                fill(bits, size, RANDOM);
                for (i = 0; i < n; i++) bytes[i] = (uint8_t)(bytes[i] & ~varying);
                memcpy(spare[0], bytes, n);
                memset(bytes + n, MARK, misplaced);
                mark(bytes, n, 0);
                bits_by_rule(bits, spare[0], varying, n, 1);
                kernels->bits_put(bytes, bytes, 0, 0, bits, varying, groups);
                CHECK(!memcmp(bytes, spare[0], n), "%s: put %02x of %zu groups", kernels->name, varying, groups);
                CHECK(marked(bytes, n, 0), "%s: put writes too far", kernels->name);
                for (i = 0; i < misplaced; i++) CHECK(bytes[n + i] == MARK, "%s: put writes too far", kernels->name);
            }
        }
    }
}

/* Symbols that share a byte with other bits. Buffers are exact. */
static void top_put(void)
{
    unsigned varying, shift;
    size_t groups, i;
    for (shift = 1; shift < 8; shift++) {
        for (varying = 0; varying < 1u << shift; varying++) {
            for (groups = 0; groups <= 66; groups += groups < 8 ? 1 : 58) {
                const size_t n = 64 * groups, size = bsn_bits_size(varying, n);
                const unsigned value = (unsigned)test_random() & ~varying & ((1u << shift) - 1);
                uint8_t *bytes = at_end(0, n, 0), *bits = at_end(1, size, 0), *symbols = varying & 1 ? bytes : at_end(2, n, 0);
                fill(spare[0], n, RANDOM);
                for (i = 0; i < n; i++) spare[0][i] = (uint8_t)((spare[0][i] & (varying | 0xFFu << shift)) | value);
                scalar->bits_take(bits, spare[0], varying, groups);
                memset(bytes, MARK, n);
                for (i = 0; i < n; i++) symbols[i] = spare[0][i] >> shift;
                mark(bytes, n, 0);
                kernels->bits_put(bytes, symbols, shift, value, bits, varying, groups);
                CHECK(!memcmp(bytes, spare[0], n), "%s: top of %02x above %u, %zu groups", kernels->name, varying, shift, groups);
                CHECK(marked(bytes, n, 0), "%s: bits_put writes too far", kernels->name);
            }
        }
    }
}

/* ---- lists ---- */

static void histogram(void)
{
    uint32_t a[256], b[256];
    size_t i, j;
    unsigned kind;
    for (i = 0; i < LENGTHS; i++) {
        const size_t n = length_at(i);
        for (kind = 0; kind < SYMBOL_KINDS; kind++) {
            uint8_t *list = at_end(0, n, SLACK), *scratch = at_end(1, 8 * 256 * 4, 0);
            fill_symbols(list, n, kind);
            for (j = 0; j < 256; j++) a[j] = b[j] = (uint32_t)test_below(1000);
            for (j = 0; j < n; j++) a[list[j]]++;
            fill(scratch, 8 * 256 * 4, RANDOM);
            kernels->histogram(b, list, n, (uint32_t *)(void *)scratch);
            CHECK(!memcmp(a, b, sizeof a), "%s: %zu symbols, kind %u", kernels->name, n, kind);
        }
    }
}

/* More code windows take more ways through the kernel. `span` codes from `base` on differ, the others are equal. */
static void map_case(size_t n, unsigned kind, unsigned base, unsigned span, unsigned escape)
{
    uint8_t code[256], *list = at_end(0, n, SLACK), *escapes, *end, *expected_end;
    size_t count;
    unsigned s;
    for (s = 0; s < 256; s++) code[s] = escape < 256 ? (uint8_t)escape : 0;
    for (s = base; s < base + span; s++) code[s % 256] = (uint8_t)test_random();
    fill_symbols(list, n, kind);
    memcpy(spare[0], list, n);
    expected_end = scalar->map(spare[0], n, code, escape, spare[1]);
    count = (size_t)(expected_end - spare[1]);
    escapes = at_end(1, count, SLACK);
    end = kernels->map(list, n, code, escape, escapes);
    CHECK(!memcmp(list, spare[0], n), "%s: map of %zu, %u codes from %u, escape %u", kernels->name, n, span, base, escape);
    CHECK((size_t)(end - escapes) == count, "%s: %zu escapes, not %zu", kernels->name, (size_t)(end - escapes), count);
    CHECK(!memcmp(escapes, spare[1], count), "%s: escapes of %zu", kernels->name, n);
}

static void map(void)
{
    static const unsigned spans[] = { 0, 1, 15, 16, 17, 31, 32, 33, 48, 63, 64, 65, 100, 128, 200, 256 };
    size_t i, j;
    unsigned kind, base;
    for (i = 0; i < LENGTHS; i++) {
        const size_t n = length_at(i);
        for (kind = 0; kind < SYMBOL_KINDS; kind++) {
            const unsigned span = spans[test_below(16)], at = (unsigned)test_below(256);
            map_case(n, kind, at, span, 256);
            map_case(n, kind, 100, 32, (unsigned)test_below(256));
            map_case(n, kind, at, span, (unsigned)test_below(256));
        }
    }
    for (base = 0; base < 256; base++) {
        for (j = 0; j < 16; j++) {
            map_case(130, 1, base, spans[j], 256);
            map_case(130, 1, base, spans[j], (unsigned)(base * 31 + j) & 255);
        }
    }
}

/* ---- nodes ---- */

static const uint8_t node_kinds[18][2] = { { 1, 0 }, { 1, 1 }, { 1, 2 }, { 2, 0 }, { 2, 1 }, { 2, 2 }, { 2, 3 }, { 2, 4 }, { 3, 0 },
                                           { 3, 1 }, { 3, 2 }, { 3, 3 }, { 3, 4 }, { 4, 0 }, { 4, 1 }, { 4, 2 }, { 4, 3 }, { 4, 4 } };

/* k planes of n elements, `stride` bytes apart; 8 bytes after them may be read. clear: the bits after n are 0, as for merges.
 * Counts get random bits there. */
static uint8_t *random_planes(unsigned k, size_t n, size_t stride, int clear)
{
    uint8_t *planes = at_end(0, k * stride, 8);
    unsigned j;
    for (j = 0; j < k; j++) {
        static const uint8_t kinds[8] = { RANDOM, RANDOM, RANDOM, SPARSE, DENSE, RUNS, ZEROS, ONES };
        fill(planes + j * stride, stride, kinds[test_below(8)]);
        if (clear && n % 8) planes[j * stride + n / 8] = (uint8_t)(planes[j * stride + n / 8] & ((1u << n % 8) - 1));
        if (clear) memset(planes + j * stride + (n + 7) / 8, 0, stride - (n + 7) / 8);
    }
    fill(planes + k * stride, 8, RANDOM);
    return planes;
}

static void list_sizes(size_t counts[4], const uint8_t *planes, size_t stride, unsigned k, unsigned lists, size_t n)
{
    size_t i;
    unsigned j;
    memset(counts, 0, 4 * sizeof *counts);
    for (i = 0; i < n; i++) {
        unsigned slot = 0;
        for (j = 0; j < k; j++) slot = 2 * slot + (unsigned)bit_at(planes + j * stride, i);
        if (slot >= (1u << k) - lists) counts[slot - ((1u << k) - lists)]++;
    }
}

static void merge_node_case(unsigned k, unsigned lists, size_t n)
{
    const size_t stride = (n + 7) / 8;
    uint8_t *planes = random_planes(k, n, stride, 1), *out = at_end(1, n, SLACK), *list[4];
    bsn_node start, a, b;
    size_t counts[4], i, m;
    unsigned j, longest = 0;
    list_sizes(counts, planes, stride, k, lists, n);
    memset(&start, 0, sizeof start);
    start.planes = planes;
    start.stride = stride;
    start.count = n;
    start.bits = (uint8_t)k;
    start.lists = (uint8_t)lists;
    for (j = 0; j < (1u << k) - lists; j++) start.leaf[j] = (uint8_t)test_random();
    for (j = 0; j < 4; j++) {
        list[j] = at_end(2 + j, counts[j], SLACK);
        fill(list[j], counts[j], RANDOM);
        start.list[j] = list[j];
        if (counts[j] > counts[longest]) longest = j;
    }
    a = b = start;
    scalar->node_merge(&a, 0, n, spare[1]);
    kernels->node_merge(&b, 0, n, out);
    CHECK(!memcmp(out, spare[1], n), "%s: node %u, %u of %zu", kernels->name, k, lists, n);
    if (n % 64 == 0)
        for (j = 0; j < lists; j++) CHECK(b.list[j] == a.list[j], "%s: node %u, %u of %zu: cursor %u", kernels->name, k, lists, n, j);
    /* in pieces, each to one place */
    b = start;
    for (i = 0; i < n; i += m) {
        m = bsn_min(64 * (1 + test_below(n > 4096 ? 64 : 3)), n - i);
        out = at_end(1, m, SLACK);
        kernels->node_merge(&b, i, m, out);
        CHECK(!memcmp(out, spare[1] + i, m), "%s: node %u, %u: %zu of %zu from %zu", kernels->name, k, lists, m, n, i);
    }
    /* in place: the longest list is at the end of the output */
    if (lists) {
        b = start;
        out = at_end(1, n, SLACK);
        memcpy(out + n - counts[longest], list[longest], counts[longest]);
        b.list[longest] = out + n - counts[longest];
        kernels->node_merge(&b, 0, n, out);
        CHECK(!memcmp(out, spare[1], n), "%s: node %u, %u of %zu in place", kernels->name, k, lists, n);
    }
}

/* Three nodes of a leaf and a list; each is the list of the one before. */
static void chain_case(size_t n)
{
    size_t size = n, i, m;
    uint8_t *out, *list;
    bsn_node start[3], a[3];
    unsigned j;
    if (!(kernels->has & BSN_CHAINS)) return;
    memset(start, 0, sizeof start);
    for (j = 0; j < 3; j++) {
        static const uint8_t kinds[8] = { RANDOM, RANDOM, DENSE, SPARSE, DENSE, RUNS, ZEROS, ONES };
        const size_t bytes = (size + 7) / 8;
        uint8_t *planes = at_end(2 + j, bytes, 64);
        fill(planes, bytes, kinds[test_below(8)]);
        if (size % 8) planes[size / 8] = (uint8_t)(planes[size / 8] & ((1u << size % 8) - 1));
        fill(planes + bytes, 64, RANDOM);
        start[j].planes = planes;
        start[j].stride = bytes;
        start[j].count = size;
        start[j].bits = start[j].lists = 1;
        start[j].leaf[0] = (uint8_t)test_random();
        size = scalar->count(planes, size);
    }
    list = at_end(5, size, SLACK);
    fill(list, size, RANDOM);
    memcpy(a, start, sizeof a);
    a[2].list[0] = list;
    a[1].list[0] = spare[2];
    a[0].list[0] = spare[3];
    scalar->node_merge(&a[2], 0, a[2].count, spare[2]);
    scalar->node_merge(&a[1], 0, a[1].count, spare[3]);
    scalar->node_merge(&a[0], 0, n, spare[1]);
    start[0].list[0] = list;
    start[0].leaf[1] = start[1].leaf[0];
    start[0].leaf[2] = start[2].leaf[0];
    start[1].stride = start[2].stride = 0;
    start[0].chained = 1;
    for (j = 0; j < 3; j++) { /* at once; in place; in pieces, each to one place */
        memcpy(a, start, sizeof a);
        out = at_end(1, n, SLACK);
        if (j == 1) {
            memcpy(out + n - size, list, size);
            a[0].list[0] = out + n - size;
        }
        for (i = 0; i < n; i += m) {
            m = j < 2 ? n : bsn_min(64 * (1 + test_below(n > 4096 ? 64 : 3)), n - i);
            if (j == 2) out = at_end(1, m, SLACK);
            kernels->node_merge(a, i, m, out);
            CHECK(!memcmp(out, spare[1] + i, m), "%s: chain of %zu, %u: %zu from %zu", kernels->name, n, j, m, i);
        }
    }
}

/* Makes codes. The scalar kernel forks them in `a`: planes to spare[0], lists to spare[2] and after. b is the same node before
 * that. */
static void fork_begin(bsn_fork *a, bsn_fork *b, size_t counts[4], uint8_t *codes, uint8_t *planes, unsigned k, unsigned lists,
                       size_t n, unsigned kind)
{
    unsigned j;
    fill(codes, n, kind);
    fill(codes + n, SLACK, RANDOM);
    memset(a, 0, sizeof *a);
    a->stride = (n + 7) / 8;
    a->bits = (uint8_t)k;
    a->lists = (uint8_t)lists;
    *b = *a;
    a->planes = spare[0];
    b->planes = planes;
    for (j = 0; j < 4; j++) a->list[j] = spare[2 + j];
    scalar->node_fork(a, codes, 0, n);
    list_sizes(counts, spare[0], a->stride, k, lists, n);
}

static void fork_node_case(unsigned k, unsigned lists, size_t n, unsigned kind)
{
    const size_t stride = (n + 7) / 8;
    uint8_t *codes = at_end(1, n, SLACK), *planes = at_end(0, k * stride, 0);
    uint8_t *expected = spare[0], *list[4];
    bsn_fork a, b;
    size_t counts[4], i, m;
    unsigned j, pieces;
    fork_begin(&a, &b, counts, codes, planes, k, lists, n, kind);
    for (j = 0; j < lists; j++) CHECK((size_t)(a.list[j] - spare[2 + j]) == counts[j], "scalar: list %u of a fork", j);
    for (pieces = 0; pieces < 2; pieces++) {
        memset(planes, 0x33, k * stride);
        mark(planes, k * stride, 0);
        for (j = 0; j < 4; j++) b.list[j] = list[j] = at_end(2 + j, counts[j], SLACK);
        for (i = 0; i < n; i += m) {
            m = pieces ? bsn_min(64 * (1 + test_below(n > 4096 ? 64 : 3)), n - i) : n;
            kernels->node_fork(&b, codes + i, i, m);
        }
        CHECK(!memcmp(planes, expected, k * stride), "%s: planes of fork %u, %u of %zu", kernels->name, k, lists, n);
        CHECK(marked(planes, k * stride, 0), "%s: fork writes too far", kernels->name);
        for (j = 0; j < lists; j++) {
            CHECK((size_t)(b.list[j] - list[j]) == counts[j], "%s: fork %u, %u of %zu: size of list %u", kernels->name, k, lists, n, j);
            CHECK(!memcmp(list[j], spare[2 + j], counts[j]), "%s: fork %u, %u of %zu: list %u", kernels->name, k, lists, n, j);
        }
    }
}

/* Symbols follow their leaf: planes hold the slot, and lists the symbols. Lists of twigs hold the leaf within the twig. */
static void leaves_case(unsigned k, unsigned lists, size_t n, unsigned kind)
{
    const unsigned slots = 1u << k, known = slots + lists - (lists ? 2 : 0);
    const size_t stride = (n + 7) / 8;
    uint8_t *symbols = at_end(1, n, SLACK), *planes = at_end(0, k * stride, 0), *list[4], *expected = spare[0], slot[256], leaf[256];
    size_t count[4], room[4], i, m;
    unsigned j, pieces, twigs;
    bsn_fork a;
    if (!(kernels->has & BSN_LEAVES) || (lists > 1 && !(kernels->has & (BSN_LEAVES_LISTS | BSN_LEAVES_TWIGS)))) return;
    twigs = lists && (kernels->has & BSN_LEAVES_TWIGS) ? lists - 1 : 0;
    memset(&a, 0, sizeof a);
    a.by_leaves = 1;
    a.stride = stride;
    a.bits = (uint8_t)k;
    a.lists = (uint8_t)lists;
    a.planes = planes;
    memset(slot, (int)(slots - 1), sizeof slot);
    memset(leaf, 0, sizeof leaf);
    for (j = 0; j < known; j++) {
        do a.leaf[j] = (uint8_t)test_random();
        while (memchr(a.leaf, a.leaf[j], j));
        slot[a.leaf[j]] = (uint8_t)(j < slots - lists ? j : slots - lists + (j - (slots - lists)) / 2);
        leaf[a.leaf[j]] = (uint8_t)(j >= slots - lists && (j - (slots - lists)) % 2);
    }
    fill(symbols, n + SLACK, RANDOM);
    for (i = 0; i < n; i++)
        if (!lists || (kind && symbols[i] % (kind + 1))) symbols[i] = a.leaf[test_below(known)];
    memset(expected, 0, k * stride);
    memset(count, 0, sizeof count);
    for (j = 0; j < lists; j++) memset(spare[2 + j], 0, n + 1);
    for (i = 0; i < n; i++) {
        const unsigned at = slot[symbols[i]];
        for (j = 0; j < k; j++) expected[j * stride + i / 8] = (uint8_t)(expected[j * stride + i / 8] | (at >> (k - 1 - j) & 1) << i % 8);
        if (at + lists < slots) continue;
        j = at + lists - slots;
        if (j < twigs)
            spare[2 + j][count[j] / 8] = (uint8_t)(spare[2 + j][count[j] / 8] | leaf[symbols[i]] << count[j] % 8);
        else
            spare[2 + j][count[j]] = symbols[i];
        count[j]++;
    }
    for (j = 0; j < 4; j++) room[j] = j < twigs ? (count[j] + 7) / 8 : count[j];
    for (pieces = 0; pieces < 2; pieces++) {
        memset(planes, 0x33, k * stride);
        mark(planes, k * stride, 0);
        a.twigs = (uint8_t)twigs;
        a.used[0] = a.used[1] = 0;
        for (j = 0; j < 4; j++) a.list[j] = list[j] = at_end(2 + j, room[j], SLACK);
        for (i = 0; i < n; i += m) {
            m = pieces ? bsn_min(64 * (1 + test_below(n > 4096 ? 64 : 3)), n - i) : n;
            kernels->node_fork(&a, symbols + i, i, m);
        }
        CHECK(!memcmp(planes, expected, k * stride), "%s: leaves %u, %u of %zu: planes", kernels->name, k, lists, n);
        CHECK(marked(planes, k * stride, 0), "%s: leaves write too far", kernels->name);
        for (j = 0; j < lists; j++) {
            const size_t size = j < a.twigs ? a.used[j] : (size_t)(a.list[j] - list[j]);
            CHECK(size == count[j], "%s: leaves %u, %u of %zu: size of list %u", kernels->name, k, lists, n, j);
            CHECK(!memcmp(list[j], spare[2 + j], room[j]), "%s: leaves %u, %u of %zu: list %u", kernels->name, k, lists, n, j);
        }
    }
}

static void leaves_fork(void)
{
    static const uint8_t kinds[8][2] = { { 1, 0 }, { 1, 1 }, { 2, 1 }, { 2, 2 }, { 2, 3 }, { 3, 1 }, { 3, 2 }, { 3, 3 } };
    size_t i;
    unsigned j, kind;
    for (i = 0; i < LENGTHS; i++)
        for (j = 0; j < 8; j++)
            for (kind = 0; kind < 12; kind += 3) leaves_case(kinds[j][0], kinds[j][1], length_at(i), kind);
}

/* Planes are longer than the range. The bytes after it must not change. */
static void fork_range_case(unsigned k, unsigned lists)
{
    const size_t n = 1 + test_below(200), first = 64 * test_below(4), size = (n + 7) / 8, stride = first / 8 + size + test_below(9);
    uint8_t *codes = at_end(1, n, SLACK), *planes = at_end(0, k * stride, 0), *room = spare[1];
    bsn_fork a, b;
    unsigned j;
    fill(codes, n, RANDOM);
    memset(&a, 0, sizeof a);
    a.stride = stride;
    a.bits = (uint8_t)k;
    a.lists = (uint8_t)lists;
    a.planes = spare[0];
    for (j = 0; j < 4; j++) a.list[j] = room + 1024 * j;
    b = a;
    b.planes = planes;
    memset(spare[0], 0x33, k * stride);
    memset(planes, 0x33, k * stride);
    scalar->node_fork(&a, codes, first, n);
    kernels->node_fork(&b, codes, first, n);
    CHECK(!memcmp(planes, spare[0], k * stride), "%s: fork %u, %u of %zu from %zu, stride %zu", kernels->name, k, lists, n, first, stride);
}

static void counts_case(unsigned k, unsigned lists, size_t n)
{
    const size_t stride = (n + 7) / 8;
    uint8_t *planes = random_planes(k, n, stride, 0);
    size_t a[4], b[4];
    bsn_node node;
    memset(&node, 0, sizeof node);
    node.planes = planes;
    node.stride = stride;
    node.count = n;
    node.bits = (uint8_t)k;
    node.lists = (uint8_t)lists;
    memset(a, 0x77, sizeof a);
    memset(b, 0x77, sizeof b);
    scalar->node_counts(&node, a);
    kernels->node_counts(&node, b);
    CHECK(!memcmp(a, b, lists * sizeof *a), "%s: counts of node %u, %u, %zu elements", kernels->name, k, lists, n);
    list_sizes(b, planes, stride, k, lists, n);
    CHECK(!memcmp(a, b, lists * sizeof *a), "scalar: counts of node %u, %u, %zu elements", k, lists, n);
}

/* Compares the fused last step with its parts. `checked` selects the planes that are hashed. */
static void finish_case(const bsn_field *f, unsigned k, unsigned lists, size_t n, unsigned checked)
{
    const unsigned width = f->width, e = f->symbol_bits;
    const size_t stride = n / 8, first = 1024 * test_below(n / 1024), m = 1024 * (1 + test_below((n - first) / 1024));
    const size_t misplaced = test_below(2) ? test_below(64) : 0;
    const unsigned below = width == 4 && (kernels->has & BSN_FINISHES_BITS) && test_below(2);
    const unsigned within = e < 8 ? width - 1 : below ? width - 2 : width, inside = e < 8 ? 1u << (8 - e) : 256;
    const unsigned varying = within < width ? (unsigned)test_below(inside - below) : 0;
    const unsigned value = (unsigned)test_below(inside) & ~varying;
    uint8_t *planes = random_planes(k, n, stride, 1), *out = at_end(1, m * width, misplaced), *list[4];
    const uint8_t *read[8];
    uint64_t state[2][8][8];
    bsn_node a, b, start;
    const bsn_ahead ahead = bsn_ahead_of(out, m * width, 3);
    bsn_finish t;
    uint8_t tail[64], room[2048];
    size_t counts[4], i, part = 1024 * test_below(m / 1024);
    unsigned j;
    list_sizes(counts, planes, stride, k, lists, n);
    memset(&a, 0, sizeof a);
    a.planes = planes;
    a.stride = stride;
    a.count = n;
    a.bits = (uint8_t)k;
    a.lists = (uint8_t)lists;
    for (j = 0; j < (1u << k) - lists; j++) a.leaf[j] = (uint8_t)test_below((size_t)1 << e);
    for (j = 0; j < 4; j++) {
        a.list[j] = list[j] = at_end(2 + j, counts[j], SLACK);
        fill(list[j], counts[j], RANDOM);
        for (i = 0; i < counts[j]; i++) list[j][i] = (uint8_t)(list[j][i] >> (8 - e));
    }
    scalar->node_merge(&a, 0, first, spare[0]);
    b = start = a;
    memset(&t, 0, sizeof t);
    t.node = &b;
    t.field = f;
    t.varying = varying;
    t.value = value;
    t.ahead = &ahead;
    t.ahead_lines = 8 * test_below(m * width / 512 + 1);
    t.room = room;
    t.tail = test_below(2) ? tail : NULL;
    memset(tail, MARK, sizeof tail); /* as if earlier elements were waiting */
    memset(out + m * width, MARK, misplaced);
    for (j = 0; j < width; j++) {
        uint8_t *raw = at_end(6 + j, m, 0);
        fill(raw, m, RANDOM);
        t.plane[j] = read[j] = raw;
        if (j == width - 1) {
            t.plane[j] = NULL;
            memset(raw, 0, m);
        }
        if (j == within) { /* this plane is stored as bits */
            t.plane[j] = out;
            t.bits = at_end(10, bsn_bits_size(varying, m), 0);
            memcpy(at_end(10, bsn_bits_size(varying, m), 0), raw, bsn_bits_size(varying, m));
            memset(raw, (int)value, m);
            scalar->bits_put(raw, raw, 0, 0, t.bits, varying, m / 64);
        }
        fill((uint8_t *)state[0][j], sizeof state[0][j], RANDOM);
        memcpy(state[1][j], state[0][j], sizeof state[0][j]);
        if (j < width - 1 && j != within && (checked >> j & 1)) {
            t.state[j] = state[1][j];
            scalar->hash(state[0][j], raw, m / 64, first / 64);
        }
    }
    mark(out, m * width, 0);
    if (part && kernels->finish(&t, out, first, part)) { /* in two pieces */
        for (j = 0; j < width - 1; j++) t.plane[j] += part;
        if (t.bits) t.bits += bsn_bits_size(varying, part);
    } else {
        part = 0;
    }
    if (!kernels->finish(&t, out + part * width, first + part, m - part)) {
        CHECK(!memcmp(&start, &b, sizeof b), "%s: does not finish node %u, %u, but did something", kernels->name, k, lists);
        return;
    }
    if (t.tail) bsn_lines_end(tail, out + m * width);
    bsn_streamed();
    CHECK(marked(out, m * width, 0), "%s: finish writes too far", kernels->name);
    for (i = 0; i < misplaced; i++) CHECK(out[m * width + i] == MARK, "%s: finish writes too far", kernels->name);
    scalar->node_merge(&a, first, m, spare[1]);
    for (i = 0; i < m; i++) spare[1][i] = (uint8_t)(read[width - 1][i] | spare[1][i] << (8 - e));
    read[width - 1] = spare[1];
    scalar->join(f, spare[0], read, m / 64);
    CHECK(!memcmp(out, spare[0], m * width), "%s: finish, width %u, e %u, node %u, %u, %zu of %zu", kernels->name, width, e, k, lists, m, n);
    CHECK(!memcmp(state[0], state[1], sizeof state[0][0] * width), "%s: finish hashes, width %u, e %u", kernels->name, width, e);
    for (j = 0; j < lists; j++) CHECK(b.list[j] == a.list[j], "%s: finish, node %u, %u: cursor %u", kernels->name, k, lists, j);
}

static void finish(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_F64, BITSNAP_F8_E4M3 };
    bsn_field f;
    unsigned i, j, r;
    for (i = 0; i < 5; i++) {
        for (j = 0; j < 18; j++) {
            for (r = 0; r < 24; r++) {
                bsn_field_set(&f, dtypes[i], i == 1 ? 3 + r % 6 : bsn_symbol_bits(dtypes[i]), 0);
                finish_case(&f, node_kinds[j][0], node_kinds[j][1], 1024 * (1 + r % 5), (unsigned)test_below(8));
            }
        }
    }
}

/* Compares the fused first step with its parts. `checked` selects the planes that are hashed. */
static void start_case(const bsn_field *f, size_t n, unsigned checked, unsigned varying)
{
    const unsigned width = f->width, e = f->symbol_bits, top = width - 1;
    const int below = e == 8 && varying, differs = below && test_below(2); /* bits of the plane below the top one */
    const size_t bits_size = bsn_bits_size(varying, n);
    uint8_t *elements = at_end(0, n * width, 0), *expected[8], *plane[8], *bits = at_end(9, bits_size, 0), tail[8][64];
    uint64_t state[2][8][8];
    const size_t part = 1024 * test_below(n / 1024), misplaced = test_below(2) ? test_below(64) : 0;
    const bsn_ahead ahead = bsn_ahead_of(elements, n * width, 2);
    bsn_start t;
    size_t i;
    unsigned j;
    int done = 0;
    fill(elements, n * width, (unsigned)test_below(KINDS));
    if (test_below(2)) /* neighbouring exponents */
        for (i = top; i < n * width; i += width) elements[i] = (uint8_t)(elements[i] & 0x83);
    memset(&t, 0, sizeof t);
    t.field = f;
    t.bits = varying ? bits : NULL;
    t.varying = varying;
    for (j = 0; j < 8; j++) expected[j] = spare[j];
    scalar->split(f, expected, elements, n / 64);
    if (below) {
        t.value = (unsigned)test_below(256) & ~varying;
        for (i = 0; i < n; i++) expected[2][i] = (uint8_t)((expected[2][i] & varying) | t.value);
        if (differs) expected[2][test_below(n)] ^= (uint8_t)(~varying & (0u - ~varying));
        scalar->join(f, elements, (const uint8_t *const *)expected, n / 64);
    }
    scalar->bits_take(spare[8], expected[below ? 2 : top], varying, n / 64);
    for (i = 0; i < n; i++) expected[top][i] = (uint8_t)(expected[top][i] >> (8 - e));
    for (j = 0; j < width; j++) {
        t.plane[j] = plane[j] = at_end(1 + j, n, misplaced);
        memset(plane[j] + n, MARK, misplaced);
        mark(plane[j], n, 0);
        fill((uint8_t *)state[0][j], sizeof state[0][j], RANDOM);
        memcpy(state[1][j], state[0][j], sizeof state[0][j]);
        if (j < top && !(below && j == 2) && (checked >> j & 1)) {
            t.state[j] = state[1][j];
            scalar->hash(state[0][j], expected[j], n / 64, 0);
        }
    }
    mark(bits, bits_size, 0);
    t.ahead = &ahead;
    t.ahead_lines = test_below(2) ? n / (width == 4 ? 32 : 128) : 0;
    memset(tail, MARK, sizeof tail); /* as if earlier bytes were waiting */
    for (j = 0; j < top; j++) t.tail[j] = test_below(2) ? tail[j] : NULL;
    t.past = (int)test_below(2);
    if (below) t.tail[2] = NULL;
    if (part) { /* in two pieces */
        done = kernels->start(&t, elements, part);
        if (!done) return;
        for (j = 0; j < width; j++) t.plane[j] += part;
        if (t.bits) t.bits += bsn_bits_size(varying, part);
    }
    done |= kernels->start(&t, elements + part * width, n - part);
    if (!done) return;
    CHECK(!(done & BSN_START_DIFFERS) == !differs, "%s: start, varying %u, %zu: does %sdiffer", kernels->name, varying, n, differs ? "" : "not ");
    if (below) memcpy(plane[2], expected[2], n); /* is not written */
    for (j = 0; j < top; j++)
        if (t.tail[j]) bsn_lines_end(tail[j], plane[j] + n);
    bsn_streamed();
    for (j = 0; j < width; j++) {
        for (i = 0; i < misplaced; i++) CHECK(plane[j][n + i] == MARK, "%s: start writes too far", kernels->name);
        CHECK(!memcmp(plane[j], expected[j], n) && marked(plane[j], n, 0), "%s: start, width %u, e %u, %zu: plane %u", kernels->name, width, e, n, j);
    }
    CHECK(!memcmp(bits, spare[8], bits_size), "%s: start, width %u, e %u, varying %u: bits", kernels->name, width, e, varying);
    CHECK(marked(bits, bits_size, 0), "%s: start writes bits too far", kernels->name);
    CHECK(!memcmp(state[0], state[1], sizeof state[0][0] * width), "%s: start hashes, width %u, e %u", kernels->name, width, e);
}

static void start(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_F64, BITSNAP_F8_E4M3 };
    bsn_field f;
    unsigned i, r;
    for (i = 0; i < 5; i++) {
        for (r = 0; r < 256; r++) {
            unsigned varying;
            bsn_field_set(&f, dtypes[i], i == 1 ? 3 + r % 6 : bsn_symbol_bits(dtypes[i]), 0);
            if (f.symbol_bits < 8) varying = 1 + (unsigned)test_below((1u << (8 - f.symbol_bits)) - 1);
            else varying = dtypes[i] == BITSNAP_F32 && r % 2 ? 1 + (unsigned)test_below(254) : 0;
            start_case(&f, 1024 * (1 + r % 4), (unsigned)test_below(8), varying);
        }
    }
}

static void node_merge(void)
{
    size_t i;
    unsigned j, r;
    for (j = 0; j < 18; j++)
        for (i = 1; i < LENGTHS; i++)
            for (r = 0; r < (length_at(i) > 4096 ? 2u : 6u); r++) merge_node_case(node_kinds[j][0], node_kinds[j][1], length_at(i));
    for (i = 1; i < LENGTHS; i++)
        for (r = 0; r < 12; r++) {
            chain_case(length_at(i));
        }
}

static void node_fork(void)
{
    size_t i;
    unsigned j, kind;
    for (j = 0; j < 18; j++) {
        for (i = 1; i < LENGTHS; i++)
            for (kind = 0; kind < (length_at(i) > 4096 ? 2u : (unsigned)KINDS); kind++)
                fork_node_case(node_kinds[j][0], node_kinds[j][1], length_at(i), kind);
        for (i = 0; i < 200; i++) fork_range_case(node_kinds[j][0], node_kinds[j][1]);
    }
}

static void node_counts(void)
{
    size_t i;
    unsigned j, r;
    for (j = 0; j < 18; j++)
        for (i = 1; i < LENGTHS; i++)
            for (r = 0; r < 4; r++) counts_case(node_kinds[j][0], node_kinds[j][1], length_at(i));
}

/* ---- classes ---- */

static void mask_above(void)
{
    size_t groups, i;
    unsigned kind, t;
    for (groups = 0; groups <= 33; groups++) {
        for (kind = 0; kind < SYMBOL_KINDS + 1; kind++) {
            for (t = 0; t <= 254; t = t < 2 ? t + 2 : 2 * t + 10) {
                uint8_t *list = at_end(0, 64 * groups, groups & 7), *mask = place(1, 8 * groups, kind & 1);
                fill_symbols(list, 64 * groups, kind);
                for (i = 0; i < 64 * groups && kind == SYMBOL_KINDS; i++) list[i] = (uint8_t)(test_below(4) ? t + test_below(3) - 1 : test_random());
                mark(mask, 8 * groups, kind & 1);
                kernels->mask_above(mask, list, groups, t);
                CHECK(marked(mask, 8 * groups, kind & 1), "%s: mask_above writes too far, %zu groups", kernels->name, groups);
                for (i = 0; i < 64 * groups; i++)
                    CHECK(bit_at(mask, i) == (list[i] > t), "%s: mask_above %u of %zu groups, symbol %u", kernels->name, t, groups, list[i]);
            }
        }
    }
}

/* From 0 bits to all. */
static void places(void)
{
    size_t groups, i, count;
    unsigned density, first;
    for (groups = 0; groups <= 65; groups++) {
        for (density = 0; density <= 6; density++) {
            uint8_t *mask = at_end(0, 8 * groups, groups & 7);
            uint32_t *at = (uint32_t *)(void *)at_end(1, 4 * 64 * groups + 64, 0);
            first = density & 1 ? 64 * density : 0;
            for (i = 0; i < 64 * groups; i++) {
                const unsigned set = density && (density == 6 || test_below(64u >> 2 * (density - 1) | 1) == 0);
                mask[i / 8] = (uint8_t)((mask[i / 8] & ~(1u << i % 8)) | set << i % 8);
            }
            count = kernels->places(at, mask, first, groups);
            CHECK(count == scalar->count(mask, 64 * groups), "%s: places: %zu of %zu groups", kernels->name, count, groups);
            for (i = 0; count && i < 64 * groups; i++) {
                if (!bit_at(mask, i)) continue;
                CHECK(*at == first + i, "%s: places of %zu groups: %u is not %zu", kernels->name, groups, *at, first + i);
                at++;
            }
        }
    }
}

/* Elements, the class of each by definition (the number of borders <= its exponent), and a word for each. */
typedef struct classed {
    bsn_classes t;
    size_t n, count[8];
    uint8_t *elements, *words, *of; /* words as wide as elements */
} classed;

static classed make_classed(unsigned dtype, unsigned classes, size_t groups, unsigned kind)
{
    const bsn_exponent e = bsn_exponent_of(dtype);
    const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
    uint8_t borders[7], next = 0;
    classed x;
    unsigned k;
    size_t i;
    memset(&x, 0, sizeof x);
    x.n = 64 * groups;
    for (k = 0; k + 1 < classes; k++) { /* also borders that no element reaches */
        const unsigned room = 255u - next - (classes - 2 - k), most = e.mask < 255 && !test_below(3) ? room : (e.mask - (next < e.mask ? next : e.mask)) / (classes - k) + 1;
        next = (uint8_t)(next + 1 + test_below(most < room ? most : room));
        borders[k] = next;
    }
    bsn_classes_begin(&x.t, dtype, borders, classes);
    x.t.narrow = kind & 1 ? 0xFF : (unsigned)test_below(256);
    x.elements = at_end(0, x.n * width, test_below(2) ? 0 : test_below(64));
    x.words = spare[0];
    x.of = spare[1];
    fill(x.elements, x.n * width, kind % KINDS == ZEROS ? ZEROS : RANDOM);
    memset(x.words, 0, x.n * width);
    for (i = 0; i < x.n; i++) {
        const uint64_t v = bsn_element_load(x.elements + i * width, width);
        unsigned c = 0;
        if (kind & 2) bsn_element_store(x.elements + i * width, (v & ~((uint64_t)e.mask << e.shift)) | (uint64_t)(e.mask / 2 - test_below(e.mask / 2 < 8 ? e.mask / 2 + 1 : 8)) << e.shift, width);
        for (k = 0; k + 1 < classes; k++) c += borders[k] <= (bsn_element_load(x.elements + i * width, width) >> e.shift & e.mask);
        x.of[i] = (uint8_t)c;
        x.count[c]++;
        if (kind & 4 ? !test_below(100) : 1) bsn_element_store(x.words + i * width, x.t.narrow >> c & 1 && !(kind & 8) ? test_below(256) : test_random(), width);
    }
    return x;
}

/* Lists the words of each class in order. */
static void list_words(const classed *x, uint8_t *list[8])
{
    uint8_t *at[8];
    size_t i;
    memcpy(at, list, sizeof at);
    for (i = 0; i < x->n; i++) {
        const unsigned c = x->of[i], size = (unsigned)bsn_classes_size(&x->t, c), width = x->t.width;
        const uint64_t word = bsn_element_load(x->words + i * width, width);
        bsn_element_store(at[c], size == 1 && word > 255 ? 255 : word, size);
        at[c] += size;
    }
}

static void classes_case(unsigned dtype, unsigned classes, size_t groups, unsigned kind)
{
    classed x = make_classed(dtype, classes, groups, kind);
    const unsigned width = x.t.width;
    const int in_place = (int)test_below(2), front = (int)test_below(2);
    uint8_t *list[8], *expected = spare[2], *out = in_place ? x.elements : place(15, x.n * width, front);
    size_t above[7], i, sum = x.n;
    bsn_classes t = x.t;
    unsigned k;
    for (k = 0; k < 7; k++) above[k] = k; /* the kernel adds to these */
    kernels->classes_above(&t, above, x.elements, groups);
    for (k = 0; k + 1 < t.count; k++) {
        sum -= x.count[k];
        CHECK(above[k] == sum + k, "%s: above class %u of %u, dtype %u, %zu groups", kernels->name, k, classes, dtype, groups);
    }
    for (k = 0; k < 8; k++) {
        const size_t size = x.count[k] * bsn_classes_size(&x.t, k);
        list[k] = at_end(2 + k, size, SLACK);
        t.list[k] = list[k];
    }
    kernels->classes_deal(&t, x.words, x.elements, groups);
    for (k = 0; k < 8; k++) {
        const size_t size = x.count[k] * bsn_classes_size(&x.t, k);
        memcpy(spare[3 + k], list[k], size);
        CHECK(k >= t.count || t.list[k] == list[k] + size, "%s: dealt to class %u of %u, dtype %u, %zu groups", kernels->name, k, classes, dtype, groups);
    }
    list_words(&x, list);
    for (k = 0; k < t.count; k++)
        CHECK(!memcmp(spare[3 + k], list[k], x.count[k] * bsn_classes_size(&x.t, k)), "%s: words of class %u of %u, dtype %u, %zu groups",
              kernels->name, k, classes, dtype, groups);
    if (kind & 8) return; /* narrow classes cannot restore words above 255 */
    for (i = 0; i < x.n; i++) {
        const uint64_t z = bsn_element_load(x.words + i * width, width), d = z & 1 ? ~(z >> 1) : z >> 1;
        bsn_element_store(expected + i * width, bsn_element_load(x.elements + i * width, width) + d, width);
    }
    for (k = 0; k < 8; k++) t.next[k] = list[k];
    if (!in_place) mark(out, x.n * width, front);
    kernels->classes_add(&t, out, x.elements, groups);
    CHECK(in_place || marked(out, x.n * width, front), "%s: classes_add writes too far", kernels->name);
    CHECK(!memcmp(out, expected, x.n * width), "%s: add %u classes, narrow %02x, dtype %u, %zu groups, kind %u", kernels->name, classes,
          x.t.narrow, dtype, groups, kind);
    for (k = 0; k < t.count; k++)
        CHECK(t.next[k] == list[k] + x.count[k] * bsn_classes_size(&x.t, k), "%s: cursor of class %u", kernels->name, k);
}

static void classes(void)
{
    unsigned dtype, k, kind;
    size_t groups;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (k = 1; k <= (bsn_exponent_of(dtype).mask ? 8u : 1u); k++)
            for (groups = 0; groups <= 9; groups++)
                for (kind = 0; kind < 16; kind++) classes_case(dtype, k, groups == 9 ? 64 : groups, kind);
}

/* ---- words ---- */

static void subtract_case(unsigned width, size_t groups, unsigned kind, int front)
{
    const size_t n = 64 * groups;
    uint8_t *a = at_end(0, n * width, test_below(2) ? 0 : test_below(64)), *b = place(1, n * width, (int)test_below(2));
    uint8_t *words = place(2, n * width, front);
    const uint64_t all = ~UINT64_C(0) >> (64 - 8 * width);
    uint64_t bits = 0, any;
    size_t i;
    fill(b, n * width, kind % KINDS);
    test_fill(a, n * width);
    for (i = 0; i < n; i++) {
        const uint64_t y = bsn_element_load(b + i * width, width);
        uint64_t d;
        if (kind & 8 && test_below(100)) bsn_element_store(a + i * width, y + (kind & 16 ? test_below(3) - 1 : 0), width);
        d = (bsn_element_load(a + i * width, width) - y) & all;
        d = (d << 1 ^ (d >> (8 * width - 1) ? all : 0)) & all;
        bsn_element_store(spare[0] + i * width, d, width);
        bits |= d;
    }
    mark(words, n * width, front);
    any = kernels->subtract(width, words, a, b, groups);
    CHECK(any == bits, "%s: bits of words, width %u, %zu groups, kind %u", kernels->name, width, groups, kind);
    CHECK(!memcmp(words, spare[0], n * width), "%s: subtract, width %u, %zu groups, kind %u", kernels->name, width, groups, kind);
    CHECK(marked(words, n * width, front), "%s: subtract writes too far, width %u, %zu groups", kernels->name, width, groups);
}

/* Words: of all sizes, small, or mostly 0. Exponents: all, or neighbouring ones. */
static void census_case(unsigned dtype, size_t groups, unsigned kind, int front)
{
    static bsn_census got, expected;
    const bsn_exponent e = bsn_exponent_of(dtype);
    const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
    const size_t n = 64 * groups;
    uint8_t *elements = at_end(0, n * width, test_below(2) ? 0 : test_below(64)), *words = place(1, n * width, (int)test_below(2));
    uint8_t *symbols = place(2, n, front);
    size_t i;
    bsn_census_begin(&got, dtype);
    for (i = 0; i < 256; i++) got.token[i][i % BSN_TOKENS] = (uint32_t)i; /* the kernel adds to these */
    expected = got;
    test_fill(elements, n * width);
    for (i = 0; i < n; i++) {
        const uint64_t x = test_random(), v = bsn_element_load(elements + i * width, width), all = ~UINT64_C(0) >> (64 - 8 * width);
        uint64_t word = kind & 1 ? x >> (x & 63) : (x & 31) >> (x >> 8 & 3);
        if (kind & 2 && x >> 16 & 127) word = 0;
        if (!(x >> 32 & 63)) word = all >> (x & 7);
        word &= all;
        bsn_element_store(words + i * width, word, width);
        if (kind & 4) bsn_element_store(elements + i * width, (v & ~((uint64_t)e.mask << e.shift)) | (uint64_t)(e.mask / 2 - (x >> 40 & 3) % (e.mask / 2 + 1)) << e.shift, width);
        spare[0][i] = (uint8_t)(bsn_element_load(elements + i * width, width) >> e.shift & e.mask);
        if (word) expected.token[spare[0][i]][bsn_token(word)]++;
    }
    mark(symbols, n, front);
    kernels->census(&got, symbols, words, elements, groups);
    for (i = 0; i < 256; i++) got.token[i][0] = expected.token[i][0]; /* a kernel may count words that are 0 */
    CHECK(!memcmp(symbols, spare[0], n), "%s: symbols, dtype %u, %zu groups, kind %u", kernels->name, dtype, groups, kind);
    CHECK(marked(symbols, n, front), "%s: census writes too far, dtype %u, %zu groups", kernels->name, dtype, groups);
    CHECK(!memcmp(got.token, expected.token, sizeof got.token), "%s: tokens, dtype %u, %zu groups, kind %u", kernels->name, dtype, groups, kind);
}

static void words(void)
{
    unsigned width, dtype, kind;
    size_t groups;
    for (groups = 0; groups <= 9; groups++)
        for (kind = 0; kind < 32; kind++)
            for (width = 1; width <= 8; width *= 2) subtract_case(width, groups == 9 ? 64 : groups, kind, (int)kind & 1);
    for (groups = 0; groups <= 9; groups++)
        for (kind = 0; kind < 16; kind++)
            for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
                if (bsn_exponent_of(dtype).mask) census_case(dtype, groups == 9 ? 64 : groups, kind & 7, (int)kind >> 3);
}

/* ---- cells ---- */

static const unsigned cell_counts[] = { 1, 2, 3, 8, 31, 32, 33, 35, 64, 65, 70, 96, 97, 127, 128, 129, 500, 2047, 2048 };

/* All patterns, usual, subnormal and tiny numbers, infinities and NaNs, borders of cells, powers of two and zeros. */
static uint32_t float_of(const bsn_log *x, unsigned kind)
{
    const uint32_t v = (uint32_t)test_random(), sign = v & 0x80000000, cell = (uint32_t)test_below(x->bins + 1);
    switch (kind) {
    case 0: return v;
    case 1: return (v & 0x83FFFFFF) | 0x3C000000;
    case 2: return v & (v & 1 ? 0x80FFFFFF : 0x8000FFFF);
    case 3: return v & 3 ? v : (v & 0x807FFFFF) | 0x7F800000;
    case 4: return sign | (((1 + (uint32_t)test_below(253)) << 23) + (x->threshold[cell] - 0x800000) + (v & 2) - 1);
    default: return sign | (v & 2 ? (v & 0x7F800000) : 0);
    }
}

static int same_errors(const bsn_errors *a, const bsn_errors *b, const bsn_octaves *o)
{
    uint8_t x[BSN_CERTIFICATE_SIZE], y[BSN_CERTIFICATE_SIZE];
    const bsn_certificate ca = bsn_errors_certify(a, o, 0), cb = bsn_errors_certify(b, o, 0);
    bsn_certificate_store(x, &ca);
    bsn_certificate_store(y, &cb);
    return !memcmp(x, y, sizeof x);
}

static bsn_log cells_log;
static bsn_errors errors[3];

static void cells_case(unsigned cells, size_t n, unsigned kind)
{
    bsn_log *x = &cells_log;
    uint8_t *elements = at_end(0, 4 * n, 0), *codes = at_end(1, 4 * n, 0), *words = at_end(2, 4 * n, 0), *columns = at_end(3, n, 0);
    uint8_t *decoded = at_end(4, 4 * n, 0), *room = spare[4], *place_of_distances = at_end(5, 4 * n, 0);
    uint32_t *expected = (uint32_t *)(void *)spare[0], *expected_words = (uint32_t *)(void *)spare[1];
    uint32_t *a = (uint32_t *)(void *)codes, *w = (uint32_t *)(void *)words;
    size_t i, j, exact, apart = 0, expected_apart = 0;
    int good, expected_good;
    bsn_row row;
    for (i = 0; i < n; i++) {
        const uint32_t v = float_of(x, kind < 6 ? kind : (unsigned)test_below(6));
        memcpy(elements + 4 * i, &v, 4);
    }
    bsn_log_codes(x, expected, elements, n);
    bsn_log_codes_by(kernels, x, a, elements, n);
    CHECK(!memcmp(expected, a, 4 * n), "%s: codes of %zu, %u cells, kind %u", kernels->name, n, cells, kind);
    fill(columns, n, kind % KINDS);
    row.log = x;
    row.columns = kind & 1 ? columns : NULL;
    row.row = kind & 1 ? (uint32_t)test_below(256) : 0;
    row.base = kind == 0 ? (uint32_t)test_below(cells * 277) : kind == 1 ? 100 * cells : 0 - (uint32_t)test_below(70 * cells);
    row.signs = kind != 3 || test_below(2);
    exact = bsn_log_words(&row, expected_words, expected, n);
    memset(errors, 0, sizeof errors);
    for (j = 0; j < 3; j++) { /* adds three portions, as a block is measured */
        bsn_log_errors(&errors[0], x, elements, expected, n, room);
        CHECK(kernels->log_words(&row, &errors[1], w, elements, n, place_of_distances) == exact && !memcmp(w, expected_words, 4 * n),
              "%s: words of %zu, %u cells, kind %u", kernels->name, n, cells, kind);
    }
    (void)bsn_log_elements(x, room, expected, n);
    for (i = 0; i < n; i++)
        if (expected[i] >> 1 == BSN_CODE_EXACT) memcpy(room + 4 * i, elements + 4 * i, 4);
    for (j = 0; j < 3; j++) bsn_errors_measure(&errors[2], &x->type, elements, room, expected, 1, n);
    CHECK(same_errors(&errors[0], &errors[2], &x->type), "scalar: errors of %zu, %u cells, kind %u", n, cells, kind);
    CHECK(same_errors(&errors[1], &errors[2], &x->type), "%s: errors of %zu, %u cells, kind %u", kernels->name, n, cells, kind);
    CHECK(kernels->log_numbers(&row, decoded, words, n, &apart) && apart == exact, "%s: numbers of %zu, %u cells, kind %u", kernels->name, n, cells, kind);
    for (i = 0; i < n; i++) /* exact elements have no number, and the sign of their code is dropped */
        if (expected[i] >> 1 == BSN_CODE_EXACT) memcpy(decoded + 4 * i, elements + 4 * i, 4);
    if (row.signs) CHECK(!memcmp(decoded, room, 4 * n), "%s: numbers of %zu, %u cells, kind %u", kernels->name, n, cells, kind);
    /* hostile words and bases: near the first and the last number, and anywhere */
    row.base = (uint32_t)(test_below(4) ? test_random() : test_below(2) ? 0x7FFFFFFF : 0x80000000);
    if (test_below(2)) row.base = (uint32_t)test_below(1 << 22) - (1 << 21);
    for (i = 0; i < n; i++) {
        const uint32_t last = 277 * cells, at = (uint32_t)test_below(4) * (last / 3) + (uint32_t)test_below(50), odd = (uint32_t)test_random();
        w[i] = test_below(n < 20 ? 8 : 4 * (unsigned)n) ? (BSN_CODE_FIRST + at - row.base) << row.signs : kind & 1 ? odd : odd & 7;
    }
    apart = 0;
    good = kernels->log_numbers(&row, decoded, words, n, &apart);
    expected_good = bsn_scalar_log_numbers(&row, room, words, n, &expected_apart);
    CHECK(good == expected_good, "%s: hostile words, %zu of %u cells are %d", kernels->name, n, cells, good);
    if (good && expected_good) CHECK(apart == expected_apart && !memcmp(decoded, room, 4 * n), "%s: hostile words, numbers of %zu, %u cells", kernels->name, n, cells);
}

static void cells(void)
{
    static const size_t lengths[] = { 1, 2, 7, 8, 9, 15, 16, 17, 31, 33, 63, 64, 65, 255, 256, 1000, 4096 };
    unsigned c, kind;
    size_t i;
    for (c = 1; c < sizeof cell_counts / sizeof *cell_counts; c++) {
        bsn_log_set(&cells_log, BITSNAP_F32, cell_counts[c]);
        for (i = 0; i < sizeof lengths / sizeof *lengths; i++)
            for (kind = 0; kind < (lengths[i] > 1000 ? 7u : 21u); kind++) cells_case(cell_counts[c], lengths[i], kind % 7);
    }
}

/* Joins symbols and low bits to elements. The words ascend from `from`, or are random. */
static void join_case(size_t n, unsigned shift, unsigned signs, uint32_t base, unsigned kind, uint32_t from)
{
    const bsn_log *x = &cells_log;
    uint8_t *elements = at_end(0, 4 * n, 0), *mask = at_end(1, bsn_mask_bytes(n), 0), *symbols = at_end(2, n, 0);
    uint8_t *low = at_end(3, n, 0), *columns = at_end(4, n, 0);
    uint64_t any = 0, told;
    size_t i, wrong = 0, unlike = 0;
    bsn_row row;
    fill(columns, n, kind % KINDS);
    row.log = x;
    row.signs = signs;
    row.base = base;
    row.columns = kind & 1 ? columns : NULL;
    row.row = kind & 1 ? (uint32_t)test_below(256) : 0;
    if (!bsn_log_joins(kernels, &row, row.columns != NULL)) return;
    for (i = 0; i < n; i++) {
        const uint32_t any_word = (uint32_t)test_random() & (test_below(20) ? 32767 : 3);
        const uint32_t word = from < 32768 ? from + (uint32_t)i : any_word;
        symbols[i] = (uint8_t)(word >> shift);
        low[i] = (uint8_t)(word & ((1u << shift) - 1));
    }
    told = kernels->log_join(&row, elements, mask, symbols, low, n, shift);
    for (i = 0; i < n; i++) {
        const uint32_t word = ((uint32_t)symbols[i] << shift) + low[i], u = word >> signs;
        const uint32_t cell = u - BSN_CODE_FIRST + base + (row.columns ? bsn_expected(row.row + columns[i], x->bins) : 0);
        const bsn_row one = { x, row.columns ? columns + i : NULL, row.row, base, signs };
        const int odd = u == BSN_CODE_EXACT || (u && (cell - 23 * x->bins >= 254 * x->bins || u >= bsn_row_limit(&one)));
        uint32_t number = 0;
        size_t apart = 0;
        any |= (uint64_t)odd;
        wrong += (mask[i / 8] >> (i & 7) & 1) != odd && told;
        if (odd) continue;
        if (!bsn_scalar_log_numbers(&one, (uint8_t *)&number, (const uint8_t *)&word, 1, &apart)) unlike++;
        unlike += memcmp(&number, elements + 4 * i, 4) != 0;
    }
    CHECK(!wrong && (told != 0) == (any != 0), "%s: %zu of %zu left out or not, %u cells, shift %u, base %u", kernels->name, wrong,
          n, x->bins, shift, base);
    CHECK(!unlike, "%s: %zu of %zu joined otherwise, %u cells, shift %u, base %u", kernels->name, unlike, n, x->bins, shift, base);
}

/* All words, for positions with every kind of number; and random words. */
static void log_join(void)
{
    static const size_t lengths[] = { 1, 2, 7, 8, 9, 31, 32, 33, 63, 64, 65, 100, 255, 256, 1000, 4096 };
    unsigned cells, k;
    if (!kernels->log_join) return;
    for (cells = 1; cells <= BSN_JOIN_BINS + 1; cells++) {
        bsn_log_set(&cells_log, BITSNAP_F32, cells);
        for (k = 0; k < 8; k++) join_case(4096, 7, 0, 22 * cells - 100, 0, 4096 * k);
        for (k = 0; k < 8; k++) join_case(4096, 7, 0, 22 * cells - 100, 1, 4096 * k);
        for (k = 0; k < 64; k++) {
            const uint32_t first = (uint32_t)test_below(40000), last = 32768 + 23 * cells - first / 5 + (uint32_t)test_below(8);
            const uint32_t base = k & 16 ? first : k & 32 ? last : 0 - first;
            join_case(lengths[k % 16], (unsigned)test_below(8), (unsigned)test_below(2), base, (unsigned)test_below(16), 32768);
        }
    }
}

/* Splits words into symbols, planes and bits at the end of a page, and joins them. Planes or bits may be absent. */
static void words_case(unsigned width, size_t groups, unsigned shift, unsigned limit, unsigned parts)
{
    const size_t n = 64 * groups, whole = shift / 8 * n;
    uint8_t *words = at_end(0, n * width, groups & 1), *symbols = at_end(1, n, 0);
    uint8_t *bits = place(2, n, 1), *planes = at_end(3, whole, 0);
    uint8_t *expected = spare[0], *expected_bits = spare[1], *expected_planes = spare[2];
    const bsn_slices t = { width, shift, limit, n };
    uint64_t all;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t x = test_random() >> (64 - 8 * width) >> test_below(8 * width);
        bsn_element_store(words + i * width, x, width);
    }
    mark(bits, n, 1);
    memset(planes, 0x55, whole);
    memset(expected_planes, 0x55, whole);
    all = bsn_scalar_words_split(&t, expected, parts & 1 ? expected_bits : NULL, parts & 2 ? expected_planes : NULL, words, n);
    CHECK(kernels->words_split(&t, symbols, parts & 1 ? bits : NULL, parts & 2 ? planes : NULL, words, n) == all &&
          !memcmp(symbols, expected, n) && !memcmp(planes, expected_planes, whole),
          "%s: %zu groups of %u bytes split at %u, %u", kernels->name, groups, width, shift, limit);
    CHECK(marked(bits, n, 1), "%s: words_split writes too far, %zu groups", kernels->name, groups);
    if ((parts & 1) && shift % 8) CHECK(!memcmp(bits, expected_bits, n), "%s: words_split: bits, %u", kernels->name, shift);
    if (parts != 3 || limit != 255 || all >> shift > 255) {
        for (i = 0; i < n; i++) symbols[i] = (uint8_t)test_random();
        for (i = 0; i < n; i++) bits[i] = (uint8_t)(test_random() & ((1u << shift % 8) - 1));
        bsn_scalar_words_join(&t, expected, symbols, bits, planes, n);
    } else {
        memcpy(expected, words, n * width); /* must be restored */
    }
    memset(words, 0, n * width);
    kernels->words_join(&t, words, symbols, bits, planes, n);
    CHECK(!memcmp(words, expected, n * width), "%s: %zu groups of %u bytes joined at %u", kernels->name, groups, width, shift);
}

/* Words of one byte have no kernel, but two code paths. */
static void bytes_split(void)
{
    static const uint8_t limits[] = { 255, 127, 15, 1 };
    uint8_t *words = spare[0], *symbols = spare[1], *bits = spare[2];
    unsigned shift, l;
    size_t n, i;
    for (n = 0; n < 200; n++)
        for (shift = 0; shift < 8; shift++)
            for (l = 0; l < 4; l++) {
                const bsn_slices t = { 1, shift, limits[l], n };
                uint64_t all = 0;
                for (i = 0; i < n; i++) all |= words[i] = (uint8_t)(test_random() >> 56 >> test_below(8));
                symbols[n] = bits[n] = MARK;
                CHECK(bsn_scalar_words_split(&t, symbols, bits, NULL, words, n) == all, "%zu bytes split at %u: which bits they have", n, shift);
                for (i = 0; i < n; i++)
                    CHECK(symbols[i] == bsn_min(words[i] >> shift, limits[l]) && (!shift || bits[i] == (words[i] & ((1u << shift) - 1))),
                          "byte %u split at %u, %u", words[i], shift, limits[l]);
                CHECK(symbols[n] == MARK && bits[n] == MARK, "%zu bytes split at %u: too far", n, shift);
            }
}

static void words_split(void)
{
    static const uint8_t limits[] = { 255, 127, 63, 31, 15, 1 };
    unsigned width, shift, l;
    size_t groups;
    bytes_split();
    for (width = 2; width <= 4; width += 2)
        for (groups = 0; groups <= 9; groups++)
            for (shift = 0; shift < 8 * width; shift++)
                for (l = 0; l < 8; l++)
                    words_case(width, groups, shift, limits[l < sizeof limits ? l : 0], l < 6 ? 3 : l - 6);
}

/* Sets the rounding of binary32. 0: to nearest; 1, 2, 3: the other modes, in the machine's order. */
static void round_by(unsigned mode)
{
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & ~0x6000u) | mode << 13);
#elif defined(__aarch64__)
    uint64_t x;
    __asm__ volatile("mrs %0, fpcr" : "=r"(x));
    __asm__ volatile("msr fpcr, %0" : : "r"((x & ~((uint64_t)3 << 22)) | (uint64_t)mode << 22));
#else
    (void)mode;
#endif
}

/* All significands of one octave, in the cells that the thresholds define. */
static void all_cells(void)
{
    static const unsigned counts[] = { 70, 2048, 2048, 2048, 2048 };
    uint32_t codes[1024], v[1024], i, j;
    unsigned c;
    if (!strcmp(kernels->name, "vector")) return; /* computes like avx2 */
    for (c = 0; c < 5; c++) {
        uint32_t wrong = 0, cell = 0;
        bsn_log_set(&cells_log, BITSNAP_F32, counts[c]);
        round_by(c > 1 ? c - 1 : 0);
        for (i = 0; i < 1u << 23; i += 1024) {
            for (j = 0; j < 1024; j++) v[j] = 0x3F800000 + i + j;
            bsn_log_codes_by(kernels, &cells_log, codes, (const uint8_t *)v, 1024);
            for (j = 0; j < 1024; j++) {
                cell += cells_log.threshold[cell + 1] <= 0x800000 + i + j;
                wrong += codes[j] != (BSN_CODE_FIRST + 149 * counts[c] + cell) << 1;
            }
        }
        round_by(0);
        CHECK(!wrong, "%s: %u significands are in the wrong one of %u cells", kernels->name, wrong, counts[c]);
    }
}

/* Frames of all types equal those of the scalar table, and decode to equal elements. */
static void quantized_frames(void)
{
    static const size_t n = 20000;
    uint8_t *elements = spare[0], *frame = spare[1], *other = spare[2], *decoded = spare[3];
    unsigned c, dtype, columns;
    bitsnap b;
    size_t i, size, other_size;
    memset(&b, 0, sizeof b);
    b.workspace_size = test_workspace_delta(19, 1);
    b.workspace = malloc(b.workspace_size);
    if (!b.workspace) return;
    for (dtype = BITSNAP_F16; dtype <= BITSNAP_F64; dtype++)
        for (c = 0; c < sizeof cell_counts / sizeof *cell_counts; c++)
            for (columns = 0; columns < 300; columns += 149) {
                const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
                bsn_log_set(&cells_log, BITSNAP_F32, cell_counts[c]);
                test_fill(elements, n * width);
                for (i = 0; dtype == BITSNAP_F32 && i < n; i++) {
                    const uint32_t v = float_of(&cells_log, i % 50 ? 1 : (unsigned)test_below(6));
                    memcpy(elements + 4 * i, &v, 4);
                }
                b.quantizer.bins = cell_counts[c];
                b.columns = columns;
                b.kernels = scalar;
                CHECK(!bitsnap_encode(&b, frame, AREA, &size, elements, n, (bitsnap_dtype)dtype), "scalar: %s", bitsnap_message(&b));
                b.kernels = kernels;
                CHECK(!bitsnap_encode(&b, other, AREA, &other_size, elements, n, (bitsnap_dtype)dtype), "%s: %s", kernels->name, bitsnap_message(&b));
                CHECK(size == other_size && !memcmp(frame, other, size), "%s: other bytes, dtype %u, %u cells, %u columns", kernels->name, dtype, cell_counts[c], columns);
                CHECK(!bitsnap_decode(&b, other, n, (bitsnap_dtype)dtype, frame, size), "%s: %s", kernels->name, bitsnap_message(&b));
                b.kernels = scalar;
                CHECK(!bitsnap_decode(&b, decoded, n, (bitsnap_dtype)dtype, frame, size), "scalar: %s", bitsnap_message(&b));
                CHECK(!memcmp(decoded, other, n * width), "%s: other elements, dtype %u, %u cells", kernels->name, dtype, cell_counts[c]);
            }
    free(b.workspace);
}

/* ---- tables ---- */

static const bitsnap_kernels *table_called(const char *name)
{
    const bitsnap_kernels *k;
    unsigned i;
    for (i = 0; (k = bitsnap_kernels_get(i)) != NULL; i++)
        if (!strcmp(bitsnap_kernels_name(k), name)) return k;
#ifdef TARGET_TESTED
    if (!strcmp(name, "vector")) return &bsn_kernels_vector;
#endif
    return NULL;
}

/* The scalar table is first and the fastest last. Each table is listed once, with all kernels, and null ends the list. */
static void tables(void)
{
    const bitsnap_kernels *k, *last = NULL;
    unsigned i;
    CHECK(bitsnap_kernels_get(0) == scalar, "the first table is the scalar one");
    for (i = 0; (k = bitsnap_kernels_get(i)) != NULL; i++) {
        CHECK(table_called(k->name) == k, "two tables are called %s", k->name);
        CHECK(i < 8, "no end of tables");
#define BSN_SLOT(when, result, slot, arguments) CHECK(k->slot != NULL, "%s: no %s", k->name, #slot);
        BSN_KERNELS(BSN_SLOT)
#undef BSN_SLOT
        last = k;
    }
    CHECK(bitsnap_kernels_get(i + 1) == NULL && bitsnap_kernels_get(1000) == NULL, "a table behind the last");
    CHECK(bsn_kernels_best() == last, "the best is the last");
}

#define TABLE(name)                                                                                   \
    kernels = table_called(#name);                                                                    \
    if (kernels) {                                                                                    \
        RUN(name##_hash);                                                                             \
        RUN(name##_masks);                                                                            \
        RUN(name##_planes);                                                                           \
        RUN(name##_lists);                                                                            \
        RUN(name##_nodes);                                                                            \
        RUN(name##_classes);                                                                          \
        RUN(name##_cells);                                                                            \
    } else {                                                                                          \
        SKIP(#name, "not on this machine, or left out");                                              \
    }

#define CASES(name)                                                                                   \
    static void name##_hash(void) { hash(); hash_in_pieces(); }                                         \
    static void name##_masks(void) { count_bits(); partitions(); compare(); }                 \
    static void name##_planes(void) { split_and_join(); bits_take_and_put(); top_put(); }             \
    static void name##_lists(void) { histogram(); map(); }                                            \
    static void name##_nodes(void) { node_merge(); node_fork(); leaves_fork(); node_counts(); start(); finish(); }                \
    static void name##_cells(void) { cells(); all_cells(); log_join(); quantized_frames(); }              \
    CLASSES(name)
#define CLASSES(name) static void name##_classes(void) { mask_above(); places(); classes(); words(); words_split(); }

static void scalar_lists(void) { bits_take_and_put(); leaves_fork(); top_put(); }
static void scalar_cells(void) { cells(); }
CLASSES(scalar)
CASES(avx2)
CASES(avx512)
CASES(neon)
CASES(vector)

int main(void)
{
    unsigned i;
    test_program = "kernels";
    for (i = 0; i < 16; i++) {
        areas[i].back = guarded_alloc(AREA, 0);
        areas[i].front = guarded_alloc(AREA, 1);
        spare[i] = (uint8_t *)malloc(AREA);
        if (!spare[i]) return 1;
    }
    RUN(tables);
    kernels = scalar; /* the scalar kernels against definitions */
    RUN(scalar_classes);
    RUN(scalar_lists);
    RUN(scalar_cells);
    TABLE(avx2)
    TABLE(avx512)
    TABLE(neon)
    TABLE(vector)
    for (i = 0; i < 16; i++) {
        guarded_free(areas[i].back);
        guarded_free(areas[i].front);
        free(spare[i]);
    }
    return test_failures != 0;
}
