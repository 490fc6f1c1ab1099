/* SPDX-License-Identifier: Apache-2.0 */
/* For who works below models and sessions: tensors, operations on them, the KV cache by itself.
 * antigravity.h has everything else, and the rules of threads for both. */
#ifndef ANTIGRAVITY_EXPERT_H
#define ANTIGRAVITY_EXPERT_H

#include <antigravity/antigravity.h>
#include <antigravity/kv_cache.h>
#include <antigravity/operations.h>
#include <antigravity/tensor.h>

#endif
