/* prelude.h - the language of the device code: OpenCL C 1.2, CUDA C, or C++. In C++ each work-item is a fiber (fibers.h), for
 * sanitizers, debuggers and machines without a GPU. MIT licence, see bitsnap.h.
 *
 * A group of THREADS work-items decodes or encodes one block at a time. Its own memory is `Group`, followed by the arena. SYNC
 * waits for the whole group, WSYNC for the 32 work-items of a warp. All 32 must call BALLOT and the shuffles, which also wait for
 * the warp but order no memory accesses. TOGETHER orders none either; nvcc makes fewer instructions of the code after it.
 *
 * OpenCL sets most of the rules for code that compiles as all three:
 * - A pointer names its memory. LOCAL: shared by the group (Group, Encoder and their members). ARENA: the arena. GLOBAL: works,
 *   source, target, base and scratch memory. No word: variables of a work-item. (GLOBAL u32 *)(size_t)x turns a number into an
 *   address. Tables are CONSTANT, and read by name.
 * - LANES is memory for languages without shuffles. It is the first parameter, without a comma, of each function that calls
 *   BALLOT or a shuffle, directly or not; such a function passes LANES_ on.
 * - A group may be one warp, so a table of 256 symbols takes a loop from THREAD on in steps of THREADS. All work-items of a
 *   group, or of a warp, must reach the same barriers.
 * - half, constant, kernel, global, local are words of the language. No recursion, no pointers to functions, no long long. */
#ifndef OFFLOAD_PRELUDE_H
#define OFFLOAD_PRELUDE_H

#define WARP 32
#define AT_ONCE 4 /* elements that a work-item loads before it uses the first */

#ifdef __OPENCL_VERSION__ /* shuffles are optional, and barriers hold a whole group, so a group is one warp */
#define THREADS WARP
#define KERNEL(groups) __kernel __attribute__((reqd_work_group_size(THREADS, 1, 1))) void
#define FN static
#define PART static
#define CONSTANT __constant
#define GLOBAL __global
#define LOCAL __local
#define ARENA __global /* after the scratch memory of the group */
#define ARENA_IS_LARGE 1 /* the arena has LARGE_ARENA bytes */
#define LANES LOCAL u32 *lanes,
#define LANES_ lanes,
#define GROUP_MEMORY(type) \
    LOCAL type group_memory; \
    LOCAL u32 lanes[WARP]; \
    LOCAL type *g = &group_memory; \
    GLOBAL u32 *own = scratch + GROUP * (size_t)((scratch_size + memory_size) / 4), *arena = own + scratch_size / 4; \
    const u32 arena_size = memory_size / 4
#define THREAD ((u32)get_local_id(0))
#define GROUP ((u32)get_group_id(0))
#define GROUPS ((u32)get_num_groups(0))
#define SYNC() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)
#define WSYNC() SYNC()
#define TOGETHER()
#define BALLOT(condition) warp_ballot(lanes, condition)
#define SHUFFLE(x, lane) warp_shuffle(lanes, x, lane)
#define SHUFFLE_UP(x, d) warp_shuffle(lanes, x, THREAD >= (d) ? THREAD - (d) : THREAD)
#define POPC(x) popcount((u32)(x))
#define CTZ(x) (31 - clz((u32)(x) & (0u - (u32)(x))))
#define CLZ(x) clz((u32)(x))
#define MULHI64(a, b) mul_hi((u64)(a), (u64)(b))
#define FUNNEL(low, high, bits) ((u32)((((u64)(high) << 32) | (low)) >> (bits)))
#define PERM(a, b, selector) bytes_perm(a, b, selector)
#define ATOMIC_ADD(p, v) ((void)atomic_add(p, v))
#define ATOMIC_OR(p, v) ((void)atomic_or(p, v))
#define UNROLL
#define UNROLL_4
typedef uchar u8;
typedef ushort u16;
typedef uint u32;
typedef int i32;
typedef ulong u64;
/* copies of declarations in bitsnap.h */
typedef struct bitsnap_work {
    u64 source, target, base, first, header_check;
    u32 size, count, head;
    u8 dtype, level, flags, role;
    u32 bins, columns;
} bitsnap_work;
typedef struct bitsnap_done { u32 status, size; } bitsnap_done;
typedef char work_is_as_hosts_have_it[sizeof(bitsnap_work) == 64 ? 1 : -1];
enum { BITSNAP_WORK_CHECKS = 1, BITSNAP_WORK_IGNORE = 2, BITSNAP_WORK_TEST = 4 };
enum { BITSNAP_BOOL = 1, BITSNAP_I8, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64, BITSNAP_F8_E4M3, BITSNAP_F8_E5M2, BITSNAP_F16, BITSNAP_BF16,
       BITSNAP_F32, BITSNAP_F64 };
enum { BITSNAP_E_UNSUPPORTED = 5, BITSNAP_E_CHECK = 8, BITSNAP_E_CORRUPT = 9, BITSNAP_E_BASE = 11 };
enum { BITSNAP_FAST = 1, BITSNAP_DEFAULT };
FN u32 warp_ballot(LOCAL u32 *lanes, u32 condition)
{
    u32 all;
    if (THREAD == 0) lanes[0] = 0;
    SYNC();
    if (condition) ATOMIC_OR(lanes, 1u << THREAD);
    SYNC();
    all = lanes[0];
    SYNC();
    return all;
}
FN u32 warp_shuffle(LOCAL u32 *lanes, u32 x, u32 lane)
{
    lanes[THREAD] = x;
    SYNC();
    x = lanes[lane];
    SYNC();
    return x;
}
#else
#include "bitsnap.h"
#define THREADS 256
#define GLOBAL
#define LOCAL
#define ARENA
#define ARENA_IS_LARGE 0
#define LANES
#define LANES_
#define GROUP_MEMORY(type) \
    type *g = (type *)group_memory; \
    const u32 arena_at = (sizeof *g + 15) / 16 * 4, arena_size = memory_size / 4 < arena_at ? 0 : memory_size / 4 - arena_at; \
    u32 *own = scratch + (size_t)GROUP * (scratch_size / 4), *arena = group_memory + arena_at
typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef int32_t i32;
typedef unsigned long long u64;
#endif
#define WARPS (THREADS / WARP)
/* The result of works[i] goes to done[i]. Each group has scratch_size bytes of scratch memory and memory_size bytes of its own
 * memory. In OpenCL the latter are an arena, after the scratch memory. */
#define KERNEL_PARAMETERS \
    GLOBAL const bitsnap_work *works, GLOBAL bitsnap_done *done, u32 count, GLOBAL u32 *scratch, u32 scratch_size, u32 memory_size

#ifdef __CUDACC__
#define KERNEL(groups) extern "C" __global__ void __launch_bounds__(THREADS, groups) /* groups resident on a multiprocessor */
#define FN static __device__ __forceinline__
#define PART static __device__ __noinline__
#define CONSTANT static __device__ __constant__ const
#define THREAD threadIdx.x
#define GROUP blockIdx.x
#define GROUPS gridDim.x
#define SYNC() __syncthreads()
#define WSYNC() __syncwarp()
#define TOGETHER() __syncthreads()
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
#elif !defined(__OPENCL_VERSION__)
#define KERNEL(groups) static void
#define FN static inline
#define PART static inline
#define CONSTANT static const
#define group_memory fiber_memory
#define THREAD fiber_thread
#define GROUP fiber_group
#define GROUPS fiber_groups
#define SYNC() fiber_sync(__COUNTER__, __func__, __LINE__)
#define WSYNC() fiber_warp_sync(__COUNTER__, __func__, __LINE__)
#define TOGETHER()
#define BALLOT(condition) fiber_ballot(condition)
#define SHUFFLE(x, lane) fiber_shuffle(x, lane)
#define SHUFFLE_UP(x, d) fiber_shuffle(x, THREAD % WARP >= (d) ? THREAD % WARP - (d) : THREAD % WARP)
#define POPC(x) ((u32)__builtin_popcount(x))
#define CTZ(x) ((u32)__builtin_ctz(x))
#define CLZ(x) ((x) ? (u32)__builtin_clz(x) : 32u)
#define MULHI64(a, b) ((u64)(((unsigned __int128)(a) * (b)) >> 64))
#define FUNNEL(low, high, bits) ((u32)((((u64)(high) << 32) | (low)) >> (bits)))
#define PERM(a, b, selector) bytes_perm(a, b, selector)
#define ATOMIC_ADD(p, v) ((void)__atomic_fetch_add(p, v, __ATOMIC_RELAXED))
#define ATOMIC_OR(p, v) ((void)__atomic_fetch_or(p, v, __ATOMIC_RELAXED))
#define UNROLL
#define UNROLL_4
extern u32 fiber_thread, fiber_group, fiber_groups, *fiber_memory;
void fiber_sync(int barrier, const char *function, int line);
void fiber_warp_sync(int barrier, const char *function, int line);
u32 fiber_ballot(u32 condition);
u32 fiber_shuffle(u32 x, u32 lane);
#endif

#ifndef __CUDACC__
FN u32 bytes_perm(u32 a, u32 b, u32 selector)
{
    const u64 both = (u64)b << 32 | a;
    u32 i, x = 0;
    for (i = 0; i < 4; i++) x |= ((u32)(both >> 8 * (selector >> 4 * i & 7)) & 255) << 8 * i;
    return x;
}
#endif

/* Returns the sum of x over the lanes before this one. Sets *all to the sum over all lanes. */
FN u32 warp_before(LANES u32 x, u32 *all)
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

/* `part` holds a word for each warp. Returns the sum of those before this warp's, and sets *all to the sum of all. */
FN u32 part_before(LOCAL const u32 *part, u32 *all)
{
    u32 i, sum = 0, mine = 0;
    UNROLL
    for (i = 0; i < WARPS; i++) {
        if (i == THREAD / WARP) mine = sum;
        sum += part[i];
    }
    *all = sum;
    return mine;
}

/* Returns the sum of x over the work-items before this one. Sets *all to the sum over the group. `part` holds a word for each
 * warp, and is free again after the next SYNC. */
FN u32 group_before(LANES u32 x, u32 *all, LOCAL u32 *part)
{
    u32 total;
    const u32 before = warp_before(LANES_ x, &total);
    if (THREAD % WARP == 0) part[THREAD / WARP] = total;
    SYNC();
    return before + part_before(part, all);
}

/* The share of a warp: items begin .. end - 1 of n, a multiple of `step` except at the end. */
typedef struct Share { u32 begin, end; } Share;

FN Share share_of(u32 n, u32 step)
{
    const u32 each = (n + WARPS * step - 1) / (WARPS * step) * step, begin = THREAD / WARP * each;
    Share share;
    share.begin = begin < n ? begin : n;
    share.end = n - share.begin < each ? n : share.begin + each;
    return share;
}

/* Statuses: a code of bitsnap.h in the low byte, the reject condition above it. DECLINED: left to the host. */
#define ST_OK 0u
#define ST_DECLINED ((u32)BITSNAP_E_UNSUPPORTED)
#define ST_CORRUPT(rule) ((u32)BITSNAP_E_CORRUPT | (u32)(rule) << 8)
#define ST_CHECK(rule) ((u32)BITSNAP_E_CHECK | (u32)(rule) << 8)
#define ST_BASE(rule) ((u32)BITSNAP_E_BASE | (u32)(rule) << 8)

/* Bytes at any address, read as aligned words that hold at least one of them. `at` counts bytes from the first word. */
typedef struct Source {
    GLOBAL const u32 *words;
    u32 last; /* index of the last word */
} Source;

FN Source source_of(u64 address, u32 size)
{
    Source s;
    s.words = (GLOBAL const u32 *)(size_t)(address & ~(u64)3);
    s.last = ((u32)(address & 3) + size + 3) / 4;
    if (s.last) s.last--;
    return s;
}
FN u32 read_word(const Source s, u32 i) { return s.words[i < s.last ? i : s.last]; }
FN u32 read32(const Source s, u32 at) { return FUNNEL(read_word(s, at / 4), read_word(s, at / 4 + 1), at % 4 * 8); }
FN u64 read64(const Source s, u32 at) { return read32(s, at) | (u64)read32(s, at + 4) << 32; }
FN u32 read8(const Source s, u32 at) { return read_word(s, at / 4) >> at % 4 * 8 & 255; }

#endif
