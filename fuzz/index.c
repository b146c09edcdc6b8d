/* The index of a model in several files: pairs that are accepted are texts, and the same again when they are written. */
#include "fuzz.h"

#include "../docs/examples/tool/console/json.h"
#include "../docs/examples/tool/files/index.h"

typedef struct pairs {
    json out;
    size_t count;
} pairs;

static int write_pair(void *context, const char *tensor, const char *file)
{
    pairs *p = (pairs *)context;
    REQUIRE(strlen(tensor) <= JSON_TEXT_MOST && strlen(file) <= JSON_TEXT_MOST);
    json_member_string(&p->out, tensor, file);
    p->count++;
    return 0;
}

/* What the index says, as an index. */
static char *again(const char *text, size_t size, size_t *written, size_t *count)
{
    char *copy = NULL;
    pairs p = { { open_memstream(&copy, written), 0 }, 0 };
    fault f;
    int failed;
    REQUIRE(p.out.to);
    memset(&f, 0, sizeof f);
    (void)fputs("{\"metadata\":{\"total_size\":[1,{}],\"a\":\"\\\\\\\"}\"},\"weight_map\":{", p.out.to);
    failed = index_parse(text, size, write_pair, &p, &f);
    REQUIRE(!failed == !f.text[0]); /* a failure says why */
    (void)fputs("}}", p.out.to);
    REQUIRE(!fclose(p.out.to));
    *count = p.count;
    if (!failed) return copy;
    free(copy);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t one_size, two_size, one_count, two_count;
    char *one, *two;
    fuzz_drop(0);
    one = again((const char *)fuzz_copy(data, size), size, &one_size, &one_count);
    if (!one) return 0;
    two = again(one, one_size, &two_size, &two_count);
    REQUIRE(two && one_count == two_count && one_size == two_size && !memcmp(one, two, one_size));
    free(one);
    free(two);
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const char *const texts[] = {
        "{}", "{\"weight_map\":{}}", "{\"metadata\":{\"total_size\":5},\"weight_map\":{\"w\":\"model-00001-of-00002.safetensors\"}}",
        " { \"weight_map\" : { \"a\" : \"1\" ,\n\"b\" : \"2\" } , \"metadata\" : [ \"]\\\"\", {\"a\":[]}, 1.5e3, null ] } ",
        "{\"weight_map\":{\"\\u00e9\\ud83d\\ude00\\\"\\\\\\n\":\"\xC3\xA9\"}}", "{\"metadata\":{\"a\":\"\\\\\"},\"weight_map\":{\"a\":\"b\"}}",
        "{\"weight_map\":{\"a\":1}}", "{\"weight_map\":[]}", "{\"metadata\":[[[[", "{\"metadata\":}", "{\"weight_map\":{\"a\":\"b\"}} x"
    };
    const size_t size = number < sizeof texts / sizeof *texts ? strlen(texts[number]) : 0;
    REQUIRE(size <= room);
    if (size) memcpy(to, texts[number], size);
    return size;
}
