/* hash.h - XXH3-64 with seed 0 (FORMAT.md, annex B) of device memory, by a group. MIT licence, see bitsnap.h. */
#ifndef OFFLOAD_HASH_H
#define OFFLOAD_HASH_H

#include "prelude.h"

#define P1 0x9E3779B185EBCA87
#define P2 0xC2B2AE3D27D4EB4F
#define P3 0x165667B19E3779F9
#define P4 0x85EBCA77C2B2AE63
#define P5 0x27D4EB2F165667C5
#define Q1 0x9E3779B1u
#define Q2 0x85EBCA77u
#define Q3 0xC2B2AE3Du
CONSTANT u64 hash_secret[24] = {
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072, 0x78E5C0CC4EE679CB,
    0x2172FFCC7DD05A82, 0x8E2443F7744608B8, 0x4C263A81E69035E0, 0xCB00C391BB52283C, 0xA32E531B8B65D088,
    0x4EF90DA297486471, 0xD8ACDEA946EF1938, 0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9, 0x3159B4CD4BE0518A,
    0x647378D9C97E9FC8, 0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5, 0x49DAF0B751DD0D17, 0x9E68D429265516D3,
    0xFCA1477D58BE162B, 0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF
};
CONSTANT u64 hash_begin[8] = { Q3, P1, P2, P3, P4, Q2, P5, Q1 };

FN u64 secret64(u32 at)
{
    const u32 bits = at % 8 * 8;
    return bits ? hash_secret[at / 8] >> bits | hash_secret[at / 8 + 1] << (64 - bits) : hash_secret[at / 8];
}
FN u64 hash_fold(u64 a, u64 b) { return (a * b) ^ MULHI64(a, b); }
FN u64 hash_end(u64 h)
{
    h = (h ^ h >> 37) * 0x165667919E3779F9;
    return h ^ h >> 32;
}
FN u64 hash_end_short(u64 h)
{
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}
FN u64 hash_mix(const Source s, u32 at, u32 secret)
{
    return hash_fold(read64(s, at) ^ secret64(secret), read64(s, at + 8) ^ secret64(secret + 8));
}

/* Hashes at most 240 bytes, by one work-item. */
PART u64 hash_few(const Source s, u32 at, u32 n)
{
    u64 a, c;
    u32 i;
    if (n == 0) return hash_end_short(secret64(56) ^ secret64(64));
    if (n < 4) {
        const u32 x = read8(s, at) << 16 | read8(s, at + n / 2) << 24 | read8(s, at + n - 1) | n << 8;
        return hash_end_short((u64)x ^ (u32)(secret64(0) ^ secret64(4)));
    }
    if (n <= 8) {
        a = ((u64)read32(s, at + n - 4) | (u64)read32(s, at) << 32) ^ secret64(8) ^ secret64(16);
        a ^= (a << 49 | a >> 15) ^ (a << 24 | a >> 40);
        a *= 0x9FB21C651E98DF25;
        a = (a ^ ((a >> 35) + n)) * 0x9FB21C651E98DF25;
        return a ^ a >> 28;
    }
    if (n <= 16) {
        a = read64(s, at) ^ secret64(24) ^ secret64(32);
        c = read64(s, at + n - 8) ^ secret64(40) ^ secret64(48);
        return hash_end(n + ((u64)PERM((u32)a, 0, 0x0123) << 32 | PERM((u32)(a >> 32), 0, 0x0123)) + c + hash_fold(a, c));
    }
    a = n * P1;
    if (n <= 128) {
        for (i = 0; i <= (n - 1) / 32; i++) a += hash_mix(s, at + 16 * i, 32 * i) + hash_mix(s, at + n - 16 * (i + 1), 32 * i + 16);
        return hash_end(a);
    }
    for (i = 0; i < 8; i++) a += hash_mix(s, at + 16 * i, 16 * i);
    a = hash_end(a);
    for (; i < n / 16; i++) a += hash_mix(s, at + 16 * i, 16 * (i - 8) + 3);
    return hash_end(a + hash_mix(s, at + n - 16, 119));
}

/* More than 240 bytes: what the stripes of a KiB add to the eight sums does not depend on the sums. So all KiB are hashed in
 * parallel, each by four work-items with two sums each. Then the KiB are combined in order. */
FN u32 hash_kibs(u32 n) { return n <= 240 ? 0 : (n - 1) / 1024 + 1; }

FN void hash_stripe(u64 sum[2], u64 a, u64 b, u64 secret_a, u64 secret_b)
{
    const u64 x = a ^ secret_a, y = b ^ secret_b;
    sum[0] += (u64)(u32)x * (u32)(x >> 32) + b;
    sum[1] += (u64)(u32)y * (u32)(y >> 32) + a;
}
FN void hash_kib(ARENA u64 *sums, const Source s, u32 at, u32 n, u32 kib, u32 pair)
{
    const u32 whole = (n - 1) / 1024, stripes = kib < whole ? 16 : (n - 1) % 1024 / 64;
    u64 sum[2] = { 0, 0 };
    u32 p = at + 1024 * kib + 8 * pair, i;
    if (kib < whole) { /* bytes follow, so read_word is not needed */
        GLOBAL const u32 *w = s.words + p / 4;
        const u32 bits = p % 4 * 8;
        UNROLL
        for (i = 0; i < 16; i++, w += 16) {
            const u32 b = w[1], c = w[2], d = w[3];
            hash_stripe(sum, FUNNEL(w[0], b, bits) | (u64)FUNNEL(b, c, bits) << 32,
                        FUNNEL(c, d, bits) | (u64)FUNNEL(d, bits ? w[4] : 0, bits) << 32, hash_secret[i + pair], hash_secret[i + pair + 1]);
        }
    } else {
        for (i = 0; i < stripes; i++, p += 64)
            hash_stripe(sum, read64(s, p), read64(s, p + 8), hash_secret[i + pair], hash_secret[i + pair + 1]);
        p = at + n - 64 + 8 * pair;
        hash_stripe(sum, read64(s, p), read64(s, p + 8), secret64(121 + 8 * pair), secret64(129 + 8 * pair));
    }
    sums[8 * kib + pair] = sum[0];
    sums[8 * kib + pair + 1] = sum[1];
}
FN void hash_chain(ARENA u64 *sums, u32 n, u32 lane) /* leaves the sum in sums[lane] */
{
    const u32 whole = (n - 1) / 1024;
    u64 a = hash_begin[lane];
    u32 i;
    for (i = 0; i < whole; i++) {
        a += sums[8 * i + lane];
        a = (a ^ a >> 47 ^ hash_secret[16 + lane]) * Q1;
    }
    sums[lane] = a + sums[8 * whole + lane];
}
FN u64 hash_many_end(ARENA const u64 *sums, u32 n)
{
    u64 h = n * P1;
    u32 i;
    for (i = 0; i < 4; i++) h += hash_fold(sums[2 * i] ^ secret64(11 + 16 * i), sums[2 * i + 1] ^ secret64(19 + 16 * i));
    return hash_end(h);
}

/* Pieces of a source, hashed in parallel. */
#define PIECES 6
typedef struct Pieces {
    u32 count, at[PIECES], size[PIECES];
    u64 hash[PIECES];
} Pieces;

/* Computes p->hash, by the whole group. `sums` has 64 bytes for each KiB, also the last, partial one. */
PART void hash_pieces(LOCAL Pieces *p, ARENA u64 *sums, const Source s)
{
    u32 i, k, kibs = 0, first[PIECES];
    SYNC();
    UNROLL
    for (k = 0; k < PIECES; k++) {
        first[k] = kibs;
        if (k < p->count) kibs += hash_kibs(p->size[k]);
    }
    for (i = THREAD; i < 4 * kibs; i += THREADS) {
        u32 piece = 0, from = 0;
        UNROLL
        for (k = 1; k < PIECES; k++)
            if (k < p->count && i / 4 >= first[k]) {
                piece = k;
                from = first[k];
            }
        hash_kib(sums + 8 * from, s, p->at[piece], p->size[piece], i / 4 - from, i % 4 * 2);
    }
    SYNC();
    UNROLL
    for (k = 0; k < PIECES; k++)
        if (k < p->count && THREAD / 8 == k % (THREADS / 8) && hash_kibs(p->size[k])) hash_chain(sums + 8 * first[k], p->size[k], THREAD % 8);
    SYNC();
    UNROLL
    for (k = 0; k < PIECES; k++)
        if (k < p->count && THREAD == WARP * k % THREADS)
            p->hash[k] = hash_kibs(p->size[k]) ? hash_many_end(sums + 8 * first[k], p->size[k]) : hash_few(s, p->at[k], p->size[k]);
    SYNC();
}

#endif
