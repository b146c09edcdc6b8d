/* The codec that test programs link, and the tests that need more of its internals than inside.h offers. They are compiled
 * once for all programs, because compiling the codec takes longer than most tests. inside.c is their program, and each of its
 * names runs one test. */
#define BITSNAP_OFFLOAD
#define BITSNAP_IMPLEMENTATION
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* as test.h does */
#endif
#if defined(__GNUC__) || defined(__clang__)
#define BSN_MORE_TARGETS "tests/unit/target.h"
#endif
#include "inside.h"

/* "parts": the small tests */
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
#define main coded_main
#include "test_coded.c"
#undef main
#define main parted_main
#include "test_parted.c"
#undef main
#define main planes_main
#include "test_planes.c"
#undef main

static int parts_main(void)
{
    return bitmask_main() | coded_main() | hash_main() | huffman_main() | index_main() | integers_main() | mask_main() | parted_main() | planes_main();
}

/* Each is its own program. They share some names with those above and with each other. */
#define main delta_main
#define back delta_back
#define damage delta_damage
#define frame delta_frame
#define fresh delta_fresh
#define pieces delta_pieces
#define round_trip delta_round_trip
#include "test_delta.c"
#undef MOST
#undef round_trip
#undef pieces
#undef fresh
#undef frame
#undef damage
#undef back
#undef main

#define main frame_main
#define content_ids frame_content_ids
#define fresh frame_fresh
#include "test_frame.c"
#undef fresh
#undef content_ids
#undef main

#define main cases_main
#define callers_mistakes cases_callers_mistakes
#define damage cases_damage
#define frames cases_frames
#define fresh cases_fresh
#define one cases_one
#define ranges cases_ranges
#include "../format/test_cases.c"
#undef MOST
#undef ranges
#undef one
#undef fresh
#undef frames
#undef damage
#undef callers_mistakes
#undef main

#define main bytes_main
#define frames bytes_frames
#include "../format/bytes.c"
#undef frames
#undef main

#define main kernels_main
#define bit_at kernels_bit_at
#define fill kernels_fill
#define place kernels_place
#define split_and_join kernels_split_and_join
#define tables kernels_tables
#define DENSE kernels_DENSE
#define RARE kernels_RARE
#include "test_kernels.c"
#undef RARE
#undef DENSE
#undef tables
#undef split_and_join
#undef place
#undef fill
#undef bit_at
#undef main

int inside_run(const char *name, size_t size, int argc, char **argv)
{
    static const struct { const char *name; int (*run)(void); } programs[] = {
        { "parts", parts_main },
        { "test_delta", delta_main },
        { "test_frame", frame_main },
        { "test_cases", cases_main },
        { "test_kernels", kernels_main },
    };
    size_t i;
    for (i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strlen(programs[i].name) == size && !memcmp(programs[i].name, name, size)) return programs[i].run();
    if (size == 5 && !memcmp(name, "bytes", 5)) return bytes_main(argc, argv);
    printf("not ok - inside: no program of that name: %s\n", name);
    return 2;
}
