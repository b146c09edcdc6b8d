/* Measures the shortest time of many runs, alternating with memcpy, and holds the buffers of these runs. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "counters.h"

/* Number of buffer positions. In the cache, the addresses of its buffers can halve the speed of memcpy: they
 * choose the cache sets, and a load waits for an earlier store to the same address modulo 4096. So everything
 * is measured at several positions, and the best one counts. */
enum { PLACES_MAX = 8 };

/* How a task of one size is repeated. */
typedef struct pace {
    unsigned places;
    unsigned repeats;  /* runs between readings of the clock, whose cost is then negligible */
    unsigned batch;    /* readings of one task before the next task runs, which bring its data into the cache */
    unsigned patience; /* number of batches without a new best time, after which the best is stable */
} pace;

pace pace_of(size_t size);

/* Buffers of one kind, one for each position. All their pages have been written to. */
typedef struct buffers {
    uint8_t *memory;
    uint8_t *at[PLACES_MAX];
} buffers;

/* `shift`: distance of buffer k from the start of its page, in bytes below 4096; null: 0. At least 32 KiB past
 * the end of each buffer may be accessed. */
buffers buffers_open(size_t size, unsigned places, const unsigned shift[PLACES_MAX]);
void buffers_close(buffers *b);

/* Runs a task at a position. Returns 0 on an error. */
typedef int (*run_function)(void *task, unsigned at);

/* Alternates batches of `run` with batches of `copy`, a memcpy of the same size, so a disturbance affects both.
 * Goes through all positions until the budget is used or the best times are stable. Lowers *best and
 * *best_copy, the seconds of one run; below 0: not measured yet. Returns 0 on an error. */
int measure(run_function run, run_function copy, void *task, const pace *p, double budget, double *best,
            double *best_copy);

/* Counts cycles and instructions of one run; zeros without counters. */
counts measure_counts(run_function run, void *task, const pace *p);

/* Returns 1 if memcpy took clearly longer than *least, so something else is using the memory. *least keeps the
 * shortest time of all calls; below 0: no call yet. */
int measure_disturbed(double *least, double copied);

/* A memcpy that no compiler can remove. */
void copy_bytes(void *to, const void *from, size_t size);

#endif
