/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/budget.h"

#include "cache/eviction/allocate.h"
#include "cache/eviction/policies.h"
#include "cache/kv_cache.h"
#include "core/fail.h"

#include <math.h>

enum { DEFAULT_BUDGET = 1024 };

/* Under pressure alone, keydiff needs the least information. The entire cache is the budget, so
 * nothing is evicted before. */
void ag_eviction_resolve_policy(ag_eviction_params *p) {
    if (p->policy || !p->memory.threshold_bytes) return;
    p->policy = &ag_eviction_keydiff;
    p->budget_tokens = 0;
    p->budget_bytes = 0;
    p->budget_ratio = 1;
}

bool ag_eviction_is_managed(const ag_eviction_params *p) {
    return p->policy && (p->policy->select || p->policy->select_layer);
}

uint32_t ag_eviction_tokens_in(const ag_kv_params *kv, size_t bytes) {
    uint32_t fits = 0, too_many = UINT32_MAX / AG_KV_BLOCK + 1; /* blocks in each layer */
    while (too_many - fits > 1) {
        const uint32_t n = fits + (too_many - fits) / 2;
        if (ag_kv_bytes_of_tokens(kv, n) <= bytes) fits = n;
        else too_many = n;
    }
    return too_many > UINT32_MAX / AG_KV_BLOCK ? UINT32_MAX : fits * AG_KV_BLOCK;
}

static ag_status requested_tokens(const ag_eviction_params *p, const ag_kv_params *kv,
                                  uint32_t *tokens, ag_error *err) {
    uint32_t n = p->budget_tokens ? p->budget_tokens : UINT32_MAX;
    if (p->budget_bytes) {
        uint32_t fit = ag_eviction_tokens_in(kv, p->budget_bytes);
        if (!fit) {
            return AG_FAIL(err, INVALID,
                           "budget_bytes is %zu: too small for one block of %d tokens",
                           p->budget_bytes, AG_KV_BLOCK);
        }
        if (fit < n) n = fit;
    }
    if (p->budget_ratio != 0) {
        if (!(p->budget_ratio > 0 && p->budget_ratio <= 1)) {
            return AG_FAIL(err, INVALID, "budget_ratio is %g: it must be above 0 and at most 1",
                           (double)p->budget_ratio);
        }
        double share = (double)p->budget_ratio * kv->max_slots;
        if (share < n) n = share < 1 ? 1 : (uint32_t)share;
    }
    *tokens = n;
    return AG_OK;
}

static ag_status check_shares(const ag_eviction_params *p, const ag_kv_params *kv, ag_error *err) {
    const size_t n = ag_kv_totals_of(kv).heads;
    if (!p->head_shares || p->n_head_shares != n)
        return AG_FAIL(err, INVALID, "head_shares has %zu values: the cache has %zu KV heads",
                       p->n_head_shares, n);
    for (size_t h = 0; h < n; h++) {
        if (p->head_shares[h] >= 0 && isfinite(p->head_shares[h])) continue;
        return AG_FAIL(err, INVALID, "head_shares[%zu] is %g: it must be finite and not negative",
                       h, (double)p->head_shares[h]);
    }
    return AG_OK;
}

static ag_status check_heads(const ag_eviction_params *p, const ag_kv_params *kv, ag_error *err) {
    const ag_importance_traits *traits = ag_importance_traits_of(p->policy);
    if (p->head_budget == AG_HEAD_BUDGET_EVEN) return AG_OK;
    if (p->head_budget == AG_HEAD_BUDGET_SHARES) return check_shares(p, kv, err);
    if (!ag_heads_by_scores(p->head_budget))
        return AG_FAIL(err, INVALID, "head_budget is %d: unknown kind", (int)p->head_budget);
    if (p->head_budget == AG_HEAD_BUDGET_VALUES && !traits->is_attention) {
        return AG_FAIL(err, INVALID,
                       "head_budget adaptive-values: the eviction policy %s uses no attention; use "
                       "one that does",
                       p->policy->name);
    }
    if (traits->has_scores) return AG_OK;
    return AG_FAIL(
        err, INVALID,
        "head_budget adaptive: the eviction policy %s gives no scores to share slots by; "
        "use one that does",
        p->policy->name);
}

ag_status ag_eviction_budget(const ag_eviction_params *p, const ag_kv_params *kv, uint32_t *out,
                             ag_error *err) {
    uint32_t n = 0, max_tokens = kv->max_slots - 1;
    bool is_requested = p->budget_tokens || p->budget_bytes || p->budget_ratio != 0;
    AG_TRY(requested_tokens(p, kv, &n, err));
    if (!is_requested)
        n = p->policy->default_budget ? p->policy->default_budget(p->policy->user, p)
                                      : DEFAULT_BUDGET;
    if (p->budget_tokens > max_tokens) {
        return AG_FAIL(err, INVALID, "budget_tokens is %u: it must be below max_seq_len, %u",
                       p->budget_tokens, kv->max_slots);
    }
    uint32_t free_slots = p->slack < max_tokens / 4 ? p->slack : max_tokens / 4;
    if (n != p->budget_tokens && n > max_tokens - free_slots) n = max_tokens - free_slots;
    uint32_t recent = ag_eviction_recent(p);
    if (p->protected_prefix > n || recent > n - p->protected_prefix) {
        return AG_FAIL(
            err, INVALID,
            "the budget of %u tokens is too small: %u protected and %u newest tokens always stay",
            n, p->protected_prefix, recent);
    }
    AG_TRY(check_heads(p, kv, err));
    ag_error ignored;
    if (p->policy->check) AG_TRY(p->policy->check(p->policy->user, p, err ? err : &ignored));
    if (p->memory.threshold_bytes && !(p->memory.target_ratio > 0 && p->memory.target_ratio < 1)) {
        return AG_FAIL(err, INVALID, "memory.target_ratio is %g: it must be above 0 and below 1",
                       (double)p->memory.target_ratio);
    }
    *out = n;
    return AG_OK;
}

uint32_t ag_eviction_recent(const ag_eviction_params *p) {
    const bool of_window = ag_importance_traits_of(p->policy)->of_prompt_window;
    return of_window && p->snapkv_window > p->recent ? p->snapkv_window : p->recent;
}
