/* main.c - bitsnap, the command-line tool: .safetensors files and raw tensors to .bsnap files and back.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 * `make` builds it: a C99 compiler, POSIX and its threads are all it needs.
 *
 * The folders. Each calls those below it, with two exceptions: console/options.c parses --adam with tensors/adam.h and takes
 * limits
 * of numbers from store/manifest.h, and system reports faults with console/fault.h:
 *     commands    what the tool can do; main runs one of them
 *     store       a folder of snapshots: commands snapshot, log, restore, verify, prune, fsck
 *     tensors     what becomes of tensors: pairs with a base, frames, quantization; differences and bounds
 *     files       .bsnap and .safetensors files, bases, deltas, folders of shards
 *     console     options, help, JSON, progress, faults
 *     system      input and output, names in directories, threads
 * and bitsnap_file.h and bitsnap.h below all. */
#include "system/posix.h"

#include "commands/commands.h"
#include "files/file.h"
#include "console/help.h"
#include "system/io.h"
#include "console/progress.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { EXIT_OK = 0, EXIT_ERROR = 1, EXIT_USAGE = 2 };

/* Replaces closed standard streams by files that fail. Otherwise the next file that is opened would get the number of the stream,
 * and would be read or written in its place. */
static void keep_standard_streams(void)
{
    int fd;
    for (fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

/* Opens a non-blocking pipe or terminal again, in blocking mode, because printf fails on it. Another process that shares it may
 * have changed its mode. output_write waits in either mode. */
static void keep_waiting(int fd)
{
#ifdef __linux__
    char path[32];
    struct stat st;
    const int flags = fcntl(fd, F_GETFL);
    int own;
    if (flags < 0 || !(flags & O_NONBLOCK) || fstat(fd, &st) || !(S_ISFIFO(st.st_mode) || S_ISCHR(st.st_mode))) return;
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    own = open(path, O_WRONLY | O_NOCTTY);
    if (own < 0) return;
    (void)dup2(own, fd);
    (void)close(own);
#else
    (void)fd;
#endif
}

static int run(const options *o, codec *c, const base *b, const base_folders *folders, size_t i, fault *f)
{
    if (folders->count)
        return with_folder_bases(o, c, folders, i, o->command == TEST ? command_test : o->command == INFO ? command_info : command_convert, f);
    switch (o->command) {
    case COMPRESS:
    case DECOMPRESS: return command_convert(o, c, b, o->files[i], f);
    case TEST: return command_test(o, c, b, o->files[i], f);
    case INFO: return command_info(o, c, b, o->files[i], f);
    case APPLY: return command_apply(o, c, o->files[0], o->files[1], f);
    case MERGE: return command_merge(o, c, b, f);
    case INVERT: return command_invert(o, c, b, o->files[i], f);
    case BENCHMARK: return command_benchmark(o, c, o->files[i], f);
    case EXTRACT: return command_extract(o, c, f);
    case SNAPSHOT: return command_snapshot(o, c, o->files[0], o->files[1], f);
    case LOG: return command_log(o, o->files[i], f);
    case RESTORE: return command_restore(o, c, o->files[0], o->files[1], f);
    case VERIFY: return command_verify(o, c, o->files[i], f);
    case PRUNE: return command_prune(o, c, o->files[i], f);
    case FSCK: return command_fsck(o, c, o->files[i], f);
    default: return command_compare(o, c, b, o->files[0], o->files[1], f);
    }
}

/* Adds the files of the command line to those that may not become an output. */
static int note_names(const options *o, used_files *u, fault *f)
{
    size_t i;
    if (o->json || o->dry_run || (o->command & (TEST | INFO | COMPARE | BENCHMARK | APPLY | LOG | VERIFY | PRUNE | FSCK))) used_printing(u);
    for (i = 0; i < (o->command == EXTRACT ? 1 : o->file_count); i++)
        if (used_name(u, o->files[i], USE_INPUT, f)) return 1;
    for (i = 0; i < o->base_count; i++) {
        if (!has_folder_bases(o) && is_folder(o->bases[i])) {
            (void)fault_set(f, "is a folder, but %s takes files as bases; compress, decompress, test and info take folders, if all bases are", command_name(o->command));
            return fault_in(f, o->bases[i]);
        }
        if (used_name(u, o->bases[i], USE_BASE, f)) return 1;
    }
    return o->weights && used_name(u, o->weights, USE_WEIGHTS, f);
}

/* decompress --rm: returns 1 for a file that is not a delta. Deltas may need it as their base, so it is decompressed after
 * them. */
static int comes_last(const options *o, size_t i)
{
    fault ignored;
    input in;
    struct stat st;
    int is;
    if (stat(o->files[i], &st) || !S_ISREG(st.st_mode) || input_open(&in, o->files[i], &ignored)) return 0;
    is = !input_fill(&in, 10, &ignored) && !file_is_delta(input_bytes(&in), input_available(&in));
    input_close(&in);
    return is;
}

/* Returns the order of the files for decompress --rm, which the caller frees; null: that of the command line. */
static size_t *order_of(const options *o)
{
    size_t *order, i, n = 0, end = o->file_count;
    if (o->command != DECOMPRESS || !o->remove_input || o->file_count < 2) return NULL;
    order = (size_t *)malloc(o->file_count * sizeof *order);
    for (i = 0; order && i < o->file_count; i++)
        if (comes_last(o, i)) order[--end] = i;
        else order[n++] = i;
    for (i = o->file_count; order && n + 1 < i; n++) { /* the last ones were added in reverse order */
        const size_t x = order[n];
        order[n] = order[--i];
        order[i] = x;
    }
    return order;
}

/* Runs the command on a folder as a whole, or file by file. */
static int run_all(const options *o, codec *c, const base *b, const base_folders *folders, const sibling_files *siblings)
{
    const size_t runs = o->command & (COMPARE | APPLY | MERGE | EXTRACT | SNAPSHOT | RESTORE) ? 1 : o->file_count;
    const int failed = o->command == COMPARE ? EXIT_USAGE : EXIT_ERROR;
    int status = EXIT_OK;
    fault f;
    size_t i, *order;
    if (options_whole_folder(o)) {
        memset(&f, 0, sizeof f);
        if (!command_folder(o, c, o->files[0], &f)) return EXIT_OK;
        print_failure(o, &c->used, o->files[0], &f);
        return EXIT_ERROR;
    }
    order = order_of(o);
    for (i = 0; i < runs; i++) {
        const size_t number = siblings->order ? siblings->order[i] : order ? order[i] : i;
        memset(&f, 0, sizeof f);
        progress_files(i + 1, runs);
        if (!(siblings->order ? command_sibling(o, c, &siblings->found, number, &f) : run(o, c, b, folders, number, &f))) continue;
        status = *f.text ? failed : EXIT_ERROR;
        if (!*f.text) continue; /* compare has reported that the files differ */
        (void)fault_about(&f, shown_name(o->files[number]));
        print_failure(o, &c->used, o->files[number], &f);
    }
    free(order);
    if (o->command == INFO) info_sum(o);
    print_sum(o, o->file_count);
    return status;
}

/* Fails early if the output cannot be made, before bases are expanded and deltas merged. */
static int probe_output(const options *o, codec *c, fault *f)
{
    const char *target = o->output;
    char *named = NULL;
    int failed;
    if (o->dry_run || o->skip_existing || o->into || options_whole_folder(o) || !(o->command & (COMPRESS | DECOMPRESS | MERGE | INVERT)) || (!o->base_count && !(o->command & (MERGE | INVERT)))) return 0;
    if (!target && o->file_count == 1 && strcmp(o->files[0], "-"))
        target = named = o->command == COMPRESS ? compress_target(o->files[0]) : decompress_target(o->files[0]);
    failed = target && output_probe(target, o->force, &c->used, f);
    free(named);
    return failed;
}

/* Flushes standard output. If printing has failed, as on a full disk, the command fails. */
static int finish_output(void)
{
    fault f;
    const int unflushed = fflush(stdout);
    if (!unflushed && !ferror(stdout)) return EXIT_OK;
    memset(&f, 0, sizeof f);
    if (unflushed) (void)fault_errno(&f, "cannot be written");
    else (void)fault_set(&f, "cannot be written"); /* an earlier flush has failed, so errno has another value by now */
    (void)fault_in(&f, "(standard output)");
    fault_print(&f);
    return EXIT_ERROR;
}

/* Opens the codec and the bases, and runs the command. Returns its status, or -1 with the fault set if it could not begin. */
static int run_command(options *o, codec *c, base *b, base_folders *folders, sibling_files *siblings, fault *f)
{
    if (codec_open(c, o->threads, o->level, o->memory, o->base_count, f)) return -1;
    if (o->self_contained) c->b.flags |= BITSNAP_SELF_CONTAINED;
    c->used.quiet = o->quiet;
    if (o->recursive && o->command != COMPARE && !options_whole_folder(o) && folders_open(o, &c->used, f)) return -1;
    if (note_names(o, &c->used, f) || probe_output(o, c, f)) return -1;
    if (o->base_count && o->command != EXTRACT && !options_whole_folder(o) &&
        (has_folder_bases(o) ? bases_open(folders, o, c, f) : base_open(b, c, o->bases, o->base_count, o->max_output, f))) return -1;
    if (o->command == BENCHMARK) benchmark_title(o);
    if (has_siblings(o) && !options_whole_folder(o) && siblings_open(siblings, o, o->files, o->file_count, f)) return -1;
    return run_all(o, c, o->base_count && !has_folder_bases(o) ? b : NULL, folders, siblings);
}

int main(int argc, char **argv)
{
    options o;
    codec c;
    base b;
    base_folders folders = { NULL, 0 };
    sibling_files siblings = { 0 };
    fault f;
    int status, failed;
    keep_standard_streams();
    keep_waiting(STDOUT_FILENO);
    keep_waiting(STDERR_FILENO);
    memset(&f, 0, sizeof f);
    memset(&c, 0, sizeof c);
    base_clear(&b);
    if (options_parse(&o, argc, argv, &f)) {
        fault_print(&f);
        status = EXIT_USAGE;
    } else if (o.help || o.version) {
        if (o.help) print_help(o.command);
        else print_version();
        status = finish_output();
    } else {
        failed = o.command == COMPARE ? EXIT_USAGE : EXIT_ERROR; /* as in cmp and diff, where 1 means that files differ */
        place_handle_signals(failed);
        spool_in(o.temp);
        status = run_command(&o, &c, &b, &folders, &siblings, &f);
        if (status < 0) fault_print(&f);
        if (status < 0 || finish_output()) status = failed;
    }
    base_close(&b);
    bases_close(&folders);
    siblings_close(&siblings);
    options_free(&o);
    codec_close(&c);
    return status;
}
