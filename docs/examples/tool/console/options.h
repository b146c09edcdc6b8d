/* options.h - the command line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_OPTIONS_H
#define TOOL_OPTIONS_H

#include "names.h"
#include "../system/walk.h"
#include "../tensors/adam.h"

typedef enum command {
    NO_COMMAND = 0, COMPRESS = 1, DECOMPRESS = 2, TEST = 4, INFO = 8, COMPARE = 16, BENCHMARK = 32, APPLY = 64,
    MERGE = 128, INVERT = 256, SNAPSHOT = 512, LOG = 1024, RESTORE = 2048, VERIFY = 4096, PRUNE = 8192,
    EXTRACT = 16384, FSCK = 32768
} command;

#define RANGES_MAX 32
#define RENAMES_MAX 64
#define STORES (SNAPSHOT | LOG | RESTORE | VERIFY | PRUNE | FSCK) /* commands on stores of snapshots */

/* Part of a dimension. As in NumPy, a negative number counts from its end. INT64_MAX is its end. */
typedef struct option_range {
    int64_t begin, end;
} option_range;

typedef struct options {
    command command;
    char **files;           /* operands, those after the command */
    size_t file_count;
    name_list names;        /* holds the operands if they are not just those of the command line */
    const char *files_from;
    const char **bases;     /* -b, in order */
    size_t base_count, base_capacity;
    const char *renames[RENAMES_MAX]; /* --rename: FROM=TO */
    size_t rename_count;
    const char *output;     /* -o; "-" for standard output, also with -c */
    int into;               /* 1: -o is a folder for all outputs */
    const char *shown;      /* name of the output in messages, if it is not written under that name */
    selection select;       /* which files of folders to take */
    const element_type *dtype; /* the input is raw elements of this type; null: no */
    const char *temp;       /* --temp: the directory of temporary files that only this program reads; null: $TMPDIR or /tmp */
    uint64_t max_output;    /* 0: as file_check_limit says */
    unsigned threads;       /* 0: all */
    int level;
    adam_policy adam;       /* --adam, --adam-min */
    option_range range[RANGES_MAX]; /* --range: one for each of the first dimensions */
    size_t ranges;
    const char *weights;    /* --weights: for --adam stage */
    uint64_t align;         /* --align: frames begin at multiples of it; 0: anywhere */
    uint64_t memory;        /* --memory, in bytes; 0: not given */
    uint64_t step, max_chain, keep_last, keep_every;
    uint64_t *removed;      /* --remove: step numbers */
    size_t removed_count, removed_capacity;
    int force, quiet, verbose, json, no_progress, remove_input, sha256, no_references, partners, no_bound, self_contained, chain, dry_run, recursive, tensors_only, has_step, bytes, skip_existing, null_ends;
    int raw, npy, safetensors, as_f32; /* of extract */
    int help, version;
} options;

const char *command_name(command c);

/* Returns 1 if -r and -o make one folder of another as a whole. */
int options_whole_folder(const options *o);

static inline int options_show_progress(const options *o) { return !o->quiet && !o->no_progress && !o->json; }

/* Parses the command line. Options and operands may be mixed; "--" ends the options. Reorders argv. Returns 1 if it is wrong. */
int options_parse(options *o, int argc, char **argv, fault *f);
void options_free(options *o);

/* Appends a base to o->bases, which has room for *capacity. */
int options_add_base(options *o, const char *path, size_t *capacity, fault *f);

#endif
