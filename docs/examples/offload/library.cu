/* library.cu - the hook for programs that are not written in C: arrays of requests, on a GPU, or without one by the codec itself, for
 * tensors in the memory of the host. torch_offload.py calls it. MIT licence, see bitsnap.h. With and without a GPU:
 *
 *     cc -O3 -fPIC -DBITSNAP_OFFLOAD -I. -c docs/examples/tool/bitsnap.c -o build/codec.o
 *     nvcc -O3 -arch=sm_90 -Xcompiler -fPIC,-fopenmp -shared -I. docs/examples/offload/library.cu build/codec.o -o build/liboffload.so
 *     cc -O3 -fPIC -fopenmp -shared -I. -x c docs/examples/offload/library.cu -x none build/codec.o -o build/liboffload.so */
#ifndef BITSNAP_OFFLOAD
#define BITSNAP_OFFLOAD
#endif
#ifdef __CUDACC__
#include "cuda.h"
#else
#include "bitsnap.h"
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#ifdef __cplusplus
extern "C" {
#endif

typedef struct library { /* a GPU's, or nothing of it */
#ifdef __CUDACC__
    offload_cuda cuda;
#endif
    bitsnap_offload offload;
    char message[256];
} library;

enum { LIBRARY_ENCODE, LIBRARY_DECODE, LIBRARY_APPLY };

library *library_begin(size_t staging, size_t scratch, int trusted)
{
    library *x = (library *)calloc(1, sizeof *x);
#ifdef __CUDACC__
    if (x && staging && offload_cuda_begin(&x->cuda, &x->offload, staging, scratch)) {
        free(x);
        x = NULL;
    }
#else
    (void)scratch;
    if (staging) { /* there is no GPU in this build */
        free(x);
        x = NULL;
    }
#endif
    if (x) x->offload.trusted = trusted;
    return x;
}

void library_end(library *x)
{
#ifdef __CUDACC__
    if (x->offload.size) offload_cuda_end(&x->cuda);
#endif
    free(x);
}

const char *library_message(const library *x) { return x->message; }

/* cells: bins of an octave, 0: lossless; columns: elements in a row, 0: of no matrix. */
static bitsnap library_options(int level, unsigned cells, uint64_t columns)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.level = level;
    b.block_log2 = 16; /* which devices take */
    b.quantizer.bins = cells;
    b.columns = columns;
    return b;
}

/* For this relative error; 0: that takes too many. */
unsigned library_cells(double max_relative_error) { return bitsnap_log_bins(max_relative_error); }

/* base_dtype: of a delta, else 0. Returns 0 where there is no such frame. */
size_t library_bound(uint64_t count, int dtype, int base_dtype, int level, unsigned cells, uint64_t columns)
{
    bitsnap b = library_options(level, cells, columns);
    if (base_dtype) b.base.data = &b; /* which is not looked at */
    b.base.dtype = (bitsnap_dtype)base_dtype;
    return bitsnap_bound(&b, count, (bitsnap_dtype)dtype);
}

#ifdef _OPENMP
static void library_run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    const int workers = *(const int *)context;
    int64_t i;
#pragma omp parallel for schedule(dynamic) num_threads(workers)
    for (i = 0; i < (int64_t)count; i++) task(argument, (uint64_t)i, (unsigned)omp_get_thread_num());
}
#endif

/* One request, by the codec itself: addresses are those of the host. */
static bitsnap_status library_host(bitsnap *b, int what, bitsnap_request *r)
{
    void *elements = (void *)(uintptr_t)r->elements;
    bitsnap_status status;
    memset(&b->base, 0, sizeof b->base);
    if (r->base && what != LIBRARY_APPLY) {
        b->base.data = (const void *)(uintptr_t)r->base;
        b->base.count = r->count;
        b->base.dtype = r->base_dtype;
    }
    if (what == LIBRARY_ENCODE) status = bitsnap_encode(b, r->destination, r->size, &r->size, elements, r->count, r->dtype);
    else if (what == LIBRARY_DECODE) status = bitsnap_decode(b, elements, r->count, r->dtype, r->frame, r->size);
    else status = bitsnap_apply(b, elements, r->count, r->dtype, r->frame, r->size);
    r->error = b->error;
    return status;
}

static size_t library_workspace(const bitsnap *b, const bitsnap_offload *o, int what, const bitsnap_request *requests, size_t count)
{
    size_t i, most = 0;
    if (o->size) return what == LIBRARY_ENCODE ? bitsnap_offload_encode_workspace(b, requests, count) : bitsnap_offload_workspace(requests, count);
    for (i = 0; i < count; i++) {
        bitsnap_info info;
        size_t size = 0;
        bitsnap one = *b;
        if (what == LIBRARY_ENCODE) {
            one.base.data = (const void *)(uintptr_t)requests[i].base;
            one.base.dtype = requests[i].base_dtype;
            size = bitsnap_workspace_size(&one, requests[i].count, requests[i].dtype);
        } else if (!bitsnap_read_info(&info, requests[i].frame, requests[i].size)) {
            size = info.workspace_size + (b->workers ? b->workers - 1 : 0) * info.worker_size;
        }
        if (most < size) most = size;
    }
    return most;
}

/* Returns a bitsnap_status; library_message says more. Level, cells and columns are for encoding. */
int library_do(library *x, int what, bitsnap_request *requests, size_t count, int level, int workers, unsigned cells, uint64_t columns)
{
    const bitsnap_offload *o = &x->offload;
    bitsnap_status status = BITSNAP_OK;
    bitsnap b = library_options(level, cells, columns);
    size_t i;
#ifdef _OPENMP
    if (workers > 1) {
        b.run = library_run;
        b.run_context = &workers;
        b.workers = (unsigned)workers;
    }
#else
    (void)workers;
#endif
    b.workspace_size = library_workspace(&b, o, what, requests, count);
    b.workspace = malloc(b.workspace_size + 1);
    if (!b.workspace) {
        snprintf(x->message, sizeof x->message, "no memory: %lu bytes of workspace", (unsigned long)b.workspace_size);
        return BITSNAP_E_WORKSPACE;
    }
    if (!o->size) for (i = 0; i < count && !status; i++) status = library_host(&b, what, &requests[i]);
    else if (what == LIBRARY_ENCODE) status = bitsnap_offload_encode(&b, o, requests, count);
    else if (what == LIBRARY_DECODE) status = bitsnap_offload_decode(&b, o, requests, count);
    else status = bitsnap_offload_apply(&b, o, requests, count);
    strncpy(x->message, status ? bitsnap_message(&b) : "", sizeof x->message - 1);
    free(b.workspace);
    return status;
}

#ifdef __cplusplus
}
#endif
