/* Sources, bases and elements change while a call reads them. The call must end, with an error or with wrong elements, and
 * touch nothing but its buffers. Covers every function that reads memory which others may share, with every table of kernels.
 * Sources, bases, workspaces and destinations end or begin at guard pages.
 *
 *   RACE_SECONDS=n   how long a second thread changes bytes at random (2)
 *
 * Compiled by clang with -fsanitize-coverage=trace-loads and -DRACE_TRACED there is no second thread. Instead some bytes
 * change before a load from such memory, so a second read differs far more often (tests/check/check_race.sh). */
#include "data.h"

#include "inside.h"

#include <signal.h>
#include <time.h>
#ifndef _WIN32
#include <pthread.h>
#include <sys/time.h>

static unsigned lowest_bit(uint64_t x) { unsigned n = 0; while (!(x >> n & 1)) n++; return n; }
static unsigned bits_of(uint64_t x) { unsigned n = 0; while (x >> n) n++; return n; }

/* ---- memory that changes ---- */

/* The last `size` bytes of its memory; with an odd number the first ones. size 0: not in use. */
typedef struct shared {
    guarded memory;
    size_t size;
    uint8_t *original;
} shared;

enum { SHARED_MOST = 10 };
static const size_t share_room = 3u << 20;
static shared shares[SHARED_MOST];

#ifdef RACE_TRACED
#define UNTRACED __attribute__((no_sanitize("coverage")))
#else
#define UNTRACED
#endif

UNTRACED static uint8_t *share_at(unsigned slot, size_t size) { return shares[slot].memory.p + (slot % 2 ? 0 : share_room - size); }

/* Copies these bytes to shared place n, where they may change. */
static uint8_t *share(unsigned n, const void *bytes, size_t size)
{
    const unsigned slot = 2 * n + (test_random() % 4 == 0);
    shared *s = &shares[slot];
    uint8_t *p = share_at(slot, size);
    if (size > share_room) abort();
    if (size) memcpy(s->original, bytes, size);
    if (size) memcpy(p, bytes, size);
    __atomic_store_n(&s->size, size, __ATOMIC_SEQ_CST);
    return p;
}

static void keep_still(void)
{
    unsigned i;
    for (i = 0; i < SHARED_MOST; i++) __atomic_store_n(&shares[i].size, 0, __ATOMIC_SEQ_CST);
}

static const char *what = "?";
static unsigned long calls;

static void on_signal(int number)
{
    char line[200];
    const int n = snprintf(line, sizeof line, "not ok - test_race: signal %d in %s, after %lu calls\n", number, what, calls);
    if (write(1, line, (size_t)n)) { }
    _exit(1);
}

#ifdef RACE_TRACED
static uint64_t trace_state = 1;
static unsigned trace_one_in = 100; /* of this number of loads */

UNTRACED static void traced(const uint8_t *at, size_t size)
{
    unsigned i;
    for (i = 0; i < SHARED_MOST; i++) {
        const shared *s = &shares[i];
        uint8_t *p = s->size ? share_at(i, s->size) : NULL;
        size_t k;
        if (!p || at + size <= p || at >= p + s->size) continue;
        trace_state = trace_state * 6364136223846793005u + 1442695040888963407u;
        if ((trace_state >> 33) % trace_one_in) return;
        k = (size_t)(trace_state >> 20) % size;
        if (at + k < p || at + k >= p + s->size) return;
        k = (size_t)(at + k - p);
        switch (trace_state >> 60) {
        case 0: p[k] = 0; break;
        case 1: p[k] = 0xFF; break;
        case 2: case 3: p[k] ^= (uint8_t)(1u << (trace_state >> 50 & 7)); break;
        case 4: case 5: p[k] = (uint8_t)(trace_state >> 40); break;
        default: p[k] = s->original[k]; break;
        }
        return;
    }
}
#define TRACE(n) UNTRACED void __sanitizer_cov_load##n(const uint8_t *at) { traced(at, n); }
TRACE(1) TRACE(2) TRACE(4) TRACE(8) TRACE(16)
#else
static volatile int stop;

/* Changes random bytes, and often soon restores them. */
static void *change(void *context)
{
    uint64_t x = 88172645463325252u;
    (void)context;
    while (!stop) {
        const unsigned slot = x % SHARED_MOST;
        const shared *s = &shares[slot];
        const size_t size = __atomic_load_n(&s->size, __ATOMIC_SEQ_CST);
        volatile uint8_t *p;
        uint8_t before;
        size_t i;
        unsigned k;
        x = x * 6364136223846793005u + 1442695040888963407u;
        if (!size) continue;
        i = x >> 60 ? (size_t)(x >> 20) % size : (x >> 24) % (size < 64 ? size : 64); /* heads more often */
        p = share_at(slot, size) + i;
        before = s->original[i];
        *p = x >> 59 & 1 ? (uint8_t)(before ^ 1u << (x >> 50 & 7)) : x >> 58 & 1 ? 0xFF : (uint8_t)(x >> 40);
        for (k = 0; k < (unsigned)(x >> 52 & 31); k++) *p;
        if (x >> 57 & 1) *p = before;
    }
    return NULL;
}
#endif

/* ---- frames, and what is done with them ---- */

typedef struct example {
    bitsnap_dtype dtype;
    size_t count, size, next_size;
    bitsnap options; /* without memory */
    bitsnap_dtype base_dtype;
    uint8_t *elements, *base, *frame, *next; /* next: a delta against the elements */
} example;

enum { EXAMPLES = 120 };
static example examples[EXAMPLES];

static guarded workspace;
static size_t workspace_room;

/* Gives exactly `size` bytes of workspace, which end at a guard page. */
static void give(bitsnap *b, size_t size)
{
    if (size > workspace_room) abort();
    b->workspace = workspace.p + workspace_room - size;
    b->workspace_size = size;
}

static void run_backwards(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    while (count--) task(argument, count, (unsigned)(count % *(const unsigned *)context));
}

static const bitsnap_kernels *any_kernels(void)
{
    unsigned n = 0;
    while (bitsnap_kernels_get(n)) n++;
    return bitsnap_kernels_get((unsigned)test_below(n));
}

static size_t example_workspace(const example *e, unsigned workers)
{
    const bitsnap *o = &e->options;
    return e->base || o->columns || o->quantizer.bins || o->quantizer.clusters || o->level == BITSNAP_BEST
               ? test_workspace_delta(20, workers) : test_workspace(o->block_log2 > 16 ? o->block_log2 : 16, workers);
}

/* Changes few or many elements, by one unit or to any value. */
static void change_elements(uint8_t *to, const uint8_t *from, size_t count, unsigned width)
{
    static const unsigned one_in[5] = { 1, 3, 20, 150, 3000 };
    const unsigned share_of = one_in[test_below(5)];
    size_t i;
    memcpy(to, from, count * width);
    for (i = 0; i < count; i++)
        if (test_below(share_of) == 0) to[i * width] = (uint8_t)(test_below(8) ? to[i * width] + 1u : test_random());
}

static void make_example(example *e, unsigned number)
{
    static const size_t counts[8] = { 1, 63, 700, 5000, 17000, 65536, 66000, 131072 };
    const unsigned kind = number % 6; /* 0 to 2: no base; 3: quantized; 4 and 5: deltas */
    const unsigned shape = (unsigned)test_below(DATA_SHAPES);
    size_t capacity;
    unsigned width;
    bitsnap b;
    memset(e, 0, sizeof *e);
    memset(&b, 0, sizeof b);
    e->dtype = (bitsnap_dtype)(1 + test_below(11));
    if (kind == 3) e->dtype = (bitsnap_dtype)(8 + test_below(4));
    e->count = counts[test_below(8)];
    width = bitsnap_width(e->dtype);
    capacity = 2 * test_bound(e->count, e->dtype) + 4096 + e->count;
    e->elements = (uint8_t *)malloc(e->count * width);
    e->frame = (uint8_t *)malloc(capacity);
    data_fill(e->elements, e->count, e->dtype, (int)shape);
    b.level = (int)test_below(4);
    b.flags = test_below(4) ? 0 : (unsigned)BITSNAP_NO_CHECKS;
    if (kind < 3 && test_below(2)) b.flags |= BITSNAP_CONTENT_ID;
    if (kind < 3 && test_below(2)) b.block_log2 = 6 + (unsigned)test_below(11);
    if (kind == 3) {
        if (test_below(3)) b.quantizer.bins = 1 + (unsigned)test_below(test_below(2) ? 2048 : 100);
        else b.quantizer.clusters = 2 + (unsigned)test_below(255);
        b.flags = 0;
    }
    if (kind < 4 && test_below(2)) b.columns = 16 + test_below(300);
    if (kind >= 4) {
        const int cast = (e->dtype == BITSNAP_BF16 || e->dtype == BITSNAP_F16) && test_below(4) == 0;
        e->base_dtype = cast ? BITSNAP_F32 : e->dtype;
        e->base = (uint8_t *)malloc(e->count * bitsnap_width(e->base_dtype));
        if (cast) data_fill(e->base, e->count, BITSNAP_F32, (int)shape);
        else change_elements(e->base, e->elements, e->count, width);
        b.flags = test_below(2) ? BITSNAP_SELF_CONTAINED : 0;
        b.block_log2 = 16 + (unsigned)test_below(3);
        b.base.data = e->base;
        b.base.count = e->count;
        b.base.dtype = e->base_dtype;
    }
    e->options = b;
    e->options.base.data = NULL;
    give(&b, example_workspace(e, 1));
    CHECK(!bitsnap_encode(&b, e->frame, capacity, &e->size, e->elements, e->count, e->dtype), "example %u: %s", number,
          bitsnap_message(&b));
    if (kind >= 4) {
        uint8_t *after = (uint8_t *)malloc(e->count * width);
        e->next = (uint8_t *)malloc(capacity);
        change_elements(after, e->elements, e->count, width);
        b.base.data = e->elements;
        b.base.dtype = e->dtype;
        CHECK(!bitsnap_encode(&b, e->next, capacity, &e->next_size, after, e->count, e->dtype), "example %u: %s", number,
              bitsnap_message(&b));
        free(after);
    }
}

static guarded destination;
static size_t destination_room;

static uint8_t *to_end(size_t size)
{
    if (size > destination_room) abort();
    return destination.p + destination_room - size;
}

static void pull_all(bitsnap *b, const example *e, const uint8_t *source)
{
    const unsigned width = bitsnap_width(e->dtype);
    const size_t step = 1 + test_below(4 * e->size);
    uint8_t *to = to_end(e->count * width);
    bitsnap_encoder s;
    size_t at, used, n, given;
    uint64_t done = 0;
    unsigned rounds;
    if (bitsnap_decoder_begin(b, &s, source, e->size, &at)) return;
    if (s.count > e->count || s.width > width) return; /* a caller of the API must check this, too */
    for (rounds = 0; rounds < 5000 && s.position < s.count; rounds++) {
        given = b->error.status == BITSNAP_E_TRUNCATED && b->error.needed > step ? (size_t)b->error.needed : step;
        if (given > e->size - at) given = e->size - at;
        if (bitsnap_decoder_pull(b, &s, to + done * s.width, e->count - (size_t)done, &n, source + at, given, &used) &&
            (b->error.status != BITSNAP_E_TRUNCATED || b->error.needed <= given))
            return;
        at += used;
        done += n;
        if (!n && !used && !b->error.status) return;
    }
    (void)bitsnap_decoder_end(b, &s, source + at, e->size - at, &used);
}

static void read_blocks(bitsnap *b, const example *e, const uint8_t *source)
{
    bitsnap_info info;
    bitsnap_block block;
    uint64_t first = 0;
    size_t at;
    if (bitsnap_read_info(&info, source, e->size) || info.count > e->count) return;
    for (at = info.header_size; first < info.count && at < e->size; first += block.elements, at += (size_t)block.size)
        if (bitsnap_read_block(b, &block, &info, first, source + at, e->size - at) || block.size > e->size - at) return;
}

/* Calls the functions that read a frame. */
static void decode_once(const example *e)
{
    const unsigned width = bitsnap_width(e->dtype);
    const size_t bytes = e->count * width, bound = test_bound(e->count, e->dtype);
    const uint8_t *source = share(0, e->frame, e->size);
    uint8_t *to = to_end(bytes), *made = to_end(bound);
    unsigned workers = 1 + (unsigned)test_below(2);
    size_t size, first;
    bitsnap_info info;
    bitsnap b = e->options;
    b.flags = test_below(3) ? 0 : (unsigned)BITSNAP_IGNORE_CHECKS;
    b.level = 0;
    b.kernels = any_kernels();
    b.run = workers > 1 ? run_backwards : NULL;
    b.run_context = &workers;
    b.workers = workers;
    if (e->base) {
        b.base.data = share(1, e->base, e->count * bitsnap_width(e->base_dtype));
        b.base.count = e->count;
        b.base.dtype = e->base_dtype;
    }
    memset(&info, 0, sizeof info);
    (void)bitsnap_read_info(&info, e->frame, e->size);
    give(&b, e->base || info.bins || info.clusters || info.columns ? test_workspace_delta(info.block_log2, workers)
                                                                    : test_workspace(info.block_log2, workers));
    switch (test_below(e->base ? 12 : 8)) {
    case 0: what = "info"; (void)bitsnap_read_info(&info, source, e->size); break;
    case 1: what = "test"; (void)bitsnap_test(&b, source, e->size); break;
    case 2: what = "pull"; pull_all(&b, e, source); break;
    case 3: what = "read_block"; read_blocks(&b, e, source); break;
    case 4:
        what = "range";
        first = test_below(e->count);
        size = 1 + test_below(e->count - first);
        (void)bitsnap_decode_range(&b, to_end(size * width), first, size, e->dtype, source, e->size);
        break;
    case 5:
        what = "verify";
        (void)bitsnap_verify(&b, share(2, e->elements, bytes), e->count, e->dtype, source, e->size);
        break;
    case 6: case 7: what = "decode"; (void)bitsnap_decode(&b, to, e->count, e->dtype, source, e->size); break;
    case 8:
        what = "apply";
        (void)bitsnap_apply(&b, share(3, e->base_dtype == e->dtype ? e->base : e->elements, bytes), e->count, e->dtype, source,
                            e->size);
        break;
    case 9: case 10:
        give(&b, test_workspace_delta(info.block_log2, 2));
        b.run = NULL;
        if (test_below(2)) b.base.data = NULL;
        if (test_below(2)) what = "invert", (void)bitsnap_invert(&b, made, bound, &size, source, e->size);
        else what = "merge", (void)bitsnap_merge(&b, made, bound, &size, source, e->size, share(4, e->next, e->next_size), e->next_size);
        break;
    default: what = "decode a delta"; (void)bitsnap_decode(&b, to, e->count, e->dtype, source, e->size); break;
    }
}

/* Calls the functions that make a frame. */
static void encode_once(const example *e)
{
    const size_t bytes = e->count * bitsnap_width(e->dtype);
    unsigned workers = 1 + (unsigned)test_below(2);
    const size_t bound = test_bound(e->count, e->dtype) + (e->count >> 6) * 36 * (e->options.block_log2 < 16);
    const uint8_t *elements = share(0, e->elements, bytes);
    size_t size;
    bitsnap b = e->options;
    what = e->base ? "encode a delta" : e->options.quantizer.bins ? "quantize" : e->options.quantizer.clusters ? "cluster" : "encode";
    b.kernels = any_kernels();
    if (!test_below(8)) b.flags |= BITSNAP_VERIFY;
    b.run = workers > 1 ? run_backwards : NULL;
    b.run_context = &workers;
    b.workers = workers;
    if (e->base) b.base.data = share(1, e->base, e->count * bitsnap_width(e->base_dtype));
    give(&b, example_workspace(e, workers));
    size = test_below(4) ? bound : test_below(bound);
    (void)bitsnap_encode(&b, to_end(size), size, &size, elements, e->count, e->dtype);
}

/* ---- functions without frames ---- */

static void masks_once(void)
{
    static uint8_t list[8 * 20000], mask[2504], values[8 * 20000];
    static const unsigned widths[4] = { 1, 2, 4, 8 };
    const bitsnap_kernels *k = any_kernels();
    const unsigned width = widths[test_below(4)], sparse = (unsigned)test_below(3);
    const size_t n = 1 + test_below(20000), bytes = (n + 7) / 8;
    size_t i, ones, count;
    for (i = 0; i < bytes; i++) mask[i] = (uint8_t)(sparse == 0 ? test_random() : test_below(20) ? 0 : test_random());
    if (n & 7) mask[bytes - 1] &= (uint8_t)((1u << (n & 7)) - 1);
    test_fill(list, 64);
    for (i = ones = 0; i < n; i++) ones += mask[i / 8] >> (i % 8) & 1;
    {
        const uint8_t *m = share(0, mask, bytes);
        const uint8_t *some = share(1, values, ones * width);
        uint8_t *to = to_end(n * width), *more = workspace.p + workspace_room - (n - ones) * width;
        switch (test_below(3)) {
        case 0: what = "mask_decode"; (void)bitsnap_mask_decode(k, width, to, share(3, list, n * width), n, m, some, ones); break;
        case 1: what = "mask_decode in place"; (void)bitsnap_mask_decode(k, width, to, to, n, m, some, ones); break;
        default:
            what = "mask_encode";
            (void)bitsnap_mask_encode(k, width, share(3, list, n * width), share(4, values, n * width), n, to_end(bytes),
                                      more, n - ones, &count);
            break;
        }
    }
}

static void lists_once(void)
{
    static uint8_t symbols[70000], coded[80000];
    const size_t n = 1 + test_below(test_below(4) ? 5000 : 66000);
    const unsigned kind = (unsigned)test_below(5);
    size_t i, size, used;
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.kernels = any_kernels();
    b.level = (int)test_below(4);
    give(&b, test_workspace(n > 65536 ? 20 : 16, 1));
    for (i = 0; i < n; i++) {
        const uint64_t r = test_random();
        symbols[i] = (uint8_t)(kind == 0 ? r : kind == 1 ? (r & 63 ? 0 : r >> 8) : kind == 2 ? 120u + lowest_bit(r | 1u << 20)
                             : kind == 3 ? lowest_bit(r | 1u << 30) * (r >> 60 & 1) : (r >> 8 & r >> 16 & r >> 24));
    }
    if (test_below(3) == 0) {
        what = "list_encode";
        (void)bitsnap_list_encode(&b, to_end(n + 1), n + 1, &size, share(0, symbols, n), n);
        return;
    }
    if (bitsnap_list_encode(&b, coded, sizeof coded, &size, symbols, n)) abort();
    what = "list_decode";
    (void)bitsnap_list_decode(&b, to_end(n), n, share(0, coded, size), size, test_below(2) ? &used : NULL);
}

static void quantizers_once(void)
{
    static uint8_t elements[8 * 4000], ends[4096], labels[4000], memory[200000];
    static uint8_t bytes[4000];
    const bitsnap_dtype dtype = (bitsnap_dtype)(8 + test_below(4));
    const unsigned width = bitsnap_width(dtype), clusters = 2 + (unsigned)test_below(255);
    const size_t n = 1 + test_below(4000);
    unsigned used = 0;
    data_fill(elements, n, dtype, DATA_WEIGHTS);
    if (bitsnap_cluster_encode(ends, &used, labels, bytes, elements, n, dtype, clusters, memory, sizeof memory)) abort();
    what = "cluster_decode";
    (void)bitsnap_cluster_decode(to_end(n * width), n, dtype, share(0, ends, 2 * width * used), used,
                                 share(1, labels, (n * bits_of(clusters - 1) + 7) / 8), share(2, bytes, n), clusters);
    what = "cluster_encode";
    (void)bitsnap_cluster_encode(ends, &used, labels, bytes, share(0, elements, n * width), n, dtype, clusters, memory,
                                 sizeof memory);
}

/* Sends a signal after `seconds` of processor time, so that an endless call is found. */
static void limit(int seconds)
{
    struct itimerval t;
    memset(&t, 0, sizeof t);
    t.it_value.tv_sec = seconds;
    (void)setitimer(ITIMER_PROF, &t, NULL);
}

static void changing(void)
{
    const char *asked = getenv("RACE_SECONDS");
    const double seconds = asked ? atof(asked) : 2;
    struct timespec start, now;
    unsigned i;
#ifndef RACE_TRACED
    pthread_t thread;
#endif
    test_state = (uint64_t)(getenv("RACE_SEED") ? atoll(getenv("RACE_SEED")) : 1);
    workspace_room = test_workspace_delta(20, 2);
    workspace = guarded_alloc(workspace_room, 0);
    workspace_room = workspace.map_size - 2 * page_size();
    workspace.p = (uint8_t *)workspace.map + page_size();
    destination = guarded_alloc(4u << 20, 0);
    destination_room = 4u << 20;
    for (i = 0; i < SHARED_MOST; i++) {
        shares[i].memory = guarded_alloc(share_room, 0);
        shares[i].original = (uint8_t *)malloc(share_room);
    }
    for (i = 0; i < EXAMPLES; i++) make_example(&examples[i], i);
#ifndef RACE_TRACED
    if (pthread_create(&thread, NULL, change, NULL)) abort();
#endif
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        const example *e = &examples[test_below(EXAMPLES)];
        const unsigned kind = (unsigned)test_below(10);
        limit(60);
#ifdef RACE_TRACED
        static const unsigned rates[6] = { 2, 5, 30, 200, 2000, 20000 };
        trace_one_in = rates[test_below(6)];
        trace_state ^= test_random();
#endif
        if (kind < 6) decode_once(e);
        else if (kind < 8) encode_once(e);
        else if (kind == 8) masks_once();
        else if (test_below(2)) lists_once();
        else quantizers_once();
        keep_still();
        calls++;
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec) < seconds);
    limit(0);
#ifndef RACE_TRACED
    stop = 1;
    pthread_join(thread, NULL);
#endif
    if (asked) printf("# %lu calls in %.0f s\n", calls, seconds);
}

int main(int argc, char **argv)
{
    static const int signals[6] = { SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGPROF };
    unsigned i;
    (void)argc;
    test_program = "test_race";
    (void)argv;
    for (i = 0; i < 6; i++) signal(signals[i], on_signal);
    RUN(changing);
    return test_failures != 0;
}
#else
int main(void)
{
    test_program = "test_race";
    SKIP("changing", "needs pages and threads of POSIX");
    return 0;
}
#endif
