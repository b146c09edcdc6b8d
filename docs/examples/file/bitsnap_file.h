/* bitsnap_file.h - .bsnap files, and what is in them: docs/FORMAT.md, section 8. MIT licence, see bitsnap.h.
 *
 * Stands on bitsnap.h, and is copied like it. In exactly ONE .c (or .cpp) file write
 *
 *     #define BITSNAP_FILE_IMPLEMENTATION
 *     #include "bitsnap_file.h"
 *
 * The contract of every function below, besides that of bitsnap.h:
 *   - Memory comes from the caller's bitsnap_memory only. There is no global state, and no call to a system.
 *   - Malicious input is safe: sizes are checked before they are used, nothing is read or written outside of the buffers, and no
 *     call takes more than linear time in what it is given and gives, sorting aside.
 *   - Functions that can fail return a status, and say more in the bitsnap_file_error that they are given, which must not be null.
 *   - Stack: less than 8 KiB more than bitsnap.h takes. No recursion, but from a file to its base.
 */
#ifndef BITSNAP_FILE_H
#define BITSNAP_FILE_H

#include "bitsnap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= TYPES */

/* Where memory comes from: resize is as realloc (null and a size: new memory), release as free. Null, or a zeroed one: realloc and
 * free themselves. */
typedef struct bitsnap_memory {
    void *(*resize)(void *context, void *memory, size_t size);
    void (*release)(void *context, void *memory);
    void *context;
} bitsnap_memory;

/* Characters, not terminated: they may be any, U+0000 too. */
typedef struct bitsnap_slice {
    const char *at;
    size_t size;
} bitsnap_slice;

/* What went wrong, and where. Members that do not apply are 0. */
typedef struct bitsnap_file_error {
    bitsnap_status status; /* BITSNAP_E_WORKSPACE: no memory */
    unsigned rule;         /* the condition of docs/FORMAT.md, section 9.2: 9 is S9 */
    unsigned frame_rule;   /* that of a frame or list, BITSNAP_R_... */
    uint64_t offset;       /* byte of the file; of header texts 8 more than that of the text; of coded texts that of these */
    const char *message;   /* an English phrase without a full stop; a static string */
    bitsnap_slice tensor;  /* its name, which lies in what the call was given or has made */
    uint64_t wanted, found; /* bytes of the tensor, by shape and dtype, and by data_offsets, where these disagree */
} bitsnap_file_error;

/* ================================================================================= SAFETENSORS
 * A .safetensors file is a u64 (the size of the header text), the text (JSON), the data of the tensors. What is accepted is
 * what the reference implementation accepts (the Rust crate safetensors 0.8.0), odd forms with it: they come back bit for bit.
 * So every byte of the data belongs to one tensor. Other are only dtypes that it does not know: they are carried as bytes. */

#define BITSNAP_TEXT_MAX 100000000u /* bytes of a text: the limit of .safetensors */

/* What there is to know of an element type. */
typedef struct bitsnap_element_type {
    const char *name;
    unsigned bits;         /* of an element */
    bitsnap_dtype codec;   /* as what its bytes are coded */
} bitsnap_element_type;

typedef struct bitsnap_tensor {
    bitsnap_slice name;    /* UTF-8, unescaped */
    bitsnap_slice dtype;
    const bitsnap_element_type *type; /* null: a dtype that is not known, carried as bytes */
    bitsnap_slice shape;   /* as the header has it, from '[' to ']' */
    uint64_t elements;     /* 0 where the shape has a 0 */
    uint64_t begin, end;   /* bytes of the data */
    size_t place;          /* byte of the text where the name stands */
} bitsnap_tensor;

typedef struct bitsnap_safetensors {
    bitsnap_tensor *tensors; /* in the order of their bytes */
    size_t count;
    uint64_t data_size;
    bitsnap_slice metadata;  /* the value of "__metadata__" as the header has it; no bytes: there is none */
    char *unescaped;         /* private: strings that had escapes */
    const bitsnap_memory *memory; /* private */
} bitsnap_safetensors;

/* Parses a header text. Text and memory must outlive the result, which refers to them; bitsnap_safetensors_free is to be called
 * after failures, too. Linear time, but for sorting the tensors, which names and places of an attacker's choice do not slow. */
BITSNAP_API bitsnap_status bitsnap_safetensors_parse(bitsnap_safetensors *s, const char *text, size_t size,
                                                     const bitsnap_memory *memory, bitsnap_file_error *error);
BITSNAP_API void bitsnap_safetensors_free(bitsnap_safetensors *s);

/* The type with this name; `any_case` for names that people type. Null if there is none. */
BITSNAP_API const bitsnap_element_type *bitsnap_element_type_find(const char *name, size_t size, int any_case);

/* Goes through a shape: writes the next dimension and returns 1, or returns 0 behind the last. `at` is 0 at the
 * start. */
BITSNAP_API int bitsnap_shape_next(bitsnap_slice shape, size_t *at, uint64_t *dimension);

/* Whether two shapes are the same numbers. */
BITSNAP_API int bitsnap_shape_same(bitsnap_slice a, bitsnap_slice b);

/* As what its bytes are coded; and whether these are the floats that quantizers and columns are for. */
BITSNAP_API bitsnap_dtype bitsnap_tensor_codec(const bitsnap_tensor *t);
BITSNAP_API int bitsnap_tensor_has_octaves(const bitsnap_tensor *t);

/* The tensors in the order of their names, in memory of the same kind that the caller releases; null: there is none. And the one of
 * that name, or null. */
BITSNAP_API const bitsnap_tensor **bitsnap_tensors_by_name(const bitsnap_safetensors *s);
BITSNAP_API const bitsnap_tensor *bitsnap_tensor_find(const bitsnap_tensor **names, size_t count, bitsnap_slice name);

BITSNAP_API int bitsnap_slice_compare(bitsnap_slice a, bitsnap_slice b); /* <0, 0, >0 */

/* The bytes of the character of UTF-8 at p, 0 where there is none: no overlong forms, no surrogates, none above U+10FFFF. p < end. */
BITSNAP_API size_t bitsnap_utf8_size(const unsigned char *p, const unsigned char *end);

/* ================================================================================= PARTS
 * What a file is made of, for who reads and writes it piece by piece. */

enum {
    BITSNAP_FILE_HEADER = 32,
    BITSNAP_BASES_PREFIX = 16, BITSNAP_BASE_ENTRY = 21, /* a name, and behind all of them 8 bytes, follow */
    BITSNAP_TEXT_PREFIX = 12,    /* a coded piece and 8 bytes follow */
    BITSNAP_PLACE_SIZE = 16,
    BITSNAP_END_PREFIX = 24, BITSNAP_END_SUFFIX = 40, /* the trees in between */
    BITSNAP_RECORD_ENTRY = 12, BITSNAP_NAME_ENTRY = 8 /* bytes of the trees */
};

#define BITSNAP_FILE_MAGIC "\xB5SNPFILE"
#define BITSNAP_BASES_MAGIC "\xB5" "BAS"
#define BITSNAP_TEXT_MAGIC "\xB5TXT"
#define BITSNAP_PLACE_MAGIC "\xB5PLC"
#define BITSNAP_FRAME_MAGIC "\xB5SNP"
#define BITSNAP_END_MAGIC "\xB5" "END"
#define BITSNAP_LAST_MAGIC "ELIFPNS\xB5"

#define BITSNAP_FILE_MOST (((uint64_t)1 << 48) - 1) /* bytes of a file, and of its source */

/* Kinds of sources; bits of byte 10 of the header, and of byte 5 of the bases record. */
enum { BITSNAP_SOURCE_RAW = 0, BITSNAP_SOURCE_SAFETENSORS = 1, BITSNAP_SOURCE_DELTA = 2 };
enum { BITSNAP_FILE_QUANTIZED = 1 };
enum { BITSNAP_BASES_SAME_TEXT = 1, BITSNAP_BASES_WITH_TEXT = 2 };

#define BITSNAP_TEXT_PIECE 32768u /* bytes of a text that a record holds at most */

/* More bytes than a coded piece of `size` bytes can have, however it was made: its streams hold less than 2.3 * size + 8
 * bytes, and a list of m bytes takes less than 6 * m + 1000. */
#define BITSNAP_TEXT_CODED_MAX(size) (16 * (uint64_t)(size) + 65536)

/* Codes a text of at most BITSNAP_TEXT_MAX bytes as text records, one behind the other, in memory that the caller releases. `base`:
 * the text that it is like, which who restores it must have, too; or null. The same texts give the same bytes everywhere. Time is
 * linear. */
#ifndef BITSNAP_NO_ENCODE
BITSNAP_API bitsnap_status bitsnap_text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, const void *base,
                                               size_t base_size, const bitsnap_memory *memory, bitsnap_file_error *error);
#endif

/* Restores a text of exactly `size` bytes. `coded` may be anything; the offset of an error counts from its start. */
BITSNAP_API bitsnap_status bitsnap_text_decode(void *text, size_t size, const void *base, size_t base_size, const void *coded,
                                               size_t coded_size, const bitsnap_memory *memory, bitsnap_file_error *error);

/* Bytes of the tree of so many entries. */
BITSNAP_API uint64_t bitsnap_tree_size(uint64_t count, unsigned entry);

/* The tree at `to`, which has room for it: pages of the entries, nodes above them. `file`: the check of the file's header. Returns
 * the check of the root, 0 where there is none. */
BITSNAP_API uint64_t bitsnap_tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file);

/* The entries of the tree of names, in order, in memory that the caller releases; *count is 0 where the text is no header of a
 * .safetensors file. */
BITSNAP_API bitsnap_status bitsnap_tree_names(uint8_t **entries, size_t *count, const char *text, size_t size,
                                              const bitsnap_memory *memory, bitsnap_file_error *error);

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_FILE_H */

/* ############################################################################################
 * The implementation.
 *   MEMORY  TOKENS  VALUES  HEADER  TEXTS  TREES
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
    size_t begin = count / 2, end = count, i, child;
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

BITSNAP_API int bitsnap_slice_compare(bitsnap_slice a, bitsnap_slice b)
{
    const size_t both = a.size < b.size ? a.size : b.size;
    const int order = both ? memcmp(a.at, b.at, both) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* ================================================================================= TOKENS
 * The text is JSON of known shape: an object of objects of three members. What else they have is looked at, but not kept: so
 * there is no recursion, and no limit but that of the text's size and of the depth that the reference has. Names that stand
 * twice are found by sorting: no choice of names makes that slow, as it could a hash table. */

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

/* Four hexadecimal digits; -1 if they are none. */
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

/* One escape at p->at, behind its backslash. */
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
    for (; p->at < p->end && *p->at != '"'; p->at++) {
        if ((unsigned char)*p->at < 32) return bsf_fail_header(p, p->at, "a control character in a string");
        if (*p->at != '\\') {
            if (copy) *to++ = *p->at;
            continue;
        }
        if (!copy) {
            /* unescaped strings are shorter than they were, so all of them fit the size of the text */
            if (!p->s->unescaped) p->s->unescaped = (char *)bsf_resize(p->s->memory, NULL, (size_t)(p->end - p->text));
            if (!p->s->unescaped) return bsf_no_memory(p->error) != 0;
            copy = p->s->unescaped + p->unescaped_size;
            memcpy(copy, start, (size_t)(p->at - start));
            to = copy + (p->at - start);
        }
        p->at++;
        if (bsf_parse_escape(p, &to)) return 1;
        p->at--;
    }
    if (p->at == p->end) return bsf_fail_header(p, p->at, "the text ends inside a string");
    result->at = copy ? copy : start;
    result->size = (size_t)((copy ? to : p->at) - result->at);
    if (copy) p->unescaped_size += result->size;
    p->at++;
    return 0;
}

/* A number of digits alone, below 2^64. */
static int bsf_parse_number(bsf_parser *p, uint64_t *x)
{
    const char *start;
    bsf_skip_space(p);
    start = p->at;
    *x = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        const unsigned digit = (unsigned)(*p->at - '0');
        if (*x > (UINT64_MAX - digit) / 10) return bsf_fail_header(p, start, "a number of 2^64 or more");
        *x = 10 * *x + digit;
        p->at++;
    }
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

/* A number of JSON that nobody needs. It has to be one that a double can hold, at least as 0: the reference says so. */
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
    if (bsf_accept_here(p, '.', '.') && !bsf_skip_digits(p)) return bsf_fail_header(p, start, "a number without digits behind its point");
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

/* Any value, which nobody needs: of a member that is not known. It lies in two objects. */
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

/* Whether the shape and the dtype need the bytes that the tensor has. */
static int bsf_check_size(bsf_parser *p, bitsnap_tensor *t)
{
    const unsigned bits = t->type ? t->type->bits : 0;
    uint64_t bytes, dimension;
    size_t at = 0;
    for (t->elements = 1; bitsnap_shape_next(t->shape, &at, &dimension); t->elements *= dimension)
        if (dimension && t->elements > UINT64_MAX / dimension) return bsf_fail_tensor(p, t, "a shape of 2^64 elements or more");
    if (t->begin > t->end) return bsf_fail_tensor(p, t, "data_offsets that end before they begin");
    if (!bits) return 0; /* nobody knows */
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

static int bsf_order_of_names_and_places(const void *a, const void *b)
{
    const bitsnap_tensor *x = (const bitsnap_tensor *)a, *y = (const bitsnap_tensor *)b;
    const int order = bitsnap_slice_compare(x->name, y->name);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Of tensors of the same name the last one counts, as it does for the reference. Then all are of the size that they should. */
static int bsf_check_tensors(bsf_parser *p)
{
    bitsnap_safetensors *s = p->s;
    size_t i, n = 0;
    bsf_sort(s->tensors, s->count, sizeof *s->tensors, bsf_order_of_names_and_places);
    for (i = 0; i < s->count; i++)
        if (i + 1 == s->count || bitsnap_slice_compare(s->tensors[i].name, s->tensors[i + 1].name)) s->tensors[n++] = s->tensors[i];
    s->count = n;
    for (i = 0; i < n; i++) {
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

static int bsf_parse_header(bsf_parser *p)
{
    size_t capacity = 0;
    int has_metadata = 0;
    const char *at;
    for (at = p->text; at < p->end;) {
        const size_t n = bitsnap_utf8_size((const unsigned char *)at, (const unsigned char *)p->end);
        if (!n) return bsf_fail_header(p, at, "not UTF-8");
        at += n;
    }
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
    return bsf_check_tensors(p) || bsf_check_places(p);
}

BITSNAP_API bitsnap_status bitsnap_safetensors_parse(bitsnap_safetensors *s, const char *text, size_t size,
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
    return bsf_parse_header(&p) ? error->status : BITSNAP_OK;
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
 * A header text is a table with a line for each tensor, and mostly like the line before: LZ77 takes what is
 * repeated, the codec's own lists take what is left.
 *
 * The encoder looks for the cheapest way through a piece of the text, as far as it knows the costs: the streams are coded
 * with prefix codes, so it prices bytes by how often the stream has had them. Prices come from the pieces before, and in
 * short texts from a first run over the same one. */

enum {
    BSF_STREAMS = 6,
    BSF_LITERALS = 0, BSF_RUNS = 1, BSF_LENGTHS = 2, BSF_DISTANCES = 3, /* BSF_DISTANCES + k: byte k */
    BSF_SIZES = 8,            /* bytes that tell how long the streams are */
    BSF_MATCH_MIN = 4,
    BSF_WINDOW = 3 * BITSNAP_TEXT_PIECE, /* bytes of the base's text that stand before a piece, at most */
    BSF_HASH_BITS = 14,
    BSF_RING = 131072,        /* a window and a piece */
    BSF_DEPTH = 16,           /* candidates looked at in a chain */
    BSF_ENOUGH = 192,         /* a match of this length is taken without weighing */
    BSF_CANDIDATES = 48       /* matches of different lengths remembered at one place */
};

typedef struct bsf_stream {
    uint8_t bytes[BITSNAP_TEXT_PIECE]; /* no stream has more than the piece that it is of */
    size_t size;
} bsf_stream;

/* The part of the base's text that stands before the piece that begins with byte `at`. */
static size_t bsf_window_begin(size_t at, size_t base_size)
{
    const size_t begin = at < BITSNAP_TEXT_PIECE ? 0 : at - BITSNAP_TEXT_PIECE;
    return begin < base_size ? begin : base_size;
}

static size_t bsf_window_end(size_t at, size_t base_size)
{
    const size_t end = bsf_window_begin(at, base_size) + BSF_WINDOW;
    return end < base_size ? end : base_size;
}

/* ---- the encoder ---- */

#ifndef BITSNAP_NO_ENCODE

/* One place of a piece: the cheapest way to it that is known. */
typedef struct bsf_place {
    uint32_t price;    /* in 1/16 bit */
    uint32_t length;   /* of the match that leads here, 0: a literal does */
    uint32_t distance; /* of that match */
    uint32_t run;      /* literals since the last match */
    uint32_t last;     /* distance of the last match on the way here */
} bsf_place;

typedef struct bsf_text_encoder {
    uint8_t text[BSF_WINDOW + BITSNAP_TEXT_PIECE]; /* the piece, behind what stands before it */
    size_t begin, size;        /* where the piece begins, and ends */
    uint32_t head[1 << BSF_HASH_BITS], chain[BSF_RING]; /* places + 1 with the same hash: the latest, the one before each */
    uint32_t count[BSF_STREAMS][256]; /* how often each byte was in the stream */
    uint32_t price[BSF_STREAMS][256];
    bsf_place places[BITSNAP_TEXT_PIECE + 1];
    bsf_stream out[BSF_STREAMS];
} bsf_text_encoder;

static void bsf_put(bsf_text_encoder *e, int which, uint8_t byte)
{
    bsf_stream *s = &e->out[which];
    s->bytes[s->size++] = byte;
    e->count[which][byte]++;
}

static void bsf_put_number(bsf_text_encoder *e, int which, size_t n)
{
    for (; n >= 255; n -= 255) bsf_put(e, which, 255);
    bsf_put(e, which, (uint8_t)n);
}

/* Literals up to `at`, and a match there; without one (length 0) they are the end of the text. */
static void bsf_put_sequence(bsf_text_encoder *e, size_t from, size_t at, size_t length, size_t distance)
{
    bsf_put_number(e, BSF_RUNS, at - from);
    for (; from < at; from++) bsf_put(e, BSF_LITERALS, e->text[from]);
    if (!length) return;
    bsf_put_number(e, BSF_LENGTHS, length - BSF_MATCH_MIN);
    bsf_put(e, BSF_DISTANCES, (uint8_t)distance);
    bsf_put(e, BSF_DISTANCES + 1, (uint8_t)(distance >> 8));
    bsf_put(e, BSF_DISTANCES + 2, (uint8_t)(distance >> 16));
}

/* 16 * log2(x), rounded down to 1/16; x > 0 */
static uint32_t bsf_log2_16(uint32_t x)
{
    uint32_t whole = 0, fraction = 0, i;
    uint64_t y;
    while (x >> whole > 1) whole++;
    y = (uint64_t)x << (31 - whole);
    for (i = 0; i < 4; i++) {
        y = (y * y) >> 31;
        fraction <<= 1;
        if (y >> 32) {
            y >>= 1;
            fraction |= 1;
        }
    }
    return 16 * whole + fraction;
}

/* Prices from counts, which then fade, so that what the text looks like now weighs more. */
static void bsf_set_prices(bsf_text_encoder *e)
{
    int which;
    for (which = 0; which < BSF_STREAMS; which++) {
        uint32_t *count = e->count[which], total = 0, all;
        unsigned i;
        for (i = 0; i < 256; i++) total += count[i];
        all = bsf_log2_16(total + 64);
        for (i = 0; i < 256; i++) { /* a byte not seen yet is given a quarter of a count */
            const uint32_t bits = all + 32 - bsf_log2_16(4 * count[i] + 1);
            /* no code is shorter than a bit, none with an escape longer than 12, as a rule */
            e->price[which][i] = bits < 16 ? 16 : bits > 12 * 16 ? 12 * 16 : bits;
        }
        if (total > 1u << 16)
            for (i = 0; i < 256; i++) count[i] /= 2;
    }
}

static uint32_t bsf_price_number(const bsf_text_encoder *e, int which, size_t n)
{
    const uint32_t *price = e->price[which];
    return (uint32_t)(n / 255) * price[255] + price[n % 255];
}

static uint32_t bsf_price_distance(const bsf_text_encoder *e, size_t distance)
{
    return e->price[BSF_DISTANCES][distance & 255] + e->price[BSF_DISTANCES + 1][distance >> 8 & 255] +
           e->price[BSF_DISTANCES + 2][distance >> 16];
}

static uint32_t *bsf_bucket(bsf_text_encoder *e, size_t at)
{
    return &e->head[((uint32_t)bsf_load(e->text + at, 4) * 2654435761u) >> (32 - BSF_HASH_BITS)];
}

static void bsf_remember(bsf_text_encoder *e, size_t at)
{
    uint32_t *head;
    if (e->size - at < BSF_MATCH_MIN) return;
    head = bsf_bucket(e, at);
    e->chain[at] = *head;
    *head = (uint32_t)at + 1;
}

static size_t bsf_match_length(const bsf_text_encoder *e, size_t at, size_t distance)
{
    const uint8_t *p = e->text + at, *q = p - distance, *end = e->text + e->size;
    while (p < end && *p == *q) p++, q++;
    return (size_t)(p - (e->text + at));
}

typedef struct bsf_match {
    size_t length, distance;
} bsf_match;

/* The matches at `at`, each longer than the one before, with the nearest distance that gives it. */
static unsigned bsf_find_matches(bsf_text_encoder *e, size_t at, bsf_match found[BSF_CANDIDATES])
{
    size_t longest = BSF_MATCH_MIN - 1;
    unsigned n = 0, depth = BSF_DEPTH;
    uint32_t next;
    if (e->size - at < BSF_MATCH_MIN) return 0;
    next = *bsf_bucket(e, at);
    while (next && depth-- && n < BSF_CANDIDATES) {
        const size_t from = next - 1, distance = at - from;
        if (at + longest < e->size && e->text[from + longest] == e->text[at + longest]) {
            const size_t length = bsf_match_length(e, at, distance);
            if (length > longest) {
                longest = length;
                found[n].length = length;
                found[n].distance = distance;
                n++;
                if (length >= BSF_ENOUGH) break;
            }
        }
        next = e->chain[from];
    }
    return n;
}

/* Matches of all lengths from `shortest` on up to `longest`, which is below BSF_ENOUGH, lead on from p[0]. */
static void bsf_reach(const bsf_text_encoder *e, bsf_place *p, size_t shortest, size_t longest, size_t distance)
{
    const uint32_t price = p->price + bsf_price_distance(e, distance) + e->price[BSF_RUNS][0];
    size_t length;
    for (length = shortest; length <= longest; length++) {
        bsf_place *to = p + length;
        const uint32_t all = price + e->price[BSF_LENGTHS][length - BSF_MATCH_MIN];
        if (all >= to->price) continue;
        to->price = all;
        to->length = (uint32_t)length;
        to->distance = (uint32_t)distance;
        to->run = 0;
        to->last = (uint32_t)distance;
    }
}

/* The sequences of the cheapest way to places[n]; `anchor` is the first literal not yet put. */
static size_t bsf_put_way(bsf_text_encoder *e, size_t begin, size_t n, size_t anchor)
{
    bsf_place *p = e->places;
    size_t i = n, next = n;
    /* turned around in place: the `run` of each place on the way becomes the step that leads on from it */
    while (i > 0) {
        const size_t step = p[i].length ? p[i].length : 1, before = i - step;
        p[i].run = (uint32_t)next;
        next = i;
        i = before;
    }
    p[0].run = (uint32_t)next;
    for (i = 0; i < n; i = next) {
        next = p[i].run;
        if (p[next].length) {
            bsf_put_sequence(e, anchor, begin + i, p[next].length, p[next].distance);
            anchor = begin + next;
        }
    }
    return anchor;
}

/* `last`: a distance that is a good guess. */
static void bsf_parse_piece(bsf_text_encoder *e, size_t last)
{
    bsf_place *p = e->places;
    bsf_match found[BSF_CANDIDATES];
    size_t begin = e->begin, anchor = begin, i;
    for (i = 0; i < begin; i++) bsf_remember(e, i);
    while (begin < e->size) {
        const size_t n = e->size - begin;
        bsf_match taken = { 0, 0 };
        bsf_set_prices(e);
        for (i = 1; i <= n; i++) p[i].price = UINT32_MAX;
        p[0].price = 4096; /* a longer run of literals can be cheaper by the price of a byte: never below 0 */
        p[0].run = (uint32_t)(begin - anchor);
        p[0].length = 0;
        p[0].last = (uint32_t)last;
        for (i = 0; i < n; i++) {
            const size_t at = begin + i;
            const uint32_t run = p[i].run;
            const uint32_t literal = p[i].price + e->price[BSF_LITERALS][e->text[at]] + bsf_price_number(e, BSF_RUNS, run + 1) -
                                     bsf_price_number(e, BSF_RUNS, run);
            unsigned matches, m;
            size_t length;
            if (literal < p[i + 1].price) {
                p[i + 1].price = literal;
                p[i + 1].length = 0;
                p[i + 1].run = run + 1;
                p[i + 1].last = p[i].last;
            }
            /* inside a long match nothing better begins, as a rule: the next place is no dearer than this one */
            if (p[i + 1].length && p[i + 1].price <= p[i].price) {
                bsf_remember(e, at);
                continue;
            }
            matches = bsf_find_matches(e, at, found);
            if (matches && found[matches - 1].length >= BSF_ENOUGH) {
                taken = found[matches - 1];
                break;
            }
            /* the distance used last is often the one of the whole table */
            length = p[i].last && p[i].last <= at ? bsf_match_length(e, at, p[i].last) : 0;
            if (length >= BSF_ENOUGH) {
                taken.length = length;
                taken.distance = p[i].last;
                break;
            }
            bsf_remember(e, at);
            bsf_reach(e, &p[i], BSF_MATCH_MIN, length < n - i ? length : n - i, p[i].last);
            for (m = 0, length = BSF_MATCH_MIN; m < matches; m++) {
                bsf_reach(e, &p[i], length, found[m].length < n - i ? found[m].length : n - i, found[m].distance);
                length = found[m].length + 1;
            }
        }
        last = p[i].last;
        anchor = bsf_put_way(e, begin, i, anchor);
        begin += i;
        if (taken.length) {
            bsf_put_sequence(e, anchor, begin, taken.length, taken.distance);
            for (i = 0; i < taken.length; i++) bsf_remember(e, begin + i);
            begin += taken.length;
            anchor = begin;
            last = taken.distance;
        }
    }
    bsf_put_sequence(e, anchor, e->size, 0, 0);
}

/* The streams of a piece as lists; their sizes stand before them. */
static int bsf_put_lists(bitsnap *b, const bsf_stream s[BSF_STREAMS], uint8_t *coded, size_t capacity, size_t *at, bitsnap_file_error *error)
{
    int which;
    *at = BSF_SIZES;
    for (which = 0; which < BSF_STREAMS; which++) {
        size_t size;
        if (which <= BSF_DISTANCES) bsf_store(coded + 2 * which, s[which].size, 2);
        if (!s[which].size) continue;
        if (bitsnap_list_encode(b, coded + *at, capacity - *at, &size, s[which].bytes, s[which].size))
            return bsf_fail_codec(error, b, 0, 0) != 0;
        *at += size;
    }
    return 0;
}

/* Bytes of the piece that is next: it ends behind a tensor, where there is one. */
static size_t bsf_piece_size(const char *text, size_t left)
{
    size_t n = BITSNAP_TEXT_PIECE;
    if (left <= BITSNAP_TEXT_PIECE) return left;
    while (n > BITSNAP_TEXT_PIECE / 2 && memcmp(text + n - 2, "},", 2)) n--;
    return n > BITSNAP_TEXT_PIECE / 2 ? n : BITSNAP_TEXT_PIECE;
}

static int bsf_codec_for(bitsnap *b, const bitsnap_memory *memory, bitsnap_file_error *error)
{
    memset(b, 0, sizeof *b);
    b->level = BITSNAP_BEST;
    b->workspace_size = BITSNAP_WORKSPACE;
    b->workspace = bsf_resize(memory, NULL, b->workspace_size);
    return b->workspace ? 0 : bsf_no_memory(error) != 0;
}

/* The piece of n bytes from `at` on as a record at `to`, which has room for it. */
static int bsf_put_piece(bsf_text_encoder *e, bitsnap *b, uint8_t *to, size_t *size, const char *text, size_t at, size_t n, const char *base,
                     size_t base_size, unsigned passes, bitsnap_file_error *error)
{
    const size_t from = bsf_window_begin(at, base_size), end = bsf_window_end(at, base_size);
    int which;
    if (end > from) memcpy(e->text, base + from, end - from);
    memcpy(e->text + (end - from), text + at, n);
    e->begin = end - from;
    e->size = e->begin + n;
    while (passes--) {
        memset(e->head, 0, sizeof e->head);
        for (which = 0; which < BSF_STREAMS; which++) e->out[which].size = 0;
        bsf_parse_piece(e, end > at ? end - at : e->begin);
    }
    if (bsf_put_lists(b, e->out, to + BITSNAP_TEXT_PREFIX, BITSNAP_TEXT_CODED_MAX(n), size, error)) return 1;
    memcpy(to, BITSNAP_TEXT_MAGIC, 4);
    bsf_store(to + 4, (uint32_t)n, 4);
    bsf_store(to + 8, (uint32_t)*size, 4);
    *size += BITSNAP_TEXT_PREFIX;
    bsf_store(to + *size, bitsnap_hash(to, *size), 8);
    *size += 8;
    return 0;
}

BITSNAP_API bitsnap_status bitsnap_text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, const void *base,
                                               size_t base_size, const bitsnap_memory *memory, bitsnap_file_error *error)
{
    const char *p = (const char *)text;
    size_t capacity = 0, at, n, i;
    bsf_text_encoder *e;
    bitsnap b;
    int failed = 0;
    *coded = NULL;
    *coded_size = 0;
    if (size > BITSNAP_TEXT_MAX) return bsf_fail(error, BITSNAP_E_ARGUMENT, 0, 0, "a header text of more than 100000000 bytes");
    e = (bsf_text_encoder *)bsf_resize(memory, NULL, sizeof *e);
    if (!e) return bsf_no_memory(error);
    memset(e->count, 0, sizeof e->count);
    failed = bsf_codec_for(&b, memory, error);
    for (i = 0; i < size && i < BITSNAP_TEXT_PIECE; i++) e->count[BSF_LITERALS][(uint8_t)p[i]]++;
    for (at = 0; at < size && !failed; at += n) {
        const size_t most = BITSNAP_TEXT_PREFIX + BITSNAP_TEXT_CODED_MAX(BITSNAP_TEXT_PIECE) + 8;
        size_t used = 0;
        n = bsf_piece_size(p + at, size - at);
        if (capacity - *coded_size < most) {
            uint8_t *more;
            capacity = 2 * capacity + most;
            more = (uint8_t *)bsf_resize(memory, *coded, capacity);
            if (!more) failed = bsf_no_memory(error) != 0;
            else *coded = more;
        }
        if (!failed) failed = bsf_put_piece(e, &b, *coded + *coded_size, &used, p, at, n, (const char *)base, base_size, at ? 1 : 4, error);
        *coded_size += used;
    }
    bsf_release(memory, b.workspace);
    bsf_release(memory, e);
    if (!failed) return BITSNAP_OK;
    bsf_release(memory, *coded);
    *coded = NULL;
    *coded_size = 0;
    return error->status;
}

#endif

/* ---- the decoder ---- */

static int bsf_fail_piece(bitsnap_file_error *error, unsigned rule, const char *what, size_t at)
{
    return bsf_fail(error, rule == 9 ? BITSNAP_E_CHECK : BITSNAP_E_CORRUPT, rule, at, what) != 0;
}

/* The streams, none of which can be longer than a piece of `size` bytes needs; `at`: where they stand, for messages. */
static int bsf_get_streams(bitsnap *b, bsf_stream s[BSF_STREAMS], size_t size, const uint8_t *coded, size_t coded_size, size_t at, bitsnap_file_error *error)
{
    const size_t matches = size / BSF_MATCH_MIN;
    const size_t limit[BSF_DISTANCES + 1] = { size, matches + 1 + size / 255, matches + size / 255, matches };
    size_t done = BSF_SIZES, used;
    int which;
    if (coded_size < BSF_SIZES) return bsf_fail_piece(error, 11, "no room for its streams", at);
    for (which = 0; which < BSF_STREAMS; which++) {
        const int known = which < BSF_DISTANCES ? which : BSF_DISTANCES;
        s[which].size = (size_t)bsf_load(coded + 2 * known, 2);
        if (s[which].size > limit[known]) return bsf_fail_piece(error, 12, "a stream that is too long", at + 2 * (size_t)known);
        if (!s[which].size) continue;
        if (bitsnap_list_decode(b, s[which].bytes, s[which].size, coded + done, coded_size - done, &used))
            return bsf_fail_codec(error, b, 12, at + done) != 0;
        done += used;
    }
    return done == coded_size ? 0 : bsf_fail_piece(error, 12, "bytes are left over behind its streams", at + done);
}

/* The next number of a stream, which may be beyond its end: then *at is, too. */
static size_t bsf_get_number(const bsf_stream *s, size_t *at)
{
    size_t n = 0;
    while (*at < s->size && s->bytes[*at] == 255) {
        n += 255;
        ++*at;
    }
    if (*at < s->size) n += s->bytes[*at];
    ++*at;
    return n;
}

/* The sequences; `before` bytes stand before the piece. */
static int bsf_unpack(uint8_t *text, size_t size, size_t before, const bsf_stream s[BSF_STREAMS])
{
    const size_t matches = s[BSF_DISTANCES].size;
    size_t at = 0, literal = 0, run_at = 0, length_at = 0, i;
    for (i = 0; i <= matches; i++) {
        const size_t run = bsf_get_number(&s[BSF_RUNS], &run_at);
        size_t length, distance;
        if (run_at > s[BSF_RUNS].size || run > size - at || run > s[BSF_LITERALS].size - literal) return 1;
        memcpy(text + at, s[BSF_LITERALS].bytes + literal, run);
        at += run;
        literal += run;
        if (i == matches) break;
        length = bsf_get_number(&s[BSF_LENGTHS], &length_at) + BSF_MATCH_MIN;
        distance = s[BSF_DISTANCES].bytes[i] | (size_t)s[BSF_DISTANCES + 1].bytes[i] << 8 | (size_t)s[BSF_DISTANCES + 2].bytes[i] << 16;
        if (length_at > s[BSF_LENGTHS].size || length > size - at || distance == 0 || distance > before + at) return 1;
        for (; length; length--, at++) text[at] = *(text + at - distance);
    }
    return at != size || literal != s[BSF_LITERALS].size || run_at != s[BSF_RUNS].size || length_at != s[BSF_LENGTHS].size;
}

typedef struct bsf_text_decoder {
    uint8_t text[BSF_WINDOW + BITSNAP_TEXT_PIECE]; /* a piece, behind what stands before it */
    bsf_stream s[BSF_STREAMS];
} bsf_text_decoder;

BITSNAP_API bitsnap_status bitsnap_text_decode(void *text, size_t size, const void *base, size_t base_size, const void *coded,
                                               size_t coded_size, const bitsnap_memory *memory, bitsnap_file_error *error)
{
    const uint8_t *p = (const uint8_t *)coded;
    bsf_text_decoder *d = (bsf_text_decoder *)bsf_resize(memory, NULL, sizeof *d);
    size_t at = 0, done = 0;
    bitsnap b;
    int failed = bsf_codec_for(&b, memory, error);
    if (!failed && !d) failed = bsf_no_memory(error) != 0;
    while (!failed && at < size) {
        const size_t from = bsf_window_begin(at, base_size), before = bsf_window_end(at, base_size) - from;
        uint64_t whole;
        size_t n;
        if (coded_size - done < BITSNAP_TEXT_PREFIX || memcmp(p + done, BITSNAP_TEXT_MAGIC, 4)) {
            failed = bsf_fail_piece(error, 10, "a piece is missing", done);
            break;
        }
        n = (uint32_t)bsf_load(p + done + 4, 4);
        whole = BITSNAP_TEXT_PREFIX + (uint64_t)(uint32_t)bsf_load(p + done + 8, 4) + 8;
        if (!n || n > BITSNAP_TEXT_PIECE || n > size - at || whole > coded_size - done) {
            failed = bsf_fail_piece(error, 11, "a piece of a size that cannot be", done);
            break;
        }
        if (bitsnap_hash(p + done, (size_t)whole - 8) != bsf_load(p + done + (size_t)whole - 8, 8)) {
            failed = bsf_fail_piece(error, 9, "the check does not match", done);
            break;
        }
        if (before) memcpy(d->text, (const uint8_t *)base + from, before);
        failed = bsf_get_streams(&b, d->s, n, p + done + BITSNAP_TEXT_PREFIX, (size_t)whole - BITSNAP_TEXT_PREFIX - 8, done + BITSNAP_TEXT_PREFIX, error);
        if (!failed && bsf_unpack(d->text + before, n, before, d->s)) failed = bsf_fail_piece(error, 13, "its sequences do not give it", done);
        if (!failed) memcpy((uint8_t *)text + at, d->text + before, n);
        at += n;
        done += (size_t)whole;
    }
    if (!failed && done != coded_size) failed = bsf_fail_piece(error, 10, "bytes behind its last piece", done);
    bsf_release(memory, b.workspace);
    bsf_release(memory, d);
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

/* The check of a page or node, which is of this file. */
static uint64_t bsf_node_check(const uint8_t *p, size_t size, uint64_t file)
{
    uint8_t bytes[8 + BSF_FAN * BSF_NODE_ENTRY];
    bsf_store(bytes, file, 8);
    memcpy(bytes + 8, p, size);
    return bitsnap_hash(bytes, 8 + size);
}

BITSNAP_API uint64_t bitsnap_tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file)
{
    if (!count) return 0;
    memcpy(to, entries, (size_t)count * entry);
    for (;;) {
        const uint8_t *p = to;
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

static int bsf_by_number(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

BITSNAP_API bitsnap_status bitsnap_tree_names(uint8_t **entries, size_t *count, const char *text, size_t size,
                                              const bitsnap_memory *memory, bitsnap_file_error *error)
{
    bitsnap_file_error ignored;
    bitsnap_safetensors s;
    uint64_t *names;
    size_t i;
    *entries = NULL;
    *count = 0;
    if (bitsnap_safetensors_parse(&s, text, size, memory, &ignored)) {
        bitsnap_safetensors_free(&s);
        return ignored.status == BITSNAP_E_WORKSPACE ? bsf_no_memory(error) : BITSNAP_OK;
    }
    names = (uint64_t *)bsf_resize(memory, NULL, s.count * sizeof *names);
    if (names) {
        for (i = 0; i < s.count; i++)
            names[i] = bitsnap_hash(s.tensors[i].name.at, s.tensors[i].name.size) << 32 | s.tensors[i].place;
        bsf_sort(names, s.count, sizeof *names, bsf_by_number);
        for (i = 0; i < s.count; i++) { /* little-endian, in place */
            const uint64_t x = names[i];
            bsf_store((uint8_t *)names + 8 * i, x, 8);
        }
        *entries = (uint8_t *)names;
        *count = s.count;
    }
    bitsnap_safetensors_free(&s);
    return names ? BITSNAP_OK : bsf_no_memory(error);
}

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_FILE_IMPLEMENTATION */
