/* The manifest of a store of snapshots. Paths of an accepted one stay inside the store, and printing it gives the same text. */
#include "fuzz.h"

#include "../docs/examples/tool/store/manifest.h"

static void check_step(const manifest *m, const store_step *s)
{
    size_t i;
    for (i = 0; i < s->count; i++) {
        const store_entry *e = &s->entries[i];
        const char *slash;
        REQUIRE(manifest_path_is_good(e->path) && e->path[0] != '/' && !strstr(e->path, "//") && strncmp(e->path, "../", 3) && !strstr(e->path, "/../"));
        REQUIRE(!i || strcmp(e[-1].path, e->path) < 0);
        REQUIRE(e->mode <= 0777 && step_entry(s, e->path) == e);
        if (e->kind == ENTRY_FILE) REQUIRE(manifest_object(m, e->id));
        if (e->kind == ENTRY_LINK) REQUIRE(manifest_link_is_good(e->path, e->to) && e->to[0] != '/');
        slash = strrchr(e->path, '/');
        if (slash) { /* its parent is a folder, not a link */
            char *above = strdup(e->path);
            const store_entry *folder;
            REQUIRE(above);
            above[slash - e->path] = 0;
            folder = step_entry(s, above);
            REQUIRE(folder && folder->kind == ENTRY_FOLDER);
            free(above);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const store_object *chain[CHAIN_MAX];
    const char *copy;
    char *text, *again;
    size_t text_size, again_size, i;
    manifest m, back;
    fault f;
    fuzz_drop(0);
    memset(&f, 0, sizeof f);
    copy = (const char *)fuzz_copy(data, size);
    if (manifest_parse(&m, copy, size, &f)) {
        REQUIRE(f.text[0]); /* a failure says why */
        manifest_free(&m);
        return 0;
    }
    for (i = 0; i < m.object_count; i++) {
        const size_t n = manifest_chain(&m, &m.objects[i], chain);
        REQUIRE(n >= 1 && n <= CHAIN_MAX && !chain[0]->has_base && chain[n - 1] == &m.objects[i]);
    }
    for (i = 0; i < m.step_count; i++) {
        REQUIRE(!i || m.steps[i - 1].number < m.steps[i].number);
        check_step(&m, &m.steps[i]);
    }
    text = manifest_print(&m, &text_size);
    REQUIRE(text);
    REQUIRE(!manifest_parse(&back, text, text_size, &f));
    again = manifest_print(&back, &again_size);
    REQUIRE(again && text_size == again_size && !memcmp(text, again, text_size));
    for (i = 0; i < m.step_count; i++) manifest_mark(&m, &m.steps[i]);
    manifest_remove_unmarked(&m);
    while (m.step_count) manifest_remove_step(&m, m.step_count / 2);
    free(text);
    free(again);
    manifest_free(&m);
    manifest_free(&back);
    return 0;
}

#define OBJECTS "{\"id\":\"0000000000000001\",\"kind\":\"copy\",\"size\":1,\"bytes\":1}," \
    "{\"id\":\"00000000000000a2\",\"kind\":\"tensors\",\"size\":100,\"bytes\":50}," \
    "{\"id\":\"00000000000000a3\",\"kind\":\"tensors\",\"base\":\"00000000000000a2\",\"size\":100,\"bytes\":9}"
#define STEP(number, entries) "{\"step\":" number ",\"time\":\"2026-01-31T23:59:59Z\",\"mode\":\"755\",\"entries\":[" entries "]}"
#define STORE(objects, steps) "{\"bitsnap_store\":1,\n\"objects\":[" objects "],\n\"steps\":[" steps "]}\n"
#define CONFIG "{\"file\":\"config.json\",\"mode\":\"640\",\"id\":\"0000000000000001\"}"

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const char *const texts[] = {
        STORE("", ""), STORE(OBJECTS, STEP("0", "")), STORE(OBJECTS, STEP("1", CONFIG) "," STEP("9007199254740991", CONFIG)),
        STORE(OBJECTS, STEP("1", "{\"folder\":\"a\",\"mode\":\"700\"},{\"folder\":\"a/b\",\"mode\":\"000\"},{\"file\":\"a/b/c\",\"mode\":\"644\",\"id\":\"00000000000000a3\"}")),
        STORE(OBJECTS, STEP("1", "{\"folder\":\"a\",\"mode\":\"700\"},{\"link\":\"a/b\",\"to\":\"../config.json\"},{\"link\":\"b\",\"to\":\"a\"},{\"link\":\"a/up\",\"to\":\"..\"}," CONFIG)),
        STORE(OBJECTS, STEP("1", "{\"file\":\"\\u00e9\\ud83d\\ude00\\\"\\\\\\n\",\"mode\":\"644\",\"id\":\"00000000000000a2\"}")),
        STORE("{\"id\":\"00000000000000a3\",\"kind\":\"tensors\",\"base\":\"00000000000000a3\",\"size\":1,\"bytes\":9}", ""),
        STORE("", STEP("1", "{\"link\":\"a\",\"to\":\"../x\"}")), STORE("", STEP("1", "{\"folder\":\"..\",\"mode\":\"700\"}"))
    };
    const size_t size = number < sizeof texts / sizeof *texts ? strlen(texts[number]) : 0;
    REQUIRE(size <= room);
    if (size) memcpy(to, texts[number], size);
    return size;
}
