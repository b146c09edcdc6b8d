/* The device code of docs/examples/offload as fibers: blocks of the corpus and others that the codec makes come
 * back as the codec has it; of damaged ones, with checks ignored, it says what the codec says. For sanitizers: each block, base and
 * target has memory of its own size. ROUNDS in the environment: how many damaged blocks (5000).
 *
 * With OFFLOAD_RACES, and compiled with -fsanitize=thread for offload_races.cpp: no data race, and no barrier that nobody needs.
 *
 * With OFFLOAD_OPENCL the same code on the first device of OpenCL, which may be an interpreter (Oclgrind): some of it. */
#define BITSNAP_OFFLOAD
#ifdef OFFLOAD_OPENCL
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include "docs/examples/offload/sizes.h"
#define ST_DECLINED ((u32)BITSNAP_E_UNSUPPORTED)
typedef uint8_t u8;
typedef uint32_t u32;
typedef unsigned long long u64;
#else
#include "docs/examples/offload/fibers.h"
#include "docs/examples/offload/quantize.h"
#ifdef OFFLOAD_RACES
enum { BARRIERS = __COUNTER__ };
#include "offload_races.h"
#endif
#endif
#include "tests/unit/data.h"
#include "tests/format/corpus.h"
#include <math.h>

#define MEMORY (48u << 10)
#define LITTLE (26u << 10) /* the arena has room for hashes, not for all planes */
#define SCRATCH (1024u << 10)

#ifdef OFFLOAD_OPENCL
#define SMALL 1 /* blocks, and small: an interpreter takes its time */
#else
#define SMALL 0
#endif

static uint8_t workspace[64 << 20];
static unsigned long equal, refused, declined, forms[10], large; /* equal, of each form, and of more than a leaf */

/* ---- one block on the "device" ---- */

#if defined(OFFLOAD_OPENCL) || defined(OFFLOAD_RACES) /* all that a block needs lies in one piece of memory */
#define HEAP (16u << 20)
static size_t heap_used;
alignas(16) static u8 heap[HEAP];

static u8 *memory_new(size_t size)
{
    u8 *memory = heap + heap_used;
    heap_used += (size + 31) / 16 * 16;
    CHECK(heap_used <= HEAP, "heap");
    return memory;
}
static void memory_free(u8 *memory) { heap_used = memory && memory < heap + heap_used ? (size_t)(memory - heap) : heap_used; }
#else
static u8 *memory_new(size_t size) { return (u8 *)malloc(size); }
static void memory_free(u8 *memory) { free(memory); }
#endif

#ifdef OFFLOAD_OPENCL
static struct {
    cl_context context;
    cl_command_queue queue;
    cl_kernel kernel[4];
    cl_mem heap, works, done, scratch;
    cl_ulong address; /* where kernels find the heap */
} device;

static bitsnap_done run(const bitsnap_work *work, int encode)
{
    const cl_kernel kernel = device.kernel[encode ? work->bins ? 3 : 2 : offload_has_words(work) ? 1 : 0];
    const cl_uint count = 1, scratch = SCRATCH, arena = LARGE_ARENA;
    const size_t items = 32;
    bitsnap_work there = *work;
    bitsnap_done done = { 0xEEEEEEEE, 0 };
    there.source += device.address - (uintptr_t)heap;
    there.target += device.address - (uintptr_t)heap;
    if (work->base) there.base += device.address - (uintptr_t)heap;
    const cl_int e[] = { clSetKernelArg(kernel, 0, sizeof device.works, &device.works), clSetKernelArg(kernel, 1, sizeof device.done, &device.done),
                         clSetKernelArg(kernel, 2, sizeof count, &count), clSetKernelArg(kernel, 3, sizeof device.scratch, &device.scratch),
                         clSetKernelArg(kernel, 4, sizeof scratch, &scratch), clSetKernelArg(kernel, 5, sizeof arena, &arena),
                         clEnqueueWriteBuffer(device.queue, device.heap, CL_FALSE, 0, heap_used, heap, 0, NULL, NULL),
                         clEnqueueWriteBuffer(device.queue, device.works, CL_FALSE, 0, sizeof there, &there, 0, NULL, NULL),
                         clEnqueueNDRangeKernel(device.queue, kernel, 1, NULL, &items, &items, 0, NULL, NULL),
                         clEnqueueReadBuffer(device.queue, device.done, CL_FALSE, 0, sizeof done, &done, 0, NULL, NULL),
                         clEnqueueReadBuffer(device.queue, device.heap, CL_TRUE, 0, heap_used, heap, 0, NULL, NULL) };
    for (cl_int i : e) CHECK(!i, "OpenCL: error %d", i);
    return done;
}
/* The first device: 0, or the error of OpenCL. */
static cl_int device_begin(void)
{
    static const char *const source[2] = { "#include \"quantize.h\"\n", "__kernel void address_of(__global ulong *to, __global u32 *memory) { *to = (size_t)memory; }\n" };
    static const char *const names[4] = { "offload_decode", "offload_decode_deltas", "offload_encode", "offload_encode_cells" };
    const size_t one = 1;
    cl_platform_id platform;
    cl_device_id id;
    cl_int e = clGetPlatformIDs(1, &platform, NULL);
    if (!e) e = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL);
    if (e) return e;
    device.context = clCreateContext(NULL, 1, &id, NULL, NULL, &e);
    if (!e) device.queue = clCreateCommandQueue(device.context, id, 0, &e);
    if (e) return e;
    const cl_program program = clCreateProgramWithSource(device.context, 2, (const char **)source, NULL, &e);
    if (!e) e = clBuildProgram(program, 1, &id, "-cl-opt-disable -I docs/examples/offload", NULL, NULL);
    for (int i = 0; i < 4 && !e; i++) device.kernel[i] = clCreateKernel(program, names[i], &e);
    const cl_kernel kernel = e ? NULL : clCreateKernel(program, "address_of", &e);
    if (!e) device.heap = clCreateBuffer(device.context, CL_MEM_READ_WRITE, HEAP, NULL, &e);
    if (!e) device.works = clCreateBuffer(device.context, CL_MEM_READ_WRITE, sizeof(bitsnap_work), NULL, &e);
    if (!e) device.done = clCreateBuffer(device.context, CL_MEM_READ_WRITE, sizeof(bitsnap_done), NULL, &e);
    if (!e) device.scratch = clCreateBuffer(device.context, CL_MEM_READ_WRITE, SCRATCH + LARGE_ARENA, NULL, &e);
    if (!e) e = clSetKernelArg(kernel, 0, sizeof device.works, &device.works);
    if (!e) e = clSetKernelArg(kernel, 1, sizeof device.heap, &device.heap);
    if (!e) e = clEnqueueNDRangeKernel(device.queue, kernel, 1, NULL, &one, NULL, 0, NULL, NULL);
    if (!e) e = clEnqueueReadBuffer(device.queue, device.works, CL_TRUE, 0, sizeof device.address, &device.address, 0, NULL, NULL);
    return e;
}
#else
struct Call {
    bitsnap_work works[2];
    bitsnap_done done[2];
    u32 count;
    int encode;
};

static u32 *scratch, scratch_size = SCRATCH, memory_size = MEMORY;

static void run_group(void *argument)
{
    Call *call = (Call *)argument;
    (call->encode ? call->works->bins ? offload_encode_cells : offload_encode : offload_has_words(call->works) ? offload_decode_deltas : offload_decode)(
        call->works, call->done, call->count, scratch, scratch_size, memory_size);
}
static bitsnap_done run(const bitsnap_work *work, int encode)
{
    static u32 runs;
    const u32 count = 1 + (++runs % 4 == 0 && work->target != work->base); /* a base is there once */
    Call call = { { *work, *work }, { { 0xEEEEEEEE, 0 }, { 0xEEEEEEEE, 0 } }, count, encode };
    static int garbage;
    u32 *memory = (u32 *)memory_new(memory_size);
    memset(scratch, garbage += 77, scratch_size); /* what nobody has written is something else each time */
    memset(memory, garbage, memory_size);
    fiber_run_group(0, memory, run_group, &call);
    memory_free((u8 *)memory);
    return call.done[call.count - 1];
}
#endif

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
    *memory = memory_new((offset + size + 3) / 4 * 4);
    if (size) memcpy(*memory + offset, data, size);
    return *memory + offset;
}

/* The block by both. `b` has the base, and the flag that checks are ignored. */
static void both(const char *name, bitsnap *b, const bitsnap_info *info, const bitsnap_extent *x, const u8 *block)
{
    const unsigned width = bitsnap_width(info->dtype), base_width = b->base.data ? bitsnap_width(b->base.dtype) : 0;
    const size_t n = (size_t)x->count;
    u8 *kept[3], *expected = (u8 *)malloc(n * width + 1), *was = (u8 *)malloc(n * width + 1);
    const u8 *source = copy_of(block, (size_t)x->size, test_below(4), &kept[0]);
    u8 *target = copy_of(expected, n * width, 0, &kept[1]);
    bitsnap_work work;
    bitsnap_done done;
    bitsnap_status s;
    memset(&work, 0, sizeof work);
    memset(target, 0xA5, n * width);
    work.source = (uintptr_t)source;
    work.target = (uintptr_t)target;
    kept[2] = NULL;
    if (base_width) {
        const u8 *base = (const u8 *)b->base.data + x->first * base_width;
        work.role = b->base.dtype == info->dtype ? 1 : b->base.dtype == BITSNAP_F32 ? 2 : 3;
        if (work.role == 1 && (x->size + n) % 3 == 0) { /* in place */
            memcpy(target, base, n * width);
            work.base = work.target;
        } else {
            work.base = (uintptr_t)copy_of(base, n * base_width, 0, &kept[2]);
        }
        if ((x->size + n) % 5 == 0) work.flags = BITSNAP_WORK_TEST;
    }
    memcpy(was, target, n * width);
    work.first = x->first;
    work.header_check = info->header_check;
    work.size = (u32)x->size;
    work.count = (u32)n;
    work.head = x->form | (x->form == 1 ? (u32)((n + ((size_t)1 << info->block_log2) - 1) >> info->block_log2)
                                        : (u32)x->size - 4 - (info->checks ? 8 : 0) - (info->has_base ? 16 : 0)) << 8;
    work.dtype = (u8)info->dtype;
    work.bins = info->bins;
    work.columns = (u32)(info->columns < 0xFFFFFFFF ? info->columns : 0xFFFFFFFF);
    work.flags |= (u8)((info->checks ? BITSNAP_WORK_CHECKS : 0) | (b->flags & BITSNAP_IGNORE_CHECKS ? BITSNAP_WORK_IGNORE : 0));
    done = run(&work, 0);
    const bool stores = !done.status && !(work.flags & BITSNAP_WORK_TEST);
    CHECK(!work.role || stores || !memcmp(target, was, n * width), "%s: status %u, but something has been stored", name, done.status);
    s = bitsnap_block_decode(b, expected, x->first, n, info, x, block);
    CHECK(work.role != 3 || done.status == ST_DECLINED, "%s: an upcast is the host's", name);
    if (done.status == ST_DECLINED) declined++;
    else if (s) {
        /* which of two conditions is named may differ, but for those of one list */
        CHECK(done.status || b->error.rule == BITSNAP_R_INDEX_CHECK, "%s: the host says %s", name, bitsnap_message(b)); /* that is the hook's */
        CHECK(!(b->flags & BITSNAP_IGNORE_CHECKS) || done.status >> 8 == b->error.rule, "%s: R%u, the host says %s", name, done.status >> 8, bitsnap_message(b));
        refused++;
    } else {
        CHECK(done.status == 0, "%s: status %u, R%u", name, done.status & 255, done.status >> 8);
        CHECK(!stores || !memcmp(target, expected, n * width), "%s: other elements", name);
        equal++;
        forms[x->form]++;
        large += n > 65536 && work.role;
    }
    memory_free(kept[0]);
    memory_free(kept[1]);
    memory_free(kept[2]);
    free(expected);
    free(was);
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
    if (test_below(8) == 0) b.flags = BITSNAP_IGNORE_CHECKS;
    if (bitsnap_index_open(&b, &index, &info, &source)) return;
    if (info.has_base && (!base || base->count != info.count || base->dtype != info.base_dtype)) return;
    unsigned most = 40; /* of each frame */
    for (uint64_t at = 0; at < info.count && most--; at += x.count) {
        if (bitsnap_index_find(&b, &index, at, &x) || x.offset + x.size > size) return;
        if (x.count > (SMALL ? 700 : 1u << 20) || (SMALL && test_below(6))) continue;
        both(name, &b, &info, &x, frame + x.offset);
    }
}

/* ---- the corpus ---- */

static void one(corpus_entry *e)
{
    const bitsnap_base base = corpus_base(e);
    if (e->has[CORPUS_FRAME]) blocks(e->name, e->data[CORPUS_FRAME], e->size[CORPUS_FRAME], base.data ? &base : NULL);
}

static void corpus(void)
{
    static corpus_entry e;
    CHECK(corpus_each(&e, one), "docs/vectors and tests/format/corpus.txt; %s", e.name);
    CHECK(equal > (SMALL ? 20 : 150) && declined < equal / 2, "%lu equal, %lu left to the host", equal, declined);
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
    if (with == A_QUANTIZER) b->quantizer.bins = 1 + (unsigned)test_below(test_below(2) ? 300 : 2048);
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
    test_state = 1; /* What is made does not depend on the size of the corpus: `coverage` counts large blocks. */
    for (unsigned dtype = 1; dtype < 11; dtype++)
        for (int shape = 0; shape < DATA_SHAPES; shape++)
            for (int with = 0; with < WAYS; with++) {
                if (with >= A_QUANTIZER && (dtype < BITSNAP_F16 || dtype > BITSNAP_F32)) continue;
                const size_t n = 1 + test_below(SMALL ? 600 : test_below(4) ? 3000 : with == A_BASE ? 130000 : 70000);
                bitsnap b;
                bitsnap_info info;
                const size_t size = make(&b, &info, dtype, shape, n, with);
                snprintf(name, sizeof name, "%s of shape %d, %lu elements%s", bitsnap_dtype_name((bitsnap_dtype)dtype), shape, (unsigned long)n, ways[with]);
                blocks(name, frame, size, with == A_BASE ? &b.base : NULL);
            }
}

#ifndef OFFLOAD_OPENCL
/* Planes that do not fit the arena, nor the hashes of 8 bytes an element. */
static void little_memory(void)
{
    static_assert(sizeof(Group) + LEAST_ARENA <= LITTLE, "hashes");
    memory_size = LITTLE;
    for (unsigned dtype = BITSNAP_F8_E4M3; dtype <= BITSNAP_F64; dtype++) {
        bitsnap b;
        bitsnap_info info;
        size_t size;
        do size = make(&b, &info, dtype, dtype == BITSNAP_F64 ? DATA_NOISE : DATA_WEIGHTS, 60000, NOTHING);
        while (info.block_log2 < 16 || !info.checks);
        blocks(bitsnap_dtype_name((bitsnap_dtype)dtype), frame, size, NULL);
    }
    memory_size = MEMORY;
}
#endif

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
        const size_t most = SMALL ? 400 : 2500, size = make(&b, &info, dtype, (int)test_below(DATA_SHAPES),
                                                            (!SMALL && with == A_BASE && !test_below(16) ? 65000 : 1) + test_below(most), with);
        memset(&source, 0, sizeof source);
        source.data = frame;
        source.size = size;
        b.flags = BITSNAP_IGNORE_CHECKS;
        CHECK(!bitsnap_index_open(&b, &index, NULL, &source), "%s", bitsnap_message(&b));
        for (int i = 0; i < (SMALL ? 4 : 12); i++) {
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
    const unsigned long all = equal + refused + declined - start;
    /* few are left to the host: a twentieth, and the 12 of one frame, which decide where there are few rounds */
    CHECK(SMALL || (declined - none < 12 + all / 20 + 1 && (equal - good) * 10 < all * 9), "of %lu %lu left to the host, %lu equal", all, declined - none, equal - good);
}

/* A block of `elements`, the last of its frame: the codec's bytes, or left to the host (0). */
static int encode_both(bitsnap *b, unsigned dtype, u64 first, size_t n, const char *what)
{
    const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
    size_t size = 0;
    u8 *kept[2], head[64];
    bitsnap_encoder encoder;
    bitsnap_info info;
    bitsnap_work work;
    bitsnap_done done;
    memset(&encoder, 0, sizeof encoder);
    CHECK(!bitsnap_encoder_begin(b, &encoder, head, sizeof head, &size, first + n, (bitsnap_dtype)dtype), "%s", bitsnap_message(b));
    CHECK(!bitsnap_read_info(&info, head, size), "header");
    CHECK(!bitsnap_block_encode(b, frame, sizeof frame, &size, &info, elements, first, n), "%s: %s", what, bitsnap_message(b));
    memset(&work, 0, sizeof work);
    work.source = (uintptr_t)copy_of(elements, n * width, 0, &kept[0]);
    work.size = (u32)(n * width + 28);
    work.target = (uintptr_t)copy_of(elements, work.size, test_below(4), &kept[1]);
    work.first = first;
    work.header_check = info.header_check;
    work.count = (u32)n;
    work.dtype = (u8)dtype;
    work.level = (u8)b->level;
    work.bins = info.bins;
    work.columns = (u32)info.columns;
    work.flags = info.checks ? BITSNAP_WORK_CHECKS : 0;
    done = run(&work, 1);
    CHECK(done.status == 0 || done.status == ST_DECLINED, "status %u", done.status);
    if (!done.status)
        CHECK(done.size == size && !memcmp((const void *)(uintptr_t)work.target, frame, size), "%s, %lu elements of %s, level %d, %u cells, %u columns: other bytes",
              what, (unsigned long)n, bitsnap_dtype_name((bitsnap_dtype)dtype), b->level, info.bins, (unsigned)info.columns);
    memory_free(kept[0]);
    memory_free(kept[1]);
    return !done.status;
}

/* Blocks of floats. */
static void encodes(void)
{
    static const unsigned dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_F16, BITSNAP_F8_E4M3, BITSNAP_F8_E5M2 };
    unsigned made = 0, all = 0;
    for (unsigned i = 0; i < 5; i++)
        for (int shape = 0; shape < DATA_SHAPES; shape++)
            for (int level = 1; level <= 3; level++) {
                if (SMALL && test_below(10)) continue;
                const size_t n = SMALL ? 4096 + test_below(100) : test_below(3) ? 4096 + test_below(5000) : test_below(2) ? 32768 + test_below(20000) : 3900 + test_below(200);
                char what[40];
                bitsnap b = options();
                b.level = level;
                if (test_below(4) == 0) b.flags = BITSNAP_NO_CHECKS;
                data_fill(elements, n, dtypes[i], shape);
                snprintf(what, sizeof what, "shape %d", shape);
                const int device = encode_both(&b, dtypes[i], 0, n, what);
                CHECK(device || shape != DATA_WEIGHTS || level > 2 || n < 4096 || bitsnap_width((bitsnap_dtype)dtypes[i]) < 2,
                      "%lu weights of %s, level %d: left to the host", (unsigned long)n, bitsnap_dtype_name((bitsnap_dtype)dtypes[i]), level);
                made += (unsigned)device;
                all++;
            }
    if (!SMALL) { /* too many exponents for a sample */
        bitsnap b = options();
        const size_t n = 40000;
        b.level = BITSNAP_DEFAULT;
        for (size_t i = 0; i < n; i++) {
            const u32 x = (u32)(30 + i * 7 % 97) << 23 | (u32)test_below(1 << 23);
            memcpy(elements + 4 * i, &x, 4);
        }
        (void)encode_both(&b, BITSNAP_F32, 0, n, "many exponents");
    }
    fprintf(stderr, "%u of %u blocks are encoded, the others are left to the host\n", made, all);
}

/* Moments of a matrix: products of a row's and a column's size, and of noise; some of them, or none, are much larger. */
static void fill_moments(unsigned dtype, size_t n, size_t columns)
{
    static float of_column[8192];
    const unsigned octaves = dtype == BITSNAP_F16 ? 6 : test_below(2) ? 1 : (unsigned)test_below(40) + 1;
    const unsigned signs = (unsigned)test_below(2), least = test_below(2) ? 1 : 3000;
    const size_t large = test_below(2) ? n : (size_t)2 << test_below(13);
    float of_row = 1;
    for (size_t i = 0; i < columns; i++) of_column[i] = ldexpf(1 + (float)test_below(1000) / 1000, -(int)test_below(octaves));
    for (size_t i = 0; i < n; i++) {
        if (i % columns == 0) of_row = ldexpf(1 + (float)test_below(1000) / 1000, -(int)test_below(octaves));
        const float noise = ldexpf((float)(least + test_below(4000)) / 4000, test_below(large) ? 0 : (int)test_below(100));
        const float x = of_row * of_column[i % columns] * noise * (signs && test_below(2) ? -1 : 1);
        u32 bits;
        memcpy(&bits, &x, 4);
        if (dtype == BITSNAP_F16) bits = (bits >> 16 & 0x8000) | ((bits >> 23 & 255) < 113 ? bits >> 20 & 15 : ((bits & 0x7FFFFFFF) - 0x38000000) >> 13);
        data_store(elements + i * bitsnap_width((bitsnap_dtype)dtype), dtype == BITSNAP_BF16 ? bits >> 16 : bits, bitsnap_width((bitsnap_dtype)dtype));
    }
}

/* Two that are too large for a list of escapes; equal elements, which the host does; columns of four sizes, whose scales make a tree of one
 * node, and rows of as many, or equal ones; and real moments, where DATA says where they are. */
static void encodes_moments(void)
{
    static const char *const names[] = { "adam_m", "adam_v" };
    bitsnap two = options();
    two.level = BITSNAP_DEFAULT;
    two.quantizer.bins = 35;
    for (size_t i = 0; i < 3000; i++) {
        const float x = ldexpf(1 + (float)test_below(100) / 100, i % 1500 ? 0 : 100);
        memcpy(elements + 4 * i, &x, 4);
    }
    CHECK(encode_both(&two, BITSNAP_F32, 0, 3000, "two large ones"), "two large ones are left to the host");
    for (unsigned k = 0; k < 12; k++) {
        bitsnap b = two;
        b.columns = 100;
        b.flags = BITSNAP_NO_CHECKS;
        for (unsigned i = 0; i < 6000; i++) {
            const float x = k % 3 ? (float)((1000 + test_below(100)) << i % 4 << i / 100 % (k % 3 > 1 ? 4 : 1)) : 1;
            memcpy(elements + 4 * i, &x, 4);
        }
        CHECK(encode_both(&b, BITSNAP_F32, 0, 6000, "sizes") == (k % 3 > 0), "%u kinds of rows", k % 3);
    }
    for (int i = 0; i < 2; i++) {
        char path[500];
        uint64_t head = 0;
        bitsnap b = options();
        snprintf(path, sizeof path, "%.400s/%s-1000.safetensors", getenv("DATA") ? getenv("DATA") : ".", names[i]);
        FILE *f = fopen(path, "rb");
        if (!f) continue;
        CHECK(fread(&head, 8, 1, f) == 1 && !fseek(f, (long)head + (5 << 20), SEEK_SET) && fread(elements, 4, 20000, f) == 20000, "%s", path);
        fclose(f);
        b.level = 1 + i;
        b.quantizer.bins = 35;
        b.columns = i ? 192 : 0;
        CHECK(encode_both(&b, BITSNAP_F32, 0, 20000, names[i]), "%s is left to the host", names[i]);
    }
}

/* Blocks that are quantized. */
static void encodes_cells(void)
{
    static const unsigned dtypes[] = { BITSNAP_F32, BITSNAP_F32, BITSNAP_BF16, BITSNAP_F16 };
    const unsigned rounds = getenv("ROUNDS") ? (unsigned)strtoul(getenv("ROUNDS"), NULL, 10) / 8 : 400;
    unsigned made = 0, all = 0;
    for (; all < (SMALL ? 4 : rounds); all++) {
        const unsigned dtype = dtypes[test_below(4)];
        const int shape = (int)test_below(3 * DATA_SHAPES);
        const size_t n = SMALL ? 2 + test_below(500) : test_below(4) == 0 ? 2 + test_below(70) : test_below(6) ? 2 + test_below(9000) : 16000 + test_below(49537);
        const size_t columns = test_below(2) ? 0 : 16 + test_below(test_below(2) ? 100 : n / 4 + 1);
        char what[40];
        bitsnap b = options();
        b.level = 1 + (int)test_below(2);
        b.quantizer.bins = 1 + (unsigned)test_below(test_below(3) ? 128 : 2048);
        b.columns = columns;
        b.block_log2 = 16;
        if (test_below(4) == 0) b.flags = BITSNAP_NO_CHECKS;
        if (shape < DATA_SHAPES) data_fill(elements, n, dtype, shape);
        else fill_moments(dtype, n, columns && columns <= 8192 ? columns : 100);
        snprintf(what, sizeof what, "shape %d", shape);
        made += (unsigned)encode_both(&b, dtype, 65536 * test_below(3), n, what);
    }
    CHECK(4 * made >= all, "%u of %u", made, all);
    fprintf(stderr, "%u of %u quantized blocks are encoded, the others are left to the host\n", made, all);
}

#ifndef OFFLOAD_OPENCL
/* Too little memory of the group's own, or for its symbols: the host's. */
static void without_room(void)
{
    static const struct { u32 memory, scratch; int enough; } rooms[] = {
        { 0, SCRATCH, 0 }, { sizeof(Group) + (12u << 10), SCRATCH, 0 }, { MEMORY, 2 * MAX_ELEMENTS, 0 }, { MEMORY, SCRATCH, 1 }
    };
    u32 *const all = scratch;
    for (const auto &room : rooms)
        for (unsigned cells = 0; cells <= 35; cells += 35) {
            const unsigned long were_equal = equal, left = declined;
            bitsnap b = options(), one;
            bitsnap_info info;
            size_t size;
            scratch_size = room.scratch;
            scratch = (u32 *)memory_new(scratch_size);
            memory_size = room.memory;
            b.level = BITSNAP_DEFAULT;
            b.quantizer.bins = cells;
            data_fill(elements, 65536, BITSNAP_F32, DATA_WEIGHTS);
            CHECK(encode_both(&b, BITSNAP_F32, 0, 65536, "room") == room.enough, "%u bytes, and %u", memory_size, scratch_size);
            do size = make(&one, &info, cells ? BITSNAP_F32 : BITSNAP_I32, DATA_WEIGHTS, 65536, cells ? A_QUANTIZER : NOTHING);
            while (info.block_log2 < 16);
            blocks("room", frame, size, NULL);
            CHECK(room.enough ? equal > were_equal : declined > left && equal == were_equal, "%u bytes, and %u", memory_size, scratch_size);
            memory_free((u8 *)scratch);
        }
    scratch = all;
}
#endif

/* Of more bytes than 32 bits count, or than a block may have: the host's. */
static void too_long(void)
{
    static const u8 block[8] = { 1, 0, 64 }, bytes[1 << 20] = { 0 };
    u8 *kept;
    bitsnap_work work;
    bitsnap_done done;
    memset(&work, 0, sizeof work);
    work.source = work.target = (uintptr_t)copy_of(block, sizeof block, 0, &kept);
    work.size = sizeof block;
    work.count = 1u << 30;
    work.head = 1 | 16384 << 8;
    work.dtype = BITSNAP_F32;
    done = run(&work, 0);
    CHECK(done.status == ST_DECLINED, "status %u", done.status);
    memory_free(kept);
    memset(&work, 0, sizeof work);
    work.source = work.target = (uintptr_t)copy_of(bytes, sizeof bytes, 0, &kept);
    work.size = sizeof bytes;
    work.count = 65536;
    work.head = 3 | (u32)(sizeof bytes - 12) << 8;
    memcpy((void *)(uintptr_t)work.source, &work.head, 4);
    work.dtype = BITSNAP_F32;
    work.flags = BITSNAP_WORK_CHECKS;
    done = run(&work, 0);
    CHECK(done.status == ST_DECLINED, "status %u", done.status);
    memory_free(kept);
}

/* Has everything been there? */
static void coverage(void)
{
    for (unsigned form = 0; form < 10; form++) CHECK(SMALL || forms[form] > 4, "only %lu blocks of form %u", forms[form], form);
    CHECK(SMALL || large > 2, "only %lu large blocks of deltas", large);
#ifdef OFFLOAD_RACES
    CHECK(!races_report(BARRIERS), "races, or barriers without use");
#endif
}

int main(void)
{
#ifdef OFFLOAD_OPENCL
    const cl_int e = device_begin();
    test_program = "offload as OpenCL";
    CHECK(!e, "OpenCL: error %d", e);
    if (e) return 1;
#else
    test_program = "offload";
    scratch = (u32 *)memory_new(SCRATCH);
#ifdef OFFLOAD_RACES
    test_program = "offload, races";
    races_watch(heap, HEAP);
    fiber_passed = races_passed;
#endif
#endif
    RUN(encodes);
    RUN(too_long);
    RUN(corpus);
    RUN(made_up);
#ifndef OFFLOAD_OPENCL
    RUN(little_memory);
#endif
    RUN(damaged);
    RUN(encodes_cells);
    if (!SMALL) RUN(encodes_moments);
#ifndef OFFLOAD_OPENCL
    RUN(without_room);
#endif
    RUN(coverage);
    fprintf(stderr, "%lu blocks are equal, %lu are refused, %lu are left to the host\n", equal, refused, declined);
    return test_failures != 0;
}
