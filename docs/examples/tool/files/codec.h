/* codec.h - the codec of a command, with its memory and threads.
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
    int sha256;      /* 1: files made from their elements get a SHA-256 of their source */
    size_t window;   /* bytes of elements coded in one call: a multiple of 8 MiB, so a whole number of blocks of any
                        size and dtype */
    used_files used; /* what the run reads and writes */
    unsigned depth;  /* current depth of bases of bases that find_beside opens (base.h) */
    struct known_files *known; /* headers of files that it has looked at, until all are open; else null */
} codec;

/* Starts `threads` threads; 0: one for each processor that this process may use. Starts fewer if they need more than `memory`
 * bytes, with the decoders of `chain` packed files that are bases of each other. `memory` 0: an eighth of what the process may
 * have. */
int codec_open(codec *c, unsigned threads, int level, uint64_t memory, size_t chain, fault *f);
void codec_close(codec *c);

/* Returns the bytes of workspace for blocks of this size (0: the default). large: 1 if they may have a base, a quantizer or
 * columns. The size for two workers is enough to merge. */
size_t codec_workspace(const codec *c, unsigned block_log2, unsigned workers, int large);

/* Allocates that workspace. If it would be too large, fewer threads are used. */
int codec_reserve(codec *c, unsigned block_log2, int large, fault *f);

/* Converts elements in place between little-endian, as in files, and native byte order, as in the codec. Does nothing on
 * little-endian machines. */
void swap_elements(void *elements, size_t bytes, unsigned width);

#endif
