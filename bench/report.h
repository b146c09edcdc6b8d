/* What all modes print alike. */
#ifndef BENCH_REPORT_H
#define BENCH_REPORT_H

#include "counters.h"

/* Of a table: machine, compiler, commit, peers. `processor`: that the thread is kept on; -1: on none. */
void report_title(int processor);

/* Of JSON: '{' and the same as members, with a comma behind the last. */
void json_title(void);

/* A string and its member, with a comma behind it; null for null. */
void json_member(const char *name, const char *text);

/* null where nothing was measured */
void json_speed(double speed);

/* Members NAMEcycles and NAMEinstructions, for each of n elements, each with a comma before it; nothing where
 * they were not counted. */
void json_counts(const char *name, const counts *c, double n);

#endif
