/* SPDX-License-Identifier: Apache-2.0 */
/* Moves slots of one KV head: to scratch memory, and from there to their new slots. A row of
 * scratch memory is K, V and the position of a slot. */
#include "kv_table.cl"

enum { WG = 64 };

/* Moves the retained slots from index `first` on, which is the first element of keep and scratch.
 * Copies slot keep[i] to scratch memory, or (`back`) scratch memory to slot i. k_row, v_row: bytes
 * of a row, even. Dimension 0 is pairs of bytes of a row, 1 rows. Work-groups of WG x 1. */
WG_KERNEL move_slots(KV_TABLE_PARAMS, uint head, ulong v_at, ulong p_at, __global uchar *scratch,
                     CONST_ARRAY(keep), uint k_row, uint v_row, uint first, uint back) {
    const uint i = first + get_global_id(1), all = k_row + v_row + 4;
    uint at = 2 * get_global_id(0);
    if (at >= all) return;
    __global ushort *here = (__global ushort *)(scratch + (ulong)(i - first) * all + at);
    const uint slot = back ? i : CONST_UINTS(keep)[i - first];
    __global uchar *part = BLOCK_AT(head, slot / KV_BLOCK);
    uint row = k_row;
    if (at >= k_row + v_row) {
        at -= k_row + v_row;
        part += p_at;
        row = 4;
    } else if (at >= k_row) {
        at -= k_row;
        part += v_at;
        row = v_row;
    }
    __global ushort *there = (__global ushort *)(part + slot % KV_BLOCK * row + at);
    if (back) *there = *here;
    else *here = *there;
}
