/* store.h - a folder of snapshots on the disk.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 *     manifest.json         what there is: replaced as a whole
 *     manifest-before.json  what there was before the last change
 *     objects/              contents: ID.bsnap, ID-BASE.bsnap for a delta, ID for a copy of what is no tensor file; and the record of
 *                           each step: step-N.json
 *     lock                  who changes it; then the names of what that run adds, or removes
 *
 * An object is written before the manifest that names it, and removed after the manifest that no longer does. So whenever a run ends,
 * everything in the manifest is there. What a run adds or removes it notes in the lock before, unless there is a file of that name
 * already. If it is killed, the next run that changes the store reads these names, and removes those that the manifest does not have.
 * Nothing else is ever removed: a file that nobody noted may be all that there is of a step whose manifest was lost. */
#ifndef TOOL_STORE_H
#define TOOL_STORE_H

#include "manifest.h"

typedef enum store_use { STORE_LOOK, STORE_READ, STORE_CHANGE, STORE_CREATE, STORE_REBUILD } store_use;

typedef struct store {
    const char *path;
    int lock;
    int changes;     /* this run may write, and what the lock notes is its own */
    int begun, made; /* by this run: the store; its folder, too */
    int absent;      /* after a failure: nothing is there, or a folder that has no sign of a store */
    int lost;        /* manifest.json is damaged or absent, and m is the one before it, or with STORE_REBUILD empty */
    fault why;       /* what is wrong with it */
    manifest m;
} store;

/* Opens it for `command`: to look at the manifest, to read objects, which nobody then removes, or to change it, which one run
 * can at a time. STORE_CREATE: makes it where nothing is. STORE_REBUILD: as to change it, but without a good manifest, too.
 *
 * If manifest.json is damaged or absent, LOOK and READ take manifest-before.json, if every object in it is there with its size: what
 * that says of a step is right, but which steps there are is not known. All other uses are refused. store_close is to be called after
 * failures, too. */
int store_open(store *s, const char *path, store_use how, const char *command, fault *f);
void store_close(store *s);

/* The path of something in it, or of an object; to be freed. */
char *store_path(const store *s, const char *folder, const char *name, fault *f);
char *store_object_path(const store *s, const store_object *x, fault *f);

/* Before files get these names in `objects`: they are removed if the run ends before a manifest names them. */
int store_note(const store *s, const char *const *names, size_t count, fault *f);

/* Replaces the manifest of the store, then removes each noted object that it does not name. store_sweep does only the latter. */
int store_save(store *s, fault *f);
int store_sweep(const store *s, fault *f);

/* After a failure: removes the objects that were noted since. */
void store_undo(store *s);

/* Makes the manifest anew from the names in `objects` and the records of steps, and writes it unless `dry`. A step that has a file in no
 * object is left out. `lost` is called for each of them, and for each record that is damaged. manifest.json, if there is one, becomes
 * manifest-damaged.json. Removes nothing. */
int store_rebuild(store *s, int dry, void (*lost)(void *context, const char *path, const char *what), void *context, fault *f);

/* Counts the files in `objects` that the manifest does not name, and gives the name of one. */
int store_strays(const store *s, char first[256], size_t *count, fault *f);

#endif
