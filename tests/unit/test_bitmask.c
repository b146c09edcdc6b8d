/* BITMASK: the partition and count kernels of every table against their definition; the tables of numbers. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static const unsigned element_widths[] = { 1, 2, 4, 8 };

/* The inverse. The sides have 64 more elements, and the result has none. */
static void unparted(const bitsnap_kernels *k, unsigned width, const uint8_t *list, size_t n, const uint8_t *mask, const uint8_t *zeros, const uint8_t *ones)
{
    static uint8_t sides[2][8 * (1100 + 64)];
    guarded to = guarded_alloc(n * width, 0);
    size_t i, set = 0;
    for (i = 0; i < n; i++) set += mask[i / 8] >> (i % 8) & 1;
    test_fill(to.p, n * width);
    if (zeros) memcpy(sides[0], zeros, (n - set) * width);
    if (ones) memcpy(sides[1], ones, set * width);
    bsn_unpart(k, width, to.p, zeros ? sides[0] : NULL, ones ? sides[1] : NULL, mask, n);
    for (i = 0; i < n; i++) {
        const uint8_t *side = mask[i / 8] >> (i % 8) & 1 ? ones : zeros;
        static const uint8_t none[8];
        CHECK(!memcmp(to.p + i * width, side ? list + i * width : none, width), "%s: element %zu of %zu, width %u", bitsnap_kernels_name(k), i, n, width);
    }
    guarded_free(to);
}

static void definition(const bitsnap_kernels *k, unsigned width, size_t n, int density)
{
    const int front = (int)test_below(2);
    guarded list = guarded_alloc(n * width, front), mask = guarded_alloc((n + 7) / 8, front), zeros, ones;
    size_t i, set = 0, z = 0, o = 0;
    test_fill(list.p, n * width);
    for (i = 0; i < (n + 7) / 8; i++)
        mask.p[i] = (uint8_t)(density == 0 ? 0 : density == 1 ? 255 : density == 2 ? test_random() : test_random() & test_random() & test_random());
    for (i = 0; i < n; i++) set += mask.p[i / 8] >> (i % 8) & 1;
    CHECK(k->count(mask.p, n) == set, "count of %zu", n);
    zeros = guarded_alloc((n - set) * width, front);
    ones = guarded_alloc(set * width, front);
    k->partition(width, list.p, n, mask.p, zeros.p, ones.p);
    for (i = 0; i < n; i++) {
        const uint8_t *want = mask.p[i / 8] >> (i % 8) & 1 ? ones.p + width * o++ : zeros.p + width * z++;
        CHECK(!memcmp(want, list.p + i * width, width), "partition: element %zu of %zu, width %u", i, n, width);
    }
    for (i = 0; i < 2; i++) { /* only one side: equal elements */
        guarded *side = i ? &ones : &zeros;
        const size_t size = (i ? set : n - set) * width;
        uint8_t *before = (uint8_t *)malloc(size + 1);
        if (size) memcpy(before, side->p, size);
        test_fill(side->p, size);
        k->partition(width, list.p, n, mask.p, i ? NULL : zeros.p, i ? ones.p : NULL);
        CHECK(!memcmp(side->p, before, size), "%s alone: %zu, width %u", i ? "ones" : "zeros", n, width);
        free(before);
    }
    for (i = 0; i < 3; i++) unparted(k, width, list.p, n, mask.p, i == 1 ? NULL : zeros.p, i == 2 ? NULL : ones.p);
    guarded_free(list);
    guarded_free(mask);
    guarded_free(zeros);
    guarded_free(ones);
}

static void partition(void)
{
    const bitsnap_kernels *k;
    unsigned t, w;
    size_t n;
    int density;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (w = 0; w < 4; w++)
            for (n = 0; n < 1100; n += n < 140 ? 1 : 31)
                for (density = 0; density < 4; density++) definition(k, element_widths[w], n, density);
}

static void every_mask_of_a_byte(void)
{
    unsigned m, i;
    for (m = 0; m < 256; m++) {
        uint8_t list[8], packed[8];
        unsigned rank = 0;
        for (i = 0; i < 8; i++) list[i] = (uint8_t)(i + 1);
        bsn_store64(packed, bsn_compress8(bsn_load64(list), m));
        for (i = 0; i < 8; i++)
            if (m >> i & 1) CHECK(packed[rank++] == list[i], "mask %u", m);
    }
}

/* The tables of numbers, by the rule in bitsnap.h. */
static void tables(void)
{
    static const uint64_t *const up[3] = { bsn_up4, bsn_up2, bsn_up1 }, *const down[3] = { bsn_down4, bsn_down2, bsn_down1 };
    unsigned m, i, t;
    for (m = 0; m < 256; m++) {
        uint64_t spread = 0, to[3] = { 0, 0, 0 }, from[3] = { 0, 0, 0 };
        unsigned rank = 0;
        for (i = 0; i < 8; i++) {
            unsigned byte = rank;
            if (!(m >> i & 1)) continue;
            for (t = 0; t < 3; t++) {
                const unsigned step = (i - rank) & 4u >> t;
                if (step) from[t] |= UINT64_C(0xFF) << 8 * byte, to[t] |= UINT64_C(0xFF) << 8 * (byte + step);
                byte += step;
            }
            CHECK(byte == i);
            spread |= UINT64_C(0xFF) << 8 * i;
            rank++;
        }
        CHECK(bsn_spread[m] == spread && bsn_ones_in[m] == rank, "mask %u", m);
        for (t = 0; t < 3; t++) CHECK(up[t][m] == to[t] && down[t][m] == from[t], "mask %u, stage of %u places", m, 4u >> t);
    }
}

int main(void)
{
    test_program = "bitmask";
    RUN(tables);
    RUN(every_mask_of_a_byte);
    RUN(partition);
    return test_failures != 0;
}
