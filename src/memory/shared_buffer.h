/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in the memory of the process: on the heap, or in pages of their own. */
#ifndef AG_MEMORY_SHARED_BUFFER_H
#define AG_MEMORY_SHARED_BUFFER_H

#include <antigravity/tensor.h>

/* State of a memory that its buffers share: a count of their bytes, and mappings of weights.
 * Reference-counted: each buffer has a reference. */
typedef struct ag_shared_pool ag_shared_pool;

/* Creates a pool with one reference, the caller's; NULL if out of memory. */
ag_shared_pool *ag_shared_pool_create(void);
void ag_shared_pool_release(ag_shared_pool *pool);       /* accepts NULL */
size_t ag_shared_pool_bytes(const ag_shared_pool *pool); /* bytes of live buffers */

/* Creates a zeroed buffer of `bytes` (> 0), visible to the host, at a fixed address.
 *   AG_USAGE_SCRATCH  heap, aligned to 64 bytes; nothing can be discarded
 *   AG_USAGE_WEIGHTS  full pages, huge ones where possible
 *   AG_USAGE_KV       ordinary pages, committed when first touched
 * *out is NULL after a failure. */
ag_status ag_shared_buffer_create(ag_shared_pool *pool, size_t bytes, ag_usage usage,
                                  ag_buffer **out, ag_error *err);

#endif
