/* Mutations that reach the code after the checks. A wrong check stops every decoder at once, and no fuzzer guesses an XXH3. So
 * one bit of an input makes these targets repair its frames before they decode them: sizes, the index, checks, content ids,
 * and cell hashes of base and result. The mutator sets the bit in half of the inputs. In these it usually changes the body of
 * one block, and corrects the size in its head. The target repairs, not the mutator, so a failing input fails again, and any
 * fuzzing engine works. docs/FORMAT.md, sections 5 to 7, describes everything that is written here. */
#ifndef BITSNAP_FUZZ_MUTATE_H
#define BITSNAP_FUZZ_MUTATE_H

#include "fuzz.h"

enum { FUZZ_CONST = 1, FUZZ_SPLIT = 2 }; /* forms of blocks */
enum { FUZZ_BLOCKS = 512, FUZZ_PAGE = 256, FUZZ_ENTRY = 24, FUZZ_CERTIFICATE = 44, FUZZ_TAIL = 28 };
#define FUZZ_DECODED (1u << 20) /* most bytes of elements that a repair decodes for their hashes */

static uint64_t fuzz_load(const uint8_t *p, unsigned width)
{
    uint64_t x = 0;
    while (width--) x = x << 8 | p[width];
    return x;
}

static void fuzz_store(uint8_t *p, uint64_t x, unsigned width)
{
    for (; width--; x >>= 8) *p++ = (uint8_t)x;
}

typedef struct fuzz_block {
    size_t at, body, size; /* start of the block, start of its body, bytes of the body */
    unsigned form;
    uint64_t first, n, cells;
} fuzz_block;

typedef struct fuzz_frame {
    unsigned width, log2, flags;
    uint64_t count;
    size_t header, base; /* bytes of the header; position of the extension of a base in it, or 0 */
    size_t footer, end;  /* end of the blocks, end of the frame */
    unsigned blocks;
    fuzz_block block[FUZZ_BLOCKS];
} fuzz_frame;

static uint64_t fuzz_cells(const fuzz_frame *f, uint64_t n) { return ((n - 1) >> f->log2) + 1; }

/* Reads a header. Returns 0 if it does not say how elements are divided into blocks. */
static int fuzz_read_header(fuzz_frame *f, const uint8_t *p, size_t size)
{
    size_t at;
    if (size < 24) return 0;
    f->width = bitsnap_width((bitsnap_dtype)p[5]);
    f->log2 = p[6];
    f->flags = p[7];
    f->count = fuzz_load(p + 8, 8);
    f->header = f->flags & 128 ? 26 + (size_t)fuzz_load(p + 16, 2) : 24;
    f->base = 0;
    if (!f->width || f->log2 < 6 || f->log2 > 20 || f->count >> 48 || f->header > size) return 0;
    for (at = 18; at + 21 <= f->header; at += 3u + (size_t)fuzz_load(p + at + 1, 2))
        if (p[at] == 129 && fuzz_load(p + at + 1, 2) == 10) f->base = at;
    return 1;
}

/* Finds the blocks that are present. A body longer than the remaining bytes is cut. */
static void fuzz_read_blocks(fuzz_frame *f, const uint8_t *p, size_t size)
{
    uint64_t first = 0;
    size_t at = f->header;
    for (f->blocks = 0; first < f->count && f->blocks < FUZZ_BLOCKS; f->blocks++) {
        fuzz_block *b = &f->block[f->blocks];
        if (size - at < 4) break;
        b->at = at;
        b->form = p[at];
        b->body = at + 4 + (f->flags & 1 ? 8 : 0) + (f->base ? 16 : 0);
        if (b->body > size) break;
        b->size = b->form == FUZZ_CONST ? f->width : (size_t)fuzz_load(p + at + 1, 3);
        if (b->size > size - b->body) b->size = size - b->body;
        b->cells = b->form == FUZZ_CONST ? fuzz_load(p + at + 1, 3) : 1;
        if (!b->cells) b->cells = 1;
        if (b->cells > fuzz_cells(f, f->count - first)) b->cells = fuzz_cells(f, f->count - first);
        b->first = first;
        b->n = b->cells << f->log2 < f->count - first ? b->cells << f->log2 : f->count - first;
        first += b->n;
        at = b->body + b->size;
    }
    f->footer = at;
}

static unsigned fuzz_entry(const fuzz_frame *f) { return f->flags & 1 ? 8 : 4; } /* bytes of an entry of a page */

/* Returns the size of the footer, and that of its index in *index. */
static size_t fuzz_footer_size(const fuzz_frame *f, size_t *index)
{
    *index = 0;
    if (!(f->flags & 6) && (!f->count || fuzz_cells(f, f->count) == 1)) return 0;
    *index = fuzz_entry(f) * f->blocks + (f->blocks > FUZZ_PAGE ? FUZZ_ENTRY * ((f->blocks - 1) / FUZZ_PAGE + 1) : 0);
    return *index + (f->flags & 2 ? 8 : 0) + (f->flags & 4 ? FUZZ_CERTIFICATE : 0) + FUZZ_TAIL;
}

/* Reads a frame. Its end follows from the blocks, which give the size of the footer. Returns 0 if there is no header. */
static int fuzz_read_frame(fuzz_frame *f, const uint8_t *p, size_t size)
{
    size_t index;
    if (!fuzz_read_header(f, p, size)) return 0;
    fuzz_read_blocks(f, p, size);
    f->end = f->footer + fuzz_footer_size(f, &index);
    if (f->end > size) f->end = size;
    return 1;
}

/* ================================================================================= REPAIR */

/* Repairs sizes and grammar: the header gets the number of elements in the blocks, and the footer the matching size. Returns
 * the frame's size, at most `room`; 0 if it cannot be repaired. */
static size_t fuzz_settle(fuzz_frame *f, uint8_t *p, size_t size, size_t room)
{
    size_t footer, index;
    unsigned i;
    if (size < 24) return 0;
    fuzz_store(p, 0x504E53B5u, 4);
    p[4] = 1;
    p[7] &= 0x87;
    if (!fuzz_read_header(f, p, size)) return 0;
    if (f->base) { /* a delta needs checks, a content id, and cells of at least 2^16 elements */
        p[7] = (uint8_t)((p[7] | 3) & 0x83);
        if (p[6] < 16) p[6] = 16;
        (void)fuzz_read_header(f, p, size);
    }
    fuzz_read_blocks(f, p, size);
    if (f->blocks && f->block[f->blocks - 1].first + f->block[f->blocks - 1].n < f->count) /* blocks are missing */
        fuzz_store(p + 8, f->count = f->block[f->blocks - 1].first + f->block[f->blocks - 1].n, 8);
    for (i = 0; i < f->blocks; i++)
        fuzz_store(p + f->block[i].at + 1, f->block[i].form == FUZZ_CONST ? f->block[i].cells : f->block[i].size, 3);
    footer = fuzz_footer_size(f, &index);
    if (footer > room || f->footer > room - footer) return 0;
    f->end = f->footer + footer;
    if (!footer) return f->end;
    if (size < f->end) memset(p + size, 0, f->end - size);
    for (i = 0; i < f->blocks; i++) memcpy(p + f->footer + fuzz_entry(f) * i, p + f->block[i].at, 4);
    fuzz_store(p + f->end - FUZZ_TAIL, f->blocks, 8);
    fuzz_store(p + f->end - FUZZ_TAIL + 8, f->end, 8);
    fuzz_store(p + f->end - 4, 0xB5534E50u, 4);
    return f->end;
}

/* Hashes a page, or the footer from its root on. The root is a page or at most two entries. */
static uint64_t fuzz_part_hash(const uint8_t *p, const fuzz_frame *f, const uint8_t *part, size_t size)
{
    uint8_t both[8 + 8 * FUZZ_PAGE + 16 + FUZZ_CERTIFICATE + FUZZ_TAIL];
    memcpy(both, p + f->header - 8, 8);
    memcpy(both + 8, part, size);
    return bitsnap_hash(both, size + 8);
}

static uint64_t fuzz_cell_hash(const uint8_t *elements, uint64_t n, unsigned width)
{
    uint8_t leaves[16 * 8];
    size_t i, m = (size_t)((n + 65535) / 65536);
    for (i = 0; i < m; i++)
        fuzz_store(leaves + 8 * i, bitsnap_hash(elements + 65536 * i * width, (size_t)(n - 65536 * i < 65536 ? n - 65536 * i : 65536) * width), 8);
    return bitsnap_hash(leaves, 8 * m);
}

/* Repairs the cell hashes of a block. */
static void fuzz_repair_block(uint8_t *p, const fuzz_frame *f, const fuzz_block *b, const bitsnap_base *base, const uint8_t *elements)
{
    const unsigned width = bitsnap_width(base->dtype);
    uint8_t *at = p + b->body - 16;
    fuzz_store(at, fuzz_cell_hash((const uint8_t *)base->data + b->first * width, b->n, width), 8);
    if (elements) fuzz_store(at + 8, fuzz_cell_hash(elements + b->first * f->width, b->n, f->width), 8);
}

/* Repairs the check of a block, from the record of FORMAT 5.5. Returns 0 if descriptor and planes cannot be told apart. */
static int fuzz_block_check(uint8_t *p, const fuzz_frame *f, const fuzz_block *b)
{
    uint8_t record[28 + 16 + 20 + 9 * 8], *to = record + 28;
    const uint8_t *body = p + b->body, *end = body + b->size;
    memcpy(record, p + f->header - 8, 8);
    fuzz_store(record + 8, b->first, 8);
    fuzz_store(record + 16, b->n, 8);
    memcpy(record + 24, p + b->at, 4);
    if (b->body - b->at == 28) {
        memcpy(to, body - 16, 16);
        to += 16;
    }
    if (b->form == FUZZ_SPLIT) {
        const unsigned e = b->size ? body[0] & 15u : 0, planes = e == 8 ? f->width - 1 : f->width, vary = b->size ? body[0] & 16u : 0;
        const int f64 = p[5] == BITSNAP_F64;
        const size_t descriptor = 1 + (vary ? 2 * planes : 0) + (f64 ? 2 : 0);
        unsigned k, bits;
        if (!e || e > 8 || descriptor > b->size) return 0;
        memcpy(to, body, descriptor);
        to += descriptor;
        for (k = 0, body += descriptor; k < planes; k++) {
            uint64_t size = 0;
            bits = vary ? p[b->body + 1 + k] : k == f->width - 1 && e < 8 ? (1u << (8 - e)) - 1 : k == 0 && f64 ? 0xF8 : 0xFF;
            if (bits == 0xFF) size = b->n;
            else for (; bits; bits &= bits - 1) size += b->n / 64 * 8 + (b->n % 64 + 7) / 8;
            if (size > (uint64_t)(end - body)) return 0;
            fuzz_store(to, bitsnap_hash(body, (size_t)size), 8);
            body += size;
            to += 8;
        }
    }
    fuzz_store(to, bitsnap_hash(body, (size_t)(end - body)), 8);
    fuzz_store(p + b->at + 4, bitsnap_hash(record, (size_t)(to + 8 - record)), 8);
    return 1;
}

/* Repairs all hashes and checks of a frame after fuzz_settle. `base` may be null, or has the frame's count. Returns the decoded
 * elements, in memory of fuzz_room, or null if the frame is refused or too large. */
static uint8_t *fuzz_seal(fuzz_frame *f, uint8_t *p, const bitsnap_base *base)
{
    uint8_t *elements = NULL, *footer = p + f->footer, *ids, *root = footer;
    const unsigned entry_size = fuzz_entry(f);
    size_t index;
    unsigned i;
    if (!f->base) base = NULL;
    if (base) fuzz_store(p + f->base + 5, bitsnap_content_id(base->data, base->count, base->dtype), 8);
    fuzz_store(p + f->header - 8, bitsnap_hash(p, f->header - 8), 8);
    (void)fuzz_footer_size(f, &index);
    ids = footer + index;
    if (f->count * f->width <= FUZZ_DECODED && (base || (f->flags & 2 && !f->base))) {
        bitsnap b;
        unsigned taken;
        elements = fuzz_fill((size_t)f->count * f->width, 0);
        taken = fuzz_taken;
        b = fuzz_codec(f->log2);
        b.flags = BITSNAP_IGNORE_CHECKS;
        if (base) b.base = *base;
        if (bitsnap_decode(&b, elements, f->count, (bitsnap_dtype)p[5], p, f->end)) elements = NULL;
        fuzz_drop(taken);
        if (elements && f->flags & 2) fuzz_store(ids, bitsnap_content_id(elements, f->count, (bitsnap_dtype)p[5]), 8);
    }
    for (i = 0; i < f->blocks && base; i++) fuzz_repair_block(p, f, &f->block[i], base, elements);
    for (i = 0; i < f->blocks && f->flags & 1; i++) (void)fuzz_block_check(p, f, &f->block[i]);
    if (f->end == f->footer) return elements;
    for (i = 0; i < f->blocks && f->flags & 1; i++) memcpy(footer + entry_size * i + 4, p + f->block[i].at + 4, 4);
    for (i = 0; f->blocks > FUZZ_PAGE && i < f->blocks; i += FUZZ_PAGE) {
        const unsigned n = f->blocks - i < FUZZ_PAGE ? f->blocks - i : FUZZ_PAGE;
        uint8_t *entry = footer + entry_size * f->blocks + i / FUZZ_PAGE * FUZZ_ENTRY;
        root = footer + entry_size * f->blocks;
        fuzz_store(entry, f->block[i].first >> f->log2, 8);
        fuzz_store(entry + 8, f->block[i].at, 8);
        fuzz_store(entry + 16, fuzz_part_hash(p, f, footer + entry_size * i, entry_size * n), 8);
    }
    fuzz_store(p + f->end - 12, fuzz_part_hash(p, f, root, (size_t)(p + f->end - 12 - root)), 8);
    return elements;
}

/* ================================================================================= MUTATE */

static uint8_t fuzz_scratch[1u << 17]; /* larger than any input */

/* Mutates a part of the input, which may grow or shrink. Returns the new size of the input. */
static size_t fuzz_mutate_part(uint8_t *data, size_t size, size_t room, size_t at, size_t part)
{
    const size_t rest = size - at - part;
    size_t most = room - size + part, now;
    if (!LLVMFuzzerMutate || rest + most > sizeof fuzz_scratch) return size;
    memcpy(fuzz_scratch, data + at + part, rest);
    now = LLVMFuzzerMutate(data + at, part, most);
    memcpy(data + at + now, fuzz_scratch, rest);
    return at + now + rest;
}

/* Mutates the frame from `at` to `end`: usually one of its blocks, otherwise its header or the whole frame. Returns the new size
 * of the input. */
static size_t fuzz_mutate_frame(uint8_t *data, size_t size, size_t room, size_t at, size_t end, unsigned seed)
{
    static fuzz_frame f;
    fuzz_block *b;
    size_t now, body;
    if (!fuzz_read_frame(&f, data + at, end - at) || !f.blocks || seed % 8 == 0)
        return fuzz_mutate_part(data, size, room, at, seed % 16 && end - at > 24 ? 24 : end - at);
    b = &f.block[seed / 8 % f.blocks];
    if (b->form == FUZZ_CONST) return fuzz_mutate_part(data, size, room, at + b->at, 4); /* its body is one element */
    now = fuzz_mutate_part(data, size, room, at + b->body, b->size);
    body = b->size + now - size;
    fuzz_store(data + at + b->at + 1, body, 3);
    return now;
}

#endif
