/* block.h - blocks of frames by their heads, and what else of a frame has a size: docs/FORMAT.md, sections 5 and 6.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_BLOCK_H
#define TOOL_BLOCK_H

#include "container.h"

enum { FRAME_HEADER = 24 }; /* bytes, without extensions */

/* What tells how large blocks are. */
typedef struct block_kind {
    unsigned width, block_log2;
    int checks, base; /* whether blocks have checks, and the frame a base */
} block_kind;

enum {
    FORM_CONST = 1, FORM_SPLIT = 2, FORM_BYTES = 3, FORM_SAME = 4, FORM_CLASSED = 5, FORM_SCALED = 6, FORM_QUANTIZED = 7, FORM_SPARSE = 8,
    FORM_ZIGZAG = 9
};
enum { CERTIFICATE_SIZE = 44 };

/* A block, by its first bytes. */
typedef struct block_size {
    unsigned form, prefix;   /* prefix: bytes before the body */
    uint64_t whole;          /* all bytes */
    uint64_t cells, elements;
} block_size;

/* The certificate of a frame of so many cells, or 0 where there is no bound: CERTIFICATE_SIZE bytes of its footer. */
bitsnap_certificate certificate_read(const uint8_t *p, unsigned cells);

/* Bytes of the index of so many blocks. */
uint64_t index_size(uint64_t blocks);

/* The block at p, where at least 4 bytes are, and which is followed by so many elements of the frame. Nothing is checked: a form may
 * be unknown, and a run may be 0 or too long (then it has all elements that are left). */
block_size block_look(const uint8_t *p, const block_kind *k, uint64_t left);

#endif
