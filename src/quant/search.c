/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/search.h"

#include <math.h>

/* ---- sums over a part ---- */

/* Sums are taken in 8 lanes, whatever the width of the machine's vectors. */
static inline float join(const float v[AG_LANES]) {
    return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

float ag_search_error(const ag_search *s, float d, float m) {
    float sum[AG_LANES] = {0};
    const float inverse = ag_inverse_of(d);
    for (size_t i = 0; i < s->n; i += AG_LANES) {
        for (size_t l = 0; l < AG_LANES; l++) {
            const float x = s->x[i + l];
            const float e = x - (d * ag_search_level((x + m) * inverse, s->low, s->high) - m);
            sum[l] += s->w[i + l] * (e * e);
        }
    }
    return join(sum);
}

void ag_search_levels(uint8_t *q, const ag_search *s, float d, float m) {
    const float inverse = ag_inverse_of(d);
    for (size_t i = 0; i < s->n; i++) {
        const float level = ag_search_level((s->x[i] + m) * inverse, s->low, s->high);
        q[i] = (uint8_t)(int)(level - s->low);
    }
}

/* Weighted sums over the levels that x has with these scales. */
typedef struct moments {
    float w, q, x, qq, xq;
} moments;

static moments measure(const ag_search *s, float inverse, float m) {
    float w[AG_LANES] = {0}, q[AG_LANES] = {0}, x[AG_LANES] = {0}, qq[AG_LANES] = {0},
          xq[AG_LANES] = {0};
    for (size_t i = 0; i < s->n; i += AG_LANES) {
        for (size_t l = 0; l < AG_LANES; l++) {
            const float v = s->x[i + l], weight = s->w[i + l];
            const float level = ag_search_level((v + m) * inverse, s->low, s->high);
            w[l] += weight;
            q[l] += weight * level;
            x[l] += weight * v;
            qq[l] += weight * (level * level);
            xq[l] += weight * (v * level);
        }
    }
    return (moments){join(w), join(q), join(x), join(qq), join(xq)};
}

/* ---- a scale alone ---- */

/* Where the value of largest magnitude is placed, as a share of the lowest level: beyond 1 it is
 * cut off, which pays when it is alone; with the other sign it is among the positive levels. Few
 * levels are worth a wider search. */
static const float places[] = {1.0f,   1.125f, 1.08f,  1.04f,  0.97f,  0.94f,  0.9f,  0.86f, 0.81f,
                               -0.97f, -0.94f, -0.91f, -0.88f, -0.86f, -0.83f, -0.8f, -0.77f};
enum { N_PLACES = sizeof places / sizeof places[0], ROUNDS = 3 };

typedef struct best_scale {
    float d, gain; /* what the scale explains of the weighted squares of x */
} best_scale;

static bool try_scale(best_scale *best, const ag_search *s, float inverse) {
    const moments sums = measure(s, inverse, 0);
    if (!(sums.qq > 0)) return false;
    const float d = sums.xq / sums.qq, gain = d * sums.xq;
    if (!(gain > best->gain)) return false;
    *best = (best_scale){d, gain};
    return true;
}

float ag_search_scale(const ag_search *s) {
    const float extreme = ag_extreme_of(s->x, s->n);
    if (fabsf(extreme) < 0x1p-100f) return 0;
    best_scale best = {0, 0};
    /* With many levels the places lie closer. */
    const float closer = s->low < -16 ? 0.25f : s->low < -8 ? 0.5f : 1;
    for (size_t i = 0; i < N_PLACES; i++) {
        const float one = places[i] < 0 ? -1 : 1;
        try_scale(&best, s, s->low * (one + (places[i] - one) * closer) / extreme);
    }
    for (int i = 0; i < ROUNDS && best.d != 0 && try_scale(&best, s, 1 / best.d);) i++;
    return best.d;
}

/* ---- a scale and a base ---- */

typedef struct best_pair {
    float d, m, error;
    bool signed_base;
} best_pair;

/* Least squares over the levels of x with these; m = -base of x. */
static bool try_pair(best_pair *best, const ag_search *s, float inverse, float m) {
    const moments a = measure(s, inverse, m);
    const float determinant = a.w * a.qq - a.q * a.q;
    float d = determinant > 0 ? (a.w * a.xq - a.x * a.q) / determinant : 0;
    m = a.w > 0 ? (d * a.q - a.x) / a.w : 0;
    if (m < 0 && !best->signed_base) {
        m = 0;
        d = a.qq > 0 ? a.xq / a.qq : 0;
    }
    if (!(d > 0)) return false;
    const float error = ag_search_error(s, d, m);
    if (!(error < best->error)) return false;
    best->d = d;
    best->m = m;
    best->error = error;
    return true;
}

/* How many levels more than there are the range would take at its low end and at its high one:
 * these are cut off. Below 0 levels stay unused. */
static const float cuts[][2] = {
    {0, 0}, {0, -0.5f},   {0, -1},      {0, 0.3f},        {0, 0.6f},      {0, 1},    {0, 1.5f},
    {0, 2}, {0.3f, 0.3f}, {0.6f, 0.6f}, {1, 1},           {1.5f, 1.5f},   {0.5f, 0}, {1, 0},
    {2, 0}, {2, 0.5f},    {0.5f, 2},    {-0.25f, -0.25f}, {-0.5f, -0.5f}, {1, 3},    {3, 1},
};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

void ag_search_scale_and_base(const ag_search *s, bool signed_base, float *d, float *m) {
    float lowest = s->x[0], highest = s->x[0];
    for (size_t i = 1; i < s->n; i++) {
        lowest = s->x[i] < lowest ? s->x[i] : lowest;
        highest = s->x[i] > highest ? s->x[i] : highest;
    }
    if (!signed_base && lowest > 0) lowest = 0;
    if (!signed_base && highest < 0) highest = 0;
    const float range = highest - lowest;
    *d = range / s->high;
    *m = -lowest;
    if (!(range > 0x1p-100f)) return;
    best_pair best = {*d, *m, ag_search_error(s, *d, *m), signed_base};
    for (size_t i = 0; i < N_CUTS; i++) {
        const float step = range / (s->high + cuts[i][0] + cuts[i][1]);
        try_pair(&best, s, 1 / step, -(lowest + cuts[i][0] * step));
    }
    for (int i = 0; i < ROUNDS && try_pair(&best, s, 1 / best.d, best.m);) i++;
    *d = best.d;
    *m = best.m;
}
