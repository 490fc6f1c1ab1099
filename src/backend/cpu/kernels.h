/* SPDX-License-Identifier: Apache-2.0 */
/* The table of CPU kernels: single-threaded functions over rows, chosen once per backend from the
 * least instruction set to the most. Threads, packing and scratch belong to ops_*.c.
 * Names: ag_<slot>__<isa>; common/ is scalar C that defines each operation, summing in double. */
#ifndef AG_BACKEND_CPU_KERNELS_H
#define AG_BACKEND_CPU_KERNELS_H

#include <antigravity/dtype.h>
#include <stdint.h>

/* Rows of one weight times rows of activations:
 *   y[i * y_stride + j] = sum over k of x[i * k + k'] * w[row0 + j][k']   for i < m, j < n_rows
 *   w    first byte of the whole weight in layout 0, row_bytes apart
 *   row  scratch for one dequantised row, k floats */
typedef void (*ag_matmul_fn)(float *y, size_t y_stride, const float *x, size_t m, const void *w,
                             size_t row_bytes, size_t row0, size_t n_rows, size_t k, float *row);

/* What attention needs of one KV head inside one call; blocks as in core/kv_view.h. */
typedef struct ag_attention_head {
    ag_dtype k_type, v_type;
    uint32_t head_dim, n_slots;
    const void *const *k_blocks; /* this head's K rows of each block */
    const void *const *v_blocks;
    const uint32_t *const *positions;
} ag_attention_head;

typedef struct ag_cpu_kernels {
    ag_matmul_fn matmul[AG_DTYPE_COUNT]; /* by weight type; NULL: type is no weight */
    void (*rms_norm)(float *y, const float *x, const float *w, size_t n, float eps);
    void (*softmax)(float *x, size_t n);
    /* cos_sin: [d/2] pairs (cos, sin) */
    void (*rope)(float *x, const float *cos_sin, size_t head_dim);
    void (*silu_mul)(float *a, const float *b, size_t n);
    void (*add)(float *x, const float *y, size_t n);
    void (*scale)(float *x, float v, size_t n);
    /* One query row of one head: out[head_dim] = softmax(q K^T * scale) V over slots whose position
     * is <= position. weights: scratch [n_slots] that holds the softmax weights afterwards. */
    void (*attention)(float *out, const float *q, const ag_attention_head *kv, uint32_t position,
                      float scale, float *weights, float *row);
} ag_cpu_kernels;

/* Fills the table with what `isa_cap` (NULL: no cap; "common", ...) and this machine allow; NULL
 * is returned for an unknown cap, else the name of the highest set chosen. */
const char *ag_cpu_kernels_init(ag_cpu_kernels *table, const char *isa_cap);

#endif
