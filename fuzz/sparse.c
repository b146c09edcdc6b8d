/* Sparse updates from strangers: indices of 4 and 8 bytes, gaps, masks as they come; and values, applied in place. What is
 * refused has written nothing; what is accepted has one spelling, comes back from every other form, and every table
 * of kernels agrees.
 * Input: the form (2 bits), log2 of the width (2 bits), and whether n is large (4 bits, all ones; the width is 1 then);
 * n (3 bytes), how many positions (1 byte); the positions; the rest are values. */
#include "fuzz.h"

enum { INDICES32, INDICES64, GAPS, MASK };

#define N_SMALL ((size_t)2000)
#define N_LARGE ((size_t)1 << 18) /* with gaps above 65535, more than once */

/* all `size` bytes as they were painted? */
static int painted(const uint8_t *p, size_t size)
{
    size_t i;
    for (i = 0; i < size; i++)
        if (p[i] != 0xB7) return 0;
    return 1;
}

static uint8_t *paint(size_t size) { return fuzz_fill(size, 0xB7); }

/* c positions of a mask, through all forms and back */
static void round_trip(const uint8_t *mask, size_t n, size_t c, int form, const uint8_t *given, size_t count)
{
    const unsigned taken = fuzz_taken;
    const size_t size = (n + 7) / 8, most = c + n / 65535;
    uint8_t *again = paint(size), *list = fuzz_room(8 * (most + 1));
    size_t got;
    unsigned width;
    for (width = 4; width <= 8; width += 4) {
        REQUIRE(bitsnap_mask_to_indices(NULL, mask, n, width, list, c, &got) == BITSNAP_OK && got == c);
        REQUIRE(form != (width == 4 ? INDICES32 : INDICES64) || (count == c && !memcmp(list, given, c * width)));
        REQUIRE(bitsnap_mask_from_indices(again, n, width, list, c) == BITSNAP_OK && !memcmp(again, mask, size));
    }
    REQUIRE(bitsnap_mask_to_gaps(NULL, mask, n, list, most, &got) == BITSNAP_OK);
    REQUIRE(form != GAPS || (count == got && !memcmp(list, given, 2 * got)));
    memset(again, 0xB7, size);
    REQUIRE(bitsnap_mask_from_gaps(again, n, list, got, &got) == BITSNAP_OK && got == c && !memcmp(again, mask, size));
    fuzz_drop(taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const unsigned position_size[] = { 4, 8, 2, 1 };
    const bitsnap_kernels *k;
    bitsnap_status status, applied = BITSNAP_OK;
    uint8_t *positions, *values, *mask, *base, *expected;
    size_t n, count, c = 0, i, mask_size, elements_size, values_count;
    unsigned form, width, t;
    int large;
    fuzz_drop(0);
    if (size < 5) return 0;
    large = data[0] >> 4 == 15;
    form = data[0] & 3;
    width = large ? 1 : 1u << (data[0] >> 2 & 3);
    n = (data[1] | (size_t)data[2] << 8 | (size_t)data[3] << 16) % ((large ? N_LARGE : N_SMALL) + 1);
    mask_size = (n + 7) / 8;
    count = form == MASK ? mask_size : data[4];
    if (count * position_size[form] > size - 5) return 0;
    data += 5;
    size -= 5;
    positions = fuzz_copy(data, count * position_size[form]);
    data += count * position_size[form];
    size -= count * position_size[form];
    values_count = size / width;
    values = fuzz_copy(data, values_count * width);
    mask = paint(mask_size);
    switch (form) {
    case INDICES32: status = bitsnap_mask_from_indices(mask, n, 4, positions, c = count); break;
    case INDICES64: status = bitsnap_mask_from_indices(mask, n, 8, positions, c = count); break;
    case GAPS: status = bitsnap_mask_from_gaps(mask, n, positions, count, &c); break;
    default:
        memcpy(mask, positions, mask_size);
        c = bitsnap_mask_count(NULL, mask, n);
        status = n % 8 && mask[n / 8] >> (n % 8) ? BITSNAP_E_CORRUPT : BITSNAP_OK;
        break;
    }
    REQUIRE(status == BITSNAP_OK || (status == BITSNAP_E_CORRUPT && (form == MASK || painted(mask, mask_size))));
    if (!status) {
        REQUIRE(bitsnap_mask_count(NULL, mask, n) == c);
        round_trip(mask, n, c, (int)form, positions, count);
    }
    /* apply whatever is there, with as many values as came */
    elements_size = n * width;
    base = paint(elements_size);
    expected = fuzz_room(elements_size);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        const unsigned taken = fuzz_taken;
        uint8_t *live;
        bitsnap_status s;
        live = fuzz_copy(base, elements_size);
        s = bitsnap_mask_apply(k, width, live, n, mask, values, values_count);
        if (t == 0) {
            applied = s;
            if (elements_size) memcpy(expected, live, elements_size);
            REQUIRE(s == BITSNAP_OK || (s == BITSNAP_E_CORRUPT && painted(live, elements_size)));
            if (!status) REQUIRE((s == BITSNAP_OK) == (c == values_count));
        }
        REQUIRE(s == applied && !memcmp(live, expected, elements_size));
        if (!s) { /* again; out of place; and what encode makes of it is no more than what was applied */
            uint8_t *out = fuzz_room(elements_size), *changed = paint(mask_size), *list = fuzz_room(values_count * width);
            size_t got;
            REQUIRE(bitsnap_mask_apply(k, width, live, n, mask, values, values_count) == BITSNAP_OK && !memcmp(live, expected, elements_size));
            REQUIRE(bitsnap_mask_decode(k, width, out, base, n, mask, values, values_count) == BITSNAP_OK && !memcmp(out, expected, elements_size));
            REQUIRE(bitsnap_mask_encode(k, width, live, base, n, changed, list, values_count, &got) == BITSNAP_OK);
            for (i = 0; i < mask_size; i++) REQUIRE(!(changed[i] & ~mask[i]));
            memcpy(out, base, elements_size);
            REQUIRE(bitsnap_mask_apply(k, width, out, n, changed, list, got) == BITSNAP_OK && !memcmp(out, expected, elements_size));
        }
        fuzz_drop(taken);
    }
    return 0;
}

/* Each form of a few positions, with and without long gaps, and values for them. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const size_t lengths[] = { 1, 64, 300, 131073, 262144 };
    const size_t n = number < 80 ? lengths[number / 16] : 0;
    const unsigned form = number % 4, width = n > N_SMALL ? 1 : 1u << number / 4 % 4;
    size_t i, c = 0, got, used = 5;
    uint8_t *mask;
    if (number >= 80) return 0;
    if (form == MASK && n > 300) return fuzz_seed(number - 3, to, room); /* too long for a seed */
    fuzz_drop(0);
    mask = fuzz_fill((n + 7) / 8 + 1, 0);
    for (i = 0; i < n && c < 20; i += 1 + i + c, c++) mask[i / 8] = (uint8_t)(mask[i / 8] | 1 << (i % 8));
    to[0] = (uint8_t)(form | number / 4 % 4 << 2 | (n > N_SMALL ? 15 << 4 : 0));
    to[1] = (uint8_t)n;
    to[2] = (uint8_t)(n >> 8);
    to[3] = (uint8_t)(n >> 16);
    got = (n + 7) / 8;
    if (form == GAPS) REQUIRE(bitsnap_mask_to_gaps(NULL, mask, n, to + used, 255, &got) == BITSNAP_OK);
    else if (form == MASK) memcpy(to + used, mask, got);
    else REQUIRE(bitsnap_mask_to_indices(NULL, mask, n, form == INDICES32 ? 4 : 8, to + used, 255, &got) == BITSNAP_OK);
    to[4] = (uint8_t)got;
    used += got * (form == GAPS ? 2 : form == MASK ? 1 : form == INDICES32 ? 4 : 8);
    REQUIRE(used + c * width <= room);
    for (i = 0; i < c * width; i++) to[used++] = (uint8_t)(0x30 + i);
    return used;
}
