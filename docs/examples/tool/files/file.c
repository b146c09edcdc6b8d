/* file.c - .bsnap files as the tool reads and writes them, from the first byte to the last.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "file.h"

#include "bytes.h"
#include "delta.h"
#include "foreign.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB ((uint64_t)1 << 30)
#define DAMAGED "; take another copy of the file"

const char *size_text(char *text, uint64_t bytes)
{
    static const char *const units[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double x = (double)bytes;
    size_t i = 0;
    for (; x >= 1024 && i < 6; i++) x /= 1024;
    (void)snprintf(text, 32, i ? "%.1f %s" : "%.0f %s", x, units[i]);
    return text;
}

int file_is_bsnap(const uint8_t *bytes, size_t size) { return size >= 8 && !memcmp(bytes, BITSNAP_FILE_MAGIC, 8); }

int file_is_delta(const uint8_t *bytes, size_t size)
{
    return size >= 10 && file_is_bsnap(bytes, size) && bytes[9] == BITSNAP_SOURCE_DELTA;
}

static const file_base *base_at(const file_base *bases, unsigned number)
{
    while (number--) bases = bases->next;
    return bases;
}

int file_base_read(const file_base *bases, const file_range *range, void *to, size_t size, fault *f)
{
    const file_base *b = base_at(bases, range->base);
    return bitsnap_file_read_data(b->file, range->begin, to, size) ? b->failed(b, f) : 0;
}

/* Reports the blocks at p, which begin with element *noted of a frame. */
static void note_blocks(const block_observer *o, const bitsnap_info *info, uint64_t *noted, const uint8_t *p, size_t size)
{
    while (size) {
        const bitsnap_file_block b = bitsnap_file_block_at(p, info, *noted);
        if (o->note) o->note(o->context, b.elements * info->width, b.size);
        if (o->against && (b.form == FORM_SAME || b.form == FORM_CLASSED || b.form == FORM_SPARSE || b.form == FORM_PATCHED)) *o->against += b.elements * info->width;
        *noted += b.elements;
        p += (size_t)b.size;
        size -= (size_t)b.size;
    }
}

/* ================================================================================= WRITING */

static int write_out(void *context, const void *bytes, size_t size)
{
    const file_writer *w = (const file_writer *)context;
    return output_write(w->out, bytes, size, w->fault);
}

/* ready() precedes a call of the writer; done() sets the fault if it failed. */
static void ready(file_writer *w, fault *f)
{
    w->fault = f;
    memset(&w->codec->b.error, 0, sizeof w->codec->b.error);
}

static int done(const file_writer *w, bitsnap_status status, fault *f)
{
    const bitsnap_file_error *e = &w->to.error;
    const file_base *base = !status || !e->depth ? NULL : e->base == BITSNAP_BASE_ITSELF ? w->itself : base_at(w->base, e->base);
    if (base) return base->failed(base, f);
    if (!status || status == BITSNAP_E_SOURCE) return status != BITSNAP_OK; /* output_write has set the fault */
    if (w->codec->b.error.status) return fault_set(f, "could not be compressed: %s", bitsnap_message(&w->codec->b));
    return status == BITSNAP_E_WORKSPACE ? fault_memory(f) : fault_set(f, "%s", e->message);
}

static int put_head(file_writer *w, codec *c, output *out, bitsnap_file_head *head, const file_base *base, fault *f)
{
    const bitsnap_sink sink = { write_out, w };
    memset(w, 0, sizeof *w);
    head->sha256 = c->sha256;
    w->codec = c;
    w->out = out;
    w->base = base;
    ready(w, f);
    return done(w, bitsnap_file_write_head(&w->to, &c->b, &sink, head, NULL), f);
}

int file_write_begin(file_writer *w, codec *c, output *out, uint64_t source_size, const char *text, size_t text_size,
                     unsigned frames, fault *f)
{
    bitsnap_file_head head = { 0 };
    head.kind = text ? BITSNAP_SOURCE_SAFETENSORS : BITSNAP_SOURCE_RAW;
    head.quantized = (frames & FRAMES_QUANTIZED) != 0;
    head.references = (frames & FRAMES_REFER) != 0;
    head.source_size = source_size;
    head.text = text;
    head.text_size = text_size;
    return put_head(w, c, out, &head, NULL, f);
}

void file_write_itself(file_writer *w, const file_base *itself)
{
    w->itself = itself;
    w->to.itself = itself->file;
}

int file_write_delta(file_writer *w, codec *c, output *out, const delta_ends *ends, const file_base *base, unsigned frames, fault *f)
{
    bitsnap_file_head head;
    const file_base *from = base;
    size_t i;
    if (ends->base_count > BASES_MOST) return fault_set(f, "has its tensors in more than %d files of the base", BASES_MOST);
    for (i = 0; from && i < ends->base_count; i++, from = from->next) ends->bases[i].file = from->file;
    memset(&head, 0, sizeof head);
    head.kind = BITSNAP_SOURCE_DELTA;
    head.references = (frames & FRAMES_REFER) != 0;
    head.source_size = 8 + ends->own.text_size + ends->own.data_size;
    head.text = ends->own_text;
    head.text_size = (size_t)ends->own.text_size;
    head.coded = ends->coded;
    head.coded_size = ends->coded_size;
    head.text_id = ends->own.text_id;
    head.bases = ends->bases;
    head.base_count = ends->base_count;
    head.base_coded = ends->base_coded;
    head.base_coded_size = ends->base_coded_size;
    return put_head(w, c, out, &head, base, f);
}

/* Sets the options of a frame in the codec. reset_form sets those of a frame without quantizer, base and columns. */
static void set_form(codec *c, const file_form *form, const file_range *range)
{
    c->b.quantizer.bins = form->cells;
    c->b.quantizer.clusters = form->clusters;
    c->b.columns = form->columns;
    /* a content id would be that of other elements */
    if (form->cells | form->clusters) c->b.flags &= ~(unsigned)BITSNAP_CONTENT_ID;
    if (range) c->b.base.dtype = range->dtype;
}

static int is_large(const file_form *form, const file_range *range)
{
    return range || form->cells || form->clusters || form->columns;
}

static void reset_form(codec *c)
{
    memset(&c->b.quantizer, 0, sizeof c->b.quantizer);
    c->b.columns = 0;
    c->b.flags |= BITSNAP_CONTENT_ID;
}

static const bitsnap_file_place *base_place(bitsnap_file_place *place, const file_range *range)
{
    if (!range) return NULL;
    place->base = range->base;
    place->begin = range->begin;
    return place;
}

int file_write_frame(file_writer *w, const file_form *form, uint64_t count, const file_range *range, fault *f)
{
    bitsnap_file_place place;
    bitsnap_status status;
    w->noted = 0;
    ready(w, f);
    set_form(w->codec, form, range);
    status = bitsnap_file_write_frame(&w->to, form->dtype, count, base_place(&place, range));
    reset_form(w->codec);
    if (done(w, status, f)) return 1;
    (void)bitsnap_read_info(&w->info, w->to.written, w->to.written_size);
    return codec_reserve(w->codec, w->to.stream.block_log2, is_large(form, range), f);
}

int file_write_window(file_writer *w, void *elements, size_t bytes, fault *f)
{
    const unsigned width = w->to.stream.width;
    ready(w, f);
    bitsnap_file_write_source(&w->to, elements, bytes);
    swap_elements(elements, bytes, width);
    if (done(w, bitsnap_file_write_elements(&w->to, elements, bytes / width), f)) return 1;
    note_blocks(&w->observer, &w->info, &w->noted, w->to.written, w->to.written_size);
    return 0;
}

int file_write_frame_end(file_writer *w, fault *f)
{
    ready(w, f);
    return done(w, bitsnap_file_write_frame_end(&w->to), f);
}

int file_pack_frame(file_writer *w, const file_form *form, void *elements, size_t bytes, const file_range *range,
                    uint8_t *frame, size_t capacity, size_t *size, fault *f)
{
    const unsigned width = bitsnap_width(form->dtype);
    bitsnap_file_place place;
    bitsnap_status status;
    /* the largest blocks that are made */
    if (codec_reserve(w->codec, w->codec->b.level == BITSNAP_BEST ? 20 : 0, is_large(form, range), f)) return 1;
    ready(w, f);
    set_form(w->codec, form, range);
    swap_elements(elements, bytes, width);
    status = bitsnap_file_pack(&w->to, frame, capacity, size, form->dtype, elements, bytes / width, base_place(&place, range));
    swap_elements(elements, bytes, width);
    reset_form(w->codec);
    return done(w, status, f);
}

int file_write_packed(file_writer *w, const uint8_t *frame, size_t size, uint64_t source_bytes, const bitsnap_file_place *place, fault *f)
{
    bitsnap_file_block b;
    bitsnap_info info;
    uint64_t noted = 0;
    size_t at;
    if (w->observer.note && !bitsnap_read_info(&info, frame, size))
        for (at = info.header_size; noted < info.count; at += (size_t)b.size) {
            b = bitsnap_file_block_at(frame + at, &info, noted);
            w->observer.note(w->observer.context, b.elements * info.width, b.size);
            noted += b.elements;
        }
    ready(w, f);
    return done(w, bitsnap_file_write_packed(&w->to, frame, size, source_bytes, place), f);
}

int file_write_end(file_writer *w, fault *f)
{
    ready(w, f);
    return done(w, bitsnap_file_write_end(&w->to), f);
}

void file_write_close(file_writer *w)
{
    bitsnap_file_write_close(&w->to);
    memset(w, 0, sizeof *w);
}

/* ================================================================================= READING */

static int get_bytes(void *context, void *to, size_t size, size_t *got)
{
    const file_reader *r = (const file_reader *)context;
    return input_read(r->in, to, size, got, r->fault);
}

static int pass_bytes(void *context, uint64_t size, uint64_t *passed)
{
    const file_reader *r = (const file_reader *)context;
    return input_skip(r->in, size, passed, r->fault);
}

/* Stores elements that later frames refer to in a temporary file, if memory does not hold them. A restored output file holds them
 * already. */
static int spill(void *context, uint64_t offset, const void *bytes, size_t size)
{
    file_reader *r = (file_reader *)context;
    if (r->restored) return 0;
    if (r->spool.fd < 0 && spool_open(&r->spool, r->fault)) return 1;
    return output_write_at(&r->spool, offset, bytes, size, r->fault);
}

static int read_spilled(void *context, uint64_t offset, void *to, size_t size)
{
    file_reader *r = (file_reader *)context;
    const uint64_t text = r->s.start.kind == BITSNAP_SOURCE_RAW ? 0 : 8 + r->text_size;
    return output_read_at(r->restored ? r->restored : &r->spool, r->restored ? text + offset : offset, to, size, r->fault);
}

/* Sets the fault to the codec's error, at this byte of the file. */
static int codec_failed(const file_reader *r, uint64_t at, fault *f)
{
    const bitsnap *b = &r->codec->b;
    const unsigned long long element = b->error.element, byte = at, frame = r->s.frames;
    const char *called = r->s.frame.base < r->ends.base_count ? r->ends.bases[r->s.frame.base].name : NULL;
    switch (b->error.status) {
    case BITSNAP_E_BASE:
        return fault_set(f, "%s (frame %llu, element %llu); give the right base%s%s", bitsnap_message(b), frame, element,
                         called && *called ? ", which was called " : "", called ? called : "");
    case BITSNAP_E_UNSUPPORTED:
        (void)fault_set(f, "%s (R%u, byte %llu): made by a newer bitsnap; use that version", bitsnap_message(b), b->error.rule, byte);
        return f->passes = 1; /* the file may be fine */
    case BITSNAP_E_MAGIC:
    case BITSNAP_E_CHECK:
    case BITSNAP_E_CORRUPT: return fault_set(f, "%s (byte %llu, frame %llu, element %llu)" DAMAGED, bitsnap_message(b), byte, frame, element);
    default: return fault_set(f, "could not be decoded: %s (byte %llu)", bitsnap_message(b), byte);
    }
}

/* Sets the fault to the error of the last call on the stream. */
static int read_failed(const file_reader *r, fault *f)
{
    const bitsnap_file_error *e = &r->s.error;
    const unsigned long long at = e->offset;
    const file_base *base = e->depth ? base_at(r->base, e->base) : NULL;
    if (base) return base->failed(base, f);
    if (e->status == BITSNAP_E_SOURCE) return 1; /* the input has set the fault */
    if (e->status == BITSNAP_E_TRUNCATED)
        return fault_set(f, "truncated: it ends at byte %llu, before its end record (S4)" DAMAGED, at);
    if (e->rule == 5) return fault_set(f, "%s (S5, from byte %llu on); cut them off", e->message, at);
    if (e->rule || e->status == BITSNAP_E_WORKSPACE) return container_failed(e, f);
    if (r->codec->b.error.status) return codec_failed(r, e->offset, f);
    return fault_set(f, "%s (R%u, byte %llu)" DAMAGED, e->message, e->frame_rule, at);
}

int file_check_limit(uint64_t size, uint64_t whole, uint64_t from, uint64_t limit, fault *f)
{
    char is[32], may[32];
    if (limit) {
        if (size <= limit) return 0;
        return fault_set(f, "expands to %s or more, and --max-output allows %s; give a larger one to allow that",
                         size_text(is, size), size_text(may, limit));
    }
    if (size <= 4 * GIB || size / 256 <= from) return 0;
    return fault_set(f, "expands to %s or more, over 256 times its size; to allow that, repeat with "
                     "--max-output %lluG", size_text(is, whole), (unsigned long long)((whole - 1) / GIB + 1));
}

/* Fails if the source is too large for the file. The size of a pipe is the number of bytes read so far. */
static int check_limit(const file_reader *r, uint64_t size, fault *f)
{
    const bitsnap_file_start *start = &r->s.start;
    uint64_t file = r->in->size != SIZE_UNKNOWN ? r->in->size : r->in->offset + input_available(r->in);
    size_t i;
    /* no overflow: each is below 2^48, and there are fewer than 2^16 */
    for (i = 0; i < start->base_count; i++) file += start->bases[i].data_size;
    return file_check_limit(size, start->source_size != SIZE_UNKNOWN ? start->source_size : size, file, r->limit, f);
}

/* Decodes the header text of a whole file. */
static int decode_text(file_reader *r, fault *f)
{
    int failed;
    r->text = (char *)malloc(r->text_size);
    failed = !r->text ? fault_memory(f)
                      : text_decode(r->text, r->text_size, r->s.coded, r->s.coded_size, f) && fault_add(f, DAMAGED);
    free(r->s.coded);
    r->s.coded = NULL;
    return failed;
}

/* Returns 1 if the headers of these bases are those that the delta names. */
static int bases_agree(const delta_ends *ends, const file_base *base)
{
    size_t i;
    for (i = 0; i < ends->base_count && base; i++, base = base->next) {
        const delta_end *e = &ends->bases[i];
        if (base->text_size != e->text_size || bitsnap_hash(base->text, base->text_size) != e->text_id ||
            (base->file && base->data_size != e->data_size)) return 0;
    }
    return i == ends->base_count && !base;
}

/* Finds the texts of a delta, as far as possible. Fails if its bases are `needed` and missing or wrong. */
static int find_texts(file_reader *r, const file_base *base, int needed, fault *f)
{
    delta_ends *ends = &r->ends;
    const int agrees = bases_agree(ends, base);
    const char *name = ends->bases->name;
    size_t i;
    ends->base_coded = r->s.base_coded;
    ends->base_coded_size = r->s.base_coded_size;
    ends->coded = r->s.coded;
    ends->coded_size = r->s.coded_size;
    r->s.base_coded = r->s.coded = NULL;
    if (needed && ends->base_count > 1 && (!base || !base->next))
        return fault_set(f, "this delta needs %zu files of one model, %s and others: give their folder with -b", ends->base_count,
                         *name ? name : "nothing");
    if (needed && !base && *name) return fault_set(f, "this delta needs its base: give it with -b; it was called %s, and beside this file it would be found, packed or not", name);
    if (needed && !base) return fault_set(f, "this delta needs its base: give it with -b");
    if (needed && !agrees)
        return fault_set(f, "the base given is not the one that this delta was made against: its header differs; give the right base");
    if (delta_find_texts(ends, agrees ? base->text : NULL, f)) return fault_add(f, DAMAGED);
    r->text = ends->own_text;
    ends->own_text = NULL;
    r->base = agrees ? base : NULL;
    for (base = r->base, i = 0; base; base = base->next) r->s.start.bases[i++].file = base->file;
    return 0;
}

static int begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, int needed, fault *f)
{
    const bitsnap_input bytes = { get_bytes, pass_bytes, r };
    const bitsnap_file_start *start = &r->s.start;
    const uint8_t *p;
    size_t n;
    int failed = 0;
    memset(r, 0, sizeof *r);
    r->codec = c;
    r->in = in;
    r->limit = limit;
    r->fault = f;
    r->spool.fd = -1;
    if (input_fill(in, BITSNAP_FILE_HEADER, f)) return 1;
    p = input_bytes(in);
    n = input_available(in);
    if (!n || memcmp(p, BITSNAP_FILE_MAGIC, n < 8 ? n : 8))
        return foreign_refuse(in, WANT_BSNAP, f) ? 1 : fault_set(f, "is not a .bsnap file: it does not begin with B5 53 4E 50 46 49 4C 45");
    if (n >= BITSNAP_FILE_HEADER && p[8] == 0)
        return fault_set(f, "was made by a version of bitsnap before 1.0 (S2, byte 8): restore it with that one");
    if (bitsnap_file_stream_begin(&r->s, &c->b, &bytes, NULL)) return read_failed(r, f);
    r->s.window = c->window;
    r->s.spill.write = spill;
    r->s.spill.read = read_spilled;
    r->s.spill.context = r;
    r->text_size = (size_t)start->text_size;
    if (start->kind == BITSNAP_SOURCE_DELTA && delta_take_ends(&r->ends, start, f)) return 1;
    if (start->source_size != SIZE_UNKNOWN && (limit || in->size != SIZE_UNKNOWN) && check_limit(r, start->source_size, f)) return 1;
    if (bitsnap_file_stream_texts(&r->s)) return read_failed(r, f);
    if (start->kind == BITSNAP_SOURCE_SAFETENSORS) failed = decode_text(r, f);
    if (start->kind == BITSNAP_SOURCE_DELTA) failed = find_texts(r, base, needed, f);
    r->s.text = r->text;
    return failed;
}

int file_read_begin(file_reader *r, codec *c, input *in, uint64_t limit, const file_base *base, fault *f)
{
    return begin(r, c, in, limit, base, 1, f);
}

int file_look_begin(file_reader *r, codec *c, input *in, const file_base *base, fault *f)
{
    return begin(r, c, in, SIZE_UNKNOWN, base, 0, f);
}

/* Reads up to the next frame, or if there is none, reads and checks the end record. */
static int next_frame(file_reader *r, fault *f)
{
    const bitsnap_info *info = &r->s.frame.info;
    r->fault = f;
    r->noted = 0;
    if (bitsnap_file_stream_next(&r->s)) return read_failed(r, f);
    r->ended = !r->s.in_frame;
    if (r->ended) return 0;
    r->common = !r->common || r->common == info->dtype ? info->dtype : BITSNAP_I8;
    /* for a pipe, the bytes of the frame are known only after its elements: frame_window checks then */
    if (r->s.start.source_size == SIZE_UNKNOWN && (r->limit || r->in->size != SIZE_UNKNOWN))
        return check_limit(r, r->s.source_size + info->elements_size, f);
    return 0;
}

static int codec_for_frame(const file_reader *r, fault *f)
{
    const bitsnap_info *info = &r->s.frame.info;
    return codec_reserve(r->codec, info->block_log2, info->has_base || r->s.quantized || info->columns, f);
}

/* Reads the footer of the frame, and reports the frame. */
static int end_frame(file_reader *r, fault *f)
{
    if (bitsnap_file_stream_frame_end(&r->s)) return read_failed(r, f);
    return r->frame_observer.note ? r->frame_observer.note(r->frame_observer.context, &r->s.frame, f) : 0;
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

/* Reports how the block at p, byte `at` of the file, is coded. `elements` and `base` are its elements and those of the base, or
 * null. */
static int note_form(file_reader *r, const uint8_t *p, size_t size, uint64_t at, bitsnap_block *block, const uint8_t *elements, const uint8_t *base,
                     fault *f)
{
    bitsnap *b = &r->codec->b;
    const bitsnap_info *info = &r->s.frame.info;
    uint64_t changed = UINT64_MAX;
    unsigned k;
    int difference;
    bitsnap_status status;
    if (r->s.base) b->base = *r->s.base;
    status = bitsnap_read_block(b, block, info, r->noted, p, size);
    memset(&b->base, 0, sizeof b->base);
    if (status) return codec_failed(r, at + b->error.offset, f);
    difference = block->form == FORM_CLASSED || block->form == FORM_SPARSE;
    if (block->form == FORM_SAME) changed = 0;
    else if (!difference && base) changed = count_changed(elements, base, block->elements, info->width);
    for (k = 0; difference && k < block->parts; k++)
        changed = (k ? changed : 0) + block->part[k].changed;
    return r->form_observer.block(r->form_observer.context, block, changed, f);
}

/* Reports the blocks that were just decoded to n elements. These hold all of each block, except of a run that continues. */
static int note_forms(file_reader *r, const uint8_t *elements, size_t n, fault *f)
{
    const bitsnap_decoder *d = &r->s.decoder;
    const uint64_t begin = d->position - n, noted = r->noted;
    const bitsnap_base *held = r->s.base; /* holds all of these elements */
    const uint8_t *base = d->role == 1 ? (const uint8_t *)held->data : NULL, *p = r->s.blocks;
    bitsnap_block block;
    size_t left;
    for (left = r->s.blocks_size; left; left -= (size_t)block.size, p += (size_t)block.size) {
        /* runs are equal to the base, or have none */
        const size_t at = r->noted > begin ? (size_t)(r->noted - begin) * d->width : 0;
        if (note_form(r, p, left, r->s.offset - left, &block, elements + at, base ? base + (r->noted - held->first) * d->width : NULL, f)) return 1;
        r->noted += block.elements;
    }
    r->noted = noted;
    if (r->form_observer.elements)
        r->form_observer.elements(r->form_observer.context, elements, base ? base + (begin - held->first) * d->width : NULL, n * d->width, d->width);
    return 0;
}

/* Skips whole windows after this one that continue a run of one element. Checks them, and counts them in r->again. */
static int pass_run(file_reader *r, size_t room, fault *f)
{
    const bitsnap_decoder *d = &r->s.decoder;
    const bitsnap_file_block b = bitsnap_file_block_at(r->s.blocks, &r->s.frame.info, r->noted);
    const uint64_t most = SIZE_MAX / d->width / room;
    uint64_t more = (r->noted + b.elements - d->position - 1) / room;
    size_t n;
    r->again = more;
    for (; more; more -= n / room) {
        if (bitsnap_file_stream_read(&r->s, NULL, (size_t)(more < most ? more : most) * room, &n)) return read_failed(r, f);
        if (r->form_observer.elements)
            r->form_observer.elements(r->form_observer.context, r->elements, NULL, n * d->width, d->width);
    }
    return 0;
}

/* Reads elements of the frame until the window is full or the frame ends. */
static int frame_window(file_reader *r, size_t *size, fault *f)
{
    const bitsnap_decoder *d = &r->s.decoder;
    const bitsnap_info *info = &r->s.frame.info;
    const unsigned width = info->width;
    const size_t room = r->only_check ? SIZE_MAX / width : r->codec->window / width;
    /* 1: a run can be checked without its elements, which are not kept */
    const int checked = info->block_log2 >= 16 || !info->has_content_id;
    size_t done = 0, n;
    r->again = 0;
    do {
        uint8_t *to = r->only_check ? NULL : r->elements + done * width;
        if (bitsnap_file_stream_read(&r->s, to, room - done, &n)) return read_failed(r, f);
        if (r->form_observer.block && note_forms(r, to, n, f)) return 1;
        note_blocks(&r->observer, info, &r->noted, r->s.blocks, r->s.blocks_size);
        done += n;
        if (r->pass_runs && checked && n == room && !r->s.blocks_size && pass_run(r, room, f)) return 1;
    } while (done < room && d->position < d->count);
    *size = done * width;
    if (!r->only_check) swap_elements(r->elements, *size, width);
    /* only now the bytes read from a pipe are known */
    return r->in->size == SIZE_UNKNOWN ? check_limit(r, r->s.source_size, f) : 0;
}

int file_read(file_reader *r, const uint8_t **bytes, size_t *size, fault *f)
{
    *bytes = NULL;
    *size = 0;
    r->fault = f;
    if (!r->elements && !r->only_check) {
        r->elements = (uint8_t *)malloc(r->codec->window);
        if (!r->elements) return fault_memory(f);
    }
    while (*size == 0 && !r->ended) { /* frames may be empty */
        if (!r->s.in_frame && (next_frame(r, f) || (r->s.in_frame && codec_for_frame(r, f)))) return 1;
        if (r->s.in_frame && frame_window(r, size, f)) return 1;
        if (r->s.in_frame && r->s.decoder.position == r->s.decoder.count && end_frame(r, f)) return 1;
    }
    *bytes = r->elements;
    return 0;
}

/* Writes the beginning of a .safetensors file: the size of its text, and the text. */
static int put_header(const file_reader *r, output *out, fault *f)
{
    uint8_t size[8];
    if (r->s.start.kind == BITSNAP_SOURCE_RAW) return 0;
    store64(size, r->text_size);
    return output_write(out, size, sizeof size, f) || output_write(out, r->text, r->text_size, f);
}

int restore_source(file_reader *r, output *out, progress *p, fault *f)
{
    const uint8_t *bytes;
    size_t size;
    int begun = 0;
    if (out && output_is_file(out)) { /* the file has the elements, so memory need not hold them */
        r->restored = out;
        r->s.kept_most = 0;
    }
    do {
        if (file_read(r, &bytes, &size, f)) return 1;
        if (out && !begun && put_header(r, out, f)) return 1;
        begun = 1;
        if (out && output_write(out, bytes, size, f)) return 1;
        if (p) progress_show(p, r->s.source_size);
    } while (size);
    return 0;
}

/* Parses the blocks of the frame, and its footer. */
static int look_at_frame(file_reader *r, fault *f)
{
    const bitsnap_file_stream *s = &r->s;
    bitsnap_block block;
    if (r->form_observer.block && codec_for_frame(r, f)) return 1;
    for (;;) {
        if (bitsnap_file_stream_pass(&r->s, r->form_observer.block ? SIZE_MAX : 4)) return read_failed(r, f);
        if (!s->blocks_size) return end_frame(r, f);
        if (r->observer.note) r->observer.note(r->observer.context, s->block.elements * s->frame.info.width, s->block.size);
        if (r->form_observer.block && note_form(r, s->blocks, s->blocks_size, s->offset, &block, NULL, NULL, f)) return 1;
        r->noted += s->block.elements;
    }
}

int file_look(file_reader *r, fault *f)
{
    while (!r->ended)
        if (next_frame(r, f) || (!r->ended && look_at_frame(r, f))) return 1;
    return 0;
}

void file_read_close(file_reader *r)
{
    if (r->codec && r->spool.fd >= 0) (void)close(r->spool.fd);
    bitsnap_file_stream_close(&r->s);
    delta_ends_free(&r->ends);
    free(r->text);
    free(r->elements);
    memset(r, 0, sizeof *r);
}
