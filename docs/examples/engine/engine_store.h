/* engine_store.h - snapshots on disk as deltas to each other: the stores of bitsnap's tool. MIT licence, see bitsnap.h.
 *
 * DIRECTORY/NAME.store is such a store (docs/TOOL.md, "Snapshots of a run"), which `bitsnap log`, `restore`, `verify` and `prune` take. A step of it has
 * engine.json, which says of which run, attempt, rank and step it is, and rank-R-of-N.safetensors: whole, or a delta to that of the step before. The next one is whole where a delta has taken more than the files of
 * its chain on average, so that longer chains would cost more than they save; where deltas take twice what the whole one does; or where
 * a chain has 16 files, which is what restoring reads. With quantized moments all are whole: a delta has no quantized frames.
 * Besides the engine it needs of the tool store/manifest.c and store.c, console/json.c and fault.c, system/paths.c; little-endian machines. */
#ifndef BITSNAP_ENGINE_STORE_H
#define BITSNAP_ENGINE_STORE_H

#include "engine_disk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* From here on, in this process, recovery finds stores, too: where there is one, it is what is on disk. */
void engine_use_stores(void);

#ifdef __cplusplus
}
#endif

/* As disk_write, of w->keep steps, and those before them that they are deltas to. */
engine_status disk_store_write(const disk_writer *w, engine_reader *r, uint64_t step, engine_error *error);

#endif
