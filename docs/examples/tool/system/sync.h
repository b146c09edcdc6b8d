/* sync.h - names that are on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SYNC_H
#define TOOL_SYNC_H

#include "../console/fault.h"

/* The directory of a path, "." if it names none, with room for a name of `more` characters after a slash. To be freed; null: no memory. */
char *directory_of(const char *path, size_t more);

/* The names in the directory of this path are on the disk, where the file system can do that. */
int place_sync(const char *path, fault *f);

#endif
