#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study.h"

static uint64_t splitmix64(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* Changes each element with the same probability, one unit in the last place up or down; zeros away from zero. */
static void perturb(uint16_t *to, const uint16_t *from, size_t n, double rate)
{
    const double limit = rate * 9007199254740992.0; /* 2^53 */
    uint64_t state = 1;
    for (size_t i = 0; i < n; i++) {
        const uint64_t r = splitmix64(&state);
        to[i] = from[i];
        if ((double)(r >> 11) < limit) to[i] = (uint16_t)(from[i] + ((r & 1) || !(from[i] & 0x7FFF) ? 1 : -1));
    }
}

static uint16_t *weights(const char *path, size_t n)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    const size_t stem = strlen(name) > 12 ? strlen(name) - 12 : 0; /* .safetensors */
    char directory[4096], base[64];
    uint16_t *list = malloc(2 * n);
    tensor t;
    snprintf(directory, sizeof directory, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    snprintf(base, sizeof base, "%.*s", (int)stem, name);
    if (!list) stop("out of memory", "");
    if (!tensor_load(&t, directory, base) || t.dtype != BITSNAP_BF16) stop("not a file of bf16 tensors: ", path);
    for (size_t at = 0; at < 2 * n; at += t.size) memcpy((uint8_t *)list + at, t.data, 2 * n - at < t.size ? 2 * n - at : t.size);
    free(t.data);
    return list;
}

void study_rates(const options *o)
{
    static const double rates[] = {0,     1e-5, 2e-5, 5e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3,
                                   0.01, 0.02, 0.05, 0.1,  0.2,  0.5,  1};
    const size_t n = (size_t)(o->quick ? 1 : 16) << 20;
    const unsigned forms = ALL_FORMS & ~(1u << XOR_ZSTD_19);
    uint16_t *base = weights(o->from, n), *data = malloc(2 * n);
    size_t full = 0;
    if (!data) stop("out of memory", "");
    table_begin(o, "bf16 weights, a share of them changed by one unit in the last place", 1);
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) {
        const change c = {BITSNAP_BF16, BITSNAP_BF16, base, data, n};
        char to[16];
        measured m;
        if (o->quick && i % 3) continue;
        perturb(data, base, n, rates[i]);
        m = forms_measure(&c, i ? forms & ~(1u << FULL) : forms);
        if (!i) full = m.bytes[FULL];
        m.bytes[FULL] = full; /* it hardly depends on the rate */
        snprintf(to, sizeof to, "%g", rates[i]);
        table_row("bf16", "0", to, &m, 1);
    }
    table_end();
    free(base);
    free(data);
}
