/* compare.c - the command compare: two files, tensor by tensor.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Tensors are matched by name, in any order, but .bsnap files and pipes can only be read from the first byte to the last. The
 * order of the first file is used. If the second has another order and cannot be sought, its data is copied to a temporary
 * file. */
#include "../system/posix.h"

#include "commands.h"
#include "../tensors/difference.h"
#include "../files/file.h"
#include "../files/base.h"
#include "../files/header.h"
#include "../files/shards.h"
#include "../tensors/lossy.h"
#include "../console/progress.h"

#include <stdlib.h>
#include <string.h>

#define WINDOW ((size_t)1 << 20) /* bytes compared at once: a multiple of every width */

/* One of the two files. */
typedef struct side {
    input in;
    int packed;            /* a .bsnap file */
    int raw;               /* raw elements, else .safetensors */
    file_reader reader;    /* of a .bsnap file */
    codec *codec;
    base beside;           /* of a delta: the base found beside it, if none was given */
    const uint8_t *bytes;  /* the rest of its last window */
    size_t left;
    char *text;            /* header text; it may belong to `reader` or `header` */
    size_t text_size;
    header header;         /* of a .safetensors file */
    safetensors own_model; /* of the text of a .bsnap file */
    const safetensors *model;
    uint64_t data_begin;   /* if the input can be sought: byte at which the data begins */
    uint64_t at;           /* the next byte of the data */
    uint64_t data_size;    /* SIZE_UNKNOWN: of raw elements from a pipe */
    int quantized;         /* 1: a .bsnap file with quantized frames */
    lossy lossy;           /* these frames */
    uint8_t *window;
} side;

typedef struct job {
    const options *o;
    codec *codec;
    side a, b;
    progress progress;
    json out;
    adam_choice *choices;  /* for each tensor of the first file, with --adam */
    const shards *folder;  /* folder of the first file, if both are folders; then only partners are compared. Else null */
    size_t first, second;  /* their numbers in their folders */
    size_t partners;       /* number of partners in the two files, when the folders were opened */
    const char *file;      /* with folders: file of the tensor that is reported */
    int alone;             /* 1: no other file of the folder has a tensor of its name */
    int equal;
    int within;            /* 1: all differences are within their bounds */
    fault *f;
} job;

/* ================================================================================= READING */

/* Names the file of a side in the fault. */
static int fail_side(const side *s, fault *f) { return fault_about(f, s->in.name); }

static int open_raw(side *s)
{
    s->raw = 1;
    s->data_size = s->packed ? s->reader.s.start.source_size : s->in.size;
    return 0;
}

static int open_side(job *j, side *s, const base *b, const char *path)
{
    int found = 0;
    s->codec = j->codec;
    if (input_open(&s->in, path, j->f) || input_fill(&s->in, 8, j->f)) return 1;
    s->packed = file_is_bsnap(input_bytes(&s->in), input_available(&s->in));
    s->window = (uint8_t *)malloc(WINDOW);
    if (!s->window) return fault_memory(j->f);
    if (s->packed) {
        if (!b && find_beside(&s->beside, j->codec, &s->in, path, j->o->max_output, &found, j->f)) return 1;
        if (found) b = &s->beside;
        if (file_read_begin(&s->reader, j->codec, &s->in, j->o->max_output, b ? &b->file : NULL, j->f)) return 1;
        s->quantized = s->reader.s.start.quantized;
        s->reader.frame_observer.note = lossy_note;
        s->reader.frame_observer.context = &s->lossy;
        if (s->reader.s.start.kind == BITSNAP_SOURCE_RAW) return open_raw(s);
        s->text = s->reader.text;
        s->text_size = s->reader.text_size;
        s->model = &s->own_model;
        if (safetensors_parse(&s->own_model, s->text, s->text_size, j->f)) return 1;
        s->reader.s.model = s->model;
    } else if (j->o->dtype) {
        return open_raw(s);
    } else {
        if (header_read(&s->header, &s->in, j->f)) return 1;
        s->text = s->header.text;
        s->text_size = s->header.size;
        s->model = &s->header.model;
        s->data_begin = s->in.offset;
    }
    s->data_size = s->model->data_size;
    return 0;
}

static void close_side(side *s)
{
    lossy_free(&s->lossy);
    file_read_close(&s->reader);
    header_free(&s->header);
    bitsnap_safetensors_free(&s->own_model);
    base_close(&s->beside);
    input_close(&s->in);
    free(s->window);
    memset(s, 0, sizeof *s);
}

/* Reads the next n bytes of the data; fewer only at its end. */
static int read_data(side *s, uint8_t *to, size_t n, size_t *got, fault *f)
{
    *got = 0;
    if (!s->packed) {
        if (input_read(&s->in, to, n, got, f)) return 1;
        s->at += *got;
        return 0;
    }
    while (*got < n) {
        size_t some;
        if (!s->left) {
            if (file_read(&s->reader, &s->bytes, &s->left, f)) return 1;
        }
        if (!s->left) break;
        some = n - *got < s->left ? n - *got : s->left;
        memcpy(to + *got, s->bytes, some);
        s->bytes += some;
        s->left -= some;
        *got += some;
    }
    s->at += *got;
    return 0;
}

static int can_seek(const side *s) { return !s->packed && s->in.regular; }

/* Goes to a byte of the data. Only inputs that can be sought go back. */
static int go_to(side *s, uint64_t at, fault *f)
{
    if (can_seek(s)) {
        s->at = at;
        return input_seek(&s->in, s->data_begin + at, f);
    }
    while (s->at < at) {
        const uint64_t left = at - s->at;
        size_t got;
        if (read_data(s, s->window, left < WINDOW ? (size_t)left : WINDOW, &got, f)) return 1;
        if (!got) return fault_set(f, "ends before the data that its header describes; take another copy of it");
    }
    return 0;
}

/* Reads exactly n bytes. */
static int need_data(side *s, size_t n, fault *f)
{
    size_t got;
    if (read_data(s, s->window, n, &got, f)) return 1;
    return got < n ? fault_set(f, "ends before the data that its header describes; take another copy of it") : 0;
}

/* Reads to the end, so that everything is checked: no byte may follow the data, and .bsnap files have an end record. */
static int finish_side(side *s, fault *f)
{
    size_t got;
    if (can_seek(s)) return 0; /* its size has been compared with its header */
    if (go_to(s, s->data_size, f)) return 1;
    if (read_data(s, s->window, 1, &got, f)) return 1;
    return got ? fault_set(f, "has bytes after the data that its header describes") : 0;
}

/* Copies the data to a file without a name, which can be read in any order. */
static int spool(side *s, fault *f)
{
    output out;
    input in;
    size_t got;
    if (spool_open(&out, f)) return 1;
    do {
        if (read_data(s, s->window, WINDOW, &got, f) || output_write(&out, s->window, got, f)) {
            output_discard(&out);
            return 1;
        }
    } while (got);
    if (s->at != s->data_size) {
        output_discard(&out);
        return fault_set(f, "does not have the data that its header describes");
    }
    if (spool_to_input(&out, &in, s->in.name, f)) return 1;
    input_close(&s->in);
    s->in = in;
    s->packed = 0;
    s->data_begin = 0;
    s->at = 0;
    return 0;
}

/* ================================================================================= OUTPUT */

/* Prints a name and returns the number of columns. */
static size_t print_name(const job *j, text_slice name)
{
    size_t columns = 1;
    if (j->file && !j->alone) {
        columns += print_text(stdout, j->file, strlen(j->file)) + 2;
        (void)fputs(": ", stdout);
    }
    columns += name.at ? print_text(stdout, name.at, name.size) : print_text(stdout, "(raw)", 5);
    (void)putchar(':');
    return columns;
}

static void json_tensor_begin(job *j, text_slice name, const char *status)
{
    json_begin(&j->out, '{');
    json_name(&j->out, "name");
    if (name.at) json_text(&j->out, name.at, name.size);
    else json_null(&j->out);
    json_member_string(&j->out, "status", status);
    if (j->file) json_member_string(&j->out, "file", j->file);
}

/* Notes a difference that no bound allows. */
static void note_different(job *j) { j->equal = j->within = 0; }

/* Reports a tensor whose elements are not compared. */
static void report_state(job *j, text_slice name, const char *status, const char *words)
{
    note_different(j);
    line_wipe();
    if (j->o->json) {
        json_tensor_begin(j, name, status);
        json_end(&j->out, '}');
    } else if (!j->o->quiet) {
        (void)print_name(j, name);
        (void)putchar(' ');
        (void)print_text(stdout, words, strlen(words)); /* print_text, because the names of dtypes come from the file */
        (void)putchar('\n');
    }
}

/* `bound`: bound of the relative errors if the tensor is quantized in one of the files, else 0. */
static void report_difference(job *j, text_slice name, const difference *d, double bound)
{
    const int within = bound > 0 && difference_is_within(d, bound);
    char text[320];
    size_t n, columns;
    if (d->differing) j->equal = 0;
    if (d->differing && !within) j->within = 0;
    if (j->o->json) {
        json_tensor_begin(j, name, d->differing ? "different" : "equal");
        json_name(&j->out, "dtype");
        if (d->type) json_string(&j->out, d->type->name);
        else json_null(&j->out);
        json_member_whole(&j->out, "elements", d->count);
        json_member_whole(&j->out, "differing", d->differing);
        if (d->is_float) {
            json_member_real(&j->out, "max_abs_error", d->absolute_max);
            json_member_real(&j->out, "mre", difference_mre(d));
            json_member_real(&j->out, "mse", difference_mse(d));
            json_member_real(&j->out, "max_rel_error", d->relative_max);
            json_member_whole(&j->out, "not_finite", d->not_finite);
            json_member_whole(&j->out, "no_relative_error", d->finite - d->related);
        }
        if (bound > 0) {
            json_member_real(&j->out, "bound", bound);
            json_member_truth(&j->out, "within_bound", within);
        }
        json_end(&j->out, '}');
        return;
    }
    if (j->o->quiet || (!d->differing && !j->o->verbose)) return;
    line_wipe();
    columns = print_name(j, name);
    if (!d->differing) {
        (void)printf(" equal, %llu elements\n", (unsigned long long)d->count);
        return;
    }
    n = (size_t)snprintf(text, sizeof text, " %llu of %llu elements differ", (unsigned long long)d->differing,
                         (unsigned long long)d->count);
    if (d->is_float) {
        const unsigned long long from_zero = d->finite - d->related, not_finite = d->not_finite;
        n += (size_t)snprintf(text + n, sizeof text - n, ", max abs %.4g, MRE %.4g, MSE %.4g, max rel %.4g", d->absolute_max,
                              difference_mre(d), difference_mse(d), d->relative_max);
        if (from_zero) n += (size_t)snprintf(text + n, sizeof text - n, ", from zero: %llu", from_zero);
        if (not_finite) n += (size_t)snprintf(text + n, sizeof text - n, ", not finite: %llu", not_finite);
    }
    if (bound > 0) (void)snprintf(text + n, sizeof text - n, ", %s the bound of %.4g", within ? "within" : "NOT within", bound);
    print_wrapped(stdout, columns, text);
    (void)putchar('\n');
}

/* Prints a summary of the certificates of a .bsnap file. */
static void report_certificates(side *s)
{
    adam_choice *roles = s->raw ? NULL : adam_roles(s->model, s->in.name);
    char *text = NULL;
    size_t size, columns;
    FILE *to = open_memstream(&text, &size);
    s->lossy.model = s->model;
    s->lossy.roles = roles;
    columns = print_text(stdout, s->in.name, strlen(s->in.name)) + 1;
    (void)putchar(':');
    if (to) {
        (void)fputs(" certified: ", to);
        lossy_print_line(to, &s->lossy, " ");
        if (!fclose(to)) print_wrapped(stdout, columns, text);
    }
    (void)putchar('\n');
    s->lossy.roles = NULL;
    free(text);
    free(roles);
}

/* ================================================================================= COMPARING */

/* As lossy_bound, for data just read up to byte `end`. The last frame may not have ended, so its certificate is not known. */
static int side_bound(const side *s, uint64_t begin, uint64_t end, double *bound)
{
    const file_reader *r = &s->reader;
    const int bounded = lossy_bound(&s->lossy, begin, end, bound);
    double more;
    if (!s->packed || !r->s.in_frame || !r->s.quantized) return bounded;
    more = r->s.frame.info.bins ? bitsnap_log_bound(r->s.frame.info.bins) : 0;
    if (more > *bound) *bound = more;
    return bounded && more > 0;
}

/* Returns the bound of a tensor that is quantized in one of the files. If both quantize it, their difference has no bound: 0. */
static double bound_of(const job *j, const tensor *x, const tensor *y)
{
    const adam_choice *c = j->choices ? &j->choices[x - j->a.model->tensors] : NULL;
    double a, b;
    const int bounded = side_bound(&j->a, x->begin, x->end, &a) & side_bound(&j->b, y->begin, y->end, &b);
    if (!bounded || (a > 0 && b > 0)) return 0;
    if (a > 0 || b > 0) return a > 0 ? a : b;
    return c && c->cells ? bitsnap_log_bound(c->cells) : 0;
}

/* Returns 1 if x and y can be compared element by element. */
static int comparable(const tensor *x, const tensor *y)
{
    return !bitsnap_slice_compare(x->dtype, y->dtype) && bitsnap_shape_same(x->shape, y->shape) &&
           x->end - x->begin == y->end - y->begin;
}

static int compare_bytes(job *j, const tensor *x, const tensor *y)
{
    difference d;
    uint64_t left = x->end - x->begin;
    /* errors are relative to the original, not to the quantized elements */
    const int exchanged = j->a.quantized && !j->b.quantized;
    difference_begin(&d, x->type);
    if (left && go_to(&j->a, x->begin, j->f)) return fail_side(&j->a, j->f);
    if (left && go_to(&j->b, y->begin, j->f)) return fail_side(&j->b, j->f);
    while (left) {
        const size_t n = left < WINDOW ? (size_t)left : WINDOW;
        if (need_data(&j->a, n, j->f)) return fail_side(&j->a, j->f);
        if (need_data(&j->b, n, j->f)) return fail_side(&j->b, j->f);
        if (exchanged) difference_add(&d, j->b.window, j->a.window, n);
        else difference_add(&d, j->a.window, j->b.window, n);
        left -= n;
        progress_show(&j->progress, j->a.at);
    }
    report_difference(j, x->name, &d, bound_of(j, x, y));
    return 0;
}

/* Returns 1 if the tensors of the second file come in the order of the first. */
static int same_order(const safetensors *a, const tensor **names_b, size_t count_b)
{
    uint64_t at = 0;
    size_t i;
    for (i = 0; i < a->count; i++) {
        const tensor *x = &a->tensors[i], *y = bitsnap_tensor_find(names_b, count_b, x->name);
        if (!y || !comparable(x, y) || y->begin == y->end) continue;
        if (y->begin < at) return 0;
        at = y->end;
    }
    return 1;
}

static void tell_of(job *j, const shards *in, const shard_tensor *t)
{
    j->file = in->files[t->shard].name;
    j->alone = shards_is_alone(in, t);
}

/* Returns the tensor to compare with x; null if the second file has none. */
static const tensor *partner_of(job *j, const tensor *x, const tensor **names_b)
{
    const shard_tensor *t = j->folder ? shards_find(j->folder, x->name, j->first) : NULL;
    if (t) tell_of(j, j->folder, t);
    return j->folder && (!t || t->partner != j->second) ? NULL : bitsnap_tensor_find(names_b, j->b.model->count, x->name);
}

static int compare_tensors(job *j, const tensor **names_a, const tensor **names_b)
{
    const safetensors *a = j->a.model, *b = j->b.model;
    size_t i, left = j->partners;
    if (!can_seek(&j->b) && !same_order(a, names_b, b->count) && spool(&j->b, j->f)) return fail_side(&j->b, j->f);
    for (i = 0; i < a->count; i++) {
        const tensor *x = &a->tensors[i], *y = partner_of(j, x, names_b);
        char words[160];
        if (y && j->folder) left--;
        if (!y) {
            if (!j->folder) report_state(j, x->name, "only_in_first", "only in the first file");
        } else if (bitsnap_slice_compare(x->dtype, y->dtype)) {
            (void)snprintf(words, sizeof words, "dtypes differ: %.*s and %.*s",
                           (int)(x->dtype.size < 40 ? x->dtype.size : 40), x->dtype.at,
                           (int)(y->dtype.size < 40 ? y->dtype.size : 40), y->dtype.at);
            report_state(j, x->name, "dtypes_differ", words);
        } else if (!comparable(x, y)) {
            report_state(j, x->name, "shapes_differ", "shapes differ");
        } else if (compare_bytes(j, x, y)) {
            return 1;
        }
    }
    if (left)
        return fault_set(j->f, "or the file that it is compared with has changed; repeat the command when no program writes there") && fail_side(&j->a, j->f);
    for (i = 0; i < b->count && !j->folder; i++)
        if (!bitsnap_tensor_find(names_a, a->count, b->tensors[i].name))
            report_state(j, b->tensors[i].name, "only_in_second", "only in the second file");
    if (finish_side(&j->a, j->f)) return fail_side(&j->a, j->f);
    return finish_side(&j->b, j->f) ? fail_side(&j->b, j->f) : 0;
}

/* Compares raw elements, up to the end of the shorter file. */
static int compare_raw(job *j)
{
    const text_slice nameless = { NULL, 0 };
    const element_type *type = j->o->dtype;
    difference d;
    int begun = 0;
    for (;;) {
        size_t n, m, both;
        if (read_data(&j->a, j->a.window, WINDOW, &n, j->f)) return fail_side(&j->a, j->f);
        if (read_data(&j->b, j->b.window, WINDOW, &m, j->f)) return fail_side(&j->b, j->f);
        if (!begun++) {
            /* without --dtype, two .bsnap files give the type; if theirs differ, bytes are compared */
            if (!type && j->a.packed && j->b.packed && j->a.reader.common == j->b.reader.common && j->a.reader.common) {
                const char *name = bitsnap_dtype_name(j->a.reader.common);
                type = bitsnap_element_type_find(name, strlen(name), 0);
            }
            difference_begin(&d, type);
        }
        both = n < m ? n : m;
        if (type && n % d.width) return fault_set(j->f, "not a whole number of %s elements; choose another --dtype", type->name);
        difference_add(&d, j->a.window, j->b.window, both - both % d.width);
        progress_show(&j->progress, j->a.at);
        if (n != m) {
            report_state(j, nameless, "sizes_differ", "the files have different sizes; the part that both have was compared");
            while (n == WINDOW)
                if (read_data(&j->a, j->a.window, WINDOW, &n, j->f)) return fail_side(&j->a, j->f);
            while (m == WINDOW)
                if (read_data(&j->b, j->b.window, WINDOW, &m, j->f)) return fail_side(&j->b, j->f);
            break;
        }
        if (n < WINDOW) break;
    }
    report_difference(j, nameless, &d, 0);
    return 0;
}

static void compare_texts(job *j)
{
    const side *a = &j->a, *b = &j->b;
    size_t i = 0;
    while (i < a->text_size && i < b->text_size && a->text[i] == b->text[i]) i++;
    if (i == a->text_size && i == b->text_size) {
        if (j->o->json) json_member_truth(&j->out, "header_texts_equal", 1);
        return;
    }
    note_different(j);
    if (j->o->json) {
        json_member_truth(&j->out, "header_texts_equal", 0);
        json_member_whole(&j->out, "header_texts_differ_at", 8 + i);
    } else if (!j->o->quiet) {
        line_wipe();
        (void)printf("header texts differ from byte %zu of the files on\n", 8 + i);
    }
}

static void begin_report(job *j, const char *path_a, const char *path_b)
{
    if (!j->o->json) return;
    json_begin(&j->out, '{');
    json_member_string(&j->out, "command", "compare");
    json_member_string(&j->out, "first", path_a);
    json_member_string(&j->out, "second", path_b);
    json_bases(&j->out, j->o);
}

static void begin_tensors(job *j)
{
    if (!j->o->json) return;
    json_member_list(&j->out, "tensors");
}

static void end_report(job *j)
{
    if (j->o->json) {
        json_end(&j->out, ']');
        json_member_truth(&j->out, "equal", j->equal);
        json_member_truth(&j->out, "within_bound", j->within);
        json_end(&j->out, '}');
    } else if (!j->o->quiet) {
        progress_end(&j->progress);
        (void)puts(j->equal ? "equal" : j->within ? "not identical, within the certified bound" : "different");
    }
}

static int compare_named(job *j)
{
    const tensor **names_a, **names_b;
    int failed;
    if (j->o->adam.name) {
        j->choices = adam_roles(j->a.model, j->a.in.name);
        if (!j->choices) return fault_memory(j->f);
        if (adam_choose(&j->o->adam, j->a.model, j->choices)) return fault_memory(j->f);
    }
    names_a = bitsnap_tensors_by_name(j->a.model);
    names_b = bitsnap_tensors_by_name(j->b.model);
    failed = names_a && names_b ? compare_tensors(j, names_a, names_b) : fault_memory(j->f);
    free((void *)names_a);
    free((void *)names_b);
    return failed;
}

static int compare_sides(job *j)
{
    if (j->a.raw != j->b.raw)
        return fault_set(j->f, "one file holds raw elements, the other named tensors: they cannot be compared");
    if (!j->a.raw && !j->folder) compare_texts(j);
    if (!j->folder) begin_tensors(j);
    if (j->a.raw ? compare_raw(j) : compare_named(j)) return 1;
    if (j->o->json || j->o->quiet) return 0;
    progress_end(&j->progress);
    if (j->a.quantized) report_certificates(&j->a);
    if (j->b.quantized) report_certificates(&j->b);
    return 0;
}

static int compare_files(job *j, const base *b, const char *path_a, const char *path_b)
{
    int failed;
    j->a.in.fd = j->b.in.fd = j->a.beside.in.fd = j->b.beside.in.fd = -1;
    progress_begin(&j->progress, options_show_progress(j->o), shown_name(path_a));
    failed = open_side(j, &j->a, b, path_a) ? fault_in(j->f, j->a.in.name ? j->a.in.name : path_a)
           : open_side(j, &j->b, b, path_b) ? fault_in(j->f, j->b.in.name ? j->b.in.name : path_b) : 0;
    if (!failed) {
        progress_set_total(&j->progress, j->a.data_size);
        if (!j->folder) begin_report(j, j->a.in.name, j->b.in.name);
        failed = compare_sides(j);
    }
    progress_end(&j->progress);
    if (!failed && !j->folder) end_report(j);
    free(j->choices);
    j->choices = NULL;
    close_side(&j->a);
    close_side(&j->b);
    return failed;
}

/* ================================================================================= FOLDERS
 * Tensors are matched by name, whatever files they are in: each file of the first folder with each of the second that has
 * one of its tensors. */

static int note_shards(const job *j, const shards *s)
{
    size_t i;
    for (i = 0; i < s->count; i++)
        if (used_name(&j->codec->used, s->files[i].path, USE_INPUT, j->f)) return 1;
    return 0;
}

/* Counts, for each file of the other folder, its partners of tensors in this file. */
static void find_partners(const shards *a, size_t number, size_t *partners, size_t count)
{
    const shard *x = &a->files[number];
    size_t i;
    memset(partners, 0, count * sizeof *partners);
    for (i = 0; i < x->model.count; i++) {
        const shard_tensor *t = shards_find(a, x->model.tensors[i].name, number);
        if (t && t->partner != NO_SHARD) partners[t->partner]++;
    }
}

static void report_missing(job *j, const shards *in, const char *status, const char *words)
{
    size_t i;
    for (i = 0; i < in->tensor_count; i++) {
        if (in->tensors[i].partner != NO_SHARD) continue;
        tell_of(j, in, &in->tensors[i]);
        report_state(j, in->tensors[i].name, status, words);
    }
}

static int compare_shards(job *j, const shards *a, const shards *b)
{
    size_t i, k, *partners = (size_t *)malloc(b->count * sizeof *partners);
    int failed = !partners && fault_memory(j->f);
    for (i = 0; i < a->count && !failed; i++) {
        find_partners(a, i, partners, b->count);
        progress_files(i + 1, a->count);
        j->first = i;
        for (k = 0; k < b->count && !failed; k++) {
            j->second = k;
            j->partners = partners[k];
            if (j->partners) failed = compare_files(j, NULL, a->files[i].path, b->files[k].path);
        }
    }
    free(partners);
    return failed;
}

static int compare_folders(job *j, const char *path_a, const char *path_b)
{
    shards a, b;
    int failed;
    j->folder = &a;
    memset(&b, 0, sizeof b);
    failed = shards_open(&a, j->codec, path_a, &j->o->select, j->f) || shards_open(&b, j->codec, path_b, &j->o->select, j->f) ||
             shards_pair(&a, &b, j->f) || note_shards(j, &a) || note_shards(j, &b);
    if (!failed) {
        begin_report(j, path_a, path_b);
        begin_tensors(j);
        failed = compare_shards(j, &a, &b);
    }
    if (!failed) {
        report_missing(j, &a, "only_in_first", "only in the first folder");
        report_missing(j, &b, "only_in_second", "only in the second folder");
        end_report(j);
    }
    shards_close(&a);
    shards_close(&b);
    return failed;
}

int command_compare(const options *o, codec *c, const base *b, const char *path_a, const char *path_b, fault *f)
{
    char *document = NULL; /* JSON, printed once it is complete */
    size_t document_size = 0;
    job j = { .o = o, .codec = c, .f = f, .equal = 1, .within = 1, .out.to = open_memstream(&document, &document_size) };
    int failed;
    if (!j.out.to) return fault_memory(f);
    if (!is_folder(path_a) || !is_folder(path_b))
        failed = o->recursive ? fault_set(f, "-r needs two folders") && fault_in(f, is_folder(path_a) ? path_b : path_a) : compare_files(&j, b, path_a, path_b);
    else if (o->dtype)
        failed = fault_set(f, "--dtype is for files, not for folders");
    else
        failed = b ? fault_set(f, "-b is for files: restore the deltas in folders first") : compare_folders(&j, path_a, path_b);
    if (fclose(j.out.to) && !failed) failed = fault_memory(f);
    if (!failed && o->json) (void)printf("%s\n", document);
    free(document);
    return failed || !j.within;
}
