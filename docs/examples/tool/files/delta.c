/* delta.c - deltas as wholes: two that follow each other as one, and the way back.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Without the base: frame by frame, as far as docs/FORMAT.md, section 6.4 goes. */
#include "../system/posix.h"

#include "delta.h"

#include <stdlib.h>
#include <string.h>

#define GIVE_BASE "give the base with -b"
#define IN_ORDER "; give deltas in the order in which they were made"

static int note_frame(void *context, const file_frame *about, fault *f)
{
    delta *d = (delta *)context;
    delta_frame *frame;
    if (!about->count) return 0; /* nothing in it */
    frame = (delta_frame *)grown(d->frames, d->count, &d->capacity, sizeof *frame, f);
    if (!frame) return 1;
    d->frames = frame;
    frame = &d->frames[d->count++];
    memset(frame, 0, sizeof *frame);
    frame->about = *about;
    return 0;
}

static int open_file(delta *d, codec *c, const char *path, fault *f)
{
    file_reader r;
    size_t i;
    int failed;
    if (input_open(&d->in, path, f) || input_note(&d->in, path, &c->used, f) || input_settle(&d->in, f)) return 1;
    failed = file_look_begin(&r, c, &d->in, NULL, f);
    if (!failed && r.s.start.kind != BITSNAP_SOURCE_DELTA) failed = fault_set(f, "is no delta but a whole file; bitsnap compress -b makes deltas");
    if (!failed && r.link.base.next) failed = fault_set(f, "is a delta against several files, of which deltas cannot be put together, nor turned; restore it");
    r.frame_observer.note = note_frame;
    r.frame_observer.context = d;
    failed = failed || file_look(&r, f) || input_map(&d->in, f);
    if (!failed) {
        d->link = r.link;
        memset(&r.link, 0, sizeof r.link);
        d->link.own.text = r.text;
        r.text = NULL;
        for (i = 0; i < d->count; i++) {
            d->frames[i].bytes = d->in.map + d->frames[i].about.at;
            d->frames[i].size = (size_t)d->frames[i].about.size;
        }
    }
    file_read_close(&r);
    return failed;
}

int delta_open(delta *d, codec *c, const char *path, fault *f)
{
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
    return open_file(d, c, path, f) ? fault_in(f, strcmp(path, "-") ? path : "(standard input)") : 0;
}

void delta_close(delta *d)
{
    size_t i;
    for (i = 0; i < d->count; i++) free(d->frames[i].owned);
    free(d->frames);
    link_free(&d->link);
    input_close(&d->in);
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
}

/* ================================================================================= FRAMES */

static unsigned block_log2_of(const delta_frame *x)
{
    bitsnap_info info;
    return x && !bitsnap_read_info(&info, x->bytes, x->size) && info.block_log2 > 16 ? info.block_log2 : 16;
}

/* Room for a frame like this one. */
static size_t bound_of(const delta_frame *x)
{
    bitsnap_info info;
    return bitsnap_read_info(&info, x->bytes, x->size) ? 0 : (size_t)info.bound;
}

/* A codec of its own for frames: one thread, and memory for blocks as large as theirs. `y` may be null. */
static int codec_for(bitsnap *b, const codec *c, const delta_frame *x, const delta_frame *y, fault *f)
{
    const unsigned one = block_log2_of(x), other = block_log2_of(y);
    memset(b, 0, sizeof *b);
    b->level = c->b.level;
    b->flags = c->b.flags;
    b->workspace_size = codec_workspace(c, one > other ? one : other, 2, 1);
    b->workspace = malloc(b->workspace_size);
    return b->workspace ? 0 : fault_memory(f);
}

static int frame_failed(const bitsnap *b, size_t number, fault *f)
{
    if (b->error.status == BITSNAP_E_UNSUPPORTED)
        return fault_set(f, "frame %zu takes elements of the base, as it was not made with --self-contained: " GIVE_BASE, number);
    return fault_set(f, "frame %zu: %s", number, bitsnap_message(b));
}

/* A new frame of d, which stands for as many elements as `like`; its bytes are to be filled. */
static delta_frame *add_frame(delta *d, const file_frame *about, size_t capacity, fault *f)
{
    uint8_t *bytes = (uint8_t *)malloc(capacity ? capacity : 1);
    if (!bytes || note_frame(d, about, f)) {
        free(bytes);
        (void)fault_memory(f);
        return NULL;
    }
    d->frames[d->count - 1].bytes = d->frames[d->count - 1].owned = bytes;
    return &d->frames[d->count - 1];
}

/* Memory that is not needed goes back. */
static void trim(delta_frame *frame)
{
    uint8_t *less = (uint8_t *)realloc(frame->owned, frame->size ? frame->size : 1);
    if (less) frame->bytes = frame->owned = less;
}

/* Elements of `x`, which has no base, with those of `y`, which is against them: a frame without a base. */
static bitsnap_status encode_again(bitsnap *b, delta_frame *to, size_t capacity, const delta_frame *x, const delta_frame *y)
{
    const uint64_t count = y->about.count;
    uint8_t *before = (uint8_t *)malloc((size_t)x->about.bytes), *after = (uint8_t *)malloc((size_t)y->about.bytes);
    bitsnap_status status = before && after ? BITSNAP_OK : BITSNAP_E_WORKSPACE;
    if (!status) status = bitsnap_decode(b, before, count, x->about.dtype, x->bytes, x->size);
    b->base.data = before;
    b->base.count = count;
    b->base.dtype = x->about.dtype;
    if (!status) status = bitsnap_decode(b, after, count, y->about.dtype, y->bytes, y->size);
    memset(&b->base, 0, sizeof b->base);
    if (!status) status = bitsnap_encode(b, to->owned, capacity, &to->size, after, count, y->about.dtype);
    free(before);
    free(after);
    return status;
}

/* The frame y of the second delta, and x of the first, which holds its base (null: y has none), as one of d. */
static int join_frames(delta *d, codec *c, const delta_frame *x, const delta_frame *y, uint64_t limit, size_t number, fault *f)
{
    const size_t capacity = x ? bound_of(y) : y->size;
    file_frame about = y->about;
    delta_frame *to;
    bitsnap_status status;
    bitsnap b;
    int failed = 0;
    about.role = x ? x->about.role : 0;
    if (x) about.range = x->about.range;
    if (!capacity) return fault_memory(f);
    if (x && !x->about.role && file_check_limit(y->about.bytes, y->about.bytes, x->size + y->size, limit, f)) return 1;
    to = add_frame(d, &about, capacity, f);
    if (!to) return 1;
    if (codec_for(&b, c, y, x, f)) return 1;
    if (!x) {
        to->size = y->size;
        memcpy(to->owned, y->bytes, y->size);
        status = bitsnap_test(&b, y->bytes, y->size);
    } else if (!x->about.role) {
        status = encode_again(&b, to, capacity, x, y);
    } else {
        status = bitsnap_merge(&b, to->owned, capacity, &to->size, x->bytes, x->size, y->bytes, y->size);
    }
    if (status && x && x->about.role && block_log2_of(x) != block_log2_of(y))
        failed = fault_set(f, "frame %zu has cells of another size in each delta: " GIVE_BASE, number);
    else if (status) failed = frame_failed(&b, number, f);
    free(b.workspace);
    trim(to);
    return failed;
}

static const delta_frame *frame_at(const delta *d, const file_range *range, uint64_t count)
{
    size_t low = 0, high = d->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (d->frames[middle].about.begin < range->begin) low = middle + 1;
        else high = middle;
    }
    if (low == d->count || d->frames[low].about.begin != range->begin || d->frames[low].about.count != count ||
        d->frames[low].about.dtype != range->dtype)
        return NULL;
    return &d->frames[low];
}

int delta_join(delta *d, codec *c, delta *a, delta *b, uint64_t limit, fault *f)
{
    size_t i;
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
    if (!link_ends_agree(&a->link.own, &b->link.base)) return fault_set(f, "does not follow the delta before it: it was made against another header" IN_ORDER);
    if (link_join(&d->link, &a->link, &b->link, f)) return 1;
    for (i = 0; i < b->count; i++) {
        const delta_frame *y = &b->frames[i], *x = NULL;
        if (y->about.role) {
            x = frame_at(a, &y->about.range, y->about.count);
            if (!x || (y->about.role == 2 && x->about.role))
                return fault_set(f, "frame %zu does not go together with one of the delta before: " GIVE_BASE, i);
            if (x->about.has_id && y->about.base_id != x->about.id)
                return fault_set(f, "does not follow the delta before it: frame %zu was made against other elements" IN_ORDER, i);
        }
        if (join_frames(d, c, x, y, limit, i, f)) return 1;
    }
    return 0;
}

static int by_place(const void *x, const void *y)
{
    const uint64_t a = (*(const delta_frame *const *)x)->about.range.begin, b = (*(const delta_frame *const *)y)->about.range.begin;
    return (a > b) - (a < b);
}

static int turn_frame(delta *d, codec *c, const delta_frame *x, fault *f)
{
    const size_t number = d->count, capacity = bound_of(x);
    file_frame about = x->about;
    delta_frame *to;
    bitsnap b;
    int failed = 0;
    about.begin = x->about.range.begin;
    about.range.begin = x->about.begin;
    if (!capacity) return fault_memory(f);
    to = add_frame(d, &about, capacity, f);
    if (!to) return 1;
    if (codec_for(&b, c, x, NULL, f)) return 1;
    if (bitsnap_invert(&b, to->owned, capacity, &to->size, x->bytes, x->size)) {
        bitsnap_info info;
        /* what was smaller without the base, in a delta of whatever kind */
        if (b.error.status == BITSNAP_E_UNSUPPORTED && !bitsnap_read_info(&info, x->bytes, x->size) && info.plain)
            failed = fault_set(f, "frame %zu has %llu of %llu cells that are coded without the base, which alone tells what was there: "
                               GIVE_BASE, number, (unsigned long long)info.plain, (unsigned long long)info.blocks);
        else failed = frame_failed(&b, number, f);
    }
    free(b.workspace);
    trim(to);
    return failed;
}

/* The frames against elements of the base, sorted by their places there; they must be all of it. */
static int turn_frames(delta *d, codec *c, const delta *a, const delta_frame **sorted, fault *f)
{
    uint64_t at = 0;
    size_t i, n = 0;
    for (i = 0; i < a->count; i++) {
        if (a->frames[i].about.role == 2) return fault_set(f, "frame %zu is against a cast, which has no inverse: " GIVE_BASE, i);
        if (a->frames[i].about.role) sorted[n++] = &a->frames[i];
    }
    if (n) qsort((void *)sorted, n, sizeof *sorted, by_place);
    for (i = 0; i < n; at += sorted[i++]->about.bytes)
        if (sorted[i]->about.range.begin != at) break;
    if (i < n || at != a->link.base.data_size) return fault_set(f, "not every element of the base is in it once: " GIVE_BASE);
    for (i = 0; i < n; i++)
        if (turn_frame(d, c, sorted[i], f)) return 1;
    return 0;
}

int delta_turn(delta *d, codec *c, delta *a, fault *f)
{
    const delta_frame **sorted;
    int failed;
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
    if (link_turn(&d->link, &a->link, f)) return 1;
    sorted = (const delta_frame **)malloc((a->count + 1) * sizeof *sorted);
    if (!sorted) return fault_memory(f);
    failed = turn_frames(d, c, a, sorted, f);
    free((void *)sorted);
    return failed;
}

int delta_write(const delta *d, codec *c, output *out, fault *f)
{
    file_writer w;
    size_t i;
    int failed = file_write_delta(&w, c, out, &d->link, NULL, f);
    for (i = 0; i < d->count && !failed; i++) {
        const delta_frame *x = &d->frames[i];
        failed = file_write_packed(&w, x->bytes, x->size, x->about.bytes, x->about.role ? &x->about.range : NULL, f);
    }
    failed = failed || file_write_end(&w, f);
    file_write_close(&w);
    return failed;
}
