/* SPDX-License-Identifier: Apache-2.0 */
/* Retains random tokens: the baseline of every eviction policy. */
#include "random_policy.h"

/* Returns a pseudo-random number: the same in every run, different at each eviction. */
static uint32_t throw_dice(uint32_t position, uint32_t newest) {
    uint32_t x = position * 0x9e3779b1u ^ newest * 0x85ebca6bu;
    x = (x ^ x >> 16) * 0x7feb352du;
    x = (x ^ x >> 15) * 0x846ca68bu;
    return x ^ x >> 16;
}

static void choose(void *user, const ag_eviction_params *p, const ag_eviction_view *v,
                   uint32_t n_keep, uint32_t *keep) {
    (void)user;
    (void)p;
    uint32_t first = v->n_protected + v->n_expired, newest = v->n_slots - v->n_recent, n = 0;
    uint32_t wanted = n_keep - v->n_protected - v->n_recent;
    for (uint32_t s = 0; s < v->n_protected; s++) keep[n++] = s;
    for (uint32_t s = first; s < newest; s++) {
        /* Each remaining slot has the same chance to be one of the wanted ones. */
        uint32_t dice = throw_dice(v->positions[s], v->positions[v->n_slots - 1]);
        if (dice % (newest - s) >= wanted) continue;
        keep[n++] = s;
        wanted--;
    }
    for (uint32_t s = newest; s < v->n_slots; s++) keep[n++] = s;
}

const ag_eviction_policy random_policy = {.name = "random", .select = choose};
