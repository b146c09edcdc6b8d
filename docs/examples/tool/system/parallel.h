/* parallel.h - threads for bitsnap.run.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PARALLEL_H
#define TOOL_PARALLEL_H

#include "bitsnap.h"

typedef struct pool pool;

/* Starts workers - 1 threads; the calling thread is the first worker. The pool has fewer if threads cannot be started. Null: no
 * memory. */
pool *pool_new(unsigned workers);
unsigned pool_workers(const pool *p);

/* From now on, only the first `workers` workers take tasks. */
void pool_limit(pool *p, unsigned workers);

void pool_free(pool *p);

/* Runs tasks; for bitsnap.run, with the pool as context. Only one thread at a time may call it. In a child process forked after
 * pool_new, the caller does all tasks itself, and pool_free only releases memory. */
void pool_run(void *context, bitsnap_task task, void *argument, uint64_t count);

#endif
