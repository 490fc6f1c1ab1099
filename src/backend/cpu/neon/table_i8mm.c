/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"

static const ag_cpu_matmul matmul_q4_0 = {
    AG_MATMUL_X16(q4_0, ag_pack_x16__neon_i8mm, ag_matmul_q4_0_x16__neon_i8mm)};
static const ag_cpu_matmul matmul_q4_1 = {
    AG_MATMUL_X16(q4_1, ag_pack_x16__neon_i8mm, ag_matmul_q4_1_x16__neon_i8mm)};
static const ag_cpu_matmul matmul_q8_0 = {
    AG_MATMUL_X16(q8_0, ag_pack_x16__neon_i8mm, ag_matmul_q8_0_x16__neon_i8mm)};

void ag_cpu_kernels_neon_i8mm(ag_cpu_kernels *t) {
    t->prepared[AG_Q4_0] = &matmul_q4_0;
    t->prepared[AG_Q4_1] = &matmul_q4_1;
    t->prepared[AG_Q8_0] = &matmul_q8_0;
}
