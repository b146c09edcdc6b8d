/* file.c - reading and writing .bsnap files: docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "file.h"

#include "bytes.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

enum { HEADER_SIZE = 32, TEXT_PREFIX = 24, END_PREFIX = 24, END_SIZE = 48, FRAME_HEADER = 24 };

#define GIB ((uint64_t)1 << 30)

static const uint8_t file_magic[8] = { 0xB5, 'S', 'N', 'P', 'F', 'I', 'L', 'E' };
static const uint8_t text_magic[4] = { 0xB5, 'T', 'X', 'T' };
static const uint8_t frame_magic[4] = { 0xB5, 'S', 'N', 'P' };
static const uint8_t end_magic[4] = { 0xB5, 'E', 'N', 'D' };
static const uint8_t last_magic[8] = { 'E', 'L', 'I', 'F', 'P', 'N', 'S', 0xB5 };

const char *size_text(char *text, uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double x = (double)bytes;
    size_t i = 0;
    for (; x >= 1024 && i < 6; i++) x /= 1024;
    (void)snprintf(text, 32, i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return text;
}

int file_is_bsnap(const uint8_t *bytes, size_t size) { return size >= 8 && !memcmp(bytes, file_magic, 8); }

static int frame_list_add(frame_list *l, uint64_t size, fault *f)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity ? 2 * l->capacity : 64;
        uint64_t *sizes = (uint64_t *)realloc(l->sizes, capacity * sizeof *sizes);
        if (!sizes) return fault_memory(f);
        l->sizes = sizes;
        l->capacity = capacity;
    }
    l->sizes[l->count++] = size;
    return 0;
}

/* ---- blocks ---- */

enum { FORM_CONST = 1, FORM_LAST = 3, FLAG_CHECKS = 1, FLAG_CONTENT = 2 };

/* The block at p: its size, and how many of `left` elements it stands for. At least 4 bytes must be there, of a
 * CONST block also those of the run, which stand behind head, check and element. */
static uint64_t block_size(const uint8_t *p, unsigned width, unsigned block_log2, unsigned flags, uint64_t left,
                           uint64_t *elements)
{
    const unsigned prefix = flags & FLAG_CHECKS ? 12 : 4;
    const uint64_t cells = (load32(p) & 255) == FORM_CONST ? load32(p + prefix + width) : 1;
    *elements = cells << block_log2 < left ? cells << block_log2 : left;
    return prefix + (uint64_t)(load32(p) >> 8);
}

static void note_blocks(const block_observer *o, const bitsnap_stream *s, uint64_t *noted, const uint8_t *p,
                        size_t size)
{
    while (size) {
        uint64_t elements;
        const size_t whole = (size_t)block_size(p, s->width, s->block_log2, s->flags, s->count - *noted, &elements);
        if (o->note) o->note(o->context, elements * s->width, whole);
        *noted += elements;
        p += whole;
        size -= whole;
    }
}

/* ================================================================================= WRITING */

static int write_text(file_writer *w, const char *text, size_t size, fault *f)
{
    uint8_t *coded, *record;
    size_t coded_size;
    int failed;
    if (text_encode(&coded, &coded_size, text, size, f)) return 1;
    record = (uint8_t *)malloc(TEXT_PREFIX + coded_size + 8);
    if (!record) {
        free(coded);
        return fault_memory(f);
    }
    memset(record, 0, TEXT_PREFIX);
    memcpy(record, text_magic, 4);
    store64(record + 8, size);
    store64(record + 16, coded_size);
    memcpy(record + TEXT_PREFIX, coded, coded_size);
    store64(record + TEXT_PREFIX + coded_size, bitsnap_hash(record, TEXT_PREFIX + coded_size));
    failed = output_write(w->out, record, TEXT_PREFIX + coded_size + 8, f);
    free(coded);
    free(record);
    w->source_size += 8 + (uint64_t)size;
    return failed;
}

int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     fault *f)
{
    uint8_t header[HEADER_SIZE];
    memset(w, 0, sizeof *w);
    w->codec = c;
    w->out = out;
    /* a window, and 16 bytes a block; header and footer come one at a time */
    w->packed_size = c->window + 16 * (c->window >> 16) + 64;
    w->packed = (uint8_t *)malloc(w->packed_size);
    if (!w->packed) return fault_memory(f);
    memset(header, 0, sizeof header);
    memcpy(header, file_magic, 8);
    header[9] = text ? SOURCE_SAFETENSORS : SOURCE_RAW;
    store64(header + 16, source_size);
    store64(header + 24, bitsnap_hash(header, 24));
    if (output_write(out, header, sizeof header, f)) return 1;
    return text ? write_text(w, text, text_size, f) : 0;
}

static int write_failed(const file_writer *w, fault *f)
{
    return fault_set(f, "could not be compressed: %s", bitsnap_message(&w->codec->b));
}

int file_write_frame(file_writer *w, bitsnap_dtype dtype, uint64_t count, fault *f)
{
    size_t size;
    w->noted = 0;
    if (bitsnap_push_begin(&w->codec->b, &w->stream, w->packed, w->packed_size, &size, count, dtype))
        return write_failed(w, f);
    return output_write(w->out, w->packed, size, f);
}

int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f)
{
    bitsnap_stream *s = &w->stream;
    const size_t n = bytes / s->width, wanted = s->index_size + 8 * ((n >> s->block_log2) + 1);
    size_t size;
    if (wanted > s->index_capacity) {
        const size_t capacity = 2 * s->index_capacity > wanted ? 2 * s->index_capacity : wanted;
        void *index = realloc(s->index, capacity);
        if (!index) return fault_memory(f);
        s->index = index;
        s->index_capacity = capacity;
    }
    swap_elements(elements, bytes, s->width);
    if (bitsnap_push(&w->codec->b, s, w->packed, w->packed_size, &size, elements, n)) return write_failed(w, f);
    note_blocks(&w->observer, s, &w->noted, w->packed, size);
    w->source_size += bytes;
    return output_write(w->out, w->packed, size, f);
}

int file_write_frame_end(file_writer *w, fault *f)
{
    bitsnap_stream *s = &w->stream;
    size_t size, capacity = 64 + s->index_size;
    uint8_t *footer = (uint8_t *)malloc(capacity);
    int failed;
    if (!footer) return fault_memory(f);
    if (bitsnap_push_end(&w->codec->b, s, footer, capacity, &size)) failed = write_failed(w, f);
    else failed = output_write(w->out, footer, size, f) || frame_list_add(&w->frames, s->stored, f);
    free(footer);
    free(s->index);
    memset(s, 0, sizeof *s);
    return failed;
}

int file_write_end(file_writer *w, fault *f)
{
    const size_t size = 8 * w->frames.count + END_SIZE;
    uint8_t *record = (uint8_t *)calloc(1, size), *p = record;
    size_t i;
    int failed;
    if (!record) return fault_memory(f);
    memcpy(p, end_magic, 4);
    store64(p + 8, w->source_size);
    store64(p + 16, w->frames.count);
    for (i = 0, p += END_PREFIX; i < w->frames.count; i++, p += 8) store64(p, w->frames.sizes[i]);
    store64(p, size);
    store64(p + 8, bitsnap_hash(record, size - 16));
    memcpy(p + 16, last_magic, 8);
    failed = output_write(w->out, record, size, f);
    free(record);
    return failed;
}

void file_write_close(file_writer *w)
{
    free(w->stream.index);
    free(w->packed);
    free(w->frames.sizes);
    memset(w, 0, sizeof *w);
}

/* ================================================================================= READING */

#define DAMAGED "; take another copy of the file"

static int fail_at(fault *f, uint64_t at, const char *what)
{
    return fault_set(f, "%s (byte %llu)" DAMAGED, what, (unsigned long long)at);
}

static int fail_truncated(const file_reader *r, fault *f)
{
    return fault_set(f, "truncated: it ends at byte %llu, before its end record; take another copy of the file",
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
    case BITSNAP_E_UNSUPPORTED:
        return fault_set(f, "%s (byte %llu): a newer bitsnap is needed", bitsnap_message(b), at);
    case BITSNAP_E_MAGIC:
    case BITSNAP_E_CHECK:
    case BITSNAP_E_CORRUPT:
        return fault_set(f, "%s (byte %llu, frame %zu, element %llu)" DAMAGED, bitsnap_message(b), at, r->frames.count,
                         (unsigned long long)b->error.element);
    default: return fault_set(f, "could not be decoded: %s (byte %llu)", bitsnap_message(b), at);
    }
}

/* Whether the source may have this size. Of a pipe only the bytes that have come count as the file's. */
static int check_limit(const file_reader *r, uint64_t size, fault *f)
{
    const input *in = r->in;
    const uint64_t file = in->size != SIZE_UNKNOWN ? in->size : in->offset + input_available(in);
    char is[32], may[32];
    if (r->limit) {
        if (size <= r->limit) return 0;
        return fault_set(f, "expands to %s or more, and --max-output allows %s; give a larger one to go on",
                         size_text(is, size), size_text(may, r->limit));
    }
    if (size <= 4 * GIB || size / 256 <= file) return 0;
    if (r->claimed != SIZE_UNKNOWN) size = r->claimed;
    return fault_set(f, "expands to %s or more, over 256 times its own size; if that is right, go on with "
                     "--max-output %lluG", size_text(is, size), (unsigned long long)((size - 1) / GIB + 1));
}

static int read_text(file_reader *r, fault *f)
{
    const uint64_t at = r->in->offset;
    const uint8_t *p;
    uint64_t size, coded;
    if (want(r, TEXT_PREFIX, f)) return 1;
    p = input_bytes(r->in);
    size = load64(p + 8);
    coded = load64(p + 16);
    if (memcmp(p, text_magic, 4) || load32(p + 4)) return fail_at(f, at, "no text record");
    if (size > TEXT_MAX || coded > TEXT_CODED_MAX(size)) return fail_at(f, at + 8, "impossible size of a text");
    if (r->claimed != SIZE_UNKNOWN && 8 + size > r->claimed) return fail_at(f, at + 8, "a text longer than the source");
    if (want(r, (size_t)coded + TEXT_PREFIX + 8, f)) return 1;
    p = input_bytes(r->in);
    if (bitsnap_hash(p, (size_t)coded + TEXT_PREFIX) != load64(p + TEXT_PREFIX + coded))
        return fail_at(f, at, "the check of the text does not match");
    r->text_size = (size_t)size;
    r->text = (char *)malloc(size ? (size_t)size : 1);
    if (!r->text) return fault_memory(f);
    if (text_decode(r->text, (size_t)size, p + TEXT_PREFIX, (size_t)coded, f)) return fault_add(f, DAMAGED);
    input_consume(r->in, (size_t)coded + TEXT_PREFIX + 8);
    r->done = 8 + size;
    return 0;
}

int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, fault *f)
{
    const uint8_t *p;
    memset(r, 0, sizeof *r);
    r->codec = c;
    r->in = in;
    r->limit = limit;
    if (input_fill(in, HEADER_SIZE, f)) return 1;
    p = input_bytes(in);
    if (input_available(in) >= 4 && !memcmp(p, frame_magic, 4) && !file_is_bsnap(p, input_available(in)))
        return fault_set(f, "is a bare bitsnap frame, not a .bsnap file");
    if (!file_is_bsnap(p, input_available(in)))
        return fault_set(f, "is not a .bsnap file: it does not begin with B5 53 4E 50 46 49 4C 45");
    if (want(r, HEADER_SIZE, f)) return 1;
    p = input_bytes(in);
    if (p[8] != 0) return fault_set(f, "is a .bsnap file of version %u (byte 8): a newer bitsnap is needed", p[8]);
    if (bitsnap_hash(p, 24) != load64(p + 24)) return fail_at(f, 0, "the check of the file header does not match");
    if (p[9] > SOURCE_SAFETENSORS)
        return fault_set(f, "holds a source of unknown kind %u (byte 9): a newer bitsnap is needed", p[9]);
    if (load64(p + 8) >> 16) return fail_at(f, 10, "reserved bytes that are not 0");
    r->kind = p[9];
    r->claimed = load64(p + 16);
    input_consume(in, HEADER_SIZE);
    if (r->claimed != SIZE_UNKNOWN && in->size != SIZE_UNKNOWN && check_limit(r, r->claimed, f)) return 1;
    if (r->limit && r->claimed != SIZE_UNKNOWN && check_limit(r, r->claimed, f)) return 1;
    if (r->kind == SOURCE_SAFETENSORS) return read_text(r, f);
    return 0;
}

static int read_end(file_reader *r, fault *f)
{
    const uint64_t at = r->in->offset;
    const size_t size = 8 * r->frames.count + END_SIZE;
    const uint8_t *p;
    size_t i;
    if (want(r, END_PREFIX, f)) return 1;
    p = input_bytes(r->in);
    if (load32(p + 4)) return fail_at(f, at + 4, "reserved bytes that are not 0");
    if (load64(p + 8) != r->done || (r->claimed != SIZE_UNKNOWN && r->claimed != r->done))
        return fail_at(f, at + 8, "the size of the source does not agree");
    if (load64(p + 16) != r->frames.count) return fail_at(f, at + 16, "the number of frames does not agree");
    if (want(r, size, f)) return 1;
    p = input_bytes(r->in);
    for (i = 0; i < r->frames.count; i++)
        if (load64(p + END_PREFIX + 8 * i) != r->frames.sizes[i])
            return fail_at(f, at + END_PREFIX + 8 * i, "the size of a frame does not agree");
    if (load64(p + size - 24) != size) return fail_at(f, at + size - 24, "wrong size of the end record");
    if (load64(p + size - 16) != bitsnap_hash(p, size - 16))
        return fail_at(f, at + size - 16, "the check of the end record does not match");
    if (memcmp(p + size - 8, last_magic, 8)) return fail_at(f, at + size - 8, "wrong last bytes");
    input_consume(r->in, size);
    if (input_fill(r->in, 1, f)) return 1;
    if (input_available(r->in))
        return fault_set(f, "there are bytes behind its end (from byte %llu on); cut them off",
                         (unsigned long long)r->in->offset);
    r->ended = 1;
    return 0;
}

/* The magic of the next record: 1 for a frame, 0 for the end record; less than 0 is a failure. */
static int next_record(file_reader *r, fault *f)
{
    const uint8_t *p;
    if (want(r, 4, f)) return -1;
    p = input_bytes(r->in);
    if (!memcmp(p, frame_magic, 4)) return 1;
    if (!memcmp(p, end_magic, 4)) return 0;
    (void)fail_at(f, r->in->offset, "neither a frame nor the end record");
    return -1;
}

/* Whether there may be so many elements more. */
static int check_frame(file_reader *r, uint64_t count, unsigned width, fault *f)
{
    const uint64_t bytes = count * width; /* count is at most 2^48 */
    if (bytes > UINT64_MAX - 1 - r->done) return fail_at(f, r->frame_begin + 8, "a source of 2^64 bytes or more");
    if (r->claimed != SIZE_UNKNOWN && r->done + bytes > r->claimed)
        return fail_at(f, r->frame_begin + 8, "more elements than the file header announces");
    /* of a pipe it will be known only when the elements have come what they took */
    if (r->claimed == SIZE_UNKNOWN && (r->limit || r->in->size != SIZE_UNKNOWN))
        return check_limit(r, r->done + bytes, f);
    return 0;
}

static void set_dtype(file_reader *r, bitsnap_dtype dtype)
{
    r->dtype = dtype;
    r->common = !r->common || r->common == dtype ? dtype : BITSNAP_I8;
}

static int frame_begin(file_reader *r, fault *f)
{
    size_t used;
    bitsnap_status status;
    r->frame_begin = r->in->offset;
    r->noted = 0;
    while ((status = bitsnap_pull_begin(&r->codec->b, &r->stream, input_bytes(r->in), input_available(r->in), &used)) ==
           BITSNAP_E_TRUNCATED)
        if (want(r, r->stream.need, f)) return 1;
    if (status) return fail_codec(r, f);
    input_consume(r->in, used);
    set_dtype(r, r->stream.dtype);
    r->in_frame = 1;
    return check_frame(r, r->stream.count, r->stream.width, f) || codec_reserve(r->codec, r->stream.block_log2, f);
}

static int frame_end(file_reader *r, fault *f)
{
    size_t used;
    bitsnap_status status;
    while ((status = bitsnap_pull_end(&r->codec->b, &r->stream, input_bytes(r->in), input_available(r->in), &used)) ==
           BITSNAP_E_TRUNCATED)
        if (want(r, r->stream.need, f)) return 1;
    if (status) return fail_codec(r, f);
    input_consume(r->in, used);
    r->in_frame = 0;
    return frame_list_add(&r->frames, r->in->offset - r->frame_begin, f);
}

/* Elements of the frame, until the window is full or the frame has no more. */
static int frame_window(file_reader *r, size_t *size, fault *f)
{
    bitsnap_stream *s = &r->stream;
    const size_t room = r->codec->window / s->width;
    size_t done = 0;
    while (done < room && s->position < s->count) {
        bitsnap_status status;
        size_t n, used;
        /* read on in good time, but do not move the window's bytes for every block */
        if (input_available(r->in) < r->codec->window / 2 && input_fill(r->in, r->codec->window, f)) return 1;
        status = bitsnap_pull(&r->codec->b, s, r->elements + done * s->width, room - done, &n, input_bytes(r->in),
                              input_available(r->in), &used);
        if (status == BITSNAP_E_TRUNCATED) {
            if (want(r, s->need, f)) return 1;
            continue;
        }
        if (status) return fail_codec(r, f);
        note_blocks(&r->observer, s, &r->noted, input_bytes(r->in), used);
        input_consume(r->in, used);
        done += n;
    }
    *size = done * s->width;
    r->done += *size;
    swap_elements(r->elements, *size, s->width);
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

static int look_at_frame(file_reader *r, fault *f)
{
    bitsnap_info info;
    bitsnap_status status;
    uint64_t done = 0, footer;
    unsigned flags;
    r->frame_begin = r->in->offset;
    if (want(r, FRAME_HEADER, f)) return 1;
    if (input_bytes(r->in)[7] & 0x80) { /* extensions, of a size that stands in front of them */
        const size_t size = FRAME_HEADER + 2 + (size_t)bytes_load(input_bytes(r->in) + 16, 2);
        if (want(r, size, f)) return 1;
    }
    status = bitsnap_read_info(&info, input_bytes(r->in), input_available(r->in));
    if (status) return fail_at(f, r->frame_begin, bitsnap_status_message(status));
    if (check_frame(r, info.count, info.width, f)) return 1;
    if (skip(r, info.header_size, f)) return 1;
    set_dtype(r, info.dtype);
    flags = (info.checks ? FLAG_CHECKS : 0u) | (info.has_content_id ? FLAG_CONTENT : 0u);
    footer = 0;
    if (info.blocks > 1 || info.has_content_id) footer = 28 + (info.checks ? 8u : 0u) + (info.has_content_id ? 8u : 0u);
    while (done < info.count) {
        const unsigned prefix = info.checks ? 12 : 4;
        uint64_t elements, size;
        unsigned form;
        if (want(r, 4, f)) return 1;
        form = input_bytes(r->in)[0];
        if (form > FORM_LAST) return fail_at(f, r->in->offset, "a block of a form that is not known");
        if (form == FORM_CONST && want(r, prefix + info.width + 4, f)) return 1;
        size = block_size(input_bytes(r->in), info.width, info.block_log2, flags, info.count - done, &elements);
        if (!elements || size - prefix > info.width * elements + 4)
            return fail_at(f, r->in->offset, "wrong size of a block");
        if (r->observer.note) r->observer.note(r->observer.context, elements * info.width, size);
        done += elements;
        footer += footer ? (form == FORM_CONST ? 8 : 4) : 0;
        if (skip(r, size, f)) return 1;
    }
    r->done += info.count * info.width;
    return skip(r, footer, f) || frame_list_add(&r->frames, r->in->offset - r->frame_begin, f);
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
    free(r->text);
    free(r->elements);
    free(r->frames.sizes);
    memset(r, 0, sizeof *r);
}
