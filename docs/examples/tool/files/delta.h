/* delta.h - what a delta is: what it says of the files that it is between, and its frames; two that follow each other as one, and the way back.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_DELTA_H
#define TOOL_DELTA_H

#include "file.h"

/* ================================================================================= ENDS
 * delta_ends_free is to be called after failures, too. */

/* What deltas say of a file with this text. */
delta_end delta_end_of(const char *text, size_t text_size, uint64_t data_size);

/* Whether two ends can be the same file. */
int delta_ends_agree(const delta_end *a, const delta_end *b);

/* Makes them from texts that are known, which are copied, as names are; `with_base_text`: that of the first base is stored, where it is another. */
int delta_make_ends(delta_ends *l, const delta_end *bases, size_t count, const char *base_text, const delta_end *own, const char *own_text,
                    int with_base_text, fault *f);

/* Those of a file that is read, without its texts. */
int delta_take_ends(delta_ends *l, const bitsnap_file_start *s, fault *f);

/* Finds out what can be known of the texts: from that of the first base (null: not at hand), or from what the delta holds. */
int delta_find_texts(delta_ends *l, const char *base_text, fault *f);
void delta_ends_free(delta_ends *l);

/* ================================================================================= FRAMES */

typedef struct delta_frame {
    file_frame about;      /* `at`, ids and numbers of cells only of frames that come from a file */
    const uint8_t *bytes;
    uint8_t *owned;        /* the same, where they lie in no file */
    size_t size;
} delta_frame;

/* A delta; or for delta_follows a whole file, which has no bases. */
typedef struct delta {
    input in;              /* the file, mapped; fd is -1 where there is none */
    delta_ends ends;
    delta_frame *frames;
    size_t count, capacity;
} delta;

/* Opens a file, whose frames are looked at, but not decoded. delta_close is to be called after failures, too. */
int delta_open(delta *d, codec *c, const char *path, fault *f);

/* Adds a frame; and takes from a reader what it knows of the ends. */
int delta_note_frame(delta *d, const file_frame *about, fault *f);
int delta_take(delta *d, file_reader *r, fault *f);

/* Whether the delta `x` was made against what `before` holds: by the headers, and by the content ids of all frames that
 * hold the same elements. Where it does not, `why` (96 bytes) says what differs; else how many frames could not be compared. */
int delta_follows(const delta *before, const delta *x, char *why);

/* `b`, which follows `a`, put together with it; or the way back. Where that takes the base the message says so. Frames are
 * checked on the way, but for hashes of elements that are not known. Where elements have to be decoded, `limit` is as in
 * file_check_limit, for each frame. */
int delta_join(delta *d, codec *c, delta *a, delta *b, uint64_t limit, fault *f);
int delta_turn(delta *d, codec *c, delta *a, fault *f);

/* Writes it to an output that is open. */
int delta_write(const delta *d, codec *c, output *out, fault *f);

void delta_close(delta *d);

#endif
