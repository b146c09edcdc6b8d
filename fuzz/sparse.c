/* A hostile mask and values, applied in place. A refused mask changes nothing. An accepted one gives the same result with every
 * kernel table, in place or not, and when repeated.
 * Input: log2 of the width (1 byte), n (2 bytes), the mask; the rest are values. */
#include "fuzz.h"

#define N_MOST ((size_t)20000) /* more than two parts of a mask, and more than a chunk of elements */

/* Returns whether all `size` bytes still have their first value. */
static int painted(const uint8_t *p, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++)
        if (p[i] != 0xB7) return 0;
    return 1;
}

static uint8_t *paint(size_t size) { return fuzz_fill(size, 0xB7); }

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bitsnap_kernels *k;
    bitsnap_status applied = BITSNAP_OK;
    uint8_t *values, *mask, *base, *expected;
    size_t n, c, i, mask_size, elements_size, values_count;
    unsigned width, t;
    fuzz_drop(0);
    if (size < 3) return 0;
    width = 1u << (data[0] & 3);
    n = (data[1] | (size_t)data[2] << 8) % (N_MOST + 1);
    mask_size = (n + 7) / 8;
    data += 3;
    size -= 3;
    if (mask_size > size) return 0;
    mask = fuzz_copy(data, mask_size);
    values_count = (size - mask_size) / width;
    values = fuzz_copy(data + mask_size, values_count * width);
    for (i = c = 0; i < 8 * mask_size; i++) c += mask[i / 8] >> (i % 8) & 1;
    elements_size = n * width;
    base = paint(elements_size);
    expected = fuzz_room(elements_size);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        const unsigned taken = fuzz_taken;
        uint8_t *live;
        bitsnap_status s;
        live = fuzz_copy(base, elements_size);
        s = bitsnap_mask_decode(k, width, live, live, n, mask, values, values_count);
        if (t == 0) {
            const int overhang = n % 8 && mask[n / 8] >> (n % 8);
            applied = s;
            if (elements_size) memcpy(expected, live, elements_size);
            REQUIRE(s == BITSNAP_OK || (s == BITSNAP_E_CORRUPT && painted(live, elements_size)));
            REQUIRE((s == BITSNAP_OK) == (!overhang && c == values_count));
        }
        REQUIRE(s == applied && !memcmp(live, expected, elements_size));
        if (!s) { /* repeats it, applies it to a copy, and encodes it to at most the same number of values */
            uint8_t *out = fuzz_room(elements_size), *changed = paint(mask_size), *list = fuzz_room(values_count * width);
            size_t got;
            REQUIRE(bitsnap_mask_decode(k, width, live, live, n, mask, values, values_count) == BITSNAP_OK && !memcmp(live, expected, elements_size));
            REQUIRE(bitsnap_mask_decode(k, width, out, base, n, mask, values, values_count) == BITSNAP_OK && !memcmp(out, expected, elements_size));
            REQUIRE(bitsnap_mask_encode(k, width, live, base, n, changed, list, values_count, &got) == BITSNAP_OK);
            for (i = 0; i < mask_size; i++) REQUIRE(!(changed[i] & ~mask[i]));
            memcpy(out, base, elements_size);
            REQUIRE(bitsnap_mask_decode(k, width, out, out, n, changed, list, got) == BITSNAP_OK && !memcmp(out, expected, elements_size));
        }
        fuzz_drop(taken);
    }
    return 0;
}

/* A few positions for each length and width, and values for them. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const size_t lengths[] = { 1, 64, 300, 8192, 20000 };
    const unsigned width = 1u << number % 4;
    const size_t n = number < 20 ? lengths[number / 4] : 0;
    size_t i, c = 0, used = 3 + (n + 7) / 8;
    if (number >= 20) return 0;
    REQUIRE(used + 20 * 8 <= room);
    memset(to, 0, used);
    to[0] = (uint8_t)(number % 4);
    to[1] = (uint8_t)n;
    to[2] = (uint8_t)(n >> 8);
    for (i = 0; i < n && c < 20; i += 1 + i + c, c++) to[3 + i / 8] = (uint8_t)(to[3 + i / 8] | 1 << (i % 8));
    for (i = 0; i < c * width; i++) to[used++] = (uint8_t)(0x30 + i);
    return used;
}
