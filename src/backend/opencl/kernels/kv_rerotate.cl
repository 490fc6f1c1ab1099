/* SPDX-License-Identifier: Apache-2.0 */
/* Rotates unrotated keys and writes them to their slots. */
#include "kv_rows.cl"

enum { WG = 64 };

/* Writes the key of position p and KV head h in layer l, keys [..., n_positions, heads, d] from
 * float keys_at on, to slot slots[l][h][p] (if any) of row l * heads + h of the table. The first
 * `rotated` values are rotated by the angles cos_sin [n_positions, rotated / 2] pairs. All values
 * are then multiplied by a Hadamard matrix in pieces (1: none) and by v. x: d floats. A work-group
 * for each key: dimension 0 is heads and positions, 1 layers. */
WG_KERNEL kv_rerotate(KV_TABLE_PARAMS, __global const float *keys, ulong keys_at,
                      CONST_ARRAY(slots), CONST_ARRAY(cos_sin), uint type, uint heads,
                      uint n_positions, uint d, uint rotated, uint piece, float v,
                      __local float *x) {
    const uint lid = get_local_id(0), half_d = d / 2, half_r = rotated / 2;
    const uint head = get_group_id(0) % heads, position = get_group_id(0) / heads;
    const ulong layer = get_group_id(1);
    const uint slot = ((
        __global const uint *)(slots + slots_at))[(layer * heads + head) * n_positions + position];
    if (slot == UINT_MAX) return;
    __global const float *key =
        keys + keys_at + ((layer * n_positions + position) * heads + head) * d;
    __global const float *angles = CONST_FLOATS(cos_sin) + (ulong)position * rotated;
    for (uint i = lid; i < half_r; i += WG) {
        const float low = key[i], high = key[i + half_r], c = angles[2 * i], s = angles[2 * i + 1];
        x[i] = low * c - high * s;
        x[i + half_r] = high * c + low * s;
    }
    for (uint i = rotated + lid; i < d; i += WG) x[i] = key[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint apart = 1; apart < piece; apart *= 2) {
        for (uint i = lid; i < half_d; i += WG) {
            const uint at = i / apart * 2 * apart + i % apart;
            const float a = x[at], b = x[at + apart];
            x[at] = a + b;
            x[at + apart] = a - b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    __global uchar *row =
        BLOCK_AT(layer * heads + head, slot / KV_BLOCK) + slot % KV_BLOCK * row_bytes(type, d);
    for (uint at = lid * QK; at < d; at += WG * QK) {
        const uint width = min(d - at, (uint)QK);
        float values[QK];
        for (uint i = 0; i < width; i++) values[i] = piece > 1 ? x[at + i] * v : x[at + i];
        write_values(type, row, values, at, width);
    }
}
