/* What the benchmark wants to know of the machine; the one place with operating systems in it. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stddef.h>

/* Seconds of a monotonic clock. (Not of the thread's processor time: in virtual machines that runs slow by fits,
 * which would win where the shortest of many times is taken.) */
double machine_seconds(void);

/* Keeps the calling thread on the processor it is on. Returns that processor's number, -1 where the system
 * does not offer this. */
int machine_pin(void);

/* The processor's name, as the system tells it. */
void machine_describe(char *text, size_t size);

/* The compiler that built this program, with its version. */
const char *machine_compiler(void);

#endif
