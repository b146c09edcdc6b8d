/* fault.c - errors: what is wrong, in one line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "posix.h"

#include "fault.h"

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
    return 1;
}

int fault_memory(fault *f) { return fault_set(f, "out of memory; fewer threads (-T) need less"); }

void *grown(void *items, size_t count, size_t *capacity, size_t each, fault *f)
{
    const size_t more = *capacity ? 2 * *capacity : 16;
    if (count < *capacity) return items;
    items = more <= SIZE_MAX / each ? realloc(items, more * each) : NULL;
    if (items) *capacity = more;
    else (void)fault_memory(f);
    return items;
}

int fault_add(fault *f, const char *more)
{
    const size_t size = strlen(f->text);
    (void)snprintf(f->text + size, sizeof f->text - size, "%s", more);
    return 1;
}

size_t print_text(FILE *to, const char *text, size_t size)
{
    size_t i, columns = 0;
    for (i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)text[i];
        /* C2 80 .. C2 9F are the control characters above ASCII */
        const int control = c < 32 || c == 127 || (c == 0xC2 && i + 1 < size && (unsigned char)text[i + 1] < 0xA0);
        if (c == 0xC2 && control) i++;
        columns += control || (c & 0xC0) != 0x80;
        (void)putc(control ? '?' : (int)c, to);
    }
    return columns;
}

int fault_in(fault *f, const char *file)
{
    (void)snprintf(f->file, sizeof f->file, "%s", file);
    return 1;
}

void fault_print(const fault *f)
{
    (void)fputs("bitsnap: ", stderr);
    if (*f->file) {
        (void)print_text(stderr, f->file, strlen(f->file));
        (void)fputs(": ", stderr);
    }
    (void)print_text(stderr, f->text, strlen(f->text));
    (void)putc('\n', stderr);
}
