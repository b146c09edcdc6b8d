/* encode.h - encodes SPLIT blocks (FORMAT.md 5.2) of floats by groups. The bytes are those of the codec at levels fast and
 * default. Rare cases are left to the host: fewer than 4096 elements, one symbol for more than 5/8 of them, many zeros among the
 * rare ones, constant elements, blocks that may be PARTED or have coded planes, and blocks that do not gain a byte. MIT licence,
 * see bitsnap.h. */
#ifndef OFFLOAD_ENCODE_H
#define OFFLOAD_ENCODE_H

#include "decode.h"

typedef struct Fork { /* a node under construction */
    u32 count, in, at, list[4]; /* number of codes; offsets into the scratch memory and the target */
    u8 bits, leaves, lists, level;
} Fork;

typedef struct Coder { /* a list: RAW, CONST or a tree */
    Tree tree;
    u32 kind, count, escapes, size; /* symbols; symbols without a code; bytes */
    u32 escape_code;
    u32 nodes, deepest, escape_at;  /* escape_at: offset of the list of escapes in the target */
    Fork node[NODES];
    u32 before[257];                /* symbols whose codes are less, by code: bits from the top of a byte */
    u8 code[256], table[136];
    u32 table_size;
} Coder;

typedef struct Plan { /* package-merge; in the arena */
    u32 key[257], sorted[257]; /* weight << 9 | 256 - symbol */
    u32 weight[2][520];
    u8 is_leaf[7][520];
} Plan;

typedef struct Encoder {
    Coder outer, inner;
    u8 length[260];
    u32 h[256], full[256]; /* counts: of the sample, then of the escapes; of all */
    u32 keys, kept, used, total, escapes, bits, most, taken[8]; /* of the tree being planned */
    u32 status, varying, end, escapes_in, rare_in, scratch_used;
    u32 part[5][WARPS];
    Group layout; /* of the block: width, e, planes, varying, value, plane */
} Encoder;

/* ---- codes ---- */

/* Chooses code lengths. A symbol has a code if count[] * 2^shift exceeds `total`; all others, and `lost` more, escape. A single
 * rare symbol has a code, too, unless some are lost. Called by the whole group. Sets g->length, g->bits (of the tree) and
 * g->escapes. Returns 0 if no tree fits. */
PART u32 encode_plan(LOCAL Encoder *g, ARENA Plan *p, LOCAL const u32 *count, u32 total, u32 shift, u32 lost)
{
    const u32 t = THREAD;
    u32 i, j, l, m, items, take, first = 255, last = 0;
    ARENA u32 *now = p->weight[0], *next = p->weight[1], *swap;
    SYNC();
    if (t == 0) {
        g->keys = g->kept = g->used = 0;
        g->escapes = lost;
    }
    SYNC();
    for (i = t; i < 256; i += THREADS) {
        const u32 x = count[i];
        if (x) {
            ATOMIC_ADD(&g->used, 1);
            if (x << shift > total) ATOMIC_ADD(&g->kept, 1);
            else ATOMIC_ADD(&g->escapes, x);
        }
    }
    SYNC();
    m = g->used - g->kept == 1 && !lost; /* a single rare symbol is not rare: an escape would cost as much */
    for (i = t; i < 256; i += THREADS) g->length[i] = count[i] && (m || count[i] << shift > total);
    SYNC();
    if (t == 0) {
        if (m) {
            g->kept++;
            g->escapes = 0;
        }
        if (g->escapes) p->key[g->keys++] = g->escapes << 9;
        for (i = 256; i-- > 0;)
            if (g->length[i]) p->key[g->keys++] = count[i] << 9 | (256 - i);
    }
    SYNC();
    m = g->keys;
    if (g->kept == 0 || m < 2 || m > 256) return 0;
    for (i = t; i < m; i += THREADS) {
        const u32 key = p->key[i];
        u32 place = 0;
        for (j = 0; j < m; j++) place += p->key[j] < key;
        p->sorted[place] = key;
    }
    SYNC();
    if (t == 0) { /* Larmore and Hirschberg, as in bsn_package_merge */
        take = items = m;
        take = 2 * m - 2;
        for (i = 0; i < m; i++) now[i] = p->sorted[i] >> 9;
        for (l = 1; l < 8; l++) {
            const u32 pairs = items / 2, end = take < m + pairs ? take : m + pairs;
            u32 leaf = 0, pair = 0;
            now[2 * pairs] = 0xFFFFFFFF;
            now[2 * pairs + 1] = 0;
            for (items = 0; items < end; items++) {
                const u32 both = now[2 * pair] + now[2 * pair + 1];
                const u32 is_leaf = leaf < m && p->sorted[leaf] >> 9 <= both;
                next[items] = is_leaf ? p->sorted[leaf++] >> 9 : both;
                pair += !is_leaf;
                p->is_leaf[l - 1][items] = (u8)is_leaf;
            }
            swap = now;
            now = next;
            next = swap;
        }
        for (l = 8; l-- > 0;) {
            u32 leaf = 0;
            for (i = 0; i < take && l; i++) leaf += p->is_leaf[l - 1][i];
            g->taken[l] = l ? leaf : take;
            take = 2 * (take - leaf);
        }
        g->bits = 0;
        for (i = 0; i < m; i++) {
            const u32 s = 256 - (p->sorted[i] & 511);
            u32 length = 0;
            for (l = 0; l < 8; l++) length += g->taken[l] > i;
            g->length[s] = (u8)length;
            g->bits += (p->sorted[i] >> 9) * length;
            if (s < 256) {
                first = s < first ? s : first;
                last = s > last ? s : last;
            }
        }
        if (!g->escapes) g->length[256] = 0;
        g->bits += 24 + 4 * (last - first + 1) + 4 * m;
    }
    SYNC();
    return 1;
}

/* Writes kind and table of a tree from its code lengths, by one work-item. */
FN void encode_table(LOCAL Encoder *g, LOCAL Coder *c)
{
    u32 first = 0, last = 255, s, nibbles = 0;
    while (!g->length[first]) first++;
    while (!g->length[last]) last--;
    c->kind = g->length[256] ? 4 | (u32)g->length[256] << 4 : 2;
    c->table[0] = (u8)c->kind;
    c->table[1] = (u8)first;
    c->table[2] = (u8)(last - first);
    for (s = first; s <= last; nibbles++) {
        u32 code = g->length[s];
        if (code) s++;
        else {
            u32 run = 1;
            while (!g->length[s + run]) run++;
            run = 31 - CLZ(run); /* one absent symbol: 0; 2^run of them: 8 + run */
            code = run ? 8 + run : 0;
            s += 1u << run;
        }
        if (nibbles & 1) c->table[3 + nibbles / 2] = (u8)(c->table[3 + nibbles / 2] | code << 4);
        else c->table[3 + nibbles / 2] = (u8)code;
    }
    c->table_size = 3 + (nibbles + 1) / 2;
}

/* Makes the tree of the code lengths, by the whole group: its table, its codes, and the positions of its nodes for count[] of
 * each symbol. */
PART void encode_tree(LANES LOCAL Encoder *g, LOCAL Coder *c, LOCAL const u32 *count)
{
    const u32 t = THREAD;
    LOCAL u32 *before = &c->before[256 / THREADS * t];
    u32 i, at, all, l = 1, escape_code = 0;
    u8 has_code[256 / THREADS];
    UNROLL
    for (i = 0; i < 256 / THREADS; i++) has_code[i] = g->length[i * THREADS + t] != 0;
    if (t == 0) encode_table(g, c);
    SYNC();
    if (t < WARP) (void)tree_order(LANES_ &c->tree, g->length);
    if (t == 0) {
        for (i = at = 0; i < c->tree.end[8]; i++) {
            while (c->tree.end[l] <= i) l++;
            if (i == c->tree.escape) escape_code = at;
            else c->code[c->tree.symbol[i]] = (u8)at;
            at += 256u >> l;
        }
        c->escape_code = escape_code;
    }
    for (i = t; i < 256; i += THREADS) c->before[i] = 0;
    SYNC();
    UNROLL
    for (i = 0; i < 256 / THREADS; i++) {
        const u32 s = i * THREADS + t;
        if (!has_code[i]) c->code[s] = (u8)c->escape_code;
        ATOMIC_ADD(&c->before[c->code[s]], count[s]);
    }
    SYNC();
    for (i = at = 0; i < 256 / THREADS; i++) at += before[i];
    at = group_before(LANES_ at, &all, g->part[0]);
    for (i = 0; i < 256 / THREADS; i++) {
        const u32 count_of = before[i];
        before[i] = at;
        at += count_of;
    }
    if (t == 0) c->before[256] = c->count = all;
    SYNC();
}

/* Finds the positions of a list's nodes and of their children, by one work-item. `at`: first byte of the list in the target.
 * `escape_size`: bytes of the list of its escapes. `in`: position of the codes in scratch memory. */
FN u32 encode_walk(LOCAL Encoder *g, LOCAL Coder *c, u32 at, u32 in, u32 escape_size, u32 scratch_size)
{
    struct { u32 path, code, level, in; } stack[32], x;
    const u32 begin = at;
    u32 top = 1, j;
    at += c->table_size;
    c->nodes = c->deepest = 0;
    stack[0].path = stack[0].code = stack[0].level = 0;
    stack[0].in = in;
    while (top) {
        Step step;
        LOCAL Fork *f = &c->node[c->nodes];
        u32 count, shift;
        x = stack[--top];
        step = tree_step(&c->tree, x.path);
        count = c->before[x.code + (256u >> x.path)] - c->before[x.code];
        shift = 8 - x.path - step.bits;
        if (top + 4 > 32 || c->nodes == NODES) return ST_DECLINED;
        if (count) {
            f->count = count;
            f->in = x.in;
            f->at = at;
            f->bits = (u8)step.bits;
            f->leaves = (u8)step.leaves;
            f->lists = (u8)step.lists;
            f->level = (u8)x.level;
            at += step.bits * ((count + 7) / 8);
            if (x.level > c->deepest) c->deepest = x.level;
            c->nodes++;
        }
        for (j = step.lists; j-- > 0;) {
            const u32 code = x.code + ((step.leaves + j) << shift), list = c->before[code + (1u << shift)] - c->before[code];
            if (j == 0 && step.escape) {
                if (count) f->list[0] = ~0u; /* goes elsewhere */
                c->escapes = list;
                c->escape_at = at;
                if (list) at += escape_size;
                continue;
            }
            if (count) f->list[j] = g->scratch_used;
            stack[top].path = x.path + step.bits;
            stack[top].code = code;
            stack[top].level = x.level + 1;
            stack[top].in = g->scratch_used;
            top++;
            g->scratch_used += (list + 7) & ~7u;
            if (g->scratch_used > scratch_size) return ST_DECLINED;
        }
    }
    c->size = at - begin;
    return ST_OK;
}

/* ---- bytes ---- */

/* Collects bit 7 of four bytes in bits 0 .. 3. */
FN u32 gather_tops(u32 x) { return (x >> 7 & 0x01010101u) * 0x10204080u >> 28; }

/* Returns which of four codes take slot `slot` of 2^k, in bit 7 of their bytes. */
FN u32 codes_take(u32 codes, u32 k, u32 slot)
{
    u32 m = 0x80808080u, i;
    UNROLL
    for (i = 0; i < 4; i++)
        if (i < k) m &= slot >> (k - 1 - i) & 1 ? codes << i : ~(codes << i);
    return m;
}

/* Returns which of the first `live` of eight codes take slot `slot` of 2^k, in bits 0 .. 7. */
FN u32 eight_take(u32 a, u32 b, u32 k, u32 slot, u32 live)
{
    return (gather_tops(codes_take(a, k, slot)) | gather_tops(codes_take(b, k, slot)) << 4) & ((1u << live) - 1);
}

/* Counts the codes that take the slot of each child, in groups of eight codes from .. to - 1 of a node. A warp does it, eight
 * codes a work-item at a time. */
FN void fork_count(LANES LOCAL const Fork *f, u32 k, u32 lists, GLOBAL const u8 *scratch, u32 from, u32 to, u32 counts[4])
{
    GLOBAL const u32 *in = (GLOBAL const u32 *)(scratch + f->in);
    const u32 leaves = (1u << k) - lists;
    u32 sum[4] = { 0, 0, 0, 0 }, j, i;
    for (i = from + THREAD % WARP; i < to; i += WARP) {
        const u32 a = in[2 * i], b = in[2 * i + 1], live = f->count - 8 * i < 8 ? f->count - 8 * i : 8;
        UNROLL
        for (j = 0; j < 4; j++)
            if (j < lists) sum[j] += POPC(eight_take(a, b, k, leaves + j, live));
    }
    UNROLL
    for (j = 0; j < 4; j++)
        if (j < lists) (void)warp_before(LANES_ sum[j], &counts[j]);
}

/* Writes groups of eight codes, from .. to - 1 of a node: their bits to the masks of the node, and their codes, without these
 * bits, to its lists from base[] on. Only the last group of a node may have fewer codes. `k` and `lists` are constants in the
 * calls that most nodes make. */
FN void fork_write(LANES LOCAL const Fork *f, u32 k, u32 lists, GLOBAL u8 *scratch, GLOBAL u8 *target, u32 from, u32 to,
                   u32 base[4])
{
    GLOBAL const u32 *in = (GLOBAL const u32 *)(scratch + f->in);
    GLOBAL u8 *out = target + f->at;
    const u32 leaves = (1u << k) - lists, count = f->count, stride = (count + 7) / 8;
    u32 j, u, first;
    for (first = from; first < to; first += WARP) {
        const u32 i = first + THREAD % WARP, live = i >= to ? 0 : count - 8 * i < 8 ? count - 8 * i : 8;
        u32 eight[2] = { 0, 0 };
        if (live) {
            eight[0] = in[2 * i];
            eight[1] = in[2 * i + 1];
        }
        UNROLL
        for (j = 0; j < 4; j++)
            if (j < k && live)
                out[j * stride + i] = (u8)((gather_tops(eight[0] << j) | gather_tops(eight[1] << j) << 4) & ((1u << live) - 1));
        UNROLL
        for (j = 0; j < 4; j++)
            if (j < lists) {
                const u32 takes = eight_take(eight[0], eight[1], k, leaves + j, live);
                u32 all, at = base[j] + warp_before(LANES_ POPC(takes), &all);
                base[j] += all;
                if (f->list[j] != ~0u) {
                    UNROLL
                    for (u = 0; u < 8; u++)
                        if (takes >> u & 1) scratch[f->list[j] + at++] = (u8)(eight[u / 4] >> u % 4 * 8 << k);
                }
            }
    }
}
FN void fork_kinds(LANES LOCAL const Fork *f, GLOBAL u8 *scratch, GLOBAL u8 *target, u32 from, u32 to, u32 base[4], u32 counting)
{
    const u32 kind = f->bits << 4 | f->lists;
    if (counting && kind == 0x11) fork_count(LANES_ f, 1, 1, scratch, from, to, base);
    else if (counting && kind == 0x21) fork_count(LANES_ f, 2, 1, scratch, from, to, base);
    else if (counting) fork_count(LANES_ f, f->bits, f->lists, scratch, from, to, base);
    else if (kind == 0x11) fork_write(LANES_ f, 1, 1, scratch, target, from, to, base);
    else if (kind == 0x21) fork_write(LANES_ f, 2, 1, scratch, target, from, to, base);
    else fork_write(LANES_ f, f->bits, f->lists, scratch, target, from, to, base);
}

/* Writes all nodes, level by level: large ones by the whole group, the others by a warp each. */
PART void encode_nodes(LANES LOCAL Encoder *g, LOCAL const Coder *c, GLOBAL u8 *scratch, GLOBAL u8 *target)
{
    const u32 warp = THREAD / WARP;
    u32 level, i, j, w;
    for (level = 0; level <= c->deepest; level++) {
        SYNC();
        for (i = 0; i < c->nodes; i++) {
            LOCAL const Fork *f = &c->node[i];
            const u32 groups = (f->count + 7) / 8;
            u32 base[4] = { 0, 0, 0, 0 };
            Share share;
            if (f->level != level) continue;
            if (groups <= 8 * WARP) {
                if (i % WARPS == warp) fork_kinds(LANES_ f, scratch, target, 0, groups, base, 0);
                continue;
            }
            share = share_of(groups, WARP);
            fork_kinds(LANES_ f, scratch, target, share.begin, share.end, base, 1);
            SYNC();
            UNROLL
            for (j = 0; j < 4; j++)
                if (THREAD % WARP == 0) g->part[j][warp] = base[j];
            SYNC();
            UNROLL
            for (j = 0; j < 4; j++)
                for (base[j] = w = 0; w < warp; w++) base[j] += g->part[j][w];
            fork_kinds(LANES_ f, scratch, target, share.begin, share.end, base, 0);
        }
    }
}

FN u32 get_element(u64 elements, u32 width, u32 i)
{
    return width == 1   ? ((GLOBAL const u8 *)(size_t)elements)[i]
           : width == 2 ? ((GLOBAL const u16 *)(size_t)elements)[i]
                        : ((GLOBAL const u32 *)(size_t)elements)[i];
}

/* Loads the elements at positions q .. q+7 of a block of n; q is a multiple of 8 (pair order, 3.2). After the last one:
 * `filler`. */
FN void get8(u64 elements, u32 width, u32 n, u32 q, u32 filler, u32 v[8])
{
    u32 h, k;
    if (q / 64 < n / 64) {
        GLOBAL const u32 *from = (GLOBAL const u32 *)(size_t)elements + q / 64 * 16 * width + q % 64 / 4;
        UNROLL
        for (h = 0; h < 2; h++, from++)
            if (width == 1) {
                UNROLL
                for (k = 0; k < 4; k++) v[4 * h + k] = from[0] >> 8 * k & 255;
            } else if (width == 2) {
                v[4 * h] = from[0] & 0xFFFF;
                v[4 * h + 1] = from[16] & 0xFFFF;
                v[4 * h + 2] = from[0] >> 16;
                v[4 * h + 3] = from[16] >> 16;
            } else {
                UNROLL
                for (k = 0; k < 4; k++) v[4 * h + k] = from[16 * k];
            }
        return;
    }
    UNROLL
    for (k = 0; k < 8; k++) v[k] = q + k < n ? get_element(elements, width, q + k) : filler;
}

/* Bit i of byte k becomes bit k of byte i; bytes 4 to 7 are those of b. */
FN void transpose8(u32 *a, u32 *b)
{
    u32 x = *a, y = *b, t;
    t = (x ^ x >> 7) & 0x00AA00AAu;
    x ^= t ^ t << 7;
    t = (y ^ y >> 7) & 0x00AA00AAu;
    y ^= t ^ t << 7;
    t = (x ^ x >> 14) & 0x0000CCCCu;
    x ^= t ^ t << 14;
    t = (y ^ y >> 14) & 0x0000CCCCu;
    y ^= t ^ t << 14;
    *a = (y << 4 & 0xF0F0F0F0u) | (x & 0x0F0F0F0Fu);
    *b = (y & 0xF0F0F0F0u) | (x >> 4 & 0x0F0F0F0Fu);
}

/* Writes the raw planes, eight positions a work-item at a time. */
PART void encode_planes(LOCAL const Group *y, u64 elements, GLOBAL u8 *target, u32 n)
{
    const u32 width = y->width, shift = 8 * width - 1 - y->e;
    u32 q, k, u;
    for (q = 8 * THREAD; q < n; q += 8 * THREADS) {
        u32 x[8];
        get8(elements, width, n, q, 0, x);
        UNROLL
        for (u = 0; u < 8; u++) x[u] = (x[u] & ((1u << shift) - 1)) | (x[u] >> (8 * width - 1)) << shift;
        for (k = 0; k < y->planes; k++) {
            const u32 varying = y->varying[k];
            u32 a = 0, b = 0, v, at = y->plane[k];
            UNROLL
            for (u = 0; u < 4; u++) {
                a |= (x[u] >> 8 * k & 255) << 8 * u;
                b |= (x[u + 4] >> 8 * k & 255) << 8 * u;
            }
            if (varying == 0xFF) {
                UNROLL
                for (u = 0; u < 8; u++)
                    if (q + u < n) target[at + q + u] = (u8)((u < 4 ? a : b) >> u % 4 * 8);
            } else {
                const u32 bytes = q / 64 < n / 64 ? 8 : (n % 64 + 7) / 8;
                transpose8(&a, &b);
                at += q / 64 * 8 * POPC(varying) + q % 64 / 8;
                for (v = varying; v; v &= v - 1, at += bytes) {
                    const u32 bit = CTZ(v);
                    target[at] = (u8)((bit < 4 ? a : b) >> bit % 4 * 8);
                }
            }
        }
    }
}

/* ---- blocks ---- */

CONSTANT u8 exponent_bits[12] = { 0, 0, 0, 0, 0, 0, 4, 5, 5, 8, 8, 11 };

/* Writes the descriptor, from the bits that vary, by one work-item. Returns its size. */
FN u32 encode_layout(LOCAL Encoder *g, GLOBAL const bitsnap_work *work, GLOBAL u8 *target, u32 body)
{
    LOCAL Group *y = &g->layout;
    const u32 usual = exponent_bits[work->dtype], n = work->count;
    u32 shift, where, some = 0, k, at = body + 1, value, x;
    y->width = width_of[work->dtype];
    y->e = usual + (y->width == 1 && work->level != BITSNAP_FAST);
    y->planes = y->e == 8 ? y->width - 1 : y->width;
    shift = 8 * y->width - 1 - y->e;
    x = get_element(work->source, y->width, 0);
    value = (x & ((1u << shift) - 1)) | (x >> (8 * y->width - 1)) << shift;
    where = (~g->varying & ((1u << shift) - 1)) | (~g->varying >> (8 * y->width - 1) & 1) << shift;
    for (k = 0; k < y->planes; k++) {
        const u32 rest = k == y->width - 1 ? 0xFFu >> y->e : 0xFFu, fixed = where >> 8 * k & rest;
        y->varying[k] = rest & ~fixed;
        y->value[k] = value >> 8 * k & fixed;
        some |= fixed;
    }
    target[body] = (u8)(y->e | (some ? 16 : 0));
    if (some)
        for (k = 0; k < y->planes; k++) {
            target[at + k] = (u8)y->varying[k];
            target[at + y->planes + k] = (u8)y->value[k];
        }
    at += some ? 2 * y->planes : 0;
    y->body = body;
    for (k = 0; k < y->planes; k++) {
        y->plane[k] = at;
        at += raw_plane_size(y->varying[k], n);
    }
    y->list = at;
    return at;
}

/* Finds the bits that vary, and the symbols of all positions with their counts. */
FN void encode_symbols(LOCAL Encoder *g, GLOBAL const bitsnap_work *work, GLOBAL u8 *symbols, u32 e)
{
    const u32 width = width_of[work->dtype], n = work->count, shift = 8 * width - 1 - e, log2 = work->level == BITSNAP_FAST ? 4 : 3;
    const u32 sampled = n >= (log2 == 4 ? 4096u : 32768u), x0 = get_element(work->source, width, 0);
    const u64 source = work->source;
    u32 q, u, any = 0;
    for (q = 8 * THREAD; q < n; q += 8 * THREADS) {
        const u32 line = q / 64, group = line >> log2;
        const u32 which = (group + (group >> log2) + (group >> 2 * log2)) & ((1u << log2) - 1);
        const u32 counts = !sampled || (64 * line + 64 <= n && line % (1u << log2) == which);
        u32 x[8], four[2] = { 0, 0 };
        get8(source, width, n, q, x0, x);
        UNROLL
        for (u = 0; u < 8; u++) {
            any |= x[u] ^ x0;
            x[u] = x[u] >> shift & ((1u << e) - 1);
            four[u / 4] |= x[u] << u % 4 * 8;
            if (q + u < n) ATOMIC_ADD(&g->full[x[u]], 1);
        }
        if (counts) {
            UNROLL
            for (u = 0; u < 8; u++)
                if (q + u < n) ATOMIC_ADD(&g->h[x[u]], 1);
        }
        ((GLOBAL u32 *)symbols)[q / 4] = four[0];
        ((GLOBAL u32 *)symbols)[q / 4 + 1] = four[1];
    }
    ATOMIC_OR(&g->varying, any);
    SYNC();
}

/* Returns whether the host would try PARTED, by the rule of bsn_looks_parted. */
FN u32 encode_may_part(LOCAL Encoder *g, GLOBAL const bitsnap_work *work)
{
    const u32 width = width_of[work->dtype], n = work->count, runs = n / 128 < 64 ? n / 128 : 64, magnitude = (1u << (8 * width - 1)) - 1;
    LOCAL u32 *low = g->h, *zeros = g->h + 33; /* the number of runs of 8 elements, not all 0, by the number of low bits that are
                                                  0 in all 8 */
    u32 r, u, z, above = 0, least = 0, found;
    for (r = THREAD; r < runs; r += THREADS) {
        u32 x[8], any = 0, none = 0;
        get8(work->source, width, n, (n / 8 - 1) * r / (runs - 1) * 8, 0, x);
        UNROLL
        for (u = 0; u < 8; u++) {
            any |= x[u] & magnitude;
            none += !(x[u] & magnitude);
        }
        if (none) ATOMIC_ADD(zeros, none);
        if (any) ATOMIC_ADD(&low[POPC((any & (0 - any)) - 1)], 1);
    }
    SYNC();
    found = *zeros * 4 >= runs;
    while (least < 32 && !low[least]) least++;
    if (least >= 3) { /* of the sample; do all elements have these bits in common? */
        u32 x[8], any = 0;
        for (r = 8 * THREAD; r < n; r += 8 * THREADS) {
            get8(work->source, width, n, r, 0, x);
            for (u = 0; u < 8 && r + u < n; u++) any |= x[u];
        }
        ATOMIC_OR(&zeros[1], any & (least < 32 ? (1u << least) - 1 : ~0u));
        SYNC();
        if (zeros[1]) least = POPC((zeros[1] & (0 - zeros[1])) - 1);
    }
    for (z = 32; z >= 3 && z > least; z--) {
        above += low[z];
        if (z <= 8 * width - 1 - exponent_bits[work->dtype] && 8 * above * (z - least) >= runs) found = 1;
    }
    return found;
}

/* Returns whether the host may code planes, by the rule of bsn_choose_coded. Also 1 if the first elements do not show which bits
 * vary. */
FN u32 encode_may_rank(LOCAL Encoder *g, GLOBAL const bitsnap_work *work)
{
    const u32 width = width_of[work->dtype], n = work->count, groups = n / 64, x0 = get_element(work->source, width, 0);
    LOCAL u32 *varying = &g->full[0], *values = &g->full[1]; /* of 8 groups for each plane below the top one */
    u32 r, u, k, any = 0, found = 0;
    for (r = THREAD; r < 4096; r += THREADS) any |= get_element(work->source, width, r) ^ x0;
    ATOMIC_OR(varying, any);
    SYNC();
    any = *varying;
    for (r = THREAD; r < 8 * (width - 1); r += THREADS) {
        const u32 first = (groups - 1) * (r % 8 + 1) / 9 * 64, shift = r / 8 * 8;
        const u32 coded = any >> shift & (exponent_bits[work->dtype] == 8 && r / 8 + 2 == width ? 0x7Fu : 0xFFu);
        u32 mask[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
        for (u = 0; u < 64; u++) {
            const u32 value = get_element(work->source, width, first + u) >> shift & coded;
            UNROLL
            for (k = 0; k < 8; k++) mask[k] |= value / 32 == k ? 1u << value % 32 : 0u;
        }
        for (k = u = 0; k < 8; k++) u += POPC(mask[k]);
        values[r] = u;
    }
    SYNC();
    for (k = 0; k + 1 < width; k++) {
        const u32 bits = POPC(any >> 8 * k & (exponent_bits[work->dtype] == 8 && k + 2 == width ? 0x7Fu : 0xFFu));
        const u32 most = bits < 6 ? 0 : bits == 6 ? 30 : bits == 7 ? 40 : 46;
        u32 sum = 0, few = most != 0;
        for (r = 0; r < 8; r++) {
            sum += values[8 * k + r];
            if (sum >= most * (r + 1) + (r < 7 ? 12 : 0)) few = 0;
        }
        found |= few;
    }
    SYNC();
    return found || !any;
}

/* Chooses codes. Returns 0, or a status that leaves the block to the host. */
FN u32 encode_choose(LANES LOCAL Encoder *g, ARENA Plan *p, GLOBAL const bitsnap_work *work)
{
    const u32 fast = work->level == BITSNAP_FAST, n = work->count;
    u32 total, lost = n >= (fast ? 4096u : 32768u), i;
    if (THREAD == 0)
        for (i = g->most = g->used = g->total = 0; i < 256; i++) {
            g->total += g->h[i];
            g->most = g->h[i] > g->most ? g->h[i] : g->most;
            g->used += g->h[i] > 0;
        }
    SYNC();
    total = g->total;
    if (lost) lost = (total >> 12) + 1;
    if (lost && (8 * g->most > 5 * total || (g->used > 64 && !fast))) { /* skewed, or too many symbols for a sample */
        lost = 0;
        total = n;
        for (i = THREAD; i < 256; i += THREADS) g->h[i] = g->full[i];
        SYNC();
        if (THREAD == 0)
            for (i = g->most = 0; i < 256; i++) g->most = g->h[i] > g->most ? g->h[i] : g->most;
        SYNC();
    }
    if (!lost && 8 * g->most > 5 * n) return ST_DECLINED;
    if (!encode_plan(g, p, g->h, total, fast ? 9 : 8, lost)) return ST_DECLINED;
    /* escapes may take less, which the host knows */
    if ((g->bits + (lost ? 0 : 8 * g->escapes + 8)) / 8 >= total) return ST_DECLINED;
    for (i = THREAD; i < 256; i += THREADS) g->h[i] = g->length[i] ? 0 : g->full[i]; /* escapes */
    encode_tree(LANES_ g, &g->outer, g->full);
    return ST_OK;
}

/* Plans the list of the escapes, raw if `shift` is 0. Returns 0, or a status that leaves the block to the host. */
FN u32 encode_choose_escapes(LANES LOCAL Encoder *g, ARENA Plan *p, u32 shift)
{
    LOCAL Coder *c = &g->inner;
    u32 m, i;
    if (THREAD == 0) {
        c->count = c->escapes = c->escape_at = c->nodes = g->most = 0;
        for (i = 0; i < 256; i++) {
            c->count += g->h[i];
            g->most = g->h[i] > g->most ? g->h[i] : g->most;
        }
        c->kind = 0;
        c->table[0] = 0;
        c->table_size = 1;
        c->size = 1 + c->count;
        if (shift && c->count && g->most == c->count) {
            for (i = 0; !g->h[i]; i++) {}
            c->kind = c->table[0] = 1;
            c->table[1] = (u8)i;
            c->table_size = c->size = 2;
        }
    }
    SYNC();
    m = c->count;
    if (!shift || m < 16 || c->kind == 1) return ST_OK;
    if (2 * g->h[0] > m) return ST_DECLINED;
    if (encode_plan(g, p, g->h, m, shift, 0) && g->bits + (g->escapes ? 8 * g->escapes + 8 : 0) < 8 * m + 8) {
        LOCAL u32 *rare = g->full; /* no longer needed */
        for (i = THREAD; i < 256; i += THREADS) rare[i] = g->length[i] ? 0 : g->h[i];
        encode_tree(LANES_ g, c, g->h);
    }
    return ST_OK;
}

/* Copies those of m symbols that have no code to `to`, and writes the codes of the others to `symbols`. The whole group does it,
 * eight symbols a work-item at a time. */
FN void encode_map(LANES LOCAL Encoder *g, LOCAL const Coder *c, GLOBAL u8 *symbols, GLOBAL u8 *to, u32 m)
{
    const u32 escape_code = c->escape_code, has_escape = c->kind != 2, lane = THREAD % WARP;
    const Share share = share_of((m + 7) / 8, WARP);
    GLOBAL u32 *words = (GLOBAL u32 *)symbols;
    u32 pass, first, k, u, h, at = 0;
    for (pass = has_escape ? 0 : 1; pass < 2; pass++) {
        for (first = share.begin; first < share.end; first += WARP) {
            const u32 i = first + lane, live = i >= share.end ? 0 : m - 8 * i < 8 ? m - 8 * i : 8;
            u32 eight[2] = { 0, 0 }, codes[2] = { 0, 0 }, escapes = 0, all = 0;
            UNROLL
            for (h = 0; h < 2; h++) {
                if (!live) continue;
                eight[h] = words[2 * i + h];
                UNROLL
                for (u = 0; u < 4; u++) {
                    const u32 code = c->code[eight[h] >> 8 * u & 255];
                    codes[h] |= code << 8 * u;
                    escapes |= (u32)(code == escape_code) << (4 * h + u);
                }
                if (pass) words[2 * i + h] = codes[h];
            }
            escapes &= (1u << live) - 1;
            if (!pass) {
                at += POPC(escapes);
                continue;
            }
            if (!has_escape) continue;
            k = at + warp_before(LANES_ POPC(escapes), &all);
            for (; escapes; escapes &= escapes - 1) {
                u = CTZ(escapes);
                to[k++] = (u8)((u < 4 ? eight[0] : eight[1]) >> u % 4 * 8);
            }
            at += all;
        }
        if (pass) break;
        (void)warp_before(LANES_ at, &at);
        if (lane == 0) g->part[4][THREAD / WARP] = at;
        SYNC();
        at = part_before(g->part[4], &k);
    }
    TOGETHER();
}

/* Finds the places of a list, from byte `at` of the target to g->end, and of the list of its escapes, which lies inside it and is
 * therefore measured first. Called by one work-item. */
FN void encode_place(LOCAL Encoder *g, u32 at, u32 scratch_size)
{
    LOCAL Coder *c = &g->inner;
    u32 rare = 0, i;
    for (i = 0; i < 256 && c->kind > 1; i++) rare += g->full[i];
    g->escapes_in = MAX_ELEMENTS;
    g->rare_in = g->escapes_in + ((c->count + 7) & ~7u);
    g->scratch_used = g->rare_in + ((rare + 7) & ~7u);
    g->status = c->kind > 1 ? encode_walk(g, c, 0, g->escapes_in, 1 + rare, scratch_size) : ST_OK;
    if (!g->status && g->outer.kind > 1) g->status = encode_walk(g, &g->outer, at, 0, c->size, scratch_size);
    for (i = 0; i < c->nodes; i++) c->node[i].at += g->outer.escape_at;
    c->escape_at += g->outer.escape_at;
    g->end = at + g->outer.size;
}

/* Writes a list of the symbols at `symbols` to byte `at` of the target, and its escapes to `to`, by the whole group. */
FN void encode_coded(LANES LOCAL Encoder *g, LOCAL const Coder *c, GLOBAL u8 *scratch, GLOBAL u8 *symbols, GLOBAL u8 *to, GLOBAL u8 *target,
                     u32 at)
{
    u32 i;
    for (i = THREAD; i < c->table_size; i += THREADS) target[at + i] = c->table[i];
    if (c->kind == 0)
        for (i = THREAD; i < c->count; i += THREADS) target[at + 1 + i] = symbols[i];
    if (c->kind > 1) {
        encode_map(LANES_ g, c, symbols, to, c->count);
        encode_nodes(LANES_ g, c, scratch, target);
    }
}
FN void encode_list(LANES LOCAL Encoder *g, GLOBAL u8 *symbols, GLOBAL u8 *target, u32 at)
{
    LOCAL const Coder *c = &g->inner;
    GLOBAL u8 *escapes = symbols + g->escapes_in, *rare = symbols + g->rare_in;
    u32 i;
    encode_coded(LANES_ g, &g->outer, symbols, symbols, escapes, target, at);
    if (c->count) {
        encode_coded(LANES_ g, c, symbols, escapes, rare, target, g->outer.escape_at);
        if (c->kind > 1 && c->escapes) {
            if (THREAD == 0) target[c->escape_at] = 0;
            for (i = THREAD; i < c->escapes; i += THREADS) target[c->escape_at + 1 + i] = rare[i];
        }
    }
}

/* Writes head and check of a block whose body is complete, from byte `body` to `end`. The pieces of g->layout are the hashed
 * parts. */
FN void encode_head(LOCAL Encoder *g, ARENA u32 *arena, GLOBAL const bitsnap_work *work, u32 form, u32 body, u32 end)
{
    const u32 head = form | (end - body) << 8, begin = (u32)(work->target & 3);
    GLOBAL u8 *target = (GLOBAL u8 *)(size_t)work->target;
    const Source s = source_of(work->target, end);
    LOCAL Group *y = &g->layout;
    u32 i;
    if (THREAD == 0)
        for (i = 0; i < 4; i++) target[i] = (u8)(head >> 8 * i);
    if (work->flags & BITSNAP_WORK_CHECKS) { /* as they are looked at */
        if (THREAD == 0) {
            for (i = 0; i < y->planes; i++) y->plane[i] += begin;
            for (i = 0; i < y->pieces.count; i++) y->pieces.at[i] += begin;
            y->list += begin;
            y->body = body + begin;
        }
        hash_pieces(&y->pieces, (ARENA u64 *)arena, s);
        if (THREAD == 0) {
            const u64 check = block_record(y, arena, work, head, s);
            for (i = 0; i < 8; i++) target[4 + i] = (u8)(check >> 8 * i);
        }
    }
}

/* Encodes a block, by the whole group, and returns its status. If that is not 0, the target is unspecified. */
FN u32 block_encode(LANES LOCAL Encoder *g, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 scratch_size,
                    GLOBAL const bitsnap_work *work, u32 *size)
{
    const u32 n = work->count, body = work->flags & BITSNAP_WORK_CHECKS ? 12 : 4, t = THREAD;
    const u32 width = work->dtype < 12 ? width_of[work->dtype] : 0, fast = work->level == BITSNAP_FAST;
    ARENA Plan *p = (ARENA Plan *)arena;
    GLOBAL u8 *symbols = (GLOBAL u8 *)scratch, *target = (GLOBAL u8 *)(size_t)work->target;
    LOCAL Group *y = &g->layout;
    u32 status, i, end;
    if (work->dtype < BITSNAP_F8_E4M3 || width == 8 || !width || n < 4096 || n > MAX_ELEMENTS || work->role || (work->source & 3) ||
        (!fast && work->level != BITSNAP_DEFAULT) || work->size < body + n * width ||
        arena_size < LEAST_ARENA / 4 || scratch_size < 4 * MAX_ELEMENTS) return ST_DECLINED;
    for (i = t; i < 256; i += THREADS) g->h[i] = g->full[i] = 0;
    for (i = t; i < 65; i += THREADS) ((LOCAL u32 *)g->length)[i] = 0;
    if (t == 0) g->varying = 0;
    SYNC();
    if (encode_may_part(g, work)) return ST_DECLINED;
    if (encode_may_rank(g, work)) return ST_DECLINED;
    for (i = t; i < 64; i += THREADS) g->h[i] = g->full[i] = 0;
    SYNC();
    encode_symbols(g, work, symbols, exponent_bits[work->dtype] + (width == 1 && !fast));
    if (!g->varying) return ST_DECLINED;
    status = encode_choose(LANES_ g, p, work);
    if (status) return status;
    status = encode_choose_escapes(LANES_ g, p, fast ? 0 : 9);
    if (status) return status;
    if (t == 0) {
        encode_place(g, encode_layout(g, work, target, body), scratch_size);
        for (i = 0; i < y->planes; i++) {
            y->pieces.at[i] = y->plane[i];
            y->pieces.size[i] = raw_plane_size(y->varying[i], n);
        }
        y->pieces.at[i] = y->list;
        y->pieces.size[i] = g->end - y->list;
        y->pieces.count = i + 1;
    }
    SYNC();
    status = g->status;
    end = g->end;
    if (status) return status;
    if (end - body >= n * width) return ST_DECLINED; /* must gain a byte */
    encode_planes(y, work->source, target, n);
    encode_list(LANES_ g, symbols, target, y->list);
    encode_head(g, arena, work, 2, body, end);
    *size = end;
    return ST_OK;
}

/* A kernel that encodes each block of `works` with this function. The group's memory begins with a `type`. */
#define ENCODES(kernel, type, block) \
    KERNEL(4) kernel(KERNEL_PARAMETERS) \
    { \
        GROUP_MEMORY(type); \
        u32 i; \
        for (i = GROUP; i < count; i += GROUPS) { \
            u32 size = 0; \
            const u32 status = block(LANES_ g, arena, arena_size, own, scratch_size, works + i, &size); \
            SYNC(); \
            if (THREAD == 0) { \
                done[i].status = status; \
                done[i].size = status ? 0 : size; \
            } \
        } \
    }
ENCODES(offload_encode, Encoder, block_encode)

#endif
