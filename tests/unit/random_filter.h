/* SPDX-License-Identifier: Apache-2.0 */
/* Token filter with random masks, for tests of samplers: at each token the text is free, has one
 * allowed token, few of them, or about a half. */
#ifndef AG_TESTS_RANDOM_FILTER_H
#define AG_TESTS_RANDOM_FILTER_H

#include "core/fail.h"
#include "text/sampler_filter.h"

#include <string.h>

enum { RANDOM_FILTER_WORDS = 128 };

typedef struct random_filter {
    ag_token_filter base;
    uint32_t seed, n_accepted, n_excluded;
    uint32_t fails_at; /* tokens after which mask() fails; 0: never */
    bool rejects;      /* free text permits two thirds of the tokens */
    uint32_t mask[RANDOM_FILTER_WORDS];
} random_filter;

static inline bool random_filter_is_free(ag_token_filter *base) {
    const random_filter *f = (const random_filter *)base;
    return (f->seed + f->n_accepted) % 4 == 0 && !f->n_excluded && !f->fails_at;
}

static inline ag_status random_filter_mask(ag_token_filter *base, const uint32_t **mask,
                                           ag_error *err) {
    random_filter *f = (random_filter *)base;
    const uint32_t kind = (f->seed + f->n_accepted) % 4;
    uint32_t bits = f->seed * 7919 + f->n_accepted * 104729;
    if (f->fails_at && f->n_accepted >= f->fails_at)
        return AG_FAIL(err, LIMIT, "no mask after %u tokens", f->n_accepted);
    *mask = kind || f->n_excluded ? f->mask : NULL;
    for (size_t i = 0; kind && i < RANDOM_FILTER_WORDS; i++) {
        bits = (bits ^ bits >> 15) * 2654435761u + 1;
        f->mask[i] = kind == 1 ? 0 : kind == 2 ? bits & bits >> 9 & bits >> 19 : bits;
    }
    const size_t one = (bits >> 7) % base->n_vocab;
    if (kind == 1) f->mask[one / 32] = 1u << one % 32;
    return AG_OK;
}

static inline bool random_filter_permits(ag_token_filter *base, int32_t id) {
    random_filter *f = (random_filter *)base;
    if (!f->rejects || (f->seed + f->n_accepted) % 4 || (uint32_t)id % 3 != f->seed % 3)
        return true;
    if (!f->n_excluded++) memset(f->mask, 0xFF, sizeof f->mask);
    f->mask[id / 32] &= ~(1u << id % 32);
    return false;
}

static inline void random_filter_accept(ag_token_filter *base, int32_t id) {
    random_filter *f = (random_filter *)base;
    (void)id;
    f->n_accepted++;
    f->n_excluded = 0;
}

static inline void random_filter_reset(ag_token_filter *base) {
    random_filter *f = (random_filter *)base;
    f->n_accepted = f->n_excluded = 0;
}

static inline size_t random_filter_forced(ag_token_filter *base, int32_t *ids, size_t n) {
    (void)base, (void)ids, (void)n;
    return 0;
}

static inline random_filter make_random_filter(size_t n_vocab, uint32_t seed, bool rejects) {
    static const ag_token_filter_ops ops = {
        .mask = random_filter_mask,
        .is_free = random_filter_is_free,
        .permits = random_filter_permits,
        .accept = random_filter_accept,
        .reset = random_filter_reset,
        .forced = random_filter_forced,
    };
    return (random_filter){.base = {&ops, n_vocab}, .seed = seed, .rejects = rejects};
}

#endif
