/* json.h - writes JSON, one value a line; and reads it.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Names come before values: json_name(j, "ratio"); json_real(j, 1.5); Commas are put where they belong. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *to;
    int more; /* a value stands before, on the same level */
} json;

void json_begin(json *j, char bracket); /* '{' or '[' */
void json_end(json *j, char bracket);   /* '}' or ']' */
void json_name(json *j, const char *name);
void json_text(json *j, const char *text, size_t size); /* UTF-8; what is not becomes U+FFFD; controls as \u202e */
void json_string(json *j, const char *text);
void json_whole(json *j, uint64_t x);
void json_real(json *j, double x); /* null where JSON has no such number */
void json_truth(json *j, int x);
void json_null(json *j);

/* What a command reports on standard output: an object in a line, which begins with its name and a file (null: none). */
json json_report(const char *command, const char *file);
void json_report_end(json *j);

/* Name and value in one. A list is begun, and ended by json_end. */
void json_member_list(json *j, const char *name);
void json_member_text(json *j, const char *name, const char *text, size_t size);
void json_member_string(json *j, const char *name, const char *text);
void json_member_whole(json *j, const char *name, uint64_t x);
void json_member_real(json *j, const char *name, double x);
void json_member_truth(json *j, const char *name, int x);

/* ================================================================================= READING
 * Text of anybody, from its beginning on. What fails says at which byte, and that it is no `kind`. */

#define JSON_TEXT_MOST 4096u /* bytes of a string */

typedef struct json_reader {
    const char *begin, *at, *end;
    const char *kind;
    fault *f;
} json_reader;

int json_bad(const json_reader *r, const char *what); /* fails */
int json_accept(json_reader *r, char c);              /* whether that comes next, which is passed then */
int json_expect(json_reader *r, char c);
int json_read_text(json_reader *r, char *text);       /* a string without U+0000; `text` has JSON_TEXT_MOST + 1 bytes */
int json_read_whole(json_reader *r, uint64_t most, uint64_t *x);
int json_pass(json_reader *r);                        /* any value, which is not looked at closely */
int json_read_end(json_reader *r);                    /* nothing follows but space */

#endif
