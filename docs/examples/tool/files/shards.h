/* shards.h - finds the file of a folder that holds a tensor, by the name of the tensor.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SHARDS_H
#define TOOL_SHARDS_H

#include "base.h"
#include "container.h"
#include "../system/walk.h"

typedef struct shard {
    const char *path, *name; /* name: relative to the folder */
    char *text;              /* the header text */
    safetensors model;
    delta_ends ends;         /* own: how a delta to this file names it, without the text; the rest is set only for deltas */
    int is_delta;
    int is_twin;             /* bases: 1 if an earlier entry of the folder is the same file */
    char *why;               /* bases: why the file cannot be one; null if it can */
} shard;

#define NO_SHARD SIZE_MAX

typedef struct shard_tensor {
    text_slice name;
    size_t shard, partner; /* numbers: of its file; of the file of the other folder that holds its counterpart, or NO_SHARD */
} shard_tensor;

typedef struct shards {
    walk folder;
    shard *files;
    size_t count;
    shard_tensor *tensors; /* sorted by name, then by shard; null for bases */
    size_t tensor_count;
    const char *path;
    const struct shards *before; /* bases: the folder that holds the bases of its deltas, or null */
} shards;

/* Reads the headers of the selected .safetensors and .bsnap files of a folder. Fails if there are none. */
int shards_open(shards *s, codec *c, const char *path, const selection *select, fault *f);
/* Gives each tensor its partner, the tensor of the same name in the other folder. Files of the same name, packed or not, are
 * paired first. Then, if one such tensor is left in each folder, these two are paired. Fails if more are left, since the choice
 * is unclear. */
int shards_pair(shards *a, shards *b, fault *f);
shard_tensor *shards_find(const shards *s, text_slice name, size_t file); /* null: that file does not hold it */
int shards_is_alone(const shards *s, const shard_tensor *t); /* 1 if no other file has a tensor of its name */
void shards_close(shards *s);

/* ================================================================================= BASES
 * A folder whose files are the bases of deltas. It may hold several models, so several files may hold a tensor of one name. */

/* Reads the headers of all .safetensors and .bsnap files of a folder. A .bsnap file is skipped if its unpacked file is there too.
 * The bases of its deltas are in the folder `before`; if that is null, they are whole files of this folder. A file that cannot be
 * a base gets `why` and no header. */
int shards_open_bases(shards *s, codec *c, const char *path, const shards *before, fault *f);

/* Returns the number of the file NAME or NAME.bsnap; s->count if there is neither. */
size_t shards_called(const shards *s, const char *name);

/* Opens a file and appends it to a list of bases that ends with `last`. If `last` is null, the file becomes *list. Returns the
 * new last base, or null. Call base_close(list) after failures, too. */
base *shards_add_base(const shards *s, size_t number, codec *c, uint64_t limit, base *list, base *last, fault *f);

/* Opens the bases of a delta, the files whose headers match its ends. If several match, chooses by the name that the delta gives,
 * then by the name of the delta, `name`. Fails if that leaves no file, or more than one. */
int shards_find_bases(const shards *s, const delta_ends *ends, const char *name, codec *c, uint64_t limit, base *list, fault *f);

#endif
