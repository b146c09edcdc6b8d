/* utf8.h - what is a character of UTF-8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_UTF8_H
#define TOOL_UTF8_H

#include <stddef.h>

/* The bytes of the character at p, 0 where there is none: no overlong forms, no surrogates, none above
 * U+10FFFF. p < end. */
static inline size_t utf8_size(const unsigned char *p, const unsigned char *end)
{
    size_t i, n;
    unsigned low = 0x80, high = 0xBF; /* of the second byte */
    if (p[0] < 0x80) return 1;
    if (p[0] < 0xC2 || p[0] > 0xF4) return 0;
    n = p[0] < 0xE0 ? 2 : p[0] < 0xF0 ? 3 : 4;
    if (p[0] == 0xE0) low = 0xA0;
    if (p[0] == 0xED) high = 0x9F;
    if (p[0] == 0xF0) low = 0x90;
    if (p[0] == 0xF4) high = 0x8F;
    if ((size_t)(end - p) < n || p[1] < low || p[1] > high) return 0;
    for (i = 2; i < n; i++)
        if ((p[i] & 0xC0) != 0x80) return 0;
    return n;
}

/* The character of these n bytes, as utf8_size has found it. */
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
