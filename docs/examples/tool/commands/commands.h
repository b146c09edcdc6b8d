/* commands.h - what the tool can do.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A command works on one file (compare: on both). It returns 0, or 1 with a message; compare also returns 1
 * without one (f->text is empty) where the files differ. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

#include "../files/shards.h"
#include "../console/json.h"
#include "../console/options.h"
#include "../tensors/siblings.h"

/* `b`: what was given with -b, or null */
int command_convert(const options *o, codec *c, const base *b, const char *path, fault *f); /* compress, decompress */
int command_sibling(const options *o, codec *c, const siblings *s, size_t number, fault *f); /* compress, against others of the folder */
int command_test(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_info(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_apply(const options *o, codec *c, const char *delta, const char *path, fault *f);
int command_merge(const options *o, codec *c, const base *b, fault *f);
int command_invert(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_benchmark(const options *o, codec *c, const char *path, fault *f);
void benchmark_title(const options *o); /* the line above the table */
int command_compare(const options *o, codec *c, const base *b, const char *path_a, const char *path_b, fault *f);

/* Tensors of the first file or folder: the other operands are their names. */
int command_extract(const options *o, codec *c, fault *f);

void info_sum(const options *o); /* info -r: the table of all files */

/* On a store of snapshots: store/store.h. */
int command_snapshot(const options *o, codec *c, const char *path, const char *folder, fault *f);
int command_log(const options *o, const char *path, fault *f);
int command_restore(const options *o, codec *c, const char *path, const char *number, fault *f);
int command_verify(const options *o, codec *c, const char *path, fault *f);
int command_prune(const options *o, codec *c, const char *path, fault *f);
int command_fsck(const options *o, codec *c, const char *path, fault *f);

/* Where the output goes if nothing else is said: x.bsnap of x, and back; null: no memory, or the name does not end so. */
char *compress_target(const char *path);
char *decompress_target(const char *path);
int refuse_name(const char *path, fault *f); /* says why there is none */

/* Whether bytes, `what` as it is said, may go to this output: not to a terminal that nobody has forced them on. */
int refuse_terminal(const options *o, const char *target, const char *what, fault *f);

/* From an input that is open, which is closed. `known`: partners of its tensors in `b`, which are siblings of the file, and in itself; or null. */
int compress_to(const options *o, codec *c, const base *b, const pairs *known, input *in, const char *path, const char *target, fault *f);
int decompress_to(const options *o, codec *c, const base *b, input *in, const char *path, const char *target, fault *f);

/* apply with folders, before anything is written: whether a file of tensors is what this delta, or whole .bsnap file, makes; and whether
 * a delta was made against what its bases hold (null: it has none). */
int apply_is_result(codec *c, const char *delta, const char *path, fault *f);
int apply_check_fit(codec *c, input *in, base *b, fault *f);

/* -r with -o: all of a folder, as one that has its name when all of it is whole. apply: a folder of deltas, and its base as the output. */
int command_folder(const options *o, codec *c, const char *path, fault *f);

/* Whether -b names folders, a chain, in the last of which files find their bases; these; and a command on a file with them. */
typedef struct base_folders {
    shards *at;
    size_t count;
} base_folders;

typedef int file_command(const options *o, codec *c, const base *b, const char *path, fault *f);
int has_folder_bases(const options *o);
int bases_open(base_folders *b, const options *o, codec *c, fault *f); /* bases_close in any case */
void bases_close(base_folders *b);
int with_folder_bases(const options *o, codec *c, const base_folders *folders, size_t number, file_command *run, fault *f);

/* compress -r: files that may be coded against others of their folder; the first ones in `order` are coded against none. */
typedef struct sibling_files {
    siblings found;
    size_t *order;
} sibling_files;

int has_siblings(const options *o);
int siblings_open(sibling_files *s, const options *o, char *const *paths, size_t count, fault *f); /* siblings_close in any case */
void siblings_close(sibling_files *s);
int compress_sibling(const options *o, codec *c, const siblings *s, size_t number, input *in, const char *target, fault *f); /* as compress_to */

/* -r: the files in folders that are for the command, in place of the folders. */
int folders_open(options *o, const used_files *u, fault *f);

/* Where it goes by all that is said: the same, or in the folder that -o names. */
char *target_of(const options *o, const char *path);

/* --skip-existing: whether there is an output at this path already, so that nothing is made; and the report of that. With --rm the input is
 * removed if the packed one of both files decodes to the other. */
int skips(const options *o, const char *target);
void report_skipped(const options *o, const char *path, const char *target);
int remove_proven(const options *o, codec *c, const base *b, const char *path, const char *target, fault *f);

/* What compress and decompress say when they are done: on standard error, if it is a terminal or -v was given. */
typedef struct summary {
    const char *input, *output;
    uint64_t bytes_in, bytes_out;
    elapsed time;
} summary;

void print_summary(const options *o, const summary *s);

/* "1.5 GiB", or with --bytes "1610612736 bytes"; `text` has AMOUNT_TEXT bytes. */
enum { AMOUNT_TEXT = 32 };
const char *amount(const options *o, char *text, uint64_t bytes);

/* The same of several files together, at the end; files that print_summary was not called for are added by summary_add. */
void summary_add(const summary *s);
void print_sum(const options *o, size_t files);

/* A command on the file at this path has failed: a line on standard error, and with --json an object. */
void print_failure(const options *o, const used_files *u, const char *path, const fault *f);

/* The report of all these commands, with the members that it begins with. */
json json_summary(const options *o, const summary *s);

/* "base": [...], what was given with -b; nothing where nothing was. */
void json_bases(json *j, const options *o);

#endif
