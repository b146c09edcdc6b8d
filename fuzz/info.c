/* bitsnap_read_info on anything: no access outside of the source, and what it tells is possible. */
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy = fuzz_copy(data, size);
    bitsnap_info info;
    if (bitsnap_read_info(&info, copy, size) == BITSNAP_OK) {
        REQUIRE(bitsnap_width(info.dtype) == info.width && info.width);
        REQUIRE(info.count <= UINT64_C(1) << 48 && info.elements_size == info.count * info.width);
        REQUIRE(info.block_log2 >= 6 && info.block_log2 <= 20 && info.header_size <= size && info.frame_size <= size);
        REQUIRE(info.workspace_size >= bitsnap_workspace(6, 1) && info.workspace_size <= bitsnap_workspace(20, 1));
    }
    free(copy);
    return 0;
}
