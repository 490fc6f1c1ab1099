/* SPDX-License-Identifier: Apache-2.0 */
/* KV rows: copies slots of one KV head out of a cache and inserts them again. Only for caches in
 * memory that the host sees. */
#ifndef AG_CACHE_KV_ROWS_H
#define AG_CACHE_KV_ROWS_H

#include "cache/kv_cache.h"

/* n slots in ascending order of position; keys are rotated as the cache stores them. */
typedef struct ag_kv_rows {
    ag_dtype k_type, v_type;
    uint32_t n;
    uint32_t *positions; /* [n] */
    uint8_t *k, *v;      /* [n] rows of head_dim values */
} ag_kv_rows;

/* Reads the rows of slots[0..n), which must ascend; out->v may be NULL. Fails with AG_FORMAT if
 * the types of `out` cannot represent a value. values [head_dim] is scratch. */
ag_status ag_kv_cache_get_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const uint32_t *slots, ag_kv_rows *out, float *values,
                               ag_error *err);
/* Inserts the rows where their positions belong and sets slots [n] to their slot numbers. Fails
 * with AG_LIMIT if they do not fit, and with AG_INVALID if a position is already cached or
 * positions do not ascend. Fails with AG_FORMAT if the cache's types cannot represent a value.
 * No slot changes after a failure. values [head_dim] is scratch. */
ag_status ag_kv_cache_put_rows(ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const ag_kv_rows *rows, uint32_t *slots, float *values,
                               ag_error *err);

#endif
