/* bytes.h - little-endian numbers in files.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_BYTES_H
#define TOOL_BYTES_H

#include <stdint.h>

/* Reads a number of `width` bytes, at most 8. If the width is constant, compilers make this one load. */
static inline uint64_t bytes_load(const uint8_t *p, unsigned width)
{
    uint64_t x = 0;
    unsigned i;
    for (i = 0; i < width; i++) x |= (uint64_t)p[i] << 8 * i;
    return x;
}

static inline void bytes_store(uint8_t *p, uint64_t x, unsigned width)
{
    unsigned i;
    for (i = 0; i < width; i++) p[i] = (uint8_t)(x >> 8 * i);
}

static inline uint32_t load32(const uint8_t *p) { return (uint32_t)bytes_load(p, 4); }
static inline uint64_t load64(const uint8_t *p) { return bytes_load(p, 8); }
static inline void store32(uint8_t *p, uint32_t x) { bytes_store(p, x, 4); }
static inline void store64(uint8_t *p, uint64_t x) { bytes_store(p, x, 8); }

#endif
