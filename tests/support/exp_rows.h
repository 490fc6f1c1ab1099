/* SPDX-License-Identifier: Apache-2.0 */
/* y[i] = exp(x[i]) and weights[i] = the same as a weight of attention, as a set's kernels compute
 * them; n is a multiple of 16. */
#ifndef AG_TESTS_EXP_ROWS_H
#define AG_TESTS_EXP_ROWS_H

#include <stddef.h>

void exp_rows_avx2(float *y, float *weights, const float *x, size_t n);
void exp_rows_avx512(float *y, float *weights, const float *x, size_t n);
void exp_rows_neon(float *y, float *weights, const float *x, size_t n);

#endif
