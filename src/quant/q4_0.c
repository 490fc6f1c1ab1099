/* SPDX-License-Identifier: Apache-2.0 */
/* Three roundings of one format. With a given stored scale the nearest level is the best choice for
 * every value, so a rounding is a choice of scale; the reference rule alone also rounds as it was
 * first written down, with the scale before it is stored. */
#include "quant/blocks.h"

#include <math.h>
#include <string.h>

typedef struct candidate {
    uint16_t d; /* as stored */
    float error;
    uint8_t q[AG_QK]; /* 0..15 */
} candidate;

/* The level of v = x / d: halves go up. v + 8.5 is positive after the lower bound, so that cutting
 * the fraction rounds down. */
static inline int level_of(float v) {
    v += 8.5f;
    v = v < 0 ? 0 : v;
    v = v > 15 ? 15 : v;
    return (int)v;
}

/* d = max|x| / 7, q = clamp(round(x / d), -8, 7). */
static void round_reference(candidate *c, const float *x, float largest) {
    float d = largest / 7;
    c->d = ag_f32_to_f16(d);
    float inverse = (c->d & 0x7fff) ? 1 / d : 0;
    for (int i = 0; i < AG_QK; i++) {
        float q = roundf(x[i] * inverse);
        q = q < -8 ? -8 : q > 7 ? 7 : q;
        c->q[i] = (uint8_t)((int)q + 8);
    }
}

/* d = signed extreme / -8. */
static void round_kv(candidate *c, const float *x, float extreme) {
    float d = extreme / -8;
    c->d = ag_f32_to_f16(d);
    float inverse = (c->d & 0x7fff) ? 1 / d : 0;
    for (int i = 0; i < AG_QK; i++) c->q[i] = (uint8_t)level_of(x[i] * inverse);
}

/* Rounds x with scale d as it will be stored, and replaces *best if the error is smaller. */
static void consider(candidate *best, const float *x, float d) {
    candidate c = {.d = ag_f32_to_f16(d)};
    float stored = ag_f16_to_f32(c.d);
    if (!ag_f16_is_finite(c.d) || stored == 0) return;
    float inverse = 1 / stored, error[AG_LANES] = {0};
    for (int i = 0; i < AG_QK; i += AG_LANES) {
        for (int l = 0; l < AG_LANES; l++) {
            int q = level_of(x[i + l] * inverse);
            float e = x[i + l] - (float)(q - 8) * stored;
            error[l] += e * e;
            c.q[i + l] = (uint8_t)q;
        }
    }
    c.error = ag_sum_lanes(error);
    if (c.error < best->error) *best = c;
}

/* Rounds x with 1 / d = inverse; *xq and *qq are then what least squares needs: the best scale for
 * these levels is xq / qq, and it explains xq^2 / qq of the sum of squares. */
static inline void fit(const float *x, float inverse, float *xq, float *qq) {
    float a[AG_LANES] = {0}, b[AG_LANES] = {0};
    for (int i = 0; i < AG_QK; i += AG_LANES) {
        for (int l = 0; l < AG_LANES; l++) {
            float q = (float)(level_of(x[i + l] * inverse) - 8);
            a[l] += x[i + l] * q;
            b[l] += q * q;
        }
    }
    *xq = ag_sum_lanes(a);
    *qq = ag_sum_lanes(b);
}

/* Where the value of largest magnitude is placed on the scale of levels. Beyond -8 it is cut off,
 * which pays when it is alone; the positive ones give the other sign the level -8. */
static const float places[] = {-9.6f, -9.0f, -8.6f, -8.2f, -7.8f, -7.4f, -7.0f, -6.6f,
                               -6.1f, 8.2f,  7.7f,  7.3f,  6.9f,  6.5f,  6.0f};
enum { N_PLACES = sizeof places / sizeof places[0] };

static float best_fit(const float *x, float extreme) {
    float most = -1, d = 0;
    for (int i = 0; i < N_PLACES; i++) {
        float xq, qq;
        fit(x, places[i] / extreme, &xq, &qq);
        if (xq * xq > most * qq) {
            most = xq * xq / qq;
            d = xq / qq;
        }
    }
    return d;
}

/* The scale of least squared error among the fits of several roundings, refined once, and the
 * reference rule's own scale, so that the error is never larger than that rule's. */
static void round_weight(candidate *best, const float *x, float extreme) {
    *best = (candidate){.d = ag_f32_to_f16(extreme / -8), .error = INFINITY};
    if (!ag_f16_is_finite(best->d)) return;
    float sum = 0;
    for (int i = 0; i < AG_QK; i++) sum += x[i] * x[i];
    *best = (candidate){.error = sum};
    memset(best->q, 8, sizeof best->q);
    if (fabsf(extreme) < 0x1p-26f) return; /* less than half of the smallest scale */
    consider(best, x, fabsf(extreme) / 7);
    consider(best, x, best_fit(x, extreme));
    if (best->d != 0) {
        float xq, qq;
        fit(x, 1 / ag_f16_to_f32(best->d), &xq, &qq);
        consider(best, x, xq / qq);
    }
}

bool ag_quantize_q4_0(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        float extreme = highest > -lowest ? highest : lowest;
        candidate c;
        if (rounding == AG_ROUND_REFERENCE) round_reference(&c, x, fabsf(extreme));
        else if (rounding == AG_ROUND_KV) round_kv(&c, x, extreme);
        else round_weight(&c, x, extreme);
        *block = b;
        if (!ag_f16_is_finite(c.d)) return false;
        ag_block_q4_0 out = {.d = c.d};
        ag_pack_nibbles(out.qs, c.q);
        memcpy(p + b * sizeof out, &out, sizeof out);
    }
    return true;
}

void ag_dequantize_q4_0(float *dst, const void *src, size_t n_blocks) {
    const unsigned char *p = src;
    for (size_t b = 0; b < n_blocks; b++) {
        ag_block_q4_0 in;
        memcpy(&in, p + b * sizeof in, sizeof in);
        float d = ag_f16_to_f32(in.d), *out = dst + b * AG_QK;
        for (int i = 0; i < AG_QK / 2; i++) {
            out[i] = (float)((in.qs[i] & 15) - 8) * d;
            out[i + AG_QK / 2] = (float)((in.qs[i] >> 4) - 8) * d;
        }
    }
}
