/* A plain version of the entropy coder of "Lossless Compression for LLM Tensor Incremental Snapshots" (LMC, arXiv
 * 2505.09810), to compare with: runs and Huffman codes of the bytes of a plane. Byte grouping is in peers.c. */
#ifndef BENCH_LMC_H
#define BENCH_LMC_H

#include <stddef.h>
#include <stdint.h>

/* Packs n bytes (below 2^28) to `to`, which has n bytes. Returns the bytes written, or 0 if that would save less
 * than 1/64: coded noise costs the decoder time for almost no gain. */
size_t lmc_pack(uint8_t *to, const uint8_t *from, size_t n);

/* Restores n bytes. Returns 0 if the source is damaged. */
int lmc_unpack(uint8_t *to, size_t n, const uint8_t *from, size_t size);

#endif
