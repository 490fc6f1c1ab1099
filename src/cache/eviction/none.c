/* SPDX-License-Identifier: Apache-2.0 */
/* none: never evicts. A full cache ends the generation. */
#include "cache/eviction/policies.h"

const ag_eviction_policy ag_eviction_none = {.name = "none"};
