/* SPDX-License-Identifier: Apache-2.0 */
/* Policies of the library, one file and one line here for each, and what their kinds of importance
 * are made of. */
#ifndef AG_CACHE_EVICTION_POLICIES_H
#define AG_CACHE_EVICTION_POLICIES_H

#include <antigravity/eviction.h>

/* In the order of help texts; "none" must be the first. */
#define AG_EVICTION_POLICIES(X) \
    X(none)                     \
    X(sliding)                  \
    X(streaming)                \
    X(turns)                    \
    X(snapkv)                   \
    X(h2o)                      \
    X(tova)                     \
    X(keydiff)                  \
    X(compactor)

#define AG_EVICTION_DECLARE(name) extern const ag_eviction_policy ag_eviction_##name;
AG_EVICTION_POLICIES(AG_EVICTION_DECLARE)
#undef AG_EVICTION_DECLARE

/* One row for each ag_importance. */
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

/* Returns query_scale of the parameters if they are those of compactor; 0: the model's scale. */
float ag_compactor_query_scale(const ag_eviction_params *p);

#endif
