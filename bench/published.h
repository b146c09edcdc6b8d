/* Figures that other projects published, measured on their machines. They show an order of magnitude, and cannot
 * be compared with our own rows. */
#ifndef BENCH_PUBLISHED_H
#define BENCH_PUBLISHED_H

#include <stddef.h>

typedef struct published {
    const char *codec, *dtype;
    double ratio;                /* 0: not published */
    double compress, decompress; /* GB/s of one core */
    const char *claim, *source;
} published;

/* Returns null past the last. */
const published *published_get(size_t index);

#endif
