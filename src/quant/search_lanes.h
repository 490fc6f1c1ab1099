/* SPDX-License-Identifier: Apache-2.0 */
/* Scale search for sub-blocks, written with the vectors of the including file. Each lane holds one
 * sub-block. No sum crosses lanes and no product is fused with an addition, so every instruction
 * set gives the same bits.
 *
 * It tries the levels that follow from several scales. For each set of levels it computes the best
 * scale by least squares. w weighs the squared errors of x.
 *
 * The including file must define first: vec, LANES (4, 8 or 16), INLINE; v_set, v_load, v_store,
 * v_add, v_sub, v_mul, v_div, v_min, v_max, v_if_less. */
#ifndef AG_QUANT_SEARCH_LANES_H
#define AG_QUANT_SEARCH_LANES_H

#include "quant/superblock.h"

#include <stddef.h>
#include <string.h>

enum { SEARCH_SUB_BLOCKS = 16, SEARCH_VALUES = 32 };

/* One number for each sub-block. */
typedef float search_row[SEARCH_SUB_BLOCKS];

/* Sub-blocks in adjacent lanes: value i of sub-block p is x[i][p]. It becomes d * level, or d *
 * level - m. */
typedef struct search_batch {
    size_t n;        /* values of a sub-block */
    float low, high; /* range of levels */
    search_row x[SEARCH_VALUES], w[SEARCH_VALUES];
    search_row lowest, highest;
    search_row sum_w, sum_wx;
    search_row d, m; /* the best found; m is 0 without a base */
} search_batch;

/* Gathers n_sub_blocks <= SEARCH_SUB_BLOCKS sub-blocks of n consecutive values. Repeats them
 * until all lanes are filled. */
INLINE void search_gather(search_batch *b, const float *x, const float *w, size_t n_sub_blocks,
                          size_t n) {
    b->n = n;
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p++) {
        const size_t from = p % n_sub_blocks * n;
        for (size_t i = 0; i < n; i++) b->x[i][p] = x[from + i];
        for (size_t i = 0; i < n; i++) b->w[i][p] = w[from + i];
    }
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        vec lowest = v_load(b->x[0] + p), highest = lowest, sum_w = v_set(0), sum_wx = v_set(0);
        for (size_t i = 0; i < n; i++) {
            const vec v = v_load(b->x[i] + p), weight = v_load(b->w[i] + p);
            lowest = v_min(lowest, v);
            highest = v_max(highest, v);
            sum_w = v_add(sum_w, weight);
            sum_wx = v_add(sum_wx, v_mul(weight, v));
        }
        v_store(b->lowest + p, lowest);
        v_store(b->highest + p, highest);
        v_store(b->sum_w + p, sum_w);
        v_store(b->sum_wx + p, sum_wx);
    }
}

/* ---- levels ---- */

/* Returns the nearest level of x * inverse + offset, ties to even: the large sum has no fraction
 * bits. */
INLINE vec search_level(const search_batch *b, vec x, vec inverse, vec offset) {
    const vec to_integer = v_set(0x1.8p23f);
    const vec v = v_add(v_mul(x, inverse), offset);
    return v_sub(v_add(v_min(v_max(v, v_set(b->low)), v_set(b->high)), to_integer), to_integer);
}

/* Returns 1 / d, or 0 for 0. */
INLINE vec search_inverse(vec d) {
    const vec zero = v_set(0), inverse = v_div(v_set(1), d);
    return v_if_less(zero, d, inverse, v_if_less(d, zero, inverse, zero));
}

/* Weighted sums over the levels of LANES sub-blocks. */
typedef struct search_sums {
    vec q, qq, xq;
} search_sums;

INLINE search_sums search_measure(const search_batch *b, size_t p, vec inverse, vec offset) {
    search_sums s = {v_set(0), v_set(0), v_set(0)};
    for (size_t i = 0; i < b->n; i++) {
        const vec x = v_load(b->x[i] + p);
        const vec q = search_level(b, x, inverse, offset);
        const vec wq = v_mul(v_load(b->w[i] + p), q);
        s.q = v_add(s.q, wq);
        s.qq = v_add(s.qq, v_mul(wq, q));
        s.xq = v_add(s.xq, v_mul(wq, x));
    }
    return s;
}

/* ---- scales ---- */

/* Best scales of LANES sub-blocks. */
typedef struct search_best {
    vec d, m, gain; /* gain: part of the weighted squares of x that the scales explain */
} search_best;

INLINE void search_keep_better(search_best *best, vec d, vec m, vec gain) {
    best->d = v_if_less(best->gain, gain, d, best->d);
    best->m = v_if_less(best->gain, gain, m, best->m);
    best->gain = v_if_less(best->gain, gain, gain, best->gain);
}

INLINE void search_try_scale(search_best *best, const search_batch *b, size_t p, vec inverse) {
    const search_sums s = search_measure(b, p, inverse, v_set(0));
    const vec d = v_div(s.xq, s.qq);
    search_keep_better(best, d, v_set(0), v_if_less(v_set(0), s.qq, v_mul(d, s.xq), v_set(0)));
}

/* Targets of the value of largest magnitude, as a share of the lowest level. A share above 1
 * clips it, which helps if it is an outlier. Negative shares map it to a positive level. */
static const float search_candidates[] = {1.0f,   1.125f, 1.08f,  1.04f,  0.97f,  0.94f,
                                          0.9f,   0.86f,  -0.97f, -0.94f, -0.91f, -0.88f,
                                          -0.86f, -0.83f, -0.8f,  -0.77f};
enum {
    SEARCH_N_CANDIDATES = sizeof search_candidates / sizeof search_candidates[0],
    SEARCH_ROUNDS = 2,
};

INLINE vec search_extreme(const search_batch *b, size_t p) {
    const vec lowest = v_load(b->lowest + p), highest = v_load(b->highest + p);
    return v_if_less(v_sub(v_set(0), lowest), highest, highest, lowest);
}

/* Finds d of every sub-block; 0 if all of x is (nearly) 0. */
INLINE void search_scales(search_batch *b) {
    /* Types with more levels need closer targets. */
    const float spread = b->low < -16 ? 0.25f : b->low < -8 ? 0.5f : 1;
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        search_best best = {v_set(0), v_set(0), v_set(0)};
        const vec extreme = search_extreme(b, p), tiny = v_set(0x1p-100f);
        const vec one = search_inverse(
            v_if_less(v_mul(extreme, extreme), v_mul(tiny, tiny), v_set(0), extreme));
        for (size_t i = 0; i < SEARCH_N_CANDIDATES; i++) {
            const float sign = search_candidates[i] < 0 ? -1 : 1;
            const float level = b->low * (sign + (search_candidates[i] - sign) * spread);
            search_try_scale(&best, b, p, v_mul(v_set(level), one));
        }
        for (int i = 0; i < SEARCH_ROUNDS; i++) {
            search_try_scale(&best, b, p, search_inverse(best.d));
        }
        v_store(b->d + p, best.d);
        v_store(b->m + p, best.m);
    }
}

/* ---- scales and bases ---- */

/* Fits d and m by least squares over the levels; without signed_base m is not negative. */
INLINE void search_try_base(search_best *best, const search_batch *b, size_t p, vec inverse,
                            vec offset, bool signed_base) {
    const search_sums s = search_measure(b, p, inverse, offset);
    const vec zero = v_set(0), w = v_load(b->sum_w + p), wx = v_load(b->sum_wx + p);
    const vec determinant = v_sub(v_mul(w, s.qq), v_mul(s.q, s.q));
    vec d = v_div(v_sub(v_mul(w, s.xq), v_mul(wx, s.q)), determinant);
    vec m = v_div(v_sub(v_mul(d, s.q), wx), w);
    if (!signed_base) {
        d = v_if_less(m, zero, v_div(s.xq, s.qq), d);
        m = v_if_less(m, zero, zero, m);
    }
    vec gain = v_sub(v_mul(d, s.xq), v_mul(m, wx));
    gain = v_if_less(zero, determinant, v_if_less(zero, d, gain, zero), zero);
    search_keep_better(best, d, m, gain);
}

/* Clipping candidates {low, high}, in levels beyond the representable range. Negative: levels
 * stay unused. */
static const float search_clip_ratios[][2] = {
    {0, 0}, {0, -0.5f},   {0, 0.3f}, {0, 0.6f}, {0, 1}, {0, 1.5f}, {0.3f, 0.3f}, {0.6f, 0.6f},
    {1, 1}, {1.5f, 1.5f}, {0.5f, 0}, {1, 0},    {2, 0}, {2, 0.5f}, {0.5f, 2},    {-0.25f, -0.25f},
};
enum { SEARCH_N_CLIP_RATIOS = sizeof search_clip_ratios / sizeof search_clip_ratios[0] };

/* Finds d and m of every sub-block. Without signed_base the range includes 0. */
INLINE void search_bases(search_batch *b, bool signed_base) {
    for (size_t p = 0; p < SEARCH_SUB_BLOCKS; p += LANES) {
        search_best best = {v_set(0), v_set(0), v_set(0)};
        vec lowest = v_load(b->lowest + p), highest = v_load(b->highest + p);
        if (!signed_base) {
            lowest = v_min(lowest, v_set(0));
            highest = v_max(highest, v_set(0));
        }
        const vec one = v_div(v_set(1), v_max(v_sub(highest, lowest), v_set(0x1p-100f)));
        for (size_t i = 0; i < SEARCH_N_CLIP_RATIOS; i++) {
            const vec inverse =
                v_mul(v_set(b->high + search_clip_ratios[i][0] + search_clip_ratios[i][1]), one);
            const vec first = v_add(v_mul(lowest, inverse), v_set(search_clip_ratios[i][0]));
            search_try_base(&best, b, p, inverse, v_sub(v_set(0), first), signed_base);
        }
        for (int i = 0; i < SEARCH_ROUNDS; i++) {
            const vec inverse = search_inverse(best.d);
            search_try_base(&best, b, p, inverse, v_mul(best.m, inverse), signed_base);
        }
        v_store(b->d + p, best.d);
        v_store(b->m + p, best.m);
    }
}

#endif
