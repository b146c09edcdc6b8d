/* manifest.h - what a store of snapshots holds: steps, the files of each, and the objects that these are in.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * As text it is JSON, in which people can read: see docs/TOOL.md. What is read may be anything: afterwards every reference leads
 * to something, no chain is longer than CHAIN_MAX, and no path or link leads out of its folder.
 *
 * A store has three kinds of files with such texts:
 *     manifest.json         all steps
 *     manifest-before.json  the manifest before the last change
 *     objects/step-N.json   the record of step N: a manifest of that step alone. manifest.json can be rebuilt from all records */
#ifndef TOOL_MANIFEST_H
#define TOOL_MANIFEST_H

#include "../console/fault.h"

#include <stdint.h>

#define OBJECT_NAME 48             /* bytes that the name of an object takes, at most */
#define CHAIN_MAX 256u             /* objects that one may take to be restored */
#define STEP_MAX 9007199254740991u /* what every reader of JSON takes as it is */
#define STEP_DIGITS 16
#define MANIFEST "manifest.json"
#define MANIFEST_BEFORE "manifest-before.json"
#define OBJECTS "objects"

/* A file's content, under its content id: the XXH3 of its bytes. */
typedef struct store_object {
    uint64_t id, size; /* of the content */
    uint64_t base;     /* the id of what it is a delta to, where has_base */
    int has_base;
    int tensors;       /* a .bsnap file, else a copy */
    uint64_t bytes;    /* of the object */
    int used;          /* a mark */
} store_object;

typedef enum entry_kind { ENTRY_FILE, ENTRY_FOLDER, ENTRY_LINK } entry_kind;

typedef struct store_entry {
    entry_kind kind;
    char *path;        /* in the step's folder */
    char *to;          /* of a link: what it says */
    unsigned mode;     /* of files and folders */
    uint64_t id;       /* of a file: its content */
} store_entry;

typedef struct store_step {
    uint64_t number;
    char time[21];     /* when it came: 2026-01-31T23:59:59Z */
    unsigned mode;     /* of the folder itself */
    int recorded;      /* it was read from a file; a new step has no record yet */
    store_entry *entries; /* in the order of their paths, as strcmp has it */
    size_t count, capacity;
} store_step;

typedef struct manifest {
    store_object *objects; /* in the order of their ids */
    store_step *steps;     /* in the order of their numbers */
    size_t object_count, object_capacity, step_count, step_capacity;
} manifest;

/* Parses a text. Texts without a check at their end are accepted: earlier versions wrote them. manifest_free is to be called after
 * failures, too. */
int manifest_parse(manifest *m, const char *text, size_t size, fault *f);
void manifest_free(manifest *m);

typedef enum manifest_status {
    MANIFEST_GOOD,
    MANIFEST_NONE,    /* there is no such file */
    MANIFEST_DAMAGED,
    MANIFEST_FAILED   /* it cannot be read, is no file, or is whole but made by something else */
} manifest_status;

/* Reads the file `name` in a folder. The fault has its path. */
manifest_status manifest_read(manifest *m, const char *folder, const char *name, fault *f);

/* The text of a manifest, which the caller frees; null: no memory. */
char *manifest_print(const manifest *m, size_t *size);

/* Writes the manifest of a store: first the records of steps that have none, then manifest-before.json, at last manifest.json. Each file
 * is replaced as a whole, so a process that is killed leaves the old text or the new one. The caller holds the store's lock, and
 * manifest.json is the one that it has read, or is absent. */
int manifest_save(const manifest *m, const char *store, fault *f);

/* The name of a step's record in `objects`. */
void record_name(uint64_t step, char name[OBJECT_NAME]);

/* What the file is called that an object is in. */
void object_name(const store_object *x, char name[OBJECT_NAME]);

store_object *manifest_object(const manifest *m, uint64_t id);             /* null: there is none */
store_object *manifest_add_object(manifest *m, const store_object *x, fault *f); /* moves others; null: no memory */
size_t manifest_find(const manifest *m, uint64_t number);                  /* the first step that is not below it */
int manifest_add_step(manifest *m, store_step *s, fault *f);               /* takes what it has */
store_entry *step_add(store_step *s, entry_kind kind, const char *path, unsigned mode, fault *f);
void step_sort(store_step *s);
store_entry *step_entry(const store_step *s, const char *path);            /* null: there is none */
int step_date(store_step *s);                                              /* it comes now; 0: the clock is wrong */
int step_has(const store_step *s, uint64_t id);                            /* whether a file has that content */

/* What it takes to restore an object: itself last, before it what it is a delta to. Returns how many. */
size_t manifest_chain(const manifest *m, const store_object *x, const store_object *chain[CHAIN_MAX]);

/* Marks the objects that the files of a step are in; then those that marked ones are deltas to. */
void manifest_mark(const manifest *m, const store_step *s);
void manifest_mark_chains(const manifest *m);

/* Takes away a step, or the objects that are not marked. */
void manifest_remove_step(manifest *m, size_t i);
void manifest_remove_unmarked(manifest *m);
void manifest_drop_unneeded(manifest *m); /* objects that no step takes to be restored */
void manifest_remove_broken(manifest *m); /* objects whose chain is not there */

uint64_t manifest_bytes(const manifest *m); /* of all objects */
void step_free(store_step *s);

/* Whether a step may have such a path in it, and in that place such a link. */
int manifest_path_is_good(const char *path);
int manifest_link_is_good(const char *path, const char *to);

#endif
