/* vectors.h - reads docs/vectors. MIT licence, see bitsnap.h. */
#ifndef VECTORS_H
#define VECTORS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds the bytes of a line to `data`: "00 7C x3/2" are the bytes 00 7C, and the last two of all three times in all. Returns 0, or 1
 * where they do not fit. */
static inline int vector_bytes(uint8_t *data, size_t *size, size_t room, char *line)
{
    char *token, *unit;
    for (token = strtok(line, " \n"); token && token[0] != '#'; token = strtok(NULL, " \n")) {
        size_t width = 1, i, more = 1;
        if (token[0] == 'x') {
            if ((unit = strchr(token, '/')) != NULL) width = (size_t)atoi(unit + 1);
            more = ((size_t)atoi(token + 1) - 1) * width;
        }
        if (more > room - *size || width > *size + (token[0] != 'x')) return 1;
        if (token[0] == 'x')
            for (i = 0; i < more; i++, ++*size) data[*size] = data[*size - width];
        else data[(*size)++] = (uint8_t)strtoul(token, NULL, 16);
    }
    return 0;
}

enum { VECTOR_FRAME, VECTOR_ELEMENTS, VECTOR_BASE, VECTOR_BYTES, VECTOR_XXH3, VECTOR_OTHER, VECTOR_PARTS };

/* One vector. rule: the condition that rejects it, 0 if it is valid. dtype: that of its base. */
typedef struct vector_case {
    char name[100];
    unsigned rule, dtype;
    uint8_t data[VECTOR_PARTS][1 << 23];
    size_t size[VECTOR_PARTS];
    int has[VECTOR_PARTS];
} vector_case;

/* Calls f(v) for each vector of a file. Returns 0, or 1 at a line that cannot be read. */
static inline int vectors_of_file(vector_case *v, FILE *file, void (*f)(vector_case *))
{
    static const char *const titles[] = { "frame", "elements", "base", "bytes", "xxh3" };
    unsigned part = VECTOR_OTHER;
    char line[1 << 12];
    memset(v->has, 0, sizeof v->has);
    while (fgets(line, sizeof line, file)) {
        char rule[20] = "", title[20] = "";
        if (line[0] == '=') {
            f(v);
            memset(v->has, 0, sizeof v->has);
            if (sscanf(line, "== %99s rejected %19s", v->name, rule) < 1) return 1;
            v->rule = rule[0] == 'R' ? (unsigned)atoi(rule + 1) : 0;
        } else if (line[0] == ' ') {
            if (vector_bytes(v->data[part], &v->size[part], sizeof v->data[part], line)) return 1;
        } else if (line[0] != '#' && sscanf(line, "%19s %u", title, &v->dtype) >= 1) {
            for (part = 0; part < VECTOR_OTHER && strcmp(title, titles[part]); part++) {}
            v->has[part] = 1;
            v->size[part] = 0;
        }
    }
    f(v);
    return 0;
}

/* Calls f(v) for each vector of docs/vectors, which is found from the project's folder. Returns the number of files; 0 if one cannot be
 * read. */
static inline unsigned vectors_each(vector_case *v, void (*f)(vector_case *))
{
    DIR *d = opendir("docs/vectors");
    const struct dirent *e;
    unsigned files = 0;
    int bad = 0;
    while (d && !bad && (e = readdir(d)) != NULL)
        if (strstr(e->d_name, ".txt")) {
            char path[400];
            FILE *file;
            snprintf(path, sizeof path, "docs/vectors/%.300s", e->d_name);
            file = fopen(path, "r");
            bad = !file || vectors_of_file(v, file, f);
            if (file) fclose(file);
            files++;
        }
    if (d) closedir(d);
    return bad ? 0 : files;
}

#endif
