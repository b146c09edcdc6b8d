/* progress.c - a line on the terminal that shows the progress on a file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "progress.h"

#include "fault.h"
#include "../system/io.h"

#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static size_t file_number, file_count; /* "2 of 5" */

void progress_files(size_t number, size_t count)
{
    file_number = number;
    file_count = count;
}

void progress_begin(progress *p, int wanted, const char *name)
{
    memset(p, 0, sizeof *p);
    p->on = wanted && isatty(STDERR_FILENO);
    p->name = name;
    p->total = SIZE_UNKNOWN;
    p->begun = elapsed_now();
}

void progress_set_total(progress *p, uint64_t total) { p->total = total; }

/* Asks for each line, since windows change. Leaves the last column free, because some terminals begin a new line when it is
 * written. */
size_t terminal_columns(int fd)
{
    size_t columns = 80;
#ifdef TIOCGWINSZ
    struct winsize w;
    if (!ioctl(fd, TIOCGWINSZ, &w) && w.ws_col) columns = w.ws_col;
#endif
    return isatty(fd) ? columns - 1 : 0;
}

size_t print_end(FILE *to, const char *name, size_t size, size_t room)
{
    const char *end = name + size;
    size_t columns = text_columns(name, size), one;
    const int cut = columns > room;
    if (cut && room < 4) return 0;
    while (columns > room - (cut ? 3 : 0)) {
        name += text_step(name, end, &one);
        columns -= one;
    }
    if (cut) (void)fputs("...", to);
    return print_text(to, name, (size_t)(end - name)) + (cut ? 3 : 0);
}

void print_last(const char *name, size_t size, size_t at, const char *notes)
{
    const size_t columns = terminal_columns(STDOUT_FILENO);
    if (columns && at + text_columns(name, size) + strlen(notes) > columns) {
        (void)printf("%s\n    ", notes);
        (void)print_end(stdout, name, size, columns > 4 ? columns - 4 : 0);
        (void)putchar('\n');
    } else {
        (void)print_text(stdout, name, size);
        (void)puts(notes);
    }
}

void print_wrapped(FILE *to, size_t at, const char *text)
{
    const size_t columns = terminal_columns(fileno(to));
    while (*text) {
        size_t n = strcspn(text, ",;");
        n += text[n] != 0;
        if (columns && at + n > columns && *text == ' ') {
            (void)fputs("\n   ", to); /* and that space */
            at = 3;
        }
        (void)fwrite(text, 1, n, to);
        at += n;
        text += n;
    }
}

/* Appends a part if the name keeps enough columns; `text` must hold all parts. */
static void add_part(char *text, const char *part, size_t columns, size_t name)
{
    if (strlen(text) + strlen(part) + name <= columns) (void)strcat(text, part);
}

void progress_show(progress *p, uint64_t done)
{
    const elapsed since = elapsed_since(p->begun);
    const double passed = since.seconds, now = p->begun.seconds + passed;
    const double speed = passed > 0 ? (double)done / passed : 0;
    size_t columns, name;
    char text[320] = "", part[64]; /* five parts */
    if (!p->on || now - p->shown < 0.1) return;
    p->shown = now;
    columns = terminal_columns(STDERR_FILENO);
    name = text_columns(p->name, strlen(p->name));
    if (name > 12) name = 12; /* 12 columns of the name matter more than the other parts */
    if (p->total != SIZE_UNKNOWN && p->total > 0) (void)snprintf(part, sizeof part, "  %3.0f %%", 100 * (double)done / (double)p->total);
    else (void)snprintf(part, sizeof part, "  %.0f MB", (double)done / 1e6);
    add_part(text, part, columns, 0);
    (void)snprintf(part, sizeof part, "  %zu of %zu", file_number, file_count);
    if (file_count > 1) add_part(text, part, columns, name);
    (void)snprintf(part, sizeof part, "  %.0f MB/s", speed / 1e6);
    add_part(text, part, columns, name);
    if (p->total != SIZE_UNKNOWN && p->total > done && passed > 0.5 && speed > 0) {
        const double left = ((double)p->total - (double)done) / speed;
        if (left < 1e6) {
            (void)snprintf(part, sizeof part, "  %lu:%02lu left", (unsigned long)left / 60, (unsigned long)left % 60);
            add_part(text, part, columns, name);
        }
    }
    if (passed > 0.5) {
        (void)snprintf(part, sizeof part, "  I/O %.0f %%", 100 * since.io / passed);
        add_part(text, part, columns, name);
    }
    (void)fputs("\r\033[K", stderr);
    (void)print_end(stderr, p->name, strlen(p->name), columns - strlen(text));
    (void)fputs(text, stderr);
    line_mark();
    (void)fflush(stderr);
}

void progress_end(progress *p)
{
    if (p->on) line_wipe();
    p->on = 0;
}
