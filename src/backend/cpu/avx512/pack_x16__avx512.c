/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"

#include <immintrin.h>

/* Returns the largest magnitude in integer order, where NaN is above all numbers. */
static float largest_magnitude(__m512 a, __m512 b) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i x = _mm512_and_si512(_mm512_castps_si512(a), magnitude);
    __m512i y = _mm512_and_si512(_mm512_castps_si512(b), magnitude);
    uint32_t bits = _mm512_reduce_max_epu32(_mm512_max_epu32(x, y));
    return _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128((int)bits)));
}

/* Returns the sum modulo 2^32. NaN becomes the most negative integer in each lane, which would
 * overflow the signed addition of the compiler's own reduction. */
static int32_t wrapping_sum(__m512i v) {
    const __m256i half =
        _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
    __m128i sum = _mm_add_epi32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    sum = _mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(sum, _mm_shuffle_epi32(sum, 0xb1)));
}

/* Packs one block of a row as block `at` of the n blocks of its tile. */
static void pack_block(unsigned char *tile, size_t at, size_t n, __m512 a, __m512 b) {
    const float largest = largest_magnitude(a, b);
    /* Below this, 127 / largest would overflow; such values do not affect sums of floats. */
    const int tiny = largest < 0x1p-119f;
    const float d = tiny ? 0 : largest / 127;
    const __m512 inverse = _mm512_set1_ps(tiny ? 0 : 127 / largest);
    __m512i p = _mm512_cvtps_epi32(_mm512_mul_ps(a, inverse));
    __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(b, inverse));
    _mm_storeu_si128((void *)(tile + at * 32), _mm512_cvtsepi32_epi8(p));
    _mm_storeu_si128((void *)(tile + at * 32 + 16), _mm512_cvtsepi32_epi8(q));
    const int32_t first = wrapping_sum(p);
    const int32_t sum = wrapping_sum(_mm512_add_epi32(p, q));
    float *ds = (void *)(tile + n * 32);
    int32_t *cs = (void *)(tile + n * 36);
    float *ss = (void *)(tile + n * 40);
    int32_t *hs = (void *)(tile + n * 44);
    ds[at] = d;
    cs[at] = (int32_t)(-8u * (uint32_t)sum); /* undefined for NaN, where d is NaN */
    ss[at] = d * (float)sum;
    hs[at] = (int32_t)(-8u * (uint32_t)first);
}

void ag_pack_x16__avx512(void *panel, const float *x, size_t row, size_t m, size_t k) {
    const size_t first = row - row % AG_X16, n_blocks = ag_x16_steps(k) * 2;
    const size_t n_rows = m - first < AG_X16 ? m - first : AG_X16;
    unsigned char *tile = (unsigned char *)panel + first * ag_x16_row_bytes(k);
    for (size_t b = 0; b < n_blocks; b++) {
        const int past = b * 32 >= k;
        const __mmask16 mask = past ? 0 : 0xffff;
        const float *from = past ? x : x + b * 32;
        pack_block(tile, b * n_rows + row % AG_X16, n_blocks * n_rows,
                   _mm512_maskz_loadu_ps(mask, from), _mm512_maskz_loadu_ps(mask, from + 16));
    }
}
