/* test_protection.c - what the engine reports about protection, and how protection returns. Ranks stall, names of segments are
 * removed, locks are held, agents are gone, hang or fail. Uses the ranks and states of test_engine.c. */
#include "tests/unit/test.h"
#include <fcntl.h>

/* Removes this file between its open and its lock. */
static const char *unlinked_before_lock;
static int lock_file(int fd, int command, void *lock);
#define fcntl lock_file
#define main engine_main
#include "test_engine.c"
#undef main
#undef fcntl

#ifndef __linux__
int main(void) { return engine_main(); }
#else

static int lock_file(int fd, int command, void *lock)
{
    if (unlinked_before_lock && command == F_OFD_SETLK) {
        (void)unlink(unlinked_before_lock);
        unlinked_before_lock = NULL;
    }
    return fcntl(fd, command, lock);
}

static unsigned says;

static void count_says(void *context, const char *message)
{
    hear(context, message);
    says++;
}

/* Returns the number after these words. */
static uint64_t number_in(const char *text, const char *words)
{
    const char *at = strstr(text, words);
    CHECK(at != NULL, "%s: no \"%s\"", text, words);
    return at ? strtoull(at + strlen(words), NULL, 10) : 0;
}

static char *path_of_segment(const char *name)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/bitsnap-%s", place, name);
    return path;
}

/* A budget that is too small is reported with one that is enough, for one rank and for three. */
static uint64_t enough_for(uint64_t budget, int ranks, unsigned group)
{
    engine_options o = options_of("enough", budget);
    engine_transport t;
    engine_error error;
    engine *e;
    uint64_t found;
    memset(&t, 0, sizeof t);
    t.ranks = 3, t.context = &t.rank, t.send = post_letter, t.receive = want_letter, t.test = test_letter;
    if (ranks > 1) o.transport = &t, o.group = group;
    o.threads = 1;
    e = open_engine(&o);
    if (ranks > 1) e->line = first_line; /* as if agreed with the others */
    fill_member(&members[0], 1);
    CHECK(engine_snapshot(e, 1, members[0].s.tensors, TENSORS, &error) == ENGINE_E_FULL, "%d, %s", (int)error.status, error.message);
    found = number_in(error.message, "with a budget of ");
    engine_close(e, ENGINE_REMOVE);
    burn_letters(); /* of the rank whose snapshot did not fit */
    return found;
}

static void enough(void)
{
    engine_error error;
    engine_options o = options_of("round", 0);
    unsigned i, group;
    uint64_t step, budget;
    engine *e;
    begin_members(3, 0);
    budget = o.budget = enough_for(4 * N, 1, 0);
    o.threads = 1;
    e = open_engine(&o);
    for (step = 1; step < 8; step++) {
        fill_member(&members[0], step);
        CHECK(!engine_snapshot(e, step, members[0].s.tensors, TENSORS, &error), "step %u: %s", (unsigned)step, error.message);
    }
    engine_close(e, ENGINE_REMOVE);
    o.budget = budget / 2;
    e = open_engine(&o);
    for (step = 1; step < 8 && !engine_snapshot(e, step, members[0].s.tensors, TENSORS, &error); step++) fill_member(&members[0], step + 1);
    CHECK(step < 8, "half of it is enough");
    engine_close(e, ENGINE_REMOVE);
    end_members(3);
    for (group = 0; group <= 3; group += 3) {
        begin_members(3, 0);
        budget = enough_for(4 * N, 3, group);
        for (i = 0; i < 3; i++) members[i].o.budget = budget, members[i].o.group = group;
        all_members(3, 1, 5);
        for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
        end_members(3);
    }
}

static void budget_that_is_enough(void) { in_a_process(enough); } /* messages in transit are not freed */

/* One rank stalls for steps 3 to 7. There is space for two snapshots and two of the partner. The newest one is in memory at
 * each step, also for the agent, and the step that counts stays. When the rank answers, snapshots count again. With parity,
 * two snapshots cannot be taken back, so some of the stall may be left out. */
static void stalls(unsigned cut_rank, unsigned group)
{
    engine_protection p;
    engine_reader *r;
    engine_error error;
    unsigned i, recalled = 0;
    uint64_t budget, sequence = 0, step;
    begin_members(3, 0);
    budget = enough_for(4 * N, 3, group);
    for (i = 0; i < 3; i++) members[i].o.budget = budget, members[i].o.group = group, members[i].o.deltas = ENGINE_WHOLE;
    all_members(3, 1, 2);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = members[i].patience = 0.1;
    cut_off((int)cut_rank);
    all_members(3, 3, 7);
    for (i = 0; i < 3; i++) {
        const member *m = &members[i];
        engine_protected(m->e, &p);
        CHECK(p.memory_step >= (group ? 2 : 7) && p.partner_step == 2 && p.unprotected > 0, "rank %u: step %u, %u counts, %u in a row", i,
              (unsigned)p.memory_step, (unsigned)p.partner_step, (unsigned)p.unprotected);
        recalled += (unsigned)m->e->mover->recalled;
        CHECK(!engine_reader_open(&r, place, m->name, 1, &error) && !engine_reader_next(r, 1, &sequence, &step, &error) && step >= (group ? 3 : 7), "rank %u: %s", i, error.message);
        engine_reader_close(r);
        sequence = 0;
    }
    CHECK(group ? !recalled : recalled > 0, "%u snapshots were taken back", recalled);
    cut_off(-1);
    for (i = 0; i < 3; i++) { /* late data of other ranks did not get into its own snapshots */
        unsigned slot;
        members[i].patience = PATIENCE;
        CHECK(engine_wait(members[i].e, PATIENCE, &error) != ENGINE_E_BUSY, "%s", error.message);
        for (slot = 0; slot < OWN_SLOTS; slot++) {
            snapshot v;
            const char *wrong = snapshot_open(&v, &members[i].e->s, slot);
            if (!wrong) wrong = verify(&v);
            CHECK(!wrong || !*wrong, "rank %u, step %u: %s", i, (unsigned)v.seal.step, wrong);
            snapshot_free(&v);
        }
    }
    all_members(3, 8, 8); /* a rank may not have noticed yet */
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = PATIENCE; /* a busy machine is slow */
    all_members(3, 9, 9);
    for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    for (i = 0; i < 3; i++) end_member(&members[i], i == 1 ? ENGINE_REMOVE : ENGINE_KEEP);
    all_members(3, 0, 0);
    check_members(3, 9, NULL);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = members[i].patience = 0.1;
    cut_off((int)cut_rank);
    all_members(3, 10, 12); /* then all engines close while one rank stalls, and one loses its memory */
    for (i = 0; i < 3; i++) end_member(&members[i], i == 1 ? ENGINE_REMOVE : ENGINE_KEEP), members[i].patience = PATIENCE;
    burn_letters();
    all_members(3, 0, 0);
    check_members(3, 9, NULL);
    end_members(3);
}

/* With more space, the snapshot in transit counts in the end. Later snapshots, which each rank took alone, still do not count. */
static void snapshots_alone(void)
{
    engine_protection p;
    engine_error error;
    unsigned i;
    begin_members(3, 0);
    for (i = 0; i < 3; i++) members[i].o.budget = 4 * enough_for(4 * N, 3, 0);
    all_members(3, 1, 2);
    for (i = 0; i < 3; i++) members[i].e->o.partner_patience = members[i].patience = 0.1;
    cut_off(1);
    all_members(3, 3, 5);
    cut_off(-1);
    for (i = 0; i < 3; i++) {
        CHECK(engine_wait(members[i].e, PATIENCE, &error) == ENGINE_E_NONE, "rank %u: step 5 is said to count", i);
        engine_protected(members[i].e, &p);
        CHECK(p.partner_step == 3 && p.memory_step == 5, "rank %u: step %u counts of %u", i, (unsigned)p.partner_step, (unsigned)p.memory_step);
        members[i].patience = members[i].e->o.partner_patience = PATIENCE;
    }
    all_members(3, 6, 6);
    for (i = 0; i < 3; i++) CHECK(!engine_wait(members[i].e, PATIENCE, &error), "rank %u: %s", i, error.message);
    end_members(3);
}

static void lone_snapshots(void) { in_a_process(snapshots_alone); } /* one exchange of a rank may get no answer */

static void stall_of_rank_0(void) { stalls(0, 0); }
static void stall_of_rank_1(void) { stalls(1, 0); }
static void stall_in_a_group(void) { stalls(1, 3); }

static void ranks_stall(void)
{
    in_a_process(stall_of_rank_0);
    in_a_process(stall_of_rank_1);
    in_a_process(stall_in_a_group);
}

/* One rank lacks space for the snapshot of its partner. All are told each time, and the agent gets snapshots that do not
 * count. */
static void partner_without_room(void)
{
    unsigned i;
    uint64_t sequence = 0, step;
    engine_reader *r;
    engine_error error;
    begin_members(3, 84 * N);
    members[1].o.budget = 38 * N;
    for (i = 0; i < 3; i++) members[i].o.unprotected_steps = 3;
    all_members(3, 1, 5);
    for (i = 0; i < 3; i++) CHECK(members[i].failed == 2 && members[i].e->exposed == 2, "rank %u: %u", i, members[i].failed);
    CHECK(strstr(heard, "step 4 is not protected, 1 in a row: snapshots do not count") && strstr(heard, "2 in a row"), "%s", heard);
    all_members(3, 6, 6);
    CHECK(members[0].e->exposed == 3 && !strstr(heard, "3 in a row"), "%s", heard);
    CHECK(!engine_reader_open(&r, place, "rank.0", 1, &error) && !engine_reader_next(r, 1, &sequence, &step, &error) && step == 6, "%s", error.message);
    engine_reader_close(r);
    end_members(3);
}

static void no_room_for_the_partner(void) { in_a_process(partner_without_room); }

/* The test acts as the agent. */
static void agent_that_fails(void)
{
    static const char *const agent[] = { "/bin/true", NULL };
    engine_options o = options_of("agent", 28 * N);
    engine_note n = { 0, 0, NULL, "/the/log" };
    engine_protection p;
    engine_report report;
    engine_error error;
    engine_reader *r;
    uint64_t step, sequence = 0;
    engine *e;
    unsigned before;
    o.agent = agent, o.say = count_says, o.unprotected_steps = 6;
    e = open_engine(&o);
    take(e, 1); /* the agent may not have begun yet */
    e->agent_started -= 2000000000u;
    state_at(&now, 2);
    CHECK(engine_snapshot(e, 2, now.tensors, TENSORS, &error) == ENGINE_E_UNPROTECTED && strstr(error.message, "ends as soon as"), "%s", error.message);
    CHECK(recovered(e) == 2, "it is there");
    CHECK(!engine_reader_open(&r, place, "agent", 1, &error), "%s", error.message);
    e->agent_started -= 2000000000u;
    engine_reader_note(r, &n);
    take(e, 3);
    CHECK(!engine_read_status(place, "agent", &report, &error) && !strcmp(report.log, "/the/log") && report.protection.memory_step == 3 && report.protection.disk_age < 0, "%s", report.log);
    n.wrong = "the disk\nis full";
    engine_reader_note(r, &n);
    says = 0;
    for (step = 4; step < 9; step++) {
        state_at(&now, step);
        CHECK(engine_snapshot(e, step, now.tensors, TENSORS, &error) == ENGINE_E_UNPROTECTED && !strcmp(error.message, "the disk?is full"), "%s", error.message);
    }
    CHECK(says == 3 && strstr(said, "step 7 is not protected, 4 in a row"), "%u times, %s", says, said);
    CHECK(engine_snapshot(e, 9, now.tensors, TENSORS, &error) == ENGINE_E_STOP && strstr(error.message, "6 snapshots"), "%s", error.message);
    CHECK(!engine_recover(e, &step, then.tensors, TENSORS, &error) && step == 9, "it is there all the same: %s", error.message);
    engine_protected(e, &p);
    CHECK(p.unprotected == 6 && p.memory_step == 9 && p.partner_age < 0 && !strcmp(p.reason, "the disk?is full"), "%s", p.reason);
    n.wrong = NULL, n.disk_step = 9;
    engine_reader_note(r, &n);
    take(e, 10);
    engine_protected(e, &p);
    CHECK(!p.unprotected && p.disk_step == 9 && p.disk_age >= 0 && p.disk_age < 60 && !*p.reason, "%s", p.reason);
    header_of(&e->s)->beat -= 40000000000u;
    state_at(&now, 11);
    CHECK(engine_snapshot(e, 11, now.tensors, TENSORS, &error) == ENGINE_E_UNPROTECTED && strstr(error.message, "has not moved for 4"), "%s", error.message);
    engine_reader_note(r, NULL);
    /* the agent holds a snapshot and hangs: the message says that, and not that the budget is too small */
    CHECK(!engine_reader_next(r, 1, &sequence, &step, &error) && step == 11, "%s", error.message);
    for (before = 0, step = 12; step < 16 && before != ENGINE_E_FULL; step++) {
        header_of(&e->s)->beat = nanoseconds() - 5000000000u;
        before = (unsigned)engine_snapshot(e, step, now.tensors, TENSORS, &error);
        state_at(&now, step + 1);
    }
    CHECK(before == ENGINE_E_FULL && strstr(error.message, "has not moved for 5 s and holds step 11"), "%s", error.message);
    engine_reader_close(r);
    engine_close(e, ENGINE_REMOVE);
}

/* In copy mode, a snapshot that is left out after the call is reported by the next call. */
static void left_out_behind_the_call(void)
{
    engine_options o = options_of("behind", 7 * N);
    engine_error error;
    uint64_t step;
    engine *e;
    o.copy = 1;
    e = open_engine(&o);
    state_at(&now, 1);
    for (step = 1; step < 4; step++) {
        (void)engine_snapshot(e, step, now.tensors, TENSORS, &error);
        CHECK(error.status == (step == 1 ? ENGINE_OK : ENGINE_E_UNPROTECTED) && (step == 1 || strstr(error.message, "with a budget of")), "%d, %s", (int)error.status, error.message);
        CHECK(engine_wait(e, PATIENCE, &error) == ENGINE_E_NONE, "%s", error.message);
    }
    CHECK(!engine_snapshot(e, 4, now.tensors + 5, 1, &error) || error.status == ENGINE_E_UNPROTECTED, "%s", error.message);
    CHECK(!engine_wait(e, PATIENCE, &error), "%s", error.message);
    CHECK(!engine_snapshot(e, 5, now.tensors + 5, 1, &error) && !e->exposed, "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
}

/* The name of the segment is removed, as by an epilog or RemoveIPC. The next snapshot makes the name again, with the same
 * content. If another segment has taken the name, a message says so, and that segment stays. */
static void name_is_removed(void)
{
    engine_options o = options_of("nameless", BUDGET);
    engine_protection p;
    engine_error error;
    engine_reader *r;
    struct stat st;
    engine *e = open_engine(&o), *other;
    uint64_t step;
    const char *path = path_of_segment("nameless");
    take(e, 1);
    CHECK(!engine_reader_open(&r, place, "nameless", 1, &error), "%s", error.message);
    CHECK(!unlink(path), "%s", path);
    engine_protected(e, &p);
    CHECK(p.memory_age < 0 && strstr(p.reason, "name is gone"), "%s", p.reason);
    take(e, 2);
    CHECK(strstr(said, "it is made again") && !stat(path, &st) && engine_reader_is_removed(r), "%s", said);
    engine_reader_close(r);
    CHECK(recovered(e) == 2, "what it held");
    CHECK(!unlink(path), "%s", path);
    CHECK(!engine_open(&other, &o, &error), "%s", error.message);
    state_at(&now, 3);
    CHECK(engine_snapshot(e, 3, now.tensors, TENSORS, &error) == ENGINE_E_UNPROTECTED && strstr(error.message, "another trainer has made one"), "%s", error.message);
    CHECK(recovered(e) == 3, "it is there as long as this process is");
    engine_close(e, ENGINE_REMOVE);
    CHECK(!stat(path, &st), "the other's segment is removed");
    take(other, 1);
    engine_close(other, ENGINE_KEEP);
    e = open_engine(&o);
    CHECK(recovered(e) == 1, "the other's");
    CHECK(!unlink(path), "%s", path);
    take(e, 2);
    engine_close(e, ENGINE_KEEP); /* the successor has everything */
    e = open_engine(&o);
    CHECK(recovered(e) == 2, "the successor's");
    CHECK(engine_recover(e, &step, then.tensors, TENSORS, &error) == ENGINE_OK, "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
}

/* Every rank loses the name of its segment. The copies that ranks keep for others stay, too. */
static void names_of_ranks_are_removed(void)
{
    unsigned i;
    begin_members(3, 84 * N);
    all_members(3, 1, 2);
    for (i = 0; i < 3; i++) CHECK(!unlink(path_of_segment(members[i].name)), "%s", members[i].name);
    all_members(3, 3, 3);
    for (i = 0; i < 3; i++) CHECK(!members[i].failed && !members[i].error.status, "rank %u: %s", i, members[i].error.message);
    for (i = 0; i < 3; i++) end_member(&members[i], i == 2 ? ENGINE_REMOVE : ENGINE_KEEP);
    all_members(3, 0, 0);
    check_members(3, 3, NULL);
    end_members(3);
}

/* A segment whose name is removed between open and lock is no longer used by a trainer, an agent or engine_remove. */
static void name_lost_before_the_lock(void)
{
    const engine_options o = options_of("raced", BUDGET);
    char *const path = strdup(path_of_segment("raced"));
    engine_error error;
    engine_reader *r;
    struct stat st;
    engine *e = open_engine(&o);
    engine_close(e, ENGINE_KEEP);
    unlinked_before_lock = path;
    e = open_engine(&o);
    CHECK(!unlinked_before_lock && !stat(path, &st), "a segment without a name is held");
    take(e, 1);
    engine_close(e, ENGINE_KEEP);
    unlinked_before_lock = path;
    CHECK(engine_reader_open(&r, place, "raced", 1, &error) == ENGINE_E_NONE && !r, "%s", error.message);
    e = open_engine(&o);
    engine_close(e, ENGINE_KEEP);
    unlinked_before_lock = path;
    CHECK(engine_remove(place, "raced", &error) == ENGINE_E_NONE, "%s", error.message);
    free(path);
}

/* A forked child of the trainer, such as a data loader, outlives it. It has neither the lock nor the engine. */
static void forked_children(void)
{
    const engine_options o = options_of("forked", BUDGET);
    engine_error error;
    uint64_t step;
    int pipes[2], status;
    pid_t trainer, child = 0;
    engine *e;
    CHECK(!pipe(pipes), "pipe");
    trainer = fork();
    if (!trainer) {
        e = open_engine(&o);
        take(e, 1);
        child = fork();
        if (!child) {
            const int refused = engine_snapshot(e, 2, now.tensors, TENSORS, &error) == ENGINE_E_ARGUMENT && strstr(error.message, "child") &&
                                engine_recover(e, &step, now.tensors, TENSORS, &error) == ENGINE_E_ARGUMENT && engine_wait(e, 1, &error) == ENGINE_E_ARGUMENT;
            engine_protection p;
            engine_protected(e, &p);
            engine_close(e, ENGINE_REMOVE);
            child = refused && strstr(p.reason, "child") ? getpid() : -1;
            if (write(pipes[1], &child, sizeof child) != sizeof child) _exit(1);
            sleep(60);
            _exit(0);
        }
        for (;;) pause();
    }
    CHECK(read(pipes[0], &child, sizeof child) == sizeof child && child > 0, "the child was not refused");
    kill(trainer, SIGKILL);
    waitpid(trainer, &status, 0);
    e = open_engine(&o);
    if (e) CHECK(recovered(e) == 1, "the trainer's");
    if (child > 0) kill(child, SIGKILL);
    engine_close(e, ENGINE_REMOVE);
    close(pipes[0]), close(pipes[1]);
}

/* A child made without fork of the C library keeps the lock. The message says so. */
static void who_is_busy(void)
{
    const engine_options o = options_of("busy", BUDGET);
    engine_error error;
    engine *e = open_engine(&o), *other;
    char words[64];
    int status;
    const pid_t gone = fork();
    if (!gone) _exit(0);
    waitpid(gone, &status, 0);
    snprintf(words, sizeof words, "another trainer has it, process %d", (int)getpid());
    CHECK(engine_open(&other, &o, &error) == ENGINE_E_BUSY && strstr(error.message, words), "%s", error.message);
    header_of(&e->s)->trainer_pid = (uint64_t)gone;
    CHECK(engine_open(&other, &o, &error) == ENGINE_E_BUSY && strstr(error.message, "is gone: a child of it has it"), "%s", error.message);
    engine_close(e, ENGINE_REMOVE);
}

int main(void)
{
    test_program = "protection";
    if (!mkdtemp(place)) return 1;
    state_make(&now);
    state_make(&then);
    RUN(budget_that_is_enough);
    RUN(ranks_stall);
    RUN(lone_snapshots);
    RUN(no_room_for_the_partner);
    RUN(agent_that_fails);
    RUN(left_out_behind_the_call);
    RUN(name_is_removed);
    RUN(names_of_ranks_are_removed);
    RUN(name_lost_before_the_lock);
    RUN(forked_children);
    RUN(who_is_busy);
    state_free(&now);
    state_free(&then);
    CHECK(!rmdir(place), "something is left in %s", place);
    return test_failures != 0;
}
#endif
