/* json.c - writes JSON, one value a line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "json.h"

#include "utf8.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

static void begin_value(json *j)
{
    if (j->more) (void)putc(',', j->to);
    j->more = 1;
}

void json_begin(json *j, char bracket)
{
    begin_value(j);
    (void)putc(bracket, j->to);
    j->more = 0;
}

void json_end(json *j, char bracket)
{
    (void)putc(bracket, j->to);
    j->more = 1;
}

void json_name(json *j, const char *name)
{
    json_string(j, name);
    (void)putc(':', j->to);
    j->more = 0;
}

void json_text(json *j, const char *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + size;
    begin_value(j);
    (void)putc('"', j->to);
    while (p < end) {
        const size_t n = bitsnap_utf8_size(p, end);
        if (n == 0) {
            (void)fputs("\\ufffd", j->to);
            p++;
        } else if (*p == '"' || *p == '\\') {
            (void)fprintf(j->to, "\\%c", *p++);
        } else {
            if (utf8_is_control(utf8_code(p, n))) (void)fprintf(j->to, "\\u%04lx", utf8_code(p, n));
            else (void)fwrite(p, 1, n, j->to);
            p += n;
        }
    }
    (void)putc('"', j->to);
}

void json_string(json *j, const char *text) { json_text(j, text, strlen(text)); }

void json_whole(json *j, uint64_t x)
{
    begin_value(j);
    (void)fprintf(j->to, "%" PRIu64, x);
}

void json_real(json *j, double x)
{
    begin_value(j);
    if (x >= -DBL_MAX && x <= DBL_MAX) (void)fprintf(j->to, "%.9g", x);
    else (void)fputs("null", j->to);
}

void json_truth(json *j, int x)
{
    begin_value(j);
    (void)fputs(x ? "true" : "false", j->to);
}

void json_null(json *j)
{
    begin_value(j);
    (void)fputs("null", j->to);
}

void json_member_string(json *j, const char *name, const char *text)
{
    json_name(j, name);
    json_string(j, text);
}

void json_member_whole(json *j, const char *name, uint64_t x)
{
    json_name(j, name);
    json_whole(j, x);
}

void json_member_real(json *j, const char *name, double x)
{
    json_name(j, name);
    json_real(j, x);
}

void json_member_truth(json *j, const char *name, int x)
{
    json_name(j, name);
    json_truth(j, x);
}
