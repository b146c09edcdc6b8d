/* The codecs that bitsnap is compared with, on the same tensors in the same process. None of them writes checks,
 * which favours them: bitsnap has checks unless they are switched off.
 *
 * A tensor is cut into chunks, and each chunk into byte planes (plane k: byte k of every element). "Raw" peers
 * skip the planes. Each plane is packed alone, or stored if it does not shrink. Times include splitting and
 * joining. The size of a plane is the peer's best one; peers.c says how it was found. */
#ifndef BENCH_PEERS_H
#define BENCH_PEERS_H

#include <stddef.h>
#include <stdint.h>

typedef struct peers peers; /* contexts and scratch memory, made once */

typedef struct peer {
    const char *name;
    size_t sample; /* most bytes to compress, for slow peers; 0: no limit */
    /* private */
    int engine, level, grouped;
    size_t piece;
} peer;

peers *peers_open(void); /* null: out of memory */
void peers_close(peers *p);

/* Returns a peer that this program was built with; null past the last. */
const peer *peers_get(size_t index);

/* Returns a line for each library that this program was built without; null past the last. */
const char *peers_missing(size_t index);

/* Returns the versions of the libraries, as text. */
const char *peers_versions(void);

/* Overrides the piece size of all peers; 0 restores their own. */
void peers_set_piece(peers *p, size_t piece);

/* Returns the largest frame size of a tensor of `size` bytes. */
size_t peers_bound(size_t size);

/* Returns the bytes written to `frame`, which has peers_bound(size) of them; 0 on an error. `width`: 2 or 4. */
size_t peers_compress(peers *p, const peer *which, uint8_t *frame, const uint8_t *tensor, size_t size,
                      unsigned width);

/* Returns 1, or 0 on an error. */
int peers_decompress(peers *p, const peer *which, uint8_t *tensor, size_t size, unsigned width,
                     const uint8_t *frame, size_t frame_size);

#endif
