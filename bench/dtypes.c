/* --dtypes: integers, and F64 with too many exponents for symbols, each compared with the float of the same width. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "report.h"

/* A kind of contents, and the dtypes measured with it. The first four are the floats to compare with. */
static const struct {
    const char *name;
    bitsnap_dtype dtypes[4];
} contents[] = {
    {"weights", {BITSNAP_F8_E4M3, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64}},
    {"random", {BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}},
    {"normal", {BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}}, /* like quantized weights of 7 or 12 bits */
    {"signed", {BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}},             /* within +-3000 */
    {"counts", {BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}}, /* each half as frequent as the one below */
    {"tokens", {BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}},             /* from a vocabulary of 65,535, about Zipf-distributed */
    {"sorted", {BITSNAP_I16, BITSNAP_I32, BITSNAP_I64}},             /* ascending in steps up to 15 */
    {"times", {BITSNAP_I32, BITSNAP_I64}},                           /* ascending by 1 or 2 seconds, or nanoseconds more */
    {"mask-1", {BITSNAP_BOOL}},                                      /* the number: percentage of ones */
    {"mask-10", {BITSNAP_BOOL}},
    {"mask-50", {BITSNAP_BOOL}},
    {"wide", {BITSNAP_F64}},                                         /* all bits random */
};
enum { CONTENTS = sizeof contents / sizeof *contents };

/* Makes a float of medium size. */
static uint64_t float_bits(double value, unsigned width)
{
    static const unsigned mantissa[9] = {0, 3, 7, 0, 23, 0, 0, 0, 52}, bias[9] = {0, 7, 127, 0, 127, 0, 0, 0, 1023};
    uint64_t bits, magnitude, least = (uint64_t)(1023 - bias[width]) << mantissa[width];
    memcpy(&bits, &value, 8);
    magnitude = bits << 1 >> 1 >> (52 - mantissa[width]);
    return bits >> 63 << (8 * width - 1) | (magnitude > least ? magnitude - least : 0);
}

static uint64_t element(const char *content, unsigned width, uint64_t last, uint64_t *state)
{
    const uint64_t r = tensors_random(state);
    unsigned zeros = 0;
    while (zeros < 63 && !(r >> zeros & 1)) zeros++;
    if (!strcmp(content, "weights")) return float_bits(tensors_normal(state) * (width == 1 ? 1 : 0.02), width);
    if (!strcmp(content, "normal")) return (uint64_t)(int64_t)(tensors_normal(state) * (width == 1 ? 20 : 600));
    if (!strcmp(content, "signed")) return r % 6001 - 3000;
    if (!strcmp(content, "counts")) return zeros;
    if (!strcmp(content, "tokens")) return (UINT64_C(1) << r % 16) + (r >> 8) % (UINT64_C(1) << r % 16) - 1;
    if (!strcmp(content, "sorted")) return last + r % 16;
    if (!strcmp(content, "times")) return (last ? last : width == 4 ? 1700000000 : UINT64_C(1700000000000000000)) + 1 + r % (width == 4 ? 2 : 2000000);
    if (!strncmp(content, "mask-", 5)) return r % 100 < strtoul(content + 5, NULL, 10);
    return r;
}

static tensor make(const options *o, const char *content, bitsnap_dtype dtype)
{
    const unsigned width = bitsnap_width(dtype);
    uint64_t state = 1, x = 0;
    tensor t;
    memset(&t, 0, sizeof t);
    t.dtype = dtype;
    t.size = o->dram_size;
    t.data = malloc(t.size);
    if (!t.data) fail("out of memory", "");
    snprintf(t.file, sizeof t.file, "%s", content);
    for (size_t i = 0; i < t.size; i += width) {
        x = element(content, width, x, &state);
        for (unsigned k = 0; k < width; k++) t.data[i + k] = (uint8_t)(x >> 8 * k);
    }
    return t;
}

static void print(const options *o, const tensor *t, const codec *c, const result *r, const result *like)
{
    static int rows;
    const char *dtype = bitsnap_dtype_name(t->dtype);
    const double ratio = (double)r->size / (double)r->frame_size, compress = gbps(r->size, r->compress);
    const double decompress = gbps(r->size, r->decompress);
    if (o->json) {
        printf(rows++ ? ",\n{" : "\n{");
        json_member("dtype", dtype);
        json_member("content", t->file);
        json_member("isa", c->isa);
        json_member("level", c->level);
        printf("\"bytes\":%zu,\"ratio\":%.5f,\"compress_gbps\":%.4f,\"compress_of_float\":%.4f,\"decompress_gbps\":%.4f,"
               "\"decompress_of_float\":%.4f}", r->frame_size, ratio, compress, like->compress / r->compress, decompress,
               like->decompress / r->decompress);
    } else {
        printf("%-8s %-8s %-7s %-8s %8zu %9.4f %9.3f %9.3f %9.3f %9.3f\n", dtype, t->file, c->isa, c->level, r->frame_size, ratio,
               compress, like->compress / r->compress, decompress, like->decompress / r->decompress);
    }
    fflush(stdout);
}

/* Measures one dtype of one content. For each kernel table and level, the float is measured directly before it. */
static void bench_pair(const options *o, const tensor *t, const tensor *like)
{
    static const char *const levels[] = {"fast", "default", "best"};
    scene s = scene_open(t, "l2", t->size), f = scene_open(like, "l2", like->size);
    for (unsigned k = 0; bitsnap_kernels_get(k); k++)
        for (unsigned level = 0; level < 3; level++) {
            codec c = codec_bitsnap(bitsnap_kernels_get(k));
            result r, of;
            c.level = levels[level];
            c.bitsnap_level = level == 0 ? BITSNAP_FAST : level == 1 ? BITSNAP_DEFAULT : BITSNAP_BEST;
            if (!passes(o->isa, c.isa) || !passes(o->level, c.level) || (o->quick && level != 1)) continue;
            if (!scene_measure(&of, &c, &f, o->budget) || !scene_measure(&r, &c, &s, o->budget))
                fail("the round trip failed: ", t->file);
            print(o, t, &c, &r, &of);
        }
    scene_close(&s);
    scene_close(&f);
}

void bench_dtypes(const options *o)
{
    const int processor = machine_pin();
    tensor floats[4];
    for (unsigned k = 0; k < 4; k++) floats[k] = make(o, contents[0].name, contents[0].dtypes[k]);
    if (o->json) {
        json_title();
        printf("\n\"dtypes\":[");
    } else {
        report_title(processor);
        printf("tensors   made up, %zu MiB; with checks; of float: share of the speed of F8_E4M3, BF16, F32 or F64 weights\n\n",
               o->dram_size >> 20);
        printf("%33s %8s %9s %-19s %-19s\n", "", "", "", "compress", "decompress");
        printf("%-8s %-8s %-7s %-8s %8s %9s %9s %9s %9s %9s\n", "dtype", "content", "isa", "level", "bytes", "ratio", "GB/s",
               "of float", "GB/s", "of float");
    }
    for (unsigned i = 1; i < CONTENTS; i++)
        for (unsigned k = 0; k < 4 && contents[i].dtypes[k]; k++) {
            const bitsnap_dtype dtype = contents[i].dtypes[k];
            tensor t;
            unsigned like = 0;
            if (!passes(o->file, contents[i].name) || !passes(o->dtype, bitsnap_dtype_name(dtype))) continue;
            while (bitsnap_width(floats[like].dtype) != bitsnap_width(dtype)) like++;
            t = make(o, contents[i].name, dtype);
            bench_pair(o, &t, &floats[like]);
            tensors_free(&t, 1);
        }
    if (o->json) printf("\n]}\n");
    tensors_free(floats, 4);
}
