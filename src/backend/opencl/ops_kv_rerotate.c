/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/kv_rerotate.cl: one for all layers and heads whose blocks lie evenly in one
 * buffer. */
#include "backend/opencl/ops.h"
#include "core/fail.h"
#include "core/hadamard.h"

#include <math.h>

enum { WG = 64 }; /* as in the file */

/* Layers [layer0, layer0 + n) and heads [head0, head0 + n_heads) whose blocks of the same number
 * are `stride` bytes apart from layer to layer, head_stride from head to head. */
typedef struct layer_run {
    const ag_kv_block *first;
    size_t stride, head_stride;
    uint32_t layer0, n, head0, n_heads;
} layer_run;

static const ag_kv_block *block_of(const ag_kv_rerotate *t, uint32_t layer, uint32_t head,
                                   uint32_t block) {
    return &t->blocks[((size_t)layer * t->n_kv_heads + head) * t->blocks_per_head + block];
}

/* Whether block b lies n steps behind the first; the second one says how long a step is. */
static bool follows(const ag_kv_block *first, const ag_kv_block *b, uint32_t n, size_t *step) {
    if (b->buffer != first->buffer || b->offset <= first->offset) return false;
    if (n == 1) *step = b->offset - first->offset;
    return b->offset - first->offset == n * *step;
}

static bool layer_follows(const ag_kv_rerotate *t, layer_run *run, uint32_t block) {
    for (uint32_t h = 0; h < run->n_heads; h++) {
        const ag_kv_block *first = block_of(t, run->layer0, run->head0 + h, block);
        const ag_kv_block *b = block_of(t, run->layer0 + run->n, run->head0 + h, block);
        size_t step = run->stride;
        if (!follows(first, b, run->n, &step) || (h && step != run->stride)) return false;
        run->stride = step;
    }
    return true;
}

static layer_run run_at(const ag_kv_rerotate *t, uint32_t layer0, uint32_t head0, uint32_t block) {
    const ag_kv_block *first = block_of(t, layer0, head0, block);
    layer_run run = {.first = first, .layer0 = layer0, .n = 1, .head0 = head0, .n_heads = 1};
    while (head0 + run.n_heads < t->n_kv_heads &&
           follows(first, block_of(t, layer0, head0 + run.n_heads, block), run.n_heads,
                   &run.head_stride)) {
        run.n_heads++;
    }
    while (layer0 + run.n < t->n_layers && layer_follows(t, &run, block)) run.n++;
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
    ag_cl_arg_u64(&l, run->head_stride);
    ag_cl_arg_u32(&l, run->layer0);
    ag_cl_arg_u32(&l, run->head0);
    ag_cl_arg_u32(&l, run->n_heads);
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
    const size_t groups = (size_t)run->n_heads * t->n_positions;
    return ag_cl_enqueue(&l, 2, (size_t[]){groups * WG, run->n}, (size_t[]){WG, 1});
}

/* Where heads do not lie evenly, each layer by itself. */
ag_status ag_cl_kv_rerotate(ag_backend *b, const ag_kv_rerotate *t) {
    for (uint32_t block = 0; block < t->n_blocks; block++) {
        for (uint32_t l = 0, h = 0; l < t->n_layers;) {
            layer_run run = run_at(t, l, h, block);
            if (run.n_heads < t->n_kv_heads) run.n = 1;
            if (run.first->buffer) AG_TRY(turn_run(ag_cl_of(b), t, block, &run));
            h += run.n_heads;
            if (h < t->n_kv_heads) continue;
            h = 0;
            l += run.n;
        }
    }
    return AG_OK;
}
