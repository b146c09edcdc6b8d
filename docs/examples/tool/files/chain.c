/* chain.c - what info tells of deltas: their frames, and whether one file follows another.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "../system/posix.h"

#include "chain.h"

#include <stdlib.h>
#include <string.h>

int chain_note_frame(void *context, const file_frame *frame, fault *f)
{
    chain_file *x = (chain_file *)context;
    if (x->count == x->capacity) {
        const size_t capacity = x->capacity ? 2 * x->capacity : 16;
        file_frame *frames = (file_frame *)realloc(x->frames, capacity * sizeof *frames);
        forms *parts;
        if (!frames) return fault_memory(f);
        x->frames = frames;
        parts = (forms *)realloc(x->forms, capacity * sizeof *parts);
        if (!parts) return fault_memory(f);
        x->forms = parts;
        x->capacity = capacity;
    }
    x->frames[x->count] = *frame;
    x->forms[x->count++] = x->now;
    memset(&x->now, 0, sizeof x->now);
    return forms_add(&x->all, &x->forms[x->count - 1], f);
}

int chain_note_block(void *context, const bitsnap_block *block, uint64_t changed, fault *f)
{
    chain_file *x = (chain_file *)context;
    return forms_note(&x->now, block, changed, f);
}

int chain_take(chain_file *x, file_reader *r, const char *name, fault *f)
{
    x->delta = r->s.start.kind == BITSNAP_SOURCE_DELTA;
    if (x->delta) {
        x->link = r->link;
        memset(&r->link, 0, sizeof r->link);
        x->link.own.text = r->text;
        r->text = NULL;
    } else if (r->text && link_end_make(&x->link.own, r->text, r->text_size, r->s.source_size - 8 - r->text_size, NULL, f)) {
        return 1;
    }
    x->name = (char *)malloc(strlen(name) + 1);
    if (!x->name) return fault_memory(f);
    memcpy(x->name, name, strlen(name) + 1);
    return 0;
}

static const file_frame *frame_at(const chain_file *x, uint64_t begin)
{
    size_t low = 0, high = x->count;
    while (low < high) { /* frames of no elements share their place with the next */
        const size_t middle = low + (high - low) / 2;
        if (x->frames[middle].begin + x->frames[middle].bytes <= begin) low = middle + 1;
        else high = middle;
    }
    return low < x->count && x->frames[low].begin == begin ? &x->frames[low] : NULL;
}

int chain_follows(const chain_file *before, const chain_file *x, char *why)
{
    size_t i, unknown = 0;
    if (x->link.base.next) {
        (void)snprintf(why, 96, "it was made against several files");
        return 0;
    }
    if (!link_ends_agree(&before->link.own, &x->link.base)) {
        (void)snprintf(why, 96, "it was made against another header");
        return 0;
    }
    for (i = 0; i < x->count; i++) {
        const file_frame *a = &x->frames[i], *b = a->role ? frame_at(before, a->range.begin) : NULL;
        if (!a->role || !a->count) continue;
        if (!b || !b->has_id || b->count != a->count || b->dtype != a->range.dtype) {
            unknown++;
        } else if (b->id != a->base_id) {
            (void)snprintf(why, 96, "frame %zu was made against other elements", i);
            return 0;
        }
    }
    *why = 0;
    if (unknown) (void)snprintf(why, 96, ", but for %zu frames, which are cut otherwise and were not compared", unknown);
    return 1;
}

static double per_element(uint64_t bytes, uint64_t elements) { return elements ? 8 * (double)bytes / (double)elements : 0; }

static file_frame sum_of(const chain_file *x)
{
    file_frame all;
    size_t i;
    memset(&all, 0, sizeof all);
    for (i = 0; i < x->count; i++) {
        all.count += x->frames[i].count;
        all.same += x->frames[i].same;
        all.differences += x->frames[i].differences;
        all.plain += x->frames[i].plain;
    }
    return all;
}

void chain_print(const chain_file *x, uint64_t file_size)
{
    const file_frame all = sum_of(x);
    const link_end *e;
    for (e = &x->link.base; e; e = e->next) {
        (void)printf("base     ");
        if (e->name) {
            (void)print_text(stdout, e->name, strlen(e->name));
            (void)printf(", ");
        }
        (void)printf("%llu bytes of header text (id %016llx), %llu bytes of data", (unsigned long long)e->text_size, (unsigned long long)e->id,
                     (unsigned long long)e->data_size);
        if (e == &x->link.base) (void)printf("; the header text of the file is %s", x->link.coded_size ? "another" : "the same");
        (void)putchar('\n');
    }
    (void)printf("delta    %llu elements, %.4f bits/element for all of the file; cells: %llu the same, %llu by differences, "
                 "%llu for themselves\n", (unsigned long long)all.count, per_element(file_size, all.count),
                 (unsigned long long)all.same, (unsigned long long)all.differences, (unsigned long long)all.plain);
}

void chain_print_forms(const chain_file *x, int each)
{
    int unknown = 0;
    size_t i;
    for (i = 0; (x->delta || each) && i < x->count; i++) {
        const file_frame *a = &x->frames[i];
        (void)printf("frame %-2zu %llu elements %s at byte %llu, ", i, (unsigned long long)a->count, bitsnap_dtype_name(a->dtype),
                     (unsigned long long)a->begin);
        if (a->role) {
            (void)printf("against %s at byte %llu%s", bitsnap_dtype_name(a->range.dtype), (unsigned long long)a->range.begin,
                         a->role == 2 ? ", cast" : "");
            if (x->link.base.next) (void)printf(", of base %u", a->range.base);
        } else (void)printf("without a base");
        (void)printf(": %.4f bits/element", per_element(a->size, a->count));
        if (x->delta)
            (void)printf(", cells %llu + %llu + %llu", (unsigned long long)a->same, (unsigned long long)a->differences,
                         (unsigned long long)a->plain);
        if (a->role) (void)printf(", from id %016llx", (unsigned long long)a->base_id);
        if (a->has_id) (void)printf(a->role ? " to %016llx" : ", id %016llx", (unsigned long long)a->id);
        (void)putchar('\n');
        if (each) forms_print(&x->forms[i], x->delta);
    }
    if (x->all.count && each && x->count > 1) (void)printf("all frames\n");
    if (!each || x->count > 1) forms_print(&x->all, x->delta);
    for (i = 0; i < x->all.count; i++) unknown |= x->all.rows[i].classes > 1 && x->all.rows[i].known < x->all.rows[i].elements;
    if (unknown) (void)printf("give the base with -b to see the classes, and how many elements have changed\n");
}

static void put_id(json *j, const char *name, uint64_t id)
{
    char text[24];
    (void)snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    json_member_string(j, name, text);
}

static void put_cells(json *j, const file_frame *a)
{
    json_member_whole(j, "cells_same", a->same);
    json_member_whole(j, "cells_differences", a->differences);
    json_member_whole(j, "cells_plain", a->plain);
}

/* All bases, where there are several. */
static void json_ends(json *j, const link_end *e)
{
    json_name(j, "bases");
    json_begin(j, '[');
    for (; e; e = e->next) {
        json_begin(j, '{');
        if (e->name) json_member_string(j, "name", e->name);
        json_member_whole(j, "text_bytes", e->text_size);
        json_member_whole(j, "data_bytes", e->data_size);
        put_id(j, "text_id", e->id);
        json_end(j, '}');
    }
    json_end(j, ']');
}

void chain_json(json *j, const chain_file *x, uint64_t file_size, int follows)
{
    const file_frame all = sum_of(x);
    size_t i;
    json_name(j, "delta");
    json_begin(j, '{');
    if (x->link.base.name) json_member_string(j, "base_name", x->link.base.name);
    json_member_whole(j, "base_text_bytes", x->link.base.text_size);
    json_member_whole(j, "base_data_bytes", x->link.base.data_size);
    put_id(j, "base_text_id", x->link.base.id);
    put_id(j, "text_id", x->link.own.id);
    if (x->link.base.next) json_ends(j, &x->link.base);
    json_member_whole(j, "elements", all.count);
    json_member_real(j, "bits_per_element", per_element(file_size, all.count));
    put_cells(j, &all);
    if (follows >= 0) json_member_truth(j, "follows", follows);
    json_name(j, "frames");
    json_begin(j, '[');
    for (i = 0; i < x->count; i++) {
        const file_frame *a = &x->frames[i];
        json_begin(j, '{');
        json_member_string(j, "dtype", bitsnap_dtype_name(a->dtype));
        json_member_whole(j, "begin", a->begin);
        json_member_whole(j, "elements", a->count);
        json_member_whole(j, "frame_bytes", a->size);
        json_member_real(j, "bits_per_element", per_element(a->size, a->count));
        json_member_whole(j, "role", (uint64_t)a->role);
        put_cells(j, a);
        forms_json(j, &x->forms[i]);
        if (a->role) {
            json_member_string(j, "base_dtype", bitsnap_dtype_name(a->range.dtype));
            if (x->link.base.next) json_member_whole(j, "base", a->range.base);
            json_member_whole(j, "base_begin", a->range.begin);
            put_id(j, "base_id", a->base_id);
        }
        if (a->has_id) put_id(j, "id", a->id);
        json_end(j, '}');
    }
    json_end(j, ']');
    json_end(j, '}');
}

void chain_free(chain_file *x)
{
    size_t i;
    for (i = 0; i < x->count; i++) forms_free(&x->forms[i]);
    forms_free(&x->now);
    forms_free(&x->all);
    link_free(&x->link);
    free(x->forms);
    free(x->frames);
    free(x->name);
    memset(x, 0, sizeof *x);
}
