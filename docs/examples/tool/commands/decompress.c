/* decompress.c - the commands decompress and test: a .bsnap file restored, or only checked.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"
#include "../files/file.h"
#include "../files/base.h"
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
    base beside;           /* what has been found as its base, as none was given */
    const base *base;      /* of a delta */
    file_reader reader;
    lossy lossy;           /* what is quantized */
    safetensors model;     /* the tensors, where something is */
    adam_choice *roles;
    progress progress;
    fault *f;
} job;

/* Of an input that is open. */
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
    if (safetensors_parse(&j->model, j->reader.text, j->reader.text_size, &ignored)) return 0; /* restored all the same, without names */
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

/* Whether the encoder has kept its word, as far as it says so itself. */
static int check_lossy(const job *j)
{
    return lossy_add_up(&j->lossy).within ? 0 : fault_set(j->f, "quantized elements are farther from what they were than its own bound allows");
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

/* There is no name for the output. Where the file is none of ours that is what is wrong, not its name. */
int refuse_name(const char *path, fault *f)
{
    input in;
    int failed = input_open(&in, path, f) || input_fill(&in, 8, f);
    if (!failed && !file_is_bsnap(input_bytes(&in), input_available(&in))) failed = foreign_refuse(&in, WANT_BSNAP, f);
    input_close(&in);
    return failed || fault_set(f, "its name does not end in .bsnap; say with -o how the output is to be called");
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
    const double begun = seconds_now();
    job j = { .o = o, .f = f, .in = *in, .out.fd = -1, .beside.in.fd = -1 };
    int failed;
    memset(in, 0, sizeof *in);
    in->fd = -1;
    failed = restore(&j, c, b, path, target);
    progress_end(&j.progress);
    if (!failed && o->remove_input) failed = output_remove_source(&j.out, &j.in, path, f);
    if (!failed) {
        const summary s = { path, o->shown ? o->shown : target, j.in.offset, j.out.size, seconds_now() - begun };
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
                         (unsigned long long)j->reader.s.source_size, j->reader.s.frames, s->seconds);
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
    const double begun = seconds_now();
    job j = { .o = o, .f = f, .in.fd = -1, .beside.in.fd = -1 };
    int failed;
    failed = input_open(&j.in, path, f) || begin(&j, c, b, path);
    j.reader.only_check = 1;
    failed = failed || restore_source(&j.reader, NULL, &j.progress, f) || check_lossy(&j);
    progress_end(&j.progress);
    if (!failed) {
        const summary s = { path, NULL, j.in.offset, j.reader.s.source_size, seconds_now() - begun };
        summary_add(&s);
        report_test(&j, &s);
    }
    end(&j);
    return failed;
}
