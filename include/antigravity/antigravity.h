/* SPDX-License-Identifier: Apache-2.0 */
/* All of the public interface. */
#ifndef ANTIGRAVITY_ANTIGRAVITY_H
#define ANTIGRAVITY_ANTIGRAVITY_H

#include <antigravity/alloc.h>
#include <antigravity/backend.h>
#include <antigravity/dtype.h>
#include <antigravity/eviction.h>
#include <antigravity/kv_cache.h>
#include <antigravity/model.h>
#include <antigravity/plan.h>
#include <antigravity/process.h>
#include <antigravity/sampler.h>
#include <antigravity/session.h>
#include <antigravity/status.h>
#include <antigravity/tensor.h>
#include <antigravity/tokenizer.h>

#endif
