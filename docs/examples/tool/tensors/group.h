/* group.h - joins small neighbours into one frame, so that the overhead of frames does not enlarge the file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_GROUP_H
#define TOOL_GROUP_H

#include "plan.h"

/* Estimates whether the overhead of all frames may exceed a thousandth of their elements. If so, joins small pieces of a delta
 * that are neighbours in the base, too. Only sizes decide, so that deltas between the same headers can be merged. If the overhead
 * is still too large, as in files without a base, sets p->grouped. */
int group_plan(plan *p, int is_delta, fault *f);

/* Returns the number of pieces, from this one on, to write together; 1: it is written alone. */
size_t group_length(const plan *p, size_t first);

/* Most bytes of a group. */
#define GROUP_MOST ((size_t)2 << 20)

/* Writes a group of n pieces, whose elements are in memory, as one frame or as several, whichever is smaller. */
int group_write(file_writer *w, const piece *pieces, size_t n, uint8_t *elements, fault *f);

#endif
