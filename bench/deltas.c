/* --deltas: measures tensors coded against an earlier version: pairs of checkpoints, and made-up changes of every rate. Compares
 * them with zstd on the planes of the XOR, and with the mask of changed elements alone. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec.h"
#include "machine.h"
#include "modes.h"
#include "report.h"

/* A change, and the buffers for it. */
typedef struct change {
    char name[64];
    const char *where; /* "cache": as large as it is; "dram": repeated until it is as large as asked for */
    bitsnap_dtype dtype, base_dtype; /* another one: a master copy in F32 */
    unsigned width;
    size_t n, changed;
    const uint8_t *base, *elements;
    uint8_t *frame, *output, *scratch; /* frame: for any codec; the others n elements */
    uint64_t base_id;
} change;

typedef struct coder {
    const char *name, *isa, *level;
    const bitsnap_kernels *kernels;
    int bitsnap_level;
    const peer *peer; /* null, as `level` is: the mask */
    peers *contexts;
} coder;

typedef struct job {
    const coder *coder;
    const change *change;
    size_t size; /* of the frame */
} job;

static uint8_t *workspace;
static size_t workspace_size;

static bitsnap bitsnap_of(const job *j)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = workspace_size;
    b.level = j->coder->bitsnap_level;
    b.kernels = j->coder->kernels;
    b.base.data = j->change->base;
    b.base.count = j->change->n;
    b.base.dtype = j->change->base_dtype;
    b.base.id = j->change->base_id;
    return b;
}

static void exclusive_or(uint8_t *to, const uint8_t *a, const uint8_t *b, size_t n)
{
    for (size_t i = 0; i < n; i++) to[i] = a[i] ^ b[i];
}

static int run_encode(void *argument, unsigned at)
{
    job *j = argument;
    const change *c = j->change;
    const size_t size = c->n * c->width, mask = (c->n + 7) / 8;
    (void)at;
    if (j->coder->level) {
        bitsnap b = bitsnap_of(j);
        return !bitsnap_encode(&b, c->frame, bitsnap_bound(&b, c->n, c->dtype), &j->size, c->elements, c->n, c->dtype);
    }
    if (j->coder->peer) {
        exclusive_or(c->scratch, c->elements, c->base, size);
        j->size = peers_compress(j->coder->contexts, j->coder->peer, c->frame, c->scratch, size, c->width);
        return j->size > 0;
    }
    if (bitsnap_mask_encode(j->coder->kernels, c->width, c->elements, c->base, c->n, c->frame, c->frame + mask, c->n, &j->size))
        return 0;
    j->size = mask + j->size * c->width;
    return 1;
}

static int run_decode(void *argument, unsigned at)
{
    const job *j = argument;
    const change *c = j->change;
    const size_t size = c->n * c->width, mask = (c->n + 7) / 8;
    (void)at;
    if (j->coder->level) {
        bitsnap b = bitsnap_of(j);
        return !bitsnap_decode(&b, c->output, c->n, c->dtype, c->frame, j->size);
    }
    if (j->coder->peer) {
        if (!peers_decompress(j->coder->contexts, j->coder->peer, c->scratch, size, c->width, c->frame, j->size)) return 0;
        exclusive_or(c->output, c->scratch, c->base, size);
        return 1;
    }
    return !bitsnap_mask_decode(j->coder->kernels, c->width, c->output, c->base, c->n, c->frame, c->frame + mask,
                                (j->size - mask) / c->width);
}

static int run_copy(void *argument, unsigned at)
{
    const change *c = ((const job *)argument)->change;
    (void)at;
    copy_bytes(c->output, c->elements, c->n * c->width);
    return 1;
}

/* ---- rows ---- */

static int rows;

static void print_row(const options *o, const job *j, double encode, double decode, double copy)
{
    const change *c = j->change;
    const size_t size = c->n * c->width;
    const double bits = 8.0 * (double)j->size / (double)c->n, rate = (double)c->changed / (double)c->n;
    const char *level = j->coder->level ? j->coder->level : "-";
    if (o->json) {
        printf(rows++ ? ",\n{" : "\n{");
        json_member("change", c->name);
        json_member("where", c->where);
        json_member("dtype", tensors_dtype_name(c->dtype));
        json_member("codec", j->coder->name);
        json_member("isa", j->coder->isa);
        json_member("level", j->coder->level);
        printf("\"changed\":%.6f,\"bytes\":%zu,\"bits\":%.5f,\"encode_gbps\":%.4f,\"decode_gbps\":%.4f,\"memcpy_gbps\":%.4f}",
               rate, size, bits, gbps(size, encode), gbps(size, decode), gbps(size, copy));
    } else {
        printf("%-20s %-5s %-5s %8.4f  %-10s %-7s %-7s %9.5f %8.3f %9.4f %8.3f %9.4f\n", c->name, c->where,
               tensors_dtype_name(c->dtype), 100 * rate, j->coder->name, j->coder->isa, level, bits, gbps(size, encode), copy / encode, gbps(size, decode),
               copy / decode);
    }
    fflush(stdout);
}

static void measure_coder(const options *o, const coder *coder, const change *c)
{
    const pace p = {1, 1, 3, 12};
    job j = {coder, c, 0};
    double encode = -1, decode = -1, copy = -1;
    if (!run_encode(&j, 0)) fail("encoding failed: ", coder->name);
    memset(c->output, 0xA5, c->n * c->width);
    if (!run_decode(&j, 0) || memcmp(c->output, c->elements, c->n * c->width) != 0) fail("the round trip failed: ", coder->name);
    measure(run_encode, run_copy, &j, &p, o->budget / 2, &encode, &copy);
    measure(run_decode, run_copy, &j, &p, o->budget / 2, &decode, &copy);
    print_row(o, &j, encode, decode, copy);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static void repeat(uint8_t *to, const uint8_t *from, size_t n, size_t size)
{
    for (size_t i = 0; i < size; i += n) memcpy(to + i, from, size - i < n ? size - i : n);
}

/* Every codec on a change from `base` to `to`, repeated to `size` bytes. */
static void measure_codecs(const options *o, peers *contexts, const char *name, const char *where, const tensor *base,
                           const tensor *to, size_t size)
{
    static const struct {
        const char *name;
        int level;
    } levels[] = {{"fast", BITSNAP_FAST}, {"default", BITSNAP_DEFAULT}, {"best", BITSNAP_BEST}};
    const size_t n = size / bitsnap_width(to->dtype), base_size = n * bitsnap_width(base->dtype);
    bitsnap any = {.base = {.data = base->data, .dtype = base->dtype}};
    size_t bound = peers_bound(size);
    const int cast = base->dtype != to->dtype; /* other codecs cannot do this */
    const bitsnap_kernels *kernels;
    const peer *peer;
    change c;
    buffers old = buffers_open(base_size, 1, NULL), new = buffers_open(size, 1, NULL), frame,
            output = buffers_open(size, 1, NULL), scratch = buffers_open(size, 1, NULL);
    repeat(old.at[0], base->data, base->size, base_size);
    repeat(new.at[0], to->data, to->size, size);
    workspace_size = 0;
    for (size_t l = 0; l < sizeof levels / sizeof *levels; l++) { /* blocks, and with them what they take, are not alike */
        any.level = levels[l].level;
        bound = larger(bound, bitsnap_bound(&any, n, to->dtype));
        workspace_size = larger(workspace_size, bitsnap_workspace_size(&any, n, to->dtype));
    }
    frame = buffers_open(bound, 1, NULL);
    workspace = malloc(workspace_size);
    if (!workspace) fail("out of memory", "");
    memset(&c, 0, sizeof c);
    snprintf(c.name, sizeof c.name, "%s", name);
    c.where = where;
    c.dtype = to->dtype;
    c.base_dtype = base->dtype;
    c.width = bitsnap_width(c.dtype);
    c.n = size / c.width;
    c.base = old.at[0];
    c.elements = new.at[0];
    c.frame = frame.at[0];
    c.output = output.at[0];
    c.scratch = scratch.at[0];
    c.base_id = bitsnap_content_id(c.base, c.n, c.base_dtype); /* known from the footer of its frame */
    for (size_t i = 0; i < c.n && !cast; i++) c.changed += memcmp(c.base + i * c.width, c.elements + i * c.width, c.width) != 0;
    for (unsigned k = 0; (kernels = bitsnap_kernels_get(k)) != NULL; k++) {
        const coder mask = {"mask", bitsnap_kernels_name(kernels), NULL, kernels, 0, NULL, NULL};
        if (!passes(o->isa, mask.isa)) continue;
        for (unsigned l = 0; l < 2 + !o->quick; l++) {
            const coder coder = {"bitsnap", mask.isa, levels[l].name, kernels, levels[l].level, NULL, NULL};
            if (levels[l].level == BITSNAP_BEST && !(o->level && passes(o->level, "best"))) continue;
            if (passes(o->codec, coder.name) && passes(o->level, coder.level)) measure_coder(o, &coder, &c);
        }
        if (!cast && passes(o->codec, mask.name)) measure_coder(o, &mask, &c);
    }
    for (size_t k = 0; (peer = peers_get(k)) != NULL; k++) {
        const coder coder = {"xor-zstd-1", "native", NULL, NULL, 0, peer, contexts};
        if (!cast && !strcmp(peer->name, "zstd-1-grouped") && passes(o->codec, coder.name) && passes(o->isa, coder.isa))
            measure_coder(o, &coder, &c);
    }
    buffers_close(&old);
    buffers_close(&new);
    buffers_close(&frame);
    buffers_close(&output);
    buffers_close(&scratch);
}

static void measure_change(const options *o, peers *contexts, const char *name, const tensor *base, const tensor *to)
{
    if (!passes(o->file, name)) return;
    if (passes(o->where, "cache")) measure_codecs(o, contexts, name, "cache", base, to, to->size);
    if (passes(o->where, "dram")) measure_codecs(o, contexts, name, "dram", base, to, o->dram_size);
}

/* Changes each element with the same probability, one unit in the last place up or down. */
static void perturb(uint8_t *to, const tensor *t, double rate)
{
    const double limit = rate * 9007199254740992.0; /* 2^53 */
    uint64_t state = 1;
    for (size_t i = 0; i < t->size; i += 2) {
        uint64_t x = state += UINT64_C(0x9E3779B97F4A7C15); /* splitmix64 */
        uint16_t element;
        x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
        x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
        x ^= x >> 31;
        memcpy(&element, t->data + i, 2);
        if ((double)(x >> 11) < limit) element = (uint16_t)(element + ((x & 1) || !(element & 0x7FFF) ? 1 : -1));
        memcpy(to + i, &element, 2);
    }
}

static void measure_rates(const options *o, peers *contexts, tensor *t)
{
    static const double rates[] = {0, 0.001, 0.01, 0.07, 0.25, 0.67};
    tensor to;
    if (t->size > ((size_t)7 << 20)) t->size = (size_t)7 << 20; /* fits the caches, like the files of a small model */
    to = *t;
    to.data = malloc(t->size);
    if (!to.data) fail("out of memory", "");
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        char name[64];
        snprintf(name, sizeof name, "rate-%g", rates[i]);
        perturb(to.data, t, rates[i]);
        measure_change(o, contexts, name, t, &to);
    }
    free(to.data);
}

void bench_deltas(const options *o, const tensor *list, size_t count)
{
    static const struct {
        const char *base, *to;
    } pairs[] = {{"bf16-1000", "bf16-1001"}, {"bf16-1000", "bf16-1010"},  {"bf16-2400", "bf16-2401"},  {"bf16-2400", "bf16-2410"},
                 {"bf16-2410", "bf16-tune1"}, {"bf16-2410", "bf16-tune10"}, {"fp16-1000", "fp16-1010"}, {"master-1000", "master-1010"},
                 {"master-1000", "bf16-1000"}, {"master-1000", "fp16-1000"}};
    peers *contexts = peers_open();
    const int processor = machine_pin();
    if (!contexts) fail("out of memory", "");
    if (o->json) {
        json_title();
        printf("\n\"deltas\":[");
    } else {
        report_title(processor);
        printf("\n%78s %-18s %-18s\n", "", "encode", "decode");
        printf("%-20s %-5s %-5s %8s  %-10s %-7s %-7s %9s %8s %9s %8s %9s\n", "change", "where", "dtype", "% of n", "codec", "isa", "level", "bits",
               "GB/s", "of memcpy", "GB/s", "of memcpy");
    }
    for (size_t i = 0; i < count; i++) {
        tensor t = list[i];
        if (t.dtype != BITSNAP_BF16) continue;
        measure_rates(o, contexts, &t);
        break;
    }
    for (size_t i = 0; o->data && i < sizeof pairs / sizeof *pairs; i++) {
        tensor base, to;
        char name[64];
        if (!tensor_load(&base, o->data, pairs[i].base)) continue;
        if (tensor_load(&to, o->data, pairs[i].to)) {
            const int cast = base.dtype != to.dtype;
            snprintf(name, sizeof name, "%s..%s", pairs[i].base, cast ? pairs[i].to : strchr(pairs[i].to, '-') + 1);
            if (base.size / bitsnap_width(base.dtype) == to.size / bitsnap_width(to.dtype)) measure_change(o, contexts, name, &base, &to);
            free(to.data);
        }
        free(base.data);
    }
    if (o->json) printf("\n]}\n");
    peers_close(contexts);
}
