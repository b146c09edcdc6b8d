#include "peers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lmc.h"
#ifdef BENCH_ZSTD
#include <zstd.h>
#endif
#ifdef BENCH_LZ4
#include <lz4.h>
#endif

enum { LMC, ZSTD, LZ4 };
enum { WIDTH_MAX = 4, PIECE_MAX = 1 << 20, PIECE_MIN = 1 << 14, WHOLE = 0 };

/* Piece sizes: the best of 32 KiB to 1 MiB for decompression (bf16 and f32, in cache and memory, on Zen 4;
 * --piece tries others). Above 256 KiB, zstd -1 and -3 use larger windows and tables, which is also best for
 * compression and ratio of -1. zstd -19 decodes fastest from single blocks of 128 KiB. lz4 decodes 45 % faster
 * than from 64 KiB, with a better ratio, and compresses 10 % slower. lmc hardly differs: smaller pieces are 0.1 %
 * denser and 5 % slower. zstd packs a raw tensor whole. */
static const peer list[] = {
#ifdef BENCH_ZSTD
    {"zstd-1-grouped", 0, ZSTD, 1, 1, 512 << 10},
    {"zstd-3-grouped", 0, ZSTD, 3, 1, 512 << 10},
    {"zstd-19-grouped", 4 << 20, ZSTD, 19, 1, 128 << 10},
    {"zstd-1-raw", 0, ZSTD, 1, 0, WHOLE},
#endif
#ifdef BENCH_LZ4
    {"lz4-grouped", 0, LZ4, 1, 1, 512 << 10},
#endif
    {"lmc", 0, LMC, 0, 1, 128 << 10},
    {NULL, 0, 0, 0, 0, 0},
};

const peer *peers_get(size_t index) { return list[index].name ? &list[index] : NULL; }

const char *peers_missing(size_t index)
{
    static const char *const lines[] = {
#ifndef BENCH_ZSTD
        "built without zstd, its rows are left out (Debian: libzstd-dev)",
#endif
#ifndef BENCH_LZ4
        "built without lz4, its rows are left out (Debian: liblz4-dev)",
#endif
        NULL,
    };
    return lines[index];
}

const char *peers_versions(void)
{
    static char text[80];
    const char *zstd = "none", *lz4 = "none";
#ifdef BENCH_ZSTD
    zstd = ZSTD_versionString();
#endif
#ifdef BENCH_LZ4
    lz4 = LZ4_versionString();
#endif
    snprintf(text, sizeof text, "zstd %s, lz4 %s", zstd, lz4);
    return text;
}

struct peers {
    uint8_t planes[WIDTH_MAX][PIECE_MAX];
    size_t piece; /* 0: each peer's own */
#ifdef BENCH_ZSTD
    ZSTD_CCtx *pack;
    ZSTD_DCtx *unpack;
#endif
};

peers *peers_open(void)
{
    peers *p = calloc(1, sizeof *p);
    if (!p) return NULL;
#ifdef BENCH_ZSTD
    p->pack = ZSTD_createCCtx();
    p->unpack = ZSTD_createDCtx();
    if (!p->pack || !p->unpack) {
        peers_close(p);
        return NULL;
    }
#endif
    return p;
}

void peers_close(peers *p)
{
    if (!p) return;
#ifdef BENCH_ZSTD
    ZSTD_freeCCtx(p->pack);
    ZSTD_freeDCtx(p->unpack);
#endif
    free(p);
}

void peers_set_piece(peers *p, size_t piece)
{
    p->piece = piece && piece < PIECE_MIN ? PIECE_MIN : piece > PIECE_MAX ? PIECE_MAX : piece;
}

/* ---- byte grouping ----
 * Splits in two: every other byte to one half, the rest to the other. At -O3 gcc and clang vectorize these loops
 * (40 GB/s with SSE2 only), but not loops over four planes. */

static void deal(uint8_t *restrict even, uint8_t *restrict odd, const uint8_t *restrict from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x;
        memcpy(&x, from + 2 * i, 2);
        even[i] = (uint8_t)x;
        odd[i] = (uint8_t)(x >> 8);
    }
}

static void weave(uint8_t *restrict to, const uint8_t *restrict even, const uint8_t *restrict odd, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t x = (uint16_t)(even[i] | odd[i] << 8);
        memcpy(to + 2 * i, &x, 2);
    }
}

/* Elements of four bytes take two passes, which stay in the first-level cache. */
enum { TILE = 2048 };

static void group(uint8_t planes[][PIECE_MAX], const uint8_t *from, size_t n, unsigned width)
{
    uint8_t even[2 * TILE], odd[2 * TILE];
    if (width == 2) {
        deal(planes[0], planes[1], from, n);
        return;
    }
    for (size_t i = 0; i < n; i += TILE) {
        size_t m = n - i < TILE ? n - i : TILE;
        deal(even, odd, from + 4 * i, 2 * m);
        deal(planes[0] + i, planes[2] + i, even, m);
        deal(planes[1] + i, planes[3] + i, odd, m);
    }
}

static void ungroup(uint8_t *to, const uint8_t *const planes[], size_t n, unsigned width)
{
    uint8_t even[2 * TILE], odd[2 * TILE];
    if (width == 2) {
        weave(to, planes[0], planes[1], n);
        return;
    }
    for (size_t i = 0; i < n; i += TILE) {
        size_t m = n - i < TILE ? n - i : TILE;
        weave(even, planes[0] + i, planes[2] + i, m);
        weave(odd, planes[1] + i, planes[3] + i, m);
        weave(to + 4 * i, even, odd, 2 * m);
    }
}

/* ---- one plane ---- */

/* Returns the bytes written, or 0 if n bytes do not shrink. `to` has more than n bytes, because engines are faster
 * if they need not check for its end. */
static size_t pack(peers *p, const peer *which, uint8_t *to, size_t capacity, const uint8_t *from, size_t n)
{
    size_t size = 0;
    (void)p, (void)capacity;
#ifdef BENCH_ZSTD
    if (which->engine == ZSTD) {
        size = ZSTD_compressCCtx(p->pack, to, capacity, from, n, which->level);
        if (ZSTD_isError(size)) return 0;
    }
#endif
#ifdef BENCH_LZ4
    if (which->engine == LZ4)
        size = (size_t)LZ4_compress_default((const char *)from, (char *)to, (int)n, (int)capacity);
#endif
    if (which->engine == LMC) size = lmc_pack(to, from, n);
    return size < n ? size : 0;
}

static int unpack(peers *p, const peer *which, uint8_t *to, size_t n, const uint8_t *from, size_t size)
{
    (void)p, (void)which;
#ifdef BENCH_ZSTD
    if (which->engine == ZSTD) return ZSTD_decompressDCtx(p->unpack, to, n, from, size) == n;
#endif
#ifdef BENCH_LZ4
    if (which->engine == LZ4)
        return LZ4_decompress_safe((const char *)from, (char *)to, (int)size, (int)n) == (int)n;
#endif
    return lmc_unpack(to, n, from, size);
}

/* A packed plane follows its size in 4 bytes. If that is n, the plane is stored. */
static uint8_t *put_plane(peers *p, const peer *which, uint8_t *to, size_t capacity, const uint8_t *from, size_t n)
{
    size_t size = pack(p, which, to + 4, capacity - 4, from, n);
    if (!size) {
        memcpy(to + 4, from, n);
        size = n;
    }
    for (unsigned k = 0; k < 4; k++) to[k] = (uint8_t)(size >> 8 * k);
    return to + 4 + size;
}

/* Sets *plane to the n bytes of a plane: inside the frame if they are stored, otherwise unpacked to `scratch`.
 * Returns the end of the plane in the frame; null on an error. */
static const uint8_t *get_plane(peers *p, const peer *which, const uint8_t **plane, uint8_t *scratch, size_t n,
                                const uint8_t *from, const uint8_t *end)
{
    size_t size = 0;
    if (end - from < 4) return NULL;
    for (unsigned k = 0; k < 4; k++) size |= (size_t)from[k] << 8 * k;
    from += 4;
    if (size > (size_t)(end - from)) return NULL;
    *plane = size == n ? from : scratch;
    if (size != n && !unpack(p, which, scratch, n, from, size)) return NULL;
    return from + size;
}

/* ---- tensors ---- */

size_t peers_bound(size_t size) { return size + size / 16 + PIECE_MAX * 2; }

/* Returns the elements of a chunk, which equal the bytes of a plane. */
static size_t chunk_elements(const peers *p, const peer *which) { return p->piece ? p->piece : which->piece; }

size_t peers_compress(peers *p, const peer *which, uint8_t *frame, const uint8_t *tensor, size_t size,
                      unsigned width)
{
    size_t n = size / width, chunk = chunk_elements(p, which);
    uint8_t *to = frame, *end = frame + peers_bound(size);
    if (!which->grouped) return (size_t)(put_plane(p, which, to, (size_t)(end - to), tensor, size) - frame);
    for (size_t i = 0; i < n; i += chunk) {
        size_t m = n - i < chunk ? n - i : chunk;
        group(p->planes, tensor + i * width, m, width);
        for (unsigned k = 0; k < width; k++) to = put_plane(p, which, to, (size_t)(end - to), p->planes[k], m);
    }
    return (size_t)(to - frame);
}

int peers_decompress(peers *p, const peer *which, uint8_t *tensor, size_t size, unsigned width,
                     const uint8_t *frame, size_t frame_size)
{
    size_t n = size / width, chunk = chunk_elements(p, which);
    const uint8_t *from = frame, *end = frame + frame_size, *planes[WIDTH_MAX] = {NULL};
    if (!which->grouped) {
        from = get_plane(p, which, planes, tensor, size, from, end);
        if (from && planes[0] != tensor) memcpy(tensor, planes[0], size);
        return from == end;
    }
    for (size_t i = 0; i < n && from; i += chunk) {
        size_t m = n - i < chunk ? n - i : chunk;
        for (unsigned k = 0; k < width && from; k++)
            from = get_plane(p, which, &planes[k], p->planes[k], m, from, end);
        if (from) ungroup(tensor + i * width, planes, m, width);
    }
    return from == end;
}
