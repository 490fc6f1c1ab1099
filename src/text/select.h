/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the best of many logits without sorting them all: the largest, the lowest id of equal
 * ones. Logits must be finite or -infinity; -infinity is never selected. */
#ifndef AG_TEXT_SELECT_H
#define AG_TEXT_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* Writes the ids of the k best logits to ids, best first. Returns how many there are. */
size_t ag_select_top(const float *logits, size_t n, size_t k, int32_t *ids);

/* Makes ids[0..n) a heap. ag_select_pop() then removes the best: it moves it to ids[n - 1] and
 * returns it; the heap is one shorter. */
void ag_select_heapify(const float *logits, int32_t *ids, size_t n);
int32_t ag_select_pop(const float *logits, int32_t *ids, size_t n);

#endif
