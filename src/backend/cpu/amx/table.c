/* SPDX-License-Identifier: Apache-2.0 */
#include "backend/cpu/amx/matmul_x16.h"

size_t ag_scratch_bytes_x16__amx(size_t k) {
    (void)k;
    return sizeof(workspace);
}

static const ag_cpu_matmul matmul_q4_0 = {
    .packed_bytes = ag_packed_bytes_x16,
    .scratch_bytes = ag_scratch_bytes_x16__amx,
    .pack = ag_pack_x16__avx512,
    .rows = ag_matmul_q4_0_x16__amx,
    .layout = &ag_layout_q4_0_x16,
};
static const ag_cpu_matmul matmul_q4_1 = {
    .packed_bytes = ag_packed_bytes_x16,
    .scratch_bytes = ag_scratch_bytes_x16__amx,
    .pack = ag_pack_x16__avx512,
    .rows = ag_matmul_q4_1_x16__amx,
    .layout = &ag_layout_q4_1_x16,
};
static const ag_cpu_matmul matmul_q8_0 = {
    .packed_bytes = ag_packed_bytes_x16,
    .scratch_bytes = ag_scratch_bytes_x16__amx,
    .pack = ag_pack_x16__avx512,
    .rows = ag_matmul_q8_0_x16__amx,
    .layout = &ag_layout_q8_0_x16,
};

void ag_cpu_kernels_amx(ag_cpu_kernels *t) {
    t->prepared[AG_Q4_0] = &matmul_q4_0;
    t->prepared[AG_Q4_1] = &matmul_q4_1;
    t->prepared[AG_Q8_0] = &matmul_q8_0;
}
