/* SPDX-License-Identifier: Apache-2.0 */
#include "core/checksum.h"

#include "core/little_endian.h"

#include <string.h>

/* Odd numbers with evenly spread bits: digits of pi and e. */
static const uint64_t FIRST = 0x243f6a8885a308d3u, SECOND = 0xb7e151628aed2a6bu;

static uint64_t rotate_left(uint64_t x, int by) { return x << by | x >> (64 - by); }

/* Four independent chains, so that multiplications overlap. */
static void add_stripe(uint64_t *lane, const uint8_t *p) {
    for (int i = 0; i < AG_CHECKSUM_LANES; i++)
        lane[i] = rotate_left(lane[i] ^ ag_get_number(p + 8 * i, 8) * FIRST, 29) * SECOND;
}

void ag_checksum_begin(ag_checksum *c) {
    *c = (ag_checksum){.n = 0};
    for (int i = 0; i < AG_CHECKSUM_LANES; i++) c->lane[i] = rotate_left(FIRST, 7 * i + 1);
}

void ag_checksum_add(ag_checksum *c, const void *bytes, size_t n) {
    const uint8_t *p = bytes;
    c->n += n;
    if (c->n_pending) {
        size_t space = AG_CHECKSUM_STRIPE - c->n_pending, n_copied = n < space ? n : space;
        memcpy(c->pending + c->n_pending, p, n_copied);
        c->n_pending += n_copied;
        p += n_copied;
        n -= n_copied;
        if (c->n_pending < AG_CHECKSUM_STRIPE) return;
        add_stripe(c->lane, c->pending);
        c->n_pending = 0;
    }
    for (; n >= AG_CHECKSUM_STRIPE; n -= AG_CHECKSUM_STRIPE, p += AG_CHECKSUM_STRIPE)
        add_stripe(c->lane, p);
    if (n) memcpy(c->pending, p, n);
    c->n_pending = n;
}

uint64_t ag_checksum_value(const ag_checksum *c) {
    ag_checksum end = *c;
    memset(end.pending + end.n_pending, 0, AG_CHECKSUM_STRIPE - end.n_pending);
    add_stripe(end.lane, end.pending);
    uint64_t h = end.n * SECOND;
    for (int i = 0; i < AG_CHECKSUM_LANES; i++) {
        h = (h ^ end.lane[i]) * FIRST;
        h ^= h >> 31;
    }
    return h;
}
