/* Quantizing. Elements of any float dtype come back within the bound, also in frames with columns. Every kernel table gives the
 * same bytes, and quantizing the result changes nothing. Clusters have no bound. There, hostile ends, labels and codes are
 * refused or give numbers, and infinities and NaNs are kept.
 * Input: what to do and dtype (1 byte), cells or clusters (2), columns (1), options (1), chance (1); then elements, or ends,
 * labels and codes. */
#include "fuzz.h"

#define HEAD 6

static uint64_t load(const uint8_t *p, unsigned width)
{
    uint64_t v = 0;
    uint32_t s;
    uint16_t h;
    if (width == 2) return memcpy(&h, p, 2), h;
    if (width == 4) return memcpy(&s, p, 4), s;
    return memcpy(&v, p, 8), v;
}

static unsigned mantissa_of(bitsnap_dtype dtype)
{
    return dtype == BITSNAP_F16 ? 10 : dtype == BITSNAP_BF16 ? 7 : dtype == BITSNAP_F32 ? 23 : 52;
}

/* Returns whether y is within the bound of x and of the same kind. Compares significands of one octave, as integers. */
static int near(uint64_t x, uint64_t y, bitsnap_dtype dtype, uint64_t bound)
{
    const unsigned width = bitsnap_width(dtype), m = mantissa_of(dtype);
    const uint64_t magnitude = ~UINT64_C(0) >> (65 - 8 * width);
    uint64_t a = x & magnitude, b = y & magnitude, d;
    if (x == y) return 1;
    if (!a || !b || (x ^ y) > magnitude || a >> m == magnitude >> m || b >> m == magnitude >> m) return 0;
    if (a >> m != b >> m) return 0; /* a cell lies in one octave */
    if (a >> m) {
        a = (a & ((UINT64_C(1) << m) - 1)) | UINT64_C(1) << m;
        b = (b & ((UINT64_C(1) << m) - 1)) | UINT64_C(1) << m;
    }
    d = a > b ? a - b : b - a;
    if (m <= 23 || a >> 39 == 0) return d << 24 <= bound * a;
    return d <= (a >> 24) * bound + ((a & 0xFFFFFF) * bound >> 24);
}

/* 0: a zero; 1: a number; 2: infinite or NaN */
static int kind(uint64_t v, bitsnap_dtype dtype)
{
    const uint64_t magnitude = v & ~UINT64_C(0) >> (65 - 8 * bitsnap_width(dtype)), top = ~UINT64_C(0) >> (65 - 8 * bitsnap_width(dtype));
    return magnitude == 0 ? 0 : magnitude >> mantissa_of(dtype) == top >> mantissa_of(dtype) ? 2 : 1;
}

static unsigned bits_of(unsigned clusters)
{
    unsigned bits = 1;
    while (1u << bits < clusters) bits++;
    return bits;
}

/* Tests hostile ends, labels and codes. */
static void strange_clusters(const uint8_t *data, size_t size, bitsnap_dtype dtype, unsigned clusters)
{
    const unsigned width = bitsnap_width(dtype), bits = bits_of(clusters);
    /* the ends take half of the input at most */
    const unsigned used = (unsigned)(size / (4 * width) < clusters ? size / (4 * width) : clusters);
    const size_t left = size - 2 * width * used, n = left > 1 ? (left - 1) * 8 / (8 + bits) : 0;
    uint8_t *ends = fuzz_copy(data + HEAD, 2 * width * used), *labels = fuzz_copy(data + HEAD + 2 * width * used, (n * bits + 7) / 8);
    uint8_t *codes = fuzz_copy(data + HEAD + 2 * width * used + (n * bits + 7) / 8, n), *elements = fuzz_room(n * width);
    size_t i;
    if (bitsnap_cluster_decode(elements, n, dtype, ends, used, labels, codes, clusters) == BITSNAP_OK)
        for (i = 0; i < n; i++) REQUIRE(kind(load(elements + i * width, width), dtype) != 2);
}

/* Tests elements with clusters computed from them. */
static void own_clusters(const uint8_t *data, size_t size, bitsnap_dtype dtype, unsigned clusters)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t n = size / width, label_bytes = (n * bits_of(clusters) + 7) / 8, space_size = 16384 + 2 * n * width;
    uint8_t *elements = fuzz_copy(data + HEAD, n * width), *ends = fuzz_room(2 * width * clusters), *labels = fuzz_room(label_bytes);
    uint8_t *codes = fuzz_room(n), *out = fuzz_room(n * width), *space = fuzz_room(space_size);
    unsigned used;
    size_t i, special = 0;
    for (i = 0; i < n; i++) special += kind(load(elements + i * width, width), dtype) == 2;
    REQUIRE(bitsnap_cluster_encode(ends, &used, labels, codes, elements, n, dtype, clusters, space, space_size) == (special ? BITSNAP_E_ARGUMENT : BITSNAP_OK));
    if (!special) {
        REQUIRE(used <= clusters && used <= n);
        REQUIRE(bitsnap_cluster_decode(out, n, dtype, ends, used, labels, codes, clusters) == BITSNAP_OK);
        for (i = 0; i < n; i++) REQUIRE(kind(load(out + i * width, width), dtype) != 2);
    }
}

/* Tests a frame of elements: quantized by bins or by clusters, or (both 0) coded with scales only. Every kernel table must give
 * the same bytes, and elements of the same kind within the bound. */
static void round_trip(const uint8_t *data, size_t size, bitsnap_dtype dtype, unsigned cells, unsigned clusters)
{
    const unsigned width = bitsnap_width(dtype), log2 = data[4] & 1 ? 6 + (data[4] >> 1) % 4 : 0;
    const uint64_t bound = cells ? (uint64_t)(bitsnap_log_bound(cells) * 16777216) : 0;
    const size_t n = size / width, room = n * width + 16 * ((n >> (log2 ? log2 : 16)) + 1) + 128;
    uint8_t *elements = fuzz_copy(data + HEAD, n * width), *frame = fuzz_room(room), *other = fuzz_room(room), *out = fuzz_room(n * width), *small;
    bitsnap b = fuzz_codec(log2 ? log2 : 16);
    const bitsnap_kernels *k;
    bitsnap_info info;
    size_t coded = 0, again, i;
    unsigned t;
    b.block_log2 = log2;
    b.level = data[4] >> 3 & 3;
    if (!cells && !clusters) b.level = BITSNAP_BEST;
    b.flags = (data[4] & 32 ? BITSNAP_NO_CHECKS : 0u) | (data[4] & 64 ? BITSNAP_VERIFY : 0u);
    b.columns = data[3];
    b.quantizer.bins = cells;
    b.quantizer.clusters = clusters;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        REQUIRE(bitsnap_encode(&b, t ? other : frame, room, &again, elements, n, dtype) == BITSNAP_OK);
        if (t) REQUIRE(again == coded && !memcmp(frame, other, coded));
        coded = again;
        REQUIRE(bitsnap_decode(&b, out, n, dtype, frame, coded) == BITSNAP_OK);
        for (i = 0; i < n; i++) {
            const uint64_t x = load(elements + i * width, width), y = load(out + i * width, width);
            REQUIRE(clusters ? x == y || (kind(x, dtype) == 1 && kind(y, dtype) == 1) : near(x, y, dtype, bound));
        }
    }
    REQUIRE(bitsnap_verify(&b, out, n, dtype, frame, coded) == BITSNAP_OK);
    REQUIRE(bitsnap_read_info(&info, frame, coded) == BITSNAP_OK && info.bins == cells && info.clusters == clusters);
    if (cells || clusters) REQUIRE(info.certificate.counted <= n && info.certificate.exact <= n);
    if (cells) REQUIRE(info.certificate.max_relative <= info.certificate.bound);
    if (clusters) REQUIRE(info.certificate.bound == 0);
    again = (data[5] * 257u) % coded; /* a random size that is too small */
    small = fuzz_room(again);
    REQUIRE(bitsnap_encode(&b, small, again, &i, elements, n, dtype) != BITSNAP_OK && i == 0);
    if (!clusters) { /* quantizing again changes nothing */
        memcpy(elements, out, n * width);
        REQUIRE(bitsnap_encode(&b, frame, room, &coded, elements, n, dtype) == BITSNAP_OK);
        REQUIRE(bitsnap_decode(&b, out, n, dtype, frame, coded) == BITSNAP_OK && (!n || !memcmp(out, elements, n * width)));
    }
    b.flags |= BITSNAP_IGNORE_CHECKS; /* lets damage reach the decoder */
    for (i = 0; i < 20 && coded > info.header_size; i++) {
        frame[info.header_size + (data[5] * 7919u + i * 104729u) % (coded - info.header_size)] ^= (uint8_t)(1u << (data[3] + i) % 8);
        (void)bitsnap_decode(&b, out, n, dtype, frame, coded);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    bitsnap_dtype dtype;
    unsigned cells;
    fuzz_drop(0);
    if (size < HEAD) return 0;
    dtype = (bitsnap_dtype)(BITSNAP_F16 + data[0] % 4);
    cells = 1 + (data[1] + 256u * data[2]) % 2048;
    if (data[0] & 8) {
        const unsigned clusters = 2 + data[1] % 255u;
        if (data[0] & 4) strange_clusters(data, size - HEAD, dtype, clusters);
        else if (data[0] & 16) own_clusters(data, size - HEAD, dtype, clusters);
        else round_trip(data, size - HEAD, dtype, 0, clusters);
    } else {
        round_trip(data, size - HEAD, dtype, data[4] & 128 ? 0 : cells, 0);
    }
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const unsigned cells[5] = { 1, 8, 35, 70, 2048 };
    const bitsnap_dtype dtype = (bitsnap_dtype)(BITSNAP_F16 + number % 4);
    const unsigned width = bitsnap_width(dtype), n = 40 + 61 * (number % 7), c = cells[number / 4 % 5] - 1;
    const size_t size = HEAD + n * (number % 3 ? width : 4u);
    uint64_t state = number + 1;
    size_t i;
    if (number >= 180 || size > room) return 0;
    for (i = HEAD; i < size; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        to[i] = (uint8_t)(state >> 56);
        if (number % 3 && i % width == (HEAD + width - 1) % width) to[i] = (uint8_t)(0x3B ^ (state >> 40 & 3) ^ (state >> 33 & 0x80));
        if (number % 3 == 0 && i % 4 == (HEAD + 3) % 4) to[i] = 0;
    }
    to[0] = (uint8_t)(number % 4 | (number % 3 ? 0u : 4u) | (number < 60 ? 0u : number < 120 ? 8u : 24u));
    to[1] = (uint8_t)c;
    to[2] = (uint8_t)(c >> 8);
    to[3] = (uint8_t)(number % 5 * 5);
    to[4] = (uint8_t)(number * 29);
    to[5] = (uint8_t)(number % 3 ? number : 0);
    return size;
}
