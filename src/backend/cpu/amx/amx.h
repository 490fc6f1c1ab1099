/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AMX with bfloat16 tiles, on top of AVX-512, for calls of many rows: quantised weights
 * become tiles on the way, activations are packed as tiles. Both are rounded to 8 bits of mantissa,
 * sums are of float; so they differ from AVX-512's in the last digits. */
#ifndef AG_BACKEND_CPU_AMX_H
#define AG_BACKEND_CPU_AMX_H

#include "backend/cpu/avx512/avx512.h"

/* A panel: for each 16 rows their tiles, a tile [16 rows][32 columns] for each block of columns.
 * Packing its last row fills those that are missing with zeros. */
size_t ag_packed_bytes_tiles__amx(size_t k);
void ag_pack_tiles__amx(void *panel, const float *x, size_t row, size_t m, size_t k);

size_t ag_scratch_bytes_tiles__amx(size_t k);
void ag_matmul_q4_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q4_1_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q8_0_x16__amx(float *y, size_t y_stride, const void *packed, size_t m,
                             const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

/* AVX-512's where there are few queries, or floats in the cache. */
void ag_attention__amx(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                       const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
size_t ag_attention_scratch_bytes__amx(uint32_t head_dim, uint32_t n_queries);

#endif
