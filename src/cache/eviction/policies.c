/* SPDX-License-Identifier: Apache-2.0 */
#include "cache/eviction/policies.h"

#include <string.h>

#define ADDRESS(name) &ag_eviction_##name,
static const ag_eviction_policy *const policies[] = {AG_EVICTION_POLICIES(ADDRESS)};
#undef ADDRESS

enum { N_POLICIES = sizeof policies / sizeof policies[0] };

const ag_eviction_policy *ag_eviction_policy_at(size_t i) {
    return i < N_POLICIES ? policies[i] : NULL;
}

const ag_eviction_policy *ag_eviction_policy_find(const char *name) {
    for (size_t i = 0; i < N_POLICIES; i++) {
        if (!strcmp(policies[i]->name, name)) return policies[i];
    }
    return NULL;
}

/* In the order of ag_importance: NONE, WINDOW, TOTAL, NEWEST, KEYS, CHUNK. */
static const ag_importance_traits traits[] = {
    {0},
    {.has_scores = 1, .keeps_sums = 1, .is_attention = 1, .of_prompt_window = 1},
    {.has_scores = 1, .keeps_sums = 1, .is_attention = 1, .accumulates = 1},
    {.has_scores = 1, .keeps_sums = 1, .is_attention = 1, .of_newest_query = 1},
    {.has_scores = 1, .from_keys = 1},
    {.has_scores = 1, .keeps_sums = 1, .from_keys = 1, .in_chunks = 1},
};

const ag_importance_traits *ag_importance_traits_of(const ag_eviction_policy *policy) {
    return &traits[policy->importance];
}

ag_eviction_params ag_eviction_defaults(void) {
    return (ag_eviction_params){
        .protected_prefix = 4,
        .recent = 32,
        .slack = 64,
        .window = 1024,
        .snapkv_window = 32,
        .snapkv_kernel = 5,
        .memory = {.target_ratio = 0.75f},
    };
}

const char *ag_head_budget_name(ag_head_budget b) {
    static const char *const names[] = {"even", "adaptive", "shares", "adaptive-values"};
    return names[b];
}

const char *ag_eviction_reason_name(ag_eviction_reason r) {
    static const char *const names[] = {"budget", "trained length", "memory pressure"};
    return names[r];
}

const char *ag_pressure_name(ag_pressure level) {
    static const char *const names[] = {"normal", "soft", "hard", "critical"};
    return names[level];
}
