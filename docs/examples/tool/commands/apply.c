/* apply.c - the command apply: a .safetensors file becomes what a delta to it was made from.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * All or nothing: the result is written beside the file, and takes its place when it is whole and on the disk. Of folders
 * folder.c does that; here is what it asks before it writes. */
#include "../system/posix.h"

#include "../files/base.h"
#include "commands.h"
#include "../files/delta.h"
#include "../console/progress.h"

#include <string.h>

typedef struct job {
    const options *o;
    codec *codec;
    input in;              /* the delta */
    base base;             /* the file */
    output out;
    file_reader reader;
    progress progress;
    int is_result;         /* 1: the file is the result already, as far as is known */
    fault *f;
} job;

/* Clears is_result if the elements of the file are not those of the frame. */
static int look_in_file(void *context, const file_frame *frame, fault *f)
{
    job *j = (job *)context;
    const file_base *b = &j->base.file;
    uint64_t id = 0;
    if (!j->is_result) return 0;
    if (frame->info.has_content_id && bitsnap_file_content_id(b->file, frame->begin, frame->info.count, frame->info.dtype, &id)) return b->failed(b, f);
    j->is_result = frame->info.has_content_id && frame->info.content_id == id;
    return 0;
}

static int note_frame(void *context, const file_frame *frame, fault *f)
{
    if (frame_role(frame) > 1 && !frame_refers(frame))
        return fault_set(f, "this delta makes tensors of another dtype than the file has; bitsnap decompress -b writes them to another file");
    return look_in_file(context, frame, f);
}

/* Checks without decoding that the input is whole, and whether the file is its result already. Calls `note` for its frames. */
static int look(job *j, int (*note)(void *context, const file_frame *frame, fault *f))
{
    file_reader *r = &j->reader;
    delta_end own;
    int failed;
    if (file_look_begin(r, j->codec, &j->in, &j->base.file, j->f)) return 1;
    if (r->s.start.kind != BITSNAP_SOURCE_DELTA && note == note_frame)
        return fault_set(j->f, "is a whole file, not a delta; bitsnap decompress restores it");
    own = r->s.start.kind == BITSNAP_SOURCE_SAFETENSORS ? delta_end_of(r->text, r->text_size, r->s.start.source_size - 8 - r->text_size) : r->ends.own;
    j->is_result = own.text_size == j->base.file.text_size && own.data_size == j->base.file.data_size &&
                   own.text_id == bitsnap_hash(j->base.file.text, j->base.file.text_size);
    r->frame_observer.note = note;
    r->frame_observer.context = j;
    failed = file_look(r, j->f);
    file_read_close(r);
    return failed;
}

static int replace(job *j, const char *path)
{
    if (!(j->base.in.mode & 0200) && !j->o->force)
        return (void)fault_set(j->f, "is read-only, as shared files are; -f replaces it anyway"), fault_in(j->f, path);
    return input_seek(&j->in, 0, j->f) ||
           file_read_begin(&j->reader, j->codec, &j->in, j->o->max_output, &j->base.file, j->f) ||
           output_open_over(&j->out, path, &j->base.in, &j->codec->used, j->f) || restore_source(&j->reader, &j->out, &j->progress, j->f) ||
           input_check_unchanged(&j->in, j->f) || base_check_unchanged(&j->base, j->f) || output_commit(&j->out, j->f);
}

static void report(const job *j, const char *delta, const char *path, elapsed begun)
{
    const summary s = { delta, path, j->in.offset, j->is_result ? j->base.in.size : j->out.size, elapsed_since(begun) };
    if (j->o->json) {
        json out = json_summary(j->o, &s);
        json_member_truth(&out, "changed", !j->is_result);
        json_report_end(&out);
    } else if (!j->is_result) {
        print_summary(j->o, &s);
    } else if (!j->o->quiet) {
        print_file(stdout, path, ": already is the result; nothing changed\n");
    }
}

int command_apply(const options *o, codec *c, const char *delta, const char *path, fault *f)
{
    const elapsed begun = elapsed_now();
    job j = { .o = o, .codec = c, .f = f, .in.fd = -1, .out.fd = -1 };
    int failed;
    progress_begin(&j.progress, options_show_progress(o), shown_name(path));
    failed = base_plain(&j.base, c, path, f);
    if (!failed) progress_set_total(&j.progress, j.base.in.size);
    failed = failed || input_open(&j.in, delta, f) || input_settle(&j.in, f) || look(&j, note_frame) || (!j.is_result && replace(&j, path));
    progress_end(&j.progress);
    if (failed) output_discard(&j.out);
    else report(&j, delta, path, begun);
    file_read_close(&j.reader);
    base_close(&j.base);
    input_close(&j.in);
    return failed;
}

int apply_is_result(codec *c, const char *delta, const char *path, fault *f)
{
    job j = { .codec = c, .f = f, .in.fd = -1, .out.fd = -1 };
    const int failed = base_plain(&j.base, c, path, f) || input_open(&j.in, delta, f) || look(&j, look_in_file);
    file_read_close(&j.reader);
    base_close(&j.base);
    input_close(&j.in);
    return !failed && j.is_result;
}

/* Compares the elements that a frame is coded against with those of its base: by their content ids. */
static int note_base(void *context, const file_frame *frame, fault *f)
{
    const base *b = (const base *)context;
    uint64_t number, id;
    if (!frame->info.has_base || !frame->info.count || frame_refers(frame)) return 0;
    for (number = frame->base; number; number--) b = b->next;
    if (bitsnap_file_content_id(b->file.file, frame->base_begin, frame->info.count, frame->info.base_dtype, &id)) return b->file.failed(&b->file, f);
    return id == frame->info.base_id ? 0 : fault_set(f, "was made against other elements than %s has; nothing is changed", b->path);
}

int apply_check_fit(codec *c, input *in, base *b, fault *f)
{
    file_reader r;
    int failed = file_look_begin(&r, c, in, b ? &b->file : NULL, f);
    r.frame_observer.note = note_base;
    r.frame_observer.context = b;
    failed = failed || file_look(&r, f);
    file_read_close(&r);
    return failed;
}
