/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in the process's own memory: from the heap, or pages of their own. */
#ifndef AG_MEMORY_SHARED_BUFFER_H
#define AG_MEMORY_SHARED_BUFFER_H

#include <antigravity/tensor.h>

/* Told of a buffer's birth (+bytes) and death (-bytes); keeps itself alive in between. */
typedef struct ag_byte_counter ag_byte_counter;

/* One reference, the caller's; NULL when there is no memory. */
ag_byte_counter *ag_byte_counter_create(void);
void ag_byte_counter_release(ag_byte_counter *c);
size_t ag_byte_counter_get(const ag_byte_counter *c);

/* A zeroed buffer of `bytes` (> 0), host-visible, at one address for life.
 *   AG_USAGE_SCRATCH  heap, aligned to 64 bytes; nothing can be discarded
 *   AG_USAGE_WEIGHTS  pages; from 2 MiB on aligned to 2 MiB and asking for huge ones
 *   AG_USAGE_KV       ordinary pages, committed when first touched
 * counter is retained; NULL: nobody counts. *out is NULL after a failure. */
ag_status ag_shared_buffer_create(size_t bytes, ag_usage usage, ag_byte_counter *counter,
                                  ag_buffer **out, ag_error *err);

#endif
