/* delta.h - bodies that say how elements differ from their predictions (FORMAT.md 5.7, 5.14, 6.3). MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_DELTA_H
#define OFFLOAD_DELTA_H

#include "list.h"

#define WORD_LEVELS 4

typedef struct Base {
    const void *elements;
    u32 dtype, role; /* of the frame; role 2: the elements are F32, and cast */
} Base;

CONSTANT u8 width_of[12] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 2, 4, 8 };

FN u32 cast_bf16(u32 x)
{
    return (x & 0x7FFFFFFF) > 0x7F800000 ? x >> 16 | 0x40 : (x + 0x7FFF + (x >> 16 & 1)) >> 16;
}
FN u32 cast_f16(u32 x)
{
    const u32 sign = x >> 16 & 0x8000, a = x & 0x7FFFFFFF;
    u32 r, rest, shift, half;
    if (a > 0x7F800000) return sign | 0x7E00 | (a >> 13 & 0x1FF);
    if (a >= 0x47800000) return sign | 0x7C00; /* 2^16 */
    if (a >= 0x38800000) {                     /* 2^-14 */
        r = a - 0x38000000;
        return sign | (r + 0xFFF + (r >> 13 & 1)) >> 13;
    }
    if (a < 0x33000000) return sign; /* below half of the least subnormal */
    shift = 126 - (a >> 23);
    rest = (a & 0x7FFFFF) | 0x800000;
    half = 1u << (shift - 1);
    r = rest >> shift;
    rest &= 2 * half - 1;
    return sign | (r + (rest > half || (rest == half && (r & 1))));
}
FN u32 predict(const Base base, u32 i)
{
    if (base.role == 2) return base.dtype == BITSNAP_F16 ? cast_f16(((const u32 *)base.elements)[i]) : cast_bf16(((const u32 *)base.elements)[i]);
    switch (width_of[base.dtype]) {
    case 1: return ((const u8 *)base.elements)[i];
    case 2: return ((const u16 *)base.elements)[i];
    default: return ((const u32 *)base.elements)[i];
    }
}
FN void put_element(void *elements, u32 width, u32 i, u32 v)
{
    if (width == 1) ((u8 *)elements)[i] = (u8)v;
    else if (width == 2) ((u16 *)elements)[i] = (u16)v;
    else ((u32 *)elements)[i] = v;
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
    u32 part[WARPS];
    u32 shift, limit; /* of the list of words being read */
} Words;

FN u32 class_of(const Words *x, const Base base, u32 i)
{
    const u32 exponent = exponent_of(predict(base, i), base.dtype);
    u32 k, sum = 0;
    for (k = 1; k < x->classes; k++) sum += x->border[k] <= exponent;
    return sum;
}

/* Which of n numbers are wanted, in order: `from` has them, or is null where they are 0, 1, ... Those of a class where `symbols` is
 * null, else those whose symbol is the limit. By the whole group; returns how many. */
FN u32 pick(Words *x, const Base base, u32 class_number, const u8 *symbols, const u16 *from, u16 *to, u32 n)
{
    const u32 lane = THREAD % WARP, warp = THREAD / WARP, each = (n / WARPS + WARP) / WARP * WARP;
    const u32 begin = warp * each < n ? warp * each : n, end = begin + each < n ? begin + each : n;
    u32 pass, i, k, at = 0, all = 0;
    for (pass = 0; pass < 2; pass++) {
        for (i = begin; i < end; i += WARP) {
            u32 wanted = 0, found;
            if (i + lane < end) wanted = symbols ? symbols[i + lane] == x->limit : class_of(x, base, i + lane) == class_number;
            found = BALLOT(wanted);
            if (pass && wanted) to[at + POPC(found & ((1u << lane) - 1))] = from ? from[i + lane] : (u16)(i + lane);
            at += POPC(found);
        }
        if (pass) break;
        SYNC();
        if (lane == 0) x->part[warp] = at;
        SYNC();
        for (k = at = 0; k < WARPS; k++) {
            if (k == warp) at = all;
            all += x->part[k];
        }
    }
    SYNC();
    return all;
}

FN u32 words_begin(Words *x, Lists *p, const Source s, u32 dtype)
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

/* The beginning of a list of m words, by one work-item: 0 where its low bits end outside of the body, or other rules are broken. */
FN u32 words_head(Words *x, Lists *p, const Source s, u32 m, u32 level, u32 used, u32 width)
{
    u32 low, v, k, at;
    if (p->at == p->end) return ST_CORRUPT(47);
    x->shift = read8(s, p->at++);
    if (x->shift == 128) return (p->end - p->at) / width < m ? ST_CORRUPT(47) : ST_OK;
    if (level == WORD_LEVELS || used + x->shift >= 8 * width || p->at == p->end) return ST_CORRUPT(47);
    x->limit = read8(s, p->at++);
    low = x->shift / 8 * m + POPC((1u << x->shift % 8) - 1) * (m / 64 * 8 + (m % 64 + 7) / 8);
    if (p->end - p->at < low) return ST_CORRUPT(47);
    if (m % 8) {
        v = (m % 64 + 7) / 8;
        at = p->at + x->shift / 8 * m + x->shift % 8 * (m / 64 * 8) + v - 1;
        for (k = 0; k < x->shift % 8; k++)
            if (read8(s, at + k * v) >> m % 8) return ST_CORRUPT(22);
    }
    return ST_OK;
}

/* The low bits of word j of m, which stand at byte `at`. */
FN u32 words_low(const Source s, u32 at, u32 shift, u32 m, u32 j)
{
    const u32 bits = shift % 8, bytes = j / 64 < m / 64 ? 8 : (m % 64 + 7) / 8;
    u32 low = 0, k;
    for (k = 0; k < shift / 8; k++) low |= read8(s, at + k * m + j) << 8 * k;
    at += shift / 8 * m + j / 64 * 8 * bits + j % 64 / 8;
    for (k = 0; k < bits; k++) low |= (read8(s, at + k * bytes) >> j % 8 & 1) << (shift - bits + k);
    return low;
}

/* A list of m words: what each is goes to words[], to the places that `which` says (null: 0, 1, ...). A word whose symbol is the limit
 * goes on in the next level, so every level adds what it knows, and passes on the places that have more. */
FN void words_read(Words *x, Lists *p, u32 *arena, u32 arena_size, u32 *scratch, u32 used, const Source s, u32 m, u32 width,
                   const u16 *which, u16 *here, u16 *there, u32 *words)
{
    const u8 *symbols = (const u8 *)scratch;
    Base none = { 0, 0, 0 };
    u32 level, total = 0, j;
    for (level = 0; m; level++) {
        u32 at, shift, limit;
        SYNC();
        if (THREAD == 0) p->status = words_head(x, p, s, m, level, total, width);
        SYNC();
        shift = x->shift;
        limit = x->limit;
        at = p->at;
        if (p->status) return;
        if (shift == 128) {
            for (j = THREAD; j < m; j += THREADS) {
                const u32 word = read32(s, at + j * width);
                words[which ? which[j] : j] += word << total;
            }
            SYNC();
            if (THREAD == 0) p->at += m * width;
            SYNC();
            return;
        }
        SYNC();
        if (THREAD == 0) p->at += shift / 8 * m + shift % 8 * (m / 64 * 8 + (m % 64 + 7) / 8);
        list_read(p, arena, arena_size, scratch, used, s, m, 8, 0);
        if (p->status) return;
        SYNC();
        for (j = THREAD; j < m; j += THREADS) {
            const u32 symbol = symbols[j];
            if (limit && symbol > limit) p->status = ST_CORRUPT(47);
            words[which ? which[j] : j] += (words_low(s, at, shift, m, j) + (symbol << shift)) << total;
        }
        SYNC();
        if (p->status) return;
        total += shift;
        m = limit ? pick(x, none, 0, symbols, which, here, m) : 0;
        which = here;
        here = there;
        there = (u16 *)which;
    }
}

/* The body of a CLASSED block at p->at, to elements at byte `result` of the scratch memory. Its first 576 KiB are those of symbols,
 * two lists of places, and words; `result` may be where the places are. */
#define PLACES_AT (64u << 10)
#define WORDS_AT (320u << 10)
PART void classed_decode(Words *x, Lists *p, u32 *arena, u32 arena_size, u32 *scratch, u32 used, const Source s, const Base base, u32 n)
{
    const u32 width = width_of[base.dtype];
    u16 *here = (u16 *)(scratch + PLACES_AT / 4), *there = here + 65536;
    u32 *words = scratch + WORDS_AT / 4, k, i;
    if (THREAD == 0) p->status = words_begin(x, p, s, base.dtype);
    for (i = THREAD; i < n; i += THREADS) words[i] = 0;
    SYNC();
    if (p->status) return;
    for (k = 0; k < x->classes; k++) {
        const u32 m = x->classes == 1 ? n : pick(x, base, k, 0, 0, here, n);
        words_read(x, p, arena, arena_size, scratch, used, s, m, width, x->classes == 1 ? 0 : here, x->classes == 1 ? here : there,
                   x->classes == 1 ? there : here, words);
        if (p->status) return;
    }
    SYNC();
    if (THREAD == 0 && p->at != p->end) p->status = ST_CORRUPT(33);
    SYNC();
    if (p->status) return;
    for (i = THREAD; i < n; i += THREADS)
        put_element(here, width, i, predict(base, i) + difference_of(width == 4 ? words[i] : words[i] & ((1u << 8 * width) - 1)));
    SYNC();
}

/* ---- SPARSE ---- */

/* At most 32 bits from bit `at` on of the bytes from `byte` on. */
FN u32 read_bits(const Source s, u32 byte, u32 at, u32 bits)
{
    const u32 word = FUNNEL(read32(s, byte + at / 8), read32(s, byte + at / 8 + 4), at % 8);
    return bits < 32 ? word & ((1u << bits) - 1) : word;
}

/* The body of a SPARSE block at p->at, to elements at byte PLACES_AT of the scratch memory. */
PART void sparse_decode(Words *x, Lists *p, u32 *scratch, const Source s, const Base base, u32 n)
{
    const u32 width = width_of[base.dtype], W = 8 * width, at = p->at, size = p->end - at, none = width == 4 ? ~0u : (1u << W) - 1;
    u32 *place = scratch, *number = scratch + 4096;
    void *elements = scratch + PLACES_AT / 4;
    u32 c, l, a, escaping, f = 0, body, high, numbers, escaped, bits, i, k, ones = 0, escapes = 0, all, wrong = 0;
    c = size < 4 ? 0 : read32(s, at) & 0xFFFF;
    l = size < 4 ? 0 : read8(s, at + 2);
    a = size < 4 ? 0 : read8(s, at + 3);
    escaping = a >> 7;
    a &= 127;
    if (escaping) f = size < 6 ? 0 : read32(s, at + 4) & 0xFFFF;
    body = at + 4 + 2 * escaping;
    SYNC();
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
        SYNC();
        return;
    }
    for (k = 0; k < numbers - high; k += 32 * THREADS) { /* 32 bits each */
        const u32 from = k + 32 * THREAD, some = from < numbers - high ? numbers - high - from : 0;
        u32 m = some ? read_bits(s, body, high + from, some < 32 ? some : 32) : 0;
        i = ones + group_before(POPC(m), &all, x->part);
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
            const u32 e = escapes + group_before(is_escape, &all, x->part);
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
    for (i = THREAD; i < n; i += THREADS) put_element(elements, width, i, predict(base, i));
    SYNC();
    if (p->status) return;
    for (i = THREAD; i < c; i += THREADS) put_element(elements, width, place[i], predict(base, place[i]) + difference_of(number[i] + 1));
    SYNC();
    if (THREAD == 0) p->at = p->end;
    SYNC();
}

#endif
