/* find.c - the files that a delta was made against, where it says only what they were called.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "find.h"

#include "header.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DEPTH_MOST = 256 }; /* deltas that follow each other */

/* A file that was found while the bases of one delta are looked for. Several deltas may need it, and one may name it 255 times: its
 * header is read once, and it is opened once. */
typedef struct known_file {
    file_stamp stamp;
    int good;            /* it has a header */
    link_end end;
    base opened;         /* without a reader: not yet */
} known_file;

struct known_files {
    known_file *files;   /* in the order of device and inode */
    size_t count, capacity;
};

static int packed_end(link_end *e, codec *c, input *in, fault *f)
{
    file_reader r;
    int failed = file_look_begin(&r, c, in, NULL, f);
    if (!failed && r.s.start.kind == BITSNAP_SOURCE_RAW) failed = fault_set(f, "holds raw elements; a base is a .safetensors file, or a .bsnap file of one");
    if (!failed) {
        e->text_size = r.text_size;
        e->data_size = r.s.start.source_size - r.s.source_size;
        e->id = r.s.start.kind == BITSNAP_SOURCE_DELTA ? r.link.own.id : bitsnap_hash(r.text, r.text_size);
    }
    file_read_close(&r);
    return failed;
}

int find_end(link_end *e, codec *c, const char *path, file_stamp *stamp, fault *f)
{
    input in;
    header h;
    int failed = input_open(&in, path, f) || input_fill(&in, 8, f);
    memset(e, 0, sizeof *e);
    memset(&h, 0, sizeof h);
    *stamp = in.stamp;
    if (!failed && file_is_bsnap(input_bytes(&in), input_available(&in))) {
        failed = packed_end(e, c, &in, f);
    } else if (!failed) {
        failed = header_read(&h, &in, f);
        e->text_size = h.size;
        e->data_size = h.model.data_size;
        e->id = failed ? 0 : bitsnap_hash(h.text, h.size);
        header_free(&h);
    }
    input_close(&in);
    return failed ? fault_in(f, path) : 0;
}

/* Its index among the known files, or the one that it would get. */
static size_t place_of_known(const struct known_files *k, const file_stamp *stamp)
{
    size_t low = 0, high = k->count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const file_stamp *x = &k->files[middle].stamp;
        if (x->device < stamp->device || (x->device == stamp->device && x->inode < stamp->inode)) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* What is known of a file now; null with the fault set. It stays until another one is looked for. */
static known_file *know(codec *c, const char *path, const file_stamp *stamp, fault *f)
{
    struct known_files *k = c->known;
    const size_t i = place_of_known(k, stamp);
    known_file *all, x;
    fault ignored;
    if (i < k->count && stamp_is_file(&k->files[i].stamp, stamp)) return &k->files[i];
    memset(&x, 0, sizeof x);
    memset(&ignored, 0, sizeof ignored);
    base_clear(&x.opened);
    x.good = !find_end(&x.end, c, path, &x.stamp, &ignored);
    x.stamp = *stamp;
    all = (known_file *)grown(k->files, k->count, &k->capacity, sizeof *all, f);
    if (!all) return NULL;
    k->files = all;
    memmove(all + i + 1, all + i, (k->count++ - i) * sizeof *all);
    all[i] = x;
    return &all[i];
}

/* The path of a file of this name in the folder of another, as it is or packed: to be freed, null where there is none. */
static char *path_beside(const char *path, const char *name, int packed, file_stamp *stamp, fault *f)
{
    const char *slash = strrchr(path, '/');
    const size_t folder = slash ? (size_t)(slash - path) + 1 : 0;
    char *beside = (char *)malloc(folder + strlen(name) + sizeof "./.bsnap");
    struct stat st;
    if (!beside) return (void)fault_memory(f), NULL;
    memcpy(beside, path, folder);
    (void)strcat(strcpy(beside + folder, name), packed ? ".bsnap" : "");
    if (!stat(beside, &st) && S_ISREG(st.st_mode)) {
        *stamp = stamp_of(&st);
        return beside;
    }
    free(beside);
    return NULL;
}

static void say(const codec *c, const char *path, const char *beside)
{
    fault note;
    if (c->used.quiet) return;
    (void)fault_set(&note, "is restored with %.700s, which lies beside it", beside);
    (void)fault_in(&note, path);
    fault_print(&note);
}

/* The path of the file that is this base: to be freed; null where there is none, then `others` says whether one is called so. */
static char *base_beside(codec *c, const link_end *e, const input *in, const char *path, file_stamp *stamp, int *others, fault *f)
{
    int packed;
    for (packed = 0; e->name && packed < 2; packed++) {
        char *beside = path_beside(path, e->name, packed, stamp, f);
        const known_file *is = beside ? know(c, beside, stamp, f) : NULL;
        if (is && is->good && link_ends_agree(&is->end, e) && !stamp_is_file(stamp, &in->stamp)) return beside;
        *others |= is && !(is->good && link_ends_agree(&is->end, e));
        free(beside);
        if (*f->text) return NULL;
    }
    return NULL;
}

static int open_beside(base *b, codec *c, const char *path, const char *beside, const file_stamp *stamp, uint64_t limit, fault *f)
{
    const char *name;
    known_file *is = know(c, beside, stamp, f);
    int failed = !is;
    if (is && is->opened.reader) {
        *b = is->opened;
        return 0;
    }
    failed = failed || used_name(&c->used, beside, USE_BASE, f);
    if (failed) return 1;
    say(c, path, beside);
    name = c->used.files[c->used.count - 1].name;
    c->depth++;
    failed = base_open(b, c, &name, 1, limit, f);
    c->depth--;
    is = failed ? NULL : know(c, beside, stamp, f); /* again: opening it may have added others */
    if (!is) return 1;
    is->opened = *b;
    is->opened.shared = 1;
    return 0;
}

/* All bases, or none. */
static int open_all(base *list, codec *c, const link_end *ends, const input *in, const char *path, uint64_t limit, int *found, fault *f)
{
    const unsigned count = link_end_count(ends);
    char **paths = (char **)calloc(count, sizeof *paths);
    file_stamp *stamps = (file_stamp *)calloc(count, sizeof *stamps);
    const link_end *e;
    base *b = list, *last = NULL;
    unsigned n, k;
    int others = 0, failed = (!paths || !stamps) && fault_memory(f);
    for (e = ends, n = 0; e && !failed; e = e->next, n++) {
        paths[n] = base_beside(c, e, in, path, &stamps[n], &others, f);
        if (paths[n]) continue;
        failed = *f->text || (others && fault_set(f, "this delta needs its base, which was called %s; what lies beside it under that name has another header: "
                                                  "give the base with -b", e->name));
        break;
    }
    *found = n == count;
    for (k = 0; k < n && *found && !failed; k++, last = b) {
        if (last) b = last->next = (base *)calloc(1, sizeof *b);
        failed = b ? open_beside(b, c, path, paths[k], &stamps[k], limit, f) : fault_memory(f);
        if (last && !failed) last->file.next = &b->file;
    }
    while (paths && n) free(paths[--n]);
    free(paths);
    free(stamps);
    return failed;
}

int find_beside(base *b, codec *c, input *in, const char *path, uint64_t limit, int *found, fault *f)
{
    const int top = !c->known;
    file_reader r;
    int failed;
    base_clear(b);
    *found = 0;
    if (!in->regular || in->fd == STDIN_FILENO) return 0;
    if (input_fill(in, 10, f)) return 1;
    if (!file_is_delta(input_bytes(in), input_available(in))) return 0;
    if (c->depth == DEPTH_MOST) return fault_set(f, "is one of more than %d deltas that follow each other; merge them", DEPTH_MOST);
    if (top && !(c->known = (struct known_files *)calloc(1, sizeof *c->known))) return fault_memory(f);
    failed = file_look_begin(&r, c, in, NULL, f) || open_all(b, c, &r.link.base, in, path, limit, found, f);
    file_read_close(&r);
    if (top) {
        free(c->known->files);
        free(c->known);
        c->known = NULL;
    }
    return failed || input_seek(in, 0, f);
}
