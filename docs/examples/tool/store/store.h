/* store.h - a folder of snapshots on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 *     manifest.json         all steps and objects; replaced as a whole
 *     manifest-before.json  the manifest before the last change
 *     objects/              ID.bsnap: a tensor file; ID-BASE.bsnap: a delta; ID: a copy of any other file; step-N.json: the
 *                           record of a step
 *     lock                  names the run that changes the store, then the objects that it adds or removes
 *
 * An object is written before the manifest that names it, and removed after the manifest that no longer does. So whenever a run
 * ends, every object of the manifest exists. Before a run adds or removes an object, it notes the name in the lock, unless it
 * would add a file that exists already. After a run that was killed, the next run that changes the store reads these names, and
 * removes those that the manifest does not have. Nothing else is ever removed: any other file may be all that is left of a step
 * whose manifest was lost. */
#ifndef TOOL_STORE_H
#define TOOL_STORE_H

#include "manifest.h"

typedef enum store_use { STORE_LOOK, STORE_READ, STORE_CHANGE, STORE_CREATE, STORE_REBUILD } store_use;

typedef struct store {
    const char *path;
    int lock;
    int changes;     /* 1: this run may write, and the lock holds its notes */
    int begun, made; /* 1: this run began the store; made its folder, too */
    int absent;      /* after a failure, 1: the path does not exist, or is a folder without any sign of a store */
    int lost;        /* 1: manifest.json is damaged or absent; m is manifest-before.json, or empty with STORE_REBUILD */
    fault why;       /* if `lost`: what is wrong with manifest.json */
    manifest m;
} store;

/* Opens a store for `command`. STORE_LOOK reads the manifest only. STORE_READ reads objects, and keeps other runs from removing
 * them. STORE_CHANGE changes it; only one run can at a time. STORE_CREATE does, too, and makes the store if it does not exist.
 * STORE_REBUILD changes it without needing a good manifest.
 *
 * If manifest.json is damaged or absent, LOOK and READ use manifest-before.json, provided that every object in it exists with its
 * size. Its steps are right, but steps may be missing, or removed by now. CHANGE and CREATE fail. Call store_close after
 * failures, too. */
int store_open(store *s, const char *path, store_use how, const char *command, fault *f);
void store_close(store *s);

/* Return the path of a file in the store; of an object. The caller frees it. */
char *store_path(const store *s, const char *folder, const char *name, fault *f);
char *store_object_path(const store *s, const store_object *x, fault *f);

/* Notes names before files in `objects` get them. If the run ends before a manifest names these files, they are removed. */
int store_note(const store *s, const char *const *names, size_t count, fault *f);

/* Replaces the manifest of the store, then removes each noted object that it does not name. store_sweep does only the latter. */
int store_save(store *s, fault *f);
int store_sweep(const store *s, fault *f);

/* After a failure: removes the noted objects that the manifest does not name. */
void store_undo(store *s);

/* Rebuilds the manifest from the names in `objects` and the records of steps, and writes it unless `dry`. Leaves out a step if
 * the object of one of its files is missing. Calls `lost` for each such step, and for each damaged record. An existing
 * manifest.json is renamed to manifest-damaged.json. Removes nothing. */
int store_rebuild(store *s, int dry, void (*lost)(void *context, const char *path, const char *what), void *context, fault *f);

/* Counts the files in `objects` that the manifest does not name, and gives the name of one. */
int store_strays(const store *s, char first[256], size_t *count, fault *f);

#endif
