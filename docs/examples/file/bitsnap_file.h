/* bitsnap_file.h - .bsnap files, and what is in them: docs/FORMAT.md, section 8. MIT licence, see bitsnap.h.
 *
 * Needs bitsnap.h; copy both. In exactly ONE .c (or .cpp) file write
 *
 *     #define BITSNAP_FILE_IMPLEMENTATION
 *     #include "bitsnap_file.h"
 *
 * The contract of every function below, in addition to that of bitsnap.h:
 *   - Memory comes only from the caller's bitsnap_memory. There is no global state, and no system call.
 *   - Malicious input is safe: sizes are checked before they are used, nothing is read or written outside the buffers, and the time of a
 *     call is linear in the sizes of its input and output, except for sorting.
 *   - Functions that can fail return a status, and details in a bitsnap_file_error, which must not be null.
 *   - Stack: less than 8 KiB more than bitsnap.h takes, plus 1 KiB for each base of a base, 2 KiB if it has references. The only recursion is
 *     from a file to its base, and from a frame to the earlier one that it refers to, which refers to no other.
 */
#ifndef BITSNAP_FILE_H
#define BITSNAP_FILE_H

#include "bitsnap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= TYPES */

/* The allocator: resize works like realloc (memory null: allocates), release like free. A null pointer to it, or a zeroed one, means realloc
 * and free. */
typedef struct bitsnap_memory {
    void *(*resize)(void *context, void *memory, size_t size);
    void (*release)(void *context, void *memory);
    void *context;
} bitsnap_memory;

/* Characters, not terminated. Any character may occur, U+0000 too. */
typedef struct bitsnap_slice {
    const char *at;
    size_t size;
} bitsnap_slice;

/* An error, and its position. Members that do not apply are 0. */
typedef struct bitsnap_file_error {
    bitsnap_status status; /* BITSNAP_E_WORKSPACE: no memory */
    unsigned rule;         /* the condition of docs/FORMAT.md, section 9.2: 9 is S9 */
    unsigned frame_rule;   /* the condition of a frame or list, BITSNAP_R_... */
    uint64_t offset;       /* byte of the file. In a header text: byte of the text plus 8. In coded texts: their byte */
    const char *message;   /* an English phrase without a full stop; a static string */
    bitsnap_slice tensor;  /* its name, in memory that the call was given or has made */
    bitsnap_slice base_tensor; /* the earlier tensor of the file that it refers to, if the damage is there; until the file is closed */
    uint64_t wanted, found; /* if these disagree: bytes of the tensor by shape and dtype; by data_offsets. wanted: bytes
                               that bitsnap_file_read_start needs; found: unknown incompatible features, as bits (S28) */
    unsigned depth;        /* 0: the file, 1: its base, 2: the base of that, ... */
    unsigned base;         /* with BITSNAP_E_BASE, or if depth is not 0: the number of the base, from 0 */
} bitsnap_file_error;

/* The strong hash of a source: SHA-256 (FIPS 180-4) of the SHA-256 hashes of each MiB, so that threads can compute it. The last MiB may be
 * shorter; an empty source has none. It identifies a file even against forgery, which XXH3 does not (docs/SECURITY.md). */
#define BITSNAP_SHA256_SIZE 32

typedef struct bitsnap_sha256 { /* private: the state of a SHA-256 */
    uint32_t state[8];
    uint64_t size;
    uint8_t bytes[64]; /* bytes after the last whole 64 */
} bitsnap_sha256;

typedef struct bitsnap_strong_hash { /* private */
    bitsnap_sha256 whole, piece;
} bitsnap_strong_hash;

/* _add hashes the next bytes of a source, any number of them. The threads of `b` share whole MiB; null: only the caller's thread. */
BITSNAP_API void bitsnap_strong_hash_begin(bitsnap_strong_hash *h);
BITSNAP_API void bitsnap_strong_hash_add(bitsnap_strong_hash *h, const bitsnap *b, const void *bytes, size_t size);
BITSNAP_API void bitsnap_strong_hash_end(bitsnap_strong_hash *h, uint8_t digest[BITSNAP_SHA256_SIZE]);

/* ================================================================================= SAFETENSORS
 * A .safetensors file is a u64 (the size of the header text), the text (JSON), and the data of the tensors. The parser accepts what the
 * reference implementation accepts (the Rust crate safetensors 0.8.0), with its odd forms, which come back bit for bit. So every byte of
 * the data belongs to one tensor. There is one exception: dtypes that the reference does not know are accepted, as bytes. */

#define BITSNAP_TEXT_MAX 100000000u /* bytes of a text: the limit of .safetensors */

/* An element type. */
typedef struct bitsnap_element_type {
    const char *name;
    unsigned bits;         /* of an element */
    bitsnap_dtype codec;   /* the dtype that its bytes are coded as */
} bitsnap_element_type;

typedef struct bitsnap_tensor {
    bitsnap_slice name;    /* UTF-8, unescaped */
    bitsnap_slice dtype;
    const bitsnap_element_type *type; /* null: an unknown dtype, carried as bytes */
    bitsnap_slice shape;   /* text of the header, from '[' to ']' */
    uint64_t elements;     /* 0 if the shape has a 0 */
    uint64_t begin, end;   /* bytes of the data */
    size_t place;          /* where the name begins in the text */
} bitsnap_tensor;

typedef struct bitsnap_safetensors {
    bitsnap_tensor *tensors; /* in the order of their bytes */
    size_t count;
    uint64_t data_size;
    bitsnap_slice metadata;  /* the value of "__metadata__" as the header has it; empty if the header has no such key */
    char *unescaped;         /* private: strings that had escapes */
    const bitsnap_memory *memory; /* private */
} bitsnap_safetensors;

/* Parses a header text. Text and memory must outlive the result, which refers to them. Call bitsnap_safetensors_free after failures, too.
 * Linear time, except for sorting the tensors, which hostile names and offsets do not slow down. */
BITSNAP_API bitsnap_status bitsnap_safetensors_parse(bitsnap_safetensors *s, const char *text, size_t size,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error);
/* Finds only the names of tensors and their positions, in any text: the entries of the tree of names of a .bsnap file. */
BITSNAP_API bitsnap_status bitsnap_safetensors_names(bitsnap_safetensors *s, const char *text, size_t size,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error);
BITSNAP_API void bitsnap_safetensors_free(bitsnap_safetensors *s);

/* Returns the type with this name, or null. `any_case`: ignores case, for names that people type. */
BITSNAP_API const bitsnap_element_type *bitsnap_element_type_find(const char *name, size_t size, int any_case);

/* Goes through a shape: writes the next dimension and returns 1, or returns 0 after the last one. Begin with *at = 0. */
BITSNAP_API int bitsnap_shape_next(bitsnap_slice shape, size_t *at, uint64_t *dimension);

/* Returns 1 if two shapes have the same numbers, else 0. */
BITSNAP_API int bitsnap_shape_same(bitsnap_slice a, bitsnap_slice b);

/* _codec returns the dtype that its bytes are coded as; _has_octaves returns 1 if quantizers and columns apply to it. */
BITSNAP_API bitsnap_dtype bitsnap_tensor_codec(const bitsnap_tensor *t);
BITSNAP_API int bitsnap_tensor_has_octaves(const bitsnap_tensor *t);

/* Returns the dtype of `old` if its elements can be the base of those of `t`, else 0. They can if both have the same dtype, or one has F32 and the
 * other F16 or BF16: a master copy and what it rounds to. Does not compare shapes. */
BITSNAP_API bitsnap_dtype bitsnap_tensor_base(const bitsnap_tensor *t, const bitsnap_tensor *old);

/* _by_name returns the tensors sorted by name, in memory that the caller releases (null: no memory). _find returns the tensor of a name, or null. */
BITSNAP_API const bitsnap_tensor **bitsnap_tensors_by_name(const bitsnap_safetensors *s);
BITSNAP_API const bitsnap_tensor *bitsnap_tensor_find(const bitsnap_tensor **names, size_t count, bitsnap_slice name);

BITSNAP_API int bitsnap_slice_compare(bitsnap_slice a, bitsnap_slice b); /* <0, 0, >0 */

/* Returns the bytes of the UTF-8 character at p < end; 0 if the bytes are not one: overlong, a surrogate, or above U+10FFFF. */
BITSNAP_API size_t bitsnap_utf8_size(const unsigned char *p, const unsigned char *end);

/* ================================================================================= READING
 * Reads one tensor of a file, or a part of it, without the rest. A .bsnap file ends with trees that locate everything. So a read takes the blocks
 * with the elements and less than 64 KiB of the rest, whatever the size of the file. A .safetensors file is read in the same way. So is a delta,
 * given its bases: files that were opened before, which may be deltas themselves.
 *
 *     bitsnap_file file;
 *     bitsnap_tensor t;
 *     if (bitsnap_file_open(&file, &source, NULL, 0, NULL) ||
 *         bitsnap_file_find(&file, "lm_head.weight", 14, &t) ||
 *         bitsnap_file_read(&file, &t, elements, 0, t.elements))
 *         fprintf(stderr, "%s at byte %llu\n", file.error.message, (unsigned long long)file.error.offset);
 *     bitsnap_file_close(&file);
 *
 * Everything that is read is checked before it is used. If the file changes between two reads, the result is an error or the checked bytes.
 * Parts that were not read may be damaged; bitsnap_file_verify reads everything.
 *
 * Memory, from bitsnap_memory: 48 KiB for an open file; 1.4 MiB while a text is decoded, and the text if all of it is needed; the workspace and
 * one block of the frame that is read, each at most some MiB, and a block of its base for each worker; the same for each base; and twice that
 * after a frame was read that refers to earlier data of its own file.
 * Threads: only one at a time may use a file, or a file whose base it is. A file can be opened several times. */

/* The contents of a file: values of the format, and PLAIN for a .safetensors file itself. */
enum { BITSNAP_SOURCE_RAW = 0, BITSNAP_SOURCE_SAFETENSORS = 1, BITSNAP_SOURCE_DELTA = 2, BITSNAP_SOURCE_PLAIN = 3 };

#define BITSNAP_FILE_CHAIN 256 /* most deltas in a chain */

struct bsf_reader;

/* A base of a delta. Its bases are the files of one model. */
typedef struct bitsnap_file_base {
    const char *name;        /* a hint at its file name, without directories; empty: none (null when writing) */
    uint64_t text_size, data_size;
    uint64_t text_id;        /* XXH3 of its header text */
    struct bitsnap_file *file; /* the file given as this base, or null */
} bitsnap_file_base;

/* A file that is open. Its members are set by bitsnap_file_open. Only `name` and, for decoding, `b.kernels`, `b.flags`, `b.run`, `b.run_context` and
 * `b.workers` may be set by the caller, before or between reads. */
typedef struct bitsnap_file {
    int kind;                /* BITSNAP_SOURCE_... */
    int quantized;           /* 1: some of its elements differ from those that it was made from */
    uint32_t incompatible, compatible; /* its features: BITSNAP_FILE_..., and bits that only newer versions know */
    uint64_t check;          /* of its end record; identifies the whole file. XXH3: detects accidents, not forgery */
    uint64_t size;           /* of the file */
    uint64_t text_size, data_size; /* bytes of the header text, and of the data after it; raw elements have only data */
    const bitsnap_file_base *bases; /* of a delta: base_count of them, at least one */
    size_t base_count;
    const char *name;        /* its name in deltas against it, without directories; set by the caller, or null */
    bitsnap b;
    bitsnap_file_error error; /* of the last call; if error.depth is not 0, the error of base number error.base has details */
    struct bsf_reader *reader; /* private */
} bitsnap_file;

/* Opens a file. Memory, bases and what the source refers to must outlive it. They and *f itself must not be moved; the array of pointers
 * may be released. Call bitsnap_file_close after failures, too.
 * bases: all bases of a delta, in its order; other files ignore them. With base_count 0 a delta can be opened and its frames listed; calls that
 *        need a base return BITSNAP_E_BASE. The whole header texts of given bases are read and compared (BITSNAP_E_BASE, S17 or S18). Their
 *        elements are compared when a block is decoded (R44).
 * memory: null: realloc and free.
 * BITSNAP_E_MAGIC: neither a .bsnap file nor a .safetensors file. */
BITSNAP_API bitsnap_status bitsnap_file_open(bitsnap_file *f, const bitsnap_source *source, bitsnap_file *const *bases, size_t base_count,
                                             const bitsnap_memory *memory);
BITSNAP_API void bitsnap_file_close(bitsnap_file *f);

/* Finds a tensor by its name (UTF-8, without escapes). Reads a node and a page of each tree and a piece of the text. In a file without a tree of
 * names, as files of some dozens of tensors are, the first call reads the whole text. BITSNAP_E_MISMATCH: no tensor has that name. The slices
 * of *t are valid until the next call of this function or bitsnap_file_close. */
BITSNAP_API bitsnap_status bitsnap_file_find(bitsnap_file *f, const char *name, size_t size, bitsnap_tensor *t);

/* Gives all tensors in the order of their bytes, and the metadata, valid until bitsnap_file_close. The first call reads the whole text.
 * BITSNAP_E_MISMATCH: raw elements, or a text that is not a header (bitsnap_file_read_data can still restore the data). */
BITSNAP_API bitsnap_status bitsnap_file_tensors(bitsnap_file *f, const bitsnap_safetensors **tensors);

/* Gives the header text, text_size bytes, valid until bitsnap_file_close of the file; if a delta has the text of its first base, of that base. */
BITSNAP_API bitsnap_status bitsnap_file_text(bitsnap_file *f, const char **text);

/* Reads elements first .. first + count - 1 of a tensor, in native byte order. Reads only the blocks that hold them, each whole. Elements of
 * less than a byte must fill whole bytes, else BITSNAP_E_ARGUMENT; those of an unknown dtype (t->type null) are bytes. */
BITSNAP_API bitsnap_status bitsnap_file_read(bitsnap_file *f, const bitsnap_tensor *t, void *to, uint64_t first, uint64_t count);

/* Reads bytes of the data, as a .safetensors file has them: little-endian. They may belong to several tensors. */
BITSNAP_API bitsnap_status bitsnap_file_read_data(bitsnap_file *f, uint64_t offset, void *to, size_t size);

/* A frame of the file. */
typedef struct bitsnap_file_frame {
    uint64_t at, size;       /* bytes of the file */
    uint64_t begin;          /* where its elements begin in the data: info.elements_size bytes */
    unsigned base;           /* with info.has_base: the number of its base, or BITSNAP_BASE_ITSELF */
    uint64_t base_begin;     /* with info.has_base: the byte of that base's data */
    uint64_t referred;       /* byte of the data where the last frame that refers to this one begins; 0: no frame does */
    bitsnap_info info;       /* without the counts of blocks */
    uint64_t seal;           /* identifies what the frame holds: docs/FORMAT.md, 8.3 */
} bitsnap_file_frame;

/* Give the number of frames, and the frame of a number, from 0 on. A .safetensors file has no frames. */
BITSNAP_API bitsnap_status bitsnap_file_frames(bitsnap_file *f, uint64_t *count);
BITSNAP_API bitsnap_status bitsnap_file_frame_at(bitsnap_file *f, uint64_t number, bitsnap_file_frame *frame);

/* Finds the frame with this byte of the data. BITSNAP_E_MISMATCH: no frame has it, as in a .safetensors file. */
BITSNAP_API bitsnap_status bitsnap_file_frame_of(bitsnap_file *f, uint64_t offset, bitsnap_file_frame *frame);

/* Gives the content id of `count` elements from this byte of the data on: the id of a frame if they are one, else by reading them. */
BITSNAP_API bitsnap_status bitsnap_file_content_id(bitsnap_file *f, uint64_t offset, uint64_t count, bitsnap_dtype dtype, uint64_t *id);

/* Reads everything, in order, and checks all conditions of docs/FORMAT.md, section 9; of bases, only what the file needs. Linear time. */
BITSNAP_API bitsnap_status bitsnap_file_verify(bitsnap_file *f);

/* ================================================================================= IN ORDER
 * Reads a file from its first byte to its last, as from a pipe: its start, its texts, frame by frame, its end. All conditions of
 * docs/FORMAT.md, section 9, are checked.
 *
 *     bitsnap b = {0};
 *     bitsnap_file_stream s;
 *     status = bitsnap_file_stream_begin(&s, &b, &input, NULL) || bitsnap_file_stream_texts(&s);
 *     while (!status && !(status = bitsnap_file_stream_next(&s)) && s.in_frame) {
 *         while (!status && s.decoder.position < s.frame.info.count) {
 *             status = bitsnap_file_stream_read(&s, elements, room, &n);
 *             ...
 *         }
 *         if (!status) status = bitsnap_file_stream_frame_end(&s);
 *     }
 *     if (status) fprintf(stderr, "%s at byte %llu\n", s.error.message, (unsigned long long)s.error.offset);
 *     bitsnap_file_stream_close(&s);
 *
 * Memory: a window of the file and the largest block that has arrived, the workspace of `b`, 20 bytes for each frame, the coded header text, one
 * block of a base for each worker, and at most kept_most bytes of elements that later frames refer to. Sizes that the file states cost memory
 * only as its bytes arrive. */

/* The beginning of a file, before texts and frames: its header and, in a delta, the record of its bases. */
typedef struct bitsnap_file_start {
    int kind, quantized;      /* as in bitsnap_file, and so are features */
    uint32_t incompatible, compatible;
    uint64_t text_size;
    uint64_t source_size;     /* UINT64_MAX: not known */
    uint64_t check;           /* of the header */
    bitsnap_file_base *bases; /* of a delta: base_count of them, one piece of memory that the caller releases; else null */
    size_t base_count;
    unsigned flags;           /* of a delta: BITSNAP_BASES_... */
    uint64_t text_id;         /* of a delta: XXH3 of its text */
    uint64_t end;             /* byte of the file where the rest begins */
} bitsnap_file_start;

/* Reads it from the first `size` bytes of a file. BITSNAP_E_TRUNCATED: too few bytes; repeat the call with error->wanted bytes or more, which
 * are 18,087,452 at most. If the source does not change, the fourth call ends with another status. After failures there is nothing to
 * release. BITSNAP_E_MAGIC: not a .bsnap file. */
BITSNAP_API bitsnap_status bitsnap_file_read_start(bitsnap_file_start *s, const void *bytes, size_t size, const bitsnap_memory *memory,
                                                   bitsnap_file_error *error);

/* A source that is read in order. `read` gives the next `size` bytes, fewer only at the end. `skip` skips them, and may be null. Both return 0,
 * or anything else if the bytes cannot be read (BITSNAP_E_SOURCE). */
typedef struct bitsnap_input {
    int (*read)(void *context, void *to, size_t size, size_t *got);
    int (*skip)(void *context, uint64_t size, uint64_t *passed);
    void *context;
} bitsnap_input;

/* Stores elements that later frames refer to and that exceed kept_most. `write` gets them in order, as bytes of the data from byte `offset` on;
 * `read` returns parts of them. Both return 0, or anything else if they fail (BITSNAP_E_SOURCE). */
typedef struct bitsnap_spill {
    int (*write)(void *context, uint64_t offset, const void *bytes, size_t size);
    int (*read)(void *context, uint64_t offset, void *to, size_t size);
    void *context;
} bitsnap_spill;

/* A block of a frame, known from its first bytes. */
typedef struct bitsnap_file_block {
    unsigned form;
    uint64_t cells, elements;
    uint64_t size;            /* with head, check and hashes */
} bitsnap_file_block;

/* A file that is read in order. The caller may set start.bases[i].file, window, kept_most, spill, text and model before
 * bitsnap_file_stream_next; all other members are for reading. */
typedef struct bitsnap_file_stream {
    bitsnap_file_start start;
    uint8_t *coded, *base_coded; /* text records that the file has: of its own text and, in a delta, of the first base's. The */
    size_t coded_size, base_coded_size; /* caller may take over this memory by setting the pointer to null */
    const char *text;         /* start.text_size bytes that the caller has decoded; null: the names in the file are not compared with the text */
    const bitsnap_safetensors *model; /* the text as the caller has parsed it, or null */
    size_t window;            /* bytes that are read ahead; 0: 1 MiB */
    uint64_t kept_most;       /* bytes of elements that memory may hold for later frames; 256 MiB unless it is set. More go to `spill`; without */
    bitsnap_spill spill;      /* its functions they are BITSNAP_E_WORKSPACE */
    uint64_t offset;          /* bytes of the file that have been processed */
    uint64_t source_size;     /* bytes of the source so far; a text counts 8 bytes more */
    uint64_t frames, frame_bytes; /* the number of frames read, and their bytes */
    uint64_t check;           /* after the end of the file: the check of its end record, */
    uint8_t sha256[BITSNAP_SHA256_SIZE]; /* and its SHA-256, if start.compatible says that it has one. sha256_checked 1: it was compared with the source, which */
    int sha256_checked;       /* was read whole, with the text that the caller gave */
    int in_frame;             /* a frame has begun, and not ended */
    bitsnap_file_frame frame; /* that frame, or the last one. After its end, size, content_id and certificate are known, and info has the numbers of its cells: */
                              /* same, sparse, classed and plain */
    int quantized;            /* 1: that frame is */
    bitsnap_decoder decoder;  /* of it */
    const bitsnap_base *base; /* the part of its base used for the last elements; null: it has no base */
    const uint8_t *blocks;    /* the blocks that the last call decoded or passed over: blocks_size bytes. If that is 0, the head of */
    size_t blocks_size;       /* a run that continues. Valid until the next call */
    bitsnap_file_block block; /* the block that bitsnap_file_stream_pass found */
    bitsnap_file_error error; /* of the last call. An error of the codec has no `rule`; b->error has details */
    bitsnap *b;
    struct bsf_stream_reader *reader; /* private */
} bitsnap_file_stream;

/* Begins to read: the header and, in a delta, the record of its bases. `b` has kernels, flags, threads and workspace of the decoder (a null
 * workspace: from `memory`). b, memory and what `input` refers to must outlive the stream. Call bitsnap_file_stream_close after failures, too. */
BITSNAP_API bitsnap_status bitsnap_file_stream_begin(bitsnap_file_stream *s, bitsnap *b, const bitsnap_input *input, const bitsnap_memory *memory);

/* Reads the texts without decoding them; bitsnap_text_decode does that. */
BITSNAP_API bitsnap_status bitsnap_file_stream_texts(bitsnap_file_stream *s);

/* Reads the header of the next frame. If in_frame is then 0, the file has ended: the end record has been checked, and nothing follows it. */
BITSNAP_API bitsnap_status bitsnap_file_stream_next(bitsnap_file_stream *s);

/* Decodes the next *count elements of the frame, in native byte order: at least 1 unless the frame has no more, at most `room`. `room` must hold
 * a block (2^frame.info.block_log2 elements) or all elements that remain, else BITSNAP_E_CAPACITY. If `to` is null they are only checked.
 * A frame with a base needs start.bases[frame.base].file. */
BITSNAP_API bitsnap_status bitsnap_file_stream_read(bitsnap_file_stream *s, void *to, size_t room, size_t *count);

/* Skips the next block of the frame without decoding it; checks only its grammar. `blocks` then has `least` bytes of the block, or all if it has
 * fewer. blocks_size is 0 after the last block. */
BITSNAP_API bitsnap_status bitsnap_file_stream_pass(bitsnap_file_stream *s, size_t least);

/* Reads the footer of the frame. All its elements must have been read, or all its blocks passed. */
BITSNAP_API bitsnap_status bitsnap_file_stream_frame_end(bitsnap_file_stream *s);
BITSNAP_API void bitsnap_file_stream_close(bitsnap_file_stream *s);

/* Returns the block at p, whose first element is number `first` of the frame. Reads only its first 4 bytes, and checks nothing: the form may be
 * unknown, and a run may be empty or too long (it then has all elements that remain). */
BITSNAP_API bitsnap_file_block bitsnap_file_block_at(const void *p, const bitsnap_info *info, uint64_t first);

#ifndef BITSNAP_NO_ENCODE
/* ================================================================================= WRITING
 * Writes a file from its first byte to its last, through a callback. The header text comes first, then the data, in order and in pieces of any
 * size, so memory does not depend on the size of the file. The file is valid only when bitsnap_file_write_end has returned 0.
 *
 *     bitsnap b = {0};                                   // level, flags, workers as you like
 *     bitsnap_file_writer w;
 *     bitsnap_file_content content = {0};
 *     if (bitsnap_safetensors_write(&text, &size, tensors, count, NULL, NULL, &error)) ...
 *     content.text = text;
 *     content.text_size = size;
 *     if (bitsnap_file_write_begin(&w, &b, &sink, &content, NULL) ||
 *         bitsnap_file_write_data(&w, elements, bytes) ||      // of the first tensor, of the next, ...
 *         bitsnap_file_write_end(&w))
 *         fprintf(stderr, "%s\n", w.error.message);
 *     bitsnap_file_write_close(&w);
 *
 * The file is the one that the tool makes without options, provided that the tool does not join small neighbours of several dtypes, that
 * it finds a gain from the base if there is one, and that it finds the same references if there is none. */

/* write() takes the next bytes of a file. It returns 0 if it has taken all of them, else any other number. */
typedef struct bitsnap_sink {
    int (*write)(void *context, const void *bytes, size_t size);
    void *context;
} bitsnap_sink;

/* The caller may read these members. It may set `align` and `itself` before the first frame, and `referred` before each frame; it must not
 * change the others. */
typedef struct bitsnap_file_writer {
    uint32_t align;           /* a power of two, 512 to 1 MiB: padding makes each frame begin at a multiple of it; 0: no padding */
    bitsnap_file *itself;     /* the source, opened by bitsnap_file_open with a callback. Frames that refer to earlier data read their bases from */
                              /* it. Null: no frame refers to earlier data */
    uint64_t referred;        /* for the next frame: the byte of the data where the last frame that refers to it will begin; 0: no frame will. */
                              /* Each frame sets it to 0 again */
    uint64_t size;            /* bytes of the file so far */
    uint64_t source_size;     /* bytes of the source so far; a text counts 8 bytes more */
    uint64_t frames, frame_bytes, last; /* number of frames; bytes of all, and of the last one */
    const uint8_t *written;   /* part of a frame that the last call has written: blocks, or the footer */
    size_t written_size;
    bitsnap_encoder stream;   /* of the frame that has begun */
    bitsnap_certificate certificate; /* of the last frame, if it is quantized */
    bitsnap_file_error error; /* of the last call */
    bitsnap *b;
    struct bsf_writer *writer; /* private */
} bitsnap_file_writer;

/* Makes the header text of a .safetensors file with these tensors in this order, in memory that the caller releases. Its size plus 8 is a
 * multiple of 8. Reads name, dtype and shape; sets type, elements, begin and end (a tensor of an unknown dtype takes end - begin bytes, as
 * given). `metadata`: an object of strings, as JSON, or null. BITSNAP_E_CORRUPT: bitsnap_safetensors_parse would
 * not accept this header, for example because two tensors have one name. */
BITSNAP_API bitsnap_status bitsnap_safetensors_write(char **text, size_t *size, bitsnap_tensor *tensors, size_t count, const char *metadata,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error);

/* Elements that are coded against earlier ones of the same file, because they are equal, or equal after rounding one of them. */
typedef struct bitsnap_reference {
    size_t tensor;            /* its number in the order of the bytes */
    uint64_t first, count;    /* elements of that tensor, as bitsnap_tensor_codec has them */
    uint64_t base;            /* byte of the data where the base begins */
    int base_dtype;           /* bitsnap_dtype: that of the tensor. If the tensor is F16 or BF16, it can also be F32, and the other way round */
} bitsnap_reference;

/* The content for bitsnap_file_write_begin. Members that do not apply are 0. */
typedef struct bitsnap_file_content {
    const char *text;         /* header text of a .safetensors file. Null: raw elements, which bitsnap_file_write_frame writes */
    size_t text_size;
    unsigned features;        /* 0, or BITSNAP_FILE_SHA256: the end record gets a SHA-256 of the source */
    bitsnap_file *const *bases; /* open files, at most 65,534: the result is a delta against them, in this order. Tensors become differences to */
    size_t base_count;        /* the first one of the same name that has the same shape, and the same dtype or what bitsnap_reference allows */
    const bitsnap_reference *references; /* in the order of their bytes. Elements with one are not in deltas. The base comes before them, and */
    size_t reference_count;   /* none of it refers. Adjacent references to adjacent bases have at least 4,096 elements together */
} bitsnap_file_content;

/* Begins a file. Call bitsnap_file_write_close after failures, too.
 * b: level, flags, threads and workspace of the encoder; a null workspace is taken from `memory`. Base, columns and content id are set for
 *    each frame.
 * With references, set w->itself next. It must give the same bytes as bitsnap_file_write_data gets, else readers find damage.
 * Text, b, bases and memory must stay valid until bitsnap_file_write_close; the arrays need not. BITSNAP_E_ARGUMENT: a reference is not
 * allowed; `rule` is the condition that it breaks, and `tensor` its name. */
BITSNAP_API bitsnap_status bitsnap_file_write_begin(bitsnap_file_writer *w, bitsnap *b, const bitsnap_sink *sink,
                                                    const bitsnap_file_content *content, const bitsnap_memory *memory);

/* Writes the next bytes of the data, as a .safetensors file has them. Not for raw elements. */
BITSNAP_API bitsnap_status bitsnap_file_write_data(bitsnap_file_writer *w, const void *data, size_t size);

/* Writes the end record. BITSNAP_E_ARGUMENT: data is missing. bitsnap_file_write_close releases memory, at any time. */
BITSNAP_API bitsnap_status bitsnap_file_write_end(bitsnap_file_writer *w);
BITSNAP_API void bitsnap_file_write_close(bitsnap_file_writer *w);

/* ---- for callers that cut frames themselves, or have finished ones ---- */

/* The start of a file, before its frames. Members that do not apply are 0. */
typedef struct bitsnap_file_head {
    int kind;                 /* BITSNAP_SOURCE_RAW, .._SAFETENSORS or .._DELTA */
    int quantized;            /* some frames will be */
    int references;           /* at least one frame will refer to earlier data of the file */
    int sha256;               /* the end record is to have a SHA-256 of the source: bitsnap_file_write_source gets all of its data */
    uint64_t source_size;     /* UINT64_MAX: not known yet; deltas must know it */
    const char *text;         /* null in raw files, or if it is not known */
    size_t text_size;
    const uint8_t *coded;     /* the text as text records. Null: made from `text`. In deltas, no bytes: the text is the first base's */
    size_t coded_size;
    uint64_t text_id;         /* of deltas: XXH3 of the text */
    const bitsnap_file_base *bases; /* of deltas. If `file` is an open file, frames against it read its elements */
    size_t base_count;
    const uint8_t *base_coded; /* the text of the first base as text records; no bytes: the file does not hold it */
    size_t base_coded_size;
} bitsnap_file_head;

/* Adds the next bytes of the data of the source to its SHA-256, on the threads of b. With head.sha256, give all of them, in order, before the file
 * ends; for a quantized frame, the elements that it decodes to. bitsnap_file_write_data calls this. */
BITSNAP_API void bitsnap_file_write_source(bitsnap_file_writer *w, const void *bytes, size_t size);

/* As bitsnap_file_write_begin; frames follow, not data. */
BITSNAP_API bitsnap_status bitsnap_file_write_head(bitsnap_file_writer *w, bitsnap *b, const bitsnap_sink *sink, const bitsnap_file_head *head,
                                                   const bitsnap_memory *memory);

/* The position of b->base: the number of the base, and the byte of its data. Number BITSNAP_BASE_ITSELF means earlier data of the file, in frames
 * that were written with `referred`; the new frame must have BITSNAP_REFERENCE_LEAST elements or more. */
typedef struct bitsnap_file_place {
    unsigned base;
    uint64_t begin;
} bitsnap_file_place;

/* Write a frame with the options of b (b->base, b->columns, b->quantizer): its header; elements in native byte order, whole blocks in all calls
 * except the last; the end. `place`: null without a base. If the base is open, set only b->base.dtype: its elements are read when needed, a
 * block for each worker. */
BITSNAP_API bitsnap_status bitsnap_file_write_frame(bitsnap_file_writer *w, bitsnap_dtype dtype, uint64_t count,
                                                    const bitsnap_file_place *place);
BITSNAP_API bitsnap_status bitsnap_file_write_elements(bitsnap_file_writer *w, const void *elements, size_t count);
BITSNAP_API bitsnap_status bitsnap_file_write_frame_end(bitsnap_file_writer *w);

/* Makes such a frame in memory; BITSNAP_E_CAPACITY if it does not fit. */
BITSNAP_API bitsnap_status bitsnap_file_pack(bitsnap_file_writer *w, void *frame, size_t capacity, size_t *size, bitsnap_dtype dtype,
                                             const void *elements, size_t count, const bitsnap_file_place *place);

/* Writes a finished frame, which codes `source_bytes` bytes of the source. */
BITSNAP_API bitsnap_status bitsnap_file_write_packed(bitsnap_file_writer *w, const void *frame, size_t size, uint64_t source_bytes,
                                                     const bitsnap_file_place *place);
#endif

/* ================================================================================= PARTS
 * The parts of a file, for programs that read and write it piece by piece. */

enum {
    BITSNAP_FILE_HEADER = 40,
    BITSNAP_BASES_PREFIX = 20, BITSNAP_BASE_ENTRY = 21, /* each followed by a name; after the last come 8 bytes */
    BITSNAP_TEXT_PREFIX = 12,    /* a coded piece and 8 bytes follow */
    BITSNAP_PLACE_SIZE = 16, BITSNAP_KEPT_SIZE = 16,
    BITSNAP_ANCILLARY_PREFIX = 16, /* at most BITSNAP_ANCILLARY_MOST bytes and 8 follow */
    BITSNAP_END_PREFIX = 40, BITSNAP_END_SUFFIX = 40, /* the trees are between these */
    BITSNAP_END_SHA256 = BITSNAP_SHA256_SIZE, /* bytes after the prefix, in files with that feature */
    BITSNAP_RECORD_ENTRY = 20, BITSNAP_NAME_ENTRY = 8 /* bytes of the trees */
};

#define BITSNAP_FILE_MAGIC "\xB5SNPFILE"
#define BITSNAP_BASES_MAGIC "\xB5" "BAS"
#define BITSNAP_TEXT_MAGIC "\xB5TXT"
#define BITSNAP_PLACE_MAGIC "\xB5PLC"
#define BITSNAP_KEPT_MAGIC "\xB5KEP"
#define BITSNAP_FRAME_MAGIC "\xB5SNP"
#define BITSNAP_ANCILLARY_MAGIC "\xB5" "ANC"
#define BITSNAP_END_MAGIC "\xB5" "END"
#define BITSNAP_LAST_MAGIC "ELIFPNS\xB5"

#define BITSNAP_BASES_MOST 65534u /* bases of a delta */
#define BITSNAP_BASE_ITSELF 0xFFFFu /* number of a base that is earlier data of the file's own source */
#define BITSNAP_REFERENCE_LEAST 4096u /* elements of a frame with such a base */
#define BITSNAP_KEPT_BESIDE 65536u /* bytes of a tensor, at most, that joins the frame of neighbours that are referred to, though it is not, or the reverse */
#define BITSNAP_FILE_MOST (((uint64_t)1 << 48) - 1) /* bytes of a file, and of its source */

/* Features of a file. Compatible: some frames are quantized; the end record has a SHA-256. Incompatible: some frames refer to earlier data. */
enum { BITSNAP_FILE_QUANTIZED = 1, BITSNAP_FILE_SHA256 = 2 };
enum { BITSNAP_FILE_REFERENCES = 1 };
#define BITSNAP_FILE_INCOMPATIBLE 1u /* those that this version can read */

/* Bits of bytes 6 and 7 of the bases record. */
enum { BITSNAP_BASES_SAME_TEXT = 1, BITSNAP_BASES_WITH_TEXT = 2 };

/* Types of ancillary records: 0 is padding, those up to 63 are registered, up to 127 private. */
enum { BITSNAP_ANCILLARY_PADDING = 0, BITSNAP_ANCILLARY_PRIVATE = 64, BITSNAP_ANCILLARY_TYPES = 128 };
#define BITSNAP_ANCILLARY_MOST 16777216u /* bytes of what one holds */

#define BITSNAP_TEXT_PIECE 32768u /* bytes of a text that a record holds at most */

/* More bytes than a coded piece of `size` bytes can have, however it was made: a list of m bytes takes less than 6 * m + 1000. */
#define BITSNAP_TEXT_CODED_MAX(size) (8 * (uint64_t)(size) + 1024)

/* Codes a text of at most BITSNAP_TEXT_MAX bytes as consecutive text records, in memory that the caller releases. The same text gives the
 * same bytes everywhere. Time is linear. */
#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size,
                                               const bitsnap_memory *memory, bitsnap_file_error *error);
#endif

/* Restores a text of exactly `size` bytes. `coded` may be anything; the offset of an error counts from its start. */
BITSNAP_API bitsnap_status bitsnap_text_decode(void *text, size_t size, const void *coded, size_t coded_size,
                                               const bitsnap_memory *memory, bitsnap_file_error *error);

/* Returns the bytes of the tree of `count` entries. */
BITSNAP_API uint64_t bitsnap_tree_size(uint64_t count, unsigned entry);

/* Writes the tree to `to`: pages of the entries, then nodes above them. Changes the 8 bytes before `to` during the call. `file`: the check of the
 * file's header. Returns the check of the root, 0 without entries. */
BITSNAP_API uint64_t bitsnap_tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file);

/* The content of an end record. */
typedef struct bitsnap_file_end {
    const uint8_t *records;  /* entries of the tree of records: record_count of them */
    uint64_t record_count;
    const uint8_t *names;    /* and of the tree of names */
    uint64_t name_count;
    uint64_t source_size, file_check; /* bytes of the source; the check of the file's header */
    uint64_t records_end;    /* byte of the file where the last record before it ends, not counting ancillary ones */
    uint32_t incompatible, compatible; /* the features of the header */
    const uint8_t *sha256;   /* BITSNAP_END_SHA256 bytes, if `compatible` has BITSNAP_FILE_SHA256 */
} bitsnap_file_end;

/* The end record of a file, in memory that the caller releases. */
BITSNAP_API bitsnap_status bitsnap_end_record(uint8_t **bytes, size_t *size, const bitsnap_file_end *end, const bitsnap_memory *memory,
                                              bitsnap_file_error *error);

/* The entries of the tree of names, in order, in memory that the caller releases; *count is 0 where the text has none
 * (FORMAT.md, 8.3). */
BITSNAP_API bitsnap_status bitsnap_tree_names(uint8_t **entries, size_t *count, const char *text, size_t size,
                                              const bitsnap_memory *memory, bitsnap_file_error *error);
/* Makes these entries from a parsed text. */
BITSNAP_API bitsnap_status bitsnap_tree_tensors(uint8_t **entries, size_t *count, const bitsnap_safetensors *s,
                                                const bitsnap_memory *memory, bitsnap_file_error *error);

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_FILE_H */

/* ############################################################################################
 * The implementation.
 *   MEMORY  TOKENS  VALUES  HEADER  TEXTS  TREES  START  BASES  READING  IN ORDER  WRITING
 * ############################################################################################ */
#if defined(BITSNAP_FILE_IMPLEMENTATION) && !defined(BITSNAP_FILE_IMPLEMENTED)
#define BITSNAP_FILE_IMPLEMENTED

#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= MEMORY
 * And errors, numbers, order. */

static void *bsf_resize(const bitsnap_memory *m, void *p, size_t size)
{
    return m && m->resize ? m->resize(m->context, p, size ? size : 1) : realloc(p, size ? size : 1);
}

static void bsf_release(const bitsnap_memory *m, void *p)
{
    if (!p) return;
    if (m && m->release) m->release(m->context, p);
    else free(p);
}

/* All functions here that set an error return its status, which is never 0. */
static bitsnap_status bsf_fail(bitsnap_file_error *error, bitsnap_status status, unsigned rule, uint64_t offset, const char *message)
{
    memset(error, 0, sizeof *error);
    error->status = status;
    error->rule = rule;
    error->offset = offset;
    error->message = message;
    return status;
}

static bitsnap_status bsf_no_memory(bitsnap_file_error *error) { return bsf_fail(error, BITSNAP_E_WORKSPACE, 0, 0, "out of memory"); }

static bitsnap_status bsf_fail_codec(bitsnap_file_error *error, const bitsnap *b, unsigned rule, uint64_t offset)
{
    (void)bsf_fail(error, b->error.status, rule, offset + b->error.offset, bitsnap_message(b));
    error->frame_rule = b->error.rule;
    return error->status;
}

/* A little-endian number of `width` bytes, at most 8. */
static uint64_t bsf_load(const uint8_t *p, unsigned width)
{
    uint64_t x = 0;
    unsigned i;
    for (i = 0; i < width; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static void bsf_store(uint8_t *p, uint64_t x, unsigned width)
{
    unsigned i;
    for (i = 0; i < width; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static void bsf_swap_elements(void *elements, size_t size, unsigned width)
{
    const uint16_t one = 1;
    uint8_t *p = (uint8_t *)elements, *end = p + size, low;
    unsigned i;
    memcpy(&low, &one, 1);
    if (low || width < 2) return;
    for (; p < end; p += width)
        for (i = 0; i < width / 2; i++) {
            const uint8_t byte = p[i];
            p[i] = p[width - 1 - i];
            p[width - 1 - i] = byte;
        }
}

/* A workspace that was lent to b is about to be released. */
static void bsf_take_back(bitsnap *b, const void *workspace)
{
    if (!workspace || b->workspace != workspace) return;
    b->workspace = NULL;
    b->workspace_size = 0;
}

/* Makes the `*room` bytes at `*p` at least `size`. */
static bitsnap_status bsf_grow(const bitsnap_memory *memory, uint8_t **p, size_t *room, size_t size, bitsnap_file_error *error)
{
    const size_t wanted = size > 2 * *room ? size : 2 * *room;
    uint8_t *more;
    if (*p && size <= *room) return BITSNAP_OK;
    more = (uint8_t *)bsf_resize(memory, *p, wanted);
    if (!more) return bsf_no_memory(error);
    *p = more;
    *room = wanted;
    return BITSNAP_OK;
}

/* Entries of the tree of records. */
typedef struct bsf_records {
    uint8_t *entries;
    size_t count, room;
} bsf_records;

/* Adds a record: byte `at` of the file begins what byte `begin` of the source begins. The seal of a frame is known at its end. */
static bitsnap_status bsf_records_add(bsf_records *r, uint64_t begin, uint64_t at, uint64_t seal, const bitsnap_memory *memory,
                                      bitsnap_file_error *error)
{
    const bitsnap_status status = bsf_grow(memory, &r->entries, &r->room, (r->count + 1) * BITSNAP_RECORD_ENTRY, error);
    if (status) return status;
    bsf_store(r->entries + r->count * BITSNAP_RECORD_ENTRY, begin, 6);
    bsf_store(r->entries + r->count * BITSNAP_RECORD_ENTRY + 6, at, 6);
    bsf_store(r->entries + r->count++ * BITSNAP_RECORD_ENTRY + 12, seal, 8);
    return BITSNAP_OK;
}

/* Sets the seal of the last record. */
static void bsf_records_seal(bsf_records *r, uint64_t seal)
{
    bsf_store(r->entries + (r->count - 1) * BITSNAP_RECORD_ENTRY + 12, seal, 8);
}

/* Returns 1 if the frame with its header at p has a footer. */
static int bsf_has_footer(const uint8_t *p, uint64_t cells) { return cells > 1 || p[7] & 0x0E; }

static void bsf_swap(uint8_t *a, uint8_t *b, size_t size)
{
    uint8_t c[sizeof(bitsnap_tensor)]; /* nothing that is sorted is larger */
    memcpy(c, a, size);
    memcpy(a, b, size);
    memcpy(b, c, size);
}

/* Heapsort: in place, and no input makes it slow. */
static void bsf_sort(void *items, size_t count, size_t each, int (*order)(const void *, const void *))
{
    uint8_t *p = (uint8_t *)items;
    size_t begin = count / 2, end = count, i = 1, child;
    while (i < count && order(p + (i - 1) * each, p + i * each) < 0) i++;
    if (i >= count) return; /* in order, as names and places in most files are */
    while (end > 1) {
        if (begin) begin--;
        else bsf_swap(p, p + --end * each, each);
        for (i = begin; (child = 2 * i + 1) < end; i = child) {
            if (child + 1 < end && order(p + child * each, p + (child + 1) * each) < 0) child++;
            if (order(p + i * each, p + child * each) >= 0) break;
            bsf_swap(p + i * each, p + child * each, each);
        }
    }
}

BITSNAP_API size_t bitsnap_utf8_size(const unsigned char *p, const unsigned char *end)
{
    size_t i, n;
    unsigned low = 0x80, high = 0xBF; /* of the second byte */
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    if ((size_t)(end - p) < n || p[1] < low || p[1] > high) return 0;
    for (i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

/* FORMAT.md, section 3 */
static const bitsnap_element_type bsf_element_types[] = {
    { "BOOL", 8, BITSNAP_BOOL },
    { "U8", 8, BITSNAP_I8 },
    { "I8", 8, BITSNAP_I8 },
    { "F8_E5M2", 8, BITSNAP_F8_E5M2 },
    { "F8_E4M3", 8, BITSNAP_F8_E4M3 },
    { "F8_E8M0", 8, BITSNAP_I8 },
    { "F8_E4M3FNUZ", 8, BITSNAP_F8_E4M3 },
    { "F8_E5M2FNUZ", 8, BITSNAP_F8_E5M2 },
    { "I16", 16, BITSNAP_I16 },
    { "U16", 16, BITSNAP_I16 },
    { "F16", 16, BITSNAP_F16 },
    { "BF16", 16, BITSNAP_BF16 },
    { "I32", 32, BITSNAP_I32 },
    { "U32", 32, BITSNAP_I32 },
    { "F32", 32, BITSNAP_F32 },
    { "I64", 64, BITSNAP_I64 },
    { "U64", 64, BITSNAP_I64 },
    { "F64", 64, BITSNAP_F64 },
    { "C64", 64, BITSNAP_F32 }, /* two floats */
    { "C128", 128, BITSNAP_F64 },
    { "F4", 4, BITSNAP_I8 },
    { "F6_E2M3", 6, BITSNAP_I8 },
    { "F6_E3M2", 6, BITSNAP_I8 }
};

static int bsf_lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

BITSNAP_API const bitsnap_element_type *bitsnap_element_type_find(const char *name, size_t size, int any_case)
{
    size_t i, j;
    for (i = 0; i < sizeof bsf_element_types / sizeof *bsf_element_types; i++) {
        const char *known = bsf_element_types[i].name;
        if (strlen(known) != size) continue;
        for (j = 0; j < size; j++)
            if (any_case ? bsf_lower(name[j]) != bsf_lower(known[j]) : name[j] != known[j]) break;
        if (j == size) return &bsf_element_types[i];
    }
    return NULL;
}

BITSNAP_API bitsnap_dtype bitsnap_tensor_codec(const bitsnap_tensor *t) { return t->type ? t->type->codec : BITSNAP_I8; }

BITSNAP_API int bitsnap_tensor_has_octaves(const bitsnap_tensor *t)
{
    const bitsnap_dtype dtype = bitsnap_tensor_codec(t);
    return (dtype == BITSNAP_F16 || dtype == BITSNAP_BF16 || dtype == BITSNAP_F32 || dtype == BITSNAP_F64) &&
           t->type->bits == 8 * bitsnap_width(dtype); /* C64 and C128 are two of them */
}

BITSNAP_API bitsnap_dtype bitsnap_tensor_base(const bitsnap_tensor *t, const bitsnap_tensor *old)
{
    const bitsnap_dtype dtype = bitsnap_tensor_codec(t), base = bitsnap_tensor_codec(old);
    const int floats = bitsnap_tensor_has_octaves(t) && bitsnap_tensor_has_octaves(old); /* F16 and BF16 have 2 bytes, F32 has 4 */
    if (!bitsnap_slice_compare(t->dtype, old->dtype) || (floats && bitsnap_width(dtype) + bitsnap_width(base) == 6)) return base;
    return (bitsnap_dtype)0;
}

BITSNAP_API int bitsnap_slice_compare(bitsnap_slice a, bitsnap_slice b)
{
    const size_t both = a.size < b.size ? a.size : b.size;
    const int order = both ? memcmp(a.at, b.at, both) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* ================================================================================= STRONG HASH
 * SHA-256, written from FIPS 180-4, and the hash of a source that is made of it. */

static const uint32_t bsf_sha256_round[64] = {
    0x428a2f98u, 0x71374491u, 0xb5c0fbcfu, 0xe9b5dba5u, 0x3956c25bu, 0x59f111f1u, 0x923f82a4u, 0xab1c5ed5u,
    0xd807aa98u, 0x12835b01u, 0x243185beu, 0x550c7dc3u, 0x72be5d74u, 0x80deb1feu, 0x9bdc06a7u, 0xc19bf174u,
    0xe49b69c1u, 0xefbe4786u, 0x0fc19dc6u, 0x240ca1ccu, 0x2de92c6fu, 0x4a7484aau, 0x5cb0a9dcu, 0x76f988dau,
    0x983e5152u, 0xa831c66du, 0xb00327c8u, 0xbf597fc7u, 0xc6e00bf3u, 0xd5a79147u, 0x06ca6351u, 0x14292967u,
    0x27b70a85u, 0x2e1b2138u, 0x4d2c6dfcu, 0x53380d13u, 0x650a7354u, 0x766a0abbu, 0x81c2c92eu, 0x92722c85u,
    0xa2bfe8a1u, 0xa81a664bu, 0xc24b8b70u, 0xc76c51a3u, 0xd192e819u, 0xd6990624u, 0xf40e3585u, 0x106aa070u,
    0x19a4c116u, 0x1e376c08u, 0x2748774cu, 0x34b0bcb5u, 0x391c0cb3u, 0x4ed8aa4au, 0x5b9cca4fu, 0x682e6ff3u,
    0x748f82eeu, 0x78a5636fu, 0x84c87814u, 0x8cc70208u, 0x90befffau, 0xa4506cebu, 0xbef9a3f7u, 0xc67178f2u
};

static uint32_t bsf_turn(uint32_t x, unsigned n) { return x >> n | x << (32 - n); }

/* A round, with the eight words by the names that the standard gives them. Between rounds they move on by one. */
#define BSF_ROUND(a, b, c, d, e, f, g, h, i) do { \
    const uint32_t x = h + (bsf_turn(e, 6) ^ bsf_turn(e, 11) ^ bsf_turn(e, 25)) + ((e & f) ^ (~e & g)) + bsf_sha256_round[i] + w[i]; \
    d += x; \
    h = x + (bsf_turn(a, 2) ^ bsf_turn(a, 13) ^ bsf_turn(a, 22)) + ((a & b) ^ (a & c) ^ (b & c)); \
} while (0)

static void bsf_sha256_block(uint32_t state[8], const uint8_t *p)
{
    uint32_t w[64], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4], f = state[5], g = state[6], h = state[7];
    unsigned i;
    for (i = 0; i < 16; i++) w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 | (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (i = 16; i < 64; i++) {
        const uint32_t old = w[i - 15], last = w[i - 2];
        w[i] = w[i - 16] + w[i - 7] + (bsf_turn(old, 7) ^ bsf_turn(old, 18) ^ old >> 3) + (bsf_turn(last, 17) ^ bsf_turn(last, 19) ^ last >> 10);
    }
    for (i = 0; i < 64; i += 8) {
        BSF_ROUND(a, b, c, d, e, f, g, h, i);
        BSF_ROUND(h, a, b, c, d, e, f, g, i + 1);
        BSF_ROUND(g, h, a, b, c, d, e, f, i + 2);
        BSF_ROUND(f, g, h, a, b, c, d, e, i + 3);
        BSF_ROUND(e, f, g, h, a, b, c, d, i + 4);
        BSF_ROUND(d, e, f, g, h, a, b, c, i + 5);
        BSF_ROUND(c, d, e, f, g, h, a, b, i + 6);
        BSF_ROUND(b, c, d, e, f, g, h, a, i + 7);
    }
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e, state[5] += f, state[6] += g, state[7] += h;
}
#undef BSF_ROUND

static void bsf_sha256_begin(bitsnap_sha256 *h)
{
    static const uint32_t start[8] = { 0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au, 0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u };
    memcpy(h->state, start, sizeof start);
    h->size = 0;
}

static void bsf_sha256_add(bitsnap_sha256 *h, const uint8_t *p, size_t size)
{
    while (size) {
        const size_t at = (size_t)(h->size % 64), n = size < 64 - at ? size : 64 - at;
        if (n < 64) memcpy(h->bytes + at, p, n);
        if (at + n == 64) bsf_sha256_block(h->state, n < 64 ? h->bytes : p);
        h->size += n;
        p += n;
        size -= n;
    }
}

static void bsf_sha256_end(bitsnap_sha256 *h, uint8_t digest[BITSNAP_SHA256_SIZE])
{
    static const uint8_t padding[64] = { 0x80 };
    const uint64_t bits = 8 * h->size;
    uint8_t size[8];
    unsigned i;
    bsf_sha256_add(h, padding, (size_t)((h->size % 64 < 56 ? 56 : 120) - h->size % 64));
    for (i = 0; i < 8; i++) size[i] = (uint8_t)(bits >> (56 - 8 * i));
    bsf_sha256_add(h, size, 8);
    for (i = 0; i < BITSNAP_SHA256_SIZE; i++) digest[i] = (uint8_t)(h->state[i / 4] >> (24 - 8 * (i % 4)));
}

enum { BSF_STRONG_PIECE = 1 << 20, BSF_STRONG_JOBS = 16 };

typedef struct bsf_strong_pieces { /* whole pieces, for threads */
    const uint8_t *bytes;
    uint8_t digest[BSF_STRONG_JOBS][BITSNAP_SHA256_SIZE];
} bsf_strong_pieces;

static void bsf_strong_task(void *argument, uint64_t index, unsigned worker)
{
    bsf_strong_pieces *x = (bsf_strong_pieces *)argument;
    bitsnap_sha256 h;
    (void)worker;
    bsf_sha256_begin(&h);
    bsf_sha256_add(&h, x->bytes + index * BSF_STRONG_PIECE, BSF_STRONG_PIECE);
    bsf_sha256_end(&h, x->digest[index]);
}

BITSNAP_API void bitsnap_strong_hash_begin(bitsnap_strong_hash *h)
{
    bsf_sha256_begin(&h->whole);
    bsf_sha256_begin(&h->piece);
}

static void bsf_strong_piece_end(bitsnap_strong_hash *h)
{
    uint8_t digest[BITSNAP_SHA256_SIZE];
    bsf_sha256_end(&h->piece, digest);
    bsf_sha256_add(&h->whole, digest, sizeof digest);
    bsf_sha256_begin(&h->piece);
}

BITSNAP_API void bitsnap_strong_hash_add(bitsnap_strong_hash *h, const bitsnap *b, const void *bytes, size_t size)
{
    const uint8_t *p = (const uint8_t *)bytes;
    while (size) {
        const size_t left = BSF_STRONG_PIECE - (size_t)h->piece.size;
        size_t n = size < left ? size : left, jobs = size / BSF_STRONG_PIECE;
        if (!h->piece.size && jobs > 1 && b && b->run && b->workers > 1) {
            bsf_strong_pieces x;
            if (jobs > BSF_STRONG_JOBS) jobs = BSF_STRONG_JOBS;
            x.bytes = p;
            b->run(b->run_context, bsf_strong_task, &x, jobs);
            bsf_sha256_add(&h->whole, x.digest[0], jobs * BITSNAP_SHA256_SIZE);
            n = jobs * BSF_STRONG_PIECE;
        } else {
            bsf_sha256_add(&h->piece, p, n);
            if (n == left) bsf_strong_piece_end(h);
        }
        p += n;
        size -= n;
    }
}

BITSNAP_API void bitsnap_strong_hash_end(bitsnap_strong_hash *h, uint8_t digest[BITSNAP_SHA256_SIZE])
{
    if (h->piece.size) bsf_strong_piece_end(h);
    bsf_sha256_end(&h->whole, digest);
}

/* ================================================================================= TOKENS
 * The text is JSON of known shape: an object of objects of three members. Other members are checked, but not kept. So
 * there is no recursion, and no limit except the text's size and the reference's depth. Equal names are found by sorting, which no choice of
 * names makes slow, as it could a hash table. */

typedef struct bsf_parser {
    const char *text, *at, *end;
    size_t unescaped_size; /* bytes of s->unescaped in use; it is as large as the text, once there is an escape */
    bitsnap_safetensors *s;
    bitsnap_file_error *error;
} bsf_parser;

static size_t bsf_place_of(const bsf_parser *p, const char *at) { return (size_t)(at - p->text); }

/* what and where, as bytes of the file */
static int bsf_fail_header(bsf_parser *p, const char *at, const char *what)
{
    return bsf_fail(p->error, BITSNAP_E_CORRUPT, 0, 8 + bsf_place_of(p, at), what) != 0;
}

/* the same for a bitsnap_tensor */
static int bsf_fail_tensor(bsf_parser *p, const bitsnap_tensor *t, const char *what)
{
    (void)bsf_fail(p->error, BITSNAP_E_CORRUPT, 0, 8 + t->place, what);
    p->error->tensor = t->name;
    return 1;
}

static void bsf_skip_space(bsf_parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

/* Steps over white space and the character c, if it comes next. */
static int bsf_accept(bsf_parser *p, char c)
{
    bsf_skip_space(p);
    if (p->at == p->end || *p->at != c) return 0;
    p->at++;
    return 1;
}

static int bsf_expect(bsf_parser *p, char c, const char *what) { return bsf_accept(p, c) ? 0 : bsf_fail_header(p, p->at, what); }

/* Returns the value of four hexadecimal digits, or -1. */
static long bsf_hex4(const bsf_parser *p, const char *at)
{
    long x = 0;
    int i;
    if (p->end - at < 4) return -1;
    for (i = 0; i < 4; i++) {
        const int c = bsf_lower(at[i]);
        if (c >= '0' && c <= '9') x = 16 * x + (c - '0');
        else if (c >= 'a' && c <= 'f') x = 16 * x + (c - 'a' + 10);
        else return -1;
    }
    return x;
}

static char *bsf_put_utf8(char *to, unsigned long c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xE0 | c >> 12);
        } else {
            *to++ = (char)(0xF0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 63));
        }
        *to++ = (char)(0x80 | (c >> 6 & 63));
    }
    *to++ = (char)(0x80 | (c & 63));
    return to;
}

/* Parses an escape, after its backslash at p->at. */
static int bsf_parse_escape(bsf_parser *p, char **to)
{
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *found;
    long c, second;
    if (p->at < p->end && *p->at && (found = strchr(plain, *p->at)) != NULL) {
        *(*to)++ = meaning[found - plain];
        p->at++;
        return 0;
    }
    if (p->at == p->end || *p->at != 'u' || (c = bsf_hex4(p, p->at + 1)) < 0)
        return bsf_fail_header(p, p->at - 1, "unknown escape");
    if (c >= 0xD800 && c < 0xE000) { /* characters above U+FFFF come as two */
        second = c < 0xDC00 && p->end - p->at > 10 && p->at[5] == '\\' && p->at[6] == 'u' ? bsf_hex4(p, p->at + 7) : -1;
        if (second < 0xDC00 || second >= 0xE000) return bsf_fail_header(p, p->at - 1, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (second - 0xDC00);
        p->at += 6;
    }
    p->at += 5;
    *to = bsf_put_utf8(*to, (unsigned long)c);
    return 0;
}

/* A string; without escapes the result points into the text. */
static int bsf_parse_string(bsf_parser *p, bitsnap_slice *result, const char *what)
{
    const char *start;
    char *copy = NULL, *to = NULL;
    if (bsf_expect(p, '"', what)) return 1;
    start = p->at;
    for (;;) {
        const char *at = p->at;
        while (at < p->end && *at != '"' && *at != '\\' && (unsigned char)*at >= 32) at++;
        if (copy) {
            memcpy(to, p->at, (size_t)(at - p->at));
            to += at - p->at;
        }
        p->at = at;
        if (at == p->end) return bsf_fail_header(p, at, "the text ends inside a string");
        if (*at == '"') break;
        if (*at != '\\') return bsf_fail_header(p, at, "a control character in a string");
        if (!copy) {
            /* unescaped strings are shorter than they were, so all of them fit the size of the text */
            if (!p->s->unescaped) p->s->unescaped = (char *)bsf_resize(p->s->memory, NULL, (size_t)(p->end - p->text));
            if (!p->s->unescaped) return bsf_no_memory(p->error) != 0;
            copy = p->s->unescaped + p->unescaped_size;
            memcpy(copy, start, (size_t)(at - start));
            to = copy + (at - start);
        }
        p->at++;
        if (bsf_parse_escape(p, &to)) return 1;
    }
    result->at = copy ? copy : start;
    result->size = (size_t)((copy ? to : p->at) - result->at);
    if (copy) p->unescaped_size += result->size;
    p->at++;
    return 0;
}

/* A number of digits alone, below 2^64. */
static int bsf_parse_number(bsf_parser *p, uint64_t *x)
{
    const char *start, *at;
    uint64_t n = 0;
    bsf_skip_space(p);
    start = p->at;
    for (at = start; at < p->end && *at >= '0' && *at <= '9'; at++) {
        const unsigned digit = (unsigned)(*at - '0');
        if (n > (UINT64_MAX - digit) / 10) return bsf_fail_header(p, start, "a number of 2^64 or more");
        n = 10 * n + digit;
    }
    p->at = at;
    *x = n;
    if (p->at == start || (p->at < p->end && (*p->at == '.' || *p->at == 'e' || *p->at == 'E')))
        return bsf_fail_header(p, start, "not a whole number from 0 on");
    if (*start == '0' && p->at - start > 1) return bsf_fail_header(p, start, "a number with a leading 0");
    return 0;
}

static int bsf_slice_is(bitsnap_slice s, const char *word) { return s.size == strlen(word) && !memcmp(s.at, word, s.size); }

/* ================================================================================= VALUES */

/* "null", "true" or "false" */
static int bsf_parse_word(bsf_parser *p, const char *word)
{
    const size_t size = strlen(word);
    if ((size_t)(p->end - p->at) < size || memcmp(p->at, word, size)) return bsf_fail_header(p, p->at, "a value expected");
    p->at += size;
    return 0;
}

static size_t bsf_skip_digits(bsf_parser *p)
{
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return (size_t)(p->at - start);
}

/* Steps over the character c, or the other one, if it comes next. */
static int bsf_accept_here(bsf_parser *p, char c, char other)
{
    if (p->at == p->end || (*p->at != c && *p->at != other)) return 0;
    p->at++;
    return 1;
}

/* Passes over a JSON number. As in the reference, a double must be able to hold it, at least as 0. */
static int bsf_skip_number(bsf_parser *p)
{
    static const char most[] = "17976931348623157"; /* the digits of the largest double, which is below 10^309 */
    const char *start = p->at, *whole, *dot, *end, *c;
    int64_t exponent = 0, places = 0;
    size_t i;
    int down = 0;
    (void)bsf_accept_here(p, '-', '-');
    whole = p->at;
    if (!bsf_skip_digits(p)) return bsf_fail_header(p, start, "a value expected");
    if (*whole == '0' && p->at - whole > 1) return bsf_fail_header(p, start, "a number with a leading 0");
    dot = p->at;
    if (bsf_accept_here(p, '.', '.') && !bsf_skip_digits(p))
        return bsf_fail_header(p, start, "a number without digits behind its point");
    end = p->at;
    if (bsf_accept_here(p, 'e', 'E')) {
        const char *digits;
        down = p->at < p->end && *p->at == '-';
        (void)bsf_accept_here(p, '-', '+');
        digits = p->at;
        if (!bsf_skip_digits(p)) return bsf_fail_header(p, start, "a number without digits in its exponent");
        for (c = digits; c < p->at; c++)
            if (exponent < (int64_t)1 << 40) exponent = 10 * exponent + (*c - '0');
    }
    for (c = whole; c < end && (*c == '0' || *c == '.'); c++) { }
    if (c == end) return 0; /* 0, whatever the exponent */
    places = c < dot ? dot - c - 1 : dot - c;
    exponent = places + (down ? -exponent : exponent);
    for (i = 0; exponent == 308 && i < sizeof most - 1 && c < end; c++) {
        if (*c == '.') continue;
        if (*c != most[i]) exponent += *c > most[i] ? 1 : -1;
        i++;
    }
    return exponent > 308 ? bsf_fail_header(p, start, "a number that is too large for a double") : 0;
}

/* Arrays and objects in each other, those of the header itself with them: more the reference does not read. */
#define BSF_DEPTH_MAX 127

/* Passes over the value of an unknown member, which is inside of two objects. */
static int bsf_skip_value(bsf_parser *p)
{
    char closing[BSF_DEPTH_MAX - 2];
    size_t depth = 0;
    int first = 0; /* an array or object has just begun */
    bitsnap_slice ignored;
    for (;;) {
        if (first && bsf_accept(p, closing[depth - 1])) {
            depth--;
        } else {
            if (depth && closing[depth - 1] == '}' &&
                (bsf_parse_string(p, &ignored, "a name expected") || bsf_expect(p, ':', "':' expected")))
                return 1;
            bsf_skip_space(p);
            first = p->at < p->end && (*p->at == '[' || *p->at == '{');
            if (first) {
                if (depth == sizeof closing) return bsf_fail_header(p, p->at, "more than 127 arrays and objects in each other");
                closing[depth++] = *p->at++ == '[' ? ']' : '}';
                continue;
            }
            if (p->at == p->end) return bsf_fail_header(p, p->at, "a value expected");
            if (*p->at == '"' ? bsf_parse_string(p, &ignored, "")
                : *p->at == 'n' ? bsf_parse_word(p, "null")
                : *p->at == 't' ? bsf_parse_word(p, "true")
                : *p->at == 'f' ? bsf_parse_word(p, "false") : bsf_skip_number(p))
                return 1;
        }
        first = 0;
        while (depth && bsf_accept(p, closing[depth - 1])) depth--;
        if (!depth) return 0;
        if (bsf_expect(p, ',', closing[depth - 1] == ']' ? "',' or ']' expected" : "',' or '}' expected")) return 1;
    }
}

/* ================================================================================= HEADER */

/* The value of "__metadata__": strings by name, or null. */
static int bsf_parse_metadata(bsf_parser *p)
{
    bitsnap_slice ignored;
    bsf_skip_space(p);
    if (p->at < p->end && *p->at == 'n') return bsf_parse_word(p, "null");
    if (bsf_expect(p, '{', "\"__metadata__\" must be an object")) return 1;
    if (bsf_accept(p, '}')) return 0;
    do {
        if (bsf_parse_string(p, &ignored, "a name expected") || bsf_expect(p, ':', "':' expected") ||
            bsf_parse_string(p, &ignored, "\"__metadata__\" holds strings only"))
            return 1;
    } while (bsf_accept(p, ','));
    return bsf_expect(p, '}', "',' or '}' expected");
}

/* A name, or what the reference takes for the same: {"F32":null}. */
static int bsf_parse_dtype(bsf_parser *p, bitsnap_tensor *t)
{
    if (!bsf_accept(p, '{')) return bsf_parse_string(p, &t->dtype, "a dtype must be a string");
    if (bsf_parse_string(p, &t->dtype, "a dtype must be a string") || bsf_expect(p, ':', "':' expected")) return 1;
    bsf_skip_space(p);
    return bsf_parse_word(p, "null") || bsf_expect(p, '}', "a dtype must be a string");
}

static int bsf_parse_shape(bsf_parser *p, bitsnap_tensor *t)
{
    uint64_t dimension;
    bsf_skip_space(p);
    t->shape.at = p->at;
    if (bsf_expect(p, '[', "a shape must be an array")) return 1;
    if (!bsf_accept(p, ']')) {
        do {
            if (bsf_parse_number(p, &dimension)) return 1;
        } while (bsf_accept(p, ','));
        if (bsf_expect(p, ']', "',' or ']' expected")) return 1;
    }
    t->shape.size = (size_t)(p->at - t->shape.at);
    return 0;
}

static int bsf_parse_offsets(bsf_parser *p, bitsnap_tensor *t)
{
    return bsf_expect(p, '[', "data_offsets must be an array") || bsf_parse_number(p, &t->begin) ||
           bsf_expect(p, ',', "data_offsets must have two numbers") || bsf_parse_number(p, &t->end) ||
           bsf_expect(p, ']', "data_offsets must have two numbers");
}

/* Fails if the bytes of the tensor do not match its shape and dtype. */
static int bsf_check_size(bsf_parser *p, bitsnap_tensor *t)
{
    const unsigned bits = t->type ? t->type->bits : 0;
    uint64_t bytes, dimension;
    size_t at = 0;
    for (t->elements = 1; bitsnap_shape_next(t->shape, &at, &dimension); t->elements *= dimension)
        if (dimension && t->elements > UINT64_MAX / dimension) return bsf_fail_tensor(p, t, "a shape of 2^64 elements or more");
    if (t->begin > t->end) return bsf_fail_tensor(p, t, "data_offsets that end before they begin");
    if (!bits) return 0; /* an unknown dtype may have any size */
    if (bits < 8) {
        if (t->elements > UINT64_MAX / bits) return bsf_fail_tensor(p, t, "more than 2^64 bits");
        if (t->elements * bits % 8) return bsf_fail_tensor(p, t, "its elements do not fill whole bytes");
        bytes = t->elements * bits / 8;
    } else {
        if (t->elements > UINT64_MAX / (bits / 8)) return bsf_fail_tensor(p, t, "2^64 bytes or more");
        bytes = t->elements * (bits / 8);
    }
    if (bytes == t->end - t->begin) return 0;
    (void)bsf_fail_tensor(p, t, "shape and dtype need other bytes than data_offsets hold");
    p->error->wanted = bytes;
    p->error->found = t->end - t->begin;
    return 1;
}

static int bsf_parse_member(bsf_parser *p, bitsnap_tensor *t, unsigned member)
{
    switch (member) {
    case 0: return bsf_parse_dtype(p, t);
    case 1: return bsf_parse_shape(p, t);
    case 2: return bsf_parse_offsets(p, t);
    default: return bsf_skip_value(p);
    }
}

/* The members of a tensor without their names. */
static int bsf_parse_list(bsf_parser *p, bitsnap_tensor *t)
{
    return bsf_parse_dtype(p, t) || bsf_expect(p, ',', "a tensor must have a shape") || bsf_parse_shape(p, t) ||
           bsf_expect(p, ',', "a tensor must have data_offsets") || bsf_parse_offsets(p, t) || bsf_expect(p, ']', "']' expected");
}

/* A tensor: the members dtype, shape and data_offsets, each once. Others mean nothing. */
static int bsf_parse_tensor(bsf_parser *p, bitsnap_tensor *t)
{
    static const char *const names[3] = { "dtype", "shape", "data_offsets" };
    unsigned seen = 0;
    if (bsf_accept(p, '[')) return bsf_parse_list(p, t); /* the reference does, too */
    if (bsf_expect(p, '{', "a tensor must be an object")) return 1;
    if (!bsf_accept(p, '}')) {
        do {
            const char *at;
            bitsnap_slice name;
            unsigned member = 0;
            bsf_skip_space(p);
            at = p->at;
            if (bsf_parse_string(p, &name, "a name expected")) return 1;
            while (member < 3 && !bsf_slice_is(name, names[member])) member++;
            if (member < 3 && seen >> member & 1) return bsf_fail_header(p, at, "a name for the second time");
            seen |= 1u << member;
            if (bsf_expect(p, ':', "':' expected") || bsf_parse_member(p, t, member)) return 1;
        } while (bsf_accept(p, ','));
        if (bsf_expect(p, '}', "',' or '}' expected")) return 1;
    }
    return (seen & 7) == 7 ? 0 : bsf_fail_tensor(p, t, seen & 1 ? seen & 2 ? "no data_offsets" : "no shape" : "no dtype");
}

static bitsnap_tensor *bsf_add_tensor(bsf_parser *p, size_t *capacity)
{
    bitsnap_safetensors *s = p->s;
    if (s->count == *capacity) {
        const size_t more = *capacity ? 2 * *capacity : 16; /* each took some of the text: that many fit into memory's addresses */
        bitsnap_tensor *tensors = (bitsnap_tensor *)bsf_resize(s->memory, s->tensors, more * sizeof *tensors);
        if (!tensors) return NULL;
        s->tensors = tensors;
        *capacity = more;
    }
    memset(&s->tensors[s->count], 0, sizeof *s->tensors);
    return &s->tensors[s->count++];
}

static int bsf_by_number(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

/* Returns 0 if no two tensors have one name: the names are sorted, as in many files, or their hashes differ. */
static int bsf_may_repeat(const bitsnap_safetensors *s)
{
    const bitsnap_tensor *t = s->tensors;
    uint64_t *hashes;
    size_t i = 1, n = 1;
    while (i < s->count && bitsnap_slice_compare(t[i - 1].name, t[i].name) < 0) i++;
    if (i >= s->count) return 0;
    hashes = (uint64_t *)bsf_resize(s->memory, NULL, s->count * sizeof *hashes);
    if (!hashes) return 1;
    for (i = 0; i < s->count; i++) hashes[i] = bitsnap_hash(t[i].name.at, t[i].name.size);
    bsf_sort(hashes, s->count, sizeof *hashes, bsf_by_number);
    while (n < s->count && hashes[n - 1] != hashes[n]) n++;
    bsf_release(s->memory, hashes);
    return n < s->count;
}

static int bsf_order_of_names_and_places(const void *a, const void *b)
{
    const bitsnap_tensor *x = (const bitsnap_tensor *)a, *y = (const bitsnap_tensor *)b;
    const int order = bitsnap_slice_compare(x->name, y->name);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Keeps only the last of tensors with one name, as the reference implementation does. */
static void bsf_keep_last(bitsnap_safetensors *s)
{
    size_t i, n = 0;
    if (!bsf_may_repeat(s)) return;
    bsf_sort(s->tensors, s->count, sizeof *s->tensors, bsf_order_of_names_and_places);
    for (i = 0; i < s->count; i++)
        if (i + 1 == s->count || bitsnap_slice_compare(s->tensors[i].name, s->tensors[i + 1].name)) s->tensors[n++] = s->tensors[i];
    s->count = n;
}

/* All are of the size that they should. */
static int bsf_check_tensors(bsf_parser *p)
{
    bitsnap_safetensors *s = p->s;
    size_t i;
    for (i = 0; i < s->count; i++) {
        bitsnap_tensor *t = &s->tensors[i];
        t->type = bitsnap_element_type_find(t->dtype.at, t->dtype.size, 0);
        if (bsf_check_size(p, t)) return 1;
    }
    return 0;
}

static int bsf_tensor_order(const void *a, const void *b)
{
    const bitsnap_tensor *x = (const bitsnap_tensor *)a, *y = (const bitsnap_tensor *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* The tensors follow each other from byte 0 on, without holes and overlaps. */
static int bsf_check_places(bsf_parser *p)
{
    bitsnap_safetensors *s = p->s;
    uint64_t end = 0;
    size_t i;
    bsf_sort(s->tensors, s->count, sizeof *s->tensors, bsf_tensor_order);
    for (i = 0; i < s->count; i++) {
        const bitsnap_tensor *t = &s->tensors[i];
        if (t->begin < end) return bsf_fail_tensor(p, t, "its bytes overlap those of another tensor");
        if (t->begin > end) return bsf_fail_tensor(p, t, "bytes before it belong to no tensor");
        end = t->end;
    }
    s->data_size = end;
    return 0;
}

static int bsf_check_utf8(bsf_parser *p)
{
    const char *at;
    size_t n;
    for (at = p->text; at < p->end; at += n) {
        while (p->end - at > 8 && !(bsf_load((const uint8_t *)at, 8) & UINT64_C(0x8080808080808080))) at += 8; /* of ASCII */
        n = bitsnap_utf8_size((const unsigned char *)at, (const unsigned char *)p->end);
        if (!n) return bsf_fail_header(p, at, "not UTF-8");
    }
    return 0;
}

static int bsf_parse_header(bsf_parser *p)
{
    size_t capacity = 0;
    int has_metadata = 0;
    const char *at;
    if (bsf_check_utf8(p)) return 1;
    if (bsf_expect(p, '{', "it must begin with '{'")) return 1;
    if (!bsf_accept(p, '}')) {
        do {
            bitsnap_slice name;
            bitsnap_tensor *t;
            bsf_skip_space(p);
            at = p->at;
            if (bsf_parse_string(p, &name, "a name expected") || bsf_expect(p, ':', "':' expected")) return 1;
            if (bsf_slice_is(name, "__metadata__")) {
                if (has_metadata++) return bsf_fail_header(p, at, "a name for the second time");
                bsf_skip_space(p);
                p->s->metadata.at = p->at;
                if (bsf_parse_metadata(p)) return 1;
                p->s->metadata.size = (size_t)(p->at - p->s->metadata.at);
                continue;
            }
            t = bsf_add_tensor(p, &capacity);
            if (!t) return bsf_no_memory(p->error) != 0;
            t->name = name;
            t->place = bsf_place_of(p, at);
            if (bsf_parse_tensor(p, t)) return 1;
        } while (bsf_accept(p, ','));
        if (bsf_expect(p, '}', "',' or '}' expected")) return 1;
    }
    bsf_skip_space(p);
    if (p->at < p->end) return bsf_fail_header(p, p->at, "something other than white space behind the last '}'");
    bsf_keep_last(p->s);
    return bsf_check_tensors(p) || bsf_check_places(p);
}

/* FORMAT.md, section 8.3: strings one bracket deep that a colon follows. */
static int bsf_find_names(bsf_parser *p)
{
    size_t capacity = 0;
    int64_t depth = 0;
    if (bsf_check_utf8(p)) return 1;
    while (p->at < p->end) {
        const char *at = p->at;
        bitsnap_slice name;
        bitsnap_tensor *t;
        if (*at != '"') {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            p->at++;
            continue;
        }
        if (bsf_parse_string(p, &name, "")) return 1;
        if (depth != 1 || !bsf_accept(p, ':') || bsf_slice_is(name, "__metadata__")) continue;
        t = bsf_add_tensor(p, &capacity);
        if (!t) return bsf_no_memory(p->error) != 0;
        t->name = name;
        t->place = bsf_place_of(p, at);
    }
    bsf_keep_last(p->s);
    return 0;
}

static bitsnap_status bsf_parse_text(bitsnap_safetensors *s, const char *text, size_t size, int (*parse)(bsf_parser *),
                                     const bitsnap_memory *memory, bitsnap_file_error *error)
{
    bsf_parser p;
    memset(s, 0, sizeof *s);
    memset(&p, 0, sizeof p);
    memset(error, 0, sizeof *error);
    s->memory = memory;
    p.text = p.at = text;
    p.end = text + size;
    p.s = s;
    p.error = error;
    return parse(&p) ? error->status : BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_safetensors_parse(bitsnap_safetensors *s, const char *text, size_t size,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error)
{
    return bsf_parse_text(s, text, size, bsf_parse_header, memory, error);
}

BITSNAP_API bitsnap_status bitsnap_safetensors_names(bitsnap_safetensors *s, const char *text, size_t size,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error)
{
    return bsf_parse_text(s, text, size, bsf_find_names, memory, error);
}

BITSNAP_API void bitsnap_safetensors_free(bitsnap_safetensors *s)
{
    bsf_release(s->memory, s->tensors);
    bsf_release(s->memory, s->unescaped);
    memset(s, 0, sizeof *s);
}

BITSNAP_API int bitsnap_shape_next(bitsnap_slice shape, size_t *at, uint64_t *dimension)
{
    size_t i = *at;
    while (i < shape.size && (shape.at[i] < '0' || shape.at[i] > '9')) i++;
    if (i == shape.size) return 0;
    *dimension = 0;
    for (; i < shape.size && shape.at[i] >= '0' && shape.at[i] <= '9'; i++)
        *dimension = 10 * *dimension + (uint64_t)(shape.at[i] - '0');
    *at = i;
    return 1;
}

BITSNAP_API int bitsnap_shape_same(bitsnap_slice a, bitsnap_slice b)
{
    uint64_t x = 0, y = 0;
    size_t i = 0, j = 0;
    for (;;) {
        const int more = bitsnap_shape_next(a, &i, &x);
        if (more != bitsnap_shape_next(b, &j, &y) || (more && x != y)) return 0;
        if (!more) return 1;
    }
}

static int bsf_order_of_names(const void *a, const void *b)
{
    return bitsnap_slice_compare((*(const bitsnap_tensor *const *)a)->name, (*(const bitsnap_tensor *const *)b)->name);
}

BITSNAP_API const bitsnap_tensor **bitsnap_tensors_by_name(const bitsnap_safetensors *s)
{
    const bitsnap_tensor **names = (const bitsnap_tensor **)bsf_resize(s->memory, NULL, (s->count + 1) * sizeof *names);
    size_t i;
    if (!names) return NULL;
    for (i = 0; i < s->count; i++) names[i] = &s->tensors[i];
    bsf_sort((void *)names, s->count, sizeof *names, bsf_order_of_names);
    return names;
}

BITSNAP_API const bitsnap_tensor *bitsnap_tensor_find(const bitsnap_tensor **names, size_t count, bitsnap_slice name)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = bitsnap_slice_compare(names[middle]->name, name);
        if (order == 0) return names[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

/* ================================================================================= TEXTS
 * A header text is a table with a line for each tensor, and mostly like the line before. So what followed the last time that
 * the same bytes came before is expected again; what is expected becomes 0, and the codec's own list takes the rest. */

#define BSF_EXPECTED 65536u /* entries of each of two tables: the byte expected after 6 bytes, and after 3, by the hash of these */

/* Exchanges 0 and the byte that is expected in each place of a piece. Decoding does the same. */
static void bsf_exchange(uint8_t *to, const uint8_t *from, size_t n, int decode, uint8_t *expected)
{
    uint64_t before = 0; /* the 8 bytes before, the last one highest */
    size_t i;
    memset(expected, 0, 2 * BSF_EXPECTED);
    for (i = 0; i < n; i++) {
        uint8_t *after6 = expected + ((before >> 16) * UINT64_C(0x9E3779B185EBCA87) >> 48);
        uint8_t *after3 = expected + BSF_EXPECTED + ((before >> 40) * UINT64_C(0x9E3779B185EBCA87) >> 48);
        const uint8_t x = from[i], y = *after6 ? *after6 : *after3;
        to[i] = x == y ? 0 : x ? x : y;
        *after6 = *after3 = decode ? to[i] : x;
        before = before >> 8 | (uint64_t)*after6 << 56;
    }
}

/* The state of text coding, in both directions. */
typedef struct bsf_text_coder {
    bitsnap b;
    uint8_t expected[2 * BSF_EXPECTED];
    uint8_t symbols[BITSNAP_TEXT_PIECE];
    uint8_t workspace[BITSNAP_WORKSPACE];
} bsf_text_coder;

static bsf_text_coder *bsf_new_text_coder(const bitsnap_memory *memory, bitsnap_file_error *error)
{
    bsf_text_coder *c = (bsf_text_coder *)bsf_resize(memory, NULL, sizeof *c);
    if (!c) {
        (void)bsf_no_memory(error);
        return NULL;
    }
    memset(&c->b, 0, sizeof c->b);
    c->b.level = BITSNAP_BEST;
    c->b.workspace = c->workspace;
    c->b.workspace_size = sizeof c->workspace;
    return c;
}

#ifndef BITSNAP_NO_ENCODE

/* Returns the bytes of the next piece. It ends after a tensor if one ends in it. */
static size_t bsf_piece_size(const char *text, size_t left)
{
    size_t n = BITSNAP_TEXT_PIECE;
    if (left <= BITSNAP_TEXT_PIECE) return left;
    while (n > BITSNAP_TEXT_PIECE / 2 && memcmp(text + n - 2, "},", 2)) n--;
    return n > BITSNAP_TEXT_PIECE / 2 ? n : BITSNAP_TEXT_PIECE;
}

/* The piece of n bytes at `text` as a record at `to`, which has room for it. */
static int bsf_put_piece(bsf_text_coder *c, uint8_t *to, size_t *size, const char *text, size_t n, bitsnap_file_error *error)
{
    bsf_exchange(c->symbols, (const uint8_t *)text, n, 0, c->expected);
    if (bitsnap_list_encode(&c->b, to + BITSNAP_TEXT_PREFIX, (size_t)BITSNAP_TEXT_CODED_MAX(n), size, c->symbols, n))
        return bsf_fail_codec(error, &c->b, 0, 0) != 0;
    memcpy(to, BITSNAP_TEXT_MAGIC, 4);
    bsf_store(to + 4, (uint32_t)n, 4);
    bsf_store(to + 8, (uint32_t)*size, 4);
    *size += BITSNAP_TEXT_PREFIX;
    bsf_store(to + *size, bitsnap_hash(to, *size), 8);
    *size += 8;
    return 0;
}

BITSNAP_API bitsnap_status bitsnap_text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size,
                                               const bitsnap_memory *memory, bitsnap_file_error *error)
{
    const char *p = (const char *)text;
    size_t capacity = 0, at, n;
    bsf_text_coder *c;
    int failed = 0;
    *coded = NULL;
    *coded_size = 0;
    if (size > BITSNAP_TEXT_MAX) return bsf_fail(error, BITSNAP_E_ARGUMENT, 0, 0, "a header text of more than 100000000 bytes");
    c = bsf_new_text_coder(memory, error);
    if (!c) return error->status;
    for (at = 0; at < size && !failed; at += n) {
        const size_t most = BITSNAP_TEXT_PREFIX + (size_t)BITSNAP_TEXT_CODED_MAX(BITSNAP_TEXT_PIECE) + 8;
        size_t used = 0;
        n = bsf_piece_size(p + at, size - at);
        if (capacity - *coded_size < most) {
            uint8_t *more;
            capacity = 2 * capacity + most;
            more = (uint8_t *)bsf_resize(memory, *coded, capacity);
            if (!more) failed = bsf_no_memory(error) != 0;
            else *coded = more;
        }
        if (!failed) failed = bsf_put_piece(c, *coded + *coded_size, &used, p + at, n, error);
        *coded_size += used;
    }
    bsf_release(memory, c);
    if (!failed) return BITSNAP_OK;
    bsf_release(memory, *coded);
    *coded = NULL;
    *coded_size = 0;
    return error->status;
}

#endif

static int bsf_fail_piece(bitsnap_file_error *error, unsigned rule, const char *what, uint64_t at)
{
    return bsf_fail(error, rule == 9 ? BITSNAP_E_CHECK : BITSNAP_E_CORRUPT, rule, at, what) != 0;
}

/* Decodes a piece of a text that has `left` more bytes. The record is at p and has at most `room` bytes. `place` is its byte of the file, for
 * messages. */
static int bsf_decode_piece(bsf_text_coder *c, char *to, size_t left, const uint8_t *p, size_t room, uint64_t place, size_t *n,
                            size_t *used, bitsnap_file_error *error)
{
    size_t size, done;
    uint64_t whole;
    if (room < BITSNAP_TEXT_PREFIX || memcmp(p, BITSNAP_TEXT_MAGIC, 4))
        return bsf_fail_piece(error, 10, "a piece of a text is missing", place);
    *n = (size_t)bsf_load(p + 4, 4);
    whole = BITSNAP_TEXT_PREFIX + bsf_load(p + 8, 4) + 8;
    if (!*n || *n > BITSNAP_TEXT_PIECE || *n > left || whole > room)
        return bsf_fail_piece(error, 11, "a piece of a text of a size that cannot be", place);
    *used = (size_t)whole;
    if (bitsnap_hash(p, *used - 8) != bsf_load(p + *used - 8, 8))
        return bsf_fail_piece(error, 9, "the check of a text does not match", place);
    size = *used - BITSNAP_TEXT_PREFIX - 8;
    if (bitsnap_list_decode(&c->b, c->symbols, *n, p + BITSNAP_TEXT_PREFIX, size, &done))
        return bsf_fail_codec(error, &c->b, 12, place + BITSNAP_TEXT_PREFIX) != 0;
    if (done < size) return bsf_fail_piece(error, 12, "bytes are left over behind its list", place + BITSNAP_TEXT_PREFIX + done);
    bsf_exchange((uint8_t *)to, c->symbols, *n, 1, c->expected);
    return 0;
}

BITSNAP_API bitsnap_status bitsnap_text_decode(void *text, size_t size, const void *coded, size_t coded_size,
                                               const bitsnap_memory *memory, bitsnap_file_error *error)
{
    const uint8_t *p = (const uint8_t *)coded;
    bsf_text_coder *c = bsf_new_text_coder(memory, error);
    size_t at = 0, done = 0, n, used;
    int failed = !c;
    for (; !failed && at < size; at += n, done += used) {
        failed = bsf_decode_piece(c, (char *)text + at, size - at, p + done, coded_size - done, done, &n, &used, error);
        if (failed) break;
    }
    if (!failed && done != coded_size) failed = bsf_fail_piece(error, 10, "bytes behind its last piece", done);
    bsf_release(memory, c);
    return failed ? error->status : BITSNAP_OK;
}

/* ================================================================================= TREES */

enum { BSF_FAN = 256, BSF_NODE_ENTRY = 16 };

BITSNAP_API uint64_t bitsnap_tree_size(uint64_t count, unsigned entry)
{
    uint64_t size = count * entry;
    for (; count > BSF_FAN; size += count * BSF_NODE_ENTRY) count = (count - 1) / BSF_FAN + 1;
    return size;
}

/* Returns the check of a page or node of this file. Changes the 8 bytes before it during the call. */
static uint64_t bsf_node_check(uint8_t *p, size_t size, uint64_t file)
{
    uint8_t before[8];
    uint64_t check;
    memcpy(before, p - 8, 8);
    bsf_store(p - 8, file, 8);
    check = bitsnap_hash(p - 8, 8 + size);
    memcpy(p - 8, before, 8);
    return check;
}

BITSNAP_API uint64_t bitsnap_tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file)
{
    if (!count) return 0;
    memcpy(to, entries, (size_t)count * entry);
    for (;;) {
        uint8_t *p = to;
        uint64_t left = count;
        to += (size_t)count * entry;
        if (count <= BSF_FAN) return bsf_node_check(p, (size_t)count * entry, file);
        for (count = 0; left; count++) {
            const size_t n = left < BSF_FAN ? (size_t)left : (size_t)BSF_FAN;
            bsf_store(to + BSF_NODE_ENTRY * count, bsf_load(p, entry == BITSNAP_RECORD_ENTRY ? 6 : 8), 8);
            bsf_store(to + BSF_NODE_ENTRY * count + 8, bsf_node_check(p, n * entry, file), 8);
            p += n * entry;
            left -= n;
        }
        entry = BSF_NODE_ENTRY;
    }
}

BITSNAP_API bitsnap_status bitsnap_tree_tensors(uint8_t **entries, size_t *count, const bitsnap_safetensors *s,
                                                const bitsnap_memory *memory, bitsnap_file_error *error)
{
    uint64_t *names = (uint64_t *)bsf_resize(memory, NULL, s->count * sizeof *names);
    size_t i;
    *entries = (uint8_t *)names;
    *count = names ? s->count : 0;
    if (!names) return bsf_no_memory(error);
    for (i = 0; i < s->count; i++)
        names[i] = bitsnap_hash(s->tensors[i].name.at, s->tensors[i].name.size) << 32 | s->tensors[i].place;
    bsf_sort(names, s->count, sizeof *names, bsf_by_number);
    for (i = 0; i < s->count; i++) { /* little-endian, in place */
        const uint64_t x = names[i];
        bsf_store((uint8_t *)names + 8 * i, x, 8);
    }
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_tree_names(uint8_t **entries, size_t *count, const char *text, size_t size,
                                              const bitsnap_memory *memory, bitsnap_file_error *error)
{
    bitsnap_file_error ignored;
    bitsnap_safetensors s;
    bitsnap_status status = BITSNAP_OK;
    *entries = NULL;
    *count = 0;
    if (!bitsnap_safetensors_names(&s, text, size, memory, &ignored)) status = bitsnap_tree_tensors(entries, count, &s, memory, error);
    else if (ignored.status == BITSNAP_E_WORKSPACE) status = bsf_no_memory(error);
    bitsnap_safetensors_free(&s);
    return status;
}

/* Bytes of an end record before its trees. */
static size_t bsf_end_prefix(uint32_t compatible)
{
    return (size_t)BITSNAP_END_PREFIX + (compatible & BITSNAP_FILE_SHA256 ? (size_t)BITSNAP_END_SHA256 : 0);
}

/* The check of an end record: of what comes before its trees, and of the 24 bytes after them. */
static uint64_t bsf_end_check(uint64_t file_check, const uint8_t *first, size_t prefix, const uint8_t *last)
{
    uint8_t fixed[8 + BITSNAP_END_PREFIX + BITSNAP_END_SHA256 + 24];
    bsf_store(fixed, file_check, 8);
    memcpy(fixed + 8, first, prefix);
    memcpy(fixed + 8 + prefix, last, 24);
    return bitsnap_hash(fixed, 8 + prefix + 24);
}

BITSNAP_API bitsnap_status bitsnap_end_record(uint8_t **bytes, size_t *size, const bitsnap_file_end *end, const bitsnap_memory *memory,
                                              bitsnap_file_error *error)
{
    const uint64_t tree = bitsnap_tree_size(end->record_count, BITSNAP_RECORD_ENTRY);
    const size_t prefix = bsf_end_prefix(end->compatible);
    const uint64_t whole = prefix + tree + bitsnap_tree_size(end->name_count, BITSNAP_NAME_ENTRY) + BITSNAP_END_SUFFIX;
    uint8_t *p, *last;
    *bytes = p = whole <= SIZE_MAX ? (uint8_t *)bsf_resize(memory, NULL, (size_t)whole) : NULL;
    if (!p) return bsf_no_memory(error);
    *size = (size_t)whole;
    memcpy(p, BITSNAP_END_MAGIC, 4);
    bsf_store(p + 4, end->name_count, 4);
    bsf_store(p + 8, end->source_size, 8);
    bsf_store(p + 16, end->record_count, 8);
    bsf_store(p + 24, end->incompatible, 4);
    bsf_store(p + 28, end->compatible, 4);
    bsf_store(p + 32, end->records_end, 8);
    if (prefix > BITSNAP_END_PREFIX) memcpy(p + BITSNAP_END_PREFIX, end->sha256, BITSNAP_END_SHA256);
    last = p + whole - BITSNAP_END_SUFFIX;
    bsf_store(last, bitsnap_tree_write(p + prefix, end->records, end->record_count, BITSNAP_RECORD_ENTRY, end->file_check), 8);
    bsf_store(last + 8, bitsnap_tree_write(p + prefix + tree, end->names, end->name_count, BITSNAP_NAME_ENTRY, end->file_check), 8);
    bsf_store(last + 16, whole, 8);
    bsf_store(last + 24, bsf_end_check(end->file_check, p, prefix, last), 8);
    memcpy(last + 32, BITSNAP_LAST_MAGIC, 8);
    return BITSNAP_OK;
}

/* ================================================================================= START */

static bitsnap_status bsf_wants(bitsnap_file_error *error, size_t size, size_t wanted)
{
    (void)bsf_fail(error, BITSNAP_E_TRUNCATED, 4, size, "truncated: it ends before its end record");
    error->wanted = wanted;
    return BITSNAP_E_TRUNCATED;
}

static bitsnap_status bsf_read_header(bitsnap_file_start *s, const uint8_t *p, bitsnap_file_error *error)
{
    static const char newer[] = "made by a newer bitsnap, whose format this one does not know";
    uint64_t least;
    s->check = bsf_load(p + 32, 8);
    if (bitsnap_hash(p, 32) != s->check) return bsf_fail(error, BITSNAP_E_CHECK, 6, 0, "the check of the file header does not match");
    if (p[8] != 1) return bsf_fail(error, BITSNAP_E_UNSUPPORTED, 2, 8, newer);
    if (p[9] > BITSNAP_SOURCE_DELTA) return bsf_fail(error, BITSNAP_E_UNSUPPORTED, 3, 9, newer);
    s->incompatible = (uint32_t)bsf_load(p + 24, 4);
    s->compatible = (uint32_t)bsf_load(p + 28, 4);
    if (p[10] || p[11]) return bsf_fail(error, BITSNAP_E_UNSUPPORTED, 28, 10, newer);
    if (s->incompatible & ~BITSNAP_FILE_INCOMPATIBLE) {
        (void)bsf_fail(error, BITSNAP_E_UNSUPPORTED, 28, 24, "made by a newer bitsnap, with features that this one cannot read");
        error->found = s->incompatible & ~BITSNAP_FILE_INCOMPATIBLE;
        return error->status;
    }
    s->kind = p[9];
    s->quantized = (s->compatible & BITSNAP_FILE_QUANTIZED) != 0;
    if (s->quantized && s->kind == BITSNAP_SOURCE_DELTA) return bsf_fail(error, BITSNAP_E_CORRUPT, 7, 28, "a delta with quantized frames");
    s->text_size = bsf_load(p + 12, 4);
    if (s->text_size > BITSNAP_TEXT_MAX || (s->text_size == 0) != (s->kind == BITSNAP_SOURCE_RAW))
        return bsf_fail(error, BITSNAP_E_CORRUPT, 7, 12, "impossible size of the text");
    least = s->kind == BITSNAP_SOURCE_RAW ? 0 : 8 + s->text_size;
    s->source_size = bsf_load(p + 16, 8);
    if (s->source_size == UINT64_MAX ? s->kind == BITSNAP_SOURCE_DELTA : s->source_size > BITSNAP_FILE_MOST || s->source_size < least)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 8, 16, "impossible size of the source");
    s->end = BITSNAP_FILE_HEADER;
    return BITSNAP_OK;
}

/* What the record of s->base_count bases says of each, in the m bytes at p, which are byte `at` of the file. */
static bitsnap_status bsf_read_entries(bitsnap_file_start *s, const uint8_t *p, size_t m, uint64_t at, bitsnap_file_error *error)
{
    const uint8_t *const begin = p, *const end = p + m;
    char *name = (char *)(s->bases + s->base_count); /* an entry is longer than its name and a 0 */
    size_t i, k, size;
    for (i = 0; i < s->base_count; i++, p += BITSNAP_BASE_ENTRY + size) {
        bitsnap_file_base *base = &s->bases[i];
        const uint64_t place = at + (size_t)(p - begin);
        if (end - p < BITSNAP_BASE_ENTRY || end - p - BITSNAP_BASE_ENTRY < p[20]) break;
        size = p[20];
        for (k = 0; k < size; k++) {
            name[k] = (char)p[BITSNAP_BASE_ENTRY + k];
            if (!name[k] || name[k] == '/' || name[k] == '\\')
                return bsf_fail(error, BITSNAP_E_CORRUPT, 14, place + BITSNAP_BASE_ENTRY + k, "the name of a base with a directory");
        }
        name[size] = 0;
        base->name = name;
        name += size + 1;
        base->text_size = bsf_load(p, 4);
        base->data_size = bsf_load(p + 4, 8);
        base->text_id = bsf_load(p + 12, 8);
        base->file = NULL;
        if (!base->text_size || base->text_size > BITSNAP_TEXT_MAX || base->data_size > BITSNAP_FILE_MOST - 8 - base->text_size)
            return bsf_fail(error, BITSNAP_E_CORRUPT, 14, place, "impossible size of a base");
    }
    if (i == s->base_count && p == end) return BITSNAP_OK;
    return bsf_fail(error, BITSNAP_E_CORRUPT, 14, at - BITSNAP_BASES_PREFIX + 8, "a wrong size of the record of bases");
}

/* Reads the record of the bases. `size` bytes of it are at p. */
static bitsnap_status bsf_read_bases(bitsnap_file_start *s, const uint8_t *p, size_t size, const bitsnap_memory *memory,
                                     bitsnap_file_error *error)
{
    const uint64_t at = s->end;
    uint64_t m;
    size_t whole;
    bitsnap_status status;
    if (size < BITSNAP_BASES_PREFIX) return bsf_wants(error, (size_t)at + size, (size_t)at + BITSNAP_BASES_PREFIX);
    if (memcmp(p, BITSNAP_BASES_MAGIC, 4)) return bsf_fail(error, BITSNAP_E_CORRUPT, 10, at, "no bases behind the header of a delta");
    s->base_count = (size_t)bsf_load(p + 4, 2);
    m = bsf_load(p + 8, 4);
    if (m < BITSNAP_BASE_ENTRY * (uint64_t)s->base_count || m > (BITSNAP_BASE_ENTRY + 255) * (uint64_t)s->base_count)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 14, at + 8, "a wrong size of the record of bases");
    whole = BITSNAP_BASES_PREFIX + (size_t)m;
    if (size < whole + 8) return bsf_wants(error, (size_t)at + size, (size_t)at + whole + 8);
    if (bitsnap_hash(p, whole) != bsf_load(p + whole, 8))
        return bsf_fail(error, BITSNAP_E_CHECK, 9, at, "the check of the bases does not match");
    s->flags = (unsigned)bsf_load(p + 6, 2);
    s->text_id = bsf_load(p + 12, 8);
    if (!s->base_count || s->base_count > BITSNAP_BASES_MOST || s->flags & ~(unsigned)(BITSNAP_BASES_SAME_TEXT | BITSNAP_BASES_WITH_TEXT))
        return bsf_fail(error, BITSNAP_E_CORRUPT, 14, at + 4, "no base or too many, or reserved bits that are not 0");
    s->bases = (bitsnap_file_base *)bsf_resize(memory, NULL, s->base_count * sizeof *s->bases + whole);
    if (!s->bases) return bsf_no_memory(error);
    status = bsf_read_entries(s, p + BITSNAP_BASES_PREFIX, whole - BITSNAP_BASES_PREFIX, at + BITSNAP_BASES_PREFIX, error);
    s->end = at + whole + 8;
    if (!status && s->flags & BITSNAP_BASES_SAME_TEXT && (s->bases->text_size != s->text_size || s->bases->text_id != s->text_id))
        return bsf_fail(error, BITSNAP_E_CORRUPT, 15, at + 6, "the text of the base, which is another");
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_read_start(bitsnap_file_start *s, const void *bytes, size_t size, const bitsnap_memory *memory,
                                                   bitsnap_file_error *error)
{
    const uint8_t *p = (const uint8_t *)bytes;
    bitsnap_status status;
    memset(s, 0, sizeof *s);
    memset(error, 0, sizeof *error);
    if (size && memcmp(p, BITSNAP_FILE_MAGIC, size < 8 ? size : 8)) return bsf_fail(error, BITSNAP_E_MAGIC, 1, 0, "no .bsnap file");
    if (size < BITSNAP_FILE_HEADER) return bsf_wants(error, size, BITSNAP_FILE_HEADER);
    status = bsf_read_header(s, p, error);
    if (!status && s->kind == BITSNAP_SOURCE_DELTA) status = bsf_read_bases(s, p + s->end, size - (size_t)s->end, memory, error);
    if (!status) return BITSNAP_OK;
    bsf_release(memory, s->bases);
    memset(s, 0, sizeof *s);
    return status;
}

/* ================================================================================= KEPT
 * Elements that later frames refer to, where the file is read in order: each frame that has a kept record is a piece, in memory or spilled. */

typedef struct bsf_piece {
    uint64_t begin, end;      /* bytes of the data */
    uint64_t last;            /* where the last frame begins that may refer to it */
    uint64_t filled;          /* bytes that have come; fewer than all if the frame was passed over */
    uint64_t number, run;     /* how many pieces came before it, and how many of these do not begin where another ends */
    uint8_t *bytes;           /* in memory; null: none have come, or they are spilled */
    size_t room;
    int spilled;
} bsf_piece;

typedef struct bsf_kept {
    const bitsnap_memory *memory;
    const bitsnap_spill *spill;
    bsf_piece *pieces;        /* in the order of their bytes, which do not overlap */
    size_t count, room;
    size_t frames;            /* since pieces were dropped last */
    uint64_t begun, runs, end; /* pieces so far, those of them that do not begin where another ends, and where the last one ends */
    uint64_t frame;           /* where the frame begins that reads */
    uint64_t held;            /* bytes of the pieces that are or will be in memory */
} bsf_kept;

/* Drops pieces: frames from byte `begin` on may not refer to them. With n pieces it looks at them only after n frames, so the time is linear. */
static void bsf_kept_drop(bsf_kept *k, uint64_t begin)
{
    size_t i, n = 0;
    if (k->frames++ < k->count) return;
    k->frames = 0;
    for (i = 0; i < k->count; i++) {
        bsf_piece *p = &k->pieces[i];
        if (p->last >= begin) {
            k->pieces[n++] = *p;
            continue;
        }
        if (!p->spilled) k->held -= p->end - p->begin;
        bsf_release(k->memory, p->bytes);
    }
    k->count = n;
}

/* Begins the piece of a frame. At most `most` bytes may be in memory. */
static bitsnap_status bsf_kept_begin(bsf_kept *k, uint64_t begin, uint64_t size, uint64_t last, uint64_t most, bitsnap_file_error *error)
{
    uint8_t *bytes = (uint8_t *)k->pieces;
    size_t room = k->room;
    bsf_piece *p;
    const bitsnap_status status = bsf_grow(k->memory, &bytes, &room, (k->count + 1) * sizeof *p, error);
    if (status) return status;
    k->pieces = (bsf_piece *)(void *)bytes;
    k->room = room;
    p = &k->pieces[k->count++];
    memset(p, 0, sizeof *p);
    p->begin = begin;
    p->end = begin + size;
    p->last = last;
    p->number = k->begun++;
    p->run = k->runs += begin != k->end;
    k->end = p->end;
    p->spilled = k->held > most || size > most - k->held;
    if (!p->spilled) k->held += size;
    return BITSNAP_OK;
}

/* Adds the next bytes of the last piece. */
static bitsnap_status bsf_kept_add(bsf_kept *k, const void *bytes, size_t size, bitsnap_file_error *error)
{
    bsf_piece *p = &k->pieces[k->count - 1];
    const uint64_t whole = p->end - p->begin;
    if (p->spilled) {
        if (!k->spill->write)
            return bsf_fail(error, BITSNAP_E_WORKSPACE, 0, 0, "elements that later frames refer to take more memory than it may");
        if (k->spill->write(k->spill->context, p->begin + p->filled, bytes, size))
            return bsf_fail(error, BITSNAP_E_SOURCE, 0, 0, "the callback of the spill failed");
    } else {
        const uint64_t wanted = 2 * (p->filled + size) < whole ? 2 * (p->filled + size) : whole;
        if (p->filled + size > p->room) {
            uint8_t *more = wanted <= SIZE_MAX ? (uint8_t *)bsf_resize(k->memory, p->bytes, (size_t)wanted) : NULL;
            if (!more) return bsf_no_memory(error);
            p->bytes = more;
            p->room = (size_t)wanted;
        }
        memcpy(p->bytes + p->filled, bytes, size);
    }
    p->filled += size;
    return BITSNAP_OK;
}

/* The last piece that begins at this byte or before it; the first if none does. */
static size_t bsf_kept_find(const bsf_kept *k, uint64_t at)
{
    size_t low = 0, high = k->count;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (k->pieces[middle].begin <= at) low = middle;
        else high = middle;
    }
    return low;
}

/* Whether all of these bytes are in pieces, and the first and the last of these are kept for the frame that reads. Does not visit the pieces
 * between: a file may have many frames that name many pieces each, and a reader that passes over all of them. bsf_kept_read checks those. */
static int bsf_kept_has(const bsf_kept *k, uint64_t at, uint64_t size)
{
    const bsf_piece *first, *last;
    if (!k->count) return 0;
    first = &k->pieces[bsf_kept_find(k, at)];
    last = &k->pieces[bsf_kept_find(k, at + size - 1)];
    return at >= first->begin && at < first->end && at + size <= last->end && first->last >= k->frame && last->last >= k->frame &&
           first->run == last->run && last->number - first->number == (uint64_t)(last - first);
}

/* Reads bytes that bsf_kept_has has found. */
static bitsnap_status bsf_kept_read(const bsf_kept *k, uint64_t at, uint8_t *to, size_t size, bitsnap_file_error *error)
{
    size_t i = bsf_kept_find(k, at), n;
    for (; size; i++, at += n, to += n, size -= n) {
        const bsf_piece *p = &k->pieces[i];
        n = p->end - at < size ? (size_t)(p->end - at) : size;
        if (p->last < k->frame) return bsf_fail(error, BITSNAP_E_CORRUPT, 39, 0, "a frame refers to data that are not kept for it");
        if (p->filled < p->end - p->begin)
            return bsf_fail(error, BITSNAP_E_ARGUMENT, 0, 0, "the frame refers to one that has been passed over");
        if (!p->spilled) memcpy(to, p->bytes + (at - p->begin), n);
        else if (k->spill->read(k->spill->context, at, to, n))
            return bsf_fail(error, BITSNAP_E_SOURCE, 0, 0, "the callback of the spill failed");
    }
    return BITSNAP_OK;
}

static void bsf_kept_close(bsf_kept *k)
{
    size_t i;
    for (i = 0; i < k->count; i++) bsf_release(k->memory, k->pieces[i].bytes);
    bsf_release(k->memory, k->pieces);
}

/* ================================================================================= BASES
 * A part of a base: the elements that the blocks at hand need, in native byte order. */

typedef struct bsf_window {
    const bitsnap_memory *memory;
    bitsnap_file *file;       /* null: there is no base, or it is in `kept` */
    const bsf_kept *kept;     /* the base is earlier data of a file that is read in order */
    unsigned number;          /* of the base */
    uint64_t begin;           /* byte of its data where the elements of the frame begin */
    bitsnap_base base;        /* for the codec; held is 0 before any are here */
    uint8_t *elements;
    size_t room;
} bsf_window;

static int bsf_is_inner(const bitsnap_file *f);
static bitsnap_slice bsf_damaged(bitsnap_file *f, uint64_t begin, uint64_t end);

/* Takes the error of the last call on a base. */
static bitsnap_status bsf_window_failed(const bsf_window *w, bitsnap_file_error *error)
{
    *error = w->file->error;
    if (bsf_is_inner(w->file)) return error->status; /* it is the same file */
    error->depth++;
    error->base = w->number;
    return error->status;
}

static void bsf_window_begin_at(bsf_window *w, bitsnap_file *file, unsigned number, uint64_t begin)
{
    w->file = file;
    w->kept = NULL;
    w->number = number;
    w->begin = begin;
    memset(&w->base, 0, sizeof w->base);
}

/* Gets `count` elements from `first` on. */
static bitsnap_status bsf_window_load(bsf_window *w, uint64_t first, uint64_t count, bitsnap_file_error *error)
{
    const unsigned width = bitsnap_width(w->base.dtype);
    const size_t size = (size_t)count * width;
    w->base.held = 0;
    if (!w->elements || size > w->room) {
        bsf_release(w->memory, w->elements);
        w->elements = (uint8_t *)bsf_resize(w->memory, NULL, size);
        w->room = w->elements ? size : 0;
        if (!w->elements) return bsf_no_memory(error);
    }
    if (w->kept) {
        const bitsnap_status status = bsf_kept_read(w->kept, w->begin + first * width, w->elements, size, error);
        if (status) return status;
    } else if (bitsnap_file_read_data(w->file, w->begin + first * width, w->elements, size)) {
        (void)bsf_window_failed(w, error);
        if (bsf_is_inner(w->file)) error->base_tensor = bsf_damaged(w->file, w->begin + first * width, w->begin + first * width + size);
        return error->status;
    }
    bsf_swap_elements(w->elements, size, width);
    w->base.data = w->elements;
    w->base.first = first;
    w->base.held = count;
    return BITSNAP_OK;
}

/* The elements of a window: a block for each worker. */
static uint64_t bsf_window_size(unsigned block_log2, unsigned workers)
{
    const uint64_t fit = (SIZE_MAX / 16) >> block_log2; /* blocks of 8-byte elements in half of the addresses */
    return (workers < fit ? workers ? workers : 1 : fit) << block_log2;
}

/* Returns 1 if there is a base to read from. */
static int bsf_window_is_open(const bsf_window *w) { return w->file || w->kept; }

/* Gets what blocks from this element on need, unless it is here. */
static bitsnap_status bsf_window_hold(bsf_window *w, uint64_t first, unsigned block_log2, unsigned workers, bitsnap_file_error *error)
{
    const bitsnap_base *b = &w->base;
    const uint64_t most = bsf_window_size(block_log2, workers);
    if (b->held && first >= b->first && first - b->first < b->held) return BITSNAP_OK;
    return bsf_window_load(w, first, b->count - first < most ? b->count - first : most, error);
}

/* ================================================================================= READING */

typedef struct bsf_tree {
    uint64_t at, count, root; /* where it begins in the file; its entries; the check of its root */
    unsigned entry;           /* bytes of one */
    uint64_t page;            /* the page that is held, or UINT64_MAX */
    size_t size;              /* its entries */
    uint8_t entries[(size_t)BSF_FAN * BITSNAP_RECORD_ENTRY];
} bsf_tree;

typedef struct bsf_reader {
    bitsnap_source source;
    const bitsnap_memory *memory;
    unsigned depth;                  /* length of the chain of its bases */
    bitsnap_file *itself;            /* the same file once more, for what frames of it refer to; null until one is read */
    int inner;                       /* this is that */
    bitsnap_file_start start;
    uint64_t end, records_end;       /* where the end record begins, and where the last record before it ends */
    uint64_t data;                   /* where the data begins in the source */
    bsf_tree records, names;
    uint8_t node[8 + (size_t)BSF_FAN * BITSNAP_RECORD_ENTRY]; /* a page of records is larger than a node */

    bsf_text_coder *texts;           /* null until a text is decoded */
    uint8_t *record;                 /* a text record */
    size_t record_room;
    char *text;                      /* the whole text, where it has been needed */
    uint64_t text_id;                /* of a base: the hash of its text, once it is has_text_id */
    int has_text_id;
    bitsnap_safetensors model, one;  /* its tensors; and the one that was found last */
    const bitsnap_tensor **by_name;  /* those of the model, once they are parsed */
    char *part;                      /* bytes of the text from part_begin on, up to a record's end; its first record */
    size_t part_size, part_room;
    uint64_t part_begin, part_record;

    uint64_t frame;                  /* number of the record that is open, or UINT64_MAX */
    bitsnap_file_frame open;
    bitsnap_source frame_source;
    uint8_t first[112];              /* bytes of it from its beginning on: first_size of them */
    size_t first_size;
    uint8_t last[12];                /* its last bytes, as the codec has read them */
    bitsnap_index index;
    uint8_t *block;                  /* elements of one block of it, from this one on */
    size_t block_room, block_count;
    uint64_t block_first;
    bsf_window window;               /* of its base */
} bsf_reader;

static int bsf_is_inner(const bitsnap_file *f) { return f->reader && f->reader->inner; }

/* ---- bytes ---- */

static bitsnap_status bsf_fail_file(bitsnap_file *f, bitsnap_status status, unsigned rule, uint64_t offset, const char *message)
{
    return bsf_fail(&f->error, status, rule, offset, message);
}

static bitsnap_status bsf_corrupt(bitsnap_file *f, unsigned rule, uint64_t offset, const char *message)
{
    return bsf_fail(&f->error, BITSNAP_E_CORRUPT, rule, offset, message);
}

static bitsnap_status bsf_get(bitsnap_file *f, uint64_t offset, void *to, size_t size)
{
    const bitsnap_source *s = &f->reader->source;
    if (offset > s->size || size > s->size - offset)
        return bsf_fail_file(f, BITSNAP_E_TRUNCATED, 4, s->size, "truncated: it ends before its end record");
    if (!size) return BITSNAP_OK;
    if (s->data) memcpy(to, (const uint8_t *)s->data + offset, size);
    else if (s->read(s->context, offset, to, size))
        return bsf_fail_file(f, BITSNAP_E_SOURCE, 0, offset, "the callback of the source failed");
    return BITSNAP_OK;
}

/* Makes room for `size` bytes at *p. Its contents are lost if it moves. */
static bitsnap_status bsf_room(bitsnap_file *f, uint8_t **p, size_t *room, size_t size)
{
    if (*p && size <= *room) return BITSNAP_OK;
    bsf_release(f->reader->memory, *p);
    *p = (uint8_t *)bsf_resize(f->reader->memory, NULL, size);
    *room = *p ? size : 0;
    return *p ? BITSNAP_OK : bsf_no_memory(&f->error);
}

/* ---- trees ---- */

static uint64_t bsf_key(const bsf_tree *t, size_t i) { return bsf_load(t->entries + i * t->entry, t->entry == BITSNAP_RECORD_ENTRY ? 6 : 8); }

/* The last of n entries whose key is at most this one; the first where none is. */
static size_t bsf_search(const uint8_t *p, size_t n, unsigned entry, uint64_t key)
{
    size_t low = 0, high = n;
    while (high - low > 1) {
        const size_t middle = low + (high - low) / 2;
        if (bsf_load(p + middle * entry, entry == BITSNAP_RECORD_ENTRY ? 6 : 8) <= key) low = middle;
        else high = middle;
    }
    return low;
}

/* Returns 1 if the keys of a page or node ascend: strictly for names, not for records, which may be empty. */
static int bsf_ascends(const uint8_t *p, size_t n, unsigned entry, int strictly)
{
    uint64_t last = 0, key;
    size_t i;
    for (i = 0; i < n; i++, last = key) {
        key = bsf_load(p + i * entry, entry == BITSNAP_RECORD_ENTRY ? 6 : 8);
        if (i && (key < last || (strictly && key == last))) return 0;
    }
    return 1;
}

/* Reads the page with entry number `wanted` or, with `by_key`, with the last entry whose key is at most `wanted`. */
static bitsnap_status bsf_page(bitsnap_file *f, bsf_tree *t, uint64_t wanted, int by_key)
{
    uint8_t *p = f->reader->node + 8;
    uint64_t counts[8], place[8], node = 0, check = t->root, key = 0;
    unsigned top = 0, level;
    bitsnap_status status;
    if (!by_key && t->page == wanted / BSF_FAN) return BITSNAP_OK;
    counts[0] = t->count;
    place[0] = t->at;
    for (; counts[top] > BSF_FAN; top++) { /* fewer than 2^48 entries: at most 6 levels */
        place[top + 1] = place[top] + counts[top] * (top ? (unsigned)BSF_NODE_ENTRY : t->entry);
        counts[top + 1] = (counts[top] - 1) / BSF_FAN + 1;
    }
    for (level = top;; level--) {
        const unsigned entry = level ? (unsigned)BSF_NODE_ENTRY : t->entry;
        const uint64_t left = counts[level] - node * BSF_FAN, at = place[level] + node * BSF_FAN * entry;
        const size_t n = left < BSF_FAN ? (size_t)left : (size_t)BSF_FAN;
        size_t slot;
        status = bsf_get(f, at, p, n * entry);
        if (status) return status;
        if (bsf_node_check(p, n * entry, f->reader->start.check) != check)
            return bsf_fail_file(f, BITSNAP_E_CHECK, 24, at, "the check of a page or node of the end record does not match");
        if (level < top && bsf_load(p, entry == BITSNAP_RECORD_ENTRY ? 6 : 8) != key)
            return bsf_corrupt(f, 25, at, "a page or node of the end record is not what the one above says");
        if (!bsf_ascends(p, n, entry, t->entry == BITSNAP_NAME_ENTRY))
            return bsf_corrupt(f, 25, at, "keys of the end record that do not ascend");
        if (!level) {
            t->page = node;
            t->size = n;
            memcpy(t->entries, p, n * entry);
            return BITSNAP_OK;
        }
        slot = by_key ? bsf_search(p, n, entry, wanted) : (size_t)((wanted >> 8 * level) - node * BSF_FAN);
        key = bsf_load(p + slot * BSF_NODE_ENTRY, 8);
        check = bsf_load(p + slot * BSF_NODE_ENTRY + 8, 8);
        node = node * BSF_FAN + slot;
    }
}

/* Finds the number of the last entry whose key is at most this one; UINT64_MAX: all keys are larger. */
static bitsnap_status bsf_seek(bitsnap_file *f, bsf_tree *t, uint64_t key, uint64_t *number)
{
    bitsnap_status status;
    size_t i;
    *number = UINT64_MAX;
    if (!t->count) return BITSNAP_OK;
    status = bsf_page(f, t, key, 1);
    if (status) return status;
    i = bsf_search(t->entries, t->size, t->entry, key);
    if (bsf_key(t, i) <= key) *number = t->page * BSF_FAN + i;
    return BITSNAP_OK;
}

/* A record of the source, as the tree of records has it. */
typedef struct bsf_extent {
    uint64_t key, bytes;      /* bytes of the source: where it begins, and how many */
    uint64_t at, size;        /* of the file */
    uint64_t seal;
} bsf_extent;

/* Finds where a record begins in the source and in the file, and its seal. After the last record these are the end of the source, and where
 * the last record ends. */
static bitsnap_status bsf_record(bitsnap_file *f, uint64_t number, bsf_extent *x)
{
    bsf_tree *t = &f->reader->records;
    const uint8_t *p;
    bitsnap_status status;
    x->key = f->reader->data + f->data_size;
    x->at = f->reader->records_end;
    if (number >= t->count) return BITSNAP_OK;
    status = bsf_page(f, t, number, 0);
    if (status) return status;
    p = t->entries + number % BSF_FAN * BITSNAP_RECORD_ENTRY;
    x->key = bsf_load(p, 6);
    x->at = bsf_load(p + 6, 6);
    x->seal = bsf_load(p + 12, 8);
    return BITSNAP_OK;
}

static bitsnap_status bsf_wrong_tree(bitsnap_file *f, const bsf_tree *t)
{
    return bsf_corrupt(f, 25, t->at, "a tree of the end record does not agree with what is in the file");
}

/* Finds a record, and its bytes in the source and in the file. */
static bitsnap_status bsf_record_extent(bitsnap_file *f, uint64_t number, bsf_extent *x)
{
    bsf_extent next;
    bitsnap_status status = bsf_record(f, number, x);
    if (!status) status = bsf_record(f, number + 1, &next);
    if (status) return status;
    if (next.key < x->key || x->at < f->reader->start.end || next.at <= x->at || next.at > f->reader->records_end)
        return bsf_wrong_tree(f, &f->reader->records);
    x->bytes = next.key - x->key;
    x->size = next.at - x->at;
    return BITSNAP_OK;
}

/* Checks the first bytes of an ancillary record, at byte `at` of the file. */
static bitsnap_status bsf_check_ancillary(const uint8_t *p, uint64_t at, bitsnap_file_error *error)
{
    if (bsf_load(p + 8, 8) > BITSNAP_ANCILLARY_MOST)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 33, at + 8, "an ancillary record that is too large");
    if (bsf_load(p + 4, 4) >= BITSNAP_ANCILLARY_TYPES)
        return bsf_fail(error, BITSNAP_E_UNSUPPORTED, 32, at + 4, "made by a newer bitsnap, with a record that this one does not know");
    return BITSNAP_OK;
}

/* Passes over an ancillary record at the beginning of an extent. Its first n bytes are at p. Sets *passed to 1 if there was one, else to 0. */
static bitsnap_status bsf_pass_over(bitsnap_file *f, bsf_extent *x, const uint8_t *p, size_t n, int *passed)
{
    uint64_t whole;
    bitsnap_status status;
    *passed = n >= BITSNAP_ANCILLARY_PREFIX && !memcmp(p, BITSNAP_ANCILLARY_MAGIC, 4);
    if (!*passed) return BITSNAP_OK;
    status = bsf_check_ancillary(p, x->at, &f->error);
    if (status) return status;
    whole = BITSNAP_ANCILLARY_PREFIX + bsf_load(p + 8, 8) + 8;
    if (whole >= x->size) return bsf_wrong_tree(f, &f->reader->records);
    x->at += whole;
    x->size -= whole;
    return BITSNAP_OK;
}

static bitsnap_status bsf_wrong_seal(bitsnap_file *f, uint64_t at)
{
    return bsf_fail_file(f, BITSNAP_E_CHECK, 31, at, "another frame or text than the end record says");
}

/* ---- opening ---- */

static bitsnap_status bsf_open_plain(bitsnap_file *f, const uint8_t *p, size_t size)
{
    const uint64_t text = size < 9 ? UINT64_MAX : bsf_load(p, 8);
    if (text > BITSNAP_TEXT_MAX || text > f->size - 8 || !(p[8] == '{' || p[8] == ' ' || (p[8] >= '\t' && p[8] <= '\r')))
        return bsf_fail_file(f, BITSNAP_E_MAGIC, 1, 0, "neither a .bsnap file nor a .safetensors file");
    f->kind = BITSNAP_SOURCE_PLAIN;
    f->text_size = text;
    f->reader->data = 8 + text;
    f->data_size = f->size - 8 - text;
    return BITSNAP_OK;
}

/* Reads what comes before texts and frames. The first n bytes of it are at p. */
static bitsnap_status bsf_open_start(bitsnap_file *f, const uint8_t *p, size_t n)
{
    bsf_reader *r = f->reader;
    bitsnap_status status = bitsnap_file_read_start(&r->start, p, n, r->memory, &f->error);
    if (status == BITSNAP_E_TRUNCATED) {
        const size_t size = (size_t)f->error.wanted;
        if (size > f->size) return bsf_fail_file(f, BITSNAP_E_TRUNCATED, 4, f->size, "truncated: it ends before its end record");
        status = bsf_room(f, &r->record, &r->record_room, size);
        if (!status) status = bsf_get(f, 0, r->record, size);
        if (!status) status = bitsnap_file_read_start(&r->start, r->record, size, r->memory, &f->error);
    }
    f->kind = r->start.kind;
    f->quantized = r->start.quantized;
    f->incompatible = r->start.incompatible;
    f->compatible = r->start.compatible;
    f->text_size = r->start.text_size;
    f->bases = r->start.bases;
    f->base_count = r->start.base_count;
    r->data = f->kind == BITSNAP_SOURCE_RAW ? 0 : 8 + f->text_size;
    return status;
}

/* Reads the end record, without its trees. */
static bitsnap_status bsf_open_end(bitsnap_file *f)
{
    bsf_reader *r = f->reader;
    const size_t prefix = bsf_end_prefix(f->compatible);
    uint8_t first[BITSNAP_END_PREFIX + BITSNAP_END_SHA256], last[BITSNAP_END_SUFFIX];
    uint64_t whole, source;
    bitsnap_status status = bsf_get(f, f->size - BITSNAP_END_SUFFIX, last, BITSNAP_END_SUFFIX);
    if (status) return status;
    if (memcmp(last + 32, BITSNAP_LAST_MAGIC, 8))
        return bsf_corrupt(f, 27, f->size - 8, "it does not end with its end record: cut off, or with something behind it");
    whole = bsf_load(last + 16, 8);
    if (whole < prefix + BITSNAP_END_SUFFIX || whole > f->size - r->start.end)
        return bsf_corrupt(f, 23, f->size - 24, "wrong size of the end record");
    r->end = f->size - whole;
    status = bsf_get(f, r->end, first, prefix);
    if (status) return status;
    f->check = bsf_load(last + 24, 8);
    if (bsf_end_check(r->start.check, first, prefix, last) != f->check)
        return bsf_fail_file(f, BITSNAP_E_CHECK, 24, r->end, "the check of the end record does not match");
    if (memcmp(first, BITSNAP_END_MAGIC, 4)) return bsf_corrupt(f, 10, r->end, "no end record where there should be one");
    if (bsf_load(first + 24, 4) != f->incompatible || bsf_load(first + 28, 4) != f->compatible)
        return bsf_corrupt(f, 29, r->end + 24, "the end record has other features than the file header");
    source = bsf_load(first + 8, 8);
    if (source > BITSNAP_FILE_MOST || source < r->data || (r->start.source_size != UINT64_MAX && r->start.source_size != source))
        return bsf_corrupt(f, 22, r->end + 8, "the size of the source does not agree");
    f->data_size = source - r->data;
    r->records_end = bsf_load(first + 32, 8);
    if (r->records_end < r->start.end || r->records_end > r->end) return bsf_corrupt(f, 23, r->end + 32, "the end of the records does not agree");
    r->records.count = bsf_load(first + 16, 8);
    r->names.count = bsf_load(first + 4, 4);
    r->records.entry = BITSNAP_RECORD_ENTRY;
    r->names.entry = BITSNAP_NAME_ENTRY;
    r->records.root = bsf_load(last, 8);
    r->names.root = bsf_load(last + 8, 8);
    r->records.at = r->end + prefix;
    if (r->records.count > whole / BITSNAP_RECORD_ENTRY) return bsf_corrupt(f, 23, r->end + 16, "the number of records does not agree");
    r->names.at = r->records.at + bitsnap_tree_size(r->records.count, BITSNAP_RECORD_ENTRY);
    if (r->names.at - r->end + bitsnap_tree_size(r->names.count, BITSNAP_NAME_ENTRY) + BITSNAP_END_SUFFIX != whole)
        return bsf_corrupt(f, 23, f->size - 24, "wrong size of the end record");
    return BITSNAP_OK;
}

/* Takes the error of the last call on the base of this number. */
static bitsnap_status bsf_base_failed(bitsnap_file *f, unsigned number)
{
    f->error = f->bases[number].file->error;
    f->error.depth++;
    f->error.base = number;
    return f->error.status;
}

static bitsnap_status bsf_wrong_base(bitsnap_file *f, unsigned rule, unsigned number, const char *message)
{
    (void)bsf_fail_file(f, BITSNAP_E_BASE, rule, f->reader->start.end, message);
    f->error.base = number;
    return BITSNAP_E_BASE;
}

/* Fails if the header text shows that a base is not that of the delta. */
static bitsnap_status bsf_open_base(bitsnap_file *f, unsigned number, bitsnap_file *file)
{
    static const char another[] = "not the base that this delta was made against: its header is another";
    bitsnap_file_base *base = &f->reader->start.bases[number];
    const char *text;
    if (file->text_size != base->text_size || file->kind == BITSNAP_SOURCE_RAW) return bsf_wrong_base(f, 17, number, another);
    if (file->data_size != base->data_size)
        return bsf_wrong_base(f, 18, number, "not the base that this delta was made against: its data has another size");
    if (f->reader->depth <= file->reader->depth) f->reader->depth = file->reader->depth + 1;
    if (f->reader->depth > BITSNAP_FILE_CHAIN)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "more than 256 deltas that stand on each other");
    base->file = file;
    if (bitsnap_file_text(file, &text)) return bsf_base_failed(f, number);
    if (!file->reader->has_text_id) file->reader->text_id = bitsnap_hash(text, (size_t)file->text_size);
    file->reader->has_text_id = 1; /* a delta may name it 65,534 times */
    return file->reader->text_id == base->text_id ? BITSNAP_OK : bsf_wrong_base(f, 17, number, another);
}

BITSNAP_API bitsnap_status bitsnap_file_open(bitsnap_file *f, const bitsnap_source *source, bitsnap_file *const *bases, size_t base_count,
                                             const bitsnap_memory *memory)
{
    uint8_t header[BITSNAP_FILE_HEADER + BITSNAP_BASES_PREFIX];
    size_t n, open;
    unsigned i;
    bitsnap_status status;
    memset(f, 0, sizeof *f);
    for (open = 0; open < base_count && bases[open] && bases[open]->reader; open++) continue;
    if (!source || (!source->data && !source->read) || (source->data && source->size > SIZE_MAX) || open < base_count)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "no source, or a base that is not open");
    f->reader = (bsf_reader *)bsf_resize(memory, NULL, sizeof *f->reader);
    if (!f->reader) return bsf_no_memory(&f->error);
    memset(f->reader, 0, sizeof *f->reader);
    f->reader->source = *source;
    f->reader->memory = f->reader->window.memory = memory;
    f->reader->frame = f->reader->records.page = f->reader->names.page = UINT64_MAX;
    f->size = source->size;
    n = f->size < sizeof header ? (size_t)f->size : sizeof header;
    status = bsf_get(f, 0, header, n);
    if (status) return status;
    if (n < 8 || memcmp(header, BITSNAP_FILE_MAGIC, 8)) return bsf_open_plain(f, header, n);
    if (f->size < BITSNAP_FILE_HEADER + BITSNAP_END_PREFIX + BITSNAP_END_SUFFIX)
        return bsf_fail_file(f, BITSNAP_E_TRUNCATED, 4, f->size, "truncated: it ends before its end record");
    status = bsf_open_start(f, header, n);
    if (!status) status = bsf_open_end(f);
    if (!status && f->kind == BITSNAP_SOURCE_DELTA && base_count && base_count != f->base_count)
        status = bsf_wrong_base(f, 17, 0, "fewer or more bases than this delta has");
    for (i = 0; !status && i < f->base_count && base_count; i++) status = bsf_open_base(f, i, bases[i]);
    return status;
}

BITSNAP_API void bitsnap_file_close(bitsnap_file *f)
{
    bsf_reader *r = f->reader;
    if (r) {
        if (r->itself) bitsnap_file_close(r->itself);
        bsf_release(r->memory, r->itself);
        bitsnap_safetensors_free(&r->model);
        bitsnap_safetensors_free(&r->one);
        bsf_release(r->memory, (void *)r->by_name);
        bsf_release(r->memory, r->texts);
        bsf_release(r->memory, r->record);
        bsf_release(r->memory, r->text);
        bsf_release(r->memory, r->part);
        bsf_release(r->memory, r->block);
        bsf_release(r->memory, r->window.elements);
        bsf_release(r->memory, r->start.bases);
        bsf_release(r->memory, f->b.workspace);
        bsf_release(r->memory, r);
    }
    memset(f, 0, sizeof *f);
}

/* ---- texts ---- */

/* Returns 1 for a delta without its bases. Either all of them are open, or none. */
static int bsf_lacks_base(const bitsnap_file *f) { return f->kind == BITSNAP_SOURCE_DELTA && (!f->base_count || !f->bases->file); }

static bitsnap_status bsf_no_base(bitsnap_file *f)
{
    return bsf_fail_file(f, BITSNAP_E_BASE, 17, 0, "this delta needs its base");
}

/* Decodes text record `number`, whose piece begins with byte `done` of the text, to `to`, where `room` bytes fit. */
static bitsnap_status bsf_get_piece(bitsnap_file *f, uint64_t number, uint64_t done, char *to, size_t room, size_t *n)
{
    bsf_reader *r = f->reader;
    bsf_extent x;
    const size_t most = BITSNAP_TEXT_PREFIX + (size_t)BITSNAP_TEXT_CODED_MAX(BITSNAP_TEXT_PIECE) + 8;
    size_t used = 0, here;
    int passed = 1;
    bitsnap_status status = bsf_record_extent(f, number, &x);
    if (status) return status;
    if (x.key != 8 + done || !x.bytes || x.bytes > room) return bsf_wrong_tree(f, &r->records);
    if (!r->texts && (r->texts = bsf_new_text_coder(r->memory, &f->error)) == NULL) return f->error.status;
    while (!status && passed) {
        here = x.size < most ? (size_t)x.size : most;
        status = bsf_room(f, &r->record, &r->record_room, here);
        if (!status) status = bsf_get(f, x.at, r->record, here);
        if (!status) status = bsf_pass_over(f, &x, r->record, here, &passed);
    }
    if (status) return status;
    if (x.size > most) return bsf_corrupt(f, 11, x.at, "a piece of a text of a size that cannot be");
    if (bsf_decode_piece(r->texts, to, (size_t)x.bytes, r->record, (size_t)x.size, x.at, n, &used, &f->error))
        return f->error.status;
    if (*n != x.bytes || used != x.size) return bsf_wrong_tree(f, &r->records);
    return bsf_load(r->record + used - 8, 8) == x.seal ? BITSNAP_OK : bsf_wrong_seal(f, x.at);
}

/* Returns 1 if the file holds its own text. */
static int bsf_has_text(const bitsnap_file *f)
{
    return f->kind == BITSNAP_SOURCE_SAFETENSORS || (f->kind == BITSNAP_SOURCE_DELTA && !(f->reader->start.flags & BITSNAP_BASES_SAME_TEXT));
}

BITSNAP_API bitsnap_status bitsnap_file_text(bitsnap_file *f, const char **text)
{
    bsf_reader *r = f->reader;
    const size_t size = (size_t)f->text_size;
    bitsnap_status status = BITSNAP_OK;
    uint64_t number;
    size_t done = 0, n;
    char *p;
    *text = NULL;
    memset(&f->error, 0, sizeof f->error);
    if (f->kind == BITSNAP_SOURCE_RAW) return bsf_fail_file(f, BITSNAP_E_MISMATCH, 0, 9, "raw elements have no header text");
    if (bsf_lacks_base(f)) return bsf_no_base(f);
    if (!r->text && f->kind == BITSNAP_SOURCE_DELTA && !bsf_has_text(f)) {
        if (bitsnap_file_text(f->bases->file, text)) return bsf_base_failed(f, 0);
        return BITSNAP_OK;
    }
    if (!r->text) {
        p = (char *)bsf_resize(r->memory, NULL, size);
        if (!p) return bsf_no_memory(&f->error);
        if (f->kind == BITSNAP_SOURCE_PLAIN) status = bsf_get(f, 8, p, size);
        for (number = 0; f->kind != BITSNAP_SOURCE_PLAIN && done < size && !status; number++, done += n)
            status = bsf_get_piece(f, number, done, p + done, size - done, &n);
        if (!status && f->kind == BITSNAP_SOURCE_DELTA && bitsnap_hash(p, size) != r->start.text_id)
            status = bsf_fail_file(f, BITSNAP_E_CHECK, 16, r->start.end, "it is not the text that was coded");
        if (status) {
            bsf_release(r->memory, p);
            return status;
        }
        r->text = p;
    }
    *text = r->text;
    return BITSNAP_OK;
}

static bitsnap_status bsf_wrong_data(bitsnap_file *f)
{
    return bsf_fail_file(f, BITSNAP_E_MISMATCH, 0, f->reader->data, "the data has another size than the header text says");
}

BITSNAP_API bitsnap_status bitsnap_file_tensors(bitsnap_file *f, const bitsnap_safetensors **tensors)
{
    bsf_reader *r = f->reader;
    const char *text;
    bitsnap_status status = bitsnap_file_text(f, &text);
    *tensors = NULL;
    if (status) return status;
    if (!r->by_name) {
        bitsnap_safetensors_free(&r->model);
        status = bitsnap_safetensors_parse(&r->model, text, (size_t)f->text_size, r->memory, &f->error);
        if (status) return status == BITSNAP_E_CORRUPT ? f->error.status = BITSNAP_E_MISMATCH : status;
        if (r->model.data_size != f->data_size)
            return bsf_wrong_data(f);
        r->by_name = bitsnap_tensors_by_name(&r->model);
        if (!r->by_name) return bsf_no_memory(&f->error);
    }
    *tensors = &r->model;
    return BITSNAP_OK;
}

/* The text from byte `at` on, at least up to its end or `wanted` bytes: as a part that is kept. */
static bitsnap_status bsf_get_part(bitsnap_file *f, uint64_t at, uint64_t wanted)
{
    bsf_reader *r = f->reader;
    bitsnap_status status = BITSNAP_OK;
    size_t n;
    if (!r->part_size || at < r->part_begin || at >= r->part_begin + r->part_size) {
        bsf_extent x;
        r->part_size = 0;
        status = bsf_seek(f, &r->records, 8 + at, &r->part_record);
        if (!status) status = bsf_record(f, r->part_record, &x);
        if (status) return status;
        if (x.key < 8 || x.key > 8 + at) return bsf_wrong_tree(f, &r->records);
        r->part_begin = x.key - 8;
    }
    while (!status && r->part_begin + r->part_size < f->text_size && r->part_size < wanted) {
        const uint64_t done = r->part_begin + r->part_size;
        const uint64_t left = f->text_size - done;
        if (r->part_room - r->part_size < BITSNAP_TEXT_PIECE) {
            const size_t room = 2 * r->part_room + BITSNAP_TEXT_PIECE;
            char *more = (char *)bsf_resize(r->memory, r->part, room);
            if (!more) return bsf_no_memory(&f->error);
            r->part = more;
            r->part_room = room;
        }
        status = bsf_get_piece(f, r->part_record, done, r->part + r->part_size,
                               left < BITSNAP_TEXT_PIECE ? (size_t)left : BITSNAP_TEXT_PIECE, &n);
        if (status) break;
        r->part_record++;
        r->part_size += n;
    }
    return status;
}

/* The tensor whose name begins at byte `place` of the text, and the byte after it. */
static bitsnap_status bsf_get_tensor(bitsnap_file *f, uint64_t place, bitsnap_tensor *t, uint64_t *behind)
{
    bsf_reader *r = f->reader;
    size_t wanted = 1, begin;
    if (place >= f->text_size) return bsf_wrong_tree(f, &r->names);
    for (;;) {
        bsf_parser p;
        bitsnap_status status = bsf_get_part(f, place, wanted);
        if (status) return status;
        begin = (size_t)(place - r->part_begin);
        if (begin >= r->part_size) return bsf_wrong_tree(f, &r->names);
        bitsnap_safetensors_free(&r->one);
        r->one.memory = r->memory;
        memset(&p, 0, sizeof p);
        p.text = r->part;
        p.at = r->part + begin;
        p.end = r->part + r->part_size;
        p.s = &r->one;
        p.error = &f->error;
        memset(t, 0, sizeof *t);
        if (!bsf_parse_string(&p, &t->name, "a name expected") && !bsf_expect(&p, ':', "':' expected") && !bsf_parse_tensor(&p, t)) {
            t->type = bitsnap_element_type_find(t->dtype.at, t->dtype.size, 0);
            t->place = (size_t)place;
            *behind = place + (uint64_t)(p.at - (r->part + begin));
            if (bsf_check_size(&p, t) || (t->end > f->data_size && bsf_fail_tensor(&p, t, "its bytes lie behind the end of the data")))
                return f->error.status;
            return BITSNAP_OK;
        }
        if (f->error.status == BITSNAP_E_WORKSPACE) return f->error.status;
        if (r->part_begin + r->part_size == f->text_size) return bsf_wrong_tree(f, &r->names);
        wanted = 2 * r->part_size; /* it goes on in the next piece; in a few of them, in linear time */
    }
}

BITSNAP_API bitsnap_status bitsnap_file_find(bitsnap_file *f, const char *name, size_t size, bitsnap_tensor *t)
{
    bsf_reader *r = f->reader;
    const uint64_t hash = bitsnap_hash(name, size) & UINT32_MAX;
    bitsnap_slice wanted;
    uint64_t number = UINT64_MAX, behind = 0;
    bitsnap_status status = BITSNAP_OK;
    wanted.at = name;
    wanted.size = size;
    memset(t, 0, sizeof *t);
    memset(&f->error, 0, sizeof f->error);
    if (bsf_lacks_base(f)) return bsf_no_base(f);
    if (f->kind == BITSNAP_SOURCE_DELTA && !bsf_has_text(f)) {
        if (bitsnap_file_find(f->bases->file, name, size, t)) return bsf_base_failed(f, 0);
        return t->end <= f->data_size ? BITSNAP_OK : bsf_wrong_data(f);
    }
    if (r->by_name || !r->names.count) {
        const bitsnap_safetensors *all;
        const bitsnap_tensor *found;
        status = bitsnap_file_tensors(f, &all);
        if (status) return status;
        found = bitsnap_tensor_find(r->by_name, all->count, wanted);
        if (found) *t = *found;
        return found ? BITSNAP_OK : bsf_fail_file(f, BITSNAP_E_MISMATCH, 0, 0, "no tensor of that name");
    }
    if (hash) status = bsf_seek(f, &r->names, (hash << 32) - 1, &number);
    for (number++; number < r->names.count && !status; number++) {
        uint64_t key;
        status = bsf_page(f, &r->names, number, 0);
        if (status) break;
        key = bsf_key(&r->names, (size_t)(number % BSF_FAN));
        if (key >> 32 != hash) break;
        /* names of one hash, which an attacker can make, are looked at one by one: as these are apart, in linear time */
        if ((key & UINT32_MAX) < behind) status = bsf_wrong_tree(f, &r->names);
        if (!status) status = bsf_get_tensor(f, key & UINT32_MAX, t, &behind);
        if (!status && (bitsnap_hash(t->name.at, t->name.size) & UINT32_MAX) != hash) status = bsf_wrong_tree(f, &r->names);
        if (!status && !bitsnap_slice_compare(t->name, wanted)) return BITSNAP_OK;
    }
    memset(t, 0, sizeof *t);
    return status ? status : bsf_fail_file(f, BITSNAP_E_MISMATCH, 0, 0, "no tensor of that name");
}

/* ---- frames ---- */

/* Reads bytes of the open frame for the codec. Its first ones are here. The seal is taken from its last ones as the codec has checked them. */
static int bsf_read_frame(void *context, uint64_t offset, void *to, size_t size)
{
    bsf_reader *r = (bsf_reader *)context;
    if (offset < r->first_size && size <= r->first_size - offset) memcpy(to, r->first + offset, size);
    else if (r->source.read(r->source.context, r->open.at + offset, to, size)) return 1;
    if (size >= sizeof r->last && offset + size == r->open.size) memcpy(r->last, (uint8_t *)to + size - sizeof r->last, sizeof r->last);
    return 0;
}

/* Returns 1 if frames of a file may have a base. */
static int bsf_may_place(const bitsnap_file_start *s) { return s->kind == BITSNAP_SOURCE_DELTA || s->incompatible & BITSNAP_FILE_REFERENCES; }

/* Adds to what the codec has found of a frame which base it has. Where that is earlier data of the file, the file is wrong, not a base that
 * somebody gave. */
static bitsnap_status bsf_about_base(bitsnap_file_error *error, const bitsnap_file_frame *frame)
{
    if (error->status != BITSNAP_E_BASE) return error->status;
    error->base = frame->base;
    if (frame->base != BITSNAP_BASE_ITSELF) return error->status;
    error->base = 0;
    error->rule = 41;
    error->message = "the elements that it refers to are not those that it was coded against";
    return error->status = BITSNAP_E_CORRUPT;
}

/* Compares the base of a frame with what there is: its number with that of the bases, its bytes with theirs. `at`: where the frame begins in
 * the file. */
static bitsnap_status bsf_check_base(const bitsnap_file_frame *frame, const bitsnap_file_base *bases, uint64_t at, bitsnap_file_error *error)
{
    const bitsnap_info *info = &frame->info;
    const int itself = frame->base == BITSNAP_BASE_ITSELF;
    const uint64_t end = itself ? frame->begin : bases[frame->base].data_size;
    if (itself && info->count < BITSNAP_REFERENCE_LEAST)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 40, at + 8, "a frame that refers to earlier data, with fewer than 4096 elements");
    if (frame->base_begin <= end && info->count <= (end - frame->base_begin) / bitsnap_width(info->base_dtype)) return BITSNAP_OK;
    return itself ? bsf_fail(error, BITSNAP_E_CORRUPT, 37, at, "a frame that refers to data that do not lie before it")
                  : bsf_fail(error, BITSNAP_E_CORRUPT, 20, at, "a place beyond the end of the base");
}

/* Reads a place or kept record: what both have, 2 bytes and 6. `at`: where it begins in the file. */
static bitsnap_status bsf_read_mark(const uint8_t *p, uint64_t at, unsigned *number, uint64_t *byte, bitsnap_file_error *error)
{
    if ((uint32_t)bitsnap_hash(p, 12) != bsf_load(p + 12, 4))
        return bsf_fail(error, BITSNAP_E_CHECK, 9, at, "the check of a place or kept record does not match");
    *number = (unsigned)bsf_load(p + 4, 2);
    *byte = bsf_load(p + 6, 6);
    return BITSNAP_OK;
}

/* Takes the place or kept record at p into the frame that follows it. */
static bitsnap_status bsf_take_mark(bitsnap_file_frame *frame, const bitsnap_file_start *start, const uint8_t *p, uint64_t at,
                                    bitsnap_file_error *error)
{
    const int kept = !memcmp(p, BITSNAP_KEPT_MAGIC, 4);
    unsigned number;
    uint64_t byte;
    bitsnap_status status = bsf_read_mark(p, at, &number, &byte, error);
    if (status) return status;
    if ((kept || number == BITSNAP_BASE_ITSELF) && !(start->incompatible & BITSNAP_FILE_REFERENCES))
        return bsf_fail(error, BITSNAP_E_CORRUPT, 36, at, "a reference to earlier data in a file that announces none");
    if (kept && (number || !byte)) return bsf_fail(error, BITSNAP_E_CORRUPT, 42, at + 4, "an impossible kept record");
    if (kept) frame->referred = byte;
    if (kept) return BITSNAP_OK;
    if (number != BITSNAP_BASE_ITSELF && number >= start->base_count)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 19, at + 4, "a base that is not there");
    if (number == BITSNAP_BASE_ITSELF && frame->referred)
        return bsf_fail(error, BITSNAP_E_CORRUPT, 38, at + 4, "a frame that is referred to and refers itself");
    frame->base = number;
    frame->base_begin = byte;
    return BITSNAP_OK;
}

/* Handles an error of the codec in the open frame. If the workspace is too small, enlarges it and returns 0: the caller tries again. */
static bitsnap_status bsf_frame_failed(bitsnap_file *f)
{
    bsf_reader *r = f->reader;
    const bitsnap_error *e = &f->b.error;
    if (e->status == BITSNAP_E_WORKSPACE && e->needed > f->b.workspace_size && e->needed <= SIZE_MAX) {
        const size_t size = (size_t)e->needed;
        bsf_release(r->memory, f->b.workspace);
        f->b.workspace = bsf_resize(r->memory, NULL, size);
        f->b.workspace_size = f->b.workspace ? size : 0;
        return f->b.workspace ? BITSNAP_OK : bsf_no_memory(&f->error);
    }
    (void)bsf_fail_codec(&f->error, &f->b, 0, r->open.at);
    return bsf_about_base(&f->error, &r->open);
}

/* Opens the file once more, for what frames of it refer to. */
static bitsnap_status bsf_open_itself(bitsnap_file *f)
{
    bsf_reader *r = f->reader;
    bitsnap_file **bases = NULL;
    const size_t count = bsf_lacks_base(f) ? 0 : f->base_count;
    size_t i;
    bitsnap_status status;
    if (!r->itself) {
        r->itself = (bitsnap_file *)bsf_resize(r->memory, NULL, sizeof *r->itself);
        if (!r->itself) return bsf_no_memory(&f->error);
        memset(r->itself, 0, sizeof *r->itself);
    }
    if (!r->itself->reader) {
        if (count) bases = (bitsnap_file **)bsf_resize(r->memory, NULL, count * sizeof *bases);
        if (count && !bases) return bsf_no_memory(&f->error);
        for (i = 0; i < count; i++) bases[i] = f->bases[i].file;
        status = bitsnap_file_open(r->itself, &r->source, bases, count, r->memory);
        bsf_release(r->memory, (void *)bases);
        if (!status && r->itself->check != f->check)
            status = bsf_fail(&r->itself->error, BITSNAP_E_CHECK, 6, 0, "the file has changed since it was opened");
        if (status) {
            f->error = r->itself->error;
            bitsnap_file_close(r->itself);
            return status;
        }
        r->itself->reader->inner = 1;
    }
    r->itself->b.kernels = f->b.kernels;
    r->itself->b.flags = f->b.flags;
    r->itself->b.run = f->b.run;
    r->itself->b.run_context = f->b.run_context;
    r->itself->b.workers = f->b.workers;
    return BITSNAP_OK;
}

/* Finds where the frame of a record begins: after ancillary records, and the place of its base, if it has one (*placed). Its first bytes are
 * then at r->first. */
static bitsnap_status bsf_open_record(bitsnap_file *f, uint64_t number, bsf_extent *x, int *placed)
{
    bsf_reader *r = f->reader;
    size_t n;
    int passed;
    bitsnap_status status = bsf_record_extent(f, number, x);
    *placed = 0;
    if (!status && x->key < r->data) status = bsf_wrong_tree(f, &r->records);
    if (status) return status;
    for (passed = 1, n = 0; !status && passed;) {
        n = x->size < sizeof r->first ? (size_t)x->size : sizeof r->first;
        status = bsf_get(f, x->at, r->first, n);
        if (!status) status = bsf_pass_over(f, x, r->first, n, &passed);
    }
    if (status) return status;
    for (passed = 0; passed < 2 && !*placed && n >= BITSNAP_PLACE_SIZE; passed++) {
        const int place = bsf_may_place(&r->start) && !memcmp(r->first, BITSNAP_PLACE_MAGIC, 4);
        if (!place && (passed || memcmp(r->first, BITSNAP_KEPT_MAGIC, 4))) break;
        status = bsf_take_mark(&r->open, &r->start, r->first, x->at, &f->error);
        if (status) return status;
        *placed = place;
        x->at += BITSNAP_PLACE_SIZE;
        x->size -= BITSNAP_PLACE_SIZE;
        n -= BITSNAP_PLACE_SIZE;
        memmove(r->first, r->first + BITSNAP_PLACE_SIZE, n);
    }
    if (n < 4 || memcmp(r->first, BITSNAP_FRAME_MAGIC, 4)) return bsf_corrupt(f, 10, x->at, "no frame where the tree of records has one");
    r->first_size = n;
    return BITSNAP_OK;
}

/* Finds the seal of the open frame (docs/FORMAT.md, 8.3), which has checks. */
static bitsnap_status bsf_seal(bitsnap_file *f, uint64_t *seal)
{
    bsf_reader *r = f->reader;
    const bitsnap_info *info = &r->open.info;
    const uint64_t at = info->header_size + 4; /* of the check of the first block */
    uint8_t bytes[8];
    bitsnap_status status = BITSNAP_OK;
    *seal = info->header_check;
    if (bsf_has_footer(r->first, info->blocks)) {
        const uint8_t *last = r->source.data ? (const uint8_t *)r->source.data + r->open.at + r->open.size - sizeof r->last : r->last;
        *seal = bsf_load(last, 8);
    } else if (info->blocks) {
        if (at + 8 <= r->first_size) memcpy(bytes, r->first + at, 8);
        else status = bsf_get(f, r->open.at + at, bytes, 8);
        *seal = status ? 0 : bsf_load(bytes, 8);
    }
    return status;
}

/* Compares the open frame with what the file says of it. */
static bitsnap_status bsf_check_open(bitsnap_file *f, const bsf_extent *x, int placed)
{
    bsf_reader *r = f->reader;
    const bitsnap_info *info = &r->open.info;
    const uint64_t at = x->at;
    bitsnap_status status;
    if (!info->checks) return bsf_corrupt(f, 30, at, "a frame without checks");
    if (info->has_base != placed)
        return bsf_corrupt(f, 19, at, placed ? "a place in the base, but a frame without one" : "a frame with a base that has no place");
    if (info->elements_size != x->bytes) return bsf_corrupt(f, 22, at, "a frame of another size than the tree of records says");
    if ((info->bins | info->clusters) && !f->quantized)
        return bsf_corrupt(f, 21, at, "a quantized frame in a file that announces none");
    status = placed ? bsf_check_base(&r->open, f->bases, at, &f->error) : BITSNAP_OK;
    if (!status && r->open.referred && (!info->count || r->open.referred < r->open.begin + info->elements_size))
        status = bsf_corrupt(f, 42, at, "an impossible kept record");
    if (!status && placed && r->open.base == BITSNAP_BASE_ITSELF && r->inner)
        status = bsf_corrupt(f, 38, at, "a frame that is referred to and refers itself");
    if (!status) status = bsf_seal(f, &r->open.seal);
    if (status) return status;
    return r->open.seal == x->seal ? BITSNAP_OK : bsf_wrong_seal(f, at);
}

/* Opens the frame of the record of this number. */
static bitsnap_status bsf_open_frame(bitsnap_file *f, uint64_t number)
{
    bsf_reader *r = f->reader;
    bitsnap_info *info = &r->open.info;
    bsf_extent x;
    int placed;
    bitsnap_status status;
    if (r->frame == number) return BITSNAP_OK;
    r->frame = UINT64_MAX;
    r->block_count = 0;
    memset(&r->open, 0, sizeof r->open);
    status = bsf_open_record(f, number, &x, &placed);
    if (status) return status;
    r->open.at = x.at;
    r->open.size = x.size;
    r->open.begin = x.key - r->data;
    memset(&r->frame_source, 0, sizeof r->frame_source);
    r->frame_source.size = x.size;
    r->frame_source.context = r;
    if (r->source.data) r->frame_source.data = (const uint8_t *)r->source.data + x.at;
    else r->frame_source.read = bsf_read_frame;
    memset(&f->b.base, 0, sizeof f->b.base);
    while (bitsnap_index_open(&f->b, &r->index, info, &r->frame_source)) {
        status = bsf_frame_failed(f);
        if (status) return status;
    }
    status = bsf_check_open(f, &x, placed);
    if (status) return status;
    if (placed && r->open.base == BITSNAP_BASE_ITSELF) {
        status = bsf_open_itself(f);
        if (status) return status;
        bsf_window_begin_at(&r->window, r->itself, r->open.base, r->open.base_begin);
    } else if (placed) {
        bsf_window_begin_at(&r->window, f->bases[r->open.base].file, r->open.base, r->open.base_begin);
    }
    r->window.base.count = info->count;
    r->window.base.dtype = info->base_dtype;
    r->frame = number;
    return BITSNAP_OK;
}

/* What the open frame needs of its base to be decoded from this element on. */
static bitsnap_status bsf_hold_base(bitsnap_file *f, uint64_t first)
{
    bsf_reader *r = f->reader;
    bitsnap_status status;
    if (!r->open.info.has_base) return BITSNAP_OK;
    if (!r->window.file) return bsf_no_base(f);
    status = bsf_window_hold(&r->window, first, r->open.info.block_log2, f->b.workers, &f->error);
    if (!status) f->b.base = r->window.base;
    return status;
}

/* Decodes elements of the open frame. The first one must begin a block. */
static bitsnap_status bsf_decode(bitsnap_file *f, uint64_t first, uint64_t count, void *to)
{
    bsf_reader *r = f->reader;
    const unsigned width = r->open.info.width;
    uint8_t *p = (uint8_t *)to;
    bitsnap_status status = BITSNAP_OK;
    while (count && !status) {
        const bitsnap_base *b = &f->b.base;
        uint64_t n = count;
        status = bsf_hold_base(f, first);
        if (r->open.info.has_base && n > b->first + b->held - first) n = b->first + b->held - first;
        while (!status && bitsnap_index_decode(&f->b, &r->index, p, first, n)) status = bsf_frame_failed(f);
        if (!status) bsf_swap_elements(p, (size_t)n * width, width);
        p += (size_t)n * width;
        first += n;
        count -= n;
    }
    memset(&f->b.base, 0, sizeof f->b.base);
    return status;
}

/* Reads bytes of the open frame's elements, at most `size`, and sets *done to their number. Whole blocks go to their place. One block that is needed in part is kept. */
static bitsnap_status bsf_read_elements(bitsnap_file *f, uint64_t from, uint8_t *to, size_t size, size_t *done)
{
    bsf_reader *r = f->reader;
    const bitsnap_info *info = &r->open.info;
    const unsigned width = info->width;
    const uint64_t each = (uint64_t)1 << info->block_log2, first = from / width & ~(each - 1);
    const uint64_t count = info->count - first < each ? info->count - first : each; /* elements of the block */
    size_t at;
    bitsnap_status status;
    if (from == first * width && size >= count * width) {
        uint64_t n = size / width;
        n = n < info->count - first ? n & ~(each - 1) : info->count - first;
        *done = (size_t)n * width;
        return bsf_decode(f, first, n, to);
    }
    if (!r->block_count || r->block_first != first) {
        r->block_count = 0;
        status = bsf_room(f, &r->block, &r->block_room, (size_t)count * width);
        if (!status) status = bsf_decode(f, first, count, r->block);
        if (status) return status;
        r->block_first = first;
        r->block_count = (size_t)count;
    }
    at = (size_t)(from - first * width);
    *done = r->block_count * width - at < size ? r->block_count * width - at : size;
    memcpy(to, r->block + at, *done);
    return BITSNAP_OK;
}

/* Opens the frame with this byte of the data, which there is. */
static bitsnap_status bsf_open_frame_of(bitsnap_file *f, uint64_t offset)
{
    bsf_reader *r = f->reader;
    uint64_t number;
    bitsnap_status status;
    if (r->frame != UINT64_MAX && offset >= r->open.begin && offset - r->open.begin < r->open.info.elements_size) return BITSNAP_OK;
    status = bsf_seek(f, &r->records, r->data + offset, &number);
    if (!status && number == UINT64_MAX) status = bsf_wrong_tree(f, &r->records);
    if (!status) status = bsf_open_frame(f, number);
    if (!status && offset - r->open.begin >= r->open.info.elements_size) status = bsf_wrong_tree(f, &r->records);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_read_data(bitsnap_file *f, uint64_t offset, void *to, size_t size)
{
    bsf_reader *r = f->reader;
    uint8_t *p = (uint8_t *)to;
    bitsnap_status status = BITSNAP_OK;
    memset(&f->error, 0, sizeof f->error);
    if (offset > f->data_size || size > f->data_size - offset)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "bytes behind the end of the data");
    if (f->kind == BITSNAP_SOURCE_PLAIN) return bsf_get(f, r->data + offset, to, size);
    while (size && !status) {
        size_t n = 0;
        status = bsf_open_frame_of(f, offset);
        if (!status) status = bsf_read_elements(f, offset - r->open.begin, p, size, &n);
        p += n;
        offset += n;
        size -= n;
    }
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_read(bitsnap_file *f, const bitsnap_tensor *t, void *to, uint64_t first, uint64_t count)
{
    const unsigned bits = t->type ? t->type->bits : 8;
    const uint64_t bytes = t->end - t->begin, elements = t->type ? t->elements : bytes, begin = first / 8 * bits + first % 8 * bits / 8;
    bitsnap_status status;
    memset(&f->error, 0, sizeof f->error);
    if (first > elements || count > elements - first || first % 8 * bits % 8 || count % 8 * bits % 8)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "elements that the tensor does not have, or that do not fill whole bytes");
    if (count / 8 * bits + count % 8 * bits / 8 > SIZE_MAX)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "more elements than fit into memory");
    count = count / 8 * bits + count % 8 * bits / 8;
    if (t->end > f->data_size || t->begin > t->end || begin > bytes || count > bytes - begin)
        return bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "a tensor of another file");
    status = bitsnap_file_read_data(f, t->begin + begin, to, (size_t)count);
    if (!status) bsf_swap_elements(to, (size_t)count, bitsnap_width(bitsnap_tensor_codec(t)));
    else f->error.tensor = t->name;
    return status;
}

/* The damaged tensor that the last call met when it read these bytes of the data; no characters if it is not known. */
static bitsnap_slice bsf_damaged(bitsnap_file *f, uint64_t begin, uint64_t end)
{
    const bitsnap_slice none = { NULL, 0 };
    const bitsnap_status status = f->error.status;
    const uint64_t byte = f->reader->open.begin + f->b.error.element * f->reader->open.info.width; /* of a block, which may begin before */
    const bitsnap_safetensors *model;
    size_t i;
    if ((status != BITSNAP_E_CHECK && status != BITSNAP_E_CORRUPT) || bitsnap_file_tensors(f, &model)) return none;
    for (i = 0; i < model->count && model->tensors[i].end <= (byte > begin && byte < end ? byte : begin); i++) continue;
    return i < model->count ? model->tensors[i].name : none;
}

/* The number of the record of the first frame. */
static bitsnap_status bsf_first_frame(bitsnap_file *f, uint64_t *number)
{
    bitsnap_status status;
    memset(&f->error, 0, sizeof f->error);
    *number = 0;
    if (!bsf_has_text(f)) return BITSNAP_OK;
    status = bsf_seek(f, &f->reader->records, f->reader->data - 1, number);
    ++*number;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_frames(bitsnap_file *f, uint64_t *count)
{
    uint64_t first;
    const bitsnap_status status = bsf_first_frame(f, &first);
    *count = status ? 0 : f->reader->records.count - first;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_frame_at(bitsnap_file *f, uint64_t number, bitsnap_file_frame *frame)
{
    uint64_t first;
    bitsnap_status status = bsf_first_frame(f, &first);
    memset(frame, 0, sizeof *frame);
    if (!status && number >= f->reader->records.count - first)
        status = bsf_fail_file(f, BITSNAP_E_ARGUMENT, 0, 0, "a frame that is not there");
    if (!status) status = bsf_open_frame(f, first + number);
    if (!status) *frame = f->reader->open;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_frame_of(bitsnap_file *f, uint64_t offset, bitsnap_file_frame *frame)
{
    bitsnap_status status;
    memset(frame, 0, sizeof *frame);
    memset(&f->error, 0, sizeof f->error);
    if (f->kind == BITSNAP_SOURCE_PLAIN || offset >= f->data_size)
        return bsf_fail_file(f, BITSNAP_E_MISMATCH, 0, 0, "no frame has this byte of the data");
    status = bsf_open_frame_of(f, offset);
    if (!status) *frame = f->reader->open;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_content_id(bitsnap_file *f, uint64_t offset, uint64_t count, bitsnap_dtype dtype, uint64_t *id)
{
    enum { LEAF = 1 << 16, LEAVES = 64 }; /* docs/FORMAT.md, section 7 */
    const bitsnap_memory *memory = f->reader->memory;
    const size_t width = bitsnap_width(dtype), leaf = LEAF * width;
    const uint64_t most = count < LEAVES * LEAF ? count : LEAVES * LEAF, leaves = count / LEAF + (count % LEAF != 0);
    uint8_t *hashes = NULL, *elements = NULL;
    size_t n = 0, k;
    bitsnap_file_frame frame;
    bitsnap_status status = BITSNAP_OK;
    if (!bitsnap_file_frame_of(f, offset, &frame) && frame.begin == offset && frame.info.count == count && frame.info.dtype == dtype &&
        frame.info.has_content_id && frame.info.content_id) {
        *id = frame.info.content_id;
        return BITSNAP_OK;
    }
    if (leaves < SIZE_MAX / 8 - 2) hashes = (uint8_t *)bsf_resize(memory, NULL, (size_t)leaves * 8 + 16);
    elements = (uint8_t *)bsf_resize(memory, NULL, (size_t)most * width);
    if (!hashes || !elements) status = bsf_no_memory(&f->error);
    while (!status && n < leaves) {
        const uint64_t done = (uint64_t)n * LEAF;
        const size_t size = (size_t)(count - done < most ? count - done : most) * width;
        status = bitsnap_file_read_data(f, offset + done * width, elements, size);
        for (k = 0; !status && k < size; k += leaf) bsf_store(hashes + 8 * n++, bitsnap_hash(elements + k, size - k < leaf ? size - k : leaf), 8);
    }
    if (!status) {
        bsf_store(hashes + 8 * n, dtype, 8);
        bsf_store(hashes + 8 * n + 8, count, 8);
        *id = bitsnap_hash(hashes, n * 8 + 16);
    }
    bsf_release(memory, hashes);
    bsf_release(memory, elements);
    return status;
}

/* ================================================================================= IN ORDER */

enum { BSF_FRAME_HEADER = 24, BSF_CERTIFICATE = 44 };
enum { BSF_CONST = 1, BSF_BYTES = 3, BSF_SAME = 4, BSF_CLASSED = 5, BSF_SCALED = 6, BSF_QUANTIZED = 7, BSF_SPARSE = 8, BSF_ZIGZAG = 9,
       BSF_PARTED = 10, BSF_PATCHED = 11 }; /* forms */

enum { BSF_AT_HEADER, BSF_DECODED, BSF_PASSED };

typedef struct bsf_stream_reader {
    bitsnap_input input;
    const bitsnap_memory *memory;
    uint8_t *bytes;           /* the next bytes of the file: those from `at` to `end` */
    size_t capacity, at, end;
    int ended;                /* the input has no more */
    bsf_records records;
    uint64_t record_begin;    /* byte of the file where the record of the frame begins, with ancillary ones before it */
    int met_quantized, met_reference; /* a quantized frame has come, or one that refers to earlier data */
    int stage;                /* of the frame: BSF_AT_HEADER, ... */
    int footer;               /* it has one */
    uint64_t seal;            /* of it, as far as it has been read */
    uint64_t passed, blocks;  /* its elements so far in whole blocks; blocks that have been passed */
    uint64_t to_pass;         /* bytes of the header, or of the block that has been found */
    bsf_window window;        /* of the base of the frame */
    bsf_kept kept;            /* elements that later frames refer to */
    uint8_t *elements;        /* of one block that is only checked */
    size_t elements_room;
    void *workspace;          /* b's, where it comes from the memory */
    bitsnap_strong_hash strong; /* of the source so far, */
    uint64_t hashed;          /* and its bytes: fewer than there were if some have been passed over */
} bsf_stream_reader;

static const uint8_t *bsf_bytes(const bitsnap_file_stream *s) /* null before the first has been read */
{
    return s->reader->bytes ? s->reader->bytes + s->reader->at : NULL;
}
static size_t bsf_available(const bitsnap_file_stream *s) { return s->reader->end - s->reader->at; }

static bitsnap_status bsf_stream_failed(bitsnap_file_stream *s, unsigned rule, uint64_t at, const char *message)
{
    return bsf_fail(&s->error, rule == 9 || rule == 24 || rule == 35 || rule == 31 ? BITSNAP_E_CHECK : BITSNAP_E_CORRUPT, rule, at, message);
}

static bitsnap_status bsf_truncated(bitsnap_file_stream *s)
{
    return bsf_fail(&s->error, BITSNAP_E_TRUNCATED, 4, s->offset + bsf_available(s), "truncated: it ends before its end record");
}

/* Reads ahead until n bytes are here, or all that are left. The buffer grows to 16 MiB at once, and then no faster than bytes arrive: n may
 * come from the file itself. */
static bitsnap_status bsf_fill(bitsnap_file_stream *s, size_t n)
{
    const size_t modest = (size_t)1 << 24;
    bsf_stream_reader *r = s->reader;
    while (bsf_available(s) < n && !r->ended) {
        size_t got, room;
        if (r->at && r->capacity - r->at < n) {
            memmove(r->bytes, r->bytes + r->at, r->end - r->at);
            r->end -= r->at;
            r->at = 0;
        }
        if (r->end == r->capacity) {
            size_t capacity = r->capacity < modest ? modest : 2 * r->capacity;
            uint8_t *bytes;
            if (capacity > n) capacity = n;
            bytes = (uint8_t *)bsf_resize(r->memory, r->bytes, capacity);
            if (!bytes) return bsf_no_memory(&s->error);
            r->bytes = bytes;
            r->capacity = capacity;
        }
        room = r->capacity - r->end;
        if (r->input.read(r->input.context, r->bytes + r->end, room, &got) || got > room)
            return bsf_fail(&s->error, BITSNAP_E_SOURCE, 0, s->offset + bsf_available(s), "the callback of the input failed");
        r->end += got;
        r->ended = got < room;
    }
    return BITSNAP_OK;
}

/* The next n bytes are here, or the file is truncated. */
static bitsnap_status bsf_want(bitsnap_file_stream *s, uint64_t n)
{
    bitsnap_status status = BITSNAP_OK;
    if (bsf_available(s) >= n) return BITSNAP_OK;
    if (n <= SIZE_MAX) status = bsf_fill(s, (size_t)n);
    return status ? status : bsf_available(s) < n ? bsf_truncated(s) : BITSNAP_OK;
}

static void bsf_consume(bitsnap_file_stream *s, size_t n)
{
    bsf_stream_reader *r = s->reader;
    r->at += n;
    s->offset += n;
    if (r->at == r->end) r->at = r->end = 0;
}

static bitsnap_status bsf_pass(bitsnap_file_stream *s, uint64_t n)
{
    enum { PIECE = 65536 };
    bsf_stream_reader *r = s->reader;
    while (n) {
        const uint64_t here = bsf_available(s) < n ? bsf_available(s) : n;
        uint64_t passed = 0;
        bitsnap_status status;
        bsf_consume(s, (size_t)here);
        n -= here;
        if (!n) return BITSNAP_OK;
        if (r->input.skip) {
            if (r->input.skip(r->input.context, n, &passed) || passed > n)
                return bsf_fail(&s->error, BITSNAP_E_SOURCE, 0, s->offset, "the callback of the input failed");
            s->offset += passed;
            return passed < n ? bsf_truncated(s) : BITSNAP_OK;
        }
        status = bsf_fill(s, n < PIECE ? (size_t)n : (size_t)PIECE);
        if (status) return status;
        if (!bsf_available(s)) return bsf_truncated(s);
    }
    return BITSNAP_OK;
}

/* Before a call: what the last one has found is done with. */
static void bsf_stream_ready(bitsnap_file_stream *s)
{
    memset(&s->error, 0, sizeof s->error);
    memset(&s->b->error, 0, sizeof s->b->error);
    s->blocks_size = 0;
}

/* ---- the start, and texts ---- */

BITSNAP_API bitsnap_status bitsnap_file_stream_begin(bitsnap_file_stream *s, bitsnap *b, const bitsnap_input *input, const bitsnap_memory *memory)
{
    bitsnap_status status;
    memset(s, 0, sizeof *s);
    s->b = b;
    s->reader = (bsf_stream_reader *)bsf_resize(memory, NULL, sizeof *s->reader);
    if (!s->reader) return bsf_no_memory(&s->error);
    memset(s->reader, 0, sizeof *s->reader);
    s->reader->input = *input;
    s->reader->memory = s->reader->window.memory = s->reader->kept.memory = memory;
    s->reader->kept.spill = &s->spill;
    s->kept_most = (uint64_t)1 << 28;
    bsf_stream_ready(s);
    while ((status = bitsnap_file_read_start(&s->start, bsf_bytes(s), bsf_available(s), memory, &s->error)) == BITSNAP_E_TRUNCATED) {
        status = bsf_want(s, s->error.wanted);
        if (status) break;
    }
    if (status) return status;
    bsf_consume(s, (size_t)s->start.end);
    s->source_size = s->start.kind == BITSNAP_SOURCE_RAW ? 0 : 8 + s->start.text_size;
    return BITSNAP_OK;
}

/* Passes over ancillary records, and checks them. At least 4 bytes of the next record are then here. */
static bitsnap_status bsf_pass_ancillary(bitsnap_file_stream *s)
{
    for (;;) {
        const uint64_t at = s->offset;
        const uint8_t *p;
        uint64_t whole, i;
        bitsnap_status status = bsf_want(s, 4);
        if (status || memcmp(bsf_bytes(s), BITSNAP_ANCILLARY_MAGIC, 4)) return status;
        status = bsf_want(s, BITSNAP_ANCILLARY_PREFIX);
        if (status) return status;
        whole = bsf_load(bsf_bytes(s) + 8, 8);
        if (whole > BITSNAP_ANCILLARY_MOST) return bsf_check_ancillary(bsf_bytes(s), at, &s->error);
        whole += BITSNAP_ANCILLARY_PREFIX;
        status = bsf_want(s, whole + 8);
        if (status) return status;
        p = bsf_bytes(s);
        if (bitsnap_hash(p, (size_t)whole) != bsf_load(p + whole, 8)) /* before the type: damage is no newer type */
            return bsf_stream_failed(s, 9, at, "the check of an ancillary record does not match");
        status = bsf_check_ancillary(p, at, &s->error);
        if (status) return status;
        for (i = BITSNAP_ANCILLARY_PREFIX; i < whole && !p[4]; i++)
            if (p[i]) return bsf_stream_failed(s, 33, at + i, "padding that is not 0");
        bsf_consume(s, whole + 8);
    }
}

/* Reads the records of a text of text_size bytes, as they are. `own`: they are of the source, and are noted. */
static bitsnap_status bsf_read_records(bitsnap_file_stream *s, uint64_t text_size, int own, uint8_t **coded, size_t *coded_size)
{
    uint64_t done = 0;
    size_t capacity = 0;
    bitsnap_status status = BITSNAP_OK;
    while (done < text_size) {
        const uint64_t at = s->offset;
        const uint8_t *p;
        uint64_t n;
        size_t whole;
        status = bsf_pass_ancillary(s);
        if (!status) status = bsf_want(s, BITSNAP_TEXT_PREFIX);
        if (status) return status;
        p = bsf_bytes(s);
        n = bsf_load(p + 4, 4);
        if (memcmp(p, BITSNAP_TEXT_MAGIC, 4)) return bsf_stream_failed(s, 10, s->offset, "no text record where there should be one");
        if (!n || n > BITSNAP_TEXT_PIECE || n > text_size - done || bsf_load(p + 8, 4) > BITSNAP_TEXT_CODED_MAX(n))
            return bsf_stream_failed(s, 11, s->offset + 4, "impossible size of a piece of a text");
        whole = BITSNAP_TEXT_PREFIX + (size_t)bsf_load(p + 8, 4) + 8;
        status = bsf_want(s, whole);
        if (status) return status;
        p = bsf_bytes(s);
        if (bitsnap_hash(p, whole - 8) != bsf_load(p + whole - 8, 8)) return bsf_stream_failed(s, 9, s->offset, "the check of a text does not match");
        if (own) status = bsf_records_add(&s->reader->records, 8 + done, at, bsf_load(p + whole - 8, 8), s->reader->memory, &s->error);
        if (!status) status = bsf_grow(s->reader->memory, coded, &capacity, *coded_size + whole, &s->error);
        if (status) return status;
        memcpy(*coded + *coded_size, p, whole);
        *coded_size += whole;
        done += n;
        bsf_consume(s, whole);
    }
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_file_stream_texts(bitsnap_file_stream *s)
{
    const bitsnap_file_start *start = &s->start;
    bitsnap_status status = BITSNAP_OK;
    bsf_stream_ready(s);
    if (start->flags & BITSNAP_BASES_WITH_TEXT) status = bsf_read_records(s, start->bases->text_size, 0, &s->base_coded, &s->base_coded_size);
    if (!status && start->kind != BITSNAP_SOURCE_RAW && !(start->flags & BITSNAP_BASES_SAME_TEXT))
        status = bsf_read_records(s, start->text_size, 1, &s->coded, &s->coded_size);
    return status;
}

/* ---- the end ---- */

/* Returns 1 if this byte of the end record is part of a seal in the tree of records. */
static int bsf_in_seal(const bitsnap_file_stream *s, size_t at)
{
    const size_t prefix = bsf_end_prefix(s->start.compatible);
    return at >= prefix && (at - prefix) / BITSNAP_RECORD_ENTRY < s->reader->records.count && (at - prefix) % BITSNAP_RECORD_ENTRY >= 12;
}

/* Adds elements, in native byte order, to the SHA-256 that the file has, and keeps them if later frames refer to them. */
static bitsnap_status bsf_note_elements(bitsnap_file_stream *s, void *elements, size_t size, unsigned width)
{
    const int hashed = (s->start.compatible & BITSNAP_FILE_SHA256) != 0;
    bitsnap_status status = BITSNAP_OK;
    if (!elements || (!hashed && !s->frame.referred)) return BITSNAP_OK;
    bsf_swap_elements(elements, size, width);
    if (hashed) {
        bitsnap_strong_hash_add(&s->reader->strong, s->b, elements, size);
        s->reader->hashed += size;
    }
    if (s->frame.referred) status = bsf_kept_add(&s->reader->kept, elements, size, &s->error);
    bsf_swap_elements(elements, size, width);
    return status;
}

/* Begins that hash with the text, as soon as the caller has given it. */
static void bsf_hash_text(bitsnap_file_stream *s)
{
    uint8_t size[8];
    if (s->reader->hashed || s->frames || !(s->start.compatible & BITSNAP_FILE_SHA256)) return;
    bitsnap_strong_hash_begin(&s->reader->strong);
    if (!s->text) return;
    bsf_store(size, s->start.text_size, 8);
    bitsnap_strong_hash_add(&s->reader->strong, s->b, size, 8);
    bitsnap_strong_hash_add(&s->reader->strong, s->b, s->text, (size_t)s->start.text_size);
    s->reader->hashed = 8 + s->start.text_size;
}

/* The SHA-256 of the end record at p, if the source was read whole. */
static bitsnap_status bsf_check_sha256(bitsnap_file_stream *s, const uint8_t *p)
{
    uint8_t digest[BITSNAP_SHA256_SIZE];
    if (!(s->start.compatible & BITSNAP_FILE_SHA256)) return BITSNAP_OK;
    memcpy(s->sha256, p + BITSNAP_END_PREFIX, sizeof s->sha256);
    if (s->reader->hashed != s->source_size) return BITSNAP_OK;
    bitsnap_strong_hash_end(&s->reader->strong, digest);
    if (memcmp(digest, s->sha256, sizeof digest))
        return bsf_stream_failed(s, 35, s->offset + BITSNAP_END_PREFIX, "the SHA-256 is not that of what the file holds");
    s->sha256_checked = 1;
    return BITSNAP_OK;
}

/* Makes the end record as it should be, with `names` names. If the text is not known, names are taken from the record itself, which is then whole
 * in the buffer. */
static bitsnap_status bsf_expect_end(bitsnap_file_stream *s, size_t names, uint8_t **record, size_t *size)
{
    const bsf_stream_reader *r = s->reader;
    const uint64_t records = bitsnap_tree_size(r->records.count, BITSNAP_RECORD_ENTRY);
    const size_t prefix = bsf_end_prefix(s->start.compatible);
    const uint64_t whole = prefix + records + bitsnap_tree_size(names, BITSNAP_NAME_ENTRY) + BITSNAP_END_SUFFIX;
    bitsnap_file_end end;
    uint8_t *entries = NULL;
    size_t count = 0;
    bitsnap_status status = BITSNAP_OK;
    if (names && s->text) {
        status = s->model ? bitsnap_tree_tensors(&entries, &count, s->model, r->memory, &s->error)
                          : bitsnap_tree_names(&entries, &count, s->text, (size_t)s->start.text_size, r->memory, &s->error);
        if (!status && count != names)
            status = bsf_stream_failed(s, 26, s->offset + 4, count ? "the number of names is another than that of the tensors"
                                                                   : "names, but the text has none");
    }
    if (!status) status = bsf_want(s, whole);
    if (!status) {
        end.records = r->records.entries;
        end.record_count = r->records.count;
        end.names = entries ? entries : bsf_bytes(s) + prefix + records;
        end.name_count = names;
        end.source_size = s->source_size;
        end.file_check = s->start.check;
        end.records_end = r->record_begin;
        end.incompatible = s->start.incompatible;
        end.compatible = s->start.compatible;
        end.sha256 = bsf_bytes(s) + BITSNAP_END_PREFIX; /* is believed */
        status = bitsnap_end_record(record, size, &end, r->memory, &s->error);
    }
    bsf_release(r->memory, entries);
    return status;
}

static bitsnap_status bsf_read_end(bitsnap_file_stream *s)
{
    const uint64_t at = s->offset, claimed = s->start.source_size;
    const uint8_t *p;
    uint8_t *expected = NULL;
    size_t size = 0, i;
    bitsnap_status status = bsf_want(s, BITSNAP_END_PREFIX);
    if (status) return status;
    p = bsf_bytes(s);
    if (bsf_load(p + 8, 8) != s->source_size || (claimed != UINT64_MAX && claimed != s->source_size))
        return bsf_stream_failed(s, 22, at + 8, "the size of the source does not agree");
    if (bsf_load(p + 32, 8) != s->reader->record_begin) return bsf_stream_failed(s, 23, at + 32, "the end of the records does not agree");
    if (bsf_load(p + 16, 8) != s->reader->records.count) return bsf_stream_failed(s, 23, at + 16, "the number of records does not agree");
    if (s->start.incompatible & BITSNAP_FILE_REFERENCES && !s->reader->met_reference)
        return bsf_stream_failed(s, 36, 24, "references to earlier data announced, but there are none");
    if (s->start.quantized && !s->reader->met_quantized) return bsf_stream_failed(s, 21, 28, "quantized frames announced, but there are none");
    if (bsf_load(p + 24, 4) != s->start.incompatible || bsf_load(p + 28, 4) != s->start.compatible)
        return bsf_stream_failed(s, 29, at + 24, "the end record has other features than the file header");
    status = bsf_expect_end(s, (size_t)bsf_load(p + 4, 4), &expected, &size);
    if (status) return status;
    p = bsf_bytes(s);
    for (i = 0; i < size && p[i] == expected[i]; i++) continue;
    bsf_release(s->reader->memory, expected);
    s->check = bsf_load(p + size - 16, 8);
    if (bsf_in_seal(s, i)) return bsf_stream_failed(s, 31, at + i, "another frame or text than the end record says");
    if (i < size - 24) return bsf_stream_failed(s, 25, at + i, "the trees of the end record do not agree with what is in the file");
    if (i < size - 16) return bsf_stream_failed(s, 23, at + i, "wrong size of the end record");
    if (i < size - 8) return bsf_stream_failed(s, 24, at + i, "the check of the end record does not match");
    if (i < size) return bsf_stream_failed(s, 27, at + i, "wrong last bytes");
    status = bsf_check_sha256(s, p);
    if (status) return status;
    bsf_consume(s, size);
    status = bsf_fill(s, 1);
    return status || !bsf_available(s) ? status : bsf_stream_failed(s, 5, s->offset, "there are bytes behind its end");
}

/* ---- frames ---- */

/* Handles an error of the codec in the frame. If the workspace is too small and not the caller's, enlarges it and returns 0: try again. */
static bitsnap_status bsf_stream_codec_failed(bitsnap_file_stream *s)
{
    bsf_stream_reader *r = s->reader;
    const bitsnap_error *e = &s->b->error;
    if (e->status == BITSNAP_E_TRUNCATED) return bsf_truncated(s);
    if (e->status == BITSNAP_E_WORKSPACE && s->b->workspace == r->workspace && e->needed > s->b->workspace_size && e->needed <= SIZE_MAX) {
        const size_t size = (size_t)e->needed;
        bsf_release(r->memory, r->workspace);
        s->b->workspace = r->workspace = bsf_resize(r->memory, NULL, size);
        s->b->workspace_size = r->workspace ? size : 0;
        return r->workspace ? BITSNAP_OK : bsf_no_memory(&s->error);
    }
    (void)bsf_fail_codec(&s->error, s->b, 0, s->frame.at);
    return bsf_about_base(&s->error, &s->frame);
}

/* Reads the kept and the place record of the frame, if they are the next records, which begin with 4 bytes that are here. So are then 4 more. */
static bitsnap_status bsf_read_marks(bitsnap_file_stream *s, int *placed)
{
    bitsnap_status status = BITSNAP_OK;
    int i;
    *placed = 0;
    for (i = 0; i < 2 && !*placed && !status; i++) {
        const int place = bsf_may_place(&s->start) && !memcmp(bsf_bytes(s), BITSNAP_PLACE_MAGIC, 4);
        if (!place && (i || memcmp(bsf_bytes(s), BITSNAP_KEPT_MAGIC, 4))) break;
        status = bsf_want(s, BITSNAP_PLACE_SIZE);
        if (!status) status = bsf_take_mark(&s->frame, &s->start, bsf_bytes(s), s->offset, &s->error);
        if (status) break;
        *placed = place;
        bsf_consume(s, BITSNAP_PLACE_SIZE);
        status = bsf_want(s, 4);
    }
    return status;
}

/* Notes a frame that refers to earlier data, or is referred to. */
static bitsnap_status bsf_check_references(bitsnap_file_stream *s, int placed)
{
    bsf_stream_reader *r = s->reader;
    const bitsnap_file_frame *frame = &s->frame;
    const uint64_t bytes = frame->info.elements_size;
    bsf_kept_drop(&r->kept, frame->begin);
    r->kept.frame = frame->begin;
    if (placed && frame->base == BITSNAP_BASE_ITSELF) {
        r->met_reference = 1;
        if (!bsf_kept_has(&r->kept, frame->base_begin, frame->info.count * bitsnap_width(frame->info.base_dtype)))
            return bsf_stream_failed(s, 39, frame->at, "a frame refers to data that are not kept for it");
    }
    if (!frame->referred) return BITSNAP_OK;
    if (!bytes || frame->referred < frame->begin + bytes) return bsf_stream_failed(s, 42, frame->at, "an impossible kept record");
    return bsf_kept_begin(&r->kept, frame->begin, bytes, frame->referred, s->kept_most, &s->error);
}

/* Checks the header of a frame against the file, before anything is made by its numbers. */
static bitsnap_status bsf_check_frame(bitsnap_file_stream *s, int placed)
{
    const bitsnap_info *info = &s->frame.info;
    bitsnap_status status;
    const uint64_t at = s->frame.at, bytes = info->count * info->width; /* count is at most 2^48 */
    if (!info->checks) return bsf_stream_failed(s, 30, at, "a frame without checks");
    if (info->has_base != placed)
        return bsf_stream_failed(s, 19, at, placed ? "a place in the base, but a frame without one" : "a frame with a base that has no place");
    if (s->quantized && !s->start.quantized) return bsf_stream_failed(s, 21, at, "a quantized frame in a file that announces none");
    status = placed ? bsf_check_base(&s->frame, s->start.bases, at, &s->error) : BITSNAP_OK;
    if (status) return status;
    if (bytes > BITSNAP_FILE_MOST - s->source_size) return bsf_stream_failed(s, 8, at + 8, "a source of 2^48 bytes or more");
    if (s->start.source_size != UINT64_MAX && s->source_size + bytes > s->start.source_size)
        return bsf_stream_failed(s, 22, at + 8, "more elements than the file header announces");
    return bsf_check_references(s, placed);
}

static bitsnap_status bsf_read_frame_header(bitsnap_file_stream *s, int placed)
{
    const uint64_t data = s->start.kind == BITSNAP_SOURCE_RAW ? 0 : 8 + s->start.text_size;
    bitsnap_info *info = &s->frame.info;
    size_t used;
    bitsnap_status status = bsf_want(s, BSF_FRAME_HEADER);
    s->frame.at = s->offset;
    s->frame.begin = s->source_size - data;
    if (!status && bsf_bytes(s)[7] & 0x80) /* extensions; their size is before them */
        status = bsf_want(s, BSF_FRAME_HEADER + 2 + bsf_load(bsf_bytes(s) + 16, 2));
    if (status) return status;
    if (bitsnap_read_info(info, bsf_bytes(s), bsf_available(s))) { /* the decoder says why */
        (void)bitsnap_decoder_begin(s->b, &s->decoder, bsf_bytes(s), bsf_available(s), &used);
        return bsf_stream_codec_failed(s);
    }
    info->content_id = info->same = info->sparse = info->classed = info->plain = 0; /* of the blocks and the footer, which are to come */
    memset(&info->certificate, 0, sizeof info->certificate);
    s->quantized = (bsf_bytes(s)[7] & 4) != 0;
    s->reader->footer = bsf_has_footer(bsf_bytes(s), info->blocks);
    s->reader->seal = info->header_check;
    status = bsf_check_frame(s, placed);
    if (!status) status = bsf_records_add(&s->reader->records, s->source_size, s->reader->record_begin, 0, s->reader->memory, &s->error);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_stream_next(bitsnap_file_stream *s)
{
    bsf_stream_reader *r = s->reader;
    int placed = 0;
    bitsnap_status status;
    bsf_stream_ready(s);
    if (s->in_frame) return bsf_fail(&s->error, BITSNAP_E_ARGUMENT, 0, s->offset, "a frame has not been read to its end");
    bsf_hash_text(s);
    memset(&s->frame, 0, sizeof s->frame);
    r->stage = BSF_AT_HEADER;
    r->passed = r->blocks = r->to_pass = 0;
    r->record_begin = s->offset;
    status = bsf_pass_ancillary(s);
    if (!status) status = bsf_read_marks(s, &placed);
    if (status) return status;
    if (!placed && !s->frame.referred && !memcmp(bsf_bytes(s), BITSNAP_END_MAGIC, 4)) return bsf_read_end(s);
    if (memcmp(bsf_bytes(s), BITSNAP_FRAME_MAGIC, 4)) return bsf_stream_failed(s, 10, s->offset, "neither a frame nor the end record");
    status = bsf_read_frame_header(s, placed);
    if (status) return status;
    r->met_quantized |= s->quantized;
    s->in_frame = 1;
    return BITSNAP_OK;
}

static bitsnap_status bsf_begin_decoder(bitsnap_file_stream *s)
{
    bsf_stream_reader *r = s->reader;
    const bitsnap_info *info = &s->frame.info;
    size_t used;
    if (r->stage == BSF_DECODED) return BITSNAP_OK;
    while (bitsnap_decoder_begin(s->b, &s->decoder, bsf_bytes(s), bsf_available(s), &used)) {
        const bitsnap_status status = bsf_stream_codec_failed(s);
        if (status) return status;
    }
    bsf_consume(s, used);
    r->stage = BSF_DECODED;
    r->window.file = NULL;
    r->window.kept = NULL;
    s->base = info->has_base ? &r->window.base : NULL;
    if (!s->base) return BITSNAP_OK;
    bsf_window_begin_at(&r->window, s->frame.base == BITSNAP_BASE_ITSELF ? NULL : s->start.bases[s->frame.base].file, s->frame.base,
                        s->frame.base_begin);
    if (s->frame.base == BITSNAP_BASE_ITSELF) r->window.kept = &r->kept;
    r->window.base.count = info->count;
    r->window.base.dtype = info->base_dtype;
    if (bsf_window_is_open(&r->window)) return BITSNAP_OK;
    (void)bsf_fail(&s->error, BITSNAP_E_BASE, 17, s->frame.at, "this delta needs its base");
    s->error.base = s->frame.base;
    return BITSNAP_E_BASE;
}

/* Counts the cells of the block at p, by its form, and returns its size. */
static uint64_t bsf_count_block(bitsnap_file_stream *s, const uint8_t *p)
{
    bitsnap_info *info = &s->frame.info;
    const bitsnap_file_block b = bitsnap_file_block_at(p, info, s->reader->passed);
    uint64_t *count = b.form == BSF_SAME ? &info->same : b.form == BSF_CLASSED || b.form == BSF_PATCHED ? &info->classed : b.form == BSF_SPARSE ? &info->sparse : &info->plain;
    *count += b.cells;
    s->reader->passed += b.elements;
    return b.size;
}

BITSNAP_API bitsnap_status bitsnap_file_stream_read(bitsnap_file_stream *s, void *to, size_t room, size_t *count)
{
    bsf_stream_reader *r = s->reader;
    const size_t ahead = s->window ? s->window : (size_t)1 << 20;
    size_t used = 0;
    bitsnap_status status;
    *count = 0;
    bsf_stream_ready(s);
    status = bsf_begin_decoder(s);
    if (!status && !to && (s->start.compatible & BITSNAP_FILE_SHA256 || s->frame.referred || (s->decoder.block_log2 < 16 && s->frame.info.has_content_id))) {
        /* which need the elements: 4 MiB, in whole blocks */
        const uint64_t left = s->decoder.count - s->decoder.position;
        uint64_t each = ((uint64_t)1 << 22) / s->decoder.width >> s->decoder.block_log2 << s->decoder.block_log2;
        if (!each) each = (uint64_t)1 << s->decoder.block_log2;
        if (room > each) room = (size_t)each;
        if (room > left) room = (size_t)left;
        status = bsf_grow(r->memory, &r->elements, &r->elements_room, room * s->decoder.width, &s->error);
        to = r->elements;
    }
    while (!status && !*count && s->decoder.position < s->decoder.count) {
        bitsnap_status found;
        /* reads on in good time, but does not move the bytes for every block */
        if (bsf_available(s) < ahead / 2) status = bsf_fill(s, ahead);
        if (!status && bsf_window_is_open(&r->window))
            status = bsf_window_hold(&r->window, s->decoder.position, s->decoder.block_log2, s->b->workers, &s->error);
        if (status && s->error.rule == 39) s->error.offset = s->frame.at;
        if (status) break;
        if (bsf_window_is_open(&r->window)) s->b->base = r->window.base;
        found = bitsnap_decoder_pull(s->b, &s->decoder, to, room, count, bsf_bytes(s), bsf_available(s), &used);
        memset(&s->b->base, 0, sizeof s->b->base);
        if (found == BITSNAP_E_TRUNCATED) status = bsf_want(s, s->b->error.needed);
        else if (found) status = bsf_stream_codec_failed(s);
    }
    if (!status) status = bsf_note_elements(s, to, *count * s->decoder.width, s->decoder.width);
    if (status) return status;
    s->source_size += (uint64_t)*count * s->decoder.width;
    s->blocks = bsf_bytes(s);
    s->blocks_size = used;
    if (!r->footer && used >= 12) r->seal = bsf_load(s->blocks + 4, 8);
    while (used) used -= (size_t)bsf_count_block(s, s->blocks + (s->blocks_size - used));
    bsf_consume(s, s->blocks_size);
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_file_block bitsnap_file_block_at(const void *p, const bitsnap_info *info, uint64_t first)
{
    const uint8_t *head = (const uint8_t *)p;
    const uint64_t number = bsf_load(head + 1, 3), left = info->count - first;
    const int run = head[0] == BSF_CONST;
    bitsnap_file_block b;
    b.form = head[0];
    b.cells = run ? number : 1;
    b.elements = b.cells << info->block_log2 < left ? b.cells << info->block_log2 : left;
    b.size = 4 + (info->checks ? 8u : 0u) + (info->has_base ? 16u : 0u) + (run ? info->width : number);
    return b;
}

/* Returns 1 if blocks of the frame may have this form. */
static int bsf_form_fits(const bitsnap_file_stream *s, unsigned form)
{
    const bitsnap_info *info = &s->frame.info;
    if (form <= BSF_BYTES || form == BSF_ZIGZAG || form == BSF_PARTED || form > BSF_PATCHED) return 1; /* also one that only newer versions know: its size is in its head */
    if (form <= BSF_CLASSED || form == BSF_SPARSE || form == BSF_PATCHED) return info->has_base;
    return form == BSF_SCALED ? info->columns != 0 : form == BSF_QUANTIZED && s->quantized;
}

/* Grammar that a look at the head of a block is enough for has failed. */
static bitsnap_status bsf_block_failed(bitsnap_file_stream *s, unsigned rule, const char *message)
{
    (void)bsf_fail(&s->error, BITSNAP_E_CORRUPT, 0, s->offset, message);
    s->error.frame_rule = rule;
    return BITSNAP_E_CORRUPT;
}

BITSNAP_API bitsnap_status bitsnap_file_stream_pass(bitsnap_file_stream *s, size_t least)
{
    bsf_stream_reader *r = s->reader;
    const bitsnap_info *info = &s->frame.info;
    bitsnap_status status;
    bsf_stream_ready(s);
    if (r->stage == BSF_AT_HEADER) r->to_pass = info->header_size;
    r->stage = BSF_PASSED;
    status = bsf_pass(s, r->to_pass);
    r->to_pass = 0;
    if (status || r->passed == info->count) return status;
    status = bsf_want(s, 4);
    if (status) return status;
    s->block = bitsnap_file_block_at(bsf_bytes(s), info, r->passed);
    if (!bsf_form_fits(s, s->block.form)) return bsf_block_failed(s, 15, "a block of a form that is not known");
    if (!s->block.elements || (s->block.form <= BSF_PATCHED &&
                               s->block.size > info->width * s->block.elements + 4 + (info->checks ? 8u : 0u) + (info->has_base ? 16u : 0u) + 2))
        return bsf_block_failed(s, 16, "wrong size of a block");
    if (least < 12) least = 12; /* head and check */
    status = bsf_want(s, least < s->block.size ? least : s->block.size);
    if (status) return status;
    s->blocks = bsf_bytes(s);
    if (!r->footer) r->seal = bsf_load(s->blocks + 4, 8);
    s->blocks_size = bsf_available(s) < s->block.size ? bsf_available(s) : (size_t)s->block.size;
    s->source_size += s->block.elements * info->width;
    r->to_pass = bsf_count_block(s, s->blocks);
    r->blocks++;
    return BITSNAP_OK;
}

static double bsf_load_double(const uint8_t *p)
{
    const uint64_t bits = bsf_load(p, 8);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static bitsnap_certificate bsf_certificate(const uint8_t *p, unsigned bins)
{
    const double unit = 1 / 16777216.0; /* 2^-24 */
    bitsnap_certificate c;
#ifdef BITSNAP_NO_QUANTIZE
    c.bound = 0;
    (void)bins;
#else
    c.bound = bins ? bitsnap_log_bound(bins) : 0;
#endif
    c.counted = bsf_load(p, 8);
    c.exact = bsf_load(p + 8, 8);
    c.mean_relative = c.counted ? (double)bsf_load(p + 16, 8) * unit / (double)c.counted : 0;
    c.mean_square = c.counted ? bsf_load_double(p + 24) / (double)c.counted : 0;
    c.max_absolute = bsf_load_double(p + 32);
    c.max_relative = (double)bsf_load(p + 40, 4) * unit;
    return c;
}

/* Notes the footer of a frame, from its byte at p on; `left` bytes are there. */
static void bsf_note_footer(bitsnap_file_stream *s, const uint8_t *p, size_t left)
{
    bitsnap_info *info = &s->frame.info;
    const size_t id = info->has_content_id ? 8 : 0;
    if (s->quantized && left >= id + BSF_CERTIFICATE) info->certificate = bsf_certificate(p + id, info->bins);
    if (id && left >= id) info->content_id = bsf_load(p, 8);
}

/* Bytes of an entry of an index: the head of a block and, with checks, half of its check. */
static unsigned bsf_entry_size(int checks) { return checks ? 8 : 4; }

/* Bytes of the index of this number of blocks. */
static uint64_t bsf_index_size(uint64_t blocks, int checks)
{
    uint64_t n = blocks, size = bsf_entry_size(checks) * n;
    while (n > 256) {
        n = (n + 255) / 256;
        size += 24 * n;
    }
    return size;
}

/* Passes over the footer, but reads what it says of the elements. */
static bitsnap_status bsf_pass_footer(bitsnap_file_stream *s)
{
    const bitsnap_info *info = &s->frame.info;
    const uint64_t about = (s->quantized ? (uint64_t)BSF_CERTIFICATE : 0) + (info->has_content_id ? 8 : 0), size = info->extended ? 4 : 0;
    bitsnap_status status;
    uint64_t more = 0;
    if (s->reader->passed < info->count) return bsf_fail(&s->error, BITSNAP_E_ARGUMENT, 0, s->offset, "a frame has not been read to its end");
    if (!s->reader->footer) return BITSNAP_OK;
    status = bsf_pass(s, bsf_index_size(s->reader->blocks, info->checks));
    if (!status && about + size) status = bsf_want(s, about + size);
    if (status) return status;
    if (about) bsf_note_footer(s, bsf_bytes(s), bsf_available(s));
    if (size) more = bsf_load(bsf_bytes(s) + about, 4) + 8;
    status = bsf_pass(s, about + more + 16);
    if (!status) status = bsf_want(s, 12);
    if (status) return status;
    s->reader->seal = bsf_load(bsf_bytes(s), 8);
    return bsf_pass(s, 12);
}

static bitsnap_status bsf_read_footer(bitsnap_file_stream *s)
{
    const size_t index = (size_t)bsf_index_size(s->decoder.index_size / bsf_entry_size(s->frame.info.checks), s->frame.info.checks);
    size_t used = 0;
    bitsnap_status found, status = bsf_begin_decoder(s);
    while (!status && (found = bitsnap_decoder_end(s->b, &s->decoder, bsf_bytes(s), bsf_available(s), &used)) != BITSNAP_OK)
        status = found == BITSNAP_E_TRUNCATED ? bsf_want(s, s->b->error.needed) : bsf_stream_codec_failed(s);
    if (status) return status;
    if (used > index) bsf_note_footer(s, bsf_bytes(s) + index, used - index);
    if (used >= 12) s->reader->seal = bsf_load(bsf_bytes(s) + used - 12, 8);
    bsf_consume(s, used);
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_file_stream_frame_end(bitsnap_file_stream *s)
{
    bitsnap_status status;
    bsf_stream_ready(s);
    status = s->reader->stage == BSF_PASSED ? bsf_pass_footer(s) : bsf_read_footer(s);
    if (status) return status;
    s->frame.size = s->offset - s->frame.at;
    s->frame.seal = s->reader->seal;
    bsf_records_seal(&s->reader->records, s->frame.seal);
    s->frames++;
    s->frame_bytes += s->frame.size;
    s->in_frame = 0;
    return BITSNAP_OK;
}

BITSNAP_API void bitsnap_file_stream_close(bitsnap_file_stream *s)
{
    bsf_stream_reader *r = s->reader;
    if (r) {
        bsf_take_back(s->b, r->workspace);
        bsf_release(r->memory, s->start.bases);
        bsf_release(r->memory, s->coded);
        bsf_release(r->memory, s->base_coded);
        bsf_release(r->memory, r->workspace);
        bsf_release(r->memory, r->bytes);
        bsf_release(r->memory, r->records.entries);
        bsf_release(r->memory, r->window.elements);
        bsf_release(r->memory, r->elements);
        bsf_kept_close(&r->kept);
        bsf_release(r->memory, r);
    }
    memset(s, 0, sizeof *s);
}

/* ---- all of a file that is open ---- */

typedef struct bsf_whole {
    bitsnap_file *file;
    uint64_t at;
} bsf_whole;

static int bsf_read_whole(void *context, void *to, size_t size, size_t *got)
{
    bsf_whole *w = (bsf_whole *)context;
    const uint64_t left = w->file->size - w->at;
    *got = size < left ? size : (size_t)left;
    if (bsf_get(w->file, w->at, to, *got)) return 1;
    w->at += *got;
    return 0;
}

/* What frames refer to is decoded once more: nothing has to be kept. */
static int bsf_keep_nothing(void *context, uint64_t offset, const void *bytes, size_t size)
{
    (void)context, (void)offset, (void)bytes, (void)size;
    return 0;
}

static int bsf_read_again(void *context, uint64_t offset, void *to, size_t size)
{
    bitsnap_file *f = (bitsnap_file *)context;
    if (!bsf_open_itself(f) && bitsnap_file_read_data(f->reader->itself, offset, to, size)) f->error = f->reader->itself->error;
    return f->error.status != BITSNAP_OK;
}

/* The start of the file, which is still the one that was opened, and its texts. */
static bitsnap_status bsf_verify_start(bitsnap_file *f, bitsnap_file_stream *s, const char *text)
{
    const bitsnap_file_start *start = &f->reader->start;
    bitsnap_status status;
    size_t i;
    if (s->start.check != start->check || s->start.base_count != f->base_count)
        return bsf_fail(&s->error, BITSNAP_E_CHECK, 6, 0, "the start of the file has changed since it was opened");
    for (i = 0; i < f->base_count; i++) s->start.bases[i].file = f->bases[i].file;
    s->reader->workspace = f->b.workspace;
    s->kept_most = 0;
    s->spill.write = bsf_keep_nothing;
    s->spill.read = bsf_read_again;
    s->spill.context = f;
    status = bitsnap_file_stream_texts(s);
    s->text = text;
    return status;
}

static bitsnap_status bsf_verify_frames(bitsnap_file_stream *s)
{
    size_t n;
    bitsnap_status status;
    while (!(status = bitsnap_file_stream_next(s)) && s->in_frame) {
        do status = bitsnap_file_stream_read(s, NULL, SIZE_MAX / s->frame.info.width, &n);
        while (!status && s->decoder.position < s->decoder.count);
        if (!status) status = bitsnap_file_stream_frame_end(s);
        if (status) break;
    }
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_verify(bitsnap_file *f)
{
    const bitsnap_memory *memory = f->reader->memory;
    const bitsnap_safetensors *model;
    const char *text = NULL;
    bsf_whole whole = { NULL, 0 };
    bitsnap_input input = { bsf_read_whole, NULL, NULL };
    bitsnap_file_stream *s; /* too large for the stack */
    bitsnap_status status = BITSNAP_OK;
    memset(&f->error, 0, sizeof f->error);
    if (f->kind == BITSNAP_SOURCE_PLAIN) return bitsnap_file_tensors(f, &model);
    if (bsf_lacks_base(f)) return bsf_no_base(f);
    if (f->kind != BITSNAP_SOURCE_RAW) status = bitsnap_file_text(f, &text);
    if (status) return status;
    s = (bitsnap_file_stream *)bsf_resize(memory, NULL, sizeof *s);
    if (!s) return bsf_no_memory(&f->error);
    input.context = &whole;
    whole.file = f;
    status = bitsnap_file_stream_begin(s, &f->b, &input, memory);
    if (!status) status = bsf_verify_start(f, s, text);
    if (!status) status = bsf_verify_frames(s);
    if (status != BITSNAP_E_SOURCE) f->error = s->error; /* else bsf_get or bsf_read_again has said more */
    if (s->reader) s->reader->workspace = NULL; /* it is the file's */
    bitsnap_file_stream_close(s);
    bsf_release(memory, s);
    return f->error.status;
}

#ifndef BITSNAP_NO_ENCODE
/* ================================================================================= WRITING */

/* Neighbours that are coded alike, and whose bases follow each other. */
typedef struct bsf_run {
    uint64_t begin, bytes;      /* of the data */
    bitsnap_dtype dtype, base_dtype; /* base_dtype 0: no base */
    bitsnap_file_place place;   /* of the base */
    uint64_t columns;
    size_t tensor;              /* the first one */
    uint64_t last;              /* where the last run begins that refers to this one; 0: none does */
} bsf_run;

typedef struct bsf_writer {
    bitsnap_sink sink;
    const bitsnap_memory *memory;
    bsf_records records;
    uint8_t *names;             /* entries of their tree */
    size_t name_count;
    uint64_t check;             /* that of the header */
    uint32_t incompatible, compatible; /* features */
    int refers;                 /* 1: a frame refers to earlier data of the file */
    uint64_t data;              /* where the data begins in the source */
    bitsnap_strong_hash strong; /* of the source, with that feature */
    uint64_t hashed;            /* bytes of it so far */
    uint64_t frame_begin;       /* byte of the file */
    int footer;                 /* the frame has one */
    uint64_t seal;              /* of it, as far as it has been written */
    uint8_t *packed;            /* what leaves the codec */
    size_t packed_room;
    void *workspace;            /* b's, where it comes from the memory */
    bitsnap_file_base *bases;   /* without their names */
    size_t base_count;
    bsf_window window;          /* of the base of the frame */
    /* of data that is cut here */
    bitsnap_safetensors model;
    uint64_t expected;          /* bytes of the source; 0: not known */
    bsf_run *runs;              /* each becomes a frame */
    size_t run_count, run_room, next; /* next: the one that begins next */
    uint64_t left;              /* bytes of the frame that are still to come */
    uint8_t *elements;          /* those that have come since the last whole blocks */
    size_t elements_room, held;
} bsf_writer;

static bitsnap_status bsf_put_out(bitsnap_file_writer *w, const void *p, size_t size)
{
    if (size && w->writer->sink.write(w->writer->sink.context, p, size))
        return bsf_fail(&w->error, BITSNAP_E_SOURCE, 0, w->size, "the callback of the sink failed");
    w->size += size;
    return BITSNAP_OK;
}

/* Appends the check of a record to it, and writes it to the file. */
static bitsnap_status bsf_put_record(bitsnap_file_writer *w, uint8_t *record, size_t size)
{
    bsf_store(record + size, bitsnap_hash(record, size), 8);
    return bsf_put_out(w, record, size + 8);
}

/* The text of the source as records; with more than one piece its names are to be found without all of it. */
static bitsnap_status bsf_put_text(bitsnap_file_writer *w, const bitsnap_file_head *h, const uint8_t *coded, size_t coded_size)
{
    bsf_writer *x = w->writer;
    uint64_t begin = 8;
    size_t at, pieces = 0;
    bitsnap_status status = BITSNAP_OK;
    for (at = 0; at < coded_size && !status; at += BITSNAP_TEXT_PREFIX + (size_t)bsf_load(coded + at + 8, 4) + 8, pieces++) {
        const size_t check = at + BITSNAP_TEXT_PREFIX + (size_t)bsf_load(coded + at + 8, 4);
        status = bsf_records_add(&x->records, begin, w->size + at, bsf_load(coded + check, 8), x->memory, &w->error);
        begin += bsf_load(coded + at + 4, 4);
    }
    if (!status && h->text && pieces > 1)
        status = bitsnap_tree_names(&x->names, &x->name_count, h->text, h->text_size, x->memory, &w->error);
    return status ? status : bsf_put_out(w, coded, coded_size);
}

static bitsnap_status bsf_put_bases(bitsnap_file_writer *w, const bitsnap_file_head *h)
{
    const bitsnap_memory *memory = w->writer->memory;
    uint8_t *record, *p;
    size_t i, size = 0;
    bitsnap_status status;
    for (i = 0; i < h->base_count; i++) size += BITSNAP_BASE_ENTRY + 255;
    record = (uint8_t *)bsf_resize(memory, NULL, BITSNAP_BASES_PREFIX + size + 8);
    if (!record) return bsf_no_memory(&w->error);
    p = record + BITSNAP_BASES_PREFIX;
    for (i = 0; i < h->base_count; i++) {
        const bitsnap_file_base *base = &h->bases[i];
        const size_t length = base->name ? strlen(base->name) : 0, name_size = length < 256 ? length : 0;
        bsf_store(p, base->text_size, 4);
        bsf_store(p + 4, base->data_size, 8);
        bsf_store(p + 12, base->text_id, 8);
        p[20] = (uint8_t)name_size;
        if (name_size) memcpy(p + BITSNAP_BASE_ENTRY, base->name, name_size);
        p += BITSNAP_BASE_ENTRY + name_size;
    }
    size = (size_t)(p - record) - BITSNAP_BASES_PREFIX;
    memcpy(record, BITSNAP_BASES_MAGIC, 4);
    bsf_store(record + 4, h->base_count, 2);
    bsf_store(record + 6, (h->coded_size ? 0u : (unsigned)BITSNAP_BASES_SAME_TEXT) | (h->base_coded_size ? (unsigned)BITSNAP_BASES_WITH_TEXT : 0u), 2);
    bsf_store(record + 8, size, 4);
    bsf_store(record + 12, h->text_id, 8);
    status = !h->base_count || h->base_count > BITSNAP_BASES_MOST
                 ? bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 14, w->size, "no base, or more than 65,534")
                 : bsf_put_record(w, record, BITSNAP_BASES_PREFIX + size);
    bsf_release(memory, record);
    return status ? status : bsf_put_out(w, h->base_coded, h->base_coded_size);
}

BITSNAP_API bitsnap_status bitsnap_file_write_head(bitsnap_file_writer *w, bitsnap *b, const bitsnap_sink *sink, const bitsnap_file_head *head,
                                                   const bitsnap_memory *memory)
{
    uint8_t header[BITSNAP_FILE_HEADER], *coded = NULL;
    size_t coded_size;
    bitsnap_status status;
    memset(w, 0, sizeof *w);
    w->b = b;
    w->writer = (bsf_writer *)bsf_resize(memory, NULL, sizeof *w->writer);
    if (!w->writer) return bsf_no_memory(&w->error);
    memset(w->writer, 0, sizeof *w->writer);
    w->writer->sink = *sink;
    w->writer->memory = w->writer->window.memory = memory;
    if (head->source_size != UINT64_MAX && head->source_size > BITSNAP_FILE_MOST)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, 0, "is too large: 2^48 bytes or more");
    memset(header, 0, sizeof header);
    memcpy(header, BITSNAP_FILE_MAGIC, 8);
    header[8] = 1;
    header[9] = (uint8_t)head->kind;
    bsf_store(header + 12, head->text_size, 4); /* at most BITSNAP_TEXT_MAX */
    bsf_store(header + 16, head->source_size, 8);
    w->writer->incompatible = head->references ? (unsigned)BITSNAP_FILE_REFERENCES : 0u;
    w->writer->compatible = (head->quantized ? (unsigned)BITSNAP_FILE_QUANTIZED : 0u) | (head->sha256 ? (unsigned)BITSNAP_FILE_SHA256 : 0u);
    bitsnap_strong_hash_begin(&w->writer->strong);
    if (head->kind != BITSNAP_SOURCE_RAW) {
        uint8_t text_size[8];
        if (head->sha256 && !head->text) return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, 0, "a SHA-256 needs the header text");
        bsf_store(text_size, head->text_size, 8);
        bitsnap_file_write_source(w, text_size, 8);
        bitsnap_file_write_source(w, head->text, head->text_size);
    }
    bsf_store(header + 24, w->writer->incompatible, 4);
    bsf_store(header + 28, w->writer->compatible, 4);
    w->writer->check = bitsnap_hash(header, 32);
    w->source_size = w->writer->data = head->kind == BITSNAP_SOURCE_RAW ? 0 : 8 + head->text_size;
    status = bsf_put_record(w, header, 32);
    if (!status && head->base_count) {
        const size_t size = head->base_count * sizeof *head->bases;
        w->writer->bases = (bitsnap_file_base *)bsf_resize(memory, NULL, size);
        if (!w->writer->bases) return bsf_no_memory(&w->error);
        memcpy(w->writer->bases, head->bases, size);
        w->writer->base_count = head->base_count;
    }
    if (!status && head->kind == BITSNAP_SOURCE_DELTA) status = bsf_put_bases(w, head);
    if (status || head->kind == BITSNAP_SOURCE_RAW) return status;
    if (head->coded || head->kind == BITSNAP_SOURCE_DELTA) return bsf_put_text(w, head, head->coded, head->coded_size);
    status = bitsnap_text_encode(&coded, &coded_size, head->text, head->text_size, memory, &w->error);
    if (!status) status = bsf_put_text(w, head, coded, coded_size);
    bsf_release(memory, coded);
    return status;
}

/* Writes the padding after which a frame begins at a multiple of w->align, with `marks` bytes of place and kept records before it. */
static bitsnap_status bsf_put_padding(bitsnap_file_writer *w, unsigned marks)
{
    enum { LEAST = BITSNAP_ANCILLARY_PREFIX + 8 };
    const uint64_t align = w->align, begin = w->size + marks;
    uint8_t *record;
    size_t size;
    bitsnap_status status;
    if (!align) return BITSNAP_OK;
    if (align & (align - 1) || align < 512 || align > 1 << 20)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "frames align to a power of two from 512 to 1048576 bytes");
    size = (size_t)(-begin & (align - 1));
    if (!size) return BITSNAP_OK;
    if (size < LEAST) size += (size_t)align;
    record = (uint8_t *)bsf_resize(w->writer->memory, NULL, size);
    if (!record) return bsf_no_memory(&w->error);
    memset(record, 0, size);
    memcpy(record, BITSNAP_ANCILLARY_MAGIC, 4);
    bsf_store(record + 8, size - LEAST, 8);
    status = bsf_put_record(w, record, size - 8);
    bsf_release(w->writer->memory, record);
    return status;
}

static bitsnap_status bsf_no_checks(bitsnap_file_writer *w)
{
    return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 30, w->size, "frames of a file need checks: not with BITSNAP_NO_CHECKS");
}

BITSNAP_API void bitsnap_file_write_source(bitsnap_file_writer *w, const void *bytes, size_t size)
{
    if (!(w->writer->compatible & BITSNAP_FILE_SHA256)) return;
    bitsnap_strong_hash_add(&w->writer->strong, w->b, bytes, size);
    w->writer->hashed += size;
}

/* Writes a place or kept record. */
static bitsnap_status bsf_put_mark(bitsnap_file_writer *w, const char *magic, unsigned number, uint64_t byte)
{
    uint8_t record[BITSNAP_PLACE_SIZE];
    memcpy(record, magic, 4);
    bsf_store(record + 4, number, 2);
    bsf_store(record + 6, byte, 6);
    bsf_store(record + 12, bitsnap_hash(record, 12), 4);
    return bsf_put_out(w, record, BITSNAP_PLACE_SIZE);
}

/* Writes the records before a frame: padding; if later frames refer to it, the mark that says so; if it has a base, the place of that. `bytes`
 * and `base_bytes` are the bytes of elements of the frame and of its base. */
static bitsnap_status bsf_begin_frame(bitsnap_file_writer *w, const bitsnap_file_place *place, uint64_t bytes, uint64_t base_bytes)
{
    const unsigned marks = (w->referred ? (unsigned)BITSNAP_KEPT_SIZE : 0u) + (place ? (unsigned)BITSNAP_PLACE_SIZE : 0u);
    const uint64_t at = w->source_size - w->writer->data;
    const int refers = place && place->base == BITSNAP_BASE_ITSELF;
    bitsnap_status status;
    if (refers && (place->begin > at || base_bytes > at - place->begin))
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 37, w->size, "a frame that refers to data that do not lie before it");
    if (w->referred && (!bytes || w->referred < at + bytes))
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 42, w->size, "`referred` is not after the end of the frame");
    status = bsf_records_add(&w->writer->records, w->source_size, w->size, 0, w->writer->memory, &w->error);
    w->writer->refers |= refers;
    if (!status) status = bsf_put_padding(w, marks);
    if (!status && w->referred) status = bsf_put_mark(w, BITSNAP_KEPT_MAGIC, 0, w->referred);
    if (!status && place) status = bsf_put_mark(w, BITSNAP_PLACE_MAGIC, place->base, place->begin);
    w->writer->frame_begin = w->size;
    w->referred = 0;
    return status;
}

/* Fails if the frame refers to earlier data of the file, or is referred to, where the format does not allow it. */
static bitsnap_status bsf_may_refer(bitsnap_file_writer *w, const bitsnap_file_place *place, uint64_t count)
{
    if (!(w->writer->incompatible & BITSNAP_FILE_REFERENCES) && (w->referred || (place && place->base == BITSNAP_BASE_ITSELF)))
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 36, w->size, "a reference to earlier data in a file that announces none");
    if (!place || place->base != BITSNAP_BASE_ITSELF) return BITSNAP_OK;
    if (w->referred) return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 38, w->size, "a frame that is referred to and refers itself");
    if (count < BITSNAP_REFERENCE_LEAST)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 40, w->size, "a frame that refers to earlier data, with fewer than 4096 elements");
    return BITSNAP_OK;
}

static void bsf_end_frame(bitsnap_file_writer *w)
{
    bsf_records_seal(&w->writer->records, w->writer->seal);
    w->frames++;
    w->last = w->size - w->writer->frame_begin;
    w->frame_bytes += w->last;
}

/* What the codec has made, in memory that has room for it. */
static bitsnap_status bsf_put_packed(bitsnap_file_writer *w, bitsnap_status status, size_t size)
{
    if (status) return bsf_fail_codec(&w->error, w->b, 0, w->size);
    w->written = w->writer->packed;
    w->written_size = size;
    return bsf_put_out(w, w->writer->packed, size);
}

/* Takes the base of a frame from the file that it is in, unless b has its elements. */
static bitsnap_status bsf_begin_base(bitsnap_file_writer *w, const bitsnap_file_place *place, uint64_t count)
{
    enum { LITTLE = 1 << 16 };
    bsf_window *x = &w->writer->window;
    bitsnap_base *b = &w->b->base;
    bitsnap_file *file = NULL;
    bitsnap_status status = bsf_may_refer(w, place, count);
    x->file = NULL;
    if (status || !place || b->data || b->source.read) return status;
    if (place->base == BITSNAP_BASE_ITSELF) file = w->itself;
    else if (place->base < w->writer->base_count) file = w->writer->bases[place->base].file;
    if (!file) return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "a base that is not open");
    bsf_window_begin_at(x, file, place->base, place->begin);
    x->base.dtype = b->dtype;
    x->base.count = count;
    if (count <= LITTLE) { /* the encoder finds its id */
        status = bsf_window_load(x, 0, count, &w->error);
        *b = x->base;
        return status;
    }
    status = bitsnap_file_content_id(x->file, x->begin, count, b->dtype, &x->base.id) ? bsf_window_failed(x, &w->error) : BITSNAP_OK;
    *b = x->base;
    b->data = &b->held; /* is not looked at before there are elements */
    b->held = 1;
    return status;
}

static void bsf_end_base(bitsnap_file_writer *w)
{
    if (w->writer->window.file) memset(&w->b->base, 0, sizeof w->b->base);
    w->writer->window.file = NULL;
}

BITSNAP_API bitsnap_status bitsnap_file_write_frame(bitsnap_file_writer *w, bitsnap_dtype dtype, uint64_t count,
                                                    const bitsnap_file_place *place)
{
    bsf_writer *x = w->writer;
    size_t size;
    bitsnap_status status = w->b->flags & BITSNAP_NO_CHECKS ? bsf_no_checks(w) : bsf_begin_base(w, place, count);
    if (!status) status = bsf_begin_frame(w, place, count * bitsnap_width(dtype), count * bitsnap_width(w->b->base.dtype));
    if (!status) status = bsf_grow(x->memory, &x->packed, &x->packed_room, 64, &w->error);
    if (status) return status;
    status = bitsnap_encoder_begin(w->b, &w->stream, x->packed, x->packed_room, &size, count, dtype);
    if (!status) {
        x->footer = bsf_has_footer(x->packed, count > (uint64_t)1 << w->stream.block_log2 ? 2 : 1);
        x->seal = bsf_load(x->packed + size - 8, 8); /* of a frame of no elements */
    }
    return bsf_put_packed(w, status, size);
}

BITSNAP_API bitsnap_status bitsnap_file_write_elements(bitsnap_file_writer *w, const void *elements, size_t count)
{
    bsf_writer *x = w->writer;
    bitsnap_encoder *s = &w->stream;
    const size_t blocks = (count >> s->block_log2) + 2, most = x->window.file ? (size_t)bsf_window_size(s->block_log2, w->b->workers) : count;
    const uint8_t *p = (const uint8_t *)elements;
    size_t done = 0, some, n, size, room = s->index_capacity;
    uint8_t *index = (uint8_t *)s->index;
    bitsnap_status status = bsf_grow(x->memory, &index, &room, s->index_size + bsf_entry_size(s->flags & 1) * blocks, &w->error);
    if (status) return status;
    s->index = index;
    s->index_capacity = room;
    status = bsf_grow(x->memory, &x->packed, &x->packed_room, count * s->width + 32 * blocks + 704, &w->error);
    if (status) return status;
    for (size = 0; !status && done < count; done += n, size += some) {
        n = count - done < most ? count - done : most;
        if (x->window.file) {
            status = bsf_window_hold(&x->window, s->position, s->block_log2, w->b->workers, &w->error);
            if (status) return status;
            w->b->base = x->window.base;
        }
        status = bitsnap_encoder_push(w->b, s, x->packed + size, x->packed_room - size, &some, p + done * s->width, n);
        if (!status) w->source_size += n * s->width;
    }
    if (!status && !x->footer && size >= 12) x->seal = bsf_load(x->packed + 4, 8);
    return bsf_put_packed(w, status, size);
}

BITSNAP_API bitsnap_status bitsnap_file_write_frame_end(bitsnap_file_writer *w)
{
    bsf_writer *x = w->writer;
    bitsnap_encoder *s = &w->stream;
    const unsigned bins = s->bins;
    const int quantized = (s->bins | s->clusters) != 0;
    const size_t index = (size_t)bsf_index_size(s->index_size / bsf_entry_size(s->flags & 1), s->flags & 1);
    size_t size;
    bitsnap_status status = bsf_grow(x->memory, &x->packed, &x->packed_room, 128 + s->index_size + s->index_size / 32, &w->error);
    if (!status) {
        status = bitsnap_encoder_end(w->b, s, x->packed, x->packed_room, &size);
        if (!status && size >= 12) x->seal = bsf_load(x->footer ? x->packed + size - 12 : x->packed + 4, 8);
        status = bsf_put_packed(w, status, size);
    }
    if (!status && quantized) w->certificate = bsf_certificate(x->packed + index, bins);
    bsf_end_base(w);
    bsf_end_frame(w);
    bsf_release(x->memory, s->index);
    s->index = NULL;
    s->index_capacity = 0;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_pack(bitsnap_file_writer *w, void *frame, size_t capacity, size_t *size, bitsnap_dtype dtype,
                                             const void *elements, size_t count, const bitsnap_file_place *place)
{
    bsf_window *x = &w->writer->window;
    bitsnap_status status = w->b->flags & BITSNAP_NO_CHECKS ? bsf_no_checks(w) : bsf_begin_base(w, place, count);
    if (!status && x->file) status = bsf_window_load(x, 0, count, &w->error);
    if (!status) {
        if (x->file) w->b->base = x->base;
        status = bitsnap_encode(w->b, frame, capacity, size, elements, count, dtype) ? bsf_fail_codec(&w->error, w->b, 0, 0) : BITSNAP_OK;
    }
    bsf_end_base(w);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_write_packed(bitsnap_file_writer *w, const void *frame, size_t size, uint64_t source_bytes,
                                                     const bitsnap_file_place *place)
{
    const uint8_t *p = (const uint8_t *)frame;
    bitsnap_info info;
    bitsnap_status status;
    if (bitsnap_read_info(&info, frame, size) || !info.checks || info.frame_size != size)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 30, w->size, "no frame, or one without checks");
    w->writer->seal = bsf_has_footer(p, info.blocks) ? bsf_load(p + size - 12, 8) :
                      info.blocks ? bsf_load(p + info.header_size + 4, 8) : info.header_check;
    status = bsf_may_refer(w, place, info.count);
    if (!status) status = bsf_begin_frame(w, place, info.elements_size, info.count * bitsnap_width(info.base_dtype));
    if (!status) status = bsf_put_out(w, frame, size);
    w->source_size += source_bytes;
    bsf_end_frame(w);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_write_end(bitsnap_file_writer *w)
{
    bsf_writer *x = w->writer;
    bitsnap_file_end end;
    uint8_t *record, digest[BITSNAP_SHA256_SIZE];
    size_t size;
    bitsnap_status status;
    if (x->expected && w->source_size != x->expected)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "data is missing");
    if (x->incompatible & BITSNAP_FILE_REFERENCES && !x->refers)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 36, w->size, "references to earlier data announced, but there are none");
    if (w->source_size > BITSNAP_FILE_MOST || w->size > BITSNAP_FILE_MOST)
        return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "is too large: 2^48 bytes or more");
    memset(&end, 0, sizeof end);
    end.records = x->records.entries;
    end.record_count = x->records.count;
    end.names = x->names;
    end.name_count = x->name_count;
    end.source_size = w->source_size;
    end.file_check = x->check;
    end.records_end = w->size;
    end.incompatible = x->incompatible;
    end.compatible = x->compatible;
    if (x->compatible & BITSNAP_FILE_SHA256) {
        if (x->hashed != w->source_size)
            return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "the SHA-256 has not been given all of the source");
        bitsnap_strong_hash_end(&x->strong, digest);
        end.sha256 = digest;
    }
    status = bitsnap_end_record(&record, &size, &end, x->memory, &w->error);
    if (status) return status;
    status = bsf_put_out(w, record, size);
    bsf_release(x->memory, record);
    return status;
}

BITSNAP_API void bitsnap_file_write_close(bitsnap_file_writer *w)
{
    bsf_writer *x = w->writer;
    if (x) {
        bsf_take_back(w->b, x->workspace);
        bsf_release(x->memory, x->workspace);
        bsf_release(x->memory, w->stream.index);
        bsf_release(x->memory, x->packed);
        bsf_release(x->memory, x->records.entries);
        bsf_release(x->memory, x->names);
        bsf_release(x->memory, x->elements);
        bsf_release(x->memory, x->runs);
        bsf_release(x->memory, x->bases);
        bsf_release(x->memory, x->window.elements);
        bitsnap_safetensors_free(&x->model);
        bsf_release(x->memory, x);
    }
    memset(w, 0, sizeof *w);
}

/* ---- data that is cut here ---- */

typedef struct bsf_builder {
    const bitsnap_memory *memory;
    uint8_t *p;
    size_t room, size;
    bitsnap_file_error *error; /* its status is that of the whole */
} bsf_builder;

static void bsf_add(bsf_builder *x, const char *p, size_t size)
{
    if (x->error->status || bsf_grow(x->memory, &x->p, &x->room, x->size + size, x->error)) return;
    if (size) memcpy(x->p + x->size, p, size);
    x->size += size;
}

static void bsf_add_text(bsf_builder *x, const char *text) { bsf_add(x, text, strlen(text)); }

static void bsf_add_number(bsf_builder *x, uint64_t n)
{
    char digits[20];
    size_t i = sizeof digits;
    do digits[--i] = (char)('0' + n % 10);
    while (n /= 10);
    bsf_add(x, digits + i, sizeof digits - i);
}

static void bsf_add_string(bsf_builder *x, bitsnap_slice s)
{
    static const char hex[] = "0123456789abcdef";
    size_t i;
    bsf_add(x, "\"", 1);
    for (i = 0; i < s.size; i++) {
        const unsigned char c = (unsigned char)s.at[i];
        if (c < 32) {
            bsf_add_text(x, "\\u00");
            bsf_add(x, hex + c / 16, 1);
            bsf_add(x, hex + c % 16, 1);
            continue;
        }
        if (c == '"' || c == '\\') bsf_add(x, "\\", 1);
        bsf_add(x, s.at + i, 1);
    }
    bsf_add(x, "\"", 1);
}

BITSNAP_API bitsnap_status bitsnap_safetensors_write(char **text, size_t *size, bitsnap_tensor *tensors, size_t count, const char *metadata,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error)
{
    bsf_builder x = { NULL, NULL, 0, 0, NULL };
    bitsnap_safetensors s;
    uint64_t at = 0;
    size_t i;
    memset(error, 0, sizeof *error);
    x.memory = memory;
    x.error = error;
    bsf_add_text(&x, "{");
    if (metadata) {
        bsf_add_text(&x, "\"__metadata__\":");
        bsf_add_text(&x, metadata);
    }
    for (i = 0; i < count; i++) {
        bitsnap_tensor *t = &tensors[i];
        uint64_t dimension, bytes = t->end - t->begin;
        size_t k = 0;
        t->type = bitsnap_element_type_find(t->dtype.at, t->dtype.size, 0);
        for (t->elements = 1; bitsnap_shape_next(t->shape, &k, &dimension);) t->elements *= dimension; /* is looked at below */
        if (t->type) bytes = t->elements / 8 * t->type->bits + t->elements % 8 * t->type->bits / 8;
        t->begin = at;
        t->end = at += bytes;
        bsf_add_text(&x, i || metadata ? "," : "");
        bsf_add_string(&x, t->name);
        bsf_add_text(&x, ":{\"dtype\":");
        bsf_add_string(&x, t->dtype);
        bsf_add_text(&x, ",\"shape\":");
        bsf_add(&x, t->shape.at, t->shape.size);
        bsf_add_text(&x, ",\"data_offsets\":[");
        bsf_add_number(&x, t->begin);
        bsf_add_text(&x, ",");
        bsf_add_number(&x, t->end);
        bsf_add_text(&x, "]}");
    }
    bsf_add_text(&x, "}");
    while (!error->status && x.size % 8) bsf_add_text(&x, " ");
    if (!error->status && x.size > BITSNAP_TEXT_MAX)
        (void)bsf_fail(error, BITSNAP_E_ARGUMENT, 0, 0, "a header text of more than 100000000 bytes");
    if (!error->status) {
        (void)bitsnap_safetensors_parse(&s, (const char *)x.p, x.size, memory, error);
        if (!error->status && s.count != count) (void)bsf_fail(error, BITSNAP_E_CORRUPT, 0, 0, "two tensors of one name");
        bitsnap_safetensors_free(&s);
    }
    if (error->status) bsf_release(memory, x.p);
    *text = error->status ? NULL : (char *)x.p;
    *size = error->status ? 0 : x.size;
    if (error->status) memset(&error->tensor, 0, sizeof error->tensor);
    return error->status;
}

/* The bases as the record has them. */
static bitsnap_status bsf_describe_bases(bitsnap_file_base *list, bitsnap_file *const *bases, size_t count, bitsnap_file_error *error)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const char *its = NULL;
        if (bitsnap_file_text(bases[i], &its)) {
            *error = bases[i]->error;
            error->base = (unsigned)i;
            return error->status;
        }
        list[i].name = bases[i]->name;
        list[i].text_size = bases[i]->text_size;
        list[i].data_size = bases[i]->data_size;
        list[i].text_id = bitsnap_hash(its, (size_t)bases[i]->text_size);
        list[i].file = bases[i];
    }
    return BITSNAP_OK;
}

/* Finds the elements of a base that the tensor is coded against. Returns their dtype; 0: no base has any. */
static bitsnap_dtype bsf_partner(const bitsnap_file_writer *w, const bitsnap_tensor *t, bitsnap_file_place *place)
{
    const bsf_writer *x = w->writer;
    bitsnap_dtype dtype = (bitsnap_dtype)0;
    bitsnap_tensor old;
    unsigned i;
    for (i = 0; i < x->base_count && !dtype; i++) {
        if (bitsnap_file_find(x->bases[i].file, t->name.at, t->name.size, &old)) continue;
        if (!bitsnap_shape_same(t->shape, old.shape)) continue;
        dtype = bitsnap_tensor_base(t, &old);
        if (dtype == bitsnap_tensor_codec(t) && old.end - old.begin != t->end - t->begin) dtype = (bitsnap_dtype)0; /* an unknown dtype */
        place->base = i;
        place->begin = old.begin;
    }
    return dtype;
}

/* The columns of a tensor that is a frame of its own, for them: at level best large matrices are. */
static uint64_t bsf_columns(const bitsnap_file_writer *w, const bitsnap_tensor *t)
{
    uint64_t dimension = 0;
    size_t at = 0, count = 0;
    while (bitsnap_shape_next(t->shape, &at, &dimension)) count++;
    return w->b->level == BITSNAP_BEST && !w->writer->base_count && bitsnap_tensor_has_octaves(t) && count > 1 && dimension >= 16 &&
           t->elements >= 32768 ? dimension : 0;
}

static int bsf_run_refers(const bsf_run *r) { return r->base_dtype && r->place.base == BITSNAP_BASE_ITSELF; }

static uint64_t bsf_run_count(const bsf_run *r) { return r->bytes / bitsnap_width(r->dtype); }

static uint64_t bsf_base_end(const bsf_run *r) { return r->place.begin + bsf_run_count(r) * bitsnap_width(r->base_dtype); }

/* Appends a run: bytes from `first` on of a tensor. `r`: the reference that it has, or null. */
static bitsnap_status bsf_add_run(bitsnap_file_writer *w, size_t tensor, uint64_t first, uint64_t bytes, const bitsnap_reference *r)
{
    bsf_writer *x = w->writer;
    const bitsnap_tensor *t = &x->model.tensors[tensor];
    uint8_t *runs = (uint8_t *)x->runs;
    size_t room = x->run_room;
    bsf_run *run;
    const bitsnap_status status = bsf_grow(x->memory, &runs, &room, (x->run_count + 1) * sizeof *run, &w->error);
    if (status) return status;
    x->runs = (bsf_run *)(void *)runs;
    x->run_room = room;
    run = &x->runs[x->run_count++];
    memset(run, 0, sizeof *run);
    run->begin = t->begin + first;
    run->bytes = bytes;
    run->dtype = bitsnap_tensor_codec(t);
    run->tensor = tensor;
    if (r) {
        run->base_dtype = (bitsnap_dtype)r->base_dtype;
        run->place.base = BITSNAP_BASE_ITSELF;
        run->place.begin = r->base;
        return BITSNAP_OK;
    }
    run->base_dtype = bsf_partner(w, t, &run->place);
    if (run->base_dtype) run->place.begin += first / bitsnap_width(run->dtype) * bitsnap_width(run->base_dtype);
    if (bytes == t->end - t->begin) run->columns = bsf_columns(w, t);
    return BITSNAP_OK;
}

static bitsnap_status bsf_refuse(bitsnap_file_writer *w, unsigned rule, size_t tensor, const char *message)
{
    (void)bsf_fail(&w->error, BITSNAP_E_ARGUMENT, rule, w->size, message);
    if (tensor < w->writer->model.count) w->error.tensor = w->writer->model.tensors[tensor].name;
    return w->error.status;
}

/* Returns 1 if elements of a dtype can be coded against `base`: the dtypes are equal, or one is F32 and the other F16 or BF16. */
static int bsf_dtypes_fit(bitsnap_dtype dtype, int base)
{
    const bitsnap_dtype other = base == BITSNAP_F32 ? dtype : (bitsnap_dtype)base;
    return base == (int)dtype || ((base == BITSNAP_F32 || dtype == BITSNAP_F32) && (other == BITSNAP_F16 || other == BITSNAP_BF16));
}

/* Cuts the tensors where references begin and end. */
static bitsnap_status bsf_cut(bitsnap_file_writer *w, const bitsnap_reference *r, size_t count)
{
    const bitsnap_safetensors *model = &w->writer->model;
    size_t i, k = 0;
    bitsnap_status status = BITSNAP_OK;
    for (i = 0; i < model->count; i++) {
        const bitsnap_tensor *t = &model->tensors[i];
        const unsigned width = bitsnap_width(bitsnap_tensor_codec(t));
        uint64_t done = 0;
        for (; k < count && r[k].tensor == i && !status; k++) {
            const uint64_t elements = (t->end - t->begin) / width, first = r[k].first;
            const uint64_t begin = t->begin + first * width;
            if (first > elements || !r[k].count || r[k].count > elements - first || first * width < done)
                return bsf_refuse(w, 0, i, "a reference of elements that the tensor does not have, or that another one has");
            if (!bsf_dtypes_fit(bitsnap_tensor_codec(t), r[k].base_dtype)) return bsf_refuse(w, 0, i, "a reference to elements of a dtype that is no base");
            if (r[k].base > begin || r[k].count > (begin - r[k].base) / bitsnap_width((bitsnap_dtype)r[k].base_dtype))
                return bsf_refuse(w, 37, i, "a reference to data that do not lie before it");
            if (first * width > done) status = bsf_add_run(w, i, done, first * width - done, NULL);
            done = (first + r[k].count) * width;
            if (!status) status = bsf_add_run(w, i, first * width, r[k].count * width, &r[k]);
        }
        if (!status && t->begin + done < t->end) status = bsf_add_run(w, i, done, t->end - t->begin - done, NULL);
        if (status) return status;
    }
    return k < count ? bsf_refuse(w, 0, r[k].tensor, "references that are not in the order of their bytes, or of a tensor that there is not") : status;
}

/* Sets `last` of the runs that others refer to. */
static bitsnap_status bsf_find_kept(bitsnap_file_writer *w)
{
    bsf_run *runs = w->writer->runs;
    const size_t count = w->writer->run_count;
    size_t i, low, high;
    for (i = 0; i < count; i++) {
        if (!bsf_run_refers(&runs[i])) continue;
        for (low = 0, high = count; high - low > 1;) {
            const size_t middle = low + (high - low) / 2;
            if (runs[middle].begin <= runs[i].place.begin) low = middle;
            else high = middle;
        }
        for (; runs[low].begin < bsf_base_end(&runs[i]); low++) {
            if (bsf_run_refers(&runs[low])) return bsf_refuse(w, 38, runs[i].tensor, "a reference to elements that refer themselves");
            runs[low].last = runs[i].begin;
        }
    }
    return BITSNAP_OK;
}

/* Returns 1 if run b can continue run a. If later runs refer to only one of them, the other must be small, because a sequential reader keeps
 * both in memory. */
static int bsf_goes_on(const bsf_run *a, const bsf_run *b)
{
    if (a->dtype != b->dtype || a->columns || b->columns || a->base_dtype != b->base_dtype) return 0;
    if (!a->last != !b->last && (a->last ? b : a)->bytes > BITSNAP_KEPT_BESIDE) return 0;
    return !a->base_dtype || (a->place.base == b->place.base && bsf_base_end(a) == b->place.begin);
}

/* Makes the runs. */
static bitsnap_status bsf_plan(bitsnap_file_writer *w, const bitsnap_file_content *content)
{
    bsf_writer *x = w->writer;
    size_t i, n = 0;
    bitsnap_status status = bsf_cut(w, content->references, content->reference_count);
    if (!status) status = bsf_find_kept(w);
    for (i = 0; i < x->run_count && !status; i++) {
        if (n && bsf_goes_on(&x->runs[n - 1], &x->runs[i])) {
            x->runs[n - 1].bytes += x->runs[i].bytes;
            x->runs[n - 1].last |= x->runs[i].last;
        } else x->runs[n++] = x->runs[i];
    }
    x->run_count = n;
    for (i = 0; i < n && !status; i++)
        if (bsf_run_refers(&x->runs[i]) && bsf_run_count(&x->runs[i]) < BITSNAP_REFERENCE_LEAST)
            status = bsf_refuse(w, 40, x->runs[i].tensor, "references of fewer than 4096 elements, with those of neighbours");
    return status ? status : bsf_find_kept(w); /* again, as runs have become longer */
}

BITSNAP_API bitsnap_status bitsnap_file_write_begin(bitsnap_file_writer *w, bitsnap *b, const bitsnap_sink *sink,
                                                    const bitsnap_file_content *content, const bitsnap_memory *memory)
{
    const char *text = content->text;
    const size_t text_size = content->text_size, base_count = content->base_count;
    bitsnap_file_head h;
    bitsnap_safetensors model;
    bitsnap_file_error error;
    bitsnap_file_base *list = NULL;
    uint8_t *coded = NULL;
    bitsnap_status status;
    memset(&h, 0, sizeof h);
    memset(&error, 0, sizeof error);
    memset(&model, 0, sizeof model);
    memset(w, 0, sizeof *w);
    h.source_size = UINT64_MAX;
    h.sha256 = (content->features & BITSNAP_FILE_SHA256) != 0;
    h.references = content->reference_count != 0;
    if (text) {
        h.kind = BITSNAP_SOURCE_SAFETENSORS;
        h.text = text;
        h.text_size = text_size;
        if (!bitsnap_safetensors_parse(&model, text, text_size, memory, &error)) h.source_size = 8 + text_size + model.data_size;
    }
    if (!error.status && base_count) {
        list = (bitsnap_file_base *)bsf_resize(memory, NULL, base_count * sizeof *list);
        if (!list) (void)bsf_no_memory(&error);
    }
    if (!error.status && base_count && !bsf_describe_bases(list, content->bases, base_count, &error)) {
        h.kind = BITSNAP_SOURCE_DELTA;
        h.text_id = bitsnap_hash(text, text_size);
        h.bases = list;
        h.base_count = base_count;
        if (h.text_id != list->text_id || text_size != list->text_size)
            (void)bitsnap_text_encode(&coded, &h.coded_size, text, text_size, memory, &error);
        h.coded = coded;
    }
    status = error.status ? error.status : bitsnap_file_write_head(w, b, sink, &h, memory);
    bsf_release(memory, coded);
    bsf_release(memory, list);
    if (error.status) w->error = error;
    if (status) {
        bitsnap_safetensors_free(&model);
        memset(&w->error.tensor, 0, sizeof w->error.tensor);
        return status;
    }
    w->writer->model = model;
    if (text) w->writer->expected = h.source_size;
    return bsf_plan(w, content);
}

/* The frame of the next run. */
static bitsnap_status bsf_begin_run(bitsnap_file_writer *w)
{
    bsf_writer *x = w->writer;
    bitsnap *b = w->b;
    const bsf_run *run;
    bitsnap_status status;
    uint64_t count, needed;
    if (x->next == x->run_count) return bsf_fail(&w->error, BITSNAP_E_ARGUMENT, 0, w->size, "more data than the header text says");
    run = &x->runs[x->next++];
    x->left = run->bytes;
    count = bsf_run_count(run);
    memset(&b->base, 0, sizeof b->base);
    if (run->base_dtype) b->base.dtype = run->base_dtype;
    b->columns = run->columns;
    b->flags |= BITSNAP_CONTENT_ID;
    w->referred = run->last;
    status = bitsnap_file_write_frame(w, run->dtype, count, run->base_dtype ? &run->place : NULL);
    needed = status ? 0 : bitsnap_workspace_size(b, count, run->dtype);
    if (needed && b->workspace == x->workspace && b->workspace_size < needed) { /* both null, or one made here */
        bsf_release(x->memory, x->workspace);
        b->workspace = x->workspace = bsf_resize(x->memory, NULL, (size_t)needed);
        b->workspace_size = x->workspace ? (size_t)needed : 0;
        if (!x->workspace) return bsf_no_memory(&w->error);
    }
    return status;
}

BITSNAP_API bitsnap_status bitsnap_file_write_data(bitsnap_file_writer *w, const void *data, size_t size)
{
    bsf_writer *x = w->writer;
    const uint8_t *p = (const uint8_t *)data;
    bitsnap_status status = BITSNAP_OK;
    while (size && !status) {
        size_t n, room;
        if (!x->left) status = bsf_begin_run(w);
        if (status) break;
        room = (size_t)w->stream.width << (w->stream.block_log2 < 18 ? 18 : w->stream.block_log2);
        status = bsf_grow(x->memory, &x->elements, &x->elements_room, room, &w->error);
        if (status) break;
        n = size < room - x->held ? size : room - x->held;
        if (n > x->left) n = (size_t)x->left;
        bitsnap_file_write_source(w, p, n);
        memcpy(x->elements + x->held, p, n);
        x->held += n;
        x->left -= n;
        p += n;
        size -= n;
        if (x->held < room && x->left) continue;
        bsf_swap_elements(x->elements, x->held, w->stream.width);
        status = bitsnap_file_write_elements(w, x->elements, x->held / w->stream.width);
        x->held = 0;
        if (!status && !x->left) status = bitsnap_file_write_frame_end(w);
    }
    return status;
}
#endif

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_FILE_IMPLEMENTATION */
