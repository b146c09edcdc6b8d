/* A target for any machine: vectors of 16 bytes as GCC and Clang have them. What a section of bitsnap_simd.h consists of, as
 * "targets" there describes it: a vocabulary, the include, a table. It is tested, not fast: what a machine would do in an
 * instruction or in few is a loop over bytes or elements here. test_kernels.c includes it by BSN_MORE_TARGETS. */

typedef uint8_t bsn_vector_v __attribute__((vector_size(16)));
typedef uint16_t bsn_vector_words __attribute__((vector_size(16)));
typedef uint32_t bsn_vector_dwords __attribute__((vector_size(16)));
typedef uint64_t bsn_vector_qwords __attribute__((vector_size(16)));
typedef bsn_vector_v bsn_vector_m; /* bytes FF and 0 */
typedef unsigned bsn_vector_n;
typedef struct bsn_vector_s { uint64_t bits; bsn_vector_v v[4]; } bsn_vector_s; /* these, too */
typedef struct bsn_vector_k { bsn_vector_v none; } bsn_vector_k;

#define LANES(width, x, op, y)                                                                        \
    ((width) == 1 ? (bsn_vector_v)((x) op (y)) : (width) == 2 ? (bsn_vector_v)((bsn_vector_words)(x) op (bsn_vector_words)(y)) \
     : (width) == 4 ? (bsn_vector_v)((bsn_vector_dwords)(x) op (bsn_vector_dwords)(y))                \
                    : (bsn_vector_v)((bsn_vector_qwords)(x) op (bsn_vector_qwords)(y)))
#define SHIFT(width, x, op, n)                                                                        \
    ((width) == 2 ? (bsn_vector_v)((bsn_vector_words)(x) op (n)) : (width) == 4 ? (bsn_vector_v)((bsn_vector_dwords)(x) op (n)) \
                                                                                : (bsn_vector_v)((bsn_vector_qwords)(x) op (n)))

/* ---- registers ---- */

BSN_INLINE bsn_vector_v bsn_vector_load(const uint8_t *p) { bsn_vector_v x; memcpy(&x, p, 16); return x; }
BSN_INLINE void bsn_vector_store(uint8_t *p, bsn_vector_v x) { memcpy(p, &x, 16); }
BSN_INLINE bsn_vector_v bsn_vector_all(unsigned width, uint64_t x)
{
    uint8_t p[16];
    unsigned i;
    for (i = 0; i < 16; i++) p[i] = (uint8_t)(x >> (8 * (i % width)));
    return bsn_vector_load(p);
}
BSN_INLINE void bsn_vector_end(void) { }
BSN_INLINE bsn_vector_k bsn_vector_begin(void)
{
    bsn_vector_k k;
    k.none = bsn_vector_all(1, 0);
    return k;
}
BSN_INLINE bsn_vector_v bsn_vector_and(bsn_vector_v x, bsn_vector_v y) { return x & y; }
BSN_INLINE bsn_vector_v bsn_vector_or(bsn_vector_v x, bsn_vector_v y) { return x | y; }
BSN_INLINE bsn_vector_v bsn_vector_andnot(bsn_vector_v x, bsn_vector_v y) { return ~x & y; }
BSN_INLINE bsn_vector_v bsn_vector_xor(bsn_vector_v x, bsn_vector_v y) { return x ^ y; }
BSN_INLINE bsn_vector_v bsn_vector_add(unsigned width, bsn_vector_v x, bsn_vector_v y) { return LANES(width, x, +, y); }
BSN_INLINE bsn_vector_v bsn_vector_sub(unsigned width, bsn_vector_v x, bsn_vector_v y) { return LANES(width, x, -, y); }
BSN_INLINE unsigned bsn_vector_number(unsigned n) { return n; }
BSN_INLINE bsn_vector_v bsn_vector_shl(unsigned width, bsn_vector_v x, unsigned n) { return LANES(width, x, <<, bsn_vector_all(width, n)); }
BSN_INLINE bsn_vector_v bsn_vector_shr(unsigned width, bsn_vector_v x, unsigned n)
{
    return n < 8 * width ? LANES(width, x, >>, bsn_vector_all(width, n)) : bsn_vector_all(8, 0);
}
BSN_INLINE bsn_vector_v bsn_vector_select(bsn_vector_v m, bsn_vector_v x, bsn_vector_v y) { return (m & x) | (~m & y); }
BSN_INLINE bsn_vector_v bsn_vector_put(bsn_vector_v m, bsn_vector_v x, bsn_vector_v y) { return (m & x) | y; }
BSN_INLINE bsn_vector_v bsn_vector_min(unsigned width, bsn_vector_v x, bsn_vector_v y) { return bsn_vector_select(LANES(width, x, <, y), x, y); }
BSN_INLINE bsn_vector_v bsn_vector_signs(unsigned width, bsn_vector_v x)
{
    return LANES(width, x, >, bsn_vector_all(width, (UINT64_C(1) << (8 * width - 1)) - 1));
}
BSN_INLINE bsn_vector_v bsn_vector_where(bsn_vector_v x, bsn_vector_v y) { return y & LANES(8, x, !=, bsn_vector_all(8, 0)); }
BSN_INLINE int bsn_vector_zero(bsn_vector_v x)
{
    uint8_t p[16];
    bsn_vector_store(p, x);
    return !(bsn_load64(p) | bsn_load64(p + 8));
}
BSN_INLINE void bsn_vector_exchange(unsigned unit, bsn_vector_v *a, bsn_vector_v *b)
{
    uint8_t x[16], y[16];
    unsigned i;
    bsn_vector_store(x, *a);
    bsn_vector_store(y, *b);
    for (i = 0; i < 16; i++) {
        const uint8_t odd = x[i];
        if (!(i & unit)) continue;
        x[i] = y[i - unit];
        y[i - unit] = odd;
    }
    *a = bsn_vector_load(x);
    *b = bsn_vector_load(y);
}

/* ---- masks and sets ---- */

BSN_INLINE bsn_vector_v bsn_vector_reach(bsn_vector_v x, bsn_vector_v y) { return (bsn_vector_v)(x >= y); }
BSN_INLINE unsigned bsn_vector_popcount(uint64_t x) { return bsn_popcount(x); }
BSN_INLINE uint64_t bsn_vector_bits(const bsn_vector_v m[4])
{
    uint8_t p[64];
    uint64_t bits = 0;
    unsigned i;
    memcpy(p, m, 64);
    for (i = 0; i < 64; i++) bits |= (uint64_t)(p[i] & 1) << i;
    return bits;
}
BSN_INLINE unsigned bsn_vector_ones(bsn_vector_v m)
{
    const bsn_vector_v four[4] = { m, m, m, m };
    return bsn_popcount(bsn_vector_bits(four)) / 4;
}
BSN_INLINE bsn_vector_s bsn_vector_set_of(const bsn_vector_k *c, const bsn_vector_v m[4])
{
    bsn_vector_s s;
    (void)c;
    s.bits = bsn_vector_bits(m);
    memcpy(s.v, m, 64);
    return s;
}

BSN_INLINE bsn_vector_v bsn_vector_differ(unsigned width, const uint8_t *a, const uint8_t *b)
{
    uint8_t p[16];
    unsigned i;
    for (i = 0; i < 16; i++) p[i] = memcmp(a + i * width, b + i * width, width) ? 0xFF : 0;
    return bsn_vector_load(p);
}
BSN_INLINE bsn_vector_v bsn_vector_add_ones(bsn_vector_v sum, bsn_vector_v x)
{
    uint64_t p[2];
    bsn_vector_store((uint8_t *)p, x);
    p[0] = bsn_popcount(p[0]);
    p[1] = bsn_popcount(p[1]);
    return bsn_vector_add(8, sum, bsn_vector_load((const uint8_t *)p));
}

/* ---- hashes ---- */

BSN_INLINE bsn_vector_v bsn_vector_multiply(bsn_vector_v x, uint32_t by)
{
    return (bsn_vector_v)((bsn_vector_qwords)x * (bsn_vector_qwords)bsn_vector_all(8, by));
}
BSN_INLINE void bsn_vector_add_products(bsn_vector_v a[4], const bsn_vector_v key[4])
{
    unsigned i;
    for (i = 0; i < 4; i++) {
        const bsn_vector_qwords low = (bsn_vector_qwords)(key[i] & bsn_vector_all(8, 0xFFFFFFFF));
        a[i] = bsn_vector_add(8, a[i], (bsn_vector_v)(low * (bsn_vector_qwords)bsn_vector_shr(8, key[i], 32)));
    }
}
BSN_INLINE bsn_vector_v bsn_vector_swap(bsn_vector_v x)
{
    uint8_t p[24];
    bsn_vector_store(p + 8, x);
    memcpy(p, p + 16, 8);
    return bsn_vector_load(p);
}

/* ---- elements, bytes and lists ---- */

BSN_INLINE bsn_vector_v bsn_vector_lowest(unsigned width, const bsn_vector_v x[4])
{
    uint8_t p[16], all[64];
    unsigned i;
    memcpy(all, x, 16 * width);
    for (i = 0; i < 16; i++) p[i] = all[i * width];
    return bsn_vector_load(p);
}
BSN_INLINE bsn_vector_v bsn_vector_widen(unsigned width, const uint8_t *bytes)
{
    uint8_t p[16] = { 0 };
    unsigned i;
    for (i = 0; i < 16 / width; i++) p[i * width] = bytes[i];
    return bsn_vector_load(p);
}
BSN_INLINE bsn_vector_v bsn_vector_expand_words(unsigned width, bsn_vector_v base, uint64_t m, const uint8_t **list)
{
    uint8_t p[16];
    bsn_vector_store(p, base);
    for (; m; m &= m - 1, *list += width) memcpy(p + bsn_lowest_bit(m) * width, *list, width);
    return bsn_vector_load(p);
}
BSN_INLINE void bsn_vector_expand_list(const bsn_vector_k *c, bsn_vector_v x[4], bsn_vector_s s, const uint8_t **list)
{
    unsigned i;
    (void)c;
    for (i = 0; i < 4; i++) x[i] = bsn_vector_expand_words(1, x[i], s.bits >> 16 * i & 0xFFFF, list);
}
BSN_INLINE void bsn_vector_compress_words(unsigned width, bsn_vector_v x, uint64_t m, uint8_t **list)
{
    uint8_t p[16];
    bsn_vector_store(p, x);
    for (; m; m &= m - 1, *list += width) memcpy(*list, p + bsn_lowest_bit(m) * width, width);
}
BSN_INLINE void bsn_vector_compress_list(const bsn_vector_v x[4], uint64_t m, uint8_t **list, int half)
{
    unsigned i;
    (void)half;
    for (i = 0; i < 4; i++) bsn_vector_compress_words(1, x[i], m >> 16 * i & 0xFFFF, list);
}
BSN_INLINE bsn_vector_v bsn_vector_tokens(const uint8_t *words)
{
    uint8_t p[16] = { 0 };
    unsigned i;
    for (i = 0; i < 4; i++) {
        const unsigned x = (unsigned)bsn_element_load(words + 2 * i, 2), log = x > 15 ? bsn_log2(x) : 0;
        p[4 * i] = (uint8_t)(log ? 8 + 2 * log + (x >> (log - 1) & 1) : x);
    }
    return bsn_vector_load(p);
}
BSN_INLINE bsn_vector_v bsn_vector_lanes(bsn_vector_v x) { return x; }
BSN_INLINE void bsn_vector_unpack(bsn_vector_v v[4], bsn_vector_v a, bsn_vector_v b, bsn_vector_v c, bsn_vector_v d)
{
    const bsn_vector_v part[4] = { a, b, c, d };
    uint8_t from[64], to[64];
    unsigned i;
    memcpy(from, part, 64);
    for (i = 0; i < 64; i++) to[i] = from[i % 4 * 16 + i / 4];
    memcpy(v, to, 64);
}

/* ---- cells ---- */

typedef bsn_vector_v bsn_vector_w;
typedef const uint8_t (*bsn_vector_t)[128];
typedef union bsn_vector_parts {
    bsn_vector_v v;
    uint8_t u8[16];
    uint16_t u16[8];
    uint32_t u32[4];
    int32_t i32[4];
    uint64_t u64[2];
    float f[4];
} bsn_vector_parts;

/* name, lanes and how many, and a lane of the result, of i and lanes x, y, z of the operands */
#define UNARY(name, lane, count, result)                                                              \
    BSN_INLINE bsn_vector_v bsn_vector_##name(bsn_vector_v a)                                         \
    { bsn_vector_parts x, r; unsigned i; x.v = a; for (i = 0; i < count; i++) r.lane[i] = result; return r.v; }
#define BINARY(name, lane, count, result)                                                             \
    BSN_INLINE bsn_vector_v bsn_vector_##name(bsn_vector_v a, bsn_vector_v b)                         \
    { bsn_vector_parts x, y, r; unsigned i; x.v = a; y.v = b; for (i = 0; i < count; i++) r.lane[i] = result; return r.v; }
BINARY(equal_m, u8, 16, (uint8_t)(x.u8[i] == y.u8[i] ? 0xFF : 0))
BINARY(equal_w, u32, 4, x.u32[i] == y.u32[i] ? 0xFFFFFFFF : 0)
BINARY(above_w, u32, 4, x.i32[i] > y.i32[i] ? 0xFFFFFFFF : 0)
BINARY(reach_w, u32, 4, x.u32[i] >= y.u32[i] ? 0xFFFFFFFF : 0)
BINARY(less_f, u32, 4, x.f[i] < y.f[i] ? 0xFFFFFFFF : 0)
BINARY(add_f, f, 4, x.f[i] + y.f[i])
BINARY(sub_f, f, 4, x.f[i] - y.f[i])
BINARY(mul_f, f, 4, x.f[i] * y.f[i])
BINARY(div_f, f, 4, x.f[i] / y.f[i])
UNARY(to_f, f, 4, (float)x.i32[i])
UNARY(of_f, i32, 4, x.f[i] > -2147483648.0f && x.f[i] < 2147483648.0f ? (int32_t)x.f[i] : INT32_MIN)
BINARY(pack, u8, 16, (uint8_t)bsn_min(i < 8 ? x.u16[i & 7] : y.u16[i & 7], 255))
BINARY(mul, u16, 8, (uint16_t)((uint32_t)x.u16[i] * y.u16[i]))
BINARY(mul_high, u16, 8, (uint16_t)((uint32_t)x.u16[i] * y.u16[i] >> 16))
BINARY(mul_w, u32, 4, x.u32[i] * y.u32[i])
BINARY(product, u32, 4, x.u32[i] * y.u32[i])
BINARY(between, u32, 4, x.i32[i] > y.i32[i] ? x.u32[i] - y.u32[i] : y.u32[i] - x.u32[i])
BINARY(max, u32, 4, x.u32[i] > y.u32[i] ? x.u32[i] : y.u32[i])
BINARY(zip_low_1, u8, 16, i & 1 ? y.u8[i / 2] : x.u8[i / 2])
BINARY(zip_low_2, u16, 8, i & 1 ? y.u16[i / 2] : x.u16[i / 2])
BINARY(zip_high_1, u8, 16, i & 1 ? y.u8[8 + i / 2] : x.u8[8 + i / 2])
BINARY(zip_high_2, u16, 8, i & 1 ? y.u16[4 + i / 2] : x.u16[4 + i / 2])
BSN_INLINE bsn_vector_v bsn_vector_zip_low(unsigned width, bsn_vector_v x, bsn_vector_v y)
{
    return width == 1 ? bsn_vector_zip_low_1(x, y) : bsn_vector_zip_low_2(x, y);
}
BSN_INLINE bsn_vector_v bsn_vector_zip_high(unsigned width, bsn_vector_v x, bsn_vector_v y)
{
    return width == 1 ? bsn_vector_zip_high_1(x, y) : bsn_vector_zip_high_2(x, y);
}
BSN_INLINE bsn_vector_v bsn_vector_fma_f(bsn_vector_v x, bsn_vector_v y, bsn_vector_v z)
{
    return bsn_vector_add_f(bsn_vector_mul_f(x, y), z);
}
BSN_INLINE uint64_t bsn_vector_lane_bits(bsn_vector_v m)
{
    const bsn_vector_v four[4] = { m, m, m, m };
    return bsn_vector_bits(four) & 0xFFFF;
}
BSN_INLINE unsigned bsn_vector_bits_w(bsn_vector_v m)
{
    bsn_vector_parts x;
    x.v = m;
    return (x.u32[0] & 1) | (x.u32[1] & 2) | (x.u32[2] & 4) | (x.u32[3] & 8);
}
BSN_INLINE void bsn_vector_bytes(bsn_vector_v b[4], const bsn_vector_v v[4])
{
    uint8_t from[64], to[64];
    unsigned i;
    memcpy(from, v, 64);
    for (i = 0; i < 64; i++) to[i % 4 * 16 + i / 4] = from[i];
    memcpy(b, to, 64);
}
BSN_INLINE bsn_vector_t bsn_vector_tables(const bsn_log *x, unsigned find) { return find ? x->find : x->bytes; }
BSN_INLINE void bsn_vector_of_tables(bsn_vector_v out[3], const bsn_vector_t *t, bsn_vector_v index, size_t end)
{
    uint8_t at[16], p[16];
    unsigned i, j;
    (void)end;
    bsn_vector_store(at, index);
    for (j = 0; j < 3; j++) {
        for (i = 0; i < 16; i++) p[i] = (*t)[j][at[i] & 127];
        out[j] = bsn_vector_load(p);
    }
}
BSN_INLINE bsn_vector_v bsn_vector_entries(const bsn_vector_t *t, const uint32_t *table, bsn_vector_v index, int few)
{
    bsn_vector_parts x;
    unsigned i;
    (void)t, (void)few;
    x.v = index;
    for (i = 0; i < 4; i++) x.u32[i] = table[x.u32[i]];
    return x.v;
}
BSN_INLINE bsn_vector_v bsn_vector_square_sum(bsn_vector_v sum, bsn_vector_v d, bsn_vector_v octaves)
{
    bsn_vector_parts x, n, s;
    unsigned i;
    x.v = d, n.v = octaves, s.v = sum;
    for (i = 0; i < 4; i++)
        if (n.u32[i] < 64) s.u64[i / 2] += ((uint64_t)x.u32[i] * x.u32[i] + 127) >> 7 << n.u32[i];
    return s.v;
}
#undef UNARY
#undef BINARY

/* ---- trees and masks ---- */

BSN_INLINE bsn_vector_s bsn_vector_set(const bsn_vector_k *c, uint64_t w)
{
    uint8_t p[64];
    bsn_vector_s s;
    unsigned i;
    (void)c;
    s.bits = w;
    for (i = 0; i < 64; i++) p[i] = w >> i & 1 ? 0xFF : 0;
    memcpy(s.v, p, 64);
    return s;
}
BSN_INLINE bsn_vector_s bsn_vector_slot(const bsn_vector_k *c, const bsn_vector_s s[4], unsigned k, unsigned slot, uint64_t bits)
{
    (void)s, (void)k, (void)slot;
    return bsn_vector_set(c, bits);
}
BSN_INLINE bsn_vector_v bsn_vector_unset(bsn_vector_v x, bsn_vector_s s, unsigned i) { return x & ~s.v[i]; }
BSN_INLINE bsn_vector_v bsn_vector_blend(bsn_vector_s s, unsigned i, bsn_vector_v x, bsn_vector_v y) { return bsn_vector_select(s.v[i], y, x); }
BSN_INLINE bsn_vector_v bsn_vector_bit(bsn_vector_v x, unsigned b)
{
    return (bsn_vector_v)((x & bsn_vector_all(1, 1u << b)) != 0);
}
BSN_INLINE bsn_vector_v bsn_vector_digit(bsn_vector_v x, bsn_vector_s s, unsigned i, unsigned b)
{
    return x | (s.v[i] & bsn_vector_all(1, 1u << b));
}
BSN_INLINE bsn_vector_v bsn_vector_shuffle(bsn_vector_v x, bsn_vector_v index)
{
    uint8_t p[16], from[16];
    unsigned i;
    bsn_vector_store(from, x);
    bsn_vector_store(p, index);
    for (i = 0; i < 16; i++) p[i] = p[i] < 16 ? from[p[i]] : 0;
    return bsn_vector_load(p);
}
BSN_INLINE bsn_vector_v bsn_vector_all16(const uint8_t *p) { return bsn_vector_load(p); }
BSN_INLINE bsn_vector_v bsn_vector_inside(bsn_vector_v index) { return index; }
BSN_INLINE void bsn_vector_look_up(bsn_vector_v y[4], const bsn_vector_v index[4], const uint8_t *table)
{
    uint8_t p[64];
    unsigned i;
    memcpy(p, index, 64);
    for (i = 0; i < 64; i++) p[i] = p[i] < 64 ? table[p[i]] : 0;
    for (i = 0; i < 4; i++) y[i] ^= bsn_vector_load(p + 16 * i);
}

#define BSN_T_NAME bsn_vector
#define BSN_T_TARGET
#define BSN_T_UNROLL
#define BSN_T_BYTES 16
#define BSN_T_MASKS 0
#define BSN_T_ACROSS 0
#define BSN_T_RANKS 0
#define BSN_T_CHAINS 0
#define BSN_T_TWIGS 0
#define BSN_T_SHL(width, x, n) SHIFT(width, x, <<, n)
#define BSN_T_SHR(width, x, n) SHIFT(width, x, >>, n)
#include BITSNAP_SIMD_FILE

#undef LANES
#undef SHIFT

/* these kernels are slower fused, so the portable code is used */
#define bsn_vector_start bsn_scalar_start
#define bsn_vector_finish bsn_scalar_finish
#define bsn_vector_places bsn_scalar_places
#define BSN_SLOT(when, result, name, arguments) BSN_FOR_##when(bsn_vector_##name),
static const bitsnap_kernels bsn_kernels_vector = { "vector", 512, BSN_LEAVES | BSN_LEAVES_LISTS | BSN_LOGS, BSN_KERNELS(BSN_SLOT) };
#undef BSN_SLOT
#define TARGET_TESTED
