/* test_schedules.c - random schedules of events in a run: kills, pauses, nodes that leave and return, a changed number of
 * ranks, a full disk, lost memory, lost manifests, new runs. Recovery gives the right and newest known state, or refuses with
 * a reason. COUNT: number of schedules (default 15, with LONG=1 30, nightly 1000); SEED: the first one (default 1); SHOW=1:
 * prints what they do. */
#include "tests/unit/test.h"
#ifndef __linux__
int main(void)
{
    SKIP("all", "needs Linux");
    return 0;
}
#else
#include "engine_world.h"

enum { JOBS = 10, UNKNOWN = -1 };

/* The test's own record of the jobs of a schedule, by the rules of engine_disk.h, IDENTITY. */
static struct history {
    char attempt[33];
    int parent;            /* the newest job whose traces it could see; UNKNOWN: it began a run */
    uint64_t number, start, start_path; /* the recovered step */
    uint64_t first;        /* the first step that it took */
} jobs[JOBS];
static unsigned count, shown, refusals, recoveries, begun;
static uint64_t seed;

static int job_of(const char *attempt)
{
    unsigned i;
    for (i = 0; i < count; i++)
        if (!strcmp(jobs[i].attempt, attempt)) return (int)i;
    return UNKNOWN;
}

static int goes_on_from(int a, int b)
{
    while (a != UNKNOWN && a != b) a = jobs[a].parent;
    return a == b;
}

/* 1 if a job made this path at this step. */
static int made(int job, uint64_t step, uint64_t path)
{
    uint64_t s, x = jobs[job].start_path;
    if (step < jobs[job].first || step > jobs[job].first + 100000) return 0;
    for (s = jobs[job].first; s <= step; s++) x = mixed(x, jobs[job].number, s);
    return x == path;
}

/* The attempts that a job can see: those with a snapshot that counted, in the memory of its nodes or listed on disk. */
typedef struct sight {
    int newest, torn;     /* a job, or UNKNOWN; 1: of two jobs, neither goes on from the other */
    int anything;
    uint64_t common;      /* the newest living step that all ranks have on disk */
} sight;

static void see(sight *x, const char *attempt)
{
    const int job = job_of(attempt);
    if (job == UNKNOWN) return;
    if (x->newest == UNKNOWN || goes_on_from(job, x->newest)) x->newest = job;
    else if (!goes_on_from(x->newest, job)) x->torn = 1;
}

/* The last step of a job that is alive for the newest job. */
static uint64_t alive_up_to(int newest, int job)
{
    uint64_t end = UINT64_MAX;
    for (; newest != UNKNOWN && newest != job; newest = jobs[newest].parent)
        if (jobs[newest].start < end) end = jobs[newest].start;
    return newest == job ? end : 0;
}

static sight look_around(const job *j)
{
    sight x = { UNKNOWN, 0, 0, 0 };
    disk_manifest m[MOST_RANKS];
    char path[128], name[32], text[ID_TEXT];
    engine_error error;
    engine_report report;
    unsigned r, i, k, ranks = j->ranks;
    snprintf(path, sizeof path, "%s/disk", place);
    for (k = 0; k < 2; k++) /* twice: the newest may be seen last */
        for (r = 0; r < ranks; r++) { /* also files of former ranks */
            snprintf(name, sizeof name, "run.%u", r);
            if (!k) (void)disk_read_manifest(&m[r], path, name, &error);
            if (m[r].line.count) x.anything = 1, see(&x, engine_id_text(text, &m[r].line.links[0].attempt));
            for (i = 0; i < m[r].count; i++)
                if (m[r].entries[i].ranks > ranks) ranks = (unsigned)m[r].entries[i].ranks;
            if (r >= j->ranks) continue;
            snprintf(text, sizeof text, "node%u", j->node[r]);
            {
                char node[128];
                snprintf(node, sizeof node, "%s/%s", place, text);
                if (engine_read_status(node, name, &report, &error)) continue;
            }
            for (i = 0; i < ENGINE_SLOTS; i++)
                if (report.slots[i].whole) {
                    x.anything = 1;
                    if (report.slots[i].counts) see(&x, report.slots[i].attempt);
                }
            if (!k) x.torn = 0;
        }
    for (i = 0; i < m[0].count && x.newest != UNKNOWN; i++) {
        const disk_entry *e = &m[0].entries[i];
        const int job = job_of(engine_id_text(text, &e->attempt));
        for (r = 0; r < j->ranks && e->ranks == j->ranks && find_entry(&m[r], e); r++) continue;
        if (r == j->ranks && job != UNKNOWN && e->step <= alive_up_to(x.newest, job) && e->step > x.common) x.common = e->step;
    }
    return x;
}

#define WRONG(...)                                                    \
    do {                                                              \
        fprintf(stderr, "seed %" PRIu64 ", job %u: ", seed, count);   \
        CHECK(0, __VA_ARGS__);                                        \
    } while (0)

/* Checks the recovery of a job. least: the oldest step that it may recover. */
static void assess(const job *j, const sight *before, uint64_t least)
{
    const outcome *x = &j->of[0];
    struct history *h = &jobs[count];
    unsigned r;
    int from;
    for (r = 0; r < j->ranks; r++) {
        if (j->of[r].status == -1) return; /* killed */
        if (j->of[r].status && j->of[r].status != ENGINE_E_NONE && !*j->of[r].message) WRONG("rank %u says nothing", r);
        if (j->of[r].status != x->status || j->of[r].step != x->step || j->of[r].path != x->path)
            WRONG("rank %u: status %d, step %u, %s; rank 0: status %d, step %u, %s", r, j->of[r].status, (unsigned)j->of[r].step, j->of[r].message, x->status, (unsigned)x->step, x->message);
        if (j->of[r].wrong) WRONG("rank %u: wrong elements at step %u", r, (unsigned)x->step);
    }
    if (shown) printf("#   %d, step %u from %d: %s\n", x->status, (unsigned)x->step, x->source, x->message);
    if (x->status && x->status != ENGINE_E_NONE) {
        refusals++;
        if (least) WRONG("refused, though step %u is there: %s", (unsigned)least, x->message);
        return;
    }
    strcpy(h->attempt, x->attempt);
    h->number = j->number, h->start = x->step, h->start_path = x->path, h->parent = UNKNOWN, h->first = x->step + !(j->again && !x->status);
    if (x->status) {
        if (before->anything && !j->anew) WRONG("begins anew, though there is something");
        begun++, count++;
        return;
    }
    recoveries++;
    if (before->torn && !*j->adopt) WRONG("chooses between attempts of which neither goes on from the other");
    for (from = (int)count - 1; from >= 0 && !made(from, x->step, x->path); from--) continue;
    if (from < 0) WRONG("step %u is of no job", (unsigned)x->step);
    else if (!before->torn && before->newest != UNKNOWN && !goes_on_from(from, before->newest) && x->step > alive_up_to(before->newest, from))
        WRONG("step %u of job %d is dead: job %d is the newest", (unsigned)x->step, from, before->newest);
    if (x->step < least) WRONG("step %u, though step %u is there", (unsigned)x->step, (unsigned)least);
    h->parent = before->newest != UNKNOWN && !goes_on_from(from, before->newest) ? before->newest : from;
    count++;
}

static unsigned chance(unsigned n) { return test_random() % n; }

/* A random event between two jobs. Returns 1 if snapshots that counted may be lost. */
static int happen(job *j)
{
    const unsigned what = chance(12), r = chance(j->ranks);
    unsigned i;
    if (what < 3) return 0;
    if (what == 3) shell("rm -f node%u/*", j->node[r]);
    else if (what == 4) shell("rm -f node*/*");
    else if (what == 5 || what == 6) {
        const unsigned to = chance(NODES);
        for (i = 0; i < j->ranks; i++)
            if (j->node[i] == to) j->node[i] = j->node[r];
        j->node[r] = to;
    } else if (what == 7) {
        const unsigned ranks = 1 + chance(MOST_RANKS);
        for (i = j->ranks; i < ranks; i++) j->node[i] = i ? (j->node[0] + i) % NODES : 0;
        j->ranks = ranks;
    } else if (what == 8) shell("rm -f disk/run.%u.manifest", r);
    else if (what == 9) shell("rm -f disk/*");
    else if (what == 10) shell("rm -f node%u/bitsnap-run.%u", j->node[r], r);
    else shell("rm -f disk/run.%u.manifest; echo damaged >disk/run.%u.manifest", r, r);
    if (shown) printf("#   event %u\n", what);
    return 1;
}

static void schedule(void)
{
    job j, done;
    unsigned i, k;
    int lossy = 0, refused = 0;
    uint64_t acknowledged = 0;
    clear_world();
    count = 0;
    memset(&j, 0, sizeof j);
    j.ranks = 1 + chance(MOST_RANKS);
    for (i = 0; i < j.ranks; i++) j.node[i] = i;
    for (k = 0; k < JOBS; k++) {
        sight before = look_around(&j);
        uint64_t least = lossy || before.torn ? 0 : acknowledged;
        j.last = 1000000, j.pause = 200 + chance(2000), j.agents = 1, j.full = !chance(8), j.stall = chance(4) ? 0 : 1 + chance(20), j.again = !chance(4);
        j.kill = 20 + chance(80);
        j.patience = chance(4) ? 0 : 0.01; /* stalls are longer */
        if (j.patience > 0) j.stall = 15 + chance(40), j.kill = 60 + chance(100);
        j.stop = chance(6) ? 0 : 10 + chance(30), j.number = seed * 1000 + k + 1;
        j.anew = refused && chance(2), *j.adopt = 0;
        if (refused && !j.anew && count) strcpy(j.adopt, jobs[chance(count)].attempt);
        if (!*j.adopt && !before.torn && before.common > least) least = before.common;
        if (j.anew || *j.adopt) least = 0;
        if (shown) printf("# seed %" PRIu64 ", job %u: %u ranks on %u %u %u %u%s%s%s\n", seed, count, j.ranks, j.node[0], j.node[1], j.node[2], j.node[3], j.full ? ", full" : "",
                          j.anew ? ", anew" : "", *j.adopt ? ", adopt" : "");
        run_job(&j, &done);
        assess(&done, &before, least);
        refused = done.of[0].status > 0 && done.of[0].status != ENGINE_E_NONE;
        if (!refused && done.of[0].status >= 0) {
            acknowledged = done.of[0].step;
            for (i = 0; i < j.ranks; i++)
                if (done.of[i].counted > acknowledged) acknowledged = done.of[i].counted;
            lossy = 0;
        }
        lossy |= happen(&j);
    }
}

static void schedules(void)
{
    const char *n = getenv("COUNT"), *first = getenv("SEED");
    const uint64_t begin = first ? strtoull(first, NULL, 10) : 1, end = begin + (n ? strtoull(n, NULL, 10) : test_long() ? 30 : 15);
    for (seed = begin; seed < end; seed++) test_state = seed, schedule();
    printf("# %u recoveries, %u refusals, %u runs begun\n", recoveries, refusals, begun);
    CHECK(recoveries > 2 * (end - begin) || end - begin < 20, "only %u recoveries", recoveries);
}

int main(void)
{
    test_program = "schedules";
    shown = getenv("SHOW") != NULL;
    if (!mkdtemp(place)) return 1;
    RUN(schedules);
    shell("rm -rf %s", place);
    return test_failures != 0;
}
#endif
