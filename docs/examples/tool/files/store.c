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
#define LOCK_MAX ((off_t)1 << 30)

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

/* Whether nothing is in the folder but what a run that was killed before it wrote a manifest can have left. */
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

/* Without a manifest nothing tells what objects are, and whether they are all that there is of something. An empty manifest is written
 * before the first of them, so a store that was just begun never looks like this. */
static int check_no_objects(const store *s, fault *f)
{
    char *objects = store_path(s, "", OBJECTS, f);
    DIR *d = objects ? opendir(objects) : NULL;
    struct dirent *e;
    int failed = !objects;
    if (objects && !d && errno != ENOENT && errno != ENOTDIR) failed = fail(objects, "cannot be opened", f);
    while (!failed && d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
            failed = fault_set(f, "has no " MANIFEST ", but something in " OBJECTS ", which only that file explains: put back a copy of it, "
                               "or give the name of a new folder; nothing is removed");
    if (d) (void)closedir(d);
    free(objects);
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

/* Whoever changes the store has its name in the first line of the lock: line_of reads it. */
static void line_of(const store *s, char text[256])
{
    const ssize_t size = pread(s->lock, text, 255, 0);
    text[size > 0 ? size : 0] = 0;
    text[strcspn(text, "\n")] = 0;
}

static int lock(store *s, store_use how, fault *f)
{
    char *path = store_path(s, "", LOCK, f), text[256];
    const int changes = how >= STORE_CHANGE;
    if (!path) return 1;
    s->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
    if (s->lock < 0 && !changes) s->lock = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (s->lock < 0 && changes) {
        (void)fail(path, "cannot be opened", f);
        free(path);
        return 1;
    }
    free(path);
    if (s->lock < 0) return 0; /* who may only read, where nobody has written */
    if (!flock(s->lock, (changes ? LOCK_EX : LOCK_SH) | LOCK_NB)) return 0;
    if (errno != EWOULDBLOCK) return changes ? fault_errno(f, "cannot be locked") : 0;
    line_of(s, text);
    if (changes && !flock(s->lock, LOCK_SH | LOCK_NB)) text[0] = 0; /* the line is of a run that was killed: only readers hold the lock now */
    return fault_set(f, "is in use by %s; try again when that has ended", *text ? text : "a run that reads it");
}

/* Files and folders that are changed have to be the store's own: what a link leads to may be another store's. */
static int check_own(const store *s, const char *name, int folder, int *there, fault *f)
{
    char *path = store_path(s, "", name, f);
    struct stat st;
    int failed = !path;
    *there = 0;
    if (path && lstat(path, &st)) failed = errno != ENOENT && fail(path, "cannot be examined", f);
    else if (path) *there = 1;
    if (!failed && *there && !(folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)))
        failed = fault_set(f, S_ISLNK(st.st_mode) ? "is a link, and may belong to another store; put what it leads to in its place" :
                              folder ? "is no folder" : "is no manifest of a store, as it is no file") && fault_in(f, path);
    free(path);
    return failed;
}

static int read_manifest(store *s, fault *f)
{
    char *path = store_path(s, "", MANIFEST, f);
    struct stat st;
    input in;
    int failed = !path;
    if (failed) return 1;
    in.fd = -1;
    if (stat(path, &st)) failed = fault_errno(f, "cannot be examined");
    else if (!S_ISREG(st.st_mode) || !st.st_size || (uint64_t)st.st_size > MANIFEST_MAX) failed = fault_set(f, "is no manifest of a store; put back a copy of that");
    failed = failed || input_open(&in, path, f) || input_map(&in, f) || manifest_parse(&s->m, (const char *)in.map, (size_t)in.size, f);
    if (failed) (void)fault_in(f, path);
    if (in.fd >= 0) input_close(&in);
    free(path);
    return failed;
}

/* The lock says whose it is. What a run that was killed had noted there has been removed. */
static int take(store *s, const char *command, fault *f)
{
    char host[200] = "";
    (void)gethostname(host, sizeof host - 1);
    if (ftruncate(s->lock, 0) || lseek(s->lock, 0, SEEK_SET) ||
        dprintf(s->lock, "bitsnap %s, process %ld on %s\n", command, (long)getpid(), host) < 0) return fault_errno(f, "cannot be locked");
    return 0;
}

static int write_manifest(const store *s, used_files *u, fault *f)
{
    size_t size = 0;
    char *path = store_path(s, "", MANIFEST, f), *text = path ? manifest_print(&s->m, &size) : NULL;
    output out;
    int failed = !text && (!path || fault_memory(f));
    if (!failed) {
        failed = output_open(&out, path, 1, NULL, u, f) || output_write(&out, text, size, f) || output_commit(&out, f);
        if (failed) output_discard(&out);
    }
    free(text);
    free(path);
    return failed;
}

/* A run that was killed while it replaced the manifest may have left it under another name, where the system cannot exchange two. */
static int put_back(const store *s, const used_files *u, int *there, fault *f)
{
    char *path = store_path(s, "", MANIFEST, f);
    if (!path) return 1;
    place_clean(path, u);
    free(path);
    return check_own(s, MANIFEST, 0, there, f);
}

int store_open(store *s, const char *path, store_use how, const char *command, const used_files *u, fault *f)
{
    struct stat st;
    used_files none;
    int there = 0, objects = 0, failed;
    memset(s, 0, sizeof *s);
    s->path = path;
    s->lock = -1;
    if (stat(path, &st)) {
        if (errno != ENOENT || how != STORE_CREATE) return fault_errno(f, "cannot be opened");
    } else if (!S_ISDIR(st.st_mode)) {
        return fault_set(f, "is no folder; a store of snapshots is one");
    } else if (check_own(s, MANIFEST, 0, &there, f)) {
        return 1;
    } else if (!there && how >= STORE_CHANGE && put_back(s, u, &there, f)) {
        return 1;
    } else if (!there) {
        if (how == STORE_CREATE ? check_new(s, f) : check_no_objects(s, f)) return 1;
        if (how != STORE_CREATE) return fault_set(f, "is no store of snapshots: there is no " MANIFEST " in it");
    }
    if (how == STORE_CREATE && !there && make(s, f)) return 1;
    if (how != STORE_LOOK && lock(s, how, f)) return 1;
    /* again, as another run may have made the store until the lock was given */
    if (how == STORE_CREATE && !there && (check_own(s, MANIFEST, 0, &there, f) || (!there && check_no_objects(s, f)))) return 1;
    if (how >= STORE_CHANGE && check_own(s, OBJECTS, 1, &objects, f)) return 1;
    if (there && read_manifest(s, f)) return 1;
    if (how < STORE_CHANGE) return 0;
    s->begun = !there;
    s->changes = 1;
    memset(&none, 0, sizeof none); /* the manifest is written twice by this run */
    failed = store_sweep(s, f) || take(s, command, f) || (s->begun && write_manifest(s, &none, f));
    used_free(&none);
    return failed;
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

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

/* The names of all objects, in their order. To be freed; null with the fault set. */
static char (*names_of(const manifest *m, fault *f))[OBJECT_NAME]
{
    char (*names)[OBJECT_NAME] = (char (*)[OBJECT_NAME])malloc((m->object_count + 1) * sizeof *names);
    size_t i;
    if (!names) return (void)fault_memory(f), NULL;
    for (i = 0; i < m->object_count; i++) object_name(&m->objects[i], names[i]);
    if (m->object_count) qsort(names, m->object_count, sizeof *names, by_name);
    return names;
}

/* Whether it is a name that this program gives, in `objects`. */
static int is_ours(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    if (strspn(name, hex) != 16) return 0;
    name += 16;
    if (*name == '-' && strspn(name + 1, hex) == 16) return !strcmp(name + 17, ".bsnap");
    return !*name || !strcmp(name, ".bsnap") || !strcmp(name, ".delta") || !strcmp(name, ".whole");
}

int store_note(const store *s, const char *const *names, size_t count, fault *f)
{
    struct stat st;
    size_t i;
    int failed = 0;
    for (i = 0; i < count && !failed; i++) {
        char *path = store_path(s, OBJECTS, names[i], f);
        if (!path) return 1;
        failed = lstat(path, &st) && dprintf(s->lock, "%s\n", names[i]) < 0;
        free(path);
    }
    return failed || fsync(s->lock) ? fault_errno(f, "the lock of the store cannot be written") : 0;
}

/* Notes the objects of the manifest on disk that the one in memory no longer has. */
static int note_gone(const store *s, fault *f)
{
    char (*names)[OBJECT_NAME] = names_of(&s->m, f), name[OBJECT_NAME];
    store old = *s;
    size_t i;
    int failed;
    memset(&old.m, 0, sizeof old.m);
    failed = !names || read_manifest(&old, f);
    for (i = 0; i < old.m.object_count && !failed; i++) {
        object_name(&old.m.objects[i], name);
        if (bsearch(name, names, s->m.object_count, sizeof *names, by_name)) continue;
        failed = dprintf(s->lock, "%s\n", name) < 0 && fault_errno(f, "the lock of the store cannot be written");
    }
    if (!failed && fsync(s->lock)) failed = fault_errno(f, "the lock of the store cannot be written");
    manifest_free(&old.m);
    free(names);
    return failed;
}

/* Those of the noted names that the manifest does not have. */
static int remove_noted(const store *s, char *text, DIR *d, fault *f)
{
    char (*names)[OBJECT_NAME] = names_of(&s->m, f), *end;
    int failed = !names;
    for (; !failed && (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = 0;
        if (!is_ours(text) || bsearch(text, names, s->m.object_count, sizeof *names, by_name)) continue;
        if (unlinkat(dirfd(d), text, 0) && errno != ENOENT && errno != EISDIR)
            failed = fault_errno(f, OBJECTS "/%s, which no snapshot needs, cannot be removed", text);
    }
    free(names);
    return failed;
}

/* Temporary files of the store's own names, as place.h calls them: only who holds the lock makes these, and none is in use now. */
static int remove_temporary(const store *s, const char *folder, fault *f)
{
    char *path = store_path(s, "", folder, f);
    DIR *d = path ? opendir(path) : NULL;
    struct dirent *e;
    int failed = !path;
    if (path && !d) failed = fail(path, "cannot be opened", f);
    while (!failed && (e = readdir(d)) != NULL) {
        const char *own = strncmp(e->d_name, ".bitsnap-", 9) ? NULL : strchr(e->d_name, '~');
        if (!own || (strcmp(own + 1, MANIFEST) && !is_ours(own + 1))) continue;
        if (unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT && errno != EISDIR) failed = fail(path, "has a temporary file that cannot be removed", f);
    }
    if (d) (void)closedir(d);
    free(path);
    return failed;
}

int store_sweep(const store *s, fault *f)
{
    char *path = store_path(s, "", OBJECTS, f), *text = NULL;
    DIR *d = path ? opendir(path) : NULL;
    struct stat st;
    ssize_t size;
    int failed = !path;
    if (path && !d) failed = fail(path, "cannot be opened", f);
    failed = failed || (fstat(s->lock, &st) && fault_errno(f, "cannot be locked"));
    if (!failed && st.st_size > LOCK_MAX) failed = fault_set(f, "has a lock that is no list of names; remove that file, if no program uses the store");
    if (!failed && !(text = (char *)calloc(1, (size_t)st.st_size + 1))) failed = fault_memory(f);
    if (!failed && (size = pread(s->lock, text, (size_t)st.st_size, 0)) != st.st_size) failed = fault_errno(f, "its lock cannot be read");
    failed = failed || remove_noted(s, text, d, f) || remove_temporary(s, ".", f) || remove_temporary(s, OBJECTS, f);
    if (d) (void)closedir(d);
    free(text);
    free(path);
    return failed;
}

int store_save(store *s, used_files *u, fault *f)
{
    return note_gone(s, f) || write_manifest(s, u, f) || store_sweep(s, f);
}

int store_strays(const store *s, char first[256], size_t *count, fault *f)
{
    char (*names)[OBJECT_NAME] = names_of(&s->m, f), *path = store_path(s, "", OBJECTS, f);
    DIR *d = names && path ? opendir(path) : NULL;
    struct dirent *e;
    *count = 0;
    while (d && (e = readdir(d)) != NULL)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") && !bsearch(e->d_name, names, s->m.object_count, sizeof *names, by_name) && !(*count)++)
            (void)snprintf(first, 256, "%s", e->d_name);
    if (d) (void)closedir(d);
    else if (names && path) (void)fail(path, "cannot be opened", f);
    free(path);
    free(names);
    return !d;
}

void store_undo(store *s)
{
    char *objects, *lock_path, *listed;
    fault ignored;
    if (!s->changes) return;
    manifest_free(&s->m);
    s->changes = !read_manifest(s, &ignored) && !store_sweep(s, &ignored); /* if not, the lock keeps the names for the next run */
    if (!s->changes || !s->begun || s->m.step_count) return;
    objects = store_path(s, "", OBJECTS, &ignored);
    lock_path = store_path(s, "", LOCK, &ignored);
    listed = store_path(s, "", MANIFEST, &ignored);
    if (objects && lock_path && listed && !rmdir(objects) && !unlink(listed) && !unlink(lock_path) && s->made) (void)rmdir(s->path);
    free(objects);
    free(lock_path);
    free(listed);
}
