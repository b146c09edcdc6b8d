/* io.c - files and pipes: inputs that are read through a window, and outputs that get their name only when they are whole.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/xattr.h>
#endif

/* Some systems fail on requests of 2 GiB and more. */
#define REQUEST_MAX ((size_t)1 << 30)

/* Returns 1 if a failed read or write should be repeated. Waits if a pipe is non-blocking, as another process that shares it may
 * have made it. */
static int is_to_retry(int fd, short events)
{
    struct pollfd p;
    if (errno == EINTR) return 1;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return 0;
    memset(&p, 0, sizeof p);
    p.fd = fd;
    p.events = events;
    return poll(&p, 1, -1) >= 0 || errno == EINTR;
}

/* ================================================================================= TIME */

static double io_seconds;    /* spent by the main thread */
static pthread_t main_thread;
static int main_is_known;

double seconds_now(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

elapsed elapsed_now(void)
{
    elapsed e;
    if (!main_is_known) main_thread = pthread_self();
    main_is_known = 1;
    e.seconds = seconds_now();
    e.io = io_seconds;
    return e;
}

elapsed elapsed_since(elapsed begun)
{
    elapsed e = elapsed_now();
    e.seconds -= begun.seconds;
    e.io -= begun.io;
    return e;
}

/* Adds the time since a call began. */
static void count_io(double begun)
{
    const int saved = errno;
    if (main_is_known && pthread_equal(pthread_self(), main_thread)) io_seconds += seconds_now() - begun;
    errno = saved;
}

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
        return fault_set(f, "is a directory; name the files in it, or all of them with -r");
    }
    in->regular = S_ISREG(st.st_mode) && (begin = lseek(in->fd, 0, SEEK_CUR)) >= 0;
    in->owned = S_ISREG(st.st_mode) && !standard;
    in->mode = st.st_mode & 0777;
    in->owner = st.st_uid;
    in->group = st.st_gid;
    in->stamp = stamp_of(&st);
    in->size = !in->regular ? SIZE_UNKNOWN : st.st_size > begin ? (uint64_t)(st.st_size - begin) : 0;
#ifdef POSIX_FADV_SEQUENTIAL
    if (in->regular) (void)posix_fadvise(in->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
#endif
    return 0;
}

int input_check_unchanged(const input *in, fault *f)
{
    struct stat st;
    file_stamp now;
    if (!in->regular || in->fd < 0) return 0;
    if (fstat(in->fd, &st)) return fault_errno(f, "cannot be examined");
    now = stamp_of(&st);
    if (stamp_is_same(&now, &in->stamp)) return 0;
    return fault_set(f, "has changed while it was read; repeat the command when no program writes to the file");
}

int input_note(const input *in, const char *path, used_files *u, fault *f)
{
    return in->regular ? used_opened(u, path, &in->stamp, f) : 0;
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

/* Calls read once, for 1 .. n bytes; *got is 0 at the end. `ahead`, the number of bytes read before and not consumed, is only for
 * the message. */
static int read_some(input *in, uint8_t *to, size_t n, size_t *got, size_t ahead, fault *f)
{
    const double begun = seconds_now();
    ssize_t some;
    *got = 0;
    if (in->ended) return 0;
    do some = read(in->fd, to, n < REQUEST_MAX ? n : REQUEST_MAX);
    while (some < 0 && is_to_retry(in->fd, POLLIN));
    count_io(begun);
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
            /* at first the requested size, if it is modest; then growth only as bytes arrive */
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
    /* lseek counts from the start of the file, `offset` from where reading began */
    if (here < 0 || lseek(in->fd, here - (off_t)read_to + (off_t)offset, SEEK_SET) < 0)
        return fault_errno(f, "cannot be read from byte %llu on", (unsigned long long)offset);
    in->at = in->end = 0;
    in->offset = offset;
    in->ended = 0;
    return 0;
}

/* Reads `size` bytes from byte `offset` on. Returns 1 if some cannot be read; errno is 0 if the file ends first. */
static int read_at(int fd, uint64_t offset, void *to, size_t size)
{
    const double begun = seconds_now();
    size_t done = 0;
    ssize_t some = 1;
    while (done < size && (some > 0 || (some < 0 && errno == EINTR))) {
        some = pread(fd, (uint8_t *)to + done, size - done, (off_t)(offset + done));
        if (some > 0) done += (size_t)some;
    }
    count_io(begun);
    if (!some) errno = 0;
    return done < size;
}

int input_get(const input *in, uint64_t offset, void *to, size_t size) { return read_at(in->fd, offset, to, size); }

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

/* ================================================================================= OUTPUT */

int output_exists(const char *path)
{
    struct stat st;
    return !lstat(path, &st) && (S_ISREG(st.st_mode) || S_ISLNK(st.st_mode) || S_ISDIR(st.st_mode));
}

static int open_target(output *out, const char *path, int replace, fault *f)
{
    struct stat st;
    const int there = !stat(path, &st);
    if (there) out->before = stamp_of(&st);
    if (there && S_ISDIR(st.st_mode)) return fault_set(f, "is a directory; give the name of a file, or %s/ for one in it", path);
    if (there && !S_ISREG(st.st_mode)) { /* a file does not replace a device or a pipe */
        if (used_check(out->used, NULL, &out->before, f)) return 1;
        out->fd = open(path, O_WRONLY);
        return out->fd < 0 ? fault_errno(f, "cannot be opened for writing") : 0;
    }
    /* through a link, the file is replaced, not the link */
    out->target = place_of(path, f);
    if (!out->target) return 1;
    if (!out->over && used_check(out->used, out->target, there ? &out->before : NULL, f)) return 1;
    if (!replace && output_exists(path)) return fault_set(f, "exists already; -f replaces it, -o chooses another name");
    out->replaces = !lstat(out->target, &st); /* a link without a target is replaced itself */
    out->before = out->over ? out->like->stamp : stamp_of(&st);
    if (out->over && out->replaces && st.st_nlink > 1) warn(out->used, path, "has other names (hard links), which keep the old content");
    if (out->replaces && place_check_replaceable(out->target, f)) return 1;
    out->fd = temporary_open(out->target, out->used, f);
    return out->fd < 0;
}

static int open_path(output *out, const char *path, int replace, fault *f)
{
    if (!open_target(out, path, replace, f)) return 0;
    free(out->target);
    out->target = NULL;
    return fault_in(f, out->name);
}

int output_probe(const char *path, int replace, used_files *u, fault *f)
{
    struct stat st;
    output out;
    int failed;
    /* opening a pipe or device has effects */
    if (strcmp(path, "-") && !stat(path, &st) && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return 0;
    failed = output_open(&out, path, replace, NULL, u, f);
    output_discard(&out);
    return failed;
}

static void begin(output *out, const char *name, const input *like, used_files *u)
{
    memset(out, 0, sizeof *out);
    out->name = name;
    out->used = u;
    out->like = like;
    out->fd = -1;
}

int output_open_over(output *out, const char *path, const input *in, used_files *u, fault *f)
{
    begin(out, path, in, u);
    out->over = 1;
    return open_path(out, path, 1, f);
}

/* Opens standard output. Fails if it leads to an input or a base: >>FILE, 1<>FILE. */
static int open_standard(output *out, fault *f)
{
    struct stat st;
    file_stamp stamp;
    out->fd = STDOUT_FILENO;
    if (fstat(out->fd, &st)) return 0; /* write reports the error */
    stamp = stamp_of(&st);
    return S_ISREG(st.st_mode) && used_check(out->used, NULL, &stamp, f) ? fault_in(f, out->name) : 0;
}

int output_open(output *out, const char *path, int replace, const input *like, used_files *u, fault *f)
{
    const int standard = !strcmp(path, "-");
    begin(out, standard ? "(standard output)" : path, like, u);
    return standard ? open_standard(out, f) : open_path(out, path, replace, f);
}

/* for .bsnap files that are a base, and pipes that are read more than once */
#define SPOOL_ELSEWHERE "; --temp DIR or TMPDIR chooses a directory with room for all of a base or a pipe"

static int write_failed(const output *out, uint64_t at, fault *f)
{
    (void)fault_errno(f, "cannot be written at byte %llu", (unsigned long long)at);
    if (out->spool) (void)fault_add(f, SPOOL_ELSEWHERE);
    return fault_in(f, out->name);
}

int output_write(output *out, const void *bytes, size_t n, fault *f)
{
    const uint8_t *p = (const uint8_t *)bytes;
    const double begun = seconds_now();
    while (n) {
        const ssize_t some = write(out->fd, p, n < REQUEST_MAX ? n : REQUEST_MAX);
        if (some > 0) {
            p += some;
            n -= (size_t)some;
            out->size += (uint64_t)some;
        } else if (some < 0 && !is_to_retry(out->fd, POLLOUT)) {
            return write_failed(out, out->size, f);
        }
    }
    count_io(begun);
    return 0;
}

int output_write_at(const output *out, uint64_t offset, const void *bytes, size_t n, fault *f)
{
    const uint8_t *p = (const uint8_t *)bytes;
    const double begun = seconds_now();
    while (n) {
        const ssize_t some = pwrite(out->fd, p, n < REQUEST_MAX ? n : REQUEST_MAX, (off_t)offset);
        if (some < 0 && errno != EINTR) return write_failed(out, offset, f);
        if (some <= 0) continue;
        p += some;
        offset += (uint64_t)some;
        n -= (size_t)some;
    }
    count_io(begun);
    return 0;
}

int output_read_at(const output *out, uint64_t offset, void *to, size_t n, fault *f)
{
    if (!read_at(out->fd, offset, to, n)) return 0;
    (void)fault_errno(f, "cannot be read at byte %llu", (unsigned long long)offset);
    return fault_in(f, out->name);
}

void output_keep_time(output *out) { out->timed = out->like && out->like->regular; }

#ifdef __linux__
/* Returns the value of an extended attribute, which the caller frees. Null, and *size -1: it is missing. */
static char *attribute_of(int fd, const char *name, ssize_t *size)
{
    char *value;
    *size = fgetxattr(fd, name, NULL, 0);
    value = *size < 0 ? NULL : (char *)malloc((size_t)*size + 1);
    *size = value ? fgetxattr(fd, name, value, (size_t)*size) : -1;
    return value;
}

/* Copies the extended attributes of a file, such as labels and access lists, to another. Returns 1 if some cannot be copied. */
static int copy_attributes(int from, int to)
{
    ssize_t size = flistxattr(from, NULL, 0), n, m;
    char *names, *name, *value, *there;
    int failed = 0;
    if (size <= 0) return 0; /* no attributes, or the file system does not support them */
    names = (char *)malloc((size_t)size);
    size = names ? flistxattr(from, names, (size_t)size) : -1;
    for (name = names; size > 0 && name < names + size; name += strlen(name) + 1) {
        value = attribute_of(from, name, &n);
        there = attribute_of(to, name, &m); /* the system labels new files itself, and may refuse to set these labels */
        if (n < 0 || ((n != m || memcmp(value, there, (size_t)n)) && fsetxattr(to, name, value, (size_t)n, 0))) failed = 1;
        free(value);
        free(there);
    }
    free(names);
    return failed || size < 0;
}
#else
static int copy_attributes(int from, int to) { (void)from, (void)to; return 0; }
#endif

/* Gives the output the attributes of out->like. Warns if the file system or the user's rights do not allow some of them. */
static void set_attributes(const output *out)
{
    const input *in = out->like;
    struct stat st;
    mode_t mode = umask(0);
    (void)umask(mode);
    mode = 0666 & ~mode;
    if (in && in->owned && !fstat(out->fd, &st)) {
        mode = in->mode;
        if (!geteuid()) {
            if ((st.st_uid != in->owner || st.st_gid != in->group) && fchown(out->fd, in->owner, in->group))
                warn_errno(out->used, out->name, "its owner cannot be set");
        } else if (st.st_gid != in->group && fchown(out->fd, (uid_t)-1, in->group)) {
            /* a different group gets at most the permissions of others */
            mode = (mode & ~(mode_t)070) | (mode & (mode << 3) & 070);
        }
    }
    if (fchmod(out->fd, mode)) warn_errno(out->used, out->name, "its permissions cannot be set");
    if (out->over && copy_attributes(in->fd, out->fd)) warn_errno(out->used, out->name, "not all of its extended attributes can be kept");
    if (out->timed) {
        struct timespec times[2];
        memset(times, 0, sizeof times);
        times[0].tv_nsec = UTIME_OMIT;
        times[1] = in->stamp.modified;
        if (futimens(out->fd, times)) warn_errno(out->used, out->name, "its time cannot be set");
    }
}

/* Writes the whole file to the disk and gives it its name. It stays open, and so locked, while it has its temporary name. */
static int commit_file(output *out, fault *f)
{
    struct stat st;
    set_attributes(out);
    if (fsync(out->fd)) return fault_errno(f, "cannot be written to disk");
    if (fstat(out->fd, &st)) return fault_errno(f, "cannot be examined");
    out->own = stamp_of(&st);
    return temporary_publish(out->target, out->replaces ? &out->before : NULL, &out->own, out->used, f) || place_sync(out->target, f);
}

int output_commit(output *out, fault *f)
{
    const double begun = seconds_now();
    int failed = out->target && commit_file(out, f);
    count_io(begun);
    if (out->fd != STDOUT_FILENO && close(out->fd) && !failed) failed = fault_errno(f, "cannot be written");
    out->fd = -1;
    if (out->target) temporary_remove();
    if (!failed && out->target) failed = used_written(out->used, out->target, &out->own, f);
    free(out->target);
    out->target = NULL;
    return failed ? fault_in(f, out->name) : 0;
}

void output_discard(output *out)
{
    if (out->fd > STDERR_FILENO) (void)close(out->fd);
    out->fd = -1;
    if (out->target) temporary_remove();
    free(out->target);
    out->target = NULL;
}

int output_check_removable(const output *out, const input *in, const char *path, fault *f)
{
    if (!output_is_file(out)) return fault_set(f, "--rm needs an output that is a file");
    if (!in->regular) return fault_set(f, "--rm needs an input that is a file");
    return place_check_removable(path, f);
}

int output_remove_source(const output *out, const input *in, const char *path, fault *f)
{
    struct stat st;
    file_stamp now;
    if (input_check_unchanged(in, f)) return fault_add(f, "; it is not removed");
    if (stat(out->name, &st)) return fault_set(f, "is not removed, as %s was removed while this command ran", out->name);
    now = stamp_of(&st);
    if (!stamp_is_content(&now, &out->own)) return fault_set(f, "is not removed, because %s is now another file", out->name);
    return place_remove(path, &in->stamp, f);
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
        f->passes = 1;
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
    out->fd = -1;
    if (fstat(in->fd, &st)) return fault_errno(f, "temporary file cannot be examined");
    in->stamp = stamp_of(&st);
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
