/* test_references.c - partners that are found by content: files whose copies are known, files at random, whose references must be
 * such as the format allows, and hostile files. Reads are counted: their sum stays linear. */
#include "tests/unit/test.h"
#include "bitsnap.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "docs/examples/file/bitsnap_file.h"
#define BITSNAP_REFERENCES_IMPLEMENTATION
#include "docs/examples/file/bitsnap_references.h"

enum { NUMBERS = 1 << 18, TENSORS = 24, ROOM = 1 << 24 };

typedef struct file {
    uint8_t *data;
    uint64_t size, read; /* read: bytes that were asked for */
    char text[4096];
    size_t text_size, count;
    bitsnap_safetensors model;
    bitsnap_reference *list;
    size_t found;
} file;

static float numbers[NUMBERS]; /* weights */

static uint16_t rounded(float x, int is_f16)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (!is_f16) return (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
    bits += 0xFFF + (bits >> 13 & 1); /* a normal number in F16, too */
    return (uint16_t)((bits >> 16 & 0x8000) | (((bits >> 13) - (112u << 10)) & 0x7FFF));
}

static void begin(file *f)
{
    memset(f, 0, sizeof *f);
    f->data = (uint8_t *)malloc(ROOM);
    f->text[f->text_size++] = '{';
}

static void put_bytes(file *f, uint64_t x, unsigned width)
{
    for (; width--; x >>= 8) f->data[f->size++] = (uint8_t)x;
}

/* Appends elements to the last tensor: numbers of the pool, from one of them on, as a dtype. */
static void put(file *f, bitsnap_dtype dtype, size_t first, size_t count)
{
    size_t i;
    for (i = first; i < first + count; i++) {
        uint64_t x = rounded(numbers[i], dtype == BITSNAP_F16);
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        if (bitsnap_width(dtype) >= 4) x = bits;
        put_bytes(f, x, bitsnap_width(dtype));
    }
    CHECK(f->size < ROOM, "no room");
}

static const char *name_of(bitsnap_dtype dtype)
{
    return dtype == BITSNAP_F32 ? "F32" : dtype == BITSNAP_BF16 ? "BF16" : dtype == BITSNAP_F16 ? "F16" : dtype == BITSNAP_I64 ? "I64" : "U8";
}

/* Ends a tensor that began with this byte. Its name tells nothing. */
static void end(file *f, bitsnap_dtype dtype, uint64_t first)
{
    f->text_size += (size_t)snprintf(f->text + f->text_size, sizeof f->text - f->text_size,
                                     "%s\"%zu\":{\"dtype\":\"%s\",\"shape\":[%llu],\"data_offsets\":[%llu,%llu]}",
                                     f->count ? "," : "", f->count, name_of(dtype),
                                     (unsigned long long)(f->size - first) / bitsnap_width(dtype), (unsigned long long)first,
                                     (unsigned long long)f->size);
    f->count++;
}

static void tensor_of(file *f, bitsnap_dtype dtype, size_t first, size_t count)
{
    const uint64_t begun = f->size;
    put(f, dtype, first, count);
    end(f, dtype, begun);
}

static int read_data(void *context, uint64_t offset, void *to, size_t size)
{
    file *f = (file *)context;
    CHECK(offset <= f->size && size <= f->size - offset, "a read past the end");
    f->read += size;
    memcpy(to, f->data + offset, size);
    return 0;
}

static unsigned width_at(const file *f, const bitsnap_reference *r) { return bitsnap_width(bitsnap_tensor_codec(&f->model.tensors[r->tensor])); }
static uint64_t begin_of(const file *f, const bitsnap_reference *r) { return f->model.tensors[r->tensor].begin + r->first * width_at(f, r); }
static uint64_t end_of(const file *f, const bitsnap_reference *r) { return begin_of(f, r) + r->count * width_at(f, r); }
static uint64_t base_end_of(const bitsnap_reference *r) { return r->base + r->count * bitsnap_width((bitsnap_dtype)r->base_dtype); }

/* What docs/FORMAT.md, 8.8, asks for. */
static void check_rules(const file *f)
{
    uint64_t run = 0;
    size_t i, k;
    for (i = 0; i < f->found; i++) {
        const bitsnap_reference *r = &f->list[i];
        const bitsnap_tensor *t = &f->model.tensors[r->tensor];
        CHECK(r->count && end_of(f, r) <= t->end, "%zu: inside its tensor", i);
        CHECK(!i || end_of(f, r - 1) <= begin_of(f, r), "%zu: in order", i);
        CHECK(base_end_of(r) <= begin_of(f, r), "%zu: the base lies before", i);
        for (k = 0; k < f->found; k++)
            CHECK(end_of(f, &f->list[k]) <= r->base || begin_of(f, &f->list[k]) >= base_end_of(r), "%zu: its base refers itself", i);
        for (k = 0; k < f->model.count; k++) {
            const bitsnap_tensor *old = &f->model.tensors[k];
            if (old->end <= r->base || old->begin >= base_end_of(r) || old->begin == old->end) continue;
            CHECK((int)bitsnap_tensor_codec(old) == r->base_dtype && (int)bitsnap_tensor_base(t, old) == r->base_dtype, "%zu: dtype of the base", i);
            CHECK(r->base < old->begin || (r->base - old->begin) % bitsnap_width((bitsnap_dtype)r->base_dtype) == 0, "%zu: whole elements", i);
        }
        if (!i || end_of(f, r - 1) != begin_of(f, r) || base_end_of(r - 1) != r->base) {
            CHECK(!i || run >= BITSNAP_REFERENCE_LEAST, "%zu: a small run", i);
            run = 0;
        }
        run += r->count;
    }
    CHECK(!f->found || run >= BITSNAP_REFERENCE_LEAST, "a small run");
}

/* Finds references, with a callback and in memory. Returns the bytes that have some. Adds what was read to f->read. */
static uint64_t find(file *f, const unsigned char *skip)
{
    const bitsnap_source source = { read_data, f, NULL, 0 }, memory = { NULL, NULL, f->data, f->size };
    bitsnap_reference *other;
    bitsnap_file_error e;
    size_t n, i;
    uint64_t bytes = 0;
    memset(&e, 0, sizeof e);
    f->text[f->text_size++] = '}';
    CHECK(!bitsnap_safetensors_parse(&f->model, f->text, f->text_size, NULL, &e), "%s", e.message);
    CHECK(!bitsnap_references_find(&f->list, &f->found, &f->model, &source, skip, 1), "found");
    CHECK(!bitsnap_references_find(&other, &n, &f->model, &memory, skip, 1), "found");
    CHECK(n == f->found, "%zu in memory, %zu by reading", n, f->found);
    for (i = 0; i < n && i < f->found; i++) {
        const bitsnap_reference *x = &other[i], *y = &f->list[i];
        CHECK(x->tensor == y->tensor && x->first == y->first && x->count == y->count && x->base == y->base, "%zu", i);
    }
    free(other);
    check_rules(f);
    for (i = 0; i < f->found; i++) bytes += end_of(f, &f->list[i]) - begin_of(f, &f->list[i]);
    return bytes;
}

static void done(file *f)
{
    bitsnap_safetensors_free(&f->model);
    free(f->list);
    free(f->data);
}

/* ---- copies that are known ---- */

/* Checks how many bytes have partners, and that little is read. */
static void expect(const char *what, file *f, uint64_t least, uint64_t most)
{
    const uint64_t bytes = find(f, NULL);
    CHECK(bytes >= least && bytes <= most, "%s: %llu bytes refer, not %llu to %llu", what, (unsigned long long)bytes,
          (unsigned long long)least, (unsigned long long)most);
    CHECK(f->read <= 4 * f->size + 65536, "%s: %llu of %llu bytes read", what, (unsigned long long)f->read, (unsigned long long)f->size);
    done(f);
}

static void fused_and_split(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F16, BITSNAP_F32, BITSNAP_I64, BITSNAP_I8 };
    size_t i;
    for (i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        const bitsnap_dtype d = dtypes[i];
        const uint64_t width = bitsnap_width(d);
        file f;
        uint64_t begun;
        begin(&f); /* three tensors, and one that has them in another order */
        tensor_of(&f, d, 0, 20000);
        tensor_of(&f, d, 50000, 30011);
        tensor_of(&f, d, 100000, 10007);
        begun = f.size;
        put(&f, d, 100000, 10007);
        put(&f, d, 0, 20000);
        put(&f, d, 50000, 30011);
        end(&f, d, begun);
        expect("fused", &f, 60018 * width - 8 * width, 60018 * width);
        begin(&f); /* the reverse */
        tensor_of(&f, d, 0, 60000);
        tensor_of(&f, d, 40001, 19999);
        tensor_of(&f, d, 7, 39994);
        expect("split", &f, 59993 * width, 59993 * width);
        begin(&f); /* a tensor that repeats itself */
        begun = f.size;
        put(&f, d, 0, 20000);
        put(&f, d, 0, 20000);
        put(&f, d, 0, 20000);
        end(&f, d, begun);
        expect("repeated", &f, 40000 * width - 16 * width, 40000 * width);
        begin(&f); /* a small neighbour goes with a large one */
        tensor_of(&f, d, 0, 20100);
        tensor_of(&f, d, 100000, 5000);
        tensor_of(&f, d, 0, 20000);
        tensor_of(&f, d, 20000, 100);
        expect("small", &f, 20100 * width, 20100 * width);
        begin(&f); /* one of 30 elements has changed */
        tensor_of(&f, d, 0, 60000);
        tensor_of(&f, d, 10, 50000);
        for (begun = 0; begun < 50000; begun += 20 + test_below(20)) f.data[(60000 + begun) * width] ^= 5;
        expect("changed", &f, 49990 * width, 50000 * width);
        begin(&f); /* nothing is equal */
        tensor_of(&f, d, 0, 60000);
        tensor_of(&f, d, 60000, 60000);
        expect("apart", &f, 0, 0);
    }
}

/* Master copies of all parameters in another order, before the parameters and after them. */
static void flat_buffers(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F16 };
    size_t i, k;
    for (i = 0; i < 4; i++) {
        const bitsnap_dtype d = dtypes[i & 1];
        uint64_t begun;
        file f;
        begin(&f);
        for (k = 0; k < 5 && i < 2; k++) tensor_of(&f, d, k * 30000, 30000);
        begun = f.size;
        for (k = 5; k-- > 0;) put(&f, BITSNAP_F32, k * 30000, 30000);
        end(&f, BITSNAP_F32, begun);
        for (k = 0; k < 5 && i >= 2; k++) tensor_of(&f, d, k * 30000, 30000);
        if (i < 2) expect("flat", &f, 4 * 149900, 4 * 150000);
        else expect("flat first", &f, 2 * 149900, 2 * 150000);
    }
}

/* What is quantized is no base and has none. */
static void skipped(void)
{
    static const unsigned char skip[] = { 1, 0, 1, 0 };
    file f;
    begin(&f);
    tensor_of(&f, BITSNAP_F32, 0, 20000);
    tensor_of(&f, BITSNAP_F32, 1, 19999);
    tensor_of(&f, BITSNAP_F32, 20000, 20000);
    tensor_of(&f, BITSNAP_F32, 0, 40000);
    CHECK(find(&f, skip) == 4 * 19999 && f.list[0].tensor == 3 && f.list[0].first == 1, "to the one that is as it is");
    done(&f);
}

/* What has a base elsewhere refers to nothing, but others refer to it. */
static void only_bases(void)
{
    static const unsigned char skip[] = { 0, 2, 0 };
    file f;
    begin(&f);
    tensor_of(&f, BITSNAP_F32, 0, 20000);
    tensor_of(&f, BITSNAP_F32, 0, 20000);
    tensor_of(&f, BITSNAP_F32, 0, 40000);
    CHECK(find(&f, skip) == 4 * 20000 && f.found == 1 && f.list[0].tensor == 2 && f.list[0].base == 4 * 20000, "to the last one that is equal");
    done(&f);
}

/* ---- at random ---- */

static void any_files(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F32, BITSNAP_F16, BITSNAP_I8, BITSNAP_I64 };
    uint64_t referring = 0;
    size_t round;
    for (round = 0; round < (test_long() ? 400u : 40u); round++) {
        unsigned char skip[TENSORS];
        file f;
        size_t i, k;
        begin(&f);
        for (i = 0; i < TENSORS; i++) {
            const bitsnap_dtype d = dtypes[test_below(sizeof dtypes / sizeof *dtypes)];
            const uint64_t begun = f.size;
            const size_t parts = test_below(5);
            for (k = 0; k < parts; k++) {
                const size_t first = test_below(40) * 1000 + test_below(3), count = test_below(3) ? 1 + test_below(12000) : 1 + test_below(40);
                put(&f, d, first, count);
                if (test_below(4) == 0) { /* zeros */
                    memset(f.data + f.size, 0, 8 * count);
                    f.size += count * bitsnap_width(d);
                }
                if (test_below(4) == 0) f.data[f.size - 1 - test_below(count)] ^= 1;
            }
            end(&f, d, begun);
            skip[i] = (unsigned char)(test_below(10) ? 0 : 1 + test_below(2));
        }
        referring += find(&f, round & 1 ? skip : NULL);
        for (i = 0; i < f.found; i++) CHECK(!(round & 1 && skip[f.list[i].tensor]), "one that takes no part");
        done(&f);
    }
    CHECK(referring > round * 100000, "%llu bytes refer", (unsigned long long)referring);
}

/* ---- hostile ones ---- */

/* Content that is made to be compared in vain, or again and again: what is read stays linear. */
static void hostile(void)
{
    enum { SIZE = 4 << 20 };
    size_t kind, i, anchor = 0;
    uint16_t u[BSR_BLOCK + 1];
    for (i = 0; i + BSR_BLOCK < NUMBERS; i++) { /* a window that is an anchor */
        int16_t chosen[BSR_BLOCK];
        size_t k;
        for (k = 0; k <= BSR_BLOCK; k++) u[k] = rounded(numbers[i + k], 0);
        if (bsr_choose(chosen, u) && chosen[0] < BSR_CHOSEN && bsr_hash(u)) break;
    }
    anchor = i;
    for (kind = 0; kind < 12; kind++) {
        static const size_t periods[] = { 1, 7, 64, 1000, 4095, 4096, 5000 };
        file f;
        begin(&f);
        for (i = 0; i < SIZE / 2; i++) {
            uint16_t x = 0;
            if (kind < 7) x = rounded(numbers[i % periods[kind]], 0);
            else if (kind == 7) x = (uint16_t)i;
            else if (kind == 8) x = (uint16_t)(i % 4096 < 4000 ? i % 4000 : i);
            else if (kind == 9) x = (uint16_t)(i / 16 * 40503u + i % 16);
            else if (kind == 10) x = rounded(numbers[i % 64 < 16 ? anchor + i % 16 : test_below(NUMBERS)], 0); /* anchors without end */
            else x = rounded(numbers[i % 5000 < 4000 ? i % 5000 : test_below(NUMBERS)], 0); /* which match for less than a
                                                                                               frame */
            put_bytes(&f, x, 2);
            if (i == SIZE / 4) end(&f, BITSNAP_BF16, 0);
        }
        end(&f, BITSNAP_BF16, SIZE / 2 + 2);
        (void)find(&f, NULL);
        CHECK(f.read <= 6 * f.size, "kind %zu: %llu of %llu bytes read", kind, (unsigned long long)f.read, (unsigned long long)f.size);
        if (kind == 5 || kind == 6) CHECK(f.found > f.size / 10000 * 9 / 10, "kind %zu: %zu references", kind, f.found);
        done(&f);
    }
}

static int fail(void *context, uint64_t offset, void *to, size_t size)
{
    unsigned *left = (unsigned *)context;
    (void)offset;
    memset(to, 1, size);
    return !(*left)--;
}

static void failing_reads(void)
{
    unsigned n, left;
    file f;
    begin(&f);
    tensor_of(&f, BITSNAP_BF16, 0, 50000);
    tensor_of(&f, BITSNAP_F32, 100, 40000);
    (void)find(&f, NULL);
    for (n = 0; n < 12; n++) {
        const bitsnap_source source = { fail, &left, NULL, 0 };
        bitsnap_reference *list;
        size_t count;
        left = n;
        CHECK(bitsnap_references_find(&list, &count, &f.model, &source, NULL, 1) == BITSNAP_E_SOURCE && !list && !count, "read %u", n);
    }
    done(&f);
}

int main(void)
{
    size_t i;
    test_program = "references";
    for (i = 0; i < NUMBERS; i++) { /* normal numbers in F16, too */
        const double size = 1e-4 + (double)test_below(2000000) * 1e-7 * (double)(1 + test_below(4));
        numbers[i] = (float)(test_below(2) ? size : -size);
    }
    RUN(fused_and_split);
    RUN(flat_buffers);
    RUN(skipped);
    RUN(only_bases);
    RUN(any_files);
    RUN(hostile);
    RUN(failing_reads);
    return test_failures > 0;
}
