/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters and options of kernels that read a cache for queries. Included by kernels. */
#include "kv_table.cl"

#ifndef WINDOW
#define WINDOW 0 /* 1: queries do not attend to positions before `from` */
#endif
#ifndef SOFTCAP
#define SOFTCAP 0 /* 1: a score becomes cap * tanh(score / cap) */
#endif

/* until, from: [n_rows] positions; `from` is only read with WINDOW. */
#define CACHE_PARAMS                                                                         \
    KV_TABLE_PARAMS, ulong p_at, __global const uchar *slots_of, ulong slots_at, uint heads, \
        uint group, uint dim, uint n_rows, CONST_ARRAY(until), CONST_ARRAY(from), float cap

#define UINTS(p, at) ((__global const uint *)((p) + (at)))
#define LOG2_E 1.44269504f

/* Adjacent slots of one head in a block: the first n are in use. */
typedef struct tile {
    __global const uchar *keys, *values;
    __global const uint *positions;
    uint n;
} tile;
