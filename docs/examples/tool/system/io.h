/* io.h - files and pipes: inputs that are read through a window, and outputs that get their name only when they are whole.
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

/* seconds: the time that has passed. io: seconds of it that the main thread spent in calls that read, write, or wait for the
 * disk. It does not include reads through a mapping, and reads by other threads. */
typedef struct elapsed {
    double seconds, io;
} elapsed;

double seconds_now(void);
elapsed elapsed_now(void); /* the first call makes its thread the main one */
elapsed elapsed_since(elapsed begun);

/* ================================================================================= INPUT */

typedef struct input {
    const char *name;      /* as in messages */
    int fd;
    int regular;           /* 1: a file, with a size and random access */
    int ended;             /* 1: the end has been read */
    int owned;             /* 1: the next three are those of a file, for a copy to have */
    mode_t mode;
    uid_t owner;
    gid_t group;
    file_stamp stamp;      /* its identity and state when it was opened */
    uint64_t size;         /* bytes from where reading began; SIZE_UNKNOWN for pipes */
    uint64_t offset;       /* bytes consumed */
    uint8_t *window;       /* holds the next bytes, from `at` to `end` */
    size_t capacity, at, end;
    uint8_t *map;          /* the whole file after input_map; else null */
} input;

/* Opens a file; "-" is standard input. */
int input_open(input *in, const char *path, fault *f);
void input_close(input *in);

/* Fails if the file has changed since it was opened, because a copy of it would be useless. Does not notice a change within the
 * same tick of the kernel's clock, some milliseconds on some systems. */
int input_check_unchanged(const input *in, fault *f);

/* Adds the file to those that the command reads. `path` is the name that it was opened with. */
int input_note(const input *in, const char *path, used_files *u, fault *f);

/* Reads the next n bytes to `to`; fewer only at the end. Bypasses the window if that is empty. */
int input_read(input *in, void *to, size_t n, size_t *got, fault *f);

/* Reads ahead until the window holds n bytes, or all that are left. Memory grows only as bytes arrive, so n may be a number from
 * the file itself. */
int input_fill(input *in, size_t n, fault *f);

/* The bytes in the window, and their number. input_consume drops the first n of them. */
static inline const uint8_t *input_bytes(const input *in) { return in->window + in->at; }
static inline size_t input_available(const input *in) { return in->end - in->at; }
void input_consume(input *in, size_t n);

/* Skips n bytes; *passed is less only at the end. */
int input_skip(input *in, uint64_t n, uint64_t *passed, fault *f);

/* Reads bytes of a regular file at any offset, and leaves the position alone. Several threads may call it at once. Returns 0 on
 * success. After a failure errno has the reason; 0 there means that the file has become shorter. */
int input_get(const input *in, uint64_t offset, void *to, size_t size);

/* Sets the position, counted from where reading began. Regular files only. */
int input_seek(input *in, uint64_t offset, fault *f);

/* Maps a regular file as a whole until input_close. The system reads its bytes when they are used. The map is read-only on
 * little-endian machines; on others it is private, so that elements can be swapped. */
int input_map(input *in, fault *f);

/* Copies the rest of a pipe to a temporary file and continues there. Does nothing for a file. */
int input_settle(input *in, fault *f);

/* Opens another input on the same file, at its start. */
int input_again(const input *in, input *other, fault *f);

/* ================================================================================= OUTPUT */

typedef struct output {
    const char *name;      /* as in messages */
    char *target;          /* path of the regular file that it becomes; null: it is written directly */
    int fd;
    used_files *used;
    int replaces;          /* 1: it replaces the file `before`, if that does not change */
    file_stamp before;     /* that file */
    file_stamp own;        /* the output itself, once it has its name */
    const input *like;     /* gives it permissions, owner and time; null: those of a new file */
    int over;              /* 1: it replaces `like` itself, and gets its extended attributes, too */
    int spool;             /* 1: a temporary file that only this program reads */
    int timed;
    uint64_t size;         /* bytes written */
} output;

/* Opens an output, which gets its name in output_commit. Until then it is a temporary file beside the target; output_discard
 * removes it, and so do signals that end the program. "-" is standard output. Devices and pipes are written directly. Fails if
 * the target is a file that the command reads, or if it exists and `replace` is 0. `like` gives permissions and owner, and must
 * stay open until output_commit; null: those of a new file. Only one output can be open at a time. */
int output_open(output *out, const char *path, int replace, const input *like, used_files *u, fault *f);

/* Fails if output_open would fail, as far as that can be known beforehand. */
int output_probe(const char *path, int replace, used_files *u, fault *f);

/* Opens an output that replaces the input itself. */
int output_open_over(output *out, const char *path, const input *in, used_files *u, fault *f);

/* Gives the output the time of `like`, as other compressors do. */
void output_keep_time(output *out);

/* Returns 1 if the output is a file, which can be read again. */
static inline int output_is_file(const output *out) { return out->target != NULL; }

int output_write(output *out, const void *bytes, size_t n, fault *f);

/* Writes to a spool at any place; reads bytes that were written to a spool or to a regular file. */
int output_write_at(const output *out, uint64_t offset, const void *bytes, size_t n, fault *f);
int output_read_at(const output *out, uint64_t offset, void *to, size_t n, fault *f);

/* Waits until the output is on the disk, and gives it its name. Warns if permissions, owner or time cannot be set. */
int output_commit(output *out, fault *f);
void output_discard(output *out);

/* After output_commit: removes the file of the input, if neither that nor the output was changed or replaced. */
int output_remove_source(const output *out, const input *in, const char *path, fault *f);

/* Before the work: fails if output_remove_source would, as far as that can be known. */
int output_check_removable(const output *out, const input *in, const char *path, fault *f);

/* Returns 1 if a file is at this path that output_open replaces only with `replace`. */
int output_exists(const char *path);

/* Spools are files without a name, which only this program reads and writes. They are in the directory given to spool_in, in
 * $TMPDIR, or in /tmp. spool_in keeps the pointer to the name. */
void spool_in(const char *directory);
int spool_open(output *out, fault *f);
int spool_copy(output *out, input *in, fault *f); /* writes the rest of an input */
int spool_to_input(output *out, input *in, const char *name, fault *f);

#endif
