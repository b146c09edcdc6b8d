/* quantize.h - encodes QUANTIZED blocks by bins (FORMAT.md 5.10 to 5.12) of F16, BF16 and F32, a group of work-items for each
 * block. The bytes are those of the codec at levels fast and default. Leaves to the host: blocks of equal elements, blocks with
 * more than one in 64 elements stored exactly, lists that the codec may split (mostly zeros, or seven in ten of the symbols 0 to
 * 2), and blocks that do not gain a byte. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_QUANTIZE_H
#define OFFLOAD_QUANTIZE_H

#include "encode.h"

/* Scratch memory: first what lists need, */
#define LISTS_SIZE (384u << 10)
#define U_AT LISTS_SIZE             /* of each element what 5.10 calls u, then words */
#define TABLES_AT (LISTS_SIZE + (256u << 10))
#define MARKS_AT (TABLES_AT + (32u << 10)) /* scales, as quantized.h has them */

#define BINS 4096u
#define FINE 2048u
#define LENGTHS 33 /* of words, in bits */
#define OCTAVES 277
#define NO_MEAN 0x80000000u
#define HEAD_SIZE (CERTIFICATE + 5)

typedef struct Quantizer {
    Encoder coder;
    Numbers numbers;
    u64 sums[WARPS];
    u32 most[WARPS];
    u32 dtype, width, special, bound, scaled, all; /* scaled: may there be scales? all: bits of elements or words */
    u32 shift, limit, least, middle;               /* of a list of words */
    u32 at, stop;                                  /* bytes that are there; where a block does not gain any more */
    u64 bits[8];
    u32 limits[8];
    u8 best[2][260];
} Quantizer;

typedef struct Tables {
    GLOBAL u32 *threshold, *normal, *logs, *u;
    GLOBAL u16 *start;
    GLOBAL u8 *scales;
} Tables;

FN Tables tables_of(GLOBAL u32 *scratch)
{
    Tables t;
    t.threshold = scratch + TABLES_AT / 4;
    t.normal = t.threshold + CELLS_MOST + 4;
    t.logs = t.normal + CELLS_MOST;
    t.start = (GLOBAL u16 *)(t.logs + 260);
    t.u = scratch + U_AT / 4;
    t.scales = (GLOBAL u8 *)(scratch + MARKS_AT / 4);
    return t;
}

/* ---- sums ---- */

FN u64 shuffle64(LANES u64 x, u32 lane)
{
    const u32 low = SHUFFLE((u32)x, lane), high = SHUFFLE((u32)(x >> 32), lane);
    return low | (u64)high << 32;
}
FN u64 warp_sum(LANES u64 x)
{
    u32 d;
    UNROLL
    for (d = 1; d < WARP; d <<= 1) x += shuffle64(LANES_ x, THREAD % WARP ^ d);
    return x;
}
FN u64 group_sum(LANES LOCAL Quantizer *g, u64 x)
{
    u32 i;
    x = warp_sum(LANES_ x);
    SYNC();
    if (THREAD % WARP == 0) g->sums[THREAD / WARP] = x;
    SYNC();
    for (x = i = 0; i < WARPS; i++) x += g->sums[i];
    return x;
}
FN u32 group_most(LANES LOCAL Quantizer *g, u32 x)
{
    u32 d, y;
    UNROLL
    for (d = 1; d < WARP; d <<= 1) {
        y = SHUFFLE(x, THREAD % WARP ^ d);
        x = x < y ? y : x;
    }
    SYNC();
    if (THREAD % WARP == 0) g->most[THREAD / WARP] = x;
    SYNC();
    for (x = d = 0; d < WARPS; d++) x = x < g->most[d] ? g->most[d] : x;
    return x;
}

/* ---- logarithms, as the codec estimates sizes: 2^20 * log2 ---- */

/* Returns the logarithm of 1 + i / 256, rounded to nearest, by squaring. */
FN u32 log_entry(u32 i)
{
    u64 x = (u64)(256 + i) << 54;
    u32 log = 0, k;
    if (i == 256) return 1u << 20;
    for (k = 0; k < 21; k++) {
        x = fraction_multiply(x, x);
        log = log << 1 | (u32)(x >> 63);
        x >>= x >> 63;
    }
    return (log + 1) >> 1;
}
FN u32 log_of(GLOBAL const u32 *logs, u32 x)
{
    const u32 whole = 31 - CLZ(x), y = x << (31 - whole), i = y >> 23 & 255, low = logs[i];
    return (whole << 20) + low + (u32)((u64)(logs[i + 1] - low) * (y & 0x7FFFFF) >> 23);
}
FN u64 cost_of(GLOBAL const u32 *logs, u32 count, u32 log_n) { return count ? (u64)count * (log_n - log_of(logs, count)) : 0; }

/* ---- bins of an octave ---- */

/* Returns d * 2^24 / of, rounded up. Both are below 2^24. */
FN u32 relative_to(u32 d, u32 of)
{
    u32 quotient = 0, k;
    UNROLL
    for (k = 0; k < 3; k++) {
        const u32 digit = (d << 8) / of;
        quotient = quotient << 8 | digit;
        d = (d << 8) - digit * of;
    }
    return quotient + (d > 0);
}

/* Computes everything that does not depend on elements, by the whole group. */
FN void tables_set(LANES LOCAL Quantizer *g, const Tables t)
{
    LOCAL const Numbers *x = &g->numbers;
    u32 i, k, bound = 0;
    for (i = THREAD; i <= x->cells; i += THREADS) t.threshold[i] = cell_threshold(x->cells, i);
    for (i = THREAD; i <= 256; i += THREADS) t.logs[i] = log_entry(i);
    SYNC();
    for (i = THREAD; i < x->cells; i += THREADS) {
        const u32 a = t.threshold[i], b = t.threshold[i + 1], center = (u32)((4 * (u64)a * b + a + b) / (2 * ((u64)a + b)));
        const u32 below = relative_to(center - a, a), above = relative_to(b - center, b);
        t.normal[i] = cell_center(x->cells, a, b, i, x->mantissa);
        bound = bound < below ? below : bound;
        bound = bound < above ? above : bound;
        for (k = (a - (1u << 23) + 2047) >> 11; k < (b - (1u << 23) + 2047) >> 11; k++) t.start[k] = (u16)i;
    }
    bound = group_most(LANES_ g, bound);
    if (THREAD == 0) g->bound = bound;
    SYNC();
}

typedef struct Cell {
    u32 u, octave, d, of; /* of: the element, as 24 bits; d: its distance from the number that the cell decodes to, in the same
                             units */
} Cell;

FN Cell cell_of(LOCAL const Quantizer *g, const Tables t, u32 element)
{
    const u32 m = g->numbers.mantissa, cells = g->numbers.cells, v = element & ((1u << (8 * g->width - 1)) - 1), exponent = v >> m;
    const u32 k = exponent || !v ? m : 31 - CLZ(v), significand = exponent ? (v & ((1u << m) - 1)) | 1u << m : v;
    u32 cell = significand - (1u << k), center = significand;
    Cell c = { 0, 0, 0, 0 };
    if (!v || exponent == g->special) {
        c.u = v != 0;
        return c;
    }
    c.octave = exponent ? m + exponent - 1 : k;
    c.of = significand << (23 - k);
    if (1u << k > cells) {
        cell = t.start[c.of >> 11 & 4095];
        cell += c.of >= t.threshold[cell + 1];
        center = k == m ? t.normal[cell] : cell_center(cells, t.threshold[cell], t.threshold[cell + 1], cell, k);
    }
    c.d = (significand > center ? significand - center : center - significand) << (23 - k);
    c.u = k < 23 && (u64)c.d << 24 > (u64)g->bound * c.of ? 1 : 2 + c.octave * cells + cell;
    return c;
}

FN u32 u_of(LOCAL const Quantizer *g, const Tables t, u64 source, u32 i)
{
    return g->scaled ? t.u[i] : cell_of(g, t, get_element(source, g->width, i)).u;
}

/* ---- histograms, and what they tell ---- */

/* Samples one of every eight groups of 64 elements. The last sample may lie past the end. */
FN u32 sample_group(u32 span) { return (span << 3) + (span * 0x9E3779B1u >> 29); }
FN u32 sample_spans(u32 groups) { return groups / 8 + (sample_group(groups / 8) < groups); }

FN u32 bin_shift(LOCAL const Numbers *x)
{
    u32 shift = 0;
    while ((2 + (x->octaves + 64) * x->cells) >> shift >= BINS) shift++;
    return shift;
}

/* Returns the prediction of an element, in bins. */
FN u32 expected_of(LOCAL const Numbers *x, const Tables t, u32 i) { return (x->cells * scale_of(x, t.scales, i) + 4) / 8; }

FN void bins_count(LOCAL const Quantizer *g, ARENA u32 *bins, const Tables t, u64 source, u32 n, u32 sampled)
{
    LOCAL const Numbers *x = &g->numbers;
    const u32 shift = bin_shift(x), all = sampled ? 64 * sample_spans((n + 63) / 64) : n;
    u32 i, k;
    for (i = THREAD; i < BINS; i += THREADS) bins[i] = 0;
    SYNC();
    for (k = THREAD; k < all; k += THREADS) {
        i = sampled ? 64 * sample_group(k / 64) + k % 64 : k;
        if (i < n) {
            const u32 u = u_of(g, t, source, i);
            if (u > 1) ATOMIC_ADD(&bins[(u + 64 * x->cells - expected_of(x, t, i)) >> shift], 1);
        }
    }
    SYNC();
}

/* Returns the word below which 1 / `of` of the coded elements lie, a quantile. *bits receives the estimated bits of the words. */
FN u32 bins_base(LANES LOCAL Quantizer *g, ARENA const u32 *bins, const Tables t, u32 of, u64 *bits)
{
    u32 i, all, sum = 0, coded = 0, used = 0, base = 0;
    u64 cost = 0;
    for (i = THREAD; i < BINS; i += THREADS) coded += bins[i];
    coded = (u32)group_sum(LANES_ g, coded);
    for (i = THREAD; i < BINS; i += THREADS) {
        cost += coded ? cost_of(t.logs, bins[i], log_of(t.logs, coded)) : 0;
        used += bins[i] > 0;
    }
    cost = group_sum(LANES_ g, cost);
    *bits = (cost >> 20) + 5 * (u32)group_sum(LANES_ g, used);
    for (i = THREAD; i < BINS && coded; i += THREADS) {
        const u32 here = bins[i], before = sum + group_before(LANES_ here, &all, g->coder.part[0]);
        if (before <= coded / of && before + here > coded / of) base = (i << bin_shift(&g->numbers)) - 64 * g->numbers.cells - 2;
        sum += all;
        SYNC();
    }
    return (u32)group_sum(LANES_ g, base);
}

/* ---- scales ---- */

FN u32 mean_of(u64 sum, u32 count) /* towards zero */
{
    const u64 size = sum >> 63 ? 0 - sum : sum;
    const u32 mean = count ? (u32)(size / count) : NO_MEAN;
    return count && sum >> 63 ? 0u - mean : mean;
}

/* Turns means into scales. Returns the estimated bits of their list. */
FN u64 scales_round(LANES LOCAL Quantizer *g, ARENA u32 *counts, const Tables t, GLOBAL const u32 *means, GLOBAL u8 *scales,
                    u32 count)
{
    const u32 octave = 16 * g->numbers.cells;
    u32 i, most = 0, used = 0;
    u64 cost = 0;
    for (i = THREAD; i < count; i += THREADS)
        if (means[i] != NO_MEAN && most < ~(means[i] ^ 0x80000000u)) most = ~(means[i] ^ 0x80000000u);
    most = ~group_most(LANES_ g, most) ^ 0x80000000u; /* the smallest mean */
    for (i = THREAD; i < 256; i += THREADS) counts[i] = 0;
    SYNC();
    for (i = THREAD; i < count; i += THREADS) {
        const u32 scale = means[i] == NO_MEAN ? 0 : (8 * (means[i] - most) + octave / 2) / octave;
        scales[i] = (u8)(scale < 255 ? scale : 255);
        ATOMIC_ADD(&counts[scale < 255 ? scale : 255], 1);
    }
    SYNC();
    for (i = THREAD; i < 256; i += THREADS) {
        cost += cost_of(t.logs, counts[i], log_of(t.logs, count));
        used += counts[i] > 0;
    }
    cost = group_sum(LANES_ g, cost);
    return (cost >> 20) + 5 * (u32)group_sum(LANES_ g, used);
}

/* The scale of a row is the mean of its numbers' logarithms, that of a column the mean of the remainders. Returns the estimated
 * bits of both lists. */
PART u64 scales_fit(LANES LOCAL Quantizer *g, ARENA u32 *counts, const Tables t, GLOBAL u32 *scratch, u32 n)
{
    LOCAL const Numbers *x = &g->numbers;
    const u32 columns = x->columns, apart = (x->rows + 3) & ~3u;
    const u32 stripes = columns < THREADS ? THREADS >> (32 - CLZ(columns - 1)) : 1;
    GLOBAL u32 *rows = scratch, *means = rows + apart, *count = means + columns;
    GLOBAL u64 *sums = (GLOBAL u64 *)(scratch + ((apart + columns + stripes * columns + 1) & ~1u));
    u32 i, row, k;
    u64 bits;
    for (row = THREAD / WARP; row < x->rows; row += WARPS) {
        const u32 begin = row ? row * columns - x->begin : 0, behind = (row + 1) * columns - x->begin;
        const u32 end = behind < n ? behind : n;
        u64 sum = 0;
        for (i = begin + THREAD % WARP; i < end; i += WARP) sum += t.u[i] > 1 ? t.u[i] | (u64)1 << 40 : 0;
        sum = warp_sum(LANES_ sum);
        if (THREAD % WARP == 0) rows[row] = mean_of(16 * (sum & (((u64)1 << 40) - 1)), (u32)(sum >> 40));
    }
    SYNC();
    for (k = THREAD; k < stripes * columns; k += THREADS) {
        u64 sum = 0;
        u32 some = 0;
        for (row = k / columns; row < x->rows; row += stripes) {
            i = row * columns + k % columns - x->begin;
            if ((row || k % columns >= x->begin) && i < n && t.u[i] > 1) {
                const u32 left = 16 * t.u[i] - rows[row];
                sum += left | (0 - (u64)(left >> 31)) << 32;
                some++;
            }
        }
        sums[k] = sum;
        count[k] = some;
    }
    SYNC();
    for (k = THREAD; k < columns; k += THREADS) {
        u64 sum = 0;
        u32 some = 0;
        for (i = k; i < stripes * columns; i += columns) {
            sum += sums[i];
            some += count[i];
        }
        means[k] = mean_of(sum, some);
    }
    bits = scales_round(LANES_ g, counts, t, rows, t.scales, x->rows);
    return bits + scales_round(LANES_ g, counts, t, means, t.scales + apart + 8, columns);
}

/* ---- certificates: m * 2^e, rounded up ---- */

typedef struct Real {
    u64 m;
    i32 e;
} Real;

FN u32 log2_64(u64 x) { return x >> 32 ? 63 - CLZ((u32)(x >> 32)) : 31 - CLZ((u32)x); }
FN Real real_of(u64 m, i32 e)
{
    Real x = { 0, 0 };
    if (m >> 63) {
        m = (m >> 1) + (m & 1);
        e++;
    }
    if (!m) return x;
    x.m = m << (62 - log2_64(m));
    x.e = e - (62 - (i32)log2_64(m));
    return x;
}
FN Real real_sum(const Real a, const Real b)
{
    const u32 first = a.m && (!b.m || a.e >= b.e);
    const Real high = first ? a : b, low = first ? b : a;
    const u32 shift = (u32)(high.e - low.e);
    u64 m = low.m;
    if (m && shift) m = shift > 62 ? 1 : (m >> shift) + ((m & (((u64)1 << shift) - 1)) != 0);
    return real_of(high.m + m, high.e);
}
FN u64 real_store(const Real x) /* binary64 */
{
    u64 m = (x.m >> 10) + ((x.m & 1023) != 0);
    i32 exponent = x.e + 62 + 1023;
    if (!x.m) return 0;
    if (m >> 53) {
        m >>= 1;
        exponent++;
    }
    return (u64)exponent << 52 | (m & (((u64)1 << 52) - 1)); /* of these types it has one */
}

FN void put_target(GLOBAL u8 *target, u32 at, u64 x, u32 size)
{
    for (; size; size--, x >>= 8) target[at++] = (u8)x;
}

/* Makes the words and the certificate. Returns the number of elements stored exactly. */
FN u32 words_make(LANES LOCAL Quantizer *g, ARENA u32 *squares, const Tables t, u64 source, GLOBAL u8 *target, u32 at, u32 n)
{
    LOCAL const Numbers *x = &g->numbers;
    u32 i, relative = 0, largest = 0;
    u64 counts = 0, relatives = 0;
    for (i = THREAD; i < 3 * OCTAVES; i += THREADS) squares[i] = 0;
    SYNC();
    for (i = THREAD; i < n; i += THREADS) {
        const u32 v = get_element(source, g->width, i), sign = v >> (8 * g->width - 1);
        const Cell c = cell_of(g, t, v);
        const u32 above = c.u - expected_of(x, t, i) - x->base, word = c.u < 2 ? c.u : (i32)above < 2 ? 1 : above;
        t.u[i] = word << x->signs | (sign & x->signs);
        counts += (u64)(c.of > 0) << 32 | (word == 1);
        if (word > 1 && c.d) {
            const u32 r = relative_to(c.d, c.of), top = 31 - CLZ(c.d);
            const u32 key = ((c.octave + top) << 23) + (c.d << (31 - top) >> 8 & 0x7FFFFF);
            const u64 square = ((u64)c.d * c.d + 127) >> 7;
            relatives += r;
            relative = relative < r ? r : relative;
            largest = largest < key ? key : largest;
            ATOMIC_ADD(&squares[3 * c.octave], (u32)square & 0xFFFF);
            ATOMIC_ADD(&squares[3 * c.octave + 1], (u32)(square >> 16) & 0xFFFF);
            if (square >> 32) ATOMIC_ADD(&squares[3 * c.octave + 2], (u32)(square >> 32));
        }
    }
    relative = group_most(LANES_ g, relative);
    largest = group_most(LANES_ g, largest);
    counts = group_sum(LANES_ g, counts);
    relatives = group_sum(LANES_ g, relatives);
    if (THREAD == 0) {
        const i32 lowest = (g->dtype == BITSNAP_F16 ? -14 : -126) - (i32)x->mantissa;
        Real sum = { 0, 0 }, most;
        for (i = 0; i < OCTAVES; i++)
            sum = real_sum(sum, real_of(squares[3 * i] + ((u64)squares[3 * i + 1] << 16) + ((u64)squares[3 * i + 2] << 32),
                                        2 * (lowest + (i32)i - 23) + 7));
        put_target(target, at, counts >> 32, 8);
        put_target(target, at + 8, counts & 0xFFFFFFFF, 8);
        put_target(target, at + 16, relatives, 8);
        put_target(target, at + 24, real_store(sum), 8);
        most = real_of(largest ? (largest & 0x7FFFFF) | 1u << 23 : 0, lowest + (i32)(largest >> 23) - 46);
        put_target(target, at + 32, real_store(most), 8);
        put_target(target, at + 40, relative, 4);
        put_target(target, at + 44, x->signs, 1);
        put_target(target, at + 45, x->base, 4);
    }
    return (u32)counts;
}

/* ---- lists ---- */

/* Chooses the codes of a list by exact counts, in g->coder.h and .full: the choice of escapes that takes the fewest bits. Returns
 * 0, or a status that leaves the block to the host. */
PART u32 list_choose(LANES LOCAL Quantizer *g, ARENA Plan *p, u32 n, u32 fast)
{
    LOCAL Encoder *y = &g->coder;
    LOCAL u32 *rare = y->inner.before;
    u32 i, shift, kept = 0, best = 8 * n + 8, which = 2;
    const u32 few = y->h[0] + y->h[1] + y->h[2];
    if (THREAD == 0) {
        LOCAL Coder *c = &y->outer;
        for (i = y->most = 0; i < 256; i++)
            if (y->h[i] > y->h[y->most]) y->most = i;
        c->count = n;
        c->nodes = c->escapes = c->escape_at = 0;
        c->kind = y->h[y->most] == n; /* constant, else raw */
        c->table[0] = (u8)c->kind;
        c->table[1] = (u8)y->most;
        c->table_size = 1 + c->kind;
        c->size = c->kind ? 2 : 1 + n;
    }
    SYNC();
    if (!y->outer.kind && n >= 16) {
        if (2 * y->h[0] > n || (n >= 256 && 10 * few > 7 * n && few < n)) return ST_DECLINED;
        for (shift = fast ? 8 : 5; shift <= (fast ? 8u : 9u); shift++) {
            const u32 planned = encode_plan(y, p, y->h, n, shift, 0);
            u32 bits = y->bits, escapes = y->escapes;
            if (!planned || y->kept == kept || bits >= best) continue;
            kept = y->kept;
            for (i = THREAD; i < 65; i += THREADS) ((LOCAL u32 *)g->best[which == 0])[i] = ((LOCAL u32 *)y->length)[i];
            for (i = THREAD; i < 256; i += THREADS) rare[i] = y->length[i] ? 0 : y->h[i];
            if (escapes) {
                bits += 8 * escapes + 8;
                if (escapes >= 16 && encode_plan(y, p, rare, 0, 0, 0) && y->bits < 8 * escapes + 8)
                    bits -= 8 * escapes + 8 - y->bits;
            }
            if (bits < best) {
                best = bits;
                which = which == 0;
            }
        }
    }
    SYNC();
    for (i = THREAD; i < 65 && which < 2; i += THREADS) ((LOCAL u32 *)y->length)[i] = ((LOCAL u32 *)g->best[which])[i];
    SYNC();
    for (i = THREAD; i < 256; i += THREADS) y->h[i] = which == 2 || y->length[i] ? 0 : y->full[i]; /* escapes */
    SYNC();
    if (which < 2) encode_tree(LANES_ y, &y->outer, y->full);
    return ST_OK;
}

/* Encodes the n symbols at the beginning of the scratch memory to byte g->at of the target. Declines if they do not fit. */
PART u32 list_put(LANES LOCAL Quantizer *g, ARENA u32 *arena, GLOBAL u8 *scratch, GLOBAL u8 *target, u32 n, u32 fast)
{
    LOCAL Encoder *y = &g->coder;
    LOCAL const Coder *c = &y->inner;
    u32 i, few, status, at = g->at;
    for (i = THREAD; i < 256; i += THREADS) y->h[i] = 0;
    SYNC();
    for (i = THREAD; i < n; i += THREADS) ATOMIC_ADD(&y->h[scratch[i]], 1);
    SYNC();
    for (i = THREAD; i < 256; i += THREADS) y->full[i] = y->h[i];
    status = list_choose(LANES_ g, (ARENA Plan *)arena, n, fast);
    if (!status) status = encode_choose_escapes(LANES_ y, (ARENA Plan *)arena, fast ? 8 : 9);
    if (status) return status;
    few = y->h[1] + y->h[2];
    if (c->count >= 256 && !y->h[0] && 10 * few > 7 * c->count && few < c->count) return ST_DECLINED;
    if (THREAD == 0) {
        encode_place(y, at, LISTS_SIZE);
        if (y->end > g->stop) y->status = ST_DECLINED;
        g->at = y->end;
    }
    SYNC();
    status = y->status;
    if (!status) encode_list(LANES_ y, scratch, target, at);
    return status;
}

/* ---- words ---- */

FN u32 count_folded(ARENA const u32 *fine, u32 s, u32 j)
{
    u32 sum = 0, i;
    for (i = s << j; i < (s + 1) << j && i < FINE; i++) sum += fine[i];
    return sum;
}

CONSTANT u8 word_limits[6] = { 0, 15, 31, 63, 127, 255 };

/* Estimates, by a warp, the bits of n words with g->least + j low bits. Finds the limit with the fewest. */
FN void words_weigh(LANES LOCAL Quantizer *g, const Tables t, ARENA const u32 *fine, ARENA const u32 *beyond, ARENA u32 *escape,
                    u32 n, u32 times, u32 j, u32 fast)
{
    const u32 lane = THREAD % WARP, log_n = log_of(t.logs, n), kind = 5 + 23 * (times - 1) / 32;
    u64 cost[6], best = ~(u64)0;
    u32 kinds[6], outside = 0, i, k, s, limit = 0;
    for (i = lane; i < LENGTHS; i += WARP) escape[i] = 0;
    WSYNC();
    for (i = 256 + lane; i < FINE >> j; i += WARP) {
        const u32 some = count_folded(fine, i, j) * times;
        if (some) ATOMIC_ADD(&escape[31 - CLZ(i - 255)], some);
        outside += some;
    }
    if (beyond[lane]) ATOMIC_ADD(&escape[lane > j ? lane - j : 0], beyond[lane] * times);
    outside = (u32)warp_sum(LANES_ outside + beyond[lane] * times);
    UNROLL
    for (k = 0; k < 6; k++) { /* symbols below each limit, from the smallest limit on, then all symbols */
        const u32 end = k < 5 ? word_limits[k + 1] : 256;
        cost[k] = 0;
        kinds[k] = 0;
        for (s = word_limits[k] + lane; s < end; s += WARP) {
            const u32 some = count_folded(fine, s, j) * times;
            cost[k] += cost_of(t.logs, some, log_n);
            kinds[k] += some > 0;
        }
        cost[k] = warp_sum(LANES_ cost[k]) + (k ? cost[k - 1] : 0);
        kinds[k] = (u32)warp_sum(LANES_ kinds[k]) + (k ? kinds[k - 1] : 0);
    }
    UNROLL
    for (k = 6; k-- > 0;) { /* all, then limits, the largest first; a smaller one lets more escape */
        u64 bits = (u64)(g->least + j) * n + (fast ? cost[k] >> 25 : 0);
        if (k == 5) {
            if (!outside) best = bits + (cost[k] >> 20) + kind * kinds[k];
        } else {
            const u32 least = word_limits[k + 1], end = k == 4 ? 256 : word_limits[k + 2];
            u32 some = 0, log_outside, length;
            u64 escaped = 0;
            for (s = least + lane; s < end; s += WARP) {
                const u32 here = count_folded(fine, s, j) * times;
                if (here) ATOMIC_ADD(&escape[s == least ? LENGTHS - 1 : 31 - CLZ(s - least)], here);
                some += here;
            }
            outside += (u32)warp_sum(LANES_ some);
            WSYNC();
            if (!outside || outside > n / 8) continue; /* the same as without, or too deep a way for too many */
            log_outside = log_of(t.logs, outside);
            length = 0;
            for (i = lane; i < LENGTHS; i += WARP)
                if (escape[i]) {
                    escaped += cost_of(t.logs, escape[i], log_outside);
                    length += 5 + (i < LENGTHS - 1 ? escape[i] * i : 0);
                }
            WSYNC();
            escaped = warp_sum(LANES_ escaped) >> 20;
            bits += ((cost[k] + cost_of(t.logs, outside, log_n)) >> 20) + kind * (kinds[k] + 1) + 40;
            bits += escaped + warp_sum(LANES_ length) + outside / 2 + (fast ? 2 * outside : 0);
            if (bits < best) {
                best = bits;
                limit = least;
            }
        }
    }
    if (lane == 0) {
        g->bits[j] = best;
        g->limits[j] = limit;
    }
}

/* Chooses the number of low bits of n words, and the first symbol that escapes. Outer lists have already taken `used` bits. */
PART void words_plan(LANES LOCAL Quantizer *g, ARENA u32 *arena, const Tables t, u32 n, u32 used, u32 sampled, u32 fast)
{
    ARENA u32 *fine = arena, *beyond = fine + FINE, *length = beyond + LENGTHS, *escape = length + LENGTHS;
    const u32 all = sampled ? 64 * sample_spans(n / 64) : n, times = sampled ? 8 : 1;
    u32 i, j;
    for (i = THREAD; i < FINE + 2 * LENGTHS; i += THREADS) fine[i] = 0;
    SYNC();
    for (i = THREAD; i < all; i += THREADS) ATOMIC_ADD(&length[32 - CLZ(t.u[sampled ? 64 * sample_group(i / 64) + i % 64 : i])], 1);
    SYNC();
    if (THREAD == 0) {
        u32 sum = 0, middle = 0, longest = 32;
        for (i = 0; i < LENGTHS && 2 * sum < all; i++) {
            sum += length[i];
            middle = i;
        }
        while (longest && !length[longest]) longest--;
        g->middle = middle;
        g->least = middle > 6 ? middle - 6 : 0;
        g->shift = longest > 8 ? longest - 8 : 0; /* always possible */
        g->limit = 0;
    }
    SYNC();
    if (n < 16) return;
    for (i = THREAD; i < all; i += THREADS) {
        const u32 y = t.u[sampled ? 64 * sample_group(i / 64) + i % 64 : i] >> g->least;
        if (y < FINE) ATOMIC_ADD(&fine[y], 1);
        else ATOMIC_ADD(&beyond[31 - CLZ(y - (FINE - 1))], 1);
    }
    SYNC();
    for (j = THREAD / WARP; j < 8; j += WARPS)
        if (g->least + j < 32 - used && (j == 0 || g->least + j <= g->middle + 1))
            words_weigh(LANES_ g, t, fine, beyond, escape + j * LENGTHS, all * times, times, j, fast);
    SYNC();
    if (THREAD == 0) {
        u64 best = ~(u64)0;
        for (j = 0; j < 8 && g->least + j < 32 - used && (j == 0 || g->least + j <= g->middle + 1); j++)
            if (g->bits[j] < best) {
                best = g->bits[j];
                g->shift = g->least + j;
                g->limit = g->limits[j];
            }
    }
    SYNC();
}

/* Picks the words, of n, whose bits from `shift` on are in least .. most. Writes them to `to` in order, `width` bytes each: the
 * elements, or, if `source` is 0, those bits minus `least`. Returns how many. */
FN u32 words_pick(LANES LOCAL Quantizer *g, const Tables t, u32 n, u32 shift, u32 least, u32 most, u64 source, u32 width,
                  GLOBAL u8 *to)
{
    const u32 lane = THREAD % WARP;
    const Share share = share_of(n, WARP);
    u32 pass, i, at = 0, all = 0;
    for (pass = 0; pass < 2; pass++) {
        for (i = share.begin; i < share.end; i += WARP) {
            const u32 in = i + lane < share.end, y = in ? t.u[i + lane] >> shift : 0, wanted = in && y >= least && y <= most;
            const u32 found = BALLOT(wanted), place = at + POPC(found & ((1u << lane) - 1));
            if (pass && wanted) put_target(to, width * place, source ? get_element(source, width, i + lane) : y - least, width);
            at += POPC(found);
        }
        if (pass) break;
        if (lane == 0) g->most[THREAD / WARP] = at;
        SYNC();
        at = part_before(g->most, &all);
    }
    SYNC();
    return all;
}

/* Splits n words into symbols and low bits, eight words a work-item at a time. */
FN void words_split(LOCAL Quantizer *g, const Tables t, GLOBAL u32 *symbols, GLOBAL u8 *low, u32 n)
{
    const u32 shift = g->shift, limit = g->limit ? g->limit : 255, bits = shift % 8;
    u32 i, u, k, any = 0;
    for (i = 8 * THREAD; i < n; i += 8 * THREADS) {
        const u32 bytes = i / 64 < n / 64 ? 8 : (n % 64 + 7) / 8, at = shift / 8 * n + i / 64 * 8 * bits + i % 64 / 8;
        u32 four[2] = { 0, 0 }, x[8];
        UNROLL
        for (u = 0; u < 8; u++) {
            x[u] = i + u < n ? t.u[i + u] : 0;
            any |= x[u];
            four[u / 4] |= (x[u] >> shift < limit ? x[u] >> shift : limit) << u % 4 * 8;
            for (k = 0; k < shift / 8 && i + u < n; k++) low[k * n + i + u] = (u8)(x[u] >> 8 * k);
        }
        for (k = 0; k < bits; k++) {
            u32 mask = 0;
            UNROLL
            for (u = 0; u < 8; u++) mask |= (x[u] >> (shift - bits + k) & 1) << u;
            low[at + k * bytes] = (u8)mask;
        }
        symbols[i / 4] = four[0];
        symbols[i / 4 + 1] = four[1];
    }
    ATOMIC_OR(&g->all, any);
}

/* Writes a list of n words. Each level holds the escapes of the one before. */
FN u32 words_put(LANES LOCAL Quantizer *g, ARENA u32 *arena, GLOBAL u32 *scratch, const Tables t, GLOBAL u8 *target, u32 n,
                 u32 fast)
{
    u32 level, used = 0, status = ST_OK, at = g->at, i;
    for (level = 0; n && !status; level++) {
        u32 raw = level == WORD_LEVELS || used == 32, size = 0;
        if (!raw) {
            words_plan(LANES_ g, arena, t, n, used, n >= 16384 && !level, fast);
            size = g->shift / 8 * n + (g->shift % 8) * (n / 64 * 8 + (n % 64 + 7) / 8);
            raw = n < 16 && 3 + n + size >= 1 + 4 * n;
        }
        size = raw ? 1 + 4 * n : 2 + size;
        if (g->stop - at < size) return ST_DECLINED;
        if (THREAD == 0) g->at = at + size; /* no other work-item reads it here */
        if (raw) {
            for (i = THREAD; i < n; i += THREADS) put_target(target, at + 1 + 4 * i, t.u[i], 4);
            if (THREAD == 0) target[at] = 128;
            break;
        }
        if (THREAD == 0) g->all = 0;
        SYNC();
        words_split(g, t, scratch, target + at + 2, n);
        SYNC();
        if (THREAD == 0) {
            if (!g->limit && g->all >> g->shift > 255) g->limit = 255; /* words outside of the sample may need an escape */
            target[at] = (u8)g->shift;
            target[at + 1] = (u8)g->limit;
        }
        status = list_put(LANES_ g, arena, (GLOBAL u8 *)scratch, target, n, fast);
        if (status || !g->limit) break;
        at = g->at;
        used += g->shift;
        n = words_pick(LANES_ g, t, n, g->shift, g->limit, ~0u, 0, 4, (GLOBAL u8 *)scratch);
        for (i = THREAD; i < n; i += THREADS) t.u[i] = scratch[i];
    }
    return status;
}

/* ---- blocks ---- */

/* Writes the body from byte `at` of the target on. Its end goes to g->at. */
FN u32 cells_encode(LANES LOCAL Quantizer *g, ARENA u32 *arena, GLOBAL u32 *scratch, GLOBAL const bitsnap_work *work, u32 at)
{
    LOCAL Numbers *x = &g->numbers;
    const u32 n = work->count, fast = work->level == BITSNAP_FAST, sampled = n >= 16384, of = sampled ? 16384 : 4096;
    const Tables t = tables_of(scratch);
    const u64 source = work->source;
    GLOBAL u8 *target = (GLOBAL u8 *)(size_t)work->target, *symbols = (GLOBAL u8 *)scratch;
    u32 i, k, any = 0, signs = 0, status = ST_OK, base, other, exact;
    u64 bits, scaled, lists;
    if (THREAD == 0) {
        g->dtype = work->dtype;
        g->width = width_of[work->dtype];
        x->mantissa = mantissa_of(work->dtype);
        g->special = (1u << (8 * g->width - 1 - x->mantissa)) - 1;
        x->octaves = x->mantissa + g->special - 1;
        x->cells = work->bins;
        x->columns = x->signs = g->all = g->scaled = 0;
        for (i = 0; i < 65; i++) ((LOCAL u32 *)g->coder.length)[i] = 0;
    }
    SYNC();
    for (i = THREAD; i < n; i += THREADS) {
        const u32 v = get_element(source, g->width, i);
        any |= v ^ get_element(source, g->width, 0);
        signs |= v >> (8 * g->width - 1);
    }
    ATOMIC_OR(&g->all, any);
    ATOMIC_OR(&x->signs, signs);
    tables_set(LANES_ g, t);
    if (!g->all) return ST_DECLINED; /* equal */
    if (work->columns >= 16 && work->columns <= n / 8) {
        for (i = THREAD; i < n; i += THREADS) t.u[i] = cell_of(g, t, get_element(source, g->width, i)).u;
        if (THREAD == 0) g->scaled = 1;
    }
    bins_count(g, arena, t, source, n, sampled);
    base = bins_base(LANES_ g, arena, t, of, &bits);
    if (g->scaled) {
        if (THREAD == 0) {
            x->columns = work->columns;
            x->begin = (u32)(work->first % x->columns);
            x->rows = (x->begin + n - 1) / x->columns + 1;
        }
        SYNC();
        lists = scales_fit(LANES_ g, arena, t, scratch, n);
        bins_count(g, arena, t, source, n, sampled);
        other = bins_base(LANES_ g, arena, t, of, &scaled);
        if (scaled + lists / (sampled ? 8 : 1) < bits) base = other;
        else if (THREAD == 0) x->columns = 0;
    }
    if (THREAD == 0) x->base = base;
    if (g->stop - at < HEAD_SIZE) return ST_DECLINED;
    exact = words_make(LANES_ g, arena, t, source, target, at, n);
    at += HEAD_SIZE;
    if (exact > n / 64 || g->stop - at < exact * g->width + 1) return ST_DECLINED;
    if (exact) (void)words_pick(LANES_ g, t, n, x->signs, 1, 1, source, g->width, target + at);
    at += exact * g->width;
    if (THREAD == 0) {
        target[at] = x->columns > 0;
        g->at = at + 1;
    }
    SYNC();
    for (k = 0; k < 2 && x->columns && !status; k++) {
        const u32 apart = (x->rows + 3) & ~3u, count = k ? x->columns : x->rows;
        SYNC();
        for (i = THREAD; i < count; i += THREADS) symbols[i] = t.scales[(k ? apart + 8 : 0) + i];
        status = list_put(LANES_ g, arena, symbols, target, count, fast);
    }
    return status ? status : words_put(LANES_ g, arena, scratch, t, target, n, fast);
}

/* Encodes a block, by the whole group, and returns its status. If that is not 0, the target is unspecified. */
FN u32 cells_block(LANES LOCAL Quantizer *g, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 scratch_size,
                   GLOBAL const bitsnap_work *work, u32 *size)
{
    const u32 n = work->count, body = work->flags & BITSNAP_WORK_CHECKS ? 12 : 4;
    LOCAL Group *y = &g->coder.layout;
    u32 status;
    if (work->dtype < BITSNAP_F16 || work->dtype > BITSNAP_F32 || n < 2 || n > MAX_ELEMENTS || work->role || (work->source & 3) ||
        !work->bins || work->bins > CELLS_MOST || (work->level != BITSNAP_FAST && work->level != BITSNAP_DEFAULT) ||
        work->size < body + n * width_of[work->dtype] || arena_size < LEAST_ARENA / 4 || scratch_size < 11 * MAX_ELEMENTS)
        return ST_DECLINED;
    if (THREAD == 0) g->stop = body + n * width_of[work->dtype] - 1; /* must gain a byte */
    status = cells_encode(LANES_ g, arena, scratch, work, body);
    if (status) return status;
    SYNC();
    *size = g->at;
    if (THREAD == 0) {
        y->planes = y->list = 0;
        y->pieces.count = 1;
        y->pieces.at[0] = body;
        y->pieces.size[0] = g->at - body;
    }
    encode_head(&g->coder, arena, work, 7, body, *size);
    return ST_OK;
}

ENCODES(offload_encode_cells, Quantizer, cells_block)

#endif
