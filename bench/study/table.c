#include <stdio.h>

#include "../machine.h"
#include "../peers.h"
#include "study.h"

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif
#ifndef BENCH_FLAGS
#define BENCH_FLAGS "unknown"
#endif

enum { PLANES = 4 };
static const char *const cell_names[3] = {"same", "classed", "plain"};
static FILE *file;
static int as_ratios;

static void figures_begin(const char *title)
{
    char machine[256];
    machine_describe(machine, sizeof machine);
    fprintf(file, "# %s\n# %s; %s %s; commit %s, bitsnap %s; %s\n", title, machine, machine_compiler(), BENCH_FLAGS,
            BENCH_COMMIT, BITSNAP_VERSION, peers_versions());
    fprintf(file, "# Forms: bits an element. Cells: blocks of the delta that are as the base has them, coded against it, and coded\n"
                  "# alone. over_plain: bytes of default less those of full with as large blocks. Entropies: of byte planes, 0 the\n"
                  "# lowest. -: not measured.\n");
    fprintf(file, "tensor\tfrom\tto\telements\tchanged");
    for (unsigned f = 0; f < FORMS; f++) fprintf(file, "\t%s", form_names[f]);
    for (unsigned f = DELTA; f <= FAST; f++)
        for (unsigned k = 0; k < 3; k++) fprintf(file, "\t%s_%s", form_names[f], cell_names[k]);
    fprintf(file, "\tover_plain");
    for (unsigned k = 0; k < PLANES; k++) fprintf(file, "\tentropy_%u", k);
    for (unsigned k = 0; k < PLANES; k++) fprintf(file, "\txor_entropy_%u", k);
    fputc('\n', file);
}

void table_begin(const options *o, const char *title, int ratios)
{
    as_ratios = ratios;
    if (o->out && !(file = fopen(o->out, "w"))) stop("cannot write ", o->out);
    if (file) figures_begin(title);
    printf("\n%s (%s):\n\n| tensor | from | to | changed", title, ratios ? "raw size against each form's" : "bits an element");
    for (unsigned f = 0; f < FORMS; f++)
        if (form_is_there(f)) printf(" | %s", form_names[f]);
    printf(" |\n|---|---|---|--:");
    for (unsigned f = 0; f < FORMS; f++)
        if (form_is_there(f)) printf("|--:");
    printf("|\n");
}

static void figures_row(const char *tensor, const char *from, const char *to, const measured *m)
{
    fprintf(file, "%s\t%s\t%s\t%zu\t", tensor, from, to, m->n);
    if (m->bytes[MASK]) fprintf(file, "%zu", m->changed);
    else fputc('-', file);
    for (unsigned f = 0; f < FORMS; f++) {
        if (m->bytes[f]) fprintf(file, "\t%.6g", bits_per_element(m, f));
        else fprintf(file, "\t-");
    }
    for (unsigned f = 0; f <= FAST - DELTA; f++)
        for (unsigned k = 0; k < 3; k++) fprintf(file, "\t%u", (unsigned)m->cells[f][k]);
    if (m->plain) fprintf(file, "\t%ld", (long)m->bytes[DELTA] - (long)m->plain);
    else fprintf(file, "\t-");
    for (unsigned k = 0; k < 2 * PLANES; k++) {
        if (k % PLANES < m->width) fprintf(file, "\t%.4f", (k < PLANES ? m->entropy : m->xor_entropy)[k % PLANES]);
        else fprintf(file, "\t-");
    }
    fputc('\n', file);
}

/* Prints four significant digits. */
static void number(double x)
{
    const int digits = x >= 1000 ? 0 : x >= 100 ? 1 : x >= 10 ? 2 : x >= 1 ? 3 : x >= 0.1 ? 4 : 5;
    printf(" | %.*f", digits, x);
}

void table_row(const char *tensor, const char *from, const char *to, const measured *m, int shown)
{
    if (file) figures_row(tensor, from, to, m);
    if (!shown) return;
    printf("| %s | %s | %s | ", tensor, from, to);
    if (m->bytes[MASK]) printf("%.4g %%", 100 * (double)m->changed / (double)m->n);
    else putchar('-');
    for (unsigned f = 0; f < FORMS; f++) {
        if (!form_is_there(f)) continue;
        if (!m->bytes[f]) printf(" | -");
        else number(as_ratios ? 8 * m->width / bits_per_element(m, f) : bits_per_element(m, f));
    }
    printf(" |\n");
    fflush(stdout);
}

void table_end(void)
{
    if (file && (ferror(file) || fclose(file) != 0)) stop("cannot write the figures", "");
    file = NULL;
}
