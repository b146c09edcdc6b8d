/* base.h - what a delta is against, in memory: a .safetensors file, a .bsnap file, or a chain of them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_BASE_H
#define TOOL_BASE_H

#include "file.h"
#include "container.h"

typedef struct base {
    const char *path;    /* of a file in a folder: as it is there */
    input in;            /* the .safetensors file, or a temporary one without a name */
    file_base file;
    safetensors model;
    struct base *next;   /* of several bases that of the next number; file.next is of it */
} base;

/* Opens a chain: the first file is whole, every other a delta to what stands before it, or whole again. `limit` as in file_read_begin.
 * base_close is to be called after failures, too. */
int base_open(base *b, codec *c, const char *const *paths, size_t count, uint64_t limit, fault *f);

/* Opens a .safetensors file, and nothing else. */
int base_map(base *b, const char *path, fault *f);

/* What a delta, or another .bsnap file, restores to; `before` is its base, or null. */
int base_restore(base *b, codec *c, const char *path, const base *before, uint64_t limit, fault *f);

/* Whether nobody has written to it meanwhile. */
int base_check_unchanged(const base *b, fault *f);

/* Closes it, and those that follow it, which are freed. */
void base_close(base *b);

#endif
