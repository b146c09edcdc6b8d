/* siblings.h - chooses which files of a folder are coded against others that are compressed with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SIBLINGS_H
#define TOOL_SIBLINGS_H

#include "../files/header.h"
#include "../system/place.h"
#include "pairs.h"

typedef struct sibling {
    const char *path;
    file_stamp stamp;      /* when the header was read */
    header h;
    size_t first;          /* private: number of its first tensor among all of the folder */
    int half;              /* 1: most of its floats are F16 or BF16 */
    unsigned *bases;       /* base_count indices in siblings.files: the files that it is coded against */
    unsigned base_count;
    pairs found;           /* partners of its tensors; `base` is an index in `bases` */
} sibling;

typedef struct siblings {
    sibling *files;        /* in the given order */
    size_t count;
} siblings;

/* Reads the files at these paths, and finds partners for each in earlier files of its folder. Files of half precision come first,
 * then names decide; the given order does not matter. Files that cannot be read take no part, and with `moments` no files that
 * hold moments of Adam. Call siblings_free after failures, too. */
int siblings_find(siblings *s, const char *const *paths, size_t count, int moments, fault *f);
void siblings_free(siblings *s);

#endif
