/* The device code of docs/examples/offload as fibers: every block that the codec makes, of the frozen frames and of docs/vectors, comes
 * back as the codec has it; of damaged ones, with checks ignored, it says what the codec says. For sanitizers: each block, base and
 * target has memory of its own size. ROUNDS in the environment: how many damaged blocks (5000). */
#define BITSNAP_OFFLOAD
#include "docs/examples/offload/fibers.h"
#include "docs/examples/offload/encode.h"
#include "data.h"
#include "vectors.h"
#include <dirent.h>

#define MEMORY (48u << 10)
#define SCRATCH (1024u << 10)

static uint8_t workspace[64 << 20];
static unsigned long equal, refused, declined, forms[10], large; /* equal, of each form, and of more than a leaf */

/* ---- one block on the "device" ---- */

struct Call {
    const bitsnap_work *work;
    bitsnap_done done;
    u32 memory, scratch;
};

static void run_decode(void *argument)
{
    static u32 scratch[SCRATCH / 4];
    Call *call = (Call *)argument;
    if (call->work->role || (call->work->head & 255) == 6 || (call->work->head & 255) == 7) offload_decode_deltas(call->work, &call->done, 1, scratch, call->scratch, call->memory);
    else offload_decode(call->work, &call->done, 1, scratch, call->scratch, call->memory);
}

static bitsnap options(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    return b;
}

/* A copy of `size` bytes that begins at `offset` in a word: what lies before and behind its words must not be touched. */
static u8 *copy_of(const void *data, size_t size, size_t offset, u8 **memory)
{
    *memory = (u8 *)malloc((offset + size + 3) / 4 * 4);
    if (size) memcpy(*memory + offset, data, size);
    return *memory + offset;
}

/* The block by both. `b` has the base, and the flag that checks are ignored. */
static void both(const char *name, bitsnap *b, const bitsnap_info *info, const bitsnap_extent *x, const u8 *block)
{
    const unsigned width = bitsnap_width(info->dtype), base_width = b->base.data ? bitsnap_width(b->base.dtype) : 0;
    const size_t n = (size_t)x->count;
    u8 *kept[4], *expected = (u8 *)malloc(n * width + 1);
    const u8 *source = copy_of(block, (size_t)x->size, test_below(4), &kept[0]);
    u8 *target = copy_of(expected, n * width, 0, &kept[1]);
    bitsnap_work work;
    Call call;
    bitsnap_status s;
    memset(&work, 0, sizeof work);
    memset(target, 0xA5, n * width);
    work.source = (uintptr_t)source;
    work.target = (uintptr_t)target;
    if (base_width) {
        work.base = (uintptr_t)copy_of((const u8 *)b->base.data + x->first * base_width, n * base_width, 0, &kept[2]);
        work.role = b->base.dtype == info->dtype ? 1 : 2;
    } else {
        kept[2] = NULL;
    }
    work.first = x->first;
    work.header_check = info->header_check;
    work.size = (u32)x->size;
    work.count = (u32)n;
    work.head = x->form | (x->form == 1 ? (u32)((n + ((size_t)1 << info->block_log2) - 1) >> info->block_log2)
                                        : (u32)x->size - 4 - (info->checks ? 8 : 0) - (info->has_base ? 16 : 0)) << 8;
    work.dtype = (u8)info->dtype;
    work.cells = info->cells;
    work.columns = (u32)(info->columns < 0xFFFFFFFF ? info->columns : 0xFFFFFFFF);
    work.flags = (u8)((info->checks ? BITSNAP_WORK_CHECKS : 0) | (b->flags & BITSNAP_IGNORE_CHECKS ? BITSNAP_WORK_IGNORE : 0));
    call.work = &work;
    call.memory = MEMORY;
    call.scratch = SCRATCH;
    call.done.status = 0xEEEEEEEE;
    fiber_run_group(0, MEMORY, run_decode, &call);
    s = bitsnap_block_decode(b, expected, x->first, n, info, x, block);
    if (call.done.status == ST_DECLINED) declined++;
    else if (s) {
        /* which of two conditions is named may differ, but for those of one list */
        CHECK(call.done.status, "%s: the host says %s", name, bitsnap_message(b));
        CHECK(!(b->flags & BITSNAP_IGNORE_CHECKS) || call.done.status >> 8 == b->error.rule, "%s: R%u, the host says %s", name, call.done.status >> 8, bitsnap_message(b));
        refused++;
    } else {
        CHECK(call.done.status == 0, "%s: status %u, R%u", name, call.done.status & 255, call.done.status >> 8);
        CHECK(call.done.status || !memcmp(target, expected, n * width), "%s: other elements", name);
        equal++;
        forms[x->form]++;
        large += n > 65536 && work.role;
    }
    free(kept[0]);
    free(kept[1]);
    free(kept[2]);
    free(expected);
}

/* Every block of a frame that can be found. */
static void blocks(const char *name, const u8 *frame, size_t size, const bitsnap_base *base)
{
    static bitsnap_index index;
    bitsnap b = options();
    bitsnap_info info;
    bitsnap_extent x;
    bitsnap_source source;
    memset(&source, 0, sizeof source);
    source.data = frame;
    source.size = size;
    if (base) b.base = *base;
    if (bitsnap_index_open(&b, &index, &info, &source)) return;
    if (info.has_base && (!base || base->count != info.count || base->dtype != info.base_dtype)) return;
    unsigned most = 40; /* of each frame */
    for (uint64_t at = 0; at < info.count && most--; at += x.count) {
        if (bitsnap_index_find(&b, &index, at, &x) || x.offset + x.size > size) return;
        if (x.count > 1u << 20) continue;
        both(name, &b, &info, &x, frame + x.offset);
    }
}

/* ---- frames that stand in files ---- */

static char line[1 << 16];

static size_t from_hex(u8 *to, const char *hex)
{
    size_t n = 0;
    unsigned byte;
    for (; strlen(hex) >= 2 && sscanf(hex, "%2x", &byte) == 1; hex += 2) to[n++] = (u8)byte;
    return n;
}

static void golden_frames(void)
{
    static u8 frame[1 << 15], given[1 << 15];
    FILE *f = fopen("tests/golden.txt", "r");
    CHECK(f, "tests/golden.txt");
    while (f && fgets(line, sizeof line, f)) {
        char *part[5] = { NULL, NULL, NULL, NULL, NULL }, *at = line;
        bitsnap_base base;
        if (line[0] == '#') continue;
        for (int i = 0; i < 5; i++) part[i] = strtok(i ? NULL : at, " \n");
        memset(&base, 0, sizeof base);
        if (part[4] && part[4][0] != '-') {
            const size_t size = from_hex(given, part[4]);
            base.dtype = (bitsnap_dtype)given[0];
            base.data = given + 1;
            base.count = (size - 1) / bitsnap_width(base.dtype);
        }
        const size_t size = from_hex(frame, part[2]);
        blocks(part[0], frame, size, base.data ? &base : NULL);
    }
    if (f) fclose(f);
    CHECK(equal > 150 && declined < equal / 3, "%lu equal, %lu left to the host", equal, declined);
}

static void vectors(void)
{
    static u8 bytes[3][1 << 22];
    static const char *const titles[3] = { "frame", "elements", "base" };
    DIR *d = opendir("docs/vectors");
    CHECK(d, "docs/vectors");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;) {
        char path[400], name[100] = "";
        size_t size[4] = { 0, 0, 0, 0 };
        unsigned part = 3, dtype = 0;
        if (!strstr(e->d_name, ".txt")) continue;
        snprintf(path, sizeof path, "docs/vectors/%.300s", e->d_name);
        FILE *f = fopen(path, "r");
        for (int more = 1; f && more;) {
            char title[20];
            more = fgets(line, sizeof line, f) != NULL;
            if (more && (line[0] == '#' || line[0] == '\n')) continue;
            if (!more || line[0] == '=') {
                bitsnap_base base;
                memset(&base, 0, sizeof base);
                if (size[2] && bitsnap_width((bitsnap_dtype)dtype)) {
                    base.data = bytes[2];
                    base.dtype = (bitsnap_dtype)dtype;
                    base.count = size[2] / bitsnap_width(base.dtype);
                }
                if (size[0]) blocks(name, bytes[0], size[0], base.data ? &base : NULL);
                memset(size, 0, sizeof size);
                if (more) sscanf(line, "== %99s", name);
            } else if (line[0] == ' ') {
                if (part < 3 && vector_bytes(bytes[part], &size[part], sizeof bytes[part], line)) part = 3; /* a frame of 65537 blocks */
            } else {
                unsigned given = 0;
                if (sscanf(line, "%19s %u", title, &given) < 1) continue;
                for (part = 0; part < 3 && strcmp(title, titles[part]); part++) {}
                if (part == 2) dtype = given;
            }
        }
        if (f) fclose(f);
    }
    if (d) closedir(d);
}

/* ---- what the codec makes ---- */

static u8 elements[1 << 20], before[1 << 20], frame[1 << 21];

/* What a frame of n elements is made with: */
enum { NOTHING, A_BASE, A_QUANTIZER, COLUMNS, WAYS };

/* Such a frame in `frame`; its size. */
static size_t make(bitsnap *b, bitsnap_info *info, unsigned dtype, int shape, size_t n, int with)
{
    const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
    size_t size = 0, i;
    *b = options();
    b->level = 1 + (int)test_below(3);
    data_fill(elements, n, dtype, shape);
    if (with == A_BASE) {
        const unsigned step = 1u << test_below(12);
        memcpy(before, elements, n * width);
        for (i = 0; i < n; i++)
            if (test_below(step) == 0) elements[i * width] = (u8)(elements[i * width] + (test_below(4) ? 1 : test_random()));
        b->base.data = before;
        b->base.count = n;
        b->base.dtype = (bitsnap_dtype)dtype;
    }
    if (with == A_QUANTIZER) b->quantizer.cells = 1 + (unsigned)test_below(test_below(2) ? 300 : 2048);
    if (with == COLUMNS) b->level = BITSNAP_BEST;
    if (with >= A_QUANTIZER && test_below(4)) b->columns = 1 + test_below(test_below(2) ? 300 : n);
    b->block_log2 = with == A_BASE ? 16 + (unsigned)test_below(5) : 6 + (unsigned)test_below(11);
    if (test_below(4) == 0) b->flags = BITSNAP_NO_CHECKS;
    CHECK(!bitsnap_encode(b, frame, sizeof frame, &size, elements, n, (bitsnap_dtype)dtype), "%s", bitsnap_message(b));
    CHECK(!bitsnap_read_info(info, frame, size), "%s", bitsnap_message(b));
    return size;
}

static void made_up(void)
{
    static const char *const ways[WAYS] = { "", ", a delta", ", quantized", " in columns" };
    char name[100];
    for (unsigned dtype = 1; dtype < 11; dtype++)
        for (int shape = 0; shape < DATA_SHAPES; shape++)
            for (int with = 0; with < WAYS; with++) {
                if (with >= A_QUANTIZER && (dtype < BITSNAP_F16 || dtype > BITSNAP_F32)) continue;
                const size_t n = 1 + test_below(test_below(4) ? 3000 : with == A_BASE ? 130000 : 70000);
                bitsnap b;
                bitsnap_info info;
                const size_t size = make(&b, &info, dtype, shape, n, with);
                snprintf(name, sizeof name, "%s of shape %d, %lu elements%s", bitsnap_dtype_name((bitsnap_dtype)dtype), shape, (unsigned long)n, ways[with]);
                blocks(name, frame, size, with == A_BASE ? &b.base : NULL);
            }
}

static void damaged(void)
{
    static bitsnap_index index;
    const unsigned long rounds = getenv("ROUNDS") ? strtoul(getenv("ROUNDS"), NULL, 10) : 5000, start = equal + refused + declined;
    unsigned long none = declined, good = equal;
    while (equal + refused + declined - start < rounds) {
        static const unsigned dtypes[] = { 9, 9, 9, 10, 8, 6, 7, 3, 4, 2 };
        const unsigned dtype = dtypes[test_below(10)];
        const int with = dtype < BITSNAP_F16 ? (int)test_below(2) : (int)test_below(WAYS);
        bitsnap b;
        bitsnap_info info;
        bitsnap_source source;
        bitsnap_extent x;
        const size_t size = make(&b, &info, dtype, (int)test_below(DATA_SHAPES), (with == A_BASE && !test_below(16) ? 65000 : 1) + test_below(2500), with);
        memset(&source, 0, sizeof source);
        source.data = frame;
        source.size = size;
        b.flags = BITSNAP_IGNORE_CHECKS;
        CHECK(!bitsnap_index_open(&b, &index, NULL, &source), "%s", bitsnap_message(&b));
        for (int i = 0; i < 12; i++) {
            const size_t prefix = 4 + (info.checks ? 8 : 0) + (info.has_base ? 16 : 0);
            u8 *block;
            size_t at;
            CHECK(!bitsnap_index_find(&b, &index, test_below((size_t)info.count), &x), "%s", bitsnap_message(&b));
            if (x.size <= prefix) continue;
            block = frame + x.offset;
            at = prefix + test_below(test_below(2) ? 12 : (size_t)x.size - prefix); /* beginnings say the most */
            if (at >= x.size) at = (size_t)x.size - 1;
            const u8 was = block[at];
            block[at] = test_below(2) ? (u8)(was ^ 1u << test_below(8)) : (u8)test_random();
            both("damaged", &b, &info, &x, block);
            block[at] = was;
        }
    }
    CHECK(declined - none < rounds / 20 && equal - good < rounds * 9 / 10, "%lu left to the host, %lu equal", declined - none, equal - good);
}

static void run_encode(void *argument)
{
    static u32 scratch[SCRATCH / 4];
    Call *call = (Call *)argument;
    offload_encode(call->work, &call->done, 1, scratch, call->scratch, call->memory);
}

/* Blocks of floats: the codec's bytes, or left to the host. */
static void encodes(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_F16, BITSNAP_F8_E4M3, BITSNAP_F8_E5M2 };
    unsigned made = 0, all = 0;
    for (unsigned i = 0; i < 5; i++)
        for (int shape = 0; shape < DATA_SHAPES; shape++)
            for (int level = 1; level <= 3; level++) {
                const unsigned width = bitsnap_width((bitsnap_dtype)dtypes[i]);
                const size_t n = test_below(3) ? 4096 + test_below(5000) : test_below(2) ? 32768 + test_below(20000) : 3900 + test_below(200);
                size_t size = 0;
                u8 *kept[2], head[64];
                bitsnap b = options();
                bitsnap_encoder encoder;
                bitsnap_info info;
                bitsnap_work work;
                Call call;
                b.level = level;
                if (test_below(4) == 0) b.flags = BITSNAP_NO_CHECKS;
                data_fill(elements, n, dtypes[i], shape);
                memset(&encoder, 0, sizeof encoder);
                CHECK(!bitsnap_encoder_begin(&b, &encoder, head, sizeof head, &size, n, (bitsnap_dtype)dtypes[i]), "%s", bitsnap_message(&b));
                CHECK(!bitsnap_read_info(&info, head, size), "header");
                CHECK(!bitsnap_block_encode(&b, frame, sizeof frame, &size, &info, elements, 0, n), "%s", bitsnap_message(&b));
                memset(&work, 0, sizeof work);
                work.source = (uintptr_t)copy_of(elements, n * width, 0, &kept[0]);
                work.size = (u32)(n * width + 28);
                work.target = (uintptr_t)copy_of(elements, work.size, test_below(4), &kept[1]);
                work.header_check = info.header_check;
                work.count = (u32)n;
                work.dtype = (u8)dtypes[i];
                work.level = (u8)level;
                work.flags = info.checks ? BITSNAP_WORK_CHECKS : 0;
                call.work = &work;
                call.memory = MEMORY;
                call.scratch = SCRATCH;
                fiber_run_group(0, MEMORY, run_encode, &call);
                all++;
                CHECK(call.done.status == 0 || call.done.status == ST_DECLINED, "status %u", call.done.status);
                if (!call.done.status) {
                    made++;
                    CHECK(call.done.size == size && !memcmp((const void *)(uintptr_t)work.target, frame, size), "%s of shape %d, %lu elements, level %d: other bytes",
                          bitsnap_dtype_name((bitsnap_dtype)dtypes[i]), shape, (unsigned long)n, level);
                }
                free(kept[0]);
                free(kept[1]);
            }
    CHECK(made > all / 6, "%u of %u", made, all);
    fprintf(stderr, "%u of %u blocks are encoded, the others are left to the host\n", made, all);
}

int main(void)
{
    test_program = "offload";
    RUN(encodes);
    RUN(golden_frames);
    RUN(vectors);
    RUN(made_up);
    RUN(damaged);
    for (unsigned form = 0; form < 10; form++) CHECK(forms[form] > 5, "only %lu blocks of form %u", forms[form], form);
    CHECK(large > 2, "only %lu large blocks of deltas", large);
    fprintf(stderr, "%lu blocks are equal, %lu are refused, %lu are left to the host\n", equal, refused, declined);
    return test_failures != 0;
}
