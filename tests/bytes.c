/* Prints a line for each of many frames: what was encoded, its size, and XXH3-64 of its bytes. The lines must be the
 * same from every compiler, optimization level, byte order and table of kernels: tests/bytes.txt holds them.
 *   bytes           with the fastest table
 *   bytes NUMBER    with that table; nothing is printed where the machine does not have it */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#include "data.h"

static uint8_t workspace[BITSNAP_WORKSPACE_DELTA];

/* Quantized, and with columns: a matrix whose rows and columns differ in scale, and other shapes. */
static int quantized(bitsnap b)
{
    static const unsigned cells[5] = { 8, 35, 2048, 1, 0 };
    static const struct {
        size_t n, columns;
        unsigned log2;
    } sizes[] = { { 4096, 64, 0 }, { 1000, 33, 8 }, { 20, 4, 0 }, { 70001, 768, 0 }, { 1500, 0, 9 } };
    static const unsigned mantissa[4] = { 10, 7, 23, 52 };
    unsigned f, c, shape, i;
    for (f = 0; f < 4; f++)
        for (c = 0; c < 5; c++)
            for (shape = 0; shape < 4; shape++) {
                const bitsnap_dtype dtype = (bitsnap_dtype)(BITSNAP_F16 + f);
                const unsigned width = bitsnap_width(dtype);
                const size_t n = sizes[i = (f + c + shape) % 5].n, bound = n * width + 16 * (n / 64 + 2) + 128;
                uint8_t *elements = (uint8_t *)malloc(n * width), *frame = (uint8_t *)malloc(bound), *decoded = (uint8_t *)malloc(n * width);
                size_t size, j;
                test_state = f * 100 + c * 10 + shape;
                if (shape) data_fill(elements, n, dtype, shape == 1 ? DATA_WEIGHTS : shape == 2 ? DATA_SPECIAL : DATA_WIDE);
                for (j = 0; j < n && !shape; j++) {
                    const uint64_t r = test_random(), row = sizes[i].columns ? j / sizes[i].columns : 0, column = sizes[i].columns ? j % sizes[i].columns : j;
                    const uint64_t exponent = (f == 0 ? 15u : f == 3 ? 1023u : 127u) - row * 7 % 5 - column * 5 % 7;
                    data_store(elements + j * width, (r >> 63) << (8 * width - 1) | exponent << mantissa[f] | (r & ((UINT64_C(1) << mantissa[f]) - 1)), width);
                }
                b.level = cells[c] ? (int)(shape % 3) : BITSNAP_BEST;
                b.block_log2 = sizes[i].log2;
                b.flags = 0;
                b.quantizer.cells = cells[c];
                b.columns = sizes[i].columns;
                if (bitsnap_encode(&b, frame, bound, &size, elements, n, dtype) || bitsnap_decode(&b, decoded, n, dtype, frame, size)) return 1;
                for (j = 0; j < n * width && BSN_BIG_ENDIAN; j += width) { /* what is decoded is hashed in one order of bytes */
                    uint8_t one[8];
                    unsigned k;
                    memcpy(one, decoded + j, width);
                    for (k = 0; k < width; k++) decoded[j + k] = one[width - 1 - k];
                }
                printf("%s %u cells, shape %u, %lu elements, %lu columns: %lu bytes %08lx%08lx, decoded %08lx\n", bitsnap_dtype_name(dtype), cells[c], shape,
                       (unsigned long)n, (unsigned long)sizes[i].columns, (unsigned long)size, (unsigned long)(bitsnap_hash(frame, size) >> 32),
                       (unsigned long)(bitsnap_hash(frame, size) & 0xFFFFFFFFu), (unsigned long)(bitsnap_hash(decoded, n * width) & 0xFFFFFFFFu));
                free(elements);
                free(frame);
                free(decoded);
            }
    return 0;
}

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
    return quantized(b);
}
