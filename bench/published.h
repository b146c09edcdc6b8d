/* What others have published of themselves: measured on machines of theirs, so to be read beside our own rows for
 * their order of magnitude, never as a comparison. */
#ifndef BENCH_PUBLISHED_H
#define BENCH_PUBLISHED_H

#include <stddef.h>

typedef struct published {
    const char *codec, *dtype;
    double ratio;                /* 0: not published */
    double compress, decompress; /* GB/s of one core */
    const char *claim, *source;
} published;

/* Null behind the last. */
const published *published_get(size_t index);

#endif
