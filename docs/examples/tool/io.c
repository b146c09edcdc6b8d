/* io.c - files and pipes: reading through a window, and outputs that are there whole or not at all.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* Some systems fail on requests of 2 GiB and more. */
#define REQUEST_MAX ((size_t)1 << 30)

/* ================================================================================= INPUT */

int input_open(input *in, const char *path, fault *f)
{
    struct stat st;
    const int standard = !strcmp(path, "-");
    off_t begin = 0;
    memset(in, 0, sizeof *in);
    in->name = standard ? "(standard input)" : path;
    in->fd = standard ? STDIN_FILENO : open(path, O_RDONLY);
    if (in->fd < 0) return fault_errno(f, "cannot be opened");
    if (fstat(in->fd, &st)) {
        (void)fault_errno(f, "cannot be examined");
        input_close(in);
        return 1;
    }
    if (S_ISDIR(st.st_mode)) {
        input_close(in);
        return fault_set(f, "is a directory; name the files in it");
    }
    in->regular = S_ISREG(st.st_mode) && (begin = lseek(in->fd, 0, SEEK_CUR)) >= 0;
    in->mode = S_ISREG(st.st_mode) && !standard ? st.st_mode & 0777 : 0;
    in->changed = st.st_mtime;
    in->device = st.st_dev;
    in->inode = st.st_ino;
    in->size = !in->regular ? SIZE_UNKNOWN : st.st_size > begin ? (uint64_t)(st.st_size - begin) : 0;
#ifdef POSIX_FADV_SEQUENTIAL
    if (in->regular) (void)posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
    return 0;
}

int input_check_unchanged(const input *in, fault *f)
{
    struct stat st;
    if (!in->regular || in->fd < 0) return 0;
    if (fstat(in->fd, &st)) return fault_errno(f, "cannot be examined");
    if (st.st_mtime == in->changed) return 0;
    return fault_set(f, "has changed while it was read; try again when nobody writes to it");
}

int input_is(const input *in, const char *path)
{
    struct stat st;
    return in->regular && !stat(path, &st) && st.st_dev == in->device && st.st_ino == in->inode;
}

void input_close(input *in)
{
    if (in->map) (void)munmap(in->map, (size_t)in->size);
    in->map = NULL;
    if (in->fd > STDIN_FILENO) (void)close(in->fd);
    free(in->window);
    in->fd = -1;
    in->window = NULL;
    in->at = in->end = in->capacity = 0;
}

int input_map(input *in, fault *f)
{
    const uint16_t one = 1;
    uint8_t low;
    void *map;
    memcpy(&low, &one, 1);
    if (!in->regular || in->size > SIZE_MAX || !in->size) return fault_set(f, "cannot be held in memory");
    map = mmap(NULL, (size_t)in->size, low ? PROT_READ : PROT_READ | PROT_WRITE, MAP_PRIVATE, in->fd, 0);
    if (map == MAP_FAILED) return fault_errno(f, "cannot be held in memory");
    in->map = (uint8_t *)map;
    return 0;
}

int input_again(const input *in, input *other, fault *f)
{
    *other = *in;
    other->map = NULL;
    other->window = NULL;
    other->capacity = other->at = other->end = 0;
    other->offset = 0;
    other->ended = 0;
    other->fd = dup(in->fd);
    if (other->fd < 0) return fault_errno(f, "cannot be opened");
    return lseek(other->fd, 0, SEEK_SET) < 0 ? fault_errno(f, "cannot be read") : 0;
}

/* One read of 1 .. n bytes; *got is 0 at the end. `ahead` is the number of bytes read before that are not done
 * with, for the message. */
static int read_some(input *in, uint8_t *to, size_t n, size_t *got, size_t ahead, fault *f)
{
    ssize_t some;
    *got = 0;
    if (in->ended) return 0;
    do some = read(in->fd, to, n < REQUEST_MAX ? n : REQUEST_MAX);
    while (some < 0 && errno == EINTR);
    if (some < 0) return fault_errno(f, "cannot be read at byte %llu", (unsigned long long)(in->offset + ahead));
    in->ended = some == 0;
    *got = (size_t)some;
    return 0;
}

int input_read(input *in, void *to, size_t n, size_t *got, fault *f)
{
    const size_t ahead = input_available(in) < n ? input_available(in) : n;
    size_t more;
    if (ahead) memcpy(to, input_bytes(in), ahead);
    input_consume(in, ahead);
    for (*got = ahead; *got < n; *got += more) {
        if (read_some(in, (uint8_t *)to + *got, n - *got, &more, 0, f)) return 1;
        if (!more) break;
        in->offset += more;
    }
    return 0;
}

int input_fill(input *in, size_t n, fault *f)
{
    while (input_available(in) < n && !in->ended) {
        size_t got;
        if (in->at && in->capacity - in->at < n) {
            memmove(in->window, in->window + in->at, in->end - in->at);
            in->end -= in->at;
            in->at = 0;
        }
        if (in->end == in->capacity) {
            /* first as much as asked for, if that is modest; then no faster than bytes arrive */
            const size_t modest = (size_t)1 << 24;
            size_t capacity = in->capacity < modest ? (n < modest ? n : modest) : 2 * in->capacity;
            uint8_t *window;
            if (capacity > n) capacity = n;
            window = (uint8_t *)realloc(in->window, capacity);
            if (!window) return fault_memory(f);
            in->window = window;
            in->capacity = capacity;
        }
        if (read_some(in, in->window + in->end, in->capacity - in->end, &got, input_available(in), f)) return 1;
        in->end += got;
    }
    return 0;
}

void input_consume(input *in, size_t n)
{
    in->at += n;
    in->offset += n;
    if (in->at == in->end) in->at = in->end = 0;
}

int input_seek(input *in, uint64_t offset, fault *f)
{
    const off_t here = lseek(in->fd, 0, SEEK_CUR);
    const uint64_t read_to = in->offset + input_available(in);
    if (offset >= in->offset && offset <= read_to) {
        input_consume(in, (size_t)(offset - in->offset));
        return 0;
    }
    /* the file's own position counts from its start, ours from where reading began */
    if (here < 0 || lseek(in->fd, here - (off_t)read_to + (off_t)offset, SEEK_SET) < 0)
        return fault_errno(f, "cannot be read from byte %llu on", (unsigned long long)offset);
    in->at = in->end = 0;
    in->offset = offset;
    in->ended = 0;
    return 0;
}

int input_skip(input *in, uint64_t n, uint64_t *passed, fault *f)
{
    *passed = 0;
    if (in->regular && n > input_available(in)) {
        const uint64_t left = in->size > in->offset ? in->size - in->offset : 0;
        *passed = n < left ? n : left;
        return input_seek(in, in->offset + *passed, f);
    }
    while (*passed < n) {
        size_t some = n - *passed < 65536 ? (size_t)(n - *passed) : 65536;
        if (!input_available(in) && input_fill(in, 65536, f)) return 1;
        if (input_available(in) < some) some = input_available(in);
        if (!some) break;
        input_consume(in, some);
        *passed += some;
    }
    return 0;
}

/* ================================================================================= SIGNALS
 * A program that is told to end removes its temporary file first. */

/* SIGBUS: a file that is mapped has been cut short by somebody else */
static const int fatal_signals[] = { SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGPIPE, SIGBUS };
enum { FATAL_SIGNALS = sizeof fatal_signals / sizeof *fatal_signals };

static char *volatile temporary_path; /* the file to be removed; its memory is never freed while it stands here */

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

void output_handle_signals(void)
{
    struct sigaction action, before;
    size_t i;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_fatal_signal;
    (void)sigfillset(&action.sa_mask);
    for (i = 0; i < FATAL_SIGNALS; i++)
        if (!sigaction(fatal_signals[i], NULL, &before) && before.sa_handler != SIG_IGN) /* as nohup has it */
            (void)sigaction(fatal_signals[i], &action, NULL);
#ifdef SIGXFSZ
    action.sa_handler = SIG_IGN; /* a file that may not grow further is then an error of write */
    (void)sigaction(SIGXFSZ, &action, NULL);
#endif
}

/* Between a file's coming and our knowing of it no signal may end the program. */
static void hold_signals(sigset_t *before)
{
    sigset_t fatal;
    size_t i;
    (void)sigemptyset(&fatal);
    for (i = 0; i < FATAL_SIGNALS; i++) (void)sigaddset(&fatal, fatal_signals[i]);
    (void)sigprocmask(SIG_BLOCK, &fatal, before);
}

static void release_signals(const sigset_t *before) { (void)sigprocmask(SIG_SETMASK, before, NULL); }

static void remove_temporary(void)
{
    sigset_t before;
    char *path;
    hold_signals(&before);
    path = temporary_path;
    if (path) (void)unlink(path);
    temporary_path = NULL;
    free(path);
    release_signals(&before);
}

/* ================================================================================= OUTPUT */

int output_exists(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode));
}

/* The directory of a path, "." where it names none. */
static char *directory_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    const size_t size = !slash ? 1 : slash == path ? 1 : (size_t)(slash - path);
    char *directory = (char *)malloc(size + 1);
    if (!directory) return NULL;
    memcpy(directory, slash ? path : ".", size);
    directory[size] = 0;
    return directory;
}

static int open_temporary(output *out, mode_t mode, fault *f)
{
    static const char suffix[] = "/.bitsnap-XXXXXX";
    char *directory = directory_of(out->target), *path;
    sigset_t before;
    if (!directory) return fault_memory(f);
    path = (char *)realloc(directory, strlen(directory) + sizeof suffix);
    if (!path) {
        free(directory);
        return fault_memory(f);
    }
    memcpy(path + strlen(path), suffix, sizeof suffix);
    hold_signals(&before);
    out->fd = mkstemp(path);
    if (out->fd < 0) {
        (void)fault_errno(f, "cannot be made: no file can be made in its directory");
        free(path);
    } else {
        temporary_path = path;
    }
    release_signals(&before);
    if (out->fd < 0) return 1;
    if (fchmod(out->fd, mode)) {
        (void)fault_errno(f, "cannot be given its permissions");
        (void)close(out->fd);
        remove_temporary();
        return 1;
    }
    return 0;
}

static int open_path(output *out, const char *path, const input *like, int over, fault *f)
{
    struct stat st;
    mode_t mode;
    memset(&st, 0, sizeof st);
    if (!stat(path, &st)) {
        if (like && !over && like->device == st.st_dev && like->inode == st.st_ino)
            return fault_set(f, "is the input itself; choose another output with -o");
        if (S_ISDIR(st.st_mode)) return fault_set(f, "is a directory; give the name of a file");
        if (!S_ISREG(st.st_mode)) { /* a device or a pipe is not to be replaced by a file */
            out->fd = open(path, O_WRONLY);
            return out->fd < 0 ? fault_errno(f, "cannot be opened for writing") : 0;
        }
    }
    if (!out->replace && output_exists(path))
        return fault_set(f, "exists already; -f replaces it, -o chooses another name");
    /* through a link, what is replaced is the file, not the link */
    out->target = realpath(path, NULL);
    if (!out->target) {
        out->target = (char *)malloc(strlen(path) + 1);
        if (!out->target) return fault_memory(f);
        memcpy(out->target, path, strlen(path) + 1);
    }
    mode = umask(0);
    (void)umask(mode);
    mode = like && like->mode ? like->mode : 0666 & ~mode;
    if (open_temporary(out, mode, f)) {
        free(out->target);
        out->target = NULL;
        return 1;
    }
    /* who may not give files away keeps it */
    if (over && !fchown(out->fd, st.st_uid, st.st_gid)) (void)fchmod(out->fd, mode);
    return 0;
}

int output_open_over(output *out, const char *path, const input *in, fault *f)
{
    memset(out, 0, sizeof *out);
    out->name = path;
    out->replace = 1;
    out->fd = -1;
    return open_path(out, path, in, 1, f) ? fault_in(f, out->name) : 0;
}

int output_open(output *out, const char *path, int replace, const input *like, fault *f)
{
    const int standard = !strcmp(path, "-");
    memset(out, 0, sizeof *out);
    out->name = standard ? "(standard output)" : path;
    out->replace = replace;
    out->fd = STDOUT_FILENO;
    return !standard && open_path(out, path, like, 0, f) ? fault_in(f, out->name) : 0;
}

/* .bsnap files that are a base, and what comes from a pipe but is read more than once */
#define SPOOL_ELSEWHERE "; --temp DIR or TMPDIR chooses a directory with room for all that a base or a pipe holds"

int output_write(output *out, const void *bytes, size_t n, fault *f)
{
    const uint8_t *p = (const uint8_t *)bytes;
    while (n) {
        const ssize_t some = write(out->fd, p, n < REQUEST_MAX ? n : REQUEST_MAX);
        if (some > 0) {
            p += some;
            n -= (size_t)some;
            out->size += (uint64_t)some;
        } else if (some < 0 && errno != EINTR) {
            (void)fault_errno(f, "cannot be written at byte %llu", (unsigned long long)out->size);
            if (out->spool) (void)fault_add(f, SPOOL_ELSEWHERE);
            return fault_in(f, out->name);
        }
    }
    return 0;
}

void output_keep_time(output *out, const input *in)
{
    out->timed = in->regular;
    out->changed = in->changed;
}

/* Not every file system can do that: it is no failure. */
static void set_time(const output *out)
{
    struct timespec times[2];
    memset(times, 0, sizeof times);
    times[0].tv_nsec = UTIME_OMIT;
    times[1].tv_sec = out->changed;
    (void)futimens(out->fd, times);
}

/* The temporary file becomes the target. Without leave to replace, a link does that: it fails where a file has
 * come into being meanwhile; on file systems without links, we have looked before. */
static int publish(output *out, fault *f)
{
    if (!out->replace) {
        if (!link(temporary_path, out->target)) return 0;
        if (errno == EEXIST) return fault_set(f, "has come into being meanwhile; -f replaces it");
    }
    return rename(temporary_path, out->target) ? fault_errno(f, "cannot be given its name") : 0;
}

/* A name is safe only when its directory is. Not every file system can do that: it is no failure. */
static void sync_directory(const char *path)
{
    char *directory = directory_of(path);
    int fd;
    if (!directory) return;
    fd = open(directory, O_RDONLY);
    free(directory);
    if (fd < 0) return;
    (void)fsync(fd);
    (void)close(fd);
}

int output_commit(output *out, fault *f)
{
    int failed = 0;
    if (!out->target) {
        if (out->fd != STDOUT_FILENO && close(out->fd)) failed = fault_errno(f, "cannot be written");
        out->fd = -1;
        return failed ? fault_in(f, out->name) : 0;
    }
    if (out->timed) set_time(out);
    if (fsync(out->fd)) failed = fault_errno(f, "cannot be written to the disk");
    if (close(out->fd) && !failed) failed = fault_errno(f, "cannot be written");
    out->fd = -1;
    if (!failed) failed = publish(out, f);
    remove_temporary(); /* its name, where the target has been linked; nothing, where it has been renamed */
    if (!failed) sync_directory(out->target);
    free(out->target);
    out->target = NULL;
    return failed ? fault_in(f, out->name) : 0;
}

void output_discard(output *out)
{
    if (out->fd > STDERR_FILENO) (void)close(out->fd);
    out->fd = -1;
    if (out->target) remove_temporary();
    free(out->target);
    out->target = NULL;
}

/* ================================================================================= SPOOL */

static const char *spool_directory; /* --temp */

void spool_in(const char *directory) { spool_directory = directory; }

int spool_open(output *out, fault *f)
{
    const char *directory = spool_directory ? spool_directory : getenv("TMPDIR");
    static const char suffix[] = "/bitsnap-XXXXXX";
    static char name[1024]; /* as in messages */
    char *path;
    sigset_t before;
    if (!directory || !*directory) directory = "/tmp";
    (void)snprintf(name, sizeof name, "temporary file in %s", directory);
    memset(out, 0, sizeof *out);
    out->name = name;
    out->spool = 1;
    path = (char *)malloc(strlen(directory) + sizeof suffix);
    if (!path) return fault_memory(f);
    memcpy(path, directory, strlen(directory));
    memcpy(path + strlen(directory), suffix, sizeof suffix);
    hold_signals(&before);
    out->fd = mkstemp(path);
    if (out->fd >= 0) (void)unlink(path);
    release_signals(&before);
    if (out->fd < 0) {
        (void)fault_errno(f, "cannot be made");
        (void)fault_add(f, SPOOL_ELSEWHERE);
    }
    free(path);
    return out->fd < 0 ? fault_in(f, out->name) : 0;
}

int spool_copy(output *out, input *in, fault *f)
{
    while (!input_fill(in, 65536, f)) {
        if (!input_available(in)) return 0;
        if (output_write(out, input_bytes(in), input_available(in), f)) return 1;
        input_consume(in, input_available(in));
    }
    return 1;
}

int spool_to_input(output *out, input *in, const char *name, fault *f)
{
    struct stat st;
    memset(in, 0, sizeof *in);
    in->name = name;
    in->fd = out->fd;
    in->regular = 1;
    in->size = out->size;
    in->changed = fstat(in->fd, &st) ? 0 : st.st_mtime;
    out->fd = -1;
    return lseek(in->fd, 0, SEEK_SET) < 0 ? fault_errno(f, "temporary file cannot be read") : 0;
}

int input_settle(input *in, fault *f)
{
    output spool;
    input settled;
    int failed;
    if (in->regular && in->fd != STDIN_FILENO) return 0;
    if (spool_open(&spool, f)) return 1;
    failed = spool_copy(&spool, in, f) || spool_to_input(&spool, &settled, in->name, f);
    if (spool.fd >= 0) (void)close(spool.fd);
    if (failed) return 1;
    input_close(in);
    *in = settled;
    return 0;
}
