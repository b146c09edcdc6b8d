/* manifest.c - the manifest of a store of snapshots: its steps, the files of each step, and the objects that hold them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "manifest.h"

#include "bitsnap.h"

#include "../console/json.h"
#include "../system/paths.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define VERSION 1u
#define SIZE_MOST ((off_t)1 << 30)

/* ================================================================================= RECORDS */

/* Members of all objects: texts, then numbers, then arrays. */
enum { FILE_NAME, FOLDER, LINK, TO, ID, BASE, KIND, MODE, TIME, CHECK, TEXTS, STEP = TEXTS, SIZE, BYTES, VERSION_OF, ARRAYS, ENTRIES = ARRAYS, ALL_OBJECTS, STEPS, MEMBERS };

static const char *const names[MEMBERS] = {
    "file", "folder", "link", "to", "id", "base", "kind", "mode", "time", "check", "step", "size", "bytes", "bitsnap_store", "entries", "objects", "steps"
};

#define HAS(member) (1u << (member))

typedef struct record {
    unsigned has;
    char *texts[TEXTS];
    uint64_t numbers[ARRAYS - TEXTS];
} record;

static void record_free(record *x)
{
    size_t i;
    for (i = 0; i < TEXTS; i++) free(x->texts[i]);
}

typedef int (*item_reader)(json_reader *r, manifest *m);

static int read_array(json_reader *r, manifest *m, item_reader item)
{
    if (json_expect(r, '[')) return 1;
    if (json_accept(r, ']')) return 0;
    do if (item(r, m)) return 1;
    while (json_accept(r, ','));
    return json_expect(r, ']');
}

static int read_entry(json_reader *r, manifest *m);
static int read_object(json_reader *r, manifest *m);
static int read_step(json_reader *r, manifest *m);

static int read_member(json_reader *r, manifest *m, record *x, unsigned may, char *text)
{
    static const item_reader items[MEMBERS - ARRAYS] = { read_entry, read_object, read_step };
    size_t i = 0;
    if (json_read_text(r, text)) return 1;
    while (i < MEMBERS && strcmp(names[i], text)) i++;
    if (i == MEMBERS || !(may & HAS(i))) return json_bad(r, "it has a member that this version does not know");
    if (x->has & HAS(i)) return json_bad(r, "a member appears twice");
    x->has |= HAS(i);
    if (json_expect(r, ':')) return 1;
    if (i >= ARRAYS) return read_array(r, m, items[i - ARRAYS]);
    if (i >= TEXTS) {
        if (json_read_whole(r, STEP_MAX, &x->numbers[i - TEXTS])) return 1;
        return i == VERSION_OF && x->numbers[i - TEXTS] != VERSION ? fault_set(r->f, "has version %" PRIu64 ", this program knows %u", x->numbers[i - TEXTS], VERSION) : 0;
    }
    if (json_read_text(r, text)) return 1;
    x->texts[i] = strdup(text);
    return x->texts[i] ? 0 : fault_memory(r->f);
}

/* Parses an object with all members of `must`, optionally some of `may`, and no others. Call record_free after failures, too. */
static int read_record(json_reader *r, manifest *m, record *x, unsigned must, unsigned may)
{
    char *text = (char *)malloc(JSON_TEXT_MOST + 1);
    int failed;
    memset(x, 0, sizeof *x);
    if (!text) return fault_memory(r->f);
    failed = json_expect(r, '{');
    do failed = failed || read_member(r, m, x, must | may, text);
    while (!failed && json_accept(r, ','));
    free(text);
    return failed || json_expect(r, '}') || ((x->has & must) != must && json_bad(r, "a member is missing"));
}

static int read_id(const json_reader *r, const char *text, uint64_t *id)
{
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return json_bad(r, "an id is none");
    *id = strtoull(text, NULL, 16);
    return 0;
}

static int read_mode(const json_reader *r, const char *text, unsigned *mode)
{
    if (strlen(text) != 3 || strspn(text, "01234567") != 3) return json_bad(r, "a mode is none");
    *mode = (unsigned)strtoul(text, NULL, 8);
    return 0;
}

static int take_object(const json_reader *r, manifest *m, const record *x)
{
    store_object o = { 0 }, *all;
    o.size = x->numbers[SIZE - TEXTS];
    o.bytes = x->numbers[BYTES - TEXTS];
    o.tensors = !strcmp(x->texts[KIND], "tensors");
    o.has_base = x->texts[BASE] != NULL;
    if (read_id(r, x->texts[ID], &o.id) || (o.has_base && read_id(r, x->texts[BASE], &o.base))) return 1;
    if (!o.tensors && (o.has_base || strcmp(x->texts[KIND], "copy"))) return json_bad(r, "an object is of no kind");
    all = (store_object *)grown(m->objects, m->object_count, &m->object_capacity, sizeof *all, r->f);
    if (!all) return 1;
    m->objects = all;
    all[m->object_count++] = o; /* sorted once all are read */
    return 0;
}

static int read_object(json_reader *r, manifest *m)
{
    record x;
    const int failed = read_record(r, m, &x, HAS(ID) | HAS(KIND) | HAS(SIZE) | HAS(BYTES), HAS(BASE)) || take_object(r, m, &x);
    record_free(&x);
    return failed;
}

/* Adds an entry to the last step. */
static int take_entry(const json_reader *r, manifest *m, const record *x)
{
    store_step *s = &m->steps[m->step_count - 1];
    const entry_kind kind = x->has & HAS(FILE_NAME) ? ENTRY_FILE : x->has & HAS(FOLDER) ? ENTRY_FOLDER : ENTRY_LINK;
    const unsigned whole[] = { HAS(FILE_NAME) | HAS(MODE) | HAS(ID), HAS(FOLDER) | HAS(MODE), HAS(LINK) | HAS(TO) };
    store_entry *e;
    unsigned mode = 0;
    uint64_t id = 0;
    if (x->has != whole[kind]) return json_bad(r, "an entry has too few or too many members");
    if (kind != ENTRY_LINK && read_mode(r, x->texts[MODE], &mode)) return 1;
    if (kind == ENTRY_FILE && read_id(r, x->texts[ID], &id)) return 1;
    if (!manifest_path_is_good(x->texts[kind])) return json_bad(r, "a path is invalid, or leads out of its folder");
    if (kind == ENTRY_LINK && !manifest_link_is_good(x->texts[LINK], x->texts[TO])) return json_bad(r, "a link leads out of its folder");
    e = step_add(s, kind, x->texts[kind], mode, r->f);
    if (!e) return 1;
    e->id = id;
    if (kind == ENTRY_LINK && !(e->to = strdup(x->texts[TO]))) return fault_memory(r->f);
    return 0;
}

static int read_entry(json_reader *r, manifest *m)
{
    record x;
    const int failed = read_record(r, m, &x, 0, HAS(FILE_NAME) | HAS(FOLDER) | HAS(LINK) | HAS(TO) | HAS(MODE) | HAS(ID)) || take_entry(r, m, &x);
    record_free(&x);
    return failed;
}

static int is_time(const char *text)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    size_t i;
    for (i = 0; form[i]; i++)
        if (form[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != form[i]) return 0;
    return !text[i];
}

/* Its entries go to the place where it will be; what it is follows. */
static int read_step(json_reader *r, manifest *m)
{
    store_step *s = (store_step *)grown(m->steps, m->step_count, &m->step_capacity, sizeof *s, r->f);
    record x;
    int failed;
    if (!s) return 1;
    m->steps = s;
    s += m->step_count++;
    failed = read_record(r, m, &x, HAS(STEP) | HAS(TIME) | HAS(MODE) | HAS(ENTRIES), 0);
    if (!failed && !is_time(x.texts[TIME])) failed = json_bad(r, "a time is none");
    failed = failed || read_mode(r, x.texts[MODE], &s->mode);
    if (!failed) {
        memcpy(s->time, x.texts[TIME], sizeof s->time);
        s->number = x.numbers[STEP - TEXTS];
        s->recorded = 1;
        if (m->step_count > 1 && s[-1].number >= s->number) failed = json_bad(r, "a step appears twice, or out of order");
    }
    record_free(&x);
    return failed;
}

/* ================================================================================= WHAT IT SAYS */

/* Checks that each path is there once and in an existing folder, and that each file has an object. */
static int check_step(const manifest *m, const store_step *s, fault *f)
{
    char folder[JSON_TEXT_MOST + 1];
    size_t i;
    for (i = 0; i < s->count; i++) {
        const store_entry *e = &s->entries[i], *above;
        const char *slash = strrchr(e->path, '/');
        if (i && !strcmp(e[-1].path, e->path)) break;
        if (e->kind == ENTRY_FILE && !manifest_object(m, e->id)) break;
        if (!slash) continue;
        memcpy(folder, e->path, (size_t)(slash - e->path));
        folder[slash - e->path] = 0;
        above = step_entry(s, folder);
        if (!above || above->kind != ENTRY_FOLDER) break;
    }
    if (i == s->count) return 0;
    return fault_set(f, "is damaged: in step %" PRIu64 " %.200s appears twice, or is in no listed folder, or in no object", s->number, s->entries[i].path);
}

static int check_object(const manifest *m, const store_object *x, fault *f)
{
    const store_object *base = x;
    size_t n;
    for (n = 1; base && base->has_base; n++) {
        if (n > CHAIN_MAX - 1) return fault_set(f, "is damaged: object %016" PRIx64 " is a delta to itself, or needs more than %u others", x->id, CHAIN_MAX);
        base = manifest_object(m, base->base);
    }
    return base && base->tensors == x->tensors ? 0 : fault_set(f, "is damaged: object %016" PRIx64 " is a delta to an object that is not listed", x->id);
}

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const store_object *)a)->id, y = ((const store_object *)b)->id;
    return (x > y) - (x < y);
}

/* Parses the last member, a check of all bytes before it, and the end of the object. */
#define TAIL_SIZE 28u

static void print_tail(char tail[TAIL_SIZE + 1], const char *text, size_t size)
{
    (void)snprintf(tail, TAIL_SIZE + 1, "\"check\":\"%016" PRIx64 "\"}\n", bitsnap_hash(text, size));
}

static int check_tail(const char *text, size_t size, fault *f)
{
    char tail[TAIL_SIZE + 1] = "";
    if (size >= TAIL_SIZE) print_tail(tail, text, size - TAIL_SIZE);
    return size >= TAIL_SIZE && !memcmp(text + size - TAIL_SIZE, tail, TAIL_SIZE) ? 0 :
           fault_set(f, "is damaged: its check does not match its text");
}

int manifest_parse(manifest *m, const char *text, size_t size, fault *f)
{
    json_reader r = { text, text, text + size, "manifest of a store", f };
    record x;
    size_t i;
    int failed;
    memset(m, 0, sizeof *m);
    failed = read_record(&r, m, &x, HAS(VERSION_OF) | HAS(ALL_OBJECTS) | HAS(STEPS), HAS(CHECK)) || json_read_end(&r) ||
             ((x.has & HAS(CHECK)) && check_tail(text, size, f));
    record_free(&x);
    if (failed) return 1;
    if (m->object_count) qsort(m->objects, m->object_count, sizeof *m->objects, by_id);
    for (i = 1; i < m->object_count; i++)
        if (m->objects[i - 1].id == m->objects[i].id) return fault_set(f, "is damaged: object %016" PRIx64 " appears twice", m->objects[i].id);
    for (i = 0; i < m->object_count; i++)
        if (check_object(m, &m->objects[i], f)) return 1;
    for (i = 0; i < m->step_count; i++) {
        step_sort(&m->steps[i]);
        if (check_step(m, &m->steps[i], f)) return 1;
    }
    return 0;
}

/* Returns 1 if no part between slashes is empty, "." or "..". */
int manifest_path_is_good(const char *path)
{
    size_t n;
    if (strlen(path) > JSON_TEXT_MOST - 4) return 0;
    for (;; path += n + 1) {
        n = strcspn(path, "/");
        if (!n || (n == 1 && path[0] == '.') || (n == 2 && path[0] == '.' && path[1] == '.')) return 0;
        if (!path[n]) return 1;
    }
}

/* Returns 1 if the link goes up at most to the step's folder, and then only down. It then stays inside, whatever links it
 * passes. */
int manifest_link_is_good(const char *path, const char *to)
{
    size_t depth = 0;
    for (; *path; path++) depth += *path == '/';
    while (!strncmp(to, "../", 3)) {
        if (!depth--) return 0;
        to += 3;
    }
    if (!strcmp(to, "..")) return depth > 0;
    if (!*to || !strcmp(to, ".")) return *to != 0;
    return manifest_path_is_good(to);
}

/* ================================================================================= PARTS */

static size_t find_object(const manifest *m, uint64_t id)
{
    size_t low = 0, high = m->object_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (m->objects[middle].id < id) low = middle + 1;
        else high = middle;
    }
    return low;
}

store_object *manifest_object(const manifest *m, uint64_t id)
{
    const size_t i = find_object(m, id);
    return i < m->object_count && m->objects[i].id == id ? &m->objects[i] : NULL;
}

store_object *manifest_add_object(manifest *m, const store_object *x, fault *f)
{
    const size_t i = find_object(m, x->id);
    store_object *all = (store_object *)grown(m->objects, m->object_count, &m->object_capacity, sizeof *all, f);
    if (!all) return NULL;
    m->objects = all;
    memmove(all + i + 1, all + i, (m->object_count++ - i) * sizeof *all);
    all[i] = *x;
    return &all[i];
}

size_t manifest_find(const manifest *m, uint64_t number)
{
    size_t i = m->step_count;
    while (i && m->steps[i - 1].number >= number) i--;
    return i;
}

int manifest_add_step(manifest *m, store_step *s, fault *f)
{
    const size_t i = manifest_find(m, s->number);
    store_step *all = (store_step *)grown(m->steps, m->step_count, &m->step_capacity, sizeof *all, f);
    if (!all) return 1;
    m->steps = all;
    memmove(all + i + 1, all + i, (m->step_count++ - i) * sizeof *all);
    all[i] = *s;
    memset(s, 0, sizeof *s);
    return 0;
}

store_entry *step_add(store_step *s, entry_kind kind, const char *path, unsigned mode, fault *f)
{
    store_entry *e = (store_entry *)grown(s->entries, s->count, &s->capacity, sizeof *e, f);
    if (!e) return NULL;
    s->entries = e;
    e += s->count;
    e->kind = kind;
    e->mode = mode;
    e->path = strdup(path);
    if (!e->path) return (void)fault_memory(f), NULL;
    s->count++;
    return e;
}

static int by_path(const void *a, const void *b) { return strcmp(((const store_entry *)a)->path, ((const store_entry *)b)->path); }

void step_sort(store_step *s)
{
    if (s->count) qsort(s->entries, s->count, sizeof *s->entries, by_path);
}

static int is_called(const void *path, const void *x) { return strcmp((const char *)path, ((const store_entry *)x)->path); }

store_entry *step_entry(const store_step *s, const char *path)
{
    return s->count ? (store_entry *)bsearch(path, s->entries, s->count, sizeof *s->entries, is_called) : NULL;
}

int step_date(store_step *s)
{
    const time_t now = time(NULL);
    struct tm t;
    return gmtime_r(&now, &t) && strftime(s->time, sizeof s->time, "%Y-%m-%dT%H:%M:%SZ", &t) == sizeof s->time - 1;
}

int step_has(const store_step *s, uint64_t id)
{
    size_t i;
    for (i = 0; i < s->count; i++)
        if (s->entries[i].kind == ENTRY_FILE && s->entries[i].id == id) return 1;
    return 0;
}

void object_name(const store_object *x, char name[OBJECT_NAME])
{
    if (!x->tensors) (void)snprintf(name, OBJECT_NAME, "%016" PRIx64, x->id);
    else if (!x->has_base) (void)snprintf(name, OBJECT_NAME, "%016" PRIx64 ".bsnap", x->id);
    else (void)snprintf(name, OBJECT_NAME, "%016" PRIx64 "-%016" PRIx64 ".bsnap", x->id, x->base);
}

size_t manifest_chain(const manifest *m, const store_object *x, const store_object *chain[CHAIN_MAX])
{
    const store_object *o = x;
    size_t n = 1, i;
    while (o->has_base) o = manifest_object(m, o->base), n++;
    for (i = n, o = x; i--; o = o->has_base ? manifest_object(m, o->base) : NULL) chain[i] = o;
    return n;
}

void manifest_mark(const manifest *m, const store_step *s)
{
    size_t i;
    for (i = 0; i < s->count; i++)
        if (s->entries[i].kind == ENTRY_FILE) manifest_object(m, s->entries[i].id)->used = 1;
}

void manifest_mark_chains(const manifest *m)
{
    store_object *x;
    size_t i;
    for (i = 0; i < m->object_count; i++)
        for (x = &m->objects[i]; x->used && x->has_base; x = manifest_object(m, x->base)) manifest_object(m, x->base)->used = 1;
}

void step_free(store_step *s)
{
    while (s->count) {
        free(s->entries[--s->count].path);
        free(s->entries[s->count].to);
    }
    free(s->entries);
}

void manifest_remove_step(manifest *m, size_t i)
{
    step_free(&m->steps[i]);
    m->step_count--;
    memmove(m->steps + i, m->steps + i + 1, (m->step_count - i) * sizeof *m->steps);
}

uint64_t manifest_bytes(const manifest *m)
{
    uint64_t sum = 0;
    size_t i;
    for (i = 0; i < m->object_count; i++) sum += m->objects[i].bytes;
    return sum;
}

void manifest_remove_unmarked(manifest *m)
{
    size_t i, n = 0;
    for (i = 0; i < m->object_count; i++)
        if (m->objects[i].used) m->objects[n++] = m->objects[i];
    m->object_count = n;
}

void manifest_drop_unneeded(manifest *m)
{
    size_t i;
    for (i = 0; i < m->object_count; i++) m->objects[i].used = 0;
    for (i = 0; i < m->step_count; i++) manifest_mark(m, &m->steps[i]);
    manifest_mark_chains(m);
    manifest_remove_unmarked(m);
}

void manifest_remove_broken(manifest *m)
{
    fault ignored;
    size_t i;
    for (i = 0; i < m->object_count; i++) m->objects[i].used = !check_object(m, &m->objects[i], &ignored);
    manifest_remove_unmarked(m);
    for (i = 0; i < m->object_count; i++) m->objects[i].used = 0;
}

void manifest_free(manifest *m)
{
    while (m->step_count) step_free(&m->steps[--m->step_count]);
    free(m->steps);
    free(m->objects);
    memset(m, 0, sizeof *m);
}

/* ================================================================================= WRITING */

static void put_object(json *j, const store_object *o)
{
    char id[17];
    (void)snprintf(id, sizeof id, "%016" PRIx64, o->id);
    json_member_string(j, "id", id);
    json_member_string(j, "kind", o->tensors ? "tensors" : "copy");
    (void)snprintf(id, sizeof id, "%016" PRIx64, o->base);
    if (o->has_base) json_member_string(j, "base", id);
    json_member_whole(j, "size", o->size);
    json_member_whole(j, "bytes", o->bytes);
}

static void put_entry(json *j, const store_entry *e)
{
    char text[17];
    json_member_string(j, names[e->kind], e->path);
    (void)snprintf(text, sizeof text, "%03o", e->mode & 0777);
    if (e->kind == ENTRY_LINK) json_member_string(j, "to", e->to);
    else json_member_string(j, "mode", text);
    (void)snprintf(text, sizeof text, "%016" PRIx64, e->id);
    if (e->kind == ENTRY_FILE) json_member_string(j, "id", text);
}

static void put_step(json *j, const store_step *s)
{
    char mode[17];
    size_t i;
    json_member_whole(j, "step", s->number);
    json_member_string(j, "time", s->time);
    (void)snprintf(mode, sizeof mode, "%03o", s->mode & 0777);
    json_member_string(j, "mode", mode);
    json_member_list(j, "entries");
    for (i = 0; i < s->count; i++) {
        (void)fputs(i ? ",\n{" : "\n{", j->to);
        j->more = 0;
        put_entry(j, &s->entries[i]);
        (void)putc('}', j->to);
    }
    (void)putc(']', j->to);
}

static void print_all(const manifest *m, FILE *to)
{
    json j = { NULL, 0 };
    size_t i;
    j.to = to;
    (void)fprintf(to, "{\"bitsnap_store\":%u,\n\"objects\":[", VERSION);
    for (i = 0; i < m->object_count; i++) {
        (void)fputs(i ? ",\n{" : "\n{", to);
        j.more = 0;
        put_object(&j, &m->objects[i]);
        (void)putc('}', to);
    }
    (void)fputs("],\n\"steps\":[", to);
    for (i = 0; i < m->step_count; i++) {
        (void)fputs(i ? ",\n{" : "\n{", to);
        j.more = 0;
        put_step(&j, &m->steps[i]);
        (void)putc('}', to);
    }
    (void)fputs("],\n", to);
}

/* Returns the text, which ends with a check of itself. The caller frees it. Null: no memory. */
char *manifest_print(const manifest *m, size_t *size)
{
    char *text = NULL, tail[TAIL_SIZE + 1];
    FILE *to = open_memstream(&text, size);
    int failed = !to;
    if (to) print_all(m, to);
    if (to && !fflush(to)) {
        print_tail(tail, text, *size);
        (void)fputs(tail, to);
    }
    if (to) failed = ferror(to) != 0;
    if (to) failed |= fclose(to) != 0;
    if (!failed) return text;
    free(text);
    return NULL;
}

/* ================================================================================= FILES */

/* Reads a whole file. The caller frees *text after failures, too. */
static manifest_status read_text(const char *path, char **text, size_t *size, fault *f)
{
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n = 1;
    int failed = 0;
    *text = NULL;
    *size = 0;
    if (fd < 0) {
        (void)fault_errno(f, "cannot be opened");
        return f->passes ? MANIFEST_FAILED : MANIFEST_NONE;
    }
    if (fstat(fd, &st)) failed = fault_errno(f, "cannot be examined");
    else if (!S_ISREG(st.st_mode) || st.st_size > SIZE_MOST) failed = fault_set(f, "is not a manifest of a store");
    else if (!(*text = (char *)malloc((size_t)st.st_size + 1))) failed = fault_memory(f);
    while (!failed && n && *size < (size_t)st.st_size) {
        n = read(fd, *text + *size, (size_t)st.st_size - *size);
        if (n < 0) failed = fault_errno(f, "cannot be read");
        else *size += (size_t)n;
    }
    (void)close(fd);
    return failed ? MANIFEST_FAILED : MANIFEST_GOOD;
}

manifest_status manifest_read(manifest *m, const char *folder, const char *name, fault *f)
{
    char *path = path_in(folder, name, f), *text = NULL;
    manifest_status status = MANIFEST_FAILED;
    fault ignored;
    size_t size;
    memset(m, 0, sizeof *m);
    if (!path) return status;
    status = read_text(path, &text, &size, f);
    if (!status && manifest_parse(m, text, size, f)) /* with a right check it is not damaged, but of a later version */
        status = f->passes || !check_tail(text, size, &ignored) ? MANIFEST_FAILED : MANIFEST_DAMAGED;
    if (status) (void)fault_in(f, path);
    free(text);
    free(path);
    return status;
}

static int put_text(int fd, const char *text, size_t size)
{
    while (size) {
        const ssize_t n = write(fd, text, size);
        if (n < 0) return 1;
        text += n;
        size -= (size_t)n;
    }
    return fsync(fd) != 0;
}

/* Replaces a file as a whole, and waits until it is on the disk. Keeps the permissions of the old file. */
static int write_text(const char *folder, const char *name, const char *text, size_t size, fault *f)
{
    char temporary[64], *path = path_in(folder, name, f), *part;
    struct stat st;
    int fd, failed;
    (void)snprintf(temporary, sizeof temporary, ".bitsnap-new~%s", name);
    part = path ? path_in(folder, temporary, f) : NULL;
    fd = part ? open(part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    failed = fd < 0;
    if (part && failed) (void)fault_errno(f, "cannot be written");
    if (!failed) {
        if (!stat(path, &st)) (void)!fchmod(fd, st.st_mode & 0777);
        failed = put_text(fd, text, size) && fault_errno(f, "cannot be written");
        if (close(fd) && !failed) failed = fault_errno(f, "cannot be written");
        if (!failed && rename(part, path)) failed = fault_errno(f, "cannot be given its name");
        if (failed) (void)unlink(part);
        else failed = place_sync(path, f);
    }
    if (path && failed) (void)fault_in(f, path);
    free(part);
    free(path);
    return failed;
}

void record_name(uint64_t step, char name[OBJECT_NAME]) { (void)snprintf(name, OBJECT_NAME, "step-%" PRIu64 ".json", step); }

/* Writes the record of a step: a manifest of this step, with the objects that it needs. */
static int write_record(const manifest *m, store_step *s, const char *folder, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    char name[OBJECT_NAME], *text = NULL;
    manifest one = { .steps = s, .step_count = 1 };
    size_t i, k, size = 0;
    int failed = 0;
    for (i = 0; i < s->count; i++)
        for (k = s->entries[i].kind == ENTRY_FILE ? manifest_chain(m, manifest_object(m, s->entries[i].id), chain) : 0; k-- && !failed;)
            failed = !manifest_object(&one, chain[k]->id) && !manifest_add_object(&one, chain[k], f);
    if (!failed && !(text = manifest_print(&one, &size))) failed = fault_memory(f);
    record_name(s->number, name);
    failed = failed || write_text(folder, name, text, size, f);
    free(text);
    free(one.objects);
    return failed;
}

static int write_records(const manifest *m, const char *store, fault *f)
{
    char name[OBJECT_NAME], *folder = path_in(store, OBJECTS, f);
    struct stat st;
    size_t i;
    int failed = !folder;
    for (i = 0; i < m->step_count && !failed; i++) {
        char *path;
        record_name(m->steps[i].number, name);
        path = path_in(folder, name, f);
        failed = !path || ((!m->steps[i].recorded || lstat(path, &st)) && write_record(m, &m->steps[i], folder, f));
        free(path);
    }
    free(folder);
    return failed;
}

int manifest_save(const manifest *m, const char *store, fault *f)
{
    char *path = path_in(store, MANIFEST, f), *before = NULL, *text = NULL;
    size_t before_size, size = 0;
    manifest_status there = MANIFEST_FAILED;
    int failed = !path;
    if (path) there = read_text(path, &before, &before_size, f);
    if (there > MANIFEST_NONE) failed = path && fault_in(f, path);
    if (!failed && !(text = manifest_print(m, &size))) failed = fault_memory(f);
    failed = failed || write_records(m, store, f) || (!there && write_text(store, MANIFEST_BEFORE, before, before_size, f)) ||
             write_text(store, MANIFEST, text, size, f);
    free(text);
    free(before);
    free(path);
    return failed;
}
