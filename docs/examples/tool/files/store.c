/* store.c - a folder of snapshots on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "store.h"

#include "restore.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define MANIFEST "manifest.json"
#define OBJECTS "objects"
#define LOCK "lock"
#define MANIFEST_MAX ((uint64_t)1 << 30)

static int fail(const char *path, const char *what, fault *f)
{
    (void)fault_errno(f, "%s", what);
    return fault_in(f, path);
}

/* ================================================================================= PATHS */

char *store_path(const store *s, const char *folder, const char *name, fault *f)
{
    const size_t size = strlen(s->path) + strlen(folder) + strlen(name) + 3;
    char *path = (char *)malloc(size);
    if (path) (void)snprintf(path, size, *folder ? "%s/%s/%s" : "%s%s/%s", s->path, folder, name);
    else (void)fault_memory(f);
    return path;
}

char *store_object_path(const store *s, const store_object *x, fault *f)
{
    char name[OBJECT_NAME];
    object_name(x, name);
    return store_path(s, OBJECTS, name, f);
}

/* ================================================================================= OPENING */

/* Whether there is nothing in the folder but what a run that was killed before it wrote a manifest can have left. */
static int check_new(const store *s, fault *f)
{
    DIR *d = opendir(s->path);
    struct dirent *e;
    int failed = 0;
    if (!d) return fail(s->path, "cannot be opened", f);
    while (!failed && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && strcmp(e->d_name, OBJECTS) && strcmp(e->d_name, LOCK) && strncmp(e->d_name, ".bitsnap-", 9))
            failed = fault_set(f, "is no store of snapshots, but has other things in it; give the name of a new folder");
    (void)closedir(d);
    return failed;
}

static int make(store *s, fault *f)
{
    char *objects = store_path(s, "", OBJECTS, f);
    int failed = !objects;
    if (!failed && !mkdir(s->path, 0777)) s->made = 1;
    else if (!failed && errno != EEXIST) failed = fault_errno(f, "cannot be made");
    if (!failed && mkdir(objects, 0777) && errno != EEXIST) failed = fail(objects, "cannot be made", f);
    failed = failed || place_sync(s->path, f) || place_sync(objects, f);
    free(objects);
    return failed;
}

/* Whoever changes the store writes what it is into the lock. */
static int lock(store *s, store_use how, const char *command, fault *f)
{
    char *path = store_path(s, "", LOCK, f), text[256] = "";
    const int changes = how >= STORE_CHANGE;
    ssize_t size;
    if (!path) return 1;
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (s->lock < 0 && !changes) s->lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (s->lock < 0 && changes) {
        (void)fail(path, "cannot be opened", f);
        free(path);
        return 1;
    }
    free(path);
    if (s->lock < 0) return 0; /* who may only read, where nobody has written */
    if (flock(s->lock, (changes ? LOCK_EX : LOCK_SH) | LOCK_NB)) {
        if (errno != EWOULDBLOCK) return changes ? fault_errno(f, "cannot be locked") : 0;
        size = pread(s->lock, text, sizeof text - 1, 0);
        text[size > 0 ? size : 0] = 0;
        return fault_set(f, "is in use by %s; try again when that has ended", *text ? text : "a run that reads it");
    }
    if (ftruncate(s->lock, 0)) return changes ? fault_errno(f, "cannot be locked") : 0;
    if (!changes) return 0;
    (void)gethostname(text, sizeof text - 1);
    if (dprintf(s->lock, "bitsnap %s, process %ld on %s", command, (long)getpid(), text) < 0) return fault_errno(f, "cannot be locked");
    s->changes = 1;
    return 0;
}

static int read_manifest(store *s, fault *f)
{
    char *path = store_path(s, "", MANIFEST, f);
    input in;
    int failed = !path;
    if (failed) return 1;
    in.fd = -1;
    if (!access(path, F_OK) || errno != ENOENT) {
        failed = input_open(&in, path, f);
        if (!failed && (!in.regular || !in.size || in.size > MANIFEST_MAX)) failed = fault_set(f, "is no manifest of a store");
        failed = failed || input_map(&in, f) || manifest_parse(&s->m, (const char *)in.map, (size_t)in.size, f);
        if (failed) (void)fault_in(f, path);
        if (in.fd >= 0) input_close(&in);
    }
    free(path);
    return failed;
}

int store_open(store *s, const char *path, store_use how, const char *command, fault *f)
{
    char *listed;
    struct stat st;
    int there;
    memset(s, 0, sizeof *s);
    s->path = path;
    s->lock = -1;
    listed = store_path(s, "", MANIFEST, f);
    if (!listed) return 1;
    there = !access(listed, F_OK);
    free(listed);
    if (stat(path, &st)) {
        if (errno != ENOENT || how != STORE_CREATE) return fault_errno(f, "cannot be opened");
    } else if (!S_ISDIR(st.st_mode)) {
        return fault_set(f, "is no folder; a store of snapshots is one");
    } else if (!there) {
        if (how != STORE_CREATE) return fault_set(f, "is no store of snapshots: there is no " MANIFEST " in it");
        if (check_new(s, f)) return 1;
    }
    if (how == STORE_CREATE && !there && make(s, f)) return 1;
    if (how != STORE_LOOK && lock(s, how, command, f)) return 1;
    return read_manifest(s, f) || (s->changes && store_sweep(s, f));
}

void store_close(store *s)
{
    if (s->changes) (void)!ftruncate(s->lock, 0);
    if (s->lock >= 0) (void)close(s->lock);
    manifest_free(&s->m);
    s->lock = -1;
}

/* ================================================================================= READING */

/* The least that file_read_begin may be told: what the manifest says. */
static uint64_t limit_of(const store_object *x) { return x->size ? x->size : 1; }

static int note_object(const store *s, const store_object *x, fault *f)
{
    char *path = store_object_path(s, x, f);
    if (path && !*f->file) (void)fault_in(f, path);
    free(path);
    return 1;
}

int store_restore_one(const store *s, codec *c, const store_object *x, const base *before, base *b, fault *f)
{
    char *path = store_object_path(s, x, f);
    int failed;
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
    failed = !path || base_restore(b, c, path, before, limit_of(x), f);
    b->in.name = "(restored)";
    free(path);
    failed = failed || input_map(&b->in, f);
    if (!failed && (b->in.size != x->size || store_id(&b->in) != x->id))
        failed = fault_set(f, "does not hold what the manifest says") && note_object(s, x, f);
    return failed;
}

/* What the first n objects of a chain make; none of nothing. */
static int restore_chain(const store *s, codec *c, const store_object *const *chain, size_t n, base *b, fault *f)
{
    base before;
    size_t i;
    int failed = 0;
    memset(b, 0, sizeof *b);
    b->in.fd = -1;
    for (i = 0; i < n && !failed; i++) {
        before = *b;
        failed = store_restore_one(s, c, chain[i], i ? &before : NULL, b, f);
        base_close(&before);
    }
    return failed;
}

int store_restore(const store *s, codec *c, const store_object *x, base *b, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    return restore_chain(s, c, chain, n, b, f);
}

char *store_text(const store *s, codec *c, const store_object *x, size_t *size, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    file_base before;
    char *text = NULL;
    size_t i;
    int failed = 0;
    memset(&before, 0, sizeof before);
    for (i = 0; i < n && !failed; i++) {
        char *path = store_object_path(s, chain[i], f);
        file_reader r;
        input in;
        failed = !path || input_open(&in, path, f);
        if (!failed) {
            failed = file_look_begin(&r, c, &in, i ? &before : NULL, f) || (!r.text && fault_set(f, "does not follow what it is a delta to"));
            free(text);
            before.text = text = r.text;
            before.text_size = *size = r.text_size;
            r.text = NULL;
            file_read_close(&r);
            input_close(&in);
        }
        free(path);
    }
    if (!failed) return text;
    free(text);
    return NULL;
}

int store_read_through(const char *path, fault *f)
{
    input in;
    int failed = input_open(&in, path, f);
    if (failed) return 1;
    while (!(failed = input_fill(&in, 65536, f)) && input_available(&in)) input_consume(&in, input_available(&in));
    input_close(&in);
    return failed;
}

uint64_t store_id(const input *in) { return bitsnap_hash(in->map, in->map ? (size_t)in->size : 0); }

int store_write(const store *s, codec *c, const store_object *x, input *in, output *out, fault *f)
{
    const store_object *chain[CHAIN_MAX];
    const size_t n = manifest_chain(&s->m, x, chain);
    file_reader r;
    base before;
    int failed;
    if (!x->tensors) return spool_copy(out, in, f);
    memset(&r, 0, sizeof r);
    failed = restore_chain(s, c, chain, n - 1, &before, f) ||
             file_read_begin(&r, c, in, limit_of(x), n > 1 ? &before.file : NULL, f) || restore_source(&r, out, NULL, f);
    file_read_close(&r);
    base_close(&before);
    return failed;
}

/* ================================================================================= CHANGING */

int store_save(store *s, used_files *u, fault *f)
{
    char *path = store_path(s, "", MANIFEST, f), *text = NULL;
    size_t size;
    FILE *to = path ? open_memstream(&text, &size) : NULL;
    output out;
    int failed = !to;
    if (to) manifest_print(&s->m, to);
    if (path && (!to || ferror(to) || fclose(to))) failed = fault_memory(f);
    if (!failed) {
        failed = output_open(&out, path, 1, NULL, u, f) || output_write(&out, text, size, f) || output_commit(&out, f);
        if (failed) output_discard(&out);
    }
    free(text);
    free(path);
    return failed || store_sweep(s, f);
}

/* A name that objects have, or files that become objects; or one of place.h, which only the run that holds the lock writes. */
static int is_ours(const char *name) { return strspn(name, "0123456789abcdef") == 16 || !strncmp(name, ".bitsnap-", 9); }

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

/* The names in a folder of the store that are ours, but not in the sorted list. */
static int sweep_folder(const store *s, const char *folder, char (*names)[48], size_t count, fault *f)
{
    char *path = store_path(s, "", folder, f);
    DIR *d = path ? opendir(path) : NULL;
    struct dirent *e;
    int failed = !path;
    if (path && !d) failed = fail(path, "cannot be opened", f);
    while (!failed && (e = readdir(d)) != NULL) {
        if (!is_ours(e->d_name) || (count && bsearch(e->d_name, names, count, sizeof *names, by_name))) continue;
        if (unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT) failed = fail(path, "has what no snapshot needs, which cannot be removed", f);
    }
    if (d) (void)closedir(d);
    free(path);
    return failed;
}

int store_sweep(const store *s, fault *f)
{
    const size_t count = s->m.object_count;
    char (*names)[OBJECT_NAME] = (char (*)[OBJECT_NAME])malloc((count + 1) * sizeof *names);
    size_t i;
    int failed;
    if (!names) return fault_memory(f);
    for (i = 0; i < count; i++) object_name(&s->m.objects[i], names[i]);
    if (count) qsort(names, count, sizeof *names, by_name);
    failed = sweep_folder(s, ".", NULL, 0, f) || sweep_folder(s, OBJECTS, names, count, f);
    free(names);
    return failed;
}

void store_undo(store *s)
{
    char *objects, *lock_path;
    fault ignored;
    if (!s->changes) return;
    manifest_free(&s->m);
    if (read_manifest(s, &ignored) || store_sweep(s, &ignored) || !s->made || s->m.step_count) return;
    objects = store_path(s, "", OBJECTS, &ignored);
    lock_path = store_path(s, "", LOCK, &ignored);
    if (objects && lock_path && !rmdir(objects) && !unlink(lock_path)) (void)rmdir(s->path);
    free(objects);
    free(lock_path);
}
