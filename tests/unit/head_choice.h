/* SPDX-License-Identifier: Apache-2.0 */
/* Reference for adaptive heads of a layer: the safe share of each head, then the best scores one
 * by one. */
#ifndef TEST_HEAD_CHOICE_H
#define TEST_HEAD_CHOICE_H

#include "cache/eviction/allocate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>

#include <cmocka.h>

enum { SINKS = 4 };

enum { MOST_HEADS = 5, MOST = 120 };

typedef struct layer {
    ag_eviction_view heads[MOST_HEADS];
    float importance[MOST_HEADS][MOST], values[MOST], scores[MOST_HEADS * MOST];
    uint32_t work[MOST], order[MOST_HEADS * MOST], keep[MOST_HEADS * MOST];
    uint32_t n_heads, n_keep[MOST_HEADS];
} layer;

static inline void make_head(layer *l, uint32_t h, uint32_t n, uint32_t n_recent) {
    l->heads[h] = (ag_eviction_view){.n_slots = n,
                                     .n_protected = SINKS < n ? SINKS : n,
                                     .n_recent = n_recent,
                                     .n_scored = n,
                                     .importance = l->importance[h],
                                     .work = l->work,
                                     .values = l->values};
}

static inline void allocate(layer *l, size_t total, uint32_t max) {
    const ag_allocation a = {
        .total = total, .max = max, .scores = l->scores, .order = l->order, .keep = l->keep};
    ag_evict_allocate(l->heads, l->n_heads, &a, l->n_keep);
}

static inline bool is_alive(const ag_eviction_view *v, uint32_t s) {
    return s < v->n_protected || s >= v->n_protected + v->n_expired;
}

static inline bool is_forced(const ag_eviction_view *v, uint32_t s) {
    return is_alive(v, s) && (s < v->n_protected || s + v->n_recent >= v->n_slots);
}

/* Returns how many slots of the head precede slot s in its order. */
static inline uint32_t rank_in_head(const ag_eviction_view *v, uint32_t s) {
    uint32_t before = 0;
    for (uint32_t o = 0; o < v->n_slots; o++) {
        if (o == s || !is_alive(v, o)) continue;
        if (is_forced(v, o) != is_forced(v, s)) before += is_forced(v, o);
        else
            before += v->importance[o] > v->importance[s] ||
                      (v->importance[o] == v->importance[s] && o < s);
    }
    return before;
}

/* Compares with the reference: forced slots and the best of each head up to its safe share, then
 * the best of the layer. */
static inline void expect_definition(layer *l, size_t total, uint32_t max) {
    uint32_t want[MOST_HEADS] = {0};
    size_t left = total;
    const uint32_t even = (uint32_t)(total / l->n_heads), safe = even / 5 ? even / 5 : 1;
    bool taken[MOST_HEADS][MOST] = {{false}};
    for (uint32_t h = 0; h < l->n_heads; h++) {
        const ag_eviction_view *v = &l->heads[h];
        for (uint32_t s = 0; s < v->n_slots; s++) {
            if (!is_alive(v, s) || (!is_forced(v, s) && rank_in_head(v, s) >= safe)) continue;
            if (rank_in_head(v, s) >= max) continue;
            taken[h][s] = true;
            want[h]++;
            left--;
        }
    }
    while (left--) {
        uint32_t best_h = MOST_HEADS, best_s = 0;
        for (uint32_t s = 0; s < MOST; s++) {
            for (uint32_t h = 0; h < l->n_heads; h++) {
                const ag_eviction_view *v = &l->heads[h];
                if (s >= v->n_slots || !is_alive(v, s) || taken[h][s]) continue;
                if (rank_in_head(v, s) >= max) continue;
                if (best_h < MOST_HEADS && l->importance[h][s] <= l->importance[best_h][best_s])
                    continue;
                best_h = h;
                best_s = s;
            }
        }
        if (best_h == MOST_HEADS) break; /* no head has more */
        taken[best_h][best_s] = true;
        want[best_h]++;
    }
    allocate(l, total, max);
    for (uint32_t h = 0; h < l->n_heads; h++) assert_int_equal(l->n_keep[h], want[h]);
}

#endif
