/* foreign.h - recognizes files of other kinds by their first bytes, and says what to do with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_FOREIGN_H
#define TOOL_FOREIGN_H

#include "../system/io.h"

enum { WANT_SAFETENSORS, WANT_BSNAP };

/* For an input of another kind than the wanted one; nothing of it has been consumed. Returns 1 with the fault set if it is
 * recognized or cannot be read, else 0. */
int foreign_refuse(input *in, int wanted, fault *f);

/* Returns 1 if the bytes in the window begin a .safetensors file. The window must hold 32 bytes, or the whole input. */
int foreign_is_plain(const input *in);

/* Returns the kind of an input that is taken as raw elements, such as "a gzip file"; null if it is not recognized, or cannot be
 * read. */
const char *foreign_name(input *in, fault *f);

#endif
