/* Prints the table of docs/EMBEDDING.md about workspaces: what encoding and decoding without a base or a quantizer need, by the size of
 * blocks and the dtype. */
#define BITSNAP_LOSSLESS_ONLY
#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    static const bitsnap_dtype dtypes[] = { BITSNAP_I8, BITSNAP_BF16, BITSNAP_F32, BITSNAP_F64 };
    static const unsigned log2s[] = { 10, 12, 14, 16 };
    enum { N = 1 << 16, DTYPES = sizeof dtypes / sizeof *dtypes };
    unsigned char *elements = calloc(N, 8), *frame, *workspace = malloc(4 * BITSNAP_WORKSPACE);
    const size_t capacity = bitsnap_bound(NULL, N, BITSNAP_F64) + N;
    size_t i, j, size;
    frame = malloc(capacity);
    if (!elements || !frame || !workspace) return 2;
    printf("| elements of a block |");
    for (j = 0; j < DTYPES; j++) printf(" %s: encode, decode |", bitsnap_dtype_name(dtypes[j]));
    printf("\n|---|");
    for (j = 0; j < DTYPES; j++) printf("---|");
    for (i = 0; i < sizeof log2s / sizeof *log2s; i++) {
        printf("\n| %u |", 1u << log2s[i]);
        for (j = 0; j < DTYPES; j++) {
            bitsnap b = { 0 };
            bitsnap_info info;
            b.block_log2 = log2s[i];
            b.workspace = workspace;
            b.workspace_size = 4 * BITSNAP_WORKSPACE;
            if (bitsnap_encode(&b, frame, capacity, &size, elements, N, dtypes[j]) || bitsnap_read_info(&info, frame, size)) return 1;
            printf(" %.0f, %.0f KB |", (double)bitsnap_workspace_size(&b, N, dtypes[j]) / 1000, (double)info.workspace_size / 1000);
        }
    }
    printf("\n");
    free(elements), free(frame), free(workspace);
    return 0;
}
