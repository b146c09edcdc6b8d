/* parallel.c - threads for bitsnap.run.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Tasks are blocks of the codec, tens of microseconds each: a mutex around the next index costs nothing beside
 * them. */
#include "posix.h"

#include "parallel.h"
#include "place.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct member {
    struct pool *pool;
    pthread_t thread;
    unsigned worker;
} member;

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    bitsnap_task task;        /* guarded by the lock, as are all others up to `ending` */
    void *argument;
    uint64_t next, count;     /* number of the next task to take, and of all */
    uint64_t left;            /* tasks not finished */
    unsigned active;          /* workers that take tasks */
    int ending;
    unsigned workers;         /* written before the first task */
    pid_t process;            /* the process that started the threads */
    member *members;          /* members 1 .. workers - 1 are threads */
};

/* Takes tasks until all are taken. The lock is held before and after. Returns 1 if there was a task. */
static int work_on(pool *p, unsigned worker)
{
    int any = 0;
    for (; p->next < p->count && worker < p->active; any = 1) {
        const uint64_t index = p->next++;
        const bitsnap_task task = p->task;
        void *argument = p->argument;
        (void)pthread_mutex_unlock(&p->lock);
        task(argument, index, worker);
        (void)pthread_mutex_lock(&p->lock);
        if (--p->left == 0) (void)pthread_cond_signal(&p->done);
    }
    return any;
}

enum { LOOKS = 12, YIELDS = 8 }; /* before each look; some microseconds, so that many threads do not fight for the lock */

/* Waits for a condition. The first *awake times, yields the processor instead of sleeping, because waking a thread takes as long
 * as a few tasks. */
static void wait_for(pool *p, pthread_cond_t *condition, unsigned *awake)
{
    unsigned i;
    if (!*awake) {
        (void)pthread_cond_wait(condition, &p->lock);
        return;
    }
    --*awake;
    (void)pthread_mutex_unlock(&p->lock);
    for (i = 0; i < YIELDS; i++) (void)sched_yield();
    (void)pthread_mutex_lock(&p->lock);
}

static void *worker_main(void *argument)
{
    const member *m = (const member *)argument;
    pool *p = m->pool;
    unsigned awake = 0;
    (void)pthread_mutex_lock(&p->lock);
    while (!p->ending) {
        if (work_on(p, m->worker)) awake = LOOKS;
        else if (!p->ending) wait_for(p, &p->work, &awake);
    }
    (void)pthread_mutex_unlock(&p->lock);
    return NULL;
}

void pool_run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    pool *p = (pool *)context;
    unsigned awake = LOOKS;
    uint64_t index;
    if (p->process != getpid()) { /* fork copies no threads, and one of them may have held the lock */
        for (index = 0; index < count; index++) task(argument, index, 0);
        return;
    }
    (void)pthread_mutex_lock(&p->lock);
    p->task = task;
    p->argument = argument;
    p->next = 0;
    p->count = p->left = count;
    (void)pthread_cond_broadcast(&p->work);
    (void)work_on(p, 0);
    while (p->left) wait_for(p, &p->done, &awake);
    p->count = 0;
    (void)pthread_mutex_unlock(&p->lock);
}

pool *pool_new(unsigned workers)
{
    pool *p = (pool *)calloc(1, sizeof *p);
    sigset_t all, before;
    if (!p) return NULL;
    p->process = getpid();
    p->workers = 1;
    p->active = workers ? workers : 1;
    p->members = (member *)calloc(p->active, sizeof *p->members);
    if (!p->members) {
        free(p);
        return NULL;
    }
    (void)pthread_mutex_init(&p->lock, NULL);
    (void)pthread_cond_init(&p->work, NULL);
    (void)pthread_cond_init(&p->done, NULL);
    /* the first thread handles signals: new threads inherit the mask that blocks them */
    signals_all(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before);
    for (; p->workers < workers; p->workers++) {
        member *m = &p->members[p->workers];
        m->pool = p;
        m->worker = p->workers;
        if (pthread_create(&m->thread, NULL, worker_main, m)) break;
    }
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return p;
}

unsigned pool_workers(const pool *p) { return p->workers; }

void pool_limit(pool *p, unsigned workers)
{
    (void)pthread_mutex_lock(&p->lock);
    p->active = workers;
    (void)pthread_mutex_unlock(&p->lock);
}

void pool_free(pool *p)
{
    unsigned i;
    if (!p) return;
    if (p->process == getpid()) {
        (void)pthread_mutex_lock(&p->lock);
        p->ending = 1;
        (void)pthread_cond_broadcast(&p->work);
        (void)pthread_mutex_unlock(&p->lock);
        for (i = 1; i < p->workers; i++) (void)pthread_join(p->members[i].thread, NULL);
        (void)pthread_mutex_destroy(&p->lock);
        (void)pthread_cond_destroy(&p->work);
        (void)pthread_cond_destroy(&p->done);
    }
    free(p->members);
    free(p);
}
