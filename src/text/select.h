/* SPDX-License-Identifier: Apache-2.0 */
/* The best few of many logits, without sorting them all. Better is the larger logit and, among
 * equals, the lower id. Logits are finite or -infinity; ids of the latter are never chosen. */
#ifndef AG_TEXT_SELECT_H
#define AG_TEXT_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* Writes the ids of the k best to ids[0..k), best first, and returns how many there are. */
size_t ag_select_top(const float *logits, size_t n, size_t k, int32_t *ids);

/* Makes ids[0..n) a heap, from which ag_select_pop then takes the best, one after another: the
 * popped id stands at ids[n - 1] and the heap is one shorter. */
void ag_select_heapify(const float *logits, int32_t *ids, size_t n);
int32_t ag_select_pop(const float *logits, int32_t *ids, size_t n);

#endif
