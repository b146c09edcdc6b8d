/* Any elements of any dtype. Decoding restores them, every kernel table gives the same frame, and its size is within the bound.
 * A destination that is too small is an error, and nothing is written past its end. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bitsnap_kernels *k;
    bitsnap b;
    unsigned dtype, width, log2, t;
    size_t n, bound, coded = 0, again, cap;
    uint8_t *elements, *frame, *other, *out;
    bitsnap_status status;
    fuzz_drop(0);
    if (size < 4) return 0;
    dtype = 1 + data[0] % 11;
    width = bitsnap_width((bitsnap_dtype)dtype);
    log2 = data[1] & 1 ? 6 + (data[1] >> 1) % 4 : 0;
    n = (size - 4) / width;
    b = fuzz_codec(log2 ? log2 : 16);
    b.block_log2 = log2;
    b.level = data[2] & 3;
    b.flags = data[3] & (BITSNAP_NO_CHECKS | BITSNAP_CONTENT_ID | BITSNAP_VERIFY);
    bound = n * width + 16 * ((n >> (log2 ? log2 : 16)) + 1) + 96;
    elements = fuzz_copy(data + 4, n * width);
    frame = fuzz_room(bound);
    other = fuzz_room(bound);
    out = fuzz_room(n * width);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        REQUIRE(bitsnap_encode(&b, t ? other : frame, bound, &again, elements, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        if (t) REQUIRE(again == coded && !memcmp(frame, other, coded));
        coded = again;
        REQUIRE(bitsnap_decode(&b, out, n, (bitsnap_dtype)dtype, frame, coded) == BITSNAP_OK);
        REQUIRE(!n || !memcmp(out, elements, n * width));
    }
    REQUIRE(coded <= bitsnap_bound(&b, n, (bitsnap_dtype)dtype));
    for (t = 0; t < 4; t++) {
        const unsigned taken = fuzz_taken;
        uint8_t *small;
        cap = t == 0 ? coded : t == 1 ? coded - 1 : (size_t)(data[t] * 257u) % coded;
        small = fuzz_room(cap);
        status = bitsnap_encode(&b, small, cap, &again, elements, n, (bitsnap_dtype)dtype);
        if (cap < coded) REQUIRE(status == BITSNAP_E_CAPACITY && again == 0);
        else REQUIRE(status == BITSNAP_OK && again == coded && !memcmp(small, frame, coded));
        fuzz_drop(taken);
    }
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    bitsnap_dtype dtype;
    const size_t n = room > 4100 ? fuzz_seed_elements(number, to + 4, &dtype) : 0;
    if (!n) return 0;
    to[0] = (uint8_t)(dtype - 1);
    to[1] = to[2] = to[3] = (uint8_t)(number / 11);
    return n * bitsnap_width(dtype) + 4;
}
