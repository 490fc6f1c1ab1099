/* SPDX-License-Identifier: Apache-2.0 */
/* Settings that eval compares: every combination of policies, budgets and cache types. */
#ifndef ANTIGRAVITY_EVAL_SETTINGS_H
#define ANTIGRAVITY_EVAL_SETTINGS_H

#include "../model/engine.h"
#include "../support/json_out.h"

enum { MAX_CHOICES = 16 };

/* One combination. */
typedef struct cache_setting {
    const ag_eviction_policy *policy;
    const char *budget; /* typed text, borrowed; NULL if the policy does not evict */
    ag_dtype k_type, v_type;
} cache_setting;

typedef struct eval_settings {
    const ag_eviction_policy *policies[MAX_CHOICES];
    char budgets[MAX_CHOICES][16];
    ag_dtype types[MAX_CHOICES][2];
    size_t n_policies, n_budgets, n_types; /* 0: the measure's default */
    ag_k_rotation k_rotation;
    ag_head_budget head_budget; /* the rules' head budget */
    uint32_t share_of; /* tokens that a budget in percent refers to; 0: the session's slots */
} eval_settings;

option_group settings_group(eval_settings *s); /* --eviction-policy --kv-budget --kv-type */
option_group policies_group(eval_settings *s); /* --eviction-policy alone */
option_group base_group(eval_settings *s);     /* the same options with the prefix base- */

/* Fills in what was not given: policies ("all" or one name), budgets ("50%,25%") and f16 cache
 * types. Then checks the eviction rules in `o`. Returns an exit code. */
int settings_complete(eval_settings *s, model_options *o, const char *policies,
                      const char *budgets);
size_t settings_count(const eval_settings *s);
cache_setting settings_at(const eval_settings *s, size_t i);

/* Returns the session parameters of the setting with the largest full cache. */
ag_session_params settings_largest(const eval_settings *s, const model_options *o,
                                   const ag_model_info *info, uint32_t max_seq_len);

/* Opens a session with one setting and the rules in `o`, without watching system memory. Returns an
 * exit code. */
int settings_open(const eval_settings *s, const cache_setting *one, const model_options *o,
                  ag_model *model, uint32_t max_seq_len, ag_session **out);

void settings_close(ag_session *s); /* accepts NULL */

/* Returns {"policy", "budget", "head_budget", "k_type", "v_type", "k_rotated"}, the first fields of
 * a row. */
json_t *setting_json(const eval_settings *s, const cache_setting *one);

#endif
