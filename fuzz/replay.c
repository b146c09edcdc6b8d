/* Runs a fuzz target without libFuzzer: over the files given, over every prefix of the small ones, and over mutations
 * of all of them, reproducibly. Also writes the seeds from which both begin.
 *   replay [-m MUTATIONS] FILE...      run (default 200 mutations of each file)
 *   replay -s TARGET DIRECTORY         write seeds */
#include "fuzz.h"

#ifdef SEEDS /* a target that makes its own: 0 behind the last */
size_t SEEDS(unsigned number, uint8_t *to, size_t room);
#endif

static uint64_t state = 88172645463325252u;

static uint64_t next(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    return state ^= state << 17;
}

static uint8_t *slurp(const char *path, size_t *size)
{
    FILE *f = fopen(path, "rb");
    uint8_t *p;
    long n;
    if (!f || fseek(f, 0, SEEK_END) || (n = ftell(f)) < 0 || fseek(f, 0, SEEK_SET)) {
        perror(path);
        exit(1);
    }
    p = (uint8_t *)malloc((size_t)n + 1);
    REQUIRE(p && fread(p, 1, (size_t)n, f) == (size_t)n);
    fclose(f);
    *size = (size_t)n;
    return p;
}

static void mutate(uint8_t *p, size_t *size)
{
    unsigned changes = 1 + (unsigned)(next() % 4);
    while (changes-- && *size) {
        const size_t at = (size_t)(next() % *size);
        switch (next() % 6) {
        case 0: p[at] ^= (uint8_t)(1u << next() % 8); break;
        case 1: p[at] = (uint8_t)next(); break;
        case 2: p[at] = (uint8_t)(next() & 1 ? 0xFF : 0); break;
        case 3: p[at]++; break;
        case 4: *size = at; break; /* cut */
        default: /* a piece of it somewhere else */
            if (*size > 16) memmove(p + (size_t)(next() % (*size - 8)), p + (size_t)(next() % (*size - 8)), 1 + (size_t)(next() % 8));
            break;
        }
    }
}

static void save(const char *directory, unsigned number, const uint8_t *p, size_t size)
{
    char path[4096];
    FILE *f;
    snprintf(path, sizeof path, "%s/seed-%03u", directory, number);
    f = fopen(path, "wb");
    if (!f || fwrite(p, 1, size, f) != size || fclose(f)) {
        perror(path);
        exit(1);
    }
}

/* Elements of all dtypes from noise to nearly constant, and what the encoder makes of them. */
static void seeds(const char *target, const char *directory)
{
    unsigned number = 0, dtype, shape, i;
    static uint8_t elements[4096], coded[8192];
#ifdef SEEDS
    size_t seed;
    while ((seed = SEEDS(number, coded, sizeof coded)) != 0) save(directory, number++, coded, seed);
    if (number) return;
#endif
    for (dtype = 1; dtype <= 11; dtype++)
        for (shape = 0; shape < 6; shape++) {
            const unsigned width = bitsnap_width((bitsnap_dtype)dtype);
            const size_t n = shape == 5 ? 20 : 100 + 30 * shape;
            bitsnap b = fuzz_codec(16);
            size_t size;
            for (i = 0; i < n * width; i++)
                elements[i] = (uint8_t)(shape == 0 ? next() : shape == 1 ? 0 : shape == 2 ? (next() % 9 ? 0 : next())
                                                                    : shape == 3 ? 0x3C + (next() & next() & 7) : i % width == width - 1 ? 0xBC ^ (next() % 3) << 7 : next());
            b.block_log2 = shape % 2 ? 6 : 0;
            b.level = (int)(shape % 3);
            b.flags = shape & 4 ? BITSNAP_CONTENT_ID : 0;
            if (!strcmp(target, "list") || !strcmp(target, "lengths")) {
                const size_t m = n * width > 4000 ? 4000 : n * width;
                REQUIRE(bitsnap_list_encode(&b, coded + 2, sizeof coded - 2, &size, elements, m) == BITSNAP_OK);
                coded[0] = (uint8_t)m;
                coded[1] = (uint8_t)(m >> 8);
                save(directory, number++, !strcmp(target, "list") ? coded : coded + 2, !strcmp(target, "list") ? size + 2 : size);
            } else if (!strcmp(target, "round_trip")) {
                coded[0] = (uint8_t)(dtype - 1);
                coded[1] = (uint8_t)shape;
                coded[2] = (uint8_t)shape;
                coded[3] = (uint8_t)shape;
                memcpy(coded + 4, elements, n * width);
                save(directory, number++, coded, n * width + 4);
            } else {
                const unsigned prefix = !strcmp(target, "frame");
                REQUIRE(bitsnap_encode(&b, coded + prefix, sizeof coded - prefix, &size, elements, n, (bitsnap_dtype)dtype) == BITSNAP_OK);
                coded[0] = prefix ? (uint8_t)(shape & 1) : coded[0];
                save(directory, number++, coded, size + prefix);
            }
        }
    for (i = 0; i < 24 && (!strcmp(target, "frame") || !strcmp(target, "info")); i++) { /* with columns, and quantized */
        const unsigned prefix = !strcmp(target, "frame");
        const bitsnap_dtype floats = (bitsnap_dtype)(BITSNAP_F16 + i % 4);
        const size_t width = bitsnap_width(floats), n = 512;
        bitsnap b = fuzz_codec(16);
        size_t size, j;
        for (j = 0; j < n * width; j++) { /* rows of 16, each of another size */
            const unsigned row = (unsigned)(j / width / 16) * 7 % 5;
            elements[j] = (uint8_t)next();
            if (j % width == width - 1) elements[j] = (uint8_t)((0x38 + (width == 2 && floats == BITSNAP_F16 ? row : row / 2)) ^ (next() & 0x80));
        }
        b.level = BITSNAP_BEST;
        b.block_log2 = i / 4 % 2 ? 8 : 0;
        b.quantizer.cells = i < 8 ? 0 : i < 16 ? 8 : 70;
        b.columns = i < 20 ? 16 : 0;
        REQUIRE(bitsnap_encode(&b, coded + prefix, sizeof coded - prefix, &size, elements, n, floats) == BITSNAP_OK);
        coded[0] = prefix ? (uint8_t)(i & 1) : coded[0];
        save(directory, number++, coded, size + prefix);
    }
}

int main(int argc, char **argv)
{
    unsigned mutations = 200, i, files = 0;
    unsigned long runs = 0;
    int a = 1;
    if (argc == 4 && !strcmp(argv[1], "-s")) {
        seeds(argv[2], argv[3]);
        return 0;
    }
    if (argc > 2 && !strcmp(argv[1], "-m")) {
        mutations = (unsigned)atoi(argv[2]);
        a = 3;
    }
    for (; a < argc; a++, files++) {
        size_t size, n;
        uint8_t *p = slurp(argv[a], &size), *copy = (uint8_t *)malloc(size + 1);
        REQUIRE(copy);
        LLVMFuzzerTestOneInput(p, size);
        for (n = 0; n < size && size < 700; n += 1 + size / 100, runs++) LLVMFuzzerTestOneInput(p, n);
        for (i = 0; i < mutations; i++, runs++) {
            n = size;
            memcpy(copy, p, size);
            mutate(copy, &n);
            LLVMFuzzerTestOneInput(copy, n);
        }
        free(p);
        free(copy);
    }
    printf("ok - replay %s: %u files, %lu runs\n", argv[0], files, runs);
    return 0;
}
