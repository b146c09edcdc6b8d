#include "forms.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../peers.h"
#include "study.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

const char *const form_names[FORMS] = {"full",     "default",   "best",  "self", "fast", "xor-huffman",
                                       "xor-zstd-1", "xor-zstd-19", "mask", "pairs", "gaps"};

static const peer *peer_of(enum form form)
{
    const char *name = form == XOR_HUFFMAN ? "lmc" : form == XOR_ZSTD_1 ? "zstd-1-grouped" : "zstd-19-grouped";
    for (size_t i = 0; peers_get(i); i++)
        if (!strcmp(peers_get(i)->name, name)) return peers_get(i);
    return NULL;
}

int form_is_there(enum form form) { return form < XOR_HUFFMAN || form > XOR_ZSTD_19 || peer_of(form); }

double bits_per_element(const measured *m, enum form form) { return 8 * (double)m->bytes[form] / (double)m->n; }

static void *memory(size_t size)
{
    void *p = malloc(size + 1);
    if (!p) stop("out of memory", "");
    return p;
}

/* ---- what is counted ---- */

static void plane_entropies(double entropy[WIDTH_MAX], const uint8_t *data, size_t n, unsigned width)
{
    for (unsigned k = 0; k < width; k++) {
        size_t count[256] = {0};
        double sum = 0;
        for (size_t i = 0; i < n; i++) count[data[i * width + k]]++;
        for (unsigned s = 0; s < 256; s++)
            if (count[s]) sum -= (double)count[s] * log2((double)count[s] / (double)n);
        entropy[k] = sum / (double)n;
    }
}

static void count_changes(measured *m, const change *c)
{
    const uint8_t *base = c->base, *data = c->data;
    size_t next = 0, steps = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!memcmp(base + i * m->width, data + i * m->width, m->width)) continue;
        m->changed++;
        steps += 1 + (i - next) / 65536;
        next = i + 1;
    }
    m->bytes[MASK] = (c->n + 7) / 8 + m->changed * m->width;
    m->bytes[PAIRS] = m->changed * (4 + m->width);
    m->bytes[GAPS] = steps * (2 + m->width);
}

/* ---- XOR, planes, a packer ---- */

static size_t pack(const peer *which, const uint8_t *data, size_t size, unsigned width)
{
    static peers *contexts;
    uint8_t *frame = memory(peers_bound(size)), *back = memory(size);
    size_t packed;
    if (!contexts) contexts = peers_open();
    if (!contexts) stop("out of memory", "");
    packed = peers_compress(contexts, which, frame, data, size, width);
    if (!packed || !peers_decompress(contexts, which, back, size, width, frame, packed) || memcmp(back, data, size) != 0)
        stop("the round trip failed: ", which->name);
    free(frame);
    free(back);
    return packed;
}

static void measure_xor(measured *m, const change *c, unsigned forms)
{
    const size_t size = c->n * m->width;
    const uint8_t *base = c->base, *data = c->data;
    uint8_t *both = memory(size);
    for (size_t i = 0; i < size; i++) both[i] = base[i] ^ data[i];
    plane_entropies(m->xor_entropy, both, c->n, m->width);
    for (unsigned form = XOR_HUFFMAN; form <= XOR_ZSTD_19; form++)
        if (forms >> form & 1 && peer_of(form)) m->bytes[form] = pack(peer_of(form), both, size, m->width);
    free(both);
}

/* ---- bitsnap ---- */

/* block_log2: 0 for the usual blocks */
static size_t measure_bitsnap(measured *m, const change *c, enum form form, unsigned block_log2)
{
    const bitsnap largest = {.block_log2 = 20, .base = {.data = c, .dtype = c->dtype}}, small = {.block_log2 = 6};
    const size_t workspace_size = bitsnap_workspace_size(&largest, c->n, c->dtype), capacity = bitsnap_bound(&small, c->n, c->dtype) + bitsnap_bound(&largest, c->n, c->dtype);
    uint8_t *workspace = memory(workspace_size);
    uint8_t *frame = memory(capacity), *back = memory(c->n * m->width);
    size_t size;
    bitsnap_info info;
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = workspace_size;
    b.block_log2 = block_log2;
    if (form != FULL) {
        b.base.data = c->base;
        b.base.count = c->n;
        b.base.dtype = c->base_dtype;
    }
    if (form == FAST) b.level = BITSNAP_FAST;
    if (form == BEST) b.level = BITSNAP_BEST;
    if (form == SELF) b.flags = BITSNAP_SELF_CONTAINED;
    if (bitsnap_encode(&b, frame, capacity, &size, c->data, c->n, c->dtype) != BITSNAP_OK ||
        bitsnap_decode(&b, back, c->n, c->dtype, frame, size) != BITSNAP_OK)
        stop("bitsnap: ", bitsnap_message(&b));
    if (memcmp(back, c->data, c->n * m->width) != 0) stop("the round trip failed: bitsnap, ", form_names[form]);
    if (form != FULL && bitsnap_read_info(&info, frame, size) == BITSNAP_OK) {
        m->cells[form - DELTA][0] = info.same;
        m->cells[form - DELTA][1] = info.sparse + info.classed;
        m->cells[form - DELTA][2] = info.plain;
    }
    free(frame);
    free(back);
    return size;
}

measured forms_measure(const change *c, unsigned forms)
{
    measured m;
    memset(&m, 0, sizeof m);
    m.n = c->n;
    m.width = bitsnap_width(c->dtype);
    plane_entropies(m.entropy, c->data, c->n, m.width);
    for (unsigned form = FULL; form <= FAST; form++)
        if (forms >> form & 1) m.bytes[form] = measure_bitsnap(&m, c, form, 0);
    if (m.bytes[FULL] && m.bytes[DELTA]) m.plain = measure_bitsnap(&m, c, FULL, m.width > 2 ? 17 : 18);
    if (c->dtype == c->base_dtype) {
        count_changes(&m, c);
        measure_xor(&m, c, forms);
    }
    return m;
}
