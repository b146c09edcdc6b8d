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
    char file[1024]; /* the file that the message is about */
    char text[640];
    int passes; /* 1: it may not recur, as a lack of room or a disk error, and says nothing about a file */
} fault;

/* Sets the message; always returns 1. */
int fault_set(fault *f, const char *format, ...) TOOL_PRINTF(2, 3);

/* Sets the message followed by strerror(errno); always returns 1. Sets `passes` unless the file does not exist. */
int fault_errno(fault *f, const char *format, ...) TOOL_PRINTF(2, 3);

int fault_memory(fault *f);

/* Makes room for one more than `count` items of `each` bytes, and zeroes that item. Returns the items, which may have moved
 * (*capacity then grows). Without memory, returns null, sets the fault and changes nothing. */
void *grown(void *items, size_t count, size_t *capacity, size_t each, fault *f);

/* Appends to the message; always returns 1. */
int fault_add(fault *f, const char *more);

/* Sets the file that the message is about; always returns 1. */
int fault_in(fault *f, const char *file);

/* fault_errno, then fault_in; always returns 1. */
int fault_errno_in(fault *f, const char *file, const char *what);

/* As fault_in, unless the file is already set. */
int fault_about(fault *f, const char *file);

/* Returns the name of a file of the command line for messages: "-" is standard input. */
const char *shown_name(const char *path);

/* Prints "bitsnap: FILE: message" on standard error, as one line whatever the file's name. */
void fault_print(const fault *f);

/* Prints text that comes from a file. Characters that could control a terminal, or make a name look like another
 * (utf8_is_control), become \u202e; bytes that are not UTF-8 become \x9b. Returns the number of columns, as text_columns does
 * without printing: two for an East Asian character or a picture. */
size_t print_text(FILE *to, const char *text, size_t size);
size_t text_columns(const char *text, size_t size);

/* Prints a file's name in that way, then `then` unchanged. */
void print_file(FILE *to, const char *name, const char *then);

/* Returns the bytes of the character at `text`; *columns is the number that print_text uses for it. text < end. */
size_t text_step(const char *text, const char *end, size_t *columns);

/* For an unfinished line on the terminal, such as that of progress: call line_mark after writing it, and line_wipe before
 * anything else is written there, on either stream. */
void line_mark(void);
void line_wipe(void);

#endif
