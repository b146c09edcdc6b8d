/* Output that all modes share. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "counters.h"

/* Prints the title of a table: machine, compiler, commit, peers. `processor`: the one that the thread is pinned to; -1: not
 * pinned. */
void report_title(int processor);

/* Prints '{' and the title as members of JSON, with a comma after the last. */
void json_title(void);

/* Prints a member with a string or null, and a comma after it. */
void json_member(const char *name, const char *text);

/* Prints a speed; null if it was not measured. */
void json_speed(double speed);

/* Prints members NAMEcycles and NAMEinstructions, per element of n, each with a comma before it. Prints nothing if
 * they were not counted. */
void json_counts(const char *name, const counts *c, double n);

#endif
