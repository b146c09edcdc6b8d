/* forms.c - counts the blocks of frames by form, and the bytes of their parts.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "forms.h"
#include "../files/file.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS, PART, LISTS };
enum { OTHERS = 1, ZEROS = 2 }; /* sides of PARTED and PATCHED */
enum { SYMBOLS = 1, CODED = 2 }; /* parts of SPLIT after the raw planes */

static int in_order(const form_row *a, const form_row *b)
{
    if (a->form != b->form) return a->form < b->form;
    if (a->classes != b->classes) return a->classes < b->classes;
    if (a->sort != b->sort) return a->sort < b->sort;
    return a->which < b->which;
}

static int add_row(forms *x, const form_row *row, fault *f)
{
    size_t i = 0;
    while (i < x->count && in_order(&x->rows[i], row)) i++;
    if (i == x->count || in_order(row, &x->rows[i])) {
        form_row *rows = (form_row *)grown(x->rows, x->count, &x->capacity, sizeof *rows, f);
        if (!rows) return 1;
        x->rows = rows;
        memmove(x->rows + i + 1, x->rows + i, (x->count - i) * sizeof *x->rows);
        x->rows[i] = *row;
        x->count++;
        return 0;
    }
    if (row->lowest < x->rows[i].lowest) x->rows[i].lowest = row->lowest;
    if (row->highest > x->rows[i].highest) x->rows[i].highest = row->highest;
    x->rows[i].count += row->count;
    x->rows[i].elements += row->elements;
    x->rows[i].bytes += row->bytes;
    x->rows[i].known += row->known;
    x->rows[i].changed += row->changed;
    return 0;
}

/* Names of the kinds of lists. */
static const char *const list_names[] = {
    "raw", "constant", "tree", "tree, raw escapes", "tree, listed escapes", "split at 0", "split at 2", "words as they are"
};

static unsigned list_of(unsigned kind)
{
    return kind == 128 ? 7 : kind & 15;
}

int forms_note(forms *x, const bitsnap_block *block, uint64_t changed, fault *f)
{
    form_row row = { 0 };
    unsigned k;
    row.form = block->form;
    row.classes = block->classes;
    row.count = 1;
    row.elements = block->elements;
    row.bytes = block->size;
    row.known = changed == FORMS_UNKNOWN ? 0 : block->elements;
    row.changed = changed == FORMS_UNKNOWN ? 0 : changed;
    if (add_row(x, &row, f)) return 1;
    for (k = 0; k < block->parts; k++) {
        const bitsnap_part *part = &block->part[k];
        const int classed = block->form == FORM_CLASSED, sparse = block->form == FORM_SPARSE;
        const int parted = block->form == FORM_PARTED || block->form == FORM_PATCHED;
        if (!part->elements) continue;
        row.sort = PART;
        row.which = parted && k ? (part->changed ? OTHERS : ZEROS) : k;
        if (block->form == FORM_SPLIT && k) row.which = k + 1 < block->parts ? CODED : SYMBOLS;
        row.lowest = classed && k ? block->borders[k - 1] : 0;
        row.highest = classed && k + 1 < block->classes ? block->borders[k] - 1u : 255;
        row.elements = part->elements;
        row.bytes = part->size;
        row.known = classed || sparse ? part->elements : 0;
        row.changed = part->changed;
        if (add_row(x, &row, f)) return 1;
        if (((block->form == FORM_SPLIT || block->form == FORM_SCALED || block->form == FORM_QUANTIZED) && !k) || sparse ||
            (parted && k) || (block->form == FORM_SPLIT && row.which == CODED)) continue; /* planes, or more lists, or none */
        row.sort = LISTS;
        row.which = list_of(part->kind);
        row.lowest = row.highest = 0;
        if (add_row(x, &row, f)) return 1;
    }
    return 0;
}

int forms_add(forms *x, const forms *more, fault *f)
{
    size_t i;
    for (i = 0; i < more->count; i++)
        if (add_row(x, &more->rows[i], f)) return 1;
    return 0;
}

static const char *form_name(unsigned form)
{
    static const char *const names[] = { "STORED", "CONST", "SPLIT", "BYTES", "SAME", "CLASSED", "SCALED", "QUANTIZED", "SPARSE", "ZIGZAG",
                                         "PARTED", "PATCHED" };
    return form < sizeof names / sizeof *names ? names[form] : "?";
}

/* Writes the name of a part; `text` has 48 bytes. */
static void part_name(const form_row *r, char *text)
{
    if (r->form == FORM_SPLIT) (void)snprintf(text, 48, "%s", r->which == CODED ? "other bits, coded" : r->which ? "exponents" : "other bits, as they are");
    else if (r->form == FORM_SPARSE) (void)snprintf(text, 48, "places and differences");
    else if (r->form == FORM_PARTED && r->which) (void)snprintf(text, 48, "%s", r->which == ZEROS ? "zeros" : "one of two kinds of elements");
    else if (r->form == FORM_PATCHED && r->which) (void)snprintf(text, 48, "%s", r->which == ZEROS ? "elements that became zero" : "elements that differ");
    else if (r->form == FORM_PATCHED) (void)snprintf(text, 48, "which elements differ");
    else if (r->form == FORM_PARTED) (void)snprintf(text, 48, "which of two kinds each is");
    else if (r->form == FORM_SCALED || r->form == FORM_QUANTIZED) (void)snprintf(text, 48, "%s", r->which ? "words" : "scales of rows and columns");
    else if (r->form != FORM_CLASSED) (void)snprintf(text, 48, "byte %u", r->which);
    else if (r->classes == 1) (void)snprintf(text, 48, "all differences");
    else if (r->which + 1 == r->classes) (void)snprintf(text, 48, "class %u, exponents %u and up", r->which, r->lowest);
    else (void)snprintf(text, 48, "class %u, exponents %u-%u", r->which, r->lowest, r->highest);
}

static void print_name(const form_row *r)
{
    char text[48], name[80];
    if (r->sort == PART) {
        part_name(r, text);
        (void)snprintf(name, sizeof name, "  %s", text);
    } else if (r->sort == LISTS) {
        (void)snprintf(name, sizeof name, "  by %s", list_names[r->which]);
    } else if (r->classes) {
        (void)snprintf(name, sizeof name, "%s, %u class%s", form_name(r->form), r->classes, r->classes > 1 ? "es" : "");
    } else {
        (void)snprintf(name, sizeof name, "%s", form_name(r->form));
    }
    (void)printf("%-31s", name);
}

void forms_print(const forms *x, int with_changes)
{
    size_t i;
    if (!x->count) return;
    (void)printf("%-31s %6s %11s", "form", "blocks", "elements"); /* 79 columns in all, which a terminal of 80 has */
    if (with_changes) (void)printf(" %9s", "changed");
    (void)printf(" %8s %9s\n", "bits/el.", "bytes");
    for (i = 0; i < x->count; i++) {
        const form_row *r = &x->rows[i];
        print_name(r);
        (void)printf(" %6llu %11llu", (unsigned long long)r->count, (unsigned long long)r->elements);
        if (with_changes && r->known == r->elements) (void)printf(" %7.3f %%", 100 * (double)r->changed / (double)r->known);
        else if (with_changes) (void)printf(" %9s", "-");
        (void)printf(" %8.4f %9llu\n", 8 * (double)r->bytes / (double)r->elements, (unsigned long long)r->bytes);
    }
}

static void put_row(json *j, const form_row *r)
{
    char text[48];
    json_begin(j, '{');
    json_member_string(j, "form", form_name(r->form));
    if (r->classes) json_member_whole(j, "classes", r->classes);
    if (r->sort == PART) {
        part_name(r, text);
        json_member_string(j, "part", text);
    } else if (r->sort == LISTS) {
        json_member_string(j, "list", list_names[r->which]);
    }
    json_member_whole(j, "blocks", r->count);
    json_member_whole(j, "elements", r->elements);
    json_member_whole(j, "stored_bytes", r->bytes);
    json_member_real(j, "bits_per_element", 8 * (double)r->bytes / (double)r->elements);
    if (r->known == r->elements) json_member_whole(j, "changed", r->changed);
    json_end(j, '}');
}

void forms_json(json *j, const forms *x)
{
    size_t i;
    json_member_list(j, "forms");
    for (i = 0; i < x->count; i++) put_row(j, &x->rows[i]);
    json_end(j, ']');
}

void forms_free(forms *x)
{
    free(x->rows);
    memset(x, 0, sizeof *x);
}
