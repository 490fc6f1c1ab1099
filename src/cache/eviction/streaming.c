/* SPDX-License-Identifier: Apache-2.0 */
/* StreamingLLM: keeps the first tokens, the attention sinks, and the newest. Unlike a sliding
 * window its budget includes the sinks. Source: arXiv:2309.17453. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

const ag_eviction_policy ag_eviction_streaming = {.name = "streaming", .select = ag_select_newest};
