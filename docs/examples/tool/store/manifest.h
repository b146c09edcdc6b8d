/* manifest.h - the manifest of a store of snapshots: its steps, the files of each step, and the objects that hold them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Its text is JSON, described in docs/TOOL.md. The text may be hostile. In a manifest that was parsed, every reference leads to
 * an object, no chain is longer than CHAIN_MAX, and no path or link leads out of its folder.
 *
 * A store has three kinds of files with such texts:
 *     manifest.json         all steps
 *     manifest-before.json  the manifest before the last change
 *     objects/step-N.json   the record of step N: a manifest of that step alone. manifest.json can be rebuilt from all records */
#ifndef TOOL_MANIFEST_H
#define TOOL_MANIFEST_H

#include "../console/fault.h"

#include <stdint.h>

#define OBJECT_NAME 48             /* most bytes of an object's name, with its 0 */
#define CHAIN_MAX 256u             /* most objects that are read to restore one */
#define STEP_MAX 9007199254740991u /* 2^53 - 1, the largest integer that all JSON readers keep exactly */
#define STEP_DIGITS 16
#define MANIFEST "manifest.json"
#define MANIFEST_BEFORE "manifest-before.json"
#define OBJECTS "objects"

/* The content of a file, identified by its content id, the XXH3 of its bytes. */
typedef struct store_object {
    uint64_t id, size; /* of the content */
    uint64_t base;     /* if has_base: id of the content that it is a delta to */
    int has_base;
    int tensors;       /* 1: stored as a .bsnap file, 0: as a copy */
    uint64_t bytes;    /* of the object */
    int used;          /* a mark */
} store_object;

typedef enum entry_kind { ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK } entry_kind;

typedef struct store_entry {
    entry_kind kind;
    char *path;        /* in the step's folder */
    char *to;          /* of a link: its text */
    unsigned mode;     /* of files and folders */
    uint64_t id;       /* of a file: its content */
} store_entry;

typedef struct store_step {
    uint64_t number;
    char time[21];     /* when it was added: 2026-01-31T23:59:59Z */
    unsigned mode;     /* of the folder itself */
    int recorded;      /* 1: read from a file; 0: new, so it has no record yet */
    store_entry *entries; /* sorted by path, as strcmp compares */
    size_t count, capacity;
} store_step;

typedef struct manifest {
    store_object *objects; /* sorted by id */
    store_step *steps;     /* sorted by number */
    size_t object_count, object_capacity, step_count, step_capacity;
} manifest;

/* Parses a text. Accepts texts without a check at their end, which earlier versions wrote. Always call manifest_free. */
int manifest_parse(manifest *m, const char *text, size_t size, fault *f);
void manifest_free(manifest *m);

typedef enum manifest_status {
    MANIFEST_GOOD,
    MANIFEST_NONE,    /* the file does not exist */
    MANIFEST_DAMAGED,
    MANIFEST_FAILED   /* it cannot be read, is not a file, or is whole but of another program */
} manifest_status;

/* Reads the file `name` in a folder. The fault has its path. */
manifest_status manifest_read(manifest *m, const char *folder, const char *name, fault *f);

/* The text of a manifest, which the caller frees; null: no memory. */
char *manifest_print(const manifest *m, size_t *size);

/* Writes the manifest of a store: first the records of steps that have none, then manifest-before.json, then manifest.json. Each
 * file is replaced as a whole, so a process that is killed leaves the old text or the new one. The caller holds the store's lock;
 * manifest.json is absent or the file that it has read. */
int manifest_save(const manifest *m, const char *store, fault *f);

/* Makes the name of a step's record in `objects`. */
void record_name(uint64_t step, char name[OBJECT_NAME]);

/* Makes the name of the file that holds an object. */
void object_name(const store_object *x, char name[OBJECT_NAME]);

store_object *manifest_object(const manifest *m, uint64_t id);             /* null: not found */
store_object *manifest_add_object(manifest *m, const store_object *x, fault *f); /* may move the others; null: no memory */
size_t manifest_find(const manifest *m, uint64_t number);                  /* index of the first step >= number */
int manifest_add_step(manifest *m, store_step *s, fault *f);               /* takes over the memory of *s */
store_entry *step_add(store_step *s, entry_kind kind, const char *path, unsigned mode, fault *f);
void step_sort(store_step *s);
store_entry *step_entry(const store_step *s, const char *path);            /* null: not found */
int step_date(store_step *s);                                              /* sets its time to now; 0: the clock is wrong */
int step_has(const store_step *s, uint64_t id);                            /* 1 if one of its files has that content */

/* Lists the objects that restore x: the whole one first, then each delta, x last. Returns their number. */
size_t manifest_chain(const manifest *m, const store_object *x, const store_object *chain[CHAIN_MAX]);

/* manifest_mark marks the objects of the files of a step. manifest_mark_chains marks all objects that marked ones need. */
void manifest_mark(const manifest *m, const store_step *s);
void manifest_mark_chains(const manifest *m);

/* Remove a step; the objects that are not marked. */
void manifest_remove_step(manifest *m, size_t i);
void manifest_remove_unmarked(manifest *m);
void manifest_drop_unneeded(manifest *m); /* objects that no step needs */
void manifest_remove_broken(manifest *m); /* objects whose chain is incomplete */

uint64_t manifest_bytes(const manifest *m); /* sum over all objects */
void step_free(store_step *s);

/* Return 1 if a step may have an entry of this path; a link of this text at that path. */
int manifest_path_is_good(const char *path);
int manifest_link_is_good(const char *path, const char *to);

#endif
