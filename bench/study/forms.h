/* The size of a change from one tensor to another, in every form that has been proposed for it. */
#ifndef STUDY_FORMS_H
#define STUDY_FORMS_H

#include <stddef.h>
#include <stdint.h>

#include "bitsnap.h"

enum form {
    FULL,         /* bitsnap without a base */
    DELTA,        /* bitsnap with a base, level default */
    BEST,         /* level best */
    SELF,         /* level default, self-contained */
    FAST,         /* level fast */
    XOR_HUFFMAN,  /* XOR, byte planes, each by LMC's runs and Huffman code (bench/lmc.h) */
    XOR_ZSTD_1,   /* XOR, byte planes, each by zstd -1 */
    XOR_ZSTD_19,  /* XOR, byte planes, each by zstd -19 */
    MASK,         /* BitSnap (arXiv 2511.12376): a bit for each element, and the changed ones. Counted */
    PAIRS,        /* changed elements, each with its index in 32 bits. Counted */
    GAPS,         /* changed elements, each with a 16-bit distance from the one before, or several. Counted */
    FORMS
};

enum { ALL_FORMS = (1 << FORMS) - 1, WIDTH_MAX = 8 };

extern const char *const form_names[FORMS];

/* The change from `base` to `data`, n elements each. */
typedef struct change {
    bitsnap_dtype dtype, base_dtype; /* if they differ, `base` is a master copy, which only bitsnap's forms support */
    const void *base, *data;
    size_t n;
} change;

typedef struct measured {
    size_t n, changed;
    unsigned width;
    size_t bytes[FORMS];       /* 0: not measured */
    size_t plain;              /* FULL with the blocks of DELTA; 0: not measured */
    uint64_t cells[4][3];      /* cells of DELTA, BEST, SELF, FAST: unchanged, classed, coded without the base */
    double entropy[WIDTH_MAX]; /* order-0, in bits, of each byte plane of the data; 0 is the lowest byte */
    double xor_entropy[WIDTH_MAX]; /* order-0, of the data XOR the base */
} measured;

/* Measures the forms whose bit is set. Sizes marked "Counted" are computed. All others come from encoded data, which is
 * restored and compared; the program exits if that fails. */
measured forms_measure(const change *c, unsigned forms);

/* Returns 0 if this program was built without the library of the form. */
int form_is_there(enum form form);

double bits_per_element(const measured *m, enum form form);

#endif
