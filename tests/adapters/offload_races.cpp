/* Data races of the device code, and barriers that nobody needs: what tests/adapters/offload.cpp, compiled with -fsanitize=thread, calls
 * at each access to memory. Two work-items that access a byte, one of them to write, must have a barrier between them, of the
 * group or of their warp; neither atomic operations with each other nor equal values that several write need one. Where all
 * barriers between two accesses are the same one, passed once or in a loop, it is needed: without it there would be a race.
 * Compiled with -g and -no-pie, addr2line -i says where a race is. */
#include "offload_races.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint32_t u32;

enum { WARP = 32, WARPS = 8, BARRIERS = 300 };
enum { READ, WRITE, ATOMIC };

/* An access: time << 8 | work-item; 0: none. */
struct Cell { u32 write, atomic, read[3]; }; /* read: the last one; before, by another of the warp; by another warp */

struct Clock { u32 now, before; int barrier; }; /* before: when this one, if only it has been passed since, had not been */

static const u8 *memory; /* that is looked at */
static size_t memory_size;
static Cell *cells;
static struct { const char *function; int line, passed, needed; } barriers[BARRIERS];
static Clock group, warps[WARPS];
static u32 time_now, races;
extern u32 fiber_thread;

/* A write that may be of what is there already: of `size` bytes, which were `old`. */
static struct { const u8 *at; void *caller; size_t size; u8 old[16]; u32 other; } pending;

static void race(const void *at, u32 other, void *caller)
{
    static void *told[1000];
    u32 i;
    for (i = 0; i < races && i < 1000; i++)
        if (told[i] == caller) return;
    if (races < 1000) told[races] = caller;
    if (races++ < 20) fprintf(stderr, "race: work-items %u and %u at %p, code at %p\n", fiber_thread, other & 255, at, caller);
}
static void settle(void)
{
    if (memcmp(pending.at, pending.old, pending.size)) race(pending.at, pending.other, pending.caller);
    pending.at = NULL;
}

/* Is the access `other` not ordered with one that is being made now? */
static int meets(u32 other)
{
    const u32 t = fiber_thread, w = t / WARP;
    const Clock *clock = (other & 255) / WARP == w ? &warps[w] : &group;
    if (!other || (other & 255) == t) return 0;
    if (other >> 8 >= clock->now) return 1;
    if (other >> 8 >= clock->before) barriers[clock->barrier].needed |= clock == &group ? 2 : 1;
    return 0;
}

static void access(const u8 *at, size_t size, int kind, void *caller)
{
    const u32 t = fiber_thread, now = warps[t / WARP].now << 8 | t;
    u32 i, k;
    if (pending.at) settle();
    for (i = 0; i < size; i++) {
        Cell *cell = cells + (at - memory) + i;
        if (kind != ATOMIC && now == (kind == READ ? cell->read[0] : cell->write)) continue; /* whoever came since has looked */
        if (kind != ATOMIC && meets(cell->atomic)) race(at, cell->atomic, caller);
        if (meets(cell->write)) {
            if (kind != WRITE || size > sizeof pending.old) race(at, cell->write, caller);
            else {
                pending.at = at;
                pending.caller = caller;
                pending.size = size;
                pending.other = cell->write;
                memcpy(pending.old, at, size);
            }
        }
        if (kind == READ) {
            const u32 last = cell->read[0];
            if ((last & 255) / WARP != t / WARP) {
                cell->read[2] = last;
                cell->read[1] = 0;
            } else if ((last & 255) != t) {
                cell->read[1] = last;
            }
            cell->read[0] = now;
        } else {
            for (k = 0; k < 3; k++)
                if (meets(cell->read[k])) race(at, cell->read[k], caller);
            if (kind == WRITE) cell->write = now;
            else cell->atomic = now;
        }
    }
}

/* ---- barriers ---- */

static void pass(Clock *clock, u32 now, int barrier)
{
    if (clock->barrier != barrier) clock->before = clock->now;
    clock->barrier = barrier;
    clock->now = now;
}
void races_passed(uint32_t from, uint32_t to, int barrier, const char *function, int line)
{
    u32 w;
    if (pending.at) settle();
    if (barrier < 0) barrier = BARRIERS - 1;
    else if (barrier >= BARRIERS - 1 || time_now >> 24) abort();
    barriers[barrier].function = function;
    barriers[barrier].line = line;
    barriers[barrier].passed = 1;
    time_now++;
    for (w = from / WARP; w < to / WARP; w++) pass(&warps[w], time_now, barrier);
    if (to - from > WARP) pass(&group, time_now, barrier);
}

void races_watch(const void *begin, size_t size)
{
    memory = (const u8 *)begin;
    memory_size = size;
    cells = (Cell *)calloc(size, sizeof(Cell));
}
unsigned races_report(int count)
{
    unsigned wrong = races;
    int i;
    for (i = 0; i < count; i++) {
        if (barriers[i].passed && barriers[i].needed) continue;
        if (barriers[i].passed)
            fprintf(stderr, "%s, line %d: a barrier that nobody needs\n", barriers[i].function, barriers[i].line);
        else
            fprintf(stderr, "barrier %d, the next behind %s, is never passed\n", i, i ? barriers[i - 1].function : "none");
        wrong++;
    }
    return wrong;
}

/* ---- what the compiler calls ---- */

static inline void access_if_shared(const volatile void *at, size_t size, int kind, void *caller)
{
    if ((size_t)((uintptr_t)at - (uintptr_t)memory) < memory_size) access((const u8 *)at, size, kind, caller);
}
#define ACCESS(name, size, kind) \
    void name(void *at) { access_if_shared(at, size, kind, __builtin_return_address(0)); }
#define ATOMIC_ACCESS(name, operation) \
    u32 name(volatile u32 *at, u32 value, int) \
    { \
        access_if_shared(at, 4, ATOMIC, __builtin_return_address(0)); \
        const u32 was = *at; \
        *at = was operation value; \
        return was; \
    }
extern "C" {
void __tsan_init(void) {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit(void) {}
ACCESS(__tsan_read1, 1, READ)
ACCESS(__tsan_read2, 2, READ)
ACCESS(__tsan_read4, 4, READ)
ACCESS(__tsan_read8, 8, READ)
ACCESS(__tsan_read16, 16, READ)
ACCESS(__tsan_write1, 1, WRITE)
ACCESS(__tsan_write2, 2, WRITE)
ACCESS(__tsan_write4, 4, WRITE)
ACCESS(__tsan_write8, 8, WRITE)
ACCESS(__tsan_write16, 16, WRITE)
ACCESS(__tsan_unaligned_read2, 2, READ)
ACCESS(__tsan_unaligned_read4, 4, READ)
ACCESS(__tsan_unaligned_read8, 8, READ)
ACCESS(__tsan_unaligned_read16, 16, READ)
ACCESS(__tsan_unaligned_write2, 2, WRITE)
ACCESS(__tsan_unaligned_write4, 4, WRITE)
ACCESS(__tsan_unaligned_write8, 8, WRITE)
ACCESS(__tsan_unaligned_write16, 16, WRITE)
void __tsan_read_range(void *at, size_t size) { access_if_shared(at, size, READ, __builtin_return_address(0)); }
void __tsan_write_range(void *at, size_t size) { access_if_shared(at, size, WRITE, __builtin_return_address(0)); }
ATOMIC_ACCESS(__tsan_atomic32_fetch_add, +)
ATOMIC_ACCESS(__tsan_atomic32_fetch_or, |)
}
