/* The codecs that bitsnap is measured against, on the same tensors in the same process. None of them carries
 * checks, which favours them: bitsnap has checks unless told otherwise.
 *
 * A tensor is cut into chunks, a chunk is grouped into byte planes (plane k: byte k of every element; "raw" peers
 * skip this) and each plane is packed by itself, or stored where it does not shrink. Grouping and ungrouping
 * count. The size of a chunk's plane is the peer's best one; peers.c says how it was found. */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct peers peers; /* contexts and scratch memory, made once */

typedef struct peer {
    const char *name;
    size_t sample; /* compressing more than so many bytes at a time takes too long; 0: no limit */
    /* private */
    int engine, level, grouped;
    size_t piece;
} peer;

peers *peers_open(void); /* null where memory is short */
void peers_close(peers *p);

/* The peers that this program was built with, and null behind the last. */
const peer *peers_get(size_t index);

/* One line for each library that this program was built without; null behind the last. */
const char *peers_missing(size_t index);

/* The versions of the libraries, for people to read. */
const char *peers_versions(void);

/* Replaces the peer's own size of pieces, for trying others; 0 puts it back. */
void peers_set_piece(peers *p, size_t piece);

/* The most bytes that a tensor of so many can take. */
size_t peers_bound(size_t size);

/* Returns the bytes written to `frame`, which has peers_bound(size) of them; 0 on an error. `width`: 2 or 4. */
size_t peers_compress(peers *p, const peer *which, uint8_t *frame, const uint8_t *tensor, size_t size,
                      unsigned width);

/* Returns 1, or 0 on an error. */
int peers_decompress(peers *p, const peer *which, uint8_t *tensor, size_t size, unsigned width,
                     const uint8_t *frame, size_t frame_size);

#endif
