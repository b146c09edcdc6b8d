/* kv_bench.c - ratio and microseconds a page of a KV cache, beside memcpy, zstd -1 and LZ4. MIT licence, see bitsnap.h.
 *
 *     kv_bench DTYPE PAGE_BYTES FILE...     FILE: raw pages, as kv_extract.py makes them; DTYPE: bf16, f16, f8_e4m3, f8_e5m2
 *
 * Each codec packs all pages of a file, each to its own slot, and unpacks them, ROUNDS times, on one thread. The fastest time of
 * a page counts; the table has the mean over pages. Unpacked pages are compared. BENCH_ZSTD and BENCH_LZ4 compile these in (link
 * -lzstd, -llz4). `make bench-kv` builds and runs it. */
#define _POSIX_C_SOURCE 200809L
#include "bitsnap_kv.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#ifdef BENCH_ZSTD
#include <zstd.h>
#endif
#ifdef BENCH_LZ4
#include <lz4.h>
#endif

enum { ROUNDS = 15 };

typedef struct codec {
    const char *name;
    size_t (*pack)(void *slot, const void *page); /* the length, or 0 */
    int (*unpack)(void *page, const void *slot, size_t length); /* 0 if it succeeds */
} codec;

static bitsnap_kv kv;
static size_t slot_size; /* enough for every codec */
static void *workspace;

static size_t copy_pack(void *slot, const void *page) { return memcpy(slot, page, kv.page), kv.page; }
static int copy_unpack(void *page, const void *slot, size_t length) { return memcpy(page, slot, length), 0; }

static size_t kv_pack(void *slot, const void *page)
{
    size_t length;
    return bitsnap_kv_pack(&kv, workspace, page, slot, slot_size, &length) ? 0 : length;
}

static int kv_unpack(void *page, const void *slot, size_t length) { return bitsnap_kv_unpack(&kv, workspace, page, slot, length) != BITSNAP_OK; }

#ifdef BENCH_ZSTD
static ZSTD_CCtx *zstd_out;
static ZSTD_DCtx *zstd_in;

static size_t zstd_pack(void *slot, const void *page)
{
    const size_t n = ZSTD_compressCCtx(zstd_out, slot, slot_size, page, kv.page, 1);
    return ZSTD_isError(n) ? 0 : n;
}

static int zstd_unpack(void *page, const void *slot, size_t length) { return ZSTD_decompressDCtx(zstd_in, page, kv.page, slot, length) != kv.page; }
#endif
#ifdef BENCH_LZ4
static size_t lz4_pack(void *slot, const void *page) { return (size_t)LZ4_compress_default(page, slot, (int)kv.page, (int)slot_size); }
static int lz4_unpack(void *page, const void *slot, size_t length) { return LZ4_decompress_safe(slot, page, (int)length, (int)kv.page) != (int)kv.page; }
#endif

static const codec codecs[] = {
    { "memcpy", copy_pack, copy_unpack },
    { "bitsnap -l fast", kv_pack, kv_unpack },
#ifdef BENCH_ZSTD
    { "zstd -1", zstd_pack, zstd_unpack },
#endif
#ifdef BENCH_LZ4
    { "lz4", lz4_pack, lz4_unpack },
#endif
};

static double now(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}

/* The packed length of a page, and its shortest times to pack and unpack. */
typedef struct result {
    size_t length;
    double best[2];
} result;

static void note(double *best, double us, int first) { if (first || us < *best) *best = us; }

/* Measures one row of the table. Returns 1 if the codec fails or restores other pages. */
static int measure(const codec *c, const unsigned char *pages, size_t count, unsigned char *slots, unsigned char *back, result *results)
{
    double us[2] = { 0, 0 }, packed = 0, begin;
    size_t i;
    int round, bad = 0;
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < count; i++) {
            begin = now();
            results[i].length = c->pack(slots + i * slot_size, pages + i * kv.page);
            note(&results[i].best[0], now() - begin, !round);
            bad |= !results[i].length;
        }
        for (i = 0; i < count; i++) {
            begin = now();
            bad |= c->unpack(back + i * kv.page, slots + i * slot_size, results[i].length);
            note(&results[i].best[1], now() - begin, !round);
        }
    }
    for (i = 0; i < count; i++) packed += (double)results[i].length, us[0] += results[i].best[0], us[1] += results[i].best[1];
    if (bad || memcmp(pages, back, count * kv.page)) return fprintf(stderr, "kv_bench: %s does not restore the pages\n", c->name), 1;
    printf("| %-15s | %6.3f | %8.1f | %8.1f |\n", c->name, (double)(count * kv.page) / packed, us[0] / (double)count, us[1] / (double)count);
    return 0;
}

static int bench(const char *path)
{
    FILE *f = fopen(path, "rb");
    unsigned char *pages = NULL, *slots = NULL, *back = NULL;
    result *results = NULL;
    size_t count = 0, i;
    int failed = 1;
    long size = -1;
    if (f && !fseek(f, 0, SEEK_END)) size = ftell(f);
    if (size >= 0) {
        count = (size_t)size / kv.page;
        rewind(f);
        pages = malloc(count * kv.page + 1), back = calloc(count + 1, kv.page), slots = calloc(count + 1, slot_size);
        results = calloc(count + 1, sizeof *results);
    }
    if (!pages || !back || !slots || !results || !count || fread(pages, kv.page, count, f) != count) {
        fprintf(stderr, "kv_bench: %s: cannot read a page of %zu bytes\n", path, kv.page);
    } else {
        printf("\n%s: %zu pages of %zu bytes\n\n| codec           | ratio  | pack, us | unpack, us |\n|---|--:|--:|--:|\n", path, count, kv.page);
        for (i = 0, failed = 0; i < sizeof codecs / sizeof *codecs; i++) failed |= measure(&codecs[i], pages, count, slots, back, results);
    }
    free(pages), free(back), free(slots), free(results);
    if (f) (void)fclose(f);
    return failed;
}

int main(int argc, char **argv)
{
    static const struct { const char *name; bitsnap_dtype dtype; } dtypes[] = {
        { "bf16", BITSNAP_BF16 }, { "f16", BITSNAP_F16 }, { "f8_e4m3", BITSNAP_F8_E4M3 }, { "f8_e5m2", BITSNAP_F8_E5M2 }
    };
    size_t d = 0;
    int i, failed = 0;
    while (argc > 3 && d < 4 && strcmp(dtypes[d].name, argv[1])) d++;
    if (argc < 4 || d == 4 || bitsnap_kv_open(&kv, dtypes[d].dtype, (size_t)strtoull(argv[2], NULL, 10)) || kv.page > INT32_MAX / 2)
        return fprintf(stderr, "usage: kv_bench bf16|f16|f8_e4m3|f8_e5m2 PAGE_BYTES FILE...\n"), 2;
    workspace = malloc(kv.workspace);
    slot_size = kv.slot + kv.page / 100 + 1024;
#ifdef BENCH_ZSTD
    zstd_out = ZSTD_createCCtx(), zstd_in = ZSTD_createDCtx();
#endif
    for (i = 3; i < argc; i++) failed |= bench(argv[i]);
    return failed;
}
