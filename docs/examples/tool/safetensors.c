/* safetensors.c - reads the header text of a .safetensors file.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * The text is JSON of known shape: an object of objects of three members. What else they have is looked at, but not kept: so
 * there is no recursion, and no limit but that of the text's size and of the depth that the reference has. Names that stand
 * twice are found by sorting: no choice of names makes that slow, as it could a hash table. */
#include "posix.h"

#include "safetensors.h"

#include "utf8.h"

#include <stdlib.h>
#include <string.h>

/* FORMAT.md, section 3 */
static const element_type element_types[] = {
    { "BOOL", 8, BITSNAP_BOOL },
    { "U8", 8, BITSNAP_I8 },
    { "I8", 8, BITSNAP_I8 },
    { "F8_E5M2", 8, BITSNAP_F8_E5M2 },
    { "F8_E4M3", 8, BITSNAP_F8_E4M3 },
    { "F8_E8M0", 8, BITSNAP_I8 },
    { "F8_E4M3FNUZ", 8, BITSNAP_F8_E4M3 },
    { "F8_E5M2FNUZ", 8, BITSNAP_F8_E5M2 },
    { "I16", 16, BITSNAP_I16 },
    { "U16", 16, BITSNAP_I16 },
    { "F16", 16, BITSNAP_F16 },
    { "BF16", 16, BITSNAP_BF16 },
    { "I32", 32, BITSNAP_I32 },
    { "U32", 32, BITSNAP_I32 },
    { "F32", 32, BITSNAP_F32 },
    { "I64", 64, BITSNAP_I64 },
    { "U64", 64, BITSNAP_I64 },
    { "F64", 64, BITSNAP_F64 },
    { "C64", 64, BITSNAP_F32 }, /* two floats */
    { "C128", 128, BITSNAP_F64 },
    { "F4", 4, BITSNAP_I8 },
    { "F6_E2M3", 6, BITSNAP_I8 },
    { "F6_E3M2", 6, BITSNAP_I8 }
};

static int lower(int c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }

const element_type *element_type_find(const char *name, size_t size, int any_case)
{
    size_t i, j;
    for (i = 0; i < sizeof element_types / sizeof *element_types; i++) {
        const char *known = element_types[i].name;
        if (strlen(known) != size) continue;
        for (j = 0; j < size; j++)
            if (any_case ? lower(name[j]) != lower(known[j]) : name[j] != known[j]) break;
        if (j == size) return &element_types[i];
    }
    return NULL;
}

bitsnap_dtype tensor_codec(const tensor *t) { return t->type ? t->type->codec : BITSNAP_I8; }

int tensor_has_octaves(const tensor *t)
{
    const bitsnap_dtype dtype = tensor_codec(t);
    return (dtype == BITSNAP_F16 || dtype == BITSNAP_BF16 || dtype == BITSNAP_F32 || dtype == BITSNAP_F64) &&
           t->type->bits == 8 * bitsnap_width(dtype); /* C64 and C128 are two of them */
}

int slice_compare(text_slice a, text_slice b)
{
    const size_t both = a.size < b.size ? a.size : b.size;
    const int order = both ? memcmp(a.at, b.at, both) : 0;
    return order ? order : (a.size > b.size) - (a.size < b.size);
}

/* ================================================================================= TOKENS */

typedef struct parser {
    const char *text, *at, *end;
    size_t unescaped_size; /* bytes of s->unescaped in use; it is as large as the text, once there is an escape */
    safetensors *s;
    fault *f;
} parser;

static size_t place_of(const parser *p, const char *at) { return (size_t)(at - p->text); }

/* what and where, as bytes of the file */
static int fail_at(parser *p, const char *at, const char *what)
{
    return fault_set(p->f, "bad .safetensors header: %s (byte %zu)", what, 8 + place_of(p, at));
}

/* the same for a tensor */
static int fail_tensor(parser *p, const tensor *t, const char *what)
{
    return fault_set(p->f, "bad .safetensors header: tensor \"%.*s\"%s: %s (byte %zu)",
                     (int)(t->name.size < 80 ? t->name.size : 80), t->name.at, t->name.size < 80 ? "" : "...", what,
                     8 + t->place);
}

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

/* Steps over white space and the character c, if it comes next. */
static int accept(parser *p, char c)
{
    skip_space(p);
    if (p->at == p->end || *p->at != c) return 0;
    p->at++;
    return 1;
}

static int expect(parser *p, char c, const char *what) { return accept(p, c) ? 0 : fail_at(p, p->at, what); }

/* Four hexadecimal digits; -1 if they are none. */
static long hex4(const parser *p, const char *at)
{
    long x = 0;
    int i;
    if (p->end - at < 4) return -1;
    for (i = 0; i < 4; i++) {
        const int c = lower(at[i]);
        if (c >= '0' && c <= '9') x = 16 * x + (c - '0');
        else if (c >= 'a' && c <= 'f') x = 16 * x + (c - 'a' + 10);
        else return -1;
    }
    return x;
}

static char *put_utf8(char *to, unsigned long c)
{
    if (c < 0x80) {
        *to++ = (char)c;
        return to;
    }
    if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
    } else {
        if (c < 0x10000) {
            *to++ = (char)(0xE0 | c >> 12);
        } else {
            *to++ = (char)(0xF0 | c >> 18);
            *to++ = (char)(0x80 | (c >> 12 & 63));
        }
        *to++ = (char)(0x80 | (c >> 6 & 63));
    }
    *to++ = (char)(0x80 | (c & 63));
    return to;
}

/* One escape at p->at, behind its backslash. */
static int parse_escape(parser *p, char **to)
{
    static const char plain[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *found;
    long c, second;
    if (p->at < p->end && *p->at && (found = strchr(plain, *p->at)) != NULL) {
        *(*to)++ = meaning[found - plain];
        p->at++;
        return 0;
    }
    if (p->at == p->end || *p->at != 'u' || (c = hex4(p, p->at + 1)) < 0)
        return fail_at(p, p->at - 1, "unknown escape");
    if (c >= 0xD800 && c < 0xE000) { /* characters above U+FFFF come as two */
        second = c < 0xDC00 && p->end - p->at > 10 && p->at[5] == '\\' && p->at[6] == 'u' ? hex4(p, p->at + 7) : -1;
        if (second < 0xDC00 || second >= 0xE000) return fail_at(p, p->at - 1, "half of a surrogate pair");
        c = 0x10000 + ((c - 0xD800) << 10) + (second - 0xDC00);
        p->at += 6;
    }
    p->at += 5;
    *to = put_utf8(*to, (unsigned long)c);
    return 0;
}

/* A string; without escapes the result points into the text. */
static int parse_string(parser *p, text_slice *result, const char *what)
{
    const char *start;
    char *copy = NULL, *to = NULL;
    if (expect(p, '"', what)) return 1;
    start = p->at;
    for (; p->at < p->end && *p->at != '"'; p->at++) {
        if ((unsigned char)*p->at < 32) return fail_at(p, p->at, "a control character in a string");
        if (*p->at != '\\') {
            if (copy) *to++ = *p->at;
            continue;
        }
        if (!copy) {
            /* unescaped strings are shorter than they were, so all of them fit the size of the text */
            if (!p->s->unescaped) p->s->unescaped = (char *)malloc((size_t)(p->end - p->text));
            if (!p->s->unescaped) return fault_memory(p->f);
            copy = p->s->unescaped + p->unescaped_size;
            memcpy(copy, start, (size_t)(p->at - start));
            to = copy + (p->at - start);
        }
        p->at++;
        if (parse_escape(p, &to)) return 1;
        p->at--;
    }
    if (p->at == p->end) return fail_at(p, p->at, "the text ends inside a string");
    result->at = copy ? copy : start;
    result->size = (size_t)((copy ? to : p->at) - result->at);
    if (copy) p->unescaped_size += result->size;
    p->at++;
    return 0;
}

/* A number of digits alone, below 2^64. */
static int parse_number(parser *p, uint64_t *x)
{
    const char *start;
    skip_space(p);
    start = p->at;
    *x = 0;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') {
        const unsigned digit = (unsigned)(*p->at - '0');
        if (*x > (UINT64_MAX - digit) / 10) return fail_at(p, start, "a number of 2^64 or more");
        *x = 10 * *x + digit;
        p->at++;
    }
    if (p->at == start || (p->at < p->end && (*p->at == '.' || *p->at == 'e' || *p->at == 'E')))
        return fail_at(p, start, "not a whole number from 0 on");
    if (*start == '0' && p->at - start > 1) return fail_at(p, start, "a number with a leading 0");
    return 0;
}

static int slice_is(text_slice s, const char *word) { return s.size == strlen(word) && !memcmp(s.at, word, s.size); }

/* ================================================================================= VALUES */

/* "null", "true" or "false" */
static int parse_word(parser *p, const char *word)
{
    const size_t size = strlen(word);
    if ((size_t)(p->end - p->at) < size || memcmp(p->at, word, size)) return fail_at(p, p->at, "a value expected");
    p->at += size;
    return 0;
}

static size_t skip_digits(parser *p)
{
    const char *start = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return (size_t)(p->at - start);
}

/* Steps over the character c, or the other one, if it comes next. */
static int accept_here(parser *p, char c, char other)
{
    if (p->at == p->end || (*p->at != c && *p->at != other)) return 0;
    p->at++;
    return 1;
}

/* A number of JSON that nobody needs. It has to be one that a double can hold, at least as 0: the reference says so. */
static int skip_number(parser *p)
{
    static const char most[] = "17976931348623157"; /* the digits of the largest double, which is below 10^309 */
    const char *start = p->at, *whole, *dot, *end, *c;
    int64_t exponent = 0, places = 0;
    size_t i;
    int down = 0;
    (void)accept_here(p, '-', '-');
    whole = p->at;
    if (!skip_digits(p)) return fail_at(p, start, "a value expected");
    if (*whole == '0' && p->at - whole > 1) return fail_at(p, start, "a number with a leading 0");
    dot = p->at;
    if (accept_here(p, '.', '.') && !skip_digits(p)) return fail_at(p, start, "a number without digits behind its point");
    end = p->at;
    if (accept_here(p, 'e', 'E')) {
        const char *digits;
        down = p->at < p->end && *p->at == '-';
        (void)accept_here(p, '-', '+');
        digits = p->at;
        if (!skip_digits(p)) return fail_at(p, start, "a number without digits in its exponent");
        for (c = digits; c < p->at; c++)
            if (exponent < (int64_t)1 << 40) exponent = 10 * exponent + (*c - '0');
    }
    for (c = whole; c < end && (*c == '0' || *c == '.'); c++) { }
    if (c == end) return 0; /* 0, whatever the exponent */
    places = c < dot ? dot - c - 1 : dot - c;
    exponent = places + (down ? -exponent : exponent);
    for (i = 0; exponent == 308 && i < sizeof most - 1 && c < end; c++) {
        if (*c == '.') continue;
        if (*c != most[i]) exponent += *c > most[i] ? 1 : -1;
        i++;
    }
    return exponent > 308 ? fail_at(p, start, "a number that is too large for a double") : 0;
}

/* Arrays and objects in each other, those of the header itself with them: more the reference does not read. */
#define DEPTH_MAX 127

/* Any value, which nobody needs: of a member that is not known. It lies in two objects. */
static int skip_value(parser *p)
{
    char closing[DEPTH_MAX - 2];
    size_t depth = 0;
    int first = 0; /* an array or object has just begun */
    text_slice ignored;
    for (;;) {
        if (first && accept(p, closing[depth - 1])) {
            depth--;
        } else {
            if (depth && closing[depth - 1] == '}' &&
                (parse_string(p, &ignored, "a name expected") || expect(p, ':', "':' expected")))
                return 1;
            skip_space(p);
            first = p->at < p->end && (*p->at == '[' || *p->at == '{');
            if (first) {
                if (depth == sizeof closing) return fail_at(p, p->at, "more than 127 arrays and objects in each other");
                closing[depth++] = *p->at++ == '[' ? ']' : '}';
                continue;
            }
            if (p->at == p->end) return fail_at(p, p->at, "a value expected");
            if (*p->at == '"' ? parse_string(p, &ignored, "")
                : *p->at == 'n' ? parse_word(p, "null")
                : *p->at == 't' ? parse_word(p, "true")
                : *p->at == 'f' ? parse_word(p, "false") : skip_number(p))
                return 1;
        }
        first = 0;
        while (depth && accept(p, closing[depth - 1])) depth--;
        if (!depth) return 0;
        if (expect(p, ',', closing[depth - 1] == ']' ? "',' or ']' expected" : "',' or '}' expected")) return 1;
    }
}

/* ================================================================================= HEADER */

/* The value of "__metadata__": strings by name, or null. */
static int parse_metadata(parser *p)
{
    text_slice ignored;
    skip_space(p);
    if (p->at < p->end && *p->at == 'n') return parse_word(p, "null");
    if (expect(p, '{', "\"__metadata__\" must be an object")) return 1;
    if (accept(p, '}')) return 0;
    do {
        if (parse_string(p, &ignored, "a name expected") || expect(p, ':', "':' expected") ||
            parse_string(p, &ignored, "\"__metadata__\" holds strings only"))
            return 1;
    } while (accept(p, ','));
    return expect(p, '}', "',' or '}' expected");
}

/* A name, or what the reference takes for the same: {"F32":null}. */
static int parse_dtype(parser *p, tensor *t)
{
    if (!accept(p, '{')) return parse_string(p, &t->dtype, "a dtype must be a string");
    if (parse_string(p, &t->dtype, "a dtype must be a string") || expect(p, ':', "':' expected")) return 1;
    skip_space(p);
    return parse_word(p, "null") || expect(p, '}', "a dtype must be a string");
}

static int parse_shape(parser *p, tensor *t)
{
    uint64_t dimension;
    skip_space(p);
    t->shape.at = p->at;
    if (expect(p, '[', "a shape must be an array")) return 1;
    if (!accept(p, ']')) {
        do {
            if (parse_number(p, &dimension)) return 1;
        } while (accept(p, ','));
        if (expect(p, ']', "',' or ']' expected")) return 1;
    }
    t->shape.size = (size_t)(p->at - t->shape.at);
    return 0;
}

static int parse_offsets(parser *p, tensor *t)
{
    return expect(p, '[', "data_offsets must be an array") || parse_number(p, &t->begin) ||
           expect(p, ',', "data_offsets must have two numbers") || parse_number(p, &t->end) ||
           expect(p, ']', "data_offsets must have two numbers");
}

/* Whether the shape and the dtype need the bytes that the tensor has. */
static int check_size(parser *p, tensor *t)
{
    const unsigned bits = t->type ? t->type->bits : 0;
    uint64_t bytes, dimension;
    size_t at = 0;
    for (t->elements = 1; shape_next(t->shape, &at, &dimension); t->elements *= dimension)
        if (dimension && t->elements > UINT64_MAX / dimension) return fail_tensor(p, t, "a shape of 2^64 elements or more");
    if (t->begin > t->end) return fail_tensor(p, t, "data_offsets that end before they begin");
    if (!bits) return 0; /* nobody knows */
    if (bits < 8) {
        if (t->elements > UINT64_MAX / bits) return fail_tensor(p, t, "more than 2^64 bits");
        if (t->elements * bits % 8) return fail_tensor(p, t, "its elements do not fill whole bytes");
        bytes = t->elements * bits / 8;
    } else {
        if (t->elements > UINT64_MAX / (bits / 8)) return fail_tensor(p, t, "2^64 bytes or more");
        bytes = t->elements * (bits / 8);
    }
    if (bytes == t->end - t->begin) return 0;
    {
        char what[96];
        (void)snprintf(what, sizeof what, "shape and dtype need %llu bytes, data_offsets hold %llu",
                       (unsigned long long)bytes, (unsigned long long)(t->end - t->begin));
        return fail_tensor(p, t, what);
    }
}

static int parse_member(parser *p, tensor *t, unsigned member)
{
    switch (member) {
    case 0: return parse_dtype(p, t);
    case 1: return parse_shape(p, t);
    case 2: return parse_offsets(p, t);
    default: return skip_value(p);
    }
}

/* The members of a tensor without their names. */
static int parse_list(parser *p, tensor *t)
{
    return parse_dtype(p, t) || expect(p, ',', "a tensor must have a shape") || parse_shape(p, t) ||
           expect(p, ',', "a tensor must have data_offsets") || parse_offsets(p, t) || expect(p, ']', "']' expected");
}

/* A tensor: the members dtype, shape and data_offsets, each once. Others mean nothing. */
static int parse_tensor(parser *p, tensor *t)
{
    static const char *const names[3] = { "dtype", "shape", "data_offsets" };
    unsigned seen = 0;
    if (accept(p, '[')) return parse_list(p, t); /* the reference does, too */
    if (expect(p, '{', "a tensor must be an object")) return 1;
    if (!accept(p, '}')) {
        do {
            const char *at;
            text_slice name;
            unsigned member = 0;
            skip_space(p);
            at = p->at;
            if (parse_string(p, &name, "a name expected")) return 1;
            while (member < 3 && !slice_is(name, names[member])) member++;
            if (member < 3 && seen >> member & 1) return fail_at(p, at, "a name for the second time");
            seen |= 1u << member;
            if (expect(p, ':', "':' expected") || parse_member(p, t, member)) return 1;
        } while (accept(p, ','));
        if (expect(p, '}', "',' or '}' expected")) return 1;
    }
    return (seen & 7) == 7 ? 0 : fail_tensor(p, t, seen & 1 ? seen & 2 ? "no data_offsets" : "no shape" : "no dtype");
}

static tensor *add_tensor(parser *p, size_t *capacity)
{
    safetensors *s = p->s;
    tensor *tensors = (tensor *)grown(s->tensors, s->count, capacity, sizeof *tensors, p->f);
    if (!tensors) return NULL;
    s->tensors = tensors;
    memset(&s->tensors[s->count], 0, sizeof *s->tensors);
    return &s->tensors[s->count++];
}

static int order_of_names_and_places(const void *a, const void *b)
{
    const tensor *x = (const tensor *)a, *y = (const tensor *)b;
    const int order = slice_compare(x->name, y->name);
    return order ? order : (x->place > y->place) - (x->place < y->place);
}

/* Of tensors of the same name the last one counts, as it does for the reference. */
static void keep_last(safetensors *s)
{
    size_t i, n = 0;
    if (s->count) qsort(s->tensors, s->count, sizeof *s->tensors, order_of_names_and_places);
    for (i = 0; i < s->count; i++)
        if (i + 1 == s->count || slice_compare(s->tensors[i].name, s->tensors[i + 1].name)) s->tensors[n++] = s->tensors[i];
    s->count = n;
}

/* All are of the size that they should. */
static int check_tensors(parser *p)
{
    safetensors *s = p->s;
    size_t i;
    for (i = 0; i < s->count; i++) {
        tensor *t = &s->tensors[i];
        t->type = element_type_find(t->dtype.at, t->dtype.size, 0);
        if (check_size(p, t)) return 1;
    }
    return 0;
}

static int tensor_order(const void *a, const void *b)
{
    const tensor *x = (const tensor *)a, *y = (const tensor *)b;
    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->place > y->place) - (x->place < y->place);
}

/* The tensors follow each other from byte 0 on, without holes and overlaps. */
static int check_places(parser *p)
{
    safetensors *s = p->s;
    uint64_t end = 0;
    size_t i;
    if (s->count) qsort(s->tensors, s->count, sizeof *s->tensors, tensor_order);
    for (i = 0; i < s->count; i++) {
        const tensor *t = &s->tensors[i];
        if (t->begin < end) return fail_tensor(p, t, "its bytes overlap those of another tensor");
        if (t->begin > end) return fail_tensor(p, t, "bytes before it belong to no tensor");
        end = t->end;
    }
    s->data_size = end;
    return 0;
}

static int check_utf8(parser *p)
{
    const char *at;
    size_t n;
    for (at = p->text; at < p->end; at += n) {
        n = utf8_size((const unsigned char *)at, (const unsigned char *)p->end);
        if (!n) return fail_at(p, at, "not UTF-8");
    }
    return 0;
}

static int parse_header(parser *p)
{
    size_t capacity = 0;
    int has_metadata = 0;
    const char *at;
    if (check_utf8(p)) return 1;
    if (expect(p, '{', "it must begin with '{'")) return 1;
    if (!accept(p, '}')) {
        do {
            text_slice name;
            tensor *t;
            skip_space(p);
            at = p->at;
            if (parse_string(p, &name, "a name expected") || expect(p, ':', "':' expected")) return 1;
            if (slice_is(name, "__metadata__")) {
                if (has_metadata++) return fail_at(p, at, "a name for the second time");
                if (parse_metadata(p)) return 1;
                continue;
            }
            t = add_tensor(p, &capacity);
            if (!t) return 1;
            t->name = name;
            t->place = place_of(p, at);
            if (parse_tensor(p, t)) return 1;
        } while (accept(p, ','));
        if (expect(p, '}', "',' or '}' expected")) return 1;
    }
    skip_space(p);
    if (p->at < p->end) return fail_at(p, p->at, "something other than white space behind the last '}'");
    keep_last(p->s);
    return check_tensors(p) || check_places(p);
}

/* FORMAT.md, section 8.3: strings in one more bracket than are closed, with a colon behind them */
static int find_names(parser *p)
{
    size_t capacity = 0;
    int64_t depth = 0;
    if (check_utf8(p)) return 1;
    while (p->at < p->end) {
        const char *at = p->at;
        text_slice name;
        tensor *t;
        if (*at != '"') {
            depth += (*at == '{' || *at == '[') - (*at == '}' || *at == ']');
            p->at++;
            continue;
        }
        if (parse_string(p, &name, "")) return 1;
        if (depth != 1 || !accept(p, ':') || slice_is(name, "__metadata__")) continue;
        t = add_tensor(p, &capacity);
        if (!t) return 1;
        t->name = name;
        t->place = place_of(p, at);
    }
    keep_last(p->s);
    return 0;
}

static int parse_text(safetensors *s, const char *text, size_t size, int (*parse)(parser *), fault *f)
{
    parser p;
    memset(s, 0, sizeof *s);
    memset(&p, 0, sizeof p);
    p.text = p.at = text;
    p.end = text + size;
    p.s = s;
    p.f = f;
    return parse(&p);
}

int safetensors_parse(safetensors *s, const char *text, size_t size, fault *f) { return parse_text(s, text, size, parse_header, f); }

int safetensors_names(safetensors *s, const char *text, size_t size, fault *f) { return parse_text(s, text, size, find_names, f); }

void safetensors_free(safetensors *s)
{
    free(s->tensors);
    free(s->unescaped);
    memset(s, 0, sizeof *s);
}

int shape_next(text_slice shape, size_t *at, uint64_t *dimension)
{
    size_t i = *at;
    while (i < shape.size && (shape.at[i] < '0' || shape.at[i] > '9')) i++;
    if (i == shape.size) return 0;
    *dimension = 0;
    for (; i < shape.size && shape.at[i] >= '0' && shape.at[i] <= '9'; i++)
        *dimension = 10 * *dimension + (uint64_t)(shape.at[i] - '0');
    *at = i;
    return 1;
}

int shape_same(text_slice a, text_slice b)
{
    uint64_t x = 0, y = 0;
    size_t i = 0, j = 0;
    for (;;) {
        const int more = shape_next(a, &i, &x);
        if (more != shape_next(b, &j, &y) || (more && x != y)) return 0;
        if (!more) return 1;
    }
}

static int order_of_names(const void *a, const void *b)
{
    return slice_compare((*(const tensor *const *)a)->name, (*(const tensor *const *)b)->name);
}

const tensor **tensors_by_name(const safetensors *s)
{
    const tensor **names = (const tensor **)malloc((s->count + 1) * sizeof *names);
    size_t i;
    if (!names) return NULL;
    for (i = 0; i < s->count; i++) names[i] = &s->tensors[i];
    if (s->count) qsort((void *)names, s->count, sizeof *names, order_of_names);
    return names;
}

const tensor *tensor_find(const tensor **names, size_t count, text_slice name)
{
    size_t low = 0, high = count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        const int order = slice_compare(names[middle]->name, name);
        if (order == 0) return names[middle];
        if (order < 0) low = middle + 1;
        else high = middle;
    }
    return NULL;
}
