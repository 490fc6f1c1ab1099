/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/neon/neon.h"

static const ag_cpu_matmul matmul_q4_0 = {
    .packed_bytes = ag_packed_bytes_x16,
    .pack = ag_pack_x16__neon,
    .rows = ag_matmul_q4_0_x16__neon_dotprod,
    .layout = &ag_layout_q4_0_x16,
};
static const ag_cpu_matmul matmul_q4_1 = {
    .packed_bytes = ag_packed_bytes_x16,
    .pack = ag_pack_x16__neon,
    .rows = ag_matmul_q4_1_x16__neon_dotprod,
    .layout = &ag_layout_q4_1_x16,
};
static const ag_cpu_matmul matmul_q8_0 = {
    .packed_bytes = ag_packed_bytes_x16,
    .pack = ag_pack_x16__neon,
    .rows = ag_matmul_q8_0_x16__neon_dotprod,
    .layout = &ag_layout_q8_0_x16,
};

void ag_cpu_kernels_neon_dotprod(ag_cpu_kernels *t) {
    t->prepared[AG_Q4_0] = &matmul_q4_0;
    t->prepared[AG_Q4_1] = &matmul_q4_1;
    t->prepared[AG_Q8_0] = &matmul_q8_0;
    t->attention = ag_attention__neon_dotprod;
    t->attention_scores = ag_attention_scores__neon_dotprod;
    t->attention_scratch_bytes = ag_attention_scratch_bytes__neon_dotprod;
}
