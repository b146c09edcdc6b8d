/* test_kv.c - docs/examples/kv: pages of every dtype to slots and back, slots that are too small, slots that hold anything, threads. Pages
 * and slots end (or begin) where memory does. */
#include "tests/unit/data.h"

#include "docs/examples/kv/bitsnap_kv.c"

static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F8_E4M3, BITSNAP_F8_E5M2 };

enum { DTYPES = 4 };

/* A pool, and one page and one slot of it. */
typedef struct pool {
    bitsnap_kv kv;
    guarded page, back, slot, workspace;
    size_t length;
} pool;

static pool pool_open(bitsnap_dtype dtype, size_t elements, int shape, int front)
{
    pool p;
    const bitsnap_status status = bitsnap_kv_open(&p.kv, dtype, elements * bitsnap_width(dtype));
    CHECK(!status, "open: %d", status);
    p.page = guarded_alloc(p.kv.page, front);
    p.back = guarded_alloc(p.kv.page, front);
    p.slot = guarded_alloc(p.kv.slot, front);
    p.workspace = guarded_alloc(p.kv.workspace, front);
    data_fill(p.page.p, elements, dtype, shape);
    CHECK(!bitsnap_kv_pack(&p.kv, p.workspace.p, p.page.p, p.slot.p, p.kv.slot, &p.length), "dtype %d, %zu elements", dtype, elements);
    return p;
}

static void pool_close(pool *p)
{
    guarded_free(p->page), guarded_free(p->back), guarded_free(p->slot), guarded_free(p->workspace);
}

static bitsnap_status unpack(pool *p, const void *slot, size_t length) { return bitsnap_kv_unpack(&p->kv, p->workspace.p, p->back.p, slot, length); }

static void round_trips(void)
{
    static const size_t sizes[] = { 1, 3, 63, 64, 65, 1000, 24576, 65536, 100001, 1 << 20, (1 << 20) + 5 };
    size_t d, s;
    for (d = 0; d < DTYPES; d++) {
        for (s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            const int shape = s % 3 ? DATA_WEIGHTS : s % 2 ? DATA_NOISE : DATA_SPECIAL;
            pool p = pool_open(dtypes[d], sizes[s], shape, (int)(s & 1));
            bitsnap_info info;
            CHECK(p.length && p.length <= p.kv.slot, "%zu of %zu bytes", p.length, p.kv.slot);
            CHECK(shape != DATA_NOISE || p.length <= p.kv.page + 64, "noise: %zu bytes became %zu", p.kv.page, p.length);
            CHECK(shape != DATA_WEIGHTS || sizes[s] < 1000 || 10 * p.length < 9 * p.kv.page, "weights: %zu bytes became %zu", p.kv.page, p.length);
            CHECK(!unpack(&p, p.slot.p, p.length) && !memcmp(p.page.p, p.back.p, p.kv.page), "dtype %d, %zu elements", dtypes[d], sizes[s]);
            CHECK(!bitsnap_read_info(&info, p.slot.p, p.length) && info.checks && !info.has_content_id, "checks, and no content id");
            CHECK((info.blocks == 1) == (sizes[s] <= 1 << 20), "%zu elements in %d blocks", sizes[s], (int)info.blocks);
            pool_close(&p);
        }
    }
}

static void bad_shapes(void)
{
    bitsnap_kv kv;
    CHECK(bitsnap_kv_open(&kv, BITSNAP_BF16, 0) == BITSNAP_E_ARGUMENT, "no bytes");
    CHECK(bitsnap_kv_open(&kv, BITSNAP_BF16, 4097) == BITSNAP_E_ARGUMENT, "half an element");
    CHECK(bitsnap_kv_open(&kv, (bitsnap_dtype)99, 4096) == BITSNAP_E_ARGUMENT, "no dtype");
}

/* The slot has no byte more than the capacity, so one that is written past it ends the program. */
static void small_slots(void)
{
    pool p = pool_open(BITSNAP_BF16, 3000, DATA_WEIGHTS, 0);
    size_t capacity, length;
    for (capacity = 0; capacity <= p.length; capacity += capacity + 40 < p.length ? 37 : 1) {
        guarded slot = guarded_alloc(capacity, 0);
        const bitsnap_status status = bitsnap_kv_pack(&p.kv, p.workspace.p, p.page.p, slot.p, capacity, &length);
        CHECK(capacity < p.length ? status == BITSNAP_E_CAPACITY && !length : !status && length == p.length, "%zu bytes: %d", capacity, status);
        guarded_free(slot);
    }
    pool_close(&p);
}

/* A host that lost the length finds it in the slot. */
static void lengths(void)
{
    pool p = pool_open(BITSNAP_F16, 3000, DATA_WEIGHTS, 0);
    bitsnap_info info;
    test_fill(p.slot.p + p.length, p.kv.slot - p.length);
    CHECK(!bitsnap_read_info(&info, p.slot.p, p.kv.slot) && info.frame_size == p.length, "%d, not %zu", (int)info.frame_size, p.length);
    CHECK(!unpack(&p, p.slot.p, (size_t)info.frame_size) && !memcmp(p.page.p, p.back.p, p.kv.page), "the page");
    pool_close(&p);
}

/* Both ends of the page are tried: front is 1 if memory begins with it. */
static void hostile_slots(int front)
{
    size_t d, k;
    for (d = 0; d < DTYPES; d++) {
        pool p = pool_open(dtypes[d], 5000, DATA_WEIGHTS, front), other = pool_open(dtypes[d], 5001, DATA_WEIGHTS, front);
        pool cast = pool_open(dtypes[(d + 1) % DTYPES], 5000, DATA_WEIGHTS, front);
        uint8_t *bytes = malloc(p.kv.slot + 1);
        CHECK(unpack(&p, other.slot.p, other.length), "a page of another size");
        CHECK(unpack(&p, cast.slot.p, cast.length), "a page of another dtype");
        CHECK(unpack(&p, p.slot.p, p.kv.slot + 1) == BITSNAP_E_ARGUMENT && unpack(&p, p.slot.p, SIZE_MAX) == BITSNAP_E_ARGUMENT, "a length past the slot");
        CHECK(unpack(&p, p.slot.p, p.length + 1), "a byte more");
        for (k = 0; k < p.length; k += 1 + k / 16) CHECK(unpack(&p, p.slot.p, k), "the first %zu bytes", k);
        for (k = 0; k < 1500; k++) {
            const size_t at = k < 400 ? k / 8 : test_below(p.length);
            memcpy(bytes, p.slot.p, p.length);
            bytes[at] ^= (uint8_t)(1u << k % 8);
            CHECK(unpack(&p, bytes, p.length), "bit %zu of byte %zu", k % 8, at);
        }
        for (k = 0; k < 300; k++) {
            test_fill(bytes, p.kv.slot);
            if (k & 1) memcpy(bytes, p.slot.p, 8 + test_below(64)); /* a head that may be good */
            CHECK(unpack(&p, bytes, k & 2 ? p.kv.slot : p.length), "random bytes");
        }
        CHECK(!unpack(&p, p.slot.p, p.length) && !memcmp(p.page.p, p.back.p, p.kv.page), "the page itself");
        free(bytes);
        pool_close(&p), pool_close(&other), pool_close(&cast);
    }
}

static void hostile_slots_before(void) { hostile_slots(1); }
static void hostile_slots_behind(void) { hostile_slots(0); }

/* A slot without room and a damaged one are told of; all other pages of the batch are done. The bytes do not depend on the threads. */
static void threads(void)
{
    static const unsigned counts[] = { 0, 1, 3, 64, 200 };
    enum { PAGES = 90, ELEMENTS = 2000 };
    bitsnap_kv_item items[PAGES];
    bitsnap_kv kv;
    uint8_t *pages = malloc(2 * PAGES * ELEMENTS), *back = malloc(2 * PAGES * ELEMENTS), *slots, *first;
    void *workspaces;
    size_t c, i;
    CHECK(!bitsnap_kv_open(&kv, BITSNAP_BF16, 2 * ELEMENTS), "open");
    slots = malloc(PAGES * kv.slot), first = malloc(PAGES * kv.slot), workspaces = malloc(64 * kv.workspace);
    data_fill(pages, PAGES * ELEMENTS, BITSNAP_BF16, DATA_WEIGHTS);
    for (c = 0; c < sizeof counts / sizeof *counts; c++) {
        memset(slots, 0, PAGES * kv.slot);
        memset(back, 0, 2 * PAGES * ELEMENTS);
        for (i = 0; i < PAGES; i++) {
            const bitsnap_kv_item item = { pages + i * kv.page, slots + i * kv.slot, i == 7 ? 100 : kv.slot, BITSNAP_OK };
            items[i] = item;
        }
        CHECK(bitsnap_kv_pack_all(&kv, workspaces, counts[c], items, PAGES) == 1, "%u threads: one slot has no room", counts[c]);
        CHECK(items[7].status == BITSNAP_E_CAPACITY && !items[7].length, "that one");
        memset(slots + 7 * kv.slot, 0, kv.slot); /* its bytes are unspecified */
        if (!c) memcpy(first, slots, PAGES * kv.slot);
        CHECK(!memcmp(first, slots, PAGES * kv.slot), "%u threads make other bytes", counts[c]);
        slots[80 * kv.slot + items[80].length / 2] ^= 1;
        for (i = 0; i < PAGES; i++) items[i].page = back + i * kv.page;
        CHECK(bitsnap_kv_unpack_all(&kv, workspaces, counts[c], items, PAGES) == 2 && items[7].status && items[80].status, "%u threads", counts[c]);
        for (i = 0; i < PAGES; i++)
            CHECK(i == 7 || i == 80 || (!items[i].status && !memcmp(pages + i * kv.page, back + i * kv.page, kv.page)), "%u threads: page %zu", counts[c], i);
    }
    CHECK(!bitsnap_kv_pack_all(&kv, workspaces, 4, items, 0), "no pages");
    free(pages), free(back), free(slots), free(first), free(workspaces);
}

int main(void)
{
    test_program = "kv";
    RUN(round_trips);
    RUN(bad_shapes);
    RUN(small_slots);
    RUN(lengths);
    RUN(hostile_slots_before);
    RUN(hostile_slots_behind);
    RUN(threads);
    return test_failures != 0;
}
