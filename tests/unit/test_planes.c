/* PLANES: split and join against docs/FORMAT.md, for every 8- and 16-bit value and every table. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#include "data.h"

static const struct {
    bitsnap_dtype dtype;
    unsigned width, symbol;
    const char *name;
} dtypes[] = { { BITSNAP_BOOL, 1, 0, "BOOL" },       { BITSNAP_I8, 1, 0, "I8" },           { BITSNAP_I16, 2, 0, "I16" },
               { BITSNAP_I32, 4, 0, "I32" },         { BITSNAP_I64, 8, 0, "I64" },         { BITSNAP_F8_E4M3, 1, 4, "F8_E4M3" },
               { BITSNAP_F8_E5M2, 1, 5, "F8_E5M2" }, { BITSNAP_F16, 2, 5, "F16" },         { BITSNAP_BF16, 2, 8, "BF16" },
               { BITSNAP_F32, 4, 8, "F32" },         { BITSNAP_F64, 8, 8, "F64" } };
#define DTYPES (sizeof dtypes / sizeof *dtypes)

/* field order, bit by bit: symbol, sign, rest */
static uint64_t reordered(uint64_t v, unsigned bits, unsigned e)
{
    uint64_t x = 0;
    unsigned i, from;
    for (i = bits; i-- > 0;) { /* bit i of x comes from bit `from` of v */
        if (e == 0) from = i;
        else if (i >= bits - e) from = i - 1;
        else if (i == bits - e - 1) from = bits - 1;
        else from = i;
        x |= ((v >> from) & 1) << i;
    }
    return x;
}

/* the element at position p of n, from the table of the document */
static size_t element_at(size_t p, size_t n, unsigned w)
{
    const size_t group = p / 64 * 64, q = (p % 64) % w, j = (p % 64) / w;
    return n - group < 64 ? p : group + 64 / w * q + j;
}

static void one(const bitsnap_kernels *k, size_t d, size_t n)
{
    const unsigned w = dtypes[d].width;
    const int front = (int)test_below(2);
    guarded from = guarded_alloc(n * w, front), planes = guarded_alloc(n * w, front), back = guarded_alloc(n * w, front);
    size_t p;
    unsigned b;
    test_fill(from.p, n * w);
    CHECK(bitsnap_planes_split(k, planes.p, from.p, n, dtypes[d].dtype) == BITSNAP_OK);
    for (p = 0; p < n; p++) {
        const uint64_t x = reordered(data_load(from.p + element_at(p, n, w) * w, w), 8 * w, dtypes[d].symbol);
        for (b = 0; b < w; b++)
            CHECK(planes.p[b * n + p] == (uint8_t)(x >> (8 * b)), "%s, %s, %zu elements: plane %u, position %zu",
                  bitsnap_kernels_name(k), dtypes[d].name, n, b, p);
    }
    CHECK(bitsnap_planes_join(k, back.p, planes.p, n, dtypes[d].dtype) == BITSNAP_OK);
    CHECK(!n || !memcmp(back.p, from.p, n * w), "%s %zu", dtypes[d].name, n);
    guarded_free(from);
    guarded_free(planes);
    guarded_free(back);
}

static void split_and_join(void)
{
    const bitsnap_kernels *k;
    unsigned t;
    size_t d, n;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (d = 0; d < DTYPES; d++)
            for (n = 0; n < 700; n += n < 200 ? 1 : 61) one(k, d, n);
}

static void every_value(void)
{
    static uint16_t all[65536], planes[65536], back[65536];
    const bitsnap_kernels *k;
    unsigned t, i;
    size_t d;
    for (i = 0; i < 65536; i++) all[i] = (uint16_t)i;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (d = 0; d < DTYPES; d++) {
            memset(back, 0, sizeof back);
            CHECK(bitsnap_planes_split(k, planes, all, 131072 / dtypes[d].width, dtypes[d].dtype) == BITSNAP_OK);
            CHECK(bitsnap_planes_join(k, back, planes, 131072 / dtypes[d].width, dtypes[d].dtype) == BITSNAP_OK);
            CHECK(!memcmp(all, back, sizeof all), "%s", dtypes[d].name);
        }
}

static void bit_planes(void)
{
    const bitsnap_kernels *k;
    unsigned t, varying, round;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++)
        for (round = 0; round < 4000; round++) {
            const size_t n = 1 + test_below(round & 1 ? 70 : 300);
            guarded bytes = guarded_alloc(n, 0), bits, back = guarded_alloc(n, 0);
            size_t i, at = 0, g;
            unsigned b;
            varying = (unsigned)test_below(256);
            bits = guarded_alloc(bsn_bits_size(varying, n), 0);
            test_fill(bytes.p, n);
            bsn_bits_take(k, bits.p, bytes.p, varying, n);
            for (g = 0; g < n; g += 64) /* the document's order */
                for (b = 0; b < 8; b++)
                    if (varying >> b & 1) {
                        const size_t m = n - g < 64 ? n - g : 64;
                        for (i = 0; i < m; i++)
                            CHECK((bits.p[at + i / 8] >> (i % 8) & 1) == (bytes.p[g + i] >> b & 1), "bit planes");
                        at += (m + 7) / 8;
                    }
            CHECK(at == bsn_bits_size(varying, n));
            CHECK(bsn_bits_tail_clear(bits.p, varying, n));
            for (i = 0; i < n; i++) back.p[i] = (uint8_t)(bytes.p[i] & ~varying);
            bsn_bits_put(k, back.p, back.p, 0, 0, bits.p, varying, n);
            CHECK(!memcmp(back.p, bytes.p, n));
            if (n % 8 && varying) {
                bits.p[at - 1] |= 0x80;
                CHECK(!bsn_bits_tail_clear(bits.p, varying, n));
            }
            guarded_free(bytes);
            guarded_free(bits);
            guarded_free(back);
        }
}

static void dtype_facts(void)
{
    size_t d;
    for (d = 0; d < DTYPES; d++) {
        CHECK(bitsnap_width(dtypes[d].dtype) == dtypes[d].width);
        CHECK(!strcmp(bitsnap_dtype_name(dtypes[d].dtype), dtypes[d].name));
    }
    CHECK(bitsnap_width((bitsnap_dtype)0) == 0 && bitsnap_width((bitsnap_dtype)12) == 0);
    CHECK(!strcmp(bitsnap_dtype_name((bitsnap_dtype)77), "?"));
    CHECK(bitsnap_planes_split(NULL, NULL, NULL, 0, (bitsnap_dtype)12) == BITSNAP_E_ARGUMENT);
}

int main(void)
{
    test_program = "planes";
    RUN(dtype_facts);
    RUN(split_and_join);
    RUN(every_value);
    RUN(bit_planes);
    return test_failures != 0;
}
