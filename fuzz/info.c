/* bitsnap_read_info and bitsnap_read_block on any bytes. They read only the source, and their results are consistent. */
#include "fuzz.h"

#define MOST 100000u /* most elements of frames whose blocks are read */

/* The base of the seeds: the upper bytes of elements are of a few kinds only. */
static uint8_t *base_of(size_t n, unsigned width)
{
    uint8_t *p = fuzz_room(n * width);
    uint64_t x = 1;
    size_t i;
    for (i = 0; i < n * width; i++) {
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        p[i] = (uint8_t)(i % width + 1 == width ? 0x38 + (x >> 60) % 8 : x >> 56);
    }
    return p;
}

/* Reads every block, with a base or without one, and ignores checks. */
static void look(const bitsnap_info *info, const uint8_t *source, size_t size, int with_base)
{
    const unsigned taken = fuzz_taken;
    bitsnap b;
    bitsnap_block block;
    bitsnap_status status = BITSNAP_OK;
    uint64_t first = 0, at = info->header_size;
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, info->workspace_size);
    b.flags = BITSNAP_IGNORE_CHECKS;
    if (with_base) {
        b.base.data = base_of((size_t)info->count, bitsnap_width(info->base_dtype));
        b.base.count = info->count;
        b.base.dtype = info->base_dtype;
    }
    while (!status && first < info->count) {
        status = bitsnap_read_block(&b, &block, info, first, source + at, size - (size_t)at);
        if (!status) {
            const uint64_t cell = UINT64_C(1) << info->block_log2;
            uint64_t bytes = 0, elements = 0;
            unsigned i;
            REQUIRE(block.elements && block.elements <= info->count - first && block.size >= 4 && block.size <= size - at);
            REQUIRE(block.elements % cell == 0 || first + block.elements == info->count);
            REQUIRE(block.parts <= 8 && block.classes <= 8 && (block.form == 5) == (block.classes > 0));
            REQUIRE(block.parts || block.form != 5 || (block.classes > 1 && !with_base));
            for (i = 0; i < block.parts; i++) {
                REQUIRE(block.part[i].changed <= block.part[i].elements && block.part[i].kind < 256);
                bytes += block.part[i].size;
                elements += block.part[i].elements;
            }
            REQUIRE(bytes <= block.size && (!block.classes || !block.parts || elements == block.elements));
            first += block.elements;
            at += block.size;
        } else {
            REQUIRE(b.error.status == status && status != BITSNAP_E_ARGUMENT && status != BITSNAP_E_WORKSPACE);
        }
    }
    fuzz_drop(taken);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;
    bitsnap_info info;
    fuzz_drop(0);
    copy = fuzz_copy(data, size);
    if (bitsnap_read_info(&info, copy, size) == BITSNAP_OK) {
        REQUIRE(bitsnap_width(info.dtype) == info.width && info.width);
        REQUIRE(info.count <= UINT64_C(1) << 48 && info.elements_size == info.count * info.width);
        REQUIRE(info.block_log2 >= 6 && info.block_log2 <= 20 && info.header_size <= size && info.frame_size <= size);
        REQUIRE(info.worker_size && info.workspace_size && info.workspace_size <= fuzz_workspace_size(20, 1));
        REQUIRE(info.worker_size <= fuzz_workspace_size(20, 2) - info.workspace_size);
        if (info.count && info.count <= MOST) {
            look(&info, copy, size, 0);
            if (info.has_base) look(&info, copy, size, 1);
        }
    }
    return 0;
}

/* Deltas of each dtype, few and many elements changed, smaller ones more often, so that there are several classes; then frames
 * without a base. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    const bitsnap_dtype dtype = (bitsnap_dtype)(1 + number % 11);
    const unsigned width = bitsnap_width(dtype), shape = number / 11;
    const size_t n = 4000 / width;
    uint8_t *was, *is;
    uint64_t x = number + 1;
    size_t size, i;
    bitsnap b;
    if (shape > 5) return number < 90 ? fuzz_seed_frame(number, to, room) : 0;
    fuzz_drop(0);
    was = base_of(n, width);
    is = fuzz_copy(was, n * width);
    memset(&b, 0, sizeof b);
    fuzz_workspace(&b, fuzz_workspace_size(16, 1));
    for (i = 0; i < n; i++) {
        const unsigned small = 7 - was[i * width + width - 1] % 8u;
        x = x * UINT64_C(6364136223846793005) + 1442695040888963407u;
        is[i * width] = (uint8_t)(is[i * width] + (x >> 40) % (1u + (small * small >> (5 - shape))));
    }
    if (shape < 4) {
        b.base.data = was;
        b.base.count = n;
        b.base.dtype = dtype;
        if (shape == 1) b.flags |= BITSNAP_SELF_CONTAINED;
    }
    b.level = BITSNAP_BEST;
    REQUIRE(bitsnap_encode(&b, to, room, &size, is, n, dtype) == BITSNAP_OK);
    return size;
}
