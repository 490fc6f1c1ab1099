/* SPDX-License-Identifier: Apache-2.0 */
#include "sha256.h"

#include <stdio.h>
#include <string.h>

/* FIPS 180-4, 4.2.2: fractions of the cube roots of the first 64 primes. */
static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned n) { return x >> n | x << (32 - n); }

/* Round of 6.2.2, with its letters. The caller rotates the letters through `t`. kw: the round's
 * constant plus word. */
static inline void sha256_round(uint32_t v[8], unsigned t, uint32_t kw) {
    const uint32_t a = v[(0 - t) % 8], b = v[(1 - t) % 8], c = v[(2 - t) % 8];
    const uint32_t e = v[(4 - t) % 8], f = v[(5 - t) % 8], g = v[(6 - t) % 8];
    const uint32_t t1 = v[(7 - t) % 8] + kw + ((e & f) ^ (~e & g)) +
                        (rotate_right(e, 6) ^ rotate_right(e, 11) ^ rotate_right(e, 25));
    const uint32_t t2 = ((a & b) ^ (a & c) ^ (b & c)) +
                        (rotate_right(a, 2) ^ rotate_right(a, 13) ^ rotate_right(a, 22));
    v[(3 - t) % 8] += t1;
    v[(7 - t) % 8] = t1 + t2;
}

static void add_block(uint32_t state[8], const unsigned char *p) {
    uint32_t w[64], v[8];
    for (int t = 0; t < 16; t++, p += 4)
        w[t] = (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
    for (int t = 16; t < 64; t++) {
        uint32_t a = w[t - 15], b = w[t - 2];
        w[t] = w[t - 16] + (rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3) + w[t - 7] +
               (rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10);
    }
    memcpy(v, state, sizeof v);
    /* Eight rounds per iteration let the compiler resolve the indices. */
    for (unsigned t = 0; t < 64; t += 8)
        for (unsigned i = 0; i < 8; i++) sha256_round(v, i, round_constants[t + i] + w[t + i]);
    for (int i = 0; i < 8; i++) state[i] += v[i];
}

void sha256_begin(sha256 *s) {
    /* 5.3.3: fractions of the square roots of the first 8 primes. */
    *s = (sha256){.state = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c,
                            0x1f83d9ab, 0x5be0cd19}};
}

void sha256_add(sha256 *s, const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    size_t waiting = (size_t)(s->n_bytes % sizeof s->block);
    s->n_bytes += n;
    if (waiting) {
        size_t fill = sizeof s->block - waiting;
        if (fill > n) fill = n;
        memcpy(s->block + waiting, p, fill);
        if (waiting + fill < sizeof s->block) return;
        add_block(s->state, s->block);
        p += fill;
        n -= fill;
    }
    for (; n >= sizeof s->block; p += sizeof s->block, n -= sizeof s->block) add_block(s->state, p);
    if (n) memcpy(s->block, p, n);
}

void sha256_hex(sha256 *s, char hex[SHA256_HEX]) {
    /* 5.1.1: a one bit, zeros, and the length in bits at the end of a block. */
    static const unsigned char padding[64] = {0x80};
    unsigned char length[8];
    for (int i = 0; i < 8; i++) length[i] = (unsigned char)(s->n_bytes * 8 >> (56 - 8 * i));
    size_t waiting = (size_t)(s->n_bytes % 64);
    sha256_add(s, padding, waiting < 56 ? 56 - waiting : 120 - waiting);
    sha256_add(s, length, sizeof length);
    for (int i = 0; i < 8; i++) snprintf(hex + 8 * i, 9, "%08x", s->state[i]);
}
