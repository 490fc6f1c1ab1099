/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"

static const ag_cpu_matmul matmul_f32 = {AG_MATMUL_FLOATS(ag_matmul_f32__neon)};
static const ag_cpu_matmul matmul_f16 = {AG_MATMUL_FLOATS(ag_matmul_f16__neon)};
static const ag_cpu_matmul matmul_bf16 = {AG_MATMUL_FLOATS(ag_matmul_bf16__neon)};
#define PRODUCT(NAME, name)                      \
    static const ag_cpu_matmul matmul_##name = { \
        AG_MATMUL_X16(name, ag_pack_x16__neon, ag_matmul_##name##_x16__neon)};
AG_X16_MAP(PRODUCT)

void ag_cpu_kernels_neon(ag_cpu_kernels *t) {
    t->matmul[AG_F32] = &matmul_f32;
    t->matmul[AG_F16] = &matmul_f16;
    t->matmul[AG_BF16] = &matmul_bf16;
#define PREPARED(NAME, name) t->prepared[AG_##NAME] = &matmul_##name;
    AG_X16_MAP(PREPARED)
    t->rms_norm = ag_rms_norm__neon;
    t->softmax = ag_softmax__neon;
    t->rope = ag_rope__neon;
    t->silu_mul = ag_silu_mul__neon;
    t->gelu_mul = ag_gelu_mul__neon;
    t->sigmoid_mul = ag_sigmoid_mul__neon;
    t->conv_row = ag_conv_row__neon;
    t->delta_token = ag_delta_token__neon;
    t->softcap = ag_softcap__neon;
    t->attention = ag_attention__neon;
    t->attention_merge = ag_attention_merge__neon;
    t->attention_scores = ag_attention_scores__neon;
    t->kept_floats = ag_kept_floats__neon;
    t->window_scores = ag_window_scores__neon;
    t->attention_scratch_bytes = ag_attention_scratch_bytes__neon;
    t->key_scores = ag_key_scores__neon;
    t->rows_times = ag_rows_times__neon;
    t->kv_load = ag_kv_load__neon;
    t->kv_store = ag_kv_store__neon;
}
