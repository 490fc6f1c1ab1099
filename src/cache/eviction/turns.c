/* SPDX-License-Identifier: Apache-2.0 */
/* turns: evicts entire turns of a conversation, the oldest first. The rest reads like a
 * conversation with fewer turns. Without recorded turns it equals `streaming`. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

/* Returns the first turn that begins at `position` or later, but not after the newest slot;
 * UINT32_MAX if there is none. */
static uint32_t next_turn(const ag_eviction_view *v, uint32_t position) {
    size_t low = 0, high = v->n_turns;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (v->turns[middle] < position) low = middle + 1;
        else high = middle;
    }
    if (low == v->n_turns || v->turns[low] > v->positions[v->n_slots - 1]) return UINT32_MAX;
    return v->turns[low];
}

/* Also evicts the rest of the oldest turn if at least half of the possible slots stay. Otherwise
 * the end of one turn that fills the cache is worth more than free space. */
static uint32_t count_retained(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                               uint32_t n_keep) {
    (void)user, (void)p;
    const uint32_t max = n_keep - v->n_protected, min = max - max / 2;
    uint32_t first = v->n_slots - max;
    if (first == v->n_protected || first == v->n_slots) return n_keep;
    const uint32_t turn = next_turn(v, v->positions[first]);
    while (first < v->n_slots && v->positions[first] < turn) first++;
    const uint32_t n = v->n_slots - first;
    return n < min || n < v->n_recent ? n_keep : v->n_protected + n;
}

const ag_eviction_policy ag_eviction_turns = {
    .name = "turns",
    .whole_prefill = true,
    .select = ag_select_newest,
    .count = count_retained,
};
