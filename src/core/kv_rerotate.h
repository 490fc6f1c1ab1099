/* SPDX-License-Identifier: Apache-2.0 */
/* Job: rotate protected keys of a cache again, from unrotated copies that the backend holds. All
 * pointers are borrowed. */
#ifndef AG_CORE_KV_REROTATE_H
#define AG_CORE_KV_REROTATE_H

#include "core/kv_view.h"

typedef struct ag_kv_rerotate {
    const ag_kv_block *blocks; /* [n_layers][n_kv_heads][blocks_per_head] */
    uint32_t n_blocks;         /* blocks of every head that hold the slots of the list */
    uint32_t blocks_per_head;
    uint32_t n_layers, n_kv_heads, head_dim, n_positions;
    uint32_t n_rotated; /* the first n values of a key rotate; even */
    ag_dtype k_type;
    bool hadamard;         /* then keys are rotated by core/hadamard.h */
    ag_buffer *keys;       /* [n_layers][n_positions][n_kv_heads][head_dim] F32, not rotated */
    size_t keys_at;        /* offset in bytes of the first key */
    const float *cos_sin;  /* [n_positions][n_rotated / 2] pairs (cos, sin) of the angles */
    const uint32_t *slots; /* [n_layers][n_kv_heads][n_positions]; UINT32_MAX: skip */
} ag_kv_rerotate;

#endif
