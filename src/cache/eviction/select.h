/* SPDX-License-Identifier: Apache-2.0 */
/* Slot selection by score, shared by the policies. */
#ifndef AG_CACHE_EVICTION_SELECT_H
#define AG_CACHE_EVICTION_SELECT_H

#include <antigravity/eviction.h>

/* Selects the protected slots, the newest n_recent, and the highest scores of the unexpired
 * slots between; ties go to the lower slot. score [n_slots]; overwrites v->work. */
void ag_evict_select(const ag_eviction_view *v, const float *score, uint32_t n_recent,
                     uint32_t n_keep, uint32_t *keep);

/* ag_eviction_policy.select that keeps the highest importance, the protected and the n_recent
 * newest slots. */
void ag_select_best(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                    uint32_t n_keep, uint32_t *keep);
/* ag_eviction_policy.select that keeps the protected and the newest slots. */
void ag_select_newest(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                      uint32_t n_keep, uint32_t *keep);

#endif
