/* restore.h - what a .bsnap file holds, from the first byte to the last.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_RESTORE_H
#define TOOL_RESTORE_H

#include "file.h"
#include "../console/progress.h"

/* Reads on to the end and writes the source; `out` may be null: only checks. Nothing is written before the first
 * elements are known to be good, so that most wrong bases leave no bytes behind. `p` may be null. */
int restore_source(file_reader *r, output *out, progress *p, fault *f);

#endif
