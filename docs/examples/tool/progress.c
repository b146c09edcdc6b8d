/* progress.c - a line on the terminal that says how far a file is.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "posix.h"

#include "progress.h"

#include "fault.h"
#include "io.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

double seconds_now(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t)) return 0;
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(progress *p, int wanted, const char *name, uint64_t total)
{
    memset(p, 0, sizeof *p);
    p->on = wanted && isatty(STDERR_FILENO);
    p->name = name;
    p->total = total;
    p->begun = seconds_now();
}

void progress_set_total(progress *p, uint64_t total) { p->total = total; }

void progress_show(progress *p, uint64_t done)
{
    const size_t width = 36; /* of the name: so much as leaves the line shorter than 80 columns */
    const double now = p->on ? seconds_now() : 0, passed = now - p->begun;
    const double speed = passed > 0 ? (double)done / passed : 0;
    const char *name;
    if (!p->on || now - p->shown < 0.1) return;
    p->shown = now;
    name = strlen(p->name) > width ? p->name + strlen(p->name) - width : p->name;
    (void)fputs("\r\033[K", stderr);
    (void)print_text(stderr, name, strlen(name));
    if (p->total != SIZE_UNKNOWN && p->total > 0) {
        const double share = (double)done / (double)p->total;
        const double left = speed > 0 ? ((double)p->total - (double)done) / speed : 0;
        (void)fprintf(stderr, "  %3.0f %%  %.0f MB/s  ", 100 * share, speed / 1e6);
        if (passed > 0.5) (void)fprintf(stderr, "%lu:%02lu left", (unsigned long)left / 60, (unsigned long)left % 60);
    } else {
        (void)fprintf(stderr, "  %.0f MB  %.0f MB/s", (double)done / 1e6, speed / 1e6);
    }
    (void)fflush(stderr);
}

void progress_wipe(progress *p)
{
    if (p->on && p->shown > 0) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
}

void progress_end(progress *p)
{
    progress_wipe(p);
    p->on = 0;
}
