/* link.h - what a delta says of the two files it stands between, and how it holds the header text of one by that of
 * the other: docs/FORMAT.md, section 8.5.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_LINK_H
#define TOOL_LINK_H

#include "../console/fault.h"

#include <stddef.h>
#include <stdint.h>

/* A .safetensors file, by what its delta knows of it. */
typedef struct link_end {
    uint64_t text_size, data_size;
    uint64_t id;   /* XXH3 of the text */
    char *text;    /* null where it is not known */
    char *name;    /* of a base: what its file is called, without directories; null where that is not known */
    struct link_end *next; /* of several bases the one of the next number; null: there is no other */
} link_end;

typedef struct file_link {
    link_end base, own;  /* of several bases the first: texts are coded after the text of that one */
    uint8_t *coded;      /* the own text as text records, like the base's; no bytes: it is the base's */
    size_t coded_size;
    uint8_t *base_coded; /* the base's text, in deltas that can be merged and inverted without it; no bytes: not here */
    size_t base_coded_size;
} file_link;

/* From texts that are known; with `base_text` the base's is stored, where it is another. */
int link_make(file_link *l, const link_end *base, const link_end *own, int base_text, fault *f);

/* A link end of a text: copies it, and the name; null: it has none. */
int link_end_make(link_end *e, const char *text, size_t text_size, uint64_t data_size, const char *name, fault *f);
void link_end_free(link_end *e);

/* How many bases there are from this one on; and the one of a number, or null. */
unsigned link_end_count(const link_end *e);
const link_end *link_end_at(const link_end *e, unsigned number);

/* Whether two ends can be the same file. */
int link_ends_agree(const link_end *a, const link_end *b);

/* Finds out what can be known of the texts: from that of the base (null: not at hand), or from what the link holds. */
int link_find_texts(file_link *l, const char *base_text, fault *f);

/* The link from the base of `a` to the end of `b`, which begins where `a` ends. Where it takes the text of the base
 * the message says so. */
int link_join(file_link *l, file_link *a, file_link *b, fault *f);

/* The link back. */
int link_turn(file_link *l, file_link *a, fault *f);

void link_free(file_link *l);

#endif
