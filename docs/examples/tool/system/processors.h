/* processors.h - how many processors there are for this process, and how much memory.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PROCESSORS_H
#define TOOL_PROCESSORS_H

#include <stdint.h>

/* Processors that this process may use now: those of the machine, on Linux only the ones that it may run on (taskset, cpusets),
 * and as many as the limits of its control groups pay for (containers), rounded up. At least 1. */
unsigned processors(void);

/* Bytes of memory that the machine has, or the least limit of those groups, if that is less; where nothing is known a GiB. */
uint64_t memory_size(void);

#endif
