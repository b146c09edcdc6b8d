/* shards.h - the tensors of a folder, by name: in which of its files each is.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_SHARDS_H
#define TOOL_SHARDS_H

#include "codec.h"
#include "container.h"
#include "../system/walk.h"

typedef struct shard {
    const char *path, *name; /* name: from the folder on */
    char *text;              /* the header text */
    safetensors model;
} shard;

typedef struct shard_tensor {
    text_slice name;
    size_t shard;
} shard_tensor;

typedef struct shards {
    walk folder;
    shard *files;
    size_t count;
    shard_tensor *tensors; /* by name */
    size_t tensor_count;
} shards;

/* Of all .safetensors and .bsnap files in the folder that are selected. No two tensors may have one name. */
int shards_open(shards *s, codec *c, const char *path, const selection *select, fault *f);
const shard_tensor *shards_find(const shards *s, text_slice name); /* or null */
void shards_close(shards *s);

#endif
