/* Blocks as objects: an index finds them, they are decoded and encoded alone, and pushed into a stream. Sources are memory or
 * callbacks that count, fail and return wrong bytes. */
#include "test.h"
#include "inside.h"
#include "data.h"
#include <time.h>

#define MOST 560000 /* for 8 bytes each */
#define ROOM (8 * MOST + 4000000)
static uint8_t elements[8 * MOST], base[8 * MOST], back[8 * MOST], frame[ROOM], other[ROOM], heads[400000];
static uint8_t *workspace;
static size_t workspace_size;
static bitsnap_index index_;

/* A frame that a callback reads. */
typedef struct file {
    const uint8_t *bytes;
    uint64_t size, got, reads;
    uint64_t fail, change; /* number of the read that fails half-way, or gives a wrong byte; 0: none */
} file;

static int file_read(void *context, uint64_t offset, void *to, size_t size)
{
    file *f = (file *)context;
    CHECK(offset <= f->size && size <= f->size - offset && size);
    f->reads++;
    f->got += size;
    memcpy(to, f->bytes + offset, f->reads == f->fail ? size / 2 : size);
    if (f->reads == f->change) ((uint8_t *)to)[test_below(size)] ^= (uint8_t)(1 << test_below(8));
    return f->reads == f->fail;
}

static bitsnap_source source_of(file *f, const uint8_t *bytes, size_t size, int memory)
{
    bitsnap_source x;
    memset(f, 0, sizeof *f);
    memset(&x, 0, sizeof x);
    f->bytes = bytes;
    f->size = x.size = size;
    if (memory) {
        x.data = bytes;
    } else {
        x.read = file_read;
        x.context = f;
    }
    return x;
}

static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    uint64_t i;
    for (i = 0; i < count; i++) task(argument, i, (unsigned)(i % *(unsigned *)context));
}

static bitsnap codec(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = workspace_size;
    return b;
}

/* Finds, decodes and encodes each block of a frame alone. Pushing all blocks gives the frame. */
static void frame_of(bitsnap b, size_t n, bitsnap_dtype dtype)
{
    const unsigned width = bitsnap_width(dtype);
    bitsnap d = codec();
    bitsnap_encoder s;
    bitsnap_info info, header;
    bitsnap_extent x;
    bitsnap_source source;
    size_t size, at, some;
    uint64_t first, place;
    unsigned memory, workers = 3, i;
    file f;
    d.base = b.base;
    CHECK(!bitsnap_encode(&b, frame, ROOM, &size, elements, n, dtype), "%s %s", bitsnap_message(&b), b.error.argument);
    CHECK(!bitsnap_decode(&d, back, n, dtype, frame, size), "%s", bitsnap_message(&d));
    for (memory = 0; memory < 2; memory++) {
        uint8_t *expected = (uint8_t *)malloc(n * width + 1), *out = (uint8_t *)malloc(n * width + 1);
        memcpy(expected, back, n * width);
        source = source_of(&f, frame, size, (int)memory);
        CHECK(!bitsnap_index_open(&d, &index_, &info, &source), "%s", bitsnap_message(&d));
        CHECK(info.count == n && info.dtype == dtype && info.frame_size == size);
        d.workspace_size = info.workspace_size;
        place = info.header_size;
        for (first = 0; first < n; first += x.count, place += x.size) {
            const uint64_t in = first + test_below((size_t)(n - first));
            CHECK(!bitsnap_index_find(&d, &index_, first, &x), "%s", bitsnap_message(&d));
            CHECK(x.first == first && x.offset == place && x.form == frame[x.offset]);
            CHECK(!bitsnap_index_find(&d, &index_, in, &x) && x.first <= in && in - x.first < x.count);
            CHECK(!bitsnap_index_find(&d, &index_, first + x.count - 1 < n ? first : n - 1, &x));
            CHECK(!bitsnap_index_find(&d, &index_, first, &x));
            at = test_below((size_t)x.count);
            some = test_below((size_t)x.count - at) + 1;
            CHECK(!bitsnap_block_decode(&d, out, first + at, some, &info, &x, frame + x.offset), "%s", bitsnap_message(&d));
            CHECK(!memcmp(out, expected + (first + at) * width, some * width));
        }
        CHECK(n == 0 || first == n);
        if (n) CHECK(bitsnap_index_find(&d, &index_, n, &x) == BITSNAP_E_ARGUMENT && !strcmp(d.error.argument, "element"));
        for (i = 0; i < 12; i++) {
            at = i ? test_below(n + 1) : 0;
            some = i ? test_below(n - at + 1) : n;
            if (i == 6) {
                d.run = run;
                d.run_context = &workers;
                d.workers = workers;
                d.workspace_size = workspace_size;
            }
            CHECK(!bitsnap_index_decode(&d, &index_, out, at, some), "%s", bitsnap_message(&d));
            CHECK(!memcmp(out, expected + at * width, some * width));
        }
        d.run = NULL;
        d.workers = 0;
        free(expected);
        free(out);
    }
    d.workspace_size = workspace_size;
    /* encodes all blocks alone, last block first */
    CHECK(!bitsnap_encoder_begin(&b, &s, other, ROOM, &at, n, dtype) && !bitsnap_read_info(&header, other, at));
    CHECK(!bitsnap_index_open(&d, &index_, &info, &source));
    for (first = n; first > 0;) {
        const uint64_t cell = UINT64_C(1) << info.block_log2;
        first = (first - 1) / cell * cell;
        CHECK(!bitsnap_index_find(&d, &index_, first, &x) && x.first == first);
        some = (size_t)(n - first < cell ? n - first : cell);
        CHECK(!bitsnap_block_encode(&b, other + x.offset, (size_t)x.size, &at, &header, elements + first * width, first, some), "%s",
              bitsnap_message(&b));
        CHECK(at == x.size && !memcmp(frame + x.offset, other + x.offset, at));
    }
    s.index = heads;
    s.index_capacity = sizeof heads;
    for (place = s.stored; s.position < n; place += x.size) {
        const uint64_t position = s.position;
        CHECK(!bitsnap_index_find(&d, &index_, position, &x));
        if (test_below(8) == 0) {
            other[place + test_below((size_t)x.size)] ^= 8;
            if (info.checks) CHECK(bitsnap_encoder_push_block(&b, &s, other + place, (size_t)x.size) && s.position == position);
            memcpy(other + place, frame + place, (size_t)x.size);
        }
        if (info.checks) CHECK(bitsnap_encoder_push_block(&b, &s, other + place, (size_t)x.size - 1) && s.position == position);
        if (s.position != position) break;
        CHECK(!bitsnap_encoder_push_block(&b, &s, other + place, (size_t)x.size), "%s %s", bitsnap_message(&b), b.error.argument);
        if (s.position == position) break;
    }
    CHECK(!bitsnap_encoder_end(&b, &s, other + place, ROOM - (size_t)place, &at), "%s", bitsnap_message(&b));
    CHECK(place + at == size && !memcmp(frame, other, size), "%zu, not %zu", (size_t)place + at, size);
}

static void all_frames(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64, BITSNAP_I64 };
    static const size_t counts[] = { 0, 1, 63, 64, 1000, 70000, 200001 };
    unsigned i, k, level, log2;
    for (i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++)
        for (k = 0; k < sizeof counts / sizeof counts[0]; k++) {
            const size_t n = counts[k];
            for (log2 = 6; log2 <= 20; log2 += log2 == 6 ? 4 : 3) {
                bitsnap b = codec();
                if (n >> log2 > 4000) continue;
                level = (i + k + log2) % 3 + 1;
                data_fill(elements, n, dtypes[i], (int)((i + k + log2) % DATA_SHAPES));
                if (n >> log2 > 4) memset(elements + (n / 4) * bitsnap_width(dtypes[i]), 0, n / 3);
                b.level = (int)level;
                b.block_log2 = log2;
                b.flags = (log2 + k) % 3 == 0 ? BITSNAP_CONTENT_ID : (log2 + k) % 3 == 1 ? BITSNAP_NO_CHECKS : BITSNAP_VERIFY;
                b.columns = level == 3 && dtypes[i] == BITSNAP_F32 ? 500 : 0;
                frame_of(b, n, dtypes[i]);
            }
        }
}

static void quantized(void)
{
    unsigned k;
    for (k = 0; k < 3; k++) {
        bitsnap b = codec();
        data_fill(elements, 200000, BITSNAP_F32, DATA_WEIGHTS);
        if (k < 2) b.quantizer.bins = 16;
        else b.quantizer.clusters = 16;
        b.columns = k ? 0 : 1000;
        b.block_log2 = k == 1 ? 12 : 0;
        frame_of(b, 200000, BITSNAP_F32);
    }
}

static int base_read(void *context, uint64_t offset, void *to, size_t size)
{
    memcpy(to, (const uint8_t *)context + offset, size);
    return 0;
}

static void deltas(void)
{
    unsigned k;
    for (k = 0; k < 6; k++) {
        const size_t n = 200001;
        bitsnap b = codec();
        size_t i;
        b.base.dtype = k & 1 ? BITSNAP_F32 : BITSNAP_BF16;
        b.base.count = n;
        data_fill(base, n, b.base.dtype, DATA_WEIGHTS);
        for (i = 0; i < n; i++) memcpy(elements + 2 * i, base + (k & 1 ? 4 * i + 2 : 2 * i), 2);
        for (i = 70000; i < n; i++)
            if (i > 150000 || i % 997 == 0) elements[2 * i] ^= (uint8_t)test_below(4);
        if (k < 4) {
            b.base.data = base;
        } else {
            b.base.source.read = base_read;
            b.base.source.context = base;
        }
        b.base.id = k & 2 ? bitsnap_content_id(base, n, b.base.dtype) : 0;
        b.block_log2 = k < 3 ? 16 : 0;
        frame_of(b, n, BITSNAP_BF16);
    }
}

/* Makes each read fail once. The error names the source, and the index still works afterwards. */
static void failing(void)
{
    bitsnap b = codec();
    const size_t n = 20000;
    bitsnap_source source;
    bitsnap_extent x;
    size_t size;
    uint64_t k, opened;
    unsigned opened_reads = 0;
    file f;
    data_fill(elements, n, BITSNAP_BF16, DATA_WEIGHTS);
    b.block_log2 = 6;
    CHECK(!bitsnap_encode(&b, frame, ROOM, &size, elements, n, BITSNAP_BF16));
    source = source_of(&f, frame, size, 0);
    for (k = 1; !opened_reads; k++) {
        memset(&index_, 0, sizeof index_);
        f.reads = 0;
        f.fail = k;
        if (!bitsnap_index_open(&b, &index_, NULL, &source)) {
            opened_reads = (unsigned)f.reads;
            break;
        }
        CHECK(b.error.status == BITSNAP_E_SOURCE && b.error.rule == BITSNAP_R_SOURCE, "%s", bitsnap_message(&b));
        CHECK(bitsnap_index_find(&b, &index_, 0, &x) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "index"));
    }
    CHECK(opened_reads == 3, "%u reads: the header, the end, the root", opened_reads);
    for (k = 1, opened = 0; k < 400; k++) {
        const uint64_t at = test_below(n - 300);
        f.reads = 0;
        f.fail = k % 8;
        memset(back, 0, 600);
        if (!bitsnap_index_decode(&b, &index_, back, at, 300)) {
            CHECK(!memcmp(back, elements + 2 * at, 600));
            opened++;
        } else {
            CHECK(b.error.status == BITSNAP_E_SOURCE && b.error.rule == BITSNAP_R_SOURCE, "%s", bitsnap_message(&b));
            f.fail = 0;
            CHECK(!bitsnap_index_decode(&b, &index_, back, at, 300) && !memcmp(back, elements + 2 * at, 600));
        }
    }
    CHECK(opened > 20 && opened < 380);
    f.fail = 0;
    source.size = 0;
    CHECK(bitsnap_index_open(&b, &index_, NULL, &source) == BITSNAP_E_TRUNCATED);
    source.size = size - 1;
    CHECK(bitsnap_index_open(&b, &index_, NULL, &source) == BITSNAP_E_TRUNCATED);
    source.size = size;
    b.workspace_size = 10;
    CHECK(bitsnap_index_open(&b, &index_, NULL, &source) == BITSNAP_E_WORKSPACE && b.error.needed == 64);
}

/* A source changes a byte in some reads. The result is an error or right elements; also if memory changes between two calls. */
static void changing(void)
{
    bitsnap b = codec();
    const size_t n = 140000;
    bitsnap_source source;
    bitsnap_info info;
    size_t size, i;
    unsigned wrong = 0;
    file f;
    data_fill(elements, n, BITSNAP_BF16, DATA_WEIGHTS);
    b.block_log2 = 8;
    CHECK(!bitsnap_encode(&b, frame, ROOM, &size, elements, n, BITSNAP_BF16));
    for (i = 0; i < 3000; i++) {
        const uint64_t at = test_below(n - 300);
        const size_t place = i % 2 ? test_below(size) : size - 1 - test_below(3000);
        source = source_of(&f, frame, size, 0);
        f.change = 1 + test_below(7);
        if (bitsnap_index_open(&b, &index_, &info, &source) || bitsnap_index_decode(&b, &index_, back, at, 300)) wrong++;
        else CHECK(!memcmp(back, elements + 2 * at, 600));
        f.change = 0;
        if (bitsnap_index_open(&b, &index_, &info, &source)) CHECK(0);
        CHECK(!bitsnap_index_decode(&b, &index_, back, at, 300) && !memcmp(back, elements + 2 * at, 600));
        source = source_of(&f, frame, size, 1);
        CHECK(!bitsnap_index_open(&b, &index_, &info, &source));
        frame[place] ^= 1;
        if (!bitsnap_index_decode(&b, &index_, back, at, 300)) CHECK(!memcmp(back, elements + 2 * at, 600));
        frame[place] ^= 1;
    }
    CHECK(wrong > 2000, "%u", wrong);
}

/* Damages the index of a frame with three levels, and all bytes after it. */
static void damaged(void)
{
    bitsnap b = codec();
    const size_t n = 64 * 66000, blocks = n / 64;
    bitsnap_source source;
    bitsnap_extent good[3], x;
    size_t size, i, k, refused = 0;
    file f;
    const inside_index t = inside_index_shape(blocks);
    memset(elements, 7, n);
    for (i = 0; i < n; i += 64) elements[i + 1] = (uint8_t)test_random();
    b.block_log2 = 6;
    CHECK(!bitsnap_encode(&b, frame, ROOM, &size, elements, n, BITSNAP_I8), "%s", bitsnap_message(&b));
    CHECK(t.top == 2);
    source = source_of(&f, frame, size, 0);
    CHECK(!bitsnap_index_open(&b, &index_, NULL, &source));
    for (k = 0; k < 3; k++) CHECK(!bitsnap_index_find(&b, &index_, k * (n - 1) / 2, &good[k]));
    for (i = size - t.size - 28; i < size; i++) {
        const uint8_t before = frame[i];
        unsigned bad = 0;
        if (i % 7 && i < size - 800) continue;
        frame[i] ^= (uint8_t)(1 << test_below(8));
        if (bitsnap_index_open(&b, &index_, NULL, &source)) {
            bad = 3;
        } else {
            for (k = 0; k < 3; k++) {
                if (bitsnap_index_find(&b, &index_, k * (n - 1) / 2, &x)) bad++;
                else CHECK(!memcmp(&x, &good[k], sizeof x));
                if (!bitsnap_index_decode(&b, &index_, back, k * (n - 1) / 2, 1)) CHECK(back[0] == elements[k * (n - 1) / 2]);
            }
        }
        CHECK(bad == 3 || i < size - 28 - t.entry_size * t.entries, "%zu", i);
        refused += bad > 0;
        /* without checks the index may say anything; reads stay inside the frame */
        b.flags = BITSNAP_IGNORE_CHECKS;
        if (!bitsnap_index_open(&b, &index_, NULL, &source))
            for (k = 0; k < 3; k++)
                if (!bitsnap_index_find(&b, &index_, k * (n - 1) / 2, &x)) {
                    CHECK(x.offset < size && x.size <= size - x.offset && x.first + x.count <= n);
                    (void)bitsnap_index_decode(&b, &index_, back, k * (n - 1) / 2, 1);
                }
        b.flags = 0;
        frame[i] = before;
    }
    CHECK(refused > 100);
}

static void wrong(void)
{
    bitsnap b = codec();
    const size_t n = 1000;
    bitsnap_source source;
    bitsnap_info info;
    bitsnap_extent x, y;
    bitsnap_encoder s;
    size_t size, at;
    file f;
    const guarded g = guarded_alloc(2 * sizeof(size_t), 0); /* must not read past the end of a smaller struct */
    bitsnap *old = (bitsnap *)(void *)g.p;
    data_fill(elements, n, BITSNAP_BF16, DATA_WEIGHTS);
    b.block_log2 = 8;
    CHECK(!bitsnap_encode(&b, frame, ROOM, &size, elements, n, BITSNAP_BF16));
    source = source_of(&f, frame, size, 1);
#define WRONG(call, name) CHECK(call == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, name), "%s", b.error.argument)
    memset(&index_, 0, sizeof index_);
    WRONG(bitsnap_index_open(&b, NULL, NULL, &source), "index");
    WRONG(bitsnap_index_open(&b, &index_, NULL, NULL), "source");
    WRONG(bitsnap_index_decode(&b, &index_, back, 0, 1), "index");
    WRONG(bitsnap_index_decode(&b, NULL, back, 0, 1), "index");
    WRONG(bitsnap_index_find(&b, &index_, 0, &x), "index");
    CHECK(!bitsnap_index_open(&b, &index_, &info, &source));
    WRONG(bitsnap_index_find(&b, &index_, 0, NULL), "extent");
    WRONG(bitsnap_index_find(&b, &index_, n, &x), "element");
    WRONG(bitsnap_index_decode(&b, &index_, NULL, 0, 1), "elements");
    WRONG(bitsnap_index_decode(&b, &index_, back, n + 1, 0), "first");
    WRONG(bitsnap_index_decode(&b, &index_, back, 1, n), "count");
    CHECK(!bitsnap_index_decode(&b, &index_, NULL, n, 0));
    CHECK(!bitsnap_index_find(&b, &index_, 300, &x) && x.first == 256 && x.count == 256);
    WRONG(bitsnap_block_decode(&b, back, 255, 1, &info, &x, frame + x.offset), "first");
    WRONG(bitsnap_block_decode(&b, back, 300, 213, &info, &x, frame + x.offset), "count");
    WRONG(bitsnap_block_decode(&b, back, 300, 1, NULL, &x, frame + x.offset), "info");
    WRONG(bitsnap_block_decode(&b, back, 300, 1, &info, NULL, frame + x.offset), "extent");
    WRONG(bitsnap_block_decode(&b, back, 300, 1, &info, &x, NULL), "block");
    WRONG(bitsnap_block_decode(&b, NULL, 300, 1, &info, &x, frame + x.offset), "elements");
    y = x;
    y.first++;
    WRONG(bitsnap_block_decode(&b, back, 300, 1, &info, &y, frame + x.offset), "extent");
    y = x;
    y.first = 0;
    CHECK(bitsnap_block_decode(&b, back, 5, 1, &info, &y, frame + x.offset) == BITSNAP_E_CHECK, "another place in the frame");
    y = x;
    y.size++;
    CHECK(bitsnap_block_decode(&b, back, 300, 1, &info, &y, frame + x.offset) == BITSNAP_E_CORRUPT && b.error.rule == BITSNAP_R_INDEX_BLOCKS);
    y = x;
    y.size = 3;
    CHECK(bitsnap_block_decode(&b, back, 300, 1, &info, &y, frame + x.offset) == BITSNAP_E_CORRUPT);
    WRONG(bitsnap_block_encode(&b, other, 1000, &at, &info, elements, 1, 256), "first");
    WRONG(bitsnap_block_encode(&b, other, 1000, &at, &info, elements, 256, 255), "count");
    WRONG(bitsnap_block_encode(&b, other, 1000, &at, &info, elements, 768, 256), "count");
    CHECK(bitsnap_block_encode(&b, other, 20, &at, &info, elements + 512, 256, 256) == BITSNAP_E_CAPACITY && !at);
    CHECK(!bitsnap_encoder_begin(&b, &s, other, ROOM, &at, n, BITSNAP_BF16));
    WRONG(bitsnap_encoder_push_block(&b, &s, frame + x.offset, (size_t)x.size), "index");
    s.index = heads;
    s.index_capacity = sizeof heads;
    CHECK(bitsnap_encoder_push_block(&b, &s, frame + x.offset, (size_t)x.size) == BITSNAP_E_CHECK && !s.position, "not the next block");
    b.flags = BITSNAP_IGNORE_CHECKS;
    WRONG(bitsnap_encoder_push_block(&b, &s, frame + x.offset, (size_t)x.size), "flags");
    old->struct_size = 2 * sizeof(size_t);
    CHECK(bitsnap_encoder_push_block(old, &s, frame + x.offset, (size_t)x.size) == BITSNAP_E_ARGUMENT, "a smaller struct");
    CHECK(!bitsnap_bound(old, n, BITSNAP_BF16) && !bitsnap_workspace_size(old, n, BITSNAP_BF16), "a smaller struct");
    guarded_free(g);
#undef WRONG
}

/* A frame of 2^34 elements. Only header, index and a few blocks exist; the callback makes them. */
#define KINDS 8
#define ROWS 64
typedef struct large {
    bitsnap_info info;
    uint64_t start, size, period;        /* of the index; of the frame; of KINDS blocks */
    uint64_t sizes[KINDS];
    uint8_t *index, header[64], *made[ROWS]; /* blocks that were read */
    uint64_t place[ROWS];
    uint64_t got, reads;
} large;
static large big;
static uint8_t *kinds[KINDS]; /* elements */

static int large_read(void *context, uint64_t offset, void *to, size_t size)
{
    large *x = (large *)context;
    unsigned i;
    if (offset >= x->start || offset < x->info.header_size) {
        CHECK(offset <= x->size && size <= x->size - offset);
        if (offset >= x->start) memcpy(to, x->index + (offset - x->start), size);
        else memcpy(to, x->header + offset, size);
        x->got += size;
        x->reads++;
        return 0;
    }
    for (i = 0; i < ROWS; i++)
        if (x->place[i] == offset) break;
    CHECK(i < ROWS);
    memcpy(to, x->made[i], size);
    return 0;
}

static void reach(unsigned log2)
{
    const uint64_t count = UINT64_C(1) << 34, blocks = count >> log2;
    const size_t cell = (size_t)1 << log2;
    bitsnap b = codec();
    bitsnap_encoder s;
    bitsnap_source source;
    bitsnap_extent x;
    uint64_t row[ROWS], i, most = 0;
    size_t size, k;
    double best = 1e9;
    memset(&big, 0, sizeof big);
    b.block_log2 = log2;
    CHECK(!bitsnap_encoder_begin(&b, &s, big.header, sizeof big.header, &size, count, BITSNAP_BF16));
    CHECK(!bitsnap_read_info(&big.info, big.header, size));
    for (k = 0; k < KINDS; k++) {
        kinds[k] = (uint8_t *)malloc(2 * cell);
        data_fill(kinds[k], cell, BITSNAP_BF16, (int)k);
    }
    s.index = malloc((size_t)blocks * 8);
    s.index_capacity = (size_t)blocks * 8;
    for (k = 0; k < KINDS; k++) {
        CHECK(!bitsnap_block_encode(&b, frame, ROOM, &size, &big.info, kinds[k], k * cell, cell));
        big.sizes[k] = size;
        big.period += size;
        memcpy((uint8_t *)s.index + 8 * k, frame, 8);
    }
    for (i = KINDS; i < blocks; i++) memcpy((uint8_t *)s.index + 8 * i, (uint8_t *)s.index + 8 * (i % KINDS), 8);
    for (k = 0; k < ROWS; k++) { /* rows of 512 elements in some blocks, with their checks in the index */
        const uint64_t block = test_random() % blocks;
        row[k] = block * cell + test_below(cell - 512);
        big.made[k] = (uint8_t *)malloc(big.sizes[block % KINDS]);
        CHECK(!bitsnap_block_encode(&b, big.made[k], big.sizes[block % KINDS], &size, &big.info, kinds[block % KINDS], block * cell, cell));
        memcpy((uint8_t *)s.index + 8 * block, big.made[k], 8);
    }
    s.index_size = (size_t)blocks * 8;
    s.position = count;
    s.stored += big.period * (blocks / KINDS);
    big.start = s.stored;
    big.index = (uint8_t *)malloc(s.index_size + s.index_size / 32 + 8192);
    CHECK(!bitsnap_encoder_end(&b, &s, big.index, s.index_size + s.index_size / 32 + 8192, &size), "%s", bitsnap_message(&b));
    big.size = big.start + size;
    free(s.index);
    memset(&source, 0, sizeof source);
    source.read = large_read;
    source.context = &big;
    source.size = big.size;
    for (k = 0; k < ROWS; k++) {
        const uint64_t block = row[k] / cell;
        CHECK(!bitsnap_index_open(&b, &index_, NULL, &source) && !bitsnap_index_find(&b, &index_, row[k], &x), "%s", bitsnap_message(&b));
        CHECK(x.first == block * cell && x.count == cell && x.size == big.sizes[block % KINDS]);
        big.place[k] = x.offset;
    }
    for (k = 0; k < ROWS; k++) { /* a first reader of the frame */
        big.got = big.reads = 0;
        CHECK(!bitsnap_index_open(&b, &index_, NULL, &source) && !bitsnap_index_decode(&b, &index_, back, row[k], 512), "%s",
              bitsnap_message(&b));
        CHECK(!memcmp(back, kinds[(row[k] >> log2) % KINDS] + 2 * (row[k] % cell), 1024));
        if (big.got > most) most = big.got;
    }
    CHECK(most <= 65536, "%lu bytes", (unsigned long)most);
    for (i = 0; i < 200; i++) {
        const clock_t a = clock();
        double us;
        for (k = 0; k < ROWS; k++) (void)bitsnap_index_decode(&b, &index_, back, row[k], 512);
        us = (double)(clock() - a) * 1e6 / CLOCKS_PER_SEC / ROWS;
        if (us < best) best = us;
    }
    printf("# a row of 512 of 2^34 elements, blocks of 2^%u: %lu bytes of index, %.1f us (%s)\n", log2, (unsigned long)most, best,
           bitsnap_kernels_name(NULL));
    big.got = big.reads = 0;
    CHECK(!bitsnap_index_find(&b, &index_, row[0], &x));
    i = big.reads;
    CHECK(!bitsnap_index_find(&b, &index_, row[0] ^ cell, &x) && big.reads == i, "neighbours are free");
    for (k = 0; k < KINDS; k++) free(kinds[k]);
    for (k = 0; k < ROWS; k++) free(big.made[k]);
    free(big.index);
}

static void far_away(void)
{
    reach(10);
    reach(16);
}

int main(void)
{
    test_program = "access";
    workspace_size = (size_t)320 << 20;
    workspace = (uint8_t *)malloc(workspace_size);
    RUN(wrong);
    RUN(all_frames);
    RUN(quantized);
    RUN(deltas);
    RUN(failing);
    RUN(changing);
    RUN(damaged);
    RUN(far_away);
    free(workspace);
    return test_failures != 0;
}
