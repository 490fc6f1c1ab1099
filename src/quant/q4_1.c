/* SPDX-License-Identifier: Apache-2.0 */
#include "quant/blocks.h"

#include <math.h>
#include <string.h>

typedef struct candidate {
    uint16_t d, m; /* as stored */
    float error;
    uint8_t q[AG_QK];
} candidate;

static inline int q4_1_level(float v) {
    int q = (int)(v + 0.5f);
    q = q < 0 ? 0 : q;
    return q > 15 ? 15 : q;
}

/* Rounds x with d and m as they will be stored, and replaces *best if the error is smaller. */
static void consider(candidate *best, const float *x, float d, float m) {
    candidate c = {.d = ag_f32_to_f16(d), .m = ag_f32_to_f16(m)};
    if (!ag_f16_is_finite(c.d) || !ag_f16_is_finite(c.m)) return;
    float scale = ag_f16_to_f32(c.d), base = ag_f16_to_f32(c.m);
    float inverse = scale != 0 ? 1 / scale : 0, errors[AG_QK];
    for (int i = 0; i < AG_QK; i++) {
        int q = q4_1_level((x[i] - base) * inverse);
        float e = x[i] - ((float)q * scale + base);
        errors[i] = e * e;
        c.q[i] = (uint8_t)q;
    }
    c.error = ag_block_sum(errors);
    if (c.error < best->error) *best = c;
}

/* Least squares: the d and m that are best for the levels of x rounded with 1 / d = inverse from
 * base on. false: all levels are one, which leaves d open. */
static bool fit(const float *x, float inverse, float base, float *d, float *m) {
    float q1[AG_QK], qq[AG_QK], x1[AG_QK], xq[AG_QK];
    for (int i = 0; i < AG_QK; i++) {
        x1[i] = x[i] - base;
        q1[i] = (float)q4_1_level(x1[i] * inverse);
        qq[i] = q1[i] * q1[i];
        xq[i] = x1[i] * q1[i];
    }
    float n = AG_QK, sq = ag_block_sum(q1), sx = ag_block_sum(x1);
    float determinant = n * ag_block_sum(qq) - sq * sq;
    if (determinant <= 0) return false;
    *d = (n * ag_block_sum(xq) - sx * sq) / determinant;
    *m = base + (sx - *d * sq) / n;
    return true;
}

/* How much of the range is cut off at both ends together, before the fit: an outlier's own error
 * may be worth finer levels for all others. */
static const float cuts[] = {-0.05f, 0.0f, 0.06f, 0.12f, 0.18f};
enum { N_CUTS = sizeof cuts / sizeof cuts[0] };

static void improve(candidate *best, const float *x, float lowest, float range) {
    for (int i = 0; i < N_CUTS; i++) {
        float base = lowest + range * cuts[i] / 2, width = range * (1 - cuts[i]);
        float d, m;
        if (fit(x, 15 / width, base, &d, &m)) consider(best, x, d, m);
    }
    float d, m, scale = ag_f16_to_f32(best->d);
    if (scale > 0 && fit(x, 1 / scale, ag_f16_to_f32(best->m), &d, &m)) consider(best, x, d, m);
}

bool ag_quantize_q4_1(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        float range = highest - lowest;
        candidate c = {.error = INFINITY};
        consider(&c, x, range / 15, lowest);
        *block = b;
        if (c.error == INFINITY) return false;
        if (rounding == AG_ROUND_WEIGHT && range > 0x1p-22f) improve(&c, x, lowest, range);
        ag_block_q4_1 out = {.d = c.d, .m = c.m};
        ag_pack_nibbles(out.qs, c.q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q4_1(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++) {
        ag_block_q4_1 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        float d = ag_f16_to_f32(in.d), m = ag_f16_to_f32(in.m), *out = dst + b * AG_QK;
        for (int i = 0; i < AG_QK / 2; i++) {
            out[i] = (float)(in.qs[i] & 15) * d + m;
            out[i + AG_QK / 2] = (float)(in.qs[i] >> 4) * d + m;
        }
    }
}
