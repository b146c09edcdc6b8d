/* A hostile delta: decoding with bases of every size, applying in place, merging and inverting touch nothing but their
 * buffers, of which the workspace is as small as is said; what is refused is not applied; what is merged does what both do;
 * all tables of kernels agree.
 *   u8      bit 0: the base fits the frame; bits 1..3: which base; bit 4: two frames follow, else one; bit 5: checks are
 *           not heeded; bits 6 and 7: workers, less one
 *   u16     size of the first frame, if there are two */
#include "fuzz.h"

#define MOST (1u << 18)

/* Small enough to be tried often: a few cells. */
static int is_small(const bitsnap_info *info)
{
    return info->count <= MOST / (info->width == 1 ? 1 : 8) && info->block_log2 <= 18;
}

/* A parallel loop in one thread: from the last task to the first, by all workers in turn. */
static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    while (count--) task(argument, count, (unsigned)(count % *(const unsigned *)context));
}

/* The workspace is what is asked for and no byte more; kept, as long as the same is asked for. */
static void take_workspace(bitsnap *b, int algebra, unsigned block_log2, unsigned workers)
{
    static void *memory[2];
    static size_t sizes[2];
    const size_t size = bitsnap_workspace_delta(block_log2, workers);
    if (size != sizes[algebra]) {
        free(memory[algebra]);
        memory[algebra] = malloc(size);
        sizes[algebra] = size;
    }
    b->workspace = memory[algebra];
    b->workspace_size = size;
    REQUIRE(b->workspace);
}

static uint8_t *elements(size_t bytes, unsigned kind)
{
    uint8_t *p = (uint8_t *)malloc(bytes ? bytes : 1);
    size_t i;
    REQUIRE(p);
    for (i = 0; i < bytes; i++) p[i] = (uint8_t)(kind == 0 ? 0 : kind == 1 ? i * 37 >> 3 : i % 2 ? 0x3C + (i * i >> 5 & 3) : i * 11);
    return p;
}

static void apply(const bitsnap *like, const uint8_t *base, uint64_t count, bitsnap_dtype dtype, const uint8_t *frame, size_t size,
                  const uint8_t *expected)
{
    bitsnap b = *like;
    const size_t bytes = (size_t)count * bitsnap_width(dtype);
    uint8_t *live = fuzz_copy(base, bytes);
    const bitsnap_status status = bitsnap_apply(&b, live, count, dtype, frame, size);
    if (status) REQUIRE(!memcmp(live, base, bytes));
    else if (expected) REQUIRE(!memcmp(live, expected, bytes));
    if (!status) REQUIRE(bitsnap_apply(&b, live, count, dtype, frame, size) == BITSNAP_OK);
    free(live);
}

/* `both` was made of a delta from `base` to `between` and of `second`: if that leads on from there, it leads to the same. */
static void merged(const bitsnap *like, const uint8_t *base, const uint8_t *between, const uint8_t *second, size_t second_size,
                   const uint8_t *both, size_t size)
{
    bitsnap b = *like;
    bitsnap_info info;
    uint8_t *one, *other;
    size_t bytes;
    REQUIRE(bitsnap_read_info(&info, second, second_size) == BITSNAP_OK);
    bytes = (size_t)info.count * info.width;
    one = elements(bytes, 1);
    other = elements(bytes, 2);
    b.base.data = between;
    b.base.count = info.count;
    b.base.dtype = info.dtype;
    if (!bitsnap_decode(&b, one, info.count, info.dtype, second, second_size)) {
        b.base.data = base;
        b.base.dtype = like->base.dtype;
        REQUIRE(bitsnap_decode(&b, other, info.count, info.dtype, both, size) == BITSNAP_OK && !memcmp(one, other, bytes));
    }
    free(one);
    free(other);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const bitsnap_kernels *k;
    bitsnap b;
    bitsnap_info info;
    uint8_t *frame, *second = NULL, *base, *out[2] = { NULL, NULL };
    size_t second_size = 0, bytes, made;
    bitsnap_status status = BITSNAP_OK, again;
    unsigned t, shape, workers;
    if (size < 3) return 0;
    shape = data[0];
    workers = 1 + (shape >> 6);
    if (shape & 16) {
        const size_t wanted = data[1] | (size_t)data[2] << 8, first = wanted < size - 3 ? wanted : size - 3;
        second_size = size - 3 - first;
        second = fuzz_copy(data + 3 + first, second_size);
        size = first;
    } else {
        size -= 3;
    }
    frame = fuzz_copy(data + 3, size);
    memset(&info, 0, sizeof info);
    memset(&b, 0, sizeof b);
    if (bitsnap_read_info(&info, frame, size) == BITSNAP_OK && info.has_base && is_small(&info)) {
        const unsigned base_width = bitsnap_width(info.base_dtype);
        take_workspace(&b, 0, info.block_log2, workers);
        b.workers = workers;
        b.run = run;
        b.run_context = &workers;
        base = elements((size_t)info.count * base_width, shape >> 1 & 7);
        b.base.data = base;
        b.base.count = shape & 1 ? info.count : info.count + 1;
        b.base.dtype = info.base_dtype;
        b.flags = shape & 32 ? BITSNAP_IGNORE_CHECKS : 0;
        bytes = (size_t)info.count * info.width;
        for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
            b.kernels = k;
            free(out[t > 0]);
            out[t > 0] = elements(bytes, 1);
            again = bitsnap_decode(&b, out[t > 0], info.count, info.dtype, frame, size);
            if (!t) status = again;
            REQUIRE(again == status);
            if (t && !status) REQUIRE(!memcmp(out[0], out[1], bytes));
        }
        b.flags = 0;
        if (info.base_dtype == info.dtype) apply(&b, base, info.count, info.dtype, frame, size, status ? NULL : out[0]);
        free(out[1]);
        out[1] = (uint8_t *)malloc(bitsnap_bound(info.count, info.dtype));
        REQUIRE(out[1]);
        take_workspace(&b, 1, info.block_log2, workers < 2 ? 2 : workers);
        for (t = 0; t < 2; t++) { /* with the base, and without */
            again = bitsnap_invert(&b, out[1], bitsnap_bound(info.count, info.dtype), &made, frame, size);
            if (!again && !status && !(shape & 32) && info.base_dtype == info.dtype) { /* the way back leads to the base */
                bitsnap c = b;
                uint8_t *back = elements(bytes, 2);
                c.base.data = out[0];
                c.base.count = info.count;
                REQUIRE(bitsnap_decode(&c, back, info.count, info.dtype, out[1], made) == BITSNAP_OK && !memcmp(back, base, bytes));
                free(back);
            }
            if (second && !bitsnap_merge(&b, out[1], bitsnap_bound(info.count, info.dtype), &made, frame, size, second, second_size) &&
                !status && !(shape & 32))
                merged(&b, base, out[0], second, second_size, out[1], made);
            b.base.data = NULL;
        }
        free(base);
    }
    free(out[0]);
    free(out[1]);
    free(frame);
    free(second);
    return 0;
}

/* Seeds: deltas of small tensors against the bases above, alone and two at a time. */
size_t fuzz_delta_seed(unsigned number, uint8_t *to, size_t room);
size_t fuzz_delta_seed(unsigned number, uint8_t *to, size_t room)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_I8, BITSNAP_F64, BITSNAP_F16 };
    const int few = number >= 90 && number < 100; /* changes, in one cell or two: so few that they stand one by one */
    const int cells = number >= 100;              /* several of one frame with several of another, of the same size or not */
    const bitsnap_dtype dtype = cells ? BITSNAP_I8 : dtypes[number % 5];
    const unsigned width = bitsnap_width(dtype), kind = cells ? 1 : number / 5 % 3, every = number / 30 % 3;
    const int two = cells || number / 15 % 2;
    const size_t n = cells ? 250000 : !few ? 40 + 61 * (number % 7) : width == 1 ? 65536 + 900 : 700 + 61 * (number % 7);
    const size_t bytes = n * width;
    uint8_t *base = elements(bytes, kind), *result = fuzz_copy(base, bytes), *third;
    size_t first = 0, second = 0, i;
    bitsnap b;
    memset(&b, 0, sizeof b);
    if (number < 108) {
        if (few) result[number * 7 % bytes]++, result[bytes - width * (number % 9 + 1)]++;
        for (i = 0; i < bytes && cells; i++) result[i] = (uint8_t)(result[i] + 1 + (i >> 16));
        for (i = 0; i < bytes && every < 2 && !few && !cells; i += width * (every ? 1u : 9u))
            result[i] = (uint8_t)(result[i] + (i % 5 ? 1 : i));
        third = fuzz_copy(result, bytes);
        for (i = cells ? 0 : bytes / 2; i < (cells ? bytes : bytes / 2 + 1); i++) third[i]++;
        b.workspace_size = bitsnap_workspace_delta(18, 1);
        b.workspace = malloc(b.workspace_size);
        b.base.data = base;
        b.base.count = n;
        b.base.dtype = dtype;
        b.flags = number & 1 ? BITSNAP_SELF_CONTAINED : 0;
        b.block_log2 = 16;
        b.level = few ? BITSNAP_FAST : BITSNAP_DEFAULT;
        REQUIRE(b.workspace && bitsnap_encode(&b, to + 3, room - 3, &first, result, n, dtype) == BITSNAP_OK);
        b.base.data = result;
        if (number % 7 == 6) b.block_log2 = 18; /* two that cannot be merged */
        if (two) REQUIRE(bitsnap_encode(&b, to + 3 + first, room - 3 - first, &second, third, n, dtype) == BITSNAP_OK);
        to[0] = (uint8_t)(1 | kind << 1 | (two ? 16 : 0) | (number & 3) << 6);
        to[1] = (uint8_t)first;
        to[2] = (uint8_t)(first >> 8);
        first += 3;
        free(b.workspace);
        free(third);
    }
    free(base);
    free(result);
    return first + second;
}
