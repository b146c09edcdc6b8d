/* What a build with switches still does. `switches make DIR`, of a build without any, writes frames; `switches use DIR` reads them,
 * makes those that it can make, and uses what else is left. Exit status 0: all is as it should be. */
#include "bitsnap.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define N 70000u
#define CHECK(what)                                                                                   \
    do {                                                                                              \
        if (!(what)) {                                                                                \
            printf("line %d: %s (%s)\n", __LINE__, #what, bitsnap_message(&b));                       \
            return 1;                                                                                 \
        }                                                                                             \
    } while (0)

static bitsnap b;
static uint16_t old[N], new[N], back[N];
static uint8_t frame[5 * N], made[5 * N];
static float numbers[N], matrix[N], numbers_back[N];
enum { PLAIN, DELTA, QUANTIZED, SCALED, KINDS }; /* SCALED: rows of scales of their own, and words that need more than a byte */

static uint32_t next_random(void)
{
    static uint32_t x = 1;
    return x = x * 1664525u + 1013904223u, x >> 8;
}

/* The options of a kind, and its frame, if this build can make it. */
static void options(int kind)
{
    memset(&b.base, 0, sizeof b.base);
    memset(&b.quantizer, 0, sizeof b.quantizer);
    if (kind == DELTA) {
        b.base.data = old;
        b.base.count = N;
        b.base.dtype = BITSNAP_BF16;
    }
    if (kind == QUANTIZED) b.quantizer.bins = 35;
    b.level = kind == SCALED ? BITSNAP_BEST : 0;
    b.columns = kind == SCALED ? 100 : 0;
}

#ifndef BITSNAP_NO_ENCODE
static bitsnap_status make(int kind, size_t *size)
{
    options(kind);
    return kind >= QUANTIZED ? bitsnap_encode(&b, made, sizeof made, size, kind == SCALED ? matrix : numbers, N, BITSNAP_F32)
                             : bitsnap_encode(&b, made, sizeof made, size, new, N, BITSNAP_BF16);
}
#endif

static int left_out(int kind, const char *what)
{
#ifdef BITSNAP_NO_DELTA
    if (kind == DELTA) return strcmp(what, "BITSNAP_NO_DELTA") == 0;
#endif
#ifdef BITSNAP_NO_QUANTIZE
    if (kind == QUANTIZED) return strcmp(what, "BITSNAP_NO_QUANTIZE") == 0;
#endif
    (void)kind;
    return what[0] == 0;
}

static int named(void)
{
    const char *begin = strstr(bitsnap_message(&b), "BITSNAP_NO_");
    return begin && left_out(DELTA, "BITSNAP_NO_DELTA") + left_out(QUANTIZED, "BITSNAP_NO_QUANTIZE") > 0;
}

static int parts(void)
{
#ifndef BITSNAP_NO_PARTS
    static uint8_t mask[N / 8 + 1], planes[2 * N];
    size_t changed, used = 0;
    (void)used;
    CHECK(bitsnap_mask_encode(NULL, 2, new, old, N, mask, back, N, &changed) == BITSNAP_OK);
    memcpy(made, old, sizeof old);
    CHECK(bitsnap_mask_decode(NULL, 2, made, made, N, mask, back, changed) == BITSNAP_OK && !memcmp(made, new, sizeof new));
    CHECK(bitsnap_planes_split(NULL, planes, new, N, BITSNAP_BF16) == BITSNAP_OK);
    CHECK(bitsnap_planes_join(NULL, back, planes, N, BITSNAP_BF16) == BITSNAP_OK && !memcmp(back, new, sizeof new));
#ifndef BITSNAP_NO_ENCODE
    CHECK(bitsnap_list_encode(&b, frame, sizeof frame, &changed, planes, 60000) == BITSNAP_OK);
    CHECK(bitsnap_list_decode(&b, made, 60000, frame, changed, &used) == BITSNAP_OK && used == changed && !memcmp(made, planes, 60000));
#ifndef BITSNAP_NO_QUANTIZE
    {
        static uint8_t labels[N / 2 + 1], codes[N], ends[2 * 4 * 16], memory[16384 + 2 * 4 * N];
        unsigned clusters;
        CHECK(bitsnap_cluster_encode(ends, &clusters, labels, codes, numbers, N, BITSNAP_F32, 16, memory, sizeof memory) == BITSNAP_OK);
        CHECK(bitsnap_cluster_decode(numbers_back, N, BITSNAP_F32, ends, clusters, labels, codes, 16) == BITSNAP_OK);
    }
#endif
#endif
#endif
    return 0;
}

static int use(const char *folder)
{
    bitsnap_info info;
    char path[4096];
    int kind;
    for (kind = 0; kind < KINDS; kind++) {
        void *to = kind >= QUANTIZED ? (void *)numbers_back : (void *)back;
        const bitsnap_dtype dtype = kind >= QUANTIZED ? BITSNAP_F32 : BITSNAP_BF16;
        const void *whole = kind == SCALED ? (const void *)matrix : (const void *)new;
        const unsigned width = bitsnap_width(dtype);
        size_t size = 0;
        FILE *f;
        sprintf(path, "%.4000s/%d", folder, kind);
        f = fopen(path, "rb");
        if (f) size = fread(frame, 1, sizeof frame, f), fclose(f);
        CHECK(size);
        options(kind);
        if (!left_out(kind, "")) {
            CHECK(bitsnap_decode(&b, to, N, dtype, frame, size) == BITSNAP_E_UNSUPPORTED && named());
            CHECK(bitsnap_decode_range(&b, to, 0, 1, dtype, frame, size) == BITSNAP_E_UNSUPPORTED && named());
            CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && (info.has_base || info.bins));
#ifndef BITSNAP_NO_ENCODE
            CHECK(make(kind, &size) == BITSNAP_E_UNSUPPORTED && named());
#endif
            continue;
        }
        CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.count == N);
        CHECK(bitsnap_decode(&b, to, N, dtype, frame, size) == BITSNAP_OK);
        if (kind != QUANTIZED) CHECK(!memcmp(to, whole, width * N));
        memset(to, 0, width * N);
        CHECK(bitsnap_decode_range(&b, to, 1000, 10, dtype, frame, size) == BITSNAP_OK);
        if (kind != QUANTIZED) CHECK(!memcmp(to, (const uint8_t *)whole + 1000 * width, 10 * width));
        frame[size / 2] ^= 1;
        CHECK(bitsnap_test(&b, frame, size) != BITSNAP_OK);
        frame[size / 2] ^= 1;
#ifndef BITSNAP_NO_DELTA
        if (kind == DELTA) {
            memcpy(back, old, sizeof old);
            CHECK(bitsnap_apply(&b, back, N, BITSNAP_BF16, frame, size) == BITSNAP_OK && !memcmp(back, new, sizeof new));
        }
#endif
#ifndef BITSNAP_NO_EXTRAS
        if (kind != QUANTIZED) CHECK(bitsnap_verify(&b, whole, N, dtype, frame, size) == BITSNAP_OK);
#endif
#ifndef BITSNAP_NO_ENCODE
        {
            size_t again;
            CHECK(make(kind, &again) == BITSNAP_OK && again == size && !memcmp(made, frame, size)); /* the same bytes */
        }
#endif
    }
    options(PLAIN);
    return parts();
}

int main(int argc, char **argv)
{
    size_t i;
    for (i = 0; i < N; i++) {
        old[i] = (uint16_t)(0x3C00 + next_random() % 300 + (next_random() % 2 << 15));
        new[i] = (uint16_t)(old[i] + (next_random() % 50 == 0));
        numbers[i] = (float)(next_random() % 10000) / 65536;
        matrix[i] = (float)(next_random() % 60000 * (next_random() % 300)) / (float)(1u << i / 100 % 16);
        if (i % 50 == 0) matrix[i] *= 1e30f;
    }
    b.workspace_size = (size_t)64 << 20; /* more than any of this needs */
    b.workspace = malloc(b.workspace_size);
    if (argc != 3 || !b.workspace) return 2;
    (void)made;
    if (!strcmp(argv[1], "use")) return use(argv[2]);
#if !defined(BITSNAP_NO_ENCODE) && !defined(BITSNAP_NO_DELTA) && !defined(BITSNAP_NO_QUANTIZE)
    for (i = 0; i < KINDS; i++) {
        char path[4096];
        size_t size;
        FILE *f;
        CHECK(make((int)i, &size) == BITSNAP_OK);
        sprintf(path, "%.4000s/%d", argv[2], (int)i);
        f = fopen(path, "wb");
        CHECK(f && fwrite(made, 1, size, f) == size && !fclose(f));
    }
#endif
    return 0;
}
