/* The tool's parsers of header texts. Texts of .safetensors files: accepted ones keep every promise of the parser. Coded texts:
 * alone, or after another text. The first byte of the input chooses; a coded text is preceded by its size. */
#include "fuzz.h"

#include "../docs/examples/tool/files/bytes.h"
#include "../docs/examples/tool/files/container.h"

static void header_text(const char *text, size_t size)
{
    safetensors s;
    fault f;
    size_t i, j;
    uint64_t at = 0;
    memset(&f, 0, sizeof f);
    if (safetensors_parse(&s, text, size, &f)) {
        REQUIRE(f.text[0]); /* a failure says why */
    } else {
        for (i = 0; i < s.count; i++) {
            const tensor *t = &s.tensors[i];
            size_t dimensions = 0;
            uint64_t dimension;
            REQUIRE(t->begin == at && t->end >= t->begin); /* every byte belongs to one tensor */
            at = t->end;
            for (j = 0; bitsnap_shape_next(t->shape, &dimensions, &dimension); j++) REQUIRE(j <= size);
            if (t->type && t->type->bits >= 8) REQUIRE(t->elements * (t->type->bits / 8) == t->end - t->begin);
            if (s.count < 50)
                for (j = 0; j < i; j++) REQUIRE(bitsnap_slice_compare(t->name, s.tensors[j].name));
        }
        REQUIRE(at == s.data_size);
    }
    bitsnap_safetensors_free(&s);
}

/* Reads one piece of a text, in an otherwise valid record. */
static void coded_text(const uint8_t *coded, size_t size)
{
    const size_t text_size = size < 2 ? 0 : 1 + ((coded[0] | (size_t)coded[1] << 8) & (BITSNAP_TEXT_PIECE - 1));
    uint8_t *text = fuzz_room(text_size), *record = fuzz_room(BITSNAP_TEXT_PREFIX + size + 8), *again;
    size_t again_size;
    fault f;
    if (size < 2) return;
    memset(&f, 0, sizeof f);
    memcpy(record, BITSNAP_TEXT_MAGIC, 4);
    store32(record + 4, (uint32_t)text_size);
    store32(record + 8, (uint32_t)(size -= 2));
    memcpy(record + BITSNAP_TEXT_PREFIX, coded + 2, size);
    store64(record + BITSNAP_TEXT_PREFIX + size, bitsnap_hash(record, BITSNAP_TEXT_PREFIX + size));
    if (!text_decode(text, text_size, record, BITSNAP_TEXT_PREFIX + size + 8, &f)) {
        uint8_t *back = fuzz_room(text_size);
        REQUIRE(!text_encode(&again, &again_size, text, text_size, &f));
        REQUIRE(again_size <= BITSNAP_TEXT_PREFIX + BITSNAP_TEXT_CODED_MAX(text_size) + 8);
        REQUIRE(!text_decode(back, text_size, again, again_size, &f));
        REQUIRE(!memcmp(back, text, text_size));
        free(again);
    } else {
        REQUIRE(f.text[0]);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;
    fuzz_drop(0);
    if (size < 1) return 0;
    copy = fuzz_copy(data + 1, size - 1);
    if (data[0]) coded_text(copy, size - 1);
    else header_text((const char *)copy, size - 1);
    return 0;
}

/* Valid and invalid headers, plain and coded by text_encode. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const char *const texts[] = {
        "{}", "{\"__metadata__\":{\"format\":\"pt\"}}   ",
        "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4,2],\"data_offsets\":[0,16]}}",
        "{\"__metadata__\":{\"format\":\"pt\",\"step\":\"7\"},\"wte.weight\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]},"
        "\"h.0.ln.bias\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[12,20]}}",
        "{\"b\":{\"shape\":[0],\"data_offsets\":[2,2],\"dtype\":\"U8\"},\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}",
        "{\"x\\u00e9\\n\":{\"dtype\":\"NEW\",\"shape\":[1,2,3],\"data_offsets\":[0,5]}}",
        "{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", "{\"a\":1}", "{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}"
    };
    const unsigned n = sizeof texts / sizeof *texts;
    uint8_t *coded;
    size_t size;
    fault f;
    if (number < n) {
        size = strlen(texts[number]);
        to[0] = 0;
        memcpy(to + 1, texts[number], size);
        return size + 1;
    }
    if (number >= 2 * n) return 0;
    { /* removes the record from the seed */
        const char *text = texts[number % n];
        if (text_encode(&coded, &size, text, strlen(text), &f)) return 0;
        size -= BITSNAP_TEXT_PREFIX + 8;
        REQUIRE(size + 3 <= room);
        to[0] = 1;
        to[1] = (uint8_t)(strlen(text) - 1);
        to[2] = (uint8_t)((strlen(text) - 1) >> 8);
        memcpy(to + 3, coded + BITSNAP_TEXT_PREFIX, size);
        free(coded);
    }
    return size + 3;
}
