#define _POSIX_C_SOURCE 200809L

#include "tensors.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    bitsnap_dtype dtype;
    const char *name;        /* in the benchmark's output */
    const char *safetensors; /* in the header of a file */
    unsigned width;
} dtypes[] = {
    {BITSNAP_BF16, "bf16", "BF16", 2},
    {BITSNAP_F16, "f16", "F16", 2},
    {BITSNAP_F32, "f32", "F32", 4},
};
enum { DTYPES = sizeof dtypes / sizeof *dtypes };

const char *tensors_dtype_name(bitsnap_dtype dtype)
{
    for (unsigned k = 0; k < DTYPES; k++)
        if (dtypes[k].dtype == dtype) return dtypes[k].name;
    return "?";
}

void tensors_free(tensor *list, size_t count)
{
    for (size_t i = 0; i < count; i++) free(list[i].data);
}

/* ---- .safetensors: 8 bytes of header size, the header in JSON, the data ---- */

typedef struct file_view {
    uint8_t *bytes; /* the whole file, then a 0 */
    size_t size;
    char *header; /* 0-terminated copy of the JSON text */
    const uint8_t *data;
    size_t data_size;
} file_view;

static void file_close(file_view *v)
{
    free(v->bytes);
    free(v->header);
}

static uint8_t *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = NULL;
    long n = -1;
    if (!file) return NULL;
    if (!fseek(file, 0, SEEK_END)) n = ftell(file);
    if (n > 8 && !fseek(file, 0, SEEK_SET)) bytes = malloc((size_t)n);
    if (bytes && fread(bytes, 1, (size_t)n, file) != (size_t)n) {
        free(bytes);
        bytes = NULL;
    }
    fclose(file);
    *size = (size_t)n;
    return bytes;
}

/* Returns 1 if the file is readable and contains its whole header. */
static int file_open(file_view *v, const char *path)
{
    uint64_t header_size = 0;
    memset(v, 0, sizeof *v);
    v->bytes = file_read(path, &v->size);
    if (!v->bytes) return 0;
    for (unsigned k = 0; k < 8; k++) header_size |= (uint64_t)v->bytes[k] << 8 * k;
    if (header_size > v->size - 8) return 0;
    v->header = malloc((size_t)header_size + 1);
    if (!v->header) return 0;
    memcpy(v->header, v->bytes + 8, (size_t)header_size);
    v->header[header_size] = 0;
    v->data = v->bytes + 8 + header_size;
    v->data_size = v->size - 8 - (size_t)header_size;
    return 1;
}

typedef struct entry {
    unsigned kind; /* index in dtypes; DTYPES: another dtype */
    size_t begin, end;
} entry;

/* Parses an object of the header, "{...}" from `object` on. Objects that describe tensors are flat. */
static int entry_parse(entry *e, char *object)
{
    char *close = strchr(object, '}'), *dtype, *offsets, *next;
    e->kind = DTYPES;
    if (!close) return 0;
    *close = 0; /* for strstr; restored below */
    dtype = strstr(object, "\"dtype\"");
    offsets = strstr(object, "\"data_offsets\"");
    if (dtype) dtype = strchr(dtype + 7, '"');
    if (offsets) offsets = strchr(offsets, '[');
    for (unsigned k = 0; dtype && k < DTYPES; k++) {
        size_t n = strlen(dtypes[k].safetensors);
        if (!strncmp(dtype + 1, dtypes[k].safetensors, n) && dtype[1 + n] == '"') e->kind = k;
    }
    if (offsets) {
        e->begin = (size_t)strtoull(offsets + 1, &next, 10);
        if (*next == ',') e->end = (size_t)strtoull(next + 1, &next, 10);
        else offsets = NULL;
    }
    *close = '}';
    return dtype && offsets;
}

/* Returns the next tensor of the header after `at`; null at the end. */
static char *entry_next(entry *e, char *at, size_t data_size)
{
    while ((at = strchr(at, '{')) != NULL) {
        if (entry_parse(e, at) && e->kind < DTYPES && e->begin <= e->end && e->end <= data_size) return at + 1;
        at++;
    }
    return NULL;
}

/* Joins the tensors of the dtype with the most bytes in the file. */
static int gather(tensor *t, const file_view *v)
{
    size_t sum[DTYPES + 1] = {0}, size = 0;
    unsigned main = 0;
    entry e;
    for (char *at = v->header + 1; (at = entry_next(&e, at, v->data_size)) != NULL;) sum[e.kind] += e.end - e.begin;
    for (unsigned k = 1; k < DTYPES; k++)
        if (sum[k] > sum[main]) main = k;
    if (sum[main] < dtypes[main].width || sum[main] > v->data_size) return 0;
    t->dtype = dtypes[main].dtype;
    t->data = malloc(sum[main]);
    if (!t->data) return 0;
    for (char *at = v->header + 1; (at = entry_next(&e, at, v->data_size)) != NULL;) {
        if (e.kind != main) continue;
        memcpy(t->data + size, v->data + e.begin, e.end - e.begin);
        size += e.end - e.begin;
    }
    t->size = size / dtypes[main].width * dtypes[main].width;
    return 1;
}

int tensor_load(tensor *t, const char *directory, const char *name)
{
    char path[4096];
    file_view v;
    int good;
    if (snprintf(path, sizeof path, "%s/%s.safetensors", directory, name) >= (int)sizeof path) return 0;
    memset(t, 0, sizeof *t);
    snprintf(t->file, sizeof t->file, "%.63s", name);
    good = file_open(&v, path) && gather(t, &v);
    file_close(&v);
    return good;
}

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

/* Lists the names of up to `capacity` files, sorted, without their ending. */
static size_t list_directory(char (*names)[64], size_t capacity, const char *directory)
{
    static const char ending[] = ".safetensors";
    size_t count = 0;
    struct dirent *found;
    DIR *dir = opendir(directory);
    if (!dir) return 0;
    while (count < capacity && (found = readdir(dir)) != NULL) {
        size_t n = strlen(found->d_name), stem = n < sizeof ending ? 0 : n - (sizeof ending - 1);
        if (!stem || stem > 63 || strcmp(found->d_name + stem, ending) != 0) continue;
        memcpy(names[count], found->d_name, stem);
        names[count++][stem] = 0;
    }
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    return count;
}

static size_t load_first_of_each_dtype(tensor list[TENSORS_MAX], const char *directory)
{
    static char names[256][64];
    size_t files = list_directory(names, 256, directory), count = 0;
    for (size_t i = 0; i < files && count < DTYPES; i++) {
        int known = !tensor_load(&list[count], directory, names[i]);
        for (size_t k = 0; !known && k < count; k++) {
            if (list[k].dtype != list[count].dtype) continue;
            free(list[count].data);
            known = 1;
        }
        if (!known) count++;
    }
    return count;
}

size_t tensors_load(tensor list[TENSORS_MAX], const char *directory)
{
    static const char *const usual[] = {"bf16-1000", "fp16-1000", "master-1000", "adam_m-1000", "adam_v-1000"};
    size_t count = 0;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        if (tensor_load(&list[count], directory, usual[i])) count++;
    return count ? count : load_first_of_each_dtype(list, directory);
}

/* ---- made-up weights ---- */

uint64_t tensors_random(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9E3779B97F4A7C15);
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

double tensors_normal(uint64_t *state)
{
    int64_t sum = 0;
    for (unsigned k = 0; k < 6; k++) {
        uint64_t x = tensors_random(state);
        sum += (int64_t)(x & 0xFFFFFFFFu) + (int64_t)(x >> 32);
    }
    return (double)(sum - INT64_C(6) * 0xFFFFFFFF) / 4294967296.0;
}

/* Drops the low `drop` bits of x, rounding to nearest, ties to even. */
static uint32_t round_off(uint32_t x, unsigned drop)
{
    return (x + ((1u << (drop - 1)) - 1) + (x >> drop & 1)) >> drop;
}

static uint32_t f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* For finite values below 65504, such as weights. */
static uint16_t f16_bits(float value)
{
    uint32_t bits = f32_bits(value), sign = bits >> 16 & 0x8000u, rest = bits & 0x7FFFFFFFu;
    uint32_t exponent = rest >> 23;
    if (exponent < 102) return (uint16_t)sign; /* below half the smallest subnormal */
    if (exponent < 113) return (uint16_t)(sign | round_off((rest & 0x7FFFFFu) | 0x800000u, 126 - exponent));
    return (uint16_t)(sign | round_off(rest - (112u << 23), 13));
}

static void put(uint8_t *to, uint32_t value, unsigned width)
{
    for (unsigned k = 0; k < width; k++) to[k] = (uint8_t)(value >> 8 * k);
}

static void fill(tensor *t, unsigned width)
{
    static const float scale[8] = {0.02f, 0.013f, 0.031f, 0.008f, 0.05f, 0.0035f, 0.02f, 0.09f};
    uint64_t state = 1;
    for (size_t i = 0; i < t->size / width; i++) {
        float value = (float)(tensors_normal(&state) * (double)scale[i >> 16 & 7]);
        uint32_t bits = t->dtype == BITSNAP_F32    ? f32_bits(value)
                        : t->dtype == BITSNAP_BF16 ? round_off(f32_bits(value), 16)
                                                   : f16_bits(value);
        put(t->data + i * width, bits, width);
    }
}

size_t tensors_make(tensor list[TENSORS_MAX])
{
    for (unsigned k = 0; k < DTYPES; k++) {
        tensor *t = &list[k];
        t->dtype = dtypes[k].dtype;
        t->size = ((size_t)64 << 16) * dtypes[k].width;
        t->data = malloc(t->size);
        snprintf(t->file, sizeof t->file, "synthetic-%s", dtypes[k].name);
        if (!t->data) return 0;
        fill(t, dtypes[k].width);
    }
    return DTYPES;
}
