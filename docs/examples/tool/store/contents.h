/* contents.h - reads objects of a store, and checks their contents against the manifest.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CONTENTS_H
#define TOOL_CONTENTS_H

#include "store.h"

#include "../files/base.h"

/* Restore a tensor object as a base, and fail if it is not what the manifest states. `before` is the restored base of a delta, or
 * null; store_restore restores that, too. Call base_close after failures, too. */
int store_restore_one(const store *s, codec *c, const store_object *x, const base *before, base *b, fault *f);
int store_restore(const store *s, codec *c, const store_object *x, base *b, fault *f);

/* Returns the header text of a tensor object. Reads only the headers of its chain. The caller frees it. Null with the fault
 * set. */
char *store_text(const store *s, codec *c, const store_object *x, size_t *size, fault *f);

/* Writes the content of an object, whose file is open as `in`, to an open output. */
int store_write(const store *s, codec *c, const store_object *x, input *in, output *out, fault *f);

/* Reads a copy before it is mapped. A read error is then a failure; in a mapped file it would end the program. */
int store_read_through(const char *path, fault *f);

/* Returns the content id of a file. It must be mapped, unless it is empty. */
uint64_t store_id(const input *in);

/* Marks of an object, in store_object.used. OBJECT_ASKED stays on a delta if its base is damaged or unread. */
enum { OBJECT_IGNORED, OBJECT_ASKED, OBJECT_WHOLE, OBJECT_DAMAGED, OBJECT_UNREAD };

/* Checks the objects that are marked OBJECT_ASKED. The base of a delta must be marked, too. Each object is decoded once. Calls
 * `tell` for each that is damaged or cannot be read. */
int store_check(store *s, codec *c, void (*tell)(void *context, store_object *o, const fault *why), void *context, fault *f);

/* Fails if a file does not have the content of an object. */
int store_check_content(const char *path, const store_object *o, fault *f);

#endif
