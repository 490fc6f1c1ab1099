/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one sequence's cache within its budget: asks the policy which slots stay, at the right
 * times, with what it needs to know, and reports what left.
 *
 * Around every pass of the model: before(), the pass, after(). A manager that is NULL (nothing ever
 * leaves) is fine everywhere. */
#ifndef AG_CACHE_CACHE_MANAGER_H
#define AG_CACHE_CACHE_MANAGER_H

#include "cache/eviction/budget.h"
#include "cache/eviction/score_sums.h"
#include "cache/spill.h"
#include "cache/turns.h"

#include <antigravity/eviction.h>

typedef struct ag_cache_manager ag_cache_manager;

/* The cache is borrowed, and so is what rope [n_layers], which is copied, points to; trained:
 * positions the model was trained for. Everything later needed is allocated here. *out is NULL if
 * nothing ever leaves. */
ag_status ag_cache_manager_create(ag_kv_cache *cache, const ag_eviction_params *p,
                                  const ag_rope_table *rope, uint32_t trained,
                                  ag_cache_manager **out, ag_error *err);
void ag_cache_manager_destroy(ag_cache_manager *m);
/* The cache has been cleared. */
void ag_cache_manager_reset(ag_cache_manager *m);
/* The pass that before() announced has failed; the cache is going to be truncated to where it was.
 */
void ag_cache_manager_abandon(ag_cache_manager *m);
/* It has been truncated. */
void ag_cache_manager_truncate(ag_cache_manager *m, uint32_t position);

/* n tokens are going to be consumed. Those of AG_PHASE_VERIFY, one pass, may be taken back by
 * truncating to any position from the pass's first on: what is due after them leaves around the
 * next pass. */
ag_status ag_cache_manager_begin(ag_cache_manager *m, ag_phase phase, size_t n, ag_error *err);
/* How many of the n_left tokens the next pass, which begins at `position`, takes, if `chunk` is the
 * most. */
size_t ag_cache_manager_chunk(ag_cache_manager *m, uint32_t position, size_t n_remaining,
                              size_t chunk);
/* The next pass takes n tokens from `position` on; n_left of those begun follow it. */
ag_status ag_cache_manager_before(ag_cache_manager *m, uint32_t position, size_t n,
                                  size_t n_remaining, ag_attention_scores *scores, ag_error *err);
/* It is done; `position` is the next token's. An eviction that fails now is pending. */
void ag_cache_manager_after(ag_cache_manager *m, uint32_t position, size_t n_remaining);
/* Does what is pending. begin() and before() call it; code that copies, saves, truncates or
 * compresses the cache must call it first. On an error something is still pending. */
ag_status ag_cache_manager_settle(ag_cache_manager *m, ag_error *err);

/* A turn of a conversation begins with the token at `position`. */
ag_status ag_cache_manager_begin_turn(ag_cache_manager *m, uint32_t position, ag_error *err);
/* Where turns begin; NULL without a manager. */
const ag_turns *ag_cache_manager_turns(const ag_cache_manager *m);
/* The cache protects fewer tokens now. */
void ag_cache_manager_prefix_shrank(ag_cache_manager *m);

/* How many of n tokens one pass of AG_PHASE_VERIFY may take from `position` on without a difference
 * to passes of AG_PHASE_DECODE: nothing would leave during these, and nobody would count what they
 * attend to. At least 1, which is to be decoded. */
size_t ag_cache_manager_verifiable(const ag_cache_manager *m, uint32_t position, size_t n);

/* What the application knows of the system's memory; stands until it says something else. */
void ag_cache_manager_hint(ag_cache_manager *m, ag_pressure level);
/* As it was when memory was last read. */
ag_pressure ag_cache_manager_pressure(const ag_cache_manager *m);

/* What `from` (NULL: nothing) knows, its cache's fork's manager knows too, the sums of attention if
 * both have the same policy; tallies begin anew. */
ag_status ag_cache_manager_copy(ag_cache_manager *to, ag_cache_manager *from, ag_error *err);
/* Bytes that a manager will take for a cache of these parameters; query_values: as
 * ag_chunk_scores_bytes() has it. */
size_t ag_cache_manager_plan_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                                   size_t query_values);
/* What was spilled, borrowed; NULL where nothing is. */
ag_spill *ag_cache_manager_spill(const ag_cache_manager *m);
/* The sums of attention, borrowed; NULL without a manager, or if the policy wants none. */
ag_score_sums *ag_cache_manager_sums(ag_cache_manager *m);
/* The cache holds another sequence now, whose sums, turns and spilled blocks these are: they are
 * exchanged for those of the old one. *spill is NULL where nothing is spilled. */
void ag_cache_manager_restore(ag_cache_manager *m, ag_score_sums **sums, ag_turns *turns,
                              ag_spill **spill);

/* A compression has left the cache's heads with different numbers of slots, whose sums these are:
 * *sums is exchanged for the old ones. From now on the budget is what heads hold in the mean. */
void ag_cache_manager_compressed(ag_cache_manager *m, ag_score_sums **sums);
/* The same of a cache that came from elsewhere, with its sums; heads that share what their layer
 * holds go on so under a policy whose heads do. */
void ag_cache_manager_set_ragged(ag_cache_manager *m, bool is_ragged);
/* A layer's heads may hold different slots, and different numbers of them. */
bool ag_cache_manager_is_ragged(const ag_cache_manager *m);

uint32_t ag_cache_manager_budget(const ag_cache_manager *m);
/* Evictions since the manager was made or reset, and since begin(). */
const ag_eviction_stats *ag_cache_manager_stats(const ag_cache_manager *m);
const ag_eviction_stats *ag_cache_manager_last_stats(const ag_cache_manager *m);

#endif
