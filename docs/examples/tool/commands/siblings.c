/* siblings.c - compress -r: files that are coded against others of their folder.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "commands.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int has_siblings(const options *o)
{
    return o->command == COMPRESS && o->recursive && !o->base_count && !o->no_references;
}

int siblings_open(sibling_files *s, const options *o, char *const *paths, size_t count, fault *f)
{
    size_t i, n = 0;
    int dependent;
    memset(s, 0, sizeof *s);
    s->order = (size_t *)malloc((count + 1) * sizeof *s->order);
    if (!s->order) return fault_memory(f);
    if (siblings_find(&s->found, (const char *const *)paths, count, o->adam.name != NULL, f)) return 1;
    for (dependent = 0; dependent < 2; dependent++)
        for (i = 0; i < count; i++)
            if ((s->found.files[i].base_count != 0) == dependent) s->order[n++] = i;
    return 0;
}

void siblings_close(sibling_files *s)
{
    siblings_free(&s->found);
    free(s->order);
    s->order = NULL;
}

/* Returns 1 if a base is whole, not quantized, and has the header that was read before. */
static int holds(const base *b, const sibling *x)
{
    const bitsnap_file *file = b->file.file;
    return (file->kind == BITSNAP_SOURCE_PLAIN || (file->kind == BITSNAP_SOURCE_SAFETENSORS && !(file->compatible & BITSNAP_FILE_QUANTIZED))) &&
           b->file.text_size == x->h.size && !memcmp(b->file.text, x->h.text, x->h.size);
}

/* Returns 1 if the packed file was made from the file as it was read. Outputs have the times of their inputs. */
static int is_packed_as_seen(const char *packed, const sibling *x)
{
    const struct timespec *seen = &x->stamp.modified;
    struct stat st;
    file_stamp now;
    if (stat(packed, &st) || !S_ISREG(st.st_mode)) return 0;
    now = stamp_of(&st);
    return now.modified.tv_sec == seen->tv_sec && now.modified.tv_nsec == seen->tv_nsec;
}

/* Opens a base. If files are packed one by one, in place, uses the packed base: it must exist beside the output, and the original
 * may be removed. *b stays closed if there is no usable base. */
static int open_sibling(const options *o, codec *c, const sibling *x, base *b, fault *f)
{
    const int in_place = !options_whole_folder(o) && !o->dry_run;
    char *path = in_place ? target_of(o, x->path) : strdup(x->path);
    fault why = { 0 };
    int failed = !path && fault_memory(f);
    base_clear(b);
    if (path && (!in_place || is_packed_as_seen(path, x))) {
        const char *name;
        failed = used_name(&c->used, path, USE_BASE, f);
        name = failed ? NULL : c->used.files[c->used.count - 1].name;
        if (name && (base_open(b, c, &name, 1, o->max_output, &why) || !holds(b, x))) base_close(b);
        if (name) b->path = name;
    }
    free(path);
    return failed;
}

/* Opens all bases of a file, or none. */
static int open_siblings(const options *o, codec *c, const siblings *s, size_t number, options *one, base *list, fault *f)
{
    const sibling *x = &s->files[number];
    base *b = list, *last = NULL;
    size_t capacity = 0;
    unsigned k;
    int failed = 0;
    base_clear(list);
    for (k = 0; k < x->base_count && !failed; k++, last = b) {
        if (last) b = last->next = (base *)calloc(1, sizeof *b);
        failed = b ? open_sibling(o, c, &s->files[x->bases[k]], b, f) : fault_memory(f);
        if (failed || !b->reader) break;
        if (last) last->file.next = &b->file;
        failed = options_add_base(one, b->path, &capacity, f);
    }
    if (k < x->base_count) base_close(list);
    return failed;
}

int compress_sibling(const options *o, codec *c, const siblings *s, size_t number, input *in, const char *target, fault *f)
{
    const sibling *x = &s->files[number];
    options one = *o;
    base b;
    int failed = 0;
    one.bases = NULL;
    one.base_count = 0;
    base_clear(&b);
    if (x->base_count && stamp_is_same(&in->stamp, &x->stamp)) failed = open_siblings(o, c, s, number, &one, &b, f);
    if (failed) input_close(in);
    if (!b.reader) one.base_count = 0;
    failed = failed || compress_to(&one, c, b.reader ? &b : NULL, b.reader ? &x->found : NULL, in, x->path, target, f);
    base_close(&b);
    free((void *)one.bases);
    return failed;
}
