/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of a block of keys without the keys: in each dimension the least and the largest
 * value, in 8 bits each. From these follows between what bounds products with keys of the block lie
 * (Quest, arXiv:2406.10774), and so how large the largest is likely to be. */
#ifndef AG_CACHE_KEY_BOUNDS_H
#define AG_CACHE_KEY_BOUNDS_H

#include <stddef.h>

/* Bytes of a sketch of keys of `dim` values. */
size_t ag_key_bounds_bytes(size_t dim);
/* keys [n, dim], finite, n > 0; work [2 * dim]. Values are rounded outwards. */
void ag_key_bounds_make(void *bounds, const float *keys, size_t n, size_t dim, float *work);

/* What multiplies the largest and the least values: parts [2 * dim]. */
void ag_key_bounds_query(float *weights, const float *q, size_t dim);
/* How large the largest q . k of the block is likely to be: halfway from the middle of what is
 * possible to the most. Of one key its product, but for rounding. */
float ag_key_bounds_likely(const void *bounds, const float *weights, size_t dim);

#endif
