/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a block of keys without the keys: in each dimension the least and the largest
 * value, in 8 bits each. From these follows between what bounds products with keys of the block lie
 * (Quest, arXiv:2406.10774), and so how large the largest is likely to be. */
#ifndef AG_CACHE_SPILL_SKETCH_H
#define AG_CACHE_SPILL_SKETCH_H

#include <stddef.h>

/* Bytes of a sketch of keys of `dim` values. */
size_t ag_spill_sketch_bytes(size_t dim);
/* keys [n, dim], finite, n > 0; work [2 * dim]. Values are rounded outwards. */
void ag_spill_sketch_make(void *sketch, const float *keys, size_t n, size_t dim, float *work);

/* What multiplies the largest and the least values: parts [2 * dim]. */
void ag_spill_sketch_query(float *parts, const float *q, size_t dim);
/* How large the largest q . k of the block is likely to be: halfway from the middle of what is
 * possible to the most. Of one key its product, but for rounding. */
float ag_spill_sketch_likely(const void *sketch, const float *parts, size_t dim);

#endif
