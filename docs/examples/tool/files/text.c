/* text.c - how a .bsnap file holds the header text of a .safetensors file: docs/FORMAT.md, section 8.2.
 * Part of bitsnap's command-line tool; MIT licence, see bitsnap.h.
 *
 * A header text is a table with a line for each tensor, and mostly like the line before: LZ77 takes what is
 * repeated, the codec's own lists take what is left.
 *
 * The encoder looks for the cheapest way through a piece of the text, as far as it knows the costs: the streams are coded
 * with prefix codes, so it prices bytes by how often the stream has had them. Prices come from the pieces before, and in
 * short texts from a first run over the same one. */
#include "../system/posix.h"

#include "text.h"

#include "bitsnap.h"
#include "bytes.h"
#include "record.h"

#include <stdlib.h>
#include <string.h>

enum {
    STREAMS = 6,
    LITERALS = 0, RUNS = 1, LENGTHS = 2, DISTANCES = 3, /* DISTANCES + k: byte k */
    SIZES = 8,            /* bytes that tell how long the streams are */
    MATCH_MIN = 4,
    WINDOW = 3 * TEXT_PIECE, /* bytes of the base's text that stand before a piece, at most */
    HASH_BITS = 14,
    RING = 131072,        /* a window and a piece */
    DEPTH = 16,           /* candidates looked at in a chain */
    ENOUGH = 192,         /* a match of this length is taken without weighing */
    CANDIDATES = 48       /* matches of different lengths remembered at one place */
};

typedef struct stream {
    uint8_t bytes[TEXT_PIECE]; /* no stream has more than the piece that it is of */
    size_t size;
} stream;

/* The part of the base's text that stands before the piece that begins with byte `at`. */
static size_t window_begin(size_t at, size_t base_size)
{
    const size_t begin = at < TEXT_PIECE ? 0 : at - TEXT_PIECE;
    return begin < base_size ? begin : base_size;
}

static size_t window_end(size_t at, size_t base_size)
{
    const size_t end = window_begin(at, base_size) + WINDOW;
    return end < base_size ? end : base_size;
}

/* ================================================================================= ENCODER */

/* One place of a piece: the cheapest way to it that is known. */
typedef struct place {
    uint32_t price;    /* in 1/16 bit */
    uint32_t length;   /* of the match that leads here, 0: a literal does */
    uint32_t distance; /* of that match */
    uint32_t run;      /* literals since the last match */
    uint32_t last;     /* distance of the last match on the way here */
} place;

typedef struct encoder {
    uint8_t text[WINDOW + TEXT_PIECE]; /* the piece, behind what stands before it */
    size_t begin, size;        /* where the piece begins, and ends */
    uint32_t head[1 << HASH_BITS], chain[RING]; /* places + 1 with the same hash: the latest, the one before each */
    uint32_t count[STREAMS][256]; /* how often each byte was in the stream */
    uint32_t price[STREAMS][256];
    place places[TEXT_PIECE + 1];
    stream out[STREAMS];
} encoder;

static void put(encoder *e, int which, uint8_t byte)
{
    stream *s = &e->out[which];
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

static uint32_t *bucket(encoder *e, size_t at)
{
    return &e->head[(load32(e->text + at) * 2654435761u) >> (32 - HASH_BITS)];
}

static void remember(encoder *e, size_t at)
{
    uint32_t *head;
    if (e->size - at < MATCH_MIN) return;
    head = bucket(e, at);
    e->chain[at] = *head;
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
static unsigned find_matches(encoder *e, size_t at, match found[CANDIDATES])
{
    size_t longest = MATCH_MIN - 1;
    unsigned n = 0, depth = DEPTH;
    uint32_t next;
    if (e->size - at < MATCH_MIN) return 0;
    next = *bucket(e, at);
    while (next && depth-- && n < CANDIDATES) {
        const size_t from = next - 1, distance = at - from;
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
        next = e->chain[from];
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

/* `last`: a distance that is a good guess. */
static void parse(encoder *e, size_t last)
{
    place *p = e->places;
    match found[CANDIDATES];
    size_t begin = e->begin, anchor = begin, i;
    for (i = 0; i < begin; i++) remember(e, i);
    while (begin < e->size) {
        const size_t n = e->size - begin;
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

/* The streams of a piece as lists; their sizes stand before them. */
static int put_lists(bitsnap *b, const stream s[STREAMS], uint8_t *coded, size_t capacity, size_t *at, fault *f)
{
    int which;
    *at = SIZES;
    for (which = 0; which < STREAMS; which++) {
        size_t size;
        if (which <= DISTANCES) bytes_store(coded + 2 * which, s[which].size, 2);
        if (!s[which].size) continue;
        if (bitsnap_list_encode(b, coded + *at, capacity - *at, &size, s[which].bytes, s[which].size))
            return fault_set(f, "the header text could not be coded: %s", bitsnap_message(b));
        *at += size;
    }
    return 0;
}

/* Bytes of the piece that is next: it ends behind a tensor, where there is one. */
static size_t piece_size(const char *text, size_t left)
{
    size_t n = TEXT_PIECE;
    if (left <= TEXT_PIECE) return left;
    while (n > TEXT_PIECE / 2 && memcmp(text + n - 2, "},", 2)) n--;
    return n > TEXT_PIECE / 2 ? n : TEXT_PIECE;
}

static int codec_for(bitsnap *b, fault *f)
{
    memset(b, 0, sizeof *b);
    b->level = BITSNAP_BEST;
    b->workspace_size = BITSNAP_WORKSPACE;
    b->workspace = malloc(b->workspace_size);
    return b->workspace ? 0 : fault_memory(f);
}

/* The piece of n bytes from `at` on as a record at `to`, which has room for it. */
static int put_piece(encoder *e, bitsnap *b, uint8_t *to, size_t *size, const char *text, size_t at, size_t n, const char *base,
                     size_t base_size, unsigned passes, fault *f)
{
    const size_t from = window_begin(at, base_size), end = window_end(at, base_size);
    int which;
    if (end > from) memcpy(e->text, base + from, end - from);
    memcpy(e->text + (end - from), text + at, n);
    e->begin = end - from;
    e->size = e->begin + n;
    while (passes--) {
        memset(e->head, 0, sizeof e->head);
        for (which = 0; which < STREAMS; which++) e->out[which].size = 0;
        parse(e, end > at ? end - at : e->begin);
    }
    if (put_lists(b, e->out, to + TEXT_PREFIX, TEXT_CODED_MAX(n), size, f)) return 1;
    memcpy(to, text_magic, 4);
    store32(to + 4, (uint32_t)n);
    store32(to + 8, (uint32_t)*size);
    *size += TEXT_PREFIX;
    store64(to + *size, bitsnap_hash(to, *size));
    *size += 8;
    return 0;
}

int text_encode(uint8_t **coded, size_t *coded_size, const void *text, size_t size, const void *base, size_t base_size, fault *f)
{
    const char *p = (const char *)text;
    size_t capacity = 0, at, n, i;
    encoder *e;
    bitsnap b;
    int failed = 0;
    *coded = NULL;
    *coded_size = 0;
    if (size > TEXT_MAX) return fault_set(f, "a header text of more than %u bytes", TEXT_MAX);
    e = (encoder *)malloc(sizeof *e);
    if (!e) return fault_memory(f);
    memset(e->count, 0, sizeof e->count);
    failed = codec_for(&b, f);
    for (i = 0; i < size && i < TEXT_PIECE; i++) e->count[LITERALS][(uint8_t)p[i]]++;
    for (at = 0; at < size && !failed; at += n) {
        const size_t most = TEXT_PREFIX + TEXT_CODED_MAX(TEXT_PIECE) + 8;
        size_t used = 0;
        n = piece_size(p + at, size - at);
        if (capacity - *coded_size < most) {
            uint8_t *more;
            capacity = 2 * capacity + most;
            more = (uint8_t *)realloc(*coded, capacity);
            if (!more) failed = fault_memory(f);
            else *coded = more;
        }
        if (!failed) failed = put_piece(e, &b, *coded + *coded_size, &used, p, at, n, (const char *)base, base_size, at ? 1 : 4, f);
        *coded_size += used;
    }
    free(b.workspace);
    free(e);
    if (!failed) return 0;
    free(*coded);
    *coded = NULL;
    *coded_size = 0;
    return 1;
}

/* ================================================================================= DECODER */

static int fail(fault *f, unsigned rule, const char *what, size_t at)
{
    return fault_set(f, "damaged text: %s (S%u, byte %zu of it)", what, rule, at);
}

/* The streams, none of which can be longer than a piece of `size` bytes needs; `at`: where they stand, for messages. */
static int get_streams(bitsnap *b, stream s[STREAMS], size_t size, const uint8_t *coded, size_t coded_size, size_t at, fault *f)
{
    const size_t matches = size / MATCH_MIN;
    const size_t limit[DISTANCES + 1] = { size, matches + 1 + size / 255, matches + size / 255, matches };
    size_t done = SIZES, used;
    int which;
    if (coded_size < SIZES) return fail(f, 11, "no room for its streams", at);
    for (which = 0; which < STREAMS; which++) {
        const int known = which < DISTANCES ? which : DISTANCES;
        s[which].size = (size_t)bytes_load(coded + 2 * known, 2);
        if (s[which].size > limit[known]) return fail(f, 12, "a stream that is too long", at + 2 * (size_t)known);
        if (!s[which].size) continue;
        if (bitsnap_list_decode(b, s[which].bytes, s[which].size, coded + done, coded_size - done, &used))
            return fail(f, 12, bitsnap_message(b), at + done + (size_t)b->error.offset);
        done += used;
    }
    return done == coded_size ? 0 : fail(f, 12, "bytes are left over behind its streams", at + done);
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

/* The sequences; `before` bytes stand before the piece. */
static int unpack(uint8_t *text, size_t size, size_t before, const stream s[STREAMS])
{
    const size_t matches = s[DISTANCES].size;
    size_t at = 0, literal = 0, run_at = 0, length_at = 0, i;
    for (i = 0; i <= matches; i++) {
        const size_t run = get_number(&s[RUNS], &run_at);
        size_t length, distance;
        if (run_at > s[RUNS].size || run > size - at || run > s[LITERALS].size - literal) return 1;
        memcpy(text + at, s[LITERALS].bytes + literal, run);
        at += run;
        literal += run;
        if (i == matches) break;
        length = get_number(&s[LENGTHS], &length_at) + MATCH_MIN;
        distance = s[DISTANCES].bytes[i] | (size_t)s[DISTANCES + 1].bytes[i] << 8 | (size_t)s[DISTANCES + 2].bytes[i] << 16;
        if (length_at > s[LENGTHS].size || length > size - at || distance == 0 || distance > before + at) return 1;
        for (; length; length--, at++) text[at] = *(text + at - distance);
    }
    return at != size || literal != s[LITERALS].size || run_at != s[RUNS].size || length_at != s[LENGTHS].size;
}

typedef struct decoder {
    uint8_t text[WINDOW + TEXT_PIECE]; /* a piece, behind what stands before it */
    stream s[STREAMS];
} decoder;

int text_decode(void *text, size_t size, const void *base, size_t base_size, const void *coded, size_t coded_size, fault *f)
{
    const uint8_t *p = (const uint8_t *)coded;
    decoder *d = (decoder *)malloc(sizeof *d);
    size_t at = 0, done = 0;
    bitsnap b;
    int failed = codec_for(&b, f);
    if (!failed && !d) failed = fault_memory(f);
    while (!failed && at < size) {
        const size_t from = window_begin(at, base_size), before = window_end(at, base_size) - from;
        uint64_t whole;
        size_t n;
        if (coded_size - done < TEXT_PREFIX || memcmp(p + done, text_magic, 4)) {
            failed = fail(f, 10, "a piece is missing", done);
            break;
        }
        n = load32(p + done + 4);
        whole = TEXT_PREFIX + (uint64_t)load32(p + done + 8) + 8;
        if (!n || n > TEXT_PIECE || n > size - at || whole > coded_size - done) {
            failed = fail(f, 11, "a piece of a size that cannot be", done);
            break;
        }
        if (bitsnap_hash(p + done, (size_t)whole - 8) != load64(p + done + (size_t)whole - 8)) {
            failed = fail(f, 9, "the check does not match", done);
            break;
        }
        if (before) memcpy(d->text, (const uint8_t *)base + from, before);
        failed = get_streams(&b, d->s, n, p + done + TEXT_PREFIX, (size_t)whole - TEXT_PREFIX - 8, done + TEXT_PREFIX, f);
        if (!failed && unpack(d->text + before, n, before, d->s)) failed = fail(f, 13, "its sequences do not give it", done);
        if (!failed) memcpy((uint8_t *)text + at, d->text + before, n);
        at += n;
        done += (size_t)whole;
    }
    if (!failed && done != coded_size) failed = fail(f, 10, "bytes behind its last piece", done);
    free(b.workspace);
    free(d);
    return failed;
}
