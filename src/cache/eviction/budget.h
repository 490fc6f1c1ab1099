/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of a cache: checks eviction parameters and turns them into a number of tokens. */
#ifndef AG_CACHE_EVICTION_BUDGET_H
#define AG_CACHE_EVICTION_BUDGET_H

#include <antigravity/eviction.h>
#include <antigravity/kv_cache.h>

/* Completes parameters without a policy: if memory is watched, keydiff with the entire cache as
 * budget. */
void ag_eviction_resolve_policy(ag_eviction_params *p);
/* Returns the number of tokens whose blocks take at most `bytes`. */
uint32_t ag_eviction_tokens_in(const ag_kv_params *kv, size_t bytes);

/* Returns whether these parameters ever evict. */
bool ag_eviction_is_managed(const ag_eviction_params *p);

/* Checks p and computes the budget in tokens for a cache of these parameters. Fails with
 * AG_INVALID, whose message holds the numbers that disagree. */
ag_status ag_eviction_budget(const ag_eviction_params *p, const ag_kv_params *kv, uint32_t *out,
                             ag_error *err);

/* Returns how many of the newest tokens always stay. */
uint32_t ag_eviction_recent(const ag_eviction_params *p);

#endif
