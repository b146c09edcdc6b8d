/* find.h - the files that a delta was made against, where it says only what they were called.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FIND_H
#define TOOL_FIND_H

#include "base.h"

/* What the file at this path holds, as deltas to it would have it: sizes and id of its text, without the text itself. */
int find_end(link_end *e, codec *c, const char *path, file_stamp *stamp, fault *f);

/* The bases of a delta, where files of their names, packed or not, lie in the same folder and have the headers that they should have; they
 * may be deltas whose bases lie there, too. `found` says whether they do, which is said unless warnings are not wanted. The
 * input is open, at its start, and goes back there: it may be no delta. base_close is to be called in any case. */
int find_beside(base *b, codec *c, input *in, const char *path, uint64_t limit, int *found, fault *f);

#endif
