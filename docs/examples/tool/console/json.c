/* json.c - writes and reads JSON.
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

json json_report(const char *command, const char *file)
{
    json j = { stdout, 0 };
    json_begin(&j, '{');
    json_member_string(&j, "command", command);
    if (file) json_member_string(&j, "file", file);
    return j;
}

void json_report_end(json *j)
{
    json_end(j, '}');
    (void)putc('\n', j->to);
}

void json_member_list(json *j, const char *name)
{
    json_name(j, name);
    json_begin(j, '[');
}

void json_member_text(json *j, const char *name, const char *text, size_t size)
{
    json_name(j, name);
    json_text(j, text, size);
}

void json_member_string(json *j, const char *name, const char *text) { json_member_text(j, name, text, strlen(text)); }

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

/* ================================================================================= READING */

int json_bad(const json_reader *r, const char *what)
{
    return fault_set(r->f, "is not a valid %s: at byte %zu %s", r->kind, (size_t)(r->at - r->begin), what);
}

static void pass_space(json_reader *r)
{
    while (r->at < r->end && *r->at && strchr(" \t\n\r", *r->at)) r->at++;
}

int json_accept(json_reader *r, char c)
{
    pass_space(r);
    if (r->at == r->end || *r->at != c) return 0;
    r->at++;
    return 1;
}

int json_expect(json_reader *r, char c)
{
    char what[] = "there is no ?";
    what[sizeof what - 2] = c;
    return json_accept(r, c) ? 0 : json_bad(r, what);
}

/* Parses four hexadecimal digits. */
static int read_unit(json_reader *r, unsigned long *unit)
{
    unsigned i;
    for (i = 0, *unit = 0; i < 4; i++, r->at++) {
        const char *digits = "0123456789abcdef0123456789ABCDEF";
        const char *digit = r->at < r->end && *r->at ? strchr(digits, *r->at) : NULL;
        if (!digit) return json_bad(r, "an escape is none");
        *unit = 16 * *unit + (unsigned long)(digit - digits) % 16;
    }
    return 0;
}

/* Parses what follows a backslash, and writes the character as UTF-8. */
static int read_escape(json_reader *r, char **to)
{
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    const char *plain = r->at < r->end && *r->at ? strchr(names, *r->at) : NULL;
    unsigned long c, low;
    if (plain) {
        r->at++;
        *(*to)++ = meant[plain - names];
        return 0;
    }
    if (r->at == r->end || *r->at++ != 'u') return json_bad(r, "an escape is none");
    if (read_unit(r, &c)) return 1;
    if (c >= 0xD800 && c < 0xDC00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u') return json_bad(r, "half a character is missing");
        r->at += 2;
        if (read_unit(r, &low)) return 1;
        if (low < 0xDC00 || low > 0xDFFF) return json_bad(r, "half a character is missing");
        c = 0x10000 + ((c - 0xD800) << 10 | (low - 0xDC00));
    } else if (!c || (c >= 0xDC00 && c < 0xE000)) {
        return json_bad(r, "a character is invalid");
    }
    if (c < 0x80) *(*to)++ = (char)c;
    if (c >= 0x80 && c < 0x800) *(*to)++ = (char)(0xC0 | c >> 6);
    if (c >= 0x800 && c < 0x10000) *(*to)++ = (char)(0xE0 | c >> 12);
    if (c >= 0x10000) *(*to)++ = (char)(0xF0 | c >> 18), *(*to)++ = (char)(0x80 | (c >> 12 & 63));
    if (c >= 0x800) *(*to)++ = (char)(0x80 | (c >> 6 & 63));
    if (c >= 0x80) *(*to)++ = (char)(0x80 | (c & 63));
    return 0;
}

int json_read_text(json_reader *r, char *text)
{
    char *to = text;
    if (json_expect(r, '"')) return 1;
    while (r->at < r->end && *r->at != '"') {
        const unsigned char *p = (const unsigned char *)r->at;
        const size_t n = bitsnap_utf8_size(p, (const unsigned char *)r->end);
        if (!n || *p < 0x20) return json_bad(r, "there is invalid UTF-8, or a control character that is not escaped");
        if (to - text > (ptrdiff_t)JSON_TEXT_MOST - 4) return json_bad(r, "a string is too long");
        if (*p == '\\') {
            r->at++;
            if (read_escape(r, &to)) return 1;
        } else {
            memcpy(to, r->at, n);
            to += n;
            r->at += n;
        }
    }
    *to = 0;
    return json_expect(r, '"');
}

int json_read_whole(json_reader *r, uint64_t most, uint64_t *x)
{
    const char *begin;
    pass_space(r);
    begin = r->at;
    for (*x = 0; r->at < r->end && *r->at >= '0' && *r->at <= '9'; r->at++) {
        *x = 10 * *x + (uint64_t)(*r->at - '0');
        if (*x > most) return json_bad(r, "a number is too large");
    }
    return r->at == begin || (*begin == '0' && r->at - begin > 1) ? json_bad(r, "there is no number") : 0;
}

int json_pass(json_reader *r)
{
    const char *begin;
    size_t depth = 0;
    pass_space(r);
    for (begin = r->at; r->at < r->end && (depth || !memchr(",}]", *r->at, 3)); r->at++) {
        if (*r->at == '{' || *r->at == '[') depth++;
        if (*r->at == '}' || *r->at == ']') depth--;
        if (*r->at == '"')
            while (++r->at < r->end && *r->at != '"')
                if (*r->at == '\\' && r->at + 1 < r->end) r->at++;
        if (r->at == r->end) break;
    }
    return depth || r->at == begin || r->at == r->end ? json_bad(r, "a value is invalid, or has no end") : 0;
}

int json_read_end(json_reader *r)
{
    pass_space(r);
    return r->at == r->end ? 0 : json_bad(r, "something follows");
}
