/* The program that count.sh measures. `run TABLE WAY TIMES` repeats one of `ways`, and prints the elements of one repetition. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITSNAP_IMPLEMENTATION
#define BITSNAP_NO_AVX512
#include "bitsnap_simd.h"

enum { N = 32768, ROOM = 8 << 20 };

static const char *const ways[] = {"encode", "decode", "delta encode", "delta decode", "quantize", "dequantize"};

static uint64_t state = 1;

static uint32_t draw(uint32_t below)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)((state >> 33) % below);
}

/* Returns a weight: a sum of four draws, which is nearly normal. */
static uint32_t weight(void)
{
    const float x = ((float)draw(1 << 20) + (float)draw(1 << 20) - (float)draw(1 << 20) - (float)draw(1 << 20)) / (1 << 25);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return bits;
}

static struct {
    bitsnap b;
    bitsnap_dtype dtype;
    unsigned decodes;
    size_t size;
    uint32_t elements[N], decoded[N];
    uint8_t frame[8 * N];
} job;

/* callgrind counts inside this function, found by its name. */
#if defined(__GNUC__) || defined(__clang__)
__attribute__((noinline))
#endif
int measured(void);
int measured(void)
{
    if (!job.decodes) return bitsnap_encode(&job.b, job.frame, sizeof job.frame, &job.size, job.elements, N, job.dtype);
    return bitsnap_decode(&job.b, job.decoded, N, job.dtype, job.frame, job.size);
}

int main(int argc, char **argv)
{
    static uint16_t base[N];
    const bitsnap_kernels *k = NULL, *best = NULL;
    uint16_t *half = (uint16_t *)job.elements;
    unsigned way = 0;
    if (argc != 4) return 2;
    for (unsigned i = 0; (k = bitsnap_kernels_get(i)) != NULL; i++)
        if (!strcmp(argv[1], bitsnap_kernels_name(k))) best = k;
    while (way < 6 && strcmp(ways[way], argv[2])) way++;
    if (!best || way == 6) return 2;
    job.dtype = way < 4 ? BITSNAP_BF16 : BITSNAP_F32;
    for (unsigned i = 0; i < N; i++) {
        const uint32_t x = weight();
        if (way >= 4) job.elements[i] = x;
        else base[i] = half[i] = (uint16_t)(x >> 16);
        if (way / 2 == 1 && !draw(4)) half[i] = (uint16_t)(base[i] + draw(9) - 4); /* a quarter has changed */
    }
    if (way / 2 == 1) {
        job.b.base.data = base;
        job.b.base.count = N;
        job.b.base.dtype = BITSNAP_BF16;
    }
    if (way == 4) job.b.quantizer.bins = 96;
    job.b.workspace = malloc(ROOM);
    job.b.workspace_size = ROOM;
    if (!job.b.workspace) return 2;
    if (way % 2) {
        job.b.quantizer.bins = way == 5 ? 96 : 0;
        if (bitsnap_encode(&job.b, job.frame, sizeof job.frame, &job.size, job.elements, N, job.dtype)) return 1;
        job.decodes = 1;
    }
    job.b.kernels = best;
    for (int i = atoi(argv[3]); i > 0; i--)
        if (measured()) return 1;
    printf("%d\n", N);
    return 0;
}
