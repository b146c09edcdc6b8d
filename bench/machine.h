/* Facts about the machine. Only machine.c depends on the operating system. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stddef.h>

/* Returns the seconds of a monotonic clock. The thread's processor time is no substitute: in virtual machines it
 * sometimes runs slow, and the shortest of many times would be too short. */
double machine_seconds(void);

/* Pins the calling thread to its current processor. Returns the number of that, or -1 if the system cannot do
 * this. */
int machine_pin(void);

/* Writes the processor's name. */
void machine_describe(char *text, size_t size);

/* Returns compiler and version that built this program. */
const char *machine_compiler(void);

#endif
