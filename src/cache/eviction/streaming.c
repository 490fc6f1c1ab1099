/* SPDX-License-Identifier: Apache-2.0 */
/* Attention sinks: the first tokens, to which models give the attention that they have no use for,
 * and the newest. Differs from a sliding window in what its budget counts: the sinks are part of
 * it. Source: StreamingLLM, arXiv:2309.17453. */
#include "cache/eviction/policies.h"
#include "cache/eviction/select.h"

const ag_eviction_policy ag_eviction_streaming = {.name = "streaming", .select = ag_select_newest};
