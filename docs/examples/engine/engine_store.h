/* engine_store.h - snapshots on disk as deltas to each other: the stores of bitsnap's tool. MIT licence, see bitsnap.h.
 *
 * DIRECTORY/NAME.store is such a store (docs/TOOL.md, "Snapshots of a run"): `bitsnap log`, `restore`, `verify` and `prune`
 * accept it. A step has engine.json, which names run, attempt, rank and step, and rank-R-of-N.safetensors, whole or as a delta to
 * that of the step before. The next file is whole if the last delta takes more bytes than the average file of its chain, since a
 * longer chain would then cost more than it saves; if the deltas together take over twice the bytes of the whole file; or if the
 * chain has 16 files, all of which a restore reads. With quantized moments all files are whole, because a delta has no quantized
 * frames.
 *
 * Needs the engine, and these files of the tool: store/manifest.c and store.c, console/json.c and fault.c, system/paths.c. Works
 * on little-endian machines. */
#ifndef BITSNAP_ENGINE_STORE_H
#define BITSNAP_ENGINE_STORE_H

#include "engine_disk.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Lets recovery in this process find stores. A name that has a store is read from it, not from files. */
void engine_use_stores(void);

#ifdef __cplusplus
}
#endif

/* Writes a snapshot to a store, as disk_write does. Keeps w->keep steps, and earlier ones that these are deltas to. */
engine_status disk_store_write(const disk_writer *w, engine_reader *r, uint64_t step, engine_error *error);

#endif
