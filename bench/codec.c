#include "codec.h"

#include <string.h>

codec codec_bitsnap(const bitsnap_kernels *kernels)
{
    codec c;
    memset(&c, 0, sizeof c);
    c.name = "bitsnap";
    c.isa = bitsnap_kernels_name(kernels);
    c.level = "default";
    c.kernels = kernels;
    c.bitsnap_level = BITSNAP_DEFAULT;
    c.checks = 1;
    return c;
}

size_t codec_workspace(const codec *c)
{
    const bitsnap b = {.run = pool_run, .workers = pool_workers(c->pool)};
    return bitsnap_workspace_size(&b, UINT64_C(1) << 16, BITSNAP_F64); /* of any number of elements */
}

static bitsnap bitsnap_of(const codec *c)
{
    static unsigned char workspace[BITSNAP_WORKSPACE];
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.level = c->bitsnap_level;
    b.flags = c->checks ? 0 : BITSNAP_NO_CHECKS;
    b.kernels = c->kernels;
    if (c->pool) {
        b.run = pool_run;
        b.run_context = c->pool;
        b.workers = pool_workers(c->pool);
        b.workspace = c->workspace;
        b.workspace_size = codec_workspace(c);
    }
    return b;
}

static size_t frame_bound(size_t size, bitsnap_dtype dtype)
{
    size_t ours = bitsnap_bound(NULL, size / bitsnap_width(dtype), dtype), theirs = peers_bound(size);
    return ours > theirs ? ours : theirs;
}

/* Returns the size of the frame, 0 on an error. */
static size_t compress(const codec *c, uint8_t *frame, const uint8_t *elements, size_t size, bitsnap_dtype dtype)
{
    bitsnap b = bitsnap_of(c);
    size_t frame_size = 0, n = size / bitsnap_width(dtype);
    if (c->peer) return peers_compress(c->contexts, c->peer, frame, elements, size, bitsnap_width(dtype));
    bitsnap_encode(&b, frame, bitsnap_bound(&b, n, dtype), &frame_size, elements, n, dtype);
    return frame_size;
}

/* Returns 1, or 0 on an error. */
static int decompress(const codec *c, uint8_t *elements, size_t size, bitsnap_dtype dtype, const uint8_t *frame,
                      size_t frame_size)
{
    bitsnap b = bitsnap_of(c);
    unsigned width = bitsnap_width(dtype);
    if (c->peer) return peers_decompress(c->contexts, c->peer, elements, size, width, frame, frame_size);
    return !bitsnap_decode(&b, elements, size / width, dtype, frame, frame_size);
}

/* ---- scenes ---- */

static void repeat(uint8_t *to, size_t size, const tensor *t)
{
    for (size_t i = 0; i < size; i += t->size) memcpy(to + i, t->data, size - i < t->size ? size - i : t->size);
}

scene scene_open(const tensor *t, const char *where, size_t size)
{
    /* output less source, modulo a page, with 2048 first, which never collides */
    static const unsigned shift[PLACES_MAX] = {2048, 64, 0, 256, 1024, 3072, 3840, 512};
    static const unsigned frame_shift[PLACES_MAX] = {1088, 1088, 1088, 1088, 1088, 1088, 1088, 1088};
    scene s;
    s.where = where;
    s.dtype = t->dtype;
    s.size = size;
    s.pace = pace_of(size);
    s.memcpy = -1;
    s.source = buffers_open(size, s.pace.places, NULL);
    s.frame = buffers_open(frame_bound(size, t->dtype), s.pace.places, frame_shift);
    s.output = buffers_open(size, s.pace.places, shift);
    for (unsigned k = 0; k < s.pace.places; k++) repeat(s.source.at[k], size, t);
    return s;
}

void scene_close(scene *s)
{
    buffers_close(&s->source);
    buffers_close(&s->frame);
    buffers_close(&s->output);
}

/* ---- what is run on a scene ---- */

typedef struct task {
    const codec *codec;
    const scene *scene;
    size_t size;                   /* bytes compressed by one run */
    size_t frame_size[PLACES_MAX]; /* sizes of their frames, which may differ: some codecs are not reproducible */
} task;

/* If the codec has threads, memcpy uses the same ones: each copies one share. */
typedef struct shares {
    uint8_t *to;
    const uint8_t *from;
    size_t size, share;
} shares;

static void copy_share(void *argument, uint64_t index, unsigned worker)
{
    const shares *s = argument;
    size_t begin = (size_t)index * s->share, size = s->size - begin;
    (void)worker;
    copy_bytes(s->to + begin, s->from + begin, size < s->share ? size : s->share);
}

static int run_memcpy(void *argument, unsigned at)
{
    const task *t = argument;
    const scene *s = t->scene;
    if (t->codec && t->codec->pool) {
        shares all;
        all.to = s->output.at[at];
        all.from = s->source.at[at];
        all.size = s->size;
        all.share = s->size / pool_workers(t->codec->pool) + 1;
        pool_run(t->codec->pool, copy_share, &all, (s->size + all.share - 1) / all.share);
    } else {
        copy_bytes(s->output.at[at], s->source.at[at], s->size);
    }
    return 1;
}

static int run_compress(void *argument, unsigned at)
{
    task *t = argument;
    const scene *s = t->scene;
    t->frame_size[at] = compress(t->codec, s->frame.at[at], s->source.at[at], t->size, s->dtype);
    return t->frame_size[at] > 0;
}

/* Decompresses the frame. If only a sample was compressed, its frame is repeated up to the tensor's size. */
static int run_decompress(void *argument, unsigned at)
{
    const task *t = argument;
    const scene *s = t->scene;
    size_t frame_size = t->frame_size[at];
    for (size_t k = 0; k < s->size / t->size; k++)
        if (!decompress(t->codec, s->output.at[at] + k * t->size, t->size, s->dtype,
                        s->frame.at[at] + k * frame_size, frame_size)) return 0;
    return 1;
}

/* Appends copies of a sample's frame, for run_decompress. */
static void spread(const task *t)
{
    for (unsigned p = 0; p < t->scene->pace.places; p++) {
        uint8_t *frame = t->scene->frame.at[p];
        for (size_t k = 1; k < t->scene->size / t->size; k++)
            memcpy(frame + k * t->frame_size[p], frame, t->frame_size[p]);
    }
}

/* Compares the round trip at the first position with the source. Copies the frame to the other positions. */
static int round_trip(task *t)
{
    const scene *s = t->scene;
    if (!run_compress(t, 0)) return 0;
    for (unsigned p = 1; p < s->pace.places; p++) {
        t->frame_size[p] = t->frame_size[0];
        memcpy(s->frame.at[p], s->frame.at[0], t->frame_size[0]);
    }
    spread(t);
    memset(s->output.at[0], 0xA5, s->size);
    if (!run_decompress(t, 0)) return 0;
    for (size_t k = 0; k < s->size / t->size; k++)
        if (memcmp(s->output.at[0] + k * t->size, s->source.at[0], t->size) != 0) return 0;
    return 1;
}

/* Measures a codec, and keeps better values that *r already has. Returns 0 if the round trip is not exact. */
static int measure_codec(result *r, const codec *c, const scene *s, double budget)
{
    task t;
    memset(&t, 0, sizeof t);
    t.codec = c;
    t.scene = s;
    t.size = c->peer && c->peer->sample && c->peer->sample < s->size ? c->peer->sample : s->size;
    if (!round_trip(&t)) return 0;
    r->size = t.size;
    r->frame_size = t.frame_size[0];
    if (!measure(run_compress, run_memcpy, &t, &s->pace, budget / 2, &r->compress, &r->memcpy)) return 0;
    r->compress_counts = measure_counts(run_compress, &t, &s->pace);
    spread(&t);
    if (!measure(run_decompress, run_memcpy, &t, &s->pace, budget / 2, &r->decompress, &r->memcpy)) return 0;
    r->decompress_counts = measure_counts(run_decompress, &t, &s->pace);
    return 1;
}

static int measure_memcpy(result *r, const scene *s, double budget)
{
    task t;
    memset(&t, 0, sizeof t);
    t.scene = s;
    r->size = r->frame_size = s->size;
    if (!measure(run_memcpy, run_memcpy, &t, &s->pace, budget, &r->compress, &r->memcpy)) return 0;
    if (r->compress < r->memcpy) r->memcpy = r->compress;
    r->compress = r->decompress = r->memcpy;
    r->compress_counts = r->decompress_counts = measure_counts(run_memcpy, &t, &s->pace);
    return 1;
}

int scene_measure(result *r, const codec *c, scene *s, double budget)
{
    memset(r, 0, sizeof *r);
    r->compress = r->decompress = r->memcpy = -1;
    for (unsigned tries = 0; tries < 3; tries++) {
        if (!(c->peer || c->level ? measure_codec(r, c, s, budget) : measure_memcpy(r, s, budget))) return 0;
        if (!measure_disturbed(&s->memcpy, r->memcpy)) break;
    }
    return 1;
}

double gbps(size_t size, double seconds) { return seconds > 0 ? 1e-9 * (double)size / seconds : 0; }
