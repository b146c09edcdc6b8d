/* header.c - reads the start of a .safetensors file: the size of the header text, the text, and its tensors.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "header.h"

#include "bytes.h"
#include "file.h"
#include "foreign.h"

#include <stdlib.h>
#include <string.h>

/* Fails for a file without a header. Names its kind if that is recognized. A file called .safetensors is bad; others may hold raw
 * elements. */
static int not_one(input *in, const char *what, fault *f)
{
    const char *dot = strrchr(in->name, '.');
    if (foreign_refuse(in, WANT_SAFETENSORS, f)) return 1;
    if (dot && !strcmp(dot, ".safetensors")) return fault_set(f, "bad .safetensors file: %s; take another copy of it", what);
    return fault_set(f, "is not a .safetensors file (%s); if it holds raw elements, give their type with --dtype", what);
}

int header_read(header *h, input *in, fault *f)
{
    const uint8_t *p;
    uint64_t size, whole;
    char what[96];
    memset(h, 0, sizeof *h);
    if (input_fill(in, 9, f)) return 1;
    p = input_bytes(in);
    if (input_available(in) < 9) {
        (void)snprintf(what, sizeof what, "it has only %zu bytes", input_available(in));
        return not_one(in, what, f);
    }
    if (file_is_bsnap(p, 8)) return fault_set(f, "is a .bsnap file already; bitsnap decompress restores what it holds");
    size = load64(p);
    if (size > BITSNAP_TEXT_MAX) {
        (void)snprintf(what, sizeof what, "byte 0: a header of %llu bytes, more than %u", (unsigned long long)size,
                       BITSNAP_TEXT_MAX);
        return not_one(in, what, f);
    }
    if (!safetensors_begins(p[8])) return not_one(in, "byte 8: its header does not begin with '{'", f);
    if (in->size != SIZE_UNKNOWN && size > in->size - 8)
        return fault_set(f, "is incomplete: it has %llu bytes, its header alone should have %llu; take another copy of it",
                         (unsigned long long)in->size, (unsigned long long)size);
    if (input_fill(in, 8 + (size_t)size, f)) return 1;
    if (input_available(in) < 8 + size)
        return fault_set(f, "is incomplete: it ends at byte %zu, inside its header; take another copy of it", input_available(in));
    h->size = (size_t)size;
    h->text = (char *)malloc(h->size ? h->size : 1);
    if (!h->text) return fault_memory(f);
    memcpy(h->text, input_bytes(in) + 8, h->size);
    input_consume(in, 8 + h->size);
    if (safetensors_parse(&h->model, h->text, h->size, f)) return 1;
    if (h->model.data_size > UINT64_MAX - 1 - 8 - size)
        return fault_set(f, "bad .safetensors header: 2^64 bytes of data");
    whole = 8 + size + h->model.data_size;
    if (in->size != SIZE_UNKNOWN && in->size < whole)
        return fault_set(f, "is incomplete: it has %llu bytes, its header describes %llu; take another copy of it",
                         (unsigned long long)in->size, (unsigned long long)whole);
    if (in->size != SIZE_UNKNOWN && in->size > whole)
        return fault_set(f, "has %llu bytes more than its header describes (from byte %llu on); cut them off",
                         (unsigned long long)(in->size - whole), (unsigned long long)whole);
    return 0;
}

void header_free(header *h)
{
    bitsnap_safetensors_free(&h->model);
    free(h->text);
    memset(h, 0, sizeof *h);
}
