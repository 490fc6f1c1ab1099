/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_rerotate.cl: one for all layers whose blocks lie evenly in one buffer. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>

enum { WG = 64 }; /* as in the file */

/* Layers [layer0, layer0 + n) whose blocks of the same number are `stride` bytes apart. */
typedef struct layer_run {
    const ag_kv_block *first;
    size_t stride;
    uint32_t layer0, n;
} layer_run;

static layer_run run_at(const ag_kv_rerotate *t, uint32_t layer0, uint32_t block) {
    const ag_kv_block *first = &t->blocks[(size_t)layer0 * t->blocks_per_layer + block];
    layer_run run = {.first = first, .layer0 = layer0, .n = 1};
    for (uint32_t l = layer0 + 1; l < t->n_layers; l++, run.n++) {
        const ag_kv_block *b = first + (size_t)(l - layer0) * t->blocks_per_layer;
        const ag_kv_block *before = b - t->blocks_per_layer;
        if (b->buffer != first->buffer || b->offset <= before->offset) break;
        const size_t step = b->offset - before->offset;
        if (run.n == 1) run.stride = step;
        if (step != run.stride) break;
    }
    return run;
}

static ag_status turn_run(ag_cl_backend *cl, const ag_kv_rerotate *t, uint32_t block,
                          const layer_run *run) {
    const size_t piece = t->hadamard ? ag_hadamard_piece(t->head_dim) : 1;
    const size_t keys = (size_t)t->n_kv_heads * t->n_positions;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, cl, "kv_rerotate.cl", "kv_rerotate", NULL));
    ag_cl_arg_buffer(&l, run->first->buffer);
    ag_cl_arg_u64(&l, run->first->offset);
    ag_cl_arg_u64(&l, run->stride);
    ag_cl_arg_u32(&l, run->layer0);
    ag_cl_arg_u32(&l, block);
    ag_cl_arg_buffer(&l, t->keys);
    ag_cl_arg_u64(&l, t->keys_at / sizeof(float));
    ag_cl_arg_staged(&l, t->slots, t->n_layers * keys * sizeof *t->slots);
    ag_cl_arg_staged(&l, t->cos_sin, (size_t)t->n_positions * t->n_rotated * sizeof *t->cos_sin);
    ag_cl_arg_u32(&l, (uint32_t)t->k_type);
    ag_cl_arg_u32(&l, t->n_kv_heads);
    ag_cl_arg_u32(&l, t->n_positions);
    ag_cl_arg_u32(&l, t->head_dim);
    ag_cl_arg_u32(&l, t->n_rotated);
    ag_cl_arg_u32(&l, (uint32_t)piece);
    ag_cl_arg_f32(&l, 1 / sqrtf((float)piece));
    ag_cl_arg_local(&l, t->head_dim * sizeof(float));
    return ag_cl_enqueue(&l, 2, (size_t[]){keys * WG, run->n}, (size_t[]){WG, 1});
}

ag_status ag_cl_kv_rerotate(ag_backend *b, const ag_kv_rerotate *t) {
    for (uint32_t block = 0; block < t->n_blocks; block++) {
        for (uint32_t l = 0; l < t->n_layers;) {
            const layer_run run = run_at(t, l, block);
            if (run.first->buffer) AG_TRY(turn_run(ag_cl_of(b), t, block, &run));
            l += run.n;
        }
    }
    return AG_OK;
}
