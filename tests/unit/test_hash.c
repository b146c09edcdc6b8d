/* HASH: XXH3-64 against fixed values, against libxxhash if it is installed, in pieces, on every table. */
#include "test.h"
#include <iso646.h> /* makes operators of and, or, xor: the headers must not mind */
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

#if defined(__has_include)
#if __has_include(<xxhash.h>)
#define XXH_INLINE_ALL
#define XXH_VECTOR 0 /* XXH_SCALAR: this test must not depend on the vector code of its reference */
#include <xxhash.h>
#define HAVE_XXHASH 1
#endif
#endif

static uint8_t data[70000];

static void fixed_values(void)
{
    /* XXH3_64bits of the first n bytes of the sequence b(i) = (i * 31 + (i >> 8)) mod 256 */
    static const struct {
        size_t n;
        uint64_t hash;
    } expected[] = {
        { 0, UINT64_C(0x2D06800538D394C2) },
        { 1, UINT64_C(0xC44BDFF4074EECDB) },
        { 2, UINT64_C(0x50A0DC43C774EB84) },
        { 3, UINT64_C(0x3698B80191E625F9) },
        { 4, UINT64_C(0x2E4AC2F1C52157FC) },
        { 8, UINT64_C(0x60E1BAA91347A1F2) },
        { 9, UINT64_C(0x9C88FC32C37B56CB) },
        { 16, UINT64_C(0xF9FBD0260BA978DF) },
        { 17, UINT64_C(0xC56F339D36CC73D7) },
        { 32, UINT64_C(0x7418FD090E5A8159) },
        { 33, UINT64_C(0xD80A3226002E02F8) },
        { 64, UINT64_C(0xEF5426B31747DB78) },
        { 65, UINT64_C(0xB98E2A2698771EC0) },
        { 96, UINT64_C(0x59D3B91AA4416FB9) },
        { 97, UINT64_C(0x3FEA7CC420F592C0) },
        { 128, UINT64_C(0x31CCF8DEC850D035) },
        { 129, UINT64_C(0xC72AF4C6AC4DEA94) },
        { 160, UINT64_C(0xABEE3507E5CB2A94) },
        { 240, UINT64_C(0xE315D53D5129EEDE) },
        { 241, UINT64_C(0x18773C512B008A63) },
        { 256, UINT64_C(0xCDD3578B9DF45E59) },
        { 512, UINT64_C(0x16ABF0502BA06BAA) },
        { 1023, UINT64_C(0xCBC276D0F95E9E68) },
        { 1024, UINT64_C(0x5A1893EDFFA2577C) },
        { 1025, UINT64_C(0x550ABE5D45DD663B) },
        { 1088, UINT64_C(0xD3EEBD69AB373526) },
        { 2048, UINT64_C(0x1125CC0C79331FCB) },
        { 4095, UINT64_C(0x3979E5849B774C20) },
        { 4096, UINT64_C(0xBE855965EAE8486B) }
    };
    uint8_t b[4096];
    size_t i;
    for (i = 0; i < sizeof b; i++) b[i] = (uint8_t)(i * 31 + (i >> 8));
    for (i = 0; i < sizeof expected / sizeof *expected; i++)
        CHECK(bitsnap_hash(b, expected[i].n) == expected[i].hash, "length %zu", expected[i].n);
    CHECK(bitsnap_hash(NULL, 0) == expected[0].hash, "nothing");
}

static void every_table_agrees(void)
{
    const bitsnap_kernels *k;
    unsigned t;
    size_t n, at;
    for (t = 1; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (n = 0; n < 3000; n += n < 1200 ? 1 : 37) {
            at = test_below(64);
            CHECK(bsn_hash_of(k, data + at, n) == bsn_hash_of(bitsnap_kernels_get(0), data + at, n), "%s, length %zu",
                  bitsnap_kernels_name(k), n);
        }
}

/* the incremental forms equal the whole */
static void pieces(void)
{
    const bitsnap_kernels *k;
    unsigned t, round;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        for (round = 0; round < 2000; round++) {
            const size_t n = round < 600 ? round : test_below(9000);
            const uint64_t whole = bsn_hash_of(k, data, n);
            bsn_pieces pieces;
            bsn_hasher hasher;
            size_t i = 0;
            bsn_pieces_begin(&pieces, n);
            while (i < n) {
                size_t m = 1 + test_below(round & 1 ? 300 : 64);
                if (m > n - i) m = n - i;
                bsn_pieces_add(k, &pieces, data + i, m);
                i += m;
            }
            CHECK(bsn_pieces_end(&pieces) == whole, "pieces of %zu", n);
            bsn_hash_begin(&hasher, n);
            for (i = 0; i < n; i += 64 * (1 + test_below(5))) bsn_hash_feed(k, &hasher, data, i);
            CHECK(bsn_hash_end(k, &hasher, data) == whole, "fed %zu", n);
        }
    }
}

#ifdef HAVE_XXHASH
static void libxxhash_agrees(void)
{
    size_t n, at;
    for (n = 0; n <= 2200; n++) {
        at = test_below(64);
        CHECK(bitsnap_hash(data + at, n) == XXH3_64bits(data + at, n), "length %zu", n);
    }
    for (n = 2200; n <= 69000; n += 1 + test_below(400))
        CHECK(bitsnap_hash(data, n) == XXH3_64bits(data, n), "length %zu", n);
}
#endif

/* the content id is a tree: formed here by its definition */
static void content_ids(void)
{
    static const uint64_t counts[] = { 0, 1, 63, 64, 65535, 65536, 65537, 131072, 200000 };
    size_t i;
    unsigned dtype;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
        const unsigned w = bitsnap_width((bitsnap_dtype)dtype);
        for (i = 0; i < sizeof counts / sizeof *counts; i++) {
            uint8_t *p = (uint8_t *)malloc((size_t)counts[i] * w + 1), root[8 * 6];
            size_t leaves = 0, j;
            test_fill(p, (size_t)counts[i] * w);
            for (j = 0; j < counts[i]; j += 65536) {
                const size_t n = counts[i] - j < 65536 ? (size_t)counts[i] - j : 65536;
                bsn_store64(root + 8 * leaves++, bitsnap_hash(p + j * w, n * w));
            }
            bsn_store64(root + 8 * leaves++, dtype);
            bsn_store64(root + 8 * leaves++, counts[i]);
            CHECK(bitsnap_content_id(p, counts[i], (bitsnap_dtype)dtype) == bitsnap_hash(root, 8 * leaves),
                  "dtype %u, %llu elements", dtype, (unsigned long long)counts[i]);
            free(p);
        }
    }
}

int main(void)
{
    test_program = "hash";
    test_fill(data, sizeof data);
    RUN(fixed_values);
    RUN(every_table_agrees);
    RUN(pieces);
    if (!BSN_BIG_ENDIAN) RUN(content_ids);
#ifdef HAVE_XXHASH
    RUN(libxxhash_agrees);
#else
    SKIP("libxxhash_agrees", "needs libxxhash-dev");
#endif
    return test_failures != 0;
}
