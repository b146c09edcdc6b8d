/* BITMASK: the codec of BitSnap (encode, decode, apply) on every table against its definition, and the other forms of the
 * positions: indices of 4 and 8 bytes, gaps; round trips, and what must be refused with nothing written. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static const unsigned widths[] = { 1, 2, 4, 8 };

/* ---- memory: arrays that end, or begin, at a page which must not be touched ---- */

#define ROOM ((size_t)8 * 20000)

enum { ELEMENTS, BASE, LIVE, MASK, VALUES, AREAS };

static guarded back[AREAS], front[AREAS];

static uint8_t *place(unsigned area, size_t size, int at_front) { return at_front ? front[area].p : back[area].p + (ROOM - size); }

/* n bytes that are the caller's and must stay as they are: what the call may not write is filled with a pattern */
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
    /* encode, with no place to spare */
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
    /* decode; apply once, and again */
    test_fill(live, size);
    CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, values, c) == BITSNAP_OK);
    CHECK(!size || !memcmp(live, elements, size), "%s: decode of %zu, width %u", k->name, n, width);
    if (size) memcpy(live, base, size);
    for (i = 0; i < 2; i++) {
        CHECK(bitsnap_mask_apply(k, width, live, n, mask, values, c) == BITSNAP_OK);
        CHECK(!size || !memcmp(live, elements, size), "%s: apply of %zu, width %u", k->name, n, width);
    }
    if (n % 16 != 3) return; /* the rest for some lengths */
    /* the mask alone; the values with too little room: what is needed is told, the mask is whole */
    memset(mask, 0xFF, mask_size);
    CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, NULL, 0, &got) == BITSNAP_OK && got == c);
    CHECK(bitsnap_mask_apply(k, width, live, n, mask, values, c) == BITSNAP_OK);
    for (i = 1; i <= c && i <= 3; i++) {
        const size_t room = i == 1 ? c - 1 : i == 2 ? c / 2 : 0;
        uint8_t *small = place(VALUES, room * width, at_front);
        memset(mask, 0xFF, mask_size);
        CHECK(bitsnap_mask_encode(k, width, elements, base, n, mask, small, room, &got) == BITSNAP_E_CAPACITY);
        CHECK(got == c && bitsnap_mask_count(k, mask, n) == c, "%s: %zu needed, not %zu", k->name, c, got);
        CHECK(!bsn_mask_overhang(mask, n));
    }
    values = place(VALUES, c * width, at_front);
    CHECK(bitsnap_mask_split(k, width, elements, n, mask, NULL, 0, values, c) == BITSNAP_OK);
    /* one value too few, one too many, bits too many: all or nothing */
    paint(live, size);
    if (c) CHECK(bitsnap_mask_apply(k, width, live, n, mask, values, c - 1) == BITSNAP_E_CORRUPT);
    if (c) CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, values, c - 1) == BITSNAP_E_CORRUPT);
    CHECK(bitsnap_mask_apply(k, width, live, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
    CHECK(bitsnap_mask_decode(k, width, live, base, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
    for (i = n; i < 8 * mask_size; i++) {
        bit_set(mask, i);
        CHECK(bitsnap_mask_apply(k, width, live, n, mask, values, c) == BITSNAP_E_CORRUPT);
        CHECK(bitsnap_mask_apply(k, width, live, n, mask, base, c + 1) == BITSNAP_E_CORRUPT);
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
            CHECK(bitsnap_mask_encode(k, width, x, x + width, n, mask, values, n, &c) == BITSNAP_OK); /* against the next one */
            for (i = 0; i < n; i++)
                CHECK(bit_at(mask, i) == (memcmp(x + i * width, x + (i + 1) * width, width) != 0), "%s: element %zu", k->name, i);
        }
        CHECK(bitsnap_mask_encode(k, 2, zeros, zeros + 1, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 1 && value == 0);
        CHECK(bitsnap_mask_encode(k, 2, nans, nans + 1, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 1 && value == 0x7FC0);
        CHECK(bitsnap_mask_encode(k, 2, nans, nans + 2, 1, mask, &value, 1, &c) == BITSNAP_OK && c == 0);
    }
}

/* ---- the other forms ---- */

static uint8_t *mask_once, *mask_again;
static guarded forms[3];

#define FORM_N ((size_t)400000)

static uint8_t *form(unsigned i, size_t size) { return forms[i].p + (8 * FORM_N - size); }

/* all forms of the set of positions that `mask` holds, and back */
static void forms_case(const bitsnap_kernels *k, const uint8_t *mask, size_t n)
{
    const size_t size = (n + 7) / 8, c = bitsnap_mask_count(k, mask, n);
    size_t i, at, got, gaps, next;
    unsigned width;
    uint8_t *again = form(1, size), *p;
    for (width = 4; width <= 8; width += 4) {
        p = form(2, c * width);
        CHECK(bitsnap_mask_to_indices(k, mask, n, width, p, c, &got) == BITSNAP_OK && got == c);
        for (i = 0, at = 0; i < n; i++) {
            if (!bit_at(mask, i)) continue;
            CHECK(bsn_element_load(p + width * at, width) == i, "index %zu", at);
            at++;
        }
        memset(again, 0xFF, size);
        CHECK(bitsnap_mask_from_indices(again, n, width, p, c) == BITSNAP_OK);
        CHECK(!size || !memcmp(again, mask, size), "mask from %zu indices of %u bytes, n %zu", c, width, n);
        if (c) {
            p = form(2, (c - 1) * width);
            paint(p, (c - 1) * width);
            CHECK(bitsnap_mask_to_indices(k, mask, n, width, p, c - 1, &got) == BITSNAP_E_CAPACITY && got == c);
            CHECK(painted(p, (c - 1) * width));
        }
    }
    gaps = 0;
    for (i = 0, next = 0; i < n; i++)
        if (bit_at(mask, i)) gaps += (i - next) / 65535 + 1, next = i + 1;
    CHECK(gaps <= c + n / 65535, "the bound of gaps");
    for (i = 0; i < 3; i++) { /* just enough, the bound, too few */
        const size_t room = i == 0 ? gaps : i == 1 ? c + n / 65535 : gaps - 1;
        if (i == 2 && !gaps) break;
        p = form(2, 2 * room);
        paint(p, 2 * room);
        CHECK(bitsnap_mask_to_gaps(k, mask, n, p, room, &got) == (i == 2 ? BITSNAP_E_CAPACITY : BITSNAP_OK));
        CHECK(got == gaps, "%zu gaps, not %zu", gaps, got);
        if (i == 2) {
            CHECK(painted(p, 2 * room));
            break;
        }
        CHECK(painted(p + 2 * gaps, 2 * (room - gaps)));
        memset(again, 0xFF, size);
        CHECK(bitsnap_mask_from_gaps(again, n, p, gaps, &got) == BITSNAP_OK && got == c);
        CHECK(!size || !memcmp(again, mask, size), "mask from %zu gaps, n %zu", gaps, n);
    }
}

static void forms_round_trip(void)
{
    static const size_t lengths[] = { 65534, 65535, 65536, 65537, 131069, 131070, 131071, 131072, 200000, 262144, 400000 };
    const bitsnap_kernels *k;
    uint8_t *mask;
    unsigned t;
    size_t n, i, l;
    int rate;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        for (n = 0; n <= 1100; n++) {
            mask = form(0, (n + 7) / 8);
            for (rate = 0; rate < RATES; rate++) {
                if (n > 300 && (n + (size_t)rate) % 4) continue;
                memset(mask, 0, (n + 7) / 8);
                for (i = 0; i < n; i++)
                    if (changes(rate, i, n, 2)) bit_set(mask, i);
                forms_case(k, mask, n);
            }
        }
        for (l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            n = lengths[l];
            mask = form(0, (n + 7) / 8);
            for (rate = 0; rate < 12; rate++) {
                memset(mask, 0, (n + 7) / 8);
                for (i = 0; i < (size_t)rate; i++) bit_set(mask, test_below(n)); /* a handful: long gaps */
                if (rate > 8) bit_set(mask, n - 1);
                if (rate == 11) bit_set(mask, 0);
                forms_case(k, mask, n);
            }
        }
    }
}

/* Gaps around the escape, written out. */
static void gaps_by_hand(void)
{
    static const struct {
        size_t first, second; /* positions that are set */
        unsigned n;
        uint16_t gaps[8];
    } cases[] = { { 0, 1, 2, { 0, 0 } },
                  { 5, 9, 2, { 5, 3 } },
                  { 65534, 65535, 2, { 65534, 0 } },
                  { 65535, 65536, 3, { 65535, 0, 0 } },
                  { 65536, 65538, 3, { 65535, 1, 1 } },
                  { 0, 65535, 2, { 0, 65534 } },
                  { 0, 65536, 3, { 0, 65535, 0 } },
                  { 131069, 131070, 3, { 65535, 65534, 0 } },
                  { 131070, 131071, 4, { 65535, 65535, 0, 0 } },
                  { 131071, 262144, 6, { 65535, 65535, 1, 65535, 65535, 2 } },
                  { 7, 399999, 8, { 7, 65535, 65535, 65535, 65535, 65535, 65535, 6781 } } };
    size_t i, got;
    for (i = 0; i < sizeof cases / sizeof *cases; i++) {
        const size_t n = cases[i].second + 1;
        uint16_t gaps[16];
        memset(mask_again, 0, FORM_N / 8);
        bit_set(mask_again, cases[i].first);
        bit_set(mask_again, cases[i].second);
        CHECK(bitsnap_mask_to_gaps(NULL, mask_again, n, gaps, 16, &got) == BITSNAP_OK && got == cases[i].n, "case %zu: %zu gaps", i, got);
        CHECK(!memcmp(gaps, cases[i].gaps, 2 * cases[i].n), "case %zu", i);
        CHECK(bitsnap_mask_from_gaps(mask_once, n, gaps, got, &got) == BITSNAP_OK && got == 2, "case %zu", i);
        CHECK(!memcmp(mask_once, mask_again, (n + 7) / 8), "case %zu", i);
        paint(mask_once, (n + 7) / 8); /* one element fewer: the last does not fit */
        CHECK(bitsnap_mask_from_gaps(mask_once, n - 1, gaps, cases[i].n, &got) == BITSNAP_E_CORRUPT && got == 0, "case %zu", i);
        CHECK(painted(mask_once, (n + 7) / 8));
    }
}

static void refuse_indices(size_t n, const int64_t *list, size_t count)
{
    const size_t size = (n + 7) / 8;
    uint8_t *mask = form(0, size);
    int32_t narrow[8];
    size_t i;
    int fits = 1;
    paint(mask, size);
    CHECK(bitsnap_mask_from_indices(mask, n, 8, list, count) == BITSNAP_E_CORRUPT, "n %zu, %zu from %lld", n, count, (long long)*list);
    for (i = 0; i < count; i++) {
        narrow[i] = (int32_t)list[i];
        fits &= narrow[i] == list[i];
    }
    if (fits) CHECK(bitsnap_mask_from_indices(mask, n, 4, narrow, count) == BITSNAP_E_CORRUPT, "n %zu, %zu from %lld", n, count, (long long)*list);
    CHECK(painted(mask, size));
}

static void refuse_gaps(size_t n, const uint16_t *list, size_t count)
{
    const size_t size = (n + 7) / 8;
    uint8_t *mask = form(0, size);
    size_t got = 99;
    paint(mask, size);
    CHECK(bitsnap_mask_from_gaps(mask, n, list, count, &got) == BITSNAP_E_CORRUPT && got == 0, "n %zu, %zu gaps from %u", n, count, *list);
    CHECK(painted(mask, size));
}

static void hostile(void)
{
    static const int64_t negative[] = { -1 }, least[] = { INT64_MIN }, least32[] = { INT32_MIN }, late[] = { 0, -1, 1 },
                         far[] = { 100 }, farther[] = { 3, INT64_MAX }, wrapped[] = { 5, INT64_C(0x100000006) }, most32[] = { INT32_MAX },
                         twice[] = { 4, 4 }, down[] = { 4, 3 }, up[] = { 0, 1, 2, 3 };
    static const uint16_t past[] = { 100 }, sum[] = { 50, 49 }, escape[] = { 65535 }, tail[] = { 3, 65535 }, escapes[] = { 65535, 65535 },
                          full[] = { 0, 0, 0, 0 };
    size_t n, count, i, got, accepted = 0;
    refuse_indices(100, negative, 1);
    refuse_indices(100, least, 1);
    refuse_indices(100, least32, 1);
    refuse_indices(100, late, 3);
    refuse_indices(100, far, 1);
    refuse_indices(99, far, 1);
    refuse_indices(100, farther, 2);
    refuse_indices(100, wrapped, 2);
    refuse_indices(100, most32, 1);
    refuse_indices(100, twice, 2);
    refuse_indices(100, down, 2);
    refuse_indices(3, up, 4); /* too many */
    refuse_indices(0, up, 1);
    CHECK(bitsnap_mask_from_indices(form(0, 13), 101, 8, far, 1) == BITSNAP_OK);
    refuse_gaps(100, past, 1);
    refuse_gaps(100, sum, 2);
    refuse_gaps(100, escape, 1);
    refuse_gaps(65535, escape, 1);
    refuse_gaps(65536, escape, 1); /* there is room, but it says nothing */
    refuse_gaps(65540, tail, 2);
    refuse_gaps(200000, tail, 2);
    refuse_gaps(200000, escapes, 2);
    refuse_gaps(131070, escapes, 2);
    refuse_gaps(3, full, 4); /* too many */
    refuse_gaps(0, full, 1);
    CHECK(bitsnap_mask_from_gaps(form(0, 13), 101, sum, 2, &got) == BITSNAP_OK && got == 2);
    /* noise: refused with nothing written, or accepted and then the only spelling */
    for (i = 0; i < 200000; i++) {
        const unsigned width = i & 1 ? 8 : 4;
        uint8_t *p, *mask;
        bitsnap_status status;
        n = test_below(70);
        count = test_below(6);
        mask = form(0, (n + 7) / 8);
        paint(mask, (n + 7) / 8);
        if (i % 3) {
            size_t j;
            p = form(1, count * width);
            for (j = 0; j < count; j++) bsn_element_store(p + j * width, test_below(9) ? test_below(n + 3) / (count - j) : test_random(), width);
            status = bitsnap_mask_from_indices(mask, n, width, p, count);
            if (!status) CHECK(bitsnap_mask_to_indices(NULL, mask, n, width, form(2, count * width), count, &got) == BITSNAP_OK && got == count);
            if (!status) CHECK(!memcmp(form(2, count * width), p, count * width));
        } else {
            size_t j, ones = 99;
            n += 65535 * test_below(3);
            mask = form(0, (n + 7) / 8);
            paint(mask, (n + 7) / 8);
            p = form(1, 2 * count);
            for (j = 0; j < count; j++) bsn_element_store(p + 2 * j, test_below(2) ? 65535 : test_below(60), 2);
            status = bitsnap_mask_from_gaps(mask, n, p, count, &ones);
            if (!status) CHECK(ones == bitsnap_mask_count(NULL, mask, n) && bitsnap_mask_to_gaps(NULL, mask, n, form(2, 2 * count), count, &got) == BITSNAP_OK && got == count);
            if (!status) CHECK(!memcmp(form(2, 2 * count), p, 2 * count));
            if (status) CHECK(ones == 0);
        }
        CHECK(status == BITSNAP_OK || (status == BITSNAP_E_CORRUPT && painted(mask, (n + 7) / 8)), "status %d", status);
        accepted += !status;
    }
    CHECK(accepted > 2000 && accepted < 190000, "%zu accepted", accepted);
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
    CHECK(bitsnap_mask_apply(NULL, 1, NULL, 1, x, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_apply(NULL, 1, x, 1, NULL, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_apply(NULL, 1, x, 1, x, NULL, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_apply(NULL, 1, x, 1, x + 1, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_apply(NULL, 1, NULL, 0, NULL, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_apply(NULL, 1, NULL, 0, NULL, x, 1) == BITSNAP_E_CORRUPT);
    CHECK(bitsnap_mask_to_indices(NULL, x, 1, 2, x, 1, &c) == BITSNAP_E_ARGUMENT && c == 0);
    CHECK(bitsnap_mask_to_indices(NULL, x, 1, 4, NULL, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_to_indices(NULL, x, 1, 4, NULL, 0, &c) == BITSNAP_OK && c == 0);
    CHECK(bitsnap_mask_to_indices(NULL, NULL, 0, 8, NULL, 0, &c) == BITSNAP_OK);
    CHECK(bitsnap_mask_to_indices(NULL, x, 1, 4, x, 1, NULL) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_to_indices(NULL, x, ((size_t)1 << 31) + 1, 4, x, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_indices(x, 1, 1, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_indices(NULL, 1, 4, x, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_indices(x, 1, 4, NULL, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_indices(NULL, 0, 4, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_to_gaps(NULL, x, 1, NULL, 1, &c) == BITSNAP_E_ARGUMENT && c == 0);
    CHECK(bitsnap_mask_to_gaps(NULL, NULL, 0, NULL, 0, &c) == BITSNAP_OK);
    CHECK(bitsnap_mask_to_gaps(NULL, x, 1, x, 1, NULL) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_gaps(NULL, 1, x, 0, &c) == BITSNAP_E_ARGUMENT && c == 0);
    CHECK(bitsnap_mask_from_gaps(x, 1, NULL, 1, &c) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_gaps(x, 1, x, 0, NULL) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_from_gaps(NULL, 0, NULL, 0, &c) == BITSNAP_OK && c == 0);
    /* bits behind the last element */
    x[0] = 0x10;
    CHECK(bitsnap_mask_to_indices(NULL, x, 4, 4, x + 4, 1, &c) == BITSNAP_E_CORRUPT && c == 0);
    CHECK(bitsnap_mask_to_gaps(NULL, x, 4, x + 4, 2, &c) == BITSNAP_E_CORRUPT && c == 0);
    CHECK(bitsnap_mask_to_gaps(NULL, x, 5, x + 4, 2, &c) == BITSNAP_OK && c == 1);
}

int main(void)
{
    unsigned i;
    test_program = "mask";
    for (i = 0; i < AREAS; i++) {
        back[i] = guarded_alloc(ROOM, 0);
        front[i] = guarded_alloc(ROOM, 1);
    }
    for (i = 0; i < 3; i++) forms[i] = guarded_alloc(8 * FORM_N, 0);
    mask_once = (uint8_t *)malloc(FORM_N / 8);
    mask_again = (uint8_t *)malloc(FORM_N / 8);
    if (!mask_once || !mask_again) return 1;
    RUN(codec);
    RUN(equal_and_overlapping);
    RUN(forms_round_trip);
    RUN(gaps_by_hand);
    RUN(hostile);
    RUN(wrong_arguments);
    free(mask_once);
    free(mask_again);
    return test_failures != 0;
}
