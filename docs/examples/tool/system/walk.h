/* walk.h - what is in a folder.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_WALK_H
#define TOOL_WALK_H

#include "place.h"

#include <stdint.h>

#define GLOBS_MAX 64

/* What is wanted of it. */
typedef struct selection {
    const char *include[GLOBS_MAX], *exclude[GLOBS_MAX];
    size_t includes, excludes;
    int follow; /* links to files stand for these */
} selection;

/* Whether a file of this name, from the folder on, is left out, or a folder that it is in; and whether it is one to be taken. */
int selection_excludes(const selection *s, const char *name);
int selection_includes(const selection *s, const char *name);

typedef enum found_kind { FOUND_FILE, FOUND_DIRECTORY, FOUND_LINK, FOUND_OTHER } found_kind;

typedef struct walk_entry {
    char *path;        /* as it is opened */
    const char *name;  /* the same, from the folder on; of the folder itself "" */
    found_kind kind;
    char *text;        /* of a link: what it says */
    int leads_out;     /* of a link: not to something in the folder */
    mode_t mode;
    uid_t owner;
    gid_t group;
    file_stamp stamp;
} walk_entry;

typedef struct walk {
    walk_entry *at;
    size_t count, capacity;
} walk;

/* The folder, and everything in it and its folders that is selected, each behind the folder that it is in, by name; no folder is
 * left through a link, and what runs have not finished there is passed over. Without a selection everything is found, and the
 * folder itself may not be a link. */
int walk_folder(walk *w, const char *path, const selection *s, fault *f);
void walk_free(walk *w);

/* Whether a name of the command line is that of a folder, or of a link to one. */
int is_folder(const char *path);

/* Whether a name ends so, with something before it in its last part; and whether an entry is a file of tensors. */
int name_ends(const char *name, const char *suffix);
int walk_is_tensor_file(const walk_entry *x);

/* Whether both have the same names, and each is as it was; else the fault says what is not. */
int walk_check_same(const walk *before, const walk *now, fault *f);

/* Removes all of it; what lies in the folders besides stays, and they too. */
int walk_remove(const walk *w, fault *f);

#endif
