/* inside.h - access to internals of the codec for tests. All tests link one object, codec.c, because compiling the codec takes
 * longer than the tests. A program that contains the codec itself, as mutants do, defines BITSNAP_IMPLEMENTATION. */
#ifndef BITSNAP_TEST_INSIDE_H
#define BITSNAP_TEST_INSIDE_H

#include "bitsnap_simd.h"

/* Forms of blocks (FORMAT.md, section 5). */
enum { FORM_STORED, FORM_CONST, FORM_SPLIT, FORM_BYTES, FORM_SAME, FORM_CLASSED, FORM_SCALED, FORM_QUANTIZED, FORM_SPARSE, FORM_ZIGZAG, FORM_PARTED, FORM_PATCHED };

/* A workspace that is enough for frames of any dtype; `large`: also with a base, a quantizer or columns. */
size_t inside_workspace(unsigned block_log2, unsigned workers, int large);
uint64_t inside_bound_hash(uint64_t id, const void *bytes, size_t size);
uint64_t inside_chain(uint64_t h, uint64_t word);
unsigned inside_exponent(bitsnap_dtype dtype, unsigned *shift); /* the mask; 0: an integer */

/* Shape of an index: bytes, levels, entries of the top level, bytes of such an entry. */
typedef struct inside_index { size_t size, top, entries, entry_size; } inside_index;
inside_index inside_index_shape(uint64_t blocks);

/* Writes cells + 1 thresholds and `cells` centers of an octave. */
void inside_log(uint32_t *threshold, uint32_t *center, unsigned cells);

/* LOG-n without a frame, to codes and back. Codes 2 and 3 are exact elements; inside_log_elements copies them from the same
 * positions of `exact`. Returns 0 if a code is invalid. */
void inside_log_codes(uint32_t *codes, const void *elements, size_t n, bitsnap_dtype dtype, unsigned cells);
int inside_log_elements(void *elements, const uint32_t *codes, const void *exact, size_t n, bitsnap_dtype dtype, unsigned cells);

/* Runs the tests in codec.c with this name of `size` characters. */
int inside_run(const char *name, size_t size, int argc, char **argv);

/* A codec with this kernel table and without checks, so that tests can change its frames. All codecs share one workspace. */
bitsnap inside_codec(unsigned table);

/* Writes a frame with a content id and one CONST run of this element, in native order. Returns its size, or 0. */
size_t inside_constant(bitsnap *b, uint8_t to[256], uint64_t count, bitsnap_dtype dtype, const uint8_t element[8]);

#ifdef BITSNAP_IMPLEMENTATION
size_t inside_workspace(unsigned block_log2, unsigned workers, int large)
{
    size_t most = 0, size;
    bsn_workspace room;
    bsn_context c;
    unsigned i;
    memset(&c, 0, sizeof c);
    c.shape.dtype = BITSNAP_F64;
    c.shape.width = 8;
    c.room_log2 = block_log2;
    for (i = 0; i < (large ? 2u : 1u); i++, most = size > most ? size : most) {
        c.shape.role = large && !i;
        c.shape.bins = c.shape.clusters = large && i;
        c.shape.columns = large && i;
        size = bsn_workspace_lay(&room, NULL, &c, workers, BSN_PUSHES, 0, 0);
    }
    return most;
}

uint64_t inside_bound_hash(uint64_t id, const void *bytes, size_t size)
{
    return bsn_bound_hash(bitsnap_kernels_get(0), id, (const uint8_t *)bytes, size);
}

uint64_t inside_chain(uint64_t h, uint64_t word) { return bsn_chain(h, word); }

unsigned inside_exponent(bitsnap_dtype dtype, unsigned *shift)
{
    *shift = bsn_exponent_of(dtype).shift;
    return (unsigned)bsn_exponent_of(dtype).mask;
}

inside_index inside_index_shape(uint64_t blocks)
{
    inside_index shape;
    bsn_index t;
    bsn_index_shape(&t, blocks, BSN_FLAG_CHECKS);
    shape.size = (size_t)t.size, shape.top = t.top, shape.entries = (size_t)t.entries[t.top], shape.entry_size = BSN_ENTRY_SIZE;
    return shape;
}

void inside_log(uint32_t *threshold, uint32_t *center, unsigned cells)
{
    static bsn_log log;
    unsigned j;
    bsn_log_set(&log, BITSNAP_F32, cells);
    for (j = 0; j <= cells; j++) threshold[j] = log.threshold[j];
    for (j = 0; j < cells; j++) center[j] = log.center[j];
}

void inside_log_codes(uint32_t *codes, const void *elements, size_t n, bitsnap_dtype dtype, unsigned cells)
{
    static bsn_log log;
    bsn_log_set(&log, (unsigned)dtype, cells);
    bsn_log_codes(&log, codes, (const uint8_t *)elements, n);
}

int inside_log_elements(void *elements, const uint32_t *codes, const void *exact, size_t n, bitsnap_dtype dtype, unsigned cells)
{
    static bsn_log log;
    const size_t width = bitsnap_width(dtype);
    size_t i;
    bsn_log_set(&log, (unsigned)dtype, cells);
    if (!bsn_log_elements(&log, (uint8_t *)elements, codes, n)) return 0;
    for (i = 0; i < n; i++)
        if (codes[i] >> 1 == BSN_CODE_EXACT) memcpy((uint8_t *)elements + i * width, (const uint8_t *)exact + i * width, width);
    return 1;
}

bitsnap inside_codec(unsigned table)
{
    static uint8_t workspace[16 << 20];
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.kernels = bitsnap_kernels_get(table);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.flags = BITSNAP_NO_CHECKS;
    return b;
}

size_t inside_constant(bitsnap *b, uint8_t to[256], uint64_t count, bitsnap_dtype dtype, const uint8_t element[8])
{
    bsn_coder s;
    bsn_call call;
    bsn_record record;
    size_t at, end;
    uint8_t index[8], *p;
    b->flags = BITSNAP_CONTENT_ID;
    if (bsn_encoder_begin(b, &s, to, 64, &at, count, dtype) || bsn_call_begin(&call, b, &s.shape, BSN_PUSHES, 0)) return 0;
    p = to + at;
    bsn_store32(p, (uint32_t)(BSN_FORM_CONST | bsn_cells(count, 16) << 8));
    bsn_copy_little_endian(p + 12, element, 1, s.shape.width);
    bsn_record_begin(&record, &call.context, 0, count, bsn_load32(p));
    bsn_record_hash(&record, bitsnap_hash(p + 12, s.shape.width));
    bsn_store64(p + 4, bitsnap_hash(record.bytes, record.size));
    s.index = index, s.index_capacity = sizeof index;
    if (bsn_push_note(b, &s, p, bsn_load32(p))) return 0;
    bsn_note_constant(&call, &s, p + 12, count);
    s.position = count;
    if (bitsnap_encoder_end(b, (bitsnap_encoder *)(void *)&s, p + 12 + s.shape.width, 128, &end)) return 0;
    return at + 12 + s.shape.width + end;
}
#endif

#endif
