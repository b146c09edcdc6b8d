/* snapshot.c - the commands snapshot, prune and fsck: what changes a store of snapshots.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"
#include "../console/progress.h"
#include "../console/utf8.h"
#include "../files/header.h"
#include "../store/contents.h"
#include "../system/walk.h"
#include "../tensors/pairs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Chains whose deltas have more than DELTAS_MOST times the bytes of their whole file are too slow to read. */
#define DELTAS_MOST 2

#define SIBLING_NONE SIZE_MAX

typedef struct job {
    const options *o;
    codec *codec;
    store store;
    walk in;
    siblings siblings;    /* tensor files of the folder */
    size_t *sibling;      /* for each entry: its number in `siblings`, or SIBLING_NONE */
    uint64_t *contents;   /* for each of `siblings`: its content id, once known */
    store_step step;      /* the new step */
    uint64_t number;      /* of the new step */
    uint64_t newest;      /* prune: the first step that --keep-last keeps */
    uint64_t bytes_in, bytes_out; /* of all files; of new objects */
    size_t files, objects;
    const store_object *bad; /* prune: an object to keep that cannot be decoded; *f has the reason */
    fault *f;
} job;

static int fail(const job *j, const char *path) { return fault_about(j->f, path); }

static int job_open(job *j, const options *o, codec *c, const char *path, store_use how, fault *f)
{
    memset(j, 0, sizeof *j);
    j->o = o;
    j->codec = c;
    j->f = f;
    return store_open(&j->store, path, how, command_name(o->command), f);
}

static int job_close(job *j, int failed)
{
    if (failed) store_undo(&j->store);
    step_free(&j->step);
    siblings_free(&j->siblings);
    free(j->sibling);
    free(j->contents);
    walk_free(&j->in);
    store_close(&j->store);
    return failed;
}

/* ================================================================================= TENSORS */

/* Writes a .bsnap file of an open input, which stays open. *is_delta tells whether it is a delta. */
static int write_packed(const job *j, const input *in, const char *path, const base *b, const pairs *known, const char *target, uint64_t *bytes,
                        int *is_delta)
{
    options one = *j->o;
    const int quiet = j->codec->used.quiet;
    input again;
    int failed;
    one.command = COMPRESS;
    one.force = one.quiet = j->codec->used.quiet = 1; /* only the snapshot as a whole is reported */
    one.json = 0;
    failed = input_again(in, &again, j->f) || compress_to(&one, j->codec, b, known, &again, path, target, j->f);
    j->codec->used.quiet = quiet;
    if (failed) return 1;
    if (input_open(&again, target, j->f)) return fail(j, target);
    failed = input_fill(&again, 10, j->f) && fail(j, target);
    *bytes = again.size;
    *is_delta = !failed && file_is_delta(input_bytes(&again), input_available(&again));
    input_close(&again);
    return failed;
}

/* Notes all names that the object and its temporary files may get. */
static int note(const job *j, const store_object *x, const store_object *from)
{
    char names[4][OBJECT_NAME];
    const char *const all[] = { names[0], names[1], names[2], names[3] };
    store_object as = *x;
    as.has_base = 0;
    object_name(&as, names[0]);
    if (!x->tensors) return store_note(&j->store, all, 1, j->f);
    (void)snprintf(names[1], OBJECT_NAME, "%016" PRIx64 ".whole", x->id);
    if (!from) return store_note(&j->store, all, 2, j->f);
    (void)snprintf(names[2], OBJECT_NAME, "%016" PRIx64 ".delta", x->id);
    as.has_base = 1;
    as.base = from->id;
    object_name(&as, names[3]);
    return store_note(&j->store, all, 4, j->f);
}

static char *staged_path(const job *j, const store_object *x, const char *suffix)
{
    char name[32];
    (void)snprintf(name, sizeof name, "%016" PRIx64 ".%s", x->id, suffix);
    return store_path(&j->store, "objects", name, j->f);
}

/* Estimates the size of the object without a base, from the ratio of the whole object at the start of the chain. */
static double whole_guess(const job *j, const store_object *x, const store_object *from)
{
    const store_object *chain[CHAIN_MAX];
    (void)manifest_chain(&j->store.m, from, chain);
    return (double)chain[0]->bytes / (double)(chain[0]->size ? chain[0]->size : 1) * (double)x->size;
}

static int rename_object(const job *j, const store_object *x, const char *staged)
{
    char *path = store_object_path(&j->store, x, j->f);
    int failed = !path;
    if (path && rename(staged, path)) failed = fault_errno(j->f, "cannot be given its name") && fail(j, path);
    failed = failed || place_sync(path, j->f);
    free(path);
    return failed;
}

/* Writes the object of a tensor file: a delta to the object `from` (null: none), or whole if that is not larger. If the delta has
 * less than half of the estimated whole size, the whole is not made. `known`: partners in `from` if that is another file, or
 * null. */
static int put_tensors(const job *j, const input *in, const char *path, store_object *x, const store_object *from, const pairs *known)
{
    char *delta = staged_path(j, x, "delta"), *whole = staged_path(j, x, "whole");
    base b;
    uint64_t bytes = 0;
    int failed = !delta || !whole, is_delta = 0, with_delta = 0, with_whole = 0;
    x->tensors = 1;
    x->has_base = 0;
    failed = failed || note(j, x, from);
    if (!failed && from) {
        fault why = { 0 };
        if (store_restore(&j->store, j->codec, from, &b, &why)) {
            warn(&j->codec->used, *why.file ? why.file : path,
                 why.passes ? why.text : "is damaged, and not used as a base; bitsnap verify says more");
            from = NULL;
        } else {
            with_delta = 1;
            failed = write_packed(j, in, path, &b, known, delta, &x->bytes, &is_delta);
        }
        base_close(&b);
    }
    if (!failed && (!from || (is_delta && (double)x->bytes > whole_guess(j, x, from) / 2))) {
        int ignored;
        with_whole = 1;
        failed = write_packed(j, in, path, NULL, NULL, whole, &bytes, &ignored);
    }
    if (!failed && with_whole && (!with_delta || bytes <= x->bytes)) {
        x->bytes = bytes;
        failed = rename_object(j, x, whole);
    } else if (!failed) {
        x->has_base = is_delta;
        if (is_delta) x->base = from->id;
        failed = rename_object(j, x, delta);
    }
    if (delta) (void)unlink(delta); /* the one that was not renamed; temporary objects of all files would take too much space */
    if (whole) (void)unlink(whole);
    free(delta);
    free(whole);
    return failed;
}

/* ================================================================================= SNAPSHOT */

/* Returns the bytes of a model's tensors with partners in an object; 0 if its header cannot be read. */
static uint64_t bytes_in_common(const job *j, const safetensors *model, const store_object *o)
{
    const renames none = { NULL, 0 };
    const safetensors *one;
    safetensors of;
    size_t size;
    uint64_t bytes = 0;
    fault ignored = { 0 };
    char *text;
    pairs p;
    text = store_text(&j->store, j->codec, o, &size, &ignored);
    if (!text) return 0;
    one = &of;
    if (!safetensors_parse(&of, text, size, &ignored) && !pairs_find(&p, model, &one, 1, 0, &none, &ignored)) {
        bytes = p.found_bytes;
        pairs_free(&p);
    }
    bitsnap_safetensors_free(&of);
    free(text);
    return bytes;
}

/* Returns the object of a step with most of a file's tensors. Used if the names of shards have changed. */
static const store_object *most_alike(const job *j, const input *in, const store_step *s)
{
    const store_object *best = NULL;
    uint64_t most = 0;
    fault ignored;
    input again;
    header h;
    size_t i;
    if (input_again(in, &again, &ignored)) return NULL;
    if (!header_read(&h, &again, &ignored)) {
        for (i = 0; i < s->count; i++) {
            const store_object *o = s->entries[i].kind == ENTRY_FILE ? manifest_object(&j->store.m, s->entries[i].id) : NULL;
            const uint64_t bytes = o && o->tensors ? bytes_in_common(j, &h.model, o) : 0;
            if (bytes <= most) continue;
            most = bytes;
            best = o;
        }
    }
    header_free(&h);
    input_close(&again);
    return best;
}

/* Chooses the base of a file in the step before: the file of its name, or without such a file the one with most of its tensors.
 * Null if no file fits, or if its chain may not grow. */
static const store_object *find_base(const job *j, const input *in, const char *name, store_object *copy)
{
    const manifest *m = &j->store.m;
    const size_t i = manifest_find(m, j->step.number);
    const store_entry *e = i ? step_entry(&m->steps[i - 1], name) : NULL;
    const store_object *o = e && e->kind == ENTRY_FILE ? manifest_object(m, e->id) : NULL, *chain[CHAIN_MAX];
    uint64_t deltas = 0;
    size_t n, k, start = 0;
    if (i && !e) o = most_alike(j, in, &m->steps[i - 1]);
    if (!o || !o->tensors) return NULL;
    n = manifest_chain(m, o, chain);
    for (k = 1; k < n; k++) /* the first may be a smaller file of the same step: the largest object counts as the whole file */
        if (chain[k]->bytes > chain[start]->bytes) start = k;
    for (k = start + 1; k < n; k++) deltas += chain[k]->bytes;
    if (n >= j->o->max_chain || deltas > DELTAS_MOST * chain[start]->bytes) return NULL;
    *copy = *o;
    return copy;
}

/* Chooses the base of a file in its own step: the file with partners for most of its bytes. *is 0: no file fits. */
static int find_sibling(const job *j, size_t number, pairs *known, store_object *copy, int *is)
{
    const sibling *x = &j->siblings.files[number];
    const store_object *o, *chain[CHAIN_MAX];
    uint64_t *bytes;
    unsigned most = 0;
    size_t i;
    if (!x->base_count) return 0;
    *known = x->found;
    known->list = (pair *)malloc((x->found.count + 1) * sizeof *known->list);
    bytes = (uint64_t *)calloc(x->base_count, sizeof *bytes);
    for (i = 0; known->list && bytes && i < x->found.count; i++) {
        const pair *a = &x->found.list[i];
        if (a->kind != PAIR_FOUND) continue;
        bytes[a->base] += a->bytes;
        if (bytes[a->base] > bytes[most]) most = a->base;
    }
    for (i = 0; known->list && bytes && i < x->found.count; i++) {
        pair *a = &known->list[i];
        *a = x->found.list[i];
        if (a->kind != PAIR_FOUND) continue;
        if (a->base != most) a->kind = PAIR_ABSENT;
        a->base = 0;
    }
    free(bytes);
    if (!known->list || !bytes) return fault_memory(j->f);
    o = manifest_object(&j->store.m, j->contents[x->bases[most]]);
    *is = o && o->tensors && manifest_chain(&j->store.m, o, chain) < j->o->max_chain;
    if (*is) *copy = *o;
    return 0;
}

/* *is is 1 if an object has the content of this file. If they only have the same id, either the object is damaged, which is a
 * warning, or two contents have one id. Only one of these can be stored, so that is an error. */
static int is_stored(const job *j, const input *in, const store_object *o, int *is)
{
    char *path = store_object_path(&j->store, o, j->f);
    fault why;
    base b;
    int failed = !path;
    *is = 0;
    base_clear(&b);
    memset(&why, 0, sizeof why);
    if (failed) return 1;
    if (o->tensors ? !store_restore(&j->store, j->codec, o, &b, &why)
                   : !store_read_through(path, &why) && !input_open(&b.in, path, &why) && (!b.in.size || !input_map(&b.in, &why))) {
        if (b.in.size == in->size && (!in->size || !memcmp(b.in.map, in->map, (size_t)in->size))) *is = 1;
        else if (store_id(&b.in) == o->id) failed = fault_set(j->f, "cannot be stored: another file in the store has its id, %016" PRIx64, o->id);
    }
    base_close(&b);
    if (!failed && !*is)
        warn(&j->codec->used, path, why.passes ? "cannot be read, and is written anew"
                                               : "is damaged, and written anew; bitsnap verify says whether there is more");
    free(path);
    return failed;
}

static int has_tensor_name(const walk_entry *e)
{
    static const char suffix[] = ".safetensors";
    const size_t size = strlen(e->name), cut = sizeof suffix - 1;
    return e->kind == FOUND_FILE && size >= cut && !strcmp(e->name + size - cut, suffix);
}

/* Returns 1 if the file is a .safetensors file that can be compressed. Others of that name are stored as copies. */
static int is_tensor_file(const job *j, const input *in, const walk_entry *e)
{
    char text[768];
    header h;
    input again;
    fault why;
    int failed;
    if (!has_tensor_name(e)) return 0;
    memset(&h, 0, sizeof h);
    memset(&why, 0, sizeof why);
    if (input_again(in, &again, &why)) return 0;
    failed = header_read(&h, &again, &why);
    header_free(&h);
    input_close(&again);
    (void)snprintf(text, sizeof text, "%s; kept as it is", why.text);
    if (failed) warn(&j->codec->used, e->path, text);
    return !failed;
}

static int put_copy(const job *j, const input *in, store_object *x)
{
    char *path = store_object_path(&j->store, x, j->f);
    input again = { .fd = -1 };
    output out = { .fd = -1 };
    int failed = !path || note(j, x, NULL) || input_again(in, &again, j->f) || output_open(&out, path, 1, in, &j->codec->used, j->f);
    output_keep_time(&out);
    failed = failed || spool_copy(&out, &again, j->f) || output_commit(&out, j->f);
    if (failed) output_discard(&out);
    input_close(&again);
    x->bytes = x->size;
    free(path);
    return failed;
}

/* Stores a tensor file: a delta to a file of the step before or of this step, or whole. */
static int put_tensor_file(const job *j, const input *in, const walk_entry *e, int known, store_object *x)
{
    const size_t number = j->sibling[e - j->in.at];
    store_object copy;
    const store_object *from = known ? NULL : find_base(j, in, e->name, &copy);
    pairs partners = { 0 };
    int failed = 0, beside = 0;
    if (!known && !from && number != SIBLING_NONE && stamp_is_same(&in->stamp, &j->siblings.files[number].stamp))
        failed = find_sibling(j, number, &partners, &copy, &beside);
    failed = failed || put_tensors(j, in, e->path, x, beside ? &copy : from, beside ? &partners : NULL);
    free(partners.list);
    return failed;
}

static int put_content(job *j, input *in, const walk_entry *e, uint64_t *id)
{
    store_object x, *known;
    int is = 0, failed;
    if (in->size && input_map(in, j->f)) return 1;
    memset(&x, 0, sizeof x);
    x.size = in->size;
    x.id = *id = store_id(in);
    if (j->sibling[e - j->in.at] != SIBLING_NONE) j->contents[j->sibling[e - j->in.at]] = x.id;
    known = manifest_object(&j->store.m, x.id);
    if (known && is_stored(j, in, known, &is)) return 1;
    if (is) return input_check_unchanged(in, j->f);
    if (is_tensor_file(j, in, e)) failed = put_tensor_file(j, in, e, known != NULL, &x);
    else failed = put_copy(j, in, &x);
    if (failed || input_check_unchanged(in, j->f)) return 1;
    j->objects++;
    j->bytes_out += x.bytes;
    if (known) *known = x;
    else known = manifest_add_object(&j->store.m, &x, j->f);
    return !known;
}

static int put_file(job *j, const walk_entry *e)
{
    input in;
    uint64_t id = 0;
    store_entry *entry;
    int failed;
    if (input_open(&in, e->path, j->f)) return fail(j, e->path);
    failed = stamp_is_same(&in.stamp, &e->stamp) ? put_content(j, &in, e, &id) : fault_set(j->f, "was changed or replaced while this command ran");
    j->files++;
    j->bytes_in += in.size;
    input_close(&in);
    if (failed) return fail(j, e->path);
    entry = step_add(&j->step, ENTRY_FILE, e->name, e->mode & 0777, j->f);
    if (entry) entry->id = id;
    return !entry;
}

static int is_text(const char *name)
{
    const unsigned char *p = (const unsigned char *)name, *end = p + strlen(name);
    size_t n = 1;
    for (; p < end && n; p += n) n = bitsnap_utf8_size(p, end);
    return n != 0;
}

static int put_entry(job *j, const walk_entry *e)
{
    store_entry *entry;
    if (e->kind == FOUND_OTHER || (e->kind == FOUND_LINK && (e->leads_out || !is_text(e->text) || !manifest_link_is_good(e->name, e->text)))) {
        warn(&j->codec->used, e->path, e->kind == FOUND_LINK ? "is a link that leads out of the folder, or nowhere: it is left out (-L follows it)"
                                                              : "is not a file, folder or link: it is left out");
        return 0;
    }
    if (!is_text(e->name) || !manifest_path_is_good(e->name))
        return fault_set(j->f, "has a name that is not UTF-8, or too long; rename it") && fail(j, e->path);
    if (e->kind == FOUND_FILE) return put_file(j, e);
    entry = step_add(&j->step, e->kind == FOUND_LINK ? ENTRY_LINK : ENTRY_FOLDER, e->name, e->mode & 0777, j->f);
    if (!entry) return 1;
    if (e->kind == FOUND_LINK && !(entry->to = strdup(e->text))) return fault_memory(j->f);
    return 0;
}

/* Fails if the store is inside the folder, or the folder inside the store. */
static int check_apart(const char *store_name, const char *folder, fault *f)
{
    char *a = place_of(store_name, f), *b = a ? realpath(folder, NULL) : NULL;
    const size_t m = a ? strlen(a) : 0, n = b ? strlen(b) : 0;
    int failed = !a;
    if (a && !b) failed = fault_errno(f, "cannot be opened") && fault_in(f, folder);
    if (b && !strncmp(a, b, m < n ? m : n) && (m == n || (m < n ? b[m] : a[n]) == '/' || m == 1 || n == 1))
        failed = fault_set(f, "is in %s, or contains it; keep the store elsewhere", folder);
    free(a);
    free(b);
    return failed;
}

static int choose_number(job *j)
{
    const manifest *m = &j->store.m;
    const uint64_t newest = m->step_count ? m->steps[m->step_count - 1].number : 0;
    const size_t i = manifest_find(m, j->o->step);
    j->number = j->o->step;
    if (!j->o->has_step) {
        if (newest == STEP_MAX) return fault_set(j->f, "has the largest step number already; give another number with --step");
        j->number = newest + 1;
    } else if (i < m->step_count && m->steps[i].number == j->o->step) {
        return fault_set(j->f, "has a step %" PRIu64 " already; give another number with --step", j->o->step);
    }
    j->step.number = j->number;
    return 0;
}

static int plan_siblings(job *j)
{
    const char **paths = (const char **)malloc(j->in.count * sizeof *paths);
    size_t i, n = 0;
    int failed;
    j->sibling = (size_t *)malloc(j->in.count * sizeof *j->sibling);
    j->contents = (uint64_t *)calloc(j->in.count, sizeof *j->contents);
    failed = (!paths || !j->sibling || !j->contents) && fault_memory(j->f);
    for (i = 0; i < j->in.count && !failed; i++) {
        j->sibling[i] = SIBLING_NONE;
        if (!has_tensor_name(&j->in.at[i])) continue;
        j->sibling[i] = n;
        paths[n++] = j->in.at[i].path;
    }
    failed = failed || siblings_find(&j->siblings, paths, n, 0, j->f);
    free((void *)paths);
    return failed;
}

/* Stores all of the folder. Fails if it changes at the same time. */
static int put_folder(job *j, const char *path)
{
    walk again;
    size_t i;
    int later;
    int failed = walk_folder(&j->in, path, &j->o->select, j->f);
    if (failed) return fail(j, path);
    if (!step_date(&j->step)) return fault_set(j->f, "the clock of this machine is wrong");
    j->step.mode = j->in.at[0].mode & 0777;
    if (plan_siblings(j)) return 1;
    for (later = 0; later < 2; later++) /* files with partners first, so that an equal file stored as a copy does not keep them
                                           from being packed; bases before the files that need them */
        for (i = 1; i < j->in.count; i++)
            if (j->sibling[i] != SIBLING_NONE && (j->siblings.files[j->sibling[i]].base_count != 0) == later && put_entry(j, &j->in.at[i])) return 1;
    for (i = 1; i < j->in.count; i++)
        if (!has_tensor_name(&j->in.at[i]) && put_entry(j, &j->in.at[i])) return 1;
    if (!j->files) return fault_set(j->f, "has no file that the options select") && fail(j, path);
    step_sort(&j->step);
    failed = walk_folder(&again, path, &j->o->select, j->f) || walk_check_same(&j->in, &again, j->f);
    walk_free(&again);
    return failed && fail(j, path);
}

static void report(const job *j, const char *folder, elapsed begun)
{
    char name[1100];
    summary s = { folder, name, j->bytes_in, j->bytes_out, elapsed_since(begun) };
    (void)snprintf(name, sizeof name, "%.1000s: step %" PRIu64, j->store.path, j->number);
    print_summary(j->o, &s);
    if (j->o->json) {
        json out;
        s.output = j->store.path;
        out = json_summary(j->o, &s);
        json_member_whole(&out, "step", j->number);
        json_member_whole(&out, "files", j->files);
        json_member_whole(&out, "objects", j->objects);
        json_report_end(&out);
    }
}

int command_snapshot(const options *o, codec *c, const char *path, const char *folder, fault *f)
{
    const elapsed begun = elapsed_now();
    job j;
    int failed;
    if (check_apart(path, folder, f)) return 1;
    failed = job_open(&j, o, c, path, STORE_CREATE, f) || choose_number(&j) || put_folder(&j, folder) ||
             manifest_add_step(&j.store.m, &j.step, f) || store_save(&j.store, f);
    if (!failed) report(&j, folder, begun);
    return job_close(&j, failed);
}

/* ================================================================================= PRUNE */

/* Returns 1 if --remove names the step. Nothing else then keeps it. */
static int is_named(const options *o, uint64_t number)
{
    size_t i;
    for (i = 0; i < o->removed_count; i++)
        if (o->removed[i] == number) return 1;
    return 0;
}

static int is_kept(const job *j, size_t i)
{
    const manifest *m = &j->store.m;
    if (is_named(j->o, m->steps[i].number)) return 0;
    if (!j->o->keep_last && !j->o->keep_every) return 1;
    return m->steps[i].number >= j->newest || (j->o->keep_every && m->steps[i].number % j->o->keep_every == 0);
}

/* Returns the first step that --keep-last keeps. Steps that --remove names do not count. */
static uint64_t find_newest(const job *j)
{
    const manifest *m = &j->store.m;
    uint64_t n = j->o->keep_last, newest = UINT64_MAX;
    size_t i;
    for (i = m->step_count; n && i--;)
        if (!is_named(j->o, m->steps[i].number)) newest = m->steps[i].number, n--;
    return newest;
}

/* Fails if --remove names a step that does not exist. */
static int check_named(const job *j)
{
    const manifest *m = &j->store.m;
    size_t k;
    for (k = 0; k < j->o->removed_count; k++) {
        const uint64_t number = j->o->removed[k];
        const size_t i = manifest_find(m, number);
        if (i == m->step_count || m->steps[i].number != number)
            return fault_set(j->f, "has no step %" PRIu64 "; bitsnap log lists them", number);
    }
    return 0;
}

/* Returns 1 if a step needs an object. */
static int is_needed(const manifest *m, const store_step *s, uint64_t id)
{
    const store_object *chain[CHAIN_MAX];
    size_t i, n;
    for (i = 0; i < s->count; i++)
        for (n = s->entries[i].kind == ENTRY_FILE ? manifest_chain(m, manifest_object(m, s->entries[i].id), chain) : 0; n; n--)
            if (chain[n - 1]->id == id) return 1;
    return 0;
}

/* Fails because an object cannot be read. Nothing is removed, since the content may exist only in steps that would go. */
static int refuse(const job *j, const store_object *x)
{
    const manifest *m = &j->store.m;
    char text[256];
    size_t i = 0;
    if (j->f->passes) return fault_add(j->f, "; nothing is removed");
    while (i + 1 < m->step_count && !(is_kept(j, i) && is_needed(m, &m->steps[i], x->id))) i++;
    (void)snprintf(text, sizeof text, "; step %" PRIu64 ", which is to stay, needs it; nothing is removed; "
                   "bitsnap verify says which steps are lost, --remove gives them up", m->steps[i].number);
    return fault_add(j->f, text);
}

/* Keeps the first fault, but damage replaces an error that may not recur. */
static void tell(void *context, store_object *o, const fault *why)
{
    job *j = (job *)context;
    if (j->bad && !(j->f->passes && !why->passes)) return;
    j->bad = o;
    *j->f = *why;
}

/* Decodes all objects that stay. If one is damaged, its content may exist only in steps that would go. */
static int check_kept(job *j)
{
    manifest *m = &j->store.m;
    size_t i;
    int failed;
    for (i = 0; i < m->step_count; i++)
        if (is_kept(j, i)) manifest_mark(m, &m->steps[i]);
    manifest_mark_chains(m); /* marks are OBJECT_ASKED */
    failed = store_check(&j->store, j->codec, tell, j, j->f) || (j->bad && refuse(j, j->bad));
    for (i = 0; i < m->object_count; i++) m->objects[i].used = 0;
    return failed;
}

/* Rewrites an object if its base will be removed: as a delta to the next object of its chain that stays, or whole. */
static int join(const job *j, store_object *x)
{
    const store_object *from = x;
    store_object to = *x, next;
    char *path = NULL;
    struct stat st;
    base b;
    int failed;
    while (from && (from == x || !from->used)) from = from->has_base ? manifest_object(&j->store.m, from->base) : NULL;
    if (!x->has_base || (from && from->id == x->base)) return 0;
    if (from) next = *from;
    failed = store_restore(&j->store, j->codec, x, &b, j->f) && refuse(j, x);
    path = failed ? NULL : store_object_path(&j->store, x, j->f);
    failed = !path || (stat(path, &st) && fault_errno(j->f, "cannot be examined") && fail(j, path));
    if (!failed) { /* the object keeps the permissions and owner of the file */
        b.in.owned = 1;
        b.in.mode = st.st_mode & 0777;
        b.in.owner = st.st_uid;
        b.in.group = st.st_gid;
        failed = put_tensors(j, &b.in, path, &to, from ? &next : NULL, NULL);
    }
    free(path);
    base_close(&b);
    if (!failed) *x = to;
    return failed;
}

/* Prints the steps that were or would be removed, as JSON or as one line. */
static void report_prune(const job *j, const uint64_t *gone, size_t count, size_t kept, uint64_t before)
{
    size_t i;
    if (j->o->json) {
        json out = json_report(j->o->dry_run ? "dry-run" : "prune", j->store.path);
        json_member_list(&out, "removed");
        for (i = 0; i < count; i++) json_whole(&out, gone[i]);
        json_end(&out, ']');
        json_member_whole(&out, "steps", kept);
        if (!j->o->dry_run) {
            json_member_whole(&out, "bytes_in", before);
            json_member_whole(&out, "bytes_out", manifest_bytes(&j->store.m));
        }
        json_report_end(&out);
        return;
    }
    if (j->o->quiet) return;
    (void)print_text(stdout, j->store.path, strlen(j->store.path));
    if (!count) (void)fputs(": nothing to remove", stdout);
    else (void)fputs(j->o->dry_run ? ": would be removed:" : ": removed:", stdout);
    for (i = 0; i < count; i++) (void)printf(" %" PRIu64, gone[i]);
    (void)putchar('\n');
}

/* Rewrites the objects whose bases will go, then removes the steps. */
static int remove_steps(job *j)
{
    manifest *m = &j->store.m;
    size_t i;
    for (i = 0; i < m->step_count; i++)
        if (is_kept(j, i)) manifest_mark(m, &m->steps[i]);
    for (i = 0; i < m->object_count; i++)
        if (m->objects[i].used && join(j, &m->objects[i])) return 1;
    manifest_remove_unmarked(m);
    for (i = 0; i < m->step_count;)
        if (is_kept(j, i)) i++;
        else manifest_remove_step(m, i);
    return store_save(&j->store, j->f);
}

static int prune(job *j)
{
    const manifest *m = &j->store.m;
    const uint64_t before = manifest_bytes(m);
    uint64_t *gone;
    size_t i, kept = 0, count = 0;
    int failed = 0;
    if (check_named(j)) return 1;
    gone = (uint64_t *)malloc((m->step_count + 1) * sizeof *gone);
    if (!gone) return fault_memory(j->f);
    j->newest = find_newest(j);
    for (i = 0; i < m->step_count; i++)
        if (is_kept(j, i)) kept++;
        else gone[count++] = m->steps[i].number;
    if (count && !kept && j->o->removed)
        failed = fault_set(j->f, "would have no step left; to drop all, remove the folder");
    else if (count && !kept)
        failed = fault_set(j->f, "would have no step left: none is a multiple of %" PRIu64 "; give --keep-last, too", j->o->keep_every);
    else if (count)
        failed = check_kept(j) || (!j->o->dry_run && remove_steps(j));
    if (!failed) report_prune(j, gone, count, kept, before);
    free(gone);
    return failed;
}

int command_prune(const options *o, codec *c, const char *path, fault *f)
{
    job j;
    return job_close(&j, job_open(&j, o, c, path, STORE_CHANGE, f) || prune(&j));
}

/* ================================================================================= FSCK */

typedef struct losses {
    const char *path;
    size_t count;
} losses;

static void tell_lost(void *context, const char *name, const char *what)
{
    losses *l = (losses *)context;
    char path[1100];
    fault f;
    l->count++;
    memset(&f, 0, sizeof f);
    (void)snprintf(path, sizeof path, "%.800s/" OBJECTS "/%.200s", l->path, name);
    (void)fault_set(&f, "%s", what);
    (void)fault_in(&f, path);
    fault_print(&f);
}

static void report_fsck(const job *j, int was_lost)
{
    const manifest *m = &j->store.m;
    if (j->o->json) {
        json out = json_report(j->o->dry_run ? "dry-run" : "fsck", j->store.path);
        json_member_truth(&out, "rebuilt", was_lost);
        json_member_whole(&out, "steps", m->step_count);
        json_member_whole(&out, "objects", m->object_count);
        json_report_end(&out);
        return;
    }
    if (j->o->quiet) return;
    (void)print_text(stdout, j->store.path, strlen(j->store.path));
    (void)printf(": " MANIFEST " %s, steps: %zu, objects: %zu\n", !was_lost ? "is good" : j->o->dry_run ? "would be made anew" : "is made anew",
                 m->step_count, m->object_count);
}

/* A good manifest is written again, so that steps of earlier versions get their records. */
int command_fsck(const options *o, codec *c, const char *path, fault *f)
{
    losses l = { .path = path };
    job j;
    int failed = job_open(&j, o, c, path, STORE_REBUILD, f);
    const int was_lost = j.store.lost;
    if (!failed && was_lost) {
        memset(f, 0, sizeof *f);
        warn(&c->used, *j.store.why.file ? j.store.why.file : path, j.store.why.text);
        failed = store_rebuild(&j.store, o->dry_run, tell_lost, &l, f);
    } else if (!failed && !o->dry_run) {
        failed = store_save(&j.store, f);
    }
    if (!failed) report_fsck(&j, was_lost);
    if (!failed && l.count)
        failed = fault_set(f, "%zu records of steps cannot be used, see above; all other steps are in " MANIFEST "; bitsnap verify checks them", l.count);
    store_close(&j.store);
    return failed;
}
