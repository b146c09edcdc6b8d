/* A codec with its settings, and a scene: a tensor in memory on which it is measured. */
#ifndef BENCH_CODEC_H
#define BENCH_CODEC_H

#include "bitsnap.h"
#include "docs/examples/tool/system/parallel.h"
#include "docs/examples/tool/system/processors.h"
#include "measure.h"
#include "peers.h"
#include "tensors.h"

/* memcpy where both `peer` and `level` are null. */
typedef struct codec {
    const char *name, *isa, *level;  /* level: null for peers */
    const bitsnap_kernels *kernels;  /* bitsnap only: these, up to `pool` */
    int bitsnap_level;
    int checks;
    pool *pool;                      /* null: one thread */
    void *workspace;                 /* with a pool: codec_workspace(); else not used */
    const peer *peer;                /* null for bitsnap and memcpy */
    peers *contexts;
} codec;

size_t codec_workspace(const codec *c); /* of one with a pool */

/* bitsnap's default level with checks, on the calling thread. */
codec codec_bitsnap(const bitsnap_kernels *kernels);

typedef struct scene {
    const char *where;
    bitsnap_dtype dtype;
    size_t size;
    pace pace;
    buffers source, frame, output;
    double memcpy; /* shortest time so far */
} scene;

/* `size` bytes of the tensor, which is repeated as often as needed. */
scene scene_open(const tensor *t, const char *where, size_t size);
void scene_close(scene *s);

typedef struct result {
    size_t size, frame_size; /* of the bytes that were compressed at a time */
    double compress, decompress, memcpy; /* the shortest times, of `scene.size` bytes but for compress: `size` */
    counts compress_counts, decompress_counts; /* of the same runs */
} result;

/* Measures a codec for about `budget` seconds, longer where something else is using the memory. Returns 0 where
 * the round trip is not exact. */
int scene_measure(result *r, const codec *c, scene *s, double budget);

/* 10^9 bytes a second, 0 where there is no time */
double gbps(size_t size, double seconds);

#endif
