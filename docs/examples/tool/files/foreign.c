/* foreign.c - recognizes files of other kinds by their first bytes, and says what to do with them.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h. */
#include "foreign.h"

#include "bytes.h"
#include "container.h"
#include "../console/utf8.h"

#include <string.h>

#define LOOK ((size_t)4096) /* first bytes that are looked at */

#define FROM_TORCH "python -m bitsnap pack FILE packs it as it is (pip install bitsnap); or convert it in Python: d = torch.load(\"FILE\", weights_only=True), or the part of that which has the tensors by their names, as " \
    "d[\"model\"]; safetensors.torch.save_file({k: v.contiguous().clone() for k, v in d.items() if torch.is_tensor(v)}, \"FILE.safetensors\")"
#define DOWNLOAD "download the file itself, with a login or token where it takes one"

enum kind {
    MODEL,  /* tensors in another format, not made by bitsnap */
    PACKED, /* an archive or compressed file, to be unpacked first */
    STRAY,  /* no tensors */
    INDEX   /* the names of files with tensors */
};

typedef struct signature {
    unsigned at, size; /* position and number of the bytes to compare */
    const char *bytes;
    enum kind kind;
    const char *what, *advice;
} signature;

static const signature pytorch_zip = { 0, 4, "PK\3\4", MODEL, "a PyTorch file (a zip archive of torch.save)", FROM_TORCH };
static const signature numpy_zip = { 0, 4, "PK\3\4", MODEL, "a NumPy archive (.npz)",
    "convert it in Python: safetensors.numpy.save_file(dict(numpy.load(\"FILE\")), \"FILE.safetensors\")" };

static const signature signatures[] = {
    { 0, 14, "\x80\x02\x8A\x0A\x6C\xFC\x9C\x46\xF9\x20\x6A\xA8\x50\x19", MODEL, "a PyTorch file (a pickle of torch.save)", FROM_TORCH },
    { 0, 4, "GGUF", MODEL, "a GGUF file", "give the .safetensors files that it was made from" },
    { 0, 6, "\x93NUMPY", MODEL, "a NumPy array (.npy)",
      "convert it in Python: safetensors.numpy.save_file({\"name\": numpy.load(\"FILE\")}, \"FILE.safetensors\")" },
    { 0, 8, "\x89HDF\r\n\x1A\n", MODEL, "an HDF5 file",
      "convert it in Python: read its arrays with h5py, write them with safetensors.numpy.save_file" },
    { 4, 4, "TFL3", MODEL, "a TensorFlow Lite model", "give the .safetensors files that it was made from" },
    { 0, 8, "\xB5SNPFILE", STRAY, "a .bsnap file", "bitsnap decompress restores what it holds" },
    { 0, 5, "\xB5SNP\0", STRAY, "a bare bitsnap frame", "bitsnap_decode of bitsnap.h restores it" },
    { 0, 3, "\x1F\x8B\x08", PACKED, "a gzip file", "unpack it first: gunzip FILE" },
    { 0, 4, "\x28\xB5\x2F\xFD", PACKED, "a zstd file", "unpack it first: zstd -d FILE" },
    { 0, 6, "\xFD" "7zXZ\0", PACKED, "an xz file", "unpack it first: unxz FILE" },
    { 0, 4, "\x04\x22\x4D\x18", PACKED, "an lz4 file", "unpack it first: lz4 -d FILE" },
    { 0, 4, "\x02\x21\x4C\x18", PACKED, "an lz4 file", "unpack it first: lz4 -d FILE" },
    { 0, 3, "BZh", PACKED, "a bzip2 file", "unpack it first: bunzip2 FILE" },
    { 0, 6, "7z\xBC\xAF\x27\x1C", PACKED, "a 7z archive", "unpack it first, and give the files in it: 7z x FILE" },
    { 0, 4, "PK\3\4", PACKED, "a zip archive", "unpack it first, and give the files in it: unzip FILE" },
    { 0, 4, "PK\5\6", PACKED, "an empty zip archive", "take another copy of it" },
    { 257, 5, "ustar", PACKED, "a tar archive", "unpack it first, and give the files in it: tar -xf FILE" },
    { 0, 34, "version https://git-lfs.github.com", STRAY, "a Git LFS pointer", "git lfs pull fetches the file" },
    { 0, 15, "/annex/objects/", STRAY, "a git-annex pointer", "git annex get fetches the file" }
};

/* Returns the first position of the word, or null. */
static const uint8_t *find(const uint8_t *p, const uint8_t *end, const char *word)
{
    const size_t size = strlen(word);
    for (; (size_t)(end - p) >= size; p++)
        if (!memcmp(p, word, size)) return p;
    return NULL;
}

/* Returns 1 if text begins with a word, in letters of any case. `word` has small ones. */
static int begins(const uint8_t *p, const uint8_t *end, const char *word)
{
    for (; *word; p++, word++)
        if (p == end || (*p >= 'A' && *p <= 'Z' ? *p + 32 : *p) != *word) return 0;
    return 1;
}

/* By a table of bytes. */
static const signature *by_bytes(const uint8_t *p, const uint8_t *end)
{
    const size_t size = (size_t)(end - p);
    size_t i;
    for (i = 0; i < sizeof signatures / sizeof *signatures; i++) {
        const signature *s = &signatures[i];
        if (size < s->at + s->size || memcmp(p + s->at, s->bytes, s->size)) continue;
        if (!memcmp(s->bytes, "PK\3\4", 4) && size > 30) { /* an archive is what its first file is called */
            const size_t name = bytes_load(p + 26, 2);
            const uint8_t *name_end = name < size - 30 ? p + 30 + name : end;
            if (find(p + 30, name_end, "/data.pkl")) return &pytorch_zip;
            if (name_end - p >= 34 && !memcmp(name_end - 4, ".npy", 4)) return &numpy_zip;
        }
        return s;
    }
    return NULL;
}

/* By less: a byte or two, and what text begins with. */
static const signature *by_look(const uint8_t *p, const uint8_t *end)
{
    static const signature
        empty = { 0, 0, "", STRAY, "empty", "writing or downloading it did not finish: take another copy of it" },
        pickle = { 0, 0, "", MODEL, "a Python pickle", "load it in Python, and write its tensors with safetensors.torch.save_file" },
        onnx = { 0, 0, "", MODEL, "an ONNX model",
                 "convert it in Python: onnx.numpy_helper.to_array of its initializers, and safetensors.numpy.save_file" },
        html = { 0, 0, "", STRAY, "an HTML page", "it may say why the file was not sent: " DOWNLOAD },
        xml = { 0, 0, "", STRAY, "an XML text", "it may say why the file was not sent: " DOWNLOAD },
        index = { 0, 0, "", INDEX, "the index of a model in several files", "give the .safetensors files that it names" },
        json = { 0, 0, "", STRAY, "a JSON text", "give the .safetensors file that it belongs to" },
        text = { 0, 0, "", STRAY, "a text", "it may say why the file was not sent: " DOWNLOAD },
        zeros = { 0, 0, "", STRAY, "nothing but zeros at its start", "writing or downloading it did not finish: take another copy of it" };
    const uint8_t *at = p;
    size_t n = 1;
    if (p == end) return &empty;
    if (end - p > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5) return &pickle;
    if (end - p > 8 && p[0] == 8 && p[1] < 32 && p[2] == 0x12 && p[3] && p[4] >= ' ' && p[4] < 127) return &onnx;
    if (begins(at, end, "\xEF\xBB\xBF")) at += 3;
    while (at < end && (*at == ' ' || (*at >= '\t' && *at <= '\r'))) at++;
    if (begins(at, end, "<?xml")) return find(at, end, "<html") ? &html : &xml;
    if (begins(at, end, "<!doctype html") || begins(at, end, "<html") || begins(at, end, "<head")) return &html;
    if (at < end && (*at == '{' || *at == '[')) return find(at, end, "\"weight_map\"") ? &index : &json;
    for (at = p; at < end && !*at; at++) continue;
    if (at == end && end - p >= 16) return &zeros;
    for (at = p; at < end && (n = bitsnap_utf8_size(at, end)) != 0 && (*at >= ' ' ? *at != 127 : *at >= '\t' && *at <= '\r'); at += n) continue;
    return at == end || (!n && (size_t)(end - p) == LOOK && end - at < 4) ? &text : NULL; /* the last character may be cut */
}

static int is_safetensors(const uint8_t *p, const uint8_t *end)
{
    return end - p > 9 && load64(p) <= BITSNAP_TEXT_MAX && p[8] == '{' && (p[9] == '"' || p[9] == '}' || p[9] <= ' ');
}

int foreign_is_plain(const input *in) { return is_safetensors(input_bytes(in), input_bytes(in) + input_available(in)); }

int foreign_refuse(input *in, int wanted, fault *f)
{
    static const char *const names[] = { "not a .safetensors file", "not a .bsnap file" };
    const uint8_t *p, *end;
    const signature *s;
    if (input_fill(in, LOOK, f)) return 1;
    p = input_bytes(in);
    end = p + input_available(in);
    if (end - p > (ptrdiff_t)LOOK) end = p + LOOK;
    if (is_safetensors(p, end)) { /* if one is wanted, it is damaged; the caller reports that */
        if (wanted == WANT_SAFETENSORS) return 0;
        return fault_set(f, "is a .safetensors file, not a .bsnap file: it is not compressed; bitsnap compress makes a .bsnap file of it");
    }
    s = by_bytes(p, end);
    if (!s) s = by_look(p, end);
    if (!s) return 0;
    if (s->kind == MODEL && wanted == WANT_BSNAP)
        return fault_set(f, "is %s, %s; only the output of bitsnap compress can be restored and inspected", s->what, names[wanted]);
    (void)fault_set(f, "is %s, %s; %s", s->what, names[wanted], s->advice);
    if (s->kind == INDEX && (end = find(p, end, ".safetensors\"")) != NULL) {
        const uint8_t *name = end;
        char such[160];
        while (name > p && name[-1] != '"') name--;
        (void)snprintf(such, sizeof such, ", such as %.*s.safetensors", (int)(end - name), (const char *)name);
        (void)fault_add(f, such);
    }
    return 1;
}

const char *foreign_name(input *in, fault *f)
{
    const uint8_t *p, *end;
    const signature *s;
    if (input_fill(in, LOOK, f)) return NULL;
    p = input_bytes(in);
    end = p + input_available(in);
    if (is_safetensors(p, end)) return "a .safetensors file";
    s = by_bytes(p, end);
    return s ? s->what : NULL;
}
