/* bitsnap_engine.h - checkpoints in memory that outlives the trainer. MIT licence, see bitsnap.h.
 *
 * At the end of a step a trainer hands over its tensors, and may change them again when they are encoded. They are encoded into a
 * segment of shared memory. The segment stays when the trainer is killed, and its successor goes on from it.
 *
 *     engine_options o = {0};
 *     engine_error error;
 *     engine *e;
 *     o.name = "run7.0";                                          // of this rank
 *     o.budget = 3 * bytes_of_the_state / 2;                      // two snapshots
 *     if (engine_open(&e, &o, &error)) ...                        // error.message
 *     if (engine_recover(e, &step, tensors, count, &error)) ...   // ENGINE_E_NONE: begin anew
 *     for (;;) {
 *         train(step++);
 *         if (engine_snapshot(e, step, tensors, count, &error)) ...   // ENGINE_E_FULL: this one is left out
 *     }
 *     engine_close(e, ENGINE_REMOVE);
 *
 * The contract of every function below:
 *   - One thread at a time uses an engine. Its own threads work within a call; with options.copy, or a transport, also after it.
 *   - A snapshot is whole or absent, and the newest whole one stays until the next is whole, whatever is killed, and whenever.
 *   - engine_open takes all memory of the segment: a /dev/shm that fills up later does no harm. A call also needs private memory:
 *     about 4 MiB a thread, and 100 bytes for each 2^18 elements.
 *   - The bytes of a segment are checked before they are used, and decide nothing about the trainer's memory: a segment may be
 *     damaged in any way, or change during a call. Checks find accidents, not attacks: others must not be able to write to it
 *     (mode 0600). A segment that has been cut is ENGINE_E_DAMAGED when a call begins. If it is cut during a call, the system
 *     ends the process (SIGBUS).
 *   - Functions return a status, and say more in error, which must not be null.
 * Needs Linux, and gcc or clang with C99. */
#ifndef BITSNAP_ENGINE_H
#define BITSNAP_ENGINE_H

#include "bitsnap.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ================================================================================= TYPES */

typedef enum engine_status {
    ENGINE_OK = 0,
    ENGINE_E_ARGUMENT = 1, /* a mistake of the caller */
    ENGINE_E_SYSTEM = 2,   /* a system call failed: no memory, no segment */
    ENGINE_E_BUSY = 3,     /* another trainer has the segment, or the agent reads a snapshot whose memory is needed */
    ENGINE_E_FULL = 4,     /* the snapshot does not fit the budget; earlier ones stay. The message names a budget that is enough,
                              or the process that has the room */
    ENGINE_E_NONE = 5,     /* no snapshot exists */
    ENGINE_E_DAMAGED = 6,  /* snapshots exist, but none is whole */
    ENGINE_E_MISMATCH = 7, /* a snapshot of other tensors */
    ENGINE_E_UNPROTECTED = 8, /* the snapshot is in memory, but nothing that the options ask for protects it now: go on, and mend
                                 what the message names */
    ENGINE_E_STOP = 9,     /* options.unprotected_steps snapshots in a row were unprotected or left out: training is meant to
                              stop */
    ENGINE_E_SCATTERED = 10, /* snapshots of this name exist, but no step that all ranks can have; or they are of several runs */
    ENGINE_E_FENCED = 11    /* a later attempt of the run, or another run, has the place */
} engine_status;

typedef struct engine_error {
    engine_status status;
    char message[1000]; /* what, where, and what to do about it, without a full stop */
} engine_error;

/* How exactly the elements of a tensor are restored. */
typedef enum engine_kind {
    ENGINE_EXACT = 0,  /* bit for bit */
    ENGINE_MOMENT1 = 1, /* Adam's first moment: within the bound of options.m_cells */
    ENGINE_MOMENT2 = 2  /* Adam's second moment: within the bound of options.v_cells */
} engine_kind;

/* A tensor of this rank: contiguous elements, in native byte order, aligned to their size. */
typedef struct engine_tensor {
    const char *name;
    bitsnap_dtype dtype;
    void *data;           /* written by engine_recover alone */
    uint64_t count;
    uint64_t columns;     /* its last dimension, or 0; see bitsnap.columns */
    engine_kind kind;
    const struct engine_tensor *master; /* of F16 and BF16: the F32 tensor of the same array and count that it is rounded from; or
                                           null */
    /* For a tensor in other memory, for example on a device: copy elements from there, and to there, and return 0. The first
     * argument is `data`. Several threads of the engine call them at once, for at most 2^18 elements each. Except in copy mode,
     * the host never holds more of the tensor. */
    int (*fetch)(void *data, uint64_t first, uint64_t count, void *to);
    int (*store)(void *data, uint64_t first, uint64_t count, const void *from);
    const struct engine_tensor *weights; /* of moments, for options.stage: the F32 or BF16 tensor of the same count whose moments
                                            they are; or null */
    /* The element type and the shape, as a .safetensors header has them: "U8[2,3]". The type has the width of dtype. Null: the
     * name of dtype, and [count / columns,columns], or [count] where columns does not divide count. Files have this, and
     * engine_recover compares it. */
    const char *type;
    uint64_t file; /* if engine_recover reads files of another number of ranks: 1 + the rank whose file has the tensor; 0: any */
} engine_tensor;

/* How ranks communicate. Each of `ranks` trainers has a transport, and all call engine_recover and engine_snapshot in the same
 * order, with the same steps. A thread of the engine calls these functions while the trainer works. They return 0, or another
 * value if the transport no longer works. engine_mpi.h has a transport for MPI. */
typedef struct engine_transport {
    void *context;
    unsigned rank, ranks;
    /* Begin to send or receive exactly `size` bytes. *request identifies the transfer until `test` reports it done. Messages from
     * one rank to another with the same tag (0 .. 15) are received in the order in which they are sent. */
    int (*send)(void *context, unsigned to, int tag, const void *bytes, size_t size, void **request);
    int (*receive)(void *context, unsigned from, int tag, void *bytes, size_t size, void **request);
    int (*test)(void *context, void **request, int *done);
} engine_transport;

enum { ENGINE_ADAPT = 0, ENGINE_WHOLE = 1, ENGINE_TRY = 2 };
enum { ENGINE_DECLINE = 0, ENGINE_WAIT = 1 };
enum { ENGINE_KEEP = 0, ENGINE_REMOVE = 1 };

typedef struct engine_options {
    const char *name;      /* of the segment: letters, digits, '.', '-' and '_'; another one for each rank: RUN.0, RUN.1, ... */
    const char *directory; /* of the segment; null: /dev/shm */
    uint64_t budget;       /* bytes of the segment, all in; 0: that of the segment that is there */
    unsigned threads;      /* 0: 1 */
    int level;             /* of the codec; 0: BITSNAP_FAST */
    int level_most;        /* for pieces whose frames it makes at least a 32nd smaller; 0: none */
    unsigned m_cells, v_cells; /* bins of an octave for moments, see bitsnap_log_bound; 0: lossless */
    int stage;             /* 1: moments whose weights are known get the bins of engine_stage_cells, and at least these */
    int deltas;            /* ENGINE_ADAPT: if a sample of the piece shows a gain; ENGINE_WHOLE: never; ENGINE_TRY: always try */
    unsigned delta_percent; /* the largest delta, as a share of its anchor; 0: 50, so that two snapshots never take more than two
                               whole ones. Up to 90: fewer bytes to partners and disk, but an anchor and two deltas take up to 1.4
                               times two whole frames */
    int copy;              /* 1: engine_snapshot copies the tensors to private memory of their size, and returns. Threads of the
                              engine then encode them; engine_wait waits for the end. A trainer that is killed earlier loses this
                              snapshot */
    int when_busy;         /* ENGINE_DECLINE: ENGINE_E_BUSY at once; ENGINE_WAIT: after `patience` seconds */
    double patience;
    const engine_transport *transport; /* null: there is one rank */
    unsigned distance;     /* rank r + distance is the partner of rank r and keeps its snapshots, too; 0: 1. Use the number of
                              ranks of a node */
    unsigned group;        /* 0: partners keep copies. 3 to 64: this number of ranks r, r + distance, ... keep parity of each
                              other's snapshots. A lost snapshot is rebuilt from all the others. Parity takes 1 / (group - 1) of
                              the bytes of copies. The number of ranks must be a multiple of distance * group */
    double partner_patience; /* seconds without a byte from others until a rank continues alone, see engine_snapshot; 0: 60 */
    unsigned unprotected_steps; /* 0: no limit. After this number of snapshots in a row that were unprotected or left out (except
                                   by ENGINE_E_BUSY), engine_snapshot returns ENGINE_E_STOP: the fault does not pass */
    const char *const *agent; /* null, or path and arguments of the agent, started if it does not run: "build/engine", "agent",
                                 "run7.0", NULL */
    const char *disk;      /* null, or the directory that the agent writes to: where engine_recover looks, too */
    const char *adopt;     /* null, or the id of a run or of an attempt, 32 hexadecimal digits: engine_recover goes on from this
                              one if the name has snapshots of several */
    int anew;              /* 1: engine_recover restores nothing and begins a new run; all ranks must set it. Snapshots of this
                              name in memory are removed. Files stay; the id of the old run is added to the name of their manifest
                              or store */
    void (*say)(void *context, const char *message); /* faults that did not stop the engine; may be null */
    void *say_context;
} engine_options;

/* Sets the bins of a policy by its name: lossless, resume, standard, small. Returns 0, or 1 for another name. */
int engine_policy(engine_options *o, const char *name);

/* Returns the bins of the first moment at this stage of training; the second moment gets half of them. Takes the smallest of 8,
 * 12, 16, 24, 34, 48 and 70 that is at least `least` and keeps the error of an update below 2^-13 of the weights' size, a 16th of
 * the largest error of rounding to bfloat16; otherwise 70, or `least` if that is larger.
 * `update`: the size of an update relative to the weights. options.stage measures it on 1,024 elements of each tensor, in this
 * snapshot and the one before. Early in training, and for small weights, updates are large and moments more exact; late, and in
 * fine-tuning, the caller's `least` applies. BitSnap (arXiv 2511.12376) says that it adapts to stages of training, but not how.
 * This is the rule of the tool's --adam stage, applied to each tensor. */
unsigned engine_stage_cells(unsigned least, double update);

enum { ENGINE_FROM_MEMORY = 0, ENGINE_FROM_PARTNER = 1, ENGINE_FROM_DISK = 2 };

/* Time and bytes of the last snapshot or recovery. */
typedef struct engine_cost {
    double seconds;         /* of the call */
    double encode_seconds;  /* of encoding; with options.copy, which encodes after the call, of the snapshot before */
    int source;             /* of a recovery: ENGINE_FROM_... */
    /* of a recovery: finding snapshots and agreeing on a step; bytes from other ranks; decoding, or reading files */
    double agree_seconds, fetch_seconds, decode_seconds;
    uint64_t elements_size; /* bytes of the tensors */
    uint64_t frames_size;   /* bytes of their frames */
    uint64_t written_size;  /* bytes of memory newly taken; the rest is shared with the snapshot before */
    uint64_t sent_size;     /* bytes sent to the partner for the last snapshot that counts */
    uint64_t whole, cast, delta; /* pieces of tensors, by how they are coded */
    double cells;           /* of first moments, the mean over their elements; 0: they are lossless */
} engine_cost;

/* What is protected, and where. Ages are in seconds. Without such a snapshot the age is -1 and the step 0. */
typedef struct engine_protection {
    /* the newest one in this rank's segment; that all ranks and their partners have, with a transport; in files, or in the
     * store */
    uint64_t memory_step, partner_step, disk_step;
    double memory_age, partner_age, disk_age;
    double agent_age;      /* since the agent moved; above a few seconds it hangs */
    uint64_t unprotected;  /* snapshots in a row that nothing protects */
    char reason[232];      /* the fault, and what to do about it; "" without one */
} engine_protection;

typedef struct engine engine;

/* ================================================================================= TRAINER */

/* Opens the segment of this name with the snapshots of a killed trainer, or makes it, which needs `budget`. A forked child of the
 * trainer cannot use the engine: its calls return ENGINE_E_ARGUMENT, and it does not hold the segment after the trainer is gone.
 * ENGINE_E_BUSY: its trainer lives. ENGINE_E_MISMATCH: its size is not `budget`. ENGINE_E_DAMAGED: the file is no segment. */
engine_status engine_open(engine **e, const engine_options *o, engine_error *error);

/* Bytes of engine_options, engine_tensor, engine_cost and engine_protection, for callers in other languages, whose declarations
 * must have the same. */
void engine_sizes(size_t sizes[4]);

/* Closes an engine; null does nothing. `remove`: ENGINE_KEEP or ENGINE_REMOVE, for the segment. */
void engine_close(engine *e, int remove);

/* Takes a snapshot of the tensors: they must not change during the call, and may afterwards.
 *
 * Attempts: if `step` is not above the step before, an attempt begins. Later steps of the attempt before are dead once this
 * snapshot counts. The first snapshot without an engine_recover begins a run, on all ranks together. If anything of this name
 * exists, it is ENGINE_E_SCATTERED; so it is after an engine_recover that failed.
 * Errors: the snapshots that there were stay, except the older one of two. After ENGINE_E_UNPROTECTED this one is in memory,
 * after ENGINE_E_STOP it may be, after any other error it is not.
 * Protection: the segment must keep its name, because a successor finds it by name. If the options have a transport or an agent,
 * a partner or the agent's disk must take snapshots. If one of these fails and another works, `say` and engine_protected report
 * it, and the call returns ENGINE_OK.
 * Partners: with a transport the snapshot goes to the partner while training goes on. It counts when all ranks and their partners
 * have it. Until then the one that counted before stays everywhere, so each rank has to call, whatever the others' calls return.
 * The next call waits for the end of that, or leaves its own snapshot out (ENGINE_E_BUSY, see when_busy), and then no rank's
 * counts.
 * Stalls: if a partner does not answer for partner_patience seconds, each rank takes snapshots alone, in copy mode also within
 * the call, and its agent writes them. When the partner answers they count again. If room is short, the snapshot on its way is
 * given up. With parity it is kept, so newer ones may be ENGINE_E_FULL. */
engine_status engine_snapshot(engine *e, uint64_t step, const engine_tensor *tensors, size_t count, engine_error *error);

/* Tells what protects this run now. */
void engine_protected(engine *e, engine_protection *p);

/* Waits, at most `patience` seconds, until the last snapshot is complete and it is known whether it counts.
 * ENGINE_E_BUSY: not known yet. ENGINE_E_NONE: it does not count. */
engine_status engine_wait(engine *e, double patience, engine_error *error);

/* Restores the tensors from the newest living step that all ranks can have, each from its own memory, its partner's, or its disk,
 * and begins an attempt, the same on all ranks. Names, types and shapes must be those of the snapshot, in any order; no two
 * tensors may have one name. After an error the tensors are unspecified.
 *
 * ENGINE_E_NONE: nothing of this name exists anywhere; a new run begins.
 * ENGINE_E_SCATTERED: something exists, but no step that all ranks can have; or snapshots are of two runs, or of two attempts
 * that do not follow each other. See `adopt` and `anew`.
 * ENGINE_E_DAMAGED: a rank alone takes an older step if the newest is damaged, and says so. With others, a damaged file of the
 * step is an error of all ranks until the files of that step are removed, as the fault may pass.
 * ENGINE_E_SYSTEM, on all ranks: something cannot be read, fetched or stored now. It may be good, so nothing older is taken.
 * ENGINE_E_MISMATCH: other tensors. Or the step is of another number of ranks: then all its files must be there, and each tensor
 * comes from the file that has it. If several files have a tensor of that name, all are read and must have the same elements, or
 * engine_tensor.file names the file: shards of one name cannot be told from copies. */
engine_status engine_recover(engine *e, uint64_t *step, const engine_tensor *tensors, size_t count, engine_error *error);

const engine_cost *engine_last_cost(const engine *e);

/* The ids of the run and of the attempt, as text; both are empty before the first snapshot or recovery. */
void engine_ids(const engine *e, char run[33], char attempt[33]);

/* ================================================================================= STATUS
 * For any process. Reading the status needs no engine, and disturbs none. */

enum { ENGINE_SLOTS = 8 };

typedef struct engine_slot {
    int whole;              /* 1: holds a snapshot; 0: all other members are 0 */
    int counts;             /* 1: every rank and its partner have it */
    char run[33], attempt[33]; /* ids */
    int peer;               /* it is of another rank, or parity: */
    uint64_t parity;        /* the number of ranks of the group, or 0 */
    uint64_t rank, ranks;
    uint64_t sequence, step;
    uint64_t tensors, pieces;
    uint64_t elements_size, frames_size, chunks; /* bytes, bytes, chunks that it refers to */
    double age;             /* seconds */
    double max_relative;    /* the largest error that was measured; 0: it is lossless */
    uint64_t pinned;        /* the agent reads it */
} engine_slot;

typedef struct engine_report {
    uint64_t size, chunk, chunks, chunks_used;
    int trainer, agent;     /* 1: one is there */
    uint64_t trainer_pid, agent_pid; /* the last ones */
    uint64_t disk_step, skipped;     /* the newest step on disk; snapshots that did not get there */
    double disk_age;                 /* seconds since then; 0: no step is on disk */
    char log[1024];                  /* the file that the agent logs to, or "" */
    engine_protection protection;
    engine_slot slots[ENGINE_SLOTS];
} engine_report;

engine_status engine_read_status(const char *directory, const char *name, engine_report *r, engine_error *error);

/* Removes the segment, unless a trainer or an agent has it (ENGINE_E_BUSY). */
engine_status engine_remove(const char *directory, const char *name, engine_error *error);

/* ================================================================================= READERS
 * Another process, such as the agent, reads snapshots one at a time. The one that it holds is not overwritten. */

typedef struct engine_reader engine_reader;

/* Opens a reader. agent: 1 for the agent of the segment; ENGINE_E_BUSY if it has one already. */
engine_status engine_reader_open(engine_reader **r, const char *directory, const char *name, int agent, engine_error *error);
void engine_reader_close(engine_reader *r);

/* Releases the snapshot held before, and holds the newest one that counts and is newer than *sequence. Sets *sequence and *step
 * to its values. Skips steps that are not a multiple of `every`; 0 takes every step. ENGINE_E_NONE: no snapshot is newer. */
engine_status engine_reader_next(engine_reader *r, uint64_t every, uint64_t *sequence, uint64_t *step, engine_error *error);
void engine_reader_release(engine_reader *r);

/* 1 if the trainer lacks room and waits for the release, or skips snapshots; 1 if there is no trainer; 1 if the segment has lost
 * its name. */
int engine_reader_is_wanted(const engine_reader *r);
int engine_reader_is_alone(const engine_reader *r);
int engine_reader_is_removed(const engine_reader *r);

/* The rank of the snapshot that is held, and the number of ranks that took it together. */
uint64_t engine_reader_rank(const engine_reader *r);
uint64_t engine_reader_ranks(const engine_reader *r);

/* A report of the agent to the trainer and engine_read_status. With null, engine_reader_note only shows that the agent is alive,
 * which it must do every few seconds. */
typedef struct engine_note {
    uint64_t disk_step, skipped; /* step 0 without `wrong`: nothing was tried yet */
    const char *wrong; /* why the last write failed, or null */
    const char *log;   /* the file that it logs to, or null */
} engine_note;

void engine_reader_note(engine_reader *r, const engine_note *note);

/* The tensors of the snapshot that is held, without data; good until the release. */
const engine_tensor *engine_reader_tensors(const engine_reader *r, size_t *count);

/* Piece `number` of a tensor, valid until the next call. ENGINE_E_NONE: it has fewer pieces. A piece is a frame if that needs no
 * other frame and `decoded` is 0; otherwise it is elements. */
typedef struct engine_piece {
    uint64_t first, count;
    const void *frame; /* of frame_size bytes, or null */
    size_t frame_size;
    const void *elements; /* or null */
} engine_piece;

engine_status engine_reader_piece(engine_reader *r, size_t tensor, uint64_t number, int decoded, engine_piece *piece, engine_error *error);

#ifdef __cplusplus
}
#endif

#endif /* BITSNAP_ENGINE_H */
