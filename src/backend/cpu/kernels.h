/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CPU kernels: single-threaded functions over rows, chosen once per backend from the
 * least instruction set to the most. Threads, packed activations and scratch belong to ops_*.c.
 * Names: ag_<slot>__<isa>; common/ is scalar C that defines each operation, summing in double. */
#ifndef AG_BACKEND_CPU_KERNELS_H
#define AG_BACKEND_CPU_KERNELS_H

#include "backend/cpu/interleaved.h"

#include <antigravity/dtype.h>

/* A weight as a kernel sees it. */
typedef struct ag_cpu_weight {
    const void *data; /* the first byte of all its rows */
    size_t row_bytes; /* from row to row; of no meaning in a layout that interleaves them */
    size_t k;
    const void *prefetch_end; /* what this thread reads next ends here; NULL: not to be fetched */
} ag_cpu_weight;

/* How prepared rows lie in memory: groups of `rows` rows, each of group_bytes(k); the last may be
 * partly filled. */
typedef struct ag_cpu_layout {
    uint32_t id; /* ag_tensor.layout */
    size_t rows;
    size_t (*group_bytes)(size_t k);
    /* Writes one group: n_rows rows as the type says, row_bytes apart. */
    void (*fill)(void *group, const void *rows, size_t row_bytes, size_t n_rows, size_t k);
} ag_cpu_layout;

/* The product with one type of weight. Activations are packed first, once for all weights of a
 * call that have the same `pack`; threads then take rows of the weights. */
typedef struct ag_cpu_matmul {
    size_t (*packed_bytes)(size_t k);  /* of one row of activations; a multiple of 64 */
    size_t (*scratch_bytes)(size_t k); /* of one thread; NULL: none */
    /* Row number `row` of a panel of m rows, m * packed_bytes(k) long. */
    void (*pack)(void *panel, const float *x, size_t row, size_t m, size_t k);
    /* y[i * y_stride + j] = sum of x[i][:] * w[row0 + j][:] for i < m, j < n_rows. A value must not
     * depend on m, on its place in the panel or on n_rows. row0 is a multiple of AG_ROW_UNIT, and
     * so is n_rows, unless the weight ends there. */
    void (*rows)(float *y, size_t y_stride, const void *packed, size_t m, const ag_cpu_weight *w,
                 size_t row0, size_t n_rows, void *scratch);
    const ag_cpu_layout *layout; /* of the weight; NULL: rows as the type says */
} ag_cpu_matmul;

enum { AG_ROW_UNIT = 16 }; /* rows that are never split between threads */

/* Bytes of a packed row for products with rows of floats, and its packing: a copy that begins at a
 * cache line and ends with zeros. */
static inline size_t ag_floats_row_bytes(size_t k) { return (k * sizeof(float) + 63) / 64 * 64; }
size_t ag_packed_bytes_floats(size_t k);
void ag_pack_floats(void *panel, const float *x, size_t row, size_t m, size_t k);

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
    const ag_cpu_matmul *matmul[AG_DTYPE_COUNT];   /* by weight type; NULL: type is no weight */
    const ag_cpu_matmul *prepared[AG_DTYPE_COUNT]; /* of weights in a layout; NULL: there is none */
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
void ag_cpu_kernels_avx2(ag_cpu_kernels *table);
void ag_cpu_kernels_avx512(ag_cpu_kernels *table);

#endif
