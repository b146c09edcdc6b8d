/* BYTES blocks: what their planes take, the same bytes from every table and level that has a choice, and back again. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#include "data.h"

/* What a plane holds: all alike; random; two values; alike but for one element, or for what a glance does not see; ascending, so
 * that neighbours are alike; few values of both signs. */
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

/* The most bytes that a plane of n may take with its list's kind, 0 where that is not known. */
static size_t plane_most(unsigned kind, size_t n)
{
    return kind == ALIKE ? 2 : kind == NOISE || kind == ASCENDING ? n + 1 : kind == TWO ? n / 8 + 140 : kind == SMALL ? n * 7 / 16 + 150 : 0;
}

/* Elements whose plane k, in the order of elements, is of kind (first + k) % PLANES. */
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

int main(void)
{
    test_program = "integers";
    RUN(planes);
    return test_failures != 0;
}
