/* SPDX-License-Identifier: Apache-2.0 */
/* Checks the instructions of vendors' extensions. Run once when a backend that uses them is
 * created. */
#include "dot_bytes.cl"
#include "subgroup.cl"

#ifndef HALF
#define HALF 0
#endif
#if HALF == 1
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
#endif

enum { WG = 64 };

/* Counts faults of sub-groups: places must be a permutation, and sums and maxima of teams correct.
 */
static inline uint count_group_faults(__local uint *taken, __local float *scratch) {
    const uint place = group_place(), lid = get_local_id(0);
    taken[lid] = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (place < WG) atomic_inc(&taken[place]);
    barrier(CLK_LOCAL_MEM_FENCE);
    uint faults = taken[lid] != 1;
    for (uint team = WG; team >= 16; team /= 2) {
        const uint first = place / team * team;
        const float sum = (float)(team * first + team * (team - 1) / 2);
        faults += team_sum_of((float)place, team, scratch) != sum;
        faults += team_max_of((float)place, team, scratch) != (float)(first + team - 1);
    }
    return faults;
}

/* Counts faults of products, over all pairs of several bytes of either sign. */
static inline uint count_dot_faults(void) {
    const uint lid = get_local_id(0);
    uint faults = 0;
    for (uint i = 0; i < 64; i++) {
        const uint a = lid * 0x9e3779b9u ^ 0x80u, b = i * 0x85ebca6bu ^ 0x7f80u;
        const int4 p = convert_int4(as_char4(a)) * convert_int4(as_char4(b));
        faults += dot_bytes(a, b, (int)i - 32) != (int)i - 32 + (p.x + p.y) + (p.z + p.w);
    }
    return faults;
}

/* Counts faults of F16: 11 bits, rounding to nearest even, products and sums. */
static inline uint count_half_faults(void) {
#if HALF == 1
    const float4 numbers = (float4)(3.0f, -0.5f, 0x1p-10f, 100.0f);
    const half4 v = convert_half4(numbers);
    const float4 got = convert_float4(fma(v, (half4)((half)5.0f), (half4)((half)7.0f)));
    const float2 near = convert_float2(convert_half2((float2)(2049.0f, 2051.0f)));
    return any(got != (float4)(22.0f, 4.5f, 7.0f + 0x1p-8f, 507.0f)) || near.x != 2048.0f ||
           near.y != 2052.0f;
#else
    return 0;
#endif
}

/* Writes the faults of sub-groups, products of bytes and F16 to `found`. One work-group. */
__kernel SUBGROUP_KERNEL __attribute__((reqd_work_group_size(WG, 1, 1))) void
vendor_check(__global uint *found) {
    __local uint taken[WG], faults[3];
    __local float scratch[WG];
    const uint lid = get_local_id(0);
    if (lid < 3) faults[lid] = 0;
    const uint in_groups = count_group_faults(taken, scratch);
    atomic_add(&faults[0], in_groups);
    atomic_add(&faults[1], count_dot_faults());
    atomic_add(&faults[2], count_half_faults());
    barrier(CLK_LOCAL_MEM_FENCE);
    if (lid < 3) found[lid] = faults[lid];
}
