/* vectors.h - the bytes of docs/vectors. MIT licence, see bitsnap.h. */
#ifndef VECTORS_H
#define VECTORS_H

#include <stdint.h>
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

#endif
