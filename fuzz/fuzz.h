/* Shared code of the fuzz targets. A target is one file with LLVMFuzzerTestOneInput and fuzz_seed. build.sh links it to codec.c,
 * and to libFuzzer, another engine, or replay.c, which needs no engine. A target aborts the process if a promise that it tests
 * is broken.
 *
 * fuzz_room gives memory where the first byte past the end is noticed: from the heap under the sanitizers, otherwise just
 * before an inaccessible page. Each input begins with fuzz_drop(0). */
#ifndef BITSNAP_FUZZ_H
#define BITSNAP_FUZZ_H

#define _DEFAULT_SOURCE /* MAP_ANONYMOUS; before the first system header, and off_t as in the tool */
#define _FILE_OFFSET_BITS 64

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef FUZZ_INTERNALS /* a static copy of the portable codec, for functions that bitsnap.h does not declare */
#define BITSNAP_STATIC
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
#else
#include "bitsnap_simd.h" /* codec.c has the implementation */
#endif

#ifdef __has_feature
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer)
#define FUZZ_HEAP
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define FUZZ_HEAP
#endif

#define FUZZ_UNUSED __attribute__((unused))
#define FUZZ_OPTIONAL __attribute__((weak)) /* null if no object defines it */

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
FUZZ_OPTIONAL size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed);
FUZZ_OPTIONAL size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t room); /* from the fuzzing engine */

/* Writes seed `number` of a target, at most `room` bytes. Returns its size; 0 past the last one. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room);
#define FUZZ_SEED_MOST 8192u

#define REQUIRE(condition)                                                                            \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                   \
            abort();                                                                                  \
        }                                                                                             \
    } while (0)

/* ================================================================================= MEMORY */

enum { FUZZ_PLACES = 32 };
static uint8_t *fuzz_places[FUZZ_PLACES];
static unsigned fuzz_taken; /* number of places in use */

/* Returns exactly `size` uninitialized bytes. */
FUZZ_UNUSED static uint8_t *fuzz_room(size_t size)
{
    uint8_t **place = &fuzz_places[fuzz_taken++];
    REQUIRE(fuzz_taken <= FUZZ_PLACES);
#ifdef FUZZ_HEAP
    *place = (uint8_t *)malloc(size);
    REQUIRE(*place);
    return *place;
#else
    {
        const size_t most = (size_t)64 << 20, page = 65536;
        REQUIRE(size <= most);
        if (!*place) { /* pages cost nothing until they are touched */
            void *p = mmap(NULL, most + page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            REQUIRE(p != MAP_FAILED && !mprotect(p, most, PROT_READ | PROT_WRITE));
            *place = (uint8_t *)p;
        }
        return *place + most - size;
    }
#endif
}

/* Frees all places except the first `taken`. */
FUZZ_UNUSED static void fuzz_drop(unsigned taken)
{
#ifdef FUZZ_HEAP
    while (fuzz_taken > taken) free(fuzz_places[--fuzz_taken]);
#endif
    fuzz_taken = taken;
}

FUZZ_UNUSED static uint8_t *fuzz_copy(const uint8_t *p, size_t size)
{
    uint8_t *copy = fuzz_room(size);
    if (size) memcpy(copy, p, size);
    return copy;
}

FUZZ_UNUSED static uint8_t *fuzz_fill(size_t size, int byte)
{
    uint8_t *p = fuzz_room(size);
    if (size) memset(p, byte, size);
    return p;
}

/* Makes elements: zeros, a slope, or 2-byte numbers with similar upper bytes. */
FUZZ_UNUSED static uint8_t *fuzz_pattern(size_t size, unsigned kind)
{
    uint8_t *p = fuzz_room(size);
    size_t i;
    for (i = 0; i < size; i++) p[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? i * 37 >> 3 : i % 2 ? 0x3C + (i * i >> 5 & 3) : i * 11);
    return p;
}

/* Sets a workspace of `size` bytes. Heap memory is kept for later inputs, because large allocations are slow there. */
FUZZ_UNUSED static void fuzz_workspace(bitsnap *b, size_t size)
{
#ifdef FUZZ_HEAP
    static void *kept[4];
    static size_t sizes[4];
    static unsigned oldest;
    unsigned i = 0;
    while (i < 4 && sizes[i] != size) i++;
    if (i == 4) {
        i = oldest++ % 4;
        free(kept[i]);
        kept[i] = malloc(size);
        sizes[i] = size;
        REQUIRE(kept[i]);
    }
    b->workspace = kept[i];
#else
    b->workspace = fuzz_room(size);
#endif
    b->workspace_size = size;
}

FUZZ_UNUSED static void fuzz_never(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    (void)context, (void)task, (void)argument, (void)count;
}

/* Returns a workspace size for blocks of this size, with a base or quantized, and this number of workers; enough for two to
 * merge. */
FUZZ_UNUSED static size_t fuzz_workspace_size(unsigned block_log2, unsigned workers)
{
    static const bitsnap_base base = { "", 0, BITSNAP_F64, 0, 0, 0, { NULL, NULL, NULL, 0 } };
    size_t most = 0, size;
    unsigned i;
    for (i = 0; i < 3; i++) { /* with a base, with bins and columns, with clusters */
        bitsnap b;
        memset(&b, 0, sizeof b);
        b.block_log2 = block_log2 < 16 ? 16 : block_log2;
        if (i == 0) b.base = base;
        if (i == 1) b.quantizer.bins = 64, b.columns = 16;
        if (i == 2) b.quantizer.clusters = 4;
        b.run = workers > 1 ? fuzz_never : NULL;
        b.workers = workers;
        size = bitsnap_workspace_size(&b, UINT64_C(1) << b.block_log2, BITSNAP_F64);
        if (size > most) most = size;
    }
    return most;
}

/* Returns a codec that can decode all blocks of this size, including quantized ones. */
FUZZ_UNUSED static bitsnap fuzz_codec(unsigned block_log2)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, fuzz_workspace_size(block_log2, 1));
    return b;
}

/* The outcome of a call, which must be the same with all kernel tables. */
typedef struct fuzz_outcome {
    bitsnap_status status;
    unsigned rule;
    uint64_t offset, element;
} fuzz_outcome;

FUZZ_UNUSED static bitsnap_status fuzz_agree(const bitsnap *b, bitsnap_status status, fuzz_outcome *first, unsigned table)
{
    const fuzz_outcome now = { status, b->error.rule, b->error.offset + b->error.needed, b->error.element };
    REQUIRE(b->error.status == status);
    if (!table) *first = now;
    REQUIRE(now.status == first->status && now.rule == first->rule && now.offset == first->offset && now.element == first->element);
    return status;
}

/* A parallel loop in one thread, from the last task to the first. Workers alternate. */
FUZZ_UNUSED static void fuzz_run(void *workers, bitsnap_task task, void *argument, uint64_t count)
{
    while (count--) task(argument, count, (unsigned)(count % *(const unsigned *)workers));
}

/* ================================================================================= SEEDS */

/* Returns noise that is the same on every machine. */
FUZZ_UNUSED static uint8_t fuzz_noise(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint8_t)(*state >> 56);
}

/* Makes elements of all dtypes, from noise to nearly constant. Returns their number; 0 past the last seed. */
FUZZ_UNUSED static size_t fuzz_seed_elements(unsigned number, uint8_t *to, bitsnap_dtype *dtype)
{
    const unsigned shape = number / 11 % 6, width = bitsnap_width((bitsnap_dtype)(1 + number % 11));
    const size_t n = shape == 5 ? 20 : 100 + 30 * shape;
    uint64_t state = number;
    size_t i;
    if (number >= 66) return 0;
    *dtype = (bitsnap_dtype)(1 + number % 11);
    for (i = 0; i < n * width; i++) {
        const unsigned x = fuzz_noise(&state), y = fuzz_noise(&state);
        const int top = i % width == width - 1;
        to[i] = (uint8_t)(shape == 0 ? x : shape == 1 ? 0 : shape == 2 ? (x % 9 ? 0 : y) : shape == 3 ? 0x3C + (x & y & 7) : top ? 0xBC ^ (x % 3) << 7 : y);
    }
    return n;
}

/* Encodes the bytes of these elements as a list. Returns its size, and the number of symbols in *count. */
FUZZ_UNUSED static size_t fuzz_seed_list(unsigned number, uint8_t *to, size_t room, size_t *count)
{
    static uint8_t elements[4096];
    bitsnap_dtype dtype;
    bitsnap b;
    size_t size;
    fuzz_drop(0);
    b = fuzz_codec(16);
    *count = fuzz_seed_elements(number, elements, &dtype);
    if (!*count) return 0;
    *count *= bitsnap_width(dtype);
    b.level = (int)(number % 4);
    REQUIRE(!bitsnap_list_encode(&b, to, room, &size, elements, *count));
    return size;
}

/* Encodes these elements as a frame; later numbers give rows and columns of several scales, quantized or not. */
FUZZ_UNUSED static size_t fuzz_seed_frame(unsigned number, uint8_t *to, size_t room)
{
    static uint8_t elements[4096];
    const unsigned shape = number / 11 % 6, i = number - 66;
    const unsigned taken = fuzz_taken;
    bitsnap b = fuzz_codec(16);
    bitsnap_dtype dtype;
    size_t n = fuzz_seed_elements(number, elements, &dtype), size, j;
    if (n) {
        b.block_log2 = shape % 2 ? 6 : 0;
        b.level = (int)(shape % 4);
        b.flags = shape & 4 ? BITSNAP_CONTENT_ID : 0;
    } else if (i < 24) {
        uint64_t state = number;
        const unsigned width = bitsnap_width(dtype = (bitsnap_dtype)(BITSNAP_F16 + i % 4));
        n = 512;
        for (j = 0; j < n * width; j++) { /* rows of 16, each of another scale */
            const unsigned row = (unsigned)(j / width / 16) * 7 % 5, x = fuzz_noise(&state);
            elements[j] = (uint8_t)(j % width < width - 1 ? x : (0x38 + (dtype == BITSNAP_F16 ? row : row / 2)) ^ (x & 0x80));
        }
        b.level = BITSNAP_BEST;
        b.block_log2 = i / 4 % 2 ? 8 : 0;
        if (i >= 8 && i < 20) b.quantizer.bins = i < 16 ? 8 : 70;
        if (i >= 20) b.quantizer.clusters = 4;
        b.columns = i < 20 ? 16 : 0;
    } else if (i < 33) { /* zeros anywhere, or of both signs; rows of zeros and of others: PARTED */
        uint64_t state = number;
        const unsigned width = bitsnap_width(dtype = (bitsnap_dtype)(BITSNAP_F16 + i % 3)), kind = (i - 24) / 3;
        unsigned k;
        n = 512 + 64 * kind;
        for (j = 0; j < n; j++) {
            uint8_t *p = elements + j * width;
            const unsigned zero = kind == 2 ? j / 32 % 2 : fuzz_noise(&state) & 1;
            for (k = 0; k < width; k++) p[k] = (uint8_t)(zero ? 0 : fuzz_noise(&state));
            p[width - 1] = (uint8_t)(zero ? (kind == 1 ? p[0] ^ (fuzz_noise(&state) & 0x80) : 0) : 0x38 ^ (p[width - 1] & 0x83));
        }
        b.level = BITSNAP_DEFAULT;
        b.block_log2 = 16;
    } else {
        fuzz_drop(taken);
        return 0;
    }
    REQUIRE(bitsnap_encode(&b, to, room, &size, elements, n, dtype) == BITSNAP_OK);
    fuzz_drop(taken);
    return size;
}

#ifndef FUZZ_ENGINE
/* With FUZZ_SEEDS=DIRECTORY in the environment, every build of a target writes its seeds there and exits. */
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static uint8_t seed[FUZZ_SEED_MOST];
    const char *directory = getenv("FUZZ_SEEDS");
    unsigned number = 0;
    size_t size;
    (void)argc;
    (void)argv;
    if (!directory) return 0;
    while ((size = fuzz_seed(number, seed, sizeof seed)) != 0) {
        char path[4096];
        FILE *f;
        snprintf(path, sizeof path, "%s/seed-%03u", directory, number++);
        f = fopen(path, "wb");
        if (!f || fwrite(seed, 1, size, f) != size || fclose(f)) {
            perror(path);
            exit(1);
        }
    }
    exit(0);
}
#endif

#endif
