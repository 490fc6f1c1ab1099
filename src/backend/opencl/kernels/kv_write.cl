/* SPDX-License-Identifier: Apache-2.0 */
/* Writes new tokens to the blocks of a cache. */
#include "kv_rows.cl"

#ifndef WG
#define WG 32
#endif

/* Writes row r of k and v [n, heads, d] to slot n_slots[c][h] + r, modulo 2^32, of KV head h of
 * cache c = caches[r]. `slots` has caches [n], then n_slots. The table of blocks has a row for each
 * head of each cache. Dimension 0 is pieces of all heads of all rows, in groups of WG: of 32
 * elements in types with blocks, else of 4; 1 is keys, values. */
__kernel __attribute__((reqd_work_group_size(WG, 1, 1))) void
kv_write(KV_TABLE_PARAMS, ulong v_at, ulong p_at, __global const uchar *k, ulong k_at,
         __global const uchar *v, ulong new_v_at, __global const uchar *positions,
         ulong positions_at, __global const uchar *slots, ulong slots_at, uint k_type, uint v_type,
         uint heads, uint d, uint n) {
    const uint is_value = get_global_id(1), type = is_value ? v_type : k_type;
    const uint piece = type == TYPE_F32 || type == TYPE_F16 ? 4 : QK;
    const uint pieces = (d + piece - 1) / piece, at = get_global_id(0) % pieces * piece;
    const size_t item = get_global_id(0) / pieces; /* row * heads + head */
    if (item >= (size_t)n * heads) return;
    const uint row = (uint)(item / heads);
    __global const uint *caches = (__global const uint *)(slots + slots_at);
    const uint head = caches[row] * heads + (uint)(item % heads);
    const uint slot = caches[n + head] + row;
    __global uchar *base = BLOCK_AT(head, slot / KV_BLOCK);
    const uint place = slot % KV_BLOCK;
    if (!is_value && at == 0) {
        ((__global uint *)(base + p_at))[place] =
            ((__global const uint *)(positions + positions_at))[row];
    }
    __global const float *from =
        (__global const float *)(is_value ? v + new_v_at : k + k_at) + item * d + at;
    __global uchar *to = base + (is_value ? v_at : 0) + place * row_bytes(type, d);
    const uint width = min(d - at, piece);
    if (width == 4) {
        const float x[4] = {from[0], from[1], from[2], from[3]};
        write_values(type, to, x, at, 4);
    } else {
        float x[QK];
        for (uint i = 0; i < width; i++) x[i] = from[i];
        write_values(type, to, x, at, width);
    }
}
