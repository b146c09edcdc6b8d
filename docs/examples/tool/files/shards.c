/* shards.c - the tensors of a folder, by name: in which of its files each is.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "shards.h"

#include "file.h"
#include "header.h"

#include <stdlib.h>
#include <string.h>

static int read_packed(shard *s, codec *c, input *in, fault *f)
{
    file_reader r;
    int failed;
    memset(&r, 0, sizeof r);
    failed = file_look_begin(&r, c, in, NULL, f);
    if (!failed && !r.text)
        failed = fault_set(f, r.kind == BITSNAP_SOURCE_DELTA ? "is a delta: restore it first, or leave it out with --exclude"
                                                            : "holds raw elements, which have no names; leave it out with --exclude");
    if (!failed) {
        s->text = r.text;
        r.text = NULL;
        failed = safetensors_parse(&s->model, s->text, r.text_size, f);
    }
    file_read_close(&r);
    return failed;
}

static int read_header(shard *s, codec *c, fault *f)
{
    input in;
    header h;
    int failed = input_open(&in, s->path, f) || input_fill(&in, 8, f);
    if (!failed && file_is_bsnap(input_bytes(&in), input_available(&in))) {
        failed = read_packed(s, c, &in, f);
    } else if (!failed) {
        failed = header_read(&h, &in, f);
        s->text = h.text;
        s->model = h.model;
    }
    input_close(&in);
    return failed ? fault_in(f, s->path) : 0;
}

static int by_name(const void *a, const void *b)
{
    const shard_tensor *x = (const shard_tensor *)a, *y = (const shard_tensor *)b;
    const int order = bitsnap_slice_compare(x->name, y->name);
    return order ? order : x->shard < y->shard ? -1 : x->shard > y->shard;
}

static int index_tensors(shards *s, fault *f)
{
    size_t i, k, n = 0;
    for (i = 0; i < s->count; i++) s->tensor_count += s->files[i].model.count;
    s->tensors = (shard_tensor *)malloc((s->tensor_count + 1) * sizeof *s->tensors);
    if (!s->tensors) return fault_memory(f);
    for (i = 0; i < s->count; i++) {
        for (k = 0; k < s->files[i].model.count; k++) {
            s->tensors[n].name = s->files[i].model.tensors[k].name;
            s->tensors[n++].shard = i;
        }
    }
    qsort(s->tensors, n, sizeof *s->tensors, by_name);
    for (i = 1; i < n; i++) {
        const shard_tensor *a = &s->tensors[i - 1], *b = &s->tensors[i];
        if (bitsnap_slice_compare(a->name, b->name)) continue;
        (void)fault_set(f, "has the tensor %.*s, as has %s; leave out one of the files with --exclude", b->name.size < 200 ? (int)b->name.size : 200,
                        b->name.at, s->files[a->shard].path);
        return fault_in(f, s->files[b->shard].path);
    }
    return 0;
}

static int ends(const char *name, const char *suffix)
{
    const size_t size = strlen(name), more = strlen(suffix);
    return size > more && !strcmp(name + size - more, suffix);
}

int shards_open(shards *s, codec *c, const char *path, const selection *select, fault *f)
{
    size_t i;
    memset(s, 0, sizeof *s);
    if (walk_folder(&s->folder, path, select, f)) return *f->file ? 1 : fault_in(f, path);
    s->files = (shard *)calloc(s->folder.count, sizeof *s->files);
    if (!s->files) return fault_memory(f);
    for (i = 0; i < s->folder.count; i++) {
        const walk_entry *x = &s->folder.at[i];
        if (x->kind != FOUND_FILE || (!ends(x->name, ".safetensors") && !ends(x->name, ".bsnap"))) continue;
        s->files[s->count].path = x->path;
        s->files[s->count].name = x->name;
        if (read_header(&s->files[s->count++], c, f)) return 1;
    }
    if (s->count) return index_tensors(s, f);
    (void)fault_set(f, "has no .safetensors or .bsnap file in it that is wanted");
    return fault_in(f, path);
}

const shard_tensor *shards_find(const shards *s, text_slice name)
{
    size_t low = 0, high = s->tensor_count;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        const int order = bitsnap_slice_compare(s->tensors[middle].name, name);
        if (!order) return &s->tensors[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}

void shards_close(shards *s)
{
    while (s->count) {
        bitsnap_safetensors_free(&s->files[--s->count].model);
        free(s->files[s->count].text);
    }
    free(s->files);
    free(s->tensors);
    walk_free(&s->folder);
    memset(s, 0, sizeof *s);
}
