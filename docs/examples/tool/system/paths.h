/* paths.h - paths: their parts, and names that are on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PATHS_H
#define TOOL_PATHS_H

#include "../console/fault.h"

/* The directory of a path, "." if it names none, with room for a name of `more` characters after a slash. To be freed; null: no memory. */
char *directory_of(const char *path, size_t more);

/* The last part of a path. */
const char *last_part(const char *path);

/* The path of a name in a folder, or of that if the name is empty. To be freed; null with the fault set. */
char *path_in(const char *folder, const char *name, fault *f);

/* The names in the directory of this path are on the disk, where the file system can do that. */
int place_sync(const char *path, fault *f);

#endif
