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
#define main index_main
#include "test_index.c"
#undef main
#define main integers_main
#include "test_integers.c"
#undef main
#define main mask_main
#include "test_mask.c"
#undef main
#define main parted_main
#include "test_parted.c"
#undef main
#define main planes_main
#include "test_planes.c"
#undef main

int main(void) { return bitmask_main() | hash_main() | huffman_main() | index_main() | integers_main() | mask_main() | parted_main() | planes_main(); }
