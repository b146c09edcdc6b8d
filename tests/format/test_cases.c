/* Reads the valid and invalid frames of the corpus in every way that the API has, from memory that ends where they end. Valid
 * frames give their elements. Invalid frames are rejected by the condition in the corpus. Of damaged frames those are accepted
 * that another decoder accepts. */
#include "tests/unit/test.h"
#define BITSNAP_IMPLEMENTATION
#include "tests/unit/inside.h"
#include "corpus.h"

#define MOST (3u << 20)
enum { DAMAGES = 32 };

static uint8_t *frames, *bases, *results, *others, *workspaces; /* memory ends here */

static uint8_t *put(uint8_t *end, const void *p, size_t size)
{
    if (size) memcpy(end - size, p, size);
    return end - size;
}

typedef struct frame_case {
    const char *name;
    unsigned rule;           /* 0: valid */
    const uint8_t *frame;
    size_t size;
    uint64_t elements;       /* of a valid frame: XXH3-64 of its elements */
    bitsnap_base base;
    int damaged;             /* 1 if the next two fields are known */
    uint32_t accepted;       /* bit i: damaged frame i is accepted */
    uint64_t combined;       /* XOR of the hashes of accepted ones */
    bitsnap_info info;
    const bitsnap_kernels *kernels;
} frame_case;

static size_t bytes_of(const frame_case *c) { return (size_t)c->info.elements_size; }
/* Returns the bytes of a block before its body. */
static size_t prefix_of(const frame_case *c) { return BSN_HEAD_SIZE + (c->info.checks ? 8u : 0u) + (c->info.has_base ? 16u : 0u); }

static bitsnap fresh(const frame_case *c, unsigned flags)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace_size = c->info.workspace_size ? c->info.workspace_size : BITSNAP_WORKSPACE;
    b.workspace = workspaces - b.workspace_size;
    b.kernels = c->kernels;
    b.base = c->base;
    b.flags = flags;
    return b;
}

/* FORMAT.md, section 9 */
static bitsnap_status status_of(unsigned rule)
{
    return rule == 1 ? BITSNAP_E_MAGIC : rule <= 4 || rule == 13 || rule == 14 || rule == 23 || rule == 35 || rule == 54 ? BITSNAP_E_UNSUPPORTED : rule == 6 ? BITSNAP_E_TRUNCATED : rule == 7 ? BITSNAP_E_TRAILING :
           rule <= 12 || rule == 45 || rule == 53 ? BITSNAP_E_CHECK : rule == 43 || rule == 44 ? BITSNAP_E_BASE : BITSNAP_E_CORRUPT;
}

static int is_check(unsigned rule) { return (rule >= 8 && rule <= 12) || rule == 44 || rule == 45 || rule == 53; }

/* The rule of the case, or a rule that applies as well: the index may be read from either side. */
static int rejected(const frame_case *c, bitsnap_status status, const bitsnap *b)
{
    const unsigned rule = b->error.rule;
    return status == b->error.status && status == status_of(rule) && b->error.offset <= c->size &&
           (rule == c->rule || (c->rule == 39 && (rule == 6 || rule == 37 || (rule == 10 && !b->flags))) || c->rule == 41 ||
            (rule == 6 && (c->rule == 37 || c->rule == 38)));
}

/* The header and one block, which end where memory ends. This is the source of a pull that has the whole block. */
static bitsnap_status pull_block(const frame_case *c, bitsnap *b, const uint8_t *block, size_t size)
{
    const size_t room = bsn_min((size_t)c->info.count, (size_t)1 << c->info.block_log2);
    bitsnap_encoder s;
    bitsnap_block read;
    bitsnap_status status;
    size_t used, n;
    *b = fresh(c, BITSNAP_IGNORE_CHECKS);
    status = bitsnap_decoder_begin(b, &s, frames - c->size, c->size, &used);
    CHECK(!status, "%s", c->name);
    (void)bitsnap_read_block(b, &read, &c->info, 0, put(others, block, size), size); /* must read nothing else */
    return status ? status : bitsnap_decoder_pull(b, &s, results - room * c->info.width, room, &n, others - size, size, &used);
}

/* The first block of a valid frame, one byte shorter and longer. Neither is a block. */
static void other_sizes(const frame_case *c)
{
    static uint8_t block[1 << 14];
    const uint8_t *at = c->frame + c->info.header_size;
    const uint32_t head = bsn_load32(at);
    const unsigned form = head & 255;
    const size_t prefix = prefix_of(c), size = head >> 8;
    bitsnap b;
    size_t cut;
    if (prefix + size >= sizeof block || form == BSN_FORM_CONST) return; /* the head gives the run */
    memcpy(block, at, prefix + size);
    block[prefix + size] = 0;
    CHECK(!pull_block(c, &b, block, prefix + size), "%s: %s", c->name, bitsnap_message(&b));
    for (cut = 0; cut <= size + 1; cut += cut < 100 || size - cut < 30 ? 1 : 7) {
        if (cut == size) continue;
        bsn_store32(block, form | (uint32_t)cut << 8);
        CHECK(pull_block(c, &b, block, prefix + cut) == BITSNAP_E_CORRUPT, "%s: %lu bytes for %lu: %s", c->name, (unsigned long)cut,
              (unsigned long)size, bitsnap_message(&b));
    }
}

/* Pulls in pieces. No byte and no capacity exceeds the request. */
static void pull(const frame_case *c, const uint8_t *elements, size_t room)
{
    const unsigned width = c->info.width;
    bitsnap b = fresh(c, 0);
    bitsnap_encoder s;
    size_t at = 0, used = 0, n = 0, give = 24;
    bitsnap_status status;
    CHECK(bitsnap_decoder_begin(&b, &s, put(others, c->frame, 23), 23, &used) == BITSNAP_E_TRUNCATED && used == 0 && b.error.needed == 24, "%s", c->name);
    while ((status = bitsnap_decoder_begin(&b, &s, put(others, c->frame, give), give, &used)) == BITSNAP_E_TRUNCATED && b.error.needed > give) give = b.error.needed;
    CHECK(!status && used == c->info.header_size && give == used, "%s: %s", c->name, bitsnap_message(&b));
    at = used;
    give = 0;
    while (!status && s.position < s.count) {
        const size_t left = (size_t)(s.count - s.position), capacity = room < left ? room : left;
        const uint64_t before = s.position;
        uint8_t *to = results - capacity * width;
        status = bitsnap_decoder_pull(&b, &s, to, capacity, &n, put(others, c->frame + at, give), give, &used);
        CHECK(s.position == before + n && n <= capacity && (!status || (!n && !used)), "%s", c->name);
        if (status == BITSNAP_E_TRUNCATED && b.error.needed > give && at + b.error.needed <= c->size) give = b.error.needed, status = BITSNAP_OK;
        else give = 0, at += used;
        CHECK(!n || !memcmp(to, elements + before * width, n * width), "%s at %llu", c->name, (unsigned long long)before);
    }
    give = 0;
    while (!status && (status = bitsnap_decoder_end(&b, &s, put(others, c->frame + at, give), give, &used)) == BITSNAP_E_TRUNCATED &&
           b.error.needed > give && at + b.error.needed <= c->size)
        give = b.error.needed, status = BITSNAP_OK;
    CHECK(!status && at + used == c->size && s.stored == c->size, "%s: %s", c->name, bitsnap_message(&b));
}

static void ranges(const frame_case *c, const uint8_t *elements)
{
    const size_t count = (size_t)c->info.count, width = c->info.width, cell = (size_t)1 << c->info.block_log2;
    const size_t from[8] = { 0, 0, count - 1, count / 2, count, bsn_min(cell, count - 1), bsn_min(cell - 1, count - 1), count > 3 * cell ? 2 * cell : 0 };
    const size_t n[8] = { count, 1, 1, count - count / 2, 0, 1, bsn_min(2, count - bsn_min(cell - 1, count - 1)), bsn_min(count, cell) };
    unsigned k, heed;
    for (heed = 0; heed < 2; heed++)
        for (k = 0; k < 8; k++) {
            bitsnap b = fresh(c, heed ? 0 : BITSNAP_IGNORE_CHECKS);
            uint8_t *to = results - n[k] * width;
            if (c->rule == 41 && k == 0) continue;
            memset(to, 0xA5, n[k] * width);
            CHECK(bitsnap_decode_range(&b, to, from[k], n[k], c->info.dtype, frames - c->size, c->size) == BITSNAP_OK &&
                  !memcmp(to, elements + from[k] * width, n[k] * width), "%s: %lu, %lu: %s", c->name, (unsigned long)from[k],
                  (unsigned long)n[k], bitsnap_message(&b));
            CHECK(bitsnap_decode_range(&b, to, from[k], count - from[k] + 1, c->info.dtype, frames - c->size, c->size) == BITSNAP_E_ARGUMENT);
        }
}

/* A prefix of a frame gives the whole header, and the size of the frame if it can be known. */
static void infos(const frame_case *c, const uint8_t *elements)
{
    size_t i;
    for (i = 0; i < c->size && i < 300; i++) {
        bitsnap_info info;
        const bitsnap_status status = bitsnap_read_info(&info, put(others, c->frame, i), i);
        CHECK(status == (i < c->info.header_size ? BITSNAP_E_TRUNCATED : BITSNAP_OK) && info.width == (status ? 0 : c->info.width) &&
              info.frame_size == 0, "%s cut at %lu", c->name, (unsigned long)i);
    }
    CHECK(!c->info.has_content_id || c->info.content_id == bitsnap_content_id(elements, c->info.count, c->info.dtype), "%s", c->name);
}

#define WRONG(call, what) CHECK((call) == (what) && b.error.status == (what) && b.error.rule == ((what) == BITSNAP_E_BASE ? 43 : 0), "%s: %s", c->name, bitsnap_message(&b)); b = fresh(c, 0)

/* Errors of the caller. */
static void callers_mistakes(const frame_case *c)
{
    const bitsnap_dtype dtype = c->info.dtype;
    const uint64_t count = c->info.count;
    const uint8_t *frame = frames - c->size;
    uint8_t *to = results - bytes_of(c);
    size_t used, n;
    bitsnap_encoder s;
    bitsnap_block block;
    bitsnap_info info;
    bitsnap b = fresh(c, 0);
    b.workspace_size--;
    WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_WORKSPACE);
    b.workspace = NULL;
    WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_WORKSPACE);
    b.level = BITSNAP_BEST + 1;
    WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_ARGUMENT);
    b.level = -1;
    WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_ARGUMENT);
    b.level = BITSNAP_BEST;
    CHECK(bitsnap_test(&b, frame, c->size) == BITSNAP_OK, "%s", c->name);
    b.flags = BSN_FLAGS_KNOWN + 1;
    WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_ARGUMENT);
    if (c->info.has_base && count) {
        b.base.data = NULL;
        WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_BASE);
        b.base.count--;
        WRONG(bitsnap_decode_range(&b, to, 0, 1, dtype, frame, c->size), BITSNAP_E_BASE);
        b.base.dtype = BITSNAP_BOOL;
        if (c->info.base_dtype != BITSNAP_BOOL) WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_BASE);
        b = fresh(c, 0);
        b.base.id = c->info.base_id + 1;
        WRONG(bitsnap_test(&b, frame, c->size), BITSNAP_E_BASE);
        b.base.id = c->info.base_id;
        CHECK(bitsnap_test(&b, frame, c->size) == BITSNAP_OK, "%s", c->name);
        CHECK(bitsnap_invert(&b, NULL, 0, &used, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_invert(&b, others, 0, NULL, frame, c->size) == BITSNAP_E_ARGUMENT &&
              bitsnap_invert(&b, others, 0, &used, NULL, c->size) == BITSNAP_E_ARGUMENT && bitsnap_invert(NULL, others, 0, &used, frame, c->size) == BITSNAP_E_ARGUMENT);
        CHECK(bitsnap_merge(&b, NULL, 0, &used, frame, c->size, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_merge(&b, others, 0, NULL, frame, c->size, frame, c->size) == BITSNAP_E_ARGUMENT &&
              bitsnap_merge(&b, others, 0, &used, NULL, c->size, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_merge(&b, others, 0, &used, frame, c->size, NULL, c->size) == BITSNAP_E_ARGUMENT &&
              bitsnap_merge(NULL, others, 0, &used, frame, c->size, frame, c->size) == BITSNAP_E_ARGUMENT);
    }
    b = fresh(c, 0);
    CHECK(bitsnap_decode(NULL, to, count, dtype, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_test(NULL, frame, c->size) == BITSNAP_E_ARGUMENT &&
          bitsnap_decode_range(NULL, to, 0, 0, dtype, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_apply(NULL, to, count, dtype, frame, c->size) == BITSNAP_E_ARGUMENT);
    if (count) WRONG(bitsnap_decode(&b, NULL, count, dtype, frame, c->size), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decode(&b, to, count, dtype == BITSNAP_F32 ? BITSNAP_I32 : BITSNAP_F32, frame, c->size), BITSNAP_E_MISMATCH);
    WRONG(bitsnap_decode(&b, to, count, dtype, NULL, c->size), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decode_range(&b, to, 0, 0, dtype == BITSNAP_F32 ? BITSNAP_I32 : BITSNAP_F32, frame, c->size), BITSNAP_E_MISMATCH);
    WRONG(bitsnap_decode_range(&b, to, count + 1, 0, dtype, frame, c->size), BITSNAP_E_ARGUMENT);
    if (count) WRONG(bitsnap_decode_range(&b, NULL, 0, 1, dtype, frame, c->size), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_apply(&b, to, count, (bitsnap_dtype)0, frame, c->size), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_apply(&b, to, count, (bitsnap_dtype)12, frame, c->size), BITSNAP_E_ARGUMENT);
    if (!c->info.has_base) WRONG(bitsnap_apply(&b, to, count, dtype, frame, c->size), BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_read_info(NULL, frame, c->size) == BITSNAP_E_ARGUMENT && bitsnap_read_info(&info, NULL, 1) == BITSNAP_E_ARGUMENT && bitsnap_read_info(&info, NULL, 0) == BITSNAP_E_TRUNCATED);
    CHECK(bitsnap_decoder_begin(NULL, &s, frame, c->size, &used) == BITSNAP_E_ARGUMENT && bitsnap_decoder_pull(NULL, &s, to, 0, &n, frame, 0, &used) == BITSNAP_E_ARGUMENT &&
          bitsnap_decoder_end(NULL, &s, frame, 0, &used) == BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_begin(&b, NULL, frame, c->size, &used), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_begin(&b, &s, frame, c->size, NULL), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_begin(&b, &s, NULL, 1, &used), BITSNAP_E_ARGUMENT);
    CHECK(!bitsnap_decoder_begin(&b, &s, frame, c->size, &used), "%s", c->name);
    WRONG(bitsnap_decoder_pull(&b, NULL, to, 0, &n, frame, 0, &used), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_pull(&b, &s, to, 0, NULL, frame, 0, &used), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_pull(&b, &s, to, 0, &n, frame, 0, NULL), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_pull(&b, &s, to, 0, &n, NULL, 1, &used), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_end(&b, NULL, frame, 0, &used), BITSNAP_E_ARGUMENT);
    WRONG(bitsnap_decoder_end(&b, &s, frame, 0, NULL), BITSNAP_E_ARGUMENT);
    if (count) WRONG(bitsnap_decoder_end(&b, &s, frame, 0, &used), BITSNAP_E_ARGUMENT);
    if (count && c->info.header_size + 12 < c->size) WRONG(bitsnap_decoder_pull(&b, &s, to, 0, &n, frame + c->info.header_size, c->size - c->info.header_size, &used), BITSNAP_E_CAPACITY);
    s.width = 0;
    WRONG(bitsnap_decoder_pull(&b, &s, to, 0, &n, frame, 0, &used), BITSNAP_E_ARGUMENT);
    if (!count) return;
    for (n = 0; n < 16; n++) {
        info = c->info;
        if (n == 0) info.dtype = (bitsnap_dtype)0;
        else if (n == 1) info.dtype = (bitsnap_dtype)12;
        else if (n == 2) info.block_log2 = 5;
        else if (n == 3) info.block_log2 = 21;
        else if (n == 4) info.count = (UINT64_C(1) << 48) + 1;
        else if (n == 5) info.count = 0;
        else if (n == 6) info.bins = BSN_BINS_MOST + 1;
        else if (n == 7) info.clusters = BSN_CLUSTERS_MOST + 1;
        else if (n == 8) info.dtype = BITSNAP_I8, info.bins = 1;
        else if (n == 9) info.dtype = BITSNAP_I8, info.clusters = 2;
        else if (n == 10) info.dtype = BITSNAP_I8, info.columns = 2;
        else if (n == 11) info.has_base = 1, info.base_dtype = BITSNAP_I8, info.dtype = BITSNAP_F16;
        else if (n == 12) info.has_base = 1, info.base_dtype = BITSNAP_F32, info.dtype = BITSNAP_F64;
        CHECK(bitsnap_read_block(&b, n == 13 ? NULL : &block, n == 14 ? NULL : &info, n == 5 ? 0 : 0, n == 15 ? NULL : frame + c->info.header_size,
                                 c->size - c->info.header_size) == BITSNAP_E_ARGUMENT, "%s %lu", c->name, (unsigned long)n);
    }
    WRONG(bitsnap_read_block(&b, &block, &c->info, 1, frame, c->size), BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_read_block(NULL, &block, &c->info, 0, frame, c->size) == BITSNAP_E_ARGUMENT);
}
#undef WRONG

/* Decodes all blocks and returns the rule of the first invalid one. */
static unsigned read_blocks(const frame_case *c)
{
    uint64_t first = 0, at = c->info.header_size, parts;
    bitsnap_block block;
    unsigned k;
    while (first < c->info.count && at <= c->size) {
        bitsnap b = fresh(c, 0);
        if (bitsnap_read_block(&b, &block, &c->info, first, frames - c->size + at, c->size - (size_t)at)) return b.error.rule;
        for (parts = k = 0; k < block.parts; k++) parts += block.part[k].size;
        CHECK(parts <= block.size && (c->rule || block.elements), "%s", c->name);
        first += block.elements;
        at += block.size;
        if (!block.elements) break;
    }
    CHECK(c->rule || first == c->info.count, "%s", c->name);
    return 0;
}

/* Applies in place, with and without checks. The memory ends up with all elements, or with the base unchanged. */
static void apply(const frame_case *c, const uint8_t *elements)
{
    const size_t size = bytes_of(c), of_base = (size_t)c->info.count * bitsnap_width(c->info.base_dtype);
    unsigned heed;
    for (heed = 0; heed < 2; heed++) {
        bitsnap b = fresh(c, heed ? 0 : BITSNAP_IGNORE_CHECKS);
        uint8_t *live = (uint8_t *)memset(results - size, 0, size);
        bitsnap_status status;
        if (size) memcpy(live, c->base.data, size < of_base ? size : of_base);
        status = bitsnap_apply(&b, live, c->info.count, c->info.dtype, frames - c->size, c->size);
        if (c->info.base_dtype != c->info.dtype) {
            CHECK(status == (c->rule && b.error.rule ? b.error.status : BITSNAP_E_UNSUPPORTED), "%s", c->name);
            continue;
        }
        if (elements) CHECK(!status && !memcmp(live, elements, size), "%s: %s", c->name, bitsnap_message(&b));
        else if (heed || !(c->rule == 8 || (c->rule >= 10 && c->rule <= 12) || c->rule == 53)) /* checks of the index are ignored, too */
            CHECK(rejected(c, status, &b) && !memcmp(live, c->base.data, size), "%s: %d, R%u", c->name, (int)status, b.error.rule);
        if (!elements) continue;
        CHECK(bitsnap_apply(&b, live, c->info.count, c->info.dtype, frames - c->size, c->size) == BITSNAP_OK && !memcmp(live, elements, size), "%s", c->name);
    }
}

/* Changes one bit or one byte after the header, as vectors.py does. */
static void damage(const frame_case *c)
{
    const size_t header = c->info.header_size, size = bytes_of(c);
    uint8_t *frame = frames - c->size, *to = results - size;
    uint32_t accepted = 0;
    uint64_t combined = 0;
    unsigned number;
    for (number = 0; number < DAMAGES; number++) {
        uint64_t x = number * UINT64_C(6364136223846793005) + c->size * UINT64_C(1442695040888963407);
        bitsnap b = fresh(c, BITSNAP_IGNORE_CHECKS);
        uint8_t *at, value;
        x = (x ^ x >> 29) * UINT64_C(0x9E3779B97F4A7C15);
        at = frame + header + (x >> 32) % (c->size - header);
        value = number % 2 ? (uint8_t)((x >> 8 & 255) ? x >> 8 & 255 : 1) : (uint8_t)(1u << (x >> 16 & 7));
        *at ^= value;
        if (bitsnap_decode(&b, to, c->info.count, c->info.dtype, frame, c->size) == BITSNAP_OK) {
            accepted |= UINT32_C(1) << number;
            combined ^= bitsnap_hash(to, size);
        }
        b = fresh(c, BITSNAP_IGNORE_CHECKS);
        CHECK((bitsnap_test(&b, frame, c->size) == BITSNAP_OK) == (accepted >> number & 1), "%s, damage %u", c->name, number);
        if (c->info.checks) {
            b = fresh(c, 0);
            CHECK(bitsnap_decode(&b, to, c->info.count, c->info.dtype, frame, c->size), "%s, damage %u", c->name, number);
        }
        (void)read_blocks(c);
        if (size >= c->info.width) {
            b = fresh(c, BITSNAP_IGNORE_CHECKS);
            (void)bitsnap_decode_range(&b, results - c->info.width, c->info.count - 1, 1, c->info.dtype, frame, c->size);
        }
        *at ^= value;
    }
    CHECK(accepted == c->accepted, "%s: accepted are %08lx, not %08lx", c->name, (unsigned long)accepted, (unsigned long)c->accepted);
    CHECK(accepted != c->accepted || combined == c->combined, "%s: other elements where it is damaged", c->name);
}

static void valid(const frame_case *c)
{
    static uint8_t elements[MOST];
    const size_t size = bytes_of(c), cell = (size_t)1 << c->info.block_log2;
    uint8_t *to = results - size, *frame = frames - c->size;
    bitsnap b = fresh(c, 0);
    unsigned heed;
    size_t i;
    for (heed = 0; heed < 2; heed++) {
        b = fresh(c, heed ? 0 : BITSNAP_IGNORE_CHECKS);
        memset(to, 0xA5, size);
        CHECK(bitsnap_decode(&b, to, c->info.count, c->info.dtype, frame, c->size) == BITSNAP_OK, "%s: %s, R%u", c->name, bitsnap_message(&b), b.error.rule);
        CHECK(bitsnap_hash(to, size) == c->elements, "%s: other elements", c->name);
    }
    CHECK(bitsnap_test(&b, frame, c->size) == BITSNAP_OK, "%s", c->name);
    CHECK(bitsnap_verify(&b, to, c->info.count, c->info.dtype, frame, c->size) == BITSNAP_OK, "%s", c->name);
    for (i = 0; i < 3 && size; i++) {
        const size_t place = i ? i == 1 ? size - 1 : size / 2 : 0;
        to[place] ^= 1;
        CHECK(bitsnap_verify(&b, to, c->info.count, c->info.dtype, frame, c->size) ==
              (c->info.bins && bitsnap_hash(to, size) == c->elements ? BITSNAP_OK : BITSNAP_E_DIFFERENT) && b.error.element == place / c->info.width,
              "%s: %s", c->name, bitsnap_message(&b));
        to[place] ^= 1;
    }
    CHECK(bitsnap_decode(&b, to, c->info.count + 1, c->info.dtype, frame, c->size) == BITSNAP_E_MISMATCH, "%s", c->name);
    CHECK(c->info.frame_size == c->size || c->info.blocks == 1, "%s", c->name);
    CHECK(!c->info.has_base || c->info.same + c->info.sparse + c->info.classed + c->info.plain == c->info.blocks, "%s", c->name);
    memcpy(elements, to, size);
    pull(c, elements, (size_t)c->info.count);
    pull(c, elements, cell);
    if (c->info.count) ranges(c, elements);
    CHECK(read_blocks(c) == 0, "%s", c->name);
    infos(c, elements);
    callers_mistakes(c);
    if (c->info.has_base) apply(c, elements);
    for (i = 0; i < c->size && c->size < 700 && size < 9000; i++) {
        b = fresh(c, i % 2 ? BITSNAP_IGNORE_CHECKS : 0);
        CHECK(bitsnap_decode(&b, to, c->info.count, c->info.dtype, put(others, c->frame, i), i) == BITSNAP_E_TRUNCATED && b.error.rule == BITSNAP_R_TRUNCATED, "%s cut at %lu: R%u", c->name, (unsigned long)i, b.error.rule);
        if (size) CHECK(bitsnap_decode_range(&b, to, 0, 1, c->info.dtype, others - i, i) == BITSNAP_E_TRUNCATED && b.error.rule == BITSNAP_R_TRUNCATED, "%s cut at %lu: R%u", c->name, (unsigned long)i, b.error.rule);
    }
    if (c->info.count) other_sizes(c);
    if (c->damaged) damage(c);
}

static void invalid(const frame_case *c)
{
    const size_t size = bytes_of(c);
    uint8_t *frame = frames - c->size, *to = results - size;
    bitsnap b = fresh(c, 0);
    bitsnap_status again;
    const bitsnap_status status = bitsnap_test(&b, frame, c->size);
    unsigned rule;
    if (status || c->rule != 12) /* rule 12 needs the elements */
        CHECK(rejected(c, status, &b), "%s: %d, R%u", c->name, (int)status, b.error.rule);
    b = fresh(c, BITSNAP_IGNORE_CHECKS);
    again = bitsnap_test(&b, frame, c->size);
    CHECK((again == BITSNAP_OK) == is_check(c->rule) ? is_check(c->rule) || b.error.rule == c->rule || rejected(c, b.error.status, &b)
                                                      : c->rule == 9 && again == BITSNAP_E_UNSUPPORTED, /* without its check it looks newer */
          "%s without heed: R%u", c->name, b.error.rule);
    if (!c->info.width || size > MOST) return;
    b = fresh(c, 0);
    CHECK(rejected(c, bitsnap_decode(&b, to, c->info.count, c->info.dtype, frame, c->size), &b), "%s: R%u", c->name, b.error.rule);
    if (c->info.count && c->size > c->info.header_size) {
        const size_t behind = c->size - c->info.header_size;
        size_t whole = behind < 4 ? behind : (bsn_load32(c->frame + c->info.header_size) >> 8) +
                       prefix_of(c);
        (void)pull_block(c, &b, c->frame + c->info.header_size, whole < behind ? whole : behind);
        b = fresh(c, 0);
        rule = bitsnap_decode_range(&b, to + size - c->info.width, c->info.count - 1, 1, c->info.dtype, frame, c->size) ? b.error.rule : 0;
        CHECK(c->rule != 41 || rule == 41, "%s: R%u", c->name, rule);
        b = fresh(c, 0);
        rule = bitsnap_decode_range(&b, to, 0, c->info.count, c->info.dtype, frame, c->size) ? b.error.rule : 0;
        CHECK(rule || c->rule == 7 || c->rule == 11 || c->rule == 12 || c->rule == 39, "%s", c->name);
        rule = read_blocks(c);
        CHECK(!rule || rule == c->rule || rejected(c, status, &b), "%s: R%u in a block", c->name, rule);
        CHECK(rule || c->rule < 15 || (c->rule >= 34 && c->rule != 46 && c->rule != 47 && c->rule != 52), "%s is read", c->name);
    }
    if (c->info.has_base && c->base.data && c->base.dtype == c->info.base_dtype && c->base.count == c->info.count) apply(c, NULL);
}

/* ---- crafted ---- */

/* Encodes elements for a header. Tests then append a block that no encoder writes. */
static frame_case header_of(bitsnap b, const void *elements, size_t n, bitsnap_dtype dtype)
{
    static uint8_t frame[1 << 13];
    frame_case c;
    memset(&c, 0, sizeof c);
    c.name = bitsnap_dtype_name(dtype);
    b.workspace_size = test_workspace_delta(b.base.data || b.block_log2 ? b.block_log2 : 16, 1);
    b.workspace = workspaces - b.workspace_size;
    if (!b.base.data) b.flags |= BITSNAP_NO_CHECKS;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &c.size, elements, n, dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
    c.frame = frame;
    c.base = b.base;
    c.kernels = b.kernels;
    (void)put(frames, frame, c.size);
    CHECK(!bitsnap_read_info(&c.info, frame, c.size), "%s", c.name);
    return c;
}

static void refuse(const frame_case *c, unsigned form, const uint8_t *body, size_t size, unsigned rule)
{
    uint8_t block[256];
    bitsnap b;
    const size_t prefix = prefix_of(c);
    bitsnap_status status;
    memset(block, 0, sizeof block);
    bsn_store32(block, form | (uint32_t)size << 8);
    memcpy(block + prefix, body, size);
    status = pull_block(c, &b, block, prefix + size);
    CHECK(rule ? status == status_of(rule) && b.error.rule == rule : !status, "form %u of %s: %s, R%u instead of R%u", form, c->name,
          bitsnap_message(&b), b.error.rule, rule);
}

/* Complete bodies that are larger than their elements. A body of exactly their size is accepted. */
static void bodies_too_large(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[4096];
    static const uint8_t split[6] = { 8, 1, 2, 0, 3, 4 }, bytes[4] = { 0, 1, 0, 2 }, bytes_fit[4] = { 1, 1, 1, 2 };
    static const uint8_t classed[5] = { 1, 0, 0, 0, 7 }, classed_fit[3] = { 1, 128, 7 };
    static const uint8_t scaled[16] = { 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1 };
    uint8_t sparse[17] = { 1 }, quantized[54]; /* sparse: one change, its word has 0 bits */
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    c = header_of(b, zeros, 2, BITSNAP_BF16);
    refuse(&c, BSN_FORM_SPLIT, split, 6, 16);
    c = header_of(b, zeros, 1, BITSNAP_I16);
    refuse(&c, BSN_FORM_BYTES, bytes, 4, 16);
    c = header_of(b, zeros, 2, BITSNAP_I16);
    refuse(&c, BSN_FORM_BYTES, bytes_fit, 4, 0);
    refuse(&c, BSN_FORM_ZIGZAG, bytes_fit, 4, 0);
    refuse(&c, BSN_FORM_ZIGZAG, zeros, 5, 16);
    refuse(&c, BSN_FORM_LAST + 1, bytes_fit, 4, 54);
    c = header_of(b, zeros, 2, BITSNAP_BF16);
    refuse(&c, BSN_FORM_ZIGZAG, bytes_fit, 4, 15);
    c = header_of(b, zeros, 4, BITSNAP_I8);
    refuse(&c, BSN_FORM_ZIGZAG, bytes_fit, 2, 15);
    b.columns = 1;
    b.level = BITSNAP_BEST;
    c = header_of(b, zeros, 1, BITSNAP_F32);
    refuse(&c, BSN_FORM_SCALED, scaled, 14, 16);
    b.columns = 0;
    b.level = 0;
    b.quantizer.bins = 8;
    memset(quantized, 0, sizeof quantized);
    quantized[52] = 1; /* all words are 0 */
    c = header_of(b, zeros, 1, BITSNAP_F32);
    refuse(&c, BSN_FORM_QUANTIZED, quantized, 54, 16);
    c = header_of(b, zeros, 20, BITSNAP_F32);
    refuse(&c, BSN_FORM_QUANTIZED, quantized, 54, 0);
    b.quantizer.bins = 0;
    b.base.data = zeros;
    b.base.dtype = BITSNAP_I8;
    b.base.count = 1;
    b.block_log2 = 16;
    c = header_of(b, zeros, 1, BITSNAP_I8);
    refuse(&c, BSN_FORM_CLASSED, classed, 5, 16);
    refuse(&c, BSN_FORM_CLASSED, classed_fit, 3, 0);
    b.base.count = 16;
    c = header_of(b, zeros, 16, BITSNAP_I8);
    sparse[BSN_PIECE_HEAD] = 1; /* the change is at the first position */
    refuse(&c, BSN_FORM_SPARSE, sparse, sizeof sparse, 16);
}

/* More exact elements than elements; more clusters than the header allows, all of them stored. */
static void quantized_too_much(const bitsnap_kernels *kernels)
{
    static uint8_t zeros[4 * 4096];
    uint8_t body[128];
    bitsnap b;
    frame_case c;
    unsigned clusters, k;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.quantizer.bins = 8;
    c = header_of(b, zeros, 4096, BITSNAP_F32);
    memset(body, 0, sizeof body);
    body[BSN_CERTIFICATE_SIZE + 8] = 1; /* constant */
    refuse(&c, BSN_FORM_QUANTIZED, body, BSN_CERTIFICATE_SIZE + 10, 0);
    body[BSN_CERTIFICATE_SIZE + 9] = BSN_CODE_EXACT;
    refuse(&c, BSN_FORM_QUANTIZED, body, BSN_CERTIFICATE_SIZE + 10, 50);
    body[BSN_CERTIFICATE_SIZE + 9] = BSN_CODE_FIRST; /* magnitudes from the offset on: the last one, one too high, one too low */
    for (k = 0; k < 3; k++) {
        bsn_store32(body + BSN_CERTIFICATE_SIZE + 1, k < 2 ? 8 * bsn_octaves_of(BITSNAP_F32).count - 1 + k : 0xFFFFFFFFu);
        refuse(&c, BSN_FORM_QUANTIZED, body, BSN_CERTIFICATE_SIZE + 10, k ? 50 : 0);
    }
    b.quantizer.bins = 0;
    b.quantizer.clusters = 2;
    c = header_of(b, zeros, 4096, BITSNAP_F32);
    for (k = 0; k < 2; k++) { /* an infinite end */
        uint8_t *p = body + BSN_CERTIFICATE_SIZE;
        memset(p, 0, 16);
        bsn_store32(p + 1, k ? 0xFF800000u : 0xBF800000u);
        bsn_store32(p + 5, 0x3F800000u);
        p[11] = 1;
        refuse(&c, BSN_FORM_QUANTIZED, body, BSN_CERTIFICATE_SIZE + 13, k ? 50 : 0);
    }
    for (clusters = 1; clusters <= 3; clusters++) {
        uint8_t *p = body + BSN_CERTIFICATE_SIZE;
        *p++ = (uint8_t)(clusters - 1);
        for (k = 0; k < 2 * clusters; k++, p += 4) bsn_store32(p, 0x3F800000u + (k << 20));
        *p++ = 0;
        *p++ = 0;
        *p++ = 1;
        *p = 0;
        refuse(&c, BSN_FORM_QUANTIZED, body, (size_t)(p + 1 - body), clusters > 2 ? 50 : 0);
        *p = BSN_CODE_EXACT;
        refuse(&c, BSN_FORM_QUANTIZED, body, (size_t)(p + 1 - body), 50);
    }
}

/* A word above the limit, which should have escaped. It is in the first list, or in the list of escaped words. */
static void above_limits(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[128];
    uint8_t body[128] = { 1, 0, 5, 0 }, *p;
    unsigned level;
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.base.data = zeros;
    b.base.dtype = BITSNAP_I16;
    b.base.count = 64;
    b.block_log2 = 16;
    c = header_of(b, zeros, 64, BITSNAP_I16);
    for (level = 0; level < 2; level++) {
        memset(body + 1, 0, sizeof body - 1);
        p = body + 1;
        if (level) { /* all 64 escape */
            *p++ = 0;
            *p++ = 5;
            *p++ = 1;
            *p++ = 5;
        }
        *p++ = 0;
        *p++ = 5;
        *p++ = 0; /* RAW symbols: one is 5 and escapes, */
        p[63] = 5;
        p[64] = 128; /* its remainder is RAW */
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 67 - body), 0);
        p[62] = 6;
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 67 - body), 47);
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 69 - body), 47);
        p[64] = p[65] = 0; /* the remainders as CONST symbols */
        p[66] = 1;
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 68 - body), 47);
        p[64] = 128;
        p[66] = 0;
        p[62] = 5;
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 67 - body), 47);
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p + 69 - body), 0);
    }
}

/* Escaped words as wide as symbols of the next level; low bits that leave no bit for a symbol. */
static void deeper_levels(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[128];
    static const uint8_t narrow[9] = { 1, 0, 5, 1, 5, 0, 0, 1, 9 }; /* 5 + 9 each */
    static const uint8_t mask[14] = { 6, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 5 }; /* 63 times 0, and a 5 */
    uint8_t body[160];
    uint64_t first;
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.base.data = zeros;
    b.base.dtype = BITSNAP_I16;
    b.base.count = 64;
    b.block_log2 = 16;
    c = header_of(b, zeros, 64, BITSNAP_I16);
    refuse(&c, BSN_FORM_CLASSED, narrow, sizeof narrow, 0);
    for (first = 0; first < 64; first++) CHECK(bsn_element_load(results - 128 + 2 * first, 2) == 7, "%llu", (unsigned long long)bsn_element_load(results - 128 + 2 * first, 2));
    memset(body, 0, sizeof body);
    body[0] = 1;
    body[2] = 5; /* one word escapes: the symbols are a split */
    memcpy(body + 3, mask, sizeof mask);
    for (first = 8; first <= 16; first += 8) { /* first: the low bits of its remainder */
        uint8_t *p = body + 3 + sizeof mask;
        *p++ = (uint8_t)first;
        *p++ = 0;
        p += first / 8;
        *p++ = 1;
        *p++ = 0;
        refuse(&c, BSN_FORM_CLASSED, body, (size_t)(p - body), first < 16 ? 0 : 47);
    }
}

/* Widths of symbols that are valid for other dtypes only. */
static void symbol_sizes(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[512];
    static const uint8_t f8[3] = { 8, 1, 5 }, f64[3] = { 7, 0, 0 }, bf16[3] = { 9, 1, 5 };
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    c = header_of(b, zeros, 64, BITSNAP_F8_E4M3);
    refuse(&c, BSN_FORM_SPLIT, f8, 3, 19);
    c = header_of(b, zeros, 64, BITSNAP_BF16);
    refuse(&c, BSN_FORM_SPLIT, bf16, 3, 19);
    c = header_of(b, zeros, 64, BITSNAP_F64);
    refuse(&c, BSN_FORM_SPLIT, f64, 3, 19);
}

/* Tries every kind byte of a list. */
static void kinds_of_lists(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[64];
    unsigned kind;
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    c = header_of(b, zeros, 64, BITSNAP_I8);
    for (kind = 0; kind < 256; kind++) {
        const unsigned form = kind & 15, escape = kind >> 4;
        const int known = kind <= 2 || (form == 4 && escape >= 1 && escape <= 8) || kind == 5 || kind == 6;
        uint8_t block[64] = { 0 };
        bitsnap d;
        bitsnap_status status;
        bsn_store32(block, BSN_FORM_BYTES | 40u << 8);
        block[4] = (uint8_t)kind;
        status = pull_block(&c, &d, block, 44);
        CHECK(status == (known ? BITSNAP_E_CORRUPT : BITSNAP_E_UNSUPPORTED) && (d.error.rule == BITSNAP_R_LIST_KIND) == !known, "%02x: R%u", kind, d.error.rule);
    }
}

static void sparse_of(const frame_case *c, unsigned count, unsigned low, unsigned bits, uint64_t rest, size_t size, unsigned rule)
{
    uint8_t body[16] = { 0 };
    body[0] = (uint8_t)count;
    body[2] = (uint8_t)low;
    body[3] = (uint8_t)bits;
    bsn_store64(body + 4, rest);
    refuse(c, BSN_FORM_SPARSE, body, 4 + size, rule);
}

/* Changes with a single error. */
static void pieces_of_changes(const bitsnap_kernels *kernels)
{
    static const uint8_t zeros[128];
    bitsnap b;
    frame_case c;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.base.data = zeros;
    b.base.dtype = BITSNAP_I16;
    b.base.count = 20;
    b.block_log2 = 16;
    c = header_of(b, zeros, 20, BITSNAP_I16);
    sparse_of(&c, 1, 4, 0, 0x23, 1, 0);  /* the last position */
    sparse_of(&c, 1, 4, 0, 0x24, 1, 52); /* the position after it */
    b.base.count = 64;
    c = header_of(b, zeros, 64, BITSNAP_I16);
    sparse_of(&c, 1, 16, 0x01, 0x010000, 3, 0);
    sparse_of(&c, 1, 16, 0x81, 0x010000, 3, 52);     /* no word escapes */
    sparse_of(&c, 1, 6, 0x81, 0x00C0 << 16 | 1 | (uint64_t)5 << (16 + 8), 5, 0); /* a word of 1 bit escapes: 5 */
    sparse_of(&c, 1, 6, 0x81, 0x00C0 << 16 | 1 | (uint64_t)0 << (16 + 8), 5, 52); /* an escaped word that fits */
    sparse_of(&c, 1, 6, 0x80, 0x0040 << 16 | 1 | (uint64_t)5 << (16 + 7), 5, 52); /* words of 0 bits do not escape */
    sparse_of(&c, 1, 6, 0x90, (uint64_t)0xFFFFFF << 16 | 1, 7, 52);               /* words of all bits do not escape */
}

/* The index contradicts the block that holds the range. All else is right. */
static void ranges_and_index(const bitsnap_kernels *kernels)
{
    static uint8_t elements[256];
    uint8_t out[64];
    unsigned k;
    bitsnap b, d;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.block_log2 = 6;
    for (k = 0; k < 2; k++) {
        frame_case c;
        uint8_t *frame, *index;
        size_t i;
        for (i = 0; i < sizeof elements; i++) elements[i] = (uint8_t)(k ? i % 3 : 7);
        c = header_of(b, elements, sizeof elements, BITSNAP_I8);
        frame = frames - c.size;
        index = frames - BSN_TAIL_SIZE - 4 * (size_t)bsn_load64(frames - BSN_TAIL_SIZE);
        d = fresh(&c, BITSNAP_IGNORE_CHECKS);
        CHECK(!bitsnap_decode_range(&d, out, 0, 64, BITSNAP_I8, frame, c.size) && !memcmp(out, elements, 64), "%s", bitsnap_message(&d));
        bsn_store32(index, bsn_load32(index) + 256); /* one byte or one cell more */
        CHECK(bitsnap_decode_range(&d, out, 0, 64, BITSNAP_I8, frame, c.size) == BITSNAP_E_CORRUPT && d.error.rule == BITSNAP_R_INDEX_BLOCKS, "%u: %s", k, bitsnap_message(&d));
    }
}

/* The index has a run that cannot be, or sizes that move the last block past the end of the frame. */
static void hostile_index(const bitsnap_kernels *kernels)
{
    static uint8_t elements[256];
    static const uint32_t runs[3] = { 0, 5, 0xFFFFFFFFu };
    uint8_t out[64];
    unsigned k;
    bitsnap b, d;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.block_log2 = 6;
    for (k = 0; k < 4; k++) {
        frame_case c;
        uint8_t *index;
        size_t i;
        for (i = 0; i < sizeof elements; i++) elements[i] = (uint8_t)(k == 3 ? i % 3 : 7);
        c = header_of(b, elements, sizeof elements, BITSNAP_I8);
        index = frames - BSN_TAIL_SIZE - 4 * (size_t)bsn_load64(frames - BSN_TAIL_SIZE);
        if (k < 3) bsn_store32(index, BSN_FORM_CONST | runs[k] << 8);
        for (i = 0; i < 3 && k == 3; i++) bsn_store32(index + 4 * i, (bsn_load32(index) & 255) | 64u << 8);
        d = fresh(&c, BITSNAP_IGNORE_CHECKS);
        CHECK(bitsnap_decode_range(&d, out, 192, 64, BITSNAP_I8, frames - c.size, c.size) == BITSNAP_E_CORRUPT && d.error.rule == (k < 3 ? 17 : 40),
              "%u: %s", k, bitsnap_message(&d));
    }
}

/* Checks the rule that a header with these extensions breaks. Its check is right. */
static unsigned header_rule(unsigned dtype, unsigned log2, unsigned flags, uint64_t count, const uint8_t *extensions, size_t size)
{
    uint8_t header[128], *p = header;
    bitsnap b;
    bitsnap_encoder s;
    size_t used;
    memset(&b, 0, sizeof b);
    memset(header, 0, sizeof header);
    memcpy(p, bsn_magic, 4);
    p[4] = BSN_VERSION;
    p[5] = (uint8_t)dtype;
    p[6] = (uint8_t)log2;
    p[7] = (uint8_t)(flags | (size ? 128 : 0));
    bsn_store64(p + 8, count);
    p += 16;
    if (size) {
        p[0] = (uint8_t)size;
        memcpy(p + 2, extensions, size);
        p += 2 + size;
    }
    bsn_store64(p, bitsnap_hash(header, (size_t)(p - header)));
    p += 8;
    (void)bitsnap_decoder_begin(&b, &s, put(others, header, (size_t)(p - header)), (size_t)(p - header), &used);
    return b.error.rule;
}

static void headers(void)
{
    static const uint8_t base[26] = { 0x81, 10, 0, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8, 0x81, 10, 0, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8 };
    static const uint8_t cells[17] = { 0x82, 3, 0, 1, 8, 0, 0x83, 8, 0, 5, 0, 0, 0, 0, 0, 0, 0 }, clusters[6] = { 0x82, 3, 0, 2, 16, 0 };
    static const uint8_t both[19] = { 0x81, 10, 0, 1, 9, 1, 2, 3, 4, 5, 6, 7, 8, 0x82, 3, 0, 1, 8, 0 };
    uint8_t magic[5];
    bitsnap b;
    bitsnap_encoder s;
    size_t used;
    unsigned dtype, base_dtype, role;
    memset(&b, 0, sizeof b);
    CHECK(header_rule(BITSNAP_I8, 16, 0, UINT64_C(1) << 48, NULL, 0) == 0 && header_rule(BITSNAP_I8, 16, 0, (UINT64_C(1) << 48) + 1, NULL, 0) == 34);
    CHECK(header_rule(BITSNAP_I8, 16, 3, 9, base, 13) == 0 && header_rule(BITSNAP_I8, 16, 3, 9, base, 26) == 42);
    CHECK(header_rule(BITSNAP_I8, 15, 3, 9, base, 13) == 42 && header_rule(BITSNAP_I8, 16, 1, 9, base, 13) == 42 && header_rule(BITSNAP_I8, 16, 2, 9, base, 13) == 42);
    CHECK(header_rule(BITSNAP_BF16, 16, 0, 9, cells + 6, 11) == 0 && header_rule(BITSNAP_I8, 16, 0, 9, cells + 6, 11) == 48);
    CHECK(header_rule(BITSNAP_BF16, 16, 4, 9, cells, 6) == 0 && header_rule(BITSNAP_I8, 16, 4, 9, cells, 6) == 48 && header_rule(BITSNAP_F8_E5M2, 16, 4, 9, cells, 6) == 48);
    CHECK(header_rule(BITSNAP_BF16, 16, 4, 9, clusters, 6) == 0 && header_rule(BITSNAP_I8, 16, 4, 9, clusters, 6) == 48);
    CHECK(header_rule(BITSNAP_BF16, 16, 4, 9, cells, 17) == 0 && header_rule(BITSNAP_BF16, 16, 0, 9, cells, 6) == 48 && header_rule(BITSNAP_BF16, 16, 6, 9, cells, 6) == 0);
    CHECK(header_rule(BITSNAP_BF16, 16, 3, 9, both, 19) == 48 && header_rule(BITSNAP_BF16, 16, 3, 9, both, 13) == 0);
    for (role = 0; role < 4; role++)
        for (dtype = 1; dtype <= 11; dtype++)
            for (base_dtype = 0; base_dtype <= 12; base_dtype++) {
                const int halves[2] = { dtype == BITSNAP_F16 || dtype == BITSNAP_BF16, base_dtype == BITSNAP_F16 || base_dtype == BITSNAP_BF16 };
                const int fits = role == 1 ? dtype == base_dtype : role == 2 ? base_dtype == BITSNAP_F32 && halves[0]
                                                                             : role == 3 && dtype == BITSNAP_F32 && halves[1];
                uint8_t one[13];
                memcpy(one, base, 13);
                one[3] = (uint8_t)role;
                one[4] = (uint8_t)base_dtype;
                CHECK(header_rule(dtype, 16, 3, 9, one, 13) == (fits ? 0 : 42), "role %u, %u, %u", role, dtype, base_dtype);
            }
    memcpy(magic, bsn_magic, 4);
    magic[4] = 0;
    CHECK(bitsnap_decoder_begin(&b, &s, put(others, magic, 5), 5, &used) == BITSNAP_E_UNSUPPORTED && b.error.rule == BITSNAP_R_VERSION, "%s", bitsnap_message(&b));
    CHECK(bitsnap_decoder_begin(&b, &s, put(others, magic, 4), 4, &used) == BITSNAP_E_TRUNCATED && b.error.rule == BITSNAP_R_TRUNCATED, "%s", bitsnap_message(&b));
    magic[3]++;
    CHECK(bitsnap_decoder_begin(&b, &s, put(others, magic, 4), 4, &used) == BITSNAP_E_MAGIC && b.error.rule == BITSNAP_R_MAGIC, "%s", bitsnap_message(&b));
}

/* A header alone whose last bytes are the end magic. There are no bytes before it for a footer. */
static void header_that_ends(const bitsnap_kernels *kernels)
{
    guarded g = guarded_alloc(BSN_HEADER_SIZE, 1);
    uint8_t out[64];
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.kernels = kernels;
    b.workspace = workspaces - BITSNAP_WORKSPACE;
    b.workspace_size = BITSNAP_WORKSPACE;
    b.flags = BITSNAP_IGNORE_CHECKS;
    memset(g.p, 0, BSN_HEADER_SIZE);
    memcpy(g.p, bsn_magic, 4);
    g.p[4] = BSN_VERSION;
    g.p[5] = BITSNAP_I8;
    g.p[6] = 6;
    g.p[9] = 1;
    memcpy(g.p + 20, bsn_end_magic, 4);
    CHECK(bitsnap_decode_range(&b, out, 0, 64, BITSNAP_I8, g.p, BSN_HEADER_SIZE) == BITSNAP_E_TRUNCATED && b.error.rule == BITSNAP_R_TRUNCATED, "%s", bitsnap_message(&b));
    guarded_free(g);
}

/* Merges deltas with every capacity up to one that is enough, and deltas that do not belong together. */
static void merges(const bitsnap_kernels *kernels)
{
    enum { N = 300 };
    static uint8_t a[4][2 * N], first[4096], second[4096], whole[4096];
    size_t one = 0, two = 0, size = 0, all, room, i;
    unsigned k, inverse, self;
    bitsnap b;
    for (self = 0; self < 2; self++)
        for (k = 0; k < 5; k++) {
            memset(&b, 0, sizeof b);
            b.kernels = kernels;
            b.workspace_size = test_workspace_delta(16, 2);
            b.workspace = workspaces - b.workspace_size;
            b.block_log2 = 16;
            b.flags = self ? BITSNAP_SELF_CONTAINED : 0;
            b.base.dtype = BITSNAP_BF16;
            b.base.count = N;
            for (i = 0; i < N; i++) {
                bsn_element_store(a[0] + 2 * i, 0x3F00 + test_below(256), 2);
                bsn_element_store(a[1] + 2 * i, bsn_element_load(a[0] + 2 * i, 2) + (k == 1 ? 0 : k == 2 ? i == 17 : test_below(40)), 2);
                bsn_element_store(a[2] + 2 * i, k == 0 ? bsn_element_load(a[1] + 2 * i, 2) : k == 4 ? test_random() & 0xFFFF :
                                                bsn_element_load(a[1] + 2 * i, 2) + (k == 2 ? i == 100 : test_below(3)), 2);
            }
            b.base.data = a[0];
            CHECK(!bitsnap_encode(&b, first, sizeof first, &one, a[1], N, BITSNAP_BF16), "%s", bitsnap_message(&b));
            b.base.data = a[1];
            CHECK(!bitsnap_encode(&b, second, sizeof second, &two, a[2], N, BITSNAP_BF16), "%s", bitsnap_message(&b));
            b.base.data = a[0];
            for (inverse = 0; inverse < 2; inverse++) {
                for (all = room = 0; room < sizeof whole; room++) {
                    uint8_t *to = others - room;
                    const bitsnap_status status = inverse ? bitsnap_invert(&b, to, room, &size, put(frames, first, one), one)
                                                          : bitsnap_merge(&b, to, room, &size, put(frames, first, one), one, put(results, second, two), two);
                    CHECK(status == BITSNAP_E_CAPACITY || !status, "%u, %u in %lu: %s", k, inverse, (unsigned long)room, bitsnap_message(&b));
                    if (!status) all = size;
                    if (!status && room >= size + 3) break;
                }
                CHECK(all && all <= sizeof whole, "%u", k);
                memcpy(whole, others - room, all);
                if (inverse) b.base.data = a[1];
                CHECK(!bitsnap_decode(&b, a[3], N, BITSNAP_BF16, whole, all) && !memcmp(a[3], a[inverse ? 0 : 2], 2 * N), "%u: %s", k, bitsnap_message(&b));
                b.base.data = a[0];
            }
            /* the header names another base, but the elements agree; then the reverse */
            second[23] ^= 1;
            b.flags = BITSNAP_IGNORE_CHECKS;
            CHECK(bitsnap_merge(&b, whole, sizeof whole, &size, first, one, second, two) == BITSNAP_E_BASE, "%u: %s", k, bitsnap_message(&b));
            second[23] ^= 1;
            CHECK(!bitsnap_merge(&b, whole, sizeof whole, &size, first, one, second, two), "%u: %s", k, bitsnap_message(&b));
            a[1][5] ^= 1;
            b.flags = self ? BITSNAP_SELF_CONTAINED : 0;
            b.base.data = a[1];
            memcpy(whole, second + 22, 8);
            CHECK(!bitsnap_encode(&b, second, sizeof second, &two, a[2], N, BITSNAP_BF16), "%s", bitsnap_message(&b));
            memcpy(second + 22, whole, 8);
            b.flags = BITSNAP_IGNORE_CHECKS;
            b.base.data = a[0];
            CHECK(bitsnap_merge(&b, whole, sizeof whole, &size, first, one, second, two) == BITSNAP_E_BASE, "%u: %s", k, bitsnap_message(&b));
        }
}

static void crafted(void)
{
    const bitsnap_kernels *kernels;
    unsigned k;
    headers();
    for (k = 0; (kernels = bitsnap_kernels_get(k)) != NULL; k++) {
        bodies_too_large(kernels);
        quantized_too_much(kernels);
        above_limits(kernels);
        deeper_levels(kernels);
        symbol_sizes(kernels);
        kinds_of_lists(kernels);
        pieces_of_changes(kernels);
        ranges_and_index(kernels);
        hostile_index(kernels);
        header_that_ends(kernels);
        merges(kernels);
    }
}

/* ---- the corpus ---- */

static unsigned good, bad;

static void one(corpus_entry *e)
{
    const uint8_t *damaged = e->data[CORPUS_DAMAGED];
    frame_case c;
    unsigned k;
    memset(&c, 0, sizeof c);
    c.name = e->name;
    c.rule = e->rule;
    c.size = e->size[CORPUS_FRAME];
    c.frame = e->data[CORPUS_FRAME];
    c.elements = corpus_hash(e);
    c.base = corpus_base(e);
    if (!e->has[CORPUS_FRAME] || c.size > 1 << 13 || e->size[CORPUS_BASE] > MOST) return;
    (void)put(frames, c.frame, c.size);
    if (c.base.data) c.base.data = put(bases, e->data[CORPUS_BASE], e->size[CORPUS_BASE]);
    c.damaged = e->has[CORPUS_DAMAGED];
    c.accepted = bsn_load32(damaged);
    c.combined = bsn_load64(damaged + 4);
    CHECK(!bitsnap_read_info(&c.info, frames - c.size, c.size) || c.rule, "%s", c.name);
    if (!c.rule && c.info.elements_size > MOST) return;
    for (k = 0; (c.kernels = bitsnap_kernels_get(k)) != NULL; k++) {
        if (c.rule) invalid(&c);
        else valid(&c);
    }
    if (c.rule) bad++;
    else good++;
}

static void corpus(void)
{
    static corpus_entry e;
    CHECK(corpus_each(&e, one), "docs/vectors and tests/format/corpus.txt are read from the project's folder; %s", e.name);
    CHECK(good > 200 && bad > 350, "%u valid, %u invalid", good, bad);
}

static uint8_t *ending(size_t size) { return (uint8_t *)guarded_alloc(size, 0).p + size; }

int main(void)
{
    test_program = "cases";
    if (BSN_BIG_ENDIAN) {
        SKIP("cases", "the elements of the corpus are little-endian");
        return 0;
    }
    frames = ending(1 << 14);
    bases = ending(MOST);
    results = ending(MOST);
    others = ending(1 << 14);
    workspaces = ending(test_workspace_delta(20, 2));
    RUN(corpus);
    RUN(crafted);
    return test_failures != 0;
}
