/* processors.h - how many processors there are for this process.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PROCESSORS_H
#define TOOL_PROCESSORS_H

/* Processors that this process may use now: those of the machine, on Linux only the ones that it may run on (taskset, cpusets),
 * and as many as the limits of its control groups pay for (containers), rounded up. At least 1. */
unsigned processors(void);

#endif
