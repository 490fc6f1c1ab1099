/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AVX2 with FMA and F16C. Products of bytes and attention are compiled a second time
 * for AVX-VNNI, whose instructions sum products of bytes and of 16-bit values in 32 bits. */
#ifndef AG_BACKEND_CPU_AVX2_H
#define AG_BACKEND_CPU_AVX2_H

#include "backend/cpu/kernels.h"

/* Names a kernel of the set that its file is compiled for. */
#ifdef __AVXVNNI__
#define SET(name) name##__avxvnni
#else
#define SET(name) name##__avx2
#endif

ag_pack_fn ag_pack_x16__avx2;
ag_row_bytes_fn ag_scratch_bytes_x16__avx2, ag_scratch_bytes_x16__avxvnni;

#define DECLARE(NAME, name) \
    ag_matmul_fn ag_matmul_##name##_x16__avx2, ag_matmul_##name##_x16__avxvnni;
AG_X16_MAP(DECLARE)
#undef DECLARE
ag_matmul_fn ag_matmul_f32__avx2;
ag_matmul_fn ag_matmul_f16__avx2;
ag_matmul_fn ag_matmul_bf16__avx2;
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__avx2;
AG_VECTOR_SLOTS(DECLARE)
#undef DECLARE
#define DECLARE(slot) ag_##slot##_fn ag_##slot##__avxvnni;
AG_ATTENTION_SLOTS(DECLARE)
#undef DECLARE

extern const ag_weight_rounding ag_round_weights__avx2;

#endif
