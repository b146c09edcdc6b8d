/* json.h - writes JSON, one value a line.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * Names come before values: json_name(j, "ratio"); json_real(j, 1.5); Commas are put where they belong. */
#ifndef TOOL_JSON_H
#define TOOL_JSON_H

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

/* Name and value in one. */
void json_member_string(json *j, const char *name, const char *text);
void json_member_whole(json *j, const char *name, uint64_t x);
void json_member_real(json *j, const char *name, double x);
void json_member_truth(json *j, const char *name, int x);

#endif
