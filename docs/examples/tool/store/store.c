/* store.c - a folder of snapshots on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "store.h"

#include "../system/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK "lock"
#define DAMAGED "manifest-damaged.json"
#define LOCK_MAX ((off_t)1 << 30)

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

/* Fails if the folder holds other files than a run leaves that was killed before it wrote a manifest, or that another run is
 * writing now. The caller checks again once it has the lock. */
static int check_new(const store *s, fault *f)
{
    static const char *const own[] = { ".", "..", OBJECTS, LOCK, MANIFEST, MANIFEST_BEFORE, DAMAGED };
    DIR *d = opendir(s->path);
    struct dirent *e;
    size_t i;
    int failed = 0;
    if (!d) return fault_errno_in(f, s->path, "cannot be opened");
    while (!failed && (e = readdir(d)) != NULL) {
        for (i = 0; i < sizeof own / sizeof *own && strcmp(own[i], e->d_name); i++) {}
        if (i == sizeof own / sizeof *own && strncmp(e->d_name, ".bitsnap-", 9))
            failed = fault_set(f, "is not a store of snapshots, and has other files in it; give the name of a new folder");
    }
    (void)closedir(d);
    return failed;
}

/* Fails if anything in the folder shows that it had a manifest. A new store never looks like this, because an empty manifest is
 * written before the first object. */
static int check_lost(const store *s, fault *f)
{
    char *objects = store_path(s, "", OBJECTS, f), *before = store_path(s, "", MANIFEST_BEFORE, f);
    DIR *d = before ? opendir(objects) : NULL;
    struct dirent *e;
    struct stat st;
    int failed = !objects || !before, lost = before && !lstat(before, &st);
    if (!failed && !d && errno != ENOENT && errno != ENOTDIR) failed = fault_errno_in(f, objects, "cannot be opened");
    while (d && (e = readdir(d)) != NULL) lost |= strcmp(e->d_name, ".") && strcmp(e->d_name, "..");
    if (d) (void)closedir(d);
    free(objects);
    free(before);
    return failed || (lost && fault_set(f, "has no " MANIFEST ", but something in it that only that file explains; bitsnap fsck rebuilds it; "
                                           "nothing is removed"));
}

static int make(store *s, fault *f)
{
    char *objects = store_path(s, "", OBJECTS, f);
    int failed = !objects;
    if (!failed && !mkdir(s->path, 0777)) s->made = 1;
    else if (!failed && errno != EEXIST) failed = fault_errno(f, "cannot be made");
    if (!failed && mkdir(objects, 0777) && errno != EEXIST) failed = fault_errno_in(f, objects, "cannot be made");
    failed = failed || place_sync(s->path, f) || place_sync(objects, f);
    free(objects);
    return failed;
}

/* Reads the first line of the lock, which names the run that changes the store. */
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
        (void)fault_errno_in(f, path, "cannot be opened");
        free(path);
        return 1;
    }
    free(path);
    if (s->lock < 0) return 0; /* a reader without the right to write, and no run has made the lock yet */
    if (!flock(s->lock, (changes ? LOCK_EX : LOCK_SH) | LOCK_NB)) return 0;
    if (errno != EWOULDBLOCK) return changes ? fault_errno(f, "cannot be locked") : 0;
    line_of(s, text);
    /* the line is of a run that was killed: only readers hold the lock now */
    if (changes && !flock(s->lock, LOCK_SH | LOCK_NB)) text[0] = 0;
    (void)fault_set(f, "is in use by %s; try again when that has ended", *text ? text : "a run that reads it");
    return f->passes = 1;
}

/* Fails if a file or folder that will be changed is a link, since its target may belong to another store. */
static int check_own(const store *s, const char *name, int folder, int *there, fault *f)
{
    char *path = store_path(s, "", name, f);
    struct stat st;
    int failed = !path;
    *there = 0;
    if (path && lstat(path, &st)) failed = errno != ENOENT && fault_errno_in(f, path, "cannot be examined");
    else if (path) *there = 1;
    if (!failed && *there && !(folder ? S_ISDIR(st.st_mode) : S_ISREG(st.st_mode)))
        failed = fault_set(f, S_ISLNK(st.st_mode) ? "is a link, and may belong to another store; replace it with the folder that it leads to" :
                              folder ? "is not a folder" : "is not a manifest of a store: it is not a file") && fault_in(f, path);
    free(path);
    return failed;
}

/* Fails if an object is missing or has another size. */
static int check_objects(const store *s, fault *f)
{
    struct stat st;
    size_t i;
    int failed = 0;
    for (i = 0; i < s->m.object_count && !failed; i++) {
        char *path = store_object_path(s, &s->m.objects[i], f);
        failed = !path || stat(path, &st) || !S_ISREG(st.st_mode) || (uint64_t)st.st_size != s->m.objects[i].bytes;
        free(path);
    }
    return failed;
}

/* Reads manifest.json, or for LOOK and READ manifest-before.json in the cases described at store_open. */
static int read_manifest(store *s, store_use how, fault *f)
{
    const manifest_status status = manifest_read(&s->m, s->path, MANIFEST, f);
    fault ignored;
    if (!status) return 0;
    if (status == MANIFEST_FAILED) return 1;
    if (status == MANIFEST_NONE) *f->file = 0;
    if (status == MANIFEST_NONE ? !check_lost(s, f) || f->passes : !fault_add(f, "; bitsnap fsck rebuilds it")) return 1;
    manifest_free(&s->m);
    s->lost = 1;
    s->why = *f;
    if (how == STORE_REBUILD) return 0;
    return how >= STORE_CHANGE || manifest_read(&s->m, s->path, MANIFEST_BEFORE, &ignored) || check_objects(s, &ignored);
}

/* Writes this run to the lock. The notes of a killed run have been handled before. */
static int take(store *s, const char *command, fault *f)
{
    char host[200] = "";
    (void)gethostname(host, sizeof host - 1);
    if (ftruncate(s->lock, 0) || lseek(s->lock, 0, SEEK_SET) ||
        dprintf(s->lock, "bitsnap %s, process %ld on %s\n", command, (long)getpid(), host) < 0) return fault_errno(f, "cannot be locked");
    return 0;
}

int store_open(store *s, const char *path, store_use how, const char *command, fault *f)
{
    struct stat st;
    int there = 0, objects = 0;
    memset(s, 0, sizeof *s);
    s->path = path;
    s->lock = -1;
    if (stat(path, &st)) {
        if (errno != ENOENT || how != STORE_CREATE) {
            s->absent = errno == ENOENT;
            return fault_errno(f, "cannot be opened");
        }
    } else if (!S_ISDIR(st.st_mode)) {
        return fault_set(f, "is not a folder, as a store of snapshots must be");
    } else if (check_own(s, MANIFEST, 0, &there, f) || (!there && how == STORE_CREATE && check_new(s, f))) {
        return 1;
    } else if (!there && how != STORE_CREATE && !check_lost(s, f)) {
        s->absent = 1;
        return fault_set(f, "is not a store of snapshots: it has no " MANIFEST " in it");
    }
    if (how == STORE_CREATE && !there && make(s, f)) return 1;
    if (how != STORE_LOOK && lock(s, how, f)) return 1;
    /* check again: another run may have made the store before this one got the lock */
    if (how == STORE_CREATE && !there && (check_own(s, MANIFEST, 0, &there, f) || (!there && check_lost(s, f)))) return 1;
    if (how >= STORE_CHANGE && check_own(s, OBJECTS, 1, &objects, f)) return 1;
    s->begun = how == STORE_CREATE && !there;
    if (!s->begun && read_manifest(s, how, f)) return 1;
    if (how < STORE_CHANGE) return 0;
    if (!s->lost && store_sweep(s, f)) return 1; /* the lock keeps the names for the next run */
    s->changes = 1;
    return take(s, command, f) || (s->begun && manifest_save(&s->m, s->path, f));
}

void store_close(store *s)
{
    if (s->changes) (void)!ftruncate(s->lock, 0);
    if (s->lock >= 0) (void)close(s->lock);
    manifest_free(&s->m);
    s->lock = -1;
}

/* ================================================================================= CHANGING */

static int by_name(const void *a, const void *b) { return strcmp((const char *)a, (const char *)b); }

/* Returns the names of all files in `objects`, sorted. The caller frees them. Null with the fault set. */
static char (*names_of(const manifest *m, size_t *count, fault *f))[OBJECT_NAME]
{
    char (*names)[OBJECT_NAME] = (char (*)[OBJECT_NAME])malloc((m->object_count + m->step_count + 1) * sizeof *names);
    size_t i;
    *count = 0;
    if (!names) return (void)fault_memory(f), NULL;
    for (i = 0; i < m->object_count; i++) object_name(&m->objects[i], names[(*count)++]);
    for (i = 0; i < m->step_count; i++) record_name(m->steps[i].number, names[(*count)++]);
    qsort(names, *count, sizeof *names, by_name);
    return names;
}

/* Returns 1 and the number of the step if this is the name of a record. */
static int is_record(const char *name, uint64_t *step)
{
    char same[OBJECT_NAME];
    if (strncmp(name, "step-", 5)) return 0;
    *step = strtoull(name + 5, NULL, 10);
    record_name(*step, same);
    return *step <= STEP_MAX && !strcmp(name, same);
}

/* Returns 1 if the program gives such names to files in `objects`. */
static int is_ours(const char *name)
{
    static const char hex[] = "0123456789abcdef";
    uint64_t step;
    if (is_record(name, &step)) return 1;
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

/* Notes the files that the manifest on disk names and the one in memory does not, and the records of new steps. */
static int note_changes(const store *s, fault *f)
{
    size_t count, old_count = 0, i;
    char (*names)[OBJECT_NAME] = names_of(&s->m, &count, f), (*old)[OBJECT_NAME] = NULL;
    manifest m;
    int failed = !names || manifest_read(&m, s->path, MANIFEST, f);
    if (names) {
        if (!failed) failed = !(old = names_of(&m, &old_count, f));
        manifest_free(&m);
    }
    for (i = 0; i < old_count && !failed; i++) {
        if (bsearch(old[i], names, count, sizeof *names, by_name)) continue;
        failed = dprintf(s->lock, "%s\n", old[i]) < 0 && fault_errno(f, "the lock of the store cannot be written");
    }
    for (i = 0; i < s->m.step_count && !failed; i++) {
        char name[OBJECT_NAME];
        const char *const one = name;
        record_name(s->m.steps[i].number, name);
        if (!s->m.steps[i].recorded) failed = store_note(s, &one, 1, f);
    }
    if (!failed && fsync(s->lock)) failed = fault_errno(f, "the lock of the store cannot be written");
    free(old);
    free(names);
    return failed;
}

/* Removes the noted files that the manifest does not name. */
static int remove_noted(const store *s, char *text, DIR *d, fault *f)
{
    size_t count;
    char (*names)[OBJECT_NAME] = names_of(&s->m, &count, f), *end;
    int failed = !names;
    for (; !failed && (end = strchr(text, '\n')) != NULL; text = end + 1) {
        *end = 0;
        if (!is_ours(text) || bsearch(text, names, count, sizeof *names, by_name)) continue;
        if (unlinkat(dirfd(d), text, 0) && errno != ENOENT && errno != EISDIR)
            failed = fault_errno(f, OBJECTS "/%s, which no snapshot needs, cannot be removed", text);
    }
    free(names);
    return failed;
}

/* Removes temporary files (place.h) of the store's own names. Only the run with the lock makes them, and it has none at the
 * moment. */
static int remove_temporary(const store *s, const char *folder, fault *f)
{
    char *path = store_path(s, "", folder, f);
    DIR *d = path ? opendir(path) : NULL;
    struct dirent *e;
    int failed = !path;
    if (path && !d) failed = fault_errno_in(f, path, "cannot be opened");
    while (!failed && (e = readdir(d)) != NULL) {
        const char *own = strncmp(e->d_name, ".bitsnap-", 9) ? NULL : strchr(e->d_name, '~');
        if (!own || (strcmp(own + 1, MANIFEST) && strcmp(own + 1, MANIFEST_BEFORE) && !is_ours(own + 1))) continue;
        if (unlinkat(dirfd(d), e->d_name, 0) && errno != ENOENT && errno != EISDIR) failed = fault_errno_in(f, path, "has a temporary file that cannot be removed");
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
    if (path && !d) failed = fault_errno_in(f, path, "cannot be opened");
    failed = failed || (fstat(s->lock, &st) && fault_errno(f, "cannot be locked"));
    if (!failed && st.st_size > LOCK_MAX) failed = fault_set(f, "has a lock that is not a list of names; remove that file if no program uses the store");
    if (!failed && !(text = (char *)calloc(1, (size_t)st.st_size + 1))) failed = fault_memory(f);
    if (!failed && (size = pread(s->lock, text, (size_t)st.st_size, 0)) != st.st_size) failed = fault_errno(f, "its lock cannot be read");
    failed = failed || remove_noted(s, text, d, f) || remove_temporary(s, ".", f) || remove_temporary(s, OBJECTS, f);
    if (d) (void)closedir(d);
    free(text);
    free(path);
    return failed;
}

int store_save(store *s, fault *f)
{
    return note_changes(s, f) || manifest_save(&s->m, s->path, f) || store_sweep(s, f);
}

int store_strays(const store *s, char first[256], size_t *count, fault *f)
{
    size_t known;
    char (*names)[OBJECT_NAME] = names_of(&s->m, &known, f), *path = store_path(s, "", OBJECTS, f);
    DIR *d = names && path ? opendir(path) : NULL;
    struct dirent *e;
    *count = 0;
    while (d && (e = readdir(d)) != NULL) {
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || bsearch(e->d_name, names, known, sizeof *names, by_name)) continue;
        if (!(*count)++) (void)snprintf(first, 256, "%s", e->d_name);
    }
    if (d) (void)closedir(d);
    else if (names && path) (void)fault_errno_in(f, path, "cannot be opened");
    free(path);
    free(names);
    return !d;
}

void store_undo(store *s)
{
    char *objects, *lock_path, *before, *listed;
    fault ignored;
    if (!s->changes || s->lost) return;
    manifest_free(&s->m);
    /* after a failure here the lock keeps the names for the next run */
    s->changes = !manifest_read(&s->m, s->path, MANIFEST, &ignored) && !store_sweep(s, &ignored);
    if (!s->changes || !s->begun || s->m.step_count) return;
    objects = store_path(s, "", OBJECTS, &ignored);
    lock_path = store_path(s, "", LOCK, &ignored);
    before = store_path(s, "", MANIFEST_BEFORE, &ignored);
    listed = store_path(s, "", MANIFEST, &ignored);
    if (objects && lock_path && before && listed && !rmdir(objects) && (!unlink(before) || errno == ENOENT) && !unlink(listed) &&
        !unlink(lock_path) && s->made)
        (void)rmdir(s->path);
    free(objects);
    free(lock_path);
    free(before);
    free(listed);
}

/* ================================================================================= REBUILDING */

typedef struct rebuilding {
    store *s;
    manifest known; /* all steps with a record, and their objects */
    void (*lost)(void *context, const char *path, const char *what);
    void *context;
} rebuilding;

static int take_record(rebuilding *r, const char *name, uint64_t step, fault *f)
{
    char *folder = store_path(r->s, "", OBJECTS, f);
    manifest one;
    manifest_status status;
    fault why;
    size_t i;
    int failed = 0;
    if (!folder) return 1;
    memset(&why, 0, sizeof why);
    status = manifest_read(&one, folder, name, &why);
    if (status && why.passes) {
        *f = why;
        failed = 1;
    } else if (status || one.step_count != 1 || one.steps[0].number != step) {
        r->lost(r->context, name, status ? why.text : "is not a record of that step");
    } else {
        for (i = 0; i < one.object_count && !failed; i++)
            failed = !manifest_object(&r->known, one.objects[i].id) && !manifest_add_object(&r->known, &one.objects[i], f);
        failed = failed || manifest_add_step(&r->known, &one.steps[0], f);
    }
    manifest_free(&one);
    free(folder);
    return failed;
}

/* Adds a file that holds the content of an object of a record. Of a whole file and a delta, the whole file is taken. */
static int take_object(rebuilding *r, const char *name, fault *f)
{
    const uint64_t id = strtoull(name, NULL, 16);
    const store_object *known = manifest_object(&r->known, id);
    char same[OBJECT_NAME], *path;
    store_object x, *there = manifest_object(&r->s->m, id);
    struct stat st;
    int failed = 0;
    if (!known) return 0;
    x = *known;
    x.has_base = name[16] == '-';
    x.base = x.has_base ? strtoull(name + 17, NULL, 16) : 0;
    object_name(&x, same);
    if (strcmp(name, same) || (there && x.has_base)) return 0;
    path = store_path(r->s, OBJECTS, name, f);
    if (!path) return 1;
    if (stat(path, &st)) failed = fault_errno_in(f, path, "cannot be examined");
    x.bytes = failed ? 0 : (uint64_t)st.st_size;
    free(path);
    if (there) *there = x;
    return failed || (!there && !manifest_add_object(&r->s->m, &x, f));
}

/* Calls a function for each name in `objects`. */
static int read_names(rebuilding *r, int records, fault *f)
{
    char *path = store_path(r->s, "", OBJECTS, f);
    DIR *d = path ? opendir(path) : NULL;
    struct dirent *e;
    uint64_t step;
    int failed = !path;
    if (path && !d) failed = fault_errno_in(f, path, "cannot be opened");
    while (!failed && (e = readdir(d)) != NULL) {
        const int record = is_record(e->d_name, &step);
        if (record && records) failed = take_record(r, e->d_name, step, f);
        if (!record && !records && is_ours(e->d_name)) failed = take_object(r, e->d_name, f);
    }
    if (d) (void)closedir(d);
    free(path);
    return failed;
}

/* Moves the steps whose files all have an object from r->known to the store. */
static int take_steps(rebuilding *r, fault *f)
{
    size_t i, k;
    for (i = 0; i < r->known.step_count; i++) {
        store_step *s = &r->known.steps[i];
        char name[OBJECT_NAME], text[400];
        for (k = 0; k < s->count && (s->entries[k].kind != ENTRY_FILE || manifest_object(&r->s->m, s->entries[k].id)); k++) {}
        if (k == s->count) {
            if (manifest_add_step(&r->s->m, s, f)) return 1;
            continue;
        }
        record_name(s->number, name);
        (void)snprintf(text, sizeof text, "step %" PRIu64 " cannot be restored: %.255s is in no object, or in a delta to a missing one", s->number,
                       s->entries[k].path);
        r->lost(r->context, name, text);
    }
    return 0;
}

static int set_aside(const store *s, fault *f)
{
    char *listed = store_path(s, "", MANIFEST, f), *aside = listed ? store_path(s, "", DAMAGED, f) : NULL;
    int failed = !aside;
    if (aside && rename(listed, aside) && errno != ENOENT) failed = fault_errno_in(f, listed, "cannot be renamed");
    free(listed);
    free(aside);
    return failed;
}

int store_rebuild(store *s, int dry, void (*lost)(void *context, const char *path, const char *what), void *context, fault *f)
{
    rebuilding r = { .s = s, .lost = lost, .context = context };
    int failed;
    failed = read_names(&r, 1, f) || read_names(&r, 0, f);
    if (!failed) manifest_remove_broken(&s->m);
    failed = failed || take_steps(&r, f);
    manifest_free(&r.known);
    manifest_drop_unneeded(&s->m); /* objects of other steps are not listed, so nothing removes them */
    if (!failed && !s->m.step_count)
        failed = fault_set(f, "has no record of a step that can be restored (" OBJECTS "/step-N.json; earlier versions wrote none); "
                           "restore a copy of " MANIFEST);
    return failed || (!dry && (set_aside(s, f) || manifest_save(&s->m, s->path, f)));
}
