/* place.h - identifies files, makes temporary ones, and replaces and removes files without losing any.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PLACE_H
#define TOOL_PLACE_H

#include "posix.h"

#include "paths.h"

#include <signal.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <time.h>

#ifdef __APPLE__
#define st_mtim st_mtimespec
#define st_ctim st_ctimespec
#endif

/* ================================================================================= STAMPS */

/* Identifies a file and its state. */
typedef struct file_stamp {
    dev_t device;
    ino_t inode;
    nlink_t links;
    off_t size;
    struct timespec modified, changed; /* times: of the last write; of the last change of bytes, mode, owner or names */
} file_stamp;

file_stamp stamp_of(const struct stat *st);
int stamp_at(const char *path, file_stamp *s);                 /* does not follow links; 0, or -1 with errno */
int stamp_is_file(const file_stamp *a, const file_stamp *b);   /* 1 if both are one file, under any name */
int stamp_is_content(const file_stamp *a, const file_stamp *b); /* 1 if it was not written to either; it may have been renamed */
int stamp_is_same(const file_stamp *a, const file_stamp *b);    /* 1 if its mode and owner were not changed either */

/* ================================================================================= FILES IN USE
 * The files that a run reads or has written. None of them may become an output. */

typedef enum use { USE_INPUT, USE_BASE, USE_WEIGHTS, USE_OUTPUT } use;

typedef struct used_file {
    char *name;        /* as given */
    char *path;        /* with links resolved, or null */
    uint32_t hash;     /* of the path; speeds up the search, since there may be 10,000 files */
    use role;
    int there, opened; /* 1 if `stamp` is set; 1 if it was taken from the open file, not by name */
    file_stamp stamp;
} used_file;

typedef struct used_files {
    used_file *files;
    size_t count, capacity;
    int quiet;         /* no warnings */
    int prints;        /* 1 if text is printed to standard output and that is the file `printed` */
    file_stamp printed;
} used_files;

/* Call before text is printed. From now on, standard output may not lead to a file that is added. */
void used_printing(used_files *u);

/* Returns 1 if standard output leads to a file that was added before. */
int used_is_printed(const used_files *u);

/* Adds a name of the command line, before anything is opened. */
int used_name(used_files *u, const char *name, use role, fault *f);

/* Adds a file that was opened by this name. Its role is the one given to used_name. */
int used_opened(used_files *u, const char *name, const file_stamp *stamp, fault *f);

/* Adds a file that was written at this path. */
int used_written(used_files *u, const char *path, const file_stamp *stamp, fault *f);

/* Fails if one of the files is at this path, or is the file with this stamp (null: no file is there yet). */
int used_check(const used_files *u, const char *path, const file_stamp *stamp, fault *f);

/* Returns 1 if the file is a base. */
int used_is_base(const used_files *u, const file_stamp *stamp);

/* Fails if a base was changed, or is no longer found by its name. A delta to it could not be restored. */
int used_check_bases(const used_files *u, fault *f);

void used_free(used_files *u);

/* Print "bitsnap: NAME: warning: ..."; warn_errno adds the text of errno. */
void warn(const used_files *u, const char *name, const char *text);
void warn_errno(const used_files *u, const char *name, const char *text);

/* ================================================================================= PLACES */

/* Returns the path with links resolved; only its last part may be missing. The caller frees it. Null with the fault set. */
char *place_of(const char *path, fault *f);

/* Makes a temporary file in the directory of `target`, a path without links, and returns its descriptor, or -1. Its name ends
 * like that of `target`. temporary_remove removes it, and so does a signal that ends the program. Leftovers of earlier runs are
 * removed from the directory. Only one can exist at a time. */
int temporary_open(const char *target, const used_files *u, fault *f);
void temporary_remove(void);

/* Gives the temporary file, whose stamp is `own`, the name of the target. `before` is the stamp of the file to be replaced; null:
 * there was none. If another file has that name by now, fails and keeps both, and the fault says where. */
int temporary_publish(const char *target, const file_stamp *before, const file_stamp *own, const used_files *u, fault *f);

/* Gives the directory at `path` the name `target`. The directory that had this name, with the stamp `before` (null: there was
 * none), gets the name `path`. Fails if another one has the name by now. On systems without an atomic exchange, `target` is
 * missing for a moment. */
int place_exchange(const char *path, const char *target, const file_stamp *before, fault *f);

/* Fail if the file at this path cannot be replaced or removed, as far as that can be known beforehand. */
int place_check_replaceable(const char *path, fault *f);
int place_check_removable(const char *path, fault *f);

/* Removes the file at this path. Fails if it is not the file that was opened, or was written to since. */
int place_remove(const char *path, const file_stamp *opened, fault *f);

/* Returns this path with `mark` before its last part. The caller frees it. */
char *place_beside(const char *path, const char *mark, fault *f);

/* Removes leftovers of killed runs on this machine from the directory of this path. temporary_open calls it, too. */
void place_clean(const char *path, const used_files *u);

/* Call once, before the first temporary file and the first thread. Signals that would end the program then remove the temporary
 * file first. If a mapped file is cut short, the program prints a message and ends with `status`. */
void place_handle_signals(int status);

/* Sets *all to all signals except faults that a thread causes itself. */
static inline void signals_all(sigset_t *all)
{
    (void)sigfillset(all);
    /* if one of these is blocked and a thread causes it, the program ends at once and leaves its temporary file */
    (void)sigdelset(all, SIGSEGV);
    (void)sigdelset(all, SIGBUS); /* another process has cut a mapped file short */
    (void)sigdelset(all, SIGFPE);
    (void)sigdelset(all, SIGILL);
}

/* Between these two calls, none of these signals ends the program. */
void hold_signals(sigset_t *before);
void release_signals(const sigset_t *before);

#endif
