/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over teams of adjacent work-items, with sub-groups if SUBGROUPS is set, else
 * through local memory. Included by kernels.
 *
 * The place of a work-item is its index in an order in which the work-items of a sub-group are
 * adjacent; without sub-groups it is the local id. Teams consist of adjacent places. */

#ifndef SUBGROUPS
#define SUBGROUPS 0 /* 0: off; 1: the device's; n > 1: emulated with n lanes */
#endif

#if SUBGROUPS == 1
#if defined(cl_khr_subgroups)
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#endif
/* Adreno has two sizes of sub-groups; this selects the one where a team of 64 is a sub-group. */
#if defined(cl_qcom_reqd_sub_group_size)
#pragma OPENCL EXTENSION cl_qcom_reqd_sub_group_size : enable
#define SUBGROUP_KERNEL __attribute__((qcom_reqd_sub_group_size("half")))
#endif
static inline uint subgroup_width(void) { return get_max_sub_group_size(); }
static inline uint group_place(void) {
    return get_sub_group_id() * get_max_sub_group_size() + get_sub_group_local_id();
}
static inline float subgroup_sum(float v, __local float *scratch) {
    return sub_group_reduce_add(v);
}
static inline float subgroup_max(float v, __local float *scratch) {
    return sub_group_reduce_max(v);
}

#elif SUBGROUPS > 1
static inline uint subgroup_width(void) { return SUBGROUPS; }
/* Reverses the order of local ids, since drivers may use any order. */
static inline uint group_place(void) { return get_local_size(0) - 1 - get_local_id(0); }
static inline float subgroup_sum(float v, __local float *scratch) {
    const uint place = group_place(), first = place / SUBGROUPS * SUBGROUPS;
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[place] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = 0;
    for (uint i = 0; i < SUBGROUPS; i++) v += scratch[first + i];
    return v;
}
static inline float subgroup_max(float v, __local float *scratch) {
    const uint place = group_place(), first = place / SUBGROUPS * SUBGROUPS;
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[place] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = 0; i < SUBGROUPS; i++) v = fmax(v, scratch[first + i]);
    return v;
}

#else
static inline uint group_place(void) { return get_local_id(0); }
#endif

#ifndef SUBGROUP_KERNEL
#define SUBGROUP_KERNEL
#endif

/* Returns the sum over a team, in all its work-items. A team has `team` places, a power of two. All
 * work-items of the group must call it. scratch: a local float for each work-item. */
static inline float team_sum_of(float v, uint team, __local float *scratch) {
    const uint place = group_place();
#if SUBGROUPS
    const uint width = subgroup_width();
    if (team % width == 0) { /* sub-groups are not wider than teams */
        v = subgroup_sum(v, scratch);
        if (team == width) return v;
        barrier(CLK_LOCAL_MEM_FENCE); /* earlier reads of scratch are done */
        if (place % width == 0) scratch[place / width] = v;
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint parts = team / width, first = place / team * parts;
        float sum = 0;
        for (uint i = 0; i < parts; i++) sum += scratch[first + i];
        return sum;
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE); /* earlier reads of scratch are done */
    scratch[place] = v;
    for (uint n = team / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place % team < n) scratch[place] += scratch[place + n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[place / team * team];
}

/* Returns the maximum of v; ignores NaN. */
static inline float team_max_of(float v, uint team, __local float *scratch) {
    const uint place = group_place();
#if SUBGROUPS
    const uint width = subgroup_width();
    if (team % width == 0) {
        v = subgroup_max(v, scratch);
        if (team == width) return v;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place % width == 0) scratch[place / width] = v;
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint parts = team / width, first = place / team * parts;
        float max_value = -INFINITY;
        for (uint i = 0; i < parts; i++) max_value = fmax(max_value, scratch[first + i]);
        return max_value;
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[place] = v;
    for (uint n = team / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place % team < n) scratch[place] = fmax(scratch[place], scratch[place + n]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[place / team * team];
}
