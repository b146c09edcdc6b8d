#include "lmc.h"

#include <stdlib.h>
#include <string.h>

/* A packed plane is one byte, if all n are equal, or else
 *     128 bytes   the code length of each symbol, 4 bits each, 0 where it does not occur
 *     the codes   one stream, first code in the lowest bits, padded to whole bytes
 * Codes have at most 11 bits. Five of them fit a refill of 56 bits, and the decoder's table fits the cache. */
enum { LIMIT = 11, TABLE = 1 << LIMIT, LENGTHS_SIZE = 128, CODES_PER_REFILL = 5 };

static uint64_t load64(const uint8_t *p)
{
    uint64_t x = 0;
    for (unsigned k = 0; k < 8; k++) x |= (uint64_t)p[k] << 8 * k; /* compilers make one load of it */
    return x;
}

static void store64(uint8_t *p, uint64_t x)
{
    for (unsigned k = 0; k < 8; k++) p[k] = (uint8_t)(x >> 8 * k);
}

/* ---- code lengths ---- */

/* Counts in four tables, because equal neighbours in one table would wait for each other's stores. */
static void count_symbols(uint32_t counts[256], const uint8_t *from, size_t n)
{
    uint32_t part[4][256];
    size_t i = 0;
    memset(part, 0, sizeof part);
    for (; i + 8 <= n; i += 8) {
        uint64_t x = load64(from + i);
        for (unsigned k = 0; k < 8; k++) part[k & 3][x >> 8 * k & 0xFF]++;
    }
    for (; i < n; i++) part[0][from[i]]++;
    for (unsigned s = 0; s < 256; s++) counts[s] = part[0][s] + part[1][s] + part[2][s] + part[3][s];
}

typedef struct leaf {
    uint32_t count;
    uint32_t symbol;
} leaf;

static int by_count(const void *a, const void *b)
{
    const leaf *x = (const leaf *)a, *y = (const leaf *)b;
    if (x->count != y->count) return x->count < y->count ? -1 : 1;
    return x->symbol < y->symbol ? -1 : 1;
}

/* Builds Huffman's tree over leaves sorted by ascending count, with two queues: leaves, and inner nodes, which are
 * made in ascending order. Sets depth[i] to the depth of leaf i. */
static void tree_depths(unsigned depth[256], const leaf *leaves, unsigned n)
{
    uint64_t weight[511];
    unsigned parent[511], level[511], next_leaf = 0, next_node = n;
    for (unsigned i = 0; i < n; i++) weight[i] = leaves[i].count;
    for (unsigned node = n; node < 2 * n - 1; node++) {
        weight[node] = 0;
        for (unsigned child = 0; child < 2; child++) {
            int leaf_is_less = next_leaf < n && (next_node == node || weight[next_leaf] <= weight[next_node]);
            unsigned least = leaf_is_less ? next_leaf++ : next_node++;
            weight[node] += weight[least];
            parent[least] = node;
        }
    }
    level[2 * n - 2] = 0;
    for (unsigned i = 2 * n - 2; i-- > 0;) level[i] = level[parent[i]] + 1;
    for (unsigned i = 0; i < n; i++) depth[i] = level[i];
}

/* Cuts depths to LIMIT. Then makes the rarest symbols longer until Kraft's sum fits again, and uses what remains
 * of it to shorten the most frequent ones. */
static void limit_depths(unsigned depth[256], unsigned n)
{
    unsigned spent = 0;
    for (unsigned i = 0; i < n; i++) {
        if (depth[i] > LIMIT) depth[i] = LIMIT;
        spent += 1u << (LIMIT - depth[i]);
    }
    for (unsigned i = 0; spent > TABLE; i = i + 1 < n ? i + 1 : 0) {
        if (depth[i] == LIMIT) continue;
        depth[i]++;
        spent -= 1u << (LIMIT - depth[i]);
    }
    for (unsigned i = n; i-- > 0;) {
        while (depth[i] > 1 && spent + (1u << (LIMIT - depth[i])) <= TABLE) {
            spent += 1u << (LIMIT - depth[i]);
            depth[i]--;
        }
    }
}

/* Chooses code lengths. At least two symbols must occur. */
static void code_lengths(uint8_t lengths[256], const uint32_t counts[256])
{
    leaf leaves[256];
    unsigned depth[256], n = 0;
    memset(lengths, 0, 256);
    for (unsigned s = 0; s < 256; s++) {
        if (!counts[s]) continue;
        leaves[n].count = counts[s];
        leaves[n++].symbol = s;
    }
    qsort(leaves, n, sizeof *leaves, by_count);
    tree_depths(depth, leaves, n);
    limit_depths(depth, n);
    for (unsigned i = 0; i < n; i++) lengths[leaves[i].symbol] = (uint8_t)depth[i];
}

/* ---- canonical codes ---- */

/* The first bit of a code is its lowest, because the stream is filled from the low end. */
static unsigned reversed(unsigned code, unsigned length)
{
    unsigned result = 0;
    for (unsigned k = 0; k < length; k++) result |= (code >> k & 1) << (length - 1 - k);
    return result;
}

/* Assigns canonical codes, ascending by (length, symbol). Returns 1 if the lengths form a complete code. */
static int canonical_codes(uint16_t codes[256], const uint8_t lengths[256])
{
    unsigned next = 0;
    for (unsigned length = 1; length <= LIMIT; length++) {
        for (unsigned s = 0; s < 256; s++)
            if (lengths[s] == length) codes[s] = (uint16_t)reversed(next++, length);
        if (next > 1u << length) return 0;
        next <<= 1;
    }
    return next == 2 * TABLE;
}

/* ---- pack ---- */

static uint8_t *put_codes(uint8_t *to, uint8_t *end, const uint8_t *from, size_t n, const uint16_t codes[256],
                          const uint8_t lengths[256])
{
    struct {
        uint16_t code, length;
    } table[256];
    uint64_t pending = 0;
    unsigned bits = 0;
    size_t i = 0;
    for (unsigned s = 0; s < 256; s++) {
        table[s].code = codes[s];
        table[s].length = lengths[s];
    }
    for (; i + CODES_PER_REFILL <= n && end - to >= 8; i += CODES_PER_REFILL) {
        for (unsigned k = 0; k < CODES_PER_REFILL; k++) {
            pending |= (uint64_t)table[from[i + k]].code << bits;
            bits += table[from[i + k]].length;
        }
        store64(to, pending);
        to += bits >> 3;
        pending >>= bits & ~7u;
        bits &= 7;
    }
    for (; i < n; i++) {
        pending |= (uint64_t)table[from[i]].code << bits;
        for (bits += table[from[i]].length; bits >= 8; bits -= 8) {
            *to++ = (uint8_t)pending;
            pending >>= 8;
        }
    }
    if (bits) *to++ = (uint8_t)pending;
    return to;
}

size_t lmc_pack(uint8_t *to, const uint8_t *from, size_t n)
{
    uint32_t counts[256];
    uint8_t lengths[256];
    uint16_t codes[256] = {0};
    uint64_t bits = 0;
    size_t size;
    if (n < 2) return 0;
    count_symbols(counts, from, n);
    if (counts[from[0]] == n) {
        to[0] = from[0];
        return 1;
    }
    code_lengths(lengths, counts);
    for (unsigned s = 0; s < 256; s++) bits += (uint64_t)counts[s] * lengths[s];
    size = LENGTHS_SIZE + (size_t)((bits + 7) / 8);
    if (size > n - n / 64 || size >= n) return 0;
    canonical_codes(codes, lengths);
    for (unsigned k = 0; k < LENGTHS_SIZE; k++) to[k] = (uint8_t)(lengths[2 * k] | lengths[2 * k + 1] << 4);
    put_codes(to + LENGTHS_SIZE, to + size, from, n, codes, lengths);
    return size;
}

/* ---- unpack ---- */

typedef struct slot {
    uint8_t length, symbol; /* length first: a shift needs it in the low byte of a load */
} slot;

/* table[x] is the symbol whose code begins the bits x. */
static int decoding_table(slot table[TABLE], const uint8_t *from)
{
    uint8_t lengths[256];
    uint16_t codes[256];
    for (unsigned s = 0; s < 256; s++) lengths[s] = from[s / 2] >> 4 * (s & 1) & 15;
    if (!canonical_codes(codes, lengths)) return 0;
    for (unsigned s = 0; s < 256; s++) {
        slot e = {lengths[s], (uint8_t)s};
        if (!lengths[s] || lengths[s] > LIMIT) continue;
        for (unsigned x = codes[s]; x < TABLE; x += 1u << lengths[s]) table[x] = e;
    }
    return 1;
}

int lmc_unpack(uint8_t *to, size_t n, const uint8_t *from, size_t size)
{
    slot table[TABLE];
    const uint8_t *p = from + LENGTHS_SIZE, *end = from + size;
    uint64_t window = 0; /* the next `bits` bits of the stream, possibly with more above them */
    unsigned bits = 0;
    size_t i = 0;
    if (size == 1) {
        memset(to, from[0], n);
        return 1;
    }
    if (size < LENGTHS_SIZE || !decoding_table(table, from)) return 0;
    while (end - p >= 8 && n - i >= CODES_PER_REFILL) {
        window |= load64(p) << bits;
        p += (63 - bits) >> 3;
        bits |= 56;
        for (unsigned k = 0; k < CODES_PER_REFILL; k++) {
            slot e = table[window & (TABLE - 1)];
            to[i++] = e.symbol;
            window >>= e.length;
            bits -= e.length;
        }
    }
    /* A refill may leave whole bytes above `bits`. The loop below reads the same bytes again. */
    for (; i < n; i++) {
        slot e;
        for (; bits < LIMIT && p < end; bits += 8) window |= (uint64_t)*p++ << bits;
        e = table[window & (TABLE - 1)];
        if (e.length > bits) return 0;
        to[i] = e.symbol;
        window >>= e.length;
        bits -= e.length;
    }
    return p == end && bits < 8;
}
