/* steps.c - the commands log, restore and verify: what reads a store of snapshots.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"
#include "../console/progress.h"
#include "../store/contents.h"
#include "../system/directory.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ================================================================================= LOG */

typedef struct step_sums {
    size_t files, tensors, deltas, chain; /* chain: number of objects in the longest chain */
    uint64_t size, bytes;                 /* of its files; of objects that no earlier step has */
    int has_base;
    uint64_t base;                        /* the newest earlier step with a base of its objects */
} step_sums;

/* Marks objects that have been counted. */
static step_sums add_up(const manifest *m, size_t number)
{
    const store_step *s = &m->steps[number];
    const store_object *chain[CHAIN_MAX];
    step_sums sums = { 0 };
    size_t i, n, k;
    for (i = 0; i < s->count; i++) {
        store_object *o = s->entries[i].kind == ENTRY_FILE ? manifest_object(m, s->entries[i].id) : NULL;
        if (!o) continue;
        n = manifest_chain(m, o, chain);
        sums.files++;
        sums.size += o->size;
        if (o->tensors) sums.tensors++;
        if (n > sums.chain) sums.chain = n;
        if (!o->used) sums.bytes += o->bytes;
        o->used = 1;
        if (!o->has_base) continue;
        sums.deltas++;
        for (k = number; k-- && !(sums.has_base && m->steps[k].number <= sums.base);)
            if (step_has(&m->steps[k], o->base)) {
                sums.has_base = 1;
                sums.base = m->steps[k].number;
                break;
            }
    }
    return sums;
}

static const char *kind_of(const step_sums *x)
{
    return !x->tensors ? "files" : !x->deltas ? "whole" : x->deltas < x->tensors ? "mixed" : "delta";
}

static double ratio_of(uint64_t size, uint64_t bytes) { return bytes ? (double)size / (double)bytes : 0; }

static void print_log(const options *o, const manifest *m)
{
    char a[AMOUNT_TEXT], b[AMOUNT_TEXT];
    uint64_t size = 0;
    size_t i;
    const int wide = o->bytes ? 20 : 9; /* columns of an amount; --bytes needs 14 digits and " bytes" */
    if (!o->quiet)
        (void)printf("%6s %-20s %-5s %6s %5s %*s %*s %6s %s\n", "step", "time", "kind", "base", "files", wide, "size", wide, "bytes", "ratio", "chain");
    for (i = 0; i < m->step_count; i++) {
        const store_step *s = &m->steps[i];
        const step_sums x = add_up(m, i);
        size += x.size;
        if (o->quiet) continue;
        (void)printf("%6" PRIu64 " %-20s %-5s ", s->number, s->time, kind_of(&x));
        if (x.has_base) (void)printf("%6" PRIu64, x.base);
        else (void)printf("%6s", "-");
        (void)printf(" %5zu %*s %*s", x.files, wide, amount(o, a, x.size), wide, amount(o, b, x.bytes));
        if (x.bytes) (void)printf(" %6.2f", ratio_of(x.size, x.bytes));
        else (void)printf(" %6s", "-");
        (void)printf(" %5zu\n", x.chain);
    }
    (void)printf("steps: %zu, %s -> %s, ratio %.4f\n", m->step_count, amount(o, a, size), amount(o, b, manifest_bytes(m)), ratio_of(size, manifest_bytes(m)));
}

static void print_log_json(const manifest *m, const char *path)
{
    uint64_t size = 0;
    json out;
    size_t i;
    out = json_report("log", path);
    json_member_list(&out, "steps");
    for (i = 0; i < m->step_count; i++) {
        const store_step *s = &m->steps[i];
        const step_sums x = add_up(m, i);
        json_begin(&out, '{');
        json_member_whole(&out, "step", s->number);
        json_member_string(&out, "time", s->time);
        json_member_string(&out, "kind", kind_of(&x));
        if (x.has_base) json_member_whole(&out, "base", x.base);
        json_member_whole(&out, "files", x.files);
        json_member_whole(&out, "bytes_in", x.size);
        json_member_whole(&out, "bytes_out", x.bytes);
        if (x.bytes) json_member_real(&out, "ratio", ratio_of(x.size, x.bytes));
        json_member_whole(&out, "chain", x.chain);
        json_end(&out, '}');
        size += x.size;
    }
    json_end(&out, ']');
    json_member_whole(&out, "bytes_in", size);
    json_member_whole(&out, "bytes_out", manifest_bytes(m));
    json_member_real(&out, "ratio", ratio_of(size, manifest_bytes(m)));
    json_report_end(&out);
}

int command_log(const options *o, const char *path, fault *f)
{
    store s;
    int failed = store_open(&s, path, STORE_LOOK, "log", f);
    if (!failed && o->json) print_log_json(&s.m, path);
    else if (!failed) print_log(o, &s.m);
    if (!failed && s.lost) {
        *f = s.why;
        failed = fault_add(f, "; these are the steps of " MANIFEST_BEFORE ", which lacks the last change");
    }
    store_close(&s);
    return failed;
}

/* ================================================================================= RESTORE */

/* Finds the step of this number, or for "latest" the newest. */
static int find_step(const manifest *m, const char *text, const store_step **s, fault *f)
{
    const size_t digits = strspn(text, "0123456789");
    const uint64_t number = digits ? strtoull(text, NULL, 10) : 0;
    const size_t i = manifest_find(m, number);
    if (!m->step_count) return fault_set(f, "has no steps");
    if (!strcmp(text, "latest")) {
        *s = &m->steps[m->step_count - 1];
        return 0;
    }
    if (!digits || text[digits]) return fault_set(f, "restore needs the number of a step, or latest, not '%.100s'", text);
    if (digits > STEP_DIGITS || i == m->step_count || m->steps[i].number != number) return fault_set(f, "has no step %.100s; bitsnap log lists them", text);
    *s = &m->steps[i];
    return 0;
}

static int restore_file(const store *s, codec *c, const store_entry *e, const char *target, fault *f)
{
    const store_object *o = manifest_object(&s->m, e->id);
    char *path = store_object_path(s, o, f);
    input in;
    output out = { .fd = -1 };
    int failed = !path;
    if (failed) return 1;
    failed = input_open(&in, path, f) || input_note(&in, path, &c->used, f) || output_open(&out, target, 0, &in, &c->used, f);
    output_keep_time(&out);
    failed = failed || store_write(s, c, o, &in, &out, f) || input_check_unchanged(&in, f) || output_commit(&out, f);
    if (failed) output_discard(&out);
    input_close(&in);
    if (!failed && store_check_content(target, o, f)) failed = fault_in(f, path); /* the object is damaged, not the output */
    if (!failed && chmod(target, e->mode)) warn_errno(&c->used, target, "its permissions cannot be set");
    if (failed) (void)fault_about(f, path);
    free(path);
    return failed;
}

static int restore_entry(const store *s, codec *c, const directory *d, const store_entry *e, fault *f)
{
    char *path = directory_path(d, e->path, f);
    int failed = !path;
    if (failed) return 1;
    if (e->kind == ENTRY_FILE) failed = restore_file(s, c, e, path, f);
    else if (e->kind == ENTRY_FOLDER ? mkdir(path, S_IRWXU) : symlink(e->to, path)) failed = fault_errno(f, "cannot be made") && fault_about(f, path);
    free(path);
    return failed;
}

/* Sets the permissions of folders last, since they may forbid to make files in them. */
static void dress(const directory *d, const char *name, unsigned mode, const used_files *u)
{
    fault ignored;
    char *path = directory_path(d, name, &ignored);
    if (path && chmod(path, mode)) warn_errno(u, path, "its permissions cannot be set");
    free(path);
}

static int restore_step(const options *o, const store *s, codec *c, const store_step *step, summary *sum, fault *f)
{
    directory d;
    size_t i;
    int failed;
    sum->bytes_in = sum->bytes_out = 0;
    for (i = 0; i < step->count; i++) {
        const store_object *x = step->entries[i].kind == ENTRY_FILE ? manifest_object(&s->m, step->entries[i].id) : NULL;
        const store_object *chain[CHAIN_MAX];
        size_t n = x ? manifest_chain(&s->m, x, chain) : 0;
        if (x) sum->bytes_out += x->size;
        while (n) sum->bytes_in += chain[--n]->bytes;
    }
    if (file_check_limit(sum->bytes_out, sum->bytes_out, sum->bytes_in, o->max_output, f)) return 1;
    failed = directory_open(&d, o->output, o->force, s->path, "restore", &c->used, f) || directory_begin(&d, f);
    for (i = 0; i < step->count && !failed; i++) failed = restore_entry(s, c, &d, &step->entries[i], f);
    if (!failed) {
        for (i = step->count; i--;)
            if (step->entries[i].kind == ENTRY_FOLDER) dress(&d, step->entries[i].path, step->entries[i].mode, &c->used);
        dress(&d, "", step->mode, &c->used);
        failed = directory_commit(&d, f);
    }
    (void)directory_close(&d);
    return failed;
}

int command_restore(const options *o, codec *c, const char *path, const char *number, fault *f)
{
    const elapsed begun = elapsed_now();
    const store_step *step = NULL;
    summary sum;
    store s;
    int failed = store_open(&s, path, STORE_READ, "restore", f);
    if (!failed && s.lost && !strcmp(number, "latest")) *f = s.why, failed = 1; /* the newest step is not known */
    if (!failed && s.lost) {
        (void)fault_add(&s.why, "; taken is " MANIFEST_BEFORE);
        warn(&c->used, *s.why.file ? s.why.file : path, s.why.text);
    }
    failed = failed || find_step(&s.m, number, &step, f) || restore_step(o, &s, c, step, &sum, f);
    if (!failed) {
        sum.input = path;
        sum.output = o->output;
        sum.time = elapsed_since(begun);
        print_summary(o, &sum);
        if (o->json) {
            json out = json_summary(o, &sum);
            json_member_whole(&out, "step", step->number);
            json_report_end(&out);
        }
    }
    store_close(&s);
    return failed;
}

/* ================================================================================= VERIFY */

typedef struct verification {
    const options *o;
    codec *codec;
    store store;
    size_t bad;
    json out;
} verification;

static void tell(void *context, store_object *o, const fault *why)
{
    verification *v = (verification *)context;
    v->bad += o->used == OBJECT_DAMAGED;
    if (!v->o->json) {
        (void)fflush(stdout);
        fault_print(why);
        return;
    }
    json_begin(&v->out, '{');
    json_member_string(&v->out, "file", why->file);
    json_member_string(&v->out, "error", why->text);
    json_end(&v->out, '}');
}

/* Returns the mark of an object, or for an unchecked delta the mark of its base. */
static int mark_of(const manifest *m, const store_object *o)
{
    while (o->used == OBJECT_ASKED) o = manifest_object(m, o->base);
    return o->used;
}

static int is_lost(const manifest *m, const store_step *s)
{
    size_t i;
    for (i = 0; i < s->count; i++)
        if (s->entries[i].kind == ENTRY_FILE && mark_of(m, manifest_object(m, s->entries[i].id)) == OBJECT_DAMAGED) return 1;
    return 0;
}

/* Reports the steps that cannot be restored. */
static int report_verify(verification *v, fault *f)
{
    const manifest *m = &v->store.m;
    char text[300] = "", more[48] = "";
    size_t i, lost = 0, at = 0, unread = 0;
    for (i = 0; i < m->object_count; i++) unread += mark_of(m, &m->objects[i]) == OBJECT_UNREAD;
    if (unread) (void)snprintf(more, sizeof more, ", %zu not verified", unread);
    if (v->o->json) {
        json_end(&v->out, ']');
        json_member_list(&v->out, "lost_steps");
    }
    for (i = 0; i < m->step_count; i++) {
        if (!is_lost(m, &m->steps[i])) continue;
        if (v->o->json) json_whole(&v->out, m->steps[i].number);
        if (lost++ && at < sizeof text - 32) at += (size_t)snprintf(text + at, sizeof text - at, ",");
        if (at < sizeof text - 32) at += (size_t)snprintf(text + at, sizeof text - at, "%" PRIu64, m->steps[i].number);
    }
    if (v->o->json) {
        json_end(&v->out, ']');
        json_member_whole(&v->out, "steps", m->step_count);
        json_member_whole(&v->out, "objects", m->object_count);
        json_member_whole(&v->out, "not_verified", unread);
        json_member_truth(&v->out, "ok", !v->bad && !unread);
        json_report_end(&v->out);
    }
    if (unread && !v->bad)
        return fault_set(f, "%zu of %zu objects not verified: they, or objects that they are deltas to, could not be read, perhaps only now; "
                         "none is known to be damaged", unread, m->object_count);
    if (v->bad && !lost) return fault_set(f, "%zu of %zu objects damaged, which no step needs%s", v->bad, m->object_count, more);
    if (v->bad)
        return fault_set(f, "%zu of %zu objects damaged%s; %zu of %zu steps cannot be restored: %s%s; a snapshot of their contents "
                         "repairs them, bitsnap prune --remove gives them up", v->bad, m->object_count, more, lost, m->step_count,
                         text, at < sizeof text - 32 ? "" : " ...");
    if (v->o->json || v->o->quiet) return 0;
    (void)print_text(stdout, v->store.path, strlen(v->store.path));
    (void)printf(": ok, steps: %zu, objects: %zu\n", m->step_count, m->object_count);
    return 0;
}

static int verify(verification *v, fault *f)
{
    char stray[256], text[400];
    size_t strays, i;
    fault ignored;
    int failed;
    for (i = 0; i < v->store.m.object_count; i++) v->store.m.objects[i].used = OBJECT_ASKED;
    if (v->o->json) {
        v->out = json_report("verify", v->store.path);
        json_member_list(&v->out, "problems");
    }
    failed = store_check(&v->store, v->codec, tell, v, f) || report_verify(v, f);
    if (!store_strays(&v->store, stray, &strays, &ignored) && strays) {
        (void)snprintf(text, sizeof text, "%zu files in it belong to no step, such as %.255s; look at them, and remove them if nothing needs them", strays, stray);
        warn(&v->codec->used, v->store.path, text);
    }
    if (failed && v->o->json) { /* the report above is the JSON object of the failure */
        (void)fault_in(f, v->store.path);
        fault_print(f);
        memset(f, 0, sizeof *f);
    }
    return failed;
}

int command_verify(const options *o, codec *c, const char *path, fault *f)
{
    verification v = { .o = o, .codec = c };
    int failed;
    failed = store_open(&v.store, path, STORE_READ, "verify", f);
    if (!failed && v.store.lost) *f = v.store.why, failed = 1;
    failed = failed || verify(&v, f);
    store_close(&v.store);
    return failed;
}
