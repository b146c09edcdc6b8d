/* delta.h - deltas as wholes: two that follow each other as one, and the way back.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_DELTA_H
#define TOOL_DELTA_H

#include "file.h"

typedef struct delta_frame {
    file_frame about;      /* `at`, ids and numbers of cells only of frames that come from a file */
    const uint8_t *bytes;
    uint8_t *owned;        /* the same, where they lie in no file */
    size_t size;
} delta_frame;

typedef struct delta {
    input in;              /* the file, mapped; fd is -1 where there is none */
    file_link link;
    delta_frame *frames;
    size_t count, capacity;
} delta;

/* Opens a file, whose frames are looked at, but not decoded. delta_close is to be called after failures, too. */
int delta_open(delta *d, codec *c, const char *path, fault *f);

/* `b`, which follows `a`, put together with it; or the way back. Where that takes the base the message says so. Frames are
 * checked on the way, but for hashes of elements that are not known. Where elements have to be decoded, `limit` is as in
 * file_check_limit, for each frame. */
int delta_join(delta *d, codec *c, delta *a, delta *b, uint64_t limit, fault *f);
int delta_turn(delta *d, codec *c, delta *a, fault *f);

/* Writes it to an output that is open. */
int delta_write(const delta *d, codec *c, output *out, fault *f);

void delta_close(delta *d);

#endif
