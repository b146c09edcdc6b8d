/* names.c - names of files from elsewhere than the command line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

int names_add(name_list *n, const char *name, size_t below, fault *f)
{
    char **more = (char **)grown((void *)n->at, n->count, &n->capacity, sizeof *more, f);
    size_t *begins = more ? (size_t *)grown(n->below, n->count, &n->below_capacity, sizeof *begins, f) : NULL;
    if (more) n->at = more;
    if (!begins) return 1;
    n->below = begins;
    begins[n->count] = below;
    more[n->count] = strdup(name);
    return more[n->count++] ? 0 : fault_memory(f);
}

int names_read(name_list *n, const char *path, int end, fault *f)
{
    const int standard = !strcmp(path, "-");
    FILE *from = standard ? stdin : fopen(path, "r");
    char *name = NULL;
    size_t room = 0;
    ssize_t size;
    int failed = !from && fault_errno(f, "cannot be opened");
    while (!failed && (size = getdelim(&name, &room, end, from)) > 0) {
        if (name[size - 1] == end) name[--size] = 0;
        if (strlen(name) != (size_t)size) failed = fault_set(f, "has zero bytes in it; if these end the names, give -0");
        else if (!strcmp(name, "-")) failed = names_add(n, "./-", 0, f); /* a file of this name, not standard input */
        else if (size) failed = names_add(n, name, 0, f);
    }
    if (!failed && ferror(from)) failed = fault_errno(f, "cannot be read");
    if (from && !standard) (void)fclose(from);
    free(name);
    return failed ? fault_in(f, standard ? "(standard input)" : path) : 0;
}

void names_free(name_list *n)
{
    while (n->count) free(n->at[--n->count]);
    free((void *)n->at);
    free(n->below);
    memset(n, 0, sizeof *n);
}
