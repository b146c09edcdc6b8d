/* --threads: speeds of bitsnap.run with several threads, compared with memcpy on the same number. */
#include <stdio.h>
#include <stdlib.h>

#include "codec.h"
#include "modes.h"
#include "report.h"

static void table_begin(const options *o, const tensor *t)
{
    report_title(-1);
    printf("tensor    %s, %s, %zu MiB; level default, with checks\n\n", t->file, tensors_dtype_name(t->dtype),
           o->dram_size >> 20);
    printf("%30s %-26s %-26s\n", "", "compress", "decompress");
    printf("%7s %-7s %13s %7s %9s %8s %7s %9s %8s\n", "threads", "isa", "memcpy GB/s", "GB/s", "of memcpy", "speed-up",
           "GB/s", "of memcpy", "speed-up");
    fflush(stdout);
}

/* `one`: the row of a single thread */
static void table_row(const codec *c, const result *r, const result *one)
{
    printf("%7u %-7s %13.3f %7.3f %9.4f %8.2f %7.3f %9.4f %8.2f\n", pool_workers(c->pool), c->isa,
           gbps(r->size, r->memcpy), gbps(r->size, r->compress), r->memcpy / r->compress, one->compress / r->compress,
           gbps(r->size, r->decompress), r->memcpy / r->decompress, one->decompress / r->decompress);
    fflush(stdout);
}

static void json_row(const codec *c, const tensor *t, const result *r)
{
    printf("{\"threads\":%u,", pool_workers(c->pool));
    json_member("codec", c->name);
    json_member("isa", c->isa);
    json_member("level", c->level);
    json_member("dtype", tensors_dtype_name(t->dtype));
    json_member("file", t->file);
    printf("\"hashes\":true,\"bytes\":%zu,\"ratio\":%.5f,\"memcpy_gbps\":%.4f,\"compress_gbps\":%.4f,"
           "\"decompress_gbps\":%.4f}", r->size, (double)r->size / (double)r->frame_size, gbps(r->size, r->memcpy),
           gbps(r->size, r->compress), gbps(r->size, r->decompress));
    fflush(stdout);
}

/* Returns the next number of threads: 1, 2, ... 8, then doubling, and last the number of processors. */
static unsigned next_count(unsigned threads, unsigned all)
{
    unsigned next = threads < 8 ? threads + 1 : 2 * threads;
    return threads < all && next > all ? all : next;
}

/* Returns 0 if the system does not start this number of threads. */
static int measure_threads(result *r, codec *c, scene *s, unsigned threads, double budget)
{
    c->pool = pool_new(threads);
    c->workspace = malloc(codec_workspace(c));
    if (!c->pool || !c->workspace) fail("out of memory", "");
    s->memcpy = -1; /* must not be that of fewer threads */
    if (pool_workers(c->pool) < threads) return 0;
    if (!scene_measure(r, c, s, budget)) fail("the round trip failed: ", c->isa);
    return 1;
}

void bench_threads(const options *o, const tensor *t)
{
    scene s = scene_open(t, "dram", o->dram_size);
    const unsigned all = processors();
    int rows = 0;
    if (o->json) {
        json_title();
        printf("\n\"processors\":%u,\"threads\":[", all);
    } else {
        table_begin(o, t);
    }
    for (unsigned k = 0; bitsnap_kernels_get(k); k++) {
        codec c = codec_bitsnap(bitsnap_kernels_get(k));
        result r, one;
        if (o->isa ? !passes(o->isa, c.isa) : bitsnap_kernels_get(k + 1) != NULL) continue; /* the last one is the fastest */
        for (unsigned threads = 1; threads <= all; threads = next_count(threads, all)) {
            if (measure_threads(&r, &c, &s, threads, o->budget)) {
                if (threads == 1) one = r;
                if (o->json) {
                    printf(rows++ ? ",\n" : "\n");
                    json_row(&c, t, &r);
                } else {
                    table_row(&c, &r, &one);
                }
            }
            pool_free(c.pool);
            free(c.workspace);
        }
    }
    if (o->json) printf("\n]}\n");
    scene_close(&s);
}
