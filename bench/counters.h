/* Cycles and instructions of the calling thread, where the system lets a program count its own: Linux with a
 * performance monitoring unit that perf_event_open gives out. */
#ifndef BENCH_COUNTERS_H
#define BENCH_COUNTERS_H

typedef struct counts {
    double cycles, instructions; /* in user mode; 0: not counted */
} counts;

/* Returns 1 where counting works. The first call finds out. */
int counters_work(void);

/* What is done between the two counts. */
void counters_start(void);
counts counters_stop(void);

#endif
