/* SPDX-License-Identifier: Apache-2.0 */
#include "eviction_options.h"

#include <string.h>

static bool set_policy(void *target, const char *value, char *why) {
    static const char *const later[] = {"sliding", "streaming", "snapkv", "h2o", "tova", "keydiff"};
    (void)target;
    if (!strcmp(value, "none")) return true;
    for (size_t i = 0; i < sizeof later / sizeof later[0]; i++) {
        if (strcmp(value, later[i]) != 0) continue;
        snprintf(why, WHY_SIZE, "'%s' is not available yet in this version, which has none", value);
        return false;
    }
    snprintf(why, WHY_SIZE,
             "'%.60s' is not one of none, sliding, streaming, snapkv, h2o, tova, keydiff", value);
    return false;
}

static bool needs_policy(void *target, const char *value, char *why) {
    (void)target, (void)value;
    snprintf(why, WHY_SIZE, "needs an eviction policy other than none");
    return false;
}

static const option_def defs[] = {
    {.name = "eviction-policy",
     .kind = OPTION_CALL,
     .value = "NAME",
     .call = set_policy,
     .help = "which tokens leave a full cache: none, so that generation stops (default none)"},
    {.name = "eviction-window",
     .kind = OPTION_CALL,
     .value = "N",
     .call = needs_policy,
     .help = "tokens a sliding cache keeps; needs a policy"},
    {.name = "kv-budget",
     .kind = OPTION_CALL,
     .value = "N",
     .call = needs_policy,
     .help = "tokens that stay after an eviction; needs a policy"},
    {.name = "protected-prefix",
     .kind = OPTION_CALL,
     .value = "N",
     .call = needs_policy,
     .help = "first tokens that never leave; needs a policy"},
    {.name = "memory-threshold-mb",
     .kind = OPTION_CALL,
     .value = "N",
     .call = needs_policy,
     .help = "evict when less memory is available; needs a policy"},
    {.name = "eviction-target-ratio",
     .kind = OPTION_CALL,
     .value = "X",
     .call = needs_policy,
     .help = "share of the cache that stays then; needs a policy"},
};

option_group eviction_group(void) {
    return (option_group){"Eviction", defs, sizeof defs / sizeof defs[0], NULL};
}
