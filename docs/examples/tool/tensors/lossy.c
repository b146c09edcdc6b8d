/* lossy.c - lists the quantized frames of a .bsnap file, and the errors that their certificates allow.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "lossy.h"

#include "../console/progress.h"

#include <stdlib.h>
#include <string.h>

int lossy_note(void *context, const file_frame *frame, fault *f)
{
    lossy *l = (lossy *)context;
    file_frame *frames;
    if (!frame_is_quantized(frame)) return 0;
    frames = (file_frame *)grown(l->frames, l->count, &l->capacity, sizeof *frames, f);
    if (!frames) return 1;
    l->frames = frames;
    l->frames[l->count++] = *frame;
    return 0;
}

void lossy_free(lossy *l)
{
    free(l->frames);
    memset(l, 0, sizeof *l);
}

/* Returns the first frame that ends after this byte of the data. */
static size_t first_behind(const lossy *l, uint64_t begin)
{
    size_t low = 0, high = l->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (l->frames[middle].begin + l->frames[middle].info.elements_size <= begin) low = middle + 1;
        else high = middle;
    }
    return low;
}

int lossy_bound(const lossy *l, uint64_t begin, uint64_t end, double *bound)
{
    int bounded = 1;
    size_t i;
    *bound = 0;
    for (i = first_behind(l, begin); i < l->count && l->frames[i].begin < end; i++) {
        const double here = l->frames[i].info.certificate.bound;
        if (here <= 0) bounded = 0;
        if (here > *bound) *bound = here;
    }
    return bounded;
}

/* ================================================================================= NAMES */

/* Returns the number of the tensor that holds the first byte of a frame; model->count if no tensor does. */
static size_t tensor_of(const file_frame *x, const safetensors *model)
{
    size_t low = 0, high = model->count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (model->tensors[middle].end <= x->begin) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Facts about a frame that follow from its tensor. */
typedef struct label {
    const tensor *tensor;  /* null: not known */
    adam_role role;
    int paired;
    double update;         /* for m, if paired: bound of the relative error of an update */
} label;

static label label_of(const lossy *l, const file_frame *x)
{
    label a = { 0 };
    const adam_choice *c;
    double bound;
    size_t i;
    if (!l->roles || (i = tensor_of(x, l->model)) == l->model->count) return a;
    c = &l->roles[i];
    a.tensor = &l->model->tensors[i];
    a.role = c->role;
    a.paired = c->role == ADAM_M && c->partner && x->info.certificate.bound > 0 &&
               lossy_bound(l, c->partner->begin, c->partner->end, &bound);
    if (a.paired) a.update = adam_update_bound(x->info.certificate.bound, bound);
    return a;
}

static double larger(double a, double b) { return a > b ? a : b; }

lossy_sums lossy_add_up(const lossy *l)
{
    lossy_sums s = { .within = 1 };
    size_t i;
    for (i = 0; i < l->count; i++) {
        const file_frame *x = &l->frames[i];
        const label a = label_of(l, x);
        s.tensors++;
        s.elements += x->info.count;
        s.bytes += x->size;
        s.of_role[a.role]++;
        s.bound[a.role] = larger(s.bound[a.role], x->info.certificate.bound);
        s.largest[a.role] = larger(s.largest[a.role], x->info.certificate.max_relative);
        s.pairs += a.paired != 0;
        s.update = larger(s.update, a.update);
        if (x->info.certificate.bound <= 0) s.unbounded++;
        else if (!(x->info.certificate.max_relative <= x->info.certificate.bound)) s.within = 0;
    }
    return s;
}

/* ================================================================================= OUTPUT */

static const char *const role_names[3] = { "", "m", "v" };

void lossy_print_line(FILE *to, const lossy *l, const char *between)
{
    const lossy_sums s = lossy_add_up(l);
    const char *gap = " ";
    size_t role;
    (void)fprintf(to, "%zu", s.tensors);
    if (l->roles) (void)fprintf(to, " of %zu", l->model->count);
    (void)fprintf(to, " tensors quantized, %.3f bits/element;%srelative errors",
                  s.elements ? 8 * (double)s.bytes / (double)s.elements : 0, between);
    for (role = 0; role < 3; gap = s.of_role[role++] ? between : gap) {
        if (s.of_role[role] && s.bound[role] <= 0)
            (void)fprintf(to, "%s%s%swithout a bound (measured %.3f %%),", gap, role_names[role], role ? " " : "", 100 * s.largest[role]);
        else if (s.of_role[role])
            (void)fprintf(to, "%s%s%sat most %.3f %% (measured %.3f %%),", gap, role_names[role], role ? " " : "", 100 * s.bound[role],
                          100 * s.largest[role]);
    }
    if (s.pairs) (void)fprintf(to, "%supdate at most %.3f %%,", between, 100 * s.update);
    (void)fprintf(to, s.unbounded == s.tensors ? " none has a bound" : s.within ? " all within bounds" : " NOT within bounds");
    if (s.unbounded && s.unbounded < s.tensors) (void)fprintf(to, ", but %zu have none", s.unbounded);
}

void lossy_print_table(const lossy *l, int all)
{
    size_t i;
    (void)printf("%-2s  %-7s  %7s  %10s  %10s  ", "", "bins", "columns", "bound", "max rel");
    if (all) (void)printf("%10s  %10s  %10s  %8s  ", "MRE", "MSE", "max abs", "exact");
    (void)printf("%10s  quantized\n", "update");
    for (i = 0; i < l->count; i++) {
        const file_frame *x = &l->frames[i];
        const bitsnap_certificate *c = &x->info.certificate;
        const label a = label_of(l, x);
        char family[16] = "other";
        size_t at;
        if (x->info.bins) (void)snprintf(family, sizeof family, "LOG-%u", x->info.bins);
        else if (x->info.clusters) (void)snprintf(family, sizeof family, "C-%u", x->info.clusters);
        at = (size_t)printf("%-2s  %-7s  %7llu  %8.4f %%  %8.4f %%  ", role_names[a.role], family, (unsigned long long)x->info.columns,
                            100 * c->bound, 100 * c->max_relative);
        if (all)
            at += (size_t)printf("%8.4f %%  %10.3e  %10.3e  %8llu  ", 100 * c->mean_relative, c->mean_square, c->max_absolute, (unsigned long long)c->exact);
        if (a.paired) at += (size_t)printf("%8.4f %%  ", 100 * a.update);
        else at += (size_t)printf("%10s  ", "-");
        if (a.tensor) print_last(a.tensor->name.at, a.tensor->name.size, at, "");
        else (void)printf("elements from byte %llu of the data on\n", (unsigned long long)x->begin);
    }
}

void lossy_json(const lossy *l, json *j)
{
    const lossy_sums s = lossy_add_up(l);
    size_t i;
    json_name(j, "quantized");
    json_begin(j, '{');
    json_member_whole(j, "tensors", s.tensors);
    json_member_whole(j, "elements", s.elements);
    json_member_real(j, "bits_per_element", s.elements ? 8 * (double)s.bytes / (double)s.elements : 0);
    json_member_truth(j, "within_bounds", s.within);
    if (s.of_role[ADAM_M]) json_member_real(j, "m_bound", s.bound[ADAM_M]);
    if (s.of_role[ADAM_V]) json_member_real(j, "v_bound", s.bound[ADAM_V]);
    if (s.pairs) json_member_real(j, "update_bound", s.update);
    json_member_list(j, "frames");
    for (i = 0; i < l->count; i++) {
        const file_frame *x = &l->frames[i];
        const bitsnap_certificate *c = &x->info.certificate;
        const label a = label_of(l, x);
        json_begin(j, '{');
        json_name(j, "name");
        if (a.tensor) json_text(j, a.tensor->name.at, a.tensor->name.size);
        else json_null(j);
        json_member_string(j, "role", role_names[a.role]);
        json_member_whole(j, "cells", x->info.bins);
        if (x->info.clusters) json_member_whole(j, "clusters", x->info.clusters);
        json_member_whole(j, "columns", x->info.columns);
        json_member_real(j, "bound", c->bound);
        json_member_real(j, "max_rel_error", c->max_relative);
        json_member_real(j, "mre", c->mean_relative);
        json_member_real(j, "mse", c->mean_square);
        json_member_real(j, "max_abs_error", c->max_absolute);
        json_member_whole(j, "exact", c->exact);
        if (a.paired) json_member_real(j, "update_bound", a.update);
        json_end(j, '}');
    }
    json_end(j, ']');
    json_end(j, '}');
}

void lossy_json_truth(const lossy *l, json *j, int quantized)
{
    json_member_truth(j, "lossy", quantized);
    if (quantized) lossy_json(l, j);
}
