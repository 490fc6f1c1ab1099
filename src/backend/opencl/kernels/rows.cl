/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on rows of F32 values: a pointer to the buffer and the offset in bytes. */

/* x *= v. A work-item for each element. */
__kernel void scale(__global uchar *x, ulong x_at, ulong n, float v) {
    const size_t i = get_global_id(0);
    if (i < n) ((__global float *)(x + x_at))[i] *= v;
}
