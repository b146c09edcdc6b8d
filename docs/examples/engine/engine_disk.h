/* engine_disk.h - snapshots on disk: .bsnap files, and a manifest that lists them. MIT licence, see bitsnap.h.
 *
 * DIRECTORY/NAME-0000000040.bsnap is the snapshot of step 40 of the rank NAME, a .safetensors file to every reader of such files.
 * DIRECTORY/NAME.manifest lists those that are complete, as text: "bitsnap engine 1"; a line "STEP SIZE RANKS FILE" of each, steps ascending;
 * and "check X", the XXH3 of the lines before as 16 hexadecimal digits. A file is on the disk before it has its name, has its name before
 * the manifest has it, and has left the manifest before it is removed. */
#ifndef BITSNAP_ENGINE_DISK_H
#define BITSNAP_ENGINE_DISK_H

#include "bitsnap_engine.h"

/* Both set the error, and return its status. */
engine_status engine_fail(engine_error *error, engine_status status, const char *format, ...);
engine_status engine_good(engine_error *error);

enum { DISK_ENTRIES = 64, DISK_PATH = 4096 };

typedef struct disk_entry {
    uint64_t step, size;
    uint64_t ranks; /* that took the snapshot together */
} disk_entry;

typedef struct disk_manifest {
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

/* ENGINE_E_NONE: there is no manifest. ENGINE_E_DAMAGED: it is none. ENGINE_E_SYSTEM: it cannot be read. */
engine_status disk_read_manifest(disk_manifest *m, const char *directory, const char *name, engine_error *error);

/* Restores the tensors from the file of the step that is wanted, or, UINT64_MAX, the newest file of the manifest that is whole. ENGINE_E_SYSTEM: one
 * cannot be read now, and no older one is taken instead. `say` as in engine_options. */
engine_status disk_recover(const char *directory, const char *name, uint64_t wanted, uint64_t ranks, uint64_t *step, const engine_tensor *tensors, size_t count,
                           void (*say)(void *, const char *), void *say_context, engine_error *error);

/* The newest step of which the files of all ranks, RUN.0, RUN.1, ..., are listed, however many there were; and the tensors from them, whichever
 * has them, by the rules of engine_recover. ENGINE_E_NONE: there is no such step. A manifest that is damaged, or cannot be read, is another error. */
engine_status disk_find_all(const char *directory, const char *run, uint64_t *step, uint64_t *ranks, engine_error *error);
engine_status disk_recover_all(const char *directory, const char *run, uint64_t step, uint64_t ranks, const engine_tensor *tensors, size_t count,
                               engine_error *error);

int disk_is_there(const char *path, uint64_t size); /* a file of that size, as far as can be seen */

/* Snapshots in another form, where a directory has them: engine_store.h. */
typedef struct disk_form {
    engine_status (*list)(disk_manifest *m, const char *directory, const char *name, engine_error *error); /* ENGINE_E_NONE: it has none of these */
    engine_status (*open)(void **opened, struct bitsnap_file **file, const char *directory, const char *name, uint64_t step, engine_error *error);
    void (*close)(void *opened);
} disk_form;

extern const disk_form *disk_other_form; /* null: there is none */

typedef struct disk_writer {
    const char *directory, *name;
    double rate;         /* bytes a second at most; 0: as fast as the disk is */
    unsigned keep;       /* files; older ones are removed */
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

/* Writes the snapshot that the reader holds. ENGINE_E_BUSY: it was given up. After an error there is no new file. */
engine_status disk_write(const disk_writer *w, disk_manifest *m, engine_reader *r, uint64_t step, engine_error *error);

#endif
