/* file.c - reading .bsnap files: docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "file.h"

#include "bytes.h"
#include "foreign.h"
#include "block.h"
#include "container.h"

#include <stdlib.h>
#include <string.h>

#define GIB ((uint64_t)1 << 30)

const char *size_text(char *text, uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double x = (double)bytes;
    size_t i = 0;
    for (; x >= 1024 && i < 6; i++) x /= 1024;
    (void)snprintf(text, 32, i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return text;
}

enum { FLAG_CHECKS = 1, FLAG_QUANTIZED = 4 }; /* of frames */

int file_is_bsnap(const uint8_t *bytes, size_t size) { return size >= 8 && !memcmp(bytes, BITSNAP_FILE_MAGIC, 8); }

int file_is_delta(const uint8_t *bytes, size_t size)
{
    return size >= 10 && file_is_bsnap(bytes, size) && bytes[9] == BITSNAP_SOURCE_DELTA;
}

void file_note_blocks(const block_observer *o, const bitsnap_decoder *s, uint64_t *noted, const uint8_t *p, size_t size)
{
    const block_kind kind = { s->width, s->block_log2, (int)(s->flags & FLAG_CHECKS), s->role != 0 };
    while (size) {
        const block_size b = block_look(p, &kind, s->count - *noted);
        if (o->note) o->note(o->context, b.elements * s->width, b.whole);
        if (o->against && (b.form == FORM_SAME || b.form == FORM_CLASSED || b.form == FORM_SPARSE)) *o->against += b.elements * s->width;
        *noted += b.elements;
        p += (size_t)b.whole;
        size -= (size_t)b.whole;
    }
}

/* ---- ranges of bases ---- */

const file_base *file_base_of(const file_base *bases, const file_range *range, uint64_t count, fault *f)
{
    unsigned i;
    for (i = 0; bases && i < range->base; i++) bases = bases->next;
    if (bases && range->begin <= bases->data_size && count <= (bases->data_size - range->begin) / bitsnap_width(range->dtype)) return bases;
    (void)fault_set(f, "a frame that needs elements beyond the end of its base");
    return NULL;
}

int file_base_id(const file_base *base, const codec *c, const file_range *range, uint64_t count, uint64_t *id, fault *f)
{
    enum { LEAF = 1 << 16, LEAVES = 64 }; /* docs/FORMAT.md, section 7 */
    const size_t size = (size_t)LEAF * bitsnap_width(range->dtype);
    const uint64_t bytes = count * bitsnap_width(range->dtype), leaves = count / LEAF + (count % LEAF != 0);
    uint8_t *hashes, *p;
    uint64_t at, n = 0;
    int failed = 0;
    *id = base->id ? base->id(base, range->begin, count, range->dtype) : 0;
    if (*id) return 0;
    hashes = leaves < SIZE_MAX / 8 - 2 ? (uint8_t *)malloc((size_t)leaves * 8 + 16) : NULL;
    p = (uint8_t *)malloc(LEAVES * size);
    if (!hashes || !p) failed = fault_memory(f);
    for (at = 0; at < bytes && !failed;) {
        const size_t some = bytes - at < LEAVES * size ? (size_t)(bytes - at) : LEAVES * size;
        size_t k, m;
        failed = base->read(base, c, range->begin + at, p, some, f);
        for (k = 0; k < some && !failed; k += m) {
            m = some - k < size ? some - k : size;
            store64(hashes + 8 * n++, bitsnap_hash(p + k, m));
        }
        at += some;
    }
    if (!failed) {
        store64(hashes + 8 * n, range->dtype);
        store64(hashes + 8 * n + 8, count);
        *id = bitsnap_hash(hashes, (size_t)n * 8 + 16);
    }
    free(hashes);
    free(p);
    return failed;
}

static int load(codec *c, file_used *used, uint64_t first, uint64_t n, fault *f)
{
    const unsigned width = bitsnap_width(used->range.dtype);
    const size_t size = (size_t)n * width;
    bitsnap_base *b = &c->b.base;
    if (!used->window || used->room < size) {
        free(used->window);
        used->window = (uint8_t *)malloc(size ? size : 1);
        used->room = used->window ? size : 0;
        if (!used->window) return fault_memory(f);
    }
    if (used->base->read(used->base, c, used->range.begin + first * width, used->window, size, f)) return 1;
    swap_elements(used->window, size, width);
    b->data = used->window;
    b->first = first;
    b->held = n;
    used->filled = 1;
    return 0;
}

int file_use_range(codec *c, file_used *used, const file_base *bases, const file_range *range, uint64_t count, int coding, fault *f)
{
    enum { LITTLE = 1 << 16 };
    bitsnap_base *b = &c->b.base;
    used->base = file_base_of(bases, range, count, f);
    if (!used->base) return 1;
    used->range = *range;
    used->count = count;
    used->filled = 0;
    memset(b, 0, sizeof *b);
    b->count = count;
    b->dtype = range->dtype;
    if (count <= LITTLE) return load(c, used, 0, count, f); /* which tells its id */
    b->data = &b->held; /* not looked at before there is a window */
    b->held = 1;
    return coding && file_base_id(used->base, c, range, count, &b->id, f);
}

int file_use_blocks(codec *c, file_used *used, uint64_t first, unsigned block_log2, fault *f)
{
    const bitsnap_base *b = &c->b.base;
    const uint64_t most = (uint64_t)c->b.workers << block_log2;
    if (!used->base || (used->filled && first >= b->first && first - b->first < b->held)) return 0;
    return load(c, used, first, used->count - first < most ? used->count - first : most, f);
}

void file_release_range(codec *c, file_used *used)
{
    used->base = NULL;
    memset(&c->b.base, 0, sizeof c->b.base);
}

void file_used_free(file_used *used)
{
    free(used->window);
    memset(used, 0, sizeof *used);
}

/* ================================================================================= READING */

#define DAMAGED "; take another copy of the file"

/* `rule`: the number of the condition in docs/FORMAT.md, section 9. */
static int fail_at(fault *f, unsigned rule, uint64_t at, const char *what)
{
    return fault_set(f, "%s (S%u, byte %llu)" DAMAGED, what, rule, (unsigned long long)at);
}

static int fail_truncated(const file_reader *r, fault *f)
{
    return fault_set(f, "truncated: it ends at byte %llu, before its end record (S4); take another copy of the file",
                     (unsigned long long)(r->in->offset + input_available(r->in)));
}

/* The next n bytes are in the window, or this fails. */
static int want(file_reader *r, size_t n, fault *f)
{
    if (input_available(r->in) >= n) return 0;
    if (input_fill(r->in, n, f)) return 1;
    return input_available(r->in) < n ? fail_truncated(r, f) : 0;
}

/* What the codec has found in the frame that is being read. */
static int fail_codec(const file_reader *r, fault *f)
{
    const bitsnap *b = &r->codec->b;
    const unsigned long long at = r->frame_begin + b->error.offset;
    switch (b->error.status) {
    case BITSNAP_E_TRUNCATED: return fail_truncated(r, f);
    case BITSNAP_E_BASE:
        return fault_set(f, "%s (frame %zu, element %llu); give the right base", bitsnap_message(b), r->records.frames,
                         (unsigned long long)b->error.element);
    case BITSNAP_E_UNSUPPORTED:
        return fault_set(f, "%s (byte %llu): a newer bitsnap is needed", bitsnap_message(b), at);
    case BITSNAP_E_MAGIC:
    case BITSNAP_E_CHECK:
    case BITSNAP_E_CORRUPT:
        return fault_set(f, "%s (byte %llu, frame %zu, element %llu)" DAMAGED, bitsnap_message(b), at, r->records.frames,
                         (unsigned long long)b->error.element);
    default: return fault_set(f, "could not be decoded: %s (byte %llu)", bitsnap_message(b), at);
    }
}

int file_check_limit(uint64_t size, uint64_t whole, uint64_t from, uint64_t limit, fault *f)
{
    char is[32], may[32];
    if (limit) {
        if (size <= limit) return 0;
        return fault_set(f, "expands to %s or more, and --max-output allows %s; give a larger one to go on",
                         size_text(is, size), size_text(may, limit));
    }
    if (size <= 4 * GIB || size / 256 <= from) return 0;
    return fault_set(f, "expands to %s or more, over 256 times its own size; if that is right, go on with "
                     "--max-output %lluG", size_text(is, whole), (unsigned long long)((whole - 1) / GIB + 1));
}

/* Whether the source may have this size. Of a pipe only the bytes that have come count as the file's. */
static int check_limit(const file_reader *r, uint64_t size, fault *f)
{
    const input *in = r->in;
    uint64_t file = in->size != SIZE_UNKNOWN ? in->size : in->offset + input_available(in);
    const link_end *e;
    for (e = r->kind == BITSNAP_SOURCE_DELTA ? &r->link.base : NULL; e; e = e->next) file += e->data_size; /* less than 2^8 of less than 2^48 */
    return file_check_limit(size, r->claimed != SIZE_UNKNOWN ? r->claimed : size, file, r->limit, f);
}

/* The bases of a delta, and what it says of itself. */
static int take_bases(file_link *l, const bitsnap_file_start *s, fault *f)
{
    link_end *e = &l->base;
    size_t i;
    l->own.text_size = s->text_size;
    l->own.data_size = s->source_size - 8 - s->text_size;
    l->own.id = s->text_id;
    for (i = 0; i < s->base_count; i++) {
        if (i && !(e = e->next = (link_end *)calloc(1, sizeof *e))) return fault_memory(f);
        e->text_size = s->bases[i].text_size;
        e->data_size = s->bases[i].data_size;
        e->id = s->bases[i].text_id;
        if (*s->bases[i].name && !(e->name = strdup(s->bases[i].name))) return fault_memory(f);
    }
    return 0;
}

/* What stands before texts and frames; the flags of the bases. */
static int read_start(file_reader *r, unsigned *flags, fault *f)
{
    bitsnap_file_start s;
    bitsnap_file_error e;
    bitsnap_status status;
    int failed;
    while ((status = bitsnap_file_read_start(&s, input_bytes(r->in), input_available(r->in), NULL, &e)) == BITSNAP_E_TRUNCATED)
        if (want(r, (size_t)e.wanted, f)) return 1;
    if (status) return container_failed(&e, f);
    r->kind = s.kind;
    r->quantized = s.quantized;
    r->text_size = (size_t)s.text_size;
    r->claimed = s.source_size;
    r->done = s.kind == BITSNAP_SOURCE_RAW ? 0 : 8 + s.text_size;
    r->file_check = s.check;
    *flags = s.flags;
    failed = take_bases(&r->link, &s, f);
    free(s.bases);
    input_consume(r->in, (size_t)s.end);
    return failed || (r->claimed != SIZE_UNKNOWN && (r->limit || r->in->size != SIZE_UNKNOWN) && check_limit(r, r->claimed, f));
}

/* Records of a text of so many bytes, one behind the other, as they are; where it is the source's, they are noted. */
static int read_text(file_reader *r, size_t text_size, int own, uint8_t **coded, size_t *coded_size, fault *f)
{
    size_t done = 0, capacity = 0;
    while (done < text_size) {
        const uint64_t at = r->in->offset;
        const uint8_t *p;
        uint64_t n, whole;
        if (want(r, BITSNAP_TEXT_PREFIX, f)) return 1;
        p = input_bytes(r->in);
        n = load32(p + 4);
        whole = BITSNAP_TEXT_PREFIX + (uint64_t)load32(p + 8) + 8;
        if (memcmp(p, BITSNAP_TEXT_MAGIC, 4)) return fail_at(f, 10, at, "no text record where there should be one");
        if (!n || n > BITSNAP_TEXT_PIECE || n > text_size - done || load32(p + 8) > BITSNAP_TEXT_CODED_MAX(n))
            return fail_at(f, 11, at + 4, "impossible size of a piece of a text");
        if (want(r, (size_t)whole, f)) return 1;
        p = input_bytes(r->in);
        if (bitsnap_hash(p, (size_t)whole - 8) != load64(p + whole - 8)) return fail_at(f, 9, at, "the check of a text does not match");
        if (own && record_list_add(&r->records, 8 + done, at, f)) return 1;
        if (capacity - *coded_size < whole) {
            uint8_t *more;
            capacity = 2 * capacity + (size_t)whole;
            more = (uint8_t *)realloc(*coded, capacity);
            if (!more) return fault_memory(f);
            *coded = more;
        }
        memcpy(*coded + *coded_size, p, (size_t)whole);
        *coded_size += (size_t)whole;
        done += (size_t)n;
        input_consume(r->in, (size_t)whole);
    }
    return 0;
}

/* The text of a file that is no delta. */
static int read_own_text(file_reader *r, fault *f)
{
    uint8_t *coded = NULL;
    size_t coded_size = 0;
    int failed = read_text(r, r->text_size, 1, &coded, &coded_size, f);
    if (!failed) {
        r->text = (char *)malloc(r->text_size);
        failed = !r->text ? fault_memory(f) : text_decode(r->text, r->text_size, NULL, 0, coded, coded_size, f) && fault_add(f, DAMAGED);
    }
    free(coded);
    return failed;
}

/* Whether these are the bases, as far as their headers tell. */
static int bases_agree(const file_reader *r, const file_base *base)
{
    const link_end *e;
    for (e = &r->link.base; e && base; e = e->next, base = base->next)
        if (base->text_size != e->text_size || bitsnap_hash(base->text, base->text_size) != e->id || (base->read && base->data_size != e->data_size)) return 0;
    return !e && !base;
}

/* The text of a delta, as far as it can be known. */
static int find_text(file_reader *r, const file_base *base, int needed, fault *f)
{
    const int agrees = bases_agree(r, base);
    const char *name = r->link.base.name;
    const unsigned count = link_end_count(&r->link.base);
    if (needed && count > 1 && (!base || !base->next))
        return fault_set(f, "this delta needs %u files of one model, the first of which was called %s: give their folder with -b", count, name ? name : "nothing");
    if (needed && !base && name) return fault_set(f, "this delta needs its base: give it with -b; it was called %s", name);
    if (needed && !base) return fault_set(f, "this delta needs its base: give it with -b");
    if (needed && !agrees)
        return fault_set(f, "what is given as its base is not what this delta was made against: its header is another; give the right base");
    if (link_find_texts(&r->link, agrees ? base->text : NULL, f)) return fault_add(f, DAMAGED);
    r->text = r->link.own.text;
    r->link.own.text = NULL;
    r->base = agrees ? base : NULL;
    return 0;
}

/* The texts of a delta. */
static int read_delta(file_reader *r, unsigned flags, const file_base *base, int needed, fault *f)
{
    file_link *l = &r->link;
    return (flags & BITSNAP_BASES_WITH_TEXT && read_text(r, (size_t)l->base.text_size, 0, &l->base_coded, &l->base_coded_size, f)) ||
           (!(flags & BITSNAP_BASES_SAME_TEXT) && read_text(r, r->text_size, 1, &l->coded, &l->coded_size, f)) || find_text(r, base, needed, f);
}

static int begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, int needed, fault *f)
{
    unsigned flags = 0;
    const uint8_t *p;
    memset(r, 0, sizeof *r);
    r->codec = c;
    r->in = in;
    r->limit = limit;
    if (input_fill(in, BITSNAP_FILE_HEADER, f)) return 1;
    p = input_bytes(in);
    if (input_available(in) && input_available(in) < 8 && !memcmp(p, BITSNAP_FILE_MAGIC, input_available(in))) return fail_truncated(r, f);
    if (!file_is_bsnap(p, input_available(in))) /* foreign_refuse reads on, which may move the bytes */
        return foreign_refuse(in, WANT_BSNAP, f) ? 1 : fault_set(f, "is not a .bsnap file: it does not begin with B5 53 4E 50 46 49 4C 45");
    if (want(r, BITSNAP_FILE_HEADER, f)) return 1;
    p = input_bytes(in);
    if (p[8] == 0) return fault_set(f, "was made by a version of bitsnap before 1.0 (S2, byte 8): restore it with that one");
    if (read_start(r, &flags, f)) return 1;
    return r->kind == BITSNAP_SOURCE_SAFETENSORS ? read_own_text(r, f) : r->kind == BITSNAP_SOURCE_DELTA ? read_delta(r, flags, base, needed, f) : 0;
}

int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, fault *f)
{
    return begin(r, c, in, limit, base, 1, f);
}

int file_look_begin(file_reader *r, codec *c, input *in, const file_base *base, fault *f)
{
    return begin(r, c, in, SIZE_UNKNOWN, base, 0, f);
}

/* The end record as it should be, with so many names. Where the text is not known they are taken from the record itself, which is whole
 * in the window. */
static int expect_end(file_reader *r, size_t names, uint8_t **record, size_t *size, fault *f)
{
    const uint64_t records = bitsnap_tree_size(r->records.count, BITSNAP_RECORD_ENTRY);
    uint8_t *entries = NULL;
    size_t count = 0;
    int failed = 0;
    *size = (size_t)(BITSNAP_END_PREFIX + records + bitsnap_tree_size(names, BITSNAP_NAME_ENTRY) + BITSNAP_END_SUFFIX);
    if (names && r->text) {
        failed = r->model ? tree_tensors(&entries, &count, r->model, f) : tree_names(&entries, &count, r->text, r->text_size, f);
        if (!failed && count != names)
            failed = fail_at(f, 26, r->in->offset + 4, count ? "the number of names is another than that of the tensors" : "names, but the text has none");
    }
    failed = failed || want(r, *size, f) ||
             file_end_record(record, size, &r->records, r->done, entries ? entries : input_bytes(r->in) + BITSNAP_END_PREFIX + records, names,
                             r->file_check, f);
    free(entries);
    return failed;
}

static int read_end(file_reader *r, fault *f)
{
    const uint64_t at = r->in->offset;
    const uint8_t *p;
    uint8_t *expected = NULL;
    size_t size, names, i;
    if (want(r, BITSNAP_END_PREFIX, f)) return 1;
    p = input_bytes(r->in);
    names = load32(p + 4);
    if (load64(p + 8) != r->done || (r->claimed != SIZE_UNKNOWN && r->claimed != r->done))
        return fail_at(f, 22, at + 8, "the size of the source does not agree");
    if (load64(p + 16) != r->records.count) return fail_at(f, 23, at + 16, "the number of records does not agree");
    if (r->quantized != r->met_quantized) return fail_at(f, 21, 10, "quantized frames announced, but there are none");
    if (expect_end(r, names, &expected, &size, f)) {
        free(expected);
        return 1;
    }
    p = input_bytes(r->in);
    for (i = 0; i < size && p[i] == expected[i]; i++)
        ;
    free(expected);
    if (i < size - 24) return fail_at(f, 25, at + i, "the trees of the end record do not agree with what is in the file");
    if (i < size - 16) return fail_at(f, 23, at + i, "wrong size of the end record");
    if (i < size - 8) return fail_at(f, 24, at + i, "the check of the end record does not match");
    if (i < size) return fail_at(f, 27, at + i, "wrong last bytes");
    input_consume(r->in, size);
    if (input_fill(r->in, 1, f)) return 1;
    if (input_available(r->in))
        return fault_set(f, "there are bytes behind its end (S5, from byte %llu on); cut them off",
                         (unsigned long long)r->in->offset);
    r->ended = 1;
    return 0;
}

/* The place of the next frame's base. */
static int read_place(file_reader *r, fault *f)
{
    const uint8_t *p;
    if (want(r, BITSNAP_PLACE_SIZE, f)) return 1;
    p = input_bytes(r->in);
    if ((uint32_t)bitsnap_hash(p, 12) != load32(p + 12)) return fail_at(f, 9, r->in->offset, "the check of a place record does not match");
    r->range.base = (unsigned)bytes_load(p + 4, 2);
    if (!link_end_at(&r->link.base, r->range.base)) return fail_at(f, 19, r->in->offset + 4, "a base that is not there");
    r->range.begin = bytes_load(p + 6, 6);
    r->placed = 1;
    input_consume(r->in, BITSNAP_PLACE_SIZE);
    return 0;
}

/* Goes to the next record: 1 for a frame, 0 for the end record; less than 0 is a failure. */
static int next_record(file_reader *r, fault *f)
{
    r->placed = 0;
    r->record_begin = r->in->offset;
    if (want(r, 4, f)) return -1;
    if (r->kind == BITSNAP_SOURCE_DELTA && !memcmp(input_bytes(r->in), BITSNAP_PLACE_MAGIC, 4)) {
        if (read_place(r, f) || want(r, 4, f)) return -1;
    }
    if (!memcmp(input_bytes(r->in), BITSNAP_FRAME_MAGIC, 4)) return 1;
    if (!r->placed && !memcmp(input_bytes(r->in), BITSNAP_END_MAGIC, 4)) return 0;
    (void)fail_at(f, 10, r->in->offset, "neither a frame nor the end record");
    return -1;
}

/* Whether there may be so many elements more. */
static int check_frame(file_reader *r, uint64_t count, unsigned width, fault *f)
{
    const uint64_t bytes = count * width; /* count is at most 2^48 */
    if (bytes > BITSNAP_FILE_MOST - r->done) return fail_at(f, 8, r->frame_begin + 8, "a source of 2^48 bytes or more");
    if (r->claimed != SIZE_UNKNOWN && r->done + bytes > r->claimed)
        return fail_at(f, 22, r->frame_begin + 8, "more elements than the file header announces");
    /* of a pipe it will be known only when the elements have come what they took */
    if (r->claimed == SIZE_UNKNOWN && (r->limit || r->in->size != SIZE_UNKNOWN))
        return check_limit(r, r->done + bytes, f);
    return 0;
}

/* What a frame says of itself, before anything of it is done with. */
static int frame_info(file_reader *r, bitsnap_info *info, fault *f)
{
    bitsnap_status status;
    const link_end *e;
    r->frame_begin = r->in->offset;
    if (want(r, FRAME_HEADER, f)) return 1;
    if (input_bytes(r->in)[7] & 0x80) { /* extensions, of a size that stands in front of them */
        const size_t size = FRAME_HEADER + 2 + (size_t)bytes_load(input_bytes(r->in) + 16, 2);
        if (want(r, size, f)) return 1;
    }
    status = bitsnap_read_info(info, input_bytes(r->in), input_available(r->in));
    if (status) { /* the codec tells more */
        size_t used;
        (void)bitsnap_decoder_begin(&r->codec->b, &r->stream, input_bytes(r->in), input_available(r->in), &used);
        return fail_codec(r, f);
    }
    if (info->has_base != r->placed)
        return fail_at(f, 19, r->frame_begin, r->placed ? "a place in the base, but a frame without one" : "a frame with a base that has no place");
    r->frame_quantized = (input_bytes(r->in)[7] & FLAG_QUANTIZED) != 0;
    r->met_quantized |= r->frame_quantized;
    if (r->frame_quantized && !r->quantized) return fail_at(f, 21, r->frame_begin, "a quantized frame in a file that announces none");
    r->range.dtype = info->base_dtype;
    e = link_end_at(&r->link.base, r->placed ? r->range.base : 0);
    if (info->has_base && (r->range.begin > e->data_size || info->count > (e->data_size - r->range.begin) / bitsnap_width(info->base_dtype)))
        return fail_at(f, 20, r->frame_begin, "a place beyond the end of the base");
    return check_frame(r, info->count, info->width, f) || record_list_add(&r->records, r->done, r->record_begin, f);
}

static void set_dtype(file_reader *r, bitsnap_dtype dtype)
{
    r->dtype = dtype;
    r->common = !r->common || r->common == dtype ? dtype : BITSNAP_I8;
}

/* A frame of which all but the footer has been passed, of which `index` bytes come before the content id or the certificate. */
static void frame_describe(file_reader *r, const bitsnap_info *info, file_frame *frame, size_t index)
{
    frame->at = r->frame_begin;
    frame->bytes = info->count * info->width;
    frame->begin = r->done - frame->bytes - (r->kind == BITSNAP_SOURCE_RAW ? 0 : 8 + (uint64_t)r->text_size);
    frame->count = info->count;
    frame->dtype = info->dtype;
    frame->quantized = r->frame_quantized;
    frame->cells = info->cells;
    frame->clusters = info->clusters;
    frame->columns = info->columns;
    if (r->frame_quantized && input_available(r->in) >= index + CERTIFICATE_SIZE)
        frame->certificate = certificate_read(input_bytes(r->in) + index, info->cells);
    frame->role = !info->has_base ? 0 : info->base_dtype == info->dtype ? 1 : 2;
    frame->range = r->range;
    frame->base_id = info->base_id;
    frame->has_id = info->has_content_id && input_available(r->in) >= index + 8;
    frame->id = frame->has_id ? load64(input_bytes(r->in) + index) : 0;
}

static int frame_done(file_reader *r, file_frame *frame, fault *f)
{
    frame->size = r->in->offset - r->frame_begin;
    r->records.frames++;
    r->records.frame_bytes += frame->size;
    return r->frame_observer.note ? r->frame_observer.note(r->frame_observer.context, frame, f) : 0;
}

static int frame_begin(file_reader *r, fault *f)
{
    bitsnap_info info;
    size_t used;
    if (frame_info(r, &info, f)) return 1;
    r->info = info;
    memset(&r->cells, 0, sizeof r->cells);
    r->noted = 0;
    if (bitsnap_decoder_begin(&r->codec->b, &r->stream, input_bytes(r->in), input_available(r->in), &used)) return fail_codec(r, f);
    input_consume(r->in, used);
    set_dtype(r, r->stream.dtype);
    r->in_frame = 1;
    return (r->placed && file_use_range(r->codec, &r->used, r->base, &r->range, info.count, 0, f)) ||
           codec_reserve(r->codec, r->stream.block_log2, r->placed || r->frame_quantized || r->stream.columns, f);
}

static int frame_end(file_reader *r, fault *f)
{
    file_frame frame;
    size_t used;
    bitsnap_status status;
    while ((status = bitsnap_decoder_end(&r->codec->b, &r->stream, input_bytes(r->in), input_available(r->in), &used)) ==
           BITSNAP_E_TRUNCATED)
        if (want(r, (size_t)r->codec->b.error.needed, f)) return 1;
    if (status) return fail_codec(r, f);
    frame = r->cells;
    frame_describe(r, &r->info, &frame, (size_t)index_size(r->stream.index_size / 4));
    input_consume(r->in, used);
    r->in_frame = 0;
    file_release_range(r->codec, &r->used);
    return frame_done(r, &frame, f);
}

uint64_t count_changed(const uint8_t *elements, const uint8_t *base, uint64_t n, unsigned width)
{
    uint8_t mask[512];
    uint64_t i, sum = 0;
    for (i = 0; i < n && width > 8; i++) sum += memcmp(elements + i * width, base + i * width, width) != 0; /* C128 */
    for (i = 0; i < n && width <= 8; i += 8 * sizeof mask) {
        const size_t m = n - i < 8 * sizeof mask ? (size_t)(n - i) : 8 * sizeof mask, at = (size_t)i * width;
        size_t count;
        (void)bitsnap_mask_encode(NULL, width, elements + at, base + at, m, mask, NULL, 0, &count);
        sum += count;
    }
    return sum;
}

static void count_cells(file_frame *frame, unsigned form, uint64_t cells)
{
    if (form == FORM_SAME) frame->same += cells;
    else if (form == FORM_CLASSED || form == FORM_SPARSE) frame->differences += cells;
    else frame->plain += cells;
}

/* How the block at p, of a frame that is being read, is coded. Its elements, where they are known, with those of the base. */
static int note_form(file_reader *r, const bitsnap_info *info, uint64_t first, const uint8_t *p, size_t size, bitsnap_block *block,
                     const uint8_t *elements, const uint8_t *base, fault *f)
{
    uint64_t changed = UINT64_MAX;
    unsigned k;
    int difference;
    if (bitsnap_read_block(&r->codec->b, block, info, first, p, size)) {
        r->codec->b.error.offset += r->in->offset + (uint64_t)(p - input_bytes(r->in)) - r->frame_begin;
        return fail_codec(r, f);
    }
    difference = block->form == FORM_CLASSED || block->form == FORM_SPARSE;
    if (block->form == FORM_SAME) changed = 0;
    else if (!difference && base) changed = count_changed(elements, base, block->elements, info->width);
    for (k = 0; difference && k < block->parts; k++)
        changed = (k ? changed : 0) + block->part[k].changed;
    return r->form_observer.block(r->form_observer.context, block, changed, f);
}

/* The blocks at p, that have just been decoded to n elements; all of them lie in these, but for parts of runs. */
static int note_forms(file_reader *r, const uint8_t *elements, size_t n, const uint8_t *p, size_t size, fault *f)
{
    const bitsnap_decoder *s = &r->stream;
    const uint64_t begin = s->position - n;
    const bitsnap_base *held = &r->codec->b.base; /* all of these elements */
    const uint8_t *base = s->role == 1 ? (const uint8_t *)held->data : NULL;
    bitsnap_block block;
    uint64_t first = r->noted;
    while (size) {
        const size_t at = first > begin ? (size_t)(first - begin) * s->width : 0; /* runs are the same, or have no base */
        if (note_form(r, &r->info, first, p, size, &block, elements + at, base ? base + (first - held->first) * s->width : NULL, f)) return 1;
        count_cells(&r->cells, block.form, ((block.elements - 1) >> s->block_log2) + 1);
        first += block.elements;
        p += (size_t)block.size;
        size -= (size_t)block.size;
    }
    if (r->form_observer.elements)
        r->form_observer.elements(r->form_observer.context, elements, base ? base + (begin - held->first) * s->width : NULL, n * s->width, s->width);
    return 0;
}

/* The window is a part of a run of one element, and so are whole windows behind it: they are checked, and only counted. */
static int pass_run(file_reader *r, size_t room, fault *f)
{
    bitsnap_decoder *s = &r->stream;
    const block_kind kind = { s->width, s->block_log2, r->info.checks, r->info.has_base };
    const block_size b = block_look(input_bytes(r->in), &kind, s->count - r->noted);
    const uint64_t most = SIZE_MAX / s->width / room;
    uint64_t more = (r->noted + b.elements - s->position - 1) / room;
    size_t n, used;
    r->again = more;
    for (; more; more -= n / room) {
        if (bitsnap_decoder_pull(&r->codec->b, s, NULL, (size_t)(more < most ? more : most) * room, &n, input_bytes(r->in),
                         input_available(r->in), &used)) return fail_codec(r, f);
        if (r->form_observer.elements)
            r->form_observer.elements(r->form_observer.context, r->elements, NULL, n * s->width, s->width);
    }
    r->done += r->again * room * s->width;
    return 0;
}

/* Elements of the frame, until the window is full or the frame has no more. */
static int frame_window(file_reader *r, size_t *size, fault *f)
{
    bitsnap_decoder *s = &r->stream;
    const size_t room = r->codec->window / s->width;
    const int checked = s->block_log2 >= 16 || !r->info.has_content_id; /* also without the elements, which are not kept */
    size_t done = 0;
    r->again = 0;
    while (done < room && s->position < s->count) {
        bitsnap_status status;
        size_t n, used;
        /* read on in good time, but do not move the window's bytes for every block */
        if (input_available(r->in) < r->codec->window / 2 && input_fill(r->in, r->codec->window, f)) return 1;
        if (file_use_blocks(r->codec, &r->used, s->position, s->block_log2, f)) return 1;
        status = bitsnap_decoder_pull(&r->codec->b, s, r->only_check && checked ? NULL : r->elements + done * s->width,
                              (r->only_check && checked ? SIZE_MAX / s->width : room) - done, &n, input_bytes(r->in),
                              input_available(r->in), &used);
        if (status == BITSNAP_E_TRUNCATED) {
            if (want(r, (size_t)r->codec->b.error.needed, f)) return 1;
            continue;
        }
        if (status) return fail_codec(r, f);
        if (r->form_observer.block && note_forms(r, r->elements + done * s->width, n, input_bytes(r->in), used, f)) return 1;
        file_note_blocks(&r->observer, s, &r->noted, input_bytes(r->in), used);
        input_consume(r->in, used);
        done += n;
        if (r->pass_runs && checked && n == room && !used && pass_run(r, room, f)) return 1;
    }
    *size = done * s->width;
    r->done += *size;
    if (!r->only_check) swap_elements(r->elements, *size, s->width);
    /* of a pipe it is only now known how many bytes that took */
    return r->in->size == SIZE_UNKNOWN ? check_limit(r, r->done, f) : 0;
}

int file_read(file_reader *r, const uint8_t **bytes, size_t *size, fault *f)
{
    *bytes = NULL;
    *size = 0;
    if (r->ended) return 0;
    if (!r->elements) {
        r->elements = (uint8_t *)malloc(r->codec->window);
        if (!r->elements) return fault_memory(f);
    }
    while (*size == 0) { /* frames may be empty */
        if (!r->in_frame) {
            const int record = next_record(r, f);
            if (record < 0) return 1;
            if (record == 0) return read_end(r, f);
            if (frame_begin(r, f)) return 1;
        }
        if (frame_window(r, size, f)) return 1;
        if (r->stream.position == r->stream.count && frame_end(r, f)) return 1;
    }
    *bytes = r->elements;
    return 0;
}

/* ---- without decoding ---- */

static int skip(file_reader *r, uint64_t n, fault *f)
{
    uint64_t passed;
    if (input_skip(r->in, n, &passed, f)) return 1;
    return passed < n ? fail_truncated(r, f) : 0;
}

/* Whether blocks of a frame may have this form. */
static int form_fits(unsigned form, const bitsnap_info *info, int quantized)
{
    if (form <= FORM_BYTES || form == FORM_ZIGZAG) return 1;
    if (form <= FORM_CLASSED || form == FORM_SPARSE) return info->has_base;
    return form == FORM_SCALED ? info->columns != 0 : form == FORM_QUANTIZED && quantized;
}

static int has_footer(const file_reader *r, const bitsnap_info *info)
{
    return info->blocks > 1 || info->has_content_id || r->frame_quantized;
}

/* Goes over the blocks of a frame, and its index. */
static int look_at_blocks(file_reader *r, const bitsnap_info *info, file_frame *frame, fault *f)
{
    const block_kind kind = { info->width, info->block_log2, info->checks, info->has_base };
    uint64_t done = 0, blocks;
    for (blocks = 0; done < info->count; blocks++) {
        block_size b;
        if (want(r, 4, f)) return 1;
        if (!form_fits(input_bytes(r->in)[0], info, r->frame_quantized))
            return fault_set(f, "a block of a form that is not known (R15, byte %llu)" DAMAGED, (unsigned long long)r->in->offset);
        b = block_look(input_bytes(r->in), &kind, info->count - done);
        if (!b.elements || b.whole - b.prefix > info->width * b.elements + 2)
            return fault_set(f, "wrong size of a block (R16, byte %llu)" DAMAGED, (unsigned long long)r->in->offset);
        if (r->observer.note) r->observer.note(r->observer.context, b.elements * info->width, b.whole);
        if (r->form_observer.block) {
            bitsnap_block block;
            if (want(r, (size_t)b.whole, f) ||
                note_form(r, info, done, input_bytes(r->in), (size_t)b.whole, &block, NULL, NULL, f)) return 1;
        }
        count_cells(frame, b.form, b.cells);
        done += b.elements;
        if (skip(r, b.whole, f)) return 1;
    }
    return has_footer(r, info) ? skip(r, index_size(blocks), f) : 0;
}

static int look_at_frame(file_reader *r, fault *f)
{
    bitsnap_info info;
    file_frame frame;
    uint64_t footer;
    if (frame_info(r, &info, f)) return 1;
    memset(&frame, 0, sizeof frame);
    if (skip(r, info.header_size, f)) return 1;
    set_dtype(r, info.dtype);
    if (r->form_observer.block && codec_reserve(r->codec, info.block_log2, info.has_base || r->frame_quantized || info.columns, f)) return 1;
    if (look_at_blocks(r, &info, &frame, f)) return 1;
    footer = !has_footer(r, &info) ? 0 : 28 + (info.checks ? 8u : 0u) + (info.has_content_id ? 8u : 0u) + (r->frame_quantized ? CERTIFICATE_SIZE : 0u);
    r->done += info.count * info.width;
    if ((info.has_content_id || r->frame_quantized) && want(r, r->frame_quantized ? CERTIFICATE_SIZE : 8, f)) return 1;
    frame_describe(r, &info, &frame, 0);
    return skip(r, footer, f) || frame_done(r, &frame, f);
}

int file_look(file_reader *r, fault *f)
{
    int record;
    while ((record = next_record(r, f)) > 0)
        if (look_at_frame(r, f)) return 1;
    return record < 0 ? 1 : read_end(r, f);
}

void file_read_close(file_reader *r)
{
    if (r->codec) file_release_range(r->codec, &r->used);
    file_used_free(&r->used);
    link_free(&r->link);
    free(r->text);
    free(r->elements);
    free(r->records.entries);
    memset(r, 0, sizeof *r);
}
