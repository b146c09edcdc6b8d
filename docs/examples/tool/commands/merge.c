/* merge.c - the commands merge and invert: make one delta of consecutive ones, and the inverse of a delta.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * With the base at hand what the deltas make of it is restored, and compressed against it; without it deltas are put
 * together as they are. */
#include "../system/posix.h"

#include "../files/base.h"
#include "commands.h"
#include "../files/delta.h"
#include "../console/progress.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ================================================================================= WITH THE BASE */

/* Applies the deltas to the base, one after the other. */
static int restore_all(base *b, codec *c, const base *from, const options *o, fault *f)
{
    base before;
    size_t i;
    if (base_restore(b, c, o->files[0], from, o->max_output, f)) return 1;
    for (i = 1; i < o->file_count; i++) {
        int failed;
        before = *b;
        failed = base_restore(b, c, o->files[i], &before, o->max_output, f);
        base_close(&before);
        if (failed) return 1;
    }
    return 0;
}

/* Writes the delta from `from` to `to`. */
static int compress_base(const options *o, codec *c, const base *from, const base *to, fault *f)
{
    input in;
    return base_input(to, c, &in, f) || compress_to(o, c, from, NULL, &in, o->files[0], o->output, f);
}

/* ================================================================================= WITHOUT IT */

static void report(const options *o, const delta *d, uint64_t bytes_in, uint64_t bytes_out, elapsed begun)
{
    const summary s = { o->files[0], o->output, bytes_in, bytes_out, elapsed_since(begun) };
    print_summary(o, &s);
    if (o->json) {
        json out = json_summary(o, &s);
        json_member_whole(&out, "frames", d->count);
        json_report_end(&out);
    }
}

static int write_delta(const options *o, codec *c, const delta *d, const input *like, uint64_t bytes_in, elapsed begun, fault *f)
{
    output out = { .fd = -1 };
    const int failed = refuse_terminal(o, o->output, "compressed bytes", f) ||
                       output_open(&out, o->output, o->force, like, &c->used, f) || delta_write(d, c, &out, f) || output_commit(&out, f);
    if (failed) output_discard(&out);
    else report(o, d, bytes_in, out.size, begun);
    return failed;
}

int command_merge(const options *o, codec *c, const base *b, fault *f)
{
    const elapsed begun = elapsed_now();
    delta all, next, joined;
    uint64_t bytes_in;
    size_t i;
    int failed;
    if (b) {
        base last;
        failed = restore_all(&last, c, b, o, f) || compress_base(o, c, b, &last, f);
        base_close(&last);
        return failed;
    }
    failed = delta_open(&all, c, o->files[0], f);
    bytes_in = all.in.size;
    for (i = 1; i < o->file_count && !failed; i++) {
        failed = delta_open(&next, c, o->files[i], f);
        bytes_in += next.in.size;
        if (!failed) {
            failed = delta_join(&joined, c, &all, &next, o->max_output, f) ||
                     input_check_unchanged(&all.in, f) || input_check_unchanged(&next.in, f);
            if (failed) (void)fault_about(f, o->files[i]);
            delta_close(&all);
            all = joined;
        }
        delta_close(&next);
    }
    failed = failed || write_delta(o, c, &all, NULL, bytes_in, begun, f);
    delta_close(&all);
    return failed;
}

int command_invert(const options *o, codec *c, const base *b, const char *path, fault *f)
{
    const elapsed begun = elapsed_now();
    delta d, turned;
    int failed;
    if (b) {
        base last;
        failed = base_restore(&last, c, path, b, o->max_output, f);
        failed = failed || compress_base(o, c, &last, b, f);
        base_close(&last);
        return failed;
    }
    memset(&turned, 0, sizeof turned);
    turned.in.fd = -1;
    failed = delta_open(&d, c, path, f) || delta_turn(&turned, c, &d, f) || input_check_unchanged(&d.in, f) ||
             write_delta(o, c, &turned, &d.in, d.in.size, begun, f);
    delta_close(&d);
    delta_close(&turned);
    return failed;
}
