/* fault.h - errors: what is wrong, in one line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A function that can fail returns 0, or 1 with the message in the fault that it was given; so callers pass
 * failures on with `if (f(..., fault)) return 1`, and only main prints. */
#ifndef TOOL_FAULT_H
#define TOOL_FAULT_H

#include <stddef.h>
#include <stdio.h>

#if defined(__GNUC__) || defined(__clang__)
#define TOOL_PRINTF(string, first) __attribute__((format(printf, string, first)))
#else
#define TOOL_PRINTF(string, first)
#endif

typedef struct fault {
    char file[1024]; /* what it is about */
    char text[640];
    int passes; /* whether it may be gone the next time, as a lack of room or an error of the disk, and says nothing of a file */
} fault;

/* Sets the message; always returns 1. */
int fault_set(fault *f, const char *format, ...) TOOL_PRINTF(2, 3);

/* The same, with strerror(errno) behind it. Passes but for a file that is not there. */
int fault_errno(fault *f, const char *format, ...) TOOL_PRINTF(2, 3);

int fault_memory(fault *f);

/* `items` of `each` bytes, moved to where one more than `count` fits if that is not so already (then *capacity grows). That
 * one is zero. Null, with the fault set and all as it was, if there is no memory. */
void *grown(void *items, size_t count, size_t *capacity, size_t each, fault *f);

/* Writes more behind the message; always returns 1. */
int fault_add(fault *f, const char *more);

/* The failure is about this file; always returns 1. */
int fault_in(fault *f, const char *file);

/* The same, after fault_errno. */
int fault_errno_in(fault *f, const char *file, const char *what);

/* As fault_in, unless it is known already which file the failure is about. */
int fault_about(fault *f, const char *file);

/* What messages call a file of the command line: "-" is standard input. */
const char *shown_name(const char *path);

/* "bitsnap: FILE: message" on standard error: one line, whatever the file is called. */
void fault_print(const fault *f);

/* Writes text that comes from a file to a terminal: characters that would be commands to it, and those that make a name look
 * like another (utf8_is_control), as \u202e, bytes that are no UTF-8 as \x9b. Returns how many columns it took, which
 * text_columns tells without writing: two for a character of East Asia or a picture. */
size_t print_text(FILE *to, const char *text, size_t size);
size_t text_columns(const char *text, size_t size);

/* The same of a file's name, and the text that comes after it, as it is. */
void print_file(FILE *to, const char *name, const char *then);

/* The bytes of the character at `text`, and the columns that print_text makes of it. text < end. */
size_t text_step(const char *text, const char *end, size_t *columns);

/* A line on the terminal that does not end, as that of progress: line_mark when it has been written. Whoever writes something
 * else there, on either stream, calls line_wipe before. */
void line_mark(void);
void line_wipe(void);

#endif
