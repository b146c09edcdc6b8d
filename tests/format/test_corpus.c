/* The corpus, docs/vectors and tests/format/corpus.txt, with every table of kernels. Frames decode to their elements, or the condition
 * that the entry names rejects them. Every truncation and every flipped bit of small frames and of their bases is noticed. Values
 * of XXH3 are right. Files are for tests/tool/test_file.c, tests/format/vectors.py and the tool. */
#include "tests/unit/test.h"
#include "tests/unit/inside.h"
#include "corpus.h"

enum { SMALL = 500, ELEMENTS = 1 << 16 };

static uint8_t workspace[1 << 24], out[5 << 20];
static unsigned good, rejected, deltas, hashes;

/* Every truncation of a valid frame, every bit of it, and every bit of its base. */
static void damage(corpus_entry *e, bitsnap *b, const bitsnap_info *info)
{
    uint8_t *frame = e->data[CORPUS_FRAME], *base = e->data[CORPUS_BASE];
    const size_t size = e->size[CORPUS_FRAME];
    bitsnap_status s;
    size_t i;
    for (i = 0; i < size; i++) {
        s = bitsnap_decode(b, out, info->count, info->dtype, frame, i);
        CHECK(s == BITSNAP_E_TRUNCATED, "%s cut at %lu: %s", e->name, (unsigned long)i, bitsnap_message(b));
    }
    for (i = 0; i < 8 * size && info->checks; i++) {
        frame[i / 8] ^= (uint8_t)(1 << i % 8);
        CHECK(bitsnap_decode(b, out, info->count, info->dtype, frame, size), "%s: bit %lu is not noticed", e->name, (unsigned long)i);
        frame[i / 8] ^= (uint8_t)(1 << i % 8);
    }
    for (i = 0; i < 8 * e->size[CORPUS_BASE] && info->checks; i++) {
        base[i / 8] ^= (uint8_t)(1 << i % 8);
        s = bitsnap_decode(b, out, info->count, info->dtype, frame, size);
        CHECK(s == BITSNAP_E_BASE && b->error.rule == BITSNAP_R_BASE_HASH, "%s: bit %lu of the base: R%u", e->name, (unsigned long)i, b->error.rule);
        base[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

/* The index and bitsnap_read_block pass over blocks of newer forms. All other blocks are decoded. */
static void passes_over(const corpus_entry *e, bitsnap *b, const bitsnap_info *info)
{
    static bitsnap_index index;
    bitsnap_source source;
    bitsnap_extent x;
    bitsnap_block block;
    uint64_t at, n = 0;
    memset(&source, 0, sizeof source);
    source.data = e->data[CORPUS_FRAME], source.size = e->size[CORPUS_FRAME];
    CHECK(!bitsnap_index_open(b, &index, NULL, &source) && info->frame_size == source.size, "%s: %s", e->name, bitsnap_message(b));
    for (at = 0; at < info->count; at += x.count) {
        CHECK(!bitsnap_index_find(b, &index, at, &x), "%s: %s", e->name, bitsnap_message(b));
        CHECK(!bitsnap_read_block(b, &block, info, at, e->data[CORPUS_FRAME] + x.offset, (size_t)x.size) && block.form == x.form, "%s", e->name);
        (void)bitsnap_index_decode(b, &index, out, at, x.count);
        CHECK(x.form > FORM_PATCHED ? b->error.status == BITSNAP_E_UNSUPPORTED && b->error.rule == BITSNAP_R_NEW_FORM : !b->error.status, "%s: %s", e->name, bitsnap_message(b));
        n += x.form > FORM_PATCHED;
        if (!x.count) break;
    }
    CHECK(n, "%s", e->name);
}

static void frame(corpus_entry *e)
{
    const uint8_t *f = e->data[CORPUS_FRAME];
    const size_t size = e->size[CORPUS_FRAME];
    const bitsnap_kernels *k;
    unsigned t;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        bitsnap b;
        bitsnap_info info;
        bitsnap_status s;
        memset(&b, 0, sizeof b);
        b.workspace = workspace;
        b.workspace_size = sizeof workspace;
        b.kernels = k;
        b.base = corpus_base(e);
        s = bitsnap_read_info(&info, f, size);
        CHECK(!s || e->rule, "%s", e->name);
        if (s || info.elements_size > sizeof out) s = bitsnap_test(&b, f, size);
        else if (e->rule == BITSNAP_R_INDEX_END) s = bitsnap_decode_range(&b, out, info.count - 1, 1, info.dtype, f, size);
        else s = bitsnap_decode(&b, out, info.count, info.dtype, f, size);
        if (e->rule) {
            CHECK(s == (e->rule == BITSNAP_R_NEW_FORM ? BITSNAP_E_UNSUPPORTED : s) && s && (b.error.rule == e->rule || e->rule == BITSNAP_R_INDEX_SIZE), "%s: R%u, not R%u", e->name, b.error.rule, e->rule); /* 39: FORMAT.md 9 */
            if (e->rule == BITSNAP_R_NEW_FORM) passes_over(e, &b, &info);
            continue;
        }
        CHECK(!s && bitsnap_hash(out, (size_t)info.elements_size) == corpus_hash(e), "%s: R%u %s", e->name, b.error.rule, bitsnap_message(&b));
        if (size <= SMALL && info.elements_size <= ELEMENTS && e->size[CORPUS_BASE] <= ELEMENTS / 16) damage(e, &b, &info);
    }
    if (e->rule) rejected++;
    else good++;
    deltas += !e->rule && e->has[CORPUS_BASE];
}

static void one(corpus_entry *e)
{
    if (e->has[CORPUS_FRAME]) frame(e);
    if (e->has[CORPUS_BYTES]) {
        CHECK(e->size[CORPUS_XXH3] == 8 && bitsnap_hash(e->data[CORPUS_BYTES], e->size[CORPUS_BYTES]) == corpus_hash(e), "%s", e->name);
        hashes++;
    }
}

static void entries(void)
{
    static corpus_entry e;
    CHECK(corpus_each(&e, one), "docs/vectors and tests/format/corpus.txt are read from the project's folder; %s", e.name);
    CHECK(good >= 200 && rejected >= 350 && deltas >= 60 && hashes >= 30, "%u good, %u of them with a base, %u rejected, %u hashes", good, deltas, rejected, hashes);
}

int main(void)
{
    test_program = "corpus";
    if (test_big_endian()) {
        SKIP("entries", "the elements of the corpus are little-endian");
        return 0;
    }
    RUN(entries);
    return test_failures != 0;
}
