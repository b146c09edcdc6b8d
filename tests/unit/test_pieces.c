/* Bases in pieces: from a callback, or through a moving window. Bytes and elements equal those with the whole base in memory, and
 * errors of the source have their own rule. */
#include "test.h"
#include "inside.h"
#include "data.h"

#define MOST 300000
static uint8_t base[8 * MOST], result[8 * MOST], back[8 * MOST];
static uint8_t frame[8 * MOST + 4096], other[8 * MOST + 4096], third[8 * MOST + 4096];
static uint8_t *workspace;

/* A base that a callback reads. */
typedef struct file {
    const uint8_t *bytes;
    size_t size, reads, fail, change; /* the number of the read that fails, or changes a byte; 0: none */
} file;

static int file_read(void *context, uint64_t offset, void *to, size_t size)
{
    file *f = (file *)context;
    CHECK(offset <= f->size && size <= f->size - offset && size);
    memcpy(to, f->bytes + offset, size);
    f->reads++;
    if (f->reads == f->change) ((uint8_t *)to)[size / 2] ^= 1;
    return f->reads == f->fail;
}

/* Runs tasks one after another, on workers in turn. */
static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    uint64_t i;
    for (i = 0; i < count; i++) task(argument, i, (unsigned)(i % *(unsigned *)context));
}

static bitsnap with_base(const void *data, size_t n, bitsnap_dtype dtype)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = test_workspace_delta(20, 3);
    b.base.data = data;
    b.base.count = n;
    b.base.dtype = dtype;
    return b;
}

static bitsnap with_file(const bitsnap *like, file *f)
{
    bitsnap b = *like;
    memset(f, 0, sizeof *f);
    f->bytes = (const uint8_t *)b.base.data;
    f->size = (size_t)b.base.count * bitsnap_width(b.base.dtype);
    b.base.data = NULL;
    b.base.source.read = file_read;
    b.base.source.context = f;
    return b;
}

/* The first third equals the base. Then follow few changes, many changes, and elements that the base does not predict. */
static void change(size_t n, unsigned width)
{
    size_t i;
    memcpy(result, base, n * width);
    for (i = n / 3; i < n; i++) {
        if (i > n / 6 * 5) test_fill(result + i * width, width);
        else if (i < n / 2 ? i % 9973 == 0 : test_below(10) < 4) result[i * width] ^= (uint8_t)(1 + test_below(3));
    }
}

static void whole(size_t n, bitsnap_dtype dtype, bitsnap_dtype base_dtype, int level, unsigned workers)
{
    const unsigned width = bitsnap_width(dtype);
    const size_t room = test_bound(n, dtype);
    bitsnap b = with_base(base, n, base_dtype), c;
    size_t size, again, part, i;
    bitsnap_info info;
    bitsnap_block block, by_file;
    uint64_t first, at;
    file f;
    data_fill(base, n, base_dtype, DATA_WEIGHTS);
    if (base_dtype == dtype) change(n, width);
    else for (i = 0; i < n; i++) memcpy(result + i * width, base + 4 * i + 2, width); /* truncated, so half of them equal the cast */
    b.level = level;
    b.block_log2 = n > 65536 ? 16 : 0;
    b.workers = workers;
    b.run = run;
    b.run_context = &workers;
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, dtype), "%s", bitsnap_message(&b));
    c = with_file(&b, &f);
    CHECK(!bitsnap_encode(&c, other, room, &again, result, n, dtype), "%s", bitsnap_message(&c));
    CHECK(again == size && !memcmp(frame, other, size), "%zu, not %zu", again, size);
    CHECK(f.reads >= 2 * ((n + 65535) / 65536));
    c.base.id = bitsnap_content_id(base, n, base_dtype);
    f.reads = 0;
    c.flags = BITSNAP_VERIFY;
    CHECK(!bitsnap_encode(&c, other, room, &again, result, n, dtype) && again == size && !memcmp(frame, other, size));
    CHECK(f.reads == (n + 65535) / 65536, "each cell is read once: %zu", f.reads);
    c.flags = 0;
    CHECK(!bitsnap_decode(&c, back, n, dtype, frame, size) && !memcmp(back, result, n * width), "%s", bitsnap_message(&c));
    CHECK(!bitsnap_verify(&c, result, n, dtype, frame, size) && !bitsnap_test(&c, frame, size));
    for (i = 0; i < 8; i++) {
        const size_t from = test_below(n), count = test_below(n - from) + 1;
        memset(back, 0xA5, n * width);
        CHECK(!bitsnap_decode_range(&c, back, from, count, dtype, frame, size) && !memcmp(back, result + from * width, count * width));
    }
    CHECK(!bitsnap_read_info(&info, frame, size));
    for (first = 0, at = info.header_size; first < n; first += block.elements, at += block.size) {
        CHECK(!bitsnap_read_block(&b, &block, &info, first, frame + at, size - (size_t)at));
        CHECK(!bitsnap_read_block(&c, &by_file, &info, first, frame + at, size - (size_t)at));
        CHECK(!memcmp(&block, &by_file, sizeof block));
    }
    if (base_dtype == dtype && workers != 1) {
        CHECK(!bitsnap_invert(&b, other, room, &again, frame, size) && !bitsnap_invert(&c, third, room, &part, frame, size), "%s",
              bitsnap_message(&c));
        CHECK(again == part && !memcmp(other, third, part));
        CHECK(!bitsnap_merge(&c, third, room, &part, frame, size, other, again), "%s", bitsnap_message(&c));
        CHECK(!bitsnap_decode(&c, back, n, dtype, third, part) && !memcmp(back, base, n * width));
    }
}

static void callbacks(void)
{
    static const size_t counts[] = { 1, 1000, 65536, 65537, MOST };
    size_t i;
    int level;
    unsigned workers;
    for (i = 0; i < sizeof counts / sizeof *counts; i++)
        for (workers = 1; workers <= 3; workers += 2)
            for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
                if (level == BITSNAP_BEST && i > 2) continue;
                whole(counts[i], BITSNAP_BF16, BITSNAP_BF16, level, workers);
                whole(counts[i], BITSNAP_F32, BITSNAP_F32, level, workers);
                whole(counts[i], BITSNAP_BF16, BITSNAP_F32, level, workers);
            }
    whole(100000, BITSNAP_I8, BITSNAP_I8, 0, 1);
    whole(100000, BITSNAP_F64, BITSNAP_F64, 0, 3);
}

/* A failing callback is reported by its own rule and cell, for any number of workers. If it returns other bytes on a second
 * read, the call notices. */
static void failures(void)
{
    static unsigned workers;
    const size_t n = MOST, room = test_bound(n, BITSNAP_BF16), cells = (n + 65535) / 65536;
    bitsnap b = with_base(base, n, BITSNAP_BF16), c;
    bitsnap_status status;
    size_t size, again, i;
    file f;
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(n, 2);
    b.block_log2 = 16;
    b.run = run;
    b.run_context = &workers;
    b.base.id = bitsnap_content_id(base, n, BITSNAP_BF16);
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, BITSNAP_BF16));
    for (workers = 1; workers <= 3; workers++) {
        b.workers = workers;
        for (i = 1; i <= cells; i++) {
            c = with_file(&b, &f);
            f.fail = i;
            status = bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_BF16);
            CHECK(status == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE_SOURCE && c.error.element == (i - 1) * 65536 && !again);
            CHECK(!strcmp(bitsnap_message(&c), "the callback of the base failed"));
            f.reads = 0;
            status = bitsnap_decode(&c, back, n, BITSNAP_BF16, frame, size);
            CHECK(status == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE_SOURCE && c.error.element == (i - 1) * 65536);
            f.reads = 0;
            status = bitsnap_decode_range(&c, back, 0, n, BITSNAP_BF16, frame, size);
            CHECK(status == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE_SOURCE && c.error.element == (i - 1) * 65536);
            f.fail = 0;
            f.change = i;
            f.reads = 0;
            status = bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_BF16);
            CHECK(status == BITSNAP_E_BASE && c.error.rule != BITSNAP_R_BASE_SOURCE && !again);
            f.reads = 0;
            status = bitsnap_decode(&c, back, n, BITSNAP_BF16, frame, size);
            CHECK(status == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE_HASH && c.error.element == (i - 1) * 65536);
            c.base.id = 0; /* then a first pass computes the id */
            f.reads = 0;
            status = bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_BF16);
            CHECK(status == BITSNAP_E_BASE && !again, "changed between two readings");
            f.change = 0;
            f.fail = i;
            f.reads = 0;
            status = bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_BF16);
            CHECK(status == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE_SOURCE && c.error.element == (i - 1) * 65536 && !again);
        }
        c = with_file(&b, &f);
        c.base.count++;
        CHECK(bitsnap_decode(&c, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && c.error.rule == BITSNAP_R_BASE && !f.reads);
    }
}

/* The workspace that the call asks for is enough. One byte less is refused. */
static void workspaces(void)
{
    static unsigned workers;
    const size_t n = 100000, room = test_bound(n, BITSNAP_F32);
    bitsnap b = with_base(base, n, BITSNAP_F32), c;
    size_t size, again, needed;
    file f;
    data_fill(base, n, BITSNAP_F32, DATA_WEIGHTS);
    change(n, 4);
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, BITSNAP_F32));
    for (workers = 1; workers <= 3; workers += 2) {
        guarded g;
        c = with_file(&b, &f);
        c.workers = workers;
        c.run = run;
        c.run_context = &workers;
        c.workspace_size = 0;
        CHECK(bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_F32) == BITSNAP_E_WORKSPACE && !f.reads);
        needed = (size_t)c.error.needed;
        g = guarded_alloc(needed, 0);
        c.workspace = g.p;
        c.workspace_size = needed - 1;
        CHECK(bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_F32) == BITSNAP_E_WORKSPACE);
        c.workspace_size = 0;
        CHECK(bitsnap_decode(&c, back, n, BITSNAP_F32, frame, size) == BITSNAP_E_WORKSPACE && c.error.needed <= needed);
        c.workspace_size = (size_t)c.error.needed - 1;
        CHECK(bitsnap_decode(&c, back, n, BITSNAP_F32, frame, size) == BITSNAP_E_WORKSPACE);
        c.workspace_size = needed;
        CHECK(!bitsnap_encode(&c, other, room, &again, result, n, BITSNAP_F32) && again == size && !memcmp(frame, other, size));
        CHECK(!bitsnap_decode(&c, back, n, BITSNAP_F32, frame, size) && !memcmp(back, result, 4 * n));
        guarded_free(g);
    }
}

/* Streams with neither tensor nor base in memory as a whole. A window of the base moves on. */
static void windows(void)
{
    const size_t n = MOST, cell = 65536, room = test_bound(n, BITSNAP_BF16);
    uint8_t index[64], *p;
    bitsnap b = with_base(base, n, BITSNAP_BF16);
    bitsnap_encoder s;
    size_t size, at, part, i, m, used, done;
    guarded g = guarded_alloc(2 * 2 * cell, 0);
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(n, 2);
    b.block_log2 = 16;
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, BITSNAP_BF16));
    b.base.held = cell;
    CHECK(bitsnap_encode(&b, other, room, &part, result, n, BITSNAP_BF16) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW, "no id");
    b.base.id = bitsnap_content_id(base, n, BITSNAP_BF16);
    CHECK(bitsnap_encode(&b, other, room, &part, result, n, BITSNAP_BF16) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW);
    CHECK(b.error.element == cell && strstr(bitsnap_message(&b), "window"));
    CHECK(bitsnap_decode(&b, back, n, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW && b.error.element == cell);
    b.base.held = n;
    CHECK(!bitsnap_encode(&b, other, room, &part, result, n, BITSNAP_BF16) && part == size && !memcmp(frame, other, size));
    CHECK(!bitsnap_encoder_begin(&b, &s, other, room, &at, n, BITSNAP_BF16));
    s.index = index;
    s.index_capacity = sizeof index;
    for (i = 0; i < n; i += m) { /* two cells at a time; memory outside the window is not accessible */
        m = n - i < 2 * cell ? n - i : 2 * cell;
        p = g.p + 2 * (2 * cell - m);
        memcpy(p, base + 2 * i, 2 * m);
        b.base.data = p;
        b.base.first = i;
        b.base.held = m;
        CHECK(!bitsnap_encoder_push(&b, &s, other + at, room - at, &part, result + 2 * i, m), "%s", bitsnap_message(&b));
        at += part;
    }
    CHECK(!bitsnap_encoder_end(&b, &s, other + at, room - at, &part) && at + part == size && !memcmp(frame, other, size));
    CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at));
    for (i = 0, done = 0; i < n; i += m) { /* offers all of the frame and the elements; the window ends each pull */
        m = n - i < 2 * cell ? n - i : 2 * cell;
        p = g.p + 2 * (2 * cell - m);
        memcpy(p, base + 2 * i, 2 * m);
        b.base.data = p;
        b.base.first = i;
        b.base.held = m;
        CHECK(!bitsnap_decoder_pull(&b, &s, back + 2 * i, n - i, &done, frame + at, size - at, &used) && done == m, "%s", bitsnap_message(&b));
        at += used;
    }
    CHECK(!bitsnap_decoder_end(&b, &s, frame + at, size - at, &used) && at + used == size && !memcmp(back, result, 2 * n));
    b.base.data = base + 2 * cell; /* one cell; ranges inside it and across its end */
    b.base.first = cell;
    b.base.held = cell;
    CHECK(!bitsnap_decode_range(&b, back, cell + 5, 1000, BITSNAP_BF16, frame, size) && !memcmp(back, result + 2 * (cell + 5), 2000));
    CHECK(bitsnap_decode_range(&b, back, 2 * cell - 5, 10, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW);
    CHECK(b.error.element == 2 * cell);
    b.base.first = UINT64_MAX; /* impossible windows */
    CHECK(bitsnap_decode_range(&b, back, cell + 5, 1000, BITSNAP_BF16, frame, size) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_WINDOW);
    b.base.first = cell;
    b.base.held = UINT64_MAX;
    CHECK(!bitsnap_decode_range(&b, back, cell + 5, 1000, BITSNAP_BF16, frame, size));
    guarded_free(g);
}

/* Streams with a callback and a known id of the base. */
static void streams(void)
{
    const size_t n = MOST, cell = 65536, room = test_bound(n, BITSNAP_BF16);
    uint8_t index[64];
    bitsnap b = with_base(base, n, BITSNAP_BF16), c;
    bitsnap_encoder s;
    size_t size, at, part, i, m, used;
    file f;
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(n, 2);
    b.block_log2 = 16;
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, BITSNAP_BF16));
    c = with_file(&b, &f);
    memset(&s, 0, sizeof s); /* the test compares whole structs */
    CHECK(!bitsnap_encoder_begin(&c, &s, other, room, &at, n, BITSNAP_BF16) && f.reads == (n + 65535) / 65536);
    s.index = index;
    s.index_capacity = sizeof index;
    for (i = 0; i < n; i += m) {
        bitsnap_encoder before = s;
        m = n - i < cell ? n - i : cell;
        f.reads = 0;
        f.fail = 1;
        CHECK(bitsnap_encoder_push(&c, &s, other + at, room - at, &part, result + 2 * i, m) == BITSNAP_E_BASE && !memcmp(&s, &before, sizeof s));
        CHECK(!bitsnap_encoder_push(&c, &s, other + at, room - at, &part, result + 2 * i, m), "after a failure all may go on");
        at += part;
    }
    CHECK(!bitsnap_encoder_end(&c, &s, other + at, room - at, &part) && at + part == size && !memcmp(frame, other, size));
    CHECK(!bitsnap_decoder_begin(&c, &s, frame, size, &at));
    for (i = 0; i < n; i += m) {
        f.reads = 0;
        CHECK(bitsnap_decoder_pull(&c, &s, back + 2 * i, cell, &m, frame + at, size - at, &used) == BITSNAP_E_BASE && !m && !used);
        CHECK(!bitsnap_decoder_pull(&c, &s, back + 2 * i, cell, &m, frame + at, size - at, &used) && m);
        at += used;
    }
    CHECK(!bitsnap_decoder_end(&c, &s, frame + at, size - at, &used) && at + used == size && !memcmp(back, result, 2 * n));
}

/* Other bytes follow a frame. If that is allowed, it is accepted and its size reported. Otherwise it is refused. */
static void before(const bitsnap *like, size_t n, bitsnap_dtype dtype, size_t size, size_t behind)
{
    const unsigned width = bitsnap_width(dtype);
    bitsnap b = *like;
    const int one = n <= 65536 && !b.base.data;
    guarded g = guarded_alloc(size + behind, 0);
    memcpy(g.p, frame, size);
    memcpy(g.p + size, third, behind);
    b.flags = BITSNAP_ALLOW_TRAILING;
    memset(back, 0, n * width);
    CHECK(!bitsnap_decode(&b, back, n, dtype, g.p, size + behind) && b.used == size && !memcmp(back, result, n * width), "%s",
          bitsnap_message(&b));
    CHECK(!bitsnap_test(&b, g.p, size + behind) && b.used == size);
    CHECK(!bitsnap_verify(&b, result, n, dtype, g.p, size + behind) && b.used == size);
    memset(back, 0, n * width);
    CHECK(!bitsnap_decode_range(&b, back, n / 3, n / 2, dtype, g.p, size + behind) && b.used == size, "%s", bitsnap_message(&b));
    CHECK(!memcmp(back, result + n / 3 * width, n / 2 * width));
    CHECK(bitsnap_decode(&b, back, n + 1, dtype, g.p, size + behind) == BITSNAP_E_MISMATCH && !b.used);
    CHECK(bitsnap_decode(&b, back, n, dtype, g.p, size - 1) == BITSNAP_E_TRUNCATED && !b.used);
    CHECK(one || bitsnap_decode_range(&b, back, 0, n, dtype, g.p, size - 1) == BITSNAP_E_TRUNCATED, "%s", bitsnap_message(&b));
    if (b.base.data && b.base.dtype == dtype) {
        memcpy(back, base, n * width);
        CHECK(!bitsnap_apply(&b, back, n, dtype, g.p, size + behind) && b.used == size && !memcmp(back, result, n * width));
    }
    b.flags = 0;
    CHECK(bitsnap_decode(&b, back, n, dtype, g.p, size + behind) == (behind ? BITSNAP_E_TRAILING : BITSNAP_OK) && b.used == (behind ? 0 : size));
    if (behind && !one) CHECK(bitsnap_decode_range(&b, back, 0, n, dtype, g.p, size + behind) != BITSNAP_OK && !b.used);
    guarded_free(g);
}

static void trailing(void)
{
    static const size_t counts[] = { 64, 65536, 200000 };
    size_t i, size, behind;
    int delta;
    for (delta = 0; delta < 2; delta++) {
        for (i = 0; i < 3; i++) {
            bitsnap b = with_base(base, counts[i], BITSNAP_BF16);
            data_fill(base, counts[i], BITSNAP_BF16, DATA_WEIGHTS);
            change(counts[i], 2);
            if (!delta) b.base.data = NULL;
            else b.block_log2 = 16;
            CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, result, counts[i], BITSNAP_BF16));
            before(&b, counts[i], BITSNAP_BF16, size, 0);
            test_fill(third, 10000);
            for (behind = 1; behind < 5000; behind = behind * 3 + 1) before(&b, counts[i], BITSNAP_BF16, size, behind);
            memset(third, 0, 10000);
            before(&b, counts[i], BITSNAP_BF16, size, 4096);
            memcpy(third, frame, size);
            before(&b, counts[i], BITSNAP_BF16, size, size); /* the same frame: a second footer at the end */
            result[0] ^= 1;
            CHECK(!bitsnap_encode(&b, third, sizeof third, &behind, result, counts[i], BITSNAP_BF16));
            result[0] ^= 1;
            before(&b, counts[i], BITSNAP_BF16, size, behind); /* a similar frame */
        }
    }
}

/* Encoding with too small a capacity stops at the first block that does not fit, and reads no later cells. With workers,
 * blocks in progress are read, too. The frame is the same at every sufficient capacity. */
static void budgets(void)
{
    static unsigned workers;
    const size_t n = MOST, room = test_bound(n, BITSNAP_BF16);
    bitsnap b = with_base(base, n, BITSNAP_BF16), c;
    size_t size, again, capacity, part;
    file f;
    data_fill(base, n, BITSNAP_BF16, DATA_WEIGHTS);
    change(n, 2);
    test_fill(result, 2 * n);
    b.block_log2 = 16;
    b.base.id = bitsnap_content_id(base, n, BITSNAP_BF16);
    b.run = run;
    b.run_context = &workers;
    CHECK(!bitsnap_encode(&b, frame, room, &size, result, n, BITSNAP_BF16));
    for (part = 0; part <= 10; part++) {
        bitsnap_error first;
        capacity = part == 10 ? size - 1 : size * part / 10;
        for (workers = 1; workers <= 3; workers += 2) {
            c = with_file(&b, &f);
            c.workers = workers;
            memset(other, 0xA5, sizeof other);
            CHECK(bitsnap_encode(&c, other, capacity, &again, result, n, BITSNAP_BF16) == BITSNAP_E_CAPACITY && !again);
            CHECK(c.error.needed >= size && other[capacity] == 0xA5 && !memcmp(other + capacity, other + capacity + 1, 1000));
            if (workers == 1) CHECK(f.reads <= capacity / (65536 * 2) + 1, "%zu cells were read for %zu of %zu bytes", f.reads, capacity, size);
            if (workers == 1) first = c.error;
            else CHECK(!memcmp(&first, &c.error, sizeof first));
        }
    }
    c = with_file(&b, &f);
    CHECK(!bitsnap_encode(&c, other, size, &again, result, n, BITSNAP_BF16) && again == size && !memcmp(frame, other, size));
}

/* Tries every capacity. */
static void capacities(void)
{
    static unsigned workers;
    unsigned dtype;
    int shape;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F64; dtype++) {
        for (shape = 0; shape < DATA_SHAPES; shape++) {
            const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
            const int delta = (shape + (int)dtype) & 1;
            size_t n = 300, size, again, capacity, i;
            bitsnap b = with_base(delta ? base : NULL, n, (bitsnap_dtype)dtype);
            data_fill(base, n, dtype, shape);
            memcpy(result, base, n * width);
            for (i = 0; i < n && delta; i += 7) result[i * width]++;
            b.block_log2 = delta ? 16 : 7;
            b.run = run;
            b.run_context = &workers;
            CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, result, n, (bitsnap_dtype)dtype));
            for (capacity = 0; capacity <= size + 3; capacity += test_long() || capacity + 70 > size ? 1 : 5) {
                bitsnap_error first;
                for (workers = 1; workers <= 3; workers += 2) {
                    bitsnap_status status;
                    b.workers = workers;
                    other[capacity] = 0xA5;
                    status = bitsnap_encode(&b, other, capacity, &again, result, n, (bitsnap_dtype)dtype);
                    CHECK(status == (capacity < size ? BITSNAP_E_CAPACITY : BITSNAP_OK) && other[capacity] == 0xA5, "%zu of %zu", capacity, size);
                    CHECK(status ? !again : again == size && !memcmp(other, frame, size));
                    if (workers == 1) first = b.error;
                    else CHECK(!memcmp(&first, &b.error, sizeof first), "%zu of %zu: element %zu, %zu", capacity, size, (size_t)first.element, (size_t)b.error.element);
                }
            }
        }
    }
}

int main(void)
{
    test_program = "pieces";
    workspace = (uint8_t *)malloc(test_workspace_delta(20, 3));
    if (!workspace) return 1;
    RUN(callbacks);
    RUN(failures);
    RUN(workspaces);
    RUN(windows);
    RUN(streams);
    RUN(trailing);
    RUN(budgets);
    RUN(capacities);
    free(workspace);
    return test_failures != 0;
}
