/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AVX-512 F, BW, VL, DQ and VNNI. */
#ifndef AG_BACKEND_CPU_AVX512_H
#define AG_BACKEND_CPU_AVX512_H

#include "backend/cpu/kernels.h"

ag_pack_fn ag_pack_x16__avx512;
ag_row_bytes_fn ag_scratch_bytes_x16__avx512;

#define DECLARE(NAME, name) ag_matmul_fn ag_matmul_##name##_x16__avx512;
AG_X16_MAP(DECLARE)
#undef DECLARE
ag_matmul_fn ag_matmul_f32__avx512;
ag_matmul_fn ag_matmul_f16__avx512;
ag_matmul_fn ag_matmul_bf16__avx512;
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__avx512;
AG_VECTOR_SLOTS(DECLARE)
#undef DECLARE

extern const ag_weight_rounding ag_round_weights__avx512;

#endif
