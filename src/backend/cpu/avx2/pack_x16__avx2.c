/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"

#include <immintrin.h>

/* Returns the largest magnitude in integer order, where NaN is above all numbers. */
static float largest_magnitude(const __m256 x[4]) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i max = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++) {
        max = _mm256_max_epu32(max, _mm256_and_si256(_mm256_castps_si256(x[i]), magnitude));
    }
    __m128i m = _mm_max_epu32(_mm256_castsi256_si128(max), _mm256_extracti128_si256(max, 1));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
    m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
    return _mm_cvtss_f32(_mm_castsi128_ps(m));
}

static int32_t add_lanes(__m256i v) {
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* Rounds the block to bytes at q. sums: of the first 16 bytes and of all. */
static void round_block(void *q, uint32_t sums[2], const __m256 x[4], float factor) {
    __m256i p[4];
    for (int i = 0; i < 4; i++) {
        p[i] = _mm256_cvtps_epi32(_mm256_mul_ps(x[i], _mm256_set1_ps(factor)));
    }
    sums[0] = (uint32_t)add_lanes(_mm256_add_epi32(p[0], p[1]));
    sums[1] = sums[0] + (uint32_t)add_lanes(_mm256_add_epi32(p[2], p[3]));
    const __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(p[0], p[1]), _mm256_packs_epi32(p[2], p[3]));
    /* Packing works within 128-bit halves; this restores the order. */
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(q, _mm256_permutevar8x32_epi32(bytes, order));
}

/* Packs one block of a row as block `at` of the n blocks of its tile. */
static void pack_block(unsigned char *tile, size_t at, size_t n, const __m256 x[4]) {
    const float largest = largest_magnitude(x);
    /* Below this, 127 / largest would overflow; such values do not affect sums of floats. */
    const int tiny = largest < 0x1p-119f;
    const float d = tiny ? 0 : largest / 127;
    uint32_t sums[2]; /* undefined for NaN, where d is NaN */
    round_block(tile + at * 32, sums, x, tiny ? 0 : 127 / largest);
    float *ds = (void *)(tile + n * 32);
    int32_t *cs = (void *)(tile + n * 36);
    float *ss = (void *)(tile + n * 40);
    int32_t *hs = (void *)(tile + n * 44);
    ds[at] = d;
    cs[at] = (int32_t)(-8u * sums[1]);
    ss[at] = d * (float)(int32_t)sums[1];
    hs[at] = (int32_t)(-8u * sums[0]);
}

void ag_pack_x16__avx2(void *panel, const float *x, size_t row, size_t m, size_t k) {
    const size_t first = row - row % AG_X16, n_blocks = ag_x16_steps(k) * 2;
    const size_t n_rows = m - first < AG_X16 ? m - first : AG_X16;
    unsigned char *tile = (unsigned char *)panel + first * ag_x16_row_bytes(k);
    for (size_t b = 0; b < n_blocks; b++) {
        __m256 v[4];
        for (size_t i = 0; i < 4; i++) {
            v[i] = b * 32 < k ? _mm256_loadu_ps(x + b * 32 + i * 8) : _mm256_setzero_ps();
        }
        pack_block(tile, b * n_rows + row % AG_X16, n_blocks * n_rows, v);
    }
}
