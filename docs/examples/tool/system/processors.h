/* processors.h - the number of processors that this process may use, and its memory.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PROCESSORS_H
#define TOOL_PROCESSORS_H

#include <stdint.h>

/* The number of processors that this process may use now: those of the machine, on Linux at most those that it may run on
 * (taskset, cpusets) and the limits of its control groups (containers), rounded up. At least 1. */
unsigned processors(void);

/* Bytes of memory of the machine, or the smallest limit of those groups if that is less; a GiB if neither is known. */
uint64_t memory_size(void);

#endif
