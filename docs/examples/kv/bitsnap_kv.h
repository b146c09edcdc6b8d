/* bitsnap_kv.h - pages of a KV cache, packed into slots of bounded size. MIT licence, see bitsnap.h.
 *
 * A pool has pages of one size and dtype. A packed page takes at most kv.slot bytes of its slot. The host keeps its length.
 * Allocate slots of kv.slot bytes, or smaller ones and store a page that does not fit as it is.
 *
 *     cc -O3 -shared -fPIC -I. docs/examples/kv/bitsnap_kv.c docs/examples/tool/bitsnap.c -o libbitsnap_kv.so -lpthread
 */
#ifndef BITSNAP_KV_H
#define BITSNAP_KV_H

#include "bitsnap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Properties of all pages of a pool. bitsnap_kv_open sets them; after that, any number of threads may read them. */
typedef struct bitsnap_kv {
    size_t page;         /* bytes of a page */
    size_t slot;         /* most bytes of a packed page, one that does not compress included */
    size_t workspace;    /* bytes of scratch memory that each thread needs, in both directions */
    bitsnap_dtype dtype; /* of the elements: BITSNAP_BF16, BITSNAP_F16, BITSNAP_F8_E4M3, ... */
    unsigned block_log2;
} bitsnap_kv;

/* BITSNAP_E_ARGUMENT if a page is empty or no whole number of elements. */
bitsnap_status bitsnap_kv_open(bitsnap_kv *kv, bitsnap_dtype dtype, size_t page);

/* Packs one page. *length becomes the number of bytes used, at most `capacity` and kv->slot, or 0 after an error:
 * BITSNAP_E_CAPACITY if the packed page needs more. A capacity of kv->slot always suffices. */
bitsnap_status bitsnap_kv_pack(const bitsnap_kv *kv, void *workspace, const void *page, void *slot, size_t capacity, size_t *length);

/* Restores one page, bit for bit. The slot may hold any bytes, and they may change during the call. A slot that holds no page of
 * this pool, or a wrong length, is an error. Writes only the kv->page bytes of the page and the workspace. After an error the
 * page is unspecified. */
bitsnap_status bitsnap_kv_unpack(const bitsnap_kv *kv, void *workspace, void *page, const void *slot, size_t length);

/* One page of a batch. */
typedef struct bitsnap_kv_item {
    void *page, *slot;
    size_t length;         /* of the packed page; to pack: on entry the capacity of the slot */
    bitsnap_status status; /* output */
} bitsnap_kv_item;

/* Packs (or unpacks) `count` pages by up to `threads` threads, the caller's included. workspaces: threads * kv->workspace bytes.
 * Returns the number of pages whose status is an error; the others are done. A host that has threads of its own calls the
 * functions above. */
size_t bitsnap_kv_pack_all(const bitsnap_kv *kv, void *workspaces, unsigned threads, bitsnap_kv_item *items, size_t count);
size_t bitsnap_kv_unpack_all(const bitsnap_kv *kv, void *workspaces, unsigned threads, bitsnap_kv_item *items, size_t count);

#ifdef __cplusplus
}
#endif
#endif
