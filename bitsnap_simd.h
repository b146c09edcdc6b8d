/* bitsnap_simd.h - tables of fast kernels for bitsnap.h. MIT licence, see the end of bitsnap.h.
 *
 * Include this file instead of bitsnap.h where BITSNAP_IMPLEMENTATION is defined (elsewhere either will do).
 * No build flag is needed: every function here names the instructions that it uses, and the table is chosen
 * by what the machine says of itself when it is first asked. Every kernel gives the bytes of its scalar twin
 * in bitsnap.h, which says what it does; comments here say why it is the same.
 *
 *     BITSNAP_NO_AVX512   leaves the AVX-512 table out
 *     BITSNAP_NO_SIMD     makes this file equal to bitsnap.h
 *     BITSNAP_SIMD_FILE   the name of this file, if you have renamed it: it includes itself, by
 *                         "bitsnap_simd.h" without this
 *     BITSNAP_MINGW_AVX   gcc for Windows has the AVX2 and AVX-512 tables only with this. It assumes that the
 *                         stack is aligned to the size of a register. On Windows it is not (gcc bug 54412),
 *                         and programs crash. Define it if your gcc has been mended, as those of MSYS2 and
 *                         Debian have; clang needs no mending
 *
 * A section for each machine; machines and compilers without one have the scalar table alone.
 *
 *     X86-64   avx2     registers of 32 bytes
 *              avx512   registers of 64 bytes, masks: F, BW, DQ, VL, VBMI, VBMI2, BITALG, VPOPCNTDQ, GFNI
 *     AArch64  neon     registers of 16 bytes; little-endian, gcc and clang */

#ifdef BITSNAP_IMPLEMENTATION
#if defined(BITSNAP_IMPLEMENTED) && !defined(BITSNAP_SIMD_ASKED) && !defined(BITSNAP_NO_SIMD)
#error "bitsnap.h came first and has implemented the scalar code alone: include bitsnap_simd.h before it, or define BITSNAP_NO_SIMD"
#endif
#define BITSNAP_SIMD_ASKED
#endif

/* is there a section for this machine, and a compiler that can read it? */
#if defined(BITSNAP_IMPLEMENTATION) && !defined(BITSNAP_IMPLEMENTED) && !defined(BITSNAP_NO_SIMD)
#if (defined(__x86_64__) && !defined(__ILP32__)) || (defined(_M_X64) && !defined(_M_ARM64EC))
#if defined(__apple_build_version__)
#if __clang_major__ >= 12
#define BITSNAP_SIMD_X86
#endif
#elif defined(__clang__)
#if __clang_major__ >= 10
#define BITSNAP_SIMD_X86
#endif
#elif defined(__GNUC__)
#if __GNUC__ >= 9
#define BITSNAP_SIMD_X86
#endif
#elif defined(_MSC_VER)
#if _MSC_VER >= 1920
#define BITSNAP_SIMD_X86
#endif
#endif
#elif defined(__AARCH64EL__) && defined(__ARM_NEON) && !defined(__ILP32__)
#if defined(__clang__)
#if __clang_major__ >= 10
#define BITSNAP_SIMD_NEON
#endif
#elif defined(__GNUC__)
#if __GNUC__ >= 9
#define BITSNAP_SIMD_NEON
#endif
#endif
#endif
#endif

#if defined(BITSNAP_SIMD_X86) || defined(BITSNAP_SIMD_NEON)
#define BITSNAP_SIMD
#endif

#ifdef BITSNAP_SIMD_X86
#include <immintrin.h>
#if defined(_MSC_VER) && !defined(__clang__)
#include <intrin.h>
#endif
#if defined(__clang__) && (defined(_MSC_VER) || defined(__SCE__)) /* there immintrin.h leaves out what no flag turns on */
#include <tmmintrin.h>
#include <smmintrin.h>
#include <popcntintrin.h>
#include <bmiintrin.h>
#include <bmi2intrin.h>
#include <avxintrin.h>
#include <avx2intrin.h>
#ifndef BITSNAP_NO_AVX512
#include <avx512fintrin.h>
#include <avx512vlintrin.h>
#include <avx512bwintrin.h>
#include <avx512vlbwintrin.h>
#include <avx512dqintrin.h>
#include <avx512vldqintrin.h>
#include <avx512vbmiintrin.h>
#include <avx512vbmi2intrin.h>
#include <avx512bitalgintrin.h>
#include <avx512vpopcntdqintrin.h>
#include <gfniintrin.h>
#endif
#endif
#elif defined(BITSNAP_SIMD_NEON)
#include <arm_neon.h>
#endif

#include "bitsnap.h"

#if defined(BITSNAP_SIMD) && BITSNAP_VERSION_MAJOR * 10000 + BITSNAP_VERSION_MINOR * 100 + BITSNAP_VERSION_PATCH != 10000
#error "this bitsnap_simd.h is of version 1.0.0, bitsnap.h, or the file that included this one by name, of another: see BITSNAP_SIMD_FILE"
#endif

#if defined(BITSNAP_SIMD) && !defined(BITSNAP_SIMD_IMPLEMENTED)
#define BITSNAP_SIMD_IMPLEMENTED

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= SHARED
 * What does not name a machine. */

/* hides from the compiler where x comes from */
#if defined(__GNUC__) || defined(__clang__)
#define BSN_OPAQUE(constraint, x) __asm__("" : constraint(x))
#define BSN_APART __asm__ volatile("" : : : "memory") /* keeps the compiler from merging the code before and after it with equal code elsewhere */
#else
#define BSN_OPAQUE(constraint, x) ((void)0)
#define BSN_APART ((void)0)
#endif

/* the mask of list j of a node */
BSN_INLINE uint64_t bsn_list_mask(unsigned k, unsigned lists, unsigned j, const uint64_t w[4])
{
    return bsn_slot_mask(k, (1u << k) - lists + j, w[0], w[1], w[2], w[3]);
}

/* BSN_CALL(k, lists) for the kind of the node, with constants */
#define BSN_NODE_CASE(k, lists) case 8 * k + lists: BSN_CALL(k, lists); break;
#define BSN_NODE_SWITCH(node)                                                                         \
    switch (8 * (node)->bits + (node)->lists) {                                                       \
        BSN_NODES(BSN_NODE_CASE)                                                                      \
    default: break;                                                                                   \
    }

/* the same for the kinds that bsn_by_leaves finds */
#define BSN_LEAF_SWITCH(node)                                                                         \
    switch (8 * (node)->bits + (node)->lists) {                                                       \
        BSN_LEAF_NODES(BSN_NODE_CASE)                                                                 \
    default: break;                                                                                   \
    }

/* What a field does to the bytes of elements, so that it can be done to planes, where it costs less. */
enum {
    BSN_FIELD_PLAIN,  /* nothing */
    BSN_FIELD_INSIDE, /* symbol and sign share the top byte */
    BSN_FIELD_ACROSS, /* the symbol is the top byte, the sign is bit 7 of the next */
    BSN_FIELD_WIDE    /* F64 with a base: done to the elements after all */
};

BSN_INLINE unsigned bsn_field_kind(const bsn_field *f)
{
    return f->wide ? BSN_FIELD_WIDE
         : f->symbol_bits == 8 ? BSN_FIELD_ACROSS
         : f->symbol_bits || f->width == 1 ? BSN_FIELD_INSIDE
                                           : BSN_FIELD_PLAIN;
}

/* BSN_CALL(width, kind) for the fields that there are, with constants */
#define BSN_FIELD_CASE(width, kind) case 16 * width + kind: BSN_CALL(width, kind); break;
#define BSN_FIELD_SWITCH(f)                                                                           \
    switch (16 * (f)->width + bsn_field_kind(f)) {                                                    \
        BSN_FIELD_CASE(1, BSN_FIELD_INSIDE)                                                           \
        BSN_FIELD_CASE(2, BSN_FIELD_PLAIN)                                                            \
        BSN_FIELD_CASE(2, BSN_FIELD_INSIDE)                                                           \
        BSN_FIELD_CASE(2, BSN_FIELD_ACROSS)                                                           \
        BSN_FIELD_CASE(4, BSN_FIELD_PLAIN)                                                            \
        BSN_FIELD_CASE(4, BSN_FIELD_INSIDE)                                                           \
        BSN_FIELD_CASE(4, BSN_FIELD_ACROSS)                                                           \
        BSN_FIELD_CASE(8, BSN_FIELD_PLAIN)                                                            \
        BSN_FIELD_CASE(8, BSN_FIELD_ACROSS)                                                           \
        BSN_FIELD_CASE(8, BSN_FIELD_WIDE)                                                             \
    default: break;                                                                                   \
    }

/* Returns the first symbol of the window of `window` symbols that holds most of 256 samples; *inside: how
 * many. A window continues at 0 after 255, since small numbers of both signs are there. */
BSN_FUNCTION unsigned bsn_best_window(const uint32_t sample[256], unsigned window, unsigned *inside)
{
    unsigned i, sum = 0, base = 0;
    for (i = 0; i < window; i++) sum += sample[i];
    *inside = sum;
    for (i = window; i < 255 + window; i++) {
        sum += sample[i & 255] - sample[i - window];
        if (sum > *inside) {
            *inside = sum;
            base = i + 1 - window;
        }
    }
    return base;
}

/* Samples a list of n >= 256 symbols, and returns its best window. */
BSN_FUNCTION unsigned bsn_sampled_window(const uint8_t *list, size_t n, unsigned window, uint32_t sample[256], unsigned *inside)
{
    unsigned i;
    memset(sample, 0, 256 * sizeof *sample);
    for (i = 0; i < 256; i++) sample[list[i * (n / 256)]]++;
    return bsn_best_window(sample, window, inside);
}

/* Counts of 256 symbols, and of those that a window has past 255. */
#define BSN_WINDOWED (256 + 56)
BSN_FUNCTION void bsn_windowed_end(uint32_t h[256], const uint32_t t[BSN_WINDOWED])
{
    unsigned i;
    for (i = 0; i < 256; i++) h[i] += t[i];
    for (; i < BSN_WINDOWED; i++) h[i - 256] += t[i];
}

/* The number of bits set in m below bit i, which is at most 7: a constant, as bsn_ones_in is not. */
#define BSN_RANK(m, i) \
    (unsigned)((((m) & ((1u << i) - 1u)) * UINT64_C(0x2040810204081) & BSN_ONES) * BSN_ONES >> 56)

/* Places of the bits that are set, in order: a shuffle that moves these to the front. */
#define BSN_PICK(m, i) (uint64_t)(BSN_BIT(m, i) * i##u) << (8 * BSN_RANK(m, i) & 63u)
#define BSN_PICKS(m)                                                                                  \
    BSN_PICK(m, 1) | BSN_PICK(m, 2) | BSN_PICK(m, 3) | BSN_PICK(m, 4) | BSN_PICK(m, 5) | BSN_PICK(m, 6) | \
        BSN_PICK(m, 7),
static const uint64_t bsn_picks[256 + 1] = { BSN_256(BSN_PICKS) 0 }; /* 16 bytes are read, 8 are used */
#undef BSN_PICK
#undef BSN_PICKS

/* The last n bytes of a list, filled up. */
BSN_FUNCTION const uint8_t *bsn_filled_up(uint8_t *last, size_t size, const uint8_t *list, size_t n, unsigned value)
{
    memset(last, (int)value, size);
    if (n) memcpy(last, list, n);
    return last;
}

/* ---- bins (see QUANTIZE): the logarithm of 1 + z, 0 <= z < 1, is z times this polynomial. The error is at
 * most 2^-19 for every z, in every rounding mode, with and without fused operations (test_kernels.c tries
 * them all). With n bins, the borders are where n times the logarithm is a whole number. That product is off
 * by at most n * 2^-19, and n * 2^-19 more by later roundings. A number that is nearer to a border is
 * compared with the thresholds. ---- */

#define BSN_LOG_0 1.442693f
#define BSN_LOG_1 -0.72114408f
#define BSN_LOG_2 0.477496356f
#define BSN_LOG_3 -0.338377208f
#define BSN_LOG_4 0.213943213f
#define BSN_LOG_5 -0.0946268067f
#define BSN_LOG_6 0.0200166497f
#define BSN_LOG_DOUBT 3.81469727e-6f /* 2^-18 */

/* Squares of errors are added up in 64 bits. The unit is that of an octave a fixed number of octaves below
 * the largest exponent of a portion: a square, shifted, is below 2^55, and a lane gets at most 2^9 of them.
 * Few are of a lower octave. Returns twice the number of octaves. */
BSN_INLINE unsigned bsn_log_window(const bsn_log *x)
{
    return (54 - bsn_log2(((uint64_t)x->bound * x->bound >> 7) + 1)) & ~1u;
}

/* Adds sums of squares in units of the octave of an exponent: what is above the window to the octave there,
 * so that none of 2^20 elements overflows. */
BSN_INLINE void bsn_log_square_sum(bsn_errors *e, uint64_t sum, unsigned exponent, unsigned window)
{
    e->squares[22 + exponent] += sum & ((UINT64_C(1) << window) - 1);
    e->squares[22 + exponent + window / 2] += sum >> window;
}

/* Makes the word of an element that a kernel has left out and, if `measured`, adds its error. Returns 1 if it
 * is stored exactly. */
BSN_FUNCTION unsigned bsn_log_word(const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, size_t i,
                                   int measured)
{
    const bsn_row row = bsn_rest_of(p, i);
    const uint32_t v = (uint32_t)bsn_element_load(elements + 4 * i, 4);
    uint32_t code = bsn_log_code(p->log, v, 4);
    const size_t exact = bsn_log_words(&row, words + i, &code, 1);
    if (measured && (v & 0x7FFFFFFF) && (v >> 23 & 255) != 255) {
        e->counted++;
        if (code >> 1 >= BSN_CODE_FIRST) bsn_log_error(e, p->log, v, code);
    }
    return (unsigned)exact;
}

/* Completes the words of groups of `step` elements, one bit each, that a kernel has left out: those with
 * other elements than zeros. Comes last, since a call takes all registers. Returns the number of elements
 * that are stored exactly. */
BSN_FUNCTION size_t bsn_log_words_left(const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, uint64_t groups,
                                       unsigned step)
{
    size_t i, exact = 0;
    for (; groups; groups &= groups - 1) {
        const size_t first = step * bsn_lowest_bit(groups);
        for (i = first; i < first + step; i++) {
            const uint32_t v = (uint32_t)bsn_element_load(elements + 4 * i, 4);
            if (v << 1 && !(words[i] >> p->signs)) exact += bsn_log_word(p, e, words, elements, i, e && (v >> 23 & 255) % 255 == 0);
        }
    }
    return exact;
}

/* From 16 on, the token of a number is its float's exponent and next bit, less this. */
#define BSN_TOKENS_BELOW (2 * 127 - 8)
BSN_ASSERT(tokens_of_a_symbol, BSN_TOKENS == 128 + 8);

/* ---- targets ----
 *
 * Kernels that machines do the same way are written once, in the second half of this file (KERNELS), which
 * includes itself for each target. They use the target's vocabulary: the functions that BSN_T names,
 * bsn_avx2_add for BSN_T(add). `width` is a constant everywhere, 1, 2, 4 or 8, the bytes of an element; 8
 * only where all widths are named, and with BSN_T_MASKS. A target comes with
 *
 *     BSN_T_NAME, BSN_T_TARGET, BSN_T_BYTES   bsn_avx2; what functions need in front; bytes of a register:
 *                                             16, 32 or 64
 *     BSN_T_MASKS                             1: masks have registers of their own
 *     BSN_T_ACROSS                            1: join_across and put_planes are there
 *     BSN_T_UNROLL                            BSN_UNROLL, or nothing where code would become too large
 *     BSN_T_RANKS                             1: leaves are chosen by shuffle, two lists come to their places
 *                                             by mix at once, and expand_list finds 0 there; 0: leaves are
 *                                             chosen by blend, and it replaces what is there
 *     BSN_T_CHAINS                            1: deposit is there, for BSN_CHAINS
 *     BSN_T_TWIGS                             1: for BSN_LEAVES_TWIGS, on x86-64 alone, as bsn_x86_put_twig
 *                                             is there; 0: for BSN_LEAVES_LISTS
 *     BSN_T_MM, BSN_T_SI, BSN_T_SET64         on x86-64: what the names of intrinsics are made of; with these
 *                                             most words are there; and `sixteen` is to be: all16 of a
 *                                             register
 *     v, m, n                                 a register; what comparisons of bytes give; a number of places
 *                                             to shift by
 *     s, k                                    a set of 64 places, with its `bits`; what loops keep in
 *                                             registers, by begin(): `none`, 0, ..
 *     load store all and or xor andnot add sub signs zero   of all widths; all: each lane is x; signs: all
 *                                                           ones where a lane is
 *                                             below 0; zero: is every bit 0?
 *     BSN_T_SHL BSN_T_SHR number shl shr      lanes of 2, 4 and 8 bytes, by constants; of 2 and 4, by numbers
 *     min                                     of lanes of 2 and 4 bytes
 *     select put                              bits of x or y; the same where those of y are 0
 *     where                                   lanes of 8 of y, 0 where those of x are
 *     exchange                                lanes of 2 * unit bytes: the odd units of a for the even ones
 *                                             of b
 *     all_of andnot_m reach ones              masks: all; y without x; x >= y; how many
 *     differ add_ones                         of all widths: a mask of elements that differ; to lanes of 8,
 *                                             the number of bits set there
 *     add_products multiply swap              of lanes of 8: the product of their halves, added; times 32
 *                                             bits; two and two exchanged
 *     bits set_of popcount                    64 / BSN_T_BYTES masks as bits, and as a set; how many bits are
 *                                             set
 *     bit                                     a mask, for `bits` alone, of bytes whose bit b is set
 *     lowest widen                            BSN_T_BYTES elements' lowest bytes; a register of elements from
 *                                             bytes
 *     expand_list expand_words                the next of a list, at the places of a set; 64 bytes of the
 *                                             list may be read. The places are 0 before; with elements, and
 *                                             without BSN_T_RANKS, anything
 *     compress_list compress_words            those of a set to a list, where 64 bytes may be written;
 *                                             `half`: seldom more than 32
 *     look_up                                 of 64 bytes, each xor the entry of a table for its index: of 16
 *                                             with BSN_T_BYTES 32, else of 64, or 0 where it has none
 *     lanes unpack                            bytes in such an order that unpacking four parts of elements,
 *                                             in lanes of 16, puts elements in theirs; and that
 *     tokens inside                           not with BSN_T_MASKS: of words of 2 bytes, in lanes of 4; bytes
 *                                             as places for `shuffle`, which makes 0 of places from 16 on
 *
 * and, for bins (see QUANTIZE),
 *
 *     w, t                                    what comparisons of lanes of 4 bytes give; three tables of 128
 *                                             bytes, by tables()
 *     equal_m and_m or_m keep next lane_bits  masks of bytes; keep: 0 elsewhere; next: x and 1 more; as bits
 *                                             of elements in order
 *     equal_w above_w reach_w less_f          masks of lanes of 4: equal, x > y with signs, x >= y without,
 *                                             of binary32
 *     and_w or_w keep_w bits_w to_w           the like; to_w: a mask of bytes in the order of lanes as four
 *                                             of elements
 *     add_f sub_f mul_f div_f fma_f           binary32; fma_f: x * y + z, which may be rounded once or twice
 *     to_f of_f                               signed integers to it, and back, cut
 *     zip_low zip_high pack                   bytes to lanes of 2, these to 4; back to bytes, larger ones as
 *                                             255
 *     mul mul_high mul_w product              low halves and high ones, of lanes of 2; low ones of 4; of
 *                                             lanes of 4 below 2^15
 *     between max                             |x - y| and the larger, of lanes of 4
 *     bytes of_tables entries                 the reverse of unpack; entries of t for bytes; of a table of
 *                                             words, t if `few`
 *     append                                  elements shifted up, the highest bits of others below
 *     end                                     what other code may want of the machine before it is called
 *     square_sum                              of errors, rounded up as in bsn_errors, shifted up, added to
 *                                             lanes of 8
 *     quotients                               of errors, rounded up; with BSN_T_MASKS alone, as are all_of
 *                                             andnot_m and_m or_m keep next and_w or_w keep_w to_w append;
 *                                             mul_w and div_f are for others
 *     set slot unset                          a set of bits, and of a node's slot; x at places outside a set,
 *                                             else 0, or, without BSN_T_RANKS, anything
 *     blend digit shuffle all16               x or, where register i of a set says so, y; or 1 in bit b,
 *                                             which is 0; bytes below 16 as places in each 16 of x; the same
 *                                             16 bytes in all lanes of 16
 *
 * Other machines (SSE4.1, SVE2, RVV, WebAssembly) would have a section like those below: such a vocabulary,
 * then the include, then the kernels that are not shared (start, finish and places; #define one as
 * bsn_scalar_..., as NEON does, to do without), then a table. Machines are little-endian. bsn_simd_kernels
 * has each table, and asks the machine (bsn_x86_has) where not every one has the instructions.
 * tests/unit/target.h is a section with no kernel of its own. Registers are members of structs and arrays, so
 * SVE2 and RVV need types of fixed length. A new machine is also named at the top of this file, where
 * BITSNAP_SIMD is defined, in test_kernels.c, check_stack.py, bench/options.c, bench/python.py and
 * docs/examples/demo.sh, and in the tables of platforms in EMBEDDING.md and README.md; its macros are
 * undefined at the end of its section. check_neon.sh tests a machine by emulation. BSN_MORE_TARGETS names a
 * file with such a section, for tests on x86-64 and AArch64 alone. */

#ifndef BITSNAP_SIMD_FILE
#define BITSNAP_SIMD_FILE "bitsnap_simd.h"
#endif
#define BSN_PASTE_(a, b) a##b
#define BSN_PASTE(a, b) BSN_PASTE_(a, b)
#define BSN_T(name) BSN_PASTE(BSN_T_NAME, _##name) /* so that `and` stays a name where iso646.h makes it an operator */
#define BSN_T_INLINE BSN_INLINE BSN_T_TARGET
#define BSN_T_KERNEL static BSN_T_TARGET
#define BSN_T_FUNCTION BSN_FUNCTION BSN_T_TARGET

/* Which byte of a list goes to the place of each bit: its rank, or 0x70, which is outside of 16 even as the
 * place of bytes of wider elements, see bsn_neon_bytes_of. */
#define BSN_PLACE(m, i) (uint64_t)(BSN_BIT(m, i) ? BSN_RANK(m, i) : 0x70u) << (8 * i)
#define BSN_PLACES(m)                                                                                 \
    BSN_PLACE(m, 0) | BSN_PLACE(m, 1) | BSN_PLACE(m, 2) | BSN_PLACE(m, 3) | BSN_PLACE(m, 4) | BSN_PLACE(m, 5) | \
        BSN_PLACE(m, 6) | BSN_PLACE(m, 7),
static const uint64_t bsn_puts[256 + 1] = { BSN_256(BSN_PLACES) 0 }; /* as above */
#undef BSN_PLACE
#undef BSN_PLACES
#undef BSN_RANK

#ifdef BITSNAP_SIMD_X86

/* ================================================================================= X86-64 */

#if defined(__GNUC__) || defined(__clang__)
#define BSN_TARGET(instructions) __attribute__((target(instructions)))
#else
#define BSN_TARGET(instructions)
#endif
#define BSN_AVX2 BSN_TARGET("avx2,bmi,bmi2,popcnt")
#define BSN_AVX512                                                                                    \
    BSN_TARGET("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx512bitalg,avx512vpopcntdq," \
               "gfni,avx2,bmi,bmi2,popcnt")

/* ---- what the machine has ---- */

/* BSN_IS_INTEL: where stores past the caches take less than half of the time of others. On AMD's the others
 * are as fast, if their lines are asked for. */
enum { BSN_HAS_BMI2 = 1, BSN_HAS_AVX2 = 2, BSN_HAS_AVX512 = 4, BSN_IS_INTEL = 8, BSN_HAS_ASKED = 16 };

static void bsn_x86_cpuid(unsigned r[4], unsigned leaf)
{
#if defined(__GNUC__) || defined(__clang__)
    __asm__ __volatile__("cpuid" : "=a"(r[0]), "=b"(r[1]), "=c"(r[2]), "=d"(r[3]) : "a"(leaf), "c"(0));
#else
    int x[4];
    __cpuidex(x, (int)leaf, 0);
    memcpy(r, x, sizeof x);
#endif
}

/* which registers the operating system keeps: bits 1, 2 those of SSE and AVX; 5, 6, 7 those of AVX-512 */
static unsigned bsn_x86_kept(void)
{
#if defined(__GNUC__) || defined(__clang__)
    unsigned low, high;
    __asm__ __volatile__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
#else
    return (unsigned)_xgetbv(0);
#endif
}

static unsigned bsn_x86_ask(void)
{
    const unsigned popcnt = 1u << 23, osxsave = 1u << 27, avx = 1u << 28; /* leaf 1, ecx */
    const unsigned bmi = 1u << 3 | 1u << 8, avx2 = 1u << 5;               /* leaf 7, ebx */
    const unsigned avx512b = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;   /* F, DQ, BW, VL */
    /* ecx: VBMI, VBMI2, GFNI, BITALG, VPOPCNTDQ */
    const unsigned avx512c = 1u << 1 | 1u << 6 | 1u << 8 | 1u << 12 | 1u << 14;
    unsigned a[4], b[4], c[4], family, kept, has = BSN_HAS_ASKED;
    bsn_x86_cpuid(a, 0);
    if (a[1] == 0x756E6547u) has |= BSN_IS_INTEL; /* "Genu.." */
    if (a[0] < 7) return has;
    bsn_x86_cpuid(b, 1);
    bsn_x86_cpuid(c, 7);
    if (!(b[2] & popcnt) || (c[1] & bmi) != bmi) return has;
    /* pdep and pext are slow on AMD before Zen 3 ("Auth.."), fast on Intel; of others nothing is known */
    family = b[0] >> 8 & 15;
    if (family == 15) family += b[0] >> 20 & 255;
    if ((has & BSN_IS_INTEL) || (a[1] == 0x68747541u && family >= 0x19)) has |= BSN_HAS_BMI2;
    kept = b[2] & osxsave ? bsn_x86_kept() : 0;
    if (!(b[2] & avx) || !(c[1] & avx2) || (kept & 0x06) != 0x06) return has;
    has |= BSN_HAS_AVX2;
    if ((c[1] & avx512b) != avx512b || (c[2] & avx512c) != avx512c || (kept & 0xE6) != 0xE6) return has;
    return has | BSN_HAS_AVX512;
}

/* Asked once: cpuid takes a long way out of virtual machines. Threads that ask at one time find the same
 * answer. */
static unsigned bsn_x86_has(void)
{
    static volatile unsigned known = 0;
#if defined(__GNUC__) || defined(__clang__)
    unsigned has = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (!has) __atomic_store_n(&known, has = bsn_x86_ask(), __ATOMIC_RELAXED);
#else
    unsigned has = known;
    if (!has) known = has = bsn_x86_ask();
#endif
    return has;
}

/* ---- bits ---- */

BSN_INLINE BSN_AVX2 unsigned bsn_x86_ones(uint64_t x) { return (unsigned)_mm_popcnt_u64(x); }

/* Appends to the mask of a twig the bits of `plane` selected by `set`. *byte holds the last, partial byte,
 * *used the number of bits so far. */
BSN_INLINE BSN_AVX2 void bsn_x86_put_twig(uint8_t **p, uint64_t *byte, size_t *used, uint64_t plane, uint64_t set)
{
    const uint64_t x = _pext_u64(plane, set), word = *byte | x << (*used & 7);
    const unsigned shift = *used & 7, c = bsn_x86_ones(set), n = shift + c;
    bsn_store64(*p, word);
    *byte = word >> (n & 56);
    *p += n >> 3;
    *used += c;
    if (BSN_UNLIKELY(n >= 64)) { /* all of the word is done */
        *byte = x >> 1 >> (63 - shift);
        **p = (uint8_t)*byte;
    }
}

#define BSN_LOAD256(p) _mm256_loadu_si256((const __m256i *)(const void *)(p))
#define BSN_STORE256(p, x) _mm256_storeu_si256((__m256i *)(void *)(p), x)
#define BSN_LOAD128(p) _mm_loadu_si128((const __m128i *)(const void *)(p))
#define BSN_STORE128(p, x) _mm_storeu_si128((__m128i *)(void *)(p), x)
#define BSN_LOAD64(p) _mm_loadl_epi64((const __m128i *)(const void *)(p))
#define BSN_STORE64(p, x) _mm_storel_epi64((__m128i *)(void *)(p), x)

/* ---- avx2: vocabulary. Masks are bytes FF and 0, sets bytes 1 and 0. ---- */

typedef __m256i bsn_avx2_v, bsn_avx2_m;
typedef struct bsn_avx2_s { uint64_t bits; __m256i v[2]; } bsn_avx2_s;
typedef struct bsn_avx2_k { __m256i none, one; } bsn_avx2_k;

BSN_INLINE BSN_AVX2 bsn_avx2_k bsn_avx2_begin(void)
{
    bsn_avx2_k k;
    __m256i one = _mm256_set1_epi8(1);
    BSN_OPAQUE("+x", one);
    k.one = one;
    k.none = _mm256_setzero_si256();
    return k;
}
/* (Not blendv: gcc 12 with -funsigned-char finds no byte of a comparison below 0, and drops it.) */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_select(__m256i mask, __m256i x, __m256i y)
{
    return _mm256_or_si256(_mm256_and_si256(mask, x), _mm256_andnot_si256(mask, y));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_put(__m256i mask, __m256i x, __m256i y) { return _mm256_or_si256(_mm256_and_si256(mask, x), y); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_where(__m256i x, __m256i y)
{
    return _mm256_andnot_si256(_mm256_cmpeq_epi64(x, _mm256_setzero_si256()), y);
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_signs(unsigned width, __m256i x)
{
    const __m256i zero = _mm256_setzero_si256();
    return width == 1 ? _mm256_cmpgt_epi8(zero, x) : width == 2 ? _mm256_cmpgt_epi16(zero, x)
         : width == 4 ? _mm256_cmpgt_epi32(zero, x) : _mm256_cmpgt_epi64(zero, x);
}
BSN_INLINE BSN_AVX2 int bsn_avx2_zero(__m256i x) { return _mm256_testz_si256(x, x); }
BSN_INLINE BSN_AVX2 void bsn_avx2_exchange(unsigned unit, __m256i *a, __m256i *b)
{
    const __m256i x = *a, y = *b, low = _mm256_set1_epi16(0x00FF);
    if (unit == 4) {
        *a = _mm256_blend_epi32(x, _mm256_slli_epi64(y, 32), 0xAA);
        *b = _mm256_blend_epi32(_mm256_srli_epi64(x, 32), y, 0xAA);
    } else if (unit == 2) {
        *a = _mm256_blend_epi16(x, _mm256_slli_epi32(y, 16), 0xAA);
        *b = _mm256_blend_epi16(_mm256_srli_epi32(x, 16), y, 0xAA);
    } else {
        *a = _mm256_or_si256(_mm256_and_si256(low, x), _mm256_slli_epi16(y, 8));
        *b = _mm256_or_si256(_mm256_srli_epi16(x, 8), _mm256_andnot_si256(low, y));
    }
}
/* The upper two planes of elements whose symbol is the top byte and whose sign is bit 7 of the next,
 * exchanged and brought to their places: of each word one byte times 128, negative and subtracted, as the
 * factors are signed; and the other byte, whose sign is spread to bit 15. */
BSN_INLINE BSN_AVX2 void bsn_avx2_join_across(__m256i *below, __m256i *top)
{
    const __m256i rest = _mm256_set1_epi16((short)0x807F), x = *top, y = *below;
    const __m256i even = _mm256_maddubs_epi16(x, _mm256_set1_epi16(0x0080));
    const __m256i odd = _mm256_maddubs_epi16(x, _mm256_set1_epi16((short)0x8000));
    *below = _mm256_sub_epi16(_mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(y, 8), 8), rest), even);
    *top = _mm256_sub_epi16(_mm256_and_si256(_mm256_srai_epi16(y, 8), rest), odd);
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_reach(__m256i x, __m256i y) { return _mm256_cmpeq_epi8(_mm256_max_epu8(x, y), x); }
BSN_INLINE BSN_AVX2 unsigned bsn_avx2_ones(__m256i m) { return bsn_x86_ones((uint32_t)_mm256_movemask_epi8(m)); }
BSN_INLINE BSN_AVX2 uint64_t bsn_avx2_bits(const __m256i m[2])
{
    return (uint32_t)_mm256_movemask_epi8(m[0]) | (uint64_t)(uint32_t)_mm256_movemask_epi8(m[1]) << 32;
}
BSN_INLINE BSN_AVX2 bsn_avx2_s bsn_avx2_set_of(const bsn_avx2_k *c, const __m256i m[2])
{
    bsn_avx2_s s;
    s.bits = bsn_avx2_bits(m);
    s.v[0] = _mm256_and_si256(m[0], c->one);
    s.v[1] = _mm256_and_si256(m[1], c->one);
    return s;
}

/* Inclusive ranks: how many places are set (1, not 0) in the 16 of a lane up to each. Sums of 4 by a product,
 * then each 4 and each 8 get the sum of those before. `one` is 1 in every byte, and opaque: gcc would make
 * shifts of the product, which compete with the shuffles. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_rank(__m256i set, __m256i one)
{
    const __m256i before4 = _mm256_setr_epi8(-1, -1, -1, -1, 3, 3, 3, 3, -1, -1, -1, -1, 11, 11, 11, 11,
                                             -1, -1, -1, -1, 3, 3, 3, 3, -1, -1, -1, -1, 11, 11, 11, 11);
    const __m256i before8 = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 7, 7, 7, 7, 7, 7, 7, 7,
                                             -1, -1, -1, -1, -1, -1, -1, -1, 7, 7, 7, 7, 7, 7, 7, 7);
    __m256i x = _mm256_mullo_epi32(set, one);
    x = _mm256_add_epi8(x, _mm256_shuffle_epi8(x, before4));
    return _mm256_add_epi8(x, _mm256_shuffle_epi8(x, before8));
}

/* Bits 32 * half .. 32 * half + 31 of w: 1 where the bit is set, else 0. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_spread(uint64_t w, unsigned half, __m256i one)
{
    const __m256i byte = half ? _mm256_setr_epi64x(4 * BSN_ONES, 5 * BSN_ONES, 6 * BSN_ONES, 7 * BSN_ONES)
                              : _mm256_setr_epi64x(0, BSN_ONES, 2 * BSN_ONES, 3 * BSN_ONES);
    const __m256i bit = _mm256_set1_epi64x((long long)UINT64_C(0x8040201008040201));
    const __m256i x = _mm256_shuffle_epi8(_mm256_set1_epi64x((long long)w), byte);
    return _mm256_min_epu8(_mm256_and_si256(x, bit), one);
}

/* Loads 16 bytes of a list for each lane. The upper lane begins where the lower one, which takes `taken`,
 * ends. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_window(const uint8_t *list, unsigned taken)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(BSN_LOAD128(list)), BSN_LOAD128(list + taken), 1);
}

/* The elements of a window at the places that are set. Elsewhere the rank is made 0, the index -1, and the
 * byte 0. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_expand(__m256i window, __m256i set, __m256i one)
{
    const __m256i rank = _mm256_sign_epi8(bsn_avx2_rank(set, one), set);
    return _mm256_shuffle_epi8(window, _mm256_add_epi8(rank, _mm256_set1_epi8(-1)));
}
BSN_INLINE BSN_AVX2 void bsn_avx2_expand_list(const bsn_avx2_k *c, __m256i x[2], bsn_avx2_s s, const uint8_t **list)
{
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < 2; i++) {
        const uint32_t m = (uint32_t)(s.bits >> 32 * i);
        x[i] = _mm256_or_si256(x[i], bsn_avx2_expand(bsn_avx2_window(*list, bsn_x86_ones(m & 0xFFFF)), s.v[i], c->one));
        *list += bsn_x86_ones(m);
    }
}

/* Words of 2 bytes by a shuffle in each lane; of 4 by a permutation, which takes any for what is outside. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_expand_words(unsigned width, __m256i base, uint64_t m, const uint8_t **list)
{
    const uint8_t *p = *list;
    __m256i x, at;
    *list += width * bsn_x86_ones(m);
    if (width == 2) {
        at = _mm256_inserti128_si256(_mm256_castsi128_si256(BSN_LOAD128(bsn_puts + (m & 255))), BSN_LOAD128(bsn_puts + (m >> 8)), 1);
        at = _mm256_add_epi8(_mm256_slli_epi16(_mm256_unpacklo_epi8(at, at), 1), _mm256_set1_epi16(0x0100));
        return _mm256_or_si256(base, _mm256_shuffle_epi8(bsn_avx2_window(p, 2 * bsn_x86_ones(m & 255)), at));
    }
    at = _mm256_cvtepu8_epi32(BSN_LOAD64(bsn_puts + m));
    x = _mm256_permutevar8x32_epi32(BSN_LOAD256(p), at);
    return _mm256_or_si256(base, _mm256_andnot_si256(_mm256_cmpgt_epi32(at, _mm256_set1_epi32(7)), x));
}

/* half of a group, 8 bytes at the low end of each */
BSN_INLINE BSN_AVX2 void bsn_avx2_eighths(__m128i z[8], __m256i x, unsigned half)
{
    __m128i *const at = z + 4 * half;
    at[0] = _mm256_castsi256_si128(x);
    at[2] = _mm256_extracti128_si256(x, 1);
    at[1] = _mm_unpackhi_epi64(at[0], at[0]);
    at[3] = _mm_unpackhi_epi64(at[2], at[2]);
}

BSN_INLINE BSN_AVX2 uint8_t *bsn_avx2_put_picked(uint8_t *p, const __m128i z[8], uint64_t m)
{
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < 8; i += 2, m >>= 16) {
        BSN_OPAQUE("+Q", m); /* two bytes of a register have names; compilers would begin with all of m
                                again */
        BSN_STORE64(p, _mm_shuffle_epi8(z[i], BSN_LOAD128(bsn_picks + (m & 0xFF))));
        p += bsn_x86_ones(m & 0xFF);
        BSN_STORE64(p, _mm_shuffle_epi8(z[i + 1], BSN_LOAD128(bsn_picks + (m >> 8 & 0xFF))));
        p += bsn_x86_ones(m >> 8 & 0xFF);
    }
    return p;
}

/* places of words as places of their bytes */
BSN_INLINE BSN_AVX2 __m128i bsn_avx2_bytes_of(__m128i places)
{
    return _mm_add_epi8(_mm_slli_epi16(_mm_unpacklo_epi8(places, places), 1), _mm_set1_epi16(0x0100));
}

BSN_INLINE BSN_AVX2 void bsn_avx2_compress_list(const __m256i x[2], uint64_t m, uint8_t **list, int half)
{
    __m128i z[8];
    (void)half;
    bsn_avx2_eighths(z, x[0], 0);
    bsn_avx2_eighths(z, x[1], 1);
    *list = bsn_avx2_put_picked(*list, z, m);
}

BSN_INLINE BSN_AVX2 void bsn_avx2_compress_words(unsigned width, __m256i x, uint64_t m, uint8_t **list)
{
    const unsigned c = bsn_x86_ones(m), low = bsn_x86_ones(m & 255);
    if (width == 2) {
        BSN_STORE128(*list, _mm_shuffle_epi8(_mm256_castsi256_si128(x), bsn_avx2_bytes_of(BSN_LOAD64(bsn_picks + (m & 255)))));
        BSN_STORE128(*list + 2 * low, _mm_shuffle_epi8(_mm256_extracti128_si256(x, 1),
                                                       bsn_avx2_bytes_of(BSN_LOAD64(bsn_picks + (m >> 8)))));
    } else {
        BSN_STORE256(*list, _mm256_permutevar8x32_epi32(x, _mm256_cvtepu8_epi32(BSN_LOAD64(bsn_picks + m))));
    }
    *list += width * c;
}

BSN_INLINE BSN_AVX2 __m256i bsn_avx2_widen(unsigned width, const uint8_t *p)
{
    switch (width) {
    case 1: return BSN_LOAD256(p);
    case 2: return _mm256_cvtepu8_epi16(BSN_LOAD128(p));
    default: return _mm256_cvtepu8_epi32(BSN_LOAD64(p));
    }
}

/* Packs work on lanes of 16 bytes alone: what they leave apart is brought in order. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_lowest(unsigned width, const __m256i words[4])
{
    __m256i x[4];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) x[i] = _mm256_and_si256(words[i], width == 2 ? _mm256_set1_epi16(255) : _mm256_set1_epi32(255));
    if (width == 2) return _mm256_permute4x64_epi64(_mm256_packus_epi16(x[0], x[1]), 0xD8);
    return _mm256_permutevar8x32_epi32(_mm256_packus_epi16(_mm256_packus_epi32(x[0], x[1]), _mm256_packus_epi32(x[2], x[3])),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

BSN_INLINE BSN_AVX2 __m256i bsn_avx2_lanes(__m256i x)
{
    return _mm256_permutevar8x32_epi32(x, _mm256_setr_epi32(0, 2, 4, 6, 1, 3, 5, 7));
}

/* of bins */
typedef __m256i bsn_avx2_w;
typedef const uint8_t (*bsn_avx2_t)[128];

BSN_INLINE BSN_AVX2 __m256i bsn_avx2_equal_m(__m256i x, __m256i y) { return _mm256_cmpeq_epi8(x, y); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_equal_w(__m256i x, __m256i y) { return _mm256_cmpeq_epi32(x, y); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_above_w(__m256i x, __m256i y) { return _mm256_cmpgt_epi32(x, y); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_reach_w(__m256i x, __m256i y) { return _mm256_cmpeq_epi32(_mm256_max_epu32(x, y), x); }
BSN_INLINE BSN_AVX2 unsigned bsn_avx2_bits_w(__m256i m) { return (unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(m)); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_less_f(__m256i x, __m256i y)
{
    return _mm256_castps_si256(_mm256_cmp_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y), _CMP_LT_OQ));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_fma_f(__m256i x, __m256i y, __m256i z)
{
    const __m256 product = _mm256_mul_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y));
    return _mm256_castps_si256(_mm256_add_ps(product, _mm256_castsi256_ps(z)));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_div_f(__m256i x, __m256i y)
{
    return _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(x), _mm256_castsi256_ps(y)));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_mul_w(__m256i x, __m256i y) { return _mm256_mullo_epi32(x, y); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_sixteen(__m128i x) { return _mm256_broadcastsi128_si256(x); }
BSN_INLINE BSN_AVX2 uint64_t bsn_avx2_lane_bits(__m256i m)
{
    return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(m, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)));
}
BSN_INLINE BSN_AVX2 bsn_avx2_t bsn_avx2_tables(const bsn_log *x, unsigned find) { return x->steps + (find ? 3 : 0); }

/* Tables are without the 16 before each 16: an index less 16k has no look-up where that is below 0, and else
 * adds what makes the entry of its 16 from that of those before. */
BSN_INLINE BSN_AVX2 void bsn_avx2_of_tables(__m256i out[3], const bsn_avx2_t *t, __m256i index, size_t end)
{
    size_t k;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 3; j++) out[j] = _mm256_shuffle_epi8(bsn_avx2_sixteen(BSN_LOAD128((*t)[j])), index);
    for (k = 16; k < end; k += 16) {
        index = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
        BSN_UNROLL
        for (j = 0; j < 3; j++)
            out[j] = _mm256_xor_si256(out[j], _mm256_shuffle_epi8(bsn_avx2_sixteen(BSN_LOAD128((*t)[j] + k)), index));
    }
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_entries(const bsn_avx2_t *t, const uint32_t *table, __m256i index, int few)
{
    uint32_t k[8];
    (void)t, (void)few;
    BSN_STORE256(k, index);
    return _mm256_setr_epi32((int)table[k[0]], (int)table[k[1]], (int)table[k[2]], (int)table[k[3]], (int)table[k[4]],
                             (int)table[k[5]], (int)table[k[6]], (int)table[k[7]]);
}

/* ---- avx2: trees and masks ---- */

BSN_INLINE BSN_AVX2 bsn_avx2_s bsn_avx2_set(const bsn_avx2_k *c, uint64_t w)
{
    bsn_avx2_s s;
    s.bits = w;
    s.v[0] = bsn_avx2_spread(w, 0, c->one);
    s.v[1] = bsn_avx2_spread(w, 1, c->one);
    return s;
}
/* bsn_slot_mask of bytes 1 and 0 */
BSN_INLINE BSN_AVX2 bsn_avx2_s bsn_avx2_slot(const bsn_avx2_k *c, const bsn_avx2_s s[4], unsigned k, unsigned slot, uint64_t bits)
{
    bsn_avx2_s of;
    unsigned i, q;
    of.bits = bits;
    BSN_UNROLL
    for (i = 0; i < 2; i++) {
        of.v[i] = slot >> (k - 1) & 1 ? s[0].v[i] : _mm256_andnot_si256(s[0].v[i], c->one);
        BSN_UNROLL
        for (q = 1; q < k; q++)
            of.v[i] = slot >> (k - 1 - q) & 1 ? _mm256_and_si256(s[q].v[i], of.v[i]) : _mm256_andnot_si256(s[q].v[i], of.v[i]);
    }
    return of;
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_unset(__m256i x, bsn_avx2_s s, unsigned i)
{
    return _mm256_and_si256(x, _mm256_add_epi8(s.v[i], _mm256_set1_epi8(-1)));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_bit(__m256i x, unsigned b) { return _mm256_slli_epi16(x, (int)(7 - b)); }
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_digit(__m256i x, bsn_avx2_s s, unsigned i, unsigned b)
{
    return _mm256_or_si256(x, _mm256_slli_epi16(s.v[i], (int)b));
}
/* Others saturate to one with bit 7. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_inside(__m256i index) { return _mm256_adds_epu8(index, _mm256_set1_epi8(0x70)); }
BSN_INLINE BSN_AVX2 void bsn_avx2_look_up(__m256i y[2], const __m256i index[2], const uint8_t *table)
{
    const __m256i codes = bsn_avx2_sixteen(BSN_LOAD128(table));
    y[0] = _mm256_xor_si256(y[0], _mm256_shuffle_epi8(codes, bsn_avx2_inside(index[0])));
    y[1] = _mm256_xor_si256(y[1], _mm256_shuffle_epi8(codes, bsn_avx2_inside(index[1])));
}
/* The next bits of a plane, at the places that are set. Two words where more are needed than are left in the
 * first. */
BSN_INLINE BSN_AVX2 uint64_t bsn_avx2_deposit(const uint8_t *plane, size_t *used, uint64_t set)
{
    const uint8_t *p = plane + (*used >> 3);
    const unsigned shift = *used & 7, c = bsn_x86_ones(set);
    uint64_t x = bsn_load64(p) >> shift;
    if (BSN_UNLIKELY(c > 57)) x |= (uint64_t)p[8] << 1 << (63 - shift);
    *used += c;
    return _pdep_u64(x, set);
}
/* For a position outside the set, the index is the position less the number of set ones before it. */
BSN_INLINE BSN_AVX2 void bsn_avx2_mix(const bsn_avx2_k *c, __m256i x[2], bsn_avx2_s s, const uint8_t **zeros, const uint8_t **ones)
{
    const __m256i place = _mm256_setr_epi8(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
                                           0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < 2; i++) {
        const uint32_t m = (uint32_t)(s.bits >> 32 * i);
        const unsigned low = bsn_x86_ones(m & 0xFFFF), count = bsn_x86_ones(m);
        const __m256i rank = bsn_avx2_rank(s.v[i], c->one);
        x[i] = bsn_avx2_select(_mm256_cmpeq_epi8(s.v[i], c->one),
                               _mm256_shuffle_epi8(bsn_avx2_window(*ones, low), _mm256_add_epi8(rank, _mm256_set1_epi8(-1))),
                               _mm256_shuffle_epi8(bsn_avx2_window(*zeros, 16 - low), _mm256_sub_epi8(place, rank)));
        *zeros += 32 - count;
        *ones += count;
    }
}

/* As bsn_wide_exchange; no bit of m leaves its byte. */
BSN_INLINE BSN_AVX2 void bsn_avx2_exchange_bits(__m256i *a, __m256i *b, int up, int m)
{
    const __m256i x = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(*a, up), *b), _mm256_set1_epi8((char)m));
    *b = _mm256_xor_si256(*b, x);
    *a = _mm256_xor_si256(*a, _mm256_slli_epi16(x, up));
}

/* As bsn_put_planes, of four groups: a lane of 128 bits has the first and second, the other the third and
 * fourth. */
BSN_INLINE BSN_AVX2 void bsn_avx2_put_planes(uint8_t *bytes, const uint8_t *bits, unsigned varying, size_t groups)
{
    const size_t size = 8u * bsn_ones_in[varying];
    unsigned k, g;
    for (; groups >= 4; groups -= 4, bytes += 256, bits += 4 * size) {
        __m256i v[8], x[2][4];
        const uint8_t *p = bits;
        BSN_UNROLL
        for (k = 0; k < 8; k++) {
            v[k] = _mm256_setzero_si256();
            if (!(varying >> k & 1)) continue;
            v[k] = _mm256_setr_epi64x((long long)bsn_load64(p), (long long)bsn_load64(p + size),
                                      (long long)bsn_load64(p + 2 * size), (long long)bsn_load64(p + 3 * size));
            p += 8;
        }
        BSN_UNROLL
        for (k = 0; k < 8; k += 2) bsn_avx2_exchange_bits(&v[k], &v[k + 1], 1, 0x55);
        BSN_UNROLL
        for (k = 0; k < 4; k++) bsn_avx2_exchange_bits(&v[k + (k & 2)], &v[k + (k & 2) + 2], 2, 0x33);
        BSN_UNROLL
        for (k = 0; k < 4; k++) bsn_avx2_exchange_bits(&v[k], &v[k + 4], 4, 0x0F);
        BSN_UNROLL
        for (k = 0; k < 4; k++) {
            x[0][k] = _mm256_unpacklo_epi8(v[2 * k], v[2 * k + 1]);
            x[1][k] = _mm256_unpackhi_epi8(v[2 * k], v[2 * k + 1]);
        }
        BSN_UNROLL
        for (g = 0; g < 2; g++) {
            const __m256i a = _mm256_unpacklo_epi16(x[g][0], x[g][1]), b = _mm256_unpackhi_epi16(x[g][0], x[g][1]);
            const __m256i c = _mm256_unpacklo_epi16(x[g][2], x[g][3]), d = _mm256_unpackhi_epi16(x[g][2], x[g][3]);
            const __m256i r0 = _mm256_unpacklo_epi32(a, c), r1 = _mm256_unpackhi_epi32(a, c);
            const __m256i r2 = _mm256_unpacklo_epi32(b, d), r3 = _mm256_unpackhi_epi32(b, d);
            uint8_t *to = bytes + 64 * g;
            BSN_STORE256(to, _mm256_or_si256(BSN_LOAD256(to), _mm256_permute2x128_si256(r0, r1, 0x20)));
            BSN_STORE256(to + 32, _mm256_or_si256(BSN_LOAD256(to + 32), _mm256_permute2x128_si256(r2, r3, 0x20)));
            BSN_STORE256(to + 128, _mm256_or_si256(BSN_LOAD256(to + 128), _mm256_permute2x128_si256(r0, r1, 0x31)));
            BSN_STORE256(to + 160, _mm256_or_si256(BSN_LOAD256(to + 160), _mm256_permute2x128_si256(r2, r3, 0x31)));
        }
    }
    bsn_scalar_bits_put(bytes, bytes, 0, 0, bits, varying, groups);
}

/* ---- avx2: counts, comparisons, tokens ---- */

BSN_INLINE BSN_AVX2 __m256i bsn_avx2_add_ones(__m256i sum, __m256i x)
{
    const __m256i ones = _mm256_setr_epi8(0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4,
                                          0, 1, 1, 2, 1, 2, 2, 3, 1, 2, 2, 3, 2, 3, 3, 4), low4 = _mm256_set1_epi8(15);
    const __m256i low = _mm256_shuffle_epi8(ones, _mm256_and_si256(x, low4));
    const __m256i high = _mm256_shuffle_epi8(ones, _mm256_and_si256(_mm256_srli_epi16(x, 4), low4));
    return _mm256_add_epi64(sum, _mm256_sad_epu8(_mm256_add_epi8(low, high), _mm256_setzero_si256()));
}
/* Packs as in bsn_avx2_lowest; those of 8 bytes leave pairs apart. */
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_differ(unsigned width, const uint8_t *a, const uint8_t *b)
{
    const __m256i pairs = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    __m256i x[8];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) {
        const __m256i y = BSN_LOAD256(a + 32 * i), z = BSN_LOAD256(b + 32 * i);
        x[i] = width == 1 ? _mm256_cmpeq_epi8(y, z) : width == 2 ? _mm256_cmpeq_epi16(y, z)
             : width == 4 ? _mm256_cmpeq_epi32(y, z) : _mm256_cmpeq_epi64(y, z);
    }
    if (width == 2) x[0] = _mm256_permute4x64_epi64(_mm256_packs_epi16(x[0], x[1]), 0xD8);
    if (width == 8) {
        BSN_UNROLL
        for (i = 0; i < 4; i++) x[i] = _mm256_packs_epi32(x[2 * i], x[2 * i + 1]);
    }
    if (width >= 4) x[0] = _mm256_packs_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_packs_epi32(x[2], x[3]));
    if (width == 4) x[0] = _mm256_permutevar8x32_epi32(x[0], _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    if (width == 8) x[0] = _mm256_shuffle_epi8(_mm256_permute4x64_epi64(x[0], 0xD8), pairs);
    return _mm256_xor_si256(x[0], _mm256_set1_epi8(-1));
}
BSN_INLINE BSN_AVX2 __m256i bsn_avx2_tokens(const uint8_t *words)
{
    const __m256i x = _mm256_cvtepu16_epi32(BSN_LOAD128(words));
    const __m256i bits = _mm256_srli_epi32(_mm256_castps_si256(_mm256_cvtepi32_ps(x)), 22);
    return bsn_avx2_select(_mm256_cmpgt_epi32(x, _mm256_set1_epi32(15)), _mm256_sub_epi32(bits, _mm256_set1_epi32(BSN_TOKENS_BELOW)), x);
}

#define BSN_T_NAME bsn_avx2
#define BSN_T_UNROLL
#define BSN_T_TARGET BSN_AVX2
#define BSN_T_BYTES 32
#define BSN_T_MASKS 0
#define BSN_T_ACROSS 1
#define BSN_T_RANKS 1
#define BSN_T_CHAINS 1
#define BSN_T_TWIGS 1
#define BSN_T_MM _mm256_
#define BSN_T_SI si256
#define BSN_T_SET64 _mm256_set1_epi64x
#include BITSNAP_SIMD_FILE

/* ---- avx2: what it does in its own way ---- */

/* join_field past the caches: lines go whole, both halves of one, then the next. */
BSN_INLINE BSN_AVX2 void bsn_avx2_join_past(const bsn_field *f, uint8_t *elements, const uint8_t *const plane[8], size_t groups,
                                            unsigned width, unsigned kind)
{
    size_t i;
    unsigned half, j;
    for (i = 0; i < 64 * groups; i += 64, elements += 64 * width) {
        __m256i v[2][8];
        BSN_UNROLL
        for (half = 0; half < 2; half++) {
            BSN_UNROLL
            for (j = 0; j < width; j++) v[half][j] = BSN_LOAD256(plane[j] + i + 32 * half);
            bsn_avx2_join_rows(f, v[half], width, kind);
        }
        BSN_UNROLL
        for (j = 0; j < width; j++) {
            _mm256_stream_si256((__m256i *)(void *)(elements + 64 * j), v[0][j]);
            _mm256_stream_si256((__m256i *)(void *)(elements + 64 * j + 32), v[1][j]);
            BSN_APART; /* gcc would store the first half of each line, then the second ones */
        }
    }
}

/* Prefetches the next line of each strip. */
BSN_INLINE BSN_AVX2 void bsn_avx2_finish_ask(const bsn_finish *t, size_t *asked)
{
    const uint8_t *line = bsn_ahead_next(t->ahead) + *asked / 8 * 64;
    unsigned j;
    if (*asked >= t->ahead_lines) return;
    BSN_UNROLL
    for (j = 0; j < 8; j++) BSN_PREFETCH(line + j * t->ahead->apart);
    *asked += 8;
}

/* Merging, hashing and joining of 1 KiB at a time: what one step leaves to the next is in the first-level
 * cache, and what goes past the caches has time to do so. Where lines begin elsewhere than elements, these go
 * by way of the room. */
BSN_INLINE BSN_AVX2 void bsn_avx2_finish_field(const bsn_finish *t, uint8_t *elements, size_t first, size_t n, unsigned width,
                                               unsigned kind)
{
    const unsigned top = width - 1, shift = 8 - t->field->symbol_bits;
    const size_t m = 1024 / width, bits_size = kind == BSN_FIELD_INSIDE ? bsn_bits_size(t->varying, m) : 0;
    const int apart = t->tail && ((uintptr_t)elements & 63);
    const uint8_t *plane[8], *bits = t->bits;
    uint8_t *const joined = t->room, *const symbols = t->room + 1024;
    size_t i, asked = 0;
    unsigned k;
    BSN_UNROLL
    for (k = 0; k < top; k++) plane[k] = t->plane[k];
    plane[top] = symbols;
    for (i = 0; i < n; i += m, elements += 1024) {
        bsn_avx2_finish_ask(t, &asked);
        bsn_avx2_node_merge(t->node, first + i, m, symbols);
        BSN_UNROLL
        for (k = 0; k < top; k++)
            if (t->state[k]) bsn_avx2_hash(t->state[k], plane[k], m / 64, i / 64);
        if (kind == BSN_FIELD_INSIDE) {
            bsn_avx2_bits_put(symbols, symbols, shift, t->value, bits, t->varying, m / 64);
            bits += bits_size;
        }
        bsn_avx2_finish_ask(t, &asked);
        if (apart) {
            bsn_avx2_join_field(t->field, joined, plane, m / 64, width, kind);
            bsn_lines_next(t->tail, elements, joined, 1024, 0, 1);
        } else if (t->tail) {
            bsn_avx2_join_past(t->field, elements, plane, m / 64, width, kind);
        } else {
            bsn_avx2_join_field(t->field, elements, plane, m / 64, width, kind);
        }
        BSN_UNROLL
        for (k = 0; k < top; k++) plane[k] += m;
    }
}

static BSN_AVX2 int bsn_avx2_finish(const bsn_finish *t, uint8_t *elements, size_t first, size_t n)
{
    switch (16 * t->field->width + bsn_field_kind(t->field)) {
    case 16 * 2 + BSN_FIELD_ACROSS: bsn_avx2_finish_field(t, elements, first, n, 2, BSN_FIELD_ACROSS); return 1;
    case 16 * 2 + BSN_FIELD_INSIDE: bsn_avx2_finish_field(t, elements, first, n, 2, BSN_FIELD_INSIDE); return 1;
    case 16 * 4 + BSN_FIELD_ACROSS: bsn_avx2_finish_field(t, elements, first, n, 4, BSN_FIELD_ACROSS); return 1;
    default: return 0;
    }
}

/* For machines whose bmi2 is slow, for others, and for Intel's. */
#define bsn_avx2_start bsn_scalar_start
#define bsn_avx2_places bsn_scalar_places
#define BSN_SLOT(when, result, name, arguments) BSN_FOR_##when(bsn_avx2_##name),
#define BSN_TABLE(has) { "avx2", 2048, BSN_LEAVES | BSN_LOGS | (has), BSN_KERNELS(BSN_SLOT) }
static const bitsnap_kernels bsn_kernels_avx2[3] = { BSN_TABLE(0), BSN_TABLE(BSN_CHAINS | BSN_LEAVES_TWIGS),
    BSN_TABLE(BSN_CHAINS | BSN_LEAVES_TWIGS | BSN_FINISHES | BSN_FINISHES_SENDS) };
#undef BSN_TABLE
#undef BSN_SLOT
#undef bsn_avx2_start
#undef bsn_avx2_places

#ifndef BITSNAP_NO_AVX512

/* g++ 12 warns of the undefined registers inside its own intrinsics */
#if defined(__GNUC__) && !defined(__clang__) && defined(__cplusplus)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

/* ---- avx512: vocabulary. Masks and sets are bits. ---- */

typedef __m512i bsn_avx512_v;
typedef __mmask64 bsn_avx512_m;
typedef struct bsn_avx512_s { uint64_t bits; } bsn_avx512_s;
typedef struct bsn_avx512_k { __m512i none; } bsn_avx512_k;

BSN_INLINE BSN_AVX512 bsn_avx512_k bsn_avx512_begin(void)
{
    bsn_avx512_k k;
    __m512i none = _mm512_setzero_si512();
    BSN_OPAQUE("+v", none); /* expanding into what is known to be zero waits, on Zen 4, for what the register
                               held before */
    k.none = none;
    return k;
}
/* mask ? x : y, bit by bit; the result takes the register of y, which is seldom needed again */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_select(__m512i mask, __m512i x, __m512i y)
{
    return _mm512_ternarylogic_epi64(y, x, mask, 0xD8);
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_put(__m512i mask, __m512i x, __m512i y) { return bsn_avx512_select(mask, x, y); }
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_where(__m512i x, __m512i y)
{
    return _mm512_maskz_mov_epi64(_mm512_test_epi64_mask(x, x), y);
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_signs(unsigned width, __m512i x)
{
    return width == 1 ? _mm512_movm_epi8(_mm512_movepi8_mask(x)) : width == 2 ? _mm512_srai_epi16(x, 15)
         : width == 4 ? _mm512_srai_epi32(x, 31) : _mm512_srai_epi64(x, 63);
}
BSN_INLINE BSN_AVX512 int bsn_avx512_zero(__m512i x) { return !_mm512_test_epi64_mask(x, x); }
BSN_INLINE BSN_AVX512 void bsn_avx512_exchange(unsigned unit, __m512i *a, __m512i *b)
{
    const __m512i x = *a, y = *b;
    const __m512i low = unit == 1 ? _mm512_set1_epi16(0xFF) : unit == 2 ? _mm512_set1_epi32(0xFFFF) : _mm512_set1_epi64(0xFFFFFFFF);
    *a = bsn_avx512_select(low, x, unit == 1   ? _mm512_slli_epi16(y, 8)
                                   : unit == 2 ? _mm512_slli_epi32(y, 16)
                                               : _mm512_slli_epi64(y, 32));
    *b = bsn_avx512_select(low, unit == 1   ? _mm512_srli_epi16(x, 8)
                                : unit == 2 ? _mm512_srli_epi32(x, 16)
                                            : _mm512_srli_epi64(x, 32), y);
}
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_all_of(void) { return ~UINT64_C(0); }
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_andnot_m(__mmask64 x, __mmask64 y) { return _kandn_mask64(x, y); }
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_reach(__m512i x, __m512i y) { return _mm512_cmpge_epu8_mask(x, y); }
BSN_INLINE BSN_AVX512 unsigned bsn_avx512_ones(__mmask64 m) { return bsn_x86_ones(m); }
BSN_INLINE BSN_AVX512 uint64_t bsn_avx512_bits(const __mmask64 m[1]) { return m[0]; }
BSN_INLINE BSN_AVX512 bsn_avx512_s bsn_avx512_set_of(const bsn_avx512_k *c, const __mmask64 m[1])
{
    bsn_avx512_s s;
    (void)c;
    s.bits = m[0];
    return s;
}

/* Elements of `width` bytes, one bit of m each: the next of x to the places that are set, the others from
 * base. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_expand(unsigned width, __m512i base, uint64_t m, __m512i x)
{
    BSN_OPAQUE("+v", x); /* expanding from memory takes longer than loading and expanding */
    switch (width) {
    case 1: return _mm512_mask_expand_epi8(base, m, x);
    case 2: return _mm512_mask_expand_epi16(base, (__mmask32)m, x);
    case 4: return _mm512_mask_expand_epi32(base, (__mmask16)m, x);
    default: return _mm512_mask_expand_epi64(base, (__mmask8)m, x);
    }
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_expand_words(unsigned width, __m512i base, uint64_t m, const uint8_t **list)
{
    const __m512i x = _mm512_loadu_si512(*list);
    *list += width * bsn_x86_ones(m);
    return bsn_avx512_expand(width, base, m, x);
}
BSN_INLINE BSN_AVX512 void bsn_avx512_expand_list(const bsn_avx512_k *c, __m512i x[1], bsn_avx512_s s, const uint8_t **list)
{
    (void)c;
    x[0] = bsn_avx512_expand_words(1, x[0], s.bits, list);
}
/* Moves the elements that are set to the front. Those after them are undefined: on Zen 4 zeroing them waits
 * for the register's old value. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_compress(unsigned width, uint64_t m, __m512i x)
{
    switch (width) {
    case 1: return _mm512_mask_compress_epi8(x, m, x);
    case 2: return _mm512_mask_compress_epi16(x, (__mmask32)m, x);
    case 4: return _mm512_mask_compress_epi32(x, (__mmask16)m, x);
    default: return _mm512_mask_compress_epi64(x, (__mmask8)m, x);
    }
}
BSN_INLINE BSN_AVX512 void bsn_avx512_compress_words(unsigned width, __m512i x, uint64_t m, uint8_t **list)
{
    _mm512_storeu_si512(*list, bsn_avx512_compress(width, m, x));
    *list += width * bsn_x86_ones(m);
}
/* Stores of lists, which lie across lines, are what takes the time, and half a store costs half. */
BSN_INLINE BSN_AVX512 void bsn_avx512_compress_list(const __m512i x[1], uint64_t m, uint8_t **list, int half)
{
    const __m512i y = bsn_avx512_compress(1, m, x[0]);
    const unsigned c = bsn_x86_ones(m);
    if (half) {
        BSN_STORE256(*list, _mm512_castsi512_si256(y));
        if (BSN_UNLIKELY(c > 32)) BSN_STORE256(*list + 32, _mm512_extracti64x4_epi64(y, 1));
    } else {
        _mm512_storeu_si512(*list, y);
    }
    *list += c;
}

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_widen(unsigned width, const uint8_t *p)
{
    switch (width) {
    case 1: return _mm512_loadu_si512(p);
    case 2: return _mm512_cvtepu8_epi16(BSN_LOAD256(p));
    case 4: return _mm512_cvtepu8_epi32(BSN_LOAD128(p));
    default: return _mm512_cvtepu8_epi64(BSN_LOAD64(p));
    }
}

static const uint8_t bsn_avx512_in_order[64] = {
    0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
    32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63
};

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_lowest(unsigned width, const __m512i *x)
{
    const __m512i each = _mm512_loadu_si512(bsn_avx512_in_order);
    /* its lower half counts */
    const __m512i second = _mm512_add_epi8(each, each), fourth = _mm512_add_epi8(second, second);
    if (width == 8) {
        uint8_t part[8][8];
        unsigned i;
        for (i = 0; i < 8; i++) BSN_STORE64(part[i], _mm512_cvtepi64_epi8(x[i]));
        return _mm512_loadu_si512(part);
    }
    if (width == 2) return _mm512_permutex2var_epi8(x[0], second, x[1]);
    return _mm512_inserti64x4(_mm512_permutex2var_epi8(x[0], fourth, x[1]),
                              _mm512_castsi512_si256(_mm512_permutex2var_epi8(x[2], fourth, x[3])), 1);
}

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_lanes(__m512i x)
{
    return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), x);
}

/* of bins */
typedef __mmask16 bsn_avx512_w;
typedef struct bsn_avx512_t { __m512i table[3][2]; } bsn_avx512_t;

BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_equal_m(__m512i x, __m512i y) { return _mm512_cmpeq_epi8_mask(x, y); }
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_and_m(__mmask64 x, __mmask64 y) { return x & y; }
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_or_m(__mmask64 x, __mmask64 y) { return x | y; }
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_keep(__mmask64 m, __m512i x) { return _mm512_maskz_mov_epi8(m, x); }
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_next(__mmask64 m, __m512i x) { return _mm512_mask_add_epi8(x, m, x, _mm512_set1_epi8(1)); }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_equal_w(__m512i x, __m512i y) { return _mm512_cmpeq_epi32_mask(x, y); }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_above_w(__m512i x, __m512i y) { return _mm512_cmpgt_epi32_mask(x, y); }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_reach_w(__m512i x, __m512i y) { return _mm512_cmpge_epu32_mask(x, y); }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_and_w(__mmask16 x, __mmask16 y) { return x & y; }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_or_w(__mmask16 x, __mmask16 y) { return x | y; }
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_keep_w(__mmask16 m, __m512i x) { return _mm512_maskz_mov_epi32(m, x); }
BSN_INLINE BSN_AVX512 unsigned bsn_avx512_bits_w(__mmask16 m) { return m; }
BSN_INLINE BSN_AVX512 __mmask16 bsn_avx512_less_f(__m512i x, __m512i y)
{
    return _mm512_cmplt_ps_mask(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y));
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_fma_f(__m512i x, __m512i y, __m512i z)
{
    return _mm512_castps_si512(_mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), _mm512_castsi512_ps(z)));
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_sixteen(__m128i x) { return _mm512_broadcast_i32x4(x); }
BSN_INLINE BSN_AVX512 uint64_t bsn_avx512_lane_bits(__mmask64 m)
{
    return BSN_LIKELY(!m) ? 0 : _mm512_movepi8_mask(bsn_avx512_lanes(_mm512_movm_epi8(m)));
}
BSN_INLINE BSN_AVX512 void bsn_avx512_to_w(__mmask16 w[4], __mmask64 m)
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 4; j++) w[j] = (__mmask16)_pext_u64(m, UINT64_C(0x000F000F000F000F) << (4 * j));
}
BSN_INLINE BSN_AVX512 bsn_avx512_t bsn_avx512_tables(const bsn_log *x, unsigned find)
{
    bsn_avx512_t t;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 6; j++) t.table[j / 2][j % 2] = _mm512_loadu_si512((find ? x->find : x->bytes)[j / 2] + 64 * (j % 2));
    return t;
}
BSN_INLINE BSN_AVX512 void bsn_avx512_of_tables(__m512i out[3], const bsn_avx512_t *t, __m512i index, size_t end)
{
    unsigned j;
    (void)end;
    BSN_UNROLL
    for (j = 0; j < 3; j++) out[j] = _mm512_permutex2var_epi8(t->table[j][0], index, t->table[j][1]);
}
/* Of a table of 128, each lane's lowest byte in all of its own. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_entries(const bsn_avx512_t *t, const uint32_t *table, __m512i index, int few)
{
    uint32_t k[16];
    __m512i x[3];
    if (few) {
        const __m512i lowest = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
        bsn_avx512_of_tables(x, t, _mm512_shuffle_epi8(index, lowest), 128);
        x[0] = _mm512_mask_mov_epi8(x[0], UINT64_C(0x2222222222222222), x[1]);
        return _mm512_maskz_mov_epi8(UINT64_C(0x7777777777777777), _mm512_mask_mov_epi8(x[0], UINT64_C(0x4444444444444444), x[2]));
    }
    _mm512_storeu_si512(k, index);
    return _mm512_setr_epi32((int)table[k[0]], (int)table[k[1]], (int)table[k[2]], (int)table[k[3]], (int)table[k[4]],
                             (int)table[k[5]], (int)table[k[6]], (int)table[k[7]], (int)table[k[8]], (int)table[k[9]],
                             (int)table[k[10]], (int)table[k[11]], (int)table[k[12]], (int)table[k[13]], (int)table[k[14]],
                             (int)table[k[15]]);
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_append(__m512i x, __m512i v, __m128i up, __m128i down)
{
    return (void)down, _mm512_shldv_epi32(x, v, _mm512_set1_epi32(_mm_cvtsi128_si32(up)));
}
/* A quotient rounded up, then to the next integer, is the quotient rounded up, as it is below 2^24. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_quotients(__m512i d, __m512i exactly, __m512i h)
{
    const __m512 q = _mm512_div_round_ps(_mm512_castsi512_ps(exactly), _mm512_castsi512_ps(h),
                                         _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    (void)d;
    return _mm512_cvt_roundps_epi32(q, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}

/* ---- avx512: trees and masks ---- */

BSN_INLINE BSN_AVX512 bsn_avx512_s bsn_avx512_set(const bsn_avx512_k *c, uint64_t w)
{
    const bsn_avx512_s s = { w };
    (void)c;
    return s;
}
BSN_INLINE BSN_AVX512 bsn_avx512_s bsn_avx512_slot(const bsn_avx512_k *c, const bsn_avx512_s s[4], unsigned k, unsigned slot, uint64_t bits)
{
    (void)s, (void)k, (void)slot;
    return bsn_avx512_set(c, bits);
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_unset(__m512i x, bsn_avx512_s s, unsigned i)
{
    (void)s, (void)i;
    return x;
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_blend(bsn_avx512_s s, unsigned i, __m512i x, __m512i y)
{
    (void)i;
    return _mm512_mask_blend_epi8(s.bits, x, y);
}
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_bit(__m512i x, unsigned b)
{
    return b == 7 ? _mm512_movepi8_mask(x) : _mm512_test_epi8_mask(x, _mm512_set1_epi8((char)(1 << b)));
}
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_digit(__m512i x, bsn_avx512_s s, unsigned i, unsigned b)
{
    (void)i;
    return _mm512_mask_add_epi8(x, s.bits, x, _mm512_set1_epi8((char)(1 << b)));
}
BSN_INLINE BSN_AVX512 void bsn_avx512_look_up(__m512i y[1], const __m512i index[1], const uint8_t *table)
{
    const __mmask64 outside = _mm512_cmpgt_epu8_mask(index[0], _mm512_set1_epi8(63));
    y[0] = _mm512_xor_si512(y[0], _mm512_maskz_permutexvar_epi8(~outside, index[0], _mm512_loadu_si512(table)));
}

/* ---- avx512: counts, comparisons ---- */

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_add_ones(__m512i sum, __m512i x) { return _mm512_add_epi64(sum, _mm512_popcnt_epi64(x)); }
/* (gcc 12 with -O1 -fsanitize=undefined stores narrow masks and loads them as 64 bits; not from a
 * register.) */
BSN_INLINE BSN_AVX512 __mmask64 bsn_avx512_differ(unsigned width, const uint8_t *a, const uint8_t *b)
{
    uint64_t m = 0;
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) {
        const __m512i x = _mm512_loadu_si512(a + 64 * i), y = _mm512_loadu_si512(b + 64 * i);
        uint32_t some;
        if (width == 1) return _mm512_cmpneq_epi8_mask(x, y);
        some = width == 2 ? _mm512_cmpneq_epi16_mask(x, y) : width == 4 ? _mm512_cmpneq_epi32_mask(x, y)
             : (uint32_t)_mm512_cmpneq_epi64_mask(x, y);
        BSN_OPAQUE("+r", some);
        m |= (uint64_t)some << (64 / width * i);
    }
    return m;
}

#define BSN_T_NAME bsn_avx512
#define BSN_T_UNROLL BSN_UNROLL
#define BSN_T_TARGET BSN_AVX512
#define BSN_T_BYTES 64
#define BSN_T_MASKS 1
#define BSN_T_ACROSS 0
#define BSN_T_RANKS 0
#define BSN_T_CHAINS 0
#define BSN_T_TWIGS 1
#define BSN_T_MM _mm512_
#define BSN_T_SI si512
#define BSN_T_SET64 _mm512_set1_epi64
#include BITSNAP_SIMD_FILE

/* ---- avx512: what it does in its own way ---- */

/* 64 bytes by two loads: what AMD's processors ask for ahead follows them better than one of a line or of
 * parts of two. On Intel's they are one operation more. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_halves(const uint8_t *p)
{
    return _mm512_inserti64x4(_mm512_castsi256_si512(BSN_LOAD256(p)), BSN_LOAD256(p + 32), 1);
}

/* Full blocks of 16 have their keys in registers, as keys lie across lines. */
BSN_INLINE BSN_AVX512 void bsn_avx512_hash_stripes(uint64_t state[8], const uint8_t *p, size_t count, size_t first, int halves)
{
    __m512i a = _mm512_loadu_si512(state), data = _mm512_setzero_si512(), key[16];
    size_t i = first & 15, end, s;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 16; j++) key[j] = _mm512_loadu_si512(bsn_secret + 8 * j);
    for (; count; count -= end - i, p += 64 * (end - i), i = 0) {
        end = bsn_min(16, i + count);
        if (end - i == 16) {
            BSN_UNROLL
            for (j = 0; j < 16; j++) {
                const __m512i x = halves ? bsn_avx512_halves(p + 64 * j) : _mm512_loadu_si512(p + 64 * j);
                bsn_avx512_stripe(&a, &data, &x, &key[j]);
            }
        } else {
            for (s = i; s < end; s++) bsn_avx512_stripe_at(&a, &data, p + 64 * (s - i), bsn_secret + 8 * s);
        }
        bsn_avx512_stripes_end(&a, &data);
        if (end == 16) bsn_avx512_scramble(&a);
    }
    _mm512_storeu_si512(state, a);
}

static BSN_AVX512 void bsn_avx512_hash(uint64_t state[8], const uint8_t *p, size_t count, size_t first)
{
    if (bsn_x86_has() & BSN_IS_INTEL) bsn_avx512_hash_stripes(state, p, count, first, 0);
    else bsn_avx512_hash_stripes(state, p, count, first, 1);
}

/* Bit j of byte i of each 8 becomes bit 7 - i of byte j: an affine product over GF(2) whose vectors are 1, 2,
 * 4, .., and whose matrix, the top row in the last byte, is x. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_transpose_bits(__m512i x)
{
    return _mm512_gf2p8affine_epi64_epi8(_mm512_set1_epi64((long long)UINT64_C(0x8040201008040201)), x, 0);
}

/* The bytes of each 8 turned round, and their bits transposed, byte b of each 8 belongs to bit plane b; byte
 * 7 to that of bit `sign`. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_bits_order(unsigned varying, unsigned sign)
{
    uint64_t from[8];
    unsigned j;
    for (j = 0; j < 8; j++, varying &= varying - 1) {
        const unsigned b = varying ? _tzcnt_u32(varying) : 0;
        from[j] = UINT64_C(0x3830282018100800) + BSN_ONES * (b == sign ? 7 : b);
    }
    return _mm512_loadu_si512(from);
}

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_bits_take64(__m512i x, __m512i order)
{
    const __m512i round = _mm512_set_epi64(0x38393A3B3C3D3E3F, 0x3031323334353637, 0x28292A2B2C2D2E2F,
                                           0x2021222324252627, 0x18191A1B1C1D1E1F, 0x1011121314151617,
                                           0x08090A0B0C0D0E0F, 0x0001020304050607);
    return _mm512_permutexvar_epi8(order, bsn_avx512_transpose_bits(_mm512_permutexvar_epi8(round, x)));
}

/* Byte b of each 8 of the planes goes to byte 7 - b, so that transposing puts it to bit b; of bit `sign`, to
 * bit 7. Where the bytes come from; 0x80 and more: nowhere. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_bytes_order(unsigned varying, unsigned sign)
{
    const __m512i eighth = _mm512_set_epi64(7 * BSN_ONES, 6 * BSN_ONES, 5 * BSN_ONES, 4 * BSN_ONES, 3 * BSN_ONES, 2 * BSN_ONES,
                                            BSN_ONES, 0);
    uint64_t from = 0x80 * BSN_ONES, next = 0;
    for (; varying; varying &= varying - 1, next += 8) {
        const unsigned b = _tzcnt_u32(varying);
        from ^= (next ^ 0x80) << (56 - 8 * (b == sign ? 7 : b));
    }
    return _mm512_add_epi8(_mm512_set1_epi64((long long)from), eighth);
}

BSN_INLINE BSN_AVX512 __m512i bsn_avx512_bits_put64(__m512i bits, __m512i order, uint64_t nowhere)
{
    return bsn_avx512_transpose_bits(_mm512_maskz_permutexvar_epi8(~nowhere, order, bits));
}

/* A carry-save adder: low + x + y = low' + 2 * the result, in each bit. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_carry(__m512i *low, __m512i x, __m512i y)
{
    const __m512i carry = _mm512_ternarylogic_epi64(*low, x, y, 0xE8);
    *low = _mm512_ternarylogic_epi64(*low, x, y, 0x96);
    return carry;
}

/* In how many of each 8 bytes bit j is set: byte j. */
BSN_INLINE BSN_AVX512 __m512i bsn_avx512_tally(__m512i x) { return _mm512_popcnt_epi8(bsn_avx512_transpose_bits(x)); }

/* adds bytes j of each 8, times a weight, to h[j] */
BSN_INLINE BSN_AVX512 void bsn_avx512_tally_add(uint32_t h[8], __m512i x, int weight)
{
    const __m512i y = _mm512_add_epi16(_mm512_cvtepu8_epi16(_mm512_castsi512_si256(x)),
                                       _mm512_cvtepu8_epi16(_mm512_extracti64x4_epi64(x, 1)));
    const __m256i z = _mm256_add_epi16(_mm512_castsi512_si256(y), _mm512_extracti64x4_epi64(y, 1));
    const __m256i sum = _mm256_cvtepu16_epi32(_mm_add_epi16(_mm256_castsi256_si128(z), _mm256_extracti128_si256(z, 1)));
    BSN_STORE256(h, _mm256_add_epi32(BSN_LOAD256(h), _mm256_mullo_epi32(sum, _mm256_set1_epi32(weight))));
}

/* Adds the symbols of 4 groups, each as a place in `bit`, to sums of bits of weight 1, 2 and 4; up to 16
 * times, as a tally adds at most 8 to each byte of fours. */
BSN_INLINE BSN_AVX512 void bsn_avx512_count4(__m512i *ones, __m512i *twos, __m512i *fours, const __m512i x[4], __m512i bit)
{
    const __m512i a = bsn_avx512_carry(ones, _mm512_permutexvar_epi8(x[0], bit), _mm512_permutexvar_epi8(x[1], bit));
    const __m512i b = bsn_avx512_carry(ones, _mm512_permutexvar_epi8(x[2], bit), _mm512_permutexvar_epi8(x[3], bit));
    *fours = _mm512_add_epi8(*fours, bsn_avx512_tally(bsn_avx512_carry(twos, a, b)));
}

BSN_INLINE BSN_AVX512 void bsn_avx512_count_end(uint32_t h[8], __m512i ones, __m512i twos, __m512i fours)
{
    bsn_avx512_tally_add(h, fours, 4);
    bsn_avx512_tally_add(h, bsn_avx512_tally(twos), 2);
    bsn_avx512_tally_add(h, bsn_avx512_tally(ones), 1);
}

/* Counts of 8 * parts symbols (at most 56) from `base` on: a look-up makes of each symbol one bit in the byte
 * of its part, bits are added by carry-save adders, and carries of weight 4 are tallied. Other symbols have
 * an index of 8 * parts or more, up to 63, which makes no bit; they are compressed and counted one by one. h
 * has BSN_WINDOWED counts. */
BSN_INLINE BSN_AVX512 void bsn_avx512_histogram_window(uint32_t *h, const uint8_t *list, size_t n, unsigned base,
                                                       uint8_t *others, unsigned parts)
{
    const __m512i first = _mm512_set1_epi8((char)base), only64 = _mm512_set1_epi8((char)0xC0);
    const __m512i last = _mm512_set1_epi8((char)(8 * parts - 1));
    __m512i bit[8];
    unsigned p, j;
    BSN_UNROLL
    for (p = 0; p < parts; p++)
        bit[p] = _mm512_maskz_set1_epi64((__mmask8)(1u << p), (long long)UINT64_C(0x8040201008040201));
    while (n >= 256) {
        const size_t m = bsn_min(n / 256, 16) * 256;
        __m512i ones[8], twos[8], fours[8];
        size_t i, k = 0;
        BSN_UNROLL
        for (p = 0; p < parts; p++) ones[p] = twos[p] = fours[p] = _mm512_setzero_si512();
        for (i = 0; i < m; i += 256) {
            __m512i x[4];
            BSN_UNROLL
            for (j = 0; j < 4; j++) {
                const __m512i y = _mm512_loadu_si512(list + i + 64 * j), place = _mm512_sub_epi8(y, first);
                const uint64_t w = _mm512_cmpgt_epu8_mask(place, last);
                if (BSN_UNLIKELY(w != 0)) {
                    _mm512_storeu_si512(others + k, bsn_avx512_compress(1, w, y));
                    k += bsn_x86_ones(w);
                }
                x[j] = _mm512_adds_epu8(place, only64);
            }
            BSN_UNROLL
            for (p = 0; p < parts; p++) bsn_avx512_count4(&ones[p], &twos[p], &fours[p], x, bit[p]);
        }
        BSN_UNROLL
        for (p = 0; p < parts; p++) bsn_avx512_count_end(h + base + 8 * p, ones[p], twos[p], fours[p]);
        for (i = 0; i < k; i++) h[others[i]]++;
        list += m;
        n -= m;
    }
    for (; n; n--) h[*list++]++;
}

/* Splits and hashes groups while they are in registers. Results equal those of the single kernels. */
BSN_INLINE BSN_AVX512 int bsn_avx512_start_field(const bsn_start *t, const uint8_t *elements, size_t n, unsigned width,
                                                 unsigned kind)
{
    /* of the symbol below the sign, which comes before it */
    const unsigned top = width - 1, shift = 7 - t->field->symbol_bits % 8;
    const int below = width == 4 && t->bits; /* these are of the plane below the top one */
    const unsigned size = kind == BSN_FIELD_INSIDE || below ? 8u * bsn_ones_in[t->varying] : 0;
    const uint64_t live = (UINT64_C(1) << size) - 1; /* some bit is not among them */
    const __m512i order = size ? bsn_avx512_bits_order(t->varying, shift) : _mm512_setzero_si512();
    const __m512i value = _mm512_set1_epi8((char)t->value), fixed = _mm512_set1_epi8((char)~t->varying);
    const __m512i symbol = _mm512_set1_epi8((char)(0x7F >> shift));
    const __m128i down = _mm_cvtsi32_si128((int)shift);
    uint8_t *plane[8], *bits = t->bits;
    const uint8_t *ahead = bsn_ahead_next(t->ahead);
    const size_t apart = t->ahead->apart;
    __m512i a[8], places[8], held[8], other = _mm512_setzero_si512();
    size_t i;
    unsigned j, q, s;
    int lines[8], past = t->past, asking = t->ahead_lines != 0, some = below;
    BSN_OPAQUE("+m", past);
    BSN_OPAQUE("+m", some);
    BSN_OPAQUE("+m", asking); /* looked at for each group: one loop, where compilers would make one for each
                                 answer */
    BSN_UNROLL
    for (j = 0; j < top; j++) {
        const unsigned before = t->tail[j] ? (uintptr_t)t->plane[j] & 63 : 0;
        lines[j] = t->tail[j] != NULL;
        BSN_OPAQUE("+m", lines[j]); /* the same for each line */
        plane[j] = t->plane[j] - before;
        places[j] = _mm512_add_epi8(_mm512_loadu_si512(bsn_avx512_in_order), _mm512_set1_epi8((char)(64 - before)));
        held[j] = t->tail[j] ? _mm512_loadu_si512(t->tail[j]) : _mm512_setzero_si512();
    }
    plane[top] = t->plane[top];
    BSN_UNROLL
    for (j = 0; j < top; j++) a[j] = t->state[j] ? _mm512_loadu_si512(t->state[j]) : _mm512_setzero_si512();
    for (i = 0; i < n; i += 1024) {
        for (s = 0; s < 16; s += 4) {
            BSN_UNROLL
            for (q = 0; q < 4; q++, elements += 64 * width) {
                const __m512i key = _mm512_loadu_si512(bsn_secret + 8 * (s + q));
                __m512i v[8];
                if (asking) {
                    const unsigned line = s + q; /* with each group two lines, or with every second one */
                    if (width == 4) {
                        BSN_PREFETCH(ahead + line / 4 * 128 + q * apart);
                        BSN_PREFETCH(ahead + line / 4 * 128 + q * apart + 64);
                    } else if (q % 2 == 0) {
                        BSN_PREFETCH(ahead + line / 8 * 64 + line / 2 % 4 * apart);
                    }
                    BSN_UNROLL
                    for (j = 0; j < width; j++) BSN_PREFETCH_NEAR(elements + 64 * (j + 32));
                }
                BSN_UNROLL
                for (j = 0; j < width; j++) v[j] = _mm512_loadu_si512(elements + 64 * j);
                if (kind == BSN_FIELD_INSIDE) {
                    bsn_avx512_transpose(v, width);
                    _mm512_mask_storeu_epi8(bits, live, bsn_avx512_bits_take64(v[top], order));
                    bits += size;
                    v[top] = _mm512_and_si512(_mm512_srl_epi16(v[top], down), symbol);
                } else {
                    bsn_avx512_split_rows(t->field, v, width, kind);
                }
                BSN_UNROLL
                for (j = 0; j < width; j++) {
                    uint8_t *to = plane[j] + i + 64 * (s + q);
                    if (width == 4 && j == 2 && BSN_UNLIKELY(some)) {
                        other = _mm512_ternarylogic_epi64(other, _mm512_xor_si512(v[j], value), fixed, 0xF8);
                        _mm512_mask_storeu_epi8(bits, live, bsn_avx512_bits_take64(v[j], order));
                        bits += size;
                        continue;
                    }
                    if (j == top || !lines[j]) {
                        _mm512_storeu_si512(to, v[j]);
                    } else {
                        const __m512i line = _mm512_permutex2var_epi8(held[j], places[j], v[j]);
                        if (past) { /* between these, as clang would make one usual store of both */
                            BSN_APART;
                            _mm512_stream_si512((__m512i *)(void *)to, line);
                            BSN_APART;
                        } else {
                            _mm512_store_si512((__m512i *)(void *)to, line);
                        }
                        held[j] = v[j];
                    }
                    if (j < top && t->state[j]) { /* there are no registers left for sums of the data */
                        __m512i data = _mm512_setzero_si512();
                        bsn_avx512_stripe(&a[j], &data, &v[j], &key);
                        bsn_avx512_stripes_end(&a[j], &data);
                    }
                }
            }
        }
        ahead += width == 4 ? 512 : 128;
        BSN_UNROLL
        for (j = 0; j < top; j++)
            if (t->state[j]) bsn_avx512_scramble(&a[j]);
    }
    BSN_UNROLL
    for (j = 0; j < top; j++)
        if (t->state[j]) _mm512_storeu_si512(t->state[j], a[j]);
    BSN_UNROLL
    for (j = 0; j < top; j++)
        if (t->tail[j]) _mm512_storeu_si512(t->tail[j], held[j]);
    return below && _mm512_test_epi8_mask(other, other) ? BSN_START_DIFFERS : 1;
}

static BSN_AVX512 int bsn_avx512_start(const bsn_start *t, const uint8_t *elements, size_t n)
{
    switch (16 * t->field->width + bsn_field_kind(t->field)) {
    case 16 * 2 + BSN_FIELD_ACROSS: return bsn_avx512_start_field(t, elements, n, 2, BSN_FIELD_ACROSS);
    case 16 * 2 + BSN_FIELD_INSIDE: return bsn_avx512_start_field(t, elements, n, 2, BSN_FIELD_INSIDE);
    case 16 * 4 + BSN_FIELD_ACROSS: return bsn_avx512_start_field(t, elements, n, 4, BSN_FIELD_ACROSS);
    default: return 0;
    }
}

/* Where 16 (32) neighbouring symbols hold nearly all, or 56 more than half; the scratch has room for 4096 +
 * 64 others. */
static BSN_AVX512 void bsn_avx512_histogram(uint32_t h[256], const uint8_t *list, size_t n, uint32_t *scratch)
{
    uint32_t *t = scratch + 1056;
    unsigned base = 0, inside = 0, parts = 0;
    if (n >= 4096) {
        base = bsn_sampled_window(list, n, 16, scratch, &inside);
        parts = inside >= 253 ? 2 : 0;
        if (!parts) {
            base = bsn_best_window(scratch, 32, &inside);
            parts = inside >= 250 ? 4 : 0;
        }
        if (!parts) {
            base = bsn_best_window(scratch, 56, &inside);
            parts = inside >= 144 ? 7 : 0;
        }
    }
    if (!parts) {
        bsn_scalar_histogram(h, list, n, scratch);
        return;
    }
    memset(t, 0, BSN_WINDOWED * sizeof *t);
    if (parts == 2) bsn_avx512_histogram_window(t, list, n, base, (uint8_t *)scratch, 2);
    else if (parts == 4) bsn_avx512_histogram_window(t, list, n, base, (uint8_t *)scratch, 4);
    else bsn_avx512_histogram_window(t, list, n, base, (uint8_t *)scratch, 7);
    bsn_windowed_end(h, t);
}

/* With every second group: asks for planes of later ones, to come to the first level of the cache, and for
 * what lies ahead. */
BSN_INLINE BSN_AVX512 void bsn_avx512_finish_ask(const bsn_finish *t, size_t group, unsigned width)
{
    const size_t line = group * width;
    const uint8_t *ahead = bsn_ahead_next(t->ahead) + line / 8 * 64;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < width - 1; j++) {
        BSN_PREFETCH_NEAR(t->plane[j] + 64 * (group + 12));
        BSN_PREFETCH_NEAR(t->plane[j] + 64 * (group + 13));
    }
    if (line >= t->ahead_lines) return;
    BSN_UNROLL
    for (j = 0; j < 2 * width; j++) BSN_PREFETCH(ahead + (line % 8 + j) * t->ahead->apart);
}

/* Merges, hashes and joins a group while it is in registers. Results equal those of the single kernels. 16
 * stripes take one round of the secret. Only whole lines can be streamed: each is made of the end of the last
 * store and the beginning of the next. The caller's part of the very first line is stored as usual. */
BSN_INLINE BSN_AVX512 void bsn_avx512_finish_node(const bsn_finish *t, uint8_t *elements, size_t first, size_t n,
                                                  unsigned k, unsigned lists, unsigned width, unsigned kind)
{
    const unsigned top = width - 1, e = t->field->symbol_bits, sign = 7 - e % 8;
    const int below = width == 4 && t->bits; /* these are of the plane below the top one */
    const unsigned size = kind == BSN_FIELD_INSIDE || below ? 8u * bsn_ones_in[t->varying] : 0;
    const uint64_t live = (UINT64_C(1) << size) - 1; /* some bit is not among them */
    const __m128i up = _mm_cvtsi32_si128((int)sign);
    const unsigned before = t->tail ? (uintptr_t)elements & 63 : 0;
    const __m512i put = size ? bsn_avx512_bytes_order(t->varying, sign) : _mm512_setzero_si512();
    const uint64_t nowhere = _mm512_movepi8_mask(put);
    const __m512i value = _mm512_set1_epi8((char)(t->value >> sign << 7 | (t->value & ((1u << sign) - 1))));
    int stream = t->tail != NULL, across = before != 0;
    const __m512i order = _mm512_add_epi8(_mm512_loadu_si512(bsn_avx512_in_order), _mm512_set1_epi8((char)(64 - before)));
    const uint8_t *raw[8], *bits = t->bits;
    bsn_avx512_merging node;
    __m512i a[8], data[8], held = across ? _mm512_loadu_si512(t->tail) : _mm512_setzero_si512();
    int hashed[8], some = below;
    size_t i, s;
    unsigned j;
    bsn_avx512_merge_begin(&node, t->node, first, lists, 0);
    BSN_OPAQUE("+m", stream); /* asked for each line: one loop, where compilers would make one for each
                                 answer */
    BSN_OPAQUE("+m", across);
    BSN_OPAQUE("+m", some);
    elements -= before;
    BSN_UNROLL
    for (j = 0; j < top; j++) {
        raw[j] = t->plane[j];
        hashed[j] = t->state[j] != NULL;
        BSN_OPAQUE("+m", hashed[j]);
        a[j] = hashed[j] ? _mm512_loadu_si512(t->state[j]) : _mm512_setzero_si512();
        data[j] = _mm512_setzero_si512();
    }
    for (i = 0; i < n; i += 1024) {
        for (s = 0; s < 16; s++, elements += 64 * width) {
            const __m512i key = _mm512_loadu_si512(bsn_secret + 8 * s);
            __m512i v[8];
            if (s % 2 == 0) {
                size_t group = i / 64 + s;
                BSN_OPAQUE("+r", group); /* keeps it out of registers until here */
                bsn_avx512_finish_ask(t, group, width);
            }
            bsn_avx512_merge64(&node, &v[top], k, lists, 0);
            BSN_UNROLL
            for (j = 0; j < top; j++) {
                if (width == 4 && j == 2 && BSN_UNLIKELY(some)) {
                    v[j] = _mm512_or_si512(value, bsn_avx512_bits_put64(_mm512_maskz_loadu_epi8(live, bits), put, nowhere));
                    bits += size;
                    continue;
                }
                v[j] = _mm512_loadu_si512(raw[j] + i + 64 * s);
                if (hashed[j]) bsn_avx512_stripe(&a[j], &data[j], &v[j], &key);
            }
            if (kind == BSN_FIELD_INSIDE) { /* symbols are below 2^e: nothing crosses into the next byte */
                v[top] = _mm512_ternarylogic_epi64(
                    _mm512_sll_epi16(v[top], up), value,
                    bsn_avx512_bits_put64(_mm512_maskz_loadu_epi8(live, bits), put, nowhere), 0xFE);
                bits += size;
                bsn_avx512_transpose(v, width);
            } else {
                bsn_avx512_join_rows(t->field, v, width, kind);
            }
            BSN_UNROLL
            for (j = 0; j < width; j++) {
                if (BSN_LIKELY(!stream)) {
                    _mm512_storeu_si512(elements + 64 * j, v[j]);
                } else {
                    __m512i x = v[j];
                    if (across) {
                        x = _mm512_permutex2var_epi8(held, order, x);
                        held = v[j];
                    }
                    _mm512_stream_si512((__m512i *)(void *)(elements + 64 * j), x);
                }
            }
        }
        BSN_UNROLL
        for (j = 0; j < top; j++) {
            bsn_avx512_stripes_end(&a[j], &data[j]);
            bsn_avx512_scramble(&a[j]);
        }
    }
    if (across) _mm512_storeu_si512(t->tail, held);
    bsn_avx512_merge_end(&node, t->node, lists, 0);
    BSN_UNROLL
    for (j = 0; j < top; j++)
        if (t->state[j]) _mm512_storeu_si512(t->state[j], a[j]);
}

BSN_INLINE BSN_AVX512 int bsn_avx512_finish_field(const bsn_finish *t, uint8_t *elements, size_t first, size_t n,
                                                  unsigned width, unsigned kind)
{
    switch (8 * t->node->bits + t->node->lists) { /* the roots that there are of floats */
#define BSN_ROOT(k, lists) case 8 * k + lists: bsn_avx512_finish_node(t, elements, first, n, k, lists, width, kind); return 1;
        BSN_ROOT(1, 1) BSN_ROOT(1, 2) BSN_ROOT(2, 1) BSN_ROOT(2, 2) BSN_ROOT(2, 3) BSN_ROOT(2, 4) BSN_ROOT(3, 2) BSN_ROOT(3, 3)
#undef BSN_ROOT
    default: return 0;
    }
}

static BSN_AVX512 int bsn_avx512_finish(const bsn_finish *t, uint8_t *elements, size_t first, size_t n)
{
    switch (16 * t->field->width + bsn_field_kind(t->field)) {
    case 16 * 2 + BSN_FIELD_ACROSS: return bsn_avx512_finish_field(t, elements, first, n, 2, BSN_FIELD_ACROSS);
    case 16 * 2 + BSN_FIELD_INSIDE: return bsn_avx512_finish_field(t, elements, first, n, 2, BSN_FIELD_INSIDE);
    case 16 * 4 + BSN_FIELD_ACROSS: return bsn_avx512_finish_field(t, elements, first, n, 4, BSN_FIELD_ACROSS);
    default: return 0;
    }
}

/* Counts n words of these symbols. Their places, found 16 at a time, replace the words: what has just
 * been stored is better not read at once. Rounding towards 0 keeps exponents of words above 2^24. */
BSN_INLINE BSN_AVX512 void bsn_avx512_count_tokens(uint32_t *count, uint8_t *words, const uint8_t *symbols, size_t n,
                                                   unsigned width)
{
    size_t i;
    for (i = 0; i < n; i += 16) {
        const __m512i s = _mm512_cvtepu8_epi32(BSN_LOAD128(symbols + i));
        const __m512i x = width == 2 ? _mm512_cvtepu16_epi32(BSN_LOAD256(words + 2 * i)) : _mm512_loadu_si512(words + 4 * i);
        const __m512 f = _mm512_cvt_roundepu32_ps(x, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
        const __m512i bits = _mm512_srli_epi32(_mm512_castps_si512(f), 22);
        const __m512i token = _mm512_mask_sub_epi32(x, _mm512_cmpgt_epu32_mask(x, _mm512_set1_epi32(15)), bits,
                                                    _mm512_set1_epi32(BSN_TOKENS_BELOW));
        const __m512i place = _mm512_add_epi32(token, _mm512_add_epi32(_mm512_slli_epi32(s, 7), _mm512_slli_epi32(s, 3)));
        if (width == 2) BSN_STORE256(words + 2 * i, _mm512_cvtepi32_epi16(place));
        else _mm512_storeu_si512(words + 4 * i, place);
    }
    for (i = 0; i + 8 / width <= n; i += 8 / width) { /* several places at once: fewer loads */
        const uint64_t x = bsn_load64(words + i * width);
        if (width == 2) {
            count[x & 0xFFFF]++;
            count[x >> 16 & 0xFFFF]++;
            count[x >> 32 & 0xFFFF]++;
            count[x >> 48]++;
        } else {
            count[x & 0xFFFFFFFF]++;
            count[x >> 32]++;
        }
    }
    for (; i < n; i++) count[bsn_element_load(words + i * width, width)]++;
}

/* Makes the symbols of some groups, and appends their words above 0, with their symbols, to the n collected
 * ones. */
BSN_INLINE BSN_AVX512 size_t bsn_avx512_census_groups(uint8_t *some, uint8_t *of, size_t n, uint8_t *symbols, const uint8_t *words,
                                                      const uint8_t *elements, unsigned width, unsigned down, unsigned groups)
{
    const unsigned lanes = 64 / width;
    const __m512i mask = _mm512_set1_epi8((char)(0xFF >> down));
    __m512i x[8], s[4];
    uint64_t set[4], any = 0;
    unsigned i, g;
    BSN_UNROLL
    for (g = 0; g < groups; g++) {
        s[g] = bsn_avx512_keys(width, elements + 64 * width * g);
        if (down) s[g] = _mm512_and_si512(_mm512_srl_epi16(s[g], _mm_cvtsi32_si128((int)down)), mask);
        _mm512_storeu_si512(symbols + 64 * g, s[g]);
        set[g] = 0;
        BSN_UNROLL
        for (i = 0; i < width; i++) {
            const __m512i y = x[g * width + i] = _mm512_loadu_si512(words + 64 * (g * width + i));
            set[g] |= (uint64_t)(width == 2 ? _mm512_test_epi16_mask(y, y) : _mm512_test_epi32_mask(y, y)) << lanes * i;
        }
        any |= set[g];
    }
    if (!any) return n;
    BSN_UNROLL
    for (g = 0; g < groups; g++) {
        _mm512_storeu_si512(of + n, bsn_avx512_compress(1, set[g], s[g]));
        BSN_UNROLL
        for (i = 0; i < width; i++) {
            const uint64_t part = (set[g] >> lanes * i) & (~UINT64_C(0) >> (64 - lanes));
            _mm512_storeu_si512(some + n * width, bsn_avx512_compress(width, part, x[g * width + i]));
            n += bsn_x86_ones(part);
        }
    }
    return n;
}

/* Counts the collected words once there are enough. Passes over eight vectors of words at once if all are 0:
 * a branch for fewer would be mispredicted too often. */
BSN_INLINE BSN_AVX512 void bsn_avx512_census_width(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements,
                                                   size_t groups, unsigned width)
{
    const unsigned down = x->exponent.shift - (8 * width - 9), once = 8 / width;
    uint32_t *count = (uint32_t *)(void *)x->token;
    uint8_t some[(64 + 128) * 4 + 64], of[64 + 256 + 64]; /* words, symbols */
    size_t n = 0, whole;
    while (groups) {
        const unsigned m = groups < once ? 1 : once;
        n = m > 1 ? bsn_avx512_census_groups(some, of, n, symbols, words, elements, width, down, once)
                  : bsn_avx512_census_groups(some, of, n, symbols, words, elements, width, down, 1);
        groups -= m;
        symbols += 64 * m;
        words += 64 * m * width;
        elements += 64 * m * width;
        if (n <= 64) continue;
        whole = n & ~(size_t)15;
        bsn_avx512_count_tokens(count, some, of, whole, width);
        _mm512_storeu_si512(some, _mm512_loadu_si512(some + whole * width)); /* fewer than 16 */
        BSN_STORE128(of, BSN_LOAD128(of + whole));
        n -= whole;
    }
    bsn_avx512_count_tokens(count, some, of, n, width);
}

/* A function of its own, for its stack. */
BSN_FUNCTION BSN_AVX512 void bsn_avx512_census_some(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements,
                                                    size_t groups)
{
    if (x->width == 2) bsn_avx512_census_width(x, symbols, words, elements, groups, 2);
    else bsn_avx512_census_width(x, symbols, words, elements, groups, 4);
}

static BSN_AVX512 void bsn_avx512_census(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements,
                                         size_t groups)
{
    if (x->width == 2 || x->width == 4) bsn_avx512_census_some(x, symbols, words, elements, groups);
    else bsn_scalar_census(x, symbols, words, elements, groups);
}

/* 16 of a group at a time, as nearly always there are no more. */
static BSN_AVX512 size_t bsn_avx512_places(uint32_t *place, const uint8_t *mask, size_t first, size_t groups)
{
    const uint32_t *begin = place;
    const __m512i number = _mm512_loadu_si512(bsn_avx512_in_order);
    for (; groups; groups--, mask += 8, first += 64) {
        const uint64_t m = bsn_load64(mask);
        const __m512i from = _mm512_set1_epi32((int)first);
        const unsigned n = bsn_x86_ones(m);
        __m512i at = bsn_avx512_compress(1, m, number);
        unsigned i = 0;
        do {
            _mm512_storeu_si512(place + i, _mm512_add_epi32(_mm512_cvtepu8_epi32(_mm512_castsi512_si128(at)), from));
            at = _mm512_shuffle_i32x4(at, at, 0x39);
            i += 16;
        } while (BSN_UNLIKELY(i < n));
        place += n;
    }
    return (size_t)(place - begin);
}

#define BSN_SLOT(when, result, name, arguments) BSN_FOR_##when(bsn_avx512_##name),
#define BSN_TABLE(has)                                                                                \
    { "avx512", 4096, BSN_LEAVES | BSN_STARTS | BSN_FINISHES | BSN_FINISHES_BITS | BSN_LOGS | (has), BSN_KERNELS(BSN_SLOT) }
static const bitsnap_kernels bsn_kernels_avx512[3] = { BSN_TABLE(0), BSN_TABLE(BSN_LEAVES_TWIGS),
    BSN_TABLE(BSN_LEAVES_TWIGS | BSN_FINISHES_SENDS) };
#undef BSN_TABLE
#undef BSN_SLOT

#if defined(__GNUC__) && !defined(__clang__) && defined(__cplusplus)
#pragma GCC diagnostic pop
#endif

#endif /* BITSNAP_NO_AVX512 */

/* ---- tables of kernels ---- */

/* whether registers of 32 and 64 bytes can be kept on the stack, see above */
#if (defined(__MINGW32__) || defined(__CYGWIN__)) && !defined(__clang__) && !defined(BITSNAP_MINGW_AVX)
enum { BSN_STACK_SERVES = 0 };
#else
enum { BSN_STACK_SERVES = 1 };
#endif

static const bitsnap_kernels *bsn_simd_kernels(unsigned index)
{
    const unsigned has = bsn_x86_has();
    const unsigned kind = has & BSN_IS_INTEL ? 2 : has & BSN_HAS_BMI2 ? 1 : 0;
    if (!BSN_STACK_SERVES) return NULL;
    if ((has & BSN_HAS_AVX2) && index-- == 0) return &bsn_kernels_avx2[kind];
#ifndef BITSNAP_NO_AVX512
    if ((has & BSN_HAS_AVX512) && index-- == 0) return &bsn_kernels_avx512[kind];
#endif
    return NULL;
}

#undef BSN_TARGET
#undef BSN_AVX2
#undef BSN_AVX512
#undef BSN_LOAD256
#undef BSN_STORE256
#undef BSN_LOAD128
#undef BSN_STORE128
#undef BSN_LOAD64
#undef BSN_STORE64

#endif /* BITSNAP_SIMD_X86 */

#ifdef BITSNAP_SIMD_NEON

/* ================================================================================= AARCH64 */

/* Little-endian only. Every such machine has NEON, so nothing is asked. */

/* ---- neon: vocabulary, by the operators of compilers if they have them. Masks and sets are bytes FF and 0.
 * ---- */

static const uint8_t bsn_neon_bit_of[16] = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };

typedef uint8x16_t bsn_neon_v, bsn_neon_m;
typedef int bsn_neon_n;
typedef struct bsn_neon_s { uint64_t bits; uint8x16_t v[4]; } bsn_neon_s;
typedef struct bsn_neon_k { uint8x16_t none; } bsn_neon_k;
#define BSN_NEON_LANES(x, op, y)                                                                      \
    (width == 1 ? (uint8x16_t)((x)op(y)) : width == 2 ? (uint8x16_t)((uint16x8_t)(x)op(uint16x8_t)(y))              \
     : width == 4 ? (uint8x16_t)((uint32x4_t)(x)op(uint32x4_t)(y)) : (uint8x16_t)((uint64x2_t)(x)op(uint64x2_t)(y)))
#define BSN_NEON_SHIFT(width, x, op, n)                                                               \
    ((width) == 2 ? (uint8x16_t)((uint16x8_t)(x)op n) : (width) == 4 ? (uint8x16_t)((uint32x4_t)(x)op n) : (uint8x16_t)((uint64x2_t)(x)op n))

BSN_INLINE void bsn_neon_end(void) { }
BSN_INLINE bsn_neon_k bsn_neon_begin(void) { const bsn_neon_k k = { vdupq_n_u8(0) }; return k; }
BSN_INLINE uint8x16_t bsn_neon_load(const uint8_t *p) { return vld1q_u8(p); }
BSN_INLINE void bsn_neon_store(uint8_t *p, uint8x16_t x) { vst1q_u8(p, x); }
BSN_INLINE uint8x16_t bsn_neon_all(unsigned width, uint64_t x)
{
    return width == 1 ? vdupq_n_u8((uint8_t)x) : width == 2 ? (uint8x16_t)vdupq_n_u16((uint16_t)x)
         : width == 4 ? (uint8x16_t)vdupq_n_u32((uint32_t)x) : (uint8x16_t)vdupq_n_u64(x);
}
BSN_INLINE uint8x16_t bsn_neon_and(uint8x16_t x, uint8x16_t y) { return x & y; }
BSN_INLINE uint8x16_t bsn_neon_or(uint8x16_t x, uint8x16_t y) { return x | y; }
BSN_INLINE uint8x16_t bsn_neon_xor(uint8x16_t x, uint8x16_t y) { return x ^ y; }
BSN_INLINE uint8x16_t bsn_neon_select(uint8x16_t m, uint8x16_t x, uint8x16_t y) { return vbslq_u8(m, x, y); }
BSN_INLINE uint8x16_t bsn_neon_put(uint8x16_t m, uint8x16_t x, uint8x16_t y) { return vbslq_u8(m, x, y); }
BSN_INLINE uint8x16_t bsn_neon_where(uint8x16_t x, uint8x16_t y) { return vbicq_u8(y, (uint8x16_t)vceqzq_u64((uint64x2_t)x)); }
BSN_INLINE uint8x16_t bsn_neon_add(unsigned width, uint8x16_t x, uint8x16_t y) { return BSN_NEON_LANES(x, +, y); }
BSN_INLINE uint8x16_t bsn_neon_sub(unsigned width, uint8x16_t x, uint8x16_t y) { return BSN_NEON_LANES(x, -, y); }
BSN_INLINE int bsn_neon_number(unsigned n) { return (int)n; }
BSN_INLINE uint8x16_t bsn_neon_shl(unsigned width, uint8x16_t x, int n)
{
    return width == 2 ? (uint8x16_t)vshlq_u16((uint16x8_t)x, vdupq_n_s16((int16_t)n)) : (uint8x16_t)vshlq_u32((uint32x4_t)x, vdupq_n_s32(n));
}
BSN_INLINE uint8x16_t bsn_neon_shr(unsigned width, uint8x16_t x, int n) { return bsn_neon_shl(width, x, -n); }
BSN_INLINE uint8x16_t bsn_neon_signs(unsigned width, uint8x16_t x)
{
    return width == 1 ? (uint8x16_t)((int8x16_t)x >> 7) : width == 2 ? (uint8x16_t)((int16x8_t)x >> 15)
         : width == 4 ? (uint8x16_t)((int32x4_t)x >> 31) : (uint8x16_t)((int64x2_t)x >> 63);
}
BSN_INLINE int bsn_neon_zero(uint8x16_t x) { return !vmaxvq_u8(x); }
BSN_INLINE void bsn_neon_exchange(unsigned unit, uint8x16_t *a, uint8x16_t *b)
{
    const uint8x16_t x = *a, y = *b;
    *a = unit == 1 ? vtrn1q_u8(x, y) : unit == 2 ? (uint8x16_t)vtrn1q_u16((uint16x8_t)x, (uint16x8_t)y)
                                                 : (uint8x16_t)vtrn1q_u32((uint32x4_t)x, (uint32x4_t)y);
    *b = unit == 1 ? vtrn2q_u8(x, y) : unit == 2 ? (uint8x16_t)vtrn2q_u16((uint16x8_t)x, (uint16x8_t)y)
                                                 : (uint8x16_t)vtrn2q_u32((uint32x4_t)x, (uint32x4_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_reach(uint8x16_t x, uint8x16_t y) { return vcgeq_u8(x, y); }
BSN_INLINE unsigned bsn_neon_popcount(uint64_t x) { return vaddv_u8(vcnt_u8(vcreate_u8(x))); }
BSN_INLINE unsigned bsn_neon_ones(uint8x16_t m) { return vaddvq_u8(vshrq_n_u8(m, 7)); }
BSN_INLINE uint64_t bsn_neon_bits(const uint8x16_t m[4])
{
    const uint8x16_t b = vld1q_u8(bsn_neon_bit_of), x = vpaddq_u8(vpaddq_u8(m[0] & b, m[1] & b), vpaddq_u8(m[2] & b, m[3] & b));
    return vgetq_lane_u64((uint64x2_t)vpaddq_u8(x, x), 0);
}
BSN_INLINE bsn_neon_s bsn_neon_set_of(const bsn_neon_k *c, const uint8x16_t m[4])
{
    bsn_neon_s s;
    unsigned q;
    (void)c;
    s.bits = bsn_neon_bits(m);
    BSN_UNROLL
    for (q = 0; q < 4; q++) s.v[q] = m[q];
    return s;
}

/* Bits 16 * quarter .. 16 * quarter + 15 of w: FF where the bit is set, else 0. (Opaque: clang would make two
 * instructions of the test.) */
BSN_INLINE uint8x16_t bsn_neon_spread(uint64_t w, unsigned quarter)
{
    const uint8x8_t low = vdup_n_u8((uint8_t)(2 * quarter)), high = vdup_n_u8((uint8_t)(2 * quarter + 1));
    uint8x16_t x = vtstq_u8(vqtbl1q_u8((uint8x16_t)vdupq_n_u64(w), vcombine_u8(low, high)), vld1q_u8(bsn_neon_bit_of));
    BSN_OPAQUE("+w", x);
    return x;
}

/* loads 8 bytes, and 8 zeros after them */
BSN_INLINE uint8x16_t bsn_neon_low(const uint8_t *p) { return vcombine_u8(vld1_u8(p), vcreate_u8(0)); }

/* Byte j: how many bits are set in bytes 0 .. j of m. */
BSN_INLINE uint64_t bsn_neon_ranks(uint64_t m)
{
    return vget_lane_u64(vreinterpret_u64_u8(vcnt_u8(vcreate_u8(m))), 0) * BSN_ONES;
}

/* byte j - 1, or 0 before the first */
BSN_INLINE size_t bsn_neon_before(uint64_t ones, unsigned j) { return j ? ones >> (8 * j - 8) & 0xFF : 0; }

/* rows of these tables as vectors */
BSN_INLINE uint8x8_t bsn_neon_row(const uint64_t table[], uint64_t m) { return vcreate_u8(table[m]); }

/* Places of elements as places of their bytes: each `width` times, with the byte's number below. (What is
 * outside stays
 * so: 0x70 becomes 0xE0 or 0xC0.) */
BSN_INLINE uint8x16_t bsn_neon_bytes_of(unsigned width, uint8x8_t places)
{
    const uint8x16_t x = vcombine_u8(places, vcreate_u8(0)), twice = vzip1q_u8(x, x);
    return width == 1 ? x : width == 2 ? vsliq_n_u8((uint8x16_t)vdupq_n_u16(0x0100), twice, 1)
                                       : vsliq_n_u8((uint8x16_t)vdupq_n_u32(0x03020100), vzip1q_u8(twice, twice), 2);
}

/* What a list has in its own place goes there 8 elements at a time: the bytes from its cursor on, by a
 * shuffle that leaves other places as they are. */
BSN_INLINE void bsn_neon_expand_list(const bsn_neon_k *c, uint8x16_t x[4], bsn_neon_s s, const uint8_t **list)
{
    const uint64_t ones = bsn_neon_ranks(s.bits);
    unsigned q;
    (void)c;
    BSN_UNROLL
    for (q = 0; q < 4; q++) {
        const uint8_t *a = *list + bsn_neon_before(ones, 2 * q), *b = *list + bsn_neon_before(ones, 2 * q + 1);
        const uint8x16_t next = q < 3 ? vld1q_u8(b) : bsn_neon_low(b); /* to byte 64 at most */
        x[q] = vcombine_u8(vqtbx1_u8(vget_low_u8(x[q]), vld1q_u8(a), bsn_neon_row(bsn_puts, s.bits >> 16 * q & 255)),
                           vqtbx1_u8(vget_high_u8(x[q]), next, bsn_neon_row(bsn_puts, s.bits >> (16 * q + 8) & 255)));
    }
    *list += ones >> 56;
}
BSN_INLINE uint8x16_t bsn_neon_expand_words(unsigned width, uint8x16_t base, uint64_t m, const uint8_t **list)
{
    const uint8x16_t x = vld1q_u8(*list);
    *list += width * (size_t)bsn_ones_in[m];
    return vqtbx1q_u8(base, x, bsn_neon_bytes_of(width, bsn_neon_row(bsn_puts, m)));
}
BSN_INLINE void bsn_neon_compress_list(const uint8x16_t x[4], uint64_t m, uint8_t **list, int half)
{
    const uint64_t ones = bsn_neon_ranks(m);
    unsigned i;
    (void)half;
    BSN_UNROLL
    for (i = 0; i < 8; i++) {
        const uint8x16_t y = i & 1 ? vextq_u8(x[i / 2], x[i / 2], 8) : x[i / 2];
        vst1_u8(*list + bsn_neon_before(ones, i), vqtbl1_u8(y, bsn_neon_row(bsn_picks, m >> 8 * i & 0xFF)));
    }
    *list += ones >> 56;
}
BSN_INLINE void bsn_neon_compress_words(unsigned width, uint8x16_t x, uint64_t m, uint8_t **list)
{
    vst1q_u8(*list, vqtbl1q_u8(x, bsn_neon_bytes_of(width, bsn_neon_row(bsn_picks, m))));
    *list += width * (size_t)bsn_ones_in[m];
}

BSN_INLINE uint8x16_t bsn_neon_widen(unsigned width, const uint8_t *p)
{
    if (width == 1) return vld1q_u8(p);
    if (width == 2) return (uint8x16_t)vmovl_u8(vld1_u8(p));
    return (uint8x16_t)vmovl_u16(vget_low_u16(vmovl_u8(vcreate_u8(bsn_load32(p)))));
}
BSN_INLINE uint8x16_t bsn_neon_lowest(unsigned width, const uint8x16_t x[4])
{
    uint8x16_t y[2];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < 2; i++) y[i] = width == 2 ? x[i] : (uint8x16_t)vuzp1q_u16((uint16x8_t)x[2 * i], (uint16x8_t)x[2 * i + 1]);
    return vuzp1q_u8(y[0], y[1]);
}
BSN_INLINE uint8x16_t bsn_neon_min(unsigned width, uint8x16_t x, uint8x16_t y)
{
    return width == 2 ? (uint8x16_t)vminq_u16((uint16x8_t)x, (uint16x8_t)y) : (uint8x16_t)vminq_u32((uint32x4_t)x, (uint32x4_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_lanes(uint8x16_t x) { return x; }
BSN_INLINE void bsn_neon_unpack(uint8x16_t v[4], uint8x16_t a, uint8x16_t b, uint8x16_t c, uint8x16_t d)
{
    const uint16x8_t low = (uint16x8_t)vzip1q_u8(a, b), high = (uint16x8_t)vzip2q_u8(a, b);
    const uint16x8_t above_low = (uint16x8_t)vzip1q_u8(c, d), above_high = (uint16x8_t)vzip2q_u8(c, d);
    v[0] = (uint8x16_t)vzip1q_u16(low, above_low);
    v[1] = (uint8x16_t)vzip2q_u16(low, above_low);
    v[2] = (uint8x16_t)vzip1q_u16(high, above_high);
    v[3] = (uint8x16_t)vzip2q_u16(high, above_high);
}

/* of bins */
typedef uint8x16_t bsn_neon_w;
typedef const uint8_t (*bsn_neon_t)[128];

BSN_INLINE uint8x16_t bsn_neon_equal_m(uint8x16_t x, uint8x16_t y) { return vceqq_u8(x, y); }
BSN_INLINE uint8x16_t bsn_neon_equal_w(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vceqq_u32((uint32x4_t)x, (uint32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_above_w(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vcgtq_s32((int32x4_t)x, (int32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_reach_w(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vcgeq_u32((uint32x4_t)x, (uint32x4_t)y); }
BSN_INLINE unsigned bsn_neon_bits_w(uint8x16_t m)
{
    static const uint32_t bit[4] = { 1, 2, 4, 8 };
    return vaddvq_u32((uint32x4_t)m & vld1q_u32(bit));
}
BSN_INLINE uint8x16_t bsn_neon_less_f(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vcltq_f32((float32x4_t)x, (float32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_add_f(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vaddq_f32((float32x4_t)x, (float32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_sub_f(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vsubq_f32((float32x4_t)x, (float32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_mul_f(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vmulq_f32((float32x4_t)x, (float32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_div_f(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vdivq_f32((float32x4_t)x, (float32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_fma_f(uint8x16_t x, uint8x16_t y, uint8x16_t z)
{
    return (uint8x16_t)vfmaq_f32((float32x4_t)z, (float32x4_t)x, (float32x4_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_to_f(uint8x16_t x) { return (uint8x16_t)vcvtq_f32_s32((int32x4_t)x); }
BSN_INLINE uint8x16_t bsn_neon_of_f(uint8x16_t x) { return (uint8x16_t)vcvtq_s32_f32((float32x4_t)x); }
BSN_INLINE uint8x16_t bsn_neon_zip_low(unsigned width, uint8x16_t x, uint8x16_t y)
{
    return width == 1 ? vzip1q_u8(x, y) : (uint8x16_t)vzip1q_u16((uint16x8_t)x, (uint16x8_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_zip_high(unsigned width, uint8x16_t x, uint8x16_t y)
{
    return width == 1 ? vzip2q_u8(x, y) : (uint8x16_t)vzip2q_u16((uint16x8_t)x, (uint16x8_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_pack(uint8x16_t x, uint8x16_t y)
{
    return vqmovn_high_u16(vqmovn_u16((uint16x8_t)x), (uint16x8_t)y);
}
BSN_INLINE uint8x16_t bsn_neon_mul(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)((uint16x8_t)x * (uint16x8_t)y); }
BSN_INLINE uint8x16_t bsn_neon_mul_w(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)((uint32x4_t)x * (uint32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_mul_high(uint8x16_t x, uint8x16_t y)
{
    return (uint8x16_t)vuzp2q_u16((uint16x8_t)vmull_u16(vget_low_u16((uint16x8_t)x), vget_low_u16((uint16x8_t)y)),
                                  (uint16x8_t)vmull_high_u16((uint16x8_t)x, (uint16x8_t)y));
}
BSN_INLINE uint8x16_t bsn_neon_product(uint8x16_t x, uint8x16_t y) { return bsn_neon_mul_w(x, y); }
BSN_INLINE uint8x16_t bsn_neon_between(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vabdq_s32((int32x4_t)x, (int32x4_t)y); }
BSN_INLINE uint8x16_t bsn_neon_max(uint8x16_t x, uint8x16_t y) { return (uint8x16_t)vmaxq_u32((uint32x4_t)x, (uint32x4_t)y); }
BSN_INLINE uint64_t bsn_neon_lane_bits(uint8x16_t m)
{
    uint8x16_t x = m & vld1q_u8(bsn_neon_bit_of);
    x = vpaddq_u8(x, x);
    x = vpaddq_u8(x, x);
    return vgetq_lane_u16((uint16x8_t)vpaddq_u8(x, x), 0);
}
BSN_INLINE void bsn_neon_bytes(uint8x16_t b[4], const uint8x16_t v[4])
{
    const uint16x8_t v0 = (uint16x8_t)v[0], v1 = (uint16x8_t)v[1], v2 = (uint16x8_t)v[2], v3 = (uint16x8_t)v[3];
    const uint8x16_t low = (uint8x16_t)vuzp1q_u16(v0, v1), high = (uint8x16_t)vuzp1q_u16(v2, v3);
    const uint8x16_t upper_low = (uint8x16_t)vuzp2q_u16(v0, v1), upper_high = (uint8x16_t)vuzp2q_u16(v2, v3);
    b[0] = vuzp1q_u8(low, high);
    b[1] = vuzp2q_u8(low, high);
    b[2] = vuzp1q_u8(upper_low, upper_high);
    b[3] = vuzp2q_u8(upper_low, upper_high);
}
BSN_INLINE bsn_neon_t bsn_neon_tables(const bsn_log *x, unsigned find) { return find ? x->find : x->bytes; }
BSN_INLINE uint8x16x4_t bsn_neon_table(const uint8_t *p)
{
    const uint8x16x4_t t = { { vld1q_u8(p), vld1q_u8(p + 16), vld1q_u8(p + 32), vld1q_u8(p + 48) } };
    return t;
}
BSN_INLINE void bsn_neon_of_tables(uint8x16_t out[3], const bsn_neon_t *t, uint8x16_t index, size_t end)
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 3; j++) out[j] = vqtbl4q_u8(bsn_neon_table((*t)[j]), index);
    if (end <= 64) return;
    index = vsubq_u8(index, vdupq_n_u8(64));
    BSN_UNROLL
    for (j = 0; j < 3; j++) out[j] = vqtbx4q_u8(out[j], bsn_neon_table((*t)[j] + 64), index);
}
BSN_INLINE uint8x16_t bsn_neon_entries(const bsn_neon_t *t, const uint32_t *table, uint8x16_t index, int few)
{
    const uint64x2_t k = (uint64x2_t)index;
    const uint64_t a = vgetq_lane_u64(k, 0), b = vgetq_lane_u64(k, 1);
    uint32x4_t x = vdupq_n_u32(table[(uint32_t)a]);
    (void)t, (void)few;
    x = vld1q_lane_u32(table + (a >> 32), x, 1);
    x = vld1q_lane_u32(table + (uint32_t)b, x, 2);
    return (uint8x16_t)vld1q_lane_u32(table + (b >> 32), x, 3);
}
BSN_INLINE uint8x16_t bsn_neon_square_sum(uint8x16_t sum, uint8x16_t d, uint8x16_t octaves)
{
    const int32x4_t n = (int32x4_t)octaves;
    /* or shifts would take the lowest bytes of their numbers */
    const uint32x4_t x = (uint32x4_t)d & vcgezq_s32(n);
    const uint64x2_t round = vdupq_n_u64(127);
    const uint64x2_t low = vmlal_u32(round, vget_low_u32(x), vget_low_u32(x)), high = vmlal_high_u32(round, x, x);
    const uint64x2_t shifted = vshlq_u64(low >> 7, vmovl_s32(vget_low_s32(n)));
    return (uint8x16_t)((uint64x2_t)sum + shifted + vshlq_u64(high >> 7, vmovl_high_s32(n)));
}

/* ---- neon: trees and masks ---- */

BSN_INLINE bsn_neon_s bsn_neon_set(const bsn_neon_k *c, uint64_t w)
{
    bsn_neon_s s;
    unsigned q;
    (void)c;
    s.bits = w;
    BSN_UNROLL
    for (q = 0; q < 4; q++) s.v[q] = bsn_neon_spread(w, q);
    return s;
}
BSN_INLINE bsn_neon_s bsn_neon_slot(const bsn_neon_k *c, const bsn_neon_s s[4], unsigned k, unsigned slot, uint64_t bits)
{
    bsn_neon_s of = s[0];
    (void)c, (void)k, (void)slot;
    of.bits = bits; /* all that expand_list needs */
    return of;
}
BSN_INLINE uint8x16_t bsn_neon_unset(uint8x16_t x, bsn_neon_s s, unsigned i)
{
    (void)s, (void)i;
    return x;
}
BSN_INLINE uint8x16_t bsn_neon_blend(bsn_neon_s s, unsigned i, uint8x16_t x, uint8x16_t y) { return vbslq_u8(s.v[i], y, x); }
BSN_INLINE uint8x16_t bsn_neon_bit(uint8x16_t x, unsigned b) { return vtstq_u8(x, vdupq_n_u8((uint8_t)(1u << b))); }
BSN_INLINE uint8x16_t bsn_neon_digit(uint8x16_t x, bsn_neon_s s, unsigned i, unsigned b)
{
    return vbslq_u8(vdupq_n_u8((uint8_t)(1u << b)), s.v[i], x);
}
BSN_INLINE uint8x16_t bsn_neon_shuffle(uint8x16_t x, uint8x16_t index) { return vqtbl1q_u8(x, index); }
BSN_INLINE uint8x16_t bsn_neon_all16(const uint8_t *p) { return vld1q_u8(p); }
BSN_INLINE uint8x16_t bsn_neon_inside(uint8x16_t index) { return index; }
BSN_INLINE void bsn_neon_look_up(uint8x16_t y[4], const uint8x16_t index[4], const uint8_t *table)
{
    const uint8x16x4_t codes = bsn_neon_table(table);
    unsigned q;
    BSN_UNROLL
    for (q = 0; q < 4; q++) y[q] ^= vqtbl4q_u8(codes, index[q]);
}

/* ---- neon: hashes, counts, comparisons, tokens ---- */

BSN_INLINE uint8x16_t bsn_neon_andnot(uint8x16_t x, uint8x16_t y) { return vbicq_u8(y, x); }
/* The halves of two registers' keys are parted at once. */
BSN_INLINE void bsn_neon_add_products(uint8x16_t a[4], const uint8x16_t key[4])
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 4; j += 2) {
        const uint32x4_t low = vuzp1q_u32((uint32x4_t)key[j], (uint32x4_t)key[j + 1]);
        const uint32x4_t high = vuzp2q_u32((uint32x4_t)key[j], (uint32x4_t)key[j + 1]);
        a[j] = (uint8x16_t)vmlal_u32((uint64x2_t)a[j], vget_low_u32(low), vget_low_u32(high));
        a[j + 1] = (uint8x16_t)vmlal_high_u32((uint64x2_t)a[j + 1], low, high);
    }
}
BSN_INLINE uint8x16_t bsn_neon_multiply(uint8x16_t x, uint32_t by)
{
    const uint64x2_t high = vshlq_n_u64(vmull_u32(vshrn_n_u64((uint64x2_t)x, 32), vdup_n_u32(by)), 32);
    return (uint8x16_t)vmlal_u32(high, vmovn_u64((uint64x2_t)x), vdup_n_u32(by));
}
BSN_INLINE uint8x16_t bsn_neon_swap(uint8x16_t x) { return vextq_u8(x, x, 8); }
BSN_INLINE uint8x16_t bsn_neon_add_ones(uint8x16_t sum, uint8x16_t x)
{
    return (uint8x16_t)vpadalq_u32((uint64x2_t)sum, vpaddlq_u16(vpaddlq_u8(vcntq_u8(x))));
}
BSN_INLINE uint8x16_t bsn_neon_differ(unsigned width, const uint8_t *a, const uint8_t *b)
{
    uint8x16_t x[8];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) {
        const uint8x16_t y = vld1q_u8(a + 16 * i), z = vld1q_u8(b + 16 * i);
        x[i] = BSN_NEON_LANES(y, ==, z);
    }
    BSN_UNROLL
    for (i = 0; i < 4; i++)
        if (width == 8) x[i] = (uint8x16_t)vuzp1q_u32((uint32x4_t)x[2 * i], (uint32x4_t)x[2 * i + 1]);
    return ~(width == 1 ? x[0] : bsn_neon_lowest(width == 2 ? 2 : 4, x));
}
BSN_INLINE uint8x16_t bsn_neon_tokens(const uint8_t *words)
{
    const uint32x4_t x = vmovl_u16((uint16x4_t)vld1_u8(words)), bits = (uint32x4_t)vcvtq_f32_u32(x) >> 22;
    return (uint8x16_t)vbslq_u32(vcgtq_u32(x, vdupq_n_u32(15)), vsubq_u32(bits, vdupq_n_u32(BSN_TOKENS_BELOW)), x);
}

#define BSN_T_NAME bsn_neon
#define BSN_T_UNROLL
#define BSN_T_TARGET
#define BSN_T_BYTES 16
#define BSN_T_MASKS 0
#define BSN_T_ACROSS 0
#define BSN_T_RANKS 0
#define BSN_T_CHAINS 0
#define BSN_T_TWIGS 0
#define BSN_T_SHL(width, x, n) BSN_NEON_SHIFT(width, x, <<, n)
#define BSN_T_SHR(width, x, n) BSN_NEON_SHIFT(width, x, >>, n)
#include BITSNAP_SIMD_FILE

/* the portable ones */
#define bsn_neon_start bsn_scalar_start
#define bsn_neon_finish bsn_scalar_finish
#define bsn_neon_places bsn_scalar_places
#define BSN_SLOT(when, result, name, arguments) BSN_FOR_##when(bsn_neon_##name),
static const bitsnap_kernels bsn_kernels_neon = { "neon", 2048, BSN_LEAVES | BSN_LEAVES_LISTS | BSN_LOGS, BSN_KERNELS(BSN_SLOT) };
#undef BSN_SLOT
#undef bsn_neon_start
#undef bsn_neon_finish
#undef bsn_neon_places

/* ---- tables of kernels ---- */

static const bitsnap_kernels *bsn_simd_kernels(unsigned index) { return index ? NULL : &bsn_kernels_neon; }

#endif /* BITSNAP_SIMD_NEON */

#ifdef BSN_MORE_TARGETS
#include BSN_MORE_TARGETS
#endif

#undef BSN_UNROLL
#undef BSN_ROLLED
#undef BSN_OPAQUE
#undef BSN_T
#undef BSN_PASTE
#undef BSN_PASTE_
#undef BSN_T_INLINE
#undef BSN_T_KERNEL
#undef BSN_T_FUNCTION
#undef BSN_NEON_LANES
#undef BSN_NEON_SHIFT
#undef BSN_APART
#undef BSN_LOG_0
#undef BSN_LOG_1
#undef BSN_LOG_2
#undef BSN_LOG_3
#undef BSN_LOG_4
#undef BSN_LOG_5
#undef BSN_LOG_6
#undef BSN_LOG_DOUBT
#undef BSN_WINDOWED
#undef BSN_TOKENS_BELOW
#undef BSN_LEAF_SWITCH
#undef BSN_NODE_CASE
#undef BSN_NODE_SWITCH
#undef BSN_FIELD_CASE
#undef BSN_FIELD_SWITCH

#if defined(BITSNAP_SWITCHED) && (defined(__GNUC__) || defined(__clang__))
#pragma GCC diagnostic pop
#endif
#ifdef BITSNAP_MEMCPY
#pragma pop_macro("memcpy")
#endif
#ifdef BITSNAP_MEMMOVE
#pragma pop_macro("memmove")
#endif
#ifdef BITSNAP_MEMSET
#pragma pop_macro("memset")
#endif

#ifdef __cplusplus
}
#endif

#elif defined(BSN_T_NAME)

/* ================================================================================= KERNELS
 * Once for each target. */

#define BSN_T_N (64 / BSN_T_BYTES)
#define BSN_T_ENTRIES (BSN_T_BYTES == 32 ? 16 : 64) /* of look_up */

#ifdef BSN_T_MM

/* ---- what is in the vocabularies of both targets of X86-64 ---- */

#define BSN_MM(op) BSN_PASTE(BSN_T_MM, op)         /* add_epi8: _mm256_add_epi8 */
#define BSN_SI(op) BSN_PASTE(BSN_MM(op), BSN_T_SI) /* and_: _mm256_and_si256 */
#define BSN_T_SHL(width, x, n)                                                                        \
    ((width) == 2 ? BSN_MM(slli_epi16)(x, n) : (width) == 4 ? BSN_MM(slli_epi32)(x, n) : BSN_MM(slli_epi64)(x, n))
#define BSN_T_SHR(width, x, n)                                                                        \
    ((width) == 2 ? BSN_MM(srli_epi16)(x, n) : (width) == 4 ? BSN_MM(srli_epi32)(x, n) : BSN_MM(srli_epi64)(x, n))
typedef __m128i BSN_T(n);

BSN_T_INLINE BSN_T(v) BSN_T(load)(const uint8_t *p) { return BSN_SI(loadu_)((const BSN_T(v) *)(const void *)p); }
BSN_T_INLINE void BSN_T(store)(uint8_t *p, BSN_T(v) x) { BSN_SI(storeu_)((BSN_T(v) *)(void *)p, x); }
BSN_T_INLINE BSN_T(v) BSN_T(all)(unsigned width, uint64_t x)
{
    switch (width) {
    case 1: return BSN_MM(set1_epi8)((char)x);
    case 2: return BSN_MM(set1_epi16)((short)x);
    case 4: return BSN_MM(set1_epi32)((int)x);
    default: return BSN_T_SET64((long long)x);
    }
}
BSN_T_INLINE BSN_T(v) BSN_T(and)(BSN_T(v) x, BSN_T(v) y) { return BSN_SI(and_)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(or)(BSN_T(v) x, BSN_T(v) y) { return BSN_SI(or_)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(xor)(BSN_T(v) x, BSN_T(v) y) { return BSN_SI(xor_)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(andnot)(BSN_T(v) x, BSN_T(v) y) { return BSN_SI(andnot_)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(add)(unsigned width, BSN_T(v) x, BSN_T(v) y)
{
    return width == 1 ? BSN_MM(add_epi8)(x, y) : width == 2 ? BSN_MM(add_epi16)(x, y)
         : width == 4 ? BSN_MM(add_epi32)(x, y) : BSN_MM(add_epi64)(x, y);
}
BSN_T_INLINE BSN_T(v) BSN_T(sub)(unsigned width, BSN_T(v) x, BSN_T(v) y)
{
    return width == 1 ? BSN_MM(sub_epi8)(x, y) : width == 2 ? BSN_MM(sub_epi16)(x, y)
         : width == 4 ? BSN_MM(sub_epi32)(x, y) : BSN_MM(sub_epi64)(x, y);
}
BSN_T_INLINE BSN_T(v) BSN_T(min)(unsigned width, BSN_T(v) x, BSN_T(v) y)
{
    return width == 2 ? BSN_MM(min_epu16)(x, y) : BSN_MM(min_epu32)(x, y);
}
BSN_T_INLINE void BSN_T(unpack)(BSN_T(v) v[4], BSN_T(v) a, BSN_T(v) b, BSN_T(v) c, BSN_T(v) d)
{
    const BSN_T(v) low = BSN_MM(unpacklo_epi8)(a, b), high = BSN_MM(unpackhi_epi8)(a, b);
    const BSN_T(v) above_low = BSN_MM(unpacklo_epi8)(c, d), above_high = BSN_MM(unpackhi_epi8)(c, d);
    v[0] = BSN_MM(unpacklo_epi16)(low, above_low);
    v[1] = BSN_MM(unpackhi_epi16)(low, above_low);
    v[2] = BSN_MM(unpacklo_epi16)(high, above_high);
    v[3] = BSN_MM(unpackhi_epi16)(high, above_high);
}
/* gcc 12 forgets it, and SSE is up to 4 times as slow then */
BSN_T_INLINE void BSN_T(end)(void) { _mm256_zeroupper(); }
BSN_T_INLINE __m128i BSN_T(number)(unsigned n) { return _mm_cvtsi32_si128((int)n); }
BSN_T_INLINE BSN_T(v) BSN_T(shl)(unsigned width, BSN_T(v) x, __m128i n)
{
    return width == 2 ? BSN_MM(sll_epi16)(x, n) : BSN_MM(sll_epi32)(x, n);
}
BSN_T_INLINE BSN_T(v) BSN_T(shr)(unsigned width, BSN_T(v) x, __m128i n)
{
    return width == 2 ? BSN_MM(srl_epi16)(x, n) : BSN_MM(srl_epi32)(x, n);
}
BSN_T_INLINE void BSN_T(add_products)(BSN_T(v) a[BSN_T_N], const BSN_T(v) key[BSN_T_N])
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) a[j] = BSN_MM(add_epi64)(a[j], BSN_MM(mul_epu32)(key[j], BSN_MM(srli_epi64)(key[j], 32)));
}
BSN_T_INLINE BSN_T(v) BSN_T(multiply)(BSN_T(v) x, uint32_t by)
{
    const BSN_T(v) y = BSN_T(all)(8, by), high = BSN_MM(mul_epu32)(BSN_MM(srli_epi64)(x, 32), y);
    return BSN_MM(add_epi64)(BSN_MM(mul_epu32)(x, y), BSN_MM(slli_epi64)(high, 32));
}
BSN_T_INLINE BSN_T(v) BSN_T(swap)(BSN_T(v) x) { return BSN_MM(alignr_epi8)(x, x, 8); }
BSN_T_INLINE unsigned BSN_T(popcount)(uint64_t x) { return bsn_x86_ones(x); }
BSN_T_INLINE BSN_T(v) BSN_T(shuffle)(BSN_T(v) x, BSN_T(v) index) { return BSN_MM(shuffle_epi8)(x, index); }
BSN_T_INLINE BSN_T(v) BSN_T(all16)(const uint8_t *p) { return BSN_T(sixteen)(_mm_loadu_si128((const __m128i *)(const void *)p)); }

/* of bins */
#define BSN_PS(op, x, y) BSN_SI(castps_)(BSN_MM(op)(BSN_PASTE(BSN_SI(cast), _ps)(x), BSN_PASTE(BSN_SI(cast), _ps)(y)))
BSN_T_INLINE BSN_T(v) BSN_T(add_f)(BSN_T(v) x, BSN_T(v) y) { return BSN_PS(add_ps, x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(sub_f)(BSN_T(v) x, BSN_T(v) y) { return BSN_PS(sub_ps, x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(mul_f)(BSN_T(v) x, BSN_T(v) y) { return BSN_PS(mul_ps, x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(to_f)(BSN_T(v) x) { return BSN_SI(castps_)(BSN_MM(cvtepi32_ps)(x)); }
BSN_T_INLINE BSN_T(v) BSN_T(of_f)(BSN_T(v) x) { return BSN_MM(cvttps_epi32)(BSN_PASTE(BSN_SI(cast), _ps)(x)); }
BSN_T_INLINE BSN_T(v) BSN_T(zip_low)(unsigned width, BSN_T(v) x, BSN_T(v) y)
{
    return width == 1 ? BSN_MM(unpacklo_epi8)(x, y) : BSN_MM(unpacklo_epi16)(x, y);
}
BSN_T_INLINE BSN_T(v) BSN_T(zip_high)(unsigned width, BSN_T(v) x, BSN_T(v) y)
{
    return width == 1 ? BSN_MM(unpackhi_epi8)(x, y) : BSN_MM(unpackhi_epi16)(x, y);
}
BSN_T_INLINE BSN_T(v) BSN_T(pack)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(packus_epi16)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(mul)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(mullo_epi16)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(mul_high)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(mulhi_epu16)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(product)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(madd_epi16)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(between)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(abs_epi32)(BSN_MM(sub_epi32)(x, y)); }
BSN_T_INLINE BSN_T(v) BSN_T(max)(BSN_T(v) x, BSN_T(v) y) { return BSN_MM(max_epu32)(x, y); }
BSN_T_INLINE void BSN_T(bytes)(BSN_T(v) b[4], const BSN_T(v) v[4])
{
    const BSN_T(v) fours = BSN_T(sixteen)(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    BSN_T(v) x[4], y[4];
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < 4; j++) x[j] = BSN_MM(shuffle_epi8)(v[j], fours);
    BSN_UNROLL
    for (j = 0; j < 4; j += 2) {
        y[j] = BSN_MM(unpacklo_epi32)(x[j], x[j + 1]);
        y[j + 1] = BSN_MM(unpackhi_epi32)(x[j], x[j + 1]);
    }
    BSN_UNROLL
    for (j = 0; j < 2; j++) {
        b[2 * j] = BSN_MM(unpacklo_epi64)(y[j], y[j + 2]);
        b[2 * j + 1] = BSN_MM(unpackhi_epi64)(y[j], y[j + 2]);
    }
}
/* Shifts by 64 and more, as those of too low an octave are, leave 0. */
BSN_T_INLINE BSN_T(v) BSN_T(square_sum)(BSN_T(v) sum, BSN_T(v) d, BSN_T(v) octaves)
{
    const BSN_T(v) round = BSN_T(all)(8, 127), odd = BSN_T_SHR(8, d, 32);
    const BSN_T(v) x = BSN_T_SHR(8, BSN_T(add)(8, BSN_MM(mul_epu32)(d, d), round), 7);
    const BSN_T(v) y = BSN_T_SHR(8, BSN_T(add)(8, BSN_MM(mul_epu32)(odd, odd), round), 7);
    sum = BSN_T(add)(8, sum, BSN_MM(sllv_epi64)(x, BSN_T(and)(octaves, BSN_T(all)(8, 0xFFFFFFFF))));
    return BSN_T(add)(8, sum, BSN_MM(sllv_epi64)(y, BSN_T_SHR(8, octaves, 32)));
}

#endif

#if !BSN_T_MASKS

/* ---- what follows where masks are registers ---- */

BSN_T_INLINE BSN_T(m) BSN_T(all_of)(void) { return BSN_T(all)(1, 0xFF); }
BSN_T_INLINE BSN_T(m) BSN_T(andnot_m)(BSN_T(m) x, BSN_T(m) y) { return BSN_T(andnot)(x, y); }
BSN_T_INLINE BSN_T(m) BSN_T(and_m)(BSN_T(m) x, BSN_T(m) y) { return BSN_T(and)(x, y); }
BSN_T_INLINE BSN_T(m) BSN_T(or_m)(BSN_T(m) x, BSN_T(m) y) { return BSN_T(or)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(keep)(BSN_T(m) m, BSN_T(v) x) { return BSN_T(and)(m, x); }
BSN_T_INLINE BSN_T(v) BSN_T(next)(BSN_T(m) m, BSN_T(v) x) { return BSN_T(sub)(1, x, m); }
BSN_T_INLINE BSN_T(w) BSN_T(and_w)(BSN_T(w) x, BSN_T(w) y) { return BSN_T(and)(x, y); }
BSN_T_INLINE BSN_T(w) BSN_T(or_w)(BSN_T(w) x, BSN_T(w) y) { return BSN_T(or)(x, y); }
BSN_T_INLINE BSN_T(v) BSN_T(keep_w)(BSN_T(w) m, BSN_T(v) x) { return BSN_T(and)(m, x); }
BSN_T_INLINE BSN_T(v) BSN_T(append)(BSN_T(v) x, BSN_T(v) v, BSN_T(n) up, BSN_T(n) down)
{
    return BSN_T(or)(BSN_T(shl)(4, x, up), BSN_T(shr)(4, v, down));
}
BSN_T_INLINE void BSN_T(to_w)(BSN_T(w) w[4], BSN_T(m) m) { BSN_T(unpack)(w, m, m, m, m); }

/* Quotients and their rests as in bsn_log_errors32. */
BSN_T_INLINE BSN_T(v) BSN_T(quotients)(BSN_T(v) d, BSN_T(v) exactly, BSN_T(v) h)
{
    const BSN_T(v) about = BSN_T(of_f)(BSN_T(div_f)(exactly, h)), of = BSN_T(sub)(4, h, BSN_T(all)(4, 0x3E800000));
    const BSN_T(v) rest = BSN_T(sub)(4, BSN_T_SHL(4, d, 24), BSN_T(mul_w)(about, of));
    return BSN_T(sub)(4, about, BSN_T(add)(4, BSN_T(above_w)(rest, BSN_T(all)(8, 0)), BSN_T(above_w)(rest, of)));
}

#endif

/* ---- hashes ---- */

/* XXH3's accumulators. Lanes are independent except for the data, which is added to the neighbour. The data
 * is summed apart, and sums of neighbours are exchanged when a block of 16 stripes, or the last part of one,
 * ends. */
BSN_T_INLINE void BSN_T(stripe)(BSN_T(v) a[BSN_T_N], BSN_T(v) data[BSN_T_N], const BSN_T(v) x[BSN_T_N], const BSN_T(v) secret[BSN_T_N])
{
    BSN_T(v) key[BSN_T_N];
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) key[j] = BSN_T(xor)(x[j], secret[j]);
    BSN_T(add_products)(a, key);
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) data[j] = BSN_T(add)(8, data[j], x[j]);
}

BSN_T_INLINE void BSN_T(stripes_end)(BSN_T(v) a[BSN_T_N], BSN_T(v) data[BSN_T_N])
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) {
        a[j] = BSN_T(add)(8, a[j], BSN_T(swap)(data[j]));
        data[j] = BSN_T(all)(8, 0);
    }
}

BSN_T_INLINE void BSN_T(scramble)(BSN_T(v) a[BSN_T_N])
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) {
        const BSN_T(v) key = BSN_T(load)(bsn_secret + 128 + j * BSN_T_BYTES);
        a[j] = BSN_T(multiply)(BSN_T(xor)(BSN_T(xor)(a[j], BSN_T_SHR(8, a[j], 47)), key), (uint32_t)BSN_P32_1);
    }
}

BSN_T_INLINE void BSN_T(load64)(BSN_T(v) x[BSN_T_N], const uint8_t *p)
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) x[j] = BSN_T(load)(p + j * BSN_T_BYTES);
}

BSN_T_INLINE void BSN_T(stripe_at)(BSN_T(v) a[BSN_T_N], BSN_T(v) data[BSN_T_N], const uint8_t *p, const uint8_t *secret)
{
    BSN_T(v) x[BSN_T_N], key[BSN_T_N];
    BSN_T(load64)(x, p);
    BSN_T(load64)(key, secret);
    BSN_T(stripe)(a, data, x, key);
}

#if !BSN_T_MASKS
/* Up to the end of a block at a time. */
BSN_T_KERNEL void BSN_T(hash)(uint64_t state[8], const uint8_t *p, size_t count, size_t first)
{
    BSN_T(v) a[BSN_T_N], data[BSN_T_N];
    unsigned j;
    BSN_T(load64)(a, (const uint8_t *)state);
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) data[j] = BSN_T(all)(8, 0);
    while (count) {
        const uint8_t *secret = bsn_secret + 8 * (first & 15);
        size_t m = bsn_min(count, 16 - (first & 15));
        count -= m;
        first += m;
        for (; m >= 4; m -= 4, p += 256, secret += 32) {
            BSN_UNROLL
            for (j = 0; j < 4; j++) BSN_T(stripe_at)(a, data, p + 64 * j, secret + 8 * j);
        }
        for (; m; m--, p += 64, secret += 8) BSN_T(stripe_at)(a, data, p, secret);
        BSN_T(stripes_end)(a, data);
        if (!(first & 15)) BSN_T(scramble)(a);
    }
    BSN_UNROLL
    for (j = 0; j < BSN_T_N; j++) BSN_T(store)((uint8_t *)state + j * BSN_T_BYTES, a[j]);
}
#endif

/* ---- masks and planes of bits ---- */

BSN_T_INLINE size_t BSN_T(total)(BSN_T(v) sum)
{
    uint64_t part[BSN_T_BYTES / 8], total = 0;
    unsigned i;
    BSN_T(store)((uint8_t *)part, sum);
    for (i = 0; i < BSN_T_BYTES / 8; i++) total += part[i];
    return (size_t)total;
}

BSN_T_KERNEL size_t BSN_T(count)(const uint8_t *mask, size_t n)
{
    BSN_T(v) sum = BSN_T(all)(8, 0);
    size_t ones;
    for (; n >= 8 * BSN_T_BYTES; n -= 8 * BSN_T_BYTES, mask += BSN_T_BYTES) sum = BSN_T(add_ones)(sum, BSN_T(load)(mask));
    ones = BSN_T(total)(sum);
    for (; n >= 64; n -= 64, mask += 8) ones += BSN_T(popcount)(bsn_load64(mask));
    return n ? ones + BSN_T(popcount)(bsn_load_some(mask, bsn_mask_bytes(n)) & ((UINT64_C(1) << n) - 1)) : ones;
}

/* Those of all lists at once; the last ones word by word. */
BSN_T_INLINE void BSN_T(count_node)(const bsn_node *node, size_t counts[4], unsigned k, unsigned lists)
{
    const size_t n = node->count, stride = node->stride;
    const uint8_t *plane = node->planes;
    BSN_T(v) sum[4], s[4], m;
    uint64_t w[4] = { 0, 0, 0, 0 };
    size_t i;
    unsigned j, q;
    BSN_UNROLL
    for (j = 0; j < lists; j++) sum[j] = BSN_T(all)(8, 0);
    for (i = 0; n - i >= 8 * BSN_T_BYTES; i += 8 * BSN_T_BYTES, plane += BSN_T_BYTES) {
        BSN_UNROLL
        for (q = 0; q < k; q++) s[q] = BSN_T(load)(plane + q * stride);
        BSN_UNROLL
        for (j = 0; j < lists; j++) {
            const unsigned slot = (1u << k) - lists + j;
            m = BSN_T(all)(8, ~UINT64_C(0));
            BSN_UNROLL
            for (q = 0; q < k; q++) m = slot >> (k - 1 - q) & 1 ? BSN_T(and)(s[q], m) : BSN_T(andnot)(s[q], m);
            sum[j] = BSN_T(add_ones)(sum[j], m);
        }
    }
    BSN_UNROLL
    for (j = 0; j < lists; j++) counts[j] = BSN_T(total)(sum[j]);
    for (; i < n; i += 64, plane += 8) {
        const uint64_t live = n - i < 64 ? (UINT64_C(1) << (n - i)) - 1 : ~UINT64_C(0);
        BSN_UNROLL
        for (q = 0; q < k; q++) w[q] = bsn_load64(plane + q * stride);
        BSN_UNROLL
        for (j = 0; j < lists; j++) counts[j] += BSN_T(popcount)(bsn_list_mask(k, lists, j, w) & live);
    }
}

BSN_T_KERNEL void BSN_T(node_counts)(const bsn_node *node, size_t counts[4])
{
#define BSN_CALL(k, lists) BSN_T(count_node)(node, counts, k, lists)
    BSN_NODE_SWITCH(node)
#undef BSN_CALL
}

/* The first k bits of 64 codes, and these shifted by k. */
BSN_T_INLINE void BSN_T(peel)(BSN_T(v) x[BSN_T_N], uint64_t w[4], const uint8_t *codes, unsigned k)
{
    BSN_T(m) set[BSN_T_N];
    unsigned i, j;
    BSN_T(load64)(x, codes);
    BSN_UNROLL
    for (j = 0; j < k; j++) {
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) set[i] = BSN_T(bit)(x[i], 7);
        w[j] = BSN_T(bits)(set);
        BSN_OPAQUE("+r", w[j]); /* once in a word: compilers would fetch every combination from mask
                                   registers */
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) x[i] = BSN_T(add)(1, x[i], x[i]);
    }
}

BSN_T_KERNEL void BSN_T(bits_take)(uint8_t *bits, const uint8_t *bytes, unsigned varying, size_t groups)
{
    unsigned i, b;
    for (; groups; groups--, bytes += 64) {
        BSN_T(v) x[BSN_T_N];
        BSN_T(m) set[BSN_T_N];
        BSN_T(load64)(x, bytes);
        BSN_UNROLL
        for (b = 0; b < 8; b++) {
            if (!(varying >> b & 1)) continue;
            BSN_UNROLL
            for (i = 0; i < BSN_T_N; i++) set[i] = BSN_T(bit)(x[i], b);
            bsn_store64(bits, BSN_T(bits)(set));
            bits += 8;
        }
    }
}

BSN_T_INLINE void BSN_T(put_bits)(uint8_t *bytes, const uint8_t *symbols, unsigned shift, unsigned value, const uint8_t *bits,
                                  unsigned varying, size_t groups)
{
    const BSN_T(k) c = BSN_T(begin)();
    const BSN_T(v) constant = BSN_T(all)(1, value);
    const BSN_T(n) up = BSN_T(number)(shift);
    unsigned i, b;
    for (; groups; groups--, bytes += 64, symbols += 64) {
        BSN_T(v) x[BSN_T_N];
        BSN_T(load64)(x, symbols);
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) x[i] = BSN_T(or)(BSN_T(shl)(2, x[i], up), constant);
        BSN_UNROLL
        for (b = 0; b < 8; b++) {
            BSN_T(s) set;
            if (!(varying >> b & 1)) continue;
            set = BSN_T(set)(&c, bsn_load64(bits));
            bits += 8;
            BSN_UNROLL
            for (i = 0; i < BSN_T_N; i++) x[i] = BSN_T(digit)(x[i], set, i, b);
        }
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) BSN_T(store)(bytes + i * BSN_T_BYTES, x[i]);
    }
}

BSN_T_KERNEL void BSN_T(bits_put)(uint8_t *bytes, const uint8_t *symbols, unsigned shift, unsigned value, const uint8_t *bits,
                                  unsigned varying, size_t groups)
{
#if BSN_T_ACROSS
    if (bsn_ones_in[varying] > 3) { /* fewer are quicker one by one */
        if (shift) bsn_symbols_up(bytes, symbols, 64 * groups, shift, value);
        BSN_T(put_planes)(bytes, bits, varying, groups);
        return;
    }
#endif
    switch (varying) {
    case 3: BSN_T(put_bits)(bytes, symbols, shift, value, bits, 3, groups); break;
    case 7: BSN_T(put_bits)(bytes, symbols, shift, value, bits, 7, groups); break;
    default: BSN_T(put_bits)(bytes, symbols, shift, value, bits, varying, groups); break;
    }
}

BSN_T_INLINE void BSN_T(compare_width)(unsigned width, uint8_t *mask, const uint8_t *a, const uint8_t *b, size_t groups)
{
    unsigned i;
    for (; groups; groups--, mask += 8, a += 64 * width, b += 64 * width) {
        BSN_T(m) differ[BSN_T_N];
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) differ[i] = BSN_T(differ)(width, a + i * BSN_T_BYTES * width, b + i * BSN_T_BYTES * width);
        bsn_store64(mask, BSN_T(bits)(differ));
    }
}

BSN_T_KERNEL void BSN_T(compare)(unsigned width, uint8_t *mask, const uint8_t *a, const uint8_t *b, size_t groups)
{
    switch (width) {
    case 1: BSN_T(compare_width)(1, mask, a, b, groups); break;
    case 2: BSN_T(compare_width)(2, mask, a, b, groups); break;
    case 4: BSN_T(compare_width)(4, mask, a, b, groups); break;
    default: BSN_T(compare_width)(8, mask, a, b, groups); break;
    }
}

/* ---- lists of bytes ---- */

#if !BSN_T_MASKS
/* A carry-save adder: low + x + y = low' + 2 * the result, in each bit. */
BSN_T_INLINE BSN_T(v) BSN_T(carry)(BSN_T(v) *low, BSN_T(v) x, BSN_T(v) y)
{
    const BSN_T(v) differ = BSN_T(xor)(*low, x);
    *low = BSN_T(xor)(differ, y);
    return BSN_T(select)(differ, y, x);
}

/* Counts of 16 symbols from `base` on; n is a multiple of 16 registers, up to 63 times that. A shuffle makes
 * of each symbol one bit, in one of two registers, or none; bits are added by carry-save adders, and carries
 * of weight 16 bit by bit in bytes. The sum of four such bytes is below 256. */
BSN_T_KERNEL void BSN_T(window16)(uint32_t h[16], const uint8_t *list, size_t n, unsigned base)
{
    static const uint8_t bits[24] = { 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 4, 8, 16, 32, 64, 128 };
    const BSN_T(v) bit[2] = { BSN_T(all16)(bits + 8), BSN_T(all16)(bits) };
    const BSN_T(v) first = BSN_T(all)(1, base), one = BSN_T(all)(1, 1), none = BSN_T(all)(8, 0);
    const uint64_t even = UINT64_C(0x00FF00FF00FF00FF);
    BSN_T(v) low[2][4], sum[16];
    unsigned p, b, i, j;
    BSN_UNROLL
    for (p = 0; p < 2; p++) low[p][0] = low[p][1] = low[p][2] = low[p][3] = none;
    for (b = 0; b < 16; b++) sum[b] = none;
    for (; n; n -= 16 * BSN_T_BYTES) {
        BSN_T(v) four[2][4]; /* on the stack */
        for (i = 0; i < 4; i++, list += 4 * BSN_T_BYTES) {
            BSN_T(v) x[4];
            BSN_UNROLL
            for (j = 0; j < 4; j++) x[j] = BSN_T(inside)(BSN_T(sub)(1, BSN_T(load)(list + j * BSN_T_BYTES), first));
            BSN_UNROLL
            for (p = 0; p < 2; p++) {
                const BSN_T(v) y = BSN_T(carry)(&low[p][0], BSN_T(shuffle)(bit[p], x[0]), BSN_T(shuffle)(bit[p], x[1]));
                const BSN_T(v) z = BSN_T(carry)(&low[p][0], BSN_T(shuffle)(bit[p], x[2]), BSN_T(shuffle)(bit[p], x[3]));
                four[p][i] = BSN_T(carry)(&low[p][1], y, z);
            }
        }
        for (p = 0; p < 2; p++) {
            const BSN_T(v) y = BSN_T(carry)(&low[p][2], four[p][0], four[p][1]);
            const BSN_T(v) z = BSN_T(carry)(&low[p][3], y, BSN_T(carry)(&low[p][2], four[p][2], four[p][3]));
            BSN_UNROLL
            for (b = 0; b < 8; b++) sum[8 * p + b] = BSN_T(add)(1, sum[8 * p + b], BSN_T(and)(BSN_T_SHR(2, z, (int)b), one));
        }
    }
    for (b = 0; b < 16; b++) {
        const uint64_t eight = BSN_T(total)(sum[b]);
        unsigned count = (unsigned)(((eight & even) + (eight >> 8 & even)) * (even / 255) >> 48);
        for (i = 4; i-- > 0;) count = 2 * count + BSN_T(ones)(BSN_T(bit)(low[b / 8][i], b % 8));
        h[b] += count;
    }
}

/* Where 16 neighbouring symbols hold nearly all: these as a window, others one by one. */
BSN_T_KERNEL void BSN_T(histogram)(uint32_t h[256], const uint8_t *list, size_t n, uint32_t *scratch)
{
    const unsigned step = 16 * BSN_T_BYTES;
    unsigned base = 0, inside = 0, i;
    BSN_T(v) first, end;
    if (n >= 4096) base = bsn_sampled_window(list, n, 16, scratch, &inside);
    if (inside < 240) {
        bsn_scalar_histogram(h, list, n, scratch);
        return;
    }
    memset(scratch, 0, BSN_WINDOWED * sizeof *scratch);
    first = BSN_T(all)(1, base);
    end = BSN_T(all)(1, 16);
    while (n >= step) {
        size_t m = bsn_min(n / step, 60) * step;
        BSN_T(window16)(scratch + base, list, m, base);
        for (n -= m; m; m -= 64, list += 64) {
            BSN_T(m) others[BSN_T_N];
            uint64_t w;
            BSN_UNROLL
            for (i = 0; i < BSN_T_N; i++)
                others[i] = BSN_T(reach)(BSN_T(sub)(1, BSN_T(load)(list + i * BSN_T_BYTES), first), end);
            for (w = BSN_T(bits)(others); w; w &= w - 1) h[list[bsn_lowest_bit(w)]]++;
        }
    }
    bsn_windowed_end(h, scratch);
    for (; n; n--) h[*list++]++;
}
#endif

BSN_T_KERNEL void BSN_T(mask_above)(uint8_t *mask, const uint8_t *list, size_t groups, unsigned t)
{
    const BSN_T(v) least = BSN_T(all)(1, t + 1);
    unsigned i;
    for (; groups; groups--, mask += 8, list += 64) {
        BSN_T(m) above[BSN_T_N];
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) above[i] = BSN_T(reach)(BSN_T(load)(list + i * BSN_T_BYTES), least);
        bsn_store64(mask, BSN_T(bits)(above));
    }
}

/* Codes by blocks of symbols from `base` on. The table holds what differs from the code `others` of all
 * symbols outside, so that 0 changes nothing. */
BSN_T_INLINE uint8_t *BSN_T(map_blocks)(uint8_t *list, size_t n, const uint8_t *table, unsigned base, unsigned others,
                                        unsigned escape, uint8_t *escapes, unsigned blocks)
{
    const BSN_T(v) first = BSN_T(all)(1, base), next = BSN_T(all)(1, BSN_T_ENTRIES), lost = BSN_T(all)(1, escape);
    size_t i;
    unsigned j, q, count;
    for (i = 0; i < n; i += 64) {
        BSN_T(v) index[BSN_T_N], y[BSN_T_N];
        BSN_T(load64)(index, list + i);
        BSN_UNROLL
        for (q = 0; q < BSN_T_N; q++) {
            index[q] = BSN_T(sub)(1, index[q], first);
            y[q] = BSN_T(all)(1, others);
        }
        for (j = 0; j < blocks; j++) {
            BSN_T(look_up)(y, index, table + BSN_T_ENTRIES * j);
            BSN_UNROLL
            for (q = 0; q < BSN_T_N; q++) index[q] = BSN_T(sub)(1, index[q], next);
        }
        if (escape < 256) { /* three, whether they are there or not; seldom more */
            BSN_T(m) here[BSN_T_N];
            uint64_t m;
            BSN_UNROLL
            for (q = 0; q < BSN_T_N; q++) here[q] = BSN_T(equal_m)(y[q], lost);
            m = BSN_T(bits)(here);
            if (BSN_UNLIKELY(n - i < 64)) m &= (UINT64_C(1) << (n - i)) - 1;
            count = BSN_T(popcount)(m);
            BSN_UNROLL
            for (j = 0; j < 3; j++, m &= m - 1) escapes[j] = list[i + bsn_lowest_bit(m | UINT64_C(1) << 63)];
            for (; BSN_UNLIKELY(j < count); j++, m &= m - 1) escapes[j] = list[i + bsn_lowest_bit(m)];
            escapes += count;
        }
        BSN_UNROLL
        for (q = 0; q < BSN_T_N; q++) BSN_T(store)(list + i + q * BSN_T_BYTES, y[q]);
    }
    return escapes;
}

BSN_T_KERNEL uint8_t *BSN_T(map)(uint8_t *list, size_t n, const uint8_t code[256], unsigned escape, uint8_t *escapes)
{
    const unsigned others = escape < 256 ? escape : 0;
    const BSN_T(v) all = BSN_T(all)(1, others);
    uint8_t table[512]; /* twice, as blocks go on at 0 */
    uint64_t some[4];
    unsigned base = 0, span = 256, s, i, turn;
    for (s = 0; s < 256; s += 64) {
        BSN_T(v) x[BSN_T_N];
        BSN_T(m) same[BSN_T_N];
        BSN_T(load64)(x, code + s);
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) {
            same[i] = BSN_T(equal_m)(x[i], all);
            x[i] = BSN_T(xor)(x[i], all);
            BSN_T(store)(table + s + i * BSN_T_BYTES, x[i]);
            BSN_T(store)(table + 256 + s + i * BSN_T_BYTES, x[i]);
        }
        some[s / 64] = ~BSN_T(bits)(same);
    }
    for (turn = 0; turn < 256; turn += 128) { /* symbols as numbers without a sign, and with one */
        unsigned first = 256, last = 256;
        for (s = 0; s < 256; s += 64) {
            const uint64_t w = some[(s + turn) % 256 / 64];
            if (!w) continue;
            if (first == 256) first = s + bsn_lowest_bit(w);
            last = s + bsn_log2(w);
        }
        if (last - first >= span) continue;
        span = last - first;
        base = (first + turn) % 256;
    }
    switch (span / BSN_T_ENTRIES) {
    case 0: return BSN_T(map_blocks)(list, n, table + base, base, others, escape, escapes, 1);
    case 1: return BSN_T(map_blocks)(list, n, table + base, base, others, escape, escapes, 2);
    case 2:
    case 3: return BSN_T(map_blocks)(list, n, table + base, base, others, escape, escapes, 4);
    default: return BSN_T(map_blocks)(list, n, table + base, base, others, escape, escapes, span / BSN_T_ENTRIES + 1);
    }
}

/* ---- elements and planes ---- */

/* Pair order makes joining a transposition of the bytes in each lane of 2, 4 or 8: row q of one side holds
 * the elements of part q, row k of the other is plane k. Rows whose numbers differ in one bit exchange the
 * dwords (words, bytes) whose places differ in that bit; so the same steps lead there and back. */
BSN_T_INLINE void BSN_T(transpose)(BSN_T(v) v[8], unsigned width)
{
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++)
        if (width >= 8 && !(i & 4)) BSN_T(exchange)(4, &v[i], &v[i ^ 4]);
    BSN_UNROLL
    for (i = 0; i < width; i++)
        if (width >= 4 && !(i & 2)) BSN_T(exchange)(2, &v[i], &v[i ^ 2]);
    BSN_UNROLL
    for (i = 0; i < width; i++)
        if (width >= 2 && !(i & 1)) BSN_T(exchange)(1, &v[i], &v[i ^ 1]);
}

/* Rows of elements to rows of planes, in place. In a plane, shifts of words move bits between bytes as they
 * do in bytes, and what crosses their border is masked off. */
BSN_T_INLINE void BSN_T(split_rows)(const bsn_field *f, BSN_T(v) v[8], unsigned width, unsigned kind)
{
    const unsigned e = f->symbol_bits, top = width - 1, below = width > 1 ? width - 2 : 0;
    const BSN_T(n) shift = BSN_T(number)(e);
    const BSN_T(v) low = BSN_T(all)(1, 0x7Fu >> e), sign = BSN_T(all)(1, 0x80u >> e), one = BSN_T(all)(1, 1);
    const BSN_T(v) base = BSN_T(all)(8, f->base), mantissa = BSN_T(all)(8, UINT64_C(0x007FFFFFFFFFFFF8));
    const BSN_T(v) sign55 = BSN_T(all)(8, UINT64_C(1) << 55), sign8 = BSN_T(all)(1, 0x80);
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < width; j++) {
        if (kind != BSN_FIELD_WIDE) break;
        const BSN_T(v) exponent = BSN_T_SHR(8, BSN_T(add)(8, v[j], v[j]), 53);
        const BSN_T(v) symbol = BSN_T(where)(exponent, BSN_T(sub)(8, exponent, base));
        const BSN_T(v) rest = BSN_T(put)(mantissa, BSN_T_SHL(8, v[j], 3), BSN_T(and)(BSN_T_SHR(8, v[j], 8), sign55));
        v[j] = BSN_T(or)(BSN_T_SHL(8, symbol, 56), rest);
    }
    BSN_T(transpose)(v, width);
    if (kind == BSN_FIELD_INSIDE) {
        const BSN_T(v) x = v[top];
        v[top] = BSN_T(select)(low, x, BSN_T(select)(sign, BSN_T(shr)(2, x, shift), BSN_T(add)(1, x, x)));
    } else if (kind == BSN_FIELD_ACROSS) {
        const BSN_T(v) x = v[top], y = v[below];
        v[top] = BSN_T(put)(one, BSN_T_SHR(2, y, 7), BSN_T(add)(1, x, x));
        v[below] = BSN_T(select)(sign8, x, y);
    }
}

/* Inverse of split_rows. */
BSN_T_INLINE void BSN_T(join_rows)(const bsn_field *f, BSN_T(v) v[8], unsigned width, unsigned kind)
{
    const unsigned e = f->symbol_bits, top = width - 1, below = width > 1 ? width - 2 : 0;
    const BSN_T(n) shift = BSN_T(number)(e);
    const BSN_T(v) low = BSN_T(all)(1, 0x7Fu >> e), low7 = BSN_T(all)(1, 0x7F), base = BSN_T(all)(8, f->base);
    const BSN_T(v) mantissa = BSN_T(all)(8, UINT64_C(0x000FFFFFFFFFFFFF)), sign = BSN_T(all)(8, UINT64_C(1) << 63);
    unsigned j;
#if BSN_T_ACROSS
    if (kind == BSN_FIELD_ACROSS && width < 8) { /* with the exchanges of both */
        BSN_T(join_across)(&v[below], &v[top]);
        if (width == 4) BSN_T(exchange)(1, &v[0], &v[1]);
        BSN_UNROLL
        for (j = 0; j < below; j++) BSN_T(exchange)(2, &v[j], &v[j + 2]);
        return;
    }
#endif
    if (kind == BSN_FIELD_INSIDE) {
        const BSN_T(v) x = v[top];
        v[top] = BSN_T(select)(low, x, BSN_T(select)(low7, BSN_T_SHR(2, x, 1), BSN_T(shl)(2, x, shift)));
    } else if (kind == BSN_FIELD_ACROSS) {
        const BSN_T(v) x = v[top], y = v[below];
        v[top] = BSN_T(select)(low7, BSN_T_SHR(2, x, 1), y);
        v[below] = BSN_T(select)(low7, y, BSN_T_SHL(2, x, 7));
    }
    BSN_T(transpose)(v, width);
    BSN_UNROLL
    for (j = 0; j < width; j++) {
        if (kind != BSN_FIELD_WIDE) break;
        const BSN_T(v) symbol = BSN_T_SHR(8, v[j], 56);
        const BSN_T(v) exponent = BSN_T(where)(symbol, BSN_T(add)(8, symbol, base));
        const BSN_T(v) rest = BSN_T(put)(mantissa, BSN_T_SHR(8, v[j], 3), BSN_T(and)(BSN_T_SHL(8, v[j], 8), sign));
        v[j] = BSN_T(or)(BSN_T_SHL(8, exponent, 52), rest);
    }
}

BSN_T_INLINE void BSN_T(split_field)(const bsn_field *f, uint8_t *const planes[8], const uint8_t *elements, size_t groups,
                                     unsigned width, unsigned kind)
{
    const bsn_field field = *f; /* no store changes it */
    uint8_t *plane[8];
    size_t i, at;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < width; j++) plane[j] = planes[j];
    for (i = 0; i < 64 * groups; i += 64, elements += 64 * width) {
        BSN_UNROLL
        for (at = 0; at < 64; at += BSN_T_BYTES) {
            BSN_T(v) v[8];
            BSN_UNROLL
            for (j = 0; j < width; j++) v[j] = BSN_T(load)(elements + 64 * j + at);
            BSN_T(split_rows)(&field, v, width, kind);
            BSN_UNROLL
            for (j = 0; j < width; j++) BSN_T(store)(plane[j] + i + at, v[j]);
        }
    }
}

BSN_T_INLINE void BSN_T(join_field)(const bsn_field *f, uint8_t *elements, const uint8_t *const planes[8], size_t groups,
                                    unsigned width, unsigned kind)
{
    const bsn_field field = *f;
    const uint8_t *plane[8];
    size_t i, at;
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < width; j++) plane[j] = planes[j];
    for (i = 0; i < 64 * groups; i += 64, elements += 64 * width) {
        BSN_UNROLL
        for (at = 0; at < 64; at += BSN_T_BYTES) {
            BSN_T(v) v[8];
            BSN_UNROLL
            for (j = 0; j < width; j++) v[j] = BSN_T(load)(plane[j] + i + at);
            BSN_T(join_rows)(&field, v, width, kind);
            BSN_UNROLL
            for (j = 0; j < width; j++) BSN_T(store)(elements + 64 * j + at, v[j]);
        }
    }
}

BSN_T_KERNEL void BSN_T(split)(const bsn_field *f, uint8_t *const planes[8], const uint8_t *elements, size_t groups)
{
#define BSN_CALL(width, kind) BSN_T(split_field)(f, planes, elements, groups, width, kind)
    BSN_FIELD_SWITCH(f)
#undef BSN_CALL
}

BSN_T_KERNEL void BSN_T(join)(const bsn_field *f, uint8_t *elements, const uint8_t *const planes[8], size_t groups)
{
#define BSN_CALL(width, kind) BSN_T(join_field)(f, elements, planes, groups, width, kind)
    BSN_FIELD_SWITCH(f)
#undef BSN_CALL
}

/* ---- deltas ---- */

/* the OR of all lanes */
BSN_T_INLINE uint64_t BSN_T(any)(unsigned width, BSN_T(v) x)
{
    uint64_t part[BSN_T_BYTES / 8], any = 0;
    unsigned i;
    BSN_T(store)((uint8_t *)part, x);
    for (i = 0; i < BSN_T_BYTES / 8; i++) any |= part[i];
    if (width < 8) any |= any >> 32;
    if (width < 4) any |= any >> 16;
    if (width < 2) any |= any >> 8;
    return any & ~UINT64_C(0) >> (64 - 8 * width);
}

/* The sign of a difference is whether it is below 0. */
BSN_T_INLINE uint64_t BSN_T(subtract_width)(uint8_t *words, const uint8_t *a, const uint8_t *b, size_t groups, unsigned width)
{
    BSN_T(v) any = BSN_T(all)(8, 0);
    size_t i;
    for (i = 0; i < 64 * groups * width; i += BSN_T_BYTES) {
        const BSN_T(v) d = BSN_T(sub)(width, BSN_T(load)(a + i), BSN_T(load)(b + i));
        const BSN_T(v) x = BSN_T(xor)(BSN_T(add)(width, d, d), BSN_T(signs)(width, d));
        BSN_T(store)(words + i, x);
        any = BSN_T(or)(any, x);
    }
    return BSN_T(any)(width, any);
}

BSN_T_KERNEL uint64_t BSN_T(subtract)(unsigned width, uint8_t *words, const uint8_t *a, const uint8_t *b, size_t groups)
{
    BSN_WIDTHS(width, return BSN_T(subtract_width), (words, a, b, groups));
}

/* The highest bytes of elements without their highest bit. As borders are exponents, and these have 8 bits at
 * most, they tell classes. */
BSN_T_INLINE BSN_T(v) BSN_T(keys)(unsigned width, const uint8_t *elements)
{
    BSN_T(v) x[8];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) {
        x[i] = BSN_T(load)(elements + i * BSN_T_BYTES);
        x[i] = BSN_T(add)(width, x[i], x[i]);
        if (width > 1) x[i] = width == 2 ? BSN_T_SHR(2, x[i], 8) : width == 4 ? BSN_T_SHR(4, x[i], 24) : BSN_T_SHR(8, x[i], 56);
    }
    return width == 1 ? x[0] : BSN_T(lowest)(width, x);
}

/* Narrows words to bytes; larger ones become 255. */
BSN_T_INLINE BSN_T(v) BSN_T(narrow)(unsigned width, const uint8_t *words)
{
    const BSN_T(v) most = BSN_T(all)(width, 255);
    BSN_T(v) x[8];
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < width; i++) {
        x[i] = BSN_T(load)(words + i * BSN_T_BYTES);
        if (width == 2 || width == 4) x[i] = BSN_T(min)(width, x[i], most);
        if (width == 8) x[i] = BSN_T(or)(x[i], BSN_T(where)(BSN_T_SHR(8, x[i], 8), most));
    }
    return width == 1 ? x[0] : BSN_T(lowest)(width, x);
}

BSN_T_INLINE void BSN_T(borders)(BSN_T(v) border[7], const bsn_classes *t, unsigned width, unsigned count, unsigned pad)
{
    unsigned k;
    BSN_UNROLL
    for (k = 0; k + 1 < count; k++) border[k] = BSN_T(all)(1, k < pad ? 0 : t->border[k - pad] << 1 >> (8 * width - 8));
}

/* Calls BSN_CALL(width, count, pad) with a constant width and count. Rare counts use the code for more
 * classes: no element reaches the first `pad`. Rarer ones are left to the portable code. */
#define BSN_CLASSES_CASE(width, count) case 16 * width + count: BSN_CALL(width, count, 0); break;
#define BSN_CLASSES_EACH(width)                                                                       \
    BSN_CLASSES_CASE(width, 1) BSN_CLASSES_CASE(width, 2) BSN_CLASSES_CASE(width, 3) BSN_CLASSES_CASE(width, 4) \
    BSN_CLASSES_CASE(width, 5) BSN_CLASSES_CASE(width, 6) BSN_CLASSES_CASE(width, 7) BSN_CLASSES_CASE(width, 8)
#define BSN_CLASSES_SOME(width)                                                                       \
    BSN_CLASSES_CASE(width, 1) BSN_CLASSES_CASE(width, 2)                                             \
    case 16 * width + 3: case 16 * width + 4: BSN_CALL(width, 4, 4 - t->count); break;                \
    case 16 * width + 5: case 16 * width + 6: case 16 * width + 7: case 16 * width + 8: BSN_CALL(width, 8, 8 - t->count); break;
#if BSN_T_MASKS
#define BSN_CLASSES_ALL BSN_CLASSES_SOME(1) BSN_CLASSES_EACH(2) BSN_CLASSES_EACH(4) BSN_CLASSES_SOME(8)
#else
#define BSN_CLASSES_ALL BSN_CLASSES_SOME(1) BSN_CLASSES_EACH(2) BSN_CLASSES_SOME(4)
#endif
#define BSN_CLASSES_SWITCH(portable)                                                                  \
    switch (16 * t->width + t->count) {                                                               \
        BSN_CLASSES_ALL                                                                               \
    default: portable; break;                                                                         \
    }

BSN_T_INLINE void BSN_T(above_width)(const bsn_classes *t, size_t above[7], const uint8_t *elements, size_t groups, unsigned width,
                                     unsigned count, unsigned pad)
{
    BSN_T(v) border[7];
    size_t sum[7] = { 0, 0, 0, 0, 0, 0, 0 };
    unsigned k;
    BSN_T(borders)(border, t, width, count, pad);
    for (groups *= BSN_T_N; groups; groups--, elements += BSN_T_BYTES * width) {
        const BSN_T(v) keys = BSN_T(keys)(width, elements);
        BSN_UNROLL
        for (k = 0; k + 1 < count; k++) sum[k] += BSN_T(ones)(BSN_T(reach)(keys, border[k]));
    }
    BSN_UNROLL
    for (k = 0; k + 1 < count; k++)
        if (k >= pad) above[k - pad] += sum[k];
}

BSN_T_KERNEL void BSN_T(classes_above)(const bsn_classes *t, size_t above[7], const uint8_t *elements, size_t groups)
{
#define BSN_CALL(width, count, pad) BSN_T(above_width)(t, above, elements, groups, width, count, pad)
    BSN_CLASSES_SWITCH(bsn_above_loop(t, above, elements, groups, 8))
#undef BSN_CALL
}

/* Which of 64 elements are of class k; rest: those of its class and above, and then of those above. */
BSN_T_INLINE void BSN_T(class_of)(BSN_T(m) of[BSN_T_N], BSN_T(m) rest[BSN_T_N], const BSN_T(v) keys[BSN_T_N],
                                  const BSN_T(v) border[7], unsigned k, unsigned count)
{
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < BSN_T_N; i++) {
        of[i] = rest[i];
        if (k + 1 == count) continue;
        rest[i] = BSN_T(reach)(keys[i], border[k]);
        of[i] = BSN_T(andnot_m)(rest[i], of[i]);
    }
}

/* a + the inverse zigzag of z: adding ~(z >> 1) + 1 is subtracting z >> 1, and one more where z is odd */
BSN_T_INLINE BSN_T(v) BSN_T(unzigzag_add)(unsigned width, BSN_T(v) a, BSN_T(v) z)
{
    const BSN_T(v) odd = BSN_T(sub)(width, BSN_T(all)(8, 0), BSN_T(and)(z, BSN_T(all)(width, 1)));
    const BSN_T(v) half = width == 1 ? BSN_T(and)(BSN_T_SHR(2, z, 1), BSN_T(all)(1, 0x7F)) : BSN_T_SHR(width, z, 1);
    return BSN_T(add)(width, a, BSN_T(xor)(half, odd));
}

/* Where there is one class, whose words, of `step` bytes, are in the order of elements. */
BSN_T_INLINE void BSN_T(add_all)(uint8_t *out, const uint8_t *elements, const uint8_t *words, size_t groups, unsigned width,
                                 unsigned step)
{
    size_t i;
    for (; groups; groups--, out += 64 * width, elements += 64 * width, words += 64 * step) {
        BSN_UNROLL
        for (i = 0; i < 64; i += BSN_T_BYTES / width) {
            const BSN_T(v) w = step == 1 ? BSN_T(widen)(width, words + i) : BSN_T(load)(words + i * width);
            BSN_T(store)(out + i * width, BSN_T(unzigzag_add)(width, BSN_T(load)(elements + i * width), w));
        }
    }
}

/* Words that are bytes are expanded 64 at a time, then made as wide as elements; wider ones are expanded into
 * these. */
BSN_T_INLINE void BSN_T(add_width)(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups, unsigned width,
                                   unsigned count, unsigned pad)
{
    const unsigned narrow = width == 1 ? 0xFF : t->narrow << pad | ((1u << pad) - 1), lanes = BSN_T_BYTES / width;
    const BSN_T(k) c = BSN_T(begin)();
    const uint8_t *next[8];
    BSN_T(v) border[7];
    size_t i;
    unsigned k;
    BSN_UNROLL
    for (k = 0; k < count; k++) next[k] = t->next[k < pad ? 0 : k - pad];
    if (count == 1) {
        if (narrow & 1) BSN_T(add_all)(out, elements, next[0], groups, width, 1);
        else BSN_T(add_all)(out, elements, next[0], groups, width, width);
        t->next[0] += 64 * groups * (narrow & 1 ? 1 : width);
        return;
    }
    BSN_T(borders)(border, t, width, count, pad);
    for (; groups; groups--, out += 64 * width, elements += 64 * width) {
        BSN_T(v) z[BSN_T_N], keys[BSN_T_N];
        BSN_T(m) rest[BSN_T_N], of[BSN_T_N];
        BSN_T(s) set[8];
        uint8_t bytes[64];
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) {
            z[i] = c.none;
            rest[i] = BSN_T(all_of)();
            keys[i] = BSN_T(keys)(width, elements + i * BSN_T_BYTES * width);
        }
        BSN_UNROLL
        for (k = 0; k < count; k++) {
            BSN_T(class_of)(of, rest, keys, border, k, count);
            set[k] = BSN_T(set_of)(&c, of);
        }
        BSN_T_UNROLL
        for (k = 0; k < count; k++)
            if (narrow >> k & 1) BSN_T(expand_list)(&c, z, set[k], &next[k]);
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) BSN_T(store)(bytes + i * BSN_T_BYTES, z[i]);
        BSN_T_UNROLL
        for (i = 0; i < 64; i += lanes) {
            BSN_T(v) w = BSN_T(widen)(width, bytes + i);
            BSN_T_UNROLL
            for (k = 0; k < count; k++)
                if (width > 1 && !(narrow >> k & 1))
                    w = BSN_T(expand_words)(width, w, set[k].bits >> i & (~UINT64_C(0) >> (64 - lanes)), &next[k]);
            BSN_T(store)(out + i * width, BSN_T(unzigzag_add)(width, BSN_T(load)(elements + i * width), w));
        }
    }
    BSN_UNROLL
    for (k = 0; k < count; k++)
        if (k >= pad) t->next[k - pad] = next[k];
}

BSN_T_KERNEL void BSN_T(classes_add)(bsn_classes *t, uint8_t *out, const uint8_t *elements, size_t groups)
{
#define BSN_CALL(width, count, pad) BSN_T(add_width)(t, out, elements, groups, width, count, pad)
    BSN_CLASSES_SWITCH(bsn_classes_add_loop(t, out, elements, groups, 8))
#undef BSN_CALL
}

/* The reverse, by compression. */
BSN_T_INLINE void BSN_T(deal_width)(bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups, unsigned width,
                                    unsigned count, unsigned pad)
{
    const unsigned narrow = width == 1 ? 0xFF : t->narrow << pad | ((1u << pad) - 1), lanes = BSN_T_BYTES / width;
    uint8_t *list[8], nowhere[64];
    BSN_T(v) border[7];
    size_t i;
    unsigned k;
    BSN_UNROLL
    for (k = 0; k < count; k++) list[k] = k < pad ? nowhere : t->list[k - pad];
    BSN_T(borders)(border, t, width, count, pad);
    for (; groups; groups--, words += 64 * width, elements += 64 * width) {
        BSN_T(v) bytes[BSN_T_N], keys[BSN_T_N];
        BSN_T(m) rest[BSN_T_N], of[BSN_T_N];
        uint64_t m[8];
        int none = count > 1 && !BSN_T_MASKS;
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) {
            bytes[i] = BSN_T(narrow)(width, words + i * BSN_T_BYTES * width);
            if (count > 1) keys[i] = BSN_T(keys)(width, elements + i * BSN_T_BYTES * width);
            rest[i] = BSN_T(all_of)();
            if (count > 1 && !BSN_T_MASKS) none &= BSN_T(zero)(bytes[i]);
        }
        BSN_UNROLL
        for (k = 0; k < count; k++) {
            BSN_T(class_of)(of, rest, keys, border, k, count);
            m[k] = BSN_T(bits)(of);
        }
        BSN_T_UNROLL
        for (k = 0; k < count; k++) {
            const unsigned step = narrow >> k & 1 ? 1 : width;
            if (count == 1) {
                for (i = 0; i < 64 * step; i += BSN_T_BYTES)
                    BSN_T(store)(list[k] + i, step == 1 ? bytes[i / BSN_T_BYTES] : BSN_T(load)(words + i));
                list[k] += 64 * step;
            } else if (none) { /* nothing has changed */
                const size_t size = step * BSN_T(popcount)(m[k]);
                for (i = 0; i < size; i += BSN_T_BYTES) BSN_T(store)(list[k] + i, bytes[0]);
                list[k] += size;
            } else if (step == 1) {
                BSN_T(compress_list)(bytes, m[k], &list[k], 0);
            } else {
                BSN_T_UNROLL
                for (i = 0; i < 64; i += lanes)
                    BSN_T(compress_words)(width, BSN_T(load)(words + i * width), m[k] >> i & (~UINT64_C(0) >> (64 - lanes)), &list[k]);
            }
        }
    }
    BSN_UNROLL
    for (k = 0; k < count; k++)
        if (k >= pad) t->list[k - pad] = list[k];
}

BSN_T_KERNEL void BSN_T(classes_deal)(bsn_classes *t, const uint8_t *words, const uint8_t *elements, size_t groups)
{
#define BSN_CALL(width, count, pad) BSN_T(deal_width)(t, words, elements, groups, width, count, pad)
    BSN_CLASSES_SWITCH(bsn_classes_deal_loop(t, words, elements, groups, 8))
#undef BSN_CALL
}

#if !BSN_T_MASKS
/* Counts elements of 2 bytes. Computes the table positions of all 32 words, and counts those above 0 one by
 * one. */
BSN_T_KERNEL void BSN_T(census)(bsn_census *x, uint8_t *symbols, const uint8_t *words, const uint8_t *elements, size_t groups)
{
    const unsigned unused = x->width == 2 ? x->exponent.shift - 7 : 0;
    const BSN_T(n) down = BSN_T(number)(unused);
    const BSN_T(v) mask = BSN_T(all)(1, 0xFFu >> unused), none = BSN_T(all)(8, 0);
    uint32_t *count = (uint32_t *)(void *)x->token, place[32];
    unsigned i, at;
    if (x->width != 2) {
        bsn_scalar_census(x, symbols, words, elements, groups);
        return;
    }
    for (; groups; groups--, symbols += 64, words += 128, elements += 128) {
        BSN_T(m) zero[BSN_T_N];
        uint64_t w;
        BSN_UNROLL
        for (i = 0; i < BSN_T_N; i++) {
            const BSN_T(v) keys = BSN_T(keys)(2, elements + i * 2 * BSN_T_BYTES);
            BSN_T(store)(symbols + i * BSN_T_BYTES, BSN_T(and)(BSN_T(shr)(2, keys, down), mask));
            zero[i] = BSN_T(reach)(none, BSN_T(narrow)(2, words + i * 2 * BSN_T_BYTES));
        }
        w = ~BSN_T(bits)(zero);
        for (at = 0; w; at += 32, w >>= 32) {
            uint32_t some = (uint32_t)w;
            for (i = 0; some && i < 32; i += BSN_T_BYTES / 4) {
                const BSN_T(v) s = BSN_T(widen)(4, symbols + at + i), of = BSN_T(add)(4, BSN_T_SHL(4, s, 7), BSN_T_SHL(4, s, 3));
                BSN_T(store)((uint8_t *)(place + i), BSN_T(add)(4, of, BSN_T(tokens)(words + 2 * (at + i))));
            }
            for (; some; some &= some - 1) count[place[bsn_lowest_bit(some)]]++;
        }
    }
}
#endif

/* Splits 2 or 4 registers of words into symbols, bits and bytes. */
BSN_T_INLINE uint64_t BSN_T(split_words)(const bsn_slices *t, uint8_t *symbols, uint8_t *bits, uint8_t *planes, const uint8_t *words,
                                         size_t n, unsigned width)
{
    const bsn_slices slices = *t; /* no store changes it */
    const unsigned whole = slices.shift / 8, mask = (1u << slices.shift % 8) - 1;
    const unsigned parts = planes || bits ? whole + (mask && bits) : 0;
    const BSN_T(n) down = BSN_T(number)(slices.shift);
    const BSN_T(v) most = BSN_T(all)(width, slices.limit), some = BSN_T(all)(1, mask);
    BSN_T(v) any = BSN_T(all)(8, 0);
    size_t i;
    unsigned j, k;
    for (i = 0; i < n; i += BSN_T_BYTES) {
        BSN_T(v) x[4], y[4];
        BSN_UNROLL
        for (j = 0; j < width; j++) {
            x[j] = BSN_T(load)(words + i * width + j * BSN_T_BYTES);
            any = BSN_T(or)(any, x[j]);
            y[j] = BSN_T(min)(width, BSN_T(shr)(width, x[j], down), most);
        }
        BSN_T(store)(symbols + i, BSN_T(lowest)(width, y));
        for (k = 0; k < parts; k++) {
            if (k == whole) BSN_T(store)(bits + i, BSN_T(and)(BSN_T(lowest)(width, x), some));
            else if (planes) BSN_T(store)(planes + k * slices.stride + i, BSN_T(lowest)(width, x));
            if (k + 1 == parts) break;
            /* clang does not unroll a loop here */
            x[0] = BSN_T_SHR(width, x[0], 8), x[1] = BSN_T_SHR(width, x[1], 8);
            if (width == 4) x[2] = BSN_T_SHR(width, x[2], 8), x[3] = BSN_T_SHR(width, x[3], 8);
        }
    }
    return BSN_T(any)(width, any);
}

BSN_T_KERNEL uint64_t BSN_T(words_split)(const bsn_slices *t, uint8_t *symbols, uint8_t *bits, uint8_t *planes, const uint8_t *words,
                                         size_t n)
{
    return t->width == 2 ? BSN_T(split_words)(t, symbols, bits, planes, words, n, 2)
                         : BSN_T(split_words)(t, symbols, bits, planes, words, n, 4);
}

/* Words of 4 bytes, which are `whole` planes, then bits and symbols. */
BSN_T_INLINE void BSN_T(join_words)(const bsn_slices *t, uint8_t *words, const uint8_t *symbols, const uint8_t *bits,
                                    const uint8_t *planes, size_t n, unsigned whole)
{
    const unsigned mask = t->shift % 8;
    const size_t stride = t->stride;
    const BSN_T(v) upper = BSN_T(all)(1, 0xFFu << mask), lower = BSN_T(all)(1, (1u << mask) - 1), none = BSN_T(all)(8, 0);
    const BSN_T(n) up = BSN_T(number)(mask), down = BSN_T(number)(8 - mask);
    size_t i;
    unsigned k;
    for (i = 0; i < n; i += BSN_T_BYTES) {
        const BSN_T(v) x = BSN_T(load)(symbols + i);
        BSN_T(v) b[5], v[4];
        BSN_UNROLL
        for (k = 0; k < whole; k++) b[k] = BSN_T(load)(planes + k * stride + i);
        b[whole] = BSN_T(and)(BSN_T(shl)(2, x, up), upper);
        if (mask) b[whole] = BSN_T(or)(b[whole], BSN_T(load)(bits + i));
        b[whole + 1] = BSN_T(and)(BSN_T(shr)(2, x, down), lower);
        BSN_UNROLL
        for (k = 0; k < 4; k++) b[k] = k < whole + 2 ? BSN_T(lanes)(b[k]) : none;
        BSN_T(unpack)(v, b[0], b[1], b[2], b[3]);
        BSN_UNROLL
        for (k = 0; k < 4; k++) BSN_T(store)(words + 4 * i + k * BSN_T_BYTES, v[k]);
    }
}

BSN_T_KERNEL void BSN_T(words_join)(const bsn_slices *t, uint8_t *words, const uint8_t *symbols, const uint8_t *bits,
                                    const uint8_t *planes, size_t n)
{
    const unsigned whole = t->shift / 8, mask = t->shift % 8;
    const BSN_T(n) up = BSN_T(number)(t->shift), above = BSN_T(number)(8 * whole);
    size_t i;
    switch (t->width == 4 ? whole : 4) {
    case 0: BSN_T(join_words)(t, words, symbols, bits, planes, n, 0); return;
    case 1: BSN_T(join_words)(t, words, symbols, bits, planes, n, 1); return;
    case 2: BSN_T(join_words)(t, words, symbols, bits, planes, n, 2); return;
    case 3: BSN_T(join_words)(t, words, symbols, bits, planes, n, 3); return;
    default: break;
    }
    for (i = 0; i < n; i += BSN_T_BYTES / 2) {
        BSN_T(v) x = BSN_T(shl)(2, BSN_T(widen)(2, symbols + i), up);
        if (mask) x = BSN_T(or)(x, BSN_T(shl)(2, BSN_T(widen)(2, bits + i), above));
        if (whole) x = BSN_T(or)(x, BSN_T(widen)(2, planes + i));
        BSN_T(store)(words + 2 * i, x);
    }
}

/* ---- bins of F32, BSN_T_BYTES elements at a time ---- */

BSN_T_INLINE BSN_T(v) BSN_T(all_f)(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return BSN_T(all)(4, bits);
}

BSN_T_INLINE uint64_t BSN_T(sum)(BSN_T(v) x)
{
    uint32_t lanes[BSN_T_BYTES / 4], *lane = lanes;
    uint64_t sum = 0;
    unsigned i;
    BSN_OPAQUE("+r", lane); /* or compilers keep the lanes in memory */
    BSN_T(store)((uint8_t *)lane, x);
    for (i = 0; i < BSN_T_BYTES / 4; i++) sum += lane[i];
    return sum;
}

BSN_T_INLINE uint32_t BSN_T(most)(BSN_T(v) x)
{
    uint32_t lanes[BSN_T_BYTES / 4], *lane = lanes;
    unsigned i;
    BSN_OPAQUE("+r", lane);
    BSN_T(store)((uint8_t *)lane, x);
    for (i = 1; i < BSN_T_BYTES / 4; i++)
        if (lane[0] < lane[i]) lane[0] = lane[i];
    return lane[0];
}

/* The bin of a significand's fraction z; *unsure: where that may be the one beside it. Two steps at a time:
 * each waits for the one before. */
BSN_T_INLINE BSN_T(v) BSN_T(bin)(BSN_T(v) z, BSN_T(v) bins, BSN_T(w) *unsure)
{
    const BSN_T(v) doubt = BSN_T(mul_f)(bins, BSN_T(all_f)(BSN_LOG_DOUBT)), z2 = BSN_T(mul_f)(z, z);
    BSN_T(v) y = BSN_T(fma_f)(BSN_T(all_f)(BSN_LOG_5), z, BSN_T(all_f)(BSN_LOG_4)), bin;
    y = BSN_T(fma_f)(BSN_T(all_f)(BSN_LOG_6), z2, y);
    y = BSN_T(fma_f)(y, z2, BSN_T(fma_f)(BSN_T(all_f)(BSN_LOG_3), z, BSN_T(all_f)(BSN_LOG_2)));
    y = BSN_T(fma_f)(y, z2, BSN_T(fma_f)(BSN_T(all_f)(BSN_LOG_1), z, BSN_T(all_f)(BSN_LOG_0)));
    y = BSN_T(fma_f)(y, BSN_T(mul_f)(z, bins), doubt);
    bin = BSN_T(of_f)(y);
    *unsure = BSN_T(less_f)(BSN_T(sub_f)(y, BSN_T(to_f)(bin)), BSN_T(add_f)(doubt, doubt));
    return bin;
}

/* Cells by x->find, and exponents, as bytes in the order of lanes. Returns which are of normal numbers. */
BSN_T_INLINE BSN_T(m) BSN_T(find)(BSN_T(v) *bin, BSN_T(v) *exponent, const BSN_T(v) v[4], const BSN_T(t) *t)
{
    const BSN_T(v) one = BSN_T(all)(1, 1);
    BSN_T(v) b[4], found[3];
    BSN_T(m) less;
    BSN_T(bytes)(b, v);
    BSN_T(of_tables)(found, t, BSN_T(and)(b[2], BSN_T(all)(1, 0x7F)), 128);
    less = BSN_T(andnot_m)(BSN_T(reach)(b[0], found[1]), BSN_T(equal_m)(b[1], found[2]));
    *bin = BSN_T(next)(BSN_T(andnot_m)(less, BSN_T(reach)(b[1], found[2])), found[0]);
    *exponent = BSN_T(or)(BSN_T(add)(1, b[3], b[3]), BSN_T(and)(BSN_T_SHR(2, b[2], 7), one));
    return BSN_T(reach)(BSN_T(all)(1, 253), BSN_T(sub)(1, *exponent, one));
}

/* What lanes of 2 bytes are above, without the amount that is the same for all: see bsn_row_expected. There
 * are 128 bins at most. */
BSN_T_INLINE BSN_T(v) BSN_T(above)(BSN_T(v) columns, BSN_T(v) row, BSN_T(v) bins, BSN_T(v) first)
{
    const BSN_T(v) x = BSN_T(mul)(BSN_T(add)(2, columns, row), bins);
    return BSN_T(add)(2, BSN_T_SHR(2, BSN_T(add)(2, x, BSN_T(all)(2, 4)), 3), first);
}

/* And what elements are, of any number of bins: both factors are below 2^15. */
BSN_T_INLINE BSN_T(v) BSN_T(expected)(const bsn_row *p, size_t i)
{
    const BSN_T(v) scale = BSN_T(add)(4, BSN_T(widen)(4, p->columns + i), BSN_T(all)(4, p->row));
    const BSN_T(v) x = BSN_T(product)(scale, BSN_T(all)(4, p->log->bins));
    return BSN_T_SHR(4, BSN_T(add)(4, x, BSN_T(all)(4, 4)), 3);
}

/* Words, and how far significands are from what they become, where that is asked for. With x->finds of four
 * registers at once: numbers of bins less what is expected, above -2^13, in 16 bits. Returns which groups of
 * BSN_T_BYTES elements, a bit each, are left to bsn_log_words_left. */
BSN_T_INLINE uint64_t BSN_T(some_words)(const bsn_row *p, bsn_errors *e, uint32_t *words, uint32_t *distance,
                                        const uint8_t *elements, size_t n, int finds, int measured)
{
    const bsn_log *x = p->log;
    const bsn_row row = *p; /* no store changes it */
    const unsigned lanes = BSN_T_BYTES / 4, registers = finds ? 4 : 1;
    const uint32_t first = BSN_CODE_FIRST + 22 * x->bins - row.base;
    const BSN_T(v) none = BSN_T(all)(8, 0), one = BSN_T(all)(4, 1), mantissa = BSN_T(all)(4, 0x7FFFFF);
    const BSN_T(v) bins = BSN_T(all)(finds ? 2 : 4, x->bins), scale = BSN_T(all_f)((float)x->bins);
    const uint32_t over = !row.columns ? bsn_expected(row.row, x->bins) : finds ? 8192 : 0;
    const BSN_T(v) of_row = BSN_T(all)(2, row.row), base = BSN_T(all)(4, first - over);
    const BSN_T(w) full = BSN_T(equal_w)(none, none);
    const BSN_T(n) up = BSN_T(number)(row.signs), down = BSN_T(number)(32 - row.signs);
    const BSN_T(t) find = BSN_T(tables)(x, 1), table = BSN_T(tables)(x, 0);
    BSN_T(v) normals = none;
    uint64_t odd = 0;
    size_t i, counted = 0;
    unsigned j, k, rare;
    for (i = 0; i < n; i += registers * lanes) {
        BSN_T(v) v[4], above[4], center[4];
        BSN_T(w) usual[4], every;
        BSN_UNROLL
        for (j = 0; j < registers; j++) v[j] = BSN_T(load)(elements + 4 * i + j * BSN_T_BYTES);
        if (finds) {
            BSN_T(v) bin, exponent, c[2], b[3];
            const BSN_T(m) normal = BSN_T(find)(&bin, &exponent, v, &find);
            if (measured) {
                BSN_T(of_tables)(b, &table, bin, x->bins);
                BSN_T(unpack)(center, b[0], b[1], b[2], none);
            }
            c[0] = BSN_T(add)(2, BSN_T(mul)(BSN_T(zip_low)(1, exponent, none), bins), BSN_T(zip_low)(1, bin, none));
            c[1] = BSN_T(add)(2, BSN_T(mul)(BSN_T(zip_high)(1, exponent, none), bins), BSN_T(zip_high)(1, bin, none));
            if (measured && row.columns) {
                const BSN_T(v) columns = BSN_T(lanes)(BSN_T(load)(row.columns + i)), below = BSN_T(all)(2, 65536 - 8192);
                c[0] = BSN_T(sub)(2, c[0], BSN_T(above)(BSN_T(zip_low)(1, columns, none), of_row, bins, below));
                c[1] = BSN_T(sub)(2, c[1], BSN_T(above)(BSN_T(zip_high)(1, columns, none), of_row, bins, below));
            }
            BSN_UNROLL
            for (j = 0; j < 2; j++) {
                above[2 * j] = BSN_T(add)(4, BSN_T(zip_low)(2, c[j], none), base);
                above[2 * j + 1] = BSN_T(add)(4, BSN_T(zip_high)(2, c[j], none), base);
            }
            usual[0] = usual[1] = usual[2] = usual[3] = full;
            k = BSN_T(ones)(normal);
            counted += k;
            if (BSN_UNLIKELY(k < BSN_T_BYTES)) BSN_T(to_w)(usual, normal);
        } else {
            const BSN_T(v) m = BSN_T(and)(v[0], mantissa), exponent = BSN_T(and)(BSN_T_SHR(4, v[0], 23), BSN_T(all)(4, 255));
            BSN_T(w) unsure;
            BSN_T(v) bin = BSN_T(bin)(BSN_T(mul_f)(BSN_T(to_f)(m), BSN_T(all_f)(1.0f / 8388608)), scale, &unsure);
            rare = BSN_T(bits_w)(BSN_T(and_w)(unsure, BSN_T(above_w)(m, none)));
            if (BSN_UNLIKELY(rare)) {
                uint32_t known[BSN_T_BYTES / 4];
                BSN_T(store)((uint8_t *)known, bin);
                for (; rare; rare &= rare - 1) {
                    k = bsn_lowest_bit(rare);
                    known[k] = bsn_log_bin(x, (bsn_load32(elements + 4 * (i + k)) & 0x7FFFFF) | 0x800000);
                }
                bin = BSN_T(load)((const uint8_t *)known);
            }
            above[0] = measured && row.columns ? BSN_T(sub)(4, base, BSN_T(expected)(&row, i)) : base;
            above[0] = BSN_T(add)(4, BSN_T(add)(4, BSN_T(product)(exponent, bins), bin), above[0]);
            if (measured) center[0] = BSN_T(entries)(&table, x->normal, bin, 0);
            usual[0] = BSN_T(reach_w)(BSN_T(all)(4, 253), BSN_T(sub)(4, exponent, one));
            normals = BSN_T(add)(4, normals, BSN_T(keep_w)(usual[0], one));
        }
        BSN_UNROLL
        for (j = 0; j < registers; j++) {
            if (measured) usual[j] = BSN_T(and_w)(usual[j], BSN_T(above_w)(above[j], one));
            above[j] = BSN_T(append)(BSN_T(keep_w)(usual[j], above[j]), v[j], up, down);
            BSN_T(store)((uint8_t *)(words + i + j * lanes), above[j]);
            if (!measured) continue;
            center[j] = BSN_T(keep_w)(usual[j], BSN_T(between)(BSN_T(and)(v[j], mantissa), center[j]));
            BSN_T(store)((uint8_t *)(distance + i + j * lanes), center[j]);
        }
        every = finds ? BSN_T(and_w)(BSN_T(and_w)(usual[0], usual[1]), BSN_T(and_w)(usual[2], usual[3])) : usual[0];
        if (BSN_LIKELY(BSN_T(bits_w)(every) == (1u << lanes) - 1)) continue;
        for (j = rare = 0; j < registers; j++) {
            const BSN_T(w) known = BSN_T(or_w)(usual[j], BSN_T(equal_w)(BSN_T(add)(4, v[j], v[j]), none));
            rare |= BSN_T(bits_w)(known) ^ ((1u << lanes) - 1);
        }
        odd |= (uint64_t)(rare != 0) << i / BSN_T_BYTES;
    }
    if (measured) e->counted += counted + BSN_T(sum)(normals);
    return odd;
}

/* The largest exponent of numbers: where nothing else needs registers. */
BSN_T_FUNCTION uint32_t BSN_T(highest)(const uint8_t *elements, size_t n)
{
    const BSN_T(v) special = BSN_T(all)(4, 0x7F800000);
    BSN_T(v) top = BSN_T(all)(8, 0);
    size_t i;
    for (i = 0; i < n; i += BSN_T_BYTES / 4) {
        const BSN_T(v) v = BSN_T(and)(BSN_T(load)(elements + 4 * i), special);
        top = BSN_T(max)(top, BSN_T(keep_w)(BSN_T(above_w)(special, v), v));
    }
    return BSN_T(most)(top) >> 23;
}

/* Errors from distances, at most 1024; h is the significand, halved until it is less than 1. Sums of 256
 * relative errors below 2^23 fit a lane. */
BSN_T_FUNCTION void BSN_T(errors)(bsn_errors *e, const bsn_log *x, const uint32_t *distance, const uint8_t *elements, size_t n)
{
    const BSN_T(v) mantissa = BSN_T(all)(4, 0x7FFFFF), special = BSN_T(all)(4, 0x7F800000), none = BSN_T(all)(8, 0);
    const BSN_T(v) half = BSN_T(all)(4, 0x3F000000);
    const unsigned window = bsn_log_window(x);
    const uint32_t highest = BSN_T(highest)(elements, n), exponent = highest > window / 2 ? highest - window / 2 : 1;
    const BSN_T(v) lowest = BSN_T(all)(4, 2 * exponent);
    BSN_T(v) sum = none, relative = none, largest = none, square = none;
    uint64_t totals[BSN_T_BYTES / 8], *total = totals;
    uint32_t most;
    size_t i;
    BSN_OPAQUE("+r", total); /* or compilers keep the sums in memory */
    for (i = 0; i < n; i += BSN_T_BYTES / 4) {
        const BSN_T(v) v = BSN_T(load)(elements + 4 * i), octave = BSN_T(and)(v, special);
        const BSN_T(v) d = BSN_T(load)((const uint8_t *)(distance + i)), exactly = BSN_T(to_f)(d);
        const BSN_T(v) r = BSN_T(quotients)(d, exactly, BSN_T(or)(BSN_T(and)(v, mantissa), half));
        const BSN_T(v) octaves = BSN_T(sub)(4, BSN_T_SHR(4, octave, 22), lowest);
        const BSN_T(w) apart = BSN_T(above_w)(d, none);
        unsigned rare = BSN_T(bits_w)(BSN_T(and_w)(apart, BSN_T(above_w)(none, octaves)));
        sum = BSN_T(add)(4, sum, r);
        relative = BSN_T(max)(relative, r);
        largest = BSN_T(max)(largest, BSN_T(keep_w)(apart, BSN_T(add)(4, exactly, octave)));
        square = BSN_T(square_sum)(square, d, octaves);
        for (; BSN_UNLIKELY(rare); rare &= rare - 1) {
            const size_t k = i + bsn_lowest_bit(rare);
            const uint64_t wide = distance[k];
            e->squares[22 + (bsn_load32(elements + 4 * k) >> 23 & 255)] += (wide * wide + 127) >> 7;
        }
    }
    e->relative_sum += BSN_T(sum)(sum);
    most = BSN_T(most)(relative);
    if (e->relative < most) e->relative = most;
    bsn_errors_note(e, BSN_T(most)(largest));
    BSN_T(store)((uint8_t *)total, square);
    for (i = 0; i < BSN_T_BYTES / 8; i++) bsn_log_square_sum(e, total[i], exponent, window);
}

/* One function for each: together they would need the stack of all. */
#define BSN_WORDS_OF(name, finds, measured)                                                           \
    BSN_T_FUNCTION uint64_t BSN_T(name)(const bsn_row *p, bsn_errors *e, uint32_t *words, uint32_t *distance, \
                                        const uint8_t *elements, size_t n)                            \
    {                                                                                                 \
        return BSN_T(some_words)(p, e, words, distance, elements, n, finds, measured);                     \
    }
BSN_WORDS_OF(more_codes, 0, 0)
BSN_WORDS_OF(more_words, 0, 1)
BSN_WORDS_OF(found_codes, 1, 0)
BSN_WORDS_OF(found_words, 1, 1)
#undef BSN_WORDS_OF

/* Portions of 1024, while they are in the first-level cache, in loops of their own: in each there are enough
 * steps that wait for each other. n is a multiple of BSN_T_BYTES. */
BSN_T_FUNCTION size_t BSN_T(log_portions)(const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, size_t n,
                                          uint32_t *distance)
{
    size_t i, exact = 0;
    for (i = 0; i < n; i += 1024) {
        const size_t m = bsn_min(1024, n - i);
        const bsn_row row = bsn_rest_of(p, i);
        const uint64_t odd = (p->log->finds ? e ? BSN_T(found_words) : BSN_T(found_codes)
                                            : e ? BSN_T(more_words) : BSN_T(more_codes))(&row, e, words + i, distance,
                                                                                         elements + 4 * i, m);
        if (odd) {
            BSN_T(end)();
            exact += bsn_log_words_left(&row, e, words + i, elements + 4 * i, odd, BSN_T_BYTES);
        }
        if (e) BSN_T(errors)(e, p->log, distance, elements + 4 * i, m);
    }
    return exact;
}

/* Codes are words above 0. Behind the last elements there are zeros. */
BSN_T_KERNEL size_t BSN_T(log_words)(const bsn_row *p, bsn_errors *e, uint32_t *words, const uint8_t *elements, size_t n,
                                     uint8_t *room)
{
    const size_t whole = n & ~(size_t)(BSN_T_BYTES - 1), rest = n - whole;
    const bsn_row codes = { p->log, NULL, 0, 0, 1 };
    uint8_t last[4 * BSN_T_BYTES], columns[BSN_T_BYTES];
    uint32_t its_words[BSN_T_BYTES], distance[BSN_T_BYTES];
    size_t exact;
    bsn_row row;
    if (!e) p = &codes;
    exact = BSN_T(log_portions)(p, e, words, elements, whole, (uint32_t *)(void *)room);
    if (!rest) return exact;
    row = bsn_rest_of(p, whole);
    memset(last, 0, sizeof last);
    memcpy(last, elements + 4 * whole, 4 * rest);
    if (row.columns) {
        memset(columns, 0, sizeof columns);
        memcpy(columns, row.columns, rest);
        row.columns = columns;
    }
    exact += BSN_T(log_portions)(&row, e, its_words, last, BSN_T_BYTES, distance);
    memcpy(words + whole, its_words, 4 * rest);
    return exact;
}

/* The octave of q is floor(q / n), truncated from (q + 1/2) / n in binary32. That quotient is at least 1 / 2n
 * >= 2^-12 away from an integer and below 278, where its error is below 2^-13: truncation is exact. Makes
 * zeros and normal numbers; the scalar code makes all others. */
BSN_T_INLINE int BSN_T(numbers)(const bsn_row *p, uint8_t *elements, const uint8_t *words, size_t n, size_t *apart, int few)
{
    const bsn_log *x = p->log;
    const bsn_row row = *p; /* no store changes it */
    const unsigned lanes = BSN_T_BYTES / 4;
    const BSN_T(v) first = BSN_T(all)(4, 23 * x->bins), count = BSN_T(all)(4, 254 * x->bins - 1), two = BSN_T(all)(4, 2);
    const BSN_T(v) limit = BSN_T(all)(4, bsn_row_limit(p) - 3), bins = BSN_T(all)(4, x->bins), signs = BSN_T(all)(4, p->signs);
    const BSN_T(v) base = BSN_T(all)(4, p->base - BSN_CODE_FIRST), below = BSN_T(all)(4, 22);
    const BSN_T(v) same = BSN_T(add)(4, base, BSN_T(all)(4, bsn_expected(row.row, x->bins)));
    const BSN_T(v) part = BSN_T(all_f)(1.0f / (float)x->bins), half = BSN_T(all_f)(0.5f / (float)x->bins);
    const BSN_T(n) down = BSN_T(number)(p->signs);
    const BSN_T(t) table = BSN_T(tables)(x, 0);
    size_t i, whole = bsn_row_limit(p) < 3 ? 0 : n & ~(size_t)(lanes - 1);
    int good = 1;
    bsn_row rest;
    for (i = 0; i < whole; i += lanes) {
        const BSN_T(v) word = BSN_T(load)(words + 4 * i), u = BSN_T(shr)(4, word, down);
        BSN_T(v) q = BSN_T(add)(4, u, row.columns ? BSN_T(add)(4, base, BSN_T(expected)(&row, i)) : same), octave, y;
        const BSN_T(w) kept = BSN_T(reach_w)(limit, BSN_T(sub)(4, u, two));
        const BSN_T(w) usual = BSN_T(and_w)(kept, BSN_T(reach_w)(count, BSN_T(sub)(4, q, first)));
        q = BSN_T(keep_w)(usual, q);
        octave = BSN_T(of_f)(BSN_T(fma_f)(BSN_T(to_f)(q), part, half));
        y = BSN_T(entries)(&table, x->normal, BSN_T(sub)(4, q, BSN_T(product)(octave, bins)), few);
        y = BSN_T(keep_w)(usual, BSN_T(add)(4, y, BSN_T_SHL(4, BSN_T(sub)(4, octave, below), 23)));
        BSN_T(store)(elements + 4 * i, BSN_T(or)(y, BSN_T_SHL(4, BSN_T(and)(word, signs), 31)));
        if (BSN_UNLIKELY(BSN_T(bits_w)(usual) != (1u << lanes) - 1)) {
            unsigned rare = BSN_T(bits_w)(BSN_T(or_w)(usual, BSN_T(equal_w)(u, BSN_T(all)(8, 0)))) ^ ((1u << lanes) - 1);
            BSN_T(end)();
            for (; rare; rare &= rare - 1) {
                const size_t k = i + bsn_lowest_bit(rare);
                rest = bsn_rest_of(&row, k);
                good &= bsn_scalar_log_numbers(&rest, elements + 4 * k, words + 4 * k, 1, apart);
            }
        }
    }
    if (i == n) return good;
    rest = bsn_rest_of(&row, i);
    BSN_T(end)();
    return bsn_scalar_log_numbers(&rest, elements + 4 * i, words + 4 * i, n - i, apart) & good;
}

BSN_T_KERNEL int BSN_T(log_numbers)(const bsn_row *p, uint8_t *elements, const uint8_t *words, size_t n, size_t *apart)
{
    if (BSN_T_MASKS && p->log->bins <= 128) return BSN_T(numbers)(p, elements, words, n, apart, 1);
    return BSN_T(numbers)(p, elements, words, n, apart, 0);
}

/* Takes words of 15 bits in lanes of 16. Makes exponents and bins as bytes, in the order of lanes; look-ups
 * by these give the bytes of elements. n is a multiple of BSN_T_BYTES. */
BSN_T_FUNCTION uint64_t BSN_T(join_groups)(const bsn_row *p, uint8_t *elements, uint8_t *mask, const uint8_t *symbols,
                                           const uint8_t *low, size_t n, unsigned shift)
{
    const bsn_log *x = p->log;
    const bsn_row row = *p; /* no store changes it */
    const BSN_T(v) none = BSN_T(all)(8, 0), one = BSN_T(all)(1, 1), low7 = BSN_T(all)(1, 0x7F);
    const BSN_T(v) bins = BSN_T(all)(2, x->bins), factor = BSN_T(all)(2, BSN_JOIN_FACTOR(x->bins));
    const BSN_T(v) of_row = BSN_T(all)(2, row.row);
    const BSN_T(v) base = BSN_T(all)(2, row.base - BSN_CODE_FIRST - 22 * x->bins), same = BSN_T(above)(none, of_row, bins, base);
    const BSN_T(v) sign = BSN_T(all)(1, row.signs ? 0x80 : 0);
    const BSN_T(n) up = BSN_T(number)(shift), down = BSN_T(number)(row.signs), part = BSN_T(number)(BSN_JOIN_SHIFT(x->bins));
    const BSN_T(t) table = BSN_T(tables)(x, 0);
    uint64_t any = 0;
    size_t i;
    unsigned j;
    for (i = 0; i < n; i += BSN_T_BYTES) {
        const BSN_T(v) s = BSN_T(lanes)(BSN_T(load)(symbols + i)), l = BSN_T(lanes)(BSN_T(load)(low + i));
        BSN_T(v) u[2], e[2], c[2], y[4], few, exponent;
        BSN_T(m) coded, odd;
        uint64_t w;
        u[0] = BSN_T(or)(BSN_T(shl)(2, BSN_T(zip_low)(1, s, none), up), BSN_T(zip_low)(1, l, none));
        u[1] = BSN_T(or)(BSN_T(shl)(2, BSN_T(zip_high)(1, s, none), up), BSN_T(zip_high)(1, l, none));
        e[0] = e[1] = same;
        if (row.columns) {
            const BSN_T(v) k = BSN_T(lanes)(BSN_T(load)(row.columns + i));
            e[0] = BSN_T(above)(BSN_T(zip_low)(1, k, none), of_row, bins, base);
            e[1] = BSN_T(above)(BSN_T(zip_high)(1, k, none), of_row, bins, base);
        }
        BSN_UNROLL
        for (j = 0; j < 2; j++) {
            u[j] = BSN_T(shr)(2, u[j], down);
            c[j] = BSN_T(add)(2, u[j], e[j]);
            e[j] = BSN_T(shr)(2, BSN_T(mul_high)(c[j], factor), part);
            c[j] = BSN_T(sub)(2, c[j], BSN_T(mul)(e[j], bins));
        }
        few = BSN_T(pack)(u[0], u[1]); /* 255: or more */
        exponent = BSN_T(pack)(e[0], e[1]);
        coded = BSN_T(reach)(few, one);
        /* neither a zero nor 2 and more with an exponent of 1 to 254 */
        odd = BSN_T(or_m)(BSN_T(equal_m)(few, one), BSN_T(reach)(BSN_T(sub)(1, exponent, one), BSN_T(all)(1, 254)));
        odd = BSN_T(and_m)(coded, odd);
        BSN_T(of_tables)(y, &table, BSN_T(pack)(c[0], c[1]), x->bins);
        y[2] = BSN_T(put)(BSN_T(all)(1, 0x80), BSN_T_SHL(2, exponent, 7), y[2]);
        y[3] = BSN_T(and)(BSN_T_SHR(2, exponent, 1), low7);
        BSN_UNROLL
        for (j = 0; j < 4; j++) y[j] = BSN_T(keep)(coded, y[j]);
        y[3] = BSN_T(or)(y[3], BSN_T(and)(BSN_T_SHL(2, shift ? l : s, 7), sign));
        BSN_T(unpack)(y, y[0], y[1], y[2], y[3]);
        BSN_UNROLL
        for (j = 0; j < 4; j++) BSN_T(store)(elements + 4 * i + BSN_T_BYTES * j, y[j]);
        w = BSN_T(lane_bits)(odd);
        memcpy(mask + i / 8, &w, BSN_T_BYTES / 8);
        any |= w;
    }
    return any;
}

BSN_T_KERNEL uint64_t BSN_T(log_join)(const bsn_row *p, uint8_t *elements, uint8_t *mask, const uint8_t *symbols,
                                      const uint8_t *low, size_t n, unsigned shift)
{
    const size_t whole = n & ~(size_t)(BSN_T_BYTES - 1), rest = n - whole;
    uint8_t some[3][BSN_T_BYTES], out[4 * BSN_T_BYTES], its_mask[8];
    uint64_t any = whole ? BSN_T(join_groups)(p, elements, mask, symbols, low, whole, shift) : 0, last;
    bsn_row row = bsn_rest_of(p, whole);
    if (!rest) return any;
    memset(some, 0, sizeof some);
    memcpy(some[0], symbols + whole, rest);
    memcpy(some[1], low + whole, rest);
    if (row.columns) {
        memcpy(some[2], row.columns, rest);
        row.columns = some[2];
    }
    last = BSN_T(join_groups)(&row, out, its_mask, some[0], some[1], BSN_T_BYTES, shift) & ((UINT64_C(1) << rest) - 1);
    memcpy(elements + 4 * whole, out, 4 * rest);
    bsn_store_some(mask + whole / 8, last, bsn_mask_bytes(rest));
    return any | last;
}

/* ---- masks ---- */

/* Appends the elements that are set to a list that has `left` bytes left. Nothing past these is written. */
BSN_T_INLINE void BSN_T(deal_part)(const BSN_T(v) *x, uint64_t m, uint8_t **list, size_t *left, unsigned width)
{
    uint8_t last[64], *const to = BSN_LIKELY(*left >= 64) ? *list : last, *end = to;
    size_t size;
    if (width == 1) BSN_T(compress_list)(x, m, &end, 0);
    else BSN_T(compress_words)(width, *x, m, &end);
    size = (size_t)(end - to);
    if (BSN_UNLIKELY(*left < 64)) memcpy(*list, last, size);
    *list += size;
    *left -= size;
}

/* elements of a group that are in registers at once */
#define BSN_T_LANES(width) (width == 1 ? 64 : BSN_T_BYTES / width)

BSN_T_INLINE void BSN_T(partition_width)(const uint8_t *list, size_t n, const uint8_t *mask, uint8_t *zeros, uint8_t *ones,
                                         size_t set_bits, unsigned width)
{
    const unsigned lanes = BSN_T_LANES(width), registers = width == 1 ? BSN_T_N : 1;
    size_t ones_left = set_bits * width, zeros_left = n * width - ones_left, i, j, q;
    uint8_t last[64 * 8];
    if (!BSN_T_MASKS && width == 8) {
        bsn_scalar_partition(width, list, n, mask, zeros, ones);
        return;
    }
    if (!BSN_T_MASKS && !zeros && ones && ones_left < n * width / 24) {
        bsn_pick_any(ones, list, n, mask, width);
        return;
    }
    for (i = 0; i < n; i += 64, list += 64 * width) {
        const uint64_t set = bsn_mask_word(mask, i, n);
        uint64_t clear = ~set;
        if (BSN_UNLIKELY(n - i < 64)) {
            clear &= (UINT64_C(1) << (n - i)) - 1;
            list = bsn_filled_up(last, 64 * width, list, (n - i) * width, 0);
        }
        BSN_ROLLED
        for (j = 0; j < 64; j += lanes) {
            const uint64_t part = ~UINT64_C(0) >> (64 - lanes);
            BSN_T(v) x[BSN_T_N];
            BSN_UNROLL
            for (q = 0; q < registers; q++) x[q] = BSN_T(load)(list + j * width + q * BSN_T_BYTES);
            if (ones) BSN_T(deal_part)(x, set >> j & part, &ones, &ones_left, width);
            if (zeros) BSN_T(deal_part)(x, clear >> j & part, &zeros, &zeros_left, width);
        }
    }
}

BSN_T_KERNEL void BSN_T(partition)(unsigned width, const uint8_t *list, size_t n, const uint8_t *mask, uint8_t *zeros, uint8_t *ones)
{
    const size_t set_bits = BSN_T(count)(mask, n);
    BSN_WIDTHS(width, BSN_T(partition_width), (list, n, mask, zeros, ones, set_bits));
}

BSN_T_INLINE void BSN_T(unpart_width)(uint8_t *to, const uint8_t *zeros, const uint8_t *ones, const uint8_t *mask, size_t groups,
                                      unsigned width)
{
    const unsigned lanes = BSN_T_LANES(width);
    const uint64_t part = ~UINT64_C(0) >> (64 - lanes);
    size_t j;
    if (!BSN_T_MASKS && (width == 1 || width == 8)) {
        bsn_scalar_unpart(width, to, zeros, ones, mask, groups);
        return;
    }
    for (; groups; groups--, mask += 8, to += 64 * width) {
        const uint64_t set = bsn_load64(mask);
        BSN_T_UNROLL
        for (j = 0; j < 64; j += lanes) {
            BSN_T(v) x = BSN_T(all)(8, 0);
            if (zeros) x = BSN_T(expand_words)(width, x, ~set >> j & part, &zeros);
            if (ones) x = BSN_T(expand_words)(width, x, set >> j & part, &ones);
            BSN_T(store)(to + j * width, x);
        }
    }
}

BSN_T_KERNEL void BSN_T(unpart)(unsigned width, uint8_t *to, const uint8_t *zeros, const uint8_t *ones, const uint8_t *mask, size_t groups)
{
    BSN_WIDTHS(width, BSN_T(unpart_width), (to, zeros, ones, mask, groups));
}

/* Two lists that fill all places. */
BSN_T_INLINE void BSN_T(fill)(const BSN_T(k) *c, BSN_T(v) x[BSN_T_N], uint64_t w, const uint8_t **zeros, const uint8_t **ones)
{
#if BSN_T_RANKS
    BSN_T(mix)(c, x, BSN_T(set)(c, w), zeros, ones);
#else
    unsigned i;
    BSN_UNROLL
    for (i = 0; i < BSN_T_N; i++) x[i] = c->none;
    BSN_T(expand_list)(c, x, BSN_T(set)(c, ~w), zeros);
    BSN_T(expand_list)(c, x, BSN_T(set)(c, w), ones);
#endif
}

/* ---- trees ---- */

/* A node while it is merged. */
typedef struct BSN_T(merging) {
    BSN_T(k) c;
    BSN_T(v) leaf[5]; /* the first four, each in all places; and all 16 in each 16 bytes */
    const uint8_t *plane, *list[4], *twig[2];
    size_t stride, used[2];
} BSN_T(merging);

BSN_T_INLINE void BSN_T(merge_begin)(BSN_T(merging) *m, const bsn_node *node, size_t first, unsigned lists, unsigned chained)
{
    unsigned j;
    m->c = BSN_T(begin)();
    BSN_UNROLL
    for (j = 0; j < 4; j++) m->leaf[j] = BSN_T(all)(1, node->leaf[j]);
    m->leaf[4] = BSN_T(all16)(node->leaf);
    m->plane = node->planes + first / 8;
    m->stride = node->stride;
    BSN_UNROLL
    for (j = 0; j < lists; j++) m->list[j] = node->list[j];
    BSN_UNROLL
    for (j = 0; j < 2 * chained; j++) {
        m->twig[j] = node[1 + j].planes;
        m->used[j] = node[1 + j].stride;
    }
}

BSN_T_INLINE void BSN_T(merge_end)(const BSN_T(merging) *m, bsn_node *node, unsigned lists, unsigned chained)
{
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < lists; j++) node->list[j] = m->list[j];
    BSN_UNROLL
    for (j = 0; j < 2 * chained; j++) node[1 + j].stride = m->used[j];
}

/* The next 64 elements of a node. Leaves by blends or a shuffle, whose index is the slot's number; lists are
 * expanded into that.
 * `chained`: of three nodes in a row. The planes of the second and third one are brought to the places of the
 * elements, where they make a node of four slots. */
BSN_T_INLINE void BSN_T(merge64)(BSN_T(merging) *m, BSN_T(v) x[BSN_T_N], unsigned k, unsigned lists, unsigned chained)
{
    const unsigned known = (1u << k) - lists;
    const BSN_T(v) *const leaf = m->leaf;
    uint64_t w[4] = { 0, 0, 0, 0 };
    BSN_T(s) s[4];
    unsigned i, j;
    BSN_UNROLL
    for (j = 0; j < k; j++) w[j] = chained ? 0 : bsn_load64(m->plane + j * m->stride);
#if BSN_T_CHAINS
    if (chained) {
        const uint64_t a = bsn_load64(m->plane);
        w[0] = BSN_T(deposit)(m->twig[0], &m->used[0], a);
        w[1] = a ^ w[0] ^ BSN_T(deposit)(m->twig[1], &m->used[1], w[0]);
    }
#endif
    m->plane += 8;
    if (k == 1 && lists == 2) {
        BSN_T(fill)(&m->c, x, w[0], &m->list[0], &m->list[1]);
        return;
    }
    BSN_UNROLL
    for (j = 0; j < k; j++) s[j] = BSN_T(set)(&m->c, w[j]);
    BSN_UNROLL
    for (i = 0; i < BSN_T_N; i++) {
        x[i] = known ? leaf[0] : m->c.none;
        if (known == 1 && (k == 1 || !BSN_T_RANKS)) {
            x[i] = BSN_T(unset)(x[i], s[0], i);
#if !BSN_T_RANKS
        } else if (known && k <= 2) {
            x[i] = BSN_T(blend)(s[k - 1], i, leaf[0], leaf[1]);
            if (known == 3) x[i] = BSN_T(blend)(s[0], i, x[i], leaf[2]);
            if (known == 4) x[i] = BSN_T(blend)(s[0], i, x[i], BSN_T(blend)(s[1], i, leaf[2], leaf[3]));
#endif
        } else if (known) {
            BSN_T(v) index = m->c.none;
            BSN_UNROLL
            for (j = 0; j < k; j++) index = BSN_T(digit)(index, s[j], i, k - 1 - j);
            x[i] = BSN_T(shuffle)(leaf[4], index);
        }
    }
    BSN_UNROLL
    for (j = 0; j < lists; j++)
        BSN_T(expand_list)(&m->c, x, BSN_T(slot)(&m->c, s, k, known + j, bsn_list_mask(k, lists, j, w)), &m->list[j]);
}

/* All 64 are put together before any is stored, as a list may end where they go. */
BSN_T_INLINE void BSN_T(merge_node)(bsn_node *node, size_t first, size_t n, uint8_t *out, unsigned k, unsigned lists, unsigned chained)
{
    BSN_T(merging) m;
    size_t i;
    unsigned q;
    BSN_T(merge_begin)(&m, node, first, lists, chained);
    for (i = 0; i < n; i += 64) {
        BSN_T(v) x[BSN_T_N];
        BSN_T(merge64)(&m, x, k, lists, chained);
        BSN_UNROLL
        for (q = 0; q < BSN_T_N; q++) BSN_T(store)(out + i + q * BSN_T_BYTES, x[q]);
    }
    BSN_T(merge_end)(&m, node, lists, chained);
}

BSN_T_KERNEL void BSN_T(node_merge)(bsn_node *node, size_t first, size_t n, uint8_t *out)
{
    if (BSN_T_CHAINS && node->chained) {
        BSN_T(merge_node)(node, first, n, out, 2, 1, BSN_T_CHAINS);
        return;
    }
#define BSN_CALL(k, lists) BSN_T(merge_node)(node, first, n, out, k, lists, 0)
    BSN_NODE_SWITCH(node)
#undef BSN_CALL
}

/* Planes by comparing symbols with leaves: bits are 0 where a slot says so. Behind these planes is one more:
 * the symbols that are the second leaf of a twig. */
BSN_T_INLINE void BSN_T(leaves_planes)(uint64_t w[5], const BSN_T(v) x[BSN_T_N], const BSN_T(v) leaf[12], unsigned k, unsigned lists)
{
    const unsigned slots = 1u << k, first = slots - lists;
    BSN_T(m) zero[4][BSN_T_N];
    unsigned i, j, q;
    BSN_UNROLL
    for (i = 0; i < BSN_T_N; i++) {
        BSN_UNROLL
        for (j = 0; j < slots - (lists > 0); j++) {
            BSN_T(m) here = BSN_T(equal_m)(x[i], leaf[j < first ? j : 2 * j - first]);
            if (j >= first) {
                const BSN_T(m) there = BSN_T(equal_m)(x[i], leaf[2 * j - first + 1]);
                here = BSN_T(or_m)(here, there);
                zero[k][i] = j == first ? there : BSN_T(or_m)(zero[k][i], there);
            }
            BSN_UNROLL
            for (q = 0; q < k; q++)
                if (!(j >> (k - 1 - q) & 1)) zero[q][i] = j == 0 ? here : BSN_T(or_m)(zero[q][i], here);
        }
    }
    BSN_UNROLL
    for (q = 0; q < k; q++) w[q] = ~BSN_T(bits)(zero[q]);
    if (lists > 1) w[k] = BSN_T(bits)(zero[k]);
}

/* Forks groups of 64 codes or, if `by_leaves`, symbols; each list except the last may be a twig. Pads a short
 * last group. Symbols: with the first leaf. Codes: with 0, which adds no mask bits and goes to a leaf or, if
 * the node has none, to the first child, which is shortened again. */
BSN_T_INLINE void BSN_T(fork_node)(bsn_fork *fork, const uint8_t *from, size_t first, size_t n, unsigned k, unsigned lists,
                                   unsigned by_leaves)
{
    const unsigned pairs = by_leaves && lists ? lists - 1 : 0, twigs = BSN_T_TWIGS ? pairs : 0;
    const size_t stride = fork->stride;
    uint8_t *plane = fork->planes + first / 8, *list[4] = { NULL, NULL, NULL, NULL }, last[64];
    uint64_t w[5] = { 0, 0, 0, 0, 0 };
    BSN_T(v) leaf[12];
    uint64_t byte[2] = { 0, 0 };
    size_t used[2] = { 0, 0 };
    unsigned j;
    BSN_UNROLL
    for (j = 0; j < (1u << k) - lists + 2 * pairs; j++)
        if (by_leaves) leaf[j] = BSN_T(all)(1, fork->leaf[j]);
    BSN_UNROLL
    for (j = 0; j < twigs; j++) {
        used[j] = fork->used[j];
        if (used[j] & 7) byte[j] = *fork->list[j];
    }
    BSN_UNROLL
    for (j = 0; j < lists; j++) list[j] = fork->list[j];
    for (; n; from += 64, plane += 8) {
        BSN_T(v) x[BSN_T_N];
        if (BSN_UNLIKELY(n < 64)) from = bsn_filled_up(last, 64, from, n, by_leaves ? fork->leaf[0] : 0);
        BSN_T(peel)(x, w, from, by_leaves ? 0 : k);
        if (by_leaves) BSN_T(leaves_planes)(w, x, leaf, k, lists);
#if BSN_T_TWIGS
        BSN_UNROLL
        for (j = 0; j < twigs; j++) bsn_x86_put_twig(&list[j], &byte[j], &used[j], w[k], bsn_list_mask(k, lists, j, w));
#else
        (void)byte;
#endif
        BSN_UNROLL
        for (j = twigs; j < lists; j++) BSN_T(compress_list)(x, bsn_list_mask(k, lists, j, w), &list[j], k > 1);
        if (BSN_UNLIKELY(n < 64)) {
            for (j = 0; j < k; j++) bsn_store_some(plane + j * stride, w[j], bsn_mask_bytes(n));
            if (lists >> k) list[0] -= 64 - n;
            break;
        }
        BSN_UNROLL
        for (j = 0; j < k; j++) bsn_store64(plane + j * stride, w[j]);
        n -= 64;
    }
    BSN_UNROLL
    for (j = 0; j < lists; j++) fork->list[j] = list[j];
    BSN_UNROLL
    for (j = 0; j < twigs; j++) fork->used[j] = used[j];
}

BSN_T_FUNCTION void BSN_T(nodes_fork)(bsn_fork *fork, const uint8_t *codes, size_t first, size_t n)
{
#define BSN_CALL(k, lists) BSN_T(fork_node)(fork, codes, first, n, k, lists, 0)
    BSN_NODE_SWITCH(fork)
#undef BSN_CALL
}

BSN_T_FUNCTION void BSN_T(leaves_fork)(bsn_fork *fork, const uint8_t *symbols, size_t first, size_t n)
{
#define BSN_CALL(k, lists) BSN_T(fork_node)(fork, symbols, first, n, k, lists, 1)
    BSN_LEAF_SWITCH(fork)
#undef BSN_CALL
}

/* Calls one of two, so that only that one's memory is on the stack. */
BSN_T_KERNEL void BSN_T(node_fork)(bsn_fork *fork, const uint8_t *codes, size_t first, size_t n)
{
    (fork->by_leaves ? BSN_T(leaves_fork) : BSN_T(nodes_fork))(fork, codes, first, n);
}

#undef BSN_CLASSES_CASE
#undef BSN_CLASSES_EACH
#undef BSN_CLASSES_SOME
#undef BSN_CLASSES_ALL
#undef BSN_CLASSES_SWITCH
#undef BSN_T_NAME
#undef BSN_T_TARGET
#undef BSN_T_UNROLL
#undef BSN_T_BYTES
#undef BSN_T_MASKS
#undef BSN_T_ACROSS
#undef BSN_T_RANKS
#undef BSN_T_CHAINS
#undef BSN_T_TWIGS
#undef BSN_T_N
#undef BSN_T_ENTRIES
#undef BSN_T_LANES
#undef BSN_T_SHL
#undef BSN_T_SHR
#undef BSN_T_MM
#undef BSN_T_SI
#undef BSN_T_SET64
#undef BSN_MM
#undef BSN_SI
#undef BSN_PS

#endif /* BITSNAP_SIMD */
