/* SPDX-License-Identifier: Apache-2.0 */
/* Undoes the rotation of keys by their positions. */
#ifndef AG_CACHE_EVICTION_UNROTATE_H
#define AG_CACHE_EVICTION_UNROTATE_H

#include "cache/kv_cache.h"

/* Returns the floats of the table for a rotation of n_rotated values. */
size_t ag_unrotate_table_floats(uint32_t n_rotated);

/* Computes the table of a rotation for ag_unrotate(). */
void ag_unrotate_table(const ag_rope_table *rope, float *table);
/* Unrotates keys [n, dim] at positions[n], which must ascend. table: ag_unrotate_table(rope);
 * far [rope->n_rotated] is scratch. */
void ag_unrotate(float *keys, size_t n, size_t dim, const uint32_t *positions,
                 const ag_rope_table *rope, const float *table, float *far);

#endif
