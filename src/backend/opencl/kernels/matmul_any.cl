/* SPDX-License-Identifier: Apache-2.0 */
/* Products without prepared weights: weights of any type at any byte, and the plain product.
 * Correct on every device and slow: models multiply with prepared weights. */
#include "arrays.cl"
#include "reduce.cl"
#include "types.cl"

/* y[m,n] = x[m,k] * w[n,k]^T. A work-group of WG for each value of y: dimension 0 is columns, 1
 * rows.
 */
WG_KERNEL matmul_any(ARRAY(y), CONST_ARRAY(x), CONST_ARRAY(w), uint type, uint n, uint k) {
    __local float scratch[WG];
    const uint column = get_group_id(0);
    const size_t row = get_group_id(1);
    __global const uchar *weights = w + w_at + column * row_bytes(type, k);
    __global const float *in = CONST_FLOATS(x) + row * k;
    float sum = 0;
    for (uint i = get_local_id(0); i < k; i += WG) sum = fma(in[i], element(type, weights, i), sum);
    sum = group_sum(sum, scratch);
    if (get_local_id(0) == 0) FLOATS(y)[row * n + column] = sum;
}

/* y[m,n] = a[m,k] * b[k,n] with compensated summation. A work-item for each value of y: dimension 0
 * is columns, 1 rows; work-groups of WG x 1. */
WG_KERNEL matmul_plain(ARRAY(y), CONST_ARRAY(a), CONST_ARRAY(b), uint n, uint k) {
    const uint column = get_global_id(0);
    const size_t row = get_global_id(1);
    if (column >= n) return;
    __global const float *p = CONST_FLOATS(a) + row * k;
    __global const float *q = CONST_FLOATS(b) + column;
    float sum = 0, error = 0;
    for (uint i = 0; i < k; i++, q += n) {
        const float product = p[i] * *q, lost = fma(p[i], *q, -product);
        const float next = sum + product, part = next - sum;
        error += ((sum - (next - part)) + (product - part)) + lost;
        sum = next;
    }
    /* The error of an infinite sum is NaN and is ignored. */
    FLOATS(y)[row * n + column] = isfinite(sum) ? sum + error : sum;
}
