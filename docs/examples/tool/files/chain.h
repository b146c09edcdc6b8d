/* chain.h - what info tells of deltas: their frames, and whether one file follows another.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CHAIN_H
#define TOOL_CHAIN_H

#include "file.h"
#include "../tensors/forms.h"
#include "../console/json.h"

/* A .bsnap file, as a link of a chain. */
typedef struct chain_file {
    char *name;
    int delta;
    file_link link;        /* of a whole file only `own` */
    file_frame *frames;
    forms *forms;          /* of each frame */
    size_t count, capacity;
    forms now, all;        /* of the frame that is being read, and of all */
} chain_file;

/* Observers of frames and of blocks; the context is the chain_file. */
int chain_note_frame(void *context, const file_frame *frame, fault *f);
int chain_note_block(void *context, const bitsnap_block *block, uint64_t changed, fault *f);

/* What has been read, which is taken from the reader. */
int chain_take(chain_file *x, file_reader *r, const char *name, fault *f);

/* Whether the delta `x` was made against what `before` holds: by the headers, and by the content ids of all frames that
 * hold the same elements. Where it does not, `why` (96 bytes) says what differs; else how many frames could not be compared. */
int chain_follows(const chain_file *before, const chain_file *x, char *why);

/* Lines for people, and for programs; `follows`: 1, 0, or -1 where there is nothing before. */
void chain_print(const chain_file *x, uint64_t file_size);

/* How blocks are coded: in all, and where `each` is set frame by frame; of deltas a line for each frame anyway. */
void chain_print_forms(const chain_file *x, int each);
void chain_json(json *j, const chain_file *x, uint64_t file_size, int follows);

void chain_free(chain_file *x);

#endif
