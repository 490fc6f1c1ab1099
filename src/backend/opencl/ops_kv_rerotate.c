/* SPDX-License-Identifier: Apache-2.0 */
/* Launch of kernels/kv_rerotate.cl: one for all layers and heads. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>

enum { WG = 64 }; /* as in the file */

ag_status ag_cl_kv_rerotate(ag_backend *b, const ag_kv_rerotate *t) {
    const size_t piece = t->hadamard ? ag_hadamard_piece(t->head_dim) : 1;
    const size_t keys = (size_t)t->n_kv_heads * t->n_positions;
    const ag_cl_kv_rows rows = {.blocks = t->blocks,
                                .n_rows = (size_t)t->n_layers * t->n_kv_heads,
                                .per_row = t->blocks_per_head,
                                .n_blocks = t->n_blocks};
    ag_cl_launch l;
    if (!t->n_blocks || !keys || !t->n_layers) return AG_OK;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), "kv_rerotate.cl", "kv_rerotate", NULL));
    ag_cl_arg_rows(&l, &rows);
    ag_cl_arg_buffer(&l, t->keys);
    ag_cl_arg_u64(&l, t->keys_at / sizeof(float));
    ag_cl_arg_staged(&l, t->slots, t->n_layers * keys * sizeof *t->slots);
    ag_cl_arg_staged(&l, t->cos_sin, (size_t)t->n_positions * t->n_rotated * sizeof *t->cos_sin);
    AG_CL_ARG_U32S(&l, t->k_type, t->n_kv_heads, t->n_positions, t->head_dim, t->n_rotated, piece);
    ag_cl_arg_f32(&l, 1 / sqrtf((float)piece));
    ag_cl_arg_local(&l, t->head_dim * sizeof(float));
    return ag_cl_enqueue(&l, 2, (size_t[]){keys * WG, t->n_layers}, (size_t[]){WG, 1});
}
