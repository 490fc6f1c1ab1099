/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for 64-bit ARM: NEON, which is always there, and the products of bytes of its extensions
 * dotprod (four columns of four rows an instruction) and i8mm (eight columns of two rows by two).
 * Tests run them under an emulator: no ARM machine was at hand, so nothing here has been timed and
 * only attention, whose body other sets share, prefetches. */
#ifndef AG_BACKEND_CPU_NEON_H
#define AG_BACKEND_CPU_NEON_H

#include "backend/cpu/kernels.h"

void ag_pack_x16__neon(void *panel, const float *x, size_t row, size_t m, size_t k);
/* Of two neighbours in a tile, 8 bytes of the one follow 8 of the other. */
void ag_pack_x16__neon_i8mm(void *panel, const float *x, size_t row, size_t m, size_t k);

void ag_matmul_q4_0_x16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q4_1_x16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q8_0_x16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q4_0_x16__neon_dotprod(float *y, size_t y_stride, const void *packed, size_t m,
                                      const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                      void *scratch);
void ag_matmul_q4_1_x16__neon_dotprod(float *y, size_t y_stride, const void *packed, size_t m,
                                      const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                      void *scratch);
void ag_matmul_q8_0_x16__neon_dotprod(float *y, size_t y_stride, const void *packed, size_t m,
                                      const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                      void *scratch);
void ag_matmul_q4_0_x16__neon_i8mm(float *y, size_t y_stride, const void *packed, size_t m,
                                   const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                   void *scratch);
void ag_matmul_q4_1_x16__neon_i8mm(float *y, size_t y_stride, const void *packed, size_t m,
                                   const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                   void *scratch);
void ag_matmul_q8_0_x16__neon_i8mm(float *y, size_t y_stride, const void *packed, size_t m,
                                   const ag_cpu_weight *w, size_t row0, size_t n_rows,
                                   void *scratch);
void ag_matmul_f32__neon(float *y, size_t y_stride, const void *packed, size_t m,
                         const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_f16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                         const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_bf16__neon(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

void ag_rms_norm__neon(float *y, const float *x, const float *w, size_t n, float eps);
void ag_softmax__neon(float *x, size_t n);
void ag_rope__neon(float *x, const float *cos_sin, size_t n);
void ag_silu_mul__neon(float *a, const float *b, size_t n);
void ag_gelu_mul__neon(float *a, const float *b, size_t n);
void ag_softcap__neon(float *x, float cap, size_t n);

void ag_attention__neon(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                        const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
void ag_attention_merge__neon(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                              size_t head_dim);
void ag_attention_scores__neon(float *scores, const ag_cpu_queries *queries,
                               const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                               const float *sum, void *scratch);
size_t ag_attention_scratch_bytes__neon(uint32_t head_dim, uint32_t n_queries);
void ag_attention__neon_dotprod(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                                const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
void ag_attention_scores__neon_dotprod(float *scores, const ag_cpu_queries *queries,
                                       const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                                       const float *sum, void *scratch);
size_t ag_attention_scratch_bytes__neon_dotprod(uint32_t head_dim, uint32_t n_queries);
void ag_key_scores__neon(float *scores, const ag_cpu_kv_head *kv, void *scratch);
void ag_kv_load__neon(ag_dtype type, float *dst, const void *src, size_t n);
bool ag_kv_store__neon(ag_dtype type, void *dst, const float *src, size_t n);

#endif
