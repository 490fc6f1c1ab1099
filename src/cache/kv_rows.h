/* SPDX-License-Identifier: Apache-2.0 */
/* Slots of one KV head, taken out of a cache and put in again. Of caches in memory that the host
 * sees. */
#ifndef AG_CACHE_KV_ROWS_H
#define AG_CACHE_KV_ROWS_H

#include "cache/kv_cache.h"

/* n slots, in order of position; keys are rotated as the cache keeps them. */
typedef struct ag_kv_rows {
    ag_dtype k_type, v_type;
    uint32_t n;
    uint32_t *positions; /* [n] */
    uint8_t *k, *v;      /* [n] rows of head_dim values */
} ag_kv_rows;

/* The rows of slots[0..n), ascending; out->v may be NULL. AG_FORMAT if a value cannot be kept in
 * the types of `out`. values [head_dim] to write on. */
ag_status ag_kv_cache_get_rows(const ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const uint32_t *slots, ag_kv_rows *out, float *values,
                               ag_error *err);
/* The rows become slots again, where their positions say; slots [n]: which. AG_LIMIT if they do not
 * fit, AG_INVALID if one of the positions is there or they do not ascend: nothing has changed
 * then. AG_FORMAT if a value cannot be kept in the cache's types, which leaves the head with
 * arbitrary slots: rows that the cache had do not do that. */
ag_status ag_kv_cache_put_rows(ag_kv_cache *c, uint32_t layer, uint32_t head,
                               const ag_kv_rows *rows, uint32_t *slots, float *values,
                               ag_error *err);

#endif
