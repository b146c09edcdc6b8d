/* prelude.h - all that the device code uses of its language: CUDA C, or C++ in which each work-item is a fiber (fibers.h), for
 * sanitizers, debuggers and machines without a GPU. MIT licence, see bitsnap.h.
 *
 * A group of THREADS work-items has memory of its own (`Group`, and behind it the arena) and decodes or encodes one block at a
 * time. SYNC waits for the whole group, WSYNC for the 32 work-items of a warp; so do BALLOT and the shuffles, which all 32 call. */
#ifndef OFFLOAD_PRELUDE_H
#define OFFLOAD_PRELUDE_H

#include "bitsnap.h"

#define THREADS 256
#define WARP 32
#define WARPS (THREADS / WARP)
#define AT_ONCE 4 /* elements of a work-item whose loads are on their way together */

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;

#ifdef __CUDACC__
#define KERNEL(groups) extern "C" __global__ void __launch_bounds__(THREADS, groups) /* of a multiprocessor at once */
#define FN static __device__ __forceinline__
#define PART static __device__ __noinline__
#define CONSTANT static __device__ __constant__ const
#define THREAD threadIdx.x
#define GROUP blockIdx.x
#define GROUPS gridDim.x
#define SYNC() __syncthreads()
#define WSYNC() __syncwarp()
#define BALLOT(condition) __ballot_sync(~0u, condition)
#define SHUFFLE(x, lane) __shfl_sync(~0u, x, lane)
#define SHUFFLE_UP(x, d) __shfl_up_sync(~0u, x, d)
#define POPC(x) ((u32)__popc(x))
#define CTZ(x) ((u32)__ffs((int)(x)) - 1)
#define CLZ(x) ((u32)__clz((int)(x)))
#define MULHI64(a, b) __umul64hi(a, b)
#define FUNNEL(low, high, bits) __funnelshift_r(low, high, bits)
#define PERM(a, b, selector) __byte_perm(a, b, selector)
#define ATOMIC_ADD(p, v) ((void)atomicAdd(p, v))
#define ATOMIC_OR(p, v) ((void)atomicOr(p, v))
#define UNROLL _Pragma("unroll")
#define UNROLL_4 _Pragma("unroll 4")
extern __shared__ __align__(16) u32 group_memory[];
#else
#define KERNEL(groups) static void
#define FN static inline
#define PART static inline
#define CONSTANT static const
#define group_memory fiber_memory
#define THREAD fiber_thread
#define GROUP fiber_group
#define GROUPS fiber_groups
#define SYNC() fiber_sync()
#define WSYNC() fiber_warp_sync()
#define BALLOT(condition) fiber_ballot(condition)
#define SHUFFLE(x, lane) fiber_shuffle(x, lane)
#define SHUFFLE_UP(x, d) fiber_shuffle(x, THREAD % WARP >= (d) ? THREAD % WARP - (d) : THREAD % WARP)
#define POPC(x) ((u32)__builtin_popcount(x))
#define CTZ(x) ((u32)__builtin_ctz(x))
#define CLZ(x) ((x) ? (u32)__builtin_clz(x) : 32u)
#define MULHI64(a, b) ((u64)(((unsigned __int128)(a) * (b)) >> 64))
#define FUNNEL(low, high, bits) ((u32)((((u64)(high) << 32) | (low)) >> (bits)))
#define PERM(a, b, selector) fiber_perm(a, b, selector)
#define ATOMIC_ADD(p, v) ((void)(*(p) += (v)))
#define ATOMIC_OR(p, v) ((void)(*(p) |= (v)))
#define UNROLL
#define UNROLL_4
extern u32 fiber_thread, fiber_group, fiber_groups, *fiber_memory;
void fiber_sync(void);
void fiber_warp_sync(void);
u32 fiber_ballot(u32 condition);
u32 fiber_shuffle(u32 x, u32 lane);
FN u32 fiber_perm(u32 a, u32 b, u32 selector)
{
    const u64 both = (u64)b << 32 | a;
    u32 i, x = 0;
    for (i = 0; i < 4; i++) x |= ((u32)(both >> 8 * (selector >> 4 * i & 7)) & 255) << 8 * i;
    return x;
}
#endif

/* The sum of x over the lanes before this one; *all becomes that over all. */
FN u32 warp_before(u32 x, u32 *all)
{
    const u32 lane = THREAD % WARP;
    u32 sum = x, d;
    UNROLL
    for (d = 1; d < WARP; d <<= 1) {
        const u32 below = SHUFFLE_UP(sum, d);
        if (lane >= d) sum += below;
    }
    *all = SHUFFLE(sum, WARP - 1);
    return sum - x;
}

/* The same over the group; `part` has a word for each warp, and can be used again after the next SYNC. */
FN u32 group_before(u32 x, u32 *all, u32 *part)
{
    u32 before, total, i, sum = 0, mine = 0;
    before = warp_before(x, &total);
    if (THREAD % WARP == 0) part[THREAD / WARP] = total;
    SYNC();
    UNROLL
    for (i = 0; i < WARPS; i++) {
        if (i == THREAD / WARP) mine = sum;
        sum += part[i];
    }
    *all = sum;
    return mine + before;
}

/* Statuses: those of bitsnap.h, the reject condition above them. DECLINED: the host has to do it. */
#define ST_OK 0u
#define ST_DECLINED ((u32)BITSNAP_E_UNSUPPORTED)
#define ST_CORRUPT(rule) ((u32)BITSNAP_E_CORRUPT | (u32)(rule) << 8)
#define ST_CHECK(rule) ((u32)BITSNAP_E_CHECK | (u32)(rule) << 8)
#define ST_BASE(rule) ((u32)BITSNAP_E_BASE | (u32)(rule) << 8)

/* Bytes at any address, read as whole words: those that hold one of them. `at` counts from the first word. */
typedef struct Source {
    const u32 *words;
    u32 last; /* word */
} Source;

FN Source source_of(u64 address, u32 size)
{
    Source s;
    s.words = (const u32 *)(size_t)(address & ~(u64)3);
    s.last = ((u32)(address & 3) + size + 3) / 4;
    if (s.last) s.last--;
    return s;
}
FN u32 read_word(const Source s, u32 i) { return s.words[i < s.last ? i : s.last]; }
FN u32 read32(const Source s, u32 at) { return FUNNEL(read_word(s, at / 4), read_word(s, at / 4 + 1), at % 4 * 8); }
FN u64 read64(const Source s, u32 at) { return read32(s, at) | (u64)read32(s, at + 4) << 32; }
FN u32 read8(const Source s, u32 at) { return read_word(s, at / 4) >> at % 4 * 8 & 255; }

#endif
