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

extern const ag_weight_rounding ag_round_weights__avx2;

ag_rms_norm_fn ag_rms_norm__avx2;
ag_softmax_fn ag_softmax__avx2;
ag_rope_fn ag_rope__avx2;
ag_silu_mul_fn ag_silu_mul__avx2;
ag_gelu_mul_fn ag_gelu_mul__avx2;
ag_sigmoid_mul_fn ag_sigmoid_mul__avx2;
ag_conv_row_fn ag_conv_row__avx2;
ag_delta_token_fn ag_delta_token__avx2;
ag_softcap_fn ag_softcap__avx2;
ag_attention_fn ag_attention__avx2;
ag_attention_merge_fn ag_attention_merge__avx2;
ag_attention_scores_fn ag_attention_scores__avx2;
ag_kept_floats_fn ag_kept_floats__avx2;
ag_window_scores_fn ag_window_scores__avx2;
ag_attention_scratch_bytes_fn ag_attention_scratch_bytes__avx2;

ag_key_scores_fn ag_key_scores__avx2;
ag_rows_times_fn ag_rows_times__avx2;
ag_kv_load_fn ag_kv_load__avx2;
ag_kv_store_fn ag_kv_store__avx2;

#endif
