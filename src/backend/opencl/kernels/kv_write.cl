/* SPDX-License-Identifier: Apache-2.0 */
/* Writes new tokens to the blocks of a cache. */
#include "kv_rows.cl"

#ifndef WG
#define WG 32
#endif

#ifndef ROTATES
#define ROTATES 0 /* 1: rotates keys before they are written, and q in place */
#endif
#if ROTATES
#define ROTATION_PARAMS , ARRAY(q), CONST_ARRAY(inv_freq), uint q_heads, uint half_dim, float factor
enum { TURNED = 4 }; /* query heads of a row that a work-item rotates */

/* Returns cosine and sine of the angle of pair i. */
static inline float2 cos_sin(__global const float *inv_freq, uint i, uint position) {
    float c;
    const float s = sincos((float)position * inv_freq[i], &c);
    return (float2)(c, s);
}

/* Returns a pair after the rotation. */
static inline float2 rotated_pair(float a, float b, float2 t, float factor) {
    return (float2)(factor * (a * t.x - b * t.y), factor * (b * t.x + a * t.y));
}

/* Returns component c after the rotation. Components after the pairs do not change. */
static inline float rotated_value(__global const float *x, uint c, uint half_dim,
                                  __global const float *inv_freq, uint position, float factor) {
    const uint i = c < half_dim ? c : c - half_dim;
    if (i >= half_dim) return x[c];
    const float2 t = cos_sin(inv_freq, i, position);
    const float2 pair = rotated_pair(x[i], x[i + half_dim], t, factor);
    return c < half_dim ? pair.x : pair.y;
}
#define VALUE(c) \
    (is_value ? from[c] : rotated_value(from, c, half_dim, freq, at_position[row], factor))
#else
#define ROTATION_PARAMS
#define VALUE(c) from[c]
#endif

/* Writes row r of k and v [n, heads, d] to slot n_slots[c][h] + r, modulo 2^32, of KV head h of
 * cache c = caches[r]. `slots` has caches [n], then n_slots. The table of blocks has a row for each
 * head of each cache. Dimension 0 is pieces of all heads of all rows, in groups of WG: of 32
 * elements in types with blocks, else of 4; 1 is keys, values. With ROTATES it also is 2, and 0 is
 * pairs of all heads of q, TURNED heads together. */
WG_KERNEL kv_write(KV_TABLE_PARAMS, ulong v_at, ulong p_at, CONST_ARRAY(k), __global const uchar *v,
                   ulong new_v_at, CONST_ARRAY(positions), CONST_ARRAY(slots), uint k_type,
                   uint v_type, uint heads, uint d, uint n ROTATION_PARAMS) {
    __global const uint *at_position = CONST_UINTS(positions);
    const uint is_value = get_global_id(1) == 1, type = is_value ? v_type : k_type;
#if ROTATES
    __global const float *freq = CONST_FLOATS(inv_freq);
    if (get_global_id(1) == 2) {
        const uint i = get_global_id(0) % half_dim, parts = (q_heads + TURNED - 1) / TURNED;
        const size_t part = get_global_id(0) / half_dim, row = part / parts;
        const uint head = part % parts * TURNED, n_heads = min(q_heads - head, (uint)TURNED);
        if (row >= n) return;
        __global float *x = FLOATS(q) + (row * q_heads + head) * d + i;
        float a[TURNED], b[TURNED];
        for (uint h = 0; h < TURNED; h++) {
            a[h] = x[min(h, n_heads - 1) * d];
            b[h] = x[min(h, n_heads - 1) * d + half_dim];
        }
        const float2 t = cos_sin(freq, i, at_position[row]);
        for (uint h = 0; h < n_heads; h++) {
            const float2 pair = rotated_pair(a[h], b[h], t, factor);
            x[h * d] = pair.x;
            x[h * d + half_dim] = pair.y;
        }
        return;
    }
#endif
    const uint piece = type == TYPE_F32 || type == TYPE_F16 ? 4 : QK;
    const uint pieces = (d + piece - 1) / piece, at = get_global_id(0) % pieces * piece;
    const size_t item = get_global_id(0) / pieces; /* row * heads + head */
    if (item >= (size_t)n * heads) return;
    const uint row = (uint)(item / heads);
    __global const uint *caches = CONST_UINTS(slots);
    const uint head = caches[row] * heads + (uint)(item % heads);
    const uint slot = caches[n + head] + row;
    __global uchar *base = BLOCK_AT(head, slot / KV_BLOCK);
    const uint place = slot % KV_BLOCK;
    if (!is_value && at == 0) ((__global uint *)(base + p_at))[place] = at_position[row];
    __global const float *from =
        (__global const float *)(is_value ? v + new_v_at : k + k_at) + item * d;
    __global uchar *to = base + (is_value ? v_at : 0) + place * row_bytes(type, d);
    const uint width = min(d - at, piece);
    if (width == 4) {
        const float x[4] = {VALUE(at), VALUE(at + 1), VALUE(at + 2), VALUE(at + 3)};
        write_values(type, to, x, at, 4);
    } else {
        float x[QK];
        for (uint i = 0; i < width; i++) x[i] = VALUE(at + i);
        write_values(type, to, x, at, width);
    }
}
