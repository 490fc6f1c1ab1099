/* SPDX-License-Identifier: Apache-2.0 */
/* The three rounding rules of Q4_0. With the stored scale the nearest level is best for every
 * value, so a rule is a choice of scale. The reference rule rounds with the scale before it is
 * stored, as it was first defined. */
#include "quant/blocks.h"
#include "quant/vectors.h"

#include <math.h>
#include <string.h>

/* Returns the level 0..15 of v = x / d; halves round up. The cast rounds negative sums towards
 * 0, where the lower bound clamps them anyway. */
static inline int q4_0_level(float v) {
    int q = (int)(v + 8.5f);
    q = q < 0 ? 0 : q;
    return q > 15 ? 15 : q;
}

static void pack_levels(ag_block_q4_0 *out, const float *x, float inverse) {
    uint8_t q[AG_QK];
    for (int i = 0; i < AG_QK; i++) q[i] = (uint8_t)q4_0_level(x[i] * inverse);
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
    pack_levels(out, x, (out->d & 0x7fff) ? 1 / d : 0);
    return ag_f16_is_finite(out->d);
}

/* ---- weights ---- */

enum { N_STORED = 8 };
INLINE void q4_0_store_scales(uint16_t *stored, float *scale) {
    ag_f32_to_f16_row(stored, scale, N_STORED);
    for (int s = 0; s < N_STORED; s++) stored[s] = ag_f16_is_finite(stored[s]) ? stored[s] : 0;
    ag_f16_to_f32_row(scale, stored, N_STORED);
}

#include "quant/q4_0_search.h"

_Static_assert((int)N_STORED == (int)Q4_0_SCALES, "all scales are stored");

static bool round_weight(ag_block_q4_0 *out, const float *x, float extreme) {
    if (!ag_f16_is_finite(ag_f32_to_f16(extreme / -8))) return false;
    /* Below half of the smallest scale all levels are 0, and quotients would overflow. */
    if (fabsf(extreme) < 0x1p-26f) {
        out->d = 0;
        memset(out->qs, 0x88, sizeof out->qs);
    } else {
        q4_0_batch batch;
        batch.x[0] = x;
        batch.extreme[0] = extreme;
        q4_0_round(out, &batch, 1);
    }
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
