/* check.h - decodes objects of a store, and compares them with what was stored.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_CHECK_H
#define TOOL_CHECK_H

#include "store.h"

/* Marks of an object, in store_object.used. OBJECT_ASKED stays on a delta if its base is damaged or unread. */
enum { OBJECT_IGNORED, OBJECT_ASKED, OBJECT_WHOLE, OBJECT_DAMAGED, OBJECT_UNREAD };

/* Checks the objects that are marked OBJECT_ASKED. The base of a delta must be marked, too. Each object is decoded once. Calls `tell` for
 * each that is damaged or cannot be read. */
int store_check(store *s, codec *c, void (*tell)(void *context, store_object *o, const fault *why), void *context, fault *f);

/* Whether a file has the content of an object. */
int store_check_content(const char *path, const store_object *o, fault *f);

#endif
