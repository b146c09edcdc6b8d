/* Hostile input of the checkpoint engine: a segment in shared memory with any seals, maps, contents and frames, and with valid
 * checks; and the manifest of its files. No access is out of bounds, and an accepted manifest lists ascending steps. */
#include "fuzz.h"

#define BITSNAP_FILE_IMPLEMENTATION
#include "../docs/examples/file/bitsnap_file.h"
#include "../docs/examples/engine/bitsnap_engine.c"
#include "../docs/examples/engine/engine_disk.c"

enum { MANY = 3000, BUDGET = 192 << 10, SEAL = 0, MAP = 1, CONTENTS = 2, ANYTHING = 3 };

static uint8_t *image; /* a segment with two snapshots */
static segment whole;
static char told[256];

static void hear(void *context, const char *message)
{
    (void)context;
    snprintf(told, sizeof told, "%s", message);
}

static void make_image(void)
{
    char place[] = "/tmp/fuzz_engine.XXXXXX";
    static float a[MANY], b[MANY];
    static uint16_t c[MANY];
    engine_tensor t[3] = { { "master", BITSNAP_F32, a, MANY, 0, ENGINE_EXACT, NULL, NULL, NULL }, { "v", BITSNAP_F32, b, MANY, 60, ENGINE_MOMENT2, NULL, NULL, NULL },
                           { "weights", BITSNAP_BF16, c, MANY, 0, ENGINE_EXACT, &t[0], NULL, NULL } };
    engine_options o;
    engine_error error;
    engine *e;
    unsigned i, step;
    REQUIRE(mkdtemp(place));
    memset(&o, 0, sizeof o);
    o.name = "fuzz", o.directory = place, o.budget = BUDGET, o.v_cells = 8, o.say = hear;
    REQUIRE(!engine_open(&e, &o, &error));
    for (step = 1; step <= 2; step++) {
        for (i = 0; i < MANY; i++) a[i] = (float)(i * 7 % 1009) + (i == step ? 1.0f : 0), b[i] = (float)(1 + i % 97);
        round_elements(c, a, MANY);
        c[0] ^= step == 2; /* the two snapshots differ in whether a piece has a frame */
        REQUIRE(!engine_snapshot(e, step, t, 3, &error));
    }
    whole = e->s;
    image = (uint8_t *)malloc((size_t)e->s.size);
    REQUIRE(image);
    memcpy(image, e->s.base, (size_t)e->s.size);
    whole.fd = -1;
    engine_close(e, ENGINE_REMOVE);
    rmdir(place);
}

static void read_slot(const segment *s, unsigned slot)
{
    static worker w;
    static uint64_t elements[PIECE], master[PIECE];
    snapshot v;
    uint64_t i;
    const char *wrong = snapshot_open(&v, s, slot);
    if (!wrong) {
        REQUIRE(v.seal.chunks <= s->chunks);
        for (i = 0; i < v.d.header->pieces && i < 64; i++) {
            REQUIRE(v.d.pieces[i].tensor < v.d.header->tensors && v.d.pieces[i].count <= PIECE);
            (void)decode_piece(&v, i, &w, elements, master);
        }
        (void)verify(&v);
    }
    snapshot_free(&v);
}

/* Changes bytes in a copy of the segment (6 bytes of input each), repairs its checks, and reads it. */
static void fuzz_segment(const uint8_t *data, size_t size, unsigned where)
{
    segment s = whole;
    slot_seal seal;
    unsigned slot = ENGINE_SLOTS, i;
    s.base = fuzz_room((size_t)s.size);
    memcpy(s.base, image, (size_t)s.size);
    for (i = 0; i < ENGINE_SLOTS; i++)
        if (read_seal(&s, i, &seal) && seal.step == 2) slot = i;
    REQUIRE(slot < ENGINE_SLOTS);
    for (; size >= 6; data += 6, size -= 6) {
        segment_slot *x;
        uint64_t at = (uint64_t)data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16;
        const uint64_t chunk = UINT64_C(1) << s.chunk_log2;
        uint8_t *part = s.base;
        uint64_t room = s.size;
        x = slot_of(&s, slot);
        if (where == SEAL) part = (uint8_t *)x, room = sizeof x->seal;
        if (where == MAP) part = (uint8_t *)map_of(&s, slot), room = 8 * sizeof(map_entry);
        if (where == CONTENTS) part = s.base + arena_at(s.chunks) + map_of(&s, slot)[(seal.contents_at >> s.chunk_log2) % 8].chunk % s.chunks * chunk + seal.contents_at % chunk, room = 800;
        at %= room;
        if (part + at < s.base + s.size) part[at] = data[3];
        if (data[4] & 1 && part + at + 8 <= s.base + s.size) memset(part + at, data[5] & 1 ? 0xFF : 0, 8);
    }
    if (where != ANYTHING) {
        slot_seal *x = &slot_of(&s, slot)->seal;
        snapshot v;
        const uint64_t entries = x->chunks <= s.chunks ? x->chunks : 0;
        x->map_check = bitsnap_hash(map_of(&s, slot), (size_t)entries * sizeof(map_entry));
        memset(&v, 0, sizeof v);
        v.s = &s, v.seal = *x, v.map = map_of(&s, slot);
        if (entries && x->contents_size <= 1 << 20) {
            uint8_t *bytes = (uint8_t *)malloc((size_t)x->contents_size + 1);
            uint64_t i2;
            int inside = bytes != NULL;
            for (i2 = 0; i2 < entries; i2++) inside = inside && v.map[i2].chunk < s.chunks;
            if (inside && !snapshot_read(&v, x->contents_at, x->contents_size, bytes)) x->contents_check = bitsnap_hash(bytes, (size_t)x->contents_size);
            free(bytes);
        }
        x->check = seal_check(x);
    }
    for (i = 0; i < ENGINE_SLOTS; i++) read_slot(&s, i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_drop(0);
    if (!image) make_image();
    if (!size) return 0;
    if (data[0] < 4) {
        fuzz_segment(data + 1, size - 1, data[0]);
    } else if (data[0] == 4) {
        const char *text = (const char *)fuzz_copy(data + 1, size - 1);
        disk_manifest m;
        unsigned i;
        if (disk_parse(&m, text, size - 1)) return 0;
        for (i = 0; i < m.count; i++) REQUIRE(i < DISK_ENTRIES && (!i || m.entries[i - 1].step < m.entries[i].step));
    } else { /* a manifest whose check matches */
        static char text[FUZZ_SEED_MOST + 64];
        const size_t n = size - 1 < FUZZ_SEED_MOST ? size - 1 : FUZZ_SEED_MOST;
        size_t all;
        disk_manifest m;
        memcpy(text, data + 1, n);
        all = n + (size_t)snprintf(text + n, 32, "check %016" PRIx64 "\n", bitsnap_hash(text, n));
        (void)disk_parse(&m, (const char *)fuzz_copy((const uint8_t *)text, all), all);
    }
    return 0;
}

size_t fuzz_seed(unsigned number, uint8_t *to, size_t room)
{
    static const uint8_t changes[][13] = { { SEAL, 8, 0, 0, 1, 0, 0, 40, 0, 0, 0, 1, 1 }, { MAP, 8, 0, 0, 200, 0, 0, 12, 0, 0, 0, 1, 1 }, { CONTENTS, 16, 0, 0, 9, 0, 0, 80, 0, 0, 0, 1, 1 },
                                           { CONTENTS, 40, 1, 0, 9, 1, 1, 200, 1, 0, 3, 0, 0 }, { ANYTHING, 0, 200, 0, 7, 0, 0, 0, 100, 1, 1, 0, 0 } };
    static const char *const texts[] = { "\4bitsnap engine 1\ncheck 0123456789abcdef\n", "\5bitsnap engine 1\n1 10 4 run-0000000001.bsnap\n20 300 4 run-0000000020.bsnap\n" };
    const unsigned first = sizeof changes / sizeof *changes;
    size_t size = 0;
    if (number < first) memcpy(to, changes[number], size = sizeof changes[number]);
    else if (number - first < sizeof texts / sizeof *texts) memcpy(to, texts[number - first], size = strlen(texts[number - first]));
    REQUIRE(size <= room);
    return size;
}
