/* SPDX-License-Identifier: Apache-2.0 */
/* A custom eviction policy: see docs/guide/extend/policy.md. */
#ifndef RANDOM_POLICY_H
#define RANDOM_POLICY_H

#include <antigravity/eviction.h>

extern const ag_eviction_policy random_policy;

#endif
