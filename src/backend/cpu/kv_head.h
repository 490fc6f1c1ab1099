/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the blocks of one KV head, for the attention kernels. */
#ifndef AG_BACKEND_CPU_KV_HEAD_H
#define AG_BACKEND_CPU_KV_HEAD_H

#include "backend/cpu/kernels.h"
#include "core/kv_view.h"

/* Slots of block b that hold tokens and come before slot `end`. */
static inline uint32_t kv_head_slots(const ag_cpu_kv_head *kv, uint32_t b, uint32_t end) {
    if (end > kv->n_slots) end = kv->n_slots;
    if (end <= b * AG_KV_BLOCK) return 0;
    const uint32_t n = end - b * AG_KV_BLOCK;
    return n < AG_KV_BLOCK ? n : AG_KV_BLOCK;
}

/* How many of the first n slots of block b a query at `position` sees: slots are in order of
 * position, so these come first. */
static inline uint32_t kv_head_seen(const ag_cpu_kv_head *kv, uint32_t b, uint32_t n,
                                    uint32_t position) {
    const void *part = kv->blocks[b] + kv->p_offset;
    const uint32_t *positions = part;
    if (!n || positions[n - 1] <= position) return n;
    uint32_t low = 0, high = n - 1; /* slot `high` is not seen, those before `low` are */
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (positions[middle] <= position) low = middle + 1;
        else high = middle;
    }
    return low;
}

#endif
