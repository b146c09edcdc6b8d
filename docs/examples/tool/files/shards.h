/* shards.h - the tensors of a folder, by name: in which of its files each is.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SHARDS_H
#define TOOL_SHARDS_H

#include "base.h"
#include "container.h"
#include "../system/walk.h"

typedef struct shard {
    const char *path, *name; /* name: from the folder on */
    char *text;              /* the header text */
    safetensors model;
    delta_ends ends;         /* `own`, without the text, is what deltas to it say of it; the rest is of deltas */
    int is_delta;
    int is_twin;             /* of bases: another name of one before it */
    char *why;               /* of bases: why it is none, though it is called so; or null */
} shard;

#define NO_SHARD SIZE_MAX

typedef struct shard_tensor {
    text_slice name;
    size_t shard, partner; /* in which file it is, and in which file of the other folder what it is compared with; or NO_SHARD */
} shard_tensor;

typedef struct shards {
    walk folder;
    shard *files;
    size_t count;
    shard_tensor *tensors; /* by name, then by shard; of bases there are none */
    size_t tensor_count;
    const char *path;
    const struct shards *before; /* of bases: the folder that has what its deltas are against, or null */
} shards;

/* Of all .safetensors and .bsnap files in the folder that are selected. */
int shards_open(shards *s, codec *c, const char *path, const selection *select, fault *f);
/* Gives tensors of one name their partners: those in files of one name, packed or not; then what is left, if that is one in each folder.
 * It fails where it cannot be told which is whose. */
int shards_pair(shards *a, shards *b, fault *f);
shard_tensor *shards_find(const shards *s, text_slice name, size_t file); /* null: it has none */
int shards_is_alone(const shards *s, const shard_tensor *t); /* whether no other file has a tensor of its name */
void shards_close(shards *s);

/* ================================================================================= BASES
 * A folder as what deltas are against: the files of one model, or of several; names may be in more than one. */

/* Of all .safetensors and .bsnap files in the folder, but for what is packed beside a file that is not. Deltas have their bases in the
 * folder `before`, or, if that is null, beside them, as whole files. What can be no base has a reason instead of tensors. */
int shards_open_bases(shards *s, codec *c, const char *path, const shards *before, fault *f);

/* The number of the file that is called so, packed or not; s->count: there is none. */
size_t shards_called(const shards *s, const char *name);

/* Adds a file to a list of bases, the last of which is `last` (null: it is the first, and becomes `list`); returns the new last one, or null.
 * base_close of the list is to be called after failures, too. */
base *shards_add_base(const shards *s, size_t number, codec *c, uint64_t limit, base *list, base *last, fault *f);

/* Opens the bases of a delta: the files with the headers that these ends have, by their names, then by that of the delta, `name`. */
int shards_find_bases(const shards *s, const delta_ends *ends, const char *name, codec *c, uint64_t limit, base *list, fault *f);

#endif
