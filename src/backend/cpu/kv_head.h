/* SPDX-License-Identifier: Apache-2.0 */
/* Access to the blocks of one KV head, for the attention kernels. */
#ifndef AG_BACKEND_CPU_KV_HEAD_H
#define AG_BACKEND_CPU_KV_HEAD_H

#include "backend/cpu/kernels.h"
#include "core/kv_view.h"

/* Writes the base addresses of a head's blocks. */
static inline void ag_cpu_map_blocks(const unsigned char **out, const ag_kv_view *kv, size_t head) {
    const ag_kv_block *blocks = ag_kv_view_block(kv, head, 0);
    const unsigned char *base = NULL;
    for (uint32_t b = 0; b < ag_kv_blocks_for(kv->n_slots[head]); b++) {
        if (!b || blocks[b].buffer != blocks[b - 1].buffer) base = ag_buffer_map(blocks[b].buffer);
        out[b] = base + blocks[b].offset;
    }
}

/* Returns one head of a view. blocks are those of all heads, n_blocks each, as ag_cpu_map_blocks()
 * writes them. */
static inline ag_cpu_kv_head kv_head_of(const ag_kv_view *kv, size_t head,
                                        const unsigned char **blocks, size_t n_blocks) {
    return (ag_cpu_kv_head){
        .k_type = kv->k_type,
        .v_type = kv->v_type,
        .head_dim = kv->head_dim,
        .n_slots = kv->n_slots[head],
        .fetch_end = kv->n_slots[head],
        .blocks = blocks + head * n_blocks,
        .v_offset = kv->v_offset,
        .p_offset = kv->p_offset,
    };
}

/* Returns how many slots of block b have tokens and come before slot `end`. */
static inline uint32_t kv_head_slots(const ag_cpu_kv_head *kv, uint32_t b, uint32_t end) {
    if (end > kv->n_slots) end = kv->n_slots;
    if (end <= b * AG_KV_BLOCK) return 0;
    const uint32_t n = end - b * AG_KV_BLOCK;
    return n < AG_KV_BLOCK ? n : AG_KV_BLOCK;
}

/* Returns how many of the first n slots of block b have a position <= `position`. Slots are in
 * order of position. */
static inline uint32_t kv_head_count(const ag_cpu_kv_head *kv, uint32_t b, uint32_t n,
                                     uint32_t position) {
    const void *part = kv->blocks[b] + kv->p_offset;
    const uint32_t *positions = part;
    if (!n || positions[n - 1] <= position) return n;
    uint32_t low = 0, high = n - 1; /* slots before `low` count, slot `high` does not */
    while (low < high) {
        const uint32_t middle = (low + high) / 2;
        if (positions[middle] <= position) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Slots [first, end) of a block or a span. */
typedef struct kv_range {
    uint32_t first, end;
} kv_range;

/* Returns the slots that a row attends to among the first n of block b. If there are none, `end` is
 * still the number of slots before the end of its range: 0 means that later blocks have none
 * either.
 */
static inline kv_range kv_head_visible(const ag_cpu_kv_head *kv, uint32_t b, uint32_t n,
                                       const ag_cpu_queries *in, size_t row) {
    const uint32_t from = in->visible_from ? in->visible_from[row] : 0;
    const uint32_t end = kv_head_count(kv, b, n, in->visible_until[row]);
    const uint32_t first = from ? kv_head_count(kv, b, n, from - 1) : 0;
    return (kv_range){first < end ? first : end, end};
}

/* Returns the first block with a slot at `position` or later; the number of blocks in use if there
 * is none. */
static inline uint32_t kv_head_block_from(const ag_cpu_kv_head *kv, uint32_t position) {
    uint32_t low = 0, high = (kv->n_slots + AG_KV_BLOCK - 1) / AG_KV_BLOCK;
    while (low < high) {
        const uint32_t middle = (low + high) / 2, n = kv_head_slots(kv, middle, kv->n_slots);
        if (position && kv_head_count(kv, middle, n, position - 1) == n) low = middle + 1;
        else high = middle;
    }
    return low;
}

#endif
