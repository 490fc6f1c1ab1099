/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AVX-512 F, BW, VL, DQ and VNNI. */
#ifndef AG_BACKEND_CPU_AVX512_H
#define AG_BACKEND_CPU_AVX512_H

#include "backend/cpu/kernels.h"

ag_pack_fn ag_pack_x16__avx512;

#define DECLARE(NAME, name) ag_matmul_fn ag_matmul_##name##_x16__avx512;
AG_X16_MAP(DECLARE)
#undef DECLARE
ag_matmul_fn ag_matmul_f32__avx512;
ag_matmul_fn ag_matmul_f16__avx512;
ag_matmul_fn ag_matmul_bf16__avx512;

extern const ag_weight_rounding ag_round_weights__avx512;

ag_rms_norm_fn ag_rms_norm__avx512;
ag_softmax_fn ag_softmax__avx512;
ag_rope_fn ag_rope__avx512;
ag_silu_mul_fn ag_silu_mul__avx512;
ag_gelu_mul_fn ag_gelu_mul__avx512;
ag_sigmoid_mul_fn ag_sigmoid_mul__avx512;
ag_conv_row_fn ag_conv_row__avx512;
ag_delta_token_fn ag_delta_token__avx512;
ag_softcap_fn ag_softcap__avx512;
ag_attention_fn ag_attention__avx512;
ag_attention_merge_fn ag_attention_merge__avx512;
ag_attention_scores_fn ag_attention_scores__avx512;
ag_kept_floats_fn ag_kept_floats__avx512;
ag_window_scores_fn ag_window_scores__avx512;
ag_attention_scratch_bytes_fn ag_attention_scratch_bytes__avx512;

ag_key_scores_fn ag_key_scores__avx512;
ag_rows_times_fn ag_rows_times__avx512;
ag_kv_load_fn ag_kv_load__avx512;
ag_kv_store_fn ag_kv_store__avx512;

#endif
