/* --sizes: times of compressing and decompressing tensors from 1 KiB to 1 GiB. */
#include <stdio.h>

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "report.h"

static void table_begin(const tensor *t, int processor)
{
    report_title(processor);
    printf("tensor    %s, %s; level default, with checks\n\n", t->file, tensors_dtype_name(t->dtype));
    printf("%28s %-12s %-31s %-31s\n", "", "memcpy", "compress", "decompress");
    printf("%11s %-7s %7s %12s %12s %8s %9s %12s %8s %9s\n", "bytes", "isa", "ratio", "us", "us", "GB/s", "of memcpy",
           "us", "GB/s", "of memcpy");
    fflush(stdout);
}

static void table_row(const codec *c, const result *r)
{
    printf("%11zu %-7s %7.4f %12.3f %12.3f %8.3f %9.4f %12.3f %8.3f %9.4f\n", r->size, c->isa,
           (double)r->size / (double)r->frame_size, 1e6 * r->memcpy, 1e6 * r->compress, gbps(r->size, r->compress),
           r->memcpy / r->compress, 1e6 * r->decompress, gbps(r->size, r->decompress), r->memcpy / r->decompress);
    fflush(stdout);
}

static void json_row(const codec *c, const tensor *t, const result *r)
{
    const double n = (double)r->size / bitsnap_width(t->dtype);
    putchar('{');
    json_member("codec", c->name);
    json_member("isa", c->isa);
    json_member("level", c->level);
    json_member("dtype", tensors_dtype_name(t->dtype));
    json_member("file", t->file);
    printf("\"hashes\":true,\"bytes\":%zu,\"ratio\":%.5f,\"memcpy_us\":%.4f,\"compress_us\":%.4f,\"decompress_us\":%.4f,"
           "\"memcpy_gbps\":%.4f,\"compress_gbps\":%.4f,\"decompress_gbps\":%.4f", r->size,
           (double)r->size / (double)r->frame_size, 1e6 * r->memcpy, 1e6 * r->compress, 1e6 * r->decompress,
           gbps(r->size, r->memcpy), gbps(r->size, r->compress), gbps(r->size, r->decompress));
    json_counts("compress_", &r->compress_counts, n);
    json_counts("decompress_", &r->decompress_counts, n);
    putchar('}');
    fflush(stdout);
}

/* --quick: the fastest table only. */
static int wanted(const options *o, unsigned table)
{
    const bitsnap_kernels *kernels = bitsnap_kernels_get(table);
    return passes(o->isa, bitsnap_kernels_name(kernels)) && (!o->quick || o->isa || !bitsnap_kernels_get(table + 1));
}

void bench_sizes(const options *o, const tensor *t)
{
    int rows = 0, processor = machine_pin();
    if (o->json) {
        json_title();
        printf("\n\"sizes\":[");
    } else {
        table_begin(t, processor);
    }
    for (size_t size = 1024; size <= o->dram_size; size *= 4) {
        scene s = scene_open(t, "", size);
        for (unsigned k = 0; bitsnap_kernels_get(k); k++) {
            codec c;
            result r;
            if (!wanted(o, k)) continue;
            c = codec_bitsnap(bitsnap_kernels_get(k));
            if (!scene_measure(&r, &c, &s, o->budget)) fail("the round trip failed: ", c.isa);
            if (o->json) {
                printf(rows++ ? ",\n" : "\n");
                json_row(&c, t, &r);
            } else {
                table_row(&c, &r);
            }
        }
        scene_close(&s);
    }
    if (o->json) printf("\n]}\n");
}
