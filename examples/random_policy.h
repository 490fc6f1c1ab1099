/* SPDX-License-Identifier: Apache-2.0 */
/* An eviction policy of one's own: see docs/adding-a-policy.md. */
#ifndef RANDOM_POLICY_H
#define RANDOM_POLICY_H

#include <antigravity/eviction.h>

extern const ag_eviction_policy random_policy;

#endif
