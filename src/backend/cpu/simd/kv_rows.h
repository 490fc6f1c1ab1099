/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of floats to rows of a cache and back, with the same bits as quant/. Include a
 * vec.h and define SET(name) first. */
#ifndef AG_BACKEND_CPU_SIMD_KV_ROWS_H
#define AG_BACKEND_CPU_SIMD_KV_ROWS_H

#include "backend/cpu/simd/cache_rows.h"

#include <math.h>

void SET(ag_kv_load)(ag_dtype type, float *dst, const void *row, size_t n) {
    const unsigned char *src = row;
    const size_t n_full = n / LANES * LANES;
    if (type == AG_Q8_0) {
        expand_q8_0(dst, src, n, true);
    } else if (type == AG_Q4_0) {
        expand_q4_0(dst, src, n, true);
    } else if (type == AG_F16) {
        expand_f16(dst, src, n_full);
        ag_dequantize_row(type, dst + n_full, src + 2 * n_full, n - n_full);
    } else {
        ag_dequantize_row(type, dst, src, n);
    }
}

/* Sets a lane of `wrong` for a magnitude of `limit` or more, and for NaN. */
INLINE vec check_magnitude(vec wrong, vec x, float limit) {
    return v_add(wrong, v_if_less(v_abs(x), v_set(limit), v_zero(), v_set(1)));
}

static bool store_f16(unsigned char *dst, const float *src, size_t n) {
    const float limit = 65520; /* rounds to infinity as F16 */
    vec wrong = v_zero();
    size_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vec x = v_load(src + i);
        wrong = check_magnitude(wrong, x, limit);
        v_store_f16(dst + 2 * i, x);
    }
    if (i < n) {
        float rest[LANES] = {0};
        uint16_t halves[LANES];
        memcpy(rest, src + i, (n - i) * sizeof *rest);
        wrong = check_magnitude(wrong, v_load(rest), limit);
        v_store_f16(halves, v_load(rest));
        memcpy(dst + 2 * i, halves, (n - i) * sizeof *halves);
    }
    return v_highest(wrong) == 0;
}

/* Writes the range of a block. Both ends are 0 for a block that quant/ must convert: one of zeros,
 * whose scale has a sign of its own, or with a value that is not finite. */
INLINE void range_of(const float *x, float *lowest, float *highest) {
    vec low = v_load(x), high = low, wrong = check_magnitude(v_zero(), low, INFINITY);
    for (size_t i = LANES; i < AG_QK; i += LANES) {
        const vec v = v_load(x + i);
        low = v_min(low, v);
        high = v_max(high, v);
        wrong = check_magnitude(wrong, v, INFINITY);
    }
    const bool right = v_highest(wrong) == 0;
    *lowest = right ? v_lowest(low) : 0;
    *highest = right ? v_highest(high) : 0;
}

static inline bool half_is_finite(uint16_t h) { return (h & 0x7c00) != 0x7c00; }

static bool store_q8_0(unsigned char *dst, const float *src, size_t n) {
    for (size_t b = 0; b < n; b += AG_QK, dst += sizeof(ag_block_q8_0)) {
        float lowest, highest;
        range_of(src + b, &lowest, &highest);
        const float largest = highest > -lowest ? highest : -lowest;
        const uint16_t stored = float_to_half(largest / 127);
        if (!(largest > 0) || !half_is_finite(stored)) return false;
        const float d = half_to_float(stored), inverse = d > 0 ? 1 / d : 0;
        memcpy(dst, &stored, sizeof stored);
        for (size_t i = 0; i < AG_QK; i += LANES) {
            v_store_q8(dst + offsetof(ag_block_q8_0, qs) + i,
                       v_mul(v_load(src + b + i), v_set(inverse)));
        }
    }
    return true;
}

static bool store_q4_0(unsigned char *dst, const float *src, size_t n) {
    for (size_t b = 0; b < n; b += AG_QK, dst += sizeof(ag_block_q4_0)) {
        float lowest, highest;
        range_of(src + b, &lowest, &highest);
        const float extreme = highest > -lowest ? highest : lowest, d = extreme / -8;
        const uint16_t stored = float_to_half(d);
        if (extreme == 0 || !half_is_finite(stored)) return false;
        const vec inverse = v_set((stored & 0x7fff) ? 1 / d : 0);
        memcpy(dst, &stored, sizeof stored);
        for (size_t i = 0; i < AG_QK / 2; i += LANES) {
            v_store_q4(dst + offsetof(ag_block_q4_0, qs) + i, v_mul(v_load(src + b + i), inverse),
                       v_mul(v_load(src + b + AG_QK / 2 + i), inverse));
        }
    }
    return true;
}

bool SET(ag_kv_store)(ag_dtype type, void *dst, const float *src, size_t n) {
    if (type == AG_F16) return store_f16(dst, src, n);
    if (type == AG_Q8_0) return store_q8_0(dst, src, n);
    if (type == AG_Q4_0) return store_q4_0(dst, src, n);
    return ag_quantize_row(type, dst, src, n, AG_ROUND_KV, NULL) == AG_OK;
}

#endif
