/* SPDX-License-Identifier: Apache-2.0 */
/* KeyDiff scores of a layer's keys: -cos(key, mean of the normalised keys) in each KV head. Three
 * kernels: lengths and sums of normalised keys of each block; total sums; cosines. */
#include "kv_load.cl"
#include "kv_table.cl"
#include "reduce.cl"

/* scores [heads][n_slots]; sums [heads][n_blocks][width]; lengths [heads] slots in use. */
#define KEY_PARAMS                                                                        \
    ARRAY(scores), ARRAY(sums), uint n_slots, uint n_blocks, uint width, KV_TABLE_PARAMS, \
        CONST_ARRAY(lengths), uint type, uint dim

/* scores = 1 / length of each key, 0 for 0; sums = sum of a block's keys, each divided by its
 * length. A work-group for each block: dimension 0 is blocks, 1 KV heads. */
WG_KERNEL key_lengths(KEY_PARAMS) {
    __local float inverse[KV_BLOCK];
    const uint lid = get_local_id(0), block = get_group_id(0);
    const uint head = get_group_id(1);
    const uint slots = CONST_UINTS(lengths)[head];
    const uint n = slots > block * KV_BLOCK ? min(slots - block * KV_BLOCK, (uint)KV_BLOCK) : 0;
    const ulong row = row_bytes(type, dim);
    __global const uchar *keys = BLOCK_AT(head, block);
    __global float *of_head = FLOATS(scores) + (ulong)head * n_slots;
    for (uint s = lid; s < n; s += WG) {
        float sum = 0;
        for (uint c = 0; c < dim; c += 4) {
            const float4 v = load4(type, keys + s * row, c, dim);
            sum += dot(v, v);
        }
        const float length = sqrt(sum);
        inverse[s] = length > 0 ? 1.0f / length : 0.0f;
        of_head[block * KV_BLOCK + s] = inverse[s];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    __global float *to = FLOATS(sums) + ((ulong)head * n_blocks + block) * width;
    for (uint c = 4 * lid; c < dim; c += 4 * WG) {
        float4 sum = 0;
        for (uint s = 0; s < n; s++) sum += load4(type, keys + s * row, c, dim) * inverse[s];
        vstore4(sum, c / 4, to);
    }
}

/* Replaces the first of a head's sums by the normalised total. Dimension 1 is KV heads. */
WG_KERNEL key_mean(KEY_PARAMS) {
    __local float shared[WG];
    const uint lid = get_local_id(0);
    __global float *of_head = FLOATS(sums) + (ulong)get_group_id(1) * n_blocks * width;
    float squares = 0;
    for (uint c = lid; c < width; c += WG) {
        float sum = 0;
        for (uint b = 0; b < n_blocks; b++) sum += of_head[(ulong)b * width + c];
        of_head[c] = sum;
        squares = fma(sum, sum, squares);
    }
    const float length = sqrt(group_sum(squares, shared));
    for (uint c = lid; c < width; c += WG) of_head[c] *= length > 0 ? 1.0f / length : 0.0f;
}

/* Replaces inverse lengths by scores. A work-item for each slot: dimension 0 is slots, 1 KV heads.
 */
WG_KERNEL key_cosines(KEY_PARAMS) {
    const uint slot = get_global_id(0);
    const uint head = get_group_id(1);
    if (slot >= CONST_UINTS(lengths)[head]) return;
    __global const uchar *key =
        BLOCK_AT(head, slot / KV_BLOCK) + slot % KV_BLOCK * row_bytes(type, dim);
    __global const float *mean = CONST_FLOATS(sums) + (ulong)head * n_blocks * width;
    float sum = 0;
    for (uint c = 0; c < dim; c += 4) sum += dot(load4(type, key, c, dim), vload4(c / 4, mean));
    FLOATS(scores)[(ulong)head * n_slots + slot] *= -sum;
}
