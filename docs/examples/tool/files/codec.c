/* codec.c - the codec of a command, with its memory and threads.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "codec.h"

#include "../system/processors.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW ((size_t)8 << 20)
#define WORKSPACE_MAX ((size_t)512 << 20)

static size_t window_for(unsigned workers)
{
    size_t window = WINDOW;
    while (window / ((size_t)1 << 20) < workers) window *= 2;
    return window;
}

/* Returns the most memory that the workers need, unless a file has larger blocks than this program makes: windows of elements and
 * of coded bytes, twice; the workspace; a block of the base for each worker; and for each decoder of the chain an index, a text,
 * and two blocks for each worker. */
static uint64_t memory_for(const codec *c, unsigned workers, size_t chain)
{
    const uint64_t mib = (uint64_t)1 << 20;
    return 4 * (uint64_t)window_for(workers) + codec_workspace(c, 0, workers, 1) + 2 * mib * workers + chain * (2 + 4 * (uint64_t)workers) * mib;
}

int codec_open(codec *c, unsigned threads, int level, uint64_t memory, size_t chain, fault *f)
{
    const uint64_t most = memory ? memory : memory_size() / 8;
    unsigned workers = threads ? threads : processors();
    memset(c, 0, sizeof *c);
    c->b.level = level;
    c->b.flags = BITSNAP_CONTENT_ID;
    while (workers > 1 && memory_for(c, workers, chain) > most) workers--;
    if (memory && memory_for(c, workers, chain) > memory)
        return fault_set(f, "--memory is too small: one thread takes up to %uM here", (unsigned)(memory_for(c, 1, chain) >> 20) + 1);
    c->threads = pool_new(workers);
    if (!c->threads) return fault_memory(f);
    c->b.run = pool_run;
    c->b.run_context = c->threads;
    c->window = window_for(pool_workers(c->threads));
    return codec_reserve(c, 0, 0, f);
}

void codec_close(codec *c)
{
    pool_free(c->threads);
    free(c->b.workspace);
    used_free(&c->used);
    memset(c, 0, sizeof *c);
}

size_t codec_workspace(const codec *c, unsigned block_log2, unsigned workers, int large)
{
    bitsnap b = c->b;
    size_t most = 0, size;
    unsigned kind;
    b.workers = workers;
    b.block_log2 = block_log2 ? block_log2 : large ? 19 : 16;
    if (large && b.block_log2 < 16) b.block_log2 = 16;
    /* plain, with a base, with a quantizer and columns: any of these can be the largest */
    for (kind = 0; kind < (large ? 3u : 1u); kind++) {
        memset(&b.base, 0, sizeof b.base);
        memset(&b.quantizer, 0, sizeof b.quantizer);
        if (kind) b.flags &= ~(unsigned)BITSNAP_CONTENT_ID; /* a quantizer excludes it */
        b.base.data = kind == 1 ? c : NULL;
        b.base.dtype = BITSNAP_F64;
        b.quantizer.bins = kind == 2;
        b.columns = kind == 2;
        /* enough for any dtype and number of elements */
        size = bitsnap_workspace_size(&b, UINT64_C(1) << b.block_log2, BITSNAP_F64);
        if (!size) return 0;
        if (size > most) most = size;
    }
    return most;
}

int codec_reserve(codec *c, unsigned block_log2, int large, fault *f)
{
    unsigned workers = pool_workers(c->threads);
    size_t size = codec_workspace(c, block_log2, workers, large);
    while (workers > 1 && (size == 0 || size > WORKSPACE_MAX)) size = codec_workspace(c, block_log2, workers /= 2, large);
    if (!size) return fault_memory(f);
    if (size > c->b.workspace_size) {
        free(c->b.workspace);
        c->b.workspace = malloc(size);
        c->b.workspace_size = c->b.workspace ? size : 0;
        if (!c->b.workspace) return fault_memory(f);
    }
    c->b.workers = workers;
    pool_limit(c->threads, workers);
    return 0;
}

void swap_elements(void *elements, size_t bytes, unsigned width)
{
    const uint16_t one = 1;
    uint8_t low;
    uint8_t *p = (uint8_t *)elements, *end = p + bytes;
    unsigned i;
    memcpy(&low, &one, 1);
    if (low || width < 2) return;
    for (; p < end; p += width) {
        for (i = 0; i < width / 2; i++) {
            const uint8_t byte = p[i];
            p[i] = p[width - 1 - i];
            p[width - 1 - i] = byte;
        }
    }
}
