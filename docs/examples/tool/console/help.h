/* help.h - prints help and the version.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_HELP_H
#define TOOL_HELP_H

#include "options.h"

/* Print to standard output. NO_COMMAND: help for the tool as a whole. */
void print_help(command c);
void print_version(void);

#endif
