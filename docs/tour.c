/* tour.c - decodes a frame as docs/FORMAT.md describes it, to be read beside that document. MIT licence, see bitsnap.h.
 * Its sections have the order and numbers of FORMAT.md. It decodes lossless frames of every dtype and verifies all checks.
 * Deltas, quantized frames and columns have a critical extension. It knows none, and rejects them by R3, as 6.1 demands.
 *     cc -std=c99 -O2 docs/tour.c -o tour
 *     ./tour FRAME >ELEMENTS        reads standard input without FRAME; elements are little-endian; status 1: rejected
 * A .bsnap file is not a frame but a container of frames (section 8). docs/vectors has frames in hexadecimal, and so has section
 * 10 of FORMAT.md. This prints the 24 elements of the latter:
 *     sed -n '/^B5 53 4E 50/,/^```/{s|  .*||;p;}' docs/FORMAT.md | xxd -r -p | ./tour | od -An -v -tx2 */
#include "tour_xxh3.h" /* Annex B */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const uint8_t *frame, *at, *end;             /* the source; the next byte to read; the end of the source or of a body */
static uint64_t count, check, cell, given;          /* elements; checks of the header, of a block; cells that have been decoded */
static unsigned dtype, w, log_cell, flags, entry;   /* log_cell is L; bytes of an entry of the index */
static uint8_t record[128], *noted;                 /* the record that the check of a block hashes (5.5); its end so far */
static uint8_t *elements, *entries, *places;        /* the result, little-endian; entries of blocks and of pages for the footer */
static size_t blocks, used, room;                   /* blocks that have been decoded; bytes of memory */
static uint8_t *memory;
static const char *why;                             /* the condition that rejects the frame */
static jmp_buf refusal;

/* Rejects the frame unless a condition is met. Every error takes this way out. */
static void must(int met, const char *condition) { if (!met) why = condition, longjmp(refusal, 1); }

/* Gets n bytes of memory. Setting `used` back frees them. A list takes at most 54 bytes for each of its symbols. */
static uint8_t *get(size_t n) { must(n <= room - used, "no memory"); return memory + (used += n) - n; }

/* ---- 2. Notation ---- */
static const uint8_t *take(size_t n, const char *condition) { must(n <= (size_t)(end - at), condition); return (at += n) - n; }
static uint64_t number(const uint8_t *p, unsigned n) { return n ? p[0] | number(p + 1, n - 1) << 8 : 0; } /* of n bytes */
static uint8_t *put(uint8_t *p, uint64_t x, unsigned n) { for (unsigned i = 0; i < n;) *p++ = (uint8_t)(x >> 8 * i++); return p; }
static void note(uint64_t x, unsigned bytes) { noted = put(noted, x, bytes); }
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

static void spread(uint8_t *to, const uint8_t *mask, size_t a, unsigned k, const char *tail) { /* bit i to bit k of to[i] */
    for (size_t i = 0; i < (a + 7) / 8 * 8; i++)
        if (mask[i / 8] >> i % 8 & 1) must(i < a, tail), to[i] = (uint8_t)(to[i] | 1 << k);
}

/* ---- 3. Elements and planes ---- */
static const unsigned widths[] = { 0, 1, 1, 2, 4, 8, 1, 1, 2, 2, 4, 8 };
enum { I8 = 2, I64 = 5, F64 = 11, STORED = 0, CONST, SPLIT, BYTES, ZIGZAG = 9, PARTED, PATCHED }; /* dtypes; forms (section 5) */

/* Makes n elements from their x: byte k of the x at position i is plane[k][i]. In a SPLIT block symbols have e bits. */
static void join(uint8_t *to, size_t n, uint8_t *const *plane, unsigned form, unsigned e, unsigned base) {
    const unsigned W = 8 * w, low = dtype == F64 ? 52 : W - 1 - e; /* low: the bits of v below the exponent or symbol */
    for (size_t i = 0; i < n; i++) {
        const size_t group = i / 64 * 64, element = n - group < 64 ? i : group + 64 / w * (i % w) + i % 64 / w; /* 3.2 */
        uint64_t x = 0;
        for (unsigned k = w; k--;) x = x << 8 | plane[k][i];
        if (form == SPLIT) { /* 3.1 */
            const uint64_t symbol = x >> (W - e), sign = x >> (W - 1 - e) & 1, rest = x >> (W - 1 - e - low);
            x = sign << (W - 1) | (symbol ? symbol + base : 0) << low | (rest & ((UINT64_C(1) << low) - 1));
        } else if (form == ZIGZAG) x = x >> 1 ^ (0 - (x & 1));
        put(to + element * w, x, w);
    }
}

#define R18 "R18: descriptor and raw planes are longer than the body"
static uint8_t *raw_plane(size_t n, unsigned V, unsigned fixed) { /* 3.3; fixed: the bits that do not vary */
    uint8_t *plane = memset(get(n), (int)fixed, n);
    if (V == 0xFF) return memcpy(plane, take(n, R18), n);
    for (size_t i = 0, r; i < n; i += r) {
        r = least(n - i, 64);
        for (unsigned k = 0; k < 8; k++)
            if (V >> k & 1) spread(plane + i, take((r + 7) / 8, R18), r, k, "R22: a 1 after the last bit of a bit plane");
    }
    return plane;
}

/* ---- 4. Lists ---- */
#define R24 "R24: a list does not end inside its bytes"
#define R32 "R32: a 1 after the last bit of a mask"
enum { RAW, ALL_ONE, TREE, SPLIT0 = 5, SPLIT2, ESCAPE = 256 };
typedef struct tree {
    unsigned length[ESCAPE + 1], code[ESCAPE + 1]; /* of each symbol, 0: absent; the symbols in canonical order (4.2) */
    unsigned codes, i, b, depth;                   /* codes; those that the walk has consumed; b and depth of the list */
} tree;
static uint8_t *list(size_t m, unsigned b, unsigned depth);

static void table(tree *r) { /* 4.1 */
    const uint8_t *p = take(2, R24);
    const unsigned last = p[0] + p[1];
    unsigned s = p[0], before = 0, nibbles = 0; /* before: the bound of absent symbols, from the nibble before */
    must(last >> r->b == 0, "R25: a table has symbols of 2^b or more");
    while (s <= last) {
        const unsigned x = nibbles++ % 2 ? *p >> 4 : *(p = take(1, R24)) & 15u, absent = x > 8 ? 1u << (x - 8) : !x;
        must(!absent || (absent < before && s + absent <= last), "R26: a table is not written as 4.1 has it");
        if (!absent) r->length[s++] = x;
        before = absent ? absent : ESCAPE;
        s += absent;
    }
    must(nibbles % 2 == 0 || *p >> 4 == 0, "R27: the unused nibble of a table is not 0");
}

static uint8_t *node(tree *r, unsigned d, size_t c) { /* 4.3: returns the c symbols that pass the node */
    const unsigned *leaf = r->code + r->i, h = r->length[*leaf] - d;
    unsigned same = 0, not_escape = 0, k, a; /* FORMAT.md calls the first two r' and r */
    uint8_t *out = memset(get(c), 0, c), *child[16] = { NULL };
    size_t passed[16] = { 0 };
    for (; r->i + same < r->codes && r->length[leaf[same]] == d + h; same++) not_escape += leaf[same] != ESCAPE;
    k = h <= 2 || (h <= 4 && not_escape + 4 >= 1u << h) ? h : 2;
    a = k == h ? (unsigned)least(same, 1u << k) : 0;
    r->i += a;
    for (unsigned j = k; c && j--;) spread(out, take((c + 7) / 8, R24), c, j, R32);
    for (size_t s = 0; s < c; s++) passed[out[s]]++;
    for (unsigned slot = 0; slot < 1u << k; slot++)
        if (slot >= a) child[slot] = node(r, d + k, passed[slot]);
        else if (leaf[slot] == ESCAPE) child[slot] = list(passed[slot], r->b, r->depth + 1);
    for (size_t s = 0; s < c; s++) out[s] = child[out[s]] ? *child[out[s]]++ : (uint8_t)leaf[out[s]];
    return out;
}

static uint8_t *coded(unsigned kind, size_t m, unsigned b, unsigned depth) { /* TREE */
    tree r = { .b = b, .depth = depth };
    unsigned sum = 0;
    table(&r);
    r.length[ESCAPE] = kind / 16;
    for (unsigned length = 1; length <= 8; length++) /* 4.2 */
        for (unsigned s = 0; s <= ESCAPE; s++)
            if (r.length[s] == length) r.code[r.codes++] = s, sum += 256u >> length;
    must(sum == 256 && r.codes >= 2, "R28: code lengths are no complete code of two or more");
    return node(&r, 0, m);
}

static uint8_t *split(unsigned kind, size_t m, unsigned b, unsigned depth) { /* 4.4; depth: that of the lists inside */
    uint8_t *out = memset(get(m), 0, m), *side[2];
    size_t high = 0;
    spread(out, list((m + 7) / 8, 8, depth), m, 0, R32);
    for (size_t i = 0; i < m; i++) high += out[i];
    side[0] = kind == SPLIT2 ? list(m - high, b, depth) : memset(get(m - high), 0, m - high);
    side[1] = list(high, b, depth);
    for (size_t i = 0; i < m; i++) out[i] = *side[out[i]]++;
    return out;
}

static uint8_t *list(size_t m, unsigned b, unsigned depth) { /* returns the m symbols, of b bits, of the list at `at` */
    const unsigned kind = m ? *take(1, R24) : RAW, escape = kind % 16 == TREE + 2 && kind / 16 >= 1 && kind / 16 <= 8;
    uint8_t *out = get(m);
    const size_t size = kind == ALL_ONE ? 1 : m;
    must(kind <= TREE || kind == SPLIT0 || kind == SPLIT2 || escape, "R23: a reserved kind of list");
    must(kind < TREE || m >= 16, "R29: a tree or split of fewer than 16 symbols");
    must(kind <= TREE || depth < 5, "R30: a list of depth 5 has lists inside");
    if (kind == SPLIT0 || kind == SPLIT2) return split(kind, m, b, depth + 1);
    if (kind >= TREE) return coded(kind, m, b, depth);
    memcpy(out, take(size, R24), size);
    for (size_t i = 0; i < m; i++) must((out[i] = out[i % size]) >> b == 0, "R25: a symbol of 2^b or more");
    return out;
}

/* ---- 5. Blocks ---- */
static void checked(void) { must(!(flags & 1) || given == xxh3(record, (size_t)(noted - record)), "R9: the check of a block"); }
static void ranked(uint8_t *plane, size_t n, unsigned Z) { /* 5.2: adds the coded bits of a plane */
    const size_t size = Z & 0x80 ? 32 : 16, D = *take(1, "R57: the body ends before a distance") * size;
    uint8_t *masks = list(n / 64 * size, 8, 0), *symbols = list(n, 8, 0);
    for (size_t i = D; D && i < n / 64 * size; i++) masks[i] ^= masks[i - D];
    for (size_t i = 0; i < n; i++) {
        unsigned v = symbols[i];
        if (i < n / 64 * 64) { /* v becomes the value of that rank */
            const uint8_t *mask = masks + i / 64 * size;
            for (v = 0; v < 8 * size && (!(mask[v / 8] >> v % 8 & 1) || symbols[i]--); v++) {}
            must(v < 8 * size, "R57: a rank without a value");
        }
        must(!(v & ~Z), "R57: a value has bits that are not coded");
        plane[i] |= (uint8_t)v;
    }
}

static void split_body(uint8_t *to, size_t n, int whole) { /* 5.2; whole: it is a block, and its parts go to the record of 5.5 */
    const uint8_t *descriptor = take(1, R18), *p;
    const unsigned e = *descriptor & 15, constants = *descriptor >> 4 & 1, planes = e == 8 ? w - 1 : w;
    unsigned fixed = 0, base = 0, any = 0;
    uint8_t *plane[8], *symbols;
    const uint8_t *coded;
    must(dtype > I64 && *descriptor >> 6 == 0 && e >= 1 && e <= 8 && e < 8 * w && (dtype != F64 || e == 8), "R19: a descriptor");
    if (constants) take(2 * planes, R18);
    if (dtype == F64) must((base = (unsigned)number(take(2, R18), 2)) <= 1792, "R21: a base above 1792");
    coded = *descriptor >> 5 & 1 ? take(planes, R18) : NULL;
    for (unsigned k = 0; coded && k < planes; k++) any |= coded[k];
    must(!coded || any, "R57: no coded bits");
    for (p = descriptor; p < at; p++) note(*p, 1);
    for (unsigned k = 0; k < planes; k++, p = at) {
        const unsigned rest = k == w - 1 ? 255u >> e : k == 0 && dtype == F64 ? 0xF8 : 0xFF; /* rest bits of the byte */
        const unsigned V = constants ? descriptor[1 + k] : rest, values = constants ? descriptor[1 + planes + k] : 0;
        must(!(V & ~rest) && !(values & ~(rest & ~V)), "R20: constant bits that are not rest bits");
        fixed |= rest & ~V;
        must(!coded || !coded[k] || (!(coded[k] & ~V) && (whole ? k != w - 1 : k == w - 2)), "R57: coded bits of a plane that cannot have them");
        plane[k] = raw_plane(n, V & ~(coded ? coded[k] : 0u), values);
        note(xxh3(p, (size_t)(at - p)), 8);
    }
    must(!constants || fixed, "R20: no constant bits");
    note(xxh3(at, (size_t)(end - at)), 8);
    if (whole) checked();
    for (unsigned k = 0; coded && k < planes; k++)
        if (coded[k]) ranked(plane[k], n, coded[k]);
    symbols = list(n, e, 0);
    for (size_t i = 0; e < 8 && i < n; i++) symbols[i] = (uint8_t)(symbols[i] << (8 - e) | plane[w - 1][i]);
    plane[w - 1] = symbols;
    join(to, n, plane, SPLIT, e, base);
}

static void body(uint8_t *to, size_t n, unsigned form, size_t size) { /* size: that of STORED and CONST */
    uint8_t *plane[8];
    if (form == SPLIT) split_body(to, n, 0);
    else if (form == BYTES || form == ZIGZAG) { /* 5.3 */
        for (unsigned k = 0; k < w; k++) plane[k] = list(n, 8, 0);
        join(to, n, plane, form, 0, 0);
    } else { /* STORED, CONST */
        const uint8_t *p = take(size, "R56: a side is longer than the body");
        for (size_t i = 0; i < n * w; i++) to[i] = p[i % size];
    }
}

static int has_zigzag(void) { return dtype > I8 && dtype <= I64; }
static void parted(uint8_t *to, size_t n) { /* 5.15 */
    const unsigned g = *take(1, R24);
    must(g <= 6, "R56: the size of a granule");
    const size_t granules = (n + (1u << g) - 1) >> g;
    const uint8_t *mask = list((granules + 7) / 8, 8, 0);
    uint8_t *of = memset(get((granules + 7) / 8 * 8), 0, (granules + 7) / 8 * 8), *side[2];
    size_t sizes[2] = { 0, 0 }, next[2] = { 0, 0 };
    spread(of, mask, granules, 0, "R32: a 1 after the last bit of a mask");
    for (size_t i = 0; i < n; i++) sizes[of[i >> g]]++;
    must(sizes[0] && sizes[1], "R56: a side without elements");
    for (unsigned k = 0; k < 2; k++) {
        const unsigned form = *take(1, "R56: the body ends before a side");
        must(form <= BYTES || (form == ZIGZAG && has_zigzag()), "R56: the form of a side");
        noted = record;
        body(side[k] = get(sizes[k] * w), sizes[k], form, form == CONST ? w : sizes[k] * w);
    }
    for (size_t i = 0; i < n; i++) memcpy(to + i * w, side[of[i >> g]] + next[of[i >> g]]++ * w, w);
}

#define R6 "R6: the source ends before the frame"
static void block(void) {
    const uint8_t *const begin = at, *const source_end = end;
    const uint64_t first = cell << log_cell, left = count - first;
    const unsigned head = (unsigned)number(take(4, R6), 4), form = head & 255, run = form == CONST ? head >> 8 : 1;
    const size_t mark = used, size = form == CONST ? w : head >> 8;
    const size_t n = (size_t)(left >> log_cell < run ? left : (uint64_t)run << log_cell);
    uint8_t *to = elements + (size_t)first * w;
    must(form <= BYTES || form == PARTED || form > PATCHED || (form == ZIGZAG && has_zigzag()), "R15: a form that the frame cannot have");
    must(run >= 1 && run - 1 <= (left - 1) >> log_cell, "R17: a run of 0 or beyond the last cell");
    must(form == STORED ? size == n * w : form > PARTED || (size >= 1 && size <= n * w), "R16: the size of a body");
    given = flags & 1 ? number(take(8, R6), 8) : 0;
    end = take(size, R6) + size, at = end - size, noted = record;
    note(check, 8), note(first, 8), note(n, 8), note(head, 4); /* 5.5 */
    if (form != SPLIT) note(xxh3(at, size), 8), checked();
    must(form <= PARTED, "R54: a form of a newer version");
    if (form == SPLIT) split_body(to, n, 1);
    else if (form == PARTED) parted(to, n);
    else body(to, n, form, size);
    must(at == end, "R33: bytes of a body are left over");
    if (blocks % 256 == 0) put(put(places + blocks / 16, cell, 8), (uint64_t)(begin - frame), 8);
    memcpy(entries + entry * blocks++, begin, entry);
    cell += run, end = source_end, used = mark;
}

/* ---- 6. Frames ---- */
static void header(void) { /* 6.1 */
    const uint8_t *p = take(16, R6), *stop;
    must(!memcmp(p, "\xB5SNP", 4), "R1: no magic");
    must(p[4] == 1, "R2: a version other than 1");
    dtype = p[5], log_cell = p[6], flags = p[7], count = number(p + 8, 8);
    p = flags & 128 ? take((size_t)number(take(2, R6), 2), R6) : at, stop = at;
    check = xxh3(frame, (size_t)(at - frame));
    must(number(take(8, R6), 8) == check, "R8: the check of the header");
    for (size_t size = 0; p < stop; p += 3 + size) {
        must(stop - p >= 3 && (size_t)(stop - p) - 3 >= (size = (size_t)number(p + 1, 2)), "R36: extensions that do not fill their bytes");
        must(p[0] < 128, "R3: a delta, a quantized frame, columns, or another critical extension");
    }
    must(dtype >= 1 && dtype <= F64, "R13: no such dtype");
    must(log_cell >= 6 && log_cell <= 20, "R14: the elements of a cell");
    must(count <= UINT64_C(1) << 48, "R34: a count above 2^48");
    must(!(flags & 0x74), "R35: flags 4 to 6; or R48: flag 2 without a quantizer");
}

static uint64_t content_id(void) { /* section 7 */
    uint8_t *leaves = get((size_t)(count / 65536 * 8 + 24)), *p = leaves;
    for (size_t i = 0; i < count; i += 65536) p = put(p, xxh3(elements + i * w, least((size_t)count - i, 65536) * w), 8);
    return xxh3(leaves, (size_t)(put(put(p, dtype, 8), count, 8) - leaves));
}

static uint64_t keyed(const uint8_t *p, size_t n) { /* XXH3 of the check of the header and of n bytes */
    uint8_t *both = get(8 + n);
    return memcpy(put(both, check, 8), p, n), xxh3(both, 8 + n);
}

static void footer(void) { /* 6.2: the rest of the frame determines it, so it is rebuilt and compared */
    uint8_t *level = entries, *p = entries + entry * blocks, *above;
    size_t n = blocks, width = entry;
    for (; n > 256; level = above, n = (n + 255) / 256, width = 24) {
        above = p;
        for (size_t i = 0; i < n; i += 256) {
            memcpy(p, width == entry ? places + i / 16 : level + i * width, 16);
            p = put(p + 16, keyed(level + i * width, least(n - i, 256) * width), 8);
        }
    }
    if (flags & 2) p = put(p, content_id(), 8);
    if (flags & 8) { /* skips extensions */
        const uint8_t *e = at + (p - entries);
        must((size_t)(end - at) >= (size_t)(p - entries) + 4 && (uint64_t)(end - e - 4) >= number(e, 4), R6);
        p = memcpy(p, e, n = 4 + (size_t)number(e, 4)), p = put(p + n, n - 4, 4);
    }
    p = put(put(p, blocks, 8), (uint64_t)(at - frame) + (uint64_t)(p - entries) + 28, 8);
    p = put(put(p, keyed(level, (size_t)(p - level)), 8), 0xB5534E50, 4);
    n = (size_t)(p - entries);
    must(!memcmp(take(n, R6), entries, n), "R10, R12, R36, R37, R38, R39, R40 or R53: not the footer of these blocks and elements");
}

/* Decodes a frame to `elements`: count * w bytes, at most `most`. Returns 0 if it is rejected: `why`, near `at`. */
static int decode(const uint8_t *source, size_t size, size_t most) {
    frame = at = source, end = source + size, memory = NULL, cell = blocks = used = 0;
    if (setjmp(refusal)) return 0;
    header();
    w = widths[dtype];
    const uint64_t cells = (count + (UINT64_C(1) << log_cell) - 1) >> log_cell;
    must(count <= most / w, "more elements than there is room for");
    const uint64_t bytes = 2 * count * w + 64 * w * least((size_t)count, (size_t)1 << log_cell) + 4 * (uint64_t)size + 16384;
    room = (size_t)bytes, memory = room == bytes ? malloc(room) : NULL;
    must(memory != NULL, "no memory");
    elements = get((size_t)count * w), entries = get(2 * size + 8192), places = get(size / 16 + 16);
    entry = flags & 1 ? 8 : 4;
    while (cell < cells) block();
    if (cells > 1 || flags & 10) footer();
    must(at == end, "R7: bytes after the frame");
    return 1;
}

int main(int argc, char **argv) {
    FILE *f = argc > 1 ? fopen(argv[1], "rb") : stdin;
    uint8_t *source = NULL;
    size_t size = 0, more = 1;
    while (f && more && (source = realloc(source, size + (1 << 20))) != NULL) size += more = fread(source + size, 1, 1 << 20, f);
    if (!f || !source || ferror(f)) return perror(argc > 1 ? argv[1] : "standard input"), 1;
    if (!decode(source, size, SIZE_MAX / 8)) return fprintf(stderr, "byte %lu: %s\n", (unsigned long)(at - frame), why), 1;
    if (fwrite(elements, w, (size_t)count, stdout) != count || fflush(stdout)) return perror("standard output"), 1;
    return 0;
}
