/* references.h - finds tensors that equal earlier ones of the same file, or that rounding connects with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_REFERENCES_H
#define TOOL_REFERENCES_H

#include "../files/file.h"
#include "../../file/bitsnap_references.h"

typedef struct references {
    bitsnap_reference *list;
    size_t count;
    size_t tensors;  /* number of tensors with references */
    uint64_t bytes;  /* bytes of these tensors that refer to earlier data */
} references;

/* Calls bitsnap_references_find. The input is a regular file, and its data begin at byte `data`. Call references_free after
 * failures, too. */
int references_find(references *r, const safetensors *model, uint64_t data, const input *in, const unsigned char *skip,
                    int by_content, fault *f);
void references_free(references *r);

#endif
