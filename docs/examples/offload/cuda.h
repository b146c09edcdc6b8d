/* cuda.h - a bitsnap_offload for NVIDIA GPUs: two streams, page-locked staging memory, and the kernel of decode.h. Compiled by
 * nvcc; define BITSNAP_OFFLOAD before bitsnap.h. MIT licence, see bitsnap.h.
 *
 *     offload_cuda c;
 *     bitsnap_offload o;
 *     if (offload_cuda_begin(&c, &o, 64 << 20, 256 << 20)) ...   no GPU, or no memory
 *     bitsnap_offload_decode(&b, &o, requests, count);
 *     offload_cuda_end(&c); */
#ifndef OFFLOAD_CUDA_H
#define OFFLOAD_CUDA_H

#include "quantize.h"

#include <string.h>

#define OFFLOAD_MEMORY (48u << 10) /* bytes of a group: Group, followed by the arena */

typedef struct offload_cuda_queue {
    cudaStream_t stream;
    bitsnap_work *works, *device_works; /* works and done are page-locked */
    bitsnap_done *done, *device_done, *result; /* result: memory of the caller */
    u32 *scratch;
    size_t capacity, count;
} offload_cuda_queue;

typedef struct offload_cuda {
    offload_cuda_queue queue[2];
    void *host, *device;
    size_t scratch_size; /* of each queue */
    u32 groups;          /* number of groups that the GPU runs at once */
} offload_cuda;

static int offload_cuda_upload(void *context, unsigned queue, uint64_t to, const void *from, size_t size)
{
    const offload_cuda *c = (const offload_cuda *)context;
    return cudaMemcpyAsync((void *)to, from, size, cudaMemcpyHostToDevice, c->queue[queue].stream) != cudaSuccess;
}
static int offload_cuda_download(void *context, unsigned queue, void *to, uint64_t from, size_t size)
{
    const offload_cuda *c = (const offload_cuda *)context;
    return cudaMemcpyAsync(to, (const void *)from, size, cudaMemcpyDeviceToHost, c->queue[queue].stream) != cudaSuccess;
}

static void offload_cuda_free_works(offload_cuda_queue *q)
{
    cudaFreeHost(q->works);
    cudaFreeHost(q->done);
    cudaFree(q->device_works);
    cudaFree(q->device_done);
    q->works = q->device_works = NULL;
    q->done = q->device_done = NULL;
    q->capacity = 0;
}

typedef void (*offload_cuda_kernel)(const bitsnap_work *, bitsnap_done *, u32, u32 *, u32, u32);

static int offload_cuda_launch(const offload_cuda *c, unsigned queue, offload_cuda_kernel kernel, u32 scratch, const bitsnap_work *works,
                               bitsnap_done *done, size_t count)
{
    offload_cuda_queue *q = (offload_cuda_queue *)&c->queue[queue];
    u32 groups = c->groups;
    if (count > q->capacity) {
        offload_cuda_free_works(q);
        if (cudaMallocHost((void **)&q->works, count * sizeof *works) || cudaMallocHost((void **)&q->done, count * sizeof *done) ||
            cudaMalloc((void **)&q->device_works, count * sizeof *works) || cudaMalloc((void **)&q->device_done, count * sizeof *done))
            return 1;
        q->capacity = count;
    }
    if (groups > c->scratch_size / scratch) groups = (u32)(c->scratch_size / scratch);
    if (groups > count) groups = (u32)count;
    if (!groups) return 0; /* too little scratch memory: left to the host */
    memcpy(q->works, works, count * sizeof *works);
    q->result = done;
    if (cudaMemcpyAsync(q->device_works, q->works, count * sizeof *works, cudaMemcpyHostToDevice, q->stream)) return 1;
    kernel<<<groups, THREADS, OFFLOAD_MEMORY, q->stream>>>(q->device_works, q->device_done, (u32)count, q->scratch, scratch, OFFLOAD_MEMORY);
    if (cudaGetLastError() ||
        cudaMemcpyAsync(q->done, q->device_done, count * sizeof *done, cudaMemcpyDeviceToHost, q->stream)) return 1;
    q->count = count;
    return 0;
}
static int offload_cuda_decode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    u32 deltas = 0;
    size_t i;
    for (i = 0; i < count; i++) deltas |= offload_has_words(&works[i]);
    return offload_cuda_launch((const offload_cuda *)context, queue, deltas ? offload_decode_deltas : offload_decode,
                               offload_scratch_of(works, count), works, done, count);
}
static int offload_cuda_encode(void *context, unsigned queue, const bitsnap_work *works, bitsnap_done *done, size_t count)
{
    const u32 scratch = offload_scratch_to_encode(works, count);
    return offload_cuda_launch((const offload_cuda *)context, queue, scratch > 6 * MAX_ELEMENTS ? offload_encode_cells : offload_encode,
                               scratch, works, done, count);
}

static int offload_cuda_wait(void *context, unsigned queue)
{
    offload_cuda_queue *q = &((offload_cuda *)context)->queue[queue];
    const size_t count = q->count;
    q->count = 0;
    if (cudaStreamSynchronize(q->stream)) return 1;
    if (count) memcpy(q->result, q->done, count * sizeof *q->done);
    return 0;
}

static void offload_cuda_end(offload_cuda *c)
{
    unsigned k;
    for (k = 0; k < 2; k++) {
        if (c->queue[k].stream) cudaStreamDestroy(c->queue[k].stream);
        offload_cuda_free_works(&c->queue[k]);
        cudaFree(c->queue[k].scratch);
    }
    cudaFreeHost(c->host);
    cudaFree(c->device);
    memset(c, 0, sizeof *c);
}

/* Allocates `staging` bytes of page-locked memory, `staging` bytes of the GPU, and `scratch` bytes of the GPU. Each queue gets
 * half of these. A group takes 416 to 608 KiB of scratch, or 1056 KiB for a block with a base, QUANTIZED or SCALED; an H100 runs
 * 528 or 396 groups at once. Returns 1 if there is no GPU or not enough memory. */
static int offload_cuda_begin(offload_cuda *c, bitsnap_offload *o, size_t staging, size_t scratch)
{
    int device = 0, processors = 0, groups = 0;
    unsigned k;
    memset(c, 0, sizeof *c);
    memset(o, 0, sizeof *o);
    if (cudaGetDevice(&device) || cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device) ||
        cudaFuncSetAttribute(offload_decode, cudaFuncAttributeMaxDynamicSharedMemorySize, OFFLOAD_MEMORY) ||
        cudaFuncSetAttribute(offload_decode_deltas, cudaFuncAttributeMaxDynamicSharedMemorySize, OFFLOAD_MEMORY) ||
        cudaFuncSetAttribute(offload_encode, cudaFuncAttributeMaxDynamicSharedMemorySize, OFFLOAD_MEMORY) ||
        cudaFuncSetAttribute(offload_encode_cells, cudaFuncAttributeMaxDynamicSharedMemorySize, OFFLOAD_MEMORY) ||
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&groups, offload_decode, THREADS, OFFLOAD_MEMORY) ||
        cudaMallocHost(&c->host, staging) || cudaMalloc(&c->device, staging)) {
        offload_cuda_end(c);
        return 1;
    }
    c->groups = (u32)(groups * processors);
    c->scratch_size = scratch / 2;
    for (k = 0; k < 2; k++)
        if (cudaStreamCreateWithFlags(&c->queue[k].stream, cudaStreamNonBlocking) ||
            cudaMalloc((void **)&c->queue[k].scratch, c->scratch_size)) {
            offload_cuda_end(c);
            return 1;
        }
    o->struct_size = sizeof *o;
    o->context = c;
    o->upload = offload_cuda_upload;
    o->download = offload_cuda_download;
    o->decode = offload_cuda_decode;
    o->encode = offload_cuda_encode;
    o->wait = offload_cuda_wait;
    o->host = c->host; /* set it to null if frames are in page-locked memory (cudaHostRegister), which is faster */
    o->device = (uint64_t)(size_t)c->device;
    o->size = staging;
    return 0;
}

#endif
