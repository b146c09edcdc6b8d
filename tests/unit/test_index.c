/* The index of frames with many blocks: two and three levels, read and checked piece by piece; frames inside longer memory. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static uint8_t workspace[BITSNAP_WORKSPACE];
static uint8_t *elements, *frame, *out;
static size_t count, size;
static bitsnap_info info;

static bitsnap fresh(unsigned flags)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.block_log2 = 6;
    b.flags = flags;
    return b;
}

/* Makes a frame of `blocks` blocks of 64 bytes, some of them CONST. The frame is encoded at once and pushed in pieces. */
static void make(size_t blocks)
{
    bitsnap b = fresh(BITSNAP_CONTENT_ID);
    bitsnap_encoder s;
    size_t room, i, at, part;
    uint8_t *other, *index;
    count = 64 * blocks - 7;
    room = count + 32 * blocks + 1000;
    elements = (uint8_t *)malloc(count);
    out = (uint8_t *)malloc(count);
    frame = (uint8_t *)malloc(2 * room);
    other = frame + room;
    index = (uint8_t *)malloc(8 * blocks);
    for (i = 0; i < count; i++) elements[i] = (uint8_t)(i / 64 % 3 ? i / 64 % 251 : test_random());
    CHECK(!bitsnap_encode(&b, frame, room, &size, elements, count, BITSNAP_I8), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_encoder_begin(&b, &s, other, 64, &at, count, BITSNAP_I8));
    s.index = index;
    s.index_capacity = 8 * blocks;
    for (i = 0; i < count; i += part, at += b.error.status ? 0 : info.header_size) {
        part = 64 * (1 + test_below(blocks));
        if (part > count - i) part = count - i;
        CHECK(!bitsnap_encoder_push(&b, &s, other + at, room - at, &info.header_size, elements + i, part), "%s", bitsnap_message(&b));
    }
    CHECK(!bitsnap_encoder_end(&b, &s, other + at, 112 + s.index_size + s.index_size / 32, &part), "%s", bitsnap_message(&b));
    CHECK(at + part == size && !memcmp(frame, other, size), "pushed, it is another frame");
    CHECK(!bitsnap_read_info(&info, frame, size) && info.frame_size == size && info.blocks == blocks);
    CHECK(!bitsnap_decode(&b, out, count, BITSNAP_I8, frame, size) && !memcmp(out, elements, count), "%s", bitsnap_message(&b));
    free(index);
}

static void forget(void)
{
    free(elements);
    free(out);
    free(frame);
}

/* Decodes a range. Returns the rule of the error, or 0. */
static unsigned range(bitsnap *b, uint64_t first, size_t n)
{
    const bitsnap_status status = bitsnap_decode_range(b, out, first, n, BITSNAP_I8, frame, size);
    CHECK(status || !memcmp(out, elements + first, n) || b->flags, "wrong elements at %llu", (unsigned long long)first);
    return status ? b->error.rule : 0;
}

/* Damages each byte of the footer in turn; of the pages of the index only every `step`th byte, of its nodes every `above`th.
 * Reads that need the byte fail. Other reads need not. */
static void damage(size_t step, size_t above)
{
    bitsnap b = fresh(0), heedless = fresh(BITSNAP_IGNORE_CHECKS);
    bsn_index t;
    bitsnap_encoder s;
    size_t fixed = bsn_fixed_size(BSN_FLAG_CHECKS | BSN_FLAG_CONTENT), start, i, used, n, at;
    bsn_index_shape(&t, info.blocks, BSN_FLAG_CHECKS);
    start = size - fixed - (size_t)t.size;
    CHECK(!bitsnap_decoder_begin(&b, &s, frame, size, &at));
    CHECK(!bitsnap_decoder_pull(&b, &s, out, count, &n, frame + at, size - at, &used) && at + used == start, "%s", bitsnap_message(&b));
    for (i = start; i < size; i += i - start < t.place[1] ? step : i - start < t.size ? above : 1) {
        const uint64_t in = i - start;
        const uint8_t flip = (uint8_t)(1u << test_below(8));
        unsigned level = 0, rule;
        bitsnap_encoder end = s;
        uint64_t first = 0; /* of the elements that need this byte */
        while (level < t.top && in >= t.place[level + 1]) level++;
        if (in < t.size) {
            first = (in - t.place[level]) / bsn_entry_size(&t, level);
            for (n = level; n; n--) first *= BSN_FAN;
            first *= 64;
        }
        frame[i] ^= flip;
        CHECK(bitsnap_decoder_end(&b, &end, frame + start, size - start, &used) != BITSNAP_OK, "byte %lu of the footer", (unsigned long)in);
        rule = range(&b, first, count - first < 70 ? 1 : 70);
        CHECK(rule, "byte %lu of the footer: not noticed", (unsigned long)in);
        if (in < t.size) CHECK(rule == BITSNAP_R_FOOTER_CHECK, "byte %lu of the footer: R%u", (unsigned long)in, rule);
        if (level < t.top && in < t.size) { /* reads elsewhere succeed */
            const uint64_t far = (first + count / 2) % count / 64 * 64;
            rule = range(&b, far, 1);
            CHECK(!rule || (level && far / 64 / 65536 == first / 64 / 65536), "byte %lu of the footer, R%u elsewhere", (unsigned long)in, rule);
        }
        (void)range(&heedless, first, count - first < 300 ? 1 : 300);
        (void)range(&heedless, count - 1, 1);
        end = s;
        (void)bitsnap_decoder_end(&heedless, &end, frame + start, size - start, &used);
        frame[i] ^= flip;
    }
    CHECK(!range(&b, 0, count), "%s", bitsnap_message(&b));
    for (i = 0; i < 3000; i++) {
        const uint64_t first = test_below(count);
        CHECK(!range(&b, first, 1 + test_below(count - first < 40000 ? count - first : 40000)), "%s", bitsnap_message(&b));
    }
}

static void two_levels(void)
{
    make(700);
    damage(1, 1);
    forget();
}

static void three_levels(void)
{
    make(66000);
    damage(test_long() ? 97 : 397, test_long() ? 1 : 7);
    forget();
}

/* A header and an end with too few bytes between them for the index. */
static void without_room(void)
{
    size_t n;
    make(300);
    for (n = 64; n < 300 * 8; n += 5) {
        const guarded g = guarded_alloc(info.header_size + n, (int)(n & 1));
        bitsnap b = fresh(0);
        bitsnap_index index;
        bitsnap_source source;
        memset(&source, 0, sizeof source);
        memcpy(g.p, frame, info.header_size);
        memcpy(g.p + info.header_size, frame + size - n, n);
        source.data = g.p;
        source.size = info.header_size + n;
        CHECK(bitsnap_index_open(&b, &index, NULL, &source) && b.error.rule == BITSNAP_R_INDEX_SIZE, "%lu bytes: R%u", (unsigned long)n, b.error.rule);
        guarded_free(g);
    }
    forget();
}

static void borders(void)
{
    static const size_t blocks[] = { 1, 2, 255, 256, 257, 511, 512, 513, 65535, 65536, 65537 };
    unsigned i;
    size_t k;
    bitsnap b = fresh(0);
    for (i = 0; i < sizeof blocks / sizeof *blocks; i++) {
        make(blocks[i]);
        for (k = 0; k < blocks[i]; k += 1 + blocks[i] / 300) CHECK(!range(&b, 64 * k, 1), "%s", bitsnap_message(&b));
        CHECK(!range(&b, count - 1, 1));
        forget();
    }
}

/* Frames followed by other bytes, by zeros or by a frame. The blocks tell where a frame ends. */
static void longer_memory(void)
{
    static const size_t blocks[] = { 1, 2, 300, 66000 };
    unsigned i;
    size_t cut;
    for (i = 0; i < 4; i++) {
        bitsnap_info other;
        make(blocks[i]);
        memset(frame + size, 0xa5, 1000);
        CHECK(!bitsnap_read_info(&other, frame, size + 1000) && other.frame_size == size && other.content_id == info.content_id);
        frame = (uint8_t *)realloc(frame, 2 * size + 1000);
        memset(frame + size, 0, 1000);
        CHECK(!bitsnap_read_info(&other, frame, size + 1000) && !memcmp(&other, &info, sizeof info));
        memcpy(frame + size, frame, size);
        CHECK(!bitsnap_read_info(&other, frame, 2 * size) && !memcmp(&other, &info, sizeof info));
        for (cut = info.header_size; cut < size; cut += 1 + size / 500) {
            CHECK(!bitsnap_read_info(&other, frame, cut) && other.frame_size == 0, "cut at %lu", (unsigned long)cut);
        }
        forget();
    }
}

/* All blocks except the first are small. After one parallel loop the test changes the index: the root says that the second page
 * begins a cell later, and the first entry of that page gets the head of the large block. That block reaches past the frame. */
static struct {
    guarded g;
    size_t root, second; /* their offsets */
    int changes;
} shifting;

static void shift(void *context, bitsnap_task task, void *argument, uint64_t n)
{
    uint64_t i;
    (void)context;
    for (i = 0; i < n; i++) task(argument, i, (unsigned)(i & 1));
    if (!shifting.changes) return;
    shifting.g.p[shifting.root + 24]++;
    memcpy(shifting.g.p + shifting.second, shifting.g.p + info.header_size, 4);
    shifting.changes = 0;
}

static void shifting_index(void)
{
    enum { BLOCK = 1024, N = 258 * BLOCK };
    const size_t room = N * 8 + 4096, more = (size_t)1 << 20;
    unsigned flags;
    size_t i, place;
    frame = (uint8_t *)malloc(room);
    out = (uint8_t *)malloc(N * 8);
    elements = (uint8_t *)malloc(N * 8);
    for (i = 0; i < N * 8; i++) elements[i] = (uint8_t)(i < BLOCK * 8 ? test_random() : i / 8 / BLOCK);
    for (flags = 0; flags <= BITSNAP_IGNORE_CHECKS; flags += BITSNAP_IGNORE_CHECKS) {
        bitsnap b = fresh(0);
        b.block_log2 = 10;
        CHECK(!bitsnap_encode(&b, frame, room, &size, elements, N, BITSNAP_I64), "%s", bitsnap_message(&b));
        CHECK(!bitsnap_read_info(&info, frame, size) && info.blocks == 258 && size < 8 * BLOCK * 3, "%lu bytes", (unsigned long)size);
        shifting.g = guarded_alloc(size, 0);
        memcpy(shifting.g.p, frame, size);
        place = size - 28 - 2 * 24; /* the offset of the root, which has two entries; two pages are before it */
        shifting.root = place;
        shifting.second = place - 8 * 258 - 2 * 20;
        CHECK(bsn_load64(frame + place + 24) == 256 && bsn_load64(frame + place + 32) == shifting.second, "another index");
        shifting.changes = 1;
        b.workspace = malloc(more);
        b.workspace_size = more;
        b.flags = flags;
        b.run = shift;
        b.workers = 2;
        CHECK(bitsnap_decode_range(&b, out, 0, N, BITSNAP_I64, shifting.g.p, size) == BITSNAP_E_CORRUPT &&
              b.error.rule == BITSNAP_R_INDEX_END && !shifting.changes, "%s", bitsnap_message(&b));
        free(b.workspace);
        guarded_free(shifting.g);
    }
    forget();
}

int main(void)
{
    test_program = "index";
    RUN(shifting_index);
    RUN(without_room);
    RUN(borders);
    RUN(longer_memory);
    RUN(two_levels);
    RUN(three_levels);
    return test_failures != 0;
}
