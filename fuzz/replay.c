/* An engine for machines without a fuzzer. Runs a target over the given files, every prefix of small ones, and reproducible
 * mutations of all of them.
 *   TARGET [-m MUTATIONS] FILE...      (default 200 mutations of each file)
 *   FUZZ_SEEDS=DIRECTORY TARGET        writes the target's seeds */
#define FUZZ_ENGINE
#include "fuzz.h"

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

size_t LLVMFuzzerMutate(uint8_t *p, size_t size, size_t room)
{
    unsigned changes = 1 + (unsigned)(next() % 4);
    while (changes-- && size) {
        const size_t at = (size_t)(next() % size), n = 1 + (size_t)(next() % 8);
        switch (next() % 7) {
        case 0: p[at] ^= (uint8_t)(1u << next() % 8); break;
        case 1: p[at] = (uint8_t)next(); break;
        case 2: p[at] = (uint8_t)(next() & 1 ? 0xFF : 0); break;
        case 3: p[at]++; break;
        case 4: size = at; break; /* cut */
        case 5: /* repeats some bytes */
            if (room - size < n) break;
            memmove(p + at + n, p + at, size - at);
            size += n;
            break;
        default: /* copies some bytes to another position */
            if (size > 16) memmove(p + (size_t)(next() % (size - 8)), p + (size_t)(next() % (size - 8)), n);
            break;
        }
    }
    return size;
}

int main(int argc, char **argv)
{
    unsigned mutations = 200, i, files = 0;
    unsigned long runs = 0;
    int a = 1;
    (void)LLVMFuzzerInitialize(&argc, &argv);
    if (argc > 2 && !strcmp(argv[1], "-m")) {
        mutations = (unsigned)atoi(argv[2]);
        a = 3;
    }
    for (; a < argc; a++, files++) {
        size_t size, n;
        uint8_t *p = slurp(argv[a], &size), *copy = (uint8_t *)malloc(size + 256);
        REQUIRE(copy);
        LLVMFuzzerTestOneInput(p, size);
        for (n = 0; n < size && size < 700; n += 1 + size / 100, runs++) LLVMFuzzerTestOneInput(p, n);
        for (i = 0; i < mutations; i++, runs++) {
            memcpy(copy, p, size);
            if (LLVMFuzzerCustomMutator) n = LLVMFuzzerCustomMutator(copy, size, size + 256, (unsigned)next());
            else n = LLVMFuzzerMutate(copy, size, size + 256);
            LLVMFuzzerTestOneInput(copy, n);
        }
        free(p);
        free(copy);
    }
    printf("ok - replay %s: %u files, %lu runs\n", argv[0], files, runs);
    return 0;
}
