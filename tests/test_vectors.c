/* The vectors of docs/vectors, which FORMAT.md speaks of: frames decode to the elements that stand beside them, or are rejected by the
 * condition that does; values of XXH3. (Files are for tests/vectors.py and the tool.) */
#include "test.h"
#include "vectors.h"
#include "bitsnap_simd.h"

static unsigned good, rejected, hashes;

static void frame(const vector_case *v)
{
    static uint8_t out[1 << 23];
    const uint8_t *f = v->data[VECTOR_FRAME];
    const size_t size = v->size[VECTOR_FRAME];
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
        if (v->has[VECTOR_BASE] && bitsnap_width((bitsnap_dtype)v->dtype)) {
            b.base.dtype = (bitsnap_dtype)v->dtype;
            b.base.data = v->data[VECTOR_BASE];
            b.base.count = v->size[VECTOR_BASE] / bitsnap_width(b.base.dtype);
        }
        if (s) {
            CHECK(v->rule, "%s", v->name);
            s = bitsnap_test(&b, f, size);
        } else {
            CHECK(v->rule || info.elements_size == v->size[VECTOR_ELEMENTS], "%s", v->name);
            s = info.elements_size > sizeof out ? bitsnap_test(&b, f, size) :
                v->rule == BITSNAP_R_INDEX_END ? bitsnap_decode_range(&b, out, info.count - 1, 1, info.dtype, f, size) :
                                                bitsnap_decode(&b, out, info.count, info.dtype, f, size);
        }
        if (!v->rule) CHECK(!s && !memcmp(out, v->data[VECTOR_ELEMENTS], v->size[VECTOR_ELEMENTS]), "%s: R%u %s", v->name, b.error.rule, bitsnap_message(&b));
        else CHECK(s && (b.error.rule == v->rule || v->rule == BITSNAP_R_INDEX_SIZE), "%s: R%u, not R%u", v->name, b.error.rule, v->rule); /* 39: FORMAT.md 9 */
        free(b.workspace);
    }
    if (v->rule) rejected++;
    else good++;
}

static void one(vector_case *v)
{
    if (v->has[VECTOR_FRAME]) frame(v);
    if (v->has[VECTOR_XXH3]) {
        CHECK(v->size[VECTOR_XXH3] == 8 && bitsnap_hash(v->data[VECTOR_BYTES], v->size[VECTOR_BYTES]) == test_load64(v->data[VECTOR_XXH3]),
              "%s", v->name);
        hashes++;
    }
}

static void vectors(void)
{
    static vector_case v;
    CHECK(vectors_each(&v, one), "docs/vectors is read from the project's folder; %s", v.name);
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
