/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of any type to floats. */
#pragma OPENCL FP_CONTRACT OFF

#include "types.cl"

enum { WG = 64 };

/* y[r,:] = scale * row ids[r] of the table, or row r with `in_order`. Dimension 0 is columns, 1
 * rows. Work-groups of WG x 1. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
gather(__global uchar *y, ulong y_at, __global const uchar *table, ulong table_at,
       __global const uchar *ids, ulong ids_at, uint in_order, uint type, uint cols, float scale) {
    const uint col = get_global_id(0);
    const size_t row = get_global_id(1);
    if (col >= cols) return;
    const ulong from = in_order ? row : ((__global const uint *)(ids + ids_at))[row];
    __global const uchar *p = table + table_at + from * row_bytes(type, cols);
    ((__global float *)(y + y_at))[row * cols + col] = scale * element(type, p, col);
}
