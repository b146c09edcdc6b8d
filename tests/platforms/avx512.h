/* AVX-512 in C: those of its intrinsics that bitsnap_simd.h uses, lane by lane as the manual defines them. With it
 * tests/platforms/check_avx512.sh builds and runs the table of kernels for AVX-512 where no processor has it, and everywhere under
 * sanitizers, which see no reads and writes of intrinsics. What an instruction leaves undefined is filled with rubbish, and
 * what must be aligned is checked. To be included before bitsnap_simd.h. */
#ifndef BITSNAP_TEST_AVX512_H
#define BITSNAP_TEST_AVX512_H

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef union lanes {
    __m512i v;
    __m512 f;
    uint8_t u8[64];
    uint16_t u16[32];
    uint32_t u32[16];
    uint64_t u64[8];
    int8_t i8[64];
    int16_t i16[32];
    int32_t i32[16];
    int64_t i64[8];
    float f32[16];
} lanes;

/* (inlined they would take minutes to compile) */
#define EMULATED static __attribute__((target("avx2,bmi,bmi2,popcnt"), noinline, unused))
#define EACH(count) for (unsigned i = 0; i < count; i++)
#define RUBBISH 0xA5

/* name, the kind of lane and how many, and a lane of the result, of i and lanes x, y, z of the operands */
#define UNARY(name, lane, count, result)                                                              \
    EMULATED __m512i e_##name(__m512i a) { lanes x = { a }, r; EACH(count) r.lane[i] = result; return r.v; }
#define BINARY(name, lane, count, result)                                                             \
    EMULATED __m512i e_##name(__m512i a, __m512i b)                                                   \
    { lanes x = { a }, y = { b }, r; EACH(count) r.lane[i] = result; return r.v; }
#define BY_NUMBER(name, lane, count, result)                                                          \
    EMULATED __m512i e_##name(__m512i a, unsigned n) { lanes x = { a }, r; EACH(count) r.lane[i] = result; return r.v; }
#define FLOATS(name, result)                                                                          \
    EMULATED __m512 e_##name(__m512 a, __m512 b, __m512 c)                                            \
    { lanes x, y, z, r; x.f = a; y.f = b; z.f = c; EACH(16) r.f32[i] = result; return r.f; }

/* the same where a bit of k is set, and `other` elsewhere */
#define MASKED(name, mask, lane, count)                                                               \
    EMULATED __m512i e_mask_##name(__m512i other, mask k, __m512i a, __m512i b)                       \
    { lanes r = { other }, m = { e_##name(a, b) }; EACH(count) if (k >> i & 1) r.lane[i] = m.lane[i]; return r.v; } \
    EMULATED __m512i e_maskz_##name(mask k, __m512i a, __m512i b) { return e_mask_##name(_mm512_setzero_si512(), k, a, b); }

/* a bit for each lane */
#define TEST(name, mask, lane, count, is)                                                             \
    EMULATED mask e_##name(__m512i a, __m512i b)                                                      \
    { lanes x = { a }, y = { b }; mask m = 0; EACH(count) if (is) m |= (mask)((mask)1 << i); return m; }

/* ---- loading, storing, setting ---- */

#undef _mm512_setzero_si512
#define _mm512_setzero_si512() ((__m512i){ 0, 0, 0, 0, 0, 0, 0, 0 })

EMULATED __m512i e_loadu(const void *p) { lanes r; memcpy(&r, p, 64); return r.v; }
EMULATED void e_storeu(void *p, __m512i a) { memcpy(p, &a, 64); }
EMULATED void e_stream(void *p, __m512i a) { if ((uintptr_t)p & 63) abort(); memcpy(p, &a, 64); }
EMULATED __m512i e_maskz_loadu_epi8(__mmask64 k, const void *p)
{
    lanes r = { _mm512_setzero_si512() };
    EACH(64) if (k >> i & 1) r.u8[i] = ((const uint8_t *)p)[i];
    return r.v;
}
EMULATED void e_mask_storeu_epi8(void *p, __mmask64 k, __m512i a)
{
    lanes x = { a };
    EACH(64) if (k >> i & 1) ((uint8_t *)p)[i] = x.u8[i];
}

#define SETS(bits, lane, mask, count)                                                                 \
    EMULATED __m512i e_set1_epi##bits(int64_t n) { lanes r; EACH(count) r.i##bits[i] = (int##bits##_t)n; return r.v; } \
    EMULATED __m512i e_mask_set1_epi##bits(__m512i other, mask k, int64_t n)                          \
    { lanes r = { other }; EACH(count) if (k >> i & 1) r.i##bits[i] = (int##bits##_t)n; return r.v; } \
    EMULATED __m512i e_maskz_set1_epi##bits(mask k, int64_t n)                                        \
    { return e_mask_set1_epi##bits(_mm512_setzero_si512(), k, n); }                                   \
    EMULATED __m512i e_mask_mov_epi##bits(__m512i other, mask k, __m512i a)                           \
    { lanes r = { other }, x = { a }; EACH(count) if (k >> i & 1) r.lane[i] = x.lane[i]; return r.v; } \
    EMULATED __m512i e_maskz_mov_epi##bits(mask k, __m512i a) { return e_mask_mov_epi##bits(_mm512_setzero_si512(), k, a); }
SETS(8, u8, __mmask64, 64)
SETS(16, u16, __mmask32, 32)
SETS(32, u32, __mmask16, 16)
SETS(64, u64, __mmask8, 8)
EMULATED __m512i e_set_epi64(int64_t h, int64_t g, int64_t f, int64_t e, int64_t d, int64_t c, int64_t b, int64_t a)
{
    return (__m512i){ a, b, c, d, e, f, g, h };
}
#define e_setr_epi32(...) (((lanes){ .i32 = { __VA_ARGS__ } }).v)

/* ---- parts of registers ---- */

EMULATED __m512i e_castps(__m512 a) { lanes r; r.f = a; return r.v; }
EMULATED __m512 e_tops(__m512i a) { lanes r = { a }; return r.f; }
EMULATED __m256i e_part4(__m512i a, unsigned n) { __m256i r; memcpy(&r, (const char *)&a + n % 2 * 32, 32); return r; }
EMULATED __m128i e_part2(__m512i a, unsigned n) { __m128i r; memcpy(&r, (const char *)&a + n % 4 * 16, 16); return r; }
EMULATED __m512i e_from256(__m256i a) { lanes r; memset(&r, RUBBISH, 64); memcpy(&r, &a, 32); return r.v; }
EMULATED __m512i e_insert4(__m512i a, __m256i b, unsigned n) { memcpy((char *)&a + n % 2 * 32, &b, 32); return a; }
EMULATED __m512i e_broadcast2(__m128i a) { lanes r; EACH(4) memcpy(&r.u64[2 * i], &a, 16); return r.v; }

/* ---- arithmetic ---- */

BINARY(add_epi8, u8, 64, (uint8_t)(x.u8[i] + y.u8[i]))
BINARY(add_epi16, u16, 32, (uint16_t)(x.u16[i] + y.u16[i]))
BINARY(add_epi32, u32, 16, x.u32[i] + y.u32[i])
BINARY(add_epi64, u64, 8, x.u64[i] + y.u64[i])
BINARY(sub_epi8, u8, 64, (uint8_t)(x.u8[i] - y.u8[i]))
BINARY(sub_epi16, u16, 32, (uint16_t)(x.u16[i] - y.u16[i]))
BINARY(sub_epi32, u32, 16, x.u32[i] - y.u32[i])
BINARY(sub_epi64, u64, 8, x.u64[i] - y.u64[i])
BINARY(adds_epu8, u8, 64, (uint8_t)(x.u8[i] + y.u8[i] > 255 ? 255 : x.u8[i] + y.u8[i]))
BINARY(mullo_epi16, u16, 32, (uint16_t)((uint32_t)x.u16[i] * y.u16[i]))
BINARY(mulhi_epu16, u16, 32, (uint16_t)((uint32_t)x.u16[i] * y.u16[i] >> 16))
BINARY(mul_epu32, u64, 8, (uint64_t)x.u32[2 * i] * y.u32[2 * i])
BINARY(madd_epi16, u32, 16, (uint32_t)(x.i16[2 * i] * y.i16[2 * i]) + (uint32_t)(x.i16[2 * i + 1] * y.i16[2 * i + 1]))
BINARY(min_epu16, u16, 32, x.u16[i] < y.u16[i] ? x.u16[i] : y.u16[i])
BINARY(min_epu32, u32, 16, x.u32[i] < y.u32[i] ? x.u32[i] : y.u32[i])
BINARY(max_epu32, u32, 16, x.u32[i] > y.u32[i] ? x.u32[i] : y.u32[i])
UNARY(abs_epi32, u32, 16, x.i32[i] < 0 ? 0u - x.u32[i] : x.u32[i])
UNARY(popcnt_epi8, u8, 64, (uint8_t)__builtin_popcount(x.u8[i]))
UNARY(popcnt_epi64, u64, 8, (uint64_t)__builtin_popcountll(x.u64[i]))
MASKED(add_epi8, __mmask64, u8, 64)
MASKED(sub_epi32, __mmask16, u32, 16)

/* ---- bits ---- */

BINARY(and_si512, u64, 8, x.u64[i] & y.u64[i])
BINARY(or_si512, u64, 8, x.u64[i] | y.u64[i])
BINARY(xor_si512, u64, 8, x.u64[i] ^ y.u64[i])
BINARY(andnot_si512, u64, 8, ~x.u64[i] & y.u64[i])
EMULATED __m512i e_ternary(__m512i a, __m512i b, __m512i c, unsigned table)
{
    __m512i r = _mm512_setzero_si512();
    for (unsigned n = 0; n < 8; n++)
        if (table >> n & 1) r |= (n & 4 ? a : ~a) & (n & 2 ? b : ~b) & (n & 1 ? c : ~c);
    return r;
}
BY_NUMBER(slli_epi16, u16, 32, (uint16_t)(n > 15 ? 0 : (uint32_t)x.u16[i] << n))
BY_NUMBER(slli_epi32, u32, 16, n > 31 ? 0 : x.u32[i] << n)
BY_NUMBER(slli_epi64, u64, 8, n > 63 ? 0 : x.u64[i] << n)
BY_NUMBER(srli_epi16, u16, 32, (uint16_t)(n > 15 ? 0 : x.u16[i] >> n))
BY_NUMBER(srli_epi32, u32, 16, n > 31 ? 0 : x.u32[i] >> n)
BY_NUMBER(srli_epi64, u64, 8, n > 63 ? 0 : x.u64[i] >> n)
BY_NUMBER(srai_epi16, i16, 32, (int16_t)(x.i16[i] >> (n > 15 ? 15 : n)))
BY_NUMBER(srai_epi32, i32, 16, x.i32[i] >> (n > 31 ? 31 : n))
BY_NUMBER(srai_epi64, i64, 8, x.i64[i] >> (n > 63 ? 63 : n))
EMULATED unsigned e_number(__m128i n) { uint64_t r; memcpy(&r, &n, 8); return r > 64 ? 64 : (unsigned)r; }
BINARY(sllv_epi64, u64, 8, y.u64[i] > 63 ? 0 : x.u64[i] << y.u64[i])
EMULATED __m512i e_shldv_epi32(__m512i a, __m512i b, __m512i c)
{
    lanes x = { a }, y = { b }, z = { c }, r;
    EACH(16) r.u32[i] = (uint32_t)(((uint64_t)x.u32[i] << 32 | y.u32[i]) << (z.u32[i] & 31) >> 32);
    return r.v;
}
EMULATED __m512i e_affine(__m512i a, __m512i b, unsigned add) /* bytes of a times matrices of b: row 7 - k makes bit k */
{
    lanes x = { a }, y = { b }, r;
    EACH(64) {
        unsigned k, byte = 0;
        for (k = 0; k < 8; k++) byte |= (unsigned)__builtin_parity(y.u8[i / 8 * 8 + 7 - k] & x.u8[i]) << k;
        r.u8[i] = (uint8_t)(byte ^ add);
    }
    return r.v;
}

/* ---- order ---- */

BINARY(permutexvar_epi8, u8, 64, y.u8[x.u8[i] & 63])
BINARY(permutexvar_epi32, u32, 16, y.u32[x.u32[i] & 15])
MASKED(permutexvar_epi8, __mmask64, u8, 64)
BINARY(shuffle_epi8, u8, 64, (uint8_t)(y.u8[i] & 128 ? 0 : x.u8[(i & 48) | (y.u8[i] & 15)]))
EMULATED __m512i e_shuffle_i32x4(__m512i a, __m512i b, unsigned n)
{
    lanes x = { a }, y = { b }, r;
    EACH(16) r.u32[i] = (i & 8 ? y : x).u32[(n >> i / 4 * 2 & 3) * 4 + i % 4];
    return r.v;
}
EMULATED __m512i e_alignr_epi8(__m512i a, __m512i b, unsigned n)
{
    lanes x = { a }, y = { b }, r;
    EACH(64) r.u8[i] = i % 16 + n < 16 ? y.u8[i + n] : x.u8[i + n - 16];
    return r.v;
}
BINARY(unpacklo_epi8, u8, 64, (i & 1 ? y : x).u8[(i & 48) | i % 16 / 2])
BINARY(unpackhi_epi8, u8, 64, (i & 1 ? y : x).u8[(i & 48) | (8 + i % 16 / 2)])
BINARY(unpacklo_epi16, u16, 32, (i & 1 ? y : x).u16[(i & 24) | i % 8 / 2])
BINARY(unpackhi_epi16, u16, 32, (i & 1 ? y : x).u16[(i & 24) | (4 + i % 8 / 2)])
BINARY(unpacklo_epi32, u32, 16, (i & 1 ? y : x).u32[(i & 12) | i % 4 / 2])
BINARY(unpackhi_epi32, u32, 16, (i & 1 ? y : x).u32[(i & 12) | (2 + i % 4 / 2)])
BINARY(unpacklo_epi64, u64, 8, (i & 1 ? y : x).u64[i & 6])
BINARY(unpackhi_epi64, u64, 8, (i & 1 ? y : x).u64[i | 1])
EMULATED uint8_t e_saturate8(int16_t n) { return (uint8_t)(n < 0 ? 0 : n > 255 ? 255 : n); }
BINARY(packus_epi16, u8, 64, e_saturate8((i & 8 ? y : x).i16[i / 16 * 8 + i % 8]))
EMULATED __m512i e_permutex2var_epi8(__m512i a, __m512i index, __m512i b)
{
    lanes x = { a }, y = { b }, n = { index }, r;
    EACH(64) r.u8[i] = (n.u8[i] & 64 ? y : x).u8[n.u8[i] & 63];
    return r.v;
}
#define COMPRESS_EXPAND(bits, lane, mask, count)                                                      \
    EMULATED __m512i e_mask_compress_epi##bits(__m512i other, mask k, __m512i a)                      \
    { lanes r = { other }, x = { a }; unsigned n = 0; EACH(count) if (k >> i & 1) r.lane[n++] = x.lane[i]; return r.v; } \
    EMULATED __m512i e_mask_expand_epi##bits(__m512i other, mask k, __m512i a)                        \
    { lanes r = { other }, x = { a }; unsigned n = 0; EACH(count) if (k >> i & 1) r.lane[i] = x.lane[n++]; return r.v; }
COMPRESS_EXPAND(8, u8, __mmask64, 64)
COMPRESS_EXPAND(16, u16, __mmask32, 32)
COMPRESS_EXPAND(32, u32, __mmask16, 16)
COMPRESS_EXPAND(64, u64, __mmask8, 8)

/* ---- masks ---- */

TEST(cmpeq_epi8_mask, __mmask64, u8, 64, x.u8[i] == y.u8[i])
TEST(cmpeq_epi32_mask, __mmask16, u32, 16, x.u32[i] == y.u32[i])
TEST(cmpneq_epi8_mask, __mmask64, u8, 64, x.u8[i] != y.u8[i])
TEST(cmpneq_epi16_mask, __mmask32, u16, 32, x.u16[i] != y.u16[i])
TEST(cmpneq_epi32_mask, __mmask16, u32, 16, x.u32[i] != y.u32[i])
TEST(cmpneq_epi64_mask, __mmask8, u64, 8, x.u64[i] != y.u64[i])
TEST(cmpgt_epu8_mask, __mmask64, u8, 64, x.u8[i] > y.u8[i])
TEST(cmpge_epu8_mask, __mmask64, u8, 64, x.u8[i] >= y.u8[i])
TEST(cmpgt_epu32_mask, __mmask16, u32, 16, x.u32[i] > y.u32[i])
TEST(cmpge_epu32_mask, __mmask16, u32, 16, x.u32[i] >= y.u32[i])
TEST(cmpgt_epi32_mask, __mmask16, u32, 16, x.i32[i] > y.i32[i])
TEST(test_epi8_mask, __mmask64, u8, 64, (x.u8[i] & y.u8[i]) != 0)
TEST(test_epi16_mask, __mmask32, u16, 32, (x.u16[i] & y.u16[i]) != 0)
TEST(test_epi32_mask, __mmask16, u32, 16, (x.u32[i] & y.u32[i]) != 0)
TEST(test_epi64_mask, __mmask8, u64, 8, (x.u64[i] & y.u64[i]) != 0)
EMULATED __mmask64 e_movepi8_mask(__m512i a)
{
    lanes x = { a };
    __mmask64 m = 0;
    EACH(64) m |= (__mmask64)(x.u8[i] >> 7) << i;
    return m;
}
EMULATED __m512i e_movm_epi8(__mmask64 k) { return e_maskz_set1_epi8(k, -1); }

/* ---- conversions ---- */

#define WIDEN(name, from, half, lane, count)                                                          \
    EMULATED __m512i e_##name(half a) { from x[count]; lanes r; memcpy(x, &a, sizeof x); EACH(count) r.lane[i] = x[i]; return r.v; }
WIDEN(cvtepu8_epi16, uint8_t, __m256i, u16, 32)
WIDEN(cvtepu8_epi32, uint8_t, __m128i, u32, 16)
WIDEN(cvtepu8_epi64, uint8_t, __m128i, u64, 8)
WIDEN(cvtepu16_epi32, uint16_t, __m256i, u32, 16)
#define NARROW(name, half, to, lane, count)                                                           \
    EMULATED half e_##name(__m512i a)                                                                 \
    {                                                                                                 \
        lanes x = { a };                                                                              \
        to part[sizeof(half) / sizeof(to)] = { 0 };                                                   \
        half r;                                                                                       \
        EACH(count) part[i] = (to)x.lane[i];                                                          \
        memcpy(&r, part, sizeof r);                                                                   \
        return r;                                                                                     \
    }
NARROW(cvtepi32_epi16, __m256i, uint16_t, u32, 16)
NARROW(cvtepi64_epi8, __m128i, uint8_t, u64, 8)

/* ---- numbers ---- */

FLOATS(add_ps, x.f32[i] + y.f32[i])
FLOATS(sub_ps, x.f32[i] - y.f32[i])
FLOATS(mul_ps, x.f32[i] * y.f32[i])
FLOATS(fmadd_ps, fmaf(x.f32[i], y.f32[i], z.f32[i]))
EMULATED __mmask16 e_cmplt_ps(__m512 a, __m512 b)
{
    lanes x, y;
    __mmask16 m = 0;
    x.f = a;
    y.f = b;
    EACH(16) m |= (__mmask16)((x.f32[i] < y.f32[i]) << i);
    return m;
}
EMULATED __m512 e_cvtepi32_ps(__m512i a) { lanes x = { a }, r; EACH(16) r.f32[i] = (float)x.i32[i]; return r.f; }
/* of doubles, in which all of these are exact or as good as that; the rounding mode is that of the name */
EMULATED int32_t e_whole(double x) { return x >= -2147483648.0 && x < 2147483648.0 ? (int32_t)x : INT32_MIN; }
EMULATED __m512i e_cvttps_epi32(__m512 a) { lanes x, r; x.f = a; EACH(16) r.i32[i] = e_whole(trunc(x.f32[i])); return r.v; }
EMULATED __m512i e_up_epi32(__m512 a, int mode)
{
    lanes x, r;
    if (mode != (_MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)) abort();
    x.f = a;
    EACH(16) r.i32[i] = e_whole(ceil(x.f32[i]));
    return r.v;
}
EMULATED __m512 e_down_ps(__m512i a, int mode)
{
    lanes x = { a }, r;
    if (mode != (_MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC)) abort();
    EACH(16) {
        const unsigned more = x.u32[i] >> 24 ? 8 - (unsigned)__builtin_clz(x.u32[i]) : 0; /* 24 bits stay */
        r.f32[i] = (float)(x.u32[i] >> more << more);
    }
    return r.f;
}
EMULATED __m512 e_divide_up_ps(__m512 a, __m512 b, int mode)
{
    lanes x, y, r;
    if (mode != (_MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC)) abort();
    x.f = a;
    y.f = b;
    EACH(16) {
        const float q = x.f32[i] / y.f32[i];
        r.f32[i] = fma(q, (double)y.f32[i], -(double)x.f32[i]) * (y.f32[i] < 0 ? -1 : 1) < 0 ? nextafterf(q, INFINITY) : q;
    }
    return r.f;
}

/* ---- their names ---- */

#undef _kandn_mask64
#define _kandn_mask64(k, m) (~(k) & (m))
#undef _mm512_abs_epi32
#define _mm512_abs_epi32 e_abs_epi32
#undef _mm512_add_epi16
#define _mm512_add_epi16 e_add_epi16
#undef _mm512_add_epi32
#define _mm512_add_epi32 e_add_epi32
#undef _mm512_add_epi64
#define _mm512_add_epi64 e_add_epi64
#undef _mm512_add_epi8
#define _mm512_add_epi8 e_add_epi8
#undef _mm512_add_ps
#define _mm512_add_ps(a, b) e_add_ps(a, b, b)
#undef _mm512_adds_epu8
#define _mm512_adds_epu8 e_adds_epu8
#undef _mm512_and_si512
#define _mm512_and_si512 e_and_si512
#undef _mm512_andnot_si512
#define _mm512_andnot_si512 e_andnot_si512
#undef _mm512_broadcast_i32x4
#define _mm512_broadcast_i32x4 e_broadcast2
#undef _mm512_castps_si512
#define _mm512_castps_si512 e_castps
#undef _mm512_castsi256_si512
#define _mm512_castsi256_si512 e_from256
#undef _mm512_castsi512_ps
#define _mm512_castsi512_ps e_tops
#undef _mm512_castsi512_si128
#define _mm512_castsi512_si128(a) e_part2(a, 0)
#undef _mm512_castsi512_si256
#define _mm512_castsi512_si256(a) e_part4(a, 0)
#undef _mm512_cmpeq_epi32_mask
#define _mm512_cmpeq_epi32_mask e_cmpeq_epi32_mask
#undef _mm512_cmpeq_epi8_mask
#define _mm512_cmpeq_epi8_mask e_cmpeq_epi8_mask
#undef _mm512_cmpge_epu32_mask
#define _mm512_cmpge_epu32_mask e_cmpge_epu32_mask
#undef _mm512_cmpge_epu8_mask
#define _mm512_cmpge_epu8_mask e_cmpge_epu8_mask
#undef _mm512_cmpgt_epi32_mask
#define _mm512_cmpgt_epi32_mask e_cmpgt_epi32_mask
#undef _mm512_cmpgt_epu32_mask
#define _mm512_cmpgt_epu32_mask e_cmpgt_epu32_mask
#undef _mm512_cmpgt_epu8_mask
#define _mm512_cmpgt_epu8_mask e_cmpgt_epu8_mask
#undef _mm512_cmplt_ps_mask
#define _mm512_cmplt_ps_mask e_cmplt_ps
#undef _mm512_cmpneq_epi16_mask
#define _mm512_cmpneq_epi16_mask e_cmpneq_epi16_mask
#undef _mm512_cmpneq_epi32_mask
#define _mm512_cmpneq_epi32_mask e_cmpneq_epi32_mask
#undef _mm512_cmpneq_epi64_mask
#define _mm512_cmpneq_epi64_mask e_cmpneq_epi64_mask
#undef _mm512_cmpneq_epi8_mask
#define _mm512_cmpneq_epi8_mask e_cmpneq_epi8_mask
#undef _mm512_cvt_roundepu32_ps
#define _mm512_cvt_roundepu32_ps e_down_ps
#undef _mm512_cvt_roundps_epi32
#define _mm512_cvt_roundps_epi32 e_up_epi32
#undef _mm512_cvtepi32_epi16
#define _mm512_cvtepi32_epi16 e_cvtepi32_epi16
#undef _mm512_cvtepi32_ps
#define _mm512_cvtepi32_ps e_cvtepi32_ps
#undef _mm512_cvtepi64_epi8
#define _mm512_cvtepi64_epi8 e_cvtepi64_epi8
#undef _mm512_cvtepu16_epi32
#define _mm512_cvtepu16_epi32 e_cvtepu16_epi32
#undef _mm512_cvtepu8_epi16
#define _mm512_cvtepu8_epi16 e_cvtepu8_epi16
#undef _mm512_cvtepu8_epi32
#define _mm512_cvtepu8_epi32 e_cvtepu8_epi32
#undef _mm512_cvtepu8_epi64
#define _mm512_cvtepu8_epi64 e_cvtepu8_epi64
#undef _mm512_cvttps_epi32
#define _mm512_cvttps_epi32 e_cvttps_epi32
#undef _mm512_div_round_ps
#define _mm512_div_round_ps e_divide_up_ps
#undef _mm512_extracti64x4_epi64
#define _mm512_extracti64x4_epi64 e_part4
#undef _mm512_fmadd_ps
#define _mm512_fmadd_ps e_fmadd_ps
#undef _mm512_gf2p8affine_epi64_epi8
#define _mm512_gf2p8affine_epi64_epi8 e_affine
#undef _mm512_inserti64x4
#define _mm512_inserti64x4 e_insert4
#undef _mm512_loadu_si512
#define _mm512_loadu_si512 e_loadu
#undef _mm512_madd_epi16
#define _mm512_madd_epi16 e_madd_epi16
#undef _mm512_mask_add_epi8
#define _mm512_mask_add_epi8 e_mask_add_epi8
#undef _mm512_mask_blend_epi8
#define _mm512_mask_blend_epi8(k, a, b) e_mask_mov_epi8(a, k, b)
#undef _mm512_mask_compress_epi16
#define _mm512_mask_compress_epi16 e_mask_compress_epi16
#undef _mm512_mask_compress_epi32
#define _mm512_mask_compress_epi32 e_mask_compress_epi32
#undef _mm512_mask_compress_epi64
#define _mm512_mask_compress_epi64 e_mask_compress_epi64
#undef _mm512_mask_compress_epi8
#define _mm512_mask_compress_epi8 e_mask_compress_epi8
#undef _mm512_mask_expand_epi16
#define _mm512_mask_expand_epi16 e_mask_expand_epi16
#undef _mm512_mask_expand_epi32
#define _mm512_mask_expand_epi32 e_mask_expand_epi32
#undef _mm512_mask_expand_epi64
#define _mm512_mask_expand_epi64 e_mask_expand_epi64
#undef _mm512_mask_expand_epi8
#define _mm512_mask_expand_epi8 e_mask_expand_epi8
#undef _mm512_mask_mov_epi8
#define _mm512_mask_mov_epi8 e_mask_mov_epi8
#undef _mm512_mask_storeu_epi8
#define _mm512_mask_storeu_epi8 e_mask_storeu_epi8
#undef _mm512_mask_sub_epi32
#define _mm512_mask_sub_epi32 e_mask_sub_epi32
#undef _mm512_maskz_mov_epi64
#define _mm512_maskz_mov_epi64 e_maskz_mov_epi64
#undef _mm512_maskz_loadu_epi8
#define _mm512_maskz_loadu_epi8 e_maskz_loadu_epi8
#undef _mm512_maskz_mov_epi32
#define _mm512_maskz_mov_epi32 e_maskz_mov_epi32
#undef _mm512_maskz_mov_epi8
#define _mm512_maskz_mov_epi8 e_maskz_mov_epi8
#undef _mm512_maskz_permutexvar_epi8
#define _mm512_maskz_permutexvar_epi8 e_maskz_permutexvar_epi8
#undef _mm512_maskz_set1_epi64
#define _mm512_maskz_set1_epi64 e_maskz_set1_epi64
#undef _mm512_max_epu32
#define _mm512_max_epu32 e_max_epu32
#undef _mm512_min_epu16
#define _mm512_min_epu16 e_min_epu16
#undef _mm512_min_epu32
#define _mm512_min_epu32 e_min_epu32
#undef _mm512_movepi8_mask
#define _mm512_movepi8_mask e_movepi8_mask
#undef _mm512_movm_epi8
#define _mm512_movm_epi8 e_movm_epi8
#undef _mm512_mul_epu32
#define _mm512_mul_epu32 e_mul_epu32
#undef _mm512_mul_ps
#define _mm512_mul_ps(a, b) e_mul_ps(a, b, b)
#undef _mm512_mulhi_epu16
#define _mm512_mulhi_epu16 e_mulhi_epu16
#undef _mm512_mullo_epi16
#define _mm512_mullo_epi16 e_mullo_epi16
#undef _mm512_or_si512
#define _mm512_or_si512 e_or_si512
#undef _mm512_packus_epi16
#define _mm512_packus_epi16 e_packus_epi16
#undef _mm512_permutex2var_epi8
#define _mm512_permutex2var_epi8 e_permutex2var_epi8
#undef _mm512_permutexvar_epi32
#define _mm512_permutexvar_epi32 e_permutexvar_epi32
#undef _mm512_permutexvar_epi8
#define _mm512_permutexvar_epi8 e_permutexvar_epi8
#undef _mm512_popcnt_epi64
#define _mm512_popcnt_epi64 e_popcnt_epi64
#undef _mm512_popcnt_epi8
#define _mm512_popcnt_epi8 e_popcnt_epi8
#undef _mm512_set1_epi16
#define _mm512_set1_epi16 e_set1_epi16
#undef _mm512_set1_epi32
#define _mm512_set1_epi32 e_set1_epi32
#undef _mm512_set1_epi64
#define _mm512_set1_epi64 e_set1_epi64
#undef _mm512_set1_epi8
#define _mm512_set1_epi8 e_set1_epi8
#undef _mm512_set_epi64
#define _mm512_set_epi64 e_set_epi64
#undef _mm512_setr_epi32
#define _mm512_setr_epi32 e_setr_epi32
#undef _mm512_shldv_epi32
#define _mm512_shldv_epi32 e_shldv_epi32
#undef _mm512_alignr_epi8
#define _mm512_alignr_epi8 e_alignr_epi8
#undef _mm512_shuffle_epi8
#define _mm512_shuffle_epi8 e_shuffle_epi8
#undef _mm512_shuffle_i32x4
#define _mm512_shuffle_i32x4 e_shuffle_i32x4
#undef _mm512_sll_epi16
#define _mm512_sll_epi16(a, n) e_slli_epi16(a, e_number(n))
#undef _mm512_sll_epi32
#define _mm512_sll_epi32(a, n) e_slli_epi32(a, e_number(n))
#undef _mm512_slli_epi16
#define _mm512_slli_epi16 e_slli_epi16
#undef _mm512_slli_epi32
#define _mm512_slli_epi32 e_slli_epi32
#undef _mm512_slli_epi64
#define _mm512_slli_epi64 e_slli_epi64
#undef _mm512_sllv_epi64
#define _mm512_sllv_epi64 e_sllv_epi64
#undef _mm512_srai_epi16
#define _mm512_srai_epi16 e_srai_epi16
#undef _mm512_srai_epi32
#define _mm512_srai_epi32 e_srai_epi32
#undef _mm512_srai_epi64
#define _mm512_srai_epi64 e_srai_epi64
#undef _mm512_srl_epi16
#define _mm512_srl_epi16(a, n) e_srli_epi16(a, e_number(n))
#undef _mm512_srl_epi32
#define _mm512_srl_epi32(a, n) e_srli_epi32(a, e_number(n))
#undef _mm512_srli_epi16
#define _mm512_srli_epi16 e_srli_epi16
#undef _mm512_srli_epi32
#define _mm512_srli_epi32 e_srli_epi32
#undef _mm512_srli_epi64
#define _mm512_srli_epi64 e_srli_epi64
#undef _mm512_storeu_si512
#define _mm512_storeu_si512 e_storeu
#undef _mm512_store_si512
#define _mm512_store_si512 e_stream
#undef _mm512_stream_si512
#define _mm512_stream_si512 e_stream
#undef _mm512_sub_epi16
#define _mm512_sub_epi16 e_sub_epi16
#undef _mm512_sub_epi32
#define _mm512_sub_epi32 e_sub_epi32
#undef _mm512_sub_epi64
#define _mm512_sub_epi64 e_sub_epi64
#undef _mm512_sub_epi8
#define _mm512_sub_epi8 e_sub_epi8
#undef _mm512_sub_ps
#define _mm512_sub_ps(a, b) e_sub_ps(a, b, b)
#undef _mm512_ternarylogic_epi64
#define _mm512_ternarylogic_epi64 e_ternary
#undef _mm512_test_epi16_mask
#define _mm512_test_epi16_mask e_test_epi16_mask
#undef _mm512_test_epi32_mask
#define _mm512_test_epi32_mask e_test_epi32_mask
#undef _mm512_test_epi64_mask
#define _mm512_test_epi64_mask e_test_epi64_mask
#undef _mm512_test_epi8_mask
#define _mm512_test_epi8_mask e_test_epi8_mask
#undef _mm512_unpackhi_epi16
#define _mm512_unpackhi_epi16 e_unpackhi_epi16
#undef _mm512_unpackhi_epi32
#define _mm512_unpackhi_epi32 e_unpackhi_epi32
#undef _mm512_unpackhi_epi64
#define _mm512_unpackhi_epi64 e_unpackhi_epi64
#undef _mm512_unpackhi_epi8
#define _mm512_unpackhi_epi8 e_unpackhi_epi8
#undef _mm512_unpacklo_epi16
#define _mm512_unpacklo_epi16 e_unpacklo_epi16
#undef _mm512_unpacklo_epi32
#define _mm512_unpacklo_epi32 e_unpacklo_epi32
#undef _mm512_unpacklo_epi64
#define _mm512_unpacklo_epi64 e_unpacklo_epi64
#undef _mm512_unpacklo_epi8
#define _mm512_unpacklo_epi8 e_unpacklo_epi8
#undef _mm512_xor_si512
#define _mm512_xor_si512 e_xor_si512

#endif
