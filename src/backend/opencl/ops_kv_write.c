/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_write.cl: new tokens into a cache, one launch for each run of blocks. */
#include "backend/opencl/kernels/shared.h"
#include "backend/opencl/ops.h"
#include "core/backend_compose.h"
#include "core/fail.h"
#include "quant/quant.h"

_Static_assert((int)TYPE_F32 == (int)AG_F32 && (int)TYPE_F16 == (int)AG_F16 &&
                   (int)TYPE_BF16 == (int)AG_BF16 && (int)TYPE_Q4_0 == (int)AG_Q4_0 &&
                   (int)TYPE_Q4_1 == (int)AG_Q4_1 && (int)TYPE_Q8_0 == (int)AG_Q8_0,
               "kernels know types by these numbers");

enum { WG = 32 }; /* as in the file */

ag_cl_kv_run ag_cl_kv_run_at(const ag_kv_view *kv, uint32_t block0, uint32_t end) {
    const ag_kv_block *first = &kv->blocks[block0];
    ag_cl_kv_run run = {
        .buffer = first->buffer, .offset = first->offset, .block0 = block0, .n_blocks = 1};
    for (uint32_t i = block0 + 1; i < end; i++, run.n_blocks++) {
        const ag_kv_block *block = &kv->blocks[i], *before = block - 1;
        if (block->buffer != run.buffer || block->offset <= before->offset) break;
        const size_t step = block->offset - before->offset;
        if (run.n_blocks == 1) run.stride = step;
        if (step != run.stride) break;
    }
    return run;
}

static bool is_written_here(ag_dtype type) {
    return type == AG_F32 || type == AG_F16 || type == AG_Q8_0 || type == AG_Q4_0;
}

static ag_status write_run(ag_cl_backend *cl, const ag_kv_view *kv, const ag_cl_kv_run *run,
                           const ag_tensor *k, const ag_tensor *v, const uint32_t *positions) {
    const size_t n = k->shape.dim[0], heads = kv->n_kv_heads;
    const size_t pieces = (kv->head_dim + AG_QK - 1) / AG_QK;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "kv_write.cl", "kv_write", NULL));
    ag_cl_arg_buffer(&l, run->buffer);
    ag_cl_arg_u64(&l, run->offset);
    ag_cl_arg_u64(&l, run->stride);
    ag_cl_arg_u64(&l, kv->v_offset);
    ag_cl_arg_u64(&l, kv->p_offset);
    ag_cl_arg_u32(&l, run->block0);
    ag_cl_arg_u32(&l, run->n_blocks);
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

ag_status ag_cl_kv_write(ag_backend *b, const ag_kv_view *kv, const ag_tensor *k,
                         const ag_tensor *v, const uint32_t *positions) {
    const size_t n = k->shape.dim[0];
    if (!n || !kv->n_kv_heads) return AG_OK;
    if (!is_written_here(kv->k_type) || !is_written_here(kv->v_type)) {
        return ag_compose_kv_write(b, kv, k, v, positions);
    }
    size_t lowest = SIZE_MAX, end = 0;
    for (uint32_t h = 0; h < kv->n_kv_heads; h++) {
        if (kv->n_slots[h] < lowest) lowest = kv->n_slots[h];
        if (kv->n_slots[h] + n > end) end = kv->n_slots[h] + n;
    }
    const uint32_t end_block = (uint32_t)((end + AG_KV_BLOCK - 1) / AG_KV_BLOCK);
    for (uint32_t i = (uint32_t)(lowest / AG_KV_BLOCK); i < end_block;) {
        const ag_cl_kv_run run = ag_cl_kv_run_at(kv, i, end_block);
        AG_TRY(write_run(ag_cl_of(b), kv, &run, k, v, positions));
        i += run.n_blocks;
    }
    return AG_OK;
}
