/* engine_world.h - a small cluster for tests of the engine. Directories are the memory of nodes and the disk that they share.
 * A job is a child process, and its ranks and agents are threads. A job goes on from what it finds, and trains. The state of a
 * rank depends only on a number, its path. Each step mixes the number of the job into the path, so a state tells which jobs
 * made it, and no two jobs make the same state. */
#ifndef ENGINE_WORLD_H
#define ENGINE_WORLD_H
#include "tests/unit/test.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "docs/examples/file/bitsnap_file.h"
#include "docs/examples/engine/bitsnap_engine.c"
static int disk_is_full;

static ssize_t write_some(int fd, const void *bytes, size_t size)
{
    if (!disk_is_full) return write(fd, bytes, size);
    errno = ENOSPC;
    return -1;
}

#define write(fd, bytes, size) write_some(fd, bytes, size)
#include "docs/examples/engine/engine_disk.c"
#undef write

enum { MOST_RANKS = 4, NODES = 6, SHARD = 3000, BUDGET = 1 << 20, LETTERS = 512 };

static char place[] = "/tmp/test_world.XXXXXX";

/* ---- the task and the result of a job, in memory that it shares with the test ---- */

typedef struct outcome {
    int status;             /* of engine_recover; -1: killed before */
    char message[sizeof ((engine_error *)0)->message];
    uint64_t step, path;    /* the recovered ones */
    int source, wrong;      /* wrong: the state does not fit the path */
    uint64_t counted, counted_path; /* the last step that counts, as it knows */
    char run[33], attempt[33];
    char fenced[300];       /* the reason that its agent may not write */
    char said[2000];
} outcome;

typedef struct job {
    unsigned ranks, node[MOST_RANKS];
    uint64_t number, last;  /* trains up to this step */
    int anew, agents, again; /* again: takes the recovered step again */
    char adopt[33];
    int full;               /* 1: the disk is full */
    unsigned pause;         /* microseconds in each step */
    unsigned stall;         /* milliseconds that rank 1 waits in every eighth step, or 0 */
    double patience;        /* partner_patience while it trains; 0: 20 s */
    unsigned kill;          /* milliseconds before it is killed; 0: never */
    unsigned stop;          /* milliseconds before it is stopped, for the same time; 0: never */
    const char *name, *disk; /* null: "run", "disk" */
    outcome of[MOST_RANKS];
} job;

static uint64_t mixed(uint64_t path, uint64_t number, uint64_t step)
{
    const uint64_t x[3] = { path, number, step };
    return bitsnap_hash(x, sizeof x);
}

/* ---- letters between ranks ---- */

typedef struct letter {
    unsigned from, to;
    int tag, used;
    void *bytes;
    size_t size;
    uint64_t number;
} letter;

typedef struct wish {
    letter l;
    int receives;
} wish;

static struct {
    pthread_mutex_t mutex;
    letter letters[LETTERS];
    uint64_t sent[MOST_RANKS][MOST_RANKS][16], wished[MOST_RANKS][MOST_RANKS][16];
} post = { PTHREAD_MUTEX_INITIALIZER, { { 0, 0, 0, 0, NULL, 0, 0 } }, { { { 0 } } }, { { { 0 } } } };

static int post_send_letter(void *context, unsigned to, int tag, const void *bytes, size_t size, void **request)
{
    const unsigned from = *(const unsigned *)context;
    unsigned i;
    pthread_mutex_lock(&post.mutex);
    for (i = 0; i < LETTERS && post.letters[i].used; i++) continue;
    if (i == LETTERS) abort();
    post.letters[i].from = from, post.letters[i].to = to, post.letters[i].tag = tag, post.letters[i].size = size, post.letters[i].used = 1;
    post.letters[i].bytes = memcpy(malloc(size + 1), bytes, size);
    post.letters[i].number = post.sent[from][to][tag]++;
    pthread_mutex_unlock(&post.mutex);
    *request = calloc(1, sizeof(wish));
    return 0;
}

static int post_want_letter(void *context, unsigned from, int tag, void *bytes, size_t size, void **request)
{
    wish *w = (wish *)calloc(1, sizeof *w);
    w->receives = 1, w->l.from = from, w->l.to = *(const unsigned *)context, w->l.tag = tag, w->l.bytes = bytes, w->l.size = size;
    pthread_mutex_lock(&post.mutex);
    w->l.number = post.wished[from][w->l.to][tag]++;
    pthread_mutex_unlock(&post.mutex);
    *request = w;
    return 0;
}

static int post_test_letter(void *context, void **request, int *done)
{
    wish *w = (wish *)*request;
    unsigned i;
    (void)context;
    *done = !w->receives;
    pthread_mutex_lock(&post.mutex);
    for (i = 0; i < LETTERS && !*done; i++) {
        letter *l = &post.letters[i];
        if (!l->used || l->from != w->l.from || l->to != w->l.to || l->tag != w->l.tag || l->number != w->l.number) continue;
        if (l->size != w->l.size) abort();
        memcpy(w->l.bytes, l->bytes, l->size);
        free(l->bytes);
        l->used = 0, *done = 1;
    }
    pthread_mutex_unlock(&post.mutex);
    if (*done) free(w);
    return 0;
}

/* ---- a rank ---- */

typedef struct rank_of_job {
    job *j;
    unsigned rank;
    char name[64], node[64], disk[64];
    engine_transport t;
    engine_options o;
    engine *e;
    uint64_t path, path_back;
    float shard[SHARD], shard_back[SHARD];
    char shard_name[16];
    pthread_t thread, agent;
    int stop, has_agent;
} rank_of_job;

static pthread_barrier_t together;

static void world_say(void *context, const char *message)
{
    outcome *x = (outcome *)context;
    const size_t n = strlen(x->said);
    snprintf(x->said + n, sizeof x->said - n, "%s\n", message);
}

/* Fills the shard of a rank, which depends on the path. */
static void shard_at(float *shard, uint64_t path, unsigned rank)
{
    unsigned i;
    for (i = 0; i < SHARD; i++) shard[i] = (float)(mixed(path, rank, i / 64) % 65536) + (float)i;
}

static void world_note(engine_reader *reader, uint64_t step, const char *wrong)
{
    const engine_note n = { step, 0, wrong, NULL };
    engine_reader_note(reader, &n);
}


/* Acts like engine_agent.c: writes snapshots until it is told to stop and has written the newest one. */
static void *be_agent(void *argument)
{
    rank_of_job *r = (rank_of_job *)argument;
    const struct timespec pause = { 0, 1000000 };
    outcome *x = &r->j->of[r->rank];
    engine_reader *reader;
    engine_error error;
    disk_manifest m;
    disk_writer w;
    uint64_t sequence = 0, step;
    memset(&w, 0, sizeof w);
    memset(&m, 0, sizeof m);
    w.directory = r->disk, w.name = r->name, w.keep = 2;
    (void)disk_read_manifest(&m, r->disk, r->name, &error);
    while (engine_reader_open(&reader, r->node, r->name, 1, &error)) {
        if (__atomic_load_n(&r->stop, __ATOMIC_SEQ_CST)) return NULL;
        nanosleep(&pause, NULL);
    }
    for (;;) {
        const int last = __atomic_load_n(&r->stop, __ATOMIC_SEQ_CST);
        int found;
        engine_reader_disk(reader, 1, &w.common);
        found = !engine_reader_next(reader, 1, &sequence, &step, &error);
        if (found) {
            const int failed = disk_write(&w, &m, reader, step, &error) != ENGINE_OK;
            if (failed && error.status == ENGINE_E_FENCED) snprintf(x->fenced, sizeof x->fenced, "%.299s", error.message);
            world_note(reader, step, failed ? error.message : NULL);
            engine_reader_release(reader);
        }
        if (last && !found) break;
        if (!found) nanosleep(&pause, NULL);
    }
    engine_reader_close(reader);
    return NULL;
}

static void begin_rank(rank_of_job *r, job *j, unsigned rank)
{
    r->j = j, r->rank = rank;
    snprintf(r->name, sizeof r->name, "%s.%u", j->name ? j->name : "run", rank);
    snprintf(r->node, sizeof r->node, "%s/node%u", place, j->node[rank]);
    snprintf(r->disk, sizeof r->disk, "%s/%s", place, j->disk ? j->disk : "disk");
    snprintf(r->shard_name, sizeof r->shard_name, "shard.%u", rank);
    r->t.context = &r->rank, r->t.rank = rank, r->t.ranks = j->ranks, r->t.send = post_send_letter, r->t.receive = post_want_letter, r->t.test = post_test_letter;
    r->o.name = r->name, r->o.directory = r->node, r->o.disk = r->disk, r->o.budget = BUDGET, r->o.say = world_say, r->o.say_context = &j->of[rank];
    r->o.transport = j->ranks > 1 ? &r->t : NULL, r->o.when_busy = ENGINE_WAIT, r->o.patience = 20, r->o.partner_patience = 20;
    r->o.anew = j->anew, r->o.adopt = *j->adopt ? j->adopt : NULL;
}

static void *be_rank(void *argument)
{
    rank_of_job *r = (rank_of_job *)argument;
    outcome *x = &r->j->of[r->rank];
    engine_tensor t[2], back[2];
    engine_error error;
    uint64_t step = 0;
    int status;
    memset(t, 0, sizeof t);
    t[0].name = "path", t[0].dtype = BITSNAP_I64, t[0].data = &r->path, t[0].count = 1;
    t[1].name = r->shard_name, t[1].dtype = BITSNAP_F32, t[1].data = r->shard, t[1].count = SHARD;
    memcpy(back, t, sizeof t);
    back[0].data = &r->path_back, back[1].data = r->shard_back;
    status = (int)engine_open(&r->e, &r->o, &error);
    if (!status) status = (int)engine_recover(r->e, &step, back, 2, &error);
    snprintf(x->message, sizeof x->message, "%s", status ? error.message : "");
    if (r->e && !status) {
        x->step = step, x->path = r->path = r->path_back, x->source = engine_last_cost(r->e)->source;
        shard_at(r->shard, r->path, r->rank);
        x->wrong = memcmp(r->shard, r->shard_back, sizeof r->shard) != 0;
        if (r->j->again) step--;
    }
    if (r->e) engine_ids(r->e, x->run, x->attempt);
    __atomic_store_n(&x->status, status, __ATOMIC_SEQ_CST);
    pthread_barrier_wait(&together);
    if (r->e && r->j->patience > 0) r->e->o.partner_patience = r->j->patience;
    if (r->e && (!x->status || x->status == ENGINE_E_NONE))
        while (step < r->j->last) {
            step++;
            r->path = mixed(r->path, r->j->number, step);
            shard_at(r->shard, r->path, r->rank);
            usleep(r->j->pause + (r->rank == 1 && r->j->stall && step % 8 == 4 ? 1000 * r->j->stall : 0));
            (void)engine_snapshot(r->e, step, t, 2, &error);
            if (!error.status && !engine_wait(r->e, r->j->patience > 0 ? 2 * r->j->patience : 20, &error)) x->counted_path = r->path, x->counted = step;
        }
    engine_close(r->e, ENGINE_KEEP);
    return NULL;
}

/* Runs a job until it ends or is killed. */
static void run_job(const job *wanted, job *result)
{
    static uint64_t jobs;
    job *j = (job *)mmap(NULL, sizeof *j, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    unsigned i;
    int status = 1;
    pid_t child;
    *j = *wanted;
    if (!j->number) j->number = ++jobs;
    for (i = 0; i < j->ranks; i++) j->of[i].status = -1;
    child = fork();
    if (!child) {
        disk_is_full = j->full;
        rank_of_job *all = (rank_of_job *)calloc(MOST_RANKS, sizeof *all);
        pthread_barrier_init(&together, NULL, j->ranks);
        for (i = 0; i < j->ranks; i++) begin_rank(&all[i], j, i);
        for (i = 0; i < j->ranks; i++) pthread_create(&all[i].thread, NULL, be_rank, &all[i]);
        for (i = 0; i < j->ranks; i++) all[i].has_agent = j->agents && !pthread_create(&all[i].agent, NULL, be_agent, &all[i]);
        for (i = 0; i < j->ranks; i++) pthread_join(all[i].thread, NULL);
        for (i = 0; i < j->ranks; i++) {
            __atomic_store_n(&all[i].stop, 1, __ATOMIC_SEQ_CST);
            if (all[i].has_agent) pthread_join(all[i].agent, NULL);
        }
        _exit(0);
    }
    if (j->stop) usleep(1000 * j->stop), kill(child, SIGSTOP), usleep(1000 * j->stop), kill(child, SIGCONT);
    if (j->kill) usleep(1000 * j->kill), kill(child, SIGKILL);
    CHECK(waitpid(child, &status, 0) == child && (status == 0 || (j->kill && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)), "status %d", status);
    *result = *j;
    munmap(j, sizeof *j);
}

/* ---- files ---- */

static void shell(const char *format, ...)
{
    char command[1024];
    int n = snprintf(command, sizeof command, "cd %s && ", place);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(command + n, sizeof command - (size_t)n, format, arguments);
    va_end(arguments);
    CHECK(!system(command), "%s", command);
}

static void clear_world(void)
{
    unsigned i;
    shell("rm -rf node* disk*; mkdir disk");
    for (i = 0; i < NODES; i++) shell("mkdir node%u", i);
}

/* Returns the number of files in a folder of the world with names that begin like this; null: of all files. */
static inline unsigned count_files(const char *folder, const char *begins)
{
    char path[128];
    struct dirent *x;
    unsigned n = 0;
    DIR *d;
    snprintf(path, sizeof path, "%s/%s", place, folder);
    d = opendir(path);
    while (d && (x = readdir(d)) != NULL) n += x->d_name[0] != '.' && (!begins || !strncmp(x->d_name, begins, strlen(begins)));
    if (d) closedir(d);
    return n;
}

#endif
