/* walk.h - lists what is in a folder.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#ifndef TOOL_WALK_H
#define TOOL_WALK_H

#include "place.h"

#include <stdint.h>

#define GLOBS_MAX 64

/* Which files of a folder to take. */
typedef struct selection {
    const char *include[GLOBS_MAX], *exclude[GLOBS_MAX];
    size_t includes, excludes;
    int follow; /* 1: a link to a file counts as the file */
} selection;

/* Return 1 if a file, or a folder that holds it, is excluded; if a file is included. `name` is relative to the folder walked. */
int selection_excludes(const selection *s, const char *name);
int selection_includes(const selection *s, const char *name);

typedef enum found_kind { FOUND_FILE, FOUND_DIRECTORY, FOUND_LINK, FOUND_OTHER } found_kind;

typedef struct walk_entry {
    char *path;        /* to open it */
    const char *name;  /* relative to the folder; "" for the folder itself */
    found_kind kind;
    char *text;        /* of a link: its text */
    int leads_out;     /* of a link: 1 if its target is missing or outside the folder, or the text is absolute */
    mode_t mode;
    uid_t owner;
    gid_t group;
    file_stamp stamp;
} walk_entry;

typedef struct walk {
    walk_entry *at;
    size_t count, capacity;
} walk;

/* Lists the folder and everything in it that is selected, each entry after its folder, sorted by name. Does not follow links to
 * folders, and skips unfinished outputs of runs. If `s` is null, lists everything, and the folder itself may not be a link. */
int walk_folder(walk *w, const char *path, const selection *s, fault *f);
void walk_free(walk *w);

/* Returns 1 if a name of the command line is that of a folder, or of a link to one. */
int is_folder(const char *path);

/* Return 1 if the last part of a name ends with `suffix` and is longer; if an entry is a .safetensors or .bsnap file. */
int name_ends(const char *name, const char *suffix);
int walk_is_tensor_file(const walk_entry *x);

/* Fails if the names differ, or an entry was changed or replaced. */
int walk_check_same(const walk *before, const walk *now, fault *f);

/* Removes the listed entries. Fails at a folder that holds other entries, which stay. */
int walk_remove(const walk *w, fault *f);

#endif
