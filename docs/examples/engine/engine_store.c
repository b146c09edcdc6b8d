/* engine_store.c - snapshots on disk as deltas to each other: the stores of bitsnap's tool. MIT licence, see bitsnap.h. */
#include "../tool/system/posix.h"

#include "engine_store.h"

#include "../file/bitsnap_file.h"
#include "../tool/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

void *engine_id_begin(uint64_t total); /* codec.c */
void engine_id_add(void *id, const void *bytes, size_t size);
uint64_t engine_id_end(void *id);

enum { CHAIN = 16 };
#define FILE_OF_RANK "rank-%" PRIu64 "-of-%" PRIu64 ".safetensors"
#define IDENTITY "engine.json" /* the second file of a step: disk_metadata */

/* Turns a fault of the store at `path`, or of a file in it, into an error. */
static engine_status wrong(const char *path, const fault *f, engine_error *error)
{
    return engine_fail(error, f->passes ? ENGINE_E_SYSTEM : ENGINE_E_DAMAGED, "%.100s: %.120s", *f->file ? f->file : path, f->text);
}
static engine_status refused(const char *path, engine_error *error)
{
    return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
}

/* Writes the path of a file in the store. */
static const char *in_store(const store *s, const char *name, char path[DISK_PATH + 64])
{
    snprintf(path, DISK_PATH + 64, "%s/%s", s->path, name);
    return path;
}

static const char *object_path(const store *s, const char *name, char path[DISK_PATH + 64])
{
    snprintf(path, DISK_PATH + 64, "%s/objects/%s", s->path, name);
    return path;
}

/* ================================================================================= READING */

/* Opens NAME.store in a directory, and writes its name to `path`. The caller must call store_close, also after a failure.
 * ENGINE_E_NONE: there is no store, and `how` does not create one. Readers take no lock: the manifest is replaced as a whole, and
 * only objects of older steps are removed. */
static engine_status open_store(store *s, char path[DISK_PATH], const char *directory, const char *name, store_use how, engine_error *error)
{
    fault why;
    memset(&why, 0, sizeof why);
    memset(s, 0, sizeof *s);
    s->lock = -1;
    if (snprintf(path, DISK_PATH, "%s/%s.store", directory, name) >= DISK_PATH)
        return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the directory is too long");
    if (store_open(s, path, how, "engine", &why)) {
        if (s->absent) return engine_fail(error, ENGINE_E_NONE, "%.180s: there is no store", path);
        return wrong(path, &why, error);
    }
    return s->lost ? wrong(path, &s->why, error) : engine_good(error);
}

/* Returns the object with the file of a step, and the number of ranks. Null: no engine has written the step. */
static const store_object *object_of(const store *s, const store_step *step, uint64_t *ranks)
{
    uint64_t rank;
    char name[80];
    if (step->count != 2 || step->entries[0].kind != ENTRY_FILE || step->entries[1].kind != ENTRY_FILE || strcmp(step->entries[0].path, IDENTITY) ||
        sscanf(step->entries[1].path, FILE_OF_RANK, &rank, ranks) != 2)
        return NULL;
    snprintf(name, sizeof name, FILE_OF_RANK, rank, *ranks);
    return strcmp(name, step->entries[1].path) ? NULL : manifest_object(&s->m, step->entries[1].id);
}

/* Reads the identity of a step. ENGINE_E_DAMAGED: it is missing, or contradicts the manifest. */
static engine_status identify(const store *s, const store_step *step, engine_lineage *line, disk_entry *e, engine_error *error)
{
    char path[DISK_PATH + 64], object[OBJECT_NAME], text[METADATA];
    const store_object *x = step->count == 2 && !strcmp(step->entries[0].path, IDENTITY) ? manifest_object(&s->m, step->entries[0].id) : NULL;
    uint64_t rank, ranks;
    size_t size;
    FILE *f;
    if (!object_of(s, step, &ranks) || !x || x->tensors)
        return engine_fail(error, ENGINE_E_DAMAGED,
                           "%.150s: step %" PRIu64
                           " does not say of which run it is: it is of an earlier version, or not the engine's; move the store away",
                           s->path, step->number);
    object_name(x, object);
    f = fopen(object_path(s, object, path), "rb");
    if (!f) return errno == ENOENT ? engine_fail(error, ENGINE_E_DAMAGED, "%.180s: is not there", path) : refused(path, error);
    size = fread(text, 1, sizeof text, f);
    if (ferror(f)) (void)refused(path, error);
    else if (bitsnap_hash(text, size) != x->id || disk_parse_metadata(text, size, line, e, &rank) || e->step != step->number || e->ranks != ranks)
        (void)engine_fail(error, ENGINE_E_DAMAGED, "%.180s: is damaged, or of another step", path);
    else (void)engine_good(error);
    fclose(f);
    return error->status;
}

static engine_status list_store(disk_manifest *m, const char *directory, const char *name, engine_error *error)
{
    char path[DISK_PATH + 64], object[OBJECT_NAME], folder[DISK_PATH];
    engine_lineage line;
    disk_entry e;
    store s;
    size_t i;
    if (!open_store(&s, folder, directory, name, STORE_LOOK, error)) {
        for (i = s.m.step_count; i-- > 0 && !m->line.count;) /* the last step with an identity is of the newest attempt */
            if (identify(&s, &s.m.steps[i], &m->line, &e, error)) m->line.count = 0;
        for (i = s.m.step_count > DISK_ENTRIES ? s.m.step_count - DISK_ENTRIES : 0; i < s.m.step_count && error->status != ENGINE_E_SYSTEM; i++) {
            const store_object *x = object_of(&s, &s.m.steps[i], &e.ranks);
            if (!x || !x->tensors || identify(&s, &s.m.steps[i], &line, &e, error) || engine_lineage_alive(&m->line, &e.attempt, e.step) < 0)
                continue;
            object_name(x, object);
            if (disk_is_there(object_path(&s, object, path), x->bytes)) e.size = x->bytes, m->entries[m->count++] = e;
        }
        if (error->status != ENGINE_E_SYSTEM && (m->line.count || !s.m.step_count)) (void)engine_good(error);
    }
    store_close(&s);
    return error->status;
}

/* The files of a chain. Each is the base of the next. */
typedef struct chain {
    store s;
    char path[DISK_PATH];
    size_t count;
    int fds[CHAIN_MAX];
    bitsnap_file files[CHAIN_MAX];
    char names[CHAIN_MAX][OBJECT_NAME];
} chain;

static void close_chain(void *opened)
{
    chain *c = (chain *)opened;
    while (c->count) bitsnap_file_close(&c->files[--c->count]), close(c->fds[c->count]);
    store_close(&c->s);
    free(c);
}

static engine_status open_chain(chain *c, const store *s, const store_object *x, engine_error *error)
{
    const store_object *all[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, all);
    bitsnap_source source;
    struct stat st;
    memset(&source, 0, sizeof source);
    for (c->count = 0; c->count < n;) {
        const size_t i = c->count;
        char path[DISK_PATH + 64];
        bitsnap_file *base = i ? &c->files[i - 1] : NULL;
        object_name(all[i], c->names[i]);
        c->fds[i] = open(object_path(s, c->names[i], path), O_RDONLY | O_CLOEXEC);
        if (c->fds[i] < 0) return engine_fail(error, errno == ENOENT ? ENGINE_E_DAMAGED : ENGINE_E_SYSTEM, "%.180s: %s", path, strerror(errno));
        c->count++;
        source.read = disk_read_at, source.context = &c->fds[i], source.size = fstat(c->fds[i], &st) ? 0 : (uint64_t)st.st_size;
        memset(&c->files[i], 0, sizeof c->files[i]);
        if (bitsnap_file_open(&c->files[i], &source, i ? &base : NULL, i != 0, NULL)) return disk_fail(&c->files[i], path, "", error);
        c->files[i].name = c->names[i];
    }
    return engine_good(error);
}

static engine_status open_step(void **opened, bitsnap_file **file, const char *directory, const char *name, const disk_entry *wanted,
                               engine_error *error)
{
    const uint64_t step = wanted->step;
    chain *c = (chain *)calloc(1, sizeof *c);
    const store_object *x = NULL;
    engine_lineage line;
    disk_entry e;
    uint64_t ranks;
    size_t i;
    *opened = NULL;
    if (!c) return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    if (!open_store(&c->s, c->path, directory, name, STORE_LOOK, error)) {
        i = manifest_find(&c->s.m, step);
        if (i < c->s.m.step_count && c->s.m.steps[i].number == step) x = object_of(&c->s, &c->s.m.steps[i], &ranks);
        if (x && identify(&c->s, &c->s.m.steps[i], &line, &e, error)) x = NULL;
        else if (!x || !engine_same_id(&e.attempt, &wanted->attempt) || e.ranks != wanted->ranks)
            x = NULL, (void)engine_fail(error, ENGINE_E_DAMAGED, "%.150s: has no step %" PRIu64 " of that attempt any more", c->s.path, step);
        if (x && !open_chain(c, &c->s, x, error)) *opened = c, *file = &c->files[c->count - 1];
    }
    if (error->status) close_chain(c);
    return error->status;
}

static const disk_form store_form = { list_store, open_step, close_chain, ".store" };

void engine_use_stores(void) { disk_other_form = &store_form; }

/* ================================================================================= WRITING */

/* Returns the base for the next file; null: write it whole. */
static const store_object *choose_base(const store *s, const char *path)
{
    const store_object *all[CHAIN_MAX], *x;
    uint64_t deltas = 0, ranks;
    size_t n, i;
    x = s->m.step_count ? object_of(s, &s->m.steps[s->m.step_count - 1], &ranks) : NULL;
    if (!x || !x->tensors || strcmp(s->m.steps[s->m.step_count - 1].entries[1].path, path)) return NULL;
    n = manifest_chain(&s->m, x, all);
    for (i = 1; i < n; i++) deltas += all[i]->bytes;
    if (n >= CHAIN || deltas > 2 * all[0]->bytes || (n > 1 && x->bytes * n > all[0]->bytes + deltas)) return NULL;
    return x;
}

typedef struct packing {
    bitsnap b;
    bitsnap_file_writer f;
    engine_reader *r;
    bitsnap_file *base; /* or null */
    void *id;
    uint8_t *elements;  /* elements of the base */
    uint64_t at;        /* byte in the data section */
} packing;

/* Writes a piece. Without a base, or if it is quantized, its frame is copied if the reader has one; otherwise it is encoded. */
static const char *pack_piece(packing *k, const engine_tensor *t, size_t tensor, uint64_t number, engine_piece *p, engine_error *error)
{
    const size_t size = (size_t)p->count * bitsnap_width(t->dtype);
    const int quantized = t->kind != ENGINE_EXACT;
    bitsnap_file_place place;
    bitsnap_status status;
    size_t needed;
    place.base = 0, place.begin = k->at;
    engine_id_add(k->id, p->elements, size);
    k->at += size;
    if ((quantized || !k->base) && engine_reader_piece(k->r, tensor, number, 0, p, error)) return error->message;
    if (p->frame) return bitsnap_file_write_packed(&k->f, p->frame, p->frame_size, size, NULL) ? k->f.error.message : NULL;
    memset(&k->b.base, 0, sizeof k->b.base);
    if (k->base) {
        if (bitsnap_file_read_data(k->base, place.begin, k->elements, size)) return k->base->error.message;
        k->b.base.data = k->elements, k->b.base.count = p->count, k->b.base.dtype = t->dtype;
    }
    needed = bitsnap_workspace_size(&k->b, p->count, t->dtype);
    if (needed > k->b.workspace_size) {
        free(k->b.workspace);
        k->b.workspace = malloc(k->b.workspace_size = needed);
        if (!k->b.workspace) return "no memory to encode it";
    }
    status = bitsnap_file_write_frame(&k->f, t->dtype, p->count, k->base ? &place : NULL);
    if (!status) status = bitsnap_file_write_elements(&k->f, p->elements, (size_t)p->count);
    if (!status) status = bitsnap_file_write_frame_end(&k->f);
    return status ? k->f.error.message : NULL;
}

static engine_status pack(packing *k, const engine_tensor *tensors, size_t count, engine_error *error)
{
    engine_piece p;
    uint64_t number;
    size_t i;
    for (i = 0; i < count; i++) {
        for (number = 0; !engine_reader_piece(k->r, i, number, 1, &p, error); number++) {
            const char *what = pack_piece(k, &tensors[i], i, number, &p, error);
            if (what) return engine_fail(error, ENGINE_E_SYSTEM, "%.100s: %.100s", tensors[i].name, what);
        }
        if (error->status != ENGINE_E_NONE) return error->status;
    }
    return bitsnap_file_write_end(&k->f) ? engine_fail(error, ENGINE_E_SYSTEM, "%s", k->f.error.message) : engine_good(error);
}

/* Writes an object, and describes it in *x. */
static engine_status write_object(disk_sink *s, engine_reader *r, bitsnap_file *base, store_object *x, engine_error *error)
{
    enum { PIECE_MOST = 1 << 21 }; /* 2^18 elements of 8 bytes */
    size_t count, i;
    const engine_tensor *tensors = engine_reader_tensors(r, &count);
    packing k;
    bitsnap_file_head head;
    bitsnap_file_base described;
    bitsnap_sink to;
    uint8_t size[8];
    const char *base_text = NULL;
    char *text;
    memset(&k, 0, sizeof k), memset(&head, 0, sizeof head), memset(&described, 0, sizeof described);
    k.b.level = BITSNAP_DEFAULT, k.r = r, k.base = base;
    to.write = disk_put, to.context = s;
    text = disk_text(tensors, count, "{\"format\":\"pt\"}", &head.text_size);
    head.kind = BITSNAP_SOURCE_SAFETENSORS, head.text = text, head.quantized = disk_is_quantized(r, tensors, count);
    head.source_size = 8 + head.text_size;
    for (i = 0; i < count; i++) head.source_size += tensors[i].count * bitsnap_width(tensors[i].dtype);
    if (text && base && (bitsnap_file_text(base, &base_text) || base->text_size != head.text_size || memcmp(base_text, text, head.text_size)))
        k.base = NULL; /* the tensors have changed */
    if (k.base) {
        described.name = base->name, described.text_size = base->text_size, described.data_size = base->data_size;
        head.kind = BITSNAP_SOURCE_DELTA, head.bases = &described, head.base_count = 1;
        head.text_id = described.text_id = bitsnap_hash(text, head.text_size);
    }
    k.b.workspace = malloc(k.b.workspace_size = BITSNAP_WORKSPACE);
    k.elements = (uint8_t *)malloc(PIECE_MOST);
    k.id = engine_id_begin(head.source_size);
    for (i = 0; i < 8; i++) size[i] = (uint8_t)((uint64_t)head.text_size >> 8 * i);
    if (!text || !k.b.workspace || !k.elements || !k.id) {
        (void)engine_fail(error, ENGINE_E_ARGUMENT,
                          "no memory, or these tensors cannot be a .safetensors file: two of one name, or a name that is no UTF-8");
    } else {
        engine_id_add(k.id, size, 8);
        engine_id_add(k.id, text, head.text_size);
        if (bitsnap_file_write_head(&k.f, &k.b, &to, &head, NULL)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%s", k.f.error.message);
        else (void)pack(&k, tensors, count, error);
        bitsnap_file_write_close(&k.f);
    }
    x->id = k.id ? engine_id_end(k.id) : 0;
    x->size = head.source_size, x->bytes = s->written, x->tensors = 1, x->has_base = k.base != NULL;
    free(text), free(k.b.workspace), free(k.elements);
    return error->status;
}

static engine_status save(store *s, engine_error *error)
{
    fault why;
    memset(&why, 0, sizeof why);
    return store_save(s, &why) ? wrong(s->path, &why, error) : engine_good(error);
}

/* Gives a written file its name in `objects`. The name is noted in the lock first, so the file is removed if no manifest lists
 * it. */
static engine_status name_object(const store *s, disk_sink *out, const char *temporary, const store_object *x, uint64_t step, engine_error *error)
{
    char path[DISK_PATH + 64], objects[DISK_PATH + 64], object[OBJECT_NAME];
    const char *const names[] = { object };
    fault why;
    memset(&why, 0, sizeof why);
    object_name(x, object);
    if (!error->status && store_note(s, names, 1, &why)) (void)wrong(s->path, &why, error);
    return disk_close_sink(out, temporary, object_path(s, object, path), in_store(s, "objects", objects), step, error);
}

/* Adds the step to the manifest, and drops old ones. Steps that a kept one is a delta to stay. */
static engine_status list_step(const disk_writer *w, store *s, uint64_t step, const char *name, const store_object *x, const store_object *identity,
                               engine_error *error)
{
    store_step made;
    store_entry *e;
    uint64_t ranks;
    fault why;
    size_t first;
    memset(&made, 0, sizeof made);
    memset(&why, 0, sizeof why);
    made.number = step, made.mode = 0700;
    if (!step_date(&made)) strcpy(made.time, "1970-01-01T00:00:00Z");
    e = step_add(&made, ENTRY_FILE, IDENTITY, 0600, &why);
    if (e) e->id = identity->id;
    if (e && (e = step_add(&made, ENTRY_FILE, name, 0600, &why)) != NULL) e->id = x->id;
    if (!e || (!manifest_object(&s->m, x->id) && !manifest_add_object(&s->m, x, &why)) ||
        (!manifest_object(&s->m, identity->id) && !manifest_add_object(&s->m, identity, &why)) || manifest_add_step(&s->m, &made, &why)) {
        step_free(&made);
        return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    }
    first = s->m.step_count > w->keep ? s->m.step_count - w->keep : 0;
    if (w->common.ranks && manifest_find(&s->m, w->common.step) < first) first = manifest_find(&s->m, w->common.step);
    while (first) {
        const store_object *o = object_of(s, &s->m.steps[first], &ranks);
        if (o && !o->has_base) break;
        first--;
    }
    while (first) manifest_remove_step(&s->m, --first);
    manifest_drop_unneeded(&s->m);
    return engine_good(error);
}

/* Checks that this attempt may write, and drops steps that are dead in its lineage. A store has a step number only once, so an
 * earlier step of this number is dropped, too. If an earlier attempt wrote it and all ranks have it on disk, they may need it:
 * ENGINE_E_BUSY. */
static engine_status take_over(store *s, const disk_writer *w, const engine_lineage *line, uint64_t step, engine_error *error)
{
    engine_lineage theirs;
    disk_entry e;
    size_t i;
    for (i = s->m.step_count; i-- > 0;) {
        const engine_status status = identify(s, &s->m.steps[i], &theirs, &e, error);
        if (status == ENGINE_E_SYSTEM) return status;
        if (!status && i + 1 == s->m.step_count && disk_may_write(line, &theirs, s->path, error)) return error->status;
        if (!status && !engine_same_id(&theirs.run, &line->run)) return disk_may_write(line, &theirs, s->path, error);
        if (!status && e.step != step && engine_lineage_alive(line, &e.attempt, e.step) >= 0) continue;
        if (!status && w->common.ranks && e.step == w->common.step && engine_same_id(&e.attempt, &w->common.attempt) &&
            !engine_same_id(&e.attempt, &line->links[0].attempt))
            return engine_fail(error, ENGINE_E_BUSY, "step %" PRIu64 " of the attempt before is kept until all ranks have a newer one on disk", step);
        manifest_remove_step(&s->m, i);
    }
    manifest_drop_unneeded(&s->m);
    return engine_good(error);
}

/* Writes the second object of a step, its identity. */
static engine_status write_identity(const store *s, const disk_writer *w, engine_reader *r, uint64_t step, store_object *x, engine_error *error)
{
    char text[METADATA], temporary[DISK_PATH + 64];
    disk_writer at_once = *w;
    disk_sink out;
    at_once.rate = 0, at_once.let_go = NULL;
    memset(x, 0, sizeof *x);
    disk_metadata(text, engine_reader_lineage(r), step, engine_reader_rank(r), engine_reader_ranks(r));
    x->size = x->bytes = strlen(text), x->id = bitsnap_hash(text, strlen(text));
    if (disk_open_sink(&out, &at_once, in_store(s, "objects/.bitsnap-engine", temporary), error)) return error->status;
    (void)engine_good(error);
    if (disk_put(&out, text, strlen(text))) (void)engine_fail(error, ENGINE_E_SYSTEM, "what step %" PRIu64 " is cannot be written", step);
    return name_object(s, &out, temporary, x, step, error);
}

/* Writes the file of a step as an object: as a delta if there is a good base and nothing is quantized, otherwise whole. */
static engine_status write_step(store *s, const disk_writer *w, engine_reader *r, uint64_t step, const char *name, store_object *x,
                                engine_error *error)
{
    char temporary[DISK_PATH + 64];
    chain *c = (chain *)calloc(1, sizeof *c);
    const store_object *base, *known;
    size_t count;
    const engine_tensor *tensors = engine_reader_tensors(r, &count);
    disk_sink out;
    if (!c) return engine_fail(error, ENGINE_E_SYSTEM, "out of memory");
    c->s.lock = -1;
    memset(x, 0, sizeof *x);
    /* a delta has no quantized frames: docs/FORMAT.md, S7 */
    base = disk_is_quantized(r, tensors, count) ? NULL : choose_base(s, name);
    if (base && open_chain(c, s, base, error)) base = NULL; /* a damaged base is not used */
    if (!disk_open_sink(&out, w, in_store(s, "objects/.bitsnap-engine", temporary), error)) {
        (void)engine_good(error);
        (void)write_object(&out, r, base ? &c->files[c->count - 1] : NULL, x, error);
        if (error->status && base && !out.given_up && !out.error) { /* the base is damaged: writes the file whole */
            close(out.fd), base = NULL;
            if (!disk_open_sink(&out, w, temporary, error)) (void)engine_good(error), (void)write_object(&out, r, NULL, x, error);
        }
        x->base = base && x->has_base ? base->id : 0;
        known = manifest_object(&s->m, x->id);
        if (!error->status && known) *x = *known, close(out.fd), unlink(temporary); /* the store already has these tensors */
        else (void)name_object(s, &out, temporary, x, step, error);
    }
    close_chain(c);
    return error->status;
}

engine_status disk_store_write(const disk_writer *w, engine_reader *r, uint64_t step, engine_error *error)
{
    char name[80], path[DISK_PATH];
    store_object x, identity;
    store s;
    size_t listed;
    if (step > STEP_MAX) return engine_fail(error, ENGINE_E_ARGUMENT, "a store has no steps above 2^53 - 1");
    snprintf(name, sizeof name, FILE_OF_RANK, engine_reader_rank(r), engine_reader_ranks(r));
    (void)open_store(&s, path, w->directory, w->name, STORE_CREATE, error);
    listed = s.m.step_count;
    /* Dead steps are dropped from the manifest first, then their objects are removed, to free space for the new one. */
    if (!error->status && !take_over(&s, w, engine_reader_lineage(r), step, error) && (s.m.step_count == listed || !save(&s, error)) &&
        !write_step(&s, w, r, step, name, &x, error) && !write_identity(&s, w, r, step, &identity, error) && !disk_is_late(r, error) &&
        !list_step(w, &s, step, name, &x, &identity, error))
        (void)save(&s, error);
    if (error->status) store_undo(&s);
    store_close(&s);
    return error->status;
}
