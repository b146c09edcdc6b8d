/* restore.c - what a .bsnap file holds, from the first byte to the last.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "restore.h"

#include "bytes.h"

/* The size and the text with which a .safetensors file begins. */
static int put_header(const file_reader *r, output *out, fault *f)
{
    uint8_t size[8];
    if (r->s.start.kind == BITSNAP_SOURCE_RAW) return 0;
    store64(size, r->text_size);
    return output_write(out, size, sizeof size, f) || output_write(out, r->text, r->text_size, f);
}

int restore_source(file_reader *r, output *out, progress *p, fault *f)
{
    const uint8_t *bytes;
    size_t size;
    int begun = 0;
    do {
        if (file_read(r, &bytes, &size, f)) return 1;
        if (out && !begun && put_header(r, out, f)) return 1;
        begun = 1;
        if (out && output_write(out, bytes, size, f)) return 1;
        if (p) progress_show(p, r->s.source_size);
    } while (size);
    return 0;
}
