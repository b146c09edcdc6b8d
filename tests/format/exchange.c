/* The C side of the agreement with tests/format/decoder.py and tests/format/generate.py.
 *   exchange read DIR         decodes what generate.py wrote: v* must give their elements, x*-R<rule> must be rejected
 *   exchange write DIR SEED   writes frames of every kind that the encoder makes (v*), and damaged ones with what we
 *                             make of them (m*, and n* for those read without heeding checks), for decoder.py
 * The base of a delta is in NAME.base: one byte, the dtype, and then the elements. The elements that a quantized frame was made
 * of are in NAME.given. */
#include "tests/unit/test.h"
#define BITSNAP_IMPLEMENTATION
#include "tests/unit/inside.h"
#include "tests/unit/data.h"
#include <dirent.h>

static uint8_t *slurp(const char *directory, const char *name, size_t *size)
{
    char path[4096];
    FILE *f;
    uint8_t *p = NULL;
    long n;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    f = fopen(path, "rb");
    if (!f) return NULL;
    if (!fseek(f, 0, SEEK_END) && (n = ftell(f)) >= 0 && !fseek(f, 0, SEEK_SET) && (p = (uint8_t *)malloc((size_t)n + 1)) != NULL)
        *size = fread(p, 1, (size_t)n, f);
    fclose(f);
    return p;
}

static void spill(const char *directory, const char *name, const void *p, size_t size)
{
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    f = fopen(path, "wb");
    if (!f || fwrite(p, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
}

static bitsnap codec(void)
{
    static uint8_t *workspace;
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace_size = test_workspace_delta(20, 1);
    if (!workspace) workspace = (uint8_t *)malloc(b.workspace_size);
    b.workspace = workspace;
    return b;
}

/* Reads the base of the frame `name`; the caller frees it. Null if the frame has no base. */
static uint8_t *read_base(bitsnap_base *base, const char *directory, const char *name)
{
    char other[300];
    size_t size;
    uint8_t *p;
    memset(base, 0, sizeof *base);
    snprintf(other, sizeof other, "%.*s.base", (int)(strlen(name) - 6), name);
    p = slurp(directory, other, &size);
    if (!p) return NULL;
    base->data = p + 1;
    base->dtype = (bitsnap_dtype)p[0];
    base->count = (size - 1) / bitsnap_width(base->dtype);
    return p;
}

static unsigned valid, invalid;

/* 1 if this is the expected rule, or one that applies as well. The index may be read from either side. */
static int agrees(unsigned expected, unsigned rule) { return rule == expected || expected == 39 || expected == 41; }

/* FORMAT.md, section 9 */
static bitsnap_status status_of(unsigned rule)
{
    return rule == 1 ? BITSNAP_E_MAGIC : rule <= 4 || rule == 13 || rule == 14 || rule == 23 || rule == 35 || rule == 54 ? BITSNAP_E_UNSUPPORTED : rule == 6 ? BITSNAP_E_TRUNCATED : rule == 7 ? BITSNAP_E_TRAILING :
           rule <= 12 || rule == 45 || rule == 53 ? BITSNAP_E_CHECK : rule == 43 || rule == 44 ? BITSNAP_E_BASE : BITSNAP_E_CORRUPT;
}

static void read_one(const char *directory, const char *name)
{
    size_t size, elements_size;
    uint8_t *frame = slurp(directory, name, &size), *elements, *out, *base;
    const bitsnap_kernels *k;
    char other[300];
    unsigned t, rule;
    bitsnap b = codec();
    bitsnap_info info;
    base = read_base(&b.base, directory, name);
    if (name[0] == 'v') {
        snprintf(other, sizeof other, "%.*s.elements", (int)(strlen(name) - 6), name);
        elements = slurp(directory, other, &elements_size);
        CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK, "%s", name);
        for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
            b.kernels = k;
            b.base.id = t % 2 ? info.base_id : 0;
            CHECK(bitsnap_test(&b, frame, size) == BITSNAP_OK, "%s: %s, R%u at %llu", name, bitsnap_message(&b), b.error.rule,
                  (unsigned long long)b.error.offset);
            if (!elements) continue;
            CHECK(elements_size == info.elements_size, "%s", name);
            out = (uint8_t *)malloc(elements_size + 1);
            CHECK(bitsnap_decode(&b, out, info.count, info.dtype, frame, size) == BITSNAP_OK, "%s on %s: %s, R%u at %llu", name,
                  bitsnap_kernels_name(k), bitsnap_message(&b), b.error.rule, (unsigned long long)b.error.offset);
            CHECK(!memcmp(out, elements, elements_size), "%s on %s: other elements", name, bitsnap_kernels_name(k));
            if (info.count) {
                const uint64_t first = test_below((size_t)info.count), n = 1 + test_below((size_t)(info.count - first));
                CHECK(bitsnap_decode_range(&b, out, first, n, info.dtype, frame, size) == BITSNAP_OK, "%s", name);
                CHECK(!memcmp(out, elements + first * info.width, (size_t)n * info.width), "%s: range", name);
            }
            free(out);
        }
        free(elements);
        valid++;
    } else {
        rule = (unsigned)atoi(strstr(name, "-R") + 2);
        for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
            bitsnap_status s;
            b.kernels = k;
            s = bitsnap_test(&b, frame, size);
            if (rule == 12 && s == BITSNAP_OK && bitsnap_read_info(&info, frame, size) == BITSNAP_OK) { /* needs the elements */
                out = (uint8_t *)malloc((size_t)info.elements_size + 1);
                s = bitsnap_decode(&b, out, info.count, info.dtype, frame, size);
                free(out);
            }
            if (rule == 41 && bitsnap_read_info(&info, frame, size) == BITSNAP_OK) { /* only readers of the index find it */
                out = (uint8_t *)malloc(8);
                CHECK(bitsnap_decode_range(&b, out, info.count - 1, 1, info.dtype, frame, size) != BITSNAP_OK && b.error.rule == BITSNAP_R_INDEX_END, "%s: R%u", name, b.error.rule);
                free(out);
            }
            CHECK(s != BITSNAP_OK, "%s is accepted on %s", name, bitsnap_kernels_name(k));
            CHECK(agrees(rule, b.error.rule) || s == BITSNAP_OK, "%s: R%u", name, b.error.rule);
            CHECK(s == status_of(b.error.rule) || rule == 41, "%s: status %d for R%u", name, (int)s, b.error.rule);
            CHECK(b.error.offset <= size, "%s: offset", name);
        }
        invalid++;
    }
    free(frame);
    free(base);
}

static void read_all(const char *directory)
{
    struct dirent *e;
    DIR *d = opendir(directory);
    size_t length;
    if (!d) {
        perror(directory);
        exit(1);
    }
    while ((e = readdir(d)) != NULL) {
        length = strlen(e->d_name);
        if (length > 6 && !strcmp(e->d_name + length - 6, ".frame") && (e->d_name[0] == 'v' || e->d_name[0] == 'x'))
            read_one(directory, e->d_name);
    }
    closedir(d);
    printf("%s - exchange: %u valid and %u invalid frames of the generator\n", test_failures ? "not ok" : "ok", valid, invalid);
}

static void spill_base(const char *directory, const char *name, const bitsnap_base *base)
{
    const size_t size = (size_t)base->count * bitsnap_width(base->dtype);
    uint8_t *p = (uint8_t *)malloc(size + 1);
    p[0] = (uint8_t)base->dtype;
    if (size) memcpy(p + 1, base->data, size);
    spill(directory, name, p, size + 1);
    free(p);
}

/* copy: as large as the frame; out: 2^20 bytes */
static void damage(const char *directory, unsigned number, const uint8_t *frame, size_t size, const bitsnap_base *base, uint8_t *copy, uint8_t *out)
{
    unsigned i;
    char name[64];
    for (i = 0; i < 6; i++) { /* usually after the header */
        const unsigned heed = i == 0;
        unsigned changes = 1 + (unsigned)test_below(3);
        size_t cut = size;
        bitsnap d = codec();
        d.base = *base;
        d.base.id = 0; /* a known id would also be compared with that in the frame */
        memcpy(copy, frame, size);
        while (changes--) copy[test_below(8) ? 24 + test_below(size - 24 ? size - 24 : 1) % (size > 24 ? size - 24 : 1) : test_below(size)] ^= (uint8_t)(1u << test_below(8));
        if (test_below(20) == 0) cut = test_below(size);
        d.flags = heed ? 0 : BITSNAP_IGNORE_CHECKS;
        snprintf(name, sizeof name, "%c%05u.frame", heed ? 'm' : 'n', number * 10 + i);
        spill(directory, name, copy, cut);
        snprintf(name, sizeof name, "%c%05u.base", heed ? 'm' : 'n', number * 10 + i);
        if (base->data) spill_base(directory, name, base);
        if (cut >= 24 && bitsnap_width((bitsnap_dtype)copy[5]) && bsn_load64(copy + 8) <= (1 << 20) / 8 &&
            bitsnap_decode(&d, out, bsn_load64(copy + 8), (bitsnap_dtype)copy[5], copy, cut) == BITSNAP_OK) {
            snprintf(name, sizeof name, "%c%05u.elements", heed ? 'm' : 'n', number * 10 + i);
            spill(directory, name, out, (size_t)bsn_load64(copy + 8) * bitsnap_width((bitsnap_dtype)copy[5]));
        }
    }
}

/* Changes an element of a base in one of several ways. */
static uint64_t changed(uint64_t v, unsigned dtype, int how)
{
    static const unsigned exponents[12] = { 0, 0, 0, 0, 0, 0, 4, 5, 5, 8, 8, 11 };
    const unsigned bits = 8 * bitsnap_width((bitsnap_dtype)dtype), top = exponents[dtype];
    const uint64_t all = bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1, r = test_random();
    switch (how) {
    case 0: return v;                                                     /* none */
    case 1: return test_below(50) ? v : (v + 1) & all;                    /* a few elements */
    case 2: return (v + (r & 7) - 3) & all;                               /* all, by little */
    case 3: return (v + (r >> (8 + test_below(56)))) & all;               /* all, by any amount */
    case 4: return test_below(30) ? (v - (r & 1)) & all : r & all;        /* most by little, some to anything */
    case 5: return test_below(9) ? v : (v ^ (uint64_t)1 << (bits - 1)) & all; /* signs */
    case 6: return r & all;
    default: { /* Like a training step: every element changes by about the same amount, so more bits of small numbers change. */
        const int64_t exponent = top ? (int64_t)(v >> (bits - 1 - top) & ((1u << top) - 1)) : 0, octave = (1 << (top ? top - 1 : 0)) - 4 - exponent;
        const unsigned places = octave < 0 ? 0 : octave > 20 ? 20 : (unsigned)octave;
        return (v + (r >> 8 & (((uint64_t)2 << places) - 1)) - ((uint64_t)1 << places)) & all;
    }
    }
}

static void write_deltas(const char *directory, unsigned number)
{
    unsigned round, deltas = 0;
    for (round = 0; round < 220; round++) {
        const unsigned dtype = 1 + round % 11, width = bitsnap_width((bitsnap_dtype)dtype);
        const int cast = (dtype == BITSNAP_F16 || dtype == BITSNAP_BF16) && round / 11 % 2, step = round % 9 == 4 && dtype >= BITSNAP_F8_E4M3;
        const int how = step ? 7 : (int)(round / 11 % 7), large = !step && round % 20 == 7 && width <= 2;
        const unsigned base_dtype = cast ? BITSNAP_F32 : dtype, base_width = bitsnap_width((bitsnap_dtype)base_dtype);
        const size_t n = step ? (round % 4 ? 2000 + test_below(6000) : 30000) : large ? 65536 + test_below(70000) : round % 37 == 0 ? test_below(3) : test_below(round % 7 ? 700 : 5000);
        const size_t bound = test_bound(n, (bitsnap_dtype)dtype);
        uint8_t *given = (uint8_t *)malloc(n * base_width + 1), *elements = (uint8_t *)malloc(n * width + 1), *frame = (uint8_t *)malloc(bound);
        uint8_t *copy = (uint8_t *)malloc(bound), *out = (uint8_t *)malloc(1 << 20);
        bitsnap b = codec();
        bitsnap_info info;
        size_t size, j;
        char name[64];
        data_fill(given, n, base_dtype, step ? DATA_WEIGHTS : (int)test_below(DATA_SHAPES));
        for (j = 0; j < n; j++) {
            uint64_t v = 0;
            if (cast) v = (uint64_t)given[4 * j + 2] | (uint64_t)given[4 * j + 3] << 8; /* the base rounds almost to this */
            else memcpy(&v, given + j * width, width);
            v = changed(v, dtype, large && j < 65536 ? 0 : how);
            memcpy(elements + j * width, &v, width);
        }
        b.level = (int)(round % 4);
        b.block_log2 = large ? 16 : round % 4 ? 0 : 16 + (unsigned)test_below(5);
        b.flags = round % 5 == 0 ? BITSNAP_SELF_CONTAINED : round % 5 == 1 ? BITSNAP_VERIFY : 0;
        b.base.data = given;
        b.base.count = n;
        b.base.dtype = (bitsnap_dtype)base_dtype;
        if (round % 2) b.base.id = bitsnap_content_id(given, n, b.base.dtype);
        CHECK(bitsnap_encode(&b, frame, bound, &size, elements, n, (bitsnap_dtype)dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.has_base && info.same + info.sparse + info.classed + info.plain == info.blocks);
        deltas += info.same + info.sparse + info.classed > 0;
        snprintf(name, sizeof name, "v%05u.frame", ++number);
        spill(directory, name, frame, size);
        snprintf(name, sizeof name, "v%05u.elements", number);
        spill(directory, name, elements, n * width);
        snprintf(name, sizeof name, "v%05u.base", number);
        spill_base(directory, name, &b.base);
        if (!large && !step) damage(directory, number, frame, size, &b.base, copy, out);
        free(given);
        free(elements);
        free(frame);
        free(copy);
        free(out);
    }
    CHECK(deltas > 100, "%u", deltas);
    printf("%s - exchange: %u frames with a base written\n", test_failures ? "not ok" : "ok", round);
}

/* Scales an element by its row and its column. Neighbouring rows and columns differ in scale. */
static uint64_t scaled(uint64_t v, unsigned dtype, size_t row, size_t column)
{
    const unsigned top = dtype == BITSNAP_F64 ? 11 : dtype == BITSNAP_F16 ? 5 : 8, m = 8 * bitsnap_width((bitsnap_dtype)dtype) - 1 - top;
    const uint64_t exponent = v >> m & ((1u << top) - 1), more = (row * 7 % 5 + column * 11 % 7) / (dtype == BITSNAP_F16 ? 3 : 1);
    return exponent > 12 && exponent < (1u << top) - 2 ? v - (more << m) : v;
}

/* Writes quantized frames and frames with columns. */
static void write_quantized(const char *directory, unsigned number)
{
    static const unsigned cells[16] = { 1, 0, 8, 0, 35, 0, 0, 70, 3, 0, 0, 257, 0, 2048, 0, 0 };
    static const unsigned clusters[16] = { 0, 0, 0, 16, 0, 0, 256, 0, 0, 0, 2, 0, 77, 0, 0, 3 };
    unsigned round, forms[8] = { 0, 0, 0, 0, 0, 0, 0, 0 };
    for (round = 0; round < 480; round++) {
        const unsigned dtype = BITSNAP_F16 + round % 4, width = bitsnap_width((bitsnap_dtype)dtype);
        const size_t n = round % 5 == 0 ? 1000 + test_below(5000) : round % 23 == 0 ? test_below(3) : test_below(600), bound = n * width + 16 * (n / 64 + 2) + 192;
        uint8_t *given = (uint8_t *)malloc(n * width + 1), *elements = (uint8_t *)malloc(n * width + 1), *frame = (uint8_t *)malloc(bound);
        uint8_t *copy = (uint8_t *)malloc(bound), *out = (uint8_t *)malloc(1 << 20);
        bitsnap b = codec();
        size_t size, j;
        char name[64];
        b.quantizer.bins = cells[round / 4 % 16];
        b.quantizer.clusters = clusters[round / 4 % 16];
        b.columns = round % 3 == 0 ? 0 : round % 9 == 1 ? 1 + test_below(n + 20) : 16 + test_below(n / 10 + 4);
        b.level = b.quantizer.bins || b.quantizer.clusters ? (int)(round % 4) : BITSNAP_BEST;
        b.block_log2 = round % 4 == 0 ? 0 : 6 + (unsigned)test_below(8);
        b.flags = round % 5 == 1 ? BITSNAP_NO_CHECKS : 0;
        data_fill(given, n, dtype, round % 7 < 4 ? (round % 7 == 3 ? DATA_POSITIVE : DATA_WEIGHTS) : (int)test_below(DATA_SHAPES));
        for (j = 0; j < n && b.columns && round % 3; j++) {
            uint64_t v = 0;
            memcpy(&v, given + j * width, width);
            v = scaled(v, dtype, j / (size_t)b.columns, j % (size_t)b.columns);
            memcpy(given + j * width, &v, width);
        }
        CHECK(bitsnap_encode(&b, frame, bound, &size, given, n, (bitsnap_dtype)dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
        CHECK(bitsnap_decode(&b, elements, n, (bitsnap_dtype)dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
        if (n) forms[frame[24 + (frame[7] & 128 ? 2u + frame[16] : 0u)] & 7]++;
        snprintf(name, sizeof name, "v%05u.frame", ++number);
        spill(directory, name, frame, size);
        snprintf(name, sizeof name, "v%05u.elements", number);
        spill(directory, name, elements, n * width);
        snprintf(name, sizeof name, "v%05u.given", number);
        if (b.quantizer.bins || b.quantizer.clusters) spill(directory, name, given, n * width);
        damage(directory, number, frame, size, &b.base, copy, out);
        free(given);
        free(elements);
        free(frame);
        free(copy);
        free(out);
    }
    CHECK(forms[6] > 5 && forms[7] > 50, "%u SCALED, %u QUANTIZED", forms[6], forms[7]);
    printf("%s - exchange: %u quantized frames or with columns written\n", test_failures ? "not ok" : "ok", round);
}

static void write_all(const char *directory)
{
    unsigned number = 0, round;
    for (round = 0; round < 300; round++) {
        const unsigned dtype = 1 + round % 11, width = bitsnap_width((bitsnap_dtype)dtype);
        const size_t n = round % 7 == 0 ? test_below(6000) : test_below(500), bound = n * width + 20 * (n / 64 + 2) + 96;
        uint8_t *elements = (uint8_t *)malloc(n * width + 1), *frame = (uint8_t *)malloc(bound), *copy = (uint8_t *)malloc(bound), *out = (uint8_t *)malloc(1 << 20);
        bitsnap b = codec();
        size_t size;
        char name[64];
        data_fill(elements, n, dtype, (int)(round / 11 % DATA_SHAPES));
        b.level = (int)(round % 4);
        b.block_log2 = round % 4 == 0 ? 0 : 6 + (unsigned)test_below(4);
        b.flags = round % 5 == 0 ? BITSNAP_CONTENT_ID : round % 5 == 1 ? BITSNAP_NO_CHECKS : 0;
        CHECK(bitsnap_encode(&b, frame, bound, &size, elements, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
        snprintf(name, sizeof name, "v%05u.frame", ++number);
        spill(directory, name, frame, size);
        snprintf(name, sizeof name, "v%05u.elements", number);
        spill(directory, name, elements, n * width);
        damage(directory, number, frame, size, &b.base, copy, out);
        free(elements);
        free(frame);
        free(copy);
        free(out);
    }
    printf("%s - exchange: %u frames written\n", test_failures ? "not ok" : "ok", number);
    write_deltas(directory, number);
    write_quantized(directory, number + 1000);
}

int main(int argc, char **argv)
{
    test_program = "exchange";
    if (argc == 3 && !strcmp(argv[1], "read")) read_all(argv[2]);
    else if (argc == 4 && !strcmp(argv[1], "write")) test_state = (uint64_t)atoi(argv[3]), write_all(argv[2]);
    else {
        fprintf(stderr, "exchange read DIR | exchange write DIR SEED\n");
        return 2;
    }
    return test_failures != 0;
}
