/* test_identity.c - run and attempt of a snapshot. Ranks recover the newest living step of one lineage, or refuse. */
#include "tests/unit/test.h"
#ifndef __linux__
int main(void)
{
    SKIP("all", "needs Linux");
    return 0;
}
#else
#include "engine_world.h"

static job to_step(uint64_t last)
{
    job j;
    memset(&j, 0, sizeof j);
    j.ranks = 2, j.node[1] = 1, j.last = last, j.agents = 1;
    return j;
}

/* Checks that each rank of a job found this step of this path. */
static void found(const job *j, uint64_t step, uint64_t path, const char *where)
{
    unsigned i;
    for (i = 0; i < j->ranks; i++)
        CHECK(!j->of[i].status && j->of[i].step == step && j->of[i].path == path && !j->of[i].wrong, "%s: rank %u: status %d, step %u%s, %s", where, i, j->of[i].status,
              (unsigned)j->of[i].step, j->of[i].wrong ? ", wrong" : "", j->of[i].message);
}

static void is_refused(const job *j, int status, const char *words, const char *where)
{
    unsigned i;
    for (i = 0; i < j->ranks; i++)
        CHECK(j->of[i].status == status && strstr(j->of[i].message, words), "%s: rank %u: status %d, step %u, %s", where, i, j->of[i].status, (unsigned)j->of[i].step, j->of[i].message);
}

/* ---- table: memory of both ranks, memory of the partner of rank 0, and disk ---- */

/* Histories, kept as folders. A5: steps 1 to 5. P10 and S9: two attempts that went on from A5 without knowing each other. Q7:
 * went on from A5 when only one rank had files of P10. X3: another run. */
static uint64_t paths[5];
static char runs[5][33];
static const char *const histories[] = { "A5", "P10", "S9", "Q7", "X3" };
enum { A5, P10, S9, Q7, X3, NOTHING };

static void keep(unsigned which, const job *j)
{
    shell("rm -rf kept_%s; mkdir kept_%s; cp -r node0 node1 disk kept_%s", histories[which], histories[which], histories[which]);
    paths[which] = j->of[0].counted_path;
    strcpy(runs[which], j->of[0].run);
    CHECK(j->of[0].counted && j->of[0].counted == j->of[1].counted, "%s: step %u", histories[which], (unsigned)j->of[0].counted);
}

/* Fills the memory of each rank and the disk from these histories. */
static void put(unsigned memory0, unsigned memory1, unsigned disk)
{
    clear_world();
    if (memory0 != NOTHING) shell("cp kept_%s/node0/* node0", histories[memory0]);
    if (memory1 != NOTHING) shell("cp kept_%s/node1/* node1", histories[memory1]);
    if (disk != NOTHING) shell("cp kept_%s/disk/* disk", histories[disk]);
}

static void make_histories(void)
{
    job j = to_step(5), done;
    clear_world();
    run_job(&j, &done), keep(A5, &done);
    j = to_step(10);
    run_job(&j, &done), found(&done, 5, paths[A5], "P10"), keep(P10, &done);
    put(A5, A5, A5);
    j = to_step(9);
    run_job(&j, &done), found(&done, 5, paths[A5], "S9"), keep(S9, &done);
    put(NOTHING, NOTHING, A5);
    shell("rm disk/run.0*; cp kept_P10/disk/run.0* disk"); /* rank 0 has two steps of P10, and rank 1 has no step of it */
    shell("cp kept_A5/disk/run.0-* disk; rm disk/run.0.manifest");
    j = to_step(7);
    run_job(&j, &done), found(&done, 5, paths[A5], "Q7"), keep(Q7, &done);
    clear_world();
    j = to_step(3);
    run_job(&j, &done), keep(X3, &done);
}

static void table(void)
{
    static const struct { const char *name; unsigned there, else_where; int adopt, status; uint64_t step; const char *words; } rows[] = {
        { "nothing else", Q7, NOTHING, 0, 0, 7, "" },
        { "older of the lineage", A5, Q7, 0, 0, 7, "" },
        { "dead steps of the lineage, of a higher number", P10, Q7, 0, 0, 7, "" },
        { "an attempt that neither goes on from", S9, Q7, 0, ENGINE_E_SCATTERED, 0, "there are snapshots of attempts " },
        { "the same, adopted", S9, Q7, 1, 0, 7, "" },
        { "another run's", X3, Q7, 0, ENGINE_E_SCATTERED, 0, "there are snapshots of runs " },
        { "another run's, and this one adopted", X3, Q7, 2, 0, 7, "" },
        { "nothing at all", NOTHING, NOTHING, 0, ENGINE_E_NONE, 0, "there is no snapshot of run" } };
    static const char *const columns[] = { "memory", "partner", "disk" };
    char where[128];
    unsigned i, k;
    job j, done;
    make_histories();
    for (i = 0; i < sizeof rows / sizeof *rows; i++)
        for (k = 0; k < 3; k++) {
            const unsigned there = rows[i].there, other = rows[i].else_where;
            unsigned files;
            snprintf(where, sizeof where, "%s, %s", columns[k], rows[i].name);
            if (k < 2) put(k ? NOTHING : there, there, other);
            else put(other, other, there);
            files = count_files("disk", NULL);
            j = to_step(0);
            j.agents = 0;
            if (rows[i].adopt == 2) strcpy(j.adopt, runs[Q7]);
            if (rows[i].adopt == 1) { /* the attempt in the message */
                run_job(&j, &done);
                CHECK(strstr(done.of[0].message, " and "), "%s: %s", where, done.of[0].message);
                engine_id id;
                disk_manifest m;
                engine_error error;
                char path[128];
                snprintf(path, sizeof path, "%s/kept_Q7/disk", place);
                CHECK(!disk_read_manifest(&m, path, "run.0", &error), "%s", error.message);
                id = m.line.links[0].attempt;
                engine_id_text(j.adopt, &id);
                CHECK(strstr(done.of[0].message, j.adopt), "%s: %s does not name %s", where, done.of[0].message, j.adopt);
            }
            run_job(&j, &done);
            if (rows[i].status) is_refused(&done, rows[i].status, rows[i].words, where);
            else found(&done, rows[i].step, paths[Q7], where);
            CHECK(count_files("disk", NULL) >= files, "%s: files are gone", where);
        }
    put(Q7, NOTHING, NOTHING), shell("rm node0/*; cp kept_Q7/disk/run.0* disk");
    j = to_step(0);
    run_job(&j, &done);
    is_refused(&done, ENGINE_E_SCATTERED, "; rank 0 disk:", "one rank's files");
    is_refused(&done, ENGINE_E_SCATTERED, "; rank 1 nothing", "one rank's files");
}

/* ---- a rank alone ---- */

static job alone(unsigned node, uint64_t last)
{
    job j = to_step(last);
    j.ranks = 1, j.node[0] = node;
    return j;
}

/* A job moves to another node, and back to one whose memory is older than the files. */
static void stale_memory(void)
{
    job j = alone(0, 3), done;
    uint64_t path;
    clear_world();
    run_job(&j, &done);
    j = alone(1, 20);
    run_job(&j, &done);
    CHECK(done.of[0].step == 3 && done.of[0].source == ENGINE_FROM_DISK, "%s", done.of[0].message);
    path = done.of[0].counted_path;
    j = alone(0, 21);
    run_job(&j, &done), found(&done, 20, path, "back");
    CHECK(done.of[0].source == ENGINE_FROM_DISK, "from %d", done.of[0].source);
    path = done.of[0].counted_path;
    j = alone(0, 0);
    run_job(&j, &done), found(&done, 21, path, "from memory");
    CHECK(done.of[0].source == ENGINE_FROM_MEMORY, "from %d", done.of[0].source);
    shell("rm node0/*");
    run_job(&j, &done), found(&done, 21, path, "from disk");
}

/* Two runs with one name use one disk. The second does not write, and nothing of the first is deleted or recovered. */
static void two_runs_of_one_name(void)
{
    job j = alone(0, 5), done;
    uint64_t path;
    unsigned files;
    char first[33];
    clear_world();
    run_job(&j, &done);
    path = done.of[0].counted_path, strcpy(first, done.of[0].run);
    files = count_files("disk", NULL);
    j = alone(1, 6);
    j.disk = "nowhere"; /* does not see the disk, */
    j.agents = 0;
    run_job(&j, &done);
    CHECK(done.of[0].status == ENGINE_E_NONE && strcmp(done.of[0].run, first), "%s", done.of[0].message);
    j.disk = NULL; /* then sees it */
    run_job(&j, &done), is_refused(&done, ENGINE_E_SCATTERED, first, "both");
    CHECK(count_files("disk", NULL) == files, "%u files, %u before", count_files("disk", NULL), files);
    shell("rm node1/*");
    j = alone(0, 0);
    run_job(&j, &done), found(&done, 5, path, "the first run");
    j = alone(1, 4);
    j.anew = 1; /* another run on purpose: both stay */
    run_job(&j, &done);
    CHECK(done.of[0].status == ENGINE_E_NONE && !*done.of[0].fenced && count_files("disk", NULL) > files, "%s %s", done.of[0].message, done.of[0].fenced);
    CHECK(strstr(done.of[0].said, first), "%s", done.of[0].said);
    path = done.of[0].counted_path;
    shell("rm node0/* node1/*");
    j = alone(1, 0);
    run_job(&j, &done), found(&done, 4, path, "the second run");
}

/* The agent of an abandoned attempt notices that a later attempt writes. */
static void fenced(void)
{
    job j = alone(0, 3), done;
    engine_reader *r;
    engine_error error;
    disk_manifest m;
    disk_writer w;
    char node[64], disk[64];
    uint64_t sequence = 0, step;
    unsigned files, others;
    clear_world();
    run_job(&j, &done);
    shell("cp node0/* node2");
    j = alone(0, 5);
    run_job(&j, &done);
    snprintf(node, sizeof node, "%s/node2", place), snprintf(disk, sizeof disk, "%s/disk", place);
    memset(&w, 0, sizeof w);
    w.directory = disk, w.name = "run.0", w.keep = 2;
    CHECK(!disk_read_manifest(&m, disk, "run.0", &error), "%s", error.message);
    CHECK(!engine_reader_open(&r, node, "run.0", 0, &error) && !engine_reader_next(r, 1, &sequence, &step, &error) && step == 3, "%s", error.message);
    CHECK(disk_write(&w, &m, r, step, &error) == ENGINE_E_FENCED && strstr(error.message, done.of[0].attempt) && strstr(error.message, "is later"), "%s", error.message);
    engine_reader_close(r);
    CHECK(count_files("disk", NULL) == 3, "%u files", count_files("disk", NULL));
    /* the sweep leaves files of another run and of another rank */
    shell("mkdir disk2; cp disk/* disk2; rm -r node2/*");
    j = alone(2, 9), j.disk = "disk3";
    shell("mkdir disk3");
    run_job(&j, &done);
    shell("cp disk3/*.bsnap disk");
    others = count_files("disk3", "run.0-");
    files = count_files("disk", NULL);
    j = alone(0, 6);
    run_job(&j, &done);
    CHECK(!done.of[0].status && others && count_files("disk", "run.0-") == 2 + others && count_files("disk", NULL) == files, "%u files of %u, %s", count_files("disk", NULL), files,
          done.of[0].message);
}

/* An agent finishes a file after a trainer has come back, which chooses among the listed files. The agent lists nothing, and
 * no file is deleted. */
static void late_agent(void)
{
    job j = alone(0, 5), done;
    engine_reader *r;
    engine_error error;
    engine_options o;
    engine *e;
    disk_manifest m, after;
    disk_writer w;
    char node[64], disk[64];
    uint64_t sequence = 0, step;
    unsigned files, again;
    int made;
    snprintf(node, sizeof node, "%s/node0", place), snprintf(disk, sizeof disk, "%s/disk", place);
    for (again = 0; again < 5; again++) { /* a busy machine may write only the last step: try again */
        clear_world();
        run_job(&j, &done);
        if (!disk_read_manifest(&m, disk, "run.0", &error) && m.count == 2) break;
    }
    memset(&w, 0, sizeof w), memset(&o, 0, sizeof o);
    w.directory = disk, w.name = "run.0", w.keep = 1;
    o.name = "run.0", o.directory = node, o.budget = BUDGET;
    for (again = 0; again < 2; again++) { /* step 5 is listed and written again; then it is not listed */
        CHECK(!disk_read_manifest(&m, disk, "run.0", &error) && m.count == 2 - again, "%u listed, %s", m.count, error.message);
        files = count_files("disk", NULL);
        CHECK(!engine_reader_open(&r, node, "run.0", 0, &error) && !engine_reader_next(r, 1, &sequence, &step, &error) && step == 5, "%s", error.message);
        CHECK(!engine_open(&e, &o, &error), "%s", error.message);
        CHECK(disk_write(&w, &m, r, step, &error) == ENGINE_E_SYSTEM && strstr(error.message, "has come back"), "%s", error.message);
        CHECK(!disk_read_manifest(&after, disk, "run.0", &error) && after.count == 2 - again && count_files("disk", NULL) == files, "%u listed, %u files of %u",
              after.count, count_files("disk", NULL), files);
        engine_close(e, ENGINE_KEEP);
        engine_reader_close(r);
        sequence = 0;
        shell("cd disk; rm run.0.manifest $(ls run.0-*.bsnap | sort | tail -n 1)");
        CHECK(again || !disk_mend(disk, "run.0", NULL, &m, &made, &error), "%s", error.message);
    }
}

/* After recovery, the same step is taken again. All ranks then recover the newer one. */
static void a_step_twice(void)
{
    job j = to_step(5), done;
    uint64_t path;
    unsigned round;
    clear_world();
    run_job(&j, &done);
    for (round = 0; round < 3; round++) {
        path = done.of[0].counted_path;
        j = to_step(5);
        j.again = 1;
        if (round == 2) shell("rm node0/* node1/*");
        run_job(&j, &done), found(&done, 5, path, "again");
        CHECK(done.of[0].counted == 5 && done.of[0].counted_path != path, "step %u", (unsigned)done.of[0].counted);
    }
    path = done.of[0].counted_path;
    shell("rm node0/* node1/*");
    j = to_step(0);
    run_job(&j, &done), found(&done, 5, path, "from disk");
    CHECK(done.of[0].source == ENGINE_FROM_DISK && count_files("disk", "run.0-") == 2, "%u files", count_files("disk", "run.0-"));
}

/* All memory is lost repeatedly, at any state of the agents. All ranks have a common step, and no rank begins anew. */
static void power_cuts(void)
{
    job j, done;
    unsigned round, i;
    uint64_t least = 0;
    clear_world();
    for (round = 0; round < 8; round++) {
        j = to_step(1000000);
        j.ranks = 4;
        for (i = 0; i < 4; i++) j.node[i] = i;
        j.kill = round ? 60 + (unsigned)test_random() % 60 : 400;
        run_job(&j, &done);
        for (i = 0; i < 4; i++) {
            if (round) CHECK(!done.of[i].status && done.of[i].step >= least && done.of[i].step && !done.of[i].wrong && done.of[i].path == done.of[0].path, "round %u, rank %u: %d, step %u, %s", round, i,
                             done.of[i].status, (unsigned)done.of[i].step, done.of[i].message);
        }
        least = done.of[0].step;
        shell("rm -f node*/*");
    }
    CHECK(least > 2, "only step %u", (unsigned)least);
}

/* A manifest is lost or damaged. Files are not taken for a new run, and they give the same information. */
static void lost_manifest(void)
{
    job j = to_step(6), done;
    disk_manifest m;
    engine_error error;
    char disk[64];
    uint64_t path;
    int made = 0;
    clear_world();
    run_job(&j, &done);
    path = done.of[0].counted_path;
    shell("rm -f node*/* disk/run.0.manifest; echo damaged >disk/run.1.manifest");
    j = to_step(8);
    run_job(&j, &done), found(&done, 6, path, "without manifests");
    path = done.of[0].counted_path;
    shell("rm disk/run.1.manifest");
    snprintf(disk, sizeof disk, "%s/disk", place);
    CHECK(!disk_mend(disk, "run.1", NULL, &m, &made, &error) && made && m.count == 2 && m.entries[1].step == 8, "%u: %s", m.count, error.message);
    CHECK(!disk_mend(disk, "run.1", NULL, &m, &made, &error) && !made, "%s", error.message);
    shell("rm -f node*/*");
    j = to_step(0);
    run_job(&j, &done), found(&done, 8, path, "with a manifest made again");
}

/* Four ranks, then two, then four again. */
static void other_numbers_of_ranks(void)
{
    job j = to_step(4), done;
    uint64_t path;
    clear_world();
    j.ranks = 4, j.node[2] = 2, j.node[3] = 3;
    run_job(&j, &done);
    path = done.of[0].counted_path;
    j = to_step(6);
    run_job(&j, &done), found(&done, 4, path, "two of four");
    path = done.of[0].counted_path;
    j = to_step(0);
    run_job(&j, &done), found(&done, 6, path, "two");
    j.ranks = 4, j.node[2] = 2, j.node[3] = 3;
    run_job(&j, &done); /* shards 2 and 3 of step 6 do not exist, and step 4 is not used instead */
    is_refused(&done, ENGINE_E_MISMATCH, "", "four of two");
}

/* The lineage of a run with many attempts stays short, and still tells which attempt is newer. */
static void long_lineages(void)
{
    job j = alone(0, 1), done;
    uint64_t path = 0;
    unsigned i;
    clear_world();
    run_job(&j, &done);
    shell("cp node0/* node1");
    for (i = 2; i < 2 * LINEAGE; i++) {
        path = done.of[0].counted_path;
        j = alone(0, i);
        j.agents = i % 2;
        run_job(&j, &done), found(&done, i - 1, path, "goes on");
    }
    path = done.of[0].counted_path;
    j = alone(1, 0); /* with the memory of the first attempt, which is no longer in the lineage */
    run_job(&j, &done), found(&done, 2 * LINEAGE - 1, path, "old memory");
}

static void first_snapshot(void)
{
    job j = alone(0, 3), done;
    engine_options o;
    engine_error error;
    char node[64], run[33], attempt[33];
    uint64_t x = 1;
    engine_tensor t;
    engine *e;
    clear_world();
    run_job(&j, &done);
    snprintf(node, sizeof node, "%s/node0", place);
    memset(&o, 0, sizeof o), memset(&t, 0, sizeof t);
    o.name = "run.0", o.directory = node;
    t.name = "path", t.dtype = BITSNAP_I64, t.data = &x, t.count = 1;
    CHECK(!engine_open(&e, &o, &error), "%s", error.message);
    engine_ids(e, run, attempt);
    CHECK(!*run, "%s", run);
    CHECK(engine_snapshot(e, 1, &t, 1, &error) == ENGINE_E_SCATTERED && strstr(error.message, "call engine_recover"), "%s", error.message);
    engine_close(e, ENGINE_KEEP);
    o.anew = 1;
    CHECK(!engine_open(&e, &o, &error) && !engine_snapshot(e, 1, &t, 1, &error), "%s", error.message);
    engine_ids(e, run, attempt);
    CHECK(*run && strcmp(run, done.of[0].run), "%s", run);
    engine_close(e, ENGINE_KEEP);
}

int main(void)
{
    test_program = "identity";
    if (!mkdtemp(place)) return 1;
    RUN(table);
    RUN(stale_memory);
    RUN(two_runs_of_one_name);
    RUN(fenced);
    RUN(late_agent);
    RUN(a_step_twice);
    RUN(power_cuts);
    RUN(lost_manifest);
    RUN(other_numbers_of_ranks);
    RUN(long_lineages);
    RUN(first_snapshot);
    shell("rm -rf %s", place);
    return test_failures != 0;
}
#endif
