/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

void ag_cpu_kernels_common(ag_cpu_kernels *t) {
    t->matmul[AG_F32] = &ag_matmul_f32__common;
    t->matmul[AG_F16] = &ag_matmul_f16__common;
    t->matmul[AG_BF16] = &ag_matmul_bf16__common;
    t->matmul[AG_Q4_0] = &ag_matmul_q4_0__common;
    t->matmul[AG_Q4_1] = &ag_matmul_q4_1__common;
    t->matmul[AG_Q8_0] = &ag_matmul_q8_0__common;
    t->quantize_q4_0 = ag_quantize_q4_0__common;
    t->vecmat = ag_vecmat__common;
    t->rms_norm = ag_rms_norm__common;
    t->softmax = ag_softmax__common;
    t->rope = ag_rope__common;
    t->silu_mul = ag_silu_mul__common;
    t->gelu_mul = ag_gelu_mul__common;
    t->softcap = ag_softcap__common;
    t->add = ag_add__common;
    t->scale = ag_scale__common;
    t->attention = ag_attention__common;
    t->attention_merge = ag_attention_merge__common;
    t->attention_scores = ag_attention_scores__common;
    t->attention_scratch_bytes = ag_attention_scratch_bytes__common;
    t->key_scores = ag_key_scores__common;
    t->kv_load = ag_kv_load__common;
    t->kv_store = ag_kv_store__common;
}
