/* The codec itself, compiled once for all targets. */
#ifdef __has_feature
#if __has_feature(memory_sanitizer)
#define BITSNAP_NO_SIMD /* it knows too little of vector intrinsics */
#endif
#endif
#define BITSNAP_OFFLOAD
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
