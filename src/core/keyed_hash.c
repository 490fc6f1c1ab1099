/* SPDX-License-Identifier: Apache-2.0 */
#include "core/keyed_hash.h"

#include "platform/random.h"
#include "platform/thread.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

uint64_t ag_unpredictable(void) {
    static atomic_ullong counter;
    struct timespec now = {0};
    uint64_t x;
    if (ag_random_bytes(&x, sizeof x)) return x;
    timespec_get(&now, TIME_UTC);
    x = (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec + (uintptr_t)&now;
    return (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u + atomic_fetch_add(&counter, 1);
}

static uint64_t key[2];
static ag_once key_once = AG_ONCE_INIT;

static void draw_key(void) {
    key[0] = ag_unpredictable();
    key[1] = ag_unpredictable();
}

typedef struct sip {
    uint64_t v[4];
} sip;

static uint64_t rotate(uint64_t x, unsigned by) { return x << by | x >> (64 - by); }

static void sip_round(sip *s) {
    uint64_t *v = s->v;
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

static void add_word(sip *s, uint64_t word) {
    s->v[3] ^= word;
    sip_round(s);
    s->v[0] ^= word;
}

uint64_t ag_keyed_hash(const void *bytes, size_t n) {
    const unsigned char *p = bytes;
    ag_call_once(&key_once, draw_key);
    sip s = {{key[0] ^ 0x736f6d6570736575u, key[1] ^ 0x646f72616e646f6du,
              key[0] ^ 0x6c7967656e657261u, key[1] ^ 0x7465646279746573u}};
    uint64_t last = (uint64_t)n << 56;
    size_t i = 0;
    for (; n - i >= 8; i += 8) {
        uint64_t word;
        memcpy(&word, p + i, sizeof word);
        add_word(&s, word);
    }
    for (size_t k = 0; i + k < n; k++) last |= (uint64_t)p[i + k] << 8 * k;
    add_word(&s, last);
    s.v[2] ^= 0xff;
    for (int i_round = 0; i_round < 3; i_round++) sip_round(&s);
    return s.v[0] ^ s.v[1] ^ s.v[2] ^ s.v[3];
}
