/* engine_agent.c - looks after segments without their trainers: writes snapshots to disk, shows their state, removes old
 * segments. MIT licence, see bitsnap.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "engine_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char help[] =
    "engine - looks after checkpoints in memory: writes them to disk behind the trainer, shows what is there, cleans up\n"
    "\n"
    "usage: engine agent [options] NAME      stays, in a session of its own, until the segment is removed\n"
    "       engine status [options] [NAME...]  what the segments hold; all of them without NAME\n"
    "       engine remove [options] NAME...    removes segments that no trainer and no agent has\n"
    "       engine fsck DIR [NAME [RUN]]       makes manifests in DIR again that are lost or damaged, from the files; RUN: the id of a run, if\n"
    "                                          NAME has files of several\n"
    "\n"
    "  --directory DIR  where segments are                            [/dev/shm]\n"
    "  --disk DIR       agent: writes files NAME-STEP-ATTEMPT.bsnap to DIR, and NAME.manifest  [none]\n"
    "  --store          agent: writes to the store DIR/NAME.store instead, as deltas: bitsnap log and restore take it\n"
    "  --every N        agent: only of steps that are a multiple of N [1]\n"
    "  --rate MB        agent: megabytes a second at most             [as fast as the disk is]\n"
    "  --keep N         agent: files or steps that stay, 1 to 63      [2]\n"
    "  --linger S       agent: seconds without a trainer after which it removes the segment, and those of other ranks\n"
    "                   of the run that nobody has: RUN.0, RUN.1, ...  [3600]\n"
    "  --log FILE       agent: what it does, a line each, appended    [DIR/NAME.log with --disk, else nowhere]\n"
    "  --foreground     agent: does not go to the background\n"
    "  --help           print this\n"
    "\n"
    "exit status: 0 done, 1 something failed, 2 wrong usage\n";

typedef struct options {
    const char *directory, *disk, *log;
    uint64_t every, keep;
    double rate, linger;
    int foreground, store;
} options;

static int usage(const char *format, ...)
{
    va_list arguments;
    fputs("engine: ", stderr);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputs("\nTry engine --help.\n", stderr);
    return 2;
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ================================================================================= SEGMENTS */

#define PREFIX "bitsnap-"

/* NAME.PROCESS.new is a segment under construction. It is removed if that process is gone. */
static int unfinished(const char *directory, const char *file)
{
    char path[DISK_PATH], *end;
    const char *dot = strrchr(file, '.'), *p = dot;
    long process;
    if (!dot || strcmp(dot, ".new")) return 0;
    while (p > file && p[-1] >= '0' && p[-1] <= '9') p--;
    process = strtol(p, &end, 10);
    if (p == dot || end != dot || p == file || p[-1] != '.' || process <= 0) return 0;
    if (kill((pid_t)process, 0) && errno == ESRCH && snprintf(path, sizeof path, "%s/%s", directory, file) < (int)sizeof path) unlink(path);
    return 1;
}

/* Calls each(context, name) for every segment of a directory. */
static void for_each(const char *directory, void (*each)(void *context, const char *name), void *context)
{
    DIR *d = opendir(directory);
    struct dirent *x;
    while (d && (x = readdir(d)) != NULL)
        if (!strncmp(x->d_name, PREFIX, strlen(PREFIX)) && !unfinished(directory, x->d_name)) each(context, x->d_name + strlen(PREFIX));
    if (d) closedir(d);
}

static const char *size_of(char text[16], uint64_t bytes)
{
    static const char units[] = "BKMGTP";
    double x = (double)bytes;
    unsigned u = 0;
    while (x >= 9999.5 && units[u + 1]) x /= 1024, u++;
    snprintf(text, 16, u ? "%.0f %c" : "%.0f%c", x, u ? units[u] : ' ');
    return text;
}

typedef struct showing {
    const char *directory;
    int failed, shown;
} showing;

static void show_step(const char *where, uint64_t step, double age)
{
    if (age >= 0) printf("  protected by %s: step %" PRIu64 ", %.1f s old\n", where, step, age);
}

static void show(void *context, const char *name)
{
    showing *s = (showing *)context;
    engine_report r;
    engine_error error;
    char a[16], b[16], c[16], who[96] = "";
    unsigned i;
    if (engine_read_status(s->directory, name, &r, &error)) {
        fprintf(stderr, "engine: %s\n", error.message);
        s->failed = 1;
        return;
    }
    if (r.trainer) snprintf(who, sizeof who, ", trainer %" PRIu64, r.trainer_pid);
    if (r.agent) snprintf(who + strlen(who), sizeof who - strlen(who), ", agent %" PRIu64, r.agent_pid);
    printf("%s: %s of %s used%s\n", name, size_of(a, r.chunks_used * r.chunk), size_of(b, r.size), *who ? who : ", nobody has it");
    for (i = 0; i < ENGINE_SLOTS; i++) {
        const engine_slot *x = &r.slots[i];
        if (!x->whole) continue;
        if (x->parity) {
            printf("  slot %u: step %" PRIu64 ", %.1f s old, parity of a group of %" PRIu64 " in %s%s\n", i, x->step, x->age, x->parity,
                   size_of(c, x->chunks * r.chunk), x->counts ? "" : ", does not count");
            continue;
        }
        if (x->peer) printf("  slot %u, of rank %" PRIu64 ":", i, x->rank);
        else printf("  slot %u:", i);
        printf(" step %" PRIu64 ", %.1f s old, %" PRIu64 " tensors, %s as %s in %s", x->step, x->age, x->tensors, size_of(a, x->elements_size),
               size_of(b, x->frames_size), size_of(c, x->chunks * r.chunk));
        if (x->max_relative > 0) printf(", moments within %.2g %%", 100 * x->max_relative);
        printf("%s%s\n", x->counts ? "" : ", does not count", x->pinned ? ", being read" : "");
    }
    if (r.disk_age > 0) printf("  disk: step %" PRIu64 ", %.1f s ago, %" PRIu64 " left out\n", r.disk_step, r.disk_age, r.skipped);
    if (r.agent && r.protection.agent_age > 5) printf("  the agent has not moved for %.0f s\n", r.protection.agent_age);
    if (*r.log) printf("  log: %s\n", r.log);
    show_step("memory", r.protection.memory_step, r.protection.memory_age);
    show_step("partner", r.protection.partner_step, r.protection.partner_age);
    show_step("disk", r.protection.disk_step, r.protection.disk_age);
    if (r.protection.unprotected) printf("  NOT PROTECTED for %" PRIu64 " snapshots\n", r.protection.unprotected);
    if (*r.protection.reason) printf("  wrong: %s\n", r.protection.reason);
    s->shown = 1;
}

/* ================================================================================= AGENT */

typedef struct agent {
    options o;
    const char *name;
    engine_reader *r;
    disk_manifest m;
    uint64_t sequence, skipped, disk_step;
    char told[sizeof ((engine_error *)0)->message]; /* the last read error that was reported, or "" */
    char fenced[sizeof ((engine_error *)0)->message]; /* the last ENGINE_E_FENCED that was reported, or "" */
    char wrong[sizeof ((engine_error *)0)->message]; /* why the last write failed, or "" */
    char log[DISK_PATH];
    int has_manifest;
    const char *run; /* the name up to the dot before the rank, or "" */
} agent;

static volatile sig_atomic_t stopped;
static void stop(int signal) { stopped = signal; }

static void say(void *context, const char *message)
{
    const agent *a = (const agent *)context;
    const time_t t = time(NULL);
    struct tm local;
    char when[32] = "";
    FILE *f = *a->log ? fopen(a->log, "a") : a->o.foreground ? stderr : NULL;
    if (!f) return;
    if (localtime_r(&t, &local)) strftime(when, sizeof when, "%Y-%m-%d %H:%M:%S", &local);
    fprintf(f, "%s engine %s: %s\n", when, a->name, message);
    if (f != stderr) fclose(f);
}

static void tell(const agent *a, const char *format, ...)
{
    char message[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    say((void *)(uintptr_t)a, message);
}

/* Writing ends if the segment is removed, on a signal, or if the trainer lacks room, because training has priority. */
static int let_go(void *context)
{
    const agent *a = (const agent *)context;
    engine_reader_note(a->r, NULL);
    return stopped || engine_reader_is_wanted(a->r) || engine_reader_is_removed(a->r);
}

/* Tells the trainer and "engine status" what is on disk. `wrong`: why the last write failed, or null. */
static void note(agent *a, const char *wrong)
{
    engine_note n;
    if (wrong != a->wrong) snprintf(a->wrong, sizeof a->wrong, "%s", wrong ? wrong : "");
    n.disk_step = a->disk_step, n.skipped = a->skipped, n.wrong = wrong, n.log = *a->log ? a->log : NULL;
    engine_reader_note(a->r, &n);
}

/* Makes the directory if it is missing, and reads its manifest once. The error message is meant for the trainer. */
static engine_status begin_disk(agent *a, engine_error *error)
{
    struct stat st;
    int made;
    const int failed = mkdir(a->o.disk, 0777) && errno != EEXIST;
    if (failed || stat(a->o.disk, &st) || !S_ISDIR(st.st_mode))
        return engine_fail(error, ENGINE_E_NONE, "nothing is on disk: %.120s: %s", a->o.disk, failed ? strerror(errno) : "is no directory");
    if (a->has_manifest) return engine_good(error);
    if (!a->o.store && !disk_mend(a->o.disk, a->name, NULL, &a->m, &made, error) && made)
        tell(a, "the manifest was lost: %u files are listed again", a->m.count);
    if (disk_read_manifest(&a->m, a->o.disk, a->name, error) && error->status != ENGINE_E_NONE) return error->status;
    if (a->m.count) a->disk_step = a->m.entries[a->m.count - 1].step;
    a->has_manifest = 1;
    return engine_good(error);
}

/* Writes the newest snapshot to disk. Returns 1 if there was one, even if writing failed. */
static int write_newest(agent *a)
{
    disk_writer w;
    const uint64_t before = a->sequence;
    const double start = now();
    engine_error error;
    engine_status status;
    uint64_t step;
    if (begin_disk(a, &error)) { /* snapshots are still in memory; the next call tries again */
        if (strcmp(error.message, a->wrong)) note(a, error.message), tell(a, "%s", error.message);
        return 0;
    }
    status = engine_reader_next(a->r, a->o.every, &a->sequence, &step, &error);
    memset(&w, 0, sizeof w);
    w.directory = a->o.disk, w.name = a->name, w.rate = a->o.rate, w.keep = (unsigned)a->o.keep, w.let_go = let_go, w.context = a;
    engine_reader_disk(a->r, a->o.every, &w.common);
    if (status && status != ENGINE_E_NONE && strcmp(a->told, error.message))
        tell(a, "%s", strcpy(a->told, error.message)); /* each error is reported once, although reading is repeated */
    if (status) return 0;
    *a->told = 0;
    if (a->sequence > before + 1 && a->o.every == 1 && before) {
        a->skipped += a->sequence - before - 1;
        tell(a, "%" PRIu64 " snapshots before step %" PRIu64 " are not on disk: it is slower than the trainer", a->sequence - before - 1, step);
    }
    if (a->o.store ? disk_store_write(&w, a->r, step, &error) : disk_write(&w, &a->m, a->r, step, &error)) {
        char wrong[sizeof a->wrong];
        a->skipped++;
        snprintf(wrong, sizeof wrong, "step %" PRIu64 " is not on disk: %.900s", step,
                 error.status != ENGINE_E_BUSY ? error.message
                 : stopped ? "the agent was told to stop"
                           : "the trainer needed its room; a budget for three snapshots, or a faster disk, would help");
        /* the same owner is reported once */
        if (error.status != ENGINE_E_FENCED || strcmp(a->fenced, error.message)) tell(a, "%s", wrong);
        snprintf(a->fenced, sizeof a->fenced, "%s", error.status == ENGINE_E_FENCED ? error.message : "");
        note(a, wrong);
    } else {
        *a->fenced = 0;
        a->disk_step = step;
        tell(a, "step %" PRIu64 " is on disk, in %.2f s", step, now() - start);
        note(a, NULL);
    }
    engine_reader_release(a->r);
    return 1;
}

typedef struct cleaning {
    const agent *a;
    double linger;
} cleaning;

/* Writes the name up to its rank, "run7." of "run7.3", to `run`; "" if the name does not end with a rank. */
static void run_of_name(char run[256], const char *name)
{
    const char *dot = strrchr(name, '.');
    const size_t size = dot && dot[1] && !dot[1 + strspn(dot + 1, "0123456789")] ? (size_t)(dot - name) + 1 : 0;
    snprintf(run, 256, "%.*s", (int)size, name);
}

/* Removes an unused segment of this run if its youngest step is old enough. */
static void clean(void *context, const char *name)
{
    const cleaning *c = (const cleaning *)context;
    engine_report r;
    engine_error error;
    double youngest = -1;
    char run[256];
    unsigned i;
    run_of_name(run, name);
    if (!*run || strcmp(run, c->a->run) || !strcmp(name, c->a->name) || engine_read_status(c->a->o.directory, name, &r, &error) || r.trainer ||
        r.agent)
        return;
    for (i = 0; i < ENGINE_SLOTS; i++)
        if (r.slots[i].whole && (youngest < 0 || r.slots[i].age < youngest)) youngest = r.slots[i].age;
    if (youngest < c->linger) return;
    if (!engine_remove(c->a->o.directory, name, &error)) tell(c->a, "removed the segment %s, that nobody had for %.0f s", name, youngest);
}

static int look_after(agent *a)
{
    const struct timespec pause = { 0, 20000000 };
    double seen = now(), cleaned = seen - 1000;
    engine_error error;
    int removed = 0;
    while (!stopped && !engine_reader_is_removed(a->r)) {
        const int busy = a->o.disk && write_newest(a);
        const cleaning c = { a, a->o.linger };
        engine_reader_note(a->r, NULL);
        if (!engine_reader_is_alone(a->r)) seen = now();
        if (now() - seen > a->o.linger) {
            removed = 1;
            break;
        }
        if (now() - cleaned > 600) for_each(a->o.directory, clean, (void *)(uintptr_t)&c), cleaned = now();
        if (!busy) nanosleep(&pause, NULL);
    }
    if (!removed) tell(a, stopped ? "ends: it was told to stop" : "ends: somebody has removed the segment");
    engine_reader_close(a->r);
    if (!removed) return 0;
    if (engine_remove(a->o.directory, a->name, &error)) tell(a, "%s", error.message);
    else tell(a, "removed the segment: no trainer for %.0f s", a->o.linger);
    return 0;
}

/* Moves the agent to a session of its own, without a waiting parent, so it survives the trainer. */
static int go_to_background(void)
{
    pid_t child = fork();
    int fd;
    if (child < 0) return 1;
    if (child) _exit(0);
    (void)setsid();
    child = fork();
    if (child) _exit(child < 0);
    fd = open("/dev/null", O_RDWR);
    if (fd >= 0) (void)dup2(fd, 0), (void)dup2(fd, 1), (void)dup2(fd, 2);
    if (fd > 2) close(fd);
    return 0;
}

static int run_agent(const options *o, const char *name)
{
    static agent a;
    static char run[256];
    engine_note first = { 0, 0, NULL, NULL };
    engine_error error;
    struct sigaction action;
    a.o = *o;
    a.name = name;
    run_of_name(run, name);
    a.run = run;
    if (o->log || (o->disk && !o->foreground)) {
        char here[DISK_PATH] = "";
        const char *const file = o->log ? o->log : o->disk;
        if (*file != '/' && !getcwd(here, sizeof here)) *here = 0;
        if (snprintf(a.log, sizeof a.log, o->log ? "%s%s%s" : "%s%s%s/%s.log", here, *here ? "/" : "", file, name) >= (int)sizeof a.log) *a.log = 0;
    }
    if (o->store) engine_use_stores();
    if (o->disk && begin_disk(&a, &error) && error.status != ENGINE_E_NONE) {
        fprintf(stderr, error.status == ENGINE_E_DAMAGED ? "engine: %s; move %s away, so that a new one can be begun\n" : "engine: %s\n",
                error.message, o->store ? "the whole store" : "it");
        return 1;
    }
    if (!o->foreground && go_to_background()) {
        fprintf(stderr, "engine: cannot go to the background: %s\n", strerror(errno));
        return 1;
    }
    memset(&action, 0, sizeof action);
    action.sa_handler = stop;
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    action.sa_handler = SIG_IGN;
    sigaction(SIGHUP, &action, NULL);
    if (engine_reader_open(&a.r, o->directory, name, 1, &error)) {
        if (o->foreground) fprintf(stderr, "engine: %s\n", error.message);
        tell(&a, "%s", error.message);
        return error.status != ENGINE_E_BUSY;
    }
    first.log = *a.log ? a.log : NULL;
    engine_reader_note(a.r, &first);
    tell(&a, "begins");
    return look_after(&a);
}

/* ================================================================================= FSCK */

/* Mends and reports the manifest of one name. Returns 1 if it is lost for good. */
static int mend_one(const char *directory, const char *name, const engine_id *run)
{
    char id[ID_TEXT];
    disk_manifest m;
    engine_error error;
    int made;
    if (disk_mend(directory, name, run, &m, &made, &error)) {
        fprintf(stderr, "engine: %s\n", error.message);
        return 1;
    }
    printf("%s: run %s, %u files, %s\n", name, engine_id_text(id, &m.line.run), m.count, made ? "manifest made again" : "ok");
    return 0;
}

/* Extracts the name from that of a file: "run.0" from "run.0-0000000005-1a2b3c4d.bsnap" or "run.0.manifest". Returns 0 for other
 * files. */
static int name_of_file(char name[256], const char *file)
{
    const size_t size = strlen(file), id = 33;
    size_t n = size > strlen(".manifest") ? size - strlen(".manifest") : 0;
    const char *p;
    snprintf(name, 256, "%s", file);
    if (size >= 256) return 0;
    if (n && !strcmp(file + n, ".manifest")) {
        if (n > id && file[n - id] == '.' && strspn(file + n - id + 1, "0123456789abcdef") >= id - 1) return 0; /* put aside */
        return name[n] = 0, 1;
    }
    n = size > strlen("-12345678.bsnap") ? size - strlen("-12345678.bsnap") : 0;
    if (!n || strcmp(file + size - strlen(".bsnap"), ".bsnap") || file[n] != '-') return 0;
    for (p = file + n; p > file && p[-1] >= '0' && p[-1] <= '9';) p--;
    return p > file + 1 && p[-1] == '-' ? name[p - 1 - file] = 0, 1 : 0;
}

static int run_fsck(int count, char **arguments)
{
    char (*names)[256] = NULL, name[256];
    const char *directory = arguments[0];
    size_t n = 0, i;
    engine_id run;
    struct dirent *x;
    int failed = 0;
    DIR *d;
    if (count > 2 && engine_parse_id(&run, arguments[2])) return usage("'%s' is no id of a run", arguments[2]);
    if (count > 1) return mend_one(directory, arguments[1], count > 2 ? &run : NULL);
    d = opendir(directory);
    if (!d) return fprintf(stderr, "engine: %s: %s\n", directory, strerror(errno)), 1;
    while ((x = readdir(d)) != NULL) {
        char (*more)[256];
        if (!name_of_file(name, x->d_name)) continue;
        for (i = 0; i < n && strcmp(names[i], name); i++) continue;
        if (i < n || !(more = (char (*)[256])realloc(names, (n + 1) * sizeof *names))) continue;
        names = more;
        strcpy(names[n++], name);
    }
    closedir(d);
    for (i = 0; i < n; i++) failed |= mend_one(directory, names[i], NULL);
    if (!n) printf("no files of an engine in %s\n", directory);
    free(names);
    return failed;
}

/* ================================================================================= MAIN */

static int parse(options *o, int argc, char **argv, int *names)
{
    int i, k;
    *names = 1;
    for (i = 1; i < argc; i++) {
        const struct { const char *name; const char **text; uint64_t *number; double *real; } table[] = {
            { "--directory", &o->directory, NULL, NULL }, { "--disk", &o->disk, NULL, NULL }, { "--log", &o->log, NULL, NULL },
            { "--every", NULL, &o->every, NULL }, { "--keep", NULL, &o->keep, NULL }, { "--rate", NULL, NULL, &o->rate },
            { "--linger", NULL, NULL, &o->linger }
        };
        char *end = NULL;
        double x = 0;
        if (argv[i][0] != '-') {
            argv[(*names)++] = argv[i];
            continue;
        }
        if (!strcmp(argv[i], "--foreground") || !strcmp(argv[i], "--store")) {
            *(argv[i][2] == 'f' ? &o->foreground : &o->store) = 1;
            continue;
        }
        for (k = 0; k < 7 && strcmp(argv[i], table[k].name); k++) continue;
        if (k == 7) return usage("unknown option %s", argv[i]);
        if (++i == argc || !*argv[i]) return usage("%s wants a value", table[k].name);
        if (table[k].text) {
            *table[k].text = argv[i];
            continue;
        }
        x = strtod(argv[i], &end);
        if (*end || !(x >= 0 && x <= 1e9) || (table[k].number && (x < 1 || x > (double)(uint64_t)x)))
            return usage("%s: '%s' is no number for it", table[k].name, argv[i]);
        if (table[k].number) *table[k].number = (uint64_t)x;
        else *table[k].real = x;
    }
    if (o->store && !o->disk) return usage("--store wants --disk");
    if (o->keep >= DISK_ENTRIES) return usage("--keep takes at most %d", DISK_ENTRIES - 1);
    o->rate *= 1e6;
    return 0;
}

int main(int argc, char **argv)
{
    options o = { "/dev/shm", NULL, NULL, 1, 2, 0, 3600, 0, 0 };
    showing s = { NULL, 0, 0 };
    engine_error error;
    int names, i, failed = 0;
    for (i = 1; i < argc; i++)
        if (!strcmp(argv[i], "--help")) return fputs(help, stdout) < 0 || fflush(stdout) != 0;
    if (argc < 2) return usage("agent, status or remove?");
    if (parse(&o, argc, argv, &names)) return 2;
    s.directory = o.directory;
    if (names > 1 && !strcmp(argv[1], "agent")) return names == 3 ? run_agent(&o, argv[2]) : usage("agent wants the name of one segment");
    if (names > 1 && !strcmp(argv[1], "status")) {
        for (i = 2; i < names; i++) show(&s, argv[i]);
        if (names == 2) for_each(o.directory, show, &s);
        if (names == 2 && !s.shown && !s.failed) printf("no segments in %s\n", o.directory);
        return s.failed || fflush(stdout) != 0;
    }
    if (names > 1 && !strcmp(argv[1], "fsck"))
        return names > 2 && names < 6 ? run_fsck(names - 2, argv + 2) : usage("fsck wants a directory, and perhaps a name and a run");
    if (names < 2 || strcmp(argv[1], "remove")) return usage("'%s' is none of agent, status, fsck and remove", names > 1 ? argv[1] : "");
    if (names == 2) return usage("remove wants names of segments");
    for (i = 2; i < names; i++) {
        if (!engine_remove(o.directory, argv[i], &error)) continue;
        fprintf(stderr, "engine: %s\n", error.message);
        failed = 1;
    }
    return failed;
}
