/* SPDX-License-Identifier: Apache-2.0 */
/* Three roundings of one format. With a given stored scale the nearest level is the best choice for
 * every value, so a rounding is a choice of scale; the reference rule alone also rounds as it was
 * first written down, with the scale before it is stored. */
#include "quant/blocks.h"

#include <math.h>
#include <string.h>

/* The level 0..15 of v = x / d: halves go up. What the cut of a fraction does wrong below 0 is
 * made good by the bound. */
static inline int level_of(float v) {
    int q = (int)(v + 8.5f);
    q = q < 0 ? 0 : q;
    return q > 15 ? 15 : q;
}

static void pack(ag_block_q4_0 *out, const float *x, float inverse) {
    uint8_t q[AG_QK];
    for (int i = 0; i < AG_QK; i++) q[i] = (uint8_t)level_of(x[i] * inverse);
    ag_pack_nibbles(out->qs, q);
}

/* d = max|x| / 7, q = clamp(round(x / d), -8, 7). */
static bool round_reference(ag_block_q4_0 *out, const float *x, float extreme) {
    float d = fabsf(extreme) / 7;
    out->d = ag_f32_to_f16(d);
    float inverse = out->d ? 1 / d : 0;
    uint8_t q[AG_QK];
    for (int i = 0; i < AG_QK; i++) {
        float v = roundf(x[i] * inverse);
        v = v > -8 ? v : -8;
        v = v < 7 ? v : 7;
        q[i] = (uint8_t)((int)v + 8);
    }
    ag_pack_nibbles(out->qs, q);
    return ag_f16_is_finite(out->d);
}

/* d = signed extreme / -8. */
static bool round_kv(ag_block_q4_0 *out, const float *x, float extreme) {
    float d = extreme / -8;
    out->d = ag_f32_to_f16(d);
    pack(out, x, (out->d & 0x7fff) ? 1 / d : 0);
    return ag_f16_is_finite(out->d);
}

/* ---- the search for the best scale ----
 * Several scales are tried at once, one in each lane of a vector: no sums across lanes are needed
 * then, and the order of sums is the same on every machine. */

enum { LANES = 4, N_PLACES = 12, N_SCALES = 8 };

/* Vectors of the compiler: every machine has them, and no loop has to be recognised as one. */
typedef float f32x4 __attribute__((vector_size(16)));
typedef int32_t i32x4 __attribute__((vector_size(16)));

static inline f32x4 load(const float *p) {
    f32x4 v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float *p, f32x4 v) { memcpy(p, &v, sizeof v); }

/* level_of() - 8; v is small enough for an int. Comparisons give -1 where they hold. */
static inline f32x4 signed_levels(f32x4 v) {
    i32x4 q = __builtin_convertvector(v + 8.5f, i32x4);
    q &= q > -1;
    q = (q | (q > 15)) & 15;
    return __builtin_convertvector(q, f32x4) - 8.0f;
}

/* scale[s] becomes the least-squares scale of the levels that x has when 1 / d = inverse[s];
 * gain[s] is what it explains of the sum of squares. */
static void fit(float *scale, float *gain, const float *x, const float *inverse) {
    f32x4 inv = load(inverse), xq = {0}, qq = {0};
    for (int i = 0; i < AG_QK; i++) {
        f32x4 q = signed_levels(x[i] * inv);
        xq += x[i] * q;
        qq += q * q;
    }
    f32x4 best = xq / qq;
    store(scale, best);
    store(gain, xq * best);
}

static void measure(float *error, const float *x, const float *scale, const float *inverse) {
    f32x4 d = load(scale), inv = load(inverse), sum = {0};
    for (int i = 0; i < AG_QK; i++) {
        f32x4 e = x[i] - signed_levels(x[i] * inv) * d;
        sum += e * e;
    }
    store(error, sum);
}

/* Where the value of largest magnitude is placed on the scale of levels. Beyond -8 and 7 it is cut
 * off, which pays when it is alone; the positive places give the other sign the level -8. */
static const float places[N_PLACES] = {-9.1f, -8.5f, -8.1f, -7.7f, -7.3f, -6.9f,
                                       -6.4f, 8.0f,  7.5f,  7.0f,  6.5f,  6.0f};

/* The best fit of all places, and those of four scales around it. */
static void find_scales(float scale[1 + LANES], const float *x, float extreme) {
    float inverse[N_PLACES], fits[N_PLACES], gain[N_PLACES];
    for (int s = 0; s < N_PLACES; s++) inverse[s] = places[s] / extreme;
    for (int s = 0; s < N_PLACES; s += LANES) fit(fits + s, gain + s, x, inverse + s);
    int best = 0;
    for (int s = 1; s < N_PLACES; s++) best = gain[s] > gain[best] ? s : best;
    scale[0] = fits[best];
    for (int s = 0; s < LANES; s++) inverse[s] = (0.985f + 0.01f * (float)s) / fits[best];
    fit(scale + 1, gain, x, inverse);
}

/* The scale of least error, as stored, among those that were found and those of the two rules
 * above: the error is never larger than theirs. */
static bool round_weight(ag_block_q4_0 *out, const float *x, float extreme) {
    *out = (ag_block_q4_0){.d = ag_f32_to_f16(extreme / -8)};
    if (!ag_f16_is_finite(out->d)) return false;
    float scale[N_SCALES] = {fabsf(extreme) / 7, extreme / -8}, inverse[N_SCALES];
    /* Below half of the smallest scale all is 0, and quotients would overflow. */
    if (fabsf(extreme) >= 0x1p-26f) find_scales(scale + 2, x, extreme);
    uint16_t stored[N_SCALES];
    ag_f32_to_f16_row(stored, scale, N_SCALES);
    for (int s = 0; s < N_SCALES; s++) stored[s] = ag_f16_is_finite(stored[s]) ? stored[s] : 0;
    ag_f16_to_f32_row(scale, stored, N_SCALES);
    for (int s = 0; s < N_SCALES; s++) inverse[s] = scale[s] != 0 ? 1 / scale[s] : 0;
    float error[N_SCALES];
    for (int s = 0; s < N_SCALES; s += LANES) measure(error + s, x, scale + s, inverse + s);
    int best = 0;
    for (int s = 1; s < N_SCALES; s++) best = error[s] < error[best] ? s : best;
    out->d = stored[best];
    pack(out, x, inverse[best]);
    return true;
}

bool ag_quantize_q4_0(void *dst, const float *src, size_t n_blocks, ag_rounding rounding,
                      size_t *block) {
    unsigned char *p = dst;
    for (size_t b = 0; b < n_blocks; b++) {
        const float *x = src + b * AG_QK;
        float lowest, highest;
        ag_block_range(x, &lowest, &highest);
        float extreme = highest > -lowest ? highest : lowest;
        ag_block_q4_0 out;
        bool fits = rounding == AG_ROUND_REFERENCE ? round_reference(&out, x, extreme)
                    : rounding == AG_ROUND_KV      ? round_kv(&out, x, extreme)
                                                   : round_weight(&out, x, extreme);
        *block = b;
        if (!fits) return false;
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
