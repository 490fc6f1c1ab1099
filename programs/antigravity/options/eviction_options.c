/* SPDX-License-Identifier: Apache-2.0 */
#include "eviction_options.h"

#include "../command.h"
#include "../model/head_file.h"
#include "../terminal/output.h"
#include "../terminal/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPTION_STRUCT eviction_options

enum { MEGABYTE = 1000000, MIB = 1 << 20 };

bool eviction_parse_policy(ag_eviction_params *p, const char *value, char *message) {
    p->policy = ag_eviction_policy_find(value);
    if (p->policy) return true;
    int n = snprintf(message, MESSAGE_SIZE, "'%.60s' is not one of", value);
    for (size_t i = 0; ag_eviction_policy_at(i); i++) {
        n += snprintf(message + n, MESSAGE_SIZE - (size_t)n, "%s %s", i ? "," : "",
                      ag_eviction_policy_at(i)->name);
    }
    return false;
}

static bool set_policy(void *target, const char *value, char *message) {
    return eviction_parse_policy(&((eviction_options *)target)->params, value, message);
}

static void show_policy(const void *target, char *buf, size_t cap) {
    const ag_eviction_policy *policy = ((const eviction_options *)target)->params.policy;
    snprintf(buf, cap, "%s", policy ? policy->name : "none");
}

bool eviction_parse_budget(ag_eviction_params *p, const char *value, char *message) {
    char number[32];
    size_t len = strspn(value, "0123456789.");
    int64_t n;
    double share;
    if (!len || len >= sizeof number)
        return reject(message, "'%.60s': invalid budget; use N tokens, N%% or NMiB", value);
    memcpy(number, value, len);
    number[len] = '\0';
    const char *unit = value + len;
    p->budget_tokens = 0;
    p->budget_bytes = 0;
    p->budget_ratio = 0;
    if (!strcmp(unit, "%")) {
        if (!parse_real(number, 0.01, 100, &share, message)) return false;
        p->budget_ratio = (float)(share / 100);
    } else if (!strcmp(unit, "MiB")) {
        if (!parse_integer(number, 1, INT32_MAX, &n, message)) return false;
        p->budget_bytes = (size_t)n * MIB;
    } else if (!*unit) {
        if (!parse_integer(number, 1, INT32_MAX, &n, message)) return false;
        p->budget_tokens = (uint32_t)n;
    } else {
        return reject(message, "'%.60s': invalid budget; use N tokens, N%% or NMiB", value);
    }
    return true;
}

static bool set_budget(void *target, const char *value, char *message) {
    return eviction_parse_budget(&((eviction_options *)target)->params, value, message);
}

bool eviction_parse_heads(ag_eviction_params *p, const char *value, char *message) {
    static const ag_head_budget kinds[] = {AG_HEAD_BUDGET_EVEN, AG_HEAD_BUDGET_ADAPTIVE,
                                           AG_HEAD_BUDGET_VALUES};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(value, ag_head_budget_name(kinds[i])) != 0) continue;
        p->head_budget = kinds[i];
        p->head_shares = NULL;
        p->n_head_shares = 0;
        return true;
    }
    return reject(message, "'%.60s' is not one of even, adaptive, adaptive-values", value);
}

static bool set_heads(void *target, const char *value, char *message) {
    ag_eviction_params *p = &((eviction_options *)target)->params;
    const bool is_file = strchr(value, '.') || strchr(value, '/');
    return is_file ? head_file_read(p, value, message) : eviction_parse_heads(p, value, message);
}

bool eviction_suits_heads(const ag_eviction_params *p, const ag_eviction_policy *policy,
                          char *message) {
    const bool values = p->head_budget == AG_HEAD_BUDGET_VALUES;
    if (values &&
        (policy->importance == AG_IMPORTANCE_KEYS || policy->importance == AG_IMPORTANCE_CHUNK))
        return reject(message,
                      "eviction policy %s has no attention scores for values; use adaptive",
                      policy->name);
    if ((!values && p->head_budget != AG_HEAD_BUDGET_ADAPTIVE) ||
        policy->importance != AG_IMPORTANCE_NONE)
        return true;
    return reject(message, "eviction policy %s has no scores to divide the budget by",
                  policy->name);
}

static bool set_threshold(void *target, const char *value, char *message) {
    eviction_options *o = target;
    int64_t n;
    if (!parse_integer(value, 0, INT32_MAX, &n, message)) return false;
    o->threshold_mb = (uint32_t)n;
    o->watch = n > 0;
    return true;
}

static const option_def choice_defs[] = {
    {.name = "eviction-policy",
     CALLS("NAME", set_policy),
     .show = show_policy,
     .aliases = {"kv-policy"},
     .help =
         "eviction policy of a full cache: none (generation stops), sliding, streaming, turns "
         "(evicts entire turns of a conversation; in a text like streaming), snapkv, h2o, tova, "
         "keydiff, compactor"},
    {.name = "kv-budget",
     CALLS("N|N%|NMiB", set_budget),
     .help = "size after an eviction: tokens, a share of the context, or memory (default "
             "1024, in chat 75%, sliding: its window and the prefix)"},
};

static const option_def rule_defs[] = {
    {.name = "eviction-window",
     SETS_U32("N", params.window, 1, INT32_MAX),
     .help = "tokens that a sliding cache keeps after the protected prefix"},
    {.name = "protected-prefix",
     SETS_U32("N", params.protected_prefix, 0, 4096),
     .help = "first tokens, which are never evicted"},
    {.name = "kv-recent",
     SETS_U32("N", params.recent, 0, INT32_MAX),
     .help = "newest tokens, which are never evicted"},
    {.name = "kv-slack",
     SETS_U32("N", params.slack, 0, INT32_MAX),
     .help = "tokens over the budget before an eviction"},
    {.name = "kv-prefill",
     SETS_WORD("bounded|whole", params.prefill, AG_KV_PREFILL_BOUNDED),
     .no_default = true,
     .help = "evict after every chunk of the prompt or once at its end (default bounded; snapkv "
             "and compactor: whole while the prompt fits)"},
    {.name = "head-budget",
     CALLS("even|adaptive|adaptive-values|FILE", set_heads),
     .help =
         "how the heads of a layer share its budget; adaptive: a fifth evenly, the remainder by "
         "the layer's best scores (snapkv, h2o, tova, keydiff, compactor); "
         "adaptive-values: the same with scores that include values (snapkv, h2o, tova); FILE: as "
         "measured by 'calibrate', with a '.' or '/' in its name (any policy; default even)"},
    {.name = "kv-spill",
     SETS_NAME("FILE|DIR", spill.path),
     .help = "store evicted tokens there and reload them when queries need them: a directory, or a "
             "new file"},
    {.name = "kv-spill-max",
     SETS_U32("N", spill_mib, 0, INT32_MAX),
     .help = "maximum MiB of that file per session; the oldest tokens are dropped; 0: no limit"},
    {.name = "snapkv-window",
     SETS_U32("N", params.snapkv_window, 1, 4096),
     .help = "last tokens of a prompt whose attention chooses the tokens to keep (snapkv, h2o)"},
    {.name = "snapkv-kernel",
     SETS_U32("N", params.snapkv_kernel, 1, 255),
     .help = "neighbouring tokens pooled, an odd number (snapkv)"},
    {.name = "snapkv-pool",
     SETS_WORD("avg|max", params.snapkv_pool, AG_POOL_AVERAGE),
     .help = "snapkv: how scores are pooled"},
};

static const option_def memory_defs[] = {
    {.name = "memory-threshold-mb",
     CALLS("N", set_threshold),
     .help = "evict when less memory is available; 0: never (default 256 with a policy; without "
             "one it means keydiff)"},
    {.name = "eviction-target-ratio",
     SETS_REAL("X", target_ratio, 0.01, 0.99),
     .help = "share of the cache that remains after that eviction"},
};

eviction_options eviction_options_defaults(void) {
    ag_eviction_params params = ag_eviction_defaults();
    return (eviction_options){
        .params = params,
        .threshold_mb = 256,
        .target_ratio = (double)params.memory.target_ratio,
    };
}

#define GROUP(defs, o) (OPTION_GROUP("Eviction", defs, o))
option_group eviction_choice_group(eviction_options *o) { return GROUP(choice_defs, o); }
option_group eviction_rules_group(eviction_options *o) { return GROUP(rule_defs, o); }
option_group eviction_memory_group(eviction_options *o) { return GROUP(memory_defs, o); }

/* Returns the first option that has no effect without a policy; NULL if none. */
static const char *without_effect(const eviction_options *o) {
    const ag_eviction_params *p = &o->params;
    const eviction_options d = eviction_options_defaults();
    if (p->budget_tokens || p->budget_bytes || p->budget_ratio != 0) return "kv-budget";
    if (p->window != d.params.window) return "eviction-window";
    if (!o->watch && p->protected_prefix != d.params.protected_prefix) return "protected-prefix";
    if (!o->watch && p->recent != d.params.recent) return "kv-recent";
    if (!o->watch && p->slack != d.params.slack) return "kv-slack";
    if (p->prefill != d.params.prefill) return "kv-prefill";
    if (!o->watch && p->head_budget != d.params.head_budget) return "head-budget";
    if (!o->watch && o->spill.path) return "kv-spill";
    if (p->snapkv_window != d.params.snapkv_window) return "snapkv-window";
    if (p->snapkv_kernel != d.params.snapkv_kernel) return "snapkv-kernel";
    if (p->snapkv_pool != d.params.snapkv_pool) return "snapkv-pool";
    if (!o->watch && o->target_ratio != d.target_ratio) return "eviction-target-ratio";
    return NULL;
}

/* Checks early that the spill file can be created. */
static bool check_spill(const char *path) {
    struct stat s;
    char dir[PATH_MAX];
    const char *slash = strrchr(path, '/');
    const bool is_there = stat(path, &s) == 0;
    if (is_there && !S_ISDIR(s.st_mode)) {
        complain("--kv-spill %s: file exists; give a directory or a new file", path);
        return false;
    }
    snprintf(dir, sizeof dir, "%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    if (access(is_there ? path : dir, W_OK | X_OK) == 0) return true;
    complain("--kv-spill %s: %s", path, strerror(errno));
    return false;
}

int eviction_options_check(eviction_options *o) {
    const ag_eviction_policy *policy = o->params.policy;
    bool none = !policy || !policy->select;
    const char *idle = none ? without_effect(o) : NULL;
    if (policy && none && o->watch) idle = "memory-threshold-mb";
    if (idle) return complain_usage("--%s needs an eviction policy other than none", idle);
    if (o->spill_mib && !o->spill.path) return complain_usage("--kv-spill-max needs --kv-spill");
    char message[MESSAGE_SIZE];
    if (!none && !eviction_suits_heads(&o->params, policy, message))
        return complain_usage("--head-budget: %s", message);
    o->params.memory.target_ratio = (float)o->target_ratio;
    o->spill.max_bytes = (uint64_t)o->spill_mib * MIB;
    if (o->spill.path && !check_spill(o->spill.path)) return EXIT_USAGE;
    if (!none || o->watch) {
        o->params.memory.threshold_bytes = (uint64_t)o->threshold_mb * MEGABYTE;
    }
    return EXIT_DONE;
}

ag_eviction_params eviction_params(const eviction_options *o) {
    ag_eviction_params params = o->params;
    if (o->spill.path) params.spill = &o->spill;
    return params;
}

const char *eviction_policy_name(const eviction_options *o) {
    if (o->params.policy) return o->params.policy->name;
    return o->params.memory.threshold_bytes ? "keydiff" : "none";
}

void eviction_report(void *user, const ag_eviction *e) {
    (void)user;
    char freed[32];
    bool memory = e->reason == AG_EVICTION_MEMORY;
    progress_end();
    complain("%s evicted %" PRIu32 " of %" PRIu32 " tokens before token %" PRIu32
             " (%s%s%s): %s freed, %.2f ms",
             e->policy, e->n_before - e->n_kept, e->n_before, e->position,
             ag_eviction_reason_name(e->reason), memory ? ", " : "",
             memory ? ag_pressure_name(e->level) : "",
             format_bytes((double)e->bytes_returned, freed, sizeof freed), e->seconds * 1e3);
}
