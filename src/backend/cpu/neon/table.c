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
#define FILL(slot) t->slot = ag_##slot##__neon;
    AG_VECTOR_SLOTS(FILL)
}
