/* text.h - how a .bsnap file holds the header text of a .safetensors file: docs/FORMAT.md, section 8.2.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_TEXT_H
#define TOOL_TEXT_H

#include "../console/fault.h"

#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 100000000u /* bytes of a text: the limit of .safetensors */
#define TEXT_PIECE 32768u   /* bytes of a text that a record holds at most */

/* More bytes than a coded piece of `size` bytes can have, however it was made: its streams hold less than 2.3 * size + 8
 * bytes, and a list of m bytes takes less than 6 * m + 1000. */
#define TEXT_CODED_MAX(size) (16 * (uint64_t)(size) + 65536)

/* Codes a text of at most TEXT_MAX bytes as text records, one behind the other, in memory that the caller frees. `base`: the text
 * that it is like, which who restores it must have, too; or null. The same texts give the same bytes everywhere. Time is linear. */
int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, const void *base, size_t base_size, fault *f);

/* Restores a text of exactly `size` bytes. `coded` may be anything; offsets in messages count from its start. */
int text_decode(void *text, size_t size, const void *base, size_t base_size, const void *coded, size_t coded_size, fault *f);

#endif
