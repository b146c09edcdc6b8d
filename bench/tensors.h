/* Tensors for the benchmark, from .safetensors files or made up. */
#ifndef BENCH_TENSORS_H
#define BENCH_TENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "bitsnap.h"

typedef struct tensor {
    char file[64]; /* origin: a file's name without ".safetensors", or "synthetic-..." */
    bitsnap_dtype dtype;
    uint8_t *data; /* from malloc */
    size_t size;   /* bytes, a multiple of the element's width */
} tensor;

enum { TENSORS_MAX = 8 };

/* Loads the tensors of a directory: bf16-1000, fp16-1000, master-1000, adam_m-1000 and adam_v-1000 if any of them
 * exists, otherwise the first file of each dtype by name. Joins all tensors of a file's main dtype. Returns the
 * number of arrays; 0 if no file can be used or memory is short. */
size_t tensors_load(tensor list[TENSORS_MAX], const char *directory);

/* Loads DIRECTORY/NAME.safetensors in the same way. Returns 0 if it cannot be read or used. */
int tensor_load(tensor *t, const char *directory, const char *name);

/* Makes weights in bf16, f16 and f32, the same on every machine: 64 tensors of 65536 normal numbers, each tensor
 * with its own scale. A normal number is the sum of 12 uniform 32-bit integers from splitmix64 (seed 1) minus its
 * mean; its standard deviation is 2^32. */
size_t tensors_make(tensor list[TENSORS_MAX]);

/* Random numbers: 64 bits, and a normal number of standard deviation 1. */
uint64_t tensors_random(uint64_t *state);
double tensors_normal(uint64_t *state);

void tensors_free(tensor *list, size_t count);

/* "bf16", "f16" or "f32" */
const char *tensors_dtype_name(bitsnap_dtype dtype);

#endif
