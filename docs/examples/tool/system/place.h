/* place.h - names in directories: files that are told apart, temporary ones, and ways to replace and remove that lose nothing.
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

/* Which file it is, and in which state. */
typedef struct file_stamp {
    dev_t device;
    ino_t inode;
    nlink_t links;
    off_t size;
    struct timespec modified, changed; /* its bytes; its bytes, mode, owner or names */
} file_stamp;

file_stamp stamp_of(const struct stat *st);
int stamp_at(const char *path, file_stamp *s);                 /* of what has this name, also of a link; 0, or -1 with errno */
int stamp_is_file(const file_stamp *a, const file_stamp *b);   /* one file, under whatever name */
int stamp_is_content(const file_stamp *a, const file_stamp *b); /* one file, not written to; renamed perhaps */
int stamp_is_same(const file_stamp *a, const file_stamp *b);    /* one file, which nobody has touched */

/* ================================================================================= FILES IN USE
 * What a run reads, and has written: nothing of it may become an output. */

typedef enum use { USE_INPUT, USE_BASE, USE_WEIGHTS, USE_OUTPUT } use;

typedef struct used_file {
    char *name;        /* as it was given */
    char *path;        /* as it is without links, or null */
    uint32_t hash;     /* of the path: there may be 10,000 */
    use role;
    int there, opened; /* the stamp is that of a file; as it was opened, not only of this name */
    file_stamp stamp;
} used_file;

typedef struct used_files {
    used_file *files;
    size_t count, capacity;
    int quiet;         /* no warnings */
    int prints;        /* text goes to standard output, which is this plain file */
    file_stamp printed;
} used_files;

/* Text will be printed: none of the files that come from now on may be what standard output leads to. */
void used_printing(used_files *u);

/* Whether one of those that are known by now is. */
int used_is_printed(const used_files *u);

/* A name of the command line, before anything is opened. */
int used_name(used_files *u, const char *name, use role, fault *f);

/* The file that has been opened by a name; what it is for is known from used_name. */
int used_opened(used_files *u, const char *name, const file_stamp *stamp, fault *f);

/* What has been written, and where. */
int used_written(used_files *u, const char *path, const file_stamp *stamp, fault *f);

/* Whether nothing of it is at this path, or is this file (null: there is none yet). */
int used_check(const used_files *u, const char *path, const file_stamp *stamp, fault *f);

/* Whether it is a base. */
int used_is_base(const used_files *u, const file_stamp *stamp);

/* Whether each base still has its name, and is as it was: a delta to what is gone would be of no use. */
int used_check_bases(const used_files *u, fault *f);

void used_free(used_files *u);

/* "bitsnap: NAME: warning: ..."; the second with what errno says. */
void warn(const used_files *u, const char *name, const char *text);
void warn_errno(const used_files *u, const char *name, const char *text);

/* ================================================================================= PLACES */

/* The path without links, if only its last part is missing; null with the fault set. To be freed. */
char *place_of(const char *path, fault *f);

/* A new file beside `target`, a path without links, whose name ends like its; removed by temporary_remove and by signals that end
 * the program. Leftovers of dead runs are removed from the directory. Returns a descriptor, or -1. One at a time. */
int temporary_open(const char *target, const used_files *u, fault *f);
void temporary_remove(void);

/* The temporary file becomes the target: where nothing is (before: null), or in place of what has been there before, if it is
 * that still. `own` is the temporary file. In doubt both stay, and the fault says where. */
int temporary_publish(const char *target, const file_stamp *before, const file_stamp *own, const used_files *u, fault *f);

/* A directory gets its name, and what has had that before (null: nothing) the other, if it is that still. Where the system has no
 * call that exchanges both, there is a moment in which nothing has the name. */
int place_exchange(const char *path, const char *target, const file_stamp *before, fault *f);

/* Whether the file at this path can be replaced, or removed, as far as that can be known before. */
int place_check_replaceable(const char *path, fault *f);
int place_check_removable(const char *path, fault *f);

/* Removes the file at this path, if it is still as it was when it was opened. */
int place_remove(const char *path, const file_stamp *opened, fault *f);

/* A name beside this path: the same behind `mark`. To be freed. */
char *place_beside(const char *path, const char *mark, fault *f);

/* Removes what runs of this machine that were killed have left in the directory of this path, as temporary_open does. */
void place_clean(const char *path, const used_files *u);

/* Once, before the first temporary file and before the first thread: signals that would end the program remove it first.
 * Where a file that is mapped is cut short, that is said, and the program ends with `status`. */
void place_handle_signals(int status);

/* All signals but the faults that a thread causes itself. */
static inline void signals_all(sigset_t *all)
{
    (void)sigfillset(all);
    /* a thread that causes one of these while it is blocked ends the program at once, with its temporary file left */
    (void)sigdelset(all, SIGSEGV);
    (void)sigdelset(all, SIGBUS); /* a file that is mapped has been cut short by somebody else */
    (void)sigdelset(all, SIGFPE);
    (void)sigdelset(all, SIGILL);
}

/* None of them ends the program between these two. */
void hold_signals(sigset_t *before);
void release_signals(const sigset_t *before);

#endif
