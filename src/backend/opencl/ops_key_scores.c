/* SPDX-License-Identifier: Apache-2.0 */
/* Launches of kernels/key_scores.cl, one of each kind. Scratch memory has
 *   scores  [kv heads][longest]           sums    [kv heads][blocks][dim rounded up to 4] */
#include "backend/opencl/ops.h"
#include "core/fail.h"

#include <string.h>

static const char file[] = "key_scores.cl";
enum { WG = 64 }; /* as in reduce.cl */

typedef struct work {
    ag_cl_backend *cl;
    const ag_kv_view *kv;
    uint32_t n_slots, n_blocks,
        width; /* slots and blocks of the longest head; width: floats of a sum */
    size_t scores_bytes, sums_at;
    cl_mem scratch;
} work;

static ag_status choose_sizes(work *w) {
    w->n_slots = ag_kv_view_max_slots(w->kv);
    w->n_blocks = ag_kv_blocks_for(w->n_slots);
    w->width = (w->kv->head_dim + 3) / 4 * 4;
    const size_t heads = w->kv->n_kv_heads, sum = (size_t)w->n_blocks * w->width * sizeof(float);
    w->scores_bytes = heads * w->n_slots * sizeof(float);
    w->sums_at = ag_cl_items(w->scores_bytes, 256);
    return ag_cl_need_scratch(w->cl, w->sums_at + heads * sum, &w->scratch);
}

/* Enqueues a kernel with `items` work-items for each KV head. */
static ag_status enqueue(const work *w, const char *kernel, size_t items) {
    const ag_kv_view *kv = w->kv;
    ag_cl_launch l;
    AG_TRY(ag_cl_begin(&l, w->cl, file, kernel, NULL));
    ag_cl_arg_part(&l, w->scratch, 0);
    ag_cl_arg_part(&l, w->scratch, w->sums_at);
    AG_CL_ARG_U32S(&l, w->n_slots, w->n_blocks, w->width);
    ag_cl_arg_view(&l, kv, NULL, w->n_blocks);
    ag_cl_arg_staged(&l, kv->n_slots, kv->n_kv_heads * sizeof *kv->n_slots);
    AG_CL_ARG_U32S(&l, kv->k_type, kv->head_dim);
    return ag_cl_enqueue(&l, 2, (size_t[]){items, kv->n_kv_heads}, (size_t[]){WG, 1});
}

/* Reads all scores at once and spreads the rows to `stride`, starting with the last one. */
static ag_status read_scores(const work *w, float *scores, size_t stride) {
    AG_TRY(ag_cl_read(w->cl, w->scratch, 0, w->scores_bytes, scores, &w->cl->base.err));
    for (size_t h = w->kv->n_kv_heads; h-- > 1;) {
        memmove(scores + h * stride, scores + h * w->n_slots, w->n_slots * sizeof *scores);
    }
    return AG_OK;
}

ag_status ag_cl_key_scores(ag_backend *b, const ag_kv_view *kv, float *scores, size_t stride) {
    work w = {.cl = ag_cl_of(b), .kv = kv};
    AG_TRY(choose_sizes(&w));
    if (!w.n_slots) return AG_OK;
    AG_TRY(enqueue(&w, "key_lengths", (size_t)w.n_blocks * WG));
    AG_TRY(enqueue(&w, "key_mean", WG));
    AG_TRY(enqueue(&w, "key_cosines", (size_t)w.n_blocks * AG_KV_BLOCK));
    return read_scores(&w, scores, stride);
}
