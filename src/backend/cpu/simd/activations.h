/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels of a set. Include a vec.h and define SET(name) first. Elements that do not
 * fill a vector use the same arithmetic. */
#ifndef AG_BACKEND_CPU_SIMD_ACTIVATIONS_H
#define AG_BACKEND_CPU_SIMD_ACTIVATIONS_H

#include "backend/cpu/simd/tanh.h"

#include <string.h>

/* Returns a * sigmoid(u). With t = exp(-|u|) the sigmoid is 1 / (1 + t), or t / (1 + t) for
 * negative u, which neither overflows nor loses digits far from 0. */
INLINE vec times_sigmoid(vec a, vec u) {
    const vec one = v_set(1.0f), t = v_exp(v_sub(v_zero(), v_abs(u)));
    const vec top = v_if_less(u, v_zero(), t, one);
    return v_mul(a, v_div(top, v_add(one, t)));
}

INLINE vec silu(vec a) { return times_sigmoid(a, a); }

/* gelu(a): (1 + tanh(u)) / 2 is sigmoid(2 u), with u = sqrt(2 / pi) * (a + 0.044715 a^3). */
INLINE vec gelu(vec a) {
    const vec factor = v_fma(v_mul(a, a), v_set(0.0713548163f), v_set(1.59576912f));
    return times_sigmoid(a, v_mul(a, factor));
}

/* Loads x[i], x[i + 1], ...; elements from n on are 0. */
INLINE vec load_some(const float *x, size_t i, size_t n) {
    if (n - i >= LANES) return v_load(x + i);
    float lanes[LANES] = {0};
    memcpy(lanes, x + i, (n - i) * sizeof *x);
    return v_load(lanes);
}

INLINE void store_some(float *x, size_t i, size_t n, vec v) {
    if (n - i >= LANES) {
        v_store(x + i, v);
        return;
    }
    float lanes[LANES];
    v_store(lanes, v);
    memcpy(x + i, lanes, (n - i) * sizeof *x);
}

void SET(ag_silu_mul)(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        store_some(a, i, n, v_mul(silu(load_some(a, i, n)), load_some(b, i, n)));
    }
}

void SET(ag_gelu_mul)(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        store_some(a, i, n, v_mul(gelu(load_some(a, i, n)), load_some(b, i, n)));
    }
}

void SET(ag_sigmoid_mul)(float *a, const float *b, size_t n) {
    for (size_t i = 0; i < n; i += LANES) {
        store_some(a, i, n, times_sigmoid(load_some(b, i, n), load_some(a, i, n)));
    }
}

void SET(ag_swiglu_clamped)(float *a, const float *b, float limit, size_t n) {
    const vec high = v_set(limit), low = v_set(-limit), one = v_set(1.0f);
    for (size_t i = 0; i < n; i += LANES) {
        const vec x = load_some(a, i, n), y = load_some(b, i, n);
        const vec g = v_if_less(high, x, high, x);
        const vec u = v_if_less(y, low, low, v_if_less(high, y, high, y));
        store_some(a, i, n, v_mul(times_sigmoid(g, v_mul(g, v_set(1.702f))), v_add(u, one)));
    }
}

void SET(ag_softcap)(float *x, float cap, size_t n) {
    const vec limit = v_set(cap);
    for (size_t i = 0; i < n; i += LANES) {
        store_some(x, i, n, v_mul(v_tanh(v_div(load_some(x, i, n), limit)), limit));
    }
}

#endif
