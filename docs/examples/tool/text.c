/* text.c - how a .bsnap file holds the header text of a .safetensors file: docs/FORMAT.md, section 8.2.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A header text is a table with a line for each tensor, and mostly like the line before: LZ77 takes what is
 * repeated, the codec's own lists take what is left.
 *
 * The encoder looks for the cheapest way through a segment of the text, as far as it knows the costs: the
 * streams are coded with prefix codes, so it prices bytes by how often the stream has had them. Prices come
 * from the segments before, in short texts also from a first run over the whole. */
#include "posix.h"

#include "text.h"

#include "bitsnap.h"
#include "bytes.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAMS = 6,
    LITERALS = 0, RUNS = 1, LENGTHS = 2, DISTANCES = 3, /* DISTANCES + k: byte k */
    PIECE = 65536,        /* bytes of a stream that are one list */
    MATCH_MIN = 4,
    DISTANCE_MAX = 0xFFFFFF,
    SEGMENT = 1 << 15,    /* bytes for which the cheapest way is looked for at one time */
    ENOUGH = 192,         /* a match of this length is taken without weighing */
    CANDIDATES = 48       /* matches of different lengths remembered at one place */
};

typedef struct stream {
    uint8_t *bytes;
    size_t size, capacity;
} stream;

static void streams_free(stream s[STREAMS])
{
    int i;
    for (i = 0; i < STREAMS; i++) free(s[i].bytes);
}

/* ================================================================================= ENCODER */

/* One place of a segment: the cheapest way to it that is known. */
typedef struct place {
    uint32_t price;    /* in 1/16 bit */
    uint32_t length;   /* of the match that leads here, 0: a literal does */
    uint32_t distance; /* of that match */
    uint32_t run;      /* literals since the last match */
    uint32_t last;     /* distance of the last match on the way here */
} place;

typedef struct encoder {
    const uint8_t *text;       /* begins with the bytes before the text, which matches may reach */
    size_t begin, size;        /* where the text begins, and ends */
    unsigned depth;            /* candidates looked at in a chain */
    uint32_t *head, *chain;    /* places + 1 with the same hash: the latest, the one before each */
    unsigned hash_bits;
    size_t chain_mask;
    uint32_t *count[STREAMS];  /* how often each byte was in the stream: 256 each */
    uint32_t *price[STREAMS];
    place *places;             /* SEGMENT + 1 */
    stream out[STREAMS];
    int failed;                /* no memory */
} encoder;

static void put(encoder *e, int which, uint8_t byte)
{
    stream *s = &e->out[which];
    if (s->size == s->capacity) {
        const size_t capacity = s->capacity ? s->capacity * 2 : 4096;
        uint8_t *bytes = (uint8_t *)realloc(s->bytes, capacity);
        if (!bytes) {
            e->failed = 1;
            return;
        }
        s->bytes = bytes;
        s->capacity = capacity;
    }
    s->bytes[s->size++] = byte;
    e->count[which][byte]++;
}

static void put_number(encoder *e, int which, size_t n)
{
    for (; n >= 255; n -= 255) put(e, which, 255);
    put(e, which, (uint8_t)n);
}

/* Literals up to `at`, and a match there; without one (length 0) they are the end of the text. */
static void put_sequence(encoder *e, size_t from, size_t at, size_t length, size_t distance)
{
    put_number(e, RUNS, at - from);
    for (; from < at; from++) put(e, LITERALS, e->text[from]);
    if (!length) return;
    put_number(e, LENGTHS, length - MATCH_MIN);
    put(e, DISTANCES, (uint8_t)distance);
    put(e, DISTANCES + 1, (uint8_t)(distance >> 8));
    put(e, DISTANCES + 2, (uint8_t)(distance >> 16));
}

/* 16 * log2(x), rounded down to 1/16; x > 0 */
static uint32_t log2_16(uint32_t x)
{
    uint32_t whole = 0, fraction = 0, i;
    uint64_t y;
    while (x >> whole > 1) whole++;
    y = (uint64_t)x << (31 - whole);
    for (i = 0; i < 4; i++) {
        y = (y * y) >> 31;
        fraction <<= 1;
        if (y >> 32) {
            y >>= 1;
            fraction |= 1;
        }
    }
    return 16 * whole + fraction;
}

/* Prices from counts, which then fade, so that what the text looks like now weighs more. */
static void set_prices(encoder *e)
{
    int which;
    for (which = 0; which < STREAMS; which++) {
        uint32_t *count = e->count[which], total = 0, all;
        unsigned i;
        for (i = 0; i < 256; i++) total += count[i];
        all = log2_16(total + 64);
        for (i = 0; i < 256; i++) { /* a byte not seen yet is given a quarter of a count */
            const uint32_t bits = all + 32 - log2_16(4 * count[i] + 1);
            /* no code is shorter than a bit, none with an escape longer than 12, as a rule */
            e->price[which][i] = bits < 16 ? 16 : bits > 12 * 16 ? 12 * 16 : bits;
        }
        if (total > 1u << 16)
            for (i = 0; i < 256; i++) count[i] /= 2;
    }
}

static uint32_t price_number(const encoder *e, int which, size_t n)
{
    const uint32_t *price = e->price[which];
    return (uint32_t)(n / 255) * price[255] + price[n % 255];
}

static uint32_t price_distance(const encoder *e, size_t distance)
{
    return e->price[DISTANCES][distance & 255] + e->price[DISTANCES + 1][distance >> 8 & 255] +
           e->price[DISTANCES + 2][distance >> 16];
}

static uint32_t *bucket(const encoder *e, size_t at)
{
    return &e->head[(load32(e->text + at) * 2654435761u) >> (32 - e->hash_bits)];
}

static void remember(encoder *e, size_t at)
{
    uint32_t *head;
    if (e->size - at < MATCH_MIN) return;
    head = bucket(e, at);
    e->chain[at & e->chain_mask] = *head;
    *head = (uint32_t)at + 1;
}

static size_t match_length(const encoder *e, size_t at, size_t distance)
{
    const uint8_t *p = e->text + at, *q = p - distance, *end = e->text + e->size;
    while (p < end && *p == *q) p++, q++;
    return (size_t)(p - (e->text + at));
}

typedef struct match {
    size_t length, distance;
} match;

/* The matches at `at`, each longer than the one before, with the nearest distance that gives it. */
static unsigned find_matches(const encoder *e, size_t at, match found[CANDIDATES])
{
    size_t longest = MATCH_MIN - 1;
    unsigned n = 0, depth = e->depth;
    uint32_t next;
    if (e->size - at < MATCH_MIN) return 0;
    next = *bucket(e, at);
    while (next && depth-- && n < CANDIDATES) {
        const size_t from = next - 1, distance = at - from;
        if (distance > DISTANCE_MAX) break;
        if (at + longest < e->size && e->text[from + longest] == e->text[at + longest]) {
            const size_t length = match_length(e, at, distance);
            if (length > longest) {
                longest = length;
                found[n].length = length;
                found[n].distance = distance;
                n++;
                if (length >= ENOUGH) break;
            }
        }
        next = e->chain[from & e->chain_mask];
        if (next > from) break; /* the ring has been overwritten */
    }
    return n;
}

/* Matches of all lengths from `shortest` on up to `longest`, which is below ENOUGH, lead on from p[0]. */
static void reach(const encoder *e, place *p, size_t shortest, size_t longest, size_t distance)
{
    const uint32_t price = p->price + price_distance(e, distance) + e->price[RUNS][0];
    size_t length;
    for (length = shortest; length <= longest; length++) {
        place *to = p + length;
        const uint32_t all = price + e->price[LENGTHS][length - MATCH_MIN];
        if (all >= to->price) continue;
        to->price = all;
        to->length = (uint32_t)length;
        to->distance = (uint32_t)distance;
        to->run = 0;
        to->last = (uint32_t)distance;
    }
}

/* The sequences of the cheapest way to places[n]; `anchor` is the first literal not yet put. */
static size_t put_way(encoder *e, size_t begin, size_t n, size_t anchor)
{
    place *p = e->places;
    size_t i = n, next = n;
    /* turned around in place: the `run` of each place on the way becomes the step that leads on from it */
    while (i > 0) {
        const size_t step = p[i].length ? p[i].length : 1, before = i - step;
        p[i].run = (uint32_t)next;
        next = i;
        i = before;
    }
    p[0].run = (uint32_t)next;
    for (i = 0; i < n; i = next) {
        next = p[i].run;
        if (p[next].length) {
            put_sequence(e, anchor, begin + i, p[next].length, p[next].distance);
            anchor = begin + next;
        }
    }
    return anchor;
}

static void parse(encoder *e)
{
    place *p = e->places;
    match found[CANDIDATES];
    size_t begin = e->begin, anchor = begin, i, last = begin; /* the same place in what stands before is a good guess */
    for (i = 0; i < begin; i++) remember(e, i);
    while (begin < e->size && !e->failed) {
        const size_t n = e->size - begin < SEGMENT ? e->size - begin : SEGMENT;
        match taken = { 0, 0 };
        set_prices(e);
        for (i = 1; i <= n; i++) p[i].price = UINT32_MAX;
        p[0].price = 4096; /* a longer run of literals can be cheaper by the price of a byte: never below 0 */
        p[0].run = (uint32_t)(begin - anchor);
        p[0].length = 0;
        p[0].last = (uint32_t)last;
        for (i = 0; i < n; i++) {
            const size_t at = begin + i;
            const uint32_t run = p[i].run;
            const uint32_t literal = p[i].price + e->price[LITERALS][e->text[at]] + price_number(e, RUNS, run + 1) -
                                     price_number(e, RUNS, run);
            unsigned matches, m;
            size_t length;
            if (literal < p[i + 1].price) {
                p[i + 1].price = literal;
                p[i + 1].length = 0;
                p[i + 1].run = run + 1;
                p[i + 1].last = p[i].last;
            }
            /* inside a long match nothing better begins, as a rule: the next place is no dearer than this one */
            if (p[i + 1].length && p[i + 1].price <= p[i].price) {
                remember(e, at);
                continue;
            }
            matches = find_matches(e, at, found);
            if (matches && found[matches - 1].length >= ENOUGH) {
                taken = found[matches - 1];
                break;
            }
            /* the distance used last is often the one of the whole table */
            length = p[i].last && p[i].last <= at ? match_length(e, at, p[i].last) : 0;
            if (length >= ENOUGH) {
                taken.length = length;
                taken.distance = p[i].last;
                break;
            }
            remember(e, at);
            reach(e, &p[i], MATCH_MIN, length < n - i ? length : n - i, p[i].last);
            for (m = 0, length = MATCH_MIN; m < matches; m++) {
                reach(e, &p[i], length, found[m].length < n - i ? found[m].length : n - i, found[m].distance);
                length = found[m].length + 1;
            }
        }
        last = p[i].last;
        anchor = put_way(e, begin, i, anchor);
        begin += i;
        if (taken.length) {
            put_sequence(e, anchor, begin, taken.length, taken.distance);
            for (i = 0; i < taken.length; i++) remember(e, begin + i);
            begin += taken.length;
            anchor = begin;
            last = taken.distance;
        }
    }
    put_sequence(e, anchor, e->size, 0, 0);
}

/* The streams as lists: appends to coded at *at, of which `capacity` bytes are there. */
static int put_lists(const stream s[STREAMS], uint8_t *coded, size_t capacity, size_t *at, fault *f)
{
    bitsnap b;
    int which;
    memset(&b, 0, sizeof b);
    b.level = BITSNAP_BEST;
    b.workspace_size = BITSNAP_WORKSPACE;
    b.workspace = malloc(b.workspace_size);
    if (!b.workspace) return fault_memory(f);
    *at = 0;
    for (which = 0; which < STREAMS; which++) {
        size_t i, n, size;
        store32(coded + *at, (uint32_t)s[which].size);
        *at += 4;
        for (i = 0; i < s[which].size; i += n) {
            n = s[which].size - i < PIECE ? s[which].size - i : PIECE;
            if (bitsnap_list_encode(&b, coded + *at, capacity - *at, &size, s[which].bytes + i, n)) {
                free(b.workspace);
                return fault_set(f, "the header text could not be coded: %s", bitsnap_message(&b));
            }
            *at += size;
        }
    }
    free(b.workspace);
    return 0;
}

int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, fault *f)
{
    return text_encode_after(coded, coded_size, text, size, 0, f);
}

int text_encode_after(uint8_t **coded, size_t *coded_size, const void *text, size_t size, size_t before, fault *f)
{
    const uint8_t *bytes = (const uint8_t *)text;
    encoder e;
    uint32_t *tables;
    size_t ring = 1024, capacity = 0, i;
    unsigned pass, passes;
    int failed = 0, which;

    *coded = NULL;
    *coded_size = 0;
    if (size > TEXT_MAX) return fault_set(f, "a header text of more than %u bytes", TEXT_MAX);
    memset(&e, 0, sizeof e);
    if (before > DISTANCE_MAX) before = DISTANCE_MAX;
    e.text = before ? bytes - before : bytes;
    e.begin = before;
    e.size = before + size;
    /* only in texts that are short, as those of most files are, does more effort cost no time */
    e.depth = size <= 1u << 24 ? 16 : 4;
    passes = size <= 1u << 16 ? 4 : size <= 1u << 24 ? 2 : 1;
    e.hash_bits = e.size <= 1u << 16 ? 15 : 18;
    while (ring < e.size && ring <= DISTANCE_MAX) ring *= 2;
    e.chain_mask = ring - 1;
    e.head = (uint32_t *)malloc(((size_t)1 << e.hash_bits) * sizeof *e.head);
    e.chain = (uint32_t *)malloc(ring * sizeof *e.chain);
    e.places = (place *)malloc((SEGMENT + 1) * sizeof *e.places);
    tables = (uint32_t *)calloc((size_t)2 * STREAMS * 256, sizeof *tables);
    failed = !e.head || !e.chain || !e.places || !tables;
    if (!failed) {
        for (which = 0; which < STREAMS; which++) {
            e.count[which] = tables + 512 * which;
            e.price[which] = tables + 512 * which + 256;
        }
        for (i = 0; i < size && i < SEGMENT; i++) e.count[LITERALS][bytes[i]]++;
    }
    for (pass = 0; pass < passes && !failed; pass++) {
        memset(e.head, 0, ((size_t)1 << e.hash_bits) * sizeof *e.head);
        for (which = 0; which < STREAMS; which++) e.out[which].size = 0;
        parse(&e);
        failed = e.failed;
    }
    if (failed) {
        (void)fault_memory(f);
    } else {
        for (which = 0; which < STREAMS; which++) capacity += 4 + e.out[which].size + e.out[which].size / PIECE + 1;
        *coded = (uint8_t *)malloc(capacity);
        failed = *coded ? put_lists(e.out, *coded, capacity, coded_size, f) : fault_memory(f);
    }
    free(e.head);
    free(e.chain);
    free(e.places);
    free(tables);
    streams_free(e.out);
    if (failed) {
        free(*coded);
        *coded = NULL;
        *coded_size = 0;
    }
    return failed;
}

/* ================================================================================= DECODER */

/* One piece of a stream; a list tells its own end. */
static int get_piece(bitsnap *b, uint8_t *bytes, size_t n, const uint8_t *coded, size_t coded_size, size_t *at,
                     fault *f)
{
    size_t used;
    if (bitsnap_list_decode(b, bytes, n, coded + *at, coded_size - *at, &used))
        return fault_set(f, "damaged text: %s (byte %zu of it)", bitsnap_message(b), *at + (size_t)b->error.offset);
    *at += used;
    return 0;
}

/* The streams, none of which can be longer than a text of `size` bytes needs. */
static int get_streams(stream s[STREAMS], size_t size, const uint8_t *coded, size_t coded_size, fault *f)
{
    const size_t matches = size / MATCH_MIN;
    const size_t limit[STREAMS] = { size, matches + 1 + size / 255, matches + size / 255, matches, matches, matches };
    bitsnap b;
    size_t at = 0;
    int which, failed = 0;
    memset(&b, 0, sizeof b);
    b.workspace_size = BITSNAP_WORKSPACE;
    b.workspace = malloc(b.workspace_size);
    if (!b.workspace) return fault_memory(f);
    for (which = 0; which < STREAMS && !failed; which++) {
        size_t i, n;
        if (coded_size - at < 4) {
            failed = fault_set(f, "damaged text: it ends inside stream %d (byte %zu of it)", which, at);
            break;
        }
        s[which].size = load32(coded + at);
        if (s[which].size > limit[which]) {
            failed = fault_set(f, "damaged text: stream %d is too long (byte %zu of it)", which, at);
            break;
        }
        at += 4;
        s[which].bytes = (uint8_t *)malloc(s[which].size ? s[which].size : 1);
        if (!s[which].bytes) failed = fault_memory(f);
        for (i = 0; i < s[which].size && !failed; i += n) {
            n = s[which].size - i < PIECE ? s[which].size - i : PIECE;
            failed = get_piece(&b, s[which].bytes + i, n, coded, coded_size, &at, f);
        }
    }
    if (!failed && at != coded_size)
        failed = fault_set(f, "damaged text: bytes are left over behind its streams (byte %zu of it)", at);
    free(b.workspace);
    return failed;
}

/* The next number of a stream, which may be beyond its end: then *at is, too. */
static size_t get_number(const stream *s, size_t *at)
{
    size_t n = 0;
    while (*at < s->size && s->bytes[*at] == 255) {
        n += 255;
        ++*at;
    }
    if (*at < s->size) n += s->bytes[*at];
    ++*at;
    return n;
}

static int unpack(uint8_t *text, size_t size, size_t before, const stream s[STREAMS], fault *f)
{
    const size_t matches = s[DISTANCES].size;
    size_t at = 0, literal = 0, run_at = 0, length_at = 0, i;
    if (s[DISTANCES + 1].size != matches || s[DISTANCES + 2].size != matches)
        return fault_set(f, "damaged text: streams 3 to 5 differ in length");
    for (i = 0; i <= matches; i++) {
        const size_t run = get_number(&s[RUNS], &run_at);
        size_t length, distance;
        if (run_at > s[RUNS].size || run > size - at || run > s[LITERALS].size - literal) break;
        memcpy(text + at, s[LITERALS].bytes + literal, run);
        at += run;
        literal += run;
        if (i == matches) {
            if (at == size && literal == s[LITERALS].size && run_at == s[RUNS].size && length_at == s[LENGTHS].size)
                return 0;
            break;
        }
        length = get_number(&s[LENGTHS], &length_at) + MATCH_MIN;
        distance = s[DISTANCES].bytes[i] | (size_t)s[DISTANCES + 1].bytes[i] << 8 |
                   (size_t)s[DISTANCES + 2].bytes[i] << 16;
        if (length_at > s[LENGTHS].size || length > size - at || distance == 0 || distance > before + at) break;
        if (distance >= length) {
            memcpy(text + at, text + at - distance, length);
            at += length;
        } else {
            for (; length; length--, at++) text[at] = *(text + at - distance);
        }
    }
    return fault_set(f, "damaged text: sequence %zu of %zu does not fit (byte %zu of the text)", i, matches + 1, at);
}

int text_decode(void *text, size_t size, const void *coded, size_t coded_size, fault *f)
{
    return text_decode_after(text, size, 0, coded, coded_size, f);
}

int text_decode_after(void *text, size_t size, size_t before, const void *coded, size_t coded_size, fault *f)
{
    stream s[STREAMS];
    int failed;
    memset(s, 0, sizeof s);
    failed = size > TEXT_MAX ? fault_set(f, "damaged text: more than %u bytes", TEXT_MAX)
                             : get_streams(s, size, (const uint8_t *)coded, coded_size, f);
    if (!failed) failed = unpack((uint8_t *)text, size, before, s, f);
    streams_free(s);
    return failed;
}
