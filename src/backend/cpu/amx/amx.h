/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AMX with 8-bit tiles, on top of AVX-512: whole tiles of 16 rows of input are theirs,
 * the rows left over and single ones go to AVX-512, which gives the same bits. */
#ifndef AG_BACKEND_CPU_AMX_H
#define AG_BACKEND_CPU_AMX_H

#include "backend/cpu/avx512/avx512.h"

size_t ag_scratch_bytes_x16__amx(size_t k);

void ag_matmul_q4_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q4_1_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q8_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

#endif
