/* progress.h - a line on the terminal that shows the progress on a file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_PROGRESS_H
#define TOOL_PROGRESS_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "../system/io.h"

typedef struct progress {
    int on;
    const char *name;
    uint64_t total;     /* bytes, or SIZE_UNKNOWN */
    elapsed begun;
    double shown;       /* seconds */
} progress;

/* The total is unknown until it is set. Shows nothing if `wanted` is 0 or standard error is not a terminal. The line is at most
 * as wide as that. */
void progress_begin(progress *p, int wanted, const char *name);
void progress_set_total(progress *p, uint64_t total);
void progress_show(progress *p, uint64_t done);

/* Wipes the line for good; line_wipe until it is shown again. */
void progress_end(progress *p);

/* Returns the number of columns that may be written, 0 if fd is not a terminal. */
size_t terminal_columns(int fd);

/* Prints a name in at most `room` columns, and returns their number. If it is too long, prints its end, which tells more than its
 * start. */
size_t print_end(FILE *to, const char *name, size_t size, size_t room);

/* Ends a row on standard output, after `at` columns, with a name and notes (may be ""). If the terminal is too narrow for both,
 * the name gets a separate line, and loses its beginning if it does not fit there either. */
void print_last(const char *name, size_t size, size_t at, const char *notes);

/* Prints the rest of a line, after `at` columns. If the terminal is too narrow, it becomes several lines; each except the last
 * ends with a comma or semicolon, and each except the first is indented. */
void print_wrapped(FILE *to, size_t at, const char *text);

/* Sets the number of the file whose line comes next, from 1, and the number of files. */
void progress_files(size_t number, size_t count);

#endif
