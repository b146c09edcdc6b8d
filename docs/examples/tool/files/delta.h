/* delta.h - deltas: what a delta states of its base and of its own file, its frames, and how to merge and invert deltas.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_DELTA_H
#define TOOL_DELTA_H

#include "file.h"

/* ================================================================================= ENDS
 * Call delta_ends_free after failures, too. */

/* Returns what deltas state of a file with this text. */
delta_end delta_end_of(const char *text, size_t text_size, uint64_t data_size);

/* Returns 1 if both may be the same file. */
int delta_ends_agree(const delta_end *a, const delta_end *b);

/* Makes ends from known texts. Copies texts and names. With `with_base_text`, the delta stores the text of the first base, unless
 * it equals its own. */
int delta_make_ends(delta_ends *l, const delta_end *bases, size_t count, const char *base_text, const delta_end *own, const char *own_text,
                    int with_base_text, fault *f);

/* Makes the ends of a file that is being read, without its texts. */
int delta_take_ends(delta_ends *l, const bitsnap_file_start *s, fault *f);

/* Sets the texts of *l, as far as they follow from that of the first base (null: not available) or from what the delta holds. */
int delta_find_texts(delta_ends *l, const char *base_text, fault *f);
void delta_ends_free(delta_ends *l);

/* ================================================================================= FRAMES */

typedef struct delta_frame {
    file_frame about;      /* `at`, ids and cell counts are set only if the frame comes from a file */
    const uint8_t *bytes;
    uint8_t *owned;        /* equals `bytes` if they are not in a file; else null */
    size_t size;
} delta_frame;

/* A delta. For delta_follows also a whole file, which has no bases. */
typedef struct delta {
    input in;              /* the mapped file; fd is -1 if there is none */
    delta_ends ends;
    delta_frame *frames;
    size_t count, capacity;
} delta;

/* Opens a file and parses its frames without decoding them. Call delta_close after failures, too. */
int delta_open(delta *d, codec *c, const char *path, fault *f);

/* delta_note_frame appends a frame. delta_take moves the ends from a reader to *d. */
int delta_note_frame(delta *d, const file_frame *about, fault *f);
int delta_take(delta *d, file_reader *r, fault *f);

/* Returns 1 if the delta `x` was made against what `before` holds. Compares the headers, and the content ids of all frames that
 * hold the same elements. `why` has 96 bytes; it receives what differs, or how many frames could not be compared. */
int delta_follows(const delta *before, const delta *x, char *why);

/* delta_join makes one delta of `a` and `b`, which follows it. delta_turn inverts `a`. They fail with a message if that needs
 * elements of the base. They check the frames, except hashes of elements that they do not know. `limit` is that of
 * file_check_limit, for each frame that has to be decoded. */
int delta_join(delta *d, codec *c, delta *a, delta *b, uint64_t limit, fault *f);
int delta_turn(delta *d, codec *c, delta *a, fault *f);

/* Writes a delta to an open output. */
int delta_write(const delta *d, codec *c, output *out, fault *f);

void delta_close(delta *d);

#endif
