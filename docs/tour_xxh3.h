/* tour_xxh3.h - Annex B of docs/FORMAT.md: XXH3-64 with seed 0. tour.c includes it; a port takes it from a library of its
 * language. MIT licence, see bitsnap.h. */
#include <stdint.h>

#define P1 UINT64_C(0x9E3779B185EBCA87)
#define P2 UINT64_C(0xC2B2AE3D27D4EB4F)
#define P3 UINT64_C(0x165667B19E3779F9)
#define P4 UINT64_C(0x85EBCA77C2B2AE63)
#define P5 UINT64_C(0x27D4EB2F165667C5)
#define Q1 UINT64_C(0x9E3779B1)
#define Q2 UINT64_C(0x85EBCA77)
#define Q3 UINT64_C(0xC2B2AE3D)
#define U1 UINT64_C(0x165667919E3779F9)
#define U2 UINT64_C(0x9FB21C651E98DF25)

static const uint8_t secret[192 + 1] =
    "\xB8\xFE\x6C\x39\x23\xA4\x4B\xBE\x7C\x01\x81\x2C\xF7\x21\xAD\x1C\xDE\xD4\x6D\xE9\x83\x90\x97\xDB"
    "\x72\x40\xA4\xA4\xB7\xB3\x67\x1F\xCB\x79\xE6\x4E\xCC\xC0\xE5\x78\x82\x5A\xD0\x7D\xCC\xFF\x72\x21"
    "\xB8\x08\x46\x74\xF7\x43\x24\x8E\xE0\x35\x90\xE6\x81\x3A\x26\x4C\x3C\x28\x52\xBB\x91\xC3\x00\xCB"
    "\x88\xD0\x65\x8B\x1B\x53\x2E\xA3\x71\x64\x48\x97\xA2\x0D\xF9\x4E\x38\x19\xEF\x46\xA9\xDE\xAC\xD8"
    "\xA8\xFA\x76\x3F\xE3\x9C\x34\x3F\xF9\xDC\xBB\xC7\xC7\x0B\x4F\x1D\x8A\x51\xE0\x4B\xCD\xB4\x59\x31"
    "\xC8\x9F\x7E\xC9\xD9\x78\x73\x64\xEA\xC5\xAC\x83\x34\xD3\xEB\xC3\xC5\x81\xA0\xFF\xFA\x13\x63\xEB"
    "\x17\x0D\xDD\x51\xB7\xF0\xDA\x49\xD3\x16\x55\x26\x29\xD4\x68\x9E\x2B\x16\xBE\x58\x7D\x47\xA1\xFC"
    "\x8F\xF8\xB8\xD1\x7A\xD0\x31\xCE\x45\xCB\x3A\x8F\x95\x16\x04\x28\xAF\xD7\xFB\xCA\xBB\x4B\x40\x7E";

static uint64_t u32(const uint8_t *p) { return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24; }
static uint64_t u64(const uint8_t *p) { return u32(p) | u32(p + 4) << 32; }
static uint64_t s32(uint64_t at) { return u32(secret + at); }
static uint64_t s64(uint64_t at) { return u64(secret + at); }
static uint64_t rot(uint64_t a, unsigned s) { return a << s | a >> (64 - s); }

static uint64_t fold(uint64_t a, uint64_t b) /* the upper half of the product comes from four products of halves */
{
    const uint64_t al = a & 0xFFFFFFFF, ah = a >> 32, bl = b & 0xFFFFFFFF, bh = b >> 32;
    const uint64_t x = ah * bl + (al * bl >> 32), y = al * bh + (x & 0xFFFFFFFF);
    return (a * b) ^ (ah * bh + (x >> 32) + (y >> 32));
}

static uint64_t mix(const uint8_t *p, uint64_t s) { return fold(u64(p) ^ s64(s), u64(p + 8) ^ s64(s + 8)); }

static uint64_t end_long(uint64_t h) /* end of Annex B */
{
    h = (h ^ h >> 37) * U1;
    return h ^ h >> 32;
}

static uint64_t end_short(uint64_t h) /* end' of Annex B */
{
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

static void stripe(uint64_t *a, const uint8_t *p, uint64_t s)
{
    unsigned i;
    for (i = 0; i < 8; i++) {
        const uint64_t c = u64(p + 8 * i), d = c ^ s64(s + 8 * i);
        a[i] += (d & 0xFFFFFFFF) * (d >> 32);
        a[i ^ 1] += c;
    }
}

static uint64_t xxh3_short(const uint8_t *p, uint64_t n) /* up to 16 bytes */
{
    uint64_t a, c, h, i, reversed = 0;
    if (n == 0) return end_short(s64(56) ^ s64(64));
    if (n <= 3) return end_short((p[n - 1] | n << 8 | (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 24) ^ s32(0) ^ s32(4));
    if (n <= 8) {
        h = (u32(p + n - 4) + (u32(p) << 32)) ^ s64(8) ^ s64(16);
        h = (h ^ rot(h, 49) ^ rot(h, 24)) * U2;
        h = (h ^ ((h >> 35) + n)) * U2;
        return h ^ h >> 28;
    }
    a = u64(p) ^ s64(24) ^ s64(32);
    c = u64(p + n - 8) ^ s64(40) ^ s64(48);
    for (i = 0; i < 8; i++) reversed = reversed << 8 | (a >> 8 * i & 255);
    return end_long(n + reversed + c + fold(a, c));
}

static uint64_t xxh3(const uint8_t *p, uint64_t n)
{
    uint64_t a[8] = { Q3, P1, P2, P3, P4, Q2, P5, Q1 }, h = n * P1, i, j;
    if (n <= 16) return xxh3_short(p, n);
    if (n <= 128) {
        for (i = 0; i <= (n - 1) / 32; i++) h += mix(p + 16 * i, 32 * i) + mix(p + n - 16 * (i + 1), 32 * i + 16);
        return end_long(h);
    }
    if (n <= 240) {
        for (i = 0; i < 8; i++) h += mix(p + 16 * i, 16 * i);
        for (h = end_long(h); i < n / 16; i++) h += mix(p + 16 * i, 16 * (i - 8) + 3);
        return end_long(h + mix(p + n - 16, 119));
    }
    for (i = 0; i < (n - 1) / 64; i++) {
        stripe(a, p + 64 * i, 8 * (i % 16));
        for (j = 0; i % 16 == 15 && j < 8; j++) a[j] = (a[j] ^ a[j] >> 47 ^ s64(128 + 8 * j)) * Q1;
    }
    stripe(a, p + n - 64, 121);
    for (i = 0; i < 4; i++) h += fold(a[2 * i] ^ s64(11 + 16 * i), a[2 * i + 1] ^ s64(19 + 16 * i));
    return end_long(h);
}
