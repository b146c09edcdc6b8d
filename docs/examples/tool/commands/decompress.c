/* decompress.c - the commands decompress and test: a .bsnap file restored, or only checked.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"
#include "../files/file.h"
#include "../files/base.h"
#include "../files/bytes.h"
#include "../files/foreign.h"
#include "../tensors/lossy.h"
#include "../console/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct job {
    const options *o;
    input in;
    output out;
    base beside;           /* the base found beside it, if none was given */
    const base *base;      /* of a delta */
    file_reader reader;
    lossy lossy;           /* the quantized frames */
    safetensors model;     /* the tensors, if something is quantized */
    adam_choice *roles;
    progress progress;
    fault *f;
} job;

/* Begins reading an open input. */
static int begin(job *j, codec *c, const base *b, const char *path)
{
    fault ignored;
    int found = 0;
    progress_begin(&j->progress, options_show_progress(j->o), shown_name(path));
    if (input_note(&j->in, path, &c->used, j->f) || (!b && find_beside(&j->beside, c, &j->in, path, j->o->max_output, &found, j->f))) return 1;
    j->base = found ? &j->beside : b;
    if (file_read_begin(&j->reader, c, &j->in, j->o->max_output, j->base ? &j->base->file : NULL, j->f)) return 1;
    progress_set_total(&j->progress, j->reader.s.start.source_size);
    j->reader.frame_observer.note = lossy_note;
    j->reader.frame_observer.context = &j->lossy;
    if (!j->reader.s.start.quantized || j->reader.s.start.kind == BITSNAP_SOURCE_RAW) return 0;
    /* restored even so, without names of tensors */
    if (safetensors_parse(&j->model, j->reader.text, j->reader.text_size, &ignored)) return 0;
    j->lossy.model = &j->model;
    j->lossy.roles = j->roles = adam_roles(&j->model, path);
    return j->roles ? 0 : fault_memory(j->f);
}

static void json_base(const job *j, json *out)
{
    if (!j->beside.in.name) {
        json_bases(out, j->o);
        return;
    }
    json_member_list(out, "base");
    json_string(out, j->beside.in.name);
    json_end(out, ']');
}

/* Fails if a certificate states a larger error than its bound. */
static int check_lossy(const job *j)
{
    return lossy_add_up(&j->lossy).within ? 0 : fault_set(j->f, "quantized elements have a larger error than the bound in the file allows");
}

static void end(job *j)
{
    lossy_free(&j->lossy);
    bitsnap_safetensors_free(&j->model);
    free(j->roles);
    file_read_close(&j->reader);
    base_close(&j->beside);
    input_close(&j->in);
}

static const char *kind_name(int kind) { return kind == BITSNAP_SOURCE_RAW ? "raw" : "safetensors"; }

char *decompress_target(const char *path)
{
    static const char suffix[] = ".bsnap";
    const size_t size = strlen(path), cut = sizeof suffix - 1;
    char *target;
    if (size <= cut || strcmp(path + size - cut, suffix) || path[size - cut - 1] == '/') return NULL;
    target = (char *)malloc(size - cut + 1);
    if (!target) return NULL;
    memcpy(target, path, size - cut);
    target[size - cut] = 0;
    return target;
}

/* Fails because the output has no name. If the input is not a .bsnap file, reports that instead. */
int refuse_name(const char *path, fault *f)
{
    input in;
    int failed = input_open(&in, path, f) || input_fill(&in, 8, f);
    if (!failed && !file_is_bsnap(input_bytes(&in), input_available(&in))) failed = foreign_refuse(&in, WANT_BSNAP, f);
    input_close(&in);
    return failed || fault_set(f, "its name does not end in .bsnap; name the output with -o");
}

static int restore(job *j, codec *c, const base *b, const char *path, const char *target)
{
    if (begin(j, c, b, path)) return 1;
    if (refuse_terminal(j->o, target, "tensors", j->f) || output_open(&j->out, target, j->o->force, &j->in, &c->used, j->f)) return 1;
    output_keep_time(&j->out);
    if (j->o->remove_input && output_check_removable(&j->out, &j->in, path, j->f)) return 1;
    return restore_source(&j->reader, &j->out, &j->progress, j->f) ||
           input_check_unchanged(&j->in, j->f) || (j->base && base_check_unchanged(j->base, j->f)) || output_commit(&j->out, j->f);
}

int decompress_to(const options *o, codec *c, const base *b, input *in, const char *path, const char *target, fault *f)
{
    const elapsed begun = elapsed_now();
    job j = { .o = o, .f = f, .in = *in, .out.fd = -1, .beside.in.fd = -1 };
    int failed;
    memset(in, 0, sizeof *in);
    in->fd = -1;
    failed = restore(&j, c, b, path, target);
    progress_end(&j.progress);
    if (!failed && o->remove_input) failed = output_remove_source(&j.out, &j.in, path, f);
    if (!failed) {
        const summary s = { path, o->shown ? o->shown : target, j.in.offset, j.out.size, elapsed_since(begun) };
        print_summary(o, &s);
        if (o->json) {
            json out = json_summary(o, &s);
            json_member_string(&out, "kind", kind_name(j.reader.s.start.kind));
            json_member_whole(&out, "threads", pool_workers(c->threads));
            json_member_whole(&out, "frames", j.reader.s.frames);
            json_base(&j, &out);
            lossy_json_truth(&j.lossy, &out, j.reader.s.start.quantized);
            json_report_end(&out);
        } else if (j.reader.s.start.quantized && !o->quiet) {
            print_file(stderr, path, ": not exact: ");
            lossy_print_line(stderr, &j.lossy, " ");
            (void)putc('\n', stderr);
        }
    } else {
        output_discard(&j.out);
    }
    end(&j);
    return failed;
}

/* Reads n bytes of a file and compares them. */
static int compare_bytes(input *in, const uint8_t *bytes, size_t n, int *same, fault *f)
{
    while (n && *same) {
        size_t some = n < 65536 ? n : 65536;
        if (input_fill(in, some, f)) return fault_in(f, in->name);
        if (some > input_available(in)) some = input_available(in);
        *same = some && !memcmp(input_bytes(in), bytes, some);
        input_consume(in, some);
        bytes += some;
        n -= some;
    }
    return 0;
}

/* *same is 1 if the .bsnap file of the job decodes to this file. */
static int compare_source(job *j, input *plain, int *same)
{
    file_reader *r = &j->reader;
    const uint8_t *bytes;
    uint8_t head[8];
    size_t size;
    *same = 1;
    store64(head, r->text_size);
    do {
        if (file_read(r, &bytes, &size, j->f)) return 1;
        if (r->s.start.kind != BITSNAP_SOURCE_RAW && !plain->offset &&
            (compare_bytes(plain, head, sizeof head, same, j->f) || compare_bytes(plain, (const uint8_t *)r->text, r->text_size, same, j->f)))
            return 1;
        if (compare_bytes(plain, bytes, size, same, j->f)) return 1;
        progress_show(&j->progress, r->s.source_size);
    } while (size && *same);
    *same = *same && plain->offset == plain->size;
    return 0;
}

int remove_proven(const options *o, codec *c, const base *b, const char *path, const char *target, fault *f)
{
    const int packs = o->command == COMPRESS;
    const char *packed = packs ? target : path, *plain_path = packs ? path : target;
    job j = { .o = o, .f = f, .in.fd = -1, .beside.in.fd = -1 };
    input plain = { .fd = -1 };
    input *gone = packs ? &plain : &j.in;
    const input *kept = packs ? &j.in : &plain;
    output out = { .name = target };
    int same = 0, failed;
    failed = (input_open(&plain, plain_path, f) && fault_in(f, plain_path)) ||
             ((input_open(&j.in, packed, f) || begin(&j, c, b, packed) || compare_source(&j, &plain, &same)) && fault_about(f, packed));
    progress_end(&j.progress);
    out.own = kept->stamp;
    if (!failed && !(same && kept->regular && gone->regular))
        failed = fault_set(f, "is not removed, as %s does not hold the same; look at both, or make it anew with -f instead of --skip-existing", target);
    else if (!failed && used_is_base(&c->used, &gone->stamp))
        failed = fault_set(f, "is not removed, as %s is a delta that needs it", target);
    else if (!failed) /* the program that wrote the kept file may not have waited for the disk */
        failed = ((fsync(kept->fd) && fault_errno(f, "cannot be written to disk")) || place_sync(target, f)) && fault_in(f, target);
    failed = failed || output_remove_source(&out, gone, path, f);
    input_close(&plain);
    end(&j);
    return failed;
}

/* Collects names of tensors until a message is full. */
typedef struct lost_names {
    char text[260];
    size_t count, next; /* names so far; all tensors before `next` have been looked at */
} lost_names;

/* Adds the tensors with any of these bytes of the data. The next call is for bytes that begin no earlier. */
static void list_tensors(lost_names *l, const safetensors *model, uint64_t begin, uint64_t end)
{
    for (; l->next < model->count && model->tensors[l->next].begin < end; l->next++) {
        const tensor *t = &model->tensors[l->next];
        const size_t used = strlen(l->text);
        if (t->end <= begin || t->begin == t->end) continue;
        l->count++;
        if (t->name.size + 40 < sizeof l->text - used)
            (void)snprintf(l->text + used, sizeof l->text - used, "%s%.*s", used ? ", " : "", (int)t->name.size, t->name.at);
        else if (!used || l->text[used - 1] != '.') (void)snprintf(l->text + used, sizeof l->text - used, "%s...", used ? ", " : "");
    }
}

/* Adds the tensors of frames that refer to these bytes: whole cells, since each is decoded with its part of the base. */
static void list_referring(lost_names *l, bitsnap_file *file, const safetensors *model, uint64_t begin, uint64_t end)
{
    uint64_t count, i;
    bitsnap_file_frame x;
    if (bitsnap_file_frames(file, &count)) return;
    for (i = 0; i < count; i++) {
        uint64_t first, last, cell;
        unsigned width;
        if (bitsnap_file_frame_at(file, i, &x) || !frame_refers(&x)) continue;
        width = bitsnap_width(x.info.base_dtype);
        if (end <= x.base_begin || begin >= x.base_begin + x.info.count * width) continue;
        cell = (uint64_t)1 << x.info.block_log2;
        first = begin > x.base_begin ? (begin - x.base_begin) / width / cell * cell : 0;
        last = ((end - x.base_begin - 1) / width / cell + 1) * cell;
        if (last > x.info.count) last = x.info.count;
        list_tensors(l, model, x.begin + first * x.info.width, x.begin + last * x.info.width);
    }
}

/* Adds to the fault of a damaged block the tensors that are lost with it. */
static void name_lost(job *j, const codec *c, fault *f)
{
    const bitsnap_file_stream *s = &j->reader.s;
    const bitsnap_error *e = &c->b.error;
    const bitsnap_info *info = &s->frame.info;
    const uint64_t begin = s->frame.begin + e->element * info->width, cell = (uint64_t)1 << info->block_log2;
    const uint64_t end = begin + (info->count - e->element < cell ? info->count - e->element : cell) * info->width;
    lost_names own = { "", 0, 0 }, others = { "", 0, 0 };
    safetensors model;
    base again;
    fault ignored;
    int found;
    if (!s->in_frame || !j->reader.text || (e->status != BITSNAP_E_CHECK && e->status != BITSNAP_E_CORRUPT) || e->element >= info->count) return;
    if (!safetensors_parse(&model, j->reader.text, j->reader.text_size, &ignored)) {
        list_tensors(&own, &model, begin, end);
        if (s->start.kind == BITSNAP_SOURCE_SAFETENSORS && s->start.incompatible & BITSNAP_FILE_REFERENCES) {
            if (!base_again(&again, c, &j->in, &found, &ignored) && found) list_referring(&others, again.file.file, &model, begin, end);
            base_close(&again);
        }
    }
    bitsnap_safetensors_free(&model);
    if (own.count) (void)fault_add(f, "; damaged: "), (void)fault_add(f, own.text);
    if (others.count) (void)fault_add(f, "; and tensors that refer to it: "), (void)fault_add(f, others.text);
    else if (s->frame.referred) (void)fault_add(f, "; and tensors that refer to it");
}

static void report_test(const job *j, const summary *s)
{
    if (j->o->json) {
        json out = json_summary(j->o, s);
        json_member_string(&out, "kind", kind_name(j->reader.s.start.kind));
        json_member_whole(&out, "frames", j->reader.s.frames);
        json_base(j, &out);
        lossy_json_truth(&j->lossy, &out, j->reader.s.start.quantized);
        json_member_truth(&out, "ok", 1);
        json_report_end(&out);
    } else if (!j->o->quiet) {
        (void)print_text(stdout, s->input, strlen(s->input));
        if (j->o->verbose)
            (void)printf(": ok, %llu bytes for %llu, frames: %zu, %.3f s", (unsigned long long)j->in.offset,
                         (unsigned long long)j->reader.s.source_size, j->reader.s.frames, s->time.seconds);
        else (void)printf(": ok");
        if (j->reader.s.start.quantized) {
            (void)printf("; not exact: ");
            lossy_print_line(stdout, &j->lossy, " ");
        }
        (void)putchar('\n');
    }
}

int command_test(const options *o, codec *c, const base *b, const char *path, fault *f)
{
    const elapsed begun = elapsed_now();
    job j = { .o = o, .f = f, .in.fd = -1, .beside.in.fd = -1 };
    int failed;
    failed = input_open(&j.in, path, f) || begin(&j, c, b, path);
    j.reader.only_check = 1;
    if (!failed) {
        failed = restore_source(&j.reader, NULL, &j.progress, f);
        if (failed) name_lost(&j, c, f);
        else failed = check_lossy(&j);
    }
    progress_end(&j.progress);
    if (!failed) {
        const summary s = { path, NULL, j.in.offset, j.reader.s.source_size, elapsed_since(begun) };
        summary_add(&s);
        report_test(&j, &s);
    }
    end(&j);
    return failed;
}
