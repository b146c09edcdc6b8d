/* commands.h - the commands of the tool, and what they share.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A command works on one file, compare on two. It returns 0, or 1 with a message. compare also returns 1, without a message
 * (f->text is empty), if the files differ. */
#ifndef TOOL_COMMANDS_H
#define TOOL_COMMANDS_H

#include "../files/shards.h"
#include "../console/json.h"
#include "../console/options.h"
#include "../tensors/siblings.h"

/* `b`: the bases given with -b, or null */
int command_convert(const options *o, codec *c, const base *b, const char *path, fault *f); /* compress, decompress */
/* Compresses against other files of the folder. */
int command_sibling(const options *o, codec *c, const siblings *s, size_t number, fault *f);
int command_test(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_info(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_apply(const options *o, codec *c, const char *delta, const char *path, fault *f);
int command_merge(const options *o, codec *c, const base *b, fault *f);
int command_invert(const options *o, codec *c, const base *b, const char *path, fault *f);
int command_benchmark(const options *o, codec *c, const char *path, fault *f);
void benchmark_title(const options *o); /* the line above the table */
int command_compare(const options *o, codec *c, const base *b, const char *path_a, const char *path_b, fault *f);

/* Extracts tensors of the first operand, a file or folder. The other operands are their names. */
int command_extract(const options *o, codec *c, fault *f);

void info_sum(const options *o); /* info -r: prints the table of all files */

/* Commands on a store of snapshots: store/store.h. */
int command_snapshot(const options *o, codec *c, const char *path, const char *folder, fault *f);
int command_log(const options *o, const char *path, fault *f);
int command_restore(const options *o, codec *c, const char *path, const char *number, fault *f);
int command_verify(const options *o, codec *c, const char *path, fault *f);
int command_prune(const options *o, codec *c, const char *path, fault *f);
int command_fsck(const options *o, codec *c, const char *path, fault *f);

/* Return the default output: x.bsnap for x, x for x.bsnap. The caller frees it. Null: no memory, or the name lacks .bsnap. */
char *compress_target(const char *path);
char *decompress_target(const char *path);
int refuse_name(const char *path, fault *f); /* fails, and says why there is no default output */

/* Fails if the output is a terminal and -f was not given. `what` names the bytes in the message. */
int refuse_terminal(const options *o, const char *target, const char *what, fault *f);

/* Work on an open input, and close it. `known`: null, or the partners of its tensors if `b` are siblings of the file. */
int compress_to(const options *o, codec *c, const base *b, const pairs *known, input *in, const char *path, const char *target, fault *f);
int decompress_to(const options *o, codec *c, const base *b, input *in, const char *path, const char *target, fault *f);

/* For apply with folders, before anything is written. apply_is_result returns 1 if the file at `path` is already what the delta,
 * or whole .bsnap file, makes. apply_check_fit fails if a delta was made against other elements than its bases hold; b is null if
 * it has none. */
int apply_is_result(codec *c, const char *delta, const char *path, fault *f);
int apply_check_fit(codec *c, input *in, base *b, fault *f);

/* -r with -o: makes one folder of another; it gets its name once it is whole. apply: `path` has the deltas, the output is their
 * base. */
int command_folder(const options *o, codec *c, const char *path, fault *f);

/* The folders given with -b, a chain. Files find their bases in the last one. has_folder_bases returns 1 if bases are looked for
 * that way. with_folder_bases runs a command on file number `number` with its bases. */
typedef struct base_folders {
    shards *at;
    size_t count;
} base_folders;

typedef int file_command(const options *o, codec *c, const base *b, const char *path, fault *f);
int has_folder_bases(const options *o);
int bases_open(base_folders *b, const options *o, codec *c, fault *f); /* always call bases_close */
void bases_close(base_folders *b);
int with_folder_bases(const options *o, codec *c, const base_folders *folders, size_t number, file_command *run, fault *f);

/* compress -r: files that may be coded against others of their folder. `order` lists first those that need no other. */
typedef struct sibling_files {
    siblings found;
    size_t *order;
} sibling_files;

int has_siblings(const options *o);
/* Always call siblings_close. */
int siblings_open(sibling_files *s, const options *o, char *const *paths, size_t count, fault *f);
void siblings_close(sibling_files *s);
/* As compress_to. */
int compress_sibling(const options *o, codec *c, const siblings *s, size_t number, input *in, const char *target, fault *f);

/* -r: replaces folders among the operands by the files in them that the command takes. */
int folders_open(options *o, const used_files *u, fault *f);

/* Returns the path of the output: the default, or a file of that name in the folder that -o names. The caller frees it. */
char *target_of(const options *o, const char *path);

/* --skip-existing: skips returns 1 if this output exists already, so that nothing is made. report_skipped reports that. With
 * --rm, remove_proven removes the input if the packed one of the two files decodes to the other, and else fails. */
int skips(const options *o, const char *target);
void report_skipped(const options *o, const char *path, const char *target);
int remove_proven(const options *o, codec *c, const base *b, const char *path, const char *target, fault *f);

/* The summary of compress and decompress, printed on standard error if that is a terminal or -v was given. */
typedef struct summary {
    const char *input, *output;
    uint64_t bytes_in, bytes_out;
    elapsed time;
} summary;

void print_summary(const options *o, const summary *s);

/* Writes "1.5 GiB", or with --bytes "1610612736 bytes"; `text` has AMOUNT_TEXT bytes. */
enum { AMOUNT_TEXT = 32 };
const char *amount(const options *o, char *text, uint64_t bytes);

/* print_sum prints the summary of all files at the end. summary_add adds a file for which print_summary is not called. */
void summary_add(const summary *s);
void print_sum(const options *o, size_t files);

/* Reports that a command on the file at this path has failed: prints a line on standard error, and with --json an object. */
void print_failure(const options *o, const used_files *u, const char *path, const fault *f);

/* Begins the JSON report of a command, with the members that all have. */
json json_summary(const options *o, const summary *s);

/* Writes "base": [...], the operands of -b; nothing if there are none. */
void json_bases(json *j, const options *o);

#endif
