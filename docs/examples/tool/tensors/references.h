/* references.h - which tensors of a file are equal to earlier ones of the same file, or are what these round to.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_REFERENCES_H
#define TOOL_REFERENCES_H

#include "../files/file.h"
#include "../../file/bitsnap_references.h"

typedef struct references {
    bitsnap_reference *list;
    size_t count;
    size_t tensors;  /* that have some */
    uint64_t bytes;  /* of these tensors, that refer */
} references;

/* As bitsnap_references_find. The input is a regular file, whose data begin with byte `data`. references_free is to be called
 * after failures, too. */
int references_find(references *r, const safetensors *model, uint64_t data, const input *in, const unsigned char *skip,
                    int by_content, fault *f);
void references_free(references *r);

#endif
