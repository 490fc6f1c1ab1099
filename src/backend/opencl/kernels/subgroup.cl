/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over teams of adjacent work-items, with sub-groups if SUBGROUPS is set, else
 * through local memory. Included by kernels.
 *
 * The place of a work-item is its index in an order in which the work-items of a sub-group are
 * adjacent; without sub-groups it is the local id. Teams consist of adjacent places. */

#ifndef SUBGROUPS
#define SUBGROUPS 0 /* 0: off; 1: the device's; n > 1: emulated with n lanes */
#endif

/* Returns the sum, or with is_max the maximum, which ignores NaN. */
static inline float join_two(float a, float b, const bool is_max) {
    return is_max ? fmax(a, b) : a + b;
}
static inline float join_none(const bool is_max) { return is_max ? -INFINITY : 0.0f; }

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
static inline float join_subgroup(float v, const bool is_max, __local float *scratch) {
    return is_max ? sub_group_reduce_max(v) : sub_group_reduce_add(v);
}

#elif SUBGROUPS > 1
static inline uint subgroup_width(void) { return SUBGROUPS; }
/* Reverses the order of local ids, since drivers may use any order. */
static inline uint group_place(void) { return get_local_size(0) - 1 - get_local_id(0); }
static inline float join_subgroup(float v, const bool is_max, __local float *scratch) {
    const uint place = group_place(), first = place / SUBGROUPS * SUBGROUPS;
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[place] = v;
    barrier(CLK_LOCAL_MEM_FENCE);
    v = join_none(is_max);
    for (uint i = 0; i < SUBGROUPS; i++) v = join_two(v, scratch[first + i], is_max);
    return v;
}

#else
static inline uint group_place(void) { return get_local_id(0); }
#endif

#ifndef SUBGROUP_KERNEL
#define SUBGROUP_KERNEL
#endif

/* Returns the sum or the maximum over a team, in all its work-items. A team has `team` places, a
 * power of two. All work-items of the group must call it. scratch: a local float for each
 * work-item. */
static inline float join_team(float v, uint team, const bool is_max, __local float *scratch) {
    const uint place = group_place();
#if SUBGROUPS
    const uint width = subgroup_width();
    if (team % width == 0) { /* sub-groups are not wider than teams */
        v = join_subgroup(v, is_max, scratch);
        if (team == width) return v;
        barrier(CLK_LOCAL_MEM_FENCE); /* earlier reads of scratch are done */
        if (place % width == 0) scratch[place / width] = v;
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint parts = team / width, first = place / team * parts;
        v = join_none(is_max);
        for (uint i = 0; i < parts; i++) v = join_two(v, scratch[first + i], is_max);
        return v;
    }
#endif
    barrier(CLK_LOCAL_MEM_FENCE); /* earlier reads of scratch are done */
    scratch[place] = v;
    for (uint n = team / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (place % team < n) scratch[place] = join_two(scratch[place + n], scratch[place], is_max);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[place / team * team];
}
