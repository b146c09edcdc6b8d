/* What the change from one tensor to another takes, in every form that has been proposed for it. */
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
    XOR_ZSTD_19,  /* the same by zstd -19 */
    MASK,         /* BitSnap (arXiv 2511.12376): a bit for each element, and those that have changed. Counted */
    PAIRS,        /* those that have changed, each with its index in 32 bits. Counted */
    GAPS,         /* each with its distance from the one before in 16 bits; longer ones in steps of 65536. Counted */
    FORMS
};

enum { ALL_FORMS = (1 << FORMS) - 1, WIDTH_MAX = 8 };

extern const char *const form_names[FORMS];

/* The change from `base` to `data`, n elements each. */
typedef struct change {
    bitsnap_dtype dtype, base_dtype; /* where they differ, `base` is a master copy: bitsnap's forms only */
    const void *base, *data;
    size_t n;
} change;

typedef struct measured {
    size_t n, changed;
    unsigned width;
    size_t bytes[FORMS];       /* 0: not measured */
    size_t plain;              /* FULL with the blocks of DELTA; 0: not measured */
    uint64_t cells[4][3];      /* of DELTA, BEST, SELF, FAST: the same, classed, plain */
    double entropy[WIDTH_MAX]; /* order-0, in bits, of each byte plane of the data; 0 is the lowest byte */
    double xor_entropy[WIDTH_MAX]; /* of the data XOR the base */
} measured;

/* Measures the forms whose bit is set. What is not counted is really made, restored and compared; the program ends where
 * that fails. */
measured forms_measure(const change *c, unsigned forms);

/* 0 where this program was built without what it takes */
int form_is_there(enum form form);

double bits_per_element(const measured *m, enum form form);

#endif
