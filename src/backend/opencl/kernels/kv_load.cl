/* SPDX-License-Identifier: Apache-2.0 */
/* Loads values of a cache as floats, four at a time. Included by kernels. */
#include "types.cl"

/* Loads four elements of a row from element i on, a multiple of 4. Elements past the row are 0.
 * Rows of blocks start at even bytes, other rows at a multiple of their element. */
static inline float4 load4(uint type, __global const uchar *row, uint i, uint dim) {
    if (dim % 4 == 0 && type == TYPE_F16) {
        return vloada_half4(0, (__global const half *)row + i);
    }
    if (dim % 4 == 0 && type == TYPE_F32) return *(__global const float4 *)(row + 4 * i);
    if (type == TYPE_Q8_0) {
        row += i / QK * 34;
        const ushort2 q = vload2(0, (__global const ushort *)(row + 2 + i % QK));
        return convert_float4(as_char4(q)) * vload_half(0, (__global const half *)row);
    }
    if (type == TYPE_Q4_0) {
        row += i / QK * 18;
        const ushort2 both = vload2(0, (__global const ushort *)(row + 2 + i % 16));
        const uchar4 q = as_uchar4(i % QK < 16 ? both : both >> (ushort)4) & (uchar)15;
        return (convert_float4(q) - 8.0f) * vload_half(0, (__global const half *)row);
    }
    const float x = element(type, row, i);
    const float y = i + 1 < dim ? element(type, row, i + 1) : 0.0f;
    const float z = i + 2 < dim ? element(type, row, i + 2) : 0.0f;
    return (float4)(x, y, z, i + 3 < dim ? element(type, row, i + 3) : 0.0f);
}
