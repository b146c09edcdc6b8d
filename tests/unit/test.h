/* What the test programs share: cases that report a line each, reproducible random numbers, and memory whose
 * last (or first) byte lies at a page that must not be touched. */
#ifndef BITSNAP_TEST_H
#define BITSNAP_TEST_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _WIN32
#include <windows.h>
#else
#include <sys/mman.h>
#include <unistd.h>
#endif

static int test_failures, test_failures_before;
static const char *test_program = "";

/* CHECK(condition, format, ...): on failure one line with place and message; the test goes on, but after
 * TEST_FAILURES the program ends. */
#ifndef TEST_FAILURES
#define TEST_FAILURES 20
#endif
#define CHECK(condition, ...)                                                                         \
    do {                                                                                              \
        if (!(condition)) {                                                                           \
            fprintf(stderr, "%s:%d: %s:", __FILE__, __LINE__, #condition);                           \
            fprintf(stderr, " " __VA_ARGS__);                                                         \
            fprintf(stderr, "\n");                                                                    \
            if (++test_failures >= TEST_FAILURES) {                                                   \
                printf("not ok - %s: %d failures\n", test_program, test_failures);                    \
                exit(1);                                                                              \
            }                                                                                         \
        }                                                                                             \
    } while (0)

/* 1 in `make check` and `make nightly`, which set LONG=1. tests/README.md lists what is shorter without it. */
static inline int test_long(void) { return getenv("LONG") != NULL; }

/* Whether one of these names, with blanks between them, is this one. */
static inline int test_lists(const char *names, const char *name)
{
    const size_t size = strlen(name);
    size_t n;
    for (; names && *names; names += n + !!names[n])
        if ((n = strcspn(names, " \n")) == size && !memcmp(names, name, n)) return 1;
    return 0;
}

/* RUN(function): one case; its line says "ok" or "not ok". With NOT="this that" in the environment it passes over those. */
#define RUN(function)                                                                                 \
    do {                                                                                              \
        if (test_lists(getenv("NOT"), #function)) break;                                              \
        test_failures_before = test_failures;                                                         \
        function();                                                                                   \
        printf("%s - %s %s\n", test_failures == test_failures_before ? "ok" : "not ok", test_program, #function); \
        fflush(stdout);                                                                               \
    } while (0)

#define SKIP(name, reason) printf("skip - %s %s: %s\n", test_program, name, reason)

static uint64_t test_state = 1;

/* splitmix64 */
static inline uint64_t test_random(void)
{
    uint64_t x = test_state += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

static inline int test_big_endian(void)
{
    const uint16_t one = 1;
    return !*(const uint8_t *)&one;
}

/* Little-endian numbers. */
static inline uint64_t test_load(const uint8_t *p, unsigned bytes)
{
    uint64_t x = 0;
    while (bytes--) x = x << 8 | p[bytes];
    return x;
}
static inline uint32_t test_load32(const uint8_t *p) { return (uint32_t)test_load(p, 4); }
static inline uint64_t test_load64(const uint8_t *p) { return test_load(p, 8); }
static inline void test_store(uint8_t *p, uint64_t x, unsigned bytes)
{
    unsigned i;
    for (i = 0; i < bytes; i++) p[i] = (uint8_t)(x >> 8 * i);
}
static inline void test_store32(uint8_t *p, uint32_t x) { test_store(p, x, 4); }
static inline void test_store64(uint8_t *p, uint64_t x) { test_store(p, x, 8); }

static inline size_t test_min(size_t a, size_t b) { return a < b ? a : b; }

static inline size_t test_below(size_t n) { return n ? (size_t)(test_random() % n) : 0; }

static inline void test_fill(void *p, size_t n)
{
    uint8_t *b = (uint8_t *)p;
    size_t i;
    for (i = 0; i < n; i++) b[i] = (uint8_t)test_random();
}

/* A buffer of n bytes between two guard pages, which cannot be read or written. It ends at the second one; with `front` it
 * begins at the end of the first one. */
typedef struct guarded {
    uint8_t *p;
    void *map;
    size_t map_size;
} guarded;

/* Allocates pages; the first and the last one become guard pages. Returns null if there is no memory. */
#ifdef _WIN32
static inline size_t page_size(void) { return 4096; }

static inline void *guarded_pages(size_t size)
{
    uint8_t *p = (uint8_t *)VirtualAlloc(NULL, size, MEM_COMMIT | MEM_RESERVE, PAGE_READWRITE);
    DWORD before;
    return p && VirtualProtect(p, 4096, PAGE_NOACCESS, &before) &&
           VirtualProtect(p + size - 4096, 4096, PAGE_NOACCESS, &before) ? p : NULL;
}

static inline void guarded_free(guarded g) { (void)VirtualFree(g.map, 0, MEM_RELEASE); }
#else
static inline size_t page_size(void) { return (size_t)sysconf(_SC_PAGESIZE); }

static inline void *guarded_pages(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    const size_t page = page_size();
    return p != MAP_FAILED && !mprotect(p, page, PROT_NONE) && !mprotect((uint8_t *)p + size - page, page, PROT_NONE) ? p : NULL;
}

static inline void guarded_free(guarded g) { (void)munmap(g.map, g.map_size); }
#endif

static inline guarded guarded_alloc(size_t n, int front)
{
    guarded g;
    size_t page = page_size(), body = (n + page - 1) / page * page;
    if (body == 0) body = page;
    g.map_size = body + 2 * page;
    g.map = guarded_pages(g.map_size);
    if (!g.map) {
        perror("guarded_alloc");
        exit(1);
    }
    g.p = (uint8_t *)g.map + page + (front ? 0 : body - n);
    return g;
}

/* Workspaces for blocks of 2^log2 elements and this number of workers; _delta: also for a base, a quantizer or columns, and
 * with two workers for merges. test_bound: capacity for a frame with blocks of the default size. */
#define test_workspace(log2, workers) inside_workspace(log2, workers, 0)
#define test_workspace_delta(log2, workers) inside_workspace(log2, workers, 1)
#define test_bound(n, dtype) ((size_t)(n) * bitsnap_width(dtype) + 30 * ((size_t)(n) / 65536 + 1) + 256)

#endif
