/* The codec itself, compiled once for all targets. */
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
