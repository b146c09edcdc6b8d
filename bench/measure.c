#include "measure.h"

#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "options.h"

enum { PAGE = 4096, GAP = 16 * PAGE };

pace pace_of(size_t size)
{
    const size_t clock_matters_below = (size_t)256 << 10, cached_below = (size_t)8 << 20;
    pace p;
    p.places = size < cached_below ? PLACES_MAX : 1;
    p.repeats = size < clock_matters_below ? (unsigned)(clock_matters_below / size) : 1;
    p.batch = p.places > 1 ? 6 : 1;
    p.patience = p.places > 1 ? 3 * PLACES_MAX : 8;
    return p;
}

buffers buffers_open(size_t size, unsigned places, const unsigned shift[PLACES_MAX])
{
    buffers b;
    size_t all = (size + GAP) * places + PAGE;
    b.memory = malloc(all);
    if (!b.memory) fail("out of memory", "");
    memset(b.memory, 1, all); /* maps all pages now */
    for (unsigned k = 0; k < places; k++) {
        uint8_t *p = b.memory + k * (size + GAP);
        b.at[k] = p + (PAGE - (uintptr_t)p % PAGE) % PAGE + (shift ? shift[k] : 0);
    }
    return b;
}

void buffers_close(buffers *b) { free(b->memory); }

/* Returns the seconds of one run, averaged over p->repeats; -1 on an error. */
static double reading(run_function run, void *task, const pace *p, unsigned at, double begin)
{
    for (unsigned k = 0; k < p->repeats; k++)
        if (!run(task, at)) return -1;
    return (machine_seconds() - begin) / p->repeats;
}

/* Returns the shortest time of a batch; -1 on an error. */
static double batch(run_function run, void *task, const pace *p, unsigned at, double until)
{
    double best = -1, begin = machine_seconds();
    for (unsigned k = 0; k < p->batch && (!k || begin < until); k++) {
        double seconds = reading(run, task, p, at, begin);
        if (seconds < 0) return -1;
        if (best < 0 || seconds < best) best = seconds;
        begin = machine_seconds();
    }
    return best;
}

/* Lowers *best. Returns 1 if the gain is more than noise. */
static int improve(double *best, double seconds)
{
    int much = *best < 0 || seconds < 0.998 * *best;
    if (*best < 0 || seconds < *best) *best = seconds;
    return much;
}

int measure(run_function run, run_function copy, void *task, const pace *p, double budget, double *best,
            double *best_copy)
{
    double until = machine_seconds() + budget;
    unsigned quiet = 0;
    for (unsigned k = 0; quiet < p->patience && (!k || machine_seconds() < until); k++) {
        unsigned at = k % p->places;
        double copied = batch(copy, task, p, at, until), done = batch(run, task, p, at, until);
        if (done < 0 || copied < 0) return 0;
        quiet = improve(best, done) + improve(best_copy, copied) ? 0 : quiet + 1;
    }
    return 1;
}

counts measure_counts(run_function run, void *task, const pace *p)
{
    counts least = {0, 0};
    for (unsigned k = 0; counters_work() && k < 3; k++) {
        counts c;
        counters_start();
        for (unsigned i = 0; i < p->repeats; i++)
            if (!run(task, 0)) break;
        c = counters_stop();
        if (!k || c.cycles < least.cycles) least = c;
    }
    least.cycles /= p->repeats;
    least.instructions /= p->repeats;
    return least;
}

int measure_disturbed(double *least, double copied)
{
    improve(least, copied);
    return copied >= 1.15 * *least;
}

void copy_bytes(void *to, const void *from, size_t size)
{
    static void *(*volatile copy)(void *, const void *, size_t) = memcpy;
    copy(to, from, size);
}
