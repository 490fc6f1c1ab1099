/* SPDX-License-Identifier: Apache-2.0 */
/* H2O: half of the budget for the newest tokens, half for those with the most attention so far,
 * per KV head. Source: arXiv:2306.14048. A prefill sums the attention of its last queries only:
 * all queries would cost a second prefill. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

static void select_slots(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                         uint32_t n_keep, uint32_t *keep) {
    (void)user, (void)p;
    uint32_t half = n_keep / 2, max = n_keep - v->n_protected;
    uint32_t recent = v->n_recent > half ? v->n_recent : half;
    ag_evict_select(v, v->importance, recent < max ? recent : max, n_keep, keep);
}

const ag_eviction_policy ag_eviction_h2o = {
    .name = "h2o",
    .importance = AG_IMPORTANCE_TOTAL,
    .select = select_slots,
};
