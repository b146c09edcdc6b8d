/* test_engine.c - the checkpoint engine: snapshots come back exactly after kills, damage, full memory and concurrent readers. */
#include "tests/unit/test.h"
#ifndef __linux__
int main(void)
{
    SKIP("all", "needs Linux");
    return 0;
}
#else
#include <errno.h>
#include <fcntl.h>
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "docs/examples/file/bitsnap_file.h"
/* Faults: the largest block that malloc gives this thread, and a disk that cannot be read. most_taken: the largest file allocation. */
static __thread size_t most_memory = SIZE_MAX;
static int disk_fails;
static __thread off_t most_taken;

static void *some_memory(size_t size) { return size <= most_memory ? malloc(size) : NULL; }

static ssize_t read_some(int fd, void *to, size_t size, off_t at)
{
    if (!disk_fails) return pread(fd, to, size, at);
    errno = EIO;
    return -1;
}

static int take_room(int fd, off_t at, off_t size)
{
    if (size > most_taken) most_taken = size;
    return posix_fallocate(fd, at, size);
}

#define malloc some_memory
#define posix_fallocate take_room
#define pread read_some
#include "docs/examples/engine/bitsnap_engine.c"
#include "docs/examples/engine/engine_disk.c"
#undef malloc
#undef posix_fallocate
#undef pread
#include <glob.h>
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#ifndef ELEMENTS
#define ELEMENTS 300000 /* two pieces; slow builds use fewer */
#endif
enum { N = ELEMENTS, TENSORS = 6, COLUMNS = 3000 };

/* A small state of training. It depends on the step alone. */
typedef struct state {
    float *master, *m, *v;
    uint16_t *weights, *frozen;
    uint8_t rng[48];
    engine_tensor tensors[TENSORS];
} state;

static char place[] = "/tmp/test_engine.XXXXXX";
static char said[256];

static void hear(void *context, const char *message)
{
    (void)context;
    snprintf(said, sizeof said, "%s", message);
}

static uint16_t rounded(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
}

static engine_tensor tensor_of(const char *name, bitsnap_dtype dtype, void *data, uint64_t count, engine_kind kind, const engine_tensor *master)
{
    engine_tensor t;
    memset(&t, 0, sizeof t);
    t.name = name, t.dtype = dtype, t.data = data, t.count = count, t.kind = kind, t.master = master;
    if (count == N) t.columns = COLUMNS;
    return t;
}

static void state_make(state *s)
{
    memset(s, 0, sizeof *s);
    s->master = (float *)calloc(N, 4), s->m = (float *)calloc(N, 4), s->v = (float *)calloc(N, 4);
    s->weights = (uint16_t *)calloc(N, 2), s->frozen = (uint16_t *)calloc(N, 2);
    s->tensors[0] = tensor_of("weights", BITSNAP_BF16, s->weights, N, ENGINE_EXACT, &s->tensors[1]);
    s->tensors[1] = tensor_of("master", BITSNAP_F32, s->master, N, ENGINE_EXACT, NULL);
    s->tensors[2] = tensor_of("exp_avg", BITSNAP_F32, s->m, N, ENGINE_MOMENT1, NULL);
    s->tensors[3] = tensor_of("exp_avg_sq", BITSNAP_F32, s->v, N, ENGINE_MOMENT2, NULL);
    s->tensors[4] = tensor_of("frozen", BITSNAP_BF16, s->frozen, N, ENGINE_EXACT, NULL);
    s->tensors[5] = tensor_of("rng", BITSNAP_I8, s->rng, sizeof s->rng, ENGINE_EXACT, NULL);
}

static void state_free(state *s)
{
    free(s->master), free(s->m), free(s->v), free(s->weights), free(s->frozen);
}

static void state_at(state *s, uint64_t step)
{
    size_t i;
    const uint64_t before = test_state;
    test_state = 1000 * step;
    for (i = 0; i < N; i++) {
        const uint32_t r = (uint32_t)test_random();
        s->master[i] = (float)((int)(i * 2654435761u % 2001) - 1000) * 1e-5f + (float)step * 1e-7f;
        s->m[i] = (float)((int)(r % 20001) - 10000) * 1e-9f;
        s->v[i] = (float)(1 + r / 65536 % 1000) * 1e-12f;
        s->weights[i] = rounded(s->master[i]) ^ (step % 4 == 0 && i == 12345); /* in some steps one weight differs from the rounded master */
        s->frozen[i] = (uint16_t)(0x3C00 + i * 7919 % 1009 + (i % 5000 == step % 5000));
    }
    test_fill(s->rng, sizeof s->rng);
    test_state = before;
}

static int same(const state *a, const state *b)
{
    return !memcmp(a->master, b->master, 4 * N) && !memcmp(a->m, b->m, 4 * N) && !memcmp(a->v, b->v, 4 * N) &&
           !memcmp(a->weights, b->weights, 2 * N) && !memcmp(a->frozen, b->frozen, 2 * N) && !memcmp(a->rng, b->rng, sizeof a->rng);
}

static state now, then;

static engine_options options_of(const char *name, uint64_t budget)
{
    engine_options o;
    memset(&o, 0, sizeof o);
    o.name = name, o.directory = place, o.budget = budget, o.threads = 3, o.say = hear;
    return o;
}

static engine *open_engine(const engine_options *o)
{
    engine_error error;
    engine *e;
    CHECK(!engine_open(&e, o, &error), "%s", error.message);
    return e;
}

static void take(engine *e, uint64_t step)
{
    engine_error error;
    state_at(&now, step);
    CHECK(!engine_snapshot(e, step, now.tensors, TENSORS, &error), "step %u: %s", (unsigned)step, error.message);
}

static uint64_t recovered(engine *e)
{
    engine_error error;
    uint64_t step = 0;
    state_at(&then, 77);
    CHECK(!engine_recover(e, &step, then.tensors, TENSORS, &error), "%s", error.message);
    state_at(&now, step);
    CHECK(same(&now, &then), "step %u came back as something else", (unsigned)step);
    return step;
}

enum { BUDGET = 14 << 20 };

static void round_trip(void)
{
    const engine_options o = options_of("round", BUDGET);
    engine_error error;
    engine_report r;
    engine *e = open_engine(&o);
    uint64_t step;
    CHECK(engine_recover(e, &step, then.tensors, TENSORS, &error) == ENGINE_E_NONE, "%s", error.message);
    for (step = 1; step <= 9; step++) take(e, step);
    CHECK(recovered(e) == 9, "not the newest");
    take(e, 10);
    engine_close(e, ENGINE_KEEP);
    e = open_engine(&o);
    CHECK(recovered(e) == 10, "not the newest");
    take(e, 11); /* as a delta to the recovered snapshot */
    CHECK(engine_last_cost(e)->delta > 0 && engine_last_cost(e)->cast > 0 && engine_last_cost(e)->whole > 0, "not all forms");
    CHECK(recovered(e) == 11, "not the newest");
    CHECK(!engine_read_status(place, "round", &r, &error) && r.trainer && !r.agent && r.trainer_pid == (uint64_t)getpid(), "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
    CHECK(engine_read_status(place, "round", &r, &error) == ENGINE_E_NONE, "%s", error.message);
}

/* Unchanged elements are stored once for all snapshots, and space that is no longer used is reused. */
static void deltas(void)
{
    const engine_options o = options_of("deltas", BUDGET);
    engine_error error;
    engine_report r;
    engine *e = open_engine(&o);
    uint64_t step, whole = 0, most = 0;
    for (step = 1; step <= 40; step++) {
        state_at(&now, step);
        CHECK(!engine_snapshot(e, step, &now.tensors[4], 1, &error), "%s", error.message);
        if (step == 1) whole = engine_last_cost(e)->written_size;
        if (step > 2) CHECK(engine_last_cost(e)->written_size < whole / 50, "%u bytes", (unsigned)engine_last_cost(e)->written_size);
        CHECK(!engine_read_status(place, "deltas", &r, &error), "%s", error.message);
        if (step > 4 && r.chunks_used > most) most = r.chunks_used;
    }
    CHECK(most * r.chunk < whole + 12 * r.chunk, "%u chunks of %u, %u bytes whole", (unsigned)most, (unsigned)r.chunk, (unsigned)whole);
    memset(then.frozen, 0, 2 * N);
    CHECK(!engine_recover(e, &step, &then.tensors[4], 1, &error) && step == 40 && !memcmp(then.frozen, now.frozen, 2 * N), "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
}

/* Stages of a run: all elements change in each step, a part is frozen, or a few elements change. */
enum { STAGED = 60000, STAGE = 60 };

static void stage(uint16_t *w, unsigned kind, unsigned step)
{
    size_t i;
    for (i = 0; i < STAGED; i++) {
        const uint32_t r = (uint32_t)(i * 2654435761u + step * 40503u) * 2246822519u >> 8;
        if (kind == 0) w[i] = (uint16_t)(0x3C00 + r % 3001);            /* pre-training: all change by much */
        if (kind == 1 && r % 100 < 20) w[i] = (uint16_t)(w[i] + 1);     /* late: a fifth changes by one unit */
        if (kind == 2 && i >= STAGED / 4 * 3) w[i] = (uint16_t)(0x3C00 + r % 3001); /* three quarters are frozen */
        if (kind == 3 && r % 1000 < 3) w[i] = (uint16_t)(w[i] ^ 1);     /* fine-tuning */
    }
}

/* In every order of stages, the adaptive policy writes at most 2 % more bytes than the better fixed policy. */
static void follows_the_stage(void)
{
    static const struct { const char *name; unsigned stages[4]; } runs[] = {
        { "pre-training", { 0, 0, 0, 0 } }, { "slower and slower", { 0, 1, 3, 3 } }, { "frozen, then not", { 2, 2, 0, 2 } }, { "fine-tuning", { 3, 3, 3, 3 } }
    };
    unsigned k, policy, step;
    for (k = 0; k < 4; k++) {
        uint64_t written[3] = { 0, 0, 0 };
        for (policy = 0; policy < 3; policy++) {
            engine_options o = options_of("stages", BUDGET);
            engine_error error;
            engine *e;
            o.deltas = (int)policy;
            *said = 0;
            e = open_engine(&o);
            state_at(&now, 1);
            now.tensors[4].count = STAGED;
            for (step = 0; step < 4 * STAGE; step++) {
                stage(now.frozen, runs[k].stages[step / STAGE], step);
                CHECK(!engine_snapshot(e, step, &now.tensors[4], 1, &error), "%s", error.message);
                written[policy] += engine_last_cost(e)->written_size;
            }
            if (!policy && k == 1) CHECK(strstr(said, "deltas of frozen from here on"), "%s", said);
            if (!policy && k == 2) CHECK(strstr(said, "deltas of frozen"), "%s", said);
            now.tensors[4].count = N;
            engine_close(e, ENGINE_REMOVE);
        }
        CHECK(written[0] <= 1.02 * (double)(written[1] < written[2] ? written[1] : written[2]), "%s: %u bytes; always whole %u, always tried %u", runs[k].name,
              (unsigned)written[0], (unsigned)written[1], (unsigned)written[2]);
        if (getenv("SHOW")) printf("# %s: %u bytes; always whole %u, always tried %u\n", runs[k].name, (unsigned)written[0], (unsigned)written[1], (unsigned)written[2]);
    }
}

/* The size of a frame of these elements. */
static uint64_t frame_of(const void *elements, uint64_t count, int level, uint64_t columns, const void *base, bitsnap_dtype dtype)
{
    static uint8_t frame[4 * N + 65536];
    size_t size;
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.level = level, b.columns = columns;
    if (base) b.base.data = base, b.base.count = count, b.base.dtype = dtype;
    b.workspace_size = bitsnap_workspace_size(&b, count, dtype);
    b.workspace = malloc(b.workspace_size);
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, count, dtype), "%s", bitsnap_message(&b));
    free(b.workspace);
    return size;
}

/* Weights drift at several speeds. New anchors come in time, even if deltas exceed half of a whole frame. */
static void anchors_in_time(void)
{
    static const unsigned shares[] = { 900, 300, 40, 300 }; /* of 1,000 elements, those that change in a step */
    static const unsigned every[] = { 1, 2, 3, 4, 6, 8, 12, 16, 24, 48 };
    static uint16_t anchor[sizeof every / sizeof *every][STAGED];
    uint64_t written = 0, fixed[sizeof every / sizeof *every] = { 0 }, least = UINT64_MAX;
    engine_options o = options_of("anchors", BUDGET);
    engine_error error;
    engine *e;
    unsigned step, k;
    size_t i;
    o.delta_percent = 90;
    e = open_engine(&o);
    state_at(&now, 1);
    now.tensors[4].count = STAGED;
    for (step = 0; step < 160; step++) {
        for (i = 0; i < STAGED; i++)
            if (test_below(1000) < shares[step / 40]) now.frozen[i] = (uint16_t)(now.frozen[i] + test_below(63) - 31);
        CHECK(!engine_snapshot(e, step, &now.tensors[4], 1, &error), "%s", error.message);
        written += engine_last_cost(e)->written_size;
        for (k = 0; k < sizeof every / sizeof *every; k++) {
            if (step % every[k] == 0) memcpy(anchor[k], now.frozen, sizeof anchor[k]);
            fixed[k] += frame_of(now.frozen, STAGED, BITSNAP_FAST, 0, step % every[k] ? anchor[k] : NULL, BITSNAP_BF16);
        }
    }
    for (k = 0; k < sizeof every / sizeof *every; k++)
        if (fixed[k] < least) least = fixed[k];
    CHECK(written <= 1.02 * (double)least, "%u bytes, the best fixed anchors %u", (unsigned)written, (unsigned)least);
    if (getenv("SHOW")) printf("# anchors: %u bytes, the best fixed ones %u, never %u\n", (unsigned)written, (unsigned)least, (unsigned)fixed[0]);
    memset(then.frozen, 0, 2 * N);
    then.tensors[4].count = STAGED;
    { uint64_t found; CHECK(!engine_recover(e, &found, &then.tensors[4], 1, &error) && !memcmp(then.frozen, now.frozen, 2 * STAGED), "%s", error.message); }
    now.tensors[4].count = then.tensors[4].count = N;
    engine_close(e, ENGINE_REMOVE);
}

/* Uses the higher level only where it saves bytes, and notices when that changes. */
static void levels(void)
{
    enum { COUNT = (N / 300 < 873 ? N / 300 : 873) * 300 }; /* at most one piece */
    engine_options o = options_of("levels", BUDGET);
    engine_error error;
    engine *e;
    uint64_t written = 0, fast = 0, best = 0;
    unsigned step;
    size_t i;
    o.level_most = BITSNAP_BEST;
    e = open_engine(&o);
    now.tensors[3].columns = 300;
    now.tensors[3].count = COUNT;
    for (step = 0; step < 64; step++) {
        state_at(&now, step);
        for (i = 0; i < N; i++) /* from step 8 on, rows have different scales */
            now.v[i] = (float)(16 + test_below(16)) * (step < 8 ? 1.0f : 1.0f / (float)(1 << i / 300 * 7 % 29));
        CHECK(!engine_snapshot(e, step, &now.tensors[3], 1, &error), "%s", error.message);
        written += engine_last_cost(e)->written_size;
        fast += frame_of(now.v, COUNT, BITSNAP_FAST, 0, NULL, BITSNAP_F32);
        best += frame_of(now.v, COUNT, BITSNAP_BEST, 300, NULL, BITSNAP_F32);
    }
    CHECK(best < 0.95 * (double)fast && written < best + (fast - best) / 4, "%u bytes, at level fast %u, best %u", (unsigned)written, (unsigned)fast, (unsigned)best);
    CHECK(strstr(said, "whole frames of exp_avg_sq at level"), "%s", said);
    now.tensors[3].columns = COLUMNS;
    now.tensors[3].count = N;
    if (getenv("SHOW")) printf("# levels: %u bytes, fast %u, best %u\n", (unsigned)written, (unsigned)fast, (unsigned)best);
    engine_close(e, ENGINE_REMOVE);
}

static void hear_of_moments(void *context, const char *message)
{
    if (strstr(message, "moments")) hear(context, message);
}

/* Moments get finer bins while updates are large, but never fewer than the caller asks for. */
static void bounds_follow_updates(void)
{
    static const struct { double update; unsigned cells; } stages[] = { { 0.02, 70 }, { 0.008, 70 }, { 0.004, 34 }, { 0.003, 24 }, { 1e-3, 16 }, { 0, 16 }, { 0.02, 70 } };
    engine_options o = options_of("bounds", BUDGET);
    engine_error error;
    engine_report r;
    engine *e;
    unsigned k, step = 0, i;
    double update;
    for (update = 1e-6; update < 1; update *= 1.1) {
        const unsigned cells = engine_stage_cells(8, update);
        const double m = bitsnap_log_bound(cells), v = bitsnap_log_bound(cells / 2);
        CHECK(cells >= 8 && cells <= 70 && (cells == 70 || (1 + m) / sqrt(1 - v) - 1 <= 1.0001 / 8192 / update), "%u cells for %g", cells, update);
        CHECK(engine_stage_cells(200, update) == 200 && engine_stage_cells(10, update) >= 12, "below the least");
    }
    CHECK(engine_stage_cells(8, 0) == 8 && engine_stage_cells(8, 1) == 70, "ends");
    CHECK(!engine_policy(&o, "standard"), "policy");
    o.stage = 1;
    o.say = hear_of_moments;
    state_at(&now, 3);
    now.tensors[2].weights = now.tensors[3].weights = &now.tensors[1];
    e = open_engine(&o);
    CHECK(!engine_snapshot(e, 0, now.tensors, TENSORS, &error) && engine_last_cost(e)->cells >= 70, "not exact at first: %s", error.message);
    for (k = 0; k < sizeof stages / sizeof *stages; k++) {
        for (i = 0; i < 6; i++) {
            size_t j;
            for (j = 0; j < N; j++) now.master[j] *= 1 + (float)stages[k].update * ((j + step) % 2 ? 1.0f : -1.0f);
            CHECK(!engine_snapshot(e, ++step, now.tensors, TENSORS, &error), "%s", error.message);
        }
        CHECK(engine_last_cost(e)->cells >= stages[k].cells - 0.1 && engine_last_cost(e)->cells <= stages[k].cells + 0.1, "updates of %g: %g cells", stages[k].update, engine_last_cost(e)->cells);
        CHECK(!engine_read_status(place, "bounds", &r, &error), "%s", error.message);
        for (i = 0; i < OWN_SLOTS; i++)
            if (r.slots[i].whole && r.slots[i].step == step) CHECK(r.slots[i].max_relative > 0 && r.slots[i].max_relative <= 1.0001 * bitsnap_log_bound(stages[k].cells / 2), "certified %g", r.slots[i].max_relative);
    }
    CHECK(strstr(said, "moments of master in 70 bins instead of 16, as an update is"), "%s", said);
    now.tensors[2].weights = now.tensors[3].weights = NULL;
    engine_close(e, ENGINE_REMOVE);
}

/* Tensors freeze and thaw at random. A budget of 2.25 whole snapshots is always enough. */
static void budget_is_enough(void)
{
    enum { PARTS = 96, PART = 3000 }; /* several share a chunk */
    engine_options o = options_of("enough", (uint64_t)(2.25 * PARTS * 1.5 * PART) + 14 * 16384); /* 12 bits of noise; header and partly filled chunks */
    engine_error error;
    engine_tensor t[PARTS], back[PARTS];
    static uint16_t w[PARTS][PART], again[PARTS][PART];
    static char names[PARTS][8];
    unsigned k, step;
    int frozen[PARTS] = { 0 };
    uint64_t found;
    size_t i;
    double most = 0;
    engine *e;
    for (k = 0; k < PARTS; k++) {
        snprintf(names[k], sizeof names[k], "%u", k);
        t[k] = tensor_of(names[k], BITSNAP_I16, w[k], PART, ENGINE_EXACT, NULL);
        back[k] = t[k], back[k].data = again[k];
    }
    o.threads = 2;
    e = open_engine(&o);
    for (step = 1; step <= 300; step++) {
        for (k = 0; k < PARTS; k++) {
            if (test_below(20) == 0) frozen[k] = test_below(4) != 0;
            for (i = 0; i < PART; i++)
                if (!frozen[k] || test_below(200) == 0) w[k][i] = (uint16_t)(test_random() & 4095);
        }
        CHECK(!engine_snapshot(e, step, t, PARTS, &error), "step %u: %s", step, error.message);
        if (engine_last_cost(e)->frames_size / (PARTS * 2.0 * PART) > most) most = engine_last_cost(e)->frames_size / (PARTS * 2.0 * PART);
    }
    CHECK(!engine_recover(e, &found, back, PARTS, &error) && found == 300 && !memcmp(w, again, sizeof w), "%s", error.message);
    CHECK(most < 1.3, "a snapshot refers to %.2f times the state", most);
    engine_close(e, ENGINE_REMOVE);
}

static void moments_within_bounds(void)
{
    engine_options o = options_of("moments", BUDGET);
    engine_error error;
    engine_report r;
    engine *e;
    uint64_t step, i;
    double largest = 0;
    CHECK(engine_policy(&o, "whatever") && !engine_policy(&o, "standard"), "policies");
    e = open_engine(&o);
    take(e, 5);
    CHECK(!engine_recover(e, &step, then.tensors, TENSORS, &error), "%s", error.message);
    CHECK(!memcmp(now.master, then.master, 4 * N) && !memcmp(now.weights, then.weights, 2 * N), "what is exact");
    for (i = 0; i < N; i++) {
        const double m = now.m[i] ? then.m[i] / (double)now.m[i] - 1 : then.m[i], v = then.v[i] / (double)now.v[i] - 1;
        CHECK(m < 0.022 && m > -0.022 && v < 0.044 && v > -0.044, "element %u", (unsigned)i);
        if (v > largest) largest = v;
    }
    CHECK(!engine_read_status(place, "moments", &r, &error) && r.slots[0].max_relative >= largest && r.slots[0].max_relative < 0.044, "certificate");
    engine_close(e, ENGINE_REMOVE);
}

static void does_not_fit(void)
{
    const engine_options o = options_of("full", 5 << 20);
    engine_error error;
    engine *e = open_engine(&o);
    uint64_t step;
    state_at(&now, 1);
    CHECK(!engine_snapshot(e, 1, &now.tensors[2], 2, &error), "%s", error.message);
    for (step = 2; step < 5; step++) {
        state_at(&now, step);
        CHECK(engine_snapshot(e, step, now.tensors, TENSORS, &error) == ENGINE_E_FULL && strstr(error.message, "budget"), "%s", error.message);
        CHECK(!engine_recover(e, &step, &then.tensors[2], 2, &error) && step == 1, "%s", error.message);
        break;
    }
    state_at(&now, 1);
    CHECK(!memcmp(now.m, then.m, 4 * N) && !memcmp(now.v, then.v, 4 * N), "the one that was there");
    engine_close(e, ENGINE_REMOVE);
}

/* A trainer is killed while it takes snapshots. Every finished snapshot is there. */
static void killed(void)
{
    const engine_options o = options_of("killed", BUDGET);
    const char *kills = getenv("KILLS");
    int round, rounds = kills ? atoi(kills) : 12;
    uint64_t least = 0;
    for (round = 0; round < rounds; round++) {
        int pipes[2], status;
        uint64_t acknowledged = least, x, step;
        engine *e;
        pid_t child;
        CHECK(!pipe(pipes), "pipe");
        child = fork();
        if (!child) {
            engine_error error;
            if (engine_open(&e, &o, &error) || (engine_recover(e, &step, then.tensors, TENSORS, &error) && error.status != ENGINE_E_NONE)) _exit(3);
            for (step = least + 1;; step++) {
                state_at(&now, step);
                if (engine_snapshot(e, step, now.tensors, TENSORS, &error) || write(pipes[1], &step, 8) != 8) _exit(4);
            }
        }
        close(pipes[1]);
        if (read(pipes[0], &x, 8) == 8) acknowledged = x;
        usleep((useconds_t)test_below(60000));
        kill(child, SIGKILL);
        while (read(pipes[0], &x, 8) == 8) acknowledged = x;
        close(pipes[0]);
        CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status), "status %d", status);
        e = open_engine(&o);
        step = recovered(e);
        CHECK(step >= acknowledged && step <= acknowledged + 1, "step %u, %u was acknowledged", (unsigned)step, (unsigned)acknowledged);
        least = step;
        engine_close(e, ENGINE_KEEP);
    }
    {
        engine_error error;
        CHECK(!engine_remove(place, "killed", &error), "%s", error.message);
    }
}

/* Random bytes of a segment change. Recovery gives a right step or an error. */
static void damaged(void)
{
    const engine_options o = options_of("damaged", BUDGET);
    char path[PATH];
    struct stat st;
    uint8_t *copy, *p;
    unsigned round, old = 0, lost = 0;
    int fd;
    engine_report r;
    engine *e = open_engine(&o);
    size_t at[4], size[4];
    take(e, 1);
    take(e, 2);
    /* the newest seal, its map, one of its chunks, or any byte */
    at[0] = (size_t)((uint8_t *)slot_of(&e->s, e->last.slot) - e->s.base), size[0] = sizeof(slot_seal);
    at[1] = (size_t)((uint8_t *)map_of(&e->s, e->last.slot) - e->s.base), size[1] = (size_t)e->last.seal.chunks * sizeof(map_entry);
    at[2] = (size_t)(arena_at(e->s.chunks) + ((uint64_t)e->last.map[1].chunk << e->s.chunk_log2)), size[2] = (size_t)1 << e->s.chunk_log2;
    at[3] = 0, size[3] = (size_t)e->s.size;
    engine_close(e, ENGINE_KEEP);
    snprintf(path, sizeof path, "%s/bitsnap-damaged", place);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && !fstat(fd, &st), "open");
    p = (uint8_t *)mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    copy = (uint8_t *)malloc((size_t)st.st_size);
    memcpy(copy, p, (size_t)st.st_size);
    for (round = 0; round < 60; round++) {
        engine_error error;
        uint64_t step;
        size_t i, flips = 1 + test_below(4);
        *said = 0;
        for (i = 0; i < flips; i++) p[at[round % 4] + test_below(size[round % 4])] ^= (uint8_t)(1 + test_below(255));
        (void)engine_read_status(place, "damaged", &r, &error);
        if (!engine_open(&e, &o, &error)) {
            const engine_status status = engine_recover(e, &step, then.tensors, TENSORS, &error);
            if (!status) {
                state_at(&now, step);
                CHECK(same(&now, &then), "step %u came back as something else", (unsigned)step);
                CHECK(step == 2 || *said || step == 1, "an older step, and no word of it");
                old += step == 1;
            } else {
                CHECK(status == ENGINE_E_DAMAGED || status == ENGINE_E_NONE, "%s", error.message);
                lost++;
            }
            engine_close(e, ENGINE_KEEP);
        } else {
            CHECK(error.status == ENGINE_E_DAMAGED, "%s", error.message);
            lost++;
        }
        memcpy(p, copy, (size_t)st.st_size);
    }
    CHECK(old > 30, "the older one was needed %u times, both were lost %u times", old, lost);
    munmap(p, (size_t)st.st_size);
    close(fd);
    unlink(path);
    free(copy);
}

/* Refuses an impossible header although its check matches, and a header with a wrong check. */
static void wrong_headers(void)
{
    const engine_options o = options_of("header", BUDGET);
    char path[PATH];
    engine_error error;
    segment_header h;
    engine_report r;
    engine *e = open_engine(&o);
    unsigned k;
    int fd;
    engine_close(e, ENGINE_KEEP);
    snprintf(path, sizeof path, "%s/bitsnap-header", place);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &h, sizeof h, 0) == sizeof h, "open");
    for (k = 0; k < 11; k++) {
        segment_header x = h;
        switch (k) {
        case 0: x.magic ^= 1; break;
        case 1: x.size += ARENA_ALIGN; break;
        case 2: x.chunk_log2 = LEAST_LOG2 - 1; break;
        case 3: x.chunk_log2 = MOST_LOG2 + 1, x.chunks = 1; break;
        case 4: x.chunks = 0; break;
        case 5: x.chunks++; break;
        case 6: x.chunks = x.size / (ENGINE_SLOTS * sizeof(map_entry)); break; /* the maps alone exceed the segment */
        case 7: x.chunks = UINT64_MAX / (ENGINE_SLOTS * sizeof(map_entry)) + 2; break;
        case 8: x.chunk_log2 = 64 + LEAST_LOG2; break;
        default: break;
        }
        x.check = header_check(&x) ^ (k == 9);
        CHECK(pwrite(fd, &x, sizeof x, 0) == sizeof x, "write");
        CHECK(engine_read_status(place, "header", &r, &error) == (k < 10 ? ENGINE_E_DAMAGED : ENGINE_OK), "header %u: %s", k, error.message);
    }
    CHECK(!ftruncate(fd, sizeof h) && engine_read_status(place, "header", &r, &error) == ENGINE_E_DAMAGED, "%s", error.message);
    CHECK(!ftruncate(fd, sizeof h - 1) && engine_read_status(place, "header", &r, &error) == ENGINE_E_DAMAGED, "%s", error.message);
    close(fd);
    unlink(path);
    CHECK(!mkdir(path, 0700) && engine_read_status(place, "header", &r, &error) && !rmdir(path), "a directory");
}

static int piece_is(const engine_piece *p, const engine_tensor *t)
{
    const size_t width = bitsnap_width(t->dtype);
    return p->elements && !memcmp(p->elements, (const uint8_t *)t->data + p->first * width, (size_t)p->count * width);
}

static struct changer {
    uint8_t *p;
    size_t at[4], size[4];
    int stop;
} changer;

static void *change(void *argument)
{
    struct changer *c = (struct changer *)argument;
    uint64_t x = 88172645463325252u;
    while (!__atomic_load_n(&c->stop, __ATOMIC_RELAXED)) {
        uint8_t *p;
        unsigned i;
        x ^= x << 13, x ^= x >> 7, x ^= x << 17;
        p = c->p + c->at[x & 3] + (x >> 8) % c->size[x & 3];
        __atomic_fetch_xor(p, (uint8_t)(1 + (x >> 40) % 255), __ATOMIC_RELAXED);
        for (i = 0; i < (x >> 50 & 4095); i++) __asm__ volatile("" ::: "memory");
        __atomic_fetch_xor(p, (uint8_t)(1 + (x >> 40) % 255), __ATOMIC_RELAXED); /* restored, so that some reads find it whole */
    }
    return NULL;
}

/* Bytes change during reads. Recovery gives a right step or an error. */
static void changing(void)
{
    const engine_options o = options_of("changing", BUDGET);
    const char *seconds = getenv("RACE_SECONDS");
    const time_t end = time(NULL) + (seconds ? atoi(seconds) : 2);
    engine_error error;
    engine_reader *r;
    pthread_t thread;
    unsigned good_ones = 0, bad_ones = 0;
    engine *e = open_engine(&o);
    uint64_t step;
    take(e, 1);
    take(e, 2);
    changer.p = e->s.base, changer.stop = 0;
    changer.at[0] = (size_t)((uint8_t *)slot_of(&e->s, e->last.slot) - e->s.base), changer.size[0] = sizeof(slot_seal);
    changer.at[1] = (size_t)((uint8_t *)map_of(&e->s, e->last.slot) - e->s.base), changer.size[1] = (size_t)e->last.seal.chunks * sizeof(map_entry);
    changer.at[2] = (size_t)arena_at(e->s.chunks), changer.size[2] = (size_t)(e->s.size - arena_at(e->s.chunks));
    changer.at[3] = (size_t)(arena_at(e->s.chunks) + ((uint64_t)e->last.map[e->last.seal.contents_at >> e->s.chunk_log2].chunk << e->s.chunk_log2));
    changer.size[3] = (size_t)1 << e->s.chunk_log2;
    CHECK(!pthread_create(&thread, NULL, change, &changer), "thread");
    while (time(NULL) < end) {
        uint64_t sequence = 0;
        engine_piece piece;
        if (!engine_recover(e, &step, then.tensors, TENSORS, &error)) {
            state_at(&now, step);
            CHECK(same(&now, &then), "step %u came back as something else", (unsigned)step);
            good_ones++;
        } else {
            CHECK(error.status == ENGINE_E_DAMAGED || error.status == ENGINE_E_NONE, "%s", error.message);
            bad_ones++;
        }
        if (engine_reader_open(&r, place, "changing", 0, &error)) continue;
        if (!engine_reader_next(r, 1, &sequence, &step, &error) && !engine_reader_piece(r, 1, 0, 1, &piece, &error)) {
            state_at(&now, step);
            CHECK(piece_is(&piece, &now.tensors[1]), "a piece of step %u came back as something else", (unsigned)step);
        }
        engine_reader_close(r);
    }
    __atomic_store_n(&changer.stop, 1, __ATOMIC_RELAXED);
    pthread_join(thread, NULL);
    CHECK(good_ones + bad_ones > 1 && good_ones, "%u good, %u bad", good_ones, bad_ones);
    engine_close(e, ENGINE_REMOVE);
}

/* Parses random contents. No read goes past the end. */
static void contents_of_anything(void)
{
    const engine_options o = options_of("contents", BUDGET);
    engine *e = open_engine(&o);
    contents d;
    guarded g;
    unsigned round, accepted = 0;
    take(e, 1);
    g = guarded_alloc((size_t)e->last.d.size, 0);
    for (round = 0; round < 200000; round++) {
        size_t i, flips = test_below(4);
        memcpy(g.p, e->last.d.bytes, (size_t)e->last.d.size);
        for (i = 0; i < flips; i++) {
            const size_t at = test_below((size_t)e->last.d.size / 8);
            const uint64_t x = test_below(3) ? test_below(1000) : (UINT64_MAX - test_below(3)) >> test_below(64);
            memcpy(g.p + 8 * at, &x, 8);
        }
        memset(&d, 0, sizeof d);
        d.size = test_below(4) ? e->last.d.size : test_below((size_t)e->last.d.size);
        d.bytes = g.p + (e->last.d.size - d.size) / 8 * 8;
        d.size = (uint64_t)(g.p + e->last.d.size - d.bytes);
        memmove(d.bytes, g.p, (size_t)d.size);
        accepted += !contents_parse(&d);
    }
    CHECK(accepted > 1000, "accepted %u", accepted);
    for (round = 0; round < 200000; round++) { /* contents with parity: three seals, maps, checks */
        const size_t size = 8 + 3 * sizeof(slot_seal) + 5 * sizeof(map_entry) + 2 * 8;
        uint8_t *p = g.p + (e->last.d.size - size);
        size_t i, flips = test_below(3);
        const uint64_t rows = 2, chunks[3] = { 3, 0, 2 };
        memset(p, 0, size);
        memcpy(p, &rows, 8);
        for (i = 0; i < 3; i++) memcpy(p + 8 + i * sizeof(slot_seal) + offsetof(slot_seal, chunks), &chunks[i], 8);
        for (i = 0; i < flips; i++) {
            const uint64_t x = test_below(3) ? test_below(10) : (UINT64_MAX - test_below(3)) >> test_below(64);
            memcpy(p + 8 * (test_below(2) ? test_below(1) : test_below(size / 8)), &x, 8);
        }
        memset(&d, 0, sizeof d);
        d.bytes = p;
        d.size = test_below(4) ? size : test_below(size) / 8 * 8;
        if (parity_parse(&d, 3)) continue;
        CHECK(d.seals && (const uint8_t *)(d.checks + d.rows) == p + d.size, "checks that are not there");
    }
    guarded_free(g);
    engine_close(e, ENGINE_REMOVE);
}

/* Each case changes one number of the contents, or an end of a name. */
static void contents_that_lie(void)
{
    const engine_options o = options_of("lies", BUDGET);
    engine *e = open_engine(&o);
    contents d;
    guarded g;
    contents_header *h;
    contents_tensor *t;
    contents_piece *p;
    size_t size;
    const char *wrong;
    uint64_t most;
    take(e, 1);
    take(e, 2);
    take(e, 3); /* as deltas */
    size = (size_t)e->last.d.size;
    g = guarded_alloc(size, 0);
    h = (contents_header *)(void *)g.p, t = (contents_tensor *)(void *)(h + 1), p = (contents_piece *)(void *)(t + TENSORS);
#define LIES(change, words)                                                                                                \
    memcpy(g.p, e->last.d.bytes, size), memset(&d, 0, sizeof d), d.bytes = g.p, d.size = size;                             \
    change;                                                                                                                \
    wrong = contents_parse(&d);                                                                                            \
    CHECK(*(words) ? wrong && strstr(wrong, words) : !wrong, "%s: %s", #change, wrong ? wrong : "nothing")
    LIES((void)0, "");
    most = frame_most(p[0].count, 2);
    LIES(h->magic ^= 1, "no contents");
    LIES(h->tensors++, "another size");
    LIES(h->pieces++, "another size");
    LIES(h->names_size -= 8, "another size");
    LIES(h->tensors = UINT64_MAX / sizeof *t + 2, "another size");
    LIES(h->pieces = UINT64_MAX / sizeof *p + 2, "another size");
    LIES(t[0].name_at = 1, "a name that is not there");
    LIES(t[1].name_at++, "a name that is not there");
    LIES(t[5].name_size = UINT64_MAX, "a name that is not there");
    LIES(t[5].type_size = h->names_size, "a name that is not there");
    LIES(t[5].type_size = UINT64_MAX - t[5].name_size, "a name that is not there");
    LIES(((char *)(p + h->pieces))[2] = 0, "a zero byte");
    LIES(((char *)(p + h->pieces))[t[0].name_size] = 0, "a zero byte");
    LIES(t[2].dtype = 0, "a kind that is unknown");
    LIES(t[2].dtype += 256, "a kind that is unknown");
    LIES(t[1].kind = 3, "a kind that is unknown");
    LIES(t[2].count += UINT64_C(1) << 48, "a kind that is unknown");
    LIES(t[1].first_piece++, "out of order");
    LIES(t[5].count = UINT64_C(1) << 48, "out of order");
    LIES(t[0].master = TENSORS + 1, "a master that is none");
    LIES(t[2].master = 2, "a master that is none");
    LIES(t[0].master = 5, "a master that is none");
    LIES(t[0].master = 6, "a master that is none");
    LIES(t[1].dtype = BITSNAP_I32, "a master that is none");
    LIES(t[1].count--, "a master that is none");
    LIES(p[0].tensor = 1, "do not make up a tensor");
    LIES(p[0].first = 1, "do not make up a tensor");
    LIES(p[0].count--, "do not make up a tensor");
    LIES(p[h->pieces - 1].count--, "do not make up a tensor");
    LIES(p[h->pieces - 1].frame.size = 0, "a frame without bytes");
    LIES(t[0].dtype = BITSNAP_F16; p[0].frame.size = 0, "a frame without bytes");
    LIES(p[0].frame.size = 0; p[0].anchor.size = 1, "a frame without bytes");
    LIES(p[0].frame.size = most, "");
    LIES(p[0].frame.size = most + 1, "impossible sizes");
    LIES(p[0].frame.size = 1; p[0].anchor.size = 1, "impossible sizes"); /* with a master, an anchor may not be */
    LIES(p[h->pieces - 2].anchor.size = most + 1, "impossible sizes"); /* the piece before rng has elements of the same width */
    LIES(t[5].count = 0, "pieces of no tensor");
    memset(g.p, 0, size);
    d.bytes = g.p, d.size = 8 + 2 * sizeof(slot_seal);
    CHECK((wrong = parity_parse(&d, 2)) && strstr(wrong, "of no group"), "%s", wrong);
    guarded_free(g);
    g = guarded_alloc(8 + 65 * sizeof(slot_seal), 0);
    memset(g.p, 0, 8 + 65 * sizeof(slot_seal));
    d.bytes = g.p, d.size = 8 + 65 * sizeof(slot_seal);
    CHECK((wrong = parity_parse(&d, 65)) && strstr(wrong, "of no group"), "%s", wrong);
    d.bytes += sizeof(slot_seal), d.size -= sizeof(slot_seal);
    CHECK(!parity_parse(&d, 64), "a group of 64");
    d.bytes += sizeof(slot_seal), d.size -= sizeof(slot_seal);
    CHECK((wrong = parity_parse(&d, 64)) && strstr(wrong, "of no group"), "%s", wrong);
    guarded_free(g);
    engine_close(e, ENGINE_REMOVE);
}

/* A reader keeps its snapshot. The trainer uses other slots, or leaves a snapshot out and reports what it lacks. */
static void read_meanwhile(void)
{
    const engine_options o = options_of("read", 8 << 20);
    engine_error error;
    engine_reader *r, *other;
    engine *e = open_engine(&o);
    const engine_tensor *t;
    engine_piece p;
    size_t count, i;
    uint64_t step, sequence = 0, number;
    int busy = 0;
    CHECK(!engine_reader_open(&r, place, "read", 0, &error), "%s", error.message);
    CHECK(engine_reader_open(&other, place, "read", 0, &error) == ENGINE_E_BUSY && !other, "%s", error.message);
    CHECK(engine_reader_next(r, 1, &sequence, &step, &error) == ENGINE_E_NONE && !engine_reader_is_wanted(r), "%s", error.message);
    take(e, 1);
    CHECK(!engine_reader_next(r, 1, &sequence, &step, &error) && step == 1, "%s", error.message);
    for (step = 2; step < 12; step++) {
        state_at(&now, step);
        busy += engine_snapshot(e, step, now.tensors, TENSORS, &error) != ENGINE_OK;
        CHECK(!error.status || error.status == ENGINE_E_FULL, "%s", error.message);
    }
    CHECK(busy > 0 && engine_reader_is_wanted(r), "the budget holds more than two");
    t = engine_reader_tensors(r, &count);
    CHECK(count == TENSORS && !strcmp(t[3].name, "exp_avg_sq") && t[0].master == &t[1], "names");
    state_at(&now, 1);
    for (i = 0; i < count; i++) {
        for (number = 0; !engine_reader_piece(r, i, number, 1, &p, &error); number++) CHECK(piece_is(&p, &now.tensors[i]), "%s %s", t[i].name, error.message);
        CHECK(number == (i == 5 ? 1 : 2) && error.status == ENGINE_E_NONE, "%s: %u pieces, %s", t[i].name, (unsigned)number, error.message);
        CHECK(!engine_reader_piece(r, i, 0, 0, &p, &error) && !p.frame == (i == 0), "frame or elements");
    }
    engine_reader_release(r);
    take(e, 20);
    CHECK(!engine_reader_next(r, 1, &sequence, &step, &error) && step == 20 && !engine_reader_is_wanted(r), "%s", error.message);
    CHECK(!engine_reader_is_alone(r) && !engine_reader_is_removed(r), "who is there");
    engine_close(e, ENGINE_REMOVE);
    CHECK(engine_reader_is_alone(r) && engine_reader_is_removed(r), "who is there");
    engine_reader_close(r);
}

/* Tensors of several pieces. Rows cross pieces, and a master is cut at other elements. */
static void large_tensors(void)
{
    enum { MANY = 3 * PIECE + 777 };
    const engine_options o = options_of("large", 64 << 20);
    engine_error error;
    engine_reader *r;
    engine_tensor t[2], back[2];
    engine_piece p;
    float *master = (float *)malloc(4 * MANY), *master_back = (float *)malloc(4 * MANY);
    uint16_t *weights = (uint16_t *)malloc(2 * MANY), *weights_back = (uint16_t *)malloc(2 * MANY);
    engine *e = open_engine(&o);
    uint64_t i, number, step, sequence = 0;
    for (i = 0; i < MANY; i++) master[i] = (float)((int)(i * 40503 % 9973) - 5000) * 1e-5f, weights[i] = rounded(master[i]);
    t[0] = tensor_of("weights", BITSNAP_BF16, weights, MANY, ENGINE_EXACT, &t[1]);
    t[1] = tensor_of("master", BITSNAP_F32, master, MANY, ENGINE_EXACT, NULL);
    t[1].columns = 3000;
    back[0] = t[0], back[1] = t[1], back[0].data = weights_back, back[1].data = master_back, back[0].master = &back[1];
    CHECK(!engine_snapshot(e, 7, t, 2, &error), "%s", error.message);
    CHECK(!engine_recover(e, &step, back, 2, &error) && step == 7, "%s", error.message);
    CHECK(!memcmp(master, master_back, 4 * MANY) && !memcmp(weights, weights_back, 2 * MANY), "elements");
    CHECK(!engine_reader_open(&r, place, "large", 1, &error) && !engine_reader_next(r, 1, &sequence, &step, &error), "%s", error.message);
    for (i = 0; i < 2; i++)
        for (number = 0; !engine_reader_piece(r, i, number, 1, &p, &error); number++) CHECK(piece_is(&p, &t[i]), "piece %u", (unsigned)number);
    CHECK(number == 4, "%u pieces", (unsigned)number);
    engine_reader_close(r);
    engine_close(e, ENGINE_REMOVE);
    free(master), free(master_back), free(weights), free(weights_back);
}

/* ---- ranks: threads of this program, each with an engine and a state ---- */

enum { RANKS = 4, MOST_RANKS = 6, LETTERS = 4096, PATIENCE = 300 }; /* in seconds, enough for a busy machine */

typedef struct letter {
    unsigned from, to;
    int tag;
    void *bytes; /* sent: a copy; received: the destination */
    size_t size;
    int state;   /* 0: free; 1: sent and not yet received */
    uint64_t number; /* counts the letters with these ends and this tag */
} letter;

static struct post {
    pthread_mutex_t mutex;
    letter letters[LETTERS];
    unsigned order[LETTERS], count; /* sent letters, oldest first */
    uint64_t sent, sent_numbers[MOST_RANKS][MOST_RANKS][16], wanted_numbers[MOST_RANKS][MOST_RANKS][16];
    int cut;     /* letters of this rank do not arrive; -1: all arrive */
    int starved; /* from the plan on, this rank gets blocks of at most `left` bytes; -1: no rank */
    size_t left;
} post = { PTHREAD_MUTEX_INITIALIZER, { { 0, 0, 0, NULL, 0, 0, 0 } }, { 0 }, 0, 0, { { { 0 } } }, { { { 0 } } }, -1, -1, 0 };

typedef struct wanted {
    letter l;
    int is_receive;
} wanted;

static int post_letter(void *context, unsigned to, int tag, const void *bytes, size_t size, void **request)
{
    const unsigned from = *(const unsigned *)context;
    wanted *w = (wanted *)calloc(1, sizeof *w);
    unsigned i;
    pthread_mutex_lock(&post.mutex);
    for (i = 0; i < LETTERS && post.letters[i].state; i++) continue;
    CHECK(i < LETTERS, "no room for letters");
    post.letters[i].from = from, post.letters[i].to = to, post.letters[i].tag = tag, post.letters[i].size = size, post.letters[i].state = 1;
    post.letters[i].bytes = malloc(size + 1);
    memcpy(post.letters[i].bytes, bytes, size);
    post.letters[i].number = post.sent_numbers[from][to][tag]++;
    post.order[post.count++] = i;
    post.sent += size;
    pthread_mutex_unlock(&post.mutex);
    *request = w;
    return 0;
}

static int want_letter(void *context, unsigned from, int tag, void *bytes, size_t size, void **request)
{
    wanted *w = (wanted *)calloc(1, sizeof *w);
    pthread_mutex_lock(&post.mutex);
    w->l.number = post.wanted_numbers[from][*(const unsigned *)context][tag]++;
    pthread_mutex_unlock(&post.mutex);
    w->is_receive = 1, w->l.from = from, w->l.to = *(const unsigned *)context, w->l.tag = tag, w->l.bytes = bytes, w->l.size = size;
    *request = w;
    return 0;
}

static int test_letter(void *context, void **request, int *done)
{
    wanted *w = (wanted *)*request;
    unsigned i;
    (void)context;
    *done = !w->is_receive;
    pthread_mutex_lock(&post.mutex);
    for (i = 0; i < post.count && !*done; i++) {
        letter *l = &post.letters[post.order[i]];
        if (l->from != w->l.from || l->to != w->l.to || l->tag != w->l.tag || l->number != w->l.number || (int)l->from == post.cut) continue;
        CHECK(l->size == w->l.size, "a letter of %u bytes, not %u", (unsigned)l->size, (unsigned)w->l.size);
        memcpy(w->l.bytes, l->bytes, l->size);
        free(l->bytes);
        l->state = 0;
        memmove(post.order + i, post.order + i + 1, (--post.count - i) * sizeof *post.order);
        *done = 1;
    }
    pthread_mutex_unlock(&post.mutex);
    if (*done && w->is_receive && w->l.tag == TAG_PLAN && (int)w->l.to == post.starved) most_memory = post.left;
    if (*done) free(w);
    return 0;
}

static void burn_letters(void)
{
    unsigned i;
    for (i = 0; i < LETTERS; i++)
        if (post.letters[i].state) free(post.letters[i].bytes), post.letters[i].state = 0;
    post.count = 0, post.sent = 0, post.cut = post.starved = -1;
    memset(post.sent_numbers, 0, sizeof post.sent_numbers);
    memset(post.wanted_numbers, 0, sizeof post.wanted_numbers);
}

/* Stops all letters of this rank; -1: lets all arrive. */
static void cut_off(int rank)
{
    pthread_mutex_lock(&post.mutex);
    post.cut = rank;
    pthread_mutex_unlock(&post.mutex);
}

typedef struct member {
    unsigned rank;
    char name[16];
    engine_transport t;
    engine_options o;
    engine *e;
    state s;
    pthread_t thread;
    /* the task, and its result */
    uint64_t first, last; /* first 0: recover */
    uint64_t step;
    unsigned damaged, failed; /* snapshots left out; failed calls */
    engine_error error;
    int source;
    double patience;
} member;

static member members[MOST_RANKS];
static char heard[4096];
static pthread_mutex_t hearing = PTHREAD_MUTEX_INITIALIZER;

static void hear_all(void *context, const char *message)
{
    (void)context;
    pthread_mutex_lock(&hearing);
    if (strlen(heard) + strlen(message) + 2 < sizeof heard) strcat(strcat(heard, message), "\n");
    pthread_mutex_unlock(&hearing);
}

static void fill_member(member *m, uint64_t step)
{
    size_t i;
    for (i = 0; i < N; i++) {
        const uint32_t r = (uint32_t)((i + 1) * 2654435761u + step * 977 + m->rank * 131071) * 2246822519u;
        m->s.master[i] = (float)((int)(i * 40503u % 2001) - 1000) * 1e-5f + (float)step * 1e-7f + (float)m->rank;
        m->s.m[i] = (float)((int)(r >> 8 & 16383) - 8000) * 1e-9f;
        m->s.v[i] = (float)(1 + (r >> 20)) * 1e-12f;
        m->s.weights[i] = rounded(m->s.master[i]);
        m->s.frozen[i] = (uint16_t)(0x3C00 + i * 7919 % 1009 + m->rank);
    }
    memset(m->s.rng, (int)(step + m->rank), sizeof m->s.rng);
}

static void *be_member(void *argument)
{
    member *m = (member *)argument;
    uint64_t step;
    if (!m->e && engine_open(&m->e, &m->o, &m->error)) return NULL;
    if (!m->first) {
        if (!engine_recover(m->e, &m->step, m->s.tensors, TENSORS, &m->error)) m->source = engine_last_cost(m->e)->source;
        return NULL;
    }
    for (step = m->first; step <= m->last; step++) {
        fill_member(m, step);
        if (engine_snapshot(m->e, step, m->s.tensors, TENSORS, &m->error)) m->failed++;
    }
    (void)engine_wait(m->e, m->patience, &m->error);
    return NULL;
}

static void all_members(unsigned ranks, uint64_t first, uint64_t last)
{
    unsigned i;
    for (i = 0; i < ranks; i++) {
        member *m = &members[i];
        m->first = first, m->last = last, m->failed = 0;
        CHECK(!pthread_create(&m->thread, NULL, be_member, m), "thread");
    }
    for (i = 0; i < ranks; i++) pthread_join(members[i].thread, NULL);
}

static void begin_members(unsigned ranks, uint64_t budget)
{
    unsigned i;
    burn_letters();
    *heard = 0;
    for (i = 0; i < ranks; i++) {
        member *m = &members[i];
        memset(m, 0, sizeof *m);
        m->rank = i;
        snprintf(m->name, sizeof m->name, "rank.%u", i);
        m->t.context = &m->rank, m->t.rank = i, m->t.ranks = ranks, m->t.send = post_letter, m->t.receive = want_letter, m->t.test = test_letter;
        m->o = options_of(m->name, budget);
        m->o.transport = &m->t, m->o.threads = 1, m->o.say = hear_all, m->o.when_busy = ENGINE_WAIT, m->o.patience = PATIENCE, m->o.partner_patience = PATIENCE;
        m->patience = PATIENCE;
        state_make(&m->s);
    }
}

static void end_member(member *m, int remove)
{
    engine_close(m->e, remove);
    m->e = NULL;
}

static void end_members(unsigned ranks)
{
    unsigned i;
    for (i = 0; i < ranks; i++) {
        end_member(&members[i], ENGINE_REMOVE);
        state_free(&members[i].s);
    }
    burn_letters();
}

static void check_members(unsigned ranks, uint64_t step, const int *sources)
{
    static member expected;
    unsigned i;
    for (i = 0; i < ranks; i++) {
        member *m = &members[i];
        CHECK(!m->error.status && m->step == step, "rank %u: step %u, %s", i, (unsigned)m->step, m->error.message);
        if (sources) CHECK(m->source == sources[i], "rank %u: from %d", i, m->source);
        expected.rank = i;
        state_make(&expected.s);
        fill_member(&expected, step);
        CHECK(same(&m->s, &expected.s), "rank %u came back as something else", i);
        state_free(&expected.s);
    }
}

/* Any one rank loses its memory, and its partner has the snapshot. If two ranks that are partners lose it, recovery fails. */
static void partners(void)
{
    static const int memory[RANKS] = { 0, 0, 0, 0 };
    unsigned i, lost;
    uint64_t sent;
    begin_members(RANKS, 24 << 20);
    all_members(RANKS, 1, 3);
    for (i = 0; i < RANKS; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    sent = post.sent;
    all_members(RANKS, 4, 4);
    CHECK(post.sent - sent < 9 * sent / 32, "%u bytes for a step, %u for three: what did not change was sent again", (unsigned)(post.sent - sent), (unsigned)sent);
    all_members(RANKS, 0, 0);
    check_members(RANKS, 4, memory);
    for (lost = 0; lost < RANKS; lost++) {
        int sources[RANKS] = { 0, 0, 0, 0 };
        for (i = 0; i < RANKS; i++) end_member(&members[i], i == lost ? ENGINE_REMOVE : ENGINE_KEEP);
        sources[lost] = ENGINE_FROM_PARTNER;
        all_members(RANKS, 0, 0);
        check_members(RANKS, 4 + lost, sources);
        all_members(RANKS, 5 + lost, 5 + lost); /* training continues */
        for (i = 0; i < RANKS; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    }
    for (i = 0; i < RANKS; i++) end_member(&members[i], i % 2 ? ENGINE_KEEP : ENGINE_REMOVE); /* 0 and 2 are not partners */
    all_members(RANKS, 0, 0);
    check_members(RANKS, 8, NULL);
    for (i = 0; i < RANKS; i++) end_member(&members[i], i < 2 ? ENGINE_REMOVE : ENGINE_KEEP);
    all_members(RANKS, 0, 0);
    for (i = 0; i < RANKS; i++) CHECK(members[i].error.status == ENGINE_E_SCATTERED, "rank %u: %s", i, members[i].error.message);
    end_members(RANKS);
}

/* Damages the copy or the parity of a step that this rank keeps for others. */
static void damage_kept(const char *name, uint64_t wanted)
{
    segment s;
    slot_seal seal;
    engine_error error;
    unsigned i, found = 0;
    CHECK(!segment_attach(&s, place, name, &error), "%s", error.message);
    for (i = OWN_SLOTS; i < ENGINE_SLOTS; i++) {
        if (!read_seal(&s, i, &seal) || seal.step != wanted) continue;
        /* in a copy the list of frames, because the step before may use the same frames */
        if (seal.parity) chunk_at(&s, map_of(&s, i), 0)[100] ^= 1;
        else chunk_at(&s, map_of(&s, i), seal.contents_at >> s.chunk_log2)[seal.contents_at & ((1u << s.chunk_log2) - 1)] ^= 1;
        found++;
    }
    CHECK(found == 1, "%u slots of step %u", found, (unsigned)wanted);
    segment_close(&s);
}

/* The copies or the parity of a step are damaged. All ranks take the step before, which is whole. */
static void damaged_at_others(void)
{
    unsigned i, round;
    for (round = 0; round < 2; round++) {
        begin_members(3, 24 << 20);
        for (i = 0; i < 3; i++) members[i].o.group = round ? 3 : 0;
        all_members(3, 1, 3);
        for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
        for (i = 0; i < 3; i++) end_member(&members[i], i == 0 ? ENGINE_REMOVE : ENGINE_KEEP);
        damage_kept("rank.1", 3);
        all_members(3, 0, 0);
        check_members(3, 2, NULL);
        CHECK(strstr(heard, "damaged"), "round %u: %s", round, heard);
        all_members(3, 3, 3);
        all_members(3, 0, 0);
        check_members(3, 3, NULL);
        end_members(3);
    }
}

/* Writes a step of a rank to disk. */
static void write_member(const member *m, disk_manifest *files, uint64_t step)
{
    disk_writer w;
    engine_reader *reader;
    engine_error error;
    uint64_t sequence = 0, at;
    memset(&w, 0, sizeof w);
    w.directory = place, w.name = m->name, w.keep = 8;
    CHECK(!engine_reader_open(&reader, place, w.name, 0, &error) && !engine_reader_next(reader, 1, &sequence, &at, &error) && at == step &&
          !disk_write(&w, files, reader, step, &error), "%s, step %u: %s", m->name, (unsigned)step, error.message);
    engine_reader_release(reader);
    engine_reader_close(reader);
}

/* The path of the only file like NAME and `end`; `end` has a * for the attempt. */
static const char *path_like(char path[512], const char *name, const char *end)
{
    glob_t found;
    snprintf(path, 512, "%s/%s%s", place, name, end);
    CHECK(!glob(path, 0, NULL, &found) && found.gl_pathc == 1, "%s", path);
    snprintf(path, 512, "%s", found.gl_pathc ? found.gl_pathv[0] : "");
    globfree(&found);
    return path;
}

static void remove_files(const char *end) /* of three ranks */
{
    char path[512], name[16];
    unsigned i;
    for (i = 0; i < 3; i++) {
        snprintf(name, sizeof name, "rank.%u", i);
        CHECK(!unlink(path_like(path, name, end)), "%s", path);
    }
}

static void all_refuse(unsigned ranks, engine_status status)
{
    unsigned i;
    all_members(ranks, 0, 0);
    for (i = 0; i < ranks; i++)
        CHECK(members[i].error.status == status && !members[i].step, "rank %u: %d, %s", i, (int)members[i].error.status, members[i].error.message);
}

/* Replaces a file by a link to itself (l), a directory (d) or a short file; put_back restores it. */
static void put_aside(const char *path, const char *aside, char what)
{
    FILE *f = NULL;
    CHECK(!rename(path, aside) && (what == 'l' ? !symlink(path, path) : what == 'd' ? !mkdir(path, 0700) : (f = fopen(path, "w")) != NULL), "%s", path);
    if (f) fputs("cut", f), fclose(f);
}

static void put_back(const char *path, const char *aside) { CHECK(!remove(path) && !rename(aside, path), "%s", path); }

/* Two ranks, and then one, recover from the files of three. A file that a rank cannot read or see is an error, not absent. */
static void fewer_ranks(void)
{
    engine_options o = options_of("rank.7", BUDGET);
    engine_error error;
    char path[512], aside[512];
    uint64_t step;
    unsigned i;
    engine *e;
    o.disk = place;
    e = open_engine(&o);
    snprintf(path, sizeof path, "%s/rank.2.manifest", place);
    snprintf(aside, sizeof aside, "%s/aside", place);
    for (i = 0; i < 2; i++) members[i].t.ranks = 2;
    all_refuse(2, ENGINE_E_MISMATCH); /* the files of ranks have different elements under one name: */
    for (i = 0; i < TENSORS; i++) members[0].s.tensors[i].file = 3, members[1].s.tensors[i].file = 1, then.tensors[i].file = 2;
    for (i = 0; i < 2; i++) {
        put_aside(path, aside, "df"[i]);
        if (!i) all_refuse(2, ENGINE_E_SYSTEM);
        else all_members(2, 0, 0); /* without a whole manifest, the files alone are enough */
        CHECK(members[0].error.status == (i ? ENGINE_OK : ENGINE_E_SYSTEM), "%s", members[0].error.message);
        CHECK(engine_recover(e, &step, then.tensors, TENSORS, &error) == (i ? ENGINE_OK : ENGINE_E_SYSTEM), "%u: %s", i, error.message);
        put_back(path, aside);
    }
    members[1].e->o.disk = "/nowhere";
    all_refuse(2, ENGINE_E_SYSTEM);
    members[1].e->o.disk = place;
    all_members(2, 0, 0);
    for (i = 0; i < 2; i++) CHECK(!members[i].error.status && members[i].step == 1, "rank %u: %s", i, members[i].error.message);
    CHECK(!engine_recover(e, &step, then.tensors, TENSORS, &error) && step == 1, "%s", error.message);
    CHECK(members[0].s.rng[0] == 1 + 2 && members[1].s.rng[0] == 1 && then.rng[0] == 1 + 1, "not the ranks that were asked for"); /* step + rank */
    for (i = 0; i < 2; i++) members[i].t.ranks = 3;
    for (i = 0; i < TENSORS; i++) members[0].s.tensors[i].file = members[1].s.tensors[i].file = then.tensors[i].file = 0;
    engine_close(e, ENGINE_REMOVE);
}

/* A file of the newest step is damaged, and memory is lost. All ranks refuse until the files of that step are gone. */
static void damaged_file(void)
{
    static const int disk[3] = { ENGINE_FROM_DISK, ENGINE_FROM_DISK, ENGINE_FROM_DISK };
    disk_manifest files[3];
    char path[512], aside[512], byte = 0;
    unsigned i;
    uint64_t step;
    int fd;
    begin_members(3, 24 << 20);
    memset(files, 0, sizeof files);
    for (i = 0; i < 3; i++) members[i].o.disk = place;
    for (step = 1; step <= 2; step++) {
        all_members(3, step, step);
        for (i = 0; i < 3; i++) write_member(&members[i], &files[i], step);
    }
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_REMOVE);
    burn_letters();
    path_like(path, "rank.1", "-0000000002-*.bsnap");
    snprintf(aside, sizeof aside, "%s/aside", place);
    put_aside(path, aside, 'l');
    all_refuse(3, ENGINE_E_SYSTEM);
    put_back(path, aside);
    path_like(path, "rank.0", "-0000000002-*.bsnap");
    fd = open(path, O_RDWR);
    CHECK(fd >= 0 && pread(fd, &byte, 1, 5000) == 1 && (byte = (char)~byte, pwrite(fd, &byte, 1, 5000) == 1), "%s", path);
    close(fd);
    all_refuse(3, ENGINE_E_DAMAGED);
    CHECK(strstr(members[0].error.message, "rank.0-0000000002-"), "%s", members[0].error.message);
    remove_files("-0000000002-*.bsnap");
    all_members(3, 0, 0);
    check_members(3, 1, disk);
    fewer_ranks();
    remove_files("-0000000001-*.bsnap");
    remove_files(".manifest");
    end_members(3);
}

/* Faults that may pass are not damage. Nothing is skipped, and nothing is lost. */
static void passing_faults(void)
{
    static const char *const made[] = { "-0000000001-*.bsnap", "-0000000002-*.bsnap", ".manifest" };
    engine_options o = options_of("passing", BUDGET);
    member m;
    disk_manifest files;
    engine_report report;
    engine_reader *reader;
    engine_error error;
    char path[512], aside[512];
    uint32_t *chunks, frees;
    uint64_t step, sequence = 0;
    unsigned i;
    engine *e = open_engine(&o);
    memset(&files, 0, sizeof files);
    strcpy(m.name, o.name);
    for (step = 1; step <= 2; step++) take(e, step), write_member(&m, &files, step);
    engine_close(e, ENGINE_KEEP);
    e = open_engine(&o);
    chunks = (uint32_t *)malloc((size_t)e->s.chunks * sizeof *chunks);
    CHECK(!engine_reader_open(&reader, place, o.name, 0, &error), "%s", error.message);
#define REFUSES(call, words) CHECK(call == ENGINE_E_SYSTEM && strstr(error.message, words), "%d, %s", (int)error.status, error.message)
    most_memory = 0;
    REFUSES(engine_recover(e, &step, then.tensors, TENSORS, &error), "out of memory");
    REFUSES(engine_snapshot(e, 3, now.tensors, TENSORS, &error), "out of memory");
    REFUSES(find_free(e, chunks, &frees, &error), "out of memory");
    REFUSES(engine_read_status(place, o.name, &report, &error), "out of memory");
    REFUSES(engine_reader_next(reader, 1, &sequence, &step, &error), "out of memory");
    most_memory = SIZE_MAX;
    engine_reader_close(reader);
    CHECK(recovered(e) == 2, "not the newest");
    engine_close(e, ENGINE_REMOVE);
    o.disk = place;
    e = open_engine(&o);
    disk_fails = 1;
    REFUSES(engine_recover(e, &step, then.tensors, TENSORS, &error), "cannot be read: Input/output error");
    disk_fails = 0;
    for (i = 1; i < 3; i++) { /* a loop of links; a directory */
        path_like(path, "passing", made[i]);
        snprintf(aside, sizeof aside, "%s/aside", place);
        put_aside(path, aside, "ld"[i - 1]);
        REFUSES(engine_recover(e, &step, then.tensors, TENSORS, &error), "passing");
        put_back(path, aside);
    }
    CHECK(recovered(e) == 2 && engine_last_cost(e)->source == ENGINE_FROM_DISK, "not the newest");
    engine_close(e, ENGINE_REMOVE);
    for (i = 0; i < 3; i++) unlink(path_like(path, "passing", made[i]));
    free(chunks);
}

/* Groups with parity. Any one rank of a group recovers, two do not. Parity takes less memory than copies. */
static void parity(void)
{
    enum { GROUPED = 6 };
    engine_report r;
    engine_error error;
    unsigned i, lost, own = 0, held = 0;
    begin_members(GROUPED, 24 << 20);
    for (i = 0; i < GROUPED; i++) members[i].o.group = 3, members[i].o.distance = 2; /* 0, 2, 4 and 1, 3, 5 */
    all_members(GROUPED, 1, 3);
    for (i = 0; i < GROUPED; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    CHECK(!engine_read_status(place, "rank.3", &r, &error), "%s", error.message);
    for (i = 0; i < ENGINE_SLOTS; i++) {
        if (!r.slots[i].whole || r.slots[i].step != 3) continue;
        if (r.slots[i].parity == 3) held = (unsigned)r.slots[i].chunks;
        else own = (unsigned)r.slots[i].chunks;
    }
    CHECK(own > 20 && held > own / 2 && held < own / 2 + 8, "%u chunks of its own, %u of parity", own, held);
    for (lost = 0; lost < GROUPED; lost++) {
        int sources[GROUPED] = { 0, 0, 0, 0, 0, 0 };
        const unsigned other = (lost + 1) % GROUPED; /* in the other group */
        for (i = 0; i < GROUPED; i++) end_member(&members[i], i == lost || i == other ? ENGINE_REMOVE : ENGINE_KEEP);
        sources[lost] = sources[other] = ENGINE_FROM_PARTNER;
        *heard = 0;
        all_members(GROUPED, 0, 0);
        check_members(GROUPED, 3 + lost, sources);
        CHECK(!*heard, "%s", heard);
        all_members(GROUPED, 4 + lost, 4 + lost);
        for (i = 0; i < GROUPED; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    }
    for (i = 0; i < GROUPED; i++) end_member(&members[i], i == 0 || i == 4 ? ENGINE_REMOVE : ENGINE_KEEP);
    all_members(GROUPED, 0, 0);
    for (i = 0; i < GROUPED; i++) CHECK(members[i].error.status == ENGINE_E_SCATTERED, "rank %u: %s", i, members[i].error.message);
    end_members(GROUPED);
    begin_members(RANKS, 24 << 20);
    members[0].o.group = 3;
    CHECK(engine_open(&members[0].e, &members[0].o, &error) == ENGINE_E_ARGUMENT && strstr(error.message, "groups of 3"), "%s", error.message);
    for (i = 0; i < RANKS; i++) state_free(&members[i].s);
}

/* One rank leaves a snapshot out. It counts for no rank, and all keep the one before. */
static void left_out(void)
{
    engine_report r;
    engine_error error;
    unsigned i;
    begin_members(3, 24 << 20);
    all_members(3, 1, 2);
    members[1].s.tensors[2].name = NULL;
    all_members(3, 3, 4);
    CHECK(members[1].failed == 2 && !members[0].failed && strstr(heard, "step 4 does not count"), "%s", heard);
    members[1].s.tensors[2].name = "exp_avg";
    CHECK(!engine_read_status(place, "rank.0", &r, &error), "%s", error.message);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP);
    all_members(3, 0, 0);
    check_members(3, 2, NULL);
    all_members(3, 3, 3);
    all_members(3, 0, 0);
    check_members(3, 3, NULL);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP);
    for (i = 0; i < 2; i++) members[i].t.ranks = 2;
    all_members(2, 0, 0);
    for (i = 0; i < 2; i++) CHECK(members[i].error.status == ENGINE_E_MISMATCH && strstr(members[i].error.message, "of 3 ranks"), "%s", members[i].error.message);
    for (i = 0; i < 2; i++) members[i].t.ranks = 3;
    end_member(&members[0], ENGINE_KEEP);
    members[0].o.transport = NULL; /* a single rank does not get it either */
    all_refuse(1, ENGINE_E_MISMATCH);
    CHECK(strstr(members[0].error.message, "of 3 ranks, not 1"), "%s", members[0].error.message);
    end_members(3);
    CHECK(!engine_remove(place, "rank.2", &error) || error.status == ENGINE_E_NONE, "%s", error.message);
}

/* A rank stalls for longer than the patience. The others report it and go on alone. Once it answers, the exchange continues.
 * It stalls again, and all engines close. No rank waits for it, and each recovers its newest snapshot, which did not count. */
static void hang(void)
{
    engine_protection p;
    unsigned i;
    begin_members(3, 24 << 20);
    all_members(3, 1, 2);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP);
    all_members(3, 0, 0);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = 0.3, members[i].patience = 0.3;
    cut_off(1);
    all_members(3, 3, 4);
    for (i = 0; i < 3; i++) CHECK(members[i].failed == 1 && members[i].error.status == ENGINE_E_BUSY, "rank %u: %s", i, members[i].error.message);
    CHECK(strstr(heard, "another rank does not answer: until it does, snapshots from step 3 on"), "%s", heard);
    for (i = 0; i < 3; i++) {
        engine_protected(members[i].e, &p);
        CHECK(p.memory_step == 4 && p.partner_step == 2 && p.unprotected == 1 && strstr(p.reason, "does not answer"), "rank %u: %u, %u, %s", i,
              (unsigned)p.memory_step, (unsigned)p.partner_step, p.reason);
    }
    all_refuse(3, ENGINE_E_BUSY);
    cut_off(-1);
    for (i = 0; i < 3; i++) members[i].patience = PATIENCE;
    all_members(3, 5, 5);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = PATIENCE; /* ranks on a busy machine are slow */
    all_members(3, 6, 6);
    for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    CHECK(strstr(heard, "answers again"), "%s", heard);
    all_members(3, 0, 0);
    check_members(3, 6, NULL);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = 0.3, members[i].patience = 0.3;
    cut_off(1);
    all_members(3, 7, 8);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP), members[i].patience = PATIENCE;
    burn_letters();
    all_members(3, 0, 0);
    check_members(3, 8, NULL);
    end_members(3);
}

/* One rank cannot read its files for now. No rank begins anew, no rank waits, and all can try again. */
static void partner_cannot_read(void)
{
    char path[512];
    unsigned i;
    begin_members(3, 24 << 20);
    for (i = 0; i < 3; i++) members[i].o.disk = place;
    snprintf(path, sizeof path, "%s/rank.1.manifest", place);
    CHECK(!mkdir(path, 0700), "%s", path);
    all_refuse(3, ENGINE_E_SYSTEM);
    CHECK(strstr(heard, "rank.1.manifest: cannot be read"), "%s", heard);
    CHECK(!rmdir(path), "%s", path);
    all_refuse(3, ENGINE_E_NONE);
    end_members(3);
}

/* A rank lacks the memory to send what it keeps for another. This is not taken for damage, and the next attempt recovers all. */
static void starve(void)
{
    unsigned i, round;
    for (round = 0; round < 2; round++) {
        begin_members(3, 24 << 20);
        for (i = 0; i < 3; i++) members[i].o.group = round ? 3 : 0;
        all_members(3, 1, 1);
        for (i = 0; i < 3; i++) end_member(&members[i], i == 0 ? ENGINE_REMOVE : ENGINE_KEEP), members[i].o.partner_patience = 1;
        post.starved = 1, post.left = round ? N / 64 + 700 : 0; /* in a group it can read its own snapshot but not the parity */
        all_refuse(3, ENGINE_E_SYSTEM);
        for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP), members[i].o.partner_patience = PATIENCE;
        burn_letters();
        all_members(3, 0, 0);
        check_members(3, 1, NULL);
        end_members(3);
    }
}

/* Runs `what` in a child process. Buffers that were being sent may never be freed, so they leak. */
static void in_a_process(void (*what)(void))
{
    int status = 1;
    const pid_t child = fork();
    if (!child) {
        what();
        _exit(test_failures != test_failures_before);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0, "status %d", status);
}

static void partner_hangs(void) { in_a_process(hang); }
static void partner_starves(void) { in_a_process(starve); }

/* In copy mode the caller may change tensors at once. The snapshot has the earlier values. */
static void copied_first(void)
{
    engine_options o = options_of("copied", BUDGET);
    engine_error error;
    engine *e;
    uint64_t step;
    unsigned busy = 0;
    o.copy = 1;
    e = open_engine(&o);
    CHECK(!engine_wait(e, 1, &error), "%s", error.message);
    for (step = 1; step <= 3; step++) {
        take(e, step);
        state_at(&now, 99);
        CHECK(!engine_wait(e, PATIENCE, &error), "%s", error.message);
        CHECK(engine_last_cost(e)->frames_size > 0 && engine_last_cost(e)->encode_seconds > 0, "its cost");
        CHECK(recovered(e) == step, "not the newest");
    }
    state_at(&now, 4);
    for (step = 0; step < 20; step++) busy += engine_snapshot(e, 4, now.tensors, TENSORS, &error) == ENGINE_E_BUSY;
    CHECK(busy > 0, "never busy");
    now.tensors[0].data = NULL;
    CHECK(engine_wait(e, PATIENCE, &error) == ENGINE_OK && engine_snapshot(e, 5, now.tensors, TENSORS, &error) == ENGINE_E_ARGUMENT, "%s", error.message);
    now.tensors[0].data = now.weights;
    CHECK(recovered(e) == 4, "not the newest");
    engine_close(e, ENGINE_KEEP);
    o.copy = 0;
    e = open_engine(&o);
    CHECK(recovered(e) == 4, "not the newest");
    engine_close(e, ENGINE_REMOVE);
}

/* Tensors on a device: here memory with each byte XORed by 0x5A. device_fails is the status of a transfer. */
static int device_fails;

static int fetch_far(void *data, uint64_t first, uint64_t count, void *to)
{
    const engine_tensor *t = (const engine_tensor *)data;
    const size_t width = bitsnap_width(t->dtype);
    size_t i;
    CHECK(count <= 1 << 18, "%u elements at once", (unsigned)count);
    for (i = 0; i < count * width; i++) ((uint8_t *)to)[i] = ((const uint8_t *)t->data)[first * width + i] ^ 0x5A;
    return device_fails;
}

static int store_far(void *data, uint64_t first, uint64_t count, const void *from)
{
    const engine_tensor *t = (const engine_tensor *)data;
    const size_t width = bitsnap_width(t->dtype);
    size_t i;
    for (i = 0; i < count * width; i++) ((uint8_t *)t->data)[first * width + i] = ((const uint8_t *)from)[i] ^ 0x5A;
    return device_fails;
}

static void from_devices(void)
{
    engine_options o = options_of("devices", BUDGET);
    engine_error error;
    engine_tensor far_now[TENSORS], far_then[TENSORS];
    engine *e;
    uint64_t step;
    size_t i, k;
    for (o.copy = 0; o.copy < 2; o.copy++) {
        e = open_engine(&o);
        for (i = 0; i < TENSORS; i++) {
            far_now[i] = now.tensors[i], far_then[i] = then.tensors[i];
            far_now[i].data = &now.tensors[i], far_then[i].data = &then.tensors[i];
            far_now[i].fetch = far_then[i].fetch = fetch_far, far_now[i].store = far_then[i].store = store_far;
        }
        far_now[0].master = &far_now[1], far_then[0].master = &far_then[1];
        for (step = 1; step <= 3; step++) {
            state_at(&now, step);
            for (i = 0; i < TENSORS; i++) /* a fetch undoes this */
                for (k = 0; k < now.tensors[i].count * bitsnap_width(now.tensors[i].dtype); k++) ((uint8_t *)now.tensors[i].data)[k] ^= 0x5A;
            CHECK(!engine_snapshot(e, step, far_now, TENSORS, &error) && !engine_wait(e, PATIENCE, &error), "%s", error.message);
        }
        CHECK(engine_last_cost(e)->cast == (N + PIECE - 1) / PIECE, "%u casts", (unsigned)engine_last_cost(e)->cast);
        CHECK(!engine_recover(e, &step, far_then, TENSORS, &error) && step == 3 && same(&now, &then), "%s", error.message);
        CHECK(!engine_recover(e, &step, then.tensors, TENSORS, &error), "%s", error.message);
        state_at(&now, 3);
        CHECK(same(&now, &then), "it came to memory as something else");
        device_fails = 1;
        CHECK(engine_snapshot(e, 4, far_now, TENSORS, &error) == ENGINE_E_SYSTEM && strstr(error.message, "fetched"), "%s", error.message);
        CHECK(engine_recover(e, &step, far_then, TENSORS, &error) == ENGINE_E_SYSTEM && strstr(error.message, "stored"), "%s", error.message);
        device_fails = 0;
        engine_close(e, ENGINE_REMOVE);
    }
}

/* ---- types and shapes ---- */

#define OF_FIRST "-0000000001-0a000000" /* step 1 of the attempt below */
static const engine_lineage first_line = { { { 7, 8 } }, 0, 1, { { { { UINT64_C(0x0A00000000000000), 9 } }, UINT64_MAX } } };

/* Writes DIRECTORY/NAME-0000000001-0a000000.bsnap, a .safetensors file, and its manifest, for a run of `ranks` ranks. */
static void put_file(const char *name, uint64_t ranks, const engine_tensor *tensors, size_t count)
{
    char path[512], text[512], metadata[METADATA], run[ID_TEXT], attempt[ID_TEXT];
    size_t size = 0, i;
    uint64_t bytes = 8;
    FILE *f;
    const char *dot = strrchr(name, '.');
    char *header = (disk_metadata(metadata, &first_line, 1, dot ? strtoull(dot + 1, NULL, 10) : 0, ranks), disk_text(tensors, count, metadata, &size));
    uint8_t head[8];
    CHECK(header, "no header");
    for (i = 0; i < 8; i++) head[i] = (uint8_t)((uint64_t)size >> 8 * i);
    snprintf(path, sizeof path, "%s/%s" OF_FIRST ".bsnap", place, name);
    f = fopen(path, "wb");
    CHECK(f && fwrite(head, 1, 8, f) == 8 && fwrite(header, 1, size, f) == size, "%s", path);
    bytes += size;
    for (i = 0; i < count; i++) {
        const size_t n = (size_t)tensors[i].count * bitsnap_width(tensors[i].dtype);
        CHECK(fwrite(tensors[i].data, 1, n, f) == n, "%s", path);
        bytes += n;
    }
    fclose(f);
    free(header);
    snprintf(path, sizeof path, "%s/%s.manifest", place, name);
    f = fopen(path, "wb");
    engine_id_text(run, &first_line.run), engine_id_text(attempt, &first_line.links[0].attempt);
    size = (size_t)snprintf(text, sizeof text, "%srun %s 0\nattempt %s 999999999999999999\n1 %" PRIu64 " %" PRIu64 " %s x\n", MANIFEST_START, run, attempt, bytes, ranks, attempt);
    fprintf(f, "%scheck %016" PRIx64 "\n", text, bitsnap_hash(text, size));
    fclose(f);
}

static void remove_file(const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s" OF_FIRST ".bsnap", place, name);
    CHECK(!unlink(path), "%s", path);
    snprintf(path, sizeof path, "%s/%s.manifest", place, name);
    CHECK(!unlink(path), "%s", path);
}

/* Replaces `from` by `to` in the header of a file. Both have the same length. */
static void change_file(const char *name, const char *from, const char *to)
{
    char path[512], text[1024];
    size_t size, i;
    FILE *f;
    snprintf(path, sizeof path, "%s/%s" OF_FIRST ".bsnap", place, name);
    f = fopen(path, "r+b");
    size = f ? fread(text, 1, sizeof text, f) : 0;
    for (i = 0; i + strlen(from) < size && memcmp(text + i, from, strlen(from)); i++) continue;
    CHECK(i + strlen(from) < size && strlen(from) == strlen(to), "%s", from);
    memcpy(text + i, to, strlen(to));
    CHECK(!fseek(f, 0, SEEK_SET) && fwrite(text, 1, size, f) == size, "%s", path);
    fclose(f);
}

static int store_nothing(void *data, uint64_t first, uint64_t count, const void *from)
{
    (void)data, (void)first, (void)count, (void)from;
    CHECK(0, "stored");
    return 0;
}

/* A tensor of a file has the right name, but another type or shape. Nothing is stored. */
static void types_of_files(void)
{
    /* the type and shape that a file claims, for the bytes of another type */
    static const struct { bitsnap_dtype dtype; unsigned count; const char *from, *to; } files[] = {
        { BITSNAP_F32, 128, "\"F32\",\"shape\":[128]", "\"C64\",\"shape\":[ 64]" },  /* 64 elements: twice the buffer */
        { BITSNAP_F64, 128, "\"F64\",\"shape\":[128]", "\"C128\",\"shape\":[64]" },
        { BITSNAP_I8, 32, "\"I8\",\"shape\":[32]", "\"F4\",\"shape\":[64]" },       /* half of the buffer */
        { BITSNAP_I8, 64, "\"I8\"", "\"U8\"" },
        { BITSNAP_I16, 64, "\"I16\"", "\"U16\"" },
        { BITSNAP_I32, 64, "\"I32\"", "\"U32\"" } };
    static uint8_t in[1024], out[2048], before[2048];
    engine_error error;
    engine_tensor t, x;
    const disk_entry of_types = { 1, 0, 1, first_line.links[0].attempt };
    unsigned i, stored;
    for (i = 0; i < sizeof files / sizeof *files; i++) {
        memset(in, 0x41, sizeof in), memset(out, 0x77, sizeof out), memset(before, 0x77, sizeof before);
        t = tensor_of("w", files[i].dtype, in, files[i].count, ENGINE_EXACT, NULL);
        x = tensor_of("w", files[i].dtype, out, 64, ENGINE_EXACT, NULL);
        put_file("types", 1, &t, 1);
        change_file("types", files[i].from, files[i].to);
        for (stored = 0; stored < 2; stored++) {
            x.store = stored ? store_nothing : NULL;
            CHECK(disk_recover(place, "types", &of_types, &x, 1, &error) == ENGINE_E_MISMATCH && strstr(error.message, "w is "),
                  "%s: %d, %s", files[i].to, (int)error.status, error.message);
        }
        CHECK(!memcmp(out, before, sizeof out), "%s was stored", files[i].to);
    }
    t = tensor_of("w", BITSNAP_F32, in, 64, ENGINE_EXACT, NULL);
    t.type = "F32[4,16]", x = t, x.data = out;
    put_file("types", 1, &t, 1);
    CHECK(!disk_recover(place, "types", &of_types, &x, 1, &error) && !memcmp(in, out, 256), "%s", error.message);
    for (i = 0; i < 4; i++) {
        x.type = i == 0 ? "F32[16,4]" : i == 1 ? "F32[4,16,1]" : i == 2 ? NULL : "F32[4,17]";
        CHECK(disk_recover(place, "types", &of_types, &x, 1, &error) == (i < 3 ? ENGINE_E_MISMATCH : ENGINE_E_ARGUMENT), "%u: %s", i, error.message);
    }
    x.columns = 16; /* the same shape, from columns */
    x.type = NULL;
    CHECK(!disk_recover(place, "types", &of_types, &x, 1, &error), "%s", error.message);
    remove_file("types");
}

/* The type text of the contents is right, but the numbers contradict it. Recovery and readers refuse it. */
static void types_that_lie(engine *e, const engine_tensor *t)
{
    const engine_tensor *to[1];
    contents_tensor lie;
    engine_reader *r;
    engine_error error;
    uint64_t step, sequence = 0;
    unsigned i;
    CHECK(!engine_recover(e, &step, t, 1, &error) && e->last.map, "%s", error.message);
    CHECK(!engine_reader_open(&r, place, "shapes", 0, &error) && !engine_reader_next(r, 1, &sequence, &step, &error), "%s", error.message);
    for (i = 0; i < 3; i++) {
        snapshot v = e->last;
        lie = v.d.tensors[0];
        if (i == 1) lie.count++;
        if (i == 2) lie.dtype = BITSNAP_I32;
        v.d.tensors = &lie;
        CHECK(match(&v, to, t, 1, &error) == (i ? ENGINE_E_MISMATCH : ENGINE_OK), "%u: %s", i, error.message);
        v = r->v;
        r->v.d.tensors = &lie;
        free(r->tensors), free(r->names);
        CHECK(list_names(r, &error) == (i ? ENGINE_E_DAMAGED : ENGINE_OK), "%u: %s", i, error.message);
        r->v = v;
    }
    engine_reader_close(r);
}

/* Types and shapes of a snapshot in memory, valid type texts, and tensors with equal names. */
static void types_and_shapes(void)
{
    static const struct { const char *type; bitsnap_dtype dtype; uint64_t count; int good; } types[] = {
        { "F32[2,3]", BITSNAP_F32, 6, 1 }, { "U32[6]", BITSNAP_I32, 6, 1 }, { "F8_E8M0[6]", BITSNAP_I8, 6, 1 }, { "F32[]", BITSNAP_F32, 1, 1 }, { "F32[0,3]", BITSNAP_F32, 0, 1 }, { "F32[3,0]", BITSNAP_F32, 0, 1 },
        { "F32[10]", BITSNAP_F32, 10, 1 }, { "F32[]", BITSNAP_F32, 2, 0 }, { "F32[2,4]", BITSNAP_F32, 6, 0 }, { "F32[7]", BITSNAP_F32, 6, 0 }, { "F16[6]", BITSNAP_F32, 6, 0 },
        { "C64[6]", BITSNAP_F32, 6, 0 }, { "C64[3]", BITSNAP_F32, 6, 0 }, { "F4[12]", BITSNAP_I8, 6, 0 }, { "F4[6]", BITSNAP_I8, 6, 0 }, { "F32", BITSNAP_F32, 6, 0 },
        { "", BITSNAP_F32, 6, 0 }, { "[6]", BITSNAP_F32, 6, 0 }, { "F33[6]", BITSNAP_F32, 6, 0 }, { "F32[", BITSNAP_F32, 1, 0 }, { "F32[6", BITSNAP_F32, 6, 0 },
        { "F32[6]]", BITSNAP_F32, 6, 0 }, { "F32[06]", BITSNAP_F32, 6, 0 }, { "F32[00]", BITSNAP_F32, 0, 0 }, { "F32[09]", BITSNAP_F32, 9, 0 }, { "F32[6,]", BITSNAP_F32, 6, 0 }, { "F32[,6]", BITSNAP_F32, 6, 0 }, { "F32[2, 3]", BITSNAP_F32, 6, 0 },
        { "F32[2,3] ", BITSNAP_F32, 6, 0 }, { "F32[-6]", BITSNAP_F32, 6, 0 }, { "F32[4294967296,4294967296,6]", BITSNAP_F32, 0, 0 }, { "F32[281474976710657,0]", BITSNAP_F32, 0, 0 },
        { "F32[0,281474976710656]", BITSNAP_F32, 0, 1 }, { "F32[0,281474976710657]", BITSNAP_F32, 0, 0 } };
    engine_options o = options_of("shapes", BUDGET);
    engine_error error;
    static float w[10] = { 0, 1, 2, 3, 4, 5 }, back[10];
    char type[32], text[DISK_TYPE], many[2 * DISK_TYPE] = "F32[6";
    engine_tensor t = tensor_of("w", BITSNAP_F32, w, 6, ENGINE_EXACT, NULL), x = t, three[3], other[3];
    engine *e = open_engine(&o);
    uint64_t step;
    unsigned i;
    for (i = 0; i < sizeof types / sizeof *types; i++) {
        t.type = types[i].type, t.dtype = types[i].dtype, t.count = types[i].count;
        CHECK((disk_type(text, &t) != 0) == types[i].good && (!types[i].good || !strcmp(text, t.type)), "%s", t.type);
        CHECK(engine_snapshot(e, 1, &t, 1, &error) == (types[i].good ? ENGINE_OK : ENGINE_E_ARGUMENT), "%s: %s", t.type, error.message);
        if (!types[i].good) CHECK(engine_recover(e, &step, &t, 1, &error) == ENGINE_E_ARGUMENT, "%s: %s", t.type, error.message);
    }
    t.type = "F32[281474976710656,1]", t.dtype = BITSNAP_F32, t.count = UINT64_C(1) << 48;
    CHECK(disk_type(text, &t), "the most elements");
    while (strlen(many) < DISK_TYPE) strcat(many, ",1");
    strcat(many, "]");
    t = tensor_of("w", BITSNAP_F32, w, 6, ENGINE_EXACT, NULL);
    t.type = many;
    CHECK(!disk_type(text, &t), "a text of %u bytes", (unsigned)strlen(many));
    t.type = NULL, t.columns = 3;
    CHECK(!engine_snapshot(e, 1, &t, 1, &error), "%s", error.message);
    x = t, x.data = back;
    for (i = 0; i < 5; i++) {
        x.columns = i == 1 ? 3 : i == 2 ? 2 : 0;
        x.type = i == 0 ? "F32[2,3]" : i == 3 ? "F32[3,2]" : NULL;
        CHECK(engine_recover(e, &step, &x, 1, &error) == (i < 2 ? ENGINE_OK : ENGINE_E_MISMATCH), "%u: %s", i, error.message);
        CHECK(i < 2 ? !memcmp(w, back, 24) : strstr(error.message, "is F32[2,3] in the snapshot, not F32[") != NULL, "%u: %s", i, error.message);
        memset(back, 0, sizeof back);
    }
    types_that_lie(e, &t);
    engine_close(e, ENGINE_REMOVE);
    o.copy = 1;
    e = open_engine(&o);
    t.dtype = BITSNAP_I32, t.type = strcpy(type, "U32[2,3]");
    CHECK(!engine_snapshot(e, 1, &t, 1, &error), "%s", error.message);
    memset(type, 'x', sizeof type - 1);
    CHECK(!engine_wait(e, PATIENCE, &error), "%s", error.message);
    x = t, x.data = back, x.type = NULL;
    CHECK(engine_recover(e, &step, &x, 1, &error) == ENGINE_E_MISMATCH, "U32 as I32: %s", error.message);
    x.type = "U32[2,3]";
    CHECK(!engine_recover(e, &step, &x, 1, &error) && !memcmp(w, back, 24), "%s", error.message);
    for (i = 0; i < 3; i++) three[i] = tensor_of(i == 1 ? "b" : "a", BITSNAP_F32, &w[i], 1, ENGINE_EXACT, NULL), other[i] = three[i], other[i].name = i == 2 ? "b" : "a";
    CHECK(!engine_snapshot(e, 2, three, 3, &error) && engine_wait(e, PATIENCE, &error) == ENGINE_E_NONE && strstr(said, "a: two tensors"), "%s: %s", error.message, said);
    CHECK(engine_recover(e, &step, other, 3, &error) == ENGINE_E_ARGUMENT && strstr(error.message, "a: two tensors"), "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
    types_of_files();
}

/* One rank recovers from the files of four ranks. Each file has a shard of w and an equal copy of `same`. */
static void shards_of_one_name(void)
{
    enum { FILES = 4, LARGE = SOME + 5 };
    static float shard[LARGE], copy[LARGE], own[8], back[3][LARGE];
    char names[FILES][16], unique[FILES][8];
    engine_options o = options_of("shard.0", BUDGET);
    engine_error error;
    engine_tensor t[3], x[3];
    uint64_t step;
    unsigned i, k;
    engine *e;
    o.disk = place;
    for (k = 0; k < LARGE; k++) shard[k] = copy[k] = (float)k;
    for (i = 0; i < FILES; i++) {
        snprintf(names[i], sizeof names[i], "shard.%u", i), snprintf(unique[i], sizeof unique[i], "own.%u", i);
        shard[LARGE - 1] = (float)i, own[0] = 10 + (float)i; /* after the part that is read first */
        t[0] = tensor_of("w", BITSNAP_F32, shard, LARGE, ENGINE_EXACT, NULL), t[1] = tensor_of("same", BITSNAP_F32, copy, LARGE, ENGINE_EXACT, NULL);
        t[2] = tensor_of(unique[i], BITSNAP_F32, own, 8, ENGINE_EXACT, NULL);
        put_file(names[i], FILES, t, 3);
    }
    for (k = 0; k < 3; k++) x[k] = t[k], x[k].data = back[k];
    e = open_engine(&o);
    CHECK(engine_recover(e, &step, x, 3, &error) == ENGINE_E_MISMATCH && strstr(error.message, "w: the files of shard.0 and shard.1 have other"), "%s", error.message);
    CHECK(!engine_recover(e, &step, x + 1, 2, &error) && step == 1 && !memcmp(back[1], copy, sizeof copy) && back[2][0] == 13, "%s", error.message);
    x[0].file = 3, x[2].name = unique[2];
    CHECK(!engine_recover(e, &step, x, 3, &error) && back[0][LARGE - 1] == 2 && back[0][1] == 1 && back[2][0] == 12, "%s", error.message);
    x[0].file = FILES + 1;
    CHECK(engine_recover(e, &step, x, 3, &error) == ENGINE_E_MISMATCH && strstr(error.message, "w: is not in the file of rank 4"), "%s", error.message);
    x[0].file = 1, x[0].name = "own.1";
    x[0].count = 8;
    CHECK(engine_recover(e, &step, x, 3, &error) == ENGINE_E_MISMATCH && strstr(error.message, "own.1: is not in the file of rank 0"), "%s", error.message);
    x[0].file = 0, x[0].name = "w", x[0].count = LARGE;
    for (k = 0; k < 3; k++) x[k].data = &t[k], x[k].store = store_far, t[k].data = back[k]; /* on the device */
    CHECK(engine_recover(e, &step, x, 3, &error) == ENGINE_E_MISMATCH && strstr(error.message, "w: the files of shard.0 and shard.1"), "%s", error.message);
    CHECK(!engine_recover(e, &step, x + 1, 2, &error) && ((const uint8_t *)&back[1][1])[3] == (0x3F ^ 0x5A), "%s", error.message);
    change_file("shard.3", "\"F32\"", "\"I32\""); /* changes `same` or w, whichever the file lists first */
    CHECK(engine_recover(e, &step, x + 1, 1, &error) == ENGINE_E_MISMATCH || engine_recover(e, &step, x, 1, &error) == ENGINE_E_MISMATCH, "%s", error.message);
    for (i = 0; i < FILES; i++) remove_file(names[i]);
    engine_close(e, ENGINE_REMOVE);
}

/* Another process cuts the segment. Every call reports it, and the process lives on. */
static void cut(void)
{
    const engine_options o = options_of("cut", BUDGET);
    engine_error error;
    engine_reader *r;
    engine_report report;
    engine_piece piece;
    engine *e = open_engine(&o);
    uint64_t step, sequence = 0;
    take(e, 1);
    CHECK(!engine_reader_open(&r, place, "cut", 1, &error) && !engine_reader_next(r, 0, &sequence, &step, &error) && step == 1, "%s", error.message);
    CHECK(!ftruncate(e->s.fd, 0), "ftruncate");
#define CUT(call) CHECK(call == ENGINE_E_DAMAGED && strstr(error.message, "cut"), "%d, %s", (int)error.status, error.message)
    CUT(engine_snapshot(e, 2, now.tensors, TENSORS, &error));
    CUT(engine_recover(e, &step, then.tensors, TENSORS, &error));
    CHECK(engine_reader_is_wanted(r), "it is to let go");
    CUT(engine_reader_piece(r, 0, 0, 0, &piece, &error));
    engine_reader_note(r, NULL);
    CUT(engine_reader_next(r, 1, &sequence, &step, &error));
    CHECK(engine_read_status(place, "cut", &report, &error) == ENGINE_E_DAMAGED, "%s", error.message);
    engine_reader_close(r);
    engine_close(e, ENGINE_REMOVE);
}

/* The segment of one rank is cut. The others go on and do not wait for it. */
static void cut_at_others(void)
{
    unsigned i;
    begin_members(3, 24 << 20);
    all_members(3, 1, 1);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = members[i].patience = 0.5;
    CHECK(!ftruncate(members[1].e->s.fd, 8192), "ftruncate");
    all_members(3, 2, 2);
    CHECK(strstr(heard, "rank.1: the segment has been cut") && members[1].failed == 1 && !members[0].failed, "%s", heard);
    all_members(3, 0, 0);
    CHECK(members[1].error.status == ENGINE_E_DAMAGED && members[0].error.status == ENGINE_E_BUSY, "%s", members[1].error.message);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_REMOVE);
}

static void cut_segment(void)
{
    in_a_process(cut);
    in_a_process(cut_at_others);
}

/* A run with copies resumes with parity. An old copy is not taken for parity. */
static void copies_then_parity(void)
{
    unsigned i;
    begin_members(3, 32 << 20);
    all_members(3, 1, 3);
    for (i = 0; i < 3; i++) end_member(&members[i], ENGINE_KEEP), members[i].o.group = 3;
    all_members(3, 0, 0);
    check_members(3, 3, NULL);
    for (i = 0; i < 3; i++) CHECK(!members[i].e->mover->kept.map, "rank %u keeps a copy", i);
    all_members(3, 4, 4);
    for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    for (i = 0; i < 3; i++) end_member(&members[i], i == 0 ? ENGINE_REMOVE : ENGINE_KEEP);
    all_members(3, 0, 0);
    check_members(3, 4, NULL);
    end_members(3);
}

/* Late ranks leave out snapshots, each on its own. Later all ranks agree again. */
static void late_ranks(void)
{
    unsigned i, failed = 0, round;
    begin_members(3, 24 << 20);
    for (i = 0; i < 3; i++) members[i].o.when_busy = ENGINE_DECLINE, members[i].o.copy = i == 1;
    for (round = 0; round < 4; round++) {
        all_members(3, 10 * round + 1, 10 * round + 9);
        for (i = 0; i < 3; i++) failed += members[i].failed;
    }
    CHECK(failed > 0, "nobody was late");
    all_members(3, 50, 50);
    all_members(3, 51, 51);
    for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    all_members(3, 0, 0);
    check_members(3, 51, NULL);
    end_members(3);
}

static void refusals(void)
{
    static const char *const no_agent[] = { "/nowhere", NULL };
    engine_options o = options_of("refused", BUDGET);
    engine_error error;
    engine_tensor t;
    char text[DISK_TYPE + 32];
    engine *e = open_engine(&o), *other;
    uint64_t step;
    pid_t child = fork();
    int status;
    if (!child) _exit(engine_open(&other, &o, &error) == ENGINE_E_BUSY && strstr(error.message, "another trainer") ? 0 : 1);
    CHECK(waitpid(child, &status, 0) == child && status == 0, "a second trainer");
    CHECK(engine_remove(place, "refused", &error) == ENGINE_E_BUSY, "%s", error.message);
    take(e, 1);
#define REFUSED(member, value, words)                                                                                             \
    t = now.tensors[0], t.master = NULL, t.member = value;                                                                        \
    CHECK(engine_snapshot(e, 2, &t, 1, &error) == ENGINE_E_ARGUMENT && strstr(error.message, words), "%s", error.message)
    REFUSED(name, NULL, "name");
    REFUSED(data, NULL, "data");
    REFUSED(dtype, (bitsnap_dtype)99, "dtype");
    REFUSED(kind, (engine_kind)7, "moment");
    REFUSED(master, &now.tensors[1], "master");
    REFUSED(weights, &now.tensors[1], "weights");
    CHECK(engine_recover(e, &step, then.tensors, 3, &error) == ENGINE_E_MISMATCH && strstr(error.message, "6 tensors"), "%s", error.message);
    CHECK(disk_type(text, &now.tensors[4]), "no type");
    strcat(text, " in the snapshot, not BF16["); /* the message ends after the type */
    then.tensors[4].count--;
    CHECK(engine_recover(e, &step, then.tensors, TENSORS, &error) == ENGINE_E_MISMATCH && strstr(error.message, "frozen") && strstr(error.message, text), "%s", error.message);
    then.tensors[4].count++;
    then.tensors[5].name = "rng2";
    CHECK(engine_recover(e, &step, then.tensors, TENSORS, &error) == ENGINE_E_MISMATCH && strstr(error.message, "not wanted"), "%s", error.message);
    then.tensors[5].name = "rng";
    engine_close(e, ENGINE_KEEP);
    o.budget = 2 * BUDGET;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_MISMATCH && strstr(error.message, "budget"), "%s", error.message);
    CHECK(!engine_remove(place, "refused", &error), "%s", error.message);
    o.budget = 0;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_NONE, "%s", error.message);
    o.budget = UINT64_C(1) << 43;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_SYSTEM && strstr(error.message, "lower the budget"), "%s", error.message);
    CHECK(most_taken && most_taken < (off_t)o.budget, "all room was taken meanwhile");
    o.delta_percent = 91;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_ARGUMENT && strstr(error.message, "percentage"), "%s", error.message);
    o.delta_percent = 0;
    o.budget = 9000;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_ARGUMENT, "%s", error.message);
    o.budget = BUDGET;
    o.agent = no_agent;
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_SYSTEM && strstr(error.message, "agent"), "%s", error.message);
    CHECK(engine_remove(place, "refused", &error) == ENGINE_E_NONE, "the segment stays: %s", error.message);
    o.name = "../x";
    CHECK(engine_open(&e, &o, &error) == ENGINE_E_ARGUMENT && strstr(error.message, "letters"), "%s", error.message);
}

/* Parses a manifest of these lines with the right check. */
static void check_manifest(const char *lines, unsigned count, const char *wrong)
{
    char text[1024];
    const size_t n = (size_t)snprintf(text, sizeof text, "%s%s", MANIFEST_START, lines);
    const size_t size = n + (size_t)snprintf(text + n, sizeof text - n, "check %016" PRIx64 "\n", bitsnap_hash(text, n));
    guarded g = guarded_alloc(size, 0);
    disk_manifest m;
    const char *said_of_it = disk_parse(&m, (const char *)memcpy(g.p, text, size), size);
    CHECK(m.count == count && (wrong ? said_of_it && !strcmp(said_of_it, wrong) : !said_of_it), "%s: %u, %s", lines, m.count, said_of_it ? said_of_it : "good");
    guarded_free(g);
}

#define ATTEMPT_A "0a000000000000000000000000000009"
#define ATTEMPT_B "0b000000000000000000000000000009"
#define OF_RUN "run 00000000000000070000000000000008 1\nattempt " ATTEMPT_B " 999999999999999999\nattempt " ATTEMPT_A " 3\n"

static void manifests(void)
{
    check_manifest(OF_RUN "1 10 4 " ATTEMPT_A " a\n2 20 3 " ATTEMPT_A " b\n2 20 3 " ATTEMPT_B " b\n", 3, NULL);
    check_manifest(OF_RUN, 0, NULL);
    check_manifest(OF_RUN "1 10 4 " ATTEMPT_A " a", 0, "a line that does not end");
    check_manifest(OF_RUN "1 10 4 " ATTEMPT_A " ", 0, "a line that does not end");
    check_manifest(OF_RUN "1 10 ", 0, "a line without step, size, ranks and attempt");
    check_manifest(OF_RUN "1 10 4 a\n", 0, "a line without step, size, ranks and attempt");
    check_manifest(OF_RUN "2 10 4 " ATTEMPT_A " a\n2 10 4 " ATTEMPT_A " b\n", 1, "steps that do not ascend");
    check_manifest(OF_RUN "3 10 4 " ATTEMPT_A " a\n", 0, "a step that is dead");
    check_manifest("1 10 4 " ATTEMPT_A " a\n", 0, "it does not say of which run and attempt it is");
    check_manifest("run 00000000000000070000000000000008 1\n", 0, "it does not say of which run and attempt it is");
    check_manifest("run 00000000000000070000000000000008 1\nattempt " ATTEMPT_B " 5\n", 0, "it does not say of which run and attempt it is"); /* the first attempt has no end */
}

/* NOT lists whole names. tests/check/check_race.sh names most of them. */
static void names_of_cases(void)
{
    CHECK(test_lists("damaged", "damaged") && test_lists("round_trip damaged", "damaged") && test_lists("killed\n    damaged refusals", "damaged"));
    CHECK(!test_lists("damaged_at_others", "damaged") && !test_lists("not_damaged", "damaged") && !test_lists("damage", "damaged"));
    CHECK(!test_lists(NULL, "damaged") && !test_lists("", "damaged"));
}

int main(void)
{
    test_program = "engine";
    if (!mkdtemp(place)) return 1;
    state_make(&now);
    state_make(&then);
    RUN(round_trip);
    RUN(deltas);
    RUN(follows_the_stage);
    RUN(anchors_in_time);
    RUN(levels);
    RUN(bounds_follow_updates);
    RUN(budget_is_enough);
    RUN(moments_within_bounds);
    RUN(does_not_fit);
    RUN(killed);
    RUN(damaged);
    RUN(wrong_headers);
    RUN(changing);
    RUN(contents_of_anything);
    RUN(contents_that_lie);
    RUN(read_meanwhile);
    RUN(large_tensors);
    RUN(partners);
    RUN(parity);
    RUN(damaged_at_others);
    RUN(damaged_file);
    RUN(passing_faults);
    RUN(left_out);
    RUN(partner_hangs);
    RUN(partner_cannot_read);
    RUN(partner_starves);
    RUN(late_ranks);
    RUN(copied_first);
    RUN(from_devices);
    RUN(refusals);
    RUN(types_and_shapes);
    RUN(shards_of_one_name);
    RUN(cut_segment);
    RUN(copies_then_parity);
    RUN(manifests);
    RUN(names_of_cases);
    state_free(&now);
    state_free(&then);
    CHECK(!rmdir(place), "something is left in %s", place);
    return test_failures != 0;
}
#endif
