/* What the benchmark can do. Each mode prints its report, as a table or as JSON. */
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

/* One thread to as many as there are processors. */
void bench_threads(const options *o, const tensor *t);

/* Changes of tensors, in the cache. */
void bench_deltas(const options *o, const tensor *list, size_t count);

/* Integers beside floats, made up. */
void bench_dtypes(const options *o);

/* F32 tensors in cells of logarithms: adam_m and adam_v where they are among them. */
void bench_quantize(const options *o, const tensor *list, size_t count);

#endif
