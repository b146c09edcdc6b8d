#include "options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: bench [mode] [options]\n"
    "\n"
    "Measures bitsnap and its peers against memcpy, in one thread.\n"
    "\n"
    "modes\n"
    "  (none)          every codec, level and table of kernels on tensors in the cache and in memory\n"
    "  --kernels       every inner loop of every table, in the first and second cache and in memory\n"
    "  --sizes         what a tensor costs by its size, 1 KiB to 1 GiB, which takes 4 GiB of memory\n"
    "  --threads       1 thread to one for each processor\n"
    "  --deltas        tensors beside what they were before; with --data also pairs of checkpoints\n"
    "  --dtypes        integers, and f64 of all exponents, beside the float of the same width, in the cache\n"
    "  --quantize      f32 tensors in cells of logarithms, with and without columns, in pieces of 1 MiB\n"
    "\n"
    "options\n"
    "  --data DIR      measure on DIR/*.safetensors; without it, and with --kernels and --dtypes, on made-up ones\n"
    "  --json          JSON instead of a table\n"
    "  --quick         fewer rows, shorter: below 40 seconds each\n"
    "  --size MIB      size of the tensor in memory (default 256; with --quick 64), of the largest one with\n"
    "                  --sizes (1024; 16), of a list with --kernels (64; 64), of a change with\n"
    "                  --deltas (64; 16)\n"
    "  --budget S      seconds for a row (default 0.4, with --quick 0.2; with --kernels 0.06 and 0.015)\n"
    "  --piece KIB     peers: bytes of a plane packed at a time, 16 to 1024 (default: each peer's best)\n"
    "\n"
    "Filters: only rows whose word contains one of the words given, separated by commas\n"
    "  --codec W       memcpy, bitsnap, zstd-1-grouped, zstd-3-grouped, zstd-19-grouped, zstd-1-raw,\n"
    "                  lz4-grouped, lmc, published; --deltas: bitsnap, mask, xor-zstd-1\n"
    "  --isa W         bitsnap's kernels: scalar, avx2, avx512, neon; the peers are \"native\"\n"
    "  --level W       bitsnap's level: fast, default, best\n"
    "  --checks W      bitsnap's checks: on, off\n"
    "  --dtype W       bf16, f16, f32; --dtypes: BOOL, I8, I16, I32, I64, F64\n"
    "  --file W        name of the file, with --deltas of the change: rate-0.01, 1000..1001;\n"
    "                  --dtypes: random, normal, counts, tokens, sorted, times, mask, wide\n"
    "  --where W       l1 (--kernels only), l2, dram; --deltas: cache, dram\n"
    "  --kernel W      --kernels only: hash, count, partition, merge, split, join, bits_take, bits_put,\n"
    "                  histogram, map, node_merge, node_fork, node_counts, log_codes, log_words,\n"
    "                  words_split, log_numbers\n"
    "\n"
    "examples:\n"
    "  bench --quick\n"
    "  bench --data checkpoints --dtype bf16 --codec bitsnap,zstd-1-grouped\n"
    "  bench --isa scalar --level default --checks on --where dram --budget 2\n"
    "  bench --kernels --kernel node_ --isa avx2\n"
    "  bench --sizes --size 256 --json\n"
    "  bench --threads --data checkpoints --dtype f32\n"
    "\n"
    "ratio: size of the tensor by size of the frame. GB/s: 10^9 bytes of tensor a second; of a kernel, of the\n"
    "list, the elements or the mask that it works through. memcpy is measured between the runs of each row.\n"
    "Where the system lets a program count its own cycles and instructions (Linux: perf_event_open), these are\n"
    "shown for each element; elsewhere callgrind counts instructions (it knows nothing above AVX2):\n"
    "  valgrind --tool=callgrind build/bench --kernels --kernel node_merge --isa avx2 --where l1 --budget 0.01\n";

void fail(const char *what, const char *detail)
{
    fflush(stdout);
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

/* Reads an option without a value. Returns 0 if the word is not one. */
static int set_flag(options *o, const char *name)
{
    if (!strcmp(name, "--json")) o->json = 1;
    else if (!strcmp(name, "--quick")) o->quick = 1;
    else if (!strcmp(name, "--kernels")) o->mode = KERNELS;
    else if (!strcmp(name, "--sizes")) o->mode = SIZES;
    else if (!strcmp(name, "--threads")) o->mode = THREADS;
    else if (!strcmp(name, "--deltas")) o->mode = DELTAS;
    else if (!strcmp(name, "--quantize")) o->mode = QUANTIZE;
    else if (!strcmp(name, "--dtypes")) o->mode = DTYPES;
    else return 0;
    return 1;
}

static int set_filter(options *o, const char *name, const char *value)
{
    const struct {
        const char *name;
        const char **filter;
    } filters[] = {{"--data", &o->data},     {"--codec", &o->codec}, {"--isa", &o->isa},
                   {"--level", &o->level},   {"--dtype", &o->dtype}, {"--file", &o->file},
                   {"--checks", &o->checks}, {"--where", &o->where}, {"--kernel", &o->kernel}};
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

/* Sets the defaults of the mode. */
static void set_defaults(options *o)
{
    static const struct {
        double budget[2]; /* the second with --quick */
        unsigned mib[2];
    } defaults[] = {
        [CODECS] = {{0.4, 0.2}, {256, 64}},
        [KERNELS] = {{0.06, 0.015}, {64, 64}},
        [SIZES] = {{0.4, 0.2}, {1024, 16}},
        [THREADS] = {{2, 0.6}, {256, 64}},
        [DELTAS] = {{0.4, 0.05}, {64, 16}},
        [QUANTIZE] = {{0.4, 0.1}, {1, 1}},
        [DTYPES] = {{0.1, 0.05}, {1, 1}},
    };
    if (o->budget <= 0) o->budget = defaults[o->mode].budget[o->quick];
    if (!o->dram_size) o->dram_size = (size_t)defaults[o->mode].mib[o->quick] << 20;
}

options options_read(int argc, char **argv)
{
    options o = {CODECS, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL};
    for (int i = 1; i < argc; i++) {
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            fputs(help, stdout);
            exit(0);
        }
        if (set_flag(&o, argv[i])) continue;
        set_option(&o, argv[i], i + 1 < argc ? argv[i + 1] : NULL);
        i++;
    }
    set_defaults(&o);
    return o;
}

int passes(const char *filter, const char *word)
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
