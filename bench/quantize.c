/* --quantize: sizes and speeds of quantizing by logarithmic bins, and by 16 clusters, for every kernel table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "report.h"

/* A part of a tensor, and how it is quantized. */
typedef struct task {
    bitsnap encoder, decoder;
    buffers source, frame, output;
    size_t elements, capacity, frame_size;
    pace pace;
    double memcpy, compress, decompress; /* shortest times; below 0: none yet */
} task;

static int run_copy(void *argument, unsigned at)
{
    const task *t = argument;
    copy_bytes(t->output.at[at], t->source.at[at], 4 * t->elements);
    return 1;
}

static int run_compress(void *argument, unsigned at)
{
    task *t = argument;
    return !bitsnap_encode(&t->encoder, t->frame.at[at], t->capacity, &t->frame_size, t->source.at[at], t->elements, BITSNAP_F32);
}

static int run_decompress(void *argument, unsigned at)
{
    task *t = argument;
    return !bitsnap_decode(&t->decoder, t->output.at[at], t->elements, BITSNAP_F32, t->frame.at[at], t->frame_size);
}

static void table_begin(const options *o, int processor)
{
    report_title(processor);
    printf("tensors   f32, %zu MiB of each; level default, with checks\n\n", o->dram_size >> 20);
    printf("%35s %-9s %-8s %-18s  %-18s\n", "", "bits an", "memcpy", "compress", "decompress");
    printf("%-12s %-7s %6s %7s %9s %8s %8s %9s  %8s %9s\n", "tensor", "isa", "cells", "columns", "element", "GB/s", "GB/s",
           "of memcpy", "GB/s", "of memcpy");
    fflush(stdout);
}

static void row(const options *o, const task *t, const char *file)
{
    static int rows;
    const size_t size = 4 * t->elements;
    const double bits = 8.0 * (double)t->frame_size / (double)t->elements;
    const char *isa = bitsnap_kernels_name(t->encoder.kernels);
    if (o->json) {
        printf(rows++ ? ",\n{" : "\n{");
        json_member("file", file);
        json_member("isa", isa);
        printf("\"cells\":%u,\"clusters\":%u,\"columns\":%u,\"bytes\":%zu,\"bits\":%.4f,\"memcpy_gbps\":%.4f,\"compress_gbps\":%.4f,"
               "\"decompress_gbps\":%.4f}", t->encoder.quantizer.bins, t->encoder.quantizer.clusters, (unsigned)t->encoder.columns, size, bits,
               gbps(size, t->memcpy), gbps(size, t->compress), gbps(size, t->decompress));
    } else {
        if (t->encoder.quantizer.bins) printf("%-12s %-7s %6u", file, isa, t->encoder.quantizer.bins);
        else printf("%-12s %-7s %2u cl.", file, isa, t->encoder.quantizer.clusters);
        printf(" %7u %9.3f %8.3f %8.3f %9.4f  %8.3f %9.4f\n", (unsigned)t->encoder.columns, bits, gbps(size, t->memcpy), gbps(size, t->compress), t->memcpy / t->compress,
               gbps(size, t->decompress), t->memcpy / t->decompress);
    }
    fflush(stdout);
}

static void bench_tensor(const options *o, const tensor *of, task *t)
{
    static const unsigned cells[] = {70, 35, 16, 8, 4, 0}; /* 0: clusters, which have no scales */
    const size_t size = 4 * t->elements;
    for (unsigned at = 0; at < t->pace.places; at++)
        for (size_t i = 0; i < size; i++) t->source.at[at][i] = of->data[i % of->size];
    for (unsigned c = 0; c < sizeof cells / sizeof *cells; c++)
        for (unsigned columns = 0; columns <= (cells[c] ? 256 : 0); columns += 256)
            for (unsigned k = 0; bitsnap_kernels_get(k); k++) {
                const bitsnap_kernels *kernels = bitsnap_kernels_get(k);
                if (!passes(o->isa, bitsnap_kernels_name(kernels))) continue;
                if (o->quick && !o->isa && bitsnap_kernels_get(k + 1)) continue; /* the last one is the fastest */
                t->encoder.kernels = t->decoder.kernels = kernels;
                t->encoder.quantizer.bins = cells[c];
                t->encoder.quantizer.clusters = cells[c] ? 0 : 16;
                t->encoder.columns = columns;
                t->memcpy = t->compress = t->decompress = -1;
                if (!measure(run_compress, run_copy, t, &t->pace, o->budget, &t->compress, &t->memcpy)) fail("cannot compress: ", of->file);
                for (unsigned at = 0; at < t->pace.places; at++)
                    if (!run_compress(t, at)) fail("cannot compress: ", of->file);
                if (!measure(run_decompress, run_copy, t, &t->pace, o->budget, &t->decompress, &t->memcpy)) fail("cannot decompress: ", of->file);
                row(o, t, of->file);
            }
}

void bench_quantize(const options *o, const tensor *list, size_t count)
{
    const int processor = machine_pin();
    int moments = 0;
    const bitsnap largest = {.block_log2 = 19, .quantizer = {.bins = 1}};
    task t;
    memset(&t, 0, sizeof t);
    t.elements = o->dram_size / 4;
    t.capacity = bitsnap_bound(&largest, t.elements, BITSNAP_F32);
    t.pace = pace_of(o->dram_size);
    t.source = buffers_open(o->dram_size, t.pace.places, NULL);
    t.frame = buffers_open(t.capacity, t.pace.places, NULL);
    t.output = buffers_open(o->dram_size, t.pace.places, NULL);
    t.encoder.workspace_size = t.decoder.workspace_size = bitsnap_workspace_size(&largest, t.elements, BITSNAP_F32);
    t.encoder.workspace = t.decoder.workspace = malloc(t.encoder.workspace_size);
    if (!t.encoder.workspace) fail("out of memory", "");
    for (size_t k = 0; k < count; k++) moments |= strstr(list[k].file, "adam_") != NULL;
    if (o->json) {
        json_title();
        printf("\n\"quantize\":[");
    } else {
        table_begin(o, processor);
    }
    for (size_t k = 0; k < count; k++) {
        if (list[k].dtype != BITSNAP_F32 || !passes(o->file, list[k].file)) continue;
        if (moments && !o->file && !strstr(list[k].file, "adam_")) continue;
        bench_tensor(o, &list[k], &t);
    }
    if (o->json) printf("\n]}\n");
    buffers_close(&t.source);
    buffers_close(&t.frame);
    buffers_close(&t.output);
    free(t.encoder.workspace);
}
