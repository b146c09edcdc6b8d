/* names.h - names of files that are not those of the command line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_NAMES_H
#define TOOL_NAMES_H

#include "fault.h"

typedef struct name_list {
    char **at;
    size_t *below; /* where in each the name in the folder begins that was named */
    size_t count, capacity, below_capacity;
} name_list;

int names_add(name_list *n, const char *name, size_t below, fault *f);

/* Those in a file, or with "-" in standard input: one a line, or each with a byte `end` behind it. Empty ones are none. */
int names_read(name_list *n, const char *path, int end, fault *f);
void names_free(name_list *n);

#endif
