/* What the benchmark measures on: tensors from .safetensors files, or made up. */
#ifndef BENCH_TENSORS_H
#define BENCH_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "bitsnap.h"

typedef struct tensor {
    char file[64]; /* where it comes from: a file's name without ".safetensors", or "synthetic-..." */
    bitsnap_dtype dtype;
    uint8_t *data; /* from malloc */
    size_t size;   /* bytes, a multiple of the element's width */
} tensor;

enum { TENSORS_MAX = 8 };

/* The tensors of a directory: bf16-1000, fp16-1000, master-1000, adam_m-1000 and adam_v-1000 where one of them
 * is there, else the first file of each dtype by name. All tensors of a file's main dtype make one array.
 * Returns how many; 0 where nothing fits or memory is short. */
size_t tensors_load(tensor list[TENSORS_MAX], const char *directory);

/* The same of DIRECTORY/NAME.safetensors. Returns 1, or 0 where it cannot be read or nothing fits. */
int tensor_load(tensor *t, const char *directory, const char *name);

/* Made-up weights in bf16, f16 and f32, the same on every machine: 64 tensors of 65536 normal numbers, each
 * tensor with a scale of its own. A normal number is the sum of 12 uniform 32-bit integers from splitmix64
 * (seed 1) less its mean; its standard deviation is 2^32. */
size_t tensors_make(tensor list[TENSORS_MAX]);

/* Their random numbers: 64 bits, and a normal number of standard deviation 1. */
uint64_t tensors_random(uint64_t *state);
double tensors_normal(uint64_t *state);

void tensors_free(tensor *list, size_t count);

/* "bf16", "f16" or "f32" */
const char *tensors_dtype_name(bitsnap_dtype dtype);

#endif
