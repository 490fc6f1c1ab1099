/* SPDX-License-Identifier: Apache-2.0 */
/* Sliding window: keeps the newest tokens and the protected prefix. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

/* The budget holds the window and the prefix. */
static uint32_t default_budget(void *user, const ag_eviction_params *p) {
    (void)user;
    uint32_t max = UINT32_MAX - p->protected_prefix;
    return p->protected_prefix + (p->window < max ? p->window : max);
}

const ag_eviction_policy ag_eviction_sliding = {
    .name = "sliding",
    .default_budget = default_budget,
    .select = ag_select_newest,
};
