/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"

static const ag_cpu_matmul matmul_f32 = {AG_MATMUL_FLOATS(ag_matmul_f32__avx2)};
static const ag_cpu_matmul matmul_f16 = {AG_MATMUL_FLOATS(ag_matmul_f16__avx2)};
static const ag_cpu_matmul matmul_bf16 = {AG_MATMUL_FLOATS(ag_matmul_bf16__avx2)};
#define PRODUCT(NAME, name)                      \
    static const ag_cpu_matmul matmul_##name = { \
        AG_MATMUL_X16(name, ag_pack_x16__avx2, ag_matmul_##name##_x16__avx2)};
AG_X16_MAP(PRODUCT)

void ag_cpu_kernels_avx2(ag_cpu_kernels *t) {
    t->matmul[AG_F32] = &matmul_f32;
    t->matmul[AG_F16] = &matmul_f16;
    t->matmul[AG_BF16] = &matmul_bf16;
#define PREPARED(NAME, name) t->prepared[AG_##NAME] = &matmul_##name;
    AG_X16_MAP(PREPARED)
    t->rounding = ag_round_weights__avx2;
    t->rms_norm = ag_rms_norm__avx2;
    t->softmax = ag_softmax__avx2;
    t->rope = ag_rope__avx2;
    t->silu_mul = ag_silu_mul__avx2;
    t->gelu_mul = ag_gelu_mul__avx2;
    t->sigmoid_mul = ag_sigmoid_mul__avx2;
    t->conv_row = ag_conv_row__avx2;
    t->delta_token = ag_delta_token__avx2;
    t->softcap = ag_softcap__avx2;
    t->attention = ag_attention__avx2;
    t->attention_merge = ag_attention_merge__avx2;
    t->attention_scores = ag_attention_scores__avx2;
    t->kept_floats = ag_kept_floats__avx2;
    t->window_scores = ag_window_scores__avx2;
    t->attention_scratch_bytes = ag_attention_scratch_bytes__avx2;
    t->key_scores = ag_key_scores__avx2;
    t->rows_times = ag_rows_times__avx2;
    t->kv_load = ag_kv_load__avx2;
    t->kv_store = ag_kv_store__avx2;
}
