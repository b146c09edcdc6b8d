/* _core.c - bitsnap.h and bitsnap_file.h for Python, through the stable ABI of CPython 3.11 where setup.py asks for it. MIT
 * licence, see bitsnap.h.
 *
 * This module works on buffers and file descriptors. The Python modules beside it handle names of types, paths and arrays. The
 * interpreter's lock is released wherever elements are coded. Global state: the types of the module, and a count of opened
 * Files. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define BITSNAP_STATIC
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "file/bitsnap_file.h"
#define BITSNAP_REFERENCES_IMPLEMENTATION
#include "file/bitsnap_references.h"
#include "tool/system/parallel.h"

#if PY_VERSION_HEX < 0x030A0000 /* CPython 3.10 added these */
static PyObject *Py_NewRef(PyObject *o) { return Py_INCREF(o), o; }
static int PyModule_AddObjectRef(PyObject *m, const char *name, PyObject *o) { return o ? PyModule_AddObject(m, name, Py_NewRef(o)) : -1; }
#endif

static PyObject *error_type; /* bitsnap.Error, a ValueError */
static PyObject *file_type;  /* File */

/* ================================================================================= BUFFERS
 * Accepts objects with the buffer protocol or __dlpack__, in the memory of the host. */

/* The content of a DLPack capsule: github.com/dmlc/dlpack, version 0, which all libraries still support. */
typedef struct dl_tensor {
    void *data;
    struct { int32_t type, id; } device;
    int32_t dimensions;
    struct { uint8_t code, bits; uint16_t lanes; } dtype;
    int64_t *shape, *strides;
    uint64_t offset;
} dl_tensor;

typedef struct dl_managed {
    dl_tensor tensor;
    void *context;
    void (*release)(struct dl_managed *);
} dl_managed;

typedef struct buffer {
    uint8_t *at;       /* not null if an object was given */
    size_t size;
    Py_buffer view;
    dl_managed *managed;
} buffer;

static uint8_t nothing[1]; /* address of empty buffers */

static void buffer_release(buffer *x)
{
    if (x->view.obj) PyBuffer_Release(&x->view);
    if (x->managed && x->managed->release) x->managed->release(x->managed);
    memset(x, 0, sizeof *x);
}

/* Returns 1 if the elements are contiguous, in row-major order. */
static int dl_contiguous(const dl_tensor *t)
{
    int64_t step = 1;
    int32_t i;
    if (!t->strides) return 1;
    for (i = t->dimensions; i-- > 0; step *= t->shape[i])
        if (t->shape[i] != 1 && t->strides[i] != step) return 0;
    return 1;
}

static int buffer_from_dlpack(buffer *x, PyObject *o, const char *what)
{
    enum { CPU = 1, CUDA_HOST = 3, ROCM_HOST = 11 };
    PyObject *capsule = PyObject_CallMethod(o, "__dlpack__", NULL);
    const dl_tensor *t;
    uint64_t bits;
    int32_t i;
    if (!capsule) return -1;
    x->managed = (dl_managed *)PyCapsule_GetPointer(capsule, "dltensor");
    if (x->managed && PyCapsule_SetName(capsule, "used_dltensor")) x->managed = NULL;
    Py_DECREF(capsule); /* its destructor does not release a used tensor */
    if (!x->managed) return -1;
    t = &x->managed->tensor;
    if (t->device.type != CPU && t->device.type != CUDA_HOST && t->device.type != ROCM_HOST) {
        PyErr_Format(PyExc_ValueError, "%s is in the memory of a device: copy it to the host first", what);
        return -1;
    }
    if (!dl_contiguous(t)) {
        PyErr_Format(PyExc_ValueError, "%s is not contiguous: copy it first", what);
        return -1;
    }
    bits = (uint64_t)t->dtype.bits * t->dtype.lanes;
    for (i = 0; i < t->dimensions; i++) bits *= (uint64_t)t->shape[i]; /* cannot overflow: the array is in memory */
    x->size = (size_t)((bits + 7) / 8);
    if (x->size && !t->data) {
        PyErr_Format(PyExc_ValueError, "%s has no memory: its elements were freed, or never were there", what);
        return -1;
    }
    x->at = x->size ? (uint8_t *)t->data + t->offset : nothing;
    return 0;
}

/* Gets the memory of an object. With `optional`, None leaves x->at null. Call buffer_release after failures, too. */
static int buffer_get(buffer *x, PyObject *o, const char *what, int writable, int optional)
{
    memset(x, 0, sizeof *x);
    if (!o || o == Py_None) {
        if (optional) return 0;
        PyErr_Format(PyExc_TypeError, "%s must be an array or bytes, not None", what);
        return -1;
    }
    if (!PyObject_CheckBuffer(o) && PyObject_HasAttrString(o, "__dlpack__")) return buffer_from_dlpack(x, o, what);
    if (PyObject_GetBuffer(o, &x->view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE)) return -1;
    x->size = (size_t)x->view.len;
    x->at = x->size ? (uint8_t *)x->view.buf : nothing;
    return 0;
}

static int no_memory(const char *what, uint64_t size)
{
    PyErr_Format(PyExc_MemoryError, "no memory for %s of %llu bytes", what, (unsigned long long)size);
    return -1;
}

/* Returns an object for a result of `size` bytes: `into` if it is given and fits, else new bytes, and sets *out to it. Asks for
 * huge pages for large ones, as numpy does, because new memory in pages of 4 KiB costs more than decoding. */
static PyObject *result_of(PyObject *into, buffer *out, uint64_t size)
{
    PyObject *result = NULL;
    if (out->at && out->size != size) {
        PyErr_Format(PyExc_ValueError, "out has %zu bytes, the elements have %llu", out->size, (unsigned long long)size);
    } else if (out->at) {
        result = Py_NewRef(into);
    } else {
        if (size <= PY_SSIZE_T_MAX) result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (result) out->at = (uint8_t *)PyBytes_AsString(result);
        else (void)no_memory("elements", size);
    }
#ifdef MADV_HUGEPAGE
    if (result && size >= 4u << 20) {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = ((uintptr_t)out->at + page - 1) / page * page;
        (void)madvise((void *)begin, ((uintptr_t)out->at + (size_t)size) / page * page - begin, MADV_HUGEPAGE);
    }
#endif
    return result;
}

/* ================================================================================= ERRORS */

static int set_attribute(PyObject *o, const char *name, PyObject *value)
{
    const int failed = !value || PyObject_SetAttrString(o, name, value);
    Py_XDECREF(value);
    return failed;
}

/* `letter` and `rule`: the condition in FORMAT.md. `tensor`: where the error is, or empty. `base`: the damaged tensor that it
 * refers to, or empty. */
static void raise_error(bitsnap_status status, const char *message, const char *letter, unsigned rule, uint64_t offset, uint64_t needed,
                        bitsnap_slice tensor, bitsnap_slice base)
{
    PyObject *name = PyUnicode_DecodeUTF8(tensor.size ? tensor.at : "", (Py_ssize_t)tensor.size, "replace"), *error, *text = NULL;
    PyObject *other = PyUnicode_DecodeUTF8(base.size ? base.at : "", (Py_ssize_t)base.size, "replace");
    PyObject *prefix = !name || !other ? NULL : base.size ? PyUnicode_FromFormat("tensor %R, which refers to %R: ", name, other)
                                                          : PyUnicode_FromFormat(tensor.size ? "tensor %R: " : "%U", name);
    if (prefix && rule && rule < 100)
        text = PyUnicode_FromFormat("%U%s (%s%u, byte %llu)", prefix, message, letter, rule, (unsigned long long)offset);
    else if (prefix) text = PyUnicode_FromFormat("%U%s", prefix, message);
    error = text ? PyObject_CallFunctionObjArgs(error_type, text, NULL) : NULL;
    Py_XDECREF(name);
    Py_XDECREF(other);
    Py_XDECREF(prefix);
    Py_XDECREF(text);
    if (!error) return;
    if (!set_attribute(error, "status", PyLong_FromLong((long)status)) && !set_attribute(error, "rule", PyLong_FromUnsignedLong(rule)) &&
        !set_attribute(error, "offset", PyLong_FromUnsignedLongLong(offset)) &&
        !set_attribute(error, "needed", PyLong_FromUnsignedLongLong(needed)))
        PyErr_SetObject(error_type, error);
    Py_DECREF(error);
}

static void raise_codec(const bitsnap *b)
{
    static const bitsnap_slice none;
    const bitsnap_error *e = &b->error;
    if (PyErr_Occurred()) return; /* set by a callback */
    if (e->status == BITSNAP_E_ARGUMENT && e->argument) PyErr_Format(PyExc_ValueError, "%s: %s", e->argument, bitsnap_message(b));
    else raise_error(e->status, bitsnap_message(b), "R", e->rule, e->offset, e->needed, none, none);
}

/* `number`: errno if a callback has failed, else 0 */
static void raise_file(const bitsnap_file_error *e, int number)
{
    if (PyErr_Occurred()) return;
    if (number == ENOMEM || (e->status == BITSNAP_E_WORKSPACE && !number)) {
        PyErr_SetString(PyExc_MemoryError, "no memory for a header text, an index or a block of the file");
    } else if (number) {
        errno = number;
        PyErr_SetFromErrno(PyExc_OSError);
    } else if (e->status == BITSNAP_E_UNSUPPORTED && (e->found || e->frame_rule)) { /* a newer format, not damage */
        char text[200];
        if (e->found) (void)PyOS_snprintf(text, sizeof text, "%s: bits %08lX", e->message, (unsigned long)e->found);
        else (void)PyOS_snprintf(text, sizeof text, "%s: made by a newer bitsnap", e->message);
        raise_error(e->status, text, e->frame_rule ? "R" : "S", e->frame_rule ? e->frame_rule : e->rule, e->offset, 0, e->tensor, e->base_tensor);
    } else {
        raise_error(e->status, e->message, e->frame_rule ? "R" : "S", e->frame_rule ? e->frame_rule : e->rule, e->offset, 0, e->tensor, e->base_tensor);
    }
}

/* ================================================================================= CALLS */

enum { MOST_THREADS = 1024 }; /* as in the tool */

/* The codec's options and memory in a call. */
typedef struct call {
    bitsnap b;
    pool *threads;
    buffer base, from, to; /* from: the elements or the frame; to: where the result goes, if it is given */
    PyObject *progress;    /* borrowed; null: none */
    uint64_t looked;       /* when signals were handled last, in milliseconds */
} call;

static int dtype_of(const char *name, bitsnap_dtype *dtype)
{
    const bitsnap_element_type *t = bitsnap_element_type_find(name, strlen(name), 1);
    if (!t) {
        PyErr_Format(PyExc_ValueError, "\"%s\" is no dtype of .safetensors files, as BF16 and F32 are", name);
        return -1;
    }
    *dtype = t->codec;
    return 0;
}

/* Returns 1 if a tenth of a second has passed since it last returned 1. */
static int tenth(uint64_t *looked)
{
    struct timespec now;
    uint64_t ms;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    if (ms - *looked < 100) return 0;
    *looked = ms;
    return 1;
}

/* Calls the progress callback and, ten times a second, handles signals, so that Ctrl-C ends a long call. An exception ends the
 * call, which raises it. */
static int on_progress(void *context, uint64_t done, uint64_t total)
{
    call *c = (call *)context;
    PyObject *answer = NULL;
    PyGILState_STATE state;
    int failed;
    if (!tenth(&c->looked) && !c->progress) return 0;
    state = PyGILState_Ensure();
    failed = PyErr_CheckSignals();
    if (!failed && c->progress) {
        answer = PyObject_CallFunction(c->progress, "KK", (unsigned long long)done, (unsigned long long)total);
        failed = !answer;
    }
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return failed;
}

static void call_progress(call *c, PyObject *progress)
{
    c->progress = progress == Py_None ? NULL : progress;
    c->b.progress = on_progress;
    c->b.progress_context = c;
}

/* Starts threads for the codec if more than one is wanted. */
static int pool_begin(pool **threads, bitsnap *b, int wanted)
{
    if (wanted < 2) return 0;
    if (wanted > MOST_THREADS) return PyErr_Format(PyExc_ValueError, "threads: %d are more than %d", wanted, MOST_THREADS), -1;
    *threads = pool_new((unsigned)wanted);
    if (!*threads) return PyErr_NoMemory(), -1;
    b->run = pool_run;
    b->run_context = *threads;
    b->workers = pool_workers(*threads);
    return 0;
}

/* Gives the number of elements in a buffer. Fails if the last one is incomplete. */
static int count_of(const buffer *x, const char *what, bitsnap_dtype dtype, uint64_t *count)
{
    const unsigned width = bitsnap_width(dtype);
    *count = x->size / width;
    if (x->size % width == 0) return 0;
    PyErr_Format(PyExc_ValueError, "%s has %zu bytes, which are no elements of %u", what, x->size, width);
    return -1;
}

static int call_base(call *c, PyObject *base, bitsnap_dtype dtype)
{
    if (!base || base == Py_None) return 0;
    if (buffer_get(&c->base, base, "base", 0, 0)) return -1;
    c->b.base.data = c->base.at;
    c->b.base.dtype = dtype;
    return count_of(&c->base, "base", dtype, &c->b.base.count);
}

static int call_workspace(call *c, size_t size)
{
    c->b.workspace = malloc(size ? size : 1);
    c->b.workspace_size = size;
    return c->b.workspace ? 0 : no_memory("a workspace", size);
}

static void call_end(call *c)
{
    pool_free(c->threads);
    free(c->b.workspace);
    buffer_release(&c->base);
    buffer_release(&c->from);
    buffer_release(&c->to);
    memset(c, 0, sizeof *c);
}

/* Prepares decoding: reads the header, gets the base, starts threads, allocates the workspace. */
static int call_decode(call *c, bitsnap_info *info, PyObject *frame, PyObject *base, int threads)
{
    if (buffer_get(&c->from, frame, "frame", 0, 0)) return -1;
    c->b.error.status = bitsnap_read_info(info, c->from.at, c->from.size);
    if (c->b.error.status) return raise_codec(&c->b), -1;
    if (call_base(c, base, info->has_base ? info->base_dtype : info->dtype) || pool_begin(&c->threads, &c->b, threads)) return -1;
    return call_workspace(c, info->workspace_size + (c->b.workers ? (c->b.workers - 1) * info->worker_size : 0));
}

/* ================================================================================= FRAMES */

static PyObject *compress(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "data", "dtype", "level", "threads", "base", "base_dtype", "cells", "clusters", "columns", "flags", "out",
                             "progress", NULL };
    PyObject *data, *base = NULL, *into = NULL, *progress = NULL, *result = NULL;
    const char *name, *base_name = NULL;
    int level = 0, threads = 1;
    unsigned cells = 0, clusters = 0, flags = 0;
    unsigned long long columns = 0;
    call c;
    bitsnap_dtype dtype = BITSNAP_I8, base_dtype;
    uint8_t *frame = NULL;
    size_t capacity, size = 0;
    uint64_t count;
    bitsnap_status status;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTupleAndKeywords(args, named, "Os|$iiOzIIKIOO:compress", names, &data, &name, &level, &threads, &base, &base_name, &cells,
                                     &clusters, &columns, &flags, &into, &progress))
        return NULL;
    if (buffer_get(&c.from, data, "data", 0, 0) || buffer_get(&c.to, into, "out", 1, 1) || dtype_of(name, &dtype)) goto end;
    base_dtype = dtype;
    if ((base_name && dtype_of(base_name, &base_dtype)) || call_base(&c, base, base_dtype) || pool_begin(&c.threads, &c.b, threads)) goto end;
    if (count_of(&c.from, "data", dtype, &count)) goto end;
    c.b.level = level;
    c.b.flags = flags;
    c.b.quantizer.bins = cells;
    c.b.quantizer.clusters = clusters;
    c.b.columns = columns;
    call_progress(&c, progress);
    if (call_workspace(&c, bitsnap_workspace_size(&c.b, count, dtype))) goto end;
    capacity = c.to.at ? c.to.size : bitsnap_bound(&c.b, count, dtype);
    frame = c.to.at ? c.to.at : (uint8_t *)malloc(capacity ? capacity : 1);
    if (!frame) {
        (void)no_memory("a frame", capacity);
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_encode(&c.b, frame, capacity, &size, c.from.at, count, dtype);
    Py_END_ALLOW_THREADS
    if (status) raise_codec(&c.b);
    else result = c.to.at ? PyLong_FromSize_t(size) : PyBytes_FromStringAndSize((const char *)frame, (Py_ssize_t)size);
    if (!c.to.at) free(frame);
end:
    call_end(&c);
    return result;
}

static PyObject *decompress(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "frame", "out", "base", "threads", "first", "count", "flags", "progress", NULL };
    PyObject *frame, *into = NULL, *base = NULL, *progress = NULL, *result = NULL;
    int threads = 1;
    unsigned flags = 0;
    unsigned long long first = 0, count = UINT64_MAX;
    call c;
    bitsnap_info info;
    bitsnap_status status;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$OOiKKIO:decompress", names, &frame, &into, &base, &threads, &first, &count, &flags, &progress))
        return NULL;
    if (buffer_get(&c.to, into, "out", 1, 1) || call_decode(&c, &info, frame, base, threads)) goto end;
    if (count == UINT64_MAX && first <= info.count) count = info.count - first;
    if (first > info.count || count > info.count - first) {
        PyErr_Format(PyExc_ValueError, "elements %llu to %llu are not in the frame, which has %llu", first, first + count,
                     (unsigned long long)info.count);
        goto end;
    }
    result = result_of(into, &c.to, count * info.width); /* less than 2^51 */
    if (!result) goto end;
    c.b.flags = flags;
    call_progress(&c, progress);
    Py_BEGIN_ALLOW_THREADS
    status = first == 0 && count == info.count ? bitsnap_decode(&c.b, c.to.at, count, info.dtype, c.from.at, c.from.size)
                                               : bitsnap_decode_range(&c.b, c.to.at, first, count, info.dtype, c.from.at, c.from.size);
    Py_END_ALLOW_THREADS
    if (status) {
        raise_codec(&c.b);
        Py_CLEAR(result);
    }
end:
    call_end(&c);
    return result;
}

static PyObject *apply(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "elements", "frame", "threads", NULL };
    PyObject *elements, *frame, *result = NULL;
    int threads = 1;
    call c;
    bitsnap_info info;
    bitsnap_status status;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO|$i:apply", names, &elements, &frame, &threads)) return NULL;
    if (buffer_get(&c.to, elements, "elements", 1, 0) || call_decode(&c, &info, frame, NULL, threads)) goto end;
    if (c.to.size != info.elements_size) {
        PyErr_Format(PyExc_ValueError, "elements has %zu bytes, those of the frame have %llu", c.to.size, (unsigned long long)info.elements_size);
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_apply(&c.b, c.to.at, info.count, info.dtype, c.from.at, c.from.size);
    Py_END_ALLOW_THREADS
    if (status) raise_codec(&c.b);
    else result = Py_NewRef(elements);
end:
    call_end(&c);
    return result;
}

/* merge(first, second), or if `second` is null, invert(first) */
static PyObject *combine(PyObject *first, PyObject *second, PyObject *base)
{
    PyObject *result = NULL;
    buffer b;
    call c;
    bitsnap_info info;
    bitsnap_status status;
    uint8_t *frame = NULL;
    size_t size = 0;
    memset(&c, 0, sizeof c);
    memset(&b, 0, sizeof b);
    if (buffer_get(&b, second, "second", 0, 1) || call_decode(&c, &info, first, base, 1)) goto end;
    free(c.b.workspace);
    if (call_workspace(&c, info.merge_size)) goto end;
    frame = info.bound < SIZE_MAX ? (uint8_t *)malloc((size_t)info.bound + 1) : NULL;
    if (!frame) {
        (void)no_memory("a frame", info.bound);
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    status = second ? bitsnap_merge(&c.b, frame, (size_t)info.bound, &size, c.from.at, c.from.size, b.at, b.size)
                    : bitsnap_invert(&c.b, frame, (size_t)info.bound, &size, c.from.at, c.from.size);
    Py_END_ALLOW_THREADS
    if (status) raise_codec(&c.b);
    else result = PyBytes_FromStringAndSize((const char *)frame, (Py_ssize_t)size);
end:
    free(frame);
    call_end(&c);
    buffer_release(&b);
    return result;
}

static PyObject *merge(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "first", "second", "base", NULL };
    PyObject *first, *second, *base = NULL;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "OO|$O:merge", names, &first, &second, &base)) return NULL;
    if (second != Py_None) return combine(first, second, base);
    PyErr_SetString(PyExc_TypeError, "second must be a frame, not None");
    return NULL;
}

static PyObject *invert(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "frame", "base", NULL };
    PyObject *frame, *base = NULL;
    (void)self;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$O:invert", names, &frame, &base)) return NULL;
    return combine(frame, NULL, base);
}

static PyObject *test(PyObject *self, PyObject *args, PyObject *named)
{
    static char *names[] = { "frame", "base", "threads", NULL };
    PyObject *frame, *base = NULL;
    int threads = 1;
    call c;
    bitsnap_info info;
    bitsnap_status status = BITSNAP_E_ARGUMENT;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|$Oi:test", names, &frame, &base, &threads)) return NULL;
    if (!call_decode(&c, &info, frame, base, threads)) {
        Py_BEGIN_ALLOW_THREADS
        status = bitsnap_test(&c.b, c.from.at, c.from.size);
        Py_END_ALLOW_THREADS
        if (status) raise_codec(&c.b);
    }
    call_end(&c);
    return status ? NULL : Py_NewRef(Py_None);
}

/* Steals the reference to the value. */
static int put(PyObject *dictionary, const char *name, PyObject *value)
{
    const int failed = !value || PyDict_SetItemString(dictionary, name, value);
    Py_XDECREF(value);
    return failed;
}

static PyObject *info_of(const bitsnap_info *x)
{
    const bitsnap_certificate *e = &x->certificate;
    PyObject *d = Py_BuildValue("{s:s,s:K,s:K,s:I,s:K,s:O,s:I,s:I,s:K}", "dtype", bitsnap_dtype_name(x->dtype), "count", (unsigned long long)x->count,
                                "frame_size", (unsigned long long)x->frame_size, "block_log2", x->block_log2, "blocks",
                                (unsigned long long)x->blocks, "checks", x->checks ? Py_True : Py_False, "cells", x->bins, "clusters", x->clusters,
                                "columns", (unsigned long long)x->columns);
    int failed = !d;
    if (!failed && x->has_content_id) failed = put(d, "content_id", PyLong_FromUnsignedLongLong(x->content_id));
    if (!failed && x->has_base)
        failed = put(d, "base_id", PyLong_FromUnsignedLongLong(x->base_id)) ||
                 put(d, "base_dtype", PyUnicode_FromString(bitsnap_dtype_name(x->base_dtype)));
    if (!failed && (x->bins || x->clusters))
        failed = put(d, "certificate", Py_BuildValue("{s:d,s:d,s:d,s:d,s:d,s:K}", "bound", e->bound, "max_relative", e->max_relative, "mean_relative",
                                                     e->mean_relative, "max_absolute", e->max_absolute, "mean_square", e->mean_square, "counted",
                                                     (unsigned long long)e->counted));
    if (failed) Py_CLEAR(d);
    return d;
}

static PyObject *info(PyObject *self, PyObject *frame)
{
    buffer from;
    call c;
    bitsnap_info x;
    PyObject *result = NULL;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!buffer_get(&from, frame, "frame", 0, 0)) {
        c.b.error.status = bitsnap_read_info(&x, from.at, from.size);
        if (c.b.error.status) raise_codec(&c.b);
        else result = info_of(&x);
    }
    buffer_release(&from);
    return result;
}

static PyObject *content_id(PyObject *self, PyObject *args)
{
    PyObject *data, *result = NULL;
    const char *name;
    buffer from;
    bitsnap_dtype dtype;
    uint64_t count, id;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os:content_id", &data, &name)) return NULL;
    if (!buffer_get(&from, data, "data", 0, 0) && !dtype_of(name, &dtype) && !count_of(&from, "data", dtype, &count)) {
        Py_BEGIN_ALLOW_THREADS
        id = bitsnap_content_id(from.at, count, dtype);
        Py_END_ALLOW_THREADS
        result = PyLong_FromUnsignedLongLong(id);
    }
    buffer_release(&from);
    return result;
}

static PyObject *hash(PyObject *self, PyObject *data)
{
    PyObject *result = NULL;
    buffer from;
    uint64_t value;
    (void)self;
    if (!buffer_get(&from, data, "data", 0, 0)) {
        Py_BEGIN_ALLOW_THREADS
        value = bitsnap_hash(from.at, from.size);
        Py_END_ALLOW_THREADS
        result = PyLong_FromUnsignedLongLong(value);
    }
    buffer_release(&from);
    return result;
}

/* Returns the number of bins for a bound of the relative error. */
static PyObject *log_cells(PyObject *self, PyObject *bound)
{
    const double x = PyFloat_AsDouble(bound);
    unsigned cells;
    (void)self;
    if (PyErr_Occurred()) return NULL;
    cells = bitsnap_log_bins(x);
    if (cells) return PyLong_FromUnsignedLong(cells);
    PyErr_Format(PyExc_ValueError, "no quantizer has a relative error of at most %R", bound);
    return NULL;
}

/* ================================================================================= SHARING
 * Threads take turns with a File, a Writer and the Files that these read. A call locks the object that it was made on, then every File below
 * that one, the File opened last first. A base is opened before the File or Writer that reads it, so all threads lock in the same
 * order, and no two wait for each other. The interpreter's lock guards all members. */

enum { FRESH, OPENING, OPEN, CLOSED };

/* The beginning of a File and of a Writer. */
typedef struct shared {
    PyObject_HEAD
    PyThread_type_lock lock;
    unsigned long holder;  /* the thread that holds the lock; 0: none */
    pid_t process;         /* the process of the last thread that took it */
    int state;
    int failure;           /* errno of the last system call that failed, or 0 */
    uint64_t number;       /* counts Files as they are opened */
    size_t users;          /* open Files and Writers that have it among their bases */
    PyObject *bases;       /* a tuple of Files */
    struct shared **below; /* the bases, their bases and so on, each once, by descending number */
    size_t below_count;
} shared;

static uint64_t opened;

static int refuse(const char *text) { return PyErr_SetString(PyExc_ValueError, text), -1; }

/* Waits without the interpreter's lock. Signals are handled while it waits. */
static int lock_take(shared *x)
{
    const unsigned long self = PyThread_get_thread_ident();
    int got = PyThread_acquire_lock(x->lock, 0);
    while (!got) {
        if (x->process != getpid()) return refuse("another thread was using it when this process was forked: open it again");
        if (x->holder == self) return refuse("this thread is in a call that uses it, and cannot begin another one");
        Py_BEGIN_ALLOW_THREADS
        got = PyThread_acquire_lock_timed(x->lock, -1, 1) == PY_LOCK_ACQUIRED;
        Py_END_ALLOW_THREADS
        if (PyErr_CheckSignals()) {
            if (got) PyThread_release_lock(x->lock);
            return -1;
        }
    }
    x->holder = self;
    x->process = getpid();
    x->failure = 0;
    return 0;
}

static void lock_drop(shared *x)
{
    x->holder = 0;
    PyThread_release_lock(x->lock);
}

static int below_take(shared *x)
{
    size_t i;
    for (i = 0; i < x->below_count; i++)
        if (lock_take(x->below[i])) break;
    if (i == x->below_count) return 0;
    while (i--) lock_drop(x->below[i]);
    return -1;
}

static void below_drop(const shared *x)
{
    size_t i;
    for (i = 0; i < x->below_count; i++) lock_drop(x->below[i]);
}

/* Begins a call on an open File or Writer; leave ends it. */
static int enter(shared *x)
{
    if (lock_take(x)) return -1;
    if (x->state == OPEN && !below_take(x)) return 0;
    if (x->state != OPEN)
        (void)refuse(PyObject_TypeCheck((PyObject *)x, (PyTypeObject *)file_type) ? "this File is closed" : "this Writer has ended");
    lock_drop(x);
    return -1;
}

static PyObject *leave(shared *x, PyObject *result)
{
    below_drop(x);
    lock_drop(x);
    return result;
}

/* Returns errno of the system call that failed, on the File or on one below it; 0 if none has. */
static int failure_of(const shared *x)
{
    int failure = x->failure;
    size_t i;
    for (i = 0; i < x->below_count && !failure; i++) failure = x->below[i]->failure;
    return failure;
}

static PyObject *shared_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    shared *x = (shared *)allocate(type, 0);
    (void)args;
    (void)named;
    if (!x) return NULL;
    x->lock = PyThread_allocate_lock();
    if (!x->lock) {
        Py_DECREF((PyObject *)x);
        return PyErr_NoMemory();
    }
    return (PyObject *)x;
}

static void shared_free(shared *x)
{
    PyTypeObject *type = Py_TYPE((PyObject *)x);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    if (x->lock) PyThread_free_lock(x->lock);
    release(x);
    Py_DECREF(type);
}

/* Releases the bases. No lock may be held. */
static void bases_end(shared *x)
{
    PyObject *bases = x->bases;
    Py_ssize_t i;
    for (i = 0; bases && i < PyTuple_Size(bases); i++) ((shared *)PyTuple_GetItem(bases, i))->users--;
    free(x->below);
    x->below = NULL;
    x->below_count = 0;
    x->bases = NULL;
    Py_XDECREF(bases); /* may run any Python code */
}

static int by_number(const void *a, const void *b)
{
    const uint64_t x = (*(shared *const *)a)->number, y = (*(shared *const *)b)->number;
    return (x < y) - (x > y);
}

/* ================================================================================= FILES */

typedef struct file {
    shared s;
    bitsnap_file f;
    int fd;               /* own; -1: in memory */
    buffer memory;
    PyObject *name;       /* bytes, or null */
    pool *threads;
    uint64_t looked;      /* when signals were handled last, in milliseconds */
} file;

enum { MOST_READ = 1 << 26 }; /* most bytes of one system call; signals are handled between calls */

/* Makes the Files of a sequence, at most 65,534, the bases of x, and locks all that are below it. Returns the number of
 * bases, or -1. Call bases_end and free *base after failures, too. */
static Py_ssize_t bases_begin(shared *x, PyObject *bases, bitsnap_file ***base)
{
    PyObject *tuple = bases && bases != Py_None ? PySequence_Tuple(bases) : PyTuple_New(0);
    Py_ssize_t n, i;
    size_t room = 1, count = 0, j;
    if (!tuple) return -1;
    n = PyTuple_Size(tuple);
    for (i = 0; i < n && i < (Py_ssize_t)BITSNAP_BASES_MOST; i++) {
        shared *b = (shared *)PyTuple_GetItem(tuple, i);
        if (!PyObject_TypeCheck((PyObject *)b, (PyTypeObject *)file_type) || b->state != OPEN) break;
        room += 1 + b->below_count;
    }
    if (i == n) x->below = (shared **)malloc(room * sizeof(shared *));
    *base = (bitsnap_file **)malloc(room * sizeof(bitsnap_file *));
    if (!x->below || !*base) {
        Py_DECREF(tuple);
        return i == n ? (PyErr_NoMemory(), -1) : refuse("bases must be at most 65534 open Files");
    }
    for (i = 0; i < n; i++) {
        shared *b = (shared *)PyTuple_GetItem(tuple, i);
        b->users++;
        (*base)[i] = &((file *)b)->f;
        x->below[count++] = b;
        for (j = 0; j < b->below_count; j++) x->below[count++] = b->below[j];
    }
    x->bases = tuple;
    qsort(x->below, count, sizeof(shared *), by_number);
    for (j = 0; j < count; j++)
        if (!j || x->below[j] != x->below[x->below_count - 1]) x->below[x->below_count++] = x->below[j];
    return below_take(x) ? -1 : n;
}

/* Handles signals ten times a second, so that Ctrl-C ends a long read. An exception fails the read, and the call raises it.
 * Threads of the pool read, too; only the thread that made the call may handle signals. */
static int file_interrupted(file *x)
{
    PyGILState_STATE state;
    int failed;
    if (x->s.holder != PyThread_get_thread_ident() || !tenth(&x->looked)) return 0;
    state = PyGILState_Ensure();
    failed = PyErr_CheckSignals();
    PyGILState_Release(state);
    return failed;
}

static int file_read_at(void *context, uint64_t offset, void *to, size_t size)
{
    file *x = (file *)context;
    uint8_t *p = (uint8_t *)to;
    while (size) {
        const ssize_t n = file_interrupted(x) ? 0 : pread(x->fd, p, size < MOST_READ ? size : MOST_READ, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            x->s.failure = n ? errno : EIO; /* the file has become shorter */
            return -1;
        }
        p += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

/* No lock is held, and no thread begins a call any more. */
static void file_end(file *x)
{
    x->s.state = CLOSED;
    bitsnap_file_close(&x->f);
    if (x->fd >= 0) (void)close(x->fd);
    x->fd = -1;
    pool_free(x->threads);
    x->threads = NULL;
    buffer_release(&x->memory);
    bases_end(&x->s);
    Py_CLEAR(x->name);
}

static void file_dealloc(file *x)
{
    if (x->s.state != FRESH) file_end(x);
    shared_free(&x->s);
}

static int file_source(file *x, PyObject *source, bitsnap_source *s)
{
    memset(s, 0, sizeof *s);
    if (PyLong_Check(source)) { /* a descriptor; it is duplicated */
        const long fd = PyLong_AsLong(source);
        off_t size;
        if (PyErr_Occurred()) return -1;
        x->fd = fcntl(fd == (int)fd ? (int)fd : -1, F_DUPFD_CLOEXEC, 0);
        size = x->fd < 0 ? -1 : lseek(x->fd, 0, SEEK_END);
        if (size < 0) return PyErr_SetFromErrno(PyExc_OSError), -1;
        s->read = file_read_at;
        s->context = x;
        s->size = (uint64_t)size;
        return 0;
    }
    if (buffer_get(&x->memory, source, "source", 0, 0)) return -1;
    s->data = x->memory.at;
    s->size = x->memory.size;
    return 0;
}

static int file_init(file *x, PyObject *args, PyObject *named)
{
    static char *names[] = { "source", "bases", "threads", "name", NULL };
    PyObject *source, *bases = NULL;
    bitsnap_source s;
    bitsnap_file **base = NULL;
    Py_ssize_t n;
    bitsnap_status status;
    int threads = 1;
    if (x->s.state != FRESH) return refuse("a File is opened once");
    x->s.state = OPENING;
    x->fd = -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|OiO&:File", names, &source, &bases, &threads, PyUnicode_FSConverter, &x->name) ||
        file_source(x, source, &s))
        return -1;
    n = bases_begin(&x->s, bases, &base);
    if (n < 0) goto failed;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_open(&x->f, &s, base, (size_t)n, NULL);
    Py_END_ALLOW_THREADS
    if (status) raise_file(&x->f.error, failure_of(&x->s));
    below_drop(&x->s);
    free((void *)base);
    base = NULL;
    if (status || pool_begin(&x->threads, &x->f.b, threads)) goto failed;
    x->f.name = x->name ? PyBytes_AsString(x->name) : NULL;
    x->s.number = ++opened;
    x->s.state = OPEN;
    return 0;
failed:
    free((void *)base);
    file_end(x);
    return -1;
}

static PyObject *file_failed(file *x)
{
    raise_file(&x->f.error, failure_of(&x->s));
    return NULL;
}

static PyObject *shape_of(bitsnap_slice shape)
{
    PyObject *list = PyList_New(0), *result;
    uint64_t dimension;
    size_t at = 0;
    while (list && bitsnap_shape_next(shape, &at, &dimension)) {
        PyObject *o = PyLong_FromUnsignedLongLong(dimension);
        if (!o || PyList_Append(list, o)) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    result = list ? PyList_AsTuple(list) : NULL;
    Py_XDECREF(list);
    return result;
}

static PyObject *tensor_of(const bitsnap_tensor *t)
{
    PyObject *shape = shape_of(t->shape);
    if (!shape) return NULL;
    return Py_BuildValue("s#s#NKK", t->name.at, (Py_ssize_t)t->name.size, t->dtype.at, (Py_ssize_t)t->dtype.size, shape, (unsigned long long)t->begin,
                         (unsigned long long)t->end);
}

static const bitsnap_safetensors *file_model(file *x)
{
    const bitsnap_safetensors *s = NULL;
    bitsnap_status status;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_tensors(&x->f, &s);
    Py_END_ALLOW_THREADS
    if (!status) return s;
    (void)file_failed(x);
    return NULL;
}

static PyObject *file_tensors(file *x, PyObject *unused)
{
    const bitsnap_safetensors *s;
    PyObject *list;
    size_t i;
    (void)unused;
    if (enter(&x->s)) return NULL;
    s = file_model(x);
    list = s ? PyList_New((Py_ssize_t)s->count) : NULL;
    for (i = 0; list && i < s->count; i++) {
        PyObject *o = tensor_of(&s->tensors[i]);
        if (!o || PyList_SetItem(list, (Py_ssize_t)i, o)) Py_CLEAR(list);
    }
    return leave(&x->s, list);
}

static PyObject *file_metadata(file *x, PyObject *unused)
{
    const bitsnap_safetensors *s;
    PyObject *result = NULL;
    (void)unused;
    if (enter(&x->s)) return NULL;
    s = file_model(x);
    if (s) result = s->metadata.size ? PyUnicode_DecodeUTF8(s->metadata.at, (Py_ssize_t)s->metadata.size, "strict") : Py_NewRef(Py_None);
    return leave(&x->s, result);
}

/* Finds a tensor, or raises an error. */
static int find(file *x, PyObject *name, bitsnap_tensor *t)
{
    Py_ssize_t size;
    const char *text = PyUnicode_AsUTF8AndSize(name, &size);
    bitsnap_status status;
    if (!text) return -1;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_find(&x->f, text, (size_t)size, t);
    Py_END_ALLOW_THREADS
    if (!status) return 0;
    if (status == BITSNAP_E_MISMATCH) PyErr_SetObject(PyExc_KeyError, name);
    (void)file_failed(x);
    return -1;
}

static PyObject *file_find(file *x, PyObject *name)
{
    bitsnap_tensor t;
    if (enter(&x->s)) return NULL;
    return leave(&x->s, find(x, name, &t) ? NULL : tensor_of(&t));
}

static PyObject *file_read(file *x, PyObject *args, PyObject *named)
{
    static char *names[] = { "name", "first", "count", "out", NULL };
    unsigned long long first = 0, count = UINT64_MAX;
    PyObject *name, *into = NULL, *result = NULL;
    buffer out;
    bitsnap_tensor t;
    bitsnap_status status = BITSNAP_OK;
    unsigned bits;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|KKO:read", names, &name, &first, &count, &into)) return NULL;
    if (buffer_get(&out, into, "out", 1, 1) || enter(&x->s)) {
        buffer_release(&out);
        return NULL;
    }
    if (find(x, name, &t)) goto end;
    bits = t.type ? t.type->bits : 8;
    if (!t.type) t.elements = t.end - t.begin;
    if (count == UINT64_MAX && first <= t.elements) count = t.elements - first;
    if (first > t.elements || count > t.elements - first) {
        PyErr_Format(PyExc_ValueError, "elements %llu to %llu are not in the tensor, which has %llu", first, first + count,
                     (unsigned long long)t.elements);
        goto end;
    }
    result = result_of(into, &out, bits % 8 ? count * bits / 8 : count * (bits / 8)); /* elements of a file: less than 2^48 */
    if (result && count) {
        Py_BEGIN_ALLOW_THREADS
        status = bitsnap_file_read(&x->f, &t, out.at, first, count);
        Py_END_ALLOW_THREADS
    }
    if (status) {
        (void)file_failed(x);
        Py_CLEAR(result);
    }
end:
    buffer_release(&out);
    return leave(&x->s, result);
}

static PyObject *file_frames(file *x, PyObject *unused)
{
    PyObject *list;
    uint64_t count, i;
    (void)unused;
    if (enter(&x->s)) return NULL;
    if (bitsnap_file_frames(&x->f, &count)) return leave(&x->s, file_failed(x));
    list = PyList_New(0);
    for (i = 0; list && i < count; i++) {
        bitsnap_file_frame frame;
        PyObject *o = NULL;
        if (bitsnap_file_frame_at(&x->f, i, &frame)) (void)file_failed(x);
        else o = info_of(&frame.info);
        if (!o || put(o, "at", PyLong_FromUnsignedLongLong(frame.at)) || put(o, "size", PyLong_FromUnsignedLongLong(frame.size)) ||
            put(o, "begin", PyLong_FromUnsignedLongLong(frame.begin)) || PyList_Append(list, o))
            Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return leave(&x->s, list);
}

static PyObject *file_verify(file *x, PyObject *unused)
{
    bitsnap_status status;
    (void)unused;
    if (enter(&x->s)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_verify(&x->f);
    Py_END_ALLOW_THREADS
    return leave(&x->s, status ? file_failed(x) : Py_NewRef(Py_None));
}

static PyObject *file_close(file *x, PyObject *unused)
{
    int ends;
    (void)unused;
    if (x->s.state != OPEN || x->s.users) Py_RETURN_NONE; /* a base is closed with its last user */
    if (enter(&x->s)) return NULL;
    ends = !x->s.users;
    if (ends) x->s.state = CLOSED;
    (void)leave(&x->s, NULL);
    if (ends) file_end(x);
    Py_RETURN_NONE;
}

/* Returns (device, inode) of the File and of all below it that have descriptors. */
static PyObject *file_identities(file *x, PyObject *unused)
{
    PyObject *list;
    struct stat st;
    size_t i;
    (void)unused;
    if (enter(&x->s)) return NULL;
    list = PyList_New(0);
    for (i = 0; list && i <= x->s.below_count; i++) {
        const int fd = i ? ((file *)x->s.below[i - 1])->fd : x->fd;
        PyObject *o;
        if (fd < 0 || fstat(fd, &st)) continue;
        o = Py_BuildValue("KK", (unsigned long long)st.st_dev, (unsigned long long)st.st_ino);
        if (!o || PyList_Append(list, o)) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return leave(&x->s, list);
}

/* Returns what the header states of the file and its bases. */
static PyObject *file_get(file *x, void *what)
{
    static const char *const kinds[] = { "raw", "safetensors", "delta", "plain" };
    PyObject *list;
    size_t i;
    if (x->s.state != OPEN) return refuse("this File is closed"), NULL;
    switch (*(const char *)what) {
    case 'k': return PyUnicode_FromString(kinds[x->f.kind & 3]);
    case 'q': return PyBool_FromLong(x->f.quantized);
    case 's': return PyLong_FromUnsignedLongLong(x->f.size);
    case 'd': return PyLong_FromUnsignedLongLong(x->f.data_size);
    default: break;
    }
    if (enter(&x->s)) return NULL;
    list = PyList_New(0);
    for (i = 0; list && i < x->f.base_count; i++) {
        const char *name = x->f.bases[i].name ? x->f.bases[i].name : "";
        PyObject *o = PyUnicode_DecodeFSDefault(name);
        if (!o || PyList_Append(list, o)) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return leave(&x->s, list);
}

static PyMethodDef file_methods[] = {
    { "tensors", (PyCFunction)file_tensors, METH_NOARGS, "tensors() -> [(name, dtype, shape, begin, end), ...], in the order of their bytes" },
    { "find", (PyCFunction)file_find, METH_O, "find(name) -> (name, dtype, shape, begin, end); KeyError" },
    { "read", (PyCFunction)(void (*)(void))file_read, METH_VARARGS | METH_KEYWORDS,
      "read(name, first=0, count=all, out=None) -> bytes, or out\n\nElements of a tensor: only the blocks that they are in are read." },
    { "metadata", (PyCFunction)file_metadata, METH_NOARGS, "metadata() -> the JSON text of __metadata__, or None" },
    { "frames", (PyCFunction)file_frames, METH_NOARGS, "frames() -> a dictionary for each frame, as that of info()" },
    { "verify", (PyCFunction)file_verify, METH_NOARGS, "verify(): reads and checks everything" },
    { "close", (PyCFunction)file_close, METH_NOARGS, "close(). Does nothing while another File or a Writer has it as a base" },
    { "identities", (PyCFunction)file_identities, METH_NOARGS,
      "identities() -> [(device, inode), ...] of the file, its bases, their bases and so on" },
    { NULL, NULL, 0, NULL }
};

static PyGetSetDef file_members[] = {
    { "kind", (getter)file_get, NULL, "\"safetensors\", \"delta\", \"raw\", or \"plain\" for a .safetensors file itself", (void *)"k" },
    { "quantized", (getter)file_get, NULL, "whether some elements are not those that it was made from", (void *)"q" },
    { "size", (getter)file_get, NULL, "bytes of the file", (void *)"s" },
    { "data_size", (getter)file_get, NULL, "bytes of the tensors", (void *)"d" },
    { "bases", (getter)file_get, NULL, "the names of what a delta is against: hints, \"\" where there is none", (void *)"b" },
    { NULL, NULL, NULL, NULL, NULL }
};

static PyType_Slot file_slots[] = {
    { Py_tp_doc, "File(source, bases=(), threads=1, name=\"\")\n\nA .bsnap or .safetensors file: a descriptor (which is copied) or bytes in memory. A delta\n"
                 "needs the Files it is against. name: what deltas against it call it. Threads take turns." },
    { Py_tp_new, (void *)shared_new },
    { Py_tp_init, (void *)file_init },
    { Py_tp_dealloc, (void *)file_dealloc },
    { Py_tp_methods, file_methods },
    { Py_tp_getset, file_members },
    { 0, NULL }
};

static PyType_Spec file_spec = { "bitsnap._core.File", sizeof(file), 0, Py_TPFLAGS_DEFAULT, file_slots };

/* ================================================================================= WRITING */

typedef struct writer {
    shared s;
    bitsnap_file_writer w;
    bitsnap_sink sink;
    call c;
    int fd;
    pid_t process;        /* the process that made it; others would share the position of the descriptor */
    uint8_t *memory;      /* the output, if there is no descriptor */
    size_t size, room;
    char *text;
    size_t text_size;
    uint64_t *ends;       /* for each tensor: its end in the data, in bytes */
    size_t count;
    PyObject *part;       /* part(tensor, first byte, bytes) returns bytes to be written; null: no tensor refers to another */
    bitsnap_file itself;  /* the .safetensors file that it makes */
} writer;

static int writer_memory(writer *x, const void *bytes, size_t size)
{
    if (size > x->room - x->size) {
        const size_t room = x->size + size + x->room / 2;
        uint8_t *more = room < size ? NULL : (uint8_t *)realloc(x->memory, room);
        if (!more) {
            x->s.failure = ENOMEM;
            return -1;
        }
        x->memory = more;
        x->room = room;
    }
    memcpy(x->memory + x->size, bytes, size);
    x->size += size;
    return 0;
}

static int writer_write(void *context, const void *bytes, size_t size)
{
    writer *x = (writer *)context;
    const uint8_t *p = (const uint8_t *)bytes;
    if (x->fd < 0) return writer_memory(x, bytes, size);
    while (size) {
        const ssize_t n = write(x->fd, p, size < (1u << 30) ? size : 1u << 30);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            x->s.failure = n ? errno : EIO;
            return -1;
        }
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

/* Gets bytes of one tensor. */
static int writer_part(writer *x, size_t number, uint64_t first, uint8_t *to, size_t size)
{
    PyGILState_STATE state = PyGILState_Ensure();
    PyObject *part = PyObject_CallFunction(x->part, "nKn", (Py_ssize_t)number, (unsigned long long)first, (Py_ssize_t)size);
    buffer from;
    int failed = !part || buffer_get(&from, part, "a part of a tensor", 0, 0);
    if (!failed && from.size != size) {
        PyErr_Format(PyExc_ValueError, "a part of a tensor has %zu bytes, not %zu", from.size, size);
        failed = 1;
    }
    if (!failed) memcpy(to, from.at, size);
    if (part) buffer_release(&from);
    Py_XDECREF(part);
    PyGILState_Release(state);
    return failed;
}

/* Gets bytes of the data that will be written. */
static int writer_data_at(void *context, uint64_t at, void *to, size_t size)
{
    writer *x = (writer *)context;
    uint8_t *p = (uint8_t *)to;
    size_t low = 0, high = x->count, n;
    while (low < high) { /* the first tensor that ends after this byte */
        const size_t middle = low + (high - low) / 2;
        if (x->ends[middle] <= at) low = middle + 1;
        else high = middle;
    }
    for (; size; at += n, p += n, size -= n, low++) {
        n = x->ends[low] - at < size ? (size_t)(x->ends[low] - at) : size;
        if (n && writer_part(x, low, low ? at - x->ends[low - 1] : at, p, n)) return -1;
    }
    return 0;
}

/* Gets bytes of the .safetensors file with these data. */
static int writer_source_at(void *context, uint64_t at, void *to, size_t size)
{
    const writer *x = (const writer *)context;
    uint8_t *p = (uint8_t *)to;
    for (; size && at < 8; at++, size--) *p++ = (uint8_t)((uint64_t)x->text_size >> 8 * at);
    if (size && at < 8 + x->text_size) {
        const size_t left = x->text_size - (size_t)(at - 8), n = left < size ? left : size;
        memcpy(p, x->text + (at - 8), n);
        p += n;
        at += n;
        size -= n;
    }
    return size ? writer_data_at(context, at - 8 - x->text_size, p, size) : 0;
}

/* Finds the tensors that refer to earlier ones. The caller frees *list. In a delta only equal ones do: an unchanged master takes no
 * bytes against its base, but half of its bytes against its weight. */
static int writer_refer(writer *x, int level, bitsnap_reference **list, size_t *count)
{
    const uint64_t size = x->count ? x->ends[x->count - 1] : 0;
    const bitsnap_source source = { writer_source_at, x, NULL, 8 + x->text_size + size }, data = { writer_data_at, x, NULL, size };
    const bitsnap_safetensors *model;
    bitsnap_status status;
    size_t i, n = 0;
    int found;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_open(&x->itself, &source, NULL, 0, NULL);
    if (!status) status = bitsnap_file_tensors(&x->itself, &model);
    found = !status;
    if (!status) status = bitsnap_references_find(list, count, model, &data, NULL, level == BITSNAP_BEST);
    for (i = 0; !status && i < *count; i++)
        if (!x->s.below_count || (int)bitsnap_tensor_codec(&model->tensors[(*list)[i].tensor]) == (*list)[i].base_dtype) (*list)[n++] = (*list)[i];
    *count = n;
    Py_END_ALLOW_THREADS
    if (status && found && !PyErr_Occurred()) PyErr_NoMemory();
    else if (status) raise_file(&x->itself.error, failure_of(&x->s));
    return status ? -1 : 0;
}

/* No lock is held, and no thread begins a call any more. */
static void writer_end(writer *x)
{
    x->s.state = CLOSED;
    bitsnap_file_write_close(&x->w);
    call_end(&x->c);
    bitsnap_file_close(&x->itself);
    free(x->memory);
    free(x->text);
    free(x->ends);
    x->memory = NULL;
    x->text = NULL;
    x->ends = NULL;
    bases_end(&x->s);
    Py_CLEAR(x->part);
}

static void writer_dealloc(writer *x)
{
    if (x->s.state != FRESH) writer_end(x);
    shared_free(&x->s);
}

/* The header text of [(name, dtype, shape as JSON, bytes), ...]. */
static int writer_text(writer *x, PyObject *tensors, const char *metadata)
{
    const Py_ssize_t n = PyList_Check(tensors) ? PyList_Size(tensors) : -1;
    bitsnap_tensor *list;
    bitsnap_file_error e;
    Py_ssize_t i;
    int failed = 0;
    if (n < 0) return PyErr_SetString(PyExc_TypeError, "tensors must be a list"), -1;
    list = (bitsnap_tensor *)calloc((size_t)n + 1, sizeof *list);
    x->ends = (uint64_t *)calloc((size_t)n + 1, sizeof *x->ends);
    if (!list || !x->ends) return free(list), PyErr_NoMemory(), -1;
    for (i = 0; i < n && !failed; i++) {
        bitsnap_tensor *t = &list[i];
        PyObject *entry = PyList_GetItem(tensors, i);
        Py_ssize_t name, dtype, shape;
        unsigned long long bytes;
        failed = !PyTuple_Check(entry) ? (PyErr_SetString(PyExc_TypeError, "tensors must be a list of tuples"), 1) :
                 !PyArg_ParseTuple(entry, "s#s#s#K", &t->name.at, &name, &t->dtype.at, &dtype, &t->shape.at, &shape, &bytes);
        if (failed) break;
        t->name.size = (size_t)name;
        t->dtype.size = (size_t)dtype;
        t->shape.size = (size_t)shape;
        t->end = bytes;
    }
    if (!failed && bitsnap_safetensors_write(&x->text, &x->text_size, list, (size_t)n, metadata, NULL, &e)) {
        raise_file(&e, 0);
        failed = 1;
    }
    for (i = 0; i < n; i++) x->ends[i] = list[i].end;
    x->count = (size_t)n;
    free(list);
    return failed ? -1 : 0;
}

/* Returns 1 if the descriptor is that of a file that the Writer reads. */
static int writer_overwrites(const writer *x)
{
    struct stat to, st;
    size_t i;
    if (x->fd < 0 || fstat(x->fd, &to)) return 0;
    for (i = 0; i < x->s.below_count; i++) {
        const file *f = (const file *)x->s.below[i];
        if (f->fd >= 0 && !fstat(f->fd, &st) && st.st_dev == to.st_dev && st.st_ino == to.st_ino) return 1;
    }
    return 0;
}

static int writer_init(writer *x, PyObject *args, PyObject *named)
{
    static char *names[] = { "fd", "tensors", "metadata", "level", "threads", "flags", "bases", "sha256", "part", NULL };
    PyObject *tensors, *bases = NULL, *part = NULL;
    const char *metadata = NULL;
    bitsnap_file **base = NULL;
    bitsnap_file_content content = { 0 };
    bitsnap_reference *list = NULL;
    bitsnap_status status;
    Py_ssize_t n;
    unsigned flags = 0;
    int level = 0, threads = 1, sha256 = 0, failed;
    if (x->s.state != FRESH) return refuse("a Writer is used once");
    x->s.state = OPENING;
    x->process = getpid();
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO|ziiIOpO:Writer", names, &x->fd, &tensors, &metadata, &level, &threads, &flags, &bases, &sha256,
                                     &part) ||
        writer_text(x, tensors, metadata) || pool_begin(&x->c.threads, &x->c.b, threads))
        return -1;
    n = bases_begin(&x->s, bases, &base);
    if (n < 0) goto failed;
    failed = writer_overwrites(x) ? refuse("the file is one of those that the delta is against, which it would overwrite: write another one") : 0;
    call_progress(&x->c, NULL);
    x->c.b.level = level;
    x->c.b.flags = flags;
    x->sink.write = writer_write;
    x->sink.context = x;
    if (!failed && part && part != Py_None) {
        x->part = Py_NewRef(part);
        failed = writer_refer(x, level, &list, &content.reference_count);
    }
    content.text = x->text;
    content.text_size = x->text_size;
    content.references = list;
    content.features = sha256 ? BITSNAP_FILE_SHA256 : 0;
    content.bases = base;
    content.base_count = (size_t)n;
    if (!failed) {
        Py_BEGIN_ALLOW_THREADS
        status = bitsnap_file_write_begin(&x->w, &x->c.b, &x->sink, &content, NULL);
        Py_END_ALLOW_THREADS
        if (content.reference_count) x->w.itself = &x->itself;
        failed = status != BITSNAP_OK;
        if (failed) raise_file(&x->w.error, failure_of(&x->s));
    }
    free(list);
    below_drop(&x->s);
    free((void *)base);
    base = NULL;
    if (failed) goto failed;
    x->s.state = OPEN;
    return 0;
failed:
    free((void *)base);
    writer_end(x);
    return -1;
}

static int writer_enter(writer *x)
{
    if (x->s.state != OPEN || x->process == getpid()) return enter(&x->s);
    return refuse("a Writer is of use in the process that made it, not in one forked from that");
}

/* Ends a call and, with `ends`, the Writer. */
static PyObject *writer_leave(writer *x, PyObject *result, int ends)
{
    if (ends) x->s.state = CLOSED;
    (void)leave(&x->s, NULL);
    if (ends) writer_end(x);
    return result;
}

static PyObject *writer_data(writer *x, PyObject *data)
{
    PyObject *result = NULL;
    buffer from;
    bitsnap_status status;
    /* buffer_get may run any Python code, so it comes before the lock */
    if (!buffer_get(&from, data, "data", 0, 0) && !writer_enter(x)) {
        Py_BEGIN_ALLOW_THREADS
        status = bitsnap_file_write_data(&x->w, from.at, from.size);
        Py_END_ALLOW_THREADS
        if (status) raise_file(&x->w.error, failure_of(&x->s));
        else result = Py_NewRef(Py_None);
        result = writer_leave(x, result, !result);
    }
    buffer_release(&from);
    return result;
}

static PyObject *writer_finish(writer *x, PyObject *unused)
{
    PyObject *result = NULL;
    bitsnap_status status;
    (void)unused;
    if (writer_enter(x)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_write_end(&x->w);
    Py_END_ALLOW_THREADS
    if (status) raise_file(&x->w.error, failure_of(&x->s));
    else if (x->fd >= 0) result = PyLong_FromUnsignedLongLong(x->w.size);
    else result = PyBytes_FromStringAndSize((const char *)x->memory, (Py_ssize_t)x->size);
    return writer_leave(x, result, 1);
}

static PyMethodDef writer_methods[] = {
    { "write", (PyCFunction)writer_data, METH_O, "write(data): the next bytes of the tensors" },
    { "finish", (PyCFunction)writer_finish, METH_NOARGS, "finish() -> bytes of the file: how many, or, without a descriptor, they themselves" },
    { NULL, NULL, 0, NULL }
};

static PyType_Slot writer_slots[] = {
    { Py_tp_doc, "Writer(fd, tensors, metadata=None, level=0, threads=1, flags=0, bases=(), sha256=False, part=None)\n\n"
                 "Writes a .bsnap file to a descriptor, or with fd -1 to memory. Threads take turns.\n"
                 "tensors: [(name, dtype, shape as JSON, bytes), ...]; their elements follow in that order.\n"
                 "part: part(number of a tensor, its first byte, bytes) -> those of the elements that will follow; then tensors refer to earlier ones\n"
                 "that are equal to them, or that are what they round to, or the reverse; at level 3 whatever they are called." },
    { Py_tp_new, (void *)shared_new },
    { Py_tp_init, (void *)writer_init },
    { Py_tp_dealloc, (void *)writer_dealloc },
    { Py_tp_methods, writer_methods },
    { 0, NULL }
};

static PyType_Spec writer_spec = { "bitsnap._core.Writer", sizeof(writer), 0, Py_TPFLAGS_DEFAULT, writer_slots };

/* ================================================================================= MODULE */

#define KEYWORDS(f) (PyCFunction)(void (*)(void))f, METH_VARARGS | METH_KEYWORDS

static PyMethodDef functions[] = {
    { "compress", KEYWORDS(compress), "compress(data, dtype, *, ...) -> frame, or with out its size" },
    { "decompress", KEYWORDS(decompress), "decompress(frame, *, ...) -> bytes, or out" },
    { "apply", KEYWORDS(apply), "apply(elements, frame, *, threads=1) -> elements" },
    { "merge", KEYWORDS(merge), "merge(first, second, *, base=None) -> frame" },
    { "invert", KEYWORDS(invert), "invert(frame, *, base=None) -> frame" },
    { "test", KEYWORDS(test), "test(frame, *, base=None, threads=1)" },
    { "info", info, METH_O, "info(frame) -> dict" },
    { "content_id", content_id, METH_VARARGS, "content_id(data, dtype) -> int" },
    { "hash", hash, METH_O, "hash(data) -> int: XXH3, 64 bits" },
    { "log_cells", log_cells, METH_O, "log_cells(max_relative_error) -> bins of an octave" },
    { NULL, NULL, 0, NULL }
};

static struct PyModuleDef module = { PyModuleDef_HEAD_INIT, "bitsnap._core", NULL, -1, functions, NULL, NULL, NULL, NULL };

PyMODINIT_FUNC PyInit__core(void)
{
    PyObject *m = PyModule_Create(&module), *writer_type;
    if (!m) return NULL;
    error_type = PyErr_NewExceptionWithDoc("bitsnap.Error",
                                           "Bytes that are no good frame or file, or not those that were asked for.\n\nstatus: BITSNAP_E_..., rule: "
                                           "the condition of FORMAT.md, offset: the byte where it was found, needed: bytes that would do.",
                                           PyExc_ValueError, NULL);
    file_type = PyType_FromSpec(&file_spec);
    writer_type = PyType_FromSpec(&writer_spec);
    if (!error_type || !file_type || !writer_type || PyModule_AddObjectRef(m, "Error", error_type) || PyModule_AddObjectRef(m, "File", file_type) ||
        PyModule_AddObjectRef(m, "Writer", writer_type) || PyModule_AddStringConstant(m, "version", bitsnap_version()) ||
        PyModule_AddIntConstant(m, "NO_CHECKS", BITSNAP_NO_CHECKS) || PyModule_AddIntConstant(m, "CONTENT_ID", BITSNAP_CONTENT_ID) ||
        PyModule_AddIntConstant(m, "VERIFY", BITSNAP_VERIFY) || PyModule_AddIntConstant(m, "IGNORE_CHECKS", BITSNAP_IGNORE_CHECKS) ||
        PyModule_AddIntConstant(m, "SELF_CONTAINED", BITSNAP_SELF_CONTAINED))
        Py_CLEAR(m);
    Py_XDECREF(writer_type);
    return m;
}
