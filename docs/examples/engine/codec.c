/* codec.c - the codec and its files, compiled here and nowhere else in the engine. MIT licence, see bitsnap.h. */
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"
#define BITSNAP_FILE_IMPLEMENTATION
#include "../file/bitsnap_file.h"

#include <stdlib.h>

/* Content ids for engine_store.c: XXH3 of bytes that come piece by piece, by the insides of the codec. */
void *engine_id_begin(uint64_t total);
void engine_id_add(void *id, const void *bytes, size_t size);
uint64_t engine_id_end(void *id);

void *engine_id_begin(uint64_t total)
{
    bsn_pieces *h = (bsn_pieces *)malloc(sizeof *h);
    if (h) bsn_pieces_begin(h, total);
    return h;
}

void engine_id_add(void *id, const void *bytes, size_t size) { bsn_pieces_add(bsn_kernels_best(), (bsn_pieces *)id, bytes, size); }

uint64_t engine_id_end(void *id)
{
    const uint64_t x = bsn_pieces_end((const bsn_pieces *)id);
    free(id);
    return x;
}
