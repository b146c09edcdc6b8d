/* quantized.h - bodies whose words become elements by scales or bins of octaves (FORMAT.md 5.8 to 5.11), up to F32: SCALED, and
 * QUANTIZED of family 1. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_QUANTIZED_H
#define OFFLOAD_QUANTIZED_H

#include "delta.h"

#define SCALES_AT (576u << 10) /* after the scratch of words_read: at most n + 3 scales, and slack for merging */
#define SCALES_SIZE (66u << 10)
#define CELLS_MOST 2048
#define CERTIFICATE 44

typedef struct Numbers {
    u32 signs, exact, exact_at, rows, columns, begin; /* begin: column of the first element; columns 0: no scales */
    u32 cells, mantissa, octaves, base; /* base: signed */
} Numbers;

FN u32 mantissa_of(u32 dtype) { return dtype == BITSNAP_F16 ? 10 : dtype == BITSNAP_BF16 ? 7 : 23; }

/* Returns threshold T_j (5.11) of Q bins, by squaring 2^(1/Q) with 62 bits of fraction. Exact, because no threshold is closer
 * than 2^-21 to an integer. */
FN u64 fraction_multiply(u64 a, u64 b) { return MULHI64(a, b) << 2 | a * b >> 62; }
FN u32 cell_threshold(u32 cells, u32 j)
{
    const u64 exponent = (u64)0xB17217F7D1CF79AB / cells; /* ln 2 / Q */
    u64 term = exponent, root = 0, power = (u64)1 << 62;
    u32 k;
    if (j == cells) return 1u << 24;
    for (k = 2; term; k++) {
        root += term;
        term = MULHI64(term, exponent) / k;
    }
    for (root = ((u64)1 << 62) + (root >> 2); j; j >>= 1) {
        if (j & 1) power = fraction_multiply(power, root);
        root = fraction_multiply(root, root);
    }
    return (u32)((power + ((u64)1 << 39) - 1) >> 39);
}

/* Returns the significand, of k + 1 bits, that bin j, [a, b), decodes to; 0 if there is none. */
FN u32 cell_center(u32 cells, u32 a, u32 b, u32 j, u32 k)
{
    const u32 shift = 23 - k, low = (a + (1u << shift) - 1) >> shift, high = (b - 1) >> shift;
    const u64 sum = (u64)a + b;
    u32 center;
    if (1u << k <= cells) return j < 1u << k ? (1u << k) + j : 0;
    center = ((u32)((4 * (u64)a * b + sum) / (2 * sum)) + (1u << shift >> 1)) >> shift;
    return low > high ? 0 : center < high ? center : high;
}

/* Returns the number, without its sign, that bin q decodes to; 0 if there is none. `thresholds`: of all bins of an octave.
 * `normal`: their significands in octaves of normal numbers. */
FN u32 cell_number(LOCAL const Numbers *x, GLOBAL const u32 *thresholds, GLOBAL const u32 *normal, u32 q)
{
    const u32 octave = q / x->cells, j = q - octave * x->cells, m = x->mantissa;
    if (octave < m) return cell_center(x->cells, thresholds[j], thresholds[j + 1], j, octave);
    return normal[j] ? ((octave - m) << m) + normal[j] : 0;
}

/* Reads a body up to the scales, by one work-item. */
FN u32 numbers_begin(LOCAL Numbers *x, LOCAL Lists *p, const Source s, GLOBAL const bitsnap_work *work)
{
    const u32 quantized = (work->head & 255) == 7, at = p->at + (quantized ? CERTIFICATE : 0), width = width_of[work->dtype];
    u32 there;
    u64 exact;
    if (p->end - p->at < (quantized ? CERTIFICATE : 0) + 5 || read8(s, at) > 1) return quantized ? ST_CORRUPT(50) : ST_CORRUPT(49);
    x->signs = read8(s, at);
    x->base = read32(s, at + 1);
    x->cells = work->bins;
    x->mantissa = mantissa_of(work->dtype);
    x->octaves = x->mantissa + (1u << (8 * width - 1 - x->mantissa)) - 2;
    x->exact = 0;
    x->exact_at = at + 5;
    if (quantized) {
        exact = read64(s, p->at + 8);
        if (read64(s, p->at + 24) > (u64)0x7FF0000000000000 || read64(s, p->at + 32) > (u64)0x7FF0000000000000 ||
            exact > (p->end - x->exact_at) / width) return ST_CORRUPT(50);
        x->exact = (u32)exact;
    }
    p->at = x->exact_at + x->exact * width;
    if (p->at == p->end) return ST_CORRUPT(49);
    there = read8(s, p->at++);
    x->columns = there ? work->columns : 0;
    if (there > 1 || (there ? !x->columns || x->columns > work->count : !quantized)) return ST_CORRUPT(49);
    if (there) {
        x->begin = (u32)(work->first % x->columns);
        x->rows = (x->begin + work->count - 1) / x->columns + 1;
    }
    return ST_OK;
}

FN u32 scale_of(LOCAL const Numbers *x, GLOBAL const u8 *scales, u32 i)
{
    const u32 at = x->begin + i;
    return x->columns ? scales[at / x->columns] + scales[((x->rows + 3) & ~3u) + 8 + at % x->columns] : 0;
}

/* Stores the elements of bins, and the exactly stored elements in their order, by the whole group. */
FN void cells_put(LANES LOCAL const Numbers *x, LOCAL Lists *p, GLOBAL const u32 *words, GLOBAL const u32 *thresholds,
                  GLOBAL const u32 *normal, GLOBAL const u8 *scales, const Source s, u32 width, u64 target, u32 n)
{
    const u32 lane = THREAD % WARP;
    const Share share = share_of(n, WARP);
    u32 pass, i, at = 0, all = 0, wrong = 0;
    for (pass = 0; pass < 2; pass++) {
        for (i = share.begin; i < share.end; i += WARP) {
            const u32 in = i + lane < share.end, word = in ? words[i + lane] : 0, u = word >> x->signs, exact = in && u == 1;
            const u32 found = BALLOT(exact), number = at + POPC(found & ((1u << lane) - 1));
            at += POPC(found);
            if (!pass || !in) continue;
            if (exact) {
                const u32 from = x->exact_at + number * width;
                if (number >= x->exact) wrong = 1;
                else put_element((GLOBAL void *)(size_t)target, width, i + lane, read32(s, from));
            } else {
                u32 v = 0;
                if (u) {
                    const u64 q = (u64)u - 2 + x->base - ((u64)(x->base >> 31) << 32) + (x->cells * scale_of(x, scales, i + lane) + 4) / 8;
                    if (q < x->cells * x->octaves) v = cell_number(x, thresholds, normal, (u32)q);
                    if (!v) wrong = 1;
                }
                put_element((GLOBAL void *)(size_t)target, width, i + lane, v | (word & x->signs) << (8 * width - 1));
            }
        }
        if (pass) break;
        if (lane == 0) p->part[0][THREAD / WARP] = at;
        SYNC();
        at = part_before(p->part[0], &all);
    }
    if (wrong || all != x->exact) p->status = ST_CORRUPT(50);
}

/* Decodes a body at p->at, by the whole group. The scratch memory is that of words_read, then scales. Thresholds overwrite its
 * positions. */
PART void numbers_decode(LANES LOCAL Numbers *x, LOCAL Words *y, LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch,
                         u32 used, const Source s, GLOBAL const bitsnap_work *work)
{
    const u32 quantized = (work->head & 255) == 7, n = work->count, width = width_of[work->dtype];
    GLOBAL u16 *here = (GLOBAL u16 *)(scratch + PLACES_AT / 4), *there = here + 65536;
    GLOBAL u32 *words = scratch + WORDS_AT / 4, *thresholds = scratch + PLACES_AT / 4, *normal = thresholds + CELLS_MOST + 2;
    GLOBAL const u8 *scales = (GLOBAL const u8 *)scratch + SCALES_AT;
    u32 i;
    if (THREAD == 0) p->status = numbers_begin(x, p, s, work);
    SYNC();
    if (p->status) return;
    if (x->columns) {
        list_read_apart(LANES_ p, arena, arena_size, scratch, used, s, x->rows, 8, SCALES_AT);
        if (p->status) return;
        list_read_apart(LANES_ p, arena, arena_size, scratch, used, s, x->columns, 8, SCALES_AT + ((x->rows + 3) & ~3u) + 8);
        if (p->status) return;
    }
    words_read(LANES_ y, p, arena, arena_size, scratch, used, s, n, quantized ? 4 : width, 0, here, there, words);
    if (p->status || p->at != p->end) return; /* the caller reports R33 */
    if (quantized) {
        for (i = THREAD; i <= x->cells; i += THREADS) thresholds[i] = cell_threshold(x->cells, i);
        SYNC();
        for (i = THREAD; i < x->cells; i += THREADS)
            normal[i] = cell_center(x->cells, thresholds[i], thresholds[i + 1], i, x->mantissa);
        cells_put(LANES_ x, p, words, thresholds, normal, scales, s, width, work->target, n);
        return;
    }
    for (i = THREAD; i < n; i += THREADS) {
        const u32 word = words[i], above = (scale_of(x, scales, i) + x->base) << (x->mantissa - 3), top = 8 * width - 1;
        const u32 v = x->signs ? (((word >> 1) + above) & ((1u << top) - 1)) | (word & 1) << top : word + above;
        put_element((GLOBAL void *)(size_t)work->target, width, i, v);
    }
}

#endif
