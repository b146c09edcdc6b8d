/* docs/tour.c, the decoder to read beside FORMAT.md: it agrees with the corpus and with bitsnap.h, and rejects damaged frames. */
#include "tests/unit/data.h"
#define main tour_main
#include "docs/tour.c"
#undef main
#include "bitsnap.h"
#include "corpus.h"

#define MOST ((size_t)1 << 23)
#define MOST_LINES 345

static unsigned decoded, rejected, critical;

/* Decodes from memory that ends at a guard page. The result is in `elements` until free(memory). */
static int tour(const uint8_t *source, size_t size)
{
    static guarded g;
    if (!g.p) g = guarded_alloc(MOST, 0);
    return decode(memcpy(g.p + MOST - size, source, size), size, MOST);
}

static int ends_without_error(const uint8_t *source, size_t size)
{
    const int done = tour(source, size);
    free(memory);
    return done;
}

/* 1 if a frame has an extension of type 128 or above. */
static int has_critical(const uint8_t *f, size_t size)
{
    size_t i = 18, stop = size < 18 || !(f[7] & 128) ? 0 : 18u + f[16] + 256u * f[17];
    for (; i + 2 < stop && i + 2 < size; i += 3u + f[i + 1] + 256u * f[i + 2])
        if (f[i] >= 128) return 1;
    return 0;
}

/* 1 if `why` names the condition. tour.c reads forwards, so it cannot find R41 and some R39; these always pass. */
static int names(unsigned rule)
{
    char name[16];
    const char *p = why;
    snprintf(name, sizeof name, "R%u", rule);
    for (; (p = strstr(p, name)) != NULL; p++)
        if (p[strlen(name)] < '0' || p[strlen(name)] > '9') return 1;
    return rule == 39 || rule == 41;
}

static void one_vector(corpus_entry *v)
{
    uint8_t *f = v->data[CORPUS_FRAME];
    const size_t size = v->size[CORPUS_FRAME];
    const int checked = size > 7 && f[7] & 1;
    size_t i, step = 1; /* tries one of 1 to `step` bits and bytes; all of them if that is quick */
    int done;
    if (!v->has[CORPUS_FRAME]) return;
    done = tour(f, size);
    if (has_critical(f, size)) {
        CHECK(!done && (names(3) || names(v->rule)), "%s: %s", v->name, done ? "decoded" : why);
        critical++;
    } else if (v->rule) {
        CHECK(!done && names(v->rule), "%s: %s, not R%u", v->name, done ? "decoded" : why, v->rule);
        rejected++;
    } else {
        CHECK(done, "%s: %s", v->name, why);
        CHECK(!done || bitsnap_hash(elements, (size_t)count * w) == corpus_hash(v), "%s", v->name);
        decoded++;
    }
    free(memory);
    if (done ? count * w * size > 1 << 20 : size > 1000) step = size;
    for (i = 0; i < size; i += 1 + test_below(step)) {
        done = ends_without_error(f, i);
        CHECK(!done || v->rule, "%s: the first %zu bytes", v->name, i);
    }
    for (i = 0; i < 8 * size; i += 1 + test_below(8 * step - 7)) {
        f[i / 8] ^= (uint8_t)(1 << i % 8);
        done = ends_without_error(f, size);
        CHECK(!done || !checked || v->rule, "%s: bit %zu is flipped", v->name, i);
        f[i / 8] ^= (uint8_t)(1 << i % 8);
    }
}

static void vectors(void)
{
    static corpus_entry v;
    CHECK(corpus_each(&v, one_vector), "docs/vectors and tests/format/corpus.txt are read from the project's folder; %s", v.name);
    CHECK(decoded >= 80 && rejected >= 90 && critical >= 90, "%u decoded, %u rejected, %u critical", decoded, rejected, critical);
}

/* Elements of one shape; shape DATA_SHAPES: all are NaN. */
static void fill(uint8_t *to, size_t n, unsigned of, int shape)
{
    size_t i;
    data_fill(to, n, of, shape == DATA_SHAPES ? DATA_NOISE : shape);
    for (i = 0; shape == DATA_SHAPES && i < n; i++) {
        uint8_t *top = to + (i + 1) * widths[of] - 2;
        top[0] |= 0xC0, top[1] |= 0x7F;
    }
}

static void frames(void)
{
    static const size_t sizes[] = { 0, 1, 15, 16, 17, 63, 64, 65, 1000, 65536, 65537, 200000 };
    static const int shapes[] = { DATA_NOISE, DATA_WEIGHTS, DATA_CONSTANT, DATA_STEPS, DATA_SHAPES, DATA_SIGNED };
    static uint8_t from[200000 * 4], frame_of[200000 * 8];
    static uint8_t workspace[1 << 22];
    unsigned i, forms = 0, of, shape;
    for (of = 1; of <= BITSNAP_F64; of++)
        for (shape = 0; shape < 6; shape++)
            for (i = 0; i < 12; i++) {
                bitsnap b = { 0 };
                const size_t n = sizes[i];
                size_t size = 0, first;
                unsigned level;
                if (n > 1000 && of != BITSNAP_BF16 && of != BITSNAP_F32) continue;
                if (shapes[shape] == DATA_SHAPES && of != BITSNAP_BF16 && of != BITSNAP_F32) continue;
                fill(from, n, of, shapes[shape]);
                b.workspace = workspace;
                b.workspace_size = sizeof workspace;
                for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
                    b.level = (int)level;
                    b.flags = (i + level) % 3 ? BITSNAP_CONTENT_ID : i % 2 ? BITSNAP_NO_CHECKS : 0;
                    b.block_log2 = n == 200000 && level == BITSNAP_FAST && shape < 4 ? 6 : 0; /* 3,125 blocks: an index of two levels */
                    CHECK(!bitsnap_encode(&b, frame_of, sizeof frame_of, &size, from, n, (bitsnap_dtype)of), "%s", bitsnap_message(&b));
                    CHECK(tour(frame_of, size), "dtype %u, shape %u, %zu elements: %s", of, shape, n, why);
                    CHECK(count == n && dtype == of && !memcmp(elements, from, n * widths[of]), "dtype %u, shape %u, %zu elements", of, shape, n);
                    free(memory);
                    first = 24 + (n > 0 ? 0 : size);
                    if (first < size) forms |= 1u << frame_of[first];
                }
            }
    CHECK(forms == (1 << STORED | 1 << CONST | 1 << SPLIT | 1 << BYTES | 1 << ZIGZAG | 1 << PARTED), "forms %X of first blocks", forms);
}

static void lines(void)
{
    FILE *f = fopen("docs/tour.c", "r");
    unsigned n = 0;
    int c;
    CHECK(f, "docs/tour.c is read from the project's folder");
    while (f && (c = getc(f)) != EOF) n += c == '\n';
    CHECK(n <= MOST_LINES, "docs/tour.c has %u lines", n);
    if (f) fclose(f);
}

int main(void)
{
    test_program = "tour";
    if (test_big_endian()) {
        SKIP("tour", "the elements of the corpus are little-endian");
        return 0;
    }
    RUN(vectors);
    RUN(frames);
    RUN(lines);
    return test_failures != 0;
}
