/* SPDX-License-Identifier: Apache-2.0 */
/* Reloader: moves spilled blocks back into the cache, in exchange for resident slots that the
 * newest queries weigh less. Before a layer's attention it compares the blocks of each KV head
 * by the largest attention weight of one of their keys. Resident blocks are compared by their
 * keys. Spilled blocks are ranked by their key bounds first; the keys of the best ones are then
 * read from the file. */
#ifndef AG_CACHE_RELOAD_H
#define AG_CACHE_RELOAD_H

#include "cache/spill.h"

typedef struct ag_reloader ag_reloader;

enum { AG_RELOAD_ROWS = 32 }; /* maximum number of newest rows of a pass that are used as queries */

/* Borrows cache and spill store. *out is NULL if spill is NULL. */
ag_status ag_reloader_create(ag_kv_cache *cache, ag_spill *spill, ag_reloader **out, ag_error *err);
void ag_reloader_destroy(ag_reloader *r);
/* Returns the maximum bytes of a reloader for a cache of these parameters. */
size_t ag_reloader_plan_bytes(const ag_spill_params *p, const ag_kv_params *kv);
void ag_reloader_set_spill(ag_reloader *r, ag_spill *spill);

/* Limits for the pass that begins now. */
typedef struct ag_reload_pass {
    ag_score_sums *sums; /* borrowed; NULL: the policy uses none */
    bool resets_sums;    /* sums restart at 0 in this pass */
    uint32_t n_rows;     /* rows of the pass */
    uint32_t recent;     /* newest slots that always stay */
    uint32_t n_slots;    /* length of a head: below it a block is reloaded without an exchange */
    bool many;           /* reload up to 8 blocks per head instead of 4 */
} ag_reload_pass;
void ag_reloader_begin(ag_reloader *r, const ag_reload_pass *pass);

/* Reloads blocks of one layer, whose new slots must be in the cache. Does nothing for a layer
 * with a window. q [n_rows, n_heads, head_dim] F32, rotated; scale: multiplies q . k. */
ag_status ag_reloader_run_layer(ag_reloader *r, uint32_t layer, const ag_tensor *q, float scale,
                                ag_error *err);

#endif
