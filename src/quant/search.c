/* SPDX-License-Identifier: Apache-2.0 */
/* The searches in compiler vectors: the reference for those of the backends. */
#include "quant/vectors.h"

#include "quant/search_blocks.h"

#include <math.h>

size_t ag_search_blocks(ag_dtype type, void *dst, const float *x, const float *w, size_t n_blocks) {
    return search_blocks(type, dst, x, w, n_blocks);
}

/* ---- rows ---- */

enum { N_SUMS = 8 };

static float mean_square_of(const float *x, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i += AG_QK) {
        float v[N_SUMS] = {0};
        for (size_t j = i; j < i + AG_QK; j += N_SUMS)
            for (size_t l = 0; l < N_SUMS; l++) v[l] += x[j + l] * x[j + l];
        for (size_t l = 0; l < N_SUMS; l++) sum += (double)v[l];
    }
    return n > 0 ? (float)(sum / (double)n) : 0;
}

/* Computes the weights of squared errors. With importance, a value's weight grows with its size
 * relative to the row. Without, larger values count more, as they do in products. */
static void error_weights(float *w, const float *x, const float *importance, size_t n,
                          float mean_square) {
    const float mean = sqrtf(mean_square);
    for (size_t i = 0; i < n; i++) w[i] = mean + fabsf(x[i]);
    if (!importance) return;
    float sum = 0;
    for (size_t i = 0; i < n; i++) sum += importance[i];
    if (!(sum > 0)) return; /* unknown for all these columns */
    for (size_t i = 0; i < n; i++) w[i] = importance[i] * sqrtf(mean_square + x[i] * x[i]);
}

ag_status ag_quantize_weights(const ag_weight_rounding *how, ag_dtype dtype, void *dst,
                              const float *src, size_t n, const float *importance, size_t *bad) {
    if (!ag_has_search(dtype)) return ag_quantize_row(dtype, dst, src, n, AG_ROUND_WEIGHT, bad);
    const float mean_square = mean_square_of(src, n);
    /* Values whose squares are not finite fit no block. */
    if (!isfinite(mean_square)) {
        return ag_quantize_row(dtype, dst, src, n, AG_ROUND_REFERENCE, bad);
    }
    const size_t each = ag_dtype_block(dtype);
    const size_t max_values = dtype == AG_Q6_K ? each : AG_SEARCH_VALUES; /* 16 sub-blocks */
    unsigned char *p = dst;
    float w[AG_SEARCH_VALUES];
    for (size_t i = 0; i < n; i += max_values) {
        const size_t values = n - i < max_values ? n - i : max_values, blocks = values / each;
        for (size_t b = 0; b < values; b += each) {
            error_weights(w + b, src + i + b, importance ? importance + i + b : NULL, each,
                          mean_square);
        }
        const size_t done = how->search(dtype, p, src + i, w, blocks);
        if (done < blocks) {
            const size_t at = i + done * each;
            if (bad) *bad = at + ag_largest_at(src + at, each);
            return AG_FORMAT;
        }
        p += blocks * ag_dtype_block_bytes(dtype);
    }
    return AG_OK;
}

static size_t round_to_q4_0(void *dst, const float *src, size_t n) {
    size_t bad;
    return ag_quantize_row(AG_Q4_0, dst, src, n, AG_ROUND_WEIGHT, &bad) == AG_OK ? n : bad;
}

const ag_weight_rounding ag_reference_rounding = {ag_search_blocks, round_to_q4_0};

ag_status ag_convert_weights(const ag_weight_rounding *how, ag_dtype to, void *dst, ag_dtype from,
                             const void *src, float *values, size_t n, size_t *bad) {
    if (from == to || !ag_has_search(to)) {
        return ag_convert_row(to, dst, from, src, values, n, AG_ROUND_WEIGHT, bad);
    }
    ag_dequantize_row(from, values, src, n);
    if (to != AG_Q4_0) return ag_quantize_weights(how, to, dst, values, n, NULL, bad);
    const size_t done = how->q4_0(dst, values, n);
    if (done < n && bad) *bad = done;
    return done < n ? AG_FORMAT : AG_OK;
}
