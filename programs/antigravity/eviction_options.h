/* SPDX-License-Identifier: Apache-2.0 */
/* What happens when the KV cache is full. */
#ifndef ANTIGRAVITY_EVICTION_OPTIONS_H
#define ANTIGRAVITY_EVICTION_OPTIONS_H

#include "options.h"

/* The only policy of this version is "none": generation stops. The options of the others are known
 * and refused with the reason, so the group has no target. */
option_group eviction_group(void);

#endif
