/* An apply in place stops within a cell. A repeated call completes the tensor, with or without a journal, if that is possible,
 * and otherwise refuses and changes nothing. KILLS=n in the environment: kills n processes for each form. */
#define _GNU_SOURCE
#include "test.h"
#include "inside.h"
#include "data.h"
#ifndef _WIN32
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#endif

/* Kinds from KIND_CLASSES to KIND_PATCHED need a journal. Later kinds need no base. */
enum { MOST = 150000, KINDS = 7 };
enum { KIND_SPARSE, KIND_ONE, KIND_CLASSES, KIND_PATCHED, KIND_SPLIT, KIND_STORED, KIND_CONST };
static const char *const kinds[KINDS] = { "few changes", "one class", "classes", "pruned", "floats alone", "stored", "constant" };
static const unsigned char forms[KINDS] = { FORM_SPARSE, FORM_CLASSED, FORM_CLASSED, FORM_PATCHED, FORM_SPLIT, FORM_STORED, FORM_CONST };
static uint8_t *base, *result, *frame, *live, *before;
static void *workspace;
static size_t size; /* of the frame */
static unsigned char fits[3]; /* 1 for each cell with the form of the kind */
static unsigned made[KINDS], skipped[KINDS]; /* calls of make() with and without such cells */

static int needs_journal(unsigned kind) { return kind == KIND_CLASSES || kind == KIND_PATCHED; }

static bitsnap fresh(void)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = test_workspace_delta(20, 2);
    return b;
}

/* Makes a delta with cells of one form. Returns 0 if the dtype has no such cells. */
static int make(unsigned kind, size_t n, bitsnap_dtype dtype, unsigned log2)
{
    unsigned shift;
    const unsigned width = bitsnap_width(dtype), mask = inside_exponent(dtype, &shift), exact = mask == 0;
    bitsnap b = fresh();
    bitsnap_info info;
    bitsnap_block block;
    uint64_t at, first = 0, same = 0, cell = 0;
    size_t i;
    if (exact && (kind == KIND_CLASSES || kind == KIND_PATCHED || kind == KIND_SPLIT)) return 0;
    if (kind == KIND_PATCHED && (width > 4 || n < 512)) return 0;
    data_fill(base, n, dtype, DATA_WEIGHTS);
    memcpy(result, base, n * width);
    if (kind == KIND_SPLIT) data_fill(result, n, dtype, DATA_WEIGHTS);
    if (kind == KIND_STORED) data_fill(result, n, dtype, DATA_NOISE);
    if (kind == KIND_CONST) data_fill(result, n, dtype, DATA_CONSTANT);
    for (i = 0; i < n && kind <= KIND_PATCHED; i++) {
        const uint64_t x = data_load(base + i * width, width);
        const unsigned exponent = (unsigned)(x >> shift & mask);
        unsigned more = (unsigned)test_below(kind == KIND_SPARSE ? 3000 : 3);
        if (kind == KIND_SPARSE) more = i % 65536 == 7 || !more; /* each cell has a change */
        if (kind == KIND_CLASSES) more = exponent & 4 ? (unsigned)test_below(2) : exponent & 2 ? (unsigned)test_below(50) : 0;
        data_store(result + i * width, kind == KIND_PATCHED ? (test_random() & 1 ? x : 0) : x + more, width);
    }
    b.base.data = base, b.base.count = n, b.base.dtype = dtype;
    b.block_log2 = log2;
    b.level = kind == KIND_CLASSES ? BITSNAP_BEST : BITSNAP_DEFAULT;
    b.flags = kind == KIND_ONE ? BITSNAP_SELF_CONTAINED : 0;
    CHECK(!bitsnap_encode(&b, frame, bitsnap_bound(&b, n, dtype), &size, result, n, dtype), "%s", bitsnap_message(&b));
    CHECK(!bitsnap_read_info(&info, frame, size));
    for (at = info.header_size; first < n; first += block.elements, at += block.size) {
        CHECK(!bitsnap_read_block(&b, &block, &info, first, frame + at, (size_t)(size - at)), "%s", bitsnap_message(&b));
        fits[cell] = block.form == forms[kind] && (block.form != FORM_CLASSED || (block.classes > 1) == (kind == KIND_CLASSES));
        same += fits[cell++];
    }
    *(same ? &made[kind] : &skipped[kind]) += 1; /* the last cell may have another form */
    return same > 0;
}

/* Checks that `part` percent of the calls of make() gave a delta of each kind, so that no kind goes untested. Then counts
 * anew. */
static void count(const char *who, unsigned part)
{
    unsigned kind;
    for (kind = 0; kind < KINDS; kind++) {
        const unsigned all = made[kind] + skipped[kind];
        CHECK(!part || (made[kind] && made[kind] * 100 >= all * part), "%s: %s: %u made, %u skipped", who, kinds[kind], made[kind], skipped[kind]);
        if (getenv("KILLS")) printf("%s: %s: %u made, %u skipped\n", who, kinds[kind], made[kind], skipped[kind]);
        made[kind] = skipped[kind] = 0;
    }
}

/* Chooses one of the cells with the form of the kind. */
static size_t a_cell(size_t cells)
{
    size_t at;
    do at = test_below(cells);
    while (!fits[at]);
    return at;
}

/* Puts a cell in the state after `done` bytes of it have been stored. */
static void halfway(unsigned kind, size_t at, size_t n, unsigned width, size_t done)
{
    const size_t whole = done - done % (kind == KIND_SPARSE || width > sizeof(size_t) ? width : sizeof(size_t));
    uint8_t *p = live + at * width;
    if (kind < KIND_CLASSES) {
        memcpy(p, result + at * width, whole);
    } else { /* in any order */
        size_t i;
        for (i = 0; i < n * width; i++)
            if (test_random() & 1) p[i] = result[at * width + i];
        if (kind > KIND_PATCHED) data_store(p, inside_chain(test_load64(frame + test_load32(frame + 16) % 65536 + 18), at),
                                                   n * width < 8 ? 1u << (n * width > 1) << (n * width > 3) : 8);
    }
}

/* Every dtype and form, with a cell at every stage. The call completes it, or refuses and changes nothing. */
static void stages(void)
{
    static const size_t lengths[] = { 1, 3, 40, 1000, 4103, 70001, 131100 };
    unsigned dtype, kind, i, t, again, tables;
    for (tables = 0; bitsnap_kernels_get(tables);) tables++;
    for (dtype = 1; dtype <= 11; dtype++)
        for (kind = 0; kind < KINDS; kind++)
            for (i = 0; i < 7; i++) {
                const size_t n = lengths[i], cell = i == 5 ? 131072 : 65536, cells = (n + cell - 1) / cell;
                const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
                const size_t saved = (n < cell ? n : cell) * width;
                guarded journal = guarded_alloc(2 * saved, 0);
                if (make(kind, n, (bitsnap_dtype)dtype, i == 5 ? 17 : 16))
                    for (t = 0; t < (n < 5000 || test_long() ? 6 : 2); t++) {
                        const size_t at = a_cell(cells) * cell, m = n - at < cell ? n - at : cell;
                        bitsnap_info info;
                        bitsnap b = fresh();
                        b.kernels = bitsnap_kernels_get(t % tables);
                        CHECK(!bitsnap_read_info(&info, frame, size) && bitsnap_journal_size(&info, 2) == 2 * saved);
                        memcpy(live, base, n * width);
                        memcpy(live, result, at * width); /* earlier cells are done */
                        halfway(kind, at, m, width, t ? test_below(m * width + 1) : m * width - 1);
                        memcpy(before, live, n * width);
                        if (needs_journal(kind) && memcmp(live + at * width, base + at * width, m * width) &&
                            memcmp(live + at * width, result + at * width, m * width)) {
                            uint64_t form = test_load32(frame + info.header_size) & 255; /* the form of the first block */
                            CHECK(bitsnap_apply(&b, live, n, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_BASE || form != forms[kind] || cells > 1);
                            memcpy(live, before, n * width);
                        }
                        test_fill(journal.p, 2 * saved < 64 ? 2 * saved : 64); /* the content is not trusted, and may be anything */
                        memcpy(journal.p + (t & 1 ? saved : 0), base + at * width, m * width);
                        b.journal = journal.p;
                        b.journal_size = 2 * saved;
                        if (!needs_journal(kind) && t % 2) b.journal = NULL;
                        for (again = 0; again < 2; again++)
                            CHECK(!bitsnap_apply(&b, live, n, (bitsnap_dtype)dtype, frame, size) && !memcmp(live, result, n * width),
                                  "%s, %s, %d elements, stage %u: %s", kinds[kind], bitsnap_dtype_name((bitsnap_dtype)dtype), (int)n, t,
                                  bitsnap_message(&b));
                        /* a journal with other content, and a cell with one wrong bit */
                        memcpy(live, before, n * width);
                        test_fill(journal.p, 2 * saved);
                        live[at * width + m * width / 2] ^= 16;
                        memcpy(before, live, n * width);
                        if (kind <= KIND_PATCHED && (t == 1 || n < 5000)) { /* tries every stage, which is slow */
                            CHECK(bitsnap_apply(&b, live, n, (bitsnap_dtype)dtype, frame, size) == BITSNAP_E_BASE && b.error.element == at);
                            CHECK(!memcmp(live, before, n * width));
                        }
                    }
                guarded_free(journal);
            }
    count("stages", 40);
}

/* The rule that is reported if a block breaks several, and if the cell holds the result already. */
static void rules(void)
{
    const size_t n = 5000, prefix = 4 + 8 + 16;
    uint8_t record[28 + 16 + 8], *block;
    bitsnap b = fresh();
    bitsnap_info info;
    /* Invalid borders and a wrong base. The borders are reported: they are needed to compare the base. */
    CHECK(make(KIND_CLASSES, n, BITSNAP_BF16, 16) && !bitsnap_read_info(&info, frame, size));
    block = frame + info.header_size;
    CHECK(block[0] == FORM_CLASSED && block[prefix] > 1);
    block[prefix + 1] = 0;
    memcpy(live, base, 2 * n);
    live[n] ^= 1;
    CHECK(bitsnap_apply(&b, live, n, BITSNAP_BF16, frame, size) && b.error.rule == BITSNAP_R_CLASSES, "apply: R%u", b.error.rule);
    CHECK(b.error.offset == info.header_size + prefix);
    b.base.data = live, b.base.count = n, b.base.dtype = BITSNAP_BF16;
    CHECK(bitsnap_decode(&b, before, n, BITSNAP_BF16, frame, size) && b.error.rule == BITSNAP_R_CLASSES, "decode: R%u", b.error.rule);
    /* A block without a base, whose check is right and whose elements do not match their hash. Refused whatever the cell
     * holds. */
    CHECK(make(KIND_STORED, n, BITSNAP_BF16, 16) && !bitsnap_read_info(&info, frame, size));
    block = frame + info.header_size;
    CHECK(block[0] == FORM_STORED);
    block[prefix + 77] ^= 4;
    memset(record, 0, sizeof record);
    memcpy(record, block - 8, 8); /* the check of the header */
    test_store64(record + 16, n);
    memcpy(record + 24, block, 4);
    memcpy(record + 28, block + 12, 16);
    test_store64(record + 44, bitsnap_hash(block + prefix, 2 * n));
    test_store64(block + 4, bitsnap_hash(record, sizeof record));
    memcpy(live, base, 2 * n);
    b = fresh();
    CHECK(bitsnap_apply(&b, live, n, BITSNAP_BF16, frame, size) && b.error.rule == BITSNAP_R_ELEMENTS_HASH, "base: R%u", b.error.rule);
    CHECK(!memcmp(live, base, 2 * n));
    memcpy(live, result, 2 * n);
    CHECK(bitsnap_apply(&b, live, n, BITSNAP_BF16, frame, size) && b.error.rule == BITSNAP_R_ELEMENTS_HASH, "result: R%u", b.error.rule);
    CHECK(!memcmp(live, result, 2 * n));
    count("rules", 0);
}

/* Refuses a journal that is too small. */
static void journals(void)
{
    const size_t n = 100000;
    bitsnap b = fresh();
    bitsnap_info info;
    uint8_t *journal = malloc(2 * n);
    CHECK(make(KIND_CLASSES, n, BITSNAP_BF16, 16));
    made[KIND_CLASSES] = 0;
    CHECK(!bitsnap_read_info(&info, frame, size) && bitsnap_journal_size(&info, 0) == 131072 && bitsnap_journal_size(NULL, 1) == 0);
    memcpy(live, base, 2 * n);
    b.journal = journal;
    b.journal_size = 131071;
    CHECK(bitsnap_apply(&b, live, n, BITSNAP_BF16, frame, size) == BITSNAP_E_ARGUMENT && !memcmp(live, base, 2 * n));
    b.journal_size = 131072;
    CHECK(!bitsnap_apply(&b, live, n, BITSNAP_BF16, frame, size) && !memcmp(live, result, 2 * n));
    CHECK(!memcmp(journal, base + 131072, 2 * n - 131072)); /* the last cell */
    free(journal);
}

#ifdef _WIN32
static void killed(void) { SKIP("killed", "needs fork"); }
#else
typedef struct loop {
    pthread_mutex_t lock;
    bitsnap_task task;
    void *argument;
    uint64_t next, count;
    unsigned workers;
} loop;

static void *work(void *argument)
{
    loop *x = (loop *)argument;
    unsigned worker;
    (void)pthread_mutex_lock(&x->lock);
    worker = x->workers++;
    while (x->next < x->count) {
        const uint64_t i = x->next++;
        (void)pthread_mutex_unlock(&x->lock);
        x->task(x->argument, i, worker);
        (void)pthread_mutex_lock(&x->lock);
    }
    (void)pthread_mutex_unlock(&x->lock);
    return NULL;
}

static void run(void *context, bitsnap_task task, void *argument, uint64_t count)
{
    loop x = { PTHREAD_MUTEX_INITIALIZER, task, argument, 0, count, 0 };
    pthread_t other;
    const int two = !pthread_create(&other, NULL, work, &x);
    (void)context;
    (void)work(&x);
    if (two) (void)pthread_join(other, NULL);
}

static double seconds(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double after; /* seconds in the second pass, which stores */

static int arm(void *context, uint64_t done, uint64_t total)
{
    struct itimerval t = { { 0, 0 }, { 0, 0 } };
    (void)context;
    t.it_value.tv_usec = 1 + (long)(after * 1e6);
    if (done == total && after > 0) (void)setitimer(ITIMER_REAL, &t, NULL), after = 0;
    return 0;
}

/* Applies in a child process that a timer kills at any point, like SIGKILL. */
static void apply_and_die(bitsnap *b, size_t n, bitsnap_dtype dtype)
{
    const pid_t child = fork();
    if (!child) {
        b->progress = arm;
        _exit(bitsnap_apply(b, live, n, dtype, frame, size) != BITSNAP_OK);
    }
    (void)waitpid(child, NULL, 0);
}

/* Kills processes again and again, at any point, while they change memory that outlives them. */
static void killed(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_BF16, BITSNAP_F32, BITSNAP_I8, BITSNAP_F64, BITSNAP_F8_E4M3 };
    const char *given = getenv("KILLS");
    const unsigned kills = given ? (unsigned)atoi(given) : test_long() ? 24 : 8;
    unsigned kind, k, within = 0, stuck[2][2] = { { 0, 0 }, { 0, 0 } };
    for (kind = 0; kind < KINDS; kind++)
        for (k = 0; k < kills; k++) {
            const bitsnap_dtype dtype = dtypes[k % 3 ? kind % 2 : k / 3 % 5];
            const unsigned width = bitsnap_width(dtype);
            const size_t n = 1 + (k % 4 ? MOST - k % 7 : 60000 + test_below(40000)), cell = 65536;
            uint8_t *journal = mmap(NULL, 2 * 8 * cell, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
            bitsnap b = fresh();
            double took;
            size_t i;
            unsigned times = 1 + k % 3;
            if (!make(kind, n, dtype, 16) || journal == MAP_FAILED) continue;
            b.workers = 1 + k / 2 % 2;
            b.run = run;
            if (k & 1) b.journal = journal, b.journal_size = 2 * 8 * cell;
            memcpy(live, base, n * width);
            took = seconds();
            (void)bitsnap_apply(&b, live, n, dtype, frame, size);
            took = seconds() - took;
            memcpy(live, base, n * width);
            while (times--) {
                after = took * (double)test_below(500) / 1000;
                apply_and_die(&b, n, dtype);
            }
            for (i = 0; i < n; i += cell) {
                const size_t m = (n - i < cell ? n - i : cell) * width;
                within += memcmp(live + i * width, base + i * width, m) && memcmp(live + i * width, result + i * width, m);
            }
            b.workers = 1 + k / 4 % 2;
            if (bitsnap_apply(&b, live, n, dtype, frame, size) || memcmp(live, result, n * width))
                stuck[k & 1][needs_journal(kind)]++;
            (void)munmap(journal, 2 * 8 * cell);
        }
    count("killed", 70);
    CHECK(!stuck[1][0] && !stuck[1][1] && !stuck[0][0], "%u, %u with a journal, %u without one", stuck[1][0], stuck[1][1], stuck[0][0]);
    if (given)
        printf("killed %u of each form, cells left half-way: %u; not completed with a journal: %u, without: %u, of forms that need one %u\n",
               kills, within, stuck[1][0] + stuck[1][1], stuck[0][0], stuck[0][1]);
}
#endif

int main(void)
{
    const size_t room = 8 * (size_t)MOST + 4096;
    test_program = "interrupt";
    base = malloc(room), result = malloc(room), frame = malloc(room), before = malloc(room);
#ifdef _WIN32
    live = malloc(room);
#else
    live = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (live == MAP_FAILED) return 1;
#endif
    workspace = malloc(test_workspace_delta(20, 2));
    RUN(stages);
    RUN(rules);
    RUN(journals);
    RUN(killed);
    free(base), free(result), free(frame), free(before), free(workspace);
    return test_failures != 0;
}
