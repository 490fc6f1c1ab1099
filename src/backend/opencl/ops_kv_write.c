/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_write.cl: writes new tokens to a cache. */
#include "backend/opencl/ops.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

enum { WG = 32 }; /* as in the file */

static bool is_written_here(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

ag_status ag_cl_kv_write(ag_backend *b, const ag_kv_view *kv, const ag_tensor *k,
                         const ag_tensor *v, const uint32_t *positions) {
    const size_t n = k->shape.dim[0], heads = kv->n_kv_heads;
    const size_t pieces = (kv->head_dim + AG_QK - 1) / AG_QK;
    if (!n || !heads) return AG_OK;
    const ag_dtype unknown = ag_cl_has_kernels(kv->k_type) ? kv->v_type : kv->k_type;
    if (!ag_cl_has_kernels(unknown)) return ag_cl_refuse_type(ag_cl_of(b), "a cache", unknown);
    if (!is_written_here(kv->k_type) || !is_written_here(kv->v_type)) {
        return ag_compose_kv_write(b, kv, k, v, positions);
    }
    const uint32_t end = ag_kv_blocks_for(ag_kv_view_max_slots(kv) + (uint32_t)n);
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, ag_cl_of(b), "kv_write.cl", "kv_write", NULL));
    ag_cl_arg_view(&l, kv, end, NULL);
    ag_cl_arg_u64(&l, kv->v_offset);
    ag_cl_arg_u64(&l, kv->p_offset);
    ag_cl_arg_tensor(&l, k);
    ag_cl_arg_tensor(&l, v);
    ag_cl_arg_staged(&l, positions, n * sizeof *positions);
    ag_cl_arg_staged(&l, kv->n_slots, heads * sizeof *kv->n_slots);
    ag_cl_arg_u32(&l, (uint32_t)kv->k_type);
    ag_cl_arg_u32(&l, (uint32_t)kv->v_type);
    ag_cl_arg_u32(&l, (uint32_t)heads);
    ag_cl_arg_u32(&l, kv->head_dim);
    ag_cl_arg_u32(&l, (uint32_t)n);
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(n * heads * pieces, WG), 2},
                         (size_t[]){WG, 1});
}
