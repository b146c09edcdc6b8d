/* docs/examples/offload/opencl.h on the first OpenCL device, with kernels that any compiler is quick with: they copy STORED blocks, and
 * leave the others to the host. offload.cpp tests the real kernels. */
#define BITSNAP_OFFLOAD
#include "tests/unit/data.h"
#include "docs/examples/offload/opencl.h"

#define N 40000
#define FRAMES 8

static const char kernels[] =
    "#include \"prelude.h\"\n"
    "__kernel void offload_decode(KERNEL_PARAMETERS)\n"
    "{\n"
    "    u32 i, k;\n"
    "    for (i = GROUP; i < count; i += GROUPS) {\n"
    "        const u32 body = (works[i].flags & BITSNAP_WORK_CHECKS ? 12 : 4) + (works[i].role ? 16 : 0), stored = (works[i].head & 255) == 0;\n"
    "        GLOBAL const u8 *from = (GLOBAL const u8 *)(size_t)works[i].source + body;\n"
    "        for (k = THREAD; stored && k < works[i].size - body; k += THREADS) ((GLOBAL u8 *)(size_t)works[i].target)[k] = from[k];\n"
    "        done[i].status = stored ? ST_OK : ST_DECLINED;\n"
    "    }\n"
    "}\n"
    "__kernel void offload_decode_deltas(KERNEL_PARAMETERS)\n"
    "{\n"
    "    for (u32 i = GROUP; i < count; i += GROUPS) done[i].status = ST_DECLINED;\n"
    "}\n"
    "__kernel void offload_encode(KERNEL_PARAMETERS)\n"
    "{\n"
    "    for (u32 i = GROUP; i < count; i += GROUPS) done[i].status = ST_DECLINED;\n"
    "}\n"
    "__kernel void offload_encode_cells(KERNEL_PARAMETERS)\n"
    "{\n"
    "    for (u32 i = GROUP; i < count; i += GROUPS) done[i].status = ST_DECLINED;\n"
    "}\n";

static cl_context context;
static cl_device_id id;
static offload_opencl opencl;
static bitsnap_offload device;
static uint8_t workspace[64 << 20], elements[FRAMES][4 * N], frames[FRAMES][5 * N];

static void *shared(size_t size) { return clSVMAlloc(context, CL_MEM_READ_WRITE, size, 0); }
static void copied(void *to, const void *from, size_t size)
{
    CHECK(!clEnqueueSVMMemcpy(opencl.queue[0].queue, CL_TRUE, to, from, size, 0, NULL, NULL), "copy");
}

/* Frames of every other kind, to the device and back, and with `with_base` in place. */
static void passes(int with_base)
{
    static uint8_t base[4 * N], result[4 * N], made[5 * N];
    static const unsigned dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F32, BITSNAP_I16 };
    bitsnap_request requests[FRAMES];
    bitsnap b;
    unsigned i;
    memset(requests, 0, sizeof requests);
    for (i = 0; i < FRAMES; i++) {
        const unsigned dtype = dtypes[i % 4], width = bitsnap_width((bitsnap_dtype)dtype);
        data_fill(elements[i], N, dtype, (int)test_below(DATA_SHAPES));
        memset(&b, 0, sizeof b);
        b.workspace = workspace;
        b.workspace_size = sizeof workspace;
        b.block_log2 = with_base ? 16 : 12;
        memcpy(base, elements[i], N * width);
        base[width * 100]++;
        if (with_base) {
            b.base.data = base;
            b.base.count = N;
            b.base.dtype = (bitsnap_dtype)dtype;
        }
        requests[i].size = sizeof frames[i];
        CHECK(!bitsnap_encode(&b, frames[i], sizeof frames[i], &requests[i].size, elements[i], N, (bitsnap_dtype)dtype), "%s", bitsnap_message(&b));
        requests[i].frame = frames[i];
        requests[i].elements = (uint64_t)(size_t)shared(N * width);
        requests[i].count = N;
        requests[i].dtype = (bitsnap_dtype)dtype;
        if (with_base) copied((void *)(size_t)requests[i].elements, base, N * width);
    }
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    CHECK(!(with_base ? bitsnap_offload_apply : bitsnap_offload_decode)(&b, &device, requests, FRAMES), "%s; OpenCL: error %d", bitsnap_message(&b), opencl.error);
    for (i = 0; i < FRAMES; i++) {
        const unsigned width = bitsnap_width(requests[i].dtype);
        copied(result, (void *)(size_t)requests[i].elements, N * width);
        CHECK(!memcmp(result, elements[i], N * width), "frame %u", i);
        b.block_log2 = 12;
        requests[i].destination = made;
        requests[i].size = sizeof made;
        CHECK(!bitsnap_offload_encode(&b, &device, &requests[i], 1), "%s; OpenCL: error %d", bitsnap_message(&b), opencl.error);
        CHECK(with_base || !memcmp(made, frames[i], requests[i].size), "encoded frame %u", i);
        clSVMFree(context, (void *)(size_t)requests[i].elements);
    }
}
static void decodes(void) { passes(0); }
static void applies(void) { passes(1); }

int main(void)
{
    cl_platform_id platform;
    cl_int e = clGetPlatformIDs(1, &platform, NULL);
    test_program = "offload_opencl";
    if (!e) e = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &id, NULL);
    if (e) {
        SKIP("opencl.h", "needs a device, as pocl-opencl-icd is");
        return 0;
    }
    context = clCreateContext(NULL, 1, &id, NULL, NULL, &e);
    if (!e) e = offload_opencl_begin(&opencl, &device, context, id, kernels, "-I docs/examples/offload", 1 << 20, 8 << 20);
    CHECK(!e, "OpenCL: error %d", e);
    if (e) return 1;
    RUN(decodes);
    RUN(applies);
    offload_opencl_end(&opencl);
    clReleaseContext(context);
    return test_failures != 0;
}
