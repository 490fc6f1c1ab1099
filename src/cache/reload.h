/* SPDX-License-Identifier: Apache-2.0 */
/* Brings spilled blocks back in place of resident ones that the newest queries want less. Before a
 * layer's attention the blocks of each KV head are compared by the weight that the queries give to
 * one key, the largest: those in the cache by their keys, those in the file first by their
 * sketches, and the heaviest of these by their keys, too, which are read for it. */
#ifndef AG_CACHE_RELOAD_H
#define AG_CACHE_RELOAD_H

#include "cache/spill.h"

typedef struct ag_reloader ag_reloader;

enum { AG_RELOAD_ROWS = 32 }; /* newest rows of a pass that ask, at most */

/* Cache and spill are borrowed. */
ag_status ag_reloader_create(ag_kv_cache *cache, ag_spill *spill, ag_reloader **out, ag_error *err);
void ag_reloader_destroy(ag_reloader *r);
/* Bytes of one for a cache of these parameters, at most. */
size_t ag_reloader_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv);
void ag_reloader_set_spill(ag_reloader *r, ag_spill *spill);

/* What the pass that begins now allows. */
typedef struct ag_reload_pass {
    ag_score_sums *sums; /* borrowed; NULL: the policy has none */
    bool resets_sums;    /* they begin at 0 in this pass */
    uint32_t n_rows;     /* of the pass */
    uint32_t recent;     /* newest slots that stay */
    uint32_t n_slots;    /* of a head: up to these a block comes back without another one leaving */
    bool many;           /* as many blocks as may be, else a few in each head */
} ag_reload_pass;
void ag_reloader_begin(ag_reloader *r, const ag_reload_pass *pass);

/* In a layer without a window, whose new slots are in the cache. q [n_rows, n_heads, head_dim] F32,
 * turned; scale: of q . k. */
ag_status ag_reloader_run_layer(ag_reloader *r, uint32_t layer, const ag_tensor *q, float scale,
                                ag_error *err);

#endif
