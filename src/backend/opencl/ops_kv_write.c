/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_write.cl: new tokens into a cache, one launch for each run of blocks. */
#include "backend/opencl/ops.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

enum { WG = 32 }; /* as in the file */

static bool is_written_here(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

typedef struct writing {
    ag_cl_backend *cl;
    const ag_kv_view *kv;
    const ag_tensor *k, *v;
    const uint32_t *positions;
} writing;

static ag_status write_run(const void *user, const ag_cl_kv_run *run) {
    const writing *w = user;
    const ag_kv_view *kv = w->kv;
    const size_t n = w->k->shape.dim[0], heads = kv->n_kv_heads;
    const size_t pieces = (kv->head_dim + AG_QK - 1) / AG_QK;
    if (!run->buffer) return AG_OK; /* these heads end before */
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, "kv_write.cl", "kv_write", NULL));
    ag_cl_arg_buffer(&l, run->buffer);
    ag_cl_arg_u64(&l, run->offset);
    ag_cl_arg_u64(&l, run->stride);
    ag_cl_arg_u64(&l, run->head_stride);
    ag_cl_arg_u64(&l, kv->v_offset);
    ag_cl_arg_u64(&l, kv->p_offset);
    ag_cl_arg_u32(&l, run->block0);
    ag_cl_arg_u32(&l, run->n_blocks);
    ag_cl_arg_u32(&l, run->head0);
    ag_cl_arg_u32(&l, run->n_heads);
    ag_cl_arg_tensor(&l, w->k);
    ag_cl_arg_tensor(&l, w->v);
    ag_cl_arg_staged(&l, w->positions, n * sizeof *w->positions);
    ag_cl_arg_staged(&l, kv->n_slots, heads * sizeof *kv->n_slots);
    ag_cl_arg_u32(&l, (uint32_t)kv->k_type);
    ag_cl_arg_u32(&l, (uint32_t)kv->v_type);
    ag_cl_arg_u32(&l, (uint32_t)heads);
    ag_cl_arg_u32(&l, kv->head_dim);
    ag_cl_arg_u32(&l, (uint32_t)n);
    return ag_cl_enqueue(&l, 2, (size_t[]){ag_cl_items(n * heads * pieces, WG), 2},
                         (size_t[]){WG, 1});
}

ag_status ag_cl_kv_write(ag_backend *b, const ag_kv_view *kv, const ag_tensor *k,
                         const ag_tensor *v, const uint32_t *positions) {
    const size_t n = k->shape.dim[0];
    if (!n || !kv->n_kv_heads) return AG_OK;
    const ag_dtype unknown = ag_cl_has_kernels(kv->k_type) ? kv->v_type : kv->k_type;
    if (!ag_cl_has_kernels(unknown)) return ag_cl_refuse_type(ag_cl_of(b), "a cache", unknown);
    if (!is_written_here(kv->k_type) || !is_written_here(kv->v_type)) {
        return ag_compose_kv_write(b, kv, k, v, positions);
    }
    size_t lowest = SIZE_MAX, end = 0;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] < lowest) lowest = kv->n_slots[h];
        if (kv->n_slots[h] + n > end) end = kv->n_slots[h] + n;
    }
    const uint32_t end_block = (uint32_t)((end + AG_KV_BLOCK - 1) / AG_KV_BLOCK);
    const writing w = {ag_cl_of(b), kv, k, v, positions};
    return ag_cl_kv_each_run(kv, (uint32_t)(lowest / AG_KV_BLOCK), end_block, write_run, &w);
}
