/* Levels: with blocks of one size, no level is larger than a lower one by more than 0.1 % and 16 bytes. Elements have many
 * structures: constant bits that differ between parts of a matrix, masks, ramps, tables, zeros, copies. */
#include "test.h"
#include "inside.h"

enum {
    LEVEL_NOISE, LEVEL_ROUNDED_PARTS, LEVEL_CAUSAL, LEVEL_CAUSAL_LEAST, LEVEL_CONSTANT_PARTS, LEVEL_RAMP, LEVEL_IDS, LEVEL_PRUNED, LEVEL_ZERO_ROWS,
    LEVEL_BAND, LEVEL_COIN, LEVEL_TABLE, LEVEL_SCALED_PARTS, LEVEL_ZERO_PARTS, LEVEL_STEPS, LEVEL_FEW, LEVEL_COPIED_ROWS, LEVEL_MIXED_PARTS,
    LEVEL_SCALED_ROWS, LEVEL_SCALED_COLUMNS, LEVEL_KINDS, LEVEL_MOST = 1 << 20, LEVEL_PART = 1 << 16
};

/* About normal, with standard deviation 1. */
static double level_normal(void)
{
    double x = 0;
    unsigned k;
    for (k = 0; k < 4; k++) x += (double)(test_random() & 0xFFFF) / 65536 - 0.5;
    return 1.732 * x;
}

static uint64_t level_bits(bitsnap_dtype dtype, double x, unsigned drop)
{
    uint64_t bits;
    float f = (float)x;
    uint32_t u;
    int e;
    memcpy(&u, &f, 4);
    if (dtype == BITSNAP_F64) {
        memcpy(&bits, &x, 8);
        return bits >> drop << drop;
    }
    if (dtype == BITSNAP_F32) return u >> drop << drop;
    if (dtype == BITSNAP_BF16) return u >> 16 >> drop << drop;
    if (dtype == BITSNAP_F16 || dtype == BITSNAP_F8_E5M2 || dtype == BITSNAP_F8_E4M3) {
        const unsigned mantissa = dtype == BITSNAP_F16 ? 10 : dtype == BITSNAP_F8_E5M2 ? 2 : 3, most = dtype == BITSNAP_F8_E4M3 ? 15 : 31;
        e = (int)(u >> 23 & 255) - 127 + (int)(most / 2);
        if (e < 1) e = 0;
        if (e >= (int)most) e = (int)most;
        bits = (uint64_t)(u >> 31) << (dtype == BITSNAP_F16 ? 15 : 7) | (uint64_t)e << mantissa;
        if (e && e < (int)most) bits |= (u & 0x7FFFFF) >> (23 - mantissa);
        return bits >> drop << drop;
    }
    return (uint64_t)(int64_t)(x * 1000);
}

static double level_huge(void)
{
    const uint32_t u = 0xFF800000u;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static void level_fill(uint8_t *to, size_t n, size_t columns, bitsnap_dtype dtype, unsigned kind)
{
    const unsigned width = bitsnap_width(dtype), floats = dtype >= BITSNAP_F8_E4M3, half = dtype == BITSNAP_F64 ? 29 : dtype == BITSNAP_F32 ? 13 : width > 1 ? 3 : 1;
    double few[16], row_scale = 1;
    size_t i;
    unsigned k;
    test_state = kind + 1;
    for (k = 0; k < 16; k++) few[k] = level_normal();
    for (i = 0; i < n; i++) {
        const size_t row = i / columns, column = i % columns, part = i / LEVEL_PART;
        const double least = floats && dtype != BITSNAP_F8_E4M3 ? level_huge() : -400;
        double x = level_normal() * 0.02;
        uint64_t bits;
        unsigned drop = 0;
        if (column == 0) row_scale = (double)(1 + (test_random() & 127)) / 16;
        switch (kind) {
        case LEVEL_ROUNDED_PARTS: drop = part % 3 == 2 ? 0 : half; break;
        case LEVEL_CAUSAL: x = column > row % columns ? least : 0; break;
        case LEVEL_CAUSAL_LEAST: x = column > row % columns ? -1e4 : 0; break;
        case LEVEL_CONSTANT_PARTS: x = few[part & 15]; break;
        case LEVEL_RAMP: x = (double)(i % 2048); break;
        case LEVEL_IDS: x = (double)(test_random() % (row % 7 ? 50 : 5000)); break;
        case LEVEL_PRUNED: x = test_random() & 1 ? 0 : x; break;
        case LEVEL_ZERO_ROWS: x = row % 3 == 0 ? 0 : x; break;
        case LEVEL_BAND: x = column + 8 < row % columns || column > row % columns ? least : 0; break;
        case LEVEL_COIN: x = (double)(test_random() & 1); break;
        case LEVEL_TABLE: x = (double)(row % 512) / (1 + (double)column); break;
        case LEVEL_SCALED_PARTS: x *= (double)(1u << (part * 5 % 16)); break;
        case LEVEL_ZERO_PARTS: x = part % 2 ? x : 0; break;
        case LEVEL_STEPS: x = (double)(int)(x * 400) * row_scale / 127; break;
        case LEVEL_FEW: x = few[test_random() & 15]; break;
        case LEVEL_MIXED_PARTS: x = part % 4 == 0 ? few[test_random() & 3] : part % 4 == 1 ? (double)(column & 255) : part % 4 == 2 ? 0 : x; break;
        case LEVEL_SCALED_ROWS: x *= row_scale; break;
        case LEVEL_SCALED_COLUMNS: x *= (double)(1 + column * 37 % 97) / 16; break;
        default: break;
        }
        bits = level_bits(dtype, x, drop);
        if (kind == LEVEL_COPIED_ROWS && row % 4) memcpy(&bits, to + (i - columns) * width, width);
        memcpy(to + i * width, &bits, width);
    }
}

static uint8_t level_elements[8 * LEVEL_MOST], level_base[2 * LEVEL_MOST], level_frame[9 * LEVEL_MOST], level_workspace[48 << 20];

static bitsnap level_codec(int level, size_t columns)
{
    bitsnap b;
    memset(&b, 0, sizeof b);
    b.workspace = level_workspace;
    b.workspace_size = sizeof level_workspace;
    b.level = level;
    b.columns = columns;
    return b;
}

/* Encodes at all levels. */
static void level_compare(size_t n, size_t columns, bitsnap_dtype dtype, unsigned kind, int delta)
{
    size_t below = 0, size = 0;
    bitsnap_info info;
    bitsnap b;
    int level;
    for (level = BITSNAP_FAST + !delta; level <= BITSNAP_BEST; level++, below = size) {
        b = level_codec(level, columns);
        if (delta) {
            b.base.data = level_base;
            b.base.count = n;
            b.base.dtype = dtype;
        }
        if (level == BITSNAP_BEST) b.block_log2 = info.block_log2;
        CHECK(!bitsnap_encode(&b, level_frame, sizeof level_frame, &size, level_elements, n, dtype), "%s", bitsnap_message(&b));
        CHECK(!bitsnap_read_info(&info, level_frame, size));
        if (level == BITSNAP_BEST || !delta) /* at level default, deltas with parts that differ are not bound */
            CHECK(!below || size <= below + below / 1000 + 16, "kind %u, dtype %d, %u rows of %u: level %d %u bytes, the one below %u", kind, (int)dtype,
                  (unsigned)(columns ? n / columns : n), (unsigned)columns, level, (unsigned)size, (unsigned)below);
    }
}

static void matrices(void)
{
    static const size_t shapes[][2] = { { 3 * LEVEL_PART, 384 }, { 5 * LEVEL_PART / 2, 1024 } };
    static const bitsnap_dtype dtypes[] = { BITSNAP_F32, BITSNAP_BF16, BITSNAP_F16, BITSNAP_F8_E4M3, BITSNAP_F64, BITSNAP_I16 };
    unsigned kind, i;
    for (kind = 0; kind < LEVEL_KINDS; kind++)
        for (i = kind % 2; i < 6; i += 2) {
            const size_t *shape = shapes[(kind + i / 2) % 2];
            level_fill(level_elements, shape[0], shape[1], dtypes[i], kind);
            level_compare(shape[0], shape[1], dtypes[i], kind, 0);
        }
}

/* Some parts do not change, and others change much. */
static void differences(void)
{
    unsigned kind;
    size_t i;
    level_fill(level_base, LEVEL_MOST, 1024, BITSNAP_BF16, LEVEL_NOISE);
    for (kind = 0; kind < 3; kind++) {
        for (i = 0; i < LEVEL_MOST; i++) {
            const uint64_t r = test_random();
            uint16_t x;
            memcpy(&x, level_base + 2 * i, 2);
            if (kind == 0 && i >= LEVEL_MOST / 2) x = (uint16_t)(x + (r & 7));
            else if (kind == 1) x = (uint16_t)(x + (r % 3 << (i >= LEVEL_MOST / 2 ? 3 : 0)));
            else if (kind == 2 && i >= LEVEL_MOST / 4 * 3) x = 0;
            memcpy(level_elements + 2 * i, &x, 2);
        }
        level_compare(LEVEL_MOST, 0, BITSNAP_BF16, kind, 1);
    }
}

int main(void)
{
    test_program = "test_levels";
    RUN(matrices);
    RUN(differences);
    return test_failures != 0;
}
