/* index.c - parses the index of a model in several files, such as model.safetensors.index.json. It names the file of each tensor.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "index.h"

#include "../console/json.h"

#include <stdlib.h>
#include <string.h>

typedef struct texts {
    char tensor[JSON_TEXT_MOST + 1], file[JSON_TEXT_MOST + 1];
} texts;

static int read_map(json_reader *r, texts *t, int (*each)(void *context, const char *tensor, const char *file), void *context)
{
    if (json_expect(r, '{')) return 1;
    if (json_accept(r, '}')) return 0;
    do
        if (json_read_text(r, t->tensor) || json_expect(r, ':') || json_read_text(r, t->file) || each(context, t->tensor, t->file)) return 1;
    while (json_accept(r, ','));
    return json_expect(r, '}');
}

int index_parse(const char *text, size_t size, int (*each)(void *context, const char *tensor, const char *file), void *context, fault *f)
{
    json_reader r = { text, text, text + size, "index of a model", f };
    texts *t = (texts *)malloc(sizeof *t);
    int failed = t ? json_expect(&r, '{') : fault_memory(f);
    if (!failed && !json_accept(&r, '}')) {
        do failed = json_read_text(&r, t->tensor) || json_expect(&r, ':') ||
                    (strcmp(t->tensor, "weight_map") ? json_pass(&r) : read_map(&r, t, each, context));
        while (!failed && json_accept(&r, ','));
        failed = failed || json_expect(&r, '}');
    }
    free(t);
    return failed || json_read_end(&r);
}
