/* bitsnap_offload_decode, _apply and _encode, with the codec in the role of a device. Device addresses map to a buffer. Work
 * is done at once or when either queue is waited for. Devices decline at random, fail half-way, or report wrong results and
 * statuses, or none. fuzz/offload.c mixes all of that. */
#define BITSNAP_OFFLOAD
#include "data.h"
#include "inside.h"

#define DEVICE ((size_t)16 << 20)
#define STAGING ((size_t)3 << 18)
#define FRAMES 12

static uint8_t *workspace, *device;
static size_t workspace_size;

#define ADDRESS (UINT64_C(0xB5) << 56) /* added to offsets in the device's memory */

static uint8_t *at_address(uint64_t at) { return device + (at - ADDRESS); }

/* ---- devices ---- */

enum { GOOD, DECLINES, LIES, SILENT, FAILS, KINDS };

typedef struct job {
    int what; /* 'u': upload, 'd': download, 'w': decode blocks, 'e': encode blocks */
    uint64_t at;
    void *host;
    const void *from;
    size_t size;
    const bitsnap_work *works;
    bitsnap_done *done;
} job;

static struct {
    int kind;
    unsigned log2, decoded, declined, refused, until; /* until: calls before FAILS fails */
    int once;                                         /* 1: only once */
    void (*uploads)(void);                            /* called before the first upload */
    int cut;                                          /* 1: of small blocks, the device makes a head, a check and one byte */
    job queue[2][2048];
    unsigned jobs[2];
} dev;

static void work(unsigned queue);

static int failing(void)
{
    if (dev.kind != FAILS || (dev.until && --dev.until)) return 0;
    if (dev.once) dev.kind = GOOD;
    return 1;
}

static int add(unsigned queue, job j)
{
    if (failing()) return 1;
    CHECK(queue < 2 && dev.jobs[queue] < 2048, "queue %u", queue);
    CHECK(j.what == 'w' || j.what == 'e' || (j.at >= ADDRESS && j.at - ADDRESS + j.size <= DEVICE), "a copy outside");
    dev.queue[queue][dev.jobs[queue]++] = j;
    if (test_below(4) == 0) work(queue);
    return 0;
}

static int copy(unsigned queue, int what, uint64_t at, void *host, const void *from, size_t size)
{
    const job j = { what, at, host, from, size, NULL, NULL };
    return add(queue, j);
}

static int code(unsigned queue, int what, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    const job j = { what, 0, NULL, NULL, count, works, done };
    return add(queue, j);
}

static int upload(void *context, unsigned queue, uint64_t to, const void *from, size_t size)
{
    (void)context;
    if (dev.uploads) dev.uploads();
    dev.uploads = NULL;
    return copy(queue, 'u', to, NULL, from, size);
}

static int download(void *context, unsigned queue, void *to, uint64_t from, size_t size)
{
    (void)context;
    return copy(queue, 'd', from, to, NULL, size);
}

static int decode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    (void)context;
    return code(queue, 'w', works, done, count);
}

static int encode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    size_t i;
    (void)context;
    for (i = 0; i < count && !works[i].size; i++) continue;
    CHECK(i < count, "a launch of %lu works, none of which has room", (unsigned long)count);
    return code(queue, 'e', works, done, count);
}

/* Makes a block as a device does. Returns its size, or 0. */
static uint32_t block_of(const bitsnap_work *w)
{
    static uint8_t memory[1 << 22], block[1 << 20];
    bitsnap b;
    bitsnap_info info;
    size_t size = 0;
    if (!w->size) return 0;
    if (dev.kind == SILENT || (dev.kind == DECLINES && test_below(3) == 0)) {
        dev.declined++;
        return 0;
    }
    memset(&b, 0, sizeof b);
    memset(&info, 0, sizeof info);
    b.workspace = memory;
    b.workspace_size = sizeof memory;
    b.level = w->level;
    b.quantizer.bins = w->bins;
    b.columns = w->columns;
    if (!(w->flags & BITSNAP_WORK_CHECKS)) b.flags = BITSNAP_NO_CHECKS;
    info.dtype = (bitsnap_dtype)w->dtype;
    info.count = w->first + w->count;
    info.block_log2 = dev.log2;
    info.checks = w->flags & BITSNAP_WORK_CHECKS;
    info.header_check = w->header_check;
    info.bins = w->bins;
    info.columns = w->columns;
    CHECK(!bitsnap_block_encode(&b, block, sizeof block, &size, &info, at_address(w->source), w->first, w->count) && size <= w->size,
          "the device: %s", bitsnap_message(&b));
    memcpy(at_address(w->target), block, size);
    dev.decoded++;
    if (dev.cut && w->count < 64) {
        test_store32(at_address(w->target), FORM_QUANTIZED | 1 << 8);
        return 13;
    }
    if (dev.kind == LIES && test_below(3) == 0) {
        /* without checks, changed bytes could be a valid block of other elements */
        if (w->flags & BITSNAP_WORK_CHECKS) at_address(w->target)[test_below(size)] ^= (uint8_t)(1u << test_below(8));
        if (test_below(2) || !(w->flags & BITSNAP_WORK_CHECKS)) size = 1 + test_below(w->size + 20);
        if (test_below(3) == 0) { /* a block of more elements */
            memcpy(at_address(w->target), "\1\2\0", 4);
            size = 4 + (w->flags & BITSNAP_WORK_CHECKS ? 8 : 0) + bitsnap_width(info.dtype);
        }
    }
    return (uint32_t)size;
}

/* Decodes a block as a device does, and returns its status. */
static uint32_t status_of(const bitsnap_work *w)
{
    static uint8_t memory[1 << 22], cell[1 << 20];
    bitsnap b;
    bitsnap_info info;
    bitsnap_extent x;
    bitsnap_status s;
    const unsigned width = bitsnap_width((bitsnap_dtype)w->dtype);
    uint32_t head;
    if (dev.kind == SILENT || (dev.kind == DECLINES && test_below(3) == 0)) {
        dev.declined++;
        return BITSNAP_E_UNSUPPORTED;
    }
    if ((size_t)w->count * width > sizeof cell) return BITSNAP_E_UNSUPPORTED;
    memcpy(&head, at_address(w->source), 4);
    if (head != w->head) return BITSNAP_E_CORRUPT | BITSNAP_R_INDEX_BLOCKS << 8;
    memset(&b, 0, sizeof b);
    memset(&info, 0, sizeof info);
    memset(&x, 0, sizeof x);
    memcpy(&x.check, at_address(w->source + 4), 4); /* the host has compared it with the index */
    b.workspace = memory;
    b.workspace_size = sizeof memory;
    b.flags = w->flags & BITSNAP_WORK_IGNORE ? BITSNAP_IGNORE_CHECKS : 0;
    info.dtype = (bitsnap_dtype)w->dtype;
    info.count = w->first + w->count;
    info.block_log2 = dev.log2;
    info.checks = w->flags & BITSNAP_WORK_CHECKS;
    info.header_check = w->header_check;
    info.bins = w->bins;
    info.columns = w->columns;
    if (w->role) {
        info.has_base = 1;
        info.base_dtype = w->role == 1 ? info.dtype : w->role == 2 ? BITSNAP_F32 : BITSNAP_BF16;
        b.base.data = at_address(w->base);
        b.base.dtype = info.base_dtype;
        b.base.count = info.count;
        b.base.first = w->first;
        b.base.held = w->count;
    }
    x.size = w->size;
    x.first = w->first;
    x.count = w->count;
    x.form = w->head & 255;
    s = bitsnap_block_decode(&b, cell, w->first, w->count, &info, &x, at_address(w->source));
    CHECK(s != BITSNAP_E_ARGUMENT && s != BITSNAP_E_WORKSPACE, "the device: %s", bitsnap_message(&b));
    if (s) dev.refused++;
    if (dev.kind == LIES && test_below(3) == 0) return (uint32_t)(1 + test_random() % 0xFFFFFF);
    if (s) return (uint32_t)s | b.error.rule << 8;
    if (!(w->flags & BITSNAP_WORK_TEST)) memcpy(at_address(w->target), cell, (size_t)w->count * width);
    dev.decoded++;
    return 0;
}

static void work(unsigned queue)
{
    unsigned i;
    size_t k;
    for (i = 0; i < dev.jobs[queue]; i++) {
        const job *j = &dev.queue[queue][i];
        if (j->what == 'u') memcpy(at_address(j->at), j->from, j->size);
        else if (j->what == 'd') memcpy(j->host, at_address(j->at), j->size);
        else if (j->what == 'e')
            for (k = j->size; k-- > 0;) {
                j->done[k].size = block_of(&j->works[k]);
                j->done[k].status = j->done[k].size ? 0 : BITSNAP_E_UNSUPPORTED;
            }
        else
            for (k = j->size; k-- > 0;) /* last block first */
                if (dev.kind != SILENT || test_below(2)) {
                    const uint32_t s = status_of(&j->works[k]);
                    j->done[k].status = s;
                    j->done[k].size = (uint32_t)test_random();
                }
    }
    dev.jobs[queue] = 0;
}

static int wait(void *context, unsigned queue)
{
    (void)context;
    if (test_below(2)) work(queue ^ 1);
    work(queue);
    return failing();
}

/* Copies between the test and the memory of the device. */
static void outside(int store, size_t at, void *data, size_t size)
{
    if (store) memcpy(device + at, data, size);
    else memcpy(data, device + at, size);
}

static bitsnap_offload begin(int kind)
{
    static uint8_t host[STAGING];
    bitsnap_offload o;
    memset(&dev, 0, sizeof dev);
    memset(&o, 0, sizeof o);
    dev.kind = kind;
    o.struct_size = sizeof o;
    o.upload = upload;
    o.download = download;
    o.decode = decode;
    o.encode = encode;
    o.wait = wait;
    o.host = host;
    o.device = ADDRESS;
    o.size = STAGING;
    return o;
}

static bitsnap options(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = workspace_size;
    return b;
}

/* ---- frames ---- */

static struct {
    uint8_t *frame, *elements, *base;
    size_t size, count, at, base_at; /* offsets on the device */
    unsigned dtype, base_dtype;
} f[FRAMES];

static bitsnap_request requests[FRAMES];

/* deltas 0: none, 1: all against their own dtype, 2: some, with casts. */
static void make(int deltas, unsigned log2)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_F16, BITSNAP_I16, BITSNAP_F8_E4M3, BITSNAP_I64 };
    size_t at = STAGING, k;
    unsigned i;
    for (i = 0; i < FRAMES; i++) {
        const unsigned dtype = dtypes[i % 6], width = bitsnap_width((bitsnap_dtype)dtype);
        const size_t n = i == 3 ? 0 : 1 + test_below(i % 4 ? 3000 : 120000);
        bitsnap b = options();
        f[i].dtype = f[i].base_dtype = dtype;
        f[i].count = n;
        f[i].elements = (uint8_t *)realloc(f[i].elements, n * width + 1);
        f[i].base = (uint8_t *)realloc(f[i].base, n * 8 + 1);
        data_fill(f[i].elements, n, dtype, (int)test_below(DATA_SHAPES));
        b.block_log2 = log2;
        b.level = 1 + (int)test_below(3);
        if (deltas == 1 || (deltas == 2 && i % 3)) {
            if (deltas == 2 && (dtype == BITSNAP_BF16 || dtype == BITSNAP_F16)) f[i].base_dtype = BITSNAP_F32;
            if (f[i].base_dtype == dtype) memcpy(f[i].base, f[i].elements, n * width);
            else data_fill(f[i].base, n, BITSNAP_F32, DATA_WEIGHTS);
            for (k = 0; k < n; k += 1 + test_below(40)) f[i].elements[k * width] ^= 1;
            b.base.data = f[i].base;
            b.base.count = n;
            b.base.dtype = (bitsnap_dtype)f[i].base_dtype;
        }
        if (!deltas && i < 2 && log2 == 16) {
            b.quantizer.bins = 1 + (unsigned)test_below(200);
            b.columns = 1 + test_below(300);
        }
        f[i].size = bitsnap_bound(&b, n, (bitsnap_dtype)dtype);
        f[i].frame = (uint8_t *)realloc(f[i].frame, f[i].size);
        CHECK(!bitsnap_encode(&b, f[i].frame, f[i].size, &f[i].size, f[i].elements, n, (bitsnap_dtype)dtype), "%s", bitsnap_message(&b));
        if (b.quantizer.bins)
            CHECK(!bitsnap_decode(&b, f[i].elements, n, (bitsnap_dtype)dtype, f[i].frame, f[i].size), "%s", bitsnap_message(&b));
        f[i].at = at;
        at += (n * width + 15) & ~(size_t)15;
        f[i].base_at = at;
        at += (n * 8 + 15) & ~(size_t)15;
        memset(&requests[i], 0, sizeof requests[i]);
        requests[i].frame = f[i].frame;
        requests[i].size = f[i].size;
        requests[i].elements = ADDRESS + f[i].at;
        requests[i].count = n;
        requests[i].dtype = (bitsnap_dtype)dtype;
        if (b.base.data) {
            requests[i].base = ADDRESS + f[i].base_at;
            requests[i].base_dtype = b.base.dtype;
            outside(1, f[i].base_at, f[i].base, n * bitsnap_width(b.base.dtype));
        }
    }
    CHECK(at <= DEVICE, "%lu bytes on the device", (unsigned long)at);
    dev.log2 = log2;
}

static int holds(unsigned i, const uint8_t *expected)
{
    static uint8_t out[1 << 20];
    const size_t size = f[i].count * bitsnap_width((bitsnap_dtype)f[i].dtype);
    outside(0, f[i].at, out, size);
    return !memcmp(out, expected, size);
}

static void clear(void)
{
    static uint8_t zeros[1 << 16];
    size_t at;
    for (at = 0; at < DEVICE; at += sizeof zeros) outside(1, at, zeros, sizeof zeros);
}

/* The number of blocks of all frames. A good device decodes all of them. */
static unsigned blocks_of_all(void)
{
    unsigned i, blocks = 0;
    for (i = 0; i < FRAMES; i++)
        if (f[i].count) blocks += (unsigned)((f[i].count - 1) >> dev.log2) + 1;
    return blocks;
}

/* ---- tests ---- */

static void decodes(void)
{
    int kind, deltas;
    unsigned i;
    for (kind = GOOD; kind < FAILS; kind++)
        for (deltas = 0; deltas < 3; deltas += 2) {
            bitsnap_offload o = begin(kind);
            bitsnap b = options();
            clear();
            make(deltas, 16);
            CHECK(bitsnap_offload_workspace(requests, FRAMES) <= workspace_size, "workspace");
            CHECK(!bitsnap_offload_decode(&b, &o, requests, FRAMES), "device %d: %s", kind, bitsnap_message(&b));
            for (i = 0; i < FRAMES; i++) CHECK(!requests[i].error.status && holds(i, f[i].elements), "device %d, deltas %d, frame %u", kind, deltas, i);
            CHECK(kind != GOOD || !dev.refused, "a good device has refused %u blocks", dev.refused);
            CHECK(kind == SILENT ? !dev.decoded : kind == LIES || dev.decoded + dev.declined == blocks_of_all(),
                  "device %d: %u of %u blocks are decoded, %u declined", kind, dev.decoded, blocks_of_all(), dev.declined);
        }
}

/* Small blocks take many launches. Staging memory holds few of them, or none. */
static void batches(void)
{
    static const size_t sizes[] = { STAGING, 1 << 14, 1 << 10, 64 };
    unsigned i, k;
    for (k = 0; k < 4; k++) {
        bitsnap_offload o = begin(DECLINES);
        bitsnap b = options();
        o.size = sizes[k];
        if (k == 1) o.host = NULL;
        clear();
        make(0, 6 + 2 * k);
        CHECK(!bitsnap_offload_decode(&b, &o, requests, FRAMES), "%s", bitsnap_message(&b));
        for (i = 0; i < FRAMES; i++) CHECK(holds(i, f[i].elements), "size %u, frame %u", k, i);
    }
}

/* Damage: the error is that of the host, whatever the device reports. The other frames are decoded. */
static void damage(void)
{
    static uint8_t out[1 << 20];
    unsigned round, i;
    make(2, 16);
    for (round = 0; round < 150; round++) {
        bitsnap_offload o = begin((int)test_below(FAILS));
        const unsigned at = (unsigned)test_below(FRAMES);
        const size_t byte = test_below(f[at].size - 4); /* not in the end magic: without it, the index is not found */
        const uint8_t was = f[at].frame[byte];
        bitsnap b = options(), host = options();
        bitsnap_status s, expected;
        dev.log2 = 16;
        if (round % 5 == 0) o.size = 64; /* too small for any block: the host decodes */
        f[at].frame[byte] ^= (uint8_t)(1u << test_below(8));
        if (requests[at].base) {
            host.base.data = f[at].base;
            host.base.count = f[at].count;
            host.base.dtype = (bitsnap_dtype)f[at].base_dtype;
        }
        expected = bitsnap_decode(&host, out, f[at].count, (bitsnap_dtype)f[at].dtype, f[at].frame, f[at].size);
        s = bitsnap_offload_decode(&b, &o, requests, FRAMES);
        CHECK(expected && s, "byte %lu of frame %u: %s", (unsigned long)byte, at, bitsnap_message(&b));
        CHECK(requests[at].error.status == s, "%u", requests[at].error.status);
        /* the hook compares a damaged head with the index; bitsnap_decode parses it, and fails later */
        CHECK(s == expected && (b.error.rule == host.error.rule || b.error.rule == BITSNAP_R_INDEX_BLOCKS),
              "byte %lu of frame %u: %s\nthe codec: %s", (unsigned long)byte, at, bitsnap_message(&b), bitsnap_message(&host));
        for (i = 0; i < FRAMES; i++) CHECK(i == at || (!requests[i].error.status && holds(i, f[i].elements)), "frame %u beside %u", i, at);
        f[at].frame[byte] = was;
    }
}

/* Reports the first wrong block, whichever is found first. An error in the index names an element of its page. */
static void order(void)
{
    enum { N = 64 * 600 };
    static uint16_t elements[N];
    static uint8_t frame[3 * N];
    static bitsnap_index index;
    bitsnap_offload o = begin(GOOD);
    bitsnap b = options();
    bitsnap_request r;
    bitsnap_extent x, last;
    bitsnap_source source;
    size_t i;
    dev.log2 = b.block_log2 = 6;
    for (i = 0; i < N; i++) elements[i] = (uint16_t)test_random();
    memset(&r, 0, sizeof r);
    memset(&source, 0, sizeof source);
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &r.size, elements, N, BITSNAP_I16), "%s", bitsnap_message(&b));
    r.frame = source.data = frame;
    source.size = r.size;
    r.elements = ADDRESS + STAGING;
    r.count = N;
    r.dtype = BITSNAP_I16;
    CHECK(!bitsnap_index_open(&b, &index, NULL, &source) && !bitsnap_index_find(&b, &index, 64 * 5, &x) &&
          !bitsnap_index_find(&b, &index, N - 1, &last), "%s", bitsnap_message(&b));
    frame[last.offset + last.size + 8 * 599 + 1] ^= 1; /* the last head in the index, and so its page */
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_CHECK && b.error.rule == BITSNAP_R_FOOTER_CHECK, "%s", bitsnap_message(&b));
    CHECK(b.error.element >= 64 * 256 && b.error.element < N, "element %lu", (unsigned long)b.error.element);
    frame[x.offset + 20] ^= 1;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_CHECK && b.error.element == 64 * 5, "%s", bitsnap_message(&b));
}

/* A block and a run of two. Either unused bytes follow them, or the index lists a block too many. */
static void rest(void)
{
    enum { N = 64 * 3 };
    static const uint8_t elements[N] = { 1, 2, 3 };
    const uint32_t run = FORM_CONST | 2 << 8;
    uint8_t frame[1000], out[N], *index, *end;
    unsigned way;
    for (way = 0; way < 3; way++) {
        bitsnap_offload o = begin(GOOD);
        bitsnap b = options();
        bitsnap_request r;
        bitsnap_info info;
        memset(&r, 0, sizeof r);
        dev.log2 = b.block_log2 = 6;
        b.flags = BITSNAP_NO_CHECKS;
        CHECK(!bitsnap_encode(&b, frame, sizeof frame, &r.size, elements, N, BITSNAP_I8), "%s", bitsnap_message(&b));
        CHECK(!bitsnap_read_info(&info, frame, r.size) && info.blocks == 3, "%s", bitsnap_message(&b));
        index = frame + r.size - 28 - 3 * 4; /* after three blocks of 5 bytes; the last two become a run */
        test_store32(index - 10, run);
        memmove(index - (way == 1 ? 0 : 5), index, 28 + 3 * 4);
        index -= way == 1 ? 0 : 5;
        test_store32(index + 4, run);
        end = index + (way == 2 ? 12 : 8);
        test_store64(end, way == 2 ? 3 : 2);
        r.size = (size_t)(end + 28 - frame);
        test_store64(end + 8, r.size);
        test_store64(end + 16, inside_bound_hash(info.header_check, index, (size_t)(end + 16 - index)));
        memcpy(end + 24, "\x50\x4E\x53\xB5", 4);
        r.frame = frame;
        r.elements = ADDRESS + STAGING;
        r.count = N;
        r.dtype = BITSNAP_I8;
        b.flags = 0;
        CHECK(!bitsnap_decode(&b, out, N, BITSNAP_I8, frame, r.size) == !way, "%u: %s", way, bitsnap_message(&b));
        CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == (way ? BITSNAP_E_CORRUPT : BITSNAP_OK) &&
              b.error.rule == (way ? BITSNAP_R_INDEX_SIZE : 0u), "%u: %s", way, bitsnap_message(&b));
    }
}

static void applies(void)
{
    int kind;
    unsigned i;
    for (kind = GOOD; kind < FAILS; kind++) {
        bitsnap_offload o = begin(kind);
        bitsnap b = options();
        make(1, 16);
        for (i = 0; i < FRAMES; i++) outside(1, f[i].at, f[i].base, f[i].count * bitsnap_width((bitsnap_dtype)f[i].dtype));
        /* one damaged frame: no tensor changes */
        f[8].frame[f[8].size / 2] ^= 1;
        CHECK(bitsnap_offload_apply(&b, &o, requests, FRAMES), "device %d", kind);
        f[8].frame[f[8].size / 2] ^= 1;
        for (i = 0; i < FRAMES; i++) CHECK(holds(i, f[i].base), "device %d, frame %u", kind, i);
        b = options();
        for (i = 0; i < FRAMES; i++) requests[i].base = 1, requests[i].base_id = 1; /* apply ignores these */
        CHECK(!bitsnap_offload_apply(&b, &o, requests, FRAMES), "device %d: %s", kind, bitsnap_message(&b));
        for (i = 0; i < FRAMES; i++) CHECK(holds(i, f[i].elements), "device %d, frame %u", kind, i);
        /* the base is gone */
        b = options();
        CHECK(bitsnap_offload_apply(&b, &o, requests, FRAMES) == BITSNAP_E_BASE, "device %d: %s", kind, bitsnap_message(&b));
    }
}

static void backwards(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    while (count--) task(argument, count, (unsigned)(count % *(const unsigned *)context));
}

/* Encoded frames have the bytes of bitsnap_encode. */
static void encodes(void)
{
    static const unsigned log2s[] = { 16, 10, 9, 12, 13 };
    static uint8_t out[FRAMES][1 << 20];
    int kind;
    unsigned i, round, all;
    for (kind = GOOD; kind < FAILS; kind++)
        for (round = 0; round < 5; round++) {
            bitsnap_offload o = begin(kind);
            bitsnap_request r[FRAMES];
            bitsnap b = options();
            unsigned workers = 1 + (unsigned)test_below(4);
            clear();
            make(0, kind == GOOD && round == 2 ? 6 : log2s[round]); /* 6: more blocks than one launch */
            if (round > 2 && kind == DECLINES) o.size = round == 3 ? 1 << 15 : 64; /* no room for some blocks, or for any */
            if (round == 1) o.encode = NULL, b.columns = kind == GOOD ? 16 : 0;
            b.block_log2 = dev.log2;
            b.level = b.columns ? BITSNAP_BEST : (int)test_below(4);
            if (round == 2) b.flags = BITSNAP_NO_CHECKS;
            if (round == 3) b.flags = BITSNAP_CONTENT_ID;
            b.run = backwards;
            b.run_context = &workers;
            b.workers = workers;
            memcpy(r, requests, sizeof r);
            for (i = 0; i < FRAMES; i++) {
                outside(1, f[i].at, f[i].elements, f[i].count * bitsnap_width(r[i].dtype));
                r[i].destination = out[i];
                r[i].size = i == 5 && round == 4 ? f[i].size / 2 : sizeof out[i];
                f[i].frame = (uint8_t *)realloc(f[i].frame, bitsnap_bound(&b, f[i].count, r[i].dtype));
                CHECK(!bitsnap_encode(&b, f[i].frame, bitsnap_bound(&b, f[i].count, r[i].dtype), &f[i].size, f[i].elements, f[i].count, r[i].dtype),
                      "%s", bitsnap_message(&b));
            }
            CHECK(bitsnap_offload_encode_workspace(&b, r, FRAMES) <= workspace_size, "workspace");
            CHECK(bitsnap_offload_encode(&b, &o, r, FRAMES) == (round == 4 ? BITSNAP_E_CAPACITY : BITSNAP_OK), "device %d: %s", kind, bitsnap_message(&b));
            for (i = 0; i < FRAMES; i++) {
                if (i == 5 && round == 4) CHECK(r[i].error.status == BITSNAP_E_CAPACITY, "%u", r[i].error.status);
                else CHECK(!r[i].error.status && r[i].size == f[i].size && !memcmp(out[i], f[i].frame, f[i].size), "device %d, round %u, frame %u", kind, round, i);
            }
            all = round == 1 || o.size == 64 ? 0 : blocks_of_all();
            CHECK(o.size == 1 << 15 ? dev.decoded && dev.decoded + dev.declined < all : dev.decoded + dev.declined == all,
                  "device %d, round %u: %u of %u blocks are encoded, %u declined", kind, round, dev.decoded, all, dev.declined);
        }
}

/* Quantized frames have these bytes, too. Only the host codes clusters. */
static void quantizes(void)
{
    static uint8_t out[1 << 20];
    unsigned kind, round;
    for (kind = GOOD; kind < FAILS; kind++)
        for (round = 0; round < 12; round++) {
            bitsnap_offload o = begin((int)kind);
            bitsnap b = options();
            bitsnap_request r;
            const unsigned i = round % 3; /* BF16, F32, F16 */
            make(0, 12);
            r = requests[i];
            outside(1, f[i].at, f[i].elements, f[i].count * bitsnap_width(r.dtype));
            b.block_log2 = 12;
            b.level = 1 + (int)test_below(3);
            b.columns = test_below(2) ? 0 : 16 + test_below(600);
            if (round < 9) b.quantizer.bins = 1 + (unsigned)test_below(300);
            else b.quantizer.clusters = 2 + (unsigned)test_below(200);
            o.trusted = kind == GOOD && round % 2;
            r.destination = out;
            r.size = sizeof out;
            f[i].size = bitsnap_bound(&b, f[i].count, r.dtype);
            f[i].frame = (uint8_t *)realloc(f[i].frame, f[i].size);
            CHECK(!bitsnap_encode(&b, f[i].frame, f[i].size, &f[i].size, f[i].elements, f[i].count, r.dtype), "%s", bitsnap_message(&b));
            CHECK(bitsnap_offload_encode_workspace(&b, &r, 1) <= workspace_size, "workspace");
            CHECK(!bitsnap_offload_encode(&b, &o, &r, 1), "device %u: %s", kind, bitsnap_message(&b));
            CHECK(r.size == f[i].size && !memcmp(out, f[i].frame, r.size), "device %u, round %u: other bytes", kind, round);
            CHECK(round < 9 || !dev.decoded, "clusters");
            CHECK(kind != GOOD || round >= 9 || dev.decoded, "round %u: by the host", round);
        }
}

/* Trusted devices: the host checks the sizes of their blocks and nothing else. */
static void trusts(void)
{
    static uint8_t out[1 << 20], elements[1 << 20];
    unsigned i, bad = 0, round;
    for (round = 0; round < 60; round++) {
        bitsnap_offload o = begin(round < 6 ? GOOD : LIES);
        bitsnap b = options();
        bitsnap_request r;
        make(0, 8);
        i = round % FRAMES;
        r = requests[i];
        outside(1, f[i].at, f[i].elements, f[i].count * bitsnap_width(r.dtype));
        o.trusted = 1;
        b.block_log2 = 8;
        r.destination = out;
        r.size = sizeof out;
        CHECK(!bitsnap_offload_encode(&b, &o, &r, 1), "%s", bitsnap_message(&b));
        if (bitsnap_decode(&b, elements, r.count, r.dtype, out, r.size)) bad++;
        else CHECK(!memcmp(elements, f[i].elements, f[i].count * bitsnap_width(r.dtype)), "frame %u", i);
        CHECK(round >= 6 || !bad, "%s", bitsnap_message(&b));
    }
    CHECK(bad > 5, "%u frames", bad);
}

/* A quantized block ends before its certificate, at the end of staging memory. */
static void cuts(void)
{
    enum { N = 64 + 64 + 2, SIZE = 2 * (160 + 32) };
    static uint8_t out[4096];
    static uint16_t elements[N], back[N];
    const guarded g = guarded_alloc(SIZE, 0);
    bitsnap_offload o = begin(GOOD);
    bitsnap b = options();
    bitsnap_request r;
    memset(&r, 0, sizeof r);
    data_fill(elements, N, BITSNAP_F16, DATA_WEIGHTS);
    outside(1, STAGING, elements, 2 * N);
    r.destination = out;
    r.size = sizeof out;
    r.elements = ADDRESS + STAGING;
    r.count = N;
    r.dtype = BITSNAP_F16;
    o.trusted = 1;
    o.host = g.p;
    o.size = SIZE;
    dev.cut = 1;
    dev.log2 = b.block_log2 = 6;
    b.quantizer.bins = 8;
    CHECK(!bitsnap_offload_encode(&b, &o, &r, 1) && dev.decoded == 3, "%u blocks: %s", dev.decoded, bitsnap_message(&b));
    CHECK(!bitsnap_decode(&b, back, N, BITSNAP_F16, out, r.size), "%s", bitsnap_message(&b));
    guarded_free(g);
}

static uint8_t *late_host;

static void too_late(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    size_t at;
    (void)context;
    while (count--) task(argument, count, 0);
    for (at = 0; at < 8 * 160; at += 160) test_store32(late_host + at, FORM_STORED | 300 << 8);
}

/* After the blocks were checked, the device overwrites heads in staging memory with those of larger blocks. */
static void late(void)
{
    enum { N = 64 * 8 };
    static uint8_t out[8192], frame[4096];
    static uint16_t elements[N];
    bitsnap_offload o = begin(GOOD);
    bitsnap b = options();
    bitsnap_request r;
    bitsnap_info info;
    size_t size, i;
    memset(&r, 0, sizeof r);
    data_fill(elements, N, BITSNAP_BF16, DATA_WEIGHTS);
    outside(1, STAGING, elements, 2 * N);
    late_host = (uint8_t *)o.host;
    dev.log2 = b.block_log2 = 6;
    CHECK(!bitsnap_encode(&b, frame, sizeof frame, &size, elements, N, BITSNAP_BF16), "%s", bitsnap_message(&b));
    b.run = too_late;
    b.workers = 2;
    r.destination = out;
    r.size = size;
    r.elements = ADDRESS + STAGING;
    r.count = N;
    r.dtype = BITSNAP_BF16;
    CHECK(!bitsnap_offload_encode(&b, &o, &r, 1) && dev.decoded == 8 && r.size == size, "%s", bitsnap_message(&b));
    CHECK(!bitsnap_read_info(&info, frame, size) && memcmp(out + info.header_size, frame + info.header_size, 4), "heads as they were");
    for (i = size; i < sizeof out; i++) CHECK(!out[i], "byte %lu, behind the frame", (unsigned long)i);
}

/* Whenever the device fails, its queues end up empty, and only complete elements are reported as good. */
static void fails(void)
{
    static uint8_t out[FRAMES][1 << 20];
    unsigned until, i, what;
    for (what = 0; what < 4; what++) /* decode, apply, encode; decode on the host */
        for (until = 1; until < 80; until++) {
            bitsnap_offload o = begin(FAILS);
            bitsnap_request r[FRAMES];
            bitsnap b = options();
            bitsnap_status s;
            if (until == 1) make(what == 1, what == 1 ? 16 : 10);
            dev.log2 = what == 1 ? 16 : 10;
            o.size = what == 1 ? STAGING : what == 3 ? 64 : 1 << 14;
            dev.until = until;
            dev.once = until & 1;
            b.block_log2 = dev.log2;
            memcpy(r, requests, sizeof r);
            for (i = 0; i < FRAMES; i++) {
                outside(1, f[i].at, what == 1 ? f[i].base : f[i].elements, f[i].count * bitsnap_width(r[i].dtype));
                if (what != 2) continue;
                r[i].destination = out[i];
                r[i].size = sizeof out[i];
            }
            s = (what == 2 ? bitsnap_offload_encode : what == 1 ? bitsnap_offload_apply : bitsnap_offload_decode)(&b, &o, r, FRAMES);
            CHECK(s == (dev.until ? BITSNAP_OK : BITSNAP_E_SOURCE) && (s || until > 3), "%u after %u: %s", what, until, bitsnap_message(&b));
            CHECK(!dev.jobs[0] && !dev.jobs[1], "%u after %u: the device is still at work", what, until);
            for (i = 0; i < FRAMES; i++) CHECK(s ? r[i].error.status == s : holds(i, f[i].elements), "%u after %u", what, until);
        }
}

static uint8_t *changing, *changed;
static size_t changed_size;

static void change(void) { memcpy(changing, changed, changed_size); }

/* A frame is replaced after it was checked, by one with blocks too large for the staging memory. */
static void changes(void)
{
    static uint8_t frame[2][4096];
    static const uint16_t elements[1000];
    bitsnap_offload o = begin(DECLINES);
    bitsnap b = options();
    bitsnap_request r[3];
    size_t size[2], log2;
    make(0, 10);
    for (log2 = 0; log2 < 2; log2++) {
        b.block_log2 = log2 ? 16 : 10;
        CHECK(!bitsnap_encode(&b, frame[log2], sizeof frame[log2], &size[log2], elements, 1000, BITSNAP_BF16), "%s", bitsnap_message(&b));
    }
    CHECK(size[0] == size[1], "%lu and %lu bytes", (unsigned long)size[0], (unsigned long)size[1]);
    changing = frame[0];
    changed = frame[1];
    changed_size = size[0];
    r[0] = r[2] = requests[2];
    r[2].elements = requests[1].elements;
    r[1] = requests[0];
    r[1].frame = frame[0];
    r[1].size = size[0];
    r[1].count = 1000;
    dev.uploads = change;
    b.workspace_size = bitsnap_offload_workspace(r, 3);
    CHECK(bitsnap_offload_decode(&b, &o, r, 3) == BITSNAP_E_SOURCE && b.error.rule == BITSNAP_R_SOURCE, "%s", bitsnap_message(&b));
    CHECK(!r[0].error.status && r[1].error.status == BITSNAP_E_SOURCE && !r[2].error.status && holds(2, f[2].elements), "%u", r[1].error.status);
}

/* A block of another frame with the same header and size. Only checks tell the difference, so they decide the result. */
static void checks(void)
{
    static uint8_t frame[2][1 << 16];
    static uint16_t elements[2][20000], expected[20000];
    bitsnap_offload o;
    bitsnap b = options();
    bitsnap_request r;
    bitsnap_info info;
    size_t size[2], k, i;
    unsigned way;
    make(0, 10);
    for (k = 0; k < 2; k++) {
        for (i = 0; i < 20000; i++) elements[k][i] = (uint16_t)test_random();
        b.block_log2 = 10;
        CHECK(!bitsnap_encode(&b, frame[k], sizeof frame[k], &size[k], elements[k], 20000, BITSNAP_I16), "%s", bitsnap_message(&b));
    }
    CHECK(!bitsnap_read_info(&info, frame[0], size[0]) && size[0] == size[1], "%s", bitsnap_message(&b));
    memcpy(expected, elements[0], sizeof expected);
    memcpy(expected, elements[1], 2048);
    memcpy(frame[0] + info.header_size, frame[1] + info.header_size, 12 + 2048);
    r = requests[0];
    r.frame = frame[0];
    r.size = size[0];
    r.count = 20000;
    r.dtype = BITSNAP_I16;
    f[0].count = 20000;
    f[0].dtype = BITSNAP_I16;
    for (way = 0; way < 3; way++) {
        o = begin(GOOD);
        dev.log2 = 10;
        if (way == 2) frame[0][info.header_size + 5] ^= 1; /* the check itself */
        b.flags = way ? BITSNAP_IGNORE_CHECKS : 0;
        CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == (way ? BITSNAP_OK : BITSNAP_E_CHECK), "%u: %s", way, bitsnap_message(&b));
        CHECK(way || b.error.rule == BITSNAP_R_INDEX_CHECK, "%s", bitsnap_message(&b));
        CHECK(!dev.refused && dev.decoded == (way ? 20 : 0), "%u: %u blocks", way, dev.decoded); /* the host refuses the first block */
        CHECK(!way || holds(0, (const uint8_t *)expected), "%u", way);
    }
    /* apply always checks */
    make(1, 16);
    for (i = 0; i < FRAMES; i++) outside(1, f[i].at, f[i].base, f[i].count * bitsnap_width((bitsnap_dtype)f[i].dtype));
    CHECK(!bitsnap_read_info(&info, f[0].frame, f[0].size), "a frame of the test");
    f[0].frame[info.header_size + 5] ^= 1;
    for (way = GOOD; way < LIES; way++) {
        o = begin((int)way);
        dev.log2 = 16;
        CHECK(bitsnap_offload_apply(&b, &o, requests, FRAMES) == BITSNAP_E_CHECK && holds(0, f[0].base), "%u: %s", way, bitsnap_message(&b));
    }
    f[0].frame[info.header_size + 5] ^= 1;
}

static int read_nothing(void *context, uint64_t offset, void *to, size_t size)
{
    (void)context, (void)offset, (void)to, (void)size;
    return 1;
}

static void arguments(void)
{
    bitsnap_offload o = begin(GOOD);
    bitsnap_request r;
    bitsnap b = options();
    const guarded g = guarded_alloc(2 * sizeof(size_t), 0); /* must not read past the end of a smaller struct */
    bitsnap *old = (bitsnap *)(void *)g.p;
    make(2, 16);
    r = requests[0];
    CHECK(bitsnap_offload_decode(&b, NULL, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "offload"), "%s", bitsnap_message(&b));
    CHECK(r.error.status == BITSNAP_E_ARGUMENT, "%u", r.error.status);
    CHECK(!bitsnap_offload_decode(&b, &o, &r, 1) && !r.error.status, "%s", bitsnap_message(&b));
    CHECK(bitsnap_offload_decode(NULL, &o, &r, 1) == BITSNAP_E_ARGUMENT && r.error.status == BITSNAP_E_ARGUMENT, "%u", r.error.status);
    old->struct_size = 2 * sizeof(size_t);
    CHECK(bitsnap_offload_decode(old, &o, &r, 1) == BITSNAP_E_ARGUMENT && bitsnap_offload_encode(old, &o, &r, 1) == BITSNAP_E_ARGUMENT, "a smaller struct");
    guarded_free(g);
    b.level = BITSNAP_BEST + 1;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "level"), "%s", bitsnap_message(&b));
    b.level = 0;
    b.flags = 1u << 31;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "flags"), "%s", bitsnap_message(&b));
    b.flags = 0;
    o.device += 8;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "offload"), "%s", bitsnap_message(&b));
    o.device -= 8;
    r.elements = 0;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "requests"), "%s", bitsnap_message(&b));
    r = requests[0];
    o.struct_size = 3;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    o.struct_size = 0;
    o.wait = NULL;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    o.wait = wait;
    CHECK(bitsnap_offload_decode(&b, &o, NULL, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "requests"), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_offload_decode(&b, &o, NULL, 0), "%s", bitsnap_message(&b));
    r.elements++;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    r.elements--;
    r.count++;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_MISMATCH && r.error.status == BITSNAP_E_MISMATCH, "%s", bitsnap_message(&b));
    r = requests[6]; /* one block: no footer */
    memcpy(workspace + (8 << 20), r.frame, r.size++);
    r.frame = workspace + (8 << 20);
    CHECK(f[6].count < 65536 && bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_TRAILING, "%s", bitsnap_message(&b));
    b.flags = BITSNAP_ALLOW_TRAILING;
    CHECK(!bitsnap_offload_decode(&b, &o, &r, 1), "%s", bitsnap_message(&b));
    b.flags = 0;
    r = requests[0];
    r.dtype = BITSNAP_F16;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_MISMATCH, "%s", bitsnap_message(&b));
    r.dtype = (bitsnap_dtype)99;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    CHECK(bitsnap_offload_encode_workspace(&b, &r, 1) < (size_t)2 << 20, "workspace of no dtype");
    r = requests[0];
    r.frame = NULL;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    r = requests[1]; /* a delta of F32 */
    r.base++;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT, "%s", bitsnap_message(&b));
    r.base--;
    r.base_dtype = BITSNAP_BF16;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_BASE, "%s", bitsnap_message(&b));
    r.base_dtype = BITSNAP_F32;
    r.base_id = 1;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_BASE, "%s", bitsnap_message(&b));
    r.base_id = bitsnap_content_id(f[1].base, f[1].count, BITSNAP_F32);
    CHECK(!bitsnap_offload_decode(&b, &o, &r, 1) && holds(1, f[1].elements), "%s", bitsnap_message(&b));
    r = requests[2]; /* against a cast */
    CHECK(bitsnap_offload_apply(&b, &o, &r, 1) == BITSNAP_E_UNSUPPORTED, "%s", bitsnap_message(&b));
    r = requests[1];
    r.base = 0;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_BASE && b.error.rule == BITSNAP_R_BASE, "%s", bitsnap_message(&b));
    r = requests[0];
    CHECK(bitsnap_offload_apply(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "requests"), "no delta: %s", bitsnap_message(&b));
    r.destination = f[0].frame;
    r.base = ADDRESS;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "requests"), "%s", bitsnap_message(&b));
    r.base = 0;
    b.base.data = workspace;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "base"), "%s", bitsnap_message(&b));
    b.base.data = NULL;
    b.quantizer.bins = 2049;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "quantizer"), "%s", bitsnap_message(&b));
    b.quantizer.bins = 0;
    o.host = NULL;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "offload"), "%s", bitsnap_message(&b));
    CHECK(bitsnap_offload_encode(&b, NULL, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "offload"), "%s", bitsnap_message(&b));
    o = begin(GOOD);
    o.struct_size = 3;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "offload"), "%s", bitsnap_message(&b));
    o.struct_size = 0;
    CHECK(bitsnap_offload_encode(&b, &o, NULL, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "requests"), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_offload_encode(&b, &o, NULL, 0), "%s", bitsnap_message(&b));
    b.base.source.read = read_nothing;
    CHECK(bitsnap_offload_encode(&b, &o, &r, 1) == BITSNAP_E_ARGUMENT && !strcmp(b.error.argument, "base"), "%s", bitsnap_message(&b));
    b.base.source.read = NULL;
    r = requests[0];
    b.workspace = NULL;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_WORKSPACE, "%s", bitsnap_message(&b));
    b = options();
    b.workspace_size = 1000;
    CHECK(bitsnap_offload_decode(&b, &o, &r, 1) == BITSNAP_E_WORKSPACE && b.error.needed == bitsnap_offload_workspace(&r, 1), "%s", bitsnap_message(&b));
    CHECK(r.error.status == BITSNAP_E_WORKSPACE, "%u", r.error.status);
}

int main(void)
{
    test_program = "offload";
    workspace_size = (size_t)24 << 20;
    workspace = (uint8_t *)malloc(workspace_size);
    device = (uint8_t *)malloc(DEVICE);
    RUN(decodes);
    RUN(batches);
    RUN(damage);
    RUN(order);
    RUN(rest);
    RUN(applies);
    RUN(encodes);
    RUN(quantizes);
    RUN(trusts);
    RUN(cuts);
    RUN(late);
    RUN(fails);
    RUN(changes);
    RUN(checks);
    RUN(arguments);
    return test_failures != 0;
}
