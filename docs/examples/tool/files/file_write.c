/* file_write.c - writing .bsnap files: docs/FORMAT.md, section 8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "file.h"

#include "bytes.h"
#include "block.h"
#include "container.h"

#include <stdlib.h>
#include <string.h>

int record_list_add(record_list *l, uint64_t begin, uint64_t at, fault *f)
{
    uint8_t *entries = (uint8_t *)grown(l->entries, l->count, &l->capacity, BITSNAP_RECORD_ENTRY, f);
    if (!entries) return 1;
    l->entries = entries;
    entries += BITSNAP_RECORD_ENTRY * l->count++;
    bytes_store(entries, begin, 6);
    bytes_store(entries + 6, at, 6);
    return 0;
}

int file_end_record(uint8_t **bytes, size_t *size, const record_list *l, uint64_t source_size, const uint8_t *names, size_t name_count,
                    uint64_t file_check, fault *f)
{
    const uint64_t records = bitsnap_tree_size(l->count, BITSNAP_RECORD_ENTRY), whole = BITSNAP_END_PREFIX + records + bitsnap_tree_size(name_count, BITSNAP_NAME_ENTRY) + BITSNAP_END_SUFFIX;
    uint8_t fixed[8 + BITSNAP_END_PREFIX + BITSNAP_END_SUFFIX - 16], *p;
    *bytes = p = (uint8_t *)malloc((size_t)whole);
    if (!p) return fault_memory(f);
    *size = (size_t)whole;
    memcpy(p, BITSNAP_END_MAGIC, 4);
    store32(p + 4, (uint32_t)name_count);
    store64(p + 8, source_size);
    store64(p + 16, l->count);
    store64(p + whole - 40, bitsnap_tree_write(p + BITSNAP_END_PREFIX, l->entries, l->count, BITSNAP_RECORD_ENTRY, file_check));
    store64(p + whole - 32, bitsnap_tree_write(p + BITSNAP_END_PREFIX + records, names, name_count, BITSNAP_NAME_ENTRY, file_check));
    store64(p + whole - 24, whole);
    store64(fixed, file_check);
    memcpy(fixed + 8, p, BITSNAP_END_PREFIX);
    memcpy(fixed + 8 + BITSNAP_END_PREFIX, p + whole - 40, BITSNAP_END_SUFFIX - 16);
    store64(p + whole - 16, bitsnap_hash(fixed, sizeof fixed));
    memcpy(p + whole - 8, BITSNAP_LAST_MAGIC, 8);
    return 0;
}

/* The check of a record behind its other bytes, and all of it into the file. */
static int put_record(file_writer *w, uint8_t *record, size_t size, fault *f)
{
    store64(record + size, bitsnap_hash(record, size));
    return output_write(w->out, record, size + 8, f);
}

/* The text of the source as records; with more than one piece its names are to be found without all of it. `text` may be null. */
static int put_text(file_writer *w, const uint8_t *coded, size_t coded_size, const char *text, size_t text_size, fault *f)
{
    size_t at, pieces = 0;
    uint64_t begin = 8;
    for (at = 0; at < coded_size; at += BITSNAP_TEXT_PREFIX + load32(coded + at + 8) + 8, pieces++) {
        if (record_list_add(&w->records, begin, w->out->size + at, f)) return 1;
        begin += load32(coded + at + 4);
    }
    if (text && pieces > 1 && tree_names(&w->names, &w->name_count, text, text_size, f)) return 1;
    return output_write(w->out, coded, coded_size, f);
}

static int put_header(file_writer *w, codec *c, output *out, int kind, unsigned flags, uint64_t text_size, uint64_t source_size, fault *f)
{
    uint8_t header[BITSNAP_FILE_HEADER];
    memset(w, 0, sizeof *w);
    w->codec = c;
    w->out = out;
    if (source_size != SIZE_UNKNOWN && source_size > BITSNAP_FILE_MOST) return fault_set(f, "is too large: 2^48 bytes or more");
    /* a window, and 32 bytes a block; header and footer come one at a time, cells that are equal to the base together */
    w->packed_size = c->window + 32 * (c->window >> 16) + 704;
    w->packed = (uint8_t *)malloc(w->packed_size);
    if (!w->packed) return fault_memory(f);
    memset(header, 0, sizeof header);
    memcpy(header, BITSNAP_FILE_MAGIC, 8);
    header[8] = 1;
    header[9] = (uint8_t)kind;
    header[10] = (uint8_t)flags;
    store32(header + 12, (uint32_t)text_size); /* at most 100,000,000 */
    store64(header + 16, source_size);
    w->file_check = bitsnap_hash(header, 24);
    store64(header + 24, w->file_check);
    w->source_size = kind == BITSNAP_SOURCE_RAW ? 0 : 8 + text_size;
    return output_write(out, header, sizeof header, f);
}

int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     int quantized, fault *f)
{
    uint8_t *coded;
    size_t coded_size;
    int failed;
    if (put_header(w, c, out, text ? BITSNAP_SOURCE_SAFETENSORS : BITSNAP_SOURCE_RAW, quantized ? BITSNAP_FILE_QUANTIZED : 0, text_size, source_size, f)) return 1;
    if (!text) return 0;
    if (text_encode(&coded, &coded_size, text, text_size, NULL, 0, f)) return 1;
    failed = put_text(w, coded, coded_size, text, text_size, f);
    free(coded);
    return failed;
}

int file_write_delta(file_writer *w, codec *c, output *out, const file_link *l, const file_base *base, fault *f)
{
    const size_t name_size = l->base.name && strlen(l->base.name) < 256 ? strlen(l->base.name) : 0;
    uint8_t record[BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY + 255 + 8], *entry = record + BITSNAP_BASES_PREFIX;
    if (put_header(w, c, out, BITSNAP_SOURCE_DELTA, 0, l->own.text_size, 8 + l->own.text_size + l->own.data_size, f)) return 1;
    w->base = base;
    memcpy(record, BITSNAP_BASES_MAGIC, 4);
    record[4] = 1;
    record[5] = (uint8_t)((l->coded_size ? 0 : BITSNAP_BASES_SAME_TEXT) | (l->base_coded_size ? BITSNAP_BASES_WITH_TEXT : 0));
    bytes_store(record + 6, BITSNAP_BASE_ENTRY + name_size, 2);
    store64(record + 8, l->own.id);
    store32(entry, (uint32_t)l->base.text_size);
    store64(entry + 4, l->base.data_size);
    store64(entry + 12, l->base.id);
    entry[20] = (uint8_t)name_size;
    if (name_size) memcpy(entry + BITSNAP_BASE_ENTRY, l->base.name, name_size);
    return put_record(w, record, BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY + name_size, f) || output_write(out, l->base_coded, l->base_coded_size, f) ||
           put_text(w, l->coded, l->coded_size, l->own.text, (size_t)l->own.text_size, f);
}

static int write_failed(const file_writer *w, fault *f)
{
    return fault_set(f, "could not be compressed: %s", bitsnap_message(&w->codec->b));
}

/* What stands before a frame: the place of its base, where it has one. */
static int begin_frame(file_writer *w, const uint64_t *place, fault *f)
{
    uint8_t record[BITSNAP_PLACE_SIZE];
    w->frame_begin = w->out->size;
    if (record_list_add(&w->records, w->source_size, w->frame_begin, f)) return 1;
    if (!place) return 0;
    memcpy(record, BITSNAP_PLACE_MAGIC, 4);
    bytes_store(record + 4, 0, 2); /* the first of the bases */
    bytes_store(record + 6, *place, 6);
    store32(record + 12, (uint32_t)bitsnap_hash(record, 12));
    w->frame_begin += BITSNAP_PLACE_SIZE;
    return output_write(w->out, record, BITSNAP_PLACE_SIZE, f);
}

static void end_frame(file_writer *w)
{
    w->records.frames++;
    w->records.last = w->out->size - w->frame_begin;
    w->records.frame_bytes += w->records.last;
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
    if (begin_frame(w, range ? &range->begin : NULL, f) || (range && file_use_range(w->codec, &w->used, w->base, range, count, f)))
        return 1;
    b->quantizer.cells = form->cells;
    b->quantizer.clusters = form->clusters;
    b->columns = form->columns;
    if (form->cells | form->clusters) b->flags &= ~(unsigned)BITSNAP_CONTENT_ID; /* which would be that of other elements */
    status = bitsnap_encoder_begin(b, &w->stream, w->packed, w->packed_size, &size, count, form->dtype);
    reset_form(w->codec);
    if (status) return write_failed(w, f);
    return codec_reserve(w->codec, w->stream.block_log2, range || form->cells || form->clusters || form->columns, f) ||
           output_write(w->out, w->packed, size, f);
}

int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f)
{
    bitsnap_encoder *s = &w->stream;
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
    if (bitsnap_encoder_push(&w->codec->b, s, w->packed, w->packed_size, &size, elements, n)) return write_failed(w, f);
    file_note_blocks(&w->observer, s, &w->noted, w->packed, size);
    w->source_size += bytes;
    return output_write(w->out, w->packed, size, f);
}

int file_write_frame_end(file_writer *w, fault *f)
{
    bitsnap_encoder *s = &w->stream;
    size_t size, capacity = 128 + s->index_size + s->index_size / 32;
    uint8_t *footer = (uint8_t *)malloc(capacity);
    int failed;
    if (!footer) return fault_memory(f);
    if (bitsnap_encoder_end(&w->codec->b, s, footer, capacity, &size)) failed = write_failed(w, f);
    else failed = output_write(w->out, footer, size, f);
    end_frame(w);
    if (!failed && (s->cells | s->clusters)) w->certificate = certificate_read(footer + (size_t)index_size(s->index_size / 4), s->cells);
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
    note_packed(w, frame, size);
    if (begin_frame(w, place, f) || output_write(w->out, frame, size, f)) return 1;
    w->source_size += source_bytes;
    end_frame(w);
    return 0;
}

int file_write_end(file_writer *w, fault *f)
{
    uint8_t *record;
    size_t size;
    int failed;
    if (w->source_size > BITSNAP_FILE_MOST || w->out->size > BITSNAP_FILE_MOST) return fault_set(f, "is too large: 2^48 bytes or more");
    if (file_end_record(&record, &size, &w->records, w->source_size, w->names, w->name_count, w->file_check, f)) return 1;
    failed = output_write(w->out, record, size, f);
    free(record);
    return failed;
}

void file_write_close(file_writer *w)
{
    if (w->codec) file_release_range(w->codec, &w->used);
    free(w->stream.index);
    free(w->packed);
    free(w->records.entries);
    free(w->names);
    memset(w, 0, sizeof *w);
}
