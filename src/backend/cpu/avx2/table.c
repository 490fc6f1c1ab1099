/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/avx2/avx2.h"

static const ag_cpu_matmul matmul_f32 = {AG_MATMUL_FLOATS(ag_matmul_f32__avx2)};
static const ag_cpu_matmul matmul_f16 = {AG_MATMUL_FLOATS(ag_matmul_f16__avx2)};
static const ag_cpu_matmul matmul_bf16 = {AG_MATMUL_FLOATS(ag_matmul_bf16__avx2)};
#define PRODUCT(NAME, name)                                                   \
    static const ag_cpu_matmul matmul_##name = {                              \
        AG_MATMUL_X16(name, ag_pack_x16__avx2, ag_matmul_##name##_x16__avx2), \
        .scratch_bytes = ag_scratch_bytes_x16__avx2};
AG_X16_MAP(PRODUCT)

void ag_cpu_kernels_avx2(ag_cpu_kernels *t) {
    t->matmul[AG_F32] = &matmul_f32;
    t->matmul[AG_F16] = &matmul_f16;
    t->matmul[AG_BF16] = &matmul_bf16;
#define PREPARED(NAME, name) t->prepared[AG_##NAME] = &matmul_##name;
    AG_X16_MAP(PREPARED)
#define FILL(slot) t->slot = ag_##slot##__avx2;
    AG_VECTOR_SLOTS(FILL)
    t->rounding = ag_round_weights__avx2;
}
