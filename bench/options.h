/* The options of the benchmark. */
#ifndef BENCH_OPTIONS_H
#define BENCH_OPTIONS_H

#include <stddef.h>

typedef enum mode { CODECS, KERNELS, SIZES, THREADS, DELTAS, QUANTIZE, DTYPES } mode;

typedef struct options {
    mode mode;
    int json, quick;
    double budget;    /* seconds for a row */
    size_t dram_size; /* bytes of the tensor in memory; SIZES: of the largest one */
    size_t piece;
    const char *data;
    const char *codec, *isa, *level, *dtype, *file, *checks, *where, *kernel; /* filters; null: everything */
} options;

/* Reads the options. Exits if they are wrong or ask for help. */
options options_read(int argc, char **argv);

/* Returns 1 if `word` contains one of the comma-separated words of a filter. */
int passes(const char *filter, const char *word);

/* Prints a message to standard error and exits. */
void fail(const char *what, const char *detail);

#endif
