/* SPDX-License-Identifier: Apache-2.0 */
/* What the layers need of a KV cache beyond antigravity/kv_cache.h. */
#ifndef AG_CACHE_KV_CACHE_H
#define AG_CACHE_KV_CACHE_H

#include "core/kv_view.h"

#include <antigravity/kv_cache.h>

/* Makes sure that n more tokens fit every layer, so that a forward pass cannot fail half way.
 * AG_LIMIT names slots held, wanted and allowed. */
ag_status ag_kv_cache_reserve(ag_kv_cache *c, uint32_t n, ag_error *err);

/* The layer as kernels see it; borrowed from the cache, valid until it changes. */
void ag_kv_cache_get_view(const ag_kv_cache *c, uint32_t layer, ag_kv_view *out);

#endif
