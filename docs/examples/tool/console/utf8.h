/* utf8.h - characters of UTF-8.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_UTF8_H
#define TOOL_UTF8_H

#include "../../file/bitsnap_file.h"

/* Returns the code point of these n bytes, for which bitsnap_utf8_size has returned n. */
static inline unsigned long utf8_code(const unsigned char *p, size_t n)
{
    unsigned long c = n == 1 ? p[0] : p[0] & (0x7Fu >> n);
    size_t i;
    for (i = 1; i < n; i++) c = c << 6 | (p[i] & 63);
    return c;
}

/* Returns 1 for characters that control a terminal or the layout of text: the controls of ASCII and Latin-1, separators of lines
 * and paragraphs, and marks that change the direction of writing, which can make a name look like another. */
static inline int utf8_is_control(unsigned long c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0x61C || c == 0x200E || c == 0x200F || (c >= 0x2028 && c <= 0x202E) ||
           (c >= 0x2066 && c <= 0x2069);
}

#endif
