/* SPDX-License-Identifier: Apache-2.0 */
/* What the newest query attends to least leaves, the same slots in all heads of a layer.
 * Source: TOVA, arXiv:2401.06104. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

static void select_slots(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                         uint32_t n_keep, uint32_t *keep) {
    (void)user;
    (void)p;
    ag_evict_select(v, v->importance, v->n_recent, n_keep, keep);
}

const ag_eviction_policy ag_eviction_tova = {
    .name = "tova",
    .importance = AG_IMPORTANCE_NEWEST,
    .select = select_slots,
};
