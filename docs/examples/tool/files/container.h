/* container.h - bitsnap_file.h as the tool uses it: short names, memory from the heap, failures as faults.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CONTAINER_H
#define TOOL_CONTAINER_H

#include "../../file/bitsnap_file.h"
#include "../console/fault.h"

typedef bitsnap_slice text_slice;
typedef bitsnap_element_type element_type;
typedef bitsnap_tensor tensor;
typedef bitsnap_safetensors safetensors;

/* Returns 1 if a header text can begin with this character: a bracket, or white space of JSON. */
static inline int safetensors_begins(int c) { return c == '{' || c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/* bitsnap_safetensors_parse. Bytes in messages count from the start of the file, where the text begins at byte 8. */
int safetensors_parse(safetensors *s, const char *text, size_t size, fault *f);

/* bitsnap_text_encode, bitsnap_text_decode. Bytes in messages count from the start of `coded`. */
int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, fault *f);
int text_decode(void *text, size_t size, const void *coded, size_t coded_size, fault *f);

/* Sets the fault to an error of a file, and what to do about it. */
int container_failed(const bitsnap_file_error *e, fault *f);

#endif
