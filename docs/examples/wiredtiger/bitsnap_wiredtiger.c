/* bitsnap_wiredtiger.c - pages of WiredTiger tables as frames: an extension that WiredTiger loads. MIT licence, see bitsnap.h.
 *
 *     cc -O2 -shared -fPIC -I. docs/examples/wiredtiger/bitsnap_wiredtiger.c -o libbitsnap_wiredtiger.so
 *     wiredtiger_open(home, NULL, "create,extensions=[./libbitsnap_wiredtiger.so=(config=(level=2))]", &connection);
 *     session->create(session, "table:weights", "key_format=S,value_format=u,block_compressor=bitsnap-bf16");
 *
 * A page holds keys, sizes and values. So elements begin anywhere in it, and at any offset modulo their width. A packed page, in
 * little-endian order, is:
 *
 *     u32 check, the low half of XXH3-64 up to the frame; u32 runs; u32 run[runs]: elements << 4 | bytes before them;
 *     those bytes, and the ones after the last run; a frame of all elements
 *
 * WiredTiger pads pages with zeros, but the frame says where it ends. Its checks find damage; by default, WiredTiger's own
 * checksums do not cover compressed pages. */
#define BITSNAP_STATIC
#define BITSNAP_NO_DELTA /* pages need none of these features */
#define BITSNAP_NO_QUANTIZE
#define BITSNAP_NO_PARTS
#define BITSNAP_NO_EXTRAS
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <wiredtiger.h>
#include <wiredtiger_ext.h>

typedef struct codec {
    WT_COMPRESSOR compressor; /* first, because WiredTiger passes its address to our functions */
    WT_EXTENSION_API *wt;
    bitsnap_dtype dtype;
    int level;
} codec;

static const struct { const char *name; bitsnap_dtype dtype; } names[] = {
    { "bitsnap-i8", BITSNAP_I8 }, { "bitsnap-i16", BITSNAP_I16 }, { "bitsnap-i32", BITSNAP_I32 }, { "bitsnap-i64", BITSNAP_I64 },
    { "bitsnap-f8_e4m3", BITSNAP_F8_E4M3 }, { "bitsnap-f8_e5m2", BITSNAP_F8_E5M2 }, { "bitsnap-f16", BITSNAP_F16 },
    { "bitsnap-bf16", BITSNAP_BF16 }, { "bitsnap-f32", BITSNAP_F32 }, { "bitsnap-f64", BITSNAP_F64 }
};

enum { WINDOW = 64, RUNS = 8 }; /* elements of a window; offset of the list of runs */

static void put32(uint8_t *to, uint64_t x)
{
    unsigned i;
    for (i = 0; i < 4; i++) to[i] = (uint8_t)(x >> 8 * i);
}

static uint32_t get32(const uint8_t *from) { return from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 | (uint32_t)from[3] << 24; }

/* Returns the offset of elements modulo their width, in WINDOW * width bytes. Exponents usually equal those of the next element,
 * except for the sign bit. So elements end with the column of bytes that repeats most. Zeros do not count. `before`: the result
 * unless another offset is clearly better. */
static unsigned place_of(const uint8_t *bytes, unsigned width, unsigned before)
{
    const uint64_t low = UINT64_C(0x7F7F7F7F7F7F7F7F);
    uint64_t hits = 0, a, b;
    uint8_t lane[8];
    unsigned column[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, i, best = 0;
    for (i = 0; i + 8 + width <= WINDOW * width; i += 8) { /* eight columns at a time; at most 64 hits in each */
        memcpy(&a, bytes + i, 8);
        memcpy(&b, bytes + i + width, 8);
        hits += (~(((a ^ b) & low) + low) & ((a & low) + low) & ~low) >> 7;
    }
    memcpy(lane, &hits, 8);
    for (i = 0; i < 8; i++) column[i % width] += lane[i];
    for (i = 1; i < width; i++) if (column[i] > column[best]) best = i;
    return column[best] > column[(before + width - 1) % width] + WINDOW / 8 ? (best + 1) % width : before;
}

/* Finds the runs of elements in a page, at most size / (WINDOW * width) + 1. */
static size_t find_runs(const uint8_t *page, size_t size, unsigned width, uint32_t *runs)
{
    const size_t window = WINDOW * width;
    size_t n = 0, start = 0, end = 0, at; /* start: of this run; end: of the run before it */
    for (at = 0; width > 1 && size - at >= window; at += window) {
        const unsigned here = (unsigned)((start - at) & (width - 1)), place = place_of(page + at, width, here);
        if (place == here) continue;
        if (at > start) {
            runs[n++] = (uint32_t)((at - start) / width << 4 | (start - end));
            end = start + (at - start) / width * width;
        }
        start = at + place;
    }
    runs[n++] = (uint32_t)((size - start) / width << 4 | (start - end));
    return n;
}

static int compress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *page, size_t size, uint8_t *to, size_t capacity,
                    size_t *packed, int *failed)
{
    const codec *c = (const codec *)compressor;
    const unsigned width = bitsnap_width(c->dtype);
    const size_t most = size / (WINDOW * width) + 1;
    size_t count = 0, n, i, head, bytes = 0;
    uint8_t *memory, *elements, *gap;
    const uint8_t *from = page;
    uint32_t *runs;
    bitsnap b;
    *failed = 1; /* WiredTiger stores the page uncompressed */
    if (size >= UINT32_C(1) << 28) return 0;
    memset(&b, 0, sizeof b);
    b.level = c->level;
    b.workspace_size = bitsnap_workspace_size(&b, size / width, c->dtype);
    memory = (uint8_t *)c->wt->scr_alloc(c->wt, session, most * sizeof *runs + size + b.workspace_size);
    if (!memory) return ENOMEM;
    runs = (uint32_t *)memory;
    elements = memory + most * sizeof *runs;
    b.workspace = elements + size;
    n = find_runs(page, size, width, runs);
    for (i = 0; i < n; i++) count += runs[i] >> 4;
    head = RUNS + 4 * n + size - count * width;
    if (head < capacity) {
        put32(to + 4, n);
        gap = to + RUNS + 4 * n;
        for (i = 0; i < n; i++) {
            const size_t skip = runs[i] & 15, run = (size_t)(runs[i] >> 4) * width;
            put32(to + RUNS + 4 * i, runs[i]);
            memcpy(gap, from, skip);
            if (n > 1) memcpy(elements + bytes, from + skip, run);
            gap += skip, from += skip + run, bytes += run;
        }
        memcpy(gap, from, (size_t)(page + size - from));
        put32(to, bitsnap_hash(to + 4, head - 4));
        *failed = bitsnap_encode(&b, to + head, capacity - head, packed, n > 1 ? elements : page + (runs[0] & 15), count, c->dtype) != 0;
        *packed += head;
        if (*packed >= size) *failed = 1;
    }
    c->wt->scr_free(c->wt, session, memory);
    return 0;
}

static int damaged(const codec *c, WT_SESSION *session, const char *what)
{
    (void)c->wt->err_printf(c->wt, session, "bitsnap: page: %s", what);
    return WT_ERROR;
}

static int decompress(WT_COMPRESSOR *compressor, WT_SESSION *session, uint8_t *packed, size_t size, uint8_t *page, size_t page_size,
                      size_t *result)
{
    const codec *c = (const codec *)compressor;
    const unsigned width = bitsnap_width(c->dtype);
    const size_t n = size < RUNS ? SIZE_MAX : get32(packed + 4);
    uint64_t count = 0, skipped = 0;
    size_t i, rest, head;
    const uint8_t *gap, *from;
    bitsnap b;
    bitsnap_info info;
    int bad;
    *result = 0;
    if (n > (size - RUNS) / 4) return damaged(c, session, "runs that do not fit");
    for (i = 0; i < n; i++) count += get32(packed + RUNS + 4 * i) >> 4, skipped += get32(packed + RUNS + 4 * i) & 15;
    gap = packed + RUNS + 4 * n;
    rest = page_size - (size_t)count * width; /* bytes outside of runs */
    if (count * width + skipped > page_size || rest > size - RUNS - 4 * n) return damaged(c, session, "runs that do not fit");
    head = RUNS + 4 * n + rest;
    if (get32(packed) != (uint32_t)bitsnap_hash(packed + 4, head - 4)) return damaged(c, session, "the check of the runs does not match");
    memset(&b, 0, sizeof b);
    b.flags = BITSNAP_ALLOW_TRAILING;
    if (bitsnap_read_info(&info, packed + head, size - head) || info.count != count || info.dtype != c->dtype)
        return damaged(c, session, "not the frame of such a page");
    b.workspace_size = info.workspace_size;
    b.workspace = c->wt->scr_alloc(c->wt, session, b.workspace_size);
    if (!b.workspace) return ENOMEM;
    bad = bitsnap_decode(&b, page + rest, count, c->dtype, packed + head, size - head) != 0;
    c->wt->scr_free(c->wt, session, b.workspace);
    if (bad) return damaged(c, session, bitsnap_message(&b));
    from = page + rest; /* moves runs down in order, so none overwrites a later one */
    for (i = 0; i < n; i++) {
        const uint32_t r = get32(packed + RUNS + 4 * i);
        const size_t skip = r & 15, run = (size_t)(r >> 4) * width;
        memcpy(page, gap, skip);
        memmove(page + skip, from, run);
        gap += skip, page += skip + run, from += run, rest -= skip;
    }
    memcpy(page, gap, rest);
    *result = page_size;
    return 0;
}

static int terminate(WT_COMPRESSOR *compressor, WT_SESSION *session)
{
    (void)session;
    free(compressor);
    return 0;
}

/* WiredTiger calls this when it loads the extension. */
__attribute__((visibility("default"))) int wiredtiger_extension_init(WT_CONNECTION *connection, WT_CONFIG_ARG *config)
{
    WT_EXTENSION_API *wt = connection->get_extension_api(connection);
    WT_CONFIG_ITEM level;
    size_t i;
    if (wt->config_get(wt, NULL, config, "level", &level)) level.val = BITSNAP_FAST;
    if (level.val < BITSNAP_FAST || level.val > BITSNAP_BEST) return EINVAL;
    for (i = 0; i < sizeof names / sizeof *names; i++) {
        codec *c = (codec *)calloc(1, sizeof *c);
        int status = ENOMEM;
        if (c) {
            c->compressor.compress = compress;
            c->compressor.decompress = decompress;
            c->compressor.terminate = terminate;
            c->wt = wt;
            c->dtype = names[i].dtype;
            c->level = (int)level.val;
            status = connection->add_compressor(connection, names[i].name, &c->compressor, NULL);
        }
        if (status) {
            free(c);
            return status;
        }
    }
    return 0;
}
