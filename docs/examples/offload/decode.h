/* decode.h - blocks (FORMAT.md, section 5) decoded by groups. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_DECODE_H
#define OFFLOAD_DECODE_H

#include "quantized.h"
#include "hash.h"

typedef struct Group {
    Lists lists;
    Pieces pieces;
    Words words;
    Numbers numbers;
    u64 leaf[MAX_SPARSE / MAX_ELEMENTS]; /* hash leaves of a cell */
    u32 status, width, body, end; /* body, end: offsets into the source */
    u32 e, planes, varying[4], value[4], plane[4], list; /* SPLIT */
} Group;

FN void put_bytes(ARENA u32 *record, u32 *at, u64 x, u32 size)
{
    ARENA u8 *to = (ARENA u8 *)record;
    for (; size; size--, x >>= 8) to[(*at)++] = (u8)x;
}

FN u32 raw_plane_size(u32 varying, u32 n)
{
    return varying == 0xFF ? n : POPC(varying) * (n / 64 * 8 + (n % 64 + 7) / 8);
}

/* Reads the descriptor of a SPLIT block (5.2), by one work-item. */
FN u32 split_begin(LOCAL Group *g, const Source s, u32 dtype, u32 n)
{
    const u32 first = read8(s, g->body), bits = 8 * g->width, e = first & 15;
    u32 at = g->body + 1, k, fixed = 0;
    if (first >> 5 == 1) return ST_DECLINED; /* coded planes */
    if (dtype < BITSNAP_F8_E4M3 || first >> 5 || e < 1 || e > 8 || e > bits - 1) return ST_CORRUPT(19);
    g->e = e;
    g->planes = e == 8 ? g->width - 1 : g->width;
    if ((first & 16) && g->end - at < 2 * g->planes) return ST_CORRUPT(18);
    for (k = 0; k < g->planes; k++) {
        const u32 rest = k == g->width - 1 ? 0xFFu >> e : 0xFFu;
        g->varying[k] = first & 16 ? read8(s, at + k) : rest;
        g->value[k] = first & 16 ? read8(s, at + g->planes + k) : 0;
        if ((g->varying[k] & ~rest) || (g->value[k] & ~(rest & ~g->varying[k]))) return ST_CORRUPT(20);
        fixed |= rest & ~g->varying[k];
    }
    if (first & 16) {
        if (!fixed) return ST_CORRUPT(20);
        at += 2 * g->planes;
    }
    for (k = 0; k < g->planes; k++) {
        g->plane[k] = at;
        at += raw_plane_size(g->varying[k], n);
        if (at > g->end) return ST_CORRUPT(18);
    }
    g->list = at;
    return ST_OK;
}

/* Rejects a bit plane with a 1 after its last bit (R22), by one work-item. */
FN u32 split_tails(LOCAL const Group *g, const Source s, u32 n)
{
    u32 k, bytes = (n % 64 + 7) / 8;
    if (n % 8 == 0) return ST_OK;
    for (k = 0; k < g->planes; k++) {
        u32 at = g->plane[k] + POPC(g->varying[k]) * (n / 64 * 8), v;
        for (v = g->varying[k] == 0xFF ? 0 : g->varying[k]; v; v &= v - 1, at += bytes)
            if (read8(s, at + bytes - 1) >> n % 8) return ST_CORRUPT(22);
    }
    return ST_OK;
}

/* Reads the bytes of a plane at positions q .. q + 7; q is a multiple of 8. Bytes past the last position are unspecified. `row`:
 * their row has all 64 positions. */
FN void raw8(LOCAL const Group *g, const Source s, u32 k, u32 q, u32 n, u32 row, u32 bytes[2])
{
    const u32 varying = g->varying[k], step = row ? 8 : (n % 64 + 7) / 8;
    u32 at = g->plane[k] + q, v;
    if (varying == 0xFF) {
        bytes[0] = read32(s, at);
        bytes[1] = read32(s, at + 4);
        return;
    }
    bytes[0] = bytes[1] = g->value[k] * 0x01010101u;
    at = g->plane[k] + q / 64 * 8 * POPC(varying) + q % 64 / 8;
    for (v = varying; v; v &= v - 1, at += step) {
        const u32 eight = read8(s, at), bit = v & (0u - v);
        bytes[0] |= ((eight & 15) * 0x00204081u & 0x01010101u) * bit;
        bytes[1] |= ((eight >> 4) * 0x00204081u & 0x01010101u) * bit;
    }
}

/* ---- elements: four positions at a time, in words of pair order (3.2). Of one byte: elements 0 1 2 3 in one word; of two bytes:
 * 0 2 and 1 3; of four: one element a word ---- */

/* Joins planes: byte k of each element comes from planes[k]. */
FN void weave(u32 width, const u32 planes[4], u32 words[4])
{
    const u32 even = PERM(planes[0], planes[1], 0x6240), odd = PERM(planes[0], planes[1], 0x7351);
    if (width == 1) words[0] = planes[0];
    else if (width == 2) {
        words[0] = even;
        words[1] = odd;
    } else {
        const u32 high_even = PERM(planes[2], planes[3], 0x6240), high_odd = PERM(planes[2], planes[3], 0x7351);
        words[0] = PERM(even, high_even, 0x5410);
        words[1] = PERM(odd, high_odd, 0x5410);
        words[2] = PERM(even, high_even, 0x7632);
        words[3] = PERM(odd, high_odd, 0x7632);
    }
}

/* Repeats `bits` in each element of a word. */
FN u32 in_each(u32 width, u32 bits) { return width == 1 ? bits * 0x01010101u : width == 2 ? bits * 0x00010001u : bits; }

/* Stores the elements at positions q .. q + 3 of a block of n; q is a multiple of 4. */
FN void put4(u64 target, u32 width, u32 n, u32 q, const u32 words[4])
{
    u32 k;
    if (q / 64 < n / 64) {
        GLOBAL u32 *to = (GLOBAL u32 *)(size_t)target + q / 64 * 16 * width + q % 64 / 4;
        UNROLL
        for (k = 0; k < 4; k++)
            if (k < width) to[16 * k] = words[k];
        return;
    }
    UNROLL
    for (k = 0; k < 4; k++)
        if (q + k < n) {
            if (width == 1) ((GLOBAL u8 *)(size_t)target)[q + k] = (u8)(words[0] >> 8 * k);
            else if (width == 2) ((GLOBAL u16 *)(size_t)target)[q + k] = (u16)(words[k % 2] >> 8 * (k & 2));
            else ((GLOBAL u32 *)(size_t)target)[q + k] = words[k];
        }
}

/* Joins symbols and raw planes in field order (3.1). A work-item makes eight positions at a time. Each call passes a constant
 * `width`. */
FN void split_put(LOCAL const Group *g, const Source s, GLOBAL const u32 *symbols, u32 width, u64 target, u32 n)
{
    const u32 e = g->e, shift = 8 * width - 1 - e;
    const u32 sign = in_each(width, 1u << (8 * width - 1)), mantissa = in_each(width, (1u << shift) - 1);
    const u32 planes = g->planes;
    u32 begin[4], whole = 0, q, k, i;
    UNROLL
    for (k = 0; k < 4; k++) { /* read before the loop, because the compiler must assume that its stores change *g */
        begin[k] = k < planes ? g->plane[k] : 0;
        whole |= (u32)(k < planes && g->varying[k] == 0xFF) << k;
    }
    for (q = 8 * THREAD; q < n; q += 8 * THREADS) {
        const u32 row = q / 64 < n / 64;
        u32 raw[4][2] = { { 0, 0 }, { 0, 0 }, { 0, 0 }, { 0, 0 } };
        UNROLL
        for (k = 0; k < 4; k++)
            if (k < width && row && (whole >> k & 1)) { /* all eight bytes are inside the source, so read_word is not needed */
                const u32 at = begin[k] + q, bits = at % 4 * 8;
                GLOBAL const u32 *w = s.words + at / 4;
                raw[k][0] = FUNNEL(w[0], w[1], bits);
                raw[k][1] = FUNNEL(w[1], bits ? w[2] : 0, bits);
            } else if (k < width && k < planes) {
                raw8(g, s, k, q, n, row, raw[k]);
            }
        UNROLL
        for (i = 0; i < 2; i++) {
            u32 exponents[4] = { 0, 0, 0, 0 }, bytes[4], high[4], words[4];
            exponents[0] = symbols[q / 4 + i];
            UNROLL
            for (k = 0; k < 4; k++) bytes[k] = raw[k][i];
            weave(width, exponents, high);
            weave(width, bytes, words);
            UNROLL
            for (k = 0; k < 4; k++)
                if (k < width) words[k] = high[k] << shift | (words[k] & mantissa) | (words[k] << e & sign);
            put4(target, width, n, q + 4 * i, words);
        }
    }
}

FN void bytes_put(u32 width, u32 zigzag, GLOBAL const u32 *symbols, u64 target, u32 n)
{
    const u32 ones = in_each(width, 1), most = 0xFFFFFFFFu >> (32 - 8 * width);
    u32 q, k;
    for (q = 4 * THREAD; q < n; q += 4 * THREADS) {
        u32 planes[4] = { 0, 0, 0, 0 }, words[4] = { 0, 0, 0, 0 };
        UNROLL
        for (k = 0; k < 4; k++)
            if (k < width) planes[k] = symbols[(k * MAX_ELEMENTS + q) / 4];
        weave(width, planes, words);
        UNROLL
        for (k = 0; k < 4; k++)
            if (zigzag) words[k] = (words[k] >> 1 & in_each(width, most >> 1)) ^ (words[k] & ones) * most;
        put4(target, width, n, q, words);
    }
}

/* Copies `size` bytes of the source from byte `at` on. `period`: repeats the first `period` bytes, for constants; 0: does not
 * repeat. */
FN void plain_put(const Source s, u32 at, u32 period, u64 target, u32 size)
{
    u32 i, k;
    for (i = THREAD; i < (size + 3) / 4; i += THREADS) {
        u32 word = 0;
        if (!period) word = read32(s, at + 4 * i);
        else
            for (k = 0; k < 4; k++) word |= read8(s, at + (4 * i + k) % period) << 8 * k;
        if (4 * i + 4 <= size) ((GLOBAL u32 *)(size_t)target)[i] = word;
        else
            for (k = 0; 4 * i + k < size; k++) ((GLOBAL u8 *)(size_t)target)[4 * i + k] = (u8)(word >> 8 * k);
    }
}

/* ---- blocks ---- */

/* Reads head and descriptor, and lists the parts that the check covers, by one work-item. */
FN u32 block_begin(LOCAL Group *g, GLOBAL const bitsnap_work *work, const Source s)
{
    const u32 form = work->head & 255, begin = (u32)(work->source & 3), n = work->count;
    u32 status, k;
    g->width = work->dtype < 12 ? width_of[work->dtype] : 0;
    g->body = begin + 4 + (work->flags & BITSNAP_WORK_CHECKS ? 8 : 0) + (work->role ? 16 : 0);
    g->end = begin + work->size;
    g->pieces.count = 0;
    if (!g->width || n == 0 || (n > MAX_ELEMENTS && (work->role ? (form != 4 && form != 8) || n > MAX_SPARSE
                                                                  : form != 1 || n > 0xFFFFFFF0u / g->width)) ||
        (work->target & 3) || (work->base & 3) || form > 9 || (form == 6 && !work->columns) || (form == 7 && !work->bins) ||
        work->role > 2 || ((form == 6 || form == 7) && (work->role || work->dtype < BITSNAP_F16 || work->bins > CELLS_MOST)) ||
        (g->width == 8 && (form > 1 || work->role)) ||
        (!work->role && (form == 4 || form == 5 || form == 8)) || g->end < g->body ||
        (form != 1 && work->head >> 8 != g->end - g->body) || (form == 1 && g->end - g->body != g->width) ||
        (form == 0 && g->end - g->body != n * g->width) || (form > 1 && g->end - g->body > 4 * MAX_ELEMENTS + 2 * (form == 5))) return ST_DECLINED;
    if (read32(s, begin) != work->head) return ST_CORRUPT(40);
    if (form == 2) {
        status = split_begin(g, s, work->dtype, n);
        if (status) return status;
        for (k = 0; k < g->planes; k++) {
            g->pieces.at[k] = g->plane[k];
            g->pieces.size[k] = raw_plane_size(g->varying[k], n);
        }
        g->pieces.at[k] = g->list;
        g->pieces.size[k] = g->end - g->list;
        g->pieces.count = k + 1;
    } else {
        g->pieces.at[0] = g->body;
        g->pieces.size[0] = g->end - g->body;
        g->pieces.count = 1;
    }
    return ST_OK;
}

/* Verifies the check, the hash of a record (5.5) of at most 144 bytes, by one work-item. */
FN u64 block_record(LOCAL Group *g, ARENA u32 *record, GLOBAL const bitsnap_work *work, u32 head, const Source s)
{
    u32 at = 0, k, i;
    Source whole;
    put_bytes(record, &at, work->header_check, 8);
    put_bytes(record, &at, work->first, 8);
    put_bytes(record, &at, work->count, 8);
    put_bytes(record, &at, head, 4);
    if (work->role)
        for (i = 0; i < 2; i++) put_bytes(record, &at, read64(s, g->body - 16 + 8 * i), 8);
    if ((head & 255) == 2)
        for (i = g->body; i < (g->planes ? g->plane[0] : g->list); i++) put_bytes(record, &at, read8(s, i), 1);
    for (k = 0; k < g->pieces.count; k++) put_bytes(record, &at, g->pieces.hash[k], 8);
    whole.words = record;
    whole.last = (at + 3) / 4 - 1;
    return hash_few(whole, 0, at);
}

/* Returns the number of elements in leaf i of a cell of n. */
FN u32 leaf_size(u32 n, u32 i) { return n - i * MAX_ELEMENTS < MAX_ELEMENTS ? n - i * MAX_ELEMENTS : MAX_ELEMENTS; }

/* Hashes a leaf of a cell (7.1) to g->leaf[k]. */
FN void leaf_hash(LOCAL Group *g, ARENA u32 *arena, GLOBAL const void *elements, u32 size, u32 k)
{
    const Source leaf = source_of((u64)(size_t)elements, size);
    SYNC();
    if (THREAD == 0) {
        g->pieces.count = 1;
        g->pieces.at[0] = 0;
        g->pieces.size[0] = size;
    }
    hash_pieces(&g->pieces, (ARENA u64 *)arena, leaf);
    if (THREAD == 0) g->leaf[k] = g->pieces.hash[0];
}

/* Compares the hash of a cell, of `leaves` leaves, with hash k of the block. k is 0 for the base, 1 for the result. */
FN u32 cell_check(LOCAL Group *g, ARENA u32 *arena, const Source s, u32 k, u32 leaves)
{
    if (THREAD == 0) {
        Source all;
        u32 at = 0, i;
        for (i = 0; i < leaves; i++) put_bytes(arena, &at, g->leaf[i], 8);
        all.words = arena;
        all.last = at / 4 - 1;
        g->status = hash_few(all, 0, at) == read64(s, g->body - 16 + 8 * k) ? ST_OK : k ? ST_CHECK(45) : ST_BASE(44);
    }
    SYNC();
    return g->status;
}

/* Decodes a block to `out`. With a base, the result stays in scratch memory. */
FN u32 body_decode(LANES LOCAL Group *g, GLOBAL const bitsnap_work *work, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch,
                   const Source s, const Base base, u32 form, u32 n, u64 out, u32 deltas)
{
    const u32 lists = form == 2 ? 1 : form == 3 || form == 9 ? g->width : 0, numbers = deltas && (form == 6 || form == 7);
    const u32 classed = base.role && form == 5, used = numbers ? SCALES_AT + SCALES_SIZE : base.role ? SCALES_AT : lists * MAX_ELEMENTS;
    u32 k;
    if (THREAD == 0) {
        g->words.changed = 0;
        g->lists.status = form == 2 ? split_tails(g, s, n) : ST_OK;
        g->lists.at = form == 2 ? g->list : g->body;
        g->lists.end = g->end;
    }
    SYNC();
    for (k = 0; k < lists && !g->lists.status; k++)
        list_read(LANES_ &g->lists, arena, arena_size, scratch, used, s, n, form == 2 ? g->e : 8, k * MAX_ELEMENTS);
    if (classed) classed_decode(LANES_ &g->words, &g->lists, arena, arena_size, scratch, used, s, base, n);
    if (numbers)
        numbers_decode(LANES_ &g->numbers, &g->words, &g->lists, arena, arena_size, scratch, used, s, work);
    if (base.role && form == 8) sparse_decode(LANES_ &g->words, &g->lists, scratch, s, base, n);
    SYNC();
    if (g->lists.status) return g->lists.status;
    if ((lists || classed || numbers) && g->lists.at != g->end) return ST_CORRUPT(33);
    if (form == 2 && g->width == 2) split_put(g, s, scratch, 2, out, n);
    else if (form == 2 && g->width == 4) split_put(g, s, scratch, 4, out, n);
    else if (form == 2) split_put(g, s, scratch, 1, out, n);
    else if (lists) bytes_put(g->width, form == 9, scratch, out, n);
    else if (form < 2) plain_put(s, g->body, form == 1 ? g->width : 0, out, n * g->width);
    SYNC();
    return ST_OK;
}

/* Decodes a block, by the whole group, and returns its status. If that is not 0, the target is unspecified without a base and
 * unchanged with one. `deltas` is a constant: 0 leaves out the code for blocks with a base, SCALED and QUANTIZED ones, which are
 * declined. */
FN u32 block_decode(LANES LOCAL Group *g, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 scratch_size,
                    GLOBAL const bitsnap_work *work, u32 deltas)
{
    const Source s = source_of(work->source, work->size);
    const u32 form = work->head & 255, n = work->count, ignore = work->flags & BITSNAP_WORK_IGNORE;
    const u32 words = work->role || form == 6 || form == 7, sparse = form == 4 || form == 8, leaves = (n - 1) / MAX_ELEMENTS + 1;
    const u32 least = LEAST_ARENA << (work->dtype == BITSNAP_I64 || work->dtype == BITSNAP_F64); /* twice the bytes to hash */
    Base base;
    u32 status, i;
    u64 out = work->target;
    if (arena_size < least / 4 || scratch_size < (words ? LEAF_AT : 0) + 4 * MAX_ELEMENTS || (words && !deltas)) return ST_DECLINED;
    base.elements = (GLOBAL const void *)(size_t)work->base;
    base.dtype = work->dtype;
    base.role = deltas ? work->role : 0;
    if (THREAD == 0) {
        g->status = block_begin(g, work, s);
        g->lists.scratch_size = scratch_size;
    }
    SYNC();
    status = g->status;
    if (!status && base.role && !ignore) {
        const u32 kept = g->pieces.count, at = g->pieces.at[0], size = g->pieces.size[0];
        const u32 width = base.role == 2 ? 4 : g->width;
        for (i = 0; i < leaves; i++)
            leaf_hash(g, arena, (GLOBAL const u8 *)base.elements + (size_t)i * MAX_ELEMENTS * width, leaf_size(n, i) * width, i);
        status = cell_check(g, arena, s, 0, leaves);
        if (THREAD == 0) {
            g->pieces.count = kept;
            g->pieces.at[0] = at;
            g->pieces.size[0] = size;
        }
    }
    if (!status && !ignore && (work->flags & BITSNAP_WORK_CHECKS)) {
        hash_pieces(&g->pieces, (ARENA u64 *)arena, s);
        if (THREAD == 0)
            g->status = block_record(g, arena, work, work->head, s) == read64(s, (u32)(work->source & 3) + 4) ? ST_OK : ST_CHECK(9);
        SYNC();
        status = g->status;
    }
    if (base.role) out = (u64)(size_t)(scratch + (sparse ? LEAF_AT : form == 5 ? PLACES_AT : WORDS_AT) / 4);
    if (!status) status = body_decode(LANES_ g, work, arena, arena_size, scratch, s, base, form, n, out, deltas);
    if (!status && base.role && !ignore) {
        for (i = 0; i < leaves; i++) {
            if (sparse) sparse_put(&g->words, scratch, base, (GLOBAL void *)(size_t)out, i * MAX_ELEMENTS, leaf_size(n, i));
            leaf_hash(g, arena, (GLOBAL const void *)(size_t)out, leaf_size(n, i) * g->width, i);
        }
        status = cell_check(g, arena, s, 1, leaves);
    }
    if (!status && base.role && sparse) {
        if (!(work->flags & BITSNAP_WORK_TEST)) sparse_put(&g->words, scratch, base, (GLOBAL void *)(size_t)work->target, 0, n);
    } else if (!status && base.role && !(work->flags & BITSNAP_WORK_TEST)) {
        const Source made = source_of(out, n * g->width);
        for (i = THREAD; i < n * g->width / 4; i += THREADS) ((GLOBAL u32 *)(size_t)work->target)[i] = made.words[i];
        for (i = n * g->width / 4 * 4 + THREAD; i < n * g->width; i += THREADS)
            ((GLOBAL u8 *)(size_t)work->target)[i] = ((GLOBAL const u8 *)(size_t)out)[i];
    }
    return status;
}

FN void blocks_decode(LANES LOCAL Group *g, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 scratch_size,
                      GLOBAL const bitsnap_work *works, GLOBAL bitsnap_done *done, u32 count, u32 deltas)
{
    u32 i;
    for (i = GROUP; i < count; i += GROUPS) {
        const u32 status = block_decode(LANES_ g, arena, arena_size, scratch, scratch_size, works + i, deltas);
        if (THREAD == 0) {
            done[i].status = status;
            done[i].size = 0;
        }
        SYNC();
    }
}

/* Two kernels: the first, for blocks without words, needs fewer registers. */
KERNEL(4) offload_decode(KERNEL_PARAMETERS)
{
    GROUP_MEMORY(Group);
    blocks_decode(LANES_ g, arena, arena_size, own, scratch_size, works, done, count, 0);
}
KERNEL(3) offload_decode_deltas(KERNEL_PARAMETERS)
{
    GROUP_MEMORY(Group);
    blocks_decode(LANES_ g, arena, arena_size, own, scratch_size, works, done, count, 1);
}

#endif
