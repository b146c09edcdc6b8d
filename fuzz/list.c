/* A hostile list (code tables, trees, masks, splits): every table of kernels agrees with the scalar one. The first two
 * bytes give the number of symbols. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bitsnap b = fuzz_codec(16);
    const bitsnap_kernels *k;
    bitsnap_status status = BITSNAP_OK, again;
    bitsnap_error error;
    uint8_t *list, *out[2];
    size_t n;
    unsigned t;
    if (size < 2) return 0;
    n = data[0] | (size_t)data[1] << 8;
    list = fuzz_copy(data + 2, size - 2);
    out[0] = (uint8_t *)malloc(n + 1);
    out[1] = (uint8_t *)malloc(n + 1);
    REQUIRE(out[0] && out[1]);
    memset(&error, 0, sizeof error);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        memset(out[t > 0], 0x3C + (int)t, n);
        again = bitsnap_list_decode(&b, out[t > 0], n, list, size - 2, NULL);
        if (!t) {
            status = again;
            error = b.error;
            continue;
        }
        REQUIRE(again == status);
        if (status) REQUIRE(b.error.rule == error.rule && b.error.offset == error.offset);
        else REQUIRE(!memcmp(out[0], out[1], n));
    }
    if (!status && n) { /* what decodes can be encoded again, and comes back */
        uint8_t *coded = (uint8_t *)malloc(n + 1);
        size_t coded_size;
        REQUIRE(coded);
        REQUIRE(bitsnap_list_encode(&b, coded, n + 1, &coded_size, out[0], n) == BITSNAP_OK);
        REQUIRE(bitsnap_list_decode(&b, out[1], n, coded, coded_size, NULL) == BITSNAP_OK);
        REQUIRE(!memcmp(out[0], out[1], n));
        free(coded);
    }
    free(list);
    free(out[0]);
    free(out[1]);
    return 0;
}
