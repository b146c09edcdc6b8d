/* directory.c - an output that is a directory. It gets its name once everything in it is whole and on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * The list has records, each ending with a byte 0. The first names the directory, the one that it replaces, and how its files are
 * made. Every other record is a finished file: the stamp of its source, its own stamp, and its name. A file with another stamp is
 * made again. So half a record, or a file that another process changes, costs only work. A directory other than that in the list
 * is not touched. */
#include "directory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define LIST_MAX ((off_t)64 << 20)

enum { STAMP_NUMBERS = 7, STAMP_TEXT = STAMP_NUMBERS * 21 };

/* ================================================================================= THE LIST */

static void put_stamp(char *text, const file_stamp *s)
{
    (void)snprintf(text, STAMP_TEXT, "%llu %llu %llu %lld.%ld %lld.%ld ", (unsigned long long)s->device, (unsigned long long)s->inode,
                   (unsigned long long)s->size, (long long)s->modified.tv_sec, s->modified.tv_nsec, (long long)s->changed.tv_sec, s->changed.tv_nsec);
}

/* Returns what follows the stamp, or null. */
static const char *stamp_read(const char *text, file_stamp *s)
{
    unsigned long long device, inode, size;
    long long modified, changed;
    int n = 0;
    memset(s, 0, sizeof *s);
    if (sscanf(text, "%llu %llu %llu %lld.%ld %lld.%ld %n", &device, &inode, &size, &modified, &s->modified.tv_nsec, &changed, &s->changed.tv_nsec, &n) !=
            STAMP_NUMBERS || !n) return NULL;
    s->device = (dev_t)device;
    s->inode = (ino_t)inode;
    s->size = (off_t)size;
    s->modified.tv_sec = (time_t)modified;
    s->changed.tv_sec = (time_t)changed;
    return text + n;
}

static int add_record(directory *d, const char *record, fault *f)
{
    finished *x = (finished *)grown(d->files, d->count, &d->capacity, sizeof *x, f);
    const char *name;
    if (!x) return 1;
    d->files = x;
    x += d->count;
    if (!(name = stamp_read(record, &x->source)) || !(name = stamp_read(name, &x->own))) return 0;
    x->name = strdup(name);
    if (!x->name) return fault_memory(f);
    d->count++;
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(((const finished *)a)->name, ((const finished *)b)->name); }

int directory_take_list(directory *d, const char *text, size_t size, int *mine, fault *f)
{
    file_stamp of, replaced;
    const char *how = stamp_read(text, &of), *at, *end = text + size;
    int failed = 0;
    how = how ? stamp_read(how, &replaced) : NULL;
    *mine = how && (stamp_is_file(&of, &d->own) || stamp_is_file(&replaced, &d->own)); /* the latter after an exchange */
    if (*mine && !strcmp(how, d->how))
        for (at = text + strlen(text) + 1; at < end && !failed; at += strlen(at) + 1)
            if (at + strlen(at) < end) failed = add_record(d, at, f);
    if (d->count) qsort(d->files, d->count, sizeof *d->files, by_name);
    return failed;
}

/* Reads the list of an earlier run. *mine is 0 if there is none, or if it belongs to another directory. */
static int read_list(directory *d, int *mine, fault *f)
{
    const int fd = open(d->list, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    char *text = NULL;
    ssize_t got = 0;
    int failed = 0;
    *mine = 0;
    if (fd < 0) return errno == ENOENT ? 0 : fault_errno_in(f, d->list, "cannot be opened");
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size <= LIST_MAX) {
        text = (char *)malloc((size_t)st.st_size + 1);
        got = text ? read(fd, text, (size_t)st.st_size) : 0;
    }
    (void)close(fd);
    if (got < 0) got = 0;
    if (text) text[got] = 0;
    if (text) failed = directory_take_list(d, text, (size_t)got, mine, f);
    free(text);
    return failed;
}

/* Writes a record in one call, so that it is whole or missing. */
static int put_record(int fd, const char *first, const char *second, const char *rest, fault *f)
{
    const size_t a = strlen(first), b = strlen(second), c = strlen(rest), size = a + b + c + 1;
    char *record = (char *)malloc(size);
    int failed;
    if (!record) return fault_memory(f);
    memcpy(record, first, a);
    memcpy(record + a, second, b);
    memcpy(record + a + b, rest, c + 1);
    failed = write(fd, record, size) != (ssize_t)size && fault_errno(f, "cannot be written");
    free(record);
    return failed;
}

static int put_finished(const directory *d, const finished *x, fault *f)
{
    char source[STAMP_TEXT], own[STAMP_TEXT];
    put_stamp(source, &x->source);
    put_stamp(own, &x->own);
    return put_record(d->list_fd, source, own, x->name, f) ? fault_in(f, d->list) : 0;
}

/* Replaces the list by a new one, which keeps the wanted files of the old one. */
static int write_list(directory *d, fault *f)
{
    char *fresh = place_beside(d->target, ".bitsnap-done~~", f), own[STAMP_TEXT], replaced[STAMP_TEXT];
    file_stamp nothing;
    size_t i;
    int failed;
    if (!fresh) return 1;
    (void)unlink(fresh); /* left by a run that was killed here; this run holds the lock */
    d->list_fd = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    memset(&nothing, 0, sizeof nothing);
    put_stamp(own, &d->own);
    put_stamp(replaced, d->replaces ? &d->before.at[0].stamp : &nothing);
    failed = d->list_fd < 0 ? fault_errno_in(f, fresh, "cannot be made") : put_record(d->list_fd, own, replaced, d->how, f);
    for (i = 0; i < d->count && !failed; i++)
        if (d->files[i].wanted) failed = put_finished(d, &d->files[i], f);
    if (!failed && rename(fresh, d->list)) failed = fault_errno_in(f, d->list, "cannot be made");
    if (failed) (void)unlink(fresh);
    free(fresh);
    return failed;
}

/* ================================================================================= OPENING */

/* Returns 1 if the second path is the first, or inside it. Both have no links. */
static int lies_in(const char *folder, const char *path)
{
    const size_t size = strlen(folder);
    return !strncmp(folder, path, size) && (!path[size] || path[size] == '/' || !strcmp(folder, "/"));
}

static int check_apart(const directory *d, const char *from, const used_files *u, fault *f)
{
    char *real = realpath(from, NULL);
    size_t i;
    int failed = 0;
    if (!real) return fault_errno_in(f, from, "cannot be opened");
    if (lies_in(real, d->target) || lies_in(d->target, real))
        failed = fault_set(f, "is %s, or inside it, or contains it; choose another output with -o", from);
    free(real);
    for (i = 0; i < u->count && !failed; i++)
        if (u->files[i].path && lies_in(d->target, u->files[i].path))
            failed = fault_set(f, "has %s in it, which the command reads; choose another output with -o", u->files[i].name);
    return failed;
}

/* Opens and locks the directory beside the target, and makes it if it does not exist. */
static int open_part(directory *d, fault *f)
{
    unsigned tries;
    for (tries = 0; tries < 100; tries++) {
        struct stat st;
        file_stamp now;
        if (mkdir(d->part, S_IRWXU) && errno != EEXIST) return fault_errno(f, "cannot be made");
        d->lock = open(d->part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (d->lock < 0 && errno == ENOENT) continue;
        if (d->lock < 0 || fstat(d->lock, &st)) return fault_errno_in(f, d->part, "cannot be opened");
        if (flock(d->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) {
            (void)fault_set(f, "is being made by another run");
            return 1;
        }
        d->own = stamp_of(&st);
        if (!stamp_at(d->part, &now) && stamp_is_file(&now, &d->own)) {
            if (st.st_uid == geteuid()) return 0;
            (void)fault_set(f, "belongs to another user; remove it, or choose another output with -o");
            return fault_in(f, d->part);
        }
        (void)close(d->lock); /* the other run has just given it its name */
        d->lock = -1;
    }
    return fault_set(f, "cannot be made: other runs keep making it");
}

/* Fails if the directory does not belong to the list and is not empty. A run that was killed before it wrote a list leaves an
 * empty one. */
static int check_part(directory *d, int mine, fault *f)
{
    walk w;
    int failed = 0;
    if (mine) return 0;
    failed = walk_folder(&w, d->part, NULL, f);
    if (!failed && w.count > 1) {
        (void)fault_set(f, "has files in it, but no list says which run left it; look at them, and remove it");
        failed = fault_in(f, d->part);
    }
    walk_free(&w);
    return failed;
}

static int open_it(directory *d, const char *path, int replace, const char *from, const used_files *u, fault *f)
{
    char *trimmed = strdup(path);
    size_t size = strlen(path);
    struct stat st;
    int mine;
    if (!trimmed) return fault_memory(f);
    while (size > 1 && trimmed[size - 1] == '/') trimmed[--size] = 0;
    d->target = place_of(trimmed, f);
    free(trimmed);
    if (!d->target) return 1;
    d->part = place_beside(d->target, ".bitsnap-part~", f);
    d->list = place_beside(d->target, ".bitsnap-done~", f);
    if (!d->part || !d->list) return 1;
    if (lstat(d->part, &st)) (void)unlink(d->list); /* left by a run that was killed just before this last step */
    d->replaces = !lstat(d->target, &st);
    if (check_apart(d, from, u, f)) return 1;
    if (d->replaces && !S_ISDIR(st.st_mode)) return fault_set(f, "is not a folder; give the name of a folder, or a new name");
    if (d->replaces && !replace) return fault_set(f, "exists already; -f replaces it as a whole, -o chooses another name");
    if (d->replaces && walk_folder(&d->before, d->target, NULL, f)) return 1;
    return open_part(d, f) || read_list(d, &mine, f) || check_part(d, mine, f);
}

int directory_open(directory *d, const char *path, int replace, const char *from, const char *how, const used_files *u, fault *f)
{
    memset(d, 0, sizeof *d);
    d->lock = d->list_fd = -1;
    d->name = path;
    d->how = strdup(how);
    if (!d->how) return fault_memory(f);
    return open_it(d, path, replace, from, u, f) && (*f->file || fault_in(f, path));
}

/* ================================================================================= FILES */

char *directory_path(const directory *d, const char *name, fault *f) { return path_in(d->part, name, f); }

static int is_called(const void *name, const void *x) { return strcmp((const char *)name, ((const finished *)x)->name); }

static finished *find(const directory *d, const char *name)
{
    return d->count ? (finished *)bsearch(name, d->files, d->count, sizeof *d->files, is_called) : NULL;
}

int directory_has(directory *d, const char *name, const file_stamp *source)
{
    finished *x = find(d, name);
    char *path;
    file_stamp now;
    fault ignored;
    path = x ? directory_path(d, name, &ignored) : NULL;
    if (path && !stamp_at(path, &now)) {
        x->source.links = source->links; /* not in the list */
        x->own.links = now.links;
        x->wanted = stamp_is_same(&x->source, source) && stamp_is_same(&x->own, &now);
    }
    free(path);
    return x && x->wanted;
}

int directory_begin(directory *d, fault *f)
{
    walk w;
    size_t i;
    int failed = walk_folder(&w, d->part, NULL, f);
    for (i = 0; i < w.count && !failed; i++)
        if (w.at[i].kind == FOUND_DIRECTORY) (void)chmod(w.at[i].path, S_IRWXU);
    for (i = w.count; i-- > 1 && !failed;) {
        const walk_entry *x = &w.at[i];
        const finished *known = find(d, x->name);
        if (x->kind == FOUND_DIRECTORY) failed = rmdir(x->path) && errno != ENOTEMPTY && errno != EEXIST;
        else if (!known || !known->wanted) failed = unlink(x->path) != 0;
        if (failed) (void)fault_errno_in(f, x->path, "cannot be removed");
    }
    walk_free(&w);
    d->begun = 1;
    return failed || write_list(d, f);
}

int directory_note(directory *d, const char *name, const file_stamp *source, fault *f)
{
    char *path = directory_path(d, name, f), *own = strdup(name);
    finished *x = (finished *)grown(d->files, d->count, &d->capacity, sizeof *x, f);
    int failed = !path || !own || !x;
    if (x) d->files = x;
    if (!own) (void)fault_memory(f);
    if (!failed) {
        x += d->count;
        x->name = own;
        x->source = *source;
        x->wanted = 1;
        failed = stamp_at(path, &x->own) ? fault_errno_in(f, path, "cannot be examined") : put_finished(d, x, f);
        d->count++;
        own = NULL;
    }
    free(own);
    free(path);
    return failed;
}

/* ================================================================================= THE END */

/* Writes the names of all entries but files to the disk; those of files are there already. */
static int sync_names(const directory *d, fault *f)
{
    walk w;
    size_t i;
    int failed = walk_folder(&w, d->part, NULL, f);
    for (i = 1; i < w.count && !failed; i++) failed = w.at[i].kind != FOUND_FILE && place_sync(w.at[i].path, f);
    walk_free(&w);
    return failed;
}

static int remove_all(const char *path, fault *f)
{
    walk w;
    const int failed = walk_folder(&w, path, NULL, f) || walk_remove(&w, f);
    walk_free(&w);
    return failed;
}

/* Removes the replaced directory. If another process has changed it since the command began, gives it back its name instead. */
static int remove_old(directory *d, fault *f)
{
    walk old;
    fault ignored;
    int failed = walk_folder(&old, d->part, NULL, f) || walk_check_same(&d->before, &old, f);
    if (failed) {
        d->named = place_exchange(d->part, d->target, &d->own, &ignored);
        (void)fault_add(f, "; nothing is replaced");
        (void)fault_in(f, d->name);
    } else {
        failed = walk_remove(&old, f);
    }
    walk_free(&old);
    return failed;
}

int directory_commit(directory *d, fault *f)
{
    const file_stamp *before = d->replaces ? &d->before.at[0].stamp : NULL;
    if (sync_names(d, f)) return 1;
    if (place_exchange(d->part, d->target, before, f) || place_sync(d->target, f)) return fault_in(f, d->name);
    d->named = 1;
    if (before && remove_old(d, f)) return 1;
    return unlink(d->list) ? fault_errno_in(f, d->list, "cannot be removed") : 0;
}

size_t directory_close(directory *d)
{
    fault ignored;
    size_t kept = 0, i;
    for (i = 0; i < d->count; i++) {
        kept += !d->named && d->files[i].wanted;
        free(d->files[i].name);
    }
    if (d->begun && !d->named && !kept) {
        (void)remove_all(d->part, &ignored);
        (void)unlink(d->list);
    } else if (d->lock >= 0) {
        (void)rmdir(d->part); /* succeeds only if it is empty */
    }
    if (d->list_fd >= 0) (void)close(d->list_fd);
    if (d->lock >= 0) (void)close(d->lock);
    walk_free(&d->before);
    free(d->files);
    free(d->how);
    free(d->list);
    free(d->part);
    free(d->target);
    return kept;
}
