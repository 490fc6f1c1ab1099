/* SPDX-License-Identifier: Apache-2.0 */
/* The scalar kernels: the definition of every slot of ag_cpu_kernels. */
#ifndef AG_BACKEND_CPU_COMMON_H
#define AG_BACKEND_CPU_COMMON_H

#include "backend/cpu/kernels.h"

extern const ag_cpu_matmul ag_matmul_f32__common;
extern const ag_cpu_matmul ag_matmul_f16__common;
extern const ag_cpu_matmul ag_matmul_bf16__common;
extern const ag_cpu_matmul ag_matmul_q4_0__common;
extern const ag_cpu_matmul ag_matmul_q4_1__common;
extern const ag_cpu_matmul ag_matmul_q8_0__common;

size_t ag_quantize_q4_0__common(void *dst, const float *src, size_t n);
void ag_vecmat__common(float *y, const float *a, const float *b, size_t b_stride, size_t k,
                       size_t n);
void ag_rms_norm__common(float *y, const float *x, const float *w, size_t n, float eps);
void ag_softmax__common(float *x, size_t n);
void ag_rope__common(float *x, const float *cos_sin, size_t n);
void ag_silu_mul__common(float *a, const float *b, size_t n);
void ag_gelu_mul__common(float *a, const float *b, size_t n);
void ag_softcap__common(float *x, float cap, size_t n);
void ag_add__common(float *x, const float *y, size_t n);
void ag_scale__common(float *x, float v, size_t n);
void ag_attention__common(const ag_cpu_partial *out, const ag_cpu_queries *queries,
                          const ag_cpu_kv_head *kv, uint32_t slot0, void *scratch);
void ag_attention_merge__common(const ag_cpu_partial *into, const ag_cpu_partial *from, size_t n,
                                size_t head_dim);
void ag_attention_scores__common(float *scores, const ag_cpu_queries *queries,
                                 const ag_cpu_kv_head *kv, uint32_t slot0, const float *max,
                                 const float *sum, void *scratch);
size_t ag_attention_scratch_bytes__common(uint32_t head_dim, uint32_t n_queries);

void ag_key_scores__common(float *scores, const ag_cpu_kv_head *kv, void *scratch);
void ag_kv_load__common(ag_dtype type, float *dst, const void *src, size_t n);
bool ag_kv_store__common(ag_dtype type, void *dst, const float *src, size_t n);

#endif
