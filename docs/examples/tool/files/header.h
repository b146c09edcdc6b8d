/* header.h - reads the start of a .safetensors file: the size of the header text, the text, and its tensors.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_HEADER_H
#define TOOL_HEADER_H

#include "../system/io.h"
#include "container.h"

typedef struct header {
    char *text;
    size_t size;
    safetensors model;
} header;

/* Reads and checks the header. Fails if a regular file does not have the size that the header gives. Afterwards the data is next
 * in the input. Call header_free after failures, too. */
int header_read(header *h, input *in, fault *f);
void header_free(header *h);

#endif
