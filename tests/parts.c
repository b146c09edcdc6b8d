/* The small tests of the codec's parts as one program: compiling the codec takes longer than they do. */
#define main bitmask_main
#include "test_bitmask.c"
#undef main
#define main hash_main
#include "test_hash.c"
#undef main
#define main huffman_main
#include "test_huffman.c"
#undef main
#define main mask_main
#include "test_mask.c"
#undef main
#define main planes_main
#include "test_planes.c"
#undef main

int main(void) { return bitmask_main() | hash_main() | huffman_main() | mask_main() | planes_main(); }
