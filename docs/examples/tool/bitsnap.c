/* bitsnap.c - the codec itself, compiled here and nowhere else in the tool.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
