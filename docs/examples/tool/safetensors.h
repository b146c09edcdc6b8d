/* safetensors.h - reads the header text of a .safetensors file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A .safetensors file is a u64 (the size of the header text), the text (JSON), the data of the tensors. What is accepted is
 * what the reference implementation accepts (the Rust crate safetensors 0.8.0), odd forms with it: they come back bit for bit.
 * So every byte of the data belongs to one tensor. Other are only dtypes that it does not know: they are carried as bytes. */
#ifndef TOOL_SAFETENSORS_H
#define TOOL_SAFETENSORS_H

#include "bitsnap.h"
#include "fault.h"

#include <stddef.h>
#include <stdint.h>

#define SAFETENSORS_HEADER_MAX 100000000u

/* Whether a header text can begin with this: a bracket, or white space of JSON. */
static inline int safetensors_begins(int c) { return c == '{' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* A string of the header: UTF-8, unescaped, not terminated (it may hold any character, U+0000 too). */
typedef struct text_slice {
    const char *at;
    size_t size;
} text_slice;

/* What there is to know of an element type. */
typedef struct element_type {
    const char *name;
    unsigned bits;         /* of an element */
    bitsnap_dtype codec;   /* as what its bytes are coded */
} element_type;

typedef struct tensor {
    text_slice name;
    text_slice dtype;
    const element_type *type; /* null: a dtype that is not known, carried as bytes */
    text_slice shape;         /* as the header has it, from '[' to ']' */
    uint64_t elements;        /* 0 where the shape has a 0 */
    uint64_t begin, end;      /* bytes of the data */
    size_t place;             /* byte of the text where the name stands */
} tensor;

typedef struct safetensors {
    tensor *tensors;      /* in the order of their bytes */
    size_t count;
    uint64_t data_size;
    char *unescaped;      /* private: strings that had escapes */
} safetensors;

/* Parses a header text. The text must outlive the result, which refers to it; safetensors_free is to be called
 * after failures, too. Bytes in messages count from the start of the file, where the text begins at byte 8. */
int safetensors_parse(safetensors *s, const char *text, size_t size, fault *f);
void safetensors_free(safetensors *s);

/* Finds the tensors' names and their places alone, in any text: as the tree of names of a .bsnap file has them. */
int safetensors_names(safetensors *s, const char *text, size_t size, fault *f);

/* The type with this name; `any_case` for names that people type. Null if there is none. */
const element_type *element_type_find(const char *name, size_t size, int any_case);

/* Goes through a shape: writes the next dimension and returns 1, or returns 0 behind the last. `at` is 0 at the
 * start. */
int shape_next(text_slice shape, size_t *at, uint64_t *dimension);

/* As what its bytes are coded; and whether these are the floats that quantizers and columns are for. */
bitsnap_dtype tensor_codec(const tensor *t);
int tensor_has_octaves(const tensor *t);

/* The tensors in the order of their names, in memory that the caller frees; null: no memory. And the one of that name. */
const tensor **tensors_by_name(const safetensors *s);
const tensor *tensor_find(const tensor **names, size_t count, text_slice name);

/* Whether two shapes are the same numbers. */
int shape_same(text_slice a, text_slice b);

int slice_compare(text_slice a, text_slice b); /* <0, 0, >0 */

#endif
