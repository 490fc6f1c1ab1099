/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the device address of a buffer. */
__kernel void address_of(__global uchar *buffer, __global ulong *out) { *out = (ulong)buffer; }
