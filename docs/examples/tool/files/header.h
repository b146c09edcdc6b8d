/* header.h - the start of a .safetensors file: its size, its header text, and what that says.
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

/* Reads and checks it; of files also that they have as many bytes as the header says. Afterwards the data is next
 * in the input. header_free is to be called after failures, too. */
int header_read(header *h, input *in, fault *f);
void header_free(header *h);

#endif
