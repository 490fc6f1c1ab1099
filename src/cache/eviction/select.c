/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/select.h"

/* Whether slot a stays rather than slot b: a total order, so that the result is one. */
static bool stays_before(const float *score, uint32_t a, uint32_t b) {
    return score[a] > score[b] || (score[a] == score[b] && a < b);
}

static void swap(uint32_t *a, uint32_t *b) {
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Puts pivot slots[mid] where it belongs among slots[begin, end) and returns that index: before it
 * stand those that stay rather than it. Which way a comparison goes cannot be guessed, so nothing
 * branches on it: every slot changes places with the first that does not stay. */
static uint32_t partition(const float *score, uint32_t *slots, uint32_t begin, uint32_t end) {
    uint32_t last = end - 1, at = begin;
    swap(&slots[begin + (end - begin) / 2], &slots[last]);
    const uint32_t pivot = slots[last];
    const float bound = score[pivot];
    for (uint32_t i = begin; i < last; i++) {
        const uint32_t slot = slots[i];
        const float own = score[slot];
        slots[i] = slots[at];
        slots[at] = slot;
        at += (uint32_t)((own > bound) | ((own == bound) & (slot < pivot)));
    }
    swap(&slots[at], &slots[last]);
    return at;
}

/* The slot that is n-th (from 0) in the order; slots[0, count) is rearranged. */
static uint32_t nth_slot(const float *score, uint32_t *slots, uint32_t count, uint32_t n) {
    uint32_t begin = 0, end = count;
    for (;;) {
        uint32_t at = partition(score, slots, begin, end);
        if (at == n) return slots[at];
        if (at < n) begin = at + 1;
        else end = at;
    }
}

void ag_evict_select(const ag_eviction_view *v, const float *score, uint32_t n_recent,
                     uint32_t n_keep, uint32_t *keep) {
    uint32_t first = v->n_protected + v->n_expired, n = 0;
    uint32_t newest = v->n_slots - n_recent;
    if (newest < first) newest = first;
    uint32_t n_between = newest - first, n_chosen = n_keep - v->n_protected - (v->n_slots - newest);
    for (uint32_t s = 0; s < v->n_protected; s++) keep[n++] = s;
    if (n_chosen) {
        for (uint32_t i = 0; i < n_between; i++) v->work[i] = first + i;
        uint32_t last = nth_slot(score, v->work, n_between, n_chosen - 1);
        for (uint32_t s = first; s < newest; s++) {
            if (!stays_before(score, last, s)) keep[n++] = s;
        }
    }
    for (uint32_t s = newest; s < v->n_slots; s++) keep[n++] = s;
}

void ag_evict_oldest_first(const ag_eviction_view *v, uint32_t n_keep, uint32_t *keep) {
    uint32_t n = 0;
    for (uint32_t s = 0; s < v->n_protected; s++) keep[n++] = s;
    for (uint32_t s = v->n_slots - (n_keep - n); n < n_keep; s++) keep[n++] = s;
}
