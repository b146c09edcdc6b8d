/* tree.h - the trees at the end of a .bsnap file, by which one tensor of it is found: docs/FORMAT.md, section 8.3.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_TREE_H
#define TOOL_TREE_H

#include "../console/fault.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of the tree of so many entries. */
uint64_t tree_size(uint64_t count, unsigned entry);

/* The tree at `to`, which has room for it: pages of the entries, nodes above them. `file`: the check of the file's header. Returns the
 * check of the root, 0 where there is none. */
uint64_t tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file);

/* The entries of the tree of names, in order, in memory that the caller frees; *count is 0 where the text is no header of a
 * .safetensors file. */
int tree_names(uint8_t **entries, size_t *count, const char *text, size_t size, fault *f);

#endif
