/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a block of keys without the keys: in each dimension the least and the largest
 * value, in 8 bits each. From these follows how large a product with any key of the block can be at
 * most (Quest, arXiv:2406.10774). */
#ifndef AG_CACHE_SPILL_SKETCH_H
#define AG_CACHE_SPILL_SKETCH_H

#include <stddef.h>

/* Bytes of a sketch of keys of `dim` values. */
size_t ag_spill_sketch_bytes(size_t dim);
/* keys [n, dim], finite, n > 0; work [2 * dim]. Values are rounded outwards. */
void ag_spill_sketch_make(void *sketch, const float *keys, size_t n, size_t dim, float *work);

/* A query apart by sign: parts [2 * dim]. */
void ag_spill_sketch_query(float *parts, const float *q, size_t dim);
/* At least the largest q . k of the block, but for the rounding of the sum. */
float ag_spill_sketch_bound(const void *sketch, const float *parts, size_t dim);

#endif
