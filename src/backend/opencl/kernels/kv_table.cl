/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses of a cache's blocks, in up to 16 buffers (AG_KV_BUFFERS). Included by kernels. */
#ifndef KV_TABLE
#define KV_TABLE

#include "arrays.cl"

enum { KV_BLOCK = 128 };
typedef __global uchar *slab; /* a buffer with blocks */

/* The table has a row of `table_row` entries for each KV head. The top byte of an entry is the
 * index of the buffer; the other bytes are the block's offset in it. Buffer 0 may be a null
 * pointer; offsets are addresses then. */
#define KV_TABLE_PARAMS                                                                       \
    slab blocks0, slab blocks1, slab blocks2, slab blocks3, slab blocks4, slab blocks5,       \
        slab blocks6, slab blocks7, slab blocks8, slab blocks9, slab blocks10, slab blocks11, \
        slab blocks12, slab blocks13, slab blocks14, slab blocks15, CONST_ARRAY(table),       \
        uint table_row

#define ENTRY_AT(row, block) \
    ((__global const ulong *)(table + table_at))[(ulong)(row)*table_row + (block)]
#define BLOCK_OF(entry)                                                                       \
    block_of(blocks0, blocks1, blocks2, blocks3, blocks4, blocks5, blocks6, blocks7, blocks8, \
             blocks9, blocks10, blocks11, blocks12, blocks13, blocks14, blocks15, entry)
#define BLOCK_AT(row, block) BLOCK_OF(ENTRY_AT(row, block))

static inline slab one_of_four(uint n, slab a, slab b, slab c, slab d) {
    return n & 2 ? (n & 1 ? d : c) : (n & 1 ? b : a);
}

static inline slab block_of(slab b0, slab b1, slab b2, slab b3, slab b4, slab b5, slab b6, slab b7,
                            slab b8, slab b9, slab b10, slab b11, slab b12, slab b13, slab b14,
                            slab b15, ulong entry) {
    const uint n = (uint)(entry >> 56);
    const slab low = n & 4 ? one_of_four(n, b4, b5, b6, b7) : one_of_four(n, b0, b1, b2, b3);
    const slab high = n & 4 ? one_of_four(n, b12, b13, b14, b15) : one_of_four(n, b8, b9, b10, b11);
    return (n & 8 ? high : low) + (entry & 0xffffffffffffffUL);
}

#endif
