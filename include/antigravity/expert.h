/* SPDX-License-Identifier: Apache-2.0 */
/* The expert interface: antigravity.h plus tensors, their operations and the KV cache. The thread
 * rules of antigravity.h apply. */
#ifndef ANTIGRAVITY_EXPERT_H
#define ANTIGRAVITY_EXPERT_H

#include <antigravity/antigravity.h>
#include <antigravity/kv_cache.h>
#include <antigravity/operations.h>
#include <antigravity/tensor.h>

#endif
