/* bitsnap_engine.c - checkpoints in memory that outlives the trainer. MIT licence, see bitsnap.h.
 *   SEGMENT  CONTENTS  VIEWS  THREADS  ENGINE  SNAPSHOT  PARTNERS  RECOVERY  STATUS  READERS */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* locks that belong to an open file, not to a process */
#endif
#include "engine_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef F_OFD_SETLK
#define F_OFD_SETLK F_SETLK
#define F_OFD_GETLK F_GETLK
#endif
#ifndef MAP_POPULATE
#define MAP_POPULATE 0
#endif

enum {
    PIECE = 1 << 18,  /* elements of a tensor that become one frame */
    PATH = 4096,
    TEXT = sizeof ((engine_error *)0)->message
};
#define NONE UINT32_MAX /* no chunk */

engine_status engine_fail(engine_error *error, engine_status status, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    error->status = status;
    vsnprintf(error->message, sizeof error->message, format, arguments);
    va_end(arguments);
    return status;
}

static engine_status no_memory(engine_error *error) { return engine_fail(error, ENGINE_E_SYSTEM, "out of memory"); }

engine_status engine_good(engine_error *error)
{
    error->status = ENGINE_OK;
    *error->message = 0;
    return ENGINE_OK;
}

static uint64_t nanoseconds(void) /* since the machine was started: this clock is never set */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double seconds_since(uint64_t start) { return 1e-9 * (double)(nanoseconds() - start); }

/* ================================================================================= SEGMENT
 * A file in /dev/shm: a header, slots, their maps, chunks. A snapshot is a slot with a seal. Its map lists chunks in order, so
 * they can lie anywhere, and two snapshots can share some. No list of free chunks is stored: a chunk is free if no sealed slot
 * uses it. So there is nothing to repair after a trainer was killed.
 *
 * A slot is written in two phases: first all chunks and the map, while it has no seal; then the seal, its check last. Before a
 * slot is used again, its seal is removed. */

#define SEGMENT_MAGIC UINT64_C(0x324E474E45534EB5) /* also tells the byte order; the first digit is the version */

typedef struct segment_header {
    uint64_t magic, size, chunk_log2, chunks;
    uint64_t check;                        /* XXH3 of these */
    uint64_t trainer_pid, agent_pid;       /* for messages; locks show which process lives */
    uint64_t disk_step, disk_made, skipped; /* by the agent, for engine_read_status */
    disk_entry target, common;             /* see DISK; by the trainer, */
    uint64_t target_number, begun;         /* which counts targets; 1: the trainer has recovered, and the agent may write again */
    /* and by the agent: option --every, 0 if it writes nothing; the last target it is done with, and whether that is on disk */
    uint64_t agent_every, target_done, target_whole;
    uint64_t beat, disk_failed;            /* nanoseconds() when the agent last moved; 1: its last try to write failed */
    uint64_t exposed;                      /* snapshots in a row that nothing protects */
    char disk_wrong[TEXT], wrong[TEXT];    /* why it failed, by the agent; what is wrong with protection, by the trainer */
    char log[1024];                        /* the file that the agent logs to */
} segment_header;

typedef struct slot_seal {
    uint64_t check;                        /* XXH3 of the members below; 0: no seal */
    uint64_t sequence, step, made;         /* the first snapshot is 1; nanoseconds() */
    uint64_t chunks, map_check;            /* entries of the map, and XXH3 of them */
    uint64_t contents_at, contents_size, contents_check;
    uint64_t tensors, pieces, elements_size, frames_size;
    uint64_t rank, ranks;                  /* the rank whose state it is */
    uint64_t parity;                       /* not 0: this is the parity of a group of this many ranks */
    double max_relative;
    engine_lineage line;                   /* of the attempt that took it */
} slot_seal;

typedef struct segment_slot {
    slot_seal seal;
    uint64_t claim; /* the trainer is about to remove the seal */
    uint64_t pin;   /* a reader needs the snapshot */
    uint64_t wanted; /* the reader should release it, because the trainer lacks room */
    uint64_t counted; /* the sequence of a snapshot that all ranks and their partners have */
    uint64_t alone;   /* the sequence of a snapshot that the agent must write although other ranks may lack it */
    uint8_t free_[512 - sizeof(slot_seal) - 40];
} segment_slot;

typedef struct map_entry {
    uint64_t id;     /* unique id of these bytes, over all ranks and runs */
    uint32_t chunk;
    uint32_t next;   /* the entry with the next part of a frame that does not end in this chunk */
} map_entry;

enum { HEADER = 4096, ARENA_ALIGN = 4096, LEAST_LOG2 = 14, MOST_LOG2 = 20, MOST_CHUNKS = 1 << 24 };
enum { LOCK_TRAINER, LOCK_AGENT, LOCK_READER };
enum { OWN_SLOTS = ENGINE_SLOTS / 2 }; /* the other slots hold snapshots of another rank, as its partner */

typedef struct segment {
    int fd; /* -1 also in a child of the process that opened it */
    uint8_t *base;
    uint64_t size, chunks;
    unsigned chunk_log2;
    char path[PATH];
    struct segment *next, **link; /* in the list of open segments */
} segment;

static segment_header *header_of(const segment *s) { return (segment_header *)(void *)s->base; }
static segment_slot *slot_of(const segment *s, unsigned i) { return (segment_slot *)(void *)(s->base + HEADER) + i; }

static map_entry *map_of(const segment *s, unsigned slot)
{
    return (map_entry *)(void *)(s->base + HEADER + ENGINE_SLOTS * sizeof(segment_slot)) + slot * s->chunks;
}

static uint64_t arena_at(uint64_t chunks)
{
    const uint64_t at = HEADER + ENGINE_SLOTS * sizeof(segment_slot) + ENGINE_SLOTS * chunks * sizeof(map_entry);
    return (at + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN;
}

static uint64_t header_check(const segment_header *h) { return bitsnap_hash(h, offsetof(segment_header, check)); }

static uint64_t seal_check(const slot_seal *s)
{
    const uint64_t x = bitsnap_hash(&s->sequence, sizeof *s - sizeof s->check);
    return x ? x : 1;
}

/* Copies the seal, if there is one. */
static int read_seal(const segment *s, unsigned slot, slot_seal *seal)
{
    memcpy(seal, &slot_of(s, slot)->seal, sizeof *seal);
    return seal->check && seal->check == seal_check(seal) && engine_lineage_good(&seal->line);
}

static const char has_been_cut[] = "the segment has been cut; remove it";

/* Returns whether the file still has all bytes of the mapping. An access past its end would kill the process. */
static int is_whole(const segment *s)
{
    struct stat st;
    return !fstat(s->fd, &st) && (uint64_t)st.st_size >= s->size;
}

static struct flock lock_of(short type, int which)
{
    struct flock l;
    memset(&l, 0, sizeof l);
    l.l_type = type;
    l.l_whence = SEEK_SET;
    l.l_start = which;
    l.l_len = 1;
    return l;
}

static int lock(const segment *s, short type, int which) /* -1: another process has it */
{
    struct flock l = lock_of(type, which);
    return fcntl(s->fd, F_OFD_SETLK, &l);
}

static int is_locked(const segment *s, int which)
{
    struct flock l = lock_of(F_WRLCK, which);
    return fcntl(s->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK;
}

/* Returns whether the file still has its name. Otherwise no later process finds it. */
static int is_named(const segment *s)
{
    struct stat here, there;
    return !stat(s->path, &there) && !fstat(s->fd, &here) && here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* ---- open segments ----
 * A forked child shares the open files of its parent, and with them their locks. If it kept them, a worker of a data loader that
 * outlives its trainer would hold the segment. So a child closes all of them at once; the parent's descriptors keep the locks. */

static pthread_mutex_t segments_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t segments_once = PTHREAD_ONCE_INIT;
static segment *segments;

static void before_fork(void) { pthread_mutex_lock(&segments_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&segments_mutex); }

static void in_child(void)
{
    for (; segments; segments = segments->next) {
        close(segments->fd);
        segments->fd = -1;
        segments->base = NULL; /* MADV_DONTFORK: a child has no mapping */
        segments->link = NULL;
    }
    pthread_mutex_unlock(&segments_mutex);
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, after_fork, in_child); }

/* Opens a file as the segment's. Returns -1 with errno, or 0. */
static int segment_open(segment *s, const char *path, int more)
{
    int failed;
    (void)pthread_once(&segments_once, watch_forks);
    pthread_mutex_lock(&segments_mutex);
    s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | more, 0600);
    failed = errno;
    if (s->fd >= 0) {
        s->next = segments, s->link = &segments;
        if (segments) segments->link = &s->next;
        segments = s;
    }
    pthread_mutex_unlock(&segments_mutex);
    errno = failed;
    return s->fd >= 0 ? 0 : -1;
}

static void segment_close(segment *s)
{
    if (s->base) munmap(s->base, (size_t)s->size);
    pthread_mutex_lock(&segments_mutex);
    if (s->fd >= 0) {
        close(s->fd); /* also releases the locks */
        *s->link = s->next;
        if (s->next) s->next->link = s->link;
    }
    s->base = NULL;
    s->fd = -1;
    pthread_mutex_unlock(&segments_mutex);
}

static engine_status segment_name(segment *s, const char *directory, const char *name, engine_error *error)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    memset(s, 0, sizeof *s);
    s->fd = -1;
    if (!name || !*name || name[strspn(name, allowed)])
        return engine_fail(error, ENGINE_E_ARGUMENT, "the name of a segment is made of letters, digits, '.', '-' and '_'");
    if (snprintf(s->path, sizeof s->path, "%s/bitsnap-%s", directory ? directory : "/dev/shm", name) >= (int)sizeof s->path)
        return engine_fail(error, ENGINE_E_ARGUMENT, "the name of the segment is too long");
    return ENGINE_OK;
}

/* Maps the file of the descriptor, in place of an existing mapping. */
static engine_status segment_map(segment *s, int fd, int populate, engine_error *error)
{
    void *p = mmap(s->base, (size_t)s->size, PROT_READ | PROT_WRITE, MAP_SHARED | (s->base ? MAP_FIXED : 0) | (populate ? MAP_POPULATE : 0), fd, 0);
    if (p == MAP_FAILED) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: cannot map it: %s", s->path, strerror(errno));
    s->base = (uint8_t *)p;
    (void)madvise(p, (size_t)s->size, MADV_DONTFORK); /* otherwise a child would keep the memory of a removed segment */
    return ENGINE_OK;
}

/* Opens a segment, and checks its header. */
static engine_status segment_check(segment *s, int populate, engine_error *error)
{
    segment_header h;
    struct stat st;
    if (fstat(s->fd, &st) || !S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof h || (uint64_t)st.st_size > SIZE_MAX)
        return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: not a segment of bitsnap's engine", s->path);
    s->size = (uint64_t)st.st_size;
    if (segment_map(s, s->fd, populate, error)) return error->status;
    memcpy(&h, s->base, sizeof h);
    if (h.magic != SEGMENT_MAGIC && (h.magic ^ SEGMENT_MAGIC) << 8 == 0)
        return engine_fail(error, ENGINE_E_DAMAGED,
                           "%.180s: a segment of another version of the engine; end its agent, and remove it if nobody needs it", s->path);
    if (h.magic != SEGMENT_MAGIC || h.check != header_check(&h) || h.size != s->size || h.chunk_log2 < LEAST_LOG2 ||
        h.chunk_log2 > MOST_LOG2 || !h.chunks || h.chunks > MOST_CHUNKS || arena_at(h.chunks) > s->size ||
        h.chunks > (s->size - arena_at(h.chunks)) >> h.chunk_log2)
        return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: not a segment of bitsnap's engine; remove it if nobody needs it", s->path);
    s->chunks = h.chunks;
    s->chunk_log2 = (unsigned)h.chunk_log2;
    return ENGINE_OK;
}

static engine_status segment_attach(segment *s, const char *directory, const char *name, engine_error *error)
{
    if (segment_name(s, directory, name, error)) return error->status;
    if (segment_open(s, s->path, 0))
        return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", s->path, strerror(errno));
    if (!segment_check(s, 0, error)) return ENGINE_OK;
    segment_close(s);
    return error->status;
}

/* Makes the file of a segment, with s->size allocated bytes and the trainer's lock, under a temporary name. */
static engine_status segment_create(segment *s, char *temporary, size_t room_for_name, engine_error *error)
{
    struct statvfs room;
    int status = 0;
    snprintf(temporary, room_for_name, "%s.%ld.new", s->path, (long)getpid());
    unlink(temporary);
    if (segment_open(s, temporary, O_CREAT | O_EXCL)) return engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, strerror(errno));
    /* trying would take all the room from other processes for that long */
    if (!fstatvfs(s->fd, &room) && room.f_blocks && (uint64_t)room.f_bavail * room.f_frsize < s->size) status = ENOSPC;
    while (!status && (status = posix_fallocate(s->fd, 0, (off_t)s->size)) == EINTR) status = 0;
    if (!status && lock(s, F_WRLCK, LOCK_TRAINER)) status = errno;
    if (!status) return ENGINE_OK;
    unlink(temporary);
    segment_close(s);
    return engine_fail(error, ENGINE_E_SYSTEM, "%.120s: no room for %llu bytes: %s; enlarge it, or lower the budget", s->path,
                       (unsigned long long)s->size, strerror(status));
}

/* Gives a complete new segment its name. ENGINE_E_BUSY: another segment has it. */
static engine_status segment_make(segment *s, uint64_t budget, engine_error *error)
{
    char temporary[PATH + 24];
    segment_header h;
    memset(&h, 0, sizeof h);
    s->chunk_log2 = MOST_LOG2;
    while (s->chunk_log2 > LEAST_LOG2 && budget >> s->chunk_log2 < 1024) s->chunk_log2--;
    s->size = budget / ARENA_ALIGN * ARENA_ALIGN;
    if (s->size < HEADER + ENGINE_SLOTS * sizeof(segment_slot) + 2 * ARENA_ALIGN || s->size > SIZE_MAX / 2)
        return engine_fail(error, ENGINE_E_ARGUMENT, "a budget of %llu bytes holds no snapshot", (unsigned long long)budget);
    s->chunks = (s->size - arena_at(0) - ARENA_ALIGN) / ((UINT64_C(1) << s->chunk_log2) + ENGINE_SLOTS * sizeof(map_entry));
    if (!s->chunks || s->chunks > MOST_CHUNKS)
        return engine_fail(error, ENGINE_E_ARGUMENT, "a budget of %llu bytes is too %s", (unsigned long long)budget, s->chunks ? "large" : "small");
    if (segment_create(s, temporary, sizeof temporary, error)) return error->status;
    if (!segment_map(s, s->fd, 1, error)) {
        h.magic = SEGMENT_MAGIC, h.size = s->size, h.chunk_log2 = s->chunk_log2, h.chunks = s->chunks;
        h.check = header_check(&h);
        memcpy(s->base, &h, sizeof h);
        if (!link(temporary, s->path)) {
            unlink(temporary);
            return ENGINE_OK;
        }
        (void)engine_fail(error, errno == EEXIST ? ENGINE_E_BUSY : ENGINE_E_SYSTEM, "%.180s: %s", s->path, strerror(errno));
    }
    unlink(temporary);
    segment_close(s);
    return error->status;
}

/* Restores the name of a segment: copies its bytes to a new file with that name, mapped at the same address. A file without a
 * name cannot be linked again. Until this succeeds, the old file stays in use. */
static engine_status segment_replace(segment *s, engine_error *error)
{
    char temporary[PATH + 24];
    segment n;
    uint64_t at = 0;
    ssize_t k = 1;
    memset(&n, 0, sizeof n);
    n.size = s->size;
    memcpy(n.path, s->path, sizeof n.path);
    if (segment_create(&n, temporary, sizeof temporary, error)) return error->status;
    while (at < s->size && k > 0)
        k = pwrite(n.fd, s->base + at, (size_t)(s->size - at < (1u << 30) ? s->size - at : 1u << 30), (off_t)at), at += k > 0 ? (uint64_t)k : 0;
    if (at < s->size) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", temporary, strerror(errno));
    else if (link(temporary, s->path))
        (void)engine_fail(error, ENGINE_E_BUSY, "%.120s: %s", s->path,
                          errno == EEXIST ? "another trainer has made one of that name" : strerror(errno));
    else if (segment_map(s, n.fd, 1, error)) unlink(s->path);
    else {
        const int old = s->fd;
        pthread_mutex_lock(&segments_mutex);
        s->fd = n.fd, n.fd = old;
        pthread_mutex_unlock(&segments_mutex);
        (void)engine_good(error);
    }
    unlink(temporary);
    segment_close(&n);
    return error->status;
}

/* Names the process that holds the trainer's lock. */
static engine_status fail_busy(const segment *s, engine_error *error)
{
    segment_header h;
    const int known = pread(s->fd, &h, sizeof h, 0) == (ssize_t)sizeof h;
    const unsigned long long pid = known ? (unsigned long long)h.trainer_pid : 0;
    if (pid && kill((pid_t)pid, 0) && errno == ESRCH)
        return engine_fail(error, ENGINE_E_BUSY,
                           "%.100s: in use, though its trainer, process %llu, is gone: a child of it has it, or a trainer in another container",
                           s->path, pid);
    return engine_fail(error, ENGINE_E_BUSY, "%.160s: another trainer has it, process %llu", s->path, pid);
}

/* Opens the segment and takes the trainer's lock, or makes the segment. If the file loses its name before the lock is taken,
 * tries again. */
static engine_status segment_take(segment *s, uint64_t budget, int *fresh, engine_error *error)
{
    unsigned tries;
    for (*fresh = 0, tries = 0; tries < 1000; tries++) {
        if (segment_open(s, s->path, 0)) {
            if (errno != ENOENT || !budget)
                return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", s->path, strerror(errno));
            if (!segment_make(s, budget, error)) return *fresh = 1, ENGINE_OK;
            if (error->status != ENGINE_E_BUSY) return error->status;
            continue;
        }
        if (lock(s, F_WRLCK, LOCK_TRAINER)) {
            if (is_named(s)) return fail_busy(s, error);
        } else if (is_named(s)) {
            return segment_check(s, 1, error);
        }
        segment_close(s);
    }
    return engine_fail(error, ENGINE_E_BUSY, "%.160s: is removed and made again all the time", s->path);
}

/* ---- protection ---- */

/* Seconds without a beat after which an agent is considered to hang. It beats every 20 ms, and with every block that it
 * writes. */
#define HUNG 30.0

/* Copies a text out of a segment. Another process may be writing it. */
static void take_text(char *to, size_t size, const char *from)
{
    size_t i;
    for (i = 0; i + 1 < size && from[i]; i++) to[i] = (char)((unsigned char)from[i] < ' ' ? '?' : from[i]);
    to[i] = 0;
}

static double age_of(uint64_t made) { return made ? seconds_since(made) : -1; }

static void protection_of(const segment *s, engine_protection *p)
{
    const segment_header *h = header_of(s);
    slot_seal seal;
    uint64_t newest[2] = { 0, 0 };
    unsigned i, k;
    memset(p, 0, sizeof *p);
    p->memory_age = p->partner_age = -1;
    for (i = 0; i < OWN_SLOTS && is_named(s); i++) {
        if (!read_seal(s, i, &seal)) continue;
        for (k = 0; k < 2; k++) {
            if (seal.sequence <= newest[k] || (k && (seal.ranks < 2 || __atomic_load_n(&slot_of(s, i)->counted, __ATOMIC_SEQ_CST) != seal.sequence)))
                continue;
            newest[k] = seal.sequence;
            *(k ? &p->partner_step : &p->memory_step) = seal.step;
            *(k ? &p->partner_age : &p->memory_age) = seconds_since(seal.made);
        }
    }
    p->disk_step = h->disk_step;
    p->disk_age = age_of(h->disk_made);
    p->agent_age = is_locked(s, LOCK_AGENT) ? age_of(h->beat) : -1;
    p->unprotected = h->exposed;
    take_text(p->reason, sizeof p->reason, *h->wrong || !h->disk_failed ? h->wrong : h->disk_wrong);
}

/* ================================================================================= CONTENTS
 * The contents of a snapshot: tensors, their pieces, names; 64-bit numbers in native byte order. They are stored in chunks, like
 * frames. */

#define CONTENTS_MAGIC UINT64_C(0x32524944454E4EB5)

typedef struct contents_header {
    uint64_t magic, step, tensors, pieces, names_size;
} contents_header;

typedef struct contents_tensor {
    uint64_t name_at, name_size, type_size, dtype, kind, count, columns; /* the text of disk_type is stored after the name */
    uint64_t master; /* 0: none, else number + 1 */
    uint64_t first_piece;
} contents_tensor;

typedef struct contents_frame {
    uint64_t at, size, check; /* chunk of the map << chunk_log2 | byte of it; bytes; XXH3 of them */
} contents_frame;

typedef struct contents_piece {
    uint64_t tensor, first, count; /* elements */
    contents_frame frame;  /* size 0: the elements are those of the master, rounded, and the check is of these */
    contents_frame anchor; /* the base of the frame; size 0: the frame is not a delta */
    uint64_t settled;       /* 1: the anchor, or a frame that can become one, is in a chunk of frames that are likely to stay */
} contents_piece;

typedef struct contents {
    uint8_t *bytes; /* owned */
    uint64_t size;
    const contents_header *header;
    const contents_tensor *tensors;
    const contents_piece *pieces;
    const char *names;
    /* for parity, instead of all these */
    const slot_seal *seals;   /* of each member of the group */
    const map_entry *maps[64];
    const uint64_t *checks;   /* of each chunk of parity */
    uint64_t rows;
} contents;

/* Returns the elements of each piece except the last: whole rows if they are short enough. */
static uint64_t piece_count(uint64_t columns) { return columns && columns <= PIECE ? PIECE / columns * columns : PIECE; }

static int is_float16(uint64_t dtype) { return dtype == BITSNAP_BF16 || dtype == BITSNAP_F16; }

/* Returns an upper bound for the frame of a piece, in bytes. */
static uint64_t frame_most(uint64_t count, unsigned width) { return count * width + count / 512 + 4096; }

static const char *check_tensor(const contents *d, uint64_t i, uint64_t *name, uint64_t *piece)
{
    const contents_header *h = d->header;
    const contents_tensor *t = &d->tensors[i], *master;
    const unsigned width = t->dtype < 256 ? bitsnap_width((bitsnap_dtype)t->dtype) : 0;
    const uint64_t each = piece_count(t->columns);
    uint64_t first;
    if (t->name_at != *name || t->name_size > h->names_size - *name || t->type_size > h->names_size - *name - t->name_size)
        return "a name that is not there";
    *name += t->name_size + t->type_size;
    if (memchr(d->names + t->name_at, 0, (size_t)(t->name_size + t->type_size))) return "a name with a zero byte";
    if (!width || t->kind > ENGINE_MOMENT2 || t->count > UINT64_C(1) << 48) return "a tensor of a kind that is unknown";
    if (t->first_piece != *piece || t->count / each > h->pieces) return "pieces that are out of order";
    if (t->master) {
        if (t->master > h->tensors || !is_float16(t->dtype)) return "a master that is none";
        master = &d->tensors[t->master - 1];
        if (master->dtype != BITSNAP_F32 || master->count != t->count) return "a master that is none";
    }
    for (first = 0; first < t->count; first += each, ++*piece) {
        const contents_piece *p = &d->pieces[*piece];
        const uint64_t count = t->count - first < each ? t->count - first : each;
        if (*piece >= h->pieces || p->tensor != i || p->first != first || p->count != count) return "pieces that do not make up a tensor";
        if (!p->frame.size && (!t->master || t->dtype != BITSNAP_BF16 || p->anchor.size)) return "a frame without bytes";
        if (p->frame.size > frame_most(count, width) || p->anchor.size > frame_most(count, width) || (p->anchor.size && t->master))
            return "frames of impossible sizes";
    }
    return NULL;
}

/* Parses d->bytes, which may be any bytes. Returns null, or what is wrong with them. */
static const char *contents_parse(contents *d)
{
    const uint64_t most = d->size / sizeof(contents_piece);
    uint64_t i, name = 0, piece = 0;
    const char *wrong = NULL;
    if (d->size < sizeof *d->header) return "contents that are cut";
    d->header = (const contents_header *)(const void *)d->bytes;
    if (d->header->magic != CONTENTS_MAGIC) return "no contents, or those of another version";
    if (d->header->tensors > d->size / sizeof(contents_tensor) || d->header->pieces > most || d->header->names_size > d->size ||
        d->size != sizeof *d->header + d->header->tensors * sizeof(contents_tensor) + d->header->pieces * sizeof(contents_piece) +
                       d->header->names_size)
        return "contents of another size";
    d->tensors = (const contents_tensor *)(const void *)(d->header + 1);
    d->pieces = (const contents_piece *)(const void *)(d->tensors + d->header->tensors);
    d->names = (const char *)(const void *)(d->pieces + d->header->pieces);
    for (i = 0; i < d->header->tensors && !wrong; i++) wrong = check_tensor(d, i, &name, &piece);
    return wrong ? wrong : piece == d->header->pieces ? NULL : "pieces of no tensor";
}

/* Of parity: its group, rows, seals, maps, checks. */
static const char *parity_parse(contents *d, uint64_t group)
{
    uint64_t left = d->size, i;
    const uint8_t *p = d->bytes;
    if (group < 3 || group > 64 || left < group * sizeof *d->seals + sizeof d->rows) return "parity of no group";
    memcpy(&d->rows, p, sizeof d->rows);
    d->seals = (const slot_seal *)(const void *)(p + sizeof d->rows);
    p += group * sizeof *d->seals + sizeof d->rows;
    left -= group * sizeof *d->seals + sizeof d->rows;
    for (i = 0; i < group; i++) {
        if (d->seals[i].chunks > left / sizeof(map_entry)) return "parity without all maps";
        if (d->seals[i].chunks > d->rows * (group - 1)) return "parity of fewer chunks";
        d->maps[i] = (const map_entry *)(const void *)p;
        p += d->seals[i].chunks * sizeof(map_entry);
        left -= d->seals[i].chunks * sizeof(map_entry);
    }
    d->checks = (const uint64_t *)(const void *)p;
    return left == d->rows * sizeof *d->checks ? NULL : "parity without all checks";
}

/* ================================================================================= VIEWS */

/* Messages of temporary faults, after which a snapshot may still be good. All other messages mean damage. */
static const char out_of_memory[] = "out of memory", not_fetched[] = "its master cannot be fetched", not_stored[] = "its elements cannot be stored";

static engine_status status_of(const char *wrong)
{
    return wrong == out_of_memory || wrong == not_fetched || wrong == not_stored ? ENGINE_E_SYSTEM : ENGINE_E_DAMAGED;
}

/* A snapshot that can be read. If its bytes change during a read, the result is either verified or an error. */
typedef struct snapshot {
    const segment *s;
    slot_seal seal;
    unsigned slot;
    map_entry *map; /* a copy, owned */
    contents d;
} snapshot;

static void snapshot_free(snapshot *v)
{
    free(v->map);
    free(v->d.bytes);
    memset(v, 0, sizeof *v);
}

/* Copies bytes out of the chunks. Returns 1 if the snapshot has fewer. */
static int snapshot_read(const snapshot *v, uint64_t at, uint64_t size, uint8_t *to)
{
    const unsigned log2 = v->s->chunk_log2;
    const uint8_t *arena = v->s->base + arena_at(v->s->chunks);
    uint64_t chunk = at >> log2, begin = at & ((UINT64_C(1) << log2) - 1);
    while (size) {
        const uint64_t room = (UINT64_C(1) << log2) - begin, n = size < room ? size : room;
        if (chunk >= v->seal.chunks) return 1;
        memcpy(to, arena + ((uint64_t)v->map[chunk].chunk << log2) + begin, (size_t)n);
        to += n;
        size -= n;
        chunk = v->map[chunk].next;
        begin = 0;
    }
    return 0;
}

/* Opens the snapshot of a slot, with map and contents. Returns null, or a message; "" if the slot is empty. */
static const char *snapshot_open(snapshot *v, const segment *s, unsigned slot)
{
    uint64_t i, size;
    const char *wrong;
    memset(v, 0, sizeof *v);
    v->s = s;
    v->slot = slot;
    if (!read_seal(s, slot, &v->seal)) return "";
    if (v->seal.chunks > s->chunks || !v->seal.contents_size || v->seal.contents_size >> s->chunk_log2 > s->chunks)
        return "a seal with impossible sizes";
    size = v->seal.chunks * sizeof(map_entry);
    v->map = (map_entry *)malloc((size_t)size + 1);
    v->d.bytes = (uint8_t *)malloc((size_t)v->seal.contents_size);
    v->d.size = v->seal.contents_size;
    if (!v->map || !v->d.bytes) return out_of_memory;
    memcpy(v->map, map_of(s, slot), (size_t)size);
    if (bitsnap_hash(v->map, (size_t)size) != v->seal.map_check) return "its map is damaged";
    for (i = 0; i < v->seal.chunks; i++)
        if (v->map[i].chunk >= s->chunks) return "its map leads nowhere";
    if (snapshot_read(v, v->seal.contents_at, v->d.size, v->d.bytes) || bitsnap_hash(v->d.bytes, (size_t)v->d.size) != v->seal.contents_check)
        return "its contents are damaged";
    if ((v->seal.parity != 0) > (slot >= OWN_SLOTS)) return "a seal of another kind";
    if (v->seal.parity) {
        wrong = parity_parse(&v->d, v->seal.parity);
        return wrong ? wrong : v->d.rows <= v->seal.chunks ? NULL : "parity that is not there";
    }
    wrong = contents_parse(&v->d);
    if (!wrong && (v->d.header->step != v->seal.step || v->d.header->pieces != v->seal.pieces || v->d.header->tensors != v->seal.tensors))
        wrong = "its seal is of another one";
    return wrong;
}

static const char *read_frame(const snapshot *v, const contents_frame *f, uint8_t *to)
{
    if (snapshot_read(v, f->at, f->size, to)) return "a frame that is not there";
    return bitsnap_hash(to, (size_t)f->size) == f->check ? NULL : "a frame is damaged";
}

static uint8_t *elements_at(const engine_tensor *t, uint64_t first) { return (uint8_t *)t->data + first * bitsnap_width(t->dtype); }

/* F32 -> BF16, to nearest even; NaNs stay NaNs. */
static void round_elements(uint16_t *to, const void *from, size_t n)
{
    const uint32_t *p = (const uint32_t *)from;
    size_t i;
    for (i = 0; i < n; i++) {
        const uint32_t x = p[i], rounded = (x + 0x7FFF + (x >> 16 & 1)) >> 16;
        to[i] = (uint16_t)((x & 0x7FFFFFFF) > 0x7F800000 ? x >> 16 | 0x40 : rounded);
    }
}

static int is_rounded(const uint16_t *elements, const void *master, size_t n)
{
    uint16_t some[4096];
    size_t i;
    for (i = 0; i < n; i += 4096) {
        const size_t k = n - i < 4096 ? n - i : 4096;
        round_elements(some, (const uint8_t *)master + 4 * i, k);
        if (memcmp(some, elements + i, 2 * k)) return 0;
    }
    return 1;
}

/* Memory of a thread that codes pieces. */
typedef struct worker {
    bitsnap b;
    uint8_t *frame, *elements; /* a frame, and the elements of an anchor */
    uint8_t *live, *master;    /* elements of tensors in other memory */
    uint64_t frame_size, elements_size, live_size, master_size;
} worker;

static int reserve(uint8_t **p, uint64_t *size, uint64_t wanted)
{
    if (*size >= wanted) return 0;
    free(*p);
    *p = (uint8_t *)malloc((size_t)wanted);
    *size = *p ? wanted : 0;
    return !*p;
}

static int reserve_workspace(bitsnap *b, size_t wanted)
{
    if (b->workspace_size >= wanted) return 0;
    free(b->workspace);
    b->workspace = malloc(wanted);
    b->workspace_size = b->workspace ? wanted : 0;
    return !b->workspace;
}

static void worker_free(worker *w)
{
    free(w->b.workspace);
    free(w->frame);
    free(w->elements);
    free(w->live);
    free(w->master);
    memset(w, 0, sizeof *w);
}

/* Returns elements of a tensor; those in other memory are copied to *room. Null: cannot be fetched. */
static const uint8_t *bring(const engine_tensor *t, uint64_t first, uint64_t count, uint8_t **room, uint64_t *room_size)
{
    if (!t->fetch) return elements_at(t, first);
    if (reserve(room, room_size, count * bitsnap_width(t->dtype)) || t->fetch(t->data, first, count, *room)) return NULL;
    return *room;
}

/* Decodes w->frame. Returns null, or what is wrong. */
static const char *decode(worker *w, uint64_t size, void *elements, uint64_t count, bitsnap_dtype dtype)
{
    bitsnap_info info;
    if (bitsnap_read_info(&info, w->frame, (size_t)size)) return "a frame that is none";
    /* count and dtype bound the workspace, too */
    if (info.count != count || info.dtype != dtype) return "a frame of other elements";
    if (reserve_workspace(&w->b, info.workspace_size)) return out_of_memory;
    return bitsnap_decode(&w->b, elements, count, dtype, w->frame, (size_t)size) ? bitsnap_message(&w->b) : NULL;
}

/* Restores the elements of a piece. master: the same elements of its tensor's master, or null. */
static const char *decode_piece(const snapshot *v, uint64_t piece, worker *w, void *elements, const void *master)
{
    const contents_piece *p = &v->d.pieces[piece];
    const contents_tensor *t = &v->d.tensors[p->tensor];
    const bitsnap_dtype dtype = (bitsnap_dtype)t->dtype;
    const unsigned width = bitsnap_width(dtype);
    const char *wrong;
    if (!p->frame.size) {
        round_elements((uint16_t *)elements, master, (size_t)p->count);
        return bitsnap_hash(elements, (size_t)(2 * p->count)) == p->frame.check ? NULL : "its master is not the one that it was rounded from";
    }
    memset(&w->b.base, 0, sizeof w->b.base);
    if (reserve(&w->frame, &w->frame_size, frame_most(p->count, width)) || reserve(&w->elements, &w->elements_size, p->count * width))
        return out_of_memory;
    if (p->anchor.size) {
        wrong = read_frame(v, &p->anchor, w->frame);
        if (!wrong) wrong = decode(w, p->anchor.size, w->elements, p->count, dtype);
        if (wrong) return wrong;
        w->b.base.data = w->elements;
        w->b.base.dtype = dtype;
    } else if (t->master) {
        w->b.base.data = master;
        w->b.base.dtype = BITSNAP_F32;
    }
    w->b.base.count = p->count;
    wrong = read_frame(v, &p->frame, w->frame);
    return wrong ? wrong : decode(w, p->frame.size, elements, p->count, dtype);
}

/* ================================================================================= THREADS */

typedef struct pool {
    pthread_mutex_t mutex;
    pthread_cond_t start, done;
    pthread_t *threads;
    unsigned count, running, numbers; /* threads, without the caller; threads at work; numbers given to threads so far */
    uint64_t round;
    int quit;
    void (*run)(void *context, unsigned worker);
    void *context;
} pool;

static void *pool_thread(void *argument)
{
    pool *p = (pool *)argument;
    uint64_t seen = 0;
    unsigned number;
    pthread_mutex_lock(&p->mutex);
    number = ++p->numbers;
    for (;;) {
        while (!p->quit && p->round == seen) pthread_cond_wait(&p->start, &p->mutex);
        if (p->quit) break;
        seen = p->round;
        pthread_mutex_unlock(&p->mutex);
        p->run(p->context, number);
        pthread_mutex_lock(&p->mutex);
        if (!--p->running) pthread_cond_signal(&p->done);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static void pool_stop(pool *p)
{
    pthread_mutex_lock(&p->mutex);
    p->quit = 1;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
    while (p->count) pthread_join(p->threads[--p->count], NULL);
    free(p->threads);
    pthread_cond_destroy(&p->start);
    pthread_cond_destroy(&p->done);
    pthread_mutex_destroy(&p->mutex);
}

static int pool_start(pool *p, unsigned threads)
{
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->start, NULL);
    pthread_cond_init(&p->done, NULL);
    p->threads = (pthread_t *)calloc(threads, sizeof *p->threads);
    for (; p->threads && p->count + 1 < threads; p->count++)
        if (pthread_create(&p->threads[p->count], NULL, pool_thread, p)) break;
    if (p->threads && p->count + 1 == threads) return 0;
    pool_stop(p);
    return 1;
}

/* Calls run(context, worker) on every thread at once. All take from the same tasks. */
static void pool_run(pool *p, void (*run)(void *, unsigned), void *context)
{
    pthread_mutex_lock(&p->mutex);
    p->run = run;
    p->context = context;
    p->running = p->count;
    p->round++;
    pthread_cond_broadcast(&p->start);
    pthread_mutex_unlock(&p->mutex);
    run(context, 0);
    pthread_mutex_lock(&p->mutex);
    while (p->running) pthread_cond_wait(&p->done, &p->mutex);
    pthread_mutex_unlock(&p->mutex);
}

/* ================================================================================= ENGINE */

enum { RUNS = 8, RUN = 8 };

/* State of a piece, for choices.
 * sample, wait, pause: whether to try a delta. Elements of the anchor, 8 in a row at 8 places; the snapshots until the next try,
 * after the last one failed, and those to wait if the next one fails, too.
 * last, cycle, cycle_size: whether a new anchor is due. The sampled elements in the last snapshot; the number of frames since the
 * anchor, which counts itself, and their bytes.
 * high, frames: for whole frames and for deltas, whether level_most is used, and the number of frames. */
typedef struct choice {
    uint8_t sample[RUNS * RUN * 8], last[RUNS * RUN * 8];
    uint8_t has_sample, has_last, wait, pause, high[2];
    uint32_t frames[2], cycle;
    uint64_t cycle_size;
} choice;

enum { PACES = 1024, PACE_RUN = 64 };

/* How fast a tensor of weights changes: some elements in the last snapshot; the size of an update relative to the weights; bins
 * of its moments. */
typedef struct pace {
    float last[PACES];
    uint64_t step;
    double ratio;
    unsigned seen, cells;
    uint8_t deltas, high[2]; /* options.say has been told */
} pace;

struct engine {
    segment s;
    engine_options o;
    pool workers;
    worker *w;
    snapshot last;   /* the newest one that counts, if last.map is not null. It stays: deltas are made against it */
    choice *choices; /* of its pieces */
    pace *paces;     /* of its tensors */
    int afresh;      /* 1: the next snapshot has no deltas */
    engine_lineage line; /* of this attempt; without links before it begins */
    uint64_t least;  /* a lower step begins another attempt */
    int is_lone;     /* the last snapshot was taken while a rank stalled: it never counts, though the one before may */
    uint64_t choices_count, sequence, origin, agent_started;
    engine_cost cost;
    struct mover *mover; /* with a transport, or options.copy */
    pthread_mutex_t room; /* protects the set of free chunks: a thread that takes some holds it until they are sealed or in
                             `held` */
    uint8_t *held;        /* for each chunk, the number of messages that read or write it */
    pthread_mutex_t telling; /* protects the header's members on protection */
    unsigned doubtful, exposed; /* snapshots in a row with something wrong; without any protection */
    /* fault of the other ranks; why the segment has no name; why there is no agent; or "" */
    char others_wrong[TEXT], nameless[TEXT], no_agent[TEXT];
};

static void set_counted(const segment *s, const snapshot *v) { __atomic_store_n(&slot_of(s, v->slot)->counted, v->seal.sequence, __ATOMIC_SEQ_CST); }
static void set_alone(const segment *s, const snapshot *v) { __atomic_store_n(&slot_of(s, v->slot)->alone, v->seal.sequence, __ATOMIC_SEQ_CST); }

/* Called with e->room locked. */
static void hold(engine *e, uint32_t chunk, int more) { e->held[chunk] = (uint8_t)(e->held[chunk] + more); }

static int counts(const segment *s, unsigned slot, const slot_seal *seal)
{
    return __atomic_load_n(&slot_of(s, slot)->counted, __ATOMIC_SEQ_CST) == seal->sequence;
}

/* Returns whether the agent must write a snapshot that does not count. */
static int is_alone(const segment *s, unsigned slot, const slot_seal *seal)
{
    return __atomic_load_n(&slot_of(s, slot)->alone, __ATOMIC_SEQ_CST) == seal->sequence;
}

static void say(const engine *e, const char *format, ...)
{
    char message[256];
    va_list arguments;
    if (!e->o.say) return;
    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    e->o.say(e->o.say_context, message);
}

int engine_policy(engine_options *o, const char *name)
{
    static const struct { const char *name; unsigned m, v; } policies[] = {
        { "lossless", 0, 0 }, { "resume", 70, 35 }, { "standard", 16, 8 }, { "small", 8, 4 }
    };
    size_t i;
    for (i = 0; i < sizeof policies / sizeof *policies; i++) {
        if (strcmp(policies[i].name, name)) continue;
        o->m_cells = policies[i].m;
        o->v_cells = policies[i].v;
        return 0;
    }
    return 1;
}

/* Opens the newest valid snapshot older than `below`. ENGINE_E_SYSTEM: one may be whole, but cannot be read now. */
static engine_status newest(const engine *e, uint64_t below, snapshot *v, engine_error *error)
{
    slot_seal seal;
    unsigned i, best;
    int damaged = below != UINT64_MAX;
    for (;;) {
        const char *wrong;
        uint64_t sequence = 0;
        for (i = best = 0; i < OWN_SLOTS; i++)
            if (read_seal(&e->s, i, &seal) && (!e->o.transport || counts(&e->s, i, &seal)) && seal.sequence < below && seal.sequence > sequence)
                sequence = seal.sequence, best = i;
        if (!sequence) break;
        wrong = snapshot_open(v, &e->s, best);
        if (!wrong) return ENGINE_OK;
        if (status_of(wrong) == ENGINE_E_SYSTEM) {
            (void)engine_fail(error, ENGINE_E_SYSTEM, "%.150s: step %llu: %s", e->s.path, (unsigned long long)v->seal.step, wrong);
            snapshot_free(v);
            return error->status;
        }
        say(e, "slot %u, step %llu: %s", best, (unsigned long long)v->seal.step, wrong);
        snapshot_free(v);
        below = sequence;
        damaged = 1;
    }
    return damaged ? engine_fail(error, ENGINE_E_DAMAGED, "%.150s: no snapshot in it is whole", e->s.path)
                   : engine_fail(error, ENGINE_E_NONE, "%.150s: there is no snapshot in it yet", e->s.path);
}

/* Starts an agent if none is running. It has its own session, so it survives this one. */
static engine_status start_agent(engine *e, engine_error *error)
{
    char *const *argv = (char *const *)(uintptr_t)e->o.agent; /* execv changes nothing */
    int status = 0;
    pid_t child, waited;
    if (!e->o.agent || is_locked(&e->s, LOCK_AGENT)) return ENGINE_OK;
    e->agent_started = nanoseconds();
    child = fork();
    if (!child) {
        (void)setsid();
        execv(argv[0], argv);
        _exit(127);
    }
    do waited = child < 0 ? child : waitpid(child, &status, 0);
    while (waited < 0 && child > 0 && errno == EINTR);
    if (waited == child && child > 0 && !status) return ENGINE_OK;
    return engine_fail(error, ENGINE_E_SYSTEM, "%.150s: the agent does not start", argv[0]);
}

/* Draws a unique id. */
static engine_id new_id(void)
{
    static uint64_t drawn;
    uint64_t x[5] = { 0, 0, 0, 0, 0 };
    struct timespec t;
    engine_id id;
    const int fd = open("/dev/urandom", O_RDONLY | O_CLOEXEC);
    clock_gettime(CLOCK_REALTIME, &t);
    x[0] = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec, x[1] = (uint64_t)getpid(), x[2] = __atomic_fetch_add(&drawn, 1, __ATOMIC_RELAXED);
    if (fd >= 0) {
        if (read(fd, &x[3], 2 * sizeof *x) < 0) x[3] = 0;
        close(fd);
    }
    id.x[0] = bitsnap_hash(x, sizeof x);
    x[0] = ~x[0];
    id.x[1] = bitsnap_hash(x, sizeof x);
    return id;
}

static engine_status mover_start(engine *e, engine_error *error);
static void mover_stop(engine *e);

void engine_sizes(size_t sizes[4])
{
    sizes[0] = sizeof(engine_options), sizes[1] = sizeof(engine_tensor), sizes[2] = sizeof(engine_cost), sizes[3] = sizeof(engine_protection);
}

engine_status engine_open(engine **made, const engine_options *o, engine_error *error)
{
    engine *e = (engine *)calloc(1, sizeof *e);
    slot_seal seal;
    unsigned i;
    int fresh = 0;
    *made = NULL;
    if (!e) return no_memory(error);
    e->o = *o;
    if (!e->o.threads) e->o.threads = 1;
    if (!e->o.level) e->o.level = BITSNAP_FAST;
    if (e->o.level_most < e->o.level) e->o.level_most = e->o.level;
    if (!e->o.delta_percent) e->o.delta_percent = 50;
    if (!e->o.distance) e->o.distance = 1;
    if (!(e->o.partner_patience > 0)) e->o.partner_patience = 60;
    if (o->transport && o->transport->ranks < 2) e->o.transport = NULL;
    if (segment_name(&e->s, o->directory, o->name, error)) goto failed;
    if (o->threads > 1024 || o->m_cells > 2048 || o->deltas < ENGINE_ADAPT || o->deltas > ENGINE_TRY || o->v_cells > 2048 || e->o.level < 0 ||
        e->o.level_most > BITSNAP_BEST || e->o.delta_percent > 90) {
        (void)engine_fail(error, ENGINE_E_ARGUMENT, "threads, levels, bins or percentage out of range");
        goto failed;
    }
    if (e->o.transport && o->group && (o->group < 3 || o->group > 64 || o->transport->ranks % ((uint64_t)o->group * e->o.distance))) {
        (void)engine_fail(error, ENGINE_E_ARGUMENT, "%u ranks, distance %u, do not make up groups of %u, from 3 to 64", o->transport->ranks,
                          e->o.distance, o->group);
        goto failed;
    }
    if (e->o.transport && (o->transport->rank >= o->transport->ranks || e->o.distance % o->transport->ranks == 0)) {
        (void)engine_fail(error, ENGINE_E_ARGUMENT, "rank %u of %u, distance %u: that is nobody's partner", o->transport->rank, o->transport->ranks,
                          e->o.distance);
        goto failed;
    }
    if (segment_take(&e->s, o->budget, &fresh, error)) goto failed;
    if (!fresh && o->budget && o->budget / ARENA_ALIGN * ARENA_ALIGN != e->s.size) {
        (void)engine_fail(error, ENGINE_E_MISMATCH,
                          "%.120s: has %llu bytes, not the %llu of the budget; open it with budget 0, or remove it if nobody needs its snapshots",
                          e->s.path, (unsigned long long)e->s.size, (unsigned long long)o->budget);
        goto failed;
    }
    header_of(&e->s)->trainer_pid = (uint64_t)getpid();
    __atomic_store_n(&header_of(&e->s)->begun, 0, __ATOMIC_SEQ_CST);
    for (i = 0; i < ENGINE_SLOTS; i++) {
        __atomic_store_n(&slot_of(&e->s, i)->claim, 0, __ATOMIC_SEQ_CST); /* left by a killed trainer */
        if (read_seal(&e->s, i, &seal) && seal.sequence > e->sequence) e->sequence = seal.sequence;
    }
    *header_of(&e->s)->wrong = 0, header_of(&e->s)->exposed = 0;
    e->w = (worker *)calloc(e->o.threads, sizeof *e->w);
    e->held = (uint8_t *)calloc((size_t)e->s.chunks, 1);
    if (!e->w || !e->held || pool_start(&e->workers, e->o.threads)) {
        (void)engine_fail(error, ENGINE_E_SYSTEM, "cannot start %u threads", e->o.threads);
        goto failed;
    }
    e->origin = new_id().x[0];
    pthread_mutex_init(&e->room, NULL);
    pthread_mutex_init(&e->telling, NULL);
    if (!start_agent(e, error) && ((!e->o.transport && !e->o.copy) || !mover_start(e, error))) {
        *made = e;
        return engine_good(error);
    }
    pool_stop(&e->workers);
failed:
    if (fresh) unlink(e->s.path); /* no other process uses it yet, and all its memory is allocated */
    segment_close(&e->s);
    free(e->held), free(e->w);
    free(e);
    return error->status;
}

void engine_close(engine *e, int remove)
{
    unsigned i;
    if (!e || e->s.fd < 0) return; /* a child has no threads, and everything else belongs to the parent */
    mover_stop(e);
    pool_stop(&e->workers);
    for (i = 0; i < e->o.threads; i++) worker_free(&e->w[i]);
    if (remove && is_named(&e->s)) unlink(e->s.path);
    snapshot_free(&e->last);
    segment_close(&e->s);
    pthread_mutex_destroy(&e->room);
    pthread_mutex_destroy(&e->telling);
    free(e->choices);
    free(e->paces);
    free(e->held), free(e->w);
    free(e);
}

const engine_cost *engine_last_cost(const engine *e) { return &e->cost; }

void engine_ids(const engine *e, char run[33], char attempt[33])
{
    *run = *attempt = 0;
    if (e->line.count) (void)engine_id_text(run, &e->line.run), (void)engine_id_text(attempt, &e->line.links[0].attempt);
}

/* ================================================================================= SNAPSHOT */

/* Consecutive frames, across chunks. */
typedef struct stream {
    uint32_t chunk; /* of the map; NONE: none yet */
    uint64_t fill;
} stream;

/* A snapshot being made. */
typedef struct making {
    engine *e;
    const engine_tensor *tensors;
    size_t count;
    contents d;              /* being filled in */
    contents_piece *pieces;  /* pieces of d */
    const contents_piece *before; /* pieces of the last snapshot if it has the same tensors; otherwise null */
    int afresh;               /* no deltas */
    const snapshot *also;     /* also kept, because it is being sent to another rank; or null */
    int counting;             /* with the mutex: out of room; the remaining pieces are encoded only to learn their size */
    pthread_mutex_t mutex;    /* protects the members below */
    map_entry *map;
    uint32_t chunks;
    uint32_t *free_, frees;   /* chunks that no snapshot has */
    uint32_t *import;         /* the map's entry for each entry of the last snapshot's map */
    engine_status status;
    engine_error *error;
    double max_relative;
    uint64_t moments;         /* elements of first moments */
    engine_cost cost;
    uint64_t next;            /* piece; without the mutex */
    stream *streams;          /* two for each worker: frames, anchors */
    slot_seal seal;           /* its lineage is filled in at the beginning */
} making;

static void making_fail(making *m, engine_status status, const char *what, uint64_t tensor)
{
    pthread_mutex_lock(&m->mutex);
    if (!m->status) m->status = engine_fail(m->error, status, "%.120s: %s", m->tensors[tensor].name, what);
    pthread_mutex_unlock(&m->mutex);
}

/* Returns this rank's slot that a reader holds; ENGINE_SLOTS: none. */
static unsigned pinned(const segment *s)
{
    unsigned i;
    for (i = 0; i < OWN_SLOTS && !__atomic_load_n(&slot_of(s, i)->pin, __ATOMIC_SEQ_CST); i++) continue;
    return i < OWN_SLOTS && is_locked(s, LOCK_READER) ? i : ENGINE_SLOTS;
}

/* Handles lack of room. If a reader or a snapshot in transit has the room for a time, sets the error and returns 1. Otherwise the
 * remaining pieces are encoded, to find out which budget is enough. */
static int no_room(making *m)
{
    const segment *s = &m->e->s;
    const segment_header *h = header_of(s);
    const unsigned slot = pinned(s);
    const double quiet = is_locked(s, LOCK_AGENT) ? age_of(h->beat) : 0;
    int counting;
    pthread_mutex_lock(&m->mutex);
    if (slot == ENGINE_SLOTS && !m->also && m->afresh) m->counting = 1;
    else if (m->status) (void)0;
    else if (slot == ENGINE_SLOTS)
        m->status = engine_fail(m->error, ENGINE_E_FULL, "%.120s: the snapshot does not fit the budget%s", s->path,
                                m->also ? " beside one that is on its way to another rank" : "");
    else if (quiet > 1)
        m->status = engine_fail(
            m->error, ENGINE_E_FULL,
            "the agent, process %llu, has not moved for %.0f s and holds step %llu, whose room is needed: if it hangs, kill it, and the next snapshot starts another",
            (unsigned long long)h->agent_pid, quiet, (unsigned long long)slot_of(s, slot)->seal.step);
    else
        m->status = engine_fail(m->error, ENGINE_E_FULL, "%.100s: step %llu is being read, and the budget has no room for a third snapshot beside it",
                                s->path, (unsigned long long)slot_of(s, slot)->seal.step);
    counting = m->counting;
    pthread_mutex_unlock(&m->mutex);
    return !counting;
}

/* Fails, and names a budget that is enough: two and a quarter whole snapshots, one more if there is an agent, the same for the
 * partner's or for parity, and the chunks that threads leave partly empty. */
static engine_status fail_full(making *m)
{
    const engine_options *o = &m->e->o;
    const double own = (double)(m->cost.written_size + m->d.size) * (o->agent ? 3.25 : 2.25);
    const double with_others = own + (!o->transport ? 0 : o->group ? own / (o->group - 1) : own);
    const double needed = with_others * (1 + (4.0 + 6.0 * o->threads) / 1000) + ((4.0 + 6.0 * o->threads) * (1 << LEAST_LOG2) + 65536);
    return engine_fail(m->error, ENGINE_E_FULL,
                       "%.100s: the budget of %llu bytes is too small, a snapshot takes %llu: remove the segment, and open it with a budget of %llu",
                       m->e->s.path, (unsigned long long)m->e->s.size, (unsigned long long)(m->cost.written_size + m->d.size),
                       (unsigned long long)needed);
}

static int failed_already(making *m)
{
    int status;
    pthread_mutex_lock(&m->mutex);
    status = m->status != ENGINE_OK;
    pthread_mutex_unlock(&m->mutex);
    return status;
}

static int is_counting(making *m)
{
    int counting;
    pthread_mutex_lock(&m->mutex);
    counting = m->counting;
    pthread_mutex_unlock(&m->mutex);
    return counting;
}

static uint64_t id_of(uint64_t origin, uint64_t sequence, uint64_t number)
{
    const uint64_t x[3] = { origin, sequence, number };
    return bitsnap_hash(x, sizeof x);
}

/* Adds an entry to the map. Called with the mutex. */
static uint32_t new_chunk(making *m)
{
    map_entry *x = &m->map[m->chunks];
    if (!m->frees) return NONE;
    x->id = id_of(m->e->origin, m->e->sequence + 1, m->chunks);
    x->chunk = m->free_[--m->frees];
    x->next = NONE;
    return m->chunks++;
}

/* Appends bytes to a stream. Returns 1 if there is no room. */
static int append(making *m, stream *st, const uint8_t *bytes, uint64_t size, uint64_t *at)
{
    const segment *s = &m->e->s;
    const uint64_t whole = UINT64_C(1) << s->chunk_log2;
    uint8_t *arena = s->base + arena_at(s->chunks);
    int first = 1;
    *at = 0;
    if (is_counting(m)) return 0;
    while (size) {
        uint64_t n;
        if (st->chunk == NONE || st->fill == whole) {
            uint32_t chunk;
            pthread_mutex_lock(&m->mutex);
            chunk = new_chunk(m);
            if (chunk != NONE && !first) m->map[st->chunk].next = chunk;
            pthread_mutex_unlock(&m->mutex);
            if (chunk == NONE) return no_room(m);
            st->chunk = chunk;
            st->fill = 0;
        }
        if (first) *at = (uint64_t)st->chunk << s->chunk_log2 | st->fill;
        first = 0;
        n = whole - st->fill < size ? whole - st->fill : size;
        memcpy(arena + ((uint64_t)m->map[st->chunk].chunk << s->chunk_log2) + st->fill, bytes, (size_t)n);
        bytes += n;
        size -= n;
        st->fill += n;
    }
    return 0;
}

/* Reuses a frame of the last snapshot. The new one then shares its chunks. */
static contents_frame import(making *m, const contents_frame *f)
{
    const snapshot *v = &m->e->last;
    const unsigned log2 = m->e->s.chunk_log2;
    const uint64_t begin = f->at & ((UINT64_C(1) << log2) - 1);
    uint64_t chunk = f->at >> log2, left = begin + f->size;
    uint32_t *link = NULL;
    contents_frame made = *f;
    pthread_mutex_lock(&m->mutex);
    for (;;) {
        uint32_t *to = &m->import[chunk];
        if (*to == NONE) {
            *to = m->chunks++;
            m->map[*to] = v->map[chunk];
            m->map[*to].next = NONE;
        }
        if (link) *link = *to;
        else made.at = (uint64_t)*to << log2 | begin;
        if (left <= UINT64_C(1) << log2) break;
        left -= UINT64_C(1) << log2;
        link = &m->map[*to].next;
        chunk = v->map[chunk].next;
    }
    pthread_mutex_unlock(&m->mutex);
    return made;
}

static int encode(worker *w, uint64_t capacity, size_t *size, const void *elements, uint64_t count, bitsnap_dtype dtype)
{
    if (reserve_workspace(&w->b, bitsnap_workspace_size(&w->b, count, dtype))) {
        w->b.error.status = BITSNAP_E_WORKSPACE;
        return 1;
    }
    return bitsnap_encode(&w->b, w->frame, (size_t)capacity, size, elements, count, dtype) != BITSNAP_OK;
}

/* Returns a run of sampled elements. */
static const uint8_t *sampled(const uint8_t *elements, uint64_t count, unsigned width, unsigned run)
{
    return elements + (count - RUN) / (RUNS - 1) * run * width;
}

static void take_sample(uint8_t *sample, uint8_t *has, const uint8_t *elements, uint64_t count, unsigned width)
{
    unsigned r;
    *has = count >= RUNS * RUN;
    for (r = 0; r < RUNS && *has; r++) memcpy(sample + r * RUN * width, sampled(elements, count, width, r), RUN * width);
}

/* Estimates the bits an element of a delta: those of the differences, and one for their number. */
static double guess_delta(const uint8_t *sample, const uint8_t *elements, uint64_t count, unsigned width)
{
    unsigned r, k, bits = 1; /* for changes that the sample misses */
    for (r = 0; r < RUNS; r++) {
        const uint8_t *now = sampled(elements, count, width, r), *then = sample + r * RUN * width;
        for (k = 0; k < RUN; k++) {
            uint64_t x = 0, y = 0;
            memcpy(&x, now + k * width, width);
            memcpy(&y, then + k * width, width);
            x = x > y ? x - y : y - x;
            for (bits += x != 0; x; x >>= 1) bits++;
        }
    }
    return (double)bits / (RUNS * RUN);
}

/* Returns whether a delta to this frame is likely to stay within delta_percent of it. */
static int seems_to_pay(const engine *e, choice *c, const contents_frame *anchor, const uint8_t *elements, uint64_t count, unsigned width)
{
    if (e->o.deltas != ENGINE_ADAPT) return e->o.deltas == ENGINE_TRY;
    if (!c->has_sample) return 1; /* after a restart: a try gives the sample */
    if (guess_delta(c->sample, elements, count, width) > 0.012 * e->o.delta_percent * 8 * (double)anchor->size / (double)count) return 0;
    if (!c->wait) return 1;
    c->wait--;
    return 0;
}

/* Encodes at the best level for this piece. If level_most is allowed, it is tried on the first, second, fourth, eighth ... whole
 * frame, and in the same way on deltas. It is used as long as it saves 1/32 of the bytes. */
static int encode_leveled(making *m, worker *w, choice *c, uint64_t capacity, size_t *size, const uint8_t *elements, uint64_t count,
                          const engine_tensor *t)
{
    const engine_options *o = &m->e->o;
    const int delta = w->b.base.data != NULL;
    size_t low = 0;
    int failed = 0;
    if (t->columns && count % t->columns == 0 && (w->b.quantizer.bins || o->level_most == BITSNAP_BEST)) w->b.columns = t->columns;
    w->b.level = o->level;
    if (o->level_most > o->level && (c->frames[delta] & (c->frames[delta] + 1)) == 0) {
        failed = encode(w, capacity, &low, elements, count, t->dtype);
        w->b.level = o->level_most;
        failed = failed || encode(w, capacity, size, elements, count, t->dtype);
        c->high[delta] = *size < low - low / 32;
    }
    w->b.level = c->high[delta] ? o->level_most : o->level;
    if (!failed && !(low && c->high[delta])) failed = encode(w, capacity, size, elements, count, t->dtype);
    w->b.columns = 0;
    c->frames[delta] += !failed;
    return failed;
}

/* Returns 1 if a new anchor would soon pay although deltas to this one no longer grow, as after a stage of many changes. A delta
 * to the last snapshot would take d bytes. If deltas grew by d each time, the best average would be sqrt(2 * d * anchor); 1.5
 * times that is allowed. */
static int is_stale(const engine *e, const choice *c, const contents_piece *before, const uint8_t *elements, uint64_t count, unsigned width)
{
    if (e->o.deltas != ENGINE_ADAPT || !c->has_sample || !c->has_last) return 0;
    return (double)before->frame.size * guess_delta(c->sample, elements, count, width) >
           4.5 * (double)before->anchor.size * guess_delta(c->last, elements, count, width);
}

/* Encodes a delta to the anchor of this piece in the last snapshot. Returns 0 if it takes more than delta_percent of the anchor,
 * or more than the average of the frames since the anchor: if deltas grow with the distance, a new anchor then minimizes the
 * average. With delta_percent 50, anchor and two deltas never take more than two whole frames. A frame keeps its chunks while it
 * is an anchor. So it becomes one only if it is in a chunk of frames that are likely to stay; when deltas begin to pay, one more
 * whole frame comes first. */
static size_t encode_delta(making *m, worker *w, uint64_t i, const uint8_t *elements, const engine_tensor *t)
{
    const bitsnap_dtype dtype = t->dtype;
    const contents_piece *before = &m->before[i], *p = &m->pieces[i];
    const contents_frame *anchor = before->anchor.size ? &before->anchor : &before->frame;
    choice *c = &m->e->choices[i];
    const int pays = seems_to_pay(m->e, c, anchor, elements, p->count, bitsnap_width(dtype));
    uint64_t most = anchor->size * m->e->o.delta_percent / 100;
    size_t size = 0;
    m->pieces[i].settled = (uint64_t)(pays || c->cycle > 1);
    if (!before->settled || !pays || m->afresh) return 0;
    if (before->anchor.size && is_stale(m->e, c, before, elements, p->count, bitsnap_width(dtype))) return 0;
    if (!c->cycle) c->cycle = 1, c->cycle_size = anchor->size; /* after a restart */
    if (c->cycle_size / c->cycle < most) most = c->cycle_size / c->cycle;
    memset(&w->b.base, 0, sizeof w->b.base);
    if (!read_frame(&m->e->last, anchor, w->frame) && !decode(w, anchor->size, w->elements, p->count, dtype)) {
        take_sample(c->sample, &c->has_sample, w->elements, p->count, bitsnap_width(dtype));
        w->b.base.data = w->elements;
        w->b.base.count = p->count;
        w->b.base.dtype = dtype;
        if (encode_leveled(m, w, c, most, &size, elements, p->count, t)) size = 0;
    }
    memset(&w->b.base, 0, sizeof w->b.base);
    if (size) c->pause = 0, c->cycle++, c->cycle_size += size;
    else if (c->cycle == 1) c->wait = c->pause = (unsigned char)(c->pause < 15 ? 2 * c->pause + 1 : c->pause);
    return size;
}

unsigned engine_stage_cells(unsigned least, double update)
{
    static const unsigned cells[] = { 8, 12, 16, 24, 34, 48, 70 };
    /* share of an update that changes the weights by 2^-13 of their size */
    const double allowed = update > 1e-12 ? 1 / (8192 * update) : 1e9;
    size_t i;
    for (i = 0; i < sizeof cells / sizeof *cells; i++) {
        const double m = 1 + bitsnap_log_bound(cells[i]), v = 1 - bitsnap_log_bound(cells[i] / 2);
        if (cells[i] >= least && m * m <= (1 + allowed) * (1 + allowed) * v) return cells[i];
    }
    return least > 70 ? least : 70;
}

/* Measures the size of an update relative to the weights, on sampled elements of the last snapshot. */
static void measure_pace(pace *c, const engine_tensor *t, uint64_t step)
{
    const unsigned width = bitsnap_width(t->dtype), run = t->count < PACES ? 1 : PACE_RUN;
    const uint64_t runs = (t->count < PACES ? t->count : PACES) / run, apart = step > c->step ? step - c->step : 1;
    double moved = 0, size = 0;
    uint64_t i, k, root = 1;
    uint8_t bytes[4 * PACE_RUN];
    for (i = 0; i < runs; i++) {
        const uint64_t first = runs < 2 ? 0 : (t->count - run) / (runs - 1) * i;
        if (!t->fetch) memcpy(bytes, elements_at(t, first), (size_t)run * width);
        else if (t->fetch(t->data, first, run, bytes)) return;
        for (k = 0; k < run; k++) {
            uint32_t bits = 0;
            float now, *last = &c->last[i * run + k];
            memcpy(&bits, bytes + k * width, width);
            if (width == 2) bits <<= 16;
            memcpy(&now, &bits, sizeof now);
            if (!(now - now == 0)) now = 0; /* infinities and NaNs */
            moved += now > *last ? (double)now - *last : (double)*last - now;
            size += now > 0 ? now : -now;
            *last = now;
        }
    }
    /* a sum of n updates in random directions is about sqrt(n) times one of them */
    while ((root + 1) * (root + 1) <= apart) root++;
    moved = size > 0 ? moved / (size * (double)root) : 1;
    c->ratio = c->seen ? moved : 1; /* unknown */
    c->seen = 1;
    c->step = step;
}

/* Chooses the bins of moments by the size of an update of their weights. Takes fewer only if an update a quarter larger would
 * also get fewer. */
static void choose_cells(making *m, uint64_t step)
{
    size_t i;
    for (i = 0; i < m->count; i++) {
        const engine_tensor *t = &m->tensors[i];
        pace *c;
        unsigned before;
        if (t->kind != ENGINE_MOMENT1 || !t->weights || !m->e->o.m_cells) continue;
        c = &m->e->paces[t->weights - m->tensors];
        before = c->cells;
        measure_pace(c, t->weights, step);
        c->cells = engine_stage_cells(m->e->o.m_cells, c->ratio);
        if (c->cells < before) {
            c->cells = engine_stage_cells(m->e->o.m_cells, 1.25 * c->ratio);
            if (c->cells > before) c->cells = before;
        }
        if (before && before != c->cells)
            say(m->e, "step %llu: moments of %s in %u bins instead of %u, as an update is %.2g %% of the weights", (unsigned long long)step,
                t->weights->name, c->cells, before, 100 * c->ratio);
    }
}

/* Returns the bins of a tensor; 0: lossless. */
static unsigned cells_of(const engine *e, const engine_tensor *t, const engine_tensor *tensors)
{
    const unsigned stage = e->o.stage && t->weights ? e->paces[t->weights - tensors].cells : 0;
    if (t->kind == ENGINE_MOMENT1) return e->o.m_cells && stage > e->o.m_cells ? stage : e->o.m_cells;
    if (t->kind == ENGINE_MOMENT2) return e->o.v_cells && stage / 2 > e->o.v_cells ? stage / 2 : e->o.v_cells;
    return 0;
}

static void make_piece(making *m, uint64_t i, unsigned number)
{
    worker *w = &m->e->w[number];
    stream *st = &m->streams[2 * number];
    contents_piece *p = &m->pieces[i];
    const engine_tensor *t = &m->tensors[p->tensor];
    const unsigned width = bitsnap_width(t->dtype);
    choice *c = &m->e->choices[i];
    const uint8_t *elements = bring(t, p->first, p->count, &w->live, &w->live_size);
    const uint8_t *master = t->master ? bring(t->master, p->first, p->count, &w->master, &w->master_size) : NULL;
    const uint64_t capacity = frame_most(p->count, width);
    const unsigned cells = cells_of(m->e, t, m->tensors);
    size_t size = 0;
    uint64_t written = 0;
    bitsnap_info info;
    if (reserve(&w->frame, &w->frame_size, capacity) || reserve(&w->elements, &w->elements_size, p->count * width)) {
        making_fail(m, ENGINE_E_SYSTEM, "no memory to encode it", p->tensor);
        return;
    }
    if (!elements || (t->master && !master)) {
        making_fail(m, ENGINE_E_SYSTEM, "its elements cannot be fetched", p->tensor);
        return;
    }
    if (t->master && t->dtype == BITSNAP_BF16 && is_rounded((const uint16_t *)(const void *)elements, master, (size_t)p->count)) {
        p->frame.check = bitsnap_hash(elements, (size_t)(2 * p->count));
        goto done;
    }
    if (m->before && !cells && !t->master) size = encode_delta(m, w, i, elements, t);
    if (!cells && !t->master) take_sample(c->last, &c->has_last, elements, p->count, width);
    if (size) {
        const contents_piece *before = &m->before[i];
        p->frame.check = bitsnap_hash(w->frame, size);
        p->frame.size = written = size;
        p->anchor = import(m, before->anchor.size ? &before->anchor : &before->frame);
        if (append(m, st, w->frame, size, &p->frame.at)) return;
    } else {
        memset(&w->b.base, 0, sizeof w->b.base);
        if (t->master) {
            w->b.base.data = master;
            w->b.base.count = p->count;
            w->b.base.dtype = BITSNAP_F32;
        }
        if (!cells && !t->master) take_sample(c->sample, &c->has_sample, elements, p->count, width);
        w->b.quantizer.bins = cells;
        if (encode_leveled(m, w, c, capacity, &size, elements, p->count, t)) {
            making_fail(m, ENGINE_E_ARGUMENT, bitsnap_message(&w->b), p->tensor);
            return;
        }
        memset(&w->b.base, 0, sizeof w->b.base);
        w->b.quantizer.bins = 0;
        c->cycle = 1, c->cycle_size = size;
        p->frame.check = bitsnap_hash(w->frame, size);
        p->frame.size = written = size;
        if (append(m, p->settled ? st + 1 : st, w->frame, size, &p->frame.at)) return;
    }
done:
    pthread_mutex_lock(&m->mutex);
    m->cost.elements_size += p->count * width;
    m->cost.frames_size += p->frame.size + p->anchor.size;
    if (t->kind == ENGINE_MOMENT1) m->moments += p->count, m->cost.cells += (double)cells * (double)p->count;
    m->cost.written_size += written;
    if (p->anchor.size) m->cost.delta++;
    else if (t->master) m->cost.cast++;
    else m->cost.whole++;
    if (cells && !bitsnap_read_info(&info, w->frame, size) && info.certificate.max_relative > m->max_relative)
        m->max_relative = info.certificate.max_relative;
    pthread_mutex_unlock(&m->mutex);
}

static void make_pieces(void *context, unsigned number)
{
    making *m = (making *)context;
    for (;;) {
        const uint64_t i = __atomic_fetch_add(&m->next, 1, __ATOMIC_RELAXED);
        if (i >= m->d.header->pieces || failed_already(m)) return;
        make_piece(m, i, number);
    }
}

static const char wrong_type[] = "its type is unknown, or of another dtype or count";

static const char *wrong_tensor(const engine_tensor *t, const engine_tensor *tensors, size_t count)
{
    const int octaves = is_float16(t->dtype) || t->dtype == BITSNAP_F32 || t->dtype == BITSNAP_F64;
    char text[DISK_TYPE];
    if (!t->name || !bitsnap_width(t->dtype) || (t->count && !t->data && !t->fetch) || t->count > UINT64_C(1) << 48)
        return "name, dtype, data or count is wrong";
    if (!disk_type(text, t)) return wrong_type;
    if (t->kind != ENGINE_EXACT && (t->kind < ENGINE_EXACT || t->kind > ENGINE_MOMENT2 || !octaves)) return "no moment of Adam";
    if (t->master && (t->master < tensors || t->master >= tensors + count)) return "its master is not among the tensors";
    if (t->weights && (t->weights < tensors || t->weights >= tensors + count || t->weights->count != t->count ||
                       (t->weights->dtype != BITSNAP_F32 && t->weights->dtype != BITSNAP_BF16)))
        return "its weights are no F32 or BF16 tensor of the same count among the tensors";
    if (t->master && (!is_float16(t->dtype) || t->master->dtype != BITSNAP_F32 || t->master->count != t->count || t->master->kind != ENGINE_EXACT))
        return "its master is no F32 tensor of the same count";
    return NULL;
}

/* Makes the contents for these tensors, without the positions of frames. */
static engine_status list_tensors(contents *d, uint64_t step, const engine_tensor *tensors, size_t count, engine_error *error)
{
    contents_header h;
    contents_tensor *t;
    contents_piece *p;
    char *name, text[DISK_TYPE];
    size_t i;
    uint64_t first, piece = 0;
    memset(&h, 0, sizeof h);
    h.magic = CONTENTS_MAGIC, h.step = step, h.tensors = count;
    for (i = 0; i < count; i++) {
        const char *wrong = wrong_tensor(&tensors[i], tensors, count);
        const uint64_t each = piece_count(tensors[i].columns);
        if (wrong)
            return engine_fail(error, ENGINE_E_ARGUMENT, "tensor %llu (%.100s): %s", (unsigned long long)i, tensors[i].name ? tensors[i].name : "",
                               wrong);
        h.names_size += strlen(tensors[i].name) + disk_type(text, &tensors[i]);
        h.pieces += tensors[i].count / each + (tensors[i].count % each != 0);
    }
    h.names_size = (h.names_size + 7) / 8 * 8;
    d->size = sizeof h + h.tensors * sizeof *t + h.pieces * sizeof *p + h.names_size;
    d->bytes = (uint8_t *)calloc(1, (size_t)d->size);
    if (!d->bytes) return no_memory(error);
    memcpy(d->bytes, &h, sizeof h);
    t = (contents_tensor *)(void *)(d->bytes + sizeof h);
    p = (contents_piece *)(void *)(t + count);
    name = (char *)(void *)(p + h.pieces);
    d->header = (const contents_header *)(const void *)d->bytes, d->tensors = t, d->pieces = p, d->names = name;
    for (i = 0; i < count; i++, t++) {
        const uint64_t each = piece_count(tensors[i].columns);
        t->name_size = strlen(tensors[i].name);
        t->name_at = (uint64_t)(name - d->names);
        memcpy(name, tensors[i].name, (size_t)t->name_size);
        name += t->name_size;
        t->type_size = disk_type(text, &tensors[i]);
        memcpy(name, text, (size_t)t->type_size);
        name += t->type_size;
        t->dtype = tensors[i].dtype, t->kind = tensors[i].kind, t->count = tensors[i].count, t->columns = tensors[i].columns;
        t->master = tensors[i].master ? (uint64_t)(tensors[i].master - tensors) + 1 : 0;
        t->first_piece = piece;
        for (first = 0; first < t->count; first += each, p++, piece++)
            p->tensor = i, p->first = first, p->count = t->count - first < each ? t->count - first : each;
    }
    return ENGINE_OK;
}

/* Returns whether two contents list the same tensors. */
static int same_tensors(const contents *a, const contents *b)
{
    return a->header->tensors == b->header->tensors && a->header->pieces == b->header->pieces && a->header->names_size == b->header->names_size &&
           !memcmp(a->tensors, b->tensors, (size_t)a->header->tensors * sizeof *a->tensors) &&
           !memcmp(a->names, b->names, (size_t)a->header->names_size);
}

static int by_name(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Refuses two tensors of one name, because recovery could not tell them apart. */
static engine_status refuse_twins(const engine_tensor *tensors, size_t count, engine_error *error)
{
    const char **names = (const char **)malloc((count + 1) * sizeof *names);
    size_t i;
    if (!names) return no_memory(error);
    (void)engine_good(error);
    for (i = 0; i < count; i++) names[i] = tensors[i].name;
    qsort((void *)names, count, sizeof *names, by_name);
    for (i = 1; i < count && !error->status; i++)
        if (!strcmp(names[i - 1], names[i]))
            (void)engine_fail(error, ENGINE_E_ARGUMENT, "%.100s: two tensors have this name", names[i]);
    free((void *)names);
    return error->status;
}

/* Removes the seal. Returns 1 if a reader needs the snapshot. Trainer and reader each announce their intent before they look at
 * that of the other. */
static int unseal(const segment *s, unsigned slot)
{
    segment_slot *x = slot_of(s, slot);
    __atomic_store_n(&x->claim, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&x->pin, __ATOMIC_SEQ_CST) && is_locked(s, LOCK_READER)) {
        __atomic_store_n(&x->claim, 0, __ATOMIC_SEQ_CST);
        return 1;
    }
    __atomic_store_n(&x->seal.check, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&x->claim, 0, __ATOMIC_SEQ_CST);
    return 0;
}

/* Finds a slot for the next snapshot, from `first` on. Empties all others, except `stays`, `also` (may be null), and slots that
 * are being read. */
static int free_slot(const segment *s, unsigned first, const snapshot *stays, const snapshot *also, unsigned *slot)
{
    slot_seal seal;
    unsigned i;
    int found = 0;
    for (i = first + OWN_SLOTS; i-- > first;) {
        if ((stays->map && i == stays->slot) || (also && i == also->slot)) continue;
        if (read_seal(s, i, &seal) && unseal(s, i)) continue;
        *slot = i;
        found = 1;
    }
    return !found;
}

/* Lists the chunks that no sealed slot and no message uses, in descending order. A slot with a damaged map uses none. */
static engine_status find_free(const engine *e, uint32_t *chunks, uint32_t *count, engine_error *error)
{
    const segment *s = &e->s;
    uint8_t *used = (uint8_t *)calloc((size_t)s->chunks, 1);
    snapshot v;
    unsigned i;
    uint64_t k;
    *count = 0;
    if (!used) return no_memory(error);
    for (i = 0; i < ENGINE_SLOTS; i++) {
        const char *wrong = snapshot_open(&v, s, i);
        for (k = 0; !wrong && k < v.seal.chunks; k++) used[v.map[k].chunk] = 1;
        snapshot_free(&v);
        if (wrong && status_of(wrong) == ENGINE_E_SYSTEM) {
            free(used);
            return no_memory(error);
        }
    }
    for (k = s->chunks; k-- > 0;)
        if (!used[k] && !e->held[k]) chunks[(*count)++] = (uint32_t)k;
    free(used);
    return ENGINE_OK;
}

/* Writes map and seal, after which the snapshot is valid. */
static void seal_slot(const segment *s, unsigned slot, slot_seal *seal, const map_entry *map)
{
    segment_slot *x = slot_of(s, slot);
    seal->made = nanoseconds();
    seal->map_check = bitsnap_hash(map, (size_t)seal->chunks * sizeof *map);
    seal->check = seal_check(seal);
    memcpy(map_of(s, slot), map, (size_t)seal->chunks * sizeof *map);
    memcpy((uint8_t *)&x->seal + sizeof seal->check, &seal->sequence, sizeof *seal - sizeof seal->check);
    __atomic_store_n(&x->seal.check, seal->check, __ATOMIC_SEQ_CST);
}

static void seal_made(making *m, unsigned slot, uint64_t step)
{
    const engine_transport *t = m->e->o.transport;
    slot_seal *seal = &m->seal;
    seal->sequence = m->e->sequence + 1;
    seal->step = step;
    seal->chunks = m->chunks;
    seal->rank = t ? t->rank : 0;
    seal->ranks = t ? t->ranks : 1;
    seal->tensors = m->d.header->tensors;
    seal->pieces = m->d.header->pieces;
    seal->elements_size = m->cost.elements_size;
    seal->frames_size = m->cost.frames_size;
    seal->max_relative = m->max_relative;
    seal_slot(&m->e->s, slot, seal, m->map);
    if (!t) __atomic_store_n(&slot_of(&m->e->s, slot)->counted, seal->sequence, __ATOMIC_SEQ_CST);
}

static engine_status make(making *m, unsigned slot, uint64_t step)
{
    engine *e = m->e;
    const size_t streams = 2 * (size_t)e->o.threads;
    size_t i;
    m->map = (map_entry *)calloc((size_t)e->s.chunks, sizeof *m->map);
    m->free_ = (uint32_t *)malloc((size_t)e->s.chunks * sizeof *m->free_);
    m->import = (uint32_t *)malloc(((size_t)e->last.seal.chunks + 1) * sizeof *m->import);
    m->streams = (stream *)malloc(streams * sizeof *m->streams);
    if (!m->map || !m->free_ || !m->import || !m->streams) return no_memory(m->error);
    for (i = 0; i < streams; i++) m->streams[i].chunk = NONE;
    memset(m->import, 0xFF, ((size_t)e->last.seal.chunks + 1) * sizeof *m->import);
    if (list_tensors(&m->d, step, m->tensors, m->count, m->error) || find_free(e, m->free_, &m->frees, m->error))
        return m->error->status;
    m->pieces = (contents_piece *)(void *)(m->d.bytes + ((const uint8_t *)m->d.pieces - m->d.bytes));
    if (e->last.map && same_tensors(&m->d, &e->last.d)) m->before = e->last.d.pieces;
    else if (refuse_twins(m->tensors, m->count, m->error)) return m->error->status;
    if (!m->before || !e->choices || e->choices_count != m->d.header->pieces) {
        free(e->choices), free(e->paces);
        e->choices_count = m->d.header->pieces;
        e->choices = (choice *)calloc((size_t)e->choices_count + 1, sizeof *e->choices);
        e->paces = (pace *)calloc(m->count + 1, sizeof *e->paces);
        if (!e->choices || !e->paces) {
            free(e->choices), e->choices = NULL;
            return no_memory(m->error);
        }
    }
    if (e->o.stage) choose_cells(m, step);
    pool_run(&e->workers, make_pieces, m);
    if (m->status) return m->status;
    if (m->moments) m->cost.cells /= (double)m->moments;
    m->seal.contents_size = m->d.size;
    m->seal.contents_check = bitsnap_hash(m->d.bytes, (size_t)m->d.size);
    if (append(m, &m->streams[0], m->d.bytes, m->d.size, &m->seal.contents_at)) return m->status;
    if (m->counting) return fail_full(m);
    seal_made(m, slot, step);
    return ENGINE_OK;
}

/* Reports the tensors for which deltas begin or end, or the level changes, and why. A new anchor among deltas is not reported. */
static void say_choices(const making *m, uint64_t step)
{
    const contents *d = &m->d;
    uint64_t i, k;
    for (i = 0; i < d->header->tensors && m->before; i++) {
        const uint64_t end = i + 1 < d->header->tensors ? d->tensors[i + 1].first_piece : d->header->pieces;
        uint8_t *said = &m->e->paces[i].deltas;
        uint64_t frames = 0, anchors = 0, settled = 0;
        uint8_t high;
        for (k = d->tensors[i].first_piece; k < end; k++) {
            settled |= d->pieces[k].settled;
            if (d->pieces[k].anchor.size) frames += d->pieces[k].frame.size, anchors += d->pieces[k].anchor.size;
        }
        if (anchors && !*said)
            say(m->e, "step %llu: deltas of %s from here on: %.1f %% of whole frames", (unsigned long long)step, m->tensors[i].name,
                100 * (double)frames / (double)anchors);
        if (!anchors && !settled && *said)
            say(m->e, "step %llu: no deltas of %s any more: they would take more than %u %% of whole frames", (unsigned long long)step,
                m->tensors[i].name, m->e->o.delta_percent);
        *said = anchors || (settled && *said);
        high = m->e->choices[d->tensors[i].first_piece].high[anchors != 0];
        if (end > d->tensors[i].first_piece && high != m->e->paces[i].high[anchors != 0])
            say(m->e, "step %llu: %s of %s at level %d from here on, %s", (unsigned long long)step, anchors ? "deltas" : "whole frames",
                m->tensors[i].name, high ? m->e->o.level_most : m->e->o.level, high ? "as that saves a 32nd" : "as more saves less than a 32nd");
        m->e->paces[i].high[anchors != 0] = high;
    }
}

/* flying returns the snapshot that is being sent and must stay, or null. recall takes it back to free its room, and returns 1 if
 * it did. */
static const snapshot *mover_flying(engine *e);
static int mover_recall(engine *e);

/* Returns the fault of the other ranks, or null. *away: no snapshot is being sent to them, or none that counts. */
static const char *mover_wrong(engine *e, int *away);

static engine_status try_snapshot(engine *e, uint64_t step, const engine_lineage *line, const engine_tensor *tensors, size_t count, snapshot *made,
                                  engine_cost *cost, engine_error *error)
{
    making m;
    unsigned slot = 0;
    const uint64_t start = nanoseconds();
    if (!is_whole(&e->s)) return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", e->s.path, has_been_cut);
    memset(&m, 0, sizeof m);
    m.e = e, m.tensors = tensors, m.count = count, m.error = error, m.afresh = e->afresh, m.also = mover_flying(e), m.seal.line = *line;
    if (!e->last.map && newest(e, UINT64_MAX, &e->last, error) == ENGINE_E_SYSTEM) return error->status;
    if (free_slot(&e->s, 0, &e->last, m.also, &slot)) return engine_fail(error, ENGINE_E_BUSY, "all slots but the newest are being read");
    pthread_mutex_init(&m.mutex, NULL);
    if (!make(&m, slot, step)) {
        made->s = &e->s, made->slot = slot, made->seal = m.seal, made->map = m.map, made->d = m.d;
        m.map = NULL;
        m.d.bytes = NULL;
        e->sequence++;
        /* some chunks hold frames that are no longer anchors; everything is encoded anew before these exceed 1/8 */
        e->afresh = m.chunks > 9 * ((m.cost.frames_size >> e->s.chunk_log2) + 1) / 8 + 2 * e->o.threads;
        say_choices(&m, step);
        m.cost.sent_size = cost->sent_size;
        *cost = m.cost;
        cost->seconds = cost->encode_seconds = seconds_since(start);
        (void)engine_good(error);
    }
    pthread_mutex_destroy(&m.mutex);
    free(m.map), free(m.free_), free(m.import), free(m.streams), free(m.d.bytes);
    return error->status;
}

/* Takes a snapshot. If a reader has the room, waits for it if the options say so. If a snapshot that another rank does not take
 * has the room, that one is taken back. */
static engine_status make_snapshot(engine *e, uint64_t step, const engine_lineage *line, const engine_tensor *tensors, size_t count, snapshot *made,
                                   engine_cost *cost, engine_error *error)
{
    const uint64_t start = nanoseconds();
    const struct timespec pause = { 0, 2000000 };
    unsigned i;
    int away;
    memset(made, 0, sizeof *made);
    for (;;) {
        pthread_mutex_lock(&e->room);
        (void)try_snapshot(e, step, line, tensors, count, made, cost, error);
        i = error->status != ENGINE_E_BUSY && error->status != ENGINE_E_FULL ? 2 : (unsigned)mover_recall(e);
        pthread_mutex_unlock(&e->room);
        if (i == 2) break;
        if (i) continue;
        if (error->status == ENGINE_E_FULL && !e->afresh) {
            e->afresh = 1;
            continue;
        }
        for (i = 0; i < OWN_SLOTS; i++) __atomic_store_n(&slot_of(&e->s, i)->wanted, 1, __ATOMIC_SEQ_CST);
        if (e->o.when_busy != ENGINE_WAIT || pinned(&e->s) == ENGINE_SLOTS) break;
        if (seconds_since(start) > e->o.patience) break;
        nanosleep(&pause, NULL);
    }
    if (!error->status && e->mover && (mover_wrong(e, &away), away)) set_alone(&e->s, made);
    return error->status;
}

/* ---- copies of the tensors, which are encoded after the call has returned ---- */

typedef struct staging {
    engine_tensor *tensors;
    size_t count;
    char *names;
    uint8_t *bytes;
    uint64_t size, next;          /* size of bytes; the next part to be copied */
    const engine_tensor *from;
    int failed;
} staging;

enum { STAGED_PART = 1 << 18 };

static void staging_free(staging *g)
{
    free(g->tensors);
    free(g->names);
    free(g->bytes);
    memset(g, 0, sizeof *g);
}

static engine_status staging_list(staging *g, const engine_tensor *tensors, size_t count, engine_error *error)
{
    uint64_t size = 0, names = 1, at = 0;
    char *name;
    size_t i;
    for (i = 0; i < count; i++) {
        const char *wrong = wrong_tensor(&tensors[i], tensors, count);
        if (wrong)
            return engine_fail(error, ENGINE_E_ARGUMENT, "tensor %llu (%.100s): %s", (unsigned long long)i, tensors[i].name ? tensors[i].name : "",
                               wrong);
        size += (tensors[i].count * bitsnap_width(tensors[i].dtype) + 63) / 64 * 64;
        names += strlen(tensors[i].name) + 1 + (tensors[i].type ? strlen(tensors[i].type) + 1 : 0);
    }
    free(g->tensors), free(g->names);
    g->tensors = (engine_tensor *)malloc((count + 1) * sizeof *tensors);
    g->names = name = (char *)malloc((size_t)names);
    if (!g->tensors || !g->names || reserve(&g->bytes, &g->size, size)) {
        staging_free(g);
        return no_memory(error);
    }
    for (i = 0; i < count; i++) {
        engine_tensor *t = &g->tensors[i];
        *t = tensors[i];
        t->name = strcpy(name, tensors[i].name);
        name += strlen(name) + 1;
        if (t->type) t->type = strcpy(name, t->type), name += strlen(name) + 1;
        t->data = g->bytes + at;
        t->fetch = NULL;
        if (t->master) t->master = g->tensors + (t->master - tensors);
        if (t->weights) t->weights = g->tensors + (t->weights - tensors);
        at += (t->count * bitsnap_width(t->dtype) + 63) / 64 * 64;
    }
    g->count = count;
    g->from = tensors;
    g->next = 0;
    g->failed = 0;
    return engine_good(error);
}

/* Copies parts that no other thread has taken. Parts are numbered through all tensors. */
static void copy_parts(void *context, unsigned number)
{
    staging *g = (staging *)context;
    uint64_t part = __atomic_fetch_add(&g->next, 1, __ATOMIC_RELAXED), first = 0;
    size_t i;
    (void)number;
    for (i = 0; i < g->count; i++) {
        const uint64_t size = g->tensors[i].count * bitsnap_width(g->tensors[i].dtype), parts = (size + STAGED_PART - 1) / STAGED_PART;
        for (; part < first + parts; part = __atomic_fetch_add(&g->next, 1, __ATOMIC_RELAXED)) {
            const uint64_t at = (part - first) * STAGED_PART, n = size - at < STAGED_PART ? size - at : STAGED_PART;
            const engine_tensor *t = &g->from[i];
            uint8_t *to = (uint8_t *)g->tensors[i].data + at;
            if (!t->fetch) memcpy(to, (const uint8_t *)t->data + at, (size_t)n);
            else if (t->fetch(t->data, at / bitsnap_width(t->dtype), n / bitsnap_width(t->dtype), to))
                __atomic_store_n(&g->failed, 1, __ATOMIC_RELAXED);
        }
        first += parts;
    }
}

/* ---- protection of snapshots ---- */

static const char is_forked[] = "this process is a child of the one that opened the engine; it may open one of another name";

static staging *mover_staging(engine *e);
static void mover_give(engine *e, snapshot *made, uint64_t step);
static int mover_end(engine *e, double patience, int away_ends);
static void mover_owe(engine *e);
static engine_status begin(engine *e, engine_error *error);

/* Begins an attempt after training went back to an earlier step. All ranks compute its id from what they all know. */
static void turn_back(engine *e, uint64_t step)
{
    const engine_id *old = &e->line.links[0].attempt;
    const uint64_t x[4] = { old->x[0], old->x[1], step, e->least }, y[4] = { e->least, step, old->x[1], old->x[0] };
    engine_id id;
    id.x[0] = bitsnap_hash(x, sizeof x), id.x[1] = bitsnap_hash(y, sizeof y);
    engine_lineage_child(&e->line, &e->line, &id, step);
}

/* Writes the fault of protection to the segment, for engine_protected and the program `engine`. *exposed: the number of
 * unprotected snapshots; null: unchanged. */
static void tell(engine *e, const char *what, const unsigned *exposed)
{
    pthread_mutex_lock(&e->telling);
    if (is_whole(&e->s)) {
        segment_header *h = header_of(&e->s);
        snprintf(h->wrong, sizeof h->wrong, "%s", what);
        if (exposed) h->exposed = *exposed;
    }
    pthread_mutex_unlock(&e->telling);
}

/* Restores the name of the segment if it is gone, and starts an agent if none runs. No message of another rank may be in
 * transit. */
static void mend(engine *e)
{
    const uint64_t started = e->agent_started;
    engine_error error;
    *e->nameless = 0;
    if (!is_whole(&e->s)) return;
    if (!is_named(&e->s)) {
        if (!segment_replace(&e->s, &error)) say(e, "%.150s: somebody has removed it: it is made again", e->s.path), e->agent_started = 0;
        else
            snprintf(e->nameless, sizeof e->nameless, "the segment's name is gone, and with this process its snapshots will be: %.150s",
                     error.message);
    }
    if (!e->o.agent || *e->nameless || is_locked(&e->s, LOCK_AGENT)) *e->no_agent = 0;
    else if (nanoseconds() - e->agent_started <= 1000000000u) return;
    else if (start_agent(e, &error)) snprintf(e->no_agent, sizeof e->no_agent, "there is no agent: %.200s", error.message);
    else {
        say(e, "there was no agent any more: a new one is started");
        *e->no_agent = 0;
        if (started && header_of(&e->s)->beat < started)
            snprintf(e->no_agent, sizeof e->no_agent, "the agent ends as soon as it is started; see its log, or run it with --foreground");
    }
}

/* Writes to `text` why snapshots do not reach the disk; "": they do. */
static void disk_wrong(engine *e, char text[TEXT])
{
    const segment_header *h = header_of(&e->s);
    const double quiet = age_of(h->beat);
    *text = 0;
    if (*e->no_agent) snprintf(text, TEXT, "%s", e->no_agent);
    else if (nanoseconds() - e->agent_started <= 1000000000u) return; /* it may not have started yet */
    else if (!is_locked(&e->s, LOCK_AGENT)) snprintf(text, TEXT, "there is no agent");
    else if (quiet > HUNG)
        snprintf(text, TEXT,
                 "the agent, process %llu, has not moved for %.0f s: it is stopped, or its disk hangs; kill it, and the next snapshot starts another",
                 (unsigned long long)h->agent_pid, quiet);
    else if (h->disk_failed) take_text(text, TEXT, h->disk_wrong);
}

/* Whether something protects the snapshot that was taken, if it was: else says so, the first, second, fourth, eighth ... time in
 * a row, and returns that. A snapshot is protected if its memory has a name, and a partner or a disk takes snapshots, where the
 * options ask for either. */
static engine_status judge(engine *e, uint64_t step, engine_error *error)
{
    char disk[TEXT] = "", why[TEXT];
    const char *others = NULL;
    int away = 0, exposed;
    if (error->status == ENGINE_E_BUSY || error->status == ENGINE_E_ARGUMENT) return error->status;
    if (e->mover) others = mover_wrong(e, &away);
    if (e->o.agent && is_whole(&e->s)) disk_wrong(e, disk);
    exposed = error->status || *e->nameless || (e->o.transport ? away && (!e->o.agent || *disk) : *disk || others);
    snprintf(why, sizeof why, "%s", error->status ? error->message : *e->nameless ? e->nameless : others ? others : disk);
    e->exposed = exposed ? e->exposed + 1 : 0;
    e->doubtful = *why ? e->doubtful + 1 : 0;
    /* the agent has noted its own */
    tell(e, strcmp(why, disk) || *e->no_agent || !is_whole(&e->s) || !header_of(&e->s)->disk_failed ? why : "", &e->exposed);
    if (*why && (e->doubtful & (e->doubtful - 1)) == 0)
        say(e, "step %llu is %s, %u in a row: %s", (unsigned long long)step,
            error->status ? "left out" : exposed ? "not protected" : "protected less than it was to be", e->doubtful, why);
    if (exposed && e->o.unprotected_steps && e->exposed >= e->o.unprotected_steps)
        return engine_fail(error, ENGINE_E_STOP, "%u snapshots in a row are not protected, stop and mend this: %.160s", e->exposed, why);
    return exposed && !error->status ? engine_fail(error, ENGINE_E_UNPROTECTED, "%s", why) : error->status;
}

engine_status engine_snapshot(engine *e, uint64_t step, const engine_tensor *tensors, size_t count, engine_error *error)
{
    const uint64_t start = nanoseconds();
    snapshot made;
    if (e->s.fd < 0) return engine_fail(error, ENGINE_E_ARGUMENT, "%s", is_forked);
    if (!e->line.count && begin(e, error)) return error->status;
    if (step < e->least) turn_back(e, step);
    e->least = step + 1;
    e->is_lone = 0;
    memset(&made, 0, sizeof made);
    if (e->mover && mover_end(e, e->o.when_busy == ENGINE_WAIT ? e->o.patience : 0, 1)) {
        int away;
        mover_owe(e);
        (void)mover_wrong(e, &away);
        if (!away) return engine_fail(error, ENGINE_E_BUSY, "the last snapshot is not finished: it is being encoded, or on its way to another rank");
        if (!is_named(&e->s)) snprintf(e->nameless, sizeof e->nameless, "the segment's name is gone; it is made again when the other ranks answer");
        (void)make_snapshot(e, step, &e->line, tensors, count, &made, &e->cost, error);
        e->is_lone = made.map != NULL;
        snapshot_free(&made);
        return judge(e, step, error);
    }
    mend(e);
    if (!e->o.copy) {
        (void)make_snapshot(e, step, &e->line, tensors, count, &made, &e->cost, error);
    } else if (!staging_list(mover_staging(e), tensors, count, error)) {
        pool_run(&e->workers, copy_parts, mover_staging(e));
        if (mover_staging(e)->failed) mover_staging(e)->count = 0, (void)engine_fail(error, ENGINE_E_SYSTEM, "some elements cannot be fetched");
        e->cost.seconds = seconds_since(start);
    }
    (void)judge(e, step, error);
    if (e->mover) {
        mover_give(e, &made, step);
    } else if (made.map) {
        snapshot_free(&e->last);
        e->last = made;
    }
    return error->status;
}

void engine_protected(engine *e, engine_protection *p)
{
    memset(p, 0, sizeof *p);
    p->memory_age = p->partner_age = p->disk_age = p->agent_age = -1;
    if (e->s.fd < 0 || !is_whole(&e->s)) {
        snprintf(p->reason, sizeof p->reason, "%s", e->s.fd < 0 ? is_forked : has_been_cut);
        return;
    }
    pthread_mutex_lock(&e->telling);
    protection_of(&e->s, p);
    pthread_mutex_unlock(&e->telling);
    if (!is_named(&e->s)) snprintf(p->reason, sizeof p->reason, "the segment's name is gone; the next snapshot makes it again");
}

/* Verifies every byte that a restore would read. */
static const char *verify(const snapshot *v)
{
    uint64_t i;
    const char *wrong = NULL;
    uint8_t *frame = NULL;
    uint64_t size = 0;
    if (v->seal.parity) {
        for (i = 0; i < v->d.rows && !wrong; i++)
            if (bitsnap_hash(v->s->base + arena_at(v->s->chunks) + ((uint64_t)v->map[i].chunk << v->s->chunk_log2), (size_t)1 << v->s->chunk_log2) !=
                v->d.checks[i])
                wrong = "a chunk of parity is damaged";
        return wrong;
    }
    for (i = 0; i < v->d.header->pieces && !wrong; i++) {
        const contents_piece *p = &v->d.pieces[i];
        const uint64_t most = p->frame.size > p->anchor.size ? p->frame.size : p->anchor.size;
        if (reserve(&frame, &size, most + 1)) wrong = out_of_memory;
        if (!wrong && p->anchor.size) wrong = read_frame(v, &p->anchor, frame);
        if (!wrong && p->frame.size) wrong = read_frame(v, &p->frame, frame);
    }
    free(frame);
    return wrong;
}

/* ================================================================================= PARTNERS
 * A rank sends its snapshot to the next rank while it receives that of the previous one: head, map, the list of missing chunks,
 * these chunks. Then rank 0 asks all ranks whether they have both, and tells them whether the step counts. */

enum { TAG_HEAD, TAG_MAP, TAG_MISSING, TAG_CHUNK, TAG_ASK, TAG_VERDICT, TAG_OFFER, TAG_PLAN, WINDOW = 4, MOST_OPEN = 64 };

typedef struct message_head {
    uint64_t step, ok; /* 0: no snapshot, and nothing follows */
    slot_seal seal;
} message_head;

typedef struct mover {
    pthread_t thread;
    pthread_mutex_t mutex;  /* for these: */
    pthread_cond_t changed;
    int busy, quit, counted;
    unsigned owed;          /* skipped snapshots, which the other ranks must be told of */
    snapshot made;          /* the snapshot to send, if made.map is not null */
    uint64_t step;
    engine_lineage line;    /* of the attempt of `made` */
    engine_cost cost;       /* of encoding the copy */
    /* of the thread alone, while it is busy */
    staging g;              /* what it encodes first, if it has tensors */
    snapshot kept;          /* the previous rank's newest snapshot that counts, if kept.map is not null */
    uint64_t sent;
    int moving;             /* a snapshot is in transit between ranks */
    int broken;             /* the transport or this rank has failed, and nothing is sent; memory of open messages is not freed */
    /* with the mutex: */
    int stalled;            /* nothing was received for partner_patience seconds; or broken */
    unsigned lost;          /* snapshots in a row that did not count */
    char wrong[TEXT];       /* fault of the other ranks, or of encoding the copy; or "" */
    /* with engine.room: */
    int flying, recalled;   /* `made` must stay; `made` was taken back */
    int promised;           /* this rank has reported that it has `made` */
    uint8_t *nothing;       /* zeros, sent instead of a chunk that was taken back */
} mover;

static unsigned rank_after(const engine_transport *t, unsigned distance) { return (t->rank + distance) % t->ranks; }

static int is_quitting(mover *v)
{
    int quit;
    pthread_mutex_lock(&v->mutex);
    quit = v->quit;
    pthread_mutex_unlock(&v->mutex);
    return quit;
}

/* Stops all sending. Returns 1. */
static int give_up(const engine *e, const char *why)
{
    mover *v = e->mover;
    if (v->broken) return 1;
    v->broken = 1;
    pthread_mutex_lock(&v->mutex);
    v->stalled = 1;
    snprintf(v->wrong, sizeof v->wrong, "%s: from step %llu on snapshots do not count, until all ranks start again", why,
             (unsigned long long)v->step);
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
    return 1;
}

static const char refused[] = "snapshots do not count: a rank, or its partner, has no room for them, or cannot take them, and says why";
static const char no_answer[] = "another rank does not answer", no_transport[] = "the transport fails", no_bytes[] = "this rank has no memory";

/* Notes that another rank, or its network, stalls. The exchange continues when it answers, however late, so no message is lost or
 * out of order. Until then engine_snapshot takes snapshots alone. The agent writes these, and the one in transit. */
static void stall(engine *e)
{
    mover *v = e->mover;
    char wrong[TEXT];
    if (v->stalled) return; /* no other thread sets it */
    snprintf(wrong, sizeof wrong, "%s: until it does, snapshots from step %llu on stay with this rank", no_answer, (unsigned long long)v->step);
    pthread_mutex_lock(&v->mutex);
    v->stalled = 1;
    memcpy(v->wrong, wrong, sizeof wrong);
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
    pthread_mutex_lock(&e->room);
    if (v->flying) set_alone(&e->s, &v->made);
    pthread_mutex_unlock(&e->room);
    tell(e, wrong, NULL);
    say(e, "%s", wrong);
}

/* Notes that a message was received or sent. */
static void answered(engine *e)
{
    mover *v = e->mover;
    if (!v->stalled || v->broken) return;
    pthread_mutex_lock(&v->mutex);
    v->stalled = 0;
    *v->wrong = 0;
    pthread_mutex_unlock(&v->mutex);
    tell(e, "", NULL);
    say(e, "the other rank answers again");
}

typedef struct requests {
    engine *e;
    void *open[MOST_OPEN];
    uint32_t chunks[MOST_OPEN]; /* chunks that the messages use, or NONE */
    unsigned count;
} requests;

/* Tests the requests. Returns the number of those that are done. */
static unsigned reap(requests *r)
{
    const engine_transport *t = r->e->o.transport;
    const unsigned before = r->count;
    unsigned i;
    for (i = 0; i < r->count;) {
        int done = 0;
        if (t->test(t->context, &r->open[i], &done)) (void)give_up(r->e, no_transport);
        if (!done) {
            i++;
            continue;
        }
        if (r->chunks[i] != NONE) {
            pthread_mutex_lock(&r->e->room);
            hold(r->e, r->chunks[i], -1);
            pthread_mutex_unlock(&r->e->room);
        }
        r->count--;
        r->open[i] = r->open[r->count], r->chunks[i] = r->chunks[r->count];
    }
    if (before != r->count) answered(r->e);
    return before - r->count;
}

/* Pauses when nothing could be done. `since`: the time of the last progress. After a long time, a snapshot stalls and a recovery
 * fails. */
static void idle(engine *e, uint64_t since)
{
    const int late = seconds_since(since) > e->o.partner_patience;
    const struct timespec pause = { 0, late ? 5000000 : 200000 };
    if (is_quitting(e->mover) || (late && !e->mover->moving)) {
        (void)give_up(e, no_answer);
        return;
    }
    if (late) stall(e);
    nanosleep(&pause, NULL);
}

static int post_send(requests *r, unsigned to, int tag, const void *bytes, uint64_t size)
{
    const engine_transport *t = r->e->o.transport;
    if (r->e->mover->broken || t->send(t->context, to, tag, bytes, (size_t)size, &r->open[r->count])) return give_up(r->e, no_transport);
    r->chunks[r->count++] = NONE;
    return 0;
}

/* Sends a chunk, and holds it until it is sent. If the snapshot was taken back, sends zeros, which will not count. */
static int post_chunk(requests *r, unsigned to, const snapshot *v, uint64_t i)
{
    engine *e = r->e;
    const uint32_t chunk = v->map[i].chunk;
    const uint64_t size = UINT64_C(1) << e->s.chunk_log2;
    int gone;
    pthread_mutex_lock(&e->room);
    gone = e->mover->recalled;
    if (!gone) hold(e, chunk, 1);
    pthread_mutex_unlock(&e->room);
    if (post_send(r, to, TAG_CHUNK, gone ? e->mover->nothing : e->s.base + arena_at(e->s.chunks) + chunk * size, size)) return 1;
    if (!gone) r->chunks[r->count - 1] = chunk;
    return 0;
}

static int post_receive(requests *r, unsigned from, int tag, void *bytes, uint64_t size)
{
    const engine_transport *t = r->e->o.transport;
    if (r->e->mover->broken || t->receive(t->context, from, tag, bytes, (size_t)size, &r->open[r->count])) return give_up(r->e, no_transport);
    r->chunks[r->count++] = NONE;
    return 0;
}

/* Reserves chunks for incoming data until they are sealed. */
static void hold_places(engine *e, const map_entry *map, const uint8_t *missing, uint64_t n, int more)
{
    uint64_t i;
    for (i = 0; i < n; i++)
        if (!missing || missing[1 + i]) hold(e, map[i].chunk, more);
}

/* Exchanges one message each way. A message of 0 bytes is not sent. */
static int trade(engine *e, int tag, unsigned to, const void *out, uint64_t out_size, unsigned from, void *in, uint64_t in_size)
{
    const uint64_t start = nanoseconds();
    requests r;
    memset(&r, 0, sizeof r);
    r.e = e;
    if (in_size && post_receive(&r, from, tag, in, in_size)) return 1;
    if (out_size && post_send(&r, to, tag, out, out_size)) return 1;
    while (r.count && !e->mover->broken)
        if (!reap(&r)) idle(e, start);
    return e->mover->broken;
}

static int by_id(const void *a, const void *b)
{
    const uint64_t x = ((const map_entry *)a)->id, y = ((const map_entry *)b)->id;
    return (x > y) - (x < y);
}

/* An incoming snapshot. */
typedef struct incoming {
    message_head head;
    map_entry *map;
    uint8_t *missing; /* a byte: whether anything is wanted; then one for each chunk */
    unsigned slot;
} incoming;

/* Finds free chunks for the chunks that are missing here. 0: the snapshot is not wanted. */
static int find_places(engine *e, incoming *x, const snapshot *kept, unsigned first_slot)
{
    const segment *s = &e->s;
    const uint64_t n = x->head.seal.chunks;
    uint32_t *chunks = (uint32_t *)malloc((size_t)s->chunks * sizeof *chunks), frees;
    map_entry *known = kept->map ? (map_entry *)malloc((size_t)kept->seal.chunks * sizeof *known + 1) : NULL;
    uint64_t i, known_count = known ? kept->seal.chunks : 0;
    engine_error error;
    int fits;
    pthread_mutex_lock(&e->room);
    fits = chunks && x->head.seal.check == seal_check(&x->head.seal) && bitsnap_hash(x->map, (size_t)n * sizeof *x->map) == x->head.seal.map_check &&
               n <= s->chunks && !free_slot(s, first_slot, kept, NULL, &x->slot) && !find_free(e, chunks, &frees, &error);
    if (known) {
        memcpy(known, kept->map, (size_t)known_count * sizeof *known);
        qsort(known, (size_t)known_count, sizeof *known, by_id);
    }
    for (i = 0; i < n && fits; i++) {
        const map_entry *found = known ? (const map_entry *)bsearch(&x->map[i], known, (size_t)known_count, sizeof *known, by_id) : NULL;
        if (found) x->map[i].chunk = found->chunk;
        else if (!frees) fits = 0;
        else x->map[i].chunk = chunks[--frees], x->missing[1 + i] = 1;
    }
    if (fits) hold_places(e, x->map, x->missing, n, 1);
    pthread_mutex_unlock(&e->room);
    free(chunks);
    free(known);
    if (!fits)
        say(e, "the snapshot of rank %llu, step %llu, does not fit the budget", (unsigned long long)x->head.seal.rank,
            (unsigned long long)x->head.step);
    return fits;
}

/* Exchanges the chunks, a few at a time. */
static int trade_chunks(engine *e, unsigned to, const snapshot *out, const uint8_t *missing, unsigned from, const incoming *in, uint64_t *sent)
{
    const segment *s = &e->s;
    uint8_t *arena = s->base + arena_at(s->chunks);
    const uint64_t size = UINT64_C(1) << s->chunk_log2, sends = missing && missing[0] ? out->seal.chunks : 0;
    const uint64_t receives = in && in->missing[0] ? in->head.seal.chunks : 0;
    uint64_t i = 0, k = 0, since = nanoseconds();
    requests to_them, to_us;
    memset(&to_them, 0, sizeof to_them);
    to_them.e = e;
    to_us = to_them;
    while ((i < sends || k < receives || to_them.count || to_us.count) && !e->mover->broken) {
        for (; i < sends && to_them.count < WINDOW; i++) {
            if (!missing[1 + i]) continue;
            if (post_chunk(&to_them, to, out, i)) return 1;
            *sent += size;
        }
        for (; k < receives && to_us.count < WINDOW; k++)
            if (in->missing[1 + k] && post_receive(&to_us, from, TAG_CHUNK, arena + in->map[k].chunk * size, size)) return 1;
        if (reap(&to_them) + reap(&to_us)) since = nanoseconds();
        else if (to_them.count + to_us.count) idle(e, since);
    }
    return e->mover->broken;
}

/* Sends a snapshot, or none, to a rank, and receives one, to a slot from `first_slot` on. May empty all these slots except that
 * of `kept`.
 * `came`: a whole one was received. Returns 1 if the transport has failed. */
static int trade_snapshots(engine *e, unsigned to, const snapshot *out, uint64_t step, unsigned from, const snapshot *kept, unsigned first_slot,
                           snapshot *came, uint64_t *sent)
{
    message_head *mine = (message_head *)calloc(1, sizeof *mine); /* memory that a broken partner may still have */
    incoming *in = (incoming *)calloc(1, sizeof *in);
    uint8_t *missing = out ? (uint8_t *)calloc(1, (size_t)out->seal.chunks + 1) : NULL;
    const char *wrong;
    int failed = 1;
    memset(came, 0, sizeof *came);
    if (!mine || !in || (out && !missing)) (void)give_up(e, no_bytes);
    else {
        mine->step = step, mine->ok = out != NULL;
        if (out) mine->seal = out->seal;
        failed = trade(e, TAG_HEAD, to, mine, sizeof *mine, from, &in->head, sizeof in->head);
    }
    if (!failed && in->head.ok) {
        const uint64_t n = in->head.seal.chunks;
        in->map = n <= MOST_CHUNKS ? (map_entry *)calloc((size_t)n + 1, sizeof *in->map) : NULL;
        in->missing = n <= MOST_CHUNKS ? (uint8_t *)calloc(1, (size_t)n + 1) : NULL;
        if (!in->map || !in->missing) failed = give_up(e, no_bytes);
    }
    if (!failed)
        failed = trade(e, TAG_MAP, to, out ? out->map : NULL, out ? out->seal.chunks * sizeof *out->map : 0, from, in->map,
                       in->map ? in->head.seal.chunks * sizeof *in->map : 0);
    if (!failed && in->map) in->missing[0] = (uint8_t)find_places(e, in, kept, first_slot);
    if (!failed)
        failed = trade(e, TAG_MISSING, from, in->missing, in->map ? in->head.seal.chunks + 1 : 0, to, missing, out ? out->seal.chunks + 1 : 0);
    if (!failed) failed = trade_chunks(e, to, out, missing, from, in->map ? in : NULL, sent);
    if (!failed && in->map && in->missing[0]) {
        pthread_mutex_lock(&e->room);
        seal_slot(&e->s, in->slot, &in->head.seal, in->map);
        hold_places(e, in->map, in->missing, in->head.seal.chunks, -1);
        pthread_mutex_unlock(&e->room);
        wrong = snapshot_open(came, &e->s, in->slot);
        if (wrong) {
            say(e, "the snapshot of rank %llu, step %llu, came in damaged, or has been taken back: %s", (unsigned long long)in->head.seal.rank,
                (unsigned long long)in->head.step, wrong);
            snapshot_free(came);
        }
    }
    if (e->mover->broken) return 1;
    free(mine), free(missing), free(in->map), free(in->missing), free(in);
    return 0;
}

/* ---- DISK ----
 * Agents of all ranks write the same steps, so that a step is complete on disk even if all memory is lost. A target is a step
 * that counts. It is announced with the verdict on that step, once no agent is writing, so every working agent has the previous
 * target on disk. If all have it, it is common: agents keep it until a later target is common. They read both from the segment's
 * header. */

typedef struct ask {
    uint64_t step, status, every; /* agent_every */
    uint64_t pending, whole;      /* the agent has not finished the target; the target is on disk */
} ask;

typedef struct verdict {
    uint64_t status, aim, common; /* this step is a target; the target before it is common */
} verdict;

static int is_pending(const segment *s)
{
    const segment_header *h = header_of(s);
    return h->agent_every && __atomic_load_n(&h->target_number, __ATOMIC_SEQ_CST) != __atomic_load_n(&h->target_done, __ATOMIC_SEQ_CST) &&
           is_locked(s, LOCK_AGENT);
}

static void fill_ask(const engine *e, ask *x, uint64_t step, engine_status status)
{
    const segment_header *h = header_of(&e->s);
    memset(x, 0, sizeof *x);
    x->step = step, x->status = (uint64_t)status;
    if (!is_whole(&e->s)) return;
    x->every = is_locked(&e->s, LOCK_AGENT) ? h->agent_every : 0;
    x->pending = (uint64_t)is_pending(&e->s);
    x->whole = h->target_number && h->target_done == h->target_number && h->target_whole;
}

static void decide(const ask *all, unsigned ranks, verdict *x)
{
    uint64_t every = 0, pending = 0, whole = 1;
    unsigned i;
    memset(x, 0, sizeof *x);
    x->status = all[0].status;
    for (i = 0; i < ranks; i++) {
        if (all[i].status == ENGINE_E_BUSY) x->status = ENGINE_E_BUSY; /* a rank that is late takes the next one */
        else if (!x->status) x->status = all[i].step == all[0].step ? all[i].status : (uint64_t)ENGINE_E_MISMATCH;
        if (all[i].every > every) every = all[i].every;
        pending |= all[i].pending, whole &= all[i].whole;
    }
    x->aim = every && !pending && !x->status && all[0].step % every == 0;
    x->common = !pending && whole;
}

/* `made`: the snapshot that counts now. `here`: it was not taken back. */
static void aim_at(const segment *s, const verdict *x, const snapshot *made, int here)
{
    segment_header *h = header_of(s);
    if (x->common) h->common = h->target;
    if (!x->aim) return;
    h->target.step = made->seal.step, h->target.ranks = made->seal.ranks, h->target.attempt = made->seal.line.links[0].attempt;
    if (here && h->agent_every && is_locked(s, LOCK_AGENT))
        __atomic_store_n(&slot_of(s, made->slot)->pin, 1, __ATOMIC_SEQ_CST); /* until the agent has it, which then clears the
                                                                                pin */
    __atomic_store_n(&h->target_number, h->target_number + 1, __ATOMIC_SEQ_CST);
}

/* Combines the statuses of all ranks for a step: ENGINE_OK if all report it, otherwise another one of them; -1 if the transport
 * has failed. */
static int all_agree(engine *e, uint64_t step, engine_status status, verdict *decided)
{
    const engine_transport *t = e->o.transport;
    ask *said = (ask *)calloc(t->rank ? 1 : t->ranks, sizeof *said);
    verdict *x = (verdict *)calloc(1, sizeof *x);
    unsigned i;
    if (!said || !x) return give_up(e, no_bytes), -1;
    fill_ask(e, said, step, status);
    if (t->rank) {
        if (trade(e, TAG_ASK, 0, said, sizeof *said, 0, NULL, 0) || trade(e, TAG_VERDICT, 0, NULL, 0, 0, x, sizeof *x)) return -1;
    } else {
        for (i = 1; i < t->ranks; i++)
            if (trade(e, TAG_ASK, 0, NULL, 0, i, said + i, sizeof *said)) return -1;
        decide(said, t->ranks, x);
        for (i = 1; i < t->ranks; i++)
            if (trade(e, TAG_VERDICT, i, x, sizeof *x, 0, NULL, 0)) return -1;
    }
    *decided = *x;
    free(said), free(x);
    return (int)decided->status;
}

/* ---- parity ----
 * Chunk c of member j of a group of k belongs to row c / (k - 1), and to holder c % (k - 1), counted without j. For each row, a
 * holder keeps the XOR of the chunks that the others have for it. */

static unsigned member_of(const engine *e) { return e->o.transport->rank / e->o.distance % e->o.group; }
static unsigned rank_of(const engine *e, unsigned member) { return e->o.transport->rank + (member - member_of(e)) * e->o.distance; }

/* Returns the number of a holder, counted without the member. */
static unsigned place_of(unsigned member, unsigned holder) { return holder < member ? holder : holder - 1; }

static void add_chunk(uint8_t *to, const uint8_t *from, uint64_t size)
{
    uint64_t i, x, y;
    for (i = 0; i < size; i += 8) {
        memcpy(&x, to + i, 8);
        memcpy(&y, from + i, 8);
        x ^= y;
        memcpy(to + i, &x, 8);
    }
}

static uint8_t *chunk_at(const segment *s, const map_entry *map, uint64_t i)
{
    return s->base + arena_at(s->chunks) + ((uint64_t)map[i].chunk << s->chunk_log2);
}

/* Sends the chunks of a snapshot that belong to one holder, and adds those received from another member to the rows. */
static int trade_rows(engine *e, const snapshot *out, unsigned holder, unsigned from, uint64_t from_chunks, const map_entry *rows, uint64_t *sent)
{
    const segment *s = &e->s;
    const uint64_t size = UINT64_C(1) << s->chunk_log2, others = e->o.group - 1;
    const unsigned me = member_of(e);
    uint64_t i = place_of(me, holder), k = place_of(from, me), since = nanoseconds();
    uint8_t *bytes = (uint8_t *)malloc((size_t)size);
    requests to_them, to_us;
    memset(&to_them, 0, sizeof to_them);
    to_them.e = e;
    to_us = to_them;
    if (!bytes) return give_up(e, no_bytes);
    while ((i < out->seal.chunks || k < from_chunks || to_them.count) && !e->mover->broken) {
        unsigned done;
        for (; i < out->seal.chunks && to_them.count < WINDOW; i += others, *sent += size)
            if (post_chunk(&to_them, rank_of(e, holder), out, i)) return 1;
        if (k < from_chunks && !to_us.count && post_receive(&to_us, rank_of(e, from), TAG_CHUNK, bytes, size)) return 1;
        done = reap(&to_them);
        if (to_us.count && reap(&to_us)) add_chunk(chunk_at(s, rows, k / others), bytes, size), k += others, done++;
        if (done) since = nanoseconds();
        else if (to_them.count + to_us.count) idle(e, since);
    }
    if (e->mover->broken) return 1;
    free(bytes);
    return 0;
}

/* Reserves chunks for the rows, then for their description, in *seal and *map. Returns 0 if there are not enough. */
static int place_parity(engine *e, const message_head *heads, map_entry *const *maps, slot_seal *seal, map_entry **map, uint64_t *rows,
                        unsigned *slot)
{
    const segment *s = &e->s;
    const unsigned group = e->o.group, log2 = s->chunk_log2;
    uint32_t *chunks = (uint32_t *)malloc((size_t)s->chunks * sizeof *chunks), frees = 0, i;
    uint64_t most = 0, size = sizeof *rows + group * sizeof *seal, more;
    engine_error error;
    unsigned m;
    int fits = chunks != NULL;
    pthread_mutex_lock(&e->room);
    for (m = 0; m < group; m++) {
        fits = fits && heads[m].seal.check == seal_check(&heads[m].seal) &&
               engine_same_id(&heads[m].seal.line.links[0].attempt, &heads[member_of(e)].seal.line.links[0].attempt) &&
               bitsnap_hash(maps[m], (size_t)heads[m].seal.chunks * sizeof **maps) == heads[m].seal.map_check;
        if (heads[m].seal.chunks > most) most = heads[m].seal.chunks;
        size += heads[m].seal.chunks * sizeof **maps;
    }
    memset(seal, 0, sizeof *seal);
    *rows = (most + group - 2) / (group - 1);
    size += *rows * sizeof(uint64_t);
    more = (size >> log2) + 1;
    seal->parity = group, seal->rank = e->o.transport->rank, seal->ranks = e->o.transport->ranks;
    seal->step = heads[member_of(e)].step, seal->sequence = heads[member_of(e)].seal.sequence, seal->line = heads[member_of(e)].seal.line;
    seal->chunks = *rows + more, seal->contents_at = *rows << log2, seal->contents_size = size;
    fits = fits && !free_slot(s, OWN_SLOTS, &e->mover->kept, NULL, slot) && !find_free(e, chunks, &frees, &error) && seal->chunks <= frees;
    *map = fits ? (map_entry *)calloc((size_t)seal->chunks, sizeof **map) : NULL;
    for (i = 0; *map && i < seal->chunks; i++) {
        (*map)[i].chunk = chunks[--frees];
        (*map)[i].next = i >= *rows && i + 1 < seal->chunks ? i + 1 : NONE;
        if (i < *rows) memset(chunk_at(s, *map, i), 0, (size_t)1 << log2);
    }
    if (*map) hold_places(e, *map, NULL, seal->chunks, 1);
    pthread_mutex_unlock(&e->room);
    free(chunks);
    return *map != NULL;
}

/* Seals the rows with their description. */
static const char *seal_parity(engine *e, const message_head *heads, map_entry *const *maps, slot_seal *seal, map_entry *map, uint64_t rows,
                               unsigned slot, snapshot *made)
{
    const segment *s = &e->s;
    const uint64_t chunk = UINT64_C(1) << s->chunk_log2;
    uint8_t *bytes = (uint8_t *)malloc((size_t)seal->contents_size), *p = bytes;
    uint64_t i, at;
    unsigned m;
    if (!bytes) return out_of_memory;
    memcpy(p, &rows, sizeof rows), p += sizeof rows;
    for (m = 0; m < e->o.group; m++) memcpy(p, &heads[m].seal, sizeof *seal), p += sizeof *seal;
    for (m = 0; m < e->o.group; m++) memcpy(p, maps[m], (size_t)heads[m].seal.chunks * sizeof **maps), p += heads[m].seal.chunks * sizeof **maps;
    for (i = 0; i < rows; i++) {
        const uint64_t check = bitsnap_hash(chunk_at(s, map, i), (size_t)chunk);
        memcpy(p, &check, sizeof check), p += sizeof check;
    }
    for (at = 0, i = rows; at < seal->contents_size; at += chunk, i++)
        memcpy(chunk_at(s, map, i), bytes + at, (size_t)(seal->contents_size - at < chunk ? seal->contents_size - at : chunk));
    seal->contents_check = bitsnap_hash(bytes, (size_t)seal->contents_size);
    free(bytes);
    pthread_mutex_lock(&e->room);
    seal_slot(s, slot, seal, map);
    pthread_mutex_unlock(&e->room);
    return snapshot_open(made, s, slot);
}

/* One message to each other member, and one from each: from[m] of sizes[m] bytes. `all`: of whether all say yes. */
static int trade_with_group(engine *e, int tag, const void *out, uint64_t out_size, void *const *from, const uint64_t *sizes)
{
    const unsigned group = e->o.group, me = member_of(e);
    unsigned d;
    for (d = 1; d < group; d++) {
        const unsigned to = (me + d) % group, other = (me + group - d) % group;
        if (trade(e, tag, rank_of(e, to), out, out_size, rank_of(e, other), from[other], sizes[other])) return 1;
    }
    return 0;
}

/* The parity of a snapshot with those of the group. Returns 1 if nothing more will come; `made`: it is there. Memory that a
 * broken member may still have is not freed. */
static int trade_parity(engine *e, const snapshot *out, uint64_t step, snapshot *made, uint64_t *sent)
{
    const unsigned group = e->o.group, me = member_of(e);
    message_head *heads = (message_head *)calloc(group, sizeof *heads);
    uint64_t sizes[64], *said = (uint64_t *)calloc(group, sizeof *said), rows = 0;
    void *to[64];
    map_entry *maps[64] = { NULL }, *map = NULL;
    slot_seal seal;
    unsigned m, slot = 0, d;
    int ok = 1;
    const char *wrong;
    memset(made, 0, sizeof *made);
    if (!heads || !said) return give_up(e, no_bytes);
    heads[me].step = step, heads[me].ok = out != NULL;
    if (out) heads[me].seal = out->seal;
    for (m = 0; m < group; m++) to[m] = &heads[m], sizes[m] = sizeof *heads;
    if (trade_with_group(e, TAG_HEAD, &heads[me], sizeof *heads, to, sizes)) return 1;
    for (m = 0; m < group; m++) ok = ok && heads[m].ok && heads[m].step == step && heads[m].seal.chunks <= MOST_CHUNKS;
    for (m = 0; m < group && ok; m++) {
        sizes[m] = heads[m].seal.chunks * sizeof **maps;
        to[m] = maps[m] = (map_entry *)calloc((size_t)heads[m].seal.chunks + 1, sizeof **maps);
        if (!maps[m]) return give_up(e, no_bytes);
    }
    if (ok) memcpy(maps[me], out->map, (size_t)sizes[me]);
    if (ok && trade_with_group(e, TAG_MAP, maps[me], sizes[me], to, sizes)) return 1;
    if (ok) {
        said[me] = (uint64_t)place_parity(e, heads, maps, &seal, &map, &rows, &slot);
        if (!said[me]) say(e, "the parity of step %llu does not fit the budget", (unsigned long long)step);
        for (m = 0; m < group; m++) to[m] = &said[m], sizes[m] = sizeof *said;
        if (trade_with_group(e, TAG_MISSING, &said[me], sizeof *said, to, sizes)) return 1;
        for (m = 0; m < group; m++) ok = ok && said[m] == 1;
    }
    for (d = 1; d < group && ok; d++) {
        const unsigned from = (me + group - d) % group;
        if (trade_rows(e, out, (me + d) % group, from, heads[from].seal.chunks, map, sent)) return 1;
    }
    if (ok && (wrong = seal_parity(e, heads, maps, &seal, map, rows, slot, made)) != NULL) {
        say(e, "the parity of step %llu: %s", (unsigned long long)step, wrong);
        snapshot_free(made);
    }
    pthread_mutex_lock(&e->room);
    if (map) hold_places(e, map, NULL, seal.chunks, -1);
    pthread_mutex_unlock(&e->room);
    for (m = 0; m < group; m++) free(maps[m]);
    free(heads), free(said), free(map);
    return 0;
}

/* Returns what a member sends to rebuild chunk c of another member: its parity, or its own chunk of that row; null: nothing. */
static const uint8_t *share_of(const engine *e, const snapshot *own, const snapshot *parity, unsigned lost, uint64_t c)
{
    const unsigned me = member_of(e), place = (unsigned)(c % (e->o.group - 1)), holder = place < lost ? place : place + 1;
    const uint64_t row = c / (e->o.group - 1), i = row * (e->o.group - 1) + place_of(me, holder);
    if (holder == me) return chunk_at(&e->s, parity->map, row);
    return i < own->seal.chunks ? chunk_at(&e->s, own->map, i) : NULL;
}

/* Sends all shares that rebuild another member's snapshot. */
static int send_shares(engine *e, const snapshot *own, const snapshot *parity, unsigned lost, uint64_t *sent)
{
    const uint64_t size = UINT64_C(1) << e->s.chunk_log2, chunks = parity->d.seals[lost].chunks;
    uint64_t c = 0, since = nanoseconds(), *wanted = (uint64_t *)calloc(1, sizeof *wanted);
    message_head *head = (message_head *)calloc(1, sizeof *head);
    requests r;
    memset(&r, 0, sizeof r);
    r.e = e;
    if (!wanted || !head) return give_up(e, no_bytes);
    head->ok = 1, head->step = parity->seal.step, head->seal = parity->d.seals[lost];
    if (member_of(e) == (lost + 1) % e->o.group &&
        (trade(e, TAG_HEAD, rank_of(e, lost), head, sizeof *head, 0, NULL, 0) ||
         trade(e, TAG_MAP, rank_of(e, lost), parity->d.maps[lost], chunks * sizeof(map_entry), 0, NULL, 0)))
        return 1;
    head->seal = own->seal;
    if (trade(e, TAG_HEAD, rank_of(e, lost), head, sizeof *head, 0, NULL, 0) ||
        trade(e, TAG_MISSING, 0, NULL, 0, rank_of(e, lost), wanted, sizeof *wanted))
        return 1;
    while (*wanted && (c < chunks || r.count) && !e->mover->broken) {
        for (; c < chunks && r.count < WINDOW; c++) {
            const uint8_t *share = share_of(e, own, parity, lost, c);
            if (!share) continue;
            if (post_send(&r, rank_of(e, lost), TAG_CHUNK, share, size)) return 1;
            *sent += size;
        }
        if (reap(&r)) since = nanoseconds();
        else if (r.count) idle(e, since);
    }
    if (e->mover->broken) return 1;
    free(head), free(wanted);
    return 0;
}

/* Adds up the shares of all others. */
static int take_shares(engine *e, snapshot *came)
{
    const segment *s = &e->s;
    const unsigned group = e->o.group, me = member_of(e);
    const uint64_t size = UINT64_C(1) << s->chunk_log2;
    incoming *in = (incoming *)calloc(1, sizeof *in);
    message_head *heads = (message_head *)calloc(group, sizeof *heads);
    uint8_t *bytes = (uint8_t *)malloc((size_t)size * group);
    uint64_t c, *wanted = (uint64_t *)calloc(1, sizeof *wanted);
    snapshot none;
    unsigned m;
    memset(&none, 0, sizeof none);
    if (!in || !heads || !bytes || !wanted || trade(e, TAG_HEAD, 0, NULL, 0, rank_of(e, (me + 1) % group), &in->head, sizeof in->head))
        return give_up(e, no_bytes);
    in->map = in->head.seal.chunks <= MOST_CHUNKS ? (map_entry *)calloc((size_t)in->head.seal.chunks + 1, sizeof *in->map) : NULL;
    in->missing = in->map ? (uint8_t *)calloc(1, (size_t)in->head.seal.chunks + 1) : NULL;
    if (!in->missing || trade(e, TAG_MAP, 0, NULL, 0, rank_of(e, (me + 1) % group), in->map, in->head.seal.chunks * sizeof *in->map))
        return give_up(e, no_bytes);
    *wanted = (uint64_t)find_places(e, in, &none, 0);
    for (m = 0; m < group; m++)
        if (m != me && (trade(e, TAG_HEAD, 0, NULL, 0, rank_of(e, m), &heads[m], sizeof *heads) ||
                        trade(e, TAG_MISSING, rank_of(e, m), wanted, sizeof *wanted, 0, NULL, 0)))
            return 1;
    for (c = 0; *wanted && c < in->head.seal.chunks; c++) {
        const unsigned place = (unsigned)(c % (group - 1)), holder = place < me ? place : place + 1;
        const uint64_t row = c / (group - 1), since = nanoseconds();
        uint8_t *to = chunk_at(s, in->map, c);
        unsigned count = 0, i;
        requests r;
        memset(&r, 0, sizeof r);
        r.e = e;
        for (m = 0; m < group; m++) {
            if (m == me || (m != holder && row * (group - 1) + place_of(m, holder) >= heads[m].seal.chunks)) continue;
            if (post_receive(&r, rank_of(e, m), TAG_CHUNK, bytes + size * count++, size)) return 1;
        }
        while (r.count && !e->mover->broken)
            if (!reap(&r)) idle(e, since);
        if (e->mover->broken) return 1;
        memset(to, 0, (size_t)size);
        for (i = 0; i < count; i++) add_chunk(to, bytes + size * i, size);
    }
    if (*wanted) {
        const char *wrong;
        pthread_mutex_lock(&e->room);
        seal_slot(s, in->slot, &in->head.seal, in->map);
        hold_places(e, in->map, in->missing, in->head.seal.chunks, -1);
        pthread_mutex_unlock(&e->room);
        wrong = snapshot_open(came, s, in->slot);
        if (!wrong) wrong = verify(came);
        if (wrong) say(e, "step %llu did not come back by parity: %s", (unsigned long long)in->head.step, wrong), snapshot_free(came);
    }
    free(in->map), free(in->missing), free(in), free(heads), free(bytes), free(wanted);
    return 0;
}

/* Carries out the verdict on a snapshot: it and the incoming one count, or do not. */
static void settle_move(engine *e, snapshot *made, snapshot *came, int counted, const verdict *decided)
{
    mover *v = e->mover;
    pthread_mutex_lock(&e->room);
    if (counted) {
        set_counted(&e->s, came);
        if (!v->recalled) set_counted(&e->s, made);
        aim_at(&e->s, decided, made, !v->recalled);
        snapshot_free(&v->kept);
        v->kept = *came;
        memset(came, 0, sizeof *came);
    } else {
        v->flying = 0;
    }
    pthread_mutex_unlock(&e->room);
    snapshot_free(came);
}

/* Exchanges one snapshot, or none, for the reason in `none`. Returns 1 if it counts. */
static int move(engine *e, snapshot *made, engine_status none)
{
    mover *v = e->mover;
    const engine_transport *t = e->o.transport;
    snapshot came;
    uint64_t sent = 0;
    verdict decided;
    engine_status agreed = ENGINE_E_SYSTEM;
    int has;
    if (v->broken) return 0;
    if (!is_whole(&e->s)) {
        say(e, "%.150s: %s", e->s.path, has_been_cut);
        return (void)give_up(e, has_been_cut), 0;
    }
    pthread_mutex_lock(&e->room);
    v->flying = made != NULL, v->promised = v->recalled = 0;
    pthread_mutex_unlock(&e->room);
    v->moving = 1;
    if (!(e->o.group ? trade_parity(e, made, v->step, &came, &sent)
                     : trade_snapshots(e, rank_after(t, e->o.distance), made, v->step, rank_after(t, t->ranks - e->o.distance % t->ranks), &v->kept,
                                       OWN_SLOTS, &came, &sent))) {
        if (made && came.map && !engine_same_id(&came.seal.line.links[0].attempt, &made->seal.line.links[0].attempt)) {
            say(e, "the snapshot of rank %llu, step %llu, is of another attempt", (unsigned long long)came.seal.rank,
                (unsigned long long)came.seal.step);
            snapshot_free(&came);
        }
        pthread_mutex_lock(&e->room);
        v->promised = has = made && came.map && !v->recalled;
        pthread_mutex_unlock(&e->room);
        agreed = (engine_status)all_agree(e, v->step, has ? ENGINE_OK : none, &decided);
        if (!agreed) v->sent = sent;
        settle_move(e, made, &came, !agreed, &decided);
    } else if (made) {
        pthread_mutex_lock(&e->room);
        v->flying = 0;
        memset(made, 0, sizeof *made); /* it may still be sent */
        pthread_mutex_unlock(&e->room);
    }
    v->moving = 0;
    if (is_quitting(v)) return !agreed;
    pthread_mutex_lock(&v->mutex);
    v->lost = !agreed ? 0 : v->lost + (agreed != ENGINE_E_BUSY); /* a rank that is late takes the next one */
    if (!agreed) *v->wrong = 0;
    else if (v->lost > 1 && !*v->wrong) snprintf(v->wrong, sizeof v->wrong, "%s", refused);
    pthread_mutex_unlock(&v->mutex);
    if (v->broken) say(e, "%s", v->wrong);
    else if (agreed && none != ENGINE_E_BUSY)
        say(e, "the snapshot of step %llu does not count: a rank, or a partner, has it not", (unsigned long long)v->step);
    return !agreed;
}

static const snapshot *mover_flying(engine *e) { return e->mover && e->mover->flying ? &e->mover->made : NULL; }

/* Safe without parity: if the snapshot counts after all, its partner has received it. With parity, a group cannot rebuild two
 * lost snapshots, so nothing is taken back. */
static int mover_recall(engine *e)
{
    mover *v = e->mover;
    if (!v || !v->flying || e->o.group) return 0;
    v->flying = 0;
    v->recalled = 1;
    return 1;
}

static const char *mover_wrong(engine *e, int *away)
{
    mover *v = e->mover;
    pthread_mutex_lock(&v->mutex);
    *away = v->stalled || v->lost > 1;
    memcpy(e->others_wrong, v->wrong, sizeof e->others_wrong);
    pthread_mutex_unlock(&v->mutex);
    return *e->others_wrong ? e->others_wrong : NULL;
}

/* Encodes the copy, if there is one, and sends the snapshot. Returns whether it counts. */
static int finish(engine *e)
{
    mover *v = e->mover;
    engine_error error;
    if (v->g.count) {
        const int failed = make_snapshot(e, v->step, &v->line, v->g.tensors, v->g.count, &v->made, &v->cost, &error) != ENGINE_OK;
        if (failed && !*v->wrong)
            say(e, "the snapshot of step %llu: %s", (unsigned long long)v->step, error.message); /* later ones engine_snapshot tells of */
        pthread_mutex_lock(&v->mutex);
        if (failed) snprintf(v->wrong, sizeof v->wrong, "step %llu was left out: %.190s", (unsigned long long)v->step, error.message);
        else if (!e->o.transport) *v->wrong = 0;
        pthread_mutex_unlock(&v->mutex);
    }
    v->g.count = 0;
    return e->o.transport ? move(e, v->made.map ? &v->made : NULL, ENGINE_E_NONE) : v->made.map != NULL;
}

static void *mover_thread(void *argument)
{
    engine *e = (engine *)argument;
    mover *v = e->mover;
    pthread_mutex_lock(&v->mutex);
    while (!v->quit) {
        if (v->busy) {
            int counted;
            pthread_mutex_unlock(&v->mutex);
            counted = finish(e);
            pthread_mutex_lock(&v->mutex);
            v->counted = counted;
            v->busy = 0;
            pthread_cond_broadcast(&v->changed);
        } else if (v->owed) {
            pthread_mutex_unlock(&v->mutex);
            (void)move(e, NULL, ENGINE_E_BUSY);
            pthread_mutex_lock(&v->mutex);
            v->owed--;
            pthread_cond_broadcast(&v->changed);
        } else {
            pthread_cond_wait(&v->changed, &v->mutex);
        }
    }
    pthread_mutex_unlock(&v->mutex);
    return NULL;
}

static engine_status mover_start(engine *e, engine_error *error)
{
    mover *v = (mover *)calloc(1, sizeof *v);
    pthread_condattr_t clock;
    if (!v) return no_memory(error);
    pthread_mutex_init(&v->mutex, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&v->changed, &clock);
    pthread_condattr_destroy(&clock);
    e->mover = v;
    v->nothing = (uint8_t *)calloc(1, (size_t)1 << e->s.chunk_log2);
    if (v->nothing && !pthread_create(&v->thread, NULL, mover_thread, e)) return ENGINE_OK;
    free(v->nothing), free(v);
    e->mover = NULL;
    return engine_fail(error, ENGINE_E_SYSTEM, "cannot start a thread");
}

static staging *mover_staging(engine *e) { return &e->mover->g; }

static void mover_owe(engine *e)
{
    pthread_mutex_lock(&e->mover->mutex);
    if (e->o.transport) e->mover->owed++;
    pthread_cond_broadcast(&e->mover->changed);
    pthread_mutex_unlock(&e->mover->mutex);
}

/* Takes ownership of *made, which may be empty. */
static void mover_give(engine *e, snapshot *made, uint64_t step)
{
    mover *v = e->mover;
    pthread_mutex_lock(&v->mutex);
    v->made = *made;
    v->step = step;
    v->line = e->line;
    v->counted = 0;
    v->busy = 1;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
}

/* Waits until the mover is idle, then sets `last` to the snapshot that counts. Returns 1 if it is still busy. `away_ends`: does
 * not wait for ranks that stall. */
static int mover_end(engine *e, double patience, int away_ends)
{
    mover *v = e->mover;
    struct timespec until;
    int busy;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)patience;
    until.tv_nsec += (long)(1e9 * (patience - (double)(time_t)patience));
    if (until.tv_nsec >= 1000000000) until.tv_sec++, until.tv_nsec -= 1000000000;
    pthread_mutex_lock(&v->mutex);
    while ((v->busy || v->owed) && patience > 0 && !(away_ends && v->stalled) && !pthread_cond_timedwait(&v->changed, &v->mutex, &until)) continue;
    busy = v->busy || v->owed;
    pthread_mutex_unlock(&v->mutex);
    if (busy) return 1;
    if (e->o.copy && v->made.map) {
        v->cost.seconds = e->cost.seconds;
        e->cost = v->cost;
    }
    v->flying = 0;
    if (v->counted && v->made.map && !v->recalled) {
        snapshot_free(&e->last);
        e->last = v->made;
        e->cost.sent_size = v->sent;
        memset(&v->made, 0, sizeof v->made);
    }
    snapshot_free(&v->made);
    return 0;
}

static void mover_stop(engine *e)
{
    mover *v = e->mover;
    if (!v) return;
    pthread_mutex_lock(&v->mutex);
    v->quit = 1;
    pthread_cond_broadcast(&v->changed);
    pthread_mutex_unlock(&v->mutex);
    pthread_join(v->thread, NULL);
    snapshot_free(&v->made);
    snapshot_free(&v->kept);
    staging_free(&v->g);
    if (!v->broken) free(v->nothing); /* else it may still be sent */
    pthread_mutex_destroy(&v->mutex);
    pthread_cond_destroy(&v->changed);
    free(v);
    e->mover = NULL;
}

engine_status engine_wait(engine *e, double patience, engine_error *error)
{
    if (e->s.fd < 0) return engine_fail(error, ENGINE_E_ARGUMENT, "%s", is_forked);
    if (!e->mover) return engine_good(error);
    if (mover_end(e, patience, 0)) return engine_fail(error, ENGINE_E_BUSY, "the last snapshot is not finished");
    if (e->is_lone) return engine_fail(error, ENGINE_E_NONE, "the last snapshot was taken while another rank did not answer: it does not count");
    return e->mover->counted || !e->mover->step
               ? engine_good(error)
               : engine_fail(error, ENGINE_E_NONE, "the snapshot of step %llu %s", (unsigned long long)e->mover->step,
                             e->o.transport ? "does not count" : "could not be taken");
}

/* ================================================================================= RECOVERY */

typedef struct restoring {
    engine *e;
    const snapshot *v;
    const engine_tensor **to; /* for each tensor of the snapshot */
    uint64_t next;
    int casts;                /* 1: the pass over pieces with a master, after all others */
    pthread_mutex_t mutex;
    const char *wrong;
    uint64_t wrong_tensor;
} restoring;

static const char *restore_piece(const restoring *r, uint64_t i, worker *w)
{
    const contents_piece *p = &r->v->d.pieces[i];
    const contents_tensor *t = &r->v->d.tensors[p->tensor];
    const engine_tensor *to = r->to[p->tensor];
    const uint8_t *master = t->master ? bring(r->to[t->master - 1], p->first, p->count, &w->master, &w->master_size) : NULL;
    const char *wrong;
    if (t->master && !master) return not_fetched;
    if (!to->store) return decode_piece(r->v, i, w, elements_at(to, p->first), master);
    if (reserve(&w->live, &w->live_size, p->count * bitsnap_width(to->dtype))) return out_of_memory;
    wrong = decode_piece(r->v, i, w, w->live, master);
    return wrong ? wrong : to->store(to->data, p->first, p->count, w->live) ? not_stored : NULL;
}

static void restore_pieces(void *context, unsigned number)
{
    restoring *r = (restoring *)context;
    const contents *d = &r->v->d;
    for (;;) {
        const uint64_t i = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        const contents_piece *p;
        const contents_tensor *t;
        const char *wrong;
        if (i >= d->header->pieces || __atomic_load_n(&r->wrong, __ATOMIC_RELAXED)) return;
        p = &d->pieces[i];
        t = &d->tensors[p->tensor];
        if ((t->master != 0) != r->casts) continue;
        wrong = restore_piece(r, i, &r->e->w[number]);
        if (!wrong) continue;
        pthread_mutex_lock(&r->mutex);
        __atomic_store_n(&r->wrong, wrong, __ATOMIC_RELAXED);
        r->wrong_tensor = p->tensor;
        pthread_mutex_unlock(&r->mutex);
    }
}

static engine_status match(const snapshot *v, const engine_tensor **to, const engine_tensor *tensors, size_t count, engine_error *error)
{
    char text[DISK_TYPE];
    uint64_t i, k;
    if (v->d.header->tensors != count)
        return engine_fail(error, ENGINE_E_MISMATCH, "the snapshot of step %llu has %llu tensors, not %llu", (unsigned long long)v->seal.step,
                    (unsigned long long)v->d.header->tensors, (unsigned long long)count);
    for (i = 0; i < count; i++) {
        const contents_tensor *t = &v->d.tensors[i];
        const char *name = v->d.names + t->name_at, *type = name + t->name_size;
        for (k = 0; k < count; k++) { /* usually they are in the same order */
            const engine_tensor *x = &tensors[(i + k) % count];
            size_t size;
            if (strlen(x->name) != t->name_size || memcmp(x->name, name, (size_t)t->name_size)) continue;
            size = disk_type(text, x);
            if ((uint64_t)x->dtype != t->dtype || x->count != t->count || size != t->type_size || memcmp(text, type, (size_t)t->type_size))
                return engine_fail(error, ENGINE_E_MISMATCH, "%.100s: is %.*s in the snapshot, not %.40s", x->name,
                                   (int)(t->type_size < 60 ? t->type_size : 60), type, text);
            to[i] = x;
            break;
        }
        if (!to[i])
            return engine_fail(error, ENGINE_E_MISMATCH, "%.*s: is in the snapshot, but not wanted", (int)(t->name_size < 100 ? t->name_size : 100),
                               name);
    }
    return ENGINE_OK;
}

static engine_status restore(engine *e, const snapshot *v, const engine_tensor *tensors, size_t count, engine_error *error)
{
    restoring r;
    memset(&r, 0, sizeof r);
    r.e = e, r.v = v;
    r.to = (const engine_tensor **)calloc(count + 1, sizeof *r.to);
    if (!r.to) return no_memory(error);
    if (!match(v, r.to, tensors, count, error)) {
        pthread_mutex_init(&r.mutex, NULL);
        for (r.casts = 0; r.casts < 2 && !r.wrong; r.casts++) {
            r.next = 0;
            pool_run(&e->workers, restore_pieces, &r);
        }
        pthread_mutex_destroy(&r.mutex);
        if (r.wrong)
            (void)engine_fail(error, status_of(r.wrong), "step %llu, %.100s: %s", (unsigned long long)v->seal.step, r.to[r.wrong_tensor]->name,
                              r.wrong);
        else (void)engine_good(error);
    }
    free((void *)r.to);
    return error->status;
}

/* Returns the name without its rank: "run7" for "run7.3". */
static void run_of(const engine *e, char run[256])
{
    const char *dot = strrchr(e->o.name, '.');
    snprintf(run, 256, "%.*s", (int)(dot ? dot - e->o.name : 0), e->o.name);
}

/* ---- which step ----
 * Each rank offers its steps, with their attempts and lineages. Rank 0 finds the attempt that descends from all others with a
 * snapshot that counted, and the newest living step of its lineage that all ranks can have. A single rank does the same with its
 * own offer. */

enum { NOT_THERE = 3, OFFERS = ENGINE_SLOTS + DISK_ENTRIES, OFFERED_LINES = ENGINE_SLOTS + 1 };
enum { FROM_OWN = 1, FROM_KEPT = 2, FROM_FILE = 4, OF_OTHERS = 8 /* of another number of ranks */, IS_DAMAGED = 16 };

typedef struct offered {
    engine_id attempt;
    uint64_t step, from; /* FROM_... */
} offered;

typedef struct offer {
    uint64_t unread, damaged, scattered, anew; /* something cannot be read now; files or seals whose run is not known; see
                                                  disk_list_files */
    char why[160];                             /* it cannot be read */
    uint64_t other_ranks;                      /* a snapshot has this number of ranks, which is not the present one */
    uint64_t count, lines_count, counted;      /* bit i: a snapshot of lines[i] counted */
    offered items[OFFERS];
    engine_lineage lines[OFFERED_LINES];
} offer;

static unsigned ranks_of(const engine *e) { return e->o.transport ? e->o.transport->ranks : 1; }

/* Returns whether a snapshot belongs in this slot: this rank's own, or the copy or parity of others that the options ask for. */
static int is_ours(const engine *e, const slot_seal *seal, unsigned slot)
{
    const engine_transport *t = e->o.transport;
    const int own = slot < OWN_SLOTS;
    const unsigned rank = own || e->o.group ? (t ? t->rank : 0) : t ? rank_after(t, t->ranks - e->o.distance % t->ranks) : 0;
    return seal->ranks == ranks_of(e) && seal->rank == rank && seal->parity == (own ? 0 : e->o.group) && (t || own);
}

static void offer_line(offer *x, const engine_lineage *line, int counted)
{
    uint64_t i;
    for (i = 0; i < x->lines_count && engine_lineage_order(&x->lines[i], line) != EQUAL; i++) continue;
    if (i == OFFERED_LINES) return;
    x->lines[i] = *line;
    if (i == x->lines_count) x->lines_count++;
    if (counted) x->counted |= UINT64_C(1) << i;
}

static void offer_step(offer *x, const engine_id *attempt, uint64_t step, uint64_t from)
{
    offered *o = &x->items[x->count++];
    o->attempt = *attempt, o->step = step, o->from = from;
}

/* `check`: verifies every byte in memory, so that only valid snapshots are offered. */
static void make_offer(const engine *e, offer *x, int check)
{
    disk_manifest m;
    engine_error error;
    unsigned i;
    memset(x, 0, sizeof *x);
    x->anew = (uint64_t)(e->o.anew != 0);
    for (i = 0; i < ENGINE_SLOTS; i++) {
        snapshot v;
        const char *wrong = snapshot_open(&v, &e->s, i);
        const uint64_t from = i < OWN_SLOTS ? FROM_OWN : FROM_KEPT;
        if (!wrong && check) wrong = verify(&v);
        if (!wrong || *wrong) offer_line(x, &v.seal.line, counts(&e->s, i, &v.seal));
        if (wrong && *wrong) say(e, "slot %u, step %llu: %s", i, (unsigned long long)v.seal.step, wrong);
        if (wrong && status_of(wrong) == ENGINE_E_SYSTEM)
            x->unread = 1, snprintf(x->why, sizeof x->why, "step %llu: %s", (unsigned long long)v.seal.step, wrong);
        if (wrong && *wrong) offer_step(x, &v.seal.line.links[0].attempt, v.seal.step, from | IS_DAMAGED);
        else if (!wrong && v.seal.ranks != ranks_of(e)) {
            x->other_ranks = v.seal.ranks;
            offer_step(x, &v.seal.line.links[0].attempt, v.seal.step, from | OF_OTHERS);
        } else if (!wrong && is_ours(e, &v.seal, i)) offer_step(x, &v.seal.line.links[0].attempt, v.seal.step, from);
        snapshot_free(&v);
    }
    m.count = 0, m.line.count = 0;
    if (e->o.disk && disk_read_manifest(&m, e->o.disk, e->o.name, &error) && error.status != ENGINE_E_NONE) {
        say(e, "%s", error.message);
        if (error.status == ENGINE_E_SYSTEM) x->unread = 1, snprintf(x->why, sizeof x->why, "%.159s", error.message);
        else if (error.status == ENGINE_E_SCATTERED) x->scattered = 1;
        else x->damaged = 1;
        m.count = 0, m.line.count = 0;
    }
    if (m.line.count) offer_line(x, &m.line, 1);
    for (i = 0; i < m.count; i++)
        offer_step(x, &m.entries[i].attempt, m.entries[i].step, FROM_FILE | (m.entries[i].ranks == ranks_of(e) ? 0 : (uint64_t)OF_OTHERS));
}

static int offers(const offer *x, const engine_id *attempt, uint64_t step, uint64_t from)
{
    uint64_t i;
    for (i = 0; i < x->count; i++)
        if (x->items[i].from == from && x->items[i].step == step && engine_same_id(&x->items[i].attempt, attempt)) return 1;
    return 0;
}

/* Returns the source from which a rank can get this step. */
static int source_of(const offer *all, unsigned rank, const engine *e, const engine_id *attempt, uint64_t step)
{
    const unsigned ranks = ranks_of(e), group = e->o.transport ? e->o.group : 0,
                   first = group ? rank - rank / e->o.distance % group * e->o.distance : 0;
    unsigned m, there = 0;
    if (offers(&all[rank], attempt, step, FROM_OWN)) return ENGINE_FROM_MEMORY;
    if (!group && ranks > 1 && offers(&all[(rank + e->o.distance) % ranks], attempt, step, FROM_KEPT)) return ENGINE_FROM_PARTNER;
    for (m = 0; m < group; m++) {
        const offer *x = &all[first + m * e->o.distance];
        there += offers(x, attempt, step, FROM_OWN) && offers(x, attempt, step, FROM_KEPT);
    }
    if (group && there >= group - 1) return ENGINE_FROM_PARTNER; /* all but this one */
    return offers(&all[rank], attempt, step, FROM_FILE) ? ENGINE_FROM_DISK : NOT_THERE;
}

/* The plan that all ranks agree on. */
typedef struct plan {
    uint64_t status;      /* an engine_status; ENGINE_E_NONE: begin a run; and its message */
    char message[sizeof ((engine_error *)0)->message];
    uint64_t others;      /* 1: the files of another number of ranks, chosen.ranks */
    disk_entry chosen, common; /* what is restored; what all ranks have on disk. ranks 0: nothing */
    engine_lineage line;  /* of this attempt */
    uint64_t from[];      /* of each rank: ENGINE_FROM_... */
} plan;

static uint64_t plan_size(const engine *e) { return sizeof(plan) + ranks_of(e) * sizeof(uint64_t); }

static void plan_fail(plan *p, const engine_error *error)
{
    p->status = (uint64_t)error->status, memcpy(p->message, error->message, sizeof p->message);
}

/* Steps of all ranks, each once, and lineages. */
typedef struct view {
    offered *steps; /* all steps; IS_DAMAGED is cleared if another copy is whole */
    engine_lineage *lines;
    uint8_t *counted; /* of each lineage */
    size_t count, lines_count;
    int failed;
} view;

static void view_line(view *x, const engine_lineage *line, int counted)
{
    size_t i;
    for (i = 0; i < x->lines_count &&
                (!engine_same_id(&x->lines[i].run, &line->run) || !engine_same_id(&x->lines[i].links[0].attempt, &line->links[0].attempt));
         i++)
        continue;
    if (i == x->lines_count) {
        engine_lineage *lines = (engine_lineage *)realloc(x->lines, (i + 1) * sizeof *lines);
        uint8_t *flags = (uint8_t *)realloc(x->counted, i + 1);
        if (lines) x->lines = lines;
        if (flags) x->counted = flags;
        if (!lines || !flags) {
            x->failed = 1;
            return;
        }
        lines[i] = *line, flags[i] = 0, x->lines_count++;
    }
    x->counted[i] = (uint8_t)(x->counted[i] | counted);
}

static void view_step(view *x, const offered *o)
{
    size_t i;
    offered *steps;
    for (i = 0; i < x->count; i++)
        if (x->steps[i].step == o->step && engine_same_id(&x->steps[i].attempt, &o->attempt)) {
            x->steps[i].from |= o->from;
            return;
        }
    steps = (offered *)realloc(x->steps, (i + 1) * sizeof *steps);
    if (!steps) {
        x->failed = 1;
        return;
    }
    x->steps = steps;
    steps[x->count++] = *o;
}

static int all_have(const offer *all, const engine *e, const offered *o)
{
    unsigned r;
    for (r = 0; r < ranks_of(e); r++)
        if (source_of(all, r, e, &o->attempt, o->step) == NOT_THERE) return 0;
    return 1;
}

static void view_free(view *x)
{
    free(x->steps), free(x->lines), free(x->counted);
}

/* Adds lineages from files of ranks that no longer exist. */
static engine_status make_view(view *x, const offer *all, const engine *e, engine_error *error)
{
    char run[256], name[300];
    disk_manifest m;
    uint64_t i, k, ranks = 1;
    unsigned r;
    memset(x, 0, sizeof *x);
    for (r = 0; r < ranks_of(e); r++) {
        for (i = 0; i < all[r].lines_count; i++) view_line(x, &all[r].lines[i], (int)(all[r].counted >> i & 1));
        for (i = 0; i < all[r].count; i++) view_step(x, &all[r].items[i]);
    }
    run_of(e, run);
    for (i = 0; e->o.disk && *run && i < ranks; i++) {
        if (i && i < ranks_of(e) && e->o.transport) continue;
        snprintf(name, sizeof name, "%s.%" PRIu64, run, i);
        if (disk_read_manifest(&m, e->o.disk, name, error)) {
            if (error->status != ENGINE_E_NONE) return error->status;
            continue;
        }
        view_line(x, &m.line, 1);
        for (k = 0; k < m.count; k++)
            if (m.entries[k].ranks > ranks) ranks = m.entries[k].ranks;
    }
    for (i = 0; i < x->count; i++) /* if all ranks have a snapshot of an attempt, it counts, though none was marked */
        if (all_have(all, e, &x->steps[i]))
            for (k = 0; k < x->lines_count; k++)
                if (engine_same_id(&x->lines[k].links[0].attempt, &x->steps[i].attempt)) x->counted[k] = 1;
    return x->failed ? no_memory(error) : engine_good(error);
}

static int is_adopted(const engine *e, const engine_lineage *line)
{
    engine_id id;
    if (!e->o.adopt) return 1;
    return !engine_parse_id(&id, e->o.adopt) && (engine_same_id(&line->run, &id) || engine_lineage_place(line, &id) >= 0);
}

/* Finds the lineage that descends from all others, or from the adopted ones. Lineages without a snapshot that counted are used
 * only if there are no others. */
static engine_status find_head(const view *x, const engine *e, const engine_lineage **head, engine_error *error)
{
    char a[ID_TEXT], b[ID_TEXT];
    size_t i, k;
    int counted = 0;
    const engine_lineage *other = NULL;
    *head = NULL;
    for (i = 0; i < x->lines_count; i++) counted |= x->counted[i] && is_adopted(e, &x->lines[i]);
    for (i = 0; i < x->lines_count; i++) {
        if (!is_adopted(e, &x->lines[i]) || (counted && !x->counted[i])) continue;
        if (!*head) *head = &x->lines[i];
        for (k = 0; k < x->lines_count; k++)
            if (is_adopted(e, &x->lines[k]) && (!counted || x->counted[k]) && (engine_lineage_order(&x->lines[i], &x->lines[k]) & ~NEWER) != EQUAL)
                break;
        if (k == x->lines_count) {
            *head = &x->lines[i];
            return engine_good(error);
        }
        if (engine_lineage_order(&x->lines[i], &x->lines[k]) == UNRELATED) *head = &x->lines[i], other = &x->lines[k];
    }
    if (!*head && x->lines_count) return engine_fail(error, ENGINE_E_SCATTERED, "nothing of %.60s, which is to be adopted, is there", e->o.adopt);
    if (!*head) return engine_good(error);
    if (!other) other = *head;
    i = !engine_same_id(&(*head)->run, &other->run);
    return engine_fail(error, ENGINE_E_SCATTERED,
                       "there are snapshots of %s %s and %s, of which none goes on from the other; say which by options.adopt",
                       i ? "runs" : "attempts", engine_id_text(a, i ? &(*head)->run : &(*head)->links[0].attempt),
                       engine_id_text(b, i ? &other->run : &other->links[0].attempt));
}

/* Appends to a message, and cuts text that does not fit. */
static void append_text(char *text, size_t size, const char *format, ...)
{
    const size_t n = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + n, size - n, format, arguments);
    va_end(arguments);
}

/* Lists the steps that a rank has from one source, by attempt; consecutive steps as 3-7. */
static void list_steps(char *text, size_t size, const offer *x, uint64_t from, const char *where)
{
    uint8_t told[OFFERS] = { 0 };
    uint64_t i, k;
    for (i = 0; i < x->count; i++) {
        const engine_id *attempt = &x->items[i].attempt;
        if (told[i] || (x->items[i].from & 7) != from) continue;
        append_text(text, size, " %s:%08x", where, (unsigned)(attempt->x[0] >> 32));
        for (;;) {
            uint64_t first = UINT64_MAX, last, other = 0;
            for (k = i; k < x->count; k++)
                if (!told[k] && (x->items[k].from & 7) == from && engine_same_id(&x->items[k].attempt, attempt) && x->items[k].step <= first)
                    first = x->items[k].step, other = x->items[k].from;
            for (last = first, k = i; k < x->count; k++)
                if (!told[k] && x->items[k].from == other && engine_same_id(&x->items[k].attempt, attempt) &&
                    (x->items[k].step == first || x->items[k].step == last + 1))
                    told[k] = 1, last = x->items[k].step, k = x->items[k].step == first ? k : i;
            if (first == UINT64_MAX) break;
            append_text(text, size, first == last ? " %llu" : " %llu-%llu", (unsigned long long)first, (unsigned long long)last);
            if (other & IS_DAMAGED) append_text(text, size, " damaged");
            if (other & OF_OTHERS) append_text(text, size, " of other ranks");
        }
    }
}

static engine_status say_what_is_there(const offer *all, const engine *e, engine_error *error)
{
    unsigned r;
    char *text = error->message;
    const size_t size = sizeof error->message;
    (void)engine_fail(error, ENGINE_E_SCATTERED,
                      "there are snapshots of %.60s, but no step that all ranks can have: bring a rank's memory or files back, or begin anew by "
                      "options.anew (attempt and steps)",
                      e->o.name);
    for (r = 0; r < ranks_of(e) && strlen(text) + 80 < size; r++) {
        size_t before;
        append_text(text, size, "; rank %u", r);
        before = strlen(text);
        list_steps(text, size, &all[r], FROM_OWN, "memory");
        list_steps(text, size, &all[r], FROM_KEPT, "kept");
        list_steps(text, size, &all[r], FROM_FILE, "disk");
        if (all[r].damaged) append_text(text, size, " damaged files");
        if (strlen(text) == before) append_text(text, size, all[r].lines_count ? " an empty manifest" : " nothing");
    }
    if (r < ranks_of(e)) append_text(text, size, "; ...");
    return error->status;
}

/* Returns whether step a of a lineage is newer than b. */
static int is_newer(const engine_lineage *line, const disk_entry *a, const disk_entry *b)
{
    const int x = engine_lineage_place(line, &a->attempt), y = engine_lineage_place(line, &b->attempt);
    return !b->ranks || x < y || (x == y && a->step > b->step);
}

/* Finds the newest living step that all ranks can have, and the newest that all have on disk. */
static engine_status choose(plan *p, const view *x, const offer *all, const engine *e, const engine_lineage *head, engine_error *error)
{
    char run[256];
    disk_entry s;
    unsigned r;
    size_t i;
    for (i = 0; i < x->count; i++) {
        if (engine_lineage_alive(head, &x->steps[i].attempt, x->steps[i].step) < 0) continue;
        s.step = x->steps[i].step, s.attempt = x->steps[i].attempt, s.ranks = ranks_of(e), s.size = 0;
        if (is_newer(head, &s, &p->chosen) && all_have(all, e, &x->steps[i])) p->chosen = s;
        for (r = 0; r < ranks_of(e) && offers(&all[r], &s.attempt, s.step, FROM_FILE); r++) continue;
        if (r == ranks_of(e) && is_newer(head, &s, &p->common)) p->common = s;
    }
    run_of(e, run);
    if (e->o.disk && !disk_find_all(e->o.disk, run, head, ranks_of(e), &s, error)) {
        if (is_newer(head, &s, &p->chosen)) p->chosen = s, p->others = 1;
    } else if (e->o.disk && error->status != ENGINE_E_NONE) {
        return error->status;
    }
    for (r = 0; r < ranks_of(e) && p->chosen.ranks; r++)
        p->from[r] = p->others ? ENGINE_FROM_DISK : (uint64_t)source_of(all, r, e, &p->chosen.attempt, p->chosen.step);
    if (p->common.ranks && is_newer(head, &p->common, &p->chosen)) p->common.ranks = 0; /* it is dead from now on */
    return engine_good(error);
}

/* Makes the lineage of the new attempt, a child of the head. A full lineage first drops an ancestor without remaining steps.
 * Attempts of this run that are not continued are listed as ancestors without living steps, so that their files can be
 * replaced. */
static void descend(plan *p, const view *x, const engine_lineage *head, const engine_id *id)
{
    engine_lineage line = *head;
    size_t i, k;
    for (i = 0; i < x->lines_count && line.count < LINEAGE - 1; i++)
        if (x->counted[i] && engine_same_id(&x->lines[i].run, &line.run) && engine_lineage_order(head, &x->lines[i]) == UNRELATED)
            line.links[line.count].attempt = x->lines[i].links[0].attempt, line.links[line.count++].end = 0;
    for (i = line.count; i-- > 1 && line.count == LINEAGE;) {
        for (k = 0; k < x->count && (!engine_same_id(&x->steps[k].attempt, &line.links[i].attempt) || x->steps[k].step >= line.links[i].end); k++)
            continue;
        if (k < x->count) continue;
        memmove(line.links + i, line.links + i + 1, (size_t)(--line.count - i) * sizeof *line.links);
    }
    if (line.generation + 1 < line.count) line.generation = line.count - 1;
    engine_lineage_child(&p->line, &line, id, p->chosen.step + 1);
}

static engine_status plan_steps(plan *p, const view *x, const offer *all, const engine *e, engine_error *error)
{
    const engine_lineage *head;
    const engine_id id = new_id();
    uint64_t other = 0, something = x->lines_count;
    unsigned r;
    p->line.run = new_id(), p->line.generation = 0, p->line.count = 1, p->line.links[0].attempt = id, p->line.links[0].end = UINT64_MAX;
    for (r = 0; r < ranks_of(e); r++) {
        if (all[r].anew != all[0].anew) return engine_fail(error, ENGINE_E_ARGUMENT, "options.anew is not the same on all ranks");
        something |= all[r].damaged;
        if (all[r].other_ranks) other = all[r].other_ranks;
    }
    if (all[0].anew) return engine_fail(error, ENGINE_E_NONE, "a new run begins, as options.anew asks for");
    if (find_head(x, e, &head, error)) return error->status;
    if (!something) return engine_fail(error, ENGINE_E_NONE, "there is no snapshot of %.150s anywhere", e->o.name);
    if (head && choose(p, x, all, e, head, error)) return error->status;
    if (!p->chosen.ranks && other)
        return engine_fail(error, ENGINE_E_MISMATCH, "the snapshots are of %llu ranks, not %u", (unsigned long long)other, ranks_of(e));
    if (!p->chosen.ranks) return say_what_is_there(all, e, error);
    descend(p, x, head, &id);
    if (other && p->others)
        say(e, "memory has snapshots of %llu ranks, which are not restored: step %llu of %llu ranks is on disk", (unsigned long long)other,
            (unsigned long long)p->chosen.step, (unsigned long long)p->chosen.ranks);
    return engine_good(error);
}

static void make_plan(const offer *all, const engine *e, plan *p)
{
    engine_error error;
    view x;
    unsigned r;
    memset(p, 0, (size_t)plan_size(e));
    (void)engine_good(&error);
    memset(&x, 0, sizeof x);
    for (r = 0; r < ranks_of(e) && !error.status; r++) {
        if (all[r].unread)
            (void)engine_fail(&error, ENGINE_E_SYSTEM, "rank %u cannot read what there is: %.*s", r, (int)sizeof all[r].why - 1, all[r].why);
        else if (all[r].scattered)
            (void)engine_fail(&error, ENGINE_E_SCATTERED, "the files of rank %u are of several runs or attempts, as it has said", r);
    }
    if (!error.status && !make_view(&x, all, e, &error)) (void)plan_steps(p, &x, all, e, &error);
    else if (error.status == ENGINE_E_SYSTEM || error.status == ENGINE_E_DAMAGED) say(e, "%s", error.message);
    view_free(&x);
    plan_fail(p, &error);
}

/* Agrees on a plan with all ranks. Returns 1 if a rank does not answer. */
static int agree_on_plan(engine *e, plan *p)
{
    const engine_transport *t = e->o.transport;
    offer *all = (offer *)calloc(t->rank ? 1 : t->ranks, sizeof *all);
    unsigned i;
    int failed = !all;
    if (failed) (void)give_up(e, no_bytes);
    else make_offer(e, all, 1);
    if (t->rank && !failed) failed = trade(e, TAG_OFFER, 0, all, sizeof *all, 0, NULL, 0) || trade(e, TAG_PLAN, 0, NULL, 0, 0, p, plan_size(e));
    for (i = 1; i < t->ranks && !t->rank && !failed; i++) failed = trade(e, TAG_OFFER, 0, NULL, 0, i, &all[i], sizeof *all);
    if (!t->rank && !failed) make_plan(all, e, p);
    for (i = 1; i < t->ranks && !t->rank && !failed; i++) failed = trade(e, TAG_PLAN, i, p, plan_size(e), 0, NULL, 0);
    if (!failed) free(all);
    return failed;
}

/* Frees the run's name on disk if another run has it. An error on one rank is an error on all. */
static engine_status make_room(engine *e, engine_error *error)
{
    char to[DISK_PATH] = "";
    verdict decided;
    int agreed = 0;
    (void)engine_good(error);
    if (e->o.disk && !disk_put_aside(e->o.disk, e->o.name, &e->line, to, error) && *to)
        say(e, "what another run has on disk is called %.180s now", to);
    if (e->o.transport) agreed = all_agree(e, 0, error->status, &decided);
    if (agreed < 0) return engine_fail(error, ENGINE_E_SYSTEM, "a rank does not answer, or has no memory");
    return agreed && !error->status ? engine_fail(error, (engine_status)agreed, "another rank could not make room on disk") : error->status;
}

/* Removes the seals of steps that are dead for the new attempt. With several ranks, removes all except that of `only`: otherwise
 * a later recovery would find different steps on different ranks. */
static void forget(const engine *e, const disk_entry *only)
{
    slot_seal seal;
    unsigned i;
    for (i = 0; i < ENGINE_SLOTS; i++) {
        if (!read_seal(&e->s, i, &seal)) continue;
        if (e->o.transport ? seal.step != only->step || seal.ranks != only->ranks || !engine_same_id(&seal.line.links[0].attempt, &only->attempt)
                           : engine_lineage_alive(&e->line, &seal.line.links[0].attempt, seal.step) < 0 || seal.ranks != 1)
            (void)unseal(&e->s, i);
    }
}

/* Sets up the engine for the new attempt. */
static void take_up(engine *e, const plan *p)
{
    segment_header *h = header_of(&e->s);
    e->line = p->line;
    e->least = p->chosen.ranks ? p->chosen.step : 0;
    h->common = p->common;
    h->target_done = h->target_number;
    forget(e, &p->chosen);
    __atomic_store_n(&h->begun, 1, __ATOMIC_SEQ_CST);
}

/* Begins a new run, because nothing exists or `anew` is set. */
static engine_status begin_run(engine *e, const plan *p, engine_error *error)
{
    take_up(e, p);
    if (e->o.anew && make_room(e, error)) e->line.count = 0;
    else (void)engine_fail(error, ENGINE_E_NONE, "%s", p->message);
    return error->status;
}

/* Agrees on the ids of a new run, before a first snapshot without recovery. */
static engine_status begin(engine *e, engine_error *error)
{
    plan *p = (plan *)calloc(1, (size_t)plan_size(e));
    offer *own;
    if (!p) return no_memory(error);
    if (!is_whole(&e->s)) {
        free(p);
        return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", e->s.path, has_been_cut);
    }
    if (e->o.transport) {
        if (agree_on_plan(e, p))
            return engine_fail(error, ENGINE_E_SYSTEM, "a rank does not answer, or has no memory"); /* p may still be written to */
    } else if ((own = (offer *)calloc(1, sizeof *own)) != NULL) {
        make_offer(e, own, 0);
        make_plan(own, e, p);
        free(own);
    } else {
        free(p);
        return no_memory(error);
    }
    if (p->status == ENGINE_E_NONE && begin_run(e, p, error) == ENGINE_E_NONE) (void)engine_good(error);
    else if (p->status && p->status != ENGINE_E_NONE) (void)engine_fail(error, (engine_status)p->status, "%s", p->message);
    else if (!p->status)
        (void)engine_fail(error, ENGINE_E_SCATTERED,
                          "there is a snapshot of step %llu: call engine_recover before the first one, or begin anew by options.anew",
                          (unsigned long long)p->chosen.step);
    free(p);
    return error->status;
}

/* Opens the snapshot of a step in slots from `first` on. Returns 1, or 0 if it is missing. Returns -1 if memory is too short to
 * find out; then this rank no longer answers the others. */
static int find_step(const engine *e, unsigned first, const disk_entry *wanted, snapshot *v)
{
    unsigned i;
    int unread = 0;
    for (i = first; i < first + OWN_SLOTS; i++) {
        const char *wrong = snapshot_open(v, &e->s, i);
        if (!wrong && v->seal.step == wanted->step && engine_same_id(&v->seal.line.links[0].attempt, &wanted->attempt) && is_ours(e, &v->seal, i))
            return 1;
        if (wrong && status_of(wrong) == ENGINE_E_SYSTEM) {
            unread = -1;
            if (e->mover) (void)give_up(e, no_bytes);
        }
        snapshot_free(v);
    }
    return unread;
}

/* Rebuilds the snapshot of a member of the group that has lost it, if there is one. */
static int rebuild(engine *e, const plan *p, const snapshot *parity, snapshot *came, uint64_t *sent)
{
    snapshot own;
    unsigned m, lost = e->o.group;
    int failed;
    memset(came, 0, sizeof *came);
    for (m = 0; m < e->o.group; m++)
        if (p->from[rank_of(e, m)] == ENGINE_FROM_PARTNER) lost = m;
    if (lost == e->o.group) return 0;
    if (lost == member_of(e)) return take_shares(e, came);
    if (!parity->map || 1 != find_step(e, 0, &p->chosen, &own)) return give_up(e, no_bytes);
    failed = send_shares(e, &own, parity, lost, sent);
    if (!failed) snapshot_free(&own);
    return failed;
}

/* Restores the chosen step from files, or from the snapshot in *own, which is searched if empty. */
static engine_status restore_chosen(engine *e, const plan *p, snapshot *own, const engine_tensor *tensors, size_t count, engine_error *error)
{
    char run[256];
    int found = 1;
    run_of(e, run);
    (void)engine_fail(error, ENGINE_E_SYSTEM, "step %llu did not come from the partner",
                      (unsigned long long)p->chosen.step); /* the partner's copy is whole */
    if (p->others) (void)disk_recover_all(e->o.disk, run, &p->chosen, tensors, count, error);
    else if (e->cost.source == ENGINE_FROM_DISK) (void)disk_recover(e->o.disk, e->o.name, &p->chosen, tensors, count, error);
    else if (own->map || (found = find_step(e, 0, &p->chosen, own)) == 1) (void)restore(e, own, tensors, count, error);
    else if (found < 0) (void)no_memory(error);
    else if (!e->o.transport)
        (void)engine_fail(error, ENGINE_E_DAMAGED, "step %llu was whole and is damaged now; recover again to have what is left",
                          (unsigned long long)p->chosen.step);
    return error->status;
}

static void recovered_from(engine *e, snapshot *own, uint64_t sent)
{
    if (own->seal.sequence > e->sequence) e->sequence = own->seal.sequence;
    e->cost.elements_size = own->seal.elements_size;
    e->cost.frames_size = own->seal.frames_size;
    e->cost.sent_size = sent;
    e->last = *own;
}

static engine_status recover_together(engine *e, plan *p, const engine_tensor *tensors, size_t count, engine_error *error)
{
    const engine_transport *t = e->o.transport;
    const unsigned before = rank_after(t, t->ranks - e->o.distance % t->ranks), after = rank_after(t, e->o.distance);
    uint64_t start = nanoseconds(), sent = 0;
    snapshot own, theirs, came;
    verdict decided;
    int agreed = -1;
    memset(&own, 0, sizeof own);
    memset(&theirs, 0, sizeof theirs);
    e->cost.source = (int)p->from[t->rank];
    if (!p->others) (void)find_step(e, OWN_SLOTS, &p->chosen, &theirs);
    if (!(e->o.group
              ? rebuild(e, p, &theirs, &came, &sent)
              : trade_snapshots(e, before, p->from[before] == ENGINE_FROM_PARTNER ? &theirs : NULL, p->chosen.step, after, &own, 0, &came, &sent))) {
        own = came;
        e->cost.fetch_seconds = seconds_since(start);
        start = nanoseconds();
        if (own.map && !engine_same_id(&own.seal.line.links[0].attempt, &p->chosen.attempt)) snapshot_free(&own);
        if (restore_chosen(e, p, &own, tensors, count, error) == ENGINE_E_NONE)
            error->status = ENGINE_E_SYSTEM; /* but there were files, when that was agreed */
        e->cost.decode_seconds = seconds_since(start);
        agreed = all_agree(e, p->chosen.step, error->status, &decided);
    }
    if (agreed < 0) (void)engine_fail(error, ENGINE_E_SYSTEM, "a rank does not answer, or has no memory");
    else if (agreed && !error->status)
        (void)engine_fail(error, (engine_status)agreed, "another rank could not restore step %llu", (unsigned long long)p->chosen.step);
    if (error->status) {
        snapshot_free(&own);
        if (agreed >= 0) snapshot_free(&theirs); /* else it may still be sent */
        return error->status;
    }
    take_up(e, p);
    if (own.map) set_counted(&e->s, &own);
    if (theirs.map) set_counted(&e->s, &theirs);
    recovered_from(e, &own, sent);
    e->mover->kept = theirs;
    return engine_good(error);
}

/* Agrees with the other ranks on a plan, and carries it out. */
static engine_status recover_with_others(engine *e, uint64_t *step, const engine_tensor *tensors, size_t count, engine_error *error)
{
    const uint64_t start = nanoseconds();
    plan *p = (plan *)calloc(1, (size_t)plan_size(e));
    snapshot_free(&e->mover->kept);
    if (!p) return no_memory(error);
    /* p may still be written to */
    if (agree_on_plan(e, p)) return engine_fail(error, ENGINE_E_SYSTEM, "a rank does not answer, or has no memory");
    e->cost.agree_seconds = seconds_since(start);
    *step = p->chosen.step;
    if (p->status == ENGINE_E_NONE) (void)begin_run(e, p, error);
    else if (p->status) (void)engine_fail(error, (engine_status)p->status, "%s", p->message);
    else if (!recover_together(e, p, tensors, count, error) && e->o.adopt && make_room(e, error)) e->line.count = 0;
    free(p);
    return error->status;
}

/* Recovers a single rank from the newest whole snapshot. Reports and skips damaged ones. */
static engine_status recover_alone(engine *e, uint64_t *step, const engine_tensor *tensors, size_t count, engine_error *error)
{
    plan *p = (plan *)calloc(1, (size_t)plan_size(e));
    offer *all = (offer *)calloc(1, sizeof *all);
    snapshot own;
    uint64_t i;
    int damaged = 0, tries = 0;
    memset(&own, 0, sizeof own);
    if (all && p) make_offer(e, all, 0);
    else (void)no_memory(error);
    while (all && p) {
        make_plan(all, e, p);
        if (p->status) break;
        e->cost.source = (int)p->from[0];
        *step = p->chosen.step;
        /* an agent was about to end a file */
        if (restore_chosen(e, p, &own, tensors, count, error) == ENGINE_E_NONE && tries++ < 3) {
            make_offer(e, all, 0);
            continue;
        }
        if (error->status != ENGINE_E_DAMAGED || p->others) break;
        say(e, "%s", error->message);
        snapshot_free(&own);
        damaged = 1;
        for (i = 0; i < all->count; i++)
            if (all->items[i].from == (e->cost.source == ENGINE_FROM_DISK ? FROM_FILE : FROM_OWN) && all->items[i].step == p->chosen.step &&
                engine_same_id(&all->items[i].attempt, &p->chosen.attempt))
                all->items[i].from |= IS_DAMAGED;
    }
    if (all && p) {
        for (i = 0; i < all->count; i++) damaged |= (all->items[i].from & IS_DAMAGED) != 0;
        if (p->status == ENGINE_E_SCATTERED && damaged) p->status = ENGINE_E_DAMAGED;
        if (!p->status && error->status == ENGINE_E_NONE) error->status = ENGINE_E_SYSTEM;
        if (p->status == ENGINE_E_NONE) (void)begin_run(e, p, error);
        else if (p->status) (void)engine_fail(error, (engine_status)p->status, "%s", p->message);
        else if (!error->status) take_up(e, p), recovered_from(e, &own, 0);
        if (!error->status && e->o.adopt && make_room(e, error)) e->line.count = 0;
        if (error->status) snapshot_free(&own);
    }
    free(p), free(all);
    return error->status;
}

engine_status engine_recover(engine *e, uint64_t *step, const engine_tensor *tensors, size_t count, engine_error *error)
{
    const uint64_t start = nanoseconds();
    char text[DISK_TYPE];
    size_t i;
    *step = 0;
    if (e->s.fd < 0) return engine_fail(error, ENGINE_E_ARGUMENT, "%s", is_forked);
    if (e->mover && mover_end(e, e->o.partner_patience, 0))
        return engine_fail(error, ENGINE_E_BUSY, "the last snapshot is still on its way to the partner");
    memset(&e->cost, 0, sizeof e->cost);
    snapshot_free(&e->last);
    for (i = 0; i < count; i++) {
        const engine_tensor *t = &tensors[i];
        if (!t->name || (t->count && !t->data && !t->store))
            return engine_fail(error, ENGINE_E_ARGUMENT, "tensor %llu: no name, or no data", (unsigned long long)i);
        if (!disk_type(text, t)) return engine_fail(error, ENGINE_E_ARGUMENT, "tensor %llu (%.100s): %s", (unsigned long long)i, t->name, wrong_type);
    }
    if (refuse_twins(tensors, count, error)) return error->status;
    e->line.count = 0;
    if (is_whole(&e->s)) {
        __atomic_store_n(&header_of(&e->s)->begun, 0, __ATOMIC_SEQ_CST);
    } else {
        if (e->mover) (void)give_up(e, has_been_cut); /* so that other ranks do not wait for this one */
        return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", e->s.path, has_been_cut);
    }
    if (e->o.transport) (void)recover_with_others(e, step, tensors, count, error);
    else (void)recover_alone(e, step, tensors, count, error);
    if (error->status) *step = 0;
    e->cost.seconds = seconds_since(start);
    return error->status;
}

/* ================================================================================= STATUS */

engine_status engine_read_status(const char *directory, const char *name, engine_report *r, engine_error *error)
{
    segment s;
    slot_seal seal;
    snapshot v;
    const char *wrong;
    uint8_t *used;
    uint64_t k;
    unsigned i;
    memset(r, 0, sizeof *r);
    if (segment_attach(&s, directory, name, error)) return error->status;
    used = (uint8_t *)calloc((size_t)s.chunks, 1);
    r->size = s.size, r->chunks = s.chunks, r->chunk = UINT64_C(1) << s.chunk_log2;
    r->trainer = is_locked(&s, LOCK_TRAINER), r->agent = is_locked(&s, LOCK_AGENT);
    r->trainer_pid = header_of(&s)->trainer_pid, r->agent_pid = header_of(&s)->agent_pid;
    r->disk_step = header_of(&s)->disk_step, r->skipped = header_of(&s)->skipped;
    take_text(r->log, sizeof r->log, header_of(&s)->log);
    protection_of(&s, &r->protection);
    if (header_of(&s)->disk_made) r->disk_age = 1e-9 * (double)(nanoseconds() - header_of(&s)->disk_made);
    for (i = 0; used && i < ENGINE_SLOTS; i++) {
        engine_slot *x = &r->slots[i];
        if (!read_seal(&s, i, &seal)) continue;
        wrong = snapshot_open(&v, &s, i);
        if (wrong) {
            if (status_of(wrong) == ENGINE_E_SYSTEM) free(used), used = NULL;
            snapshot_free(&v);
            continue;
        }
        x->whole = 1;
        x->parity = seal.parity;
        (void)engine_id_text(x->run, &seal.line.run), (void)engine_id_text(x->attempt, &seal.line.links[0].attempt);
        x->counts = counts(&s, i, &seal), x->peer = i >= OWN_SLOTS, x->rank = seal.rank, x->ranks = seal.ranks;
        x->sequence = seal.sequence, x->step = seal.step, x->tensors = seal.tensors, x->pieces = seal.pieces;
        x->elements_size = seal.elements_size, x->frames_size = seal.frames_size, x->chunks = seal.chunks;
        x->age = seconds_since(seal.made);
        x->max_relative = seal.max_relative;
        x->pinned = slot_of(&s, i)->pin != 0 && is_locked(&s, LOCK_READER);
        for (k = 0; k < v.seal.chunks; k++) {
            r->chunks_used += !used[v.map[k].chunk];
            used[v.map[k].chunk] = 1;
        }
        snapshot_free(&v);
    }
    segment_close(&s);
    if (!used) return no_memory(error);
    free(used);
    return engine_good(error);
}

engine_status engine_remove(const char *directory, const char *name, engine_error *error)
{
    segment s;
    if (segment_name(&s, directory, name, error)) return error->status;
    if (segment_open(&s, s.path, 0))
        return engine_fail(error, errno == ENOENT ? ENGINE_E_NONE : ENGINE_E_SYSTEM, "%.180s: %s", s.path, strerror(errno));
    if (lock(&s, F_WRLCK, LOCK_TRAINER) || lock(&s, F_WRLCK, LOCK_AGENT))
        (void)engine_fail(error, ENGINE_E_BUSY, "%.180s: a trainer or an agent has it", s.path);
    else if (!is_named(&s))
        (void)engine_fail(error, ENGINE_E_NONE, "%.180s: somebody else has removed it", s.path); /* another segment may have the name now */
    else if (unlink(s.path)) (void)engine_fail(error, ENGINE_E_SYSTEM, "%.180s: %s", s.path, strerror(errno));
    else (void)engine_good(error);
    segment_close(&s);
    return error->status;
}

/* ================================================================================= READERS */

struct engine_reader {
    segment s;
    int agent;
    snapshot v;      /* the one that is held, if v.map is not null */
    worker w, other; /* of a master */
    uint8_t *master, *elements;
    uint64_t master_size, elements_size;
    engine_tensor *tensors;
    char *names;
};

engine_status engine_reader_open(engine_reader **made, const char *directory, const char *name, int agent, engine_error *error)
{
    engine_reader *r = (engine_reader *)calloc(1, sizeof *r);
    unsigned i;
    *made = NULL;
    if (!r) return no_memory(error);
    if (segment_attach(&r->s, directory, name, error)) {
        free(r);
        return error->status;
    }
    if ((agent && lock(&r->s, F_WRLCK, LOCK_AGENT)) || lock(&r->s, F_WRLCK, LOCK_READER)) {
        (void)engine_fail(error, ENGINE_E_BUSY, "%.180s: somebody else reads it", r->s.path);
        engine_reader_close(r);
        return error->status;
    }
    if (!is_named(&r->s)) {
        (void)engine_fail(error, ENGINE_E_NONE, "%.180s: somebody has removed it", r->s.path);
        engine_reader_close(r);
        return error->status;
    }
    /* of one that was killed */
    for (i = 0; i < ENGINE_SLOTS; i++) __atomic_store_n(&slot_of(&r->s, i)->pin, 0, __ATOMIC_SEQ_CST);
    r->agent = agent;
    if (agent) header_of(&r->s)->agent_pid = (uint64_t)getpid(), header_of(&r->s)->agent_every = 0, engine_reader_note(r, NULL);
    *made = r;
    return engine_good(error);
}

void engine_reader_release(engine_reader *r)
{
    if (r->v.map && is_whole(&r->s)) __atomic_store_n(&slot_of(&r->s, r->v.slot)->pin, 0, __ATOMIC_SEQ_CST);
    snapshot_free(&r->v);
    free(r->tensors);
    free(r->names);
    r->tensors = NULL;
    r->names = NULL;
}

void engine_reader_close(engine_reader *r)
{
    if (!r) return;
    engine_reader_release(r);
    worker_free(&r->w);
    worker_free(&r->other);
    segment_close(&r->s);
    free(r->master);
    free(r->elements);
    free(r);
}

static engine_status list_names(engine_reader *r, engine_error *error)
{
    const contents *d = &r->v.d;
    char *name, text[DISK_TYPE];
    uint64_t i;
    r->tensors = (engine_tensor *)calloc((size_t)d->header->tensors + 1, sizeof *r->tensors);
    name = r->names = (char *)malloc((size_t)(d->header->names_size + 2 * d->header->tensors) + 1);
    if (!r->tensors || !r->names) return no_memory(error);
    for (i = 0; i < d->header->tensors; i++) {
        const contents_tensor *t = &d->tensors[i];
        engine_tensor *x = &r->tensors[i];
        memcpy(name, d->names + t->name_at, (size_t)t->name_size);
        x->name = name;
        name += t->name_size;
        *name++ = 0;
        memcpy(name, d->names + t->name_at + t->name_size, (size_t)t->type_size);
        x->type = name;
        name += t->type_size;
        *name++ = 0;
        x->dtype = (bitsnap_dtype)t->dtype, x->count = t->count, x->columns = t->columns, x->kind = (engine_kind)t->kind;
        x->master = t->master ? &r->tensors[t->master - 1] : NULL;
        if (!disk_type(text, x)) return engine_fail(error, ENGINE_E_DAMAGED, "%.100s: %s", x->name, wrong_type);
    }
    return engine_good(error);
}

/* Returns whether this snapshot is for the agent, or for another reader. With several ranks the agent writes targets, snapshots
 * taken while other ranks did not answer, and, once the trainers are gone, the newest one. */
static int is_for_disk(const engine_reader *r, unsigned slot, const slot_seal *seal)
{
    const segment_header *h = header_of(&r->s);
    const int alone = is_alone(&r->s, slot, seal), wanted = alone || counts(&r->s, slot, seal);
    if (!r->agent || !is_locked(&r->s, LOCK_TRAINER)) return wanted;
    if (!h->begun || seal->ranks < 2 || alone) return h->begun && wanted; /* while it recovers, the disk stays as it is */
    return wanted && h->target_number != h->target_done && seal->step == h->target.step &&
           engine_same_id(&seal->line.links[0].attempt, &h->target.attempt);
}

static void end_target(engine_reader *r, int whole)
{
    segment_header *h = header_of(&r->s);
    unsigned i;
    for (i = 0; i < OWN_SLOTS; i++) __atomic_store_n(&slot_of(&r->s, i)->pin, 0, __ATOMIC_SEQ_CST);
    h->target_whole = (uint64_t)whole;
    __atomic_store_n(&h->target_done, h->target_number, __ATOMIC_SEQ_CST);
}

engine_status engine_reader_next(engine_reader *r, uint64_t every, uint64_t *sequence, uint64_t *step, engine_error *error)
{
    slot_seal seal;
    segment_slot *x;
    unsigned i, best = ENGINE_SLOTS;
    const char *wrong;
    uint64_t newest_one = *sequence;
    engine_reader_release(r);
    if (!is_whole(&r->s)) return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", r->s.path, has_been_cut);
    for (i = 0; i < OWN_SLOTS; i++)
        if (read_seal(&r->s, i, &seal) && (!every || seal.step % every == 0) && seal.sequence > newest_one && is_for_disk(r, i, &seal))
            newest_one = seal.sequence, best = i;
    if (best == ENGINE_SLOTS && r->agent && is_pending(&r->s)) end_target(r, 0); /* the trainer needed the room */
    if (best == ENGINE_SLOTS) return engine_fail(error, ENGINE_E_NONE, "%.180s: no new snapshot", r->s.path);
    x = slot_of(&r->s, best);
    __atomic_store_n(&x->wanted, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&x->pin, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&x->claim, __ATOMIC_SEQ_CST)) (void)engine_fail(error, ENGINE_E_NONE, "%.180s: the snapshot is gone", r->s.path);
    else if ((wrong = snapshot_open(&r->v, &r->s, best)) != NULL)
        (void)engine_fail(error, *wrong ? status_of(wrong) : ENGINE_E_NONE, "%.150s: slot %u: %s", r->s.path, best,
                          *wrong ? wrong : "the snapshot is gone");
    else if (!list_names(r, error)) {
        *sequence = r->v.seal.sequence;
        *step = r->v.seal.step;
        return ENGINE_OK;
    }
    snapshot_free(&r->v);
    __atomic_store_n(&x->pin, 0, __ATOMIC_SEQ_CST);
    return error->status;
}

const engine_lineage *engine_reader_lineage(const engine_reader *r) { return &r->v.seal.line; }
uint64_t engine_reader_rank(const engine_reader *r) { return r->v.seal.rank; }
uint64_t engine_reader_ranks(const engine_reader *r) { return r->v.seal.ranks; }

int engine_reader_is_wanted(const engine_reader *r)
{
    return r->v.map && (!is_whole(&r->s) || __atomic_load_n(&slot_of(&r->s, r->v.slot)->wanted, __ATOMIC_SEQ_CST));
}

int engine_reader_is_late(const engine_reader *r) { return !is_whole(&r->s) || !__atomic_load_n(&header_of(&r->s)->begun, __ATOMIC_SEQ_CST); }

int engine_reader_is_alone(const engine_reader *r) { return !is_locked(&r->s, LOCK_TRAINER); }

int engine_reader_is_removed(const engine_reader *r) { return !is_named(&r->s); }

void engine_reader_note(engine_reader *r, const engine_note *n)
{
    segment_header *h = header_of(&r->s);
    if (!is_whole(&r->s)) return;
    h->beat = nanoseconds();
    if (!n) return;
    snprintf(h->log, sizeof h->log, "%s", n->log ? n->log : "");
    if (!n->disk_step && !n->wrong) return;
    h->skipped = n->skipped;
    if (!n->wrong) h->disk_step = n->disk_step, h->disk_made = nanoseconds();
    snprintf(h->disk_wrong, sizeof h->disk_wrong, "%s", n->wrong ? n->wrong : "");
    h->disk_failed = n->wrong != NULL;
    if (r->v.map && h->target_number != h->target_done && r->v.seal.step == h->target.step &&
        engine_same_id(&r->v.seal.line.links[0].attempt, &h->target.attempt))
        end_target(r, !n->wrong);
}

void engine_reader_disk(engine_reader *r, uint64_t every, disk_entry *common)
{
    header_of(&r->s)->agent_every = every;
    *common = header_of(&r->s)->common;
}

const engine_tensor *engine_reader_tensors(const engine_reader *r, size_t *count)
{
    *count = (size_t)r->v.d.header->tensors;
    return r->tensors;
}

/* Finds the pieces of a tensor: *first .. *end - 1. */
static void pieces_of(const contents *d, uint64_t tensor, uint64_t *first, uint64_t *end)
{
    *first = d->tensors[tensor].first_piece;
    *end = tensor + 1 < d->header->tensors ? d->tensors[tensor + 1].first_piece : d->header->pieces;
}

/* Decodes elements of an F32 tensor to r->master. They may belong to several pieces. */
static const char *read_master(engine_reader *r, uint64_t tensor, uint64_t first, uint64_t count)
{
    uint64_t i, end;
    if (reserve(&r->master, &r->master_size, 4 * count)) return out_of_memory;
    for (pieces_of(&r->v.d, tensor, &i, &end); i < end; i++) {
        const contents_piece *p = &r->v.d.pieces[i];
        const uint64_t from = p->first > first ? p->first : first;
        const uint64_t to = p->first + p->count < first + count ? p->first + p->count : first + count;
        const char *wrong;
        if (from >= to) continue;
        if (reserve(&r->elements, &r->elements_size, 8u * PIECE)) return out_of_memory;
        wrong = decode_piece(&r->v, i, &r->other, r->elements, NULL);
        if (wrong) return wrong;
        memcpy(r->master + 4 * (from - first), r->elements + 4 * (from - p->first), (size_t)(4 * (to - from)));
    }
    return NULL;
}

engine_status engine_reader_piece(engine_reader *r, size_t tensor, uint64_t number, int decoded, engine_piece *piece, engine_error *error)
{
    const contents *d = &r->v.d;
    const contents_tensor *t = &d->tensors[tensor];
    const contents_piece *p;
    const char *wrong = NULL;
    uint64_t i, end;
    memset(piece, 0, sizeof *piece);
    if (!is_whole(&r->s)) return engine_fail(error, ENGINE_E_DAMAGED, "%.180s: %s", r->s.path, has_been_cut);
    pieces_of(d, tensor, &i, &end);
    if (number >= end - i) return engine_fail(error, ENGINE_E_NONE, "the tensor has no such piece");
    p = &d->pieces[i + number];
    piece->first = p->first, piece->count = p->count;
    if (t->master) wrong = read_master(r, t->master - 1, p->first, p->count);
    if (!wrong && !decoded && !t->master && !p->anchor.size) {
        if (reserve(&r->w.frame, &r->w.frame_size, p->frame.size)) return no_memory(error);
        wrong = read_frame(&r->v, &p->frame, r->w.frame);
        piece->frame = r->w.frame, piece->frame_size = (size_t)p->frame.size;
    } else if (!wrong) {
        if (reserve(&r->elements, &r->elements_size, 8u * PIECE)) return no_memory(error);
        wrong = decode_piece(&r->v, i + number, &r->w, r->elements, r->master);
        piece->elements = r->elements;
    }
    if (!wrong) return engine_good(error);
    memset(piece, 0, sizeof *piece);
    return engine_fail(error, status_of(wrong), "step %llu, %.100s: %s", (unsigned long long)r->v.seal.step, r->tensors[tensor].name, wrong);
}
