/* link.c - what a delta says of the two files it stands between, and how it holds the header text of one by that of
 * the other: docs/FORMAT.md, section 8.5.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "link.h"

#include "bitsnap.h"
#include "container.h"

#include <stdlib.h>
#include <string.h>

static void *copy(const void *bytes, size_t size)
{
    void *p = malloc(size ? size : 1);
    if (p && size) memcpy(p, bytes, size);
    return p;
}

int link_end_make(link_end *e, const char *text, size_t text_size, uint64_t data_size, const char *name, fault *f)
{
    e->text_size = text_size;
    e->data_size = data_size;
    e->id = bitsnap_hash(text, text_size);
    e->text = (char *)copy(text, text_size);
    e->name = name ? (char *)copy(name, strlen(name) + 1) : NULL;
    return e->text && (e->name || !name) ? 0 : fault_memory(f);
}

void link_end_free(link_end *e)
{
    link_end *next = e->next;
    free(e->text);
    free(e->name);
    while (next) {
        link_end *last = next;
        next = next->next;
        free(last->text);
        free(last->name);
        free(last);
    }
}

unsigned link_end_count(const link_end *e)
{
    unsigned n = 0;
    for (; e; e = e->next) n++;
    return n;
}

const link_end *link_end_at(const link_end *e, unsigned number)
{
    while (e && number--) e = e->next;
    return e;
}

static int texts_agree(const link_end *a, const link_end *b) { return a->text_size == b->text_size && a->id == b->id; }

int link_ends_agree(const link_end *a, const link_end *b) { return texts_agree(a, b) && a->data_size == b->data_size; }

/* `name` says whether that goes with it. */
static int copy_end(link_end *to, const link_end *from, int name, fault *f)
{
    *to = *from;
    to->next = NULL;
    to->text = from->text ? (char *)copy(from->text, (size_t)from->text_size) : NULL;
    to->name = name && from->name ? (char *)copy(from->name, strlen(from->name) + 1) : NULL;
    return (from->text && !to->text) || (name && from->name && !to->name) ? fault_memory(f) : 0;
}

static int copy_ends(file_link *l, const link_end *base, const link_end *own, fault *f)
{
    link_end *to = &l->base;
    memset(l, 0, sizeof *l);
    if (copy_end(to, base, 1, f) || copy_end(&l->own, own, 0, f)) return 1;
    for (base = base->next; base; base = base->next, to = to->next) {
        to->next = (link_end *)calloc(1, sizeof *to->next);
        if (!to->next) return fault_memory(f);
        if (copy_end(to->next, base, 1, f)) return 1;
    }
    return 0;
}

int link_make(file_link *l, const link_end *base, const link_end *own, int base_text, fault *f)
{
    if (copy_ends(l, base, own, f)) return 1;
    if (texts_agree(base, own)) return 0;
    return text_encode(&l->coded, &l->coded_size, own->text, (size_t)own->text_size, base->text, (size_t)base->text_size, f) ||
           (base_text && text_encode(&l->base_coded, &l->base_coded_size, base->text, (size_t)base->text_size, NULL, 0, f));
}

static int check_text(const link_end *e, fault *f)
{
    return bitsnap_hash(e->text, (size_t)e->text_size) == e->id ? 0 : fault_set(f, "damaged text: it is not the one that was coded (S16)");
}

/* The text of an end: a copy of what is known, or what is coded, like `base`; it has the id that it should have. */
static int find_text(link_end *e, const char *known, const uint8_t *coded, size_t coded_size, const link_end *base, fault *f)
{
    e->text = (char *)malloc((size_t)e->text_size + 1);
    if (!e->text) return fault_memory(f);
    if (known) memcpy(e->text, known, (size_t)e->text_size);
    else if (text_decode(e->text, (size_t)e->text_size, base ? base->text : NULL, base ? (size_t)base->text_size : 0, coded, coded_size, f)) return 1;
    return check_text(e, f);
}

int link_find_texts(file_link *l, const char *base_text, fault *f)
{
    if (!l->base.text && (base_text || l->base_coded_size) &&
        find_text(&l->base, base_text, l->base_coded, l->base_coded_size, NULL, f)) return 1;
    if (l->own.text || !l->base.text) return 0;
    return find_text(&l->own, l->coded_size ? NULL : l->base.text, l->coded, l->coded_size, &l->base, f);
}

/* What is stored of another link is right for this one, too. */
static int copy_coded(file_link *l, const file_link *from, fault *f)
{
    l->coded = (uint8_t *)copy(from->coded, from->coded_size);
    l->base_coded = (uint8_t *)copy(from->base_coded, from->base_coded_size);
    l->coded_size = from->coded_size;
    l->base_coded_size = from->base_coded_size;
    return l->coded && l->base_coded ? 0 : fault_memory(f);
}

int link_join(file_link *l, file_link *a, file_link *b, fault *f)
{
    memset(l, 0, sizeof *l);
    if (link_find_texts(a, NULL, f) || link_find_texts(b, a->own.text, f)) return 1;
    if (texts_agree(&a->base, &b->own)) return copy_ends(l, &a->base, &b->own, f);
    if (!a->coded_size) return copy_ends(l, &a->base, &b->own, f) || copy_coded(l, b, f);
    if (!b->coded_size) return copy_ends(l, &a->base, &b->own, f) || copy_coded(l, a, f);
    if (a->base.text && b->own.text) return link_make(l, &a->base, &b->own, a->base_coded_size > 0, f);
    if (!b->own.text) return fault_set(f, "their header texts take that of the base to be put together: give it with -b");
    /* a text that does not reach back may follow any other */
    return copy_ends(l, &a->base, &b->own, f) || text_encode(&l->coded, &l->coded_size, b->own.text, (size_t)b->own.text_size, NULL, 0, f);
}

int link_turn(file_link *l, file_link *a, fault *f)
{
    memset(l, 0, sizeof *l);
    if (!a->coded_size) return copy_ends(l, &a->own, &a->base, f);
    if (link_find_texts(a, NULL, f)) return 1;
    if (!a->base.text || !a->own.text) return fault_set(f, "it does not hold the header text of its base: give the base with -b");
    return link_make(l, &a->own, &a->base, 1, f);
}

void link_free(file_link *l)
{
    link_end_free(&l->base);
    link_end_free(&l->own);
    free(l->coded);
    free(l->base_coded);
    memset(l, 0, sizeof *l);
}
