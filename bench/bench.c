/* bench: how fast bitsnap and its peers compress and decompress tensors, against memcpy of the same bytes.
 *
 * Everything runs in this process on one thread. A tensor of 1 MiB stands for what is in the cache, one of
 * 256 MiB for what is in memory. A speed is the tensor's bytes by the shortest of many times: other work on the
 * machine only ever makes them longer. Every codec's output is decoded and compared once before it is timed.
 *
 * `make bench` builds and runs it; build/bench --help lists the options. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BITSNAP_IMPLEMENTATION
#ifdef __has_include
#if __has_include("bitsnap_simd.h")
#include "bitsnap_simd.h"
#endif
#endif
#include "bitsnap.h"

#include "machine.h"
#include "peers.h"
#include "tensors.h"

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif
#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif

/* ---- options ---- */

typedef struct options {
    int json, quick;
    double budget; /* seconds for a row */
    size_t dram_size, piece;
    const char *data;
    const char *codec, *isa, *level, *dtype, *file, *checks, *where; /* filters; null: everything */
} options;

static const char help[] =
    "usage: bench [options]\n"
    "\n"
    "Measures bitsnap and its peers against memcpy, in one thread.\n"
    "\n"
    "  --data DIR      measure on DIR/*.safetensors; without it on made-up weights\n"
    "  --json          JSON instead of a table\n"
    "  --quick         fewer rows, shorter: below 40 seconds\n"
    "  --size MIB      size of the tensor in memory (default 256; with --quick 64)\n"
    "  --budget S      seconds for a row (default 0.4; with --quick 0.2)\n"
    "  --piece KIB     peers: bytes of a plane packed at a time, 16 to 1024 (default: each peer's best)\n"
    "\n"
    "Filters: only rows whose word contains one of the words given, separated by commas\n"
    "  --codec W       memcpy, bitsnap, zstd-1-grouped, zstd-3-grouped, zstd-19-grouped, zstd-1-raw,\n"
    "                  lz4-grouped, lmc\n"
    "  --isa W         bitsnap's kernels: scalar, bmi2, avx2, avx512, neon; the peers are \"native\"\n"
    "  --level W       bitsnap's level: fast, default, best\n"
    "  --checks W      bitsnap's checks: on, off\n"
    "  --dtype W       bf16, f16, f32\n"
    "  --file W        name of the file\n"
    "  --where W       l2, dram\n"
    "\n"
    "examples:\n"
    "  bench --quick\n"
    "  bench --data checkpoints --dtype bf16 --codec bitsnap,zstd-1-grouped\n"
    "  bench --isa scalar --level default --checks on --where dram --budget 2\n"
    "\n"
    "ratio: size of the tensor by size of the frame. GB/s: 10^9 bytes of tensor a second.\n";

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench: %s%s\n", what, detail);
    exit(2);
}

static double number(const char *name, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) fail("not a good value for ", name);
    return value;
}

static int set_filter(options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **filter;
    } filters[] = {{"--data", &o->data},   {"--codec", &o->codec}, {"--isa", &o->isa},       {"--level", &o->level},
                   {"--dtype", &o->dtype}, {"--file", &o->file},   {"--checks", &o->checks}, {"--where", &o->where}};
    for (size_t k = 0; k < sizeof filters / sizeof *filters; k++) {
        if (strcmp(name, filters[k].name) != 0) continue;
        *filters[k].filter = value;
        return 1;
    }
    return 0;
}

static void set_option(options *o, const char *name, const char *value)
{
    if (!value) fail("a value is missing, or there is no such option: ", name);
    if (!strcmp(name, "--budget")) o->budget = number(name, value, 0.001, 3600);
    else if (!strcmp(name, "--size")) o->dram_size = (size_t)number(name, value, 1, 2048) << 20;
    else if (!strcmp(name, "--piece")) o->piece = (size_t)number(name, value, 16, 1024) << 10;
    else if (!set_filter(o, name, value)) fail("no such option: ", name);
}

static options read_options(int argc, char **argv)
{
    options o = {0};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            exit(0);
        }
        if (!strcmp(argv[i], "--json")) {
            o.json = 1;
        } else if (!strcmp(argv[i], "--quick")) {
            o.quick = 1;
        } else {
            set_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
            i++;
        }
    }
    if (o.budget <= 0) o.budget = o.quick ? 0.2 : 0.4;
    if (!o.dram_size) o.dram_size = (size_t)(o.quick ? 64 : 256) << 20;
    return o;
}

/* Whether `word` contains one of the comma-separated words of a filter. */
static int passes(const char *filter, const char *word)
{
    char part[64];
    if (!filter) return 1;
    for (;;) {
        size_t n = strcspn(filter, ",");
        if (n < sizeof part) {
            memcpy(part, filter, n);
            part[n] = 0;
            if (strstr(word, part)) return 1;
        }
        if (!filter[n]) return 0;
        filter += n + 1;
    }
}

/* ---- what is measured: a codec on a scene ---- */

/* One codec with its settings. */
typedef struct codec {
    const char *name, *isa, *level;  /* level: null for peers */
    const bitsnap_kernels *kernels;  /* bitsnap only: these three */
    int bitsnap_level;
    int checks;
    const peer *peer;                /* null for bitsnap and memcpy */
    peers *contexts;
} codec;

static unsigned char workspace[BITSNAP_WORKSPACE];

static bitsnap bitsnap_of(const codec *c)
{
    bitsnap b = {0};
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.level = c->bitsnap_level;
    b.flags = c->checks ? 0 : BITSNAP_NO_CHECKS;
    b.kernels = c->kernels;
    return b;
}

static size_t frame_bound(size_t size, bitsnap_dtype dtype)
{
    size_t ours = bitsnap_bound(size / bitsnap_width(dtype), dtype), theirs = peers_bound(size);
    return ours > theirs ? ours : theirs;
}

/* Returns the size of the frame, 0 on an error. */
static size_t compress(const codec *c, uint8_t *frame, const uint8_t *elements, size_t size, bitsnap_dtype dtype)
{
    bitsnap b = bitsnap_of(c);
    size_t frame_size = 0, n = size / bitsnap_width(dtype);
    if (c->peer) return peers_compress(c->contexts, c->peer, frame, elements, size, bitsnap_width(dtype));
    bitsnap_encode(&b, frame, bitsnap_bound(n, dtype), &frame_size, elements, n, dtype);
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

/* Where the buffers lie. memcpy of a tensor that fits the cache moves between half and all of its best speed
 * with that: the caches' sets are chosen by address, and a load that follows a store to the same place modulo
 * 4096 waits. So such a tensor is measured at several places, and the best one counts, for all codecs alike. */
typedef struct place {
    uint8_t *source, *frame, *output;
} place;

enum { PLACES_MAX = 8 };

/* A tensor in its places. */
typedef struct scene {
    const char *where;
    bitsnap_dtype dtype;
    size_t size;
    unsigned places;
    unsigned batch;    /* runs of one thing before the next gets its turn: enough to have it in the cache */
    unsigned patience; /* batches without a new best time after which the best is taken for stable */
    place place[PLACES_MAX];
    double memcpy;     /* shortest time so far */
    uint8_t *memory[3];
} scene;

enum { PAGE = 4096, GAP = 16 * PAGE };

static uint8_t *page_aligned(uint8_t *p) { return p + (PAGE - (uintptr_t)p % PAGE) % PAGE; }

/* Memory of `count` buffers, written to once, so that no page is missing later. */
static uint8_t *reserve(size_t size, unsigned count)
{
    size_t all = (size + GAP) * count + PAGE;
    uint8_t *memory = malloc(all);
    if (!memory) fail("out of memory", "");
    memset(memory, 1, all);
    return memory;
}

static void repeat(uint8_t *to, size_t size, const tensor *t)
{
    for (size_t i = 0; i < size; i += t->size) memcpy(to + i, t->data, size - i < t->size ? size - i : t->size);
}

static scene scene_open(const tensor *t, const char *where, size_t size, unsigned places)
{
    /* output less source, modulo a page, with 2048 first, which never collides */
    static const unsigned shift[PLACES_MAX] = {2048, 64, 0, 256, 1024, 3072, 3840, 512};
    scene s = {0};
    size_t frame = frame_bound(size, t->dtype);
    s.where = where;
    s.dtype = t->dtype;
    s.size = size;
    s.places = places;
    s.batch = places > 1 ? 6 : 1;
    s.patience = places > 1 ? 3 * PLACES_MAX : 8;
    s.memcpy = -1;
    s.memory[0] = reserve(size, places);
    s.memory[1] = reserve(frame, places);
    s.memory[2] = reserve(size, places);
    for (unsigned k = 0; k < places; k++) {
        s.place[k].source = page_aligned(s.memory[0] + k * (size + GAP));
        s.place[k].frame = page_aligned(s.memory[1] + k * (frame + GAP)) + 1088;
        s.place[k].output = page_aligned(s.memory[2] + k * (size + GAP)) + shift[k];
        repeat(s.place[k].source, size, t);
    }
    return s;
}

static void scene_close(scene *s)
{
    for (unsigned k = 0; k < 3; k++) free(s->memory[k]);
}

/* ---- measuring ---- */

typedef struct result {
    size_t size, frame_size; /* of the bytes that were compressed at a time */
    double compress, decompress, memcpy; /* the shortest times, of `scene.size` bytes but for compress: `size`;
                                            -1: none yet */
} result;

/* What is run at the places of a scene. */
typedef struct task {
    const codec *codec;
    const scene *scene;
    size_t size;                   /* bytes that are compressed at a time */
    size_t frame_size[PLACES_MAX]; /* what they became: not all codecs give the same bytes each time */
} task;

/* Returns 0 on an error. */
typedef int (*run_function)(task *t, unsigned at);

static int run_memcpy(task *t, unsigned at)
{
    static void *(*volatile copy)(void *, const void *, size_t) = memcpy; /* no compiler may leave it out */
    copy(t->scene->place[at].output, t->scene->place[at].source, t->scene->size);
    return 1;
}

static int run_compress(task *t, unsigned at)
{
    const place *p = &t->scene->place[at];
    t->frame_size[at] = compress(t->codec, p->frame, p->source, t->size, t->scene->dtype);
    return t->frame_size[at] > 0;
}

/* Where only a sample was compressed, its frame stands as often as it needs to make the tensor's size. */
static int run_decompress(task *t, unsigned at)
{
    const place *p = &t->scene->place[at];
    size_t frame_size = t->frame_size[at];
    for (size_t k = 0; k < t->scene->size / t->size; k++)
        if (!decompress(t->codec, p->output + k * t->size, t->size, t->scene->dtype, p->frame + k * frame_size,
                        frame_size)) return 0;
    return 1;
}

/* Runs a task several times; returns the shortest time, or -1 on an error. */
static double batch(run_function run, task *t, unsigned at, double until)
{
    double best = -1, begin = machine_seconds();
    for (unsigned k = 0; k < t->scene->batch && (!k || begin < until); k++) {
        double end;
        if (!run(t, at)) return -1;
        end = machine_seconds();
        if (best < 0 || end - begin < best) best = end - begin;
        begin = end;
    }
    return best;
}

/* Lowers *best; returns 1 where that is more than noise. */
static int improve(double *best, double seconds)
{
    int much = *best < 0 || seconds < 0.998 * *best;
    if (*best < 0 || seconds < *best) *best = seconds;
    return much;
}

/* Alternates batches of a task with batches of memcpy, so that a disturbance meets both, and moves on from place
 * to place; until the budget is used or the best times are stable. Returns 0 on an error. */
static int measure(run_function run, task *t, double budget, double *best, double *best_memcpy)
{
    double until = machine_seconds() + budget;
    unsigned quiet = 0;
    for (unsigned k = 0; quiet < t->scene->patience && (!k || machine_seconds() < until); k++) {
        unsigned at = k % t->scene->places;
        double copied = batch(run_memcpy, t, at, until), done = batch(run, t, at, until);
        if (done < 0) return 0;
        quiet = improve(best, done) + improve(best_memcpy, copied) ? 0 : quiet + 1;
    }
    return 1;
}

/* Repeats the frame of a sample behind itself, for run_decompress. */
static void spread(const task *t)
{
    for (unsigned p = 0; p < t->scene->places; p++)
        for (size_t k = 1; k < t->scene->size / t->size; k++)
            memcpy(t->scene->place[p].frame + k * t->frame_size[p], t->scene->place[p].frame, t->frame_size[p]);
}

/* The round trip of the first place, compared with the source; leaves the frame in the other places too. */
static int round_trip(task *t)
{
    const scene *s = t->scene;
    const place *first = &s->place[0];
    if (!run_compress(t, 0)) return 0;
    for (unsigned p = 1; p < s->places; p++) {
        t->frame_size[p] = t->frame_size[0];
        memcpy(s->place[p].frame, first->frame, t->frame_size[0]);
    }
    spread(t);
    memset(first->output, 0xA5, s->size);
    if (!run_decompress(t, 0)) return 0;
    for (size_t k = 0; k < s->size / t->size; k++)
        if (memcmp(first->output + k * t->size, first->source, t->size) != 0) return 0;
    return 1;
}

/* Measures a codec into *r, which keeps what is better in it. Returns 0 where the round trip is not exact. */
static int measure_codec(result *r, const codec *c, const scene *s, double budget)
{
    task t = {0};
    t.codec = c;
    t.scene = s;
    t.size = c->peer && c->peer->sample && c->peer->sample < s->size ? c->peer->sample : s->size;
    if (!round_trip(&t)) return 0;
    r->size = t.size;
    r->frame_size = t.frame_size[0];
    if (!measure(run_compress, &t, budget / 2, &r->compress, &r->memcpy)) return 0;
    spread(&t);
    return measure(run_decompress, &t, budget / 2, &r->decompress, &r->memcpy);
}

static int measure_memcpy(result *r, const scene *s, double budget)
{
    task t = {0};
    t.scene = s;
    r->size = r->frame_size = s->size;
    if (!measure(run_memcpy, &t, budget, &r->compress, &r->memcpy)) return 0;
    if (r->compress < r->memcpy) r->memcpy = r->compress;
    r->compress = r->decompress = r->memcpy;
    return 1;
}

/* Measures again, up to twice, while memcpy is slower beside this codec than it was beside others: then something
 * else is using the memory. */
static int measure_undisturbed(result *r, const codec *c, scene *s, double budget)
{
    r->compress = r->decompress = r->memcpy = -1;
    for (unsigned tries = 0; tries < 3; tries++) {
        if (!(c->peer || c->level ? measure_codec(r, c, s, budget) : measure_memcpy(r, s, budget))) return 0;
        improve(&s->memcpy, r->memcpy);
        if (r->memcpy < 1.15 * s->memcpy) break;
    }
    return 1;
}

/* ---- rows ---- */

typedef struct row {
    const char *codec, *isa, *level, *where;
    int checks;
    char file[64];
    bitsnap_dtype dtype;
    size_t bytes;
    double ratio, compress, decompress, memcpy; /* GB/s */
} row;

static double gbps(size_t size, double seconds) { return seconds > 0 ? 1e-9 * (double)size / seconds : 0; }

static row row_of(const codec *c, const tensor *t, const scene *s, const result *r)
{
    row w = {0};
    w.codec = c->name;
    w.isa = c->isa;
    w.level = c->level;
    w.where = s->where;
    w.checks = c->checks;
    memcpy(w.file, t->file, sizeof w.file);
    w.dtype = t->dtype;
    w.bytes = r->size;
    w.ratio = (double)r->size / (double)r->frame_size;
    w.compress = gbps(r->size, r->compress);
    w.decompress = gbps(s->size / r->size * r->size, r->decompress);
    w.memcpy = gbps(s->size, r->memcpy);
    return w;
}

typedef struct report {
    const options *options;
    row *rows; /* for JSON, where the best of all comes first */
    size_t count, capacity;
    double memcpy[2]; /* best of all rows: l2, dram */
    char machine[256];
} report;

static void table_begin(const report *p, int processor)
{
    printf("machine   %s", p->machine);
    if (processor >= 0) printf(" (on processor %d)", processor);
    printf("\ncompiler  %s %s\ncommit    %s, bitsnap %s\npeers     %s\n", machine_compiler(), BENCH_FLAGS, BENCH_COMMIT,
           BITSNAP_VERSION, peers_versions());
    printf("sizes     l2 1 MiB, dram %zu MiB\n\n", p->options->dram_size >> 20);
    printf("%63s %-17s  %-17s\n", "", "compress", "decompress");
    printf("%-13s %-5s %-5s %-15s %-6s %-7s %-6s  %-6s %6s %9s  %6s %9s\n", "file", "dtype", "where", "codec", "isa",
           "level", "checks", "ratio", "GB/s", "of memcpy", "GB/s", "of memcpy");
    fflush(stdout);
}

static void table_row(const row *w)
{
    const char *level = w->level ? w->level : "-", *checks = !w->level ? "-" : w->checks ? "on" : "off";
    printf("%-13s %-5s %-5s %-15s %-6s %-7s %-6s %7.4f %6.3f %9.4f  %6.3f %9.4f\n", w->file,
           tensors_dtype_name(w->dtype), w->where, w->codec, w->isa, level, checks, w->ratio, w->compress,
           w->compress / w->memcpy, w->decompress, w->decompress / w->memcpy);
    fflush(stdout);
}

static void json_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\');
        if ((unsigned char)*text >= ' ') putchar(*text);
    }
    putchar('"');
}

static void json_member(const char *name, const char *text)
{
    printf("\"%s\":", name);
    if (text) json_text(text);
    else printf("null");
    putchar(',');
}

/* null where nothing was measured */
static void json_speed(double speed)
{
    if (speed > 0) printf("%.4f", speed);
    else printf("null");
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
    printf("\"bytes\":%zu,\"ratio\":%.5f,\"compress_gbps\":%.4f,\"decompress_gbps\":%.4f,\"memcpy_gbps\":%.4f}",
           w->bytes, w->ratio, w->compress, w->decompress, w->memcpy);
}

static void json_report(const report *p)
{
    putchar('{');
    json_member("machine", p->machine);
    json_member("compiler", machine_compiler());
    json_member("flags", BENCH_FLAGS);
    json_member("commit", BENCH_COMMIT);
    json_member("peers", peers_versions());
    printf("\"memcpy_gbps\":{\"l2\":");
    json_speed(p->memcpy[0]);
    printf(",\"dram\":");
    json_speed(p->memcpy[1]);
    printf("},\n\"results\":[");
    for (size_t i = 0; i < p->count; i++) {
        printf(i ? ",\n" : "\n");
        json_row(&p->rows[i]);
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

/* --quick leaves out what the default level and the fast peers do not show. */
static int wanted(const options *o, const codec *c)
{
    if (!passes(o->codec, c->name) || !passes(o->isa, c->isa)) return 0;
    if (c->level && (!passes(o->level, c->level) || !passes(o->checks, c->checks ? "on" : "off"))) return 0;
    if (!o->quick) return 1;
    return c->level ? c->checks && c->bitsnap_level == BITSNAP_DEFAULT : !c->peer || !c->peer->sample;
}

static void bench_codec(report *p, const tensor *t, scene *s, const codec *c)
{
    result r = {0};
    row w;
    if (!wanted(p->options, c)) return;
    if (!measure_undisturbed(&r, c, s, p->options->budget)) fail("the round trip failed: ", c->name);
    w = row_of(c, t, s, &r);
    report_add(p, &w);
}

static void bench_bitsnap(report *p, const tensor *t, scene *s, const bitsnap_kernels *kernels)
{
    static const int levels[] = {BITSNAP_FAST, BITSNAP_DEFAULT, BITSNAP_BEST};
    static const char *const names[] = {"fast", "default", "best"};
    codec c = {0};
    c.name = "bitsnap";
    c.isa = bitsnap_kernels_name(kernels);
    c.kernels = kernels;
    for (unsigned k = 0; k < 3; k++) {
        c.bitsnap_level = levels[k];
        c.level = names[k];
        for (c.checks = 1; c.checks >= 0; c.checks--) bench_codec(p, t, s, &c);
    }
}

static void bench_scene(report *p, const tensor *t, scene *s, peers *contexts)
{
    const bitsnap_kernels *kernels;
    codec c = {0};
    c.name = "memcpy";
    c.isa = "native";
    bench_codec(p, t, s, &c);
    for (unsigned k = 0; (kernels = bitsnap_kernels_get(k)) != NULL; k++) bench_bitsnap(p, t, s, kernels);
    c.contexts = contexts;
    for (size_t k = 0; (c.peer = peers_get(k)) != NULL; k++) {
        c.name = c.peer->name;
        bench_codec(p, t, s, &c);
    }
}

static void bench_tensor(report *p, const tensor *t, peers *contexts)
{
    const struct {
        const char *where;
        size_t size;
        unsigned places;
    } scenes[] = {{"l2", (size_t)1 << 20, PLACES_MAX}, {"dram", p->options->dram_size, 1}};
    if (!passes(p->options->file, t->file) || !passes(p->options->dtype, tensors_dtype_name(t->dtype))) return;
    for (unsigned k = 0; k < 2; k++) {
        scene s;
        if (!passes(p->options->where, scenes[k].where)) continue;
        s = scene_open(t, scenes[k].where, scenes[k].size, scenes[k].places);
        bench_scene(p, t, &s, contexts);
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

int main(int argc, char **argv)
{
    options o = read_options(argc, argv);
    report p = {0};
    tensor list[TENSORS_MAX];
    peers *contexts = peers_open();
    int processor = machine_pin();
    size_t count = o.data ? tensors_load(list, o.data) : tensors_make(list);
    if (!contexts) fail("out of memory", "");
    if (!count) fail("no tensors of bf16, f16 or f32 in ", o.data ? o.data : "memory");
    for (size_t k = 0; peers_missing(k); k++) fprintf(stderr, "bench: %s\n", peers_missing(k));
    peers_set_piece(contexts, o.piece);
    p.options = &o;
    machine_describe(p.machine, sizeof p.machine);
    if (!o.json) table_begin(&p, processor);
    for (size_t i = 0; i < count; i++)
        if (!o.quick || is_first_of_dtype(list, i)) bench_tensor(&p, &list[i], contexts);
    if (o.json) json_report(&p);
    tensors_free(list, count);
    peers_close(contexts);
    free(p.rows);
    return 0;
}
