/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over a work-group of WG work-items, in an order that is always the same. Included
 * by kernels; every work-item of the group must come here. */
#ifndef WG
#define WG 64
#endif

/* The sum of v over all work-items, for each of them. scratch: [WG] local floats. */
static inline float group_sum(float v, __local float *scratch) {
    const uint lid = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE); /* the last use of scratch is over */
    scratch[lid] = v;
    for (uint n = WG / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < n) scratch[lid] += scratch[lid + n];
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[0];
}

/* The same for the maximum; NaN is passed over. */
static inline float group_max(float v, __local float *scratch) {
    const uint lid = get_local_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
    scratch[lid] = v;
    for (uint n = WG / 2; n > 0; n /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lid < n) scratch[lid] = fmax(scratch[lid], scratch[lid + n]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    return scratch[0];
}
