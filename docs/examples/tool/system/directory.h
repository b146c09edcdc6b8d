/* directory.h - an output that is a directory: it has its name when everything in it is whole and on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Until then it is .bitsnap-part~NAME, beside its place, and .bitsnap-done~NAME lists the files in it that are finished. A run that
 * has been ended leaves both, and the same command goes on from there. */
#ifndef TOOL_DIRECTORY_H
#define TOOL_DIRECTORY_H

#include "place.h"
#include "walk.h"

/* A file in it that is finished. */
typedef struct finished {
    char *name;
    file_stamp source, own; /* what it was made from, and itself */
    int wanted;
} finished;

typedef struct directory {
    const char *name;      /* as it was given */
    char *target, *part, *list;
    int lock, list_fd;     /* of part; of the list, to which is written */
    int replaces, begun, named;
    walk before;           /* what it replaces */
    file_stamp own;        /* of part */
    char *how;             /* what makes it: an unfinished one that is made otherwise is of no use */
    finished *files;       /* of runs before */
    size_t count, capacity;
} directory;

/* Where it will be, before anything is made: no input (`from`: the folder that is read) lies there, nor it in that. */
int directory_open(directory *d, const char *path, int replace, const char *from, const char *how, const used_files *u, fault *f);

/* What the list of a run before says is finished; `mine` is 0 where it is that of another directory. A byte 0 stands behind the text,
 * the last record of which may be cut. */
int directory_take_list(directory *d, const char *text, size_t size, int *mine, fault *f);

/* Whether this file is finished: by a run before, of this very source. Then directory_begin removes what else is there. */
int directory_has(directory *d, const char *name, const file_stamp *source);
int directory_begin(directory *d, fault *f);

/* The path at which to write what will have this name in it; to be freed. */
char *directory_path(const directory *d, const char *name, fault *f);

/* The file is whole and on the disk: it need not be made again. */
int directory_note(directory *d, const char *name, const file_stamp *source, fault *f);

/* It gets its name. What has had that before is removed. */
int directory_commit(directory *d, fault *f);

/* Closes it. What is finished is kept, for a run that goes on with it; if nothing is, nothing is left. Returns how many files are. */
size_t directory_close(directory *d);

#endif
