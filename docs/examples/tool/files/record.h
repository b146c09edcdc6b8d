/* record.h - the records of a .bsnap file around its frames: their sizes and magics. docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_RECORD_H
#define TOOL_RECORD_H

#include "bitsnap.h"

#include <stddef.h>
#include <stdint.h>

enum {
    HEADER_SIZE = 32,
    BASES_PREFIX = 16, BASE_ENTRY = 21, BASES_MOST = 255, /* names, and 8 bytes, follow */
    TEXT_PREFIX = 12,     /* a coded piece and 8 bytes follow */
    PLACE_SIZE = 16,
    END_PREFIX = 24, END_SUFFIX = 40, /* the trees in between */
    RECORD_ENTRY = 12, NAME_ENTRY = 8, /* bytes of the trees */
    FRAME_HEADER = 24     /* without extensions */
};

#define FILE_MOST (((uint64_t)1 << 48) - 1) /* bytes of a file, and of its source */

extern const uint8_t file_magic[8], bases_magic[4], text_magic[4], place_magic[4], frame_magic[4], end_magic[4], last_magic[8];

/* The bits of byte 10 of the header; and of byte 5 of the bases record. */
enum { FILE_QUANTIZED = 1 };
enum { BASES_SAME_TEXT = 1, BASES_WITH_TEXT = 2 };

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
