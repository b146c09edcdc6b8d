/* text.h - how a .bsnap file holds the header text of a .safetensors file: docs/FORMAT.md, section 8.2.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_TEXT_H
#define TOOL_TEXT_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>

#define TEXT_MAX 100000000u /* bytes of a text: the limit of .safetensors */

/* More bytes than the coded form of a text of `size` bytes can have, however it was made: its streams hold
 * less than 2.3 * size + 8 bytes, and a list of m bytes takes less than 6 * m + 1000. */
#define TEXT_CODED_MAX(size) (16 * (uint64_t)(size) + 65536)

/* Codes a text of at most TEXT_MAX bytes into memory that the caller frees. The same text gives the same bytes
 * everywhere. Time is linear; memory up to 3 * size and 75 MiB. */
int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, fault *f);

/* The same for a text that follows `before` other bytes in memory: what is like them costs little. Who restores it
 * must have the same bytes there. */
int text_encode_after(uint8_t **coded, size_t *coded_size, const void *text, size_t size, size_t before, fault *f);

/* Restores a text of exactly `size` bytes. `coded` may be anything; offsets in messages count from its start. */
int text_decode(void *text, size_t size, const void *coded, size_t coded_size, fault *f);
int text_decode_after(void *text, size_t size, size_t before, const void *coded, size_t coded_size, fault *f);

#endif
