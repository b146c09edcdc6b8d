/* link.c - what a delta says of the two files it stands between, and how it holds the header text of one by that of
 * the other: docs/FORMAT.md, section 8.5.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "link.h"

#include "bitsnap.h"
#include "text.h"

#include <stdlib.h>
#include <string.h>

static void *copy(const void *bytes, size_t size)
{
    void *p = malloc(size ? size : 1);
    if (p && size) memcpy(p, bytes, size);
    return p;
}

int link_end_make(link_end *e, const char *text, size_t text_size, uint64_t data_size, fault *f)
{
    e->text_size = text_size;
    e->data_size = data_size;
    e->id = bitsnap_hash(text, text_size);
    e->text = (char *)copy(text, text_size);
    return e->text ? 0 : fault_memory(f);
}

static int texts_agree(const link_end *a, const link_end *b) { return a->text_size == b->text_size && a->id == b->id; }

int link_ends_agree(const link_end *a, const link_end *b) { return texts_agree(a, b) && a->data_size == b->data_size; }

static int copy_end(link_end *to, const link_end *from, fault *f)
{
    *to = *from;
    if (!from->text) return 0;
    to->text = (char *)copy(from->text, (size_t)from->text_size);
    return to->text ? 0 : fault_memory(f);
}

/* The two texts, one behind the other; null: no memory. */
static char *both_texts(const link_end *base, const char *text, size_t size)
{
    char *both = (char *)malloc((size_t)base->text_size + size + 1);
    if (!both) return NULL;
    memcpy(both, base->text, (size_t)base->text_size);
    if (text) memcpy(both + base->text_size, text, size);
    return both;
}

static int copy_ends(file_link *l, const link_end *base, const link_end *own, fault *f)
{
    memset(l, 0, sizeof *l);
    return copy_end(&l->base, base, f) || copy_end(&l->own, own, f);
}

int link_make(file_link *l, const link_end *base, const link_end *own, int base_text, fault *f)
{
    char *both;
    int failed;
    if (copy_ends(l, base, own, f)) return 1;
    if (texts_agree(base, own)) return 0;
    both = both_texts(base, own->text, (size_t)own->text_size);
    if (!both) return fault_memory(f);
    failed = text_encode_after(&l->coded, &l->coded_size, both + base->text_size, (size_t)own->text_size,
                               (size_t)base->text_size, f);
    free(both);
    if (!failed && base_text) failed = text_encode(&l->base_coded, &l->base_coded_size, base->text, (size_t)base->text_size, f);
    return failed;
}

static int check_text(const link_end *e, fault *f)
{
    return bitsnap_hash(e->text, (size_t)e->text_size) == e->id ? 0 : fault_set(f, "damaged text: it is not the one that was coded");
}

int link_find_texts(file_link *l, const char *base_text, fault *f)
{
    if (!l->base.text && (base_text || l->base_coded_size)) {
        l->base.text = (char *)malloc((size_t)l->base.text_size + 1);
        if (!l->base.text) return fault_memory(f);
        if (base_text) memcpy(l->base.text, base_text, (size_t)l->base.text_size);
        else if (text_decode(l->base.text, (size_t)l->base.text_size, l->base_coded, l->base_coded_size, f)) return 1;
        if (check_text(&l->base, f)) return 1;
    }
    if (l->own.text || !l->base.text) return 0;
    if (!l->coded_size) {
        l->own.text = (char *)copy(l->base.text, (size_t)l->own.text_size);
        return l->own.text ? 0 : fault_memory(f);
    } else {
        char *both = both_texts(&l->base, NULL, (size_t)l->own.text_size), *text;
        int failed;
        if (!both) return fault_memory(f);
        text = both + l->base.text_size;
        failed = text_decode_after(text, (size_t)l->own.text_size, (size_t)l->base.text_size, l->coded, l->coded_size, f);
        if (!failed) {
            l->own.text = (char *)copy(text, (size_t)l->own.text_size);
            failed = l->own.text ? check_text(&l->own, f) : fault_memory(f);
        }
        free(both);
        return failed;
    }
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
    return copy_ends(l, &a->base, &b->own, f) || text_encode(&l->coded, &l->coded_size, b->own.text, (size_t)b->own.text_size, f);
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
    free(l->base.text);
    free(l->own.text);
    free(l->coded);
    free(l->base_coded);
    memset(l, 0, sizeof *l);
}
