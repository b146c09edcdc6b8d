/* bitsnap_kv.c - see bitsnap_kv.h. A packed page is a frame of one block: header, block, no index and no footer. MIT licence. */
#include "bitsnap_kv.h"

#include <pthread.h>

enum { MOST_LOG2 = 20, MOST_THREADS = 64 };

/* Options of both directions. Decoding needs no more scratch memory than encoding. */
static bitsnap options(const bitsnap_kv *kv, void *workspace)
{
    bitsnap b = { 0 };
    b.level = BITSNAP_FAST;
    b.block_log2 = kv->block_log2;
    b.workspace = workspace;
    b.workspace_size = kv->workspace;
    return b;
}

/* One block for the page, as far as the format allows; above that, several and an index. */
bitsnap_status bitsnap_kv_open(bitsnap_kv *kv, bitsnap_dtype dtype, size_t page)
{
    const unsigned width = bitsnap_width(dtype);
    bitsnap b;
    if (!width || !page || page % width) return BITSNAP_E_ARGUMENT;
    kv->page = page;
    kv->dtype = dtype;
    kv->workspace = 0;
    kv->block_log2 = 6;
    while (kv->block_log2 < MOST_LOG2 && page / width > (size_t)1 << kv->block_log2) kv->block_log2++;
    b = options(kv, NULL);
    kv->slot = bitsnap_bound(&b, page / width, dtype);
    kv->workspace = bitsnap_workspace_size(&b, page / width, dtype);
    return kv->slot && kv->workspace ? BITSNAP_OK : BITSNAP_E_ARGUMENT;
}

bitsnap_status bitsnap_kv_pack(const bitsnap_kv *kv, void *workspace, const void *page, void *slot, size_t capacity, size_t *length)
{
    bitsnap b = options(kv, workspace);
    return bitsnap_encode(&b, slot, capacity, length, page, kv->page / bitsnap_width(kv->dtype), kv->dtype);
}

/* The length may come from the disk, too. One above kv->slot would make the codec read past the slot. */
bitsnap_status bitsnap_kv_unpack(const bitsnap_kv *kv, void *workspace, void *page, const void *slot, size_t length)
{
    bitsnap b = options(kv, workspace);
    if (length > kv->slot) return BITSNAP_E_ARGUMENT;
    return bitsnap_decode(&b, page, kv->page / bitsnap_width(kv->dtype), kv->dtype, slot, length);
}

/* The pages of one thread: every step-th from the first. */
typedef struct share {
    const bitsnap_kv *kv;
    void *workspace;
    bitsnap_kv_item *items;
    size_t first, step, count, failed;
    int pack;
} share;

static void *work(void *argument)
{
    share *s = (share *)argument;
    size_t i;
    for (i = s->first; i < s->count; i += s->step) {
        bitsnap_kv_item *x = &s->items[i];
        x->status = s->pack ? bitsnap_kv_pack(s->kv, s->workspace, x->page, x->slot, x->length, &x->length) :
                              bitsnap_kv_unpack(s->kv, s->workspace, x->page, x->slot, x->length);
        s->failed += x->status != BITSNAP_OK;
    }
    return NULL;
}

/* If a thread cannot be started, the caller does its share. */
static size_t all(const bitsnap_kv *kv, void *workspaces, unsigned threads, bitsnap_kv_item *items, size_t count, int pack)
{
    pthread_t thread[MOST_THREADS];
    share shares[MOST_THREADS];
    int started[MOST_THREADS] = { 0 };
    size_t failed = 0;
    unsigned i;
    if (threads > MOST_THREADS) threads = MOST_THREADS;
    if (threads > count) threads = (unsigned)count;
    if (!threads) threads = 1;
    for (i = threads; i-- > 0;) {
        const share s = { kv, (char *)workspaces + i * kv->workspace, items, i, threads, count, 0, pack };
        shares[i] = s;
        if (i) started[i] = !pthread_create(&thread[i], NULL, work, &shares[i]);
        if (!started[i]) (void)work(&shares[i]);
    }
    for (i = 0; i < threads; i++) {
        if (started[i]) (void)pthread_join(thread[i], NULL);
        failed += shares[i].failed;
    }
    return failed;
}

size_t bitsnap_kv_pack_all(const bitsnap_kv *kv, void *workspaces, unsigned threads, bitsnap_kv_item *items, size_t count)
{
    return all(kv, workspaces, threads, items, count, 1);
}

size_t bitsnap_kv_unpack_all(const bitsnap_kv *kv, void *workspaces, unsigned threads, bitsnap_kv_item *items, size_t count)
{
    return all(kv, workspaces, threads, items, count, 0);
}
