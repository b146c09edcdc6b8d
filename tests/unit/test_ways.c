/* All functions that read frames agree. Every frame of the corpus, good or bad, goes through each of them. Each accepts it or
 * refuses it by the condition of docs/FORMAT.md, section 9, that bitsnap_decode reports, and gives equal elements. For
 * functions that read less than all of a frame, `unseen` lists the conditions that they cannot see. */
#include "test.h"
#define BITSNAP_OFFLOAD
#include "data.h"
#include "inside.h"
#include "tests/format/corpus.h"

enum { MOST = 4 << 20, ROOM = 64 << 20 };
static uint8_t *expected, *out, *workspace, *device;

typedef struct frame_case {
    const char *name;
    const uint8_t *frame;
    size_t size;
    bitsnap_base base;
    bitsnap_info info;
    int readable;       /* 1 if the header can be read */
    unsigned rule;      /* the rule that bitsnap_decode reports; 0: good */
    bitsnap_status status;
} frame_case;

typedef struct answer {
    bitsnap_status status;
    unsigned rule;
    const uint8_t *elements; /* null: this way makes no elements */
} answer;

static bitsnap fresh(const frame_case *c)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = ROOM;
    b.base = c->base;
    return b;
}

static answer of(const bitsnap *b, const uint8_t *elements)
{
    answer a;
    a.status = b->error.status;
    a.rule = b->error.rule;
    a.elements = elements;
    return a;
}

/* ---- the ways ---- */

static answer by_test(const frame_case *c)
{
    bitsnap b = fresh(c);
    (void)bitsnap_test(&b, c->frame, c->size);
    return of(&b, NULL);
}

static answer by_verify(const frame_case *c)
{
    bitsnap b = fresh(c);
    (void)bitsnap_verify(&b, expected, c->info.count, c->info.dtype, c->frame, c->size);
    return of(&b, NULL);
}

static answer by_range(const frame_case *c)
{
    bitsnap b = fresh(c);
    (void)bitsnap_decode_range(&b, out, 0, c->info.count, c->info.dtype, c->frame, c->size);
    return of(&b, out);
}

static answer by_trailing(const frame_case *c) /* other bytes follow the frame */
{
    bitsnap b = fresh(c);
    uint8_t *more = (uint8_t *)malloc(c->size + 9);
    answer a;
    memcpy(more, c->frame, c->size);
    memset(more + c->size, 0x55, 9);
    b.flags = BITSNAP_ALLOW_TRAILING;
    (void)bitsnap_decode(&b, out, c->info.count, c->info.dtype, more, c->size + 9);
    CHECK(b.error.status || b.used <= c->size, "%s", c->name);
    a = of(&b, out);
    free(more);
    return a;
}

static int read_case(void *context, uint64_t offset, void *to, size_t size)
{
    const frame_case *c = (const frame_case *)context;
    if (offset > c->size || size > c->size - offset) return 1;
    memcpy(to, c->frame + offset, size);
    return 0;
}

static bitsnap_index index_;

static bitsnap_status open_index(const frame_case *c, bitsnap *b, bitsnap_info *info, int callback)
{
    bitsnap_source source;
    memset(&source, 0, sizeof source);
    source.size = c->size;
    if (callback) source.read = read_case, source.context = (void *)(uintptr_t)c;
    else source.data = c->frame;
    return bitsnap_index_open(b, &index_, info, &source);
}

static answer index_of(const frame_case *c, int callback)
{
    bitsnap b = fresh(c);
    if (!open_index(c, &b, NULL, callback)) (void)bitsnap_index_decode(&b, &index_, out, 0, c->info.count);
    return of(&b, out);
}
static answer by_index(const frame_case *c) { return index_of(c, 0); }
static answer by_callback(const frame_case *c) { return index_of(c, 1); }

static answer by_blocks(const frame_case *c)
{
    bitsnap b = fresh(c);
    bitsnap_info info;
    bitsnap_extent x;
    uint64_t at;
    if (open_index(c, &b, &info, 0)) return of(&b, out);
    for (at = 0; at < info.count; at = x.first + x.count) {
        if (bitsnap_index_find(&b, &index_, at, &x)) break;
        if (bitsnap_block_decode(&b, out + at * info.width, x.first, x.count, &info, &x, c->frame + x.offset)) break;
    }
    return of(&b, out);
}

static answer by_looks(const frame_case *c)
{
    bitsnap b = fresh(c);
    bitsnap_info info;
    bitsnap_block block;
    uint64_t first;
    size_t at;
    b.error.status = bitsnap_read_info(&info, c->frame, c->size); /* it reports no rule */
    b.error.rule = c->rule;
    if (b.error.status) return of(&b, NULL);
    for (first = 0, at = info.header_size; first < info.count; first += block.elements, at += (size_t)block.size) {
        if (bitsnap_read_block(&b, &block, &info, first, c->frame + at, c->size - at)) break;
        if (block.form == FORM_CLASSED && block.classes > 1 && !block.parts) break; /* without the base */
    }
    return of(&b, NULL);
}

/* step: bytes that the source grows by; 0: all at once. blocks: blocks that fit the destination; 0: all. */
static answer pull_of(const frame_case *c, size_t step, size_t blocks)
{
    bitsnap b = fresh(c);
    bitsnap_decoder d;
    size_t at = 0, there = step ? 0 : c->size, n, used;
    const size_t capacity = blocks ? blocks << c->info.block_log2 : (size_t)c->info.count;
    uint8_t *to = out;
    bitsnap_status s;
    memset(&d, 0, sizeof d);
    for (;;) {
        const int ended = d.width && d.position == d.count;
        used = n = 0;
        s = !d.width ? bitsnap_decoder_begin(&b, &d, c->frame, there, &used)
            : d.position < d.count ? bitsnap_decoder_pull(&b, &d, to, capacity, &n, c->frame + at, there - at, &used)
                                   : bitsnap_decoder_end(&b, &d, c->frame + at, there - at, &used);
        if (s == BITSNAP_E_TRUNCATED && there < c->size) {
            CHECK(b.error.needed > there - at, "%s", c->name);
            there += c->size - there < step ? c->size - there : step;
            continue;
        }
        at += used;
        to += n * c->info.width;
        if (s || ended) break;
    }
    return of(&b, out);
}
static answer by_pull(const frame_case *c) { return pull_of(c, 0, 0); }
static answer by_pull_7(const frame_case *c) { return pull_of(c, c->size / 1000 + 7, 1); }
static answer by_pull_half(const frame_case *c) { return pull_of(c, c->size / 2 + 1, 3); }

static answer by_apply(const frame_case *c)
{
    bitsnap b = fresh(c);
    memset(&b.base, 0, sizeof b.base);
    memcpy(out, c->base.data, (size_t)c->info.elements_size);
    (void)bitsnap_apply(&b, out, c->info.count, c->info.dtype, c->frame, c->size);
    if (b.error.status) CHECK(!memcmp(out, c->base.data, (size_t)c->info.elements_size), "%s is half applied", c->name);
    return of(&b, out);
}

/* Inverts twice, then decodes. What needs the base is refused with another status. */
static answer by_invert(const frame_case *c)
{
    const size_t room = (size_t)c->info.bound + 64;
    bitsnap b = fresh(c);
    uint8_t *one = (uint8_t *)malloc(room), *two = (uint8_t *)malloc(room);
    size_t size, more;
    answer a;
    if (!bitsnap_invert(&b, one, room, &size, c->frame, c->size)) {
        b.base.data = expected;
        b.base.id = 0;
        if (!bitsnap_invert(&b, two, room, &more, one, size)) {
            b.base = c->base;
            b.base.id = 0; /* the second inverse has the given base again */
            (void)bitsnap_decode(&b, out, c->info.count, c->info.dtype, two, more);
        }
    }
    a = of(&b, out);
    free(one);
    free(two);
    return a;
}

/* ---- a device that does nothing, or all that the host could do ---- */

#define ADDRESS (UINT64_C(1) << 56)
static int device_works;
static frame_case device_case;

static int up(void *context, unsigned queue, uint64_t to, const void *from, size_t size)
{
    (void)context, (void)queue;
    memcpy(device + (to - ADDRESS), from, size);
    return 0;
}
static int down(void *context, unsigned queue, void *to, uint64_t from, size_t size)
{
    (void)context, (void)queue;
    memcpy(to, device + (from - ADDRESS), size);
    return 0;
}
static int wait_for(void *context, unsigned queue) { return (void)context, (void)queue, 0; }

static int works(void *context, unsigned queue, const bitsnap_work *w, bitsnap_done *done, size_t count)
{
    static uint8_t cell[MOST], memory[ROOM];
    size_t i;
    (void)context, (void)queue;
    for (i = 0; i < count; i++) {
        const size_t width = bitsnap_width((bitsnap_dtype)w[i].dtype), bytes = (size_t)w[i].count * width;
        bitsnap b = fresh(&device_case);
        bitsnap_extent x;
        done[i].status = BITSNAP_E_UNSUPPORTED;
        if (!device_works || bytes > sizeof cell) continue;
        memset(&x, 0, sizeof x);
        x.size = w[i].size, x.first = w[i].first, x.count = w[i].count, x.form = w[i].head & 255;
        memcpy(&x.check, device + (w[i].source - ADDRESS) + 4, 4); /* the host compares it with the index */
        b.workspace = memory;
        memset(&b.base, 0, sizeof b.base);
        if (w[i].role) {
            b.base.data = device + (w[i].base - ADDRESS);
            b.base.dtype = w[i].role == 1 ? (bitsnap_dtype)w[i].dtype : BITSNAP_F32;
            b.base.count = device_case.info.count, b.base.first = w[i].first, b.base.held = w[i].count;
        }
        done[i].status = bitsnap_block_decode(&b, cell, x.first, x.count, &device_case.info, &x, device + (w[i].source - ADDRESS));
        if (done[i].status) done[i].status |= b.error.rule << 8;
        else if (!(w[i].flags & BITSNAP_WORK_TEST)) memcpy(device + (w[i].target - ADDRESS), cell, bytes);
    }
    return 0;
}

enum { STAGING = 1 << 20, AT_BASE = STAGING, AT_ELEMENTS = STAGING + 2 * MOST };

static answer offload_of(const frame_case *c, int does, int apply)
{
    bitsnap b = fresh(c);
    bitsnap_offload o;
    bitsnap_request q;
    memset(&o, 0, sizeof o);
    memset(&q, 0, sizeof q);
    device_works = does;
    device_case = *c;
    o.upload = up, o.download = down, o.decode = works, o.wait = wait_for;
    o.device = ADDRESS, o.size = STAGING;
    q.frame = c->frame, q.size = c->size, q.count = c->info.count, q.dtype = c->readable ? c->info.dtype : BITSNAP_I8;
    q.elements = ADDRESS + AT_ELEMENTS;
    if (c->base.data && c->base.count == c->info.count) { /* a request does not tell the size of its base */
        const size_t size = (size_t)c->base.count * bitsnap_width(c->base.dtype);
        if (size) memcpy(device + (apply ? AT_ELEMENTS : AT_BASE), c->base.data, size);
        q.base = ADDRESS + AT_BASE;
        q.base_dtype = c->base.dtype, q.base_id = c->base.id;
    }
    memset(&b.base, 0, sizeof b.base);
    if (apply) (void)bitsnap_offload_apply(&b, &o, &q, 1);
    else (void)bitsnap_offload_decode(&b, &o, &q, 1);
    CHECK(b.error.status == q.error.status && b.error.rule == q.error.rule, "%s", c->name);
    return of(&b, device + AT_ELEMENTS);
}
static answer by_host(const frame_case *c) { return offload_of(c, 0, 0); }
static answer by_device(const frame_case *c) { return offload_of(c, 1, 0); }
static answer by_offload_apply(const frame_case *c) { return offload_of(c, 1, 1); }

/* ---- comparison ---- */

/* What a way in does not see, as conditions of FORMAT.md, section 9.
 *     12      content id: functions that do not make all elements in order do not see it
 *     7       end of the source: a stream goes on; a range does not look for it if the frame has no footer
 *     looks   bitsnap_read_block sees no checks, hashes and footers, nor whether a number is one of the quantizer's
 * A function that reads the index before the blocks may report another condition of the index, or one of a head in the index. */
#define UNSEEN_RANGE "7 12"
#define UNSEEN_LOOKS "6 7 9 10 12 36 37 38 39 40 41 43 44 45 50 53 54"
#define OF_INDEX "6 7 10 37 38 39 40 41"
#define OF_HEADS "15 16 17"

typedef struct way {
    const char *name;
    answer (*take)(const frame_case *c);
    const char *unseen;
    int index_first;
    int delta; /* 1: for deltas with a base of their own dtype, if the test has it */
} way;

static const way ways[] = {
    { "test", by_test, "12", 0, 0 },
    { "verify", by_verify, "", 0, 0 },
    { "range", by_range, UNSEEN_RANGE, 1, 0 },
    { "trailing", by_trailing, "7", 0, 0 },
    { "index", by_index, UNSEEN_RANGE, 1, 0 },
    { "callback", by_callback, UNSEEN_RANGE, 1, 0 },
    { "blocks", by_blocks, UNSEEN_RANGE, 1, 0 },
    { "looks", by_looks, UNSEEN_LOOKS, 0, 0 },
    { "pull", by_pull, "7", 0, 0 },
    { "pull by 7", by_pull_7, "7", 0, 0 },
    { "pull by halves", by_pull_half, "7", 0, 0 },
    { "host", by_host, "12", 1, 0 },
    { "device", by_device, "12", 1, 0 },
    { "apply", by_apply, "", 0, 1 },
    { "offload apply", by_offload_apply, "12", 1, 1 },
    { "invert", by_invert, "", 0, 1 },
};
enum { WAYS = sizeof ways / sizeof *ways };

static unsigned good, bad, answers;

static int among(unsigned rule, const char *rules)
{
    char name[8];
    snprintf(name, sizeof name, "%u", rule);
    return test_lists(rules, name);
}

static int agrees(const frame_case *c, const way *w, const answer *a)
{
    if (a->status == c->status && a->rule == c->rule) return 1;
    if (w->take == by_invert && a->status == BITSNAP_E_UNSUPPORTED) return 1; /* needs the base of the base */
    if (!c->status) return 0;
    if (!a->status) return among(c->rule, w->unseen);
    if (w->take == by_looks && c->rule == 9 && a->status == BITSNAP_E_UNSUPPORTED) return 1; /* newer, if checks are not read */
    if (w->take == by_invert && c->rule == 44 && a->rule == 45) return 1; /* a SAME block: one of its two hashes is wrong */
    if (w->take == by_trailing && c->rule == 6) return 1; /* the bytes after the frame are read as its rest */
    return w->index_first && among(c->rule, OF_INDEX) && (among(a->rule, OF_INDEX) || (c->rule == 40 && among(a->rule, OF_HEADS)));
}

static void all_ways(frame_case *c)
{
    bitsnap b = fresh(c);
    unsigned i;
    c->readable = !bitsnap_read_info(&c->info, c->frame, c->size);
    if (c->info.elements_size > MOST || c->info.workspace_size > ROOM / 2) return;
    if (c->base.data && c->base.count * bitsnap_width(c->base.dtype) > 2 * MOST) return;
    memset(expected, 0x5A, MOST);
    (void)bitsnap_decode(&b, expected, c->info.count, c->info.dtype, c->frame, c->size);
    c->status = b.error.status;
    c->rule = b.error.rule;
    if (c->rule) bad++;
    else good++;
    for (i = 0; i < WAYS; i++) {
        const way *w = &ways[i];
        answer a;
        if (w->delta && (!c->readable || !c->info.has_base || c->info.base_dtype != c->info.dtype || !c->base.data ||
                        c->base.count != c->info.count || c->base.dtype != c->info.dtype)) continue;
        memset(out, 0xA5, (size_t)c->info.elements_size);
        a = w->take(c);
        answers++;
        CHECK(agrees(c, w, &a), "%s: %s: R%u, status %d, not R%u, %d", w->name, c->name, a.rule, (int)a.status, c->rule, (int)c->status);
        if (!a.status && !c->status && a.elements)
            CHECK(!memcmp(a.elements, expected, (size_t)c->info.elements_size), "%s: %s: other elements", w->name, c->name);
    }
}

/* ---- frames ---- */

static void one(corpus_entry *e)
{
    frame_case c;
    memset(&c, 0, sizeof c);
    c.name = e->name, c.frame = e->data[CORPUS_FRAME], c.size = e->size[CORPUS_FRAME];
    c.base = corpus_base(e);
    if (c.size) all_ways(&c);
}

static void corpus(void)
{
    static corpus_entry e;
    CHECK(corpus_each(&e, one), "docs/vectors and tests/format/corpus.txt are read from the project's folder; %s", e.name);
    CHECK(good > 200 && bad > 350, "%u good, %u bad", good, bad);
}

/* ZIGZAG is for integers. These blocks are in frames of floats, and right otherwise. */
static void zigzags_of_floats(void)
{
    static const uint8_t integers[4] = { BITSNAP_I16, BITSNAP_I16, BITSNAP_I32, BITSNAP_I64 };
    static const uint8_t floats[4] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static uint8_t elements[8 * 300], frame[4096];
    unsigned i, k;
    for (i = 0; i < 4; i++) {
        const unsigned before = bad;
        bitsnap_extent x;
        frame_case c;
        bitsnap b;
        memset(&c, 0, sizeof c);
        b = fresh(&c);
        b.flags = BITSNAP_NO_CHECKS;
        for (k = 0; k < 300; k++) data_store(elements + k * bitsnap_width((bitsnap_dtype)integers[i]), (uint64_t)0 - k % 3, bitsnap_width((bitsnap_dtype)integers[i]));
        CHECK(!bitsnap_encode(&b, frame, sizeof frame, &c.size, elements, 300, (bitsnap_dtype)integers[i]) && frame[24] == FORM_ZIGZAG);
        c.name = "zigzags", c.frame = frame;
        all_ways(&c);
        CHECK(bad == before, "integers");
        frame[5] = floats[i];
        test_store64(frame + 16, bitsnap_hash(frame, 16));
        c.name = "zigzags of floats";
        all_ways(&c);
        CHECK(bad == before + 1 && c.rule == BITSNAP_R_FORM, "R%u", c.rule);
        CHECK(!c.info.frame_size, "which has no end"); /* and those that look at heads alone: */
        b = fresh(&c);
        CHECK(!open_index(&c, &b, NULL, 0) && bitsnap_index_find(&b, &index_, 0, &x) == BITSNAP_E_CORRUPT && b.error.rule == BITSNAP_R_FORM, "%s", bitsnap_message(&b));
    }
}

/* A block shorter than a head is refused, whatever the extent says. A block with the same extent was decoded just before, so
 * the stack may still hold its values. Memory ends with the block. */
static void blocks_of_nothing(void)
{
    static uint8_t elements[2 * 1000], frame[4096];
    const guarded g = guarded_alloc(8, 0);
    bitsnap_info info;
    bitsnap_extent x;
    frame_case c;
    bitsnap b;
    bitsnap_block block;
    bitsnap_encoder s;
    uint8_t index[64];
    size_t i, at;
    memset(&c, 0, sizeof c);
    memset(&x, 0, sizeof x);
    b = fresh(&c);
    for (i = 0; i < 1000; i++) data_store(elements + 2 * i, 0x3C00 + i * 7 % 199, 2);
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &c.size, elements, 1000, BITSNAP_BF16) && !bitsnap_read_info(&info, frame, c.size));
    for (i = 0; i < 8; i++) {
        uint8_t *p = g.p + 8 - i;
        memcpy(p, frame + info.header_size, i);
        x.offset = info.header_size, x.size = c.size - info.header_size, x.count = 1000, x.form = frame[info.header_size];
        x.check = test_load32(frame + info.header_size + 4);
        CHECK(!bitsnap_block_decode(&b, out, 0, 1000, &info, &x, frame + info.header_size), "%s", bitsnap_message(&b));
        x.size = i;
        CHECK(bitsnap_block_decode(&b, out, 0, 1000, &info, &x, p) == BITSNAP_E_CORRUPT && b.error.rule == BITSNAP_R_INDEX_BLOCKS, "%u bytes", (unsigned)i);
        CHECK(bitsnap_read_block(&b, &block, &info, 0, p, i) == BITSNAP_E_TRUNCATED, "%u bytes", (unsigned)i);
        CHECK(!bitsnap_encoder_begin(&b, &s, frame + 3000, 64, &at, 1000, BITSNAP_BF16));
        s.index = index, s.index_capacity = sizeof index;
        CHECK(bitsnap_encoder_push_block(&b, &s, p, i) == BITSNAP_E_TRUNCATED && !s.position, "%u bytes", (unsigned)i);
    }
    guarded_free(g);
}

/* A delta without elements needs no base. Every other delta does. */
static void deltas_of_nothing(void)
{
    static uint8_t base[2], frame[256], second[256];
    unsigned n;
    for (n = 0; n < 2; n++) {
        const bitsnap_status status = n ? BITSNAP_E_BASE : BITSNAP_OK;
        frame_case c;
        bitsnap b;
        bitsnap_decoder d;
        size_t at, used, done, more;
        memset(&c, 0, sizeof c);
        b = fresh(&c);
        b.base.data = base, b.base.dtype = BITSNAP_BF16, b.base.count = n;
        CHECK(!bitsnap_encode(&b, frame, sizeof frame, &c.size, "\1\2", n, BITSNAP_BF16), "%s", bitsnap_message(&b));
        memset(&b.base, 0, sizeof b.base);
        c.name = "a delta of nothing, no base", c.frame = frame;
        if (!n) all_ways(&c);
        CHECK(bitsnap_decode(&b, out, n, BITSNAP_BF16, frame, c.size) == status && bitsnap_test(&b, frame, c.size) == status, "%u", n);
        CHECK(bitsnap_verify(&b, "\1\2", n, BITSNAP_BF16, frame, c.size) == status, "%u", n);
        CHECK(bitsnap_decode_range(&b, out, 0, n, BITSNAP_BF16, frame, c.size) == status, "%u", n);
        CHECK(!bitsnap_decoder_begin(&b, &d, frame, c.size, &at) &&
              bitsnap_decoder_pull(&b, &d, out, n, &done, frame + at, c.size - at, &used) == status, "%u", n);
        if (n) continue;
        CHECK(!bitsnap_apply(&b, out, 0, BITSNAP_BF16, frame, c.size) && !bitsnap_apply(&b, NULL, 0, BITSNAP_BF16, frame, c.size), "%s", bitsnap_message(&b));
        CHECK(!bitsnap_invert(&b, second, sizeof second, &more, frame, c.size) && !bitsnap_merge(&b, second, sizeof second, &more, frame, c.size, frame, c.size),
              "%s", bitsnap_message(&b));
    }
}

/* ---- arguments ---- */

/* Every function that takes a bitsnap, with each argument that can be wrong. error.argument is the name of the parameter or
 * member. Nothing is done, and sizes are 0. Then each function with an unknown option, and with a struct of another version. */
#define CALLS(W)                                                                                              \
    W("size", bitsnap_encode(b, to, 4096, NULL, e, 300, BITSNAP_F32))                                         \
    W("destination", bitsnap_encode(b, NULL, 4096, &n, e, 300, BITSNAP_F32))                                  \
    W("elements", bitsnap_encode(b, to, 4096, &n, NULL, 300, BITSNAP_F32))                                    \
    W("dtype", bitsnap_encode(b, to, 4096, &n, e, 300, (bitsnap_dtype)12))                                    \
    W("count", bitsnap_encode(b, to, 4096, &n, e, (UINT64_C(1) << 48) + 1, BITSNAP_F32))                      \
    W("encoder", bitsnap_encoder_begin(b, NULL, to, 4096, &n, 300, BITSNAP_F32))                              \
    W("size", bitsnap_encoder_begin(b, &s, to, 4096, NULL, 300, BITSNAP_F32))                                 \
    W("destination", bitsnap_encoder_begin(b, &s, NULL, 4096, &n, 300, BITSNAP_F32))                          \
    W("dtype", bitsnap_encoder_begin(b, &s, to, 4096, &n, 300, (bitsnap_dtype)0))                             \
    W("encoder", bitsnap_encoder_push(b, NULL, to, 4096, &n, e, 300))                                         \
    W("encoder", bitsnap_encoder_push(b, &never, to, 4096, &n, e, 300))                                       \
    W("size", bitsnap_encoder_push(b, &begun, to, 4096, NULL, e, 300))                                        \
    W("n", bitsnap_encoder_push(b, &begun, to, 4096, &n, e, 301))                                             \
    W("n", bitsnap_encoder_push(b, &begun, to, 4096, &n, e, 65))                                              \
    W("elements", bitsnap_encoder_push(b, &begun, to, 4096, &n, NULL, 300))                                   \
    W("destination", bitsnap_encoder_push(b, &begun, NULL, 4096, &n, e, 300))                                 \
    W("index", bitsnap_encoder_push(b, &bare, to, 4096, &n, e, 300))                                          \
    W("encoder", bitsnap_encoder_push_block(b, NULL, block, size))                                            \
    W("encoder", bitsnap_encoder_push_block(b, &never, block, size))                                          \
    W("encoder", bitsnap_encoder_push_block(b, &full, block, size))                                           \
    W("block", bitsnap_encoder_push_block(b, &begun, NULL, size))                                             \
    W("index", bitsnap_encoder_push_block(b, &bare, block, size))                                             \
    W("encoder", bitsnap_encoder_end(b, NULL, to, 4096, &n))                                                  \
    W("encoder", bitsnap_encoder_end(b, &begun, to, 4096, &n))                                                \
    W("size", bitsnap_encoder_end(b, &full, to, 4096, NULL))                                                  \
    W("destination", bitsnap_encoder_end(b, &full, NULL, 4096, &n))                                           \
    W("decoder", bitsnap_decoder_begin(b, NULL, f, size, &n))                                                 \
    W("source", bitsnap_decoder_begin(b, &s, NULL, size, &n))                                                 \
    W("used", bitsnap_decoder_begin(b, &s, f, size, NULL))                                                    \
    W("decoder", bitsnap_decoder_pull(b, NULL, to, 300, &n, f, size, &m))                                     \
    W("decoder", bitsnap_decoder_pull(b, &never, to, 300, &n, f, size, &m))                                   \
    W("n", bitsnap_decoder_pull(b, &begun, to, 300, NULL, f, size, &m))                                       \
    W("source", bitsnap_decoder_pull(b, &begun, to, 300, &n, NULL, size, &m))                                 \
    W("used", bitsnap_decoder_pull(b, &begun, to, 300, &n, f, size, NULL))                                    \
    W("decoder", bitsnap_decoder_end(b, NULL, f, size, &n))                                                   \
    W("decoder", bitsnap_decoder_end(b, &begun, f, size, &n))                                                 \
    W("source", bitsnap_decoder_end(b, &full, NULL, size, &n))                                                \
    W("used", bitsnap_decoder_end(b, &full, f, size, NULL))                                                   \
    W("elements", bitsnap_decode(b, NULL, 300, BITSNAP_F32, f, size))                                         \
    W("source", bitsnap_decode(b, to, 300, BITSNAP_F32, NULL, size))                                          \
    W("source", bitsnap_test(b, NULL, size))                                                                  \
    W("elements", bitsnap_verify(b, NULL, 300, BITSNAP_F32, f, size))                                         \
    W("source", bitsnap_verify(b, to, 300, BITSNAP_F32, NULL, size))                                          \
    W("elements", bitsnap_decode_range(b, NULL, 0, 1, BITSNAP_F32, f, size))                                  \
    W("source", bitsnap_decode_range(b, to, 0, 1, BITSNAP_F32, NULL, size))                                   \
    W("first", bitsnap_decode_range(b, to, 301, 0, BITSNAP_F32, f, size))                                     \
    W("count", bitsnap_decode_range(b, to, 299, 2, BITSNAP_F32, f, size))                                     \
    W("index", bitsnap_index_open(b, NULL, NULL, &source))                                                    \
    W("source", bitsnap_index_open(b, &other, NULL, NULL))                                                   \
    W("index", bitsnap_index_find(b, NULL, 0, &x))                                                            \
    W("element", bitsnap_index_find(b, &index_, 300, &x))                                                     \
    W("extent", bitsnap_index_find(b, &index_, 0, NULL))                                                      \
    W("index", bitsnap_index_decode(b, NULL, to, 0, 1))                                                       \
    W("elements", bitsnap_index_decode(b, &index_, NULL, 0, 1))                                               \
    W("first", bitsnap_index_decode(b, &index_, to, 301, 0))                                                  \
    W("count", bitsnap_index_decode(b, &index_, to, 0, 301))                                                  \
    W("elements", bitsnap_block_decode(b, NULL, 0, 1, &info, &x, block))                                      \
    W("first", bitsnap_block_decode(b, to, 65, 1, &info, &x, block))                                          \
    W("count", bitsnap_block_decode(b, to, 0, 65, &info, &x, block))                                          \
    W("info", bitsnap_block_decode(b, to, 0, 1, NULL, &x, block))                                             \
    W("extent", bitsnap_block_decode(b, to, 0, 1, &info, NULL, block))                                        \
    W("block", bitsnap_block_decode(b, to, 0, 1, &info, &x, NULL))                                            \
    W("block", bitsnap_block_encode(b, NULL, 4096, &n, &info, e, 0, 64))                                      \
    W("size", bitsnap_block_encode(b, to, 4096, NULL, &info, e, 0, 64))                                       \
    W("info", bitsnap_block_encode(b, to, 4096, &n, NULL, e, 0, 64))                                          \
    W("elements", bitsnap_block_encode(b, to, 4096, &n, &info, NULL, 0, 64))                                  \
    W("first", bitsnap_block_encode(b, to, 4096, &n, &info, e, 1, 64))                                        \
    W("count", bitsnap_block_encode(b, to, 4096, &n, &info, e, 0, 63))                                        \
    W("dtype", bitsnap_apply(b, to, 300, (bitsnap_dtype)0, f, size))                                          \
    W("elements", bitsnap_apply(b, NULL, 300, BITSNAP_F32, f, size))                                          \
    W("source", bitsnap_apply(b, to, 300, BITSNAP_F32, f, size)) /* no delta */                               \
    W("destination", bitsnap_merge(b, NULL, 4096, &n, f, size, f, size))                                      \
    W("size", bitsnap_merge(b, to, 4096, NULL, f, size, f, size))                                             \
    W("first", bitsnap_merge(b, to, 4096, &n, NULL, size, f, size))                                           \
    W("second", bitsnap_merge(b, to, 4096, &n, f, size, NULL, size))                                          \
    W("first", bitsnap_merge(b, to, 4096, &n, f, size, f, size)) /* no delta */                               \
    W("destination", bitsnap_invert(b, NULL, 4096, &n, f, size))                                              \
    W("size", bitsnap_invert(b, to, 4096, NULL, f, size))                                                     \
    W("source", bitsnap_invert(b, to, 4096, &n, NULL, size))                                                  \
    W("block", bitsnap_read_block(b, NULL, &info, 0, block, size))                                            \
    W("info", bitsnap_read_block(b, &look, NULL, 0, block, size))                                             \
    W("first", bitsnap_read_block(b, &look, &info, 300, block, size))                                         \
    W("source", bitsnap_read_block(b, &look, &info, 0, NULL, size))                                           \
    W("destination", bitsnap_list_encode(b, NULL, 400, &n, e, 300))                                           \
    W("size", bitsnap_list_encode(b, to, 400, NULL, e, 300))                                                  \
    W("symbols", bitsnap_list_encode(b, to, 400, &n, NULL, 300))                                              \
    W("n", bitsnap_list_encode(b, to, 400, &n, e, (1 << 20) + 1))                                             \
    W("symbols", bitsnap_list_decode(b, NULL, 300, e, 300, &n))                                               \
    W("source", bitsnap_list_decode(b, to, 300, NULL, 300, &n))                                               \
    W("n", bitsnap_list_decode(b, to, (1 << 20) + 1, e, 300, &n))                                             \
    W("offload", bitsnap_offload_decode(b, NULL, &request, 1))                                                \
    W("requests", bitsnap_offload_decode(b, &device_, NULL, 1))                                               \
    W("offload", bitsnap_offload_apply(b, NULL, &request, 1))                                                 \
    W("requests", bitsnap_offload_apply(b, &device_, NULL, 1))                                                \
    W("offload", bitsnap_offload_encode(b, NULL, &request, 1))                                                \
    W("requests", bitsnap_offload_encode(b, &device_, NULL, 1))

static void arguments(void)
{
    static uint8_t e[4 * 300], f[4096], to[4096], heads[64];
    static bitsnap_index other;
    bitsnap fresh_, *b = &fresh_;
    bitsnap_encoder s, begun, bare, full, never;
    bitsnap_source source;
    bitsnap_info info;
    bitsnap_extent x;
    bitsnap_block look;
    bitsnap_request request;
    bitsnap_offload device_;
    frame_case c;
    const uint8_t *block;
    size_t size, n, m, at;
    unsigned i, k;
    memset(&c, 0, sizeof c);
    memset(&never, 0, sizeof never);
    memset(&source, 0, sizeof source);
    memset(&request, 0, sizeof request);
    memset(&device_, 0, sizeof device_);
    device_.upload = up, device_.download = down, device_.decode = device_.encode = works, device_.wait = wait_for;
    device_.device = ADDRESS, device_.size = STAGING, device_.host = device;
    fresh_ = fresh(&c);
    fresh_.block_log2 = 6;
    for (i = 0; i < 300; i++) data_store(e + 4 * i, 0x3F000000 + i * 12345, 4);
    CHECK(!bitsnap_encode(b, f, sizeof f, &size, e, 300, BITSNAP_F32));
    source.data = f, source.size = size;
    CHECK(!bitsnap_index_open(b, &index_, &info, &source) && !bitsnap_index_find(b, &index_, 0, &x));
    block = f + x.offset;
    CHECK(!bitsnap_encoder_begin(b, &bare, to, sizeof to, &at, 300, BITSNAP_F32));
    begun = bare;
    begun.index = heads, begun.index_capacity = sizeof heads;
    full = begun;
    CHECK(!bitsnap_encoder_push(b, &full, to, sizeof to, &n, e, 300));
#define ONE(name, call)                                                                                       \
    n = m = 77;                                                                                               \
    CHECK(call == BITSNAP_E_ARGUMENT && b->error.status == BITSNAP_E_ARGUMENT && b->error.argument &&         \
          !strcmp(b->error.argument, name), #call ": %s", b->error.argument ? b->error.argument : "(none)");  \
    CHECK(n == 77 || n == 0);
    CALLS(ONE)
#undef ONE
    for (i = 0; i < 3; i++) { /* with other errors, too */
        static const char *const odd[] = { "level", "level", "flags" };
        k = 0;
        fresh_.level = i ? i == 1 ? 4 : 0 : -1;
        fresh_.flags = i == 2 ? 64 : 0;
#define ONE(name, call) k += call == BITSNAP_E_ARGUMENT && b->error.argument && (!strcmp(b->error.argument, name) || !strcmp(b->error.argument, odd[i])) ? 0 : 1;
        CALLS(ONE)
#undef ONE
        CHECK(!k, "%u calls with an odd option %s", k, odd[i]);
        CHECK(bitsnap_decoder_begin(b, &s, f, size, &n) == BITSNAP_E_ARGUMENT && !strcmp(b->error.argument, odd[i]), "also where it is not looked at");
        CHECK(!bitsnap_workspace_size(b, 300, BITSNAP_F32) && !bitsnap_bound(b, 300, BITSNAP_F32), "%s", odd[i]);
    }
    fresh_.level = 0, fresh_.flags = 0;
    fresh_.struct_size = sizeof fresh_ - 8;
    memset(&fresh_.error, 0x77, sizeof fresh_.error);
#define ONE(name, call) CHECK(call == BITSNAP_E_ARGUMENT && b->error.rule == 0x77777777, "%s: a struct of another version is not written to", name);
    CALLS(ONE)
#undef ONE
    CHECK(strstr(bitsnap_message(b), "struct_size"), "%s", bitsnap_message(b));
    CHECK(!strcmp(bitsnap_message(NULL), bitsnap_status_message(BITSNAP_E_ARGUMENT)));
}

/* Blocks are encoded with the options in the header of their frame, or refused. */
static void options_of_blocks(void)
{
    static uint8_t e[4 * 300], head[64], to[4096];
    frame_case c;
    bitsnap b, of_head;
    bitsnap_encoder s;
    bitsnap_info info;
    size_t n, at;
    unsigned i, k;
    memset(&c, 0, sizeof c);
    for (i = 0; i < 300; i++) data_store(e + 4 * i, 0x3F000000 + i * 12345, 4);
    for (k = 0; k < 3; k++) { /* lossless; by cells, with columns; with an id */
        static const char *const wrong[] = { "flags", "flags", "block_log2", "quantizer", "quantizer", "columns", "base", "columns" };
        of_head = fresh(&c);
        of_head.block_log2 = 9;
        if (k == 1) of_head.quantizer.bins = 16, of_head.columns = 16;
        if (k == 2) of_head.flags = BITSNAP_CONTENT_ID;
        CHECK(!bitsnap_encoder_begin(&of_head, &s, head, sizeof head, &at, 300, BITSNAP_F32) && !bitsnap_read_info(&info, head, at));
        CHECK(!bitsnap_block_encode(&of_head, to, sizeof to, &n, &info, e, 0, 300), "%s", bitsnap_message(&of_head));
        for (i = 0; i < 8; i++) {
            b = of_head;
            if (k == 1 && (i == 1 || i == 6)) continue; /* quantizers do not allow these */
            if (i == 0) b.flags ^= BITSNAP_NO_CHECKS;
            if (i == 1) b.flags ^= BITSNAP_CONTENT_ID;
            if (i == 2) b.block_log2 = 8;
            if (i == 3) b.quantizer.bins = 17, b.flags &= ~(unsigned)BITSNAP_CONTENT_ID;
            if (i == 4) b.quantizer.clusters = 16, b.quantizer.bins = 0, b.flags &= ~(unsigned)BITSNAP_CONTENT_ID;
            if (i == 5) b.columns = 32, b.level = BITSNAP_BEST;
            if (i == 6) b.base.data = e, b.base.dtype = BITSNAP_F32, b.base.count = 300, b.block_log2 = 0;
            if (i == 7) b.columns = 0;
            if (i == 7 && k != 1) continue;
            CHECK(bitsnap_block_encode(&b, to, sizeof to, &n, &info, e, 0, 300) == BITSNAP_E_ARGUMENT && !n &&
                  !strcmp(b.error.argument, wrong[i]), "header %u, option %u: %s", k, i, b.error.argument);
        }
    }
    of_head = fresh(&c); /* columns need level best */
    of_head.columns = 16, of_head.level = BITSNAP_BEST;
    CHECK(!bitsnap_encoder_begin(&of_head, &s, head, sizeof head, &at, 300, BITSNAP_F32) && !bitsnap_read_info(&info, head, at));
    of_head.level = BITSNAP_FAST;
    CHECK(bitsnap_block_encode(&of_head, to, sizeof to, &n, &info, e, 0, 300) == BITSNAP_E_ARGUMENT && !strcmp(of_head.error.argument, "level"));
}

int main(void)
{
    test_program = "ways";
    if (test_big_endian()) {
        SKIP("ways", "the elements of bases are little-endian");
        return 0;
    }
    expected = (uint8_t *)malloc(MOST), out = (uint8_t *)malloc(MOST), workspace = (uint8_t *)malloc(ROOM);
    device = (uint8_t *)malloc(AT_ELEMENTS + MOST);
    RUN(corpus);
    RUN(zigzags_of_floats);
    RUN(blocks_of_nothing);
    RUN(deltas_of_nothing);
    RUN(arguments);
    RUN(options_of_blocks);
    return test_failures != 0;
}
