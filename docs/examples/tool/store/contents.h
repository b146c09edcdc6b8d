/* contents.h - objects of a store: reads what they hold, and checks it against the manifest.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CONTENTS_H
#define TOOL_CONTENTS_H

#include "store.h"

#include "../files/base.h"

/* What a tensor object restores to, in memory as a base is, and whether it is what the manifest says; `before`: what it is a delta
 * to, or null. The second restores that, too. base_close is to be called after failures, too. */
int store_restore_one(const store *s, codec *c, const store_object *x, const base *before, base *b, fault *f);
int store_restore(const store *s, codec *c, const store_object *x, base *b, fault *f);

/* The header text of what a tensor object holds, by the headers of its chain alone: to be freed; null with the fault set. */
char *store_text(const store *s, codec *c, const store_object *x, size_t *size, fault *f);

/* Writes the content of an object, whose file is open, to an output that is. */
int store_write(const store *s, codec *c, const store_object *x, input *in, output *out, fault *f);

/* Reads a copy before it is mapped, so that what the disk cannot read is an error: of a file that is mapped it ends the program. */
int store_read_through(const char *path, fault *f);

/* The content id of a file, which is mapped if it has bytes. */
uint64_t store_id(const input *in);

/* Marks of an object, in store_object.used. OBJECT_ASKED stays on a delta if its base is damaged or unread. */
enum { OBJECT_IGNORED, OBJECT_ASKED, OBJECT_WHOLE, OBJECT_DAMAGED, OBJECT_UNREAD };

/* Checks the objects that are marked OBJECT_ASKED. The base of a delta must be marked, too. Each object is decoded once. Calls `tell` for
 * each that is damaged or cannot be read. */
int store_check(store *s, codec *c, void (*tell)(void *context, store_object *o, const fault *why), void *context, fault *f);

/* Whether a file has the content of an object. */
int store_check_content(const char *path, const store_object *o, fault *f);

#endif
