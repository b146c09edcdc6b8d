#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "study.h"

enum { STEPS_MAX = 256 };

static int ascending(const void *a, const void *b)
{
    const unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

/* Lists the steps that have checkpoints of train_gpt. */
static size_t list_steps(unsigned steps[STEPS_MAX], const char *directory)
{
    size_t count = 0;
    struct dirent *found;
    DIR *dir = opendir(directory);
    if (!dir) stop("cannot read ", directory);
    while (count < STEPS_MAX && (found = readdir(dir)) != NULL) {
        char expected[64];
        const char *name = found->d_name;
        if (strncmp(name, "gpt-", 4) != 0) continue;
        steps[count] = (unsigned)strtoul(name + 4, NULL, 10);
        snprintf(expected, sizeof expected, "gpt-%05u-model.safetensors", steps[count]);
        if (!strcmp(name, expected)) count++;
    }
    closedir(dir);
    qsort(steps, count, sizeof *steps, ascending);
    return count;
}

static void load(tensor *t, const char *directory, unsigned step, const char *kind)
{
    char name[64];
    snprintf(name, sizeof name, "gpt-%05u-%s", step, kind);
    if (!tensor_load(t, directory, name)) stop("cannot read ", name);
}

/* Measures changes from every 25th step to later ones, at all distances whose checkpoint exists. */
static void study_kind(const options *o, const unsigned *steps, size_t count, const char *kind)
{
    static const unsigned distances[] = {1, 5, 25};
    const unsigned forms = ALL_FORMS & ~(1u << XOR_ZSTD_19);
    for (size_t i = 0; i < count; i++) {
        tensor base = {"", BITSNAP_BF16, NULL, 0};
        if (steps[i] % 25) continue;
        for (size_t k = 0; k < sizeof distances / sizeof *distances; k++) {
            const unsigned next = steps[i] + distances[k];
            char from[16], to[16];
            measured m;
            tensor t;
            change c;
            if (!bsearch(&next, steps, count, sizeof *steps, ascending)) continue;
            if (!base.data) load(&base, o->from, steps[i], kind);
            load(&t, o->from, next, kind);
            if (t.size != base.size || t.dtype != base.dtype) stop("the checkpoints are of different models: ", o->from);
            c.dtype = c.base_dtype = t.dtype;
            c.base = base.data;
            c.data = t.data;
            c.n = t.size / bitsnap_width(t.dtype);
            m = forms_measure(&c, forms);
            snprintf(from, sizeof from, "%u", steps[i]);
            snprintf(to, sizeof to, "%u", next);
            table_row(kind, from, to, &m, steps[i] % 100 == 0);
            free(t.data);
        }
        free(base.data);
    }
}

void study_steps(const options *o)
{
    static const char *const kinds[] = {"model", "master", "exp_avg", "exp_avg_sq"};
    unsigned steps[STEPS_MAX];
    const size_t count = list_steps(steps, o->from);
    if (count < 2) stop("fewer than two checkpoints gpt-*-model.safetensors in ", o->from);
    table_begin(o, "From step to step of a training run", 0);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) study_kind(o, steps, count, kinds[k]);
    table_end();
}
