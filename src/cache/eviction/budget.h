/* SPDX-License-Identifier: Apache-2.0 */
/* The budget of a cache: checks eviction parameters and turns them into a number of tokens. */
#ifndef AG_CACHE_EVICTION_BUDGET_H
#define AG_CACHE_EVICTION_BUDGET_H

#include <antigravity/eviction.h>
#include <antigravity/kv_cache.h>

/* What parameters that name no policy mean. */
void ag_eviction_resolve_policy(ag_eviction_params *p);
/* Tokens whose blocks take no more than so many bytes. */
uint32_t ag_eviction_tokens_in(const ag_kv_params *kv, size_t bytes);

/* Whether anything will ever leave. */
bool ag_eviction_is_managed(const ag_eviction_params *p);

/* Checks p and finds the budget in tokens for a cache of these parameters. AG_INVALID names the
 * numbers that disagree. */
ag_status ag_eviction_budget(const ag_eviction_params *p, const ag_kv_params *kv, uint32_t *out,
                             ag_error *err);

/* Newest tokens that always stay. */
uint32_t ag_eviction_recent(const ag_eviction_params *p);

#endif
