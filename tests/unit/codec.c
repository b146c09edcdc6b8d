/* The codec as the test programs are linked with it. */
#define BITSNAP_OFFLOAD
#define BITSNAP_IMPLEMENTATION
#include "inside.h"
