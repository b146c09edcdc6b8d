/* help.h - the tool explains itself.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_HELP_H
#define TOOL_HELP_H

#include "options.h"

/* On standard output; NO_COMMAND for the tool as a whole. */
void print_help(command c);
void print_version(void);

#endif
