/* summary.c - what commands say when they are done.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"

#include "../files/file.h"

#include <string.h>
#include <unistd.h>

/* Whether it is the output that is packed. */
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
                  packed ? (double)source / (double)packed : 0, s->seconds);
    if (s->seconds > 0) (void)fprintf(stderr, ", %.0f MB/s", (double)source / s->seconds / 1e6);
    (void)putc('\n', stderr);
}

static summary all;    /* of the files that are done */
static size_t counted;

void summary_add(const summary *s)
{
    counted++;
    all.bytes_in += s->bytes_in;
    all.bytes_out += s->bytes_out;
    all.seconds += s->seconds;
}

void print_summary(const options *o, const summary *s)
{
    summary_add(s);
    if (!speaks(o)) return;
    (void)print_text(stderr, s->input, strlen(s->input));
    (void)fputs(" -> ", stderr);
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
    json_member_real(j, "seconds", s->seconds);
}

/* With -r a last object, of all files. */
static void json_sum(const options *o, size_t files)
{
    json j = { NULL, 0 };
    j.to = stdout;
    json_begin(&j, '{');
    json_member_string(&j, "command", command_name(o->command));
    json_member_whole(&j, "files", files);
    json_member_whole(&j, "failed", files - counted);
    json_sizes(&j, o, &all);
    json_end(&j, '}');
    (void)putc('\n', stdout);
}

void print_failure(const options *o, const used_files *u, const char *path, const fault *f)
{
    if (o->json && !used_is_printed(u)) { /* else that would be written into a file which the command reads */
        json j = { NULL, 0 };
        j.to = stdout;
        json_begin(&j, '{');
        json_member_string(&j, "command", command_name(o->command));
        json_member_string(&j, "file", path);
        json_member_truth(&j, "ok", 0);
        json_member_string(&j, "error", f->text);
        if (strcmp(path, f->file)) json_member_string(&j, "about", f->file);
        json_end(&j, '}');
        (void)putc('\n', stdout);
    }
    (void)fflush(stdout);
    fault_print(f);
}

void print_sum(const options *o, size_t files)
{
    if (o->json && o->recursive && !o->dry_run && o->command != BENCHMARK) json_sum(o, files);
    if (!speaks(o) || files < 2 || !(o->command & (COMPRESS | DECOMPRESS | TEST | INFO)) || o->dry_run) return;
    (void)fflush(stdout);
    (void)fprintf(stderr, "%zu of %zu files", counted, files);
    if (counted) print_sizes(o, &all);
    else (void)putc('\n', stderr);
}

void json_summary(json *j, const options *o, const summary *s)
{
    json_member_string(j, "command", command_name(o->command));
    json_member_string(j, "file", s->input);
    if (s->output) json_member_string(j, "output", s->output);
    json_sizes(j, o, s);
}

int skips(const options *o, const char *path, const char *target)
{
    summary s;
    if (!o->skip_existing || !strcmp(target, "-") || !output_exists(target)) return 0;
    memset(&s, 0, sizeof s);
    summary_add(&s);
    if (o->json) {
        json j = { NULL, 0 };
        j.to = stdout;
        json_begin(&j, '{');
        json_member_string(&j, "command", command_name(o->command));
        json_member_string(&j, "file", path);
        json_member_string(&j, "output", target);
        json_member_truth(&j, "skipped", 1);
        json_end(&j, '}');
        (void)putc('\n', stdout);
    } else if (speaks(o)) {
        line_wipe();
        (void)print_text(stderr, path, strlen(path));
        (void)fputs(": skipped, as ", stderr);
        (void)print_text(stderr, target, strlen(target));
        (void)fputs(" is there\n", stderr);
    }
    return 1;
}

void json_bases(json *j, const options *o)
{
    size_t i;
    if (!o->base_count) return;
    json_name(j, "base");
    json_begin(j, '[');
    for (i = 0; i < o->base_count; i++) json_string(j, o->bases[i]);
    json_end(j, ']');
}
