/* The entropy coder of "Lossless Compression for LLM Tensor Incremental Snapshots" (LMC, arXiv 2505.09810) in
 * the straightforward way, as a mark to measure against: runs and Huffman on the bytes of a plane. The byte
 * grouping before it is in peers.c. */
#ifndef BENCH_LMC_H
#define BENCH_LMC_H

#include <stddef.h>
#include <stdint.h>

/* Packs n bytes (below 2^28) into fewer. Returns the bytes written, or 0 where that would not save 1/64 of them
 * (noise that is coded for next to nothing would cost the decoder its time); `to` has n bytes. */
size_t lmc_pack(uint8_t *to, const uint8_t *from, size_t n);

/* Restores n bytes. Returns 1, or 0 where the source is damaged. */
int lmc_unpack(uint8_t *to, size_t n, const uint8_t *from, size_t size);

#endif
