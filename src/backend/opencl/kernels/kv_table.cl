/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a cache's blocks, in up to 16 buffers (AG_KV_BUFFERS). Included by kernels. */
#ifndef KV_TABLE
#define KV_TABLE

#include "arrays.cl"

enum { KV_BLOCK = 128 };

/* The table has a row of `table_row` entries for each KV head. The top byte of an entry is the
 * index of the buffer; the other bytes are the block's offset in it. Buffer 0 may be a null
 * pointer; offsets are addresses then. */
#define KV_TABLE_PARAMS                                                               \
    __global uchar *blocks0, __global uchar *blocks1, __global uchar *blocks2,        \
        __global uchar *blocks3, __global uchar *blocks4, __global uchar *blocks5,    \
        __global uchar *blocks6, __global uchar *blocks7, __global uchar *blocks8,    \
        __global uchar *blocks9, __global uchar *blocks10, __global uchar *blocks11,  \
        __global uchar *blocks12, __global uchar *blocks13, __global uchar *blocks14, \
        __global uchar *blocks15, CONST_ARRAY(table), uint table_row

#define ENTRY_AT(row, block) \
    ((__global const ulong *)(table + table_at))[(ulong)(row)*table_row + (block)]
#define BLOCK_OF(entry)                                                                       \
    block_of(blocks0, blocks1, blocks2, blocks3, blocks4, blocks5, blocks6, blocks7, blocks8, \
             blocks9, blocks10, blocks11, blocks12, blocks13, blocks14, blocks15, entry)
#define BLOCK_AT(row, block) BLOCK_OF(ENTRY_AT(row, block))

static inline __global uchar *one_of_four(uint n, __global uchar *a, __global uchar *b,
                                          __global uchar *c, __global uchar *d) {
    return n & 2 ? (n & 1 ? d : c) : (n & 1 ? b : a);
}

static inline __global uchar *block_of(__global uchar *b0, __global uchar *b1, __global uchar *b2,
                                       __global uchar *b3, __global uchar *b4, __global uchar *b5,
                                       __global uchar *b6, __global uchar *b7, __global uchar *b8,
                                       __global uchar *b9, __global uchar *b10, __global uchar *b11,
                                       __global uchar *b12, __global uchar *b13,
                                       __global uchar *b14, __global uchar *b15, ulong entry) {
    const uint n = (uint)(entry >> 56);
    __global uchar *low = n & 4 ? one_of_four(n, b4, b5, b6, b7) : one_of_four(n, b0, b1, b2, b3);
    __global uchar *high =
        n & 4 ? one_of_four(n, b12, b13, b14, b15) : one_of_four(n, b8, b9, b10, b11);
    return (n & 8 ? high : low) + (entry & 0xffffffffffffffUL);
}

#endif
