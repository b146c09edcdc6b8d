/* bitsnap.h - a codec for tensor checkpoints. MIT licence, see the end of the file.
 *
 * Lossless by default, self-describing, checksummed, fast on one core. No heap, no global state, no
 * dependency beyond memcpy, memmove and memset. Copy this file, and bitsnap_simd.h for speed. In exactly ONE
 * .c (or .cpp) file write
 *
 *     #define BITSNAP_IMPLEMENTATION
 *     #include "bitsnap_simd.h"                   // or "bitsnap.h" alone: the same bytes, slower
 *
 * and then, anywhere:
 *
 *     static unsigned char workspace[BITSNAP_WORKSPACE];               // one per thread
 *     bitsnap b = {0};                                                 // zero means default
 *     b.workspace = workspace;  b.workspace_size = sizeof workspace;
 *
 *     size_t size;                                                     // compress n bf16 weights
 *     if (bitsnap_encode(&b, frame, bitsnap_bound(&b, n, BITSNAP_BF16), &size, weights, n, BITSNAP_BF16))
 *         fprintf(stderr, "%s at byte %llu\n", bitsnap_message(&b), (unsigned long long)b.error.offset);
 *
 *     if (bitsnap_decode(&b, weights, n, BITSNAP_BF16, frame, size))   // and back, bit for bit
 *         ...                                                          // damaged, foreign or truncated
 *
 *     bitsnap_decode_range(&b, some, first, count, BITSNAP_BF16, frame, size);   // only the blocks it needs
 *     ... with b.base: a delta against the base; bitsnap_apply(): the live tensor in place, all or nothing
 *     ... with b.quantizer: optimizer states, each element within a bound, measured and certified
 *     bitsnap_read_info(&info, frame, size);                           // inspects, decodes nothing
 *
 * What it costs: 109 KB of code to decode whole tensors, 215 KB to encode them, too, 337 KB for everything
 * (gcc 12 -O2, x86-64, this file alone; see the switches below). BITSNAP_WORKSPACE is 1 MiB;
 * bitsnap_workspace_size() says what a call needs.
 *
 * How it works: a float's exponent is skewed, its sign and mantissa are noise. Elements are split into byte
 * planes. The exponents are coded with a canonical Huffman code whose tree nodes are stored as bitmasks
 * (pivot coding: each node holds one bit for every symbol that passes it), so that decoding merges lists by
 * masks, without a table look-up per symbol. The other bits are copied. The pieces can be called alone, with
 * an example at each: byte grouping (PLANES), canonical Huffman (HUFFMAN), bitmask deltas (BITMASK), cluster
 * quantization (QUANTIZE).
 *
 *     tensor -> planes -> lists -> block -> frame          docs/FORMAT.md specifies every byte
 *
 * To change the codec: see "Where a change begins", below the declarations.
 *
 * The contract of every function below:
 *   - Sizes are in bytes, counts (`count`, `n`) in elements. Pointers to bytes (void, uint8_t) need no
 *     alignment. A pointer may be null if its size is 0. Buffers must not overlap unless a comment allows it.
 *   - Results depend on the arguments only: the same input, options and version give the same bytes with
 *     every compiler, processor, kernel table and number of threads. Functions are thread-safe, given one
 *     `bitsnap` and one workspace per thread.
 *   - Malicious input is safe: no decoder reads or writes outside the buffers it is given, loops forever, or
 *     takes more than linear time in (input + output).
 *   - If another thread or process modifies the source, the base or the elements during a call, the call
 *     still returns, with an error or wrong elements, and touches only its own buffers.
 *   - After an error the destination holds an unspecified mixture of its old bytes and bytes written by the
 *     call, never uninitialised memory. `size` outputs are 0. The error reported is that of the first bad
 *     block, with any number of threads.
 *   - Stack: less than 8 KiB for the deepest chain of calls. No recursion.
 *   - Checksums (XXH3-64) detect accidents, not attacks: sign the frame if you need authenticity.
 */
#ifndef BITSNAP_H
#define BITSNAP_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BITSNAP_VERSION_MAJOR 1
#define BITSNAP_VERSION_MINOR 0
#define BITSNAP_VERSION_PATCH 0
#define BITSNAP_VERSION "1.0.0-rc1"

/* The prefix of each public function. By default functions have hidden visibility, so that two libraries in
 * one process can embed different versions. Define the same in all files:
 *   BITSNAP_EXPORT  to export them from a shared library,
 *   BITSNAP_STATIC  to make them static: usable only in the file with the implementation,
 *   BITSNAP_API     to replace the prefix. */
#ifndef BITSNAP_API
#if defined(BITSNAP_STATIC) && (defined(__GNUC__) || defined(__clang__))
#define BITSNAP_API static __attribute__((unused)) /* without a warning */
#elif defined(BITSNAP_STATIC)
#define BITSNAP_API static
#elif defined(_WIN32) || defined(__CYGWIN__)
#ifdef BITSNAP_EXPORT
#define BITSNAP_API __declspec(dllexport) extern
#endif
#elif defined(__GNUC__) || defined(__clang__)
#ifdef BITSNAP_EXPORT
#define BITSNAP_API __attribute__((visibility("default"))) extern
#else
#define BITSNAP_API __attribute__((visibility("hidden"))) extern
#endif
#endif
#ifndef BITSNAP_API
#define BITSNAP_API extern
#endif
#endif

BITSNAP_API const char *bitsnap_version(void); /* BITSNAP_VERSION of the implementation that is called */

/* Switches remove features - declarations, code and kernels - from small programs. Define the same in all
 * files.
 *   BITSNAP_NO_ENCODE    all encoders; decoders remain
 *   BITSNAP_NO_DELTA     deltas and bitsnap_apply: frames with a base, and options that ask for one, are
 *                        BITSNAP_E_UNSUPPORTED
 *   BITSNAP_NO_QUANTIZE  quantizers: quantized frames are BITSNAP_E_UNSUPPORTED; bitsnap_read_info reports
 *                        them without their certificate
 *   BITSNAP_NO_PARTS     the building blocks on their own: masks, planes, lists, clusters
 *   BITSNAP_NO_EXTRAS    bitsnap_verify, bitsnap_read_block, bitsnap_merge, bitsnap_invert
 * Two profiles are sets of switches. docs/EMBEDDING.md has their sizes.
 *   BITSNAP_DECODE_ONLY    all five: decodes lossless frames without a base, and inspects all frames
 *   BITSNAP_LOSSLESS_ONLY  all but BITSNAP_NO_ENCODE: encodes these frames, too */
#if defined(BITSNAP_DECODE_ONLY) && !defined(BITSNAP_NO_ENCODE)
#define BITSNAP_NO_ENCODE
#endif
#if defined(BITSNAP_DECODE_ONLY) || defined(BITSNAP_LOSSLESS_ONLY)
#ifndef BITSNAP_NO_DELTA
#define BITSNAP_NO_DELTA
#endif
#ifndef BITSNAP_NO_QUANTIZE
#define BITSNAP_NO_QUANTIZE
#endif
#ifndef BITSNAP_NO_PARTS
#define BITSNAP_NO_PARTS
#endif
#ifndef BITSNAP_NO_EXTRAS
#define BITSNAP_NO_EXTRAS
#endif
#endif

/* ================================================================================= TYPES */

/* Element types. The values are those of the format. */
typedef enum bitsnap_dtype {
    BITSNAP_BOOL = 1,    /* 1 byte, any value is kept */
    BITSNAP_I8 = 2,      /* integers, signed or unsigned, which are coded alike */
    BITSNAP_I16 = 3,
    BITSNAP_I32 = 4,
    BITSNAP_I64 = 5,
    BITSNAP_F8_E4M3 = 6, /* 1 sign, 4 exponent, 3 mantissa bits (e4m3fn) */
    BITSNAP_F8_E5M2 = 7, /* 1, 5, 2 */
    BITSNAP_F16 = 8,     /* IEEE binary16 */
    BITSNAP_BF16 = 9,    /* the upper half of binary32 */
    BITSNAP_F32 = 10,
    BITSNAP_F64 = 11
} bitsnap_dtype;

/* The result of a call. */
typedef enum bitsnap_status {
    BITSNAP_OK = 0,
    BITSNAP_E_ARGUMENT = 1,    /* the caller's mistake: unknown dtype, null pointer, range outside the array;
                                  error.argument */
    BITSNAP_E_WORKSPACE = 2,   /* workspace too small; error.needed */
    BITSNAP_E_CAPACITY = 3,    /* destination too small: see bitsnap_bound */
    BITSNAP_E_MAGIC = 4,       /* not a bitsnap frame */
    BITSNAP_E_UNSUPPORTED = 5, /* a frame, but this build does not read its version, or a form or extension in
                                  it */
    BITSNAP_E_TRUNCATED = 6,   /* the source ends inside the frame */
    BITSNAP_E_TRAILING = 7,    /* bytes follow the frame */
    BITSNAP_E_CHECK = 8,       /* a check does not match: damaged in storage or transport */
    BITSNAP_E_CORRUPT = 9,     /* the bytes break the grammar of the format: a bad encoder, or damage */
    BITSNAP_E_MISMATCH = 10,   /* a good frame, but of another dtype or count than asked for */
    BITSNAP_E_BASE = 11,       /* wrong or missing base (deltas) */
    BITSNAP_E_CANCELLED = 12,  /* the progress callback asked to stop */
    BITSNAP_E_DIFFERENT = 13,  /* bitsnap_verify: the frame decodes to other elements */
    BITSNAP_E_SOURCE = 14      /* the callback of a source failed */
} bitsnap_status;

/* The reject conditions of docs/FORMAT.md, section 9: number, status, name, message. R5, R11, R31 and R51 are
 * unused. Numbers from 100 on do not concern the frame. */
#define BITSNAP_RULES(R) \
    R(1, MAGIC, MAGIC, "not a bitsnap frame") \
    R(2, UNSUPPORTED, VERSION, "another version of the format than 1: made by a newer bitsnap, or (version 0) by a release before 1.0") \
    R(3, UNSUPPORTED, EXTENSION, "an extension that is not known: made by a newer bitsnap") \
    R(4, UNSUPPORTED, FAMILY, "quantized in a way that is not known: made by a newer bitsnap") \
    R(6, TRUNCATED, TRUNCATED, "truncated: the data ends inside the frame") \
    R(7, TRAILING, TRAILING, "bytes behind the end of the frame") \
    R(8, CHECK, HEADER_CHECK, "damaged: the check of the header does not match") \
    R(9, CHECK, BLOCK_CHECK, "damaged: the check of a block does not match") \
    R(10, CHECK, FOOTER_CHECK, "damaged: the check of the footer does not match") \
    R(12, CHECK, CONTENT_ID, "damaged: the elements do not have the content id") \
    R(13, UNSUPPORTED, DTYPE, "a dtype that is not known: made by a newer bitsnap") \
    R(14, UNSUPPORTED, BLOCK_LOG2, "a block size that is not known: made by a newer bitsnap") \
    R(15, CORRUPT, FORM, "a form of block that the frame cannot have") \
    R(16, CORRUPT, BODY_SIZE, "wrong size of a block") \
    R(17, CORRUPT, RUN, "a run past the end of the frame") \
    R(18, CORRUPT, PLANES, "raw planes longer than their block") \
    R(19, CORRUPT, DESCRIPTOR, "wrong symbol size") \
    R(20, CORRUPT, CONSTANT_BITS, "wrong constant bits") \
    R(21, CORRUPT, EXPONENT_BASE, "wrong base of exponents") \
    R(22, CORRUPT, PLANE_TAIL, "bits behind the end of a bit plane") \
    R(23, UNSUPPORTED, LIST_KIND, "a kind of list that is not known: made by a newer bitsnap") \
    R(24, CORRUPT, LIST_END, "a list that does not end inside its block") \
    R(25, CORRUPT, SYMBOL, "a symbol outside its alphabet") \
    R(26, CORRUPT, TABLE, "a table that is not canonical") \
    R(27, CORRUPT, TABLE_TAIL, "bits behind the end of a table") \
    R(28, CORRUPT, CODE_LENGTHS, "code lengths that are no complete code") \
    R(29, CORRUPT, SMALL_TREE, "a tree for fewer than 16 elements") \
    R(30, CORRUPT, DEPTH, "lists nested too deeply") \
    R(32, CORRUPT, MASK_TAIL, "bits behind the end of a mask") \
    R(33, CORRUPT, BODY_END, "bytes left behind the last list of a block") \
    R(34, CORRUPT, COUNT, "more than 2^48 elements") \
    R(35, UNSUPPORTED, FLAGS, "flags that are not known: made by a newer bitsnap") \
    R(36, CORRUPT, EXTENSIONS, "extensions that do not fit the header, or the footer") \
    R(37, CORRUPT, FOOTER_MAGIC, "a footer without its magic") \
    R(38, CORRUPT, FRAME_SIZE, "wrong frame size in the footer") \
    R(39, CORRUPT, INDEX_SIZE, "wrong number of blocks in the footer") \
    R(40, CORRUPT, INDEX_BLOCKS, "the index does not match the blocks") \
    R(41, CORRUPT, INDEX_END, "the index does not cover the frame") \
    R(42, CORRUPT, BASE_EXTENSION, "a base that does not fit the frame") \
    R(43, BASE, BASE, "this delta needs its base: give the tensor it was made against") \
    R(44, BASE, BASE_HASH, "not the base that this delta was made against") \
    R(45, CHECK, ELEMENTS_HASH, "damaged: a block does not give the elements it was made from") \
    R(46, CORRUPT, CLASSES, "wrong classes") \
    R(47, CORRUPT, WORDS, "a list of words that breaks the format") \
    R(48, CORRUPT, QUANTIZER, "columns or a quantizer that do not fit the frame") \
    R(49, CORRUPT, SCALES, "wrong scales of rows and columns") \
    R(50, CORRUPT, NUMBER, "a number that the quantizer does not have") \
    R(52, CORRUPT, SPARSE, "changes of a SPARSE block that break their rules") \
    R(53, CHECK, INDEX_CHECK, "damaged: a block was replaced by one of another frame") \
    R(54, UNSUPPORTED, NEW_FORM, "a form of block that is not known: made by a newer bitsnap") \
    R(56, CORRUPT, PARTED, "granules or sides of a PARTED block that break their rules") \
    R(57, CORRUPT, CODED_PLANE, "a coded plane of a SPLIT block that breaks its rules") \
    R(58, CORRUPT, PATCHED, "the fields or the side of a PATCHED block that break their rules") \
    R(100, BASE, BASE_SOURCE, "the callback of the base failed") \
    R(101, BASE, BASE_WINDOW, "the window of the base does not hold the block") \
    R(102, SOURCE, SOURCE, "the callback of the source failed")

enum bitsnap_rule {
    BITSNAP_R_NONE = 0
#define BITSNAP_RULE_(number, status, name, message) , BITSNAP_R_##name = number
    BITSNAP_RULES(BITSNAP_RULE_)
#undef BITSNAP_RULE_
};

/* What went wrong, and where. Members that do not apply are 0. */
typedef struct bitsnap_error {
    bitsnap_status status;
    unsigned rule;        /* the reject condition, BITSNAP_R_... */
    uint64_t offset;      /* byte of the source where it was found, from the start of the frame */
    uint64_t element;     /* first element of the block concerned; bitsnap_verify: the element that differs */
    uint64_t needed;      /* BITSNAP_E_WORKSPACE, _CAPACITY: a sufficient size, in the unit of the argument
                             that is too small; _TRUNCATED of a decoder: the smallest number of bytes to
                             supply */
    const char *argument; /* BITSNAP_E_ARGUMENT: the argument or member at fault; BITSNAP_E_CAPACITY: "index"
                             if it is encoder.index that is too small; BITSNAP_E_UNSUPPORTED: the switch that
                             removed the feature, or null; a static string */
} bitsnap_error;

/* Compression levels of the encoder. Decoding does not depend on them. */
enum {
    BITSNAP_FAST = 1,    /* statistics from 1/16 of the symbols; rare symbols stored raw */
    BITSNAP_DEFAULT = 2, /* statistics from 1/8; rare symbols coded in a second pass; also 0 */
    BITSNAP_BEST = 3     /* exact statistics; alternatives compared by cost */
};

/* Bits of bitsnap.flags. */
enum {
    BITSNAP_NO_CHECKS = 1,  /* encode: omit the checksum of each block (8 bytes a block, and its time) */
    BITSNAP_CONTENT_ID = 2, /* encode: store the content id of the elements (end-to-end check; needed for
                               bases) */
    BITSNAP_VERIFY = 4,     /* encode: decode each block and compare it before going on */
    BITSNAP_IGNORE_CHECKS = 8, /* decode, except bitsnap_apply: skip all checksums and the content id; as
                                  memory-safe as ever */
    BITSNAP_SELF_CONTAINED = 16, /* encode with a base: a single class of differences, so that deltas can be
                                    merged and inverted without the base; 10 to 30 % larger; pruned elements
                                    have no form of their own */
    BITSNAP_ALLOW_TRAILING = 32 /* decode: accept bytes after the frame; bitsnap.used receives the frame's
                                   size */
};

/* Random access to bytes outside memory. read() stores the `size` bytes at `offset` to `to`; it returns 0, or
 * anything else unless it has stored them all. With `workers` > 1 it is called from several threads at
 * once. */
typedef struct bitsnap_source {
    int (*read)(void *context, uint64_t offset, void *to, size_t size); /* null: no source */
    void *context;
    const void *data; /* bitsnap_index_open: the bytes, if they are in memory; read() is then not called */
    uint64_t size;    /* of all the bytes. Not used for bases */
} bitsnap_source;

/* What a delta is made against: an earlier state of the same tensor; for F16 and BF16 also an F32 tensor (a
 * master copy) that rounds, to nearest even, to about the same elements; for F32 also the F16 or BF16 tensor
 * that it rounds to. Its count is that of the tensor. It is in memory, whole or in part (a window), or read
 * block by block from `source`: the workspace then includes a block for each worker. */
typedef struct bitsnap_base {
    const void *data;       /* null, and no source: no base */
    uint64_t count;
    bitsnap_dtype dtype;    /* the tensor's; BITSNAP_F32 for F16 and BF16, and these for BITSNAP_F32 */
    uint64_t id;            /* its content id if known, else 0: encoding then reads the base once more */
    uint64_t first, held;   /* the window: `data` holds elements first .. first + held - 1, which must include
                               all blocks that the call codes (else BITSNAP_E_BASE); encoding needs `id`. held
                               0: `data` is the whole base */
    bitsnap_source source;  /* instead of `data`: elements in native byte order. They may change: only checked
                               bytes are used */
} bitsnap_base;

/* Lossy coding: each element is replaced by a nearby value.
 * LOG-n: each octave, 2^k to 2^(k+1), is divided into n bins of equal ratio. All numbers of a bin become one
 * of them, at a relative distance of at most tanh(ln 2 / 2n) (plus 2^-22 for rounding). Zeros, infinities and
 * NaNs are preserved, and no other number becomes one of them; subnormal numbers obey the bound too.
 * Quantizing again changes nothing.
 * CLUSTER: as bitsnap_cluster_encode, for each block; infinities and NaNs are preserved. */
typedef struct bitsnap_quantizer {
    unsigned bins;     /* LOG-n: bins per octave, 1 .. 2048; see bitsnap_log_bins() */
    unsigned clusters; /* CLUSTER: clusters per block, 2 .. 256, usually 16, with 8 bits in each; no bound.
                          Both 0: lossless */
} bitsnap_quantizer;

typedef struct bitsnap_kernels bitsnap_kernels; /* a table of inner loops; see bitsnap_kernels_get */

/* One task of a parallel loop: index < count, worker < bitsnap.workers. */
typedef void (*bitsnap_task)(void *argument, uint64_t index, unsigned worker);

/* Options and scratch memory of a call; receives `used` and `error`. Plain data: zero it, then set what you
 * need. There is nothing to create or destroy, and no call keeps a pointer to it. Calls change `used` and
 * `error` alone: every option stays until you change it. So a struct that is used for several tensors needs
 * `base`, `quantizer` and `columns` set or zeroed for each. */
typedef struct bitsnap {
    size_t struct_size;     /* 0, or sizeof(bitsnap) as the caller was compiled. With another value, calls
                               return BITSNAP_E_ARGUMENT and write nothing here, because members may be at
                               other offsets; bitsnap_message says so */
    void *workspace;        /* scratch memory of any alignment; contents need not be kept between calls */
    size_t workspace_size;  /* to encode: bitsnap_workspace_size(); to decode: info.workspace_size.
                               BITSNAP_WORKSPACE is enough for default options */
    int level;              /* encode: BITSNAP_FAST, BITSNAP_DEFAULT or BITSNAP_BEST; 0 means default. Other
                               levels and unknown flags are BITSNAP_E_ARGUMENT for every function */
    unsigned flags;         /* BITSNAP_NO_CHECKS | ... */
    unsigned block_log2;    /* encode: log2 of the elements per block, 6 .. 20, with a base 16 .. 20. 0
                               chooses: 16 by default; with `columns`, if quantized or at level best: enough
                               for 128 rows (level best: 512), at least 16, and raised up to 18 while a short
                               last block (at most half full) follows fewer than 4; with a base: 17 for
                               elements of 4 or 8 bytes (level fast: 18); else 18 with BITSNAP_SELF_CONTAINED,
                               20 at level best, 19 otherwise; above 16 never more than the elements need.
                               The larger blocks of level best can cost bytes if only parts of them are
                               constant: 16, or 19 with a base, then makes smaller frames */
    const bitsnap_kernels *kernels; /* null: the fastest table of this machine */

    /* Threads. run(run_context, task, argument, count) must call task(argument, i, worker) once for each i <
     * count, in any order, and return when all calls have returned. It may use up to `workers` threads; two
     * concurrent calls must not have the same `worker`. It is called once every few MiB: let idle threads
     * spin for a while, since putting them to sleep at once can cost two threads a fifth of their speed.
     * Null: everything runs in the calling thread. */
    void (*run)(void *run_context, bitsnap_task task, void *argument, uint64_t count);
    void *run_context;
    unsigned workers;       /* 0 means 1 */

    /* Progress. Called in the calling thread, from time to time, with the number of elements done and the
     * total, while a tensor or a push is encoded, a frame or a pull is decoded, and deltas are merged or
     * inverted; not for ranges. Apply, merge and invert make several passes, and each pass counts from 0. A
     * non-zero return value cancels the call: BITSNAP_E_CANCELLED. Null: not called. */
    int (*progress)(void *progress_context, uint64_t done, uint64_t total);
    void *progress_context;

    bitsnap_base base;      /* encode: makes a delta; decode: the base of the delta. Only read */
    bitsnap_quantizer quantizer; /* encode: zero for lossless. Stays set for the next tensor too: info.bins
                                    and info.clusters of a frame are 0 if it is lossless. F16, BF16, F32, F64;
                                    not with a base or BITSNAP_CONTENT_ID */
    uint64_t columns;       /* encode: elements per row, the last dimension of the tensor; 0: unknown.
                               Quantized frames and level best exploit that the rows and columns of matrices
                               differ in scale. Need not divide the count: the last row may be short. A wrong
                               value costs bytes, never elements. Ignored with a base */

    void *journal;          /* apply: memory that outlives the process, as the elements do, or null; see
                               bitsnap_apply */
    size_t journal_size;    /* at least bitsnap_journal_size() */

    size_t used;            /* output of bitsnap_decode, _decode_range, _test, _verify, _apply: size of the
                               frame, or 0 */
    bitsnap_error error;    /* output of the last call; all 0 if it succeeded */
} bitsnap;

/* A workspace that is enough to encode and decode frames of the default block size on one thread, without
 * base, quantizer, columns. */
#define BITSNAP_WORKSPACE 1048576u

#ifndef BITSNAP_NO_ENCODE
/* What encoding `count` elements with the options in b needs (null: default options): the exact size of the
 * workspace, and the largest size of the frame. 0 if an option, count or dtype is invalid or the size exceeds
 * a size_t. b->base.data is not read: any pointer except null will do. */
BITSNAP_API size_t bitsnap_workspace_size(const bitsnap *b, uint64_t count, bitsnap_dtype dtype);
BITSNAP_API size_t bitsnap_bound(const bitsnap *b, uint64_t count, bitsnap_dtype dtype);
#endif

/* The quantization error of a frame, as the encoder measured it; all values are rounded up. A relative error
 * is relative to the magnitude of the element. */
typedef struct bitsnap_certificate {
    double bound;          /* the requested bound of every relative error; 0: none (clusters) */
    double max_relative;   /* saturates at 256 - 2^-24 */
    double mean_relative;  /* mean relative error (MRE); saturates at 2^40 / counted */
    double max_absolute;
    double mean_square;    /* mean square error (MSE) */
    uint64_t counted;      /* elements in the means: all in quantized blocks except zeros, infinities and
                              NaNs */
    uint64_t exact;        /* elements of quantized blocks stored unchanged; zeros are not counted, but -0 is
                              with clusters */
} bitsnap_certificate;

/* What header and footer of a frame state. */
typedef struct bitsnap_info {
    bitsnap_dtype dtype;
    unsigned width;          /* bytes of an element */
    uint64_t count;          /* elements, at most 2^48 */
    uint64_t elements_size;  /* count * width */
    uint64_t blocks;         /* count / 2^block_log2, rounded up */
    unsigned block_log2;
    unsigned version;        /* of the format */
    int checks;              /* 1 if blocks have checksums */
    int has_content_id;
    int has_base;            /* 1 for a delta, against a base of base_dtype and base_id */
    bitsnap_dtype base_dtype;
    uint64_t base_id;
    size_t header_size;
    uint64_t frame_size;     /* without what follows the frame; 0 if the source ends before it does */
    uint64_t content_id;     /* valid with has_content_id and a good footer */
    uint64_t seal;           /* identifies the contents: the footer's check; without a footer that of the only
                                block; else that of the header. Valid with a frame_size, and a good footer if
                                there is one */
    int extended;            /* 1: the footer has extensions */
    size_t workspace_size;   /* to decode with one worker */
    size_t worker_size;      /* for each further worker. With b->base.source add a block of the base for each
                                worker */
    size_t merge_size;       /* workspace to merge or invert it, with up to two workers */
    uint64_t bound;          /* largest size of such a frame, and of what merging and inverting make of it */
    uint64_t columns;        /* of a frame encoded with columns, else 0 */
    unsigned bins, clusters; /* of a quantized frame, else 0 */
    bitsnap_certificate certificate; /* of a quantized frame, if the footer is present */
    /* Blocks of a delta, counted in the index; valid with a good footer. */
    uint64_t same;           /* equal to the base */
    uint64_t sparse;         /* a few elements differ from the base, and are stored one by one */
    uint64_t classed;        /* coded as differences to the base, or as the elements that differ from it */
    uint64_t plain;          /* coded without the base */
    uint64_t header_check;   /* binds blocks to their frame */
} bitsnap_info;

/* ================================================================================= KERNELS */

/* The kernel tables that this machine can run, from slowest to fastest. Index 0 is always the scalar one;
 * null is returned past the last. All give the same bytes. Set bitsnap.kernels to override the default, the
 * last one, in tests or after measurements. */
BITSNAP_API const bitsnap_kernels *bitsnap_kernels_get(unsigned index);
/* "scalar", "avx2", ...; null: the fastest's */
BITSNAP_API const char *bitsnap_kernels_name(const bitsnap_kernels *kernels);

/* ================================================================================= HASH */

/* XXH3-64 of `size` bytes with seed 0, as in libxxhash. */
BITSNAP_API uint64_t bitsnap_hash(const void *data, size_t size);

/* The content id of an array: XXH3-64 of every 65536 elements as little-endian bytes, then XXH3-64 over those
 * hashes, the dtype and the count. Deltas identify their base by it. It does not depend on block sizes, and
 * can be computed in parallel and checked in part. Linear time. 0 for an unknown dtype. */
BITSNAP_API uint64_t bitsnap_content_id(const void *elements, uint64_t count, bitsnap_dtype dtype);

#ifndef BITSNAP_NO_PARTS
/* ================================================================================= BITMASK */

/* The codec of BitSnap (arXiv 2511.12376) on its own: a mask of the elements that differ from a base, and
 * their values. Element i is bit i % 8 (bit 0 the least significant) of byte i / 8. `width` is the size of an
 * element: 1, 2, 4 or 8 (else BITSNAP_E_ARGUMENT). `kernels` may be null. Elements are compared as bit
 * patterns: -0 differs from +0, and a NaN equals only itself. There is no header, no check and no id: the
 * caller keeps n, the width, the mask of ceil(n / 8) bytes and the values (native byte order). n elements
 * with c changed ones take n / 8 + c * width bytes: for 16-bit elements at best a sixteenth of the array, and
 * more than the array if over 15/16 changed.
 *
 * encode: writes the ceil(n / 8) bytes of the mask (bits after the last element are 0), the changed elements
 *         in order to `values` (null: not wanted), and their number to `count`, which must not be null.
 *         BITSNAP_E_CAPACITY: `values_capacity` (elements) is less than *count. The mask is then complete and
 *         `values` unspecified. `elements` and `base` may overlap.
 * decode: base, mask and values -> elements. `elements` may be `base`: unchanged elements are then neither
 *         read nor written. Verifies mask and values first: BITSNAP_E_CORRUPT, with nothing written, unless
 *         exactly `values_count` bits are set and those after the last element are 0. It cannot tell whether
 *         the base is the right one. In place it is all or nothing, provided that mask and values do not
 *         change during the call, and can be repeated after an interruption, since values are stored, not
 *         added.
 *
 * Linear time, memory-bound if little has changed. Outputs must not overlap inputs in any other way.
 *
 *     bitsnap_mask_encode(NULL, 2, live, base, n, mask, values, n, &changed);      // what differs from the
 *                                                                                  base
 *     bitsnap_mask_decode(NULL, 2, copy, copy, n, mask, values, changed);          // brings a copy of the
 *                                                                                  base up to date */
BITSNAP_API bitsnap_status bitsnap_mask_encode(const bitsnap_kernels *kernels, unsigned width,
                                               const void *elements, const void *base, size_t n, void *mask,
                                               void *values, size_t values_capacity, size_t *count);
BITSNAP_API bitsnap_status bitsnap_mask_decode(const bitsnap_kernels *kernels, unsigned width, void *elements, const void *base,
                                               size_t n, const void *mask, const void *values, size_t values_count);
/* ================================================================================= PLANES */

/* Byte grouping, in the layout of frames. `planes` holds one plane of n bytes for each byte of an element;
 * both buffers have n * width bytes. Plane k is byte k of every element (0 the least significant), but the
 * sign of floats moves to the bit below the symbol (the exponent; in F64 its upper 8 bits), so that the top
 * plane holds the exponent alone. Integers keep their bits. In each full group of 64 elements bytes are in
 * pair order: position width * j + q of a plane is element (64 / width) * q + j. Joining then takes shifts
 * and masks, no shuffle.
 *
 *     bitsnap_planes_split(NULL, planes, numbers, n, BITSNAP_F32);                 // planes + 3 * n: the
 *                                                                                  exponents
 *     bitsnap_planes_join(NULL, numbers, planes, n, BITSNAP_F32); */
BITSNAP_API bitsnap_status bitsnap_planes_split(const bitsnap_kernels *kernels, void *planes,
                                                const void *elements, size_t n, bitsnap_dtype dtype);
BITSNAP_API bitsnap_status bitsnap_planes_join(const bitsnap_kernels *kernels, void *elements,
                                               const void *planes, size_t n, bitsnap_dtype dtype);

/* ================================================================================= HUFFMAN */

/* Canonical Huffman coding of a list of n bytes, n <= 2^20, as in frames. Workspace: bitsnap_workspace_size()
 * of n elements of BITSNAP_I8 with block_log2 20. A list is raw, constant, a tree of codes of at most 8 bits
 * whose nodes are masks, or split by a mask, whichever the level estimates to be smallest. It has at most n +
 * 1 bytes, none for n = 0. It stores neither its length nor a checksum: both are up to the caller. A list is
 * self-delimiting: `used` receives its size. With `used` null, bytes after the list are BITSNAP_E_TRAILING.
 *
 *     bitsnap_list_encode(&b, list, n + 1, &size, planes + 3 * n, n);
 *     bitsnap_list_decode(&b, planes + 3 * n, n, list, size, NULL); */
#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_list_encode(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                               const void *symbols, size_t n);
#endif
BITSNAP_API bitsnap_status bitsnap_list_decode(bitsnap *b, void *symbols, size_t n,
                                               const void *source, size_t source_size, size_t *used);

#ifndef BITSNAP_NO_QUANTIZE
/* ================================================================================= QUANTIZE */

/* CLUSTER: BitSnap's quantizer (arXiv 2511.12376) on its own. Sorted elements are divided into up to
 * `clusters` (2 .. 256) clusters of about equal size; each element becomes one of 256 equidistant numbers
 * from the smallest to the largest of its cluster. There is no bound: numbers near zero can be wrong by large
 * factors or become 0. Infinities and NaNs: BITSNAP_E_ARGUMENT.
 * encode: `ends` receives the smallest and largest element of each cluster (room for 2 * clusters); *used the
 *         number of clusters, fewer if elements are equal; `labels` each element's cluster in the fewest bits
 *         that hold `clusters` - 1, lowest bits first, ceil(n * bits / 8) bytes; `codes` n bytes.
 *         `workspace`: the size of 2 * n elements, plus 16384 bytes.
 * decode: BITSNAP_E_CORRUPT if a label is not below `used`, or ends are infinite, NaN or out of order.
 *
 *     bitsnap_cluster_encode(ends, &used, labels, codes, numbers, n, BITSNAP_F32, 16, room, sizeof room);
 *     bitsnap_cluster_decode(numbers, n, BITSNAP_F32, ends, used, labels, codes, 16); */
#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_cluster_encode(void *ends, unsigned *used, void *labels, uint8_t *codes, const void *elements,
                                                  size_t n, bitsnap_dtype dtype, unsigned clusters, void *workspace,
                                                  size_t workspace_size);
#endif
BITSNAP_API bitsnap_status bitsnap_cluster_decode(void *elements, size_t n, bitsnap_dtype dtype, const void *ends, unsigned used,
                                                  const void *labels, const uint8_t *codes, unsigned clusters);
#endif /* BITSNAP_NO_QUANTIZE */
#endif /* BITSNAP_NO_PARTS */

/* ================================================================================= FRAME */

#ifndef BITSNAP_NO_QUANTIZE
/* LOG-n: the smallest n for b->quantizer.bins whose relative error is at most `max_relative_error`, or 0 if
 * that takes more than 2048 (below 1.7e-4); and the bound of n bins, 0 for invalid n. */
BITSNAP_API unsigned bitsnap_log_bins(double max_relative_error);
BITSNAP_API double bitsnap_log_bound(unsigned bins);
#endif

/* The size of an element, 0 for an unknown dtype; its name as in safetensors, "?" for an unknown one. */
BITSNAP_API unsigned bitsnap_width(bitsnap_dtype dtype);
BITSNAP_API const char *bitsnap_dtype_name(bitsnap_dtype dtype);

/* The error of the last call, or a status, as an English phrase without a full stop; a static string. */
BITSNAP_API const char *bitsnap_message(const bitsnap *b);
BITSNAP_API const char *bitsnap_status_message(bitsnap_status status);

/* Reads the header, and the footer if the frame ends within `size` bytes. No block is decoded or checked. If
 * the frame does not end exactly at `size` (zero padding, further frames, a partial source), the call finds
 * its end by reading the first 4 bytes of every block.
 * BITSNAP_E_TRUNCATED: `size` is less than the header (24 bytes without extensions; with those of this
 * version at most 43). After an error *info is all 0. A damaged footer counts as absent and is not an error.
 * What the frame states is not verified: do not trust it until a decoder has succeeded. */
BITSNAP_API bitsnap_status bitsnap_read_info(bitsnap_info *info, const void *source, size_t size);

/* How a block is coded. Forms and list kinds are the numbers of docs/FORMAT.md, sections 5 and 4. */
typedef struct bitsnap_part {
    uint64_t elements;       /* words or symbols */
    uint64_t size;           /* bytes */
    uint64_t changed;        /* CLASSED, SPARSE: words above 0; a side of PARTED or PATCHED: 0 if all its
                                elements are 0 */
    unsigned kind;           /* of the list, for words of the list of their symbols; 0 also for planes, 128
                                for raw words */
} bitsnap_part;

typedef struct bitsnap_block {
    unsigned form;
    uint64_t elements;
    uint64_t size;           /* with head, check and hashes */
    unsigned classes;        /* CLASSED: 1 to 8; else 0 */
    unsigned char borders[8]; /* between the classes */
    bitsnap_certificate certificate; /* QUANTIZED: the measured error */
    unsigned parts;
    bitsnap_part part[8];    /* SPLIT: the raw planes and what precedes them, then the coded planes, if there
                                are any, all in one part, then the symbols; BYTES, ZIGZAG: each plane;
                                CLASSED: each class, or no parts where classes cannot be told apart; SPARSE:
                                one part; SCALED, QUANTIZED: the scales (0 elements: none) and what precedes
                                them, then the words; PARTED: the bytes of the mask, then each side, whose
                                `kind` is its form; PATCHED: the same of its one side, which is left out if
                                the base must be known to tell it */
} bitsnap_block;

#ifndef BITSNAP_NO_EXTRAS
/* Describes the block at `source`, whose first element is number `first` of the frame; `info` is from
 * bitsnap_read_info. Blocks follow the header without gaps. Lists are parsed; checksums, hashes and the
 * numbers of a quantizer are not verified. Several classes, and some sides, can only be told with the right
 * base in b->base. Workspace: info->workspace_size. Error offsets count from `source`. */
BITSNAP_API bitsnap_status bitsnap_read_block(bitsnap *b, bitsnap_block *block, const bitsnap_info *info, uint64_t first,
                                              const void *source, size_t size);
#endif

/* ================================================================================= STREAM */

/* Frames piece by piece; the bytes are those of bitsnap_encode. The caller owns the objects, and may move
 * them between calls.
 *
 * Encoder: begin writes the header; each push one or more whole blocks (a multiple of 2^block_log2 elements,
 *   except for the last push); end writes the footer. The index, 8 bytes per block, 4 with NO_CHECKS, is
 *   collected in encoder.index, memory that the caller sets after begin and may move and enlarge between
 *   calls. Sufficient capacities: begin 64; push n * width, plus 12 bytes per block, 28 with a base; end 112
 *   + index_size + index_size / 32. After an error push and end have changed only the destination and can be
 *   called again. Options of the header (NO_CHECKS, CONTENT_ID, block_log2, quantizer, columns) are those at
 *   begin: push ignores them.
 * push_block: the next block is `block` of `size` bytes, made by bitsnap_block_encode; the caller appends it
 *   to the frame. It is decoded to verify it. With a content id and block_log2 below 16 the workspace must
 *   also hold the elements of a block. Not with BITSNAP_IGNORE_CHECKS.
 * Base: b->base is the whole base in every call, or a window that includes the blocks of the call; pull
 *   decodes the blocks that the window holds.
 * Decoder: begin reads the header; pull decodes the whole blocks that both source and destination hold, until
 *   position == count; end reads and checks the footer. `used` receives the bytes consumed: continue after
 *   them. BITSNAP_E_TRUNCATED: the source is too short, nothing has happened; supply at least error.needed
 *   bytes. Any capacity of a block or more will do; BITSNAP_E_CAPACITY: it is less, and error.needed elements
 *   suffice. After any error the decoder is unchanged, n and `used` are 0, and the elements are unspecified.
 *   `elements` may be null, to check only: everything except the content id of frames with blocks of fewer
 *   than 65536 elements. Constant blocks then take no time.
 * Objects that were not begun are BITSNAP_E_ARGUMENT. Objects modified otherwise give errors or wrong bytes,
 * but stay memory-safe. */
typedef struct bitsnap_encoder {
    bitsnap_dtype dtype;       /* of the frame; this and the members up to `stored` are read-only, valid after
                                  begin */
    unsigned width, block_log2;
    unsigned flags;            /* of the header: 1 checks, 2 content id, 4 quantized, 8 extensions of the
                                  footer, 128 of the header */
    unsigned role;             /* 0 no base, 1 a delta to the base, 2 to the base rounded to F16 or BF16, 3 to
                                  the base as F32 */
    unsigned bins, clusters;
    uint64_t columns;
    uint64_t count;            /* elements of the frame */
    uint64_t base_id;          /* with a role: the content id of the base, 0 if it is not known; and the
                                  base's dtype below */
    uint64_t header_check;     /* the header's hash, which identifies the frame */
    size_t header_size;
    unsigned base_dtype;
    uint64_t position, stored; /* elements and bytes of the frame done so far */
    uint64_t seal;             /* after end: as in bitsnap_info; while blocks come the check of the last
                                  one */
    void *index;               /* encoder: the caller's memory for the index */
    size_t index_capacity, index_size;
    uint64_t opaque[160];
} bitsnap_encoder;

typedef bitsnap_encoder bitsnap_decoder;

#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_encoder_begin(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                                 size_t *size, uint64_t count, bitsnap_dtype dtype);
BITSNAP_API bitsnap_status bitsnap_encoder_push(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                                size_t *size, const void *elements, size_t n);
BITSNAP_API bitsnap_status bitsnap_encoder_push_block(bitsnap *b, bitsnap_encoder *encoder, const void *block, size_t size);
BITSNAP_API bitsnap_status bitsnap_encoder_end(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                               size_t *size);
#endif
BITSNAP_API bitsnap_status bitsnap_decoder_begin(bitsnap *b, bitsnap_decoder *decoder, const void *source, size_t source_size,
                                                 size_t *used);
BITSNAP_API bitsnap_status bitsnap_decoder_pull(bitsnap *b, bitsnap_decoder *decoder, void *elements, size_t capacity, size_t *n,
                                                const void *source, size_t source_size, size_t *used);
BITSNAP_API bitsnap_status bitsnap_decoder_end(bitsnap *b, bitsnap_decoder *decoder, const void *source, size_t source_size,
                                               size_t *used);

#ifdef BITSNAP_OFFLOAD
/* ================================================================================= OFFLOAD */

/* Blocks for a device with memory of its own, as a GPU is: docs/examples/offload has code for one. */

/* One block, the same on host and device. Addresses are those of the device. */
typedef struct bitsnap_work {
    uint64_t source;       /* decode: the block; encode: the elements */
    uint64_t target;       /* decode: the elements; encode: room for the block */
    uint64_t base;         /* of a delta: what it was made against */
    uint64_t first;        /* number of its first element in the frame */
    uint64_t header_check; /* XXH3 of the frame's header */
    uint32_t size;         /* decode: bytes of the block; encode: of the room, 0: to be declined */
    uint32_t count;        /* elements */
    uint32_t head;         /* decode: of the block, as the index has it */
    uint8_t dtype, level, flags;
    uint8_t role;          /* decode: 0 no base, 1 a base of this dtype, 2 one of F32, 3 one of F16 or BF16
                              for F32 */
    uint32_t bins;         /* per octave, of a frame quantized by LOG-n; else 0 */
    uint32_t columns;      /* of the frame, 0 none; 2^32 - 1: that or more */
} bitsnap_work;

/* flags */
enum {
    BITSNAP_WORK_CHECKS = 1, /* blocks carry checks */
    BITSNAP_WORK_IGNORE = 2, /* decode: neither they nor hashes are looked at */
    BITSNAP_WORK_TEST = 4    /* decode, with a base: nothing is stored */
};

/* What became of it. */
typedef struct bitsnap_done {
    uint32_t status; /* 0, or a bitsnap_status with the reject condition << 8; BITSNAP_E_UNSUPPORTED: the host
                        has to do it */
    uint32_t size;   /* encode: bytes of the block */
} bitsnap_done;

/* Both change with BITSNAP_VERSION only: device code that is built apart from its host is to be of the same
 * one. */

/* A device. The functions put work into one of two queues, which do what they are given in order, and return
 * at once; wait returns when a queue is empty. Memory that they are given stays as it is until then. They
 * return 0, or anything else if the device failed. */
typedef struct bitsnap_offload {
    size_t struct_size; /* 0, or sizeof(bitsnap_offload) as the caller was compiled: any other value is
                           BITSNAP_E_ARGUMENT */
    void *context;
    int (*upload)(void *context, unsigned queue, uint64_t to, const void *from, size_t size);
    int (*download)(void *context, unsigned queue, void *to, uint64_t from, size_t size);
    /* works[i] gives done[i]. What the device cannot do is the host's. A target is written if the status is
     * 0. Without a base it may also be written if the status is not 0. Nothing else is written. */
    int (*decode)(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count);
    /* Likewise, or null. A work of size 0 has no room, as staging memory is too small for it: its target may
     * be anything. It is to be declined; the host does it, whatever done says. */
    int (*encode)(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count);
    int (*wait)(void *context, unsigned queue);
    uint64_t device; /* staging memory of the device, at a multiple of 16, half of it for each queue, */
    size_t size;     /* some MiB, at least 32 bytes. Blocks that do not fit a half are the host's */
    void *host;      /* `size` bytes of the host, page-locked if that is faster. Null: frames are uploaded
                        from the caller's memory */
    int trusted;     /* encode: 1: what the device has made is not decoded before it is joined */
} bitsnap_offload;

/* A frame in host memory, and where its elements are on the device. */
typedef struct bitsnap_request {
    const void *frame;      /* decode */
    void *destination;      /* encode: room for the frame */
    size_t size;            /* of the frame; encode: of the room, and then of the frame */
    uint64_t elements;      /* a multiple of 4, as the base */
    uint64_t count;         /* must be the frame's, as the dtype (BITSNAP_E_MISMATCH) */
    bitsnap_dtype dtype;
    bitsnap_dtype base_dtype;
    uint64_t base;          /* decode, of a delta: its base on the device, `count` elements apart from those
                               at `elements`; else 0 */
    uint64_t base_id;       /* its content id if known, else 0 */
    bitsnap_error error;    /* result of this one */
} bitsnap_request;

/* decode: restores frames on the device, many tensors in few launches; blocks are copied while earlier ones
 * are decoded. The host decodes what the device declines or refuses, and reports its own error: only what the
 * device calls good is believed. After an error in one frame the others are still decoded. request.error is
 * the error of the first bad block; the call returns that of the first bad request. Checks all that
 * bitsnap_decode checks, except the content id. Requests run side by side: none may write what another one
 * reads or writes.
 * apply: turns the bases at `elements` into results, in place. Ignores base, base_dtype and base_id; always
 * verifies checks. A first pass tests all blocks of all frames: if one is refused, nothing is stored. An
 * error in the second pass (the device failed, or a frame changed) may leave some blocks stored and others
 * not, and the call cannot be repeated, because a result is not a base. Refuses what bitsnap_apply refuses.
 * Both use b->workspace, of bitsnap_offload_workspace() bytes, b->kernels and b->flags. An error that keeps
 * a call from beginning (BITSNAP_E_ARGUMENT, _WORKSPACE) is the status of all its requests. If a function of
 * the device fails, BITSNAP_E_SOURCE is the error of all requests that have none of their own, because their
 * state is not known. A single request has BITSNAP_E_SOURCE if its frame has changed since the call measured
 * it, and now has larger blocks. */
BITSNAP_API size_t bitsnap_offload_workspace(const bitsnap_request *requests, size_t count);
BITSNAP_API bitsnap_status bitsnap_offload_decode(bitsnap *b, const bitsnap_offload *offload, bitsnap_request *requests, size_t count);
#ifndef BITSNAP_NO_DELTA
BITSNAP_API bitsnap_status bitsnap_offload_apply(bitsnap *b, const bitsnap_offload *offload, bitsnap_request *requests, size_t count);
#endif
#ifndef BITSNAP_NO_ENCODE
/* encode: makes the frames that bitsnap_encode would make, of elements on the device, at destinations of
 * bitsnap_bound() bytes. The host encodes the blocks that the device declines. It decodes every block of the
 * device, on b->workers threads, or on one with BITSNAP_CONTENT_ID, and encodes again the invalid ones.
 * Whether valid blocks hold the right elements, and whether their certificates are true, depends on the
 * device. With o->trusted, and without a content id, only the sizes of blocks are checked, so a frame can be
 * invalid; bitsnap_test finds that. The host makes all blocks of clusters. o->host must not be null.
 * BITSNAP_E_ARGUMENT with a base, of b or of a request. b->workspace: bitsnap_offload_encode_workspace()
 * bytes. */
BITSNAP_API size_t bitsnap_offload_encode_workspace(const bitsnap *b, const bitsnap_request *requests, size_t count);
BITSNAP_API bitsnap_status bitsnap_offload_encode(bitsnap *b, const bitsnap_offload *offload, bitsnap_request *requests, size_t count);
#endif
#endif

/* ================================================================================= ENTRY */

#ifndef BITSNAP_NO_ENCODE
/* Encodes `count` elements as one frame. A capacity of bitsnap_bound() always suffices. A smaller one may be
 * used as a budget: BITSNAP_E_CAPACITY is found at the first block that cannot fit. The bytes do not depend
 * on the capacity. With b->base, BITSNAP_E_BASE if its count differs, if bitsnap_base does not allow its
 * dtype, or if base.id is not its content id, which is found only at the end. Linear time; memory is read and
 * written once. */
BITSNAP_API bitsnap_status bitsnap_encode(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                          const void *elements, uint64_t count, bitsnap_dtype dtype);
#endif

/* Restores the elements of a frame, bit for bit. `source_size` must be exactly the frame's (more is
 * BITSNAP_E_TRAILING unless BITSNAP_ALLOW_TRAILING is set), `count` and `dtype` must be its own (else
 * BITSNAP_E_MISMATCH, nothing written): a malicious frame cannot overflow the destination. A delta needs its
 * base in b->base, here and in the functions below: BITSNAP_E_BASE if it is missing or a different one. */
BITSNAP_API bitsnap_status bitsnap_decode(bitsnap *b, void *elements, uint64_t count, bitsnap_dtype dtype,
                                          const void *source, size_t source_size);

/* Restores elements first .. first + count - 1 of a frame; reads and checks only the index and the blocks it
 * needs. A range outside the frame is BITSNAP_E_ARGUMENT. Bytes after a frame without footer (one block, no
 * content id) are not detected. With BITSNAP_ALLOW_TRAILING and bytes after the frame, the call reads the
 * head of every block to find its end. */
BITSNAP_API bitsnap_status bitsnap_decode_range(bitsnap *b, void *elements, uint64_t first, uint64_t count,
                                                bitsnap_dtype dtype, const void *source, size_t source_size);

/* Random access to a frame in memory, or, by a callback, in a file, an object store or a device. A
 * bitsnap_index is plain memory of the caller, which may be moved; it refers to nothing but the source's data
 * or context.
 *
 * open:   reads the header, the end of the source (which must be the end of the frame) and the root of the
 *         index. *info (may be null) becomes what bitsnap_read_info returns, without the counts of blocks;
 *         its workspace_size and worker_size are those for decoding from this source. With a callback the
 *         header is read to the workspace.
 * find:   locates the block of an element. Reads at most a page (2 KiB) and one node (6 KiB) per level of the
 *         index below its root: two with 2^24 blocks. The last ones are cached, so that neighbours cost
 *         nothing. Needs no workspace.
 * decode: restores elements first .. first + count - 1 like bitsnap_decode_range, with one read per block. A
 * delta needs b->base.
 *
 * Every piece is checked on its own, and only checked bytes are used, even if the source changes. Bytes after
 * a frame without footer (one block, no content id) are not detected. BITSNAP_E_SOURCE: the callback failed;
 * the index stays valid. A zeroed index that was not opened is BITSNAP_E_ARGUMENT. */
#define BITSNAP_INDEX_SIZE 34816u
typedef union bitsnap_index {
    unsigned char opaque[BITSNAP_INDEX_SIZE];
    uint64_t aligned;
    void *pointer;
} bitsnap_index;

/* A block: `size` bytes at `offset` in the frame, elements first .. first + count - 1. A block of one
 * repeated element can have any count. */
typedef struct bitsnap_extent {
    uint64_t offset, size;
    uint64_t first, count;
    unsigned form;  /* a number of docs/FORMAT.md, section 5 */
    uint32_t check; /* in a frame with checks: the lower half of the block's check, as the index has it */
} bitsnap_extent;

BITSNAP_API bitsnap_status bitsnap_index_open(bitsnap *b, bitsnap_index *index, bitsnap_info *info, const bitsnap_source *source);
BITSNAP_API bitsnap_status bitsnap_index_find(bitsnap *b, bitsnap_index *index, uint64_t element, bitsnap_extent *extent);
BITSNAP_API bitsnap_status bitsnap_index_decode(bitsnap *b, bitsnap_index *index, void *elements, uint64_t first, uint64_t count);

/* Restores elements first .. first + count - 1, all within the extent, from the bytes of its block, for
 * callers that do their own I/O. The check of the block must be the one in the extent. `info` of the frame is
 * from bitsnap_index_open, or bitsnap_read_info of the header. Workspace: info->workspace_size.
 * Error offsets count from the start of the frame. */
BITSNAP_API bitsnap_status bitsnap_block_decode(bitsnap *b, void *elements, uint64_t first, uint64_t count, const bitsnap_info *info,
                                                const bitsnap_extent *extent, const void *block);

#ifndef BITSNAP_NO_ENCODE
/* Encodes one block for bitsnap_encoder_push_block: elements first .. first + count - 1, with `first` a
 * multiple of 2^block_log2. `info` is from bitsnap_read_info of the header that bitsnap_encoder_begin wrote;
 * b must have the same options, else BITSNAP_E_ARGUMENT, and error.argument names the one that differs.
 * Blocks can be encoded in any order, on any machine. A capacity of the elements' size plus 28 always
 * suffices. Workspace: bitsnap_workspace_size(), for any number of workers: one makes the block. */
BITSNAP_API bitsnap_status bitsnap_block_encode(bitsnap *b, void *block, size_t capacity, size_t *size, const bitsnap_info *info,
                                                const void *elements, uint64_t first, size_t count);
#endif

/* Decodes a frame without storing the elements, to check everything that bitsnap_decode checks except the
 * content id. */
BITSNAP_API bitsnap_status bitsnap_test(bitsnap *b, const void *source, size_t source_size);

#ifndef BITSNAP_NO_EXTRAS
/* Decodes a frame and compares it with `elements` bit for bit: BITSNAP_E_DIFFERENT, with the first difference
 * in error.element. */
BITSNAP_API bitsnap_status bitsnap_verify(bitsnap *b, const void *elements, uint64_t count,
                                          bitsnap_dtype dtype, const void *source, size_t source_size);
#endif

#ifndef BITSNAP_NO_DELTA
/* Turns the base of a delta into its result, in place: all or nothing. A first pass decodes and checks
 * everything without a store; a second one stores the elements. So on every error except BITSNAP_E_CANCELLED
 * they are unchanged (progress is called in both passes, but cancels only in the first). Checksums and hashes
 * of blocks are verified even with BITSNAP_IGNORE_CHECKS. Blocks that already hold the result are skipped, so
 * applying twice is harmless. Elements that are neither base nor result, nor in between as below:
 * BITSNAP_E_BASE, and error.element is the first of the block. b->base is not used. Frames without a base:
 * BITSNAP_E_ARGUMENT; roles 2 and 3 (against a cast): BITSNAP_E_UNSUPPORTED. Source and elements must not
 * change during the call.
 *
 * If the process is killed during the second pass, and the elements are in memory that outlives it (shared,
 * or a mapped file), repeating the call completes the tensor, with any number of workers. The hashes of the
 * blocks prove the result.
 *   - Without a journal: all blocks except PATCHED ones and CLASSED ones with several classes.
 *     BITSNAP_SELF_CONTAINED deltas have neither. SPARSE blocks and those with one class are overwritten in
 *     order, and the position of the interruption is found by trial: up to 20 ms per 65536 elements of 2
 *     bytes, 4 times that for elements twice as wide (also before a wrong base is refused). Other blocks
 *     leave a mark and are stored again.
 *   - With a journal: all blocks. b->journal is bitsnap_journal_size() bytes or more (fewer:
 *     BITSNAP_E_ARGUMENT) of memory that outlives the process too. Each worker saves a block of these kinds
 *     there before it overwrites it. Its contents are used only if they match the hash of the block's base,
 *     so it need not be cleared. Pass the same journal when repeating the call, before it is used for
 *     anything else; the first pass puts back a block found in it.
 * This requires gcc, clang or MSVC, elements aligned to 8 bytes and, on 32-bit machines, elements of at most
 * 4 bytes. It covers killed processes, not power failures: after a machine fails, its kernel decides which
 * parts of a mapped file were written. */
BITSNAP_API bitsnap_status bitsnap_apply(bitsnap *b, void *elements, uint64_t count, bitsnap_dtype dtype,
                                         const void *source, size_t source_size);

/* The journal size for applying this delta with `workers` (0 means 1): a block for each. 0 if info is
 * null. */
BITSNAP_API size_t bitsnap_journal_size(const bitsnap_info *info, unsigned workers);
#endif

#if !defined(BITSNAP_NO_EXTRAS) && !defined(BITSNAP_NO_ENCODE) && !defined(BITSNAP_NO_DELTA)
/* Combines two consecutive deltas: `second` was made against the result of `first`. Elements are not needed
 * in the cases of docs/FORMAT.md 6.4, which include all deltas made with BITSNAP_SELF_CONTAINED; otherwise
 * give the base of `first` in b->base (else BITSNAP_E_UNSUPPORTED, with the block in error.element). The
 * frames must have the same block size (else BITSNAP_E_UNSUPPORTED; the same options ensure it), dtype and
 * count (BITSNAP_E_MISMATCH) and be consecutive (BITSNAP_E_BASE, also if `second` is not a delta of role 1;
 * BITSNAP_E_ARGUMENT if `first` is not a delta). A capacity of info.bound of `first` suffices. All checksums
 * are verified, but not the hashes of unknown elements. Blocks copied unchanged are not parsed: their errors
 * show when the result is decoded. Workspace: info.merge_size of `first`. */
BITSNAP_API bitsnap_status bitsnap_merge(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                         const void *first, size_t first_size, const void *second, size_t second_size);

/* The inverse delta, from the result of `source` back to its base. Needs the base in b->base, else
 * BITSNAP_E_UNSUPPORTED. Deltas made with BITSNAP_SELF_CONTAINED need none if no block was smaller without a
 * base. Role 2 is always BITSNAP_E_UNSUPPORTED. Capacity and workspace as for merging. */
BITSNAP_API bitsnap_status bitsnap_invert(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                          const void *source, size_t source_size);
#endif

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_H */

/* ############################################################################################
 * The implementation. Each layer calls only layers defined earlier in this file.
 *   PLATFORM  HASH  BITMASK  PLANES  HUFFMAN  DELTA  QUANTIZE  BLOCK  FRAME  STREAM  ENTRY  PARTS
 * Where a change begins:
 *   a dtype                PLANES, bsn_dtypes
 *   a kernel               PLATFORM, BSN_KERNELS; an instruction set: bitsnap_simd.h, "targets"
 *   code lengths           HUFFMAN, "code lengths", bsn_package_merge; which symbols get one:
 *                          bsn_choose_sampled, bsn_choose_exact; the kind of a list: bsn_plan_list
 *   a form of a block      BLOCK, "the table of forms"
 *   the check of a block   BLOCK, bsn_record
 * docs/examples/offload repeats dtypes, forms, code lengths and checks for devices: change both. Scalar code
 * is the reference and follows docs/FORMAT.md. The kernels of bitsnap_simd.h must equal it byte for byte.
 *
 * One word has one meaning:
 *   frame           one encoded tensor: header, blocks, footer
 *   cell, block     2^L consecutive elements, the unit of random access; the bytes that code one cell, or a
 *                   run of equal cells
 *   form, kind      how a block is coded; how a list is coded
 *   plane           byte k of all elements, or one bit of such a byte
 *   symbol, list    a value below 2^b, of a float mostly its exponent; symbols that are coded with a kind
 *                   byte in front
 *   node, slot      k bits of a path through the code tree; one of their 2^k outcomes: a leaf is one symbol,
 *                   a child has a list
 *   table           the code lengths of a tree
 *   mask            one bit for each element, such as those that pass a node
 *   base, role      the tensor that a delta is made against; whether it has the frame's dtype, or is cast to
 *                   it
 *   word            zigzag code of the difference between an element and its prediction, modulo 2^W
 *   class           elements of a CLASSED block whose predictions have exponents of one range
 *   bin, certificate  one interval of a quantizer; the largest error that was measured
 *   check, content id  XXH3-64 of a block; of all elements
 *   chunk           at most BSN_CHUNK elements that pass all stages while they are in the first-level cache
 *   workspace, arena, scratch  what the caller lends for a call; the share of one worker; what one function
 *                              may overwrite
 *   kernel, table of kernels   an inner loop with a scalar twin; all kernels of one instruction set
 * ############################################################################################ */
#if defined(BITSNAP_IMPLEMENTATION) && !defined(BITSNAP_IMPLEMENTED)
#define BITSNAP_IMPLEMENTED

/* The functions of <string.h>, or those that BITSNAP_MEMCPY, BITSNAP_MEMMOVE and BITSNAP_MEMSET name. */
#if !defined(BITSNAP_MEMCPY) || !defined(BITSNAP_MEMMOVE) || !defined(BITSNAP_MEMSET)
#include <string.h>
#endif
#ifdef BITSNAP_MEMCPY
#pragma push_macro("memcpy")
#undef memcpy
#define memcpy BITSNAP_MEMCPY
#endif
#ifdef BITSNAP_MEMMOVE
#pragma push_macro("memmove")
#undef memmove
#define memmove BITSNAP_MEMMOVE
#endif
#ifdef BITSNAP_MEMSET
#pragma push_macro("memset")
#undef memset
#define memset BITSNAP_MEMSET
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= PLATFORM
 * Little-endian loads and stores, bit counts, checked arithmetic. Below, compilers are named only where they have vectors or
 * ways of their own to hide a value. */

/* What a switch leaves out is 0 here, in conditions, and NULL in tables of kernels: what nothing calls any
 * more is dropped by the compiler, which should not warn of it. */
#define BSN_FOR_ALL(kernel) kernel
#ifdef BITSNAP_NO_ENCODE
#define BSN_FOR_ENCODE(kernel) NULL
#else
#define BSN_FOR_ENCODE(kernel) kernel
#endif
#ifdef BITSNAP_NO_DELTA
#define BSN_WITH_DELTA 0
#define BSN_FOR_DELTA(kernel) NULL
#else
#define BSN_WITH_DELTA 1
#define BSN_FOR_DELTA(kernel) kernel
#endif
#ifdef BITSNAP_NO_QUANTIZE
#define BSN_WITH_QUANTIZE 0
#define BSN_FOR_QUANTIZE(kernel) NULL
#else
#define BSN_WITH_QUANTIZE 1
#define BSN_FOR_QUANTIZE(kernel) kernel
#endif
#ifdef BITSNAP_NO_PARTS
#define BSN_FOR_MASKS(kernel) BSN_FOR_ENCODE(kernel)
#else
#define BSN_FOR_MASKS(kernel) kernel
#endif
#define BSN_FOR_DELTA_ENCODE(kernel) BSN_FOR_DELTA(BSN_FOR_ENCODE(kernel))
#define BSN_FOR_QUANTIZE_ENCODE(kernel) BSN_FOR_QUANTIZE(BSN_FOR_ENCODE(kernel))
#if defined(BITSNAP_NO_ENCODE) || defined(BITSNAP_NO_DELTA) || defined(BITSNAP_NO_QUANTIZE) || defined(BITSNAP_NO_PARTS) || \
    defined(BITSNAP_NO_EXTRAS)
#define BITSNAP_SWITCHED
#if defined(__GNUC__) || defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#elif defined(_MSC_VER)
#pragma warning(disable : 4505)
#endif
#endif

/* Unrolls a short loop of fixed length, so that its arrays stay in registers. Not all compilers do that at
 * -O2. */
#if defined(__clang__)
#define BSN_UNROLL _Pragma("clang loop unroll(full)")
#define BSN_ROLLED _Pragma("clang loop unroll(disable)") /* keeps a loop that would become long as it is */
#elif defined(__GNUC__)
#define BSN_UNROLL _Pragma("GCC unroll 16")
#define BSN_ROLLED _Pragma("GCC unroll 1")
#else
#define BSN_UNROLL
#define BSN_ROLLED
#endif

#if defined(__GNUC__) || defined(__clang__)
#define BSN_INLINE static inline __attribute__((always_inline, unused))
#define BSN_LIKELY(x) __builtin_expect(!!(x), 1)
#define BSN_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define BSN_FUNCTION static __attribute__((unused, noinline))
#define BSN_PREFETCH(p) __builtin_prefetch(p, 0, 2)
#define BSN_PREFETCH_NEAR(p) __builtin_prefetch(p, 0, 3)
#else
#ifdef _MSC_VER
#define BSN_INLINE static __forceinline
#define BSN_FUNCTION static __declspec(noinline)
#else
#define BSN_INLINE static
#define BSN_FUNCTION static
#endif
#define BSN_LIKELY(x) (x)
#define BSN_UNLIKELY(x) (x)
#define BSN_PREFETCH(p) ((void)(p))
#define BSN_PREFETCH_NEAR(p) ((void)(p))
#endif

#if defined(__BYTE_ORDER__) && defined(__ORDER_BIG_ENDIAN__)
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define BSN_BIG_ENDIAN 1
#endif
#endif
#ifndef BSN_BIG_ENDIAN
#define BSN_BIG_ENDIAN 0
#endif

/* Keeps the compiler from reordering stores. A killed process has executed every instruction up to some point
 * and none after it, so the first store is done if the second is; no fence is needed. */
#if defined(__GNUC__) || defined(__clang__)
#define BSN_ORDERED() __asm__ __volatile__("" : : : "memory")
#elif defined(_MSC_VER)
#include <intrin.h>
#define BSN_ORDERED() _ReadWriteBarrier()
#else
#define BSN_ORDERED() ((void)0) /* nothing is known of other compilers */
#endif

#define BSN_ASSERT(name, condition) typedef char bsn_assert_##name[(condition) ? 1 : -1]

#define BSN_ONES UINT64_C(0x0101010101010101) /* times a byte: that byte in all 8 bytes of a word */

BSN_INLINE uint32_t bsn_swap32(uint32_t x)
{
    x = ((x & 0x00FF00FFu) << 8) | ((x >> 8) & 0x00FF00FFu);
    return (x << 16) | (x >> 16);
}

BSN_INLINE uint64_t bsn_swap64(uint64_t x)
{
    return (uint64_t)bsn_swap32((uint32_t)x) << 32 | bsn_swap32((uint32_t)(x >> 32));
}

BSN_INLINE uint64_t bsn_load64(const void *p)
{
    uint64_t x;
    memcpy(&x, p, 8);
    return BSN_BIG_ENDIAN ? bsn_swap64(x) : x;
}

BSN_INLINE uint32_t bsn_load32(const void *p)
{
    uint32_t x;
    memcpy(&x, p, 4);
    return BSN_BIG_ENDIAN ? bsn_swap32(x) : x;
}

/* A value as it was loaded, which compilers will not load again. */
BSN_INLINE uint64_t bsn_pinned(uint64_t x)
{
#if defined(__GNUC__) || defined(__clang__)
    __asm__ __volatile__("" : "+r"(x));
    return x;
#else
    const volatile uint64_t once = x;
    return once;
#endif
}

/* Load a value once from memory that another thread may change, such as a source in shared memory: the value
 * that is checked is used. */
BSN_INLINE unsigned bsn_once8(const uint8_t *p) { return *(const volatile uint8_t *)p; }
BSN_INLINE uint32_t bsn_once32(const uint8_t *p) { return (uint32_t)bsn_pinned(bsn_load32(p)); }
BSN_INLINE uint64_t bsn_once64(const uint8_t *p) { return bsn_pinned(bsn_load64(p)); }

BSN_INLINE void bsn_store64(void *p, uint64_t x)
{
    if (BSN_BIG_ENDIAN) x = bsn_swap64(x);
    memcpy(p, &x, 8);
}

BSN_INLINE void bsn_store32(void *p, uint32_t x)
{
    if (BSN_BIG_ENDIAN) x = bsn_swap32(x);
    memcpy(p, &x, 4);
}

/* A wide word: two 64-bit lanes where the compiler has vectors of its own (they become SSE2, NEON or plain
 * code, whatever the target's baseline is), else one, as tests want it, too. Operators work on all lanes
 * alike. */
#ifndef BSN_WIDE_LANES
#if defined(__GNUC__) || defined(__clang__)
#define BSN_WIDE_LANES 2
#else
#define BSN_WIDE_LANES 1
#endif
#endif
#if BSN_WIDE_LANES == 2
typedef uint64_t bsn_wide __attribute__((vector_size(16)));
#else
typedef uint64_t bsn_wide;
#endif
#if (defined(__SSE2__) && __STDC_HOSTED__) || (defined(_M_X64) && !defined(_M_ARM64EC)) /* (gcc's header wants stdlib.h) */
#define BSN_SSE2 1
#include <emmintrin.h>
#else
#define BSN_SSE2 0
#endif
#define BSN_WIDE sizeof(bsn_wide)

BSN_INLINE bsn_wide bsn_wide_load(const void *p)
{
    bsn_wide x;
    memcpy(&x, p, BSN_WIDE);
    return x;
}

BSN_INLINE void bsn_wide_store(void *p, bsn_wide x) { memcpy(p, &x, BSN_WIDE); }

/* 8 bytes each of two words, the first one for lane 0; of one lane that is all there is */
#if BSN_WIDE_LANES == 2
BSN_INLINE bsn_wide bsn_wide_of(uint64_t low, uint64_t high)
{
    const bsn_wide both = { low, high };
    return both;
}
BSN_INLINE uint64_t bsn_wide_first(bsn_wide x) { return x[0]; }
BSN_INLINE uint64_t bsn_wide_last(bsn_wide x) { return x[1]; }
#else
BSN_INLINE bsn_wide bsn_wide_of(uint64_t low, uint64_t high) { return (void)high, low; }
BSN_INLINE uint64_t bsn_wide_first(bsn_wide x) { return x; }
BSN_INLINE uint64_t bsn_wide_last(bsn_wide x) { return x; }
#endif

BSN_INLINE bsn_wide bsn_wide_all(uint64_t x) { return bsn_wide_of(x, x); }

/* Returns the OR of the lanes. */
BSN_INLINE uint64_t bsn_wide_any(bsn_wide x) { return bsn_wide_first(x) | bsn_wide_last(x); }

/* b where m is set, else a: without xor, as what is not chosen may never have been written */
BSN_INLINE bsn_wide bsn_wide_select(bsn_wide m, bsn_wide a, bsn_wide b) { return (a & ~m) | (b & m); }

/* lanes as little-endian numbers */
BSN_INLINE bsn_wide bsn_wide_get(const uint8_t *p)
{
    return BSN_BIG_ENDIAN ? bsn_wide_of(bsn_load64(p), bsn_load64(p + BSN_WIDE - 8)) : bsn_wide_load(p);
}

BSN_INLINE void bsn_wide_put(uint8_t *p, bsn_wide x)
{
    if (BSN_BIG_ENDIAN) x = bsn_wide_of(bsn_swap64(bsn_wide_first(x)), bsn_swap64(bsn_wide_last(x)));
    bsn_wide_store(p, x);
}

/* the lower half of each lane, times its upper half */
BSN_INLINE bsn_wide bsn_wide_multiply_halves(bsn_wide x)
{
#if BSN_SSE2 && BSN_WIDE_LANES == 2 /* GCC does not make this instruction of the line below */
    return (bsn_wide)_mm_mul_epu32((__m128i)x, (__m128i)(x >> 32));
#else
    return (x & UINT64_C(0xFFFFFFFF)) * (x >> 32);
#endif
}

#if BSN_WIDE_LANES == 2
typedef uint8_t bsn_bytes __attribute__((vector_size(16)));
#endif

BSN_INLINE unsigned bsn_popcount(uint64_t x)
{
    x -= (x >> 1) & UINT64_C(0x5555555555555555);
    x = (x & UINT64_C(0x3333333333333333)) + ((x >> 2) & UINT64_C(0x3333333333333333));
    x = (x + (x >> 4)) & UINT64_C(0x0F0F0F0F0F0F0F0F);
    return (unsigned)((x * BSN_ONES) >> 56);
}

/* the number of the lowest bit that is set; x > 0 */
BSN_INLINE unsigned bsn_lowest_bit(uint64_t x)
{
/* as gcc does: bsf waits for what its register held; this may be tzcnt */
#if defined(__clang__) && defined(__x86_64__)
    uint64_t n;
    __asm__("rep\n\tbsfq %1, %0" : "=r"(n) : "r"(x) : "cc");
    return (unsigned)n;
#elif defined(__GNUC__) || defined(__clang__)
    return (unsigned)__builtin_ctzll(x);
#else
    return bsn_popcount((x & (0 - x)) - 1);
#endif
}

/* floor(log2(x)), x > 0 */
BSN_INLINE unsigned bsn_log2(uint64_t x)
{
#if defined(__GNUC__) || defined(__clang__)
    return 63u - (unsigned)__builtin_clzll(x);
#else
    unsigned n = 0, step;
    for (step = 32; step; step >>= 1) {
        if (x >> step) {
            x >>= step;
            n += step;
        }
    }
    return n;
#endif
}

BSN_INLINE size_t bsn_min(size_t a, size_t b) { return a < b ? a : b; }

/* ceil(n / 8): the bytes of a mask of n bits */
BSN_INLINE size_t bsn_mask_bytes(size_t n) { return (n >> 3) + ((n & 7) != 0); }

/* p, moved up to a multiple of 64 */
BSN_INLINE void *bsn_align(void *p) { return (uint8_t *)p + ((64 - ((uintptr_t)p & 63)) & 63); }

/* Memory that is handed out from its beginning, in whole cache lines. A layout function takes its regions
 * from an arena in order. With a null `at` it gets null pointers and only `left` shrinks; so the function
 * that lays out scratch also says how much it takes. */
typedef struct bsn_arena {
    uint8_t *at;
    size_t left;
} bsn_arena;

#define BSN_DRY SIZE_MAX /* what is left before a dry run */
#define BSN_LINES(size) (((size) + 63) & ~(size_t)63) /* what a region of this size takes */

static void *bsn_arena_take(bsn_arena *a, size_t size)
{
    uint8_t *p = a->at;
    a->left -= BSN_LINES(size);
    if (p) a->at += BSN_LINES(size);
    return p;
}

/* Asks for the lines of a span, to be there when their turn comes. Nothing depends on it, and p may lie
 * anywhere. */
BSN_INLINE void bsn_prefetch(const uint8_t *p, size_t size)
{
    size_t i;
    for (i = 0; i < size; i += 64) BSN_PREFETCH(p + i);
}

/* Memory that is prefetched a little at a time, since it will be read soon. A processor tracks few lines that
 * are on their way, and more of them would delay the loads in between. Lines are taken from several strips in
 * turn: memory delivers lines of several pages sooner than the same number from one page. */
typedef struct bsn_ahead {
    const uint8_t *at;   /* where it begins */
    size_t apart;        /* bytes from one strip to the next */
    size_t line, lines;  /* those that have been asked for; all */
    unsigned strip_bits; /* there are 1 << strip_bits strips */
} bsn_ahead;

BSN_INLINE bsn_ahead bsn_ahead_of(const uint8_t *p, size_t size, unsigned strip_bits)
{
    bsn_ahead a;
    a.at = p;
    a.apart = ((size >> strip_bits) + 63) & ~(size_t)63;
    a.line = 0;
    a.lines = a.apart / 64 << strip_bits;
    a.strip_bits = strip_bits;
    return a;
}

/* the place of the next line, or that beside it in the first strip */
BSN_INLINE const uint8_t *bsn_ahead_next(const bsn_ahead *a) { return a->at + (a->line >> a->strip_bits) * 64; }

BSN_INLINE void bsn_ahead_ask(bsn_ahead *a, size_t lines)
{
    const size_t end = a->line + bsn_min(lines, a->lines - a->line);
    for (; a->line < end; a->line++) BSN_PREFETCH(bsn_ahead_next(a) + (a->line & (((size_t)1 << a->strip_bits) - 1)) * a->apart);
}

/* As bsn_prefetch, to the first level: of lines that will be written next. */
BSN_INLINE void bsn_prefetch_near(const uint8_t *p, size_t size)
{
    size_t i;
    for (i = 0; i < size; i += 64) BSN_PREFETCH_NEAR(p + i);
}

#if BSN_SSE2
BSN_INLINE void bsn_stream_lines(uint8_t *to, const uint8_t *from, size_t lines)
{
    for (; lines; lines--, to += 64, from += 64) {
        const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
        const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
        const __m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
        const __m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));
        _mm_stream_si128((__m128i *)(void *)to, a);
        _mm_stream_si128((__m128i *)(void *)(to + 16), b);
        _mm_stream_si128((__m128i *)(void *)(to + 32), c);
        _mm_stream_si128((__m128i *)(void *)(to + 48), d);
    }
}
#endif

/* memcpy past the caches, if the machine can: for more bytes than they hold, which are not read again soon.
 * An ordinary memcpy would push out everything else and read each line before it is written. Call
 * bsn_streamed after the last one, before another thread is told. */
BSN_INLINE void bsn_stream(uint8_t *to, const uint8_t *from, size_t size)
{
#if BSN_SSE2
    size_t i = bsn_min((64 - ((uintptr_t)to & 63)) & 63, size);
    memcpy(to, from, i);
    bsn_stream_lines(to + i, from + i, (size - i) / 64);
    i += (size - i) & ~(size_t)63;
    memcpy(to + i, from + i, size - i);
#else
    memcpy(to, from, size);
#endif
}

/* Appends `size` >= 64 bytes at `to`, where the last call ended, in whole cache lines. Bytes that do not fill
 * a line wait: a store to part of an uncached line first reads it and delays all later stores; one across two
 * lines takes twice as long. `tail` keeps the last 64 bytes for the next call; bsn_lines_end stores them.
 * `first`: none wait yet. `past`: use non-temporal stores. */
BSN_INLINE void bsn_lines_next(uint8_t tail[64], uint8_t *to, const uint8_t *from, size_t size, int first, int past)
{
#if BSN_SSE2
    const size_t before = (uintptr_t)to & 63, head = (64 - before) & 63, rest = (size - head) & 63;
    uint8_t line[64];
    if (first) {
        memcpy(to, from, head);
    } else if (before) {
        memcpy(line, tail + head, before);
        memcpy(line + before, from, head);
        if (past) bsn_stream_lines(to - before, line, 1);
        else memcpy(to - before, line, 64);
    }
    if (past) bsn_stream_lines(to + head, from + head, (size - head) / 64);
    else memcpy(to + head, from + head, size - head - rest);
    memcpy(tail, from + size - 64, 64);
#else
    (void)tail, (void)first, (void)past;
    memcpy(to, from, size);
#endif
}

BSN_INLINE void bsn_lines_end(const uint8_t tail[64], uint8_t *end)
{
#if BSN_SSE2
    const size_t before = (uintptr_t)end & 63;
    memcpy(end - before, tail + 64 - before, before);
#else
    (void)tail, (void)end;
#endif
}

BSN_INLINE void bsn_streamed(void)
{
#if BSN_SSE2
    _mm_sfence();
#endif
}

/* Not memcmp: where only equality counts, compilers may turn that into bcmp, which not every C library
 * has. */
BSN_INLINE int bsn_equal(const uint8_t *a, const uint8_t *b, size_t n)
{
    uint64_t x, y, differ = 0;
    size_t i;
    for (i = 0; i + 8 <= n; i += 8) {
        memcpy(&x, a + i, 8);
        memcpy(&y, b + i, 8);
        differ |= x ^ y;
    }
    for (; i < n; i++) differ |= (uint64_t)(a[i] ^ b[i]);
    return differ == 0;
}

/* The element at p as a number, and back. Callers' buffers hold native words, whatever the host. */
BSN_INLINE uint64_t bsn_element_load(const uint8_t *p, unsigned width)
{
    uint16_t h;
    uint32_t w;
    uint64_t d;
    switch (width) {
    case 1: return *p;
    case 2: memcpy(&h, p, 2); return h;
    case 4: memcpy(&w, p, 4); return w;
    default: memcpy(&d, p, 8); return d;
    }
}

BSN_INLINE void bsn_element_store(uint8_t *p, uint64_t x, unsigned width)
{
    uint16_t h = (uint16_t)x;
    uint32_t w = (uint32_t)x;
    switch (width) {
    case 1: *p = (uint8_t)x; break;
    case 2: memcpy(p, &h, 2); break;
    case 4: memcpy(p, &w, 4); break;
    default: memcpy(p, &x, 8); break;
    }
}

/* BSN_WIDTHS(width, f, arguments): f(arguments, width) with a constant. BSN_FLOATS: the same for widths of 2,
 * 4 or 8 bytes. */
#define BSN_WIDTHS(width, f, arguments)                                                               \
    switch (width) { case 1: f(BSN_REMOVE arguments, 1); break; BSN_WIDER(f, arguments) }
#define BSN_FLOATS(width, f, arguments) switch (width) { BSN_WIDER(f, arguments) }
#define BSN_WIDER(f, arguments)                                                                       \
    case 2: f(BSN_REMOVE arguments, 2); break;                                                        \
    case 4: f(BSN_REMOVE arguments, 4); break;                                                        \
    default: f(BSN_REMOVE arguments, 8); break;
#define BSN_REMOVE(...) __VA_ARGS__

/* BSN_TYPES(width, F, argument): F(type, argument), a block for the unsigned type of this width */
#define BSN_TYPES(width, F, argument)                                                                 \
    switch (width) {                                                                                  \
    case 1: F(uint8_t, argument) break;                                                               \
    case 2: F(uint16_t, argument) break;                                                              \
    case 4: F(uint32_t, argument) break;                                                              \
    default: F(uint64_t, argument) break;                                                             \
    }

/* All bits of an element but its highest, the sign. */
BSN_INLINE uint64_t bsn_magnitude_bits(unsigned width) { return ~UINT64_C(0) >> (65 - 8 * width); }

/* n elements between native and little-endian order (the same operation both ways) */
BSN_INLINE void bsn_copy_little_endian(void *to, const void *from, size_t n, unsigned width)
{
    if (!BSN_BIG_ENDIAN || width == 1) {
        if (n) memcpy(to, from, n * width);
    } else {
        const uint8_t *s = (const uint8_t *)from;
        uint8_t *d = (uint8_t *)to;
        size_t i;
        unsigned k;
        for (i = 0; i < n; i++, s += width, d += width) {
            uint8_t x[8];
            for (k = 0; k < width; k++) x[k] = s[width - 1 - k];
            memcpy(d, x, width);
        }
    }
}

/* ---- kernels: what they work on, and the list of them, BSN_KERNELS. Each is described where its layer
 * begins. ---- */

/* An inner node of a code tree when decoding: merges its children's lists by its planes. */
typedef struct bsn_node {
    const uint8_t *list[4]; /* cursors into the lists of the children, in slot order */
    const uint8_t *planes;  /* plane j at planes + j * stride; plane 0 holds the first bit of a path */
    size_t stride;          /* of one merged with another: bits of its plane that have been used */
    size_t count;           /* elements that pass the node */
    uint8_t *out;           /* where the merged list goes */
    uint8_t leaf[16];       /* symbol of each leaf slot; 0 for list slots */
    uint8_t bits;           /* k: planes of the node, which has 2^k slots; 0: a list of leaf[0] alone */
    uint8_t lists;          /* list slots: the last ones; at most 4 */
    uint8_t row;            /* its place in a row, see bsn_chain_node: 0, 1, 2, 3, 1, ... */
    uint8_t chained;        /* 1: the two nodes after it are merged together with it */
    uint8_t merged;         /* 1: it is merged with one before it */
    uint8_t *kept;          /* where kept memory of this node and of those inside it begins */
} bsn_node;

/* A node that is encoded: writes masks, and deals the remainders of the paths to the children's lists. */
typedef struct bsn_fork {
    uint8_t *list[4];
    uint8_t *planes;
    size_t stride;
    uint8_t bits, lists;
    uint8_t by_leaves; /* 1: the input is symbols, which go to lists unchanged; a symbol outside `leaf` goes
                          to the last list. 0: codes */
    uint8_t twigs;  /* number of first lists that are nodes of two leaves: each gets its mask instead of
                       symbols */
    size_t used[2]; /* bits of these masks up to now; the last, partial byte is at `list` */
    uint8_t leaf[12]; /* by leaves: the symbols of the leaf slots, then two for each list but the last */
} bsn_fork;

/* Where the bits of an element are in the planes, see PLANES. */
typedef struct bsn_field {
    uint64_t low, sign, symbol; /* masks of the element's bits, repeated over 64 bits */
    unsigned symbol_bits, width;
    unsigned wide;              /* 1: F64, whose exponent is taken less `base` */
    unsigned base;
} bsn_field;

/* The last step of decoding: symbols merged, joined with the bytes below, and these hashed. */
typedef struct bsn_finish {
    bsn_node *node;          /* the outermost, which has symbols */
    const bsn_field *field;
    const uint8_t *plane[8]; /* bytes of the elements below the top one */
    uint64_t *state[8];      /* XXH3's accumulators of each; null: not to be hashed */
    const uint8_t *bits;     /* where symbol and other bits share the top byte: bit planes of these; else
                                null, or, where elements have 4 bytes: bit planes of the plane below the top
                                one, which is not read then; */
    unsigned varying, value; /* the bits that have bit planes, and the value of the others */
    const bsn_ahead *ahead;  /* lines to prefetch, in 8 strips, beginning with the first */
    size_t ahead_lines;      /* the number of lines to prefetch: 8 with each 512 bytes of elements */
    uint8_t *room;           /* 2 KiB of scratch */
    uint8_t *tail;           /* not null: elements are stored past the caches, as by bsn_lines_next, and begin
                                a line or follow those of the call before */
} bsn_finish;

/* The first step of encoding: elements split, the bytes below the symbol hashed. */
typedef struct bsn_start {
    const bsn_field *field;
    uint8_t *plane[8];       /* byte planes; the top one has the symbols alone */
    uint8_t *tail[8];        /* not null: this plane, not the top one, is stored as by bsn_lines_next, after
                                that of the call before */
    int past;                /* 1: these are stored past the caches */
    uint64_t *state[8];      /* XXH3's accumulators of each but the top one; null: not to be hashed */
    uint8_t *bits;           /* where symbol and other bits share the top byte: bit planes of these; else
                                null, or, where elements have 4 bytes: bit planes of the plane below the top
                                one, which is not written then; */
    unsigned varying, value; /* the bits that get bit planes; the value that the others must have in the plane
                                below the top one */
    const bsn_ahead *ahead;  /* lines to prefetch, in 4 strips, beginning with the first */
    size_t ahead_lines;      /* not 0: n / 32 lines are prefetched for elements of 4 bytes, n / 128 for those
                                of 2 */
} bsn_start;

enum { BSN_START_DIFFERS = 2 };

/* The classes of elements, and the words of each, see DELTA. An element's magnitude is the element without
 * its highest bit. */
typedef struct bsn_classes {
    unsigned count;         /* classes that elements can be of, 1 .. 8 */
    unsigned width;
    unsigned shift, mask;   /* the symbol of an element is element >> shift & mask */
    uint8_t of[256];        /* the class of each symbol */
    uint64_t border[7];     /* the same by magnitude: border[k] and more is a class above k */
    const uint8_t *next[8]; /* reading: the next word of each class */
    uint8_t *list[8];       /* writing: where the next word of each class goes; 64 bytes after it may be
                               overwritten */
    unsigned narrow;        /* bit k: the words of class k are bytes */
} bsn_classes;

/* How words are split into symbols and the low bits below them, see DELTA. */
typedef struct bsn_slices {
    unsigned width; /* bytes of a word */
    unsigned shift; /* number of low bits */
    unsigned limit; /* larger symbols become this one; 255 at most */
    size_t stride;  /* bytes from one plane of them to the next */
} bsn_slices;

/* What is counted of words for choosing classes, see DELTA. */
typedef struct bsn_census bsn_census;

/* How numbers are quantized, and how far they are from what they become: see QUANTIZE. */
typedef struct bsn_log bsn_log;
typedef struct bsn_errors bsn_errors;

/* Words and codes of elements of one row, see QUANTIZE. A word is above what its place lets expect. */
typedef struct bsn_row {
    const bsn_log *log;
    const uint8_t *columns; /* scales of the columns from the first element on; null: none */
    uint32_t row;           /* and of the row */
    uint32_t base;          /* what words are above, modulo 2^32 */
    unsigned signs;         /* 1: the lowest bit of a word is the sign */
} bsn_row;

/* What a kernel table does faster than other code would. A table without the flag does not get such calls.
 * BSN_LOGS is different: log_words and log_numbers are called without it, so they must be right. */
enum {
    BSN_CHAINS = 1,           /* node_merge takes `chained` nodes */
    BSN_LEAVES = 2,           /* node_fork takes nodes `by_leaves` that have at most one list */
    BSN_LEAVES_LISTS = 4,     /* node_fork takes nodes `by_leaves` with more lists, which get symbols */
    BSN_LEAVES_TWIGS = 8,     /* node_fork writes lists as twigs */
    BSN_STARTS = 16,          /* has start */
    BSN_FINISHES = 32,        /* has finish */
    BSN_FINISHES_SENDS = 64,  /* finish stores past the caches faster even if elements come from scratch */
    BSN_FINISHES_BITS = 128,  /* finish makes the plane below the top one from bit planes if elements have 4
                                 bytes */
    BSN_LOGS = 256            /* has the kernels log_... */
};

/* The kernels of a table: SLOT(switches that remove it, result, name, arguments). `groups` counts full groups
 * of 64 elements; shared code handles the remainder. A kernel may read 64 bytes past a list and 8 past a
 * mask, and write 64 bytes past a list or an output named `out`. The caller owns those bytes. A kernel marked
 * exact touches only what its arguments describe. */
#define BSN_KERNELS(SLOT)                                                                             \
    /* XXH3's inner loop over `count` stripes of 64 bytes, beginning with number `first` */           \
    SLOT(ALL, void, hash, (uint64_t state[8], const uint8_t *p, size_t count, size_t first))          \
    /* exact: the number of 1 bits */                                                                 \
    SLOT(ALL, size_t, count, (const uint8_t *mask, size_t n))                                         \
    /* exact: elements whose bit is 0 go to `zeros`, the others to `ones`; null: nowhere */           \
    SLOT(MASKS, void, partition, (unsigned width, const uint8_t *list, size_t n, const uint8_t *mask, \
         uint8_t *zeros, uint8_t *ones))                                                              \
    /* the inverse, of groups: elements whose bit is 0 are the next of `zeros`, the others of `ones`; of null: they are 0 */ \
    SLOT(ALL, void, unpart, (unsigned width, uint8_t *elements, const uint8_t *zeros, const uint8_t *ones, \
         const uint8_t *mask, size_t groups))                                                         \
    /* exact: bit i of the mask is set where elements i of a and b differ */                          \
    SLOT(MASKS, void, compare, (unsigned width, uint8_t *mask, const uint8_t *a, const uint8_t *b, size_t groups)) \
    /* elements to byte planes in pair order */                                                       \
    SLOT(MASKS, void, split, (const bsn_field *field, uint8_t *const planes[8], const uint8_t *elements, size_t groups)) \
    /* inverse of split */                                                                            \
    SLOT(ALL, void, join, (const bsn_field *field, uint8_t *elements, const uint8_t *const planes[8], size_t groups)) \
    /* bytes to bit planes of the bits set in `varying` */                                            \
    SLOT(ENCODE, void, bits_take, (uint8_t *bits, const uint8_t *bytes, unsigned varying, size_t groups)) \
    /* inverse of bits_take: bytes[i] = symbols[i] << shift | value | these bits. `bytes` may be `symbols`; if shift is 0, \
     * it is, and value is 0 */                                                                       \
    SLOT(ALL, void, bits_put, (uint8_t *bytes, const uint8_t *symbols, unsigned shift, unsigned value, \
         const uint8_t *bits, unsigned varying, size_t groups))                                       \
    /* counts of the bytes of a list, added to h */                                                   \
    SLOT(ENCODE, void, histogram, (uint32_t h[256], const uint8_t *list, size_t n, uint32_t *scratch)) \
    /* list[i] becomes code[list[i]]; the bytes whose code is `escape` (256: none) are appended to escapes */ \
    SLOT(ENCODE, uint8_t *, map, (uint8_t *list, size_t n, const uint8_t code[256], unsigned escape, uint8_t *escapes)) \
    /* merges elements first .. first + n - 1 of a node, and of the two after it if it is `chained`; first is a multiple of 64 */ \
    SLOT(ALL, void, node_merge, (bsn_node *node, size_t first, size_t n, uint8_t *out))               \
    /* inverse of node_merge: forks codes or, if the node is `by_leaves`, symbols; see bsn_by_leaves */ \
    SLOT(ENCODE, void, node_fork, (bsn_fork *fork, const uint8_t *codes, size_t first, size_t n))     \
    /* the lengths of a node's lists */                                                               \
    SLOT(ALL, void, node_counts, (const bsn_node *node, size_t counts[4]))                            \
    /* split, bits_take and hash in one pass; n is a multiple of 1024 up to BSN_CHUNK. Returns 0, and does nothing, if it cannot do \
     * this field; BSN_START_DIFFERS if a bit is not `value`; else 1 */                               \
    SLOT(ENCODE, int, start, (const bsn_start *t, const uint8_t *elements, size_t n))                 \
    /* node_merge, bits_put, hash and join in one pass; first and n are multiples of 1024, planes are those of the n elements. \
     * Returns 0, and does nothing, if it cannot do this node and field */                            \
    SLOT(ALL, int, finish, (const bsn_finish *t, uint8_t *elements, size_t first, size_t n))          \
    /* exact: bit i of the mask is set where byte i of the list is above t, below 255 */              \
    SLOT(ALL, void, mask_above, (uint8_t *mask, const uint8_t *list, size_t groups, unsigned t))      \
    /* writes `first` plus the position of each 1 bit, ascending, and 64 bytes after them; returns their number */ \
    SLOT(ALL, size_t, places, (uint32_t *place, const uint8_t *mask, size_t first, size_t groups))    \
    /* adds to above[k] the number of elements of a class above k */                                  \
    SLOT(DELTA, void, classes_above, (const bsn_classes *t, size_t above[7], const uint8_t *elements, size_t groups)) \
    /* exact, except that words are read 64 bytes past their end: out[i] = elements[i] + the inverse zigzag of the next word of its \
     * class; `out` may be `elements` */                                                              \
    SLOT(DELTA, void, classes_add, (bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups)) \
    /* appends each word to the list of its element's class; if the class is narrow as a byte, 255 if it is larger */ \
    SLOT(DELTA_ENCODE, void, classes_deal, (bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups)) \
    /* exact: words[i] = zigzag(a[i] - b[i]); returns the OR of the words */                          \
    SLOT(DELTA_ENCODE, uint64_t, subtract, (unsigned width, uint8_t *words, const uint8_t *a, const uint8_t *b, size_t groups)) \
    /* exact: the exponents of elements; words are counted by them and by their tokens, those that are 0 or not */ \
    SLOT(DELTA_ENCODE, void, census, (bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements, size_t groups)) \
    /* exact, of words of 2 and 4 bytes, n a multiple of 64: see bsn_scalar_words_split */           \
    SLOT(ENCODE, uint64_t, words_split, (const bsn_slices *t, uint8_t *symbols, uint8_t *bits, uint8_t *planes, \
         const uint8_t *words, size_t n))                                                             \
    /* the reverse */                                                                                 \
    SLOT(ALL, void, words_join, (const bsn_slices *t, uint8_t *words, const uint8_t *symbols, const uint8_t *bits, \
         const uint8_t *planes, size_t n))                                                            \
    /* exact, of F32 by at least 2 bins, n at most BSN_CHUNK, as those below: bsn_log_codes with bsn_log_words and \
     * bsn_log_errors, for which `room` has some for n words; where e is null, codes alone */         \
    SLOT(QUANTIZE_ENCODE, size_t, log_words, (const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, size_t n, \
         uint8_t *room))                                                                              \
    /* bsn_log_numbers */                                                                             \
    SLOT(QUANTIZE, int, log_numbers, (const bsn_row *p, uint8_t *elements, const uint8_t *words, size_t n, size_t *apart)) \
    /* words_join and log_numbers at once where bsn_log_joins says so: the elements that are zeros and normal numbers; of all \
     * others the bits of the mask are set. Returns 0 where none is */                                \
    SLOT(QUANTIZE, uint64_t, log_join, (const bsn_row *p, uint8_t *elements, uint8_t *mask, const uint8_t *symbols, \
         const uint8_t *low, size_t n, unsigned shift))

/* A table of inner loops, none of them null unless a switch removes it. A table has the portable kernel where
 * it has no faster one. */
struct bitsnap_kernels {
    const char *name;
    unsigned chunk; /* elements that are merged, joined and hashed at a time when decoding: a multiple of 64
                       up to BSN_CHUNK */
    unsigned has;   /* BSN_CHAINS .. BSN_LOGS */
#define BSN_SLOT(when, result, name, arguments) result (*name) arguments;
    BSN_KERNELS(BSN_SLOT)
#undef BSN_SLOT
};

/* The fastest table that this machine has; defined at the end, where all are known. */
static const bitsnap_kernels *bsn_kernels_best(void);

/* ================================================================================= HASH
 * XXH3-64 with seed 0 (Collet), written from its specification. Long inputs are 64-byte stripes into 8 accumulators. There are three
 * ways to hash: bsn_hash_of, all at once; bsn_hasher, bytes that lie in one place, as they become ready and while they are in the
 * cache; bsn_pieces, bytes from several places. */

static const uint8_t bsn_secret[192] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e
};

#define BSN_P32_1 UINT64_C(0x9E3779B1)
#define BSN_P32_2 UINT64_C(0x85EBCA77)
#define BSN_P32_3 UINT64_C(0xC2B2AE3D)
#define BSN_P64_1 UINT64_C(0x9E3779B185EBCA87)
#define BSN_P64_2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define BSN_P64_3 UINT64_C(0x165667B19E3779F9)
#define BSN_P64_4 UINT64_C(0x85EBCA77C2B2AE63)
#define BSN_P64_5 UINT64_C(0x27D4EB2F165667C5)

BSN_INLINE uint64_t bsn_rotl64(uint64_t x, unsigned n) { return (x << n) | (x >> (64 - n)); }

/* the upper half of the 128-bit product */
static uint64_t bsn_multiply_high(uint64_t a, uint64_t b)
{
    const uint64_t al = a & 0xFFFFFFFFu, ah = a >> 32, bl = b & 0xFFFFFFFFu, bh = b >> 32;
    const uint64_t cross = (al * bl >> 32) + (ah * bl & 0xFFFFFFFFu) + al * bh;
    return (ah * bl >> 32) + (cross >> 32) + ah * bh;
}

/* both halves of it, XORed */
static uint64_t bsn_fold_multiply(uint64_t a, uint64_t b) { return bsn_multiply_high(a, b) ^ (a * b); }

BSN_INLINE uint64_t bsn_hash_avalanche(uint64_t h)
{
    h = (h ^ (h >> 37)) * UINT64_C(0x165667919E3779F9);
    return h ^ (h >> 32);
}

BSN_INLINE uint64_t bsn_hash_avalanche64(uint64_t h)
{
    h = (h ^ (h >> 33)) * BSN_P64_2;
    h = (h ^ (h >> 29)) * BSN_P64_3;
    return h ^ (h >> 32);
}

BSN_INLINE uint64_t bsn_hash_mix(const uint8_t *p, const uint8_t *secret)
{
    return bsn_fold_multiply(bsn_load64(p) ^ bsn_load64(secret), bsn_load64(p + 8) ^ bsn_load64(secret + 8));
}

/* up to 240 bytes */
static uint64_t bsn_hash_short(const uint8_t *p, size_t n)
{
    const uint8_t *s = bsn_secret;
    uint64_t h;
    size_t i;
    if (n > 128) {
        h = n * BSN_P64_1;
        for (i = 0; i < 8; i++) h += bsn_hash_mix(p + 16 * i, s + 16 * i);
        h = bsn_hash_avalanche(h);
        for (i = 8; i < n / 16; i++) h += bsn_hash_mix(p + 16 * i, s + 16 * (i - 8) + 3);
        return bsn_hash_avalanche(h + bsn_hash_mix(p + n - 16, s + 136 - 17));
    }
    if (n > 16) {
        h = n * BSN_P64_1;
        for (i = (n - 1) / 32 + 1; i-- > 0;)
            h += bsn_hash_mix(p + 16 * i, s + 32 * i) + bsn_hash_mix(p + n - 16 * (i + 1), s + 32 * i + 16);
        return bsn_hash_avalanche(h);
    }
    if (n > 8) {
        uint64_t low = bsn_load64(p) ^ bsn_load64(s + 24) ^ bsn_load64(s + 32);
        uint64_t high = bsn_load64(p + n - 8) ^ bsn_load64(s + 40) ^ bsn_load64(s + 48);
        return bsn_hash_avalanche(n + bsn_swap64(low) + high + bsn_fold_multiply(low, high));
    }
    if (n >= 4) {
        h = bsn_load32(p + n - 4) + ((uint64_t)bsn_load32(p) << 32);
        h ^= bsn_load64(s + 8) ^ bsn_load64(s + 16);
        h ^= bsn_rotl64(h, 49) ^ bsn_rotl64(h, 24);
        h *= UINT64_C(0x9FB21C651E98DF25);
        h = (h ^ ((h >> 35) + n)) * UINT64_C(0x9FB21C651E98DF25);
        return h ^ (h >> 28);
    }
    if (n) {
        h = ((uint64_t)p[0] << 16) | ((uint64_t)p[n >> 1] << 24) | p[n - 1] | ((uint64_t)n << 8);
        return bsn_hash_avalanche64(h ^ (uint64_t)(bsn_load32(s) ^ bsn_load32(s + 4)));
    }
    return bsn_hash_avalanche64(bsn_load64(s + 56) ^ bsn_load64(s + 64));
}

/* Each lane of a stripe adds its product to its accumulator, and its data to the neighbour's. */
BSN_INLINE void bsn_hash_stripe(uint64_t state[8], const uint8_t *p, const uint8_t *secret)
{
    unsigned i;
    for (i = 0; i < 8; i++) {
        const uint64_t data = bsn_load64(p + 8 * i), keyed = data ^ bsn_load64(secret + 8 * i);
        state[i] += (keyed & 0xFFFFFFFFu) * (keyed >> 32);
        state[i ^ 1] += data;
    }
}

static void bsn_hash_scramble(uint64_t state[8])
{
    unsigned i;
    for (i = 0; i < 8; i++)
        state[i] = (state[i] ^ (state[i] >> 47) ^ bsn_load64(bsn_secret + 128 + 8 * i)) * BSN_P32_1;
}

#if !BSN_BIG_ENDIAN && BSN_WIDE_LANES == 2
/* Two accumulators scrambled: vectors multiply 32 bits, so the product is put together from two. */
BSN_INLINE bsn_wide bsn_wide_scramble(bsn_wide s, const uint8_t *secret)
{
    const bsn_wide x = s ^ (s >> 47) ^ bsn_wide_load(secret), prime = bsn_wide_all(BSN_P32_1);
    const bsn_wide low = bsn_wide_multiply_halves(x << 32 | prime);
    const bsn_wide high = bsn_wide_multiply_halves((x >> 32 << 32) | prime);
    return low + (high << 32);
}

BSN_INLINE void bsn_wide_cross(bsn_wide *s, bsn_wide *data)
{
    const bsn_wide other = { (*data)[1], (*data)[0] };
    *s += other;
    *data ^= *data;
}
#endif

/* 16 stripes use the secret at 0, 8, .., 120; then the accumulators are scrambled. */
static void bsn_scalar_hash(uint64_t state[8], const uint8_t *p, size_t count, size_t first)
{
    size_t i;
#if BSN_BIG_ENDIAN || BSN_WIDE_LANES == 1
    for (i = first; i < first + count; i++, p += 64) {
        bsn_hash_stripe(state, p, bsn_secret + 8 * (i & 15));
        if ((i & 15) == 15) bsn_hash_scramble(state);
    }
/* two lanes at a time: each lane's data goes to the other lane's accumulator, after it has been added up */
#else
    bsn_wide s[4], d[4];
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 4; j++) s[j] = bsn_wide_load(state + 2 * j), d[j] = bsn_wide_all(0);
    for (i = first; i < first + count; i++, p += 64) {
        BSN_UNROLL
        for (j = 0; j < 4; j++) {
            const bsn_wide data = bsn_wide_load(p + 16 * j);
            s[j] += bsn_wide_multiply_halves(data ^ bsn_wide_load(bsn_secret + 8 * (i & 15) + 16 * j));
            d[j] += data;
        }
        if ((i & 15) != 15) continue;
        BSN_UNROLL
        for (j = 0; j < 4; j++) {
            bsn_wide_cross(&s[j], &d[j]);
            s[j] = bsn_wide_scramble(s[j], bsn_secret + 128 + 16 * j);
        }
    }
    BSN_UNROLL
    for (j = 0; j < 4; j++) {
        bsn_wide_cross(&s[j], &d[j]);
        bsn_wide_store(state + 2 * j, s[j]);
    }
#endif
}

/* A hash of `total` bytes, known in advance. Stripes are hashed as they arrive. Who feeds it keeps the bytes
 * that do not fill a stripe. */
typedef struct bsn_hasher {
    uint64_t state[8];
    uint64_t total, stripes; /* stripes done */
} bsn_hasher;

static void bsn_hash_begin(bsn_hasher *h, uint64_t total)
{
    static const uint64_t start[8] = { BSN_P32_3, BSN_P64_1, BSN_P64_2, BSN_P64_3,
                                       BSN_P64_4, BSN_P32_2, BSN_P64_5, BSN_P32_1 };
    memcpy(h->state, start, sizeof start);
    h->total = total;
    h->stripes = 0;
}

/* Hashes the next `stripes` stripes, which are at p. Leaves the last one of a hash to its end: it is hashed
 * in another way. */
BSN_INLINE void bsn_hash_next(const bitsnap_kernels *kernels, bsn_hasher *h, const uint8_t *p, size_t stripes)
{
    const uint64_t left = (h->total - 1) / 64 - h->stripes;
    if (h->total <= 240) return;
    if (stripes > left) stripes = (size_t)left;
    if (stripes) kernels->hash(h->state, p, stripes, (size_t)h->stripes);
    h->stripes += stripes;
}

/* The whole lies at p, and its first `ready` bytes are there. */
BSN_INLINE void bsn_hash_feed(const bitsnap_kernels *kernels, bsn_hasher *h, const uint8_t *p, size_t ready)
{
    const size_t done = (size_t)h->stripes;
    if (ready / 64 > done) bsn_hash_next(kernels, h, p + 64 * done, ready / 64 - done);
}

/* `last` are the last 64 bytes of the whole. */
static uint64_t bsn_hash_long_end(bsn_hasher *h, const uint8_t *last)
{
    uint64_t x = h->total * BSN_P64_1;
    unsigned i;
    bsn_hash_stripe(h->state, last, bsn_secret + 121);
    for (i = 0; i < 8; i += 2)
        x += bsn_fold_multiply(h->state[i] ^ bsn_load64(bsn_secret + 11 + 8 * i),
                               h->state[i + 1] ^ bsn_load64(bsn_secret + 19 + 8 * i));
    return bsn_hash_avalanche(x);
}

static uint64_t bsn_hash_end(const bitsnap_kernels *kernels, bsn_hasher *h, const uint8_t *p)
{
    const size_t total = (size_t)h->total;
    if (total <= 240) return bsn_hash_short(p, total);
    bsn_hash_feed(kernels, h, p, total);
    return bsn_hash_long_end(h, p + total - 64);
}

static uint64_t bsn_hash_of(const bitsnap_kernels *kernels, const void *p, size_t n)
{
    bsn_hasher h;
    if (n <= 240) return bsn_hash_short((const uint8_t *)p, n);
    bsn_hash_begin(&h, n);
    return bsn_hash_end(kernels, &h, (const uint8_t *)p);
}

/* Base and result are hashed alternately, a page at a time: hardware prefetchers follow both. Longer pieces
 * and explicit prefetches are slower. */
#define BSN_PAGE 4096u

/* A hash of bytes that arrive in pieces of any size. Pieces need not stay in memory. */
typedef struct bsn_pieces {
    bsn_hasher hash;
    uint64_t got;        /* bytes that have arrived */
    uint8_t recent[240]; /* the last whole stripe and, from 64 on, the one that fills up; or all bytes, if the
                            hash has at most 240 */
} bsn_pieces;

static void bsn_pieces_begin(bsn_pieces *h, uint64_t total)
{
    bsn_hash_begin(&h->hash, total);
    h->got = 0;
}

static void bsn_pieces_add(const bitsnap_kernels *kernels, bsn_pieces *h, const void *data, size_t n)
{
    const uint8_t *p = (const uint8_t *)data;
    size_t taken;
    for (; n; p += taken, n -= taken, h->got += taken) {
        const size_t fill = (size_t)h->got % 64;
        if (h->hash.total <= 240) {
            memcpy(h->recent + h->got, p, n);
            taken = n;
        } else if (fill == 0 && n >= 64) {
            bsn_hash_next(kernels, &h->hash, p, n / 64);
            taken = n & ~(size_t)63;
            memcpy(h->recent, p + taken - 64, 64);
        } else {
            taken = bsn_min(64 - fill, n);
            memcpy(h->recent + 64 + fill, p, taken);
            if (fill + taken < 64) continue;
            bsn_hash_next(kernels, &h->hash, h->recent + 64, 1);
            memcpy(h->recent, h->recent + 64, 64);
        }
    }
}

static uint64_t bsn_pieces_end(const bsn_pieces *h)
{
    bsn_hasher end = h->hash;
    return end.total <= 240 ? bsn_hash_short(h->recent, (size_t)end.total) : bsn_hash_long_end(&end, h->recent + end.total % 64);
}

/* ================================================================================= BITMASK
 * Partition, and expansion for nodes. The portable kernels handle 8 bytes at a time: byte i of the expanded word comes
 * from byte rank(i), d = i - rank(i) places lower, in three stages of 4, 2 and 1 places, each a masked
 * shift. Compressing runs the stages backwards with the same masks. */

#define BSN_BIT(m, i) (((m) >> (i)) & 1u)
#define BSN_4(F, m) F((m)) F((m) + 1u) F((m) + 2u) F((m) + 3u)
#define BSN_16(F, m) BSN_4(F, m) BSN_4(F, m + 4u) BSN_4(F, m + 8u) BSN_4(F, m + 12u)
#define BSN_64(F, m) BSN_16(F, m) BSN_16(F, m + 16u) BSN_16(F, m + 32u) BSN_16(F, m + 48u)
#define BSN_256(F) BSN_64(F, 0u) BSN_64(F, 64u) BSN_64(F, 128u) BSN_64(F, 192u)
#define BSN_R(F, a0, a1, a2, a3, a4, a5, a6, a7, b0, b1, b2, b3, b4, b5, b6, b7, c0, c1, c2, c3, c4, c5, c6, c7, \
              d0, d1, d2, d3, d4, d5, d6, d7)                                                                \
    F(0x##a0) F(0x##a1) F(0x##a2) F(0x##a3) F(0x##a4) F(0x##a5) F(0x##a6) F(0x##a7) F(0x##b0) F(0x##b1)      \
    F(0x##b2) F(0x##b3) F(0x##b4) F(0x##b5) F(0x##b6) F(0x##b7) F(0x##c0) F(0x##c1) F(0x##c2) F(0x##c3)      \
    F(0x##c4) F(0x##c5) F(0x##c6) F(0x##c7) F(0x##d0) F(0x##d1) F(0x##d2) F(0x##d3) F(0x##d4) F(0x##d5)      \
    F(0x##d6) F(0x##d7)

/* FF at byte i for each bit i of m. The product has bits 0 to 6 where they belong; bit 7 would meet copies of
 * the others. */
#define BSN_SPREAD(m) ((((m) & 127u) * UINT64_C(0x2040810204081) & BSN_ONES) | (uint64_t)((m) >> 7) << 56) * 255u,
#define BSN_SPREAD_DOWN4(m) BSN_SPREAD((m) >> 4)
#define BSN_SPREAD_DOWN2(m) BSN_SPREAD((m) >> 2)
#define BSN_SPREAD_DOWN1(m) BSN_SPREAD((m) >> 1)

/* Bytes that elements reach in the stage of s places, for each mask m: bit i is byte i. An element at the set
 * bit i has d = i - rank(i) places to go. The stages before have brought it to byte rank(i) + (d & -2s). If d
 * & s is not 0, this stage moves it s bytes up. These are numbers because macros that compute them would
 * expand to 5.8 MB of source, which costs 0.7 s of every build. test_bitmask recomputes all eight tables. */
#define BSN_MOVES4(F)                                                                                        \
    BSN_R(F,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00,10,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00) \
    BSN_R(F,10,20,20,00,20,00,00,00,20,00,00,00,00,00,00,00,30,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00) \
    BSN_R(F,10,20,20,40,20,40,40,00,20,40,40,00,40,00,00,00,30,40,40,00,40,00,00,00,40,00,00,00,00,00,00,00) \
    BSN_R(F,30,60,60,00,60,00,00,00,60,00,00,00,00,00,00,00,70,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00) \
    BSN_R(F,10,20,20,40,20,40,40,80,20,40,40,80,40,80,80,00,30,40,40,80,40,80,80,00,40,80,80,00,80,00,00,00) \
    BSN_R(F,30,60,60,80,60,80,80,00,60,80,80,00,80,00,00,00,70,80,80,00,80,00,00,00,80,00,00,00,00,00,00,00) \
    BSN_R(F,30,60,60,C0,60,C0,C0,00,60,C0,C0,00,C0,00,00,00,70,C0,C0,00,C0,00,00,00,C0,00,00,00,00,00,00,00) \
    BSN_R(F,70,E0,E0,00,E0,00,00,00,E0,00,00,00,00,00,00,00,F0,00,00,00,00,00,00,00,00,00,00,00,00,00,00,00)
#define BSN_MOVES2(F)                                                                                        \
    BSN_R(F,00,00,00,00,04,00,00,00,04,08,08,00,0C,00,00,00,00,08,08,10,0C,10,10,00,0C,18,18,00,1C,00,00,00) \
    BSN_R(F,00,00,00,10,04,10,10,20,04,18,18,20,1C,20,20,00,00,18,18,30,1C,30,30,00,1C,38,38,00,3C,00,00,00) \
    BSN_R(F,40,00,00,00,04,00,00,20,04,08,08,20,0C,20,20,40,00,08,08,30,0C,30,30,40,0C,38,38,40,3C,40,40,00) \
    BSN_R(F,00,00,00,30,04,30,30,60,04,38,38,60,3C,60,60,00,00,38,38,70,3C,70,70,00,3C,78,78,00,7C,00,00,00) \
    BSN_R(F,40,80,80,00,84,00,00,00,84,08,08,00,0C,00,00,40,80,08,08,10,0C,10,10,40,0C,18,18,40,1C,40,40,80) \
    BSN_R(F,80,00,00,10,04,10,10,60,04,18,18,60,1C,60,60,80,00,18,18,70,1C,70,70,80,1C,78,78,80,7C,80,80,00) \
    BSN_R(F,C0,00,00,00,04,00,00,60,04,08,08,60,0C,60,60,C0,00,08,08,70,0C,70,70,C0,0C,78,78,C0,7C,C0,C0,00) \
    BSN_R(F,00,00,00,70,04,70,70,E0,04,78,78,E0,7C,E0,E0,00,00,78,78,F0,7C,F0,F0,00,7C,F8,F8,00,FC,00,00,00)
#define BSN_MOVES1(F)                                                                                        \
    BSN_R(F,00,00,02,00,00,04,06,00,08,00,02,08,00,0C,0E,00,00,10,12,00,10,04,06,10,18,00,02,18,00,1C,1E,00) \
    BSN_R(F,20,00,02,20,00,24,26,00,08,20,22,08,20,0C,0E,20,00,30,32,00,30,04,06,30,38,00,02,38,00,3C,3E,00) \
    BSN_R(F,00,40,42,00,40,04,06,40,48,00,02,48,00,4C,4E,00,40,10,12,40,10,44,46,10,18,40,42,18,40,1C,1E,40) \
    BSN_R(F,60,00,02,60,00,64,66,00,08,60,62,08,60,0C,0E,60,00,70,72,00,70,04,06,70,78,00,02,78,00,7C,7E,00) \
    BSN_R(F,80,00,02,80,00,84,86,00,08,80,82,08,80,0C,0E,80,00,90,92,00,90,04,06,90,98,00,02,98,00,9C,9E,00) \
    BSN_R(F,20,80,82,20,80,24,26,80,88,20,22,88,20,8C,8E,20,80,30,32,80,30,84,86,30,38,80,82,38,80,3C,3E,80) \
    BSN_R(F,00,C0,C2,00,C0,04,06,C0,C8,00,02,C8,00,CC,CE,00,C0,10,12,C0,10,C4,C6,10,18,C0,C2,18,C0,1C,1E,C0) \
    BSN_R(F,E0,00,02,E0,00,E4,E6,00,08,E0,E2,08,E0,0C,0E,E0,00,F0,F2,00,F0,04,06,F0,F8,00,02,F8,00,FC,FE,00)

static const uint64_t bsn_up4[256] = { BSN_MOVES4(BSN_SPREAD) };
static const uint64_t bsn_up2[256] = { BSN_MOVES2(BSN_SPREAD) };
static const uint64_t bsn_up1[256] = { BSN_MOVES1(BSN_SPREAD) };
/* the bytes left, to compress by fewer operations */
static const uint64_t bsn_down4[256] = { BSN_MOVES4(BSN_SPREAD_DOWN4) };
static const uint64_t bsn_down2[256] = { BSN_MOVES2(BSN_SPREAD_DOWN2) };
static const uint64_t bsn_down1[256] = { BSN_MOVES1(BSN_SPREAD_DOWN1) };
static const uint64_t bsn_spread[256] = { BSN_256(BSN_SPREAD) };
#define BSN_ONES2(n) n, n + 1, n + 1, n + 2
#define BSN_ONES4(n) BSN_ONES2(n), BSN_ONES2(n + 1), BSN_ONES2(n + 1), BSN_ONES2(n + 2)
#define BSN_ONES6(n) BSN_ONES4(n), BSN_ONES4(n + 1), BSN_ONES4(n + 1), BSN_ONES4(n + 2)
static const uint8_t bsn_ones_in[256] = { BSN_ONES6(0), BSN_ONES6(1), BSN_ONES6(1), BSN_ONES6(2) }; /* the number of bits set in m */

/* what a table says of a byte of m for each lane of a wide word */
BSN_INLINE bsn_wide bsn_wide_look_up(const uint64_t table[256], uint64_t m)
{
    return bsn_wide_of(table[m & 255], table[m >> 8 & 255]);
}

/* The first bytes of each lane to the places whose bit is set in m, rubbish elsewhere: a lane is 8 of
 * them. */
BSN_INLINE bsn_wide bsn_wide_move_up(bsn_wide x, uint64_t m)
{
    x = bsn_wide_select(bsn_wide_look_up(bsn_up4, m), x, x << 32);
    x = bsn_wide_select(bsn_wide_look_up(bsn_up2, m), x, x << 16);
    return bsn_wide_select(bsn_wide_look_up(bsn_up1, m), x, x << 8);
}

/* the next bytes of a list to these places */
BSN_INLINE bsn_wide bsn_wide_expand(const uint8_t *list, uint64_t m)
{
    const uint64_t low = bsn_load64(list);
    return bsn_wide_move_up(bsn_wide_of(low, BSN_WIDE_LANES == 2 ? bsn_load64(list + bsn_ones_in[m & 255]) : low), m);
}

/* how many of the bits of m that choose bytes of a wide word are set */
BSN_INLINE unsigned bsn_wide_ones(uint64_t m)
{
    return bsn_ones_in[m & 255] + (BSN_WIDE_LANES == 2 ? bsn_ones_in[m >> 8 & 255] : 0u);
}

/* the bytes whose bit is set, in order, to the low end; rubbish above */
BSN_INLINE uint64_t bsn_compress8(uint64_t x, unsigned m)
{
    x ^= (x ^ (x >> 8)) & bsn_down1[m];
    x ^= (x ^ (x >> 16)) & bsn_down2[m];
    x ^= (x ^ (x >> 32)) & bsn_down4[m];
    return x;
}

/* Inverse of bsn_wide_move_up: moves the bytes of each lane whose bit is set in m to its low end. The bytes
 * above them are undefined. */
BSN_INLINE bsn_wide bsn_wide_move_down(bsn_wide x, uint64_t m)
{
    x = bsn_wide_select(bsn_wide_look_up(bsn_down1, m), x, x >> 8);
    x = bsn_wide_select(bsn_wide_look_up(bsn_down2, m), x, x >> 16);
    return bsn_wide_select(bsn_wide_look_up(bsn_down4, m), x, x >> 32);
}

/* These bytes go to a list, 8 with rubbish for each lane. Returns how many there are. */
BSN_INLINE unsigned bsn_wide_compress(uint8_t *list, bsn_wide x, uint64_t m)
{
    x = bsn_wide_move_down(x, m);
    bsn_store64(list, bsn_wide_first(x));
    if (BSN_WIDE_LANES == 2) bsn_store64(list + bsn_ones_in[m & 255], bsn_wide_last(x));
    return bsn_wide_ones(m);
}

/* up to 8 bytes, never touching more than there are */
BSN_INLINE uint64_t bsn_load_some(const uint8_t *p, size_t n)
{
    uint8_t some[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    if (n >= 8) return bsn_load64(p);
    if (n) memcpy(some, p, n);
    return bsn_load64(some);
}

BSN_FUNCTION void bsn_store_tail(uint8_t *p, uint64_t x, size_t n)
{
    for (; n; n--, x >>= 8) *p++ = (uint8_t)x;
}

BSN_INLINE void bsn_store_some(uint8_t *p, uint64_t x, size_t n)
{
    if (BSN_LIKELY(n >= 8)) bsn_store64(p, x);
    else bsn_store_tail(p, x, n);
}

static size_t bsn_scalar_count(const uint8_t *mask, size_t n)
{
    size_t i, ones = 0;
    for (i = 0; n - i >= 64; i += 64) ones += bsn_popcount(bsn_load64(mask + i / 8));
    for (; n - i >= 8; i += 8) ones += bsn_ones_in[mask[i / 8]];
    if (i < n) ones += bsn_ones_in[mask[i / 8] & ((1u << (n - i)) - 1u)];
    return ones;
}

/* Loads the bits of elements i .. i + 63 of a mask of n, or those that it has. Reads no byte past the
 * mask. */
BSN_INLINE uint64_t bsn_mask_word(const uint8_t *mask, size_t i, size_t n)
{
    if (BSN_LIKELY(n - i >= 64)) return bsn_load64(mask + i / 8);
    return bsn_load_some(mask + i / 8, bsn_mask_bytes(n - i)) & ((UINT64_C(1) << (n - i)) - 1);
}

/* Copies the elements whose bit is set one by one. Takes a step for each of them, and one for every 64
 * bits. */
BSN_INLINE void bsn_pick_any(uint8_t *ones, const uint8_t *list, size_t n, const uint8_t *mask, unsigned width)
{
    size_t i;
    uint64_t w;
    for (i = 0; i < n; i += 64, list += 64 * width)
        for (w = bsn_mask_word(mask, i, n); w; w &= w - 1, ones += width)
            memcpy(ones, list + bsn_lowest_bit(w) * width, width);
}

static void bsn_partition_bytes(const uint8_t *list, size_t n, const uint8_t *mask, uint8_t *zeros, uint8_t *ones)
{
    size_t ones_left = bsn_scalar_count(mask, n), zeros_left = n - ones_left, i;
    if (!zeros && ones && ones_left < n / 8) {
        bsn_pick_any(ones, list, n, mask, 1);
        return;
    }
    for (i = 0; i < n; i += 8) {
        size_t m = bsn_min(8, n - i);
        uint64_t x = bsn_load_some(list + i, m);
        unsigned set = mask[i / 8] & (0xFFu >> (8 - m)), c = bsn_ones_in[set];
        if (ones) {
            if (BSN_LIKELY(ones_left >= 8)) bsn_store64(ones, bsn_compress8(x, set));
            else bsn_store_some(ones, bsn_compress8(x, set), c);
            ones += c;
            ones_left -= c;
        }
        if (zeros) {
            unsigned clear = set ^ (0xFFu >> (8 - m));
            if (BSN_LIKELY(zeros_left >= 8)) bsn_store64(zeros, bsn_compress8(x, clear));
            else bsn_store_some(zeros, bsn_compress8(x, clear), m - c);
            zeros += m - c;
            zeros_left -= m - c;
        }
    }
}

/* The inverse of bsn_pick_any; the elements between come from `base`, or are left alone where that is
 * null. */
BSN_INLINE void bsn_put_any(uint8_t *list, const uint8_t *base, const uint8_t *ones, size_t n, const uint8_t *mask, unsigned width)
{
    size_t i, j;
    uint64_t w;
    for (i = 0; i < n; i += 64, list += 64 * width) {
        if (base) {
            if (BSN_LIKELY(n - i >= 64))
                for (j = 0; j < 64 * width; j += BSN_WIDE) bsn_wide_store(list + j, bsn_wide_load(base + j));
            else
                memcpy(list, base, (n - i) * width);
            base += 64 * width;
        }
        for (w = bsn_mask_word(mask, i, n); w; w &= w - 1, ones += width)
            memcpy(list + bsn_lowest_bit(w) * width, ones, width);
    }
}

/* Wider elements one by one: the bit chooses a cursor. A null list is one place that does not move. */
BSN_INLINE void bsn_partition_any(const uint8_t *list, size_t n, const uint8_t *mask, uint8_t *zeros, uint8_t *ones, unsigned width)
{
    uint8_t nowhere[8], *to[2];
    size_t step[2], i;
    if (width == 1) {
        bsn_partition_bytes(list, n, mask, zeros, ones);
        return;
    }
    if (!zeros) {
        if (ones) bsn_pick_any(ones, list, n, mask, width);
        return;
    }
    to[0] = zeros;
    to[1] = ones ? ones : nowhere;
    step[0] = width;
    step[1] = ones ? width : 0;
    for (i = 0; i < n; i++, list += width) {
        unsigned bit = BSN_BIT((unsigned)mask[i / 8], i & 7);
        memcpy(to[bit], list, width);
        to[bit] += step[bit];
    }
}

static void bsn_scalar_partition(unsigned width, const uint8_t *list, size_t n, const uint8_t *mask, uint8_t *zeros, uint8_t *ones)
{
    BSN_WIDTHS(width, bsn_partition_any, (list, n, mask, zeros, ones));
}

/* The next of a list to the places that are set in w; of whole lists where all are. */
BSN_INLINE const uint8_t *bsn_put_set(uint8_t *to, const uint8_t *list, uint64_t w, unsigned width)
{
    if (!~w) memcpy(to, list, 64 * width);
    if (!~w) return list + 64 * width;
    for (; w; w &= w - 1, list += width) memcpy(to + bsn_lowest_bit(w) * width, list, width);
    return list;
}

BSN_INLINE void bsn_unpart_any(uint8_t *to, const uint8_t *zeros, const uint8_t *ones, const uint8_t *mask, size_t groups,
                               unsigned width)
{
    for (; groups; groups--, mask += 8, to += 64 * width) {
        const uint64_t w = bsn_load64(mask);
        if (!zeros || !ones) memset(to, 0, 64 * width);
        if (zeros) zeros = bsn_put_set(to, zeros, ~w, width);
        if (ones) ones = bsn_put_set(to, ones, w, width);
    }
}

static void bsn_scalar_unpart(unsigned width, uint8_t *to, const uint8_t *zeros, const uint8_t *ones, const uint8_t *mask, size_t groups)
{
    BSN_WIDTHS(width, bsn_unpart_any, (to, zeros, ones, mask, groups));
}

/* Of n elements. */
static void bsn_unpart(const bitsnap_kernels *kernels, unsigned width, uint8_t *to, const uint8_t *zeros, const uint8_t *ones,
                       const uint8_t *mask, size_t n)
{
    const size_t whole = n & ~(size_t)63;
    size_t set;
    uint64_t last[64];
    uint8_t bits[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    if (whole) kernels->unpart(width, to, zeros, ones, mask, whole / 64);
    if (whole == n) return;
    set = kernels->count(mask, whole);
    memcpy(bits, mask + whole / 8, bsn_mask_bytes(n - whole));
    bsn_scalar_unpart(width, (uint8_t *)last, zeros ? zeros + (whole - set) * width : NULL, ones ? ones + set * width : NULL, bits, 1);
    memcpy(to + whole * width, last, (n - whole) * width);
}

/* the top bits of the elements in a word of 8 bytes */
BSN_INLINE uint64_t bsn_tops(unsigned width)
{
    return width == 1 ? 0x80 * BSN_ONES : width == 2 ? UINT64_C(0x8000800080008000)
         : width == 4 ? UINT64_C(0x8000000080000000) : UINT64_C(1) << 63;
}

/* One bit for each of them, when no others are set: a product brings them together (no two of its terms fall
 * on one bit). */
BSN_INLINE unsigned bsn_gather_tops(unsigned width, uint64_t x)
{
    switch (width) {
    case 1: return (unsigned)(((x >> 7) * UINT64_C(0x0102040810204080)) >> 56);
    case 2: return (unsigned)(((x >> 15) * UINT64_C(0x1000200040008000)) >> 60);
    case 4: return (unsigned)((x >> 31 & 1) | x >> 62);
    default: return (unsigned)(x >> 63);
    }
}

/* Returns one bit for each element in 8 bytes: 1 if it is not 0. Adding ones to the lower bits carries into
 * the top bit, if any of them is set. */
BSN_INLINE unsigned bsn_not_zero(unsigned width, uint64_t x)
{
    const uint64_t top = bsn_tops(width);
    return bsn_gather_tops(width, (((x & ~top) + ~top) | x) & top);
}

BSN_INLINE void bsn_compare_words(uint8_t *mask, const uint8_t *a, const uint8_t *b, size_t groups, unsigned width)
{
    size_t j;
    for (; groups; groups--, mask += 8, a += 64 * width, b += 64 * width) {
        uint64_t w = 0;
        bsn_wide differ = bsn_wide_load(a) ^ bsn_wide_load(b);
        for (j = BSN_WIDE; j < 64 * width; j += BSN_WIDE) differ |= bsn_wide_load(a + j) ^ bsn_wide_load(b + j);
        if (bsn_wide_any(differ))
            for (j = 0; j < 8 * width; j++)
                w |= (uint64_t)bsn_not_zero(width, bsn_load64(a + 8 * j) ^ bsn_load64(b + 8 * j)) << (8 * j / width);
        bsn_store64(mask, w);
    }
}

static void bsn_scalar_compare(unsigned width, uint8_t *mask, const uint8_t *a, const uint8_t *b, size_t groups)
{
    BSN_WIDTHS(width, bsn_compare_words, (mask, a, b, groups));
}

/* Compares n elements: kernels the full groups, this code the others. */
static void bsn_compare(const bitsnap_kernels *kernels, unsigned width, uint8_t *mask, const uint8_t *a,
                        const uint8_t *b, size_t n)
{
    size_t i = n & ~(size_t)63;
    uint64_t w = 0;
    if (i) kernels->compare(width, mask, a, b, i / 64);
    for (mask += i / 8; i < n; i++)
        w |= (uint64_t)(bsn_element_load(a + i * width, width) != bsn_element_load(b + i * width, width)) << (i & 63);
    bsn_store_some(mask, w, bsn_mask_bytes(n & 63));
}

/* ================================================================================= PLANES
 * An element v of W bits with a symbol of e bits becomes x: symbol, sign, the rest; so the sign moves e
 * places down and the symbol one place up. Integers have e = 0 and x = v. F64's exponent has 11 bits, so
 * the symbol is the exponent less `base` (0 for exponent 0), and sign and mantissa are bits 3..55.
 * Byte k of x goes to plane k, in pair order. */

static const struct {
    /* width: 1, 2, 4 or 8 bytes. symbol_bits: bits of the exponent, 1 to 8 and fewer than the element has
     * below its sign. 0 means an integer; so does a type without a sign or an exponent. F64 has 8, though its
     * exponent has 11. A pair of width and bsn_field_kind that BSN_FIELD_SWITCH of bitsnap_simd.h lacks needs
     * a case there. A new dtype also needs, outside this table: bsn_role_of, bsn_has_octaves, functions that
     * name BITSNAP_F64; names in bsf_element_types (bitsnap_file.h) and FORMAT.md 3; and in
     * docs/examples/offload width_of, exponent_bits, exponent_of and comparisons of dtypes by number. */
    uint8_t width, symbol_bits;
    char name[8];
} bsn_dtypes[] = {
    { 0, 0, "?" },       { 1, 0, "BOOL" },    { 1, 0, "I8" },  { 2, 0, "I16" },  { 4, 0, "I32" }, { 8, 0, "I64" },
    { 1, 4, "F8_E4M3" }, { 1, 5, "F8_E5M2" }, { 2, 5, "F16" }, { 2, 8, "BF16" }, { 4, 8, "F32" }, { 8, 8, "F64" }
};

BSN_INLINE int bsn_is_dtype(unsigned dtype) { return dtype >= 1 && dtype < sizeof bsn_dtypes / sizeof *bsn_dtypes; }

static void bsn_field_set(bsn_field *f, unsigned dtype, unsigned symbol_bits, unsigned base)
{
    unsigned width = bsn_dtypes[dtype].width, bits = 8 * width;
    uint64_t repeat = width == 1 ? BSN_ONES : width == 2 ? UINT64_C(0x0001000100010001)
                    : width == 4 ? UINT64_C(0x0000000100000001) : 1;
    memset(f, 0, sizeof *f);
    f->width = width;
    f->symbol_bits = symbol_bits;
    f->wide = dtype == BITSNAP_F64 && symbol_bits;
    f->base = base;
    if (!symbol_bits) {
        f->low = ~UINT64_C(0);
    } else {
        f->low = ((UINT64_C(1) << (bits - symbol_bits - 1)) - 1) * repeat;
        f->sign = (UINT64_C(1) << (bits - 1)) * repeat;
        f->symbol = ~(f->low | f->sign);
    }
}

BSN_INLINE uint64_t bsn_field_split(const bsn_field *f, uint64_t v)
{
    if (f->wide) {
        uint64_t exponent = (v >> 52) & 0x7FF, symbol = exponent ? exponent - f->base : 0;
        return (symbol << 56) | ((v >> 63) << 55) | ((v & UINT64_C(0xFFFFFFFFFFFFF)) << 3);
    }
    return (v & f->low) | ((v & f->sign) >> f->symbol_bits) | ((v & f->symbol) << 1);
}

BSN_INLINE uint64_t bsn_field_join(const bsn_field *f, uint64_t x)
{
    if (f->wide) {
        uint64_t symbol = x >> 56, exponent = symbol ? symbol + f->base : 0;
        return ((x >> 55) << 63) | (exponent << 52) | ((x >> 3) & UINT64_C(0xFFFFFFFFFFFFF));
    }
    return (x & f->low) | ((x << f->symbol_bits) & f->sign) | ((x >> 1) & f->symbol);
}

/* Returns the element at position p of a plane of n: pair order in full groups of 64. */
BSN_INLINE size_t bsn_pair(size_t p, size_t n, unsigned width)
{
    size_t group = p & ~(size_t)63, in = p & 63;
    return group + 64 > n ? p : group + 64 / width * (in & (width - 1)) + in / width;
}

/* The rule itself, one element after the other: for what is left over after full groups, for F64
 * and for big-endian hosts. Positions first .. n - 1 of planes that begin at position 0. */
static void bsn_split_rule(const bsn_field *f, uint8_t *const planes[8], const uint8_t *elements, size_t first, size_t n)
{
    unsigned width = f->width, k;
    for (; first < n; first++) {
        uint64_t x = bsn_field_split(f, bsn_element_load(elements + bsn_pair(first, n, width) * width, width));
        for (k = 0; k < width; k++) planes[k][first] = (uint8_t)(x >> (8 * k));
    }
}

static void bsn_join_rule(const bsn_field *f, uint8_t *elements, const uint8_t *const planes[8], size_t first, size_t n)
{
    unsigned width = f->width, k;
    for (; first < n; first++) {
        uint64_t x = 0;
        for (k = 0; k < width; k++) x |= (uint64_t)planes[k][first] << (8 * k);
        bsn_element_store(elements + bsn_pair(first, n, width) * width, bsn_field_join(f, x), width);
    }
}

/* The portable kernels work on wide words. A symbol below 8 bits moves within the top byte only: whole words
 * of top bytes are rearranged at once. Then bytes are dealt from 16-bit lanes, or to them; where the symbol
 * has 8 bits the lanes that hold it are rearranged on the way. a holds the lanes of even positions, b those
 * of odd ones. */
#define BSN_EVEN UINT64_C(0x00FF00FF00FF00FF)
#define BSN_LOW16 UINT64_C(0x0000FFFF0000FFFF)
#define BSN_LANES(x) (UINT64_C(0x0001000100010001) * (x))

BSN_INLINE bsn_wide bsn_top_split(bsn_wide v, unsigned e)
{
    if (e == 0 || e == 8) return v;
    return (v & (BSN_ONES * (0x7Fu >> e))) | ((v >> e) & (BSN_ONES * (0x80u >> e))) |
           ((v << 1) & (BSN_ONES * (0xFF00u >> e & 0xFFu)));
}

BSN_INLINE bsn_wide bsn_top_join(bsn_wide x, unsigned e)
{
    if (e == 0 || e == 8) return x;
    return (x & (BSN_ONES * (0x7Fu >> e))) | ((x & (BSN_ONES * (0x80u >> e))) << e) |
           ((x >> 1) & (BSN_ONES * (0x7F80u >> e & 0x7Fu)));
}

BSN_INLINE void bsn_split_lanes(bsn_wide a, bsn_wide b, uint8_t *low, uint8_t *top, unsigned e)
{
    if (e == 8) { /* sign and 7 bits below, 8 bits of symbol */
        bsn_wide_store(low, (a & BSN_LANES(0x7F)) | ((a >> 8) & BSN_LANES(0x80)) |
                            ((b & BSN_LANES(0x7F)) << 8) | (b & BSN_LANES(0x8000)));
        bsn_wide_store(top, ((a >> 7) & BSN_EVEN) | ((b << 1) & ~BSN_EVEN));
    } else {
        bsn_wide_store(low, (a & BSN_EVEN) | ((b & BSN_EVEN) << 8));
        bsn_wide_store(top, bsn_top_split(((a >> 8) & BSN_EVEN) | (b & ~BSN_EVEN), e));
    }
}

BSN_INLINE void bsn_join_lanes(bsn_wide *a, bsn_wide *b, const uint8_t *low, const uint8_t *top, unsigned e)
{
    const bsn_wide l = bsn_wide_load(low), t = bsn_top_join(bsn_wide_load(top), e);
    if (e == 8) {
        *a = (l & BSN_LANES(0x7F)) | ((l & BSN_LANES(0x80)) << 8) | ((t & BSN_EVEN) << 7);
        *b = ((l >> 8) & BSN_LANES(0x7F)) | (l & BSN_LANES(0x8000)) | ((t >> 1) & BSN_LANES(0x7F80));
    } else {
        *a = (l & BSN_EVEN) | ((t & BSN_EVEN) << 8);
        *b = ((l >> 8) & BSN_EVEN) | (t & ~BSN_EVEN);
    }
}

/* Eight wide words, each lane of them a square of bits or bytes. The bits of b that m has change places with
 * those of a that are `up` bits higher. */
BSN_INLINE void bsn_wide_exchange(bsn_wide *a, bsn_wide *b, unsigned up, uint64_t m)
{
    const bsn_wide x = ((*a >> up) ^ *b) & m;
    *b ^= x;
    *a ^= x << up;
}

/* the number of a word changes places with that of a bit (`one` is 1) or of a byte (8) */
BSN_INLINE void bsn_wide_transpose(bsn_wide v[8], unsigned one, uint64_t m1, uint64_t m2, uint64_t m4)
{
    unsigned k;
    BSN_UNROLL
    for (k = 0; k < 8; k += 2) bsn_wide_exchange(&v[k], &v[k + 1], one, m1);
    BSN_UNROLL
    for (k = 0; k < 4; k++) bsn_wide_exchange(&v[k + (k & 2)], &v[k + (k & 2) + 2], 2 * one, m2);
    BSN_UNROLL
    for (k = 0; k < 4; k++) bsn_wide_exchange(&v[k], &v[k + 4], 4 * one, m4);
}

BSN_INLINE void bsn_transpose_bytes(bsn_wide v[8])
{
    bsn_wide_transpose(v, 8, UINT64_C(0x00FF00FF00FF00FF), UINT64_C(0x0000FFFF0000FFFF), UINT64_C(0xFFFFFFFF));
}

BSN_INLINE void bsn_split_words(uint8_t *const planes[8], const uint8_t *elements, size_t groups, unsigned width, unsigned e)
{
    size_t i, j, k, q;
    for (i = 0; i < 64 * groups; i += 64, elements += 64 * width) {
        for (j = 0; j < 64; j += BSN_WIDE) {
            k = i + j;
            if (width == 1) {
                bsn_wide_store(planes[0] + k, bsn_top_split(bsn_wide_load(elements + j), e));
            } else if (width == 2) {
                bsn_split_lanes(bsn_wide_load(elements + j), bsn_wide_load(elements + 64 + j), planes[0] + k, planes[1] + k, e);
            } else if (width == 8) { /* and of eighth q */
                bsn_wide v[8];
                BSN_UNROLL
                for (q = 0; q < 8; q++) v[q] = bsn_wide_load(elements + 64 * q + j);
                bsn_transpose_bytes(v);
                BSN_UNROLL
                for (q = 0; q < 8; q++) bsn_wide_store(planes[q] + k, v[q]);
            } else { /* v[q] holds elements of quarter q */
                const bsn_wide v0 = bsn_wide_load(elements + j), v1 = bsn_wide_load(elements + 64 + j);
                const bsn_wide v2 = bsn_wide_load(elements + 128 + j), v3 = bsn_wide_load(elements + 192 + j);
                bsn_split_lanes((v0 & BSN_LOW16) | ((v2 & BSN_LOW16) << 16), (v1 & BSN_LOW16) | ((v3 & BSN_LOW16) << 16),
                                planes[0] + k, planes[1] + k, 0);
                bsn_split_lanes(((v0 >> 16) & BSN_LOW16) | (v2 & ~BSN_LOW16), ((v1 >> 16) & BSN_LOW16) | (v3 & ~BSN_LOW16),
                                planes[2] + k, planes[3] + k, e);
            }
        }
    }
}

BSN_INLINE void bsn_join_words(uint8_t *elements, const uint8_t *const planes[8], size_t groups, unsigned width, unsigned e)
{
    bsn_wide a, b, c, d;
    size_t i, j, k, q;
    for (i = 0; i < 64 * groups; i += 64, elements += 64 * width) {
        for (j = 0; j < 64; j += BSN_WIDE) {
            k = i + j;
            if (width == 1) {
                bsn_wide_store(elements + j, bsn_top_join(bsn_wide_load(planes[0] + k), e));
            } else if (width == 2) {
                bsn_join_lanes(&a, &b, planes[0] + k, planes[1] + k, e);
                bsn_wide_store(elements + j, a);
                bsn_wide_store(elements + 64 + j, b);
            } else if (width == 8) {
                bsn_wide v[8];
                BSN_UNROLL
                for (q = 0; q < 8; q++) v[q] = bsn_wide_load(planes[q] + k);
                bsn_transpose_bytes(v);
                BSN_UNROLL
                for (q = 0; q < 8; q++) bsn_wide_store(elements + 64 * q + j, v[q]);
            } else {
                bsn_join_lanes(&a, &b, planes[0] + k, planes[1] + k, 0);
                bsn_join_lanes(&c, &d, planes[2] + k, planes[3] + k, e);
                bsn_wide_store(elements + j, (a & BSN_LOW16) | ((c & BSN_LOW16) << 16));
                bsn_wide_store(elements + 64 + j, (b & BSN_LOW16) | ((d & BSN_LOW16) << 16));
                bsn_wide_store(elements + 128 + j, ((a >> 16) & BSN_LOW16) | (c & ~BSN_LOW16));
                bsn_wide_store(elements + 192 + j, ((b >> 16) & BSN_LOW16) | (d & ~BSN_LOW16));
            }
        }
    }
}

/* f(arguments, width, symbol bits) with constants: 8 symbol bits are a case of their own */
#define BSN_FIELDS(field, f, arguments)                                                               \
    if ((field)->width == 8) f(BSN_REMOVE arguments, 8, 0);                                           \
    else if ((field)->width == 1) f(BSN_REMOVE arguments, 1, (field)->symbol_bits);                   \
    else if ((field)->width == 2 && (field)->symbol_bits == 8) f(BSN_REMOVE arguments, 2, 8);         \
    else if ((field)->width == 2) f(BSN_REMOVE arguments, 2, (field)->symbol_bits & 7);               \
    else if ((field)->symbol_bits == 8) f(BSN_REMOVE arguments, 4, 8);                                \
    else f(BSN_REMOVE arguments, 4, (field)->symbol_bits & 7);

static void bsn_scalar_split(const bsn_field *f, uint8_t *const planes[8], const uint8_t *elements, size_t groups)
{
    if (BSN_BIG_ENDIAN || (f->width == 8 && f->symbol_bits)) bsn_split_rule(f, planes, elements, 0, 64 * groups);
    else BSN_FIELDS(f, bsn_split_words, (planes, elements, groups))
}

static void bsn_scalar_join(const bsn_field *f, uint8_t *elements, const uint8_t *const planes[8], size_t groups)
{
    if (BSN_BIG_ENDIAN || (f->width == 8 && f->symbol_bits)) bsn_join_rule(f, elements, planes, 0, 64 * groups);
    else BSN_FIELDS(f, bsn_join_words, (elements, planes, groups))
}

/* Splits n elements: kernels the full groups, this code the others. */
BSN_INLINE void bsn_split(const bitsnap_kernels *kernels, const bsn_field *f, uint8_t *const planes[8],
                          const uint8_t *elements, size_t n)
{
    if (n / 64) kernels->split(f, planes, elements, n / 64);
    bsn_split_rule(f, planes, elements, n & ~(size_t)63, n);
}

BSN_INLINE void bsn_join(const bitsnap_kernels *kernels, const bsn_field *f, uint8_t *elements,
                         const uint8_t *const planes[8], size_t n)
{
    if (n / 64) kernels->join(f, elements, planes, n / 64);
    bsn_join_rule(f, elements, planes, n & ~(size_t)63, n);
}

/* Bytes of the bit planes of n bytes. Each group of 64 bytes has 8 bytes for each varying bit, lowest bit
 * first; a last, partial group of m bytes has ceil(m / 8) bytes for each. */
BSN_INLINE size_t bsn_bits_size(unsigned varying, size_t n)
{
    return bsn_ones_in[varying] * (n / 64 * 8 + bsn_mask_bytes(n & 63));
}

/* the top bits of the bytes of a wide word */
BSN_INLINE unsigned bsn_wide_top_bits(bsn_wide x)
{
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    return (unsigned)_mm_movemask_epi8((__m128i)x);
#elif BSN_WIDE_LANES == 2
    return bsn_gather_tops(1, x[0] & bsn_tops(1)) | bsn_gather_tops(1, x[1] & bsn_tops(1)) << 8;
#else
    return bsn_gather_tops(1, x & bsn_tops(1));
#endif
}

/* Bit i of the result is set where byte i of 64 is above t: adding 127 - t sets its bit 7 where the lower
 * seven bits exceed t, or, from 128 on, t's. */
BSN_INLINE uint64_t bsn_above64(const uint8_t *list, unsigned t)
{
    const uint64_t carry = BSN_ONES * (127 - (t & 127)), high = BSN_ONES << 7;
    uint64_t m = 0;
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < 64; i += BSN_WIDE) {
        const bsn_wide x = bsn_wide_get(list + i), y = (x & ~high) + carry;
        m |= (uint64_t)bsn_wide_top_bits(t < 128 ? y | x : y & x) << i;
    }
    return m;
}

/* Bit k of byte j of the word of plane b is bit b of byte 8 * j + k. So both ways are transpositions of bits
 * and bytes. Two groups go at once, in the lanes of eight vectors; `second` is the distance from the first to
 * the second, 0 if there is no second one. */

BSN_INLINE void bsn_transpose_bits(bsn_wide v[8]) { bsn_wide_transpose(v, 1, BSN_ONES * 0x55, BSN_ONES * 0x33, BSN_ONES * 15); }

/* byte j of word k is byte 8 * j + k of the group */
BSN_INLINE void bsn_bytes_load(bsn_wide v[8], const uint8_t *bytes, size_t second)
{
    unsigned k;
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    __m128i x[2][4];
    unsigned g;
    BSN_UNROLL
    for (g = 0; g < 2; g++) {
        const __m128i *p = (const __m128i *)(const void *)(bytes + g * second);
        const __m128i a = _mm_loadu_si128(p), b = _mm_loadu_si128(p + 1), c = _mm_loadu_si128(p + 2), d = _mm_loadu_si128(p + 3);
        /* words 0 and 2, 1 and 3 */
        const __m128i even = _mm_unpacklo_epi8(a, b), odd = _mm_unpackhi_epi8(a, b);
        const __m128i even4 = _mm_unpacklo_epi8(c, d), odd4 = _mm_unpackhi_epi8(c, d);
        const __m128i low = _mm_unpacklo_epi8(even, odd), high = _mm_unpackhi_epi8(even, odd);
        const __m128i low4 = _mm_unpacklo_epi8(even4, odd4), high4 = _mm_unpackhi_epi8(even4, odd4);
        x[g][0] = _mm_unpacklo_epi32(low, low4);
        x[g][1] = _mm_unpackhi_epi32(low, low4);
        x[g][2] = _mm_unpacklo_epi32(high, high4);
        x[g][3] = _mm_unpackhi_epi32(high, high4);
    }
    BSN_UNROLL
    for (k = 0; k < 4; k++) {
        v[2 * k] = (bsn_wide)_mm_unpacklo_epi64(x[0][k], x[1][k]);
        v[2 * k + 1] = (bsn_wide)_mm_unpackhi_epi64(x[0][k], x[1][k]);
    }
#else
    BSN_UNROLL
    for (k = 0; k < 8; k++) v[k] = bsn_wide_of(bsn_load64(bytes + 8 * k), bsn_load64(bytes + second + 8 * k));
    bsn_transpose_bytes(v);
#endif
}

/* and back, ORed into the bytes */
BSN_INLINE void bsn_bytes_or(uint8_t *bytes, bsn_wide v[8], size_t second)
{
    unsigned k;
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    __m128i x[2][4];
    unsigned g;
    BSN_UNROLL
    for (k = 0; k < 4; k++) {
        x[0][k] = _mm_unpacklo_epi8((__m128i)v[2 * k], (__m128i)v[2 * k + 1]);
        x[1][k] = _mm_unpackhi_epi8((__m128i)v[2 * k], (__m128i)v[2 * k + 1]);
    }
    BSN_UNROLL
    for (g = 0; g < 2; g++) {
        const __m128i a = _mm_unpacklo_epi16(x[g][0], x[g][1]), b = _mm_unpackhi_epi16(x[g][0], x[g][1]);
        const __m128i c = _mm_unpacklo_epi16(x[g][2], x[g][3]), d = _mm_unpackhi_epi16(x[g][2], x[g][3]);
        uint8_t *to = bytes + g * second;
        bsn_wide_store(to, bsn_wide_load(to) | (bsn_wide)_mm_unpacklo_epi32(a, c));
        bsn_wide_store(to + 16, bsn_wide_load(to + 16) | (bsn_wide)_mm_unpackhi_epi32(a, c));
        bsn_wide_store(to + 32, bsn_wide_load(to + 32) | (bsn_wide)_mm_unpacklo_epi32(b, d));
        bsn_wide_store(to + 48, bsn_wide_load(to + 48) | (bsn_wide)_mm_unpackhi_epi32(b, d));
    }
#else
    bsn_transpose_bytes(v);
    BSN_UNROLL
    for (k = 0; k < 8; k++) {
        bsn_store64(bytes + 8 * k, bsn_load64(bytes + 8 * k) | bsn_wide_first(v[k]));
        bsn_store64(bytes + second + 8 * k, bsn_load64(bytes + second + 8 * k) | bsn_wide_last(v[k]));
    }
#endif
}

static void bsn_scalar_bits_take(uint8_t *bits, const uint8_t *bytes, unsigned varying, size_t groups)
{
    const size_t size = 8u * bsn_ones_in[varying];
    size_t step;
    unsigned b;
    for (; groups; groups -= step, bytes += 64 * step, bits += size * step) {
        bsn_wide v[8];
        uint8_t *p = bits;
        step = groups > 1 ? BSN_WIDE / 8 : 1;
        bsn_bytes_load(v, bytes, 64 * (step - 1));
        bsn_transpose_bits(v);
        BSN_UNROLL
        for (b = 0; b < 8; b++) {
            if (!BSN_BIT(varying, b)) continue;
            bsn_store64(p, bsn_wide_first(v[b]));
            bsn_store64(p + size * (step - 1), bsn_wide_last(v[b]));
            p += 8;
        }
    }
}

BSN_INLINE void bsn_put_planes(uint8_t *bytes, const uint8_t *bits, unsigned varying, size_t groups)
{
    const size_t size = 8u * bsn_ones_in[varying];
    size_t step;
    unsigned b;
    for (; groups; groups -= step, bytes += 64 * step, bits += size * step) {
        bsn_wide v[8];
        const uint8_t *p = bits;
        step = groups > 1 ? BSN_WIDE / 8 : 1;
        BSN_UNROLL
        for (b = 0; b < 8; b++) {
            v[b] = bsn_wide_all(0);
            if (!BSN_BIT(varying, b)) continue;
            v[b] = bsn_wide_of(bsn_load64(p), bsn_load64(p + size * (step - 1)));
            p += 8;
        }
        bsn_transpose_bits(v);
        bsn_bytes_or(bytes, v, 64 * (step - 1));
    }
}

/* symbols << shift | value; writes whole words */
static void bsn_symbols_up(uint8_t *bytes, const uint8_t *symbols, size_t n, unsigned shift, unsigned value)
{
    const bsn_wide constant = bsn_wide_all(BSN_ONES * value);
    size_t i;
    for (i = 0; i < n; i += BSN_WIDE) bsn_wide_store(bytes + i, bsn_wide_load(symbols + i) << shift | constant);
}

static void bsn_scalar_bits_put(uint8_t *bytes, const uint8_t *symbols, unsigned shift, unsigned value, const uint8_t *bits,
                                unsigned varying, size_t groups)
{
    if (shift) bsn_symbols_up(bytes, symbols, 64 * groups, shift, value);
    /* that of F16: 4 % fewer instructions than the other */
    if (varying == 7) bsn_put_planes(bytes, bits, 7, groups);
    else if (varying) bsn_put_planes(bytes, bits, varying, groups);
}

/* n bytes; the partial group goes through a padded copy */
static void bsn_bits_take(const bitsnap_kernels *kernels, uint8_t *bits, const uint8_t *bytes, unsigned varying, size_t n)
{
    size_t rest = n & 63, size = bsn_mask_bytes(rest);
    unsigned k;
    if (n / 64) kernels->bits_take(bits, bytes, varying, n / 64);
    if (rest) {
        uint8_t some[64], planes[64];
        memset(some, 0, sizeof some);
        memcpy(some, bytes + n - rest, rest);
        bsn_scalar_bits_take(planes, some, varying, 1);
        bits += bsn_bits_size(varying, n - rest);
        for (k = 0; k < bsn_ones_in[varying]; k++) memcpy(bits + k * size, planes + 8 * k, size);
    }
}

static void bsn_bits_put(const bitsnap_kernels *kernels, uint8_t *bytes, const uint8_t *symbols, unsigned shift, unsigned value,
                         const uint8_t *bits, unsigned varying, size_t n)
{
    size_t rest = n & 63, size = bsn_mask_bytes(rest);
    unsigned k;
    if (n / 64) kernels->bits_put(bytes, symbols, shift, value, bits, varying, n / 64);
    if (rest) {
        uint8_t some[64], planes[64];
        memset(some, 0, sizeof some);
        memset(planes, 0, sizeof planes);
        memcpy(some, symbols + n - rest, rest);
        bits += bsn_bits_size(varying, n - rest);
        for (k = 0; k < bsn_ones_in[varying]; k++) memcpy(planes + 8 * k, bits + k * size, size);
        bsn_scalar_bits_put(some, some, shift, value, planes, varying, 1);
        memcpy(bytes + n - rest, some, rest);
    }
}

/* Returns 1 if none of `count` masks of n bits, `stride` bytes each, has a bit set after its last element.
 * Such a bit would count as an element. */
static int bsn_masks_clear(const uint8_t *masks, size_t stride, unsigned count, size_t n)
{
    unsigned j;
    for (j = 1; n & 7 && j <= count; j++)
        if (masks[j * stride - 1] >> (n & 7)) return 0;
    return 1;
}

/* Returns 1 if no bit plane has a bit set after its last element. */
static int bsn_bits_tail_clear(const uint8_t *bits, unsigned varying, size_t n)
{
    const size_t rest = n & 63;
    return bsn_masks_clear(bits + bsn_bits_size(varying, n - rest), bsn_mask_bytes(rest), bsn_ones_in[varying], rest);
}

BITSNAP_API unsigned bitsnap_width(bitsnap_dtype dtype)
{
    return bsn_is_dtype((unsigned)dtype) ? bsn_dtypes[dtype].width : 0;
}

BITSNAP_API const char *bitsnap_dtype_name(bitsnap_dtype dtype)
{
    return bsn_dtypes[bsn_is_dtype((unsigned)dtype) ? dtype : 0].name;
}

/* The symbol that a dtype has when nothing speaks against it. F64 takes its exponents less a base that
 * only the frames choose. */
BSN_INLINE unsigned bsn_symbol_bits(unsigned dtype) { return bsn_dtypes[dtype].symbol_bits; }

/* ================================================================================= HUFFMAN
 * Lengths by package-merge, canonical order, and lists: pivot-coded trees (Zukowski, arXiv 2606.05765) with
 * nodes of 2^k slots. A node of a tree stores, for each symbol that passes it, the k bits of its path as k
 * bit planes; its slots are leaves (first) or lists (last), and the lists are the children, in order. How
 * many planes a node has follows from the code lengths alone. Decoding merges lists, encoding deals them
 * out; both walk the tree in the order of the stream with an explicit stack. */

/* ---- code lengths ---- */

/* The longest code, by the format (FORMAT.md 4.1): a path fits a byte, and a nibble of a table from 9 on
 * means absent symbols. */
#define BSN_LIMIT 8

typedef struct bsn_package {
    uint64_t key[257];          /* weight << 9 | 256 - symbol, ascending */
    uint32_t weight[2][516];    /* items of this list and of the next */
    uint8_t is_leaf[BSN_LIMIT - 1][514]; /* for each list but the first, which has only leaves */
} bsn_package;

/* Of 256 counts those outside first .. last - 1 are 0: most symbols are absent, so they are passed over four
 * at a time. */
BSN_INLINE void bsn_counted(const uint32_t count[256], unsigned *first, unsigned *last)
{
    unsigned a = 0, b = 256;
    while (a < b && !(count[a] | count[a + 1] | count[a + 2] | count[a + 3])) a += 4;
    while (b > a && !(count[b - 1] | count[b - 2] | count[b - 3] | count[b - 4])) b -= 4;
    *first = a;
    *last = b;
}

/* By insertion: keys are nearly in order, or few. */
static void bsn_sort(uint64_t *key, size_t n)
{
    size_t i, j;
    for (i = 1; i < n; i++) {
        const uint64_t x = key[i];
        for (j = i; j && key[j - 1] > x; j--) key[j] = key[j - 1];
        key[j] = x;
    }
}

/* Package-merge (Larmore and Hirschberg) of m >= 2 keys: list 1 is the leaves by weight; each further list
 * merges the leaves with the pairs of the list before, the leaf first where weights are equal; of the last
 * list the first 2m - 2 items are taken, and of each one before those that are in the pairs taken. taken[l]
 * is the number of leaves taken of list l. The code length of key i is the number of lists with taken[l] >
 * i. */
static void bsn_package_merge(bsn_package *p, const uint64_t *key, size_t m, unsigned taken[BSN_LIMIT])
{
    uint32_t *now = p->weight[0], *next = p->weight[1], *swap;
    size_t items = m, take = 2 * m - 2, leaf, pair, i;
    unsigned l;
    for (i = 0; i < m; i++) now[i] = (uint32_t)(key[i] >> 9);
    for (l = 1; l < BSN_LIMIT; l++) {
        const size_t pairs = items / 2, end = bsn_min(take, m + pairs);
        leaf = pair = 0;
        now[2 * pairs] = 0xFFFFFFFF; /* a sentinel after the last pair: no leaf is heavier */
        now[2 * pairs + 1] = 0;
        for (items = 0; items < end; items++) {
            const uint32_t both = now[2 * pair] + now[2 * pair + 1];
            if (leaf < m && key[leaf] >> 9 <= both) {
                next[items] = (uint32_t)(key[leaf++] >> 9);
                p->is_leaf[l - 1][items] = 1;
            } else {
                next[items] = both;
                pair++;
                p->is_leaf[l - 1][items] = 0;
            }
        }
        swap = now;
        now = next;
        next = swap;
    }
    for (l = BSN_LIMIT; l-- > 0;) {
        for (i = leaf = 0; i < take && l; i++) leaf += p->is_leaf[l - 1][i];
        taken[l] = (unsigned)(l ? leaf : take);
        take = 2 * (take - leaf);
    }
}

BSN_INLINE unsigned bsn_package_length(const unsigned taken[BSN_LIMIT], size_t i)
{
    unsigned l, length = 0;
    for (l = 0; l < BSN_LIMIT; l++) length += taken[l] > i;
    return length;
}

/* Counts below 16 themselves, larger ones by their length and 3 more bits: 8 * 28 + 16 of them. */
BSN_INLINE unsigned bsn_weight_digit(uint32_t x)
{
    const unsigned bits = bsn_log2(x | 16);
    return x < 16 ? x : 16 + 8 * (bits - 4) + (x >> (bits - 3) & 7);
}

/* Makes keys of the counts above 0, in ascending order. Returns their number. Keys are dealt to buckets by a
 * digit that ascends with them, the last symbol first; then only keys with equal digits have to be sorted. */
static size_t bsn_sort_counts(bsn_package *p, const uint32_t count[256], uint32_t escapes)
{
    uint32_t *place = p->weight[0], m = 0; /* of keys with a digit */
    unsigned s, first, end, used = 0;
    bsn_counted(count, &first, &end);
    for (s = first; s < end; s++) used += count[s] > 0;
    if (used <= 32) { /* few need no digits */
        if (escapes) p->key[m++] = (uint64_t)escapes << 9;
        for (s = end; s-- > first;)
            if (count[s]) p->key[m++] = ((uint64_t)count[s] << 9) | (256 - s);
        bsn_sort(p->key, m);
        return m;
    }
    memset(place, 0, 240 * sizeof *place);
    for (s = first; s < end; s++) place[bsn_weight_digit(count[s])]++;
    place[bsn_weight_digit(escapes)]++;
    place[0] = 0; /* zeros are passed over */
    for (s = 1; s < 240; s++) {
        const uint32_t some = place[s];
        place[s] = m;
        m += some;
    }
    if (escapes) p->key[place[bsn_weight_digit(escapes)]++] = (uint64_t)escapes << 9;
    for (s = end; s-- > first;)
        if (count[s]) p->key[place[bsn_weight_digit(count[s])]++] = ((uint64_t)count[s] << 9) | (256 - s);
    bsn_sort(p->key, m);
    return m;
}

/* Code lengths of symbols 0 .. 256, for samples and estimates; bsn_choose_exact calls bsn_package_merge
 * itself. Lengths must be those of a complete code: bsn_write_tree does not check that. */
static void bsn_lengths(bsn_package *p, uint8_t length[257], const uint32_t count[257])
{
    const size_t m = bsn_sort_counts(p, count, count[256]);
    unsigned taken[BSN_LIMIT];
    size_t i;
    memset(length, 0, 257);
    if (m == 1) length[256 - (p->key[0] & 511)] = 1;
    if (m < 2) return;
    bsn_package_merge(p, p->key, m, taken);
    for (i = 0; i < m; i++) length[256 - (p->key[i] & 511)] = (uint8_t)bsn_package_length(taken, i);
}

/* ---- canonical order ---- */

typedef struct bsn_tree {
    uint8_t length[257];  /* of each symbol; 256 is the escape, if the tree has one */
    uint8_t symbol[257];  /* codes in canonical order: by (length, symbol) */
    uint8_t length_at[258]; /* the length of each */
    uint16_t end[BSN_LIMIT + 1]; /* for each length: the place after its last code */
    uint16_t codes;       /* how many */
    uint16_t escape;      /* the place of the escape; 0xFFFF if the tree has no escape */
    uint16_t next;        /* place of the walk */
    uint8_t raw_escapes;  /* encoding: is the list of escapes RAW without a look at it? */
    uint8_t escape_code;  /* the code of the escape, */
    uint8_t *escapes;     /* and the symbols that have none */
} bsn_tree;

/* From tree->length; only symbols first .. last can have one. Returns 0 where the lengths do not make a
 * complete code of at least two symbols. */
static int bsn_tree_order(bsn_tree *t, unsigned first, unsigned last)
{
    unsigned count[BSN_LIMIT + 1] = { 0, 0, 0, 0, 0, 0, 0, 0, 0 }, place[BSN_LIMIT + 1], sum = 0, l, s, at = 0;
    while (first + 8 <= last && !bsn_load64(t->length + first)) first += 8; /* most symbols are absent */
    while (last >= first + 8 && !bsn_load64(t->length + last - 7)) last -= 8;
    for (s = first; s <= last; s++) count[t->length[s]]++;
    if (t->length[256]) count[t->length[256]]++;
    for (l = 1; l <= BSN_LIMIT; l++) {
        place[l] = at;
        if (count[l]) memset(t->length_at + at, (int)l, count[l]);
        at += count[l];
        t->end[l] = (uint16_t)at;
        sum += count[l] << (BSN_LIMIT - l);
    }
    if (sum != 1u << BSN_LIMIT) return 0; /* of a single code, whose length is 1 at least, it is half of that
                                             at most */
    for (s = first; s <= last; s++)
        if (t->length[s]) t->symbol[place[t->length[s]]++] = (uint8_t)s;
    t->escape = t->length[256] ? (uint16_t)(t->end[t->length[256]] - 1) : 0xFFFF;
    t->codes = (uint16_t)at;
    t->next = 0;
    return 1;
}

/* The next node of the walk, whose slots begin at depth `depth` of the paths. */
typedef struct bsn_step {
    unsigned bits;   /* k */
    unsigned leaves; /* leaf slots, the first ones; their symbols are symbol[place ..] */
    unsigned place;
    unsigned lists;  /* list slots: the others */
    int escape;      /* is the first of them the escape? */
} bsn_step;

/* The radix rule: with m bits left of the shortest code and r symbols of that length, k = m where m <= 2 or
 * where m is 3 or 4 and at most four slots would be lists; else 2. Every complete code gives nodes of at
 * most 4 lists. */
static bsn_step bsn_tree_step(bsn_tree *t, unsigned depth)
{
    bsn_step step;
    unsigned i = t->next, length = t->length_at[i], end = t->end[length], m = length - depth;
    unsigned has_escape = t->escape < end && t->escape >= i, r = end - i - has_escape, slots;
    step.bits = m <= 2 || (m <= 4 && r + 4 >= 1u << m) ? m : 2;
    slots = 1u << step.bits;
    step.leaves = 0;
    step.escape = 0;
    step.place = i;
    if (step.bits == m) {
        unsigned taken = (unsigned)bsn_min(end - i, slots);
        step.escape = has_escape && i + taken == end;
        step.leaves = taken - (unsigned)step.escape;
        t->next = (uint16_t)(i + taken);
    }
    step.lists = slots - step.leaves;
    return step;
}

/* ---- tables: the lengths on their way through a frame ---- */

/* kinds of lists */
enum {
    BSN_LIST_RAW = 0,
    BSN_LIST_CONST = 1,
    BSN_LIST_TREE = 2,
    BSN_LIST_ESCAPES = 4,    /* a tree with an escape; | its length << 4 */
    BSN_LIST_SPLIT0 = 5,
    BSN_LIST_SPLIT2 = 6
};

/* Writes kind and table of a tree; returns the bytes, at most 132. */
static size_t bsn_table_write(uint8_t *to, const bsn_tree *t)
{
    unsigned first = 0, last = 255, s, nibbles = 0, run, code;
    while (first + 8 <= last && !bsn_load64(t->length + first)) first += 8;
    while (last >= first + 8 && !bsn_load64(t->length + last - 7)) last -= 8;
    while (!t->length[first]) first++;
    while (!t->length[last]) last--;
    to[0] = (uint8_t)(t->length[256] ? BSN_LIST_ESCAPES | t->length[256] << 4 : BSN_LIST_TREE);
    to[1] = (uint8_t)first;
    to[2] = (uint8_t)(last - first);
    for (s = first; s <= last;) {
        if (t->length[s]) {
            code = t->length[s++];
        } else {
            for (run = 1; !t->length[s + run];) run++;
            run = bsn_log2(run); /* 1 absent symbol: 0; 2^run of them: 8 + run */
            code = run ? 8 + run : 0;
            s += 1u << run;
        }
        if (nibbles & 1) to[3 + nibbles / 2] = (uint8_t)(to[3 + nibbles / 2] | code << 4);
        else to[3 + nibbles / 2] = (uint8_t)code;
        nibbles++;
    }
    return 3 + (nibbles + 1) / 2;
}

/* Reads the table that follows the kind of a list. `escape`: bits of the escape's code, 0 for a tree without
 * one. Symbols are below 2^bits. Returns the bytes read, or 0 and *rule. */
static size_t bsn_table_read(bsn_tree *t, unsigned escape, const uint8_t *p, size_t size, unsigned bits, unsigned *rule)
{
    unsigned first, count, s = 0, previous = 256, nibble = 0, code, run;
    size_t used = 2;
    *rule = BITSNAP_R_LIST_END;
    if (size < 2) return 0;
    first = bsn_once8(p);
    count = bsn_once8(p + 1) + 1u;
    *rule = BITSNAP_R_SYMBOL;
    if (first + count > 1u << bits) return 0;
    memset(t->length, 0, sizeof t->length);
    t->length[256] = (uint8_t)escape;
    while (s < count) {
        if (nibble & 1) {
            code = bsn_once8(p + used++) >> 4;
        } else {
            *rule = BITSNAP_R_LIST_END;
            if (used == size) return 0;
            code = bsn_once8(p + used) & 15;
        }
        nibble++;
        if (code >= 1 && code <= 8) {
            t->length[first + s++] = (uint8_t)code;
            previous = 256;
            continue;
        }
        /* absent symbols: their runs must fall, so that there is one way to write them; and neither
         * the first symbol nor the last is absent */
        run = code ? 1u << (code - 8) : 1;
        *rule = BITSNAP_R_TABLE;
        if (s == 0 || run >= previous || run >= count - s) return 0;
        s += run;
        previous = run;
    }
    *rule = BITSNAP_R_TABLE_TAIL;
    if ((nibble & 1) && p[used++] >> 4) return 0;
    *rule = BITSNAP_R_CODE_LENGTHS;
    return bsn_tree_order(t, first, first + count - 1) ? used : 0;
}

/* ---- kernels ---- */

/* Slot s of a node with k planes is taken where every plane has the slot's bit: word i of the slot's mask. */
BSN_INLINE uint64_t bsn_slot_mask(unsigned k, unsigned slot, uint64_t w0, uint64_t w1, uint64_t w2, uint64_t w3)
{
    uint64_t m = (slot >> (k - 1)) & 1 ? w0 : ~w0;
    if (k > 1) m &= (slot >> (k - 2)) & 1 ? w1 : ~w1;
    if (k > 2) m &= (slot >> (k - 3)) & 1 ? w2 : ~w2;
    if (k > 3) m &= slot & 1 ? w3 : ~w3;
    return m;
}

/* Planes choose among the values of the slots: between neighbours, first between those that differ in the
 * last bit. */
BSN_INLINE bsn_wide bsn_wide_choose(bsn_wide *v, const uint64_t w[4], unsigned k)
{
    unsigned q, j;
    BSN_UNROLL
    for (q = k; q-- > 0;) {
        const bsn_wide m = bsn_wide_look_up(bsn_spread, w[q]);
        BSN_UNROLL
        for (j = 0; j < 1u << q; j++) v[j] = bsn_wide_select(m, v[2 * j], v[2 * j + 1]);
    }
    return v[0];
}

/* Returns the symbols of a vector of elements, which have the mask bits `w`. Slots that are lists have their
 * next elements moved to the right positions; other positions are undefined. */
BSN_INLINE bsn_wide bsn_scalar_slots(const bsn_wide leaf[16], const uint8_t *list[4], const uint64_t w[4], unsigned k,
                                     unsigned lists)
{
    bsn_wide v[16];
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < (1u << k) - lists; j++) v[j] = leaf[j];
    BSN_UNROLL
    for (j = 0; j < lists; j++) {
        const unsigned slot = (1u << k) - lists + j;
        const uint64_t m = bsn_slot_mask(k, slot, w[0], w[1], w[2], w[3]);
        v[slot] = bsn_wide_expand(list[j], m);
        list[j] += bsn_wide_ones(m);
    }
    return bsn_wide_choose(v, w, k);
}

/* advances each plane by a wide word */
#define BSN_NEXT_BITS(w) (w[0] >>= BSN_WIDE, w[1] >>= BSN_WIDE, w[2] >>= BSN_WIDE, w[3] >>= BSN_WIDE)

/* Merges 64 elements at a time. `k` and `lists` are constants when this is inlined, so that a node costs what
 * it holds and no more. A list that is merged in place ends where `out` ends. It never has more elements left
 * than `out` has positions left, so nothing is overwritten before it is read. */
BSN_INLINE void bsn_scalar_merge_node(bsn_node *node, size_t first, size_t n, uint8_t *out, unsigned k, unsigned lists)
{
    const unsigned slots = 1u << k;
    const uint8_t *p0 = node->planes, *p1 = k > 1 ? p0 + node->stride : p0;
    const uint8_t *p2 = k > 2 ? p1 + node->stride : p0, *p3 = k > 3 ? p2 + node->stride : p0;
    const uint8_t *list[4] = { NULL, NULL, NULL, NULL };
    bsn_wide leaf[16];
    size_t i;
    unsigned j;
    for (j = 0; j < slots; j++) leaf[j] = bsn_wide_all(node->leaf[j] * BSN_ONES);
    for (j = 0; j < lists; j++) list[j] = node->list[j];
    for (i = first; i < first + n; i += 64, out += 64) {
        const uint64_t live = first + n - i < 64 ? (UINT64_C(1) << (first + n - i)) - 1 : ~UINT64_C(0);
        uint64_t w[4] = { 0, 0, 0, 0 };
        w[0] = bsn_load64(p0 + i / 8) & live;
        if (k > 1) w[1] = bsn_load64(p1 + i / 8) & live;
        if (k > 2) w[2] = bsn_load64(p2 + i / 8) & live;
        if (k > 3) w[3] = bsn_load64(p3 + i / 8) & live;
        if (k == 1 && lists == 1 && !w[0]) { /* the first leaf, as in most groups of sparse lists */
            for (j = 0; j < 64; j += BSN_WIDE) bsn_wide_put(out + j, leaf[0]);
            continue;
        }
        for (j = 0; j < 64; j += BSN_WIDE) {
            bsn_wide_put(out + j, bsn_scalar_slots(leaf, list, w, k, lists));
            BSN_NEXT_BITS(w);
        }
    }
    for (j = 0; j < lists; j++) node->list[j] = list[j];
}

#define BSN_PICK_GROUPS 16 /* groups of 64 codes whose lists are picked together */

/* The codes of each group whose bit is set in m, shifted by k. Branch-free for up to `few` per group, as
 * their number is unpredictable; seldom more. */
BSN_INLINE void bsn_pick_few(uint8_t *list, const uint8_t *codes, const uint64_t *m, const uint8_t *counts, size_t groups,
                             unsigned k, unsigned few)
{
    size_t g;
    unsigned i;
    for (g = 0; g < groups; list += counts[g], g++, codes += 64) {
        uint64_t left = m[g];
        BSN_UNROLL
        for (i = 0; i < few; i++, left &= left - 1) list[i] = (uint8_t)(codes[bsn_lowest_bit(left | UINT64_C(1) << 63)] << k);
        for (; BSN_UNLIKELY(left != 0); i++, left &= left - 1) list[i] = (uint8_t)(codes[bsn_lowest_bit(left)] << k);
    }
}

/* Copies the codes whose bit is set, shifted left by k, all positions at once. */
BSN_INLINE void bsn_pick_many(uint8_t *list, const uint8_t *codes, const uint64_t *m, size_t groups, unsigned k)
{
    const uint64_t low = BSN_ONES * (0xFFu << k & 0xFFu);
    size_t g;
    unsigned i;
    for (g = 0; g < groups; g++, codes += 64)
        for (i = 0; i < 64; i += BSN_WIDE)
            list += bsn_wide_compress(list, (bsn_wide_get(codes + i) << k) & low, m[g] >> i);
}

/* A list's part of up to BSN_PICK_GROUPS groups of codes, by the way that suits how many there are in most of
 * these. Returns its end. */
BSN_FUNCTION uint8_t *bsn_scalar_pick(uint8_t *list, const uint8_t *codes, const uint64_t *m, size_t groups, unsigned k)
{
    uint8_t counts[BSN_PICK_GROUPS];
    size_t g, n = 0;
    for (g = 0; g < groups; g++) n += counts[g] = (uint8_t)bsn_popcount(m[g]);
    if (n > 4 * groups) bsn_pick_many(list, codes, m, groups, k);
    else if (n > groups) bsn_pick_few(list, codes, m, counts, groups, k, 8);
    else if (n) bsn_pick_few(list, codes, m, counts, groups, k, 4);
    return list + n;
}

/* A node's lists, all parts of the same codes. */
BSN_INLINE void bsn_scalar_pick_lists(bsn_fork *fork, const uint8_t *codes, uint64_t m[][BSN_PICK_GROUPS], size_t groups,
                                      unsigned k, unsigned lists)
{
    unsigned j;
    for (j = 0; j < lists; j++) fork->list[j] = bsn_scalar_pick(fork->list[j], codes, m[j], groups, k);
}

/* The reverse: the first k bits of each code go to the planes, the codes, shifted by k, to the lists. */
BSN_INLINE void bsn_scalar_fork_node(bsn_fork *fork, const uint8_t *codes, size_t first, size_t n, unsigned k)
{
    const unsigned slots = 1u << k, lists = fork->lists;
    uint64_t m[4][BSN_PICK_GROUPS];
    size_t i, end = first + n;
    unsigned j, g = 0;
    for (i = first; i < end; i += 64, codes += 64) {
        const size_t size = bsn_mask_bytes(bsn_min(64, end - i));
        const uint64_t live = end - i < 64 ? (UINT64_C(1) << (end - i)) - 1 : ~UINT64_C(0);
        uint64_t w[4] = { 0, 0, 0, 0 };
        BSN_UNROLL
        for (j = 0; j < 64; j += BSN_WIDE) {
            const bsn_wide x = bsn_wide_get(codes + j);
            w[0] |= (uint64_t)bsn_wide_top_bits(x) << j;
            if (k > 1) w[1] |= (uint64_t)bsn_wide_top_bits(x << 1) << j;
            if (k > 2) w[2] |= (uint64_t)bsn_wide_top_bits(x << 2) << j;
            if (k > 3) w[3] |= (uint64_t)bsn_wide_top_bits(x << 3) << j;
        }
        for (j = 0; j < k; j++) bsn_store_some(fork->planes + j * fork->stride + i / 8, w[j] & live, size);
        for (j = 0; j < lists; j++) m[j][g] = bsn_slot_mask(k, slots - lists + j, w[0], w[1], w[2], w[3]) & live;
        if (++g == BSN_PICK_GROUPS || end - i <= 64) {
            bsn_scalar_pick_lists(fork, codes + 64 - 64 * g, m, g, k, lists);
            g = 0;
        }
    }
}

/* One copy of a kernel for each of the 18 kinds of nodes that there are. */
#define BSN_NODES(NODE)                                                                               \
    NODE(1, 0) NODE(1, 1) NODE(1, 2)                                                                  \
    NODE(2, 0) NODE(2, 1) NODE(2, 2) NODE(2, 3) NODE(2, 4)                                            \
    NODE(3, 0) NODE(3, 1) NODE(3, 2) NODE(3, 3) NODE(3, 4)                                            \
    NODE(4, 0) NODE(4, 1) NODE(4, 2) NODE(4, 3) NODE(4, 4)

/* And of those that bsn_by_leaves finds. */
#define BSN_LEAF_NODES(NODE) NODE(1, 0) NODE(1, 1) NODE(2, 1) NODE(2, 2) NODE(2, 3) NODE(3, 1) NODE(3, 2) NODE(3, 3)

static void bsn_scalar_node_merge(bsn_node *node, size_t first, size_t n, uint8_t *out)
{
    switch (8 * node->bits + node->lists) {
#define BSN_NODE(k, lists) case 8 * k + lists: bsn_scalar_merge_node(node, first, n, out, k, lists); break;
        BSN_NODES(BSN_NODE)
#undef BSN_NODE
    default: break;
    }
}

#if BSN_WIDE_LANES == 2
/* The planes of 64 symbols by comparing them with leaves: bits are 0 where a slot says so, and the last slot,
 * which has all others, is all ones. Behind these planes is one more: the symbols that are the second leaf of
 * a twig. */
BSN_INLINE void bsn_leaves_planes(uint64_t w[5], const uint8_t *symbols, const bsn_bytes leaf[12], unsigned k, unsigned lists)
{
    const unsigned slots = 1u << k, first = slots - lists;
    unsigned i, j, q;
    BSN_UNROLL
    for (q = 0; q <= k; q++) w[q] = 0;
    BSN_UNROLL
    for (i = 0; i < 64; i += 16) {
        const bsn_bytes x = (bsn_bytes)bsn_wide_get(symbols + i);
        bsn_bytes zero[3], second = x ^ x;
        BSN_UNROLL
        for (q = 0; q < k; q++) zero[q] = x ^ x;
        BSN_UNROLL
        for (j = 0; j < slots - (lists > 0); j++) {
            bsn_bytes here = (bsn_bytes)(x == leaf[j < first ? j : 2 * j - first]);
            if (j >= first) {
                const bsn_bytes there = (bsn_bytes)(x == leaf[2 * j - first + 1]);
                here |= there;
                second |= there;
            }
            BSN_UNROLL
            for (q = 0; q < k; q++)
                if (!(j >> (k - 1 - q) & 1)) zero[q] |= here;
        }
        BSN_UNROLL
        for (q = 0; q < k; q++) w[q] |= (uint64_t)bsn_wide_top_bits((bsn_wide)zero[q]) << i;
        if (lists > 1) w[k] |= (uint64_t)bsn_wide_top_bits((bsn_wide)second) << i;
    }
    BSN_UNROLL
    for (q = 0; q < k; q++) w[q] = ~w[q];
}

/* Forks symbols, which go to the lists unchanged. */
BSN_INLINE void bsn_scalar_fork_leaves(bsn_fork *fork, const uint8_t *symbols, size_t first, size_t n, unsigned k, unsigned lists)
{
    const unsigned slots = 1u << k;
    uint8_t last[64];
    bsn_bytes leaf[12];
    uint64_t m[3][BSN_PICK_GROUPS];
    size_t i, end = first + n;
    unsigned j, g = 0;
    for (j = 0; j < slots + lists - (lists ? 2 : 0); j++) leaf[j] = (bsn_bytes)bsn_wide_all(fork->leaf[j] * BSN_ONES);
    for (i = first; i < end; i += 64, symbols += 64) {
        const size_t live = bsn_min(64, end - i);
        uint64_t w[5] = { 0, 0, 0, 0, 0 };
        if (BSN_UNLIKELY(live < 64)) { /* filled up with the first leaf, whose bits are 0 */
            memset(last, fork->leaf[0], 64);
            memcpy(last, symbols, live);
        }
        bsn_leaves_planes(w, live < 64 ? last : symbols, leaf, k, lists);
        for (j = 0; j < k; j++) bsn_store_some(fork->planes + j * fork->stride + i / 8, w[j], bsn_mask_bytes(live));
        for (j = 0; j < lists; j++) m[j][g] = bsn_slot_mask(k, slots - lists + j, w[0], w[1], w[2], w[3]);
        if (++g == BSN_PICK_GROUPS || end - i <= 64) {
            bsn_scalar_pick_lists(fork, symbols + 64 - 64 * g, m, g, 0, lists);
            g = 0;
        }
    }
}

#define BSN_SCALAR_HAS (BSN_LEAVES | BSN_LEAVES_LISTS)
#else
#define BSN_SCALAR_HAS 0
#endif

/* Tells which of these capabilities a kernel table has. Without bitsnap_simd.h there is one table, so the
 * answer is a constant, and calls that it does not get are left out. */
static unsigned bsn_has(const bitsnap_kernels *kernels, unsigned what)
{
#ifdef BITSNAP_SIMD
    return kernels->has & what;
#else
    (void)kernels;
    return (unsigned)BSN_SCALAR_HAS & what;
#endif
}

static void bsn_scalar_node_fork(bsn_fork *fork, const uint8_t *codes, size_t first, size_t n)
{
    switch (fork->by_leaves ? 8 * fork->bits + fork->lists : fork->bits) {
    case 1: bsn_scalar_fork_node(fork, codes, first, n, 1); break;
    case 2: bsn_scalar_fork_node(fork, codes, first, n, 2); break;
    case 3: bsn_scalar_fork_node(fork, codes, first, n, 3); break;
    case 4: bsn_scalar_fork_node(fork, codes, first, n, 4); break;
#if BSN_WIDE_LANES == 2
#define BSN_NODE(k, lists) case 8 * k + lists: bsn_scalar_fork_leaves(fork, codes, first, n, k, lists); break;
        BSN_LEAF_NODES(BSN_NODE)
#undef BSN_NODE
#endif
    default: break;
    }
}

/* the bits set in each byte */
BSN_INLINE bsn_wide bsn_wide_popcounts(bsn_wide x)
{
    x -= (x >> 1) & (BSN_ONES * 0x55);
    x = (x & (BSN_ONES * 0x33)) + ((x >> 2) & (BSN_ONES * 0x33));
    return (x + (x >> 4)) & (BSN_ONES * 0x0F);
}

/* Returns the number of elements that go to a list: the bits set in its slot's mask. One copy serves every k,
 * as its tests are predicted. */
BSN_FUNCTION size_t bsn_scalar_count_slot(const bsn_node *node, unsigned slot)
{
    const unsigned k = node->bits;
    const uint8_t *p0 = node->planes, *p1 = k > 1 ? p0 + node->stride : p0;
    const uint8_t *p2 = k > 2 ? p1 + node->stride : p0, *p3 = k > 3 ? p2 + node->stride : p0;
    const size_t whole = node->count / (8 * BSN_WIDE) * BSN_WIDE;
    size_t i = 0, end, n = 0, j;
    while (i < whole) { /* up to 31 counts of at most 8 fit a byte */
        uint64_t lanes[BSN_WIDE / 8];
        bsn_wide sum = bsn_wide_load(p0) & 0;
        for (end = bsn_min(whole, i + 31 * BSN_WIDE); i < end; i += BSN_WIDE) {
            bsn_wide m = bsn_wide_load(p0 + i) ^ ((slot >> (k - 1)) & 1 ? 0 : ~UINT64_C(0));
            if (k > 1) m &= bsn_wide_load(p1 + i) ^ ((slot >> (k - 2)) & 1 ? 0 : ~UINT64_C(0));
            if (k > 2) m &= bsn_wide_load(p2 + i) ^ ((slot >> (k - 3)) & 1 ? 0 : ~UINT64_C(0));
            if (k > 3) m &= bsn_wide_load(p3 + i) ^ (slot & 1 ? 0 : ~UINT64_C(0));
            sum += bsn_wide_popcounts(m);
        }
        sum = (sum & BSN_EVEN) + ((sum >> 8) & BSN_EVEN);
        memcpy(lanes, &sum, BSN_WIDE);
        for (j = 0; j < BSN_WIDE / 8; j++) n += (size_t)((lanes[j] * BSN_LANES(1)) >> 48);
    }
    for (i = 8 * whole; i < node->count; i += 64) {
        const uint64_t live = node->count - i < 64 ? (UINT64_C(1) << (node->count - i)) - 1 : ~UINT64_C(0);
        n += bsn_popcount(bsn_slot_mask(k, slot, bsn_load64(p0 + i / 8), bsn_load64(p1 + i / 8), bsn_load64(p2 + i / 8),
                                        bsn_load64(p3 + i / 8)) & live);
    }
    return n;
}

static void bsn_scalar_node_counts(const bsn_node *node, size_t counts[4])
{
    const unsigned base = (1u << node->bits) - node->lists;
    unsigned j;
    for (j = 0; j < node->lists; j++) counts[j] = bsn_scalar_count_slot(node, base + j);
}

/* Several tables, so that equal neighbours do not wait for each other; n is a multiple of 8. */
BSN_INLINE void bsn_histogram_tables(uint32_t h[256], const uint8_t *list, size_t n, uint32_t *t, unsigned tables)
{
    uint32_t *u = t + 256 * (tables - 4);
    size_t i;
    unsigned j;
    memset(t, 0, 256 * tables * sizeof *t);
    for (i = 0; i < n; i += 8) {
        const uint64_t x = bsn_load64(list + i);
        t[x & 255]++;
        t[256 + (x >> 8 & 255)]++;
        t[512 + (x >> 16 & 255)]++;
        t[768 + (x >> 24 & 255)]++;
        u[x >> 32 & 255]++;
        u[256 + (x >> 40 & 255)]++;
        u[512 + (x >> 48 & 255)]++;
        u[768 + (x >> 56)]++;
    }
    for (j = 0; j < 256; j++) h[j] += t[j] + t[256 + j] + t[512 + j] + t[768 + j];
    if (tables == 8)
        for (j = 0; j < 256; j++) h[j] += u[j] + u[256 + j] + u[512 + j] + u[768 + j];
}

/* Returns the mask of a group's bytes that are equal to those of x, which are all the same. */
BSN_INLINE uint64_t bsn_equal64(const uint8_t *list, uint64_t x)
{
    const uint64_t low = BSN_ONES * 0x7F;
    uint64_t m = 0;
    unsigned i;
    for (i = 0; i < 64; i += BSN_WIDE) {
        const bsn_wide d = bsn_wide_get(list + i) ^ x;
        m |= (uint64_t)bsn_wide_top_bits(~(((d & low) + low) | d)) << i;
    }
    return m;
}

/* short lists would not repay clearing all tables; where most are one symbol or two, increments would wait
 * for each other */
static void bsn_scalar_histogram(uint32_t h[256], const uint8_t *list, size_t n, uint32_t *scratch)
{
    const size_t most = n < 1024 ? 0 : n & ~(size_t)7;
    unsigned i, a = 0, b = 0, others = 128; /* of 128: neither the one nor the other */
    for (i = 0; i < 128 && most; i++) {
        const unsigned s = list[i * (n / 128)];
        if (i == 0) a = b = s;
        if (b == a) b = s;
        others -= s == a || s == b;
    }
    if (others < 16) {
        for (; n >= 64; n -= 64, list += 64) {
            uint64_t some = ~bsn_equal64(list, BSN_ONES * a);
            h[a] += 64 - bsn_popcount(some);
            if (a != b) {
                const uint64_t second = bsn_equal64(list, BSN_ONES * b);
                h[b] += bsn_popcount(second);
                some &= ~second;
            }
            for (; some; some &= some - 1) h[list[bsn_lowest_bit(some)]]++;
        }
        for (; n; n--) h[*list++]++;
        return;
    }
    if (n >= 8192) bsn_histogram_tables(h, list, most, scratch, 8);
    else if (n >= 1024) bsn_histogram_tables(h, list, most, scratch, 4);
    for (list += most, n -= most; n; n--) h[*list++]++;
}

static uint8_t *bsn_scalar_map(uint8_t *list, size_t n, const uint8_t code[256], unsigned escape, uint8_t *escapes)
{
    uint8_t symbols[64 * BSN_PICK_GROUPS];
    uint64_t m[BSN_PICK_GROUPS];
    size_t i, some;
    for (; n; list += some, n -= some) {
        some = bsn_min(sizeof symbols, n);
        if (escape < 256) memcpy(symbols, list, some);
        for (i = 0; i < some; i += 8) {
            const uint64_t x = bsn_load64(list + i);
            bsn_store64(list + i, (uint64_t)code[x & 255] | (uint64_t)code[x >> 8 & 255] << 8 |
                                      (uint64_t)code[x >> 16 & 255] << 16 | (uint64_t)code[x >> 24 & 255] << 24 |
                                      (uint64_t)code[x >> 32 & 255] << 32 | (uint64_t)code[x >> 40 & 255] << 40 |
                                      (uint64_t)code[x >> 48 & 255] << 48 | (uint64_t)code[x >> 56] << 56);
        }
        if (escape == 256) continue;
        for (i = 0; i < some; i += 64) m[i / 64] = bsn_equal64(list + i, BSN_ONES * escape);
        if (some % 64) m[some / 64] &= (UINT64_C(1) << some % 64) - 1;
        escapes = bsn_scalar_pick(escapes, symbols, m, (some + 63) / 64, 0);
    }
    return escapes;
}

/* ---- decoding a list ----
 * Parsing goes forward through the stream. A node is noted where its planes are, and merged as soon as all
 * its lists are there; so no more nodes are noted than lie on one path, and depth alone bounds them. The
 * outermost node is left to the caller. Lists are merged in place if possible: a node's longest child is made
 * at the end of its parent's output. */

#define BSN_MAX_DEPTH 5   /* of masks, sides of splits and escapes inside each other: part of the format */
#define BSN_MIN_TREE 16   /* elements of a list that may have a tree or a split: part of the format */
#define BSN_TREES (BSN_MAX_DEPTH + 1)
#define BSN_NODES_NOTED (8 * BSN_TREES) /* on a path through a tree there are at most 8 nodes */
/* For each bit of a path one list that waits, and the node that waits for it (1 bit), or three and it (2 bits
 * and more); for a split two lists, its node and itself. */
#define BSN_STACK (16 * BSN_TREES + 4)
#define BSN_TOP 0xFFFF    /* parent of the outermost list */
#define BSN_MASK_SLOT 4   /* slot of a list that is the planes of its parent */

enum { BSN_ITEM_LIST, BSN_ITEM_NODE, BSN_ITEM_MERGE, BSN_ITEM_SPLIT, BSN_ITEM_SYMBOLS };

/* A piece of a list that waits on the stack to be coded. */
typedef struct bsn_item {
    uint8_t *data;    /* decoding: where its elements go (null: the outermost); encoding: its elements */
    uint8_t *scratch; /* free memory from here on */
    uint32_t count;   /* elements */
    uint16_t parent;  /* decoding: the node that it is a list of; MERGE, SPLIT: the node itself */
    uint8_t type;
    uint8_t slot;     /* decoding: which list of the parent */
    uint8_t bits;     /* of the alphabet */
    uint8_t depth;    /* masks, sides of splits and escapes around it */
    uint8_t level;    /* encoding: trees around it; 3: it is RAW */
    uint8_t path;     /* NODE: bits of the path done */
} bsn_item;

typedef struct bsn_lists { /* scratch of both directions */
    bsn_item stack[BSN_STACK];
    bsn_tree tree[BSN_TREES]; /* of the lists of each depth that are being coded */
    bsn_node node[BSN_NODES_NOTED];
} bsn_lists;

/* words, without the low bits that are stored apart in any case, are counted one by one up to here */
#define BSN_FINE 2048u

/* Counts of the words of a list. */
typedef struct bsn_tally {
    uint32_t length[65];  /* words of each length in bits */
    uint32_t beyond[65];  /* words of BSN_FINE or more, by the length of what is above BSN_FINE - 1 */
    uint32_t escape[65];  /* the same of words that escape, for the low bits and limit being weighed */
    uint32_t symbol[256]; /* words by their symbols, for these low bits */
} bsn_tally;

/* Scratch to plan lists while encoding. */
typedef struct bsn_planner {
    uint32_t count[257];      /* of the list being planned */
    uint32_t weight[257];     /* of the codes being weighed */
    uint32_t mask_count[256]; /* of the bytes of the mask of a split, which was weighed last: */
    unsigned mask_above;      /* that of the symbols above this one, */
    uint32_t mask_ones;       /* their number */
    uint8_t length[257], inner[257]; /* when a tree is written, inner has codes */
    bsn_package package;
    bsn_tally tally;
    uint32_t tables[BSN_FINE]; /* of histograms, 8 of 256; or counts of words below BSN_FINE */
} bsn_planner;

typedef struct bsn_reader {
    const bitsnap_kernels *kernels;
    bsn_lists *lists;
    const uint8_t *at, *end;    /* of the payload */
    const uint8_t *input_end;   /* nothing may be read from here on */
    uint8_t *scratch, *scratch_end; /* for lists */
    uint8_t *kept, *kept_end;   /* for what stays until the list is done: masks, and copies of what lies so
                                   near the end of the input that kernels would read past it */
    const uint8_t *raw;         /* result: the outermost list if it is raw; null: it is node[0] */
    size_t most;                /* bytes of a plane that all elements pass */
    unsigned nodes;             /* nodes noted */
    unsigned rule;              /* result: the reject condition, 0 if none */
} bsn_reader;

/* Scratch to decode one outermost list of n symbols.
 * LISTS: children. Those of the outermost node hold n symbols at most. Below it, the longest child is built
 * at the end of its node's output, and the scratch of a child is reused by its later siblings, so a path
 * takes at most n more. Each child has 64 bytes of slack.
 * KEPT: masks of splits, ceil(n / 8) + 64 bytes at each of 5 depths; and copies of whatever begins in the
 * last n + 136 bytes of the input, where a kernel could read past its end.
 * BEHIND: what must be readable after every list, mask and kept copy. Masks are read twice: when symbols are
 * counted and when lists are merged. If another thread changes masks in between, a merge reads past a list,
 * but at most one symbol for each element of its node, and 64 bytes. Writes depend on counts alone. */
#define BSN_LISTS_SIZE(n) (2 * (size_t)(n) + 64 * (12 * BSN_TREES + 8))
#define BSN_KEPT_SIZE(n) (7 * (size_t)(n) / 4 + 1024)
#define BSN_BEHIND(n) ((size_t)(n) + 64)

static uint8_t *bsn_keep(bsn_reader *r, size_t size)
{
    uint8_t *p = r->kept;
    if ((size_t)(r->kept_end - r->kept) < size) {
        r->rule = BITSNAP_R_LIST_END;
        return NULL;
    }
    r->kept += size;
    return p;
}

/* The next `size` bytes of the payload; `reach` bytes from there on, and 64, can be read. Null and rule at
 * its end. */
static const uint8_t *bsn_take(bsn_reader *r, size_t size, size_t reach)
{
    const uint8_t *p = r->at;
    uint8_t *copy;
    if ((size_t)(r->end - p) < size) {
        r->rule = BITSNAP_R_LIST_END;
        return NULL;
    }
    r->at += size;
    if (BSN_LIKELY((size_t)(r->input_end - p) >= reach + 64)) return p;
    copy = bsn_keep(r, size);
    if (copy) memcpy(copy, p, size);
    return copy;
}

BSN_INLINE void bsn_run_node(const bsn_reader *r, bsn_node *node, size_t first, size_t n, uint8_t *out)
{
    if (node->bits) r->kernels->node_merge(node, first, n, out);
    else memset(out, node->leaf[0], n);
}

/* A node that has been noted last, as list `slot` of `parent`: three in a row, of a leaf and the next one
 * each, are merged at once by a table that can. */
static void bsn_chain_node(const bsn_reader *r, bsn_node *node, unsigned parent, unsigned slot)
{
    if (node->bits != 1 || node->lists != 1 || !bsn_has(r->kernels, BSN_CHAINS)) return;
    node->row = 1;
    if (slot || parent + 1 != (unsigned)(node - r->lists->node) || !node[-1].row) return;
    node->row = (uint8_t)(node[-1].row % 3 + 1);
    if (node->row != 3) return;
    node[-1].merged = node->merged = node[-2].chained = 1;
}

static bsn_node *bsn_note_node(bsn_reader *r, const bsn_item *item, unsigned bits, unsigned lists)
{
    bsn_node *node = &r->lists->node[r->nodes++];
    memset(node, 0, sizeof *node);
    node->out = item->data;
    node->count = item->count;
    node->bits = (uint8_t)bits;
    node->lists = (uint8_t)lists;
    node->kept = r->kept;
    bsn_chain_node(r, node, item->parent, item->slot);
    return node;
}

/* All lists of a node are there: merges it, unless it is merged with one before it, or is the outermost. */
static void bsn_close_node(bsn_reader *r, bsn_node *node)
{
    if (node->merged) return;
    if (node->chained) { /* gets the leaves of all three, and the list of the last */
        node->leaf[1] = node[1].leaf[0];
        node->leaf[2] = node[2].leaf[0];
        node->list[0] = node[2].list[0];
        node[1].stride = node[2].stride = 0;
    }
    if (node == r->lists->node) return;
    bsn_run_node(r, node, 0, node->count, node->out);
    r->nodes = (unsigned)(node - r->lists->node);
    r->kept = node->kept;
}

/* A list breaks this rule: the loop over the stack ends. */
static bsn_item *bsn_broken(bsn_reader *r, bsn_item *top, unsigned rule)
{
    r->rule = rule;
    return top;
}

/* Counts a node's lists, puts them on the stack, the first on top, and gives them memory: the longest inside
 * its output. */
static bsn_item *bsn_push_lists(bsn_reader *r, bsn_item *top, const bsn_item *like, bsn_node *node)
{
    uint8_t *scratch = like->scratch;
    size_t counts[4] = { 0, 0, 0, 0 };
    unsigned j, longest = 0;
    bsn_item *item;
    if (!node->lists) {
        bsn_close_node(r, node);
        return top;
    }
    r->kernels->node_counts(node, counts);
    if (counts[0] + counts[1] + counts[2] + counts[3] > node->count) /* another thread changes the planes */
        return bsn_broken(r, top, BITSNAP_R_MASK_TAIL);
    for (j = 1; j < node->lists; j++)
        if (counts[j] > counts[longest]) longest = j;
    *top = *like;
    top->type = BSN_ITEM_MERGE;
    top->parent = (uint16_t)(node - r->lists->node);
    top += node->lists;
    /* the first list is there first and needs its memory the longest */
    for (j = 0, item = top; j < node->lists; j++, item--) {
        *item = *like;
        item->parent = (uint16_t)(node - r->lists->node);
        item->slot = (uint8_t)j;
        item->count = (uint32_t)counts[j];
        if (node->out && j == longest) {
            item->data = node->out + node->count - counts[j];
        } else {
            if ((size_t)(r->scratch_end - scratch) < counts[j] + 64) return bsn_broken(r, top, BITSNAP_R_LIST_END);
            item->data = scratch;
            scratch += counts[j] + 64;
        }
        item->scratch = scratch;
        node->list[j] = item->data;
    }
    return top + 1;
}

static int bsn_all_below(const uint8_t *list, size_t n, unsigned bits)
{
    const uint64_t above = BSN_ONES * (0xFFu << bits & 0xFFu);
    uint64_t any = 0;
    size_t i;
    if (bits == 8) return 1;
    for (i = 0; i + 8 <= n; i += 8) any |= bsn_load64(list + i);
    any |= bsn_load_some(list + i, n - i);
    return (any & above) == 0;
}

/* Parses a raw list. */
static void bsn_parse_raw(bsn_reader *r, const bsn_item *item)
{
    /* if another thread changes masks, all elements of the first node of a row may pass the others */
    bsn_node *parent = item->parent == BSN_TOP ? NULL : &r->lists->node[item->parent];
    const int mask = item->slot == BSN_MASK_SLOT;
    const size_t most = item->count > r->most ? item->count : r->most;
    const uint8_t *p = bsn_take(r, item->count, !parent || mask ? most : parent->row > 1 ? 8 * r->most : parent->count);
    if (!p) return;
    if (!bsn_all_below(p, item->count, item->bits)) r->rule = BITSNAP_R_SYMBOL;
    if (!parent) r->raw = p;
    else if (mask) parent->planes = p;
    else parent->list[item->slot] = p;
}

static void bsn_parse_const(bsn_reader *r, const bsn_item *item)
{
    const uint8_t *p = bsn_take(r, 1, 0);
    unsigned symbol;
    if (!p) return;
    symbol = bsn_once8(p);
    if (symbol >> item->bits) r->rule = BITSNAP_R_SYMBOL;
    else if (item->parent == BSN_TOP) bsn_note_node(r, item, 0, 0)->leaf[0] = (uint8_t)symbol;
    else memset(item->data, (int)symbol, item->count);
}

/* A split: its mask comes first, and then the split again. */
static bsn_item *bsn_parse_mask(bsn_reader *r, bsn_item *top, const bsn_item *item, unsigned lists)
{
    bsn_node *node = bsn_note_node(r, item, 1, lists);
    *top = *item;
    top->type = BSN_ITEM_SPLIT;
    top->parent = (uint16_t)(node - r->lists->node);
    top++;
    *top = top[-1];
    top->type = BSN_ITEM_LIST;
    top->slot = BSN_MASK_SLOT;
    top->count = (uint32_t)bsn_mask_bytes(item->count);
    top->data = bsn_keep(r, top->count + 64);
    top->bits = 8;
    top->depth++;
    node->planes = top->data;
    node->stride = top->count;
    return top + 1;
}

/* One list: its kind, and what follows from it. */
static bsn_item *bsn_parse_list(bsn_reader *r, bsn_item *top, const bsn_item *item)
{
    bsn_tree *t = &r->lists->tree[item->depth];
    unsigned kind, escape;
    size_t used;
    int split;
    if (r->at == r->end) return bsn_broken(r, top, BITSNAP_R_LIST_END);
    kind = bsn_once8(r->at++);
    escape = (kind & 15) == BSN_LIST_ESCAPES && kind >> 4 <= BSN_LIMIT ? kind >> 4 : 0;
    if (kind == BSN_LIST_RAW) bsn_parse_raw(r, item);
    else if (kind == BSN_LIST_CONST) bsn_parse_const(r, item);
    if (kind <= BSN_LIST_CONST) return top;
    split = kind == BSN_LIST_SPLIT0 || kind == BSN_LIST_SPLIT2;
    if (!split && !escape && kind != BSN_LIST_TREE) r->rule = BITSNAP_R_LIST_KIND;
    else if (item->count < BSN_MIN_TREE) r->rule = BITSNAP_R_SMALL_TREE;
    else if (item->depth == BSN_MAX_DEPTH && kind != BSN_LIST_TREE) r->rule = BITSNAP_R_DEPTH;
    if (r->rule) return top;
    if (split) return bsn_parse_mask(r, top, item, kind == BSN_LIST_SPLIT2 ? 2 : 1);
    used = bsn_table_read(t, escape, r->at, (size_t)(r->end - r->at), item->bits, &r->rule);
    if (!used) return top;
    r->rule = 0;
    r->at += used;
    *top = *item;
    top->type = BSN_ITEM_NODE;
    top->path = 0;
    return top + 1;
}

/* The next node of the tree around it. */
static bsn_item *bsn_parse_node(bsn_reader *r, bsn_item *top, const bsn_item *item)
{
    bsn_tree *t = &r->lists->tree[item->depth];
    const bsn_step step = bsn_tree_step(t, item->path);
    bsn_item like = *item;
    bsn_node *node;
    like.path = (uint8_t)(item->path + step.bits);
    if (item->count == 0) { /* nothing passes here: the walk goes on, the stream has nothing */
        unsigned j;
        for (j = (unsigned)step.escape; j < step.lists; j++) *top++ = like;
        return top;
    }
    node = bsn_note_node(r, item, step.bits, step.lists);
    node->stride = bsn_mask_bytes(item->count);
    node->planes = bsn_take(r, step.bits * node->stride, node->row > 1 ? r->most : step.bits * node->stride);
    if (!node->planes) return top;
    if (!bsn_masks_clear(node->planes, node->stride, node->bits, node->count)) return bsn_broken(r, top, BITSNAP_R_MASK_TAIL);
    memcpy(node->leaf, t->symbol + step.place, step.leaves);
    top = bsn_push_lists(r, top, &like, node);
    if (step.escape && !r->rule) { /* the first list, on top of the stack */
        top[-1].type = BSN_ITEM_LIST;
        top[-1].depth++;
    }
    return top;
}

/* The sides of a split whose mask is there. */
static bsn_item *bsn_parse_split(bsn_reader *r, bsn_item *top, const bsn_item *item)
{
    bsn_item like = *item;
    bsn_node *node = &r->lists->node[item->parent];
    if (!bsn_masks_clear(node->planes, node->stride, node->bits, node->count)) return bsn_broken(r, top, BITSNAP_R_MASK_TAIL);
    like.type = BSN_ITEM_LIST;
    like.depth++;
    return bsn_push_lists(r, top, &like, node);
}

/* Parses a list of n symbols below 2^bits at r->at. Afterwards r->rule says whether it is well formed; then
 * r->raw or node[0] holds it, and of the other nodes all have been merged. */
static void bsn_list_read(bsn_reader *r, size_t n, unsigned bits)
{
    bsn_item *bottom = r->lists->stack, *top = bottom, item;
    uint8_t *kept = r->kept;
    r->raw = NULL;
    r->rule = 0;
    r->nodes = 0;
    r->most = bsn_mask_bytes(n) + 8; /* words are loaded that begin before its end */
    if (n == 0) {
        r->raw = r->at;
        return;
    }
    memset(top, 0, sizeof *top);
    top->scratch = r->scratch;
    top->count = (uint32_t)n;
    top->parent = BSN_TOP;
    top->bits = (uint8_t)bits;
    top++;
    while (top > bottom && !r->rule) {
        item = *--top;
        if (item.type == BSN_ITEM_NODE) top = bsn_parse_node(r, top, &item);
        else if (item.type == BSN_ITEM_MERGE) bsn_close_node(r, &r->lists->node[item.parent]);
        else if (item.type == BSN_ITEM_SPLIT) top = bsn_parse_split(r, top, &item);
        else if (item.count == 0) continue; /* no bytes */
        else top = bsn_parse_list(r, top, &item);
    }
    r->kept = kept; /* stays readable until the next list is read */
}

/* Returns a pointer to elements first .. first + n - 1 of the list: to `out` (n + 64 bytes) or to the source.
 * Ranges must ascend without gaps, and begin at multiples of 64. */
BSN_INLINE const uint8_t *bsn_list_next(bsn_reader *r, uint8_t *out, size_t first, size_t n)
{
    bsn_node *node = &r->lists->node[0];
    if (r->raw) return r->raw + first;
    bsn_run_node(r, node, first, n, out);
    return out;
}

/* All n elements of the list read, to `to`. */
static void bsn_list_take(bsn_reader *r, uint8_t *to, size_t n)
{
    const uint8_t *symbols = n ? bsn_list_next(r, to, 0, n) : to;
    if (symbols != to) memcpy(to, symbols, n);
}

/* ---- encoding a list ----
 * Planning chooses the kind from counts; writing deals the elements out from the root down, in the order of
 * the stream. What the plan is does not matter to decoders, but is the same on every machine. */

/* How words become symbols, see DELTA. */
typedef struct bsn_words_plan {
    unsigned shift, limit; /* limit 0: no escapes, unless there are larger words than the plan knows of */
    uint64_t bits;         /* that it takes, roughly */
} bsn_words_plan;

typedef struct bsn_writer {
    const bitsnap_kernels *kernels;
    bsn_lists *lists;
    bsn_planner *planner;
    uint8_t *at, *end;  /* of the destination; nothing is written past the end */
    uint8_t *scratch;   /* BSN_WRITE_SIZE(n) bytes */
    bsn_ahead *ahead;   /* what to prefetch on the way */
    size_t ahead_step;  /* lines to prefetch for 1024 symbols, most of them at the root; 0: none */
    int level;
    int thorough;       /* every list by exact counts, all kinds weighed: deltas */
    int counted;        /* planner->count holds the counts of the list that comes next, or of its words that
                           are bytes */
    const bsn_words_plan *plan; /* of the words that come next, where it has been made already, else null */
    int wide;           /* lists of symbols are counted as those of wide words even where these are bytes */
    int sampled;        /* long lists of words are planned by a sample: they have about the same words
                           throughout */
    int bytes;          /* the outermost list is a byte plane of integers, which may be constant or random */
    int full;           /* result: 1 where the destination was too small */
} bsn_writer;

/* The outermost list's escapes and four lists in the making; then the same of what is inside of it. */
#define BSN_WRITE_SIZE(n) (7 * (size_t)(n) + 64 * 8 * BSN_TREES)
#define BSN_CHUNK 4096u /* elements that go through all stages while they are in the first-level cache, at most */
/* shorter lists are counted exactly; at level default those below 8 times this */
#define BSN_SAMPLE_MIN 4096u

#define BSN_LOG2_ONE 20 /* the unit of logarithms is 2^-20 */

/* 2^20 * log2(1 + i / 256) */
static const uint32_t bsn_log2_table[257] = {
    0, 5898, 11773, 17625, 23454, 29262, 35047, 40810, 46551, 52270, 57968, 63644, 69300, 74934,
    80547, 86140, 91711, 97263, 102794, 108305, 113796, 119267, 124719, 130151, 135563, 140956, 146330, 151685,
    157021, 162339, 167637, 172917, 178179, 183423, 188648, 193856, 199045, 204217, 209372, 214508, 219628, 224730,
    229815, 234883, 239934, 244968, 249985, 254986, 259971, 264939, 269891, 274826, 279746, 284650, 289537, 294409,
    299266, 304107, 308932, 313742, 318537, 323317, 328082, 332831, 337566, 342286, 346991, 351682, 356359, 361020,
    365668, 370301, 374920, 379526, 384117, 388694, 393257, 397807, 402343, 406866, 411375, 415870, 420353, 424822,
    429278, 433720, 438150, 442567, 446971, 451362, 455741, 460107, 464460, 468801, 473129, 477445, 481749, 486041,
    490320, 494587, 498843, 503086, 507318, 511537, 515745, 519942, 524126, 528300, 532461, 536612, 540750, 544878,
    548995, 553100, 557194, 561277, 565349, 569410, 573460, 577500, 581529, 585547, 589554, 593551, 597537, 601513,
    605478, 609433, 613378, 617312, 621236, 625150, 629054, 632948, 636832, 640706, 644570, 648424, 652269, 656103,
    659928, 663744, 667549, 671345, 675132, 678909, 682677, 686436, 690185, 693925, 697655, 701377, 705089, 708792,
    712487, 716172, 719848, 723515, 727174, 730823, 734464, 738096, 741720, 745335, 748941, 752538, 756127, 759708,
    763280, 766844, 770399, 773946, 777484, 781015, 784537, 788051, 791557, 795055, 798544, 802026, 805500, 808965,
    812423, 815873, 819315, 822749, 826176, 829594, 833005, 836409, 839804, 843192, 846573, 849946, 853311, 856669,
    860020, 863363, 866699, 870027, 873348, 876662, 879969, 883268, 886561, 889846, 893124, 896394, 899658, 902915,
    906165, 909408, 912644, 915873, 919095, 922310, 925518, 928720, 931915, 935103, 938284, 941459, 944627, 947789,
    950944, 954092, 957234, 960369, 963498, 966620, 969736, 972846, 975949, 979046, 982136, 985220, 988298, 991370,
    994435, 997494, 1000547, 1003594, 1006635, 1009670, 1012698, 1015721, 1018737, 1021748, 1024752, 1027751, 1030743, 1033730,
    1036711, 1039686, 1042655, 1045618, 1048576
};

/* 2^20 * log2(x), between the entries of the table along a line: off by less than 2^-18, so that even of a
 * count of 2^20, as that of zeros is where hardly anything has changed, the logarithm times the count is
 * right to 3 bits; x > 0 */
static uint64_t bsn_log2_fixed(uint32_t x)
{
    const unsigned whole = bsn_log2(x);
    const uint32_t y = x << (31 - whole), i = y >> 23 & 255, rest = y & 0x7FFFFF; /* 1, then 8 and 23 bits */
    const uint32_t low = bsn_log2_table[i], step = bsn_log2_table[i + 1] - low;
    return ((uint64_t)whole << BSN_LOG2_ONE) + low + ((uint64_t)step * rest >> 23);
}

static uint64_t bsn_entropy_bits(const uint32_t count[256], uint32_t n)
{
    uint64_t sum = 0;
    const uint64_t all = n ? bsn_log2_fixed(n) : 0;
    unsigned s;
    for (s = 0; s < 256; s++)
        if (count[s]) sum += count[s] * (all - bsn_log2_fixed(count[s]));
    return sum >> BSN_LOG2_ONE;
}

#define BSN_NEVER (~UINT64_C(0))

/* Returns the bits of a tree with these code lengths for these weights, its table and padding included. The
 * padding is estimated. */
static uint64_t bsn_tree_bits(const uint32_t weight[257], const uint8_t length[257])
{
    uint64_t bits = 0;
    unsigned s, first = 256, last = 0, codes = 0;
    for (s = 0; s <= 256; s++) {
        while (s <= 248 && !bsn_load64(length + s)) s += 8; /* most symbols are absent */
        if (!length[s]) continue;
        bits += (uint64_t)weight[s] * length[s];
        codes++;
        if (s < 256) {
            last = s;
            if (first == 256) first = s;
        }
    }
    return bits + 24 + 4 * (last - first + 1) + 4 * codes;
}

/* Chooses codes by a sample of `total` symbols. A symbol gets a code if its count * 2^shift exceeds the
 * total. The others escape, and `lost` more that may be outside the sample. Returns the bits of the tree for
 * the sample, without its escapes; BSN_NEVER: no tree. */
static uint64_t bsn_choose_sampled(bsn_planner *x, uint8_t length[257], const uint32_t count[256], uint32_t total, uint32_t lost,
                                   unsigned shift)
{
    unsigned s, end, kept = 0;
    memset(x->weight, 0, sizeof x->weight);
    x->weight[256] = lost;
    for (bsn_counted(count, &s, &end); s < end; s++) {
        const int keep = (uint64_t)count[s] << shift > total;
        x->weight[keep ? s : 256] += count[s];
        kept += (unsigned)keep;
    }
    if (!kept || kept == 256) return BSN_NEVER;
    bsn_lengths(&x->package, length, x->weight);
    return bsn_tree_bits(x->weight, length);
}

#define BSN_KEY_SYMBOL(key) (256 - (unsigned)((key) & 511))

/* Bits of the table of a tree for these keys, the escape's among them or not. */
static unsigned bsn_keys_table(const uint64_t *key, size_t m)
{
    unsigned first = 255, last = 0;
    size_t i;
    for (i = 0; i < m; i++) {
        const unsigned s = BSN_KEY_SYMBOL(key[i]);
        if (s == 256) continue;
        if (s < first) first = s;
        if (s > last) last = s;
    }
    return 24 + 4 * (last - first + 1) + 4 * (unsigned)m;
}

/* Returns a lower bound for the bits of a tree and its codes. Keys are in ascending order; their weights sum
 * to n. A symbol that makes up half of the list or more has a code of 1 bit in the best tree, which costs
 * every other symbol 1 bit. It is taken off; then the entropy bounds the remainder, less the error of the
 * logarithms. */
static uint64_t bsn_keys_least(const uint64_t *key, size_t m, uint64_t n)
{
    uint64_t bits = bsn_keys_table(key, m), entropy;
    for (; m > 1 && 2 * (key[m - 1] >> 9) >= n; n -= key[--m] >> 9) bits += n;
    if (m < 2) return bits;
    entropy = n * bsn_log2_fixed((uint32_t)n);
    while (m--) entropy -= (key[m] >> 9) * bsn_log2_fixed((uint32_t)(key[m] >> 9));
    entropy >>= BSN_LOG2_ONE;
    return bits + (entropy > 16 ? entropy - 16 : 0);
}

static uint64_t bsn_keys_bits(bsn_package *p, const uint64_t *key, size_t m, unsigned taken[BSN_LIMIT])
{
    uint64_t bits = bsn_keys_table(key, m);
    size_t i;
    bsn_package_merge(p, key, m, taken);
    for (i = 0; i < m; i++) bits += (key[i] >> 9) * bsn_package_length(taken, i);
    return bits;
}

/* Replaces keys[0 .. from) by one escape key, in sorted order; returns the key that it overwrites, for undo.
 * And the undo. */
static uint64_t bsn_keys_escape(uint64_t *key, size_t from, size_t used, uint32_t escapes)
{
    const uint64_t over = key[from - 1], escape = (uint64_t)escapes << 9;
    for (; from < used && key[from] < escape; from++) key[from - 1] = key[from];
    key[from - 1] = escape;
    return over;
}

static void bsn_keys_back(uint64_t *key, size_t from, uint64_t over)
{
    size_t at = from - 1;
    while (key[at] & 511) at++;
    for (; at >= from; at--) key[at] = key[at - 1];
    key[at] = over;
}

/* Bits of escapes as a list: by a tree of their own, where there may be one, or raw; bounded from below, or
 * exact. */
static uint64_t bsn_keys_escaped(bsn_package *p, size_t m, uint32_t escapes, int nested, int exact)
{
    const uint64_t raw = 8 * (uint64_t)escapes + 8;
    unsigned taken[BSN_LIMIT];
    uint64_t coded;
    if (!nested || escapes < BSN_MIN_TREE) return raw;
    coded = exact ? bsn_keys_bits(p, p->key, m, taken) : bsn_keys_least(p->key, m, escapes);
    return coded < raw ? coded : raw;
}

/* Codes by exact counts of n symbols: one is kept where its count * 2^shift exceeds n, the others escape. The
 * best `shift` from `first` to `last`, of equal ones the first; its lengths go to `length`. BSN_NEVER where
 * none takes fewer than `best` bits. Counts are sorted once, and choices that cannot be the best, as their
 * bounds tell, are not made. */
static uint64_t bsn_choose_exact(bsn_planner *x, uint8_t length[257], const uint32_t count[256], uint32_t n, unsigned first,
                                 unsigned last, int nested, uint64_t best)
{
    bsn_package *p = &x->package;
    const size_t used = bsn_sort_counts(p, count, 0);
    uint64_t least[5], over = 0, result = BSN_NEVER;
    uint32_t escapes[5];
    size_t from[5], i;
    unsigned taken[BSN_LIMIT], choices = 0, chosen = 0, j, k;
    for (; first <= last; first++) {
        uint32_t sum = 0;
        for (i = 0; i < used && (p->key[i] >> 9) << first <= n; i++) sum += (uint32_t)(p->key[i] >> 9);
        if (i == 1) i = sum = 0; /* an escape would cost as much as a code */
        if (i == used || used - i + (i > 0) > 256 || used - i + (i > 0) < 2) continue;
        if (choices && from[choices - 1] == i) continue;
        least[choices] = 0;
        if (i) {
            least[choices] = bsn_keys_escaped(p, i, sum, nested, 0);
            over = bsn_keys_escape(p->key, i, used, sum);
        }
        least[choices] += bsn_keys_least(p->key + i - (i > 0), used - i + (i > 0), n);
        if (i) bsn_keys_back(p->key, i, over);
        escapes[choices] = sum;
        from[choices++] = i;
    }
    for (k = choices; k; k--) {
        uint64_t bits = 0;
        size_t m;
        for (i = j = 0; i < choices; i++)
            if (least[i] < least[j]) j = (unsigned)i;
        if (least[j] >= best || least[j] > result) break;
        least[j] = BSN_NEVER;
        i = from[j];
        m = used - i + (i > 0);
        if (i) {
            bits = bsn_keys_escaped(p, i, escapes[j], nested, 1);
            over = bsn_keys_escape(p->key, i, used, escapes[j]);
        }
        bits += bsn_keys_bits(p, p->key + i - (i > 0), m, taken);
        if (bits < best && (bits < result || (bits == result && j < chosen))) {
            result = bits;
            chosen = j;
            memset(length, 0, 257);
            while (m--) length[BSN_KEY_SYMBOL(p->key[i - (i > 0) + m])] = (uint8_t)bsn_package_length(taken, m);
        }
        if (i) bsn_keys_back(p->key, i, over);
    }
    return result;
}

/* Of each 2^log2 lines of 64 symbols one; not always the same one, as columns of matrices may differ. Returns
 * how many symbols. */
static uint32_t bsn_sample(uint8_t *sample, const uint8_t *list, size_t n, unsigned log2)
{
    uint32_t total = 0;
    size_t group, line;
    for (group = 0; 64 * group << log2 < n; group++) {
        line = (group << log2) + ((group + (group >> log2) + (group >> 2 * log2)) & ((1u << log2) - 1));
        if (64 * line + 64 > n) break;
        memcpy(sample + total, list + 64 * line, 64);
        total += 64;
    }
    return total;
}

static void bsn_scalar_mask_above(uint8_t *mask, const uint8_t *list, size_t groups, unsigned t)
{
    for (; groups; groups--, mask += 8, list += 64) bsn_store64(mask, bsn_above64(list, t));
}

/* The mask [symbol > t], t below 255. */
static void bsn_mask_above(const bitsnap_kernels *kernels, uint8_t *mask, const uint8_t *list, size_t n, unsigned t)
{
    uint8_t last[64], bits[8];
    const size_t rest = n & 63;
    kernels->mask_above(mask, list, n / 64, t);
    memset(last, 0, sizeof last);
    if (rest) memcpy(last, list + n - rest, rest);
    bsn_scalar_mask_above(bits, last, 1, t);
    if (rest) memcpy(mask + n / 64 * 8, bits, bsn_mask_bytes(rest));
}

/* Writes the positions of the 1 bits. Which groups are empty cannot be predicted, so there are no branches:
 * compacts the other groups, then writes two positions for each. If it has only one, the next group
 * overwrites the second. */
static size_t bsn_scalar_places(uint32_t *place, const uint8_t *mask, size_t first, size_t groups)
{
    const uint32_t *begin = place;
    uint64_t some[BSN_CHUNK / 64];
    uint32_t at[BSN_CHUNK / 64];
    size_t i, few, found;
    for (; groups; groups -= few, mask += 8 * few, first += 64 * few) {
        few = bsn_min(groups, BSN_CHUNK / 64);
        for (i = found = 0; i < few; i++) {
            some[found] = bsn_load64(mask + 8 * i);
            at[found] = (uint32_t)(first + 64 * i);
            found += some[found] != 0;
        }
        for (i = 0; i < found; i++) {
            uint64_t m = some[i];
            *place++ = at[i] + bsn_lowest_bit(m);
            m &= m - 1;
            *place = at[i] + bsn_lowest_bit(m | UINT64_C(1) << 63);
            place += m != 0;
            for (m &= m - 1; BSN_UNLIKELY(m != 0); m &= m - 1) *place++ = at[i] + bsn_lowest_bit(m);
        }
    }
    return (size_t)(place - begin);
}

/* Runs such a kernel on any number of bits. */
static size_t bsn_places(size_t (*places)(uint32_t *, const uint8_t *, size_t, size_t), uint32_t *place, const uint8_t *mask,
                         size_t first, size_t n)
{
    size_t count = places(place, mask, first, n / 64), i = n & ~(size_t)63;
    uint64_t m = i < n ? bsn_mask_word(mask, i, n) : 0;
    for (; m; m &= m - 1) place[count++] = (uint32_t)(first + i) + bsn_lowest_bit(m);
    return count;
}

/* Estimates the bits of a list from its counts, as a tree or raw. */
static uint64_t bsn_side_bits(bsn_writer *w, const uint32_t count[257])
{
    bsn_planner *x = w->planner;
    uint64_t raw = 8, coded;
    unsigned s, kinds = 0;
    for (s = 0; s < 256; s++) {
        raw += 8 * (uint64_t)count[s];
        kinds += count[s] > 0;
    }
    if (kinds < 2) return 16;
    if (raw < 8 + 8 * BSN_MIN_TREE) return raw;
    bsn_lengths(&x->package, x->inner, count);
    coded = bsn_tree_bits(count, x->inner);
    return coded < raw ? coded : raw;
}

/* Order-0 entropy of a mask of n bits with k ones. */
static uint64_t bsn_two_bits(uint32_t n, uint32_t k)
{
    uint64_t sum = 0;
    if (k && k < n)
        sum = k * (bsn_log2_fixed(n) - bsn_log2_fixed(k)) + (n - k) * (bsn_log2_fixed(n) - bsn_log2_fixed(n - k));
    return sum >> BSN_LOG2_ONE;
}

/* Bits of the list split by [symbol > t]: the mask by the order-0 entropy of its bytes, as its own masks will
 * reach it, and the sides as trees; but zeros among symbols up to 2 may be split off once more. The mask
 * stays in the item's scratch memory, and its counts in planner->mask_count. */
static uint64_t bsn_split_bits(bsn_writer *w, const bsn_item *item, const uint32_t count[256], unsigned t)
{
    const uint32_t n = item->count;
    const uint32_t low = t ? count[0] + count[1] + count[2] : count[0], ones = n - low;
    const size_t size = bsn_mask_bytes(n);
    uint32_t *h = w->planner->weight; /* not in use: codes have been weighed */
    uint64_t bits;
    bsn_mask_above(w->kernels, item->scratch, item->data, n, t);
    memset(w->planner->mask_count, 0, sizeof w->planner->mask_count);
    w->kernels->histogram(w->planner->mask_count, item->scratch, size, w->planner->tables);
    w->planner->mask_above = t;
    w->planner->mask_ones = ones;
    bits = bsn_entropy_bits(w->planner->mask_count, (uint32_t)size);
    if (w->thorough && size < 2048) bits = bsn_two_bits(n, ones); /* too few bytes to know their entropy */
    bits += bits / 32 + 64;
    memset(h, 0, 257 * sizeof *h);
    memcpy(h + t + 1, count + t + 1, (255 - t) * sizeof *h);
    if (w->thorough) {
        bits += bsn_side_bits(w, h);
    } else {
        bsn_lengths(&w->planner->package, w->planner->inner, h);
        bits += ones < BSN_MIN_TREE ? 8 * (uint64_t)ones + 8 : bsn_tree_bits(h, w->planner->inner);
    }
    if (t) {
        uint64_t coded, again = bsn_two_bits(low, count[0]);
        again += again / 32 + 64 + low - count[0];
        memset(h, 0, 257 * sizeof *h);
        memcpy(h, count, 3 * sizeof *h);
        coded = bsn_side_bits(w, h);
        bits += coded < again ? coded : again;
    }
    return bits;
}

/* What a sample of a list shows. It has one symbol in 128, at least 512, and up to four times that number
 * while they look random; n >= BSN_SAMPLE_MIN. Symbols are sampled one by one, not in runs: neighbouring
 * bytes of sorted numbers are alike. */
enum { BSN_GLANCE_NOTHING, BSN_GLANCE_CONST, BSN_GLANCE_RANDOM, BSN_GLANCE_FEW, BSN_GLANCE_MANY };

static int bsn_glance(bsn_writer *w, const bsn_item *item)
{
    const unsigned log2 = (unsigned)bsn_min(7, bsn_log2(item->count) - 9);
    uint32_t *h = w->planner->weight, seen = 0, i; /* not in use yet */
    unsigned quarter, used = 0;
    memset(h, 0, 256 * sizeof *h);
    for (quarter = 0; quarter < 4; quarter++) {
        uint64_t pairs = 0;
        for (i = 0; i < item->count >> log2; i++, seen++)
            h[item->data[(i << log2) + ((4 * i + quarter) * 0x9E3779B1u >> (32 - log2))]]++;
        for (i = used = 0; i < 256; i++) {
            pairs += (uint64_t)h[i] * h[i];
            used += h[i] > 0;
        }
        /* of random bytes one in 256 pairs is equal, by chance up to 64 / seen of that more: then the entropy
         * is so near to 8 bits that no tree repays its table, unless bytes are missing, which sorted numbers
         * make up for in pairs */
        if (256 * (pairs - seen) <= (uint64_t)(seen - 1) * (seen + (quarter < 3 ? 128 : 64))) continue;
        if (used == 1 && bsn_equal(item->data, item->data + 1, item->count - 1)) return BSN_GLANCE_CONST;
        return used <= 2 ? BSN_GLANCE_FEW : used > 64 ? BSN_GLANCE_MANY : BSN_GLANCE_NOTHING;
    }
    return used >= 254 ? BSN_GLANCE_RANDOM : BSN_GLANCE_MANY;
}

/* Counts n bytes in planner->count. */
static void bsn_count_bytes(const bitsnap_kernels *kernels, bsn_planner *x, const uint8_t *bytes, size_t n)
{
    memset(x->count, 0, sizeof x->count);
    kernels->histogram(x->count, bytes, n, x->tables);
}

/* What is known of a list, whose counts are in planner->count. */
typedef struct bsn_counts {
    uint32_t total; /* symbols that have been counted */
    uint32_t lost;  /* symbols that a sample may have missed; 0: all have been counted */
    uint32_t most;  /* the largest count */
} bsn_counts;

/* Counts the symbols of a list. planner->count has the counts already, or is 0. `sampled`: a sample will do,
 * unless it shows that exact counts are worth their time. */
static bsn_counts bsn_count_list(bsn_writer *w, const bsn_item *item, int sampled, int glance)
{
    const int fast = w->level == BITSNAP_FAST;
    const uint32_t n = item->count;
    uint32_t *h = w->planner->count, *tables = w->planner->tables;
    bsn_counts c = { 0, 0, 0 };
    unsigned used = 0, s, end;
    c.total = n;
    if (w->counted) {
        w->counted = 0;
    } else if (sampled && glance != BSN_GLANCE_FEW && (fast || (n >= 8 * BSN_SAMPLE_MIN && glance != BSN_GLANCE_MANY))) {
        c.total = bsn_sample(item->scratch, item->data, n, fast ? 4 : 3);
        w->kernels->histogram(h, item->scratch, c.total, tables);
        c.lost = (c.total >> 12) + 1;
    } else {
        w->kernels->histogram(h, item->data, n, tables);
    }
    for (bsn_counted(h, &s, &end); s < end; s++) {
        if (h[s] > c.most) c.most = h[s];
        used += h[s] > 0;
    }
    /* skewed, or too many symbols for the sample: worth exact counts */
    if (c.lost && (8 * (uint64_t)c.most > 5 * (uint64_t)c.total || (used > 64 && !fast))) {
        bsn_count_bytes(w->kernels, w->planner, item->data, n);
        c.total = n;
        c.lost = 0;
        for (s = 0; s < 256; s++)
            if (h[s] > c.most) c.most = h[s];
    }
    return c;
}

/* A tree or not, by one choice of codes. */
static unsigned bsn_plan_quickly(bsn_writer *w, const bsn_item *item, const bsn_counts *c)
{
    bsn_planner *x = w->planner;
    bsn_tree *t = &w->lists->tree[item->depth];
    const unsigned shift = w->level == BITSNAP_FAST ? 9 : 8;
    uint64_t bits;
    t->raw_escapes = w->level == BITSNAP_FAST;
    bits = c->lost ? bsn_choose_sampled(x, t->length, x->count, c->total, c->lost, shift)
                   : bsn_choose_exact(x, t->length, x->count, item->count, shift, shift, !t->raw_escapes, BSN_NEVER);
    return bits / 8 >= c->total ? BSN_LIST_RAW : BSN_LIST_TREE;
}

/* Weighs the alternatives by exact counts, but of an escape's list only one. */
static unsigned bsn_plan_exactly(bsn_writer *w, const bsn_item *item)
{
    bsn_tree *t = &w->lists->tree[item->depth];
    const uint32_t n = item->count, *h = w->planner->count;
    const int deepest = item->depth == BSN_MAX_DEPTH; /* nothing escapes */
    unsigned first = w->level == BITSNAP_FAST ? 8 : item->level && w->level != BITSNAP_BEST ? 9 : 5,
             last = w->level == BITSNAP_FAST ? 8 : 9, kind = BSN_LIST_RAW;
    uint64_t best = 8 * (uint64_t)n + 8, low = (uint64_t)h[0] + h[1] + h[2], bits;
    t->raw_escapes = 0;
    if (deepest) first = last = 31;
    bits = bsn_choose_exact(w->planner, t->length, h, n, first, last, item->level == 0, best);
    if (bits < best) {
        best = bits;
        kind = BSN_LIST_TREE;
    }
    if (deepest) return kind;
    if (2 * (uint64_t)h[0] > n && (bits = bsn_split_bits(w, item, h, 0)) < best) {
        best = bits;
        kind = BSN_LIST_SPLIT0;
    }
    if (w->thorough && item->bits == 8 && item->depth < 3 && n >= 256 && (item->depth == 0 || !h[0]) &&
        10 * low > 7 * (uint64_t)n && low < n && bsn_split_bits(w, item, h, 2) < best)
        kind = BSN_LIST_SPLIT2;
    return kind;
}

/* Chooses the kind of a list and leaves its tree's lengths in tree[depth]. (Not inlined, as its frame would
 * lie below those of kernels.) */
BSN_FUNCTION unsigned bsn_plan_list(bsn_writer *w, const bsn_item *item)
{
    bsn_planner *x = w->planner;
    const uint32_t n = item->count;
    const int sampled = n >= BSN_SAMPLE_MIN && item->depth == 0 && w->level != BITSNAP_BEST && !w->thorough;
    int glance = BSN_GLANCE_NOTHING;
    bsn_counts c;
    if (item->level > 2) return BSN_LIST_RAW;
    x->count[256] = 0;
    x->mask_above = 256;
    if (!w->counted) memset(x->count, 0, 256 * sizeof *x->count);
    if (w->bytes && n >= BSN_SAMPLE_MIN && item->level + item->depth == 0) {
        glance = bsn_glance(w, item);
        if (glance == BSN_GLANCE_CONST) return BSN_LIST_CONST;
        if (glance == BSN_GLANCE_RANDOM) return BSN_LIST_RAW;
    }
    c = bsn_count_list(w, item, sampled, glance);
    if (c.most == n) return BSN_LIST_CONST;
    if (item->level == 2 || n < BSN_MIN_TREE) return BSN_LIST_RAW;
    return c.lost || (sampled && 8 * (uint64_t)c.most <= 5 * (uint64_t)n) ? bsn_plan_quickly(w, item, &c) : bsn_plan_exactly(w, item);
}

static int bsn_room(bsn_writer *w, size_t size)
{
    if ((size_t)(w->end - w->at) < size) w->full = 1;
    return !w->full;
}

/* Is each list of a node but the last one a node of two leaves? Then comparing with few symbols tells where a
 * symbol goes. */
static int bsn_by_leaves(const bsn_writer *w, bsn_tree *t, const bsn_step *step, unsigned path, uint8_t leaf[12])
{
    const uint16_t next = t->next;
    unsigned j, fits = 1;
    if (!bsn_has(w->kernels, BSN_LEAVES) || step->escape || step->bits > 3 || step->lists > (step->bits == 1 ? 1u : 3u)) return 0;
    if (step->bits > 1 && !step->lists) return 0;
    if (step->lists > 1 && !bsn_has(w->kernels, BSN_LEAVES_LISTS | BSN_LEAVES_TWIGS)) return 0;
    memcpy(leaf, t->symbol + step->place, step->leaves);
    leaf += step->leaves;
    for (j = 0; j + 1 < step->lists && fits; j++, leaf += 2) {
        const bsn_step child = bsn_tree_step(t, path);
        fits = child.bits == 1 && child.lists == 0;
        memcpy(leaf, t->symbol + child.place, 2);
    }
    t->next = next;
    return (int)fits;
}

/* The codes of symbols that have come along `path` bits of them, less these; symbols without a code get the
 * escape's. */
static void bsn_tree_codes(bsn_tree *t, uint8_t code[256], unsigned path)
{
    unsigned i, at = 0;
    if (t->length[256]) {
        for (i = 0; i < t->escape; i++) at += 256u >> t->length_at[i];
        t->escape_code = (uint8_t)(at << path);
        memset(code, t->escape_code, 256);
    }
    for (i = at = 0; i < t->codes; i++) {
        if (i != t->escape) code[t->symbol[i]] = (uint8_t)(at << path);
        at += 256u >> t->length_at[i];
    }
}

/* Forks all elements of a node: compares symbols with leaves or, if there is a table of codes, uses the
 * codes. */
static void bsn_fork_all(bsn_writer *w, bsn_tree *t, const bsn_item *item, bsn_fork *fork, int symbols)
{
    const bitsnap_kernels *kernels = w->kernels;
    const unsigned escape = t->length[256] ? t->escape_code : 256u;
    uint8_t *list = item->data, *code = w->planner->inner;
    const size_t n = item->count;
    size_t i, m;
    for (i = 0; i < n; i += m) {
        /* what is asked for with a portion goes before mapping and before dealing; more than 8 KiB of F32 in
         * one are slower */
        const int root = symbols && item->path == 0;
        const size_t portion = w->ahead_step ? 2048 : symbols ? BSN_CHUNK : n;
        /* lines */
        const size_t half = ((w->ahead_step * (root ? 10 : 4) / 32 + 3) & ~(size_t)3) * portion / 1024;
        m = bsn_min(portion, n - i);
        if (half) bsn_ahead_ask(w->ahead, half);
        if (symbols && !fork->by_leaves) t->escapes = kernels->map(list + i, m, code, escape, t->escapes);
        if (half) bsn_ahead_ask(w->ahead, half);
        kernels->node_fork(fork, list + i, i, m);
    }
}

/* Writes a node and puts its lists on the stack, the first on top. What comes from a tree's root has symbols,
 * until they are mapped to codes on the way, and those without a code are set aside. */
static bsn_item *bsn_write_node(bsn_writer *w, bsn_item *top, const bsn_item *item)
{
    bsn_tree *t = &w->lists->tree[item->depth];
    const bsn_step step = bsn_tree_step(t, item->path);
    const size_t n = item->count, stride = bsn_mask_bytes(n), room = n + 64;
    const int symbols = item->type == BSN_ITEM_SYMBOLS;
    uint8_t *scratch = item->scratch, *list = item->data, *escapes = NULL;
    bsn_item like = *item;
    bsn_fork fork;
    size_t count[4] = { 0, 0, 0, 0 };
    unsigned j;
    like.path = (uint8_t)(item->path + step.bits);
    if (!bsn_room(w, step.bits * stride)) return top;
    fork.by_leaves = symbols && bsn_by_leaves(w, t, &step, like.path, fork.leaf);
    if (symbols && !fork.by_leaves && t->length[256]) {
        escapes = t->escapes = scratch;
        scratch += room;
    }
    fork.planes = w->at;
    fork.stride = stride;
    fork.bits = (uint8_t)step.bits;
    fork.lists = (uint8_t)step.lists;
    fork.twigs = 0;
    if (fork.by_leaves && bsn_has(w->kernels, BSN_LEAVES_TWIGS)) /* the walk goes through these */
        for (; fork.twigs + 1u < step.lists; fork.twigs++) (void)bsn_tree_step(t, like.path);
    fork.used[0] = fork.used[1] = 0;
    for (j = 0; j < 4; j++) fork.list[j] = scratch + j * room;
    w->at += step.bits * stride;
    if (symbols && !fork.by_leaves) {
        bsn_tree_codes(t, w->planner->inner, item->path);
        memset(list + n, 0, 64); /* kernels map whole words; where lists share memory this is the last one */
    }
    bsn_fork_all(w, t, item, &fork, symbols);
    if (escapes) {
        like.scratch = t->escapes + 64;
        t->escapes = escapes;
    }
    for (j = 0; j < fork.twigs; j++) { /* what the stream has next */
        const size_t size = bsn_mask_bytes(fork.used[j]);
        if (!bsn_room(w, size)) return top;
        memcpy(w->at, scratch + j * room, size);
        w->at += size;
    }
    /* the lists together are no longer than the codes they came from: they move there */
    for (j = fork.twigs; j < step.lists; j++) {
        const uint8_t *from = scratch + j * room;
        count[j] = (size_t)(fork.list[j] - from);
        if (j == 0 && step.escape) continue;
        memcpy(list, from, count[j]);
        list += count[j];
    }
    for (j = step.lists; j-- > fork.twigs; top++) {
        *top = like;
        top->count = (uint32_t)count[j];
        if (j == 0 && step.escape) {
            top->data = t->escapes;
            top->type = BSN_ITEM_LIST;
            top->depth++;
            top->level = t->raw_escapes ? 3 : (uint8_t)(top->level + 1);
        } else {
            list -= count[j];
            top->data = list;
            top->type = fork.by_leaves ? BSN_ITEM_SYMBOLS : BSN_ITEM_NODE;
        }
    }
    return top;
}

/* Writes kind, table and root of the tree whose code lengths are in tree[depth]. */
static bsn_item *bsn_write_tree(bsn_writer *w, bsn_item *top, const bsn_item *item)
{
    bsn_tree *t = &w->lists->tree[item->depth];
    bsn_item like = *item;
    uint8_t table[160];
    size_t size;
    (void)bsn_tree_order(t, 0, 255);
    size = bsn_table_write(table, t);
    if (!bsn_room(w, size)) return top;
    memcpy(w->at, table, size);
    w->at += size;
    like.path = 0;
    like.type = BSN_ITEM_SYMBOLS;
    return bsn_write_node(w, top, &like);
}

static bsn_item *bsn_write_list(bsn_writer *w, bsn_item *top, const bsn_item *item)
{
    const unsigned kind = bsn_plan_list(w, item);
    const int split = kind == BSN_LIST_SPLIT0 || kind == BSN_LIST_SPLIT2;
    if (kind >= BSN_LIST_TREE && !split) return bsn_write_tree(w, top, item);
    if (!bsn_room(w, 1)) return top;
    *w->at++ = (uint8_t)kind;
    if (kind == BSN_LIST_RAW) {
        if (!bsn_room(w, item->count)) return top;
        memcpy(w->at, item->data, item->count);
        w->at += item->count;
    } else if (kind == BSN_LIST_CONST) {
        if (bsn_room(w, 1)) *w->at++ = item->data[0];
    } else { /* on the stack: the mask on top, the lower side (of SPLIT2), the upper side */
        const size_t n = item->count, mask_size = bsn_mask_bytes(n);
        const unsigned t = kind == BSN_LIST_SPLIT2 ? 2 : 0;
        uint8_t *mask = item->scratch, *ones = mask + mask_size + 64;
        bsn_item like = *item;
        bsn_planner *x = w->planner;
        size_t set;
        if (x->mask_above == t) { /* as it has been weighed; and it comes next */
            set = x->mask_ones;
            memcpy(x->count, x->mask_count, sizeof x->mask_count);
            w->counted = 1;
        } else {
            bsn_mask_above(w->kernels, mask, item->data, n, t);
            set = w->kernels->count(mask, n);
        }
        like.depth++;
        like.scratch = ones + set + 64 + (kind == BSN_LIST_SPLIT2 ? n - set + 64 : 0);
        w->kernels->partition(1, item->data, n, mask, kind == BSN_LIST_SPLIT2 ? ones + set + 64 : NULL, ones);
        *top = like;
        top->data = ones;
        top->count = (uint32_t)set;
        top++;
        if (kind == BSN_LIST_SPLIT2) {
            *top = like;
            top->data = ones + set + 64;
            top->count = (uint32_t)(n - set);
            top++;
        }
        *top = like;
        top->data = mask;
        top->count = (uint32_t)mask_size;
        top->bits = 8;
        top++;
    }
    return top;
}

/* Writes what is on the stack. */
static void bsn_write_items(bsn_writer *w, bsn_item *top)
{
    bsn_item item;
    while (top > w->lists->stack && !w->full) {
        item = *--top;
        if (item.type == BSN_ITEM_NODE || item.type == BSN_ITEM_SYMBOLS) top = bsn_write_node(w, top, &item);
        else if (item.count == 0) continue;
        else top = bsn_write_list(w, top, &item);
    }
}

/* Writes a list of n symbols below 2^bits. Overwrites them and the 64 bytes after them. */
static void bsn_list_write(bsn_writer *w, uint8_t *symbols, size_t n, unsigned bits)
{
    bsn_item *item = w->lists->stack;
    memset(item, 0, sizeof *item);
    item->data = symbols;
    item->scratch = w->scratch;
    item->count = (uint32_t)n;
    item->bits = (uint8_t)bits;
    bsn_write_items(w, item + 1);
}

/* ================================================================================= DELTA
 * What changed since a base. The difference of each element to its prediction (the base, or the base rounded to the
 * element's type), a word modulo 2^w, is zigzagged, so that small changes are small numbers; words are dealt out to classes
 * by the exponent of the prediction, which tells how far a step of the optimizer goes in units of the last place; each class
 * is a list of words: symbols, low bits below them, and escapes that are words again. */

#define BSN_CLASSES 8u      /* at most, in a block */
#define BSN_WORD_LEVELS 4u  /* lists of words inside one another, raw ones not counted */
#define BSN_WORDS_RAW 0x80u

enum { BSN_ROLE_NONE = 0, BSN_ROLE_BASE = 1, BSN_ROLE_CAST = 2, BSN_ROLE_UPCAST = 3 };

/* The role that a base of one dtype has for elements of another; 0: none. */
static unsigned bsn_role_of(unsigned dtype, unsigned base_dtype)
{
    if (dtype == base_dtype) return BSN_ROLE_BASE;
    if (base_dtype == BITSNAP_F32 && (dtype == BITSNAP_F16 || dtype == BITSNAP_BF16)) return BSN_ROLE_CAST;
    if (dtype == BITSNAP_F32 && (base_dtype == BITSNAP_F16 || base_dtype == BITSNAP_BF16)) return BSN_ROLE_UPCAST;
    return BSN_ROLE_NONE;
}

/* binary32 to bfloat16, to nearest, ties to even; a NaN keeps its sign and upper payload, and becomes
 * quiet */
BSN_INLINE uint16_t bsn_cast_bf16(uint32_t x)
{
    if ((x & 0x7FFFFFFF) > 0x7F800000) return (uint16_t)(x >> 16 | 0x40);
    return (uint16_t)((x + 0x7FFF + (x >> 16 & 1)) >> 16);
}

/* Rounds binary32 to binary16, to nearest, ties to even. What is too large becomes infinite. */
BSN_INLINE uint16_t bsn_cast_f16(uint32_t x)
{
    const uint32_t sign = x >> 16 & 0x8000, a = x & 0x7FFFFFFF;
    uint32_t r, mantissa, shift, half;
    if (a > 0x7F800000) return (uint16_t)(sign | 0x7E00 | (a >> 13 & 0x1FF));
    if (a >= 0x47800000) return (uint16_t)(sign | 0x7C00); /* 2^16 */
    if (a >= 0x38800000) { /* 2^-14: rounding may carry into the exponent, as far as infinity */
        r = a - 0x38000000;
        return (uint16_t)(sign | (r + 0xFFF + (r >> 13 & 1)) >> 13);
    }
    if (a < 0x33000000) return (uint16_t)sign; /* below half of the smallest subnormal number */
    shift = 126 - (a >> 23);
    mantissa = (a & 0x7FFFFF) | 0x800000;
    half = 1u << (shift - 1);
    r = mantissa >> shift;
    mantissa &= 2 * half - 1;
    if (mantissa > half || (mantissa == half && (r & 1))) r++;
    return (uint16_t)(sign | r);
}

#if BSN_SSE2
BSN_INLINE __m128i bsn_round_four(__m128i x, unsigned bits) /* adds what rounds the low `bits` bits off, to
                                                               nearest, ties to even */
{
    const __m128i last = _mm_and_si128(_mm_srli_epi32(x, (int)bits), _mm_set1_epi32(1));
    return _mm_add_epi32(_mm_add_epi32(x, last), _mm_set1_epi32((1 << (bits - 1)) - 1));
}

/* Four casts, each in 32 bits that have its sign above it. */
BSN_INLINE __m128i bsn_cast_four_bf16(__m128i x)
{
    const __m128i nan = _mm_cmpgt_epi32(_mm_and_si128(x, _mm_set1_epi32(0x7FFFFFFF)), _mm_set1_epi32(0x7F800000));
    const __m128i quiet = _mm_and_si128(nan, _mm_or_si128(x, _mm_set1_epi32(0x400000)));
    return _mm_srai_epi32(_mm_or_si128(quiet, _mm_andnot_si128(nan, bsn_round_four(x, 16))), 16);
}

/* Bits of *odd are set where the result is wrong: below 2^-14 and from 2^16 on. */
BSN_INLINE __m128i bsn_cast_four_f16(__m128i x, __m128i *odd)
{
    const __m128i a = _mm_and_si128(x, _mm_set1_epi32(0x7FFFFFFF)), sign = _mm_srai_epi32(x, 31);
    const __m128i y = _mm_srli_epi32(_mm_sub_epi32(bsn_round_four(a, 13), _mm_set1_epi32(0x38000000)), 13);
    const __m128i below = _mm_cmplt_epi32(a, _mm_set1_epi32(0x38800000)), above = _mm_cmpgt_epi32(a, _mm_set1_epi32(0x477FFFFF));
    *odd = _mm_or_si128(*odd, _mm_or_si128(below, above));
    return _mm_or_si128(y, _mm_slli_epi32(sign, 15));
}
#endif

/* binary16 to binary32, exactly. */
BSN_INLINE uint32_t bsn_upcast_f16(uint32_t x)
{
    const uint32_t sign = (x & 0x8000) << 16, a = x & 0x7FFF;
    unsigned shift = 0;
    if (a >= 0x7C00) return sign | 0x7F800000 | (a & 0x3FF) << 13;
    if (a >= 0x400) return sign | ((a << 13) + 0x38000000);
    if (!a) return sign;
    while (!(a << shift & 0x400)) shift++; /* a subnormal number, which binary32 has as a normal one */
    return sign | ((113 - shift) << 23) | (a << shift & 0x3FF) << 13;
}

/* m F32 elements of the same values. */
static void bsn_predict_upcast(unsigned base_dtype, const uint8_t *base, size_t m, uint8_t *out)
{
    size_t j;
    /* (a loop of its own, which compilers make vectors of) */
    for (j = 0; j < m && base_dtype != BITSNAP_F16; j++)
        bsn_element_store(out + 4 * j, bsn_element_load(base + 2 * j, 2) << 16, 4);
    for (; j < m; j++) bsn_element_store(out + 4 * j, bsn_upcast_f16((uint32_t)bsn_element_load(base + 2 * j, 2)), 4);
}

/* m F16 or BF16 elements, rounded. */
static void bsn_predict_cast(unsigned dtype, const uint8_t *base, size_t m, uint8_t *out)
{
    size_t j = 0, end;
    while (j < m) {
#if BSN_SSE2
        for (; j + 8 <= m; j += 8) {
            const __m128i a = _mm_loadu_si128((const __m128i *)(const void *)(base + 4 * j));
            const __m128i b = _mm_loadu_si128((const __m128i *)(const void *)(base + 4 * j + 16));
            __m128i odd = _mm_setzero_si128();
            const __m128i y = dtype == BITSNAP_F16 ? _mm_packs_epi32(bsn_cast_four_f16(a, &odd), bsn_cast_four_f16(b, &odd))
                                                   : _mm_packs_epi32(bsn_cast_four_bf16(a), bsn_cast_four_bf16(b));
            if (_mm_movemask_epi8(odd)) break;
            _mm_storeu_si128((__m128i *)(void *)(out + 2 * j), y);
        }
#endif
        for (end = bsn_min(m, j + 8); j < end; j++) {
            uint32_t x;
            uint16_t y;
            memcpy(&x, base + 4 * j, 4);
            y = dtype == BITSNAP_F16 ? bsn_cast_f16(x) : bsn_cast_bf16(x);
            memcpy(out + 2 * j, &y, 2);
        }
    }
}

/* Elements i .. i + m - 1 of the prediction: the base's own, or cast into `out`. */
static const uint8_t *bsn_predict(unsigned dtype, unsigned base_dtype, const uint8_t *base, size_t i, size_t m, uint8_t *out)
{
    base += i * bsn_dtypes[base_dtype].width;
    if (dtype == base_dtype) return base;
    if (dtype == BITSNAP_F32) bsn_predict_upcast(base_dtype, base, m, out);
    else bsn_predict_cast(dtype, base, m, out);
    return out;
}

/* A vector of elements; one element if the compiler has no vectors. */
#if BSN_WIDE_LANES == 2
#define BSN_LANES_TYPE(T) typedef T bsn_lanes_##T __attribute__((vector_size(16)))
#else
#define BSN_LANES_TYPE(T) typedef T bsn_lanes_##T
#endif

/* to[i] = the result of STEP on a[i] and b[i], for n elements of type T: vectors first, then what is left one
 * by one. STEP(type, x, y) changes x. `all` gets the bits that results have. */
#define BSN_PAIRS(T, STEP)                                                                            \
    {                                                                                                 \
        BSN_LANES_TYPE(T);                                                                            \
        bsn_lanes_##T any, x, y;                                                                      \
        T u, v, one[sizeof any / sizeof(T)];                                                          \
        memset(&any, 0, sizeof any);                                                                  \
        for (; i + sizeof x <= n * sizeof(T); i += sizeof x) {                                        \
            memcpy(&x, a + i, sizeof x);                                                              \
            memcpy(&y, b + i, sizeof y);                                                              \
            STEP(bsn_lanes_##T, x, y)                                                                 \
            any = (bsn_lanes_##T)(any | x);                                                           \
            memcpy(to + i, &x, sizeof x);                                                             \
        }                                                                                             \
        memcpy(one, &any, sizeof any);                                                                \
        for (j = 0; j < sizeof any / sizeof(T); j++) all |= one[j];                                   \
        for (; i < n * sizeof(T); i += sizeof(T)) {                                                   \
            memcpy(&u, a + i, sizeof u);                                                              \
            memcpy(&v, b + i, sizeof v);                                                              \
            STEP(T, u, v)                                                                             \
            all |= u;                                                                                 \
            memcpy(to + i, &u, sizeof u);                                                             \
        }                                                                                             \
    }

/* x = zigzag(x - y), and x = y + the inverse of that: modulo 2^(8 * width) */
#define BSN_SUBTRACT(V, x, y)                                                                         \
    x = (V)(x - y);                                                                                   \
    x = (V)((V)(x << 1) ^ (V)(0 - (V)(x >> (8 * sizeof u - 1))));
#define BSN_ADD(V, x, y) x = (V)(y + (V)((V)(x >> 1) ^ (V)(0 - (x & 1))));

/* Makes the words of n elements. Returns the bits that they have. */
static uint64_t bsn_subtract_rest(unsigned width, uint8_t *to, const uint8_t *a, const uint8_t *b, size_t n)
{
    uint64_t all = 0;
    size_t i = 0, j;
    BSN_TYPES(width, BSN_PAIRS, BSN_SUBTRACT)
    return all;
}

/* Adds n words, the array `a`, to the elements of `b`. */
static void bsn_add(uint8_t *to, const uint8_t *b, const uint8_t *a, size_t n, unsigned width)
{
    uint64_t all = 0;
    size_t i = 0, j;
    BSN_TYPES(width, BSN_PAIRS, BSN_ADD)
    (void)all;
}
#undef BSN_PAIRS
#undef BSN_SUBTRACT
#undef BSN_ADD

static uint64_t bsn_scalar_subtract(unsigned width, uint8_t *words, const uint8_t *a, const uint8_t *b, size_t groups)
{
    return bsn_subtract_rest(width, words, a, b, 64 * groups);
}

/* The words of any number of elements; returns the bits that they have. */
static uint64_t bsn_subtract(const bitsnap_kernels *kernels, uint8_t *words, const uint8_t *a, const uint8_t *b, size_t n,
                             unsigned width)
{
    const size_t whole = (n & ~(size_t)63) * width;
    const uint64_t any = kernels->subtract(width, words, a, b, n / 64);
    return any | bsn_subtract_rest(width, words + whole, a + whole, b + whole, n % 64);
}

/* 64 words that are bytes, as wide as elements */
BSN_INLINE void bsn_widen64(uint8_t *words, const uint8_t *bytes, unsigned width)
{
    unsigned i;
    for (i = 0; i < 64; i++) bsn_element_store(words + i * width, bytes[i], width);
}

#if !(BSN_SSE2 && BSN_WIDE_LANES == 2)
/* Both of what follows: words of more than 8 bits become 255. */
BSN_INLINE bsn_wide bsn_wide_narrow(const uint8_t *p, const uint8_t *q, unsigned up, unsigned down)
{
    uint8_t byte[BSN_WIDE];
    unsigned i;
    for (i = 0; i < BSN_WIDE; i++) {
        const unsigned word = (unsigned)bsn_element_load((i < BSN_WIDE / 2 ? p : q - BSN_WIDE) + 2 * i, 2);
        const unsigned part = (word << up & 0xFFFF) >> down;
        byte[i] = (uint8_t)(part < 255 ? part : 255);
    }
    return bsn_wide_get(byte);
}
#endif

/* Narrows 2-byte words to a vector of bytes; p has the first half, q the second. Each is shifted left by
 * `up`, then right by `down`. Results above 255 become 255. */
BSN_INLINE bsn_wide bsn_wide_bits(const uint8_t *p, const uint8_t *q, unsigned up, unsigned down)
{
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    const __m128i x = (__m128i)bsn_wide_load(p), y = (__m128i)bsn_wide_load(q);
    return (bsn_wide)_mm_packus_epi16(_mm_srli_epi16(_mm_slli_epi16(x, (int)up), (int)down),
                                      _mm_srli_epi16(_mm_slli_epi16(y, (int)up), (int)down));
#else
    return bsn_wide_narrow(p, q, up, down);
#endif
}

BSN_INLINE bsn_wide bsn_wide_least(const uint8_t *p, const uint8_t *q)
{
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    const __m128i most = _mm_set1_epi16(255), x = (__m128i)bsn_wide_load(p), y = (__m128i)bsn_wide_load(q);
    return (bsn_wide)_mm_packus_epi16(_mm_sub_epi16(x, _mm_subs_epu16(x, most)), _mm_sub_epi16(y, _mm_subs_epu16(y, most)));
#else
    return bsn_wide_narrow(p, q, 0, 0);
#endif
}

/* And back: words to p, those of the upper lane to q. */
BSN_INLINE void bsn_wide_widen(uint8_t *p, uint8_t *q, bsn_wide low, bsn_wide high)
{
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    bsn_wide_store(p, (bsn_wide)_mm_unpacklo_epi8((__m128i)low, (__m128i)high));
    bsn_wide_store(q, (bsn_wide)_mm_unpackhi_epi8((__m128i)low, (__m128i)high));
#else
    uint8_t a[BSN_WIDE], b[BSN_WIDE];
    unsigned i;
    bsn_wide_put(a, low);
    bsn_wide_put(b, high);
    for (i = 0; i < BSN_WIDE; i++) bsn_element_store((i < BSN_WIDE / 2 ? p : q - BSN_WIDE) + 2 * i, a[i] | (uint64_t)b[i] << 8, 2);
#endif
}

/* The lesser of 64 words and 255, as bytes. */
BSN_INLINE void bsn_narrow64(uint8_t *bytes, const uint8_t *words, unsigned width)
{
    unsigned i;
    if (width == 2) {
        BSN_UNROLL
        for (i = 0; i < 64; i += BSN_WIDE)
            bsn_wide_put(bytes + i, bsn_wide_least(words + 2 * i, words + 2 * i + BSN_WIDE));
    } else {
        for (i = 0; i < 64; i++) {
            const uint64_t word = bsn_element_load(words + i * width, width);
            bytes[i] = (uint8_t)(word < 255 ? word : 255);
        }
    }
}

/* ---- classes ---- */

/* Where the symbol is that decides an element's class: the exponent, or the upper 8 bits of it in F64. */
typedef struct bsn_exponent {
    unsigned shift, mask;
} bsn_exponent;

static bsn_exponent bsn_exponent_of(unsigned dtype)
{
    const unsigned bits = bsn_dtypes[dtype].symbol_bits;
    bsn_exponent e;
    e.mask = (1u << bits) - 1; /* 0: integers have one class */
    e.shift = 8u * bsn_dtypes[dtype].width - 1 - bits;
    return e;
}

/* (in words of the elements' own width, so that compilers find vectors that fit) */
#define BSN_EXPONENTS(T)                                                                              \
    for (i = 0; i < n; i++) symbols[i] = (uint8_t)((T)bsn_element_load(elements + i * width, width) >> e.shift & e.mask);

BSN_INLINE void bsn_exponent_loop(uint8_t *symbols, const uint8_t *elements, size_t n, bsn_exponent e, unsigned width)
{
    size_t i;
    if (width == 1) BSN_EXPONENTS(uint8_t)
    else if (width == 2) {
        const unsigned down = e.shift + 1; /* the sign falls out above */
        for (i = 0; i + BSN_WIDE <= n; i += BSN_WIDE)
            bsn_wide_put(symbols + i, bsn_wide_bits(elements + 2 * i, elements + 2 * i + BSN_WIDE, 1, down));
        for (; i < n; i++) symbols[i] = (uint8_t)(bsn_element_load(elements + 2 * i, 2) >> e.shift & e.mask);
    } else if (width == 4) BSN_EXPONENTS(uint32_t)
    else BSN_EXPONENTS(uint64_t)
}
#undef BSN_EXPONENTS

/* The class of each symbol: how many borders are not above it. */
static void bsn_class_map(uint8_t of[256], const uint8_t *borders, unsigned classes)
{
    unsigned s, c;
    for (s = c = 0; s < 256; s++) {
        while (c + 1 < classes && borders[c] <= s) c++;
        of[s] = (uint8_t)c;
    }
}

/* Words are counted by tokens: those below 16 themselves, larger ones by their length and the bit below the
 * first. */
#define BSN_TOKENS 136u
#define BSN_TOKEN_256 24u /* from this one on words do not fit a byte */

BSN_INLINE unsigned bsn_token(uint64_t x)
{
    const unsigned bits = bsn_log2(x | 16) + 1, token = 16 + 2 * (bits - 5) + (unsigned)(x >> (bits - 2) & 1);
    return x < 16 ? (unsigned)x : token;
}

/* bits of a token that are below its second one */
BSN_INLINE unsigned bsn_token_rest(unsigned token) { return token < 16 ? 0 : 3 + (token - 16) / 2; }

/* Counts to choose borders of classes by: of words, by the symbol of their prediction. */
struct bsn_census {
    uint32_t token[256][BSN_TOKENS];
    uint32_t of_symbol[256];
    uint64_t best[BSN_CLASSES + 1][257]; /* [c][u]: fewest bits of the first u used symbols in c classes */
    uint16_t from[BSN_CLASSES + 1][257];
    uint8_t symbol[256];                 /* those used */
    bsn_classes classes;                 /* as they have been chosen */
    unsigned tokens;                     /* this token and higher ones do not occur */
    uint8_t of_byte[256];                /* the token of each word that is a byte */
    unsigned width;
    bsn_exponent exponent;
};

static void bsn_census_begin(bsn_census *x, unsigned dtype)
{
    unsigned s;
    memset(x->token, 0, sizeof x->token);
    memset(x->of_symbol, 0, sizeof x->of_symbol);
    for (s = 0; s < 256; s++) x->of_byte[s] = (uint8_t)bsn_token(s);
    x->width = bsn_dtypes[dtype].width;
    x->exponent = bsn_exponent_of(dtype);
}

BSN_INLINE void bsn_census_one(bsn_census *x, const uint8_t of_byte[256], unsigned symbol, uint64_t word)
{
    x->token[symbol][BSN_LIKELY(word < 256) ? of_byte[word] : bsn_token(word)]++;
}

/* Counts words other than 0 one by one. Finds them in 64 words at once. */
BSN_INLINE void bsn_census_loop(bsn_census *x, const uint8_t *words, const uint8_t *symbols, size_t n, unsigned width)
{
    uint8_t bytes[64], of_byte[256]; /* (not where the counts are, which loads would wait for) */
    memcpy(of_byte, x->of_byte, 256);
    for (; n >= 64; n -= 64, words += 64 * width, symbols += 64) {
        uint64_t some;
        bsn_narrow64(bytes, words, width);
        for (some = bsn_above64(bytes, 0); some; some &= some - 1) {
            const unsigned i = bsn_lowest_bit(some);
            bsn_census_one(x, of_byte, symbols[i], bytes[i] < 255 ? bytes[i] : bsn_element_load(words + i * width, width));
        }
    }
    for (; n; n--, words += width, symbols++)
        if (bsn_element_load(words, width)) bsn_census_one(x, of_byte, *symbols, bsn_element_load(words, width));
}

static void bsn_census_rest(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements, size_t n)
{
    BSN_WIDTHS(x->width, bsn_exponent_loop, (symbols, elements, n, x->exponent));
    BSN_WIDTHS(x->width, bsn_census_loop, (x, words, symbols, n));
}

static void bsn_scalar_census(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements, size_t groups)
{
    bsn_census_rest(x, symbols, words, elements, 64 * groups);
}

/* The words of n elements, whose symbols remain to be counted. */
static void bsn_census_add(const bitsnap_kernels *kernels, bsn_census *x, uint8_t *symbols, const uint8_t *words,
                           const uint8_t *elements, size_t n)
{
    const size_t whole = n & ~(size_t)63;
    kernels->census(x, symbols, words, elements, n / 64);
    if (n > whole) bsn_census_rest(x, symbols + whole, words + whole * x->width, elements + whole * x->width, n - whole);
}

/* Derives the count of words that are 0: the elements of a symbol less those counted by tokens. */
static void bsn_census_end(bsn_census *x)
{
    unsigned s, t;
    x->tokens = 1;
    for (s = 0; s < 256; s++) {
        uint32_t others = 0;
        if (!x->of_symbol[s]) continue;
        for (t = 1; t < BSN_TOKENS; t++) {
            others += x->token[s][t];
            if (x->token[s][t] && t >= x->tokens) x->tokens = t + 1;
        }
        x->token[s][0] = x->of_symbol[s] - others;
    }
}

/* Sets classes by their borders. Borders that no element can reach are dropped. */
static void bsn_classes_begin(bsn_classes *t, unsigned dtype, const uint8_t *borders, unsigned classes)
{
    const bsn_exponent e = bsn_exponent_of(dtype);
    unsigned k;
    memset(t, 0, sizeof *t);
    t->width = bsn_dtypes[dtype].width;
    t->shift = e.shift;
    t->mask = e.mask;
    for (k = 0; k + 1 < classes && borders[k] <= e.mask; k++) t->border[k] = (uint64_t)borders[k] << e.shift;
    t->count = k + 1;
    bsn_class_map(t->of, borders, t->count);
}

BSN_INLINE size_t bsn_classes_size(const bsn_classes *t, unsigned k) { return t->narrow >> k & 1 ? 1 : t->width; }

BSN_INLINE uint64_t bsn_unzigzag(uint64_t x) { return (x >> 1) ^ (0 - (x & 1)); }

/* Bit i is set where the magnitude of element i of 64 reaches a border, which is not 0: with what the border
 * lacks it carries into the place of the sign. */
BSN_INLINE uint64_t bsn_reach(const uint8_t *elements, uint64_t border, unsigned width)
{
    const uint64_t top = bsn_tops(width), one = (top >> (8 * width - 1)), lack = top - border * one;
    uint64_t m = 0;
    unsigned i;
#if BSN_SSE2 && BSN_WIDE_LANES == 2
    BSN_UNROLL
    for (i = 0; i < 4 * width; i += width == 2 ? 2 : 1) {
        const __m128i x = (__m128i)((bsn_wide_load(elements + 16 * i) & ~top) + lack);
        const unsigned at = 16 * i / width;
        if (width == 1) m |= (uint64_t)(unsigned)_mm_movemask_epi8(x) << at;
        else if (width == 4) m |= (uint64_t)(unsigned)_mm_movemask_ps(_mm_castsi128_ps(x)) << at;
        else if (width == 8) m |= (uint64_t)(unsigned)_mm_movemask_pd(_mm_castsi128_pd(x)) << at;
        else m |= (uint64_t)(unsigned)_mm_movemask_epi8(_mm_packs_epi16(x,
                       (__m128i)((bsn_wide_load(elements + 16 * i + 16) & ~top) + lack))) << at;
    }
#elif BSN_BIG_ENDIAN
    (void)lack;
    for (i = 0; i < 64; i++) m |= (uint64_t)((bsn_element_load(elements + i * width, width) & ~top) >= border) << i;
#else
    BSN_UNROLL
    for (i = 0; i < 8 * width; i++)
        m |= (uint64_t)bsn_gather_tops(width, ((bsn_load64(elements + 8 * i) & ~top) + lack) & top) << (8 * i / width);
#endif
    return m;
}

BSN_INLINE void bsn_above_loop(const bsn_classes *t, size_t above[7], const uint8_t *elements, size_t groups, unsigned width)
{
    unsigned k;
    for (; groups; groups--, elements += 64 * width)
        for (k = 0; k + 1 < t->count; k++) above[k] += bsn_popcount(bsn_reach(elements, t->border[k], width));
}

static void bsn_scalar_classes_above(const bsn_classes *t, size_t above[7], const uint8_t *elements, size_t groups)
{
    BSN_WIDTHS(t->width, bsn_above_loop, (t, above, elements, groups));
}

/* Inverts the bits of the mask whose elements have a magnitude below `least`, which is not 0. */
BSN_INLINE void bsn_flip_below(uint8_t *mask, const uint8_t *elements, size_t n, uint64_t least, unsigned width)
{
    const uint64_t magnitude = (UINT64_C(1) << (8 * width - 1)) - 1;
    size_t i;
    for (i = 0; i + 64 <= n; i += 64) bsn_store64(mask + i / 8, bsn_load64(mask + i / 8) ^ ~bsn_reach(elements + i * width, least, width));
    for (; i < n; i++)
        mask[i / 8] = (uint8_t)(mask[i / 8] ^ ((bsn_element_load(elements + i * width, width) & magnitude) < least) << (i & 7));
}

/* Inverts the signs of elements, which are those of a mask, where predictions have one. Predictions are those
 * of all n. */
BSN_INLINE void bsn_flip_signs(uint8_t *elements, const uint8_t *mask, const uint8_t *predictions, size_t n, unsigned width)
{
    const uint64_t sign = UINT64_C(1) << (8 * width - 1);
    size_t i;
    uint64_t w;
    for (i = 0; i < n; i += 64)
        for (w = bsn_mask_word(mask, i, n); w; w &= w - 1, elements += width)
            bsn_element_store(elements, bsn_element_load(elements, width) ^
                              (bsn_element_load(predictions + (i + bsn_lowest_bit(w)) * width, width) & sign), width);
}

/* Are the first n bytes of a list, at most 64, 0? */
BSN_INLINE int bsn_all_zero(const uint8_t *list, unsigned n)
{
    static const uint8_t first[128] = {
#define BSN_FF 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255, 255
        BSN_FF, BSN_FF, BSN_FF, BSN_FF /* and 64 zeros */
#undef BSN_FF
    };
    bsn_wide sum = bsn_wide_load(list) & bsn_wide_load(first + 64 - n);
    unsigned i;
    for (i = BSN_WIDE; i < 64; i += BSN_WIDE) sum |= bsn_wide_load(list + i) & bsn_wide_load(first + 64 - n + i);
    return !bsn_wide_any(sum);
}

/* One class: words and elements go side by side. */
BSN_INLINE void bsn_add_one_class(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups, unsigned width)
{
    uint8_t words[64 * 8];
    if (!(t->narrow & 1)) {
        bsn_add(out, elements, t->next[0], 64 * groups, width);
        t->next[0] += 64 * groups * width;
        return;
    }
    for (; groups; groups--, t->next[0] += 64, out += 64 * width, elements += 64 * width) {
        if (!bsn_all_zero(t->next[0], 64)) {
            bsn_widen64(words, t->next[0], width);
            bsn_add(out, elements, words, 64, width);
        } else if (out != elements) {
            memcpy(out, elements, 64 * width);
        }
    }
}

BSN_INLINE void bsn_add_one(uint8_t *element, uint64_t word, unsigned width)
{
    bsn_element_store(element, bsn_element_load(element, width) + bsn_unzigzag(word), width);
}

/* a group with at most this many words has them added one by one; above it, adding all at once is cheaper */
#define BSN_FEW 6

/* More classes: the words of each are brought to the places of its elements, and are 0 elsewhere; words of 2
 * bytes move as two lists of bytes. Classes whose words are 0 are passed over; few words, and wider ones, are
 * added one by one. */
BSN_INLINE void bsn_add_classes(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups, unsigned width)
{
    const unsigned count = t->count, narrow = width == 1 ? 0xFF : t->narrow;
    for (; groups; groups--, out += 64 * width, elements += 64 * width) {
        const bsn_wide zero = bsn_wide_all(0);
        bsn_wide low[64 / BSN_WIDE], high[64 / BSN_WIDE];
        uint8_t words[64 * 8];
        uint64_t rest = ~UINT64_C(0), of[8];
        unsigned i, k, dirty = 0, single = 0;
        BSN_UNROLL
        for (i = 0; i < 64 / BSN_WIDE; i++) low[i] = high[i] = zero;
        for (k = 0; k < count; k++) {
            const uint64_t above = k + 1 < count ? bsn_reach(elements, t->border[k], width) : 0;
            const int bytes = (int)(narrow >> k & 1);
            uint64_t m = of[k] = rest & ~above;
            const unsigned n = bsn_popcount(m);
            const uint8_t *list = t->next[k];
            rest = above;
            if (bytes && bsn_all_zero(list, n)) {
                t->next[k] = list + n;
                continue;
            }
            if (n <= BSN_FEW || (!bytes && width != 2)) {
                single |= 1u << k;
                continue;
            }
            dirty = 1;
            if (bytes) {
                t->next[k] = list + n;
                BSN_UNROLL
                for (i = 0; i < 64 / BSN_WIDE; i++, m >>= BSN_WIDE) {
                    low[i] |= bsn_wide_expand(list, m) & bsn_wide_look_up(bsn_spread, m);
                    list += bsn_wide_ones(m);
                }
            } else {
                t->next[k] = list + 2 * n;
                BSN_UNROLL
                for (i = 0; i < 64 / BSN_WIDE; i++, m >>= BSN_WIDE) {
                    const bsn_wide spread = bsn_wide_look_up(bsn_spread, m);
                    const uint8_t *upper = list + (BSN_WIDE_LANES == 2 ? 2u * bsn_ones_in[m & 255] : BSN_WIDE);
                    low[i] |= bsn_wide_move_up(bsn_wide_bits(list, upper, 8, 8), m) & spread;
                    high[i] |= bsn_wide_move_up(bsn_wide_bits(list, upper, 0, 8), m) & spread;
                    list += 2 * bsn_wide_ones(m);
                }
            }
        }
        if (!dirty) {
            if (out != elements) memcpy(out, elements, 64 * width);
        } else {
            if (width == 2) {
                BSN_UNROLL
                for (i = 0; i < 64 / BSN_WIDE; i++)
                    bsn_wide_widen(words + 2 * BSN_WIDE * i, words + 2 * BSN_WIDE * i + BSN_WIDE, low[i], high[i]);
            } else {
                uint8_t bytes[64];
                for (i = 0; i < 64 / BSN_WIDE; i++) bsn_wide_put(bytes + BSN_WIDE * i, low[i]);
                bsn_widen64(words, bytes, width);
            }
            bsn_add(out, elements, words, 64, width);
        }
        for (k = 0; single >> k; k++) {
            const uint8_t *list = t->next[k];
            uint64_t m = of[k];
            if (!(single >> k & 1)) continue;
            if (narrow >> k & 1) for (; m; m &= m - 1, list++) bsn_add_one(out + bsn_lowest_bit(m) * width, *list, width);
            else for (; m; m &= m - 1, list += width)
                    bsn_add_one(out + bsn_lowest_bit(m) * width, bsn_element_load(list, width), width);
            t->next[k] = list;
        }
    }
}

BSN_INLINE void bsn_classes_add_loop(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups, unsigned width)
{
    if (t->count == 1) bsn_add_one_class(t, out, elements, groups, width);
    else bsn_add_classes(t, out, elements, groups, width);
}

static void bsn_scalar_classes_add(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups)
{
    BSN_WIDTHS(t->width, bsn_classes_add_loop, (t, out, elements, groups));
}

/* The reverse: each word to the list of its class. */
BSN_INLINE void bsn_deal_classes(bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups, unsigned width)
{
    const unsigned count = t->count, narrow = width == 1 ? 0xFF : t->narrow;
    for (; groups; groups--, words += 64 * width, elements += 64 * width) {
        uint64_t rest = ~UINT64_C(0);
        uint8_t bytes[64];
        unsigned i, k;
        int zeros;
        bsn_narrow64(bytes, words, width);
        zeros = bsn_all_zero(bytes, 64);
        for (k = 0; k < count; k++) {
            const uint64_t above = k + 1 < count ? bsn_reach(elements, t->border[k], width) : 0;
            uint64_t m = rest & ~above;
            uint8_t *list = t->list[k];
            rest = above;
            if (zeros) {
                const unsigned n = bsn_popcount(m) * (narrow >> k & 1 ? 1 : width);
                for (i = 0; i < n; i += 64) memset(list + i, 0, 64);
                list += n;
            } else if (narrow >> k & 1) {
                BSN_UNROLL
                for (i = 0; i < 64; i += BSN_WIDE, m >>= BSN_WIDE) list += bsn_wide_compress(list, bsn_wide_get(bytes + i), m);
            } else if (width == 2) {
                BSN_UNROLL
                for (i = 0; i < 128; i += 2 * BSN_WIDE, m >>= BSN_WIDE) {
                    const uint8_t *p = words + i;
                    uint8_t *upper = list + (BSN_WIDE_LANES == 2 ? 2u * bsn_ones_in[m & 255] : BSN_WIDE);
                    const bsn_wide low = bsn_wide_move_down(bsn_wide_bits(p, p + BSN_WIDE, 8, 8), m);
                    bsn_wide_widen(list, upper, low, bsn_wide_move_down(bsn_wide_bits(p, p + BSN_WIDE, 0, 8), m));
                    list += 2 * bsn_wide_ones(m);
                }
            } else {
                for (; m; m &= m - 1, list += width) memcpy(list, words + bsn_lowest_bit(m) * width, width);
            }
            t->list[k] = list;
        }
    }
}

BSN_INLINE void bsn_classes_deal_loop(bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups, unsigned width)
{
    if (t->count > 1) {
        bsn_deal_classes(t, words, elements, groups, width);
    } else if (t->narrow & 1) {
        for (; groups; groups--, words += 64 * width, t->list[0] += 64) bsn_narrow64(t->list[0], words, width);
    } else {
        memcpy(t->list[0], words, 64 * groups * width);
        t->list[0] += 64 * groups * width;
    }
}

static void bsn_scalar_classes_deal(bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups)
{
    BSN_WIDTHS(t->width, bsn_classes_deal_loop, (t, words, elements, groups));
}

/* Deals the words of n elements to their classes. */
static void bsn_classes_deal(const bitsnap_kernels *kernels, bsn_classes *t, const uint8_t *words, const uint8_t *elements,
        size_t n)
{
    const unsigned width = t->width;
    size_t i;
    kernels->classes_deal(t, words, elements, n / 64);
    for (i = n & ~(size_t)63; i < n; i++) {
        const unsigned k = t->of[bsn_element_load(elements + i * width, width) >> t->shift & t->mask];
        const unsigned size = (unsigned)bsn_classes_size(t, k);
        const uint64_t word = bsn_element_load(words + i * width, width);
        bsn_element_store(t->list[k], size == 1 && word > 255 ? 255 : word, size);
        t->list[k] += size;
    }
}

static void bsn_classes_above(const bitsnap_kernels *kernels, const bsn_classes *t, size_t above[7], const uint8_t *elements,
        size_t n)
{
    size_t i;
    unsigned k;
    kernels->classes_above(t, above, elements, n / 64);
    for (i = n & ~(size_t)63; i < n; i++) {
        const uint64_t x = bsn_element_load(elements + i * t->width, t->width);
        for (k = 0; k < t->of[x >> t->shift & t->mask]; k++) above[k]++;
    }
}

static void bsn_classes_add(const bitsnap_kernels *kernels, bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t n)
{
    const unsigned width = t->width;
    size_t i;
    kernels->classes_add(t, out, elements, n / 64);
    for (i = n & ~(size_t)63; i < n; i++) {
        const uint64_t x = bsn_element_load(elements + i * width, width);
        const unsigned k = t->of[x >> t->shift & t->mask], size = (unsigned)bsn_classes_size(t, k);
        bsn_element_store(out + i * width, x + bsn_unzigzag(bsn_element_load(t->next[k], size)), width);
        t->next[k] += size;
    }
}

/* How many elements are of class k, where above[k] are of one above it and *left have none yet. A base that
 * is being changed may give any numbers, so those that do not fit are made to. */
BSN_INLINE size_t bsn_class_count(const size_t above[7], unsigned k, unsigned classes, size_t *left)
{
    const size_t count = k + 1 < classes ? *left - bsn_min(*left, above[k]) : *left;
    *left -= count;
    return count;
}

/* Passes over the words of n elements. */
static void bsn_classes_skip(const bitsnap_kernels *kernels, bsn_classes *t, const uint8_t *elements, size_t n)
{
    size_t above[7] = { 0, 0, 0, 0, 0, 0, 0 };
    unsigned k;
    bsn_classes_above(kernels, t, above, elements, n);
    for (k = 0; k < t->count; k++) t->next[k] += bsn_class_count(above, k, t->count, &n) * bsn_classes_size(t, k);
}

/* Estimated bits of a list of words with these tokens: 1.02 of their entropy, the bits below, a table. */
static uint64_t bsn_class_bits(const uint32_t *token, unsigned tokens, uint32_t n)
{
    const uint64_t all = bsn_log2_fixed(n);
    uint64_t entropy = 0, bits = 80;
    unsigned t, used = 0;
    for (t = 0; t < tokens; t++) {
        if (!token[t]) continue;
        entropy += token[t] * (all - bsn_log2_fixed(token[t]));
        bits += (uint64_t)token[t] * bsn_token_rest(t);
        used++;
    }
    entropy >>= BSN_LOG2_ONE;
    return bits + entropy + entropy / 50 + 8 * (used < 40 ? used : 40);
}

/* Chooses at most `most` classes by dynamic programming over the symbols that occur; returns how many, their
 * borders in `borders`. */
static unsigned bsn_choose_borders(bsn_census *x, uint8_t borders[BSN_CLASSES], unsigned most)
{
    uint32_t sum[BSN_TOKENS];
    unsigned used = 0, s, i, j, k, t, classes = 1;
    for (s = 0; s < 256; s++) {
        if (x->of_symbol[s]) x->symbol[used++] = (uint8_t)s;
    }
    if (most > used) most = used;
    for (k = 0; k <= most; k++)
        for (j = 0; j <= used; j++) x->best[k][j] = k + j ? BSN_NEVER : 0;
    for (i = 0; i < used; i++) { /* symbols i .. j are one class */
        uint32_t n = 0;
        memset(sum, 0, sizeof sum);
        for (j = i; j < used; j++) {
            uint64_t bits;
            const uint32_t *token = x->token[x->symbol[j]];
            if (i && most == 1) break;
            for (t = 0; t < x->tokens; t++) sum[t] += token[t];
            n += x->of_symbol[x->symbol[j]];
            /* the last class ends with the last symbol */
            if ((most == 1 || (most == 2 && i)) && j + 1 < used) continue;
            bits = bsn_class_bits(sum, x->tokens, n);
            for (k = 1; k <= most; k++) {
                if (x->best[k - 1][i] == BSN_NEVER || x->best[k - 1][i] + bits >= x->best[k][j + 1]) continue;
                x->best[k][j + 1] = x->best[k - 1][i] + bits;
                x->from[k][j + 1] = (uint16_t)i;
            }
        }
    }
    for (k = 2; k <= most; k++)
        if (x->best[k][used] < x->best[classes][used]) classes = k;
    for (k = classes, j = used; k > 1; k--) {
        j = x->from[k][j];
        borders[k - 2] = x->symbol[j];
    }
    return classes;
}

/* ---- lists of words ---- */

/* The cost of `count` equal symbols in a list of n, in 2^-20 bit; the bits of a table of `symbols`. */
BSN_INLINE uint64_t bsn_symbol_cost(uint32_t count, unsigned log2_n)
{
    return count ? (uint64_t)count * (log2_n - bsn_log2_fixed(count)) : 0;
}
#define BSN_TABLE_BITS(symbols) (5 * (symbols))

/* Bits of a list of symbols with these counts, roughly: entropy, and a table. */
static uint64_t bsn_list_bits_about(const uint32_t *count, unsigned symbols, uint32_t n)
{
    const unsigned log2_n = n ? (unsigned)bsn_log2_fixed(n) : 0;
    uint64_t cost = 0;
    unsigned s, used = 0;
    for (s = 0; s < symbols; s++) {
        cost += bsn_symbol_cost(count[s], log2_n);
        used += count[s] != 0;
    }
    return (cost >> BSN_LOG2_ONE) + BSN_TABLE_BITS(used);
}

/* Copies at most 64 words or bytes; n == 64, nearly always, compiles to inline moves. */
BSN_INLINE void bsn_copy_64(void *to, const void *from, size_t n, size_t width)
{
    if (BSN_LIKELY(n == 64)) memcpy(to, from, 64 * width);
    else memcpy(to, from, n * width);
}

/* Splits words. symbols[i] = words[i] >> shift, or limit if that is less; planes[k * stride + i] = byte k of
 * words[i], for each whole byte of the low `shift` bits; bits[i] = the remaining bits of these. `planes` and
 * `bits` may be null. Returns the OR of the words. Groups of 64 are copied to the stack first, so that
 * compilers make vectors. */
#define BSN_WORDS_SPLIT(T, most)                                                                      \
    for (; n; n -= m, words += m * sizeof(T), symbols += m) {                                         \
        const T limit = (T)(most);                                                                    \
        T x[64], any = 0;                                                                             \
        m = bsn_min(64, n);                                                                           \
        if (m < 64) memset(x, 0, sizeof x);                                                           \
        bsn_copy_64(x, words, m, sizeof(T));                                                          \
        BSN_ROLLED for (i = 0; i < 64; i++) {                                                         \
            const T y = (T)(x[i] >> t->shift);                                                        \
            byte[i] = (uint8_t)(y < limit ? y : limit);                                               \
            any = (T)(any | x[i]);                                                                    \
        }                                                                                             \
        all |= any;                                                                                   \
        bsn_copy_64(symbols, byte, m, 1);                                                             \
        for (k = 0; planes && k < whole; k++) {                                                       \
            BSN_ROLLED for (i = 0; i < 64; i++) byte[i] = (uint8_t)(x[i] >> 8 * k);                   \
            bsn_copy_64(planes + k * t->stride, byte, m, 1);                                          \
        }                                                                                             \
        if (planes) planes += m;                                                                      \
        if (!bits || !mask) continue;                                                                 \
        BSN_ROLLED for (i = 0; i < 64; i++) byte[i] = (uint8_t)(x[i] >> 8 * whole & mask);            \
        bsn_copy_64(bits, byte, m, 1);                                                                \
        bits += m;                                                                                    \
    }

/* Splits words that are bytes, where no symbol reaches the limit: many at a time, as most processors cannot
 * shift bytes. */
static uint64_t bsn_bytes_split(unsigned shift, uint8_t *symbols, uint8_t *bits, const uint8_t *words, size_t n)
{
    const unsigned mask = (1u << shift) - 1;
    bsn_wide any = bsn_wide_all(0);
    uint64_t all;
    unsigned k;
    size_t i;
    for (i = 0; i + BSN_WIDE <= n; i += BSN_WIDE) {
        const bsn_wide x = bsn_wide_load(words + i);
        any |= x;
        bsn_wide_store(symbols + i, (x >> shift) & (BSN_ONES * (255u >> shift)));
        if (bits && mask) bsn_wide_store(bits + i, x & (BSN_ONES * mask));
    }
    all = bsn_wide_any(any);
    for (k = 32; k >= 8; k /= 2) all |= all >> k;
    for (; i < n; i++) {
        all |= words[i];
        symbols[i] = (uint8_t)(words[i] >> shift);
        if (bits && mask) bits[i] = (uint8_t)(words[i] & mask);
    }
    return all & 255;
}

static uint64_t bsn_scalar_words_split(const bsn_slices *t, uint8_t *symbols, uint8_t *bits, uint8_t *planes, const uint8_t *words,
                                size_t n)
{
    const unsigned whole = t->shift / 8, mask = (1u << t->shift % 8) - 1;
    uint8_t byte[64];
    uint64_t all = 0;
    size_t m;
    unsigned i, k;
    if (t->width == 1 && t->shift < 8 && 255u >> t->shift <= t->limit)
        return bsn_bytes_split(t->shift, symbols, bits, words, n);
    BSN_TYPES(t->width, BSN_WORDS_SPLIT, t->limit)
    return all;
}
#undef BSN_WORDS_SPLIT

static uint64_t bsn_words_split_by(const bitsnap_kernels *kernels, const bsn_slices *t, uint8_t *symbols, uint8_t *bits,
                                   uint8_t *planes, const uint8_t *words, size_t n)
{
    const size_t whole = t->width == 2 || t->width == 4 ? n & ~(size_t)63 : 0;
    const uint64_t all = whole ? kernels->words_split(t, symbols, bits, planes, words, whole) : 0;
    return all | bsn_scalar_words_split(t, symbols + whole, bits ? bits + whole : NULL, planes ? planes + whole : NULL,
                                 words + whole * t->width, n - whole);
}

/* Counts n words of `width` bytes, without their low `shift` bits: in x->tables those below BSN_FINE, in
 * tally.beyond the others, these also in tally.length. Words of one byte are in x->count already. Most words
 * are below 255, so they are counted as bytes first; `room` has n + 64 bytes for these and, after them, a
 * mask of a chunk. */
static void bsn_words_tally(const bitsnap_kernels *kernels, bsn_planner *x, const uint8_t *words, size_t n, unsigned shift,
                            unsigned width, uint8_t *room)
{
    uint32_t *fine = x->tables;
    uint64_t some;
    uint8_t *mask;
    bsn_slices t;
    size_t i, j, m;
    memset(x->tally.beyond, 0, sizeof x->tally.beyond);
    if (width == 1) {
        memcpy(fine, x->count, 256 * sizeof *fine);
        memset(fine + 256, 0, (BSN_FINE - 256) * sizeof *fine);
        return;
    }
    mask = room + n + 64;
    t.width = width;
    t.shift = shift;
    t.limit = 255;
    t.stride = 0;
    (void)bsn_words_split_by(kernels, &t, room, NULL, NULL, words, n);
    bsn_count_bytes(kernels, x, room, n);
    memcpy(fine, x->count, 255 * sizeof *fine);
    memset(fine + 255, 0, (BSN_FINE - 255) * sizeof *fine);
    for (i = 0; i < n && x->count[255]; i += m) {
        m = bsn_min(BSN_CHUNK, n - i);
        bsn_mask_above(kernels, mask, room + i, m, 254);
        for (j = 0; j < m; j += 64) {
            for (some = bsn_mask_word(mask, j, m); some; some &= some - 1) {
                const uint64_t y = bsn_element_load(words + (i + j + bsn_lowest_bit(some)) * width, width) >> shift;
                if (y < BSN_FINE) {
                    fine[y]++;
                } else {
                    x->tally.beyond[bsn_log2(y - (BSN_FINE - 1))]++;
                    x->tally.length[bsn_log2(y) + 1 + shift]++;
                }
            }
        }
    }
}

/* The middle one of the lengths of n words in bits, about: that of each 16th. */
BSN_INLINE unsigned bsn_words_middle(const uint8_t *words, size_t n, unsigned width)
{
    uint32_t length[65] = { 0 }, sum = 0;
    unsigned k;
    size_t i;
    for (i = 0; i < n; i += 16) {
        const uint64_t x = bsn_element_load(words + i * width, width);
        length[x ? bsn_log2(x) + 1 : 0]++;
    }
    for (k = 0; 2 * sum < (n + 15) / 16; k++) sum += length[k];
    return k - 1;
}

/* Estimated bits of n escaped words, counted by the lengths of their remainders. */
static uint64_t bsn_escape_bits(const uint32_t length[65], uint32_t n)
{
    const unsigned log2_n = (unsigned)bsn_log2_fixed(n);
    uint64_t cost = 0, bits = 0;
    unsigned i;
    for (i = 0; i < 65; i++) {
        if (!length[i]) continue;
        cost += bsn_symbol_cost(length[i], log2_n);
        bits += BSN_TABLE_BITS(1) + (i < 64 ? (uint64_t)length[i] * i : 0);
    }
    return bits + (cost >> BSN_LOG2_ONE);
}

/* Counts of words below `end`, an even number or 1, without their lowest bits; returns how many kinds are
 * left. */
static unsigned bsn_fold(uint32_t count[BSN_FINE], unsigned end, unsigned bits)
{
    unsigned i;
    for (; bits; bits--, end = (end + 1) / 2) {
        for (i = 0; i < (end + 1) / 2; i++) count[i] = count[2 * i] + count[2 * i + 1];
        memset(count + i, 0, end / 2 * sizeof *count);
    }
    return end;
}

/* Level fast adds the cost of time to that of size: 2 bits for each escape, and 1/32 bit for each bit of
 * coded symbols. */
#define BSN_ESCAPE_TOLL 2u
#define BSN_SYMBOL_TOLL 5

/* The words that a plan is for, and the low bits that may be stored apart. */
typedef struct bsn_planning {
    bsn_planner *x;
    uint32_t n;       /* words, each of them counted `times` */
    unsigned times;   /* above 1 for samples */
    unsigned log2_n;  /* in 2^-20 bit */
    unsigned kind;    /* bits of a table for each symbol */
    unsigned least;   /* bits that are stored apart in any case; more are tried */
    unsigned middle;  /* of the lengths of words */
    unsigned longest; /* word, in bits */
    unsigned end;     /* counts in x->tables below this are not all 0 */
    int fast;         /* 1 if time counts, as BSN_ESCAPE_TOLL and BSN_SYMBOL_TOLL say */
} bsn_planning;

/* Counts words by their lengths, and finds their middle and their largest length. The counts in x->tables are
 * of words without their lowest bits; returns how many of these. */
static unsigned bsn_plan_lengths(bsn_planning *p, const bitsnap_kernels *kernels, const uint8_t *words, size_t n, unsigned size,
                                 uint8_t *room)
{
    bsn_planner *x = p->x;
    uint32_t *length = x->tally.length, sum;
    unsigned i, middle = 0, cut = 0;
    if (size > 1) {
        BSN_WIDTHS(size, middle = bsn_words_middle, (words, n));
        cut = middle > 6 ? middle - 6 : 0; /* most likely at least these bits are stored apart */
    }
    for (;; cut = 0) {
        memset(length, 0, sizeof x->tally.length);
        bsn_words_tally(kernels, x, words, n, cut, size, room);
        length[cut] += x->tables[0]; /* or fewer bits */
        for (i = 1; i < (cut > 53 ? 1u << (64 - cut) : size == 1 ? 256 : BSN_FINE); i++)
            length[bsn_log2(i) + 1 + cut] += x->tables[i];
        for (i = sum = 0; i <= 64 && 2 * (uint64_t)sum < n; i++) {
            sum += length[i];
            middle = i;
        }
        if (!cut || middle > cut) break;
    }
    p->middle = middle;
    p->least = middle > 6 ? middle - 6 : 0;
    for (p->longest = 64; p->longest && !length[p->longest]; p->longest--) { }
    return cut;
}

/* What is known of the symbols below a limit. */
typedef struct bsn_below {
    uint64_t cost; /* in 2^-20 bit */
    unsigned kinds;
} bsn_below;

/* Counts words as symbols, and those beyond symbols by the lengths of their remainders, if `shift` low bits
 * are stored apart, j more than p->least. Fills below[i] for each of the limits; returns how many words are
 * beyond symbols. */
static uint32_t bsn_plan_symbols(const bsn_planning *p, unsigned j, const uint8_t limits[6], bsn_below below[6])
{
    bsn_tally *tally = &p->x->tally;
    const uint32_t *fine = p->x->tables;
    uint32_t *escape = tally->escape, outside = 0;
    uint64_t inside = 0;
    unsigned at = 0, kinds = 0, i;
    memset(escape, 0, sizeof tally->escape);
    memcpy(tally->symbol, fine, sizeof tally->symbol);
    for (i = 256; i < p->end; i++)
        if (fine[i]) escape[bsn_log2(i - 255)] += fine[i];
    for (i = 0; i < 65; i++) escape[i > j ? i - j : 0] += tally->beyond[i];
    for (i = 0; i < 65; i++) outside += escape[i];
    for (i = 6; i-- > 0;) { /* the smallest limit first */
        for (; at < p->end && at < (limits[i] ? limits[i] : 256u); at++) {
            inside += bsn_symbol_cost(tally->symbol[at], p->log2_n);
            kinds += tally->symbol[at] > 0;
        }
        below[i].cost = inside;
        below[i].kinds = kinds;
    }
    return outside;
}

/* Improves the plan if it takes fewer bits with j low bits more than p->least, and any of the limits. */
static void bsn_plan_shift(const bsn_planning *p, bsn_words_plan *plan, unsigned j)
{
    static const uint8_t limits[6] = { 0, 255, 127, 63, 31, 15 }; /* 0: without escapes */
    bsn_tally *tally = &p->x->tally;
    bsn_below below[6];
    uint32_t outside = bsn_plan_symbols(p, j, limits, below);
    unsigned i, s;
    for (i = 0; i < 6; i++) {
        /* what escapes with this limit already */
        const unsigned limit = limits[i], above = i > 1 ? limits[i - 1] : 256;
        uint64_t bits = (uint64_t)(p->least + j) * p->n + (p->fast ? below[i].cost >> (BSN_LOG2_ONE + BSN_SYMBOL_TOLL) : 0);
        if (limit) {
            for (s = limit; s < above && s < p->end; s++) { /* a smaller limit lets more escape */
                tally->escape[s == limit ? 64 : bsn_log2(s - limit)] += tally->symbol[s];
                outside += tally->symbol[s];
            }
            /* the same as without, or too deep a way for too many */
            if (!outside || outside > p->n / 8) continue;
            bits += ((below[i].cost + bsn_symbol_cost(outside, p->log2_n)) >> BSN_LOG2_ONE) + p->kind * (below[i].kinds + 1);
            bits += bsn_escape_bits(tally->escape, outside) + outside / 2 + 40;
            bits += p->fast ? BSN_ESCAPE_TOLL * (uint64_t)outside : 0;
        } else {
            if (outside) continue;
            bits += (below[i].cost >> BSN_LOG2_ONE) + p->kind * below[i].kinds;
        }
        if (bits < plan->bits) {
            plan->bits = bits;
            plan->shift = p->least + j;
            plan->limit = limit;
        }
    }
}

/* Chooses the number of low bits that are stored apart, and the limit of symbols, for the fewest estimated
 * bits: order-0 entropies, tables and, at level fast, tolls for time. A word has `size` bytes in memory and
 * `width` in the frame; lists around this one have taken `used` of its bits. `times`: what each word counts,
 * above 1 for samples. If size is 1, planner->count must hold the counts. `room`: scratch, as for
 * bsn_words_tally. */
static bsn_words_plan bsn_plan_words(bsn_writer *w, const uint8_t *words, size_t n, unsigned width, unsigned size, unsigned used,
                                     unsigned times, uint8_t *room)
{
    bsn_words_plan plan = { 0, 0, BSN_NEVER };
    const unsigned most = 8 * width - used;
    bsn_planning p;
    unsigned i, j, cut;
    p.x = w->planner;
    p.times = times;
    p.fast = w->level == BITSNAP_FAST;
    p.log2_n = (unsigned)bsn_log2_fixed((uint32_t)n * times);
    /* a sample's entropy is less by log2(e) / 2 bits for each */
    p.kind = BSN_TABLE_BITS(1) + 23 * (times - 1) / 32;
    cut = bsn_plan_lengths(&p, w->kernels, words, n, size, room);
    plan.shift = p.longest > 8 ? p.longest - 8 : 0; /* always possible: all words as they are */
    if (n < BSN_MIN_TREE) return plan;
    /* counted so, or all are below BSN_FINE << cut */
    if (p.least == cut || (p.least > cut && p.longest <= 11 + cut))
        (void)bsn_fold(p.x->tables, size == 1 ? 256 : BSN_FINE, p.least - cut);
    else
        bsn_words_tally(w->kernels, p.x, words, n, p.least, size, room);
    for (i = 0; i < BSN_FINE && times > 1; i++) p.x->tables[i] *= times;
    for (i = 0; i < 65; i++) p.x->tally.beyond[i] *= times;
    p.n = (uint32_t)n * times;
    p.end = p.longest >= p.least + 11 ? BSN_FINE : p.longest > p.least ? 1u << (p.longest - p.least) : 1;
    for (j = 0; j < 8 && p.least + j < most && (j == 0 || p.least + j <= p.middle + 1); j++) {
        if (j) p.end = bsn_fold(p.x->tables, p.end, 1);
        bsn_plan_shift(&p, &plan, j);
    }
    return plan;
}

/* Samples one of each 2^log2 groups of 64 elements, at varying places, as rows may have the same length. */
BSN_INLINE size_t bsn_sample_group(uint32_t span, unsigned log2)
{
    return ((size_t)span << log2) + (span * UINT32_C(0x9E3779B1) >> (32 - log2));
}

/* Plans by a sample of the words: an eighth or, at level fast, 2^12 to 2^13 of them. `room` has n / 8 words,
 * then n / 8 + 64 bytes and a mask of a chunk. */
static bsn_words_plan bsn_plan_sampled(bsn_writer *w, const uint8_t *words, size_t n, unsigned width, unsigned size, uint8_t *room)
{
    unsigned log2 = 3;
    uint32_t span;
    size_t i, m = 0;
    while (w->level == BITSNAP_FAST && n >> log2 > 8192) log2++;
    for (span = 0; (i = 64 * bsn_sample_group(span, log2)) + 64 <= n; span++, m += 64)
        memcpy(room + m * size, words + i * size, 64 * size);
    if (size == 1) bsn_count_bytes(w->kernels, w->planner, room, m);
    return bsn_plan_words(w, room, m, width, size, 0, 1u << log2, room + m * size);
}

/* Replaces escaped words by their remainders: what they exceed `limit` by after the low bits are shifted
 * off. */
BSN_INLINE void bsn_words_less(uint8_t *words, size_t n, unsigned shift, unsigned limit, unsigned width)
{
    size_t i;
    for (i = 0; i < n; i++)
        bsn_element_store(words + i * width, (bsn_element_load(words + i * width, width) >> shift) - limit, width);
}

/* Moves the words whose symbol is the limit to the beginning of the array, and replaces them by their
 * remainders. Returns their number. `room` is scratch for a mask and the words of a chunk that escape,
 * BSN_WRITE_SIZE(n) bytes: if n is below 16384, at most n / 8 words do; see bsn_plan_shift. */
static size_t bsn_words_escape(const bitsnap_kernels *kernels, const bsn_slices *t, const uint8_t *symbols, uint8_t *words,
                               size_t n, uint8_t *room)
{
    size_t i, escapes = 0;
    uint8_t *mask = room, *escaped = room + BSN_CHUNK / 8;
    for (i = 0; i < n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        size_t some;
        bsn_mask_above(kernels, mask, symbols + i, m, t->limit - 1);
        some = kernels->count(mask, m);
        kernels->partition(t->width, words + i * t->width, m, mask, NULL, escaped);
        memcpy(words + escapes * t->width, escaped, some * t->width);
        escapes += some;
    }
    BSN_WIDTHS(t->width, bsn_words_less, (words, escapes, t->shift, t->limit));
    return escapes;
}

/* Bytes of the raw planes of n words with `shift` low bits. */
BSN_INLINE size_t bsn_low_size(unsigned shift, size_t n)
{
    return shift / 8 * n + (shift % 8 ? bsn_bits_size((1u << shift % 8) - 1, n) : 0);
}

/* Writes a list of n words, which have `size` bytes in memory and `width` in the frame. Overwrites them,
 * `bytes` (a chunk), and the first n + 64 bytes of the writer's scratch. */
static void bsn_words_write(bsn_writer *w, uint8_t *words, size_t n, unsigned width, unsigned size, uint8_t *bytes)
{
    unsigned level, used = 0;
    uint8_t *symbols = w->scratch;
    for (level = 0; n && !w->full; level++) {
        uint8_t *head, *list = symbols;
        bsn_words_plan plan = { 0, 0, 0 };
        size_t i, escapes = 0;
        int raw = level == BSN_WORD_LEVELS || used == 8 * width;
        if (!raw) {
            const int sampled = w->sampled && n >= 16384 && !level;
            if (size == 1 && !w->counted && !w->plan && !sampled) bsn_count_bytes(w->kernels, w->planner, words, n);
            w->counted = 0;
            if (w->plan) plan = *w->plan;
            else if (sampled) plan = bsn_plan_sampled(w, words, n, width, size, symbols);
            else plan = bsn_plan_words(w, words, n, width, size, used, 1, symbols);
            w->plan = NULL;
            /* as raw symbols */
            raw = n < BSN_MIN_TREE && 3 + n + bsn_low_size(plan.shift, n) >= 1 + n * width;
        }
        if (raw) {
            if (!bsn_room(w, 1 + n * width)) return;
            *w->at++ = BSN_WORDS_RAW;
            for (i = 0; i < n; i++, w->at += width) {
                uint8_t native[8];
                bsn_element_store(native, bsn_element_load(words + i * size, size), width);
                bsn_copy_little_endian(w->at, native, 1, width);
            }
            return;
        }
        if (!bsn_room(w, 2 + bsn_low_size(plan.shift, n))) return;
        head = w->at;
        w->at += 2;
        /* words are their symbols, and are counted already */
        if (size == 1 && plan.shift == 0 && plan.limit == 0) {
            list = words;
            w->counted = !w->wide;
        } else {
            const unsigned mask = (1u << plan.shift % 8) - 1;
            uint8_t *planes = plan.shift < 8 ? NULL : w->at;
            uint64_t all = 0;
            bsn_slices t;
            t.width = size;
            t.shift = plan.shift;
            t.limit = plan.limit ? plan.limit : 255;
            t.stride = n;
            w->at += plan.shift / 8 * n;
            for (i = 0; i < n; i += BSN_CHUNK) {
                const size_t m = bsn_min(BSN_CHUNK, n - i);
                all |= bsn_words_split_by(w->kernels, &t, symbols + i, bytes, planes ? planes + i : NULL, words + i * size, m);
                if (mask) bsn_bits_take(w->kernels, w->at + bsn_bits_size(mask, i), bytes, mask, m);
            }
            w->at += bsn_bits_size(mask, n);
            /* also where the plan's sample had no such words */
            if (all >> plan.shift > 255) plan.limit = t.limit;
            if (plan.limit) escapes = bsn_words_escape(w->kernels, &t, symbols, words, n, symbols + n + 64);
        }
        head[0] = (uint8_t)plan.shift;
        head[1] = (uint8_t)plan.limit;
        w->scratch = symbols + n + 64;
        bsn_list_write(w, list, n, 8);
        w->scratch = symbols;
        used += plan.shift;
        n = escapes;
    }
}

/* A list of words that is being read. */
typedef struct bsn_words {
    bsn_reader *reader;
    uint8_t *words;    /* n of `width` bytes */
    uint32_t *place;   /* n: positions of the words that escape */
    uint8_t *symbols;  /* room for a chunk, and 64 bytes */
    uint8_t *low;      /* room for a chunk of bytes */
    const uint8_t *bits; /* if `apart`: the low bits of words, `shift` of each, below 8; the list of symbols
                            comes next */
    unsigned shift;
    unsigned width;
    unsigned kind;     /* of the list of their symbols, or BSN_WORDS_RAW */
    int narrow;        /* in: 1 if words may be stored as bytes. Out: 1 if they are */
    int apart;         /* in: 1 if the caller can join symbols and low bits itself. Out: 1 if that is left to
                          it */
} bsn_words;

/* Prepares to read words of `width` bytes to `words`, with `narrow` and `apart` 0. `memory` is scratch for
 * positions. */
static void bsn_words_to(bsn_words *x, bsn_reader *r, uint8_t *words, uint8_t *memory, uint8_t *symbols, uint8_t *low,
                         unsigned width)
{
    x->reader = r;
    x->words = words;
    x->place = (uint32_t *)(void *)memory;
    x->symbols = symbols;
    x->low = low;
    x->width = width;
    x->narrow = x->apart = 0;
}

/* word[place[i]] += more[i] << up, of words that go on */
BSN_INLINE void bsn_words_add(const bsn_words *x, const uint8_t *more, size_t first, size_t n, unsigned up, unsigned width)
{
    size_t i;
    for (i = 0; i < n; i++) {
        uint8_t *word = x->words + x->place[first + i] * (size_t)width;
        bsn_element_store(word, bsn_element_load(word, width) + (bsn_element_load(more + i * width, width) << up), width);
    }
}

/* The reverse of bsn_scalar_words_split: words[i] = symbols[i] << shift, plus bits, plus planes. */
#define BSN_WORDS_JOIN(T)                                                                             \
    for (; n; n -= m, words += m * sizeof(T), symbols += m) {                                         \
        T x[64];                                                                                      \
        m = bsn_min(64, n);                                                                           \
        BSN_WORDS_ADD(T, =, symbols, t->shift)                                                        \
        for (k = 0; k < whole; k++) BSN_WORDS_ADD(T, +=, planes + k * t->stride, 8 * k)               \
        if (whole) planes += m;                                                                       \
        if (mask) {                                                                                   \
            BSN_WORDS_ADD(T, +=, bits, 8 * whole)                                                     \
            bits += m;                                                                                \
        }                                                                                             \
        bsn_copy_64(words, x, m, sizeof(T));                                                          \
    }
#define BSN_WORDS_ADD(T, what, from, up)                                                              \
    {                                                                                                 \
        bsn_copy_64(byte, from, m, 1);                                                                \
        BSN_ROLLED for (i = 0; i < 64; i++) x[i] what (T)((T)byte[i] << (up));                        \
    }

static void bsn_scalar_words_join(const bsn_slices *t, uint8_t *words, const uint8_t *symbols, const uint8_t *bits, const uint8_t *planes,
                           size_t n)
{
    const unsigned whole = t->shift / 8, mask = t->shift % 8;
    uint8_t byte[64] = { 0 };
    size_t m;
    unsigned i, k;
    if (BSN_WITH_DELTA && t->width == 1) BSN_WORDS_JOIN(uint8_t)
    else if (t->width == 2) BSN_WORDS_JOIN(uint16_t)
    else if (t->width == 4) BSN_WORDS_JOIN(uint32_t)
    else BSN_WORDS_JOIN(uint64_t)
}
#undef BSN_WORDS_ADD
#undef BSN_WORDS_JOIN

static void bsn_words_join_by(const bitsnap_kernels *kernels, const bsn_slices *t, uint8_t *words, const uint8_t *symbols,
                              const uint8_t *bits, const uint8_t *planes, size_t n)
{
    const size_t whole = t->width == 2 || t->width == 4 ? n & ~(size_t)63 : 0;
    if (whole) kernels->words_join(t, words, symbols, bits, planes, whole);
    bsn_scalar_words_join(t, words + whole * t->width, symbols + whole, bits + whole, planes ? planes + whole : NULL, n - whole);
}

/* Appends to x->place, after `more` others, the positions of words first .. first + n - 1 whose symbol is the
 * limit; n is at most a chunk. Returns the new number of positions, or SIZE_MAX if a symbol is above the
 * limit. */
static size_t bsn_words_escaped(const bsn_words *x, const uint8_t *symbols, size_t first, size_t n, unsigned level,
                                unsigned limit, size_t more)
{
    uint8_t mask[BSN_CHUNK / 8 + 8];
    uint32_t *place = x->place + more;
    size_t i, count;
    unsigned beyond = 0;
    bsn_mask_above(x->reader->kernels, mask, symbols, n, limit - 1);
    if (level == 0) {
        count = bsn_places(x->reader->kernels->places, place, mask, first, n);
        for (i = 0; i < count; i++) beyond |= symbols[place[i] - first] ^ limit;
        return beyond ? (size_t)-1 : more + count;
    }
    for (i = 0; i < n; i += 64) {
        uint64_t w = bsn_mask_word(mask, i, n);
        for (; w; w &= w - 1) {
            const size_t at = i + bsn_lowest_bit(w);
            beyond |= symbols[at] ^ limit;
            x->place[more++] = x->place[first + at]; /* more <= first + at */
        }
    }
    return beyond ? (size_t)-1 : more;
}

/* Reads n raw words. Those of an inner list are added to the words that they belong to. */
static void bsn_words_read_raw(bsn_words *x, size_t n, unsigned level, unsigned used)
{
    bsn_reader *r = x->reader;
    const unsigned width = x->width;
    uint8_t some[64 * 8];
    size_t i, k;
    if ((size_t)(r->end - r->at) / width < n) return;
    r->rule = 0;
    if (level == 0) {
        bsn_copy_little_endian(x->words, r->at, n, width);
        r->at += n * width;
        return;
    }
    for (i = 0; i < n; i += k, r->at += k * width) {
        k = bsn_min(64, n - i);
        bsn_copy_little_endian(some, r->at, k, width);
        BSN_WIDTHS(width, bsn_words_add, (x, some, i, (unsigned)k, used));
    }
}

/* Joins words i to i + m - 1 of an inner list and adds them to the words that they belong to. */
static void bsn_words_join_inner(bsn_words *x, const bsn_slices *t, const uint8_t *symbols, const uint8_t *low, size_t i, size_t m,
                                 unsigned used)
{
    uint8_t some[64 * 8];
    size_t j, k;
    for (j = 0; j < m; j += k) {
        k = bsn_min(64, m - j);
        bsn_words_join_by(x->reader->kernels, t, some, symbols + j, x->low + j, t->shift < 8 ? NULL : low + i + j, k);
        BSN_WIDTHS(x->width, bsn_words_add, (x, some, i + j, (unsigned)k, used));
    }
}

/* Reads a list of n words at r->at. r->rule is the rule that is broken, or 0. Sums are modulo 2^(8 *
 * width). */
static void bsn_words_read(bsn_words *x, size_t n)
{
    bsn_reader *r = x->reader;
    const unsigned width = x->width;
    const int narrow = BSN_WITH_DELTA && x->narrow, apart = BSN_WITH_QUANTIZE && x->apart;
    unsigned level, used = 0;
    bsn_slices t;
    size_t i;
    x->narrow = x->apart = 0;
    r->rule = 0;
    for (level = 0; n; level++) {
        const uint8_t *low, *symbols;
        size_t more = 0;
        unsigned shift, limit, mask;
        r->rule = BITSNAP_R_WORDS;
        if (r->at == r->end) return;
        shift = bsn_once8(r->at++);
        if (level == 0) x->kind = shift;
        if (shift == BSN_WORDS_RAW) {
            bsn_words_read_raw(x, n, level, used);
            return;
        }
        if (level == BSN_WORD_LEVELS || used + shift >= 8 * width || r->at == r->end) return;
        limit = bsn_once8(r->at++);
        mask = (1u << shift % 8) - 1;
        low = r->at;
        if ((size_t)(r->end - r->at) < bsn_low_size(shift, n)) return;
        r->at += bsn_low_size(shift, n);
        if (mask && !bsn_bits_tail_clear(low + shift / 8 * n, mask, n)) {
            r->rule = BITSNAP_R_PLANE_TAIL;
            return;
        }
        if (level == 0) x->kind = r->at < r->end ? bsn_once8(r->at) : 0;
        bsn_list_read(r, n, 8);
        if (r->rule) return;
        x->narrow = narrow && level == 0 && shift == 0 && limit == 0; /* words are their symbols */
        if (x->narrow) {
            bsn_list_take(r, x->words, n);
            return;
        }
        t.width = width;
        t.shift = shift;
        t.limit = 255;
        t.stride = n;
        if (apart && level == 0 && shift < 8 && limit == 0) {
            x->bits = low;
            x->shift = shift;
            x->apart = 1;
            return;
        }
        for (i = 0; i < n; i += BSN_CHUNK) {
            const size_t m = bsn_min(BSN_CHUNK, n - i);
            if (mask) {
                memset(x->low, 0, m);
                bsn_bits_put(r->kernels, x->low, x->low, 0, 0, low + shift / 8 * n + bsn_bits_size(mask, i), mask, m);
            }
            symbols = bsn_list_next(r, x->symbols, i, m);
            if (level) bsn_words_join_inner(x, &t, symbols, low, i, m, used);
            else bsn_words_join_by(r->kernels, &t, x->words + i * width, symbols, x->low, shift < 8 ? NULL : low + i, m);
            if (limit) more = bsn_words_escaped(x, symbols, i, m, level, limit, more);
            if (more > n) {
                r->rule = BITSNAP_R_WORDS;
                return;
            }
        }
        used += shift;
        n = more;
    }
}

/* ---- few changes ----
 * If few of a cell's elements differ from their predictions, their positions are coded as by Elias and Fano:
 * the low bits as they are, the others in unary. Their words have a fixed number of bits. A few words may
 * escape. */

#define BSN_CHANGES_LEAST 16u      /* the format allows one change for this many elements */
/* the encoder tries SPARSE up to one change for this many elements: with more, lists are smaller */
#define BSN_CHANGES_SHARE 512u
#define BSN_CHANGES_SHARE_FAST 32u /* the same at level fast, as lists are only a little smaller there, and slower */
#define BSN_SPARSE_SURE 3u         /* if words less 1 are at most this, lists are hardly ever smaller */
#define BSN_PLACE_BITS 20u         /* bits of a position in a cell */
#define BSN_PIECE_HEAD 4u          /* changes, bits of places and of words */
/* with these bits: words escape, and the number of those that do comes next */
#define BSN_PIECE_ESCAPES 0x80u

typedef struct bsn_changes {
    size_t count, most;
    uint64_t any;    /* the bits that words less 1 have */
    uint64_t *word;  /* less 1: none is 0 */
    uint32_t *place; /* ascending */
} bsn_changes;

BSN_INLINE uint64_t bsn_low_bits(unsigned bits) { return bits ? ~UINT64_C(0) >> (64 - bits) : 0; }

/* The word of an element, modulo 2^(8 * width). */
BSN_INLINE uint64_t bsn_word_of(uint64_t element, uint64_t prediction, unsigned width)
{
    const uint64_t d = (element - prediction) & bsn_low_bits(8 * width);
    return (d << 1 ^ (0 - (d >> (8 * width - 1)))) & bsn_low_bits(8 * width);
}

/* `count` bits from bit `at` on, of `size` bytes that have them. */
BSN_INLINE uint64_t bsn_get_bits(const uint8_t *p, size_t size, uint64_t at, unsigned count)
{
    size_t i = (size_t)(at / 8);
    const unsigned shift = at % 8;
    uint64_t x = 0;
    unsigned j;
    if (!count) return 0;
    if (size - i >= 8) x = bsn_load64(p + i);
    else for (j = 0; i + j < size; j++) x |= (uint64_t)p[i + j] << 8 * j;
    x >>= shift;
    if (shift + count > 64) x |= (uint64_t)p[i + 8] << (64 - shift);
    return x & bsn_low_bits(count);
}

/* Numbers of given lengths in bits, one after the other, added to bytes that were 0, from bit `at` on. */
typedef struct bsn_row_of_bits {
    uint8_t *p;
    uint64_t waiting;
    unsigned used;
} bsn_row_of_bits;

BSN_INLINE void bsn_row_begin(bsn_row_of_bits *r, uint8_t *p, uint64_t at)
{
    r->p = p + (size_t)(at / 8);
    r->used = at % 8;
    r->waiting = r->used ? *r->p : 0;
}

BSN_INLINE void bsn_row_put(bsn_row_of_bits *r, uint64_t x, unsigned bits)
{
    r->waiting |= x << r->used;
    r->used += bits;
    if (r->used < 64) return;
    bsn_store64(r->p, r->waiting);
    r->p += 8;
    r->used -= 64;
    r->waiting = r->used ? x >> (bits - r->used) : 0;
}

BSN_INLINE void bsn_row_end(bsn_row_of_bits *r)
{
    for (; r->used; r->used -= r->used < 8 ? r->used : 8, r->waiting >>= 8) *r->p++ = (uint8_t)r->waiting;
}

/* How changes are coded. A word whose bits are all 1 escapes: its value follows the others, with the width of
 * an element. */
typedef struct bsn_piece {
    size_t count, escapes;
    unsigned low, bits; /* low bits of a position, the others being in unary; bits of a word */
} bsn_piece;

BSN_INLINE size_t bsn_piece_head(const bsn_piece *t) { return BSN_PIECE_HEAD + (t->escapes ? 2u : 0u); }

/* Bits after the head: low bits of positions, the others in unary, words, escaped words. */
static uint64_t bsn_piece_bits(const bsn_piece *t, size_t n, unsigned width)
{
    return (uint64_t)t->count * (t->low + 1 + t->bits) + ((n - 1) >> t->low) + (uint64_t)t->escapes * 8 * width;
}

BSN_INLINE size_t bsn_piece_bytes(const bsn_piece *t, size_t n, unsigned width)
{
    return bsn_piece_head(t) + (size_t)((bsn_piece_bits(t, n, width) + 7) / 8);
}

/* Chooses how to code the changes in the fewest bytes. Returns these. */
static size_t bsn_piece_plan(bsn_piece *t, const bsn_changes *x, size_t n, unsigned width)
{
    const unsigned most = x->any ? bsn_log2(x->any) + 1 : 0;
    uint32_t length[65] = { 0 };
    bsn_piece other;
    size_t i;
    t->count = x->count;
    t->escapes = 0;
    t->low = 0;
    t->bits = most;
    other = *t;
    for (other.low = 1; other.low <= BSN_PLACE_BITS; other.low++)
        if (bsn_piece_bits(&other, n, width) < bsn_piece_bits(t, n, width)) t->low = other.low;
    /* escapes gain nothing, or next to nothing */
    if (x->any <= BSN_SPARSE_SURE) return bsn_piece_bytes(t, n, width);
    /* [b]: words that escape if words have b bits */
    for (i = 0; i < x->count; i++) length[bsn_log2(x->word[i] + 1)]++;
    other = *t;
    other.escapes = length[most];
    for (other.bits = most - 1; other.bits; other.bits--) {
        other.escapes += length[other.bits];
        if (other.escapes && bsn_piece_bytes(&other, n, width) < bsn_piece_bytes(t, n, width)) *t = other;
    }
    return bsn_piece_bytes(t, n, width);
}

/* Writes the changes as planned. Returns the bytes. */
static size_t bsn_piece_write(uint8_t *to, const bsn_piece *t, const bsn_changes *x, size_t n, unsigned width)
{
    const size_t size = bsn_piece_bytes(t, n, width), head = bsn_piece_head(t);
    const uint64_t high = (uint64_t)t->count * t->low, words = high + t->count + ((n - 1) >> t->low);
    const uint64_t most = t->escapes ? bsn_low_bits(t->bits) : ~UINT64_C(0);
    uint8_t *p = to + head;
    bsn_row_of_bits row;
    size_t i;
    to[0] = (uint8_t)t->count;
    to[1] = (uint8_t)(t->count >> 8);
    to[2] = (uint8_t)t->low;
    to[3] = (uint8_t)(t->bits | (t->escapes ? BSN_PIECE_ESCAPES : 0));
    if (t->escapes) {
        to[4] = (uint8_t)t->escapes;
        to[5] = (uint8_t)(t->escapes >> 8);
    }
    memset(p, 0, size - head);
    bsn_row_begin(&row, p, 0);
    for (i = 0; i < t->count; i++) bsn_row_put(&row, x->place[i] & bsn_low_bits(t->low), t->low);
    bsn_row_end(&row);
    for (i = 0; i < t->count; i++) {
        const uint64_t one = high + (x->place[i] >> t->low) + i;
        p[one / 8] = (uint8_t)(p[one / 8] | 1u << one % 8);
    }
    bsn_row_begin(&row, p, words);
    for (i = 0; i < t->count && t->bits; i++) bsn_row_put(&row, x->word[i] < most ? x->word[i] : most, t->bits);
    for (i = 0; i < t->count && t->escapes; i++)
        if (x->word[i] >= most) bsn_row_put(&row, x->word[i], 8 * width);
    bsn_row_end(&row);
    return size;
}

/* What the head of the changes at p says, of a cell of n elements; returns their bytes, 0 where they break
 * rules. */
static size_t bsn_piece_look(bsn_piece *t, const uint8_t *p, size_t room, size_t n, unsigned width)
{
    size_t size;
    memset(t, 0, sizeof *t);
    if (room < BSN_PIECE_HEAD) return 0;
    t->count = bsn_once8(p) | bsn_once8(p + 1) << 8;
    t->low = bsn_once8(p + 2);
    t->bits = bsn_once8(p + 3);
    if (t->bits & BSN_PIECE_ESCAPES) {
        if (room < BSN_PIECE_HEAD + 2) return 0;
        t->bits -= BSN_PIECE_ESCAPES;
        t->escapes = bsn_once8(p + 4) | bsn_once8(p + 5) << 8;
        if (t->escapes == 0 || t->escapes > t->count || t->bits == 0 || t->bits >= 8 * width) return 0;
    }
    if (t->count == 0 || t->count > n / BSN_CHANGES_LEAST || t->low > BSN_PLACE_BITS || t->bits > 8 * width) return 0;
    size = bsn_piece_bytes(t, n, width);
    return size > room ? 0 : size;
}

/* Reads them; returns the rule that is broken, or 0. */
static unsigned bsn_piece_read(bsn_changes *x, const uint8_t *p, size_t size, size_t n, unsigned width)
{
    bsn_piece t;
    const uint64_t none = bsn_low_bits(8 * width); /* a word that would change nothing */
    uint64_t high, length, words, all, escape, j, least = 0, some, place, most;
    size_t i = 0, escapes = 0;
    unsigned low, bits;
    if (bsn_piece_look(&t, p, size, n, width) != size) return BITSNAP_R_SPARSE;
    low = t.low;
    bits = t.bits;
    high = (uint64_t)t.count * low;
    length = t.count + ((n - 1) >> low);
    words = high + length;
    escape = words + (uint64_t)t.count * bits;
    all = bsn_piece_bits(&t, n, width);
    most = t.escapes ? bsn_low_bits(bits) : none;
    p += bsn_piece_head(&t);
    size -= bsn_piece_head(&t);
    x->count = t.count;
    for (j = 0; j < length; j += 64) {
        for (some = bsn_get_bits(p, size, high + j, (unsigned)bsn_min(64, (size_t)(length - j))); some; some &= some - 1, i++) {
            if (i == t.count) return BITSNAP_R_SPARSE;
            place = (j + bsn_lowest_bit(some) - i) << low | bsn_get_bits(p, size, (uint64_t)i * low, low);
            if (place < least || place >= n) return BITSNAP_R_SPARSE;
            least = place + 1;
            x->place[i] = (uint32_t)place;
            x->word[i] = bsn_get_bits(p, size, words + (uint64_t)i * bits, bits);
            if (BSN_LIKELY(x->word[i] != most)) continue;
            if (escapes == t.escapes) return BITSNAP_R_SPARSE;
            x->word[i] = bsn_get_bits(p, size, escape + (uint64_t)escapes++ * 8 * width, 8 * width);
            if (x->word[i] < most || x->word[i] == none) return BITSNAP_R_SPARSE;
        }
    }
    return i < t.count || escapes < t.escapes || (all % 8 && p[size - 1] >> all % 8) ? BITSNAP_R_SPARSE : 0;
}

/* ================================================================================= QUANTIZE
 * Quantizes the logarithm of each number, with a bound on each relative error. An octave (a power of two) is divided into n bins of equal
 * ratio. All numbers of a bin become its center, whose relative distance from both ends is the same: at most tanh(ln 2 / 2n). These are the
 * clusters of BitSnap (arXiv 2511.12376) with octaves for labels. All computation is on integers.
 *
 * Scales predict a number's size from its position: a byte for each row and each column of a matrix, in
 * eighths of an octave. The states of optimizers are close to such products. */

#define BSN_BINS_MOST 2048u
#define BSN_OCTAVES_MOST 2098u /* of F64; the other types have fewer */
#define BSN_NO_BIN (~UINT32_C(0))

/* A code is 2 * u + sign. u is 0 for a zero, 1 for an element that is stored exactly, else 2 + bins * octave
 * + bin. */
enum { BSN_CODE_ZERO = 0, BSN_CODE_EXACT = 1, BSN_CODE_FIRST = 2 };

/* A type's numbers. Octave k < mantissa holds the subnormal ones of k + 1 bits, octave mantissa + e - 1 those
 * of exponent e. */
typedef struct bsn_octaves {
    unsigned width, mantissa; /* bytes of an element, bits of the mantissa */
    unsigned special;         /* exponent of infinities and NaNs */
    unsigned count;
    int lowest;               /* the smallest positive number is 2^lowest */
} bsn_octaves;

struct bsn_log {
    bsn_octaves type;
    unsigned bins;
    uint32_t bound;       /* of the relative error, in 2^-24 */
    uint64_t reciprocal;  /* 2^40 / bins, rounded up */
    uint32_t threshold[BSN_BINS_MOST + 1]; /* first significand of 24 bits of each bin */
    uint32_t center[BSN_BINS_MOST];        /* the significand of 24 bits that each bin decodes to */
    uint32_t normal[BSN_BINS_MOST];        /* the same as a mantissa of at most 23 bits, in octaves of full
                                              precision */
    uint8_t bytes[3][128];                 /* for up to 128 bins: the bytes of `normal` */
    uint8_t find[3][128];  /* [0]: the bin of the 7 bits below the highest of a significand; [1], [2]: it is
                              the next bin if the 16 bits below are at least this */
    int finds;             /* 1 if `find` finds every bin, as it does in F32 up to 100 bins */
    uint8_t steps[6][128]; /* `bytes` and `find`, each 16 bytes XOR the 16 before them */
    uint16_t start[4096];  /* the bin of the first significand with these 12 bits; the last one may be in the
                              next bin */
};

/* May elements of this type be quantized, and have scales? */
BSN_INLINE int bsn_has_octaves(unsigned dtype) { return dtype >= BITSNAP_F16 && dtype <= BITSNAP_F64; }

static bsn_octaves bsn_octaves_of(unsigned dtype)
{
    bsn_octaves o;
    const unsigned exponent = dtype == BITSNAP_F64 ? 11 : bsn_dtypes[dtype].symbol_bits;
    o.width = bsn_dtypes[dtype].width;
    o.mantissa = 8 * o.width - 1 - exponent;
    o.special = (1u << exponent) - 1;
    o.count = o.mantissa + o.special - 1;
    o.lowest = 2 - (1 << (exponent - 1)) - (int)o.mantissa;
    return o;
}

/* Returns the significand of k + 1 bits, k <= 23, that bin j decodes to in an octave of such significands; 0:
 * the bin holds none. If there are no more significands than bins, each has a bin of its own. */
static uint32_t bsn_log_center(const bsn_log *x, unsigned k, uint32_t j)
{
    const unsigned shift = 23 - k;
    uint32_t low, high, center;
    if (UINT32_C(1) << k <= x->bins) return j < UINT32_C(1) << k ? (UINT32_C(1) << k) + j : 0;
    low = (x->threshold[j] + (UINT32_C(1) << shift) - 1) >> shift;
    high = (x->threshold[j + 1] - 1) >> shift;
    center = (x->center[j] + (UINT32_C(1) << shift >> 1)) >> shift;
    return low > high ? 0 : center > high ? high : center; /* never below low, of all 2048 tables none */
}

/* Bin j begins with the smallest T for which T^n >= 2^(23n + j). It is computed as 2^23 * (2^(1/n))^j with a
 * fraction of 62 bits, and the root by the series of exp(ln 2 / n) in 64 bits. For n <= 2048 no threshold is
 * nearer than 2^-21 to an integer, and the error is below 2^-23. All thresholds were compared with a
 * computation of 60 digits. */
typedef struct bsn_thresholds {
    uint64_t root, power; /* 2^(1/n) - 1 in 2^-64; the next threshold in 2^-39 */
    unsigned left;
} bsn_thresholds;

static void bsn_thresholds_begin(bsn_thresholds *t, unsigned bins)
{
    const uint64_t exponent = UINT64_C(0xB17217F7D1CF79AB) / bins; /* ln 2 / n */
    uint64_t term = exponent;
    unsigned k;
    t->power = UINT64_C(1) << 62;
    t->left = bins;
    t->root = 0;
    for (k = 2; term; k++) {
        t->root += term;
        term = bsn_multiply_high(term, exponent) / k;
    }
}

static uint32_t bsn_thresholds_next(bsn_thresholds *t)
{
    const uint32_t threshold = (uint32_t)((t->power + (UINT64_C(1) << 39) - 1) >> 39);
    if (t->left-- == 0) return UINT32_C(1) << 24;
    t->power += bsn_multiply_high(t->power, t->root);
    return threshold;
}

/* Returns what a bin [a, b) decodes to: its harmonic mean 2ab / (a + b), rounded, at the same relative
 * distance from a and b. */
static uint32_t bsn_bin_center(uint32_t a, uint32_t b)
{
    const uint64_t sum = (uint64_t)a + b;
    return (uint32_t)((4 * (uint64_t)a * b + sum) / (2 * sum));
}

/* The largest relative error in 2^-24, rounded up, over all bins. */
static uint32_t bsn_log_bound(unsigned bins)
{
    bsn_thresholds t;
    uint32_t a, b, bound = 0;
    bsn_thresholds_begin(&t, bins);
    for (a = bsn_thresholds_next(&t); a >> 24 == 0; a = b) {
        uint64_t r, below, above;
        b = bsn_thresholds_next(&t);
        r = bsn_bin_center(a, b);
        below = (((r - a) << 24) + a - 1) / a;
        above = (((b - r) << 24) + b - 1) / b;
        if (bound < below) bound = (uint32_t)below;
        if (bound < above) bound = (uint32_t)above;
    }
    return bound;
}

static void bsn_log_shape(bsn_log *x, unsigned dtype, unsigned bins)
{
    x->type = bsn_octaves_of(dtype);
    x->bins = bins;
    x->reciprocal = ((UINT64_C(1) << 40) + bins - 1) / bins;
}

static void bsn_log_set(bsn_log *x, unsigned dtype, unsigned bins)
{
    bsn_thresholds t;
    uint32_t j, k, i;
    memset(x, 0, sizeof *x);
    bsn_log_shape(x, dtype, bins);
    x->bound = bsn_log_bound(bins);
    bsn_thresholds_begin(&t, bins);
    for (j = 0; j <= bins; j++) x->threshold[j] = bsn_thresholds_next(&t);
    for (j = 0; j < bins; j++) x->center[j] = bsn_bin_center(x->threshold[j], x->threshold[j + 1]);
    k = x->type.mantissa < 23 ? x->type.mantissa : 23;
    for (j = 0; j < bins; j++) {
        const uint32_t center = bsn_log_center(x, k, j);
        x->normal[j] = center ? center - (UINT32_C(1) << k) : BSN_NO_BIN;
    }
    for (j = 0; j < bins && bins <= 128; j++)
        for (i = 0; i < 3; i++) x->bytes[i][j] = (uint8_t)(x->normal[j] >> (8 * i));
    x->finds = dtype == BITSNAP_F32 && bins <= 128;
    for (i = j = 0; i < 128 && x->finds; i++) {
        const uint32_t first = (128 + i) << 16;
        while (x->threshold[j + 1] <= first) j++;
        if (x->threshold[j + 1] - first < 65536) { /* it ends here: it, or the next */
            x->find[0][i] = (uint8_t)j;
            x->find[1][i] = (uint8_t)x->threshold[j + 1];
            x->find[2][i] = (uint8_t)(x->threshold[j + 1] >> 8);
            x->finds = j + 2 > bins || x->threshold[j + 2] - first >= 65536;
        } else { /* the one before it, or rather the next: nothing is less than 0 */
            x->find[0][i] = (uint8_t)(j - 1);
        }
    }
    for (i = 0; i < 6; i++) {
        const uint8_t *of = i < 3 ? x->bytes[i] : x->find[i - 3];
        for (j = 0; j < 128; j++) x->steps[i][j] = (uint8_t)(of[j] ^ (j < 16 ? 0 : of[j - 16]));
    }
    for (i = j = 0; i < 4096; i++) {
        while (x->threshold[j + 1] <= (UINT32_C(1) << 23) + (i << 11)) j++;
        x->start[i] = (uint16_t)j;
    }
}

/* A number's octave and significand, which has k + 1 bits. */
typedef struct bsn_parts {
    uint64_t significand;
    unsigned octave, k;
} bsn_parts;

/* Of a number that is neither 0 nor infinite nor NaN, without its sign. */
BSN_INLINE bsn_parts bsn_parts_of(const bsn_octaves *o, uint64_t magnitude)
{
    const unsigned m = o->mantissa, exponent = (unsigned)(magnitude >> m);
    bsn_parts p;
    p.k = exponent ? m : bsn_log2(magnitude);
    p.octave = exponent ? m + exponent - 1 : p.k;
    p.significand = exponent ? (magnitude & ((UINT64_C(1) << m) - 1)) | UINT64_C(1) << m : magnitude;
    return p;
}

/* of a significand of 24 bits */
BSN_INLINE uint32_t bsn_log_bin(const bsn_log *x, uint32_t s)
{
    const uint32_t bin = x->start[s >> 11 & 4095];
    return bin + (s >= x->threshold[bin + 1]);
}

BSN_INLINE uint32_t bsn_log_code(const bsn_log *x, uint64_t v, unsigned width)
{
    const uint32_t sign = (uint32_t)(v >> (8 * width - 1));
    const uint64_t magnitude = v & bsn_magnitude_bits(width);
    bsn_parts p;
    uint32_t bin, s;
    if (!magnitude) return BSN_CODE_ZERO << 1 | sign;
    if (magnitude >> x->type.mantissa == x->type.special) return BSN_CODE_EXACT << 1 | sign;
    p = bsn_parts_of(&x->type, magnitude);
    if (p.k < 12 && UINT32_C(1) << p.k <= x->bins) {
        bin = (uint32_t)p.significand - (UINT32_C(1) << p.k);
    } else {
        s = (uint32_t)(p.k > 23 ? p.significand >> (p.k - 23) : p.significand << (23 - p.k));
        bin = bsn_log_bin(x, s);
        if (p.k < 23) { /* so coarse a number may be too far from the nearest that there is */
            const uint32_t center = bsn_log_center(x, p.k, bin), exact = (uint32_t)p.significand;
            const uint64_t d = exact > center ? exact - center : center - exact;
            if (d << 24 > (uint64_t)x->bound * exact) return BSN_CODE_EXACT << 1 | sign;
        }
    }
    return (BSN_CODE_FIRST + p.octave * x->bins + bin) << 1 | sign;
}

/* Returns the number of q = bins * octave + bin, without a sign; 0 if no number has this q. */
BSN_INLINE uint64_t bsn_log_number(const bsn_log *x, uint32_t q)
{
    const uint32_t octave = (uint32_t)(q * x->reciprocal >> 40), bin = q - octave * x->bins;
    const unsigned m = x->type.mantissa;
    if (q >= x->bins * x->type.count) return 0; /* beyond, the octave may be wrong as well */
    if (octave >= m) {
        if (x->normal[bin] == BSN_NO_BIN) return 0;
        return ((uint64_t)(octave - m + 1) << m) + ((uint64_t)x->normal[bin] << (m > 23 ? m - 23 : 0));
    }
    return octave > 23 ? (uint64_t)x->center[bin] << (octave - 23) : bsn_log_center(x, octave, bin);
}

/* Returns 1 if two elements are in the same bin, so that they decode to the same number. */
static int bsn_log_same(const bsn_log *x, const uint8_t *a, const uint8_t *b)
{
    const unsigned width = x->type.width;
    const uint32_t code = bsn_log_code(x, bsn_element_load(a, width), width);
    return code >> 1 >= BSN_CODE_FIRST && code == bsn_log_code(x, bsn_element_load(b, width), width);
}

BSN_INLINE void bsn_log_codes_loop(const bsn_log *x, uint32_t *codes, const uint8_t *elements, size_t n, unsigned width)
{
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(elements + i * width, width);
        const uint32_t exponent = (uint32_t)v >> 23 & 255;
        if (width == 4 && BSN_LIKELY(exponent - 1 < 254)) { /* the usual case, simplified: 24 bits */
            const uint32_t bin = bsn_log_bin(x, ((uint32_t)v & 0x7FFFFF) | 0x800000);
            codes[i] = (BSN_CODE_FIRST + (exponent + 22) * x->bins + bin) << 1 | (uint32_t)v >> 31;
        } else {
            codes[i] = bsn_log_code(x, v, width);
        }
    }
}

static void bsn_log_codes(const bsn_log *x, uint32_t *codes, const uint8_t *elements, size_t n)
{
    BSN_FLOATS(x->type.width, bsn_log_codes_loop, (x, codes, elements, n));
}

/* May kernels work on such elements? */
BSN_INLINE int bsn_log_is_usual(const bsn_log *x) { return x->type.width == 4 && x->bins > 1; }

/* Makes codes by a kernel if there is one; n is at most BSN_CHUNK. */
static void bsn_log_codes_by(const bitsnap_kernels *kernels, const bsn_log *x, uint32_t *codes, const uint8_t *elements, size_t n)
{
    const bsn_row row = { x, NULL, 0, 0, 1 };
    if (bsn_log_is_usual(x)) (void)kernels->log_words(&row, NULL, codes, elements, n, NULL);
    else bsn_log_codes(x, codes, elements, n);
}

/* Makes elements from codes; 0 for those that are stored exactly. Returns 0 if a code has no number. */
BSN_INLINE int bsn_log_elements_loop(const bsn_log *x, uint8_t *elements, const uint32_t *codes, size_t n, unsigned width)
{
    int good = 1;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t code = *(const volatile uint32_t *)(codes + i), u = code >> 1;
        const uint64_t number = u >= BSN_CODE_FIRST ? bsn_log_number(x, u - BSN_CODE_FIRST) : 0;
        good &= u < BSN_CODE_FIRST || number;
        bsn_element_store(elements + i * width, number | (uint64_t)(code & 1) << (8 * width - 1), width);
    }
    return good;
}

static int bsn_log_elements(const bsn_log *x, uint8_t *elements, const uint32_t *codes, size_t n)
{
    int good = 0;
    BSN_FLOATS(x->type.width, good = bsn_log_elements_loop, (x, elements, codes, n));
    return good;
}

/* ---- clusters ---- */

/* The elements of a cluster lie between two of them, and are its ends or one of 254 numbers between, at equal
 * distances. The clusters of BitSnap (arXiv 2511.12376), at the quantiles of what is coded together. */
typedef struct bsn_cluster {
    uint64_t low, high;  /* elements */
    int64_t first, step; /* of low in fixed point; and high's distance from it */
    unsigned octave;     /* of the larger end; the unit is 2^(octave - 51) of the smallest number */
} bsn_cluster;

#define BSN_CLUSTERS_MOST 256u
#define BSN_CLUSTER_CODES 256u

/* Returns an element in fixed point, below 2^52. Bits below the unit are dropped. */
static int64_t bsn_fixed(const bsn_octaves *o, uint64_t v, unsigned octave)
{
    const uint64_t sign = UINT64_C(1) << (8 * o->width - 1);
    bsn_parts p;
    uint64_t x;
    if (!(v & (sign - 1))) return 0;
    p = bsn_parts_of(o, v & (sign - 1));
    x = p.octave + 52 <= octave ? 0 : p.significand << (52 - p.k) >> (octave - p.octave + 1);
    return v & sign ? -(int64_t)x : (int64_t)x;
}

/* And back, to the nearest of the type, ties to even. */
static uint64_t bsn_unfixed(const bsn_octaves *o, int64_t fixed, unsigned octave)
{
    const uint64_t sign = fixed < 0 ? UINT64_C(1) << (8 * o->width - 1) : 0, x = fixed < 0 ? (uint64_t)-fixed : (uint64_t)fixed;
    int of, keep, drop;
    uint64_t significand;
    if (!x) return 0;
    of = (int)bsn_log2(x) + (int)octave - 51;
    /* bits below the first that the type has */
    keep = of < 0 ? of : of < (int)o->mantissa ? of : (int)o->mantissa;
    drop = (int)bsn_log2(x) - keep;
    if (drop <= 0) {
        significand = x << -drop;
    } else if (drop > 53) {
        significand = 0;
    } else {
        significand = x >> drop;
        significand += (x >> (drop - 1) & 1) && ((x & ((UINT64_C(1) << (drop - 1)) - 1)) || (significand & 1));
    }
    /* a carry goes on into the exponent, as it should; below the normal numbers the significand is the
     * element */
    return sign | (of < (int)o->mantissa ? significand : ((uint64_t)(of - (int)o->mantissa) << o->mantissa) + significand);
}

static void bsn_cluster_set(bsn_cluster *x, const bsn_octaves *o, uint64_t low, uint64_t high)
{
    const uint64_t magnitude = bsn_magnitude_bits(o->width);
    const unsigned a = low & magnitude ? bsn_parts_of(o, low & magnitude).octave : 0;
    const unsigned b = high & magnitude ? bsn_parts_of(o, high & magnitude).octave : 0;
    x->low = low;
    x->high = high;
    x->octave = a > b ? a : b;
    x->first = bsn_fixed(o, low, x->octave);
    x->step = bsn_fixed(o, high, x->octave) - x->first;
}

/* Sets a cluster from its ends, two native elements. Returns 0 if these are no valid ends. */
static int bsn_cluster_load(bsn_cluster *x, const bsn_octaves *o, const uint8_t *ends)
{
    const uint64_t magnitude = bsn_magnitude_bits(o->width);
    const uint64_t low = bsn_element_load(ends, o->width), high = bsn_element_load(ends + o->width, o->width);
    if ((low & magnitude) >> o->mantissa == o->special || (high & magnitude) >> o->mantissa == o->special) return 0;
    bsn_cluster_set(x, o, low, high);
    return x->step >= 0;
}

/* Convert a code to its number, and a number to the nearest code. Steps are below 2^53, so nothing
 * overflows. */
BSN_INLINE uint64_t bsn_cluster_number(const bsn_cluster *x, const bsn_octaves *o, unsigned code)
{
    return bsn_unfixed(o, x->first + (2 * x->step * (int64_t)code + 255) / 510, x->octave);
}

BSN_INLINE unsigned bsn_cluster_code(const bsn_cluster *x, const bsn_octaves *o, uint64_t v)
{
    const int64_t above = bsn_fixed(o, v, x->octave) - x->first;
    return x->step ? (unsigned)((above * 510 + x->step) / (2 * x->step)) : 0;
}

/* Elements as numbers of the same order. */
BSN_INLINE uint64_t bsn_rank(uint64_t v, unsigned width)
{
    const uint64_t sign = UINT64_C(1) << (8 * width - 1);
    return v & sign ? ~v & (sign | (sign - 1)) : v | sign;
}

BSN_INLINE uint64_t bsn_unrank(uint64_t rank, unsigned width)
{
    const uint64_t sign = UINT64_C(1) << (8 * width - 1);
    return rank & sign ? rank & ~sign : ~rank & (sign | (sign - 1));
}

/* Sorts n numbers, a byte at a time. Returns where the result is: `a` or `b`. */
static uint8_t *bsn_sort_words(uint8_t *a, uint8_t *b, size_t n, unsigned width)
{
    size_t at[256], sum, count, i;
    unsigned k, s;
    uint8_t *swap;
    for (k = 0; k < width; k++) {
        memset(at, 0, sizeof at);
        for (i = 0; i < n; i++) at[bsn_element_load(a + i * width, width) >> (8 * k) & 255]++;
        for (s = 0, sum = 0; s < 256; s++) {
            count = at[s];
            at[s] = sum;
            sum += count;
        }
        for (i = 0; i < n; i++) {
            const uint64_t x = bsn_element_load(a + i * width, width);
            bsn_element_store(b + at[x >> (8 * k) & 255]++ * width, x, width);
        }
        swap = a;
        a = b;
        b = swap;
    }
    return a;
}

/* Divides n sorted ranks into at most `most` clusters of sizes as equal as possible; equal ranks stay
 * together. Returns the number of clusters. */
static unsigned bsn_clusters_set(bsn_cluster *x, const bsn_octaves *o, const uint8_t *ranks, size_t n, unsigned most)
{
    const unsigned width = o->width;
    unsigned c, used = 0;
    size_t begin = 0, end;
    for (c = 1; c <= most && begin < n; c++) {
        end = c == most ? n : (size_t)((uint64_t)c * n / most);
        while (end > begin && end < n && bsn_equal(ranks + end * width, ranks + (end - 1) * width, width)) end--;
        if (end == begin) continue;
        bsn_cluster_set(&x[used++], o, bsn_unrank(bsn_element_load(ranks + begin * width, width), width),
                        bsn_unrank(bsn_element_load(ranks + (end - 1) * width, width), width));
        begin = end;
    }
    return used;
}

/* The last cluster that does not begin above the element; `clusters` where the element is in none, as it has
 * been changed since they were set. */
static unsigned bsn_cluster_of(const bsn_cluster *x, unsigned clusters, uint64_t v, unsigned width)
{
    const uint64_t rank = bsn_rank(v, width);
    unsigned low = 0, high = clusters;
    while (high - low > 1) {
        const unsigned middle = (low + high) / 2;
        if (bsn_rank(x[middle].low, width) <= rank) low = middle;
        else high = middle;
    }
    return clusters && bsn_rank(x[low].low, width) <= rank && rank <= bsn_rank(x[low].high, width) ? low : clusters;
}

#ifndef BITSNAP_NO_QUANTIZE
BITSNAP_API double bitsnap_log_bound(unsigned bins)
{
    return bins && bins <= BSN_BINS_MOST ? bsn_log_bound(bins) / 16777216.0 : 0;
}

BITSNAP_API unsigned bitsnap_log_bins(double max_relative_error)
{
    const double scaled = max_relative_error * 16777216; /* exact */
    uint64_t limit, bins;
    if (!(scaled >= 1)) return 0;
    limit = scaled < 16777215 ? (uint64_t)scaled : 16777215;
    /* tanh(ln 2 / 2n) <= x needs n >= ln 2 (1 - x^2) / 2x: not far below the smallest n that will do */
    bins = (UINT64_C(5814539) * ((UINT64_C(1) << 24) - (limit * limit >> 24)) >> 24) / limit;
    for (bins += bins == 0; bins <= BSN_BINS_MOST; bins++)
        if (bsn_log_bound((unsigned)bins) <= limit) return (unsigned)bins;
    return 0;
}
#endif

/* ---- certificates ---- */

/* m * 2^e, for sums that are rounded up. */
typedef struct bsn_real {
    uint64_t m; /* below 2^63 */
    int e;
} bsn_real;

static bsn_real bsn_real_of(uint64_t m, int e)
{
    bsn_real x = { 0, 0 };
    if (m >> 63) {
        m = (m >> 1) + (m & 1);
        e++;
    }
    if (!m) return x;
    x.m = m << (62 - bsn_log2(m));
    x.e = e - (62 - (int)bsn_log2(m));
    return x;
}

static bsn_real bsn_real_sum(bsn_real a, bsn_real b)
{
    const int first = a.m && (!b.m || a.e >= b.e);
    const bsn_real high = first ? a : b, low = first ? b : a;
    const int shift = high.e - low.e;
    uint64_t m = low.m;
    if (m && shift) m = shift > 62 ? 1 : (m >> shift) + ((m & ((UINT64_C(1) << shift) - 1)) != 0);
    return bsn_real_of(high.m + m, high.e);
}

/* Convert to binary64, rounding up, and back. */
static uint64_t bsn_real_store(bsn_real x)
{
    uint64_t m = (x.m >> 10) + ((x.m & 1023) != 0);
    int exponent = x.e + 62 + 1023;
    if (!x.m) return 0;
    if (m >> 53) {
        m >>= 1;
        exponent++;
    }
    if (exponent < 1) return UINT64_C(1) << 52;
    if (exponent > 2046) return UINT64_C(0x7FF) << 52;
    return (uint64_t)exponent << 52 | (m & ((UINT64_C(1) << 52) - 1));
}

static bsn_real bsn_real_load(uint64_t bits)
{
    const int exponent = (int)(bits >> 52);
    const uint64_t m = bits & ((UINT64_C(1) << 52) - 1);
    return exponent ? bsn_real_of(m | UINT64_C(1) << 52, exponent - 1075) : bsn_real_of(m, -1074);
}

#define BSN_CERTIFICATE_SIZE 44u
#define BSN_INFINITE (UINT64_C(0x7FF) << 52)

/* What is certified of a block, or of all. */
typedef struct bsn_certificate {
    uint64_t counted;        /* elements that are neither 0 nor infinite nor NaN */
    uint64_t exact;          /* elements that are stored exactly, without zeros */
    uint64_t relative_sum;   /* of relative errors, in 2^-24, each rounded up; all ones: that or more */
    uint64_t squares;        /* binary64: sum of the squares of the errors */
    uint64_t absolute;       /* binary64: the largest error */
    uint32_t relative;       /* the largest relative error in 2^-24; all ones: that or more */
} bsn_certificate;

static void bsn_certificate_store(uint8_t *to, const bsn_certificate *x)
{
    bsn_store64(to, x->counted);
    bsn_store64(to + 8, x->exact);
    bsn_store64(to + 16, x->relative_sum);
    bsn_store64(to + 24, x->squares);
    bsn_store64(to + 32, x->absolute);
    bsn_store32(to + 40, x->relative);
}

/* Returns 0 where these bytes certify nothing. */
static int bsn_certificate_load(bsn_certificate *x, const uint8_t *p)
{
    x->counted = bsn_load64(p);
    x->exact = bsn_once64(p + 8);
    x->relative_sum = bsn_load64(p + 16);
    x->squares = bsn_load64(p + 24);
    x->absolute = bsn_load64(p + 32);
    x->relative = bsn_load32(p + 40);
    return x->squares <= BSN_INFINITE && x->absolute <= BSN_INFINITE;
}

/* All ones where the sum has no place. */
static uint64_t bsn_sum_or_most(uint64_t a, uint64_t b) { return a > ~b ? ~UINT64_C(0) : a + b; }

/* Of two parts. */
static void bsn_certificate_add(bsn_certificate *x, const bsn_certificate *y)
{
    x->counted += y->counted;
    x->exact += y->exact;
    x->relative_sum = bsn_sum_or_most(x->relative_sum, y->relative_sum);
    x->squares = bsn_real_store(bsn_real_sum(bsn_real_load(x->squares), bsn_real_load(y->squares)));
    if (x->absolute < y->absolute) x->absolute = y->absolute;
    if (x->relative < y->relative) x->relative = y->relative;
}

/* Errors as they are measured: d * 2^(octave - 23) in units of the smallest number; d is at most 2^25. */
struct bsn_errors {
    uint64_t counted, relative_sum;
    uint32_t relative;
    uint32_t largest[BSN_OCTAVES_MOST + 1]; /* (an element may become infinite while it is measured) */
    uint64_t squares[BSN_OCTAVES_MOST + 1]; /* of d, in units of 2^7, each rounded up: 2^20 of them fit */
    uint64_t banks[4][256];             /* more of them, of F32 by exponent: each waits for the one before in
                                           its bank */
};

/* The largest of errors of F32 can be found without their octaves: d * 2^(exponent - 1), as binary32 that may
 * have too large an exponent; its bits, less 255 * 2^23, are numbers of the same order. */
#define BSN_NO_ERROR (-INT32_MAX) /* not INT32_MIN: compilers would make a branch of it */

/* `bits` as they are, 0: no error. */
static void bsn_errors_note(bsn_errors *e, uint32_t bits)
{
    const uint32_t octave = (bits >> 23) - 128, d = (bits & 0x7FFFFF) | 0x800000;
    if (bits && octave < BSN_OCTAVES_MOST && e->largest[octave] < d) e->largest[octave] = d;
}

/* Adds the error of y in place of x; both are finite. What is inexact is rounded up. */
static void bsn_errors_add(bsn_errors *e, const bsn_octaves *o, uint64_t x, uint64_t y)
{
    const uint64_t sign = UINT64_C(1) << (8 * o->width - 1);
    const int opposite = ((x ^ y) & sign) != 0;
    bsn_parts a = { 0, 0, 0 }, b = { 0, 0, 0 };
    uint64_t d, relative;
    unsigned octave;
    x &= sign - 1;
    y &= sign - 1;
    if (x) {
        a = bsn_parts_of(o, x);
        a.significand <<= 52 - a.k;
    }
    if (y) {
        b = bsn_parts_of(o, y);
        b.significand <<= 52 - b.k;
    }
    octave = a.octave > b.octave ? a.octave : b.octave;
    if (a.octave != b.octave) { /* the smaller number in units of the larger; rounded so that the error
                                   grows */
        bsn_parts *const low = a.octave < b.octave ? &a : &b;
        const unsigned shift = octave - low->octave;
        const uint64_t cut = shift > 53 ? 0 : low->significand >> shift;
        const int lost = shift > 53 ? low->significand != 0 : (low->significand & ((UINT64_C(1) << shift) - 1)) != 0;
        d = opposite ? (low == &a ? b.significand : a.significand) + cut + (uint64_t)lost
                     : (low == &a ? b.significand : a.significand) - cut;
    } else {
        d = opposite                          ? a.significand + b.significand
          : a.significand > b.significand ? a.significand - b.significand
                                              : b.significand - a.significand;
    }
    d = (d >> 29) + ((d & ((UINT64_C(1) << 29) - 1)) != 0);
    if (!x || octave - a.octave > 37) {
        relative = d ? ~UINT64_C(0) : 0;
    } else { /* below 2^64: d << 24 is at most 2^49, `of` at least 2^23 */
        const unsigned more = octave - a.octave, now = more < 13 ? more : 13;
        const uint64_t of = a.significand >> 29;
        relative = ((d << 24 << now) + of - 1) / of << (more - now);
    }
    e->relative_sum = bsn_sum_or_most(e->relative_sum, relative);
    if (e->relative < relative) e->relative = relative < ~UINT32_C(0) ? (uint32_t)relative : ~UINT32_C(0);
    if (e->largest[octave] < d) e->largest[octave] = (uint32_t)d;
    e->squares[octave] += (d * d + 127) >> 7;
}

/* n elements, and what they decode to unless their words mark them as exact. */
BSN_INLINE void bsn_errors_loop(bsn_errors *e, const bsn_octaves *o, const uint8_t *elements, const uint8_t *decoded,
                                const uint32_t *words, unsigned signs, size_t n, unsigned width)
{
    const uint64_t magnitude = bsn_magnitude_bits(width);
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t x = bsn_element_load(elements + i * width, width), y = bsn_element_load(decoded + i * width, width);
        e->counted += (x & magnitude) >> o->mantissa != o->special && (x & magnitude);
        if (x != y && words[i] >> signs != BSN_CODE_EXACT) bsn_errors_add(e, o, x, y);
    }
}

static void bsn_errors_measure(bsn_errors *e, const bsn_octaves *o, const uint8_t *elements, const uint8_t *decoded,
                               const uint32_t *words, unsigned signs, size_t n)
{
    BSN_FLOATS(o->width, bsn_errors_loop, (e, o, elements, decoded, words, signs, n));
}

/* Of one element of F32, whose code is not one of the first. */
static void bsn_log_error(bsn_errors *e, const bsn_log *x, uint32_t v, uint32_t code)
{
    bsn_errors_add(e, &x->type, v, bsn_log_number(x, (code >> 1) - BSN_CODE_FIRST) | (v & 0x80000000));
}

#define BSN_BANK(k)                                                                                   \
    e->banks[k][v[i + k] >> 23 & 255] += ((uint64_t)(uint32_t)distance[i + k] * (uint32_t)distance[i + k] + 127) >> 7

/* Adds the errors of 32 F32 elements, whose codes are their own or BSN_CODE_EXACT. Usual elements are in the
 * octave of the number that they decode to, so a relative error is below 2^23, and a quotient in float is off
 * by less than 1. The remainder, modulo 2^32, says what to add. */
BSN_INLINE void bsn_log_errors32(bsn_errors *e, const bsn_log *x, const uint8_t *elements, const uint32_t *codes, size_t n)
{
    const uint32_t bins = x->bins, first = BSN_CODE_FIRST + 22 * bins;
    uint32_t v[32], sum = 0, counted = 0;
    int32_t distance[32], key[32], relative = 0, largest = BSN_NO_ERROR;
    float exact[32];
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t u = codes[i] >> 1;
        uint32_t exponent, bin;
        memcpy(&v[i], elements + 4 * i, 4);
        exponent = v[i] >> 23 & 255;
        bin = u - first - bins * exponent; /* too many: the element has been changed */
        distance[i] = 0;
        if (BSN_LIKELY(u >= BSN_CODE_FIRST && exponent && bin < bins)) {
            const int32_t d = (int32_t)(v[i] & 0x7FFFFF) - (int32_t)x->normal[bin];
            distance[i] = d < 0 ? -d : d;
            counted++;
        } else if ((v[i] & 0x7FFFFFFF) && exponent != 255) {
            counted++;
            if (u >= BSN_CODE_FIRST) bsn_log_error(e, x, v[i], codes[i]);
        }
    }
    for (i = 0; i < n; i++) {
        const int32_t d = distance[i], of = (int32_t)((v[i] & 0x7FFFFF) | 0x800000);
        const int32_t about = (int32_t)((float)d * 16777216.0f / (float)of);
        const int32_t rest = (int32_t)(((uint32_t)d << 24) - (uint32_t)about * (uint32_t)of);
        const int32_t r = about + (rest > 0 ? 1 : 0) + (rest > of ? 1 : 0);
        exact[i] = (float)d;
        sum += (uint32_t)r;
        relative = relative < r ? r : relative;
    }
    memcpy(key, exact, n * sizeof *key);
    for (i = 0; i < n; i++) {
        const int32_t known = key[i] + ((int32_t)(v[i] >> 23 & 255) - 255) * (1 << 23), k = distance[i] ? known : BSN_NO_ERROR;
        largest = largest < k ? k : largest;
    }
    for (i = 0; i + 4 <= n; i += 4) {
        BSN_BANK(0);
        BSN_BANK(1);
        BSN_BANK(2);
        BSN_BANK(3);
    }
    for (; i < n; i++) BSN_BANK(0);
#undef BSN_BANK
    e->counted += counted;
    e->relative_sum += sum;
    if (e->relative < (uint32_t)relative) e->relative = (uint32_t)relative;
    if (largest != BSN_NO_ERROR) bsn_errors_note(e, (uint32_t)largest + (UINT32_C(255) << 23));
}

/* And all others; `room` has some for the elements. */
static void bsn_log_errors(bsn_errors *e, const bsn_log *x, const uint8_t *elements, const uint32_t *codes, size_t n, uint8_t *room)
{
    size_t i;
    if (bsn_log_is_usual(x)) {
        for (i = 0; i + 32 <= n; i += 32) bsn_log_errors32(e, x, elements + 4 * i, codes + i, 32);
        if (i < n) bsn_log_errors32(e, x, elements + 4 * i, codes + i, n - i);
        return;
    }
    (void)bsn_log_elements(x, room, codes, n);
    bsn_errors_measure(e, &x->type, elements, room, codes, 1, n);
}

/* Sums the errors up, from the lowest octave: then rounding loses nothing above the last stored bit, which is
 * rounded up. So a square may also be counted, multiplied, in a lower octave. */
static bsn_certificate bsn_errors_certify(const bsn_errors *e, const bsn_octaves *o, uint64_t exact)
{
    bsn_certificate x;
    bsn_real squares = { 0, 0 };
    unsigned i, k;
    memset(&x, 0, sizeof x);
    x.counted = e->counted;
    x.exact = exact;
    x.relative_sum = e->relative_sum;
    x.relative = e->relative;
    for (i = 0; i < o->count; i++) {
        const int unit = o->lowest + (int)i - 23;
        uint64_t largest;
        uint64_t sum = e->squares[i];
        if (o->width == 4 && i > 22)
            for (k = 0; k < 4; k++) sum += e->banks[k][i - 22];
        if (!sum && !e->largest[i]) continue;
        squares = bsn_real_sum(squares, bsn_real_of(sum, 2 * unit + 7));
        largest = bsn_real_store(bsn_real_of(e->largest[i], unit));
        if (x.absolute < largest) x.absolute = largest;
    }
    x.squares = bsn_real_store(squares);
    return x;
}

/* ---- scales ---- */

/* A block's elements are those of a matrix from column `begin` of its first row on. */
typedef struct bsn_scales {
    const uint8_t *rows, *columns; /* null: none */
    size_t begin, row_count, column_count;
} bsn_scales;

/* The shape only. `first` is the number of the block's first element in the frame. */
static bsn_scales bsn_scales_shape(uint64_t columns, uint64_t first, size_t n)
{
    bsn_scales s;
    s.rows = s.columns = NULL;
    s.begin = (size_t)(first % columns);
    s.column_count = (size_t)columns;
    s.row_count = (size_t)((first + n - 1) / columns - first / columns + 1);
    return s;
}

/* Of elements i .. i + m - 1: the sum of both scales, in eighths of an octave. */
static void bsn_scales_get(const bsn_scales *s, uint32_t *out, size_t i, size_t m)
{
    size_t row = (s->begin + i) / s->column_count, column = (s->begin + i) % s->column_count, j;
    for (; m; row++, column = 0) {
        const size_t some = bsn_min(m, s->column_count - column);
        const uint32_t of_row = s->rows ? s->rows[row] : 0;
        for (j = 0; j < some; j++) out[j] = of_row + (s->columns ? s->columns[column + j] : 0u);
        out += some;
        m -= some;
    }
}

/* The code that is to be expected, above some lowest one. */
BSN_INLINE uint32_t bsn_expected(uint32_t scale, unsigned bins) { return (bins * scale + 4) >> 3; }

typedef struct bsn_mean {
    int64_t sum;
    uint32_t count;
    int32_t mean; /* in sixteenths of a bin */
} bsn_mean;

static void bsn_means(bsn_mean *x, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++) x[i].mean = x[i].count ? (int32_t)(x[i].sum / (int64_t)x[i].count) : 0;
}

/* Makes scales of means: their distance above the smallest mean. */
static void bsn_scales_round(uint8_t *scales, const bsn_mean *x, size_t n, unsigned bins)
{
    const uint32_t octave = 16 * bins;
    int32_t least = INT32_MAX;
    size_t i;
    for (i = 0; i < n; i++)
        if (x[i].count && x[i].mean < least) least = x[i].mean;
    for (i = 0; i < n; i++) {
        const uint32_t scale = x[i].count ? (uint32_t)((8 * (int64_t)(x[i].mean - least) + octave / 2) / octave) : 0;
        scales[i] = (uint8_t)(scale < 255 ? scale : 255);
    }
}

/* The sums of up to 64 columns from `begin` on, less the means of the rows. A number of an octave and 16 rows
 * fit 32 bits. */
static void bsn_scales_sum(const bsn_scales *s, bsn_mean *columns, const bsn_mean *rows, size_t begin, const uint32_t *codes,
        size_t n)
{
    const size_t end = bsn_min(begin + 64, s->column_count);
    int64_t total[64], mean_sum = 0; /* mean_sum: of rows without zeros and exact elements, usually all */
    int32_t sum[64];
    uint32_t count[64], whole = 0;
    size_t row, j;
    memset(total, 0, sizeof total);
    memset(count, 0, sizeof count);
    memset(sum, 0, sizeof sum);
    for (row = 0; row < s->row_count; row++) {
        const size_t before = row * s->column_count; /* and s->begin elements less */
        const size_t first = row ? begin : begin > s->begin ? begin : s->begin, last = bsn_min(end, n + s->begin - before);
        const int32_t mean = rows[row].mean;
        if (last - first == 64 && first < last && row && rows[row].count == s->column_count) {
            const uint32_t *of = codes + (before + begin - s->begin);
            for (j = 0; j < 64; j++) sum[j] += (int32_t)(of[j] >> 1 << 4);
            mean_sum += mean;
            whole++;
        } else {
            for (j = first; j < last; j++) {
                const uint32_t u = codes[before + j - s->begin] >> 1;
                sum[j - begin] += u >= BSN_CODE_FIRST ? (int32_t)(16 * u) - mean : 0;
                count[j - begin] += u >= BSN_CODE_FIRST;
            }
        }
        if (row % 16 != 15 && row + 1 < s->row_count) continue;
        for (j = 0; j < 64; j++) total[j] += sum[j];
        memset(sum, 0, sizeof sum);
    }
    for (j = begin; j < end; j++) {
        columns[j].sum = total[j - begin] - mean_sum;
        columns[j].count = count[j - begin] + whole;
    }
}

/* Fits scales to codes: a row has the mean of its numbers' logarithms, a column the mean of what is left.
 * `means` has room for both, and so have the scales, which become s->rows and s->columns. */
static void bsn_scales_fit(bsn_scales *s, uint8_t *scales, bsn_mean *means, const uint32_t *codes, size_t n, unsigned bins)
{
    bsn_mean *rows = means, *columns = means + s->row_count;
    size_t i, j, row;
    memset(means, 0, s->row_count * sizeof *means);
    for (i = row = 0; i < n; row++) {
        const size_t end = bsn_min(n, (row + 1) * s->column_count - s->begin);
        while (i < end) {
            const size_t stop = bsn_min(end, i + 256); /* 256 numbers fit 32 bits */
            uint32_t sum = 0, count = 0;
            for (j = i; j < stop; j++) {
                const uint32_t u = codes[j] >> 1;
                sum += u >= BSN_CODE_FIRST ? u : 0;
                count += u >= BSN_CODE_FIRST;
            }
            rows[row].sum += 16 * (int64_t)sum;
            rows[row].count += count;
            i = stop;
        }
    }
    bsn_means(rows, s->row_count);
    for (i = 0; i < s->column_count; i += 64) bsn_scales_sum(s, columns, rows, i, codes, n);
    bsn_means(columns, s->column_count);
    bsn_scales_round(scales, rows, s->row_count, bins);
    bsn_scales_round(scales + s->row_count, columns, s->column_count, bins);
    s->rows = scales;
    s->columns = scales + s->row_count;
}

/* Codes, less what the scales let expect, counted in bins of 2^shift. Nothing is expected above 64
 * octaves. */
#define BSN_CODE_COUNTS 4096u

typedef struct bsn_code_counts {
    uint32_t count[BSN_CODE_COUNTS];
    uint32_t coded;  /* codes counted: without those of zeros and of exact elements */
    unsigned shift;
    int32_t below;   /* the distance of the first count below 0 */
} bsn_code_counts;

/* s null: no scales. */
static void bsn_codes_count(bsn_code_counts *x, const bsn_octaves *o, unsigned bins, const bsn_scales *s, const uint32_t *codes, size_t n,
                           int sampled)
{
    uint32_t scale[64], span = 0, coded = 0;
    size_t i, j;
    memset(x, 0, sizeof *x);
    x->below = 64 * (int32_t)bins;
    while ((BSN_CODE_FIRST + (o->count + 64) * bins) >> x->shift >= BSN_CODE_COUNTS) x->shift++;
    for (; (i = 64 * (sampled ? bsn_sample_group(span, 3) : span)) < n; span++) {
        const size_t m = bsn_min(64, n - i);
        if (s) bsn_scales_get(s, scale, i, m);
        for (j = 0; j < m; j++) scale[j] = (uint32_t)x->below - (s ? bsn_expected(scale[j], bins) : 0);
        for (j = 0; j < m; j++) {
            const uint32_t u = codes[i + j] >> 1, is_coded = u >= BSN_CODE_FIRST;
            x->count[(u + scale[j]) >> x->shift] += is_coded;
            coded += is_coded;
        }
    }
    x->coded = coded;
}

/* Returns the lowest code that becomes a word. Lower ones, at most 1 in `of`, are stored exactly, which takes
 * at most the bits that more symbols would take. */
static int32_t bsn_codes_base(const bsn_code_counts *x, uint32_t of)
{
    uint32_t sum = 0, bin;
    if (!x->coded) return 0;
    for (bin = 0; sum + x->count[bin] <= x->coded / of; bin++) sum += x->count[bin];
    return (int32_t)(bin << x->shift) - x->below - (int32_t)BSN_CODE_FIRST;
}

/* ---- words ---- */

/* Elements from i on, at most m, that are of one row: how many. p gets their scales; s null: none. */
BSN_INLINE size_t bsn_row_set(bsn_row *p, const bsn_scales *s, size_t i, size_t m)
{
    size_t row, column;
    p->columns = NULL;
    p->row = 0;
    if (!s || !s->rows) return m;
    row = (s->begin + i) / s->column_count;
    column = (s->begin + i) % s->column_count;
    p->row = s->rows[row];
    p->columns = s->columns + column;
    return bsn_min(m, s->column_count - column);
}

BSN_INLINE void bsn_row_expected(const bsn_row *p, uint32_t *expected, size_t i, size_t n)
{
    const uint16_t bins = (uint16_t)p->log->bins;
    size_t j;
    if (p->columns) {
        for (j = 0; j < n; j++) expected[j] = ((uint32_t)bins * (uint16_t)(p->row + p->columns[i + j]) + 4) >> 3;
    } else {
        for (j = 0; j < n; j++) expected[j] = bsn_expected(p->row, bins);
    }
}

/* Makes words from codes. Changes codes below the base to BSN_CODE_EXACT. Returns their number. */
BSN_INLINE size_t bsn_log_words(const bsn_row *p, uint32_t *words, uint32_t *codes, size_t n)
{
    uint32_t expected[64], exact = 0;
    const unsigned signs = p->signs;
    size_t i, j;
    for (i = 0; i < n; i += 64) {
        const size_t m = bsn_min(64, n - i);
        bsn_row_expected(p, expected, i, m);
        for (j = 0; j < m; j++) {
            const uint32_t code = codes[i + j], u = code >> 1;
            const int32_t above = (int32_t)(u - expected[j] - p->base);
            const uint32_t low = u < BSN_CODE_FIRST ? u : (uint32_t)BSN_CODE_EXACT;
            const uint32_t word = u < BSN_CODE_FIRST || above < (int32_t)BSN_CODE_FIRST ? low : (uint32_t)above;
            exact += word == BSN_CODE_EXACT;
            words[i + j] = word << signs | (code & signs);
            codes[i + j] = word == BSN_CODE_EXACT ? BSN_CODE_EXACT << 1 : code;
        }
    }
    return exact;
}

/* The row from its element i on. */
BSN_INLINE bsn_row bsn_rest_of(const bsn_row *p, size_t i)
{
    bsn_row rest = *p;
    if (rest.columns) rest.columns += i;
    return rest;
}

static size_t bsn_scalar_log_words(const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, size_t n,
                                   uint8_t *room)
{
    uint32_t codes[64];
    size_t i, exact = 0;
    if (!e) bsn_log_codes(p->log, words, elements, n);
    for (i = 0; e && i < n; i += 64) {
        const size_t m = bsn_min(64, n - i);
        const bsn_row row = bsn_rest_of(p, i);
        bsn_log_codes(p->log, codes, elements + 4 * i, m);
        exact += bsn_log_words(&row, words + i, codes, m);
        bsn_log_errors(e, p->log, elements + 4 * i, codes, m, room);
    }
    return exact;
}

/* Makes the words of at most BSN_CHUNK elements of one row, and adds their errors. `codes` has their codes,
 * or is null if a kernel does not need them. `room` is scratch for the codes of n elements. */
static size_t bsn_log_words_by(const bitsnap_kernels *kernels, const bsn_row *p, bsn_errors *e, uint32_t *words, uint32_t *codes,
                               const uint8_t *elements, size_t n, uint8_t *room)
{
    size_t exact;
    if (!codes || (bsn_has(kernels, BSN_LOGS) && bsn_log_is_usual(p->log)))
        return kernels->log_words(p, e, words, elements, n, room);
    exact = bsn_log_words(p, words, codes, n);
    bsn_log_errors(e, p->log, elements, codes, n, room);
    return exact;
}

/* A word u decodes to number u + base - BSN_CODE_FIRST + the expected number, modulo 2^32. Returns a limit
 * for u. Below it a sum that is less than bins * octaves did not wrap. */
BSN_INLINE uint32_t bsn_row_limit(const bsn_row *p)
{
    const int64_t base = (int64_t)p->base - ((int64_t)(p->base >> 31) << 32); /* its sign */
    const int64_t limit = (int64_t)p->log->bins * p->log->type.count + BSN_CODE_FIRST - base;
    return limit < 0 ? 0 : (uint32_t)limit;
}

/* Makes elements from words of 4 native bytes; 0 for those that are stored exactly, which are counted in
 * *apart. Returns 0 if a word has no number. */
BSN_INLINE int bsn_log_numbers_loop(const bsn_row *p, uint8_t *elements, const uint8_t *words, size_t n, size_t *apart,
        unsigned width)
{
    const bsn_log *x = p->log;
    const uint32_t end = x->bins * x->type.count, limit = bsn_row_limit(p), bins = x->bins;
    const unsigned signs = p->signs;
    uint32_t expected[64];
    int good = 1;
    size_t i, j;
    for (i = 0; i < n; i += 64) {
        const size_t m = bsn_min(64, n - i);
        bsn_row_expected(p, expected, i, m);
        for (j = 0; j < m; j++) {
            const uint32_t word = (uint32_t)bsn_element_load(words + 4 * (i + j), 4), u = word >> signs;
            const uint32_t q = u + p->base - BSN_CODE_FIRST + expected[j];
            uint64_t number = 0;
            if (BSN_LIKELY(u >= BSN_CODE_FIRST)) {
                if (u >= limit || q >= end) return 0;
                if (width == 4 && BSN_LIKELY(q >= 23 * bins)) { /* the usual case, simplified */
                    const uint32_t octave = (uint32_t)(q * x->reciprocal >> 40);
                    number = ((octave - 22) << 23) + x->normal[q - octave * bins];
                } else {
                    number = bsn_log_number(x, q);
                    good &= number != 0;
                }
            } else {
                *apart += u;
            }
            bsn_element_store(elements + (i + j) * width, number | (uint64_t)(signs & word) << (8 * width - 1), width);
        }
    }
    return good;
}

static int bsn_scalar_log_numbers(const bsn_row *p, uint8_t *elements, const uint8_t *words, size_t n, size_t *apart)
{
    int good = 0;
    BSN_FLOATS(p->log->type.width, good = bsn_log_numbers_loop, (p, elements, words, n, apart));
    return good;
}

static int bsn_log_numbers_by(const bitsnap_kernels *kernels, const bsn_row *p, uint8_t *elements, const uint8_t *words,
        size_t n, size_t *apart)
{
    if (bsn_log_is_usual(p->log)) return kernels->log_numbers(p, elements, words, n, apart);
    return bsn_scalar_log_numbers(p, elements, words, n, apart);
}

/* Copies the `count` of n elements that their words mark as exact: to `packed`, where they follow each other,
 * or from there. */
static void bsn_move_exact(const uint32_t *words, size_t n, unsigned signs, uint8_t *elements, uint8_t *packed, size_t count,
                           unsigned width, int pack)
{
    size_t i, j, end;
    for (i = 0; count && i < n; i = end) {
        uint32_t some = 0; /* most groups have none */
        end = bsn_min(n, i + 64);
        for (j = i; j < end; j++) some |= words[j] >> signs == BSN_CODE_EXACT;
        for (j = i; some && count && j < end; j++) {
            uint8_t *element = elements + j * width;
            if (words[j] >> signs != BSN_CODE_EXACT) continue;
            bsn_copy_little_endian(pack ? packed : element, pack ? element : packed, 1, width);
            packed += width;
            count--;
        }
    }
}

/* Decides whether kernels may compute the numbers of 15-bit words in 16 bits. With n bins, x = u + expected +
 * base - BSN_CODE_FIRST - 22n is in [n, 255n) if the number is normal, and floor(x / n) is its exponent.
 * Other x must not be in that range modulo 2^16 either. x times the factor, which is rounded up by less than
 * 1, divided by 2^(16 + shift) is floor(x / n), since 255n * n is at most that divisor. Larger x have no
 * smaller quotients. */
#define BSN_JOIN_BINS 118u
#define BSN_JOIN_SHIFT(bins) bsn_log2((bins) - 1)
#define BSN_JOIN_FACTOR(bins) (((UINT32_C(65536) << BSN_JOIN_SHIFT(bins)) + (bins) - 1) / (bins))

static int bsn_log_joins(const bitsnap_kernels *kernels, const bsn_row *p, int scaled)
{
    const int32_t bins = (int32_t)p->log->bins, most = (1 << 15) - 1 + (scaled ? (int32_t)bsn_expected(510, p->log->bins) : 0);
    const int64_t least = (int64_t)p->base - ((int64_t)(p->base >> 31) << 32) - BSN_CODE_FIRST - 22 * bins;
    return bsn_has(kernels, BSN_LOGS) && bsn_log_is_usual(p->log) && p->log->bins <= BSN_JOIN_BINS &&
           least > 255 * bins - 65536 && least + most < 65536 + bins;
}

/* Without scales a word has the same number everywhere. If there is no kernel, words below this are looked up
 * in a table. */
#define BSN_TABLE_MOST 8192u
#define BSN_NO_NUMBER UINT32_C(0x7F800000)

/* Fills the table for F32 and the words below `count`. BSN_NO_NUMBER: the word has no number, or its element
 * is stored exactly. */
static void bsn_log_table(const bsn_row *p, uint32_t *table, uint32_t count)
{
    uint32_t words[64], i, j;
    for (i = 0; i < count; i += 64) {
        const size_t m = bsn_min(64, count - i);
        size_t apart = 0;
        for (j = 0; j < m; j++) words[j] = i + j;
        if (bsn_scalar_log_numbers(p, (uint8_t *)(table + i), (const uint8_t *)words, m, &apart) && !apart) continue;
        for (j = 0, apart = 0; j < m; j++, apart = 0)
            if (!bsn_scalar_log_numbers(p, (uint8_t *)(table + i + j), (const uint8_t *)(words + j), 1, &apart) || apart)
                table[i + j] = BSN_NO_NUMBER;
    }
}

/* Returns 0 where a word has none. */
static int bsn_log_look_up(const uint32_t *table, uint8_t *elements, const uint8_t *words, size_t n)
{
    uint32_t any = 0;
    size_t i;
    for (i = 0; i < n; i++) bsn_element_store(elements + 4 * i, table[bsn_element_load(words + 4 * i, 4)], 4);
    for (i = 0; i < n; i++) any |= ((uint32_t)bsn_element_load(elements + 4 * i, 4) & 0x7FFFFFFF) + 0x800000;
    return !(any >> 31);
}

/* ================================================================================= BLOCK
 * Up to 2^20 elements, coded for themselves: a head (form, stored size), a check, raw planes, lists. */

/* Forms. What a new one takes is listed at bsn_forms. */
enum {
    BSN_FORM_STORED = 0, /* the elements, little-endian */
    BSN_FORM_CONST = 1,  /* one element, for a run of cells */
    BSN_FORM_SPLIT = 2,  /* floats: raw planes and a list of symbols */
    BSN_FORM_BYTES = 3,  /* a list for each byte plane */
    BSN_FORM_SAME = 4,   /* with a base: all are as predicted */
    BSN_FORM_CLASSED = 5, /* with a base: differences to the prediction */
    BSN_FORM_SCALED = 6,  /* with columns: less what rows and columns let expect */
    BSN_FORM_QUANTIZED = 7, /* numbers near the elements */
    BSN_FORM_SPARSE = 8,  /* with a base: few are not as predicted */
    BSN_FORM_ZIGZAG = 9,  /* integers of 2 bytes or more: BYTES of their zigzag code */
    BSN_FORM_PARTED = 10, /* two kinds of elements, each in a form of its own */
    BSN_FORM_PATCHED = 11, /* with a base: elements as predicted, and others in a form of their own */
    BSN_FORM_LAST = BSN_FORM_PATCHED /* the highest that is known. All others are those of newer versions */
};

#define BSN_HEAD_SIZE 4u
#define BSN_HALF_SIZE 4u /* of a check: its first bytes, which the index has */
#define BSN_CHECK_SIZE 8u
#define BSN_IDS_SIZE 16u /* in frames with a base: the hashes of the base's and the result's cell */
#define BSN_PREFIX_MOST (BSN_HEAD_SIZE + BSN_CHECK_SIZE + BSN_IDS_SIZE) /* bytes of a block before its body */
#define BSN_LOG2_MIN 6
#define BSN_LOG2_MAX 20
#define BSN_LOG2_DEFAULT 16
#define BSN_LOG2_DELTA 19
#define BSN_LOG2_DELTA_SELF 18 /* one tree for all that a block holds: smaller blocks suit it better */
#define BSN_LOG2_DELTA_BEST 20
#define BSN_LOG2_DELTA_WIDE 17 /* moments are often better off alone, and that in small blocks; level fast: 18 */
#define BSN_LOG2_COLUMNS 18    /* up to here, so that no rest of a few rows is left */
#define BSN_LOG2_LEAF 16
#define BSN_LEAF 65536u /* elements of a leaf of the content id */

/* Bits of a header's flags. */
enum { BSN_FLAG_CHECKS = 1, BSN_FLAG_CONTENT = 2, BSN_FLAG_LOSSY = 4, BSN_FLAG_FOOTER = 8, BSN_FLAG_EXTENSIONS = 128, BSN_FLAGS_NEW = 0x70 };

/* What identifies a frame: all that its header says. bsn_read_header makes it of a header, bsn_plan of an
 * encoder's arguments, bsn_shape_of_info of a bitsnap_info, bsn_list_begin for a list without a frame;
 * everything else copies it whole. The first members of a bitsnap_encoder are these. */
typedef struct bsn_shape {
    bitsnap_dtype dtype;
    unsigned width, block_log2;
    unsigned flags;           /* BSN_FLAG_... */
    unsigned role;            /* of the base: BSN_ROLE_... */
    unsigned bins, clusters; /* of the quantizer; 0: not quantized so */
    uint64_t columns;         /* of the matrix that the elements are; 0: not known */
    uint64_t count;           /* elements */
    uint64_t base_id;         /* with a role; 0: not known */
    uint64_t header_check;    /* goes into every block's check, so that a block belongs to its frame */
    size_t header_size;
    unsigned base_dtype;      /* with a role */
} bsn_shape;

BSN_INLINE int bsn_has_checks(const bsn_shape *s) { return (s->flags & BSN_FLAG_CHECKS) != 0; }

/* What is the same for all blocks of a call. */
typedef struct bsn_context {
    bsn_shape shape;
    const bitsnap_kernels *kernels;
    unsigned room_log2;    /* of the blocks that the scratch is for */
    int level;
    unsigned flags;        /* of the call: BITSNAP_IGNORE_CHECKS, BITSNAP_SELF_CONTAINED */
    const bsn_log *log;    /* null: not quantized by bins */
    int large;             /* are the elements of the call more than the caches hold? */
    int stream;            /* does what is written go past them, as nothing reads it again soon? */
} bsn_context;

BSN_INLINE int bsn_ignores(const bsn_context *c) { return (c->flags & BITSNAP_IGNORE_CHECKS) != 0; }

/* Scratch of one worker. */
typedef struct bsn_work {
    bsn_lists lists;
    bsn_hasher hasher[8];
    bsn_pieces pieces, result;
    int next;                         /* 1: this worker also gets the block after this one */
    uint8_t *elements;                /* a chunk of elements that does not go to the caller directly */
    uint8_t *plane[8];                /* a chunk of each plane */
    bsn_planner *planner;             /* encoding, else null */
    bsn_arena arena;                  /* scratch of a block, which each form lays out anew */
} bsn_work;

/* A block's check covers all of it and its place: XXH3-64 of this record. Raw planes are hashed one by one,
 * the rest in one piece, each while it passes through the cache. The record holds these hashes, 8 bytes each,
 * so a longer check would be no stronger unless they were longer, too. bsn_encode_block and bsn_make_block
 * write the check, bsn_check_block compares it; elsewhere it is read as the seal of a frame. The index has
 * its lower half (bsn_job.check). Other calls of HASH are for content ids, hashes of cells, headers and
 * footers. Another record needs no kernel. Another hash needs `hash`, `start` and `finish` in bitsnap_simd.h,
 * docs/examples/offload/hash.h, and a new version of the format (FORMAT.md 6.1). */
typedef struct bsn_record {
    uint8_t bytes[28 + 16 + 24 + 8 * 9]; /* bsn_record_begin, hashes of cells, the descriptor of SPLIT, 8
                                            planes and a list */
    size_t size;
} bsn_record;

static void bsn_record_begin(bsn_record *r, const bsn_context *c, uint64_t first, uint64_t n, uint32_t head)
{
    bsn_store64(r->bytes, c->shape.header_check);
    bsn_store64(r->bytes + 8, first);
    bsn_store64(r->bytes + 16, n);
    bsn_store32(r->bytes + 24, head);
    r->size = 28;
}

static void bsn_record_hash(bsn_record *r, uint64_t hash)
{
    bsn_store64(r->bytes + r->size, hash);
    r->size += 8;
}

static void bsn_record_bytes(bsn_record *r, const uint8_t *p, size_t n)
{
    memcpy(r->bytes + r->size, p, n);
    r->size += n;
}

/* The hashes of the leaves of a cell, and the cell's own: XXH3 over them. */
typedef struct bsn_leaves {
    uint64_t hash[16];
} bsn_leaves;

#define BSN_LEAF_COUNT(n) (((size_t)(n) + BSN_LEAF - 1) / BSN_LEAF)

/* Elements of a leaf, into its hash, as little-endian bytes. */
static void bsn_leaf_feed(const bitsnap_kernels *kernels, bsn_pieces *leaf, const uint8_t *elements, size_t n, unsigned width)
{
    uint8_t swapped[512];
    size_t i;
    if (!BSN_BIG_ENDIAN) {
        bsn_pieces_add(kernels, leaf, elements, n * width);
        return;
    }
    for (i = 0; i < n; i += 64) {
        const size_t some = bsn_min(64, n - i);
        bsn_copy_little_endian(swapped, elements + i * width, some, width);
        bsn_pieces_add(kernels, leaf, swapped, some * width);
    }
}

/* Elements i .. i + m - 1 of the n of a cell, which come in order and end where a leaf ends or before. */
static void bsn_leaves_add(const bitsnap_kernels *kernels, bsn_pieces *leaf, bsn_leaves *leaves, const uint8_t *elements,
                           size_t i, size_t m, size_t n, unsigned width)
{
    const size_t begin = i & ~(size_t)(BSN_LEAF - 1), end = bsn_min(n, begin + BSN_LEAF);
    if (i == begin) bsn_pieces_begin(leaf, (uint64_t)(end - begin) * width);
    bsn_leaf_feed(kernels, leaf, elements, m, width);
    if (i + m == end) leaves->hash[i / BSN_LEAF] = bsn_pieces_end(leaf);
}

/* All n at once. */
static void bsn_leaves_take(const bitsnap_kernels *kernels, bsn_pieces *leaf, bsn_leaves *leaves, const uint8_t *elements,
                            size_t n, unsigned width)
{
    size_t i;
    for (i = 0; i < n; i += BSN_LEAF)
        bsn_leaves_add(kernels, leaf, leaves, elements + i * width, i, bsn_min(BSN_LEAF, n - i), n, width);
}

static uint64_t bsn_leaves_end(const bitsnap_kernels *kernels, const bsn_leaves *leaves, size_t n)
{
    uint8_t bytes[128];
    size_t i;
    for (i = 0; i < BSN_LEAF_COUNT(n); i++) bsn_store64(bytes + 8 * i, leaves->hash[i]);
    return bsn_hash_of(kernels, bytes, 8 * i);
}

/* ---- scratch of a block ----
 * Each use of scratch has a function that lays it out from the worker's arena. One use follows the other in
 * the same memory. Run dry, the functions say how much scratch a worker needs. */

/* What a call needs its workspace for. */
#define BSN_DECODES 1u
#define BSN_ENCODES 2u
#define BSN_STAGES 4u /* coded blocks may wait until they are moved to their places */
#define BSN_ONE_WORKER 8u
#define BSN_NO_BASE 16u  /* the base is absent, or it is that of another frame: it is not checked */
#define BSN_NO_TABLE 32u /* the quantizer's table is not made */
#define BSN_PUSHES (BSN_DECODES | BSN_ENCODES | BSN_STAGES)

/* Elements of a chunk, of blocks of n; large: with a base, a quantizer or columns. */
#define BSN_CHUNK_OF(n, large) ((large) || (n) > 2048 ? BSN_CHUNK : (n) > 512 ? 2048u : (unsigned)(n))

/* What the scratch for elements has at least: a sample of 256 elements for bsn_zigzags, or 64 bytes of each
 * plane for bsn_write_planes. */
#define BSN_ELEMENTS_LEAST (8 * 256u)

/* Regions of scratch. Each has 64 bytes after it that kernels may read or overwrite, in itself or as the next
 * region. */
typedef struct bsn_rooms {
    uint8_t *lists;       /* decoding: scratch of one list; encoding: of one list in the making */
    uint8_t *kept;        /* decoding: what stays until a list is done */
    uint8_t *planes;      /* byte planes, bsn_plane_room bytes each */
    uint8_t *words;       /* of a cell, or of a block with scales or codes */
    uint8_t *place;       /* decoding: positions of words */
    uint8_t *dealt;       /* encoding: words by class */
    uint8_t *symbols;     /* encoding: of a list of words; after them comes its scratch */
    uint8_t *scales;
    uint8_t *made;        /* applying: a cell */
    bsn_changes *changes;
    bsn_census *census;
    uint32_t *codes;
    bsn_mean *means;
    bsn_errors *errors;
    bsn_code_counts *counts;
    bsn_cluster *clusters;
} bsn_rooms;

/* Scales are tried where rows and columns are long enough to pay for them; this bounds their number. */
#define BSN_ROW_LEAST 16u
#define BSN_COLUMN_LEAST 8u
#define BSN_SCALES_MOST(n) ((n) / BSN_ROW_LEAST + (n) / BSN_COLUMN_LEAST + 4)

BSN_INLINE size_t bsn_plane_room(size_t n) { return (n + 64 + 63) & ~(size_t)63; }

/* Decoding: one list of n symbols. After it BSN_BEHIND bytes must be readable. */
static void bsn_lay_lists(bsn_arena *a, bsn_rooms *x, size_t n)
{
    x->lists = (uint8_t *)bsn_arena_take(a, BSN_LISTS_SIZE(n));
    x->kept = (uint8_t *)bsn_arena_take(a, BSN_KEPT_SIZE(n));
}

/* Decoding BYTES and, of its first plane, SPLIT: the planes are also what can be read after the list. */
static void bsn_lay_planes(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    bsn_lay_lists(a, x, n);
    x->planes = (uint8_t *)bsn_arena_take(a, c->shape.width * bsn_plane_room(n));
}

/* PARTED and PATCHED, both ways: their state, of at most BSN_PARTED_STATE bytes, the mask of elements, and
 * predictions that must be cast. The sides use the scratch of other forms, one after the other. */
#define BSN_PARTED_STATE 2048u
static void bsn_lay_mask(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    x->made = (uint8_t *)bsn_arena_take(a, BSN_PARTED_STATE);
    x->place = (uint8_t *)bsn_arena_take(a, n / 8 + 64 + 64);
    x->words = (uint8_t *)bsn_arena_take(a, c->shape.role > BSN_ROLE_BASE ? n * c->shape.width + 64 : 0);
}

/* Decoding forms without base, quantizer and columns. Both sides of PARTED have planes. */
static void bsn_lay_parted(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    bsn_lay_planes(a, x, c, n);
    (void)bsn_arena_take(a, c->shape.width * bsn_plane_room(64));
    bsn_lay_mask(a, x, c, n);
}

/* Decoding lists of n words. If another thread changes the base, a class may be read up to n words past its
 * end; positions, lists and what must be readable after these are as much. */
static void bsn_lay_words(bsn_arena *a, bsn_rooms *x, size_t n, unsigned width, int scales)
{
    x->words = (uint8_t *)bsn_arena_take(a, n * width + 128);
    x->place = (uint8_t *)bsn_arena_take(a, 4 * n + 64);
    x->scales = scales ? (uint8_t *)bsn_arena_take(a, n + 3 + 64) : NULL;
    bsn_lay_lists(a, x, n);
    (void)bsn_arena_take(a, BSN_BEHIND(n));
}
#define BSN_WORDS_BEHIND(n) (4 * (size_t)(n) + BSN_LISTS_SIZE(n) + BSN_KEPT_SIZE(n) + BSN_BEHIND(n))
BSN_ASSERT(classes_read_inside, BSN_WORDS_BEHIND(64) >= 8 * 64 + 64 && BSN_WORDS_BEHIND(1048576) >= 8 * 1048576 + 64);

/* Decoding CLASSED and applying it: beside the words a cell, for one that an interrupted call left half
 * done. */
static void bsn_lay_classed(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    bsn_lay_words(a, x, n, c->shape.width, 0);
    x->made = (uint8_t *)bsn_arena_take(a, n * c->shape.width + 64);
}

/* Decoding blocks with scales or codes. */
static void bsn_lay_numbers(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    x->clusters = c->shape.clusters ? (bsn_cluster *)bsn_arena_take(a, BSN_CLUSTERS_MOST * sizeof(bsn_cluster)) : NULL;
    bsn_lay_words(a, x, n, c->shape.width > 4 ? c->shape.width : 4, 1);
}

/* Changes of a cell, both ways. */
static void bsn_lay_changes(bsn_arena *a, bsn_rooms *x, size_t n)
{
    uint64_t *word;
    uint32_t *place;
    x->changes = (bsn_changes *)bsn_arena_take(a, sizeof(bsn_changes));
    word = (uint64_t *)bsn_arena_take(a, n / BSN_CHANGES_LEAST * sizeof *word);
    place = (uint32_t *)bsn_arena_take(a, n / BSN_CHANGES_LEAST * sizeof *place + 64);
    if (!x->changes) return;
    x->changes->word = word;
    x->changes->place = place;
}

/* The planes of a block that are in scratch at a time while they are encoded: the symbols of floats, or byte
 * planes. (F64 may take the way of integers.) */
static unsigned bsn_planes_coded(const bsn_context *c)
{
    return bsn_symbol_bits(c->shape.dtype) && c->shape.dtype != BITSNAP_F64 ? 1 : c->shape.width < 4 ? c->shape.width : 4;
}

/* Returns 1 if SPLIT may code planes. */
BSN_INLINE int bsn_may_rank(const bsn_context *c)
{
    return bsn_symbol_bits(c->shape.dtype) && c->shape.width > 1 && c->shape.width <= 4;
}

/* Encoding SPLIT, BYTES and ZIGZAG. After the symbols of SPLIT comes a plane that is coded. */
static void bsn_lay_alone(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    x->planes = (uint8_t *)bsn_arena_take(a, (bsn_planes_coded(c) + (unsigned)bsn_may_rank(c)) * bsn_plane_room(n));
    x->lists = (uint8_t *)bsn_arena_take(a, BSN_WRITE_SIZE(n));
}

/* Returns 1 if PARTED is tried. The elements of a side are stored where the list of its symbols is made
 * later, which has room for 7 bytes of each: too little for F64. */
BSN_INLINE int bsn_may_part(const bsn_context *c) { return bsn_symbol_bits(c->shape.dtype) && c->shape.width <= 4; }

/* Encoding SPLIT, BYTES, ZIGZAG and PARTED. */
static void bsn_lay_parting(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    if (bsn_may_part(c)) bsn_lay_mask(a, x, c, n);
    bsn_lay_alone(a, x, c, n);
}

/* Encoding lists of words: symbols and, directly after them, scratch of their list. It also has room for the
 * sorted numbers of clusters. */
static void bsn_lay_symbols(bsn_arena *a, bsn_rooms *x, size_t n)
{
    x->symbols = (uint8_t *)bsn_arena_take(a, n + 64 + BSN_WRITE_SIZE(n));
}
BSN_ASSERT(sorted_numbers_fit, 64 + BSN_WRITE_SIZE(64) >= 7 * 64 && 64 + BSN_WRITE_SIZE(1048576) >= 7 * 1048576);

/* Encoding with a base. If another thread changes the base after words were counted by class, a class may get
 * all n words: the last one then runs into the symbols, which are not made yet. */
static void bsn_lay_delta(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    x->words = (uint8_t *)bsn_arena_take(a, n * c->shape.width + 64);
    x->dealt = (uint8_t *)bsn_arena_take(a, n * c->shape.width + (BSN_CLASSES + 1) * 64);
    bsn_lay_symbols(a, x, n);
    x->census = (bsn_census *)bsn_arena_take(a, sizeof(bsn_census));
    bsn_lay_changes(a, x, n);
}
BSN_ASSERT(classes_dealt_inside, 64 + 64 + BSN_WRITE_SIZE(64) >= 8 * 64 && 1048576 + BSN_WRITE_SIZE(1048576) >= 8 * 1048576);

/* Encoding blocks with scales or codes. Scales are made before words. So kernels that make words must be
 * exact: after these there are no bytes to overwrite. */
static void bsn_lay_codes(bsn_arena *a, bsn_rooms *x, const bsn_context *c, size_t n)
{
    const size_t scales = c->shape.columns ? BSN_SCALES_MOST(n) : 0;
    x->codes = (uint32_t *)bsn_arena_take(a, n * sizeof *x->codes);
    x->words = (uint8_t *)bsn_arena_take(a, n * (c->shape.width > 4 ? c->shape.width : 4));
    x->scales = (uint8_t *)bsn_arena_take(a, scales);
    x->means = (bsn_mean *)bsn_arena_take(a, scales * sizeof *x->means);
    bsn_lay_symbols(a, x, n);
    x->errors = (bsn_errors *)bsn_arena_take(a, sizeof(bsn_errors));
    x->counts = (bsn_code_counts *)bsn_arena_take(a, sizeof(bsn_code_counts));
    x->clusters = c->shape.clusters ? (bsn_cluster *)bsn_arena_take(a, BSN_CLUSTERS_MOST * sizeof(bsn_cluster)) : NULL;
}

/* Encoding may set a candidate aside while others are made. */
BSN_INLINE int bsn_sets_aside(const bsn_context *c) { return c->shape.role || c->shape.bins || c->shape.clusters; }

/* Scratch that this layout takes. */
static size_t bsn_lay_size(void (*lay)(bsn_arena *, bsn_rooms *, const bsn_context *, size_t), const bsn_context *c, size_t n)
{
    bsn_arena dry = { NULL, BSN_DRY };
    bsn_rooms x;
    lay(&dry, &x, c, n);
    return BSN_DRY - dry.left;
}

BSN_INLINE size_t bsn_larger(size_t a, size_t b) { return a > b ? a : b; }

/* Scratch for blocks of n elements, whatever their forms. */
static size_t bsn_rooms_size(const bsn_context *c, size_t n, unsigned use)
{
    const size_t aside = bsn_sets_aside(c) ? BSN_LINES(n * c->shape.width) : 0;
    const int numbers = c->shape.bins || c->shape.clusters || c->shape.columns;
    size_t most = 0;
    if (use & BSN_DECODES) {
        most = bsn_lay_size(bsn_lay_parted, c, n);
        if (c->shape.role) most = bsn_larger(most, bsn_lay_size(bsn_lay_classed, c, n));
        if (numbers) most = bsn_larger(most, bsn_lay_size(bsn_lay_numbers, c, n));
    }
    if (use & BSN_ENCODES) {
        most = bsn_larger(most, aside + bsn_lay_size(bsn_lay_parting, c, n));
        if (c->shape.role) most = bsn_larger(most, bsn_lay_size(bsn_lay_delta, c, n));
        if (numbers) most = bsn_larger(most, aside + bsn_lay_size(bsn_lay_codes, c, n));
    }
    return most;
}

/* The body of a SPLIT block: a descriptor; the raw planes; the list of symbols. Each byte of an element that
 * has other bits than the symbol's has a byte plane or bit planes, or nothing if these bits are constant. */
typedef struct bsn_layout {
    bsn_field field;
    unsigned planes;      /* bytes of an element that have other bits than the symbol's */
    unsigned shift;       /* bits below the symbol in the top byte */
    uint8_t varying[8];   /* for each byte: the bits that its raw plane stores */
    uint8_t coded[8];     /* for each byte: the bits that are coded by rank */
    uint8_t value[8];     /* for each byte: the value of its other bits */
    uint8_t descriptor[24];
    size_t descriptor_size;
    size_t at[9];         /* where each raw plane begins in the body, then where the list does */
} bsn_layout;

/* Returns the bits of byte k of an element that are neither in the symbol nor unused (F64). */
static unsigned bsn_rest_bits(const bsn_layout *y, unsigned k)
{
    if (y->field.wide) return k == 0 ? 0xF8 : 0xFF;
    return k + 1 == y->field.width ? (1u << y->shift) - 1 : 0xFF;
}

static void bsn_layout_begin(bsn_layout *y, unsigned dtype, unsigned symbol_bits, unsigned base)
{
    unsigned k;
    memset(y, 0, sizeof *y);
    bsn_field_set(&y->field, dtype, symbol_bits, base);
    y->shift = 8 - symbol_bits;
    y->planes = y->field.width - (symbol_bits == 8);
    for (k = 0; k < y->planes; k++) y->varying[k] = (uint8_t)bsn_rest_bits(y, k);
}

/* Where the planes are, once it is clear which bits vary. */
static void bsn_layout_place(bsn_layout *y, size_t n)
{
    unsigned k;
    y->at[0] = y->descriptor_size;
    for (k = 0; k < y->planes; k++)
        y->at[k + 1] = y->at[k] + (y->varying[k] == 0xFF ? n : bsn_bits_size(y->varying[k], n));
}

#define BSN_HAS_CONSTANTS 0x10u
#define BSN_HAS_CODED 0x20u

/* Returns the bits of byte k that have one value in all elements. */
static unsigned bsn_fixed_bits(const bsn_layout *y, unsigned k) { return bsn_rest_bits(y, k) & ~(unsigned)(y->varying[k] | y->coded[k]); }

/* ---- encoding ---- */

/* Which bits of the elements differ from the first element's? Stops as soon as all bits of `interest`, or for
 * interest 0 any bit, are known to. */
static uint64_t bsn_varying_bits(const uint8_t *elements, size_t n, unsigned width, uint64_t interest)
{
    const uint64_t first = bsn_element_load(elements, width);
    uint64_t pattern = 0, differ = 0, x;
    size_t size = n * width, i, j;
    unsigned k, q;
    /* native words of repeated first elements: lanes compare with lanes whatever the byte order */
    for (k = 0; k < 8 / width; k++) bsn_element_store((uint8_t *)&pattern + k * width, first, width);
    for (i = 0; i + 512 <= size; i += 512) {
        uint64_t some[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, any = 0; /* several, as one would wait for itself */
        for (j = 0; j < 512; j += 64) {
            BSN_UNROLL
            for (q = 0; q < 8; q++) {
                memcpy(&x, elements + i + j + 8 * q, 8);
                some[q] |= x ^ pattern;
            }
        }
        for (q = 0; q < 8; q++) any |= some[q];
        for (k = 0; k < 8 / width; k++) differ |= bsn_element_load((const uint8_t *)&any + k * width, width);
        if (interest ? (differ & interest) == interest : differ != 0) return differ;
    }
    for (; i < size; i += width) differ |= bsn_element_load(elements + i, width) ^ first;
    return differ;
}

/* Chooses the base of F64 exponents: the highest symbol is 255. Returns 0 where they lie too far apart. */
static int bsn_choose_base(const uint8_t *elements, size_t n, unsigned *base)
{
    unsigned lowest = 2048, highest = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const unsigned exponent = (unsigned)(bsn_element_load(elements + 8 * i, 8) >> 52) & 0x7FF;
        if (exponent > highest) highest = exponent;
        if (exponent && exponent < lowest) lowest = exponent;
    }
    *base = highest > 255 ? highest - 255 : 0;
    return lowest > *base;
}

/* Returns the most bits that a symbol of a float may have at this level; 0 for integers. If the byte below
 * the sign also has mantissa bits, coding the first of them saves bytes, because small weights outnumber
 * large ones within an octave: 0.7 to 0.8 % of F8; of F16 half of that, at up to twice the time. */
static unsigned bsn_most_symbol_bits(const bsn_context *c)
{
    const unsigned usual = bsn_symbol_bits(c->shape.dtype);
    if (!usual || usual == 8 || c->level == BITSNAP_FAST) return usual;
    if (c->level == BITSNAP_DEFAULT) return c->shape.width == 1 ? usual + 1 : usual;
    return c->shape.width == 1 ? 7 : 8;
}


/* What goes into a block of a frame with a base. */
typedef struct bsn_ids {
    bsn_leaves base, result;
    uint64_t base_hash, result_hash;
    const uint8_t *cell; /* encoding: the base of the first element; null: only forms without a base, and no
                            hashes */
} bsn_ids;

/* A candidate that has been made, in its record what its check covers. */
typedef struct bsn_candidate {
    bsn_record record;
    size_t size;
    unsigned form;
} bsn_candidate;

/* The encoding of one block. A candidate is a body in one form; the function of the form writes it to
 * `body`. */
typedef struct bsn_coding {
    bsn_work *work;
    const bsn_context *context;
    const uint8_t *elements;
    size_t n;
    uint64_t first;       /* number of the first element in the frame */
    bsn_ids *ids;         /* hashes of base and result; null in a frame without a base */
    bsn_arena arena;      /* scratch of the candidate, */
    bsn_rooms delta;      /* or of words and changes */
    uint8_t *body, *end;  /* the candidate that is written, and its limit */
    size_t room;          /* bytes that the caller has at `body` */
    bsn_candidate made;   /* the best one, or the one that is written */
    bsn_record begun;     /* its record, without a body */
    uint64_t constant;    /* SPLIT: bits that most likely have one value in all elements */
    uint8_t coded[8];     /* SPLIT: the bits of each plane that are coded, as bsn_choose_coded found them */
    int plain;            /* SPLIT: 1 if all planes stay raw */
    int side;             /* SPLIT: 1 if it is a side of PARTED: only the plane below the top one may be
                             coded */
    unsigned exponent;    /* SPLIT of F64: the lowest exponent, less 1 */
    uint64_t any;         /* CLASSED: the OR of all words */
    uint64_t low;         /* PARTED: elements are of side 1 if these bits are 0 */
    unsigned granule;     /* and, if this is 3, all others of a granule are, too; else 0 */
    int patched;          /* PATCHED: the first byte of the body; -1 if it is not tried */
    bsn_piece piece;      /* SPARSE: how changes are coded */
} bsn_coding;

static void bsn_writer_begin(bsn_writer *wr, bsn_work *w, const bsn_context *c, uint8_t *at, uint8_t *end, uint8_t *scratch)
{
    memset(wr, 0, sizeof *wr);
    wr->kernels = c->kernels;
    wr->lists = &w->lists;
    wr->planner = w->planner;
    wr->at = at;
    wr->end = end;
    wr->scratch = scratch;
    wr->level = c->level;
}

/* A body is complete and ends at `end`. The check covers it as one piece. */
static int bsn_produced(bsn_coding *e, const uint8_t *end)
{
    const bsn_context *c = e->context;
    e->made.size = (size_t)(end - e->body);
    if (bsn_has_checks(&c->shape)) bsn_record_hash(&e->made.record, bsn_hash_of(c->kernels, e->body, e->made.size));
    return 1;
}

/* Likewise, unless the writer found no room. */
static int bsn_written(bsn_coding *e, const bsn_writer *wr) { return !wr->full && bsn_produced(e, wr->at); }

/* A writer of lists to the candidate's body, from byte `at` on. */
static void bsn_coding_writer(bsn_writer *wr, bsn_coding *e, size_t at, uint8_t *scratch)
{
    bsn_writer_begin(wr, e->work, e->context, e->body + at, e->end, scratch);
}

/* Zigzag code: 0, -1, 1, -2, 2, ... become 0, 1, 2, 3, 4, ... (what is above bit `most` means nothing). */
BSN_INLINE uint64_t bsn_zigzag_of(uint64_t x, unsigned most) { return (x << 1) ^ (0 - (x >> most)); }

/* That of elements, as the words of what is 0 elsewhere; back: what they are the code of. In place, or
 * elsewhere. */
static void bsn_zigzag(uint8_t *to, const uint8_t *from, size_t n, unsigned width, int back)
{
    static const uint8_t zeros[512] = { 0 };
    size_t i, m;
    for (i = 0; i < n; i += m, to += m * width, from += m * width) {
        m = bsn_min(sizeof zeros / width, n - i);
        if (back) bsn_add(to, zeros, from, m, width);
        else (void)bsn_subtract_rest(width, to, from, zeros, m);
    }
}

/* m elements, zigzagged or not, into planes. */
static void bsn_split_bytes(bsn_work *w, const bsn_context *c, const bsn_field *field, uint8_t *const plane[8],
                            const uint8_t *elements, size_t m, int zigzag)
{
    if (zigzag) bsn_zigzag(w->elements, elements, m, c->shape.width, 0);
    bsn_split(c->kernels, field, plane, zigzag ? w->elements : elements, m);
}

/* Splits all elements, zigzagged or not. Planes first .. first + count - 1 go to `to`, each
 * bsn_plane_room(n) bytes after the one before. */
BSN_FUNCTION void bsn_split_planes(bsn_coding *e, const bsn_field *field, uint8_t *to, unsigned first, unsigned count, int zigzag)
{
    const size_t n = e->n;
    uint8_t *plane[8];
    size_t i;
    unsigned q;
    for (i = 0; i < n; i += BSN_CHUNK) {
        for (q = 0; q < 8; q++)
            plane[q] = q - first < count ? to + (q - first) * bsn_plane_room(n) + i : e->work->plane[q];
        bsn_split_bytes(e->work, e->context, field, plane, e->elements + i * field->width, bsn_min(BSN_CHUNK, n - i), zigzag);
    }
}

/* Chooses how many it should have. Level best weighs all numbers by exact counts; these stay in
 * planner->count if *counted is 1. `symbols` is scratch of n bytes. */
BSN_FUNCTION unsigned bsn_choose_symbol_bits(bsn_coding *e, uint8_t *symbols, int *counted)
{
    const bsn_context *c = e->context;
    const size_t n = e->n;
    const unsigned usual = bsn_symbol_bits(c->shape.dtype), most = bsn_most_symbol_bits(c);
    bsn_planner *x = e->work->planner;
    uint32_t *count = x->count, folded[256];
    uint64_t best = BSN_NEVER;
    unsigned bits, chosen = usual, s;
    bsn_field field;
    *counted = c->level == BITSNAP_BEST && usual < most;
    if (!*counted) return most;
    bsn_field_set(&field, c->shape.dtype, most, 0);
    bsn_split_planes(e, &field, symbols, c->shape.width - 1, 1, 0);
    bsn_count_bytes(c->kernels, x, symbols, n);
    for (bits = usual; bits <= most; bits++) {
        uint64_t all;
        memset(folded, 0, sizeof folded);
        for (s = 0; s < 256; s++) folded[s >> (8 - bits)] += count[s];
        all = bsn_choose_exact(x, x->length, folded, (uint32_t)n, 8, 8, 1, BSN_NEVER);
        if (all == BSN_NEVER) continue;
        all += (8 - bits) * (uint64_t)n;
        if (all < best) {
            best = all;
            chosen = bits;
        }
    }
    memset(folded, 0, sizeof folded);
    for (s = 0; s < 256; s++) folded[s >> (8 - chosen)] += count[s];
    memcpy(count, folded, sizeof folded);
    return chosen;
}

/* Do these bits of n bytes have this value? */
static int bsn_bits_hold(const uint8_t *bytes, size_t n, unsigned bits, unsigned value)
{
    bsn_wide ones = bsn_wide_all(0), zeros = ones;
    unsigned all = 0, k;
    size_t i;
    for (i = 0; i + 8 * BSN_WIDE <= n; i += 8 * BSN_WIDE) {
        BSN_UNROLL
        for (k = 0; k < 8; k++) {
            const bsn_wide x = bsn_wide_load(bytes + i + k * BSN_WIDE) ^ (BSN_ONES * value);
            if (k & 1) ones |= x;
            else zeros |= x;
        }
    }
    ones |= zeros;
    for (; i < n; i++) all |= bytes[i] ^ value;
    return !(bsn_wide_any(ones) & (BSN_ONES * bits)) && !(all & bits);
}

/* Returns the plane whose bits the kernels `start` and `finish` take and put: the one with the bits below the
 * symbol, or the third plane of F32 if they can (`third`); `none` if there is no such plane. */
BSN_INLINE unsigned bsn_plane_of_bits(const bsn_layout *y, unsigned top, unsigned none, int third)
{
    if (third && y->planes == 3 && y->varying[2] && y->varying[2] != 0xFF && !y->coded[2]) return 2;
    return y->planes > top ? top : none;
}


/* The layout and descriptor of a SPLIT block of n elements like this one, if bits of `constant` do not vary.
 * coded: bits of each plane that are coded; null: none. */
static void bsn_layout_write(bsn_layout *y, unsigned dtype, unsigned symbol_bits, unsigned base, uint64_t constant,
                             const uint8_t *coded, uint64_t element, size_t n)
{
    unsigned k;
    bsn_layout_begin(y, dtype, symbol_bits, base);
    y->descriptor[0] = (uint8_t)symbol_bits;
    y->descriptor_size = 1;
    if (constant) {
        const uint64_t value = bsn_field_split(&y->field, element);
        const uint64_t where = y->field.wide ? ((constant >> 63) << 55) | ((constant & UINT64_C(0xFFFFFFFFFFFFF)) << 3)
                                             : (constant & y->field.low) | ((constant & y->field.sign) >> symbol_bits);
        for (k = 0; k < y->planes; k++) {
            const unsigned fixed = (unsigned)(where >> (8 * k)) & y->varying[k];
            y->varying[k] = (uint8_t)(y->varying[k] & ~fixed);
            y->value[k] = (uint8_t)((unsigned)(value >> (8 * k)) & fixed);
            if (fixed) y->descriptor[0] |= BSN_HAS_CONSTANTS;
        }
        if (y->descriptor[0] & BSN_HAS_CONSTANTS) {
            memcpy(y->descriptor + 1, y->varying, y->planes);
            memcpy(y->descriptor + 1 + y->planes, y->value, y->planes);
            y->descriptor_size += 2 * y->planes;
        }
    }
    if (y->field.wide) {
        y->descriptor[y->descriptor_size++] = (uint8_t)base;
        y->descriptor[y->descriptor_size++] = (uint8_t)(base >> 8);
    }
    if (coded) y->descriptor[0] |= BSN_HAS_CODED;
    for (k = 0; k < y->planes && coded; k++) {
        y->coded[k] = y->descriptor[y->descriptor_size++] = coded[k];
        y->varying[k] &= (uint8_t)~coded[k];
    }
    bsn_layout_place(y, n);
}

/* A block that is being split into raw planes, which go to the body, and symbols. */
typedef struct bsn_splitting {
    bsn_work *work;
    const bsn_context *context;
    const bsn_layout *layout;
    uint8_t *body, *symbols;
    bsn_ahead *ahead;
    bsn_start start;
    uint8_t *plane[8];    /* where the planes of this chunk go: the body, or scratch */
    uint8_t (*tail)[64];  /* the last 64 bytes of each plane, for bsn_lines_next; work->elements has no other
                             use here */
    unsigned within;      /* the plane whose bits `start` takes */
    int at_once;          /* 1 as long as the kernel `start` splits chunks */
    int lines;            /* 1 if whole planes of this chunk are stored by cache lines */
} bsn_splitting;

BSN_INLINE int bsn_splits_whole(const bsn_splitting *s, unsigned k) { return s->layout->varying[k] == 0xFF; }

/* Chooses where the planes of elements i .. i + m - 1 of n go. `lines`: whether whole planes are stored by
 * lines from now on. */
static void bsn_split_place(bsn_splitting *s, size_t i, size_t m, size_t n, int lines)
{
    const bsn_layout *y = s->layout;
    unsigned k;
    for (k = 0; k < 8; k++)
        s->plane[k] = k < y->planes && bsn_splits_whole(s, k) && !lines ? s->body + y->at[k] + i : s->work->plane[k];
    if (s->lines && !lines)
        for (k = 0; k < y->planes; k++)
            if (bsn_splits_whole(s, k)) bsn_lines_end(s->tail[k], s->plane[k]);
    s->lines = lines;
    /* lines that the next chunk writes by way of the caches */
    for (k = 0; k < y->planes && s->context->large; k++) {
        const size_t from = bsn_bits_size(y->varying[k], i + m);
        if (!bsn_splits_whole(s, k))
            bsn_prefetch_near(s->body + y->at[k] + from, bsn_bits_size(y->varying[k], bsn_min(i + m + BSN_CHUNK, n)) - from);
    }
    if (y->planes == s->context->shape.width - 1) s->plane[s->context->shape.width - 1] = s->symbols + i;
}

/* Splits a chunk by the kernel `start`, which also hashes planes, takes bits and stores lines. Returns what
 * the kernel does. */
static int bsn_split_start(bsn_splitting *s, const uint8_t *elements, size_t i, size_t m, int hashing)
{
    const bsn_context *c = s->context;
    const bsn_layout *y = s->layout;
    const unsigned top = c->shape.width - 1;
    const size_t part = m / (c->shape.width == 4 ? 32 : 128);
    bsn_start *start = &s->start;
    unsigned k;
    int done;
    for (k = 0; k < top; k++) {
        const int whole = bsn_splits_whole(s, k);
        start->tail[k] = whole && s->lines && i ? s->tail[k] : NULL;
        start->plane[k] = start->tail[k] ? s->body + y->at[k] + i : s->plane[k];
        start->state[k] = whole && hashing ? s->work->hasher[k].state : NULL;
    }
    start->plane[top] = s->symbols + i;
    start->bits = NULL;
    if (s->within < c->shape.width) {
        start->varying = y->varying[s->within];
        start->value = y->value[s->within];
        start->bits = s->body + y->at[s->within] + bsn_bits_size(start->varying, i);
    }
    start->ahead_lines = s->ahead->line + part <= s->ahead->lines ? part : 0;
    done = c->kernels->start(start, elements + i * c->shape.width, m);
    if (done && done != BSN_START_DIFFERS) s->ahead->line += start->ahead_lines;
    return done;
}

/* What `start` leaves to do for its chunk. Returns 0 if a bit varies that the layout calls constant. */
static int bsn_split_started(bsn_splitting *s, size_t i, size_t m)
{
    const bsn_context *c = s->context;
    const bsn_layout *y = s->layout;
    const unsigned top = c->shape.width - 1;
    unsigned k;
    for (k = 0; k < y->planes; k++) {
        uint8_t *to = s->body + y->at[k];
        if (k < top && bsn_splits_whole(s, k)) {
            s->work->hasher[k].stripes = (i + m) / 64;
            if (s->lines && !i) bsn_lines_next(s->tail[k], to, s->plane[k], m, 1, c->stream);
            continue;
        }
        if (k < top && k != s->within) {
            if (!bsn_bits_hold(s->plane[k], m, bsn_fixed_bits(y, k), y->value[k])) return 0;
            bsn_bits_take(c->kernels, to + bsn_bits_size(y->varying[k], i), s->plane[k], y->varying[k], m);
        }
        if (bsn_has_checks(&c->shape)) bsn_hash_feed(c->kernels, &s->work->hasher[k], to, bsn_bits_size(y->varying[k], i + m));
    }
    return 1;
}

/* Splits a chunk, step by step. Returns 0 if a bit varies that the layout calls constant. */
static int bsn_split_chunk(bsn_splitting *s, const uint8_t *elements, size_t i, size_t m)
{
    const bsn_context *c = s->context;
    const bsn_layout *y = s->layout;
    const unsigned top = c->shape.width - 1;
    const size_t part = s->at_once ? 0 : m * c->shape.width / 128 / (y->planes + 1);
    size_t j;
    unsigned k;
    bsn_ahead_ask(s->ahead, part);
    bsn_split(c->kernels, &y->field, s->plane, elements + i * c->shape.width, m);
    for (k = 0; k < y->planes; k++) {
        uint8_t *to = s->body + y->at[k];
        const unsigned fixed = bsn_fixed_bits(y, k);
        bsn_ahead_ask(s->ahead, part);
        if (fixed && !bsn_bits_hold(s->plane[k], m, fixed, y->value[k])) return 0;
        if (bsn_splits_whole(s, k)) {
            if (bsn_has_checks(&c->shape) && s->lines) bsn_hash_next(c->kernels, &s->work->hasher[k], s->plane[k], m / 64);
            else if (bsn_has_checks(&c->shape)) bsn_hash_feed(c->kernels, &s->work->hasher[k], to, i + m);
            if (s->lines) bsn_lines_next(s->tail[k], to + i, s->plane[k], m, i == 0, c->stream);
        } else if (y->varying[k]) {
            bsn_bits_take(c->kernels, to + bsn_bits_size(y->varying[k], i), s->plane[k], y->varying[k], m);
            if (bsn_has_checks(&c->shape)) bsn_hash_feed(c->kernels, &s->work->hasher[k], to, bsn_bits_size(y->varying[k], i + m));
        }
    }
    if (y->planes > top) { /* a whole word at a time: there is room after both */
        const uint8_t *from = s->plane[top];
        uint8_t *to = s->symbols + i;
        const unsigned shift = y->shift;
        for (j = 0; j < m; j += BSN_WIDE)
            bsn_wide_store(to + j, (bsn_wide_load(from + j) >> shift) & (BSN_ONES * (0xFFu >> shift)));
    }
    return 1;
}

/* Splits a block into symbols and raw planes, writes the planes to the body and hashes them. Prefetches part
 * of the next block. Returns 0 if a bit varies that the layout calls constant; the caller then begins again.
 * Not inlined: its locals would add to the stack of deltas, the deepest path. */
BSN_FUNCTION int bsn_write_planes(bsn_coding *e, const bsn_layout *y, uint8_t *symbols, bsn_ahead *ahead)
{
    const bsn_context *c = e->context;
    const unsigned top = c->shape.width - 1;
    const size_t n = e->n;
    const int hashing = bsn_has_checks(&c->shape) && n > 240;
    bsn_splitting s;
    size_t i, m;
    unsigned k;
    s.work = e->work;
    s.context = c;
    s.layout = y;
    s.body = e->body;
    s.symbols = symbols;
    s.ahead = ahead;
    s.tail = (uint8_t (*)[64])(void *)e->work->elements;
    s.within = bsn_plane_of_bits(y, top, c->shape.width, 1);
    s.at_once = bsn_has(c->kernels, BSN_STARTS) && (y->planes == top || y->varying[top] == bsn_rest_bits(y, top));
    s.lines = 0;
    s.start.field = &y->field;
    s.start.varying = s.start.value = 0;
    s.start.past = c->stream;
    s.start.ahead = ahead;
    for (k = 0; k < y->planes; k++) bsn_hash_begin(&s.work->hasher[k], y->at[k + 1] - y->at[k]);
    for (i = 0; i < n; i += m) {
        const int by_lines = c->stream || (s.at_once && n > BSN_CHUNK);
        int done = 0;
        /* a short first chunk: only later ones find a line to continue */
        m = bsn_min(by_lines && !i ? 1024 : BSN_CHUNK, n - i);
        /* the hash ends with the last bytes, so these stay in the cache */
        bsn_split_place(&s, i, m, n, by_lines && i + m < n);
        if (s.at_once && m % 1024 == 0 && i + m < n) {
            done = bsn_split_start(&s, e->elements, i, m, hashing);
            if (done == BSN_START_DIFFERS) return 0;
            s.at_once = done != 0;
        }
        if (!(done ? bsn_split_started(&s, i, m) : bsn_split_chunk(&s, e->elements, i, m))) return 0;
    }
    return 1;
}

/* ---- coded planes of SPLIT ---- */

/* Bytes of the mask of values that occur in a group, if these have this many bits. */
BSN_INLINE unsigned bsn_mask_size(unsigned bits) { return bits & 0x80 ? 32 : 16; }

/* Puts the values of 64 bytes into a mask. */
BSN_INLINE void bsn_values_of(uint64_t mask[4], const uint8_t *bytes, unsigned bits)
{
    unsigned j;
    mask[0] = mask[1] = mask[2] = mask[3] = 0;
    for (j = 0; j < 64; j++) mask[(bytes[j] & bits) >> 6] |= UINT64_C(1) << (bytes[j] & bits & 63);
}

/* Chooses which bits of each plane to code: those of planes where few values occur in a group of 64, as in
 * numbers that are a level times a scale. A sign is random beside them, and stays raw. Returns 1 if a plane
 * has such bits. Two groups of a usual plane show that it does not: of 128 random values 51 occur in a group,
 * of 256 57. */
BSN_FUNCTION int bsn_choose_coded(bsn_coding *e)
{
    /* values of a group, by the bits of a plane */
    static const uint8_t most[9] = { 0, 0, 0, 0, 0, 0, 30, 40, 46 };
    const bsn_context *c = e->context;
    const unsigned symbol_bits = bsn_symbol_bits(c->shape.dtype);
    const size_t groups = e->n / 64;
    uint8_t *coded = e->coded;
    unsigned count[8], k, r, any = 0;
    uint64_t mask[4];
    bsn_layout y;
    memset(coded, 0, 8);
    if (e->plain || !bsn_may_rank(c) || groups < 64) return 0;
    bsn_layout_write(&y, c->shape.dtype, symbol_bits, 0, e->constant, NULL, 0, e->n);
    for (k = 0; k + 1 < c->shape.width; k++) {
        coded[k] = y.varying[k];
        if (symbol_bits == 8 && k + 2 == c->shape.width) coded[k] &= 0x7F;
        if (!most[bsn_ones_in[coded[k]]] || (e->side && k + 2 != c->shape.width)) coded[k] = 0;
        count[k] = 0;
        any |= coded[k];
    }
    for (r = 0; r < 8 && any; r++) {
        bsn_split(c->kernels, &y.field, e->work->plane, e->elements + (groups - 1) * (r + 1) / 9 * 64 * c->shape.width, 64);
        for (k = any = 0; k + 1 < c->shape.width; k++) {
            if (!coded[k]) continue;
            bsn_values_of(mask, e->work->plane[k], coded[k]);
            count[k] += bsn_popcount(mask[0]) + bsn_popcount(mask[1]) + bsn_popcount(mask[2]) + bsn_popcount(mask[3]);
            if (count[k] >= most[bsn_ones_in[coded[k]]] * (r + 1) + (r < 7 ? 12 : 0)) coded[k] = 0;
            any |= coded[k];
        }
    }
    return any != 0;
}

/* Makes the masks of groups, and ranks of their values. */
BSN_FUNCTION void bsn_rank_bytes(uint8_t *bytes, uint8_t *masks, size_t groups, unsigned bits)
{
    const unsigned size = bsn_mask_size(bits);
    uint8_t rank[256];
    uint64_t mask[4], left;
    unsigned next, k;
    for (; groups--; bytes += 64, masks += size) {
        bsn_values_of(mask, bytes, bits);
        for (k = next = 0; k < size / 8; k++) {
            bsn_store64(masks + 8 * k, mask[k]);
            for (left = mask[k]; left; left &= left - 1) rank[64 * k + bsn_lowest_bit(left)] = (uint8_t)next++;
        }
        for (k = 0; k < 64; k++) bytes[k] = rank[bytes[k] & bits];
    }
}

/* Chooses how many groups lie between masks that are alike, as of tiles of a matrix: 1 to 255, or 0 if none
 * are. */
BSN_FUNCTION unsigned bsn_mask_distance(const uint8_t *masks, size_t groups, unsigned size)
{
    const unsigned most = (unsigned)bsn_min(groups / 2, 255);
    uint32_t least = 0, ones;
    unsigned best = 0, d, r, k;
    for (d = 0; d <= most; d++) {
        for (r = ones = 0; r < 16; r++) {
            const uint8_t *p = masks + (most + (groups - most - 1) * r / 15) * size, *q = p - d * size;
            for (k = 0; k < size; k += 8) ones += bsn_popcount(bsn_load64(p + k) ^ (d ? bsn_load64(q + k) : 0));
        }
        if (d && ones >= least) continue;
        least = d ? ones : ones - ones / 5;
        best = d;
    }
    return best;
}

/* Writes the coded bits of plane k: the distance, masks, ranks. Their elements may lie in room->lists.
 * Returns 0 if raw bits take no more. */
BSN_FUNCTION int bsn_write_coded(bsn_coding *e, const bsn_layout *y, bsn_writer *w, const bsn_rooms *room, unsigned k)
{
    const unsigned size = bsn_mask_size(y->coded[k]);
    const size_t n = e->n, all = n / 64 * size;
    uint8_t *bytes = room->planes + bsn_plane_room(n), *masks = room->lists;
    const uint8_t *begin = w->at;
    unsigned distance;
    size_t i;
    bsn_split_planes(e, &y->field, bytes, k, 1, 0);
    bsn_rank_bytes(bytes, masks, n / 64, y->coded[k]);
    for (i = n & ~(size_t)63; i < n; i++) bytes[i] &= y->coded[k];
    distance = bsn_mask_distance(masks, n / 64, size);
    for (i = all; distance && i > distance * size; i -= 8)
        bsn_store64(masks + i - 8, bsn_load64(masks + i - 8) ^ bsn_load64(masks + i - 8 - distance * size));
    if (!bsn_room(w, 1)) return 1;
    *w->at++ = (uint8_t)distance;
    w->scratch = masks + all + 64;
    bsn_list_write(w, masks, all, 8);
    w->scratch = room->lists;
    if (!w->full) bsn_list_write(w, bytes, n, 8);
    return w->full || (size_t)(w->at - begin) < bsn_bits_size(y->coded[k], n);
}

/* SPLIT: raw planes, coded ones, and a list of symbols. Bits that turn out to vary although e->constant has
 * them are split again. Returns -1 if coded planes do not pay: with e->plain it would be smaller. */
static int bsn_write_split(bsn_coding *e)
{
    bsn_work *w = e->work;
    const bsn_context *c = e->context;
    const uint8_t *elements = e->elements, *list;
    const size_t n = e->n;
    uint64_t constant = e->constant;
    bsn_arena arena = e->arena;
    bsn_rooms room;
    bsn_ahead ahead;
    bsn_writer wr;
    bsn_layout y;
    int counted = 0, done, ranks;
    unsigned k, symbol_bits = bsn_symbol_bits(c->shape.dtype);
    bsn_lay_alone(&arena, &room, c, n);
    ranks = bsn_choose_coded(e);
    if (!ranks) symbol_bits = bsn_choose_symbol_bits(e, room.planes, &counted);
    do {
        bsn_layout_write(&y, c->shape.dtype, symbol_bits, e->exponent, constant, ranks ? e->coded : NULL,
                         bsn_element_load(elements, c->shape.width), n);
        if ((size_t)(e->end - e->body) <= y.at[y.planes]) return 0;
        memcpy(e->body, y.descriptor, y.descriptor_size);
        /* most likely the next block */
        ahead = bsn_ahead_of(elements + n * c->shape.width, c->large && w->next ? n * c->shape.width : 0, 2);
        done = bsn_write_planes(e, &y, room.planes, &ahead);
        if (!done) {
            const uint64_t varying = bsn_varying_bits(elements, n, c->shape.width, constant) & constant;
            constant = varying ? constant & ~varying : 0; /* 0: another thread has changed them back */
        }
    } while (!done);
    bsn_coding_writer(&wr, e, y.at[y.planes], room.lists);
    list = wr.at;
    for (k = 0; k < y.planes && !wr.full; k++)
        if (y.coded[k] && !bsn_write_coded(e, &y, &wr, &room, k)) return -1;
    if (wr.full) return 0;
    wr.counted = counted;
    wr.ahead = &ahead;
    wr.ahead_step = (ahead.lines - ahead.line) / ((n + 1023) / 1024);
    bsn_list_write(&wr, room.planes, n, symbol_bits);
    bsn_ahead_ask(&ahead, ahead.lines);
    if (wr.full) return 0;
    if (bsn_has_checks(&c->shape)) {
        bsn_record_bytes(&e->made.record, y.descriptor, y.descriptor_size);
        for (k = 0; k < y.planes; k++)
            bsn_record_hash(&e->made.record, bsn_hash_end(c->kernels, &w->hasher[k], e->body + y.at[k]));
        bsn_record_hash(&e->made.record, bsn_hash_of(c->kernels, list, (size_t)(wr.at - list)));
    }
    e->made.size = (size_t)(wr.at - e->body);
    return 1;
}

static int bsn_produce_split(bsn_coding *e)
{
    int done;
    for (e->plain = 0; (done = bsn_write_split(e)) < 0; e->plain = 1) {}
    return done;
}

/* 1 in each byte that is 0 */
BSN_INLINE uint64_t bsn_zero_bytes(uint64_t x) { return ~(((x & BSN_ONES * 0x7F) + BSN_ONES * 0x7F) | x) >> 7 & BSN_ONES; }

/* Decides whether ZIGZAG makes planes shorter. If both signs occur, planes of sign bits become 0; but bits
 * that are 0 below a sign may become copies of it. For each plane, counts how often elements of a sample
 * agree. Its groups of four neighbours are at positions without a period. The less often elements agree, the
 * more entropy the plane has. */
static int bsn_zigzags(bsn_work *w, const bsn_context *c, const uint8_t *elements, size_t n)
{
    const unsigned width = c->shape.width, most = 8 * width - 1;
    const uint32_t step = (uint32_t)n / 64;
    uint8_t *sample = w->elements;
    uint64_t negative = 0, bits[2] = { 0, 0 };
    uint32_t alike[16], alone = 0, i, j;
    unsigned k;
    if (width == 1 || bsn_symbol_bits(c->shape.dtype) || n < 256) return 0;
    for (i = 0; i < 256; i++) { /* a quarter of the sample usually shows that there is nothing to gain */
        const uint32_t part = i & 63, place = part * step + (uint32_t)((uint64_t)(part * 0x9E3779B1u) * (step - 3) >> 32) + i / 64;
        const uint64_t x = bsn_element_load(elements + (size_t)place * width, width);
        bsn_element_store(sample + 8 * i, x, 8);
        negative += x >> most;
        alone += (bsn_zigzag_of(x, most) >> (most - 7) & 255) == 0;
        if (i == 63 && (negative == 0 || negative == 64 || alone < 16)) return 0;
    }
    memset(alike, 0, sizeof alike);
    for (i = 0; i < 512; i += 128) {
        const uint32_t apart = i < 256 ? 44 : 116;
        uint64_t x = 0, z = 0;
        for (j = i; j < i + 128; j++) {
            const uint64_t a = bsn_element_load(sample + 8 * (j & 255), 8), b = bsn_element_load(sample + 8 * ((j + apart) & 255), 8);
            x += bsn_zero_bytes(a ^ b);
            z += bsn_zero_bytes(bsn_zigzag_of(a, most) ^ bsn_zigzag_of(b, most));
        }
        for (k = 0; k < width; k++) {
            alike[k] += (uint32_t)(x >> 8 * k & 255);
            alike[8 + k] += (uint32_t)(z >> 8 * k & 255);
        }
    }
    for (k = 0; k < 16; k++) bits[k / 8] += bsn_log2_fixed(alike[k] + 32);
    return bits[1] > bits[0] + (1u << BSN_LOG2_ONE) / 4;
}

/* BYTES: a list for each byte plane. Scratch holds four planes, so 8-byte elements are split twice. */
static int bsn_produce_planes(bsn_coding *e, int zigzag)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width, some = bsn_planes_coded(c);
    const size_t n = e->n;
    bsn_arena arena = e->arena;
    bsn_rooms room;
    bsn_field field;
    bsn_writer wr;
    unsigned k, q;
    bsn_field_set(&field, c->shape.dtype, 0, 0);
    bsn_lay_alone(&arena, &room, c, n);
    bsn_coding_writer(&wr, e, 0, room.lists);
    wr.bytes = 1;
    for (k = 0; k < width && !wr.full; k += some) {
        bsn_split_planes(e, &field, room.planes, k, some, zigzag);
        for (q = 0; q < some && !wr.full; q++) bsn_list_write(&wr, room.planes + q * bsn_plane_room(n), n, 8);
    }
    return bsn_written(e, &wr);
}

static int bsn_produce_bytes(bsn_coding *e) { return bsn_produce_planes(e, 0); }
static int bsn_produce_zigzag(bsn_coding *e) { return bsn_produce_planes(e, 1); }

/* Returns 1 if the elements take at least `enough` bits without a base, by a lower bound: bits that vary, and
 * order-0 entropies. Planes go where symbols of words were. */
static int bsn_plain_takes(bsn_coding *e, uint64_t enough)
{
    const bsn_context *c = e->context;
    const unsigned symbol_bits = c->shape.dtype == BITSNAP_F64 ? 0 : bsn_most_symbol_bits(c), width = c->shape.width;
    const int zigzag = bsn_zigzags(e->work, c, e->elements, e->n);
    bsn_planner *x = e->work->planner;
    uint8_t *plane = e->delta.symbols;
    bsn_field field;
    uint64_t bits = 0;
    size_t i;
    unsigned k;
    bsn_field_set(&field, c->shape.dtype, symbol_bits, 0);
    if (symbol_bits) { /* bits below the symbol, and signs, cost a bit an element if they vary */
        const uint64_t all = (field.low | field.sign) & bsn_low_bits(8 * width);
        bits += (uint64_t)bsn_popcount(bsn_varying_bits(e->elements, e->n, width, all) & all) * e->n;
    }
    for (k = symbol_bits ? width - 1 : 0; k < width && bits < enough; k++) {
        bsn_split_planes(e, &field, plane, k, 1, zigzag);
        for (i = 0; i < e->n && symbol_bits && symbol_bits < 8; i++) plane[i] = (uint8_t)(plane[i] >> (8 - symbol_bits));
        bsn_count_bytes(c->kernels, x, plane, e->n);
        bits += bsn_entropy_bits(x->count, (uint32_t)e->n);
    }
    return bits >= enough;
}

/* Writes a byte that says whether there are scales, and these. */
static void bsn_write_scales(bsn_writer *w, const bsn_scales *s)
{
    uint8_t *symbols = w->scratch;
    unsigned k;
    if (!bsn_room(w, 1)) return;
    *w->at++ = s->rows ? 1 : 0;
    for (k = 0; k < 2 && s->rows && !w->full; k++) {
        const size_t n = k ? s->column_count : s->row_count;
        memcpy(symbols, k ? s->columns : s->rows, n);
        w->scratch = symbols + n + 64;
        bsn_list_write(w, symbols, n, 8);
        w->scratch = symbols;
    }
}

/* Bits of scales, roughly. */
static uint64_t bsn_scales_bits(bsn_work *w, const bsn_context *c, const bsn_scales *s)
{
    uint64_t bits = 0;
    unsigned k;
    for (k = 0; k < 2; k++) {
        const size_t n = k ? s->column_count : s->row_count;
        bsn_count_bytes(c->kernels, w->planner, k ? s->columns : s->rows, n);
        bits += bsn_list_bits_about(w->planner->count, 256, (uint32_t)n);
    }
    return bits;
}

static bsn_rooms bsn_codes_rooms(const bsn_coding *e)
{
    bsn_arena a = e->arena;
    bsn_rooms x;
    bsn_lay_codes(&a, &x, e->context, e->n);
    return x;
}

BSN_INLINE int bsn_may_scale(const bsn_context *c, size_t n)
{
    return c->shape.columns >= BSN_ROW_LEAST && c->shape.columns <= n / BSN_COLUMN_LEAST;
}

/* Codes in eighths of an octave, which the upper bits of a mantissa are. Returns whether an element has its
 * sign set. */
BSN_INLINE unsigned bsn_eighths(uint32_t *codes, const uint8_t *elements, size_t n, const bsn_octaves *o, unsigned width)
{
    const unsigned shift = o->mantissa - 3;
    const uint64_t magnitude = bsn_magnitude_bits(width), special = (uint64_t)o->special << o->mantissa;
    uint64_t any = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(elements + i * width, width), x = v & magnitude;
        const uint32_t u = BSN_CODE_FIRST + (uint32_t)(x >> shift);
        codes[i] = (!x ? (uint32_t)BSN_CODE_ZERO : x >= special ? (uint32_t)BSN_CODE_EXACT : u) << 1;
        any |= v;
    }
    return any > magnitude;
}

/* What a scale adds to the bits of an element, modulo more than these. */
BSN_INLINE uint64_t bsn_scale_bits(uint32_t scale, uint64_t base, unsigned shift, unsigned width)
{
    return width == 8 ? (scale + base) << shift : (uint32_t)(scale + (uint32_t)base) << shift;
}

/* Words: elements less what their scales say, with `signs` their signs being the lowest bit; and back. */
BSN_INLINE void bsn_scale_down(uint8_t *words, const uint8_t *elements, const uint32_t *scale, uint64_t base, unsigned shift,
                               unsigned signs, size_t n, unsigned width)
{
    const uint64_t magnitude = bsn_magnitude_bits(width);
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(elements + i * width, width), below = bsn_scale_bits(scale[i], base, shift, width);
        bsn_element_store(words + i * width, signs ? ((v & magnitude) - below) << 1 | v >> (8 * width - 1) : v - below, width);
    }
}

BSN_INLINE void bsn_scale_up(uint8_t *elements, const uint8_t *words, const uint32_t *scale, uint64_t base, unsigned shift,
                             unsigned signs, size_t n, unsigned width)
{
    const uint64_t magnitude = bsn_magnitude_bits(width);
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t word = bsn_element_load(words + i * width, width), above = bsn_scale_bits(scale[i], base, shift, width);
        bsn_element_store(elements + i * width, signs ? (((word >> 1) + above) & magnitude) | (word & 1) << (8 * width - 1)
                                                      : word + above, width);
    }
}

/* SCALED: differences to what the scales of rows and columns predict. Returns -1, and has written nothing, if
 * the plan of their words takes more than there is room for. */
static int bsn_produce_scaled(bsn_coding *e)
{
    bsn_work *w = e->work;
    const bsn_context *c = e->context;
    const uint8_t *elements = e->elements;
    const size_t n = e->n;
    const bsn_rooms room = bsn_codes_rooms(e);
    const bsn_octaves o = bsn_octaves_of(c->shape.dtype);
    const unsigned width = c->shape.width, shift = o.mantissa - 3;
    bsn_scales s = bsn_scales_shape(c->shape.columns, e->first, n);
    uint32_t *scale = (uint32_t *)(void *)w->plane[0];
    unsigned signs = 0;
    bsn_words_plan plan;
    int32_t base;
    bsn_writer wr;
    size_t i;
    if ((size_t)(e->end - e->body) < 5) return 0;
    BSN_WIDTHS(width, signs = bsn_eighths, (room.codes, elements, n, &o));
    bsn_scales_fit(&s, room.scales, room.means, room.codes, n, 8);
    bsn_codes_count(room.counts, &o, 8, &s, room.codes, n, 0);
    base = bsn_codes_base(room.counts, 4096);
    for (i = 0; i < n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        bsn_scales_get(&s, scale, i, m);
        BSN_WIDTHS(width, bsn_scale_down,
                   (room.words + i * width, elements + i * width, scale, (uint64_t)(int64_t)base, shift, signs, m));
    }
    bsn_coding_writer(&wr, e, 5, room.symbols);
    plan = bsn_plan_words(&wr, room.words, n, width, width, 0, 1, room.symbols);
    if (plan.bits == BSN_NEVER || (plan.bits + bsn_scales_bits(w, c, &s)) / 8 >= (size_t)(e->end - e->body)) return -1;
    e->body[0] = (uint8_t)signs;
    bsn_store32(e->body + 1, (uint32_t)base);
    wr.thorough = 1;
    bsn_write_scales(&wr, &s);
    wr.plan = &plan;
    bsn_words_write(&wr, room.words, n, width, width, w->plane[0]);
    return bsn_written(e, &wr);
}

/* Begins a quantized body: leaves room for the certificate, writes `head` after it, and sets up the writer
 * for the elements that are stored exactly. Returns 0 if there is no room. */
static int bsn_quantized_begin(bsn_writer *wr, bsn_coding *e, const bsn_rooms *room, const uint8_t *head, size_t head_size)
{
    if ((size_t)(e->end - e->body) < BSN_CERTIFICATE_SIZE + head_size) return 0;
    memcpy(e->body + BSN_CERTIFICATE_SIZE, head, head_size);
    bsn_coding_writer(wr, e, BSN_CERTIFICATE_SIZE + head_size, room->symbols);
    wr->thorough = 1;
    wr->sampled = 1;
    memset(room->errors, 0, sizeof *room->errors);
    return 1;
}

/* Writes the `count` of n elements whose words mark them as exact. */
static void bsn_write_exact(bsn_writer *wr, const uint32_t *words, size_t n, unsigned signs, const uint8_t *elements, size_t count,
                            unsigned width)
{
    if (!bsn_room(wr, count * width)) return;
    bsn_move_exact(words, n, signs, (uint8_t *)elements, wr->at, count, width, 1);
    wr->at += count * width;
}

/* Completes a quantized body: the certificate, scales (s null: the form has none) and words. `exact` elements
 * are stored exactly. */
static int bsn_quantized_end(bsn_writer *wr, bsn_coding *e, const bsn_rooms *room, const bsn_octaves *o,
                             const bsn_scales *s, size_t exact)
{
    const bsn_certificate certificate = bsn_errors_certify(room->errors, o, exact);
    bsn_certificate_store(e->body, &certificate);
    if (s) bsn_write_scales(wr, s);
    bsn_words_write(wr, room->words, e->n, 4, 4, e->work->plane[0]);
    return bsn_written(e, wr);
}

/* 1 where an element has its sign, else 0. */
static unsigned bsn_any_sign(const uint8_t *elements, size_t n, unsigned width)
{
    const uint64_t sign = bsn_magnitude_bits(width) + 1;
    return ((bsn_element_load(elements, width) | bsn_varying_bits(elements, n, width, sign)) & sign) != 0;
}

/* Codes of all elements, or, where a sample is enough, of one group of 64 in eight. */
static void bsn_codes_take(bsn_coding *e, uint32_t *codes, int few)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width;
    const size_t n = e->n;
    uint32_t span;
    size_t i;
    for (span = 0; few && (i = 64 * bsn_sample_group(span, 3)) < n; span++) {
        /* no processor sees a stride in these groups */
        bsn_prefetch(e->elements + 64 * width * bsn_sample_group(span + 8, 3), 64 * width);
        bsn_log_codes_by(c->kernels, c->log, codes + i, e->elements + i * width, bsn_min(64, n - i));
    }
    for (i = 0; !few && i < n; i += BSN_CHUNK)
        bsn_log_codes_by(c->kernels, c->log, codes + i, e->elements + i * width, bsn_min(BSN_CHUNK, n - i));
}

/* Chooses the offset of words, and whether scales of rows and columns pay: if not, s->rows is null. */
static uint32_t bsn_bins_plan(bsn_coding *e, const bsn_rooms *room, bsn_scales *s, int sampled)
{
    const bsn_context *c = e->context;
    const bsn_log *x = c->log;
    const uint32_t of = sampled ? 16384 : 4096; /* a sample may miss the lowest words, so the offset is a
                                                   little lower then */
    uint64_t bits;
    uint32_t base;
    s->rows = NULL;
    bsn_codes_count(room->counts, &x->type, x->bins, NULL, room->codes, e->n, sampled);
    base = (uint32_t)bsn_codes_base(room->counts, of);
    if (!bsn_may_scale(c, e->n)) return base;
    bits = bsn_list_bits_about(room->counts->count, BSN_CODE_COUNTS, room->counts->coded);
    *s = bsn_scales_shape(c->shape.columns, e->first, e->n);
    bsn_scales_fit(s, room->scales, room->means, room->codes, e->n, x->bins);
    bsn_codes_count(room->counts, &x->type, x->bins, s, room->codes, e->n, sampled);
    if (bsn_list_bits_about(room->counts->count, BSN_CODE_COUNTS, room->counts->coded) +
            bsn_scales_bits(e->work, c, s) / (sampled ? 8 : 1) < bits)
        return (uint32_t)bsn_codes_base(room->counts, of);
    s->rows = NULL;
    return base;
}

/* QUANTIZED by bins of an octave. */
static int bsn_produce_bins(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const uint8_t *elements = e->elements;
    const unsigned width = c->shape.width;
    const size_t n = e->n;
    const bsn_rooms room = bsn_codes_rooms(e);
    const int sampled = n >= 16384; /* a sample is enough to weigh scales, and all that is needed for a usual
                                       quantizer without */
    const int few = sampled && bsn_log_is_usual(c->log) && !bsn_may_scale(c, n);
    uint32_t *words = (uint32_t *)(void *)room.words;
    uint8_t head[5];
    bsn_row place;
    bsn_scales s;
    bsn_writer wr;
    size_t i, m, exact = 0;
    place.log = c->log;
    place.signs = bsn_any_sign(elements, n, width);
    bsn_codes_take(e, room.codes, few);
    place.base = bsn_bins_plan(e, &room, &s, sampled);
    head[0] = (uint8_t)place.signs;
    bsn_store32(head + 1, place.base);
    if (!bsn_quantized_begin(&wr, e, &room, head, sizeof head)) return 0;
    for (i = 0; i < n; i += m) {
        size_t stored;
        m = bsn_row_set(&place, &s, i, bsn_min(BSN_CHUNK, n - i));
        stored = bsn_log_words_by(c->kernels, &place, room.errors, words + i, few ? NULL : room.codes + i, elements + i * width, m,
                                  e->work->elements);
        bsn_write_exact(&wr, words + i, m, place.signs, elements + i * width, stored, width);
        exact += stored;
    }
    return bsn_quantized_end(&wr, e, &room, &c->log->type, &s, exact);
}

/* Chooses clusters for the numbers of a block, by their sorted ranks. Returns how many, 0 if there are no
 * numbers. */
static unsigned bsn_clusters_choose(bsn_coding *e, bsn_cluster *x, const bsn_rooms *room, const bsn_octaves *o)
{
    const unsigned width = e->context->shape.width;
    const uint64_t magnitude = bsn_magnitude_bits(width);
    size_t i, numbers = 0;
    for (i = 0; i < e->n; i++) {
        const uint64_t v = bsn_element_load(e->elements + i * width, width);
        if (!(v & magnitude) || (v & magnitude) >> o->mantissa == o->special) continue;
        bsn_element_store(room->words + width * numbers++, bsn_rank(v, width), width);
    }
    return bsn_clusters_set(x, o, bsn_sort_words(room->words, room->symbols, numbers, width), numbers, e->context->shape.clusters);
}

/* Makes the words of elements i .. i + m - 1 by their clusters, and in `decoded` what they decode to. Returns
 * how many are stored exactly. */
static size_t bsn_clusters_words(const bsn_coding *e, uint32_t *words, uint8_t *decoded, const bsn_cluster *x, unsigned clusters,
                                 const bsn_octaves *o, size_t i, size_t m)
{
    const unsigned width = o->width;
    const uint64_t magnitude = bsn_magnitude_bits(width);
    size_t j, exact = 0;
    for (j = 0; j < m; j++) {
        const uint64_t v = bsn_element_load(e->elements + (i + j) * width, width);
        uint64_t number = 0;
        words[j] = v ? BSN_CODE_EXACT : BSN_CODE_ZERO;
        if ((v & magnitude) && (v & magnitude) >> o->mantissa != o->special) {
            const unsigned label = bsn_cluster_of(x, clusters, v, width);
            const unsigned code = label < clusters ? bsn_cluster_code(&x[label], o, v) : 0;
            if (label < clusters) number = bsn_cluster_number(&x[label], o, code);
            if (number & magnitude) words[j] = BSN_CODE_FIRST + BSN_CLUSTER_CODES * label + code;
        }
        exact += words[j] == BSN_CODE_EXACT;
        bsn_element_store(decoded + j * width, number, width);
    }
    return exact;
}

/* QUANTIZED by clusters. */
static int bsn_produce_clusters(bsn_coding *e)
{
    bsn_work *w = e->work;
    const bsn_context *c = e->context;
    const uint8_t *elements = e->elements;
    const bsn_rooms room = bsn_codes_rooms(e);
    const bsn_octaves o = bsn_octaves_of(c->shape.dtype);
    const unsigned width = c->shape.width;
    bsn_cluster *x = room.clusters;
    uint32_t *words = (uint32_t *)(void *)room.words;
    uint8_t *head = w->plane[0];
    unsigned k;
    const unsigned clusters = bsn_clusters_choose(e, x, &room, &o);
    bsn_writer wr;
    size_t i, exact = 0;
    if (!clusters) return 0;
    head[0] = (uint8_t)(clusters - 1);
    for (k = 0; k < clusters; k++) {
        uint8_t ends[16];
        bsn_element_store(ends, x[k].low, width);
        bsn_element_store(ends + width, x[k].high, width);
        bsn_copy_little_endian(head + 1 + 2 * width * k, ends, 2, width);
    }
    if (!bsn_quantized_begin(&wr, e, &room, head, 1 + 2 * width * clusters)) return 0;
    for (i = 0; i < e->n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, e->n - i);
        exact += bsn_clusters_words(e, words + i, w->elements, x, clusters, &o, i, m);
        bsn_errors_measure(room.errors, &o, elements + i * width, w->elements, words + i, 0, m);
    }
    bsn_write_exact(&wr, words, e->n, 0, elements, exact, width);
    return bsn_quantized_end(&wr, e, &room, &o, NULL, exact);
}

static int bsn_produce_quantized(bsn_coding *e)
{
    return e->context->log ? bsn_produce_bins(e) : bsn_produce_clusters(e);
}

BSN_ASSERT(clusters_fit_plane, 1 + 16 * BSN_CLUSTERS_MOST <= BSN_CHUNK + 64);

/* The number of classes that n elements may have. What rounding took off a master copy is spread evenly,
 * whatever the exponent. */
BSN_INLINE unsigned bsn_most_classes(const bsn_context *c, size_t n)
{
    if (!bsn_exponent_of(c->shape.dtype).mask || n < 256 || c->flags & BITSNAP_SELF_CONTAINED || c->shape.role == BSN_ROLE_UPCAST)
        return 1;
    return c->level == BITSNAP_FAST ? 2 : c->level == BITSNAP_BEST ? 8 : 6;
}

/* The distance of the chunks that are counted to choose classes: at level fast one of eight, or of sixteen if
 * there are many. */
BSN_INLINE size_t bsn_census_step(const bsn_context *c, size_t n)
{
    if (c->level != BITSNAP_FAST || n < 16 * BSN_CHUNK) return BSN_CHUNK;
    return (n < 64 * BSN_CHUNK ? 8 : 16) * BSN_CHUNK;
}

/* Symbols that wait to be counted: few calls for many are faster. */
#define BSN_WAITING (7 * BSN_CHUNK)
BSN_ASSERT(waiting_fit, BSN_WAITING + BSN_CHUNK <= 8 * (BSN_CHUNK + 64));

/* Counts a chunk of m elements for the choice of classes. Symbols wait in scratch until there are many;
 * returns how many wait. */
static size_t bsn_census_chunk(bsn_coding *e, const uint8_t *words, const uint8_t *base, size_t m, size_t waiting)
{
    const bitsnap_kernels *kernels = e->context->kernels;
    bsn_census *x = e->delta.census;
    uint8_t *symbols = e->work->plane[0];
    bsn_census_add(kernels, x, symbols + waiting, words, base, m);
    waiting += m;
    if (waiting < BSN_WAITING) return waiting;
    kernels->histogram(x->of_symbol, symbols, waiting, e->work->planner->tables);
    return 0;
}

/* Completes the counts: `waiting` symbols still wait. */
static void bsn_census_complete(bsn_coding *e, size_t waiting)
{
    bsn_census *x = e->delta.census;
    e->context->kernels->histogram(x->of_symbol, e->work->plane[0], waiting, e->work->planner->tables);
    bsn_census_end(x);
}

/* The classes none of whose words that have been counted is larger than a byte. */
static unsigned bsn_narrow_classes(const bsn_census *x, const bsn_classes *t)
{
    unsigned larger = 0, s, i;
    for (s = 0; s < 256; s++)
        for (i = BSN_TOKEN_256; i < x->tokens && x->of_symbol[s]; i++)
            if (x->token[s][i]) larger |= 1u << t->of[s];
    return 0xFF & ~larger;
}

BSN_INLINE size_t bsn_changes_share(const bsn_context *c)
{
    return c->level == BITSNAP_FAST ? BSN_CHANGES_SHARE_FAST : BSN_CHANGES_SHARE;
}

/* Begins to collect the changes of a cell of n elements. */
static void bsn_changes_begin(bsn_changes *x, const bsn_context *c, size_t n)
{
    x->count = 0;
    x->any = 0;
    x->most = n / bsn_changes_share(c);
}

/* The words of elements i .. i + m - 1, at most a chunk; returns their OR. */
static uint64_t bsn_chunk_words(bsn_coding *e, uint8_t *words, size_t i, size_t m, const uint8_t **prediction)
{
    const bsn_context *c = e->context;
    *prediction = bsn_predict(c->shape.dtype, c->shape.base_dtype, e->ids->cell, i, m, e->work->elements);
    return bsn_subtract(c->kernels, words, e->elements + i * c->shape.width, *prediction, m, c->shape.width);
}

/* Is there a byte 255 among n? `mask` has room for those of a chunk. */
static int bsn_has_255(const bitsnap_kernels *kernels, const uint8_t *p, size_t n, uint8_t *mask)
{
    size_t i, found = 0;
    for (i = 0; i < n && !found; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        bsn_mask_above(kernels, mask, p + i, m, 254);
        found = kernels->count(mask, m);
    }
    return found != 0;
}

/* Returns where class k of a cell begins if words are dealt to classes during the pass over the cell: level
 * fast, at most two classes. Without that, all words begin where class 0 does. */
BSN_INLINE uint8_t *bsn_list_of(bsn_coding *e, unsigned k) { return k ? e->delta.dealt : e->delta.words; }

/* Chooses classes by a sample of the cell. */
static void bsn_sample_classes(bsn_coding *e, bsn_classes *t)
{
    const bsn_context *c = e->context;
    bsn_census *x = e->delta.census;
    uint8_t *words = bsn_list_of(e, 0), borders[BSN_CLASSES] = { 0 };
    const size_t n = e->n, step = bsn_census_step(c, n), base_width = bsn_dtypes[c->shape.base_dtype].width;
    const uint8_t *p;
    size_t i, waiting = 0;
    unsigned k;
    bsn_census_begin(x, c->shape.dtype);
    for (i = 0; i < n; i += step) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        (void)bsn_chunk_words(e, words, i, m, &p);
        if (c->large && i + step < n) { /* a processor does not see so long a stride */
            const size_t next = i + step, some = bsn_min(BSN_CHUNK, n - next);
            bsn_prefetch(e->elements + next * c->shape.width, some * c->shape.width);
            bsn_prefetch(e->ids->cell + next * base_width, some * base_width);
        }
        waiting = bsn_census_chunk(e, words, p, m, waiting);
    }
    bsn_census_complete(e, waiting);
    bsn_classes_begin(t, c->shape.dtype, borders, bsn_choose_borders(x, borders, bsn_most_classes(c, n)));
    t->narrow = bsn_narrow_classes(x, t);
    for (k = 0; k < t->count; k++) t->list[k] = bsn_list_of(e, k);
}

/* Deals the words of elements i .. end - 1 to their classes. */
static void bsn_deal_words(bsn_coding *e, bsn_classes *t, size_t i, size_t end)
{
    uint8_t *words = e->work->plane[0];
    const uint8_t *p;
    for (; i < end; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, end - i);
        e->any |= bsn_chunk_words(e, words, i, m, &p);
        bsn_classes_deal(e->context->kernels, t, words, p, m);
    }
}

/* The words at the next `count` places; p and prediction are those from element `first` on. */
BSN_INLINE void bsn_note_words(bsn_changes *x, size_t count, size_t first, const uint8_t *p, const uint8_t *prediction,
                               unsigned width)
{
    const size_t end = x->count + count;
    for (; x->count < end; x->count++) {
        const size_t at = (x->place[x->count] - first) * width;
        uint64_t word = bsn_word_of(bsn_element_load(p + at, width), bsn_element_load(prediction + at, width), width);
        word -= word != 0; /* 0 only where it has been changed since they were compared */
        x->word[x->count] = word;
        x->any |= word;
    }
}

/* Collects what differs in elements i .. i + m - 1, at `from`, from their prediction. Returns 0 if these are
 * more than `most` changes of the cell. `mask` is scratch for a chunk. */
static int bsn_collect_changes(const bsn_context *c, bsn_changes *x, uint8_t *mask, const uint8_t *from,
                               const uint8_t *prediction, size_t i, size_t m, size_t most)
{
    size_t count;
    bsn_compare(c->kernels, c->shape.width, mask, from, prediction, m);
    count = c->kernels->count(mask, m);
    if (x->count + count > most) return 0;
    /* the fastest where most groups have none */
    (void)bsn_places(bsn_scalar_places, x->place + x->count, mask, i, m);
    BSN_WIDTHS(c->shape.width, bsn_note_words, (x, count, i, from, prediction));
    return 1;
}

/* Likewise, of the cell that is encoded. Too many is also what is too much for so early in the cell. */
static int bsn_take_changes(bsn_coding *e, size_t i, size_t m)
{
    const bsn_context *c = e->context;
    const uint8_t *p = bsn_predict(c->shape.dtype, c->shape.base_dtype, e->ids->cell, i, m, e->work->elements);
    const size_t most = bsn_min(e->delta.changes->most, 16 + 17 * (i + m) / (16 * bsn_changes_share(c)));
    return bsn_collect_changes(c, e->delta.changes, e->work->plane[0], e->elements + i * c->shape.width, p, i, m, most);
}

/* A pass over a cell and its base. */
typedef struct bsn_sweep {
    int collecting; /* 1 while changes are collected; then no words are made */
    int counting;   /* 1 if words are counted for the choice of classes */
    int begun;      /* 1 once the first has been */
    int dealing;    /* 1 if words go to classes that a sample chooses */
    int equal;      /* 1 if the current leaf equals that of the base */
    unsigned known; /* bit i: leaf i does */
    size_t waiting; /* symbols that wait to be counted */
} bsn_sweep;

/* Hashes elements i .. i + m - 1 and their base while they are in the cache. A leaf that equals its base's is
 * hashed once. */
static void bsn_sweep_hash(bsn_coding *e, const bsn_sweep *p, size_t i, size_t m)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width, base_width = bsn_dtypes[c->shape.base_dtype].width;
    const size_t step = BSN_PAGE / base_width, end = i + m, leaf = i / BSN_LEAF;
    bsn_ids *ids = e->ids;
    for (; i < end; i += step) {
        const size_t some = bsn_min(step, end - i);
        bsn_leaves_add(c->kernels, &e->work->pieces, &ids->base, ids->cell + i * base_width, i, some, e->n, base_width);
        if (!p->equal) bsn_leaves_add(c->kernels, &e->work->result, &ids->result, e->elements + i * width, i, some, e->n, width);
    }
    if (p->equal) ids->result.hash[leaf] = ids->base.hash[leaf]; /* right once the leaf has ended */
}

/* The words of the chunk at element i, to their place in scratch. */
static void bsn_sweep_words(bsn_coding *e, bsn_sweep *p, size_t i)
{
    const size_t m = bsn_min(BSN_CHUNK, e->n - i);
    uint8_t *words = bsn_list_of(e, 0) + i * e->context->shape.width;
    const uint8_t *prediction;
    if (p->known >> i / BSN_LEAF & 1) {
        memset(words, 0, m * e->context->shape.width);
        return;
    }
    e->any |= bsn_chunk_words(e, words, i, m, &prediction);
    if (!p->counting) return;
    if (!p->begun) bsn_census_begin(e->delta.census, e->context->shape.dtype);
    p->begun = 1;
    p->waiting = bsn_census_chunk(e, words, prediction, m, p->waiting);
}

/* Elements i .. i + m - 1: their changes, as long as there are few; else their words, and first those of all
 * chunks before. */
static void bsn_sweep_chunk(bsn_coding *e, bsn_sweep *p, bsn_classes *t, size_t i, size_t m)
{
    size_t j = p->collecting ? 0 : i;
    if (p->equal && (p->collecting || (p->dealing && !t->count))) return;
    if (p->collecting && bsn_take_changes(e, i, m)) return;
    if (p->dealing) {
        if (!t->count) {
            bsn_sample_classes(e, t);
            j = 0;
        }
        bsn_deal_words(e, t, j, i + m);
    } else {
        for (; j <= i; j += BSN_CHUNK) bsn_sweep_words(e, p, j);
    }
    if (p->collecting) e->delta.changes->count = 0;
    p->collecting = 0;
}

/* Compares a cell with its prediction in one pass. Returns 1 if they are equal. Sets e->any to the OR of all
 * words, or of all words less 1 if changes have been collected.
 *   collect  1: collects changes in e->delta.changes while they are few enough for a SPARSE block. If they
 *            are not, their count becomes 0 and words are made after all. 0: makes words, for a CLASSED
 *            block, and counts them or deals them to classes
 *   hashing  1: also computes the hashes of leaves, of base and result */
static int bsn_take_words(bsn_coding *e, int collect, int hashing)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width;
    const size_t n = e->n;
    const int several = bsn_most_classes(c, n) > 1;
    bsn_classes *t = &e->delta.census->classes;
    bsn_sweep p = { 0, 0, 0, 0, 0, 0, 0 };
    size_t i, j;
    p.collecting = collect;
    p.dealing = several && bsn_census_step(c, n) > BSN_CHUNK;
    p.counting = several && !p.dealing;
    e->any = 0;
    t->count = 0;
    for (i = 0; i < n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i), end = bsn_min(n, i + BSN_LEAF);
        if (i % BSN_LEAF == 0 && c->shape.role == BSN_ROLE_BASE) {
            for (j = i; j < end; j += BSN_CHUNK)
                if (!bsn_equal(e->elements + j * width, e->ids->cell + j * width, bsn_min(BSN_CHUNK, end - j) * width)) break;
            p.equal = j >= end;
            p.known |= (unsigned)p.equal << i / BSN_LEAF;
        }
        if (hashing) bsn_sweep_hash(e, &p, i, m);
        bsn_sweep_chunk(e, &p, t, i, m);
    }
    if (p.collecting) {
        e->any = e->delta.changes->any;
        return !e->delta.changes->count;
    }
    if (!e->any || !p.counting) return !e->any;
    for (i = 0; i < n; i += BSN_CHUNK)
        if (p.known >> i / BSN_LEAF & 1)
            p.waiting = bsn_census_chunk(e, bsn_list_of(e, 0) + i * width, e->ids->cell + i * width, bsn_min(BSN_CHUNK, n - i),
                                         p.waiting);
    bsn_census_complete(e, p.waiting);
    return 0;
}

/* Counts the words of class k that are below 16, where a token is a word. Returns their number. */
static uint32_t bsn_class_words(const bsn_census *x, const bsn_classes *t, unsigned k, uint32_t count[16])
{
    uint32_t sum = 0;
    unsigned s, i;
    memset(count, 0, 16 * sizeof *count);
    for (s = 0; s < 256; s++)
        for (i = 0; i < 16 && t->of[s] == k && x->of_symbol[s]; i++) count[i] += x->token[s][i];
    for (i = 0; i < 16; i++) sum += count[i];
    return sum;
}

/* Completes the counts of n words that are bytes. Those below 16 are counted already. Counts the others, or
 * if these are many, all anew. */
static void bsn_count_others(const bsn_writer *w, const uint8_t *words, size_t n, size_t others, uint8_t *mask)
{
    uint32_t *h = w->planner->count;
    uint64_t some;
    size_t i, j;
    if (others > n / 16) {
        bsn_count_bytes(w->kernels, w->planner, words, n);
        return;
    }
    memset(h + 16, 0, 240 * sizeof *h);
    for (i = 0; i < n && others; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        bsn_mask_above(w->kernels, mask, words + i, m, 15);
        for (j = 0; j < m; j += 64)
            for (some = bsn_mask_word(mask, j, m); some; some &= some - 1) h[words[i + j + bsn_lowest_bit(some)]]++;
    }
}

/* The words of a cell by class. */
typedef struct bsn_dealt {
    uint8_t *list[BSN_CLASSES];
    size_t counts[BSN_CLASSES];
} bsn_dealt;

/* What a pass that dealt words out has left. A class whose words the sample took for bytes may have larger
 * ones after all; then the words are dealt out again. */
static void bsn_classes_dealt(bsn_coding *e, bsn_classes *t, bsn_dealt *x)
{
    const bsn_context *c = e->context;
    unsigned missed = 0, k;
    for (k = 0; k < t->count; k++) {
        x->list[k] = bsn_list_of(e, k);
        x->counts[k] = (size_t)(t->list[k] - x->list[k]) / bsn_classes_size(t, k);
        if (e->any > 255 && (t->narrow >> k & 1) && bsn_has_255(c->kernels, x->list[k], x->counts[k], e->work->plane[0]))
            missed |= 1u << k;
    }
    if (!missed) return;
    t->narrow &= ~missed;
    for (k = 0; k < t->count; k++) t->list[k] = x->list[k];
    bsn_deal_words(e, t, 0, e->n);
    for (k = 0; k < t->count; k++) x->counts[k] = (size_t)(t->list[k] - x->list[k]) / bsn_classes_size(t, k);
}

/* Chooses classes by the counts of all words, and places their lists; one class of whole words stays where
 * the words are. Returns 0 if the counts are not those of n elements: another thread is changing them. */
static int bsn_classes_counted(bsn_coding *e, bsn_census *census, bsn_dealt *x)
{
    const unsigned most = bsn_most_classes(e->context, e->n);
    bsn_classes *t = &census->classes;
    uint8_t borders[BSN_CLASSES] = { 0 };
    uint64_t all = 0;
    unsigned k, s;
    bsn_classes_begin(t, e->context->shape.dtype, borders, most > 1 ? bsn_choose_borders(census, borders, most) : 1);
    memset(x->counts, 0, sizeof x->counts);
    if (t->count > 1) {
        for (s = 0; s < 256; s++) {
            x->counts[t->of[s]] += census->of_symbol[s];
            all += census->of_symbol[s];
        }
        if (all != e->n) return 0;
    } else {
        x->counts[0] = e->n;
    }
    t->narrow = e->any < 256 ? 0xFF : t->count > 1 ? bsn_narrow_classes(census, t) : 0;
    x->list[0] = t->count > 1 || t->narrow ? e->delta.dealt : e->delta.words;
    for (k = 1; k < t->count; k++) x->list[k] = x->list[k - 1] + x->counts[k - 1] * bsn_classes_size(t, k - 1) + 64;
    return 1;
}

/* Deals the words of the cell to their classes, and asks for the next cell while this one is in the
 * caches. */
static void bsn_classes_fill(bsn_coding *e, bsn_classes *t, const bsn_dealt *x)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width, base_width = bsn_dtypes[c->shape.base_dtype].width;
    const uint8_t *words = bsn_list_of(e, 0);
    size_t i;
    unsigned k;
    for (k = 0; k < t->count; k++) t->list[k] = x->list[k];
    for (i = 0; i < e->n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, e->n - i);
        if (c->large && e->work->next) {
            bsn_prefetch(e->elements + (e->n + i) * width, m * width);
            bsn_prefetch(e->ids->cell + (e->n + i) * base_width, m * base_width);
        }
        bsn_classes_deal(c->kernels, t, words + i * width,
                         bsn_predict(c->shape.dtype, c->shape.base_dtype, e->ids->cell, i, m, e->work->elements), m);
    }
}

/* Plans how to store the words of a master copy (role 3) without counting them: the bits that rounding took
 * off are raw. Returns 0 if half of a sample of 64 words are a quarter of that or less, as of a copy that was
 * rounded before. */
static int bsn_plan_upcast(const bsn_coding *e, const uint8_t *words, bsn_words_plan *plan)
{
    unsigned i, less = 0;
    plan->shift = e->context->shape.base_dtype == BITSNAP_F16 ? 13 : 16;
    plan->limit = 0;
    plan->bits = 0;
    for (i = 0; i < 64 && e->n >= 64; i++) less += !(bsn_element_load(words + e->n / 64 * i * 4, 4) >> (plan->shift - 2));
    return e->n >= 64 && less < 32;
}

/* CLASSED: words by class, from what bsn_take_words has left. */
static int bsn_produce_classed(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width;
    const size_t n = e->n;
    bsn_census *census = e->delta.census;
    bsn_classes *t = &census->classes;
    const int sampled = t->count > 0, counted = !sampled && bsn_most_classes(c, n) > 1;
    bsn_dealt x;
    bsn_words_plan plan;
    unsigned k;
    bsn_writer wr;
    if (!e->any) return 0; /* the elements have become equal to their predictions: another thread changes
                              them */
    if (sampled) bsn_classes_dealt(e, t, &x);
    else if (!bsn_classes_counted(e, census, &x)) return 0;
    if ((size_t)(e->end - e->body) < t->count) return 0;
    e->body[0] = (uint8_t)t->count;
    for (k = 1; k < t->count; k++) e->body[k] = (uint8_t)(t->border[k - 1] >> t->shift);
    bsn_coding_writer(&wr, e, t->count, e->delta.symbols);
    wr.thorough = c->level != BITSNAP_FAST;
    wr.wide = sampled && e->any > 255;
    wr.sampled = wr.wide;
    if (x.list[0] == e->delta.dealt) bsn_classes_fill(e, t, &x);
    else if (c->shape.role == BSN_ROLE_UPCAST && bsn_plan_upcast(e, x.list[0], &plan)) wr.plan = &plan;
    for (k = 0; k < t->count; k++) {
        if (counted && x.counts[k] && (t->narrow >> k & 1)) {
            bsn_count_others(&wr, x.list[k], x.counts[k],
                             x.counts[k] - bsn_class_words(census, t, k, e->work->planner->count), e->work->plane[0]);
            wr.counted = 1;
        }
        bsn_words_write(&wr, x.list[k], x.counts[k], width, (unsigned)bsn_classes_size(t, k), e->work->plane[0]);
    }
    return bsn_written(e, &wr);
}

/* Bytes before the body of a block, and of its body. */
BSN_INLINE size_t bsn_prefix(const bsn_shape *s)
{
    return BSN_HEAD_SIZE + (bsn_has_checks(s) ? BSN_CHECK_SIZE : 0u) + (s->role ? BSN_IDS_SIZE : 0u);
}
BSN_INLINE size_t bsn_body_of(uint32_t head, unsigned width) { return (head & 255) == BSN_FORM_CONST ? width : head >> 8; }

/* SPARSE: the positions and words of changes. */
static int bsn_produce_sparse(bsn_coding *e)
{
    if ((size_t)(e->end - e->body) < bsn_piece_bytes(&e->piece, e->n, e->context->shape.width)) return 0;
    return bsn_produced(e, e->body + bsn_piece_write(e->body, &e->piece, e->delta.changes, e->n, e->context->shape.width));
}

/* SAME: nothing. */
static int bsn_produce_same(bsn_coding *e) { return bsn_produced(e, e->body); }

/* The first `count` elements as they are. */
static int bsn_produce_elements(bsn_coding *e, size_t count)
{
    const unsigned width = e->context->shape.width;
    if ((size_t)(e->end - e->body) < count * width) return 0;
    bsn_copy_little_endian(e->body, e->elements, count, width);
    return bsn_produced(e, e->body + count * width);
}

static int bsn_produce_const(bsn_coding *e) { return bsn_produce_elements(e, 1); }
static int bsn_produce_stored(bsn_coding *e) { return bsn_produce_elements(e, e->n); }

/* The bits of a float that SPLIT does not code as symbols; 0 for integers. Of these it stores only those that
 * vary. */
static uint64_t bsn_plane_bits(const bsn_context *c)
{
    const unsigned bits = c->shape.dtype == BITSNAP_F64 ? 11 : bsn_symbol_bits(c->shape.dtype), all = 8 * c->shape.width;
    return bits ? bsn_low_bits(all) & ~(bsn_low_bits(bits) << (all - 1 - bits)) : 0;
}

/* The form of elements that have nothing in common but what the bits of all have. */
static unsigned bsn_plain_form(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const uint64_t interest = bsn_plane_bits(c);
    /* What is constant in the first elements most likely is in all. A pass over all of them takes a tenth of
     * encoding. */
    uint64_t varying = bsn_varying_bits(e->elements, bsn_min(e->n, BSN_CHUNK), c->shape.width, interest);
    if (!varying) varying = bsn_varying_bits(e->elements, e->n, c->shape.width, interest);
    if (!varying && e->n > 1) return BSN_FORM_CONST;
    e->constant = interest & ~varying;
    e->exponent = 0;
    if (interest && (c->shape.dtype != BITSNAP_F64 || bsn_choose_base(e->elements, e->n, &e->exponent))) return BSN_FORM_SPLIT;
    return bsn_zigzags(e->work, c, e->elements, e->n) ? BSN_FORM_ZIGZAG : BSN_FORM_BYTES;
}

/* A sample of runs of 8 elements from all over the block. */
typedef struct bsn_sampled_runs {
    unsigned runs, zeros; /* runs; zeros of either sign in all of them */
    unsigned low[34];     /* low[k]: runs whose elements share k low bits that are 0; low[33]: runs of
                             zeros */
    uint64_t any, all;    /* OR and AND of the magnitudes above 0: equal if these are one value */
} bsn_sampled_runs;

BSN_INLINE void bsn_sample_runs(bsn_sampled_runs *x, const uint8_t *elements, size_t n, unsigned width)
{
    const uint64_t magnitude = bsn_low_bits(8 * width - 1);
    unsigned r, k;
    memset(x, 0, sizeof *x);
    x->all = magnitude;
    x->runs = (unsigned)bsn_min(64, n / 128);
    for (r = 0; r < x->runs; r++) {
        const uint8_t *p = elements + (n / 8 - 1) * r / (x->runs - 1) * 8 * width;
        uint64_t any = 0;
        for (k = 0; k < 8; k++, p += width) {
            const uint64_t v = bsn_element_load(p, width) & magnitude;
            any |= v;
            x->zeros += !v;
            x->all &= v ? v : magnitude;
        }
        x->any |= any;
        x->low[any ? bsn_lowest_bit(any) : 33]++;
    }
}

/* Decides whether PARTED may pay, and what side 1 is: zeros of either sign, or elements with more low bits 0
 * than all have. Granules of 8 elements are for rows; if all elements but zeros are one value, the mask of
 * elements tells all. PARTED is then made, and kept if it is smaller. */
static int bsn_looks_parted(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width, exponent = bsn_symbol_bits(c->shape.dtype), mantissa = 8 * width - 1 - exponent;
    unsigned least = 0, above = 0, others, mixed, z;
    uint64_t gain, best = 0;
    bsn_sampled_runs x;
    if (!bsn_may_part(c) || e->n < 512) return 0;
    BSN_WIDTHS(width, bsn_sample_runs, (&x, e->elements, e->n));
    if (x.zeros * 4 >= x.runs) {
        others = 8 * x.runs - x.zeros;
        mixed = x.zeros - 8 * x.low[33];
        best = (uint64_t)x.zeros * (8 * width - exponent);
        e->low = bsn_low_bits(8 * width - 1);
        e->granule = others && 10 * mixed <= x.zeros && others > mixed && x.any != x.all ? 3 : 0;
    }
    while (least < 32 && !x.low[least]) least++;
    if (least >= 3) { /* SPLIT gains by bits that are 0 in all elements, not only in the sample */
        const uint64_t varying = bsn_varying_bits(e->elements, e->n, width, bsn_low_bits(least));
        if (varying) least = bsn_lowest_bit(varying);
    }
    for (z = 32; z >= 3 && z > least; z--) {
        above += x.low[z];
        gain = 8 * (uint64_t)above * (z - least);
        if (z > mantissa || gain < x.runs || gain <= best) continue;
        best = gain;
        e->low = bsn_low_bits(z);
        e->granule = 3;
    }
    return best != 0;
}

/* PATCHED: signs of the side are relative to those predicted. */
#define BSN_RELATIVE 0x80

/* Decides by runs of 8 elements whether PATCHED may pay: most runs are as predicted or not as a whole, or what
 * is not as predicted is 0. */
static void bsn_looks_patched(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const unsigned width = c->shape.width, runs = (unsigned)bsn_min(32, e->n / 128);
    unsigned same = 0, mixed = 0, whole = 0;   /* elements as predicted; runs with some and with no such
                                                  elements */
    unsigned zeros = 0, minus = 0, unlike = 0; /* other elements that are 0; -0 among them, and those of
                                                  another sign than predicted */
    unsigned r, k, rows;
    e->patched = -1;
    if (c->flags & BITSNAP_SELF_CONTAINED || !bsn_may_part(c) || e->n < 512) return;
    for (r = 0; r < runs; r++) {
        const size_t i = (e->n / 8 - 1) * r / (runs - 1) * 8;
        const uint8_t *p = bsn_predict(c->shape.dtype, c->shape.base_dtype, e->ids->cell, i, 8, e->work->elements);
        unsigned equal = 0;
        for (k = 0; k < 8; k++) {
            const uint64_t v = bsn_element_load(e->elements + (i + k) * width, width), x = v ^ bsn_element_load(p + k * width, width);
            equal += !x;
            if (!x || v & bsn_low_bits(8 * width - 1)) continue;
            zeros++;
            minus += v != 0;
            unlike += x >> (8 * width - 1) != 0;
        }
        same += equal;
        mixed += equal && equal < 8;
        whole += !equal;
    }
    rows = whole && mixed <= whole && 10 * mixed <= runs;
    if (!same || same == 8 * runs || (!rows && 32 * (8 * runs - same - zeros) > 8 * runs - same)) return;
    e->patched = rows ? 3 : 0;
    if (8 * unlike < minus) e->patched |= BSN_RELATIVE;
}

typedef struct bsn_parting { /* in scratch, as the deepest chain of calls has no stack for it */
    bsn_coding side;
    bsn_context context; /* of the sides: the block's check covers the whole body */
    bsn_rooms room;
    bsn_writer writer;   /* of the mask */
    const uint8_t *signs; /* predictions, if signs are relative to theirs; else null */
} bsn_parting;
BSN_ASSERT(parting_state, sizeof(bsn_parting) <= BSN_PARTED_STATE);

/* Makes the mask of side 1. PATCHED: elements that differ from their predictions; with granules, also those
 * of a granule that has one. PARTED (`predictions` is null): the others, where what differs from 0 is a bit of
 * e->low. */
static void bsn_parting_mask(const bsn_coding *e, uint8_t *mask, const uint8_t *predictions, unsigned granule)
{
    const unsigned width = e->context->shape.width, flip = predictions ? 0 : 0xFF;
    uint8_t *masked = e->work->elements, *none = e->work->plane[0];
    /* for each element in 8 bytes */
    const uint64_t pattern = predictions ? ~UINT64_C(0) : e->low * (~UINT64_C(0) / bsn_low_bits(8 * width));
    uint64_t x;
    size_t i, j, m;
    memset(none, 0, 512 * width);
    for (i = 0; i < e->n; i += m) {
        m = bsn_min(512, e->n - i);
        memcpy(masked, e->elements + i * width, m * width);
        for (j = 0; j < m * width; j += 8) {
            memcpy(&x, masked + j, 8);
            x &= pattern;
            memcpy(masked + j, &x, 8);
        }
        bsn_compare(e->context->kernels, width, mask + i / 8, masked, predictions ? predictions + i * width : none, m);
    }
    for (i = 0; i < bsn_mask_bytes(e->n); i++) mask[i] = (uint8_t)((granule && mask[i] ? 0xFF : mask[i]) ^ flip);
    if (e->n & 7) mask[i - 1] &= (uint8_t)(0xFF >> (8 - (e->n & 7)));
}

/* Counts elements by magnitude, in steps of 2^shift from `least` on: those of the mask up, others down.
 * Returns the count of those below. */
BSN_INLINE uint32_t bsn_count_patched(uint32_t count[256], const uint8_t *mask, const uint8_t *p, size_t n,
                                      uint64_t least, unsigned shift, unsigned width)
{
    uint32_t below = 0;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(p + i * width, width) & bsn_low_bits(8 * width - 1);
        const uint32_t one = BSN_BIT((unsigned)mask[i / 8], i & 7) ? 1 : 0 - 1u;
        if (v < least) below += one;
        else if ((v - least) >> shift < 256) count[(v - least) >> shift] += one;
    }
    return below;
}

/* Chooses the magnitude below which most predictions are those of the `ones` elements of the mask, and above
 * which most are those of others: what is pruned by magnitude. Each pass looks 128 times closer. Returns 0 if
 * there is no such magnitude. */
static uint64_t bsn_choose_magnitude(const bsn_coding *e, const uint8_t *mask, const uint8_t *predictions, size_t ones)
{
    const unsigned width = e->context->shape.width;
    /* what the mask alone tells, in elements whose bit is 0 */
    const int64_t usual = ones > e->n - ones ? (int64_t)(2 * ones - e->n) : 0;
    uint32_t *count = e->work->planner->count, below = 0;
    unsigned shift = width == 1 ? 0 : 8 * width - 9, k, at;
    uint64_t least = 0;
    int64_t sum, best;
    for (;;) {
        memset(count, 0, 256 * sizeof *count);
        BSN_WIDTHS(width, below = bsn_count_patched, (count, mask, predictions, e->n, least, shift));
        best = sum = (int32_t)below;
        for (at = k = 0; k < 256; k++) {
            sum += (int32_t)count[k];
            if (sum <= best) continue;
            best = sum;
            at = k + 1;
        }
        if (!shift || best == (int64_t)ones) return best > usual + (int64_t)(e->n / 32) ? least + ((uint64_t)at << shift) : 0;
        if (at) least += (uint64_t)(at - 1) << shift;
        shift = shift > 7 ? shift - 7 : 0;
    }
}

/* Writes a side of n elements, and its form before it, at `at`. Returns the end of its body; null if there is
 * no room. SPLIT overwrites the elements, so STORED takes them from the block again. */
static uint8_t *bsn_write_side(const bsn_coding *e, bsn_parting *p, uint8_t *at, unsigned which, size_t n)
{
    const unsigned width = e->context->shape.width;
    uint8_t *elements = p->room.lists;
    bsn_coding *s = &p->side;
    int done = 0, stored;
    if ((size_t)(e->end - at) < 2) return NULL;
    s->elements = elements;
    s->n = n;
    s->body = at + 1;
    for (s->plain = stored = 0; stored < 2 && done <= 0; stored += done == 0, s->plain = done < 0) {
        e->context->kernels->partition(width, e->elements, e->n, p->room.place, which ? NULL : elements, which ? elements : NULL);
        if (p->signs) BSN_WIDTHS(width, bsn_flip_signs, (elements, p->room.place, p->signs, e->n));
        s->end = stored ? e->end : s->body + bsn_min((size_t)(e->end - s->body), n * width - 1);
        *at = (uint8_t)(stored ? (unsigned)BSN_FORM_STORED : bsn_plain_form(s));
        done = *at == BSN_FORM_STORED ? bsn_produce_stored(s) : *at == BSN_FORM_CONST ? bsn_produce_const(s) : bsn_write_split(s);
    }
    return done ? s->body + s->made.size : NULL;
}

/* PARTED: the size of granules, their mask, and two sides. PATCHED: also a magnitude, below which bits of the
 * mask are inverted, and one side. */
static int bsn_produce_parted(bsn_coding *e)
{
    const bsn_context *c = e->context;
    const int patched = BSN_WITH_DELTA && e->made.form == BSN_FORM_PATCHED;
    const unsigned width = c->shape.width, granule = patched ? (unsigned)e->patched & 7 : e->granule;
    const size_t n = e->n, bytes = bsn_mask_bytes(n);
    bsn_arena arena = e->arena;
    bsn_parting *p = (bsn_parting *)(void *)arena.at;
    const uint8_t *predictions = NULL;
    uint8_t *at = e->body, *mask, *symbols;
    uint64_t least;
    size_t ones, i;
    bsn_lay_mask(&arena, &p->room, c, n);
    p->side = *e;
    p->side.context = &p->context;
    p->side.side = 1;
    p->side.arena = arena;
    bsn_lay_alone(&arena, &p->room, c, n);
    mask = p->room.place;
    symbols = p->room.planes;
    if (patched) predictions = bsn_predict(c->shape.dtype, c->shape.base_dtype, e->ids->cell, 0, n, p->room.words);
    p->signs = patched && (e->patched & BSN_RELATIVE) ? predictions : NULL;
    bsn_parting_mask(e, mask, predictions, granule);
    ones = c->kernels->count(mask, n);
    if (ones == 0 || ones == n || e->end - e->body < 9) return 0;
    p->context = *c;
    p->context.shape.flags &= ~(unsigned)BSN_FLAG_CHECKS;
    p->context.large = p->context.stream = 0;
    memcpy(symbols, mask, bytes);
    if (granule) memset(symbols, 0, bsn_mask_bytes(bytes));
    for (i = 0; granule && i < bytes; i++) symbols[i / 8] |= (uint8_t)((mask[i] & 1) << (i & 7));
    *at++ = (uint8_t)(patched ? (unsigned)e->patched : granule);
    if (patched) {
        least = granule ? 0 : bsn_choose_magnitude(e, mask, predictions, ones);
        for (i = 0; i < width; i++) *at++ = (uint8_t)(least >> 8 * i);
        if (least) BSN_WIDTHS(width, bsn_flip_below, (symbols, predictions, n, least));
    }
    bsn_coding_writer(&p->writer, e, (size_t)(at - e->body), p->room.lists);
    bsn_list_write(&p->writer, symbols, granule ? bsn_mask_bytes(bytes) : bytes, 8);
    at = p->writer.full ? NULL : p->writer.at;
    if (at && !patched) at = bsn_write_side(e, p, at, 0, n - ones);
    if (at) at = bsn_write_side(e, p, at, 1, ones);
    return at ? bsn_produced(e, at) : 0;
}

/* ---- encoding: the table of producers, and the choice of a form ---- */

/* How each form is encoded, by its number. `produce` writes a body from e->body to before e->end, sets
 * e->made.size, and adds to e->made.record what the check covers of the body. It returns 0 if the body does not fit, or
 * if the form has none for these elements; what it has written is then without meaning. It returns -1 if it
 * has written nothing. Null: left out of this build. */
typedef struct bsn_producer {
    int (*produce)(bsn_coding *e);
} bsn_producer;

static const bsn_producer bsn_producers[] = {
    { bsn_produce_stored },
    { bsn_produce_const },
    { bsn_produce_split },
    { bsn_produce_bytes },
    { BSN_WITH_DELTA ? bsn_produce_same : NULL },
    { BSN_WITH_DELTA ? bsn_produce_classed : NULL },
    { bsn_produce_scaled },
    { BSN_WITH_QUANTIZE ? bsn_produce_quantized : NULL },
    { BSN_WITH_DELTA ? bsn_produce_sparse : NULL },
    { bsn_produce_zigzag },
    { bsn_produce_parted },
    { BSN_WITH_DELTA ? bsn_produce_parted : NULL }
};
BSN_ASSERT(producers, sizeof bsn_producers / sizeof *bsn_producers == BSN_FORM_LAST + 1);

/* Makes a candidate of at most `most` bytes in place of the one before. */
static int bsn_try(bsn_coding *e, unsigned form, size_t most)
{
    e->made.record = e->begun;
    e->end = e->body + bsn_min(e->room, most);
    e->made.form = form;
    return bsn_producers[form].produce(e);
}

/* Makes a body that needs no quantizer, and no difference to a base. Returns 0 if none has at most `most`
 * bytes. Of forms that could pay all are made, and each must be smaller than those before: no estimate is
 * good enough to say that none is larger than at a lower level. But PATCHED or PARTED is the last if it takes
 * less than the planes of SPLIT do while they are raw. If these are coded, so are those of a side. */
static int bsn_choose_alone(bsn_coding *e, size_t most)
{
    const bsn_context *c = e->context;
    const unsigned plain = bsn_plain_form(e), forms[4] = { BSN_FORM_PATCHED, BSN_FORM_PARTED, plain, BSN_FORM_SCALED };
    /* bits that symbols may have of those of planes */
    const unsigned more = bsn_most_symbol_bits(c) - bsn_symbol_bits(c->shape.dtype);
    const int scales = plain != BSN_FORM_CONST && c->level == BITSNAP_BEST && bsn_may_scale(c, e->n);
    bsn_candidate best = { e->begun, 0, 0 };
    unsigned k;
    int intact = 0, made;
    for (k = plain == BSN_FORM_CONST ? 2 : e->patched < 0; k < 3u + (unsigned)scales; k++) {
        if (k == 1 && !bsn_looks_parted(e)) continue;
        made = bsn_try(e, forms[k], best.size ? best.size - 1 : most);
        if (made >= 0) intact = made;
        if (made <= 0) continue;
        best = e->made;
        if (k < 2 && !scales && 8 * best.size + more * e->n <= bsn_popcount(bsn_plane_bits(c) & ~e->constant) * e->n) break;
    }
    if (!best.size) return 0;
    if (!intact) return bsn_try(e, best.form, best.size);
    e->made = best;
    return 1;
}

/* Sets the candidate aside and makes another, without base or quantizer, of at most `most` bytes. Keeps the
 * smaller one, and of two of the same size the other. */
static int bsn_choose_other(bsn_coding *e, size_t most)
{
    const bsn_candidate made = e->made;
    uint8_t *aside = (uint8_t *)bsn_arena_take(&e->arena, e->n * e->context->shape.width);
    memcpy(aside, e->body, made.size);
    if (bsn_choose_alone(e, most) && e->made.size <= made.size) return 1;
    memcpy(e->body, aside, made.size);
    e->made = made;
    return 1;
}

/* Makes a body for a frame with a base, of at most `most` bytes. */
static int bsn_choose_with_base(bsn_coding *e, size_t most)
{
    const bsn_context *c = e->context;
    bsn_ids *ids = e->ids;
    uint8_t both[BSN_IDS_SIZE];
    size_t sparse = 0, delta;
    int same = 0;
    if (ids->cell) {
        bsn_arena arena = e->arena;
        bsn_lay_delta(&arena, &e->delta, c, e->n);
        bsn_changes_begin(e->delta.changes, c, e->n);
        same = bsn_take_words(e, 1, 1);
        ids->base_hash = bsn_leaves_end(c->kernels, &ids->base, e->n);
        ids->result_hash = bsn_leaves_end(c->kernels, &ids->result, e->n);
    }
    bsn_store64(both, ids->base_hash);
    bsn_store64(both + 8, ids->result_hash);
    bsn_record_bytes(&e->begun, both, sizeof both);
    memcpy(e->body - BSN_IDS_SIZE, both, sizeof both);
    if (!ids->cell) return bsn_choose_alone(e, most);
    if (same) return bsn_try(e, BSN_FORM_SAME, most);
    if (e->delta.changes->count) {
        sparse = bsn_piece_plan(&e->piece, e->delta.changes, e->n, c->shape.width);
        if (c->level == BITSNAP_FAST || (e->any <= BSN_SPARSE_SURE && c->level != BITSNAP_BEST))
            return bsn_try(e, BSN_FORM_SPARSE, most);
        (void)bsn_take_words(e, 0, 0);
    }
    delta = bsn_try(e, BSN_FORM_CLASSED, most) ? e->made.size : 0;
    if (sparse && (!delta || sparse <= delta)) return bsn_try(e, BSN_FORM_SPARSE, most);
    bsn_looks_patched(e);
    if (!delta) return bsn_choose_alone(e, most);
    /* of PATCHED, PARTED and coded planes that is no bound */
    if (e->patched < 0 && !bsn_looks_parted(e) && !bsn_choose_coded(e) && bsn_plain_takes(e, 8 * (uint64_t)delta)) return 1;
    return bsn_choose_other(e, delta - 1);
}

/* Makes a body for a frame with a quantizer, of at most `most` bytes. */
static int bsn_choose_quantized(bsn_coding *e, size_t most)
{
    /* CONST is smaller, and exact */
    if (!bsn_varying_bits(e->elements, e->n, e->context->shape.width, 0)) return bsn_choose_alone(e, most);
    if (!bsn_try(e, BSN_FORM_QUANTIZED, most)) return bsn_choose_alone(e, most);
    if (bsn_load64(e->body + 8) <= e->n / 64) return 1;
    return bsn_choose_other(e, most); /* more would be exact at no cost */
}

/* Encodes n elements, beginning with number `first` of the frame, to at most `capacity` bytes. Returns the
 * size of the block, or 0 if it does not fit: bsn_block_most bytes are always enough. Not inlined: the state
 * would add to the stack of what callers call next. */
BSN_FUNCTION size_t bsn_encode_block(bsn_work *w, const bsn_context *c, uint8_t *to, size_t capacity, const uint8_t *elements,
                                     size_t n, uint64_t first, bsn_ids *ids)
{
    const size_t prefix = bsn_prefix(&c->shape), stored = n * c->shape.width;
    bsn_coding e;
    int found;
    if (capacity < prefix) return 0;
    e.work = w;
    e.context = c;
    e.elements = elements;
    e.n = n;
    e.first = first;
    e.ids = ids;
    e.patched = -1;
    e.arena = w->arena;
    e.body = to + prefix;
    e.room = capacity - prefix;
    e.constant = 0;
    e.plain = e.side = 0;
    bsn_record_begin(&e.begun, c, first, n, 0);
    if (BSN_WITH_DELTA && c->shape.role) found = bsn_choose_with_base(&e, stored - 1);
    else if (BSN_WITH_QUANTIZE && (c->log || c->shape.clusters)) found = bsn_choose_quantized(&e, stored - 1);
    else found = bsn_choose_alone(&e, stored - 1);
    if (!found && !bsn_try(&e, BSN_FORM_STORED, stored)) return 0;
    bsn_store32(to, (uint32_t)(e.made.form | (e.made.form == BSN_FORM_CONST ? 1 : e.made.size) << 8));
    if (bsn_has_checks(&c->shape)) {
        memcpy(e.made.record.bytes + 24, to, 4);
        bsn_store64(to + BSN_HEAD_SIZE, bsn_hash_of(c->kernels, e.made.record.bytes, e.made.record.size));
    }
    if (c->stream) bsn_streamed();
    return prefix + e.made.size;
}

/* ---- decoding: where elements go ---- */

/* Where the decoded elements of a block go. */
typedef struct bsn_sink {
    uint8_t *to;            /* receives elements from .. until - 1 of the block; null: they are not stored */
    const uint8_t *compare; /* if `to` is null: what they are compared with; null: nothing */
    size_t from, until;
    int stream;             /* 1: stored past the caches, by way of scratch */
    int in_order;           /* 1: stored by bsn_store_in_order, by way of scratch */
    unsigned held;          /* the block's first bytes that go to `first` instead of `to`; 0 to 8 */
    uint8_t first[8];
    size_t differs;         /* result of comparing: the first element that differs; `until` if none does */
    const bsn_log *log;     /* comparing: numbers of one bin count as equal; null: bits are compared */
    const bitsnap_kernels *kernels;
    bsn_leaves *leaves;     /* receives the hash leaves of all n elements; null: they are not hashed */
    size_t n;
} bsn_sink;

BSN_INLINE int bsn_sink_wants(const bsn_sink *s, size_t i, size_t m)
{
    return (s->to || s->compare) && i < s->until && i + m > s->from;
}

/* Returns where elements i .. i + m - 1 are to be made: at their place in `to`, or in scratch if
 * bsn_sink_done has to move them or only some of them are wanted; null if neither `to` nor a hash needs any
 * of them. */
BSN_INLINE uint8_t *bsn_sink_place(bsn_work *w, const bsn_sink *s, unsigned width, size_t i, size_t m)
{
    const int wanted = bsn_sink_wants(s, i, m);
    if (wanted && s->to && !s->stream && !s->in_order && i >= s->from && i + m <= s->until && (i || !s->held))
        return s->to + (i - s->from) * width;
    return wanted || s->leaves ? w->elements : NULL;
}

/* Overwrites elements from the first byte on, so that a killed process leaves new bytes up to some position
 * and old ones after it. The unit is a word; elements that are wider, or too few to fill one, are stored one
 * by one. */
static void bsn_store_in_order(uint8_t *to, const uint8_t *from, size_t size, unsigned width)
{
    size_t i;
    for (i = 0; width <= sizeof i && i + sizeof i <= size; i += sizeof i) {
        memcpy(to + i, from + i, sizeof i);
        BSN_ORDERED();
    }
    for (; i < size; i += width) {
        bsn_element_store(to + i, bsn_element_load(from + i, width), width);
        BSN_ORDERED();
    }
}

/* Compares elements i .. i + m - 1 of the block, which are at `place`. Keeps the first difference of all
 * calls. */
static void bsn_sink_compare(bsn_sink *s, unsigned width, size_t i, size_t m, const uint8_t *place)
{
    const uint8_t *compare = s->compare + (i - s->from) * width;
    size_t a;
    if (s->differs != s->until || bsn_equal(compare, place, m * width)) return;
    for (a = 0; a < m; a++)
        if (!bsn_equal(compare + a * width, place + a * width, width) &&
            !(BSN_WITH_QUANTIZE && s->log && bsn_log_same(s->log, compare + a * width, place + a * width)))
            break;
    if (a < m) s->differs = i + a;
}

/* Takes elements i .. i + m - 1, which are at `place`: hashes them, then stores or compares those that are
 * wanted. `place` is what bsn_sink_place returned, or any other memory. Calls must come in order if the sink
 * has leaves. */
static void bsn_sink_done(bsn_work *w, bsn_sink *s, unsigned width, size_t i, size_t m, const uint8_t *place)
{
    const size_t skip = i < s->from ? s->from - i : 0;
    size_t some, held;
    uint8_t *to;
    if (s->leaves) bsn_leaves_add(s->kernels, &w->pieces, s->leaves, place, i, m, s->n, width);
    if (!bsn_sink_wants(s, i, m) || (!skip && s->to && place == s->to + (i - s->from) * width)) return;
    some = bsn_min(m, s->until - i) - skip;
    place += skip * width;
    if (!s->to) {
        bsn_sink_compare(s, width, i + skip, some, place);
        return;
    }
    to = s->to + (i + skip - s->from) * width;
    if (s->stream) {
        bsn_stream(to, place, some * width);
    } else if (s->in_order) {
        bsn_store_in_order(to, place, some * width, width);
    } else {
        held = i ? 0 : s->held;
        memcpy(s->first, place, held);
        memcpy(to + held, place + held, some * width - held);
    }
}

/* ---- decoding: a block and its body ----
 * What opening a body leaves for making its elements: one struct for each kind of body, together in a
 * union. */

typedef struct bsn_split_body {
    bsn_layout layout;
    bsn_reader reader;         /* the list of symbols */
    uint64_t list_hash;
    const uint8_t *coded;      /* coded bits of plane 0, if it has any; those of plane k are k *
                                  bsn_plane_room(n) bytes further on */
    const uint8_t *plane[8];   /* the planes of the current chunk */
    unsigned within;           /* the plane that `finish` makes of bit planes itself; the width, if none */
    int finishes;              /* 1: the kernel `finish` makes chunks at once; 0: step by step */
    bsn_ahead ahead;           /* the next block, which is prefetched */
    bsn_finish finish;
    uint8_t tail[64];          /* the last 64 bytes that bsn_lines_next has taken */
    uint8_t *streamed;         /* the end of the elements that it has taken, tail included; null: nothing
                                  waits in the tail */
} bsn_split_body;

typedef struct bsn_bytes_body {
    const uint8_t *plane[8];   /* of all elements */
    bsn_field field;
} bsn_bytes_body;

typedef struct bsn_classed_body {
    bsn_classes classes;
    unsigned stated;           /* classes that the body states: count, unless some can have no elements; also
                                  the size of its head */
    size_t above[7];           /* above[k]: elements of a class above class k */
    bsn_reader reader;
} bsn_classed_body;

typedef struct bsn_sparse_body {
    bsn_changes *changes;
    size_t next;               /* the next change to add */
} bsn_sparse_body;

/* Elements that a quantizer stores exactly. */
typedef struct bsn_exact {
    const uint8_t *next;
    size_t left;
} bsn_exact;

typedef struct bsn_numbers_body { /* SCALED and QUANTIZED: words, with scales or not */
    bsn_reader reader;
    bsn_words words;
    bsn_scales scales;
    bsn_row row;
    uint64_t offset;           /* SCALED: added to each word */
    bsn_exact exact;           /* QUANTIZED */
    unsigned clusters;
    bsn_cluster *cluster;      /* of codes that name one, in scratch */
    int looked_up;             /* 1: words.place has the number of every code */
} bsn_numbers_body;

/* A block that is being decoded. Each step returns the number of the rule that is broken, with `place` set,
 * or 0. */
typedef struct bsn_decoding {
    bsn_work *work;
    const bsn_context *context;
    const struct bsn_form *form;
    const uint8_t *body, *end;
    const uint8_t *input_end;  /* nothing is read from here on */
    const uint8_t *base;       /* the block's first element in the base; null: no base, or it is not there
                                  (blind) */
    const uint8_t *expected;   /* in the block: the hash of the base's cell, then that of the elements; null
                                  without a base */
    bsn_ids *ids;              /* with a base: receives the hashes of both cells */
    uint64_t first;            /* the block's first element in the frame */
    size_t n;                  /* elements */
    bsn_sink *sink;
    bsn_record *record;
    const struct bsn_job *at;
    int checking;              /* 1: what the block's check covers is hashed to the record */
    int hash_base;             /* 1: the base's cell is hashed and compared with `expected` */
    int base_first;            /* 1: also of SPARSE blocks before any element is made */
    int same;                  /* 1: the elements are those of the base, and so are their hashes */
    uint8_t *side;             /* a side of PARTED: its planes, or its elements. Bytes may follow its body.
                                  Else null */
    bitsnap_block *report;     /* receives what the body is made of; or null */
    const uint8_t *made;       /* where the current chunk is */
    const uint8_t *place;      /* where a rule is broken */
    union {
        bsn_split_body split;
        bsn_bytes_body bytes;
        bsn_classed_body classed;
        bsn_sparse_body sparse;
        bsn_numbers_body numbers;
        struct bsn_parted *parted; /* in scratch */
    } of;
} bsn_decoding;

/* Prefetches of one chunk, spread over the steps that make it: a few lines overlap with computing, many at
 * once stall. `read` is the next block, or null. What follows `out` is prefetched, too, unless it is
 * scratch. */
typedef struct bsn_asking {
    bsn_ahead *read;
    const uint8_t *write;
    size_t to_read, to_write; /* lines, bytes left */
    unsigned parts;           /* calls of bsn_ask left */
} bsn_asking;

BSN_INLINE bsn_asking bsn_asking_for(const bsn_decoding *d, bsn_ahead *read, size_t lines, const uint8_t *out, size_t m,
                                     unsigned parts)
{
    const size_t portion = d->context->large && out && out != d->work->elements ? m * d->context->shape.width : 0;
    bsn_asking a;
    a.read = read;
    a.write = portion ? out + portion : d->body;
    a.to_read = lines;
    a.to_write = portion;
    a.parts = parts;
    return a;
}

BSN_INLINE void bsn_ask(bsn_asking *a)
{
    const size_t read = (a->to_read + a->parts - 1) / a->parts;
    const size_t write = bsn_min(a->to_write, (a->to_write / a->parts + 63) & ~(size_t)63);
    if (read) bsn_ahead_ask(a->read, read);
    bsn_prefetch_near(a->write, write);
    a->to_read -= read;
    a->write += write;
    a->to_write -= write;
    a->parts--;
}

/* ---- decoding: lists and words, which can be reported ---- */

#ifdef BITSNAP_NO_EXTRAS
#define BSN_WITH_REPORT 0
#else
#define BSN_WITH_REPORT 1
#endif

static bitsnap_part *bsn_report_part(bitsnap_block *block, uint64_t elements, uint64_t size)
{
    bitsnap_part *part = &block->part[block->parts++];
    part->elements = elements;
    part->size = size;
    return part;
}

static void bsn_reader_begin(bsn_reader *r, const bsn_decoding *d, const uint8_t *at, const bsn_rooms *room)
{
    r->kernels = d->context->kernels;
    r->lists = &d->work->lists;
    r->at = at;
    r->end = d->end;
    r->input_end = d->input_end;
    r->scratch = room->lists;
    r->scratch_end = room->lists + BSN_LISTS_SIZE(d->n);
    r->kept = room->kept;
    r->kept_end = room->kept + BSN_KEPT_SIZE(d->n);
}

/* Scratch for lists and planes. */
static bsn_rooms bsn_planes_rooms(const bsn_decoding *d)
{
    bsn_arena a = d->work->arena;
    bsn_rooms x;
    bsn_lay_planes(&a, &x, d->context, d->n);
    if (d->side) x.planes = d->side;
    return x;
}

/* Parses a list of n symbols at r->at. r->rule is the rule that is broken. */
static void bsn_open_list(bsn_decoding *d, bsn_reader *r, size_t n, unsigned bits)
{
    const uint8_t *begin = r->at;
    const unsigned kind = BSN_WITH_REPORT && d->report && n && begin < r->end ? bsn_once8(begin) : 0;
    bsn_list_read(r, n, bits);
    if (BSN_WITH_REPORT && d->report) bsn_report_part(d->report, n, (uint64_t)(r->at - begin))->kind = kind;
}

/* Reads n words at x->reader->at, whose `rule` is the rule that is broken. Reports how many are not 0: they
 * must have x->width bytes. */
static void bsn_open_words(bsn_decoding *d, bsn_words *x, size_t n)
{
    static const uint8_t zero[8] = { 0 };
    const uint8_t *begin = x->reader->at;
    bitsnap_part *part;
    size_t i;
    bsn_words_read(x, n);
    if (!BSN_WITH_REPORT || !d->report || x->reader->rule) return;
    part = bsn_report_part(d->report, n, (uint64_t)(x->reader->at - begin));
    if (n) part->kind = x->kind;
    for (i = 0; i < n; i++) part->changed += !bsn_equal(x->words + i * x->width, zero, x->width);
}

/* Returns what a reader has found wrong. Nothing may follow what it has read. */
static unsigned bsn_opened_all(bsn_decoding *d, const bsn_reader *r)
{
    d->place = r->at;
    return r->rule ? r->rule : r->at != d->end && !d->side ? BITSNAP_R_BODY_END : 0;
}

/* ---- decoding: SPLIT ---- */

/* Reads the descriptor of a body and places its planes. */
static unsigned bsn_layout_read(bsn_layout *y, const bsn_decoding *d)
{
    const unsigned dtype = d->context->shape.dtype, width = d->context->shape.width;
    const uint8_t *p = d->body;
    unsigned bits, flags, k, some = 0, any, base = 0;
    if (p == d->end) return BITSNAP_R_PLANES;
    flags = bsn_once8(p++);
    bits = flags & 15;
    flags &= 0xF0;
    if (!bsn_symbol_bits(dtype) || bits < 1 || bits > (width == 1 ? 7u : 8u) || (dtype == BITSNAP_F64 && bits != 8) ||
        (flags & ~(BSN_HAS_CONSTANTS | BSN_HAS_CODED)))
        return BITSNAP_R_DESCRIPTOR;
    bsn_layout_begin(y, dtype, bits, 0);
    if (flags & BSN_HAS_CONSTANTS) {
        if ((size_t)(d->end - p) < 2 * y->planes) return BITSNAP_R_PLANES;
        for (k = 0; k < y->planes; k++) {
            const unsigned all = y->varying[k], varying = bsn_once8(p + k), value = bsn_once8(p + y->planes + k);
            if ((varying & ~all) || (value & ~(all & ~varying))) return BITSNAP_R_CONSTANT_BITS;
            some |= all & ~varying;
            y->varying[k] = (uint8_t)varying;
            y->value[k] = (uint8_t)value;
        }
        if (!some) return BITSNAP_R_CONSTANT_BITS;
        p += 2 * y->planes;
    }
    if (y->field.wide) {
        if (d->end - p < 2) return BITSNAP_R_PLANES;
        base = bsn_once8(p) | bsn_once8(p + 1) << 8;
        if (base > 2047 - 255) return BITSNAP_R_EXPONENT_BASE;
        y->field.base = base;
        p += 2;
    }
    if (flags & BSN_HAS_CODED) {
        if ((size_t)(d->end - p) < y->planes) return BITSNAP_R_PLANES;
        for (k = any = 0; k < y->planes; k++) {
            y->coded[k] = (uint8_t)bsn_once8(p++);
            if ((y->coded[k] & ~y->varying[k]) || (y->coded[k] && (d->side ? k + 2 != width : k + 1 == width))) return BITSNAP_R_CODED_PLANE;
            y->varying[k] &= (uint8_t)~y->coded[k];
            any |= y->coded[k];
        }
        if (!any) return BITSNAP_R_CODED_PLANE;
    }
    y->descriptor_size = (size_t)(p - d->body);
    bsn_layout_place(y, d->n);
    if ((size_t)(d->end - d->body) < y->at[y->planes]) return BITSNAP_R_PLANES;
    for (k = 0; k < y->planes; k++)
        if (y->varying[k] != 0xFF && !bsn_bits_tail_clear(d->body + y->at[k], y->varying[k], d->n)) return BITSNAP_R_PLANE_TAIL;
    return 0;
}

/* Makes bytes of their ranks: in full groups of 64 by the group's mask of values, which has `size` bytes.
 * Returns 0 if a rank has no value. */
static int bsn_unrank_bytes(uint8_t *bytes, const uint8_t *masks, size_t groups, unsigned size)
{
    uint8_t value[256];
    uint64_t left;
    unsigned count, k;
    for (; groups--; bytes += 64, masks += size) {
        for (k = count = 0; k < size; k += 8)
            for (left = bsn_load64(masks + k); left; left &= left - 1) value[count++] = (uint8_t)(8 * k + bsn_lowest_bit(left));
        if (!count || bsn_above64(bytes, count - 1)) return 0;
        BSN_UNROLL
        for (k = 0; k < 64; k++) bytes[k] = value[bytes[k]];
    }
    return 1;
}

/* Reads the coded bits of plane k at r->at, and adds its constant ones. The masks take the room before plane
 * 0, which nothing else needs. */
static unsigned bsn_open_coded(bsn_decoding *d, bsn_reader *r, const bsn_rooms *room, unsigned k)
{
    const unsigned bits = d->of.split.layout.coded[k], value = d->of.split.layout.value[k], size = bsn_mask_size(bits);
    const size_t n = d->n, all = n / 64 * size;
    uint8_t *masks = room->planes, *bytes = masks + (k + 1) * bsn_plane_room(n);
    unsigned distance;
    size_t i;
    if (r->at == d->end) return BITSNAP_R_CODED_PLANE;
    distance = bsn_once8(r->at);
    bsn_reader_begin(r, d, r->at + 1, room);
    bsn_list_read(r, all, 8);
    if (r->rule) return r->rule;
    bsn_list_take(r, masks, all);
    for (i = distance * size; distance && i < all; i += 8) bsn_store64(masks + i, bsn_load64(masks + i) ^ bsn_load64(masks + i - distance * size));
    bsn_reader_begin(r, d, r->at, room);
    bsn_list_read(r, n, 8);
    if (r->rule) return r->rule;
    bsn_list_take(r, bytes, n);
    if (!bsn_unrank_bytes(bytes, masks, n / 64, size) || !bsn_bits_hold(bytes, n, ~bits & 0xFF, 0)) return BITSNAP_R_CODED_PLANE;
    for (i = 0; value && i < n; i++) bytes[i] |= (uint8_t)value;
    return 0;
}

/* Reads descriptor, coded planes and list. The hashes of the planes begin here and go on chunk by chunk, that
 * of all after them is computed here. */
static unsigned bsn_open_split(bsn_decoding *d)
{
    bsn_split_body *x = &d->of.split;
    bsn_layout *y = &x->layout;
    bsn_reader *r = &x->reader;
    const bsn_rooms room = bsn_planes_rooms(d);
    const uint8_t *begin;
    unsigned rule = bsn_layout_read(y, d), k, coded;
    if (rule) return rule;
    bsn_reader_begin(r, d, d->body + y->at[y->planes], &room);
    if (BSN_WITH_REPORT && d->report) (void)bsn_report_part(d->report, d->n, y->at[y->planes]);
    if (d->checking) {
        bsn_record_bytes(d->record, d->body, y->descriptor_size);
        for (k = 0; k < y->planes; k++) bsn_hash_begin(&d->work->hasher[k], y->at[k + 1] - y->at[k]);
        /* loads the list into the cache, too */
        x->list_hash = bsn_hash_of(d->context->kernels, r->at, (size_t)(d->end - r->at));
    }
    x->coded = room.planes + bsn_plane_room(d->n);
    begin = r->at;
    for (k = coded = 0; k < y->planes; k++) {
        if (!y->coded[k]) continue;
        rule = bsn_open_coded(d, r, &room, k);
        d->place = r->at;
        if (rule) return rule;
        coded++;
    }
    if (BSN_WITH_REPORT && d->report && coded) (void)bsn_report_part(d->report, coded * (uint64_t)d->n, (uint64_t)(r->at - begin));
    bsn_reader_begin(r, d, r->at, &room);
    bsn_open_list(d, r, d->n, y->field.symbol_bits);
    return bsn_opened_all(d, r);
}

/* Makes plane k of elements i .. i + m - 1 of its bit planes and coded bits, in scratch. */
static void bsn_split_plane(const bsn_decoding *d, unsigned k, size_t i, size_t m)
{
    const bsn_layout *y = &d->of.split.layout;
    uint8_t *plane = d->work->plane[k];
    if (y->coded[k]) memcpy(plane, d->of.split.coded + k * bsn_plane_room(d->n) + i, m);
    else memset(plane, y->value[k], m);
    bsn_bits_put(d->context->kernels, plane, plane, 0, 0, d->body + y->at[k] + bsn_bits_size(y->varying[k], i), y->varying[k], m);
}

/* Prepares all chunks: planes that are constant, and what `finish` is told. chunk: elements of the longest.
 * Decides, before the first place is asked for, whether elements bypass the caches. */
static void bsn_split_begin(bsn_decoding *d, size_t chunk)
{
    bsn_work *w = d->work;
    const bsn_context *c = d->context;
    const unsigned top = c->shape.width - 1, finishes = bsn_has(c->kernels, BSN_FINISHES);
    bsn_split_body *x = &d->of.split;
    const bsn_layout *y = &x->layout;
    unsigned k;
    /* the next block most likely begins where this one ends, and has about its size */
    x->ahead = bsn_ahead_of(d->end, c->large && w->next ? (size_t)(d->end - d->body) : 0, 3);
    x->streamed = NULL;
    /* a prefetched line costs less than a non-temporal store, unless the kernel makes whole lines itself */
    if (!finishes || (d->sink->leaves && !bsn_has(c->kernels, BSN_FINISHES_SENDS))) d->sink->stream = 0;
    for (k = 0; k < y->planes; k++) {
        x->plane[k] = w->plane[k];
        if (!y->varying[k] && k < top) memset(w->plane[k], y->value[k], bsn_min(chunk, d->n));
    }
    x->finishes = finishes && !x->reader.raw && x->reader.lists->node[0].bits;
    x->finish.node = &x->reader.lists->node[0];
    x->finish.field = &y->field;
    x->finish.room = w->plane[7]; /* no element that `finish` makes has 8 bytes */
    x->finish.ahead = &x->ahead;
    x->finish.varying = x->finish.value = 0;
    x->within = bsn_plane_of_bits(y, top, c->shape.width, bsn_has(c->kernels, BSN_FINISHES_BITS) != 0);
}

/* Stores m elements, a multiple of 1,024, past the caches. Leaves are hashed by 1 KiB: while that is done the
 * KiB before it is on its way. first: 1 if nothing waits in the tail. */
BSN_INLINE void bsn_send(bsn_decoding *d, uint8_t tail[64], uint8_t *to, const uint8_t *from, size_t i, size_t m, int first)
{
    const unsigned width = d->context->shape.width;
    const size_t part = d->sink->leaves ? 1024 / width : m, end = i + m;
    for (; i < end; i += part, from += part * width, to += part * width, first = 0) {
        if (d->sink->leaves) bsn_leaves_add(d->context->kernels, &d->work->pieces, d->sink->leaves, from, i, part, d->n, width);
        bsn_lines_next(tail, to, from, part * width, first, 1);
    }
}

/* Makes a chunk by one call of the kernel: merges its symbols, joins them with the planes, and hashes these.
 * Returns 0 if the kernel leaves the chunk to bsn_split_join; then nothing has been stored. */
static int bsn_split_finish(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    bsn_work *w = d->work;
    const bsn_context *c = d->context;
    bsn_split_body *x = &d->of.split;
    const bsn_layout *y = &x->layout;
    bsn_finish *finish = &x->finish;
    const unsigned width = c->shape.width, top = width - 1, within = x->within;
    /* all are wanted, and bypass the caches */
    const int past = d->sink->stream && i >= d->sink->from && i + m <= d->sink->until;
    uint8_t *to = past ? d->sink->to + (i - d->sink->from) * width : NULL;
    const int stream = to && !d->sink->leaves && (x->streamed || !((uintptr_t)to & 63));
    unsigned k;
    finish->tail = stream ? x->tail : NULL;
    finish->bits = NULL;
    if (within < width) {
        finish->varying = y->varying[within];
        finish->value = y->value[within];
        finish->bits = d->body + y->at[within] + bsn_bits_size(finish->varying, i);
    }
    for (k = 0; k < top; k++) {
        const int whole = d->checking && y->varying[k] == 0xFF && y->at[k + 1] - y->at[k] > 240;
        finish->plane[k] = x->plane[k];
        finish->state[k] = whole ? w->hasher[k].state : NULL;
    }
    if (!c->kernels->finish(finish, stream ? to : out, i, m)) return 0;
    x->ahead.line += finish->ahead_lines;
    for (k = 0; k < y->planes; k++) {
        if (k < top && finish->state[k]) w->hasher[k].stripes = (i + m) / 64;
        else if (d->checking) bsn_hash_feed(c->kernels, &w->hasher[k], d->body + y->at[k], bsn_bits_size(y->varying[k], i + m));
    }
    if (!to) bsn_sink_done(w, d->sink, width, i, m, out);
    else if (!stream) bsn_send(d, x->tail, to, out, i, m, !x->streamed);
    if (to) x->streamed = to + m * width;
    return 1;
}

/* Makes a chunk step by step, with a part of the prefetches after each. out null: planes are hashed, no
 * element is made. */
static void bsn_split_join(bsn_decoding *d, uint8_t *out, size_t i, size_t m, bsn_asking *asking)
{
    bsn_work *w = d->work;
    const bsn_context *c = d->context;
    const unsigned top = c->shape.width - 1;
    bsn_split_body *x = &d->of.split;
    const bsn_layout *y = &x->layout;
    const uint8_t *symbols;
    unsigned k;
    if (bsn_has(c->kernels, BSN_FINISHES) && x->streamed) bsn_lines_end(x->tail, x->streamed);
    x->streamed = NULL;
    for (k = 0; k < y->planes && d->checking; k++) {
        bsn_hash_feed(c->kernels, &w->hasher[k], d->body + y->at[k],
                      y->varying[k] == 0xFF ? i + m : bsn_bits_size(y->varying[k], i + m));
        bsn_ask(asking);
    }
    bsn_ask(asking);
    symbols = bsn_list_next(&x->reader, w->plane[7], i, m);
    if (!out) return;
    x->plane[top] = symbols;
    if (y->planes > top) {
        /* the top byte is the symbol and the bits below it, which do not overlap */
        const uint8_t *bits = d->body + y->at[top] + bsn_bits_size(y->varying[top], i);
        bsn_bits_put(c->kernels, w->plane[top], symbols, y->shift, y->value[top], bits, y->varying[top], m);
        x->plane[top] = w->plane[top];
    }
    bsn_ask(asking);
    bsn_join(c->kernels, &y->field, out, x->plane, m);
    bsn_sink_done(w, d->sink, c->shape.width, i, m, out);
}

/* Makes the elements. This form has a loop of its own, as the lengths of chunks vary: `finish` takes
 * multiples of 1,024 elements, but not the last ones, since the hashes end with them. Large calls have
 * shorter chunks, so that less is prefetched between two kernels. */
static unsigned bsn_make_split(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    const unsigned top = c->shape.width - 1, finishes = bsn_has(c->kernels, BSN_FINISHES);
    const size_t chunk = c->kernels->chunk, joined = c->large ? bsn_min(chunk, 2048 / c->shape.width) : chunk,
                 finished = c->large ? bsn_min(chunk, 8192 / c->shape.width) : chunk;
    bsn_split_body *x = &d->of.split;
    const bsn_layout *y = &x->layout;
    bsn_asking asking;
    size_t i, m;
    unsigned k;
    bsn_split_begin(d, chunk);
    for (i = 0; i < d->n; i += m) {
        uint8_t *out;
        int at_once;
        m = bsn_min(x->finishes ? finished : joined, d->n - i);
        if (x->finishes && i + m == d->n && m > 1024) m = (m - 1) & ~(size_t)1023;
        out = bsn_sink_place(d->work, d->sink, c->shape.width, i, m);
        at_once = finishes && x->finishes && out && m % 1024 == 0 && i + m < d->n;
        x->finish.ahead_lines = ((size_t)((uint64_t)x->ahead.lines * (i + m) / d->n) & ~(size_t)7) - x->ahead.line;
        asking = bsn_asking_for(d, &x->ahead, at_once ? 0 : x->finish.ahead_lines, finishes ? NULL : out, m,
                                (d->checking ? y->planes : 0) + 2);
        for (k = 0; k < y->planes && k < top; k++) {
            if (y->varying[k] == 0xFF) x->plane[k] = d->body + y->at[k] + i;
            else if ((y->varying[k] || y->coded[k]) && out && !(at_once && k == x->within)) bsn_split_plane(d, k, i, m);
        }
        if (at_once) {
            if (bsn_split_finish(d, out, i, m)) continue;
            x->finishes = 0;
            if (x->within < top) bsn_split_plane(d, x->within, i, m);
        }
        bsn_split_join(d, out, i, m, &asking);
    }
    for (k = 0; k < y->planes && d->checking; k++)
        bsn_record_hash(d->record, bsn_hash_end(c->kernels, &d->work->hasher[k], d->body + y->at[k]));
    if (d->checking) bsn_record_hash(d->record, x->list_hash);
    return 0;
}

/* ---- decoding: forms of integers, and plain ones ---- */

/* Decodes the list of each byte plane. */
static unsigned bsn_open_bytes(bsn_decoding *d)
{
    const bsn_rooms room = bsn_planes_rooms(d);
    uint8_t *memory = room.planes;
    bsn_bytes_body *x = &d->of.bytes;
    unsigned k;
    bsn_reader r;
    r.at = d->body;
    r.rule = 0;
    for (k = 0; k < d->context->shape.width; k++, memory += bsn_plane_room(d->n)) {
        bsn_reader_begin(&r, d, r.at, &room);
        bsn_open_list(d, &r, d->n, 8);
        if (r.rule) break;
        x->plane[k] = memory;
        bsn_list_take(&r, memory, d->n);
    }
    bsn_field_set(&x->field, d->context->shape.dtype, 0, 0);
    return bsn_opened_all(d, &r);
}

static unsigned bsn_make_bytes(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const bsn_bytes_body *x = &d->of.bytes;
    const uint8_t *plane[8];
    unsigned k;
    for (k = 0; k < d->context->shape.width; k++) plane[k] = x->plane[k] + i;
    bsn_join(d->context->kernels, &x->field, out, plane, m);
    return 0;
}

static unsigned bsn_make_zigzag(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    (void)bsn_make_bytes(d, out, i, m);
    bsn_zigzag(out, out, m, d->context->shape.width, 1);
    return 0;
}

static unsigned bsn_make_stored(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    bsn_copy_little_endian(out, d->body + i * d->context->shape.width, m, d->context->shape.width);
    return 0;
}

static unsigned bsn_make_const(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const unsigned width = d->context->shape.width;
    size_t j;
    (void)i;
    if (m) bsn_copy_little_endian(out, d->body, 1, width);
    for (j = 1; j < m; j *= 2) memcpy(out + j * width, out, bsn_min(j, m - j) * width);
    return 0;
}

/* ---- decoding: PARTED ---- */

/* Makes a mask of granules one of elements, in place, from the end on. */
static void bsn_mask_spread(uint8_t *mask, size_t n, unsigned granule)
{
    size_t i = granule ? bsn_mask_bytes(n) : 0, at;
    unsigned byte, k;
    while (i--) {
        for (byte = k = 0; k < 8; k++) {
            at = (8 * i + k) >> granule;
            byte |= BSN_BIT((unsigned)mask[at / 8], at & 7) << k;
        }
        mask[i] = (uint8_t)byte;
    }
    if (n & 7) mask[n / 8] &= (uint8_t)(0xFFu >> (8 - (n & 7)));
}

typedef struct bsn_side {
    bsn_decoding d;
    unsigned form;
    int zero; /* 1: all elements are 0 */
} bsn_side;

typedef struct bsn_parted {
    bsn_side side[2];
    bsn_context context; /* of the sides: no prefetches */
    bsn_sink sink;       /* of a side in SPLIT */
    const uint8_t *mask; /* bit i: the side of element i */
    size_t next, ones;   /* elements before the next chunk, and those of side 1 among them */
    int patched;         /* 1: PATCHED, whose side 0 is what is predicted */
    int relative;        /* 1: signs of side 1 are relative to those predicted */
} bsn_parted;
BSN_ASSERT(parted_state, sizeof(bsn_parted) <= BSN_PARTED_STATE);

/* Reads a side, which begins with its form at d.place; `missing` is the rule if it does not. Makes the
 * elements of SPLIT, since they must come in order. They take the scratch of planes, which SPLIT does not
 * need. */
static unsigned bsn_open_side(bsn_side *s, unsigned missing)
{
    bsn_decoding *d = &s->d;
    const unsigned width = d->context->shape.width;
    size_t size;
    unsigned rule;
    if (d->place == d->end) return missing;
    s->form = bsn_once8(d->place++);
    d->body = d->place;
    if (s->form == BSN_FORM_STORED || s->form == BSN_FORM_CONST) {
        size = s->form == BSN_FORM_CONST ? width : d->n * width;
        if ((size_t)(d->end - d->body) < size) return missing;
        d->place += size;
        s->zero = s->form == BSN_FORM_CONST && !bsn_element_load(d->body, width);
        return 0;
    }
    if (s->form == BSN_FORM_BYTES || (s->form == BSN_FORM_ZIGZAG && width > 1 && !bsn_symbol_bits(d->context->shape.dtype)))
        return bsn_open_bytes(d);
    if (s->form != BSN_FORM_SPLIT) return missing;
    rule = bsn_open_split(d);
    d->sink->to = d->side;
    d->sink->until = d->n;
    return rule ? rule : bsn_make_split(d);
}

/* Parses sides first .. 1 of a mask of elements. `missing` is the rule of a side without elements. */
static unsigned bsn_open_sides(bsn_decoding *d, bsn_rooms *room, unsigned first, unsigned missing)
{
    bsn_parted *p = d->of.parted;
    const size_t ones = d->context->kernels->count(p->mask, d->n);
    unsigned rule, k;
    if (ones == 0 || ones == d->n) return missing;
    for (k = first; k < 2; k++) {
        bsn_side *s = &p->side[k];
        const uint8_t *begin = d->place;
        s->d = *d;
        s->d.n = k ? ones : d->n - ones;
        s->d.side = room->planes;
        s->d.context = &p->context;
        s->d.sink = &p->sink;
        s->d.checking = 0;
        s->d.report = NULL;
        room->planes += d->context->shape.width * bsn_plane_room(s->d.n);
        rule = bsn_open_side(s, missing);
        d->place = s->d.place;
        if (rule) return rule;
        if (BSN_WITH_REPORT && d->report) {
            bitsnap_part *part = bsn_report_part(d->report, s->d.n, (uint64_t)(d->place - begin));
            part->kind = s->form;
            part->changed = s->zero ? 0 : s->d.n;
        }
    }
    return d->place != d->end ? BITSNAP_R_BODY_END : 0;
}

/* Parses the fields before the mask, the mask, and the sides. Without a base, which only reporting allows, the
 * side of PATCHED must be known by the mask alone. */
static unsigned bsn_open_masked(bsn_decoding *d, unsigned patched)
{
    const bsn_context *c = d->context;
    const unsigned width = c->shape.width, fields = patched ? 1 + width : 1;
    const unsigned missing = patched ? BITSNAP_R_PATCHED : BITSNAP_R_PARTED;
    bsn_arena arena = d->work->arena;
    bsn_rooms room;
    bsn_reader r;
    bsn_parted *p;
    uint64_t least = 0;
    size_t granules, bytes;
    unsigned head, k;
    d->place = d->body;
    if ((size_t)(d->end - d->body) < fields) return missing;
    head = bsn_once8(d->body);
    for (k = 1; k < fields; k++) least |= (uint64_t)bsn_once8(d->body + k) << 8 * (k - 1);
    if ((head & ~(patched ? (unsigned)BSN_RELATIVE : 0u)) > 6 || least > bsn_low_bits(8 * width - 1)) return missing;
    granules = ((d->n - 1) >> (head & 7)) + 1;
    bytes = bsn_mask_bytes(granules);
    bsn_lay_parted(&arena, &room, c, d->n);
    bsn_reader_begin(&r, d, d->body + fields, &room);
    bsn_open_list(d, &r, bytes, 8);
    d->place = r.at;
    if (r.rule) return r.rule;
    bsn_list_take(&r, room.place, bytes);
    if (!bsn_bits_tail_clear(room.place, 1, granules)) return BITSNAP_R_MASK_TAIL;
    bsn_mask_spread(room.place, d->n, head & 7);
    if (least && !d->base) return 0;
    if (BSN_WITH_DELTA && least) {
        const uint8_t *predictions = bsn_predict(c->shape.dtype, c->shape.base_dtype, d->base, 0, d->n, room.words);
        BSN_WIDTHS(width, bsn_flip_below, (room.place, predictions, d->n, least));
    }
    d->of.parted = p = (bsn_parted *)(void *)room.made;
    memset(p, 0, sizeof *p);
    p->mask = room.place;
    p->context = *c;
    p->context.large = p->context.stream = 0;
    p->patched = (int)patched;
    p->relative = head > 6;
    return bsn_open_sides(d, &room, patched, missing);
}

static unsigned bsn_open_parted(bsn_decoding *d) { return bsn_open_masked(d, 0); }
static unsigned bsn_open_patched(bsn_decoding *d) { return bsn_open_masked(d, 1); }

/* Returns elements i .. i + m - 1 of a side, made at `room` unless they exist; null if they are 0. Makes
 * whole groups of 64, since planes are in pair order: `room` has BSN_SIDE_MORE elements more. */
#define BSN_SIDE_MORE 126u
static const uint8_t *bsn_side_elements(bsn_side *s, uint8_t *room, size_t i, size_t m)
{
    const size_t begin = i & ~(size_t)63, count = bsn_min(s->d.n, (i + m + 63) & ~(size_t)63) - begin;
    if (s->zero) return NULL;
    if (s->form == BSN_FORM_SPLIT) return s->d.side + i * s->d.context->shape.width;
    if (s->form == BSN_FORM_STORED) (void)bsn_make_stored(&s->d, room, begin, count);
    else if (s->form == BSN_FORM_CONST) (void)bsn_make_const(&s->d, room, begin, count);
    else if (s->form == BSN_FORM_BYTES) (void)bsn_make_bytes(&s->d, room, begin, count);
    else (void)bsn_make_zigzag(&s->d, room, begin, count);
    return room + (i - begin) * s->d.context->shape.width;
}

/* Elements that are made at a time. The planes of a worker have room for them and BSN_SIDE_MORE of each side.
 * Blocks of fewer have shorter planes, but are made at once: then no group is made twice. */
#define BSN_PARTED_STEP 2048u
BSN_ASSERT(sides_fit_planes, BSN_PARTED_STEP + 2 * BSN_SIDE_MORE <= BSN_CHUNK);

/* Puts the elements of both sides in their places: those of side 0 of PATCHED are predictions. Chunks come in
 * order. If a caller needs only some, earlier ones are missing, and their elements of side 1 are counted
 * here. */
static unsigned bsn_make_parted(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const bsn_context *c = d->context;
    const unsigned width = c->shape.width;
    bsn_parted *x = d->of.parted;
    const size_t end = i + m;
    for (; i < end; i = x->next, out += m * width) {
        const uint8_t *mask = x->mask + i / 8, *side, *p;
        const size_t before = x->ones + c->kernels->count(x->mask + x->next / 8, i - x->next);
        uint8_t *room = d->work->plane[0], *other; /* of both sides: all planes */
        size_t ones;
        m = bsn_min(BSN_PARTED_STEP, end - i);
        ones = c->kernels->count(mask, m);
        other = room + (m - ones + (m < d->n ? BSN_SIDE_MORE : 0)) * width;
        side = bsn_side_elements(&x->side[1], other, before, ones);
        if (BSN_WITH_DELTA && x->patched) {
            p = bsn_predict(c->shape.dtype, c->shape.base_dtype, d->base, i, m, d->work->plane[4]);
            if (!side) memset(other, 0, ones * width);
            else if (side != other) memmove(other, side, ones * width);
            if (x->relative) BSN_WIDTHS(width, bsn_flip_signs, (other, mask, p, m));
            BSN_WIDTHS(width, bsn_put_any, (out, out == p ? NULL : p, other, m, mask));
        } else {
            bsn_unpart(c->kernels, width, out, bsn_side_elements(&x->side[0], room, i - before, m - ones), side, mask, m);
        }
        x->next = i + m;
        x->ones = before + ones;
    }
    return 0;
}

/* ---- decoding: with a base ---- */

/* Ends the hash of the base's cell, and compares it with what the block says. */
static unsigned bsn_base_check(bsn_decoding *d)
{
    d->ids->base_hash = bsn_leaves_end(d->context->kernels, &d->ids->base, d->n);
    if (d->ids->base_hash == bsn_load64(d->expected)) return 0;
    d->place = d->expected;
    return BITSNAP_R_BASE_HASH;
}

/* Reads the base's cell once: hashes it, and counts elements by class, chunk by chunk, so that both find a
 * chunk in the cache. t null: nothing is counted. */
static unsigned bsn_base_pass(bsn_decoding *d, const bsn_classes *t, size_t above[7])
{
    const bsn_context *c = d->context;
    const unsigned width = bsn_dtypes[c->shape.base_dtype].width;
    bsn_work *w = d->work;
    size_t i;
    for (i = 0; i < d->n && (d->hash_base || t); i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, d->n - i);
        if (d->hash_base) bsn_leaves_add(c->kernels, &w->pieces, &d->ids->base, d->base + i * width, i, m, d->n, width);
        if (t) bsn_classes_above(c->kernels, t, above, bsn_predict(c->shape.dtype, c->shape.base_dtype, d->base, i, m, w->elements), m);
    }
    return d->hash_base ? bsn_base_check(d) : 0;
}

static unsigned bsn_base_any(bsn_decoding *d) { return bsn_base_pass(d, NULL, NULL); }

/* If base and result have one dtype, hashing the base hashes the result. */
static unsigned bsn_base_same(bsn_decoding *d)
{
    d->same = d->context->shape.role == BSN_ROLE_BASE;
    if (d->same) d->sink->leaves = NULL;
    if (bsn_base_pass(d, NULL, NULL)) return BITSNAP_R_BASE_HASH;
    if (d->same && d->hash_base) d->ids->result = d->ids->base;
    return 0;
}

/* Gives the prediction to the sink as it is. The sink copies it only if it must. */
static unsigned bsn_make_same(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    (void)out;
    d->made = bsn_predict(d->context->shape.dtype, d->context->shape.base_dtype, d->base, i, m, d->work->plane[0]);
    return 0;
}

/* The base is hashed while elements are made, as all of it is copied then; applying needs its hash before. */
static unsigned bsn_base_sparse(bsn_decoding *d) { return d->base_first ? bsn_base_any(d) : 0; }

static unsigned bsn_open_sparse(bsn_decoding *d)
{
    bsn_sparse_body *x = &d->of.sparse;
    const size_t size = (size_t)(d->end - d->body);
    bsn_arena arena = d->work->arena;
    bsn_rooms room;
    unsigned rule;
    bsn_lay_changes(&arena, &room, d->n);
    x->changes = room.changes;
    x->next = 0;
    rule = bsn_piece_read(x->changes, d->body, size, d->n, d->context->shape.width);
    d->sink->stream = 0; /* prefetching lines for stores takes less time than copying by way of scratch */
    if (BSN_WITH_REPORT && d->report && !rule) bsn_report_part(d->report, d->n, size)->changed = x->changes->count;
    return rule;
}

/* Copies the prediction, and adds the changes that are in the chunk, in order: see bsn_find_place. out null:
 * skips them. */
static unsigned bsn_make_sparse(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const bsn_context *c = d->context;
    const unsigned width = c->shape.width, base_width = bsn_dtypes[c->shape.base_dtype].width;
    const bsn_changes *x = d->of.sparse.changes;
    const int hash = d->hash_base && !d->base_first;
    const uint8_t *p = out ? bsn_predict(c->shape.dtype, c->shape.base_dtype, d->base, i, m, d->work->plane[0]) : NULL;
    bsn_asking asking = bsn_asking_for(d, NULL, 0, out, m, 3);
    size_t j = d->of.sparse.next;
    bsn_ask(&asking);
    if (hash) bsn_leaves_add(c->kernels, &d->work->result, &d->ids->base, d->base + i * base_width, i, m, d->n, base_width);
    bsn_ask(&asking);
    if (out && out != p) memcpy(out, p, m * width);
    bsn_ask(&asking);
    for (; j < x->count && x->place[j] < i + m; j++) {
        const size_t at = (x->place[j] - i) * width;
        /* loads from the prediction: a load from `out` would wait for the copy */
        if (out) bsn_element_store(out + at, bsn_element_load(p + at, width) + bsn_unzigzag(x->word[j] + 1), width);
        BSN_ORDERED();
    }
    d->of.sparse.next = j;
    return hash && i + m == d->n ? bsn_base_check(d) : 0;
}

/* Reads the number of classes and the borders between them. *stated: the number, which classes that no
 * element can have raise. */
static unsigned bsn_classes_read(bsn_classes *t, const bsn_decoding *d, unsigned *stated)
{
    const unsigned most = bsn_exponent_of(d->context->shape.dtype).mask ? BSN_CLASSES : 1;
    const uint8_t *p = d->body;
    uint8_t borders[BSN_CLASSES];
    unsigned k;
    if (p == d->end) return BITSNAP_R_CLASSES;
    *stated = bsn_once8(p++);
    if (*stated < 1 || *stated > most || (size_t)(d->end - p) < *stated - 1) return BITSNAP_R_CLASSES;
    for (k = 0; k + 1 < *stated; k++) {
        borders[k] = (uint8_t)bsn_once8(p + k);
        if (borders[k] == 0 || (k && borders[k] <= borders[k - 1])) return BITSNAP_R_CLASSES;
    }
    bsn_classes_begin(t, d->context->shape.dtype, borders, *stated);
    return 0;
}

/* Reads the borders before the base: the number of words of a class is that of the base's elements between
 * its borders. */
static unsigned bsn_base_classed(bsn_decoding *d)
{
    bsn_classed_body *x = &d->of.classed;
    const unsigned rule = bsn_classes_read(&x->classes, d, &x->stated);
    unsigned k;
    if (rule) return rule;
    memset(x->above, 0, sizeof x->above);
    if (BSN_WITH_REPORT && d->report) {
        d->report->classes = x->stated;
        for (k = 0; k + 1 < x->stated; k++) d->report->borders[k] = (unsigned char)(x->classes.border[k] >> x->classes.shift);
    }
    return d->base ? bsn_base_pass(d, x->classes.count > 1 ? &x->classes : NULL, x->above) : 0;
}

/* Reads the words of all classes. Without a base, which only reporting allows, of one class alone: nothing
 * else tells where they end. */
static unsigned bsn_open_classed(bsn_decoding *d)
{
    bsn_work *w = d->work;
    const unsigned width = d->context->shape.width;
    bsn_classed_body *y = &d->of.classed;
    bsn_classes *t = &y->classes;
    bsn_reader *r = &y->reader;
    bsn_arena arena = w->arena;
    bsn_rooms room;
    size_t left = d->n;
    bsn_words x;
    unsigned k;
    if (!d->base && y->stated > 1) return 0;
    bsn_lay_classed(&arena, &room, d->context, d->n);
    bsn_reader_begin(r, d, d->body + y->stated, &room);
    bsn_words_to(&x, r, room.words, room.place, w->plane[0], w->plane[1], width);
    for (k = 0; k < t->count; k++) {
        const size_t count = bsn_class_count(y->above, k, t->count, &left);
        t->next[k] = x.words; /* if the base changes after it was counted, a class reads up to n words: the
                                 bytes after its own can be read */
        x.narrow = !d->report;
        bsn_open_words(d, &x, count);
        d->place = r->at;
        if (r->rule) return r->rule;
        t->narrow |= (unsigned)x.narrow << k;
        x.words += count * bsn_classes_size(t, k);
    }
    for (; BSN_WITH_REPORT && d->report && k < y->stated; k++) (void)bsn_report_part(d->report, 0, 0);
    /* computing takes longer than waiting for the lines of stores */
    if ((size_t)(d->end - d->body) > d->n * width / 16) d->sink->stream = 0;
    return bsn_opened_all(d, r);
}

/* Adds to each prediction the next word of its class. out null: skips the words. */
static unsigned bsn_make_classed(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const bsn_context *c = d->context;
    bsn_classes *t = &d->of.classed.classes;
    const uint8_t *p = bsn_predict(c->shape.dtype, c->shape.base_dtype, d->base, i, m, d->work->elements + 4 * BSN_CHUNK);
    bsn_asking asking;
    if (!out) {
        bsn_classes_skip(c->kernels, t, p, m);
        return 0;
    }
    asking = bsn_asking_for(d, NULL, 0, out, m, 1);
    bsn_ask(&asking);
    bsn_classes_add(c->kernels, t, out, p, m);
    return 0;
}

/* ---- decoding: words with scales, and quantizers ---- */

/* Reads scales at r->at to `memory`, which has room for n + 3 of them and 64 bytes. r->rule is the rule that
 * is broken. s->rows is null if there are no scales. */
static void bsn_read_scales(bsn_reader *r, bsn_scales *s, const bsn_context *c, uint64_t first, size_t n, uint8_t *memory)
{
    unsigned k, there;
    memset(s, 0, sizeof *s);
    r->rule = BITSNAP_R_SCALES;
    if (r->at == r->end) return;
    there = bsn_once8(r->at++);
    if (there > 1) return;
    if (there) {
        if (!c->shape.columns || c->shape.columns > n) return;
        *s = bsn_scales_shape(c->shape.columns, first, n);
        s->rows = memory;
        s->columns = memory + s->row_count;
        for (k = 0; k < 2; k++) {
            const size_t count = k ? s->column_count : s->row_count;
            bsn_list_read(r, count, 8);
            if (r->rule) return;
            bsn_list_take(r, memory, count);
            memory += count;
        }
    }
    r->rule = 0;
}

/* Prepares to read words of `width` bytes, and before them scales, from `at` on. */
static bsn_rooms bsn_numbers_begin(bsn_decoding *d, const uint8_t *at, unsigned width)
{
    bsn_work *w = d->work;
    bsn_numbers_body *x = &d->of.numbers;
    bsn_arena arena = w->arena;
    bsn_rooms room;
    bsn_lay_numbers(&arena, &room, d->context, d->n);
    bsn_reader_begin(&x->reader, d, at, &room);
    bsn_words_to(&x->words, &x->reader, room.words, room.place, w->plane[0], w->plane[1], width);
    return room;
}

/* Reads the words, unless what precedes them is wrong already, and reports both. */
static unsigned bsn_numbers_words(bsn_decoding *d)
{
    bsn_numbers_body *x = &d->of.numbers;
    if (BSN_WITH_REPORT && d->report)
        (void)bsn_report_part(d->report, x->scales.rows ? x->scales.row_count + x->scales.column_count : 0,
                              (uint64_t)(x->reader.at - d->body));
    if (!x->reader.rule) bsn_open_words(d, &x->words, d->n);
    return bsn_opened_all(d, &x->reader);
}

static unsigned bsn_open_scaled(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    bsn_numbers_body *x = &d->of.numbers;
    bsn_rooms room;
    if (d->end - d->body < 5) return BITSNAP_R_SCALES;
    x->row.signs = bsn_once8(d->body);
    if (x->row.signs > 1) return BITSNAP_R_SCALES;
    x->offset = bsn_load32(d->body + 1);
    x->offset -= (x->offset >> 31) << 32; /* extends its sign */
    room = bsn_numbers_begin(d, d->body + 5, c->shape.width);
    bsn_read_scales(&x->reader, &x->scales, c, d->first, d->n, room.scales);
    if (!x->reader.rule && !x->scales.rows) x->reader.rule = BITSNAP_R_SCALES;
    return bsn_numbers_words(d);
}

static unsigned bsn_make_scaled(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    const unsigned width = d->context->shape.width, shift = bsn_octaves_of(d->context->shape.dtype).mantissa - 3;
    const bsn_numbers_body *x = &d->of.numbers;
    uint32_t *scale = (uint32_t *)(void *)d->work->plane[0];
    bsn_scales_get(&x->scales, scale, i, m);
    BSN_WIDTHS(width, bsn_scale_up, (out, x->words.words + i * width, scale, x->offset, shift, x->row.signs, m));
    return 0;
}

/* Makes the next `count` exact elements, where the n words of a chunk mark them. Returns 0 if too few are
 * left. */
static int bsn_put_exact(bsn_exact *exact, uint8_t *to, const uint32_t *words, size_t n, unsigned signs, size_t count,
                         unsigned width)
{
    if (count > exact->left) return 0;
    exact->left -= count;
    bsn_move_exact(words, n, signs, to, (uint8_t *)exact->next, count, width, 0);
    exact->next += count * width;
    return 1;
}

/* Converts the certificate at `from` to the units of the public struct. `bins`: bins of an octave, 0 for
 * clusters. Means are rounded up. */
static void bsn_tell(bitsnap_certificate *to, const uint8_t *from, unsigned bins)
{
    /* 2^-50: more than a mean loses by rounding */
    const double unit = 1.0 / 16777216, up = 1 + 8.8817841970012523e-16;
    bsn_certificate x;
    if (!BSN_WITH_QUANTIZE || !bsn_certificate_load(&x, from)) return;
    to->counted = x.counted;
    to->exact = x.exact;
    to->bound = bins ? bsn_log_bound(bins) / 16777216.0 : 0;
    to->max_relative = x.relative * unit;
    to->mean_relative = x.counted ? (double)x.relative_sum * unit / (double)x.counted * up : 0;
    memcpy(&to->max_absolute, &x.absolute, 8);
    memcpy(&to->mean_square, &x.squares, 8);
    if (x.counted) to->mean_square = to->mean_square / (double)x.counted * up;
}

/* Reads the common end of both quantizers' bodies: exact elements from exact.next on, scales (only with
 * bins), words. If a kernel can join symbols and low bits of words, the words are left apart; a report needs
 * them whole. */
static unsigned bsn_open_codes(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    bsn_numbers_body *x = &d->of.numbers;
    bsn_rooms room;
    bsn_certificate certificate;
    unsigned rule;
    if (!bsn_certificate_load(&certificate, d->body) || certificate.exact > (size_t)(d->end - x->exact.next) / c->shape.width)
        return BITSNAP_R_NUMBER;
    if (BSN_WITH_REPORT && d->report) bsn_tell(&d->report->certificate, d->body, c->log ? c->log->bins : 0);
    x->exact.left = (size_t)certificate.exact;
    room = bsn_numbers_begin(d, x->exact.next + x->exact.left * c->shape.width, 4);
    x->scales.rows = x->scales.columns = NULL;
    x->reader.rule = 0;
    if (c->log) bsn_read_scales(&x->reader, &x->scales, c, d->first, d->n, room.scales);
    x->words.apart = c->log && !d->report && !x->reader.rule && bsn_log_joins(c->kernels, &x->row, x->scales.rows != NULL);
    rule = bsn_numbers_words(d);
    if (!rule) d->place = d->body; /* of a code that is no number */
    return rule;
}

static unsigned bsn_open_bins(bsn_decoding *d)
{
    const uint8_t *p = d->body + BSN_CERTIFICATE_SIZE;
    bsn_numbers_body *x = &d->of.numbers;
    if ((size_t)(d->end - d->body) < BSN_CERTIFICATE_SIZE + 5) return BITSNAP_R_NUMBER;
    x->row.log = d->context->log;
    x->row.signs = bsn_once8(p);
    if (x->row.signs > 1) return BITSNAP_R_NUMBER;
    x->row.base = bsn_load32(p + 1);
    x->exact.next = p + 5;
    return bsn_open_codes(d);
}

static unsigned bsn_open_clusters(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    const bsn_octaves o = bsn_octaves_of(c->shape.dtype);
    const unsigned width = c->shape.width;
    const uint8_t *p = d->body + BSN_CERTIFICATE_SIZE;
    bsn_numbers_body *x = &d->of.numbers;
    bsn_arena arena = d->work->arena;
    bsn_rooms room;
    unsigned k;
    bsn_lay_numbers(&arena, &room, c, d->n);
    x->cluster = room.clusters;
    if ((size_t)(d->end - d->body) < BSN_CERTIFICATE_SIZE + 1) return BITSNAP_R_NUMBER;
    x->clusters = bsn_once8(p++) + 1u;
    if (x->clusters > c->shape.clusters || (size_t)(d->end - p) < 2 * width * x->clusters) return BITSNAP_R_NUMBER;
    for (k = 0; k < x->clusters; k++, p += 2 * width) {
        uint8_t ends[16];
        bsn_copy_little_endian(ends, p, 2, width);
        if (!bsn_cluster_load(&x->cluster[k], &o, ends)) return BITSNAP_R_NUMBER;
    }
    x->exact.next = p;
    return bsn_open_codes(d);
}

static unsigned bsn_open_quantized(bsn_decoding *d) { return d->context->log ? bsn_open_bins(d) : bsn_open_clusters(d); }

/* Makes the elements that a kernel has left out, those of `mask`. Returns 0 if one of them is no number. */
static int bsn_log_rest(const bsn_row *p, bsn_exact *exact, uint8_t *elements, const uint8_t *mask, const uint8_t *symbols,
                        const uint8_t *low, size_t n, unsigned shift)
{
    size_t i;
    for (i = 0; i < n; i += 64) {
        uint64_t w = bsn_mask_word(mask, i, n);
        for (; w; w &= w - 1) {
            const size_t k = i + bsn_lowest_bit(w);
            const uint32_t word = ((uint32_t)symbols[k] << shift) + low[k];
            const bsn_row row = bsn_rest_of(p, k);
            size_t apart = 0;
            if (!bsn_scalar_log_numbers(&row, elements + 4 * k, (const uint8_t *)&word, 1, &apart) || apart > exact->left) return 0;
            if (!apart) continue;
            bsn_copy_little_endian(elements + 4 * k, exact->next, 1, 4);
            exact->next += 4;
            exact->left--;
        }
    }
    return 1;
}

/* Makes numbers of words that are still apart, as symbols and low bits. */
static unsigned bsn_make_apart(bsn_decoding *d, uint8_t *to, size_t i, size_t m)
{
    const bitsnap_kernels *kernels = d->context->kernels;
    bsn_numbers_body *body = &d->of.numbers;
    bsn_words *x = &body->words;
    const unsigned mask = (1u << x->shift) - 1;
    const uint8_t *symbols = bsn_list_next(x->reader, x->symbols, i, m);
    uint8_t *rest = d->work->plane[2];
    size_t j, some;
    memset(x->low, 0, m);
    if (mask) bsn_bits_put(kernels, x->low, x->low, 0, 0, x->bits + bsn_bits_size(mask, i), mask, m);
    for (j = 0; j < m; j += some) {
        some = bsn_row_set(&body->row, &body->scales, i + j, m - j);
        if (kernels->log_join(&body->row, to + 4 * j, rest, symbols + j, x->low + j, some, x->shift) &&
            !bsn_log_rest(&body->row, &body->exact, to + 4 * j, rest, symbols + j, x->low + j, some, x->shift))
            return BITSNAP_R_NUMBER;
    }
    return 0;
}

/* Tabulates the number of each code at words.place if there are few codes, no scales, and no kernel. Returns
 * 1 if it has. */
static int bsn_bins_table(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    bsn_numbers_body *x = &d->of.numbers;
    uint32_t all = 0;
    size_t i;
    if (x->scales.rows || bsn_has(c->kernels, BSN_LOGS) || !bsn_log_is_usual(c->log)) return 0;
    for (i = 0; i < d->n; i++) all |= (uint32_t)bsn_element_load(x->words.words + 4 * i, 4);
    if (all >= BSN_TABLE_MOST || all >= d->n / 4) return 0;
    x->row.columns = NULL;
    x->row.row = 0;
    bsn_log_table(&x->row, x->words.place, all + 1);
    return 1;
}

/* Makes numbers of words that name bins. */
static unsigned bsn_make_bins(bsn_decoding *d, uint8_t *to, size_t i, size_t m)
{
    const bsn_context *c = d->context;
    const unsigned width = c->shape.width;
    bsn_numbers_body *x = &d->of.numbers;
    const uint8_t *words = x->words.words + 4 * i;
    size_t j, some, apart = 0;
    if (i == 0) x->looked_up = bsn_bins_table(d);
    for (j = 0; j < m; j += some) {
        some = bsn_row_set(&x->row, &x->scales, i + j, x->looked_up ? bsn_min(256, m - j) : m - j);
        if (x->looked_up && bsn_log_look_up(x->words.place, to + j * width, words + 4 * j, some)) continue;
        if (!bsn_log_numbers_by(c->kernels, &x->row, to + j * width, words + 4 * j, some, &apart)) return BITSNAP_R_NUMBER;
    }
    return bsn_put_exact(&x->exact, to, (const uint32_t *)(const void *)words, m, x->row.signs, apart, width) ? 0 : BITSNAP_R_NUMBER;
}

/* Makes numbers of words that name a cluster and a number in it. */
static unsigned bsn_make_clusters(bsn_decoding *d, uint8_t *to, size_t i, size_t m)
{
    const bsn_octaves o = bsn_octaves_of(d->context->shape.dtype);
    const unsigned width = o.width;
    bsn_numbers_body *x = &d->of.numbers;
    const bsn_cluster *cluster = x->cluster;
    const uint32_t *words = (const uint32_t *)(const void *)x->words.words + i;
    size_t j, apart = 0;
    for (j = 0; j < m; j++) {
        const uint32_t u = words[j], q = u - BSN_CODE_FIRST;
        uint64_t v = 0;
        if (u >= BSN_CODE_FIRST) {
            if (q >= BSN_CLUSTER_CODES * x->clusters) return BITSNAP_R_NUMBER;
            v = bsn_cluster_number(&cluster[q / BSN_CLUSTER_CODES], &o, q % BSN_CLUSTER_CODES);
        }
        apart += u == BSN_CODE_EXACT;
        bsn_element_store(to + j * width, v, width);
    }
    return bsn_put_exact(&x->exact, to, words, m, 0, apart, width) ? 0 : BITSNAP_R_NUMBER;
}

/* Makes numbers even if they go nowhere (out null), since a code that is no number is an error. */
static unsigned bsn_make_quantized(bsn_decoding *d, uint8_t *out, size_t i, size_t m)
{
    uint8_t *to = out ? out : d->work->elements;
    const unsigned rule = !d->context->log          ? bsn_make_clusters(d, to, i, m)
                        : d->of.numbers.words.apart ? bsn_make_apart(d, to, i, m)
                                                    : bsn_make_bins(d, to, i, m);
    return rule ? rule : i + m == d->n && d->of.numbers.exact.left ? BITSNAP_R_NUMBER : 0;
}

/* A form of a newer version: there is nothing to report. */
static unsigned bsn_open_unknown(bsn_decoding *d)
{
    return BSN_WITH_REPORT && d->report ? 0 : BITSNAP_R_NEW_FORM;
}

/* ---- the table of forms ---- */

/* Traits of a form: what a frame must have so that the form is allowed, and how its elements are made. */
enum {
    BSN_NEEDS_BASE = 1, BSN_NEEDS_COLUMNS = 2, BSN_NEEDS_QUANTIZER = 4, BSN_NEEDS_INTEGERS = 8, BSN_NEEDS = 15,
    BSN_SEQUENTIAL = 16, /* makes every chunk, in order, even if its elements go nowhere */
    BSN_PAGES = 32       /* a chunk is a page of memory */
};

/* What the size in a head must be. */
enum {
    BSN_BODY_RUN,   /* the length of a run, in cells */
    BSN_BODY_NONE,  /* 0 */
    BSN_BODY_WHOLE, /* the bytes of the elements */
    BSN_BODY_ANY,
    BSN_BODY_CODED  /* at least `least`, at most the bytes of the elements and `over` */
};

/* All that is particular to a form when blocks are read. A new form is a row here, and its functions. It also
 * needs:
 *     BSN_FORM_LAST, a row of bsn_producers, a place in bsn_choose_..., its scratch in bsn_rooms_size, room
 *     in bsn_record; BITSNAP_RULES, if it has conditions of its own; bsn_open_side and bsn_side_elements, if
 *     sides of PARTED may have it; with a base: bsn_is_single, bsn_walk_single, bsn_cell_state,
 *     bsn_apply_half, bsn_apply_block, bsn_make_cell, the counts in bitsnap_info; its parts in bitsnap_part
 *     (at most 8 are reported) and bitsnap_read_block;
 *     outside: bitsnap_file.h (BSF_..., bsf_form_fits), forms.c of the tool, offload/decode.h, FORMAT.md 5
 *     and 9, tour.c, decoder.py, generate.py.
 * A block is decoded in these steps.
 * Each returns the rule that is broken, or 0:
 *     base  reads the base's cell, in frames with a base. Null: hashes it, and that is all
 *           Then the body is hashed for the block's check, unless `make` is null.
 *     open  parses the body, and finds everything wrong with it except codes that are no number. Null: there
 *           is nothing to parse
 *     make  makes elements i .. i + m - 1 at `out`, or sets d->made to memory that has them. `out` is never
 *           null unless the form is BSN_SEQUENTIAL. Null: bsn_make_split makes all elements, and hashes the
 *           parts of the body on the way
 * bitsnap_read_block stops after `open`, so that it cannot disagree with decoding. */
typedef struct bsn_form {
    unsigned char traits, body, least, over;
    unsigned (*base)(bsn_decoding *d);
    unsigned (*open)(bsn_decoding *d);
    unsigned (*make)(bsn_decoding *d, uint8_t *out, size_t i, size_t m);
} bsn_form;

static const bsn_form bsn_forms[] = {
    /* STORED */
    { 0, BSN_BODY_WHOLE, 0, 0, NULL, NULL, bsn_make_stored },
    /* CONST */
    { 0, BSN_BODY_RUN, 0, 0, NULL, NULL, bsn_make_const },
    /* SPLIT */
    { 0, BSN_BODY_CODED, 1, 0, NULL, bsn_open_split, NULL },
    /* BYTES */
    { 0, BSN_BODY_CODED, 1, 0, NULL, bsn_open_bytes, bsn_make_bytes },
    /* SAME */
    { BSN_NEEDS_BASE, BSN_BODY_NONE, 0, 0, BSN_FOR_DELTA(bsn_base_same), NULL, BSN_FOR_DELTA(bsn_make_same) },
    /* CLASSED: a list of raw words takes 2 bytes more than the elements */
    { BSN_NEEDS_BASE | BSN_SEQUENTIAL | BSN_PAGES, BSN_BODY_CODED, 1, 2,
      BSN_FOR_DELTA(bsn_base_classed), BSN_FOR_DELTA(bsn_open_classed), BSN_FOR_DELTA(bsn_make_classed) },
    /* SCALED */
    { BSN_NEEDS_COLUMNS, BSN_BODY_CODED, 1, 0, NULL, bsn_open_scaled, bsn_make_scaled },
    /* QUANTIZED */
    { BSN_NEEDS_QUANTIZER | BSN_SEQUENTIAL, BSN_BODY_CODED, 1, 0,
      NULL, BSN_FOR_QUANTIZE(bsn_open_quantized), BSN_FOR_QUANTIZE(bsn_make_quantized) },
    /* SPARSE */
    { BSN_NEEDS_BASE | BSN_SEQUENTIAL | BSN_PAGES, BSN_BODY_CODED, BSN_PIECE_HEAD + 1, 0,
      BSN_FOR_DELTA(bsn_base_sparse), BSN_FOR_DELTA(bsn_open_sparse), BSN_FOR_DELTA(bsn_make_sparse) },
    /* ZIGZAG */
    { BSN_NEEDS_INTEGERS, BSN_BODY_CODED, 1, 0, NULL, bsn_open_bytes, bsn_make_zigzag },
    /* PARTED */
    { 0, BSN_BODY_CODED, 1, 0, NULL, bsn_open_parted, bsn_make_parted },
    /* PATCHED */
    { BSN_NEEDS_BASE, BSN_BODY_CODED, 1, 0, NULL, BSN_FOR_DELTA(bsn_open_patched), BSN_FOR_DELTA(bsn_make_parted) },
    /* all others */
    { 0, BSN_BODY_ANY, 0, 0, NULL, bsn_open_unknown, bsn_make_stored },
};
BSN_ASSERT(every_form_has_a_row, sizeof bsn_forms / sizeof *bsn_forms == BSN_FORM_LAST + 2);

BSN_INLINE const bsn_form *bsn_form_of(unsigned form) { return &bsn_forms[form <= BSN_FORM_LAST ? form : BSN_FORM_LAST + 1]; }

/* Returns 1 if a block of this form has elements that need no prediction. */
BSN_INLINE int bsn_is_alone(unsigned form) { return !(bsn_form_of(form)->traits & BSN_NEEDS_BASE); }

/* Returns the BSN_NEEDS_... that a frame meets. */
static unsigned bsn_frame_has(const bsn_shape *s)
{
    return (s->role ? (unsigned)BSN_NEEDS_BASE : 0u) | (s->columns ? (unsigned)BSN_NEEDS_COLUMNS : 0u) |
           (s->bins || s->clusters ? (unsigned)BSN_NEEDS_QUANTIZER : 0u) |
           (s->width > 1 && !bsn_symbol_bits(s->dtype) ? (unsigned)BSN_NEEDS_INTEGERS : 0u);
}

/* What a head says of its block, and the index. */
typedef struct bsn_look {
    uint32_t head, check; /* check: its lower half, as the index has it */
    int indexed;          /* 1: the index has told `check` */
    unsigned form;
    size_t prefix, whole; /* bytes before the body; of the block, or 0 if not all of them are there */
    size_t need;          /* bytes that must be there to know more, or the size of the block */
    uint64_t first, offset; /* its first element, and where it begins in the frame */
    uint64_t elements;
} bsn_look;

/* Reads a head that has `left` elements of the frame from its first one on. Returns the rule that is broken,
 * or 0. */
static unsigned bsn_read_head(const bsn_shape *s, bsn_look *look, uint32_t head, uint64_t left)
{
    const uint64_t cell = UINT64_C(1) << s->block_log2, n = left < cell ? left : cell, size = head >> 8, stored = n * s->width;
    const unsigned number = head & 255;
    const bsn_form *form = bsn_form_of(number);
    uint64_t least, most;
    look->head = head;
    look->form = number;
    look->elements = n;
    look->prefix = bsn_prefix(s);
    look->whole = look->need = look->prefix + bsn_body_of(head, s->width);
    if (form->traits & BSN_NEEDS & ~bsn_frame_has(s)) return BITSNAP_R_FORM;
    if (form->body == BSN_BODY_ANY) return 0;
    if (form->body == BSN_BODY_RUN) {
        if (size == 0 || size > (left - 1) / cell + 1 || (s->role && size != 1)) return BITSNAP_R_RUN;
        look->elements = size * cell < left ? size * cell : left;
        return 0;
    }
    least = form->body == BSN_BODY_WHOLE ? stored : form->least;
    most = form->body == BSN_BODY_NONE ? 0 : stored + form->over;
    return size < least || size > most ? BITSNAP_R_BODY_SIZE : 0;
}

/* A block to be coded, and the result. */
typedef struct bsn_job {
    const uint8_t *source; /* decoding: the block; encoding: the elements */
    uint8_t *target;       /* encoding: the block */
    size_t n, size;        /* elements: those of a cell, of a CONST run any number; bytes: encoding's
                              result */
    uint64_t first, total; /* of the block: its first element, and how many there are */
    uint64_t offset;       /* of the block in the frame */
    bsn_sink sink;
    bsn_ids *ids;          /* with a base, else null */
    bitsnap_error error;
    /* decoding: */
    const uint8_t *input_end, *base; /* base: of the cell's first element; null: none, or blind */
    uint32_t head;                   /* of the block, as it was checked */
    uint32_t check;                  /* the lower half of its check, as the index has it, */
    int indexed;                     /* if this is 1 */
} bsn_job;

static bitsnap_status bsn_rule_status(unsigned rule)
{
    switch (rule) {
#define BSN_RULE(number, status, name, message) case number: return BITSNAP_E_##status;
    BITSNAP_RULES(BSN_RULE)
#undef BSN_RULE
    default: return BITSNAP_OK;
    }
}

static bitsnap_status bsn_refuse(bitsnap_error *error, unsigned rule, uint64_t offset)
{
    error->rule = rule;
    error->offset = offset;
    return error->status = bsn_rule_status(rule);
}

/* Returns the hash of h and one more word: how the entries of an index become one. */
static uint64_t bsn_chain(uint64_t h, uint64_t word)
{
    uint8_t both[16];
    bsn_store64(both, h);
    bsn_store64(both + 8, word);
    return bsn_hash_short(both, 16);
}

/* ---- decoding: the steps ---- */

/* Prepares to decode the job's block. The source has all of it, and at->head is its head, which has been
 * checked. Of a block in a frame with a base that is absent (at->base is null) only what needs no base is
 * checked; elements are made if the form needs none. */
static void bsn_decoding_begin(bsn_decoding *d, bsn_record *record, bsn_work *w, const bsn_context *c, bsn_job *at)
{
    bsn_sink *s = &at->sink;
    d->form = bsn_form_of(at->head & 255);
    d->work = w;
    d->context = c;
    d->body = d->place = at->source + bsn_prefix(&c->shape);
    d->end = d->body + bsn_body_of(at->head, c->shape.width);
    d->input_end = at->input_end;
    d->base = at->base;
    d->expected = c->shape.role ? d->body - BSN_IDS_SIZE : NULL;
    d->ids = at->ids;
    d->first = at->first;
    d->n = at->n;
    d->sink = s;
    d->record = record;
    d->at = at;
    d->checking = bsn_has_checks(&c->shape) && !bsn_ignores(c);
    d->hash_base = at->base && !bsn_ignores(c);
    d->base_first = d->same = 0;
    d->side = NULL;
    d->report = NULL;
    at->error.element = at->first;
    s->differs = s->until;
    s->kernels = c->kernels;
    s->n = at->n;
    s->stream = c->stream && s->to;
    if (c->shape.role) s->leaves = !bsn_ignores(c) && (at->base || !(d->form->traits & BSN_NEEDS_BASE)) ? &at->ids->result : NULL;
    bsn_record_begin(record, c, at->first, at->total, at->head);
    if (c->shape.role) bsn_record_bytes(record, d->expected, BSN_IDS_SIZE);
}

static unsigned bsn_decode_base(bsn_decoding *d)
{
    if (!BSN_WITH_DELTA || !d->expected) return 0;
    return d->form->base ? d->form->base(d) : bsn_base_any(d);
}

/* Makes the elements of a body that has been opened, chunk by chunk. If chunks can be made alone, makes only
 * those that somebody needs: a run can have up to 2^48 elements. */
static unsigned bsn_make_chunks(bsn_decoding *d)
{
    const bsn_form *form = d->form;
    const unsigned width = d->context->shape.width;
    const size_t step = form->traits & BSN_PAGES ? BSN_PAGE / width : bsn_min(BSN_CHUNK, (size_t)1 << d->context->room_log2);
    bsn_sink *s = d->sink;
    const int all = s->leaves || (form->traits & BSN_SEQUENTIAL);
    const size_t end = all ? d->n : s->to || s->compare ? s->until : 0;
    size_t i;
    unsigned rule = 0;
    for (i = all ? 0 : s->from & ~(step - 1); i < end && !rule; i += step) {
        const size_t m = bsn_min(step, d->n - i);
        uint8_t *out = bsn_sink_place(d->work, s, width, i, m);
        d->made = out;
        if (out || (form->traits & BSN_SEQUENTIAL)) rule = form->make(d, out, i, m);
        if (out && !rule) bsn_sink_done(d->work, s, width, i, m, d->made);
    }
    return rule;
}

/* Compares the block's check with what has been hashed, and with the index. */
static unsigned bsn_check_block(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    const uint8_t *block = d->body - bsn_prefix(&c->shape);
    uint64_t hash;
    if (!d->checking) return 0;
    d->place = block;
    hash = bsn_hash_of(c->kernels, d->record->bytes, d->record->size);
    if (hash != bsn_load64(block + BSN_HEAD_SIZE)) return BITSNAP_R_BLOCK_CHECK;
    return d->at->indexed && (uint32_t)hash != d->at->check ? BITSNAP_R_INDEX_CHECK : 0;
}

/* Tells a block of a newer version from a damaged one: its check matches. `rule` is that of a body that could
 * not be opened. All of it has been hashed, except the planes of SPLIT. Returns the rule of the damage, or
 * else `rule`. */
static unsigned bsn_check_unknown(bsn_decoding *d, unsigned rule)
{
    const uint8_t *place = d->place;
    const bsn_layout *y = &d->of.split.layout;
    unsigned k, damaged;
    if (bsn_rule_status(rule) != BITSNAP_E_UNSUPPORTED) return rule;
    if (d->checking && !d->form->make) {
        for (k = 0; k < y->planes; k++)
            bsn_record_hash(d->record, bsn_hash_of(d->context->kernels, d->body + y->at[k], y->at[k + 1] - y->at[k]));
        bsn_record_hash(d->record, d->of.split.list_hash);
    }
    damaged = bsn_check_block(d);
    if (!damaged) d->place = place;
    return damaged ? damaged : rule;
}

/* Checks the block, and compares the hash of the elements with what the block says of them. */
static unsigned bsn_check_made(bsn_decoding *d)
{
    const bsn_context *c = d->context;
    const unsigned rule = bsn_check_block(d);
    uint64_t hash;
    if (rule) return rule;
    if (!BSN_WITH_DELTA || !d->expected || bsn_ignores(c) || (!d->same && !d->sink->leaves)) return 0;
    hash = d->same ? bsn_load64(d->expected) : bsn_leaves_end(c->kernels, &d->ids->result, d->n);
    d->place = d->expected + 8;
    return hash != bsn_load64(d->place) ? BITSNAP_R_ELEMENTS_HASH : 0;
}

/* Hashes and opens the body, makes the elements, and checks both. */
static unsigned bsn_decode_body(bsn_decoding *d)
{
    const bsn_form *form = d->form;
    const int makes = d->base || !(form->traits & BSN_NEEDS_BASE);
    unsigned rule = 0;
    if (d->checking && form->make)
        bsn_record_hash(d->record, bsn_hash_of(d->context->kernels, d->body, (size_t)(d->end - d->body)));
    if (makes && form->open) rule = form->open(d);
    if (makes && !rule) rule = form->make ? bsn_make_chunks(d) : bsn_make_split(d);
    if (d->sink->stream) bsn_streamed();
    return rule ? bsn_check_unknown(d, rule) : bsn_check_made(d);
}

/* Notes in the job what is wrong: the rule that is broken, or else a difference to what the elements were
 * compared with. */
static bitsnap_status bsn_decoding_end(const bsn_decoding *d, bsn_job *at, unsigned rule)
{
    if (rule) return bsn_refuse(&at->error, rule, (uint64_t)(d->place - at->source));
    if (d->sink->differs == d->sink->until) return BITSNAP_OK;
    at->error.element += d->sink->differs;
    return at->error.status = BITSNAP_E_DIFFERENT;
}

/* Decodes the job's block to its sink; see bsn_decoding_begin. Unless checks are ignored, verifies the
 * block's check and, in frames with a base, the hashes of base and elements; at->ids then has their
 * leaves. */
static bitsnap_status bsn_decode_block(bsn_work *w, const bsn_context *c, bsn_job *at)
{
    bsn_record record;
    bsn_decoding d;
    unsigned rule;
    bsn_decoding_begin(&d, &record, w, c, at);
    rule = bsn_decode_base(&d);
    if (!rule) rule = bsn_decode_body(&d);
    return bsn_decoding_end(&d, at, rule);
}

/* ---- applying: blocks whose elements replace their base ----
 * A process that is killed while it stores leaves a cell that is neither base nor result. A later call
 * completes it:
 *     if the form needs no base       the first bytes of the cell are a mark until all others are stored. The
 *                                     block is decoded again
 *     if it adds one list of words    elements are stored from the first byte on. bsn_find_place finds how
 *                                     far that came
 *     if what it does to an element   the journal has a copy of the base, which is put back. Without a
 *                                     journal the cell is lost
 *     depends on other elements
 * This layer is called between the base and the body of a block, and by nothing in them. */

/* Copies of cells, made before these are overwritten: one for each worker. Memory for more is only read: the
 * call that was interrupted may have had more workers. */
typedef struct bsn_journal {
    uint8_t *cells;     /* null: there is no journal */
    size_t count, size; /* cells, bytes of each */
} bsn_journal;

/* What a cell holds. HALF: perhaps elements of the result, and after them elements of the base. LOST: nothing
 * that can be completed. */
enum { BSN_CELL_BASE, BSN_CELL_RESULT, BSN_CELL_HALF, BSN_CELL_LOST };

/* Returns the size of the mark of a cell of `size` bytes. */
static unsigned bsn_mark_size(size_t size) { return size < 8 ? 1u << bsn_log2(size) : 8; }

/* Finds where an interrupted call stopped. Cell `a` holds the result up to some position and the base from
 * there on. `b` was decoded with `a` as its base, so it is right from that position on. Copies `a` over `b`,
 * `step` bytes at a time, the end by elements, until the cell's hash is `hash`. Then `b` is the result,
 * `leaves` has its hashes, and 1 is returned; 0 if no position fits. Only the 1 KiB that holds the candidate
 * is hashed again; what later bytes add to the accumulators is computed once. */
BSN_FUNCTION int bsn_find_place(bsn_work *w, const bsn_context *c, bsn_leaves *leaves, const uint8_t *a, uint8_t *b, size_t n,
                                size_t step, uint64_t hash)
{
    const bitsnap_kernels *kernels = c->kernels;
    uint64_t *sums = (uint64_t *)(void *)w->arena.at; /* where words were */
    bsn_hasher before, h;
    size_t i, at, some, k;
    unsigned j;
    /* not tried itself: it is right only if `a` is the base */
    bsn_leaves_take(kernels, &w->pieces, leaves, b, n, c->shape.width);
    for (i = 0; i < n; i += BSN_LEAF) {
        const size_t m = bsn_min(BSN_LEAF, n - i), size = m * c->shape.width, blocks = size > 240 ? (size - 1) / 1024 : 0;
        const uint8_t *old = a + i * c->shape.width;
        uint8_t *p = b + i * c->shape.width;
        bsn_hash_begin(&before, size);
        memset(sums, 0, 64 * blocks);
        for (k = 0; k < blocks; k++) { /* 16 stripes each, after which the accumulators are scrambled */
            kernels->hash(sums + 8 * k, p + 1024 * k, 15, 0);
            bsn_hash_stripe(sums + 8 * k, p + 1024 * k + 15 * 64, bsn_secret + 15 * 8);
        }
        for (at = 0; at < size; at += some) {
            some = size - at < step ? c->shape.width : step;
            if (bsn_equal(p + at, old + at, some)) continue;
            memcpy(p + at, old + at, some);
            bsn_hash_feed(kernels, &before, p, 1024 * (at / 1024));
            h = before;
            bsn_hash_feed(kernels, &h, p, 1024 * bsn_min(at / 1024 + 1, blocks));
            for (k = at / 1024 + 1; k < blocks; k++) {
                for (j = 0; j < 8; j++) h.state[j] += sums[8 * k + j];
                bsn_hash_scramble(h.state);
            }
            h.stripes = 16 * blocks;
            if (BSN_BIG_ENDIAN) bsn_leaves_add(kernels, &w->pieces, leaves, p, i, m, n, c->shape.width);
            else leaves->hash[i / BSN_LEAF] = bsn_hash_end(kernels, &h, p);
            if (bsn_leaves_end(kernels, leaves, n) == hash) return 1;
        }
    }
    return 0;
}

/* Returns 1 if the block adds words in one list. Its base must have been read: only then are its classes
 * known. */
static int bsn_is_single(const bsn_decoding *d, unsigned form)
{
    return form == BSN_FORM_SPARSE || (form == BSN_FORM_CLASSED && d->of.classed.classes.count == 1);
}

/* Tells what a cell holds that does not have the hash of the base. BSN_CELL_BASE: the block can be decoded,
 * as it needs no base, or as the base was in the journal and has been put back. */
static int bsn_cell_state(const bsn_decoding *d, unsigned form, const bsn_journal *journal, uint64_t mark, unsigned marked)
{
    const bitsnap_kernels *kernels = d->context->kernels;
    const unsigned width = d->context->shape.width;
    uint8_t *live = (uint8_t *)d->base;
    const uint8_t *saved = journal->cells;
    size_t i;
    if (d->ids->base_hash == bsn_load64(d->expected + 8) && form != BSN_FORM_SAME) return BSN_CELL_RESULT;
    if (bsn_is_alone(form) && bsn_element_load(live, marked) == mark) return BSN_CELL_BASE;
    /* Only the first pass reads the journal, and puts cells back: in the second one other workers write to
     * it. */
    for (i = 0; i < journal->count && !d->sink->to; i++, saved += journal->size) {
        bsn_leaves_take(kernels, &d->work->pieces, &d->ids->base, saved, d->n, width);
        if (bsn_leaves_end(kernels, &d->ids->base, d->n) != bsn_load64(d->expected)) continue;
        memcpy(live, saved, d->n * width);
        return BSN_CELL_BASE;
    }
    return bsn_is_single(d, form) ? BSN_CELL_HALF : BSN_CELL_LOST;
}

/* The cell holds the result. Checks what can be checked of the block without the base, and stores nothing. */
static bitsnap_status bsn_apply_result(bsn_decoding *d, bsn_job *at)
{
    unsigned rule;
    d->base = NULL;
    d->sink->to = NULL;
    if (d->form->traits & BSN_NEEDS_BASE) d->sink->leaves = NULL;
    rule = bsn_decode_body(d);
    d->ids->result = d->ids->base;
    return bsn_decoding_end(d, at, rule);
}

/* The cell may hold a part of the result. Decodes the block to scratch, completes it there, and stores it in
 * order. */
static bitsnap_status bsn_apply_half(bsn_decoding *d, bsn_job *at, unsigned form)
{
    const unsigned width = d->context->shape.width;
    const size_t size = d->n * width, step = form == BSN_FORM_SPARSE || width > sizeof size ? width : sizeof size;
    uint8_t *live = d->sink->to, *made;
    bsn_arena arena = d->work->arena;
    bsn_rooms room;
    unsigned rule;
    bsn_lay_classed(&arena, &room, d->context, d->n);
    made = room.made;
    d->sink->to = made;
    d->sink->leaves = NULL;
    rule = bsn_decode_body(d);
    if (!rule && !bsn_find_place(d->work, d->context, &d->ids->result, d->base, made, d->n, step, bsn_load64(d->expected + 8))) {
        rule = BITSNAP_R_BASE_HASH;
        d->place = d->expected;
    }
    if (!rule && live) bsn_store_in_order(live, made, size, width);
    return bsn_decoding_end(d, at, rule);
}

/* Decodes a block over its base: at->base is the cell, and so is at->sink.to, unless it is null; then the
 * block is only checked. Cells that hold the result are left alone. worker: whose cell of the journal may be
 * overwritten. */
static bitsnap_status bsn_apply_block(bsn_work *w, const bsn_context *c, const bsn_journal *journal, unsigned worker, bsn_job *at)
{
    const size_t size = at->n * c->shape.width;
    const unsigned form = at->head & 255, marked = bsn_mark_size(size);
    bsn_sink *s = &at->sink;
    const uint64_t mark = bsn_chain(c->shape.header_check, at->first) & bsn_low_bits(8 * marked);
    int state = BSN_CELL_BASE;
    bsn_record record;
    bsn_decoding d;
    unsigned rule;
    bsn_decoding_begin(&d, &record, w, c, at);
    d.base_first = 1;
    rule = bsn_decode_base(&d);
    if (rule == BITSNAP_R_BASE_HASH) {
        state = bsn_cell_state(&d, form, journal, mark, marked);
        if (state != BSN_CELL_LOST) rule = state == BSN_CELL_BASE && !bsn_is_alone(form) ? bsn_decode_base(&d) : 0;
    }
    if (rule) return bsn_decoding_end(&d, at, rule);
    if (state == BSN_CELL_RESULT) return bsn_apply_result(&d, at);
    if (state == BSN_CELL_HALF) return bsn_apply_half(&d, at, form);
    if (s->to) {
        BSN_ORDERED(); /* after the last store to the cell before */
        /* one store: there is no half of a mark */
        if (bsn_is_alone(form)) bsn_element_store(s->to, mark, s->held = marked);
        else if (form == BSN_FORM_CLASSED && bsn_is_single(&d, form)) s->in_order = 1;
        else if ((form == BSN_FORM_CLASSED || form == BSN_FORM_PATCHED) && journal->cells) memcpy(journal->cells + worker * journal->size, s->to, size);
        BSN_ORDERED();
    }
    rule = bsn_decode_body(&d);
    if (!rule && s->held) {
        BSN_ORDERED();
        bsn_element_store(s->to, bsn_element_load(s->first, s->held), s->held);
    }
    return bsn_decoding_end(&d, at, rule);
}

/* ================================================================================= FRAME
 * header | blocks | footer. Everything in the header is known at the start; the footer (frames of more than
 * one cell, or with a content id) holds what is known at the end: the index and the content id. */

#define BSN_COUNT_MAX (UINT64_C(1) << 48)
#define BSN_VERSION 1
#define BSN_HEADER_SIZE 24 /* without extensions */
#define BSN_TAIL_SIZE 28   /* the end of a footer: number of blocks, frame size, check, magic */

enum { BSN_EXTENSION_BASE = 0x81, BSN_EXTENSION_QUANTIZED = 0x82, BSN_EXTENSION_COLUMNS = 0x83, BSN_EXTENSION_CRITICAL = 0x80 };

static const uint8_t bsn_magic[4] = { 0xB5, 'S', 'N', 'P' };
static const uint8_t bsn_end_magic[4] = { 'P', 'N', 'S', 0xB5 };

static bitsnap_status bsn_fail(bitsnap *b, bitsnap_status status, uint64_t offset, uint64_t element)
{
    memset(&b->error, 0, sizeof b->error);
    b->error.status = status;
    b->error.offset = offset;
    b->error.element = element;
    return status;
}

static bitsnap_status bsn_reject(bitsnap *b, unsigned rule, uint64_t offset, uint64_t element)
{
    (void)bsn_fail(b, bsn_rule_status(rule), offset, element);
    b->error.rule = rule;
    return b->error.status;
}

/* What is wrong with a block that begins at `offset`. */
static bitsnap_status bsn_pass(bitsnap *b, const bitsnap_error *error, uint64_t offset)
{
    b->error = *error;
    b->error.offset += offset;
    return error->status;
}

/* The source ends too early: `needed` bytes would do. */
static bitsnap_status bsn_truncated(bitsnap *b, uint64_t offset, uint64_t element, uint64_t needed)
{
    (void)bsn_reject(b, BITSNAP_R_TRUNCATED, offset, element);
    b->error.needed = needed;
    return BITSNAP_E_TRUNCATED;
}

/* Memory of the caller's is too small; `needed` suffices. What does not fit begins at that offset of the
 * frame, and element. */
static bitsnap_status bsn_need_at(bitsnap *b, bitsnap_status status, uint64_t needed, uint64_t offset, uint64_t element)
{
    (void)bsn_fail(b, status, offset, element);
    b->error.needed = needed;
    return status;
}
static bitsnap_status bsn_need(bitsnap *b, bitsnap_status status, uint64_t needed) { return bsn_need_at(b, status, needed, 0, 0); }

/* That argument is wrong (null: none is); a frame or an option needs what this build leaves out. */
static bitsnap_status bsn_blame(bitsnap *b, bitsnap_status status, const char *what)
{
    if (!what) return BITSNAP_OK;
    (void)bsn_fail(b, status, 0, 0);
    b->error.argument = what;
    return status;
}
static bitsnap_status bsn_wrong(bitsnap *b, const char *argument) { return bsn_blame(b, BITSNAP_E_ARGUMENT, argument); }

/* Returns 1 for a struct of another bitsnap.h, whose members may have other places. */
static int bsn_is_foreign(const bitsnap *b) { return b->struct_size && b->struct_size != sizeof *b; }

#define BSN_FLAGS_KNOWN 63u /* of bitsnap.flags */

/* Names the option that has a value no function accepts, or returns null. */
static const char *bsn_odd_option(const bitsnap *b)
{
    return b->level < 0 || b->level > BITSNAP_BEST ? "level" : b->flags & ~BSN_FLAGS_KNOWN ? "flags" : NULL;
}

/* A call begins: is it a struct that we know, and which argument or option is wrong? */
static bitsnap_status bsn_begin(bitsnap *b, const char *wrong)
{
    if (!b || bsn_is_foreign(b)) return BITSNAP_E_ARGUMENT;
    memset(&b->error, 0, sizeof b->error);
    b->used = 0;
    return bsn_wrong(b, wrong ? wrong : bsn_odd_option(b));
}

static const bitsnap_kernels *bsn_kernels_of(const bitsnap *b) { return b->kernels ? b->kernels : bsn_kernels_best(); }

static uint64_t bsn_cells(uint64_t count, unsigned block_log2)
{
    return (count >> block_log2) + ((count & ((UINT64_C(1) << block_log2) - 1)) != 0);
}

/* Returns the number of cells, which is the most blocks that the frame can have. */
static uint64_t bsn_blocks(const bsn_shape *s) { return bsn_cells(s->count, s->block_log2); }

static int bsn_has_footer(const bsn_shape *s)
{
    return bsn_blocks(s) > 1 || (s->flags & (BSN_FLAG_CONTENT | BSN_FLAG_LOSSY | BSN_FLAG_FOOTER));
}

#define BSN_EXTENSION_SIZE 3u /* of an extension's type and size */
#define BSN_BASE_SIZE 10     /* of the extension that names a base: role, dtype, id */
#define BSN_QUANTIZED_SIZE 3 /* that says how elements were quantized: family, bins or clusters */
#define BSN_COLUMNS_SIZE 8   /* that says how long rows are */

enum { BSN_FAMILY_BINS = 1, BSN_FAMILY_CLUSTERS = 2 };

/* Each of these takes in an extension's value of `size` bytes. They return the rule that is broken, or 0. */
static unsigned bsn_take_base(bsn_shape *h, const uint8_t *value, size_t size)
{
    const unsigned both = BSN_FLAG_CHECKS | BSN_FLAG_CONTENT, role = size == BSN_BASE_SIZE ? bsn_once8(value) : 0;
    const unsigned dtype = role ? bsn_once8(value + 1) : 0;
    if (h->role || !role || role != bsn_role_of(h->dtype, dtype) || h->block_log2 < BSN_LOG2_LEAF || (h->flags & both) != both)
        return BITSNAP_R_BASE_EXTENSION;
    h->role = role;
    h->base_dtype = dtype;
    h->base_id = bsn_once64(value + 2);
    return 0;
}

static unsigned bsn_take_quantizer(bsn_shape *h, const uint8_t *value, size_t size)
{
    unsigned family, number;
    if (size != BSN_QUANTIZED_SIZE || h->bins || h->clusters || !(h->flags & BSN_FLAG_LOSSY)) return BITSNAP_R_QUANTIZER;
    family = bsn_once8(value);
    if (family != BSN_FAMILY_BINS && family != BSN_FAMILY_CLUSTERS) return BITSNAP_R_FAMILY;
    number = bsn_once8(value + 1) + 256 * bsn_once8(value + 2);
    if (family == BSN_FAMILY_BINS) h->bins = number;
    else h->clusters = number;
    return !number || h->bins > BSN_BINS_MOST || h->clusters > BSN_CLUSTERS_MOST ? BITSNAP_R_QUANTIZER : 0;
}

static unsigned bsn_take_columns(bsn_shape *h, const uint8_t *value, size_t size)
{
    const uint64_t columns = size == BSN_COLUMNS_SIZE ? bsn_once64(value) : 0;
    if (h->columns || !columns) return BITSNAP_R_QUANTIZER;
    h->columns = columns;
    return 0;
}

/* Reads extensions twice. The first pass (h null) checks that they fill their bytes, and that no critical one
 * is unknown: with one, other bytes of the header may have another meaning. Passes over other unknown
 * ones. */
static bitsnap_status bsn_read_extensions(bitsnap *b, bsn_shape *h, const uint8_t *p, size_t size)
{
    size_t at, length;
    for (at = 0; at < size; at += BSN_EXTENSION_SIZE + length) {
        const uint8_t *value = p + at + BSN_EXTENSION_SIZE;
        const int whole = size - at >= BSN_EXTENSION_SIZE;
        const unsigned type = whole ? bsn_once8(p + at) : 0;
        unsigned rule = 0;
        length = whole ? bsn_once8(p + at + 1) + 256 * bsn_once8(p + at + 2) : 0;
        if (!whole || length > size - at - BSN_EXTENSION_SIZE) rule = BITSNAP_R_EXTENSIONS;
        else if (type == BSN_EXTENSION_BASE) rule = h ? bsn_take_base(h, value, length) : 0;
        else if (type == BSN_EXTENSION_QUANTIZED) rule = h ? bsn_take_quantizer(h, value, length) : 0;
        else if (type == BSN_EXTENSION_COLUMNS) rule = h ? bsn_take_columns(h, value, length) : 0;
        else if (type & BSN_EXTENSION_CRITICAL) rule = BITSNAP_R_EXTENSION;
        if (rule) return bsn_reject(b, rule, 18 + (uint64_t)at, 0);
    }
    return BITSNAP_OK;
}

static bitsnap_status bsn_read_header(bitsnap *b, bsn_shape *h, const uint8_t *p, size_t size)
{
    size_t extensions = 0;
    bitsnap_status status;
    memset(h, 0, sizeof *h);
    if (!bsn_equal(p, bsn_magic, bsn_min(size, 4))) return bsn_reject(b, BITSNAP_R_MAGIC, 0, 0);
    if (size < 5) return bsn_reject(b, BITSNAP_R_TRUNCATED, size, 0);
    if (p[4] != BSN_VERSION) return bsn_reject(b, BITSNAP_R_VERSION, 4, 0);
    if (size < BSN_HEADER_SIZE) return bsn_reject(b, BITSNAP_R_TRUNCATED, size, 0);
    h->dtype = (bitsnap_dtype)bsn_once8(p + 5);
    h->block_log2 = bsn_once8(p + 6);
    h->flags = bsn_once8(p + 7);
    h->count = bsn_once64(p + 8);
    if (h->flags & BSN_FLAG_EXTENSIONS) extensions = 2 + bsn_once8(p + 16) + 256 * bsn_once8(p + 17);
    h->header_size = BSN_HEADER_SIZE + extensions;
    if (size < h->header_size) return bsn_reject(b, BITSNAP_R_TRUNCATED, size, 0);
    h->header_check = bsn_load64(p + h->header_size - 8);
    if (!(b->flags & BITSNAP_IGNORE_CHECKS) && bsn_hash_of(bsn_kernels_of(b), p, h->header_size - 8) != h->header_check)
        return bsn_reject(b, BITSNAP_R_HEADER_CHECK, h->header_size - 8, 0);
    if (extensions && (status = bsn_read_extensions(b, NULL, p + 18, extensions - 2)) != BITSNAP_OK) return status;
    if (!bsn_is_dtype(h->dtype)) return bsn_reject(b, BITSNAP_R_DTYPE, 5, 0);
    if (h->block_log2 < BSN_LOG2_MIN || h->block_log2 > BSN_LOG2_MAX) return bsn_reject(b, BITSNAP_R_BLOCK_LOG2, 6, 0);
    if (h->flags & BSN_FLAGS_NEW) return bsn_reject(b, BITSNAP_R_FLAGS, 7, 0);
    if (h->count > BSN_COUNT_MAX) return bsn_reject(b, BITSNAP_R_COUNT, 8, 0);
    if (extensions && (status = bsn_read_extensions(b, h, p + 18, extensions - 2)) != BITSNAP_OK) return status;
    if ((h->bins || h->clusters || h->columns) && (h->role || !bsn_has_octaves(h->dtype)))
        return bsn_reject(b, BITSNAP_R_QUANTIZER, 18, 0);
    if ((h->flags & BSN_FLAG_LOSSY) && !h->bins && !h->clusters) return bsn_reject(b, BITSNAP_R_QUANTIZER, 7, 0);
    h->width = bsn_dtypes[h->dtype].width;
    return BITSNAP_OK;
}

/* ---- index ----
 * A tree, so that any block of a frame of any size is found by reading little. Each piece has its own check.
 * A page holds the entries of 256 blocks. An entry is the first bytes of its block: its head and, with
 * checks, the lower half of its check. If there is more than one page, nodes of 256 entries follow, with an
 * entry for each page; then nodes for these nodes, until there is one: the root. */

#define BSN_FAN 256u
#define BSN_ENTRY_SIZE 24u /* of the piece below: its first cell, where its first block begins in the frame, its hash */
#define BSN_LEVELS 6u      /* of 2^42 blocks, the most that a frame can have */

typedef struct bsn_index {
    uint64_t blocks;
    unsigned entry;                /* bytes of an entry of a page */
    unsigned top;                  /* the root's level; pages are level 0 */
    uint64_t entries[BSN_LEVELS];  /* of each level */
    uint64_t place[BSN_LEVELS];    /* where each level begins; the first page is at 0 */
    uint64_t size;                 /* where the last level ends */
} bsn_index;

/* Returns the bytes of a page's entry. */
BSN_INLINE unsigned bsn_entry_of(unsigned flags) { return BSN_HEAD_SIZE + (flags & BSN_FLAG_CHECKS ? BSN_HALF_SIZE : 0u); }
BSN_INLINE unsigned bsn_entry_size(const bsn_index *t, unsigned level) { return level ? BSN_ENTRY_SIZE : t->entry; }

static void bsn_index_shape(bsn_index *t, uint64_t blocks, unsigned flags)
{
    uint64_t n = blocks;
    t->blocks = blocks;
    t->entry = bsn_entry_of(flags);
    t->top = 0;
    t->size = 0;
    for (;; n = (n - 1) / BSN_FAN + 1, t->top++) {
        t->entries[t->top] = n;
        t->place[t->top] = t->size;
        t->size += n * bsn_entry_size(t, t->top);
        if (n <= BSN_FAN) return;
    }
}

/* The entries of page or node i of a level: how many; *first is the number of the first one. */
BSN_INLINE unsigned bsn_index_node(const bsn_index *t, unsigned level, uint64_t i, uint64_t *first)
{
    *first = i * BSN_FAN;
    return (unsigned)(t->entries[level] - *first < BSN_FAN ? t->entries[level] - *first : BSN_FAN);
}

/* What is known of a frame that is coded piece by piece: a bitsnap_encoder from within. */
typedef struct bsn_coder {
    bsn_shape shape;
    uint64_t position, stored, seal;
    void *index;
    size_t index_capacity, index_size;
    struct {
        uint64_t run;
        uint64_t heads_hash, checks_hash; /* pull: of the entries that the index must have */
        bsn_pieces root, aside; /* of the content id; of its leaf, or with a base of the base's id */
        uint64_t result_id; /* the content id, if it is known and the elements are not; decoder: after its
                               end */
        uint64_t log_hash;  /* pull: of the quantizer's table that is in the workspace, and where */
        const void *log;
        int check_base, has_result_id;
        uint8_t certificate[44]; /* of the blocks done */
    } state;
    size_t need;          /* decoder: bytes that the next call wants at least */
} bsn_coder;
BSN_ASSERT(encoder,
           sizeof(bsn_coder) <= sizeof(bitsnap_encoder) && offsetof(bsn_coder, state) == offsetof(bitsnap_encoder, opaque) &&
           offsetof(bsn_coder, shape.base_dtype) == offsetof(bitsnap_encoder, base_dtype) &&
           offsetof(bsn_coder, position) == offsetof(bitsnap_encoder, position));

/* Bytes of a frame: those from `offset` to `end`, in memory, or where `data` is null from a callback. */
typedef struct bsn_input {
    const uint8_t *data;
    uint64_t offset, end;
    int (*read)(void *context, uint64_t offset, void *to, size_t size);
    void *context;
} bsn_input;

/* Returns `size` bytes at `offset`, which the input has: a pointer into it or, if `to` is given, the copy
 * there. Null: the callback failed. */
static const uint8_t *bsn_input_get(const bsn_input *x, uint64_t offset, size_t size, uint8_t *to)
{
    const uint8_t *p;
    if (!x->data) return x->read(x->context, offset, to, size) ? NULL : to;
    p = x->data + (size_t)(offset - x->offset);
    return to ? (const uint8_t *)memcpy(to, p, size) : p;
}

#define BSN_NODE_SIZE (BSN_FAN * BSN_ENTRY_SIZE)

/* Memory for the pieces of an index that have been read and checked, the last one of each level. */
typedef struct bsn_nodes {
    uint64_t held[BSN_LEVELS]; /* the number of that piece, and 1; 0: none */
    uint8_t page[BSN_FAN * (BSN_HEAD_SIZE + BSN_HALF_SIZE)], node[BSN_LEVELS - 2][BSN_NODE_SIZE];
    uint8_t root[BSN_NODE_SIZE + 128]; /* followed by the content id and the certificate */
} bsn_nodes;

/* What a frame says at its two ends. */
typedef struct bsn_frame {
    bsn_input input;
    bsn_nodes *nodes; /* copies of the index; null: the input is in memory, and so is its index */
    bsn_shape shape;
    bsn_index index;  /* of a frame without footer: the first bytes of its only block */
    uint64_t start;   /* offset of the index */
    uint64_t end;     /* offset of the end of the last block: `start` if there is a footer */
    uint64_t content_id, seal;
    uint8_t certificate[BSN_CERTIFICATE_SIZE]; /* of a quantized frame */
} bsn_frame;

static void bsn_frame_begin(bsn_frame *f, const void *data, uint64_t size)
{
    memset(f, 0, sizeof *f);
    f->input.data = (const uint8_t *)data;
    f->input.end = size;
}

/* Begins the hash of `size` bytes of a footer, which belong to the frame of this header. */
static void bsn_bound_begin(const bitsnap_kernels *kernels, bsn_pieces *h, uint64_t header_check, uint64_t size)
{
    uint8_t check[8];
    bsn_store64(check, header_check);
    bsn_pieces_begin(h, size + 8);
    bsn_pieces_add(kernels, h, check, 8);
}

BSN_FUNCTION uint64_t bsn_bound_hash(const bitsnap_kernels *kernels, uint64_t header_check, const uint8_t *p, size_t size)
{
    bsn_pieces h;
    bsn_bound_begin(kernels, &h, header_check, size);
    bsn_pieces_add(kernels, &h, p, size);
    return bsn_pieces_end(&h);
}

/* Returns the bytes of a footer without its index and its extensions. */
static size_t bsn_fixed_size(unsigned flags)
{
    return (flags & BSN_FLAG_CONTENT ? 8u : 0u) + (flags & BSN_FLAG_LOSSY ? BSN_CERTIFICATE_SIZE : 0u) +
           (flags & BSN_FLAG_FOOTER ? 8u : 0u) + BSN_TAIL_SIZE;
}

/* Returns the bytes of a footer at p that begins with an index of `index` bytes. If `left` bytes do not tell,
 * returns how many do. */
static uint64_t bsn_footer_size(unsigned flags, uint64_t index, const uint8_t *p, uint64_t left)
{
    const uint64_t size = index + bsn_fixed_size(flags);
    return flags & BSN_FLAG_FOOTER && left >= size ? size + bsn_once32(p + (size_t)size - BSN_TAIL_SIZE - 8) : size;
}

/* Makes the nodes above the pages of the tree at `index`. Stores them in `to`, a pointer to the same memory.
 * If `to` is null, compares them with the nodes that are there. Returns the rule that is broken, or 0. */
static unsigned bsn_index_make(const bitsnap_kernels *kernels, const bsn_frame *f, const uint8_t *index, uint8_t *to, int ignore)
{
    const bsn_index *t = &f->index;
    uint64_t cell = 0, offset = f->shape.header_size, i, first;
    uint8_t entry[BSN_ENTRY_SIZE];
    unsigned level, j, n;
    for (level = 1; level <= t->top; level++) {
        for (i = 0; i < t->entries[level]; i++) {
            const size_t place = (size_t)(t->place[level] + i * BSN_ENTRY_SIZE);
            const uint8_t *child;
            n = bsn_index_node(t, level - 1, i, &first);
            child = index + (size_t)(t->place[level - 1] + first * bsn_entry_size(t, level - 1));
            bsn_store64(entry, level > 1 ? bsn_load64(child) : cell);
            bsn_store64(entry + 8, level > 1 ? bsn_load64(child + 8) : offset);
            bsn_store64(entry + 16, ignore ? bsn_load64(index + place + 16)
                                           : bsn_bound_hash(kernels, f->shape.header_check, child, n * bsn_entry_size(t, level - 1)));
            for (j = 0; level == 1 && j < n; j++) {
                const uint32_t head = bsn_once32(child + j * t->entry);
                cell += (head & 255) == BSN_FORM_CONST ? head >> 8 : 1;
                offset += bsn_prefix(&f->shape) + bsn_body_of(head, f->shape.width);
            }
            if (to) memcpy(to + place, entry, BSN_ENTRY_SIZE);
            else if (!bsn_equal(index + place + 16, entry + 16, 8)) return BITSNAP_R_FOOTER_CHECK;
            else if (!bsn_equal(index + place, entry, 16)) return BITSNAP_R_INDEX_BLOCKS;
        }
    }
    return 0;
}

/* Reads the footer that ends where the input does. Another thread may change the input, so each byte of the
 * tail is read once. */
static bitsnap_status bsn_read_footer(bitsnap *b, bsn_frame *f)
{
    const bsn_input *x = &f->input;
    const bitsnap_kernels *kernels = bsn_kernels_of(b);
    const int extended = (f->shape.flags & BSN_FLAG_FOOTER) != 0;
    const size_t fixed = bsn_fixed_size(f->shape.flags), apart = BSN_TAIL_SIZE + (extended ? 4 : 0);
    const uint64_t least = f->shape.header_size > x->offset ? f->shape.header_size : x->offset;
    /* after the extensions: their size again, and the tail */
    uint8_t last[BSN_TAIL_SIZE + 4], *tail = last + apart - BSN_TAIL_SIZE;
    const uint8_t *p;
    uint64_t blocks, left, at;
    size_t extra, front, some; /* bytes of the extensions; from the root to these; of a part of them */
    bsn_pieces hash;
    if (x->end < least || x->end - least < fixed) return bsn_reject(b, BITSNAP_R_TRUNCATED, x->end, 0);
    if (!bsn_input_get(x, x->end - apart, apart, last)) return bsn_reject(b, BITSNAP_R_SOURCE, x->end - apart, 0);
    if (!bsn_equal(tail + BSN_TAIL_SIZE - 4, bsn_end_magic, 4)) return bsn_reject(b, BITSNAP_R_TRUNCATED, x->end, 0);
    blocks = bsn_load64(tail);
    if (blocks > bsn_blocks(&f->shape) || (!blocks && f->shape.count)) return bsn_reject(b, BITSNAP_R_INDEX_SIZE, x->end - BSN_TAIL_SIZE, 0);
    bsn_index_shape(&f->index, blocks, f->shape.flags);
    left = x->end - least - fixed;
    if (f->index.size > left) return bsn_reject(b, BITSNAP_R_INDEX_SIZE, x->end - BSN_TAIL_SIZE, 0);
    extra = extended ? bsn_load32(last) : 0;
    if (extra > left - f->index.size) return bsn_reject(b, BITSNAP_R_EXTENSIONS, x->end - apart, 0);
    f->start = f->end = x->end - fixed - extra - f->index.size;
    at = f->start + f->index.place[f->index.top];
    front = (size_t)(x->end - at) - extra - apart;
    p = bsn_input_get(x, at, front, f->nodes ? f->nodes->root : NULL);
    if (!p) return bsn_reject(b, BITSNAP_R_SOURCE, at, 0);
    if (extended && bsn_load32(p + front - 4) != extra) return bsn_reject(b, BITSNAP_R_EXTENSIONS, x->end - apart, 0);
    bsn_bound_begin(kernels, &hash, f->shape.header_check, (uint64_t)front + extra + apart - 12);
    bsn_pieces_add(kernels, &hash, p, front);
    for (at += front; extra; extra -= some, at += some) {
        const uint8_t *piece;
        some = bsn_min(extra, BSN_NODE_SIZE);
        /* no node has been read yet */
        piece = bsn_input_get(x, at, some, f->nodes ? f->nodes->node[0] : NULL);
        if (!piece) return bsn_reject(b, BITSNAP_R_SOURCE, at, 0);
        bsn_pieces_add(kernels, &hash, piece, some);
    }
    bsn_pieces_add(kernels, &hash, last, apart - 12);
    f->seal = bsn_load64(tail + 16);
    if (!(b->flags & BITSNAP_IGNORE_CHECKS) && bsn_pieces_end(&hash) != f->seal) return bsn_reject(b, BITSNAP_R_FOOTER_CHECK, x->end - 12, 0);
    if (bsn_load64(tail + 8) != x->end) return bsn_reject(b, BITSNAP_R_FRAME_SIZE, x->end - 20, 0);
    p += front + apart - fixed;
    f->content_id = f->shape.flags & BSN_FLAG_CONTENT ? bsn_load64(p) : 0;
    if (f->shape.flags & BSN_FLAG_LOSSY)
        memcpy(f->certificate, p + (f->shape.flags & BSN_FLAG_CONTENT ? 8 : 0), BSN_CERTIFICATE_SIZE);
    if (f->nodes) f->nodes->held[f->index.top] = 1;
    return BITSNAP_OK;
}

/* The size of the frame at p by the heads of its blocks; 0 where `size` bytes do not reach its end, or it has
 * none. */
static uint64_t bsn_walked_size(const bsn_shape *h, const uint8_t *p, size_t size)
{
    uint64_t at = h->header_size, left = h->count, blocks = 0;
    bsn_look look;
    bsn_index index;
    for (; left; left -= look.elements, at += look.whole, blocks++)
        if (size - at < BSN_HEAD_SIZE || bsn_read_head(h, &look, bsn_once32(p + (size_t)at), left) || size - at < look.whole) return 0;
    bsn_index_shape(&index, blocks, h->flags);
    if (bsn_has_footer(h)) at += bsn_footer_size(h->flags, index.size, p + (size_t)at, size - at);
    return at <= size ? at : 0;
}

/* Opens the frame of f->input. If b's flags allow it, other bytes may follow a frame in memory. */
static bitsnap_status bsn_open(bitsnap *b, bsn_frame *f)
{
    bsn_input *x = &f->input;
    bsn_shape *h = &f->shape;
    size_t some = x->data ? (size_t)x->end : x->end < 64 ? (size_t)x->end : 64;
    if (!some) return bsn_reject(b, BITSNAP_R_TRUNCATED, 0, 0);
    for (;;) { /* reads the header, and again if it is longer than that */
        const uint8_t *p;
        bitsnap_status status;
        if (!x->data && (!b->workspace || b->workspace_size < some)) return bsn_need(b, BITSNAP_E_WORKSPACE, some);
        p = bsn_input_get(x, 0, some, x->data ? NULL : (uint8_t *)b->workspace);
        if (!p) return bsn_reject(b, BITSNAP_R_SOURCE, 0, 0);
        h->header_size = 0;
        status = bsn_read_header(b, h, p, some);
        if (!status) break;
        if (status != BITSNAP_E_TRUNCATED || h->header_size <= some || some == x->end) return status;
        some = h->header_size < x->end ? h->header_size : (size_t)x->end;
    }
    f->seal = h->header_check;
    if (f->nodes) memset(f->nodes->held, 0, sizeof f->nodes->held);
    if (bsn_has_footer(h)) {
        bitsnap_status status = bsn_read_footer(b, f);
        if (!status || !(b->flags & BITSNAP_ALLOW_TRAILING) || !x->data) return status;
        x->end = bsn_walked_size(h, x->data, (size_t)x->end);
        memset(&b->error, 0, sizeof b->error);
        return x->end ? bsn_read_footer(b, f) : bsn_reject(b, BITSNAP_R_TRUNCATED, some, 0);
    }
    bsn_index_shape(&f->index, bsn_blocks(h), h->flags);
    f->start = h->header_size;
    f->end = x->end;
    if (!bsn_blocks(h)) return BITSNAP_OK;
    some = bsn_prefix(h);
    if (f->end - f->start < some) return bsn_reject(b, BITSNAP_R_TRUNCATED, x->end, 0);
    if (!f->nodes) return BITSNAP_OK;
    if (!bsn_input_get(x, f->start, some, f->nodes->root)) return bsn_reject(b, BITSNAP_R_SOURCE, f->start, 0);
    if (bsn_has_checks(h)) f->seal = bsn_load64(f->nodes->root + BSN_HEAD_SIZE);
    f->nodes->held[0] = 1;
    return BITSNAP_OK;
}

/* Walks blocks by their entries in the index. */
typedef struct bsn_cursor {
    const uint8_t *page; /* the next entry */
    unsigned left;       /* entries from there to the end of the page */
    uint64_t cell, offset; /* the next block's: its first cell, and where it begins in the frame */
    uint64_t page_end, offset_end; /* where the page's blocks end, as what is above them says */
} bsn_cursor;

/* Returns page or node i of a level: `size` bytes at `place` of the frame, which have that hash. Null, and b
 * says why, if it cannot be had. */
static const uint8_t *bsn_index_piece(bitsnap *b, const bsn_frame *f, unsigned level, uint64_t i, uint64_t place, size_t size,
                                      uint64_t hash)
{
    const int ignore = (b->flags & BITSNAP_IGNORE_CHECKS) != 0;
    bsn_nodes *nodes = f->nodes;
    uint8_t *to = !nodes ? NULL : level == f->index.top ? nodes->root : level ? nodes->node[level - 1] : nodes->page;
    const uint8_t *p;
    if (nodes && nodes->held[level] == i + 1) return to;
    if (nodes) nodes->held[level] = 0;
    p = bsn_input_get(&f->input, place, size, to);
    if (!p) {
        (void)bsn_reject(b, BITSNAP_R_SOURCE, place, 0);
    } else if (level < f->index.top && !ignore && bsn_bound_hash(bsn_kernels_of(b), f->shape.header_check, p, size) != hash) {
        (void)bsn_reject(b, BITSNAP_R_FOOTER_CHECK, place, 0);
        p = NULL;
    } else if (nodes && !ignore) {
        nodes->held[level] = i + 1;
    }
    return p;
}

/* Puts the cursor before the first block of the page that has the cell. What is read on the way is
 * checked. */
static bitsnap_status bsn_cursor_seek(bitsnap *b, bsn_cursor *at, const bsn_frame *f, uint64_t cell)
{
    uint64_t i = 0, first, hash = 0;
    unsigned level, j, n;
    at->cell = 0;
    at->offset = f->shape.header_size;
    at->page_end = bsn_blocks(&f->shape);
    at->offset_end = f->end;
    for (level = f->index.top;; level--) {
        const unsigned entry = bsn_entry_size(&f->index, level);
        const uint64_t place = f->start + f->index.place[level] + i * BSN_FAN * entry;
        const uint8_t *p;
        n = bsn_index_node(&f->index, level, i, &first);
        p = bsn_index_piece(b, f, level, i, place, n * entry, hash);
        if (!p) return b->error.status;
        if (level == 0) {
            at->page = p;
            at->left = n;
            return BITSNAP_OK;
        }
        i = first;
        for (j = 0; j < n; j++, p += BSN_ENTRY_SIZE) {
            const uint64_t next = bsn_once64(p), offset = bsn_once64(p + 8);
            if (j == 0 ? next != at->cell || offset != at->offset
                       : next <= at->cell || next >= at->page_end || offset <= at->offset || offset >= at->offset_end)
                return bsn_reject(b, BITSNAP_R_INDEX_END, place + j * BSN_ENTRY_SIZE, 0);
            if (next > cell) {
                at->page_end = next;
                at->offset_end = offset;
                break;
            }
            at->cell = next;
            at->offset = offset;
            hash = bsn_load64(p + 16);
            i = first + j;
        }
    }
}

/* The next block; goes to the next page where this one ends. */
static bitsnap_status bsn_cursor_next(bitsnap *b, bsn_cursor *at, const bsn_frame *f, bsn_look *look)
{
    const bsn_shape *h = &f->shape;
    const uint64_t position = at->cell << h->block_log2;
    unsigned rule;
    if (!at->left) {
        const uint64_t cell = at->cell, offset = at->offset;
        bitsnap_status status;
        if (cell != at->page_end || offset != at->offset_end || cell >= bsn_blocks(h))
            return bsn_reject(b, BITSNAP_R_INDEX_END, offset, position);
        status = bsn_cursor_seek(b, at, f, cell);
        /* what is above the page has been changed */
        if (!status && (at->cell != cell || at->offset != offset))
            status = bsn_reject(b, BITSNAP_R_INDEX_END, offset, position);
        if (status) return status;
    }
    if (at->cell >= at->page_end) return bsn_reject(b, BITSNAP_R_INDEX_END, at->offset, 0);
    rule = bsn_read_head(h, look, bsn_once32(at->page), h->count - position);
    if (!rule && look->whole > at->offset_end - at->offset) rule = f->end == f->start ? BITSNAP_R_INDEX_BLOCKS : BITSNAP_R_TRUNCATED;
    if (!rule && look->elements > (at->page_end << h->block_log2) - position) rule = BITSNAP_R_INDEX_END;
    if (rule) return bsn_reject(b, rule, rule == BITSNAP_R_TRUNCATED ? f->end : at->offset, position);
    look->first = position;
    look->offset = at->offset;
    look->indexed = bsn_has_checks(h);
    look->check = look->indexed ? bsn_once32(at->page + BSN_HEAD_SIZE) : 0;
    at->page += f->index.entry;
    at->left--;
    at->cell += ((look->elements - 1) >> h->block_log2) + 1;
    at->offset += look->whole;
    /* the footer begins after the last block */
    if (position + look->elements == h->count && f->end == f->start && (at->left || at->offset != f->end))
        return bsn_reject(b, BITSNAP_R_INDEX_SIZE, at->offset, position);
    return BITSNAP_OK;
}

/* The content id of elements that come in order, in pieces. */
static void bsn_content_begin(bsn_pieces *root, uint64_t count)
{
    bsn_pieces_begin(root, 8 * bsn_cells(count, 16) + 16);
}

static void bsn_content_leaf(const bitsnap_kernels *kernels, bsn_pieces *root, uint64_t leaf)
{
    uint8_t hash[8];
    /* more than announced: the caller's struct was not begun by us */
    if (root->hash.total < 24 || root->got > root->hash.total - 24) return;
    bsn_store64(hash, leaf);
    bsn_pieces_add(kernels, root, hash, 8);
}

static void bsn_content_add(const bitsnap_kernels *kernels, bsn_pieces *leaf, bsn_pieces *root,
                            const uint8_t *elements, uint64_t position, uint64_t n, uint64_t count, unsigned width)
{
    while (n) {
        const uint64_t begin = position & ~(uint64_t)(BSN_LEAF - 1);
        const uint64_t end = count - begin < BSN_LEAF ? count : begin + BSN_LEAF;
        const size_t m = (size_t)(n < end - position ? n : end - position);
        if (position == begin) bsn_pieces_begin(leaf, (end - begin) * width);
        /* not begun with checks ignored */
        if (leaf->hash.total == (end - begin) * width && leaf->got == (position - begin) * width) {
            bsn_leaf_feed(kernels, leaf, elements, m, width);
            if (position + m == end) bsn_content_leaf(kernels, root, bsn_pieces_end(leaf));
        }
        position += m;
        elements += m * width;
        n -= m;
    }
}

/* The leaves of a cell of n elements. */
static void bsn_content_cell(const bitsnap_kernels *kernels, bsn_pieces *root, const bsn_leaves *leaves, size_t n)
{
    size_t i;
    for (i = 0; i < BSN_LEAF_COUNT(n); i++) bsn_content_leaf(kernels, root, leaves->hash[i]);
}

static uint64_t bsn_content_end(const bitsnap_kernels *kernels, bsn_pieces *root, unsigned dtype, uint64_t count)
{
    uint8_t last[16];
    bsn_store64(last, dtype);
    bsn_store64(last + 8, count);
    if (root->hash.total >= 16 && root->got == root->hash.total - 16) bsn_pieces_add(kernels, root, last, 16);
    return bsn_pieces_end(root);
}

BITSNAP_API uint64_t bitsnap_hash(const void *data, size_t size)
{
    return bsn_hash_of(bsn_kernels_best(), data, size);
}

BITSNAP_API uint64_t bitsnap_content_id(const void *elements, uint64_t count, bitsnap_dtype dtype)
{
    const bitsnap_kernels *kernels = bsn_kernels_best();
    bsn_pieces leaf, root;
    if (!bsn_is_dtype((unsigned)dtype)) return 0;
    bsn_content_begin(&root, count);
    bsn_content_add(kernels, &leaf, &root, (const uint8_t *)elements, 0, count, count, bsn_dtypes[dtype].width);
    return bsn_content_end(kernels, &root, (unsigned)dtype, count);
}

/* The most bytes of a frame; 0 where that is more than a size_t. A block is no larger than its elements, but
 * merging may add 2. */
static size_t bsn_bound(const bsn_shape *s, size_t header)
{
    const uint64_t cells = bsn_blocks(s);
    uint64_t size = header + s->count * s->width + cells * (bsn_prefix(s) + (s->role ? 2 : 0));
    bsn_index index;
    bsn_index_shape(&index, cells, s->flags);
    if (bsn_has_footer(s)) size += index.size + bsn_fixed_size(s->flags);
    return size <= SIZE_MAX ? (size_t)size : 0;
}

/* The jobs of a batch with several workers; a single worker has one job. Each further worker brings memory
 * for all of them, so that the workspace grows by the same size for each. */
#define BSN_JOBS 76       /* enough that waiting for the last of them costs little */
#define BSN_DELTA_JOBS 32 /* cells with a base: they are larger */
#define BSN_JOBS_SIZE (BSN_LINES(BSN_JOBS * sizeof(bsn_job)) + BSN_LINES(BSN_DELTA_JOBS * sizeof(bsn_ids)))
#define BSN_LEAVES_JOBS (BSN_DELTA_JOBS * sizeof(bsn_ids) / sizeof(bsn_leaves)) /* those that hash leaves, in the same memory */

/* Returns log2 of the elements that scratch is for: those of a block, or of the frame if that is smaller. */
static unsigned bsn_room_log2(unsigned block_log2, uint64_t count, int large)
{
    const unsigned least = large ? BSN_LOG2_LEAF : BSN_LOG2_MIN;
    while (block_log2 > least && count <= UINT64_C(1) << (block_log2 - 1)) block_log2--;
    return block_log2;
}

static int bsn_is_large(const bsn_context *c) { return c->shape.role || c->shape.bins || c->shape.clusters || c->shape.columns; }

/* Lays out the scratch of one worker: the struct, a chunk of elements, one of each plane, and what forms lay
 * out by turns. Returns its size. Without base, quantizer and columns a chunk has no more planes than
 * elements have bytes, and one for symbols, plane[7]. */
static size_t bsn_work_lay(uint8_t *memory, const bsn_context *c, unsigned use)
{
    const size_t n = (size_t)1 << c->room_log2, chunk = BSN_CHUNK_OF(n, bsn_is_large(c));
    const unsigned width = bsn_is_large(c) ? 8 : c->shape.width, last = width < 7 ? width : 7;
    bsn_arena a = { memory, BSN_DRY };
    bsn_work *w = (bsn_work *)bsn_arena_take(&a, sizeof *w);
    uint8_t *elements = (uint8_t *)bsn_arena_take(&a, bsn_larger(width * chunk, BSN_ELEMENTS_LEAST));
    uint8_t *planes = (uint8_t *)bsn_arena_take(&a, (last + 1) * (chunk + 64));
    bsn_planner *planner = (bsn_planner *)bsn_arena_take(&a, use & BSN_ENCODES ? sizeof *planner : 0);
    unsigned k;
    if (w) {
        w->elements = elements;
        w->planner = use & BSN_ENCODES ? planner : NULL;
        for (k = 0; k < 8; k++) w->plane[k] = planes + bsn_min(k, last) * (chunk + 64);
        w->arena = a;
    }
    return BSN_DRY - a.left + bsn_rooms_size(c, n, use);
}

/* Staging memory for each worker, where coded blocks wait for their places. Several workers: two batches, one
 * of them being coded while the other is moved. One worker: a block, if forms are tried one after the other;
 * see bsn_encode_job. */
static size_t bsn_staging_size(const bsn_context *c, unsigned workers, unsigned use)
{
    const size_t n = (size_t)1 << c->room_log2;
    if (!(use & BSN_STAGES)) return 0;
    if (workers > 1) return (bsn_is_large(c) ? 16 : 32) * n + 512;
    return bsn_is_large(c) ? n * c->shape.width + BSN_PREFIX_MOST : 0;
}

/* The regions of a call's workspace. */
typedef struct bsn_workspace {
    void *jobs, *ids, *log;
    uint8_t *work;    /* of worker 0; the others' follow, and so for `bases` and `more` */
    uint8_t *staging; /* encoding: blocks wait here for their place */
    uint8_t *bases;   /* a cell of a base with a source */
    uint8_t *more;    /* a block, of an input with a callback, or its elements */
    size_t work_size, staging_size, more_size; /* `work` and `more`: of one worker */
} bsn_workspace;

/* Lays out a workspace; returns its size, with what aligning it takes, or 0 if that is more than a size_t.
 * base, more: bytes that each worker has for a cell of a base and for other things. */
static size_t bsn_workspace_lay(bsn_workspace *x, uint8_t *memory, const bsn_context *c, unsigned workers, unsigned use,
                                size_t base, size_t more)
{
    bsn_arena a = { memory, BSN_DRY };
    const size_t staging = bsn_staging_size(c, workers, use);
    memset(x, 0, sizeof *x);
    if (c->room_log2 > BSN_LOG2_MAX) return 0;
    x->work_size = bsn_work_lay(NULL, c, use);
    if (base > SIZE_MAX / 4 || more > SIZE_MAX / 4 ||
        workers > SIZE_MAX / 4 / (x->work_size + BSN_JOBS_SIZE + staging + base + more))
        return 0;
    x->jobs = bsn_arena_take(&a, BSN_LINES(sizeof(bsn_job)) + (workers - 1) * BSN_LINES(BSN_JOBS * sizeof(bsn_job)));
    x->ids = bsn_arena_take(&a, BSN_LINES(sizeof(bsn_ids)) + (workers - 1) * BSN_LINES(BSN_DELTA_JOBS * sizeof(bsn_ids)));
    x->work = (uint8_t *)bsn_arena_take(&a, workers * x->work_size);
    x->staging_size = workers * staging;
    x->staging = (uint8_t *)bsn_arena_take(&a, x->staging_size);
    x->bases = (uint8_t *)bsn_arena_take(&a, workers * base);
    x->more = (uint8_t *)bsn_arena_take(&a, workers * more);
    x->more_size = more;
    x->log = bsn_arena_take(&a, c->shape.bins ? sizeof(bsn_log) : 0);
    return BSN_DRY - a.left + 63;
}

/* BITSNAP_WORKSPACE holds the regions of one worker for blocks of 2^16 elements of 8 bytes: what is the same
 * both ways, with at most 63 bytes lost at each region, and scratch to encode four planes or to decode
 * eight. */
#define BSN_WORKER_ALONE                                                                              \
    (sizeof(bsn_job) + sizeof(bsn_ids) + sizeof(bsn_work) + sizeof(bsn_planner) + 16 * (BSN_CHUNK + 64) + 16 * 64)
BSN_ASSERT(workspace_encodes, BSN_WORKER_ALONE + 4 * (65536 + 64) + BSN_WRITE_SIZE(65536) <= BITSNAP_WORKSPACE);
BSN_ASSERT(workspace_decodes,
           BSN_WORKER_ALONE + BSN_LISTS_SIZE(65536) + BSN_KEPT_SIZE(65536) + 8 * (65536 + 64) <= BITSNAP_WORKSPACE);

/* What merging and inverting take beside a call's workspace: their state, two cells and a block. */
#define BSN_ALGEBRA_SIZE 8192u
/* Elements and what kernels write past them, or a block. */
#define BSN_ALGEBRA_CELL(c) (((size_t)(c)->shape.width << (c)->room_log2) + 128)

/* The workspace to merge or invert: the call that encodes has one worker, those that decode all. `rooms` is
 * where the rest begins. */
static size_t bsn_algebra_lay(size_t *rooms, const bsn_context *c, unsigned workers, size_t base)
{
    const size_t cell = BSN_ALGEBRA_CELL(c);
    bsn_workspace x;
    const size_t one = bsn_workspace_lay(&x, NULL, c, 1, BSN_DECODES | BSN_ENCODES, base, 0);
    const size_t all = bsn_workspace_lay(&x, NULL, c, workers, BSN_DECODES, base, 0);
    *rooms = one > all ? one : all;
    return all && *rooms <= SIZE_MAX - BSN_ALGEBRA_SIZE - 3 * cell ? *rooms + BSN_ALGEBRA_SIZE + 3 * cell : 0;
}

static void bsn_info_of(bitsnap_info *info, const bsn_shape *h)
{
    bsn_workspace room;
    bsn_context c;
    size_t rest;
    memset(info, 0, sizeof *info);
    info->dtype = (bitsnap_dtype)h->dtype;
    info->width = h->width;
    info->count = h->count;
    info->elements_size = h->count * h->width;
    info->blocks = bsn_blocks(h);
    info->block_log2 = h->block_log2;
    info->version = BSN_VERSION;
    info->checks = (h->flags & BSN_FLAG_CHECKS) != 0;
    info->has_content_id = (h->flags & BSN_FLAG_CONTENT) != 0;
    info->header_size = h->header_size;
    info->header_check = info->seal = h->header_check;
    info->extended = (h->flags & BSN_FLAG_FOOTER) != 0;
    info->has_base = h->role != BSN_ROLE_NONE;
    info->base_dtype = (bitsnap_dtype)h->base_dtype;
    info->base_id = h->base_id;
    info->columns = h->columns;
    info->bins = h->bins;
    info->clusters = h->clusters;
    memset(&c, 0, sizeof c);
    c.shape = *h;
    c.room_log2 = bsn_room_log2(h->block_log2, h->count, bsn_is_large(&c));
    info->workspace_size = bsn_workspace_lay(&room, NULL, &c, 1, BSN_DECODES, 0, 0);
    info->worker_size = room.work_size + BSN_JOBS_SIZE;
    info->merge_size = info->has_base ? bsn_algebra_lay(&rest, &c, 2, 0) : 0;
    info->bound = bsn_bound(h, h->header_size);
}

static void bsn_info_end(bitsnap_info *info, const bsn_frame *f)
{
    info->frame_size = f->input.end;
    info->content_id = f->content_id;
    info->seal = f->seal;
    if (f->shape.flags & BSN_FLAG_LOSSY) bsn_tell(&info->certificate, f->certificate, info->bins);
}

BITSNAP_API bitsnap_status bitsnap_read_info(bitsnap_info *info, const void *source, size_t size)
{
    const uint8_t *p = (const uint8_t *)source;
    bitsnap dummy;
    bsn_frame f;
    bitsnap_status status;
    uint64_t i;
    if (!info || (!source && size)) return BITSNAP_E_ARGUMENT;
    memset(info, 0, sizeof *info);
    memset(&dummy, 0, sizeof dummy);
    if (size == 0) return BITSNAP_E_TRUNCATED;
    bsn_frame_begin(&f, p, size);
    status = bsn_read_header(&dummy, &f.shape, p, size);
    if (status) return status;
    bsn_info_of(info, &f.shape);
    if (!bsn_has_footer(&f.shape) || bsn_read_footer(&dummy, &f) != BITSNAP_OK) {
        /* the frame does not end where the source does */
        info->frame_size = f.input.end = bsn_walked_size(&f.shape, p, size);
        if (f.input.end > f.shape.header_size && bsn_has_checks(&f.shape)) info->seal = bsn_load64(p + f.shape.header_size + BSN_HEAD_SIZE);
        if (!f.input.end || !bsn_has_footer(&f.shape) || bsn_read_footer(&dummy, &f) != BITSNAP_OK) return BITSNAP_OK;
    }
    bsn_info_end(info, &f);
    for (i = 0; info->has_base && i < f.index.blocks; i++) {
        const unsigned form = bsn_once8(p + (size_t)(f.start + f.index.entry * i));
        if (form == BSN_FORM_SAME) info->same++;
        else if (form == BSN_FORM_SPARSE) info->sparse++;
        else if (form == BSN_FORM_CLASSED || form == BSN_FORM_PATCHED) info->classed++;
        else info->plain++;
    }
    return BITSNAP_OK;
}

BITSNAP_API const char *bitsnap_status_message(bitsnap_status status)
{
    switch (status) {
    case BITSNAP_OK: return "no error";
    case BITSNAP_E_ARGUMENT: return "wrong argument";
    case BITSNAP_E_WORKSPACE: return "workspace too small";
    case BITSNAP_E_CAPACITY: return "destination too small";
    case BITSNAP_E_MAGIC: return "not a bitsnap frame";
    case BITSNAP_E_UNSUPPORTED:
        return "a version, extension or form that this build does not read, or deltas that cannot be merged or inverted so";
    case BITSNAP_E_TRUNCATED: return "truncated";
    case BITSNAP_E_TRAILING: return "bytes behind the end of the frame";
    case BITSNAP_E_CHECK: return "a check does not match: the data is damaged";
    case BITSNAP_E_CORRUPT: return "the data breaks the format";
    case BITSNAP_E_MISMATCH: return "the frame has another dtype or count than asked for";
    case BITSNAP_E_BASE: return "wrong or missing base";
    case BITSNAP_E_CANCELLED: return "cancelled";
    case BITSNAP_E_DIFFERENT: return "the frame decodes to other elements";
    case BITSNAP_E_SOURCE: return "the callback of a source failed";
    default: return "unknown status";
    }
}

BITSNAP_API const char *bitsnap_message(const bitsnap *b)
{
    if (!b) return bitsnap_status_message(BITSNAP_E_ARGUMENT);
    if (bsn_is_foreign(b)) return "struct_size is that of another bitsnap.h: compile the caller with the one of this implementation";
    switch (b->error.rule) {
#define BSN_RULE(number, status, name, message) case number: return message;
    BITSNAP_RULES(BSN_RULE)
#undef BSN_RULE
    default:
        return b->error.status == BITSNAP_E_UNSUPPORTED && b->error.argument ? b->error.argument
                                                                            : bitsnap_status_message(b->error.status);
    }
}

/* ================================================================================= STREAM
 * Blocks are coded in batches: one after the other, or side by side where the caller gives threads. */

typedef struct bsn_call {
    bitsnap *b;
    bsn_context context;
    bsn_job *jobs;         /* of this batch */
    size_t batch;
    const bsn_job *coded;  /* parallel encoding: of the batch before, blocks that are to be moved to their
                              places */
    size_t coded_count;
    size_t group;          /* neighbouring jobs that are one task, so that what a thread asks for ahead is for
                              itself */
    bsn_ids *ids;          /* of each job, with a base */
    bsn_leaves *leaves;    /* of each job, without one, where blocks have whole leaves of the content id */
    bsn_workspace room;
    const bsn_input *input; /* a frame that the index gives offsets of; null: jobs have their source */
    unsigned workers;
    int storing;           /* it is too late for cancelling */
    int named;             /* the content id is formed, even if the elements go nowhere */
    bsn_log *log;          /* the context's, in the workspace */
    int applying;          /* 1: elements replace the base, by bsn_apply_block */
    int blind;             /* 1: the base of the frame is not there */
    bsn_journal journal;   /* applying */
} bsn_call;

BSN_INLINE int bsn_has_base(const bitsnap *b) { return b->base.data || b->base.source.read; }

/* Bytes of a cell of a base that comes from a source. */
static size_t bsn_base_size(const bitsnap *b, unsigned block_log2, unsigned role, unsigned dtype)
{
    return role && b->base.source.read ? (size_t)bsn_dtypes[dtype].width << block_log2 : 0;
}

static unsigned bsn_workers(const bitsnap *b) { return b->run && b->workers > 1 ? b->workers : 1; }

/* What is the same for all blocks of a frame. */
static void bsn_context_begin(bsn_context *c, const bitsnap *b, const bsn_shape *s)
{
    memset(c, 0, sizeof *c);
    c->shape = *s;
    c->kernels = bsn_kernels_of(b);
    c->level = b->level ? b->level : BITSNAP_DEFAULT;
    c->flags = b->flags;
    c->room_log2 = bsn_room_log2(s->block_log2, s->count, bsn_is_large(c));
}

/* The workspace of a call for this frame, and its regions, or, without memory, its size alone; 0 if that is
 * more than a size_t. */
static size_t bsn_call_room(bsn_workspace *x, uint8_t *memory, const bitsnap *b, const bsn_context *c, unsigned use, size_t more)
{
    return bsn_workspace_lay(x, memory, c, use & BSN_ONE_WORKER ? 1 : bsn_workers(b), use,
                             bsn_base_size(b, c->shape.block_log2, c->shape.role, c->shape.base_dtype), more);
}

static size_t bsn_needed(const bitsnap *b, const bsn_shape *s, unsigned use)
{
    bsn_workspace room;
    bsn_context c;
    bsn_context_begin(&c, b, s);
    return bsn_call_room(&room, NULL, b, &c, use, 0);
}

/* Checks that b->base is of the right kind. Whether it is the right one is checked cell by cell. */
static bitsnap_status bsn_check_base(bitsnap *b, const bsn_shape *s)
{
    const bitsnap_base *base = &b->base;
    if (s->role && s->count && (!bsn_has_base(b) || base->count != s->count || (unsigned)base->dtype != s->base_dtype ||
                                (base->id && base->id != s->base_id)))
        return bsn_reject(b, BITSNAP_R_BASE, 0, 0);
    return BITSNAP_OK;
}

/* Begins a call on a frame of this shape: lays out the workspace, and checks the base. use: BSN_DECODES and
 * others. more: bytes that each worker needs beside what is usual. */
static bitsnap_status bsn_call_begin(bsn_call *call, bitsnap *b, const bsn_shape *s, unsigned use, size_t more)
{
    bsn_workspace *room = &call->room;
    bsn_context c;
    size_t needed;
    unsigned i;
    memset(&b->error, 0, sizeof b->error);
    if (!BSN_WITH_DELTA && s->role) return bsn_blame(b, BITSNAP_E_UNSUPPORTED, "deltas are left out of this build (BITSNAP_NO_DELTA)");
    if (!BSN_WITH_QUANTIZE && (s->bins || s->clusters))
        return bsn_blame(b, BITSNAP_E_UNSUPPORTED, "quantizers are left out of this build (BITSNAP_NO_QUANTIZE)");
    /* on machines of 32 bits */
    if (s->count != (size_t)s->count) return bsn_fail(b, BITSNAP_E_UNSUPPORTED, 0, 0);
    bsn_context_begin(&c, b, s);
    needed = bsn_call_room(room, NULL, b, &c, use, more);
    if (!b->workspace || !needed || b->workspace_size < needed) return bsn_need(b, BITSNAP_E_WORKSPACE, needed);
    memset(call, 0, sizeof *call);
    (void)bsn_call_room(room, (uint8_t *)bsn_align(b->workspace), b, &c, use, more);
    call->b = b;
    call->workers = use & BSN_ONE_WORKER ? 1 : bsn_workers(b);
    call->jobs = (bsn_job *)room->jobs;
    if (c.shape.role) call->ids = (bsn_ids *)room->ids;
    else if (!bsn_ignores(&c) && (s->flags & BSN_FLAG_CONTENT) && s->block_log2 >= BSN_LOG2_LEAF) call->leaves = (bsn_leaves *)room->ids;
    for (i = 0; i < call->workers; i++) (void)bsn_work_lay(room->work + i * room->work_size, &c, use);
    if (BSN_WITH_QUANTIZE && c.shape.bins) {
        c.log = call->log = (bsn_log *)room->log;
        call->log->bins = c.shape.bins;
        if (!(use & BSN_NO_TABLE)) bsn_log_set(call->log, (unsigned)s->dtype, s->bins);
    }
    call->context = c;
    return use & BSN_NO_BASE ? BITSNAP_OK : bsn_check_base(b, s);
}

/* Makes the table of a quantizer by bins after a bsn_call_begin with BSN_NO_TABLE. Calls on few blocks each
 * would spend all their time on it. So the stream knows the hash of the last one, which may still be in the
 * workspace. What indices are made of is set anew. */
static void bsn_keep_table(bsn_call *call, bsn_coder *s)
{
    const unsigned dtype = (unsigned)s->shape.dtype, bins = s->shape.bins;
    bsn_log *log = call->log;
    if (!BSN_WITH_QUANTIZE || !log) return;
    bsn_log_shape(log, dtype, bins);
    if (s->state.log == log && bsn_hash_of(call->context.kernels, log, sizeof *log) == s->state.log_hash) return;
    bsn_log_set(log, dtype, bins);
    s->state.log = log;
    s->state.log_hash = bsn_hash_of(call->context.kernels, log, sizeof *log);
}

/* Checks every member that a size or an address follows from. The struct is the caller's, who may not have
 * begun it. */
static int bsn_shape_fits(const bsn_shape *s)
{
    const unsigned dtype = (unsigned)s->dtype, octaves = s->bins || s->clusters || s->columns;
    return bsn_is_dtype(dtype) && s->width == bsn_dtypes[dtype].width && s->block_log2 >= BSN_LOG2_MIN &&
           s->block_log2 <= BSN_LOG2_MAX && s->count <= BSN_COUNT_MAX &&
           (!s->role || (s->block_log2 >= BSN_LOG2_LEAF && s->role == bsn_role_of(dtype, s->base_dtype))) &&
           s->bins <= BSN_BINS_MOST && s->clusters <= BSN_CLUSTERS_MOST && (!octaves || (!s->role && bsn_has_octaves(dtype)));
}

static int bsn_stream_fits(const bsn_coder *s)
{
    return bsn_shape_fits(&s->shape) && s->position <= s->shape.count && s->state.run <= s->position &&
           (!s->index || s->index_size <= s->index_capacity) &&
           s->index_size / bsn_entry_of(s->shape.flags) <= bsn_blocks(&s->shape);
}

/* Copies the caller's encoder or decoder. Returns 0 if it was not begun. */
static int bsn_stream_load(bsn_coder *s, const bitsnap_encoder *object)
{
    if (object) memcpy(s, object, sizeof *s);
    return object && bsn_stream_fits(s);
}

/* Returns the base of elements first .. first + n - 1: in the caller's memory, or read to the worker's. Null:
 * error says why. */
static const uint8_t *bsn_base_cell(const bsn_call *call, unsigned worker, uint64_t first, size_t n, bitsnap_error *error)
{
    const bitsnap_base *base = &call->b->base;
    const unsigned width = bsn_dtypes[call->context.shape.base_dtype].width;
    uint8_t *cell = call->room.bases + worker * ((size_t)width << call->context.shape.block_log2);
    if (base->source.read) {
        if (!base->source.read(base->source.context, first * width, cell, n * width)) return cell;
    } else if (!base->held) {
        return (const uint8_t *)base->data + first * width;
    } else if (first >= base->first && first - base->first < base->held && n <= base->held - (first - base->first)) {
        return (const uint8_t *)base->data + (first - base->first) * width;
    }
    (void)bsn_refuse(error, base->source.read ? BITSNAP_R_BASE_SOURCE : BITSNAP_R_BASE_WINDOW, 0);
    error->element = first;
    return NULL;
}

/* The content id of a base that comes from a source. */
BSN_FUNCTION bitsnap_status bsn_base_id(bitsnap *b, bsn_coder *s)
{
    const unsigned width = bsn_dtypes[b->base.dtype].width;
    bsn_pieces leaf, root;
    uint64_t i;
    bsn_call call;
    bitsnap_status status = bsn_call_begin(&call, b, &s->shape, BSN_PUSHES, 0);
    if (status) return status;
    bsn_content_begin(&root, s->shape.count);
    for (i = 0; i < s->shape.count; i += BSN_LEAF) {
        const size_t n = s->shape.count - i < BSN_LEAF ? (size_t)(s->shape.count - i) : BSN_LEAF;
        const uint8_t *p = bsn_base_cell(&call, 0, i, n, &b->error);
        if (!p) return b->error.status;
        bsn_content_add(call.context.kernels, &leaf, &root, p, i, n, s->shape.count, width);
    }
    s->shape.base_id = bsn_content_end(call.context.kernels, &root, s->shape.base_dtype, s->shape.count);
    return BITSNAP_OK;
}

/* Calls on at least this many bytes of elements bypass the caches: they prefetch the next block and, unless
 * their output is read again for a content id, use non-temporal stores. Such stores gain a third for data in
 * memory and lose two thirds for data in the cache. A block cannot tell which it is, so the size of the whole
 * call decides. Prefetching from 512 KiB on made encoding 4 to 10 % slower (Xeon, 2 MiB of second-level
 * cache). Changes speed only, never bytes. */
#define BSN_LARGE (UINT64_C(8) << 20)

/* `count` elements will go through the call. */
static void bsn_call_expect(bsn_call *call, unsigned flags, uint64_t count)
{
    const bsn_context *c = &call->context;
    call->context.large = count >= BSN_LARGE / c->shape.width;
    /* leaves of the content id that are hashed later read the elements again: then they stay in the cache */
    call->context.stream = c->large && (!(flags & BSN_FLAG_CONTENT) || bsn_ignores(c) || c->shape.role || call->leaves);
}

BSN_INLINE bsn_work *bsn_work_of(const bsn_call *call, unsigned worker)
{
    return (bsn_work *)(void *)(call->room.work + worker * call->room.work_size);
}

/* how many jobs are done side by side */
static size_t bsn_jobs(const bsn_call *call)
{
    return call->workers <= 1 ? 1 : call->ids ? BSN_DELTA_JOBS : call->leaves ? BSN_LEAVES_JOBS : BSN_JOBS;
}

/* Runs all jobs, in about eight tasks for each worker, so that all are busy until the end. */
static void bsn_run(bsn_call *call, bitsnap_task task, size_t count)
{
    call->group = count;
    if (call->workers <= 1 || count <= 1) {
        task(call, 0, 0);
        return;
    }
    call->group = count / 8 / call->workers + 1;
    call->b->run(call->b->run_context, task, call, (count + call->group - 1) / call->group);
}

static int bsn_cancelled(const bsn_call *call, uint64_t done, uint64_t total)
{
    return call->b->progress && call->b->progress(call->b->progress_context, done, total) && !call->storing;
}

/* ---- push ---- */

/* Returns 1 if there are fewer than four whole blocks, and a last one of at most half a block. */
static int bsn_small_rest(uint64_t count, unsigned log2)
{
    const uint64_t rest = count & ((UINT64_C(1) << log2) - 1);
    return count >> log2 < 4 && rest && rest <= UINT64_C(1) << (log2 - 1);
}

/* The block size where the caller names none. With a base larger ones, but none larger than the elements
 * need. A block with columns carries scales for all of them: so it has 128 rows (level best: 512), and the
 * last one of a few no small rest. */
static unsigned bsn_block_log2(const bitsnap *b, uint64_t count, bitsnap_dtype dtype)
{
    const unsigned width = bsn_dtypes[dtype].width;
    unsigned log2 = BSN_LOG2_DEFAULT;
    if (b->block_log2) return b->block_log2;
    if (bsn_has_base(b)) {
        /* a master copy: half of its bits are raw in any block */
        log2 = b->base.dtype != dtype && width > 2 ? BSN_LOG2_DEFAULT
             : width > 2                         ? BSN_LOG2_DELTA_WIDE + (b->level == BITSNAP_FAST)
             : b->flags & BITSNAP_SELF_CONTAINED ? BSN_LOG2_DELTA_SELF
             : b->level == BITSNAP_BEST          ? BSN_LOG2_DELTA_BEST
                                                 : BSN_LOG2_DELTA;
    } else if (b->columns && bsn_has_octaves((unsigned)dtype) && (b->quantizer.bins || b->quantizer.clusters || b->level == BITSNAP_BEST)) {
        while (log2 < BSN_LOG2_MAX && b->columns > UINT64_C(1) << (log2 - (b->level == BITSNAP_BEST ? 9 : 7))) log2++;
        while (log2 < BSN_LOG2_COLUMNS && bsn_small_rest(count, log2)) log2++;
    }
    while (log2 > BSN_LOG2_DEFAULT && count <= UINT64_C(1) << (log2 - 1)) log2--;
    return log2;
}

/* The header has been written or read. */
static void bsn_stream_begin(bsn_coder *s)
{
    s->stored = s->shape.header_size;
    s->seal = s->shape.header_check;
    bsn_content_begin(&s->state.root, s->shape.count);
}

/* Makes the stream of a frame with this header, before its first block. */
static void bsn_stream_of(bsn_coder *s, const bsn_shape *h)
{
    memset(s, 0, sizeof *s);
    s->shape = *h;
    bsn_stream_begin(s);
}

/* Bytes of the header of what the stream says. */
static size_t bsn_header_size(const bsn_shape *s)
{
    return BSN_HEADER_SIZE + (s->flags & BSN_FLAG_EXTENSIONS ? 2u : 0u) + (s->role ? BSN_EXTENSION_SIZE + BSN_BASE_SIZE : 0u) +
           (s->flags & BSN_FLAG_LOSSY ? BSN_EXTENSION_SIZE + BSN_QUANTIZED_SIZE : 0u) +
           (s->columns ? BSN_EXTENSION_SIZE + BSN_COLUMNS_SIZE : 0u);
}

/* Begins an extension; returns where its value goes. */
static uint8_t *bsn_put_extension(uint8_t **at, unsigned type, unsigned size)
{
    uint8_t *p = *at;
    p[0] = (uint8_t)type;
    p[1] = (uint8_t)size;
    p[2] = 0;
    *at = p + BSN_EXTENSION_SIZE + size;
    return p + BSN_EXTENSION_SIZE;
}

static void bsn_write_header(const bitsnap *b, bsn_coder *s, uint8_t *p)
{
    const size_t size = bsn_header_size(&s->shape);
    uint8_t *at = p + 18, *value;
    memcpy(p, bsn_magic, 4);
    p[4] = BSN_VERSION;
    p[5] = (uint8_t)s->shape.dtype;
    p[6] = (uint8_t)s->shape.block_log2;
    p[7] = (uint8_t)s->shape.flags;
    bsn_store64(p + 8, s->shape.count);
    if (s->shape.flags & BSN_FLAG_EXTENSIONS) {
        p[16] = (uint8_t)(size - BSN_HEADER_SIZE - 2);
        p[17] = 0;
    }
    if (s->shape.role) {
        value = bsn_put_extension(&at, BSN_EXTENSION_BASE, BSN_BASE_SIZE);
        value[0] = (uint8_t)s->shape.role;
        value[1] = (uint8_t)s->shape.base_dtype;
        bsn_store64(value + 2, s->shape.base_id);
    }
    if (s->shape.flags & BSN_FLAG_LOSSY) {
        const unsigned number = s->shape.bins ? s->shape.bins : s->shape.clusters;
        value = bsn_put_extension(&at, BSN_EXTENSION_QUANTIZED, BSN_QUANTIZED_SIZE);
        value[0] = s->shape.bins ? BSN_FAMILY_BINS : BSN_FAMILY_CLUSTERS;
        value[1] = (uint8_t)number;
        value[2] = (uint8_t)(number >> 8);
    }
    if (s->shape.columns) bsn_store64(bsn_put_extension(&at, BSN_EXTENSION_COLUMNS, BSN_COLUMNS_SIZE), s->shape.columns);
    s->shape.header_check = bsn_hash_of(bsn_kernels_of(b), p, size - 8);
    bsn_store64(p + size - 8, s->shape.header_check);
    s->shape.header_size = size;
    bsn_stream_begin(s);
}

#ifndef BITSNAP_NO_ENCODE
/* Makes the shape of a frame from an encoder's options, without the base's id. Returns the name of the option
 * that is wrong, or null. */
static const char *bsn_plan(bsn_shape *s, const bitsnap *b, uint64_t count, bitsnap_dtype dtype)
{
    const bitsnap_quantizer *q = &b->quantizer;
    memset(s, 0, sizeof *s);
    if (bsn_is_foreign(b)) return "struct_size";
    if (bsn_odd_option(b)) return bsn_odd_option(b);
    if (!bsn_is_dtype((unsigned)dtype)) return "dtype";
    if (count > BSN_COUNT_MAX) return "count";
    s->dtype = dtype;
    s->width = bsn_dtypes[dtype].width;
    s->block_log2 = bsn_block_log2(b, count, dtype);
    s->count = count;
    if (s->block_log2 < (bsn_has_base(b) ? BSN_LOG2_LEAF : BSN_LOG2_MIN) || s->block_log2 > BSN_LOG2_MAX) return "block_log2";
    if ((q->bins || q->clusters) && (q->bins > BSN_BINS_MOST || q->clusters > BSN_CLUSTERS_MOST || (q->bins && q->clusters) ||
                                      bsn_has_base(b) || (b->flags & BITSNAP_CONTENT_ID) || !bsn_has_octaves((unsigned)dtype)))
        return "quantizer";
    s->flags = (b->flags & BITSNAP_NO_CHECKS ? 0u : (unsigned)BSN_FLAG_CHECKS) |
               (b->flags & BITSNAP_CONTENT_ID ? (unsigned)BSN_FLAG_CONTENT : 0u);
    if (bsn_has_base(b)) {
        s->role = bsn_role_of(dtype, (unsigned)b->base.dtype);
        s->flags = BSN_FLAG_CHECKS | BSN_FLAG_CONTENT | BSN_FLAG_EXTENSIONS;
        s->base_dtype = (unsigned)b->base.dtype;
    } else if (bsn_has_octaves((unsigned)dtype)) {
        s->bins = q->bins;
        s->clusters = q->clusters;
        if (s->bins || s->clusters) s->flags |= BSN_FLAG_LOSSY | BSN_FLAG_EXTENSIONS;
        if (s->bins || b->level == BITSNAP_BEST) s->columns = b->columns;
        if (s->columns) s->flags |= BSN_FLAG_EXTENSIONS;
    }
    return NULL;
}

BITSNAP_API size_t bitsnap_workspace_size(const bitsnap *b, uint64_t count, bitsnap_dtype dtype)
{
    bitsnap none;
    bsn_shape s;
    memset(&none, 0, sizeof none);
    if (!b) b = &none;
    if (bsn_plan(&s, b, count, dtype) || (bsn_has_base(b) && !s.role)) return 0;
    return bsn_needed(b, &s, BSN_PUSHES);
}

BITSNAP_API size_t bitsnap_bound(const bitsnap *b, uint64_t count, bitsnap_dtype dtype)
{
    bitsnap none;
    bsn_shape s;
    memset(&none, 0, sizeof none);
    if (bsn_plan(&s, b ? b : &none, count, dtype)) return 0;
    return bsn_bound(&s, bsn_header_size(&s));
}

static bitsnap_status bsn_encoder_begin(bitsnap *b, bsn_coder *s, void *destination, size_t capacity,
                                              size_t *size, uint64_t count, bitsnap_dtype dtype)
{
    size_t header;
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !s ? "encoder" : !size ? "size" : !destination ? "destination" : NULL);
    if (status) return status;
    memset(s, 0, sizeof *s);
    status = bsn_wrong(b, bsn_plan(&s->shape, b, count, dtype));
    if (status) return status;
    if (bsn_has_base(b)) {
        const int all = b->base.source.read || !b->base.held || (!b->base.first && b->base.held >= count);
        if (!s->shape.role || b->base.count != count) return bsn_fail(b, BITSNAP_E_BASE, 0, 0);
        s->shape.base_id = b->base.id;
        /* which may give something else the second time */
        s->state.check_base = b->base.id || b->base.source.read;
        if (!b->base.id && !all) return bsn_reject(b, BITSNAP_R_BASE_WINDOW, 0, 0);
        if (!b->base.id && !b->base.source.read) s->shape.base_id = bitsnap_content_id(b->base.data, count, b->base.dtype);
        else if (!b->base.id && bsn_base_id(b, s)) return b->error.status;
        bsn_content_begin(&s->state.aside, count);
    }
    header = bsn_header_size(&s->shape);
    if (capacity < header) return bsn_need(b, BITSNAP_E_CAPACITY, header);
    bsn_write_header(b, s, (uint8_t *)destination);
    *size = header;
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_encoder_begin(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                                 size_t *size, uint64_t count, bitsnap_dtype dtype)
{
    bsn_coder s;
    bitsnap_status status;
    memset(&s, 0, sizeof s); /* where it fails nothing has begun */
    status = bsn_encoder_begin(b, encoder ? &s : NULL, destination, capacity, size, count, dtype);
    if (encoder) memcpy(encoder, &s, sizeof s);
    return status;
}
#endif

/* A block from where it was coded to its place in the frame. */
static void bsn_place_block(const bsn_call *call, const bsn_job *job)
{
    if (!job->size) return;
    if (call->context.large) bsn_stream(job->target, job->source, job->size);
    else memcpy(job->target, job->source, job->size);
    if (call->context.large) bsn_streamed();
}

/* Decodes what has been encoded, and compares. (Not inlined, as its frame would lie below those that
 * encode.) */
BSN_FUNCTION void bsn_verify_job(bsn_work *w, const bsn_context *c, bsn_job *job)
{
    bsn_ids ids;
    bsn_job back;
    memset(&back, 0, sizeof back);
    back.sink.compare = c->shape.clusters ? NULL : job->source; /* no bound holds there */
    back.sink.log = c->log;
    back.source = job->target;
    back.head = bsn_load32(job->target);
    back.input_end = job->target + job->size;
    back.n = back.sink.until = job->n;
    back.first = job->first;
    back.total = job->n;
    back.ids = &ids;
    if (job->ids) back.base = job->ids->cell;
    if (bsn_decode_block(w, c, &back)) job->error = back.error;
}

/* The most bytes of a block of n elements. */
static size_t bsn_block_most(const bsn_context *c, size_t n)
{
    return n * c->shape.width + bsn_prefix(&c->shape);
}

/* Encodes a block to job->target, which has room for job->size bytes. With a base, a quantizer or columns
 * several forms are tried, and the size of one is known only if it fits. With less room than a block may
 * take, the choice would depend on the room. So the block is then made in the staging memory, and copied if
 * it fits. */
static void bsn_encode_job(const bsn_call *call, bsn_job *job, unsigned worker)
{
    const bsn_context *c = &call->context;
    const size_t room = job->size, most = bsn_block_most(c, job->n);
    uint8_t *aside = call->workers <= 1 && call->room.staging_size && room < most ? call->room.staging : NULL;
    bsn_work *w = bsn_work_of(call, worker);
    memset(&job->error, 0, sizeof job->error);
    job->error.element = job->first;
    if (job->ids) {
        job->ids->cell = bsn_base_cell(call, worker, job->first, job->n, &job->error);
        if (!job->ids->cell) return;
    }
    if (job->sink.leaves) bsn_leaves_take(c->kernels, &w->pieces, job->sink.leaves, job->source, job->n, c->shape.width);
    job->size = bsn_encode_block(w, c, aside ? aside : job->target, aside ? most : room, job->source, job->n, job->first, job->ids);
    if (job->size > room) job->size = 0;
    if (aside && job->size) memcpy(job->target, aside, job->size);
    if (!job->size) job->error.status = BITSNAP_E_CAPACITY;
    else if (call->b->flags & BITSNAP_VERIFY) bsn_verify_job(w, c, job);
}

static void bsn_encode_task(void *argument, uint64_t index, unsigned worker)
{
    const bsn_call *call = (const bsn_call *)argument;
    const size_t first = (size_t)index * call->group;
    bsn_work *w = bsn_work_of(call, worker);
    size_t i;
    for (i = first; i < first + call->group; i++) {
        w->next = call->workers <= 1 || i + 1 < first + call->group;
        if (i < call->coded_count) bsn_place_block(call, &call->coded[i]);
        if (i < call->batch) bsn_encode_job(call, &call->jobs[i], worker);
    }
}

/* What a quantized block certifies is added to what is known of the frame. */
static void bsn_note_certificate(bsn_coder *s, const uint8_t *body)
{
    bsn_certificate all, some;
    if (!bsn_certificate_load(&some, body)) return;
    (void)bsn_certificate_load(&all, s->state.certificate);
    bsn_certificate_add(&all, &some);
    bsn_certificate_store(s->state.certificate, &all);
}

/* Adds n elements that are all equal to `element` to the content id. A whole leaf is hashed once. */
static void bsn_note_constant(const bsn_call *call, bsn_coder *s, const uint8_t *element, uint64_t n)
{
    const bitsnap_kernels *kernels = call->context.kernels;
    const unsigned width = s->shape.width;
    const size_t some = bsn_min(BSN_CHUNK, (size_t)1 << call->context.room_log2);
    bsn_work *w = bsn_work_of(call, 0);
    uint8_t *chunk = w->elements;
    uint64_t position = s->position, hash = 0, m;
    size_t i;
    for (i = 0; i < some; i++) bsn_copy_little_endian(chunk + i * width, element, 1, width);
    if (n >= BSN_LEAF) {
        bsn_pieces_begin(&w->pieces, (uint64_t)BSN_LEAF * width);
        for (i = 0; i < BSN_LEAF; i += some) bsn_leaf_feed(kernels, &w->pieces, chunk, some, width);
        hash = bsn_pieces_end(&w->pieces);
    }
    for (; n; position += m, n -= m) {
        const int whole = position % BSN_LEAF == 0 && n >= BSN_LEAF;
        m = whole ? BSN_LEAF : bsn_min(some - (size_t)(position % some), (size_t)(n < some ? n : some));
        if (whole) bsn_content_leaf(kernels, &s->state.root, hash);
        else bsn_content_add(kernels, &s->state.aside, &s->state.root, chunk, position, m, s->shape.count, width);
    }
}

/* The elements of a block that is done go into the content id: by the hashes of their leaves, themselves, or
 * one that all are equal to; null: they are not there. */
static void bsn_note_content(const bsn_call *call, bsn_coder *s, const bsn_job *job, const uint8_t *elements, const uint8_t *element)
{
    const bitsnap_kernels *kernels = call->context.kernels;
    if (s->shape.role) {
        bsn_content_cell(kernels, &s->state.aside, &job->ids->base, job->n);
        bsn_content_cell(kernels, &s->state.root, &job->ids->result, job->n);
    } else if (job->sink.leaves) {
        bsn_content_cell(kernels, &s->state.root, job->sink.leaves, job->n);
    } else if (elements) {
        bsn_content_add(kernels, &s->state.aside, &s->state.root, elements, s->position, job->n, s->shape.count, s->shape.width);
    } else if (element) {
        bsn_note_constant(call, s, element, job->n);
    }
}

/* A block is done: what the stream knows of it. */
static bitsnap_status bsn_push_note(bitsnap *b, bsn_coder *s, const uint8_t *block, uint32_t head)
{
    const size_t prefix = bsn_prefix(&s->shape);
    const unsigned entry = bsn_entry_of(s->shape.flags);
    if (s->index) {
        uint8_t *to = (uint8_t *)s->index + s->index_size;
        if (s->index_capacity - s->index_size < entry) {
            (void)bsn_need_at(b, BITSNAP_E_CAPACITY, entry * bsn_blocks(&s->shape), s->stored, s->position);
            b->error.argument = "index";
            return BITSNAP_E_CAPACITY;
        }
        memcpy(to, block, entry);
        bsn_store32(to, head);
    }
    s->index_size += entry;
    if (bsn_has_checks(&s->shape)) s->seal = bsn_load64(block + BSN_HEAD_SIZE);
    if ((head & 255) == BSN_FORM_QUANTIZED) bsn_note_certificate(s, block + prefix);
    s->stored += prefix + bsn_body_of(head, s->shape.width);
    return BITSNAP_OK;
}

/* Without s->index none is collected. On an error the stream has done a part of the elements. */
static bitsnap_status bsn_push(bitsnap *b, bsn_coder *s, void *destination, size_t capacity, size_t *size,
                               const void *elements, size_t n)
{
    const uint8_t *from = (const uint8_t *)elements;
    uint8_t *to = (uint8_t *)destination, *end = n ? to + capacity : to; /* which may be null */
    bsn_call call;
    bsn_job *jobs;
    size_t block, slot, slots, most, batch, i, left = n, half = 0;
    bitsnap_status status;
    block = (size_t)1 << s->shape.block_log2;
    if (n % block && n != s->shape.count - s->position) return bsn_wrong(b, "n");
    status = bsn_call_begin(&call, b, &s->shape, BSN_PUSHES, 0);
    if (status) return status;
    bsn_call_expect(&call, 0, n);
    /* the blocks are read again */
    if (call.workers > 1 || s->shape.role || (b->flags & BITSNAP_VERIFY)) call.context.stream = 0;
    block = (size_t)1 << call.context.room_log2; /* or all there are */
    slot = block * s->shape.width + bsn_prefix(&s->shape);
    slots = call.workers > 1 ? bsn_min(bsn_jobs(&call), call.room.staging_size / slot) / 2 : 1;
    jobs = call.jobs;
    while (left || call.coded_count) { /* with several workers, a batch is moved while the next one is coded
                                          in the other half of the memory */
        uint64_t first = s->position;
        uint8_t *staging = call.room.staging + half * slot;
        call.jobs = jobs + half;
        most = slots;
        if (slots > 1 && first) /* not many more than there is room for, if all are of one size */
            most = bsn_min(most, (size_t)((uint64_t)(end - to) / (s->stored / bsn_cells(first, s->shape.block_log2) + 1)) + call.workers);
        for (batch = 0; batch < most && left; batch++) {
            bsn_job *job = &call.jobs[batch];
            job->ids = call.ids ? call.ids + batch : NULL;
            job->sink.leaves = call.leaves ? call.leaves + batch : NULL;
            job->n = bsn_min(block, left);
            job->source = from;
            job->target = call.workers > 1 ? staging + batch * slot : to;
            job->size = call.workers > 1 ? slot : (size_t)(end - to);
            job->first = first;
            first += job->n;
            from += job->n * s->shape.width;
            left -= job->n;
        }
        call.batch = batch;
        bsn_run(&call, bsn_encode_task, batch > call.coded_count ? batch : call.coded_count);
        call.coded_count = 0;
        for (i = 0; i < batch; i++) {
            bsn_job *job = &call.jobs[i];
            if (!job->error.status && job->size > (size_t)(end - to)) job->error.status = BITSNAP_E_CAPACITY;
            if (job->error.status == BITSNAP_E_CAPACITY)
                job->error.needed = (uint64_t)n * s->shape.width + bsn_cells(n, s->shape.block_log2) * bsn_block_most(&call.context, 0);
            if (job->error.status) return bsn_pass(b, &job->error, s->stored);
            bsn_note_content(&call, s, job, s->shape.flags & BSN_FLAG_CONTENT ? job->source : NULL, NULL);
            status = bsn_push_note(b, s, job->target, bsn_load32(job->target));
            if (status) return status;
            job->source = job->target;
            job->target = to;
            to += job->size;
            s->position += job->n;
        }
        if (call.workers > 1) {
            call.coded = call.jobs;
            call.coded_count = batch;
            half = slots - half;
        }
        if (batch && bsn_cancelled(&call, s->position, s->shape.count))
            return bsn_fail(b, BITSNAP_E_CANCELLED, s->stored, s->position);
    }
    *size = (size_t)(to - (uint8_t *)destination);
    return BITSNAP_OK;
}

/* Writes the footer; the index comes from the stream, or from the blocks themselves where `blocks` is
 * given. */
BSN_FUNCTION bitsnap_status bsn_write_footer(bitsnap *b, bsn_coder *s, uint8_t *to, size_t capacity, size_t *size,
                                       const uint8_t *blocks)
{
    const bitsnap_kernels *kernels = bsn_kernels_of(b);
    bsn_frame f;
    uint64_t whole;
    uint8_t *p = to, *root;
    size_t i;
    bsn_frame_begin(&f, NULL, 0);
    f.shape = s->shape;
    bsn_index_shape(&f.index, s->index_size / bsn_entry_of(s->shape.flags), s->shape.flags);
    whole = f.index.size + bsn_fixed_size(s->shape.flags);
    if (capacity < whole) return bsn_need(b, BITSNAP_E_CAPACITY, whole);
    if (s->state.check_base && bsn_content_end(kernels, &s->state.aside, s->shape.base_dtype, s->shape.count) != s->shape.base_id)
        return bsn_fail(b, BITSNAP_E_BASE, 0, 0);
    if (blocks) {
        for (i = 0; i < s->index_size; i += f.index.entry) {
            memcpy(p + i, blocks, f.index.entry);
            blocks += bsn_prefix(&s->shape) + bsn_body_of(bsn_load32(blocks), s->shape.width);
        }
    } else if (s->index_size) {
        memcpy(p, s->index, s->index_size);
    }
    (void)bsn_index_make(kernels, &f, p, p, 0);
    root = p + (size_t)f.index.place[f.index.top];
    p += (size_t)f.index.size;
    if (s->shape.flags & BSN_FLAG_CONTENT) {
        const int known = s->state.has_result_id;
        bsn_store64(p, known ? s->state.result_id : bsn_content_end(kernels, &s->state.root, (unsigned)s->shape.dtype, s->shape.count));
        p += 8;
    }
    if (s->shape.flags & BSN_FLAG_LOSSY) {
        memcpy(p, s->state.certificate, BSN_CERTIFICATE_SIZE);
        p += BSN_CERTIFICATE_SIZE;
    }
    bsn_store64(p, f.index.blocks);
    bsn_store64(p + 8, s->stored + whole);
    s->seal = bsn_bound_hash(kernels, f.shape.header_check, root, (size_t)(p + 16 - root));
    bsn_store64(p + 16, s->seal);
    memcpy(p + 24, bsn_end_magic, 4);
    s->stored += whole;
    *size = (size_t)whole;
    return BITSNAP_OK;
}

/* ---- pull ---- */

static bitsnap_status bsn_decoder_begin(bitsnap *b, bsn_coder *s, const void *source, size_t source_size, size_t *used)
{
    bsn_shape h;
    bitsnap_status status;
    if (used) *used = 0;
    status = bsn_begin(b, !s ? "decoder" : !used ? "used" : !source && source_size ? "source" : NULL);
    if (status) return status;
    memset(s, 0, sizeof *s);
    if (!source_size) return bsn_truncated(b, 0, 0, BSN_HEADER_SIZE);
    status = bsn_read_header(b, &h, (const uint8_t *)source, source_size);
    if (status == BITSNAP_E_TRUNCATED) b->error.needed = source_size < BSN_HEADER_SIZE ? BSN_HEADER_SIZE : h.header_size;
    if (status) return status;
    bsn_stream_of(s, &h);
    *used = h.header_size;
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_decoder_begin(bitsnap *b, bitsnap_decoder *decoder, const void *source, size_t source_size,
                                                 size_t *used)
{
    bsn_coder s;
    bitsnap_status status;
    memset(&s, 0, sizeof s); /* where it fails nothing has begun */
    status = bsn_decoder_begin(b, decoder ? &s : NULL, source, source_size, used);
    if (decoder) memcpy(decoder, &s, sizeof s);
    return status;
}

/* Job i of a batch: decodes the block that `look` has seen. */
static bsn_job *bsn_job_of(const bsn_call *call, size_t i, const bsn_look *look)
{
    bsn_job *job = &call->jobs[i];
    memset(job, 0, sizeof *job);
    job->ids = call->ids ? call->ids + i : NULL;
    job->head = look->head;
    job->check = look->check;
    job->indexed = look->indexed;
    job->size = look->whole;
    job->n = job->sink.until = (size_t)look->elements;
    job->first = look->first;
    job->total = look->elements;
    job->offset = look->offset;
    return job;
}

/* The job gives elements first .. end - 1 of the frame, which the block has. */
static void bsn_job_part(bsn_job *job, const bsn_look *look, unsigned role, uint64_t first, uint64_t end, uint8_t *to)
{
    job->sink.from = (size_t)(first - job->first);
    job->sink.until = (size_t)(end - job->first);
    if (look->form == BSN_FORM_CONST && !role) job->n = job->sink.until;
    job->sink.to = to;
}

static void bsn_decode_job(const bsn_call *call, bsn_job *job, unsigned worker)
{
    const bsn_context *c = &call->context;
    const bsn_input *x = call->input;
    /* a block of a known form is smaller than `more`. The index has a check of its own, so what it says is
     * not damage */
    const int large = x && !x->data && job->size > call->room.more_size;
    job->error.status = BITSNAP_OK;
    if (x && !large) job->source = bsn_input_get(x, job->offset, job->size, x->data ? NULL : call->room.more + worker * call->room.more_size);
    if (x && (large || !job->source || bsn_once32(job->source) != job->head)) {
        (void)bsn_refuse(&job->error, large ? BITSNAP_R_NEW_FORM : job->source ? BITSNAP_R_INDEX_BLOCKS : BITSNAP_R_SOURCE, 0);
        job->error.element = job->first;
        return;
    }
    job->input_end = job->source + (x && x->data ? (size_t)(x->end - job->offset) : job->size);
    job->base = c->shape.role && !call->blind ? bsn_base_cell(call, worker, job->first, job->n, &job->error) : NULL;
    if (job->error.status) return;
    if (BSN_WITH_DELTA && call->applying) (void)bsn_apply_block(bsn_work_of(call, worker), c, &call->journal, worker, job);
    else (void)bsn_decode_block(bsn_work_of(call, worker), c, job);
}

static void bsn_decode_task(void *argument, uint64_t index, unsigned worker)
{
    const bsn_call *call = (const bsn_call *)argument;
    const size_t first = (size_t)index * call->group;
    size_t i;
    for (i = first; i < first + call->group && i < call->batch; i++) {
        bsn_work_of(call, worker)->next = call->workers <= 1 || i + 1 < first + call->group;
        bsn_decode_job(call, &call->jobs[i], worker);
    }
}

/* Decodes a batch: fails as its first block does that is bad, whichever was found first. */
static bitsnap_status bsn_decode_batch(bsn_call *call, size_t batch)
{
    size_t i;
    call->batch = batch;
    bsn_run(call, bsn_decode_task, batch);
    for (i = 0; i < batch; i++) {
        const bsn_job *job = &call->jobs[i];
        if (job->error.status) return bsn_pass(call->b, &job->error, job->offset);
    }
    return BITSNAP_OK;
}

/* Looks at a block's head at p, `size` bytes being there. Elements first .. count - 1 are still to come. */
static bitsnap_status bsn_look_at(const bsn_call *call, const bsn_shape *s, const uint8_t *p, size_t size,
                                  uint64_t first, uint64_t offset, bsn_look *look)
{
    unsigned rule;
    memset(look, 0, sizeof *look);
    look->first = first;
    look->offset = offset;
    look->need = BSN_HEAD_SIZE;
    if (size < BSN_HEAD_SIZE) return BITSNAP_OK;
    rule = bsn_read_head(s, look, bsn_once32(p), s->count - first);
    if (rule) return bsn_reject(call->b, rule, offset, first);
    if (size < look->need) look->whole = 0;
    return BITSNAP_OK;
}

#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_encoder_push(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                                size_t *size, const void *elements, size_t n)
{
    bsn_coder s;
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !bsn_stream_load(&s, encoder) ? "encoder" : !size ? "size" : n > s.shape.count - s.position ? "n"
                          : n && !elements ? "elements" : n && !destination ? "destination" : n && !s.index ? "index" : NULL);
    if (!status) status = bsn_push(b, &s, destination, capacity, size, elements, n);
    if (!status) memcpy(encoder, &s, sizeof s);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_encoder_push_block(bitsnap *b, bitsnap_encoder *encoder, const void *block, size_t size)
{
    const uint8_t *p = (const uint8_t *)block;
    bitsnap_status status;
    bsn_coder s;
    bsn_call call;
    bsn_job *job;
    bsn_look look;
    int named, buffered;
    status = bsn_begin(b, !bsn_stream_load(&s, encoder) || s.position == s.shape.count ? "encoder" : !block ? "block" : !s.index ? "index" : NULL);
    if (!status) status = bsn_wrong(b, b->flags & BITSNAP_IGNORE_CHECKS ? "flags" : NULL);
    if (status) return status;
    named = !s.shape.role && (s.shape.flags & BSN_FLAG_CONTENT);
    buffered = named && s.shape.block_log2 < BSN_LOG2_LEAF;
    status = bsn_call_begin(&call, b, &s.shape, BSN_DECODES | BSN_NO_TABLE, buffered ? (size_t)s.shape.width << s.shape.block_log2 : 0);
    if (!status) status = bsn_look_at(&call, &s.shape, p, size, s.position, 0, &look);
    if (status) return status;
    if (!look.whole) return bsn_reject(b, BITSNAP_R_TRUNCATED, size, s.position);
    if (look.whole != size) return bsn_reject(b, BITSNAP_R_TRAILING, look.whole, s.position);
    bsn_keep_table(&call, &s);
    job = bsn_job_of(&call, 0, &look);
    job->source = p;
    if (call.leaves && look.form != BSN_FORM_CONST) job->sink.leaves = call.leaves;
    if (buffered && look.form != BSN_FORM_CONST) job->sink.to = call.room.more;
    if (bsn_decode_batch(&call, 1)) return b->error.status;
    bsn_note_content(&call, &s, job, job->sink.to, named ? p + look.prefix : NULL);
    s.position += job->n;
    status = bsn_push_note(b, &s, p, look.head);
    if (!status) memcpy(encoder, &s, sizeof s);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_encoder_end(bitsnap *b, bitsnap_encoder *encoder, void *destination, size_t capacity,
                                               size_t *size)
{
    bsn_coder s; /* hashes are finished in a copy, so that this may be called again */
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !bsn_stream_load(&s, encoder) || s.position != s.shape.count ? "encoder" : !size ? "size" : NULL);
    if (status || !bsn_has_footer(&s.shape)) return status;
    status = bsn_wrong(b, !destination ? "destination" : s.index_size && !s.index ? "index" : NULL);
    if (!status) status = bsn_write_footer(b, &s, (uint8_t *)destination, capacity, size, NULL);
    if (!status) encoder->stored = s.stored, encoder->seal = s.seal;
    return status;
}
#endif

/* What a pull works on: bytes of the frame from where the stream stood, and where elements go or what they
 * are compared with. */
typedef struct bsn_pull {
    uint8_t *to;            /* of element `first`; null: they are not stored */
    const uint8_t *compare; /* null: nothing */
    const uint8_t *source, *end;
    uint64_t first, stored; /* elements and bytes of the frame before these */
    uint64_t capacity;      /* elements at most */
} bsn_pull;

/* Makes jobs of the next blocks; returns how many. Sets s->need if there are no more, and the error if the
 * next one is bad. Any number of elements of a CONST run are whole enough: s->state.run of the first block's
 * are done. */
static size_t bsn_pull_batch(const bsn_call *call, bsn_coder *s, const bsn_pull *x)
{
    uint64_t first = s->position - s->state.run, skip = s->state.run, offset = s->stored;
    size_t batch;
    bsn_look look;
    for (batch = 0; batch < bsn_jobs(call) && first < s->shape.count && !s->need; batch++) {
        const uint8_t *p = x->source + (size_t)(offset - x->stored);
        const uint64_t done = first + skip - x->first, room = x->capacity - done;
        uint64_t wanted;
        bsn_job *job;
        if (bsn_look_at(call, &s->shape, p, (size_t)(x->end - p), first, offset, &look)) break;
        if (look.whole && look.elements <= skip) { /* not the run that was begun */
            (void)bsn_reject(call->b, BITSNAP_R_RUN, offset, first);
            break;
        }
        wanted = look.elements - skip;
        if (!look.whole || room < wanted) s->need = look.need;
        /* with a base, the hash of a CONST block is that of all its elements */
        if (!look.whole || room == 0 || (room < wanted && (s->shape.role || look.form != BSN_FORM_CONST))) break;
        if (room < wanted) wanted = room;
        job = bsn_job_of(call, batch, &look);
        if (call->leaves && (x->to || x->compare || call->named) && look.form != BSN_FORM_CONST)
            job->sink.leaves = call->leaves + batch; /* (a part of a run need not have whole ones) */
        job->source = p;
        job->size = (size_t)(x->end - p);
        job->n = job->sink.until = (size_t)wanted;
        job->sink.to = x->to ? x->to + done * s->shape.width : NULL;
        job->sink.compare = x->compare ? x->compare + done * s->shape.width : NULL;
        offset += look.whole;
        first += look.elements;
        skip = 0;
    }
    return batch;
}

/* A block has been decoded, or a part of a run. */
static void bsn_pull_note(const bsn_call *call, bsn_coder *s, const bsn_job *job)
{
    const size_t prefix = bsn_prefix(&s->shape);
    const uint8_t *elements = !(s->shape.flags & BSN_FLAG_CONTENT) ? NULL : job->sink.to ? job->sink.to : job->sink.compare;
    if (!call->blind && !bsn_ignores(&call->context)) /* else most elements are not known, or not needed */
        bsn_note_content(call, s, job, elements, call->named && (job->head & 255) == BSN_FORM_CONST ? job->source + prefix : NULL);
    s->position += job->n;
    s->state.run = s->position < job->first + job->total ? s->position - job->first : 0;
    if (s->state.run) return;
    s->state.heads_hash = bsn_chain(s->state.heads_hash, job->head);
    if (bsn_has_checks(&s->shape)) {
        s->seal = bsn_load64(job->source + BSN_HEAD_SIZE);
        s->state.checks_hash = bsn_chain(s->state.checks_hash, s->seal & 0xFFFFFFFF);
    }
    s->index_size += bsn_entry_of(s->shape.flags);
    s->stored += prefix + bsn_body_of(job->head, s->shape.width);
}

/* Decodes whole blocks to `to`, or compares with `compare`, or neither; `capacity` elements at most. */
static bitsnap_status bsn_pull_blocks(bsn_call *call, bsn_coder *s, uint8_t *to, const uint8_t *compare, uint64_t capacity,
                                      const uint8_t *source, size_t size)
{
    bsn_pull x;
    x.to = to;
    x.compare = compare;
    x.source = source;
    x.end = size ? source + size : source;
    x.first = s->position;
    x.stored = s->stored;
    x.capacity = capacity;
    s->need = 0;
    while (!s->need && s->position < s->shape.count) {
        const size_t batch = bsn_pull_batch(call, s, &x);
        size_t i;
        if (batch && bsn_decode_batch(call, batch)) return call->b->error.status;
        for (i = 0; i < batch; i++) bsn_pull_note(call, s, &call->jobs[i]);
        if (call->b->error.status) return call->b->error.status; /* of the block after the batch */
        if (batch && bsn_cancelled(call, s->position, s->shape.count))
            return bsn_fail(call->b, BITSNAP_E_CANCELLED, s->stored, s->position);
    }
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_decoder_pull(bitsnap *b, bitsnap_decoder *decoder, void *elements, size_t capacity, size_t *n,
                                                const void *source, size_t source_size, size_t *used)
{
    bsn_coder s;
    bsn_call call;
    const bitsnap_base *base = b ? &b->base : NULL;
    const size_t asked = capacity;
    bitsnap_status status;
    uint64_t position, stored, block;
    if (n) *n = 0;
    if (used) *used = 0;
    status = bsn_begin(b, !bsn_stream_load(&s, decoder) ? "decoder" : !n ? "n" : !used ? "used"
                          : !source && source_size ? "source" : NULL);
    if (!status) status = bsn_call_begin(&call, b, &s.shape, BSN_DECODES | BSN_NO_TABLE, 0);
    if (status) return status;
    bsn_keep_table(&call, &s);
    bsn_call_expect(&call, s.shape.flags, capacity);
    if (s.shape.role && base->held && !base->source.read && s.position >= base->first && s.position - base->first < base->held &&
        capacity > base->held - (s.position - base->first))
        capacity = (size_t)(base->held - (s.position - base->first)); /* as much as the window holds */
    call.named = call.leaves != NULL;
    position = s.position;
    stored = s.stored;
    status = bsn_pull_blocks(&call, &s, (uint8_t *)elements, NULL, capacity, (const uint8_t *)source, source_size);
    if (status) return status;
    if (s.position == position && position < s.shape.count) {
        if (source_size < s.need) return bsn_truncated(b, s.stored + source_size, s.position, s.need);
        block = s.shape.count - s.position < UINT64_C(1) << s.shape.block_log2 ? s.shape.count - s.position : UINT64_C(1) << s.shape.block_log2;
        if (asked >= block) return bsn_reject(b, BITSNAP_R_BASE_WINDOW, s.stored, s.position);
        return bsn_need_at(b, BITSNAP_E_CAPACITY, block, s.stored, s.position);
    }
    *n = (size_t)(s.position - position);
    *used = (size_t)(s.stored - stored);
    memcpy(decoder, &s, sizeof s);
    return BITSNAP_OK;
}

/* The footer at `source`, and whether it agrees with the blocks that were pulled. */
static bitsnap_status bsn_decoder_end(bitsnap *b, bsn_coder *s, const void *source, size_t source_size, size_t *used)
{
    const uint8_t *p = (const uint8_t *)source;
    bsn_frame f;
    bsn_pieces root;
    uint64_t whole, heads = 0, checks = 0;
    size_t i;
    unsigned rule;
    bitsnap_status status;
    if (used) *used = 0;
    status = bsn_begin(b, !s || !bsn_stream_fits(s) || s->position != s->shape.count ? "decoder" : !used ? "used"
                          : !source && source_size ? "source" : NULL);
    if (status) return status;
    if (!bsn_has_footer(&s->shape)) return BITSNAP_OK;
    bsn_index_shape(&f.index, s->index_size / bsn_entry_of(s->shape.flags), s->shape.flags);
    whole = bsn_footer_size(s->shape.flags, f.index.size, p, source_size);
    if (source_size < whole) return bsn_truncated(b, s->stored + source_size, s->shape.count, whole);
    if (s->shape.flags & BSN_FLAG_FOOTER && bsn_load32(p + whole - BSN_TAIL_SIZE - 4) != whole - f.index.size - bsn_fixed_size(s->shape.flags))
        return bsn_reject(b, BITSNAP_R_EXTENSIONS, s->stored + whole - BSN_TAIL_SIZE - 4, s->shape.count);
    if (!bsn_equal(p + whole - 4, bsn_end_magic, 4))
        return bsn_reject(b, BITSNAP_R_FOOTER_MAGIC, s->stored + whole - 4, s->shape.count);
    bsn_frame_begin(&f, p, s->stored + whole);
    f.shape = s->shape;
    f.input.offset = s->stored;
    status = bsn_read_footer(b, &f);
    if (status) return status;
    if (f.start != s->stored) return bsn_reject(b, BITSNAP_R_INDEX_SIZE, s->stored, s->shape.count);
    rule = bsn_index_make(bsn_kernels_of(b), &f, p, NULL, (b->flags & BITSNAP_IGNORE_CHECKS) != 0);
    if (rule) return bsn_reject(b, rule, s->stored, s->shape.count);
    for (i = 0; i < s->index_size; i += f.index.entry) {
        heads = bsn_chain(heads, bsn_load32(p + i));
        if (bsn_has_checks(&s->shape)) checks = bsn_chain(checks, bsn_load32(p + i + BSN_HEAD_SIZE));
    }
    if (heads != s->state.heads_hash) return bsn_reject(b, BITSNAP_R_INDEX_BLOCKS, s->stored, s->shape.count);
    if (checks != s->state.checks_hash && !(b->flags & BITSNAP_IGNORE_CHECKS))
        return bsn_reject(b, BITSNAP_R_INDEX_CHECK, s->stored, s->shape.count);
    root = s->state.root;
    if ((s->shape.flags & BSN_FLAG_CONTENT) && !(b->flags & BITSNAP_IGNORE_CHECKS) && root.got + 16 == root.hash.total &&
        bsn_content_end(bsn_kernels_of(b), &root, (unsigned)s->shape.dtype, s->shape.count) != f.content_id)
        return bsn_reject(b, BITSNAP_R_CONTENT_ID, s->stored, s->shape.count);
    s->stored += whole;
    s->seal = f.seal;
    s->state.result_id = f.content_id;
    *used = (size_t)whole;
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_decoder_end(bitsnap *b, bitsnap_decoder *decoder, const void *source, size_t source_size,
                                               size_t *used)
{
    bsn_coder s;
    bitsnap_status status;
    if (decoder) memcpy(&s, decoder, sizeof s);
    status = bsn_decoder_end(b, decoder ? &s : NULL, source, source_size, used);
    if (decoder && !status) memcpy(decoder, &s, sizeof s);
    return status;
}

/* ================================================================================= ENTRY */

#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_encode(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                          const void *elements, uint64_t count, bitsnap_dtype dtype)
{
    uint8_t *to = (uint8_t *)destination;
    bsn_coder s;
    bitsnap_status status;
    size_t header = 0, blocks = 0, footer = 0, room;
    status = bsn_encoder_begin(b, &s, destination, capacity, size, count, dtype);
    if (!status) {
        header = *size;
        room = capacity - header;
        if (bsn_has_footer(&s.shape)) /* for which there has to be room, too */
            room -= bsn_min(room, bsn_fixed_size(s.shape.flags) + (s.shape.role ? bsn_entry_of(s.shape.flags) * (size_t)bsn_blocks(&s.shape) : 0));
        status = bsn_wrong(b, count > SIZE_MAX / s.shape.width ? "count" : count && !elements ? "elements" : NULL);
        if (!status) status = bsn_push(b, &s, to + header, room, &blocks, elements, (size_t)count);
        if (!status && bsn_has_footer(&s.shape))
            status = bsn_write_footer(b, &s, to + header + blocks, capacity - header - blocks, &footer, to + header);
    }
    if (status == BITSNAP_E_CAPACITY) b->error.needed = bitsnap_bound(b, count, dtype);
    if (size) *size = status ? 0 : header + blocks + footer;
    return status;
}
#endif

static size_t bsn_journal_cell(unsigned block_log2, uint64_t count, unsigned width)
{
    return (size_t)(count >> block_log2 ? UINT64_C(1) << block_log2 : count) * width;
}

/* What decoding a frame is for. */
enum { BSN_DECODE, BSN_TEST, BSN_BLIND, BSN_APPLY_DRY, BSN_APPLY };

/* A whole frame, whose header has been read: decoded, compared or only looked through. */
static bitsnap_status bsn_decode_begun(bitsnap *b, bsn_coder *s, uint8_t *elements, const uint8_t *compare, unsigned aim,
                                       const uint8_t *source, size_t source_size)
{
    bsn_call call;
    bitsnap_status status;
    size_t at = s->shape.header_size, used;
    if (aim >= BSN_BLIND && !s->shape.role) return bsn_wrong(b, "source"); /* no delta */
    if (aim >= BSN_APPLY_DRY && s->shape.role != BSN_ROLE_BASE) return bsn_fail(b, BITSNAP_E_UNSUPPORTED, 0, 0);
    status = bsn_call_begin(&call, b, &s->shape, BSN_DECODES | (aim == BSN_BLIND ? BSN_NO_BASE : 0), 0);
    if (status) return status;
    call.applying = aim >= BSN_APPLY_DRY;
    call.blind = aim == BSN_BLIND;
    if (call.applying) call.context.flags &= ~(unsigned)BITSNAP_IGNORE_CHECKS;
    call.storing = aim == BSN_APPLY;
    if (call.applying && b->journal && s->shape.count) {
        call.journal.cells = (uint8_t *)b->journal;
        call.journal.size = bsn_journal_cell(s->shape.block_log2, s->shape.count, s->shape.width);
        call.journal.count = b->journal_size / call.journal.size;
        if (call.journal.count < call.workers) return bsn_wrong(b, "journal_size");
    }
    bsn_call_expect(&call, s->shape.flags, s->shape.count);
    if (call.applying) call.context.stream = 0; /* the cell has been hashed: its lines are in the cache */
    status = bsn_pull_blocks(&call, s, aim == BSN_APPLY_DRY ? NULL : elements, compare, s->shape.count, source + at, source_size - at);
    if (status) return status;
    at = (size_t)s->stored;
    if (s->position < s->shape.count) return bsn_reject(b, BITSNAP_R_TRUNCATED, source_size, s->position);
    status = bsn_decoder_end(b, s, source + at, source_size - at, &used);
    if (status) return status;
    at += used;
    if (at < source_size && !(b->flags & BITSNAP_ALLOW_TRAILING)) return bsn_reject(b, BITSNAP_R_TRAILING, at, s->shape.count);
    b->used = at;
    return BITSNAP_OK;
}

static bitsnap_status bsn_decode_frame(bitsnap *b, uint8_t *elements, const uint8_t *compare, unsigned aim, uint64_t count,
                                       bitsnap_dtype dtype, const void *source, size_t source_size)
{
    bsn_coder s;
    size_t at;
    bitsnap_status status = bsn_decoder_begin(b, &s, source, source_size, &at);
    if (!status && aim != BSN_TEST) {
        if (s.shape.count != count || s.shape.dtype != dtype) return bsn_fail(b, BITSNAP_E_MISMATCH, 0, 0);
        status = bsn_wrong(b, count > SIZE_MAX / s.shape.width ? "count" : count && !elements && !compare ? "elements" : NULL);
    }
    return status ? status : bsn_decode_begun(b, &s, elements, compare, aim, (const uint8_t *)source, source_size);
}

BITSNAP_API bitsnap_status bitsnap_decode(bitsnap *b, void *elements, uint64_t count, bitsnap_dtype dtype,
                                          const void *source, size_t source_size)
{
    return bsn_decode_frame(b, (uint8_t *)elements, NULL, BSN_DECODE, count, dtype, source, source_size);
}

BITSNAP_API bitsnap_status bitsnap_test(bitsnap *b, const void *source, size_t source_size)
{
    /* any count and dtype */
    return bsn_decode_frame(b, NULL, NULL, BSN_TEST, 0, BITSNAP_I8, source, source_size);
}

/* ---- blocks ---- */

/* The most bytes of a block. */
static size_t bsn_block_size(unsigned dtype, unsigned block_log2)
{
    return (((size_t)bsn_dtypes[dtype].width << block_log2) + 2 + BSN_PREFIX_MOST + 63) & ~(size_t)63;
}

/* The blocks of a range, found by the index: touches only what it needs of that, and of the blocks, and of a
 * base only the cells. */
static bitsnap_status bsn_range(bitsnap *b, const bsn_frame *f, uint8_t *to, uint64_t first, uint64_t count)
{
    const bsn_shape *h = &f->shape;
    const uint64_t end = first + count;
    bsn_call call;
    bsn_cursor at;
    bsn_look look;
    uint64_t done = first; /* elements before this one are in the batch, or have been decoded */
    size_t batch = 0;
    bitsnap_status status = bsn_wrong(b, first > h->count ? "first" : count > h->count - first || count > SIZE_MAX / h->width ? "count"
                                         : count && !to ? "elements" : NULL);
    if (status) return status;
    status = bsn_call_begin(&call, b, h, BSN_DECODES, f->input.data ? 0 : bsn_block_size(h->dtype, h->block_log2));
    if (status || !count) return status;
    bsn_call_expect(&call, h->flags, count);
    call.input = &f->input;
    status = bsn_cursor_seek(b, &at, f, first >> h->block_log2);
    while (!status && done < end) {
        status = bsn_cursor_next(b, &at, f, &look);
        if (!status && look.first + look.elements <= first) continue; /* before the range */
        if (!status) {
            const uint64_t begin = done;
            done = look.first + look.elements < end ? look.first + look.elements : end;
            bsn_job_part(bsn_job_of(&call, batch++, &look), &look, h->role, begin, done, to + (begin - first) * h->width);
        }
        /* if the index is wrong about a block, one before it may be bad, too */
        if (batch && (status || done == end || batch == bsn_jobs(&call))) {
            if (bsn_decode_batch(&call, batch)) return b->error.status;
            batch = 0;
        }
    }
    return status;
}

BITSNAP_API bitsnap_status bitsnap_decode_range(bitsnap *b, void *elements, uint64_t first, uint64_t count,
                                                bitsnap_dtype dtype, const void *source, size_t source_size)
{
    bsn_frame f;
    bitsnap_status status = bsn_begin(b, !source && source_size ? "source" : NULL);
    if (status) return status;
    bsn_frame_begin(&f, source, source_size);
    status = bsn_open(b, &f);
    if (status) return status;
    if (f.shape.dtype != dtype) return bsn_fail(b, BITSNAP_E_MISMATCH, 0, 0);
    status = bsn_range(b, &f, (uint8_t *)elements, first, count);
    if (!status) b->used = (size_t)(f.end < f.input.end ? f.input.end : bsn_walked_size(&f.shape, f.input.data, (size_t)f.input.end));
    return status;
}

/* What is in a bitsnap_index. */
typedef struct bsn_access {
    uint64_t mark; /* it was opened */
    bsn_frame frame;
    bsn_nodes nodes;
} bsn_access;

#define BSN_ACCESS_MARK UINT64_C(0x7865646E69707362)

BSN_ASSERT(access, sizeof(bsn_access) <= BITSNAP_INDEX_SIZE);

/* Null, and b says why, unless it is one that was opened. */
static bsn_access *bsn_access_of(bitsnap *b, bitsnap_index *index)
{
    bsn_access *x = (bsn_access *)(void *)index;
    if (bsn_begin(b, !x || x->mark != BSN_ACCESS_MARK ? "index" : NULL)) return NULL;
    x->frame.nodes = &x->nodes; /* the caller may have moved it */
    return x;
}

BITSNAP_API bitsnap_status bitsnap_index_open(bitsnap *b, bitsnap_index *index, bitsnap_info *info, const bitsnap_source *source)
{
    bsn_access *x = (bsn_access *)(void *)index;
    size_t more;
    bitsnap_status status;
    if (info) memset(info, 0, sizeof *info);
    status = bsn_begin(b, !index ? "index" : !source || (!source->data && !source->read) ||
                                  (source->data && source->size > SIZE_MAX) ? "source" : NULL);
    if (status) return status;
    x->mark = 0;
    bsn_frame_begin(&x->frame, source->data, source->size);
    x->frame.input.read = source->read;
    x->frame.input.context = source->context;
    x->frame.nodes = &x->nodes;
    status = bsn_open(b, &x->frame);
    if (status) return status;
    x->mark = BSN_ACCESS_MARK;
    if (!info) return BITSNAP_OK;
    bsn_info_of(info, &x->frame.shape);
    bsn_info_end(info, &x->frame);
    more = bsn_base_size(b, info->block_log2, (unsigned)info->has_base, (unsigned)info->base_dtype) +
           (source->data ? 0 : bsn_block_size((unsigned)info->dtype, info->block_log2));
    info->workspace_size += more;
    info->worker_size += more;
    return BITSNAP_OK;
}

/* Tells the extent of the block that `look` has seen. */
static void bsn_tell_extent(bitsnap_extent *extent, const bsn_look *look)
{
    extent->offset = look->offset;
    extent->size = look->whole;
    extent->first = look->first;
    extent->count = look->elements;
    extent->form = look->form;
    extent->check = look->check;
}

BITSNAP_API bitsnap_status bitsnap_index_find(bitsnap *b, bitsnap_index *index, uint64_t element, bitsnap_extent *extent)
{
    bsn_access *x = bsn_access_of(b, index);
    bsn_cursor at;
    bsn_look look;
    bitsnap_status status;
    if (!x) return BITSNAP_E_ARGUMENT;
    status = bsn_wrong(b, !extent ? "extent" : element >= x->frame.shape.count ? "element" : NULL);
    if (status) return status;
    memset(extent, 0, sizeof *extent);
    status = bsn_cursor_seek(b, &at, &x->frame, element >> x->frame.shape.block_log2);
    do {
        if (!status) status = bsn_cursor_next(b, &at, &x->frame, &look);
    } while (!status && element - look.first >= look.elements);
    if (!status) bsn_tell_extent(extent, &look);
    return status;
}

BITSNAP_API bitsnap_status bitsnap_index_decode(bitsnap *b, bitsnap_index *index, void *elements, uint64_t first, uint64_t count)
{
    bsn_access *x = bsn_access_of(b, index);
    return x ? bsn_range(b, &x->frame, (uint8_t *)elements, first, count) : BITSNAP_E_ARGUMENT;
}

/* Makes the shape of a frame from an info. Returns 0 if no frame has such an info. */
static int bsn_shape_of_info(bsn_shape *s, const bitsnap_info *info)
{
    memset(s, 0, sizeof *s);
    if (!info || !bsn_is_dtype((unsigned)info->dtype)) return 0;
    s->dtype = info->dtype;
    s->width = bsn_dtypes[info->dtype].width;
    s->block_log2 = info->block_log2;
    s->count = info->count;
    s->flags = info->checks ? BSN_FLAG_CHECKS : 0;
    if (info->has_base) s->role = bsn_role_of((unsigned)info->dtype, (unsigned)info->base_dtype);
    if (info->has_base && !s->role) return 0;
    s->base_dtype = (unsigned)info->base_dtype;
    s->base_id = info->base_id;
    s->header_check = info->header_check;
    s->bins = info->bins;
    s->clusters = info->clusters;
    s->columns = info->columns;
    return bsn_shape_fits(s);
}

BITSNAP_API bitsnap_status bitsnap_block_decode(bitsnap *b, void *elements, uint64_t first, uint64_t count, const bitsnap_info *info,
                                                const bitsnap_extent *extent, const void *block)
{
    bsn_shape s;
    bsn_call call;
    bsn_job *job;
    bsn_look look;
    bitsnap_status status;
    status = bsn_begin(b, !block ? "block" : !extent || extent->size > SIZE_MAX ? "extent" : !bsn_shape_of_info(&s, info) ? "info"
                          : extent->first >= s.count || (extent->first & ((UINT64_C(1) << s.block_log2) - 1)) ? "extent"
                          : first < extent->first || first - extent->first > extent->count ? "first"
                          : count > extent->count - (first - extent->first) || count > SIZE_MAX / s.width ? "count"
                          : count && !elements ? "elements" : NULL);
    if (!status) status = bsn_call_begin(&call, b, &s, BSN_DECODES, 0);
    if (!status) status = bsn_look_at(&call, &s, (const uint8_t *)block, (size_t)extent->size, extent->first, extent->offset, &look);
    if (status) return status;
    if (!look.whole || look.whole != extent->size || look.elements != extent->count || look.form != extent->form)
        return bsn_reject(b, BITSNAP_R_INDEX_BLOCKS, extent->offset, extent->first);
    look.indexed = bsn_has_checks(&s);
    look.check = extent->check;
    job = bsn_job_of(&call, 0, &look);
    job->source = (const uint8_t *)block;
    bsn_job_part(job, &look, s.role, first, first + count, (uint8_t *)elements);
    return bsn_decode_batch(&call, 1);
}

#ifndef BITSNAP_NO_ENCODE
/* Names the first option of b that bitsnap_encoder_begin would not have written this header with, or returns
 * null. `s` is the frame of `info`. The default block size depends on the level, so it is not compared. Not
 * inlined: the plan would stay on the stack of encoding. */
BSN_FUNCTION const char *bsn_other_option(const bitsnap *b, const bitsnap_info *info, const bsn_shape *s)
{
    bsn_shape plan;
    const char *odd = bsn_plan(&plan, b, s->count, s->dtype);
    if (odd) return odd;
    if (b->block_log2 && b->block_log2 != s->block_log2) return "block_log2";
    if (plan.bins != s->bins || plan.clusters != s->clusters) return "quantizer";
    if (plan.columns != s->columns) return b->columns == s->columns ? "level" : "columns";
    if (!s->role && plan.role) return "base"; /* the other way round it is missing, which is another error */
    if (!s->role && (!info->checks != !(plan.flags & BSN_FLAG_CHECKS) || !info->has_content_id != !(plan.flags & BSN_FLAG_CONTENT)))
        return "flags";
    return NULL;
}

BITSNAP_API bitsnap_status bitsnap_block_encode(bitsnap *b, void *block, size_t capacity, size_t *size, const bitsnap_info *info,
                                                const void *elements, uint64_t first, size_t count)
{
    uint64_t cell;
    bsn_shape s;
    bsn_call call;
    bsn_job *job;
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !block ? "block" : !size ? "size" : !bsn_shape_of_info(&s, info) ? "info"
                          : first >= s.count || (first & ((UINT64_C(1) << s.block_log2) - 1)) ? "first" : !elements ? "elements"
                                                                                                        : NULL);
    if (status) return status;
    cell = UINT64_C(1) << s.block_log2;
    if (count != (s.count - first < cell ? s.count - first : cell)) return bsn_wrong(b, "count");
    status = bsn_wrong(b, bsn_other_option(b, info, &s));
    if (status) return status;
    /* of one worker the bytes do not depend on the room */
    status = bsn_call_begin(&call, b, &s, BSN_PUSHES | BSN_ONE_WORKER, 0);
    if (status) return status;
    job = call.jobs;
    memset(job, 0, sizeof *job);
    job->ids = call.ids;
    job->source = (const uint8_t *)elements;
    job->target = (uint8_t *)block;
    job->size = capacity;
    job->n = count;
    job->first = first;
    bsn_encode_job(&call, job, 0);
    if (job->error.status == BITSNAP_E_CAPACITY) job->error.needed = bsn_block_most(&call.context, count);
    if (job->error.status) return bsn_pass(b, &job->error, 0);
    *size = job->size;
    return BITSNAP_OK;
}
#endif

#ifndef BITSNAP_NO_DELTA
BITSNAP_API size_t bitsnap_journal_size(const bitsnap_info *info, unsigned workers)
{
    const unsigned width = info ? bitsnap_width(info->dtype) : 0;
    if (!info || info->block_log2 > BSN_LOG2_MAX) return 0;
    return (workers ? workers : 1) * bsn_journal_cell(info->block_log2, info->count, width);
}

BITSNAP_API bitsnap_status bitsnap_apply(bitsnap *b, void *elements, uint64_t count, bitsnap_dtype dtype,
                                         const void *source, size_t source_size)
{
    unsigned pass;
    bitsnap_base base, live;
    bitsnap_status status = bsn_begin(b, bsn_is_dtype((unsigned)dtype) ? NULL : "dtype");
    if (status) return status;
    base = b->base;
    memset(&live, 0, sizeof live);
    live.data = elements;
    live.count = count;
    live.dtype = dtype;
    b->base = live;
    for (pass = BSN_APPLY_DRY; pass <= BSN_APPLY && !status; pass++)
        status = bsn_decode_frame(b, (uint8_t *)elements, NULL, pass, count, dtype, source, source_size);
    b->base = base;
    return status;
}
#endif

/* ---- extras ---- */

#ifndef BITSNAP_NO_EXTRAS
BITSNAP_API bitsnap_status bitsnap_verify(bitsnap *b, const void *elements, uint64_t count, bitsnap_dtype dtype,
                                          const void *source, size_t source_size)
{
    return bsn_decode_frame(b, NULL, (const uint8_t *)elements, BSN_DECODE, count, dtype, source, source_size);
}

#if !defined(BITSNAP_NO_ENCODE) && !defined(BITSNAP_NO_DELTA)
/* ---- algebra of deltas ---- */

/* A delta, walked cell by cell. */
typedef struct bsn_walk {
    bsn_coder s;
    bsn_context context, differences; /* differences: of a frame with a base of its own dtype, whose hashes
                                         are not looked at */
    const uint8_t *frame, *at, *end;  /* at: the current block */
    bsn_look look;
    uint64_t content_id;
} bsn_walk;

/* Checks a delta with header h as far as that goes without its base, and prepares to walk its cells. x is in
 * memory that larger blocks would have as scratch. */
static bitsnap_status bsn_walk_begin(bitsnap *b, bsn_walk *x, const bsn_shape *h, const uint8_t *frame, size_t size)
{
    bitsnap_status status;
    bsn_stream_of(&x->s, h);
    status = bsn_decode_begun(b, &x->s, NULL, NULL, BSN_BLIND, frame, size);
    x->content_id = x->s.state.result_id;
    bsn_stream_of(&x->s, h);
    if (status) return status;
    bsn_context_begin(&x->context, b, h);
    x->differences = x->context;
    x->differences.flags = BITSNAP_IGNORE_CHECKS;
    x->differences.shape.role = BSN_ROLE_BASE;
    x->differences.shape.base_dtype = (unsigned)h->dtype;
    x->frame = frame;
    x->at = frame + h->header_size;
    x->end = frame + size;
    x->look.whole = 0;
    return BITSNAP_OK;
}

/* The cell at `position`: the first one, or the next. */
static bitsnap_status bsn_walk_to(bsn_call *call, bsn_walk *x, uint64_t position)
{
    bitsnap_status status;
    x->at += x->look.whole;
    status = bsn_look_at(call, &x->s.shape, x->at, (size_t)(x->end - x->at), position, (uint64_t)(x->at - x->frame), &x->look);
    if (!status && !x->look.whole) status = bsn_reject(call->b, BITSNAP_R_TRUNCATED, (uint64_t)(x->at - x->frame), position);
    return status;
}

BSN_INLINE const uint8_t *bsn_walk_body(const bsn_walk *x) { return x->at + x->look.prefix; }

/* Is it a difference that can be told without the base? */
BSN_INLINE int bsn_walk_single(const bsn_walk *x)
{
    return x->look.form == BSN_FORM_SPARSE || (x->look.form == BSN_FORM_CLASSED && *bsn_walk_body(x) == 1);
}

/* The hashes of the cell's base and elements. */
static void bsn_walk_ids(const bsn_walk *x, uint64_t ids[2])
{
    ids[0] = bsn_load64(bsn_walk_body(x) - BSN_IDS_SIZE);
    ids[1] = bsn_load64(bsn_walk_body(x) - 8);
}

/* The frame in the making, and memory for the elements of two cells and for a block. */
typedef struct bsn_making {
    bsn_call call;
    bsn_coder s;
    uint8_t *to, *end, *cell[2], *block;
} bsn_making;

/* Decodes the current block. Against zeros as `base`, a single difference becomes elements that are equal to
 * it. */
static bitsnap_status bsn_walk_decode(bsn_making *m, const bsn_walk *x, uint8_t *to, const uint8_t *base, int difference)
{
    bsn_job *job = bsn_job_of(&m->call, 0, &x->look);
    job->source = x->at;
    job->input_end = x->end;
    job->base = base;
    job->sink.to = to;
    if (!bsn_decode_block(bsn_work_of(&m->call, 0), difference ? &x->differences : &x->context, job)) return BITSNAP_OK;
    return bsn_pass(m->call.b, &job->error, job->offset);
}

/* Completes the block at m->to, which lacks hashes and check. */
static bitsnap_status bsn_make_block(bsn_making *m, uint64_t position, const uint64_t ids[2])
{
    const bsn_context *c = &m->call.context;
    uint8_t *p = m->to;
    bsn_record record;
    bsn_decoding d;
    bsn_look look;
    bsn_job *job;
    const size_t prefix = bsn_prefix(&c->shape);
    const bitsnap_status status = bsn_look_at(&m->call, &c->shape, p, (size_t)(m->end - p), position, 0, &look);
    if (status) return status;
    bsn_store64(p + prefix - BSN_IDS_SIZE, ids[0]);
    bsn_store64(p + prefix - BSN_IDS_SIZE + 8, ids[1]);
    job = bsn_job_of(&m->call, 0, &look);
    job->source = p;
    job->input_end = p + look.whole;
    bsn_decoding_begin(&d, &record, bsn_work_of(&m->call, 0), c, job);
    d.checking = 1;
    d.sink->leaves = NULL;
    /* hashes the body: in parts, if it is one of SPLIT */
    if (!d.form->make && !d.form->open(&d)) (void)bsn_make_split(&d);
    else bsn_record_hash(&record, bsn_hash_of(c->kernels, d.body, (size_t)(d.end - d.body)));
    bsn_store64(p + BSN_HEAD_SIZE, bsn_hash_of(c->kernels, record.bytes, record.size));
    m->to += look.whole;
    return bsn_push_note(m->call.b, &m->s, p, look.head);
}

/* Appends a block, `size` bytes at `from`, which lacks hashes and check. */
static bitsnap_status bsn_make_put(bsn_making *m, const uint8_t *from, size_t size, uint64_t position, const uint64_t ids[2])
{
    if (size > (size_t)(m->end - m->to)) return bsn_fail(m->call.b, BITSNAP_E_CAPACITY, m->s.stored, position);
    memcpy(m->to, from, size);
    return bsn_make_block(m, position, ids);
}

/* A block of one class, or of few words, or none: the differences of elements to a base. It is made in
 * m->block, so that its form does not depend on the room; `base` or `elements` may be there. */
static bitsnap_status bsn_make_words(bsn_making *m, const uint8_t *elements, const uint8_t *base, uint64_t position, size_t n,
                                     const uint64_t ids[2])
{
    const bsn_context *c = &m->call.context;
    bsn_work *w = bsn_work_of(&m->call, 0);
    const unsigned width = m->s.shape.width;
    const size_t prefix = bsn_prefix(&m->s.shape), stored = n * width;
    uint8_t *body = m->block + prefix;
    unsigned form = BSN_FORM_CLASSED;
    bsn_arena arena = w->arena;
    bsn_rooms room;
    bsn_changes *changes;
    bsn_writer wr;
    size_t size = 0, i;
    bsn_piece piece;
    int few = 1;
    bsn_lay_delta(&arena, &room, c, n);
    changes = room.changes;
    bsn_changes_begin(changes, c, n);
    for (i = 0; i < n && few; i += BSN_CHUNK)
        few = bsn_collect_changes(c, changes, w->plane[0], elements + i * width, base + i * width, i,
                                  bsn_min(BSN_CHUNK, n - i), changes->most);
    if (few && (!changes->count || changes->any <= BSN_SPARSE_SURE)) {
        form = changes->count ? BSN_FORM_SPARSE : BSN_FORM_SAME;
        if (changes->count) size = bsn_piece_plan(&piece, changes, n, width);
        if (size) (void)bsn_piece_write(body, &piece, changes, n, width);
    } else {
        (void)bsn_subtract_rest(width, room.words, elements, base, n);
        memcpy(room.dealt, room.words, stored);
        bsn_writer_begin(&wr, w, c, body, body + stored + 2, room.symbols);
        wr.thorough = 1;
        *wr.at++ = 1;
        bsn_words_write(&wr, room.dealt, n, width, width, w->plane[0]);
        size = (size_t)(wr.at - body);
        if (wr.full) { /* nothing to gain */
            size = stored + 2;
            body[0] = 1;
            body[1] = BSN_WORDS_RAW;
            bsn_copy_little_endian(body + 2, room.words, n, width);
        }
    }
    bsn_store32(m->block, (uint32_t)(form | size << 8));
    return bsn_make_put(m, m->block, prefix + size, position, ids);
}

/* Encodes a block of elements against their base; base null: without one. */
static bitsnap_status bsn_make_elements(bsn_making *m, const uint8_t *elements, const uint8_t *base, uint64_t position, size_t n,
                                        const uint64_t ids[2])
{
    bsn_ids made;
    const bsn_context *c = &m->call.context;
    size_t size;
    memset(&made, 0, sizeof made);
    made.cell = base;
    /* to m->block, so that its form does not depend on the room; see bsn_encode_job */
    size = bsn_encode_block(bsn_work_of(&m->call, 0), c, m->block, bsn_block_most(c, n), elements, n, position, &made);
    return bsn_make_put(m, m->block, size, position, ids);
}

/* State of both, too large for the stack. */
typedef struct bsn_algebra {
    bsn_walk one, two;
    bsn_making made;
} bsn_algebra;
BSN_ASSERT(algebra, sizeof(bsn_algebra) <= BSN_ALGEBRA_SIZE);

/* The cell at `position` of the merge, or of the inverse. */
static bitsnap_status bsn_make_cell(bitsnap *b, bsn_algebra *x, int merging, uint64_t position, size_t n)
{
    bsn_walk *one = &x->one, *two = &x->two;
    bsn_making *m = &x->made;
    const bsn_walk *copy = NULL;
    uint64_t ids[2], next[2];
    bitsnap_status status = bsn_walk_to(&m->call, one, position);
    if (!status && merging) status = bsn_walk_to(&m->call, two, position);
    if (status) return status;
    bsn_walk_ids(one, ids);
    if (merging) {
        bsn_walk_ids(two, next);
        if (ids[1] != next[0]) return bsn_reject(b, BITSNAP_R_BASE_HASH, (uint64_t)(two->at - two->frame), position);
        if (two->look.form == BSN_FORM_SAME) copy = one;
        else if (bsn_is_alone(two->look.form) || one->look.form == BSN_FORM_SAME) copy = two;
        ids[1] = next[1];
    } else {
        next[0] = ids[0];
        ids[0] = ids[1];
        ids[1] = next[0];
        if (one->look.form == BSN_FORM_SAME) copy = one;
    }
    if (copy) {
        status = bsn_make_put(m, copy->at, copy->look.whole, position, ids);
    } else {
        const int single = bsn_walk_single(one) && (!merging || bsn_walk_single(two));
        /* the elements of the first, without its base */
        const int known = merging && bsn_is_alone(one->look.form);
        const uint8_t *base = single ? m->block : bsn_has_base(b) ? bsn_base_cell(&m->call, 0, position, n, &b->error) : NULL;
        if (b->error.status) return b->error.status;
        if (!base && !known) return bsn_fail(b, BITSNAP_E_UNSUPPORTED, (uint64_t)(one->at - one->frame), position);
        if (single) memset(m->block, 0, n * m->s.shape.width);
        status = bsn_walk_decode(m, one, m->cell[0], base, single);
        if (!status && merging) status = bsn_walk_decode(m, two, m->cell[1], m->cell[0], single);
        if (!status) {
            const uint8_t *elements = merging ? m->cell[1] : base, *before = merging ? base : m->cell[0];
            if (single) status = bsn_make_words(m, elements, before, position, n, ids);
            else status = bsn_make_elements(m, elements, before, position, n, ids);
        }
    }
    m->s.position = position + n;
    return status;
}

/* Checks that a second delta is of the same kind as the first, which has header h. Must come before any
 * decoding, as the first one's block size decides where memory after the scratch begins. */
BSN_FUNCTION bitsnap_status bsn_may_follow(bitsnap *b, const bsn_shape *h, bsn_shape *next, const uint8_t *second,
                                           size_t second_size)
{
    const bitsnap_status status =
        second_size ? bsn_read_header(b, next, second, second_size) : bsn_reject(b, BITSNAP_R_TRUNCATED, 0, 0);
    if (status) return status;
    if (h->dtype != next->dtype || h->count != next->count) return bsn_fail(b, BITSNAP_E_MISMATCH, 0, 0);
    if (next->role != BSN_ROLE_BASE) return bsn_fail(b, BITSNAP_E_BASE, 0, 0);
    return h->block_log2 == next->block_log2 ? BITSNAP_OK : bsn_fail(b, BITSNAP_E_UNSUPPORTED, 0, 0);
}

/* The workspace to make a frame like that of this header: `usual` is what calls take of it, `cell` what
 * elements or a block take. Not inlined: the context would stay on the stack. */
BSN_FUNCTION size_t bsn_algebra_needs(const bitsnap *b, const bsn_shape *h, size_t *usual, size_t *cell)
{
    bsn_context c;
    bsn_context_begin(&c, b, h);
    *cell = BSN_ALGEBRA_CELL(&c);
    return bsn_algebra_lay(usual, &c, bsn_workers(b), bsn_base_size(b, h->block_log2, h->role, h->base_dtype));
}

/* Makes a frame from one delta (its inverse) or two (their merge). */
static bitsnap_status bsn_make_frame(bitsnap *b, uint8_t *to, size_t capacity, size_t *size, const uint8_t *first,
                                     size_t first_size, const uint8_t *second, size_t second_size)
{
    const int merging = second != NULL;
    bsn_arena arena;
    bsn_algebra *x;
    bsn_making *m;
    bsn_shape h, next;
    bitsnap_status status;
    uint64_t position, cell;
    size_t usual, needed, room, footer, bound;
    if (!first_size) return bsn_reject(b, BITSNAP_R_TRUNCATED, 0, 0);
    status = bsn_read_header(b, &h, first, first_size);
    if (status) return status;
    if (!h.role) return bsn_wrong(b, merging ? "first" : "source"); /* no delta */
    if (merging && (status = bsn_may_follow(b, &h, &next, second, second_size)) != BITSNAP_OK) return status;
    needed = bsn_algebra_needs(b, &h, &usual, &room);
    if (!b->workspace || !needed || b->workspace_size < needed) return bsn_need(b, BITSNAP_E_WORKSPACE, needed);
    /* 63 bytes are for the alignment */
    arena.at = (uint8_t *)bsn_align(b->workspace) + ((usual - 63) & ~(size_t)63);
    arena.left = BSN_DRY;
    x = (bsn_algebra *)bsn_arena_take(&arena, sizeof *x);
    m = &x->made;
    status = bsn_walk_begin(b, &x->one, &h, first, first_size);
    if (!status && merging) status = bsn_walk_begin(b, &x->two, &next, second, second_size);
    if (status) return status;
    if (!merging && h.role != BSN_ROLE_BASE) return bsn_fail(b, BITSNAP_E_UNSUPPORTED, 0, 0);
    if (merging && x->two.s.shape.base_id != x->one.content_id) return bsn_reject(b, BITSNAP_R_BASE_HASH, 0, 0);
    if (bsn_has_base(b) && (status = bsn_check_base(b, &h)) != BITSNAP_OK) return status;
    memset(m, 0, sizeof *m);
    m->s = x->one.s;
    m->s.shape.flags = BSN_FLAG_CHECKS | BSN_FLAG_CONTENT | BSN_FLAG_EXTENSIONS;
    m->s.state.has_result_id = 1;
    m->s.state.result_id = merging ? x->two.content_id : x->one.s.shape.base_id;
    if (!merging) m->s.shape.base_id = x->one.content_id;
    bound = bsn_bound(&m->s.shape, bsn_header_size(&m->s.shape));
    if (capacity < bsn_header_size(&m->s.shape)) return bsn_need(b, BITSNAP_E_CAPACITY, bound);
    bsn_write_header(b, &m->s, to);
    status = bsn_call_begin(&m->call, b, &m->s.shape, BSN_DECODES | BSN_ENCODES | BSN_ONE_WORKER | BSN_NO_BASE, 0);
    if (status) return status;
    m->call.context.flags &= ~(unsigned)BITSNAP_IGNORE_CHECKS;
    m->to = to + bsn_header_size(&m->s.shape);
    m->end = to + capacity;
    m->cell[0] = (uint8_t *)bsn_arena_take(&arena, room);
    m->cell[1] = (uint8_t *)bsn_arena_take(&arena, room);
    m->block = (uint8_t *)bsn_arena_take(&arena, room);
    cell = UINT64_C(1) << h.block_log2;
    for (position = 0; position < h.count && !status; position += cell) {
        status = bsn_make_cell(b, x, merging, position, (size_t)(h.count - position < cell ? h.count - position : cell));
        if (!status && bsn_cancelled(&m->call, m->s.position, h.count))
            return bsn_fail(b, BITSNAP_E_CANCELLED, m->s.stored, position);
    }
    if (!status)
        status = bsn_write_footer(b, &m->s, m->to, (size_t)(m->end - m->to), &footer, to + bsn_header_size(&m->s.shape));
    if (!status) *size = (size_t)(m->to - to) + footer;
    if (status == BITSNAP_E_CAPACITY) b->error.needed = bound;
    return status;
}

BITSNAP_API bitsnap_status bitsnap_merge(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                         const void *first, size_t first_size, const void *second, size_t second_size)
{
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !size ? "size" : !destination ? "destination" : !first ? "first" : !second ? "second" : NULL);
    if (status) return status;
    return bsn_make_frame(b, (uint8_t *)destination, capacity, size, (const uint8_t *)first, first_size,
            (const uint8_t *)second, second_size);
}

BITSNAP_API bitsnap_status bitsnap_invert(bitsnap *b, void *destination, size_t capacity, size_t *size, const void *source,
                                          size_t source_size)
{
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !size ? "size" : !destination ? "destination" : !source ? "source" : NULL);
    if (status) return status;
    return bsn_make_frame(b, (uint8_t *)destination, capacity, size, (const uint8_t *)source, source_size, NULL, 0);
}

#endif

/* ---- what blocks are made of ---- */

/* Opens the body of a block, which tells `block` what it is made of. base: the first element of its cell, or
 * null. Not inlined: its frame and that of the call are both large. */
BSN_FUNCTION bitsnap_status bsn_report_block(const bsn_call *call, bitsnap_block *block, bsn_job *job)
{
    bsn_record record;
    bsn_decoding d;
    unsigned rule;
    bsn_decoding_begin(&d, &record, bsn_work_of(call, 0), &call->context, job);
    d.report = block;
    d.checking = 0;
    rule = bsn_decode_base(&d);
    if (!rule && d.form->open) rule = d.form->open(&d);
    return rule ? bsn_reject(call->b, rule, rule == BITSNAP_R_BASE_HASH ? (uint64_t)(d.place - job->source) : 0, job->first) : BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_read_block(bitsnap *b, bitsnap_block *block, const bitsnap_info *info, uint64_t first,
                                              const void *source, size_t size)
{
    bitsnap_status status;
    bsn_shape s;
    bsn_call call;
    bsn_job *job;
    bsn_look look;
    status = bsn_begin(b, !block ? "block" : !source ? "source" : !bsn_shape_of_info(&s, info) ? "info"
                          : first >= info->count || (first & ((UINT64_C(1) << info->block_log2) - 1)) ? "first" : NULL);
    if (status) return status;
    memset(block, 0, sizeof *block);
    status = bsn_call_begin(&call, b, &s, BSN_DECODES | BSN_NO_TABLE | (bsn_has_base(b) ? 0 : BSN_NO_BASE), 0);
    if (!status) status = bsn_look_at(&call, &s, (const uint8_t *)source, size, first, 0, &look);
    if (status) return status;
    if (!look.whole) return bsn_reject(b, BITSNAP_R_TRUNCATED, size, first);
    block->form = look.form;
    block->elements = look.elements;
    block->size = look.whole;
    job = bsn_job_of(&call, 0, &look);
    job->source = (const uint8_t *)source;
    job->input_end = job->source + look.whole;
    /* other forms tell without it */
    if ((look.form == BSN_FORM_CLASSED || look.form == BSN_FORM_PATCHED) && bsn_has_base(b)) {
        job->base = bsn_base_cell(&call, 0, first, job->n, &b->error);
        if (!job->base) return b->error.status;
    }
    return bsn_report_block(&call, block, job);
}

#endif /* BITSNAP_NO_EXTRAS */

#ifdef BITSNAP_OFFLOAD
/* ---- blocks for a device ---- */

#define BSN_BATCH 1024u /* blocks of a launch */

typedef struct bsn_sent { /* a block on its way */
    bitsnap_info info; /* of its frame. Another thread may change the source, so the header is read once */
    bitsnap_extent extent;
    size_t request;
} bsn_sent;

typedef struct bsn_batch { /* of one queue */
    bitsnap_work work[BSN_BATCH];
    bitsnap_done done[BSN_BATCH];
    bsn_sent sent[BSN_BATCH];
    unsigned count;
    size_t used, sent_size; /* bytes of the staging memory, and those that are on their way */
} bsn_batch;

typedef struct bsn_offload {
    bsn_access index;
    bsn_batch batch[2];
} bsn_offload;

typedef struct bsn_offload_room { /* bytes of the workspace */
    size_t cell;  /* of a block's elements */
    size_t base;  /* of those of its base; encoding: of a block that the host makes */
    size_t index; /* encoding: of a frame's */
    size_t work;  /* to decode or encode a block */
} bsn_offload_room;

typedef struct bsn_device {
    bitsnap *b;
    const bitsnap_offload *o;
    bitsnap_request *requests;
    size_t count;
    bsn_offload *x;
    bsn_offload_room room;
    uint8_t *elements, *base, *index; /* as `room` says */
    bitsnap host;                     /* the options of the host, with what is left of the workspace */
    size_t half;                      /* of the staging memory: what a queue has */
    uint8_t flags;                    /* of works */
    int apply;
    bitsnap_encoder encoder;          /* encoding: of the frame whose blocks come back. Frames do one after
                                         the other */
} bsn_device;

BSN_ASSERT(work_is_as_devices_have_it, sizeof(bitsnap_work) == 64 && sizeof(bitsnap_done) == 8);

static void bsn_grow(size_t *most, size_t size) { *most = *most < size ? size : *most; }

/* Makes the room large enough to decode a frame. */
static void bsn_room_to_decode(bsn_offload_room *room, const bitsnap_info *info)
{
    bsn_grow(&room->cell, bsn_block_size((unsigned)info->dtype, info->block_log2) + 64);
    if (info->has_base) bsn_grow(&room->base, bsn_block_size((unsigned)info->base_dtype, info->block_log2) + 64);
    bsn_grow(&room->work, info->workspace_size);
}

/* Likewise to encode one. */
static void bsn_room_to_encode(bsn_offload_room *room, const bitsnap *b, const bitsnap_request *q)
{
#ifndef BITSNAP_NO_ENCODE
    uint64_t work;
    size_t cell;
    bsn_shape s;
    /* which its own turn will find */
    if (q->count > SIZE_MAX / 8 || bsn_plan(&s, b, q->count, q->dtype)) return;
    cell = bsn_block_size((unsigned)q->dtype, s.block_log2) + 64;
    /* elements of blocks, for a content id */
    work = bsn_needed(b, &s, BSN_PUSHES) + (uint64_t)cell * bsn_workers(b);
    bsn_grow(&room->cell, cell);
    bsn_grow(&room->base, cell);
    bsn_grow(&room->index, bsn_entry_of(s.flags) * (size_t)bsn_blocks(&s));
    bsn_grow(&room->work, work <= SIZE_MAX ? (size_t)work : 0);
#else
    (void)room, (void)b, (void)q;
#endif
}

/* b: to encode with, or null. */
static bsn_offload_room bsn_offload_needs(const bitsnap *b, const bitsnap_request *requests, size_t count)
{
    bsn_offload_room room = { 0, 0, 0, 0 };
    bitsnap_info info;
    size_t i;
    for (i = 0; i < count; i++) {
        if (b) bsn_room_to_encode(&room, b, &requests[i]);
        else if (!bitsnap_read_info(&info, requests[i].frame, requests[i].size)) bsn_room_to_decode(&room, &info);
    }
    return room;
}

static size_t bsn_offload_size(const bsn_offload_room *room)
{
    const uint64_t size = sizeof(bsn_offload) + 64 + (uint64_t)room->cell + room->base + room->index + room->work;
    return size <= SIZE_MAX ? (size_t)size : 0;
}

BITSNAP_API size_t bitsnap_offload_workspace(const bitsnap_request *requests, size_t count)
{
    const bsn_offload_room room = bsn_offload_needs(NULL, requests, count);
    return bsn_offload_size(&room);
}

static int bsn_offload_fits(const bitsnap_offload *o)
{
    return o && (!o->struct_size || o->struct_size == sizeof *o) && o->upload && o->download && o->decode && o->wait && o->device &&
           !(o->device & 15) && o->size >= 32;
}

static int bsn_request_fits(const bitsnap_request *q, int apply, int encode)
{
    if (!bsn_is_dtype((unsigned)q->dtype) || q->elements & 3 || (q->count && !q->elements)) return 0;
    return encode ? q->destination && !q->base : q->frame && (apply || !(q->base & 3));
}

/* Begins a call: empties both queues, and clears the errors of requests. On failure all requests get its
 * error. */
static bitsnap_status bsn_device_begin(bsn_device *d, bitsnap *b, const bitsnap_offload *o, bitsnap_request *requests, size_t count,
                                       int apply, int encode)
{
    size_t i, needed;
    bitsnap_status status = bsn_begin(b, !bsn_offload_fits(o) || (encode && !o->host) ? "offload" : count && !requests ? "requests" : NULL);
    memset(d, 0, sizeof *d);
    if (!status) status = bsn_wrong(b, encode && bsn_has_base(b) ? "base" : NULL);
    for (i = 0; i < count && !status; i++)
        if (!bsn_request_fits(&requests[i], apply, encode)) status = bsn_wrong(b, "requests");
    if (!status) {
        d->room = bsn_offload_needs(encode ? b : NULL, requests, count);
        needed = bsn_offload_size(&d->room);
        if (!b->workspace || !needed || b->workspace_size < needed) status = bsn_need(b, BITSNAP_E_WORKSPACE, needed);
    }
    for (i = 0; i < count && requests; i++) {
        memset(&requests[i].error, 0, sizeof requests[i].error);
        requests[i].error.status = status;
    }
    if (status) return status;
    d->b = b;
    d->o = o;
    d->requests = requests;
    d->count = count;
    d->apply = apply;
    d->half = o->size / 32 * 16;
    d->x = (bsn_offload *)(void *)bsn_align(b->workspace);
    for (i = 0; i < 2; i++) {
        d->x->batch[i].count = 0;
        d->x->batch[i].used = d->x->batch[i].sent_size = 0;
    }
    d->elements = (uint8_t *)(d->x + 1);
    d->base = d->elements + d->room.cell;
    d->index = d->base + d->room.base;
    d->host = *b;
    d->host.progress = NULL;
    d->host.workspace = d->index + d->room.index;
    d->host.workspace_size = d->room.work;
    memset(&d->host.base, 0, sizeof d->host.base);
    if (apply || encode) d->host.flags &= ~(unsigned)BITSNAP_IGNORE_CHECKS;
    if (!encode) d->host.run = NULL; /* which decodes one block at a time */
    d->flags = (uint8_t)(apply ? BITSNAP_WORK_TEST : d->host.flags & BITSNAP_IGNORE_CHECKS ? BITSNAP_WORK_IGNORE : 0);
    return BITSNAP_OK;
}

/* What ended the work; or the error of the first request that has one. */
static bitsnap_status bsn_device_end(bsn_device *d, bitsnap_status status)
{
    size_t i;
    /* memory must not be in use any more */
    for (i = 0; i < 2 && status; i++) (void)d->o->wait(d->o->context, (unsigned)i);
    for (i = 0; i < d->count && status; i++) /* what became of the others is not known */
        if (!d->requests[i].error.status) d->requests[i].error = d->b->error;
    for (i = 0; i < d->count && !status; i++) {
        if (!d->requests[i].error.status) continue;
        d->b->error = d->requests[i].error;
        return d->b->error.status;
    }
    return status;
}

static bitsnap_status bsn_device_failed(bsn_device *d) { return bsn_reject(d->b, BITSNAP_R_SOURCE, 0, 0); }

/* Notes the host's error of a request, found at that element, if none is known of elements before: blocks are
 * done out of order. */
static void bsn_offload_note(bsn_device *d, size_t request, uint64_t at)
{
    bitsnap_error *error = &d->requests[request].error, *found = &d->host.error;
    if (found->element < at) found->element = at; /* those of the index need not say it */
    if (!error->status || found->element < error->element) *error = *found;
}

/* The host decodes a block that the device did not; to its place on the device, unless it is only tested.
 * Fails if the device does. */
static bitsnap_status bsn_offload_host(bsn_device *d, unsigned queue, const bsn_sent *sent)
{
    const bitsnap_offload *o = d->o;
    const bitsnap_request *q = &d->requests[sent->request];
    const bitsnap_extent *x = &sent->extent;
    const bitsnap_info *info = &sent->info;
    const uint64_t cell = UINT64_C(1) << info->block_log2;
    uint64_t at, some;
    if (info->has_base) {
        const unsigned base_width = bsn_dtypes[info->base_dtype].width;
        const uint64_t base = d->apply ? q->elements : q->base;
        if (o->download(o->context, queue, d->base, base + x->first * base_width, (size_t)x->count * base_width) ||
            o->wait(o->context, queue)) return bsn_device_failed(d);
        d->host.base.data = d->base;
        d->host.base.count = info->count;
        d->host.base.dtype = info->base_dtype;
        d->host.base.first = x->first;
        d->host.base.held = x->count;
    }
    for (at = 0; at < x->count; at += some) { /* a run of constant cells may be long */
        some = x->count - at < cell ? x->count - at : cell;
        if (bitsnap_block_decode(&d->host, d->elements, x->first + at, some, info, x, (const uint8_t *)q->frame + x->offset)) {
            bsn_offload_note(d, sent->request, x->first);
            return BITSNAP_OK;
        }
        if (d->flags & BITSNAP_WORK_TEST) return BITSNAP_OK;
        if (o->upload(o->context, queue, q->elements + (x->first + at) * info->width, d->elements, (size_t)some * info->width) ||
            o->wait(o->context, queue)) return bsn_device_failed(d);
    }
    return BITSNAP_OK;
}

/* Waits for a queue; what its device did not do is done by the host. */
static bitsnap_status bsn_offload_finish(bsn_device *d, unsigned queue)
{
    bsn_batch *batch = &d->x->batch[queue];
    unsigned i;
    if (batch->count && d->o->wait(d->o->context, queue)) return bsn_device_failed(d);
    for (i = 0; i < batch->count; i++)
        if (batch->done[i].status && bsn_offload_host(d, queue, &batch->sent[i])) return d->b->error.status;
    batch->count = 0;
    batch->used = batch->sent_size = 0;
    return BITSNAP_OK;
}

/* Uploads what the batch gained since the last upload: consecutive blocks of one frame. The last one ends at
 * `end`. */
static bitsnap_status bsn_offload_upload(bsn_device *d, unsigned queue, const uint8_t *end)
{
    const bitsnap_offload *o = d->o;
    bsn_batch *batch = &d->x->batch[queue];
    const size_t at = queue * d->half + batch->sent_size, size = batch->used - batch->sent_size;
    const uint8_t *from = end - size;
    batch->sent_size = batch->used;
    if (!size) return BITSNAP_OK;
    if (o->host) from = (const uint8_t *)memcpy((uint8_t *)o->host + at, from, size);
    return o->upload(o->context, queue, o->device + at, from, size) ? bsn_device_failed(d) : BITSNAP_OK;
}

/* `code` is the device's function, or null. */
static bitsnap_status bsn_device_launch(bsn_device *d, unsigned queue,
                                        int (*code)(void *, unsigned, const bitsnap_work *, bitsnap_done *, size_t))
{
    bsn_batch *batch = &d->x->batch[queue];
    unsigned i;
    /* a device that says nothing */
    for (i = 0; i < batch->count; i++) batch->done[i].status = BITSNAP_E_UNSUPPORTED;
    if (!batch->used || !code) return BITSNAP_OK;
    return code(d->o->context, queue, batch->work, batch->done, batch->count) ? bsn_device_failed(d) : BITSNAP_OK;
}

typedef struct bsn_sending { /* a frame whose blocks are being sent */
    bsn_sent sent;   /* the next block */
    bsn_cursor at;   /* after the block that was sent last */
    uint64_t behind; /* offset of the end of the block that was queued last */
    int check;       /* 1 if the checks of blocks are looked at */
} bsn_sending;

/* Opens the frame of a request. An error is the host's. */
static bitsnap_status bsn_offload_open(bsn_device *d, bsn_sending *f, size_t request)
{
    const bitsnap_request *q = &d->requests[request];
    bitsnap *host = &d->host;
    bitsnap_info *info = &f->sent.info;
    bitsnap_source source;
    bsn_offload_room room;
    bitsnap_status status;
    memset(f, 0, sizeof *f);
    memset(&source, 0, sizeof source);
    f->sent.request = request;
    source.data = q->frame;
    source.size = q->size;
    status = bitsnap_index_open(host, (bitsnap_index *)(void *)&d->x->index, info, &source);
    if (status) return status;
    if (info->dtype != q->dtype || info->count != q->count) return bsn_fail(host, BITSNAP_E_MISMATCH, 0, 0);
    if (d->apply && info->base_dtype != info->dtype)
        return info->has_base ? bsn_fail(host, BITSNAP_E_UNSUPPORTED, 0, 0) : bsn_wrong(host, "requests");
    if (!d->apply && info->has_base && info->count &&
        (!q->base || q->base_dtype != info->base_dtype || (q->base_id && q->base_id != info->base_id)))
        return bsn_reject(host, BITSNAP_R_BASE, 0, 0);
    room = d->room;
    bsn_room_to_decode(&room, info);
    /* the source has changed since then */
    if (room.cell > d->room.cell || room.base > d->room.base || room.work > d->room.work)
        return bsn_reject(host, BITSNAP_R_SOURCE, 0, 0);
    f->check = info->checks && !(d->flags & BITSNAP_WORK_IGNORE);
    return bsn_cursor_seek(host, &f->at, &d->x->index.frame, 0);
}

/* Puts a block of `size` bytes into a queue that has room for it. `source` and `target` of its work are both
 * set to the staging memory; the caller changes the other one. */
static bitsnap_work *bsn_batch_add(bsn_device *d, unsigned queue, const bsn_sent *sent, size_t size)
{
    const bitsnap_info *info = &sent->info;
    bsn_batch *batch = &d->x->batch[queue];
    bitsnap_work *w = &batch->work[batch->count];
    memset(w, 0, sizeof *w);
    w->source = w->target = d->o->device + queue * d->half + batch->used;
    w->first = sent->extent.first;
    w->header_check = info->header_check;
    w->size = (uint32_t)size;
    w->count = (uint32_t)sent->extent.count;
    w->dtype = (uint8_t)info->dtype;
    w->flags = (uint8_t)(d->flags | (info->checks ? BITSNAP_WORK_CHECKS : 0));
    w->bins = info->bins;
    w->columns = info->columns < UINT32_MAX ? (uint32_t)info->columns : UINT32_MAX;
    batch->sent[batch->count++] = *sent;
    batch->used += size;
    return w;
}

/* Sends the next block. The host decodes a block that does not fit a queue, and one with another check than
 * the index has: the device would call it good. */
static bitsnap_status bsn_offload_block(bsn_device *d, bsn_sending *f, unsigned *queue, const bsn_look *look)
{
    const bitsnap_request *q = &d->requests[f->sent.request];
    const bitsnap_info *info = &f->sent.info;
    const uint8_t *frame = (const uint8_t *)q->frame;
    bitsnap_extent *extent = &f->sent.extent;
    const bsn_batch *batch = &d->x->batch[*queue];
    bitsnap_work *w;
    bitsnap_status status = BITSNAP_OK;
    bsn_tell_extent(extent, look);
    if (look->whole > d->half || look->elements > 0xFFFFFFFF ||
        (f->check && bsn_load32(frame + extent->offset + BSN_HEAD_SIZE) != look->check)) return bsn_offload_host(d, *queue, &f->sent);
    if (batch->count == BSN_BATCH || d->half - batch->used < look->whole) {
        status = bsn_offload_upload(d, *queue, frame + f->behind);
        if (!status) status = bsn_device_launch(d, *queue, d->o->decode);
        *queue ^= 1;
        if (!status) status = bsn_offload_finish(d, *queue);
    }
    if (!status && extent->offset != f->behind) status = bsn_offload_upload(d, *queue, frame + f->behind);
    if (status) return status;
    w = bsn_batch_add(d, *queue, &f->sent, look->whole);
    w->target = q->elements + extent->first * info->width;
    if (info->has_base) w->base = (d->apply ? q->elements : q->base) + extent->first * bsn_dtypes[info->base_dtype].width;
    w->head = look->head;
    w->role = (uint8_t)d->x->index.frame.shape.role;
    f->behind = f->at.offset;
    return BITSNAP_OK;
}

/* Sends the blocks of one frame; *queue is the one that is being filled. Fails if the device does; errors of
 * the frame are noted. */
static bitsnap_status bsn_offload_frame(bsn_device *d, size_t request, unsigned *queue)
{
    const bitsnap_request *q = &d->requests[request];
    bsn_sending f;
    bsn_look look;
    bitsnap_status status = BITSNAP_OK;
    unsigned rule;
    if (bsn_offload_open(d, &f, request)) {
        bsn_offload_note(d, request, 0);
        return BITSNAP_OK;
    }
    for (; f.sent.extent.first < q->count && !q->error.status; f.sent.extent.first += look.elements) {
        if (bsn_cursor_next(&d->host, &f.at, &d->x->index.frame, &look)) {
            bsn_offload_note(d, request, f.sent.extent.first);
            break;
        }
        status = bsn_offload_block(d, &f, queue, &look);
        if (status) return status;
    }
    status = bsn_offload_upload(d, *queue, (const uint8_t *)q->frame + f.behind);
    if (status || q->error.status) return status;
    /* what a frame can break after its last block */
    if (bsn_has_footer(&d->x->index.frame.shape)) rule = f.at.left || f.at.offset != f.at.offset_end ? BITSNAP_R_INDEX_SIZE : 0;
    else rule = f.at.offset != q->size && !(d->host.flags & BITSNAP_ALLOW_TRAILING) ? BITSNAP_R_TRAILING : 0;
    if (rule) {
        (void)bsn_reject(&d->host, rule, f.at.offset, q->count);
        bsn_offload_note(d, request, q->count);
    }
    return BITSNAP_OK;
}

static bitsnap_status bsn_offload_pass(bsn_device *d)
{
    unsigned queue = 0, k;
    size_t i;
    bitsnap_status status = BITSNAP_OK;
    for (i = 0; i < d->count && !status; i++) status = bsn_offload_frame(d, i, &queue);
    if (!status) status = bsn_device_launch(d, queue, d->o->decode);
    for (k = 0; k < 2 && !status; k++) status = bsn_offload_finish(d, queue ^ 1 ^ k);
    return bsn_device_end(d, status);
}

static bitsnap_status bsn_offload_run(bitsnap *b, const bitsnap_offload *o, bitsnap_request *requests, size_t count, int apply)
{
    bsn_device d;
    bitsnap_status status = bsn_device_begin(&d, b, o, requests, count, apply, 0);
    if (!status) status = bsn_offload_pass(&d);
    if (status || !apply) return status;
    d.flags = 0; /* not a test any more */
    return bsn_offload_pass(&d);
}

BITSNAP_API bitsnap_status bitsnap_offload_decode(bitsnap *b, const bitsnap_offload *o, bitsnap_request *requests, size_t count)
{
    return bsn_offload_run(b, o, requests, count, 0);
}

#ifndef BITSNAP_NO_DELTA
BITSNAP_API bitsnap_status bitsnap_offload_apply(bitsnap *b, const bitsnap_offload *o, bitsnap_request *requests, size_t count)
{
    return bsn_offload_run(b, o, requests, count, 1);
}
#endif
#ifndef BITSNAP_NO_ENCODE
BITSNAP_API size_t bitsnap_offload_encode_workspace(const bitsnap *b, const bitsnap_request *requests, size_t count)
{
    const bsn_offload_room room = bsn_offload_needs(b, requests, count);
    return bsn_offload_size(&room);
}

static bitsnap_status bsn_sender_begin(bsn_device *d, const bitsnap_request *q, bitsnap_encoder *encoder)
{
    size_t size;
    const bitsnap_status status =
        bitsnap_encoder_begin(&d->host, encoder, q->destination, q->size, &size, q->count, q->dtype);
    encoder->index = d->index;
    encoder->index_capacity = d->room.index;
    return status;
}

/* Appends a block with that head to its frame. The block has been checked, except in a frame with a content
 * id: there it is decoded now. */
static bitsnap_status bsn_sender_append(bsn_device *d, bitsnap_request *q, const bsn_sent *sent, const uint8_t *block, size_t size,
                                        uint32_t head)
{
    bitsnap *host = &d->host;
    bitsnap_encoder *encoder = &d->encoder;
    const size_t at = (size_t)encoder->stored;
    bitsnap_status status;
    bsn_coder s;
    if (size > q->size - at) return bsn_fail(host, BITSNAP_E_CAPACITY, at, encoder->position);
    if (sent->info.has_content_id) {
        status = bitsnap_encoder_push_block(host, encoder, block, size);
    } else {
        memcpy(&s, encoder, sizeof s);
        s.position += sent->extent.count;
        status = bsn_push_note(host, &s, block, head);
        memcpy(encoder, &s, sizeof s);
    }
    if (!status) memcpy((uint8_t *)q->destination + at, block, size);
    return status;
}

static bitsnap_status bsn_sender_end(bsn_device *d, bitsnap_request *q, bitsnap_encoder *encoder)
{
    size_t size;
    const size_t at = (size_t)encoder->stored;
    const bitsnap_status status = bitsnap_encoder_end(&d->host, encoder, (uint8_t *)q->destination + at, q->size - at, &size);
    if (!status) q->size = at + size;
    return status;
}

static uint8_t *bsn_sender_at(const bsn_device *d, const bitsnap_work *w) { return (uint8_t *)d->o->host + (w->target - d->o->device); }

/* A block that the device has made, or not (size 0): then by the host. */
static bitsnap_status bsn_sender_block(bsn_device *d, unsigned queue, const bsn_sent *sent, const bitsnap_work *w, size_t size)
{
    const bitsnap_offload *o = d->o;
    bitsnap_request *q = &d->requests[sent->request];
    const bitsnap_info *info = &sent->info;
    const size_t n = (size_t)sent->extent.count;
    bitsnap_status status = BITSNAP_OK;
    if (size) status = bsn_sender_append(d, q, sent, bsn_sender_at(d, w), size, w->head);
    if (size && (!status || status == BITSNAP_E_CAPACITY)) return status;
    if (o->download(o->context, queue, d->elements, q->elements + sent->extent.first * info->width, n * info->width) ||
        o->wait(o->context, queue)) return bsn_device_failed(d);
    status = bitsnap_block_encode(&d->host, d->base, d->room.base, &size, info, d->elements, sent->extent.first, n);
    return status ? status : bsn_sender_append(d, q, sent, d->base, size, bsn_load32(d->base));
}

/* Checks blocks that the device has made, by all workers: up to BSN_JOBS blocks of one frame, beginning with
 * number `from`. Bad ones get size 0. Reads each head once, as the device may still write there. Returns the
 * number after the last one. */
static unsigned bsn_sender_check(bsn_device *d, bsn_batch *batch, unsigned from)
{
    const bsn_sent *sent = &batch->sent[from];
    /* else as they come, or when they are appended */
    const int decoding = !d->o->trusted && !sent->info.has_content_id;
    unsigned of[BSN_JOBS], i;
    size_t jobs = 0, k;
    bsn_coder s;
    bsn_call call;
    bsn_look look;
    memcpy(&s, &d->encoder, sizeof s);
    /* then none is good */
    if (bsn_call_begin(&call, &d->host, &s.shape, BSN_DECODES, 0)) memset(&call, 0, sizeof call);
    for (i = from; i < batch->count && batch->sent[i].request == sent->request && jobs < bsn_jobs(&call); i++) {
        const uint8_t *p = bsn_sender_at(d, &batch->work[i]);
        const bitsnap_extent *extent = &batch->sent[i].extent;
        const uint32_t size = batch->done[i].size;
        if (!size) continue;
        if (!call.b || bsn_look_at(&call, &s.shape, p, size, extent->first, 0, &look) || look.whole != size || look.elements != extent->count ||
            (look.form == BSN_FORM_QUANTIZED && size < look.prefix + BSN_CERTIFICATE_SIZE)) {
            batch->done[i].size = 0;
        } else {
            batch->work[i].head = look.head;
            if (!decoding) continue;
            of[jobs] = i;
            bsn_job_of(&call, jobs++, &look)->source = p;
        }
    }
    call.batch = jobs;
    if (jobs) bsn_run(&call, bsn_decode_task, jobs);
    for (k = 0; k < jobs; k++)
        if (call.jobs[k].error.status) batch->done[of[k]].size = 0;
    return i;
}

/* Waits for a queue, and appends its blocks. */
static bitsnap_status bsn_sender_finish(bsn_device *d, unsigned queue)
{
    const bitsnap_offload *o = d->o;
    bsn_batch *batch = &d->x->batch[queue];
    unsigned i, end = 0;
    if (batch->count && o->wait(o->context, queue)) return bsn_device_failed(d);
    for (i = 0; i < batch->count; i++) {
        bitsnap_done *done = &batch->done[i];
        const bitsnap_work *w = &batch->work[i];
        if (done->status || done->size < BSN_HEAD_SIZE || done->size > w->size) done->size = 0;
        else if (o->download(o->context, queue, bsn_sender_at(d, w), w->target, done->size)) return bsn_device_failed(d);
    }
    if (batch->count && o->wait(o->context, queue)) return bsn_device_failed(d);
    for (i = 0; i < batch->count; i++) {
        const bsn_sent *sent = &batch->sent[i];
        bitsnap_request *q = &d->requests[sent->request];
        bitsnap_status status;
        if (q->error.status) continue;
        status = sent->extent.first ? BITSNAP_OK : bsn_sender_begin(d, q, &d->encoder);
        if (!status && i >= end) end = bsn_sender_check(d, batch, i);
        if (!status) status = bsn_sender_block(d, queue, sent, &batch->work[i], batch->done[i].size);
        if (d->b->error.status) return d->b->error.status; /* the device has failed */
        if (!status && d->encoder.position == d->encoder.count) status = bsn_sender_end(d, q, &d->encoder);
        if (status) q->error = d->host.error;
        if (status == BITSNAP_E_CAPACITY) q->error.needed = bitsnap_bound(&d->host, q->count, q->dtype);
    }
    batch->count = 0;
    batch->used = 0;
    return BITSNAP_OK;
}

static bitsnap_status bsn_sender_frame(bsn_device *d, size_t request, unsigned *queue)
{
    bitsnap_request *q = &d->requests[request];
    uint64_t at, cell;
    bitsnap_encoder encoder;
    bsn_sent sent;
    bitsnap_status status = q->count > SIZE_MAX / 8 ? bsn_wrong(&d->host, "count") : bsn_sender_begin(d, q, &encoder);
    memset(&sent, 0, sizeof sent);
    sent.request = request;
    if (!status) status = bitsnap_read_info(&sent.info, q->destination, (size_t)encoder.stored);
    if (!status && !q->count) status = bsn_sender_end(d, q, &encoder);
    if (status) {
        q->error = d->host.error;
        q->error.status = status;
        return BITSNAP_OK;
    }
    cell = UINT64_C(1) << encoder.block_log2;
    for (at = 0; at < q->count && !q->error.status; at += cell) {
        const bsn_batch *batch = &d->x->batch[*queue];
        const uint64_t n = q->count - at < cell ? q->count - at : cell;
        size_t room = ((size_t)n * encoder.width + 28 + 15) & ~(size_t)15;
        bitsnap_work *w;
        if (room > d->half || sent.info.clusters) room = 0; /* no device makes clusters */
        if (batch->count == BSN_BATCH || d->half - batch->used < room) {
            status = bsn_device_launch(d, *queue, d->o->encode);
            *queue ^= 1;
            if (!status) status = bsn_sender_finish(d, *queue);
            if (status) return status;
        }
        sent.extent.first = at;
        sent.extent.count = n;
        w = bsn_batch_add(d, *queue, &sent, room);
        w->source = q->elements + at * encoder.width;
        w->level = (uint8_t)(d->b->level ? d->b->level : BITSNAP_DEFAULT);
    }
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_offload_encode(bitsnap *b, const bitsnap_offload *o, bitsnap_request *requests, size_t count)
{
    bsn_device d;
    size_t i;
    unsigned queue = 0, k;
    bitsnap_status status = bsn_device_begin(&d, b, o, requests, count, 0, 1);
    if (status) return status;
    for (i = 0; i < count && !status; i++) status = bsn_sender_frame(&d, i, &queue);
    if (!status) status = bsn_device_launch(&d, queue, o->encode);
    for (k = 0; k < 2 && !status; k++) status = bsn_sender_finish(&d, queue ^ 1 ^ k);
    return bsn_device_end(&d, status);
}
#endif
#endif /* BITSNAP_OFFLOAD */

BITSNAP_API const char *bitsnap_version(void) { return BITSNAP_VERSION; }

/* ---- tables of kernels ---- */

/* for kernel tables without BSN_STARTS or BSN_FINISHES: never called with elements */
static int bsn_scalar_start(const bsn_start *t, const uint8_t *p, size_t n) { return (void)t, (void)p, n == 0; }
static int bsn_scalar_finish(const bsn_finish *t, uint8_t *p, size_t i, size_t n) { return (void)t, (void)p, (void)i, n == 0; }
static uint64_t bsn_scalar_log_join(const bsn_row *p, uint8_t *elements, uint8_t *mask, const uint8_t *symbols, const uint8_t *low,
                                    size_t n, unsigned shift)
{
    return (void)p, (void)elements, (void)symbols, (void)low, (void)shift, memset(mask, 0xFF, bsn_mask_bytes(n)), n;
}

#define BSN_SLOT(when, result, name, arguments) BSN_FOR_##when(bsn_scalar_##name),
static const bitsnap_kernels bsn_kernels_scalar = { "scalar", 512, BSN_SCALAR_HAS, BSN_KERNELS(BSN_SLOT) };
#undef BSN_SLOT

#ifdef BITSNAP_SIMD
static const bitsnap_kernels *bsn_simd_kernels(unsigned index); /* in bitsnap_simd.h */
#endif

BITSNAP_API const bitsnap_kernels *bitsnap_kernels_get(unsigned index)
{
    if (index == 0) return &bsn_kernels_scalar;
#ifdef BITSNAP_SIMD
    return bsn_simd_kernels(index - 1);
#else
    return NULL;
#endif
}

static const bitsnap_kernels *bsn_kernels_best(void)
{
    const bitsnap_kernels *best = &bsn_kernels_scalar, *next;
    unsigned i;
    for (i = 1; (next = bitsnap_kernels_get(i)) != NULL; i++) best = next;
    return best;
}

BITSNAP_API const char *bitsnap_kernels_name(const bitsnap_kernels *kernels)
{
    return (kernels ? kernels : bsn_kernels_best())->name;
}

/* ================================================================================= PARTS
 * What frames are made of, alone. */

#ifndef BITSNAP_NO_PARTS

BSN_INLINE int bsn_is_width(unsigned width) { return width == 1 || width == 2 || width == 4 || width == 8; }

/* Another thread may change a mask after it was counted. So parts of it are copied and counted again: no more
 * elements are moved than there is room for. */
#define BSN_MASK_PART 8192u /* elements */

/* Bytes of each array that are compared at a time, and then collected: they are still in the first-level
 * cache, and so few that the processor reads the next ones ahead at the same time (8 KiB cost up to a fifth
 * of the speed at 1 % changed). A multiple of 64 elements of every width. */
#define BSN_MASK_CHUNK 2048

/* More changed ones than one in this many: the kernels collect them, which look at all; else they are taken
 * one by one. */
#define BSN_MASK_DENSE 16

BITSNAP_API bitsnap_status bitsnap_mask_encode(const bitsnap_kernels *kernels, unsigned width,
                                               const void *elements, const void *base, size_t n, void *mask,
                                               void *values, size_t values_capacity, size_t *count)
{
    const uint8_t *a = (const uint8_t *)elements, *b = (const uint8_t *)base;
    uint8_t *m = (uint8_t *)mask, *to = (uint8_t *)values;
    size_t all = 0, changed, chunk;
    if (count) *count = 0;
    if (!bsn_is_width(width) || !count || (n && (!elements || !base || !mask))) return BITSNAP_E_ARGUMENT;
    if (!kernels) kernels = bsn_kernels_best();
    for (; n; n -= chunk, a += chunk * width, b += chunk * width, m += bsn_mask_bytes(chunk)) {
        chunk = bsn_min(n, BSN_MASK_CHUNK / width);
        bsn_compare(kernels, width, m, a, b, chunk);
        changed = kernels->count(m, chunk);
        all += changed;
        if (!changed || !to || all > values_capacity) continue;
        if (changed > chunk / BSN_MASK_DENSE) kernels->partition(width, a, chunk, m, NULL, to);
        else BSN_WIDTHS(width, bsn_pick_any, (to, a, chunk, m));
        to += changed * width;
    }
    *count = all;
    return values && all > values_capacity ? BITSNAP_E_CAPACITY : BITSNAP_OK;
}

/* Mask and values are verified first, so that nothing is written unless another thread changes the mask in
 * between. */
BITSNAP_API bitsnap_status bitsnap_mask_decode(const bitsnap_kernels *kernels, unsigned width, void *elements, const void *base,
                                               size_t n, const void *mask, const void *values, size_t values_count)
{
    const uint8_t *from = (const uint8_t *)values, *old = base == elements ? NULL : (const uint8_t *)base;
    uint8_t part[BSN_MASK_PART / 8];
    size_t some, i, m;
    if (!bsn_is_width(width) || (n && (!elements || !base || !mask)) || (values_count && !values)) return BITSNAP_E_ARGUMENT;
    if (!n) return values_count ? BITSNAP_E_CORRUPT : BITSNAP_OK;
    if (!kernels) kernels = bsn_kernels_best();
    if (!bsn_masks_clear((const uint8_t *)mask, bsn_mask_bytes(n), 1, n) || kernels->count((const uint8_t *)mask, n) != values_count)
        return BITSNAP_E_CORRUPT;
    for (i = 0; i < n && (old || values_count); i += m) {
        m = bsn_min(BSN_MASK_PART, n - i);
        memcpy(part, (const uint8_t *)mask + i / 8, bsn_mask_bytes(m));
        some = kernels->count(part, m);
        if (values_count < some) return BITSNAP_E_CORRUPT;
        if (old || some)
            BSN_WIDTHS(width, bsn_put_any, ((uint8_t *)elements + i * width, old ? old + i * width : NULL, from, m, part));
        from += some * width;
        values_count -= some;
    }
    return BITSNAP_OK;
}

/* Splits n elements into planes, which are consecutive, or joins them. */
static bitsnap_status bsn_planes(const bitsnap_kernels *kernels, uint8_t *planes, uint8_t *elements, size_t n,
                                 bitsnap_dtype dtype, int join)
{
    uint8_t *plane[8];
    bsn_field field;
    unsigned k;
    if ((n && (!planes || !elements)) || !bsn_is_dtype((unsigned)dtype)) return BITSNAP_E_ARGUMENT;
    if (!kernels) kernels = bsn_kernels_best();
    bsn_field_set(&field, (unsigned)dtype, bsn_symbol_bits((unsigned)dtype), 0);
    field.wide = 0;
    for (k = 0; k < 8; k++) plane[k] = n ? planes + (k < field.width ? k * n : 0) : NULL;
    if (join) bsn_join(kernels, &field, elements, (const uint8_t *const *)plane, n);
    else bsn_split(kernels, &field, plane, elements, n);
    return BITSNAP_OK;
}

BITSNAP_API bitsnap_status bitsnap_planes_split(const bitsnap_kernels *kernels, void *planes,
                                                const void *elements, size_t n, bitsnap_dtype dtype)
{
    return bsn_planes(kernels, (uint8_t *)planes, (uint8_t *)elements, n, dtype, 0);
}

BITSNAP_API bitsnap_status bitsnap_planes_join(const bitsnap_kernels *kernels, void *elements,
                                               const void *planes, size_t n, bitsnap_dtype dtype)
{
    return bsn_planes(kernels, (uint8_t *)planes, (uint8_t *)elements, n, dtype, 1);
}

/* Begins a call for a list of n bytes without a frame. */
static bitsnap_status bsn_list_begin(bsn_call *call, bitsnap *b, size_t n, unsigned use)
{
    bsn_shape s;
    memset(&s, 0, sizeof s);
    s.dtype = BITSNAP_I8;
    s.width = 1;
    s.block_log2 = BSN_LOG2_MAX;
    s.count = n;
    return bsn_call_begin(call, b, &s, use, 0);
}

BITSNAP_API bitsnap_status bitsnap_list_decode(bitsnap *b, void *symbols, size_t n, const void *source,
                                               size_t source_size, size_t *used)
{
    bsn_call call;
    bsn_reader r;
    bsn_rooms room;
    bsn_decoding d;
    bitsnap_status status;
    size_t i;
    if (used) *used = 0;
    status = bsn_begin(b, n > (size_t)1 << BSN_LOG2_MAX ? "n" : n && !symbols ? "symbols"
                          : source_size && !source ? "source" : NULL);
    if (!status) status = bsn_list_begin(&call, b, n, BSN_DECODES);
    if (status) return status;
    memset(&d, 0, sizeof d);
    d.work = bsn_work_of(&call, 0);
    d.context = &call.context;
    d.end = d.input_end = source_size ? (const uint8_t *)source + source_size : (const uint8_t *)source;
    d.n = n;
    room = bsn_planes_rooms(&d);
    bsn_reader_begin(&r, &d, (const uint8_t *)source, &room);
    bsn_list_read(&r, n, 8);
    if (r.rule) {
        (void)bsn_reject(b, r.rule, (uint64_t)(r.at - (const uint8_t *)source), 0);
        if (r.rule == BITSNAP_R_LIST_END) b->error.status = BITSNAP_E_TRUNCATED;
        return b->error.status;
    }
    if (!used && r.at != d.end) return bsn_reject(b, BITSNAP_R_TRAILING, (uint64_t)(r.at - (const uint8_t *)source), 0);
    if (used) *used = (size_t)(r.at - (const uint8_t *)source);
    for (i = 0; i < n; i += BSN_CHUNK) {
        const size_t m = bsn_min(BSN_CHUNK, n - i);
        memcpy((uint8_t *)symbols + i, bsn_list_next(&r, d.work->plane[0], i, m), m);
    }
    return BITSNAP_OK;
}

#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_list_encode(bitsnap *b, void *destination, size_t capacity, size_t *size,
                                               const void *symbols, size_t n)
{
    bsn_call call;
    bsn_writer wr;
    bsn_work *w;
    bsn_arena arena;
    bsn_rooms room;
    bitsnap_status status;
    if (size) *size = 0;
    status = bsn_begin(b, !size ? "size" : n > (size_t)1 << BSN_LOG2_MAX ? "n" : n && !symbols ? "symbols"
                          : n && !destination ? "destination" : NULL);
    if (!status) status = bsn_list_begin(&call, b, n, BSN_ENCODES);
    if (status || n == 0) return status;
    w = bsn_work_of(&call, 0);
    arena = w->arena;
    bsn_lay_alone(&arena, &room, &call.context, n);
    memcpy(room.planes, symbols, n);
    bsn_writer_begin(&wr, w, &call.context, (uint8_t *)destination, (uint8_t *)destination + bsn_min(capacity, n), room.lists);
    bsn_list_write(&wr, room.planes, n, 8);
    if (wr.full) { /* raw: never longer than one byte more */
        if (capacity < n + 1) return bsn_need(b, BITSNAP_E_CAPACITY, n + 1);
        *(uint8_t *)destination = BSN_LIST_RAW;
        memcpy((uint8_t *)destination + 1, symbols, n);
        wr.at = (uint8_t *)destination + n + 1;
    }
    *size = (size_t)(wr.at - (uint8_t *)destination);
    return BITSNAP_OK;
}
#endif

#ifndef BITSNAP_NO_QUANTIZE
/* Bits of a label. */
static unsigned bsn_label_bits(unsigned clusters) { return bsn_log2(clusters - 1) + 1; }

BITSNAP_API bitsnap_status bitsnap_cluster_decode(void *elements, size_t n, bitsnap_dtype dtype, const void *ends, unsigned used,
                                                  const void *labels, const uint8_t *codes, unsigned clusters)
{
    const unsigned width = bitsnap_width(dtype), bits = clusters > 1 ? bsn_label_bits(clusters) : 0;
    bsn_octaves o;
    size_t i;
    if (!bsn_has_octaves((unsigned)dtype) || clusters < 2 || clusters > BSN_CLUSTERS_MOST || used > clusters ||
        (n && (!elements || !ends || !labels || !codes)))
        return BITSNAP_E_ARGUMENT;
    o = bsn_octaves_of((unsigned)dtype);
    for (i = 0; i < n; i++) {
        const uint64_t at = (uint64_t)i * bits, size = ((uint64_t)n * bits + 7) / 8;
        const unsigned label = (unsigned)bsn_get_bits((const uint8_t *)labels, (size_t)size, at, bits);
        bsn_cluster x;
        if (label >= used || !bsn_cluster_load(&x, &o, (const uint8_t *)ends + 2 * width * label)) return BITSNAP_E_CORRUPT;
        bsn_element_store((uint8_t *)elements + i * width, bsn_cluster_number(&x, &o, codes[i]), width);
    }
    return BITSNAP_OK;
}

#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_cluster_encode(void *ends, unsigned *used, void *labels, uint8_t *codes, const void *elements,
                                                  size_t n, bitsnap_dtype dtype, unsigned clusters, void *workspace,
                                                  size_t workspace_size)
{
    const uint8_t *from = (const uint8_t *)elements;
    uint8_t *ranks;
    const unsigned width = bitsnap_width(dtype), bits = clusters > 1 ? bsn_label_bits(clusters) : 0;
    const uint64_t magnitude = bsn_magnitude_bits(width ? width : 1);
    bsn_cluster *x;
    bsn_octaves o;
    bsn_row_of_bits row;
    unsigned k;
    size_t i;
    if (used) *used = 0;
    if (!used || !bsn_has_octaves((unsigned)dtype) || clusters < 2 || clusters > BSN_CLUSTERS_MOST || !workspace ||
        (n && (!ends || !labels || !codes || !elements)))
        return BITSNAP_E_ARGUMENT;
    if (n > (SIZE_MAX - 16384) / (2 * width) || workspace_size < 16384 + 2 * n * width) return BITSNAP_E_WORKSPACE;
    o = bsn_octaves_of((unsigned)dtype);
    x = (bsn_cluster *)bsn_align(workspace);
    ranks = (uint8_t *)(x + BSN_CLUSTERS_MOST);
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(from + i * width, width);
        if ((v & magnitude) >> o.mantissa == o.special) return BITSNAP_E_ARGUMENT;
        bsn_element_store(ranks + i * width, bsn_rank(v, width), width);
    }
    *used = bsn_clusters_set(x, &o, bsn_sort_words(ranks, ranks + n * width, n, width), n, clusters);
    bsn_row_begin(&row, (uint8_t *)labels, 0);
    for (i = 0; i < n; i++) {
        const uint64_t v = bsn_element_load(from + i * width, width);
        const unsigned label = bsn_cluster_of(x, *used, v, width);
        if (label == *used) return BITSNAP_E_ARGUMENT; /* elements that are being changed */
        codes[i] = (uint8_t)bsn_cluster_code(&x[label], &o, v);
        bsn_row_put(&row, label, bits);
    }
    bsn_row_end(&row);
    for (k = 0; k < *used; k++) {
        bsn_element_store((uint8_t *)ends + 2 * width * k, x[k].low, width);
        bsn_element_store((uint8_t *)ends + 2 * width * k + width, x[k].high, width);
    }
    return BITSNAP_OK;
}
#endif
#endif

#endif /* BITSNAP_NO_PARTS */

/* What ends with the implementation, which is that of bitsnap_simd.h where that has included this file. */
#ifndef BITSNAP_SIMD
#if defined(BITSNAP_SWITCHED) && (defined(__GNUC__) || defined(__clang__))
#pragma GCC diagnostic pop
#endif
#ifdef BITSNAP_MEMCPY
#pragma pop_macro("memcpy")
#endif
#ifdef BITSNAP_MEMMOVE
#pragma pop_macro("memmove")
#endif
#ifdef BITSNAP_MEMSET
#pragma pop_macro("memset")
#endif
#endif

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_IMPLEMENTATION */

/*
 * MIT License
 *
 * Copyright (c) 2026 The bitsnap authors
 *
 * Permission is hereby granted, free of charge, to any person obtaining a copy
 * of this software and associated documentation files (the "Software"), to deal
 * in the Software without restriction, including without limitation the rights
 * to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
 * copies of the Software, and to permit persons to whom the Software is
 * furnished to do so, subject to the following conditions:
 *
 * The above copyright notice and this permission notice shall be included in all
 * copies or substantial portions of the Software.
 *
 * THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
 * IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
 * FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
 * AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
 * LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
 * OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
 * SOFTWARE.
 */
