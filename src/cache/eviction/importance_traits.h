/* SPDX-License-Identifier: Apache-2.0 */
/* Importance traits: what each kind of importance is made of, one row for each ag_importance. */
#ifndef AG_CACHE_EVICTION_IMPORTANCE_TRAITS_H
#define AG_CACHE_EVICTION_IMPORTANCE_TRAITS_H

#include <antigravity/eviction.h>

typedef struct ag_importance_traits {
    bool has_scores;       /* slots have an importance */
    bool keeps_sums;       /* attention weights are summed in an ag_score_sums */
    bool is_attention;     /* the importance is these sums */
    bool of_prompt_window; /* sums over the last snapkv_window queries of a prompt, normalised at
                              its end */
    bool accumulates;      /* sums continue from pass to pass */
    bool of_newest_query;  /* an eviction waits for the weights of the pass's last query */
    bool from_keys;        /* from_keys() of the policy writes the importance */
    bool in_chunks;        /* sums cover the chunks of a prompt */
} ag_importance_traits;

const ag_importance_traits *ag_importance_traits_of(const ag_eviction_policy *policy);

#endif
