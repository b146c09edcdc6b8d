/* _core.c - bitsnap.h and bitsnap_file.h for Python, through the stable ABI of CPython 3.11. MIT licence, see bitsnap.h.
 *
 * What is here works on buffers and file descriptors; names of types, paths and arrays are Python's, in the modules beside it.
 * The interpreter's lock is released wherever elements are coded. There is no global state but the types of the module. */
#define Py_LIMITED_API 0x030B0000
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BITSNAP_STATIC
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "file/bitsnap_file.h"
#include "tool/system/parallel.h"

static PyObject *error_type; /* bitsnap.Error, a ValueError */
static PyObject *file_type;  /* File */

/* ================================================================================= BUFFERS
 * Anything with the buffer protocol, or with __dlpack__ (arrays in the memory of a device are of no use here). */

/* What a capsule of DLPack holds: github.com/dmlc/dlpack, version 0, which every library still gives. */
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
    uint8_t *at;       /* never null in one that was got */
    size_t size;
    Py_buffer view;
    dl_managed *managed;
} buffer;

static uint8_t nothing[1]; /* where buffers of no bytes are */

static void buffer_release(buffer *x)
{
    if (x->view.obj) PyBuffer_Release(&x->view);
    if (x->managed && x->managed->release) x->managed->release(x->managed);
    memset(x, 0, sizeof *x);
}

/* Whether its elements lie one behind the other, the last dimension first. */
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
    Py_DECREF(capsule); /* whose destructor leaves alone what is used */
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
    for (i = 0; i < t->dimensions; i++) bits *= (uint64_t)t->shape[i]; /* of an array that is in memory */
    x->size = (size_t)((bits + 7) / 8);
    x->at = x->size ? (uint8_t *)t->data + t->offset : nothing;
    return 0;
}

/* Where `optional`, None is no failure, and no buffer. buffer_release is to be called after failures, too. */
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

/* A result of so many bytes: `into` where it is given and fits, else new bytes, which *to then is. Large ones had better be huge pages,
 * as numpy asks for, too: new memory of pages of 4 KiB costs more than decoding. */
static PyObject *result_of(PyObject *into, buffer *out, uint64_t size)
{
    PyObject *result = NULL;
    if (out->at && out->size != size) {
        PyErr_Format(PyExc_ValueError, "out has %zu bytes, the elements have %llu", out->size, (unsigned long long)size);
    } else if (out->at) {
        result = Py_NewRef(into);
    } else if (size > PY_SSIZE_T_MAX) {
        PyErr_NoMemory();
    } else {
        result = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
        if (result) out->at = (uint8_t *)PyBytes_AsString(result);
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

/* `letter` and `rule`: the condition in FORMAT.md */
static void raise_error(bitsnap_status status, const char *message, const char *letter, unsigned rule, uint64_t offset, uint64_t needed)
{
    PyObject *error, *text;
    if (rule && rule < 100) text = PyUnicode_FromFormat("%s (%s%u, byte %llu)", message, letter, rule, (unsigned long long)offset);
    else text = PyUnicode_FromString(message);
    error = text ? PyObject_CallFunctionObjArgs(error_type, text, NULL) : NULL;
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
    const bitsnap_error *e = &b->error;
    if (PyErr_Occurred()) return; /* a callback has */
    if (e->status == BITSNAP_E_ARGUMENT && e->argument) PyErr_Format(PyExc_ValueError, "%s: %s", e->argument, bitsnap_message(b));
    else raise_error(e->status, bitsnap_message(b), "R", e->rule, e->offset, e->needed);
}

/* `number`: that of the system, where a callback has failed */
static void raise_file(const bitsnap_file_error *e, int number)
{
    if (PyErr_Occurred()) return;
    if (number == ENOMEM || (e->status == BITSNAP_E_WORKSPACE && !number)) {
        PyErr_NoMemory();
    } else if (number) {
        errno = number;
        PyErr_SetFromErrno(PyExc_OSError);
    } else {
        raise_error(e->status, e->message, e->frame_rule ? "R" : "S", e->frame_rule ? e->frame_rule : e->rule, e->offset, 0);
    }
}

/* ================================================================================= CALLS */

/* The codec's options and memory in a call. */
typedef struct call {
    bitsnap b;
    pool *threads;
    buffer base, from, to; /* from: the elements or the frame; to: where the result goes, if it is given */
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

static int on_progress(void *context, uint64_t done, uint64_t total)
{
    const PyGILState_STATE state = PyGILState_Ensure();
    PyObject *answer = PyObject_CallFunction((PyObject *)context, "KK", (unsigned long long)done, (unsigned long long)total);
    Py_XDECREF(answer);
    PyGILState_Release(state);
    return !answer; /* an exception ends the call, and is raised by it */
}

static void call_progress(call *c, PyObject *progress)
{
    if (!progress || progress == Py_None) return;
    c->b.progress = on_progress;
    c->b.progress_context = progress;
}

static int call_threads(call *c, int threads)
{
    if (threads < 2) return 0;
    c->threads = pool_new((unsigned)threads);
    if (!c->threads) return PyErr_NoMemory(), -1;
    c->b.run = pool_run;
    c->b.run_context = c->threads;
    c->b.workers = pool_workers(c->threads);
    return 0;
}

static int call_base(call *c, PyObject *base, bitsnap_dtype dtype)
{
    if (!base || base == Py_None) return 0;
    if (buffer_get(&c->base, base, "base", 0, 0)) return -1;
    c->b.base.data = c->base.at;
    c->b.base.dtype = dtype;
    c->b.base.count = c->base.size / bitsnap_width(dtype);
    return 0;
}

static int call_workspace(call *c, size_t size)
{
    c->b.workspace = malloc(size ? size : 1);
    c->b.workspace_size = size;
    return c->b.workspace ? 0 : (PyErr_NoMemory(), -1);
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

/* What decoding a frame needs. */
static int call_decode(call *c, bitsnap_info *info, PyObject *frame, PyObject *base, int threads)
{
    if (buffer_get(&c->from, frame, "frame", 0, 0)) return -1;
    c->b.error.status = bitsnap_read_info(info, c->from.at, c->from.size);
    if (c->b.error.status) return raise_codec(&c->b), -1;
    if (call_base(c, base, info->has_base ? info->base_dtype : info->dtype) || call_threads(c, threads)) return -1;
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
    size_t capacity, size = 0, width;
    bitsnap_status status;
    (void)self;
    memset(&c, 0, sizeof c);
    if (!PyArg_ParseTupleAndKeywords(args, named, "Os|$iiOzIIKIOO:compress", names, &data, &name, &level, &threads, &base, &base_name, &cells,
                                     &clusters, &columns, &flags, &into, &progress))
        return NULL;
    if (buffer_get(&c.from, data, "data", 0, 0) || buffer_get(&c.to, into, "out", 1, 1) || dtype_of(name, &dtype)) goto end;
    base_dtype = dtype;
    if ((base_name && dtype_of(base_name, &base_dtype)) || call_base(&c, base, base_dtype) || call_threads(&c, threads)) goto end;
    width = bitsnap_width(dtype);
    if (c.from.size % width) {
        PyErr_Format(PyExc_ValueError, "data has %zu bytes, which are no elements of %zu", c.from.size, width);
        goto end;
    }
    c.b.level = level;
    c.b.flags = flags;
    c.b.quantizer.cells = cells;
    c.b.quantizer.clusters = clusters;
    c.b.columns = columns;
    call_progress(&c, progress);
    if (call_workspace(&c, bitsnap_workspace_size(&c.b, c.from.size / width, dtype))) goto end;
    capacity = c.to.at ? c.to.size : bitsnap_bound(&c.b, c.from.size / width, dtype);
    frame = c.to.at ? c.to.at : (uint8_t *)malloc(capacity ? capacity : 1);
    if (!frame) {
        PyErr_NoMemory();
        goto end;
    }
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_encode(&c.b, frame, capacity, &size, c.from.at, c.from.size / width, dtype);
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

/* merge(first, second); without a second invert(first) */
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
        PyErr_NoMemory();
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

/* Takes the value. */
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
                                (unsigned long long)x->blocks, "checks", x->checks ? Py_True : Py_False, "cells", x->cells, "clusters", x->clusters,
                                "columns", (unsigned long long)x->columns);
    int failed = !d;
    if (!failed && x->has_content_id) failed = put(d, "content_id", PyLong_FromUnsignedLongLong(x->content_id));
    if (!failed && x->has_base)
        failed = put(d, "base_id", PyLong_FromUnsignedLongLong(x->base_id)) ||
                 put(d, "base_dtype", PyUnicode_FromString(bitsnap_dtype_name(x->base_dtype)));
    if (!failed && (x->cells || x->clusters))
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
    uint64_t id;
    (void)self;
    if (!PyArg_ParseTuple(args, "Os:content_id", &data, &name)) return NULL;
    if (!buffer_get(&from, data, "data", 0, 0) && !dtype_of(name, &dtype)) {
        Py_BEGIN_ALLOW_THREADS
        id = bitsnap_content_id(from.at, from.size / bitsnap_width(dtype), dtype);
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

/* cells for a bound of the relative error */
static PyObject *log_cells(PyObject *self, PyObject *bound)
{
    const double x = PyFloat_AsDouble(bound);
    unsigned cells;
    (void)self;
    if (PyErr_Occurred()) return NULL;
    cells = bitsnap_log_cells(x);
    if (cells) return PyLong_FromUnsignedLong(cells);
    PyErr_Format(PyExc_ValueError, "no quantizer has a relative error of at most %R", bound);
    return NULL;
}

/* ================================================================================= FILES */

typedef struct file {
    PyObject_HEAD
    bitsnap_file f;
    int fd;               /* own; -1: in memory */
    int number;           /* of the last failure of the system */
    buffer memory;
    PyObject *bases;      /* a tuple of Files, which this one has for itself */
    PyObject *name;       /* bytes, or null */
    int open, owned;      /* owned: by a delta against it, or a Writer */
    PyThread_type_lock lock;
    pool *threads;
} file;

static int file_read_at(void *context, uint64_t offset, void *to, size_t size)
{
    file *x = (file *)context;
    uint8_t *p = (uint8_t *)to;
    while (size) {
        const ssize_t n = pread(x->fd, p, size < (1u << 30) ? size : 1u << 30, (off_t)offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            x->number = n ? errno : EIO; /* it has become shorter */
            return -1;
        }
        p += n;
        offset += (uint64_t)n;
        size -= (size_t)n;
    }
    return 0;
}

static void file_end(file *x)
{
    if (x->open) bitsnap_file_close(&x->f);
    x->open = 0;
    if (x->fd >= 0) (void)close(x->fd);
    x->fd = -1;
    pool_free(x->threads);
    x->threads = NULL;
    buffer_release(&x->memory);
    Py_CLEAR(x->bases);
    Py_CLEAR(x->name);
}

static PyObject *file_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    file *x = (file *)allocate(type, 0);
    (void)args;
    (void)named;
    if (x) x->fd = -1;
    return (PyObject *)x;
}

static void file_dealloc(file *x)
{
    PyTypeObject *type = Py_TYPE((PyObject *)x);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    file_end(x);
    if (x->lock) PyThread_free_lock(x->lock);
    release(x);
    Py_DECREF(type);
}

/* The first n of them belong to nobody again. */
static void give_back(PyObject *tuple, Py_ssize_t n)
{
    while (n-- > 0) ((file *)PyTuple_GetItem(tuple, n))->owned = 0;
}

/* The Files in this tuple, each once and at most 255, which from now on belong to somebody; how many, or -1. */
static Py_ssize_t take_bases(PyObject *tuple, bitsnap_file **base)
{
    const Py_ssize_t n = PyTuple_Size(tuple);
    Py_ssize_t i;
    for (i = 0; i < n && i < 255; i++) {
        file *x = (file *)PyTuple_GetItem(tuple, i);
        if (!PyObject_TypeCheck((PyObject *)x, (PyTypeObject *)file_type) || !x->open || x->owned) break;
        base[i] = &x->f;
        x->owned = 1;
    }
    if (i == n) return n;
    PyErr_SetString(PyExc_ValueError, "bases must be at most 255 open Files, none of which is a base already");
    give_back(tuple, i);
    return -1;
}

static int file_init(file *x, PyObject *args, PyObject *named)
{
    static char *names[] = { "source", "bases", "threads", "name", NULL };
    PyObject *source, *bases = NULL, *name = NULL;
    bitsnap_source s;
    bitsnap_file *base[255];
    Py_ssize_t n;
    bitsnap_status status;
    int threads = 1;
    if (x->lock) return PyErr_SetString(PyExc_ValueError, "a File is opened once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "O|OiO&:File", names, &source, &bases, &threads, PyUnicode_FSConverter, &name)) return -1;
    memset(&s, 0, sizeof s);
    x->name = name;
    x->lock = PyThread_allocate_lock();
    if (!x->lock) return PyErr_NoMemory(), -1;
    x->bases = bases && bases != Py_None ? PySequence_Tuple(bases) : PyTuple_New(0);
    if (!x->bases) return -1;
    if (PyLong_Check(source)) { /* a descriptor, which is copied */
        const long fd = PyLong_AsLong(source);
        off_t size;
        if (PyErr_Occurred()) return -1;
        x->fd = dup((int)fd);
        size = x->fd < 0 ? -1 : lseek(x->fd, 0, SEEK_END);
        if (size < 0) return PyErr_SetFromErrno(PyExc_OSError), -1;
        s.read = file_read_at;
        s.context = x;
        s.size = (uint64_t)size;
    } else {
        if (buffer_get(&x->memory, source, "source", 0, 0)) return -1;
        s.data = x->memory.at;
        s.size = x->memory.size;
    }
    n = take_bases(x->bases, base);
    if (n < 0) return -1;
    x->open = 1;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_open(&x->f, &s, base, (size_t)n, NULL);
    Py_END_ALLOW_THREADS
    if (!status && threads > 1) x->threads = pool_new((unsigned)threads);
    if (status || (threads > 1 && !x->threads)) {
        if (status) raise_file(&x->f.error, x->number);
        else PyErr_NoMemory();
        give_back(x->bases, n);
        file_end(x);
        return -1;
    }
    x->f.name = x->name ? PyBytes_AsString(x->name) : NULL;
    if (x->threads) {
        x->f.b.run = pool_run;
        x->f.b.run_context = x->threads;
        x->f.b.workers = pool_workers(x->threads);
    }
    return 0;
}

/* One thread at a time; the others wait without the interpreter's lock. */
static int file_enter(file *x)
{
    if (x->lock && !PyThread_acquire_lock(x->lock, 0)) {
        Py_BEGIN_ALLOW_THREADS
        PyThread_acquire_lock(x->lock, 1);
        Py_END_ALLOW_THREADS
    }
    if (x->open && !x->owned) {
        x->number = 0;
        return 0;
    }
    if (x->lock) PyThread_release_lock(x->lock);
    PyErr_SetString(PyExc_ValueError, x->open ? "this File is a base, and used by who has it" : "this File is closed");
    return -1;
}

static PyObject *file_leave(file *x, PyObject *result)
{
    PyThread_release_lock(x->lock);
    return result;
}

static int file_number(file *x) /* of the file or of one of its bases */
{
    int number = x->number;
    Py_ssize_t i;
    x->number = 0;
    for (i = 0; x->bases && i < PyTuple_Size(x->bases); i++) {
        const int other = file_number((file *)PyTuple_GetItem(x->bases, i));
        if (!number) number = other;
    }
    return number;
}

static PyObject *file_failed(file *x)
{
    raise_file(&x->f.error, file_number(x));
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
    if (file_enter(x)) return NULL;
    s = file_model(x);
    list = s ? PyList_New((Py_ssize_t)s->count) : NULL;
    for (i = 0; list && i < s->count; i++) {
        PyObject *o = tensor_of(&s->tensors[i]);
        if (!o || PyList_SetItem(list, (Py_ssize_t)i, o)) Py_CLEAR(list);
    }
    return file_leave(x, list);
}

static PyObject *file_metadata(file *x, PyObject *unused)
{
    const bitsnap_safetensors *s;
    PyObject *result = NULL;
    (void)unused;
    if (file_enter(x)) return NULL;
    s = file_model(x);
    if (s) result = s->metadata.size ? PyUnicode_DecodeUTF8(s->metadata.at, (Py_ssize_t)s->metadata.size, "strict") : Py_NewRef(Py_None);
    return file_leave(x, result);
}

/* Finds a tensor; the failure is raised. */
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
    if (file_enter(x)) return NULL;
    return file_leave(x, find(x, name, &t) ? NULL : tensor_of(&t));
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
    if (buffer_get(&out, into, "out", 1, 1) || file_enter(x)) {
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
    result = result_of(into, &out, bits % 8 ? count * bits / 8 : count * (bits / 8)); /* those of a file: less than 2^48 */
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
    return file_leave(x, result);
}

static PyObject *file_frames(file *x, PyObject *unused)
{
    PyObject *list;
    uint64_t count, i;
    (void)unused;
    if (file_enter(x)) return NULL;
    if (bitsnap_file_frames(&x->f, &count)) return file_leave(x, file_failed(x));
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
    return file_leave(x, list);
}

static PyObject *file_verify(file *x, PyObject *unused)
{
    bitsnap_status status;
    (void)unused;
    if (file_enter(x)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_verify(&x->f);
    Py_END_ALLOW_THREADS
    return file_leave(x, status ? file_failed(x) : Py_NewRef(Py_None));
}

static PyObject *file_close(file *x, PyObject *unused)
{
    (void)unused;
    if (!x->lock || !x->open || x->owned) Py_RETURN_NONE; /* a base ends with who has it */
    if (file_enter(x)) return NULL;
    file_end(x);
    return file_leave(x, Py_NewRef(Py_None));
}

/* What the header says, of bases, too. */
static PyObject *file_get(file *x, void *what)
{
    static const char *const kinds[] = { "raw", "safetensors", "delta", "plain" };
    PyObject *list;
    size_t i;
    if (!x->open) return PyErr_SetString(PyExc_ValueError, "this File is closed"), NULL;
    switch (*(const char *)what) {
    case 'k': return PyUnicode_FromString(kinds[x->f.kind & 3]);
    case 'q': return PyBool_FromLong(x->f.quantized);
    case 's': return PyLong_FromUnsignedLongLong(x->f.size);
    case 'd': return PyLong_FromUnsignedLongLong(x->f.data_size);
    default: break;
    }
    list = PyList_New(0);
    for (i = 0; list && i < x->f.base_count; i++) {
        const char *name = x->f.bases[i].name ? x->f.bases[i].name : "";
        PyObject *o = PyUnicode_DecodeFSDefault(name);
        if (!o || PyList_Append(list, o)) Py_CLEAR(list);
        Py_XDECREF(o);
    }
    return list;
}

static PyMethodDef file_methods[] = {
    { "tensors", (PyCFunction)file_tensors, METH_NOARGS, "tensors() -> [(name, dtype, shape, begin, end), ...], in the order of their bytes" },
    { "find", (PyCFunction)file_find, METH_O, "find(name) -> (name, dtype, shape, begin, end); KeyError" },
    { "read", (PyCFunction)(void (*)(void))file_read, METH_VARARGS | METH_KEYWORDS,
      "read(name, first=0, count=all, out=None) -> bytes, or out\n\nElements of a tensor: only the blocks that they are in are read." },
    { "metadata", (PyCFunction)file_metadata, METH_NOARGS, "metadata() -> the JSON text of __metadata__, or None" },
    { "frames", (PyCFunction)file_frames, METH_NOARGS, "frames() -> a dictionary for each frame, as that of info()" },
    { "verify", (PyCFunction)file_verify, METH_NOARGS, "verify(): reads and checks everything" },
    { "close", (PyCFunction)file_close, METH_NOARGS, "close(): with the bases" },
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
                 "needs the Files it is against, which it then has for itself. name: what deltas against it call it." },
    { Py_tp_new, (void *)file_new },
    { Py_tp_init, (void *)file_init },
    { Py_tp_dealloc, (void *)file_dealloc },
    { Py_tp_methods, file_methods },
    { Py_tp_getset, file_members },
    { 0, NULL }
};

static PyType_Spec file_spec = { "bitsnap._core.File", sizeof(file), 0, Py_TPFLAGS_DEFAULT, file_slots };

/* ================================================================================= WRITING */

typedef struct writer {
    PyObject_HEAD
    bitsnap_file_writer w;
    bitsnap_sink sink;
    call c;
    int fd, number;
    uint8_t *memory;      /* where there is no descriptor */
    size_t size, room;
    char *text;
    PyObject *bases;
    int begun;
} writer;

static int writer_memory(writer *x, const void *bytes, size_t size)
{
    if (size > x->room - x->size) {
        const size_t room = x->size + size + x->room / 2;
        uint8_t *more = room < size ? NULL : (uint8_t *)realloc(x->memory, room);
        if (!more) {
            x->number = ENOMEM;
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
            x->number = n ? errno : EIO;
            return -1;
        }
        p += n;
        size -= (size_t)n;
    }
    return 0;
}

static void writer_end(writer *x)
{
    if (x->begun) bitsnap_file_write_close(&x->w);
    x->begun = 0;
    call_end(&x->c);
    free(x->memory);
    free(x->text);
    x->memory = NULL;
    x->text = NULL;
    Py_CLEAR(x->bases);
}

static void writer_dealloc(writer *x)
{
    PyTypeObject *type = Py_TYPE((PyObject *)x);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    writer_end(x);
    release(x);
    Py_DECREF(type);
}

/* The header text of [(name, dtype, shape as JSON, bytes), ...]. */
static int writer_text(writer *x, size_t *size, PyObject *tensors, const char *metadata)
{
    const Py_ssize_t n = PyList_Check(tensors) ? PyList_Size(tensors) : -1;
    bitsnap_tensor *list;
    bitsnap_file_error e;
    Py_ssize_t i;
    int failed = 0;
    if (n < 0) return PyErr_SetString(PyExc_TypeError, "tensors must be a list"), -1;
    list = (bitsnap_tensor *)calloc((size_t)n + 1, sizeof *list);
    if (!list) return PyErr_NoMemory(), -1;
    for (i = 0; i < n && !failed; i++) {
        bitsnap_tensor *t = &list[i];
        Py_ssize_t name, dtype, shape;
        unsigned long long bytes;
        failed = !PyArg_ParseTuple(PyList_GetItem(tensors, i), "s#s#s#K", &t->name.at, &name, &t->dtype.at, &dtype, &t->shape.at, &shape, &bytes);
        if (failed) break;
        t->name.size = (size_t)name;
        t->dtype.size = (size_t)dtype;
        t->shape.size = (size_t)shape;
        t->end = bytes;
    }
    if (!failed && bitsnap_safetensors_write(&x->text, size, list, (size_t)n, metadata, NULL, &e)) {
        raise_file(&e, 0);
        failed = 1;
    }
    free(list);
    return failed ? -1 : 0;
}

static PyObject *writer_failed(writer *x)
{
    raise_file(&x->w.error, x->number);
    writer_end(x);
    return NULL;
}

static int writer_init(writer *x, PyObject *args, PyObject *named)
{
    static char *names[] = { "fd", "tensors", "metadata", "level", "threads", "flags", "bases", NULL };
    PyObject *tensors, *bases = NULL;
    const char *metadata = NULL;
    bitsnap_file *base[255];
    bitsnap_status status;
    Py_ssize_t n;
    size_t size;
    unsigned flags = 0;
    int level = 0, threads = 1;
    if (x->bases) return PyErr_SetString(PyExc_ValueError, "a Writer is used once"), -1;
    if (!PyArg_ParseTupleAndKeywords(args, named, "iO|ziiIO:Writer", names, &x->fd, &tensors, &metadata, &level, &threads, &flags, &bases)) return -1;
    x->bases = bases && bases != Py_None ? PySequence_Tuple(bases) : PyTuple_New(0);
    if (!x->bases || writer_text(x, &size, tensors, metadata) || call_threads(&x->c, threads)) return -1;
    n = take_bases(x->bases, base);
    if (n < 0) return -1;
    x->c.b.level = level;
    x->c.b.flags = flags;
    x->sink.write = writer_write;
    x->sink.context = x;
    x->begun = 1;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_write_begin(&x->w, &x->c.b, &x->sink, x->text, size, base, (size_t)n, NULL);
    Py_END_ALLOW_THREADS
    if (!status) return 0;
    give_back(x->bases, n);
    return writer_failed(x), -1;
}

static int writer_check(const writer *x)
{
    if (x->begun) return 0;
    PyErr_SetString(PyExc_ValueError, "this Writer has ended");
    return -1;
}

static PyObject *writer_data(writer *x, PyObject *data)
{
    buffer from;
    bitsnap_status status;
    if (writer_check(x)) return NULL;
    if (buffer_get(&from, data, "data", 0, 0)) {
        buffer_release(&from);
        return NULL;
    }
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_write_data(&x->w, from.at, from.size);
    Py_END_ALLOW_THREADS
    buffer_release(&from);
    return status ? writer_failed(x) : Py_NewRef(Py_None);
}

static PyObject *writer_finish(writer *x, PyObject *unused)
{
    PyObject *result;
    bitsnap_status status;
    (void)unused;
    if (writer_check(x)) return NULL;
    Py_BEGIN_ALLOW_THREADS
    status = bitsnap_file_write_end(&x->w);
    Py_END_ALLOW_THREADS
    if (status) return writer_failed(x);
    result = x->fd < 0 ? PyBytes_FromStringAndSize((const char *)x->memory, (Py_ssize_t)x->size) : PyLong_FromUnsignedLongLong(x->w.size);
    writer_end(x);
    return result;
}

static PyMethodDef writer_methods[] = {
    { "write", (PyCFunction)writer_data, METH_O, "write(data): the next bytes of the tensors" },
    { "finish", (PyCFunction)writer_finish, METH_NOARGS, "finish() -> bytes of the file: how many, or, without a descriptor, they themselves" },
    { NULL, NULL, 0, NULL }
};

static PyType_Slot writer_slots[] = {
    { Py_tp_doc, "Writer(fd, tensors, metadata=None, level=0, threads=1, flags=0, bases=())\n\nWrites a .bsnap file to a descriptor, or with fd -1 to memory.\n"
                 "tensors: [(name, dtype, shape as JSON, bytes), ...]; their elements follow in that order. One thread at a time." },
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
    { "log_cells", log_cells, METH_O, "log_cells(max_relative_error) -> cells" },
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
