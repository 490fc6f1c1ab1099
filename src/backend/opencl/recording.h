/* SPDX-License-Identifier: Apache-2.0 */
/* A recording: the launches of one step of decoding, recorded once and replayed for
 * later tokens. What changes with every token lies behind the token's row of the stream, in rows
 * that a step of one token does not use, and is brought there in one upload together with it:
 *
 *   embedding [dim] | position | of each layer its frequencies and the first position that it sees
 * | slots of each layer and KV head, without and with the token | of these, those with sums of
 *   attention weights
 *
 * All else that the launches depend on is the recording's key. A step with another key is done
 * operation by operation and recorded. */
#ifndef AG_OPENCL_RECORDING_H
#define AG_OPENCL_RECORDING_H

#include "backend/opencl/recorded_launch.h"

/* What the launches of one layer depend on in its cache. */
typedef struct ag_cl_recorded_layer {
    ag_dtype k_type, v_type;
    uint32_t n_kv_heads, head_dim;
    size_t v_offset, p_offset;
    uint32_t first, end; /* blocks that are written to, and up to where they are read */
    size_t n_table;      /* entries of the table of blocks; 0: not asked for yet */
} ag_cl_recorded_layer;

/* Where a layer's numbers lie in the mailbox, in bytes; of slots, behind each of the three places.
 */
typedef struct ag_cl_recorded_places {
    size_t inv_freq_at, visible_from_at, slots_at;
} ag_cl_recorded_places;

typedef struct ag_cl_recording {
    ag_cl_launch_list launches;
    bool known; /* launches are those of the key */
    bool unfit; /* this model's steps cannot be recorded */

    /* the key: the model, what it computes in, the cache. Borrowed: see ag_cl_backend.lost */
    const ag_decode_layer *model;
    ag_buffer *rows, *logits, *device_scores;
    size_t rows_at, logits_at, score_row0;
    bool hadamard;
    uint32_t query_periods;
    uint32_t n_layers;
    ag_cl_recorded_layer *layers; /* owned; [n_layers] */
    ag_kv_block *blocks;          /* owned; [all heads of the layers][max_blocks] */
    uint32_t n_heads, max_blocks;
    /* Tables of blocks as kernels see them, places as in `blocks`: on the device, and a copy. They
     * change only with the key. Both owned. */
    ag_buffer *tables;
    uint64_t *sent;

    unsigned char *mailbox;        /* owned; as the host sends it */
    ag_cl_recorded_places *places; /* owned; [n_layers] */
    size_t mailbox_bytes, position_at, before_at, after_at, scored_at, slots_bytes;
    const ag_decode_step *step; /* borrowed, while it is recorded, and the rows' memory */
    ag_cl_backend *cl;          /* borrowed, the same */
    cl_mem rows_mem;
} ag_cl_recording;

/* By the recording, or by the operations while they are recorded, if that can be. */
ag_status ag_cl_recording_step(ag_cl_backend *cl, ag_cl_recording *p, const ag_decode_step *step,
                               ag_operations_fn operations, void *user, ag_repeat *done);
/* Afterwards nothing is recorded. */
void ag_cl_recording_release(ag_cl_backend *cl, ag_cl_recording *p);

#endif
