/* file_write.c - writing .bsnap files: docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "posix.h"

#include "file.h"

#include "bytes.h"
#include "record.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

/* Bytes of a record. */
typedef struct part {
    const uint8_t *bytes;
    size_t size;
} part;

/* A record: its parts, and the check of all of them. */
static int put_record(file_writer *w, const part *parts, size_t count, fault *f)
{
    uint8_t *record, *p;
    size_t i, size = 0;
    int failed;
    for (i = 0; i < count; i++) size += parts[i].size;
    record = p = (uint8_t *)malloc(size + 8);
    if (!record) return fault_memory(f);
    for (i = 0; i < count; p += parts[i++].size)
        if (parts[i].size) memcpy(p, parts[i].bytes, parts[i].size);
    store64(p, bitsnap_hash(record, size));
    failed = output_write(w->out, record, size + 8, f);
    free(record);
    return failed;
}

static int put_text(file_writer *w, uint64_t text_size, const uint8_t *coded, size_t coded_size, fault *f)
{
    uint8_t prefix[TEXT_PREFIX];
    const part parts[2] = { { prefix, sizeof prefix }, { coded, coded_size } };
    memset(prefix, 0, sizeof prefix);
    memcpy(prefix, text_magic, 4);
    store64(prefix + 8, text_size);
    store64(prefix + 16, coded_size);
    w->source_size += 8 + text_size;
    return put_record(w, parts, 2, f);
}

static int put_header(file_writer *w, codec *c, output *out, int kind, unsigned flags, uint64_t source_size, fault *f)
{
    uint8_t header[HEADER_SIZE];
    memset(w, 0, sizeof *w);
    w->codec = c;
    w->out = out;
    /* a window, and 32 bytes a block; header and footer come one at a time, cells that are equal to the base together */
    w->packed_size = c->window + 32 * (c->window >> 16) + 704;
    w->packed = (uint8_t *)malloc(w->packed_size);
    if (!w->packed) return fault_memory(f);
    memset(header, 0, sizeof header);
    memcpy(header, file_magic, 8);
    header[9] = (uint8_t)kind;
    header[10] = (uint8_t)flags;
    store64(header + 16, source_size);
    store64(header + 24, bitsnap_hash(header, 24));
    return output_write(out, header, sizeof header, f);
}

int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     int quantized, fault *f)
{
    uint8_t *coded;
    size_t coded_size;
    int failed;
    if (put_header(w, c, out, text ? SOURCE_SAFETENSORS : SOURCE_RAW, quantized ? FILE_QUANTIZED : 0, source_size, f)) return 1;
    if (!text) return 0;
    if (text_encode(&coded, &coded_size, text, text_size, f)) return 1;
    failed = put_text(w, text_size, coded, coded_size, f);
    free(coded);
    return failed;
}

int file_write_delta(file_writer *w, codec *c, output *out, const file_link *l, const file_base *base, fault *f)
{
    uint8_t prefix[BASE_PREFIX];
    const part parts[3] = { { prefix, sizeof prefix }, { l->base_coded, l->base_coded_size }, { l->coded, l->coded_size } };
    if (put_header(w, c, out, SOURCE_DELTA, 0, 8 + l->own.text_size + l->own.data_size, f)) return 1;
    w->base = base;
    w->source_size = 8 + l->own.text_size;
    memcpy(prefix, base_magic, 4);
    store32(prefix + 4, (uint32_t)l->base.text_size); /* texts have at most 100,000,000 bytes, coded 1,600,065,536 */
    store64(prefix + 8, l->base.data_size);
    store64(prefix + 16, l->base.id);
    store64(prefix + 24, l->own.id);
    store32(prefix + 32, (uint32_t)l->own.text_size);
    store32(prefix + 36, (uint32_t)l->base_coded_size);
    store32(prefix + 40, (uint32_t)l->coded_size);
    return put_record(w, parts, 3, f);
}

static int write_failed(const file_writer *w, fault *f)
{
    return fault_set(f, "could not be compressed: %s", bitsnap_message(&w->codec->b));
}

static int put_place(file_writer *w, uint64_t place, fault *f)
{
    uint8_t prefix[PLACE_SIZE - 8];
    const part all = { prefix, sizeof prefix };
    memcpy(prefix, place_magic, 4);
    store64(prefix + 4, place);
    return put_record(w, &all, 1, f);
}

/* The codec as all frames want it that are not quantized. */
static void reset_form(codec *c)
{
    memset(&c->b.quantizer, 0, sizeof c->b.quantizer);
    c->b.columns = 0;
    c->b.flags |= BITSNAP_CONTENT_ID;
}

int file_write_frame(file_writer *w, const file_form *form, uint64_t count, const file_range *range, fault *f)
{
    bitsnap *b = &w->codec->b;
    size_t size;
    bitsnap_status status;
    w->noted = 0;
    if (range && (put_place(w, range->begin, f) || file_use_range(w->codec, &w->used, w->base, range, count, f))) return 1;
    b->quantizer.cells = form->cells;
    b->columns = form->columns;
    if (form->cells) b->flags &= ~(unsigned)BITSNAP_CONTENT_ID; /* which would be that of other elements */
    status = bitsnap_push_begin(b, &w->stream, w->packed, w->packed_size, &size, count, form->dtype);
    reset_form(w->codec);
    if (status) return write_failed(w, f);
    return codec_reserve(w->codec, w->stream.block_log2, range || w->stream.cells || w->stream.columns, f) ||
           output_write(w->out, w->packed, size, f);
}

int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f)
{
    bitsnap_stream *s = &w->stream;
    const size_t n = bytes / s->width, wanted = s->index_size + 4 * ((n >> s->block_log2) + 2);
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
    file_note_blocks(&w->observer, s, &w->noted, w->packed, size);
    w->source_size += bytes;
    return output_write(w->out, w->packed, size, f);
}

int file_write_frame_end(file_writer *w, fault *f)
{
    bitsnap_stream *s = &w->stream;
    size_t size, capacity = 128 + s->index_size + s->index_size / 32;
    uint8_t *footer = (uint8_t *)malloc(capacity);
    int failed;
    if (!footer) return fault_memory(f);
    if (bitsnap_push_end(&w->codec->b, s, footer, capacity, &size)) failed = write_failed(w, f);
    else failed = output_write(w->out, footer, size, f) || frame_list_add(&w->frames, s->stored, f);
    if (!failed && s->cells) w->certificate = certificate_read(footer + (size_t)index_size(s->index_size / 4), s->cells);
    free(footer);
    free(s->index);
    memset(s, 0, sizeof *s);
    file_release_range(w->codec, &w->used);
    return failed;
}

int file_pack_frame(file_writer *w, const file_form *form, void *elements, size_t bytes, const file_range *range,
                    uint8_t *frame, size_t capacity, size_t *size, fault *f)
{
    bitsnap *b = &w->codec->b;
    const unsigned width = bitsnap_width(form->dtype);
    bitsnap_status status;
    if ((range && file_use_range(w->codec, &w->used, w->base, range, bytes / width, f)) ||
        codec_reserve(w->codec, b->level == BITSNAP_BEST ? 20 : 0, range || form->columns, f)) /* no blocks are larger */
        return 1;
    b->columns = form->columns;
    swap_elements(elements, bytes, width);
    status = bitsnap_encode(b, frame, capacity, size, elements, bytes / width, form->dtype);
    swap_elements(elements, bytes, width);
    reset_form(w->codec);
    file_release_range(w->codec, &w->used);
    return status ? write_failed(w, f) : 0;
}

/* The blocks of a whole frame, for who wants to know. */
static void note_packed(const file_writer *w, const uint8_t *frame, size_t size)
{
    bitsnap_info info;
    block_kind kind;
    block_size b;
    uint64_t done;
    if (!w->observer.note || bitsnap_read_info(&info, frame, size)) return;
    kind.width = info.width;
    kind.block_log2 = info.block_log2;
    kind.checks = info.checks;
    kind.base = info.has_base;
    frame += info.header_size;
    for (done = 0; done < info.count; done += b.elements, frame += b.whole) {
        b = block_look(frame, &kind, info.count - done);
        w->observer.note(w->observer.context, b.elements * info.width, b.whole);
    }
}

int file_write_packed(file_writer *w, const uint8_t *frame, size_t size, uint64_t source_bytes, const uint64_t *place, fault *f)
{
    w->source_size += source_bytes;
    note_packed(w, frame, size);
    return (place && put_place(w, *place, f)) || output_write(w->out, frame, size, f) || frame_list_add(&w->frames, size, f);
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
    if (w->codec) file_release_range(w->codec, &w->used);
    free(w->stream.index);
    free(w->packed);
    free(w->frames.sizes);
    memset(w, 0, sizeof *w);
}
