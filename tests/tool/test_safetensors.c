/* test_safetensors.c - the parser of .safetensors headers, and the coding of their text. Tests what they accept and reject, and
 * that no input makes them touch other memory. */
#include "docs/examples/tool/system/posix.h"

#include "tests/unit/test.h"

#include <math.h>

#include "bitsnap.h"

#include "docs/examples/tool/console/fault.c"
#include "docs/examples/tool/files/bytes.h"
#include "docs/examples/tool/files/container.c"

/* Parses text that ends where memory ends, so that reading past it is found without a sanitizer, too. The result
 * is only good until the next call. */
static guarded parse_memory;
static size_t parse_room;

static int parse_guarded(safetensors *s, const char *text, size_t size, fault *f)
{
    uint8_t *p;
    safetensors names;
    bitsnap_file_error e;
    size_t i, places = 0;
    int failed, nameless;
    if (!parse_memory.map || size > parse_room) {
        if (parse_memory.map) guarded_free(parse_memory);
        parse_room = size > 4096 ? size : 4096;
        parse_memory = guarded_alloc(parse_room, 0);
    }
    p = parse_memory.p + (parse_room - size);
    if (size) memcpy(p, text, size);
    memset(f, 0, sizeof *f);
    nameless = bitsnap_safetensors_names(&names, (const char *)p, size, NULL, &e) != BITSNAP_OK;
    failed = safetensors_parse(s, (const char *)p, size, f);
    if (!failed) { /* whose tensors are those that are found without understanding it */
        CHECK(!nameless && names.count == s->count, "%zu names, %zu tensors", names.count, s->count);
        for (i = 0; i < s->count && i < names.count; i++) places += names.tensors[i].place - s->tensors[i].place;
        CHECK(places == 0, "%s", "their places");
    }
    bitsnap_safetensors_free(&names);
    return failed;
}

/* What holds of every header that is accepted. */
static void check_model(const safetensors *s, size_t size)
{
    uint64_t end = 0;
    size_t i;
    for (i = 0; i < s->count; i++) {
        const tensor *t = &s->tensors[i];
        uint64_t dimension, product = 1;
        size_t at = 0;
        CHECK(t->begin == end && t->end >= t->begin, "tensor %zu", i);
        end = t->end;
        while (bitsnap_shape_next(t->shape, &at, &dimension)) product *= dimension;
        CHECK(product == t->elements, "tensor %zu", i);
        CHECK(t->place < size, "tensor %zu", i);
        if (t->type && t->type->bits >= 8) CHECK(t->elements * (t->type->bits / 8) == t->end - t->begin, "tensor %zu", i);
        CHECK(bitsnap_tensor_codec(t) >= BITSNAP_BOOL && bitsnap_tensor_codec(t) <= BITSNAP_F64, "tensor %zu", i);
        CHECK((t->end - t->begin) % bitsnap_width(bitsnap_tensor_codec(t)) == 0, "tensor %zu", i);
    }
    CHECK(s->data_size == end, "of all");
}

/* ================================================================================= HEADERS */

#define T(dtype, shape, begin, end) "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

typedef struct good {
    const char *text;
    size_t tensors;
    uint64_t data_size;
} good;

static const good goods[] = {
    { "{}", 0, 0 },
    { "{}      ", 0, 0 },
    { "{ \t\r\n}", 0, 0 },
    { "{\"a\":" T("F32", "[2,3]", "0", "24") "}", 1, 24 },
    { "{\"a\":" T("F32", "[]", "0", "4") "}", 1, 4 },
    { "{\"a\":" T("F32", "[0]", "0", "0") "}", 1, 0 },
    { "{\"a\":" T("F32", "[0,18446744073709551615]", "0", "0") "}", 1, 0 },
    { "{\"\":" T("U8", "[1]", "0", "1") "}", 1, 1 },
    { "{\"a\":" T("U8", "[1]", "0", "1") ",\"b\":" T("U8", "[2]", "1", "3") "}   ", 2, 3 },
    { "{\"b\":" T("U8", "[2]", "1", "3") ",\"a\":" T("U8", "[1]", "0", "1") "}", 2, 3 },
    { "{\"b\":" T("U8", "[2]", "0", "2") ",\"e\":" T("F64", "[0]", "2", "2") ",\"a\":" T("U8", "[1]", "2", "3") "}", 3, 3 },
    { "{\"e\":" T("F64", "[0]", "0", "0") ",\"f\":" T("F64", "[0]", "0", "0") "}", 2, 0 },
    { "{\"a\":{\"data_offsets\":[0,2],\"shape\":[1],\"dtype\":\"BF16\"}}", 1, 2 },
    { "{ \"a\" : { \"dtype\" : \"I64\" , \"shape\" : [ 1 , 2 ] , \"data_offsets\" : [ 0 , 16 ] } } ", 1, 16 },
    { "{\n\"a\":\t{\"dtype\":\"I64\",\r\n\"shape\":[1],\"data_offsets\":[0,8]}\n}", 1, 8 },
    { "{\"__metadata__\":{}}", 0, 0 },
    { "{\"__metadata__\":{\"format\":\"pt\",\"\":\"\"},\"a\":" T("I8", "[1]", "0", "1") "}", 1, 1 },
    { "{\"a\":" T("I8", "[1]", "0", "1") ",\"__metadata__\":{\"x\":\"y\"}}", 1, 1 },
    { "{\"a\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e4\\ud83d\\ude00\":" T("I8", "[1]", "0", "1") "}", 1, 1 },
    { "{\"\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\xF4\x8F\xBF\xBF\":" T("I8", "[1]", "0", "1") "}", 1, 1 },
    { "{\"dtype\":" T("I8", "[1]", "0", "1") "}", 1, 1 },
    { "{\"a\":{\"\\u0064type\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, 1 },
    { "{\"a\":" T("WHAT_IS_THIS", "[5]", "0", "77") "}", 1, 77 },
    { "{\"a\":" T("", "[]", "0", "3") "}", 1, 3 },
    { "{\"a\":" T("f32", "[2]", "0", "3") "}", 1, 3 },
    { "{\"a\":" T("F4", "[2]", "0", "1") "}", 1, 1 },
    { "{\"a\":" T("F6_E2M3", "[4]", "0", "3") "}", 1, 3 },
    { "{\"a\":" T("F6_E3M2", "[2,2]", "0", "3") "}", 1, 3 },
    { "{\"a\":" T("C64", "[3]", "0", "24") "}", 1, 24 },
    { "{\"a\":" T("U8", "[18446744073709551615]", "0", "18446744073709551615") "}", 1, UINT64_MAX },
    { "{\"a\":" T("BOOL", "[1]", "0", "1") ",\"b\":" T("U8", "[1]", "1", "2") ",\"c\":" T("I8", "[1]", "2", "3")
      ",\"d\":" T("F8_E5M2", "[1]", "3", "4") ",\"e\":" T("F8_E4M3", "[1]", "4", "5") ",\"f\":" T("F8_E8M0", "[1]", "5", "6")
      ",\"g\":" T("I16", "[1]", "6", "8") ",\"h\":" T("U16", "[1]", "8", "10") ",\"i\":" T("F16", "[1]", "10", "12")
      ",\"j\":" T("BF16", "[1]", "12", "14") ",\"k\":" T("I32", "[1]", "14", "18") ",\"l\":" T("U32", "[1]", "18", "22")
      ",\"m\":" T("F32", "[1]", "22", "26") ",\"n\":" T("I64", "[1]", "26", "34") ",\"o\":" T("U64", "[1]", "34", "42")
      ",\"p\":" T("F64", "[1]", "42", "50") ",\"q\":" T("C64", "[1]", "50", "58") "}", 17, 58 }
};

static void accepted_headers(void)
{
    size_t i;
    for (i = 0; i < sizeof goods / sizeof *goods; i++) {
        safetensors s;
        fault f;
        const size_t size = strlen(goods[i].text);
        const int failed = parse_guarded(&s, goods[i].text, size, &f);
        CHECK(!failed, "%s: %s", goods[i].text, f.text);
        if (!failed) {
            CHECK(s.count == goods[i].tensors && s.data_size == goods[i].data_size, "%s", goods[i].text);
            check_model(&s, size);
        }
        bitsnap_safetensors_free(&s);
    }
}

typedef struct bad {
    const char *text;
    const char *why; /* part of the message */
} bad;

static const bad bads[] = {
    { "", "must begin with '{'" },
    { " x", "must begin with '{'" },
    { "\xEF\xBB\xBF{}", "must begin with '{'" },
    { "[]", "must begin with '{'" },
    { "{", "a name expected" },
    { "{} x", "other than white space" },
    { "{}{}", "other than white space" },
    { "{},", "other than white space" },
    { "{,}", "a name expected" },
    { "{\"a\"}", "':' expected" },
    { "{\"a\":}", "must be an object" },
    { "{\"a\":1}", "must be an object" },
    { "{\"a\":null}", "must be an object" },
    { "{\"a\":" T("U8", "[1]", "0", "1") ",}", "a name expected" },
    { "{\"a\":" T("U8", "[1]", "0", "1") " \"b\":1}", "',' or '}'" },
    { "{a:" T("U8", "[1]", "0", "1") "}", "a name expected" },
    { "{'a':" T("U8", "[1]", "0", "1") "}", "a name expected" },
    /* strings */
    { "{\"a", "ends inside a string" },
    { "{\"a\\", "unknown escape" },
    { "{\"a\\u12", "unknown escape" },
    { "{\"\\x41\":" T("U8", "[1]", "0", "1") "}", "unknown escape" },
    { "{\"\\u00g0\":" T("U8", "[1]", "0", "1") "}", "unknown escape" },
    { "{\"\\ud83d\":" T("U8", "[1]", "0", "1") "}", "surrogate" },
    { "{\"\\ud83dx\\ude00\":" T("U8", "[1]", "0", "1") "}", "surrogate" },
    { "{\"\\ude00\":" T("U8", "[1]", "0", "1") "}", "surrogate" },
    { "{\"\\ud83d\\ud83d\":" T("U8", "[1]", "0", "1") "}", "surrogate" },
    { "{\"\\ud83d\\ude0", "surrogate" },
    { "{\"a\nb\":" T("U8", "[1]", "0", "1") "}", "control character" },
    { "{\"a\tb\":" T("U8", "[1]", "0", "1") "}", "control character" },
    { "{\"\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xC0\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xC3\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xE0\x80\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xED\xA0\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xF0\x80\x80\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xF4\x90\x80\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{\"\xF8\x88\x80\x80\x80\":" T("U8", "[1]", "0", "1") "}", "not UTF-8" },
    { "{}  \xE2\x82", "not UTF-8" },
    /* names for the second time */
    { "{\"a\":" T("U8", "[1]", "0", "1") ",\"a\":" T("U8", "[1]", "1", "2") "}", "belong to no tensor" },
    { "{\"a\":" T("U8", "[1]", "0", "1") ",\"\\u0061\":" T("U8", "[1]", "1", "2") "}", "belong to no tensor" },
    { "{\"__metadata__\":{},\"__metadata__\":{}}", "second time" },
    { "{\"__metadata__\":{},\"\\u005f_metadata__\":{}}", "second time" },
    { "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", "second time" },
    /* members */
    { "{\"a\":{}}", "no dtype" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", "no data_offsets" },
    { "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", "no shape" },
    { "{\"a\":{\"shape\":[1],\"data_offsets\":[0,1]}}", "no dtype" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":01}}", "leading 0" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":[1,]}}", "a value expected" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1e309}}", "too large for a double" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],}}", "a name expected" },
    { "{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,1]}}", "must be a string" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":1,\"data_offsets\":[0,1]}}", "must be an array" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{}}}", "must be an array" },
    { "{\"__metadata__\":1}", "must be an object" },
    { "{\"__metadata__\":nul}", "a value expected" },
    { "{\"__metadata__\":{\"a\":1}}", "strings only" },
    { "{\"__metadata__\":{\"a\":{}}}", "strings only" },
    { "{\"__metadata__\":{\"a\":\"b\",}}", "a name expected" },
    { "{\"__metadata__\":{\"a\":\"b\"}", "',' or '}'" },
    /* numbers */
    { "{\"a\":" T("U8", "[-1]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[1.0]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[1e0]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[01]", "0", "1") "}", "leading 0" },
    { "{\"a\":" T("U8", "[+1]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[\"1\"]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[1,]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[,1]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[1 1]", "0", "1") "}", "',' or ']'" },
    { "{\"a\":" T("U8", "[[1]]", "0", "1") "}", "not a whole number" },
    { "{\"a\":" T("U8", "[18446744073709551616]", "0", "1") "}", "2^64 or more" },
    { "{\"a\":" T("U8", "[99999999999999999999999999]", "0", "1") "}", "2^64 or more" },
    { "{\"a\":" T("U8", "[1]", "0", "-1") "}", "not a whole number" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", "two numbers" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", "two numbers" },
    { "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[]}}", "not a whole number" },
    /* sizes */
    { "{\"a\":" T("F32", "[2]", "0", "4") "}", "need 8 bytes" },
    { "{\"a\":" T("F32", "[2]", "0", "9") "}", "need 8 bytes" },
    { "{\"a\":" T("F32", "[]", "0", "0") "}", "need 4 bytes" },
    { "{\"a\":" T("F32", "[0]", "0", "1") "}", "need 0 bytes" },
    { "{\"a\":" T("U8", "[1]", "1", "0") "}", "end before they begin" },
    { "{\"a\":" T("F32", "[4294967296,4294967296]", "0", "0") "}", "2^64 elements" },
    { "{\"a\":" T("F32", "[4294967296,1073741824]", "0", "0") "}", "2^64 bytes" },
    { "{\"a\":" T("F64", "[2305843009213693952]", "0", "0") "}", "2^64 bytes" },
    { "{\"a\":" T("F4", "[9223372036854775808]", "0", "0") "}", "2^64 bits" },
    { "{\"a\":" T("F4", "[1]", "0", "1") "}", "whole bytes" },
    { "{\"a\":" T("F6_E2M3", "[2]", "0", "2") "}", "whole bytes" },
    { "{\"a\":" T("NEW", "[4294967296,4294967296]", "0", "1") "}", "2^64 elements" },
    /* places */
    { "{\"a\":" T("U8", "[1]", "1", "2") "}", "belong to no tensor" },
    { "{\"a\":" T("U8", "[1]", "0", "1") ",\"b\":" T("U8", "[1]", "2", "3") "}", "belong to no tensor" },
    { "{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "1", "3") "}", "overlap" },
    { "{\"a\":" T("U8", "[2]", "0", "2") ",\"b\":" T("U8", "[2]", "0", "2") "}", "overlap" },
    { "{\"a\":" T("U8", "[2]", "0", "2") ",\"e\":" T("U8", "[0]", "1", "1") "}", "overlap" },
    { "{\"e\":" T("U8", "[0]", "1", "1") "}", "belong to no tensor" }
};

static void rejected_headers(void)
{
    size_t i;
    for (i = 0; i < sizeof bads / sizeof *bads; i++) {
        safetensors s;
        fault f;
        const int failed = parse_guarded(&s, bads[i].text, strlen(bads[i].text), &f);
        CHECK(failed && strstr(f.text, bads[i].why) && strstr(f.text, "(byte "), "%s: %s", bads[i].text, failed ? f.text : "accepted");
        bitsnap_safetensors_free(&s);
    }
}

/* The text of a line of tests/tool/safetensors_rules.txt, in its place. */
static size_t unescape(char *line, const char *from)
{
    char *to = line;
    for (; *from && *from != '\n'; from++) {
        unsigned code = (unsigned char)*from;
        if (code == '\\' && sscanf(from, "\\x%2x", &code) == 1) from += 3;
        *to++ = (char)code;
    }
    return (size_t)(to - line);
}

/* What the reference implementation has been seen to accept and to refuse. */
static void rules_of_the_reference(void)
{
    static char line[1 << 14];
    FILE *table = fopen("tests/tool/safetensors_rules.txt", "r");
    size_t rules = 0;
    CHECK(table, "tests/tool/safetensors_rules.txt is read from the project's folder");
    if (!table) return;
    while (fgets(line, sizeof line, table)) {
        const int accepts = line[0] == 'a';
        char *text;
        const uint64_t data = strtoull(line + 7, &text, 10);
        const size_t size = unescape(line, text + 1);
        safetensors s;
        fault f;
        const int failed = parse_guarded(&s, line, size, &f);
        rules++;
        CHECK((!failed && s.data_size == data) == accepts, "line %zu: %s", rules, failed ? f.text : "accepted");
        if (failed) CHECK(strstr(f.text, "(byte ") != NULL, "line %zu: %s", rules, f.text);
        else check_model(&s, size);
        bitsnap_safetensors_free(&s);
    }
    CHECK(rules > 450, "only %zu lines", rules);
    (void)fclose(table);
}

static void strings_are_unescaped(void)
{
    static const char text[] = "{\"\\u0000\\u00e4\\u20ac\\ud83d\\ude00\\n\":" T("I8", "[1]", "0", "1") "}";
    static const char name[] = "\0\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80\n";
    safetensors s;
    fault f;
    CHECK(!parse_guarded(&s, text, sizeof text - 1, &f), "%s", f.text);
    CHECK(s.count == 1 && s.tensors[0].name.size == sizeof name - 1 && !memcmp(s.tensors[0].name.at, name, sizeof name - 1),
          "the name");
    bitsnap_safetensors_free(&s);
}

/* A NUL byte is a byte like others: it ends nothing. */
static void nul_bytes(void)
{
    static const char inside[] = "{\"a\0b\":" T("I8", "[1]", "0", "1") "}", behind[] = "{}\0";
    safetensors s;
    fault f;
    CHECK(parse_guarded(&s, inside, sizeof inside - 1, &f), "inside");
    bitsnap_safetensors_free(&s);
    CHECK(parse_guarded(&s, behind, sizeof behind - 1, &f), "behind");
    bitsnap_safetensors_free(&s);
}

static const char sample[] =
    "{\"__metadata__\":{\"format\":\"pt\",\"k\\u00e4y\":\"v\\\"\"},\"t\xC3\xA4.0\":" T("BF16", "[2,3]", "4", "16")
    ",\"h\\ud83d\\ude00\":" T("F32", "[]", "0", "4") ",\"x\":" T("NEW", "[7]", "16", "19") ",\"q\":" T("F4", "[4]", "19", "21") "}  ";

static void truncated_headers(void)
{
    size_t size;
    for (size = 0; size < sizeof sample - 1; size++) {
        safetensors s;
        fault f;
        const int failed = parse_guarded(&s, sample, size, &f);
        CHECK(failed == (size < sizeof sample - 3), "cut to %zu bytes", size);
        bitsnap_safetensors_free(&s);
    }
}

static void mutated_headers(void)
{
    char text[sizeof sample];
    size_t i, accepted_ones = 0;
    int value;
    for (i = 0; i < sizeof sample - 1; i++) {
        for (value = 0; value < 256; value++) {
            safetensors s;
            fault f;
            memcpy(text, sample, sizeof text);
            text[i] = (char)value;
            if (!parse_guarded(&s, text, sizeof sample - 1, &f)) {
                check_model(&s, sizeof sample - 1);
                accepted_ones++;
            }
            bitsnap_safetensors_free(&s);
        }
    }
    CHECK(accepted_ones > sizeof sample, "names can be changed: %zu", accepted_ones);
    /* pieces of the text in other places */
    for (i = 0; i < 100000; i++) {
        const size_t n = sizeof sample - 1, from = test_below(n), to = test_below(n), left = n - (from > to ? from : to);
        safetensors s;
        fault f;
        memcpy(text, sample, sizeof text);
        memmove(text + to, text + from, test_below(left) + 1);
        if (!parse_guarded(&s, text, n, &f)) check_model(&s, n);
        bitsnap_safetensors_free(&s);
    }
}

static void types(void)
{
    CHECK(bitsnap_element_type_find("bf16", 4, 1) && bitsnap_element_type_find("BF16", 4, 0) && !bitsnap_element_type_find("bf16", 4, 0), "case");
    CHECK(!bitsnap_element_type_find("BF1", 3, 1) && !bitsnap_element_type_find("", 0, 1) && !bitsnap_element_type_find("BF16X", 5, 1), "length");
    CHECK(bitsnap_element_type_find("u64", 3, 1)->codec == BITSNAP_I64 && bitsnap_element_type_find("F8_E8M0", 7, 0)->codec == BITSNAP_I8 &&
          bitsnap_element_type_find("F8_E4M3FNUZ", 11, 0)->codec == BITSNAP_F8_E4M3 && bitsnap_element_type_find("C128", 4, 0)->codec == BITSNAP_F64,
          "codec");
}

/* ================================================================================= TEXTS */

/* A header as real models have it: `tensors` of 256 BF16 elements. */
static char *make_header(size_t tensors, size_t *size)
{
    static const char *const parts[] = { "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                                         "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj", "input_layernorm" };
    char *text = (char *)malloc(tensors * 128 + 64), *p = text;
    size_t i;
    if (!text) abort();
    p += sprintf(p, "{\"__metadata__\":{\"format\":\"pt\"}");
    for (i = 0; i < tensors; i++)
        p += sprintf(p, ",\"model.layers.%zu.experts.%zu.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[256],\"data_offsets\":[%zu,%zu]}",
                     i / 64, i / 8 % 8, parts[i % 8], 512 * i, 512 * (i + 1));
    *p++ = '}';
    while ((p - text) % 8) *p++ = ' ';
    *size = (size_t)(p - text);
    return text;
}

static double order0_bytes(const void *text, size_t size)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t count[256] = { 0 }, i;
    double bits = 0;
    for (i = 0; i < size; i++) count[p[i]]++;
    for (i = 0; i < 256; i++)
        if (count[i]) bits -= (double)count[i] * log2((double)count[i] / (double)size);
    return bits / 8;
}

static size_t round_trip(const void *text, size_t size)
{
    uint8_t *coded = NULL, *again = NULL;
    size_t coded_size = 0, again_size = 0;
    guarded out = guarded_alloc(size, 0), in;
    fault f;
    memset(&f, 0, sizeof f);
    CHECK(!text_encode(&coded, &coded_size, text, size, &f), "%s", f.text);
    if (size < 50000) {
        CHECK(!text_encode(&again, &again_size, text, size, &f), "%s", f.text);
        CHECK(again_size == coded_size && (size == 0 || !memcmp(coded, again, coded_size)), "the same text, other bytes");
    }
    in = guarded_alloc(coded_size, 0);
    if (coded_size) memcpy(in.p, coded, coded_size);
    CHECK(!text_decode(out.p, size, in.p, coded_size, &f), "%zu bytes: %s", size, f.text);
    CHECK(size == 0 || !memcmp(out.p, text, size), "%zu bytes", size);
    free(coded);
    free(again);
    guarded_free(in);
    guarded_free(out);
    return coded_size;
}

static void text_round_trips(void)
{
    const size_t most = 300000;
    uint8_t *text = (uint8_t *)malloc(most);
    size_t i, n;
    if (!text) abort();
    round_trip("", 0);
    for (i = 0; i < 256; i++) {
        text[0] = (uint8_t)i;
        round_trip(text, 1);
    }
    for (n = 2; n < 40; n++) {
        memset(text, 'a', n);
        round_trip(text, n);
        for (i = 0; i < n; i++) text[i] = (uint8_t)('a' + i % 5);
        round_trip(text, n);
        test_fill(text, n);
        round_trip(text, n);
    }
    for (i = 0; i < 6; i++) { /* runs and repeats, around the size of a piece, too */
        static const size_t sizes[] = { 255, 258, 259, 510, 32768, 65537 };
        memset(text, ' ', sizes[i] + 1);
        round_trip(text, sizes[i] + 1);
        test_fill(text, sizes[i]);
        round_trip(text, sizes[i]);
        memcpy(text + sizes[i], text, sizes[i]);
        round_trip(text, 2 * sizes[i]);
    }
    test_fill(text, most); /* nothing repeats: not much longer than it was */
    n = round_trip(text, most);
    CHECK(n < most + most / 1000 + 1024, "%zu", n);
    for (i = 0; i < most; i++) text[i] = (uint8_t)('a' + (test_random() & 1));
    n = round_trip(text, most);
    CHECK(n < most / 5, "%zu", n);
    memset(text, 'x', most);
    n = round_trip(text, most);
    CHECK(n < 700, "%zu", n);
    for (i = 0; i < 200; i++) { /* pieces of itself */
        const size_t size = 1 + test_below(5000);
        size_t at = 1 + test_below(20);
        test_fill(text, at);
        while (at < size) {
            size_t length = 1 + test_below(60), from = test_below(at);
            for (; length && at < size; length--) text[at++] = text[from++];
            if (at < size) text[at++] = (uint8_t)test_random();
        }
        round_trip(text, size);
    }
    free(text);
}

static void header_texts(void)
{
    static const size_t tensors[] = { 1, 10, 300, 10000 };
    size_t i, size, coded;
    for (i = 0; i < 4; i++) {
        char *text = make_header(tensors[i], &size);
        safetensors s;
        fault f;
        CHECK(!parse_guarded(&s, text, size, &f), "%s", f.text);
        CHECK(s.count == tensors[i] && s.data_size == 512 * tensors[i], "%zu tensors", tensors[i]);
        check_model(&s, size);
        bitsnap_safetensors_free(&s);
        coded = round_trip(text, size);
        if (tensors[i] >= 300)
            CHECK((double)coded < order0_bytes(text, size) / 4, "%zu tensors: %zu bytes, order-0 %.0f", tensors[i], coded,
                  order0_bytes(text, size));
        free(text);
    }
}

/* Coded texts that are cut, changed, or said to have another size: an error or another text, but no harm. */
static void hostile_texts(void)
{
    size_t size, coded_size, i, rejected = 0, tries = 0;
    char *text = make_header(40, &size);
    uint8_t *coded = NULL;
    guarded out, in;
    fault f;
    CHECK(!text_encode(&coded, &coded_size, text, size, &f), "%s", f.text);
    out = guarded_alloc(size + 1, 0);
    in = guarded_alloc(coded_size, 0);
    for (i = 0; i < coded_size; i++) { /* cut at its end, or at its start */
        memcpy(in.p + (coded_size - i), coded, i);
        CHECK(text_decode(out.p + 1, size, in.p + (coded_size - i), i, &f), "cut to %zu bytes", i);
    }
    memcpy(in.p, coded, coded_size);
    CHECK(text_decode(out.p + 2, size - 1, in.p, coded_size, &f), "one byte less");
    CHECK(text_decode(out.p, size + 1, in.p, coded_size, &f), "one byte more");
    CHECK(text_decode(out.p + size, 1, in.p, coded_size, &f), "one byte");
    CHECK(text_decode(out.p + size + 1, 0, in.p, coded_size, &f), "no byte");
    for (i = 0; i < 8 * coded_size; i++, tries++) { /* each bit */
        memcpy(in.p, coded, coded_size);
        in.p[i / 8] ^= (uint8_t)(1u << i % 8);
        rejected += (size_t)text_decode(out.p + 1, size, in.p, coded_size, &f);
    }
    for (i = 0; i < 20000; i++, tries++) { /* some bytes */
        size_t j, changes = 1 + test_below(8);
        memcpy(in.p, coded, coded_size);
        for (j = 0; j < changes; j++) in.p[test_below(coded_size)] = (uint8_t)test_random();
        rejected += (size_t)text_decode(out.p + 1, size, in.p, coded_size, &f);
    }
    for (i = 0; i < 20000; i++, tries++) { /* nothing but noise */
        const size_t n = test_below(coded_size);
        test_fill(in.p + (coded_size - n), n);
        rejected += (size_t)text_decode(out.p + 1, size, in.p + (coded_size - n), n, &f);
    }
    CHECK(rejected > tries / 2, "%zu of %zu rejected", rejected, tries);
    free(coded);
    free(text);
    guarded_free(out);
    guarded_free(in);
}

/* Texts coded by hand as raw lists, valid and invalid ones. Symbol 0 is the byte that earlier text predicts. */
static void texts_by_hand(void)
{
    static const struct hand {
        const char *symbols;
        size_t size, list; /* bytes of the text, and of the list with its kind */
        const char *text;  /* null: to be rejected */
    } hands[] = {
        { "", 0, 1, NULL },                             /* a piece of no bytes */
        { "abc", 3, 4, "abc" },
        { "abc", 3, 3, NULL },                          /* a byte too few */
        { "abcd", 3, 5, NULL },                         /* one left over */
        { "abc", 3, 0, NULL },                          /* no list at all */
        { "abcabc\0\0\0", 9, 10, "abcabcabc" },         /* predicted from 3 equal bytes */
        { "abcabcxde", 9, 10, "abcabcxde" },            /* not the predicted byte */
        { "abcabc\0\0\0a", 10, 11, "abcabcabc\0" },     /* 0 and the predicted byte change places */
        { "\0\0\0", 3, 4, "\0\0\0" },
        { "a123456b123\0\0\0\0c123\0\0\0\0", 23, 24, "a123456b123456bc123456b" } /* after the same 3, and the same 6 */
    };
    size_t i;
    for (i = 0; i < sizeof hands / sizeof *hands; i++) {
        const struct hand *h = &hands[i];
        uint8_t coded[96] = { 0 }, *p = coded + BITSNAP_TEXT_PREFIX + h->list;
        guarded out = guarded_alloc(h->size, 0), in;
        fault f;
        int failed;
        memcpy(coded, BITSNAP_TEXT_MAGIC, 4);
        store32(coded + 4, (uint32_t)h->size);
        store32(coded + 8, (uint32_t)h->list);
        if (h->list) memcpy(coded + BITSNAP_TEXT_PREFIX + 1, h->symbols, h->list - 1);
        store64(p, bitsnap_hash(coded, (size_t)(p - coded)));
        p += 8;
        in = guarded_alloc((size_t)(p - coded), 0);
        memcpy(in.p, coded, (size_t)(p - coded));
        failed = text_decode(out.p, h->size, in.p, (size_t)(p - coded), &f);
        CHECK(failed == !h->text, "case %zu", i);
        if (!failed && h->text) CHECK(!memcmp(out.p, h->text, h->size), "case %zu: %.*s", i, (int)h->size, (const char *)out.p);
        guarded_free(out);
        guarded_free(in);
    }
}

int main(void)
{
    test_program = "safetensors:";
    RUN(accepted_headers);
    RUN(rejected_headers);
    RUN(rules_of_the_reference);
    RUN(strings_are_unescaped);
    RUN(nul_bytes);
    RUN(truncated_headers);
    RUN(mutated_headers);
    RUN(types);
    RUN(text_round_trips);
    RUN(header_texts);
    RUN(texts_by_hand);
    RUN(hostile_texts);
    if (parse_memory.map) guarded_free(parse_memory);
    return test_failures > 0;
}
