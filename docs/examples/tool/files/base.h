/* base.h - opens and reads the base of a delta: a .safetensors file, a .bsnap file, or a chain of them. Finds it by its name.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_BASE_H
#define TOOL_BASE_H

#include "file.h"
#include "container.h"

typedef struct base {
    const char *path;    /* path of a file of a folder; else null */
    input in;            /* the file, or a temporary file without a name */
    file_base file;      /* gives its elements */
    safetensors model;
    struct base_reader *reader; /* private */
    int shared;          /* 1: all but `next` and file.next belongs to another base, which lives as long */
    struct base *next;   /* if there are several: the base of the next number; file.next is its `file` */
} base;

/* Opens a chain. The first file is whole or finds its base beside it; every other is a delta to the one before it, or a whole
 * .bsnap file. Cells of packed files are decoded when they are needed. `limit` as in file_read_begin. Call base_close after
 * failures, too. */
int base_open(base *b, codec *c, const char *const *paths, size_t count, uint64_t limit, fault *f);

/* Opens a file whose bases are `before`, one or several, and takes them over. Null: it is whole, or its base is beside it. */
int base_follow(base *b, codec *c, const char *path, base *before, uint64_t limit, fault *f);

/* Opens the .safetensors file of an input again. *found is 0 if the position of the file shows that the input does not begin at
 * its first byte. Always call base_close. */
int base_again(base *b, const codec *c, const input *in, int *found, fault *f);

/* Opens a .safetensors file. Fails for any other kind. */
int base_plain(base *b, const codec *c, const char *path, fault *f);

/* Restores a .bsnap file as a whole to a temporary file, and opens that. `before` is the base of a delta, or null. */
int base_restore(base *b, codec *c, const char *path, const base *before, uint64_t limit, fault *f);

/* Finds and opens the bases of a delta in its own folder, as files of their names, packed or not, that have the right headers.
 * They may be deltas to other files there. *found is 1 if all were found; a note on standard error then names them, unless the
 * run is quiet. *in is at its start, and is there again afterwards. *found is 0 if it is not a delta. Always call base_close. */
int find_beside(base *b, codec *c, input *in, const char *path, uint64_t limit, int *found, fault *f);

/* Fails if a packed file, about to be replaced by other contents, is the base of a delta in its folder. That delta could not be
 * restored afterwards. A delta whose unpacked file is there too does not count. */
int check_not_needed(codec *c, const char *path, fault *f);

/* Opens what a base holds as an input: its own file if that is plain, else a temporary one. */
int base_input(const base *b, const codec *c, input *in, fault *f);

/* Fails if one of these files, or a base of theirs, was written to since it was opened. */
int base_check_unchanged(const base *b, fault *f);

void base_clear(base *b); /* makes it empty; base_close does nothing then */

/* Closes a base, and closes and frees those after it. */
void base_close(base *b);

#endif
