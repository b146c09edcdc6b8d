/* Pulling: an error in a later block leaves sizes of 0, as the contract of bitsnap.h has it. */
#include "test.h"

#define BITSNAP_IMPLEMENTATION
#include "bitsnap.h"

static void sizes_after_errors(void)
{
    static uint8_t workspace[BITSNAP_WORKSPACE], frame[4096], elements[256], out[256];
    bitsnap b;
    bitsnap_encoder s;
    size_t size, at, used, n, i;
    memset(&b, 0, sizeof b);
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    b.block_log2 = 6;
    for (i = 0; i < sizeof elements; i++) elements[i] = (uint8_t)(i * i >> 3);
    CHECK(bitsnap_encode(&b, frame, sizeof frame, &size, elements, sizeof elements, BITSNAP_I8) == BITSNAP_OK);
    CHECK(bitsnap_decoder_begin(&b, &s, frame, size, &at) == BITSNAP_OK);
    CHECK(bitsnap_decoder_pull(&b, &s, out, 64, &n, frame + at, size - at, &used) == BITSNAP_OK && n == 64);
    frame[at + 2 * used - 1] ^= 1; /* in the second block, which like all of these is stored */
    CHECK(bitsnap_decoder_begin(&b, &s, frame, size, &at) == BITSNAP_OK);
    n = used = 1;
    CHECK(bitsnap_decoder_pull(&b, &s, out, sizeof out, &n, frame + at, size - at, &used) == BITSNAP_E_CHECK && n == 0 && used == 0);
    CHECK(b.error.element == 64);
}

int main(void)
{
    test_program = "pull";
    RUN(sizes_after_errors);
    return test_failures != 0;
}
