/* info.c - the command info: shows the contents of a .bsnap file, and its distance from the order-0 bound.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "../tensors/bound.h"
#include "commands.h"
#include "../files/delta.h"
#include "../files/foreign.h"
#include "../tensors/forms.h"
#include "../tensors/lossy.h"
#include "../console/progress.h"
#include "../tensors/tally.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A file of a chain. */
typedef struct chain_link {
    char *name;
    int is_delta;
    delta file;            /* its ends and frames; nothing is open */
    forms *forms;          /* for each frame */
    size_t capacity;       /* of `forms` */
    forms now, all;        /* of the current frame; sums over all frames */
} chain_link;

typedef struct job {
    const options *o;
    codec *codec;
    const char *path;
    input in;
    file_reader reader;
    safetensors model;
    tally tally;
    progress progress;
    int with_bound, with_text; /* with_text: the header text is known */
    int with_changes;          /* 1: a delta that is decoded, so changed elements are counted */
    const base *base;      /* -b */
    chain_link self;
    lossy lossy;           /* the quantized frames */
    adam_choice *roles;    /* for each tensor, if something is quantized; else null */
    int follows;           /* 1 if it follows the file before, 0 if not, -1 if that does not apply */
    char why[96];
    fault *f;
} job;

/* Reads the whole file. Decodes it only for the bound, which needs the elements. */
static int read_blocks(job *j)
{
    const uint8_t *bytes;
    size_t size;
    double *bits;
    int failed = 0;
    if (!j->with_bound) return file_look(&j->reader, j->f);
    j->reader.pass_runs = 1;
    bits = (double *)malloc((j->codec->window / BOUND_CELL + 1) * sizeof *bits);
    if (!bits) return fault_memory(j->f);
    while ((failed = file_read(&j->reader, &bytes, &size, j->f)) == 0 && size) {
        const size_t cell = (size_t)BOUND_CELL * bitsnap_width(j->reader.s.frame.info.dtype);
        double sum = 0;
        size_t i;
        bound_cells(j->codec, bytes, size, j->reader.s.frame.info.dtype, bits);
        for (i = 0; i * cell < size; sum += bits[i++])
            tally_bound(&j->tally, size - i * cell < cell ? size - i * cell : cell, bits[i]);
        if (j->reader.again) tally_bound(&j->tally, j->reader.again * size, (double)j->reader.again * sum);
        progress_show(&j->progress, j->reader.s.source_size);
    }
    free(bits);
    return failed;
}

/* The file before this one in the command line. */
static chain_link before;

/* Begins reading. A delta is decoded only if -b gives its base. Otherwise only the text of the base is used, also from the file
 * before. */
static int begin(job *j)
{
    file_base text;
    const file_base *known = j->base ? &j->base->file : NULL;
    if (!file_is_delta(input_bytes(&j->in), input_available(&j->in))) {
        if (j->with_bound) return file_read_begin(&j->reader, j->codec, &j->in, j->o->max_output, NULL, j->f);
        return file_look_begin(&j->reader, j->codec, &j->in, NULL, j->f);
    }
    if (!known && before.file.ends.own_text) {
        memset(&text, 0, sizeof text);
        text.text = before.file.ends.own_text;
        text.text_size = (size_t)before.file.ends.own.text_size;
        known = &text;
    }
    if (file_look_begin(&j->reader, j->codec, &j->in, known, j->f)) return 1;
    if (!j->reader.base || !j->reader.base->file) j->with_bound = 0;
    if (!j->with_bound) j->reader.base = NULL;
    j->with_changes = j->with_bound;
    return 0;
}

static int note_frame(void *context, const file_frame *frame, fault *f)
{
    job *j = (job *)context;
    chain_link *x = &j->self;
    forms *all = (forms *)grown(x->forms, x->file.count, &x->capacity, sizeof *x->forms, f);
    if (!all) return 1;
    x->forms = all;
    if (delta_note_frame(&x->file, frame, f)) return 1;
    x->forms[x->file.count - 1] = x->now;
    memset(&x->now, 0, sizeof x->now);
    return forms_add(&x->all, &x->forms[x->file.count - 1], f) || lossy_note(&j->lossy, frame, f);
}

static int note_block(void *context, const bitsnap_block *block, uint64_t changed, fault *f)
{
    return forms_note(&((job *)context)->self.now, block, changed, f);
}

static void note_elements(void *context, const uint8_t *elements, const uint8_t *from, size_t bytes, unsigned width)
{
    (void)width; /* the width of the frame may differ from that of the tensor */
    tally_changed(&((job *)context)->tally, elements, from, bytes);
}

/* Finds the roles of tensors, for the quantized frames. */
static int name_lossy(job *j)
{
    j->roles = adam_roles(&j->model, j->path);
    j->lossy.model = &j->model;
    j->lossy.roles = j->roles;
    return j->roles ? 0 : fault_memory(j->f);
}

static int look(job *j)
{
    uint64_t header;
    int raw;
    if (begin(j)) return 1;
    j->with_text = j->reader.text != NULL; /* the text of a delta may be unknown */
    raw = !j->with_text;
    progress_set_total(&j->progress, j->reader.s.start.source_size);
    if (!raw && safetensors_parse(&j->model, j->reader.text, j->reader.text_size, j->f)) return 1;
    j->reader.s.model = raw ? NULL : &j->model;
    if (tally_open(&j->tally, raw ? NULL : &j->model, j->f)) return 1;
    j->reader.observer.note = tally_note;
    j->reader.observer.context = &j->tally;
    if (!j->o->no_bound) j->reader.form_observer.block = note_block;
    if (j->with_changes) j->reader.form_observer.elements = note_elements;
    j->reader.form_observer.context = j;
    j->reader.frame_observer.note = note_frame;
    j->reader.frame_observer.context = j;
    header = j->reader.s.source_size;
    if (read_blocks(j)) return 1;
    if (!raw && j->reader.s.start.quantized && name_lossy(j)) return 1;
    if (!raw && j->reader.s.source_size - header != j->model.data_size)
        return fault_set(j->f, "its header text describes %llu bytes of data, its frames hold %llu",
                         (unsigned long long)j->model.data_size, (unsigned long long)(j->reader.s.source_size - header));
    return 0;
}

/* Sets j->follows. With --chain, fails if the file does not follow the one before. */
static int check_chain(job *j, const char *path)
{
    chain_link *x = &j->self;
    x->is_delta = j->reader.s.start.kind == BITSNAP_SOURCE_DELTA;
    if (delta_take(&x->file, &j->reader, j->f)) return 1;
    x->name = strdup(path);
    if (!x->name) return fault_memory(j->f);
    if (!before.name) return 0;
    if (x->is_delta) j->follows = delta_follows(&before.file, &x->file, j->why);
    if (!j->o->chain || j->follows > 0) return 0;
    return fault_set(j->f, "does not follow %s: %s", before.name, x->is_delta ? j->why : "it is not a delta");
}

/* ================================================================================= DELTAS */

static double per_element(uint64_t bytes, uint64_t elements) { return elements ? 8 * (double)bytes / (double)elements : 0; }

/* Returns the number of cells coded as differences to the base. */
static uint64_t differences(const file_frame *x) { return x->info.sparse + x->info.classed; }

static file_frame sum_of(const delta *x)
{
    file_frame all = { 0 };
    size_t i;
    for (i = 0; i < x->count; i++) {
        const bitsnap_info *info = &x->frames[i].about.info;
        all.info.count += info->count;
        all.info.same += info->same;
        all.info.sparse += info->sparse;
        all.info.classed += info->classed;
        all.info.plain += info->plain;
    }
    return all;
}

static void print_delta(const delta *x, uint64_t file_size)
{
    const file_frame all = sum_of(x);
    char text[256];
    size_t i;
    for (i = 0; i < x->ends.base_count; i++) {
        const delta_end *e = &x->ends.bases[i];
        (void)printf("base     ");
        if (*e->name) {
            print_file(stdout, e->name, ", ");
        }
        (void)snprintf(text, sizeof text, "%llu bytes of header text (id %016llx), %llu bytes of data%s\n", (unsigned long long)e->text_size,
                       (unsigned long long)e->text_id, (unsigned long long)e->data_size, i ? "" : x->ends.coded_size ?
                       "; the header text of the file is another" : "; the header text of the file is the same");
        print_wrapped(stdout, 11 + text_columns(e->name, strlen(e->name)), text);
    }
    (void)snprintf(text, sizeof text, "delta    %llu elements, %.4f bits/element for all of the file; cells: %llu equal, %llu as differences, "
                   "%llu without the base\n", (unsigned long long)all.info.count, per_element(file_size, all.info.count),
                   (unsigned long long)all.info.same, (unsigned long long)differences(&all), (unsigned long long)all.info.plain);
    print_wrapped(stdout, 0, text);
}

/* Sums over frames that refer to earlier data. */
typedef struct reference_sums {
    uint64_t frames, bytes; /* number of such frames; bytes of their elements */
    uint64_t kept;          /* bytes of elements of frames that others refer to */
} reference_sums;

static reference_sums sum_references(const delta *x)
{
    reference_sums all = { 0, 0, 0 };
    size_t i;
    for (i = 0; i < x->count; i++) {
        const file_frame *a = &x->frames[i].about;
        if (frame_refers(a)) all.frames++, all.bytes += a->info.elements_size;
        if (a->referred) all.kept += a->info.elements_size;
    }
    return all;
}

static void print_references(const options *o, const delta *x)
{
    const reference_sums s = sum_references(x);
    char from[32], to[32];
    if (!s.frames) return;
    (void)printf("refers   frames: %llu, %s are coded against earlier data of the file; the reader of a pipe keeps at most %s for that\n",
                 (unsigned long long)s.frames, amount(o, from, s.bytes), amount(o, to, s.kept));
}

static void json_references(json *j, const delta *x)
{
    const reference_sums s = sum_references(x);
    if (!s.frames) return;
    json_name(j, "references");
    json_begin(j, '{');
    json_member_whole(j, "frames", s.frames);
    json_member_whole(j, "bytes", s.bytes);
    json_member_whole(j, "kept_bytes", s.kept);
    json_end(j, '}');
}

/* Prints a line for a frame; several on a narrow terminal. */
static void print_frame(const chain_link *x, size_t i)
{
    const file_frame *a = &x->file.frames[i].about;
    char base[96] = "without a base", of[24] = "", cells[96] = "", from[40] = "", id[40] = "", text[512];
    if (a->info.has_base) {
        if (x->file.ends.base_count > 1 && !frame_refers(a)) (void)snprintf(of, sizeof of, ", of base %u", a->base);
        (void)snprintf(base, sizeof base, "against %s%s at byte %llu%s%s", frame_refers(a) ? "earlier " : "", bitsnap_dtype_name(a->info.base_dtype),
                       (unsigned long long)a->base_begin, frame_role(a) == 2 ? ", cast" : frame_role(a) == 3 ? ", upcast" : "", of);
        (void)snprintf(from, sizeof from, ", from id %016llx", (unsigned long long)a->info.base_id);
    }
    if (x->is_delta)
        (void)snprintf(cells, sizeof cells, ", cells %llu + %llu + %llu", (unsigned long long)a->info.same, (unsigned long long)differences(a),
                       (unsigned long long)a->info.plain);
    if (a->info.has_content_id) (void)snprintf(id, sizeof id, a->info.has_base ? " to %016llx" : ", id %016llx", (unsigned long long)a->info.content_id);
    (void)snprintf(text, sizeof text, "frame %-2zu %llu elements %s at byte %llu, %s: %.4f bits/element%s%s%s\n", i, (unsigned long long)a->info.count,
                   bitsnap_dtype_name(a->info.dtype), (unsigned long long)a->begin, base, per_element(a->size, a->info.count), cells, from, id);
    print_wrapped(stdout, 0, text);
}

/* Prints how blocks are coded, in all and with `each` frame by frame. For deltas, prints a line for each frame in any case. */
static void print_frames(const chain_link *x, int each)
{
    int unknown = 0;
    size_t i;
    for (i = 0; (x->is_delta || each) && i < x->file.count; i++) {
        print_frame(x, i);
        if (each) forms_print(&x->forms[i], x->is_delta);
    }
    if (x->all.count && each && x->file.count > 1) (void)printf("all frames\n");
    if (!each || x->file.count > 1) forms_print(&x->all, x->is_delta);
    for (i = 0; i < x->all.count; i++) unknown |= x->all.rows[i].classes > 1 && x->all.rows[i].known < x->all.rows[i].elements;
    if (unknown) (void)printf("give the base with -b to see the classes and the number of changed elements\n");
}

static void put_id(json *j, const char *name, uint64_t id)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    json_member_string(j, name, text);
}

static void put_cells(json *j, const file_frame *a)
{
    json_member_whole(j, "cells_same", a->info.same);
    json_member_whole(j, "cells_differences", differences(a));
    json_member_whole(j, "cells_plain", a->info.plain);
}

/* Writes all bases if there are several. */
static void json_ends(json *j, const delta_ends *ends)
{
    size_t i;
    json_member_list(j, "bases");
    for (i = 0; i < ends->base_count; i++) {
        const delta_end *e = &ends->bases[i];
        json_begin(j, '{');
        if (*e->name) json_member_string(j, "name", e->name);
        json_member_whole(j, "text_bytes", e->text_size);
        json_member_whole(j, "data_bytes", e->data_size);
        put_id(j, "text_id", e->text_id);
        json_end(j, '}');
    }
    json_end(j, ']');
}

static void json_delta(json *j, const chain_link *x, uint64_t file_size, int follows)
{
    const file_frame all = sum_of(&x->file);
    const delta_ends *ends = &x->file.ends;
    size_t i;
    json_name(j, "delta");
    json_begin(j, '{');
    if (*ends->bases->name) json_member_string(j, "base_name", ends->bases->name);
    json_member_whole(j, "base_text_bytes", ends->bases->text_size);
    json_member_whole(j, "base_data_bytes", ends->bases->data_size);
    put_id(j, "base_text_id", ends->bases->text_id);
    put_id(j, "text_id", ends->own.text_id);
    if (x->file.ends.base_count > 1) json_ends(j, ends);
    json_member_whole(j, "elements", all.info.count);
    json_member_real(j, "bits_per_element", per_element(file_size, all.info.count));
    put_cells(j, &all);
    if (follows >= 0) json_member_truth(j, "follows", follows);
    json_member_list(j, "frames");
    for (i = 0; i < x->file.count; i++) {
        const file_frame *a = &x->file.frames[i].about;
        json_begin(j, '{');
        json_member_string(j, "dtype", bitsnap_dtype_name(a->info.dtype));
        json_member_whole(j, "begin", a->begin);
        json_member_whole(j, "elements", a->info.count);
        json_member_whole(j, "frame_bytes", a->size);
        json_member_real(j, "bits_per_element", per_element(a->size, a->info.count));
        json_member_whole(j, "role", (uint64_t)frame_role(a));
        put_cells(j, a);
        forms_json(j, &x->forms[i]);
        if (a->info.has_base) {
            json_member_string(j, "base_dtype", bitsnap_dtype_name(a->info.base_dtype));
            if (frame_refers(a)) json_member_truth(j, "refers", 1);
            else if (x->file.ends.base_count > 1) json_member_whole(j, "base", a->base);
            json_member_whole(j, "base_begin", a->base_begin);
            put_id(j, "base_id", a->info.base_id);
        }
        if (a->info.has_content_id) put_id(j, "id", a->info.content_id);
        json_end(j, '}');
    }
    json_end(j, ']');
    json_end(j, '}');
}

static void free_link(chain_link *x)
{
    size_t i;
    for (i = 0; i < x->file.count; i++) forms_free(&x->forms[i]);
    forms_free(&x->now);
    forms_free(&x->all);
    delta_close(&x->file);
    free(x->forms);
    free(x->name);
    memset(x, 0, sizeof *x);
}

/* ================================================================================= OUTPUT */

/* Rows are not formatted by printf: with 10,000 rows, it would take longer than all other work. */
enum { DIGITS = 64 };

/* Writes a number that ends before `end`, with a point before the last `decimals` digits, and returns its beginning. */
static char *put_digits(char *end, uint64_t n, size_t decimals)
{
    char *at = end;
    size_t digits = 0;
    do {
        if (digits && digits == decimals) *--at = '.';
        *--at = (char)('0' + n % 10);
        n /= 10;
        digits++;
    } while (n || digits <= decimals);
    return at;
}

/* The part of a row after name and dtype: a shape, and at most five numbers. */
typedef struct row {
    char text[256 + 5 * (DIGITS + 2)];
    size_t size;
} row;

/* Keeps `size` characters written already, and pads them with spaces to `width`. */
static void put_left(row *r, size_t width, size_t size)
{
    for (r->size += size; size < width; size++) r->text[r->size++] = ' ';
}

static void put_right(row *r, size_t width, const char *text, size_t size)
{
    put_left(r, width > size ? width - size : 0, 0);
    memcpy(r->text + r->size, text, size);
    r->size += size;
}

static void put_whole(row *r, size_t width, uint64_t n, size_t decimals)
{
    char text[DIGITS], *const end = text + DIGITS, *at = put_digits(end, n, decimals);
    put_right(r, width, at, (size_t)(end - at));
}

/* Writes a number from 0 to 10^18 as "%*.4f" does. Near a half, printf itself decides, since it rounds the exact binary value. */
static void put_real(row *r, size_t width, double x)
{
    const double scaled = x * 10000;
    const uint64_t n = scaled < 1e15 ? (uint64_t)scaled : 0;
    const double rest = scaled - (double)n;
    char text[DIGITS];
    if (rest < 0.499) put_whole(r, width, n, 4);
    else if (rest > 0.501 && rest < 1) put_whole(r, width, n + 1, 4);
    else put_right(r, width, text, (size_t)snprintf(text, sizeof text, "%.4f", x < 1e18 ? x : 1e18));
}

static size_t shape_text(const tensor *t, char *text, size_t size)
{
    char digits[DIGITS];
    uint64_t dimension;
    size_t at = 0, used = 0;
    while (used + DIGITS < size && bitsnap_shape_next(t->shape, &at, &dimension)) {
        const char *begin = put_digits(digits + DIGITS, dimension, 0);
        const size_t n = (size_t)(digits + DIGITS - begin);
        if (used) text[used++] = 'x';
        memcpy(text + used, begin, n);
        used += n;
    }
    text[used] = 0;
    return used;
}

/* Columns of a table; several files may share one. */
typedef struct widths {
    size_t name, dtype, shape, elements;
    int with_bound, with_changes;
    int cut; /* 1: longer names get a separate line, and lose their beginning if the terminal is too narrow for them */
} widths;

static void widen_to(size_t *width, size_t columns, size_t most)
{
    if (columns > *width) *width = columns < most ? columns : most;
}

/* Returns the number of elements of a file without tensors. Its table has one row. */
static uint64_t elements_of(const job *j)
{
    const unsigned width = bitsnap_width(j->reader.common);
    return j->tally.stored_at.at / (width ? width : 1);
}

static void widen(widths *w, const job *j)
{
    const safetensors *m = &j->model;
    const size_t widest_name = isatty(STDOUT_FILENO) ? 1000 : 64;
    uint64_t most = j->with_text ? 0 : elements_of(j);
    char text[256];
    size_t i;
    w->with_bound |= j->with_bound;
    w->with_changes |= j->with_changes;
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        widen_to(&w->name, text_columns(t->name.at, t->name.size), widest_name);
        widen_to(&w->dtype, text_columns(t->dtype.at, t->dtype.size), 16);
        widen_to(&w->shape, shape_text(t, text, sizeof text), 40);
        if (t->elements > most) most = t->elements;
    }
    widen_to(&w->elements, (size_t)(text + DIGITS - put_digits(text + DIGITS, most, 0)), DIGITS);
}

/* Shortens names so that the table fits the terminal. */
static void fit(widths *w)
{
    const size_t least = 4, columns = terminal_columns(STDOUT_FILENO);
    const size_t others = 30 + w->dtype + w->shape + w->elements + (w->with_changes ? 11 : 0) + (w->with_bound ? 9 : 0);
    w->cut = columns != 0;
    if (w->cut && w->name + others > columns) w->name = columns > others + least ? columns - others : least;
}

static widths widths_least(void)
{
    const widths w = { 5, 5, 5, 8, 0, 0, 0 };
    return w;
}

/* Writes the part of a row after the shape. */
static void print_cells(row *r, const widths *w, const job *j, size_t i, uint64_t elements, uint64_t bytes)
{
    const double stored = j->tally.stored[i];
    char text[DIGITS];
    put_whole(r, 2 + w->elements, elements, 0);
    if (elements) put_real(r, 14, stored / (double)elements);
    else put_right(r, 14, "-", 1);
    if (stored > 0) put_real(r, 10, 8 * (double)bytes / stored);
    else put_right(r, 10, "-", 1);
    if (j->with_changes && elements && j->tally.changed[i] != UINT64_MAX)
        put_right(r, 11, text, (size_t)snprintf(text, sizeof text, "%.3f %%", 100 * (double)j->tally.changed[i] / (double)elements));
    else if (w->with_changes) put_right(r, 11, "-", 1);
    if (w->with_bound && elements && j->with_bound) put_real(r, 9, j->tally.bound[i] / (double)elements);
    else if (w->with_bound) put_right(r, 9, "-", 1);
    put_right(r, 1, "\n", 1);
    (void)fwrite(r->text, 1, r->size, stdout);
}

static void print_title(const widths *w)
{
    (void)printf("%-*s  %-*s  %-*s  %*s  %12s  %8s", (int)w->name, "name", (int)w->dtype, "dtype", (int)w->shape, "shape",
                 (int)w->elements, "elements", "bits/element", "ratio");
    if (w->with_changes) (void)printf("  %9s", "changed");
    (void)printf(w->with_bound ? "  %7s\n" : "\n", "order-0");
}

static void fill(size_t columns, size_t width)
{
    for (; columns < width; columns++) (void)putchar(' ');
}

static void print_rows(const widths *w, const job *j)
{
    const safetensors *m = &j->model;
    const int raw = !j->with_text;
    row r;
    size_t i;
    if (raw) {
        r.size = 0;
        (void)printf("%-*s  %-*s  %-*s", (int)w->name, j->reader.s.start.kind == BITSNAP_SOURCE_RAW ? "(raw)" : "(all)", (int)w->dtype,
                     j->reader.common ? bitsnap_dtype_name(j->reader.common) : "-", (int)w->shape, "-");
        print_cells(&r, w, j, 0, elements_of(j), j->tally.stored_at.at);
    }
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        if (w->cut && text_columns(t->name.at, t->name.size) > w->name) {
            (void)print_end(stdout, t->name.at, t->name.size, terminal_columns(STDOUT_FILENO));
            (void)putchar('\n');
            fill(0, w->name);
        } else {
            fill(print_text(stdout, t->name.at, t->name.size), w->name);
        }
        (void)fputs("  ", stdout);
        fill(print_text(stdout, t->dtype.at, t->dtype.size), w->dtype);
        r.size = 0;
        put_left(&r, 2, 0);
        put_left(&r, w->shape, shape_text(t, r.text + r.size, 256));
        print_cells(&r, w, j, i, t->elements, t->end - t->begin);
    }
}

/* Sums over files. The bound is for elements only, so it is compared with the bytes of the frames. */
typedef struct sums {
    uint64_t bytes_in, bytes_out, element_bytes, frame_bytes;
    size_t frames;
    double bound_bytes;
} sums;

static void add_up(sums *s, const job *j)
{
    s->bytes_in += j->reader.s.source_size;
    s->bytes_out += j->in.offset;
    s->element_bytes += j->tally.stored_at.at;
    s->frame_bytes += j->reader.s.frame_bytes;
    s->frames += j->reader.s.frames;
    s->bound_bytes += j->tally.bound_bits / 8;
}

static double quotient(double a, double b) { return b > 0 ? a / b : 0; }

static void print_sizes(const options *o, const sums *s)
{
    char in[AMOUNT_TEXT], out[AMOUNT_TEXT];
    (void)printf("file     %s -> %s, ratio %.4f\n", amount(o, in, s->bytes_in), amount(o, out, s->bytes_out),
                 quotient((double)s->bytes_in, (double)s->bytes_out));
    (void)printf("tensors  %s -> %s, ratio %.4f, frames: %zu\n", amount(o, in, s->element_bytes), amount(o, out, s->frame_bytes),
                 quotient((double)s->element_bytes, (double)s->frame_bytes), s->frames);
}

static void print_bound(const options *o, const sums *s)
{
    char in[AMOUNT_TEXT], out[AMOUNT_TEXT];
    (void)printf("order-0  %s -> %s, ratio %.4f", amount(o, in, s->element_bytes), amount(o, out, (uint64_t)(s->bound_bytes + 0.5)),
                 quotient((double)s->element_bytes, s->bound_bytes));
    if (s->bound_bytes > 0) {
        const double more = 100 * ((double)s->frame_bytes / s->bound_bytes - 1);
        (void)printf("; the tensors take %.2f %% %s", more < 0 ? -more : more, more < 0 ? "less" : "more");
    }
    (void)putchar('\n');
}

/* Returns the SHA-256 in the file, in hexadecimal; empty if it has none. */
static const char *sha256_text(char text[65], const bitsnap_file_stream *s)
{
    size_t i;
    *text = 0;
    for (i = 0; s->start.compatible & BITSNAP_FILE_SHA256 && i < BITSNAP_SHA256_SIZE; i++) (void)snprintf(text + 2 * i, 3, "%02x", s->sha256[i]);
    return text;
}

static void print_totals(const job *j, const sums *s)
{
    char hex[65];
    if (j->with_text) (void)printf("header   %zu bytes of text, tensors: %zu\n", j->reader.text_size, j->model.count);
    else if (j->reader.s.start.kind == BITSNAP_SOURCE_DELTA)
        (void)printf("header   %zu bytes of text; give the base with -b to see the tensors\n", j->reader.text_size);
    print_sizes(j->o, s);
    if (j->reader.s.start.quantized) {
        (void)printf("lossy    ");
        lossy_print_line(stdout, &j->lossy, "\n         ");
        (void)putchar('\n');
    }
    (void)printf("check    %016llx\n", (unsigned long long)j->reader.s.check);
    if (*sha256_text(hex, &j->reader.s)) (void)printf("sha256   %s\n", hex);
    print_references(j->o, &j->self.file);
    if (j->reader.s.start.kind == BITSNAP_SOURCE_DELTA) print_delta(&j->self.file, s->bytes_out);
    if (j->follows >= 0) {
        (void)printf(j->follows ? "chain    follows " : "chain    does not follow ");
        (void)print_text(stdout, before.name, strlen(before.name));
        (void)printf(j->follows ? "%s\n" : ": %s\n", j->why);
    }
    if (!j->o->quiet) print_frames(&j->self, j->o->verbose);
    if (j->with_bound) print_bound(j->o, s);
}

static void print_json(const job *j, const sums *s, const char *path)
{
    json out = json_report("info", path);
    char hex[65];
    json_member_string(&out, "kind", j->reader.s.start.kind == BITSNAP_SOURCE_RAW ? "raw" : "safetensors");
    put_id(&out, "check", j->reader.s.check);
    if (*sha256_text(hex, &j->reader.s)) json_member_string(&out, "sha256", hex);
    json_member_whole(&out, "bytes_in", s->bytes_in);
    json_member_whole(&out, "bytes_out", s->bytes_out);
    json_member_real(&out, "ratio", quotient((double)s->bytes_in, (double)s->bytes_out));
    json_member_whole(&out, "frames", s->frames);
    json_member_whole(&out, "tensor_bytes", s->element_bytes);
    json_member_whole(&out, "frame_bytes", s->frame_bytes);
    if (j->with_bound) {
        json_member_real(&out, "bound_bytes", s->bound_bytes);
        json_member_real(&out, "bound_ratio", quotient((double)s->element_bytes, s->bound_bytes));
    }
    json_references(&out, &j->self.file);
    if (j->reader.s.start.kind == BITSNAP_SOURCE_DELTA) json_delta(&out, &j->self, s->bytes_out, j->follows);
    json_bases(&out, j->o);
    lossy_json_truth(&j->lossy, &out, j->reader.s.start.quantized);
    tally_json(&j->tally, &out, j->reader.common ? j->reader.common : BITSNAP_I8, j->with_bound, j->with_changes);
    forms_json(&out, &j->self.all);
    json_report_end(&out);
}

/* ================================================================================= FOLDERS
 * With -r all files together are one table, with one sum. */

static struct {
    job *files;
    size_t count, capacity;
    sums sums;
    forms forms;
    int with_bound, with_changes;
} folder;

/* Copies the header text, which the reader or the chain owns, and parses it again. */
static int keep_text(job *to, const job *j)
{
    const char *from = j->reader.text ? j->reader.text : j->self.file.ends.own_text;
    char *text;
    memset(&to->model, 0, sizeof to->model);
    to->roles = NULL;
    to->reader.text = NULL;
    if (!j->with_text) return 0;
    text = (char *)malloc(j->reader.text_size + 1);
    if (!text) return fault_memory(j->f);
    memcpy(text, from, j->reader.text_size);
    to->reader.text = text;
    if (safetensors_parse(&to->model, text, j->reader.text_size, j->f)) return 1;
    return j->roles && name_lossy(to);
}

/* Moves from the job what the table needs. */
static int keep(job *j)
{
    job *to = (job *)grown(folder.files, folder.count, &folder.capacity, sizeof *to, j->f);
    if (!to) return 1;
    folder.files = to;
    add_up(&folder.sums, j);
    /* the sum is shown only if all files have a bound */
    folder.with_bound = folder.count ? folder.with_bound && j->with_bound : j->with_bound;
    folder.with_changes |= j->with_changes;
    to += folder.count++;
    *to = *j;
    memset(&j->tally, 0, sizeof j->tally);
    memset(&j->lossy, 0, sizeof j->lossy);
    return keep_text(to, j) || forms_add(&folder.forms, &j->self.all, j->f);
}

void info_sum(const options *o)
{
    widths w = widths_least();
    size_t i, tensors = 0;
    for (i = 0; i < folder.count; i++) widen(&w, &folder.files[i]);
    fit(&w);
    if (!o->quiet && folder.count) print_title(&w);
    for (i = 0; i < folder.count; i++) {
        if (!o->quiet) print_rows(&w, &folder.files[i]);
        tensors += folder.files[i].model.count;
    }
    if (folder.count) {
        (void)printf("files    %zu, tensors: %zu\n", folder.count, tensors);
        print_sizes(o, &folder.sums);
        for (i = 0; i < folder.count; i++) {
            if (!folder.files[i].reader.s.start.quantized) continue;
            (void)printf("lossy    ");
            print_file(stdout, folder.files[i].path, ": ");
            lossy_print_line(stdout, &folder.files[i].lossy, "\n         ");
            (void)putchar('\n');
        }
        if (!o->quiet) forms_print(&folder.forms, folder.with_changes);
        if (folder.with_bound) print_bound(o, &folder.sums);
    }
    for (i = 0; i < folder.count; i++) {
        job *j = &folder.files[i];
        tally_close(&j->tally);
        lossy_free(&j->lossy);
        free(j->roles);
        bitsnap_safetensors_free(&j->model);
        free(j->reader.text);
    }
    free(folder.files);
    forms_free(&folder.forms);
    memset(&folder, 0, sizeof folder);
}

int command_info(const options *o, codec *c, const base *b, const char *path, fault *f)
{
    const elapsed begun = elapsed_now();
    job j = { .o = o, .codec = c, .path = path, .f = f, .in.fd = -1, .with_bound = !o->no_bound, .base = b, .follows = -1 };
    int failed;
    failed = input_open(&j.in, path, f) || input_fill(&j.in, 32, f);
    if (!failed && foreign_is_plain(&j.in) && !b && !o->chain && !o->no_bound) {
        options dry = *o;
        dry.dry_run = 1;
        return compress_to(&dry, c, NULL, NULL, &j.in, path, path, f);
    }
    progress_begin(&j.progress, options_show_progress(o), shown_name(path));
    failed = failed || look(&j) || check_chain(&j, path);
    progress_end(&j.progress);
    if (!failed) {
        summary whole;
        sums s = { 0 };
        add_up(&s, &j);
        memset(&whole, 0, sizeof whole);
        whole.bytes_in = s.bytes_out; /* the size of the file that was read */
        whole.bytes_out = s.bytes_in;
        whole.time = elapsed_since(begun);
        summary_add(&whole);
        if (o->json) {
            print_json(&j, &s, path);
        } else if (o->recursive) {
            failed = keep(&j);
        } else {
            widths w = widths_least();
            widen(&w, &j);
            fit(&w);
            if (o->file_count > 1) {
                print_file(stdout, path, ":\n");
            }
            if (!o->quiet) {
                print_title(&w);
                print_rows(&w, &j);
                if (j.reader.s.start.quantized) lossy_print_table(&j.lossy, o->verbose);
            }
            print_totals(&j, &s);
        }
    }
    tally_close(&j.tally);
    lossy_free(&j.lossy);
    free(j.roles);
    bitsnap_safetensors_free(&j.model);
    file_read_close(&j.reader);
    input_close(&j.in);
    free_link(&before);
    before = j.self; /* after a failure it is incomplete, and no file follows it */
    return failed;
}
