/* docs/examples/wiredtiger: tables in a database, damaged files, and the extension's functions on pages of their own.
 *   wiredtiger LIBRARY write|read|verify HOME     the tables of a database: made; read, and compared; verified
 *   wiredtiger LIBRARY pages                      damaged and truncated pages, by the functions alone
 *   wiredtiger LIBRARY measure FILE...            pages of bf16 in FILE: sizes, GB/s and latencies beside zstd -1 */
#define _GNU_SOURCE
#include "tests/unit/test.h"
#include <dlfcn.h>
#include <time.h>
#include <wiredtiger.h>
#include <wiredtiger_ext.h>
#ifdef WITH_ZSTD
#include <zstd.h>
#endif

enum { VALUE = 3000, ROWS = 60 };

static const char *const types[] = { "bitsnap-bf16", "bitsnap-f32", "bitsnap-f64", "bitsnap-i8", "bitsnap-i16" };
enum { TYPES = sizeof types / sizeof *types };

/* The row of a table: weights of that type, of a size that is odd now and then, or noise. */
static size_t value_of(unsigned type, unsigned row, uint8_t *to)
{
    const size_t size = VALUE + (row % 3 == 1) * 8 * row + row % 5;
    size_t i;
    test_state = type * 1000 + row;
    for (i = 0; i + 8 <= size; i += 8) {
        double d = ((double)(test_random() >> 40) - 8388608) * ((double)(test_random() >> 40)) / 70368744177664 / 16;
        float f = (float)d;
        uint32_t bits;
        int16_t n = (int16_t)(d * 400);
        memcpy(&bits, &f, 4);
        bits >>= 16;
        if (type == 2) memcpy(to + i, &d, 8);
        else if (type == 1) memcpy(to + i, &f, 4), f *= 1.1f, memcpy(to + i + 4, &f, 4);
        else if (type == 0) memcpy(to + i, &bits, 2), test_fill(to + i + 2, 1), to[i + 3] = to[i + 1], memcpy(to + i + 4, to + i, 4);
        else if (type == 4) memcpy(to + i, &n, 2), n = (int16_t)-n, memcpy(to + i + 2, &n, 2), memcpy(to + i + 4, to + i, 4);
        else memset(to + i, (int)(n & 7), 8);
    }
    for (; i < size; i++) to[i] = (uint8_t)i;
    if (row % 20 == 7) test_fill(to, size);
    return size;
}

static int quiet(WT_EVENT_HANDLER *handler, WT_SESSION *session, int error, const char *message)
{
    (void)handler, (void)session, (void)error, (void)message;
    return 0;
}

/* By rows and by columns, without compression (type TYPES) and with; pages that hold several values, and values in pages of their own. */
static int tables(const char *library, const char *mode, const char *home)
{
    static WT_EVENT_HANDLER handler = { quiet, NULL, NULL, NULL };
    static uint8_t value[4 * VALUE];
    const int write = !strcmp(mode, "write");
    char config[500], name[50], key[20];
    WT_CONNECTION *connection;
    WT_SESSION *session;
    unsigned type, form, row;
    int status;
    snprintf(config, sizeof config, "%sextensions=[%s=(config=(level=%d))]", write ? "create," : "", library, 1 + (int)strlen(home) % 3);
    if ((status = wiredtiger_open(home, write ? NULL : &handler, config, &connection))) return status;
    if ((status = connection->open_session(connection, NULL, NULL, &session))) return status;
    for (form = 0; form < 3; form++) {
        for (type = 0; type <= TYPES; type++) {
            WT_CURSOR *cursor;
            WT_ITEM item;
            snprintf(name, sizeof name, "table:t%u%u", form, type);
            snprintf(config, sizeof config, "key_format=%s,value_format=u,leaf_page_max=%s,leaf_value_max=%s%s%s", form == 1 ? "r" : "S",
                     form == 2 ? "4KB,allocation_size=512B" : "32KB", form == 2 ? "1KB" : "16KB", type < TYPES ? ",block_compressor=" : "", type < TYPES ? types[type] : "");
            if (!strcmp(mode, "verify")) {
                if ((status = session->verify(session, name, NULL))) return status;
                continue;
            }
            if (write && (status = session->create(session, name, config))) return status;
            if ((status = session->open_cursor(session, name, NULL, NULL, &cursor))) return status;
            for (row = 0; row < ROWS; row++) {
                const size_t size = value_of(type, row, value);
                snprintf(key, sizeof key, "row%u", row * row);
                if (form == 1) cursor->set_key(cursor, (uint64_t)row + 1);
                else cursor->set_key(cursor, key);
                item.data = value, item.size = size;
                if (write) {
                    cursor->set_value(cursor, &item);
                    if ((status = cursor->insert(cursor))) return status;
                } else {
                    if ((status = cursor->search(cursor)) || (status = cursor->get_value(cursor, &item))) return status;
                    if (item.size != size || memcmp(item.data, value, size)) return -1;
                }
            }
            if ((status = cursor->close(cursor))) return status;
        }
    }
    return connection->close(connection, NULL);
}

/* As much of a connection as the extension asks for. */
static WT_COMPRESSOR *compressors[16];
static char names[16][32];
static unsigned found;
static guarded scratch;

static int add(WT_CONNECTION *connection, const char *name, WT_COMPRESSOR *compressor, const char *config)
{
    (void)connection, (void)config;
    snprintf(names[found], sizeof *names, "%s", name);
    compressors[found++] = compressor;
    return 0;
}

static int silent(WT_EXTENSION_API *wt, WT_SESSION *session, const char *format, ...)
{
    (void)wt, (void)session, (void)format;
    return 0;
}

static int no_config(WT_EXTENSION_API *wt, WT_SESSION *session, WT_CONFIG_ARG *config, const char *key, WT_CONFIG_ITEM *value)
{
    (void)wt, (void)session, (void)config, (void)key, (void)value;
    return WT_NOTFOUND;
}

static int exact; /* scratch memory that ends where it must not be touched; else one that is kept, as WiredTiger's is */

static void *allocate(WT_EXTENSION_API *wt, WT_SESSION *session, size_t size)
{
    static void *kept;
    static size_t held;
    (void)wt, (void)session;
    if (exact) return (scratch = guarded_alloc((size + 15) / 16 * 16, 0)).p;
    if (held < size) free(kept), kept = malloc(held = size);
    return kept;
}

static void release(WT_EXTENSION_API *wt, WT_SESSION *session, void *memory)
{
    (void)wt, (void)session, (void)memory;
    if (exact) guarded_free(scratch);
}

static WT_EXTENSION_API api;
static WT_EXTENSION_API *get_api(WT_CONNECTION *connection) { (void)connection; return &api; }

static WT_COMPRESSOR *compressor_of(const char *library, const char *name)
{
    static WT_CONNECTION connection;
    void *handle = dlopen(library, RTLD_NOW);
    union { void *object; int (*call)(WT_CONNECTION *, WT_CONFIG_ARG *); } init;
    unsigned i;
    if (!handle) fprintf(stderr, "%s\n", dlerror()), exit(1);
    api.err_printf = silent, api.config_get = no_config, api.scr_alloc = allocate, api.scr_free = release;
    connection.get_extension_api = get_api, connection.add_compressor = add;
    init.object = dlsym(handle, "wiredtiger_extension_init");
    if (!found && init.call(&connection, NULL)) exit(1);
    for (i = 0; i < found; i++) if (!strcmp(names[i], name)) return compressors[i];
    exit(1);
}

static const char *library;

/* What a page that somebody damaged gives is an error, or what was there; nothing else is touched. */
static void pages(void)
{
    unsigned type, round, refused = 0, taken = 0;
    exact = 1;
    for (type = 0; type < TYPES; type++) {
        WT_COMPRESSOR *c = compressor_of(library, types[type]);
        for (round = 0; round < 1500; round++) {
            const size_t lead = test_below(20);
            uint8_t whole[8 * VALUE];
            size_t size = lead, packed, result = 0, length;
            guarded page, to, bad, back;
            int failed, status;
            uint64_t seed = round * 77 + type;
            test_fill(whole, lead);
            while (size < 9000) size += value_of(type, (unsigned)(seed + size) % 60, whole + size);
            test_state = seed;
            size -= test_below(size);
            if (size < 500) size = 500;
            page = guarded_alloc(size, 0), to = guarded_alloc(size, 0), back = guarded_alloc(size, 0);
            memcpy(page.p, whole, size);
            CHECK(!c->compress(c, NULL, page.p, size, to.p, size, &packed, &failed), "compress");
            if (!failed) {
                CHECK(packed < size, "%zu of %zu", packed, size);
                length = packed + test_below(2) * test_below(600); /* padded */
                if (round % 4 == 1) length = test_below(packed);
                bad = guarded_alloc(length, 0);
                memset(bad.p, 0, length);
                memcpy(bad.p, to.p, packed < length ? packed : length);
                if (round % 4 == 2) bad.p[test_below(packed)] ^= (uint8_t)(1u << test_below(8));
                if (round % 4 == 3) bad.p[test_below(24)] = (uint8_t)test_random();
                status = c->decompress(c, NULL, bad.p, length, back.p, size, &result);
                CHECK(status || (result == size && !memcmp(back.p, whole, size)), "a wrong page, round %u of %s", round, types[type]);
                CHECK(!status || round % 4, "a good page is refused");
                if (round % 4) status ? refused++ : taken++;
                CHECK(c->decompress(c, NULL, to.p, packed, back.p, size - 1, &result), "a smaller page");
                guarded_free(bad);
            }
            guarded_free(page), guarded_free(to), guarded_free(back);
        }
    }
    CHECK(refused > 3000 && taken < refused / 20, "%u refused, %u as before", refused, taken);
}

#ifdef WITH_ZSTD
static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

static int order(const void *a, const void *b) { return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b); }

/* WiredTiger's own extension for zstd: the size in front, contexts that are kept. */
static ZSTD_CCtx *zc;
static ZSTD_DCtx *zd;

static size_t zstd(uint8_t *page, size_t size, uint8_t *to)
{
    const size_t n = ZSTD_compressCCtx(zc, to + 8, size - 8, page, size, 1);
    const uint64_t length = n;
    memcpy(to, &length, 8);
    return ZSTD_isError(n) ? size : n + 8;
}

static void unzstd(uint8_t *packed, uint8_t *page, size_t size)
{
    uint64_t length;
    memcpy(&length, packed, 8);
    if (ZSTD_decompressDCtx(zd, page, size, packed + 8, length) != size) exit(1);
}

enum { MOST = 64 << 20, ROUNDS = 20 };

static void measure_pages(const char *type, size_t page, const uint8_t *data, size_t bytes)
{
    static uint8_t packed[MOST], back[MOST];
    WT_COMPRESSOR *c = compressor_of(library, type);
    const size_t n = bytes / page;
    double *in = (double *)malloc(n * sizeof *in), *out = (double *)malloc(n * sizeof *out), all_in, all_out;
    size_t *sizes = (size_t *)malloc(n * sizeof *sizes), sum, i, result;
    int ours, failed, round;
    for (ours = 0; ours < 2; ours++) {
        for (round = 0; round < ROUNDS; round++) { /* of each page the fastest time counts, as others use the machine, too */
            for (i = 0; i < n; i++) {
                uint8_t *from = (uint8_t *)(uintptr_t)data + i * page;
                double t = now();
                if (!ours) sizes[i] = zstd(from, page, packed + i * page);
                else if (c->compress(c, NULL, from, page, packed + i * page, page, &sizes[i], &failed) || failed) sizes[i] = page;
                t = now() - t;
                if (!round || t < in[i]) in[i] = t;
            }
            for (i = 0; i < n; i++) {
                double t = now();
                if (sizes[i] == page) memcpy(back + i * page, data + i * page, page);
                else if (!ours) unzstd(packed + i * page, back + i * page, page);
                else if (c->decompress(c, NULL, packed + i * page, sizes[i], back + i * page, page, &result)) exit(1);
                t = now() - t;
                if (!round || t < out[i]) out[i] = t;
            }
        }
        if (memcmp(back, data, n * page)) exit(1);
        for (i = sum = 0, all_in = all_out = 0; i < n; i++) sum += sizes[i], all_in += in[i], all_out += out[i];
        qsort(in, n, sizeof *in, order), qsort(out, n, sizeof *out, order);
        printf("| %zu KiB | %s | %.3f | %.2f | %.1f | %.2f | %.1f |\n", page >> 10, ours ? type : "zstd -1", (double)sum / (double)(n * page),
               (double)(n * page) / all_in / 1e3, in[n * 99 / 100], (double)(n * page) / all_out / 1e3, out[n * 99 / 100]);
    }
    free(in), free(out), free(sizes);
}

/* FILE: .safetensors; pages are cut from its data, whose type its first tensor tells. */
static int measure(char **files)
{
    static uint8_t data[MOST];
    size_t page;
    zc = ZSTD_createCCtx(), zd = ZSTD_createDCtx();
    printf("| page | | ratio | compress, GB/s | p99, us | decompress, GB/s | p99, us |\n|---|---|---|---|---|---|---|\n");
    for (; *files; files++) {
        FILE *f = fopen(*files, "rb");
        uint64_t header;
        size_t bytes;
        if (!f || fread(&header, 8, 1, f) != 1 || header > MOST || fread(data, 1, (size_t)header, f) != header) return perror(*files), 1;
        data[header] = 0;
        const char *type = strstr((char *)data, "\"BF16\"") ? "bitsnap-bf16" : strstr((char *)data, "\"F16\"") ? "bitsnap-f16" : "bitsnap-f32";
        bytes = fread(data, 1, MOST, f);
        fclose(f);
        for (page = 4096; page <= 32768; page *= page == 4096 ? 4 : 2) measure_pages(type, page, data, bytes);
    }
    return 0;
}
#endif

int main(int argc, char **argv)
{
    test_program = "wiredtiger";
    if (argc < 3) return 2;
    library = argv[1];
    if (!strcmp(argv[2], "pages")) {
        RUN(pages);
        return test_failures != 0;
    }
#ifdef WITH_ZSTD
    if (!strcmp(argv[2], "measure")) return measure(argv + 3);
#endif
    if (argc < 4) return 2;
    switch (tables(library, argv[2], argv[3])) { /* the host's errors are 3, wrong values 4 */
    case 0: return 0;
    case -1: return 4;
    default: return 3;
    }
}
