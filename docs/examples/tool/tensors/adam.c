/* adam.c - finds the tensors that are moments of Adam, and chooses how coarsely to quantize them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "adam.h"

#include "../files/bytes.h"
#include "../system/paths.h"

#include <stdlib.h>
#include <string.h>

/* ================================================================================= NAMES */

typedef struct pattern {
    const char *name, *counterpart;
    adam_role role;
    int pair; /* 1: a common word. It counts only as a whole segment of a tensor's name, if the file has the counterpart, too */
} pattern;

static const pattern patterns[] = {
    { "exp_avg", "exp_avg_sq", ADAM_M, 0 }, /* PyTorch, FSDP, DCP, Megatron, DeepSpeed */
    { "exp_avg_sq", "exp_avg", ADAM_V, 0 },
    { "max_exp_avg_sq", NULL, ADAM_NONE, 0 }, /* AMSGrad keeps it beside the second moment */
    { "adam_m", "adam_v", ADAM_M, 0 },
    { "adam_v", "adam_m", ADAM_V, 0 },
    { "first_moment", "second_moment", ADAM_M, 0 },
    { "second_moment", "first_moment", ADAM_V, 0 },
    { "moment1", "moment2", ADAM_M, 0 },    /* Paddle */
    { "moment2", "moment1", ADAM_V, 0 },
    { "mu", "nu", ADAM_M, 1 },              /* optax */
    { "nu", "mu", ADAM_V, 1 }
};

enum { PATTERNS = sizeof patterns / sizeof *patterns };

static int is_alphanumeric(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (unsigned char)c >= 0x80;
}

/* Returns 1 if the part at `at` is a separate word. In exp_avg_0, exp_avg is one; in exp_avg_diff it is not. */
static int is_word(text_slice s, size_t at, size_t size, int whole)
{
    const char *end = s.at + at + size;
    const size_t left = s.size - at - size;
    if (at && (is_alphanumeric(s.at[at - 1]) || (whole && s.at[at - 1] == '_'))) return 0;
    if (!left) return 1;
    if (*end == '_') return !whole && left > 1 && end[1] >= '0' && end[1] <= '9';
    return !is_alphanumeric(*end);
}

/* Returns the longest pattern in a name, or null. *place is its last position. */
static const pattern *find_pattern(text_slice s, int in_tensor, size_t *place)
{
    const pattern *found = NULL;
    size_t i, at;
    for (i = 0; i < PATTERNS; i++) {
        const size_t size = strlen(patterns[i].name);
        if ((patterns[i].pair && !in_tensor) || (found && strlen(found->name) >= size)) continue;
        for (at = 0; at + size <= s.size; at++) {
            if (memcmp(s.at + at, patterns[i].name, size) || !is_word(s, at, size, patterns[i].pair)) continue;
            found = &patterns[i];
            *place = at;
        }
    }
    return found;
}

/* The file's own name, without its directory. */
static text_slice file_name(const char *path)
{
    text_slice s;
    s.at = last_part(path);
    s.size = strlen(s.at);
    return s;
}

const char *adam_file_pattern(const char *path, adam_role *role)
{
    size_t at;
    const pattern *found = find_pattern(file_name(path), 0, &at);
    *role = found ? found->role : ADAM_NONE;
    return found && found->role ? found->name : NULL;
}

const char *adam_counterpart(const char *name)
{
    size_t i;
    for (i = 0; i < PATTERNS; i++)
        if (!strcmp(patterns[i].name, name)) return patterns[i].counterpart;
    return NULL;
}

char *adam_name_with(text_slice name, const char *other, size_t *size)
{
    size_t at, before, after, middle = 0;
    const pattern *found = find_pattern(name, 1, &at);
    char *made;
    if (!found || !found->role) return NULL;
    before = at;
    after = at + strlen(found->name);
    if (other) middle = strlen(other);
    else if (after < name.size) after++; /* one separator next to the word is dropped, too */
    else if (before) before--;
    *size = before + middle + (name.size - after);
    made = (char *)malloc(*size + 1);
    if (!made) return NULL;
    memcpy(made, name.at, before);
    if (middle) memcpy(made + before, other, middle);
    memcpy(made + before + middle, name.at + after, name.size - after);
    made[*size] = 0;
    return made;
}

/* ================================================================================= ROLES */

static const tensor *partner_of(const tensor *t, const pattern *p, const tensor **names, size_t count)
{
    text_slice name;
    const tensor *other;
    char *made = adam_name_with(t->name, p->counterpart, &name.size);
    if (!made) return NULL;
    name.at = made;
    other = bitsnap_tensor_find(names, count, name);
    free(made);
    return other && bitsnap_shape_same(other->shape, t->shape) ? other : NULL;
}

adam_choice *adam_roles(const safetensors *model, const char *path)
{
    adam_choice *choices = (adam_choice *)calloc(model->count + 1, sizeof *choices);
    const tensor **names = bitsnap_tensors_by_name(model);
    adam_role of_file;
    const char *file_pattern = adam_file_pattern(path, &of_file);
    size_t i, at;
    for (i = 0; choices && names && i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        const pattern *p = find_pattern(t->name, 1, &at);
        adam_choice *c = &choices[i];
        if (p && p->counterpart) c->partner = partner_of(t, p, names, model->count);
        if (p && p->pair && !c->partner) p = NULL;
        if (p) {
            c->role = p->role;
            c->pattern = p->name;
        } else if (file_pattern) {
            c->role = of_file;
            c->pattern = file_pattern;
            c->by_file = 1;
        }
    }
    free((void *)names);
    if (!names) {
        free(choices);
        return NULL;
    }
    return choices;
}

/* ---- tensors that are named like a moment, but are not one ---- */

/* A quantized moment has several tensors: codes of at most a byte, and their scales or tables. */
static const char *const parts_of_codes[] = { "absmax", "qmap", "quant_map", "codes", "zero_point" };
static const char *const parts_beside[] = { "scale", "scales", "code", "zeros", "min", "max", "offset", "shift" };

typedef struct surroundings {
    const tensor **names;
    size_t count;
    text_slice *coded; /* sorted names of tensors with elements of at most a byte, and of their parents */
    size_t coded_count;
} surroundings;

static int is_mark(char c) { return c == '.' || c == '/' || c == ':'; }

/* Returns where the last component of a name begins; 0: it has only one. */
static size_t last_component(text_slice s)
{
    size_t at = s.size;
    while (at && !is_mark(s.at[at - 1])) at--;
    return at;
}

static int by_text(const void *a, const void *b) { return bitsnap_slice_compare(*(const text_slice *)a, *(const text_slice *)b); }

static int look_around(surroundings *s, const safetensors *model)
{
    size_t i;
    s->count = model->count;
    s->coded_count = 0;
    s->names = bitsnap_tensors_by_name(model);
    s->coded = (text_slice *)malloc((2 * model->count + 1) * sizeof *s->coded);
    if (!s->names || !s->coded) return 1;
    for (i = 0; i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        text_slice lies_in = t->name;
        if (t->elements < 2 || (t->type && t->type->bits > 8)) continue;
        lies_in.size = last_component(t->name);
        lies_in.size -= lies_in.size > 0;
        s->coded[s->coded_count++] = t->name;
        if (lies_in.size) s->coded[s->coded_count++] = lies_in;
    }
    qsort(s->coded, s->coded_count, sizeof *s->coded, by_text);
    return 0;
}

static int is_coded(const surroundings *s, text_slice name)
{
    return s->coded_count && bsearch(&name, s->coded, s->coded_count, sizeof *s->coded, by_text) != NULL;
}

/* Returns 1 if a component is a word of the list, optionally followed by a number. */
static int is_part(const char *at, size_t size, const char *const *words, size_t count)
{
    while (size && (at[size - 1] == '_' || (at[size - 1] >= '0' && at[size - 1] <= '9'))) size--;
    while (count--)
        if (strlen(words[count]) == size && !memcmp(words[count], at, size)) return 1;
    return 0;
}

/* Returns 1 if a tensor belongs to a quantized moment. `end`: byte after the pattern; 0 if that is in the file's name. */
static int is_part_of_codes(const surroundings *s, text_slice name, size_t end)
{
    const size_t last = last_component(name);
    text_slice lies_in = name;
    if (is_coded(s, name)) return 1;
    if (!last || last <= end) return 0;
    lies_in.size = last - 1;
    if (is_coded(s, lies_in) || is_part(name.at + last, name.size - last, parts_of_codes, sizeof parts_of_codes / sizeof *parts_of_codes)) return 1;
    while (end && end < last && (name.at[end] == '_' || (name.at[end] >= '0' && name.at[end] <= '9'))) end++; /* exp_avg_0 */
    return end + 1 == last && is_part(name.at + last, name.size - last, parts_beside, sizeof parts_beside / sizeof *parts_beside);
}

/* Returns 1 if there is a tensor of this name with another number of elements. */
static int is_other_size(const surroundings *s, const tensor *t, const char *name, size_t size)
{
    text_slice wanted;
    const tensor *x;
    wanted.at = name;
    wanted.size = size;
    x = name && size ? bitsnap_tensor_find(s->names, s->count, wanted) : NULL;
    return x && x != t && bitsnap_tensor_has_octaves(x) && x->elements != t->elements;
}

/* Returns why a moment stays exact, or null. The name of its weight may be that of the moment without the word for it, or the
 * part before or after that word. */
static const char *why_none(const surroundings *s, const tensor *t, const adam_choice *c)
{
    size_t at = 0, size, end = 0;
    const pattern *p = c->by_file ? NULL : find_pattern(t->name, 1, &at);
    const char *why = NULL;
    char *made;
    if (p) end = at + strlen(p->name);
    if (is_part_of_codes(s, t->name, end)) return "it belongs to a moment that is quantized already";
    if (!p) return NULL;
    made = adam_name_with(t->name, p->counterpart, &size);
    if (is_other_size(s, t, made, size)) why = "the other moment has another shape";
    free(made);
    made = adam_name_with(t->name, NULL, &size);
    if (is_other_size(s, t, made, size) || is_other_size(s, t, t->name.at, at - (at > 0)) ||
        (end < t->name.size && is_other_size(s, t, t->name.at + end + 1, t->name.size - end - 1)))
        why = "its weight has another shape";
    free(made);
    return why;
}

int adam_choose(const adam_policy *p, const safetensors *model, adam_choice *choices)
{
    surroundings s;
    const int failed = look_around(&s, model);
    size_t i;
    for (i = 0; !failed && i < model->count; i++) {
        const tensor *t = &model->tensors[i];
        adam_choice *c = &choices[i];
        const unsigned cells = c->role == ADAM_M ? p->m_cells : p->v_cells;
        if (!p->name) c->why = "no --adam";
        else if (!c->role) c->why = "no moment of Adam by its name";
        else if (!bitsnap_tensor_has_octaves(t)) c->why = "its elements are not F16, BF16, F32 or F64";
        else if (t->elements < p->least) c->why = "fewer elements than --adam-min";
        else if ((c->why = why_none(&s, t, c)) != NULL) continue;
        else if (p->clusters) c->clusters = p->clusters;
        else if (!cells) c->why = "the policy says so";
        else c->cells = cells;
    }
    free((void *)s.names);
    free(s.coded);
    return failed;
}

/* As unsigned integers, numbers below 0 are above -0 and at most the negative infinity. */
#define FIND_NEGATIVE(type, width, infinity)                                                                  \
    for (; p < end; p += (width)) {                                                                           \
        const type x = (type)bytes_load(p, width), minus = (type)((type)1 << (8 * (width) - 1));              \
        found |= (type)(x - minus - 1) < (type)(infinity);                                                    \
    }

int adam_has_negative(bitsnap_dtype dtype, const uint8_t *elements, size_t bytes)
{
    const uint8_t *p = elements, *const end = p + bytes;
    int found = 0;
    switch (dtype) {
    case BITSNAP_F16: FIND_NEGATIVE(uint16_t, 2, 0x7C00) break;
    case BITSNAP_BF16: FIND_NEGATIVE(uint16_t, 2, 0x7F80) break;
    case BITSNAP_F32: FIND_NEGATIVE(uint32_t, 4, 0x7F800000) break;
    case BITSNAP_F64: FIND_NEGATIVE(uint64_t, 8, 0x7FF0000000000000) break;
    default: break;
    }
    return found;
}

void adam_refuse(adam_choice *choices, const safetensors *model, size_t i)
{
    adam_choice *v = &choices[i], *m = v->partner ? &choices[v->partner - model->tensors] : NULL;
    v->cells = v->clusters = 0;
    v->why = "it has negative elements, which second moments never have";
    if (!m || !(m->cells | m->clusters)) return;
    m->cells = m->clusters = 0;
    m->why = "the second moment beside it has negative elements";
}

/* ================================================================================= POLICIES */

typedef struct preset {
    const char *name;
    unsigned m, v;
} preset;

static const preset presets[] = {
    { "exact", 0, 0 }, { "lossless", 0, 0 }, { "resume", 70, 35 }, { "standard", 16, 8 }, { "small", 8, 4 }
};

/* Parses a decimal number, 0.001 or 1e-3, which must end at `end`. No digit may follow there, since strtod would read it. */
static int parse_number(const char *text, const char *end, double *x)
{
    char *stop;
    const char *p;
    for (p = text; p < end; p++)
        if (!strchr("0123456789.eE+-", *p)) return 1; /* no words, no hexadecimal digits */
    if (text == end) return 1;
    *x = strtod(text, &stop);
    return stop != end;
}

static int is_log(const char *text, size_t size)
{
    return size > 3 && (text[0] | 32) == 'l' && (text[1] | 32) == 'o' && (text[2] | 32) == 'g';
}

static int parse_loss(const char *text, size_t size, unsigned *cells, fault *f)
{
    const char *end = text + size;
    double x;
    if ((size == 5 && !memcmp(text, "exact", 5)) || (size == 8 && !memcmp(text, "lossless", 8))) {
        *cells = 0;
        return 0;
    }
    if (is_log(text, size)) {
        text += text[3] == '-' ? 4 : 3;
        if (parse_number(text, end, &x) || x < 1 || x > 2048 || x > (unsigned)x)
            return fault_set(f, "--adam takes 1 to 2048 bins, as in LOG-70, not '%.*s'", (int)size, end - size);
        *cells = (unsigned)x;
        return 0;
    }
    if (parse_number(text, size && end[-1] == '%' ? end - 1 : end, &x))
        return fault_set(f, "--adam takes a relative error such as 0.5%% or 0.005, LOG-70, or lossless, not '%.*s'", (int)size, text);
    if (end[-1] == '%') x /= 100;
    if (x <= 0 || x >= 1) return fault_set(f, "--adam takes a relative error above 0 and below 1, not '%.*s'", (int)size, text);
    *cells = bitsnap_log_bins(x);
    if (!*cells) return fault_set(f, "--adam: the smallest relative error is %.3g %%; below that, use lossless", 100 * bitsnap_log_bound(2048));
    return 0;
}

int adam_parse(adam_policy *p, const char *text, fault *f)
{
    static const char usage[] = "exact, resume, standard, small, stage, clusters, or such as m=0.5%,v=1%";
    int given[2] = { 0, 0 };
    size_t i;
    p->name = text;
    p->m_cells = p->v_cells = 0;
    p->stage = 0;
    p->clusters = 0;
    for (i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(text, presets[i].name)) continue;
        p->m_cells = presets[i].m;
        p->v_cells = presets[i].v;
        return 0;
    }
    if (!strncmp(text, "stage", 5) && (!text[5] || text[5] == '=')) {
        p->stage = 1;
        p->rate = 0.001; /* the default of optimizers */
        if (text[5] && (parse_number(text + 6, text + strlen(text), &p->rate) || p->rate <= 0))
            return fault_set(f, "--adam stage takes a learning rate such as stage=0.0003, not '%s'", text + 6);
        return 0;
    }
    if (!strncmp(text, "clusters", 8) && (!text[8] || text[8] == '=')) {
        double n = 16; /* as in the paper */
        if (text[8] && (parse_number(text + 9, text + strlen(text), &n) || n < 2 || n > 256 || n > (unsigned)n))
            return fault_set(f, "--adam clusters takes 2 to 256 of them, as in clusters=16, not '%s'", text + 9);
        p->clusters = (unsigned)n;
        return 0;
    }
    while (*text) {
        const size_t size = strcspn(text, ",");
        const int of_v = *text == 'v';
        if (size < 2 || (*text != 'm' && *text != 'v') || text[1] != '=' || given[of_v]++ || (text[size] && !text[size + 1]))
            return fault_set(f, "--adam takes %s, not '%s'", usage, p->name);
        if (parse_loss(text + 2, size - 2, of_v ? &p->v_cells : &p->m_cells, f)) return 1;
        text += size + (text[size] == ',');
    }
    if (!*given && !given[1]) return fault_set(f, "--adam takes %s", usage);
    return 0;
}

/* ================================================================================= UPDATES */

double square_root(double x)
{
    double root = x > 1 ? x : 1;
    int i;
    if (x <= 0) return 0;
    for (i = 0; i < 1200; i++) { /* from above: each step at least halves the error, until rounding stops it */
        const double next = (root + x / root) / 2;
        if (next >= root) break;
        root = next;
    }
    return root;
}

double adam_update_bound(double m, double v) { return (1 + m) / square_root(1 - v) - 1; }
