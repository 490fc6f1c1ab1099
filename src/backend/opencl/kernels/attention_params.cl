/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters of kernels that read a cache for queries. Included by kernels. */
#include "kv_table.cl"

/* until, from: [n_rows] positions; `from` is only read with WINDOW. */
#define CACHE_PARAMS                                                                         \
    KV_TABLE_PARAMS, ulong p_at, __global const uchar *slots_of, ulong slots_at, uint heads, \
        uint group, uint dim, uint n_rows, __global const uchar *until, ulong until_at,      \
        __global const uchar *from, ulong from_at, float cap

#define UINTS(p, at) ((__global const uint *)((p) + (at)))
