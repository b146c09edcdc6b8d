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

static int note_frame(void *context, const file_frame *frame, fault *f) { return lossy_note((lossy *)context, frame, f); }

/* Of an input that is open. */
static int begin(job *j, codec *c, const base *b, const char *path)
{
    fault ignored;
    int found = 0;
    progress_begin(&j->progress, !j->o->quiet && !j->o->no_progress && !j->o->json,
                   strcmp(path, "-") ? path : "(standard input)", SIZE_UNKNOWN);
    if (input_note(&j->in, path, &c->used, j->f) || (!b && find_beside(&j->beside, c, &j->in, path, j->o->max_output, &found, j->f))) return 1;
    j->base = found ? &j->beside : b;
    if (file_read_begin(&j->reader, c, &j->in, j->o->max_output, j->base ? &j->base->file : NULL, j->f)) return 1;
    progress_set_total(&j->progress, j->reader.s.start.source_size);
    j->reader.frame_observer.note = note_frame;
    j->reader.frame_observer.context = &j->lossy;
    if (!j->reader.s.start.quantized || j->reader.s.start.kind == BITSNAP_SOURCE_RAW) return 0;
    if (safetensors_parse(&j->model, j->reader.text, j->reader.text_size, &ignored)) return 0; /* restored all the same, without names */
    j->roles = adam_roles(&j->model, path);
    return j->roles ? 0 : fault_memory(j->f);
}

static lossy_names names_of(const job *j)
{
    lossy_names names;
    names.model = j->roles ? &j->model : NULL;
    names.roles = j->roles;
    return names;
}

/* What has been restored is not what was compressed: everybody is told, whoever looks. */
static void tell_lossy(const job *j, FILE *to)
{
    const lossy_names names = names_of(j);
    const lossy_sums s = lossy_add_up(&j->lossy, &names);
    lossy_print_line(to, &s, &names);
}

static void json_lossy(const job *j, json *out)
{
    const lossy_names names = names_of(j);
    json_member_truth(out, "lossy", j->reader.s.start.quantized);
    if (j->reader.s.start.quantized) lossy_json(&j->lossy, out, &names);
}

static void json_base(const job *j, json *out)
{
    if (!j->beside.in.name) {
        json_bases(out, j->o);
        return;
    }
    json_name(out, "base");
    json_begin(out, '[');
    json_string(out, j->beside.in.name);
    json_end(out, ']');
}

/* Whether the encoder has kept its word, as far as it says so itself. */
static int check_lossy(const job *j)
{
    const lossy_names names = names_of(j);
    const lossy_sums s = lossy_add_up(&j->lossy, &names);
    return s.within ? 0 : fault_set(j->f, "quantized elements are farther from what they were than its own bound allows");
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
    if (!strcmp(target, "-") && !j->o->force && isatty(STDOUT_FILENO))
        return fault_set(j->f, "tensors are not for a terminal, which standard output is; give -o FILE, or -f if you mean it");
    if (output_open(&j->out, target, j->o->force, &j->in, &c->used, j->f)) return 1;
    output_keep_time(&j->out);
    if (j->o->remove_input && output_check_removable(&j->out, &j->in, path, j->f)) return 1;
    return restore_source(&j->reader, &j->out, &j->progress, j->f) ||
           input_check_unchanged(&j->in, j->f) || (j->base && base_check_unchanged(j->base, j->f)) || output_commit(&j->out, j->f);
}

int decompress_to(const options *o, codec *c, const base *b, input *in, const char *path, const char *target, fault *f)
{
    const double begun = seconds_now();
    job j;
    int failed;
    memset(&j, 0, sizeof j);
    j.o = o;
    j.f = f;
    j.in = *in;
    j.out.fd = j.beside.in.fd = -1;
    memset(in, 0, sizeof *in);
    in->fd = -1;
    failed = restore(&j, c, b, path, target);
    progress_end(&j.progress);
    if (!failed && o->remove_input) failed = output_remove_source(&j.out, &j.in, path, f);
    if (!failed) {
        summary s;
        s.input = path;
        s.output = o->shown ? o->shown : target;
        s.bytes_in = j.in.offset;
        s.bytes_out = j.out.size;
        s.seconds = seconds_now() - begun;
        if (o->json) {
            json out = { NULL, 0 };
            summary_add(&s);
            out.to = stdout;
            json_begin(&out, '{');
            json_summary(&out, o, &s);
            json_member_string(&out, "kind", kind_name(j.reader.s.start.kind));
            json_member_whole(&out, "threads", pool_workers(c->threads));
            json_member_whole(&out, "frames", j.reader.s.frames);
            json_base(&j, &out);
            json_lossy(&j, &out);
            json_end(&out, '}');
            (void)putc('\n', stdout);
        } else {
            print_summary(o, &s);
            if (j.reader.s.start.quantized && !o->quiet) {
                (void)print_text(stderr, path, strlen(path));
                (void)fputs(": not exact: ", stderr);
                tell_lossy(&j, stderr);
                (void)putc('\n', stderr);
            }
        }
    } else {
        output_discard(&j.out);
    }
    end(&j);
    return failed;
}

int command_test(const options *o, codec *c, const base *b, const char *path, fault *f)
{
    const double begun = seconds_now();
    summary s;
    job j;
    int failed;
    memset(&j, 0, sizeof j);
    j.o = o;
    j.f = f;
    j.in.fd = j.beside.in.fd = -1;
    failed = input_open(&j.in, path, f) || begin(&j, c, b, path);
    j.reader.only_check = 1;
    failed = failed || restore_source(&j.reader, NULL, &j.progress, f) || check_lossy(&j);
    progress_end(&j.progress);
    s.input = path;
    s.output = NULL;
    s.bytes_in = j.in.offset;
    s.bytes_out = j.reader.s.source_size;
    s.seconds = seconds_now() - begun;
    if (!failed) summary_add(&s);
    if (!failed && o->json) {
        json out = { NULL, 0 };
        out.to = stdout;
        json_begin(&out, '{');
        json_summary(&out, o, &s);
        json_member_string(&out, "kind", kind_name(j.reader.s.start.kind));
        json_member_whole(&out, "frames", j.reader.s.frames);
        json_base(&j, &out);
        json_lossy(&j, &out);
        json_member_truth(&out, "ok", 1);
        json_end(&out, '}');
        (void)putc('\n', stdout);
    } else if (!failed && !o->quiet) {
        (void)print_text(stdout, path, strlen(path));
        if (o->verbose)
            (void)printf(": ok, %llu bytes for %llu, frames: %zu, %.3f s", (unsigned long long)j.in.offset,
                         (unsigned long long)j.reader.s.source_size, j.reader.s.frames, seconds_now() - begun);
        else (void)printf(": ok");
        if (j.reader.s.start.quantized) {
            (void)printf("; not exact: ");
            tell_lossy(&j, stdout);
        }
        (void)putchar('\n');
    }
    end(&j);
    return failed;
}
