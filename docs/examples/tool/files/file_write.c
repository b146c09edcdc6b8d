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
    bitsnap_file_error e;
    return bitsnap_end_record(bytes, size, l->entries, l->count, source_size, names, name_count, file_check, NULL, &e) ? fault_memory(f) : 0;
}

static int write_out(void *context, const void *bytes, size_t size)
{
    const file_writer *w = (const file_writer *)context;
    return output_write(w->out, bytes, size, w->fault);
}

/* Before a call of the writer, and what it has come to. */
static void ready(file_writer *w, fault *f)
{
    w->fault = f;
    memset(&w->codec->b.error, 0, sizeof w->codec->b.error);
}

static int done(const file_writer *w, bitsnap_status status, fault *f)
{
    if (!status || status == BITSNAP_E_SOURCE) return status != BITSNAP_OK; /* output_write has said why */
    if (w->codec->b.error.status) return fault_set(f, "could not be compressed: %s", bitsnap_message(&w->codec->b));
    return status == BITSNAP_E_WORKSPACE ? fault_memory(f) : fault_set(f, "%s", w->to.error.message);
}

static int put_head(file_writer *w, codec *c, output *out, const bitsnap_file_head *head, fault *f)
{
    const bitsnap_sink sink = { write_out, w };
    memset(w, 0, sizeof *w);
    w->codec = c;
    w->out = out;
    ready(w, f);
    return done(w, bitsnap_file_write_head(&w->to, &c->b, &sink, head, NULL), f);
}

int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     int quantized, fault *f)
{
    bitsnap_file_head head;
    memset(&head, 0, sizeof head);
    head.kind = text ? BITSNAP_SOURCE_SAFETENSORS : BITSNAP_SOURCE_RAW;
    head.quantized = quantized;
    head.source_size = source_size;
    head.text = text;
    head.text_size = text_size;
    return put_head(w, c, out, &head, f);
}

int file_write_delta(file_writer *w, codec *c, output *out, const file_link *l, const file_base *base, fault *f)
{
    bitsnap_file_head head;
    bitsnap_file_base of[BASES_MOST];
    const link_end *e;
    memset(&head, 0, sizeof head);
    memset(of, 0, sizeof of);
    head.kind = BITSNAP_SOURCE_DELTA;
    head.source_size = 8 + l->own.text_size + l->own.data_size;
    head.text = l->own.text;
    head.text_size = (size_t)l->own.text_size;
    head.coded = l->coded;
    head.coded_size = l->coded_size;
    head.text_id = l->own.id;
    for (e = &l->base; e && head.base_count < BASES_MOST; e = e->next) {
        bitsnap_file_base *x = &of[head.base_count++];
        x->name = e->name;
        x->text_size = e->text_size;
        x->data_size = e->data_size;
        x->text_id = e->id;
    }
    if (e) return fault_set(f, "has its tensors in more than %d files of the base", BASES_MOST);
    head.bases = of;
    head.base_coded = l->base_coded;
    head.base_coded_size = l->base_coded_size;
    if (put_head(w, c, out, &head, f)) return 1;
    w->base = base;
    return 0;
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
    bitsnap_file_place place = { 0, 0 };
    bitsnap_status status;
    w->noted = 0;
    ready(w, f);
    if (range && file_use_range(w->codec, &w->used, w->base, range, count, 1, f)) return 1;
    b->quantizer.cells = form->cells;
    b->quantizer.clusters = form->clusters;
    b->columns = form->columns;
    if (form->cells | form->clusters) b->flags &= ~(unsigned)BITSNAP_CONTENT_ID; /* which would be that of other elements */
    if (range) {
        place.base = range->base;
        place.begin = range->begin;
    }
    status = bitsnap_file_write_frame(&w->to, form->dtype, count, range ? &place : NULL);
    reset_form(w->codec);
    return done(w, status, f) || codec_reserve(w->codec, w->to.stream.block_log2, range || form->cells || form->clusters || form->columns, f);
}

int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f)
{
    const bitsnap_encoder *e = &w->to.stream;
    const unsigned width = e->width;
    const size_t most = w->used.base ? (size_t)w->codec->b.workers << e->block_log2 : bytes / width;
    uint8_t *p = (uint8_t *)elements;
    size_t left, n;
    ready(w, f);
    swap_elements(elements, bytes, width);
    for (left = bytes / width; left; left -= n, p += n * width) {
        n = left < most ? left : most;
        if (file_use_blocks(w->codec, &w->used, e->position, e->block_log2, f) || done(w, bitsnap_file_write_elements(&w->to, p, n), f)) return 1;
        file_note_blocks(&w->observer, e, &w->noted, w->to.written, w->to.written_size);
    }
    return 0;
}

int file_write_frame_end(file_writer *w, fault *f)
{
    const bitsnap_encoder s = w->to.stream;
    int failed;
    ready(w, f);
    failed = done(w, bitsnap_file_write_frame_end(&w->to), f);
    if (!failed && (s.cells | s.clusters)) w->certificate = certificate_read(w->to.written + (size_t)index_size(s.index_size / 4), s.cells);
    file_release_range(w->codec, &w->used);
    return failed;
}

int file_pack_frame(file_writer *w, const file_form *form, void *elements, size_t bytes, const file_range *range,
                    uint8_t *frame, size_t capacity, size_t *size, fault *f)
{
    bitsnap *b = &w->codec->b;
    const unsigned width = bitsnap_width(form->dtype);
    bitsnap_status status;
    if ((range && (file_use_range(w->codec, &w->used, w->base, range, bytes / width, 1, f) ||
                   file_use_blocks(w->codec, &w->used, 0, 31, f))) || /* all of it */
        codec_reserve(w->codec, b->level == BITSNAP_BEST ? 20 : 0, range || form->columns, f)) /* no blocks are larger */
        return 1;
    b->columns = form->columns;
    swap_elements(elements, bytes, width);
    status = bitsnap_encode(b, frame, capacity, size, elements, bytes / width, form->dtype);
    swap_elements(elements, bytes, width);
    reset_form(w->codec);
    file_release_range(w->codec, &w->used);
    return status ? fault_set(f, "could not be compressed: %s", bitsnap_message(b)) : 0;
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

int file_write_packed(file_writer *w, const uint8_t *frame, size_t size, uint64_t source_bytes, const file_range *range, fault *f)
{
    bitsnap_file_place place = { 0, 0 };
    if (range) {
        place.base = range->base;
        place.begin = range->begin;
    }
    note_packed(w, frame, size);
    ready(w, f);
    return done(w, bitsnap_file_write_packed(&w->to, frame, size, source_bytes, range ? &place : NULL), f);
}

int file_write_end(file_writer *w, fault *f)
{
    ready(w, f);
    return done(w, bitsnap_file_write_end(&w->to), f);
}

void file_write_close(file_writer *w)
{
    if (w->codec) file_release_range(w->codec, &w->used);
    file_used_free(&w->used);
    bitsnap_file_write_close(&w->to);
    memset(w, 0, sizeof *w);
}
