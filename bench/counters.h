/* Counts cycles and instructions of the calling thread. Works on Linux if perf_event_open gives access to a
 * performance monitoring unit. */
#ifndef BENCH_COUNTERS_H
#define BENCH_COUNTERS_H

typedef struct counts {
    double cycles, instructions; /* in user mode; 0: not counted */
} counts;

/* Returns 1 if counting works. The first call tries it. */
int counters_work(void);

/* Count what the thread does between these two calls. */
void counters_start(void);
counts counters_stop(void);

#endif
