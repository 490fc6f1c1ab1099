/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and maxima over a work-group of WG work-items, in a fixed order. Every work-item of the
 * group must call them. Included by kernels. */
#include "subgroup.cl"

#ifndef WG
#define WG 64
#endif

/* Returns the sum of v over all work-items. scratch: [WG] local floats. */
static inline float group_sum(float v, __local float *scratch) {
    return team_sum_of(v, WG, scratch);
}

/* Returns the maximum of v; ignores NaN. */
static inline float group_max(float v, __local float *scratch) {
    return team_max_of(v, WG, scratch);
}
