/* BITMASK: encodes and decodes BitSnap masks, in place or not, with every kernel table, against their definition. Wrong
 * arguments are refused, and nothing is written. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static const unsigned widths[] = { 1, 2, 4, 8 };

/* ---- memory: arrays that end or begin at a guard page ---- */

#define ROOM ((size_t)8 * 20000)

enum { ELEMENTS, BASE, LIVE, MASK, VALUES, AREAS };

static guarded back[AREAS], front[AREAS];

static uint8_t *place(unsigned area, size_t size, int at_front) { return at_front ? front[area].p : back[area].p + (ROOM - size); }

/* n bytes of the caller. A pattern marks bytes that the call must not write. */
static void paint(uint8_t *p, size_t n) { memset(p, 0xB7, n); }

static int painted(const uint8_t *p, size_t n)
{
    while (n--)
        if (*p++ != 0xB7) return 0;
    return 1;
}

static int bit_at(const uint8_t *mask, size_t i) { return mask[i / 8] >> (i % 8) & 1; }
static void bit_set(uint8_t *mask, size_t i) { mask[i / 8] = (uint8_t)(mask[i / 8] | 1 << (i % 8)); }

/* ---- the codec ---- */

enum { NONE, ALL, RARE, SOME, HALF, MOST, BORDERS, LAST, RATES };

static int changes(int rate, size_t i, size_t n, unsigned width)
{
    const size_t chunk = BSN_MASK_CHUNK / width;
    switch (rate) {
    case NONE: return 0;
    case ALL: return 1;
    case RARE: return test_below(100) == 0;
    case SOME: return test_below(10) == 0;
    case HALF: return test_below(2) == 0;
    case MOST: return test_below(10) != 0;
    case BORDERS: return i == 0 || i + 1 == n || i % 64 == 0 || i % 64 == 63 || i % chunk == 0 || i % chunk == chunk - 1;
    default: return i + 1 == n;
    }
}

static void codec_case(const bitsnap_kernels *k, unsigned width, size_t n, int rate, int at_front)
{
    const size_t size = n * width, mask_size = (n + 7) / 8;
    uint8_t *elements = place(ELEMENTS, size, at_front), *base = place(BASE, size, at_front);
    uint8_t *live = place(LIVE, size, at_front), *mask = place(MASK, mask_size, at_front), *values;
    size_t i, c = 0, got = 99;
    test_fill(base, size);
    if (size) memcpy(elements, base, size);
    for (i = 0; i < n; i++) {
        if (!changes(rate, i, n, width)) continue;
        if (test_below(2)) elements[i * width + test_below(width)] ^= (uint8_t)(1u << test_below(8)); /* one bit */
        else do test_fill(elements + i * width, width); while (!memcmp(elements + i * width, base + i * width, width));
        c++;
    }
    /* encode to exactly the size needed */
    values = place(VALUES, c * width, at_front);
    memset(mask, 0xFF, mask_size);
    CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, values, c, &got) == BITSNAP_OK);
    CHECK(got == c, "%s: %zu of %zu changed, not %zu, width %u", k->name, c, n, got, width);
    for (i = 0, got = 0; i < n; i++) {
        const int differ = memcmp(elements + i * width, base + i * width, width) != 0;
        CHECK(bit_at(mask, i) == differ, "%s: bit %zu of %zu, width %u", k->name, i, n, width);
        if (!differ) continue;
        CHECK(!memcmp(values + got * width, elements + i * width, width), "%s: value %zu, width %u", k->name, got, width);
        got++;
    }
    for (; i < 8 * mask_size; i++) CHECK(!bit_at(mask, i), "%s: bit %zu behind %zu", k->name, i, n);
    /* decode; apply; apply again */
    test_fill(live, size);
    CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, values, c) == BITSNAP_OK);
    CHECK(!size || !memcmp(live, elements, size), "%s: decode of %zu, width %u", k->name, n, width);
    if (size) memcpy(live, base, size);
    for (i = 0; i < 2; i++) {
        CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, values, c) == BITSNAP_OK);
        CHECK(!size || !memcmp(live, elements, size), "%s: apply of %zu, width %u", k->name, n, width);
    }
    if (n % 16 != 3) return; /* the other checks for some lengths */
    /* the mask alone; then too little capacity for the values: the call reports the capacity, and the mask is complete */
    memset(mask, 0xFF, mask_size);
    CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, NULL, 0, &got) == BITSNAP_OK && got == c);
    CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, values, c) == BITSNAP_OK);
    for (i = 1; i <= c && i <= 3; i++) {
        const size_t room = i == 1 ? c - 1 : i == 2 ? c / 2 : 0;
        uint8_t *small = place(VALUES, room * width, at_front);
        memset(mask, 0xFF, mask_size);
        CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, small, room, &got) == BITSNAP_E_CAPACITY);
        CHECK(got == c && k->count(mask, n) == c, "%s: %zu needed, not %zu", k->name, c, got);
        CHECK(bsn_masks_clear(mask, bsn_mask_bytes(n), 1, n));
    }
    values = place(VALUES, c * width, at_front);
    CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, values, c, &got) == BITSNAP_OK);
    /* one value too few, one too many, bits too many: nothing is written */
    paint(live, size);
    if (c) CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, values, c - 1) == BITSNAP_E_CORRUPT);
    if (c) CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, values, c - 1) == BITSNAP_E_CORRUPT);
    CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
    CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
    for (i = n; i < 8 * mask_size; i++) {
        bit_set(mask, i);
        CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, values, c) == BITSNAP_E_CORRUPT);
        CHECK(bitsnap_mask_decode(k, width, live, live, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
        CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, values, c) == BITSNAP_E_CORRUPT);
        mask[i / 8] = (uint8_t)(mask[i / 8] ^ 1 << (i % 8));
    }
    CHECK(painted(live, size), "%s: something written on an error, width %u, %zu", k->name, width, n);
}

static void codec(void)
{
    const bitsnap_kernels *k;
    unsigned t, w;
    size_t n;
    int rate;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (w = 0; w < 4; w++) {
            for (n = 0; n <= 1100; n++)
                for (rate = 0; rate < RATES; rate++)
                    if (n < 300 || (n + (size_t)rate) % 4 == 0) codec_case(k, widths[w], n, rate, (n + (size_t)rate / 4) & 1);
            for (n = 1200; n < 20000; n += 1 + test_below(2600))
                for (rate = 0; rate < RATES; rate++) codec_case(k, widths[w], n, rate, rate & 1);
            for (n = 0; n < 3; n++)
                for (rate = 0; rate < RATES; rate++) codec_case(k, widths[w], 4 * BSN_MASK_CHUNK / widths[w] + n - 1, rate, 0);
        }
}

/* Inputs may overlap or be one; elements are words, not numbers. */
static void equal_and_overlapping(void)
{
    const bitsnap_kernels *k;
    static const uint16_t zeros[2] = { 0x0000, 0x8000 }, nans[3] = { 0x7FC0, 0x7FC1, 0x7FC0 };
    uint8_t x[700], mask[88], values[700];
    uint16_t value;
    size_t i, c, n;
    unsigned t, w;
    test_fill(x, sizeof x);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        for (w = 0; w < 4; w++) {
            const unsigned width = widths[w];
            n = 640 / width;
            CHECK(bitsnap_mask_encode(k, width, x, x, n, mask, values, n, &c) == BITSNAP_OK && c == 0);
            CHECK(bitsnap_mask_encode(k, width, x, x + width, n, mask, values, n, &c) == BITSNAP_OK); /* against a shifted copy */
            for (i = 0; i < n; i++)
                CHECK(bit_at(mask, i) == (memcmp(x + i * width, x + (i + 1) * width, width) != 0), "%s: element %zu", k->name, i);
        }
        CHECK(bitsnap_mask_encode(k, 2, zeros, zeros + 1, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 1 && value == 0);
        CHECK(bitsnap_mask_encode(k, 2, nans, nans + 1, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 1 && value == 0x7FC0);
        CHECK(bitsnap_mask_encode(k, 2, nans, nans + 2, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 0);
    }
}

static void wrong_arguments(void)
{
    uint8_t x[8] = { 0 };
    size_t c;
    CHECK(bitsnap_mask_encode(NULL, 3, x, x, 1, x, x, 1, &c) == BITSNAP_E_ARGUMENT && c == 0);
    CHECK(bitsnap_mask_encode(NULL, 1, NULL, x, 1, x, x, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_encode(NULL, 1, x, NULL, 1, x, x, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_encode(NULL, 1, x, x, 1, NULL, x, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_encode(NULL, 1, x, x, 1, x, x, 1, NULL) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_encode(NULL, 1, NULL, NULL, 0, NULL, NULL, 0, &c) == BITSNAP_OK && c == 0);
    CHECK(bitsnap_mask_decode(NULL, 0, x, x + 1, 1, x + 2, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_decode(NULL, 1, x, NULL, 1, x + 2, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_decode(NULL, 1, NULL, NULL, 0, NULL, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_decode(NULL, 1, NULL, NULL, 1, x, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_decode(NULL, 1, x, x, 1, NULL, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_decode(NULL, 1, x, x, 1, x, NULL, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_decode(NULL, 1, x, x, 1, x + 1, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_decode(NULL, 1, NULL, NULL, 0, NULL, x, 1) == BITSNAP_E_CORRUPT);
}

int main(void)
{
    unsigned i;
    test_program = "mask";
    for (i = 0; i < AREAS; i++) {
        back[i] = guarded_alloc(ROOM, 0);
        front[i] = guarded_alloc(ROOM, 1);
    }
    RUN(codec);
    RUN(equal_and_overlapping);
    RUN(wrong_arguments);
    return test_failures != 0;
}
