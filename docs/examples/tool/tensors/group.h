/* group.h - small neighbours as one frame, so that no file grows by what frames take besides their elements.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_GROUP_H
#define TOOL_GROUP_H

#include "plan.h"

/* Looks whether the frames of a plan may take more than a thousandth of what they hold. If so small pieces of a delta become
 * one where they are neighbours in the base, too: by their sizes alone, so that deltas between the same headers can be merged.
 * Whatever then is still too much, as in a file without base, is to be written in groups. */
int group_plan(plan *p, int is_delta, fault *f);

/* How many pieces, from this one on, are to be written together; 1: it stands alone. */
size_t group_length(const plan *p, size_t first);

/* The most bytes of a group. */
#define GROUP_MOST ((size_t)2 << 20)

/* Writes a group of n pieces, whose elements are here: frame by frame, or all in one, whatever is smaller. */
int group_write(file_writer *w, const piece *pieces, size_t n, uint8_t *elements, fault *f);

#endif
