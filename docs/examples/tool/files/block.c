/* block.c - blocks of frames by their heads, and what else of a frame has a size: docs/FORMAT.md, sections 5 and 6.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "block.h"

#include "bytes.h"

#include <string.h>

static double load_double(const uint8_t *p)
{
    const uint64_t bits = load64(p);
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

bitsnap_certificate certificate_read(const uint8_t *p, unsigned cells)
{
    const double unit = 1 / 16777216.0; /* 2^-24 */
    bitsnap_certificate c;
    c.bound = cells ? bitsnap_log_bound(cells) : 0;
    c.counted = load64(p);
    c.exact = load64(p + 8);
    c.mean_relative = c.counted ? (double)load64(p + 16) * unit / (double)c.counted : 0;
    c.mean_square = c.counted ? load_double(p + 24) / (double)c.counted : 0;
    c.max_absolute = load_double(p + 32);
    c.max_relative = load32(p + 40) * unit;
    return c;
}

block_size block_look(const uint8_t *p, const block_kind *k, uint64_t left)
{
    block_size b;
    b.form = p[0];
    b.prefix = 4 + (k->checks ? 8u : 0u) + (k->base ? 16u : 0u);
    b.cells = b.form == FORM_CONST ? load32(p) >> 8 : 1;
    b.whole = b.prefix + (uint64_t)(b.form == FORM_CONST ? k->width : load32(p) >> 8);
    b.elements = b.cells << k->block_log2 < left ? b.cells << k->block_log2 : left;
    return b;
}

uint64_t index_size(uint64_t blocks)
{
    uint64_t n = blocks, size = 4 * n;
    while (n > 256) {
        n = (n + 255) / 256;
        size += 24 * n;
    }
    return size;
}
