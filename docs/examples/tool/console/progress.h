/* progress.h - a line on the terminal that says how far a file is.
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
    uint64_t total;     /* bytes; SIZE_UNKNOWN where nobody knows */
    elapsed begun;
    double shown;       /* seconds */
} progress;

/* The total is unknown until it is set. Shows nothing where `wanted` is 0 or standard error is no terminal. The line is as wide as the terminal at most. */
void progress_begin(progress *p, int wanted, const char *name);
void progress_set_total(progress *p, uint64_t total);
void progress_show(progress *p, uint64_t done);

/* Wipes the line for good; line_wipe until it is shown again. */
void progress_end(progress *p);

/* How many columns may be written to, 0 of what is no terminal. */
size_t terminal_columns(int fd);

/* Prints a name in so many columns at most, and returns in how many: of one that is too long the end, which tells more than its
 * start. */
size_t print_end(FILE *to, const char *name, size_t size, size_t room);

/* Ends a row on standard output, of which `at` columns are written, with a name and notes, which may be "". On a terminal that is too narrow
 * for both the name has a line of its own, and loses its beginning if it does not fit there either. */
void print_last(const char *name, size_t size, size_t at, const char *notes);

/* Prints the rest of a line of which so many columns are written. On a terminal that is too narrow it becomes several lines, each
 * but the last with a comma or semicolon at its end, and set in but for the first. */
void print_wrapped(FILE *to, size_t at, const char *text);

/* The file whose line comes next, from 1, and how many there are. */
void progress_files(size_t number, size_t count);

#endif
