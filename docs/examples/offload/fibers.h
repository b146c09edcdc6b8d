/* fibers.h - the device code as C++ on one thread, for sanitizers and debuggers. A group is 256 fibers, which run in a random
 * order between barriers. Barriers have numbers, and report when they are passed: tests/adapters/offload_races.cpp finds missing
 * and unnecessary ones. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_FIBERS_H
#define OFFLOAD_FIBERS_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "prelude.h"

#define FIBER_STACK 65536
#define FIBER_OWN __attribute__((no_sanitize("address", "thread"))) /* sanitizers check only the device code */

u32 fiber_thread, fiber_group, fiber_groups = 1, *fiber_memory;
/* Called when work-items from .. to - 1 pass a barrier, and with a negative barrier for a launch. May be null. */
void (*fiber_passed)(u32 from, u32 to, int barrier, const char *function, int line);

enum { FIBER_READY, FIBER_WAITS, FIBER_WARP_WAITS, FIBER_ENDED };

static struct {
    void *caller[5], *of[THREADS][5];
    char *stack;
    int state[THREADS], barrier[THREADS];
    u32 ready[THREADS], count, seed, lane[2][THREADS], turn[THREADS];
    void (*run)(void *);
    void *argument;
} fibers;

__attribute__((noinline, noreturn)) FIBER_OWN static void fiber_jump(void **to) { __builtin_longjmp(to, 1); }

/* Releases work-items from .. to - 1 if all of them have reached the barrier. */
FIBER_OWN static int fiber_release(u32 from, u32 to)
{
    const u32 me = fiber_thread;
    u32 t;
    for (t = from; t < to; t++)
        if (fibers.state[t] != fibers.state[me] || fibers.barrier[t] != fibers.barrier[me]) return 0;
    for (t = from; t < to; t++) {
        fibers.state[t] = FIBER_READY;
        fibers.ready[fibers.count++] = t;
    }
    return 1;
}

FIBER_OWN static void fiber_next(int state)
{
    const u32 me = fiber_thread;
    u32 i, next;
    if (__builtin_setjmp(fibers.of[me])) return;
    if (!fibers.count) {
        if (state == FIBER_ENDED) fiber_jump(fibers.caller);
        fprintf(stderr, "work-items wait at barriers that the others do not come to\n");
        abort();
    }
    fibers.seed = fibers.seed * 1664525u + 1013904223u;
    i = (fibers.seed >> 8) % fibers.count;
    next = fibers.ready[i];
    fibers.ready[i] = fibers.ready[--fibers.count];
    fiber_thread = next;
    if (next != me) fiber_jump(fibers.of[next]);
}

FIBER_OWN static void fiber_wait(u32 from, u32 to, int barrier, const char *function, int line)
{
    const int state = to - from == THREADS ? FIBER_WAITS : FIBER_WARP_WAITS;
    fibers.state[fiber_thread] = state;
    fibers.barrier[fiber_thread] = barrier;
    if (fiber_release(from, to) && function && fiber_passed) fiber_passed(from, to, barrier, function, line);
    fiber_next(state);
}

FIBER_OWN void fiber_sync(int barrier, const char *function, int line) { fiber_wait(0, THREADS, barrier, function, line); }

FIBER_OWN void fiber_warp_sync(int barrier, const char *function, int line)
{
    const u32 from = fiber_thread / WARP * WARP;
    fiber_wait(from, from + WARP, barrier, function, line);
}

/* Collects a value from each lane of a warp. The result is valid until the next call but one. As in CUDA, this orders no memory
 * accesses. */
FIBER_OWN static const u32 *fiber_exchange(u32 x)
{
    u32 *lanes = fibers.lane[fibers.turn[fiber_thread]++ % 2];
    lanes[fiber_thread] = x;
    fiber_warp_sync(-1, NULL, 0);
    return lanes + fiber_thread / WARP * WARP;
}

FIBER_OWN u32 fiber_shuffle(u32 x, u32 lane) { return fiber_exchange(x)[lane]; }

FIBER_OWN u32 fiber_ballot(u32 condition)
{
    const u32 *lanes = fiber_exchange(condition != 0);
    u32 i, all = 0;
    for (i = 0; i < WARP; i++) all |= lanes[i] << i;
    return all;
}

static void fiber_entry(void)
{
    if (!__builtin_setjmp(fibers.of[fiber_thread])) fiber_jump(fibers.caller);
    for (;;) { /* one group for each pass */
        fibers.run(fibers.argument);
        fibers.state[fiber_thread] = FIBER_ENDED;
        fiber_next(FIBER_ENDED);
    }
}

/* Makes the context of a fiber, once. Later switches are jumps, without system calls. */
static void fiber_start(u32 t)
{
    ucontext_t context;
    getcontext(&context);
    context.uc_stack.ss_sp = fibers.stack + (size_t)FIBER_STACK * t;
    context.uc_stack.ss_size = FIBER_STACK;
    makecontext(&context, fiber_entry, 0);
    fiber_thread = t;
    if (!__builtin_setjmp(fibers.caller)) setcontext(&context);
}

/* Runs `run` with a group of work-items. `memory`: the group's own memory. */
static void fiber_run_group(u32 group, u32 *memory, void (*run)(void *), void *argument)
{
    u32 t;
    if (!fibers.stack) {
        fibers.stack = (char *)malloc((size_t)FIBER_STACK * THREADS);
        for (t = 0; t < THREADS; t++) fiber_start(t);
    }
    fiber_memory = memory;
    fiber_group = group;
    fibers.run = run;
    fibers.argument = argument;
    for (t = 0; t < THREADS; t++) {
        fibers.state[t] = FIBER_READY;
        fibers.ready[t] = t;
    }
    fibers.count = THREADS - 1;
    fiber_thread = THREADS - 1;
    if (fiber_passed) fiber_passed(0, THREADS, -1, "", 0);
    if (!__builtin_setjmp(fibers.caller)) fiber_jump(fibers.of[THREADS - 1]);
    if (fiber_passed) fiber_passed(0, THREADS, -1, "", 0);
}

#endif
