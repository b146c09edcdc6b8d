/* --kernels: every kernel of every kernel table, on made-up lists that fit the first cache, the second, or neither.
 * Only this file includes bitsnap's implementation, because kernels and their structures are private. */
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

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "report.h"

/* ---- data of a kernel ---- */

/* Buffers for one level of memory. `list`: the side whose bytes count. `parts`: the lists that it is split into.
 * `planes`: masks beside both. `copy`: the target of memcpy. */
typedef struct area {
    const char *where;
    size_t size;
    pace pace;
    buffers list, parts, planes, copy;
    double memcpy; /* shortest time so far */
} area;

enum { L1_SIZE = 8 << 10, L2_SIZE = 128 << 10, LEVELS = 3 };

static area area_open(const char *where, size_t size)
{
    static const unsigned parts_shift[PLACES_MAX] = {1088, 1088, 1088, 1088, 1088, 1088, 1088, 1088};
    static const unsigned planes_shift[PLACES_MAX] = {3136, 3136, 3136, 3136, 3136, 3136, 3136, 3136};
    static const unsigned copy_shift[PLACES_MAX] = {2048, 64, 0, 256, 1024, 3072, 3840, 512}; /* as of scenes */
    area a;
    a.where = where;
    a.size = size;
    a.pace = pace_of(size);
    a.memcpy = -1;
    a.list = buffers_open(size, a.pace.places, NULL);
    a.parts = buffers_open(size, a.pace.places, parts_shift);
    a.planes = buffers_open(size, a.pace.places, planes_shift);
    a.copy = buffers_open(size, a.pace.places, copy_shift);
    return a;
}

static void area_close(area *a)
{
    buffers_close(&a->list);
    buffers_close(&a->parts);
    buffers_close(&a->planes);
    buffers_close(&a->copy);
}

typedef struct task task;

/* A kernel with one choice of parameters. */
typedef struct way {
    const char *kernel, *variant;
    unsigned bits;         /* bits of an element, on the side that counts */
    unsigned first, second; /* its parameters */
    void (*fill)(task *t, unsigned at);
    void (*run)(task *t, unsigned at);
} way;

struct task {
    const bitsnap_kernels *kernels;
    const way *way;
    area *area;
    size_t n;            /* elements */
    size_t ones;         /* number of ones in the mask */
    bsn_field field;
    uint8_t code[256];
    unsigned escape;
    size_t part[4];      /* offsets of a node's children in `parts` */
    uint64_t state[8];
    uint32_t counts[256], scratch[8 * 256];
    volatile size_t sink;
};

static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

static void fill_random(uint8_t *p, size_t size)
{
    uint64_t state = 1;
    for (size_t i = 0; i < size; i += 8) {
        uint64_t x = next_random(&state);
        memcpy(p + i, &x, size - i < 8 ? size - i : 8);
    }
}

/* Makes bytes like exponents of weights: 120 is the most frequent, and each lower one half as frequent. */
static void fill_symbols(uint8_t *p, size_t size)
{
    uint64_t state = 1;
    for (size_t i = 0; i < size; i++) p[i] = (uint8_t)(120 - bsn_lowest_bit(next_random(&state) | UINT64_C(1) << 40));
}

static void fill_list(task *t, unsigned at) { fill_random(t->area->list.at[at], t->area->size); }

static void run_hash(task *t, unsigned at)
{
    t->kernels->hash(t->state, t->area->list.at[at], t->n / 64, 0);
}

/* ---- masks: random bits, so that half of the elements go to each side ---- */

static void run_count(task *t, unsigned at) { t->sink = t->kernels->count(t->area->list.at[at], t->n); }

static void fill_masked(task *t, unsigned at)
{
    fill_random(t->area->list.at[at], t->area->size);
    fill_random(t->area->planes.at[at], bsn_mask_bytes(t->n));
    t->ones = bsn_kernels_scalar.count(t->area->planes.at[at], t->n);
    memcpy(t->area->parts.at[at], t->area->list.at[at], t->area->size);
}

static uint8_t *ones_of(const task *t, unsigned at)
{
    return t->area->parts.at[at] + (t->n - t->ones) * t->way->first;
}

static void run_partition(task *t, unsigned at)
{
    const area *a = t->area;
    t->kernels->partition(t->way->first, a->list.at[at], t->n, a->planes.at[at], a->parts.at[at], ones_of(t, at));
}

/* ---- byte planes and bit planes ---- */

static void fill_elements(task *t, unsigned at)
{
    bsn_field_set(&t->field, t->way->first, bsn_symbol_bits(t->way->first), 0);
    fill_random(t->area->list.at[at], t->area->size);
    fill_random(t->area->parts.at[at], t->area->size);
}

static void run_split(task *t, unsigned at)
{
    uint8_t *planes[8] = {NULL};
    for (unsigned k = 0; k < t->field.width; k++) planes[k] = t->area->parts.at[at] + k * t->n;
    t->kernels->split(&t->field, planes, t->area->list.at[at], t->n / 64);
}

static void run_join(task *t, unsigned at)
{
    const uint8_t *planes[8] = {NULL};
    for (unsigned k = 0; k < t->field.width; k++) planes[k] = t->area->parts.at[at] + k * t->n;
    t->kernels->join(&t->field, t->area->list.at[at], planes, t->n / 64);
}

static void run_bits_take(task *t, unsigned at)
{
    t->kernels->bits_take(t->area->parts.at[at], t->area->list.at[at], t->way->first, t->n / 64);
}

static void run_bits_put(task *t, unsigned at)
{
    t->kernels->bits_put(t->area->list.at[at], t->area->list.at[at], 0, 0, t->area->parts.at[at], t->way->first, t->n / 64);
}

/* ---- symbols ---- */

/* Codes of the 8 most frequent symbols, and an escape for one in 256. Each code swaps two neighbours, so a mapped
 * list can be mapped again. */
static void fill_mapped(task *t, unsigned at)
{
    fill_symbols(t->area->list.at[at], t->area->size);
    t->escape = 1;
    memset(t->code, 1, sizeof t->code);
    for (unsigned s = 113; s <= 120; s++) t->code[s] = (uint8_t)(s % 2 ? s + 1 : s - 1);
}

static void fill_counted(task *t, unsigned at) { fill_symbols(t->area->list.at[at], t->area->size); }

static void run_histogram(task *t, unsigned at)
{
    t->kernels->histogram(t->counts, t->area->list.at[at], t->n, t->scratch);
}

static void run_map(task *t, unsigned at)
{
    t->kernels->map(t->area->list.at[at], t->n, t->code, t->escape, t->area->parts.at[at]);
}

/* ---- nodes: random paths, so that every slot is as frequent as any ---- */

static bsn_node node_of(const task *t, unsigned at)
{
    bsn_node node;
    memset(&node, 0, sizeof node);
    node.planes = t->area->planes.at[at];
    node.stride = bsn_mask_bytes(t->n);
    node.count = t->n;
    node.bits = (uint8_t)t->way->first;
    node.lists = (uint8_t)t->way->second;
    for (unsigned j = 0; j < t->way->second; j++) node.list[j] = t->area->parts.at[at] + t->part[j];
    for (unsigned j = 0; j < 16; j++) node.leaf[j] = (uint8_t)(120 - j);
    return node;
}

/* Fills a node with random lists. Each child has 64 bytes of slack. */
static void fill_node(task *t, unsigned at)
{
    const unsigned k = t->way->first;
    const size_t stride = bsn_mask_bytes(t->n);
    size_t counts[4] = {0, 0, 0, 0}, used = 0;
    uint8_t *planes = t->area->planes.at[at];
    bsn_node node = node_of(t, at);
    fill_random(t->area->list.at[at], t->area->size);
    fill_random(t->area->parts.at[at], t->area->size);
    if (!strcmp(t->way->kernel, "node_fork")) { /* masks of its codes, so that the children have these lengths */
        for (unsigned j = 0; j < k; j++)
            for (size_t i = 0; i < t->n / 8; i++)
                planes[j * stride + i] = (uint8_t)bsn_gather_tops(1, bsn_load64(t->area->list.at[at] + 8 * i) << j & bsn_tops(1));
    } else {
        fill_random(planes, k * stride);
    }
    bsn_kernels_scalar.node_counts(&node, counts);
    for (unsigned j = 0; j < node.lists; j++) {
        t->part[j] = used;
        used += counts[j] + 64;
    }
}

static void run_node_merge(task *t, unsigned at)
{
    bsn_node node = node_of(t, at);
    t->kernels->node_merge(&node, 0, t->n, t->area->list.at[at]);
}

static void run_node_fork(task *t, unsigned at)
{
    bsn_fork fork;
    memset(&fork, 0, sizeof fork);
    fork.planes = t->area->planes.at[at];
    fork.stride = bsn_mask_bytes(t->n);
    fork.bits = (uint8_t)t->way->first;
    fork.lists = (uint8_t)t->way->second;
    for (unsigned j = 0; j < t->way->second; j++) fork.list[j] = t->area->parts.at[at] + t->part[j];
    t->kernels->node_fork(&fork, t->area->list.at[at], 0, t->n);
}

static void run_node_counts(task *t, unsigned at)
{
    const bsn_node node = node_of(t, at);
    size_t counts[4] = {0, 0, 0, 0};
    t->kernels->node_counts(&node, counts);
    t->sink = counts[0];
}

/* ---- bins of f32: numbers of 16 octaves, rows as long as a chunk, with scales. A kernel table without these kernels
 * uses the scalar code ---- */

static bsn_log cells_log;
static bsn_errors cells_errors;

static bsn_row row_of(const task *t, unsigned at)
{
    bsn_row row;
    row.log = &cells_log;
    row.columns = t->area->planes.at[at] + 4 * t->n; /* in the accessible bytes past a buffer */
    row.row = 9;
    row.base = 100 * t->way->first;
    row.signs = 1;
    return row;
}

static void fill_cells(task *t, unsigned at)
{
    uint32_t *elements = (uint32_t *)(void *)t->area->list.at[at], *codes = (uint32_t *)(void *)t->area->parts.at[at];
    fill_random(t->area->list.at[at], t->area->size);
    for (size_t i = 0; i < t->n; i++) elements[i] = (elements[i] & 0x87FFFFFF) | 0x38000000;
    memset(t->area->planes.at[at] + 4 * t->n, 3, BSN_CHUNK);
    bsn_log_set(&cells_log, BITSNAP_F32, t->way->first);
    bsn_log_codes(&cells_log, codes, t->area->list.at[at], t->n);
    for (size_t i = 0; i < t->n; i += BSN_CHUNK) {
        const bsn_row row = row_of(t, at);
        bsn_log_words(&row, (uint32_t *)(void *)t->area->planes.at[at] + i, codes + i, bsn_min(BSN_CHUNK, t->n - i));
    }
}

static void run_log_codes(task *t, unsigned at)
{
    uint32_t *codes = (uint32_t *)(void *)t->area->parts.at[at];
    for (size_t i = 0; i < t->n; i += BSN_CHUNK)
        bsn_log_codes_by(t->kernels, &cells_log, codes + i, t->area->list.at[at] + 4 * i, bsn_min(BSN_CHUNK, t->n - i));
}

static void run_log_words(task *t, unsigned at)
{
    static uint8_t room[4 * BSN_CHUNK];
    uint32_t *codes = (uint32_t *)(void *)t->area->parts.at[at], *words = (uint32_t *)(void *)t->area->planes.at[at];
    for (size_t i = 0; i < t->n; i += BSN_CHUNK) {
        const bsn_row row = row_of(t, at);
        t->sink = bsn_log_words_by(t->kernels, &row, &cells_errors, words + i, codes + i, t->area->list.at[at] + 4 * i,
                                   bsn_min(BSN_CHUNK, t->n - i), room);
    }
}

static void run_words_split(task *t, unsigned at)
{
    uint8_t *symbols = t->area->parts.at[at];
    const uint8_t *words = t->area->planes.at[at];
    for (size_t i = 0; i < t->n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, t->n - i);
        const bsn_slices slices = { 4, 5, 255, 0 };
        t->sink = (size_t)bsn_words_split_by(t->kernels, &slices, symbols + i, symbols + t->n, NULL, words + 4 * i, m);
    }
}

static void run_log_numbers(task *t, unsigned at)
{
    size_t apart = 0;
    for (size_t i = 0; i < t->n; i += BSN_CHUNK) {
        const bsn_row row = row_of(t, at);
        bsn_log_numbers_by(t->kernels, &row, t->area->list.at[at] + 4 * i, t->area->planes.at[at] + 4 * i, bsn_min(BSN_CHUNK, t->n - i), &apart);
    }
    t->sink = apart;
}

/* Splits words into symbols and low bits, or makes numbers of both. */
static bsn_slices joined = { 4, 0, 255, 0 };

static void fill_joined(task *t, unsigned at)
{
    const uint8_t *words = t->area->planes.at[at];
    uint8_t *symbols = t->area->parts.at[at];
    fill_cells(t, at);
    joined.shift = 0;
    const uint64_t any = bsn_scalar_words_split(&joined, symbols, NULL, NULL, words, t->n);
    joined.shift = any > 255 ? bsn_log2((uint32_t)any) - 7 : 0;
    bsn_scalar_words_split(&joined, symbols, symbols + t->n, NULL, words, t->n);
}

static void run_log_join(task *t, unsigned at)
{
    static uint8_t mask[BSN_CHUNK / 8];
    const uint8_t *symbols = t->area->parts.at[at], *low = symbols + t->n;
    size_t apart = 0;
    for (size_t i = 0; i < t->n; i += BSN_CHUNK) {
        const bsn_row row = row_of(t, at);
        const size_t m = bsn_min(BSN_CHUNK, t->n - i);
        uint8_t *elements = t->area->list.at[at] + 4 * i, *words = t->area->planes.at[at] + 4 * i;
        if (bsn_log_joins(t->kernels, &row, 1)) {
            apart += t->kernels->log_join(&row, elements, mask, symbols + i, low + i, m, joined.shift) != 0;
        } else {
            bsn_words_join_by(t->kernels, &joined, words, symbols + i, low + i, NULL, m);
            bsn_log_numbers_by(t->kernels, &row, elements, words, m, &apart);
        }
    }
    t->sink = apart;
}

/* ---- the plan ---- */

/* A node's variant: the number of slots, and how many of them are children; the others are leaves. */
#define NODES(kernel, bits, run)                                                                      \
    {kernel, "2, 1 list", bits(1), 1, 1, fill_node, run}, {kernel, "4, 2 lists", bits(2), 2, 2, fill_node, run}, \
    {kernel, "8, 1 list", bits(3), 3, 1, fill_node, run}, {kernel, "8, 4 lists", bits(3), 3, 4, fill_node, run}, \
    {kernel, "16, 2 lists", bits(4), 4, 2, fill_node, run}
#define CELLS(kernel, run)                                                                            \
    {kernel, "8 cells", 32, 8, 0, fill_cells, run}, {kernel, "70 cells", 32, 70, 0, fill_cells, run}, \
    {kernel, "2048 cells", 32, 2048, 0, fill_cells, run}
#define A_BYTE(k) 8
#define ITS_PATH(k) k

static const way ways[] = {
    {"hash", "", 8, 0, 0, fill_list, run_hash},
    {"count", "", 1, 0, 0, fill_list, run_count},
    {"partition", "width 1", 8, 1, 0, fill_masked, run_partition},
    {"partition", "width 2", 16, 2, 0, fill_masked, run_partition},
    {"partition", "width 4", 32, 4, 0, fill_masked, run_partition},
    {"split", "bf16", 16, BITSNAP_BF16, 0, fill_elements, run_split},
    {"split", "f16", 16, BITSNAP_F16, 0, fill_elements, run_split},
    {"split", "f32", 32, BITSNAP_F32, 0, fill_elements, run_split},
    {"join", "bf16", 16, BITSNAP_BF16, 0, fill_elements, run_join},
    {"join", "f16", 16, BITSNAP_F16, 0, fill_elements, run_join},
    {"join", "f32", 32, BITSNAP_F32, 0, fill_elements, run_join},
    {"bits_take", "1 of 8", 8, 0x10, 0, fill_list, run_bits_take},
    {"bits_take", "7 of 8", 8, 0x7F, 0, fill_list, run_bits_take},
    {"bits_put", "1 of 8", 8, 0x10, 0, fill_list, run_bits_put},
    {"bits_put", "7 of 8", 8, 0x7F, 0, fill_list, run_bits_put},
    {"histogram", "", 8, 0, 0, fill_counted, run_histogram},
    {"map", "", 8, 0, 0, fill_mapped, run_map},
    NODES("node_merge", A_BYTE, run_node_merge),
    NODES("node_fork", A_BYTE, run_node_fork),
    NODES("node_counts", ITS_PATH, run_node_counts),
    CELLS("log_codes", run_log_codes),
    CELLS("log_words", run_log_words),
    CELLS("words_split", run_words_split),
    CELLS("log_numbers", run_log_numbers),
    {"log_join", "8 cells", 32, 8, 0, fill_joined, run_log_join},
    {"log_join", "70 cells", 32, 70, 0, fill_joined, run_log_join},
};
enum { WAYS = sizeof ways / sizeof *ways };

typedef struct result_at { /* of one level of memory */
    double gbps, memcpy; /* GB/s; 0: not measured */
    counts counts;
    size_t n;
} result_at;

static int run_kernel(void *argument, unsigned at)
{
    task *t = argument;
    t->way->run(t, at);
    return 1;
}

static int run_copy(void *argument, unsigned at)
{
    const area *a = ((const task *)argument)->area;
    copy_bytes(a->copy.at[at], a->list.at[at], a->size);
    return 1;
}

static void prepare(task *t, const way *w, area *a)
{
    memset(t, 0, sizeof *t);
    t->way = w;
    t->area = a;
    t->n = a->size * 8 / w->bits & ~(size_t)63;
    for (unsigned at = 0; at < a->pace.places; at++) w->fill(t, at);
}

static result_at measure_kernel(task *t, double budget)
{
    area *a = t->area;
    const size_t bytes = t->n / 8 * t->way->bits;
    const double seconds = a->pace.places > 1 ? budget : 4 * budget; /* runs in memory take longer */
    double best = -1, copied = -1;
    result_at r;
    for (unsigned tries = 0; tries < 3; tries++) {
        measure(run_kernel, run_copy, t, &a->pace, seconds, &best, &copied);
        if (!measure_disturbed(&a->memcpy, copied)) break;
    }
    r.gbps = gbps(bytes, best);
    r.memcpy = gbps(a->size, copied);
    r.counts = measure_counts(run_kernel, t, &a->pace);
    r.n = t->n;
    return r;
}

static void table_begin(const options *o, int processor)
{
    report_title(processor);
    printf("lists     l1 %d KiB, l2 %d KiB, dram %zu MiB, at once with what they are made into\n\n", L1_SIZE >> 10,
           L2_SIZE >> 10, o->dram_size >> 20);
    printf("%33s %-18s  %-18s  %-18s\n", "", "l1", "l2", "dram");
    printf("%-12s %-12s %-7s", "kernel", "variant", "isa");
    for (unsigned level = 0; level < LEVELS; level++) printf(" %8s %9s ", "GB/s", "of memcpy");
    if (counters_work()) printf("  for an element in l1: cycles, instructions");
    putchar('\n');
    fflush(stdout);
}

static void table_row(const way *w, const char *isa, const result_at r[LEVELS])
{
    printf("%-12s %-12s %-7s", w->kernel, w->variant, isa);
    for (unsigned level = 0; level < LEVELS; level++) {
        if (r[level].gbps > 0) printf(" %8.3f %9.4f ", r[level].gbps, r[level].gbps / r[level].memcpy);
        else printf(" %8s %9s ", "-", "-");
    }
    if (r[0].counts.cycles > 0)
        printf(" %8.4f %8.4f", r[0].counts.cycles / (double)r[0].n, r[0].counts.instructions / (double)r[0].n);
    putchar('\n');
    fflush(stdout);
}

static void json_row(const way *w, const char *isa, const char *where, size_t bytes, const result_at *r)
{
    static int rows;
    printf(rows++ ? ",\n{" : "\n{");
    json_member("kernel", w->kernel);
    json_member("variant", w->variant);
    json_member("isa", isa);
    json_member("where", where);
    printf("\"bytes\":%zu,\"elements\":%zu,\"gbps\":%.4f,\"memcpy_gbps\":%.4f", bytes, r->n, r->gbps, r->memcpy);
    json_counts("", &r->counts, (double)r->n);
    putchar('}');
    fflush(stdout);
}

enum { TABLES_MAX = 8 };

static void bench_way(const options *o, const way *w, area areas[LEVELS], task *t)
{
    result_at r[TABLES_MAX][LEVELS];
    const bitsnap_kernels *kernels;
    memset(r, 0, sizeof r);
    for (unsigned level = 0; level < LEVELS; level++) {
        if (!passes(o->where, areas[level].where)) continue;
        prepare(t, w, &areas[level]);
        for (unsigned k = 0; k < TABLES_MAX && (kernels = bitsnap_kernels_get(k)) != NULL; k++) {
            if (!passes(o->isa, kernels->name)) continue;
            t->kernels = kernels;
            r[k][level] = measure_kernel(t, o->budget);
            if (o->json) json_row(w, kernels->name, areas[level].where, areas[level].size, &r[k][level]);
        }
    }
    for (unsigned k = 0; !o->json && k < TABLES_MAX && (kernels = bitsnap_kernels_get(k)) != NULL; k++)
        if (passes(o->isa, kernels->name)) table_row(w, kernels->name, r[k]);
}

void bench_kernels(const options *o)
{
    static task t;
    area areas[LEVELS];
    int processor = machine_pin();
    areas[0] = area_open("l1", L1_SIZE);
    areas[1] = area_open("l2", L2_SIZE);
    areas[2] = area_open("dram", o->dram_size);
    if (o->json) {
        json_title();
        printf("\n\"kernels\":[");
    } else {
        table_begin(o, processor);
    }
    for (unsigned k = 0; k < WAYS; k++)
        if (passes(o->kernel, ways[k].kernel)) bench_way(o, &ways[k], areas, &t);
    if (o->json) printf("\n]}\n");
    for (unsigned level = 0; level < LEVELS; level++) area_close(&areas[level]);
}
