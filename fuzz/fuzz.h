/* What the fuzz targets share. Each target is one file with LLVMFuzzerTestOneInput, linked to codec.c; `make fuzz T=name`
 * runs it under libFuzzer, replay.c runs it without. A target ends the process (abort) where the contract it tests is
 * broken. */
#ifndef BITSNAP_FUZZ_H
#define BITSNAP_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef FUZZ_INTERNALS /* what is not declared: a copy of the codec of its own, the portable code */
#define BITSNAP_STATIC
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
#else
#include "bitsnap_simd.h" /* codec.c has the implementation */
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define REQUIRE(condition)                                                                            \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: broken: %s\n", __FILE__, __LINE__, #condition);                   \
            abort();                                                                                  \
        }                                                                                             \
    } while (0)

/* Small blocks keep the workspace small, and so the fuzzer fast; larger ones need more. */
static inline bitsnap fuzz_codec(unsigned block_log2)
{
    static void *memory;
    static size_t have;
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace_size = bitsnap_workspace_delta(block_log2, 1); /* of quantized frames, too */
    if (b.workspace_size > have) {
        free(memory);
        memory = malloc(b.workspace_size);
        have = b.workspace_size;
        REQUIRE(memory);
    }
    b.workspace = memory;
    return b;
}

/* Exactly `size` bytes on the heap, so that the address sanitizer sees the first byte too many. */
static inline uint8_t *fuzz_copy(const uint8_t *p, size_t size)
{
    uint8_t *copy = (uint8_t *)calloc(size ? size : 1, 1);
    REQUIRE(copy);
    if (size) memcpy(copy, p, size);
    return copy;
}

#endif
