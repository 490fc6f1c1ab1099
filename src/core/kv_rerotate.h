/* SPDX-License-Identifier: Apache-2.0 */
/* Protected keys of a cache that are to be rotated anew, from copies that the backend holds. All
 * borrowed. */
#ifndef AG_CORE_KV_REROTATE_H
#define AG_CORE_KV_REROTATE_H

#include "core/kv_view.h"

typedef struct ag_kv_rerotate {
    const ag_kv_block *blocks; /* [n_layers][n_kv_heads][blocks_per_head] */
    uint32_t n_blocks;         /* that a slot of the list may lie in, of every head */
    uint32_t blocks_per_head;
    uint32_t n_layers, n_kv_heads, head_dim, n_positions;
    uint32_t n_rotated; /* first values of a key that are rotated, even; the others stay */
    ag_dtype k_type;
    bool hadamard;         /* keys are multiplied by core/hadamard.h's matrix at last */
    ag_buffer *keys;       /* [n_layers][n_positions][n_kv_heads][head_dim] F32, not rotated */
    size_t keys_at;        /* from this byte on */
    const float *cos_sin;  /* [n_positions][n_rotated / 2] pairs: the angles to rotate by */
    const uint32_t *slots; /* [n_layers][n_kv_heads][n_positions]; UINT32_MAX: not written */
} ag_kv_rerotate;

#endif
