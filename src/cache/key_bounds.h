/* SPDX-License-Identifier: Apache-2.0 */
/* Key bounds: the minimum and maximum of each dimension over a block of keys, in 8 bits each.
 * They bound the product of a query with any key of the block (Quest, arXiv:2406.10774). */
#ifndef AG_CACHE_KEY_BOUNDS_H
#define AG_CACHE_KEY_BOUNDS_H

#include <stddef.h>

/* Returns the bytes of the bounds of keys of `dim` values. */
size_t ag_key_bounds_bytes(size_t dim);
/* Computes the bounds of keys [n, dim], which must be finite, n > 0. Rounds outwards. work [2 *
 * dim] is scratch. */
void ag_key_bounds_make(void *bounds, const float *keys, size_t n, size_t dim, float *work);

/* Computes the weights [2 * dim] of the maxima and minima for a query q [dim]. */
void ag_key_bounds_query(float *weights, const float *q, size_t dim);
/* Estimates the largest q . k of the block: halfway between the middle of the bounds and the
 * upper bound. For one key this is its product, except for rounding. */
float ag_key_bounds_likely(const void *bounds, const float *weights, size_t dim);

#endif
