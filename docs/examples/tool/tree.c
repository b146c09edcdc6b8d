/* tree.c - the trees at the end of a .bsnap file, by which one tensor of it is found: docs/FORMAT.md, section 8.3.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "tree.h"

#include "bytes.h"
#include "record.h"
#include "safetensors.h"

#include <stdlib.h>
#include <string.h>

enum { FAN = 256, NODE_ENTRY = 16 };

uint64_t tree_size(uint64_t count, unsigned entry)
{
    uint64_t size = count * entry;
    for (; count > FAN; size += count * NODE_ENTRY) count = (count - 1) / FAN + 1;
    return size;
}

/* The check of a page or node, which is of this file. */
static uint64_t check_of(const uint8_t *p, size_t size, uint64_t file)
{
    uint8_t bytes[8 + FAN * NODE_ENTRY];
    store64(bytes, file);
    memcpy(bytes + 8, p, size);
    return bitsnap_hash(bytes, 8 + size);
}

uint64_t tree_write(uint8_t *to, const uint8_t *entries, uint64_t count, unsigned entry, uint64_t file)
{
    if (!count) return 0;
    memcpy(to, entries, (size_t)count * entry);
    for (;;) {
        const uint8_t *p = to;
        uint64_t left = count;
        to += (size_t)count * entry;
        if (count <= FAN) return check_of(p, (size_t)count * entry, file);
        for (count = 0; left; count++) {
            const size_t n = left < FAN ? (size_t)left : FAN;
            store64(to + NODE_ENTRY * count, bytes_load(p, entry == RECORD_ENTRY ? 6 : 8));
            store64(to + NODE_ENTRY * count + 8, check_of(p, n * entry, file));
            p += n * entry;
            left -= n;
        }
        entry = NODE_ENTRY;
    }
}

static int by_number(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;
    return (a > b) - (a < b);
}

int tree_names(uint8_t **entries, size_t *count, const char *text, size_t size, fault *f)
{
    fault ignored;
    safetensors s;
    uint64_t *names;
    size_t i;
    *entries = NULL;
    *count = 0;
    if (safetensors_names(&s, text, size, &ignored)) {
        safetensors_free(&s);
        return 0;
    }
    names = (uint64_t *)malloc(s.count * sizeof *names + 1);
    if (names) {
        for (i = 0; i < s.count; i++)
            names[i] = bitsnap_hash(s.tensors[i].name.at, s.tensors[i].name.size) << 32 | s.tensors[i].place;
        qsort(names, s.count, sizeof *names, by_number);
        for (i = 0; i < s.count; i++) { /* little-endian, in place */
            const uint64_t x = names[i];
            store64((uint8_t *)names + 8 * i, x);
        }
        *entries = (uint8_t *)names;
        *count = s.count;
    }
    safetensors_free(&s);
    return names ? 0 : fault_memory(f);
}
