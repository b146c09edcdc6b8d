/* io.h - files and pipes: reading through a window, and outputs that are there whole or not at all.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_IO_H
#define TOOL_IO_H

#include "posix.h"

#include "fault.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SIZE_UNKNOWN UINT64_MAX

/* ================================================================================= INPUT */

typedef struct input {
    const char *name;      /* as in messages */
    int fd;
    int regular;           /* a file: has a size, and can be read at any place */
    int ended;             /* the end has been seen */
    mode_t mode;           /* permissions that a copy should have */
    dev_t device;          /* which file it is */
    ino_t inode;
    time_t changed;        /* when it was last written to */
    uint64_t size;         /* bytes from where reading began; SIZE_UNKNOWN for pipes */
    uint64_t offset;       /* bytes read and done with */
    uint8_t *window;       /* the next bytes: those from `at` to `end` */
    size_t capacity, at, end;
    uint8_t *map;          /* all of it, where input_map has been called */
} input;

/* Opens a file; "-" is standard input. */
int input_open(input *in, const char *path, fault *f);
void input_close(input *in);

/* Whether the file is still the one that was opened: a copy of a file that changes meanwhile is of no use. */
int input_check_unchanged(const input *in, fault *f);

/* Whether it is the file at this path, whatever that is called. */
int input_is(const input *in, const char *path);

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
    int replace;           /* an existing target may be replaced */
    int spool;             /* a temporary file that this program alone reads */
    int timed;             /* it is to have this time as its last change */
    time_t changed;
    uint64_t size;         /* bytes written */
} output;

/* Opens an output of its final name only when output_commit is called: until then it is a temporary file
 * beside the target, which is removed by output_discard, and by signals that end the program. "-" is standard
 * output; devices and pipes are written directly. `like` gives the permissions and must not be the target
 * itself; null: those of the umask. One output at a time. */
int output_open(output *out, const char *path, int replace, const input *like, fault *f);

/* The same for an output that takes the place of the input itself: with its permissions and, where that may be, its owner. */
int output_open_over(output *out, const char *path, const input *in, fault *f);

/* The output will have the input's time, as other compressors' have. */
void output_keep_time(output *out, const input *in);

/* Whether it will be a file that can be read again. */
static inline int output_is_file(const output *out) { return out->target != NULL; }

int output_write(output *out, const void *bytes, size_t n, fault *f);
int output_commit(output *out, fault *f);
void output_discard(output *out);

/* Whether there is something at this path that output_open would refuse to replace. */
int output_exists(const char *path);

/* Once, before the first output and before the first thread. */
void output_handle_signals(void);

/* A file without a name, to be read and written by this program: in the directory that spool_in has set, in $TMPDIR, or
 * in /tmp. The directory's name must stay. */
void spool_in(const char *directory);
int spool_open(output *out, fault *f);
int spool_copy(output *out, input *in, fault *f); /* all that is left of an input */
int spool_to_input(output *out, input *in, const char *name, fault *f);

#endif
