/* QUANTIZE: thresholds and bounds match their formulas. The bound holds for all numbers, and infinities and NaNs are kept
 * exactly. Frames with columns or a quantizer round-trip on every table, and their certificates are true. QUANTIZE_ALL=1 tests
 * all 2^32 patterns of F32, alone with portable code and in frames with the fastest table, on all processors; this takes
 * minutes. Otherwise 2^22 patterns. */
#include "test.h"
#include "inside.h"
#include "data.h"
#include <float.h>
#include <sys/wait.h>
#include <unistd.h>
#include <math.h>

#define UNIT (1.0 / 16777216)

static const unsigned floats[4] = { BITSNAP_F16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
static const unsigned mantissas[4] = { 10, 7, 23, 52 };

static bitsnap fresh(unsigned workers)
{
    static uint8_t *memory[5];
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workers = workers;
    b.workspace_size = test_workspace_delta(20, workers);
    if (!memory[workers]) {
        memory[workers] = (uint8_t *)malloc(b.workspace_size);
        memset(memory[workers], 0xB7, b.workspace_size); /* sanitizers take bytes moved by XOR for uninitialised ones */
    }
    b.workspace = memory[workers];
    return b;
}

static uint64_t load(const uint8_t *p, size_t i, unsigned w)
{
    uint16_t h;
    uint32_t s;
    uint64_t d;
    if (w == 2) return memcpy(&h, p + 2 * i, 2), h;
    if (w == 4) return memcpy(&s, p + 4 * i, 4), s;
    return memcpy(&d, p + 8 * i, 8), d;
}

/* 0: zero; 1: number; 2: infinity or NaN */
static int kind(uint64_t v, unsigned f)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]), m = mantissas[f];
    const uint64_t magnitude = v & (~(uint64_t)0 >> (65 - 8 * w)), top = (~(uint64_t)0 >> (65 - 8 * w)) >> m;
    return magnitude == 0 ? 0 : magnitude >> m == top ? 2 : 1;
}

/* The value of a number. */
static long double value(uint64_t v, unsigned f)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]), m = mantissas[f], bits = 8 * w - 1 - m;
    const int exponent = (int)(v >> m & ((1u << bits) - 1)), bias = (1 << (bits - 1)) - 1;
    const uint64_t mantissa = v & (((uint64_t)1 << m) - 1);
    const long double x = ldexpl((long double)(exponent ? mantissa | (uint64_t)1 << m : mantissa), (exponent ? exponent : 1) - bias - (int)m);
    return v >> (8 * w - 1) ? -x : x;
}

/* 1 if y is within the bound of x. Products have up to 23 and 53 bits, so for F64 the last bit of a long double may be
 * missing. */
static int near(uint64_t x, uint64_t y, unsigned f, long double bound)
{
    long double a, b;
    if (x == y) return 1;
    if (kind(x, f) != 1 || kind(y, f) != 1) return 0;
    a = value(x, f);
    b = value(y, f);
    if ((a < 0) != (b < 0)) return 0;
    return fabsl(a - b) <= bound * fabsl(a) * (1 + 1e-18L);
}

/* Returns the size of a body from its head. */
static size_t body_of(uint32_t head, unsigned width) { return (head & 255) == FORM_CONST ? width : head >> 8; }

/* ---- the numbers of the quantizer ---- */

static void thresholds(void)
{
    static uint32_t threshold[2049], center[2048];
    unsigned n, j;
    for (n = 1; n <= 2048; n++) {
        const long double exact = tanhl(logl(2) / (2 * (long double)n)), bound = bitsnap_log_bound(n);
        uint32_t most = 0;
        CHECK(bound >= exact && bound < exact + 4 * UNIT, "n %u: %.12Lf is not about %.12Lf", n, bound, exact);
        inside_log(threshold, center, n);
        for (j = 0; j <= n; j++) {
            CHECK((long double)threshold[j] == ceill(exp2l(23 + (long double)j / n)), "n %u: threshold %u", n, j);
            if (j == n) break;
            CHECK(center[j] > threshold[j] && center[j] < threshold[j + 1], "n %u: cell %u", n, j);
            CHECK((center[j] - threshold[j]) / (double)threshold[j] <= (double)bound, "n %u: cell %u", n, j);
            CHECK((threshold[j + 1] - center[j]) / (double)threshold[j + 1] <= (double)bound, "n %u: cell %u", n, j);
            if (threshold[j + 1] - threshold[j] > most) most = threshold[j + 1] - threshold[j];
        }
    }
    CHECK(bitsnap_log_bound(0) == 0 && bitsnap_log_bound(2049) == 0);
}

static void least_cells(void)
{
    static double bound[2049];
    unsigned n, m;
    for (n = 1; n <= 2048; n++) bound[n] = bitsnap_log_bound(n);
    for (n = 1; n <= 2048; n++) {
        const double errors[3] = { bound[n], bound[n] - UNIT, bound[n] + UNIT / 3 };
        unsigned k;
        for (k = 0; k < 3; k++) {
            for (m = 1; m <= 2048 && bound[m] > errors[k]; m++) { }
            CHECK(bitsnap_log_bins(errors[k]) == (m <= 2048 ? m : 0), "n %u: %u cells for %.9f, not %u", n, bitsnap_log_bins(errors[k]), errors[k], m);
        }
    }
    CHECK(bitsnap_log_bins(0) == 0 && bitsnap_log_bins(-1) == 0 && bitsnap_log_bins(NAN) == 0 && bitsnap_log_bins(1e-30) == 0);
    CHECK(bitsnap_log_bins(1) == 1 && bitsnap_log_bins(HUGE_VAL) == 1 && bitsnap_log_bins(0.34) == 1 && bitsnap_log_bins(1e300) == 1);
}

/* ---- patterns ---- */

#define SOME 65536u

static uint32_t codes[SOME], again[SOME];
static uint8_t back[8 * SOME], once_more[8 * SOME];

/* Quantizes n elements without a frame. The results are in `back`. */
static void patterns_alone(const uint8_t *elements, size_t n, unsigned f, unsigned cells)
{
    const bitsnap_dtype dtype = (bitsnap_dtype)floats[f];
    const unsigned w = bitsnap_width(dtype);
    const double bound = bitsnap_log_bound(cells);
    size_t i, wrong = n;
    inside_log_codes(codes, elements, n, dtype, cells);
    CHECK(inside_log_elements(back, codes, elements, n, dtype, cells));
    if (f == 2) { /* many elements: a double holds products of 23 and 24 bits exactly */
        for (i = 0; i < n; i++) {
            const uint32_t x = (uint32_t)load(elements, i, 4), y = (uint32_t)load(back, i, 4);
            float a, b;
            if (x == y) continue;
            memcpy(&a, &x, 4);
            memcpy(&b, &y, 4);
            if ((x ^ y) >> 31 || !(y << 1) || (x >> 23 & 255) == 255 || (y >> 23 & 255) == 255 ||
                fabs((double)a - (double)b) > bound * fabs((double)a))
                wrong = i;
        }
    } else {
        for (i = 0; i < n; i++)
            if (!near(load(elements, i, w), load(back, i, w), f, bound)) wrong = i;
    }
    CHECK(wrong == n, "%s, %u cells: %llX becomes %llX", bitsnap_dtype_name(dtype), cells, (unsigned long long)load(elements, wrong, w), (unsigned long long)load(back, wrong, w));
    inside_log_codes(again, back, n, dtype, cells);
    CHECK(inside_log_elements(once_more, again, back, n, dtype, cells));
    CHECK(!memcmp(back, once_more, n * w), "%s, %u cells: not the same when done again", bitsnap_dtype_name(dtype), cells);
    CHECK(!memcmp(codes, again, n * 4), "%s, %u cells: other codes when done again", bitsnap_dtype_name(dtype), cells);
}

/* Quantizes the same elements in a frame, with a kernel table. Each result equals the one in `back`, or is the exact element. */
static void patterns_in_frames(const bitsnap_kernels *k, const uint8_t *elements, size_t n, unsigned f, unsigned cells)
{
    static uint8_t frame[8 * SOME + 4096], out[8 * SOME];
    const bitsnap_dtype dtype = (bitsnap_dtype)floats[f];
    const unsigned w = bitsnap_width(dtype);
    bitsnap b = fresh(1);
    size_t size, i, wrong = n;
    b.kernels = k;
    b.quantizer.bins = cells;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, n, dtype) == BITSNAP_OK, "%s", bitsnap_message(&b));
    CHECK(bitsnap_decode(&b, out, n, dtype, frame, size) == BITSNAP_OK, "%s", bitsnap_message(&b));
    if (!memcmp(out, back, n * w)) return;
    for (i = 0; i < n; i++)
        if (memcmp(out + i * w, back + i * w, w) && memcmp(out + i * w, elements + i * w, w)) wrong = i;
    CHECK(wrong == n, "%s, %u cells, %s: %llX becomes %llX", bitsnap_dtype_name(dtype), cells, k ? bitsnap_kernels_name(k) : "fastest",
          (unsigned long long)load(elements, wrong, w), (unsigned long long)load(out, wrong, w));
}

static void patterns(const uint8_t *elements, size_t n, unsigned f, unsigned cells)
{
    const bitsnap_kernels *k;
    unsigned t;
    patterns_alone(elements, n, f, cells);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) patterns_in_frames(k, elements, n, f, cells);
}

/* Makes every sign and exponent, with mantissas at the ends, near thresholds, and at random. */
static void fill_patterns(uint8_t *p, size_t n, unsigned f, unsigned cells, unsigned top)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]), m = mantissas[f];
    const uint64_t all = ((uint64_t)1 << m) - 1;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint64_t t = (uint64_t)ceill(exp2l(23 + (long double)test_below(cells + 1) / cells)), r = test_random();
        uint64_t v;
        switch (i < 8 ? i : 8 + test_below(8)) {
        case 0: v = 0; break;
        case 1: v = 1; break;
        case 2: v = 2; break;
        case 3: v = all; break;
        case 4: v = all - 1; break;
        case 5: v = all >> 1; break;
        case 6: v = (all >> 1) + 1; break;
        case 7: v = 3; break;
        case 8: v = m > 23 ? (t << (m - 23)) - (r & 1) : (t >> (23 - m)) - (r & 1); break; /* a threshold, or the value below it */
        case 9: v = r >> 8 >> test_below(m); break; /* subnormal numbers of all sizes */
        default: v = r >> 8; break;
        }
        data_store(p + i * w, (uint64_t)top << m | (v & all), w);
    }
}

static void some_patterns(unsigned f, size_t each)
{
    static const unsigned cells[5] = { 1, 8, 35, 70, 2048 };
    static uint8_t elements[8 * SOME];
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]), tops = 1u << (8 * w - mantissas[f]);
    unsigned c, top;
    for (c = 0; c < 5; c++) {
        size_t n = 0;
        for (top = 0; top < tops; top++, n += each) {
            if (n + each > SOME) {
                patterns(elements, n, f, cells[c]);
                n = 0;
            }
            fill_patterns(elements + n * w, each, f, cells[c], top);
        }
        patterns(elements, n, f, cells[c]);
    }
}

/* Each of `parts` processes tests its share of the patterns of F32. */
static void all_patterns(unsigned part, unsigned parts)
{
    static const unsigned cells[5] = { 1, 8, 35, 70, 2048 };
    static uint32_t elements[SOME];
    unsigned c;
    uint32_t high, low;
    for (high = part; high < 65536; high += parts) {
        for (low = 0; low < 65536; low++) elements[low] = high << 16 | low;
        for (c = 0; c < 5 && !test_failures; c++) {
            patterns_alone((const uint8_t *)elements, SOME, 2, cells[c]);
            patterns_in_frames(NULL, (const uint8_t *)elements, SOME, 2, cells[c]);
        }
    }
}

static void f32_patterns(void)
{
    const char *all = getenv("QUANTIZE_ALL");
    const long processors = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned parts = processors > 1 ? (unsigned)processors : 1;
    unsigned part;
    int status = 0;
    if (!all || *all != '1') {
        some_patterns(2, test_long() ? 8192 : 1024);
        return;
    }
    fflush(stdout);
    for (part = 0; part < parts; part++) {
        const pid_t child = fork();
        CHECK(child >= 0, "no process for a part of the patterns");
        if (child) continue;
        all_patterns(part, parts);
        fflush(stdout);
        _exit(test_failures != 0);
    }
    for (part = 0; part < parts; part++) CHECK(wait(&status) > 0 && status == 0, "a process has failed");
}

static void f64_patterns(void) { some_patterns(3, 256); }

static void short_patterns(void)
{
    static const unsigned cells[] = { 1, 2, 3, 5, 8, 16, 31, 35, 64, 70, 100, 127, 128, 129, 255, 256, 500, 1000, 1023, 1024, 1025, 1500, 2047, 2048 };
    static uint16_t all[SOME];
    unsigned f, c, i;
    for (i = 0; i < SOME; i++) all[i] = (uint16_t)i;
    for (f = 0; f < 2; f++)
        for (c = 0; c < sizeof cells / sizeof *cells; c++) patterns((const uint8_t *)all, SOME, f, cells[c]);
}

/* Codes are as documented, and invalid codes are refused. */
static void wrong_codes(void)
{
    static const float numbers[4] = { 1, -2, HUGE_VALF, 0 };
    uint32_t code[4], one;
    float out[4];
    size_t i;
    unsigned c;
    inside_log_codes(code, numbers, 4, BITSNAP_F32, 8);
    CHECK(code[0] == 2 * (2 + 8 * (23 + 126)) && code[1] == 2 * (2 + 8 * (23 + 127)) + 1 && code[2] == 2 && code[3] == 0);
    CHECK(inside_log_elements(out, code, numbers, 4, BITSNAP_F32, 8) && out[2] == HUGE_VALF);
    for (c = 1; c <= 2048; c = 2 * c + c % 3) /* every code past the last octave is invalid */
        for (i = 0; i < 2000; i++) {
            const uint32_t end = 2 + c * 277;
            one = (uint32_t)test_random() >> test_below(10);
            if (i < 32) one = (2 + ((uint32_t)1 << i) + 5) << 1;
            if (i == 32) one = end << 1;
            if (i == 33) one = ~UINT32_C(0);
            if (one >> 1 >= end) CHECK(!inside_log_elements(out, &one, numbers, 1, BITSNAP_F32, c), "%u cells: %X", c, one);
            else (void)inside_log_elements(out, &one, numbers, 1, BITSNAP_F32, c);
        }
}

/* ---- elements ---- */

enum { MATRIX = DATA_SHAPES, NANS, FEW, SHAPES };

/* Elements of a shape of data.h; of a matrix whose rows and columns differ in scale; NaNs; or zeros with very few exceptions. */
static void fill(uint8_t *p, size_t n, unsigned f, int shape, size_t columns)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]), m = mantissas[f], bits = 8 * w - 1 - m, middle = (1u << (bits - 1)) - 4;
    size_t i;
    if (shape < DATA_SHAPES) data_fill(p, n, floats[f], shape);
    else
        for (i = 0; i < n; i++) {
            const size_t row = columns ? i / columns : 0, column = columns ? i % columns : i;
            const uint64_t r = test_random(), mantissa = r & (((uint64_t)1 << m) - 1), sign = (r >> 63) << (8 * w - 1);
            const uint64_t exponent = middle - (row * 2654435761u >> 7 & (f ? 7 : 3)) - (column * 2654435761u >> 7 & (f ? 7 : 3)) - (r >> 61 & 1);
            data_store(p + i * w, shape == MATRIX                              ? sign | exponent << m | mantissa
                                  : shape == NANS                              ? sign | (((uint64_t)1 << bits) - 1) << m | mantissa
                                  : test_below(n < 1000 ? n + 1 : n / 3) ? 0
                                                                               : sign | exponent << m | mantissa, w);
        }
}

/* ---- clusters alone ---- */

#define CLUSTERED 1000u

typedef struct clustered {
    uint8_t ends[2 * 8 * 256], codes[CLUSTERED], out[8 * CLUSTERED];
    uint8_t *labels; /* exactly the bytes that they need */
    unsigned used;
} clustered;

static unsigned label_of(const uint8_t *labels, size_t i, unsigned bits)
{
    unsigned label = 0, k;
    for (k = 0; k < bits; k++) label |= (unsigned)(labels[(i * bits + k) / 8] >> ((i * bits + k) % 8) & 1) << k;
    return label;
}

/* Checks the result of coding n numbers in clusters, which is in c. */
static void check_clusters(const clustered *c, const uint8_t *elements, size_t n, unsigned f, unsigned clusters, unsigned bits)
{
    const unsigned w = bitsnap_width((bitsnap_dtype)floats[f]);
    size_t i, wrong = 0, members[256] = { 0 };
    CHECK(c->used <= clusters && (c->used || !n), "%u clusters of %u", c->used, clusters);
    for (i = 0; i < c->used; i++) {
        CHECK(value(load(c->ends, 2 * i, w), f) <= value(load(c->ends, 2 * i + 1, w), f), "cluster %lu", (unsigned long)i);
        if (i) CHECK(value(load(c->ends, 2 * i - 1, w), f) <= value(load(c->ends, 2 * i, w), f), "cluster %lu", (unsigned long)i);
    }
    for (i = 0; i < n; i++) {
        const unsigned label = label_of(c->labels, i, bits);
        const long double x = value(load(elements, i, w), f), y = value(load(c->out, i, w), f);
        long double low, high, unit;
        CHECK(label < c->used && kind(load(c->out, i, w), f) != 2, "label %u of %u", label, c->used);
        if (label >= c->used) return;
        members[label]++;
        low = value(load(c->ends, 2 * label, w), f);
        high = value(load(c->ends, 2 * label + 1, w), f);
        unit = (fabsl(low) > fabsl(high) ? fabsl(low) : fabsl(high)) * 0x1p-50L; /* two units of fixed point */
        wrong += x < low || x > high || y < low - unit || y > high + unit;
        /* rounded to the nearest of 256, then to the nearest number of the type */
        wrong += fabsl(x - y) > (high - low) / 510 + fabsl(y) / (long double)((uint64_t)2 << mantissas[f]) + 3 * unit +
                                    (kind(load(c->out, i, w), f) == 0 || fabsl(y) < ldexpl(1, f == 0 ? -14 : f == 3 ? -1022 : -126) ? value(1, f) : 0);
    }
    CHECK(!wrong, "%s, %u clusters: %lu of %lu elements", bitsnap_dtype_name((bitsnap_dtype)floats[f]), clusters, (unsigned long)wrong, (unsigned long)n);
    for (i = 0; i < c->used; i++) CHECK(members[i], "cluster %lu is empty", (unsigned long)i);
    for (i = n * bits; i % 8; i++) CHECK(!(c->labels[i / 8] >> i % 8 & 1), "bits behind the last label");
}

static void clusters_alone(void)
{
    static const unsigned counts[] = { 2, 3, 4, 5, 16, 17, 100, 128, 129, 255, 256 };
    static const size_t sizes[] = { 0, 1, 2, 7, 63, 500, CLUSTERED };
    static uint8_t elements[8 * CLUSTERED], memory[16384 + 2 * 8 * CLUSTERED], again[CLUSTERED];
    static clustered c;
    unsigned f, k, s, bits, used, ends_size;
    size_t i;
    for (f = 0; f < 4; f++)
        for (k = 0; k < sizeof counts / sizeof *counts; k++)
            for (s = 0; s < 7 * 8; s++) {
                const bitsnap_dtype dtype = (bitsnap_dtype)floats[f];
                const unsigned w = bitsnap_width(dtype), clusters = counts[k];
                const size_t n = sizes[s % 7];
                guarded labels;
                for (bits = 1; 1u << bits < clusters; bits++) { }
                labels = guarded_alloc((n * bits + 7) / 8, 0);
                c.labels = labels.p;
                fill(elements, n, f, s / 7 == 0 ? MATRIX : s / 7 == 1 ? FEW : (int)((s / 7 + k) % DATA_SHAPES), 20);
                for (i = 0; i < n; i++) {
                    uint64_t v = load(elements, i, w);
                    if (kind(v, f) == 2 || s / 7 == 2) v = test_below(3) ? test_below(9) : (uint64_t)test_below(9) | (uint64_t)1 << (8 * w - 1);
                    data_store(elements + i * w, v, w);
                }
                memset(memory, s % 2 ? 0xFF : 0xA5, sizeof memory);
                CHECK(bitsnap_cluster_encode(c.ends, &c.used, c.labels, c.codes, elements, n, dtype, clusters, memory, 16384 + 2 * n * w) == BITSNAP_OK);
                CHECK(bitsnap_cluster_decode(c.out, n, dtype, c.ends, c.used, c.labels, c.codes, clusters) == BITSNAP_OK);
                check_clusters(&c, elements, n, f, clusters, bits);
                if (n) {
                    uint8_t *const end = c.ends + 2 * w * label_of(c.labels, n - 1, bits);
                    uint8_t kept[16];
                    CHECK(bitsnap_cluster_encode(c.ends, &used, c.labels, again, elements, n, dtype, clusters, memory, 16384 + 2 * n * w - 1) == BITSNAP_E_WORKSPACE && !used);
                    CHECK(bitsnap_cluster_decode(c.out, n, dtype, c.ends, label_of(c.labels, n - 1, bits), c.labels, c.codes, clusters) == BITSNAP_E_CORRUPT);
                    memcpy(kept, end, 2 * w);
                    data_store(end, ((uint64_t)1 << (8 * w - 1)) - ((uint64_t)1 << mantissas[f]), w); /* infinite */
                    CHECK(bitsnap_cluster_decode(c.out, n, dtype, c.ends, c.used, c.labels, c.codes, clusters) == BITSNAP_E_CORRUPT);
                    memcpy(end, kept, w);
                    data_store(end + w, ((uint64_t)1 << (8 * w - 1)) - 1, w); /* NaN */
                    CHECK(bitsnap_cluster_decode(c.out, n, dtype, c.ends, c.used, c.labels, c.codes, clusters) == BITSNAP_E_CORRUPT);
                    data_store(end, 1, w); /* ends in the wrong order */
                    data_store(end + w, (uint64_t)1 << (8 * w - 1) | 1, w);
                    CHECK(bitsnap_cluster_decode(c.out, n, dtype, c.ends, c.used, c.labels, c.codes, clusters) == BITSNAP_E_CORRUPT);
                    data_store(elements + test_below(n) * w, ((uint64_t)1 << (8 * w - 1)) - (test_below(2) ? 1 : (uint64_t)1 << mantissas[f]), w);
                    CHECK(bitsnap_cluster_encode(c.ends, &used, c.labels, again, elements, n, dtype, clusters, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
                }
                for (ends_size = 0; ends_size < sizeof c.ends; ends_size++) c.ends[ends_size] = (uint8_t)test_random();
                for (i = 0; i < (n * bits + 7) / 8; i++) c.labels[i] = (uint8_t)test_random();
                (void)bitsnap_cluster_decode(c.out, n, dtype, c.ends, clusters, c.labels, c.codes, clusters);
                guarded_free(labels);
            }
}

static void wrong_clusters(void)
{
    static const float numbers[4] = { 1, 1, 2, 3 };
    static uint8_t memory[16384 + 32];
    float ends[512], out[4];
    uint8_t labels[4], code[4];
    unsigned used, n;
    CHECK(bitsnap_cluster_encode(ends, &used, labels, code, numbers, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_OK && used == 2);
    CHECK(ends[0] == 1 && ends[1] == 1 && ends[2] == 2 && ends[3] == 3 && labels[0] == 12 && code[0] == 0 && code[1] == 0 && code[2] == 0 && code[3] == 255);
    CHECK(bitsnap_cluster_decode(out, 4, BITSNAP_F32, ends, used, labels, code, 2) == BITSNAP_OK && !memcmp(out, numbers, sizeof out));
    for (n = 0; n < 300; n++) {
        const bitsnap_status s = n < 2 || n > 256 ? BITSNAP_E_ARGUMENT : BITSNAP_OK;
        CHECK(bitsnap_cluster_encode(ends, &used, labels, code, numbers, 4, BITSNAP_F32, n, memory, sizeof memory) == s, "%u", n);
        CHECK(s ? bitsnap_cluster_decode(out, 4, BITSNAP_F32, ends, 0, labels, code, n) == s
                : bitsnap_cluster_decode(out, 4, BITSNAP_F32, ends, used, labels, code, n) == s, "%u", n);
    }
    CHECK(bitsnap_cluster_encode(ends, NULL, labels, code, numbers, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(NULL, &used, labels, code, numbers, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, NULL, code, numbers, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, labels, NULL, numbers, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, labels, code, NULL, 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, labels, code, numbers, 4, BITSNAP_F32, 2, NULL, 0) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, labels, code, numbers, 4, BITSNAP_I32, 2, memory, sizeof memory) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_encode(ends, &used, labels, code, numbers, SIZE_MAX / 4, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_E_WORKSPACE);
    CHECK(bitsnap_cluster_encode(NULL, &used, NULL, NULL, NULL, 0, BITSNAP_F32, 2, memory, sizeof memory) == BITSNAP_OK && used == 0);
    CHECK(bitsnap_cluster_decode(NULL, 0, BITSNAP_F32, NULL, 0, NULL, NULL, 2) == BITSNAP_OK);
    CHECK(bitsnap_cluster_decode(NULL, 4, BITSNAP_F32, ends, 2, labels, code, 2) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_decode(out, 4, BITSNAP_F8_E5M2, ends, 2, labels, code, 2) == BITSNAP_E_ARGUMENT);
    CHECK(bitsnap_cluster_decode(out, 4, BITSNAP_F32, ends, 3, labels, code, 2) == BITSNAP_E_ARGUMENT);
}

/* ---- frames ---- */

static size_t room_for(size_t n, unsigned w, unsigned log2) { return n * w + 20 * ((n >> (log2 ? log2 : 16)) + 1) + 128; }

/* A certificate must be true, and not much above the real errors. */
static void check_certificate(const uint8_t *frame, const bitsnap_info *info, const uint8_t *given, const uint8_t *decoded, unsigned f)
{
    const unsigned w = info->width;
    const bitsnap_certificate *c = &info->certificate;
    long double most = 0, largest = 0, relative = 0, squares = 0, slack = 0, largest_x = 0;
    uint64_t counted = 0, least_exact = 0, most_exact = 0, first = 0, run;
    const uint8_t *p = frame + info->header_size;
    double few = f == 3 ? 6 * UNIT : 1.01 * UNIT; /* each relative error is rounded up */
    while (first < info->count) {
        const uint32_t head = test_load32(p);
        const uint8_t *body = p + (info->checks ? 12 : 4);
        uint64_t i, end;
        run = (head & 255) == FORM_CONST ? head >> 8 : 1;
        end = first + (run << info->block_log2);
        if (end > info->count) end = info->count;
        for (i = first; i < end && (head & 255) == FORM_QUANTIZED; i++) {
            const uint64_t x = load(given, (size_t)i, w), y = load(decoded, (size_t)i, w);
            long double a, d, u;
            if (kind(x, f) != 1) {
                const int apart = kind(x, f) == 2 || (info->clusters && x); /* -0 is in no cluster */
                least_exact += (uint64_t)apart;
                most_exact += (uint64_t)apart;
                continue;
            }
            a = fabsl(value(x, f));
            d = fabsl(value(x, f) - value(y, f));
            counted++;
            most_exact += x == y;
            if (largest < d) largest = d;
            if (most < d / a) most = d / a;
            relative += d / a;
            if (a < fabsl(value(y, f))) a = fabsl(value(y, f));
            if (largest_x < a) largest_x = a;
            u = a / 4194304; /* more than the unit of measured errors */
            squares += d * d;
            if (x != y) slack += 2 * d * u + 130 * u * u;
        }
        first = end;
        p = body + body_of(head, w);
    }
    CHECK(c->counted == counted, "%llu counted of %llu", (unsigned long long)c->counted, (unsigned long long)counted);
    CHECK(c->exact >= least_exact && c->exact <= most_exact, "%llu exact", (unsigned long long)c->exact);
    CHECK(c->bound == bitsnap_log_bound(info->bins) && (!info->bins || c->max_relative <= c->bound));
    if (info->clusters) { /* errors may exceed the numbers; the unit is that of the larger one */
        few = 6 * UNIT * (1 + (double)most);
        CHECK(c->max_relative >= (most < 256 - UNIT ? most : 256 - UNIT) && c->max_relative <= most + few, "%.12f for %.12Lf", c->max_relative, most);
        few = counted ? (double)(6 * UNIT * (1 + relative / counted)) : 0;
    } else {
        CHECK(c->max_relative >= most && c->max_relative <= most + few, "%.12f for %.12Lf", c->max_relative, most);
    }
    CHECK(c->max_absolute >= largest, "%.20g for %.20Lg", c->max_absolute, largest);
    CHECK(largest > DBL_MAX / 2 || c->max_absolute <= largest * (1 + 1e-15L) + (f == 3 || info->clusters ? largest_x / 4194304 : 0) + DBL_MIN, "%.20g for %.20Lg", c->max_absolute, largest);
    if (!counted) {
        CHECK(c->mean_relative == 0 && c->mean_square == 0 && c->max_absolute == 0);
        return;
    }
    if (relative > 0x1p40L - 0x1p20L) CHECK(c->mean_relative >= (0x1p40L - 0x1p20L) / counted, "%.20g", c->mean_relative);
    else CHECK(c->mean_relative >= relative / counted * (1 - 1e-17L) && c->mean_relative <= relative / counted + few, "%.20g for %.20Lg", c->mean_relative, relative / counted);
    CHECK(c->mean_square >= squares / counted * (1 - 1e-17L), "%.20g for %.20Lg", c->mean_square, squares / counted);
    CHECK(squares > DBL_MAX / 2 || c->mean_square <= ((squares + slack) * (1 + 1e-12L) + DBL_MIN) / counted * (1 + 1e-12L), "%.20g for %.20Lg", c->mean_square, squares / counted);
}

typedef struct example {
    unsigned f, cells, clusters, log2, flags;
    size_t n;
    uint64_t columns;
    int shape, level;
} example;

static unsigned scaled_blocks, quantized_blocks;

static void forms_of(const uint8_t *frame, const bitsnap_info *info)
{
    const uint8_t *p = frame + info->header_size;
    uint64_t cell = 0;
    while (cell < info->blocks) {
        const uint32_t head = test_load32(p);
        p += info->checks ? 12 : 4;
        scaled_blocks += (head & 255) == FORM_SCALED;
        quantized_blocks += (head & 255) == FORM_QUANTIZED;
        cell += (head & 255) == FORM_CONST ? head >> 8 : 1;
        p += body_of(head, info->width);
    }
}

static void frame_of(const example *e)
{
    const bitsnap_dtype dtype = (bitsnap_dtype)floats[e->f];
    const unsigned w = bitsnap_width(dtype);
    const size_t n = e->n, room = room_for(n, w, e->log2);
    const int quantized = e->cells || e->clusters;
    guarded given = guarded_alloc(n * w, 0), out = guarded_alloc(n * w, 0), frame;
    uint8_t *first = (uint8_t *)malloc(room), *other = (uint8_t *)malloc(room), *decoded = (uint8_t *)malloc(n * w + 1);
    const bitsnap_kernels *k;
    bitsnap b = fresh(1);
    bitsnap_info info;
    size_t size = 0, size2, i;
    unsigned t;
    char what[200];
    snprintf(what, sizeof what, "%s, %u cells, %u clusters, %lu elements, %lu columns, shape %d, level %d, log2 %u", bitsnap_dtype_name(dtype), e->cells,
             e->clusters, (unsigned long)n, (unsigned long)e->columns, e->shape, e->level, e->log2);
    fill(given.p, n, e->f, e->shape, (size_t)e->columns);
    b.level = e->level;
    b.flags = e->flags;
    b.block_log2 = e->log2;
    b.columns = e->columns;
    b.quantizer.bins = e->cells;
    b.quantizer.clusters = e->clusters;
    b.kernels = bitsnap_kernels_get(0);
    CHECK(bitsnap_encode(&b, first, room, &size, given.p, n, dtype) == BITSNAP_OK, "%s: %s", what, bitsnap_message(&b));
    CHECK(size <= bitsnap_bound(&b, n, dtype), "%s", what);
    frame = guarded_alloc(size, 0);
    memcpy(frame.p, first, size);
    CHECK(bitsnap_decode(&b, decoded, n, dtype, frame.p, size) == BITSNAP_OK, "%s: %s, R%u", what, bitsnap_message(&b), b.error.rule);
    if (!quantized) CHECK(!n || !memcmp(decoded, given.p, n * w), "%s", what);
    for (i = 0; i < n && e->clusters; i++) {
        const uint64_t x = load(given.p, i, w), y = load(decoded, i, w);
        CHECK(x == y || (kind(x, e->f) == 1 && kind(y, e->f) == 1), "%s: %llX becomes %llX", what, (unsigned long long)x, (unsigned long long)y);
    }
    for (i = 0; i < n && e->cells; i++)
        CHECK(near(load(given.p, i, w), load(decoded, i, w), e->f, bitsnap_log_bound(e->cells)), "%s: element %lu", what, (unsigned long)i);
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        memset(b.workspace, t & 1 ? 0xFF : 0xA5, 1 << 20); /* must not matter */
        CHECK(bitsnap_encode(&b, other, room, &size2, given.p, n, dtype) == BITSNAP_OK && size == size2 && !memcmp(first, other, size), "%s: other bytes: %s",
              bitsnap_kernels_name(k), what);
        memset(out.p, 0x77, n * w);
        CHECK(bitsnap_decode(&b, out.p, n, dtype, frame.p, size) == BITSNAP_OK && (!n || !memcmp(out.p, decoded, n * w)), "%s: %s", bitsnap_kernels_name(k), what);
        CHECK(bitsnap_test(&b, frame.p, size) == BITSNAP_OK, "%s", what);
        CHECK(bitsnap_verify(&b, decoded, n, dtype, frame.p, size) == BITSNAP_OK, "%s", what);
    }
    b.flags = e->flags | BITSNAP_VERIFY;
    CHECK(bitsnap_encode(&b, other, room, &size2, given.p, n, dtype) == BITSNAP_OK && size == size2 && !memcmp(first, other, size), "%s", what);
    if (n) {
        const size_t from = test_below(n), count = 1 + test_below(n - from);
        guarded range = guarded_alloc(count * w, 0);
        CHECK(bitsnap_decode_range(&b, range.p, from, count, dtype, frame.p, size) == BITSNAP_OK && !memcmp(range.p, decoded + from * w, count * w), "%s", what);
        guarded_free(range);
        decoded[test_below(n * w)] ^= 1;
        CHECK(bitsnap_verify(&b, decoded, n, dtype, frame.p, size) == BITSNAP_E_DIFFERENT, "%s", what);
        CHECK(bitsnap_decode(&b, decoded, n, dtype, frame.p, size) == BITSNAP_OK, "%s", what);
    }
    CHECK(bitsnap_read_info(&info, frame.p, size) == BITSNAP_OK && info.bins == e->cells && info.clusters == e->clusters && info.frame_size == size && !info.has_content_id, "%s", what);
    CHECK(info.columns == (e->cells || e->level == BITSNAP_BEST ? e->columns : 0), "%s", what);
    if (quantized) check_certificate(frame.p, &info, given.p, decoded, e->f);
    else CHECK(info.certificate.bound == 0 && info.certificate.counted == 0);
    if (n) forms_of(frame.p, &info);
    guarded_free(given);
    guarded_free(out);
    guarded_free(frame);
    free(first);
    free(other);
    free(decoded);
}

static void frames(void)
{
    static const unsigned cells[11] = { 1, 0, 8, 35, 0, 70, 0, 300, 2048, 0, 0 }, clusters[11] = { 0, 2, 0, 0, 16, 0, 0, 0, 0, 256, 0 };
    static const size_t counts[] = { 0, 1, 2, 3, 63, 64, 65, 500, 1001, 4097, 8191 };
    static const unsigned logs[] = { 0, 6, 8, 10, 12 };
    const unsigned rounds = test_long() ? 800 : 200;
    unsigned round;
    for (round = 0; round < rounds; round++) {
        example e;
        memset(&e, 0, sizeof e);
        e.f = round % 4;
        e.cells = cells[round / 4 % 11];
        e.clusters = clusters[round / 4 % 11];
        e.n = test_below(3) ? 700 + test_below(6000) : counts[test_below(sizeof counts / sizeof *counts)];
        e.log2 = logs[test_below(5)];
        e.shape = test_below(2) ? MATRIX : (int)(round % SHAPES);
        e.level = e.cells || e.clusters ? 1 + (int)test_below(3) : BITSNAP_BEST;
        if (!e.cells && !e.clusters && test_below(4)) e.shape = MATRIX, e.log2 = logs[test_below(2) * 3];
        e.flags = test_below(4) ? 0 : BITSNAP_NO_CHECKS;
        switch (test_below(7)) {
        case 0: e.columns = 0; break;
        case 1: e.columns = 1; break;              /* one column */
        case 2: e.columns = e.n ? e.n : 5; break;  /* one row */
        case 3: e.columns = 2 * e.n + 1; break;
        default: e.columns = 16 + test_below(100); break;
        }
        frame_of(&e);
    }
    CHECK(scaled_blocks > rounds / 20 && quantized_blocks > 3 * rounds, "%u SCALED, %u QUANTIZED", scaled_blocks, quantized_blocks);
}

static void every_shape(void)
{
    unsigned f;
    int shape;
    for (f = 0; f < 4; f++)
        for (shape = 0; shape < SHAPES; shape++) {
            example e;
            memset(&e, 0, sizeof e);
            e.f = f;
            e.cells = shape % 3 == 1 ? 0 : shape % 2 ? 35 : 8;
            e.clusters = e.cells ? 0 : shape % 2 ? 16 : 256;
            e.n = 65536 * (1 + (size_t)(shape % 3 == 0)) + 77 * (size_t)(shape % 2);
            e.shape = shape;
            e.columns = shape % 3 ? 768 : 0;
            e.level = 1 + shape % 3;
            frame_of(&e);
        }
}

/* ---- threads and pieces ---- */

static void run_backwards(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    const unsigned workers = *(const unsigned *)context;
    while (count--) task(argument, count, (unsigned)(count * 7 % workers));
}

static void workers_and_pieces(void)
{
    unsigned f, how, workers, log2 = 9;
    for (f = 0; f < 4; f++)
        for (how = 0; how < 3; how++) {
            const bitsnap_dtype dtype = (bitsnap_dtype)floats[f];
            const unsigned w = bitsnap_width(dtype);
            const size_t n = 20 * 512 + 301, cell = 512, room = room_for(n, w, log2);
            uint8_t *given = (uint8_t *)malloc(n * w), *one = (uint8_t *)malloc(room), *other = (uint8_t *)malloc(room), *decoded = (uint8_t *)malloc(n * w), *out = (uint8_t *)malloc(n * w);
            size_t whole, size, at, i, used, got;
            fill(given, n, f, MATRIX, 40);
            for (workers = 0; workers <= 4; workers++) {
                bitsnap b = fresh(workers ? workers : 1);
                bitsnap_encoder s;
                uint8_t index[8 * 32];
                b.columns = 40;
                b.quantizer.bins = how == 0 ? 70 : 0;
                b.quantizer.clusters = how == 1 ? 5 : 0;
                b.level = BITSNAP_BEST;
                b.block_log2 = log2;
                if (!workers) {
                    CHECK(bitsnap_encode(&b, one, room, &whole, given, n, dtype) == BITSNAP_OK);
                    CHECK(bitsnap_decode(&b, decoded, n, dtype, one, whole) == BITSNAP_OK);
                    continue;
                }
                b.run = run_backwards;
                b.run_context = &workers;
                CHECK(bitsnap_encode(&b, other, room, &size, given, n, dtype) == BITSNAP_OK && size == whole && !memcmp(one, other, whole), "%u workers", workers);
                memset(out, 0, n * w);
                CHECK(bitsnap_decode(&b, out, n, dtype, one, whole) == BITSNAP_OK && !memcmp(out, decoded, n * w), "%u workers", workers);
                CHECK(bitsnap_encoder_begin(&b, &s, other, 64, &at, n, dtype) == BITSNAP_OK && s.bins == b.quantizer.bins && s.clusters == b.quantizer.clusters && s.columns == 40);
                s.index = index;
                s.index_capacity = sizeof index;
                for (i = 0; i < n; i += workers * cell) {
                    const size_t m = test_min(workers * cell, n - i);
                    CHECK(bitsnap_encoder_push(&b, &s, other + at, test_min(m * w + 16 * workers, room - at), &size, given + i * w, m) == BITSNAP_OK);
                    at += size;
                }
                CHECK(bitsnap_encoder_end(&b, &s, other + at, 80 + s.index_size, &size) == BITSNAP_OK);
                CHECK(at + size == whole && !memcmp(one, other, whole), "pieces of %u cells", workers);
                CHECK(bitsnap_decoder_begin(&b, &s, one, whole, &at) == BITSNAP_OK);
                memset(out, 0, n * w);
                for (i = 0; i < n; i += got) {
                    CHECK(bitsnap_decoder_pull(&b, &s, out + i * w, test_min(workers * cell, n - i), &got, one + at, whole - at, &used) == BITSNAP_OK, "%s", bitsnap_message(&b));
                    if (!got) break;
                    at += used;
                }
                CHECK(bitsnap_decoder_end(&b, &s, one + at, whole - at, &size) == BITSNAP_OK && at + size == whole, "%s", bitsnap_message(&b));
                CHECK(!memcmp(out, decoded, n * w));
            }
            free(given);
            free(one);
            free(other);
            free(decoded);
            free(out);
        }
}

/* ---- damage, capacities, mistakes ---- */

static void damage_and_capacity(void)
{
    unsigned f, how, seen = 0;
    for (f = 0; f < 4; f++)
        for (how = 0; how < 3; how++) {
            const bitsnap_dtype dtype = (bitsnap_dtype)floats[f];
            const unsigned w = bitsnap_width(dtype);
            const size_t n = 400, room = room_for(n, w, 8);
            uint8_t *given = (uint8_t *)malloc(n * w), *frame = (uint8_t *)malloc(room), *out = (uint8_t *)malloc(n * w);
            bitsnap b = fresh(1);
            size_t size, size2, i;
            unsigned bit;
            fill(given, n, f, MATRIX, 16);
            b.columns = 16;
            b.quantizer.bins = how == 0 ? 8 : 0;
            b.quantizer.clusters = how == 1 ? 4 : 0;
            b.level = BITSNAP_BEST;
            b.block_log2 = 8;
            CHECK(bitsnap_encode(&b, frame, room, &size, given, n, dtype) == BITSNAP_OK);
            seen |= 1u << (frame[24 + 2 + frame[16]] & 7);
            for (i = 0; i < size; i++) {
                guarded cut = guarded_alloc(i, 0);
                memcpy(cut.p, frame, i);
                CHECK(bitsnap_decode(&b, out, n, dtype, cut.p, i) == BITSNAP_E_TRUNCATED, "%s cut at %lu: %s", bitsnap_dtype_name(dtype), (unsigned long)i, bitsnap_message(&b));
                CHECK(bitsnap_encode(&b, cut.p, i, &size2, given, n, dtype) == (i ? BITSNAP_E_CAPACITY : b.error.status) && size2 == 0, "%s to %lu of %lu bytes",
                      bitsnap_dtype_name(dtype), (unsigned long)i, (unsigned long)size);
                guarded_free(cut);
            }
            for (i = 0; i < size; i++)
                for (bit = 0; bit < 8; bit++) {
                    frame[i] ^= (uint8_t)(1u << bit);
                    CHECK(bitsnap_decode(&b, out, n, dtype, frame, size) != BITSNAP_OK, "%s: bit %u of byte %lu is not noticed", bitsnap_dtype_name(dtype), bit, (unsigned long)i);
                    b.flags = BITSNAP_IGNORE_CHECKS;
                    (void)bitsnap_decode(&b, out, n, dtype, frame, size);
                    b.flags = 0;
                    frame[i] ^= (uint8_t)(1u << bit);
                }
            CHECK(bitsnap_decode(&b, out, n, dtype, frame, size) == BITSNAP_OK);
            free(given);
            free(frame);
            free(out);
        }
    CHECK(seen >> FORM_SCALED & 1 && seen >> FORM_QUANTIZED & 1, "forms %X", seen);
}

static void callers_mistakes(void)
{
    static float elements[200];
    uint8_t frame[2000];
    bitsnap b = fresh(1);
    size_t size;
    unsigned dtype;
    b.quantizer.bins = 2049;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT && size == 0);
    b.quantizer.bins = 0;
    b.quantizer.clusters = 257;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT && size == 0);
    b.quantizer.clusters = 256;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_OK);
    b.flags = BITSNAP_CONTENT_ID;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT);
    b.flags = 0;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F8_E5M2; dtype++)
        CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 100, (bitsnap_dtype)dtype) == BITSNAP_E_ARGUMENT, "%s", bitsnap_dtype_name((bitsnap_dtype)dtype));
    b.quantizer.bins = 8; /* not both */
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT);
    b.quantizer.clusters = 0;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F8_E5M2; dtype++)
        CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 100, (bitsnap_dtype)dtype) == BITSNAP_E_ARGUMENT, "%s", bitsnap_dtype_name((bitsnap_dtype)dtype));
    b.flags = BITSNAP_CONTENT_ID;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT);
    b.flags = 0;
    b.base.data = elements;
    b.base.count = 200;
    b.base.dtype = BITSNAP_F32;
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_ARGUMENT);
    b.base.data = NULL;
    b.workspace_size = test_workspace(16, 1);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_E_WORKSPACE);
    b.workspace_size = test_workspace_delta(16, 1);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 200, BITSNAP_F32) == BITSNAP_OK);
    b.quantizer.bins = 0;
    b.columns = 10;
    for (dtype = BITSNAP_BOOL; dtype <= BITSNAP_F8_E5M2; dtype++) { /* columns of integers are allowed and have no effect */
        bitsnap_info info;
        b.level = BITSNAP_BEST;
        CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, 100, (bitsnap_dtype)dtype) == BITSNAP_OK);
        CHECK(bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.columns == 0);
    }
}

/* Blocks with columns have 128 rows, at level best 512. If there are few blocks, the last one is not small. */
static void block_sizes(void)
{
    static const struct {
        uint64_t rows, columns;
        unsigned log2, best;
    } shapes[] = { { 192, 768, 18, 18 }, { 768, 192, 18, 18 }, { 576, 192, 16, 17 }, { 4096, 192, 16, 17 }, { 256, 768, 18, 18 }, { 300, 768, 17, 18 },
                   { 171, 768, 18, 18 }, { 170, 768, 17, 17 }, { 100, 16, 16, 16 }, { 4096, 4096, 19, 20 }, { 130, 4096, 19, 20 },
                   { 4096, 65536, 20, 20 } };
    static uint8_t header[64];
    unsigned i, level;
    for (level = 0; level < 6; level++)
        for (i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            bitsnap b = { 0 };
            bitsnap_encoder s;
            size_t size;
            b.workspace_size = test_workspace_delta(20, 1);
            b.workspace = malloc(b.workspace_size);
            b.level = 1 + (int)(level % 3);
            b.columns = shapes[i].columns;
            b.quantizer.bins = level < 3 ? 8 : 0; /* lossless frames have scales only at level best */
            CHECK(bitsnap_encoder_begin(&b, &s, header, sizeof header, &size, shapes[i].rows * b.columns, BITSNAP_F32) == BITSNAP_OK);
            CHECK(s.block_log2 == (b.level == BITSNAP_BEST ? shapes[i].best : level < 3 ? shapes[i].log2 : 16), "%u rows of %u, level %d: 2^%u", (unsigned)shapes[i].rows,
                  (unsigned)b.columns, b.level, s.block_log2);
            free(b.workspace);
        }
}

int main(void)
{
    test_program = "quantize";
    RUN(thresholds);
    RUN(least_cells);
    RUN(short_patterns);
    RUN(f32_patterns);
    RUN(f64_patterns);
    RUN(wrong_codes);
    RUN(clusters_alone);
    RUN(wrong_clusters);
    RUN(frames);
    RUN(every_shape);
    RUN(block_sizes);
    RUN(workers_and_pieces);
    RUN(damage_and_capacity);
    RUN(callers_mistakes);
    return test_failures != 0;
}
