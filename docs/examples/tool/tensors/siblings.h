/* siblings.h - files of one folder that are compressed together: which is coded against which.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SIBLINGS_H
#define TOOL_SIBLINGS_H

#include "../files/header.h"
#include "../system/place.h"
#include "pairs.h"

typedef struct sibling {
    const char *path;
    file_stamp stamp;      /* as it was looked at */
    header h;
    size_t first;          /* private: the number of its first tensor in the folder */
    int half;              /* most of its floats are F16 or BF16 */
    unsigned *bases;       /* the files that it is coded against, by their place among the siblings, in their order; base_count of them */
    unsigned base_count;
    pairs found;           /* partners of its tensors in these: the base of that number */
} sibling;

typedef struct siblings {
    sibling *files;        /* in the order in which they were given */
    size_t count;
} siblings;

/* Looks at the files at these paths: each may have partners in files before it in its own folder, where those with weights of half precision
 * come first, and then the names count. So it does not matter in which order they are given. What cannot be read takes no part, nor, with
 * `moments`, a file that has moments of Adam in it. siblings_free is to be called after failures, too. */
int siblings_find(siblings *s, const char *const *paths, size_t count, int moments, fault *f);
void siblings_free(siblings *s);

#endif
