/* corpus.h - reads the corpus: the frozen frames and files of docs/vectors and tests/format/corpus.txt. docs/vectors/README.md has the
 * grammar. Include bitsnap.h before. MIT licence, see bitsnap.h. */
#ifndef CORPUS_H
#define CORPUS_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CORPUS_FRAME, CORPUS_FILE, CORPUS_ELEMENTS, CORPUS_SOURCE, CORPUS_XXH3, CORPUS_DAMAGED, CORPUS_BYTES, CORPUS_BASE,
       CORPUS_BASES = 2, CORPUS_PARTS = CORPUS_BASE + CORPUS_BASES };

/* One entry. Readers may change its bytes until they return. */
typedef struct corpus_entry {
    char name[100];
    char kind;      /* of the condition that rejects it: R or S, and 0 if it is valid */
    unsigned rule;  /* its number */
    unsigned dtype; /* dtype of the base of a frame */
    uint8_t data[CORPUS_PARTS][5 << 20];
    size_t size[CORPUS_PARTS];
    int has[CORPUS_PARTS];
} corpus_entry;

/* XXH3 of the elements of a valid frame. */
static inline uint64_t corpus_hash(const corpus_entry *e)
{
    uint64_t hash = 0;
    int i;
    if (e->has[CORPUS_ELEMENTS]) return bitsnap_hash(e->data[CORPUS_ELEMENTS], e->size[CORPUS_ELEMENTS]);
    for (i = 8; i--;) hash = hash << 8 | e->data[CORPUS_XXH3][i];
    return hash;
}

/* The base of a frame. Its data are null if the entry has none. */
static inline bitsnap_base corpus_base(const corpus_entry *e)
{
    bitsnap_base base;
    memset(&base, 0, sizeof base);
    if (!e->has[CORPUS_BASE] || !bitsnap_width((bitsnap_dtype)e->dtype)) return base;
    base.dtype = (bitsnap_dtype)e->dtype;
    base.data = e->data[CORPUS_BASE];
    base.count = e->size[CORPUS_BASE] / bitsnap_width(base.dtype);
    return base;
}

/* Appends the bytes of a token. Returns 0, or 1 if it has other characters or does not fit. */
static inline int corpus_append(uint8_t *data, size_t *size, size_t capacity, char *token)
{
    char *end = token, digits[3] = "";
    if (token[0] == 'x') {
        size_t times = strtoul(token + 1, &end, 10), period = *end == '/' ? strtoul(end + 1, &end, 10) : 1;
        if (*end || !times || !period || period > *size || times - 1 > (capacity - *size) / period) return 1;
        for (times = (times - 1) * period; times; times--, ++*size) data[*size] = data[*size - period];
        return 0;
    }
    for (; *token; token += 2) {
        memcpy(digits, token, 2);
        if (*size == capacity || strspn(digits, "0123456789ABCDEF") != 2) return 1;
        data[(*size)++] = (uint8_t)strtoul(digits, &end, 16);
    }
    return 0;
}

/* Reads one token; *part is the part that bytes are appended to. Returns 0, or 1 if it cannot be read. */
static inline int corpus_token(corpus_entry *e, unsigned *part, char *token)
{
    static const char *const titles[CORPUS_PARTS] = { "frame", "file", "elements", "source", "xxh3", "damaged", "bytes",
                                                      "base", "base" };
    const size_t letters = strcspn(token, "/");
    unsigned i;
    for (i = 0; i < CORPUS_PARTS; i++)
        if (strlen(titles[i]) == letters && !memcmp(token, titles[i], letters) && !e->has[i]) {
            if (token[letters]) e->dtype = (unsigned)atoi(token + letters + 1);
            e->has[*part = i] = 1;
            return 0;
        }
    return *part == CORPUS_PARTS || corpus_append(e->data[*part], &e->size[*part], sizeof e->data[0], token);
}

/* The next token from *at, which ends with 0 then; null at the end. */
static inline char *corpus_next(char **at)
{
    char *token = *at + strspn(*at, " \n");
    *at = token + strcspn(token, " \n");
    if (**at) *(*at)++ = 0;
    return *token ? token : NULL;
}

/* The text of a file without comments, for free(); null if it cannot be read. */
static inline char *corpus_text(const char *path)
{
    FILE *file = fopen(path, "rb");
    long size = file && !fseek(file, 0, SEEK_END) ? ftell(file) : -1;
    char *text = size < 0 ? NULL : (char *)malloc((size_t)size + 1), *p;
    if (text) {
        rewind(file);
        text[fread(text, 1, (size_t)size, file)] = 0;
        for (p = text; (p = strchr(p, '#')) != NULL;)
            while (*p && *p != '\n') *p++ = ' ';
    }
    if (file) (void)fclose(file);
    return text;
}

/* Calls f for each entry of a file. Returns the number of entries, 0 if one cannot be read. */
static inline unsigned corpus_of_file(corpus_entry *e, const char *path, void (*f)(corpus_entry *))
{
    char *text = corpus_text(path), *at = text, *token = text ? corpus_next(&at) : NULL, *name;
    unsigned entries = 0, part;
    int bad = 0;
    while (token && !bad) {
        bad = strcmp(token, "==") || (name = corpus_next(&at)) == NULL || strlen(name) >= sizeof e->name;
        if (bad) break;
        strcpy(e->name, name);
        memset(e->has, 0, sizeof e->has);
        memset(e->size, 0, sizeof e->size);
        e->kind = 0, e->rule = e->dtype = 0, part = CORPUS_PARTS;
        while ((token = corpus_next(&at)) != NULL && strcmp(token, "==") && !bad)
            if (!strcmp(token, "rejected") && (token = corpus_next(&at)) != NULL) e->kind = token[0], e->rule = (unsigned)atoi(token + 1);
            else bad = corpus_token(e, &part, token);
        if (!bad) f(e), entries++;
    }
    free(text);
    return bad ? 0 : entries;
}

/* Calls f for each entry of the corpus, which is found from the project's folder. Returns the number of entries, 0 if a file or an entry
 * cannot be read; then e->name is that of the last one. */
static inline unsigned corpus_each(corpus_entry *e, void (*f)(corpus_entry *))
{
    DIR *d = opendir("docs/vectors");
    const struct dirent *file;
    unsigned all = corpus_of_file(e, "tests/format/corpus.txt", f), some = all;
    while (d && some && (file = readdir(d)) != NULL)
        if (strstr(file->d_name, ".txt")) {
            char path[400];
            snprintf(path, sizeof path, "docs/vectors/%.300s", file->d_name);
            all += some = corpus_of_file(e, path, f);
        }
    if (d) (void)closedir(d);
    return d && some ? all : 0;
}

#endif
