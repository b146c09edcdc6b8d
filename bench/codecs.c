/* The default mode: every codec, level and kernel table on every tensor. A tensor of 1 MiB shows speeds in the
 * cache, one of 256 MiB those in memory. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "published.h"
#include "report.h"

/* ---- rows ---- */

typedef struct row {
    const char *codec, *isa, *level, *where;
    int checks;
    char file[64];
    bitsnap_dtype dtype;
    size_t bytes;
    double elements; /* number of elements that were decompressed */
    double decompressed_elements;
    double ratio, compress, decompress, memcpy; /* GB/s */
    counts compress_counts, decompress_counts;
} row;

static row row_of(const codec *c, const tensor *t, const scene *s, const result *r)
{
    size_t decompressed = s->size / r->size * r->size;
    row w;
    w.codec = c->name;
    w.isa = c->isa;
    w.level = c->level;
    w.where = s->where;
    w.checks = c->checks;
    memcpy(w.file, t->file, sizeof w.file);
    w.dtype = t->dtype;
    w.bytes = r->size;
    w.elements = (double)r->size / bitsnap_width(t->dtype);
    w.decompressed_elements = (double)decompressed / bitsnap_width(t->dtype);
    w.ratio = (double)r->size / (double)r->frame_size;
    w.compress = gbps(r->size, r->compress);
    w.decompress = gbps(decompressed, r->decompress);
    w.memcpy = gbps(s->size, r->memcpy);
    w.compress_counts = r->compress_counts;
    w.decompress_counts = r->decompress_counts;
    return w;
}

typedef struct report {
    const options *options;
    peers *contexts;
    row *rows; /* for JSON, where the best of all comes first */
    size_t count, capacity;
    double memcpy[2]; /* best of all rows: l2, dram */
} report;

static void table_begin(const report *p, int processor)
{
    report_title(processor);
    printf("sizes     l2 1 MiB, dram %zu MiB\n\n", p->options->dram_size >> 20);
    printf("%66s %-17s  %-17s\n", "", "compress", "decompress");
    printf("%-14s %-7s %-5s %-15s %-6s %-7s %-6s  %-6s %6s %9s  %6s %9s", "file", "dtype", "where", "codec", "isa",
           "level", "checks", "ratio", "GB/s", "of memcpy", "GB/s", "of memcpy");
    if (counters_work()) printf("  cycles and instructions for an element: in, out");
    putchar('\n');
    fflush(stdout);
}

static void table_row(const row *w)
{
    const char *level = w->level ? w->level : "-", *checks = !w->level ? "-" : w->checks ? "on" : "off";
    printf("%-14s %-7s %-5s %-15s %-6s %-7s %-6s %7.4f %6.3f %9.4f  %6.3f %9.4f", w->file,
           tensors_dtype_name(w->dtype), w->where, w->codec, w->isa, level, checks, w->ratio, w->compress,
           w->compress / w->memcpy, w->decompress, w->decompress / w->memcpy);
    if (w->compress_counts.cycles > 0)
        printf("  %7.3f %7.3f %7.3f %7.3f", w->compress_counts.cycles / w->elements,
               w->compress_counts.instructions / w->elements, w->decompress_counts.cycles / w->decompressed_elements,
               w->decompress_counts.instructions / w->decompressed_elements);
    putchar('\n');
    fflush(stdout);
}

static void table_published(const published *c)
{
    char ratio[16] = "-";
    if (c->ratio > 0) snprintf(ratio, sizeof ratio, "%.2f", c->ratio);
    printf("%-14s %-7s %-5s %-15s %-6s %-7s %-6s %7s %6.3f %9s  %6.3f %9s  published, other machine: %s (%s)\n", "published",
           c->dtype, "other", c->codec, "other", "-", "-", ratio, c->compress, "-", c->decompress, "-", c->claim, c->source);
}

static void json_row(const row *w)
{
    putchar('{');
    json_member("codec", w->codec);
    json_member("isa", w->isa);
    json_member("level", w->level);
    json_member("dtype", tensors_dtype_name(w->dtype));
    json_member("file", w->file);
    printf("\"hashes\":%s,", w->checks ? "true" : "false");
    json_member("where", w->where);
    printf("\"bytes\":%zu,\"ratio\":%.5f,\"compress_gbps\":%.4f,\"decompress_gbps\":%.4f,\"memcpy_gbps\":%.4f",
           w->bytes, w->ratio, w->compress, w->decompress, w->memcpy);
    json_counts("compress_", &w->compress_counts, w->elements);
    json_counts("decompress_", &w->decompress_counts, w->decompressed_elements);
    putchar('}');
}

static void json_published(const published *c)
{
    putchar('{');
    json_member("codec", c->codec);
    json_member("dtype", c->dtype);
    json_member("claim", c->claim);
    json_member("source", c->source);
    printf("\"machine\":\"other\",\"ratio\":");
    json_speed(c->ratio);
    printf(",\"compress_gbps\":%.4f,\"decompress_gbps\":%.4f}", c->compress, c->decompress);
}

static void json_report(const report *p)
{
    json_title();
    printf("\"memcpy_gbps\":{\"l2\":");
    json_speed(p->memcpy[0]);
    printf(",\"dram\":");
    json_speed(p->memcpy[1]);
    printf("},\n\"results\":[");
    for (size_t i = 0; i < p->count; i++) {
        printf(i ? ",\n" : "\n");
        json_row(&p->rows[i]);
    }
    printf("\n],\n\"published\":[");
    for (size_t i = 0; published_get(i); i++) {
        printf(i ? ",\n" : "\n");
        json_published(published_get(i));
    }
    printf("\n]}\n");
}

static void report_add(report *p, const row *w)
{
    double *best = &p->memcpy[!strcmp(w->where, "dram")];
    if (w->memcpy > *best) *best = w->memcpy;
    if (!p->options->json) {
        table_row(w);
        return;
    }
    if (p->count == p->capacity) {
        p->capacity = p->capacity ? 2 * p->capacity : 256;
        p->rows = realloc(p->rows, p->capacity * sizeof *p->rows);
        if (!p->rows) fail("out of memory", "");
    }
    p->rows[p->count++] = *w;
}

/* ---- the plan: every codec on every scene ---- */

/* --quick keeps only the default level and the fast peers. */
static int wanted(const options *o, const codec *c)
{
    if (!passes(o->codec, c->name) || !passes(o->isa, c->isa)) return 0;
    if (c->level && (!passes(o->level, c->level) || !passes(o->checks, c->checks ? "on" : "off"))) return 0;
    if (!o->quick) return 1;
    return c->level ? c->checks && c->bitsnap_level == BITSNAP_DEFAULT : !c->peer || !c->peer->sample;
}

static void bench_codec(report *p, const tensor *t, scene *s, const codec *c)
{
    result r;
    row w;
    if (!wanted(p->options, c)) return;
    if (!scene_measure(&r, c, s, p->options->budget)) fail("the round trip failed: ", c->name);
    w = row_of(c, t, s, &r);
    report_add(p, &w);
}

static void bench_bitsnap(report *p, const tensor *t, scene *s, const bitsnap_kernels *kernels)
{
    static const int levels[] = {BITSNAP_FAST, BITSNAP_DEFAULT, BITSNAP_BEST};
    static const char *const names[] = {"fast", "default", "best"};
    codec c = codec_bitsnap(kernels);
    for (unsigned k = 0; k < 3; k++) {
        c.bitsnap_level = levels[k];
        c.level = names[k];
        for (c.checks = 1; c.checks >= 0; c.checks--) bench_codec(p, t, s, &c);
    }
}

static void bench_scene(report *p, const tensor *t, scene *s)
{
    const bitsnap_kernels *kernels;
    codec c;
    memset(&c, 0, sizeof c);
    c.name = "memcpy";
    c.isa = "native";
    bench_codec(p, t, s, &c);
    for (unsigned k = 0; (kernels = bitsnap_kernels_get(k)) != NULL; k++) bench_bitsnap(p, t, s, kernels);
    c.contexts = p->contexts;
    for (size_t k = 0; (c.peer = peers_get(k)) != NULL; k++) {
        c.name = c.peer->name;
        bench_codec(p, t, s, &c);
    }
}

static void bench_tensor(report *p, const tensor *t)
{
    const struct {
        const char *where;
        size_t size;
    } scenes[] = {{"l2", (size_t)1 << 20}, {"dram", p->options->dram_size}};
    if (!passes(p->options->file, t->file) || !passes(p->options->dtype, tensors_dtype_name(t->dtype))) return;
    for (unsigned k = 0; k < 2; k++) {
        scene s;
        if (!passes(p->options->where, scenes[k].where)) continue;
        s = scene_open(t, scenes[k].where, scenes[k].size);
        bench_scene(p, t, &s);
        scene_close(&s);
    }
}

/* --quick: one file of each dtype. */
static int is_first_of_dtype(const tensor *list, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (list[k].dtype == list[i].dtype) return 0;
    return 1;
}

void bench_codecs(const options *o, const tensor *list, size_t count)
{
    report p;
    int processor = machine_pin();
    memset(&p, 0, sizeof p);
    p.options = o;
    p.contexts = peers_open();
    if (!p.contexts) fail("out of memory", "");
    for (size_t k = 0; peers_missing(k); k++) fprintf(stderr, "bench: %s\n", peers_missing(k));
    peers_set_piece(p.contexts, o->piece);
    if (!o->json) table_begin(&p, processor);
    for (size_t i = 0; i < count; i++)
        if (!o->quick || is_first_of_dtype(list, i)) bench_tensor(&p, &list[i]);
    if (o->json) json_report(&p);
    for (size_t i = 0; !o->json && passes(o->codec, "published") && published_get(i); i++) table_published(published_get(i));
    peers_close(p.contexts);
    free(p.rows);
}
