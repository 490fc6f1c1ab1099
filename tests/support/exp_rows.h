/* SPDX-License-Identifier: Apache-2.0 */
/* dst[i] = exp(src[i]) as a set's kernels compute it; n is a multiple of 16. */
#ifndef AG_TESTS_EXP_ROWS_H
#define AG_TESTS_EXP_ROWS_H

#include <stddef.h>

void exp_rows_avx2(float *dst, const float *src, size_t n);
void exp_rows_avx512(float *dst, const float *src, size_t n);
void exp_rows_neon(float *dst, const float *src, size_t n);

#endif
