/* A hostile list: code tables, trees, masks, splits. Every kernel table agrees with the scalar one. The first two bytes give the
 * number of symbols. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_outcome decoded;
    const bitsnap_kernels *k;
    bitsnap b;
    bitsnap_status status = BITSNAP_OK;
    uint8_t *list, *out[2];
    size_t n;
    unsigned t;
    fuzz_drop(0);
    if (size < 2) return 0;
    b = fuzz_codec(16);
    n = data[0] | (size_t)data[1] << 8;
    list = fuzz_copy(data + 2, size - 2);
    out[0] = fuzz_room(n);
    out[1] = fuzz_room(n);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        memset(out[t > 0], 0x3C + (int)t, n);
        status = fuzz_agree(&b, bitsnap_list_decode(&b, out[t > 0], n, list, size - 2, NULL), &decoded, t);
        if (t && !status) REQUIRE(!memcmp(out[0], out[1], n));
    }
    if (!status && n) { /* encodes the symbols again; decoding restores them */
        uint8_t *coded = fuzz_room(n + 1);
        size_t coded_size;
        REQUIRE(bitsnap_list_encode(&b, coded, n + 1, &coded_size, out[0], n) == BITSNAP_OK);
        REQUIRE(bitsnap_list_decode(&b, out[1], n, coded, coded_size, NULL) == BITSNAP_OK);
        REQUIRE(!memcmp(out[0], out[1], n));
    }
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    size_t n, size = fuzz_seed_list(number, to + 2, room - 2, &n);
    if (!size) return 0;
    to[0] = (uint8_t)n;
    to[1] = (uint8_t)(n >> 8);
    return size + 2;
}
