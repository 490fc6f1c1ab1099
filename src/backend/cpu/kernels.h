/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CPU kernels: single-threaded functions over rows, chosen once per backend from the
 * least instruction set to the most. Threads, packed activations and scratch belong to ops_*.c.
 * Names: ag_<slot>__<isa>; common/ is scalar C that defines each operation, summing in double. */
#ifndef AG_BACKEND_CPU_KERNELS_H
#define AG_BACKEND_CPU_KERNELS_H

#include <antigravity/dtype.h>
#include <stdint.h>

/* A weight as a kernel sees it: the first byte of all its rows, row_bytes apart, k values each. */
typedef struct ag_cpu_weight {
    const void *data;
    size_t row_bytes, k;
} ag_cpu_weight;

/* The product with one type of weight. Activations are packed first, once for all weights of a
 * call that have the same `pack`; threads then take rows of the weights. */
typedef struct ag_cpu_matmul {
    size_t (*packed_bytes)(size_t k);  /* of one row of activations; a multiple of 64 */
    size_t (*scratch_bytes)(size_t k); /* of one thread */
    void (*pack)(void *packed, const float *x, size_t k); /* one row */
    /* y[i * y_stride + j] = sum of x[i][:] * w[row0 + j][:] for i < m, j < n_rows. A value must not
     * depend on m, on its place in the panel or on n_rows. */
    void (*rows)(float *y, size_t y_stride, const void *packed, size_t m, const ag_cpu_weight *w,
                 size_t row0, size_t n_rows, void *scratch);
} ag_cpu_matmul;

/* What attention needs of one KV head: base addresses of the sequence's blocks (core/kv_view.h)
 * and where this head's rows begin in each. */
typedef struct ag_cpu_kv_head {
    ag_dtype k_type, v_type;
    uint32_t head_dim, n_slots;
    const unsigned char *const *blocks;
    size_t k_offset, v_offset, p_offset;
} ag_cpu_kv_head;

/* Query heads that share one KV head and one position, in one pass over the cache. */
typedef struct ag_cpu_attention_query {
    const float *q; /* [n_heads, head_dim] */
    float *out;     /* [n_heads, head_dim] */
    uint32_t n_heads, position;
    float scale;
} ag_cpu_attention_query;

typedef struct ag_cpu_kernels {
    const ag_cpu_matmul *matmul[AG_DTYPE_COUNT]; /* by weight type; NULL: type is no weight */
    /* y[0..n) = a[0..k) * b[k,n]: one row of a plain product, columns b_stride apart. */
    void (*vecmat)(float *y, const float *a, const float *b, size_t b_stride, size_t k, size_t n);
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    void (*softmax)(float *x, size_t n);
    /* cos_sin: [d/2] pairs (cos, sin) */
    void (*rope)(float *x, const float *cos_sin, size_t head_dim);
    void (*silu_mul)(float *a, const float *b, size_t n);
    void (*add)(float *x, const float *y, size_t n);
    void (*scale)(float *x, float v, size_t n);
    /* out = softmax(q K^T * scale) V over the slots whose position is <= the query's; returns their
     * number, which may be 0 (out is 0 then). weights: [n_heads][weight_stride >= n_slots], holds
     * the softmax weights of the visible slots afterwards. */
    uint32_t (*attention)(const ag_cpu_attention_query *query, const ag_cpu_kv_head *kv,
                          float *weights, size_t weight_stride, void *scratch);
    size_t (*attention_scratch_bytes)(uint32_t head_dim, uint32_t n_heads);
} ag_cpu_kernels;

/* Fills the table with what `isa_cap` (NULL: no cap; "common", ...) and this machine allow; NULL
 * is returned for an unknown cap, else the name of the highest set chosen. */
const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap);

/* One function for each instruction set: puts its kernels into the table. */
void ag_cpu_kernels_common(ag_cpu_kernels *table);

#endif
