/* The frozen frames of tests/golden.txt: they decode to the elements that stand beside them, or are rejected by the
 * condition that does; every truncation and every flipped bit of the good ones, and of their bases, is noticed. */
#include "test.h"
#include "bitsnap_simd.h"

static uint8_t workspace[1 << 24];
static char line[1 << 16];

static size_t from_hex(uint8_t *to, const char *hex)
{
    size_t n = 0;
    unsigned byte;
    while (strlen(hex) >= 2 && sscanf(hex, "%2x", &byte) == 1) {
        to[n++] = (uint8_t)byte;
        hex += 2;
    }
    return n;
}

static unsigned good, rejected, deltas;

static void one(const char *name, const char *rule, const uint8_t *frame, size_t size, const uint8_t *elements, size_t elements_size,
                uint8_t *base, size_t base_size)
{
    static uint8_t out[1 << 16], copy[1 << 16];
    const bitsnap_kernels *k;
    bitsnap b;
    bitsnap_info info;
    bitsnap_status s;
    unsigned t, bit, expected = rule[0] == 'R' ? (unsigned)atoi(rule + 1) : 0;
    size_t i;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    if (base_size) { /* its dtype, then its elements */
        b.base.dtype = (bitsnap_dtype)base[0];
        b.base.data = base + 1;
        b.base.count = (base_size - 1) / bitsnap_width(b.base.dtype);
        deltas++;
    }
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        b.kernels = k;
        s = bitsnap_read_info(&info, frame, size);
        if (!s && info.elements_size <= sizeof out) {
            s = expected == 41 ? bitsnap_decode_range(&b, out, info.count - 1, 1, info.dtype, frame, size)
                               : bitsnap_decode(&b, out, info.count, info.dtype, frame, size);
            if (!expected) CHECK(!s && info.elements_size == elements_size && !memcmp(out, elements, elements_size), "%s: %s", name, bitsnap_message(&b));
            else CHECK(s && (b.error.rule == expected || expected == 39), "%s: R%u", name, b.error.rule);
        } else {
            CHECK(expected, "%s", name);
            CHECK(bitsnap_test(&b, frame, size) && b.error.rule == expected, "%s: R%u", name, b.error.rule);
        }
        if (expected) continue;
        for (i = 0; i < size; i++) {
            s = bitsnap_decode(&b, out, info.count, info.dtype, frame, i);
            CHECK(s == BITSNAP_E_TRUNCATED, "%s cut at %lu: %s", name, (unsigned long)i, bitsnap_message(&b));
        }
        if (!info.checks) continue;
        memcpy(copy, frame, size);
        for (i = 0; i < size; i++)
            for (bit = 0; bit < 8; bit++) {
                copy[i] ^= (uint8_t)(1u << bit);
                CHECK(bitsnap_decode(&b, out, info.count, info.dtype, copy, size), "%s: bit %u of byte %lu is not noticed", name, bit, (unsigned long)i);
                copy[i] ^= (uint8_t)(1u << bit);
            }
        for (i = 1; i < base_size; i++)
            for (bit = 0; bit < 8; bit++) {
                base[i] ^= (uint8_t)(1u << bit);
                s = bitsnap_decode(&b, out, info.count, info.dtype, frame, size);
                CHECK(s == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE_HASH, "%s: bit %u of byte %lu of the base: R%u", name, bit, (unsigned long)i, b.error.rule);
                base[i] ^= (uint8_t)(1u << bit);
            }
    }
    if (expected) rejected++;
    else good++;
}

static void golden_frames(void)
{
    static uint8_t frame[1 << 15], elements[1 << 15], base[1 << 15];
    FILE *f = fopen("tests/golden.txt", "r");
    CHECK(f, "tests/golden.txt is read from the project's folder");
    if (!f) return;
    while (fgets(line, sizeof line, f)) {
        char *name = strtok(line, " \n"), *rule = strtok(NULL, " \n"), *hex = strtok(NULL, " \n"), *expected = strtok(NULL, " \n"), *given = strtok(NULL, " \n");
        size_t size, elements_size, base_size;
        if (!name || name[0] == '#' || !expected) continue;
        size = from_hex(frame, hex);
        elements_size = expected[0] == '-' ? 0 : from_hex(elements, expected);
        base_size = !given || given[0] == '-' ? 0 : from_hex(base, given);
        one(name, rule, frame, size, elements, elements_size, base, base_size);
    }
    fclose(f);
    CHECK(good >= 110 && rejected >= 160 && deltas >= 50, "%u good, %u rejected, %u with a base", good, rejected, deltas);
}

int main(void)
{
    test_program = "golden";
    if (test_big_endian()) {
        SKIP("golden_frames", "the elements of golden.txt are little-endian");
        return 0;
    }
    RUN(golden_frames);
    return test_failures != 0;
}
