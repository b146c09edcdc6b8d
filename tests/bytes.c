/* Prints a line for each of many frames: what was encoded, its size, and XXH3-64 of its bytes. The lines must be the
 * same from every compiler, optimization level, byte order and table of kernels: tests/bytes.txt holds them.
 *   bytes           with the fastest table
 *   bytes NUMBER    with that table; nothing is printed where the machine does not have it */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#include "data.h"

static uint8_t workspace[BITSNAP_WORKSPACE];

int main(int argc, char **argv)
{
    static const struct {
        size_t n;
        unsigned log2;
    } sizes[] = { { 1, 0 }, { 20, 0 }, { 256, 0 }, { 1000, 6 }, { 4096, 0 }, { 70001, 0 } };
    bitsnap b;
    unsigned dtype, shape, level, i;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    if (argc > 1) {
        b.kernels = bitsnap_kernels_get((unsigned)atoi(argv[1]));
        if (!b.kernels) return 0;
    }
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (shape = 0; shape < DATA_SHAPES; shape++)
            for (level = 0; level < 3; level++) {
                const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
                i = (dtype + shape + level) % (sizeof sizes / sizeof *sizes);
                if (shape == DATA_WEIGHTS && level == 0) i = 5;
                {
                    const size_t n = sizes[i].n, bound = n * width + 16 * (n / 64 + 2) + 96;
                    uint8_t *elements = (uint8_t *)malloc(n * width), *frame = (uint8_t *)malloc(bound);
                    size_t size;
                    test_state = dtype * 100 + shape;
                    data_fill(elements, n, dtype, (int)shape);
                    b.block_log2 = sizes[i].log2;
                    b.level = (int)level;
                    b.flags = shape & 1 ? BITSNAP_CONTENT_ID : 0;
                    if (bitsnap_encode(&b, frame, bound, &size, elements, n, (bitsnap_dtype)dtype)) return 1;
                    printf("%s shape %u level %u, %lu elements: %lu bytes %08lx%08lx\n", bitsnap_dtype_name((bitsnap_dtype)dtype), shape, level,
                           (unsigned long)n, (unsigned long)size, (unsigned long)(bitsnap_hash(frame, size) >> 32),
                           (unsigned long)(bitsnap_hash(frame, size) & 0xFFFFFFFFu));
                    free(elements);
                    free(frame);
                }
            }
    return 0;
}
