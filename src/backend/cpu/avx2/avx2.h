/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels for AVX2 with FMA and F16C. */
#ifndef AG_BACKEND_CPU_AVX2_H
#define AG_BACKEND_CPU_AVX2_H

#include "backend/cpu/kernels.h"

void ag_pack_x16__avx2(void *panel, const float *x, size_t row, size_t m, size_t k);

void ag_matmul_q4_0_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q4_1_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_q8_0_x16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                              const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_f32__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                         const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_f16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                         const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);
void ag_matmul_bf16__avx2(float *y, size_t y_stride, const void *packed, size_t m,
                          const ag_cpu_weight *w, size_t row0, size_t n_rows, void *scratch);

size_t ag_quantize_q4_0__avx2(void *dst, const float *src, size_t n);

void ag_rms_norm__avx2(float *y, const float *x, const float *w, size_t n, float eps);
void ag_softmax__avx2(float *x, size_t n);
void ag_rope__avx2(float *x, const float *cos_sin, size_t n);
void ag_silu_mul__avx2(float *a, const float *b, size_t n);
void ag_gelu_mul__avx2(float *a, const float *b, size_t n);
void ag_softcap__avx2(float *x, float cap, size_t n);
void ag_attention__avx2(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                        const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
void ag_attention_merge__avx2(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                              size_t head_dim);
void ag_attention_scores__avx2(float *scores, const ag_cpu_queries *queries,
                               const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                               const float *sum, void *scratch);
size_t ag_attention_scratch_bytes__avx2(uint32_t head_dim, uint32_t n_queries);

void ag_key_scores__avx2(float *scores, const ag_cpu_kv_head *kv, void *scratch);
void ag_kv_load__avx2(ag_dtype type, float *dst, const void *src, size_t n);
bool ag_kv_store__avx2(ag_dtype type, void *dst, const float *src, size_t n);

#endif
