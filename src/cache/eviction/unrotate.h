/* SPDX-License-Identifier: Apache-2.0 */
/* Keys as they were before they were turned to their positions. */
#ifndef AG_CACHE_EVICTION_UNROTATE_H
#define AG_CACHE_EVICTION_UNROTATE_H

#include "cache/kv_cache.h"

/* Floats of the table of a rotation that turns n_rotated values, and of one position's angles. */
size_t ag_unrotate_table_floats(uint32_t n_rotated);

/* table: of rope, for ag_unrotate. */
void ag_unrotate_table(const ag_rope_table *rope, float *table);
/* keys [n, dim], kept at positions[n], ascending, turn back. table: ag_unrotate_table(rope);
 * far [2 * rope->n_rotated] to write on. */
void ag_unrotate(float *keys, size_t n, size_t dim, const uint32_t *positions,
                 const ag_rope_table *rope, const float *table, float *far);

#endif
