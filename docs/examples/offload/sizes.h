/* sizes.h - sizes that must be equal on hosts and devices. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_SIZES_H
#define OFFLOAD_SIZES_H

#define MAX_ELEMENTS 65536       /* most elements of a block, except CONST, SAME and SPARSE; larger ones are left to the host */
#define MAX_SPARSE (1u << 20)
#define LARGE_ARENA (160u << 10) /* bytes for the masks of 65536 symbols of 8 bits, and their ranks */
/* bytes for plans of codes, and the hashes of every KiB of a block of up to 4 bytes an element */
#define LEAST_ARENA (17u << 10)

#ifndef __OPENCL_VERSION__
#include "bitsnap.h"

/* Returns whether the body of a block has words. */
static inline int offload_has_words(const bitsnap_work *work)
{
    return work->role || (work->head & 255) == 6 || (work->head & 255) == 7;
}

/* Returns the bytes of scratch memory that a group needs to decode these blocks: symbols of each plane or the scratch of deltas,
 * lists inside lists, and an arena for masks that do not fit the group's own. */
static inline uint32_t offload_scratch_of(const bitsnap_work *works, size_t count)
{
    uint32_t symbols = 1;
    size_t i;
    for (i = 0; i < count; i++) {
        const uint32_t form = works[i].head & 255, many = form == 3 || form == 9;
        const uint32_t planes = many ? bitsnap_width((bitsnap_dtype)works[i].dtype) : 1;
        if (offload_has_words(&works[i])) symbols = 11;
        else if (planes > symbols && planes <= 4) symbols = planes;
    }
    return symbols * MAX_ELEMENTS + 3 * MAX_ELEMENTS + LARGE_ARENA;
}

/* Returns the bytes that a group needs to encode: lists, and with bins also words, tables and scales. */
static inline uint32_t offload_scratch_to_encode(const bitsnap_work *works, size_t count)
{
    while (count && !works[count - 1].bins) count--;
    return (count ? 11 : 6) * MAX_ELEMENTS;
}
#endif

#endif
