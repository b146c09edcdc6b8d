/* What a buffer would take is guessed near to what it takes, with its dtype and the byte that the first element begins at. */
#include "test.h"
#include <time.h>
#include "bitsnap_simd.h"
#include "data.h"

#define MOST (16u << 20)
static uint8_t buffer[MOST + 64], frame[MOST + (1u << 20)];
static uint8_t workspace[BITSNAP_WORKSPACE];

static bitsnap fresh(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    return b;
}

/* Guesses, encodes, and compares: at most `percent`, and 100 bytes for small ones, off. */
static bitsnap_guess near(const uint8_t *p, size_t size, double percent, const char *what)
{
    bitsnap b = fresh();
    bitsnap_guess guess;
    size_t is = 0;
    double off;
    CHECK(!bitsnap_estimate(&b, p, size, &guess), "%s: %s", what, bitsnap_message(&b));
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &is, p + guess.phase, guess.count, guess.dtype));
    CHECK(guess.phase + guess.count * bitsnap_width(guess.dtype) <= size);
    off = ((double)guess.size - (double)is) / (double)is * 100;
    CHECK((off < percent && off > -percent) || (guess.size < is + 100 && is < guess.size + 100), "%s: %lu, not %lu: %.2f %% off", what,
          (unsigned long)is, (unsigned long)guess.size, off);
    return guess;
}

/* Weights of all dtypes whose place in memory makes a difference, from every byte on; of those told, others. */
static void dtypes(void)
{
    static const bitsnap_dtype floats[] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static const size_t sizes[] = { 16384, 100000, 4000000 };
    size_t i, k;
    unsigned phase, dtype;
    for (k = 0; k < 3; k++) {
        for (i = 0; i < 4; i++) {
            const unsigned width = bitsnap_width(floats[i]);
            for (phase = 0; phase < width; phase++) {
                bitsnap_guess guess;
                test_fill(buffer, phase);
                data_fill(buffer + phase, sizes[k] / width, floats[i], DATA_WEIGHTS);
                guess = near(buffer, phase + sizes[k], 4, bitsnap_dtype_name(floats[i]));
                CHECK(guess.dtype == floats[i] && guess.phase == phase && guess.count == sizes[k] / width, "%s from byte %u is %s from byte %u",
                      bitsnap_dtype_name(floats[i]), phase, bitsnap_dtype_name(guess.dtype), guess.phase);
            }
        }
        for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
            const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
            bitsnap_guess guess;
            bitsnap b = fresh();
            size_t is;
            data_fill(buffer, sizes[k] / width, dtype, DATA_WEIGHTS);
            CHECK(!bitsnap_estimate(&b, buffer, sizes[k], &guess));
            CHECK(!bitsnap_encode(&b, frame, sizeof frame, &is, buffer, sizes[k] / width, (bitsnap_dtype)dtype));
            CHECK(guess.sizes[dtype] > is / 100 * 94 && guess.sizes[dtype] < is / 100 * 106 + 100, "%s: %lu, not %lu",
                  bitsnap_dtype_name((bitsnap_dtype)dtype), (unsigned long)is, (unsigned long)guess.sizes[dtype]);
        }
    }
}

/* What cannot be made smaller, and what is hardly anything. */
static void extremes(void)
{
    static const size_t sizes[] = { 4096, 65536, 1000003 };
    size_t k;
    for (k = 0; k < 3; k++) {
        bitsnap_guess guess;
        test_fill(buffer, sizes[k]);
        guess = near(buffer, sizes[k], 2, "noise");
        CHECK(guess.size >= sizes[k] / 100 * 98);
        memset(buffer, 0, sizes[k]);
        guess = near(buffer, sizes[k], 300, "zeros");
        CHECK(guess.size < 2000);
    }
}

/* Buffers of every size, of which nothing around them is read, and arguments that are none. */
static void edges(void)
{
    bitsnap b = fresh();
    bitsnap_guess guess;
    size_t size;
    unsigned dtype;
    for (size = 0; size < 600; size++) {
        int front;
        for (front = 0; front < 2; front++) {
            guarded g = guarded_alloc(size, front);
            test_fill(g.p, size);
            CHECK(!bitsnap_estimate(&b, g.p, size, &guess) && guess.dtype >= BITSNAP_BOOL && guess.size >= guess.count / 2);
            for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++)
                CHECK(guess.sizes[dtype] <= bitsnap_bound(NULL, size / bitsnap_width((bitsnap_dtype)dtype), (bitsnap_dtype)dtype));
            guarded_free(g);
        }
    }
    for (size = 4000; size < 20000; size += 509) {
        guarded g = guarded_alloc(size, 0);
        memset(g.p, 7, size);
        CHECK(!bitsnap_estimate(&b, g.p, size, &guess));
        guarded_free(g);
    }
    CHECK(!bitsnap_estimate(&b, NULL, 0, &guess) && guess.count == 0);
    CHECK(bitsnap_estimate(&b, NULL, 1, &guess) == BITSNAP_E_ARGUMENT && bitsnap_estimate(&b, buffer, 1, NULL) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_estimate(NULL, buffer, 1, &guess) == BITSNAP_E_ARGUMENT);
    b.workspace_size = 1000;
    CHECK(bitsnap_estimate(&b, buffer, 1000, &guess) == BITSNAP_E_WORKSPACE);
}

/* Real checkpoints, whose dtype stands in their names, shifted by 0 to 3 bytes. */
static void files(void)
{
    static const struct { const char *name; bitsnap_dtype dtype; } all[] = {
        { "bf16-1000", BITSNAP_BF16 }, { "bf16-2400", BITSNAP_BF16 }, { "bf16-tune1", BITSNAP_BF16 }, { "fp16-1000", BITSNAP_F16 },
        { "master-1000", BITSNAP_F32 }, { "adam_m-1000", BITSNAP_F32 }, { "adam_v-1000", BITSNAP_F32 }
    };
    const char *folder = getenv("DATA");
    size_t i, found = 0;
    char path[4096];
    if (!folder || !*folder) folder = "../shared/data";
    for (i = 0; i < sizeof all / sizeof *all; i++) {
        FILE *f;
        size_t size, text, shift;
        uint64_t length;
        snprintf(path, sizeof path, "%s/%s.safetensors", folder, all[i].name);
        f = fopen(path, "rb");
        if (!f) continue;
        size = fread(buffer, 1, MOST, f);
        fclose(f);
        if (size < 8) continue;
        memcpy(&length, buffer, 8);
        text = length < size ? 8 + (size_t)length : 8;
        found++;
        for (shift = 0; shift < 4; shift++) {
            const bitsnap_guess guess = near(buffer + text - shift, size - text + shift, 5, all[i].name);
            CHECK(guess.dtype == all[i].dtype && guess.phase == shift % bitsnap_width(guess.dtype), "%s, %u bytes earlier: %s from byte %u",
                  all[i].name, (unsigned)shift, bitsnap_dtype_name(guess.dtype), guess.phase);
        }
    }
    if (!found) SKIP("files", "no checkpoints in DATA");
}

/* The same time for any size. (Optimized it takes some 30 us.) */
static void cheap(void)
{
    bitsnap b = fresh();
    bitsnap_guess guess;
    clock_t least = CLOCKS_PER_SEC;
    unsigned i, k;
    data_fill(buffer, MOST / 2, BITSNAP_BF16, DATA_WEIGHTS);
    for (i = 0; i < 20; i++) {
        clock_t t = clock();
        for (k = 0; k < 50; k++) CHECK(!bitsnap_estimate(&b, buffer, MOST, &guess));
        t = clock() - t;
        if (t < least) least = t;
    }
    CHECK((double)least / 50 / CLOCKS_PER_SEC < 0.001, "%.0f us", (double)least / 50 / CLOCKS_PER_SEC * 1e6);
}

int main(void)
{
    test_program = "estimate";
    RUN(dtypes);
    RUN(extremes);
    RUN(edges);
    RUN(files);
    RUN(cheap);
    return test_failures != 0;
}
