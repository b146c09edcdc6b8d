/* A hostile .bsnap file: reading it, looking through it without decoding, and the same after a repair of all its records, touch
 * nothing but memory of theirs; a failure says why; what can be read can be looked through, and every byte of the source comes
 * once. Deltas have a base of two tensors.
 *   u8      bit 0: the file is repaired first
 *   file */
#include "mutate.h"

#include "../docs/examples/tool/bytes.h"
#include "../docs/examples/tool/file.h"
#include "../docs/examples/tool/record.h"
#include "../docs/examples/tool/text.h"

enum { LIMIT = 1 << 20, TEXT_MOST = 1 << 16 };

static const char base_text[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[300],\"data_offsets\":[0,600]},"
                                "\"b\":{\"dtype\":\"F32\",\"shape\":[150],\"data_offsets\":[600,1200]}}";
enum { BASE_TEXT = sizeof base_text - 1, BASE_DATA = 1200 };

static uint8_t *base_data(void)
{
    uint8_t *p = fuzz_room(BASE_DATA);
    size_t i;
    for (i = 0; i < BASE_DATA; i++) p[i] = (uint8_t)(i % 2 ? 0x3C + (i * i >> 5 & 3) : i * 11);
    return p;
}

/* ================================================================================= REPAIR */

typedef struct repair {
    const uint8_t *from, *end;
    uint8_t *to, *limit;
    uint8_t *sizes;    /* of the frames, 8 bytes each */
    size_t frames;
    uint64_t source;   /* its bytes so far */
    int quantized;
    const uint8_t *base;
} repair;

static int put(repair *r, const void *p, size_t size)
{
    if (size > (size_t)(r->limit - r->to)) return 0;
    if (size) memcpy(r->to, p, size);
    r->to += size;
    return 1;
}

static int put_hash(repair *r, const uint8_t *from)
{
    uint8_t hash[8];
    store64(hash, bitsnap_hash(from, (size_t)(r->to - from)));
    return put(r, hash, 8);
}

/* The records of texts: their sizes end with what there is, and the ids are those of what is decoded. */
static int repair_texts(repair *r, int kind)
{
    uint8_t *begin = r->to;
    const size_t prefix = kind == SOURCE_DELTA ? BASE_PREFIX : TEXT_PREFIX;
    uint64_t base_coded = 0, coded, size;
    if (kind == SOURCE_RAW) return 1;
    if ((size_t)(r->end - r->from) < prefix || !put(r, r->from, prefix)) return 0;
    r->from += prefix;
    if (kind == SOURCE_DELTA) {
        memcpy(begin, base_magic, 4);
        store32(begin + 4, BASE_TEXT);
        store64(begin + 8, BASE_DATA);
        store64(begin + 16, bitsnap_hash(base_text, BASE_TEXT));
        base_coded = load32(begin + 36);
        coded = load32(begin + 40);
        size = load32(begin + 32);
    } else {
        memcpy(begin, text_magic, 4);
        store32(begin + 4, 0);
        coded = load64(begin + 16);
        size = load64(begin + 8);
    }
    if (base_coded > (uint64_t)(r->end - r->from)) base_coded = (uint64_t)(r->end - r->from);
    if (coded > (uint64_t)(r->end - r->from) - base_coded) coded = (uint64_t)(r->end - r->from) - base_coded;
    if (size > TEXT_MOST) size = TEXT_MOST;
    if (kind == SOURCE_DELTA) {
        uint64_t id = bitsnap_hash(base_text, BASE_TEXT);
        if (!coded) {
            size = BASE_TEXT;
        } else {
            uint8_t *both = fuzz_room(BASE_TEXT + (size_t)size);
            fault f;
            memset(&f, 0, sizeof f);
            memcpy(both, base_text, BASE_TEXT);
            if (!text_decode_after(both + BASE_TEXT, (size_t)size, BASE_TEXT, r->from + base_coded, (size_t)coded, &f))
                id = bitsnap_hash(both + BASE_TEXT, (size_t)size);
        }
        store64(begin + 24, id);
        store32(begin + 32, (uint32_t)size);
        store32(begin + 36, (uint32_t)base_coded);
        store32(begin + 40, (uint32_t)coded);
    } else {
        store64(begin + 8, size);
        store64(begin + 16, coded);
    }
    r->source += 8 + size;
    if (!put(r, r->from, (size_t)(base_coded + coded)) || !put_hash(r, begin)) return 0;
    r->from += base_coded + coded;
    if (r->end - r->from >= 8) r->from += 8;
    return 1;
}

/* The next frame, with a place before it if it has a base; 0: there is none. */
static int repair_frame(repair *r, int kind)
{
    static fuzz_frame f;
    const size_t left = (size_t)(r->end - r->from);
    uint8_t *place = r->to, *begin;
    uint8_t record[PLACE_SIZE - 8] = { 0 };
    bitsnap_base base;
    size_t size;
    if (left >= PLACE_SIZE && !memcmp(r->from, place_magic, 4)) {
        memcpy(record, r->from, sizeof record);
        r->from += PLACE_SIZE;
    }
    if (r->end - r->from < 4 || memcmp(r->from, frame_magic, 4)) return 0;
    if (!fuzz_read_frame(&f, r->from, (size_t)(r->end - r->from)) || r->frames == FUZZ_BLOCKS) return 0;
    if (f.base && kind == SOURCE_DELTA && !put(r, record, PLACE_SIZE - 8)) return 0;
    if (f.base && kind == SOURCE_DELTA && !put(r, record, 8)) return 0; /* its check */
    begin = r->to;
    if (!put(r, r->from, f.end)) return 0;
    r->from += f.end;
    size = fuzz_settle(&f, begin, f.end, (size_t)(r->limit - begin));
    if (!size) return 0;
    memset(&base, 0, sizeof base);
    if (f.base && kind == SOURCE_DELTA) {
        const bitsnap_dtype dtype = (bitsnap_dtype)begin[f.base + 3];
        const uint64_t bytes = f.count * bitsnap_width(dtype);
        uint64_t at = load64(record + 4);
        if (bytes && bytes <= BASE_DATA) {
            at %= BASE_DATA - bytes + 1;
            base.data = r->base + at;
            base.count = f.count;
            base.dtype = dtype;
        }
        memcpy(place, place_magic, 4);
        store64(place + 4, at);
        store64(place + 12, bitsnap_hash(place, 12));
    }
    (void)fuzz_seal(&f, begin, base.data ? &base : NULL);
    r->to = begin + size;
    store64(r->sizes + 8 * r->frames++, size);
    r->source += f.count * f.width;
    r->quantized |= (f.flags & 4) != 0;
    return 1;
}

/* A file of which everything is right that can be made so; its size, at most `room`, or 0. */
static size_t repair_file(const uint8_t *p, size_t size, uint8_t *to, size_t room)
{
    repair r;
    uint8_t *end, number[8];
    int kind;
    if (size < HEADER_SIZE) return 0;
    memset(&r, 0, sizeof r);
    r.from = p;
    r.end = p + size;
    r.to = to;
    r.limit = to + room;
    r.sizes = fuzz_room(8 * FUZZ_BLOCKS);
    r.base = base_data();
    if (!put(&r, p, HEADER_SIZE)) return 0;
    r.from += HEADER_SIZE;
    memcpy(to, file_magic, 8);
    to[8] = 0;
    kind = to[9] %= 3;
    if (!repair_texts(&r, kind)) return 0;
    while (repair_frame(&r, kind)) continue;
    memset(to + 10, 0, 6);
    to[10] = (uint8_t)(r.quantized && kind != SOURCE_DELTA);
    if (kind == SOURCE_DELTA || load64(to + 16) != UINT64_MAX) store64(to + 16, r.source);
    store64(to + 24, bitsnap_hash(to, 24));
    end = r.to;
    memset(number, 0, 8);
    if (!put(&r, end_magic, 4) || !put(&r, number, 4)) return 0;
    store64(number, r.source);
    if (!put(&r, number, 8)) return 0;
    store64(number, r.frames);
    if (!put(&r, number, 8) || !put(&r, r.sizes, 8 * r.frames)) return 0;
    store64(number, 8 * r.frames + END_SIZE);
    if (!put(&r, number, 8) || !put_hash(&r, end) || !put(&r, last_magic, 8)) return 0;
    return (size_t)(r.to - to);
}

/* ================================================================================= READ */

/* A file in memory, all of which is in the window. */
static input input_of(const uint8_t *p, size_t size)
{
    input in;
    memset(&in, 0, sizeof in);
    in.name = "input";
    in.fd = -1;
    in.ended = 1;
    in.size = size;
    in.window = fuzz_copy(p, size);
    in.capacity = in.end = size;
    return in;
}

static file_base the_base(void)
{
    file_base base;
    base.text = (const char *)fuzz_copy((const uint8_t *)base_text, BASE_TEXT);
    base.text_size = BASE_TEXT;
    base.data = base_data();
    base.data_size = BASE_DATA;
    return base;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static codec c;
    const uint8_t *bytes;
    file_reader r;
    file_base base;
    input in;
    fault f;
    size_t some;
    uint64_t all = 0;
    int failed;
    fuzz_drop(0);
    memset(&f, 0, sizeof f);
    if (size < 1) return 0;
    if (!c.threads) REQUIRE(!codec_open(&c, 1, 0, &f));
    base = the_base();
    data++, size--;
    if (data[-1] & 1) {
        uint8_t *to = fuzz_room(2 * size + 8192);
        size = repair_file(data, size, to, 2 * size + 8192);
        data = to;
    }
    in = input_of(data, size);
    failed = file_read_begin(&r, &c, &in, LIMIT, &base, &f);
    if (!failed) {
        all = r.done;
        do {
            failed = file_read(&r, &bytes, &some, &f);
            all += some;
            if (!failed) REQUIRE(all == r.done && all <= LIMIT);
        } while (!failed && some);
        if (!failed) REQUIRE(r.ended && (r.claimed == all || r.claimed == SIZE_UNKNOWN) && in.offset == size);
    }
    if (failed) REQUIRE(f.text[0]);
    file_read_close(&r);
    memset(&f, 0, sizeof f);
    in = input_of(data, size);
    if (file_look_begin(&r, &c, &in, &base, &f) || file_look(&r, &f)) REQUIRE(failed && f.text[0]);
    else if (!failed) REQUIRE(r.done == all);
    file_read_close(&r);
    return 0;
}

/* Where the frames are is found by their magic. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    size_t at, i, found[32], n = 0;
    if (size < 5 || room < 64) return LLVMFuzzerMutate(data, size, room);
    for (i = 1 + HEADER_SIZE; i + 24 < size && n < 32; i++)
        if (!memcmp(data + i, frame_magic, 4)) found[n++] = i;
    if (seed & 1 || !n) {
        size = LLVMFuzzerMutate(data, size, room);
        if (size) data[0] = (uint8_t)(seed >> 1 & 1);
        return size;
    }
    at = found[(seed >> 1) % n];
    data[0] |= 1;
    return fuzz_mutate_frame(data, size, room, at, size, seed >> 4);
}

/* Files of all kinds: raw, with a text, deltas; with and without a size in the header. They are put together roughly and
 * repaired. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static uint8_t file[FUZZ_SEED_MOST], elements[BASE_DATA];
    const int kind = (int)(number % 3);
    const unsigned frames = number / 3 % 4;
    const uint8_t *data;
    uint8_t *at = file;
    uint8_t *coded;
    bitsnap b;
    fault f;
    size_t size, i, j;
    if (number >= 48) return 0;
    fuzz_drop(0);
    memset(&f, 0, sizeof f);
    memset(file, 0, sizeof file);
    data = base_data();
    file[9] = (uint8_t)kind;
    if (number / 12 % 2) memset(file + 16, 0xFF, 8);
    at += HEADER_SIZE;
    if (kind == SOURCE_SAFETENSORS) {
        REQUIRE(!text_encode(&coded, &size, base_text, BASE_TEXT, &f));
        store64(at + 8, BASE_TEXT);
        store64(at + 16, size);
        memcpy(at + TEXT_PREFIX, coded, size);
        free(coded);
        at += TEXT_PREFIX + size + 8;
    } else if (kind == SOURCE_DELTA) {
        at += BASE_PREFIX + 8; /* the same text */
    }
    for (i = 0; i < frames; i++) {
        const bitsnap_dtype dtype = i % 2 ? BITSNAP_F32 : BITSNAP_BF16;
        const size_t count = i % 2 ? 150 : 300, begin = i % 2 ? 600 : 0;
        b = fuzz_codec(16);
        memcpy(elements, data, BASE_DATA);
        for (j = number; j < BASE_DATA; j += 1 + number) elements[j] ^= (uint8_t)(1 + j % 3);
        b.flags = BITSNAP_CONTENT_ID;
        if (kind == SOURCE_DELTA && number % 4) {
            memcpy(at, place_magic, 4);
            store64(at + 4, begin);
            at += PLACE_SIZE;
            b.base.data = data + begin;
            b.base.count = count;
            b.base.dtype = dtype;
        } else if (number >= 36) {
            b.flags = 0;
            b.quantizer.cells = 16;
        }
        REQUIRE(!bitsnap_encode(&b, at, (size_t)(file + sizeof file - at), &size, elements + begin, count, dtype));
        at += size;
    }
    to[0] = (uint8_t)(number / 24);
    size = repair_file(file, (size_t)(at - file), to + 1, room - 1);
    REQUIRE(size);
    return size + 1;
}
