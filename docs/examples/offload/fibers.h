/* fibers.h - the device code as C++ on one thread: a group is 256 fibers, which take turns in a random order between barriers, so
 * that sanitizers and debuggers see what they do, and a missing barrier shows. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_FIBERS_H
#define OFFLOAD_FIBERS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "prelude.h"

#define FIBER_STACK 65536

u32 fiber_thread, fiber_group, fiber_groups = 1, *fiber_memory;

enum { FIBER_READY, FIBER_WAITS, FIBER_WARP_WAITS, FIBER_ENDED };

static struct {
    ucontext_t caller, of[THREADS];
    char *stack;
    int state[THREADS];
    u32 ready[THREADS], count, seed, lane[THREADS];
    void (*run)(void *);
    void *argument;
} fibers;

/* Those from .. to - 1 go on if all of them have come to the barrier. */
static void fiber_release(u32 from, u32 to, int barrier)
{
    u32 t;
    for (t = from; t < to; t++)
        if (fibers.state[t] != barrier) return;
    for (t = from; t < to; t++) {
        fibers.state[t] = FIBER_READY;
        fibers.ready[fibers.count++] = t;
    }
}

static void fiber_next(int state)
{
    const u32 me = fiber_thread;
    u32 i, next;
    if (!fibers.count) {
        if (state == FIBER_ENDED) setcontext(&fibers.caller);
        fprintf(stderr, "work-items wait at barriers that the others do not come to\n");
        abort();
    }
    fibers.seed = fibers.seed * 1664525u + 1013904223u;
    i = (fibers.seed >> 8) % fibers.count;
    next = fibers.ready[i];
    fibers.ready[i] = fibers.ready[--fibers.count];
    fiber_thread = next;
    if (state == FIBER_ENDED) setcontext(&fibers.of[next]);
    if (next != me) swapcontext(&fibers.of[me], &fibers.of[next]);
    fiber_thread = me;
}

void fiber_sync(void)
{
    fibers.state[fiber_thread] = FIBER_WAITS;
    fiber_release(0, THREADS, FIBER_WAITS);
    fiber_next(FIBER_WAITS);
}

void fiber_warp_sync(void)
{
    const u32 from = fiber_thread / WARP * WARP;
    fibers.state[fiber_thread] = FIBER_WARP_WAITS;
    fiber_release(from, from + WARP, FIBER_WARP_WAITS);
    fiber_next(FIBER_WARP_WAITS);
}

u32 fiber_shuffle(u32 x, u32 lane)
{
    const u32 from = fiber_thread / WARP * WARP;
    fibers.lane[fiber_thread] = x;
    fiber_warp_sync();
    x = fibers.lane[from + lane];
    fiber_warp_sync();
    return x;
}

u32 fiber_ballot(u32 condition)
{
    const u32 from = fiber_thread / WARP * WARP;
    u32 i, all = 0;
    fibers.lane[fiber_thread] = condition != 0;
    fiber_warp_sync();
    for (i = 0; i < WARP; i++) all |= fibers.lane[from + i] << i;
    fiber_warp_sync();
    return all;
}

static void fiber_entry(void)
{
    fibers.run(fibers.argument);
    fibers.state[fiber_thread] = FIBER_ENDED;
    fiber_next(FIBER_ENDED);
}

/* One group of work-items runs `run`, with `memory_size` bytes of memory of its own. */
static void fiber_run_group(u32 group, u32 memory_size, void (*run)(void *), void *argument)
{
    u32 t;
    if (!fibers.stack) fibers.stack = (char *)malloc((size_t)FIBER_STACK * THREADS);
    fiber_memory = (u32 *)malloc(memory_size);
    memset(fiber_memory, (int)(fibers.seed >> 24), memory_size); /* garbage, each time another */
    fiber_group = group;
    fibers.run = run;
    fibers.argument = argument;
    fibers.count = 0;
    for (t = 0; t < THREADS; t++) {
        fibers.state[t] = FIBER_READY;
        fibers.ready[fibers.count++] = t;
        getcontext(&fibers.of[t]);
        fibers.of[t].uc_stack.ss_sp = fibers.stack + (size_t)FIBER_STACK * t;
        fibers.of[t].uc_stack.ss_size = FIBER_STACK;
        makecontext(&fibers.of[t], fiber_entry, 0);
    }
    fiber_thread = fibers.ready[--fibers.count];
    swapcontext(&fibers.caller, &fibers.of[fiber_thread]);
    free(fiber_memory);
}

#endif
