/* The vectors of docs/vectors, which FORMAT.md speaks of: frames decode to the elements that stand beside them, or are rejected by the
 * condition that does; values of XXH3. (Files are for tests/vectors.py and the tool.) */
#include "test.h"
#include "vectors.h"
#include "bitsnap_simd.h"
#include <dirent.h>

static char line[1 << 12];

enum { FRAME, ELEMENTS, BASE, BYTES, XXH3, OTHER, PARTS };
static const char *const titles[PARTS] = { "frame", "elements", "base", "bytes", "xxh3", "" };

static struct {
    char name[100];
    unsigned rule, dtype;
    uint8_t data[PARTS][1 << 23];
    size_t size[PARTS];
    int has[PARTS];
} v;

static unsigned good, rejected, hashes;

static void frame(void)
{
    static uint8_t out[1 << 23];
    const uint8_t *f = v.data[FRAME];
    const size_t size = v.size[FRAME];
    const bitsnap_kernels *k;
    unsigned t;
    for (t = 0; (k = bitsnap_kernels_get(t)) != NULL; t++) {
        bitsnap b;
        bitsnap_info info;
        bitsnap_status s;
        memset(&b, 0, sizeof b);
        s = bitsnap_read_info(&info, f, size);
        b.workspace_size = s ? BITSNAP_WORKSPACE : info.workspace_size;
        b.workspace = malloc(b.workspace_size);
        b.kernels = k;
        if (v.has[BASE] && bitsnap_width((bitsnap_dtype)v.dtype)) {
            b.base.dtype = (bitsnap_dtype)v.dtype;
            b.base.data = v.data[BASE];
            b.base.count = v.size[BASE] / bitsnap_width(b.base.dtype);
        }
        if (s) {
            CHECK(v.rule, "%s", v.name);
            s = bitsnap_test(&b, f, size);
        } else {
            CHECK(v.rule || info.elements_size == v.size[ELEMENTS], "%s", v.name);
            s = info.elements_size > sizeof out ? bitsnap_test(&b, f, size) :
                v.rule == BITSNAP_R_INDEX_END ? bitsnap_decode_range(&b, out, info.count - 1, 1, info.dtype, f, size) :
                                                bitsnap_decode(&b, out, info.count, info.dtype, f, size);
        }
        if (!v.rule) CHECK(!s && !memcmp(out, v.data[ELEMENTS], v.size[ELEMENTS]), "%s: R%u %s", v.name, b.error.rule, bitsnap_message(&b));
        else CHECK(s && (b.error.rule == v.rule || v.rule == BITSNAP_R_INDEX_SIZE), "%s: R%u, not R%u", v.name, b.error.rule, v.rule); /* 39: FORMAT.md 9 */
        free(b.workspace);
    }
    if (v.rule) rejected++;
    else good++;
}

static void vector(void)
{
    if (v.has[FRAME]) frame();
    if (v.has[XXH3]) {
        CHECK(v.size[XXH3] == 8 && bitsnap_hash(v.data[BYTES], v.size[BYTES]) == test_load64(v.data[XXH3]), "%s", v.name);
        hashes++;
    }
    memset(v.size, 0, sizeof v.size);
    memset(v.has, 0, sizeof v.has);
}

static void one_file(const char *path)
{
    FILE *f = fopen(path, "r");
    unsigned part = OTHER;
    CHECK(f, "%s", path);
    while (f && fgets(line, sizeof line, f)) {
        char rule[20] = "", title[20] = "";
        if (line[0] == '#' || line[0] == '\n') continue;
        if (line[0] == '=') {
            vector();
            CHECK(sscanf(line, "== %99s rejected %19s", v.name, rule) >= 1, "%s", line);
            v.rule = rule[0] == 'R' ? (unsigned)atoi(rule + 1) : 0;
        } else if (line[0] == ' ') CHECK(!vector_bytes(v.data[part], &v.size[part], sizeof v.data[part], line), "%s is too long", v.name);
        else {
            if (sscanf(line, "%19s %u", title, &v.dtype) < 1) continue;
            for (part = 0; part < OTHER && strcmp(title, titles[part]); part++) {}
            v.has[part] = 1;
            v.size[part] = 0;
        }
    }
    vector();
    if (f) fclose(f);
}

static void vectors(void)
{
    DIR *d = opendir("docs/vectors");
    struct dirent *e;
    char path[400];
    CHECK(d, "docs/vectors is read from the project's folder");
    while (d && (e = readdir(d)) != NULL)
        if (strstr(e->d_name, ".txt")) {
            snprintf(path, sizeof path, "docs/vectors/%.300s", e->d_name);
            one_file(path);
        }
    if (d) closedir(d);
    CHECK(good >= 130 && rejected >= 130 && hashes >= 30, "%u good, %u rejected, %u hashes", good, rejected, hashes);
}

int main(void)
{
    test_program = "vectors";
    if (test_big_endian()) {
        SKIP("vectors", "their elements are little-endian");
        return 0;
    }
    RUN(vectors);
    return test_failures != 0;
}
