/* delta.c - what a delta is: the files that it is between, and its frames; two that follow each other as one, and the way back.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Without the base they are put together frame by frame, as far as docs/FORMAT.md, section 6.4 goes. */
#include "../system/posix.h"

#include "delta.h"

#include <stdlib.h>
#include <string.h>

#define GIVE_BASE "give the base with -b"
#define IN_ORDER "; give deltas in the order that they were made in"

/* ================================================================================= ENDS */

static void *copy(const void *bytes, size_t size)
{
    void *p = malloc(size ? size : 1);
    if (p && size) memcpy(p, bytes, size);
    return p;
}

delta_end delta_end_of(const char *text, size_t text_size, uint64_t data_size)
{
    delta_end e = { .text_size = text_size, .data_size = data_size, .text_id = bitsnap_hash(text, text_size) };
    return e;
}

static int texts_agree(const delta_end *a, const delta_end *b) { return a->text_size == b->text_size && a->text_id == b->text_id; }

int delta_ends_agree(const delta_end *a, const delta_end *b) { return texts_agree(a, b) && a->data_size == b->data_size; }

/* Copies the bases to one allocation, followed by their names. */
static int copy_bases(delta_ends *l, const delta_end *bases, size_t count, fault *f)
{
    size_t size = count * sizeof *bases, i;
    char *name;
    for (i = 0; i < count; i++) size += (bases[i].name ? strlen(bases[i].name) : 0) + 1;
    l->bases = (delta_end *)malloc(size);
    if (!l->bases) return fault_memory(f);
    memcpy(l->bases, bases, count * sizeof *bases);
    l->base_count = count;
    name = (char *)(l->bases + count);
    for (i = 0; i < count; i++) {
        l->bases[i].file = NULL;
        l->bases[i].name = strcpy(name, bases[i].name ? bases[i].name : "");
        name += strlen(name) + 1;
    }
    return 0;
}

static int copy_ends(delta_ends *l, const delta_end *bases, size_t count, const char *base_text, const delta_end *own, const char *own_text,
                     fault *f)
{
    memset(l, 0, sizeof *l);
    if (copy_bases(l, bases, count, f)) return 1;
    l->own = *own;
    l->own.name = NULL;
    l->base_text = base_text ? (char *)copy(base_text, (size_t)bases->text_size) : NULL;
    l->own_text = own_text ? (char *)copy(own_text, (size_t)own->text_size) : NULL;
    return (base_text && !l->base_text) || (own_text && !l->own_text) ? fault_memory(f) : 0;
}

int delta_make_ends(delta_ends *l, const delta_end *bases, size_t count, const char *base_text, const delta_end *own, const char *own_text,
                    int with_base_text, fault *f)
{
    if (copy_ends(l, bases, count, base_text, own, own_text, f)) return 1;
    if (texts_agree(bases, own)) return 0;
    return text_encode(&l->coded, &l->coded_size, own_text, (size_t)own->text_size, f) ||
           (with_base_text && text_encode(&l->base_coded, &l->base_coded_size, base_text, (size_t)bases->text_size, f));
}

int delta_take_ends(delta_ends *l, const bitsnap_file_start *s, fault *f)
{
    l->own.text_size = s->text_size;
    l->own.data_size = s->source_size - 8 - s->text_size;
    l->own.text_id = s->text_id;
    return copy_bases(l, s->bases, s->base_count, f);
}

/* Gives the text of an end: a copy of `known`, or if that is null the decoded text. Fails if its id is wrong. */
static int find_text(char **text, const delta_end *e, const char *known, const uint8_t *coded, size_t coded_size, fault *f)
{
    const size_t size = (size_t)e->text_size;
    *text = (char *)malloc(size + 1);
    if (!*text) return fault_memory(f);
    if (known) memcpy(*text, known, size);
    else if (text_decode(*text, size, coded, coded_size, f)) return 1;
    return bitsnap_hash(*text, size) == e->text_id ? 0 : fault_set(f, "damaged text: it is not the one that was coded (S16)");
}

int delta_find_texts(delta_ends *l, const char *base_text, fault *f)
{
    if (!l->base_text && (base_text || l->base_coded_size) &&
        find_text(&l->base_text, l->bases, base_text, l->base_coded, l->base_coded_size, f)) return 1;
    if (l->own_text || (!l->base_text && !l->coded_size)) return 0;
    return find_text(&l->own_text, &l->own, l->coded_size ? NULL : l->base_text, l->coded, l->coded_size, f);
}

/* Copies coded texts of other ends: its own text from `own`, the text of the base from `base`. */
static int copy_coded(delta_ends *l, const delta_ends *own, const delta_ends *base, fault *f)
{
    l->coded = (uint8_t *)copy(own->coded, own->coded_size);
    l->base_coded = (uint8_t *)copy(base->base_coded, base->base_coded_size);
    l->coded_size = own->coded_size;
    l->base_coded_size = base->base_coded_size;
    return l->coded && l->base_coded ? 0 : fault_memory(f);
}

/* Makes the ends of the merged delta: the base of `a`, and the file of `b`. */
static int join_ends(delta_ends *l, delta_ends *a, delta_ends *b, fault *f)
{
    memset(l, 0, sizeof *l);
    if (delta_find_texts(a, NULL, f) || delta_find_texts(b, a->own_text, f)) return 1;
    if (copy_ends(l, a->bases, 1, a->base_text, &b->own, b->own_text, f)) return 1;
    return texts_agree(a->bases, &b->own) ? 0 : copy_coded(l, b->coded_size ? b : a, a->coded_size ? a : b, f);
}

/* Makes the ends of the inverse. */
static int turn_ends(delta_ends *l, delta_ends *a, fault *f)
{
    memset(l, 0, sizeof *l);
    if (a->coded_size && delta_find_texts(a, NULL, f)) return 1;
    if (!a->coded_size) return copy_ends(l, &a->own, 1, a->own_text, a->bases, a->base_text, f);
    if (!a->base_text || !a->own_text) return fault_set(f, "it does not hold the header text of its base: give the base with -b");
    return delta_make_ends(l, &a->own, 1, a->own_text, a->bases, a->base_text, 1, f);
}

void delta_ends_free(delta_ends *l)
{
    free(l->bases);
    free(l->base_text);
    free(l->own_text);
    free(l->coded);
    free(l->base_coded);
    memset(l, 0, sizeof *l);
}

/* ================================================================================= FRAMES */

int delta_note_frame(delta *d, const file_frame *about, fault *f)
{
    delta_frame *frame = (delta_frame *)grown(d->frames, d->count, &d->capacity, sizeof *frame, f);
    if (!frame) return 1;
    d->frames = frame;
    frame = &d->frames[d->count++];
    frame->about = *about;
    return 0;
}

int delta_take(delta *d, file_reader *r, fault *f)
{
    d->ends = r->ends;
    memset(&r->ends, 0, sizeof r->ends);
    if (r->s.start.kind != BITSNAP_SOURCE_DELTA && r->text) {
        d->ends.own = delta_end_of(r->text, r->text_size, r->s.source_size - 8 - r->text_size);
        d->ends.own_text = (char *)copy(r->text, r->text_size);
        return d->ends.own_text ? 0 : fault_memory(f);
    }
    d->ends.own_text = r->text;
    r->text = NULL;
    return 0;
}

/* Frame observer: adds frames that have elements. */
static int note_frame(void *context, const file_frame *about, fault *f)
{
    if (frame_refers(about))
        return fault_set(f, "has frames that refer to earlier data of the same file, and cannot be merged or inverted without the base: "
                         GIVE_BASE);
    return about->info.count ? delta_note_frame((delta *)context, about, f) : 0;
}

static int open_file(delta *d, codec *c, const char *path, fault *f)
{
    file_reader r;
    size_t i;
    int failed;
    if (input_open(&d->in, path, f) || input_note(&d->in, path, &c->used, f) || input_settle(&d->in, f)) return 1;
    failed = file_look_begin(&r, c, &d->in, NULL, f);
    if (!failed && r.s.start.kind != BITSNAP_SOURCE_DELTA) failed = fault_set(f, "is a whole file, not a delta; bitsnap compress -b makes deltas");
    if (!failed && r.ends.base_count > 1) failed = fault_set(f, "is a delta against several files, which cannot be merged or inverted; restore it");
    r.frame_observer.note = note_frame;
    r.frame_observer.context = d;
    failed = failed || file_look(&r, f) || input_map(&d->in, f);
    if (!failed) {
        failed = delta_take(d, &r, f);
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
    return open_file(d, c, path, f) ? fault_in(f, shown_name(path)) : 0;
}

void delta_close(delta *d)
{
    size_t i;
    for (i = 0; i < d->count; i++) free(d->frames[i].owned);
    free(d->frames);
    delta_ends_free(&d->ends);
    input_close(&d->in);
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
}

static unsigned block_log2_of(const delta_frame *x)
{
    bitsnap_info info;
    return x && !bitsnap_read_info(&info, x->bytes, x->size) && info.block_log2 > 16 ? info.block_log2 : 16;
}

/* Returns enough capacity for a frame of the same elements; 0 on failure. */
static size_t bound_of(const delta_frame *x)
{
    bitsnap_info info;
    return bitsnap_read_info(&info, x->bytes, x->size) ? 0 : (size_t)info.bound;
}

/* Makes a codec for these frames, with one thread and a workspace for their blocks. `y` may be null. */
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
        return fault_set(f, "frame %zu needs elements of the base, because it was not made with --self-contained: " GIVE_BASE, number);
    return fault_set(f, "frame %zu: %s", number, bitsnap_message(b));
}

/* Appends a frame to d, with `capacity` bytes for the caller to fill. */
static delta_frame *add_frame(delta *d, const file_frame *about, size_t capacity, fault *f)
{
    uint8_t *bytes = (uint8_t *)malloc(capacity ? capacity : 1);
    if (!bytes || delta_note_frame(d, about, f)) {
        free(bytes);
        (void)fault_memory(f);
        return NULL;
    }
    d->frames[d->count - 1].bytes = d->frames[d->count - 1].owned = bytes;
    return &d->frames[d->count - 1];
}

/* Releases the memory that the frame does not use. */
static void trim(delta_frame *frame)
{
    uint8_t *less = (uint8_t *)realloc(frame->owned, frame->size ? frame->size : 1);
    if (less) frame->bytes = frame->owned = less;
}

/* Decodes `x`, which has no base, then `y` against it, and encodes the result without a base. */
static bitsnap_status encode_again(bitsnap *b, delta_frame *to, size_t capacity, const delta_frame *x, const delta_frame *y)
{
    const uint64_t count = y->about.info.count;
    uint8_t *before = (uint8_t *)malloc((size_t)x->about.info.elements_size), *after = (uint8_t *)malloc((size_t)y->about.info.elements_size);
    bitsnap_status status = before && after ? BITSNAP_OK : BITSNAP_E_WORKSPACE;
    if (!status) status = bitsnap_decode(b, before, count, x->about.info.dtype, x->bytes, x->size);
    b->base.data = before;
    b->base.count = count;
    b->base.dtype = x->about.info.dtype;
    if (!status) status = bitsnap_decode(b, after, count, y->about.info.dtype, y->bytes, y->size);
    memset(&b->base, 0, sizeof b->base);
    if (!status) status = bitsnap_encode(b, to->owned, capacity, &to->size, after, count, y->about.info.dtype);
    free(before);
    free(after);
    return status;
}

/* Merges frame y of the second delta with frame x of the first, which holds its base, and appends the result to d. If x is null,
 * y has no base and is copied. */
static int join_frames(delta *d, codec *c, const delta_frame *x, const delta_frame *y, uint64_t limit, size_t number, fault *f)
{
    const size_t capacity = x ? bound_of(y) : y->size;
    file_frame about = y->about;
    delta_frame *to;
    bitsnap_status status;
    bitsnap b;
    int failed = 0;
    about.info.has_base = x && x->about.info.has_base;
    about.info.base_dtype = x ? x->about.info.base_dtype : about.info.base_dtype;
    about.base = x ? x->about.base : 0;
    about.base_begin = x ? x->about.base_begin : 0;
    if (!capacity) return fault_memory(f);
    if (x && !x->about.info.has_base && file_check_limit(y->about.info.elements_size, y->about.info.elements_size, x->size + y->size, limit, f)) return 1;
    to = add_frame(d, &about, capacity, f);
    if (!to) return 1;
    if (codec_for(&b, c, y, x, f)) return 1;
    if (!x) {
        to->size = y->size;
        memcpy(to->owned, y->bytes, y->size);
        status = bitsnap_test(&b, y->bytes, y->size);
    } else if (!x->about.info.has_base) {
        status = encode_again(&b, to, capacity, x, y);
    } else {
        status = bitsnap_merge(&b, to->owned, capacity, &to->size, x->bytes, x->size, y->bytes, y->size);
    }
    if (status && x && x->about.info.has_base && block_log2_of(x) != block_log2_of(y))
        failed = fault_set(f, "frame %zu has cells of another size in each delta: " GIVE_BASE, number);
    else if (status) failed = frame_failed(&b, number, f);
    free(b.workspace);
    trim(to);
    return failed;
}

/* Returns the frame whose elements begin at this byte of the data, or null. */
static const delta_frame *frame_at(const delta *d, uint64_t begin)
{
    size_t low = 0, high = d->count;
    while (low < high) { /* a frame without elements begins where the next one does */
        const size_t middle = low + (high - low) / 2;
        if (d->frames[middle].about.begin + d->frames[middle].about.info.elements_size <= begin) low = middle + 1;
        else high = middle;
    }
    return low < d->count && d->frames[low].about.begin == begin ? &d->frames[low] : NULL;
}

/* Returns 1 if `x` holds the elements that `y` is coded against. */
static int holds(const delta_frame *x, const file_frame *y)
{
    return x && x->about.info.count == y->info.count && x->about.info.dtype == y->info.base_dtype;
}

int delta_follows(const delta *before, const delta *x, char *why)
{
    size_t i, unknown = 0;
    if (x->ends.base_count > 1) {
        (void)snprintf(why, 96, "it was made against several files");
        return 0;
    }
    if (!delta_ends_agree(&before->ends.own, x->ends.bases)) {
        (void)snprintf(why, 96, "it was made against another header");
        return 0;
    }
    for (i = 0; i < x->count; i++) {
        const file_frame *a = &x->frames[i].about;
        const delta_frame *b = a->info.has_base && !frame_refers(a) ? frame_at(before, a->base_begin) : NULL;
        if (!a->info.has_base || !a->info.count || frame_refers(a)) continue;
        if (!holds(b, a) || !b->about.info.has_content_id) {
            unknown++;
        } else if (b->about.info.content_id != a->info.base_id) {
            (void)snprintf(why, 96, "frame %zu was made against other elements", i);
            return 0;
        }
    }
    *why = 0;
    if (unknown) (void)snprintf(why, 96, ", except for %zu frames, which are cut differently and were not compared", unknown);
    return 1;
}

int delta_join(delta *d, codec *c, delta *a, delta *b, uint64_t limit, fault *f)
{
    size_t i;
    memset(d, 0, sizeof *d);
    d->in.fd = -1;
    if (!delta_ends_agree(&a->ends.own, b->ends.bases)) return fault_set(f, "does not follow the delta before it: it was made against another header" IN_ORDER);
    if (join_ends(&d->ends, &a->ends, &b->ends, f)) return 1;
    for (i = 0; i < b->count; i++) {
        const delta_frame *y = &b->frames[i], *x = NULL;
        if (y->about.info.has_base) {
            x = frame_at(a, y->about.base_begin);
            if (!holds(x, &y->about) || (frame_role(&y->about) > 1 && x->about.info.has_base))
                return fault_set(f, "frame %zu cannot be merged with one of the delta before: " GIVE_BASE, i);
            if (x->about.info.has_content_id && y->about.info.base_id != x->about.info.content_id)
                return fault_set(f, "does not follow the delta before it: frame %zu was made against other elements" IN_ORDER, i);
        }
        if (join_frames(d, c, x, y, limit, i, f)) return 1;
    }
    return 0;
}

static int by_place(const void *x, const void *y)
{
    const uint64_t a = (*(const delta_frame *const *)x)->about.base_begin, b = (*(const delta_frame *const *)y)->about.base_begin;
    return (a > b) - (a < b);
}

static int turn_frame(delta *d, codec *c, const delta_frame *x, fault *f)
{
    const size_t number = d->count, capacity = bound_of(x);
    file_frame about = x->about;
    delta_frame *to;
    bitsnap b;
    int failed = 0;
    about.begin = x->about.base_begin;
    about.base_begin = x->about.begin;
    if (!capacity) return fault_memory(f);
    to = add_frame(d, &about, capacity, f);
    if (!to) return 1;
    if (codec_for(&b, c, x, NULL, f)) return 1;
    if (bitsnap_invert(&b, to->owned, capacity, &to->size, x->bytes, x->size)) {
        bitsnap_info info;
        /* cells that were smaller without the base; any delta can have some */
        if (b.error.status == BITSNAP_E_UNSUPPORTED && !bitsnap_read_info(&info, x->bytes, x->size) && info.plain)
            failed = fault_set(f, "frame %zu has %llu of %llu cells that are coded without the base, which alone has their old elements: "
                               GIVE_BASE, number, (unsigned long long)info.plain, (unsigned long long)info.blocks);
        else failed = frame_failed(&b, number, f);
    }
    free(b.workspace);
    trim(to);
    return failed;
}

/* Inverts the frames in the order of their elements in the base. These must cover all of the base. */
static int turn_frames(delta *d, codec *c, const delta *a, const delta_frame **sorted, fault *f)
{
    uint64_t at = 0;
    size_t i, n = 0;
    for (i = 0; i < a->count; i++) {
        if (frame_role(&a->frames[i].about) > 1) return fault_set(f, "frame %zu is against a cast, which has no inverse: " GIVE_BASE, i);
        if (a->frames[i].about.info.has_base) sorted[n++] = &a->frames[i];
    }
    if (n) qsort((void *)sorted, n, sizeof *sorted, by_place);
    for (i = 0; i < n; at += sorted[i++]->about.info.elements_size)
        if (sorted[i]->about.base_begin != at) break;
    if (i < n || at != a->ends.bases->data_size) return fault_set(f, "it does not have every element of the base exactly once: " GIVE_BASE);
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
    if (turn_ends(&d->ends, &a->ends, f)) return 1;
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
    int failed = file_write_delta(&w, c, out, &d->ends, NULL, 0, f);
    for (i = 0; i < d->count && !failed; i++) {
        const delta_frame *x = &d->frames[i];
        const bitsnap_file_place place = { x->about.base, x->about.base_begin };
        failed = file_write_packed(&w, x->bytes, x->size, x->about.info.elements_size, x->about.info.has_base ? &place : NULL, f);
    }
    failed = failed || file_write_end(&w, f);
    file_write_close(&w);
    return failed;
}
