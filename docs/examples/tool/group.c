/* group.c - small neighbours as one frame, so that no file grows by what frames take besides their elements.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A frame may hold any bytes as elements of any dtype (docs/FORMAT.md, section 8.4). What is coded as another dtype than its
 * own rarely gains by it, but a frame less saves a hundred bytes and more. */
#include "posix.h"

#include "group.h"

#include "record.h"

#include <stdlib.h>
#include <string.h>

#define SMALL ((uint64_t)1 << 20)    /* bytes of a piece that may stand in a group */
#define SMALLEST ((uint64_t)256)
#define CELL 65536                   /* elements of a block */
enum { WIDEST = 8, DTYPES = BITSNAP_F64 + 1 };

/* The most bytes that a piece takes besides its elements: records, header, footer and blocks. */
static uint64_t overhead(const piece *x)
{
    const uint64_t blocks = x->bytes / bitsnap_width(x->form.dtype) / CELL + 1;
    return x->paired ? 110 + 36 * blocks : 76 + (x->form.columns ? 12u : 0u) + 16 * blocks;
}

/* Whether that may be more than a thousandth of all exact ones, and half of the KiB that is left to the whole file. */
static int is_too_much(const plan *p)
{
    uint64_t more = 0, bytes = 0;
    size_t i;
    for (i = 0; i < p->count; i++) {
        if (p->pieces[i].form.cells) continue;
        more += overhead(&p->pieces[i]);
        bytes += p->pieces[i].bytes;
    }
    return more > bytes / 1000 + 512;
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

/* The widest integers that no piece begins or ends amid. */
static bitsnap_dtype integers_of(const piece *x, size_t n)
{
    if (is_aligned(x, n, 8, (bitsnap_dtype)0)) return BITSNAP_I64;
    if (is_aligned(x, n, 4, (bitsnap_dtype)0)) return BITSNAP_I32;
    return is_aligned(x, n, 2, (bitsnap_dtype)0) ? BITSNAP_I16 : BITSNAP_I8;
}

/* What most of the bytes are, if these remain whole elements; else integers. */
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

/* All of them as one, without a base. */
static piece one_of(const piece *x, size_t n, bitsnap_dtype dtype)
{
    piece all;
    memset(&all, 0, sizeof all);
    all.form.dtype = dtype;
    all.begin = x[0].begin;
    all.bytes = x[n - 1].begin + x[n - 1].bytes - all.begin;
    return all;
}

/* ================================================================================= BY SIZE ALONE */

/* How many of n pieces, each less than `small`, can be one frame against the same elements of the base, or against none. */
static size_t joint_length(const piece *x, size_t n, uint64_t small)
{
    size_t i;
    for (i = 0; i < n; i++) {
        if (x[i].bytes >= small || x[i].form.cells || x[i].paired != x[0].paired ||
            x[i].begin + x[i].bytes - x[0].begin > GROUP_MOST)
            break;
        if (x[i].paired && (x[i].range.dtype != x[i].form.dtype || x[i].range.begin - x[0].range.begin != x[i].begin - x[0].begin))
            break;
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
        to->range.begin = from[i].range.begin;
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
        if (x[i].bytes >= SMALL || x[i].form.cells || x[i].begin + x[i].bytes - x[0].begin > GROUP_MOST) break;
    return i ? i : 1;
}

/* Frames one behind the other. */
typedef struct row {
    uint8_t *bytes;
    size_t capacity, size;
    size_t *sizes;         /* of each */
    size_t count;
} row;

static int row_open(row *r, size_t capacity, size_t count, fault *f)
{
    memset(r, 0, sizeof *r);
    r->capacity = capacity;
    r->bytes = (uint8_t *)malloc(capacity);
    r->sizes = (size_t *)malloc(count * sizeof *r->sizes);
    return r->bytes && r->sizes ? 0 : fault_memory(f);
}

static void row_close(row *r)
{
    free(r->bytes);
    free(r->sizes);
}

/* Frames of these pieces, until they take `most` bytes of the file. */
static int row_fill(row *r, file_writer *w, const piece *x, size_t n, uint8_t *elements, size_t most, fault *f)
{
    size_t more = 0, size;
    for (r->size = r->count = 0; r->count < n && r->size + more < most; r->count++, x++) {
        if (file_pack_frame(w, &x->form, elements, (size_t)x->bytes, x->paired ? &x->range : NULL, r->bytes + r->size,
                            r->capacity - r->size, &size, f))
            return 1;
        elements += x->bytes;
        r->sizes[r->count] = size;
        r->size += size;
        more += 8 + (x->paired ? (size_t)PLACE_SIZE : 0);
    }
    if (r->size + more >= most) r->count = 0;
    return 0;
}

static int row_write(const row *r, file_writer *w, const piece *x, fault *f)
{
    const uint8_t *frame = r->bytes;
    size_t i;
    for (i = 0; i < r->count; frame += r->sizes[i++], x++)
        if (file_write_packed(w, frame, r->sizes[i], x->bytes, x->paired ? &x->range.begin : NULL, f)) return 1;
    return 0;
}

int group_write(file_writer *w, const piece *x, size_t n, uint8_t *elements, fault *f)
{
    const size_t bytes = (size_t)(x[n - 1].begin + x[n - 1].bytes - x[0].begin), bound = bitsnap_bound(bytes, BITSNAP_I8);
    piece one[2];
    row rows[3];
    size_t i, best = 0, least = SIZE_MAX;
    int failed = 0;
    one[0] = one_of(x, n, dtype_of(x, n));
    one[1] = one_of(x, n, integers_of(x, n));
    memset(rows, 0, sizeof rows);
    for (i = 0; i < 3 && !failed; i++) {
        row *r = &rows[i];
        if (i == 1 && one[0].form.dtype == one[1].form.dtype) continue;
        failed = row_open(r, i < 2 ? bound : least + bound, i < 2 ? 1 : n, f) ||
                 row_fill(r, w, i < 2 ? &one[i] : x, i < 2 ? 1 : n, elements, least, f);
        if (r->count) {
            best = i;
            least = r->size + 8; /* with its entry in the end record; nothing comes behind the row of several */
        }
    }
    failed = failed || row_write(&rows[best], w, best < 2 ? &one[best] : x, f);
    for (i = 0; i < 3; i++) row_close(&rows[i]);
    return failed;
}
