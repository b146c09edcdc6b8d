/* engine_disk.h - snapshots on disk: .bsnap files, and a manifest that lists them. MIT licence, see bitsnap.h.
 *
 * DIRECTORY/NAME-0000000040-1a2b3c4d.bsnap is the snapshot of step 40 of the rank NAME, by the attempt whose id begins with these digits. It is a
 * .safetensors file to every reader of such files. Its metadata says of which run, attempt, rank and step it is, and how the attempt descends.
 * DIRECTORY/NAME.manifest lists the files that are complete, as text: "bitsnap engine 2"; "run ID GENERATION"; "attempt ID END" for the attempt
 * that writes and for each of its ancestors, youngest first; "STEP SIZE RANKS ATTEMPT FILE" for each file, oldest first; and "check X", the XXH3 of
 * the lines before as 16 hexadecimal digits. A file is on the disk before it has its name, has its name before the manifest has it, and has left
 * the manifest before it is removed. A manifest that is lost or damaged is made again from the files. */
#ifndef BITSNAP_ENGINE_DISK_H
#define BITSNAP_ENGINE_DISK_H

#include "bitsnap_engine.h"

/* Both set the error, and return its status. */
engine_status engine_fail(engine_error *error, engine_status status, const char *format, ...);
engine_status engine_good(engine_error *error);

/* ================================================================================= IDENTITY
 * A run and each of its attempts has an id. A name finds snapshots; ids decide what belongs together. */

typedef struct engine_id {
    uint64_t x[2];
} engine_id;

enum { LINEAGE = 10, ID_TEXT = 33 };

typedef struct engine_link {
    engine_id attempt;
    uint64_t end; /* steps below it are alive; UINT64_MAX: all */
} engine_link;

/* How an attempt descends: itself, its parent, the parent's parent, ... Steps of an attempt from `end` on are dead: a later attempt began before them.
 * Longer chains lose ancestors of which no step is left first, then the oldest. An attempt of the same run that is not in a full chain, and is
 * LINEAGE generations older, is one that the chain has lost: its steps are dead. */
typedef struct engine_lineage {
    engine_id run;
    uint64_t generation; /* attempts before this one */
    uint64_t count;      /* of links; 0: no lineage */
    engine_link links[LINEAGE];
} engine_lineage;

enum { OLDER = -1, EQUAL = 0, NEWER = 1, UNRELATED = 2 };

int engine_same_id(const engine_id *a, const engine_id *b);
const char *engine_id_text(char text[ID_TEXT], const engine_id *id);
int engine_parse_id(engine_id *id, const char *text); /* 32 hexadecimal digits begin it; else 1 */

/* The place of an attempt in a lineage; -1: it has none there, or, with a step, that step of it is dead. */
int engine_lineage_place(const engine_lineage *l, const engine_id *attempt);
int engine_lineage_alive(const engine_lineage *l, const engine_id *attempt, uint64_t step);

/* Whether `a` descends from `b`: NEWER. UNRELATED: neither does, or they are of two runs. */
int engine_lineage_order(const engine_lineage *a, const engine_lineage *b);

/* A new attempt that leaves its parent before step `end`, which must have been shortened if it is full. */
void engine_lineage_child(engine_lineage *child, const engine_lineage *parent, const engine_id *attempt, uint64_t end);

/* Whether it can be one, as of a seal that may be anything. */
int engine_lineage_good(const engine_lineage *l);

enum { DISK_ENTRIES = 64, DISK_PATH = 4096 };

typedef struct disk_entry {
    uint64_t step, size;
    uint64_t ranks; /* that took the snapshot together */
    engine_id attempt;
} disk_entry;

typedef struct disk_manifest {
    engine_lineage line; /* of the attempt that wrote last */
    unsigned count;
    disk_entry entries[DISK_ENTRIES]; /* oldest first */
} disk_manifest;

struct bitsnap_file;

enum { DISK_TYPE = 256 };

/* Writes the type and the shape of a tensor as engine_tensor.type has them, so that equal texts are equal types and shapes. Returns the length;
 * 0: the tensor has a type that is unknown, or of another width or number of elements than dtype and count say. */
size_t disk_type(char text[DISK_TYPE], const engine_tensor *t);

/* What is wrong with the text of a manifest, or null. */
const char *disk_parse(disk_manifest *m, const char *text, size_t size);

/* What a call on a file has found, of a tensor of this name or "". ENGINE_E_SYSTEM: it cannot be read now, or there is no memory; it may be good. */
engine_status disk_fail(const struct bitsnap_file *f, const char *path, const char *name, engine_error *error);

/* ENGINE_E_NONE: there is no manifest, and no file. ENGINE_E_DAMAGED: it is none. ENGINE_E_SYSTEM: it cannot be read. Lists the files themselves where
 * there are some, but no manifest. */
engine_status disk_read_manifest(disk_manifest *m, const char *directory, const char *name, engine_error *error);

/* What the files say that are there of a name, as a manifest: of the newest attempt, and what it goes on from. ENGINE_E_SCATTERED: they are of several
 * runs, or of attempts of which none goes on from the other. `run`: only files of this one; null: of any. *files: how many files there are. */
engine_status disk_list_files(disk_manifest *m, const char *directory, const char *name, const engine_id *run, unsigned *files, engine_error *error);

/* Restores the tensors from the file of a step of an attempt that so many ranks took together. ENGINE_E_NONE: it is not listed. */
engine_status disk_recover(const char *directory, const char *name, const disk_entry *wanted, const engine_tensor *tensors, size_t count, engine_error *error);

/* The newest step, alive in a lineage, of which the files of all ranks, RUN.0, RUN.1, ..., are listed, of any number of ranks but `ranks`; and the
 * tensors from them, whichever has them, by the rules of engine_recover. ENGINE_E_NONE: there is no such step. A manifest that is damaged, or
 * cannot be read, is another error. */
engine_status disk_find_all(const char *directory, const char *run, const engine_lineage *line, uint64_t ranks, disk_entry *found, engine_error *error);
engine_status disk_recover_all(const char *directory, const char *run, const disk_entry *wanted, const engine_tensor *tensors, size_t count, engine_error *error);

/* Makes room for a run where another one has a name: the store, or the manifest, of that one gets a name of its run's, and files stay as they are.
 * `to`: that name; empty: nothing was in the way. */
engine_status disk_put_aside(const char *directory, const char *name, const engine_lineage *line, char to[DISK_PATH], engine_error *error);

/* engine fsck: makes the manifest of a name again from its files, if it is lost or damaged. *made: 1 if it did. */
engine_status disk_mend(const char *directory, const char *name, const engine_id *run, disk_manifest *m, int *made, engine_error *error);

int disk_is_there(const char *path, uint64_t size); /* a file of that size, as far as can be seen */

/* Snapshots in another form, where a directory has them: engine_store.h. */
typedef struct disk_form {
    engine_status (*list)(disk_manifest *m, const char *directory, const char *name, engine_error *error); /* ENGINE_E_NONE: it has none of these */
    engine_status (*open)(void **opened, struct bitsnap_file **file, const char *directory, const char *name, const disk_entry *e, engine_error *error);
    void (*close)(void *opened);
    const char *end; /* of what the name of a run is followed by: ".store" */
} disk_form;

extern const disk_form *disk_other_form; /* null: there is none */

typedef struct disk_writer {
    const char *directory, *name;
    double rate;         /* bytes a second at most; 0: as fast as the disk is */
    unsigned keep;       /* files; older ones are removed, */
    disk_entry common;   /* but this step, which all ranks have on disk; ranks 0: none */
    int (*let_go)(void *context); /* not 0: the file is given up */
    void *context;
} disk_writer;

/* Where bytes of a file go: no faster than the writer says, until it lets go. */
typedef struct disk_sink {
    const disk_writer *w;
    int fd, given_up, error; /* errno */
    uint64_t written;
    double start;
} disk_sink;

int disk_open_sink(disk_sink *s, const disk_writer *w, const char *path, engine_error *error);
int disk_put(void *sink, const void *bytes, size_t size); /* for bitsnap_sink */
/* Ends it: where `error` has none the file gets its name, else it is removed, and the error says what the sink knows of it. */
engine_status disk_close_sink(disk_sink *s, const char *temporary, const char *path, const char *directory, uint64_t step, engine_error *error);

/* The header text of a .safetensors file with these tensors, in memory that the caller frees; and whether some frames are quantized. */
char *disk_text(const engine_tensor *tensors, size_t count, const char *metadata, size_t *size);
int disk_is_quantized(engine_reader *r, const engine_tensor *tensors, size_t count);

/* bitsnap_source.read of a descriptor. */
int disk_read_at(void *fd, uint64_t offset, void *to, size_t size);

const engine_lineage *engine_reader_lineage(const engine_reader *r); /* of the snapshot that it holds */

/* Whether a trainer has come back and has not recovered yet: the files that it sees listed have to stay, so nothing new is listed. */
int engine_reader_is_late(const engine_reader *r);
engine_status disk_is_late(const engine_reader *r, engine_error *error);

/* For the agent: says that it writes each step that is a multiple of `every`, and tells the step that all ranks have on disk; ranks 0: none. */
void engine_reader_disk(engine_reader *r, uint64_t every, disk_entry *common);

/* The text of "__metadata__" that says what a snapshot is; METADATA bytes at most. And the reverse: 1 if a text does not say it. */
enum { METADATA = 1024 };
void disk_metadata(char text[METADATA], const engine_lineage *line, uint64_t step, uint64_t rank, uint64_t ranks);
int disk_parse_metadata(const char *text, size_t size, engine_lineage *line, disk_entry *e, uint64_t *rank);

/* Whether an attempt may write where another one has written last: the same or an earlier one. ENGINE_E_FENCED: it may not, and says why. */
engine_status disk_may_write(const engine_lineage *mine, const engine_lineage *theirs, const char *path, engine_error *error);

/* Writes the snapshot that the reader holds. ENGINE_E_BUSY: it was given up. ENGINE_E_FENCED: the place belongs to a later attempt, or to another run.
 * After an error there is no new file. *m: what is listed afterwards. */
engine_status disk_write(const disk_writer *w, disk_manifest *m, engine_reader *r, uint64_t step, engine_error *error);

#endif
