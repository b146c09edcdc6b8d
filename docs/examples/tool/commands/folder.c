/* folder.c - compress and decompress with -r and -o, and apply of folders: a whole folder.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Every tensor file of it becomes one in the other form, and everything else is there as it was, so that a folder that is
 * compressed and decompressed again is what it was. */
#include "../system/posix.h"

#include "commands.h"

#include "../console/progress.h"
#include "../files/file.h"
#include "../files/header.h"
#include "../system/directory.h"
#include "../system/io.h"
#include "../tensors/pairs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The plan for an entry of the folder. */
typedef struct item {
    const walk_entry *from;
    char *to;   /* its name in the output */
    char *text; /* new text of a link; null: as it was */
    int tensors, done;
    size_t sibling; /* of a tensor file: its number among them */
} item;

typedef struct job {
    const options *o;
    codec *codec;
    walk in;
    base_folders bases;
    sibling_files siblings;
    directory out;
    item *items;
    const item **sorted; /* all items, sorted by name in the output */
    size_t count, files; /* number of items; of files among them */
    fault *f;
} job;

static int is_packed(const char *name) { return name_ends(name, ".bsnap"); }

/* Returns 1 if the command takes files of this name. */
static int is_for(const options *o, const char *name) { return name_ends(name, o->command == COMPRESS || o->command == BENCHMARK ? ".safetensors" : ".bsnap"); }

/* ================================================================================= WHAT IS TO BE DONE */

static int fail(const job *j, const char *path) { return fault_about(j->f, path); }

/* Returns the name in the output. The caller frees it. */
static char *other_name(const job *j, const char *name) { return j->o->command == COMPRESS ? compress_target(name) : decompress_target(name); }

/* Plans a link, which stays a link. If its target gets another name, the text of the link is changed, and its name, too. */
static int plan_link(const job *j, item *i)
{
    const walk_entry *x = i->from;
    i->tensors = is_for(j->o, x->text);
    if (i->tensors && !(i->text = other_name(j, x->text))) return fault_memory(j->f);
    i->to = i->tensors && is_for(j->o, x->name) ? other_name(j, x->name) : strdup(x->name);
    if (!i->to) return fault_memory(j->f);
    if (x->leads_out && (i->tensors || !j->o->tensors_only))
        warn(&j->codec->used, x->path, "is a link that leads out of the folder, or nowhere: its target is left out (-L follows it)");
    return 0;
}

static int plan_item(job *j, const walk_entry *x)
{
    item *i = &j->items[j->count];
    i->from = x;
    if (x->kind == FOUND_OTHER) {
        warn(&j->codec->used, x->path, "is not a file, folder or link: it is left out");
        return 0;
    }
    if (j->o->command == COMPRESS && !j->o->tensors_only && (is_packed(x->name) || (x->kind == FOUND_LINK && is_packed(x->text))) && x->kind != FOUND_DIRECTORY)
        return fault_set(j->f, "is packed already, and decompress -r would unpack it; leave it out with --exclude '*.bsnap'") && fail(j, x->path);
    if (x->kind == FOUND_LINK) {
        if (plan_link(j, i)) return 1;
    } else {
        i->tensors = x->kind == FOUND_FILE && is_for(j->o, x->name);
        i->to = i->tensors ? other_name(j, x->name) : strdup(x->name);
        if (!i->to) return fault_memory(j->f);
    }
    if (j->o->tensors_only && !i->tensors && x->kind != FOUND_DIRECTORY) {
        free(i->to);
        i->to = NULL;
        return 0;
    }
    j->files += x->kind == FOUND_FILE;
    j->count++;
    return 0;
}

static int by_target(const void *a, const void *b) { return strcmp((*(const item *const *)a)->to, (*(const item *const *)b)->to); }

/* Fails if two entries would get the same name. */
static int check_names(job *j)
{
    const item **all = j->sorted = (const item **)malloc(j->count * sizeof *all);
    size_t i;
    int failed = 0;
    if (!all) return fault_memory(j->f);
    for (i = 0; i < j->count; i++) all[i] = &j->items[i];
    qsort((void *)all, j->count, sizeof *all, by_target);
    for (i = 1; i < j->count && !failed; i++)
        if (!strcmp(all[i - 1]->to, all[i]->to))
            failed = fault_set(j->f, "would be called %s, and so would %s; leave one out with --exclude", all[i]->to, all[i - 1]->from->name) && fail(j, all[i]->from->path);
    return failed;
}

/* Chooses the tensor files that are coded against others. */
static int plan_siblings(job *j)
{
    char **paths = (char **)malloc((j->count + 1) * sizeof *paths);
    size_t i, n = 0;
    int failed;
    if (!paths) return fault_memory(j->f);
    for (i = 0; i < j->count; i++) {
        if (!j->items[i].tensors || j->items[i].from->kind != FOUND_FILE) continue;
        j->items[i].sibling = n;
        paths[n++] = j->items[i].from->path;
    }
    failed = siblings_open(&j->siblings, j->o, paths, has_siblings(j->o) ? n : 0, j->f);
    free(paths);
    return failed;
}

static const sibling *sibling_of(const job *j, const item *i)
{
    return i->tensors && i->from->kind == FOUND_FILE && i->sibling < j->siblings.found.count ? &j->siblings.found.files[i->sibling] : NULL;
}

static int plan(job *j)
{
    size_t i;
    j->items = (item *)calloc(j->in.count, sizeof *j->items);
    if (!j->items) return fault_memory(j->f);
    for (i = 0; i < j->in.count; i++)
        if (plan_item(j, &j->in.at[i])) return 1;
    for (i = 0; i < j->count; i++)
        if (j->items[i].tensors) return check_names(j) || plan_siblings(j);
    return fault_set(j->f, j->o->command == COMPRESS ? "has no .safetensors file that the options select" : "has no .bsnap file that the options select");
}

static void mix(uint64_t *hash, const void *bytes, size_t size)
{
    const unsigned char *p = (const unsigned char *)bytes;
    while (size--) *hash = (*hash ^ *p++) * UINT64_C(0x100000001B3);
}

/* Hashes the state of the folders with the bases, and the rules of --rename. It detects changes, but not deliberate deception. */
static int base_state(const options *o, uint64_t *hash, fault *f)
{
    static const selection all = { { NULL }, { NULL }, 0, 0, 1 };
    size_t i, k;
    *hash = UINT64_C(0xCBF29CE484222325);
    for (i = 0; i < o->rename_count; i++) mix(hash, o->renames[i], strlen(o->renames[i]) + 1);
    for (i = 0; i < o->base_count; i++) {
        walk w;
        const int failed = walk_folder(&w, o->bases[i], &all, f);
        for (k = 0; k < w.count; k++) {
            const file_stamp *s = &w.at[k].stamp;
            const int64_t state[5] = { (int64_t)s->device, (int64_t)s->inode, (int64_t)s->size, (int64_t)s->modified.tv_sec, (int64_t)s->modified.tv_nsec };
            mix(hash, w.at[k].name, strlen(w.at[k].name) + 1);
            mix(hash, state, sizeof state);
        }
        walk_free(&w);
        if (failed) return 1;
    }
    return 0;
}

/* Adds to the hash which files are coded against which. */
static void mix_siblings(const siblings *s, uint64_t *hash)
{
    size_t i;
    unsigned k;
    for (i = 0; i < s->count; i++) {
        const sibling *x = &s->files[i];
        for (k = 0; k < x->base_count; k++) {
            mix(hash, x->path, strlen(x->path) + 1);
            mix(hash, s->files[x->bases[k]].path, strlen(s->files[x->bases[k]].path) + 1);
        }
    }
}

/* Describes everything that the contents of the output depend on. */
static int how(const options *o, const siblings *s, char *text, size_t size, fault *f)
{
    const adam_policy *a = &o->adam;
    uint64_t bases;
    int n;
    if (base_state(o, &bases, f)) return 1;
    mix_siblings(s, &bases);
    n = snprintf(text, size, "%s " BITSNAP_VERSION " level %d bases %zu %016llx contained %d sha256 %d references %d partners %d align %llu adam %s least %llu limit %llu stage %.0f", command_name(o->command), o->level,
                 o->base_count, (unsigned long long)bases, o->self_contained, o->sha256, !o->no_references, o->partners, (unsigned long long)o->align, a->name ? a->name : "-", (unsigned long long)a->least,
                 (unsigned long long)o->max_output, a->stage ? 1e6 * seconds_now() : 0); /* never continued: it depends on other
                                                                                            files, too */
    return n < 0 || (size_t)n >= size ? fault_set(f, "--adam is too long") : 0;
}

/* ================================================================================= DOING IT */

static int copy(const job *j, const item *i, input *in, const char *target, const char *shown)
{
    const elapsed begun = elapsed_now();
    output out;
    int failed = output_open(&out, target, 0, in, &j->codec->used, j->f);
    output_keep_time(&out);
    failed = failed || spool_copy(&out, in, j->f) || input_check_unchanged(in, j->f) || output_commit(&out, j->f);
    if (failed) output_discard(&out);
    if (!failed) {
        const summary s = { i->from->path, shown, out.size, out.size, elapsed_since(begun) };
        print_summary(j->o, &s);
        if (j->o->json) {
            json to = json_summary(j->o, &s);
            json_member_truth(&to, "copied", 1);
            json_report_end(&to);
        }
    }
    return failed;
}

/* Opens the file that was found. Fails if another one has its name by now. */
static int open_found(const job *j, const walk_entry *x, input *in)
{
    if (input_open(in, x->path, j->f)) return 1;
    if (stamp_is_same(&in->stamp, &x->stamp)) return 0;
    input_close(in);
    return fault_set(j->f, "was changed or replaced while this command ran");
}

/* ================================================================================= BASES */

int bases_open(base_folders *b, const options *o, codec *c, fault *f)
{
    b->count = 0;
    b->at = (shards *)calloc(o->base_count + 1, sizeof *b->at);
    if (!b->at) return fault_memory(f);
    for (; b->count < o->base_count; b->count++) {
        const char *path = o->bases[b->count];
        if (!is_folder(path)) return fault_set(f, "is not a folder; with -r and -o every base must be one") && fault_in(f, path);
        if (shards_open_bases(&b->at[b->count], c, path, b->count ? &b->at[b->count - 1] : NULL, f)) return b->count++, 1;
    }
    return 0;
}

void bases_close(base_folders *b)
{
    while (b->count) shards_close(&b->at[--b->count]);
    free(b->at);
    b->at = NULL;
}

static const shards *last_of(const base_folders *b) { return &b->at[b->count - 1]; }

/* Opens as bases the files of the folder with partners for this model: `own` first, then by name. */
static int find_partners(const options *o, codec *c, const shards *s, const safetensors *model, const input *in, size_t own, options *one, base *b, fault *f)
{
    const renames r = { o->renames, o->rename_count };
    const safetensors **models = (const safetensors **)malloc((s->count + 1) * sizeof *models);
    unsigned char *used = (unsigned char *)calloc(s->count + 1, 1);
    safetensors none = { 0 };
    base *last = NULL;
    size_t i, n = 0, capacity = 0;
    pairs p = { 0 };
    int failed = (!models || !used) && fault_memory(f);
    for (i = 0; i < s->count && !failed; i++) models[i] = s->files[i].is_twin && i != own ? &none : &s->files[i].model;
    failed = failed || pairs_find(&p, model, models, (unsigned)s->count, own, &r, f);
    for (i = 0; i < p.count; i++)
        if (p.list[i].kind == PAIR_FOUND && p.list[i].bytes) used[p.list[i].base] = 1;
    for (i = 0; i < s->count + 1 && !failed; i++) { /* `own`, then all files */
        const size_t k = i ? i - 1 : own;
        if (k >= s->count || !used[k]) continue;
        used[k] = 0;
        if (n == BASES_MOST) {
            warn(&c->used, in->name, "has its tensors in more than 65534 files of the base; those in the last files are compressed without the base");
            break;
        }
        last = shards_add_base(s, k, c, o->max_output, b, last, f);
        failed = !last || options_add_base(one, s->files[k].path, &capacity, f);
        n++;
    }
    pairs_free(&p);
    free((void *)models);
    free(used);
    return failed;
}

/* Opens the bases of a file to be compressed. The input is at its start, and is there again afterwards. */
static int open_partners(const options *o, codec *c, const shards *s, input *in, const char *name, options *one, base *b, fault *f)
{
    header h;
    const size_t own = shards_called(s, name);
    int failed;
    if (!in->regular) return fault_set(f, "is a pipe or standard input; with a folder as its base it must be a file");
    if (own < s->count && s->files[own].why) return fault_set(f, "%s", s->files[own].why) && fault_in(f, s->files[own].path);
    failed = header_read(&h, in, f) || find_partners(o, c, s, &h.model, in, own, one, b, f) || input_seek(in, 0, f);
    header_free(&h);
    if (!failed && !one->base_count) warn(&c->used, in->name, "no tensor has a partner in the base's folder; compressed without the base");
    return failed;
}

/* Opens the bases of a .bsnap file, which it names. A file that is not a delta needs none. */
static int open_named(const options *o, codec *c, const shards *s, input *in, const char *name, options *one, base *b, fault *f)
{
    file_reader r;
    const base *x;
    size_t capacity = 0;
    int failed;
    if (input_fill(in, 10, f)) return 1;
    if (!file_is_delta(input_bytes(in), input_available(in))) return 0;
    if (!in->regular) return fault_set(f, "is a pipe or standard input; with a folder as its base it must be a file");
    failed = file_look_begin(&r, c, in, NULL, f) || shards_find_bases(s, &r.ends, name, c, o->max_output, b, f) || input_seek(in, 0, f);
    file_read_close(&r);
    for (x = b; x && !failed; x = x->next) failed = options_add_base(one, x->path, &capacity, f);
    return failed;
}

/* The bases of a file that is open, `name` in its folder when it is not packed; `one`, its options, has their names, in memory
 * that the caller frees. */
static int open_bases(const options *o, codec *c, const base_folders *folders, input *in, const char *name, options *one, base *b, fault *f)
{
    base_clear(b);
    one->bases = NULL;
    one->base_count = 0;
    if (!folders->count) return 0;
    return (o->command == COMPRESS ? open_partners : open_named)(o, c, last_of(folders), in, name, one, b, f);
}

/* A file of tensors, which is open. */
static int make_tensors(const job *j, const item *i, options *one, input *in, const char *target)
{
    const int packing = j->o->command == COMPRESS;
    const char *path = i->from->path;
    base b, *given;
    int failed = open_bases(j->o, j->codec, &j->bases, in, packing ? i->from->name : i->to, one, &b, j->f);
    given = one->base_count ? &b : NULL;
    if (failed) input_close(in);
    else if (packing && sibling_of(j, i)) failed = compress_sibling(one, j->codec, &j->siblings.found, i->sibling, in, target, j->f);
    else if (packing) failed = compress_to(one, j->codec, given, NULL, in, path, target, j->f);
    else failed = decompress_to(one, j->codec, given, in, path, target, j->f);
    base_close(&b);
    free((void *)one->bases);
    one->bases = NULL;
    one->base_count = 0;
    return failed;
}

int has_folder_bases(const options *o)
{
    return options_whole_folder(o) || (o->command & (COMPRESS | DECOMPRESS | TEST | INFO) && o->base_count && is_folder(o->bases[0]));
}

int with_folder_bases(const options *o, codec *c, const base_folders *folders, size_t number, file_command *run, fault *f)
{
    options one = *o;
    const char *path = o->files[number], *below = o->names.count ? path + o->names.below[number] : last_part(path);
    char *name = decompress_target(below);
    input in;
    base b;
    int failed;
    if (!name && !(name = strdup(below))) return fault_memory(f);
    one.bases = NULL;
    one.base_count = 0;
    base_clear(&b);
    failed = input_open(&in, path, f) || open_bases(o, c, folders, &in, name, &one, &b, f);
    input_close(&in);
    failed = failed || run(&one, c, one.base_count ? &b : NULL, path, f);
    base_close(&b);
    free((void *)one.bases);
    free(name);
    return failed;
}

/* ================================================================================= ALL OF IT */

static int make_file(job *j, item *i)
{
    options one = *j->o;
    char *target = directory_path(&j->out, i->to, j->f), *shown = path_in(j->o->output, i->to, j->f);
    const char *path = i->from->path;
    input in;
    int failed = !target || !shown;
    if (!failed) {
        one.shown = shown;
        failed = open_found(j, i->from, &in);
    }
    if (!failed && !i->tensors) {
        failed = input_note(&in, path, &j->codec->used, j->f) || copy(j, i, &in, target, shown);
        input_close(&in);
    } else if (!failed) {
        failed = make_tensors(j, i, &one, &in, target);
    }
    failed = failed || directory_note(&j->out, i->to, &i->from->stamp, j->f);
    free(target);
    free(shown);
    return failed && fail(j, path);
}

/* Reports a file that an earlier run has finished. */
static void take_over(const job *j, const item *i)
{
    char *path = directory_path(&j->out, i->to, j->f);
    struct stat st;
    const summary s = { NULL, NULL, (uint64_t)i->from->stamp.size, path && !lstat(path, &st) ? (uint64_t)st.st_size : 0, { 0, 0 } };
    free(path);
    summary_add(&s);
    if (j->o->verbose && !j->o->quiet) {
        line_wipe();
        print_file(stderr, i->from->path, ": already done\n");
    }
}

/* Makes a directory or a link. */
static int make_name(job *j, const item *i)
{
    char *path = directory_path(&j->out, i->to, j->f);
    int failed = !path;
    if (path && i->from->kind == FOUND_DIRECTORY) failed = *i->to && mkdir(path, S_IRWXU) && errno != EEXIST;
    else if (path) failed = symlink(i->text ? i->text : i->from->text, path) != 0;
    if (failed && path) (void)fault_errno(j->f, "cannot be made");
    if (failed && path) (void)fault_in(j->f, path);
    free(path);
    return failed;
}

/* Sets owner, mode and time of a folder or link, once everything is made: new entries change the time of a folder. */
static void dress(job *j, const item *i)
{
    char *path = i->from->kind == FOUND_FILE ? NULL : directory_path(&j->out, i->to, j->f);
    struct timespec times[2];
    if (!path) return;
    memset(times, 0, sizeof times);
    times[0].tv_nsec = UTIME_OMIT;
    times[1] = i->from->stamp.modified;
    if (!geteuid() && lchown(path, i->from->owner, i->from->group)) warn_errno(&j->codec->used, path, "its owner cannot be set");
    if (i->from->kind == FOUND_DIRECTORY && chmod(path, i->from->mode)) warn_errno(&j->codec->used, path, "its permissions cannot be set");
    if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW)) warn_errno(&j->codec->used, path, "its time cannot be set");
    free(path);
}

/* Fails if the folder has changed, since the copy would mix two states. */
static int check_unchanged(const job *j)
{
    walk now;
    const int failed = walk_folder(&now, j->in.at[0].path, &j->o->select, j->f) || walk_check_same(&j->in, &now, j->f);
    walk_free(&now);
    return failed;
}

/* Returns 1 if an earlier run has finished all bases of this file. Else it is made again. */
static int are_bases_done(const job *j, const sibling *x)
{
    size_t i, done = 0;
    unsigned k;
    for (i = 0; i < j->count && done < x->base_count; i++)
        for (k = 0; k < x->base_count && j->items[i].done; k++) done += sibling_of(j, &j->items[i]) == &j->siblings.found.files[x->bases[k]];
    return done == x->base_count;
}

/* Returns 1 if a file has bases, and so is made after them. */
static int comes_later(const job *j, const item *i)
{
    const sibling *x = sibling_of(j, i);
    return x && x->base_count;
}

static int make_all(job *j)
{
    size_t i, number = 0, wrong = 0;
    for (i = 0; i < 2 * j->count; i++) {
        item *x = &j->items[i % j->count];
        if (x->from->kind != FOUND_FILE || comes_later(j, x) != (i >= j->count)) continue;
        x->done = (i < j->count || are_bases_done(j, sibling_of(j, x))) && directory_has(&j->out, x->to, &x->from->stamp);
    }
    if (directory_begin(&j->out, j->f)) return 1;
    for (i = 0; i < j->count; i++)
        if (j->items[i].from->kind != FOUND_FILE && make_name(j, &j->items[i])) return 1;
    for (i = 0; i < 2 * j->count; i++) {
        item *x = &j->items[i % j->count];
        if (x->from->kind != FOUND_FILE || comes_later(j, x) != (i >= j->count)) continue;
        progress_files(++number, j->files);
        if (x->done) {
            take_over(j, x);
        } else if (make_file(j, x)) {
            wrong++;
            print_failure(j->o, &j->codec->used, x->from->path, j->f);
            memset(j->f, 0, sizeof *j->f);
        }
    }
    if (wrong) return fault_set(j->f, "is not made: %zu of %zu files failed", wrong, j->files) && fail(j, j->o->output);
    if (check_unchanged(j)) return 1;
    for (i = j->count; i-- > 0;) dress(j, &j->items[i]);
    return directory_commit(&j->out, j->f);
}

/* ================================================================================= APPLY */

/* Fails if a delta was made against other elements than its bases hold. Reads the bases of all deltas before anything is
 * written. */
static int check_fit(const job *j)
{
    size_t i;
    int failed = 0;
    for (i = 0; i < j->count && !failed; i++) {
        const item *x = &j->items[i];
        options one = { .bases = NULL };
        input in;
        base b;
        if (!x->tensors || x->from->kind != FOUND_FILE) continue;
        base_clear(&b);
        failed = open_found(j, x->from, &in) || open_bases(j->o, j->codec, &j->bases, &in, x->to, &one, &b, j->f) ||
                 apply_check_fit(j->codec, &in, one.base_count ? &b : NULL, j->f);
        base_close(&b);
        free((void *)one.bases);
        input_close(&in);
        if (failed) (void)fail(j, x->from->path);
    }
    return failed;
}

/* Returns 1 if every tensor file is the result already, as when the command is repeated. */
static int is_result(const job *j)
{
    size_t i;
    int is = 1;
    for (i = 0; i < j->count && is; i++) {
        fault ignored = { .text = "" };
        char *path;
        if (!j->items[i].tensors || j->items[i].from->kind != FOUND_FILE) continue;
        path = path_in(j->o->output, j->items[i].to, &ignored);
        is = path && apply_is_result(j->codec, j->items[i].from->path, path, &ignored);
        free(path);
    }
    return is;
}

static int is_named(const void *name, const void *x) { return strcmp((const char *)name, (*(const item *const *)x)->to); }

/* Fails, without -f, if the folder has files that the deltas do not make, or files that are read-only and may be shared. */
static int check_replaced(const job *j)
{
    size_t i;
    for (i = 0; i < j->out.before.count && !j->o->force; i++) {
        const walk_entry *x = &j->out.before.at[i];
        if (x->kind == FOUND_DIRECTORY) continue;
        if (!bsearch(x->name, (const void *)j->sorted, j->count, sizeof(const item *), is_named))
            return fault_set(j->f, "is not in %s, so it would be lost; move it elsewhere, or use -f to remove it", j->in.at[0].path) && fail(j, x->path);
        if (x->kind == FOUND_FILE && !(x->mode & 0200))
            return fault_set(j->f, "is read-only, as shared files are; -f replaces it anyway") && fail(j, x->path);
    }
    return 0;
}

static void report_result(const options *o)
{
    if (o->json) {
        json out = json_report(command_name(o->command), o->files[0]);
        json_member_string(&out, "output", o->output);
        json_member_truth(&out, "changed", 0);
        json_report_end(&out);
    } else if (!o->quiet) {
        print_file(stdout, o->output, ": its tensors already are the result; nothing changed\n");
    }
}

int command_folder(const options *o, codec *c, const char *path, fault *f)
{
    static const used_files none = { .files = NULL };
    char text[1024], rest[600] = "";
    job j = { .o = o, .codec = c, .f = f };
    const int applies = o->command == APPLY;
    int failed, done = 0;
    if (skips(o, o->output)) {
        report_skipped(o, path, o->output);
        return 0;
    }
    failed = bases_open(&j.bases, o, c, f) || walk_folder(&j.in, path, &o->select, f) || plan(&j) || how(o, &j.siblings.found, text, sizeof text, f) ||
             (applies && check_fit(&j));
    if (failed && applies && j.sorted && is_result(&j)) {
        memset(f, 0, sizeof *f);
        done = 1;
    }
    if (!failed || done) {
        failed = directory_open(&j.out, o->output, applies || o->force, path, text, applies ? &none : &c->used, f);
        /* if all is done, this removes the old folder, which a run leaves that is killed after the exchange */
        if (!failed) failed = done ? directory_begin(&j.out, f) : (applies && check_replaced(&j)) || make_all(&j);
        if (failed && j.out.part && j.out.list)
            (void)snprintf(rest, sizeof rest, "; finished files are kept in %.240s, and the same command resumes; to give up, remove that and %.220s",
                           j.out.part, j.out.list);
        if (directory_close(&j.out)) (void)fault_add(f, rest);
    }
    if (failed) (void)fail(&j, path);
    if (!failed && done) report_result(o);
    else print_sum(o, j.files);
    while (j.items && j.count) {
        free(j.items[--j.count].to);
        free(j.items[j.count].text);
    }
    free(j.items);
    free((void *)j.sorted);
    walk_free(&j.in);
    siblings_close(&j.siblings);
    bases_close(&j.bases);
    return failed;
}

/* ================================================================================= LISTS */

static int add_folder(const options *o, name_list *n, const char *path, const used_files *u, fault *f)
{
    const size_t before = n->count;
    walk w;
    size_t i;
    int failed = walk_folder(&w, path, &o->select, f);
    for (i = 0; i < w.count && !failed; i++) {
        const walk_entry *x = &w.at[i];
        if (x->kind == FOUND_FILE && is_for(o, x->name)) failed = names_add(n, x->path, (size_t)(x->name - x->path), f);
        if (x->kind == FOUND_LINK && x->leads_out && is_for(o, x->name))
            warn(u, x->path, "is a link that leads out of the folder, or nowhere: it is left out (-L follows it)");
    }
    if (!failed && n->count == before)
        failed = fault_set(f, "has no %s file that the options select", is_for(o, "x.bsnap") ? ".bsnap" : ".safetensors");
    if (failed) (void)fault_about(f, path);
    walk_free(&w);
    return failed;
}

int folders_open(options *o, const used_files *u, fault *f)
{
    name_list n = { 0 };
    size_t i;
    int failed = 0;
    for (i = 0; i < o->file_count && !failed; i++)
        failed = is_folder(o->files[i]) ? add_folder(o, &n, o->files[i], u, f) : names_add(&n, o->files[i], 0, f);
    names_free(&o->names);
    o->names = n;
    o->files = n.at;
    o->file_count = n.count;
    return failed;
}
