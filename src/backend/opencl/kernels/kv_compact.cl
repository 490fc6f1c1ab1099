/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of one KV head on their way to other slots: into scratch, and from there back. Rows lie in
 * scratch one after the other: K, V and the position of a slot. */
#ifndef WG
#define WG 64
#endif
enum { KV_BLOCK = 128 };

/* Kept slots number begin and on; keep and scratch begin with number `first`. Into scratch comes
 * slot keep[i], from it (`back`) goes slot i; all these slots lie in blocks of the head from block0
 * on that follow one another, `stride` bytes apart, from cache_at on. k_row, v_row: bytes of a row,
 * even. Dimension 0: pairs of bytes of a row, 1: rows. Work-groups of WG x 1. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
move_slots(__global uchar *cache, ulong cache_at, ulong stride, ulong v_at, ulong p_at, uint block0,
           __global uchar *scratch, __global const uchar *keep, ulong keep_at, uint k_row,
           uint v_row, uint first, uint begin, uint back) {
    const uint i = begin + get_global_id(1), all = k_row + v_row + 4;
    uint at = 2 * get_global_id(0);
    if (at >= all) return;
    __global ushort *here = (__global ushort *)(scratch + (ulong)(i - first) * all + at);
    const uint slot = back ? i : ((__global const uint *)(keep + keep_at))[i - first];
    __global uchar *part = cache + cache_at + (slot / KV_BLOCK - block0) * stride;
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
