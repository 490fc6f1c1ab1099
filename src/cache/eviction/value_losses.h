/* SPDX-License-Identifier: Apache-2.0 */
/* What a head's output loses with each slot: importance that counts values, too. */
#ifndef AG_CACHE_EVICTION_VALUE_LOSSES_H
#define AG_CACHE_EVICTION_VALUE_LOSSES_H

#include <stddef.h>

/* importance[n], attention that slots received, becomes the length of the change of the output of
 * the mean query if the slot leaves: p / (1 - p) |v - o|, where p is the slot's share of the
 * attention, v its value and o the sum of all p v. Comparable among heads. Slots without attention
 * have none to lose, and those that are INFINITY stay so; without any attention at all, nothing
 * changes.
 *   values  [n, dim]
 *   mean    [dim] to write on
 * Source: DropKV (NVIDIA/kvpress, pull request 285), there for each query of a window. */
void ag_value_losses(float *importance, size_t n, const float *values, size_t dim, float *mean);

#endif
