#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study.h"

/* Checkpoints of one model: a step apart in mid-training and late, fine-tuning, other types, and casts of master copies. */
static const char *const pairs[][2] = {
    {"bf16-1000", "bf16-1001"},   {"bf16-1000", "bf16-1010"},    {"bf16-2400", "bf16-2401"},   {"bf16-2400", "bf16-2410"},
    {"bf16-2410", "bf16-tune1"},  {"bf16-2410", "bf16-tune10"},  {"fp16-1000", "fp16-1010"},   {"master-1000", "master-1010"},
    {"master-1000", "bf16-1000"}, {"master-1000", "fp16-1000"},
};

void study_pairs(const options *o)
{
    table_begin(o, "Between real checkpoints", 0);
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        tensor from, to;
        measured m;
        change c;
        if (!tensor_load(&from, o->from, pairs[i][0])) continue;
        if (!tensor_load(&to, o->from, pairs[i][1])) {
            free(from.data);
            continue;
        }
        c.dtype = to.dtype;
        c.base_dtype = from.dtype;
        c.base = from.data;
        c.data = to.data;
        c.n = to.size / bitsnap_width(to.dtype);
        if (c.n == from.size / bitsnap_width(from.dtype)) {
            m = forms_measure(&c, o->quick ? ALL_FORMS & ~(1u << XOR_ZSTD_19) : ALL_FORMS);
            table_row(tensors_dtype_name(to.dtype), from.file, to.file, &m, 1);
        }
        free(from.data);
        free(to.data);
    }
    table_end();
}
