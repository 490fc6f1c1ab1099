/* SPDX-License-Identifier: Apache-2.0 */
/* Adds the attention weights of one row for each sequence, or layer, to the sums of a policy. */
#include "arrays.cl"
#include "shared.h"

/* units: ag_cl_scored for each sequence or layer, then slots [units][heads], 0 where no weights are
 * wanted, then [units][heads] leading slots that have a sum. A work-item for each slot: dimension 0
 * is slots, 1 KV heads, 2 units. */
__kernel void sum_weights(CONST_ARRAY(scores), CONST_ARRAY(units), uint group) {
    const uint slot = get_global_id(0), head = get_global_id(1), n = get_global_size(2);
    const uint heads = get_global_size(1), unit = get_global_id(2) * heads + head;
    __global const ag_cl_scored *all = (__global const ag_cl_scored *)(units + units_at);
    __global const uint *slots = (__global const uint *)(all + n);
    if (slot >= slots[unit]) return;
    const ag_cl_scored s = all[get_global_id(2)];
    __global const float *row =
        CONST_FLOATS(scores) + s.scores + (ulong)head * group * AG_CL_SCORES(s.stride);
    float sum = 0, largest = 0;
    for (uint g = 0; g < group; g++, row += AG_CL_SCORES(s.stride)) {
        const float weight = exp2(row[slot] - row[s.stride]) / row[s.stride + 1];
        sum += weight;
        largest = fmax(largest, weight);
    }
    __global float *to = (__global float *)s.sums + (ulong)slot * heads + head;
    const bool has_sum = slot < slots[n * heads + unit];
    if (s.use_max) *to = has_sum ? fmax(*to, largest) : largest;
    else *to = (has_sum ? *to : 0) + sum / (float)group;
}
