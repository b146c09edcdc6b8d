/* Byte grouping alone. Splitting and joining restores the elements, every kernel table gives the right planes, and nothing
 * outside of n elements is touched.
 * Input: the dtype (1 byte); the elements. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bitsnap_kernels *kernels;
    const uint8_t *elements;
    uint8_t *planes, *first, *back;
    bitsnap_dtype dtype;
    size_t n;
    unsigned width, t;
    fuzz_drop(0);
    if (size < 1) return 0;
    dtype = (bitsnap_dtype)(data[0] % 13);
    width = bitsnap_width(dtype);
    n = width ? (size - 1) / width : 1;
    elements = fuzz_copy(data + 1, n * width);
    planes = fuzz_room(n * width);
    first = fuzz_room(n * width);
    back = fuzz_room(n * width);
    if (!width) {
        REQUIRE(bitsnap_planes_split(NULL, planes, elements, n, dtype) == BITSNAP_E_ARGUMENT);
        return 0;
    }
    for (t = 0; (kernels = bitsnap_kernels_get(t)) != NULL; t++) {
        REQUIRE(bitsnap_planes_split(kernels, t ? planes : first, elements, n, dtype) == BITSNAP_OK);
        REQUIRE(!t || !memcmp(planes, first, n * width));
        memset(back, 0xB7, n * width);
        REQUIRE(bitsnap_planes_join(kernels, back, first, n, dtype) == BITSNAP_OK && !memcmp(back, elements, n * width));
    }
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const size_t counts[] = { 0, 1, 63, 64, 200, 1000 };
    const size_t size = number < 78 ? 1 + 8 * counts[number / 13] : 0;
    size_t i;
    REQUIRE(size <= room);
    for (i = 1; i < size; i++) to[i] = (uint8_t)(i * i >> 3 ^ i);
    if (size) to[0] = (uint8_t)(number % 13);
    return size;
}
