/* SPDX-License-Identifier: Apache-2.0 */
/* Scalar kernels: the definition of every operation of ag_cpu_kernels. */
#ifndef AG_BACKEND_CPU_COMMON_H
#define AG_BACKEND_CPU_COMMON_H

#include "backend/cpu/kernels.h"

extern const ag_cpu_matmul ag_matmul__common; /* any type of weight */

ag_vecmat_fn ag_vecmat__common;
ag_rms_norm_fn ag_rms_norm__common;
ag_softmax_fn ag_softmax__common;
ag_rope_fn ag_rope__common;
ag_silu_mul_fn ag_silu_mul__common;
ag_gelu_mul_fn ag_gelu_mul__common;
ag_mul_fn ag_mul__common;
ag_sigmoid_mul_fn ag_sigmoid_mul__common;
ag_swiglu_clamped_fn ag_swiglu_clamped__common;
ag_softcap_fn ag_softcap__common;
ag_add_fn ag_add__common;
ag_scale_fn ag_scale__common;
ag_attention_fn ag_attention__common;
ag_attention_merge_fn ag_attention_merge__common;
ag_attention_scores_fn ag_attention_scores__common;
ag_window_scores_fn ag_window_scores__common;
ag_attention_scratch_bytes_fn ag_attention_scratch_bytes__common;

ag_key_scores_fn ag_key_scores__common;
ag_kv_load_fn ag_kv_load__common;
ag_kv_store_fn ag_kv_store__common;

#endif
