/* codec.c - the codec and its files, compiled here and nowhere else in the engine. MIT licence, see bitsnap.h. */
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "../file/bitsnap_file.h"
