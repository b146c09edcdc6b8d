/* The frames of tests/cases.txt, valid and invalid, in memory that ends where they do, through every way in: what is valid gives
 * its elements, what is not is rejected by the condition that stands beside it, and of damaged ones those are accepted that
 * another decoder accepts. */
#include "test.h"
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

#define MOST (3u << 20)
enum { DAMAGES = 32 };

static uint8_t *frames, *bases, *results, *others, *workspaces; /* where memory ends */

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
    uint64_t elements;       /* their hash, of a valid one */
    bitsnap_base base;
    int damaged;             /* what follows is known: of the damaged ones, */
    uint32_t accepted;       /* those that are accepted, */
    uint64_t combined;       /* and their hashes */
    bitsnap_info info;
    const bitsnap_kernels *kernels;
} frame_case;

static size_t bytes_of(const frame_case *c) { return (size_t)c->info.elements_size; }

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
    return rule == 1 ? BITSNAP_E_MAGIC : rule <= 4 ? BITSNAP_E_UNSUPPORTED : rule == 6 ? BITSNAP_E_TRUNCATED : rule == 7 ? BITSNAP_E_TRAILING :
           rule <= 12 || rule == 45 ? BITSNAP_E_CHECK : rule == 43 || rule == 44 ? BITSNAP_E_BASE : BITSNAP_E_CORRUPT;
}

static int is_check(unsigned rule) { return (rule >= 8 && rule <= 12) || rule == 44 || rule == 45; }

/* As the condition says, or as one that holds, too: the index is read from two sides. */
static int rejected(const frame_case *c, bitsnap_status status, const bitsnap *b)
{
    const unsigned rule = b->error.rule;
    return status == b->error.status && status == status_of(rule) && b->error.offset <= c->size &&
           (rule == c->rule || c->rule == 39 || c->rule == 41 || (rule == 6 && (c->rule == 37 || c->rule == 38)));
}

/* Piece by piece: no byte and no room more than was asked for. */
static void pull(const frame_case *c, const uint8_t *elements, size_t room)
{
    const unsigned width = c->info.width;
    bitsnap b = fresh(c, 0);
    bitsnap_stream s;
    size_t at = 0, used = 0, n = 0, give = 24;
    bitsnap_status status;
    CHECK(bitsnap_pull_begin(&b, &s, put(others, c->frame, 23), 23, &used) == BITSNAP_E_TRUNCATED && used == 0 && s.need == 24, "%s", c->name);
    while ((status = bitsnap_pull_begin(&b, &s, put(others, c->frame, give), give, &used)) == BITSNAP_E_TRUNCATED && s.need > give) give = s.need;
    CHECK(!status && used == c->info.header_size && give == used, "%s: %s", c->name, bitsnap_message(&b));
    at = used;
    give = 0;
    while (!status && s.position < s.count) {
        const size_t left = (size_t)(s.count - s.position), capacity = room < left ? room : left;
        const uint64_t before = s.position;
        uint8_t *to = results - capacity * width;
        status = bitsnap_pull(&b, &s, to, capacity, &n, put(others, c->frame + at, give), give, &used);
        CHECK(s.position == before + n && n <= capacity && (!status || (!n && !used)), "%s", c->name);
        if (status == BITSNAP_E_TRUNCATED && s.need > give && at + s.need <= c->size) give = s.need, status = BITSNAP_OK;
        else give = 0, at += used;
        CHECK(!n || !memcmp(to, elements + before * width, n * width), "%s at %llu", c->name, (unsigned long long)before);
    }
    give = 0;
    while (!status && (status = bitsnap_pull_end(&b, &s, put(others, c->frame + at, give), give, &used)) == BITSNAP_E_TRUNCATED &&
           s.need > give && at + s.need <= c->size)
        give = s.need, status = BITSNAP_OK;
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

/* All blocks; returns the rule of the first that is wrong. */
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

/* In place, with and without heed of checks: all or nothing. */
static void apply(const frame_case *c, const uint8_t *elements)
{
    const size_t size = bytes_of(c);
    unsigned heed;
    for (heed = 0; heed < 2; heed++) {
        bitsnap b = fresh(c, heed ? 0 : BITSNAP_IGNORE_CHECKS);
        uint8_t *live = put(results, c->base.data, size);
        const bitsnap_status status = bitsnap_apply(&b, live, c->info.count, c->info.dtype, frames - c->size, c->size);
        if (c->info.base_dtype != c->info.dtype) {
            CHECK(status == (c->rule && b.error.rule ? b.error.status : BITSNAP_E_UNSUPPORTED), "%s", c->name);
            continue;
        }
        if (elements) CHECK(!status && !memcmp(live, elements, size), "%s: %s", c->name, bitsnap_message(&b));
        else if (heed || !(c->rule == 8 || (c->rule >= 10 && c->rule <= 12)))
            CHECK(rejected(c, status, &b) && !memcmp(live, c->base.data, size), "%s: %d, R%u", c->name, (int)status, b.error.rule);
        if (!elements) continue;
        CHECK(bitsnap_apply(&b, live, c->info.count, c->info.dtype, frames - c->size, c->size) == BITSNAP_OK && !memcmp(live, elements, size), "%s", c->name);
    }
}

/* What stands behind the header is changed in one bit, or one byte, as cases.py does. */
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
              (c->info.cells && bitsnap_hash(to, size) == c->elements ? BITSNAP_OK : BITSNAP_E_DIFFERENT) && b.error.element == place / c->info.width,
              "%s: %s", c->name, bitsnap_message(&b));
        to[place] ^= 1;
    }
    CHECK(bitsnap_decode(&b, to, c->info.count + 1, c->info.dtype, frame, c->size) == BITSNAP_E_MISMATCH, "%s", c->name);
    CHECK(c->info.frame_size == c->size || c->info.blocks == 1, "%s", c->name);
    CHECK(!c->info.has_base || c->info.same + c->info.sparse + c->info.classed + c->info.plain == (bsn_has_footer(c->info.blocks, frame[7]) ? c->info.blocks : 0), "%s", c->name);
    memcpy(elements, to, size);
    pull(c, elements, (size_t)c->info.count);
    pull(c, elements, cell);
    if (c->info.count) ranges(c, elements);
    CHECK(read_blocks(c) == 0, "%s", c->name);
    if (c->info.has_base) apply(c, elements);
    for (i = 0; i < c->size && c->size < 700 && size < 9000; i++) {
        b = fresh(c, i % 2 ? BITSNAP_IGNORE_CHECKS : 0);
        CHECK(bitsnap_decode(&b, to, c->info.count, c->info.dtype, put(others, c->frame, i), i) == BITSNAP_E_TRUNCATED && b.error.rule == 6, "%s cut at %lu: R%u", c->name, (unsigned long)i, b.error.rule);
    }
    if (c->damaged) damage(c);
}

static void invalid(const frame_case *c)
{
    const size_t size = bytes_of(c);
    uint8_t *frame = frames - c->size, *to = results - size;
    bitsnap b = fresh(c, 0);
    const bitsnap_status status = bitsnap_test(&b, frame, c->size);
    unsigned rule;
    if (status || c->rule != 12) /* that needs the elements */
        CHECK(rejected(c, status, &b), "%s: %d, R%u", c->name, (int)status, b.error.rule);
    b = fresh(c, BITSNAP_IGNORE_CHECKS);
    CHECK((bitsnap_test(&b, frame, c->size) == BITSNAP_OK) == is_check(c->rule) && (is_check(c->rule) || b.error.rule == c->rule || rejected(c, b.error.status, &b)),
          "%s without heed: R%u", c->name, b.error.rule);
    if (!c->info.width || size > MOST) return;
    b = fresh(c, 0);
    CHECK(rejected(c, bitsnap_decode(&b, to, c->info.count, c->info.dtype, frame, c->size), &b), "%s: R%u", c->name, b.error.rule);
    if (c->info.count) {
        b = fresh(c, 0);
        rule = bitsnap_decode_range(&b, to + size - c->info.width, c->info.count - 1, 1, c->info.dtype, frame, c->size) ? b.error.rule : 0;
        CHECK(c->rule != 41 || rule == 41, "%s: R%u", c->name, rule);
        b = fresh(c, 0);
        rule = bitsnap_decode_range(&b, to, 0, c->info.count, c->info.dtype, frame, c->size) ? b.error.rule : 0;
        CHECK(rule || c->rule == 7 || c->rule == 11 || c->rule == 12 || c->rule == 39 || c->rule == 51, "%s", c->name);
        rule = read_blocks(c);
        CHECK(!rule || rule == c->rule || rejected(c, status, &b), "%s: R%u in a block", c->name, rule);
        CHECK(rule || c->rule < 15 || (c->rule >= 34 && c->rule != 46 && c->rule != 47 && c->rule != 52), "%s is read", c->name);
    }
    if (c->info.has_base && c->base.data && c->base.dtype == c->info.base_dtype && c->base.count == c->info.count) apply(c, NULL);
}

static size_t from_hex(uint8_t *to, char *text)
{
    size_t n = 0, period, whole;
    unsigned byte;
    if (*text == '-') return 0;
    for (; sscanf(text, "%2x", &byte) == 1; text += 2) to[n++] = (uint8_t)byte;
    if (*text != '*') return n;
    period = n;
    for (whole = strtoul(text + 1, &text, 10); n < whole; n++) to[n] = to[n - period];
    return *text == '+' ? n + from_hex(to + n, text + 1) : n;
}

static void cases(void)
{
    static char line[1 << 14];
    static uint8_t frame[1 << 13], base[MOST];
    unsigned good = 0, bad = 0, k;
    FILE *f = fopen("tests/cases.txt", "r");
    CHECK(f, "tests/cases.txt is read from the project's folder");
    while (f && fgets(line, sizeof line, f)) {
        char *word[8];
        frame_case c;
        if (line[0] == '#') continue;
        memset(&c, 0, sizeof c);
        for (k = 0; k < 8; k++) word[k] = strtok(k ? NULL : line, " \n");
        c.name = word[0];
        c.rule = word[1][0] == 'R' ? (unsigned)atoi(word[1] + 1) : 0;
        c.size = from_hex(frame, word[2]);
        c.frame = frame;
        (void)put(frames, frame, c.size);
        if (word[3][0] != '-') c.elements = strtoull(word[3], NULL, 16);
        if (word[4][0] != '-') {
            const size_t size = from_hex(base, word[5]);
            c.base.dtype = (bitsnap_dtype)strtoul(word[4], NULL, 16);
            c.base.count = size / bitsnap_width(c.base.dtype);
            c.base.data = put(bases, base, size);
        }
        c.damaged = word[6][0] != '-';
        if (c.damaged) {
            c.accepted = (uint32_t)strtoul(word[6], NULL, 16);
            c.combined = strtoull(word[7], NULL, 16);
        }
        CHECK(!bitsnap_read_info(&c.info, frames - c.size, c.size) || c.rule, "%s", c.name);
        for (k = 0; (c.kernels = bitsnap_kernels_get(k)) != NULL; k++) {
            if (c.rule) invalid(&c);
            else valid(&c);
        }
        if (c.rule) bad++;
        else good++;
    }
    if (f) fclose(f);
    CHECK(good > 280 && bad > 390, "%u valid, %u invalid", good, bad);
}

static uint8_t *ending(size_t size) { return (uint8_t *)guarded_alloc(size, 0).p + size; }

int main(void)
{
    test_program = "cases";
    if (BSN_BIG_ENDIAN) {
        SKIP("cases", "the elements of cases.txt are little-endian");
        return 0;
    }
    frames = ending(1 << 14);
    bases = ending(MOST);
    results = ending(MOST);
    others = ending(1 << 14);
    workspaces = ending(bitsnap_workspace_delta(20, 2));
    RUN(cases);
    return test_failures != 0;
}
