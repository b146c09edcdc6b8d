/* utf8.h - what is a character of UTF-8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_UTF8_H
#define TOOL_UTF8_H

#include "../../file/bitsnap_file.h"

/* The character of these n bytes, as bitsnap_utf8_size has found it. */
static inline unsigned long utf8_code(const unsigned char *p, size_t n)
{
    unsigned long c = n == 1 ? p[0] : p[0] & (0x7Fu >> n);
    size_t i;
    for (i = 1; i < n; i++) c = c << 6 | (p[i] & 63);
    return c;
}

/* Whether it is a command, to a terminal or to whoever lays out the text: the controls of ASCII and Latin-1, the separators
 * of lines and paragraphs, and what turns the direction of writing, so that a name looks like another. */
static inline int utf8_is_control(unsigned long c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

#endif
