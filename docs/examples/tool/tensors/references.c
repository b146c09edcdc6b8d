/* references.c - finds tensors that equal earlier ones of the same file, or that rounding connects with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#define BITSNAP_REFERENCES_IMPLEMENTATION
#include "references.h"

typedef struct file_data {
    const input *in;
    uint64_t begin;
} file_data;

static int read_data(void *context, uint64_t offset, void *to, size_t size)
{
    const file_data *d = (const file_data *)context;
    return input_get(d->in, d->begin + offset, to, size);
}

int references_find(references *r, const safetensors *model, uint64_t data, const input *in, const unsigned char *skip,
                    int by_content, fault *f)
{
    file_data d = { in, data };
    const bitsnap_source source = { read_data, &d, NULL, 0 };
    const bitsnap_status status = bitsnap_references_find(&r->list, &r->count, model, &source, skip, by_content);
    size_t i;
    if (status) return status == BITSNAP_E_SOURCE ? fault_errno(f, "cannot be read") : fault_memory(f);
    for (i = 0; i < r->count; i++) {
        const bitsnap_reference *x = &r->list[i];
        r->tensors += !i || x->tensor != x[-1].tensor;
        r->bytes += x->count * bitsnap_width(bitsnap_tensor_codec(&model->tensors[x->tensor]));
    }
    return 0;
}

void references_free(references *r) { free(r->list); }
