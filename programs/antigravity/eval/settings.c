/* SPDX-License-Identifier: Apache-2.0 */
#include "settings.h"

#include "../command.h"
#include "../terminal/interrupt.h"
#include "../terminal/output.h"

#include <math.h>
#include <string.h>

/* Calls add() for each word of a list with commas. */
static bool each_word(eval_settings *s, const char *list, char *message,
                      bool (*add)(eval_settings *s, const char *word, char *message)) {
    char word[64];
    while (list) {
        next_word(&list, word, sizeof word);
        if (!add(s, word, message)) return false;
    }
    return true;
}

static bool check_count(size_t n, char *message) {
    if (n < MAX_CHOICES) return true;
    return reject(message, "too many: at most %d", MAX_CHOICES);
}

static bool add_policy(eval_settings *s, const char *word, char *message) {
    if (!strcmp(word, "all")) {
        for (size_t i = 0; ag_eviction_policy_at(i); i++) {
            if (!add_policy(s, ag_eviction_policy_at(i)->name, message)) return false;
        }
        return true;
    }
    ag_eviction_params p = ag_eviction_defaults();
    if (!check_count(s->n_policies, message) || !eviction_parse_policy(&p, word, message))
        return false;
    s->policies[s->n_policies++] = p.policy;
    return true;
}

static bool add_budget(eval_settings *s, const char *word, char *message) {
    ag_eviction_params p = ag_eviction_defaults();
    if (!check_count(s->n_budgets, message) || !eviction_parse_budget(&p, word, message))
        return false;
    if (strlen(word) >= sizeof s->budgets[0])
        return reject(message, "'%.60s': the number is too long", word);
    strcpy(s->budgets[s->n_budgets++], word);
    return true;
}

static bool set_policies(void *target, const char *value, char *message) {
    return each_word(target, value, message, add_policy);
}

static bool set_budgets(void *target, const char *value, char *message) {
    return each_word(target, value, message, add_budget);
}

static bool set_type(void *target, const char *value, char *message) {
    eval_settings *s = target;
    model_options one = model_options_defaults();
    if (!check_count(s->n_types, message) || !kv_type_parse(&one, value, message)) return false;
    s->types[s->n_types][0] = one.k_type;
    s->types[s->n_types++][1] = one.v_type;
    return true;
}

static const option_def defs[] = {
    {.name = "eviction-policy",
     CALLS("NAME[,NAME...]", set_policies),
     .help =
         "eviction policies of a full cache: none, sliding, streaming, turns, snapkv, h2o, tova, "
         "keydiff, compactor, or all of these"},
    {.name = "kv-budget",
     CALLS("N|N%|NMiB[,...]", set_budgets),
     .help = "size after an eviction: tokens, a share of the text read at once, or memory"},
    {.name = "kv-type",
     CALLS("TYPE[,TYPE]", set_type),
     .dtypes = AG_DTYPE_CACHE,
     .help = "may be given several times (default f16); type of the KV cache, or of keys and "
             "values:"},
};

option_group settings_group(eval_settings *s) {
    return OPTION_GROUP("Settings, each combination a row", defs, s);
}

option_group policies_group(eval_settings *s) {
    return (option_group){"Settings, each combination a row", defs, 1, s};
}

static const option_def base_defs[] = {
    {.name = "base-kv-type",
     CALLS("TYPE[,TYPE]", set_type),
     .help = "type of the base's cache (default f16)"},
    {.name = "base-eviction-policy",
     CALLS("NAME", set_policies),
     .help = "policy of the base (default none)"},
    {.name = "base-kv-budget", CALLS("N|N%|NMiB", set_budgets), .help = "budget of the base"},
};

option_group base_group(eval_settings *s) { return OPTION_GROUP("Base", base_defs, s); }

int settings_complete(eval_settings *s, model_options *o, const char *policies,
                      const char *budgets) {
    char message[MESSAGE_SIZE];
    if (!s->n_policies) set_policies(s, policies, message);
    bool has_budgets = s->n_budgets > 0, evicts = false;
    if (!s->n_budgets) set_budgets(s, budgets, message);
    if (!s->n_types) set_type(s, "f16", message);
    for (size_t i = 0; i < s->n_policies; i++) {
        if (!s->policies[i]->select) continue;
        if (!eviction_suits_heads(&o->eviction.params, s->policies[i], message))
            return complain_usage("--head-budget: %s", message);
        evicts = true;
        o->eviction.params.policy = s->policies[i]; /* the check needs a policy that evicts */
    }
    if (has_budgets && !evicts)
        return complain_usage("--kv-budget needs an eviction policy other than none");
    s->head_budget = o->eviction.params.head_budget;
    return model_options_check(o);
}

static size_t rows_of_policy(const eval_settings *s, size_t i) {
    return s->policies[i]->select ? s->n_budgets : 1;
}

size_t settings_count(const eval_settings *s) {
    size_t n = 0;
    for (size_t i = 0; i < s->n_policies; i++) n += rows_of_policy(s, i);
    return n * s->n_types;
}

cache_setting settings_at(const eval_settings *s, size_t i) {
    size_t per_type = settings_count(s) / s->n_types, row = i % per_type, p = 0;
    const ag_dtype *types = s->types[i / per_type];
    while (row >= rows_of_policy(s, p)) row -= rows_of_policy(s, p++);
    bool evicts = s->policies[p]->select != NULL;
    return (cache_setting){s->policies[p], evicts ? s->budgets[row] : NULL, types[0], types[1]};
}

static ag_session_params setting_params(const eval_settings *s, const cache_setting *one,
                                        const model_options *o, uint32_t max_seq_len) {
    char message[MESSAGE_SIZE];
    ag_session_params p = session_params(o, max_seq_len);
    p.k_type = one->k_type;
    p.v_type = one->v_type;
    p.k_rotation = s->k_rotation;
    p.eviction.policy = one->policy;
    p.eviction.memory.threshold_bytes = 0;
    if (one->budget) eviction_parse_budget(&p.eviction, one->budget, message);
    if (s->share_of && p.eviction.budget_ratio > 0) {
        double tokens = (double)p.eviction.budget_ratio * s->share_of;
        p.eviction.budget_tokens = (uint32_t)fmax(1, floor(tokens + 0.5));
        p.eviction.budget_ratio = 0;
    }
    if (o->verbose && o->eviction.params.policy) p.eviction.on_eviction = eviction_report;
    return p;
}

static size_t kv_bytes(const ag_model_info *info, const ag_session_params *p) {
    ag_session_plan plan;
    return ag_session_plan_memory(info, p, &plan, NULL) == AG_OK ? plan.kv_bytes : 0;
}

ag_session_params settings_largest(const eval_settings *s, const model_options *o,
                                   const ag_model_info *info, uint32_t max_seq_len) {
    cache_setting one = settings_at(s, 0);
    ag_session_params largest = setting_params(s, &one, o, max_seq_len);
    for (size_t i = 1; i < settings_count(s); i++) {
        one = settings_at(s, i);
        ag_session_params p = setting_params(s, &one, o, max_seq_len);
        if (kv_bytes(info, &p) > kv_bytes(info, &largest)) largest = p;
    }
    return largest;
}

int settings_open(const eval_settings *s, const cache_setting *one, const model_options *o,
                  ag_model *model, uint32_t max_seq_len, ag_session **out) {
    ag_error err;
    const ag_session_params p = setting_params(s, one, o, max_seq_len);
    ag_status status = budget_check(o, &p, &err);
    if (status == AG_OK) status = ag_session_create(model, &p, out, &err);
    interrupt_register(*out);
    return status == AG_OK ? EXIT_DONE : complain_settings(&err);
}

void settings_close(ag_session *s) {
    interrupt_unregister(s);
    ag_session_destroy(s);
}

json_t *setting_json(const eval_settings *s, const cache_setting *one) {
    const char *heads = ag_head_budget_name(s->head_budget);
    return JSON_OBJECT({"policy", json_string(one->policy->name)},
                       {"budget", one->budget ? json_string(one->budget) : json_null()},
                       {"head_budget", one->budget ? json_string(heads) : json_null()},
                       {"k_type", json_string(ag_dtype_name(one->k_type))},
                       {"v_type", json_string(ag_dtype_name(one->v_type))},
                       {"k_rotated", json_boolean(keys_rotated(s->k_rotation, one->k_type))});
}
