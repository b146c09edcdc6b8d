/* file.h - .bsnap files as the tool reads and writes them, from the first byte to the last: bitsnap_file.h with inputs, outputs and faults,
 * with a limit to what a file may expand to, and with observers.
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
    FORM_ZIGZAG = 9, FORM_PARTED = 10
};

/* What a delta is against: a .safetensors file. */
typedef struct file_base {
    char name[256];        /* what deltas call it: that of its file, without directories; "": nothing */
    const char *text;
    size_t text_size;
    uint64_t data_size;
    bitsnap_file *file;    /* null where only the text is at hand */
    int (*failed)(const struct file_base *b, fault *f); /* sets the fault to what the last call on `file` has found; returns 1 */
    const void *context;
    const struct file_base *next; /* of several bases, which are the files of one model, that of the next number; null: there is no other */
} file_base;

/* One of the files that a delta is between, by what the delta says of it. A name is empty or null if it is not known. */
typedef bitsnap_file_base delta_end;

/* What a delta says of these files, and how it holds the header text of one by that of the other: docs/FORMAT.md, section 8.5. */
typedef struct delta_ends {
    delta_end *bases;    /* base_count of them; texts are coded after that of the first */
    size_t base_count;
    delta_end own;
    char *base_text, *own_text; /* null where they are not known */
    uint8_t *coded;      /* the own text as text records, like the base's; no bytes: it is the base's */
    size_t coded_size;
    uint8_t *base_coded; /* the base's text, in deltas that can be merged and inverted without it; no bytes: not here */
    size_t base_coded_size;
} delta_ends;

/* Elements of a base, from this byte of its data on. */
typedef struct file_range {
    unsigned base;         /* its number */
    uint64_t begin;
    bitsnap_dtype dtype;
} file_range;

/* Bytes of the data of one of the bases. */
int file_base_read(const file_base *bases, const file_range *range, void *to, size_t size, fault *f);

/* As what elements are coded. */
typedef struct file_form {
    bitsnap_dtype dtype;
    unsigned cells;        /* bins of an octave, where they are quantized; else 0 */
    unsigned clusters;     /* or of a block, where they are quantized so */
    uint64_t columns;      /* 0: not known */
} file_form;

/* Who wants to know what blocks take: called for each in order, with the bytes of its elements and its own. Set
 * it after file_write_begin and file_read_begin, which clear it. */
typedef struct block_observer {
    void (*note)(void *context, uint64_t source_bytes, uint64_t stored_bytes);
    void *context;
    uint64_t *against;     /* counts the bytes of elements that are coded as those of the base, or by how they differ; or null */
} block_observer;

/* ================================================================================= WRITING */

typedef struct file_writer {
    codec *codec;
    output *out;
    fault *fault;          /* of the call that writes */
    bitsnap_file_writer to;
    block_observer observer;
    bitsnap_info info;     /* of the frame that is written */
    uint64_t noted;        /* elements of it that the observer knows of */
    const file_base *base; /* of a delta */
} file_writer;

/* The header; `source_size` may be SIZE_UNKNOWN. `text` is null for raw elements. `quantized`: some frames will be. */
int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     int quantized, fault *f);

/* The same for a delta. Without a base only frames that are packed, or have none, can follow. */
int file_write_delta(file_writer *w, codec *c, output *out, const delta_ends *ends, const file_base *base, fault *f);

/* A frame: begin, windows (c->window bytes each, but for the last), end. `elements` are little-endian, and
 * changed on machines that are not. `range`: the elements of the base that it is coded against, or null. */
int file_write_frame(file_writer *w, const file_form *form, uint64_t count, const file_range *range, fault *f);
int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f);
int file_write_frame_end(file_writer *w, fault *f);

/* The same frame, in memory; where it does not fit, a failure. bitsnap_bound() is enough. */
int file_pack_frame(file_writer *w, const file_form *form, void *elements, size_t bytes, const file_range *range,
                    uint8_t *frame, size_t capacity, size_t *size, fault *f);

/* A frame that is there already, for so many bytes of the source; `place`: of the elements of the base that it is against, or null. */
int file_write_packed(file_writer *w, const uint8_t *frame, size_t size, uint64_t source_bytes, const bitsnap_file_place *place, fault *f);

/* The end record. file_write_close frees memory, at any time. */
int file_write_end(file_writer *w, fault *f);
void file_write_close(file_writer *w);

/* ================================================================================= READING */

/* A frame, of which all is known that its header and footer say; info counts its cells. */
typedef bitsnap_file_frame file_frame;

static inline int frame_is_quantized(const file_frame *x) { return (x->info.bins | x->info.clusters) != 0; }

/* 0: it has no base, 1: one of the same dtype, 2: F32 that is rounded to its dtype, 3: F16 or BF16 as F32. */
static inline int frame_role(const file_frame *x)
{
    if (!x->info.has_base) return 0;
    return x->info.base_dtype == x->info.dtype ? 1 : x->info.base_dtype == BITSNAP_F32 ? 2 : 3;
}

/* Who wants to know of frames: called for each in order, when it has been passed. Returns 0, or 1 with a message. */
typedef struct frame_observer {
    int (*note)(void *context, const file_frame *frame, fault *f);
    void *context;
} frame_observer;

/* Who wants to know how blocks are coded. `block` is called for each in order, with the number of its elements that have
 * changed, or UINT64_MAX where that is not known, as it is of elements that are coded for themselves and not decoded, or
 * against a cast. `elements`, where not null, gets the elements as they are decoded, with those of the base, null where
 * there are none of the same dtype. */
typedef struct form_observer {
    int (*block)(void *context, const bitsnap_block *block, uint64_t changed, fault *f);
    void (*elements)(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes, unsigned width);
    void *context;
} form_observer;

/* How many of n elements are others than those of the base. */
uint64_t count_changed(const uint8_t *elements, const uint8_t *base, uint64_t n, unsigned width);

typedef struct file_reader {
    bitsnap_file_stream s;
    codec *codec;
    input *in;
    fault *fault;          /* of the call that reads */
    block_observer observer;
    form_observer form_observer;
    frame_observer frame_observer;
    uint64_t limit;        /* bytes that the source may have, 0: see file_read_begin */
    char *text;            /* header text of a .safetensors file; null where that takes the base of a delta */
    size_t text_size;
    delta_ends ends;       /* of a delta */
    const file_base *base; /* what was given as its base */
    bitsnap_dtype common;  /* of all frames so far, 0 before the first; I8 where they differ */
    uint64_t noted;        /* elements of the frame that the observers know of */
    int ended;             /* the end record has been read and agreed */
    uint8_t *elements;     /* c->window bytes */
    int only_check;        /* the elements are not wanted: what file_read gives has their size, and is to be passed over */
    int pass_runs;         /* windows that are equal because one element is repeated come once: */
    uint64_t again;        /* and stand for so many more, behind what was read last */
} file_reader;

/* Fails where `size` bytes are too many to be made of `from`: more than `limit`, or with limit 0 more than both 4 GiB and 256
 * times `from`. `whole` is what the message then asks for. */
int file_check_limit(uint64_t size, uint64_t whole, uint64_t from, uint64_t limit, fault *f);

/* Reads what comes before the frames. A delta needs its base; others do not use it. A source that is too large to be made of
 * the file (of a delta: and its base) by `limit`, as file_check_limit has it, is refused as soon as that is known. *r must not be moved. */
int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, fault *f);

/* The same for file_look. `base` may be null, or a text only; it is used where it is that of the delta. */
int file_look_begin(file_reader *r, codec *c, input *in, const file_base *base, fault *f);

/* The next elements, as bytes of the source: a window at a time, or what a frame has left. *size is 0 at the
 * end of the file, when everything has been checked. They stay until the next call. */
int file_read(file_reader *r, const uint8_t **bytes, size_t *size, fault *f);

/* Reads on to the end and writes the source; `out` may be null: only checks. Nothing is written before the first
 * elements are known to be good, so that most wrong bases leave no bytes behind. `p` may be null. */
int restore_source(file_reader *r, output *out, progress *p, fault *f);

/* Goes on to the end without decoding: only the grammar of records and blocks is looked at. */
int file_look(file_reader *r, fault *f);

void file_read_close(file_reader *r);

/* Whether a file begins like this one: 8 bytes are enough; and whether it is a delta, by 10. */
int file_is_bsnap(const uint8_t *bytes, size_t size);
int file_is_delta(const uint8_t *bytes, size_t size);

/* 2^30 bytes as "1.0 GiB"; `text` has 32 bytes. */
const char *size_text(char *text, uint64_t bytes);

#endif
