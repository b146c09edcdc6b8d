/* bench: how fast bitsnap and its peers compress and decompress tensors, against memcpy of the same bytes.
 *
 * Everything runs in this process. A speed is the bytes by the shortest of many times: other work on the machine
 * only ever makes them longer, and memcpy is measured in between, so that what disturbs one meets the other. Every
 * codec's output is decoded and compared once before it is timed.
 *
 * `make bench` builds and runs it; build/bench --help lists modes and options. */
#include <stdio.h>

#include "modes.h"
#include "options.h"
#include "tensors.h"

/* The first tensor that the filters let through. */
static const tensor *chosen(const options *o, const tensor *list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (passes(o->file, list[i].file) && passes(o->dtype, tensors_dtype_name(list[i].dtype))) return &list[i];
    fail("no tensor has such a file and dtype", "");
    return NULL;
}

int main(int argc, char **argv)
{
    const options o = options_read(argc, argv);
    tensor list[TENSORS_MAX];
    size_t count;
    if (o.mode == KERNELS || o.mode == DTYPES) {
        (o.mode == KERNELS ? bench_kernels : bench_dtypes)(&o);
        return 0;
    }
    count = o.data ? tensors_load(list, o.data) : tensors_make(list);
    if (!count) fail("no tensors of bf16, f16 or f32 in ", o.data ? o.data : "memory");
    if (o.mode == CODECS) bench_codecs(&o, list, count);
    else if (o.mode == DELTAS) bench_deltas(&o, list, count);
    else if (o.mode == SIZES) bench_sizes(&o, chosen(&o, list, count));
    else if (o.mode == QUANTIZE) bench_quantize(&o, list, count);
    else bench_threads(&o, chosen(&o, list, count));
    tensors_free(list, count);
    return 0;
}
