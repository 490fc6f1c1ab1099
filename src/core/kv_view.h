/* SPDX-License-Identifier: Apache-2.0 */
/* View of one layer of a KV cache for kernels: blocks of 128 slots of one head, with the positions
 * of the slots. */
#ifndef AG_CORE_KV_VIEW_H
#define AG_CORE_KV_VIEW_H

#include <antigravity/tensor.h>
#include <stdbool.h>

#define AG_KV_BLOCK 128 /* slots in a block */
/* Maximum number of buffers with blocks of one cache on a device: the limit of the kernels. */
#define AG_KV_BUFFERS 16

/* Location of one block of one KV head of one layer. Inside the block, at byte offsets from
 * `offset`, which is a multiple of 64:
 *   K at 0                [128][row of head_dim k_type elements]
 *   V at v_offset         [128][row of head_dim v_type elements]
 *   positions at p_offset [128] uint32: the logical position of each slot's token
 * without gaps. */
typedef struct ag_kv_block {
    ag_buffer *buffer; /* borrowed; NULL: no block */
    size_t offset;
} ag_kv_block;

/* Slots of one sequence in one layer. KV head h has slots [0, n_slots[h]), in order of position.
 * Slot s is entry s % 128 of the head's block s / 128. A head may have more blocks than its slots
 * need. All pointers are borrowed. */
typedef struct ag_kv_view {
    ag_dtype k_type, v_type;
    uint32_t n_kv_heads, head_dim;
    size_t v_offset, p_offset; /* in a block */
    const ag_kv_block *blocks; /* [n_kv_heads][blocks_per_head] */
    uint32_t blocks_per_head;
    const uint32_t *n_slots; /* [n_kv_heads] */
} ag_kv_view;

static inline const ag_kv_block *ag_kv_view_block(const ag_kv_view *kv, size_t head, size_t block) {
    return &kv->blocks[head * kv->blocks_per_head + block];
}

/* Returns the number of blocks for n_slots slots of a head. */
static inline uint32_t ag_kv_blocks_for(uint32_t n_slots) {
    return n_slots / AG_KV_BLOCK + (n_slots % AG_KV_BLOCK != 0);
}

/* Sizes and offsets of the sections of a block, in bytes. */
typedef struct ag_kv_sections {
    size_t k_row, v_row; /* one slot */
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

/* Returns the number of slots of the longest KV head. */
static inline uint32_t ag_kv_view_max_slots(const ag_kv_view *kv) {
    uint32_t max = 0;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] > max) max = kv->n_slots[h];
    }
    return max;
}

/* Parameters of all queries of an attention call. */
typedef struct ag_attention_params {
    float scale;   /* factor of q . k */
    float softcap; /* a score becomes softcap * tanh(score / softcap); 0: no cap */
    /* [n_heads] F32: a logit for each head that joins the softmax and has no value; NULL: none */
    const ag_tensor *sinks;
} ag_attention_params;

/* One sequence of an attention call. Query r sees the slots whose positions are in
 * [visible_from[r], visible_until[r]]. Other slots may hold any bytes. */
typedef struct ag_attention_seq {
    ag_kv_view kv;
    size_t row0, n_rows;           /* rows of q and out of this sequence */
    const uint32_t *visible_until; /* [n_rows] last logical position, not descending */
    const uint32_t *visible_from;  /* [n_rows] the first one, not descending; NULL: 0 for all */
    /* Optional; NULL: no scores. scores[h * score_stride + s] grows by the attention weight of slot
     * s of KV head h, averaged over the head's query group and summed over the queries [score_row0,
     * n_rows). */
    float *scores;
    size_t score_row0, score_stride;
    /* Scores are maxima instead of sums: a score becomes the largest weight of any query of the
     * group in those rows, if that is larger. */
    bool score_max;
    /* Hint: the caller reads only the scores, not the output. */
    bool score_only;
    /* Optional hint: [n_kv_heads] the caller reads no scores of slots from score_until[h] on. */
    const uint32_t *score_until;
    /* Optional, instead of `scores`, if ag_keeps_scores(): scores in the backend's memory. The
     * score of slot s of KV head h is float number s * n_kv_heads + h, counted from byte
     * device_scores_at. Scores of slots from scored[h] on start at 0, whatever the buffer holds. */
    ag_buffer *device_scores;
    size_t device_scores_at;
    const uint32_t *scored; /* [n_kv_heads] */
} ag_attention_seq;

/* Limits of attention calls: n_rows of one sequence, or one row of each of n_seqs sequences, over
 * caches of n_slots. */
typedef struct ag_attention_limits {
    uint32_t n_heads, n_kv_heads, head_dim, n_slots;
    size_t n_rows, n_seqs;
} ag_attention_limits;

#endif
