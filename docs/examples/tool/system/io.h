/* io.h - files and pipes: reading through a window, and outputs that are there whole or not at all.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_IO_H
#define TOOL_IO_H

#include "posix.h"

#include "../console/fault.h"
#include "place.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIZE_UNKNOWN UINT64_MAX

/* ================================================================================= TIME */

/* Seconds, and how many of them the main thread has spent in calls that read, write, or wait for the disk: what coding does not take. Reads
 * through a mapping, and of other threads while the main thread codes, are not in it. */
typedef struct elapsed {
    double seconds, io;
} elapsed;

double seconds_now(void);
elapsed elapsed_now(void); /* the first call says which thread is the main one */
elapsed elapsed_since(elapsed begun);

/* ================================================================================= INPUT */

typedef struct input {
    const char *name;      /* as in messages */
    int fd;
    int regular;           /* a file: has a size, and can be read at any place */
    int ended;             /* the end has been seen */
    int owned;             /* these are what a copy should have */
    mode_t mode;
    uid_t owner;
    gid_t group;
    file_stamp stamp;      /* which file it is, and as it was when it was opened */
    uint64_t size;         /* bytes from where reading began; SIZE_UNKNOWN for pipes */
    uint64_t offset;       /* bytes read and done with */
    uint8_t *window;       /* the next bytes: those from `at` to `end` */
    size_t capacity, at, end;
    uint8_t *map;          /* all of it, where input_map has been called */
} input;

/* Opens a file; "-" is standard input. */
int input_open(input *in, const char *path, fault *f);
void input_close(input *in);

/* Whether the file is still as it was when it was opened: a copy of a file that changes meanwhile is of no use. Two changes
 * within one tick of the kernel's clock, some milliseconds on some systems, cannot be told apart. */
int input_check_unchanged(const input *in, fault *f);

/* The file is of those that the command reads; `path` as it was opened. */
int input_note(const input *in, const char *path, used_files *u, fault *f);

/* The next bytes, up to n: fewer only at the end. They go to `to`, past the window where that is empty. */
int input_read(input *in, void *to, size_t n, size_t *got, fault *f);

/* Reads ahead until the window holds n bytes, or all that are left. Large requests cost memory only as the bytes
 * arrive: n may come from the file itself. */
int input_fill(input *in, size_t n, fault *f);

/* The bytes in the window; the first n of them are done with. */
static inline const uint8_t *input_bytes(const input *in) { return in->window + in->at; }
static inline size_t input_available(const input *in) { return in->end - in->at; }
void input_consume(input *in, size_t n);

/* Passes over n bytes; *passed is less only at the end. */
int input_skip(input *in, uint64_t n, uint64_t *passed, fault *f);

/* Bytes of a regular file, wherever reading is; by several threads at once. Not 0: they cannot be read, by errno, or 0 in that: they are not
 * there any more. */
int input_get(const input *in, uint64_t offset, void *to, size_t size);

/* Continues at a byte counted from where reading began. Regular files only. */
int input_seek(input *in, uint64_t offset, fault *f);

/* The whole of a regular file in memory, without reading it: its bytes come as they are looked at. They stay until
 * input_close. Only where the machine is not little-endian can they be changed (for this program alone). */
int input_map(input *in, fault *f);

/* Makes a pipe a file: a temporary one, with all that is left to come. Files stay as they are. */
int input_settle(input *in, fault *f);

/* Another input of the same file, from its start. */
int input_again(const input *in, input *other, fault *f);

/* ================================================================================= OUTPUT */

typedef struct output {
    const char *name;      /* as in messages */
    char *target;          /* where a regular file will be; null: the output cannot be taken back */
    int fd;
    used_files *used;
    int replaces;          /* there is a file, which it replaces if it stays as it is */
    file_stamp before;     /* that file */
    file_stamp own;        /* the output itself, when it has its name */
    const input *like;     /* whose permissions, owner and time it is to have; null: those of any new file */
    int over;              /* it takes the place of that, also with its extended attributes */
    int spool;             /* a temporary file that this program alone reads */
    int timed;
    uint64_t size;         /* bytes written */
} output;

/* Opens an output that gets its name only when output_commit is called: until then it is a temporary file beside the
 * target, which is removed by output_discard, and by signals that end the program. "-" is standard output; devices and
 * pipes are written directly. What the command reads is refused, and a file that is there, too, without `replace`.
 * `like` gives permissions and owner, and must stay open until output_commit; null: those of a new file. One output at a time. */
int output_open(output *out, const char *path, int replace, const input *like, used_files *u, fault *f);

/* Whether such an output can be made, as far as that can be known. */
int output_probe(const char *path, int replace, used_files *u, fault *f);

/* The same for an output that takes the place of the input itself. */
int output_open_over(output *out, const char *path, const input *in, used_files *u, fault *f);

/* The output will have the time of `like`, as other compressors' have. */
void output_keep_time(output *out);

/* Whether it will be a file that can be read again. */
static inline int output_is_file(const output *out) { return out->target != NULL; }

int output_write(output *out, const void *bytes, size_t n, fault *f);

/* Writes to a spool at any place; reads bytes that were written to a spool or to a regular file. */
int output_write_at(const output *out, uint64_t offset, const void *bytes, size_t n, fault *f);
int output_read_at(const output *out, uint64_t offset, void *to, size_t n, fault *f);

/* The output is on the disk, and has its name. Permissions, owner and time that cannot be given are a warning. */
int output_commit(output *out, fault *f);
void output_discard(output *out);

/* After output_commit: removes the file that the input was opened from, if both are still what they were. */
int output_remove_source(const output *out, const input *in, const char *path, fault *f);

/* Before the work: whether output_remove_source may, as far as that can be known. */
int output_check_removable(const output *out, const input *in, const char *path, fault *f);

/* Whether there is something at this path that output_open would refuse to replace. */
int output_exists(const char *path);

/* A file without a name, to be read and written by this program: in the directory that spool_in has set, in $TMPDIR, or
 * in /tmp. The directory's name must stay. */
void spool_in(const char *directory);
int spool_open(output *out, fault *f);
int spool_copy(output *out, input *in, fault *f); /* all that is left of an input */
int spool_to_input(output *out, input *in, const char *name, fault *f);

#endif
