/* group.c - joins small neighbours into one frame, so that the overhead of frames does not enlarge the file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A frame may hold any bytes as elements of any dtype (docs/FORMAT.md, section 8.4). Coding a piece as another dtype rarely makes
 * it smaller, but each frame less saves a hundred bytes or more. */
#include "../system/posix.h"

#include "group.h"

#include "../files/file.h"

#include <stdlib.h>
#include <string.h>

#define SMALL ((uint64_t)1 << 20)    /* pieces of at least this many bytes are not grouped */
#define SMALLEST ((uint64_t)256)
#define CELL 65536                   /* elements of a block */
#define FRAME_LEAST 84               /* bytes that any frame with elements takes */
enum { DTYPES = BITSNAP_F64 + 1 };

/* Most bytes of overhead of a piece: records, header, footer and blocks. */
static uint64_t overhead(const piece *x)
{
    const uint64_t blocks = x->bytes / bitsnap_width(x->form.dtype) / CELL + 1;
    return x->paired ? 110 + 36 * blocks : 80 + (x->form.columns ? 12u : 0u) + 16 * blocks;
}

/* Returns 1 if the overhead may exceed a thousandth of the bytes plus 768, what the records of the file leave of a KiB. Does not
 * count quantized tensors, which always have separate frames. */
static int is_too_much(const plan *p)
{
    uint64_t more = 0, bytes = 0;
    size_t i;
    for (i = 0; i < p->count; i++) {
        if (piece_stands_alone(&p->pieces[i])) continue;
        more += overhead(&p->pieces[i]);
        bytes += p->pieces[i].bytes;
    }
    return more > bytes / 1000 + 768;
}

/* ================================================================================= ONE DTYPE */

static int is_aligned(const piece *x, size_t n, unsigned width, bitsnap_dtype only)
{
    const uint64_t begin = x[0].begin;
    size_t i;
    for (i = 0; i < n; i++)
        if ((!only || x[i].form.dtype == only) && (x[i].begin - begin) % width) return 0;
    return (x[n - 1].begin + x[n - 1].bytes - begin) % width == 0;
}

/* Returns the widest integer type that no piece begins or ends inside of. */
static bitsnap_dtype integers_of(const piece *x, size_t n)
{
    if (is_aligned(x, n, 8, (bitsnap_dtype)0)) return BITSNAP_I64;
    if (is_aligned(x, n, 4, (bitsnap_dtype)0)) return BITSNAP_I32;
    return is_aligned(x, n, 2, (bitsnap_dtype)0) ? BITSNAP_I16 : BITSNAP_I8;
}

/* Returns the dtype of most bytes, if their elements stay aligned; else an integer type. */
static bitsnap_dtype dtype_of(const piece *x, size_t n)
{
    uint64_t bytes[DTYPES] = { 0 };
    bitsnap_dtype most = x[0].form.dtype;
    size_t i;
    for (i = 0; i < n; i++) {
        const bitsnap_dtype dtype = x[i].form.dtype;
        bytes[dtype] += x[i].bytes;
        if (bytes[dtype] > bytes[most]) most = dtype;
    }
    return is_aligned(x, n, bitsnap_width(most), most) ? most : integers_of(x, n);
}

/* Makes one piece of them, without a base. */
static piece one_of(const piece *x, size_t n, bitsnap_dtype dtype)
{
    piece all = { .form.dtype = dtype, .begin = x[0].begin, .bytes = x[n - 1].begin + x[n - 1].bytes - x[0].begin };
    return all;
}

/* ================================================================================= BY SIZE ALONE */

/* Counts the pieces, each of less than `small` bytes, that can be one frame against neighbours in the base, or without a base. */
static size_t joint_length(const piece *x, size_t n, uint64_t small)
{
    const uint64_t begin = x[0].begin;
    size_t i;
    for (i = 0; i < n; i++) {
        if (x[i].bytes >= small || piece_stands_alone(&x[i]) || x[i].begin + x[i].bytes - begin > GROUP_MOST) break;
        if (x[i].paired != x[0].paired) break;
        if (x[i].paired && (x[i].range.base != x[0].range.base || x[i].range.dtype != x[i].form.dtype || x[i].range.begin - x[0].range.begin != x[i].begin - begin)) break;
    }
    return i ? i : 1;
}

static void join(plan *p, const piece *from, size_t count, uint64_t small)
{
    size_t i, n;
    p->count = 0;
    for (i = 0; i < count; i += n) {
        piece *to = &p->pieces[p->count++];
        n = joint_length(from + i, count - i, small);
        *to = from[i];
        if (n == 1) continue;
        *to = one_of(from + i, n, dtype_of(from + i, n));
        to->paired = from[i].paired;
        to->range = from[i].range;
        to->range.dtype = to->form.dtype;
    }
}

int group_plan(plan *p, int is_delta, fault *f)
{
    const size_t count = p->count;
    uint64_t small;
    piece *from;
    p->grouped = is_too_much(p);
    if (!p->grouped || !is_delta) return 0;
    from = (piece *)malloc(count * sizeof *from);
    if (!from) return fault_memory(f);
    memcpy(from, p->pieces, count * sizeof *from);
    for (small = SMALLEST; small <= SMALL && p->grouped; small *= 2) {
        join(p, from, count, small);
        p->grouped = is_too_much(p);
    }
    free(from);
    return 0;
}

/* ================================================================================= BY WHAT IS SMALLER */

size_t group_length(const plan *p, size_t first)
{
    const piece *x = &p->pieces[first];
    const size_t count = p->grouped ? p->count - first : 1;
    size_t i;
    for (i = 0; i < count; i++)
        if (x[i].bytes >= SMALL || piece_stands_alone(&x[i]) || x[i].referred || piece_refers(&x[i]) ||
            x[i].begin + x[i].bytes - x[0].begin > GROUP_MOST) break;
    return i ? i : 1;
}

/* Consecutive frames. */
typedef struct row {
    uint8_t *bytes;
    size_t capacity, size, more; /* more: bytes of records that they need */
    piece *pieces;               /* the content of each frame, and its size */
    size_t *sizes;
    size_t count;
} row;

static int row_open(row *r, size_t capacity, size_t count, fault *f)
{
    memset(r, 0, sizeof *r);
    r->capacity = capacity;
    r->bytes = (uint8_t *)malloc(capacity);
    r->pieces = (piece *)malloc(count * sizeof *r->pieces);
    r->sizes = (size_t *)malloc(count * sizeof *r->sizes);
    return r->bytes && r->pieces && r->sizes ? 0 : fault_memory(f);
}

static void row_close(row *r)
{
    free(r->bytes);
    free(r->pieces);
    free(r->sizes);
}

/* Encodes a frame after the last one; row_take keeps it. `elements` begin with those of the first piece of the group. */
static int row_pack(row *r, file_writer *w, const piece *x, const piece *first, uint8_t *elements, fault *f)
{
    r->pieces[r->count] = *x;
    return file_pack_frame(w, &x->form, elements + (x->begin - first->begin), (size_t)x->bytes, x->paired ? &x->range : NULL,
                           r->bytes + r->size, r->capacity - r->size, &r->sizes[r->count], f);
}

/* Returns the bytes that a frame needs outside itself: in its place record, and in the end record. */
static size_t records(const piece *x) { return BITSNAP_RECORD_ENTRY + (x->paired ? (size_t)BITSNAP_PLACE_SIZE : 0); }

static void row_take(row *r)
{
    r->more += records(&r->pieces[r->count]);
    r->size += r->sizes[r->count++];
}

static int row_add(row *r, file_writer *w, const piece *x, const piece *first, uint8_t *elements, fault *f)
{
    if (row_pack(r, w, x, first, elements, f)) return 1;
    row_take(r);
    return 0;
}

/* Returns 1 if a piece is smaller as a frame than its elements. The frame is then encoded, but not kept yet. */
static int pays(row *r, file_writer *w, const piece *x, const piece *first, uint8_t *elements, int *failed, fault *f)
{
    if (x->bytes <= FRAME_LEAST) return 0;
    *failed = row_pack(r, w, x, first, elements, f);
    return !*failed && r->sizes[r->count] + records(x) < x->bytes;
}

/* Makes frames of the pieces, and one frame of consecutive pieces that do not pay alone. Sets r->count to 0 if all take at least
 * `most` bytes. */
static int row_fill(row *r, file_writer *w, const piece *x, size_t n, uint8_t *elements, size_t most, fault *f)
{
    size_t i = 0, to;
    int failed = 0;
    while (i < n && r->size + r->more < most) {
        for (to = i; to < n && !pays(r, w, &x[to], x, elements, &failed, f) && !failed; to++)
            ;
        if (failed) return 1;
        if (to - i == n) break; /* this would be one frame for all, which was tried before */
        if (to == i) {
            row_take(r);
            i++;
        } else {
            const piece all = to - i == 1 ? x[i] : one_of(x + i, to - i, dtype_of(x + i, to - i));
            if (row_add(r, w, &all, x, elements, f)) return 1;
            i = to;
        }
    }
    if (i < n || r->size + r->more >= most) r->count = 0;
    return 0;
}

int group_write(file_writer *w, const piece *x, size_t n, uint8_t *elements, fault *f)
{
    const size_t bytes = (size_t)(x[n - 1].begin + x[n - 1].bytes - x[0].begin);
    /* enough with columns, a base and a content id */
    const size_t bound = bitsnap_bound(NULL, bytes, BITSNAP_I8) + 256 + bytes / CELL * 32;
    const bitsnap_dtype dtypes[2] = { dtype_of(x, n), integers_of(x, n) };
    row rows[3];
    size_t i, best = 0, least = SIZE_MAX;
    const uint8_t *frame;
    int failed = 0;
    memset(rows, 0, sizeof rows);
    for (i = 0; i < 3 && !failed; i++) {
        row *r = &rows[i];
        if (i == 1 && dtypes[0] == dtypes[1]) continue;
        if (i < 2) {
            const piece all = one_of(x, n, dtypes[i]);
            failed = row_open(r, bound, 1, f) || row_add(r, w, &all, x, elements, f);
        } else {
            failed = row_open(r, least + bound, n + 1, f) || row_fill(r, w, x, n, elements, least, f);
        }
        if (r->count && r->size + r->more < least) {
            best = i;
            least = r->size + r->more;
        }
    }
    frame = rows[best].bytes;
    for (i = 0; i < rows[best].count && !failed; frame += rows[best].sizes[i++]) {
        const piece *p = &rows[best].pieces[i];
        const bitsnap_file_place place = { p->range.base, p->range.begin };
        failed = file_write_packed(w, frame, rows[best].sizes[i], p->bytes, p->paired ? &place : NULL, f);
    }
    for (i = 0; i < 3; i++) row_close(&rows[i]);
    return failed;
}
