/* list.h - lists (FORMAT.md, section 4) decoded by a group. MIT licence, see bitsnap.h.
 *
 * Parsing goes node by node in the order of the stream, because the start of a node depends on the symbol counts of earlier
 * nodes. The masks of a node are copied to the arena, interleaved word by word. After them come the ranks: for each word of 32
 * symbols and each child, the number of earlier symbols that take the child's slot. Raw and constant lists go to the scratch
 * memory at once. Then all nodes are merged, the deepest first. Each work-item makes eight symbols at a time. The position of a
 * symbol in a child is the rank of its word plus the mask bits before it.
 *
 * Hostile lists cannot cause a write out of bounds: all counts come from the words in the arena, and the source is read once. */
#ifndef OFFLOAD_LIST_H
#define OFFLOAD_LIST_H

#include "prelude.h"
#include "sizes.h"

#define NODES 64 /* more are left to the host */
#define STACK 100
#define MAX_DEPTH 5
#define CHUNK 512 /* symbols that a warp merges at a time */
#define FEW 128 /* words that one warp loads while the others wait */

typedef struct Tree {
    u8 symbol[260]; /* in canonical order */
    u16 end[9];     /* index after the last code of a length */
    u16 escape, next;
} Tree;

typedef struct Node {
    u32 count, plane, rank; /* symbols; offsets into the arena, in words and in half words */
    u32 out, list[4];       /* its own list and its children, as bytes of the scratch memory */
    u32 leaf[4];            /* bytes */
    u8 bits, leaves, lists;
    u8 level;               /* nodes around it */
} Node;

typedef struct Item { /* a part of a list, to be parsed */
    u32 count, out;
    u8 type, bits, depth, path; /* path: code bits taken by the nodes above */
    u8 level, node;
} Item;
enum { ITEM_LIST, ITEM_NODE, ITEM_SPLIT };

typedef struct Job { /* a step of parsing that needs several work-items */
    u32 op, count, out, value;
    u32 node;
} Job;
enum { OP_END, OP_TREE, OP_NODE, OP_MASK, OP_RAW, OP_CONST };

typedef struct Lists {
    Tree tree[MAX_DEPTH + 1];
    Node node[NODES];
    Item stack[STACK];
    Job job;
    u8 length[260]; /* code lengths of the tree being read; otherwise all 0 */
    u32 part[4][WARPS];
    u32 status, top, nodes, deepest;
    u32 at, end;                   /* bytes of the source */
    u32 arena_used, arena_size;    /* words */
    u32 scratch_used, scratch_size; /* bytes */
} Lists;

/* ---- trees ---- */

/* Sorts the symbols into canonical order and clears the lengths. A whole warp calls it; lane 0 may use the tree at once, other
 * lanes after a barrier. Returns 0 unless the lengths form a complete code. */
FN u32 tree_order(LANES LOCAL Tree *t, LOCAL u8 *length)
{
    const u32 lane = THREAD % WARP;
    u32 at = 0, sum = 0, escape = 0xFFFF, l, s;
    for (l = 1; l <= 8; l++) {
        const u32 before = at;
        for (s = lane; s < 256; s += WARP) {
            const u32 mine = length[s] == l, all = BALLOT(mine);
            if (mine) t->symbol[at + POPC(all & ((1u << lane) - 1))] = (u8)s;
            at += POPC(all);
        }
        if (length[256] == l) escape = at++;
        if (lane == 0) t->end[l] = (u16)at;
        sum += (at - before) << (8 - l);
    }
    WSYNC();
    for (s = lane; s < 65; s += WARP) ((LOCAL u32 *)length)[s] = 0;
    if (lane == 0) {
        t->escape = (u16)escape;
        t->next = 0;
    }
    return sum == 256;
}

typedef struct Step { u32 bits, leaves, place, lists, escape; } Step;

FN Step tree_step(LOCAL Tree *t, u32 path)
{
    Step step;
    u32 i = t->next, length = 1, rest, same, end;
    while (t->end[length] <= i && length < 8) length++;
    end = t->end[length];
    rest = length - path;
    step.escape = t->escape < end && t->escape >= i;
    same = end - i - step.escape;
    step.bits = rest <= 2 || (rest <= 4 && same + 4 >= 1u << rest) ? rest : 2;
    step.leaves = 0;
    step.place = i;
    if (step.bits == rest) {
        const u32 taken = end - i < 1u << rest ? end - i : 1u << rest;
        step.escape = step.escape && i + taken == end;
        step.leaves = taken - step.escape;
        t->next = (u16)(i + taken);
    } else {
        step.escape = 0;
    }
    step.lists = (1u << step.bits) - step.leaves;
    return step;
}

/* ---- parsing: by one work-item, until a job needs more ---- */

FN void list_fail(LOCAL Lists *p, u32 status) { if (!p->status) p->status = status; }

FN u32 list_table(LOCAL Lists *p, const Source s, u32 escape, u32 bits)
{
    u32 first, count, i = 0, nibble = 0, previous = 256, word = 0, code, run;
    if (p->end - p->at < 2) return ST_CORRUPT(24);
    first = read8(s, p->at);
    count = read8(s, p->at + 1) + 1;
    p->at += 2;
    if (first + count > 1u << bits) return ST_CORRUPT(25);
    p->length[256] = (u8)escape;
    while (i < count) {
        if (nibble % 8 == 0) word = read32(s, p->at);
        if (nibble % 2 == 0) {
            if (p->at == p->end) return ST_CORRUPT(24);
            p->at++;
        }
        code = word & 15;
        word >>= 4;
        nibble++;
        if (code >= 1 && code <= 8) {
            p->length[first + i++] = (u8)code;
            previous = 256;
            continue;
        }
        run = code ? 1u << (code - 8) : 1;
        if (i == 0 || run >= previous || run >= count - i) return ST_CORRUPT(26);
        i += run;
        previous = run;
    }
    return nibble % 2 && word & 15 ? ST_CORRUPT(27) : ST_OK;
}

/* Reserves a node, with arena space for its masks and ranks. Returns null and declines the block if they do not fit. */
FN LOCAL Node *list_node(LOCAL Lists *p, const Item item, u32 bits, u32 lists)
{
    const u32 words = (item.count + 31) / 32, room = words * bits + (words * lists + 1) / 2;
    LOCAL Node *x = &p->node[p->nodes];
    if (p->nodes == NODES || p->arena_size - p->arena_used < room) {
        list_fail(p, ST_DECLINED);
        return 0;
    }
    x->count = item.count;
    x->out = item.out;
    x->bits = (u8)bits;
    x->lists = (u8)lists;
    x->leaves = (u8)((1u << bits) - lists);
    x->level = item.level;
    x->plane = p->arena_used;
    x->rank = 2 * (p->arena_used + words * bits);
    x->leaf[0] = x->leaf[1] = x->leaf[2] = x->leaf[3] = 0;
    p->arena_used += room;
    if (item.level > p->deepest) p->deepest = item.level;
    p->job.node = p->nodes++;
    return x;
}

/* Reserves scratch for a list of `count` symbols. Merging writes eight at a time and reads up to 11 bytes past the last
 * symbol. */
FN u32 list_room(LOCAL Lists *p, u32 count)
{
    const u32 out = p->scratch_used, room = (count & ~7u) + 24;
    if (p->scratch_size - out < room) list_fail(p, ST_DECLINED);
    else p->scratch_used += room;
    return out;
}

FN void list_parse_node(LOCAL Lists *p, Item item)
{
    LOCAL Tree *t = &p->tree[item.depth];
    const Step step = tree_step(t, item.path);
    LOCAL Node *x;
    u32 j;
    item.path = (u8)(item.path + step.bits);
    if (item.count == 0) { /* no symbol takes this path, but its codes must still be skipped */
        for (j = step.escape; j < step.lists; j++) p->stack[p->top++] = item;
        return;
    }
    if (p->end - p->at < step.bits * ((item.count + 7) / 8)) {
        list_fail(p, ST_CORRUPT(24));
        return;
    }
    x = list_node(p, item, step.bits, step.lists);
    if (!x) return;
    for (j = 0; j < step.leaves; j++) x->leaf[j / 4] |= (u32)t->symbol[step.place + j] << j % 4 * 8;
    item.level++;
    item.node = (u8)step.escape;
    p->stack[p->top] = item; /* list_push makes the children from it */
    p->job.op = OP_NODE;
}

/* Pushes the children of a node, the first on top. Their counts have just been computed. */
FN void list_push(LOCAL Lists *p, const u32 *counts)
{
    Item item = p->stack[p->top];
    LOCAL Node *x = &p->node[p->job.node];
    const u32 escape = item.type == ITEM_NODE && item.node;
    u32 j, lists = x->lists;
    for (j = 0; j < lists; j++) x->list[j] = list_room(p, counts[j]);
    for (j = lists; j-- > 0;) {
        item.count = counts[j];
        item.out = x->list[j];
        if (j == 0 && escape) {
            item.type = ITEM_LIST;
            item.depth++;
        }
        p->stack[p->top++] = item;
    }
}

FN void list_parse_list(LOCAL Lists *p, const Source s, Item item)
{
    u32 kind, escape, is_split, status;
    if (p->at == p->end) {
        list_fail(p, ST_CORRUPT(24));
        return;
    }
    kind = read8(s, p->at++);
    p->job.count = item.count;
    p->job.out = item.out;
    if (kind == 0) {
        if (p->end - p->at < item.count) list_fail(p, ST_CORRUPT(24));
        p->job.value = item.bits;
        p->job.op = OP_RAW;
        return;
    }
    if (kind == 1) {
        if (p->at == p->end) {
            list_fail(p, ST_CORRUPT(24));
            return;
        }
        p->job.value = read8(s, p->at++);
        if (p->job.value >> item.bits) list_fail(p, ST_CORRUPT(25));
        p->job.op = OP_CONST;
        return;
    }
    escape = kind % 16 == 4 && kind >> 4 <= 8 ? kind >> 4 : 0;
    is_split = kind == 5 || kind == 6;
    status = kind != 2 && !escape && !is_split ? ST_CORRUPT(23) : item.count < 16 ? ST_CORRUPT(29) :
             item.depth == MAX_DEPTH && kind != 2 ? ST_CORRUPT(30) : ST_OK;
    if (status) {
        list_fail(p, status);
        return;
    }
    if (is_split) { /* a node of one mask, coded as a list */
        if (!list_node(p, item, 1, kind - 4)) return;
        item.node = (u8)p->job.node;
        item.type = ITEM_SPLIT;
        item.level++;
        item.depth++;
        p->stack[p->top++] = item;
        item.type = ITEM_LIST;
        item.count = (item.count + 7) / 8;
        item.bits = 8;
        item.out = list_room(p, item.count);
        p->node[item.node].list[0] = item.out;
        p->stack[p->top++] = item;
        return;
    }
    status = list_table(p, s, escape, item.bits);
    if (status) list_fail(p, status);
    item.type = ITEM_NODE;
    item.path = 0;
    p->stack[p->top++] = item;
    p->job.op = OP_TREE;
    p->job.node = item.depth;
}

FN void list_next(LOCAL Lists *p, const Source s)
{
    p->job.op = OP_END;
    while (p->job.op == OP_END && p->top && !p->status) {
        const Item item = p->stack[--p->top];
        if (item.type == ITEM_NODE) list_parse_node(p, item);
        else if (item.type == ITEM_SPLIT) {
            p->stack[p->top].type = ITEM_LIST;
            p->job.op = OP_MASK;
            p->job.node = item.node;
        } else if (item.count) list_parse_list(p, s, item);
    }
    if (p->status) p->job.op = OP_END;
}

/* ---- nodes into the arena ---- */

/* Returns which of 32 symbols take `slot`, in a node of `bits` bits. */
FN u32 slot_mask(const u32 *y, u32 bits, u32 slot)
{
    u32 m = ~0u, j;
    UNROLL
    for (j = 0; j < 4; j++)
        if (j < bits) m &= slot >> (bits - 1 - j) & 1 ? y[j] : ~y[j];
    return m;
}

/* Loads words from .. to - 1 of a node, by a warp; ranks count from `from`. Each round fetches the words of the next before it
 * counts. */
FN void node_load(LANES LOCAL Lists *p, ARENA u32 *arena, const Source s, u32 at, const Node x, u32 from, u32 to, u32 counts[4])
{
    ARENA u16 *ranks = (ARENA u16 *)arena;
    const u32 lane = THREAD % WARP, stride = (x.count + 7) / 8;
    u32 next[4], w, j;
    UNROLL
    for (j = 0; j < 4; j++) {
        counts[j] = 0;
        next[j] = j < x.bits && from + lane < to ? read32(s, at + j * stride + 4 * (from + lane)) : 0;
    }
    for (; from < to; from += WARP) {
        const u32 in = from + lane < to, more = from + lane + WARP < to;
        u32 y[4] = { 0, 0, 0, 0 };
        w = from + lane;
        {
            const u32 live = !in ? 0 : x.count - 32 * w >= 32 ? ~0u : (1u << x.count % 32) - 1;
            const u32 held = !in ? 0 : stride - 4 * w >= 4 ? ~0u : (1u << 8 * (stride - 4 * w)) - 1;
            UNROLL
            for (j = 0; j < 4; j++)
                if (j < x.bits) {
                    const u32 word = next[j] & held;
                    next[j] = more ? read32(s, at + j * stride + 4 * (w + WARP)) : 0;
                    if (word & ~live) p->status = ST_CORRUPT(32);
                    y[j] = word & live;
                    if (in) arena[x.plane + w * x.bits + j] = y[j];
                }
            UNROLL
            for (j = 0; j < 4; j++)
                if (j < x.lists) {
                    u32 all;
                    const u32 before = warp_before(LANES_ POPC(slot_mask(y, x.bits, x.leaves + j) & live), &all);
                    if (in) ranks[x.rank + w * x.lists + j] = (u16)(counts[j] + before);
                    counts[j] += all;
                }
        }
    }
}

/* Loads all words of a node, by the whole group. */
FN void node_load_all(LANES LOCAL Lists *p, ARENA u32 *arena, const Source s, u32 at, const Node x, u32 counts[4])
{
    ARENA u16 *ranks = (ARENA u16 *)arena;
    const u32 lane = THREAD % WARP;
    const Share share = share_of((x.count + 31) / 32, WARP);
    u32 j, w;
    node_load(LANES_ p, arena, s, at, x, share.begin, share.end, counts);
    UNROLL
    for (j = 0; j < 4; j++)
        if (lane == 0) p->part[j][THREAD / WARP] = counts[j];
    SYNC();
    UNROLL
    for (j = 0; j < 4; j++)
        if (j < x.lists) {
            const u32 before = part_before(p->part[j], &counts[j]);
            if (before)
                for (w = share.begin + lane; w < share.end; w += WARP)
                    ranks[x.rank + w * x.lists + j] = (u16)(ranks[x.rank + w * x.lists + j] + before);
        }
}

/* Copies a raw list, or fills a constant one. */
FN void list_fill(LOCAL Lists *p, GLOBAL u32 *scratch, const Source s, u32 from, u32 step)
{
    const Job job = p->job;
    const u32 above = job.op == OP_RAW ? (0xFFu << job.value & 0xFFu) * 0x01010101u : 0, at = p->at;
    u32 i;
    for (i = from; 4 * i < job.count; i += step) {
        const u32 word = job.op == OP_RAW ? read32(s, at + 4 * i) : job.value * 0x01010101u;
        const u32 behind = 4 * i + 4 > job.count ? 8 * (4 * i + 4 - job.count) : 0;
        if (word << behind & above << behind) p->status = ST_CORRUPT(25);
        scratch[job.out / 4 + i] = word;
    }
}

/* ---- merging ---- */

FN u32 spread_nibbles(u32 m) /* bit i of 8 to nibble i */
{
    m = (m | m << 12) & 0x000F000Fu;
    m = (m | m << 6) & 0x03030303u;
    return (m | m << 3) & 0x11111111u;
}
FN u32 nibbles_to_bytes(u32 m) { return PERM(0u, ~0u, m << 2); } /* nibble i of 4, 0 or 1, to all of byte i */

/* Makes symbols q .. q + 7 of a node; q is a multiple of 8. Most calls pass constants as `bits` and `lists`. */
FN void merge8(ARENA const u32 *arena, GLOBAL const u32 *scratch, LOCAL const Node *x, u32 bits, u32 lists, u32 q, u32 symbols[2])
{
    ARENA const u16 *ranks = (ARENA const u16 *)arena + x->rank + q / 32 * lists;
    ARENA const u32 *planes = arena + x->plane + q / 32 * bits;
    const u32 b = q % 32, below = (1u << b) - 1;
    u32 y[4] = { 0, 0, 0, 0 }, one[4] = { 0, 0, 0, 0 }, slots = 0, j, i;
    UNROLL
    for (j = 0; j < 4; j++)
        if (j < bits) {
            y[j] = planes[j];
            one[j] = spread_nibbles(y[j] >> b & 255);
            slots = 2 * slots + one[j];
        }
    UNROLL
    for (i = 0; i < 2; i++) {
        const u32 four = slots >> 16 * i;
        symbols[i] = PERM(x->leaf[0], x->leaf[1], bits < 4 ? four : four & 0x7777u);
        if (bits == 4) {
            const u32 high = nibbles_to_bytes(one[0] >> 16 * i);
            symbols[i] = (symbols[i] & ~high) | (PERM(x->leaf[2], x->leaf[3], four & 0x7777u) & high);
        }
    }
    UNROLL
    for (j = 0; j < 4; j++)
        if (j < lists) {
            const u32 slot = (1u << bits) - lists + j, at = x->list[j] + ranks[j] + POPC(slot_mask(y, bits, slot) & below);
            const u32 middle = scratch[at / 4 + 1], low = FUNNEL(scratch[at / 4], middle, at % 4 * 8);
            const u32 high = FUNNEL(middle, scratch[at / 4 + 2], at % 4 * 8), taken = slot_mask(one, bits, slot) & 0x11111111u;
            const u32 place = taken * 0x11111110u; /* how many of them before each */
            UNROLL
            for (i = 0; i < 2; i++) {
                const u32 to = nibbles_to_bytes(taken >> 16 * i);
                symbols[i] = (symbols[i] & ~to) | (PERM(low, high, place >> 16 * i) & to);
            }
        }
}

FN void merge_range(ARENA const u32 *arena, GLOBAL u32 *scratch, LOCAL const Node *x, u32 bits, u32 lists, u32 from, u32 to)
{
    GLOBAL u32 *out = scratch + x->out / 4;
    u32 q, symbols[2];
    for (q = from + 8 * (THREAD % WARP); q < to; q += 8 * WARP) {
        merge8(arena, scratch, x, bits, lists, q, symbols);
        out[q / 4] = symbols[0];
        out[q / 4 + 1] = symbols[1];
    }
}

FN void merge_chunk(ARENA const u32 *arena, GLOBAL u32 *scratch, LOCAL const Node *x, u32 from, u32 to)
{
    const u32 kind = x->bits << 4 | x->lists;
    if (kind == 0x11) merge_range(arena, scratch, x, 1, 1, from, to);
    else if (kind == 0x21) merge_range(arena, scratch, x, 2, 1, from, to);
    else merge_range(arena, scratch, x, x->bits, x->lists, from, to);
}

/* Merges the nodes from `first` on, by the whole group. */
FN void merge_nodes(LANES LOCAL Lists *p, ARENA const u32 *arena, GLOBAL u32 *scratch, u32 first)
{
    const u32 lane = THREAD % WARP, warp = THREAD / WARP;
    u32 level, from, i;
    for (level = p->deepest + 1; level-- > 0;) {
        u32 task = warp, any = 0;
        for (from = 0; from < NODES; from += WARP) {
            u32 left = BALLOT(from + lane >= first && from + lane < p->nodes && p->node[from + lane].level == level);
            any |= left;
            for (; left; left &= left - 1) {
                LOCAL const Node *x = &p->node[from + CTZ(left)];
                const u32 count = x->count;
                for (i = task * CHUNK; i < count; i += WARPS * CHUNK)
                    merge_chunk(arena, scratch, x, i, i + CHUNK < count ? i + CHUNK : count);
                task = (task + WARPS - (count + CHUNK - 1) / CHUNK % WARPS) % WARPS;
            }
        }
        if (any) SYNC();
    }
}

/* ---- the whole list ---- */

/* Decodes `count` symbols of `bits` bits at p->at to byte `out` of the scratch memory, by the whole group. Overwrites the scratch
 * from byte `used` on. Moves p->at past the list, or sets p->status. The caller needs a SYNC before it writes either of them. */
FN void list_decode(LANES LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 used, const Source s, u32 count,
                    u32 bits, u32 out)
{
    const u32 lane = THREAD % WARP, warp = THREAD / WARP;
    u32 counts[4], after = OP_END, op, i;
    Source kept;
    kept.words = scratch;
    kept.last = p->scratch_size / 4 - 1;
    SYNC();
    if (THREAD == 0) {
        Item item = { 0, 0, 0, 0, 0, 0, 0, 0 };
        item.count = count;
        item.out = out;
        item.bits = (u8)bits;
        item.type = ITEM_LIST;
        p->stack[0] = item;
        p->top = 1;
        p->nodes = p->deepest = p->arena_used = 0;
        p->arena_size = arena_size;
        p->scratch_used = used;
        p->status = ST_OK;
    }
    for (i = THREAD; i < 65; i += THREADS) ((LOCAL u32 *)p->length)[i] = 0;
    SYNC();
    for (;;) {
        while (warp == 0) { /* small jobs need no other warp */
            if (lane == 0) {
                if (after == OP_NODE) {
                    LOCAL const Node *x = &p->node[p->job.node];
                    p->at += x->bits * ((x->count + 7) / 8);
                }
                if (after == OP_NODE || after == OP_MASK) list_push(p, counts);
                if (after == OP_RAW) p->at += p->job.count;
                list_next(p, s);
            }
            WSYNC();
            op = after = p->job.op;
            if (op == OP_TREE) {
                if (!tree_order(LANES_ &p->tree[p->job.node], p->length) && lane == 0) list_fail(p, ST_CORRUPT(28));
            } else if (op == OP_NODE && p->node[p->job.node].count <= 32 * FEW) {
                const Node x = p->node[p->job.node];
                node_load(LANES_ p, arena, s, p->at, x, 0, (x.count + 31) / 32, counts);
                WSYNC();
            } else if ((op == OP_RAW || op == OP_CONST) && p->job.count <= 4 * FEW) {
                list_fill(p, scratch, s, lane, WARP);
                WSYNC();
            } else {
                break;
            }
        }
        SYNC();
        op = p->job.op;
        if (op == OP_END) break;
        if (op == OP_NODE) {
            node_load_all(LANES_ p, arena, s, p->at, p->node[p->job.node], counts);
        } else if (op == OP_MASK) {
            const u32 node = p->job.node, at = p->node[node].list[0];
            merge_nodes(LANES_ p, arena, scratch, node + 1);
            node_load_all(LANES_ p, arena, kept, at, p->node[node], counts);
            if (THREAD == 0) { /* frees the nodes and lists that made the mask */
                const u32 words = (p->node[node].count + 31) / 32;
                p->nodes = node + 1;
                p->scratch_used = at;
                p->arena_used = p->node[node].plane + words + (words * p->node[node].lists + 1) / 2;
            }
        } else {
            list_fill(p, scratch, s, THREAD, THREADS);
        }
        after = op;
        SYNC();
    }
    if (p->status == ST_OK) merge_nodes(LANES_ p, arena, scratch, 0);
}

/* list_decode with an arena in scratch memory, which is slower but large enough for most lists. */
PART void list_decode_slowly(LANES LOCAL Lists *p, GLOBAL u32 *scratch, u32 used, const Source s, u32 count, u32 bits, u32 out)
{
    list_decode(LANES_ p, scratch + used / 4, LARGE_ARENA / 4, scratch, used + LARGE_ARENA, s, count, bits, out);
}
/* Calls list_decode, and repeats it with the larger arena if the first is too small. */
FN void list_read(LANES LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 used, const Source s, u32 count,
                  u32 bits, u32 out)
{
    const u32 at = p->at;
    list_decode(LANES_ p, arena, arena_size, scratch, used, s, count, bits, out);
    if (ARENA_IS_LARGE || p->status != ST_DECLINED || p->scratch_size - used < LARGE_ARENA) return;
    if (THREAD == 0) p->at = at;
    list_decode_slowly(LANES_ p, scratch, used, s, count, bits, out);
}

/* list_read for callers that read many lists. Not inlined, which keeps the kernel small. */
PART void list_read_apart(LANES LOCAL Lists *p, ARENA u32 *arena, u32 arena_size, GLOBAL u32 *scratch, u32 used, const Source s, u32 count,
                          u32 bits, u32 out)
{
    list_read(LANES_ p, arena, arena_size, scratch, used, s, count, bits, out);
}

#endif
