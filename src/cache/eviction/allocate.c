/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/allocate.h"

#include "cache/eviction/select.h"

#include <float.h>
#include <math.h>

static uint32_t smaller_of(uint32_t a, uint32_t b) { return a < b ? a : b; }
static uint32_t larger_of(uint32_t a, uint32_t b) { return a > b ? a : b; }

static uint32_t n_unexpired(const ag_eviction_view *v) { return v->n_slots - v->n_expired; }

/* Returns a finite score, so that INFINITY and -INFINITY rank above and below all slots. */
static float score_of(const ag_eviction_view *v, uint32_t slot) {
    const float low = -FLT_MAX / 2;
    if (slot < v->n_scored) return fmaxf(low, fminf(v->importance[slot], FLT_MAX));
    return fmaxf(-FLT_MAX, low * (1 + (float)(v->n_slots - slot) * 0x1p-22f));
}

/* Writes ranks to v->values: INFINITY for slots that always stay, -INFINITY for slots that
 * cannot stay. */
static void rank_head(const ag_eviction_view *v, uint32_t safe, uint32_t max, uint32_t *keep) {
    const uint32_t unexpired = n_unexpired(v), limit = smaller_of(unexpired, max);
    const uint32_t forced = smaller_of(v->n_protected + v->n_recent, limit);
    const uint32_t min = smaller_of(larger_of(forced, safe), limit);
    for (uint32_t s = 0; s < v->n_slots; s++) v->values[s] = score_of(v, s);
    if (limit < unexpired) {
        ag_evict_select(v, v->values, v->n_recent, limit, keep);
        for (uint32_t s = 0, k = 0; s < v->n_slots; s++) {
            if (k < limit && keep[k] == s) k++;
            else v->values[s] = -INFINITY;
        }
    }
    ag_evict_select(v, v->values, v->n_recent, min, keep);
    for (uint32_t k = 0; k < min; k++) v->values[keep[k]] = INFINITY;
    for (uint32_t s = v->n_protected; s < v->n_protected + v->n_expired; s++)
        v->values[s] = -INFINITY;
}

void ag_evict_allocate(const ag_eviction_view *heads, uint32_t n_heads, const ag_allocation *a,
                       uint32_t *n_keep) {
    const size_t even = a->total / n_heads;
    const uint32_t safe = larger_of(1, (uint32_t)((double)even * AG_HEAD_SAFE_SHARE));
    uint32_t longest = 0;
    size_t total = 0;
    for (uint32_t h = 0; h < n_heads; h++) {
        longest = larger_of(longest, heads[h].n_slots);
        total += smaller_of(n_unexpired(&heads[h]), a->max);
        n_keep[h] = 0;
    }
    if (total > a->total) total = a->total;
    for (uint32_t h = 0; h < n_heads; h++) {
        const ag_eviction_view *v = &heads[h];
        rank_head(v, safe, a->max, a->keep);
        for (uint32_t s = 0; s < longest; s++)
            a->scores[(size_t)s * n_heads + h] = s < v->n_slots ? v->values[s] : -INFINITY;
    }
    const ag_eviction_view all = {.n_slots = longest * n_heads, .work = a->order};
    ag_evict_select(&all, a->scores, 0, (uint32_t)total, a->keep);
    for (size_t i = 0; i < total; i++) n_keep[a->keep[i] % n_heads]++;
}

/* Returns the slots of a head at this scale, rounded down and within its bounds. */
static uint32_t scaled(const ag_head_bounds *head, float share, double scale) {
    const double n = scale * (double)share;
    if (n <= head->min) return head->min;
    return n >= head->max ? larger_of(head->min, head->max) : (uint32_t)n;
}

static size_t sum_at(const ag_head_bounds *heads, const float *shares, uint32_t n_heads,
                     double scale) {
    size_t sum = 0;
    for (uint32_t h = 0; h < n_heads; h++) sum += scaled(&heads[h], shares[h], scale);
    return sum;
}

void ag_evict_allocate_shares(const ag_head_bounds *heads, const float *shares, uint32_t n_heads,
                              size_t total, uint32_t *n_keep) {
    double low = 0, high = 1, scale_of = 0;
    for (uint32_t h = 0; h < n_heads; h++) scale_of += (double)shares[h];
    if (scale_of > 0) high = (double)total / scale_of;
    for (int i = 0; i < 64 && sum_at(heads, shares, n_heads, high) < total; i++) high *= 2;
    for (int i = 0; i < 96; i++) {
        const double middle = low + (high - low) / 2;
        if (sum_at(heads, shares, n_heads, middle) <= total) low = middle;
        else high = middle;
    }
    size_t remaining = total;
    for (uint32_t h = 0; h < n_heads; h++) {
        n_keep[h] = scaled(&heads[h], shares[h], low);
        remaining -= n_keep[h] < remaining ? n_keep[h] : remaining;
    }
    /* Distributes what rounding has left over, also to heads whose share is 0. */
    for (bool any = true; remaining && any;) {
        any = false;
        for (uint32_t h = 0; h < n_heads && remaining; h++) {
            if (n_keep[h] >= heads[h].max) continue;
            any = true;
            n_keep[h]++;
            remaining--;
        }
    }
}
