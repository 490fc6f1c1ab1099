/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx512/avx512.h"
#include "backend/cpu/avx512/vec.h"

#include "backend/cpu/simd/activations.h"

void ag_silu_mul__avx512(float *a, const float *b, size_t n) { silu_mul(a, b, n); }

void ag_gelu_mul__avx512(float *a, const float *b, size_t n) { gelu_mul(a, b, n); }

void ag_sigmoid_mul__avx512(float *a, const float *b, size_t n) { sigmoid_mul(a, b, n); }

void ag_softcap__avx512(float *x, float cap, size_t n) { softcap(x, cap, n); }
