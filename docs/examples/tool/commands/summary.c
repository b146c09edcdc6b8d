/* summary.c - what commands say when they are done.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"

#include "../files/file.h"

#include <string.h>
#include <unistd.h>

/* Returns 1 if the output is packed, not the input. */
static int packs(const options *o) { return (o->command & (COMPRESS | MERGE | INVERT | SNAPSHOT)) != 0; }

static int speaks(const options *o) { return !o->quiet && !o->json && (o->verbose || isatty(STDERR_FILENO)); }

const char *amount(const options *o, char *text, uint64_t bytes)
{
    if (!o->bytes) return size_text(text, bytes);
    (void)snprintf(text, AMOUNT_TEXT, "%llu bytes", (unsigned long long)bytes);
    return text;
}

static void print_sizes(const options *o, const summary *s)
{
    const uint64_t source = packs(o) ? s->bytes_in : s->bytes_out;
    const uint64_t packed = packs(o) ? s->bytes_out : s->bytes_in;
    char in[AMOUNT_TEXT], out[AMOUNT_TEXT];
    (void)fprintf(stderr, ": %s -> %s, ratio %.4f, %.2f s", amount(o, in, s->bytes_in), amount(o, out, s->bytes_out),
                  packed ? (double)source / (double)packed : 0, s->time.seconds);
    if (s->time.io >= 0.005) (void)fprintf(stderr, " (%.2f s reading and writing)", s->time.io);
    if (s->time.seconds > 0) (void)fprintf(stderr, ", %.0f MB/s", (double)source / s->time.seconds / 1e6);
    (void)putc('\n', stderr);
}

static summary all;    /* of the files that are done */
static size_t counted;

void summary_add(const summary *s)
{
    counted++;
    all.bytes_in += s->bytes_in;
    all.bytes_out += s->bytes_out;
    all.time.seconds += s->time.seconds;
    all.time.io += s->time.io;
}

void print_summary(const options *o, const summary *s)
{
    summary_add(s);
    if (!speaks(o)) return;
    print_file(stderr, s->input, " -> ");
    (void)print_text(stderr, s->output, strlen(s->output));
    print_sizes(o, s);
}

static void json_sizes(json *j, const options *o, const summary *s)
{
    const uint64_t source = packs(o) ? s->bytes_in : s->bytes_out;
    const uint64_t packed = packs(o) ? s->bytes_out : s->bytes_in;
    json_member_whole(j, "bytes_in", s->bytes_in);
    json_member_whole(j, "bytes_out", s->bytes_out);
    json_member_real(j, "ratio", packed ? (double)source / (double)packed : 0);
    json_member_real(j, "seconds", s->time.seconds);
    json_member_real(j, "io_seconds", s->time.io);
}

/* With -r a last object, of all files. */
static void json_sum(const options *o, size_t files)
{
    json j = json_report(command_name(o->command), NULL);
    json_member_whole(&j, "files", files);
    json_member_whole(&j, "failed", files - counted);
    json_sizes(&j, o, &all);
    json_report_end(&j);
}

void print_failure(const options *o, const used_files *u, const char *path, const fault *f)
{
    if (o->json && !used_is_printed(u)) { /* else that would be written into a file which the command reads */
        json j = json_report(command_name(o->command), path);
        json_member_truth(&j, "ok", 0);
        json_member_string(&j, "error", f->text);
        if (strcmp(path, f->file)) json_member_string(&j, "about", f->file);
        json_report_end(&j);
    }
    (void)fflush(stdout);
    fault_print(f);
}

void print_sum(const options *o, size_t files)
{
    if (o->json && o->recursive && !o->dry_run && o->command != BENCHMARK) json_sum(o, files);
    if (!speaks(o) || files < 2 || !(o->command & (COMPRESS | DECOMPRESS | TEST | INFO) || options_whole_folder(o))) return;
    (void)fflush(stdout);
    (void)fprintf(stderr, "%zu of %zu files", counted, files);
    if (counted) print_sizes(o, &all);
    else (void)putc('\n', stderr);
}

json json_summary(const options *o, const summary *s)
{
    json j = json_report(command_name(o->command), s->input);
    if (s->output) json_member_string(&j, "output", s->output);
    json_sizes(&j, o, s);
    return j;
}

int refuse_terminal(const options *o, const char *target, const char *what, fault *f)
{
    if (strcmp(target, "-") || o->force || !isatty(STDOUT_FILENO)) return 0;
    return fault_set(f, "standard output is a terminal, which cannot show %s; give -o FILE, or -f to print them anyway", what);
}

int skips(const options *o, const char *target) { return o->skip_existing && strcmp(target, "-") && output_exists(target); }

void report_skipped(const options *o, const char *path, const char *target)
{
    const summary none = { path, target, 0, 0, { 0, 0 } };
    summary_add(&none);
    if (o->json) {
        json j = json_report(command_name(o->command), path);
        json_member_string(&j, "output", target);
        json_member_truth(&j, "skipped", 1);
        json_report_end(&j);
    } else if (speaks(o)) {
        line_wipe();
        print_file(stderr, path, o->remove_input ? ": removed, as " : ": skipped, as ");
        print_file(stderr, target, o->remove_input ? " is there and holds the same\n" : " is there\n");
    }
}

void json_bases(json *j, const options *o)
{
    size_t i;
    if (!o->base_count) return;
    json_member_list(j, "base");
    for (i = 0; i < o->base_count; i++) json_string(j, o->bases[i]);
    json_end(j, ']');
}
