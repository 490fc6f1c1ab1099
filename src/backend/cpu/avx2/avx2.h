/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AVX2 with FMA and F16C. */
#ifndef AG_BACKEND_CPU_AVX2_H
#define AG_BACKEND_CPU_AVX2_H

#include "backend/cpu/kernels.h"

ag_pack_fn ag_pack_x16__avx2;

#define DECLARE(NAME, name) ag_matmul_fn ag_matmul_##name##_x16__avx2;
AG_X16_MAP(DECLARE)
#undef DECLARE
ag_matmul_fn ag_matmul_f32__avx2;
ag_matmul_fn ag_matmul_f16__avx2;
ag_matmul_fn ag_matmul_bf16__avx2;
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__avx2;
AG_VECTOR_SLOTS(DECLARE)
#undef DECLARE

extern const ag_weight_rounding ag_round_weights__avx2;

#endif
