/* index.h - parses the index of a model in several files, such as model.safetensors.index.json. It names the file of each tensor.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_INDEX_H
#define TOOL_INDEX_H

#include "../console/fault.h"

#include <stddef.h>

/* Gives all pairs of the text's weight_map to `each`, which returns 0 to go on. */
int index_parse(const char *text, size_t size, int (*each)(void *context, const char *tensor, const char *file), void *context, fault *f);

#endif
