/* SPDX-License-Identifier: Apache-2.0 */
/* Converts rows of any type to floats. */
#pragma OPENCL FP_CONTRACT OFF

#include "arrays.cl"
#include "types.cl"

enum { WG = 64 };

/* y[r,:] = scale * row ids[r] of the table, or row r with `in_order`. Dimension 0 is columns, 1
 * rows. Work-groups of WG x 1. */
WG_KERNEL gather(ARRAY(y), CONST_ARRAY(table), CONST_ARRAY(ids), uint in_order, uint type,
                 uint cols, float scale) {
    const uint col = get_global_id(0);
    const size_t row = get_global_id(1);
    if (col >= cols) return;
    const ulong from = in_order ? row : CONST_UINTS(ids)[row];
    __global const uchar *p = table + table_at + from * row_bytes(type, cols);
    FLOATS(y)[row * cols + col] = scale * element(type, p, col);
}
