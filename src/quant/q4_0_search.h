/* SPDX-License-Identifier: Apache-2.0 */
/* Scale search for Q4_0 weights, written with the vectors of the including file. It tries several
 * scales at once, one in each lane. No sum crosses lanes, so every instruction set gives the same
 * bits. For the same reason products are fused with additions only where they are exact: of two
 * levels, and of a level with a scale that is a half.
 *
 * The including file must define first: vec, LANES (4, 8 or 16), INLINE; v_set, v_load, v_store,
 * v_add, v_sub, v_mul, v_div, v_min, v_max; v_fma, a * b + c rounded once or twice; v_halves,
 * two values in half of the lanes each; and q4_0_store_scales(), which converts 8 values to
 * halves and back to floats, with 0 for those that are not finite. */
#ifndef AG_QUANT_Q4_0_SEARCH_H
#define AG_QUANT_Q4_0_SEARCH_H

#include "quant/quant.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum {
    Q4_0_CANDIDATES = 16,
    Q4_0_SCALES = 8,
    /* Blocks of each step before the next step. Their work overlaps while one waits for a
     * result. */
    Q4_0_BATCH = 8,
};

/* Blocks and the state of their search. */
typedef struct q4_0_batch {
    const float *x[Q4_0_BATCH];
    float extreme[Q4_0_BATCH]; /* value of largest magnitude */
    float fits[Q4_0_BATCH * Q4_0_CANDIDATES], gains[Q4_0_BATCH * Q4_0_CANDIDATES];
    float scale[Q4_0_BATCH * Q4_0_SCALES], inverse[Q4_0_BATCH * Q4_0_SCALES];
    float error[Q4_0_BATCH * Q4_0_SCALES];
    uint16_t stored[Q4_0_BATCH * Q4_0_SCALES];
} q4_0_batch;

/* Returns the nearest level -8..7 of v, ties to even: the large sum has no fraction bits. */
INLINE vec q4_0_levels(vec v) {
    const vec to_integer = v_set(0x1.8p23f);
    return v_sub(v_add(v_min(v_max(v, v_set(-8)), v_set(7)), to_integer), to_integer);
}

INLINE int32_t q4_0_bits(float f) {
    int32_t b;
    memcpy(&b, &f, sizeof b);
    return b;
}

/* Levels tried for the value of largest magnitude. Levels beyond -8 and 7 clip it, which helps
 * if it is an outlier. Positive levels map the opposite sign to -8. */
static const float q4_0_targets[Q4_0_CANDIDATES] = {-9.0f,  -8.65f, -8.3f, -7.95f, -7.55f, -7.2f,
                                                    -6.85f, -6.5f,  7.8f,  7.55f,  7.3f,   7.1f,
                                                    6.9f,   6.65f,  6.4f,  6.2f};

/* Computes the least-squares scales of the levels that x has at LANES targets, of one or two
 * blocks. Also computes the share of its sum of squares that they explain. */
INLINE void q4_0_fit_two(float *fits, float *gains, const float *const *x, const vec *inverse) {
    vec xq[2] = {v_set(0), v_set(0)}, qq[2] = {v_set(0), v_set(0)};
#pragma GCC unroll 32
    for (int i = 0; i < AG_QK; i++) {
        for (int j = 0; j < 2; j++) {
            const vec v = v_set(x[j][i]), q = q4_0_levels(v_mul(v, inverse[j]));
            xq[j] = v_add(xq[j], v_mul(v, q));
            qq[j] = v_fma(q, q, qq[j]);
        }
    }
    for (int j = 0; j < 2; j++) {
        const vec fit = v_div(xq[j], qq[j]);
        v_store(fits + j * LANES, fit);
        v_store(gains + j * LANES, v_mul(xq[j], fit));
    }
}

/* Lists the candidate scales as they are stored: those of the two other rules, and three near
 * the fits of each of the two best targets. */
INLINE void q4_0_candidates(uint16_t *stored, float *scale, float *inverse, const float *fits,
                            const float *gains, float extreme) {
    static const float divisors[Q4_0_SCALES] = {7, -8, 1, 1, 0.99f, 0.99f, 1.01f, 1.01f};
    /* Positive floats compare like their bits; the last four bits hold the index. */
    int32_t keys[Q4_0_CANDIDATES], first = 0, second = 0;
    for (int s = 0; s < Q4_0_CANDIDATES; s++) {
        keys[s] = (q4_0_bits(gains[s]) & ~(Q4_0_CANDIDATES - 1)) | (Q4_0_CANDIDATES - 1 - s);
        first = keys[s] > first ? keys[s] : first;
    }
    for (int s = 0; s < Q4_0_CANDIDATES; s++) {
        const int32_t other = keys[s] == first ? 0 : keys[s];
        second = other > second ? other : second;
    }
    const float f = fits[Q4_0_CANDIDATES - 1 - (first & (Q4_0_CANDIDATES - 1))];
    const float g = fits[Q4_0_CANDIDATES - 1 - (second & (Q4_0_CANDIDATES - 1))];
    const float base[Q4_0_SCALES] = {fabsf(extreme), extreme, f, g, f, g, f, g};
    for (int s = 0; s < Q4_0_SCALES; s++) scale[s] = base[s] / divisors[s];
    q4_0_store_scales(stored, scale);
    for (int s = 0; s < Q4_0_SCALES; s++) {
        const float quotient = 1 / scale[s];
        inverse[s] = scale[s] != 0 ? quotient : 0;
    }
}

/* Measures the errors of two times LANES scales. */
INLINE void q4_0_measure_two(q4_0_batch *b, size_t at) {
    vec sum[2] = {v_set(0), v_set(0)}, minus_d[2], inverse[2];
    const float *x[2], *other[2]; /* blocks of the first and of the last lane */
    for (size_t j = 0; j < 2; j++) {
        const size_t s = at + j * LANES;
        minus_d[j] = v_sub(v_set(0), v_load(b->scale + s));
        inverse[j] = v_load(b->inverse + s);
        x[j] = b->x[s / Q4_0_SCALES];
        other[j] = b->x[(s + LANES - 1) / Q4_0_SCALES];
    }
#pragma GCC unroll 32
    for (int i = 0; i < AG_QK; i++) {
        for (int j = 0; j < 2; j++) {
            const vec v =
                (int)LANES > (int)Q4_0_SCALES ? v_halves(x[j][i], other[j][i]) : v_set(x[j][i]);
            const vec e = v_fma(q4_0_levels(v_mul(v, inverse[j])), minus_d[j], v);
            sum[j] = v_add(sum[j], v_mul(e, e));
        }
    }
    for (size_t j = 0; j < 2; j++) v_store(b->error + at + j * LANES, sum[j]);
}

INLINE void q4_0_write(ag_block_q4_0 *out, const uint16_t *stored, const float *inverse,
                       const float *error, const float *x) {
    int32_t min = INT32_MAX;
    for (int s = 0; s < Q4_0_SCALES; s++) {
        const int32_t key = (q4_0_bits(error[s]) & ~(Q4_0_SCALES - 1)) | s;
        min = key < min ? key : min;
    }
    const int chosen = min & (Q4_0_SCALES - 1);
    /* Two levels plus 136, which turns them into nibbles, in the last bits of 2^23. */
    float pairs[AG_QK / 2];
    for (int i = 0; i < AG_QK / 2; i += LANES) {
        const vec inv = v_set(inverse[chosen]);
        const vec low = q4_0_levels(v_mul(v_load(x + i), inv));
        const vec high = q4_0_levels(v_mul(v_load(x + i + AG_QK / 2), inv));
        v_store(pairs + i, v_add(v_fma(high, v_set(16), low), v_set(0x1p23f + 136)));
    }
    out->d = stored[chosen];
    for (int i = 0; i < AG_QK / 2; i++) out->qs[i] = (uint8_t)q4_0_bits(pairs[i]);
}

/* Quantises the first n <= Q4_0_BATCH blocks; n must be a multiple of LANES / 4. The caller sets
 * x and extreme of each. extreme must be at least 2^-26 in magnitude, since smaller blocks have
 * no scale, and extreme / -8 must be finite as a half. The error is never larger than that of
 * the other rules. */
INLINE void q4_0_round(ag_block_q4_0 *out, q4_0_batch *b, size_t n) {
    for (size_t at = 0; at < n * Q4_0_CANDIDATES; at += 2 * LANES) {
        const float *x[2];
        vec inverse[2];
        for (size_t j = 0; j < 2; j++) {
            const size_t s = at + j * LANES;
            x[j] = b->x[s / Q4_0_CANDIDATES];
            inverse[j] = v_div(v_load(q4_0_targets + s % Q4_0_CANDIDATES),
                               v_set(b->extreme[s / Q4_0_CANDIDATES]));
        }
        q4_0_fit_two(b->fits + at, b->gains + at, x, inverse);
    }
    for (size_t i = 0; i < n; i++) {
        const size_t s = i * Q4_0_SCALES, p = i * Q4_0_CANDIDATES;
        q4_0_candidates(b->stored + s, b->scale + s, b->inverse + s, b->fits + p, b->gains + p,
                        b->extreme[i]);
    }
    for (size_t s = 0; s < n * Q4_0_SCALES; s += 2 * LANES) q4_0_measure_two(b, s);
    for (size_t i = 0; i < n; i++) {
        const size_t s = i * Q4_0_SCALES;
        q4_0_write(&out[i], b->stored + s, b->inverse + s, b->error + s, b->x[i]);
    }
}

#endif
