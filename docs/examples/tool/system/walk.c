/* walk.c - lists what is in a folder.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct walker {
    walk *to;
    const selection *select;
    const char *real;  /* path of the folder, with links resolved */
    size_t skip;       /* characters of a path before the name */
    fault *f;
} walker;

/* ================================================================================= SELECTION */

/* As in grep, rsync and git: a glob with a slash must match the whole name, any other glob its last part. */
static int matches(const char *const *globs, size_t count, const char *name)
{
    size_t i;
    for (i = 0; i < count; i++) {
        const char *glob = globs[i], *inner = strchr(glob, '/');
        const int whole = inner && inner[1];
        if (*glob == '/') glob++;
        if (!fnmatch(glob, whole ? name : last_part(name), 0)) return 1;
    }
    return 0;
}

int name_ends(const char *name, const char *suffix)
{
    const size_t size = strlen(name), more = strlen(suffix);
    return size > more && !strcmp(name + size - more, suffix) && name[size - more - 1] != '/';
}

int is_folder(const char *path)
{
    struct stat st;
    return strcmp(path, "-") && !stat(path, &st) && S_ISDIR(st.st_mode);
}

int walk_is_tensor_file(const walk_entry *x)
{
    return x->kind == FOUND_FILE && (name_ends(x->name, ".safetensors") || name_ends(x->name, ".bsnap"));
}

int selection_excludes(const selection *s, const char *name)
{
    char *part = strdup(name);
    int excluded = 0;
    while (part && !excluded) {
        char *slash = strrchr(part, '/');
        excluded = matches(s->exclude, s->excludes, part);
        if (!slash) break;
        *slash = 0;
    }
    free(part);
    return excluded;
}

int selection_includes(const selection *s, const char *name) { return !s->includes || matches(s->include, s->includes, name); }

/* Returns 1 for unfinished outputs of running or killed runs, which directory.h and place.h name. */
static int is_unfinished(const char *name)
{
    return !strncmp(name, ".bitsnap-new-", 13) || !strncmp(name, ".bitsnap-part~", 14) || !strncmp(name, ".bitsnap-done~", 14);
}

static int selected(const walker *k, const char *name, int is_directory)
{
    const selection *s = k->select;
    if (!s) return 1;
    if (matches(s->exclude, s->excludes, name)) return 0;
    return is_directory || selection_includes(s, name);
}

/* ================================================================================= WALKING */

/* Sets the text of a link, and whether it leads out of the folder. */
static int look_at_link(const walker *k, walk_entry *x)
{
    const size_t room = 4096, root = strlen(k->real);
    char *real;
    ssize_t size;
    x->text = (char *)malloc(room);
    if (!x->text) return fault_memory(k->f);
    size = readlink(x->path, x->text, room);
    if (size < 0 || (size_t)size == room) return fault_errno_in(k->f, x->path, "cannot be read");
    x->text[size] = 0;
    real = realpath(x->path, NULL);
    x->leads_out = *x->text == '/' || !real || strncmp(real, k->real, root) || (real[root] && real[root] != '/' && root > 1);
    free(real);
    return 0;
}

/* Adds an entry, which takes over the path. */
static walk_entry *add(const walker *k, char *path)
{
    walk *w = k->to;
    struct stat st, there;
    walk_entry *x = (walk_entry *)grown(w->at, w->count, &w->capacity, sizeof *x, k->f);
    if (!x) return free(path), NULL;
    w->at = x;
    x += w->count++;
    x->path = path;
    x->name = w->count == 1 ? "" : path + k->skip;
    if (w->count == 1 && k->select ? stat(path, &st) : lstat(path, &st)) return (void)fault_errno_in(k->f, path, "cannot be examined"), NULL;
    if (S_ISLNK(st.st_mode) && k->select && k->select->follow && !stat(path, &there) && S_ISREG(there.st_mode)) st = there;
    x->kind = S_ISREG(st.st_mode) ? FOUND_FILE : S_ISDIR(st.st_mode) ? FOUND_DIRECTORY : S_ISLNK(st.st_mode) ? FOUND_LINK : FOUND_OTHER;
    x->mode = st.st_mode & 07777;
    x->owner = st.st_uid;
    x->group = st.st_gid;
    x->stamp = stamp_of(&st);
    return x->kind == FOUND_LINK && look_at_link(k, x) ? NULL : x;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static void free_names(char **names, size_t count)
{
    while (count) free(names[--count]);
    free((void *)names);
}

/* Lists the names in a directory, sorted. Fails if it is not the directory that was found before. */
static int list(const walker *k, const char *path, const file_stamp *stamp, char ***names, size_t *count)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    size_t capacity = 0;
    struct dirent *e;
    struct stat st;
    file_stamp now;
    int failed;
    *names = NULL;
    *count = 0;
    if (!d) {
        (void)fault_errno_in(k->f, path, "cannot be opened");
        if (fd >= 0) (void)close(fd);
        return 1;
    }
    memset(&now, 0, sizeof now);
    if (!fstat(fd, &st)) now = stamp_of(&st);
    if (!stamp_is_file(&now, stamp)) {
        (void)closedir(d);
        (void)fault_set(k->f, "was replaced while this command ran; repeat it when no program writes there");
        return fault_in(k->f, path);
    }
    for (errno = 0; (e = readdir(d)) != NULL; errno = 0) {
        char **more;
        if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || (k->select && is_unfinished(e->d_name))) continue;
        more = (char **)grown((void *)*names, *count, &capacity, sizeof *more, k->f);
        if (more) *names = more;
        if (!more || !(more[*count] = strdup(e->d_name))) {
            (void)closedir(d);
            return fault_memory(k->f);
        }
        ++*count;
    }
    failed = errno && fault_errno_in(k->f, path, "cannot be read");
    if (*count) qsort((void *)*names, *count, sizeof **names, by_name);
    (void)closedir(d);
    return failed;
}

static int go_through(const walker *k, const char *path, file_stamp stamp)
{
    char **names;
    size_t count, i;
    int failed = list(k, path, &stamp, &names, &count);
    for (i = 0; i < count && !failed; i++) {
        char *below = path_in(path, names[i], k->f);
        struct stat st;
        if (!below) {
            failed = 1;
        } else if (!selected(k, below + k->skip, !lstat(below, &st) && S_ISDIR(st.st_mode))) {
            free(below);
        } else {
            const walk_entry *x = add(k, below);
            failed = !x || (x->kind == FOUND_DIRECTORY && go_through(k, below, x->stamp));
        }
    }
    free_names(names, count);
    return failed;
}

int walk_folder(walk *w, const char *path, const selection *s, fault *f)
{
    walker k;
    char *real = realpath(path, NULL), *own = strdup(path);
    const walk_entry *x = NULL;
    int failed;
    memset(w, 0, sizeof *w);
    k.to = w;
    k.select = s;
    k.real = real;
    k.skip = strlen(path) + (*path && path[strlen(path) - 1] != '/');
    k.f = f;
    if (!real) (void)fault_errno_in(f, path, "cannot be opened");
    else if (!own) (void)fault_memory(f);
    if (real && own) x = add(&k, own);
    else free(own);
    if (x && x->kind != FOUND_DIRECTORY) {
        (void)fault_set(f, "is not a folder");
        (void)fault_in(f, path);
        x = NULL;
    }
    failed = !x || go_through(&k, path, x->stamp);
    free(real);
    return failed;
}

void walk_free(walk *w)
{
    while (w->count) {
        free(w->at[--w->count].path);
        free(w->at[w->count].text);
    }
    free(w->at);
    memset(w, 0, sizeof *w);
}

/* ================================================================================= AFTERWARDS */

int walk_check_same(const walk *before, const walk *now, fault *f)
{
    size_t i;
    for (i = 0; i < before->count || i < now->count; i++) {
        const walk_entry *a = i < before->count ? &before->at[i] : NULL, *b = i < now->count ? &now->at[i] : NULL;
        const int order = !a ? 1 : !b ? -1 : strcmp(a->name, b->name);
        if (!order && a->kind == b->kind && (a->kind == FOUND_DIRECTORY ? stamp_is_file : stamp_is_same)(&a->stamp, &b->stamp)) continue;
        (void)fault_set(f, order < 0 ? "was removed while this command ran" : order > 0 ? "was created while this command ran" : "was changed or replaced while this command ran");
        return fault_in(f, (order > 0 ? b : a)->path);
    }
    return 0;
}

int walk_remove(const walk *w, fault *f)
{
    size_t i;
    for (i = 0; i < w->count; i++)
        if (w->at[i].kind == FOUND_DIRECTORY && (w->at[i].mode & S_IRWXU) != S_IRWXU) (void)chmod(w->at[i].path, S_IRWXU);
    for (i = w->count; i-- > 0;) {
        const walk_entry *x = &w->at[i];
        if (!(x->kind == FOUND_DIRECTORY ? rmdir(x->path) : unlink(x->path)) || errno == ENOENT) continue;
        (void)fault_errno(f, "cannot be removed");
        return fault_in(f, x->path);
    }
    return 0;
}
