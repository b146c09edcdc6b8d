/* directory.h - an output that is a directory. It gets its name once everything in it is whole and on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Until then it is called .bitsnap-part~NAME, and .bitsnap-done~NAME beside it lists its finished files. An interrupted run
 * leaves both, and the same command continues with them. */
#ifndef TOOL_DIRECTORY_H
#define TOOL_DIRECTORY_H

#include "place.h"
#include "walk.h"

/* A finished file of the directory. */
typedef struct finished {
    char *name;
    file_stamp source, own; /* of the file that it was made from; of itself */
    int wanted;             /* 1: this run would make the same file, so it is kept */
} finished;

typedef struct directory {
    const char *name;      /* as given */
    char *target, *part, *list;
    int lock, list_fd;     /* descriptors: of part, which is locked; of the list, open to append */
    int replaces, begun, named;
    walk before;           /* the directory that it replaces, if `replaces` */
    file_stamp own;        /* of part */
    char *how;             /* how its files are made; an unfinished directory made otherwise cannot be continued */
    finished *files;       /* finished files, of earlier runs and of this one */
    size_t count, capacity;
} directory;

/* Locks the directory `part`, makes it if it does not exist, and reads the list of an earlier run. Fails if the target and the
 * folder `from` that is read overlap, or if the target contains an input. */
int directory_open(directory *d, const char *path, int replace, const char *from, const char *how, const used_files *u, fault *f);

/* Parses the list of an earlier run. *mine is 0 if it belongs to another directory. A byte 0 must follow the text. The last
 * record may be cut off. */
int directory_take_list(directory *d, const char *text, size_t size, int *mine, fault *f);

/* Returns 1 if an earlier run has finished this file, from the same source. Ask for every file before directory_begin, which
 * removes all others. */
int directory_has(directory *d, const char *name, const file_stamp *source);
int directory_begin(directory *d, fault *f);

/* Returns the path at which to write the file of this name. The caller frees it. */
char *directory_path(const directory *d, const char *name, fault *f);

/* Lists a file that is whole and on the disk, so that no later run makes it again. */
int directory_note(directory *d, const char *name, const file_stamp *source, fault *f);

/* Gives the directory its name, and removes the directory that had it. */
int directory_commit(directory *d, fault *f);

/* Closes it. Keeps finished files of an interrupted run for a later one and returns their number. Removes the directory if there
 * are none. */
size_t directory_close(directory *d);

#endif
