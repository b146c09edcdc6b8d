/* BYTES and ZIGZAG blocks: the size of their planes, equal bytes from every table and level, and round trips. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
#include "data.h"

/* Kinds of planes: equal; random; two values; one other byte; one that a quick look misses; ascending, so that neighbours are
 * equal; small values of both signs. */
enum { ALIKE, NOISE, TWO, ONE_OTHER, HIDDEN, ASCENDING, SMALL, PLANES };

static uint8_t plane_byte(unsigned kind, size_t i, size_t n)
{
    const uint64_t r = test_random();
    switch (kind) {
    case NOISE: return (uint8_t)r;
    case TWO: return r & 1 ? 0xFF : 0;
    case ONE_OTHER: return (uint8_t)(i == n / 3 ? 8 : 7);
    case HIDDEN: return (uint8_t)(i % 32 == 11 || (i / 64) % 3 == 0 ? 7 : r);
    case ASCENDING: return (uint8_t)(i / 4);
    case SMALL: return (uint8_t)((r & 7) - 4);
    default: return 7;
    }
}

/* The largest size of a plane of n bytes; 0 if it is not known. */
static size_t plane_most(unsigned kind, size_t n)
{
    return kind == ALIKE ? 2 : kind == NOISE || kind == ASCENDING ? n + 1 : kind == TWO ? n / 8 + 140 : kind == SMALL ? n * 7 / 16 + 150 : 0;
}

/* Makes elements. Plane k, in element order, has kind (first + k) % PLANES. */
static void fill(uint8_t *elements, size_t n, unsigned width, unsigned first)
{
    size_t i;
    unsigned k;
    for (i = 0; i < n; i++) {
        uint64_t x = 0;
        for (k = 0; k < width; k++) x |= (uint64_t)plane_byte((first + k) % PLANES, i, n) << 8 * k;
        data_store(elements + i * width, x, width);
    }
}

static void frames(bitsnap b, size_t n, bitsnap_dtype dtype, unsigned first)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t bound = test_bound(n, dtype);
    guarded from = guarded_alloc(n * width, 0);
    uint8_t *frame = malloc(bound), *expected = malloc(bound), *decoded = malloc(n * width);
    unsigned table, level;
    size_t size, most = 100, expected_size = 0;
    fill(from.p, n, width, first);
    for (table = 0; table < width; table++) {
        const size_t plane = plane_most((first + table) % PLANES, n);
        most = plane ? most + plane : n * width + 100;
    }
    if (most > n * width + 100) most = n * width + 100;
    for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
        b.level = (int)level;
        for (table = 0; (b.kernels = bitsnap_kernels_get(table)) != NULL; table++) {
            CHECK(!bitsnap_encode(&b, frame, bound, &size, from.p, n, dtype), "%s %u", bitsnap_dtype_name(dtype), first);
            if (table == 0) memcpy(expected, frame, expected_size = size);
            CHECK(size == expected_size && !memcmp(frame, expected, size), "%s, planes from %u, %zu elements, level %u: %s makes other bytes",
                  bitsnap_dtype_name(dtype), first, n, level, bitsnap_kernels_name(b.kernels));
            CHECK(n > 65536 || size <= most, "%s, planes from %u, %zu elements, level %u: %zu bytes, not %zu", bitsnap_dtype_name(dtype),
                  first, n, level, size, most);
            memset(decoded, 0xA5, n * width);
            CHECK(!bitsnap_decode(&b, decoded, n, dtype, frame, size) && !memcmp(decoded, from.p, n * width),
                  "%s, planes from %u, %zu elements, level %u, %s: not as before", bitsnap_dtype_name(dtype), first, n, level,
                  bitsnap_kernels_name(b.kernels));
        }
    }
    free(frame);
    free(expected);
    free(decoded);
    guarded_free(from);
}

static void planes(void)
{
    static const size_t sizes[] = { 4095, 4096, 5000, 32767, 32768, 65536, 70001 };
    static const bitsnap_dtype dtypes[] = { BITSNAP_BOOL, BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64, BITSNAP_F64 };
    bitsnap b;
    unsigned first, d, i;
    memset(&b, 0, sizeof b);
    b.workspace_size = BITSNAP_WORKSPACE;
    b.workspace = malloc(b.workspace_size);
    for (d = 0; d < sizeof dtypes / sizeof *dtypes; d++)
        for (i = 0; i < sizeof sizes / sizeof *sizes; i++)
            for (first = 0; first < PLANES; first++)
                if (d < 3 || (first + i) % 3 == 0) frames(b, sizes[i], dtypes[d], first);
    free(b.workspace);
}

/* Integers of both signs with magnitudes up to `most`. One in `rare` is negative. */
static void fill_signed(uint8_t *elements, size_t n, unsigned width, uint64_t most, unsigned rare)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t r = test_random(), x = (r >> 8) % (most + 1);
        data_store(elements + i * width, rare && (r & 255) % rare == 0 ? 0 - x : x, width);
    }
}

/* Encodes n elements and returns the forms of the blocks, one bit each. Checks decoding, whole and in parts. */
static size_t forms_of(bitsnap *b, const uint8_t *elements, size_t n, bitsnap_dtype dtype, unsigned *forms)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t bound = test_bound(n, dtype);
    guarded to = guarded_alloc(n * width, 0);
    uint8_t *frame = malloc(bound);
    bitsnap_block block;
    bitsnap_info info;
    uint64_t first = 0;
    size_t size, at;
    CHECK(!bitsnap_encode(b, frame, bound, &size, elements, n, dtype) && !bitsnap_read_info(&info, frame, size));
    CHECK(!bitsnap_decode(b, to.p, n, dtype, frame, size) && !memcmp(to.p, elements, n * width), "%s: not as before", bitsnap_dtype_name(dtype));
    CHECK(!bitsnap_verify(b, elements, n, dtype, frame, size) && !bitsnap_test(b, frame, size));
    for (first = 1; first < n; first += n / 3) {
        const size_t some = n - (size_t)first < 5001 ? n - (size_t)first : 5001;
        CHECK(!bitsnap_decode_range(b, to.p, first, some, dtype, frame, size) && !memcmp(to.p, elements + first * width, some * width));
    }
    for (first = 0, at = info.header_size, *forms = 0; first < n; first += block.elements, at += (size_t)block.size) {
        CHECK(!bitsnap_read_block(b, &block, &info, first, frame + at, size - at), "%s", bitsnap_message(b));
        if (!block.elements) break;
        CHECK((block.form != BSN_FORM_BYTES && block.form != BSN_FORM_ZIGZAG) || block.parts == width);
        *forms |= 1u << block.form;
    }
    free(frame);
    guarded_free(to);
    return size;
}

/* Small integers of both signs cost little more than their magnitudes, for each width. Integers of one sign stay BYTES. */
static void signs(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_I16, BITSNAP_I32, BITSNAP_I64 };
    static const size_t sizes[] = { 256, 4097, 65536, 200003 };
    static uint8_t elements[8 * 200003];
    bitsnap b;
    unsigned d, i, forms, table;
    memset(&b, 0, sizeof b);
    b.workspace_size = BITSNAP_WORKSPACE;
    b.workspace = malloc(b.workspace_size);
    for (table = 0; (b.kernels = bitsnap_kernels_get(table)) != NULL; table++)
        for (d = 0; d < 3; d++)
            for (i = 0; i < 4; i++) {
                const size_t n = sizes[i];
                size_t size;
                fill_signed(elements, n, 2u << d, 60, 2);
                size = forms_of(&b, elements, n, dtypes[d], &forms);
                CHECK(forms == 1u << BSN_FORM_ZIGZAG && size < n * 15 / 16 + 250, "%s, %zu: forms %X, %zu bytes", bitsnap_dtype_name(dtypes[d]), n, forms, size);
                fill_signed(elements, n, 2u << d, 3000, 2);
                size = forms_of(&b, elements, n, dtypes[d], &forms);
                CHECK(d == 0 || forms == 1u << BSN_FORM_ZIGZAG, "%s, %zu: forms %X", bitsnap_dtype_name(dtypes[d]), n, forms);
                CHECK(n < 4097 || size < n * 13 / 8 + 400, "%s, %zu: %zu bytes", bitsnap_dtype_name(dtypes[d]), n, size);
                fill_signed(elements, n, 2u << d, 3000, 0);
                (void)forms_of(&b, elements, n, dtypes[d], &forms);
                CHECK(forms == 1u << BSN_FORM_BYTES, "%s, %zu: forms %X", bitsnap_dtype_name(dtypes[d]), n, forms);
            }
    free(b.workspace);
}

/* All codes of 16 bits, and the smallest and largest of other widths, alone and in vectors, in place and elsewhere. */
static void codes(void)
{
    static uint8_t from[8 * 65536], to[8 * 65536 + 1], back[8 * 65536];
    unsigned width;
    for (width = 2; width <= 8; width *= 2) {
        const unsigned bits = 8 * width;
        size_t i;
        for (i = 0; i < 65536; i++) data_store(from + i * width, i < 32768 || width == 2 ? i : i << (bits - 16) | (i & 255), width);
        bsn_zigzag(to + 1, from, 65535, width, 0);
        bsn_zigzag(back, to + 1, 65535, width, 1);
        CHECK(!memcmp(back, from, 65535 * width), "%u bytes", width);
        for (i = 0; i < 65535; i++) {
            const uint64_t v = bsn_element_load(from + i * width, width), z = bsn_element_load(to + 1 + i * width, width);
            if (z != (v >> (bits - 1) ? ~(v << 1) & ~UINT64_C(0) >> (64 - bits) : v << 1)) break;
        }
        CHECK(i == 65535, "%u bytes, element %zu", width, i);
        memcpy(back, from, sizeof back);
        bsn_zigzag(back, back, 65535, width, 0);
        CHECK(!memcmp(back, to + 1, 65535 * width), "%u bytes, in place", width);
    }
}

int main(void)
{
    test_program = "integers";
    RUN(planes);
    RUN(signs);
    RUN(codes);
    return test_failures != 0;
}
