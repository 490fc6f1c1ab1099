/* SPDX-License-Identifier: Apache-2.0 */
/* The newest tokens stay, beside the protected prefix. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

static void plan(const ag_eviction_params *p, const ag_eviction_view *v, uint32_t n_keep,
                 uint32_t *keep) {
    (void)p;
    ag_evict_oldest_first(v, n_keep, keep);
}

const ag_eviction_policy ag_eviction_sliding = {.name = "sliding", .plan = plan};
