/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks: the first tokens, to which models give the attention that they have no use for,
 * and the newest. Differs from a sliding window in what its budget counts: the sinks are part of
 * it. Source: StreamingLLM, arXiv:2309.17453. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

static void select_slots(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                         uint32_t n_keep, uint32_t *keep) {
    (void)user;
    (void)p;
    ag_evict_oldest_first(v, n_keep, keep);
}

const ag_eviction_policy ag_eviction_streaming = {.name = "streaming", .select = select_slots};
