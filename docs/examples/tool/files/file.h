/* file.h - reads and writes .bsnap files from the first byte to the last: bitsnap_file.h with the tool's inputs, outputs, faults
 * and observers, and with a limit to what a file may expand to.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FILE_H
#define TOOL_FILE_H

#include "codec.h"
#include "container.h"
#include "../system/io.h"
#include "../console/progress.h"

enum { BASES_MOST = BITSNAP_BASES_MOST }; /* of a delta */

/* Forms of blocks: docs/FORMAT.md, section 5. */
enum {
    FORM_CONST = 1, FORM_SPLIT = 2, FORM_BYTES = 3, FORM_SAME = 4, FORM_CLASSED = 5, FORM_SCALED = 6, FORM_QUANTIZED = 7, FORM_SPARSE = 8,
    FORM_ZIGZAG = 9, FORM_PARTED = 10, FORM_PATCHED = 11
};

/* The base of a delta: a .safetensors file. */
typedef struct file_base {
    char name[256];        /* name that deltas state: that of its file, without directories; "": none */
    const char *text;
    size_t text_size;
    uint64_t data_size;
    bitsnap_file *file;    /* null if only the text is known */
    int (*failed)(const struct file_base *b, fault *f); /* sets the fault to the error of the last call on `file`; returns 1 */
    const void *context;
    const struct file_base *next; /* the base of the next number, if a model has several files; or null */
} file_base;

/* What a delta states of one of its bases, or of its own file. The name is empty or null if it is not known. */
typedef bitsnap_file_base delta_end;

/* What a delta states of its bases and of its own file, and their header texts: docs/FORMAT.md, section 8.5. */
typedef struct delta_ends {
    delta_end *bases;    /* base_count of them; base_text is that of the first */
    size_t base_count;
    delta_end own;
    char *base_text, *own_text; /* null: not known */
    uint8_t *coded;      /* the own text as text records; coded_size 0: it is the base's */
    size_t coded_size;
    uint8_t *base_coded; /* the base's text, in a delta that can be merged and inverted without its base; size 0: the delta has
                            none */
    size_t base_coded_size;
} delta_ends;

/* Elements of a base, from byte `begin` of its data on. */
typedef struct file_range {
    unsigned base;         /* its number */
    uint64_t begin;
    bitsnap_dtype dtype;
} file_range;

/* Reads bytes of the data of one of the bases. */
int file_base_read(const file_base *bases, const file_range *range, void *to, size_t size, fault *f);

/* How the elements of a frame are coded. */
typedef struct file_form {
    bitsnap_dtype dtype;
    unsigned cells;        /* bins of an octave; 0: not quantized by octaves */
    unsigned clusters;     /* clusters of a block; 0: not quantized by clusters */
    uint64_t columns;      /* 0: not known */
} file_form;

/* Reports the size of each block. note() is called for the blocks in order, with the bytes of the elements and those of the
 * block. Set it after file_write_begin and file_read_begin, which clear it. */
typedef struct block_observer {
    void (*note)(void *context, uint64_t source_bytes, uint64_t stored_bytes);
    void *context;
    uint64_t *against;     /* null, or receives the number of bytes coded as equal to the base, or as differences to it */
} block_observer;

/* ================================================================================= WRITING */

typedef struct file_writer {
    codec *codec;
    output *out;
    fault *fault;          /* of the call that writes */
    bitsnap_file_writer to;
    block_observer observer;
    bitsnap_info info;     /* of the frame that is written */
    uint64_t noted;        /* number of its elements reported to the observer */
    const file_base *base; /* of a delta */
    const file_base *itself; /* the source, or null */
} file_writer;

/* Flags: some of the frames will be quantized; will refer to earlier data. */
enum { FRAMES_QUANTIZED = 1, FRAMES_REFER = 2 };

/* Writes the header. `source_size` may be SIZE_UNKNOWN. `text` is null for raw elements. */
int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     unsigned frames, fault *f);

/* Gives the source as an open file, for frames that refer to earlier data of it: their range has base BITSNAP_BASE_ITSELF. */
void file_write_itself(file_writer *w, const file_base *itself);

/* Writes the header of a delta. If `base` is null, only packed frames and frames without a base can follow. `frames`:
 * FRAMES_REFER, or 0. */
int file_write_delta(file_writer *w, codec *c, output *out, const delta_ends *ends, const file_base *base, unsigned frames, fault *f);

/* Write a frame: its begin, its windows, its end. Each window has c->window bytes; the last may have fewer. `elements` are
 * little-endian; big-endian machines change them. `range` is null, or names the elements of the base that the frame is coded
 * against. */
int file_write_frame(file_writer *w, const file_form *form, uint64_t count, const file_range *range, fault *f);
int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f);
int file_write_frame_end(file_writer *w, fault *f);

/* Encodes such a frame in memory. Fails if `capacity` is too small; bitsnap_bound() bytes are enough. */
int file_pack_frame(file_writer *w, const file_form *form, void *elements, size_t bytes, const file_range *range,
                    uint8_t *frame, size_t capacity, size_t *size, fault *f);

/* Writes a frame that is encoded already and holds `source_bytes` bytes of the source. `place` is null, or names the elements of
 * the base that the frame is coded against. */
int file_write_packed(file_writer *w, const uint8_t *frame, size_t size, uint64_t source_bytes, const bitsnap_file_place *place, fault *f);

/* Writes the end record. file_write_close frees the memory, after success and after a failure. */
int file_write_end(file_writer *w, fault *f);
void file_write_close(file_writer *w);

/* ================================================================================= READING */

/* A frame, with all that its header and footer say. info counts its cells. */
typedef bitsnap_file_frame file_frame;

static inline int frame_is_quantized(const file_frame *x) { return (x->info.bins | x->info.clusters) != 0; }

/* Returns 1 if the base of a frame is earlier data of the same file. */
static inline int frame_refers(const file_frame *x) { return x->info.has_base && x->base == BITSNAP_BASE_ITSELF; }

/* Returns 0: no base. 1: a base of the same dtype. 2: F32, rounded to the dtype of the frame. 3: F16 or BF16, taken as F32. */
static inline int frame_role(const file_frame *x)
{
    if (!x->info.has_base) return 0;
    return x->info.base_dtype == x->info.dtype ? 1 : x->info.base_dtype == BITSNAP_F32 ? 2 : 3;
}

/* Reports each frame. note() is called for the frames in order, after each has been read; it returns 0, or 1 with a message. */
typedef struct frame_observer {
    int (*note)(void *context, const file_frame *frame, fault *f);
    void *context;
} frame_observer;

/* Reports how each block is coded. block() is called for the blocks in order, with the number of elements that differ from the
 * base. That number is UINT64_MAX if it is not known: the block is coded without the base and not decoded, or the base has
 * another dtype. elements(), if it is not null, receives the decoded elements and those of the base; `base` is null unless it has
 * the same dtype. */
typedef struct form_observer {
    int (*block)(void *context, const bitsnap_block *block, uint64_t changed, fault *f);
    void (*elements)(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes, unsigned width);
    void *context;
} form_observer;

/* Returns the number of elements, out of n, that differ from those of the base. */
uint64_t count_changed(const uint8_t *elements, const uint8_t *base, uint64_t n, unsigned width);

typedef struct file_reader {
    bitsnap_file_stream s;
    codec *codec;
    input *in;
    fault *fault;          /* of the call that reads */
    block_observer observer;
    form_observer form_observer;
    frame_observer frame_observer;
    uint64_t limit;        /* largest size of the source, in bytes; 0: as file_check_limit says */
    char *text;            /* header text of a .safetensors file; null if only the base of the delta has it */
    size_t text_size;
    delta_ends ends;       /* of a delta */
    const file_base *base; /* the base given for it */
    bitsnap_dtype common;  /* dtype of all frames so far; 0 before the first; I8 if they differ */
    uint64_t noted;        /* number of elements of the frame reported to the observers */
    int ended;             /* 1: the end record has been read and is right */
    output spool;          /* elements that later frames refer to; fd is -1 until memory does not hold them */
    const output *restored; /* the output, if it is a regular file: it has the source so far; or null */
    uint8_t *elements;     /* c->window bytes */
    int only_check;        /* 1: the elements are not needed. file_read gives a size, and no elements to look at */
    int pass_runs;         /* 1: equal windows of one repeated element come once */
    uint64_t again;        /* with pass_runs: number of further windows that equal the one read last */
} file_reader;

/* Fails if `size` bytes are too many to be made of `from` bytes: more than `limit`, or, if that is 0, more than both 4 GiB and
 * 256 times `from`. The message then asks for a limit of `whole`. */
int file_check_limit(uint64_t size, uint64_t whole, uint64_t from, uint64_t limit, fault *f);

/* Reads what comes before the frames. A delta needs its base; other files ignore it. Refuses a source that is too large to be
 * made of the file, and of its base (file_check_limit), as soon as its size is known. *r must not be moved. */
int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, fault *f);

/* Reads what comes before the frames, for file_look. `base` may be null or have only a text; it is ignored if the delta names
 * another. */
int file_look_begin(file_reader *r, codec *c, input *in, const file_base *base, fault *f);

/* Reads the next elements, as bytes of the source: a window, or the last part of a frame. At the end of the file, *size is 0, and
 * everything has been checked. The bytes stay until the next call. */
int file_read(file_reader *r, const uint8_t **bytes, size_t *size, fault *f);

/* Reads to the end of the file and writes the source to `out`; if that is null, only checks. Writes nothing before the first
 * elements have been checked, so most wrong bases leave no output. `p` may be null. */
int restore_source(file_reader *r, output *out, progress *p, fault *f);

/* Reads to the end of the file without decoding: checks the grammar of records and blocks only. */
int file_look(file_reader *r, fault *f);

void file_read_close(file_reader *r);

/* Return 1 if bytes begin a .bsnap file (needs 8 bytes); if they begin a delta (needs 10). */
int file_is_bsnap(const uint8_t *bytes, size_t size);
int file_is_delta(const uint8_t *bytes, size_t size);

/* Writes 2^30 bytes as "1.0 GiB"; `text` has 32 bytes. */
const char *size_text(char *text, uint64_t bytes);

#endif
