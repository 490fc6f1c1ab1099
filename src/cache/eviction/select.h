/* SPDX-License-Identifier: Apache-2.0 */
/* What the policies share: choosing slots by a score. */
#ifndef AG_CACHE_EVICTION_SELECT_H
#define AG_CACHE_EVICTION_SELECT_H

#include <antigravity/eviction.h>

/* The protected slots, the newest n_recent and, of those between that have not expired, the ones of
 * highest score; among equals the lower slot. score [n_slots]; v->work is written. */
void ag_evict_select(const ag_eviction_view *v, const float *score, uint32_t n_recent,
                     uint32_t n_keep, uint32_t *keep);

/* ag_eviction_policy.select of policies that keep the slots of highest importance, with the
 * protected and the n_recent newest ones. */
void ag_select_best(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                    uint32_t n_keep, uint32_t *keep);
/* The same of policies that keep the protected slots and the newest. */
void ag_select_newest(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                      uint32_t n_keep, uint32_t *keep);

#endif
