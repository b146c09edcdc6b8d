/* test_file.c - random access to .bsnap files, and writing. Reads the files of the corpus; files made by the tool, with each
 * tensor as a whole and in part; and chains of deltas. Sources are damaged, cut, changing or failing, and memory ends. Checks
 * how little is read. Writes files and reads them again.
 *
 *   LONG=1   tests 10 times the number of damaged files, and more chains and levels (tests/README.md) */
#include "tests/unit/test.h"
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "docs/examples/file/bitsnap_file.h"
#include "tests/format/corpus.h"
#include <stdarg.h>

/* ---- sources and memory that count, and can fail ---- */

typedef struct counted {
    const uint8_t *p;
    uint64_t size, reads, bytes;
    uint64_t fail_at;   /* this read fails; 0: none */
    int changing;       /* some reads return wrong bytes */
} counted;

static int read_counted(void *context, uint64_t offset, void *to, size_t size)
{
    counted *c = (counted *)context;
    CHECK(offset <= c->size && size <= c->size - offset, "a read behind the end");
    c->bytes += size;
    if (++c->reads == c->fail_at) return 1;
    memcpy(to, c->p + offset, size);
    if (c->changing && size && test_below(3) == 0) ((uint8_t *)to)[test_below(size)] ^= (uint8_t)(1u << test_below(8));
    return 0;
}

static bitsnap_source source_of(counted *c, const uint8_t *p, size_t size)
{
    bitsnap_source s;
    memset(c, 0, sizeof *c);
    memset(&s, 0, sizeof s);
    c->p = p;
    c->size = size;
    s.read = read_counted;
    s.context = c;
    s.size = size;
    return s;
}

static size_t pieces, most_pieces;

static void *counting_resize(void *context, void *p, size_t size)
{
    size_t *left = (size_t *)context;
    if (left && !(*left)--) {
        ++*left;
        return NULL;
    }
    if (!p) pieces++;
    if (pieces > most_pieces) most_pieces = pieces;
    return realloc(p, size);
}

static void counting_release(void *context, void *p)
{
    (void)context;
    pieces--;
    free(p);
}

/* ---- files, and what they hold ---- */

typedef struct bytes {
    uint8_t *p;
    size_t size;
} bytes;

static bytes read_file(const char *path)
{
    bytes b = { NULL, 0 };
    FILE *f = fopen(path, "rb");
    long size;
    if (!f) return b;
    (void)fseek(f, 0, SEEK_END);
    size = ftell(f);
    rewind(f);
    b.p = (uint8_t *)malloc(size > 0 ? (size_t)size : 1);
    if (b.p) b.size = fread(b.p, 1, (size_t)size, f);
    (void)fclose(f);
    return b;
}

static void write_file(const char *path, const void *p, size_t size)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* Checks all that an open file reports and reads, against its source. `data` is the position of the data in it. */
static void check_contents(bitsnap_file *f, const uint8_t *source, size_t size, const char *what)
{
    const size_t data = f->kind == BITSNAP_SOURCE_RAW ? 0 : 8 + (size_t)f->text_size;
    const bitsnap_safetensors *all;
    uint64_t frames, i, end = 0;
    guarded out;
    CHECK(data + f->data_size == size, "%s", what);
    if (data + f->data_size != size) return;
    out = guarded_alloc((size_t)f->data_size, 0);
    CHECK(!bitsnap_file_read_data(f, 0, out.p, (size_t)f->data_size), "%s: %s", what, f->error.message);
    CHECK(!f->data_size || !memcmp(out.p, source + data, (size_t)f->data_size), "%s: other data", what);
    guarded_free(out);
    for (i = 0; i < 60; i++) {
        const size_t from = test_below((size_t)f->data_size + 1), n = test_below((size_t)f->data_size - from + 1) % 5000;
        out = guarded_alloc(n, i & 1);
        CHECK(!bitsnap_file_read_data(f, from, out.p, n) && (!n || !memcmp(out.p, source + data + from, n)), "%s: %lu bytes at %lu", what,
              (unsigned long)n, (unsigned long)from);
        guarded_free(out);
    }
    CHECK(bitsnap_file_read_data(f, f->data_size, &i, 1) == BITSNAP_E_ARGUMENT, "%s: behind the end", what);
    CHECK(!bitsnap_file_frames(f, &frames), "%s: %s", what, f->error.message);
    for (i = 0; i < frames; i++) {
        bitsnap_file_frame frame;
        CHECK(!bitsnap_file_frame_at(f, i, &frame) && frame.begin == end, "%s: frame %lu", what, (unsigned long)i);
        end = frame.begin + frame.info.elements_size;
    }
    CHECK(f->kind == BITSNAP_SOURCE_PLAIN || end == f->data_size, "%s: frames", what);
    if (f->kind == BITSNAP_SOURCE_RAW || bitsnap_file_tensors(f, &all)) return; /* a text that is no header */
    for (i = 0; i < all->count; i++) {
        const bitsnap_tensor *t = &all->tensors[i];
        bitsnap_tensor found;
        const uint64_t unit = t->type && t->type->bits < 8 ? 8 : 1, elements = t->type ? t->elements : t->end - t->begin;
        const size_t width = t->type ? t->type->bits : 8;
        const uint64_t from = test_below((size_t)elements + 1) / unit * unit, n = test_below((size_t)(elements - from) + 1) / unit * unit;
        CHECK(!bitsnap_file_find(f, t->name.at, t->name.size, &found) && found.begin == t->begin && found.end == t->end && found.place == t->place,
              "%s: tensor %lu", what, (unsigned long)i);
        out = guarded_alloc((size_t)n * width / 8, 0);
        CHECK(!bitsnap_file_read(f, t, out.p, from, n), "%s: %s", what, f->error.message);
        if (!test_big_endian()) CHECK(!n || !memcmp(out.p, source + data + t->begin + from * width / 8, (size_t)n * width / 8), "%s: elements of tensor %lu", what, (unsigned long)i);
        guarded_free(out);
        CHECK(bitsnap_file_read(f, t, NULL, elements, 1) == BITSNAP_E_ARGUMENT, "%s: an element too many", what);
    }
}

/* Parses the start of a file from its first n bytes. If these are too few, it asks for more, but never past the start. */
static void check_start(const uint8_t *p, const bitsnap_file *f, const char *what)
{
    const bitsnap_memory memory = { counting_resize, counting_release, NULL };
    bitsnap_file_start s;
    bitsnap_file_error e;
    uint64_t end = 0;
    size_t n, i;
    for (n = 0; !end && n < 70000; n++) {
        guarded copy = guarded_alloc(n, 0);
        if (n) memcpy(copy.p, p, n);
        if (!bitsnap_file_read_start(&s, copy.p, n, &memory, &e)) end = s.end;
        else CHECK(e.status == BITSNAP_E_TRUNCATED && e.wanted > n && !s.bases, "%s: %lu bytes: %s", what, (unsigned long)n, e.message);
        guarded_free(copy);
    }
    CHECK(end && n == end + 1 && s.kind == f->kind && s.quantized == f->quantized && s.text_size == f->text_size && s.base_count == f->base_count, "%s", what);
    for (i = 0; i < s.base_count; i++)
        CHECK(!strcmp(s.bases[i].name, f->bases[i].name) && s.bases[i].data_size == f->bases[i].data_size, "%s: base %lu", what, (unsigned long)i);
    if (s.bases) counting_release(NULL, s.bases);
    (void)bitsnap_file_read_start(&s, p, (size_t)end - 1, &memory, &e);
    CHECK(e.wanted == end, "%s: %lu of %lu bytes wanted", what, (unsigned long)e.wanted, (unsigned long)end);
}

typedef struct pipe_end {
    const uint8_t *p;
    size_t left;
} pipe_end;

static int pipe_read(void *context, void *to, size_t size, size_t *got)
{
    pipe_end *in = (pipe_end *)context;
    *got = size < in->left ? size : in->left;
    if (*got) memcpy(to, in->p, *got);
    in->p += *got;
    in->left -= *got;
    return 0;
}

static int pipe_skip(void *context, uint64_t size, uint64_t *passed)
{
    pipe_end *in = (pipe_end *)context;
    const size_t n = size < in->left ? (size_t)size : in->left;
    in->p += n;
    in->left -= n;
    *passed = n;
    return 0;
}

enum { STREAM_READ, STREAM_CHECK, STREAM_PASS, STREAM_SKIP, STREAM_WAYS };

/* Begins to read `size` bytes at p as a pipe delivers them. */
static bitsnap_status pipe_begin(bitsnap_file_stream *s, bitsnap *b, pipe_end *in, const uint8_t *p, size_t size, int way)
{
    const bitsnap_input input = { pipe_read, way == STREAM_SKIP ? pipe_skip : NULL, in };
    in->p = p;
    in->left = size;
    memset(b, 0, sizeof *b);
    return bitsnap_file_stream_begin(s, b, &input, NULL);
}

/* Reads the current frame. If elements are decoded, they equal the source. */
static bitsnap_status stream_frame(bitsnap_file_stream *s, int way, const uint8_t *source, const char *what)
{
    const bitsnap_info *info = &s->frame.info;
    const unsigned width = info->width;
    const size_t room = info->count >> info->block_log2 ? (size_t)1 << info->block_log2 : (size_t)info->count;
    guarded out;
    bitsnap_status status = BITSNAP_OK;
    size_t n;
    if (way >= STREAM_PASS) {
        do status = bitsnap_file_stream_pass(s, 4);
        while (!status && s->blocks_size);
        return status ? status : bitsnap_file_stream_frame_end(s);
    }
    out = guarded_alloc(room * width, 0);
    do {
        const uint64_t before = s->source_size;
        status = bitsnap_file_stream_read(s, way == STREAM_READ ? out.p : NULL, room, &n);
        CHECK(s->source_size - before == n * width, "%s: elements", what);
        if (status || !n || way == STREAM_CHECK || test_big_endian()) continue;
        CHECK(!memcmp(out.p, source + before, n * width), "%s: other elements from byte %lu on", what, (unsigned long)before);
    } while (!status && s->decoder.position < s->decoder.count);
    guarded_free(out);
    return status ? status : bitsnap_file_stream_frame_end(s);
}

/* Reads a file from a pipe that delivers `size` bytes. */
static bitsnap_status stream_file(const uint8_t *p, size_t size, int way, bitsnap_file *const *bases, size_t base_count, const uint8_t *source,
                                  size_t source_size, const char *what)
{
    pipe_end in;
    bitsnap_file_stream s;
    bitsnap_status status;
    bitsnap b;
    size_t i;
    status = pipe_begin(&s, &b, &in, p, size, way);
    for (i = 0; !status && i < s.start.base_count && i < base_count; i++) s.start.bases[i].file = bases[i];
    if (!status) status = bitsnap_file_stream_texts(&s);
    while (!status && !(status = bitsnap_file_stream_next(&s)) && s.in_frame) {
        const uint64_t cells = (s.frame.info.count + ((uint64_t)1 << s.frame.info.block_log2) - 1) >> s.frame.info.block_log2;
        status = stream_frame(&s, way, source, what);
        if (!status)
            CHECK(s.frame.info.same + s.frame.info.sparse + s.frame.info.classed + s.frame.info.plain == cells, "%s: cells", what);
    }
    CHECK(status || (s.source_size == source_size && s.offset == size && !in.left), "%s: %lu bytes of %lu", what, (unsigned long)s.source_size,
          (unsigned long)source_size);
    CHECK(!status || s.error.message, "%s: a failure without a reason", what);
    bitsnap_file_stream_close(&s);
    CHECK(!b.workspace, "%s: the workspace is left", what);
    return status;
}

/* Reads in order: decodes, checks, or passes over frames. The file is whole, cut, or has a byte more. */
static void check_stream(const uint8_t *p, size_t size, bitsnap_file *const *bases, size_t base_count, const uint8_t *source, size_t source_size,
                         const char *what)
{
    uint8_t *more = (uint8_t *)malloc(size + 1);
    bitsnap_status status;
    int way;
    memcpy(more, p, size);
    more[size] = 0;
    for (way = 0; way < STREAM_WAYS; way++) {
        status = stream_file(p, size, way, bases, base_count, source, source_size, what);
        CHECK(!status, "%s, in order, way %d: %d", what, way, status);
        status = stream_file(p, test_below(size), way, bases, base_count, source, source_size, what);
        CHECK(status == BITSNAP_E_TRUNCATED, "%s, cut off, way %d: %d", what, way, status);
        status = stream_file(more, size + 1, way, bases, base_count, source, source_size, what);
        CHECK(status == BITSNAP_E_CORRUPT, "%s, with a byte behind its end, way %d: %d", what, way, status);
    }
    free(more);
}

/* Reads from memory and by a callback, each twice: single tensors first, or a verification first. */
static void check_file(const uint8_t *p, size_t size, bitsnap_file *const *bases, size_t base_count, const uint8_t *source, size_t source_size,
                       const char *what)
{
    unsigned i;
    if (size >= 8 && !memcmp(p, BITSNAP_FILE_MAGIC, 8)) check_stream(p, size, bases, base_count, source, source_size, what);
    for (i = 0; i < 4; i++) {
        const bitsnap_memory memory = { counting_resize, counting_release, NULL };
        guarded copy = guarded_alloc(size, 0);
        counted c;
        bitsnap_source s = source_of(&c, copy.p, size);
        bitsnap_file f;
        memcpy(copy.p, p, size);
        if (i & 1) { s.read = NULL; s.data = copy.p; }
        CHECK(!bitsnap_file_open(&f, &s, bases, base_count, &memory), "%s: %s", what, f.error.message);
        if (!f.error.status && i & 2) CHECK(!bitsnap_file_verify(&f), "%s: S%u R%u %s", what, f.error.rule, f.error.frame_rule, f.error.message);
        if (!f.error.status) check_contents(&f, source, source_size, what);
        if (!i && f.kind != BITSNAP_SOURCE_PLAIN) check_start(p, &f, what);
        if (f.reader) CHECK(!bitsnap_file_verify(&f), "%s: %s", what, f.error.message);
        bitsnap_file_close(&f);
        guarded_free(copy);
    }
    CHECK(!pieces, "memory is left: %lu", (unsigned long)pieces);
}

/* ================================================================================= VECTORS */

static unsigned good, rejected, several;

/* 1 for rules about the end of a file. Random access parses the end first, and backwards, so it may report another of these. */
static int of_the_end(unsigned rule) { return rule == 5 || rule >= 22; }

static void one(corpus_entry *e)
{
    const uint8_t *p = e->data[CORPUS_FILE];
    const size_t size = e->size[CORPUS_FILE];
    bitsnap_file base[CORPUS_BASES], *bases[CORPUS_BASES], f;
    bitsnap_source s;
    counted c, d[CORPUS_BASES];
    size_t count;
    int failed = 0;
    if (!e->has[CORPUS_FILE]) return;
    for (count = 0; count < CORPUS_BASES && e->has[CORPUS_BASE + count]; count++) {
        s = source_of(&d[count], e->data[CORPUS_BASE + count], e->size[CORPUS_BASE + count]);
        failed |= bitsnap_file_open(&base[count], &s, NULL, 0, NULL) != BITSNAP_OK;
        bases[count] = &base[count];
    }
    several += count > 1;
    if (failed) { /* not a .safetensors file */
        CHECK(e->kind == 'S' && e->rule == 17, "%s: %s", e->name, base[0].error.message);
        rejected++;
    } else if (!e->kind) {
        check_file(p, size, bases, count, e->data[CORPUS_SOURCE], e->size[CORPUS_SOURCE], e->name);
        good++;
    } else {
        s = source_of(&c, p, size);
        if (!bitsnap_file_open(&f, &s, bases, count, NULL)) (void)bitsnap_file_verify(&f);
        CHECK(f.error.status, "%s is accepted", e->name);
        CHECK((e->kind == 'S' ? f.error.rule : f.error.frame_rule) == e->rule ||
                  (e->kind == 'S' && of_the_end(e->rule) && of_the_end(f.error.rule)), "%s: S%u R%u (%s), not %c%u", e->name, f.error.rule,
              f.error.frame_rule, f.error.message, e->kind, e->rule);
        bitsnap_file_close(&f);
        rejected++;
    }
    while (count) bitsnap_file_close(&base[--count]);
}

static void vectors(void)
{
    static corpus_entry e;
    CHECK(corpus_each(&e, one), "docs/vectors and tests/format/corpus.txt are read from the project's folder; %s", e.name);
    CHECK(good >= 17 && rejected >= 54 && several >= 1, "%u good, %u rejected, %u with several bases", good, rejected, several);
}

/* ================================================================================= FILES OF THE TOOL */

static const char *tool;
static char folder[400];
static int few;

static int run(const char *format, ...)
{
    char command[3000];
    size_t n = (size_t)snprintf(command, sizeof command, "cd '%s' && '%s' ", folder, tool);
    va_list arguments;
    va_start(arguments, format);
    n += (size_t)vsnprintf(command + n, sizeof command - n, format, arguments);
    va_end(arguments);
    (void)snprintf(command + n, sizeof command - n, " >out 2>&1 || { s=$?; sed 's/^/# /' out; exit $s; }");
    return system(command);
}

static bytes get(const char *name)
{
    char path[500];
    bytes b;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    b = read_file(path);
    CHECK(b.p, "%s", path);
    return b;
}

/* Makes a .safetensors file of `tensors` tensors of many types and sizes. Another `step` changes a few elements; another
 * `form` changes some names, too. */
static bytes make_model(unsigned tensors, unsigned step, unsigned form)
{
    static const struct { const char *name; unsigned bits; } types[] = {
        { "BF16", 16 }, { "F32", 32 }, { "F16", 16 }, { "I64", 64 }, { "F8_E4M3", 8 }, { "F4", 4 }, { "BOOL", 8 }, { "C128", 128 }, { "NEW", 24 }, { "U16", 16 }
    };
    static const unsigned counts[] = { 8, 0, 40, 1000, 96, 8, 30000, 16, 24, 200, 80000, 8, 64 };
    char *text = (char *)malloc(tensors * 200 + 100), *p = text;
    uint64_t at = 0, size;
    unsigned i;
    bytes b;
    if (!text) abort();
    p += sprintf(p, "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"%u\"}", step);
    for (i = 0; i < tensors; i++) {
        const unsigned type = i * 7 / 5 % 10, count = counts[i % 13];
        const uint64_t bytes_of = (uint64_t)count * types[type].bits / 8;
        p += sprintf(p, ",\"%s.%u.w%s\":{\"dtype\":\"%s\",\"shape\":[%u,%u],\"data_offsets\":[%lu,%lu]}", form && i % 5 == 0 ? "blocks" : "layers", i,
                     i % 9 ? "" : "\\u00e4\\n", types[type].name, count / 8, 8u, (unsigned long)at, (unsigned long)(at + bytes_of));
        at += bytes_of;
    }
    *p++ = '}';
    size = (uint64_t)(p - text);
    b.size = (size_t)(8 + size + at);
    b.p = (uint8_t *)malloc(b.size);
    if (!b.p) abort();
    for (i = 0; i < 8; i++) b.p[i] = (uint8_t)(size >> 8 * i);
    memcpy(b.p + 8, text, (size_t)size);
    free(text);
    test_state = 99;
    for (i = 0; i < at; i++) b.p[8 + size + i] = (uint8_t)(i & 1 ? 0x3C + test_below(3) : test_random());
    for (test_state = step; step--;)
        for (i = 0; i < at / 50; i++) b.p[8 + size + test_below((size_t)at)] ^= 1;
    return b;
}

/* A chain of files in `bases`; open_chain returns the last one. */
enum { CHAIN = 6 };
typedef struct chain {
    bitsnap_file file[CHAIN];
    counted c[CHAIN];
    bytes b[CHAIN];
    unsigned count;
} chain;

static bitsnap_file *open_chain(chain *x, unsigned count, const char *const *names)
{
    bitsnap_file *before = NULL;
    for (x->count = 0; x->count < count; x->count++) {
        bitsnap_file *f = &x->file[x->count];
        bitsnap_source s;
        x->b[x->count] = get(names[x->count]);
        s = source_of(&x->c[x->count], x->b[x->count].p, x->b[x->count].size);
        CHECK(!bitsnap_file_open(f, &s, &before, before != NULL, NULL), "%s: %s", names[x->count], f->error.message);
        before = f;
    }
    return before;
}

static void close_chain(chain *x)
{
    while (x->count--) {
        bitsnap_file_close(&x->file[x->count]);
        free(x->b[x->count].p);
    }
}

static void whole_files(void)
{
    static const unsigned tensors[] = { 0, 1, 20, 300, 1500 };
    static const char *const options[] = { "-l fast", "", "-l best" };
    unsigned i, k;
    for (i = few ? 2 : 0; i < (few ? 4 : 5); i++) {
        bytes m = make_model(tensors[i], 0, 0), z;
        char path[500];
        (void)snprintf(path, sizeof path, "%s/m.safetensors", folder);
        write_file(path, m.p, m.size);
        check_file(m.p, m.size, NULL, 0, m.p, m.size, "a .safetensors file");
        for (k = 0; k < (i < 4 && !few ? 3 : 1); k++) {
            CHECK(!run("compress -f %s -o m.bsnap m.safetensors", options[k]));
            z = get("m.bsnap");
            check_file(z.p, z.size, NULL, 0, m.p, m.size, "a file of the tool");
            free(z.p);
        }
        CHECK(!run("compress -f --dtype i8 -o raw.bsnap m.safetensors"));
        free(m.p);
    }
}

static void raw_files(void)
{
    bytes z = get("raw.bsnap"), m = get("m.safetensors");
    check_file(z.p, z.size, NULL, 0, m.p, m.size, "raw elements");
    free(z.p);
    free(m.p);
}

/* Five consecutive deltas. One changes names, and one holds the text of its base. */
static const char *const steps[] = { "s0.bsnap", "s1.delta", "s2.delta", "s3.delta", "s4.delta", "s5.delta" };

static void chains(void)
{
    unsigned i, k;
    for (i = 0; i < CHAIN; i++) {
        char path[500];
        bytes m = make_model(200, i, i >= 3);
        (void)snprintf(path, sizeof path, "%s/s%u.safetensors", folder, i);
        write_file(path, m.p, m.size);
        if (!i) CHECK(!run("compress -f -o s0.bsnap s0.safetensors"));
        else CHECK(!run("compress -f %s -b s%u.safetensors -o s%u.delta s%u.safetensors", i == 3 ? "--self-contained" : "", i - 1, i, i));
        free(m.p);
    }
    for (i = 0; i < CHAIN; i++)
        for (k = 0; k < 2; k++) { /* the base is a .bsnap file or a .safetensors file */
            const char *names[CHAIN];
            char plain[20];
            chain x;
            bytes m;
            bitsnap_file *f;
            if (few && i != 4) continue;
            memcpy(names, steps, sizeof names);
            (void)snprintf(plain, sizeof plain, "s%u.safetensors", i ? i - 1 : 0);
            if (k && i) names[i - 1] = plain;
            f = k && i ? open_chain(&x, 2, names + i - 1) : open_chain(&x, i + 1, names);
            (void)snprintf(plain, sizeof plain, "s%u.safetensors", i);
            m = get(plain);
            check_contents(f, m.p, m.size, plain);
            CHECK(!bitsnap_file_verify(f), "%s: %s", steps[i], f->error.message);
            if (i) {
                bitsnap_file *before = &x.file[x.count - 2];
                check_file(x.b[x.count - 1].p, x.b[x.count - 1].size, &before, 1, m.p, m.size, plain);
                CHECK(f->base_count == 1 && f->bases->name[0] == 's' && f->bases->data_size == before->data_size, "%s", f->bases->name);
            }
            close_chain(&x);
            free(m.p);
        }
}

/* A wrong base is refused for its text or its size when the file is opened, or for its elements when they are read. */
static void wrong_bases(void)
{
    bytes m = get("s0.safetensors"), other, d = get("s1.delta");
    bitsnap_file base, *bases[1] = { &base }, f;
    bitsnap_source s;
    bitsnap_tensor t;
    uint8_t *out = (uint8_t *)malloc(m.size);
    unsigned i;
    memset(&s, 0, sizeof s);
    for (i = 0; i < 5; i++) {
        bitsnap_status status;
        other.p = (uint8_t *)malloc(m.size);
        other.size = m.size;
        memcpy(other.p, m.p, m.size);
        if (i == 0) other.p[30] ^= 1;                 /* another text */
        if (i == 1) other.size--;                     /* not a whole file */
        if (i == 2) other.p[m.size - 100] ^= 1;       /* other elements */
        s.data = other.p, s.size = other.size;
        CHECK(!bitsnap_file_open(&base, &s, NULL, 0, NULL), "%s", base.error.message);
        s.data = d.p, s.size = d.size;
        status = bitsnap_file_open(&f, &s, bases, i < 4, NULL);
        CHECK(status == (i < 2 ? BITSNAP_E_BASE : BITSNAP_OK) && f.error.rule == (i < 2 ? 17 + i : 0), "%u: %s", i, f.error.message);
        if (!status && i < 4) { /* only the last tensors differ */
            status = bitsnap_file_read_data(&f, f.data_size - 1, out, 1);
            CHECK(i == 2 ? status == BITSNAP_E_BASE && f.error.frame_rule == BITSNAP_R_BASE_HASH : !status, "%u: %s", i, f.error.message);
            CHECK(!bitsnap_file_read_data(&f, 0, out, 1), "%u: %s", i, f.error.message);
        }
        if (i == 4) { /* no base */
            uint64_t frames;
            bitsnap_file_frame frame;
            CHECK(!bitsnap_file_frames(&f, &frames) && frames && !bitsnap_file_frame_at(&f, 0, &frame), "%s", f.error.message);
            CHECK(bitsnap_file_find(&f, "layers.1.w", 10, &t) == BITSNAP_E_BASE && f.error.rule == 17, "%s", f.error.message);
            CHECK(bitsnap_file_read_data(&f, 0, out, (size_t)f.data_size) == BITSNAP_E_BASE, "%s", f.error.message);
            CHECK(bitsnap_file_verify(&f) == BITSNAP_E_BASE, "%s", f.error.message);
        }
        bitsnap_file_close(&f);
        bitsnap_file_close(&base);
        free(other.p);
    }
    free(out);
    free(m.p);
    free(d.p);
}

/* A damaged base. The error says that it is in the base. */
static void damaged_bases(void)
{
    chain x;
    bitsnap_file *f = open_chain(&x, 3, steps);
    uint8_t *out = (uint8_t *)malloc((size_t)f->data_size);
    bitsnap_file_frame frame;
    CHECK(!bitsnap_file_frame_at(&x.file[0], 0, &frame));
    x.b[0].p[frame.at + frame.info.header_size + 40] ^= 1;
    CHECK(bitsnap_file_read_data(f, 0, out, (size_t)f->data_size) == BITSNAP_E_CHECK && f->error.depth == 2, "%s", f->error.message);
    free(out);
    close_chain(&x);
}

/* ================================================================================= HOSTILE */

/* Makes many requests and returns the number of successful ones. No result may be wrong. */
static unsigned ask(bitsnap_file *f, const bytes *m, uint8_t *out)
{
    static const char *const names[] = { "layers.1.w", "layers.3.w", "layers.9.w\xC3\xA4\n", "layers.50.w", "blocks.10.w", "" };
    const uint64_t data = test_load64(m->p) + 8;
    bitsnap_tensor t;
    bitsnap_file_frame frame;
    uint64_t frames, k;
    unsigned i, right = 0;
    for (i = 0; i < 6; i++) {
        if (bitsnap_file_find(f, names[i], strlen(names[i]), &t)) continue;
        CHECK(!memcmp(t.name.at, names[i], t.name.size) && t.end <= f->data_size, "%s", names[i]);
        if (bitsnap_file_read(f, &t, out, 0, t.type ? t.elements : t.end - t.begin)) continue;
        CHECK(data + t.end <= m->size && !memcmp(out, m->p + data + t.begin, (size_t)(t.end - t.begin)), "other elements of %s", names[i]);
        right++;
    }
    if (!bitsnap_file_frames(f, &frames))
        for (k = 0; k < frames && k < 50; k++) right += !bitsnap_file_frame_at(f, k, &frame);
    if (!bitsnap_file_read_data(f, 1000, out, 3000)) {
        CHECK(!memcmp(out, m->p + data + 1000, 3000), "other data");
        right++;
    }
    return right;
}

/* Changes one bit at each position of a small file, and cuts the file. Damage is never accepted as a whole. */
static void damaged_files(void)
{
    unsigned which;
    for (which = 0; which < 3; which++) {
        const char *names[2] = { "h0.bsnap", "h1.delta" };
        chain x;
        bitsnap_file *before;
        bytes m, z, model[2];
        uint8_t *out;
        size_t i, step;
        guarded g;
        bitsnap_source s;
        bitsnap_file f;
        char path[500];
        for (i = 0; i < 2; i++) {
            model[i] = make_model(which == 2 ? 900 : 60, (unsigned)i, 0);
            (void)snprintf(path, sizeof path, "%s/h%u.safetensors", folder, (unsigned)i);
            write_file(path, model[i].p, model[i].size);
        }
        CHECK(!run("compress -f -o h0.bsnap h0.safetensors") && !run("compress -f -b h0.safetensors -o h1.delta h1.safetensors"));
        before = open_chain(&x, 1, names);
        m = model[which == 1];
        z = which == 1 ? get("h1.delta") : get("h0.bsnap");
        out = (uint8_t *)malloc(m.size);
        memset(&s, 0, sizeof s);
        step = z.size / 3000 + 1;
        for (i = 0; i < z.size; i += few ? 10 * step : i < 400 || i + 2000 > z.size ? 1 : step) {
            uint8_t *p = z.p + i, was = *p;
            *p ^= (uint8_t)(1u << test_below(8));
            s.data = z.p, s.size = z.size;
            if (!bitsnap_file_open(&f, &s, &before, which == 1, NULL)) {
                (void)ask(&f, &m, out);
                CHECK(i % 16 || bitsnap_file_verify(&f), "byte %lu of a file is another, and nothing is noticed", (unsigned long)i);
            }
            bitsnap_file_close(&f);
            *p = was;
        }
        for (i = 0; i < z.size; i += 1 + i / 10) {
            g = guarded_alloc(i, 0);
            memcpy(g.p, z.p, i);
            s.data = g.p, s.size = i;
            CHECK(i == 0 || bitsnap_file_open(&f, &s, &before, which == 1, NULL), "cut to %lu bytes", (unsigned long)i);
            if (i) bitsnap_file_close(&f);
            guarded_free(g);
        }
        free(out);
        free(z.p);
        close_chain(&x);
        free(model[0].p);
        free(model[1].p);
    }
}

/* Any byte read may be wrong, any read may fail, and any allocation may fail. */
static void changing_sources(void)
{
    static const char *const names[] = { "h0.bsnap", "h1.delta" };
    unsigned i, wrong = 0, right = 0;
    bytes m[2];
    uint8_t *out;
    m[0] = get("h0.safetensors");
    CHECK(!run("compress -f -b h0.safetensors -o h1.delta h1.safetensors"));
    m[1] = get("h1.safetensors");
    out = (uint8_t *)malloc(m[0].size);
    for (i = 0; i < 600; i += few ? 11 : 1) {
        chain x;
        const unsigned which = i & 1;
        bitsnap_file *f = open_chain(&x, which + 1, names), *before = which ? f - 1 : NULL, again;
        bitsnap_memory memory = { counting_resize, counting_release, NULL };
        size_t left = i / 6;
        bitsnap_source s = { read_counted, &x.c[which], NULL, x.b[which].size };
        if (i % 3 == 0) x.c[i / 6 % (which + 1)].changing = 1;
        if (i % 3 == 1) x.c[i / 6 % (which + 1)].fail_at = x.c[i / 6 % (which + 1)].reads + i / 12;
        if (i % 3 == 2) memory.context = &left;
        if (!bitsnap_file_open(&again, &s, &before, which, &memory)) {
            right += ask(&again, &m[which], out);
            wrong += !!bitsnap_file_verify(&again);
        } else if (i % 3 == 2) {
            CHECK(again.error.status == BITSNAP_E_WORKSPACE, "%s", again.error.message);
        }
        bitsnap_file_close(&again);
        CHECK(!pieces, "memory is left");
        close_chain(&x);
    }
    CHECK(right > (few ? 70 : 1000) && wrong > (few ? 2 : 20), "%u right, %u wrong", right, wrong);
    free(out);
    free(m[0].p);
    free(m[1].p);
}

/* ================================================================================= WRITING */

typedef struct sunk {
    uint8_t *p;
    size_t size, room, writes, fail_at;
} sunk;

static int sink_write(void *context, const void *p, size_t size)
{
    sunk *x = (sunk *)context;
    if (++x->writes == x->fail_at) return 1;
    if (x->room - x->size < size) {
        x->room = 2 * x->room + size;
        x->p = (uint8_t *)realloc(x->p, x->room);
        if (!x->p) abort();
    }
    memcpy(x->p + x->size, p, size);
    x->size += size;
    return 0;
}

/* Writes the file of a model in pieces of random size. */
static bitsnap_status write_model(sunk *x, const bytes *m, int level, bitsnap_file *const *bases, size_t base_count, const bitsnap_memory *memory,
                                  bitsnap_file_error *e)
{
    const size_t text = (size_t)test_load64(m->p);
    const bitsnap_file_content content = { (const char *)m->p + 8, text, memory && level == BITSNAP_BEST ? BITSNAP_FILE_SHA256 : 0,
                                           bases, base_count, NULL, 0 };
    const bitsnap_sink sink = { sink_write, x };
    bitsnap_file_writer w;
    size_t at = 8 + text, n;
    bitsnap b;
    bitsnap_status status;
    memset(&b, 0, sizeof b);
    b.level = level;
    status = bitsnap_file_write_begin(&w, &b, &sink, &content, memory);
    for (; !status && at < m->size; at += n) {
        n = 1 + test_below(test_below(4) ? 100000 : 10);
        if (n > m->size - at) n = m->size - at;
        status = bitsnap_file_write_data(&w, m->p + at, n);
    }
    if (!status) status = bitsnap_file_write_end(&w);
    CHECK(status || (w.size == x->size && w.source_size == m->size), "sizes");
    *e = w.error;
    bitsnap_file_write_close(&w);
    CHECK(!b.workspace, "the workspace is left");
    return status;
}

/* The strong hash is the SHA-256 (FIPS 180-4) of SHA-256 hashes, for pieces of any size and any number of threads. */
static void strong_hash_run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    (void)context;
    while (count--) task(argument, count, 0);
}

static void strong_hashes(void)
{
    /* "abc", and 3 MiB and 5 bytes of i mod 251: sha256(sha256(..) sha256(..) ..), from another program */
    static const char *const known[] = { "4f8b42c22dd3729b519ba6f68d2da7cc5b2d606d05daed5ad5128cc03e6c6358", "f30de2b7bf3a9824d4876d8ffa7f0f0f9e07a3a287bb7c98346a92adb76a1e6b" };
    enum { MOST_BYTES = 3 * 1048576 + 5 };
    static uint8_t data[MOST_BYTES];
    uint8_t digest[32], first[32];
    bitsnap_strong_hash h;
    bitsnap b;
    size_t i, at, n;
    char text[65];
    memset(&b, 0, sizeof b);
    b.run = strong_hash_run;
    b.workers = 2;
    bitsnap_strong_hash_begin(&h);
    bitsnap_strong_hash_add(&h, NULL, "abc", 3);
    bitsnap_strong_hash_end(&h, digest);
    for (i = 0; i < 32; i++) (void)snprintf(text + 2 * i, 3, "%02x", digest[i]);
    CHECK(!strcmp(text, known[0]), "%s", text);
    for (i = 0; i < MOST_BYTES; i++) data[i] = (uint8_t)(i % 251);
    for (i = 0; i < 4; i++) {
        bitsnap_strong_hash_begin(&h);
        for (at = 0; at < MOST_BYTES; at += n) {
            n = i < 2 ? MOST_BYTES : 1 + test_below(i == 2 ? 3000000 : 100000);
            if (n > MOST_BYTES - at) n = MOST_BYTES - at;
            bitsnap_strong_hash_add(&h, i ? &b : NULL, data + at, n);
        }
        bitsnap_strong_hash_end(&h, i ? digest : first);
        CHECK(!i || !memcmp(digest, first, 32), "way %lu", (unsigned long)i);
    }
    for (i = 0; i < 32; i++) (void)snprintf(text + 2 * i, 3, "%02x", first[i]);
    CHECK(!strcmp(text, known[1]), "%s", text);
}

static void written_files(void)
{
    static const unsigned tensors[] = { 0, 1, 20, 300, 900 };
    const bitsnap_memory memory = { counting_resize, counting_release, NULL };
    bitsnap_file_error e;
    unsigned i, level;
    for (i = 0; i < (few ? 4 : 5); i++)
        for (level = BITSNAP_FAST; level <= BITSNAP_BEST; level++) {
            bytes m[2];
            sunk whole = { NULL, 0, 0, 0, 0 }, delta = { NULL, 0, 0, 0, 0 };
            bitsnap_file base, *bases[1] = { &base };
            bitsnap_source source;
            if ((i == 4 && level != BITSNAP_FAST) || (few && level != BITSNAP_FAST + i % 3)) continue;
            m[0] = make_model(tensors[i], 0, 0);
            m[1] = make_model(tensors[i], 1, i == 3);
            CHECK(!write_model(&whole, &m[0], (int)level, NULL, 0, &memory, &e), "%s", e.message);
            check_file(whole.p, whole.size, NULL, 0, m[0].p, m[0].size, "a file that was written");
            memset(&source, 0, sizeof source);
            source.data = whole.p;
            source.size = whole.size;
            CHECK(!bitsnap_file_open(&base, &source, NULL, 0, NULL), "%s", base.error.message);
            CHECK(!write_model(&delta, &m[1], (int)level, bases, 1, &memory, &e), "%s", e.message);
            check_file(delta.p, delta.size, bases, 1, m[1].p, m[1].size, "a delta that was written");
            if (tensors[i] > 100) CHECK(delta.size < whole.size / 10 * 7, "%lu of %lu bytes", (unsigned long)delta.size, (unsigned long)whole.size);
            bitsnap_file_close(&base);
            free(whole.p);
            free(delta.p);
            free(m[0].p);
            free(m[1].p);
        }
}

/* ================================================================================= PARTS OF ANOTHER FILE
 * The files of two training steps have frames and blocks of equal sizes. A part of one file replaces a part of the other. It is
 * whole and its checks are right, but it must not be accepted. */

enum { STEP_ELEMENTS = 5000 };

/* Writes step `step`: scalars, stored elements, constants and weights, each in its own frame, with or without content ids. */
static bytes write_step(unsigned step, int ids, uint8_t *source, size_t *source_size)
{
    static const struct { bitsnap_dtype dtype; size_t count; unsigned kind; } frames[] = {
        { BITSNAP_F32, 1, 0 }, { BITSNAP_I8, STEP_ELEMENTS, 0 }, { BITSNAP_I64, 3, 0 }, { BITSNAP_F32, 300, 1 }, { BITSNAP_BF16, STEP_ELEMENTS, 2 }, { BITSNAP_I16, 0, 0 }
    };
    sunk x = { NULL, 0, 0, 0, 0 };
    const bitsnap_sink sink = { sink_write, &x };
    bitsnap_file_writer w;
    bitsnap_file_head head;
    bitsnap b;
    bytes made;
    size_t i, j;
    memset(&b, 0, sizeof b);
    memset(&head, 0, sizeof head);
    head.source_size = UINT64_MAX;
    b.block_log2 = 9;
    b.flags = ids ? BITSNAP_CONTENT_ID : 0;
    b.workspace_size = BITSNAP_WORKSPACE;
    b.workspace = malloc(BITSNAP_WORKSPACE);
    *source_size = 0;
    CHECK(!bitsnap_file_write_head(&w, &b, &sink, &head, NULL), "%s", w.error.message);
    for (i = 0; i < sizeof frames / sizeof *frames; i++) {
        uint8_t elements[2 * STEP_ELEMENTS];
        const size_t size = frames[i].count * bitsnap_width(frames[i].dtype);
        test_state = 17 + step + 100 * i;
        for (j = 0; j < size; j++)
            elements[j] = (uint8_t)(frames[i].kind == 1 ? step : frames[i].kind == 2 && j & 1 ? 0x3C + (j >> 10) % 2 : test_random());
        CHECK(!bitsnap_file_write_frame(&w, frames[i].dtype, frames[i].count, NULL) && !bitsnap_file_write_elements(&w, elements, frames[i].count) &&
              !bitsnap_file_write_frame_end(&w), "%s", w.error.message);
        memcpy(source + *source_size, elements, size);
        *source_size += size;
    }
    CHECK(!bitsnap_file_write_end(&w), "%s", w.error.message);
    bitsnap_file_write_close(&w);
    free(b.workspace);
    made.p = x.p;
    made.size = x.size;
    return made;
}

/* Reads in order to the end. */
static bitsnap_status read_in_order(const uint8_t *p, size_t size, int way)
{
    pipe_end in;
    uint8_t elements[8 << 9];
    bitsnap_file_stream s;
    bitsnap b;
    bitsnap_status status;
    size_t n;
    status = pipe_begin(&s, &b, &in, p, size, way) || bitsnap_file_stream_texts(&s) ? s.error.status : BITSNAP_OK;
    while (!status && !(status = bitsnap_file_stream_next(&s)) && s.in_frame) {
        do status = way >= STREAM_PASS ? bitsnap_file_stream_pass(&s, 4) : bitsnap_file_stream_read(&s, way == STREAM_READ ? elements : NULL, 1 << 9, &n);
        while (!status && (way >= STREAM_PASS ? s.blocks_size != 0 : s.decoder.position < s.decoder.count));
        if (!status) status = bitsnap_file_stream_frame_end(&s);
    }
    bitsnap_file_stream_close(&s);
    return status;
}

/* No reader returns elements that differ from the source. `frame`: a whole frame was exchanged. Readers that pass over blocks
 * notice that, too. */
static void never_the_other(const uint8_t *p, size_t size, const uint8_t *source, size_t source_size, int frame, const char *what)
{
    static uint8_t out[16 * STEP_ELEMENTS];
    unsigned mode, wrong = 0, read = 0;
    int way;
    for (way = STREAM_READ; way < (frame ? STREAM_WAYS : STREAM_PASS); way++) CHECK(read_in_order(p, size, way), "%s: in order, way %d", what, way);
    for (mode = 0; mode < 2; mode++) { /* by a callback; in memory */
        bitsnap_file f;
        counted c;
        bitsnap_source s = source_of(&c, p, size);
        size_t at, n;
        if (mode) s.read = NULL, s.data = p;
        CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL), "%s: %s", what, f.error.message);
        CHECK(bitsnap_file_verify(&f), "%s: verify", what);
        for (at = 0; at < source_size; at += n) {
            n = at % 3 ? 1 + at % 61 : 700;
            if (n > source_size - at) n = source_size - at;
            if (bitsnap_file_read_data(&f, at, out, n)) continue;
            read++;
            wrong += memcmp(out, source + at, n) != 0;
        }
        bitsnap_file_close(&f);
    }
    CHECK(!wrong && read, "%s: %u of %u reads are of the other file", what, wrong, read);
}

/* Exchanges single frames or single blocks between two steps. */
static void exchange(int blocks, unsigned least)
{
    static uint8_t source[2][16 * STEP_ELEMENTS];
    unsigned ids, made = 0;
    for (ids = 0; ids < 2; ids++) {
        bytes step[2];
        uint8_t *copy;
        size_t source_size, i;
        uint64_t count;
        bitsnap_file f[2];
        bitsnap_source s;
        bitsnap_file_frame frame[2];
        memset(&s, 0, sizeof s);
        for (i = 0; i < 2; i++) {
            step[i] = write_step((unsigned)i, (int)ids, source[i], &source_size);
            s.data = step[i].p;
            s.size = step[i].size;
            CHECK(!bitsnap_file_open(&f[i], &s, NULL, 0, NULL), "%s", f[i].error.message);
        }
        copy = (uint8_t *)malloc(step[0].size);
        CHECK(!bitsnap_file_frames(&f[0], &count) && count == 6, "frames");
        for (i = 0; i < count; i++) {
            uint64_t first = 0, at[2];
            CHECK(!bitsnap_file_frame_at(&f[0], i, &frame[0]) && !bitsnap_file_frame_at(&f[1], i, &frame[1]), "frame %lu", (unsigned long)i);
            memcpy(copy, step[0].p, step[0].size);
            if (!blocks && frame[0].size == frame[1].size && frame[0].info.count) {
                memcpy(copy + frame[0].at, step[1].p + frame[1].at, (size_t)frame[0].size);
                never_the_other(copy, step[0].size, source[0], source_size, 1, "a frame of the other file");
                made++;
            }
            at[0] = frame[0].at + frame[0].info.header_size;
            at[1] = frame[1].at + frame[1].info.header_size;
            while (blocks && first < frame[0].info.count) { /* each block is one cell, except runs of constants, which have equal length */
                const bitsnap_file_block a = bitsnap_file_block_at(step[0].p + at[0], &frame[0].info, first);
                const bitsnap_file_block b = bitsnap_file_block_at(step[1].p + at[1], &frame[1].info, first);
                if (!memcmp(step[0].p + at[0], step[1].p + at[1], 4)) {
                    memcpy(copy, step[0].p, step[0].size);
                    memcpy(copy + at[0], step[1].p + at[1], (size_t)a.size);
                    never_the_other(copy, step[0].size, source[0], source_size, 0, "a block of the other file");
                    made++;
                }
                at[0] += a.size;
                at[1] += b.size;
                first += a.elements;
            }
        }
        for (i = 0; i < 2; i++) {
            bitsnap_file_close(&f[i]);
            free(step[i].p);
        }
        free(copy);
    }
    CHECK(made >= least, "%u exchanges", made);
}

static void frames_of_another_file(void) { exchange(0, 8); }

/* The index of a frame binds its blocks. If a frame has no index, the seal does. */
static void blocks_of_another_file(void) { exchange(1, 30); }

/* Makes a file of every third tensor of a model, from `which` on. */
static bytes part_of(const bytes *m, unsigned which)
{
    const size_t text_size = (size_t)test_load64(m->p);
    bitsnap_safetensors s;
    bitsnap_file_error e;
    bitsnap_tensor *t;
    bytes part;
    char *text = NULL;
    size_t size = 0, i, n = 0, at;
    CHECK(!bitsnap_safetensors_parse(&s, (const char *)m->p + 8, text_size, NULL, &e), "%s", e.message);
    t = (bitsnap_tensor *)malloc((s.count + 1) * sizeof *t);
    if (!t) abort();
    for (i = which; i < s.count; i += 3) t[n++] = s.tensors[i];
    CHECK(!bitsnap_safetensors_write(&text, &size, t, n, NULL, NULL, &e), "%s", e.message);
    part.p = (uint8_t *)malloc(m->size + size);
    if (!part.p || !text) abort();
    bsf_store(part.p, size, 8);
    memcpy(part.p + 8, text, size);
    at = 8 + size;
    for (i = which; i < s.count; i += 3) {
        const size_t bytes_of = (size_t)(s.tensors[i].end - s.tensors[i].begin);
        memcpy(part.p + at, m->p + 8 + text_size + s.tensors[i].begin, bytes_of);
        at += bytes_of;
    }
    part.size = at;
    free(text);
    free(t);
    bitsnap_safetensors_free(&s);
    return part;
}

static void run_tasks(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    while (count--) task(argument, count, (unsigned)(count % *(const unsigned *)context)); /* last task first */
}

/* A delta against the three files of a model. The second one is a delta against two files, and the third a .bsnap file. */
static void several_bases(void)
{
    bytes m[2], part[3], old;
    sunk written[3] = { { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 }, { NULL, 0, 0, 0, 0 } };
    bitsnap_file before[2], file[3], f, *list[3], *pair[2] = { &before[0], &before[1] };
    bitsnap_file_frame frame;
    bitsnap_file_error e;
    bitsnap_source s;
    uint64_t frames, i;
    unsigned k, seen = 0, workers = 3;
    uint8_t *out;
    memset(&s, 0, sizeof s);
    for (k = 0; k < 2; k++) m[k] = make_model(60, k, 0);
    old = make_model(60, 2, 0);
    for (k = 0; k < 3; k++) part[k] = part_of(&m[0], k);
    s.data = old.p, s.size = old.size;
    CHECK(!bitsnap_file_open(&before[0], &s, NULL, 0, NULL), "%s", before[0].error.message);
    s.data = part[0].p, s.size = part[0].size;
    CHECK(!bitsnap_file_open(&before[1], &s, NULL, 0, NULL), "%s", before[1].error.message);
    CHECK(!bitsnap_file_open(&file[0], &s, NULL, 0, NULL), "%s", file[0].error.message);
    CHECK(!write_model(&written[1], &part[1], BITSNAP_FAST, pair, 2, NULL, &e), "%s", e.message);
    CHECK(!write_model(&written[2], &part[2], BITSNAP_FAST, NULL, 0, NULL, &e), "%s", e.message);
    for (k = 1; k < 3; k++) {
        s.data = written[k].p, s.size = written[k].size;
        CHECK(!bitsnap_file_open(&file[k], &s, pair, k == 1 ? 2 : 0, NULL), "%u: %s", k, file[k].error.message);
    }
    for (k = 0; k < 3; k++) list[k] = &file[k];
    file[1].name = "second";
    CHECK(!write_model(&written[0], &m[1], BITSNAP_FAST, list, 3, NULL, &e), "%s", e.message);
    CHECK(written[0].size < m[1].size / 2, "%lu of %lu bytes", (unsigned long)written[0].size, (unsigned long)m[1].size);
    check_file(written[0].p, written[0].size, list, 3, m[1].p, m[1].size, "a delta against three files");

    s.data = written[0].p, s.size = written[0].size;
    CHECK(!bitsnap_file_open(&f, &s, list, 3, NULL) && f.base_count == 3 && f.bases[1].file == &file[1] &&
              f.bases[2].data_size == file[2].data_size && !*f.bases[2].name && !strcmp(f.bases[1].name, "second"), "%s", f.error.message);
    CHECK(!bitsnap_file_frames(&f, &frames), "%s", f.error.message);
    for (i = 0; i < frames; i++) {
        CHECK(!bitsnap_file_frame_at(&f, i, &frame), "%s", f.error.message);
        if (frame.info.has_base && frame.base < 3) seen |= 1u << frame.base;
    }
    CHECK(seen == 7, "bases that are used: %x", seen);
    out = (uint8_t *)malloc((size_t)f.data_size);
    f.b.run = run_tasks;
    f.b.run_context = &workers;
    f.b.workers = workers;
    CHECK(!bitsnap_file_read_data(&f, 0, out, (size_t)f.data_size) && !memcmp(out, m[1].p + m[1].size - f.data_size, (size_t)f.data_size),
          "with several workers: %s", f.error.message);
    CHECK(!bitsnap_file_verify(&f), "with several workers: %s", f.error.message);
    bitsnap_file_close(&f);

    /* fewer bases, exchanged bases, a wrong base */
    CHECK(bitsnap_file_open(&f, &s, list, 2, NULL) == BITSNAP_E_BASE && f.error.rule == 17, "%s", f.error.message);
    bitsnap_file_close(&f);
    list[1] = &file[2];
    list[2] = &file[1];
    CHECK(bitsnap_file_open(&f, &s, list, 3, NULL) == BITSNAP_E_BASE && f.error.rule == 17 && f.error.base == 1, "%s", f.error.message);
    bitsnap_file_close(&f);
    list[1] = &file[1];
    list[2] = &before[0];
    CHECK(bitsnap_file_open(&f, &s, list, 3, NULL) == BITSNAP_E_BASE && f.error.rule == 17 && f.error.base == 2, "%s", f.error.message);
    bitsnap_file_close(&f);
    list[2] = &file[2];

    /* one base is damaged: the error names it */
    CHECK(!bitsnap_file_frame_at(&file[2], 0, &frame), "%s", file[2].error.message);
    written[2].p[frame.at + frame.info.header_size + 40] ^= 1;
    CHECK(!bitsnap_file_open(&f, &s, list, 3, NULL), "%s", f.error.message);
    CHECK(bitsnap_file_read_data(&f, 0, out, (size_t)f.data_size) == BITSNAP_E_CHECK && f.error.depth == 1 && f.error.base == 2, "%s", f.error.message);
    bitsnap_file_close(&f);
    written[2].p[frame.at + frame.info.header_size + 40] ^= 1;
    part[0].p[part[0].size - 1] ^= 1; /* elements of the first base, which is also a base of the second */
    CHECK(!bitsnap_file_open(&f, &s, list, 3, NULL), "%s", f.error.message);
    CHECK(bitsnap_file_verify(&f) == BITSNAP_E_BASE && f.error.frame_rule == BITSNAP_R_BASE_HASH && f.error.base == 0, "%s", f.error.message);
    bitsnap_file_close(&f);
    free(out);
    for (k = 0; k < 3; k++) {
        bitsnap_file_close(&file[k]);
        free(written[k].p);
        free(part[k].p);
    }
    for (k = 0; k < 2; k++) {
        bitsnap_file_close(&before[k]);
        free(m[k].p);
    }
    free(old.p);
}

/* Three tensors of one dtype, one of them a large matrix. The library and the tool write equal bytes. */
static void same_bytes(void)
{
    static const char *const levels[] = { "fast", "default", "best" };
    bitsnap_tensor t[3];
    bitsnap_file_error e;
    bytes m, z;
    char *text, path[500];
    size_t size, i, k;
    memset(t, 0, sizeof t);
    for (i = 0; i < 3; i++) {
        t[i].name.at = i ? i == 1 ? "b\"\n" : "c" : "a";
        t[i].name.size = i == 1 ? 3 : 1;
        t[i].dtype.at = "BF16";
        t[i].dtype.size = 4;
        t[i].shape.at = i == 1 ? "[300,200]" : "[70000]";
        t[i].shape.size = strlen(t[i].shape.at);
    }
    CHECK(!bitsnap_safetensors_write(&text, &size, t, 3, "{\"format\":\"pt\"}", NULL, &e), "%s", e.message);
    CHECK(size % 8 == 0 && t[2].begin == 260000 && t[2].end == 400000, "places");
    m.size = 8 + size + 400000;
    m.p = (uint8_t *)malloc(m.size);
    bsf_store(m.p, size, 8);
    memcpy(m.p + 8, text, size);
    for (i = 0; i < 400000; i++) m.p[8 + size + i] = (uint8_t)(i & 1 ? 0x3C + test_below(3) : test_random());
    (void)snprintf(path, sizeof path, "%s/w.safetensors", folder);
    write_file(path, m.p, m.size);
    for (k = 0; k < 3; k++) {
        sunk x = { NULL, 0, 0, 0, 0 };
        CHECK(!write_model(&x, &m, (int)k + 1, NULL, 0, NULL, &e), "%s", e.message);
        CHECK(!run("compress -f -l %s -o w.bsnap w.safetensors", levels[k]));
        z = get("w.bsnap");
        CHECK(z.size == x.size && !memcmp(z.p, x.p, z.size), "level %s: %lu and %lu bytes", levels[k], (unsigned long)x.size, (unsigned long)z.size);
        free(z.p);
        free(x.p);
    }
    t[2].name = t[0].name;
    free(text);
    CHECK(bitsnap_safetensors_write(&text, &size, t, 3, NULL, NULL, &e) == BITSNAP_E_CORRUPT && !text, "%s", e.message);
    t[2].name.at = "\xFF";
    CHECK(bitsnap_safetensors_write(&text, &size, t, 3, NULL, NULL, &e) == BITSNAP_E_CORRUPT && !text, "%s", e.message);
    free(m.p);
}

/* Each write and each allocation may fail; data may be missing or too long. */
static void writers_that_fail(void)
{
    bytes m = make_model(300, 0, 0), other = make_model(300, 1, 1);
    bitsnap_file base, *bases[1] = { &base };
    bitsnap_source source;
    bitsnap_file_error e;
    size_t i, failed = 0;
    unsigned k;
    memset(&source, 0, sizeof source);
    source.data = m.p;
    source.size = m.size;
    CHECK(!bitsnap_file_open(&base, &source, NULL, 0, NULL), "%s", base.error.message);
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 40; i++) {
            sunk x = { NULL, 0, 0, 0, 0 };
            size_t left = i;
            const bitsnap_memory memory = { counting_resize, counting_release, &left };
            const bitsnap_status status = write_model(&x, k ? &other : &m, BITSNAP_FAST, bases, k, &memory, &e);
            CHECK(!status || status == BITSNAP_E_WORKSPACE, "%s", e.message);
            CHECK(!pieces, "memory is left");
            failed += status != BITSNAP_OK;
            free(x.p);
            memset(&x, 0, sizeof x);
            x.fail_at = i + 1;
            CHECK(write_model(&x, k ? &other : &m, BITSNAP_FAST, bases, k, NULL, &e) == BITSNAP_E_SOURCE, "%s", e.message);
            free(x.p);
        }
    }
    CHECK(failed > 20, "%lu", (unsigned long)failed);
    m.size--;
    {
        sunk x = { NULL, 0, 0, 0, 0 };
        CHECK(write_model(&x, &m, BITSNAP_FAST, NULL, 0, NULL, &e) == BITSNAP_E_ARGUMENT, "a byte is missing: %s", e.message);
        free(x.p);
        memset(&x, 0, sizeof x);
        m.p = (uint8_t *)realloc(m.p, m.size + 2);
        m.size += 2;
        CHECK(write_model(&x, &m, BITSNAP_FAST, NULL, 0, NULL, &e) == BITSNAP_E_ARGUMENT, "a byte too many: %s", e.message);
        free(x.p);
    }
    bitsnap_file_close(&base);
    free(m.p);
    free(other.p);
}

/* ================================================================================= SIZES */

/* A file of 2^40 bytes that is made as it is read: header and texts, one frame repeated, and the end record. */
enum { TENSORS = 106000, ELEMENTS = 5 << 20 };

typedef struct endless {
    uint8_t *head, *frame, *end;
    uint64_t head_size, frame_size, end_size, index, blocks, reads, fail_at; /* fail_at: this read fails; 0: none */
} endless;

static int read_endless(void *context, uint64_t offset, void *to, size_t size)
{
    endless *x = (endless *)context;
    uint8_t *p = (uint8_t *)to;
    const uint64_t end = x->head_size + TENSORS * x->frame_size;
    if (++x->reads == x->fail_at) return 1;
    if (size > 100000 && offset > x->head_size) x->blocks += size;
    else x->index += size;
    while (size) {
        const uint64_t in = offset < x->head_size ? offset : offset < end ? (offset - x->head_size) % x->frame_size : offset - end;
        const uint64_t left = (offset < x->head_size ? x->head_size : offset < end ? x->frame_size : x->end_size) - in;
        const size_t n = left < size ? (size_t)left : size;
        memcpy(p, (offset < x->head_size ? x->head : offset < end ? x->frame : x->end) + in, n);
        p += n;
        offset += n;
        size -= n;
    }
    return 0;
}

static void make_endless(endless *x, uint64_t *whole, uint16_t *elements)
{
    char *text = (char *)malloc(TENSORS * 120), *p = text;
    uint8_t *coded, *names, *records, *r, *workspace = (uint8_t *)malloc(BITSNAP_WORKSPACE);
    const uint64_t bytes_of = 2 * (uint64_t)ELEMENTS;
    size_t i, size, coded_size, count, at, frame_size;
    uint64_t source, check;
    bitsnap_file_end end;
    bitsnap_file_error e;
    bitsnap b;
    memset(x, 0, sizeof *x);
    p += sprintf(p, "{");
    for (i = 0; i < TENSORS; i++)
        p += sprintf(p, "%s\"l.%lu.w\":{\"dtype\":\"BF16\",\"shape\":[%d],\"data_offsets\":[%llu,%llu]}", i ? "," : "", (unsigned long)i, ELEMENTS,
                     (unsigned long long)(i * bytes_of), (unsigned long long)((i + 1) * bytes_of));
    *p++ = '}';
    size = (size_t)(p - text);
    CHECK(!bitsnap_text_encode(&coded, &coded_size, text, size, NULL, &e) && !bitsnap_tree_names(&names, &count, text, size, NULL, &e) &&
          count == TENSORS);
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = BITSNAP_WORKSPACE;
    x->frame = (uint8_t *)malloc(bitsnap_bound(&b, ELEMENTS, BITSNAP_BF16));
    CHECK(!bitsnap_encode(&b, x->frame, bitsnap_bound(&b, ELEMENTS, BITSNAP_BF16), &frame_size, elements, ELEMENTS, BITSNAP_BF16));
    x->frame_size = frame_size;
    x->head_size = BITSNAP_FILE_HEADER + coded_size;
    x->head = (uint8_t *)malloc((size_t)x->head_size);
    memset(x->head, 0, BITSNAP_FILE_HEADER);
    memcpy(x->head, BITSNAP_FILE_MAGIC, 8);
    x->head[8] = 1;
    x->head[9] = BITSNAP_SOURCE_SAFETENSORS;
    bsf_store(x->head + 12, size, 4);
    source = 8 + size + TENSORS * bytes_of;
    bsf_store(x->head + 16, source, 8);
    check = bitsnap_hash(x->head, 32);
    bsf_store(x->head + 32, check, 8);
    memcpy(x->head + BITSNAP_FILE_HEADER, coded, coded_size);
    records = (uint8_t *)malloc((TENSORS + coded_size / 100) * BITSNAP_RECORD_ENTRY);
    r = records;
    for (i = 0, at = 8; i < coded_size; r += BITSNAP_RECORD_ENTRY) {
        bsf_store(r, at, 6);
        bsf_store(r + 6, BITSNAP_FILE_HEADER + i, 6);
        at += (size_t)bsf_load(coded + i + 4, 4);
        i += BITSNAP_TEXT_PREFIX + (size_t)bsf_load(coded + i + 8, 4) + 8;
        memcpy(r + 12, coded + i - 8, 8);
    }
    for (i = 0; i < TENSORS; i++, r += BITSNAP_RECORD_ENTRY) {
        bsf_store(r, 8 + size + i * bytes_of, 6);
        bsf_store(r + 6, x->head_size + i * x->frame_size, 6);
        memcpy(r + 12, x->frame + frame_size - 12, 8);
    }
    count = (size_t)(r - records) / BITSNAP_RECORD_ENTRY;
    memset(&end, 0, sizeof end);
    end.records = records;
    end.record_count = count;
    end.names = names;
    end.name_count = TENSORS;
    end.source_size = source;
    end.file_check = check;
    end.records_end = x->head_size + TENSORS * x->frame_size;
    CHECK(!bitsnap_end_record(&x->end, &size, &end, NULL, &e));
    x->end_size = size;
    *whole = x->head_size + TENSORS * x->frame_size + x->end_size;
    free(text);
    free(coded);
    free(names);
    free(records);
    free(workspace);
}

/* Each read of a search fails once. The error is that of the source, and not a missing name. */
static void find_unread(endless *x, uint64_t size)
{
    const bitsnap_source s = { read_endless, x, NULL, size };
    unsigned fail;
    for (fail = 1; fail < 100; fail++) {
        bitsnap_file f;
        bitsnap_tensor t;
        bitsnap_status status;
        x->fail_at = 0;
        CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL), "%s", f.error.message);
        x->fail_at = x->reads + fail;
        status = bitsnap_file_find(&f, "l.50000.w", 9, &t);
        bitsnap_file_close(&f);
        if (x->reads < x->fail_at) break; /* fewer reads are enough */
        CHECK(status == BITSNAP_E_SOURCE, "read %u: %s", fail, f.error.message);
    }
    CHECK(fail > 3 && fail < 100, "%u reads", fail);
    x->fail_at = 0;
}

static void little_is_read(void)
{
    static uint16_t elements[ELEMENTS], out[512];
    endless x;
    uint64_t size, most = 0, reads = 0;
    unsigned i;
    memset(&x, 0, sizeof x);
    for (i = 0; i < ELEMENTS; i++) elements[i] = (uint16_t)test_random(); /* incompressible */
    make_endless(&x, &size, elements);
    CHECK(size > UINT64_C(1) << 40, "%llu", (unsigned long long)size);
    for (i = 0; i < (few ? 20 : 200); i++) {
        const bitsnap_source s = { read_endless, &x, NULL, size };
        const unsigned long which = (unsigned long)test_below(TENSORS);
        const uint64_t first = test_below(ELEMENTS - 511);
        bitsnap_file f;
        bitsnap_tensor t;
        char name[40];
        (void)snprintf(name, sizeof name, "l.%lu.w", which);
        x.index = x.blocks = x.reads = 0;
        CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL) && !bitsnap_file_find(&f, name, strlen(name), &t) &&
              !bitsnap_file_read(&f, &t, out, first, 512), "%s: %s", name, f.error.message);
        CHECK(t.begin == which * 2 * (uint64_t)ELEMENTS && !memcmp(out, elements + first, sizeof out), "%s", name);
        CHECK(x.blocks <= 2 * 132000, "%llu bytes of blocks", (unsigned long long)x.blocks);
        if (x.index > most) most = x.index;
        if (x.reads > reads) reads = x.reads;
        if (!i) CHECK(bitsnap_file_find(&f, "m", 1, &t) == BITSNAP_E_MISMATCH, "%s", f.error.message);
        bitsnap_file_close(&f);
    }
    CHECK(most <= 65536, "%llu bytes of index", (unsigned long long)most);
    find_unread(&x, size);
    printf("# of %.2f TiB %llu bytes are read besides the blocks, in %llu reads with them\n", (double)size / 1024 / 1024 / 1024 / 1024,
           (unsigned long long)most, (unsigned long long)reads);
    free(x.head);
    free(x.frame);
    free(x.end);
}

/* Makes a hostile file of one text without frames. Its header claims `claimed` bytes of text, and its tree of names has these
 * keys. With `more`, a second record of one byte begins at that byte of the source. */
static bytes made_file(const char *text, size_t claimed, const uint64_t *keys, size_t count, uint64_t more)
{
    uint8_t *coded, *end, records[2 * BITSNAP_RECORD_ENTRY], names[8 * 8];
    size_t coded_size, end_size, at, i;
    const uint64_t source = more ? more : 8 + claimed;
    bitsnap_file_end said;
    bitsnap_file_error e;
    bytes b = { NULL, 0 };
    if (bitsnap_text_encode(&coded, &coded_size, text, strlen(text), NULL, &e)) return b;
    at = BITSNAP_FILE_HEADER + coded_size;
    bsf_store(records, 8, 6);
    bsf_store(records + 6, BITSNAP_FILE_HEADER, 6);
    memcpy(records + 12, coded + coded_size - 8, 8);
    bsf_store(records + BITSNAP_RECORD_ENTRY, more, 6);
    bsf_store(records + BITSNAP_RECORD_ENTRY + 6, at, 6);
    for (i = 0; i < count; i++) bsf_store(names + 8 * i, keys[i], 8);
    b.p = (uint8_t *)calloc(1, at + 1000);
    memcpy(b.p, BITSNAP_FILE_MAGIC, 8);
    b.p[8] = b.p[9] = 1;
    bsf_store(b.p + 12, claimed, 4);
    bsf_store(b.p + 16, source, 8);
    bsf_store(b.p + 32, bitsnap_hash(b.p, 32), 8);
    memcpy(b.p + BITSNAP_FILE_HEADER, coded, coded_size);
    at += more != 0;
    memset(&said, 0, sizeof said);
    said.records = records;
    said.record_count = more ? 2 : 1;
    said.names = names;
    said.name_count = count;
    said.source_size = source;
    said.file_check = bitsnap_hash(b.p, 32);
    said.records_end = at;
    if (bitsnap_end_record(&end, &end_size, &said, NULL, &e)) return b;
    memcpy(b.p + at, end, end_size);
    b.size = at + end_size;
    free(coded);
    free(end);
    return b;
}

/* Files that claim more than they have. t245305 and t282795 have equal h. A search refuses expensive wrong entries, and passes
 * over honest entries of equal h. */
static void claims(void)
{
#define TENSOR "\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}"
    static const char apart[] = "{\"t245305\":{" TENSOR ",\"t282795\":{" TENSOR "}", inside[] = "{\"t245305\":{\"x\":{\"t245305\":{" TENSOR "}," TENSOR "}";
    const uint64_t h = (bitsnap_hash("t245305", 7) & UINT32_MAX) << 32, other = (bitsnap_hash("other", 5) & UINT32_MAX) << 32;
    const uint64_t second = (uint64_t)(strstr(apart, "\"t282795") - apart), inner = (uint64_t)(strstr(inside + 2, "\"t245305") - inside);
    const struct {
        const char *text, *name;
        uint64_t keys[2];
        bitsnap_status status;
    } finds[] = {
        { apart, "t245305", { h | 1, h | second }, BITSNAP_OK }, { apart, "t282795", { h | 1, h | second }, BITSNAP_OK },
        { apart, "t282795", { h | 1, h | 1 }, BITSNAP_E_CORRUPT },               /* one entry, repeated */
        { apart, "t282795", { h | second, h | 1 }, BITSNAP_E_CORRUPT },          /* in wrong order */
        { inside, "t282795", { h | 1, h | inner }, BITSNAP_E_CORRUPT },          /* one inside the other */
        { apart, "other", { other | 1, other | second }, BITSNAP_E_CORRUPT },    /* entries of other names */
    };
    bitsnap_tensor t;
    const char *text;
    counted c;
    bitsnap_source s;
    bitsnap_file f;
    bytes b;
    size_t i;
    for (i = 0; i < sizeof finds / sizeof *finds; i++) {
        b = made_file(finds[i].text, strlen(finds[i].text), finds[i].keys, 2, 0);
        s = source_of(&c, b.p, b.size);
        CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL), "%s", f.error.message);
        CHECK(bitsnap_file_find(&f, finds[i].name, strlen(finds[i].name), &t) == finds[i].status && (!finds[i].status || f.error.rule == 25), "%lu: %u, S%u, %s",
              (unsigned long)i, f.error.status, f.error.rule, f.error.message ? f.error.message : "");
        bitsnap_file_close(&f);
        free(b.p);
    }
    b = made_file(apart, 30, NULL, 0, 8 + strlen(apart)); /* the piece has more bytes than the text has left */
    s = source_of(&c, b.p, b.size);
    CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL), "%s", f.error.message);
    CHECK(bitsnap_file_text(&f, &text) == BITSNAP_E_CORRUPT && f.error.rule == 25, "S%u", f.error.rule);
    bitsnap_file_close(&f);
    free(b.p);
}

/* ================================================================================= REFERENCES */

enum { HALVES = 70000, WHOLE_AT = 2 * HALVES + 12, COPY_AT = WHOLE_AT + 4 * HALVES, REFERENCES_END = COPY_AT + 2 * HALVES };

/* A source, little-endian: BF16, a few bytes, F32 elements that round to the first tensor, and a copy of the first. */
static bytes references_source(void)
{
    static const char text[] = "{\"half\":{\"dtype\":\"BF16\",\"shape\":[70000],\"data_offsets\":[0,140000]},\"few\":{\"dtype\":\"I8\",\"shape\":[12],"
                               "\"data_offsets\":[140000,140012]},\"whole\":{\"dtype\":\"F32\",\"shape\":[70000],\"data_offsets\":[140012,420012]},"
                               "\"copy\":{\"dtype\":\"BF16\",\"shape\":[70000],\"data_offsets\":[420012,560012]}}";
    bytes b;
    uint8_t *data;
    size_t i;
    b.size = 8 + strlen(text) + REFERENCES_END;
    b.p = (uint8_t *)calloc(b.size, 1);
    b.p[0] = (uint8_t)strlen(text);
    b.p[1] = (uint8_t)(strlen(text) >> 8);
    memcpy(b.p + 8, text, strlen(text));
    data = b.p + 8 + strlen(text);
    for (i = 0; i < HALVES; i++) {
        data[2 * i] = data[COPY_AT + 2 * i] = data[WHOLE_AT + 4 * i + 2] = (uint8_t)test_random();
        data[2 * i + 1] = data[COPY_AT + 2 * i + 1] = data[WHOLE_AT + 4 * i + 3] = (uint8_t)(0x3C + test_below(2));
        data[WHOLE_AT + 4 * i] = (uint8_t)test_random();
    }
    return b;
}

/* Writes it in four frames. wrong: the number of an error to make; 0: none. */
static bitsnap_status write_references(sunk *x, const bytes *source, int wrong, bitsnap_file_error *e)
{
    static const struct { bitsnap_dtype dtype, base; uint64_t begin, count; } frames[4] = {
        { BITSNAP_BF16, (bitsnap_dtype)0, 0, HALVES }, { BITSNAP_I8, (bitsnap_dtype)0, 2 * HALVES, 12 },
        { BITSNAP_F32, BITSNAP_BF16, WHOLE_AT, HALVES }, { BITSNAP_BF16, BITSNAP_BF16, COPY_AT, HALVES }
    };
    const bitsnap_file_place itself_place = { BITSNAP_BASE_ITSELF, wrong == 6 ? WHOLE_AT : 0 };
    const bitsnap_sink sink = { sink_write, x };
    bitsnap_file_writer w;
    bitsnap_file_head head;
    bitsnap_source s;
    bitsnap_file itself;
    bitsnap b;
    bitsnap_status status;
    unsigned i;
    memset(&b, 0, sizeof b);
    memset(&s, 0, sizeof s);
    memset(&head, 0, sizeof head);
    s.data = source->p;
    s.size = source->size;
    CHECK(!bitsnap_file_open(&itself, &s, NULL, 0, NULL), "%s", itself.error.message);
    b.flags = BITSNAP_CONTENT_ID;
    b.workspace_size = 8 << 20;
    b.workspace = malloc(b.workspace_size);
    head.kind = BITSNAP_SOURCE_SAFETENSORS;
    head.text = (const char *)source->p + 8;
    head.text_size = (size_t)itself.text_size;
    head.source_size = source->size;
    head.references = wrong != 1;
    status = bitsnap_file_write_head(&w, &b, &sink, &head, NULL);
    w.itself = wrong == 2 ? NULL : &itself;
    for (i = 0; i < 4 && !status; i++) {
        const uint8_t *elements = source->p + 8 + head.text_size + frames[i].begin;
        const uint64_t count = wrong == 3 && i == 2 ? BITSNAP_REFERENCE_LEAST - 1 : frames[i].count;
        const bitsnap_file_place *place = frames[i].base && wrong != 5 ? &itself_place : NULL;
        if (i == 0 || (wrong == 4 && i == 2)) w.referred = wrong == 7 ? 2 * HALVES - 1 : COPY_AT;
        b.base.dtype = place ? frames[i].base : (bitsnap_dtype)0;
        status = bitsnap_file_write_frame(&w, frames[i].dtype, count, place);
        if (!status) status = bitsnap_file_write_elements(&w, elements, (size_t)count);
        if (!status) status = bitsnap_file_write_frame_end(&w);
        memset(&b.base, 0, sizeof b.base);
    }
    if (!status) status = bitsnap_file_write_end(&w);
    *e = w.error;
    bitsnap_file_write_close(&w);
    bitsnap_file_close(&itself);
    free(b.workspace);
    return status;
}

typedef struct spilled { /* bytes at their positions in the data */
    uint8_t bytes[REFERENCES_END];
    size_t written, read;
} spilled;

static int spill_write(void *context, uint64_t offset, const void *p, size_t size)
{
    spilled *x = (spilled *)context;
    if (offset > sizeof x->bytes || size > sizeof x->bytes - offset) return 1;
    memcpy(x->bytes + offset, p, size);
    x->written += size;
    return 0;
}

static int spill_read(void *context, uint64_t offset, void *p, size_t size)
{
    spilled *x = (spilled *)context;
    if (offset > sizeof x->bytes || size > sizeof x->bytes - offset) return 1;
    memcpy(p, x->bytes + offset, size);
    x->read += size;
    return 0;
}

/* Reads the file in order. most: memory for bytes that frames refer to; x: a spill or null; check: makes no elements. */
static bitsnap_status read_references(const bytes *file, const bytes *source, uint64_t most, spilled *x, int check)
{
    uint8_t *out = (uint8_t *)malloc(4 * HALVES);
    const size_t data = source->size - REFERENCES_END;
    bitsnap_file_stream s;
    pipe_end in;
    bitsnap b;
    size_t n;
    bitsnap_status status = pipe_begin(&s, &b, &in, file->p, file->size, 0);
    s.kept_most = most;
    if (x) {
        s.spill.write = spill_write;
        s.spill.read = spill_read;
        s.spill.context = x;
    }
    if (!status) status = bitsnap_file_stream_texts(&s);
    while (!status && !(status = bitsnap_file_stream_next(&s)) && s.in_frame) {
        const uint64_t begin = s.frame.begin;
        do {
            status = bitsnap_file_stream_read(&s, check ? NULL : out, HALVES, &n);
            if (!status && !check)
                CHECK(!memcmp(out, source->p + data + begin + (s.decoder.position - n) * s.frame.info.width, n * s.frame.info.width),
                      "other elements at byte %lu", (unsigned long)begin);
        } while (!status && s.decoder.position < s.frame.info.count);
        if (!status) status = bitsnap_file_stream_frame_end(&s);
    }
    bitsnap_file_stream_close(&s);
    free(out);
    return status;
}

static void references(void)
{
    static const unsigned rules[8] = { 0, 36, 0, 40, 38, 36, 37, 42 };
    const bytes source = references_source();
    sunk x = { NULL, 0, 0, 0, 0 };
    bitsnap_file_error e;
    bitsnap_file_frame frame;
    bitsnap_source s;
    bitsnap_file f;
    bytes file;
    spilled *spill = (spilled *)calloc(1, sizeof *spill);
    int wrong, check;
    if (test_big_endian()) { free(source.p); free(spill); return; } /* elements are given in the byte order of the source */
    for (wrong = 1; wrong < 8; wrong++) {
        sunk bad = { NULL, 0, 0, 0, 0 };
        CHECK(write_references(&bad, &source, wrong, &e) == BITSNAP_E_ARGUMENT && e.rule == rules[wrong], "%d: S%u %s", wrong, e.rule, e.message);
        free(bad.p);
    }
    CHECK(!write_references(&x, &source, 0, &e), "%s", e.message);
    file.p = x.p;
    file.size = x.size;
    CHECK(file.size < source.size - 2 * HALVES - HALVES, "%lu bytes: references save nothing", (unsigned long)file.size);
    check_file(file.p, file.size, NULL, 0, source.p, source.size, "references");
    memset(&s, 0, sizeof s);
    s.data = file.p;
    s.size = file.size;
    CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL) && f.incompatible == BITSNAP_FILE_REFERENCES, "%s", f.error.message);
    CHECK(!bitsnap_file_frame_at(&f, 0, &frame) && frame.referred == COPY_AT && !frame.info.has_base, "the first frame");
    CHECK(!bitsnap_file_frame_at(&f, 3, &frame) && !frame.referred && frame.base == BITSNAP_BASE_ITSELF && frame.base_begin == 0, "the last frame");
    bitsnap_file_close(&f);
    for (check = 0; check < 2; check++) {
        CHECK(!read_references(&file, &source, 2 * HALVES, NULL, check), "memory that is enough");
        CHECK(read_references(&file, &source, 2 * HALVES - 1, NULL, check) == BITSNAP_E_WORKSPACE, "memory that is not enough");
        spill->written = spill->read = 0;
        CHECK(!read_references(&file, &source, 2 * HALVES - 1, spill, check) && spill->written == 2 * HALVES && spill->read == 4 * HALVES,
              "spilled: %lu, read: %lu", (unsigned long)spill->written, (unsigned long)spill->read);
    }
    free(spill);
    free(source.p);
    free(file.p);
}

/* Writes the source by bitsnap_file_write_data, with these references and a base or null. */
static bitsnap_status cut_references(sunk *x, const bytes *source, const bitsnap_reference *list, size_t count, bitsnap_file *base, int without,
                                     bitsnap_file_error *e)
{
    const size_t data = source->size - REFERENCES_END;
    const bitsnap_file_content content = { (const char *)source->p + 8, data - 8, 0, &base, base != NULL, list, count };
    const bitsnap_sink sink = { sink_write, x };
    bitsnap_file_writer w;
    bitsnap_source s;
    bitsnap_file itself;
    bitsnap b;
    bitsnap_status status;
    memset(&b, 0, sizeof b);
    memset(&s, 0, sizeof s);
    s.data = source->p;
    s.size = source->size;
    CHECK(!bitsnap_file_open(&itself, &s, NULL, 0, NULL), "%s", itself.error.message);
    status = bitsnap_file_write_begin(&w, &b, &sink, &content, NULL);
    if (!without) w.itself = &itself;
    if (!status) status = bitsnap_file_write_data(&w, source->p + data, 1000);
    if (!status) status = bitsnap_file_write_data(&w, source->p + data + 1000, REFERENCES_END - 1000);
    if (!status) status = bitsnap_file_write_end(&w);
    *e = w.error;
    e->tensor.size = e->tensor.size ? 1 : 0; /* the name is freed; keeps whether there is one */
    bitsnap_file_write_close(&w);
    bitsnap_file_close(&itself);
    return status;
}

/* References cut tensors into frames. The bytes equal those of frames cut by hand, also for parts of tensors and in deltas.
 * Wrong ones are refused. */
static void references_cut(void)
{
    enum { N = HALVES, BF = BITSNAP_BF16, WIDE = BITSNAP_F32 };
    static const bitsnap_reference good[2] = { { 2, 0, N, 0, BF }, { 3, 0, N, 0, BF } };
    static const bitsnap_reference parts[4] = { { 2, 5, 4096, 20, BF }, { 3, 0, 3000, 0, BF }, { 3, 3000, 3000, 6000, BF }, { 3, 50000, 20000, 100000, BF } };
    static const struct { bitsnap_reference list[2]; unsigned count, rule; } wrong[] = {
        { { { 4, 0, N, 0, BF } }, 1, 0 }, { { { SIZE_MAX, 0, N, 0, BF } }, 1, 0 },               /* no such tensor */
        { { { 3, 0, N, 0, BF }, { 2, 0, N, 0, BF } }, 2, 0 },                                    /* not in order */
        { { { 3, 1, N, 0, BF } }, 1, 0 }, { { { 3, UINT64_MAX, N, 0, BF } }, 1, 0 }, { { { 3, 5, UINT64_MAX, 0, BF } }, 1, 0 }, /* no such elements */
        { { { 3, 0, 0, 0, BF } }, 1, 0 }, { { { 3, 0, 5000, 0, BF }, { 3, 4999, 5000, 9998, BF } }, 2, 0 },  /* none; overlapping */
        { { { 3, 0, N, 0, BITSNAP_F16 } }, 1, 0 }, { { { 2, 0, N, 0, BITSNAP_I32 } }, 1, 0 }, { { { 3, 0, N, 0, 99 } }, 1, 0 }, { { { 1, 0, 12, 0, BF } }, 1, 0 },
        { { { 0, 0, N, 0, BF } }, 1, 37 }, { { { 2, 0, N, 14, BF } }, 1, 37 }, { { { 3, 0, N, UINT64_MAX, BF } }, 1, 37 },
        { { { 2, 0, N, 0, BF }, { 3, 0, N, WHOLE_AT, WIDE } }, 2, 38 }, { { { 3, 0, 5000, 0, BF }, { 3, 5000, 5000, COPY_AT, BF } }, 2, 38 },
        { { { 3, 0, 4095, 0, BF } }, 1, 40 }, { { { 3, 0, 3000, 0, BF }, { 3, 3000, 3000, 6002, BF } }, 2, 40 }
    };
    bytes source[2];
    sunk x[4];
    bitsnap_file_error e;
    bitsnap_file_frame frame;
    bitsnap_source s;
    bitsnap_file f;
    uint64_t frames;
    size_t i;
    memset(x, 0, sizeof x);
    memset(&s, 0, sizeof s);
    source[0] = references_source();
    source[1] = references_source();
    if (test_big_endian()) { free(source[0].p); free(source[1].p); return; }
    for (i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        sunk bad = { NULL, 0, 0, 0, 0 };
        CHECK(cut_references(&bad, source, wrong[i].list, wrong[i].count, NULL, 0, &e) == BITSNAP_E_ARGUMENT && e.rule == wrong[i].rule &&
              (i < 2 || e.tensor.size), "%lu: S%u, %s", (unsigned long)i, e.rule, e.message ? e.message : "taken");
        free(bad.p);
    }
    CHECK(cut_references(&x[0], source, good, 2, NULL, 1, &e) == BITSNAP_E_ARGUMENT, "a source that is not open");
    free(x[0].p);
    memset(x, 0, sizeof x);
    CHECK(!write_references(&x[0], source, 0, &e) && !cut_references(&x[1], source, good, 2, NULL, 0, &e), "%s", e.message);
    CHECK(x[0].size == x[1].size && !memcmp(x[0].p, x[1].p, x[0].size), "other bytes than those of frames that are cut by hand");
    CHECK(!cut_references(&x[2], source, parts, 4, NULL, 0, &e), "%s", e.message);
    check_file(x[2].p, x[2].size, NULL, 0, source[0].p, source[0].size, "references of parts");
    s.data = x[2].p;
    s.size = x[2].size;
    CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL) && !bitsnap_file_frames(&f, &frames) && frames == 8, "%lu frames", (unsigned long)frames);
    CHECK(!bitsnap_file_frame_at(&f, 0, &frame) && frame.referred == COPY_AT + 100000, "the first frame");
    CHECK(!bitsnap_file_frame_at(&f, 5, &frame) && frame.info.count == 6000 && frame.base_begin == 0, "neighbours are one frame");
    bitsnap_file_close(&f);
    s.data = x[1].p;
    s.size = x[1].size;
    CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL) && !cut_references(&x[3], source + 1, good, 2, &f, 0, &e), "%s", e.message);
    bitsnap_file_close(&f);
    {
        bitsnap_file *base = &f;
        CHECK(!bitsnap_file_open(&f, &s, NULL, 0, NULL), "%s", f.error.message);
        check_file(x[3].p, x[3].size, &base, 1, source[1].p, source[1].size, "references in a delta");
        bitsnap_file_close(&f);
    }
    for (i = 0; i < 4; i++) free(x[i].p);
    free(source[0].p);
    free(source[1].p);
}

int main(void)
{
    char remove[500];
    test_program = "file:";
    few = !test_long();
    tool = getenv("BITSNAP");
    if (!tool) tool = realpath("build/bitsnap", NULL);
    RUN(vectors);
    RUN(little_is_read);
    RUN(claims);
    RUN(strong_hashes);
    RUN(written_files);
    RUN(frames_of_another_file);
    RUN(blocks_of_another_file);
    RUN(several_bases);
    RUN(writers_that_fail);
    RUN(references);
    RUN(references_cut);
    (void)snprintf(folder, sizeof folder, "%s/bitsnap-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!tool || !mkdtemp(folder)) {
        SKIP("files of the tool", "build/bitsnap is not there");
        return test_failures > 0;
    }
    RUN(whole_files);
    RUN(raw_files);
    RUN(same_bytes);
    RUN(chains);
    RUN(wrong_bases);
    RUN(damaged_bases);
    RUN(damaged_files);
    RUN(changing_sources);
    (void)snprintf(remove, sizeof remove, "rm -rf '%s'", folder);
    return system(remove) || test_failures > 0;
}
