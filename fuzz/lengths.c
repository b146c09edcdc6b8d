/* Code tables alone, and code lengths alone. An accepted table is complete, has only one encoding, and gives a tree within the
 * bounds that the decoder relies on. */
#define FUZZ_INTERNALS
#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bsn_tree t;
    static bsn_package package;
    uint8_t again[160], lengths[257];
    uint32_t counts[257], own[257];
    uint8_t *table;
    unsigned rule, form, escape, depth[64], n = 1, nodes = 0, kraft = 0, s, present = 0;
    size_t used, i;
    uint64_t sum = 0;
    fuzz_drop(0);
    if (size < 1) return 0;
    table = fuzz_copy(data + 1, size - 1);
    form = data[0] & 15;
    escape = data[0] >> 4;
    used = 0;
    if (form == (escape ? BSN_LIST_ESCAPES : BSN_LIST_TREE) && escape <= BSN_LIMIT) /* callers see to it */
        used = bsn_table_read(&t, escape, table, size - 1, 1 + size % 8, &rule);
    if (used) {
        REQUIRE(used < size && bsn_table_write(again, &t) == used + 1 && !memcmp(again + 1, table, used));
        depth[0] = 0;
        while (n) {
            const unsigned d = depth[--n];
            const bsn_step step = bsn_tree_step(&t, d);
            REQUIRE(step.bits >= 1 && step.bits <= 4 && d + step.bits <= 8 && step.lists <= 4);
            REQUIRE(++nodes <= 30);
            for (i = (unsigned)step.escape; i < step.lists; i++) depth[n++] = d + step.bits;
            REQUIRE(n < 40);
        }
        REQUIRE(t.next == t.codes);
    }
    /* counts from the input */
    memset(counts, 0, sizeof counts);
    for (i = 0; i + 3 < size; i += 4) {
        counts[(data[i] | data[i + 1] << 8) % 257] = data[i + 2] | (unsigned)data[i + 3] << (data[i + 2] % 12);
    }
    for (s = 0; s < 257; s++) {
        sum += counts[s];
        present += counts[s] > 0;
    }
    if (present > 256 || sum >> 28) return 0; /* more than a list can have */
    memcpy(own, counts, sizeof own);
    bsn_lengths(&package, lengths, own);
    for (s = 0; s < 257; s++) {
        REQUIRE((lengths[s] != 0) == (counts[s] != 0) && lengths[s] <= 8);
        if (lengths[s]) kraft += 256u >> lengths[s];
    }
    REQUIRE(kraft == (present > 1 ? 256u : present ? 128u : 0u));
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    size_t n;
    return fuzz_seed_list(number, to, room, &n);
}
