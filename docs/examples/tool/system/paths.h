/* paths.h - splits and joins paths, and writes names of a directory to the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PATHS_H
#define TOOL_PATHS_H

#include "../console/fault.h"

/* Returns the directory of a path, "." if it names none, with room for a slash and `more` characters. The caller frees it. Null:
 * no memory. */
char *directory_of(const char *path, size_t more);

/* Returns the last part of a path. */
const char *last_part(const char *path);

/* Returns the path of a name in a folder, or of the folder if the name is empty. The caller frees it. Null with the fault set. */
char *path_in(const char *folder, const char *name, fault *f);

/* Waits until the names in the directory of this path are on the disk, if the file system supports it. */
int place_sync(const char *path, fault *f);

#endif
