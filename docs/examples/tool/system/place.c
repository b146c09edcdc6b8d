/* place.c - identifies files, makes temporary ones, and replaces and removes files without losing any.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Between a check of a file and the call that replaces or removes it, another process can give its name to a newer file. So the
 * file is first moved to a name that only this run uses, and then checked. It is removed if it is the right one, else it is moved
 * back. If the run is killed in between, both files remain under these names:
 *     .bitsnap-new-HOST-PID-TIME~NAME   a file being written; locked as long as its run lives, removed by a later run
 *     .bitsnap-old-HOST-PID-TIME~NAME   a file moved away from NAME; put back by a later run, never removed */
#include "posix.h"

#include "place.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/syscall.h>
#endif

/* ================================================================================= STAMPS */

static int time_is(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

file_stamp stamp_of(const struct stat *st)
{
    file_stamp s;
    s.device = st->st_dev;
    s.inode = st->st_ino;
    s.links = st->st_nlink;
    s.size = st->st_size;
    s.modified = st->st_mtim;
    s.changed = st->st_ctim;
    return s;
}

int stamp_at(const char *path, file_stamp *s)
{
    struct stat st;
    if (lstat(path, &st)) return -1;
    *s = stamp_of(&st);
    return 0;
}

int stamp_is_file(const file_stamp *a, const file_stamp *b) { return a->device == b->device && a->inode == b->inode; }

int stamp_is_content(const file_stamp *a, const file_stamp *b)
{
    return stamp_is_file(a, b) && a->size == b->size && time_is(&a->modified, &b->modified);
}

/* If the number of links differs, the file only got or lost a name, as when a newer file is renamed onto it: ctime does not count
 * then. */
int stamp_is_same(const file_stamp *a, const file_stamp *b)
{
    return stamp_is_content(a, b) && (time_is(&a->changed, &b->changed) || a->links != b->links);
}

/* ================================================================================= FILES IN USE */

void warn(const used_files *u, const char *name, const char *text)
{
    fault f;
    if (u->quiet) return;
    memset(&f, 0, sizeof f);
    (void)fault_set(&f, "warning: %s", text);
    (void)fault_in(&f, name);
    fault_print(&f);
}

void warn_errno(const used_files *u, const char *name, const char *text)
{
    fault f;
    (void)fault_errno(&f, "%s", text);
    warn(u, name, f.text);
}

/* FNV-1a */
static uint32_t hash_of(const char *p)
{
    uint32_t h = 2166136261u;
    for (; *p; p++) h = (h ^ (unsigned char)*p) * 16777619u;
    return h;
}

/* The file takes over the path, which may be null. */
static void set_path(used_file *file, char *path)
{
    file->path = path;
    file->hash = path ? hash_of(path) : 0;
}

static int is_plain(const struct stat *st) { return S_ISREG(st->st_mode) || S_ISBLK(st->st_mode); }

static used_file *used_add(used_files *u, const char *name, use role, fault *f)
{
    used_file *file = (used_file *)grown(u->files, u->count, &u->capacity, sizeof *file, f);
    if (!file) return NULL;
    u->files = file;
    file += u->count++;
    file->name = strdup(name);
    file->role = role;
    if (!file->name) return (void)fault_memory(f), NULL;
    return file;
}

void used_printing(used_files *u)
{
    struct stat st;
    u->prints = !fstat(STDOUT_FILENO, &st) && is_plain(&st);
    if (u->prints) u->printed = stamp_of(&st);
}

static int check_printed(const used_files *u, const char *name, const file_stamp *stamp, fault *f)
{
    if (!u->prints || !stamp_is_file(&u->printed, stamp)) return 0;
    (void)fault_set(f, "is the file that standard output leads to, and would be overwritten; redirect standard output elsewhere");
    return fault_in(f, shown_name(name));
}

int used_is_printed(const used_files *u)
{
    size_t i;
    for (i = 0; u->prints && i < u->count; i++)
        if (u->files[i].there && stamp_is_file(&u->printed, &u->files[i].stamp)) return 1;
    return 0;
}

int used_name(used_files *u, const char *name, use role, fault *f)
{
    used_file *file = used_add(u, name, role, f);
    const int standard = !strcmp(name, "-");
    struct stat st;
    fault none;
    if (!file) return 1;
    if (!standard) set_path(file, place_of(name, &none));
    if ((standard ? fstat(STDIN_FILENO, &st) : stat(name, &st)) || !is_plain(&st)) return 0;
    file->there = 1;
    file->stamp = stamp_of(&st);
    return check_printed(u, name, &file->stamp, f);
}

int used_opened(used_files *u, const char *name, const file_stamp *stamp, fault *f)
{
    use role = USE_INPUT;
    used_file *file;
    size_t i;
    for (i = 0; i < u->count; i++)
        if (u->files[i].role != USE_INPUT && !strcmp(u->files[i].name, name)) role = u->files[i].role;
    file = used_add(u, name, role, f);
    if (!file) return 1;
    file->there = file->opened = 1;
    file->stamp = *stamp;
    return check_printed(u, name, stamp, f);
}

int used_written(used_files *u, const char *path, const file_stamp *stamp, fault *f)
{
    used_file *file = used_add(u, "", USE_OUTPUT, f);
    if (!file) return 1;
    file->there = file->opened = 1;
    file->stamp = *stamp;
    set_path(file, strdup(path));
    return file->path ? 0 : fault_memory(f);
}

#define ANOTHER "; choose another output with -o"

int used_check(const used_files *u, const char *path, const file_stamp *stamp, fault *f)
{
    const uint32_t hash = path ? hash_of(path) : 0;
    size_t i;
    for (i = 0; i < u->count; i++) {
        const used_file *file = &u->files[i];
        const int is_it = stamp && file->there && stamp_is_file(stamp, &file->stamp);
        if (!is_it && !(path && file->path && hash == file->hash && !strcmp(path, file->path))) continue;
        switch (file->role) {
        case USE_INPUT: return fault_set(f, "is also an input (%s), which would be replaced" ANOTHER, file->name);
        case USE_BASE: return fault_set(f, "is also the base %s, which the output needs" ANOTHER, file->name);
        case USE_WEIGHTS: return fault_set(f, "is also the file with the weights (%s), which would be replaced" ANOTHER, file->name);
        default: return fault_set(f, "is already the output for another input; give each its own output");
        }
    }
    return 0;
}

int used_is_base(const used_files *u, const file_stamp *stamp)
{
    size_t i;
    for (i = 0; i < u->count; i++)
        if (u->files[i].role == USE_BASE && u->files[i].there && stamp_is_file(stamp, &u->files[i].stamp)) return 1;
    return 0;
}

int used_check_bases(const used_files *u, fault *f)
{
    size_t i;
    for (i = 0; i < u->count; i++) {
        const used_file *file = &u->files[i];
        struct stat st;
        file_stamp now;
        if (file->role != USE_BASE || !file->opened || !strcmp(file->name, "-")) continue;
        if (stat(file->name, &st)) {
            (void)fault_errno(f, "cannot be found again");
            return fault_in(f, file->name);
        }
        now = stamp_of(&st);
        if (stamp_is_same(&now, &file->stamp)) continue;
        (void)fault_set(f, "was changed or replaced while this command ran; repeat it when no program writes there");
        return fault_in(f, file->name);
    }
    return 0;
}

void used_free(used_files *u)
{
    while (u->count--) {
        free(u->files[u->count].name);
        free(u->files[u->count].path);
    }
    free(u->files);
    memset(u, 0, sizeof *u);
}

/* ================================================================================= SIGNALS
 * A program that is told to end removes its temporary file first. */

static char *volatile temporary_path; /* the file to remove; its memory is not freed while this points to it */
static volatile sig_atomic_t failed_status;

static void on_fatal_signal(int signal_number)
{
    struct sigaction action;
    if (temporary_path) (void)unlink(temporary_path);
    memset(&action, 0, sizeof action);
    action.sa_handler = SIG_DFL;
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(signal_number, &action, NULL);
    (void)raise(signal_number); /* delivered on return; so the parent sees what ended us */
}

/* A mapped file has become shorter, or cannot be read. A SIGBUS that a process sends is handled like other signals. */
static void on_bus_error(int signal_number, siginfo_t *info, void *context)
{
    static const char text[] = "bitsnap: a file was cut short while it was read, or its disk failed\n";
    static volatile sig_atomic_t said; /* several threads may come here */
    (void)context;
    if (info->si_code != BUS_ADRERR) {
        on_fatal_signal(signal_number);
        return;
    }
    if (said++) for (;;) (void)pause();
    if (temporary_path) (void)unlink(temporary_path);
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) { } /* a failure cannot be reported */
    _exit(failed_status);
}

/* Signals whose default does not end the program, or cannot be changed. */
static int is_harmless(int signal_number)
{
    static const int harmless[] = { SIGKILL, SIGSTOP, SIGCHLD, SIGCONT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG,
#ifdef SIGWINCH
        SIGWINCH,
#endif
#ifdef SIGINFO
        SIGINFO,
#endif
    };
    size_t i;
    for (i = 0; i < sizeof harmless / sizeof *harmless; i++)
        if (harmless[i] == signal_number) return 1;
    return 0;
}

void place_handle_signals(int status)
{
    struct sigaction action, before;
    int last = 31, i;
    failed_status = status;
#ifdef SIGRTMAX
    last = SIGRTMAX;
#endif
    memset(&action, 0, sizeof action);
    (void)sigfillset(&action.sa_mask);
    for (i = 1; i <= last; i++) {
        /* ignored signals stay ignored, as under nohup */
        if (is_harmless(i) || sigaction(i, NULL, &before) || before.sa_handler != SIG_DFL) continue;
        action.sa_flags = i == SIGBUS ? SA_SIGINFO : 0;
        if (i == SIGBUS) action.sa_sigaction = on_bus_error;
        else action.sa_handler = on_fatal_signal;
#ifdef SIGXFSZ
        if (i == SIGXFSZ) action.sa_handler = SIG_IGN; /* so write fails if a file may not grow further */
#endif
        (void)sigaction(i, &action, NULL);
    }
}

void hold_signals(sigset_t *before)
{
    sigset_t all;
    signals_all(&all);
    (void)sigprocmask(SIG_BLOCK, &all, before);
}

void release_signals(const sigset_t *before) { (void)sigprocmask(SIG_SETMASK, before, NULL); }

/* ================================================================================= NAMES */

char *place_of(const char *path, fault *f)
{
    char *whole = realpath(path, NULL), *directory, *real;
    if (whole) return whole;
    if (errno != ENOENT) return (void)fault_errno(f, "cannot be made"), NULL;
    if (!*last_part(path)) return (void)fault_set(f, "is a directory; give the name of a file"), NULL;
    directory = directory_of(path, 0);
    if (!directory) return (void)fault_memory(f), NULL;
    real = realpath(directory, NULL);
    free(directory);
    if (!real) return (void)fault_errno(f, "cannot be made: its directory cannot be found"), NULL;
    whole = path_in(real, last_part(path), f);
    free(real);
    return whole;
}

enum { MARK_MAX = 80, NAME_ROOM = 255 };

static unsigned long host_number(void)
{
    char name[256];
    memset(name, 0, sizeof name);
    (void)gethostname(name, sizeof name - 1);
    return hash_of(name);
}

/* Returns a name of this run beside `path`, as described above. A temporary file gets a name as long as that of `path` and with
 * the same characters, so that a name that the file system refuses fails now. A long name loses its beginning; with `whole` it
 * does not, and the result is null with errno ENAMETOOLONG. */
static char *name_beside(const char *path, const char *kind, int whole)
{
    const char *name = last_part(path);
    const size_t size = strlen(name);
    size_t room, cut = 0;
    struct timespec now;
    char mark[MARK_MAX], *made;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)snprintf(mark, sizeof mark, "/.bitsnap-%s-%08lx-%ld-%llx~", kind, host_number(), (long)getpid(),
                   (unsigned long long)now.tv_sec * 1000000000u + (unsigned long long)now.tv_nsec);
    room = whole ? NAME_ROOM : size > 128 ? size : 128;
    if (strlen(mark) - 1 + size > room) {
        if (whole) {
            errno = ENAMETOOLONG;
            return NULL;
        }
        cut = strlen(mark) - 1 + size - room;
        if (cut > size) cut = size;
    }
    made = directory_of(path, strlen(mark) + size);
    if (!made) return NULL;
    if (!strcmp(made, "/")) *made = 0;
    (void)strcat(made, mark);
    /* never cut inside a character */
    for (; cut < size && ((unsigned char)name[cut] & 0xC0) == 0x80; cut++) (void)strcat(made, "~");
    return strcat(made, name + cut);
}

/* ================================================================================= MOVING */

enum { MOVE_NEW = 1, MOVE_EXCHANGE = 2 }; /* RENAME_NOREPLACE, RENAME_EXCHANGE */

static int move_with(const char *from, const char *to, unsigned flags)
{
#if defined(__linux__) && defined(SYS_renameat2)
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
#else
    (void)from, (void)to, (void)flags;
    errno = ENOSYS;
    return -1;
#endif
}

/* Renames a file, unless the new name exists: then fails with EEXIST. */
static int move_new(const char *from, const char *to)
{
    struct stat st;
    if (!move_with(from, to, MOVE_NEW)) return 0;
    if (errno == EEXIST) return -1;
    if (!link(from, to)) {
        (void)unlink(from); /* if not, the file has two names */
        return 0;
    }
    if (errno == EEXIST) return -1;
    if (!lstat(to, &st)) {
        errno = EEXIST;
        return -1;
    }
    return rename(from, to); /* no hard links here: a file made in this moment would be replaced */
}

/* Fails if the file cannot be moved out of its directory, as far as that can be known. */
static int check_movable(const char *path, const char *what, fault *f)
{
    /* rmdir does not remove a file, but most systems check the permission first */
    if (!rmdir(path) || (errno != EPERM && errno != EACCES && errno != EROFS && errno != EBUSY)) return 0;
    return fault_errno(f, "cannot be %s", what);
}

int place_check_replaceable(const char *path, fault *f) { return check_movable(path, "replaced", f); }

int place_check_removable(const char *path, fault *f)
{
    char *old = name_beside(path, "old", 1);
    struct stat st;
    const int too_long = (!old || lstat(old, &st)) && errno == ENAMETOOLONG; /* some file systems allow less than NAME_ROOM */
    free(old);
    if (too_long) return fault_set(f, "has a name too long to be removed safely, which renames it first; leave out --rm, or give it a shorter name");
    if (!old) return fault_memory(f);
    return check_movable(path, "removed", f);
}

int place_remove(const char *path, const file_stamp *opened, fault *f)
{
    char *old = name_beside(path, "old", 1);
    sigset_t before;
    struct stat st;
    file_stamp now;
    int failed = 1;
    if (!old) return fault_errno(f, "cannot be removed");
    hold_signals(&before);
    if (move_with(path, old, MOVE_NEW) && (errno == EEXIST || rename(path, old))) {
        (void)fault_errno(f, "cannot be removed");
    } else {
        const int gone = stat(old, &st); /* through a link: the link is removed */
        now = stamp_of(&st);
        if (gone || !stamp_is_content(&now, opened))
            (void)fault_set(f, "is not removed: it was changed or replaced after it was read");
        else if (unlink(old)) (void)fault_errno(f, "cannot be removed");
        else failed = 0;
        if (failed && move_new(old, path) && errno != ENOENT) { /* gone: another run has put it back */
            (void)fault_add(f, "; another file has its name now, so it is kept as ");
            (void)fault_add(f, last_part(old));
        }
    }
    release_signals(&before);
    free(old);
    return failed;
}

int place_exchange(const char *path, const char *target, const file_stamp *before, fault *f)
{
    file_stamp now;
    char *old;
    int failed = 0;
    if (!before) {
        if (!move_new(path, target)) return 0;
        return errno == EEXIST ? fault_set(f, "was created while this command ran, and stays as it is") : fault_errno(f, "cannot be given its name");
    }
    if (!move_with(path, target, MOVE_EXCHANGE)) {
        if (!stamp_at(path, &now) && stamp_is_file(&now, before)) return 0;
        (void)move_with(path, target, MOVE_EXCHANGE);
        return fault_set(f, "was replaced while this command ran, and stays as it is");
    }
    old = name_beside(target, "old", 1);
    if (!old || rename(target, old)) failed = fault_errno(f, "cannot be replaced");
    else if (rename(path, target)) {
        failed = fault_errno(f, "cannot be given its name");
        (void)rename(old, target);
    } else if (rename(old, path)) failed = fault_errno(f, "is complete, but the old file, now %s, cannot be removed", last_part(old));
    free(old);
    return failed;
}

char *place_beside(const char *path, const char *mark, fault *f)
{
    const char *name = last_part(path);
    char *beside = (char *)malloc(strlen(path) + strlen(mark) + 1);
    if (!beside) return (void)fault_memory(f), NULL;
    memcpy(beside, path, (size_t)(name - path));
    (void)strcat(strcpy(beside + (name - path), mark), name);
    return beside;
}

/* ================================================================================= TEMPORARY FILES */

/* Removes a temporary file if no run is writing it, which shows in that its lock is free. */
static void remove_leftover(int directory, const char *name)
{
    struct stat st, there;
    int fd = openat(directory, name, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) fd = openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) return;
    if (!flock(fd, LOCK_EX | LOCK_NB) && !fstat(fd, &st) && S_ISREG(st.st_mode) &&
        !fstatat(directory, name, &there, AT_SYMLINK_NOFOLLOW) && st.st_dev == there.st_dev && st.st_ino == there.st_ino)
        (void)unlinkat(directory, name, 0);
    (void)close(fd);
}

/* Moves a file back to `name`, after a dead run had moved it away. */
static void put_back(const char *directory, const char *leftover, const char *name, const used_files *u)
{
    fault ignored;
    char *from = path_in(directory, leftover, &ignored), *to = path_in(directory, name, &ignored);
    file_stamp a, b;
    if (from && to && move_new(from, to) && errno == EEXIST) {
        if (!stamp_at(from, &a) && !stamp_at(to, &b) && stamp_is_file(&a, &b)) (void)unlink(from);
        else warn(u, from, "was left by a run that was killed while it replaced or removed a file, whose name is in use again; look at both, and remove one");
    }
    free(from);
    free(to);
}

/* Returns 1 if the command reads this file. Such files are left alone, whatever their name. */
static int is_named(const used_files *u, int directory, const char *name)
{
    struct stat st;
    file_stamp stamp;
    size_t i;
    if (fstatat(directory, name, &st, 0)) return 0;
    stamp = stamp_of(&st);
    for (i = 0; i < u->count; i++)
        if (u->files[i].there && stamp_is_file(&stamp, &u->files[i].stamp)) return 1;
    return 0;
}

/* Consecutive outputs in one directory scan it only once, since it may hold as many entries as there are outputs. */
void place_clean(const char *path, const used_files *u)
{
    static file_stamp cleaned; /* the directory cleaned last */
    char *directory = directory_of(path, 0), kind[4];
    DIR *d = directory ? opendir(directory) : NULL;
    const unsigned long here = host_number();
    const struct dirent *e;
    struct stat st;
    file_stamp now;
    int seen = !d || fstat(dirfd(d), &st);
    if (!seen) {
        now = stamp_of(&st);
        seen = stamp_is_file(&now, &cleaned);
        cleaned = now;
    }
    while (!seen && (e = readdir(d)) != NULL) {
        unsigned long host;
        long pid;
        int n = 0;
        if (strncmp(e->d_name, ".bitsnap-", 9)) continue;
        if (sscanf(e->d_name, ".bitsnap-%3[a-z]-%8lx-%ld-%*[0-9a-f]~%n", kind, &host, &pid, &n) != 3 || !n || host != here || pid <= 0)
            continue;
        if (is_named(u, dirfd(d), e->d_name) || !strcmp(e->d_name, last_part(path))) continue;
        if (!strcmp(kind, "new")) remove_leftover(dirfd(d), e->d_name);
        else if (!strcmp(kind, "old") && e->d_name[n] && kill((pid_t)pid, 0) && errno == ESRCH) put_back(directory, e->d_name, e->d_name + n, u);
    }
    if (d) (void)closedir(d);
    free(directory);
}

/* The pointer is cleared before the memory is freed, so a signal handler finds a valid path or null. */
static char *temporary_take(void)
{
    char *path = temporary_path;
    temporary_path = NULL;
    return path;
}

int temporary_open(const char *target, const used_files *u, fault *f)
{
    sigset_t before;
    struct stat st;
    int fd = -1, error = EEXIST;
    unsigned tries;
    place_clean(target, u);
    for (tries = 0; tries < 100 && error == EEXIST; tries++) {
        char *path = name_beside(target, "new", 0);
        if (!path) return (void)fault_memory(f), -1;
        hold_signals(&before);
        temporary_path = path; /* set before the file exists, because another thread may receive the signal */
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        error = fd < 0 ? errno : 0;
        if (fd >= 0 && ((flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK) || fstat(fd, &st) || !st.st_nlink)) {
            (void)unlink(path); /* another run took it for a leftover before it was locked */
            (void)close(fd);
            error = EEXIST;
        }
        if (error) free(temporary_take());
        release_signals(&before);
    }
    if (!error) return fd;
    errno = error;
    (void)fault_errno(f, "cannot be made");
    return -1;
}

void temporary_remove(void)
{
    sigset_t before;
    char *path;
    hold_signals(&before);
    path = temporary_take();
    if (path) (void)unlink(path);
    free(path);
    release_signals(&before);
}

/* Ends a replacement, after an exchange: the target is the new file, and `old` is the file that was there. Removes `old` if it is
 * `before`. Otherwise exchanges them again, and repeats that while other processes put further files there. */
static int settle(const char *old, const char *target, const file_stamp *before, const file_stamp *own, const used_files *u, fault *f)
{
    file_stamp now;
    unsigned tries;
    if (stamp_at(old, &now)) return 0; /* another process has removed it */
    if (stamp_is_content(&now, before)) {
        if (unlink(old)) warn_errno(u, old, "cannot be removed; it is the replaced file");
        return 0;
    }
    for (tries = 0; tries < 100; tries++) {
        if (move_with(old, target, MOVE_EXCHANGE) || stamp_at(old, &now)) break;
        if (!stamp_is_file(&now, own)) continue;
        (void)unlink(old);
        return fault_set(f, "was replaced while this command ran; the other file stays");
    }
    (void)fault_set(f, "was replaced while this command ran; the other file is kept as ");
    return fault_add(f, last_part(old));
}

int temporary_publish(const char *target, const file_stamp *before, const file_stamp *own, const used_files *u, fault *f)
{
    sigset_t signals;
    file_stamp now;
    char *old = NULL;
    int failed = 0;
    if (before && !stamp_at(target, &now)) {
        if (!stamp_is_same(&now, before)) return fault_set(f, "was changed or replaced while this command ran, and stays as it is");
        old = name_beside(target, "old", 1);
    } else if (!before || errno == ENOENT) {
        if (!move_new(temporary_path, target)) return 0;
        if (errno == EEXIST) return fault_set(f, "was created while this command ran, and stays as it is");
        return fault_errno(f, "cannot be given its name");
    }
    /* The replaced file must never have the name of a temporary file, which later runs remove. So the new file gets an `old` name
     * before the exchange. */
    hold_signals(&signals);
    if (old && !move_new(temporary_path, old)) {
        if (!move_with(old, target, MOVE_EXCHANGE)) {
            free(temporary_take());
            failed = settle(old, target, before, own, u, f);
            release_signals(&signals);
            free(old);
            return failed;
        }
        (void)rename(old, temporary_path);
    }
    if (rename(temporary_path, target)) failed = fault_errno(f, "cannot be given its name");
    release_signals(&signals);
    free(old);
    return failed;
}
