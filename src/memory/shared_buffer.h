/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers in the memory of the process: on the heap, or in pages of their own. */
#ifndef AG_MEMORY_SHARED_BUFFER_H
#define AG_MEMORY_SHARED_BUFFER_H

#include <antigravity/tensor.h>

/* Reference-counted byte counter: buffers add their size when created and subtract it when
 * freed. */
typedef struct ag_byte_counter ag_byte_counter;

/* Creates a counter with one reference, the caller's; NULL if out of memory. */
ag_byte_counter *ag_byte_counter_create(void);
void ag_byte_counter_release(ag_byte_counter *c);
size_t ag_byte_counter_get(const ag_byte_counter *c);

/* Creates a zeroed buffer of `bytes` (> 0), visible to the host, at a fixed address.
 *   AG_USAGE_SCRATCH  heap, aligned to 64 bytes; nothing can be discarded
 *   AG_USAGE_WEIGHTS  pages; from 2 MiB on aligned to 2 MiB, with huge pages requested
 *   AG_USAGE_KV       ordinary pages, committed when first touched
 * counter is retained; NULL: bytes are not counted. *out is NULL after a failure. */
ag_status ag_shared_buffer_create(size_t bytes, ag_usage usage, ag_byte_counter *counter,
                                  ag_buffer **out, ag_error *err);

#endif
