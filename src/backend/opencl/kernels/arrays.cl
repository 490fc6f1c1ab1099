/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of kernels. Included by kernels. */
#ifndef ARRAYS_CL
#define ARRAYS_CL

/* Starts the definition of a kernel with work-groups of WG x 1. */
#define WG_KERNEL __kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void

/* Two parameters for an array: its buffer and an offset in bytes, or null and its address. */
#define ARRAY(a) __global uchar *a, ulong a##_at
#define CONST_ARRAY(a) __global const uchar *a, ulong a##_at
/* The elements of such an array. */
#define FLOATS(a) ((__global float *)(a + a##_at))
#define CONST_FLOATS(a) ((__global const float *)(a + a##_at))
#define CONST_UINTS(a) ((__global const uint *)(a + a##_at))

#endif
