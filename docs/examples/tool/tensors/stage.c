/* stage.c - chooses how coarsely the moments of Adam may be quantized at this stage of the training.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "stage.h"

#include "../files/base.h"
#include "../files/bytes.h"
#include "difference.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The allowed error of an update, relative to the size of the weights: 1/16 of the error that rounding to bfloat16 makes. */
#define ERROR_OF_WEIGHT (1 / 8192.0)

enum { FINEST = 70, COARSEST = 8 }; /* bins of m, as in "resume" and "small" */

/* Reads the elements of a tensor in order. */
typedef struct cursor {
    const base *from;
    uint64_t next, end;    /* range of bytes that are still to be read */
    uint8_t bytes[1 << 14];
    size_t at, held;
    unsigned width;
    const float_format *format;
} cursor;

typedef struct job {
    base m, v, w;
    cursor cursors[3];
    char *w_path;
    int own;       /* 1: w is the given file with the moments */
    double updates, weights; /* sums of squares: of m / (sqrt(v) + eps), without the rate; of the weights */
    uint64_t elements;
    used_files *used;
    fault *f;
} job;

/* Returns `path` with `other` in place of the last pattern in its file name. The caller frees it. */
static char *path_beside(const char *path, const char *pattern, const char *other)
{
    const char *at = NULL, *slash = strrchr(path, '/'), *next;
    char *made;
    for (next = slash ? slash : path; (next = strstr(next, pattern)) != NULL; next++) at = next;
    made = (char *)malloc(strlen(path) + strlen(other) + 1);
    if (!made || !at) {
        free(made);
        return NULL;
    }
    memcpy(made, path, (size_t)(at - path));
    (void)strcpy(made + (at - path), other);
    (void)strcat(made, at + strlen(pattern));
    return made;
}

static int open_file(job *j, base *b, const char *path) { return base_plain(b, NULL, path, j->f) || input_note(&b->in, path, j->used, j->f); }

static int open_beside(job *j, base *b, const char *path, const char *pattern, const char *other)
{
    char *beside = path_beside(path, pattern, other);
    int failed;
    if (!beside) return fault_memory(j->f);
    failed = open_file(j, b, beside);
    if (failed) (void)fault_add(j->f, "; --adam stage needs both moments");
    free(beside);
    return failed;
}

static int open_named(job *j, const char *path)
{
    j->w_path = strdup(path);
    return j->w_path ? open_file(j, &j->w, path) : fault_memory(j->f);
}

/* Opens the file with the weights: as given, else beside the moments, else the same file. */
static int open_weights(job *j, const char *path, const char *pattern, const char *weights)
{
    static const char *const names[] = { "master", "model", "weights", "bf16" };
    size_t i;
    if (weights) return open_named(j, weights);
    for (i = 0; pattern && i < sizeof names / sizeof *names; i++) {
        char *beside = path_beside(path, pattern, names[i]);
        int there, failed;
        if (!beside) return fault_memory(j->f);
        there = access(beside, R_OK) == 0;
        failed = there && open_named(j, beside);
        free(beside);
        if (there) return failed;
    }
    j->own = 1;
    return open_named(j, path);
}

/* Returns the weight of a moment. Its name lacks the word for the moment, and may lack segments before that. */
static const tensor *weight_of(const tensor *m, const adam_choice *c, const tensor **names, size_t count)
{
    char *made = NULL;
    text_slice name = m->name;
    const tensor *found = NULL;
    unsigned segments;
    if (!c->by_file) {
        made = adam_name_with(m->name, NULL, &name.size);
        if (!made) return NULL;
        name.at = made;
    }
    for (segments = 0; segments < 64; segments++) { /* a name can be as long as a header */
        found = bitsnap_tensor_find(names, count, name);
        if (found && bitsnap_shape_same(found->shape, m->shape) && bitsnap_tensor_has_octaves(found)) break;
        found = NULL;
        while (name.size && *name.at != '.' && *name.at != '/') name.at++, name.size--;
        if (!name.size) break;
        name.at++, name.size--;
    }
    free(made);
    return found;
}

static void cursor_at(cursor *c, const base *b, const tensor *t)
{
    c->from = b;
    c->next = t->begin;
    c->end = t->end;
    c->at = c->held = 0;
    c->width = t->type->bits / 8;
    c->format = float_format_of(t->type);
}

/* Reads the next element. Clears *finite if it is infinite or NaN. */
static int take(cursor *c, double *x, int *finite, fault *f)
{
    if (c->at == c->held) {
        const uint64_t left = c->end - c->next;
        c->held = left < sizeof c->bytes ? (size_t)left : sizeof c->bytes;
        if (bitsnap_file_read_data(c->from->file.file, c->next, c->bytes, c->held)) return c->from->file.failed(&c->from->file, f);
        c->next += c->held;
        c->at = 0;
    }
    *finite &= float_value(c->format, bytes_load(c->bytes + c->at, c->width), x);
    c->at += c->width;
    return 0;
}

/* Short statements keep compilers from fusing two roundings into one, so all builds find the same bins. */
static int measure(job *j, const tensor *m, const base *v_base, const tensor *v, const tensor *w)
{
    cursor *of_m = &j->cursors[0], *of_v = &j->cursors[1], *of_w = &j->cursors[2];
    const double eps_squared = 1e-16;
    uint64_t i;
    cursor_at(of_m, &j->m, m);
    cursor_at(of_v, v_base, v);
    cursor_at(of_w, &j->w, w);
    for (i = 0; i < m->elements; i++) {
        double x, y, z;
        int finite = 1;
        if (take(of_m, &x, &finite, j->f) || take(of_v, &y, &finite, j->f) || take(of_w, &z, &finite, j->f)) return 1;
        if (!finite || y < 0) continue;
        x *= x;
        y += eps_squared;
        x /= y;
        j->updates += x;
        z *= z;
        j->weights += z;
        j->elements++;
    }
    return 0;
}

static int measure_all(job *j, const char *m_path)
{
    adam_choice *choices = adam_roles(&j->m.model, m_path);
    const tensor **v_names = bitsnap_tensors_by_name(&j->v.model), **w_names = bitsnap_tensors_by_name(&j->w.model);
    int failed = !choices || !v_names || !w_names;
    size_t i;
    if (failed) (void)fault_memory(j->f);
    for (i = 0; !failed && i < j->m.model.count; i++) {
        const tensor *m = &j->m.model.tensors[i], *v = choices[i].partner, *w;
        if (choices[i].role != ADAM_M || !bitsnap_tensor_has_octaves(m)) continue;
        if (choices[i].by_file) v = bitsnap_tensor_find(v_names, j->v.model.count, m->name);
        if (!v || !bitsnap_shape_same(v->shape, m->shape) || !bitsnap_tensor_has_octaves(v)) continue;
        /* not the moment itself */
        w = j->own && choices[i].by_file ? NULL : weight_of(m, &choices[i], w_names, j->w.model.count);
        if (w) failed = measure(j, m, choices[i].by_file ? &j->v : &j->m, v, w);
    }
    free(choices);
    free((void *)v_names);
    free((void *)w_names);
    return failed;
}

static void conclude(stage *s, adam_policy *p, job *j)
{
    unsigned n = COARSEST;
    const double quotient = j->weights > 0 ? j->updates / j->weights : 1e30;
    s->elements = j->elements;
    s->weights = j->w_path;
    j->w_path = NULL;
    s->ratio = p->rate * square_root(quotient);
    s->allowed = s->ratio > 0 ? ERROR_OF_WEIGHT / s->ratio : 1;
    while (n < FINEST && adam_update_bound(bitsnap_log_bound(n), bitsnap_log_bound(n / 2)) > s->allowed) n += 2;
    p->m_cells = n;
    p->v_cells = n / 2;
}

/* Returns 1 if there are moments, 0 if not, -1: no memory. */
static int has_moments(const safetensors *model, const char *path, fault *f)
{
    adam_choice *choices = adam_roles(model, path);
    size_t i;
    int found = 0;
    if (!choices) return fault_memory(f), -1;
    for (i = 0; i < model->count; i++) found |= choices[i].role != ADAM_NONE;
    free(choices);
    return found;
}

static int find(stage *s, adam_policy *p, job *j, const char *path, const char *weights)
{
    adam_role role;
    const char *pattern = adam_file_pattern(path, &role), *other = pattern ? adam_counterpart(pattern) : NULL;
    char *m_path = role == ADAM_V ? path_beside(path, pattern, other) : strdup(path);
    int failed;
    if (!m_path) return fault_memory(j->f);
    failed = role == ADAM_V ? open_beside(j, &j->m, path, pattern, other) : open_file(j, &j->m, path);
    if (!failed) failed = role == ADAM_M ? open_beside(j, &j->v, path, pattern, other) : open_file(j, &j->v, path);
    failed = failed || open_weights(j, path, pattern, weights) || measure_all(j, m_path);
    free(m_path);
    if (failed) return 1;
    if (!j->elements) return fault_set(j->f, "--adam stage finds no weights that have both moments; give them with --weights");
    conclude(s, p, j);
    return 0;
}

int stage_find(stage *s, adam_policy *p, const safetensors *model, const char *path, const char *weights, used_files *u, fault *f)
{
    job j;
    int failed, some;
    memset(s, 0, sizeof *s);
    memset(&j, 0, sizeof j);
    j.used = u;
    j.f = f;
    j.m.in.fd = j.v.in.fd = j.w.in.fd = -1;
    some = has_moments(model, path, f);
    if (some <= 0) return some < 0;
    if (!strcmp(path, "-")) return fault_set(f, "--adam stage reads a file twice, and standard input comes once");
    failed = find(s, p, &j, path, weights);
    base_close(&j.m);
    base_close(&j.v);
    base_close(&j.w);
    free(j.w_path);
    return failed;
}

void stage_free(stage *s)
{
    free(s->weights);
    s->weights = NULL;
}
