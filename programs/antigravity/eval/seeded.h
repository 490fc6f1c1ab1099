/* SPDX-License-Identifier: Apache-2.0 */
/* Seeded random numbers, the same on every machine (splitmix64). */
#ifndef ANTIGRAVITY_SEEDED_H
#define ANTIGRAVITY_SEEDED_H

#include <stddef.h>
#include <stdint.h>

typedef struct seeded {
    uint64_t state;
} seeded;

static inline uint64_t seeded_next(seeded *r) {
    uint64_t z = r->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Returns a number from 0 to n - 1; n > 0. */
static inline size_t seeded_below(seeded *r, size_t n) { return (size_t)(seeded_next(r) % n); }

#endif
