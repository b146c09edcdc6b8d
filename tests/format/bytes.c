/* Prints a line for each of many frames: what was encoded, its size, and XXH3-64 of its bytes. The lines must be the
 * same from every compiler, optimization level, byte order and table of kernels: tests/format/bytes.txt holds them.
 *   bytes           with the fastest table
 *   bytes NUMBER    with that table; nothing is printed where the machine does not have it */
#include "tests/unit/test.h"
#define BITSNAP_IMPLEMENTATION
#include "tests/unit/inside.h"
#include "tests/unit/data.h"

static void line(const bitsnap *b, const char *what, unsigned number, const uint8_t *elements, size_t n, bitsnap_dtype dtype)
{
    bitsnap c = *b;
    const size_t bound = n * bitsnap_width(dtype) + 16 * (n / 64 + 2) + 160;
    uint8_t *frame = (uint8_t *)malloc(bound);
    size_t size;
    if (bitsnap_encode(&c, frame, bound, &size, elements, n, dtype)) exit(1);
    printf("%s %s %u level %d, %lu elements: %lu bytes %08lx%08lx\n", bitsnap_dtype_name(dtype), what, number, c.level,
           (unsigned long)n, (unsigned long)size, (unsigned long)(bitsnap_hash(frame, size) >> 32),
           (unsigned long)(bitsnap_hash(frame, size) & 0xFFFFFFFFu));
    free(frame);
}

/* Quantized, and with columns: a matrix whose rows and columns differ in scale, and other shapes. */
static void quantized(bitsnap b)
{
    static const bitsnap_quantizer quantizers[7] = { { 8, 0 }, { 35, 0 }, { 2048, 0 }, { 1, 0 }, { 0, 0 }, { 0, 16 }, { 0, 256 } };
    static const struct {
        size_t n, columns;
        unsigned log2;
    } sizes[] = { { 4096, 64, 0 }, { 1000, 33, 8 }, { 20, 4, 0 }, { 70001, 768, 0 }, { 1500, 0, 9 } };
    static const unsigned mantissa[4] = { 10, 7, 23, 52 };
    unsigned f, c, shape, i;
    for (f = 0; f < 4; f++)
        for (c = 0; c < 7; c++)
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
                b.level = c == 4 ? BITSNAP_BEST : 1 + (int)(shape % 3);
                b.block_log2 = sizes[i].log2;
                b.flags = 0;
                b.quantizer = quantizers[c];
                b.columns = sizes[i].columns;
                if (bitsnap_encode(&b, frame, bound, &size, elements, n, dtype) || bitsnap_decode(&b, decoded, n, dtype, frame, size)) exit(1);
                for (j = 0; j < n * width && BSN_BIG_ENDIAN; j += width) { /* the hash is of little-endian elements */
                    uint8_t one[8];
                    unsigned k;
                    memcpy(one, decoded + j, width);
                    for (k = 0; k < width; k++) decoded[j + k] = one[width - 1 - k];
                }
                printf("%s %u cells, %u clusters, shape %u, %lu elements, %lu columns: %lu bytes %08lx%08lx, decoded %08lx\n", bitsnap_dtype_name(dtype), b.quantizer.bins, b.quantizer.clusters, shape,
                       (unsigned long)n, (unsigned long)sizes[i].columns, (unsigned long)size, (unsigned long)(bitsnap_hash(frame, size) >> 32),
                       (unsigned long)(bitsnap_hash(frame, size) & 0xFFFFFFFFu), (unsigned long)(bitsnap_hash(decoded, n * width) & 0xFFFFFFFFu));
                free(elements);
                free(frame);
                free(decoded);
            }
}

static void frames(bitsnap b)
{
    static const struct {
        size_t n;
        unsigned log2;
    } sizes[] = { { 1, 0 }, { 20, 0 }, { 256, 0 }, { 1000, 6 }, { 4096, 0 }, { 70001, 0 } };
    unsigned dtype, shape, level, i;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (shape = 0; shape < DATA_SHAPES; shape++)
            for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
                uint8_t *elements;
                i = (dtype + shape + level) % (sizeof sizes / sizeof *sizes);
                if (shape == DATA_WEIGHTS && level == BITSNAP_DEFAULT) i = 5;
                elements = (uint8_t *)malloc(sizes[i].n * bitsnap_width((bitsnap_dtype)dtype));
                test_state = dtype * 100 + shape;
                data_fill(elements, sizes[i].n, dtype, (int)shape);
                b.block_log2 = sizes[i].log2;
                b.level = (int)level;
                b.flags = shape & 1 ? BITSNAP_CONTENT_ID : 0;
                line(&b, "shape", shape, elements, sizes[i].n, (bitsnap_dtype)dtype);
                free(elements);
            }
}

/* Deltas: about 1 of every[rate] elements changes, usually by little. BF16 has one large cell. */
static void deltas(bitsnap b)
{
    static const unsigned every[] = { 1, 3, 100, 3000, 30000 };
    unsigned dtype, rate;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
        for (rate = 0; rate < 5; rate++) {
            const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
            const size_t n = dtype == BITSNAP_BF16 ? 500000 : 20000 + 30000 * (size_t)rate;
            uint8_t *base = (uint8_t *)malloc(n * width), *elements = (uint8_t *)malloc(n * width);
            size_t i;
            test_state = dtype * 100 + rate;
            data_fill(base, n, dtype, DATA_WEIGHTS);
            memcpy(elements, base, n * width);
            for (i = 0; i < n; i++) {
                const uint64_t r = test_random(), x = bsn_element_load(base + i * width, width);
                if (r % every[rate]) continue;
                data_store(elements + i * width, (r >> 20) % 50 ? x + ((r >> 30) & 7) - 3 : r >> 4, width);
            }
            b.base.data = base;
            b.base.count = n;
            b.base.dtype = (bitsnap_dtype)dtype;
            b.level = 1 + (int)((dtype + rate) % 3);
            b.flags = (dtype + rate) % 5 ? 0 : BITSNAP_SELF_CONTAINED;
            line(&b, "delta, changed one in", every[rate], elements, n, (bitsnap_dtype)dtype);
            free(base);
            free(elements);
        }
}

/* Steps of training, level fast: small differences throughout, and larger ones that samples of words may miss: everywhere, in one
 * chunk alone, nowhere. */
static void steps(bitsnap b)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static const char *const names[] = { "steps, some larger,", "steps, few larger,", "steps," };
    static const unsigned bits[] = { 4, 7, 10, 15, 62 };
    const size_t n = 150000;
    unsigned d, k, where;
    for (d = 0; d < 4; d++)
        for (k = 0; k < 5; k++)
            for (where = 0; where < 3; where++) {
                const unsigned width = bitsnap_width(dtypes[d]);
                uint8_t *base = (uint8_t *)malloc(n * width), *elements = (uint8_t *)malloc(n * width);
                size_t i;
                test_state = d * 100 + k * 10 + where;
                data_fill(base, n, dtypes[d], DATA_WEIGHTS);
                for (i = 0; i < n; i++) {
                    const uint64_t r = test_random(), s = test_random(), x = bsn_element_load(base + i * width, width);
                    const int larger = where == 0 ? r % 1000 == 0 : where == 1 && i / 4096 == 3 && r % 100 == 0;
                    const uint64_t step = (s & ((UINT64_C(1) << bits[k]) - 1)) - (UINT64_C(1) << bits[k] >> 1);
                    data_store(elements + i * width, x + step + (larger ? 20000 : 0), width);
                }
                b.base.data = base;
                b.base.count = n;
                b.base.dtype = dtypes[d];
                b.level = BITSNAP_FAST;
                line(&b, names[where], bits[k], elements, n, dtypes[d]);
                free(base);
                free(elements);
            }
}

int main(int argc, char **argv)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    if (argc > 1) {
        b.kernels = bitsnap_kernels_get((unsigned)atoi(argv[1]));
        if (!b.kernels) return 0;
    }
    b.workspace_size = test_workspace_delta(19, 1);
    b.workspace = malloc(b.workspace_size);
    frames(b);
    deltas(b);
    steps(b);
    quantized(b);
    free(b.workspace);
    return 0;
}
