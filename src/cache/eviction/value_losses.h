/* SPDX-License-Identifier: Apache-2.0 */
/* Value losses: importance that also counts the values of slots. */
#ifndef AG_CACHE_EVICTION_VALUE_LOSSES_H
#define AG_CACHE_EVICTION_VALUE_LOSSES_H

#include <stddef.h>

/* Replaces importance[n], the attention that slots received, by the change of the mean query's
 * output if the slot is removed. The change is p / (1 - p) |v - o|: p is the slot's share of the
 * attention, v its value, o the sum of all p v. Results are comparable among heads. Slots without
 * attention stay 0 and INFINITY stays; without any attention nothing changes.
 *   values  [n, dim]
 *   mean    [dim] scratch
 * Source: DropKV (NVIDIA/kvpress, pull request 285), which does it for each query of a window. */
void ag_value_losses(float *importance, size_t n, const float *values, size_t dim, float *mean);

#endif
