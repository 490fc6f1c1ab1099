/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over a work-group of WG work-items, in an order that is always the same. Included
 * by kernels; every work-item of the group must come here. */
#include "subgroup.cl"

#ifndef WG
#define WG 64
#endif

/* The sum of v over all work-items, for each of them. scratch: [WG] local floats. */
static inline float group_sum(float v, __local float *scratch) {
    return team_sum_of(v, WG, scratch);
}

/* The same for the maximum; NaN is passed over. */
static inline float group_max(float v, __local float *scratch) {
    return team_max_of(v, WG, scratch);
}
