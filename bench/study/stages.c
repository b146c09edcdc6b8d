/* stages.c - compares the checkpoint engine, which chooses by the stage of training, with every fixed policy, in a whole run of
 * train_gpt. Part of bitsnap; MIT licence, see bitsnap.h. `make study-stages` runs it:
 *
 *     stages STEPS.tsv POLICIES.tsv, then options and text of train_gpt
 *
 * After every step the same state goes to engines that choose, and to the codec, once for each fixed policy: levels, bins of the
 * moments, and anchors at every n-th step with deltas to the last one. Sets of tensors: "lossless", F32 master and both moments;
 * "moments", with bounded moments; "weights", only BF16, for rollouts and evaluations. Bytes are those that a snapshot adds. A
 * bound keeps the floor in a step if it moves a tensor by at most 2^-13 of its size, measured on all elements of the update (see
 * engine_stage_cells). Times are processor times, so other programs do not count. */
#define _GNU_SOURCE
#define TRAIN_STUDY
#define main train_main
#include "docs/examples/train_gpt.c"
#undef main
#include "docs/examples/engine/bitsnap_engine.h"

enum { LOSSLESS, MOMENTS, WEIGHTS, SETS, CADENCES = 8, LEVELS = 2, BOUNDS = 4, MEAN = 5 };
static const char *const set_names[] = {"lossless", "moments", "weights"};
static const uint64_t cadences[CADENCES] = {1, 2, 3, 4, 6, 8, 12, 24};
static const int levels[LEVELS] = {BITSNAP_FAST, BITSNAP_BEST};
static const unsigned bounds[BOUNDS] = {70, 34, 16, 8};

/* A set of tensors, and the engine that chooses for it. */
typedef struct chooser {
    engine *e;
    engine_tensor *tensors;
    char (*names)[64];
    size_t count;
    uint64_t raw, bytes, mean_bytes;
    double mean_seconds, mean_cells, mean_delta;
} chooser;

static struct study {
    chooser choosers[SETS];
    uint16_t *weights, *weight_anchors[CADENCES];
    float *master_anchors[CADENCES], *before;
    uint64_t master[LEVELS][CADENCES], weight[LEVELS][CADENCES];     /* bytes of the run */
    uint64_t m[LEVELS][BOUNDS + 1], v[LEVELS][BOUNDS + 1];           /* index BOUNDS: lossless */
    /* elements below the floor, index BOUNDS: with the chosen bins; all elements */
    uint64_t below[BOUNDS + 1], judged;
    unsigned cells[MAX_TENSORS];                                     /* bins that the engine reports; 0: no report yet */
    double mean_copy;
    uint8_t *frame, *workspace;
    size_t capacity, workspace_size;
    void *copy;
    FILE *steps, *policies;
    const char *model;
    uint64_t snapshots;
} study;

static uint64_t frame_size(const void *elements, size_t count, bitsnap_dtype dtype, int level, unsigned cells, size_t columns, const void *base)
{
    bitsnap b;
    size_t size = 0;
    memset(&b, 0, sizeof b);
    b.workspace = study.workspace;
    b.workspace_size = study.workspace_size;
    b.level = level;
    b.quantizer.bins = cells;
    if (base)
        b.base.data = base, b.base.count = count, b.base.dtype = dtype;
    else if (cells || level == BITSNAP_BEST)
        b.columns = columns;
    if (bitsnap_encode(&b, study.frame, study.capacity, &size, elements, count, dtype) != BITSNAP_OK)
        stop(1, "%s", bitsnap_message(&b));
    return size;
}

static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void hear(void *context, const char *message)
{
    const chooser *c = context;
    char name[64];
    unsigned cells;
    if (sscanf(message, "step %*u: moments of %63s in %u cells", name, &cells) == 2)
        for (size_t i = 0; i < c->count; i += 3)
            if (strcmp(name, c->names[i]) == 0)
                study.cells[i / 3] = cells;
    fprintf(stderr, "%s %s: %s\n", study.model, set_names[(chooser *)context - study.choosers], message);
}

static void add(chooser *c, const tensor *x, const char *kind, bitsnap_dtype dtype, void *data, engine_kind role)
{
    engine_tensor *y = &c->tensors[c->count];
    char *name = c->names[c->count++];
    snprintf(name, sizeof *c->names, "%s%s", x->name, kind);
    memset(y, 0, sizeof *y);
    y->name = name;
    y->dtype = dtype;
    y->data = data;
    y->count = x->count;
    y->columns = x->rows ? x->columns : 0;
    y->kind = role;
    if (role != ENGINE_EXACT)
        y->weights = y - role; /* moments follow their master */
    c->raw += x->count * bitsnap_width(dtype);
}

static void open_engine(trainer *t)
{
    const size_t n = t->m.parameters;
    study.model = t->o.model;
    study.capacity = 5 * n + 65536;
    study.workspace_size = 64 << 20;
    study.frame = malloc(study.capacity);
    study.workspace = malloc(study.workspace_size);
    study.copy = malloc(12 * n);
    study.weights = calloc(n, 2);
    study.before = floats(n);
    for (size_t i = 0; i < CADENCES; i++) {
        study.weight_anchors[i] = calloc(n, 2);
        study.master_anchors[i] = floats(n);
    }
    for (size_t s = 0; s < SETS; s++) {
        chooser *c = &study.choosers[s];
        engine_options o = {.threads = 1, .level_most = BITSNAP_BEST, .delta_percent = 90, .say = hear, .say_context = c};
        engine_error error;
        char name[64];
        c->tensors = calloc(3 * t->m.tensors, sizeof *c->tensors);
        c->names = calloc(3 * t->m.tensors, sizeof *c->names);
        if (!c->names || !study.frame || !study.workspace || !study.copy || !study.weights || !c->tensors)
            stop(1, "no memory for the study");
        for (size_t i = 0; i < t->m.tensors; i++) {
            const tensor *x = &t->m.table[i];
            if (s == WEIGHTS) {
                add(c, x, "", BITSNAP_BF16, study.weights + x->offset, ENGINE_EXACT);
            } else {
                add(c, x, ".master", BITSNAP_F32, t->m.master + x->offset, ENGINE_EXACT);
                add(c, x, ".exp_avg", BITSNAP_F32, t->m.exp_avg + x->offset, ENGINE_MOMENT1);
                add(c, x, ".exp_avg_sq", BITSNAP_F32, t->m.exp_avg_sq + x->offset, ENGINE_MOMENT2);
            }
        }
        snprintf(name, sizeof name, "study.%ld.%zu", (long)getpid(), s);
        o.name = name;
        o.budget = 5 * c->raw + (4 << 20);
        if (s == MOMENTS) {
            (void)engine_policy(&o, "small");
            o.stage = 1;
        }
        if (engine_open(&c->e, &o, &error))
            stop(1, "%s", error.message);
    }
}

/* Measures every fixed policy. Anchors are at steps 1, 1 + n, ... */
static void fixed_policies(const trainer *t, const tensor *x)
{
    const size_t at = x->offset, n = x->count, columns = x->rows ? x->columns : 0;
    for (size_t l = 0; l < LEVELS; l++) {
        for (size_t c = 0; c < CADENCES; c++) {
            const int anchor = study.snapshots % cadences[c] == 0;
            if (anchor && c) { /* cadence 1 needs no copy: all its frames are whole */
                memcpy(study.master_anchors[c] + at, t->m.master + at, 4 * n);
                memcpy(study.weight_anchors[c] + at, study.weights + at, 2 * n);
            }
            study.master[l][c] += frame_size(t->m.master + at, n, BITSNAP_F32, levels[l], 0, columns, anchor ? NULL : study.master_anchors[c] + at);
            study.weight[l][c] += frame_size(study.weights + at, n, BITSNAP_BF16, levels[l], 0, columns, anchor ? NULL : study.weight_anchors[c] + at);
        }
        for (size_t b = 0; b <= BOUNDS; b++) {
            study.m[l][b] += frame_size(t->m.exp_avg + at, n, BITSNAP_F32, levels[l], b < BOUNDS ? bounds[b] : 0, columns, NULL);
            study.v[l][b] += frame_size(t->m.exp_avg_sq + at, n, BITSNAP_F32, levels[l], b < BOUNDS ? bounds[b] / 2 : 0, columns, NULL);
        }
    }
}

/* Counts the elements for which each bound breaks the floor, on the whole update. */
static void judge_bounds(const trainer *t, size_t number)
{
    const tensor *x = &t->m.table[number];
    double moved = 0, size = 0;
    for (size_t i = x->offset; i < x->offset + x->count; i++) {
        moved += fabs((double)t->m.master[i] - study.before[i]);
        size += fabs((double)study.before[i]);
    }
    const unsigned wanted = engine_stage_cells(1, size > 0 ? moved / size : 1);
    study.judged += x->count;
    for (size_t b = 0; b < BOUNDS; b++)
        study.below[b] += bounds[b] < wanted ? x->count : 0;
    study.below[BOUNDS] += study.cells[number] && study.cells[number] < wanted ? x->count : 0;
}

static void report(void)
{
    for (size_t s = 0; s < SETS; s++) {
        chooser *c = &study.choosers[s];
        fprintf(study.steps, "%s\t%s\t%" PRIu64 "\t%.0f\t%.5f\t%.3f\t%.3f\t%.1f\t%.4g\n", study.model, set_names[s], study.snapshots,
                (double)c->mean_bytes / MEAN, (double)c->mean_bytes / MEAN / (double)c->raw, 1e3 * c->mean_seconds / MEAN,
                1e3 * study.mean_copy / MEAN * (double)c->raw / (double)study.choosers[0].raw, c->mean_delta / MEAN, s == MOMENTS ? c->mean_cells / MEAN : 0);
        c->mean_bytes = 0;
        c->mean_seconds = c->mean_delta = c->mean_cells = 0;
    }
    study.mean_copy = 0;
}

static void take_snapshot(trainer *t)
{
    const size_t n = t->m.parameters;
    engine_error error;
    for (size_t i = 0; i < n; i++)
        study.weights[i] = to_bfloat16(t->m.master[i]);
    const double start = processor_seconds();
    memcpy(study.copy, t->m.master, 4 * n);
    memcpy((char *)study.copy + 4 * n, t->m.exp_avg, 4 * n);
    memcpy((char *)study.copy + 8 * n, t->m.exp_avg_sq, 4 * n);
    study.mean_copy += processor_seconds() - start;
    for (size_t s = 0; s < SETS; s++) {
        chooser *c = &study.choosers[s];
        const double before = processor_seconds();
        if (engine_snapshot(c->e, t->step, c->tensors, c->count, &error))
            stop(1, "%s", error.message);
        const engine_cost *cost = engine_last_cost(c->e);
        c->bytes += cost->written_size;
        c->mean_bytes += cost->written_size;
        c->mean_seconds += processor_seconds() - before;
        c->mean_cells += cost->cells;
        c->mean_delta += 100 * (double)cost->delta / (double)(cost->delta + cost->whole);
    }
    for (size_t i = 0; i < t->m.tensors; i++) {
        fixed_policies(t, &t->m.table[i]);
        if (study.snapshots)
            judge_bounds(t, i);
    }
    memcpy(study.before, t->m.master, 4 * n);
    if (++study.snapshots % MEAN == 0)
        report();
}

static void row(size_t set, const char *policy, uint64_t bytes, double below)
{
    fprintf(study.policies, "%s\t%s\t%s\t%" PRIu64 "\t%.4f\t%.1f\n", study.model, set_names[set], policy, bytes,
            (double)bytes / (double)study.choosers[set].raw / (double)study.snapshots, below);
}

static void close_engine(trainer *t)
{
    static const char *const level_names[LEVELS] = {"fast", "best"};
    char policy[64];
    (void)t;
    for (size_t s = 0; s < SETS; s++) {
        row(s, "chosen", study.choosers[s].bytes, s == MOMENTS ? 100 * (double)study.below[BOUNDS] / (double)study.judged : 0);
        engine_close(study.choosers[s].e, ENGINE_REMOVE);
    }
    for (size_t l = 0; l < LEVELS; l++)
        for (size_t c = 0; c < CADENCES; c++) {
            snprintf(policy, sizeof policy, "%s, anchors each %" PRIu64, level_names[l], cadences[c]);
            row(WEIGHTS, policy, study.weight[l][c], 0);
            row(LOSSLESS, policy, study.master[l][c] + study.m[l][BOUNDS] + study.v[l][BOUNDS], 0);
            for (size_t b = 0; b < BOUNDS; b++) {
                snprintf(policy, sizeof policy, "%s, anchors each %" PRIu64 ", %u cells", level_names[l], cadences[c], bounds[b]);
                row(MOMENTS, policy, study.master[l][c] + study.m[l][b] + study.v[l][b], 100 * (double)study.below[b] / (double)study.judged);
            }
        }
    if (fclose(study.steps) != 0 || fclose(study.policies) != 0)
        stop(1, "cannot write the figures");
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return fprintf(stderr, "usage: stages STEPS.tsv POLICIES.tsv [options of train_gpt] TEXT...\n"), 2;
    study.steps = fopen(argv[1], "w");
    study.policies = fopen(argv[2], "w");
    if (!study.steps || !study.policies)
        stop(1, "%s, %s: %s", argv[1], argv[2], strerror(errno));
    return train_main(argc - 2, argv + 2);
}
