/* info.c - the command info: what is in a .bsnap file, and how near it is to the order-0 bound.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "../tensors/bound.h"
#include "../files/chain.h"
#include "commands.h"
#include "../files/file.h"
#include "../tensors/lossy.h"
#include "../console/progress.h"
#include "../tensors/tally.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    const options *o;
    codec *codec;
    input in;
    file_reader reader;
    safetensors model;
    tally tally;
    progress progress;
    int with_bound, with_text; /* with_text: the header text is known */
    int with_changes;          /* a delta that is decoded: which elements have changed is known */
    const base *base;      /* -b */
    chain_file self;
    lossy lossy;           /* what is quantized */
    adam_choice *roles;    /* of each tensor, where something is */
    int follows;           /* whether it follows the file before: 1, 0, or -1 where that is no question */
    char why[96];
    fault *f;
} job;

/* Through the file; with decoding, as the bound is one of the elements. */
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
        const size_t cell = (size_t)BOUND_CELL * bitsnap_width(j->reader.dtype);
        double sum = 0;
        size_t i;
        bound_cells(j->codec, bytes, size, j->reader.dtype, bits);
        for (i = 0; i * cell < size; sum += bits[i++])
            tally_bound(&j->tally, size - i * cell < cell ? size - i * cell : cell, bits[i]);
        if (j->reader.again) tally_bound(&j->tally, j->reader.again * size, (double)j->reader.again * sum);
        progress_show(&j->progress, j->reader.done);
    }
    free(bits);
    return failed;
}

/* The file before this one in the command line. */
static chain_file before;

/* A delta is decoded where -b gives its base. Else it takes no more of that than the text: also from the file before. */
static int begin(job *j, const char *path)
{
    file_base text;
    const file_base *known = j->base ? &j->base->file : NULL;
    if (input_open(&j->in, path, j->f) || input_fill(&j->in, 32, j->f)) return 1;
    if (!file_is_delta(input_bytes(&j->in), input_available(&j->in))) {
        if (j->with_bound) return file_read_begin(&j->reader, j->codec, &j->in, j->o->max_output, NULL, j->f);
        return file_look_begin(&j->reader, j->codec, &j->in, NULL, j->f);
    }
    if (!known && before.link.own.text) {
        memset(&text, 0, sizeof text);
        text.text = before.link.own.text;
        text.text_size = (size_t)before.link.own.text_size;
        known = &text;
    }
    if (file_look_begin(&j->reader, j->codec, &j->in, known, j->f)) return 1;
    if (!j->reader.base || !j->reader.base->data) j->with_bound = 0;
    if (!j->with_bound) j->reader.base = NULL;
    j->with_changes = j->with_bound;
    return 0;
}

static int note_frame(void *context, const file_frame *frame, fault *f)
{
    job *j = (job *)context;
    return chain_note_frame(&j->self, frame, f) || lossy_note(&j->lossy, frame, f);
}

static int note_block(void *context, const bitsnap_block *block, uint64_t changed, fault *f)
{
    return chain_note_block(&((job *)context)->self, block, changed, f);
}

static void note_elements(void *context, const uint8_t *elements, const uint8_t *base, size_t bytes, unsigned width)
{
    (void)width; /* of the frame, which need not be the tensor's */
    tally_changed(&((job *)context)->tally, elements, base, bytes);
}

static int look(job *j, const char *path)
{
    uint64_t header;
    int raw;
    if (begin(j, path)) return 1;
    j->with_text = j->reader.text != NULL; /* that of a delta may be unknown */
    raw = !j->with_text;
    progress_set_total(&j->progress, j->reader.claimed);
    if (!raw && safetensors_parse(&j->model, j->reader.text, j->reader.text_size, j->f)) return 1;
    if (tally_open(&j->tally, raw ? NULL : &j->model, j->f)) return 1;
    j->reader.observer.note = tally_note;
    j->reader.observer.context = &j->tally;
    if (!j->o->no_bound) j->reader.form_observer.block = note_block;
    if (j->with_changes) j->reader.form_observer.elements = note_elements;
    j->reader.form_observer.context = j;
    j->reader.frame_observer.note = note_frame;
    j->reader.frame_observer.context = j;
    header = j->reader.done;
    if (read_blocks(j)) return 1;
    if (!raw && j->reader.quantized && !(j->roles = adam_roles(&j->model, path))) return fault_memory(j->f);
    if (!raw && j->reader.done - header != j->model.data_size)
        return fault_set(j->f, "its header text describes %llu bytes of data, its frames hold %llu",
                         (unsigned long long)j->model.data_size, (unsigned long long)(j->reader.done - header));
    return 0;
}

/* Whether the file follows the one before; with --chain it must. */
static int check_chain(job *j, const char *path)
{
    if (chain_take(&j->self, &j->reader, path, j->f)) return 1;
    if (!before.name) return 0;
    if (j->self.delta) j->follows = chain_follows(&before, &j->self, j->why);
    if (!j->o->chain || j->follows > 0) return 0;
    return fault_set(j->f, "does not follow %s: %s", before.name, j->self.delta ? j->why : "it is no delta");
}

/* ================================================================================= OUTPUT */

static void shape_text(const tensor *t, char *text, size_t size)
{
    uint64_t dimension;
    size_t at = 0, used = 0;
    int n = snprintf(text, size, "%s", "");
    while (n >= 0 && used + (size_t)n < size && bitsnap_shape_next(t->shape, &at, &dimension)) {
        used += (size_t)n;
        n = snprintf(text + used, size - used, used ? "x%llu" : "%llu", (unsigned long long)dimension);
    }
}

static void print_cells(const job *j, size_t i, uint64_t elements, uint64_t bytes)
{
    const double stored = j->tally.stored[i];
    (void)printf("  %14llu", (unsigned long long)elements);
    if (elements) (void)printf("  %12.4f", stored / (double)elements);
    else (void)printf("  %12s", "-");
    if (stored > 0) (void)printf("  %8.4f", 8 * (double)bytes / stored);
    else (void)printf("  %8s", "-");
    if (j->with_changes && elements && j->tally.changed[i] != UINT64_MAX)
        (void)printf("  %7.3f %%", 100 * (double)j->tally.changed[i] / (double)elements);
    else if (j->with_changes) (void)printf("  %9s", "-");
    if (!j->with_bound) return;
    if (elements) (void)printf("  %12.4f", j->tally.bound[i] / (double)elements);
    else (void)printf("  %12s", "-");
}

static void print_table(const job *j)
{
    const safetensors *m = &j->model;
    const int raw = !j->with_text;
    const size_t widest_name = 64, widest_shape = 40;
    char shape[256];
    size_t i, name_width = 5, shape_width = 5;
    for (i = 0; i < m->count; i++) {
        const size_t columns = text_columns(m->tensors[i].name.at, m->tensors[i].name.size);
        shape_text(&m->tensors[i], shape, sizeof shape);
        if (columns > name_width) name_width = columns < widest_name ? columns : widest_name;
        if (strlen(shape) > shape_width) shape_width = strlen(shape) < widest_shape ? strlen(shape) : widest_shape;
    }
    (void)printf("%-*s  %-8s  %-*s  %14s  %12s  %8s", (int)name_width, "name", "dtype", (int)shape_width, "shape",
                 "elements", "bits/element", "ratio");
    if (j->with_changes) (void)printf("  %9s", "changed");
    (void)printf(j->with_bound ? "  %12s\n" : "\n", "order-0");
    if (raw) {
        const unsigned width = bitsnap_width(j->reader.common) ? bitsnap_width(j->reader.common) : 1;
        const uint64_t bytes = j->tally.stored_at.at;
        (void)printf("%-*s  %-8s  %-*s", (int)name_width, j->reader.kind == BITSNAP_SOURCE_RAW ? "(raw)" : "(all)",
                     j->reader.common ? bitsnap_dtype_name(j->reader.common) : "-", (int)shape_width, "-");
        print_cells(j, 0, bytes / width, bytes);
        (void)putchar('\n');
    }
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        size_t columns = print_text(stdout, t->name.at, t->name.size);
        for (; columns < name_width; columns++) (void)putchar(' ');
        (void)fputs("  ", stdout);
        for (columns = print_text(stdout, t->dtype.at, t->dtype.size); columns < 8; columns++) (void)putchar(' ');
        shape_text(t, shape, sizeof shape);
        (void)printf("  %-*s", (int)shape_width, shape);
        print_cells(j, i, t->elements, t->end - t->begin);
        (void)putchar('\n');
    }
}

/* Sums; the bound is one of the elements, so it is compared with the frames alone. */
typedef struct sums {
    uint64_t bytes_in, bytes_out, element_bytes, frame_bytes;
    double bound_bytes;
} sums;

static sums add_up(const job *j)
{
    sums s;
    s.bytes_in = j->reader.done;
    s.bytes_out = j->in.offset;
    s.element_bytes = j->tally.stored_at.at;
    s.bound_bytes = j->tally.bound_bits / 8;
    s.frame_bytes = j->reader.records.frame_bytes;
    return s;
}

static lossy_names names_of(const job *j)
{
    lossy_names names;
    names.model = j->roles ? &j->model : NULL;
    names.roles = j->roles;
    return names;
}

static double quotient(double a, double b) { return b > 0 ? a / b : 0; }

static void print_totals(const job *j, const sums *s)
{
    if (j->with_text) (void)printf("header   %zu bytes of text, tensors: %zu\n", j->reader.text_size, j->model.count);
    else if (j->reader.kind == BITSNAP_SOURCE_DELTA)
        (void)printf("header   %zu bytes of text; give the base with -b to see the tensors\n", j->reader.text_size);
    (void)printf("file     %llu -> %llu bytes, ratio %.4f\n", (unsigned long long)s->bytes_in,
                 (unsigned long long)s->bytes_out, quotient((double)s->bytes_in, (double)s->bytes_out));
    (void)printf("tensors  %llu -> %llu bytes, ratio %.4f, frames: %zu\n", (unsigned long long)s->element_bytes,
                 (unsigned long long)s->frame_bytes, quotient((double)s->element_bytes, (double)s->frame_bytes),
                 j->reader.records.frames);
    if (j->reader.quantized) {
        const lossy_names names = names_of(j);
        const lossy_sums l = lossy_add_up(&j->lossy, &names);
        (void)printf("lossy    ");
        lossy_print_line(stdout, &l, &names);
        (void)putchar('\n');
    }
    if (j->reader.kind == BITSNAP_SOURCE_DELTA) chain_print(&j->self, s->bytes_out);
    if (j->follows >= 0) {
        (void)printf(j->follows ? "chain    follows " : "chain    does not follow ");
        (void)print_text(stdout, before.name, strlen(before.name));
        (void)printf(j->follows ? "%s\n" : ": %s\n", j->why);
    }
    if (!j->o->quiet) chain_print_forms(&j->self, j->o->verbose);
    if (!j->with_bound) return;
    (void)printf("order-0  %llu -> %.0f bytes, ratio %.4f", (unsigned long long)s->element_bytes, s->bound_bytes,
                 quotient((double)s->element_bytes, s->bound_bytes));
    if (s->bound_bytes > 0) {
        const double more = 100 * ((double)s->frame_bytes / s->bound_bytes - 1);
        (void)printf("; the tensors take %.2f %% %s than that", more < 0 ? -more : more, more < 0 ? "less" : "more");
    }
    (void)putchar('\n');
}

static void print_json(const job *j, const sums *s, const char *path)
{
    json out = { NULL, 0 };
    out.to = stdout;
    json_begin(&out, '{');
    json_member_string(&out, "command", "info");
    json_member_string(&out, "file", path);
    json_member_string(&out, "kind", j->reader.kind == BITSNAP_SOURCE_RAW ? "raw" : "safetensors");
    json_member_whole(&out, "bytes_in", s->bytes_in);
    json_member_whole(&out, "bytes_out", s->bytes_out);
    json_member_real(&out, "ratio", quotient((double)s->bytes_in, (double)s->bytes_out));
    json_member_whole(&out, "frames", j->reader.records.frames);
    json_member_whole(&out, "tensor_bytes", s->element_bytes);
    json_member_whole(&out, "frame_bytes", s->frame_bytes);
    if (j->with_bound) {
        json_member_real(&out, "bound_bytes", s->bound_bytes);
        json_member_real(&out, "bound_ratio", quotient((double)s->element_bytes, s->bound_bytes));
    }
    if (j->reader.kind == BITSNAP_SOURCE_DELTA) chain_json(&out, &j->self, s->bytes_out, j->follows);
    json_bases(&out, j->o);
    json_member_truth(&out, "lossy", j->reader.quantized);
    if (j->reader.quantized) {
        const lossy_names names = names_of(j);
        lossy_json(&j->lossy, &out, &names);
    }
    tally_json(&j->tally, &out, j->reader.common ? j->reader.common : BITSNAP_I8, j->with_bound, j->with_changes);
    forms_json(&out, &j->self.all);
    json_end(&out, '}');
    (void)putc('\n', stdout);
}

int command_info(const options *o, codec *c, const base *b, const char *path, fault *f)
{
    const double begun = seconds_now();
    job j;
    int failed;
    memset(&j, 0, sizeof j);
    j.o = o;
    j.codec = c;
    j.f = f;
    j.in.fd = -1;
    j.with_bound = !o->no_bound;
    j.base = b;
    j.follows = -1;
    progress_begin(&j.progress, !o->quiet && !o->no_progress && !o->json, strcmp(path, "-") ? path : "(standard input)",
                   SIZE_UNKNOWN);
    failed = look(&j, path) || check_chain(&j, path);
    progress_end(&j.progress);
    if (!failed) {
        const sums s = add_up(&j);
        summary whole;
        memset(&whole, 0, sizeof whole);
        whole.bytes_in = s.bytes_out; /* those of the file that was read */
        whole.bytes_out = s.bytes_in;
        whole.seconds = seconds_now() - begun;
        summary_add(&whole);
        if (o->json) {
            print_json(&j, &s, path);
        } else {
            if (o->file_count > 1) {
                (void)print_text(stdout, path, strlen(path));
                (void)fputs(":\n", stdout);
            }
            if (!o->quiet) {
                print_table(&j);
                if (j.reader.quantized) {
                    const lossy_names names = names_of(&j);
                    lossy_print_table(&j.lossy, &names);
                }
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
    chain_free(&before);
    before = j.self; /* of what could not be read, as much as is known: nothing follows it */
    return failed;
}
