/* parallel.h - threads for bitsnap.run.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PARALLEL_H
#define TOOL_PARALLEL_H

#include "bitsnap.h"

typedef struct pool pool;

/* `workers` counts the calling thread: 1 makes no other. Where threads are not to be had, the pool has fewer.
 * Null: no memory. */
pool *pool_new(unsigned workers);
unsigned pool_workers(const pool *p);

/* From now on only the first `workers` of them take tasks. */
void pool_limit(pool *p, unsigned workers);

void pool_free(pool *p);

/* As bitsnap.run wants it; the context is the pool. One thread at a time calls it. In a process forked from the one that made the pool
 * the caller does all tasks, and pool_free releases the memory alone. */
void pool_run(void *context, bitsnap_task task, void *argument, uint64_t count);

#endif
