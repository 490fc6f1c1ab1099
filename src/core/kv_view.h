/* SPDX-License-Identifier: Apache-2.0 */
/* How kernels see one layer of a KV cache: blocks of 128 slots of one head, positions beside the
 * data. */
#ifndef AG_CORE_KV_VIEW_H
#define AG_CORE_KV_VIEW_H

#include <antigravity/tensor.h>
#include <stdbool.h>

#define AG_KV_BLOCK 128 /* slots in a block */
/* Buffers that the blocks of a cache lie in on a device: kernels take no more. */
#define AG_KV_BUFFERS 16

/* One block of one KV head of one layer, somewhere in a buffer. Inside it, at byte offsets from
 * `offset`, which is a multiple of 64:
 *   K at 0                [128][row of head_dim k_type elements]
 *   V at v_offset         [128][row of head_dim v_type elements]
 *   positions at p_offset [128] uint32: the logical position of each slot's token
 * one right behind the other. */
typedef struct ag_kv_block {
    ag_buffer *buffer; /* borrowed; NULL: there is no such block */
    size_t offset;
} ag_kv_block;

/* A layer's slots of one sequence. KV head h holds slots [0, n_slots[h]); slot s lies in block
 * s / 128 of the head at index s % 128. A head has the blocks that its slots need, and perhaps more
 * behind them. Slots are in order of position. All borrowed. */
typedef struct ag_kv_view {
    ag_dtype k_type, v_type;
    uint32_t n_kv_heads, head_dim;
    size_t v_offset, p_offset; /* inside a block */
    const ag_kv_block *blocks; /* [n_kv_heads][blocks_per_head] */
    uint32_t blocks_per_head;
    const uint32_t *n_slots; /* [n_kv_heads] */
} ag_kv_view;

static inline const ag_kv_block *ag_kv_view_block(const ag_kv_view *kv, size_t head, size_t block) {
    return &kv->blocks[head * kv->blocks_per_head + block];
}

/* Blocks that so many slots of a head lie in. */
static inline uint32_t ag_kv_blocks_for(uint32_t n_slots) {
    return n_slots / AG_KV_BLOCK + (n_slots % AG_KV_BLOCK != 0);
}

/* Where the parts of a block lie. */
typedef struct ag_kv_sections {
    size_t k_row, v_row; /* bytes of a slot */
    size_t v_offset, p_offset, bytes;
} ag_kv_sections;

static inline ag_kv_sections ag_kv_sections_of(ag_dtype k_type, ag_dtype v_type,
                                               uint32_t head_dim) {
    ag_kv_sections at = {.k_row = ag_dtype_row_bytes(k_type, head_dim),
                         .v_row = ag_dtype_row_bytes(v_type, head_dim)};
    at.v_offset = AG_KV_BLOCK * at.k_row;
    at.p_offset = at.v_offset + AG_KV_BLOCK * at.v_row;
    at.bytes = at.p_offset + AG_KV_BLOCK * sizeof(uint32_t);
    return at;
}

/* Slots of the longest KV head. */
static inline uint32_t ag_kv_view_max_slots(const ag_kv_view *kv) {
    uint32_t max = 0;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] > max) max = kv->n_slots[h];
    }
    return max;
}

/* What all queries of an attention call have in common. */
typedef struct ag_attention_params {
    float scale;   /* of q . k */
    float softcap; /* a score becomes softcap * tanh(score / softcap); 0: it stays */
} ag_attention_params;

/* One sequence's share of an attention call. Query r sees the slots whose positions lie in
 * [visible_from[r], visible_until[r]]; what the other slots hold does not matter. */
typedef struct ag_attention_seq {
    ag_kv_view kv;
    size_t row0, n_rows;           /* rows of q and out that belong to this sequence */
    const uint32_t *visible_until; /* [n_rows] last logical position, not descending */
    const uint32_t *visible_from;  /* [n_rows] the first one, not descending; NULL: 0 for all */
    /* Optional; NULL: attention weights are not kept, at no cost. Else, for the queries
     * [score_row0, n_rows), the weight that slot s of KV head h received, averaged over the head's
     * query group and summed over those queries, is added to scores[h * score_stride + s]. */
    float *scores;
    size_t score_row0, score_stride;
    /* Instead of sums, the largest weight that any query of the group gave to the slot in any of
     * those rows: where it is larger, it takes the place of what stands there. */
    bool score_max;
    /* A hint: nobody will read what attention gives, only the scores. */
    bool score_only;
    /* Optional; a hint: [n_kv_heads] nobody will read what slots from score_until[h] on receive. */
    const uint32_t *score_until;
    /* Instead, where ag_keeps_scores() says so: the sums in the backend's memory, that of slot s of
     * KV head h float number s * n_kv_heads + h from byte device_scores_at on; NULL: not there. The
     * sums, or largest weights, of slots from scored[h] on begin at 0, whatever stands there. */
    ag_buffer *device_scores;
    size_t device_scores_at;
    const uint32_t *scored; /* [n_kv_heads] */
} ag_attention_seq;

/* The largest calls to come: n_rows of one sequence, or a row of each of up to n_seqs, over caches
 * of up to n_slots. */
typedef struct ag_attention_limits {
    uint32_t n_heads, n_kv_heads, head_dim, n_slots;
    size_t n_rows, n_seqs;
} ag_attention_limits;

#endif
