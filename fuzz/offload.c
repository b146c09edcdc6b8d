/* The hook for devices. The codec plays the device, whose addresses only it can turn into memory. The input is its script: it
 * works at once or late, in any order, declines, refuses, does not report, fails half-way, or returns wrong sizes and blocks. In
 * all cases only the tensors and the staging memory are touched, and both queues are empty at the end. The result is that of
 * bitsnap_decode,
 * bitsnap_apply or bitsnap_encode, or an error, unless the device has called wrong elements good.
 *   u8      bits 0 and 1: decode, apply, encode, encode by several workers; bit 2: the frame is repaired first; encode: it is
 *           quantized; bit 3: checks are ignored, or not made; bit 4: the device may call wrong elements good; bit 5: frames are
 *           uploaded without staging; encode: the device is trusted; bit 6: encode: content ids, with bit 2 columns
 *   u8      bits 0 to 3: staging memory; bits 4 and 5: tensors, less one; bits 6 and 7: the base
 *   u8      encode: dtype, level, block size
 *   u8      number of the call that fails; if it is odd, all later ones fail, too; 0: none
 *   u8[24]  what the device does, over and over
 *   frame; encode: elements */
#define BITSNAP_OFFLOAD
#include "mutate.h"

#define MOST (1u << 17)
enum { SCRIPT = 4, HEAD = SCRIPT + 24, TENSORS = 4, JOBS = 4096 };

/* ---- the device ---- */

typedef struct region { /* of the device's memory */
    uint8_t *memory;
    size_t size;
} region;

typedef struct job {
    int what; /* 'u', 'd', 'w', 'e': upload, download, blocks to decode and to encode */
    uint8_t *to;
    const uint8_t *from;
    size_t size;
    const bitsnap_work *works;
    bitsnap_done *done;
} job;

static struct {
    const uint8_t *script;
    unsigned at, fails, calls;
    int liar, lied; /* the device may call wrong elements good; it has done so */
    int bad;        /* it has made an invalid block */
    int failed;
    size_t half; /* bytes of half the staging memory */
    region memory[2 * TENSORS + 1]; /* elements, bases, staging memory */
    bitsnap_info info[TENSORS];
    unsigned level;
    unsigned jobs[2];
    job queue[2][JOBS]; /* last, so that clearing can stop before it */
} dev;

static unsigned next(void) { return dev.script[dev.at++ % (HEAD - SCRIPT)]; }

static uint64_t address(unsigned r) { return UINT64_C(0xB5) << 56 | (uint64_t)r << 40; }

/* Returns the memory at a device's address, and its region in *which. All `size` bytes must be inside the region. */
static uint8_t *memory_at(uint64_t at, size_t size, unsigned *which)
{
    const unsigned r = (unsigned)(at >> 40 & 0xFFFF);
    const uint64_t offset = at & UINT64_C(0xFFFFFFFFFF);
    REQUIRE(at >> 56 == 0xB5 && r <= 2 * TENSORS && offset <= dev.memory[r].size && size <= dev.memory[r].size - offset);
    if (which) *which = r;
    return dev.memory[r].memory + offset;
}

/* Returns the staging memory of a block, which must be inside the queue's half. */
static uint8_t *staged(unsigned queue, uint64_t at, size_t size)
{
    unsigned r;
    uint8_t *p = memory_at(at, size, &r);
    REQUIRE(r == 2 * TENSORS && (size_t)(p - dev.memory[r].memory) >= queue * dev.half &&
            (size_t)(p - dev.memory[r].memory) + size <= (queue + 1) * dev.half);
    return p;
}

static uint32_t decode_block(unsigned queue, const bitsnap_work *w)
{
    const unsigned taken = fuzz_taken, does = next() % 8, width = bitsnap_width((bitsnap_dtype)w->dtype);
    const size_t size = (size_t)w->count * width;
    const uint8_t *source = staged(queue, w->source, w->size);
    unsigned tensor;
    uint8_t *target = memory_at(w->target, size, &tensor), *cell;
    bitsnap_extent x;
    bitsnap_status status;
    bitsnap b;
    REQUIRE(tensor < TENSORS && w->dtype == dev.info[tensor].dtype && w->count && w->first * width == (uint64_t)(target - dev.memory[tensor].memory));
    REQUIRE(w->header_check == dev.info[tensor].header_check && !(w->flags & BITSNAP_WORK_CHECKS) == !dev.info[tensor].checks);
    if (does == 4) return BITSNAP_E_UNSUPPORTED;
    if (does == 5) {
        if (!w->role) memset(target, 0x5A, size); /* a refused block may have written elements */
        return 1 + next() % 20 + (next() << 8);
    }
    if (does == 7 && dev.liar) {
        dev.lied = 1;
        if (!(w->flags & BITSNAP_WORK_TEST) && next() & 1) memset(target, 0x5A, size);
        return 0;
    }
    memset(&x, 0, sizeof x);
    x.size = w->size;
    x.first = w->first;
    x.count = w->count;
    x.form = w->head & 255;
    /* the host has already compared it with the index */
    if (w->flags & BITSNAP_WORK_CHECKS) x.check = (uint32_t)fuzz_load(source + 4, 4);
    b = fuzz_codec(dev.info[tensor].block_log2);
    b.flags = w->flags & BITSNAP_WORK_IGNORE ? BITSNAP_IGNORE_CHECKS : 0;
    REQUIRE(w->role == (!dev.info[tensor].has_base ? 0 : dev.info[tensor].base_dtype == dev.info[tensor].dtype ? 1 : w->dtype == BITSNAP_F32 ? 3 : 2));
    if (w->role) {
        b.base.dtype = dev.info[tensor].base_dtype;
        b.base.data = memory_at(w->base, (size_t)w->count * bitsnap_width(b.base.dtype), NULL);
        b.base.count = dev.info[tensor].count;
        b.base.first = w->first;
        b.base.held = w->count;
    }
    cell = fuzz_room(size);
    status = fuzz_load(source, 4) != w->head ? BITSNAP_E_CORRUPT
             : bitsnap_block_decode(&b, cell, w->first, w->count, &dev.info[tensor], &x, fuzz_copy(source, w->size));
    REQUIRE(status != BITSNAP_E_ARGUMENT && status != BITSNAP_E_WORKSPACE);
    if (!status && !(w->flags & BITSNAP_WORK_TEST)) memcpy(target, cell, size);
    fuzz_drop(taken);
    return status;
}

static bitsnap_done encode_block(unsigned queue, const bitsnap_work *w)
{
    const unsigned taken = fuzz_taken, does = next() % 8, width = bitsnap_width((bitsnap_dtype)w->dtype);
    const size_t bytes = (size_t)w->count * width;
    bitsnap_done done = { BITSNAP_E_UNSUPPORTED, 0xFFFFFFFF };
    unsigned tensor;
    const uint8_t *elements = memory_at(w->source, bytes, &tensor);
    uint8_t *target = staged(queue, w->target, w->size), *copy;
    size_t size = 0;
    bitsnap b;
    REQUIRE(tensor < TENSORS && w->count && w->first * width == (uint64_t)(elements - dev.memory[tensor].memory));
    if (does == 4 || !w->size) return done;
    if (does == 5) done.size = w->size; /* claims a block that it has not made */
    if (does == 5) return done;
    dev.info[tensor].header_check = w->header_check;
    b = fuzz_codec(dev.info[tensor].block_log2);
    b.level = w->level;
    REQUIRE(w->bins == dev.info[tensor].bins && w->columns == dev.info[tensor].columns);
    b.quantizer.bins = w->bins;
    b.columns = w->columns;
    if (!(w->flags & BITSNAP_WORK_CHECKS)) b.flags = BITSNAP_NO_CHECKS;
    if (dev.info[tensor].has_content_id) b.flags |= BITSNAP_CONTENT_ID;
    copy = fuzz_copy(elements, bytes);
    if (does == 7 && dev.liar) { /* a valid block of other elements */
        dev.lied = 1;
        copy[next() % bytes] ^= 1;
    }
    REQUIRE(!bitsnap_block_encode(&b, target, w->size, &size, &dev.info[tensor], copy, w->first, w->count));
    done.status = 0;
    done.size = (uint32_t)size;
    if (does == 6) { /* an invalid block */
        dev.bad = 1;
        if (!(w->flags & BITSNAP_WORK_CHECKS)) dev.lied = 1; /* undetectable without checks */
        if (next() % 4 == 0) { /* of more elements */
            fuzz_store(target, FUZZ_CONST | 2 << 8, 4);
            done.size = 4 + (w->flags & BITSNAP_WORK_CHECKS ? 8 : 0) + width;
        } else if (next() & 1) target[next() * 7 % size] ^= 1;
        else done.size = next() & 1 ? next() * 16 : 0xFFFFFF00 + next();
        if (done.size == size) target[size - 1] ^= 1;
    }
    fuzz_drop(taken);
    return done;
}

/* Runs all jobs of a queue. */
static void work(unsigned queue)
{
    unsigned i;
    size_t k;
    for (i = 0; i < dev.jobs[queue]; i++) {
        const job *j = &dev.queue[queue][i];
        const unsigned order = next();
        if (j->what == 'u' || j->what == 'd') memcpy(j->to, j->from, j->size);
        else
            for (k = 0; k < j->size; k++) {
                const size_t at = order & 1 ? j->size - 1 - k : k;
                if (j->what == 'e') j->done[at] = encode_block(queue, &j->works[at]);
                else if (order & 2 && next() % 4 == 0) continue; /* does not report */
                else j->done[at].status = decode_block(queue, &j->works[at]);
            }
    }
    dev.jobs[queue] = 0;
}

static int failing(void)
{
    dev.calls++;
    if (!dev.fails || dev.calls < dev.fails || (dev.calls > dev.fails && !(dev.fails & 1))) return 0;
    return dev.failed = 1;
}

static int add(unsigned queue, job j)
{
    REQUIRE(queue < 2 && dev.jobs[queue] < JOBS);
    if (failing()) return 1;
    dev.queue[queue][dev.jobs[queue]++] = j;
    if (next() & 1) work(queue);
    return 0;
}

static int upload(void *context, unsigned queue, uint64_t to, const void *from, size_t size)
{
    const job j = { 'u', memory_at(to, size, NULL), (const uint8_t *)from, size, NULL, NULL };
    REQUIRE(context == &dev);
    return add(queue, j);
}

static int download(void *context, unsigned queue, void *to, uint64_t from, size_t size)
{
    const job j = { 'd', (uint8_t *)to, memory_at(from, size, NULL), size, NULL, NULL };
    REQUIRE(context == &dev);
    return add(queue, j);
}

static int decode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    const job j = { 'w', NULL, NULL, count, works, done };
    REQUIRE(context == &dev);
    return add(queue, j);
}

static int encode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    const job j = { 'e', NULL, NULL, count, works, done };
    REQUIRE(context == &dev);
    return add(queue, j);
}

static int wait(void *context, unsigned queue)
{
    REQUIRE(context == &dev && queue < 2);
    if (next() & 1) work(queue ^ 1);
    work(queue);
    return failing();
}

static bitsnap_offload device(const uint8_t *data)
{
    const size_t size = ((size_t)32 << (data[1] & 15) % 12) + (data[1] & 15) * 4u;
    bitsnap_offload o;
    memset(&dev, 0, (size_t)((char *)dev.queue - (char *)&dev));
    memset(&o, 0, sizeof o);
    dev.script = data + SCRIPT;
    dev.fails = data[3];
    dev.liar = data[0] >> 4 & 1;
    dev.half = size / 32 * 16; /* encoded blocks begin at multiples of 16 */
    dev.memory[2 * TENSORS].memory = fuzz_fill(size, 0xEE);
    dev.memory[2 * TENSORS].size = size;
    o.context = &dev;
    o.upload = upload;
    o.download = download;
    o.decode = decode;
    o.encode = encode;
    o.wait = wait;
    o.device = address(2 * TENSORS);
    o.size = size;
    o.host = data[0] & 32 && (data[0] & 3) < 2 ? NULL : fuzz_room(size);
    return o;
}

/* ---- tensors ---- */

typedef struct tensor {
    uint8_t *frame, *base, *expected;
    size_t size, bytes;
    bitsnap_status status; /* of the codec without a device */
    unsigned rule;
} tensor;

/* Makes elements that differ a little from the base of this kind. */
static uint8_t *changed(size_t bytes, unsigned kind)
{
    uint8_t *p = fuzz_pattern(bytes, kind);
    size_t i;
    for (i = 0; i < bytes; i += 62) p[i] ^= 1;
    return p;
}

/* Makes a valid frame to decode along with the input's: BF16 in blocks of 64 elements or more; delta 1: a delta to BF16; 2: of
 * F32 to BF16. */
static size_t good_frame(unsigned number, int delta, unsigned kind, const uint8_t **frame)
{
    static struct { uint8_t bytes[8000]; size_t size; } made[TENSORS][3][4]; /* made on first use */
    const bitsnap_dtype dtype = delta == 2 ? BITSNAP_F32 : BITSNAP_BF16;
    const size_t n = 200u + 400u * number;
    const unsigned taken = fuzz_taken;
    bitsnap b;
    *frame = made[number][delta][kind].bytes;
    if (made[number][delta][kind].size) return made[number][delta][kind].size;
    b = fuzz_codec(16);
    b.block_log2 = delta ? 16 : 6 + 2 * number;
    if (delta) {
        b.base.data = fuzz_pattern(2 * n, kind);
        b.base.count = n;
        b.base.dtype = BITSNAP_BF16;
    }
    REQUIRE(!bitsnap_encode(&b, made[number][delta][kind].bytes, sizeof made[0][0][0].bytes, &made[number][delta][kind].size,
                            changed(bitsnap_width(dtype) * n, kind), n, dtype));
    fuzz_drop(taken);
    return made[number][delta][kind].size;
}

static bitsnap_request request_of(unsigned i, size_t count, bitsnap_dtype dtype)
{
    bitsnap_request r;
    memset(&r, 0, sizeof r);
    r.elements = address(i);
    r.count = count;
    r.dtype = dtype;
    dev.memory[i].size = count * bitsnap_width(dtype);
    return r;
}

/* Tests decode or apply. */
static void restore(const uint8_t *data, const uint8_t *frame, size_t size)
{
    const int applying = (data[0] & 3) == 1, ignore = data[0] & 8 && !applying;
    const unsigned tensors = 1 + (data[1] >> 4 & 3), kind = data[1] >> 6, mine = data[2] % tensors;
    bitsnap_offload o = device(data);
    bitsnap_request requests[TENSORS];
    tensor t[TENSORS];
    bitsnap_status status;
    bitsnap b;
    unsigned i;
    int good = 1, known = 1;
    memset(t, 0, sizeof t);
    for (i = 0; i < tensors; i++) {
        bitsnap_info *info = &dev.info[i];
        const uint8_t *good_one = frame;
        t[i].size = i == mine ? size : good_frame(i, applying, kind, &good_one);
        t[i].frame = fuzz_copy(good_one, t[i].size);
        if (bitsnap_read_info(info, t[i].frame, t[i].size) || info->count > MOST / info->width || info->block_log2 > 18) return;
        requests[i] = request_of(i, (size_t)info->count, info->dtype);
        requests[i].frame = t[i].frame;
        requests[i].size = t[i].size;
        t[i].bytes = (size_t)info->elements_size;
        t[i].expected = fuzz_fill(t[i].bytes, 0xA5);
        b = fuzz_codec(info->block_log2);
        b.flags = ignore ? BITSNAP_IGNORE_CHECKS : 0;
        if (info->has_base) {
            /* apply gets the base as elements of info->dtype, which may be wider */
            const unsigned width = bitsnap_width(info->base_dtype);
            b.base.data = t[i].base = fuzz_pattern((size_t)info->count * (width < info->width ? info->width : width), kind);
            b.base.count = info->count;
            b.base.dtype = info->base_dtype;
        }
        t[i].status = bitsnap_decode(&b, t[i].expected, info->count, info->dtype, t[i].frame, t[i].size);
        t[i].rule = b.error.rule;
        if (applying && (!info->has_base || info->base_dtype != info->dtype)) t[i].status = BITSNAP_E_ARGUMENT;
        if (t[i].status) good = 0;
        if (t[i].rule == BITSNAP_R_CONTENT_ID) known = 0; /* the hook does not verify content ids */
        dev.memory[i].memory = applying && t[i].base ? fuzz_copy(t[i].base, t[i].bytes) : fuzz_fill(t[i].bytes, 0xC3);
        if (t[i].base && !applying) {
            dev.memory[TENSORS + i].size = (size_t)info->count * bitsnap_width(info->base_dtype);
            dev.memory[TENSORS + i].memory = fuzz_copy(t[i].base, dev.memory[TENSORS + i].size);
            requests[i].base = address(TENSORS + i);
            requests[i].base_dtype = info->base_dtype;
        }
    }
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, bitsnap_offload_workspace(requests, tensors));
    b.flags = data[0] & 8 ? BITSNAP_IGNORE_CHECKS : 0;
    status = applying ? bitsnap_offload_apply(&b, &o, requests, tensors) : bitsnap_offload_decode(&b, &o, requests, tensors);
    REQUIRE(status == b.error.status && !dev.jobs[0] && !dev.jobs[1]);
    if (dev.failed) REQUIRE(status);
    for (i = 0; i < tensors && !dev.lied && known; i++) {
        const bitsnap_status s = requests[i].error.status;
        const uint8_t *now = dev.memory[i].memory;
        if (!status) REQUIRE(!s && good && !memcmp(now, t[i].expected, t[i].bytes));
        if (t[i].base && !applying) REQUIRE(!memcmp(dev.memory[TENSORS + i].memory, t[i].base, dev.memory[TENSORS + i].size));
        if (s && !dev.failed) REQUIRE(t[i].status);
        if (dev.failed) continue;
        REQUIRE((status != BITSNAP_OK) == !good && (s || !t[i].status));
        if (!applying && !s) REQUIRE(!memcmp(now, t[i].expected, t[i].bytes));
        if (applying && status && t[i].base) REQUIRE(!memcmp(now, t[i].base, t[i].bytes));
    }
}

static void make(const uint8_t *data, const uint8_t *elements, size_t size)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_I8, BITSNAP_F16 };
    const bitsnap_dtype dtype = dtypes[data[2] & 3];
    const unsigned tensors = 1 + (data[1] >> 4 & 3), kind = data[1] >> 6, mine = data[3] % tensors, width = bitsnap_width(dtype);
    bitsnap_offload o = device(data);
    bitsnap_request requests[TENSORS];
    tensor t[TENSORS];
    bitsnap_status status;
    bitsnap b, plain;
    unsigned i, workers = 3;
    int good = 1;
    o.trusted = data[0] >> 5 & 1;
    memset(&b, 0, sizeof b);
    memset(t, 0, sizeof t);
    b.level = data[2] >> 2 & 3;
    b.block_log2 = 6 + (data[2] >> 4) % 11;
    b.flags = data[0] & 8 ? BITSNAP_NO_CHECKS : 0;
    if (data[0] & 4 && dtype != BITSNAP_I8) {
        if (kind == 3) b.quantizer.clusters = 16;
        else b.quantizer.bins = 1 + data[2];
        b.columns = data[0] & 64 ? 16 : 0;
    } else if (data[0] & 64) b.flags |= BITSNAP_CONTENT_ID;
    for (i = 0; i < tensors; i++) {
        const size_t count = i == mine ? size / width : 300u * i;
        const uint8_t *from = i == mine ? elements : fuzz_pattern(count * width, kind);
        size_t bound;
        requests[i] = request_of(i, count, dtype);
        dev.memory[i].memory = fuzz_copy(from, count * width);
        bound = bitsnap_bound(&b, count, dtype);
        t[i].expected = fuzz_room(bound);
        plain = fuzz_codec(16);
        plain.level = b.level;
        plain.flags = b.flags;
        plain.block_log2 = b.block_log2;
        plain.quantizer = b.quantizer;
        plain.columns = b.columns;
        REQUIRE(!bitsnap_encode(&plain, t[i].expected, bound, &t[i].size, from, count, dtype));
        REQUIRE(!bitsnap_read_info(&dev.info[i], t[i].expected, t[i].size));
        t[i].bytes = data[3] & 64 && i == mine ? t[i].size * (data[3] & 63) / 32 : bound;
        if (t[i].bytes < t[i].size) t[i].status = BITSNAP_E_CAPACITY, good = 0;
        requests[i].destination = fuzz_room(t[i].bytes);
        requests[i].size = t[i].bytes;
    }
    b.workers = (data[0] & 3) == 3 ? workers : 0;
    b.run = fuzz_run;
    b.run_context = &workers;
    fuzz_workspace(&b, bitsnap_offload_encode_workspace(&b, requests, tensors));
    status = bitsnap_offload_encode(&b, &o, requests, tensors);
    REQUIRE(status == b.error.status && !dev.jobs[0] && !dev.jobs[1]);
    if (dev.failed) REQUIRE(status);
    for (i = 0; i < tensors && (!dev.failed || !status) && !(o.trusted && dev.bad); i++) {
        const uint8_t *frame = (const uint8_t *)requests[i].destination;
        if (dev.lied) { /* the frame is valid, whatever its elements */
            uint8_t *out = fuzz_room(dev.memory[i].size);
            plain = fuzz_codec(16);
            if (!requests[i].error.status) REQUIRE(!bitsnap_decode(&plain, out, requests[i].count, dtype, frame, requests[i].size));
            continue;
        }
        REQUIRE(requests[i].error.status == t[i].status && (status != BITSNAP_OK) == !good);
        if (!t[i].status) REQUIRE(requests[i].size == t[i].size && !memcmp(frame, t[i].expected, t[i].size));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static fuzz_frame f;
    const uint8_t *rest = data + HEAD;
    fuzz_drop(0);
    if (size < HEAD) return 0;
    size -= HEAD;
    if ((data[0] & 3) >= 2) {
        make(data, rest, size);
        return 0;
    }
    if (data[0] & 4) {
        uint8_t *room = fuzz_copy(rest, size);
        bitsnap_base base;
        room = fuzz_room(size + 2048);
        if (size) memcpy(room, rest, size);
        size = fuzz_settle(&f, room, size, size + 2048);
        memset(&base, 0, sizeof base);
        if (size && f.base && f.count * f.width <= MOST && bitsnap_width((bitsnap_dtype)room[f.base + 4])) {
            base.dtype = (bitsnap_dtype)room[f.base + 4];
            base.count = f.count;
            base.data = fuzz_pattern((size_t)f.count * bitsnap_width(base.dtype), data[1] >> 6);
        }
        if (size && (!f.base || base.data)) (void)fuzz_seal(&f, room, &base);
        rest = room;
    }
    restore(data, rest, size);
    return 0;
}

size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    if (size < HEAD + 1 || room < 64 || seed & 1 || (data[0] & 3) >= 2) return LLVMFuzzerMutate(data, size, room);
    if (seed & 2) { /* changes the script of the device */
        (void)LLVMFuzzerMutate(data, HEAD, HEAD);
        return size;
    }
    data[0] |= 4;
    return fuzz_mutate_frame(data, size, room, HEAD, size, seed >> 2);
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    const unsigned what = number % 4, i = number / 4;
    uint64_t state = number;
    const uint8_t *frame;
    size_t size, k;
    bitsnap_dtype dtype;
    if (number >= 160) return 0;
    fuzz_drop(0);
    for (k = 0; k < HEAD - SCRIPT; k++) to[SCRIPT + k] = i % 5 ? fuzz_noise(&state) : 0;
    to[0] = (uint8_t)(what | (what >= 2 && i % 3 == 2) << 2 | (i % 2) << 3 | (i % 4 == 3) << 4 | (i / 2 % 2) << 5 | (i / 4 % 2) << 6);
    to[1] = (uint8_t)((number * 5 % 9 + 3) | (i % 4) << 4 | (i / 4 % 4) << 6);
    to[2] = (uint8_t)(number * 37);
    to[3] = (uint8_t)(i % 3 ? 0 : number / 2);
    if (what >= 2) size = fuzz_seed_elements(i, to + HEAD, &dtype) * bitsnap_width(dtype);
    else if (what == 1 || i % 3 == 2) {
        size = good_frame(1 + i % 3, 1 + (i % 5 == 4), i / 4 % 4, &frame);
        memcpy(to + HEAD, frame, size);
    } else size = fuzz_seed_frame(i, to + HEAD, room - HEAD);
    return HEAD + size;
}
