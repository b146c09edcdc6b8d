/* offload_races.cpp: races of the device code. */
#ifndef BITSNAP_OFFLOAD_RACES_H
#define BITSNAP_OFFLOAD_RACES_H

#include <stddef.h>
#include <stdint.h>

void races_watch(const void *memory, size_t size); /* that work-items share; before the first group */
void races_passed(uint32_t from, uint32_t to, int barrier, const char *function, int line); /* for fiber_passed */
unsigned races_report(int count); /* of so many barriers: how many are wrong */

#endif
