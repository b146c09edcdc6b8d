/* Lists that commands on folders read: the names of --files-from, and the list of files in an unfinished output. */
#include "fuzz.h"

#include "../docs/examples/tool/console/names.h"
#include "../docs/examples/tool/system/directory.h"

/* The input is the names with their separators. */
static void read_names(const uint8_t *data, size_t size, int end)
{
    char path[64];
    const char *at = (const char *)data;
    name_list n;
    fault f;
    size_t i;
    FILE *file = tmpfile();
    REQUIRE(file && fwrite(data, 1, size, file) == size && !fflush(file));
    snprintf(path, sizeof path, "/dev/fd/%d", fileno(file));
    rewind(file);
    memset(&n, 0, sizeof n);
    memset(&f, 0, sizeof f);
    if (names_read(&n, path, end, &f)) REQUIRE(f.text[0] && end && memchr(data, 0, size));
    else REQUIRE(!end || !size || !memchr(data, 0, size));
    for (i = 0; i < n.count; i++) {
        const char *name = strcmp(n.at[i], "./-") ? n.at[i] : "-";
        while (*at == end) at++;
        if (name != n.at[i] && !strncmp(at, "./-", 3)) name = n.at[i];
        REQUIRE(*name && !n.below[i] && !strncmp(at, name, strlen(name)));
        at += strlen(name);
        REQUIRE(at <= (const char *)data + size);
    }
    names_free(&n);
    fclose(file);
}

/* A list may be that of the directory 1 2, which is made "x". */
static void read_list(const char *text, size_t size)
{
    directory d;
    fault f;
    int mine;
    size_t i;
    memset(&d, 0, sizeof d);
    memset(&f, 0, sizeof f);
    d.own.device = 1;
    d.own.inode = 2;
    d.how = (char *)"x";
    REQUIRE(!directory_take_list(&d, text, size, &mine, &f));
    REQUIRE(mine || !d.count);
    for (i = 0; i < d.count; i++) {
        REQUIRE(!i || strcmp(d.files[i - 1].name, d.files[i].name) <= 0);
        REQUIRE(strlen(d.files[i].name) < size && !d.files[i].wanted);
    }
    while (d.count) free(d.files[--d.count].name);
    free(d.files);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *copy;
    if (!size) return 0;
    fuzz_drop(0);
    copy = fuzz_room(size); /* what follows the first byte, and a byte 0 */
    memcpy(copy, data + 1, size - 1);
    copy[size - 1] = 0;
    if (data[0] % 3 == 2) read_list((const char *)copy, size - 1);
    else read_names(copy, size - 1, data[0] % 3 ? '\n' : 0);
    return 0;
}

#define STAMP(inode, size) "1 " inode " " size " 1767225600.5 1767225600.000000007 "
#define LIST(...) { __VA_ARGS__, sizeof __VA_ARGS__ }

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const struct { const char *text; size_t size; } texts[] = {
        LIST("0a.safetensors\0folder/b\0-"), LIST("1a.safetensors\n\nfolder/\xC3\xA4 b\n-\n./-\n"),
        LIST("2" STAMP("2", "4096") STAMP("0", "0") "x"), LIST("2" STAMP("3", "4096") STAMP("2", "7") "x\0" STAMP("9", "1") STAMP("8", "5") "a/b"),
        LIST("2" STAMP("2", "4096") STAMP("0", "0") "x\0" STAMP("9", "1") STAMP("8", "5") "b\0" STAMP("9", "1") STAMP("8", "5") "a\0" STAMP("9", "1")),
        LIST("2" STAMP("2", "4096") STAMP("0", "0") "y\0" STAMP("9", "1") STAMP("8", "5") "b"), LIST("2" STAMP("7", "4096") STAMP("0", "0") "x\0")
    };
    if (number >= sizeof texts / sizeof *texts) return 0;
    REQUIRE(texts[number].size <= room);
    memcpy(to, texts[number].text, texts[number].size);
    return texts[number].size;
}
