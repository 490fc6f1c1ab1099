/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

/* Returns x in the lower half of the lanes and y in the upper half. */
INLINE vec v_halves(float x, float y) {
    return _mm512_mask_broadcastss_ps(_mm512_set1_ps(x), 0xff00, _mm_set_ss(y));
}

INLINE void q4_0_store_scales(uint16_t *stored, float *scale) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(scale), 0);
    const __m128i exponent = _mm_set1_epi16(0x7c00);
    const __m128i infinite = _mm_cmpeq_epi16(_mm_and_si128(halves, exponent), exponent);
    const __m128i finite = _mm_andnot_si128(infinite, halves);
    _mm_storeu_si128((__m128i *)stored, finite);
    _mm256_storeu_ps(scale, _mm256_cvtph_ps(finite));
}

#include "backend/cpu/simd/quantize_q4_0.h"
#include "quant/search_blocks.h"

static size_t quantize_q4_0__avx512(void *dst, const float *src, size_t n) {
    return quantize_q4_0(dst, src, n);
}

static size_t search_blocks__avx512(ag_dtype type, void *dst, const float *x, const float *w,
                                    size_t n_blocks) {
    return search_blocks(type, dst, x, w, n_blocks);
}

const ag_weight_rounding ag_round_weights__avx512 = {search_blocks__avx512, quantize_q4_0__avx512};
