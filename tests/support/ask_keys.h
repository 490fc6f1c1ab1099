/* SPDX-License-Identifier: Apache-2.0 */
/* Runs from_keys() of a policy on one head. */
#ifndef AG_TESTS_SUPPORT_ASK_KEYS_H
#define AG_TESTS_SUPPORT_ASK_KEYS_H

#include <antigravity/eviction.h>

#include <stdlib.h>

/* Computes final importance. in: all fields except `more` and `work`, which are allocated here. */
static inline void ask_keys(const ag_eviction_policy *policy, const ag_eviction_params *p,
                            ag_eviction_inputs in) {
    const size_t n_work = policy->work_floats ? policy->work_floats(policy->user, in.dim) : 0;
    in.work = calloc(n_work + 1, sizeof *in.work);
    in.more = calloc(in.n_slots + 1, sizeof *in.more);
    policy->from_keys(policy->user, p, &in);
    if (policy->compare) policy->compare(policy->user, p, &in, 1);
    free(in.work);
    free(in.more);
}

#endif
