/* json.h - writes and reads JSON.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A name comes before its value: json_name(j, "ratio"); json_real(j, 1.5); the functions add commas. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

#include "fault.h"

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

typedef struct json {
    FILE *to;
    int more; /* 1: the next value of this level needs a comma before it */
} json;

void json_begin(json *j, char bracket); /* '{' or '[' */
void json_end(json *j, char bracket);   /* '}' or ']' */
void json_name(json *j, const char *name);
void json_text(json *j, const char *text, size_t size); /* UTF-8. Other bytes become U+FFFD, controls escapes such as \u202e */
void json_string(json *j, const char *text);
void json_whole(json *j, uint64_t x);
void json_real(json *j, double x); /* writes null if x is infinite or NaN */
void json_truth(json *j, int x);
void json_null(json *j);

/* Begins the report of a command on standard output, an object on one line. It begins with the command and `file` (or null). */
json json_report(const char *command, const char *file);
void json_report_end(json *j);

/* Write name and value. json_member_list begins a list, which json_end ends. */
void json_member_list(json *j, const char *name);
void json_member_text(json *j, const char *name, const char *text, size_t size);
void json_member_string(json *j, const char *name, const char *text);
void json_member_whole(json *j, const char *name, uint64_t x);
void json_member_real(json *j, const char *name, double x);
void json_member_truth(json *j, const char *name, int x);

/* ================================================================================= READING
 * The text may be hostile. Functions that fail set a message with the byte, and that it is not a `kind`. */

#define JSON_TEXT_MOST 4096u /* most bytes of a string */

typedef struct json_reader {
    const char *begin, *at, *end;
    const char *kind;
    fault *f;
} json_reader;

int json_bad(const json_reader *r, const char *what); /* fails */
int json_accept(json_reader *r, char c);              /* 1 if c comes next, and skips it */
int json_expect(json_reader *r, char c);
int json_read_text(json_reader *r, char *text);       /* fails at U+0000; `text` has JSON_TEXT_MOST + 1 bytes */
int json_read_whole(json_reader *r, uint64_t most, uint64_t *x);
int json_pass(json_reader *r);                        /* skips any value, with few checks */
int json_read_end(json_reader *r);                    /* fails if anything but white space follows */

#endif
