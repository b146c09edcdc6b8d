/* Shortest times of things that are run again and again beside memcpy, and the buffers they work in. */
#ifndef BENCH_MEASURE_H
#define BENCH_MEASURE_H

#include <stddef.h>
#include <stdint.h>

#include "counters.h"

/* Where buffers lie. memcpy of what fits the cache moves between half and all of its best speed with that: the
 * caches' sets are chosen by address, and a load that follows a store to the same place modulo 4096 waits. So
 * such things are measured at several places, and the best one counts, for all alike. */
enum { PLACES_MAX = 8 };

/* How something of a size is run. */
typedef struct pace {
    unsigned places;
    unsigned repeats;  /* runs for one reading of the clock: enough for it not to matter */
    unsigned batch;    /* readings for one thing before the next gets its turn: enough to have it in the cache */
    unsigned patience; /* batches without a new best time after which the best is taken for stable */
} pace;

pace pace_of(size_t size);

/* Buffers of one kind, one for each place, their pages all written to. */
typedef struct buffers {
    uint8_t *memory;
    uint8_t *at[PLACES_MAX];
} buffers;

/* `shift`: bytes by which buffer k lies behind the beginning of a page, below 4096; null: 0. At least 32 KiB
 * more than `size` bytes behind each may be touched. */
buffers buffers_open(size_t size, unsigned places, const unsigned shift[PLACES_MAX]);
void buffers_close(buffers *b);

/* Something to run at a place. Returns 0 on an error. */
typedef int (*run_function)(void *task, unsigned at);

/* Alternates batches of `run` with batches of `copy`, which is memcpy of the same size, so that a disturbance
 * meets both, and moves on from place to place; until the budget is used or the best times are stable. Lowers
 * *best and *best_copy (below 0: none yet), seconds of one run. Returns 0 on an error. */
int measure(run_function run, run_function copy, void *task, const pace *p, double budget, double *best,
            double *best_copy);

/* What one run takes, counted; zeros where there are no counters. */
counts measure_counts(run_function run, void *task, const pace *p);

/* Whether memcpy took clearly longer than the shortest time of all that is kept in *least (below 0: none yet):
 * then something else is using the memory. */
int measure_disturbed(double *least, double copied);

/* memcpy that no compiler may leave out. */
void copy_bytes(void *to, const void *from, size_t size);

#endif
