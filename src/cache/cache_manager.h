/* SPDX-License-Identifier: Apache-2.0 */
/* Cache manager: keeps the cache of one sequence within its budget. Runs the eviction policy at the
 * right times and reports each eviction.
 *
 * Call before(), the model's pass, then after(). Every function except budget(), stats() and
 * last_stats() accepts a NULL manager, which never evicts. */
#ifndef AG_CACHE_CACHE_MANAGER_H
#define AG_CACHE_CACHE_MANAGER_H

#include "cache/eviction/budget.h"
#include "cache/eviction/score_sums.h"
#include "cache/spill.h"
#include "cache/turns.h"

#include <antigravity/eviction.h>

typedef struct ag_cache_manager ag_cache_manager;

/* Creates a manager and allocates all memory that it will need. Borrows the cache. Copies rope
 * [n_layers], whose frequencies stay borrowed. trained: positions that the model was trained
 * for. *out is NULL if the parameters never evict. */
ag_status ag_cache_manager_create(ag_kv_cache *cache, const ag_eviction_params *p,
                                  const ag_rope_table *rope, uint32_t trained,
                                  ag_cache_manager **out, ag_error *err);
void ag_cache_manager_destroy(ag_cache_manager *m);
/* Call after the cache has been cleared. Resets the manager to its initial state. */
void ag_cache_manager_reset(ag_cache_manager *m);
/* Call when the pass that before() announced has failed, before the cache is truncated. */
void ag_cache_manager_abandon(ag_cache_manager *m);
/* Call after the cache has been truncated to `position`. */
void ag_cache_manager_truncate(ag_cache_manager *m, uint32_t position);

/* Begins a call that consumes n tokens. Tokens of AG_PHASE_VERIFY, one pass, may be taken back by
 * truncating to any position from the pass's first on. Evictions that become due after them run
 * around the next pass. */
ag_status ag_cache_manager_begin(ag_cache_manager *m, ag_phase phase, size_t n, ag_error *err);
/* Returns how many of the n_remaining tokens the next pass should take, at most `chunk`. The
 * pass begins at `position`. */
size_t ag_cache_manager_chunk(ag_cache_manager *m, uint32_t position, size_t n_remaining,
                              size_t chunk);
/* Prepares a pass of n tokens from `position` on, which n_remaining tokens of the call follow.
 * Sets *scores to the attention weights that the pass must collect. */
ag_status ag_cache_manager_before(ag_cache_manager *m, uint32_t position, size_t n,
                                  size_t n_remaining, ag_attention_scores *scores, ag_error *err);
/* Ends the pass; `position` is the next token's. An eviction that fails here stays pending. */
void ag_cache_manager_after(ag_cache_manager *m, uint32_t position, size_t n_remaining);
/* Runs pending work. begin() and before() call it. Code that copies, saves, truncates or
 * compresses the cache must call it first. After an error work is still pending. */
ag_status ag_cache_manager_settle(ag_cache_manager *m, ag_error *err);

/* Records that a turn of a conversation begins with the token at `position`. */
ag_status ag_cache_manager_begin_turn(ag_cache_manager *m, uint32_t position, ag_error *err);
/* Returns the starts of turns, borrowed; NULL without a manager. */
const ag_turns *ag_cache_manager_turns(const ag_cache_manager *m);
/* Call after the protected prefix of the cache has become shorter. */
void ag_cache_manager_prefix_shrank(ag_cache_manager *m);

/* Returns how many of n tokens one pass of AG_PHASE_VERIFY may take from `position` on with the
 * same result as passes of AG_PHASE_DECODE. That holds while these would evict nothing and no
 * policy sums their attention. At least 1, which must be decoded. */
size_t ag_cache_manager_verifiable(const ag_cache_manager *m, uint32_t position, size_t n);

/* Sets the memory pressure that the application reports; valid until the next call. */
void ag_cache_manager_hint(ag_cache_manager *m, ag_pressure level);
/* Returns the level found when memory was last read. */
ag_pressure ag_cache_manager_pressure(const ag_cache_manager *m);

/* Copies the state of `from` (NULL: nothing) to the manager of a fork of its cache. Copies sums
 * of attention only if both have the same policy. Does not copy statistics. */
ag_status ag_cache_manager_copy(ag_cache_manager *to, ag_cache_manager *from, ag_error *err);
/* Returns the bytes that a manager will take for a cache of these parameters. query_values: see
 * ag_chunk_scores_bytes(). */
size_t ag_cache_manager_plan_bytes(const ag_eviction_params *p, const ag_kv_params *kv,
                                   size_t query_values);
/* Returns the spill store, borrowed; NULL if nothing is spilled. */
ag_spill *ag_cache_manager_spill(const ag_cache_manager *m);
/* Returns the sums of attention, borrowed; NULL without a manager, or if the policy uses none. */
ag_score_sums *ag_cache_manager_sums(ag_cache_manager *m);
/* Resets the manager for another sequence that the cache now holds. Exchanges its sums, turns
 * and spill store for those passed in. *spill is NULL if nothing is spilled. */
void ag_cache_manager_restore(ag_cache_manager *m, ag_score_sums **sums, ag_turns *turns,
                              ag_spill **spill);

/* Call after a compression has left the heads with different numbers of slots. Exchanges *sums
 * for the old sums. From now on the budget limits the mean over all heads. */
void ag_cache_manager_compressed(ag_cache_manager *m, ag_score_sums **sums);
/* Sets whether heads hold different numbers of slots, for a cache that was forked or loaded.
 * Heads keep sharing per layer if the policy shares per layer and all layers hold equally many
 * slots. */
void ag_cache_manager_set_ragged(ag_cache_manager *m, bool is_ragged);
/* Returns whether the heads of a layer may hold different slots, and different numbers of them. */
bool ag_cache_manager_is_ragged(const ag_cache_manager *m);

uint32_t ag_cache_manager_budget(const ag_cache_manager *m);
/* Return the evictions since the manager was created or reset, and since begin(). */
const ag_eviction_stats *ag_cache_manager_stats(const ag_cache_manager *m);
const ag_eviction_stats *ag_cache_manager_last_stats(const ag_cache_manager *m);

#endif
