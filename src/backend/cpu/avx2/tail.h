/* SPDX-License-Identifier: Apache-2.0 */
/* Loads and stores of fewer than 8 floats, for the end of a row. */
#ifndef AG_BACKEND_CPU_AVX2_TAIL_H
#define AG_BACKEND_CPU_AVX2_TAIL_H

#include <immintrin.h>
#include <stddef.h>

/* Returns a mask of the lanes below n. */
static inline __m256i first_lanes(size_t n) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n < 8 ? (int)n : 8), lane);
}

#endif
