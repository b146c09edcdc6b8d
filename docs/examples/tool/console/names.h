/* names.h - names of files from elsewhere than the command line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_NAMES_H
#define TOOL_NAMES_H

#include "fault.h"

typedef struct name_list {
    char **at;
    size_t *below; /* where in each path the part below the named folder begins */
    size_t count, capacity, below_capacity;
} name_list;

int names_add(name_list *n, const char *name, size_t below, fault *f);

/* Reads the names in a file, or with "-" in standard input. Each ends with the byte `end`. Empty names are skipped. */
int names_read(name_list *n, const char *path, int end, fault *f);
void names_free(name_list *n);

#endif
