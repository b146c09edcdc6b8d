/* BITMASK: partition, merge and count of the public interface against their definition, on every table. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static const unsigned element_widths[] = { 1, 2, 4, 8 };

static void definition(const bitsnap_kernels *k, unsigned width, size_t n, int density)
{
    const int front = (int)test_below(2);
    guarded list = guarded_alloc(n * width, front), mask = guarded_alloc((n + 7) / 8, front), zeros, ones, back;
    size_t i, set = 0, z = 0, o = 0;
    test_fill(list.p, n * width);
    for (i = 0; i < (n + 7) / 8; i++)
        mask.p[i] = (uint8_t)(density == 0 ? 0 : density == 1 ? 255 : density == 2 ? test_random() : test_random() & test_random() & test_random());
    for (i = 0; i < n; i++) set += mask.p[i / 8] >> (i % 8) & 1;
    CHECK(bitsnap_mask_count(k, mask.p, n) == set, "count of %zu", n);
    zeros = guarded_alloc((n - set) * width, front);
    ones = guarded_alloc(set * width, front);
    back = guarded_alloc(n * width, front);
    CHECK(bitsnap_mask_split(k, width, list.p, n, mask.p, zeros.p, n - set, ones.p, set) == BITSNAP_OK);
    for (i = 0; i < n; i++) {
        const uint8_t *want = mask.p[i / 8] >> (i % 8) & 1 ? ones.p + width * o++ : zeros.p + width * z++;
        CHECK(!memcmp(want, list.p + i * width, width), "partition: element %zu of %zu, width %u", i, n, width);
    }
    CHECK(bitsnap_mask_join(k, width, back.p, n, mask.p, zeros.p, n - set, ones.p, set) == BITSNAP_OK);
    CHECK(!n || !memcmp(back.p, list.p, n * width), "merge of %zu, width %u", n, width);
    /* one side only */
    if (n) {
        memset(ones.p, 0, set * width);
        CHECK(bitsnap_mask_split(k, width, list.p, n, mask.p, NULL, 0, ones.p, set) == BITSNAP_OK);
        CHECK(bitsnap_mask_join(k, width, back.p, n, mask.p, NULL, 0, ones.p, set) == BITSNAP_OK);
        for (i = 0; i < n; i++) {
            static const uint8_t nothing[8] = { 0 };
            CHECK(!memcmp(back.p + i * width, mask.p[i / 8] >> (i % 8) & 1 ? list.p + i * width : nothing, width), "ones alone");
        }
        CHECK(bitsnap_mask_split(k, width, list.p, n, mask.p, zeros.p, n - set, NULL, 0) == BITSNAP_OK);
        /* in place, the ones at the end of the list */
        memcpy(back.p + (n - set) * width, ones.p, set * width);
        CHECK(bitsnap_mask_join(k, width, back.p, n, mask.p, zeros.p, n - set, back.p + (n - set) * width, set) == BITSNAP_OK);
        CHECK(!memcmp(back.p, list.p, n * width), "ones in place: %zu, width %u", n, width);
        memcpy(back.p + set * width, zeros.p, (n - set) * width);
        CHECK(bitsnap_mask_join(k, width, back.p, n, mask.p, back.p + set * width, n - set, ones.p, set) == BITSNAP_OK);
        CHECK(!memcmp(back.p, list.p, n * width), "zeros in place");
    }
    /* too small: nothing happens */
    if (set) {
        memset(ones.p, 0x5A, set * width);
        CHECK(bitsnap_mask_split(k, width, list.p, n, mask.p, zeros.p, n - set, ones.p, set - 1) == BITSNAP_E_CAPACITY);
        for (i = 0; i < set * width; i++) CHECK(ones.p[i] == 0x5A);
        CHECK(bitsnap_mask_join(k, width, back.p, n, mask.p, zeros.p, n - set, ones.p, set - 1) == BITSNAP_E_ARGUMENT);
    }
    if (set < n) CHECK(bitsnap_mask_split(k, width, list.p, n, mask.p, zeros.p, n - set - 1, ones.p, set) == BITSNAP_E_CAPACITY);
    guarded_free(list);
    guarded_free(mask);
    guarded_free(zeros);
    guarded_free(ones);
    guarded_free(back);
}

static void partition_and_merge(void)
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
        uint8_t list[8], zeros[8], ones[8], back[8], mask = (uint8_t)m;
        for (i = 0; i < 8; i++) list[i] = (uint8_t)(i + 1);
        CHECK(bitsnap_mask_split(NULL, 1, list, 8, &mask, zeros, 8, ones, 8) == BITSNAP_OK);
        memset(back, 0, 8);
        CHECK(bitsnap_mask_join(NULL, 1, back, 8, &mask, zeros, 8, ones, 8) == BITSNAP_OK);
        CHECK(!memcmp(back, list, 8), "mask %u", m);
        CHECK(bsn_expand8(bsn_compress8(bsn_load64(list), m), m) == (bsn_load64(list) & bsn_spread[m]), "mask %u", m);
    }
}

/* The tables of numbers, by the rule that bitsnap.h gives. */
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

static void wrong_lists(void)
{
    uint8_t x[8] = { 0 };
    CHECK(bitsnap_mask_split(NULL, 3, x, 1, x, x, 1, x, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_split(NULL, 1, NULL, 1, x, x, 1, x, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_join(NULL, 0, x, 1, x, x, 1, x, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_join(NULL, 1, x, 1, NULL, x, 1, x, 1) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_mask_split(NULL, 1, NULL, 0, NULL, NULL, 0, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_join(NULL, 1, NULL, 0, NULL, NULL, 0, NULL, 0) == BITSNAP_OK);
    CHECK(bitsnap_mask_count(NULL, NULL, 0) == 0);
}

int main(void)
{
    test_program = "bitmask";
    RUN(tables);
    RUN(every_mask_of_a_byte);
    RUN(partition_and_merge);
    RUN(wrong_lists);
    return test_failures != 0;
}
