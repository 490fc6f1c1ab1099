/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/common/common.h"

void ag_cpu_kernels_common(ag_cpu_kernels *t) {
    for (unsigned type = 0; type < AG_DTYPE_COUNT; type++) {
        if (ag_dtype_may_be((ag_dtype)type, AG_DTYPE_FLOATS)) t->matmul[type] = &ag_matmul__common;
    }
    t->rounding = ag_reference_rounding;
    t->vecmat = ag_vecmat__common;
    t->rms_norm = ag_rms_norm__common;
    t->softmax = ag_softmax__common;
    t->rope = ag_rope__common;
    t->silu_mul = ag_silu_mul__common;
    t->gelu_mul = ag_gelu_mul__common;
    t->mul = ag_mul__common;
    t->sigmoid_mul = ag_sigmoid_mul__common;
    t->swiglu_clamped = ag_swiglu_clamped__common;
    t->conv_row = ag_conv_row_reference;
    t->delta_token = ag_delta_token_reference;
    t->softcap = ag_softcap__common;
    t->add = ag_add__common;
    t->scale = ag_scale__common;
    t->attention = ag_attention__common;
    t->attention_merge = ag_attention_merge__common;
    t->attention_scores = ag_attention_scores__common;
    t->window_scores = ag_window_scores__common;
    t->attention_scratch_bytes = ag_attention_scratch_bytes__common;
    t->key_scores = ag_key_scores__common;
    t->rows_times = ag_rows_times_reference;
    t->kv_load = ag_kv_load__common;
    t->kv_store = ag_kv_store__common;
}
