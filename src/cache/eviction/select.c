/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/select.h"

#include <string.h>

/* Selection by counting. A histogram over the upper bits of the scores finds the bin of the last
 * slot to retain; only slots of that bin are compared. */
enum { BIN_BITS = 12, N_BINS = 1 << BIN_BITS };

/* Maps scores to integers in the same order. No score is NaN. */
static uint32_t rank_of(float score) {
    uint32_t bits;
    score += 0.0f; /* -0 and 0 are equal */
    memcpy(&bits, &score, sizeof bits);
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

static uint32_t bin_of(float score) { return rank_of(score) >> (32 - BIN_BITS); }

/* Returns the bin of the n-th highest score (from 0) of slots [first, end). Subtracts from *n
 * the slots in higher bins. */
static uint32_t bin_with(const float *score, uint32_t first, uint32_t end, uint32_t *n) {
    uint32_t count[N_BINS] = {0}, bin = N_BINS - 1;
    for (uint32_t s = first; s < end; s++) count[bin_of(score[s])]++;
    for (; *n >= count[bin]; bin--) *n -= count[bin];
    return bin;
}

static void swap(uint32_t *a, uint32_t *b) {
    uint32_t t = *a;
    *a = *b;
    *b = t;
}

/* Moves a pivot to its final index among slots[begin, end) and returns its index; better slots
 * precede it. The loop has no branch on comparisons, which would be mispredicted: every slot is
 * swapped with the first worse one. */
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

/* Returns the n-th slot (from 0) in the order. Rearranges slots[0, count). */
static uint32_t nth_slot(const float *score, uint32_t *slots, uint32_t count, uint32_t n) {
    uint32_t begin = 0, end = count;
    for (;;) {
        uint32_t at = partition(score, slots, begin, end);
        if (at == n) return slots[at];
        if (at < n) begin = at + 1;
        else end = at;
    }
}

/* Returns the n-th best slot (from 0) of [first, end): larger scores first, then lower slots. work:
 * scratch of end - first slots. */
static uint32_t last_retained(const float *score, uint32_t *work, uint32_t first, uint32_t end,
                              uint32_t n) {
    const uint32_t bin = bin_with(score, first, end, &n);
    uint32_t count = 0;
    for (uint32_t s = first; s < end; s++) {
        work[count] = s;
        count += bin_of(score[s]) == bin;
    }
    return nth_slot(score, work, count, n);
}

void ag_evict_select(const ag_eviction_view *v, const float *score, uint32_t n_recent,
                     uint32_t n_keep, uint32_t *keep) {
    uint32_t first = v->n_protected + v->n_expired, n = 0;
    uint32_t newest = v->n_slots - n_recent;
    if (newest < first) newest = first;
    uint32_t n_chosen = n_keep - v->n_protected - (v->n_slots - newest);
    for (uint32_t s = 0; s < v->n_protected; s++) keep[n++] = s;
    if (n_chosen) {
        const uint32_t last = last_retained(score, v->work, first, newest, n_chosen - 1);
        const float bound = score[last];
        for (uint32_t s = first; s < newest && n < v->n_protected + n_chosen; s++) {
            keep[n] = s;
            n += (uint32_t)((score[s] > bound) | ((score[s] == bound) & (s <= last)));
        }
    }
    for (uint32_t s = newest; s < v->n_slots; s++) keep[n++] = s;
}

void ag_select_best(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                    uint32_t n_keep, uint32_t *keep) {
    (void)user, (void)p;
    ag_evict_select(v, v->importance, v->n_recent, n_keep, keep);
}

void ag_select_newest(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                      uint32_t n_keep, uint32_t *keep) {
    (void)user, (void)p;
    uint32_t n = 0;
    for (uint32_t s = 0; s < v->n_protected; s++) keep[n++] = s;
    for (uint32_t s = v->n_slots - (n_keep - n); n < n_keep; s++) keep[n++] = s;
}
