/* A hostile frame: decoding, testing, ranges and pulling touch nothing but their buffers, and all tables of kernels
 * agree on the status, the place and the elements. The first byte of the input chooses whether checks are heeded. */
#include "fuzz.h"

#define MOST (1u << 20) /* bytes of elements that we are willing to hold */

static void pull(const bitsnap *like, const uint8_t *frame, size_t size, const uint8_t *expected, bitsnap_status whole)
{
    bitsnap b = *like;
    bitsnap_stream s;
    bitsnap_status status;
    size_t at, used, n;
    uint8_t *piece;
    uint64_t total = 0;
    status = bitsnap_pull_begin(&b, &s, frame, size, &at);
    if (status) return;
    piece = (uint8_t *)malloc(((size_t)1 << s.block_log2) * s.width);
    REQUIRE(piece);
    while (!status && s.position < s.count) {
        status = bitsnap_pull(&b, &s, piece, (size_t)1 << s.block_log2, &n, frame + at, size - at, &used);
        if (!status && expected) REQUIRE(!memcmp(piece, expected + total * s.width, n * s.width));
        at += used;
        total += n;
        if (!expected && total * s.width > MOST) break;
    }
    if (!status && s.position == s.count) {
        status = bitsnap_pull_end(&b, &s, frame + at, size - at, &used);
        if (expected && !whole) REQUIRE(!status && at + used == size);
    }
    free(piece);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bitsnap_kernels *k;
    bitsnap b, first;
    bitsnap_info info;
    bitsnap_status status = BITSNAP_OK, again;
    uint8_t *frame, *out[2] = { NULL, NULL };
    unsigned t;
    if (size < 1) return 0;
    frame = fuzz_copy(data + 1, size - 1);
    size--;
    memset(&info, 0, sizeof info);
    (void)bitsnap_read_info(&info, frame, size);
    if (size >= 24) { /* also where the header's check is wrong */
        info.width = bitsnap_width((bitsnap_dtype)frame[5]);
        info.dtype = (bitsnap_dtype)frame[5];
        info.block_log2 = frame[6];
        for (t = 15; t >= 8; t--) info.count = info.count << 8 | frame[t];
    }
    b = fuzz_codec(info.block_log2 >= 6 && info.block_log2 <= 20 ? info.block_log2 : 16);
    b.flags = data[0] & 1 ? BITSNAP_IGNORE_CHECKS : 0;
    memset(&first, 0, sizeof first);
    if (info.width && info.count <= MOST / info.width) {
        const size_t bytes = (size_t)info.count * info.width;
        for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
            const int i = t > 0;
            b.kernels = k;
            free(out[i]);
            out[i] = (uint8_t *)malloc(bytes ? bytes : 1);
            REQUIRE(out[i]);
            memset(out[i], 0xA5 + (int)t, bytes);
            again = bitsnap_decode(&b, out[i], info.count, info.dtype, frame, size);
            if (!t) {
                status = again;
                first = b;
                continue;
            }
            REQUIRE(again == status);
            if (status) REQUIRE(b.error.rule == first.error.rule && b.error.offset == first.error.offset);
            else REQUIRE(!memcmp(out[0], out[1], bytes)); /* also: nothing is left as it was before */
        }
        if (!status && info.count) { /* a range gives the same elements */
            const uint64_t from = data[0] * 131u % info.count, n = 1 + (info.count - from) * (data[size / 2 + 1] % 4u) / 4;
            uint8_t *range;
            const uint64_t m = n > info.count - from ? info.count - from : n;
            range = (uint8_t *)malloc((size_t)m * info.width);
            REQUIRE(range);
            REQUIRE(bitsnap_decode_range(&b, range, from, m, info.dtype, frame, size) == BITSNAP_OK);
            REQUIRE(!memcmp(range, out[0] + from * info.width, (size_t)m * info.width));
            REQUIRE(bitsnap_verify(&b, out[0], info.count, info.dtype, frame, size) == BITSNAP_OK);
            free(range);
        } else if (info.count) {
            (void)bitsnap_decode_range(&b, out[0], info.count / 2, info.count - info.count / 2, info.dtype, frame, size);
        }
        again = bitsnap_test(&b, frame, size);
        if (!status) REQUIRE(!again);
        pull(&b, frame, size, status ? NULL : out[0], status);
    } else {
        (void)bitsnap_test(&b, frame, size);
        pull(&b, frame, size, NULL, BITSNAP_OK);
    }
    free(out[0]);
    free(out[1]);
    free(frame);
    return 0;
}
