/* SPDX-License-Identifier: Apache-2.0 */
#include "core/buffer_ops.h"
#include "core/fail.h"

ag_status ag_memory_alloc(ag_memory *mem, size_t bytes, ag_usage usage, ag_buffer **out,
                          ag_error *err) {
    *out = NULL;
    if (bytes == 0) return AG_FAIL(err, INVALID, "cannot allocate a buffer of 0 bytes");
    return mem->ops->alloc(mem, bytes, usage, out, err);
}

size_t ag_memory_bytes_in_use(const ag_memory *mem) { return mem->ops->bytes_in_use(mem); }
