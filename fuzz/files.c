/* A hostile .bsnap file, as it is or with all its records repaired. Reading it, and scanning it without decoding, touch only
 * their own memory. A failure gives a reason. A file that can be read can be scanned, and every byte of the source comes once.
 * Random access (bitsnap_file.h) accepts the same files and gives the same bytes. Deltas have a base of two tensors. Frames of
 * any file may refer to earlier data by their place record.
 *   u8      bit 0: the file is repaired first; bit 1: then with a tree of names, if its text has some
 *   file */
#include "mutate.h"

#include "../docs/examples/tool/files/bytes.h"
#include "../docs/examples/tool/files/file.h"
#include "../docs/examples/tool/files/container.h"

enum { LIMIT = 1 << 20, TEXT_MOST = 1 << 16, RECORDS = 4 * FUZZ_BLOCKS };

static const char base_text[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[300],\"data_offsets\":[0,600]},"
                                "\"b\":{\"dtype\":\"F32\",\"shape\":[150],\"data_offsets\":[600,1200]}}";
enum { BASE_TEXT = sizeof base_text - 1, BASE_DATA = 1200 };

/* The text of a file with references. Frames that refer have at least 4,096 elements. */
enum { MANY = BITSNAP_REFERENCE_LEAST };
static const char long_text[] = "{\"a\":{\"dtype\":\"BF16\",\"shape\":[4096],\"data_offsets\":[0,8192]},"
                                "\"b\":{\"dtype\":\"BF16\",\"shape\":[4096],\"data_offsets\":[8192,16384]},"
                                "\"c\":{\"dtype\":\"F32\",\"shape\":[4096],\"data_offsets\":[16384,32768]}}";

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
    uint8_t *begin, *to, *limit;
    uint8_t *records;  /* entries of the tree of records */
    size_t count;
    size_t frames;
    uint64_t source;   /* bytes of the source so far */
    int quantized, refers;
    const uint8_t *base;
    uint8_t *data;     /* LIMIT bytes of the source, after its text; only decoded frames are filled in */
    uint64_t data_begin;
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

/* Adds the record at `at` to the tree. `seal`: the check or hash of the record. */
static void note(repair *r, const uint8_t *at, uint64_t seal)
{
    uint8_t *entry = r->records + BITSNAP_RECORD_ENTRY * r->count++;
    bytes_store(entry, r->source, 6);
    bytes_store(entry + 6, (uint64_t)(at - r->begin), 6);
    store64(entry + 12, seal);
}

/* Repairs a text record: cuts its coded bytes to the input, and its text to `most` bytes. Returns the size of the text; 0 if
 * there is no text record. */
static size_t repair_piece(repair *r, size_t most, int own)
{
    uint8_t *begin = r->to;
    size_t n, coded;
    if (r->end - r->from < BITSNAP_TEXT_PREFIX || memcmp(r->from, BITSNAP_TEXT_MAGIC, 4) || r->count == RECORDS || !put(r, r->from, BITSNAP_TEXT_PREFIX)) return 0;
    r->from += BITSNAP_TEXT_PREFIX;
    n = 1 + (load32(begin + 4) - 1) % (uint32_t)(most < BITSNAP_TEXT_PIECE ? most : BITSNAP_TEXT_PIECE);
    coded = load32(begin + 8);
    if (coded > (size_t)(r->end - r->from)) coded = (size_t)(r->end - r->from);
    if (coded > BITSNAP_TEXT_CODED_MAX(n)) coded = (size_t)BITSNAP_TEXT_CODED_MAX(n);
    store32(begin + 4, (uint32_t)n);
    store32(begin + 8, (uint32_t)coded);
    if (!put(r, r->from, coded) || !put_hash(r, begin)) return 0;
    r->from += coded;
    if (r->end - r->from >= 8) r->from += 8;
    if (own) {
        note(r, begin, load64(r->to - 8));
        r->source += n;
    }
    return n;
}

/* Repairs bases and texts: sets the sizes to what is present, and the ids to those of the decoded texts. */
static int repair_texts(repair *r, int kind)
{
    uint8_t *header = r->begin, *bases = r->to, *text;
    size_t size = 0, n, coded = 0;
    unsigned flags = 0;
    r->source = kind == BITSNAP_SOURCE_RAW ? 0 : 8;
    if (kind == BITSNAP_SOURCE_RAW) return 1;
    if (kind == BITSNAP_SOURCE_DELTA) {
        uint8_t entry[BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY] = { 0 };
        if (r->end - r->from < (ptrdiff_t)sizeof entry + 8) return 0;
        flags = r->from[6] & 3u;
        r->from += sizeof entry + 8;
        memcpy(entry, BITSNAP_BASES_MAGIC, 4);
        entry[4] = 1;
        bytes_store(entry + 8, BITSNAP_BASE_ENTRY, 4);
        store64(entry + 12, bitsnap_hash(base_text, BASE_TEXT));
        store32(entry + 20, BASE_TEXT);
        store64(entry + 24, BASE_DATA);
        store64(entry + 32, bitsnap_hash(base_text, BASE_TEXT));
        if (!put(r, entry, sizeof entry) || !put_hash(r, bases)) return 0;
        while (flags & BITSNAP_BASES_WITH_TEXT && size < BASE_TEXT && (n = repair_piece(r, BASE_TEXT - size, 0)) != 0) size += n;
        /* its pieces remain, and make the file invalid */
        if (flags & BITSNAP_BASES_WITH_TEXT && size < BASE_TEXT) flags &= ~(unsigned)BITSNAP_BASES_WITH_TEXT;
    }
    text = r->to;
    size = BASE_TEXT;
    if (!(flags & BITSNAP_BASES_SAME_TEXT)) {
        for (size = 0; size < TEXT_MOST && (n = repair_piece(r, TEXT_MOST - size, 1)) != 0;) size += n;
        if (!size) return 0;
        coded = (size_t)(r->to - text);
    } else {
        r->source += BASE_TEXT;
    }
    store32(header + 12, (uint32_t)size);
    if (kind == BITSNAP_SOURCE_DELTA) {
        bases[6] = (uint8_t)flags;
        if (coded) {
            uint8_t *decoded = fuzz_room(size);
            fault f;
            memset(&f, 0, sizeof f);
            if (!text_decode(decoded, size, text, coded, &f)) store64(bases + 12, bitsnap_hash(decoded, size));
        }
        store64(bases + BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY, bitsnap_hash(bases, BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY));
    }
    return 1;
}

/* Takes a record of 16 bytes if it comes next. *value: its bytes 6 to 11. */
static int take_mark(repair *r, const char *magic, uint64_t *value, unsigned *number)
{
    if (r->end - r->from < BITSNAP_PLACE_SIZE || memcmp(r->from, magic, 4)) return 0;
    *number = (unsigned)bytes_load(r->from + 4, 2);
    *value = bytes_load(r->from + 6, 6);
    r->from += BITSNAP_PLACE_SIZE;
    return 1;
}

static void put_mark(uint8_t *to, const char *magic, unsigned number, uint64_t value)
{
    memcpy(to, magic, 4);
    bytes_store(to + 4, number, 2);
    bytes_store(to + 6, value, 6);
    store32(to + 12, (uint32_t)bitsnap_hash(to, 12));
}

/* Returns the base at *at: in the base of a delta, or in the file's own earlier data. Moves *at into range; null data if none
 * fits. */
static bitsnap_base place_base(repair *r, const fuzz_frame *f, bitsnap_dtype dtype, int itself, uint64_t *at)
{
    const uint64_t bytes = f->count * bitsnap_width(dtype), all = itself ? r->source - r->data_begin : BASE_DATA;
    bitsnap_base base;
    memset(&base, 0, sizeof base);
    if (!bytes || bytes > all || all > LIMIT) return base;
    *at %= all - bytes + 1;
    base.data = (itself ? r->data : r->base) + *at;
    base.count = f->count;
    base.dtype = dtype;
    return base;
}

/* Repairs the next frame, with its kept record if it has one, and its place record if it has a base. Returns 0 if there is no
 * frame. */
static int repair_frame(repair *r, int kind)
{
    static fuzz_frame f;
    uint8_t *const first = r->to, *begin, *elements;
    uint64_t last = 0, at = 0, bytes, position;
    unsigned number = 0;
    const int kept = take_mark(r, BITSNAP_KEPT_MAGIC, &last, &number), placed = take_mark(r, BITSNAP_PLACE_MAGIC, &at, &number);
    const int itself = placed && number == BITSNAP_BASE_ITSELF;
    bitsnap_base base;
    bitsnap_info info;
    size_t size;
    if (r->end - r->from < 4 || memcmp(r->from, BITSNAP_FRAME_MAGIC, 4)) return 0;
    if (!fuzz_read_frame(&f, r->from, (size_t)(r->end - r->from)) || r->frames == FUZZ_BLOCKS || r->count == RECORDS) return 0;
    if (f.base && kind != BITSNAP_SOURCE_DELTA && !itself) return 0;
    size = (kept + (f.base != 0)) * (size_t)BITSNAP_PLACE_SIZE;
    if (size > (size_t)(r->limit - r->to)) return 0;
    begin = r->to += size;
    if (!put(r, r->from, f.end)) return 0;
    r->from += f.end;
    size = fuzz_settle(&f, begin, f.end, (size_t)(r->limit - begin));
    if (!size) return 0;
    memset(&base, 0, sizeof base);
    if (f.base) {
        base = place_base(r, &f, (bitsnap_dtype)begin[f.base + 4], itself, &at);
        put_mark(begin - BITSNAP_PLACE_SIZE, BITSNAP_PLACE_MAGIC, itself ? BITSNAP_BASE_ITSELF : 0, at);
        r->refers |= itself;
    }
    elements = fuzz_seal(&f, begin, base.data ? &base : NULL);
    bytes = f.count * f.width;
    position = r->source - r->data_begin;
    if (kept) {
        put_mark(first, BITSNAP_KEPT_MAGIC, 0, position + bytes + last % LIMIT);
        r->refers |= 1; /* readers refuse the flag if no frame refers */
    }
    if (elements && position <= LIMIT && bytes <= LIMIT - position) memcpy(r->data + position, elements, (size_t)bytes);
    r->to = begin + size;
    r->frames++;
    if (bitsnap_read_info(&info, begin, size)) return 0;
    note(r, first, info.blocks > 1 || f.flags & 6 ? load64(r->to - 12) : info.blocks && size >= info.header_size + 12 ? load64(begin + info.header_size + 4) : info.header_check);
    r->source += bytes;
    r->quantized |= (f.flags & 4) != 0;
    return 1;
}

/* Repairs a file as far as possible. Returns its size, at most `room`, or 0. `names`: adds a tree of names if the text allows
 * it. */
static size_t repair_file(const uint8_t *p, size_t size, uint8_t *to, size_t room, int names)
{
    uint8_t *record, *entries = NULL, *text, *coded;
    repair r;
    size_t count = 0, text_size;
    bitsnap_file_end end;
    bitsnap_file_error e;
    fault f;
    int kind, good;
    if (size < BITSNAP_FILE_HEADER) return 0;
    memset(&r, 0, sizeof r);
    memset(&f, 0, sizeof f);
    memset(&end, 0, sizeof end);
    r.from = p;
    r.end = p + size;
    r.begin = r.to = to;
    r.limit = to + room;
    r.records = fuzz_room(BITSNAP_RECORD_ENTRY * RECORDS);
    r.base = base_data();
    r.data = fuzz_fill(LIMIT, 0);
    if (!put(&r, p, BITSNAP_FILE_HEADER)) return 0;
    r.from += BITSNAP_FILE_HEADER;
    memcpy(to, BITSNAP_FILE_MAGIC, 8);
    to[8] = 1;
    kind = to[9] %= 3;
    store32(to + 12, 0);
    coded = r.to;
    if (!repair_texts(&r, kind)) return 0;
    r.data_begin = r.source;
    text_size = load32(to + 12);
    if (names && kind == BITSNAP_SOURCE_SAFETENSORS) {
        text = fuzz_room(text_size);
        if (!text_decode(text, text_size, coded, (size_t)(r.to - coded), &f)) REQUIRE(!bitsnap_tree_names(&entries, &count, (const char *)text, text_size, NULL, &e));
    }
    while (repair_frame(&r, kind)) continue;
    store32(to + 8, 1 + 256u * (unsigned)kind);
    end.incompatible = r.refers ? BITSNAP_FILE_REFERENCES : 0u;
    store32(to + 24, end.incompatible);
    end.compatible = (load32(to + 28) & ~3u) | (r.quantized && kind != BITSNAP_SOURCE_DELTA ? BITSNAP_FILE_QUANTIZED : 0u);
    store32(to + 28, end.compatible);
    if (kind == BITSNAP_SOURCE_DELTA || load64(to + 16) != UINT64_MAX) store64(to + 16, r.source);
    store64(to + 32, bitsnap_hash(to, 32));
    end.records = r.records;
    end.record_count = r.count;
    end.names = entries;
    end.name_count = count;
    end.source_size = r.source;
    end.file_check = load64(to + 32);
    end.records_end = (uint64_t)(r.to - to);
    REQUIRE(!bitsnap_end_record(&record, &size, &end, NULL, &e));
    good = put(&r, record, size);
    free(record);
    free(entries);
    return good ? (size_t)(r.to - to) : 0;
}

/* ================================================================================= READ */

/* Returns an input whose window holds the whole file. */
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

static void open_base(bitsnap_file *opened)
{
    uint8_t *plain = fuzz_room(8 + BASE_TEXT + BASE_DATA);
    bitsnap_source source = { NULL, NULL, NULL, 8 + BASE_TEXT + BASE_DATA };
    store64(plain, BASE_TEXT);
    memcpy(plain + 8, base_text, BASE_TEXT);
    memcpy(plain + 8 + BASE_TEXT, base_data(), BASE_DATA);
    source.data = plain;
    REQUIRE(!bitsnap_file_open(opened, &source, NULL, 0, NULL));
}

static int base_failed(const file_base *base, fault *f) { return fault_set(f, "%s", base->file->error.message); }

static file_base the_base(bitsnap_file *opened)
{
    file_base base;
    memset(&base, 0, sizeof base);
    base.text = (const char *)fuzz_copy((const uint8_t *)base_text, BASE_TEXT);
    base.text_size = BASE_TEXT;
    base.file = opened;
    base.failed = base_failed;
    base.data_size = BASE_DATA;
    return base;
}

/* Reads a file by random access. Early requests may fail, but never give wrong data. `data`: the data of the source, if the file
 * is good. */
static void at_random(const uint8_t *file, size_t size, const uint8_t *data, size_t data_size, int failed)
{
    uint8_t *out;
    bitsnap_source of_file = { NULL, NULL, NULL, size };
    bitsnap_file base, *bases[1] = { &base }, f;
    bitsnap_tensor t;
    bitsnap_file_frame frame;
    uint64_t frames, i;
    of_file.data = fuzz_copy(file, size);
    open_base(&base);
    if (bitsnap_file_open(&f, &of_file, bases, 1, NULL)) {
        REQUIRE(failed && f.error.message);
    } else {
        if (!bitsnap_file_find(&f, "b", 1, &t)) REQUIRE(t.name.size == 1 && *t.name.at == 'b' && t.begin <= t.end && t.end <= f.data_size);
        if (!bitsnap_file_frames(&f, &frames))
            for (i = 0; i < frames && i < 100; i++) (void)bitsnap_file_frame_at(&f, i, &frame);
        if (f.data_size <= LIMIT) {
            const size_t from = f.data_size ? (size_t)(size * 7919 % f.data_size) : 0, n = (size_t)(f.data_size - from) / 3;
            out = fuzz_room((size_t)f.data_size);
            if (!bitsnap_file_read_data(&f, from, out, n)) REQUIRE(failed || !n || !memcmp(out, data + from, n));
            if (bitsnap_file_verify(&f)) REQUIRE(failed && f.error.message);
            else REQUIRE(!failed && f.data_size == data_size);
            if (!bitsnap_file_read_data(&f, 0, out, (size_t)f.data_size)) REQUIRE(failed || !data_size || !memcmp(out, data, data_size));
        }
    }
    bitsnap_file_close(&f);
    bitsnap_file_close(&base);
}

static int is_seed; /* 1: the file must be valid; mutants of a bad seed would reach little code */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static codec c;
    static uint8_t source[LIMIT];
    const uint8_t *bytes;
    file_reader r;
    bitsnap_file opened;
    file_base base;
    input in;
    fault f;
    size_t some;
    uint64_t all = 0, text_end = 0;
    int failed;
    fuzz_drop(0);
    memset(&f, 0, sizeof f);
    if (size < 1) return 0;
    if (!c.threads) REQUIRE(!codec_open(&c, 1, 0, 0, 0, &f));
    open_base(&opened);
    base = the_base(&opened);
    data++, size--;
    if (data[-1] & 1) {
        uint8_t *to = fuzz_room(2 * size + 8192);
        size = repair_file(data, size, to, 2 * size + 8192, data[-1] & 2);
        data = to;
    }
    in = input_of(data, size);
    failed = file_read_begin(&r, &c, &in, LIMIT, &base, &f);
    if (!failed) {
        all = text_end = r.s.source_size;
        do {
            failed = file_read(&r, &bytes, &some, &f);
            if (!failed && some && all + some - text_end <= LIMIT) memcpy(source + (all - text_end), bytes, some);
            all += some;
            if (!failed) REQUIRE(all == r.s.source_size && all <= LIMIT);
        } while (!failed && some);
        if (!failed) REQUIRE(r.ended && (r.s.start.source_size == all || r.s.start.source_size == SIZE_UNKNOWN) && in.offset == size);
    }
    if (failed) REQUIRE(f.text[0] && !is_seed);
    file_read_close(&r);
    memset(&f, 0, sizeof f);
    in = input_of(data, size);
    if (file_look_begin(&r, &c, &in, &base, &f) || file_look(&r, &f)) REQUIRE(failed && f.text[0]);
    else if (!failed) REQUIRE(r.s.source_size == all);
    file_read_close(&r);
    bitsnap_file_close(&opened);
    at_random(data, size, source, (size_t)(all - text_end), failed);
    return 0;
}

/* Finds frames by their magic, and mutates one of them, or the whole file. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t room, unsigned seed)
{
    size_t at, i, found[32], n = 0;
    if (size < 5 || room < 64) return LLVMFuzzerMutate(data, size, room);
    for (i = 1 + BITSNAP_FILE_HEADER; i + 24 < size && n < 32; i++)
        if (!memcmp(data + i, BITSNAP_FRAME_MAGIC, 4)) found[n++] = i;
    if (seed & 1 || !n) {
        size = LLVMFuzzerMutate(data, size, room);
        if (size) data[0] = (uint8_t)(seed >> 1 & 3);
        return size;
    }
    at = found[(seed >> 1) % n];
    data[0] |= 1;
    return fuzz_mutate_frame(data, size, room, at, size, seed >> 4);
}

static uint8_t *put_text(uint8_t *at, const char *text, size_t text_size)
{
    uint8_t *coded;
    size_t size;
    fault f;
    memset(&f, 0, sizeof f);
    REQUIRE(!text_encode(&coded, &size, text, text_size, &f));
    memcpy(at, coded, size);
    free(coded);
    return at + size;
}

/* Writes three frames. The first is BF16. Two refer to it: a copy, and F32 elements that round to it. */
static uint8_t *put_references(uint8_t *at, uint8_t *end, unsigned number)
{
    static uint8_t elements[3][4 * MANY];
    static const bitsnap_dtype dtypes[3] = { BITSNAP_BF16, BITSNAP_BF16, BITSNAP_F32 };
    size_t size, i;
    for (i = 0; i < MANY; i++) {
        const uint8_t low = (uint8_t)(i % 7 ? 0 : i * (number + 3)), high = (uint8_t)(0x3C + (i >> 3) % 3);
        elements[0][2 * i] = elements[1][2 * i] = elements[2][4 * i + 2] = low;
        elements[0][2 * i + 1] = elements[1][2 * i + 1] = elements[2][4 * i + 3] = high;
        elements[2][4 * i] = (uint8_t)(number % 4 && i % 64 == number ? i : 0);
    }
    elements[1][number] ^= (uint8_t)(number % 2); /* in half of the seeds the copy differs */
    for (i = 0; i < 3; i++) {
        bitsnap b = fuzz_codec(16);
        b.flags = BITSNAP_CONTENT_ID;
        put_mark(at, i ? BITSNAP_PLACE_MAGIC : BITSNAP_KEPT_MAGIC, i ? BITSNAP_BASE_ITSELF : 0, i ? 0 : 2 * MANY);
        at += BITSNAP_PLACE_SIZE;
        if (i) {
            b.base.data = elements[0];
            b.base.count = MANY;
            b.base.dtype = BITSNAP_BF16;
        }
        REQUIRE(!bitsnap_encode(&b, at, (size_t)(end - at), &size, elements[i], MANY, dtypes[i]));
        at += size;
    }
    return at;
}

/* Files of all kinds: raw, with a text, deltas; with and without a size in the header. The last ones have references. Seeds are
 * put together roughly, then repaired. */
size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static uint8_t file[FUZZ_SEED_MOST], elements[BASE_DATA];
    const int kind = (int)(number % 3);
    const int refers = number >= 48;
    const unsigned frames = refers ? 0 : number / 3 % 4;
    const uint8_t *data;
    uint8_t *at = file;
    bitsnap b;
    size_t size, i, j;
    if (number >= 60) return 0;
    fuzz_drop(0);
    memset(file, 0, sizeof file);
    data = base_data();
    file[9] = (uint8_t)kind;
    if (number / 12 % 2) memset(file + 16, 0xFF, 8);
    at += BITSNAP_FILE_HEADER;
    if (kind == BITSNAP_SOURCE_DELTA) {
        at[6] = number / 3 % 2 && !refers ? BITSNAP_BASES_SAME_TEXT : 0;
        at += BITSNAP_BASES_PREFIX + BITSNAP_BASE_ENTRY + 8;
    }
    if (kind == BITSNAP_SOURCE_SAFETENSORS || (kind == BITSNAP_SOURCE_DELTA && !(at[6 - BITSNAP_BASES_PREFIX - BITSNAP_BASE_ENTRY - 8] & BITSNAP_BASES_SAME_TEXT))) {
        at = refers ? put_text(at, long_text, sizeof long_text - 1) : put_text(at, base_text, BASE_TEXT);
    }
    if (refers) at = put_references(at, file + sizeof file, number);
    for (i = 0; i < frames; i++) {
        const bitsnap_dtype dtype = i % 2 ? BITSNAP_F32 : BITSNAP_BF16;
        const size_t count = i % 2 ? 150 : 300, begin = i % 2 ? 600 : 0;
        b = fuzz_codec(16);
        memcpy(elements, data, BASE_DATA);
        for (j = number; j < BASE_DATA; j += 1 + number) elements[j] ^= (uint8_t)(1 + j % 3);
        b.flags = BITSNAP_CONTENT_ID;
        if (kind == BITSNAP_SOURCE_DELTA && number % 4) {
            memcpy(at, BITSNAP_PLACE_MAGIC, 4);
            bytes_store(at + 6, begin, 6);
            at += BITSNAP_PLACE_SIZE;
            b.base.data = data + begin;
            b.base.count = count;
            b.base.dtype = dtype;
        } else if (number >= 36 && kind != BITSNAP_SOURCE_DELTA) {
            b.flags = 0;
            b.quantizer.bins = 16;
        }
        REQUIRE(!bitsnap_encode(&b, at, (size_t)(file + sizeof file - at), &size, elements + begin, count, dtype));
        at += size;
    }
    to[0] = (uint8_t)(number / 12);
    size = repair_file(file, (size_t)(at - file), to + 1, room - 1, number % 2 != 0);
    REQUIRE(size);
    is_seed = 1;
    (void)LLVMFuzzerTestOneInput(to, size + 1);
    is_seed = 0;
    return size + 1;
}
