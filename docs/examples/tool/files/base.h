/* base.h - what a delta is against: a .safetensors file, a .bsnap file, or a chain of them, read by pieces; and where that is found, if the
 * delta says only what it was called.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_BASE_H
#define TOOL_BASE_H

#include "file.h"
#include "container.h"

typedef struct base {
    const char *path;    /* of a file in a folder: as it is there */
    input in;            /* the file, or a temporary one without a name */
    file_base file;      /* what it holds */
    safetensors model;
    struct base_reader *reader; /* private */
    int shared;          /* all of it but `next` and file.next is another base's, which lives as long */
    struct base *next;   /* of several bases that of the next number; file.next is of it */
} base;

/* Opens a chain: the first file is whole, every other a delta to what stands before it, or whole again. What is packed is decoded as it
 * is needed. `limit` as in file_read_begin. base_close is to be called after failures, too. */
int base_open(base *b, codec *c, const char *const *paths, size_t count, uint64_t limit, fault *f);

/* Opens a file that follows `before`, one base or several, which become its own; null: it has to be whole, or find its base beside it. */
int base_follow(base *b, codec *c, const char *path, base *before, uint64_t limit, fault *f);

/* Opens a .safetensors file that is being read as an input once more, if its own position says that the input begins where the file does; else *found
 * is 0. base_close is to be called in any case. */
int base_again(base *b, const codec *c, const input *in, int *found, fault *f);

/* Opens a .safetensors file, and nothing else. */
int base_plain(base *b, const codec *c, const char *path, fault *f);

/* What a delta, or another .bsnap file, restores to, all of it, as a temporary file; `before` is its base, or null. */
int base_restore(base *b, codec *c, const char *path, const base *before, uint64_t limit, fault *f);

/* The bases of a delta, where files of their names, packed or not, lie in the same folder and have the headers that they should have; they
 * may be deltas whose bases lie there, too. `found` says whether they do, which is said unless warnings are not wanted. The
 * input is open, at its start, and goes back there: it may be no delta. base_close is to be called in any case. */
int find_beside(base *b, codec *c, input *in, const char *path, uint64_t limit, int *found, fault *f);

/* Fails if a packed file, which is to be replaced by one of other contents, is the base of another one in its folder that is not there unpacked,
 * too: that could not be restored any more. */
int check_not_needed(codec *c, const char *path, fault *f);

/* What it holds as an input: the file itself, or a temporary one. */
int base_input(const base *b, const codec *c, input *in, fault *f);

/* Whether nobody has written to it meanwhile, nor to what it stands on. */
int base_check_unchanged(const base *b, fault *f);

void base_clear(base *b); /* none, which base_close can be called for */

/* Closes it, and those that follow it, which are freed. */
void base_close(base *b);

#endif
