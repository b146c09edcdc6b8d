/* compress.c - the command compress: from a .safetensors file or raw elements to a .bsnap file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "../files/base.h"
#include "commands.h"
#include "../files/delta.h"
#include "../files/foreign.h"
#include "../tensors/group.h"
#include "../files/header.h"
#include "../tensors/lossy.h"
#include "../tensors/pairs.h"
#include "../tensors/plan.h"
#include "../tensors/references.h"
#include "../console/progress.h"
#include "../tensors/stage.h"
#include "../tensors/tally.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT_MAX ((uint64_t)1 << 48)   /* elements of a frame */
#define WARNED_LEAST 65536              /* bytes of a file whose sizes are worth a warning */
#define PIPE_FRAME ((size_t)64 << 20)   /* bytes of a frame, where the number of elements to come is not known */

typedef struct job {
    const options *o;
    codec *codec;
    input in;
    output out;
    header header;         /* of a .safetensors file */
    const base *given;     /* the base of -b */
    const pairs *known;    /* partners in siblings, which are `base` then, and not given */
    const base *base;      /* the same; null: the output is a whole file, not a delta */
    file_base *bases;      /* a list of the bases that are used */
    pairs pairs;           /* our tensors and their counterparts in it */
    references references; /* of our tensors to earlier ones */
    base itself;           /* the source, as the base of references */
    uint64_t against;      /* bytes of elements that are coded against it */
    uint64_t paired_stored; /* bytes of the frames that have elements of it */
    delta_ends ends;
    adam_policy adam;
    stage stage;
    adam_choice *choices;  /* of each tensor */
    plan plan;
    lossy lossy;           /* what has been quantized */
    const tensor *refused; /* a second moment that stays exact because it has negative elements */
    size_t refused_count;
    file_writer writer;
    tally tally;
    progress progress;
    uint8_t *window;
    uint64_t frames;
    fault *f;
} job;

static int ended_early(const job *j)
{
    return fault_set(j->f, "ended at byte %llu, before its last element; take another copy of it", (unsigned long long)j->in.offset);
}

static int not_whole(const job *j, uint64_t bytes)
{
    return fault_set(j->f, "%llu bytes are not a whole number of %s elements; choose another --dtype",
                     (unsigned long long)bytes, j->o->dtype->name);
}

/* Notes the result of the last frame if it is quantized. `begin`: the byte of the data where its elements begin. */
static int note_frame(job *j, uint64_t begin)
{
    file_frame frame = { 0 };
    frame.begin = begin;
    frame.info = j->writer.info;
    frame.info.certificate = j->writer.to.certificate;
    frame.size = j->writer.to.last;
    return lossy_note(&j->lossy, &frame, j->f);
}

static int not_second(const job *j, const piece *p)
{
    const safetensors *m = &j->header.model;
    size_t i = 0;
    while (i + 1 < m->count && m->tensors[i].end <= p->begin) i++;
    return fault_set(j->f, "second moment \"%.*s\" has negative elements, so it is not one; compress this from a file, or with v=lossless",
                     (int)(m->tensors[i].name.size < 200 ? m->tensors[i].name.size : 200), m->tensors[i].name.at);
}

/* Chooses the block size of a frame whose first n bytes are in the window; *log2 is 0 for that of the level. Level best has
 * larger blocks, for scales of columns and for differences. Parts of such a block may be constant or alike while all of it is
 * not. So the window is packed with these blocks and with those of level default, and the smaller ones win. */
static int choose_blocks(job *j, const piece *p, size_t n, const file_range *range, unsigned *log2)
{
    const size_t capacity = n + n / 512 + 4096; /* a block has 64 KiB of elements or more, and less than 100 bytes in addition */
    const unsigned usual = range ? 19 : 16;
    uint8_t *frame;
    bitsnap_info info;
    size_t size, other;
    int failed;
    *log2 = 0;
    if (j->codec->b.level != BITSNAP_BEST || piece_stands_alone(p) || !(range || p->form.columns)) return 0;
    frame = (uint8_t *)malloc(capacity);
    if (!frame) return fault_memory(j->f);
    failed = file_pack_frame(&j->writer, &p->form, j->window, n, range, frame, capacity, &size, j->f);
    if (!failed && !bitsnap_read_info(&info, frame, size) && info.block_log2 > usual) {
        j->codec->b.block_log2 = usual;
        failed = file_pack_frame(&j->writer, &p->form, j->window, n, range, frame, capacity, &other, j->f);
        j->codec->b.block_log2 = 0;
        if (!failed && other < size) *log2 = usual;
    }
    free(frame);
    return failed;
}

/* Begins a frame whose first n bytes are in the window. */
static int begin_frame(job *j, const piece *p, uint64_t count, size_t n, const file_range *range)
{
    unsigned log2;
    int failed;
    if (choose_blocks(j, p, n, range, &log2)) return 1;
    j->codec->b.block_log2 = log2;
    failed = file_write_frame(&j->writer, &p->form, count, range, j->f);
    j->codec->b.block_log2 = 0;
    return failed;
}

/* Writes a frame of elements that come from the input, byte `begin` of the data and on; `range`: those of the base, or null. */
static int put_frame(job *j, const piece *p, uint64_t begin, uint64_t count, const file_range *range)
{
    const uint64_t bytes = count * bitsnap_width(p->form.dtype);
    uint64_t left = bytes;
    j->writer.to.referred = p->last;
    while (left) {
        const size_t n = left < j->codec->window ? (size_t)left : j->codec->window;
        size_t got;
        if (input_read(&j->in, j->window, n, &got, j->f)) return 1;
        if (got < n) return ended_early(j);
        if (p->second && !j->in.regular && adam_has_negative(p->form.dtype, j->window, n)) return not_second(j, p);
        if ((left == bytes && begin_frame(j, p, count, n, range)) || file_write_window(&j->writer, j->window, n, j->f)) return 1;
        left -= n;
        progress_show(&j->progress, j->in.offset);
    }
    j->frames++;
    if (file_write_frame_end(&j->writer, j->f)) return 1;
    if (range) j->paired_stored += BITSNAP_PLACE_SIZE + j->writer.to.last;
    return note_frame(j, begin);
}

/* Writes a piece as one frame, or as several if it has more elements than a frame holds. */
static int put_piece(job *j, const piece *p)
{
    const unsigned width = bitsnap_width(p->form.dtype);
    uint64_t left = p->bytes / width;
    file_range range = p->range;
    while (left) {
        const uint64_t count = left < COUNT_MAX ? left : COUNT_MAX;
        if (put_frame(j, p, p->begin + p->bytes - left * width, count, p->paired ? &range : NULL)) return 1;
        range.begin += count * bitsnap_width(range.dtype);
        left -= count;
    }
    return 0;
}

static int check_end(job *j)
{
    if (input_fill(&j->in, 1, j->f)) return 1;
    if (input_available(&j->in))
        return fault_set(j->f, "has bytes after the data that its header describes (from byte %llu on); cut them off",
                         (unsigned long long)j->in.offset);
    return 0;
}

/* Small pieces, which one frame may hold. */
static int put_group(job *j, const piece *p, size_t n)
{
    const size_t bytes = (size_t)(p[n - 1].begin + p[n - 1].bytes - p[0].begin);
    size_t got;
    if (input_read(&j->in, j->window, bytes, &got, j->f)) return 1;
    if (got < bytes) return ended_early(j);
    bitsnap_file_write_source(&j->writer.to, j->window, bytes);
    if (group_write(&j->writer, p, n, j->window, j->f)) return 1;
    j->frames = j->writer.to.frames;
    progress_show(&j->progress, j->in.offset);
    return 0;
}

static int put_tensors(job *j)
{
    size_t i, n;
    for (i = 0; i < j->plan.count; i += n) {
        const piece *p = &j->plan.pieces[i];
        n = group_length(&j->plan, i);
        if (n > 1 ? put_group(j, p, n) : put_piece(j, p)) return 1;
    }
    return check_end(j);
}

/* Raw elements from a pipe: a frame has to know how many it will have, so each is read before it is written. */
static int put_pipe(job *j, const file_form *form)
{
    const unsigned width = bitsnap_width(form->dtype);
    uint8_t *frame = (uint8_t *)malloc(PIPE_FRAME);
    size_t got = PIPE_FRAME;
    int failed = 0;
    if (!frame) return fault_memory(j->f);
    while (!failed && got == PIPE_FRAME) {
        size_t at, n;
        failed = input_read(&j->in, frame, PIPE_FRAME, &got, j->f);
        if (failed || !got) break;
        if (got % width) {
            failed = not_whole(j, j->in.offset);
            break;
        }
        failed = file_write_frame(&j->writer, form, got / width, NULL, j->f);
        for (at = 0; at < got && !failed; at += n) {
            n = got - at < j->codec->window ? got - at : j->codec->window;
            failed = file_write_window(&j->writer, frame + at, n, j->f);
        }
        if (!failed) failed = file_write_frame_end(&j->writer, j->f);
        j->frames++;
        progress_show(&j->progress, j->in.offset);
    }
    free(frame);
    return failed;
}

static int put_raw(job *j)
{
    piece all = { .form.dtype = j->o->dtype->codec, .bytes = j->in.size };
    if (j->in.size == SIZE_UNKNOWN) return put_pipe(j, &all.form);
    return put_piece(j, &all) || check_end(j);
}

static int begin_delta(job *j)
{
    const header *h = &j->header;
    const delta_end own = delta_end_of(h->text, h->size, h->model.data_size);
    const file_base *b;
    delta_end *bases;
    size_t n = 0;
    int failed;
    for (b = j->bases; b; b = b->next) n++;
    bases = (delta_end *)malloc(n * sizeof *bases);
    if (!bases) return fault_memory(j->f);
    for (b = j->bases, n = 0; b; b = b->next) {
        bases[n] = delta_end_of(b->text, b->text_size, b->data_size);
        bases[n++].name = b->name;
    }
    failed = delta_make_ends(&j->ends, bases, n, j->bases->text, &own, h->text, j->o->self_contained, j->f) ||
             file_write_delta(&j->writer, j->codec, &j->out, &j->ends, j->bases, j->plan.refers ? FRAMES_REFER : 0u, j->f);
    free(bases);
    return failed;
}

/* Writes everything into an open output. */
static int put_file(job *j)
{
    const int raw = j->o->dtype != NULL;
    const uint64_t size = raw ? j->in.size : 8 + (uint64_t)j->header.size + j->header.model.data_size;
    if (tally_open(&j->tally, raw ? NULL : &j->header.model, j->f)) return 1;
    j->window = (uint8_t *)malloc(j->codec->window);
    if (!j->window) return fault_memory(j->f);
    j->codec->sha256 = j->o->sha256;
    if (j->base ? begin_delta(j)
                : file_write_begin(&j->writer, j->codec, &j->out, size, raw ? NULL : j->header.text, j->header.size,
                                   (j->plan.quantizes ? FRAMES_QUANTIZED : 0u) | (j->plan.refers ? FRAMES_REFER : 0u), j->f))
        return 1;
    if (j->plan.refers) file_write_itself(&j->writer, &j->itself.file);
    j->writer.to.align = (uint32_t)j->o->align;
    j->writer.observer.note = tally_note;
    j->writer.observer.context = &j->tally;
    j->writer.observer.against = &j->against;
    progress_set_total(&j->progress, size);
    return (raw ? put_raw(j) : put_tensors(j)) || file_write_end(&j->writer, j->f) ||
           input_check_unchanged(&j->in, j->f) ||
           (j->base && (base_check_unchanged(j->base, j->f) || used_check_bases(&j->codec->used, j->f))) || output_commit(&j->out, j->f);
}

/* Looks for second moments that have negative elements: these are refused and stay exact. */
static int check_moments(job *j)
{
    const safetensors *model = &j->header.model;
    const uint64_t begin = j->in.offset;
    uint8_t *window;
    size_t i, got;
    int failed = 0;
    if (!j->adam.name || !j->in.regular) return 0;
    window = (uint8_t *)malloc(j->codec->window);
    if (!window) return fault_memory(j->f);
    for (i = 0; i < model->count && !failed; i++) {
        const tensor *t = &model->tensors[i];
        uint64_t at;
        if (j->choices[i].role != ADAM_V || !(j->choices[i].cells | j->choices[i].clusters)) continue;
        failed = input_seek(&j->in, begin + t->begin, j->f);
        for (at = t->begin; at < t->end && !failed; at += got) {
            failed = input_read(&j->in, window, t->end - at < j->codec->window ? (size_t)(t->end - at) : j->codec->window, &got, j->f);
            if (!failed && !got) failed = ended_early(j);
            if (failed || !adam_has_negative(bitsnap_tensor_codec(t), window, got)) continue;
            adam_refuse(j->choices, model, i);
            j->refused = t;
            j->refused_count++;
            break;
        }
    }
    free(window);
    return failed || input_seek(&j->in, begin, j->f);
}

static int find_pairs(job *j, unsigned count)
{
    const renames r = { j->o->renames, j->o->rename_count };
    const safetensors **models = (const safetensors **)malloc(count * sizeof *models);
    const base *b;
    unsigned n = 0;
    int failed = !models && fault_memory(j->f);
    for (b = j->given; b && !failed; b = b->next) models[n++] = &b->model;
    failed = failed || pairs_find(&j->pairs, &j->header.model, models, count, 0, &r, j->f);
    free((void *)models);
    return failed;
}

/* Lists the bases that are used; a single base in any case. */
static int number_bases(job *j, unsigned count)
{
    unsigned *numbers = (unsigned *)malloc(count * sizeof *numbers), k, n = 0;
    const base *b;
    j->bases = (file_base *)malloc(count * sizeof *j->bases);
    if (!numbers || !j->bases) {
        free(numbers);
        return fault_memory(j->f);
    }
    for (k = 0; k < count; k++) numbers[k] = k;
    if (count > 1) (void)pairs_number(&j->pairs, numbers, count);
    for (b = j->base, k = 0; b; b = b->next, k++) {
        if (numbers[k] == count) continue;
        j->bases[n] = b->file;
        j->bases[n].next = NULL;
        if (n) j->bases[n - 1].next = &j->bases[n];
        n++;
    }
    free(numbers);
    return 0;
}

static int take_known(job *j)
{
    j->pairs = *j->known;
    j->pairs.list = (pair *)malloc((j->known->count + 1) * sizeof *j->pairs.list);
    if (!j->pairs.list) return fault_memory(j->f);
    memcpy(j->pairs.list, j->known->list, j->known->count * sizeof *j->pairs.list);
    return 0;
}

/* Finds the partners of tensors in the base, unless they are known. compress drops a base that saves nothing. merge and invert keep
 * it: they always make deltas. */
static int pair_tensors(job *j)
{
    const base *b;
    unsigned count = 0;
    for (b = j->base; b; b = b->next) count++;
    if (!count) return 0;
    if (j->known ? take_known(j) : find_pairs(j, count)) return 1;
    if (!j->known && j->o->command == COMPRESS) {
        if (pairs_sample(&j->pairs, j->codec, &j->in, &j->header.model, &j->given->file, j->f)) return 1;
        if (!j->pairs.used_bytes) j->base = NULL;
    }
    return j->base ? number_bases(j, count) : 0;
}

/* Tensors that are equal to earlier ones, or what these round to: in a file without base, which can be read at any place. */
static int find_references(job *j)
{
    const safetensors *model = &j->header.model;
    unsigned char *skip;
    size_t i;
    int failed, found = 0;
    if ((j->base && !j->known) || j->o->no_references || !j->in.regular) return 0;
    skip = (unsigned char *)malloc(model->count + 1);
    if (!skip) return fault_memory(j->f);
    for (i = 0; i < model->count; i++)
        skip[i] = j->choices[i].cells | j->choices[i].clusters ? 1 : j->known && j->known->list[i].kind == PAIR_FOUND ? 2 : 0;
    failed = references_find(&j->references, model, j->in.offset, &j->in, skip, j->o->partners || j->o->level == BITSNAP_BEST, j->f);
    free(skip);
    if (failed || !j->references.count) return failed;
    failed = base_again(&j->itself, j->codec, &j->in, &found, j->f);
    /* samples are hints, perhaps of other positions */
    if (!found) j->references.count = j->references.tensors = 0, j->references.bytes = 0;
    return failed;
}

/* Decides how each tensor is coded. */
static int choose(job *j, const char *path)
{
    const safetensors *model = &j->header.model;
    int is_delta;
    j->adam = j->o->adam;
    if (j->adam.stage && stage_find(&j->stage, &j->adam, model, path, j->o->weights, &j->codec->used, j->f)) return 1;
    j->choices = adam_roles(model, path);
    if (!j->choices || adam_choose(&j->adam, model, j->choices)) return fault_memory(j->f);
    j->lossy.model = model;
    j->lossy.roles = j->choices;
    if (check_moments(j) || pair_tensors(j) || find_references(j)) return 1;
    is_delta = j->base && !j->known;
    return plan_make(&j->plan, model, j->base ? &j->pairs : NULL, &j->references, j->choices, is_delta, j->o->level, j->f) ||
           group_plan(&j->plan, is_delta, j->f);
}

/* Refuses --rm of a file that is its own base: the output must still be restorable. */
static int check_removable(const job *j, const char *path)
{
    if (j->in.regular && used_is_base(&j->codec->used, &j->in.stamp))
        return fault_set(j->f, "is its own base, which the output needs: leave out --rm");
    return output_check_removable(&j->out, &j->in, path, j->f);
}

/* Fails if the file to be replaced is the base of others. If it has the time of the input, it was made from it and stays the
 * same. */
static int check_replaced(const job *j)
{
    const struct timespec *before = &j->out.before.modified, *now = &j->in.stamp.modified;
    if (!j->out.replaces || (before->tv_sec == now->tv_sec && before->tv_nsec == now->tv_nsec)) return 0;
    return check_not_needed(j->codec, j->out.target, j->f) && fault_in(j->f, j->out.target);
}

/* Looks at the input, and at the output's place, before anything is written. */
static int prepare(job *j, const char *path, const char *target)
{
    const char *foreign;
    if (input_note(&j->in, path, &j->codec->used, j->f)) return 1;
    if (!j->o->dtype) {
        if (header_read(&j->header, &j->in, j->f) || choose(j, path)) return 1;
    } else if (j->in.size != SIZE_UNKNOWN && j->in.size % bitsnap_width(j->o->dtype->codec)) {
        return not_whole(j, j->in.size);
    } else if (j->o->verbose && (foreign = foreign_name(&j->in, j->f)) != NULL) {
        line_wipe();
        print_file(stderr, path, ": ");
        (void)fprintf(stderr, "looks like %s; its bytes are read as elements of %s\n", foreign, j->o->dtype->name);
    }
    if (j->o->dry_run) return output_open(&j->out, "/dev/null", 1, NULL, &j->codec->used, j->f); /* counts bytes */
    if (refuse_terminal(j->o, target, "compressed bytes", j->f) || output_open(&j->out, target, j->o->force, &j->in, &j->codec->used, j->f)) return 1;
    output_keep_time(&j->out);
    if (check_replaced(j)) return 1;
    return j->o->remove_input && check_removable(j, path);
}

/* ================================================================================= OUTPUT */

/* Prints the bins that --adam stage chose, and why. */
static void print_stage(FILE *to, const job *j)
{
    if (!j->stage.elements) return;
    (void)fprintf(to, " (updates are %.3g of the weights in ", j->stage.ratio);
    (void)print_text(to, j->stage.weights, strlen(j->stage.weights));
    (void)fprintf(to, ", so their error may be %.3g %%: m LOG-%u, v LOG-%u)", 100 * j->stage.allowed, j->adam.m_cells, j->adam.v_cells);
}

/* If the file has only one moment: the bound of an update together with the other one. */
static double promised_update(const job *j)
{
    const adam_policy *p = &j->adam;
    return adam_update_bound(p->m_cells ? bitsnap_log_bound(p->m_cells) : 0, p->v_cells ? bitsnap_log_bound(p->v_cells) : 0);
}

/* Prints a line, even without a terminal: elements have changed. */
static void report_adam(const job *j, const char *path)
{
    const lossy_sums s = lossy_add_up(&j->lossy);
    print_file(stderr, path, ": ");
    (void)fprintf(stderr, "--adam %s", j->adam.name);
    print_stage(stderr, j);
    (void)fputs(": ", stderr);
    if (s.tensors) lossy_print_line(stderr, &j->lossy, " ");
    else (void)fputs("nothing quantized, every element is exact (moments are known by their names; --dry-run lists them)", stderr);
    if (s.tensors && !s.pairs && !j->adam.clusters) (void)fprintf(stderr, "; update at most %.3f %% with the other moment", 100 * promised_update(j));
    (void)putc('\n', stderr);
}

static const char *role_name(const adam_choice *c) { return c->role == ADAM_M ? "m" : c->role == ADAM_V ? "v" : "-"; }

/* Why tensors become what they do. Many have the same reason: it is printed once, with a number that the rows refer to. */
typedef struct reasons {
    char (*text)[96];
    size_t *count; /* tensors that have it */
    size_t size;
} reasons;

static size_t reason_of(const adam_choice *c, int which, char text[96])
{
    const char *what = which ? c->why : c->pattern;
    if (!what) return 0;
    return (size_t)snprintf(text, 96, which ? "%s" : "%s in its %sname", what, c->by_file ? "file's " : "");
}

/* Returns the number of a reason, from 1 on; 0: the tensor has no reason, or all tensors have the same. */
static size_t reason_number(const reasons *r, const adam_choice *c, int which, size_t tensors)
{
    char text[96];
    size_t i, number = 1;
    if (!reason_of(c, which, text)) return 0;
    for (i = 0; i < r->size && strcmp(r->text[i], text); i++) number += r->count[i] < tensors;
    return i < r->size && r->count[i] < tensors ? number : 0;
}

static int reasons_find(reasons *r, const job *j)
{
    const size_t tensors = j->header.model.count;
    char text[96];
    size_t i, k, capacity = 0, capacity_of_counts = 0;
    memset(r, 0, sizeof *r);
    for (i = 0; i < 2 * tensors; i++) {
        if (!reason_of(&j->choices[i / 2], (int)(i % 2), text)) continue;
        for (k = 0; k < r->size && strcmp(r->text[k], text); k++) continue;
        if (k == r->size) {
            char (*texts)[96] = (char (*)[96])grown(r->text, r->size, &capacity, sizeof *texts, j->f);
            size_t *counts;
            if (!texts) return 1;
            r->text = texts;
            counts = (size_t *)grown(r->count, r->size, &capacity_of_counts, sizeof *counts, j->f);
            if (!counts) return 1;
            r->count = counts;
            (void)memcpy(r->text[k], text, sizeof text);
            r->count[k] = 0;
            r->size++;
        }
        r->count[k]++;
    }
    return 0;
}

static void print_reasons(const reasons *r, size_t tensors)
{
    size_t i, number = 0;
    for (i = 0; i < r->size; i++) {
        if (r->count[i] == tensors) (void)printf("all: %s\n", r->text[i]);
        else (void)printf("(%zu) %s: %zu of %zu tensors\n", ++number, r->text[i], r->count[i], tensors);
    }
}

/* The column of a tensor that says how it is stored, if moments are quantized. */
static size_t print_choice(const adam_choice *c)
{
    char family[16] = "exact", bound[24] = "-";
    if (c->cells) {
        (void)snprintf(family, sizeof family, "LOG-%u", c->cells);
        (void)snprintf(bound, sizeof bound, "%.4f %%", 100 * bitsnap_log_bound(c->cells));
    }
    if (c->clusters) {
        (void)snprintf(family, sizeof family, "C-%u", c->clusters);
        (void)snprintf(bound, sizeof bound, "none");
    }
    return (size_t)printf("%-2s  %-7s  %9s  ", role_name(c), family, bound);
}

static size_t print_dtype(const tensor *t)
{
    size_t columns = print_text(stdout, t->dtype.at, t->dtype.size);
    for (; columns < 10; columns++) (void)putchar(' ');
    return columns;
}

/* Prints a row for each tensor: how it is stored, and its size. */
static void print_plan(const job *j, const reasons *r)
{
    const safetensors *m = &j->header.model;
    size_t i;
    if (j->adam.name) (void)printf("%-2s  %-7s  %9s  ", "", "becomes", "bound");
    else (void)printf("%-8s  ", "dtype");
    (void)printf("%12s  %8s  name\n", "elements", "ratio");
    for (i = 0; i < m->count; i++) {
        const tensor *t = &m->tensors[i];
        const adam_choice *c = &j->choices[i];
        const size_t pattern = reason_number(r, c, 0, m->count), why = reason_number(r, c, 1, m->count);
        char notes[64] = "";
        size_t at = j->adam.name ? print_choice(c) : print_dtype(t);
        at += (size_t)printf("%12llu  ", (unsigned long long)t->elements);
        if (j->tally.stored[i] > 0) at += (size_t)printf("%8.4f  ", 8 * (double)(t->end - t->begin) / j->tally.stored[i]);
        else at += (size_t)printf("%8s  ", "-");
        if (pattern && why) (void)snprintf(notes, sizeof notes, "  (%zu) (%zu)", pattern, why);
        else if (pattern || why) (void)snprintf(notes, sizeof notes, "  (%zu)", pattern | why);
        print_last(t->name.at, t->name.size, at, notes);
    }
}

/* Prints what would become of a file: --dry-run, and info of a .safetensors file. */
static int report_plan(const job *j, const char *path)
{
    const int with_rows = j->o->command != INFO || !j->o->quiet;
    char in[AMOUNT_TEXT], out[AMOUNT_TEXT];
    reasons r = { NULL, NULL, 0 };
    int failed = j->adam.name && reasons_find(&r, j);
    if (!failed) {
        if (j->o->file_count > 1 || j->o->recursive) {
            print_file(stdout, path, ":\n");
        }
        if (j->stage.elements) {
            (void)printf("stage");
            print_stage(stdout, j);
            (void)putchar('\n');
        }
        if (with_rows && !j->o->dtype) print_plan(j, &r);
        print_reasons(&r, j->header.model.count);
        (void)printf("file     %s -> %s, ratio %.4f\n", amount(j->o, in, j->writer.to.source_size), amount(j->o, out, j->out.size),
                     (double)j->writer.to.source_size / (double)j->out.size);
        if (j->o->command == INFO) (void)printf("note     not compressed: these are the sizes that bitsnap compress would give\n");
    }
    free(r.text);
    free(r.count);
    return failed;
}

static void choice_json(const adam_choice *c, json *out)
{
    json_member_string(out, "role", c->role ? role_name(c) : "");
    json_member_whole(out, "cells", c->cells);
    if (c->clusters) json_member_whole(out, "clusters", c->clusters);
    json_member_real(out, "bound", c->cells ? bitsnap_log_bound(c->cells) : 0);
    if (c->pattern) json_member_string(out, "pattern", c->pattern);
    if (c->why) json_member_string(out, "why_exact", c->why);
}

static void report_plan_json(const job *j, const char *path)
{
    const safetensors *m = &j->header.model;
    json out = json_report(j->o->command == INFO ? "info" : "dry-run", path);
    size_t i;
    json_member_truth(&out, "dry_run", 1);
    json_member_whole(&out, "bytes_in", j->writer.to.source_size);
    json_member_whole(&out, "bytes_out", j->out.size);
    json_member_real(&out, "ratio", (double)j->writer.to.source_size / (double)j->out.size);
    json_member_list(&out, "tensors");
    for (i = 0; i < m->count; i++) {
        const adam_choice *c = &j->choices[i];
        json_begin(&out, '{');
        tensor_json(&m->tensors[i], &out);
        json_member_real(&out, "stored_bytes", j->tally.stored[i] / 8);
        if (j->o->command == COMPRESS) choice_json(c, &out);
        json_end(&out, '}');
    }
    json_end(&out, ']');
    json_report_end(&out);
}

/* Warns that tensors called second moments have negative elements. */
static void warn_of_moments(const job *j, const char *path)
{
    const text_slice name = j->refused->name;
    char what[512], more[32] = "";
    if (j->refused_count > 1) (void)snprintf(more, sizeof more, " and %zu more", j->refused_count - 1);
    (void)snprintf(what, sizeof what, "second moments never have negative elements, but these do: %.*s%s; they and their first moments stay exact",
                   name.size < 300 ? (int)name.size : 300, name.at, more);
    warn(&j->codec->used, path, what);
}

/* Warns of a base that saves little or nothing. */
static void warn_of_base(const job *j, const char *path)
{
    const pairs *p = &j->pairs;
    const uint64_t alone = pairs_alone(p);
    const char *what;
    if (!j->base && !p->found)
        what = "no tensor has a partner in the base (-v says why); compressed without the base, and restored without it";
    else if (!j->base)
        what = "the base does not make it smaller; compressed without the base, and restored without it";
    else if (j->against <= p->used_bytes / 1000)
        what = "the base hardly makes it smaller, but restoring needs it; compress without -b instead";
    else if (alone && j->paired_stored >= alone && p->used_bytes >= WARNED_LEAST)
        what = "the base does not make it smaller, but restoring needs it; compress without -b instead";
    else
        return;
    warn(&j->codec->used, path, what);
}

/* Reports what the base saved. */
static void report_base(const job *j, const char *path)
{
    const pairs *p = &j->pairs;
    char found[32], used[32], all[32];
    if (j->o->verbose && !j->o->quiet) {
        line_wipe();
        print_file(stderr, path, ": ");
        (void)fprintf(stderr, "%zu of %zu tensors have a partner in the base, %s of %s; %s are coded against it\n", p->found, p->count,
                      size_text(found, p->found_bytes), size_text(all, j->header.model.data_size), size_text(used, j->against));
        pairs_print(p, stderr, path, &j->header.model);
    }
    warn_of_base(j, path);
}

/* Warns, unless -q, that decompress, test and others will refuse the output without --max-output. */
static void warn_of_growth(const job *j, const summary *s)
{
    fault why;
    char what[96];
    uint64_t from = s->bytes_out;
    const file_base *b;
    for (b = j->base ? j->bases : NULL; b; b = b->next) from += b->data_size;
    if (!file_check_limit(s->bytes_in, s->bytes_in, from, 0, &why)) return;
    (void)snprintf(what, sizeof what, "expands to over 256 times its size, so it takes --max-output %lluG to restore it",
                   (unsigned long long)((s->bytes_in - 1) >> 30) + 1);
    warn(&j->codec->used, s->output, what);
}

/* With -v: lists tensors that have the name of a moment and stay exact. */
static void report_exact(const job *j, const char *path)
{
    const safetensors *m = &j->header.model;
    size_t i;
    for (i = 0; j->o->verbose && i < m->count; i++) {
        const adam_choice *c = &j->choices[i];
        if (!c->role || c->cells || c->clusters) continue;
        print_file(stderr, path, ": ");
        (void)print_text(stderr, m->tensors[i].name.at, m->tensors[i].name.size);
        (void)fprintf(stderr, " stays exact: %s\n", c->why);
    }
}

static int report(const job *j, const char *path, const char *target, elapsed begun)
{
    const summary s = { path, j->o->shown ? j->o->shown : target, j->writer.to.source_size, j->out.size, elapsed_since(begun) };
    if (j->o->dry_run) {
        const summary read = { path, NULL, s.bytes_out, s.bytes_in, s.time }; /* as info counts: from packed to whole */
        summary_add(j->o->command == INFO ? &read : &s);
        if (j->o->json) report_plan_json(j, path);
        else if (report_plan(j, path)) return 1;
        if (j->given) report_base(j, path);
        return 0;
    }
    print_summary(j->o, &s);
    if (j->o->json) {
        static const char *const levels[] = { "default", "fast", "default", "best" };
        const size_t refer = j->references.tensors + (j->known ? j->known->found : 0);
        json out = json_summary(j->o, &s);
        json_member_string(&out, "level", levels[j->o->level]);
        json_member_whole(&out, "threads", pool_workers(j->codec->threads));
        json_member_whole(&out, "frames", j->frames);
        if (refer) json_member_whole(&out, "reference_tensors", refer);
        if (refer) json_member_whole(&out, "reference_bytes", j->references.bytes + (j->known ? j->known->found_bytes : 0));
        json_bases(&out, j->o);
        if (j->given) {
            json_member_truth(&out, "needs_base", j->base != NULL);
            pairs_json(&j->pairs, &out, &j->header.model, j->against);
        }
        if (j->adam.name) {
            json_member_string(&out, "adam", j->adam.name);
            lossy_json(&j->lossy, &out);
        }
        tally_json(&j->tally, &out, j->o->dtype ? j->o->dtype->codec : BITSNAP_I8, 0, 0);
        json_report_end(&out);
    } else if (j->adam.name && !j->o->quiet) {
        report_adam(j, path);
        report_exact(j, path);
    }
    warn_of_growth(j, &s);
    if (j->given) report_base(j, path);
    if (j->refused) warn_of_moments(j, path);
    return 0;
}

int compress_to(const options *o, codec *c, const base *b, const pairs *known, input *in, const char *path, const char *target, fault *f)
{
    const elapsed begun = elapsed_now();
    job j = { .o = o, .codec = c, .given = known ? NULL : b, .known = known, .base = b, .f = f, .in = *in, .out.fd = -1, .itself.in.fd = -1 };
    int failed;
    memset(in, 0, sizeof *in);
    in->fd = -1;
    progress_begin(&j.progress, options_show_progress(o), shown_name(path));
    failed = prepare(&j, path, target) || put_file(&j);
    progress_end(&j.progress);
    if (!failed && o->remove_input && !o->dry_run) failed = output_remove_source(&j.out, &j.in, path, f);
    if (failed) output_discard(&j.out);
    else failed = report(&j, path, target, begun);
    free(j.window);
    stage_free(&j.stage);
    file_write_close(&j.writer);
    tally_close(&j.tally);
    lossy_free(&j.lossy);
    plan_free(&j.plan);
    pairs_free(&j.pairs);
    references_free(&j.references);
    base_close(&j.itself);
    free(j.bases);
    free(j.choices);
    delta_ends_free(&j.ends);
    header_free(&j.header);
    input_close(&j.in);
    return failed;
}

char *compress_target(const char *path)
{
    char *target = (char *)malloc(strlen(path) + sizeof ".bsnap");
    return target ? strcat(strcpy(target, path), ".bsnap") : NULL;
}

char *target_of(const options *o, const char *path)
{
    char *beside = o->command == COMPRESS ? compress_target(path) : decompress_target(path), *inside;
    fault ignored;
    if (!beside || !o->into) return beside;
    inside = path_in(o->output, last_part(beside), &ignored);
    free(beside);
    return inside;
}

static int convert(const options *o, codec *c, const base *b, const siblings *s, size_t number, const char *path, fault *f)
{
    const char *target = o->output;
    char *named = NULL;
    input in;
    int failed;
    if (!target && !strcmp(path, "-")) target = "-";
    if (!target || o->into) {
        target = named = target_of(o, path);
        if (!named) return o->command == COMPRESS ? fault_memory(f) : refuse_name(path, f);
    }
    if (skips(o, target)) {
        failed = o->remove_input && remove_proven(o, c, b, path, target, f);
        if (!failed) report_skipped(o, path, target);
    } else {
        failed = input_open(&in, path, f) || (o->command != COMPRESS ? decompress_to(o, c, b, &in, path, target, f)
                                              : s ? compress_sibling(o, c, s, number, &in, target, f)
                                                  : compress_to(o, c, b, NULL, &in, path, target, f));
    }
    free(named);
    return failed;
}

int command_convert(const options *o, codec *c, const base *b, const char *path, fault *f) { return convert(o, c, b, NULL, 0, path, f); }

int command_sibling(const options *o, codec *c, const siblings *s, size_t number, fault *f)
{
    return convert(o, c, NULL, s, number, s->files[number].path, f);
}
