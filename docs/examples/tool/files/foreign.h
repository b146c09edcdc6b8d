/* foreign.h - knows by their first bytes files that are not what a command wants, and says what to do with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FOREIGN_H
#define TOOL_FOREIGN_H

#include "../system/io.h"

enum { WANT_SAFETENSORS, WANT_BSNAP };

/* Of an input that is not what is wanted, and of which nothing has been consumed: 1 with the fault set where it is known what it
 * is (or where it cannot be read), else 0. */
int foreign_refuse(input *in, int wanted, fault *f);

/* Whether the bytes in the window, at least 32 if the input has them, begin a .safetensors file. */
int foreign_is_plain(const input *in);

/* What an input is that is taken as raw elements, such as "a gzip file"; null where its first bytes tell nothing. */
const char *foreign_name(input *in, fault *f);

#endif
