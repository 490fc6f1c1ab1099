/* SPDX-License-Identifier: Apache-2.0 */
/* Recurrent kernels of a set: the short convolution and the gated delta rule. Include a vec.h and
 * define SET(name) first. */
#ifndef AG_BACKEND_CPU_SIMD_RECURRENCE_H
#define AG_BACKEND_CPU_SIMD_RECURRENCE_H

#include "backend/cpu/simd/activations.h"
#include "core/recurrence.h"

#include <math.h>

void SET(ag_conv_row)(float *y, const float *const taps[], size_t n_taps, const float *w,
                      size_t stride, size_t n, bool with_silu) {
    for (size_t c = 0; c < n; c += LANES) {
        vec sum = v_zero();
        for (size_t j = 0; j < n_taps; j++) {
            sum = v_fma(load_some(w + j * stride, c, n), load_some(taps[j], c, n), sum);
        }
        store_some(y, c, n, with_silu ? silu(sum) : sum);
    }
}

INLINE float sum_of_lanes(vec a) {
    float lanes[LANES], sum = 0;
    v_store(lanes, a);
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

/* to = x * factor / sqrt(sum of squares + eps) */
static inline void divide_by_length(float *to, const float *x, size_t n, float eps, float factor) {
    vec squares = v_zero();
    for (size_t i = 0; i < n; i += LANES) {
        const vec v = load_some(x, i, n);
        squares = v_fma(v, v, squares);
    }
    const vec f = v_set(factor / sqrtf(sum_of_lanes(squares) + eps));
    for (size_t i = 0; i < n; i += LANES) store_some(to, i, n, v_mul(load_some(x, i, n), f));
}

/* A token's inputs to the columns of a head's matrix. */
typedef struct delta_columns {
    const ag_delta_token *t;
    const float *q, *k; /* [k_dim] */
    float *out, *state;
} delta_columns;

/* Updates n_vecs vectors of columns from j on; the last one may exceed the matrix. */
INLINE void update_columns(const delta_columns *d, size_t j, const int n_vecs) {
    enum { MOST = 4 };
    const size_t n = d->t->v_dim, rows = d->t->k_dim;
    const vec decay = v_set(d->t->decay);
    vec delta[MOST], sum[MOST];
    for (int v = 0; v < n_vecs; v++) delta[v] = sum[v] = v_zero();
    for (size_t i = 0; i < rows; i++) {
        const float *s = d->state + i * n;
        const vec k = v_set(d->k[i]);
        for (int v = 0; v < n_vecs; v++) {
            delta[v] = v_fma(k, load_some(s, j + (size_t)v * LANES, n), delta[v]);
        }
    }
    for (int v = 0; v < n_vecs; v++) {
        const vec known = v_mul(delta[v], decay);
        const vec wanted = load_some(d->t->v, j + (size_t)v * LANES, n);
        delta[v] = v_mul(v_sub(wanted, known), v_set(d->t->beta));
    }
    for (size_t i = 0; i < rows; i++) {
        float *s = d->state + i * n;
        const vec k = v_set(d->k[i]), q = v_set(d->q[i]);
        for (int v = 0; v < n_vecs; v++) {
            const size_t at = j + (size_t)v * LANES;
            const vec now = v_fma(k, delta[v], v_mul(decay, load_some(s, at, n)));
            store_some(s, at, n, now);
            sum[v] = v_fma(q, now, sum[v]);
        }
    }
    for (int v = 0; v < n_vecs; v++) store_some(d->out, j + (size_t)v * LANES, n, sum[v]);
}

void SET(ag_delta_token)(float *out, float *state, const ag_delta_token *t, float *scratch) {
    float *q = scratch, *k = scratch + t->k_dim;
    divide_by_length(q, t->q, t->k_dim, t->eps, 1 / sqrtf((float)t->k_dim));
    divide_by_length(k, t->k, t->k_dim, t->eps, 1);
    const delta_columns d = {.t = t, .q = q, .k = k, .out = out, .state = state};
    size_t j = 0;
    for (; j + 4 * LANES <= t->v_dim; j += 4 * LANES) update_columns(&d, j, 4);
    for (; j < t->v_dim; j += LANES) update_columns(&d, j, 1);
}

#endif
