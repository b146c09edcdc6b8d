/* opencl.h - a bitsnap_offload for OpenCL devices with shared virtual memory (2.0 or later; coarse buffers, which all of them
 * have): two queues, staging memory, and the kernels of decode.h, encode.h and quantize.h. C99 or C++; define BITSNAP_OFFLOAD
 * before bitsnap.h. MIT licence, see bitsnap.h.
 *
 *     offload_opencl c;
 *     bitsnap_offload o;
 *     if (offload_opencl_begin(&c, &o, context, device, "#include \"quantize.h\"\n", "-I docs/examples/offload",
 *                              64 << 20, 256 << 20)) ...
 *     bitsnap_offload_decode(&b, &o, requests, count);       elements and bases: memory of clSVMAlloc
 *     offload_opencl_end(&c);
 *
 * A program that carries its kernels has them as text: cc -E -P -D__OPENCL_VERSION__ docs/examples/offload/quantize.h */
#ifndef OFFLOAD_OPENCL_H
#define OFFLOAD_OPENCL_H

#ifndef CL_TARGET_OPENCL_VERSION
#define CL_TARGET_OPENCL_VERSION 200
#endif
#include <CL/cl.h>

#include <stdlib.h>
#include <string.h>

#include "sizes.h"

enum { OFFLOAD_OPENCL_DECODE, OFFLOAD_OPENCL_DELTAS, OFFLOAD_OPENCL_ENCODE, OFFLOAD_OPENCL_CELLS, OFFLOAD_OPENCL_KERNELS };

typedef struct offload_opencl_queue {
    cl_command_queue queue;
    cl_mem works, done, scratch;
    size_t capacity;
} offload_opencl_queue;

typedef struct offload_opencl {
    offload_opencl_queue queue[2];
    cl_context context;
    cl_program program;
    cl_kernel kernel[OFFLOAD_OPENCL_KERNELS];
    void *host, *device;
    size_t scratch_size;   /* of each queue */
    cl_uint groups;        /* most groups of a launch */
    cl_int error;          /* of the failed call */
} offload_opencl;

static int offload_opencl_failed(offload_opencl *c, cl_int error)
{
    if (error) c->error = error;
    return error != CL_SUCCESS;
}

static int offload_opencl_upload(void *context, unsigned queue, uint64_t to, const void *from, size_t size)
{
    offload_opencl *c = (offload_opencl *)context;
    const cl_command_queue q = c->queue[queue].queue;
    return offload_opencl_failed(c, clEnqueueSVMMemcpy(q, CL_FALSE, (void *)(size_t)to, from, size, 0, NULL, NULL));
}
static int offload_opencl_download(void *context, unsigned queue, void *to, uint64_t from, size_t size)
{
    offload_opencl *c = (offload_opencl *)context;
    const cl_command_queue q = c->queue[queue].queue;
    return offload_opencl_failed(c, clEnqueueSVMMemcpy(q, CL_FALSE, to, (const void *)(size_t)from, size, 0, NULL, NULL));
}

static void offload_opencl_free_works(offload_opencl_queue *q)
{
    if (q->works) clReleaseMemObject(q->works);
    if (q->done) clReleaseMemObject(q->done);
    q->works = q->done = NULL;
    q->capacity = 0;
}

static int offload_opencl_launch(offload_opencl *c, unsigned queue, cl_kernel kernel, cl_uint scratch, const bitsnap_work *works,
                                 bitsnap_done *done, size_t count)
{
    offload_opencl_queue *q = &c->queue[queue];
    const cl_uint n = (cl_uint)count, arena = LARGE_ARENA;
    const size_t warp = 32;
    size_t groups = c->scratch_size / (scratch + arena), items, used = 0, i;
    const void **pointers;
    cl_int e = CL_SUCCESS;
    if (count > q->capacity) {
        offload_opencl_free_works(q);
        q->works = clCreateBuffer(c->context, CL_MEM_READ_ONLY, count * sizeof *works, NULL, &e);
        if (!e) q->done = clCreateBuffer(c->context, CL_MEM_WRITE_ONLY, count * sizeof *done, NULL, &e);
        if (offload_opencl_failed(c, e)) return 1;
        q->capacity = count;
    }
    if (groups > c->groups) groups = c->groups;
    if (groups > count) groups = count;
    if (!groups) return 0; /* too little scratch memory: left to the host */
    items = groups * warp;
    pointers = (const void **)malloc(3 * count * sizeof *pointers); /* all memory that the kernel accesses */
    if (!pointers) return offload_opencl_failed(c, CL_OUT_OF_HOST_MEMORY);
    for (i = 0; i < count; i++) {
        pointers[used++] = (const void *)(size_t)works[i].source;
        if (works[i].size) pointers[used++] = (const void *)(size_t)works[i].target; /* without a size there is no target */
        if (works[i].base) pointers[used++] = (const void *)(size_t)works[i].base;
    }
    e = clSetKernelExecInfo(kernel, CL_KERNEL_EXEC_INFO_SVM_PTRS, used * sizeof *pointers, (const void *)pointers);
    free((void *)pointers);
    if (!e) e = clSetKernelArg(kernel, 0, sizeof q->works, &q->works);
    if (!e) e = clSetKernelArg(kernel, 1, sizeof q->done, &q->done);
    if (!e) e = clSetKernelArg(kernel, 2, sizeof n, &n);
    if (!e) e = clSetKernelArg(kernel, 3, sizeof q->scratch, &q->scratch);
    if (!e) e = clSetKernelArg(kernel, 4, sizeof scratch, &scratch);
    if (!e) e = clSetKernelArg(kernel, 5, sizeof arena, &arena);
    if (!e) e = clEnqueueWriteBuffer(q->queue, q->works, CL_FALSE, 0, count * sizeof *works, works, 0, NULL, NULL);
    if (!e) e = clEnqueueNDRangeKernel(q->queue, kernel, 1, NULL, &items, &warp, 0, NULL, NULL);
    if (!e) e = clEnqueueReadBuffer(q->queue, q->done, CL_FALSE, 0, count * sizeof *done, done, 0, NULL, NULL);
    if (!e) e = clFlush(q->queue);
    return offload_opencl_failed(c, e);
}
static int offload_opencl_decode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    offload_opencl *c = (offload_opencl *)context;
    int words = 0;
    size_t i;
    for (i = 0; i < count; i++) words |= offload_has_words(&works[i]);
    return offload_opencl_launch(c, queue, c->kernel[words ? OFFLOAD_OPENCL_DELTAS : OFFLOAD_OPENCL_DECODE],
                                 offload_scratch_of(works, count) - LARGE_ARENA, works, done, count);
}
static int offload_opencl_encode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    offload_opencl *c = (offload_opencl *)context;
    const cl_uint scratch = offload_scratch_to_encode(works, count);
    return offload_opencl_launch(c, queue, c->kernel[scratch > 6 * MAX_ELEMENTS ? OFFLOAD_OPENCL_CELLS : OFFLOAD_OPENCL_ENCODE],
                                 scratch, works, done, count);
}

static int offload_opencl_wait(void *context, unsigned queue)
{
    offload_opencl *c = (offload_opencl *)context;
    return offload_opencl_failed(c, clFinish(c->queue[queue].queue));
}

static void offload_opencl_end(offload_opencl *c)
{
    unsigned k;
    for (k = 0; k < 2; k++) {
        if (c->queue[k].queue) {
            clFinish(c->queue[k].queue);
            clReleaseCommandQueue(c->queue[k].queue);
        }
        offload_opencl_free_works(&c->queue[k]);
        if (c->queue[k].scratch) clReleaseMemObject(c->queue[k].scratch);
    }
    for (k = 0; k < OFFLOAD_OPENCL_KERNELS; k++)
        if (c->kernel[k]) clReleaseKernel(c->kernel[k]);
    if (c->program) clReleaseProgram(c->program);
    if (c->device) clSVMFree(c->context, c->device);
    free(c->host);
    memset(c, 0, sizeof *c);
}

/* Builds the program with the kernels, and allocates `staging` bytes of the host, `staging` bytes of the device, and `scratch`
 * bytes of the device. Each queue gets half of these. A group takes 416 to 608 KiB of scratch, 1056 for a block with a base,
 * QUANTIZED or SCALED; to encode 544, or quantized 864. `source` and `options`: see clBuildProgram; the source must be of the
 * same version as bitsnap.h. Returns CL_SUCCESS or an error of OpenCL. */
static cl_int offload_opencl_begin(offload_opencl *c, bitsnap_offload *o, cl_context context, cl_device_id device, const char *source,
                                   const char *options, size_t staging, size_t scratch)
{
    static const char *const names[] = { "offload_decode", "offload_decode_deltas", "offload_encode", "offload_encode_cells" };
    cl_uint units = 1;
    unsigned k;
    cl_int e;
    memset(c, 0, sizeof *c);
    memset(o, 0, sizeof *o);
    c->context = context;
    c->scratch_size = scratch / 2;
    c->program = clCreateProgramWithSource(context, 1, &source, NULL, &e);
    if (!e) e = clBuildProgram(c->program, 1, &device, options, NULL, NULL);
    for (k = 0; k < OFFLOAD_OPENCL_KERNELS && !e; k++) c->kernel[k] = clCreateKernel(c->program, names[k], &e);
    for (k = 0; k < 2 && !e; k++) {
        c->queue[k].queue = clCreateCommandQueueWithProperties(context, device, NULL, &e);
        if (!e) c->queue[k].scratch = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_HOST_NO_ACCESS, c->scratch_size, NULL, &e);
    }
    if (!e) e = clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, NULL);
    if (!e) {
        c->groups = 16 * units; /* enough for any device; surplus groups are queued */
        c->host = malloc(staging);
        c->device = clSVMAlloc(context, CL_MEM_READ_WRITE, staging, 0);
        if (!c->host || !c->device) e = CL_OUT_OF_HOST_MEMORY;
    }
    if (e) {
        offload_opencl_end(c);
        return e;
    }
    o->struct_size = sizeof *o;
    o->context = c;
    o->upload = offload_opencl_upload;
    o->download = offload_opencl_download;
    o->decode = offload_opencl_decode;
    o->encode = offload_opencl_encode;
    o->wait = offload_opencl_wait;
    o->host = c->host;
    o->device = (uint64_t)(size_t)c->device;
    o->size = staging;
    return CL_SUCCESS;
}

#endif
