/* fault.c - errors: what is wrong, in one line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "fault.h"

#include "utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int fault_set(fault *f, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    f->passes = 0;
    return 1;
}

int fault_errno(fault *f, const char *format, ...)
{
    const int error = errno;
    va_list arguments;
    int n;
    va_start(arguments, format);
    n = vsnprintf(f->text, sizeof f->text, format, arguments);
    va_end(arguments);
    if (n >= 0 && (size_t)n < sizeof f->text)
        (void)snprintf(f->text + n, sizeof f->text - (size_t)n, ": %s", strerror(error));
    f->passes = error != ENOENT;
    return 1;
}

int fault_memory(fault *f)
{
    (void)fault_set(f, "out of memory; fewer threads (-T) need less");
    return f->passes = 1;
}

void *grown(void *items, size_t count, size_t *capacity, size_t each, fault *f)
{
    const size_t more = *capacity ? 2 * *capacity : 16;
    if (count >= *capacity) {
        items = more <= SIZE_MAX / each ? realloc(items, more * each) : NULL;
        if (!items) return (void)fault_memory(f), NULL;
        *capacity = more;
    }
    memset((char *)items + count * each, 0, each);
    return items;
}

int fault_add(fault *f, const char *more)
{
    const size_t size = strlen(f->text);
    (void)snprintf(f->text + size, sizeof f->text - size, "%s", more);
    return 1;
}

/* Returns 1 for the usual case: a printable ASCII character. */
static int is_simple(char c) { return c >= 0x20 && c < 0x7F; }

size_t text_step(const char *text, const char *end, size_t *columns)
{
    const size_t n = bitsnap_utf8_size((const unsigned char *)text, (const unsigned char *)end);
    const unsigned long c = n ? utf8_code((const unsigned char *)text, n) : 0;
    if (!n) *columns = 4;                   /* \x9b */
    else if (utf8_is_control(c)) *columns = 6; /* \u202e */
    else *columns = c >= 0x2600 || (c >= 0x1100 && c < 0x1160) ? 2 : 1;
    return n ? n : 1;
}

size_t text_columns(const char *text, size_t size)
{
    const char *end = text + size;
    size_t columns, sum = 0;
    while (text < end) {
        for (; text < end && is_simple(*text); text++) sum++;
        if (text < end) text += text_step(text, end, &columns), sum += columns;
    }
    return sum;
}

size_t print_text(FILE *to, const char *text, size_t size)
{
    const char *end = text + size;
    size_t n, columns, sum = 0;
    for (; text < end; text += n, sum += columns) {
        for (n = 0; text + n < end && is_simple(text[n]);) n++;
        columns = n;
        if (!n) n = text_step(text, end, &columns);
        if (is_simple(*text)) (void)fwrite(text, 1, n, to);
        else if (columns == 4) (void)fprintf(to, "\\x%02x", (unsigned char)*text);
        else if (columns == 6) (void)fprintf(to, "\\u%04lx", utf8_code((const unsigned char *)text, n));
        else (void)fwrite(text, 1, n, to);
    }
    return sum;
}

void print_file(FILE *to, const char *name, const char *then)
{
    (void)print_text(to, name, strlen(name));
    (void)fputs(then, to);
}

static int line_stands;

void line_mark(void) { line_stands = 1; }

void line_wipe(void)
{
    if (!line_stands) return;
    line_stands = 0;
    (void)fputs("\r\033[K", stderr);
    (void)fflush(stderr);
}

int fault_in(fault *f, const char *file)
{
    (void)snprintf(f->file, sizeof f->file, "%s", file);
    return 1;
}

int fault_errno_in(fault *f, const char *file, const char *what)
{
    (void)fault_errno(f, "%s", what);
    return fault_in(f, file);
}

int fault_about(fault *f, const char *file) { return *f->file ? 1 : fault_in(f, file); }

const char *shown_name(const char *path) { return strcmp(path, "-") ? path : "(standard input)"; }

void fault_print(const fault *f)
{
    line_wipe();
    (void)fputs("bitsnap: ", stderr);
    if (*f->file) print_file(stderr, f->file, ": ");
    (void)print_text(stderr, f->text, strlen(f->text));
    (void)putc('\n', stderr);
}
