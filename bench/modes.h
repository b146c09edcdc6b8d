/* The modes of the benchmark. Each prints its report, as a table or as JSON. */
#ifndef BENCH_MODES_H
#define BENCH_MODES_H

#include "options.h"
#include "tensors.h"

/* Every codec on every tensor, in the cache and in memory. */
void bench_codecs(const options *o, const tensor *list, size_t count);

/* Every kernel of every table. */
void bench_kernels(const options *o);

/* Tensors of every size. */
void bench_sizes(const options *o, const tensor *t);

/* From one thread to one for each processor. */
void bench_threads(const options *o, const tensor *t);

/* Deltas of tensors, in the cache. */
void bench_deltas(const options *o, const tensor *list, size_t count);

/* Made-up integers, compared with floats. */
void bench_dtypes(const options *o);

/* F32 tensors quantized by logarithmic bins: adam_m and adam_v if the list has them. */
void bench_quantize(const options *o, const tensor *list, size_t count);

#endif
