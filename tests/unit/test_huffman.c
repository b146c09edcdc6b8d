/* HUFFMAN: lengths, canonical codes, and every complete code, through trees, tables and lists. */
#include "test.h"
#include <math.h>
#define BITSNAP_IMPLEMENTATION
#include "bitsnap_simd.h"

static uint8_t workspace[BITSNAP_WORKSPACE];
static bsn_lists *lists;
static uint8_t *memory; /* after the lists */

/* ---- lengths ---- */

static bsn_package package;

static void lengths_of(uint8_t length[257], const uint32_t count[257])
{
    uint32_t own[257];
    memcpy(own, count, sizeof own);
    bsn_lengths(&package, length, own);
}

/* Canonical codes, left-aligned, ascending by (length, symbol). Returns the sum of 2^(8 - length); 256: the code is complete. */
static unsigned codes_of(uint8_t code[257], const uint8_t length[257])
{
    unsigned l, s, at = 0;
    for (l = 1; l <= 8; l++)
        for (s = 0; s <= 256; s++)
            if (length[s] == l) code[s] = (uint8_t)at, at += 256u >> l;
    return at;
}

static uint64_t cost(const uint32_t count[257], const uint8_t length[257])
{
    uint64_t sum = 0;
    int s;
    for (s = 0; s <= 256; s++) sum += (uint64_t)count[s] * length[s];
    return sum;
}

/* The smallest cost of a prefix code of at most 8 bits, by an independent method. It tries all numbers of codes of each
 * length, from short to long, for symbols sorted by falling count. It is exhaustive, so only for few symbols. */
static uint64_t least(const uint32_t *sorted, unsigned m, unsigned length, unsigned kraft)
{
    uint64_t best = UINT64_MAX, sum = 0;
    unsigned taken;
    if (m == 0) return kraft == 256 ? 0 : UINT64_MAX;
    if (length > 8) return UINT64_MAX;
    for (taken = 0; taken <= m; taken++) { /* the `taken` most frequent symbols get this length */
        uint64_t rest;
        if (taken) sum += (uint64_t)sorted[taken - 1] * length;
        if (kraft + taken * (256u >> length) > 256) break;
        rest = least(sorted + taken, m - taken, length + 1, kraft + taken * (256u >> length));
        if (rest != UINT64_MAX && sum + rest < best) best = sum + rest;
    }
    return best;
}

static int descending(const void *a, const void *b)
{
    const uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void lengths_are_optimal(void)
{
    int round;
    for (round = 0; round < 3000; round++) {
        uint32_t count[257] = { 0 }, sorted[12];
        uint8_t length[257], code[257];
        unsigned m = 2 + (unsigned)test_below(10), i, s;
        for (i = 0; i < m; i++) {
            do s = (unsigned)test_below(257);
            while (count[s]);
            count[s] = 1 + (uint32_t)(test_random() >> (35 + test_below(29))) % 1000000;
            sorted[i] = count[s];
        }
        qsort(sorted, m, sizeof *sorted, descending);
        lengths_of(length, count);
        CHECK(cost(count, length) == least(sorted, m, 1, 0), "round %d", round);
        CHECK(codes_of(code, length) == 256);
    }
}

static void lengths_of_many(void)
{
    int round;
    for (round = 0; round < 2000; round++) {
        uint32_t count[257] = { 0 };
        uint8_t length[257], again[257], code[257];
        unsigned s, t, m = 1 + (unsigned)test_below(256), kraft = 0, left = m;
        for (s = 0; s < 257 && left; s++)
            if (test_below(257 - s) < left) {
                count[s] = 1 + (uint32_t)(test_random() % 100000) * (round & 1) + (round % 3 == 0 ? s * s : 0);
                left--;
            }
        lengths_of(length, count);
        test_fill((uint8_t *)&package, sizeof package);
        lengths_of(again, count);
        CHECK(!memcmp(length, again, 257), "depends on the workspace's contents");
        for (s = 0; s < 257; s++) {
            CHECK((length[s] != 0) == (count[s] != 0) && length[s] <= 8);
            if (length[s]) kraft += 256u >> length[s];
            for (t = 0; t < s; t++) /* more frequent symbols never get longer codes; of equally frequent ones, the larger symbol does */
                if (count[s] && count[t])
                    CHECK(count[s] > count[t] ? length[s] <= length[t] : length[s] >= length[t], "%u %u", t, s);
        }
        if (m == 1) continue;
        CHECK(kraft == 256);
        CHECK(codes_of(code, length) == 256);
        for (s = 0; s < 257; s++) /* prefix-free, ascending by (length, symbol) */
            for (t = 0; t < 257; t++)
                if (s != t && length[s] && length[t] && length[s] <= length[t]) {
                    CHECK((code[s] ^ code[t]) >> (8 - length[s]), "prefix");
                    if (length[s] < length[t] || s < t) CHECK(code[s] < code[t], "order");
                }
    }
}

static void lengths_at_the_ends(void)
{
    uint32_t count[257];
    uint8_t length[257];
    unsigned s;
    for (s = 0; s < 257; s++) count[s] = s != 7; /* 256 symbols for 256 codes of 8 bits */
    lengths_of(length, count);
    for (s = 0; s < 257; s++) CHECK(length[s] == (s == 7 ? 0 : 8));
    memset(count, 0, sizeof count);
    lengths_of(length, count);
    for (s = 0; s < 257; s++) CHECK(length[s] == 0);
}

/* ---- every complete code ---- */

static unsigned long cases, most_nodes;

static void reader_of(bsn_reader *r, const uint8_t *list, const uint8_t *end)
{
    memset(r, 0, sizeof *r);
    r->kernels = bitsnap_kernels_get(0);
    r->lists = lists;
    r->at = list;
    r->end = r->input_end = end;
    r->scratch = memory;
    r->scratch_end = r->kept = memory + BSN_LISTS_SIZE(65536);
    r->kept_end = r->kept + BSN_KEPT_SIZE(65536);
}

/* Checks the nodes of the tree with the lengths of tree[0]. The proofs of the decoder depend on these properties. */
static void check_nodes(void)
{
    bsn_tree *t = &lists->tree[0];
    unsigned depth[64], n = 1, nodes = 0, leaves = 0, escapes = 0, j;
    depth[0] = 0;
    t->next = 0;
    while (n) {
        const unsigned d = depth[--n];
        const bsn_step step = bsn_tree_step(t, d);
        CHECK(step.bits >= 1 && step.bits <= 4 && d + step.bits <= 8, "bits %u at depth %u", step.bits, d);
        CHECK(step.lists <= 4 && step.leaves + step.lists == 1u << step.bits, "lists %u", step.lists);
        leaves += step.leaves;
        escapes += (unsigned)step.escape;
        nodes++;
        for (j = (unsigned)step.escape; j < step.lists; j++) depth[n++] = d + step.bits;
        if (n > 40) {
            CHECK(0, "stack of %u", n);
            return;
        }
    }
    CHECK(t->next == t->codes && leaves + escapes == t->codes && escapes == (t->escape != 0xFFFF), "codes");
    if (nodes > most_nodes) most_nodes = nodes;
}

/* Codes lists with this code. Symbols in ascending order get the lengths; the escape takes one of length `escape` (0: none).
 * The list contains every symbol, and some that escape. */
static void one_code(const unsigned n[9], unsigned escape)
{
    static uint8_t symbols[512], coded[4096], out[512 + 64], copy[512 + 64];
    bsn_tree *t = &lists->tree[0];
    static bsn_planner planner;
    bsn_writer w;
    bsn_item item;
    bsn_reader r;
    const uint8_t *result;
    unsigned s = 0, length, i, m;
    const unsigned offset = (unsigned)(cases % 7) * (cases % 3 == 0);
    uint8_t lengths[257];
    memset(t->length, 0, 257);
    for (length = 1; length <= 8; length++)
        for (i = n[length] - (escape == length); i > 0 && s + offset < 256; i--) t->length[offset + s++] = (uint8_t)length;
    t->length[256] = (uint8_t)escape;
    for (i = 0, m = escape > 0; i < 256; i++) m += t->length[i] > 0;
    if (m != n[1] + n[2] + n[3] + n[4] + n[5] + n[6] + n[7] + n[8]) return; /* the offset left no space */
    memcpy(lengths, t->length, 257);
    t->raw_escapes = cases & 1;
    for (i = m = 0; i < 256; i++)
        if (lengths[i] || (escape && i % 16 == 5)) symbols[m++] = (uint8_t)(i * 1u);
    while (m < 16) {
        symbols[m] = symbols[m / 2];
        m++;
    }
    memcpy(copy, symbols, m);
    if (!bsn_tree_order(t, 0, 255)) {
        CHECK(0, "not complete");
        return;
    }
    check_nodes();
    memset(&w, 0, sizeof w);
    w.kernels = bitsnap_kernels_get(0);
    w.lists = lists;
    w.planner = &planner;
    w.at = coded;
    w.end = coded + sizeof coded;
    w.scratch = memory;
    memset(&item, 0, sizeof item);
    item.data = copy;
    item.scratch = memory;
    item.count = (uint32_t)m;
    item.bits = 8;
    bsn_write_items(&w, bsn_write_tree(&w, lists->stack, &item));
    CHECK(!w.full);
    reader_of(&r, coded, w.at);
    bsn_list_read(&r, m, 8);
    CHECK(!r.rule && r.at == w.at, "rule %u", r.rule);
    if (r.rule) return;
    CHECK(!memcmp(lists->tree[0].length, lengths, 257) || lists->tree[0].length[256] == escape, "table");
    result = bsn_list_next(&r, out, 0, m);
    CHECK(!memcmp(result, symbols, m), "symbols");
}

/* Tries all numbers of codes of each length with a Kraft sum of 1 and at most 256 codes; without LONG=1 only every 101st. */
static void every_complete_code(void)
{
    const int quick = !test_long();
    unsigned n[9] = { 0 }, left[10], l = 1, e;
    unsigned long vectors = 0;
    cases = most_nodes = 0;
    /* left[l] positions are free at depth l; chooses the number of codes among them, from all down to 0 */
    left[1] = 2;
    n[1] = 3;
    while (l) {
        if (n[l] == 0) {
            l--;
            continue;
        }
        n[l]--;
        if (n[l] == left[l]) { /* complete */
            unsigned k, codes = 0, saved[9];
            memcpy(saved, n, sizeof saved);
            for (k = l + 1; k <= 8; k++) n[k] = 0;
            for (k = 1; k <= 8; k++) codes += n[k];
            if (codes <= 256) {
                const int tried = !quick || vectors % 101 == 0;
                vectors++;
                if (tried) one_code(n, 0);
                cases++;
                for (e = 1; e <= 8; e++) {
                    if (!n[e]) continue;
                    if (tried) one_code(n, e);
                    cases++;
                }
            }
            memcpy(n, saved, sizeof saved);
            continue;
        }
        if (l < 8) {
            left[l + 1] = 2 * (left[l] - n[l]);
            l++;
            n[l] = left[l] + 1;
        } else {
            n[l] = 0; /* at depth 8 all positions must be codes */
        }
    }
    CHECK(vectors == 692003, "%lu vectors", vectors);
    CHECK(cases == 4303457, "%lu cases", cases);
    CHECK(most_nodes <= 30, "%lu nodes", most_nodes);
}

/* ---- tables ---- */

static void tables_one_spelling(void)
{
    int round;
    for (round = 0; round < 200000; round++) {
        uint8_t table[160], again[160];
        bsn_tree *t = &lists->tree[0];
        unsigned rule, escape, i;
        size_t used, size = 4 + test_below(20);
        test_fill(table, sizeof table);
        if (round & 1) /* lengths that may be complete */
            for (i = 2; i < size; i++) table[i] = (uint8_t)(0x11 * (1 + test_below(5)) + (test_below(4) ? 0 : test_below(256)));
        table[1] = (uint8_t)test_below(24);
        escape = test_below(2) ? 0 : 1 + (unsigned)test_below(8);
        used = bsn_table_read(t, escape, table, size, 8, &rule);
        if (!used) {
            CHECK(rule >= 24 && rule <= 28, "rule %u", rule);
            continue;
        }
        CHECK(used <= size);
        CHECK(bsn_table_write(again, t) == used + 1 && !memcmp(again + 1, table, used), "another spelling");
        CHECK(again[0] == (escape ? BSN_LIST_ESCAPES | escape << 4 : BSN_LIST_TREE));
    }
}

/* Logarithms are exact enough for sums of large counts. */
static void logarithms(void)
{
    uint32_t x;
    for (x = 1; x < 3000000; x += 1 + x / 3000) {
        const double wrong = (double)bsn_log2_fixed(x) - 1048576 * log2((double)x);
        CHECK(wrong < 4 && wrong > -4, "%u: %f", x, wrong);
    }
    CHECK(bsn_log2_fixed(1) == 0 && bsn_log2_fixed(1u << 31) == UINT64_C(31) << 20);
}

/* ---- lists through the public functions ---- */

static void lists_round_trip(void)
{
    static uint8_t symbols[70000], coded[70002], out[70000];
    const bitsnap_kernels *k;
    bitsnap b = { 0 };
    int round;
    unsigned table;
    b.workspace = workspace;
    b.workspace_size = sizeof workspace;
    for (round = 0; round < 700; round++) {
        static const size_t sizes[] = { 0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 63, 64, 65, 255, 256, 1000, 4095, 4096, 4097, 65536 };
        const size_t n = round < 400 ? sizes[round % 20] : test_below(8000);
        const int shape = round % 9;
        size_t i, size, size2;
        for (i = 0; i < n; i++) {
            uint64_t x = test_random();
            unsigned zeros = 0;
            while (zeros < 60 && !((x >> zeros) & 1)) zeros++; /* geometric */
            switch (shape) {
            case 0: symbols[i] = (uint8_t)x; break;
            case 1: symbols[i] = 42; break;
            case 2: symbols[i] = (uint8_t)(120 + zeros); break;
            case 3: symbols[i] = zeros > 5; break;
            case 4: symbols[i] = zeros > 9 ? (uint8_t)(x >> 50) : 0; break;
            case 5: symbols[i] = (uint8_t)(zeros > 3 ? x >> 40 : 7); break;
            case 6: symbols[i] = (uint8_t)((x >> 20) % 40); break;
            case 7: symbols[i] = (uint8_t)(i / 300); break;
            default: symbols[i] = (uint8_t)(zeros * zeros); break;
            }
        }
        for (b.level = BITSNAP_FAST; b.level <= BITSNAP_BEST; b.level++) {
            b.kernels = NULL;
            CHECK(bitsnap_list_encode(&b, coded, n + 1, &size, symbols, n) == BITSNAP_OK && size <= n + (n > 0), "n %zu", n);
            for (table = 0; (k = bitsnap_kernels_get(table)) != NULL; table++) {
                static uint8_t other[70001];
                b.kernels = k;
                CHECK(bitsnap_list_encode(&b, other, n + 1, &size2, symbols, n) == BITSNAP_OK);
                CHECK(size == size2 && !memcmp(other, coded, size), "table %s gives other bytes", bitsnap_kernels_name(k));
                memset(out, 0xEE, n);
                CHECK(bitsnap_list_decode(&b, out, n, coded, size, NULL) == BITSNAP_OK, "rule %u", b.error.rule);
                CHECK(!memcmp(out, symbols, n), "shape %d n %zu", shape, n);
            }
            if (size) {
                CHECK(bitsnap_list_encode(&b, coded, size - 1, &size2, symbols, n) == BITSNAP_E_CAPACITY && size2 == 0);
                CHECK(bitsnap_list_encode(&b, coded, size, &size2, symbols, n) == BITSNAP_OK && size2 == size);
                CHECK(bitsnap_list_decode(&b, out, n, coded, size - 1, NULL) != BITSNAP_OK, "truncated");
            }
            if (n) { /* a list tells its own end */
                CHECK(bitsnap_list_decode(&b, out, n, coded, size, &size2) == BITSNAP_OK && size2 == size);
                coded[size] = (uint8_t)test_random();
                CHECK(bitsnap_list_decode(&b, out, n, coded, size + 1, &size2) == BITSNAP_OK && size2 == size && !memcmp(out, symbols, n));
            }
            coded[size] = 0;
            CHECK(bitsnap_list_decode(&b, out, n, coded, size + 1, NULL) != BITSNAP_OK, "trailing");
        }
        if (shape == 4 && n == 65536) CHECK(size < 2000, "a sparse list of %zu bytes", size);
    }
}

int main(void)
{
    test_program = "huffman";
    lists = (bsn_lists *)bsn_align(workspace);
    memory = (uint8_t *)(lists + 1);
    RUN(lengths_are_optimal);
    RUN(lengths_of_many);
    RUN(lengths_at_the_ends);
    RUN(tables_one_spelling);
    RUN(logarithms);
    RUN(lists_round_trip);
    RUN(every_complete_code);
    return test_failures != 0;
}
