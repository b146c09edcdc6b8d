/* A codec with its settings, and a scene: the tensor in memory that it is measured on. */
#ifndef BENCH_CODEC_H
#define BENCH_CODEC_H

#include "bitsnap.h"
#include "docs/examples/tool/system/parallel.h"
#include "docs/examples/tool/system/processors.h"
#include "measure.h"
#include "peers.h"
#include "tensors.h"

/* If `peer` and `level` are null, the codec is memcpy. */
typedef struct codec {
    const char *name, *isa, *level;  /* level: null for peers */
    const bitsnap_kernels *kernels;  /* bitsnap only: these, up to `pool` */
    int bitsnap_level;
    int checks;
    pool *pool;                      /* null: one thread */
    void *workspace;                 /* with a pool: codec_workspace() bytes; otherwise not used */
    const peer *peer;                /* null for bitsnap and memcpy */
    peers *contexts;
} codec;

size_t codec_workspace(const codec *c); /* bytes, for a codec with a pool */

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

/* Opens a scene with `size` bytes of the tensor, repeated if it is smaller. */
scene scene_open(const tensor *t, const char *where, size_t size);
void scene_close(scene *s);

typedef struct result {
    size_t size, frame_size; /* bytes compressed by one run, and those of their frame */
    double compress, decompress, memcpy; /* shortest times; compress: of `size` bytes, the others: of scene.size */
    counts compress_counts, decompress_counts; /* of the same runs */
} result;

/* Measures a codec for about `budget` seconds, longer if something else is using the memory. Returns 0 if the
 * round trip is not exact. */
int scene_measure(result *r, const codec *c, scene *s, double budget);

/* Returns 10^9 bytes a second; 0 if no time was measured. */
double gbps(size_t size, double seconds);

#endif
