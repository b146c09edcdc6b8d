/* delta.h - bodies that hold differences from predictions (FORMAT.md 5.7, 5.14, 6.3). MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_DELTA_H
#define OFFLOAD_DELTA_H

#include "list.h"

#define WORD_LEVELS 4

typedef struct Base {
    GLOBAL const void *elements;
    u32 dtype, role; /* of the frame; role 2: the base has F32 elements, which are cast */
} Base;

CONSTANT u8 width_of[12] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 2, 4, 8 };

FN u32 cast_bf16(u32 x)
{
    return (x & 0x7FFFFFFF) > 0x7F800000 ? x >> 16 | 0x40 : (x + 0x7FFF + (x >> 16 & 1)) >> 16;
}
FN u32 cast_f16(u32 x)
{
    const u32 sign = x >> 16 & 0x8000, a = x & 0x7FFFFFFF;
    u32 r, rest, shift, middle;
    if (a > 0x7F800000) return sign | 0x7E00 | (a >> 13 & 0x1FF);
    if (a >= 0x47800000) return sign | 0x7C00; /* 2^16 */
    if (a >= 0x38800000) {                     /* 2^-14 */
        r = a - 0x38000000;
        return sign | (r + 0xFFF + (r >> 13 & 1)) >> 13;
    }
    if (a < 0x33000000) return sign; /* below half of the smallest subnormal */
    shift = 126 - (a >> 23);
    rest = (a & 0x7FFFFF) | 0x800000;
    middle = 1u << (shift - 1);
    r = rest >> shift;
    rest &= 2 * middle - 1;
    return sign | (r + (rest > middle || (rest == middle && (r & 1))));
}
FN u32 predict(const Base base, u32 i)
{
    if (base.role == 2) {
        const u32 x = ((GLOBAL const u32 *)base.elements)[i];
        return base.dtype == BITSNAP_F16 ? cast_f16(x) : cast_bf16(x);
    }
    switch (width_of[base.dtype]) {
    case 1: return ((GLOBAL const u8 *)base.elements)[i];
    case 2: return ((GLOBAL const u16 *)base.elements)[i];
    default: return ((GLOBAL const u32 *)base.elements)[i];
    }
}
FN void put_element(GLOBAL void *elements, u32 width, u32 i, u32 v)
{
    if (width == 1) ((GLOBAL u8 *)elements)[i] = (u8)v;
    else if (width == 2) ((GLOBAL u16 *)elements)[i] = (u16)v;
    else ((GLOBAL u32 *)elements)[i] = v;
}
FN u32 difference_of(u32 word) { return word & 1 ? 0u - (word >> 1) - 1 : word >> 1; }

FN u32 exponent_of(u32 v, u32 dtype)
{
    switch (dtype) {
    case BITSNAP_F8_E4M3: return v >> 3 & 15;
    case BITSNAP_F8_E5M2: return v >> 2 & 31;
    case BITSNAP_F16: return v >> 10 & 31;
    case BITSNAP_BF16: return v >> 7 & 255;
    default: return v >> 23 & 255;
    }
}

/* ---- CLASSED ---- */

typedef struct Words {
    u32 classes, border[8];
    u32 count[8];            /* number of elements of each class */
    u32 part[8][WARPS];
    u32 shift, limit, low;   /* of the list of words being read; low: offset of its low bits */
    u32 changed;             /* SPARSE: number of changed elements */
    u8 class_of[256];        /* by exponent */
} Words;

/* Lists the positions of the elements of class 0, in order, then of class 1, ..., by the whole group. `classes`: n bytes of
 * scratch. */
FN void words_deal(LANES LOCAL Words *x, const Base base, GLOBAL u8 *classes, GLOBAL u16 *places, u32 n)
{
    const u32 lane = THREAD % WARP, step = AT_ONCE * WARP;
    const Share share = share_of(n, step);
    u32 at[8] = { 0, 0, 0, 0, 0, 0, 0, 0 }, sum = 0, i, k, w, u, c[AT_ONCE];
    for (i = THREAD; i < 256; i += THREADS) {
        for (k = w = 0; k < x->classes; k++) w += x->border[k] <= i;
        x->class_of[i] = (u8)(w - 1);
    }
    SYNC();
    for (i = share.begin + lane; i - lane < share.end; i += step) {
        UNROLL
        for (u = 0; u < AT_ONCE; u++) c[u] = i + u * WARP < share.end ? x->class_of[exponent_of(predict(base, i + u * WARP), base.dtype)] : 8;
        UNROLL
        for (u = 0; u < AT_ONCE; u++) {
            if (c[u] < 8) classes[i + u * WARP] = (u8)c[u];
            UNROLL
            for (k = 0; k < 8; k++)
                if (k < x->classes) at[k] += POPC(BALLOT(c[u] == k));
        }
    }
    UNROLL
    for (k = 0; k < 8; k++)
        if (lane == 0) x->part[k][THREAD / WARP] = at[k];
    SYNC();
    UNROLL
    for (k = 0; k < 8; k++)
        if (k < x->classes) {
            u32 all;
            at[k] = sum + part_before(x->part[k], &all);
            sum += all;
            if (THREAD == 0) x->count[k] = all;
        }
    for (i = share.begin + lane; i - lane < share.end; i += step) {
        UNROLL
        for (u = 0; u < AT_ONCE; u++) c[u] = i + u * WARP < share.end ? classes[i + u * WARP] : 8;
        UNROLL
        for (u = 0; u < AT_ONCE; u++)
            UNROLL
            for (k = 0; k < 8; k++)
                if (k < x->classes) {
                    const u32 all = BALLOT(c[u] == k);
                    if (c[u] == k) places[at[k] + POPC(all & ((1u << lane) - 1))] = (u16)(i + u * WARP);
                    at[k] += POPC(all);
                }
    }
    SYNC();
}

/* Copies the positions whose symbols equal the limit, in order, by the whole group. `from`: m positions; null: 0, 1, ... Returns
 * the number of positions copied. */
FN u32 words_escaped(LANES LOCAL Words *x, GLOBAL const u8 *symbols, GLOBAL const u16 *from, GLOBAL u16 *to, u32 m)
{
    const u32 lane = THREAD % WARP;
    const Share share = share_of(m, WARP);
    u32 pass, i, at = 0, all = 0;
    for (pass = 0; pass < 2; pass++) {
        UNROLL_4
        for (i = share.begin; i < share.end; i += WARP) {
            const u32 wanted = i + lane < share.end && symbols[i + lane] == x->limit, found = BALLOT(wanted);
            if (pass && wanted) to[at + POPC(found & ((1u << lane) - 1))] = from ? from[i + lane] : (u16)(i + lane);
            at += POPC(found);
        }
        if (pass) break;
        if (lane == 0) x->part[0][THREAD / WARP] = at;
        SYNC();
        at = part_before(x->part[0], &all);
    }
    return all;
}

FN u32 words_begin(LOCAL Words *x, LOCAL Lists *p, const Source s, u32 dtype)
{
    u32 k;
    if (p->at == p->end) return ST_CORRUPT(46);
    x->classes = read8(s, p->at++);
    if (x->classes < 1 || x->classes > (dtype < BITSNAP_F8_E4M3 ? 1u : 8u) || p->end - p->at < x->classes - 1) return ST_CORRUPT(46);
    x->border[0] = 0;
    for (k = 1; k < x->classes; k++) {
        x->border[k] = read8(s, p->at++);
        if (x->border[k] <= x->border[k - 1]) return ST_CORRUPT(46);
    }
    return ST_OK;
}

/* Reads the head of a list of m words, up to the list of symbols, by one work-item. */
FN u32 words_head(LOCAL Words *x, LOCAL Lists *p, const Source s, u32 m, u32 level, u32 used, u32 width)
{
    u32 low, v, k, at;
    if (p->at == p->end) return ST_CORRUPT(47);
    x->shift = read8(s, p->at++);
    if (x->shift == 128) {
        if ((p->end - p->at) / width < m) return ST_CORRUPT(47);
        x->low = p->at;
        p->at += m * width;
        return ST_OK;
    }
    if (level == WORD_LEVELS || used + x->shift >= 8 * width || p->at == p->end) return ST_CORRUPT(47);
    x->limit = read8(s, p->at++);
    x->low = p->at;
    low = x->shift / 8 * m + x->shift % 8 * (m / 64 * 8 + (m % 64 + 7) / 8);
    if (p->end - p->at < low) return ST_CORRUPT(47);
    p->at += low;
    if (m % 8) {
        v = (m % 64 + 7) / 8;
        at = x->low + x->shift / 8 * m + x->shift % 8 * (m / 64 * 8) + v - 1;
        for (k = 0; k < x->shift % 8; k++)
            if (read8(s, at + k * v) >> m % 8) return ST_CORRUPT(22);
    }
    return ST_OK;
}

/* Returns the low bits of word j of m. Those of all words are stored from byte `at` on. */
FN u32 words_low(const Source s, u32 at, u32 shift, u32 m, u32 j)
{
    const u32 bits = shift % 8, bytes = j / 64 < m / 64 ? 8 : (m % 64 + 7) / 8;
    u32 low = 0, k;
    for (k = 0; k < shift / 8; k++) low |= read8(s, at + k * m + j) << 8 * k;
    at += shift / 8 * m + j / 64 * 8 * bits + j % 64 / 8;
    for (k = 0; k < bits; k++) low |= (read8(s, at + k * bytes) >> j % 8 & 1) << (shift - bits + k);
    return low;
}

/* Reads a list of m words to words[which[0]], words[which[1]], ...; null: 0, 1, ... A word whose symbol equals the limit
 * continues in the next level. So each level adds its bits, and hands the positions of the remaining words to the next. */
FN void words_read(LANES LOCAL Words *x, LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 used, const Source s, u32 m,
                   u32 width, GLOBAL const u16 *which, GLOBAL u16 *here, GLOBAL u16 *there, GLOBAL u32 *words)
{
    GLOBAL const u8 *symbols = (GLOBAL const u8 *)scratch;
    u32 level, total = 0, j, u;
    for (level = 0; m; level++) {
        u32 at, shift, limit;
        SYNC();
        if (THREAD == 0) p->status = words_head(x, p, s, m, level, total, width);
        SYNC();
        shift = x->shift;
        limit = x->limit;
        at = x->low;
        if (p->status) return;
        if (shift != 128) list_read_apart(LANES_ p, arena, arena_size, scratch, used, s, m, 8, 0);
        if (p->status) return;
        SYNC();
        for (j = THREAD; j < m; j += AT_ONCE * THREADS) {
            u32 place[AT_ONCE], word[AT_ONCE], above = 0;
            UNROLL
            for (u = 0; u < AT_ONCE; u++) {
                const u32 i = j + u * THREADS < m ? j + u * THREADS : m - 1, symbol = shift == 128 ? 0 : symbols[i];
                place[u] = which ? which[i] : i;
                word[u] = shift == 128 ? read32(s, at + i * width) : words_low(s, at, shift, m, i) + (symbol << shift);
                above |= limit && symbol > limit;
            }
            if (above) p->status = ST_CORRUPT(47);
            UNROLL
            for (u = 0; u < AT_ONCE; u++)
                if (j + u * THREADS < m) words[place[u]] = (level ? words[place[u]] : 0) + (word[u] << total);
        }
        SYNC();
        if (p->status || shift == 128) return;
        total += shift;
        m = limit ? words_escaped(LANES_ x, symbols, which, here, m) : 0;
        which = here;
        here = there;
        there = (GLOBAL u16 *)which;
    }
}

/* Decodes the body of a CLASSED block at p->at, in scratch memory. Its first 576 KiB hold symbols, two lists of positions, and
 * words. */
#define PLACES_AT (64u << 10)
#define WORDS_AT (320u << 10)
PART void classed_decode(LANES LOCAL Words *x, LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 used, const Source s,
                         const Base base, u32 n)
{
    const u32 width = width_of[base.dtype];
    GLOBAL u16 *here = (GLOBAL u16 *)(scratch + PLACES_AT / 4), *there = here + 65536;
    GLOBAL u32 *words = scratch + WORDS_AT / 4;
    u32 k, i;
    if (THREAD == 0) p->status = words_begin(x, p, s, base.dtype);
    SYNC();
    if (p->status) return;
    if (x->classes > 1) {
        words_deal(LANES_ x, base, (GLOBAL u8 *)scratch, here, n);
        for (k = i = 0; k < x->classes; i += x->count[k++]) {
            words_read(LANES_ x, p, arena, arena_size, scratch, used, s, x->count[k], width, here + i, there, here + i, words);
            if (p->status) return;
        }
    } else {
        words_read(LANES_ x, p, arena, arena_size, scratch, used, s, n, width, 0, here, there, words);
    }
    if (p->status || p->at != p->end) return; /* the caller reports R33 */
    for (i = THREAD; i < n; i += AT_ONCE * THREADS) {
        u32 v[AT_ONCE], u;
        UNROLL
        for (u = 0; u < AT_ONCE; u++) {
            const u32 k = i + u * THREADS < n ? i + u * THREADS : n - 1;
            v[u] = predict(base, k) + difference_of(width == 4 ? words[k] : words[k] & ((1u << 8 * width) - 1));
        }
        UNROLL
        for (u = 0; u < AT_ONCE; u++)
            if (i + u * THREADS < n) put_element(here, width, i + u * THREADS, v[u]);
    }
}

/* ---- SPARSE ---- */

/* Reads at most 32 bits, from bit `at` on after byte `byte`. */
FN u32 read_bits(const Source s, u32 byte, u32 at, u32 bits)
{
    const u32 word = FUNNEL(read32(s, byte + at / 8), read32(s, byte + at / 8 + 4), at % 8);
    return bits < 32 ? word & ((1u << bits) - 1) : word;
}

/* Decodes the body of a SPARSE block of up to 2^20 elements at p->at. Positions and differences of changed elements go to scratch
 * memory. */
#define NUMBERS_AT (256u << 10)
#define LEAF_AT (512u << 10) /* room for 65536 elements */
PART void sparse_decode(LANES LOCAL Words *x, LOCAL Lists *p, GLOBAL u32 *scratch, const Source s, const Base base, u32 n)
{
    const u32 width = width_of[base.dtype], W = 8 * width, at = p->at, size = p->end - at, none = width == 4 ? ~0u : (1u << W) - 1;
    GLOBAL u32 *place = scratch, *number = scratch + NUMBERS_AT / 4;
    u32 c, l, a, escaping, f = 0, body, high, numbers, escaped, bits, i, k, ones = 0, escapes = 0, all, wrong = 0;
    c = size < 4 ? 0 : read32(s, at) & 0xFFFF;
    l = size < 4 ? 0 : read8(s, at + 2);
    a = size < 4 ? 0 : read8(s, at + 3);
    escaping = a >> 7;
    a &= 127;
    if (escaping) f = size < 6 ? 0 : read32(s, at + 4) & 0xFFFF;
    body = at + 4 + 2 * escaping;
    if (size < 4 + 2 * escaping || c < 1 || c > n / 16 || l > 20 || a > W - escaping || a < escaping || f > c || f < escaping) wrong = 1;
    else {
        high = c * l;
        numbers = high + c + ((n - 1) >> l);
        escaped = numbers + c * a;
        bits = escaped + f * W;
        wrong = (bits + 7) / 8 != p->end - body || (bits % 8 && read8(s, p->end - 1) >> bits % 8);
    }
    if (wrong) {
        if (THREAD == 0) p->status = ST_CORRUPT(52);
        return;
    }
    for (k = 0; k < numbers - high; k += 32 * THREADS) { /* 32 bits each */
        const u32 from = k + 32 * THREAD, some = from < numbers - high ? numbers - high - from : 0;
        u32 m = some ? read_bits(s, body, high + from, some < 32 ? some : 32) : 0;
        i = ones + group_before(LANES_ POPC(m), &all, x->part[0]);
        ones += all;
        for (; m; m &= m - 1, i++)
            if (i < c) place[i] = ((from + CTZ(m) - i) << l) | read_bits(s, body, i * l, l);
        SYNC();
    }
    for (k = 0; k < c; k += THREADS) {
        u32 v = 0, is_escape = 0;
        i = k + THREAD;
        if (i < c) v = read_bits(s, body, numbers + i * a, a);
        is_escape = i < c && escaping && v == (1u << a) - 1;
        {
            const u32 e = escapes + group_before(LANES_ is_escape, &all, x->part[0]);
            escapes += all;
            if (is_escape && e < f) {
                v = read_bits(s, body, escaped + e * W, W);
                if (v < (1u << a) - 1) wrong = 1;
            }
        }
        if (i < c) {
            if (v == none) wrong = 1;
            number[i] = v;
        }
        SYNC();
    }
    if (ones != c || escapes != f) wrong = 1;
    for (i = THREAD; i < c && !wrong; i += THREADS)
        if (place[i] >= n || (i && place[i] <= place[i - 1])) wrong = 1;
    if (wrong) p->status = ST_CORRUPT(52);
    if (THREAD == 0) {
        x->changed = c;
        p->at = p->end;
    }
}

/* Stores elements first .. first + count - 1 of a SPARSE or SAME block. `to` may be the base itself, from `first` on. */
PART void sparse_put(LOCAL const Words *x, GLOBAL const u32 *scratch, const Base base, GLOBAL void *to, u32 first, u32 count)
{
    GLOBAL const u32 *place = scratch, *number = scratch + NUMBERS_AT / 4;
    const u32 width = width_of[base.dtype], changed = x->changed;
    u32 i, low = 0, high = changed;
    for (i = THREAD; i < count; i += THREADS) put_element(to, width, i, predict(base, first + i));
    SYNC();
    while (low < high) { /* finds the first change at `first` or later */
        const u32 middle = (low + high) / 2;
        if (place[middle] < first) low = middle + 1;
        else high = middle;
    }
    for (i = low + THREAD; i < changed && place[i] - first < count; i += THREADS)
        put_element(to, width, place[i] - first, predict(base, place[i]) + difference_of(number[i] + 1));
}

#endif
