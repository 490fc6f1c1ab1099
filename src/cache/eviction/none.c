/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing leaves: a full cache ends the generation. */
#include "cache/eviction/policies.h"

const ag_eviction_policy ag_eviction_none = {.name = "none"};
