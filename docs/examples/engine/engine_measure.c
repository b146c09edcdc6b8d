/* engine_measure.c - measures the memory of snapshots, and how long training waits for one, compared with memcpy. MIT licence,
 * see bitsnap.h.
 *
 *     engine_measure DIRECTORY [MEBIBYTES [THREADS]]
 *     mpirun -n RANKS engine_measure DIRECTORY [MEBIBYTES [THREADS [GROUP]]]
 *
 * The second form, compiled with MEASURE_MPI, measures the memory of each rank with its share of other ranks' snapshots: copies,
 * or parity of groups.
 *
 * The state is that of mixed precision with AdamW, 14 bytes a parameter: weights in BF16, and master, exp_avg and exp_avg_sq in
 * F32. It comes from the .safetensors files of a training run in DIRECTORY (master-N, adam_m-N, adam_v-N; or NAME-master,
 * -exp_avg, -exp_avg_sq, as train_gpt writes them), repeated up to MEBIBYTES. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#ifdef MEASURE_MPI
#include "engine_mpi.h"
#else
#include "bitsnap_engine.h"
#endif

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 7, TENSOR = 1 << 22 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Loads the data of the largest .safetensors file whose name has one of two words. */
static float *load(const char *directory, const char *word, const char *other, size_t *count)
{
    DIR *d = opendir(directory);
    struct dirent *x;
    char path[4096];
    float *data = NULL;
    *count = 0;
    while (d && (x = readdir(d)) != NULL) {
        unsigned char head[8] = { 0 };
        uint64_t text = 0;
        long size;
        int i;
        FILE *f;
        if ((!strstr(x->d_name, word) && !strstr(x->d_name, other)) || !strstr(x->d_name, ".safetensors")) continue;
        if (!strcmp(other, "exp_avg.") && strstr(x->d_name, "exp_avg_sq")) continue;
        snprintf(path, sizeof path, "%s/%s", directory, x->d_name);
        f = fopen(path, "rb");
        if (!f || fread(head, 1, 8, f) != 8 || fseek(f, 0, SEEK_END) || (size = ftell(f)) < 8) continue;
        for (i = 0; i < 8; i++) text |= (uint64_t)head[i] << 8 * i;
        if (text < (uint64_t)size && ((uint64_t)size - 8 - text) / 4 > *count && !fseek(f, (long)(8 + text), SEEK_SET)) {
            free(data);
            *count = (size_t)((uint64_t)size - 8 - text) / 4;
            data = (float *)malloc(4 * *count);
            if (!data || fread(data, 4, *count, f) != *count) exit(1);
        }
        fclose(f);
    }
    if (d) closedir(d);
    if (!data) fprintf(stderr, "engine_measure: %s: no file %s or %s\n", directory, word, other), exit(1);
    return data;
}

typedef struct copy {
    char *to;
    const char *from;
    size_t size;
} copy;

static void *copy_part(void *argument)
{
    const copy *c = (const copy *)argument;
    memcpy(c->to, c->from, c->size);
    return NULL;
}

static double copy_all(char *to, char *const *from, size_t parts, size_t each, unsigned threads)
{
    double best = 1e9;
    int round;
    for (round = 0; round < ROUNDS; round++) {
        const double start = now();
        size_t p;
        for (p = 0; p < parts; p++) {
            pthread_t t[64];
            copy c[64];
            unsigned i;
            for (i = 0; i < threads; i++) {
                c[i].size = each / threads, c[i].to = to + p * each + i * c[i].size, c[i].from = from[p] + i * c[i].size;
                if (i) pthread_create(&t[i], NULL, copy_part, &c[i]);
            }
            copy_part(&c[0]);
            for (i = 1; i < threads; i++) pthread_join(t[i], NULL);
        }
        if (now() - start < best) best = now() - start;
    }
    return best;
}

static void die(const char *what)
{
    fprintf(stderr, "engine_measure: %s\n", what);
    exit(1);
}

typedef struct whole_state {
    engine_tensor *t;
    size_t tensors, bytes;
} whole_state;

static void take(engine *e, const whole_state *s, uint64_t step)
{
    engine_error error;
    if (engine_snapshot(e, step, s->t, s->tensors, &error)) die(error.message);
}

/* Returns the bytes of the segment's pages in memory, as the kernel counts them. */
static double pages_of(const char *segment)
{
    FILE *f = fopen("/proc/self/smaps", "r");
    char line[512];
    unsigned long size;
    double sum = 0;
    int inside = 0;
    while (f && fgets(line, sizeof line, f)) {
        if (strchr(line, '-') && strchr(line, '-') < strchr(line, ' ')) inside = strstr(line, segment) != NULL;
        else if (inside && sscanf(line, "Rss: %lu kB", &size) == 1) sum += 1024.0 * (double)size;
    }
    if (f) fclose(f);
    if (!(sum > 0)) die("the segment is not in /proc/self/smaps");
    return sum;
}

/* Returns the bytes in memory of the smallest segment that holds two snapshots, with copies or parity of other ranks. The first
 * round counts the chunks in a large segment; the second takes four snapshots in one of that size. */
static double pages_needed(engine_options o, const whole_state *s)
{
    engine_error error;
    engine_report r;
    engine *e;
    char segment[64];
    double pages;
    unsigned round, i;
    snprintf(segment, sizeof segment, "/bitsnap-%s", o.name);
    for (round = 0; round < 2; round++) {
        if (engine_open(&e, &o, &error)) die(error.message);
        for (i = 0; i < 4; i++) {
            take(e, s, i);
            if (engine_wait(e, 600, &error)) die(error.message);
        }
        if (engine_read_status(NULL, o.name, &r, &error)) die(error.message);
        pages = pages_of(segment);
        engine_close(e, ENGINE_REMOVE);
        /* a thread may leave its last chunk partly empty */
        o.budget = r.size - (r.chunks - r.chunks_used - 2 * o.threads) * r.chunk;
    }
    return pages;
}

#ifdef MEASURE_MPI
/* Measures what a rank needs: the maximum over all ranks. */
static int measure_ranks(engine_options o, const whole_state *s, unsigned group)
{
    static const char *const policies[] = { "lossless", "resume", "standard" };
    engine_transport t;
    char name[32];
    size_t k;
    if (engine_mpi_open(&t, MPI_COMM_WORLD)) die("MPI without threads");
    snprintf(name, sizeof name, "measure.%u", t.rank);
    o.name = name, o.transport = &t, o.group = group, o.partner_patience = 600;
    if (!t.rank)
        printf("%u ranks, %s %u: pages of all slots, own and of others, of the state\n", t.ranks, group ? "parity, groups of" : "copies, distance",
               group ? group : 1);
    for (k = 0; k < sizeof policies / sizeof *policies; k++) {
        double pages, most;
        engine_error error;
        (void)engine_policy(&o, policies[k]);
        (void)engine_remove(NULL, name, &error);
        pages = pages_needed(o, s) / (double)s->bytes;
        MPI_Reduce(&pages, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (!t.rank) printf("| `%s` | %.2f |\n", policies[k], most), fflush(stdout);
    }
    engine_mpi_close(&t);
    return MPI_Finalize();
}
#endif

int main(int argc, char **argv)
{
    static const char *const policies[] = { "lossless", "lossless", "resume", "standard", "small" };
    const size_t mebibytes = argc > 2 ? strtoul(argv[2], NULL, 10) : 256;
    const unsigned threads = argc > 3 ? (unsigned)strtoul(argv[3], NULL, 10) : 1;
    size_t n, have[3], i, k, tensors;
    float *from[3], *state[3];
    uint16_t *weights;
    char (*names)[32], *parts[4], *copied;
    engine_tensor *t;
    engine_error error;
    double memcpy_seconds;
    whole_state all;
#ifdef MEASURE_MPI
    int given;
    if (MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &given) != MPI_SUCCESS) return 1;
#endif
    if (argc < 2 || !mebibytes || !threads || threads > 64) return fprintf(stderr, "usage: engine_measure DIRECTORY [MEBIBYTES [THREADS]]\n"), 2;
    from[0] = load(argv[1], "master-", "-master.", &have[0]);
    from[1] = load(argv[1], "adam_m-", "exp_avg.", &have[1]);
    from[2] = load(argv[1], "adam_v-", "exp_avg_sq.", &have[2]);
    n = (mebibytes << 20) / 14 / 4096 * 4096;
    weights = (uint16_t *)malloc(2 * n);
    for (k = 0; k < 3; k++) {
        state[k] = (float *)malloc(4 * n);
        for (i = 0; i < n; i++) state[k][i] = from[k][i % have[k]];
        parts[k] = (char *)state[k];
    }
    for (i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &state[0][i], 4);
        weights[i] = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    }
    parts[3] = (char *)weights;
    tensors = 4 * ((n + TENSOR - 1) / TENSOR);
    t = (engine_tensor *)calloc(tensors, sizeof *t);
    names = (char (*)[32])malloc(tensors * sizeof *names);
    for (i = 0; i < tensors; i++) {
        const size_t at = i / 4 * TENSOR;
        snprintf(names[i], sizeof names[i], "%u.%u", (unsigned)(i / 4), (unsigned)(i % 4));
        t[i].name = names[i], t[i].count = n - at < TENSOR ? n - at : TENSOR, t[i].columns = 1024;
        t[i].dtype = i % 4 == 3 ? BITSNAP_BF16 : BITSNAP_F32;
        t[i].data = i % 4 == 3 ? (void *)(weights + at) : (void *)(state[i % 4] + at);
        t[i].kind = i % 4 == 1 ? ENGINE_MOMENT1 : i % 4 == 2 ? ENGINE_MOMENT2 : ENGINE_EXACT;
        t[i].master = i % 4 == 3 ? &t[i - 3] : NULL;
    }
    all.t = t, all.tensors = tensors, all.bytes = 14 * n;
#ifdef MEASURE_MPI
    {
        engine_options o;
        memset(&o, 0, sizeof o);
        o.budget = 50 * (uint64_t)n, o.threads = threads, o.deltas = ENGINE_WHOLE;
        return measure_ranks(o, &all, argc > 4 ? (unsigned)strtoul(argv[4], NULL, 10) : 0);
    }
#endif
    copied = (char *)malloc(14 * n);
    memset(copied, 1, 14 * n);
    memcpy_seconds = copy_all(copied, parts, 3, 4 * n, threads) + copy_all(copied + 12 * n, parts + 3, 1, 2 * n, threads);
    printf("%u MiB of state, %u thread%s: memcpy %.1f ms, %.1f GB/s\n", (unsigned)mebibytes, threads, threads > 1 ? "s" : "", 1e3 * memcpy_seconds,
           14e-9 * (double)n / memcpy_seconds);
    printf("| policy | snapshot, of memcpy | recovery, of memcpy | a snapshot, of the state | two, in pages |\n|---|--:|--:|--:|--:|\n");
    for (k = 0; k < sizeof policies / sizeof *policies; k++) {
        const int first = k == 1; /* lossless, but in copy mode */
        engine_options o;
        engine_report r;
        engine *e;
        uint64_t step = 0, chunks = 0;
        double best = 1e9, back = 1e9;
        memset(&o, 0, sizeof o);
        o.name = "measure", o.budget = 30 * (uint64_t)n, o.threads = threads, o.copy = first;
        o.deltas = ENGINE_WHOLE; /* in training, deltas between steps would not pay */
        (void)engine_policy(&o, policies[k]);
        (void)engine_remove(NULL, o.name, &error);
        if (engine_open(&e, &o, &error)) die(error.message);
        for (i = 0; i < ROUNDS; i++) {
            take(e, &all, i);
            if (i && engine_last_cost(e)->seconds < best) best = engine_last_cost(e)->seconds;
            if (engine_wait(e, 60, &error)) die(error.message);
        }
        if (engine_read_status(NULL, o.name, &r, &error)) return 1;
        for (i = 0; i < ENGINE_SLOTS; i++)
            if (r.slots[i].chunks > chunks) chunks = r.slots[i].chunks;
        for (i = 0; i < 3; i++) {
            if (engine_recover(e, &step, t, tensors, &error)) die(error.message);
            if (engine_last_cost(e)->seconds < back) back = engine_last_cost(e)->seconds;
        }
        engine_close(e, ENGINE_REMOVE);
        printf("| `%s`%s | %.2f | %.2f | %.3f | %.2f |\n", policies[k], first ? ", copied first" : "", best / memcpy_seconds, back / memcpy_seconds,
               (double)(chunks * r.chunk) / (double)all.bytes, pages_needed(o, &all) / (double)all.bytes);
        fflush(stdout);
    }
    return 0;
}
