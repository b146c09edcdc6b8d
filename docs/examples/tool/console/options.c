/* options.c - the command line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "options.h"

#include "../store/manifest.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct command_entry {
    const char *name;
    command command;
} command_entry;

/* The first name of a command is the one that messages use. */
static const command_entry commands[] = {
    { "compress", COMPRESS }, { "decompress", DECOMPRESS }, { "test", TEST }, { "info", INFO }, { "compare", COMPARE },
    { "benchmark", BENCHMARK }, { "apply", APPLY }, { "merge", MERGE }, { "invert", INVERT },
    { "extract", EXTRACT }, { "snapshot", SNAPSHOT }, { "log", LOG }, { "restore", RESTORE }, { "verify", VERIFY }, { "prune", PRUNE },
    { "fsck", FSCK },
    { "c", COMPRESS }, { "d", DECOMPRESS }, { "t", TEST }, { "i", INFO }, { "b", BENCHMARK }
};

typedef struct option_entry {
    char letter;
    const char *name;
    int has_argument;
    unsigned commands; /* commands that take it */
    size_t flag;       /* offset in options of the int that it sets to 1; 0: set() handles it */
} option_entry;

enum {
    ALL = COMPRESS | DECOMPRESS | TEST | INFO | COMPARE | BENCHMARK | APPLY | MERGE | INVERT | STORES | EXTRACT,
    WRITE = COMPRESS | DECOMPRESS,
    ALGEBRA = MERGE | INVERT,
    FOLDERS = COMPRESS | DECOMPRESS | TEST | INFO | BENCHMARK,
    READ = ALL & ~(BENCHMARK | LOG | FSCK),
    WITH_BASE = COMPRESS | DECOMPRESS | TEST | INFO | COMPARE | ALGEBRA | EXTRACT
};

static const option_entry entries[] = {
    { 'o', "output", 1, WRITE | ALGEBRA | RESTORE | EXTRACT, 0 },
    { 'c', "stdout", 0, WRITE | ALGEBRA | EXTRACT, 0 },
    { 'f', "force", 0, WRITE | ALGEBRA | APPLY | RESTORE | EXTRACT, offsetof(options, force) },
    { 'b', "base", 1, WITH_BASE, 0 },
    { 'T', "threads", 1, ALL, 0 },
    { 'l', "level", 1, COMPRESS | BENCHMARK | ALGEBRA | SNAPSHOT | PRUNE, 0 },
    { 'q', "quiet", 0, ALL, offsetof(options, quiet) },
    { 'v', "verbose", 0, ALL, offsetof(options, verbose) },
    { 'h', "help", 0, ALL, offsetof(options, help) },
    { 'V', "version", 0, ALL, offsetof(options, version) },
    { 'J', "json", 0, ALL, offsetof(options, json) },
    { 'P', "no-progress", 0, ALL, offsetof(options, no_progress) },
    { 'D', "dtype", 1, COMPRESS | COMPARE | BENCHMARK, 0 },
    { 'R', "rm", 0, WRITE, offsetof(options, remove_input) },
    { 'M', "memory", 1, ALL, 0 },
    { 'x', "max-output", 1, READ & ~(SNAPSHOT | VERIFY | PRUNE), 0 },
    { 'B', "no-bound", 0, INFO, offsetof(options, no_bound) },
    { 'S', "self-contained", 0, COMPRESS | ALGEBRA, offsetof(options, self_contained) },
    { 'C', "chain", 0, INFO, offsetof(options, chain) },
    { 'A', "adam", 1, COMPRESS | COMPARE, 0 },
    { 'N', "adam-min", 1, COMPRESS | COMPARE, 0 },
    { 'W', "weights", 1, COMPRESS, 0 },
    { '2', "sha256", 0, COMPRESS, offsetof(options, sha256) },
    { 'U', "no-references", 0, COMPRESS, offsetof(options, no_references) },
    { 'Q', "partners", 0, COMPRESS, offsetof(options, partners) },
    { 'Y', "dry-run", 0, COMPRESS | PRUNE | FSCK, offsetof(options, dry_run) },
    { 'E', "temp", 1, READ & ~EXTRACT, 0 },
    { 'r', "recursive", 0, FOLDERS | COMPARE, offsetof(options, recursive) },
    { 'L', "dereference", 0, FOLDERS | COMPARE | SNAPSHOT | EXTRACT, offsetof(options, select.follow) },
    { 'I', "include", 1, FOLDERS | COMPARE | SNAPSHOT | EXTRACT, 0 },
    { 'X', "exclude", 1, FOLDERS | COMPARE | SNAPSHOT | EXTRACT, 0 },
    { 'O', "tensors-only", 0, WRITE, offsetof(options, tensors_only) },
    { 'n', "step", 1, SNAPSHOT, 0 },
    { 'm', "max-chain", 1, SNAPSHOT, 0 },
    { 'k', "keep-last", 1, PRUNE, 0 },
    { 'e', "keep-every", 1, PRUNE, 0 },
    { 'd', "remove", 1, PRUNE, 0 },
    { 'Z', "bytes", 0, ALL, offsetof(options, bytes) },
    { 'K', "skip-existing", 0, WRITE, offsetof(options, skip_existing) },
    { 'F', "files-from", 1, FOLDERS, 0 },
    { '0', "null", 0, FOLDERS, offsetof(options, null_ends) },
    { 'g', "range", 1, EXTRACT, 0 },
    { 'w', "raw", 0, EXTRACT, offsetof(options, raw) },
    { 'y', "npy", 0, EXTRACT, offsetof(options, npy) },
    { 's', "safetensors", 0, EXTRACT, offsetof(options, safetensors) },
    { 'a', "as", 1, EXTRACT, 0 },
    { 'G', "rename", 1, COMPRESS, 0 },
    { 'z', "align", 1, COMPRESS, 0 }
};

enum { ENTRIES = sizeof entries / sizeof *entries };

#define COMMANDS ": compress, decompress, test, info, compare, apply, merge, invert, extract, snapshot, log, restore, verify, prune, fsck or benchmark; see bitsnap --help"
#define SHORT_LETTERS "ocfbTMlqvhVrL0" /* all others have only long names */

const char *command_name(command c)
{
    size_t i;
    for (i = 0; i < sizeof commands / sizeof *commands; i++)
        if (commands[i].command == c) return commands[i].name;
    return "";
}

/* Parses digits, optionally followed by K, M, G or T: 2^10, 2^20, 2^30 or 2^40 bytes. */
static int parse_size(const char *text, uint64_t *size)
{
    static const char units[] = "KMGT";
    const char *unit;
    unsigned shift = 0;
    *size = 0;
    if (*text < '0' || *text > '9') return 1;
    for (; *text >= '0' && *text <= '9'; text++) {
        const unsigned digit = (unsigned)(*text - '0');
        if (*size > (UINT64_MAX - digit) / 10) return 1;
        *size = 10 * *size + digit;
    }
    if (*text) {
        unit = strchr(units, *text >= 'a' ? *text - 32 : *text);
        if (!unit || text[1]) return 1;
        shift = 10 * (unsigned)(unit - units + 1);
    }
    if (*size > UINT64_MAX >> shift) return 1;
    *size <<= shift;
    return 0;
}

int options_whole_folder(const options *o)
{
    return o->recursive && o->output && !o->dry_run && (o->command & (COMPRESS | DECOMPRESS | APPLY));
}

/* Parses a number of steps, or the number of a step. */
static int set_number(uint64_t *to, const char *name, const char *argument, uint64_t least, uint64_t most, fault *f)
{
    if (!parse_size(argument, to) && *to >= least && *to <= most && strspn(argument, "0123456789") == strlen(argument)) return 0;
    return fault_set(f, "--%s takes a number from %llu to %llu, not '%s'", name, (unsigned long long)least, (unsigned long long)most, argument);
}

/* Parses step numbers separated by commas. */
static int set_removed(options *o, const char *argument, fault *f)
{
    const char *at = argument;
    size_t digits;
    while ((digits = strspn(at, "0123456789")) != 0 && digits <= STEP_DIGITS) {
        uint64_t *numbers = (uint64_t *)grown(o->removed, o->removed_count, &o->removed_capacity, sizeof *numbers, f);
        if (!numbers) return 1;
        o->removed = numbers;
        numbers[o->removed_count++] = strtoull(at, NULL, 10);
        at += digits;
        if (!*at) return 0;
        if (*at++ != ',') break;
    }
    return fault_set(f, "--remove takes numbers of steps, such as 100 or 100,200, not '%s'", argument);
}

/* Parses a:b,c:d. Each of the numbers may be left out. */
static int set_range(options *o, const char *argument, fault *f)
{
    const char *at = argument;
    if (o->ranges) return fault_set(f, "--range is given twice; dimensions have commas between them, such as 5:6,:100");
    errno = 0;
    for (o->ranges = 0; o->ranges < RANGES_MAX; at++) {
        option_range *r = &o->range[o->ranges++];
        char *end;
        r->begin = strtoll(at, &end, 10); /* 0 if there is no number */
        if (*end != ':') break;
        at = end + 1;
        r->end = strtoll(at, &end, 10);
        if (end == at) r->end = INT64_MAX;
        at = end;
        if (errno || (*at && *at != ',')) break;
        if (!*at) return 0;
    }
    return fault_set(f, "--range takes a begin and an end for each of up to %d dimensions, such as 5:6,:100, not '%s'", RANGES_MAX, argument);
}

static int set(options *o, const option_entry *e, const char *argument, fault *f)
{
    const char letter = e->letter;
    uint64_t number;
    if (e->flag) {
        *(int *)(void *)((char *)o + e->flag) = 1;
        return 0;
    }
    switch (letter) {
    case 'o': o->output = argument; break;
    case 'c': o->output = "-"; break;
    case 'F':
        if (o->files_from) return fault_set(f, "--files-from is given twice");
        o->files_from = argument;
        break;
    case 'g': return set_range(o, argument, f);
    case 'z':
        if (parse_size(argument, &o->align) || o->align < 512 || o->align > 1 << 20 || o->align & (o->align - 1))
            return fault_set(f, "--align takes a power of two from 512 to 1M, not '%s'", argument);
        break;
    case 'a':
        if (strcmp(argument, "f32")) return fault_set(f, "--as takes f32, not '%s'", argument);
        o->as_f32 = 1;
        break;
    case 'I':
    case 'X': {
        const char **globs = letter == 'I' ? o->select.include : o->select.exclude;
        size_t *count = letter == 'I' ? &o->select.includes : &o->select.excludes;
        if (*count == GLOBS_MAX) return fault_set(f, "more than %d --%s", GLOBS_MAX, letter == 'I' ? "include" : "exclude");
        globs[(*count)++] = argument;
        break;
    }
    case 'G':
        if (!strchr(argument, '=')) return fault_set(f, "--rename needs the beginning of names in the file and in the base, FROM=TO, not '%s'", argument);
        if (o->rename_count == RENAMES_MAX) return fault_set(f, "more than %d --rename", RENAMES_MAX);
        o->renames[o->rename_count++] = argument;
        break;
    case 'W': o->weights = argument; break;
    case 'n':
        o->has_step = 1;
        return set_number(&o->step, "step", argument, 0, STEP_MAX, f);
    case 'm': return set_number(&o->max_chain, "max-chain", argument, 1, CHAIN_MAX, f);
    case 'k': return set_number(&o->keep_last, "keep-last", argument, 1, STEP_MAX, f);
    case 'd': return set_removed(o, argument, f);
    case 'e': return set_number(&o->keep_every, "keep-every", argument, 1, STEP_MAX, f);
    case 'E':
        if (!*argument) return fault_set(f, "--temp needs the name of a directory");
        o->temp = argument;
        break;
    case 'A': return adam_parse(&o->adam, argument, f);
    case 'N':
        if (parse_size(argument, &o->adam.least)) return fault_set(f, "--adam-min takes a number of elements, not '%s'", argument);
        break;
    case 'b':
        if (!*argument) return fault_set(f, "-b needs the name of a file");
        return options_add_base(o, argument, &o->base_capacity, f);
    case 'T':
        if (parse_size(argument, &number) || number > 1024)
            return fault_set(f, "-T takes a number of threads up to 1024, 0 for all, not '%s'", argument);
        o->threads = (unsigned)number;
        break;
    case 'l':
        if (!strcmp(argument, "fast")) o->level = BITSNAP_FAST;
        else if (!strcmp(argument, "default")) o->level = BITSNAP_DEFAULT;
        else if (!strcmp(argument, "best")) o->level = BITSNAP_BEST;
        else return fault_set(f, "-l takes fast, default or best, not '%s'", argument);
        break;
    case 'D':
        o->dtype = bitsnap_element_type_find(argument, strlen(argument), 1);
        if (!o->dtype || o->dtype->bits < 8)
            return fault_set(f, "--dtype takes one of bf16 f16 f32 f64 f8_e4m3 f8_e5m2 i8 i16 i32 i64 u8 u16 u32 u64 "
                             "bool, not '%s'", argument);
        break;
    case 'M':
        if (parse_size(argument, &o->memory) || !o->memory) return fault_set(f, "--memory takes a size such as 300M or 2G, not '%s'", argument);
        break;
    default: /* 'x' */
        if (parse_size(argument, &number) || !number)
            return fault_set(f, "--max-output takes a size such as 500M, 20G or 2T, not '%s'", argument);
        o->max_output = number;
        break;
    }
    return 0;
}

/* Finds the entry of a long name, which may be shortened to a unique beginning. */
static const option_entry *find_long(const char *name, size_t size, fault *f)
{
    const option_entry *found = NULL;
    size_t i;
    for (i = 0; i < ENTRIES; i++) {
        if (strncmp(entries[i].name, name, size) || !size) continue;
        if (strlen(entries[i].name) == size) return &entries[i];
        if (found) {
            (void)fault_set(f, "--%.*s could be --%s or --%s", (int)size, name, found->name, entries[i].name);
            return NULL;
        }
        found = &entries[i];
    }
    if (!found) (void)fault_set(f, "--%.*s is not an option; see bitsnap --help", (int)size, name);
    return found;
}

static const option_entry *find_letter(char letter, fault *f)
{
    size_t i;
    for (i = 0; i < ENTRIES; i++)
        if (entries[i].letter == letter && strchr(SHORT_LETTERS, letter)) return &entries[i];
    (void)fault_set(f, "-%c is not an option; see bitsnap --help", letter);
    return NULL;
}

/* Checks the options given with -r. */
static int check_recursive(const options *o, fault *f)
{
    const selection *s = &o->select;
    if (options_whole_folder(o) && o->file_count != 1) return fault_set(f, "-r and -o take one folder, not %zu", o->file_count);
    if (!o->recursive && !(o->command & (SNAPSHOT | COMPARE))) {
        const char *what = s->follow ? "dereference" : s->includes ? "include" : s->excludes ? "exclude" : o->tensors_only ? "tensors-only" : NULL;
        return what ? fault_set(f, "--%s has an effect only with -r", what) : 0;
    }
    if (o->recursive && o->dtype && o->command != BENCHMARK) return fault_set(f, "-r is for .safetensors files, not for raw elements");
    if (!options_whole_folder(o)) return o->tensors_only ? fault_set(f, "--tensors-only has an effect only with -r and -o; without -o nothing is copied") : 0;
    if (!strcmp(o->output, "-")) return fault_set(f, "with -r the output is a folder, not standard output; give -o FOLDER");
    if (o->remove_input) return fault_set(f, "--rm removes files, not folders; remove the folder yourself after test -r of the other one");
    return 0;
}

/* Checks the operands of commands on stores. */
static int check_store(const options *o, fault *f)
{
    size_t i;
    if (o->command == SNAPSHOT && o->file_count != 2) return fault_set(f, "snapshot needs a store and a folder: snapshot STORE FOLDER");
    if (o->command == RESTORE && o->file_count != 2) return fault_set(f, "restore needs a store and a step: restore STORE STEP -o FOLDER");
    if (o->command == RESTORE && (!o->output || !*o->output || !strcmp(o->output, "-"))) return fault_set(f, "restore needs the name of a new folder: -o FOLDER");
    if (!o->file_count) return fault_set(f, "%s needs a store of snapshots", command_name(o->command));
    if (o->command == PRUNE && !o->keep_last && !o->keep_every && !o->removed)
        return fault_set(f, "prune needs the steps to keep, --keep-last N, --keep-every N or both, or to remove, --remove N");
    for (i = 0; i < o->file_count; i++)
        if (!*o->files[i] || !strcmp(o->files[i], "-")) return fault_set(f, "a store of snapshots is a folder, not '%s'", o->files[i]);
    return 0;
}

/* Checks the operands of extract. Only the first is a file. */
static int check_extract(const options *o, fault *f)
{
    size_t i;
    if (o->file_count < 2) return fault_set(f, "extract needs a file or folder, and names of its tensors: extract FILE NAME... -o OUTPUT");
    if (!o->output || !*o->output) return fault_set(f, "extract needs the name of its output: -o FILE");
    if (o->raw + o->npy + o->safetensors > 1) return fault_set(f, "--raw, --npy and --safetensors exclude each other");
    if (o->json && !strcmp(o->output, "-")) return fault_set(f, "--json writes to standard output, and so would the result; give -o FILE");
    for (i = 0; i <= o->base_count; i++) {
        const char *name = i ? o->bases[i - 1] : o->files[0];
        if (!*name || !strcmp(name, "-")) return fault_set(f, "extract looks here and there in a file, which '%s' is not; name a file", name);
    }
    return 0;
}

/* Checks the command line as a whole. `used` has a bit for each entry that was given. */
static int check(const options *o, uint64_t used, fault *f)
{
    const char *name = command_name(o->command);
    size_t i, standards;
    int least = 0;
    for (i = 0; i < ENTRIES; i++)
        if (used >> i & 1 && !(entries[i].commands & (unsigned)o->command))
            return fault_set(f, "--%s has no effect on %s; see bitsnap %s --help", entries[i].name, name, name);
    if (o->command & STORES) return check_store(o, f);
    if (o->command == EXTRACT) return check_extract(o, f);
    if (o->command == APPLY && o->file_count != 2)
        return fault_set(f, "apply needs a delta and the .safetensors file to apply it to");
    if (o->command == APPLY && is_folder(o->files[0]) != is_folder(o->files[1]))
        return fault_set(f, "apply needs two files, or a folder of deltas and the folder to apply them to");
    if (o->file_count == 0 && !o->files_from)
        return fault_set(f, "%s needs a file, or - for standard input; see bitsnap %s --help", name, name);
    if (o->command == COMPARE && o->file_count != 2) return fault_set(f, "compare needs two files");
    if (o->command == MERGE && o->file_count < 2) return fault_set(f, "merge needs two deltas or more, each following the one before");
    if (o->command & ALGEBRA && !o->output) return fault_set(f, "%s needs the name of its output: -o FILE", name);
    if (o->command == COMPRESS && !o->base_count && (o->self_contained || o->max_output || o->rename_count))
        return fault_set(f, "--%s has an effect only with -b", o->self_contained ? "self-contained" : o->rename_count ? "rename" : "max-output");
    if (o->command == COMPRESS && o->dtype && (o->no_references || o->partners))
        return fault_set(f, "--%s is for .safetensors files, whose tensors have names, not for raw elements", o->partners ? "partners" : "no-references");
    if (o->partners && (o->no_references || o->base_count))
        return fault_set(f, "--partners looks for partners inside of FILE, which %s leaves out", o->base_count ? "-b" : "--no-references");
    if (o->command == COMPRESS && o->base_count && o->dtype)
        return fault_set(f, "-b is for .safetensors files, whose tensors have names, not for raw elements");
    for (i = 0; i < ENTRIES; i++) least |= entries[i].letter == 'N' && (used >> i & 1);
    if (least && !o->adam.name) return fault_set(f, "--adam-min has an effect only with --adam");
    if (o->adam.name && o->command == COMPRESS && o->base_count)
        return fault_set(f, "--adam and -b exclude each other: a delta restores its file exactly, quantized tensors do not");
    if (o->adam.name && o->sha256)
        return fault_set(f, "--sha256 hashes the bytes that are restored, which --adam changes: restore the file and compress that with --sha256");
    if (o->adam.name && o->dtype)
        return fault_set(f, "--adam is for .safetensors files, whose tensors have names, not for raw elements");
    if (o->adam.clusters && o->command == COMPARE) return fault_set(f, "--adam clusters has no bound to compare with; give bins (LOG-70)");
    if (o->adam.stage && o->command == COMPARE) return fault_set(f, "--adam stage is chosen when a file is compressed; give bins (LOG-70)");
    if (o->weights && !o->adam.stage) return fault_set(f, "--weights has an effect only with --adam stage");
    for (i = 0, standards = 0; i < o->file_count; i++) standards += !strcmp(o->files[i], "-");
    if (o->command == MERGE && standards > 1) return fault_set(f, "- can be read only once");
    if (o->chain && o->file_count < 2) return fault_set(f, "--chain needs two files or more");
    for (i = 0; i < o->base_count; i++) {
        size_t k;
        for (k = 0; k < o->file_count + i; k++)
            if (!strcmp(o->bases[i], "-") && !strcmp(k < o->file_count ? o->files[k] : o->bases[k - o->file_count], "-"))
                return fault_set(f, "- can be read only once");
    }
    if (o->output && o->file_count > 1 && o->command != MERGE && !o->into && !options_whole_folder(o))
        return fault_set(f, o->command & WRITE ? "-o and -c take one input, not %zu; -o FOLDER/ takes several" : "-o and -c take one input, not %zu", o->file_count);
    if (o->null_ends && !o->files_from) return fault_set(f, "-0 has an effect only with --files-from");
    if (o->skip_existing && o->force) return fault_set(f, "-f and --skip-existing exclude each other");
    for (i = 0; i < o->file_count; i++) {
        const int standard = !strcmp(o->files[i], "-");
        const int to_standard = o->output ? !strcmp(o->output, "-") : standard;
        if (!*o->files[i]) return fault_set(f, "the name of a file is empty");
        if (standard && o->file_count > 1 && !(o->command & (COMPARE | MERGE)) && !(o->command == APPLY && i == 0))
            return fault_set(f, "- cannot be given together with other files");
        if (standard && o->into) return fault_set(f, "standard input has no name to use in %s; give -o FILE", o->output);
        if (standard && o->files_from && !strcmp(o->files_from, "-")) return fault_set(f, "- can be read only once");
        if (!(o->command & (WRITE | ALGEBRA))) continue;
        if (o->remove_input && (standard || to_standard))
            return fault_set(f, "--rm needs an input and an output that are files");
        if (o->json && to_standard)
            return fault_set(f, "--json writes to standard output, and so would the result; give -o FILE");
    }
    if (o->command == COMPARE && !strcmp(o->files[0], "-") && !strcmp(o->files[1], "-"))
        return fault_set(f, "- can be one of the two files, not both");
    if (o->output && !*o->output) return fault_set(f, "-o needs the name of a file");
    return check_recursive(o, f);
}

/* Appends the names of --files-from to those of the command line. */
static int add_names(options *o, fault *f)
{
    size_t i;
    for (i = 0; i < o->file_count; i++)
        if (names_add(&o->names, o->files[i], 0, f)) return 1;
    if (names_read(&o->names, o->files_from, o->null_ends ? 0 : '\n', f)) return 1;
    o->files = o->names.at;
    o->file_count = o->names.count;
    return 0;
}

int options_add_base(options *o, const char *path, size_t *capacity, fault *f)
{
    const char **more = (const char **)grown((void *)o->bases, o->base_count, capacity, sizeof *o->bases, f);
    if (!more) return 1;
    o->bases = more;
    o->bases[o->base_count++] = path;
    return 0;
}

/* Applies a folder of deltas as decompress -r -o FOLDER -b FOLDER does. */
static int apply_to_folder(options *o, fault *f)
{
    if (!is_folder(o->files[1])) return 0;
    o->recursive = 1;
    o->output = o->files[1];
    o->file_count = 1;
    return options_add_base(o, o->output, &o->base_capacity, f);
}

/* Returns 1 if -o is a folder: it ends with a slash, or there are several files and the folder exists. */
static int is_into(const options *o)
{
    const size_t size = o->output ? strlen(o->output) : 0;
    if (!size || !(o->command & WRITE) || options_whole_folder(o)) return 0;
    return o->output[size - 1] == '/' || (o->file_count > 1 && is_folder(o->output));
}

void options_free(options *o)
{
    free(o->removed);
    free((void *)o->bases);
    names_free(&o->names);
}

int options_parse(options *o, int argc, char **argv, fault *f)
{
    uint64_t used = 0;
    int i, operands = 0, options_end = 0;
    memset(o, 0, sizeof *o);
    o->adam.least = 4096;
    o->max_chain = 16;
    for (i = 1; i < argc; i++) {
        char *word = argv[i];
        const option_entry *e;
        if (options_end || word[0] != '-' || !word[1]) {
            argv[operands++] = word; /* never ahead of i, as argv[0] is free */
            continue;
        }
        if (!strcmp(word, "--")) {
            options_end = 1;
            continue;
        }
        if (word[1] == '-') {
            const char *name = word + 2, *equals = strchr(name, '=');
            const char *argument = equals ? equals + 1 : NULL;
            e = find_long(name, equals ? (size_t)(equals - name) : strlen(name), f);
            if (!e) return 1;
            if (!e->has_argument && argument) return fault_set(f, "--%s takes no value", e->name);
            if (e->has_argument && !argument) {
                if (i + 1 == argc) return fault_set(f, "--%s needs a value", e->name);
                argument = argv[++i];
            }
            used |= (uint64_t)1 << (e - entries);
            if (set(o, e, argument, f)) return 1;
            continue;
        }
        for (word++; *word; word++) { /* -qf, -T4, -T 4 */
            const char *argument = NULL;
            e = find_letter(*word, f);
            if (!e) return 1;
            if (e->has_argument) {
                if (!word[1] && i + 1 == argc) return fault_set(f, "-%c needs a value", *word);
                argument = word[1] ? word + 1 : argv[++i];
            }
            used |= (uint64_t)1 << (e - entries);
            if (set(o, e, argument, f)) return 1;
            if (argument) break;
        }
    }
    while (operands && !strcmp(argv[0], "help")) { /* help COMMAND is COMMAND --help */
        o->help = 1;
        argv++, operands--;
    }
    if (operands) {
        size_t c;
        for (c = 0; c < sizeof commands / sizeof *commands; c++)
            if (!strcmp(argv[0], commands[c].name)) o->command = commands[c].command;
        if (!o->command) return fault_set(f, "'%s' is not a command" COMMANDS, argv[0]);
    }
    o->files = argv + 1;
    o->file_count = operands ? (size_t)operands - 1 : 0;
    for (i = 0; i < ENTRIES; i++) /* benchmark uses one thread by default */
        if (entries[i].letter == 'T' && o->command == BENCHMARK && !(used >> i & 1)) o->threads = 1;
    if (o->help || o->version) return 0;
    if (!o->command) return fault_set(f, "a command is needed" COMMANDS);
    if (o->files_from && (o->command & FOLDERS) && add_names(o, f)) return 1;
    o->into = is_into(o);
    return check(o, used, f) || (o->command == APPLY && apply_to_folder(o, f));
}
