/* codec.h - the codec with its memory and threads, as all commands use it.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CODEC_H
#define TOOL_CODEC_H

#include "bitsnap.h"
#include "../console/fault.h"
#include "../system/parallel.h"
#include "../system/place.h"

typedef struct codec {
    bitsnap b;
    pool *threads;
    int sha256;      /* files that are written from their elements get a SHA-256 of their source */
    size_t window;   /* bytes of elements that are coded in one go: a multiple of 8 MiB, which is a whole number
                        of blocks whatever their size and dtype */
    used_files used; /* what the run reads and writes */
    unsigned depth;  /* bases of bases that have been found and are being opened: base.h */
    struct known_files *known; /* and what is known of them, until all are open */
} codec;

/* 0 threads: one for each processor that this process may use; but no more than `memory` is enough for, with the decoders of so many packed
 * files that stand on each other. 0: an eighth of what the process may have. */
int codec_open(codec *c, unsigned threads, int level, uint64_t memory, size_t chain, fault *f);
void codec_close(codec *c);

/* Bytes of workspace for blocks of this size (0: the usual ones). large: 1 if they may have a base, a quantizer or columns. That of two
 * workers is enough to merge. */
size_t codec_workspace(const codec *c, unsigned block_log2, unsigned workers, int large);

/* Reserves that workspace. If it is too much, fewer threads will work. */
int codec_reserve(codec *c, unsigned block_log2, int large, fault *f);

/* Elements of files are little-endian, those of the codec as the machine has them: from one to the other, in
 * place. Does nothing on little-endian machines. */
void swap_elements(void *elements, size_t bytes, unsigned width);

#endif
