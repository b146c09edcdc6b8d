/* engine_disk.h - snapshots on disk: .bsnap files, and a manifest that lists them. MIT licence, see bitsnap.h.
 *
 * DIRECTORY/NAME-0000000040-1a2b3c4d.bsnap is the snapshot of step 40 of rank NAME, by the attempt whose id begins with 1a2b3c4d.
 * Its source is a .safetensors file. The metadata names run, attempt, rank and step, and the ancestors of the attempt.
 *
 * DIRECTORY/NAME.manifest lists the complete files, as text: "bitsnap engine 2"; "run ID GENERATION"; "attempt ID END" for the
 * writing attempt and each ancestor, youngest first; "STEP SIZE RANKS ATTEMPT FILE" for each file, oldest first; and "check X",
 * the XXH3 of the lines before as 16 hexadecimal digits. A file is on disk before it gets its name, has its name before it is
 * listed, and is off the list before it is removed. A lost or damaged manifest is made again from the files. */
#ifndef BITSNAP_ENGINE_DISK_H
#define BITSNAP_ENGINE_DISK_H

#include "bitsnap_engine.h"

/* These two set the error, and return its status. */
engine_status engine_fail(engine_error *error, engine_status status, const char *format, ...);
engine_status engine_good(engine_error *error);

/* ================================================================================= IDENTITY
 * A run and each of its attempts has an id. Snapshots are found by name; ids tell which of them belong together. */

typedef struct engine_id {
    uint64_t x[2];
} engine_id;

enum { LINEAGE = 10, ID_TEXT = 33 };

typedef struct engine_link {
    engine_id attempt;
    uint64_t end; /* steps below it are alive; UINT64_MAX: all */
} engine_link;

/* The ancestry of an attempt: itself, its parent, the parent's parent, ... Steps of an attempt from `end` on are dead, because a
 * later attempt began before them. A full chain drops ancestors without steps first, then the oldest. If an attempt of the same
 * run is LINEAGE generations older and not in a full chain, the chain has dropped it, and its steps are dead. */
typedef struct engine_lineage {
    engine_id run;
    uint64_t generation; /* number of attempts before this one */
    uint64_t count;      /* number of links; 0: no lineage */
    engine_link links[LINEAGE];
} engine_lineage;

enum { OLDER = -1, EQUAL = 0, NEWER = 1, UNRELATED = 2 };

int engine_same_id(const engine_id *a, const engine_id *b);
const char *engine_id_text(char text[ID_TEXT], const engine_id *id);
int engine_parse_id(engine_id *id, const char *text); /* returns 1 unless `text` begins with 32 hexadecimal digits */

/* Return the index of an attempt in a lineage; -1 if it is not there. engine_lineage_alive also returns -1 if the step is
 * dead. */
int engine_lineage_place(const engine_lineage *l, const engine_id *attempt);
int engine_lineage_alive(const engine_lineage *l, const engine_id *attempt, uint64_t step);

/* NEWER: `a` descends from `b`. OLDER: `b` descends from `a`. UNRELATED: neither does, or the runs differ. */
int engine_lineage_order(const engine_lineage *a, const engine_lineage *b);

/* Makes the lineage of an attempt that leaves its parent before step `end`. A full parent must have been shortened. */
void engine_lineage_child(engine_lineage *child, const engine_lineage *parent, const engine_id *attempt, uint64_t end);

/* Returns whether a lineage is possible. Seals can hold any bytes. */
int engine_lineage_good(const engine_lineage *l);

enum { DISK_ENTRIES = 64, DISK_PATH = 4096 };

typedef struct disk_entry {
    uint64_t step, size;
    uint64_t ranks; /* number of ranks that took the snapshot together */
    engine_id attempt;
} disk_entry;

typedef struct disk_manifest {
    engine_lineage line; /* lineage of the attempt that wrote last */
    unsigned count;
    disk_entry entries[DISK_ENTRIES]; /* oldest first */
} disk_manifest;

struct bitsnap_file;

enum { DISK_TYPE = 256 };

/* Writes type and shape of a tensor in the form of engine_tensor.type, where equal texts mean equal types and shapes. Returns the
 * length; 0 if the type is unknown, or contradicts dtype or count. */
size_t disk_type(char text[DISK_TYPE], const engine_tensor *t);

/* Parses the text of a manifest. Returns null, or a message that says what is wrong. */
const char *disk_parse(disk_manifest *m, const char *text, size_t size);

/* Turns the error of a call on a file into one of the engine. `name`: the tensor, or "". ENGINE_E_SYSTEM: the file may be good,
 * but cannot be read now, or memory is short. */
engine_status disk_fail(const struct bitsnap_file *f, const char *path, const char *name, engine_error *error);

/* Reads a manifest; if it is missing or damaged, makes the list from the files. Files that are gone are not listed.
 * ENGINE_E_NONE: no manifest and no files. ENGINE_E_DAMAGED: a damaged manifest and no files. ENGINE_E_SYSTEM: cannot be read. */
engine_status disk_read_manifest(disk_manifest *m, const char *directory, const char *name, engine_error *error);

/* Makes a manifest from the metadata of a name's files: those of the newest attempt and of its ancestors. `run`: only files of
 * this run; null: of any. *files: the number of files of this name. ENGINE_E_SCATTERED: the files belong to several runs, or to
 * attempts that do not descend from one another. */
engine_status disk_list_files(disk_manifest *m, const char *directory, const char *name, const engine_id *run, unsigned *files, engine_error *error);

/* Restores the tensors from the file with this step, attempt and number of ranks. ENGINE_E_NONE: it is not listed. */
engine_status disk_recover(const char *directory, const char *name, const disk_entry *wanted, const engine_tensor *tensors, size_t count, engine_error *error);

/* disk_find_all finds the newest step that is alive in a lineage and listed by all its ranks, RUN.0, RUN.1, ... Only steps with
 * another number of ranks than `ranks` count. ENGINE_E_NONE: there is no such step. Damaged or unreadable manifests give other
 * errors. disk_recover_all restores tensors from these files, whichever of them has a tensor, by the rules of engine_recover. */
engine_status disk_find_all(const char *directory, const char *run, const engine_lineage *line, uint64_t ranks, disk_entry *found, engine_error *error);
engine_status disk_recover_all(const char *directory, const char *run, const disk_entry *wanted, const engine_tensor *tensors, size_t count, engine_error *error);

/* Frees a name that another run has: adds that run's id to the name of its store or manifest. Files are not touched. `to`: the
 * new name; empty if nothing was in the way. */
engine_status disk_put_aside(const char *directory, const char *name, const engine_lineage *line, char to[DISK_PATH], engine_error *error);

/* For engine fsck: makes a lost or damaged manifest again from its files. *made: 1 if it did. */
engine_status disk_mend(const char *directory, const char *name, const engine_id *run, disk_manifest *m, int *made, engine_error *error);

int disk_is_there(const char *path, uint64_t size); /* 0 only if there is certainly no file of that size */

/* Another form of snapshots in a directory: see engine_store.h. */
typedef struct disk_form {
    /* ENGINE_E_NONE: there are no snapshots of this form */
    engine_status (*list)(disk_manifest *m, const char *directory, const char *name, engine_error *error);
    engine_status (*open)(void **opened, struct bitsnap_file **file, const char *directory, const char *name, const disk_entry *e, engine_error *error);
    void (*close)(void *opened);
    const char *end; /* follows the name of a run: ".store" */
} disk_form;

extern const disk_form *disk_other_form; /* null: files only */

typedef struct disk_writer {
    const char *directory, *name;
    double rate;         /* most bytes a second; 0: no limit */
    unsigned keep;       /* number of files; older ones are removed */
    disk_entry common;   /* a step that all ranks have on disk, and that is never removed; ranks 0: none */
    int (*let_go)(void *context); /* if it returns nonzero, the file is given up */
    void *context;
} disk_writer;

/* A file being written, at the writer's rate, until let_go ends it. */
typedef struct disk_sink {
    const disk_writer *w;
    int fd, given_up, error; /* errno */
    uint64_t written;
    double start;
} disk_sink;

int disk_open_sink(disk_sink *s, const disk_writer *w, const char *path, engine_error *error);
int disk_put(void *sink, const void *bytes, size_t size); /* for bitsnap_sink */
/* Closes the file. If `error` is ENGINE_OK, gives it its name. Otherwise removes it, and adds the sink's own error. */
engine_status disk_close_sink(disk_sink *s, const char *temporary, const char *path, const char *directory, uint64_t step, engine_error *error);

/* disk_text returns the header text of a .safetensors file with these tensors; the caller frees it. disk_is_quantized returns
 * whether some frames of a snapshot are quantized. */
char *disk_text(const engine_tensor *tensors, size_t count, const char *metadata, size_t *size);
int disk_is_quantized(engine_reader *r, const engine_tensor *tensors, size_t count);

/* bitsnap_source.read for a file descriptor. `fd` points to it. */
int disk_read_at(void *fd, uint64_t offset, void *to, size_t size);

const engine_lineage *engine_reader_lineage(const engine_reader *r); /* lineage of the snapshot that the reader holds */

/* Return whether a new trainer has yet to recover. Until then the files that it sees listed must stay, so nothing new is
 * listed. */
int engine_reader_is_late(const engine_reader *r);
engine_status disk_is_late(const engine_reader *r, engine_error *error);

/* For the agent: announces that it writes every step that is a multiple of `every`. *common: the step that all ranks have on
 * disk; its ranks are 0 if there is no such step. */
void engine_reader_disk(engine_reader *r, uint64_t every, disk_entry *common);

/* disk_metadata writes the text of "__metadata__" that identifies a snapshot, at most METADATA bytes. disk_parse_metadata parses
 * it, and returns 1 if it does not identify one. */
enum { METADATA = 1024 };
void disk_metadata(char text[METADATA], const engine_lineage *line, uint64_t step, uint64_t rank, uint64_t ranks);
int disk_parse_metadata(const char *text, size_t size, engine_lineage *line, disk_entry *e, uint64_t *rank);

/* Checks that the attempt that wrote last is the same one or an ancestor. If not: ENGINE_E_FENCED, with the reason. */
engine_status disk_may_write(const engine_lineage *mine, const engine_lineage *theirs, const char *path, engine_error *error);

/* Writes the snapshot that the reader holds. *m receives the new list. An error leaves no new file. ENGINE_E_BUSY: given up, see
 * let_go.
 * ENGINE_E_FENCED: the name belongs to a later attempt or to another run. */
engine_status disk_write(const disk_writer *w, disk_manifest *m, engine_reader *r, uint64_t step, engine_error *error);

#endif
