/* SPDX-License-Identifier: Apache-2.0 */
/* What each kind of importance is made of, and when: one row for each ag_importance. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_TRAITS_H
#define AG_CACHE_EVICTION_IMPORTANCE_TRAITS_H

#include <antigravity/eviction.h>

typedef struct ag_importance_traits {
    bool has_scores;       /* slots have an importance */
    bool keeps_sums;       /* attention weights are summed in an ag_score_sums */
    bool is_attention;     /* importance is these sums */
    bool of_prompt_window; /* sums of the last snapkv_window queries of a prompt, normalised */
    bool accumulates;      /* sums continue from pass to pass */
    bool of_newest_query;  /* an eviction waits for the weights of the pass's last query */
    bool from_keys;        /* the policy's from_keys() writes it */
    bool in_chunks;        /* sums are those inside the chunks of a prompt */
} ag_importance_traits;

const ag_importance_traits *ag_importance_traits_of(const ag_eviction_policy *policy);

#endif
