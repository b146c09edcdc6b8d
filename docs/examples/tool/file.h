/* file.h - reading and writing .bsnap files: docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A .bsnap file holds a source: raw elements, or a .safetensors file, which is the size of its header text, the
 * text, and elements. Both directions go through it from the first byte to the last, a window at a time. */
#ifndef TOOL_FILE_H
#define TOOL_FILE_H

#include "codec.h"
#include "io.h"

enum { SOURCE_RAW = 0, SOURCE_SAFETENSORS = 1 }; /* values of the format */

/* Who wants to know what blocks take: called for each in order, with the bytes of its elements and its own. Set
 * it after file_write_begin and file_read_begin, which clear it. */
typedef struct block_observer {
    void (*note)(void *context, uint64_t source_bytes, uint64_t stored_bytes);
    void *context;
} block_observer;

/* The sizes of the frames, which the end record repeats. */
typedef struct frame_list {
    uint64_t *sizes;
    size_t count, capacity;
} frame_list;

/* ================================================================================= WRITING */

typedef struct file_writer {
    codec *codec;
    output *out;
    block_observer observer;
    frame_list frames;
    uint64_t source_size;  /* bytes of the source so far */
    bitsnap_stream stream; /* of the frame being written */
    uint64_t noted;        /* its elements that the observer knows of */
    uint8_t *packed;       /* what leaves the codec */
    size_t packed_size;
} file_writer;

/* The header; `source_size` may be SIZE_UNKNOWN. `text` is null for raw elements. */
int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     fault *f);

/* A frame: begin, windows (c->window bytes each, but for the last), end. `elements` are little-endian, and
 * changed on machines that are not. */
int file_write_frame(file_writer *w, bitsnap_dtype dtype, uint64_t count, fault *f);
int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f);
int file_write_frame_end(file_writer *w, fault *f);

/* The end record. file_write_close frees memory, at any time. */
int file_write_end(file_writer *w, fault *f);
void file_write_close(file_writer *w);

/* ================================================================================= READING */

typedef struct file_reader {
    codec *codec;
    input *in;
    block_observer observer;
    frame_list frames;
    int kind;              /* SOURCE_RAW or SOURCE_SAFETENSORS */
    int ended;             /* the end record has been read and agreed */
    uint64_t claimed;      /* bytes of the source, as the header has it; SIZE_UNKNOWN where it does not */
    uint64_t limit;        /* bytes that the source may have, 0: see file_read_begin */
    uint64_t done;         /* bytes of the source so far */
    char *text;            /* header text of a .safetensors file */
    size_t text_size;
    bitsnap_dtype dtype;   /* of the elements that were read last */
    bitsnap_dtype common;  /* of all frames so far, 0 before the first; I8 where they differ */
    int in_frame;
    bitsnap_stream stream;
    uint64_t frame_begin;  /* byte of the file */
    uint64_t noted;
    uint8_t *elements;     /* c->window bytes */
} file_reader;

/* Reads what comes before the frames. Where the source is larger than `limit`, or with limit 0 larger than both
 * 4 GiB and 256 times the file, it is refused: as soon as that is known. */
int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, fault *f);

/* The next elements, as bytes of the source: a window at a time, or what a frame has left. *size is 0 at the
 * end of the file, when everything has been checked. They stay until the next call. */
int file_read(file_reader *r, const uint8_t **bytes, size_t *size, fault *f);

/* Goes on to the end without decoding: only the grammar of records and blocks is looked at. */
int file_look(file_reader *r, fault *f);

void file_read_close(file_reader *r);

/* Whether a file begins like this one: 8 bytes are enough. */
int file_is_bsnap(const uint8_t *bytes, size_t size);

/* 2^30 bytes as "1.0 GiB"; `text` has 32 bytes. */
const char *size_text(char *text, uint64_t bytes);

#endif
